//! A point in time of an engine.

use std::cell::OnceCell;
use std::sync::Arc;

use heed::{RoTxn, WithoutTls};

use super::overlay::{Overlay, OverlaySource};
use super::shared::{Core, Layers};
use crate::buffer::MapSource;
use crate::key::Key;
use crate::merge::{Direction, Source, merge};
use crate::txn::Base;
use crate::{Result, Visit};

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
}

impl Base for View<'_> {
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
        mut upper: MapSource<'_>,
        range: (&[u8], &[u8]),
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<()> {
        let mut active = OverlaySource::new(&self.active, self.seq, range, direction);
        let mut frozen = self.frozen.as_ref().map(|f| OverlaySource::new(f, self.seq, range, direction));
        let mut store = self.core.store.source(self.txn()?, range, direction)?;
        let mut layers: Vec<&mut dyn Source> = Vec::with_capacity(crate::merge::MAX_LAYERS);
        layers.push(&mut upper);
        layers.push(&mut active);
        layers.extend(frozen.as_mut().map(|f| f as &mut dyn Source));
        layers.push(&mut store);
        merge(&mut layers, direction, visit)
    }
}
