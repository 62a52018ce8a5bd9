//! A transaction under way: private changes above a snapshot at the server.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::base::{Base, Pages};
use super::counter::Delta;
use crate::buffer::{Buffer, Changes, MapSource};
use crate::key::Key;
use crate::limits::check_key;
use crate::merge::{Direction, merge};
use crate::{Reader, Result, Visit, Writer};

/// A transaction; one that only reads has no changes.
pub(super) struct Txn<'c> {
    base: Base<'c>,
    changes: Buffer,
    /// Counters that are changed without having been read; none of them is in `changes`.
    counters: BTreeMap<Key, Delta>,
}

/// What a transaction leaves to be done.
pub(super) struct Done {
    pub(super) changes: Changes,
    pub(super) counters: BTreeMap<Key, Delta>,
}

impl Done {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.counters.is_empty()
    }
}

impl<'c> Txn<'c> {
    pub(super) fn new(base: Base<'c>) -> Self {
        Self { base, changes: Buffer::default(), counters: BTreeMap::new() }
    }

    pub(super) fn into_parts(self) -> (Base<'c>, Done) {
        (self.base, Done { changes: self.changes.into_changes(), counters: self.counters })
    }

    fn value(&self, key: &[u8], lock: bool) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let key = Key::new(key);
        if let Some(own) = self.changes.get(&key) {
            return Ok(own.map(<[u8]>::to_vec));
        }
        let below = self.base.lookup(&key, lock)?;
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
            let below = self.base.lookup(key, false)?;
            counted.insert(key.clone(), Some(delta.apply(below.as_deref())?));
        }
        let mut counted = MapSource::new(counted.range(bounds), |v| v.as_deref(), direction);
        let mut own = self.changes.source(range.0, range.1, direction);
        let mut pages = Pages::new(&self.base, range, direction)?;
        merge(&mut [&mut counted, &mut own, &mut pages], direction, visit)
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
        let after = delta.apply(self.value(key, false)?.as_deref())?;
        self.put(key, &after)
    }
}

impl Reader for Txn<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(key, false)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk((from, to), Direction::Up, visit)
    }

    fn scan_back(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk((from, to), Direction::Down, visit)
    }
}

impl Writer for Txn<'_> {
    fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(key, true)
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
