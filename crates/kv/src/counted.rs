//! A transaction under way: private changes above a snapshot at a server; counters that are only added to are not read.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::buffer::{Buffer, Changes, MapSource};
use crate::counter::Delta;
use crate::key::Key;
use crate::limits::check_key;
use crate::merge::{Direction, Source, merge};
use crate::{Reader, Result, Visit, Writer};

/// A snapshot at a server.
pub(crate) trait Below {
    /// Value of `key`. That nobody else changes it before the transaction ends is looked at when it does.
    fn lookup(&self, key: &Key) -> Result<Option<Vec<u8>>>;
    /// The pairs with `from <= key < to`.
    fn pages<'s>(&'s self, range: (&[u8], &[u8]), direction: Direction) -> Result<Box<dyn Source + 's>>;
}

/// A transaction; one that only reads has no changes.
pub(crate) struct Txn<B> {
    base: B,
    changes: Buffer,
    /// Counters that are changed without having been read; none of them is in `changes`.
    counters: BTreeMap<Key, Delta>,
}

/// What a transaction leaves to be done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) changes: Changes,
    pub(crate) counters: BTreeMap<Key, Delta>,
}

impl Done {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.counters.is_empty()
    }
}

impl<B: Below> Txn<B> {
    pub(crate) fn new(base: B) -> Self {
        Self { base, changes: Buffer::default(), counters: BTreeMap::new() }
    }

    pub(crate) fn into_parts(self) -> (B, Done) {
        (self.base, Done { changes: self.changes.into_changes(), counters: self.counters })
    }

    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let key = Key::new(key);
        if let Some(own) = self.changes.get(&key) {
            return Ok(own.map(<[u8]>::to_vec));
        }
        let below = self.base.lookup(&key)?;
        match self.counters.get(&key) {
            Some(delta) => delta.apply(below.as_deref()).map(Some),
            None => Ok(below),
        }
    }

    fn walk(&self, range: (&[u8], &[u8]), direction: Direction, visit: Visit<'_>) -> Result<()> {
        if range.0 >= range.1 {
            return Ok(());
        }
        let bounds = (Bound::Included(Key::new(range.0)), Bound::Excluded(Key::new(range.1)));
        let mut counted = Changes::new();
        for (key, delta) in self.counters.range(bounds.clone()) {
            let below = self.base.lookup(key)?;
            counted.insert(key.clone(), Some(delta.apply(below.as_deref())?));
        }
        let mut counted = MapSource::new(counted.range(bounds), |v| v.as_deref(), direction);
        let mut own = self.changes.source(range.0, range.1, direction);
        let mut pages = self.base.pages(range, direction)?;
        merge(&mut [&mut counted, &mut own, &mut *pages], direction, visit)
    }

    fn change(&mut self, key: &[u8], delta: Delta) -> Result<()> {
        check_key(key)?;
        let name = Key::new(key);
        let earlier = self.counters.get(&name).copied();
        let joined = match earlier {
            None if self.changes.get(&name).is_none() => Some(delta),
            None => None,
            Some(earlier) => earlier.join(delta),
        };
        if let Some(joined) = joined {
            self.counters.insert(name, joined);
            return Ok(());
        }
        let after = delta.apply(self.value(key)?.as_deref())?;
        self.put(key, &after)
    }
}

impl<B: Below> Reader for Txn<B> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk((from, to), Direction::Up, visit)
    }

    fn scan_back(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk((from, to), Direction::Down, visit)
    }
}

impl<B: Below> Writer for Txn<B> {
    fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.changes.put(key, value)?;
        self.counters.remove(&Key::new(key));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.changes.delete(key)?;
        self.counters.remove(&Key::new(key));
        Ok(())
    }

    fn add(&mut self, key: &[u8], delta: i64) -> Result<()> {
        self.change(key, Delta::Add(delta))
    }

    fn raise(&mut self, key: &[u8], value: i64) -> Result<()> {
        self.change(key, Delta::Raise(value))
    }
}
