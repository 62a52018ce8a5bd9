//! Volumes, pools and classes of service. Durable.

use super::Catalog;
use crate::{Backlog, NewSegment, RecordOutcome, Result, TapeNode, VolumeAppend};
use std::ops::ControlFlow;
use types::*;

impl Catalog {
    /// Records what a flushed append left on a volume: copies, the volume's tree and its sums. One outcome per segment.
    pub fn record_copies(
        &self,
        append: &VolumeAppend,
        segments: &[NewSegment],
    ) -> Result<Vec<RecordOutcome>> {
        todo!()
    }

    /// A volume by barcode.
    pub fn volume(&self, barcode: &Barcode) -> Result<Option<Volume>> {
        todo!()
    }

    /// All volumes in order of barcode.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        todo!()
    }

    /// Enters a volume, or overwrites its record. `live` and `live_files` are kept by the catalogue; given values are ignored.
    pub fn put_volume(&self, volume: &Volume) -> Result<()> {
        todo!()
    }

    /// Changes a volume's record in one transaction; `change` may run more than once. `barcode`, `live` and `live_files`
    /// cannot be changed by it.
    pub fn update_volume(&self, barcode: &Barcode, change: &mut dyn FnMut(&mut Volume)) -> Result<Volume> {
        todo!()
    }

    /// The volume got a new label: `fresh` is its record from now on, and its old tree is dropped (in several
    /// transactions; `open` ends an interrupted one). Refused while a current version needs it.
    pub fn label_volume(&self, barcode: &Barcode, fresh: &Volume) -> Result<()> {
        todo!()
    }

    /// Forgets a volume that holds nothing. Refused while its tree has entries.
    pub fn forget_volume(&self, barcode: &Barcode) -> Result<()> {
        todo!()
    }

    /// Walks the tree of a volume, depth first, in bounded memory and in many short transactions: nothing may be recorded
    /// on the volume meanwhile.
    pub fn walk_volume(
        &self,
        barcode: &Barcode,
        visit: &mut dyn FnMut(TapeNode<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        todo!()
    }

    /// Files of a volume in order of its tree, with their paths on the volume; skips the first `skip`.
    pub fn volume_files(
        &self,
        barcode: &Barcode,
        skip: u64,
        limit: usize,
    ) -> Result<Vec<(String, TapeFile)>> {
        todo!()
    }

    /// Classes in order of name.
    pub fn classes(&self) -> Result<Vec<Class>> {
        todo!()
    }

    /// A class by name.
    pub fn class(&self, name: &ClassName) -> Result<Option<Class>> {
        todo!()
    }

    /// Makes or changes a class. New rules hold for a file from its next change of content on, and for all others after
    /// `refresh_classes`.
    pub fn put_class(&self, class: &Class) -> Result<()> {
        todo!()
    }

    /// Applies changed classes to the next `limit` inodes; false when nothing is left to do. Survives a restart.
    pub fn refresh_classes(&self, limit: usize, now: Time) -> Result<bool> {
        todo!()
    }

    /// Removes a class that no inode has.
    pub fn delete_class(&self, name: &ClassName) -> Result<()> {
        todo!()
    }

    /// Pools in order of name.
    pub fn pools(&self) -> Result<Vec<Pool>> {
        todo!()
    }

    /// Makes or changes a pool.
    pub fn put_pool(&self, pool: &Pool) -> Result<()> {
        todo!()
    }

    /// Removes a pool that no class and no volume names.
    pub fn delete_pool(&self, name: &PoolName) -> Result<()> {
        todo!()
    }

    /// Closed files that lack their copy in this pool.
    pub fn pool_backlog(&self, pool: &PoolName) -> Result<Backlog> {
        todo!()
    }

    /// Closed files of this class that lack a copy.
    pub fn class_backlog(&self, class: &ClassName) -> Result<Backlog> {
        todo!()
    }
}
