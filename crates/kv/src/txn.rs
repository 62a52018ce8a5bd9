//! A transaction under way: private changes above a base that does not change below it.

use crate::buffer::{Buffer, Changes, MapSource};
use crate::key::Key;
use crate::limits::{check_key, counter};
use crate::merge::Direction;
use crate::{Reader, Result, Visit, Writer};

/// What a transaction sees below its own changes.
pub(crate) trait Base {
    /// Value of `key`.
    fn lookup(&self, key: &Key) -> Result<Option<Vec<u8>>>;
    /// Visits pairs with `from <= key < to`, shadowed by those of `upper`; `from` is below `to`.
    fn walk(
        &self,
        upper: MapSource<'_>,
        range: (&[u8], &[u8]),
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<()>;
}

/// A transaction on a base; one that only reads has no changes.
pub(crate) struct Txn<B> {
    base: B,
    changes: Buffer,
}

impl<B: Base> Txn<B> {
    pub(crate) fn new(base: B) -> Self {
        Self { base, changes: Buffer::default() }
    }

    pub(crate) fn into_changes(self) -> Changes {
        self.changes.into_changes()
    }

    fn walk(&self, range: (&[u8], &[u8]), direction: Direction, visit: Visit<'_>) -> Result<()> {
        if range.0 >= range.1 {
            return Ok(());
        }
        self.base.walk(self.changes.source(range.0, range.1, direction), range, direction, visit)
    }
}

impl<B: Base> Reader for Txn<B> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let key = Key::new(key);
        match self.changes.get(&key) {
            Some(own) => Ok(own.map(<[u8]>::to_vec)),
            None => self.base.lookup(&key),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk((from, to), Direction::Up, visit)
    }

    fn scan_back(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk((from, to), Direction::Down, visit)
    }
}

impl<B: Base> Writer for Txn<B> {
    fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.changes.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.changes.delete(key)
    }

    fn add(&mut self, key: &[u8], delta: i64) -> Result<()> {
        let now = counter(self.get(key)?.as_deref(), 0)?;
        self.put(key, &now.wrapping_add(delta).to_le_bytes())
    }

    fn raise(&mut self, key: &[u8], value: i64) -> Result<()> {
        let now = counter(self.get(key)?.as_deref(), i64::MIN)?;
        self.put(key, &now.max(value).to_le_bytes())
    }
}
