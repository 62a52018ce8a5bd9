//! An engine in memory: for models and tests. Nothing survives the process.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::buffer::{Changes, MapSource};
use crate::key::Key;
use crate::merge::{Direction, merge};
use crate::txn::{Base, Txn};
use crate::{Durability, Engine, KvError, Reader, Result, Stats, Visit, Writer};

type Map = BTreeMap<Key, Vec<u8>>;

/// Ordered map behind a lock; writers run one after another, readers hold the lock for the length of their closure.
#[derive(Default)]
pub struct MemoryEngine {
    /// Held by the one running writing closure; the map changes only under it.
    writer: Mutex<()>,
    map: RwLock<Map>,
    writes: AtomicU64,
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies changes; returns what would undo them.
    pub(crate) fn commit(&self, changes: Changes) -> Changes {
        let mut map = self.map.write();
        let mut inverse = Changes::new();
        for (key, value) in changes {
            let before = match value {
                Some(value) => map.insert(key.clone(), value),
                None => map.remove(&key),
            };
            inverse.insert(key, before);
        }
        self.writes.fetch_add(1, Ordering::Relaxed);
        inverse
    }

    /// Runs a writing closure and commits; returns what would undo it.
    pub(crate) fn change(&self, f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>) -> Result<Changes> {
        let _writer = self.writer.lock();
        let changes = {
            let map = self.map.read();
            let mut txn = Txn::new(&*map);
            f(&mut txn)?;
            txn.into_changes()
        };
        Ok(self.commit(changes))
    }
}

impl Engine for MemoryEngine {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        f(&Txn::new(&*self.map.read()))
    }

    fn write_dyn(&self, _: Durability, f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>) -> Result<()> {
        self.change(f).map(drop)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn verify(&self) -> Result<()> {
        Ok(())
    }

    fn backup(&self, to: &Path) -> Result<()> {
        Err(KvError::Io { path: to.into(), detail: "an engine in memory has no backup".into() })
    }

    fn stats(&self) -> Stats {
        let map = self.map.read();
        let bytes = map.iter().map(|(k, v)| (k.bytes().len() + v.len()) as u64).sum();
        Stats { keys: map.len() as u64, bytes, writes: self.writes.load(Ordering::Relaxed), flushes: 0 }
    }
}

impl Base for &Map {
    fn lookup(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.get(key).cloned())
    }

    fn walk(
        &self,
        mut upper: MapSource<'_>,
        (from, to): (&[u8], &[u8]),
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<()> {
        let range = self.range((Bound::Included(Key::new(from)), Bound::Excluded(Key::new(to))));
        let mut map = MapSource::new(range, |v| Some(v.as_slice()), direction);
        merge(&mut [&mut upper, &mut map], direction, visit)
    }
}
