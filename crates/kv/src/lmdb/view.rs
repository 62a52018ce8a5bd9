//! A point in time of an engine, and the running transaction of a writer on it.

use std::cell::OnceCell;
use std::sync::Arc;

use heed::{RoTxn, WithoutTls};

use super::overlay::{Overlay, OverlaySource};
use super::shared::{Core, Layers};
use crate::buffer::{Buffer, MapSource};
use crate::key::Key;
use crate::limits::{check_key, counter};
use crate::merge::{Direction, Source, merge};
use crate::{Reader, Result, Visit, Writer};

/// What transaction `seq` sees.
pub(super) struct View<'e> {
    core: &'e Core,
    active: Arc<Overlay>,
    frozen: Option<Arc<Overlay>>,
    seq: u64,
    txn: OnceCell<RoTxn<'e, WithoutTls>>,
}

impl<'e> View<'e> {
    pub(super) fn new(core: &'e Core, layers: &Layers, seq: u64, txn: Option<RoTxn<'e, WithoutTls>>) -> Self {
        let txn = txn.map_or_else(OnceCell::new, OnceCell::from);
        Self { core, active: layers.active.clone(), frozen: layers.frozen.clone(), seq, txn }
    }

    fn txn(&self) -> Result<&RoTxn<'e, WithoutTls>> {
        if let Some(txn) = self.txn.get() {
            return Ok(txn);
        }
        let txn = self.core.store.read_txn()?;
        Ok(self.txn.get_or_init(|| txn))
    }

    fn lookup(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        if let Some(found) = self.active.get(key, self.seq) {
            return Ok(found);
        }
        if let Some(found) = self.frozen.as_ref().and_then(|f| f.get(key, self.seq)) {
            return Ok(found);
        }
        self.core.store.get(self.txn()?, key.bytes())
    }

    fn walk(
        &self,
        mut upper: Option<MapSource<'_>>,
        range: (&[u8], &[u8]),
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<()> {
        let mut active = OverlaySource::new(&self.active, self.seq, range, direction);
        let mut frozen = self.frozen.as_ref().map(|f| OverlaySource::new(f, self.seq, range, direction));
        let mut store = self.core.store.source(self.txn()?, range, direction)?;
        let mut layers: Vec<&mut dyn Source> = Vec::with_capacity(crate::merge::MAX_LAYERS);
        layers.extend(upper.as_mut().map(|u| u as &mut dyn Source));
        layers.push(&mut active);
        layers.extend(frozen.as_mut().map(|f| f as &mut dyn Source));
        layers.push(&mut store);
        merge(&mut layers, direction, visit)
    }
}

impl Reader for View<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        self.lookup(&Key::new(key))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        if from < to { self.walk(None, (from, to), Direction::Up, visit) } else { Ok(()) }
    }

    fn scan_back(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        if from < to { self.walk(None, (from, to), Direction::Down, visit) } else { Ok(()) }
    }
}

/// The running transaction of the one writer.
pub(super) struct WriteTxn<'e> {
    pub(super) view: View<'e>,
    pub(super) buffer: Buffer,
}

impl WriteTxn<'_> {
    fn walk(&self, from: &[u8], to: &[u8], direction: Direction, visit: Visit<'_>) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let buffer = self.buffer.source(from, to, direction);
        self.view.walk(Some(buffer), (from, to), direction, visit)
    }
}

impl Reader for WriteTxn<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let key = Key::new(key);
        match self.buffer.get(&key) {
            Some(own) => Ok(own.map(<[u8]>::to_vec)),
            None => self.view.lookup(&key),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk(from, to, Direction::Up, visit)
    }

    fn scan_back(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk(from, to, Direction::Down, visit)
    }
}

impl Writer for WriteTxn<'_> {
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
