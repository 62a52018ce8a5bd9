//! An engine in memory: for models and tests. Nothing survives the process.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::buffer::{Buffer, Changes, MapSource};
use crate::key::Key;
use crate::limits::{check_key, counter};
use crate::merge::{Direction, merge};
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

    fn commit(&self, changes: Changes) {
        let mut map = self.map.write();
        for (key, value) in changes {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Engine for MemoryEngine {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        f(&Txn { map: &self.map.read(), buffer: Buffer::default() })
    }

    fn write_dyn(&self, _: Durability, f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>) -> Result<()> {
        let _writer = self.writer.lock();
        let changes = {
            let map = self.map.read();
            let mut txn = Txn { map: &map, buffer: Buffer::default() };
            f(&mut txn)?;
            txn.buffer.into_changes()
        };
        self.commit(changes);
        Ok(())
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

struct Txn<'a> {
    map: &'a Map,
    buffer: Buffer,
}

impl Txn<'_> {
    fn walk(&self, from: &[u8], to: &[u8], direction: Direction, visit: Visit<'_>) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let mut buffer = self.buffer.source(from, to, direction);
        let range = self.map.range((Bound::Included(Key::new(from)), Bound::Excluded(Key::new(to))));
        let mut map = MapSource::new(range, |v| Some(v.as_slice()), direction);
        merge(&mut [&mut buffer, &mut map], direction, visit)
    }
}

impl Reader for Txn<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let key = Key::new(key);
        let found = self.buffer.get(&key).unwrap_or_else(|| self.map.get(&key).map(Vec::as_slice));
        Ok(found.map(<[u8]>::to_vec))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk(from, to, Direction::Up, visit)
    }

    fn scan_back(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk(from, to, Direction::Down, visit)
    }
}

impl Writer for Txn<'_> {
    fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.buffer.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.buffer.delete(key)
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
