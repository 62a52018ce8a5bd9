//! The private changes of one running transaction.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use crate::Result;
use crate::key::Key;
use crate::limits::{check_key, check_value};
use crate::merge::{Direction, Entry, Source};

/// Changes by key; `None` is a deletion.
pub(crate) type Changes = BTreeMap<Key, Option<Vec<u8>>>;

/// Changes that only their transaction sees.
#[derive(Default)]
pub(crate) struct Buffer(Changes);

impl Buffer {
    pub(crate) fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.0.get(key).map(|v| v.as_deref())
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        self.0.insert(Key::new(key), Some(value.to_vec()));
        Ok(())
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.0.insert(Key::new(key), None);
        Ok(())
    }

    pub(crate) fn into_changes(self) -> Changes {
        self.0
    }

    pub(crate) fn source<'a>(&'a self, from: &[u8], to: &[u8], direction: Direction) -> MapSource<'a> {
        let range = self.0.range((Bound::Included(Key::new(from)), Bound::Excluded(Key::new(to))));
        MapSource::new(range, |v| v.as_deref(), direction)
    }
}

/// Part of an ordered map as a layer of a scan.
pub(crate) struct MapSource<'a, V = Option<Vec<u8>>> {
    range: btree_map::Range<'a, Key, V>,
    value: fn(&'a V) -> Option<&'a [u8]>,
    direction: Direction,
    here: Option<Entry<'a>>,
}

impl<'a, V> MapSource<'a, V> {
    pub(crate) fn new(
        range: btree_map::Range<'a, Key, V>,
        value: fn(&'a V) -> Option<&'a [u8]>,
        direction: Direction,
    ) -> Self {
        let mut source = Self { range, value, direction, here: None };
        source.step();
        source
    }

    fn step(&mut self) {
        let next = match self.direction {
            Direction::Up => self.range.next(),
            Direction::Down => self.range.next_back(),
        };
        self.here = next.map(|(k, v)| (k.bytes(), (self.value)(v)));
    }
}

impl<V> Source for MapSource<'_, V> {
    fn peek(&self) -> Option<Entry<'_>> {
        self.here
    }

    fn advance(&mut self) -> Result<()> {
        self.step();
        Ok(())
    }
}
