//! How far the targets of an open file reach, and that they come to reach further (`movers::widen`).

use super::far::{FarFile, Place};
use parking_lot::RwLockWriteGuard;
use std::time::Duration;
use types::api::FsResult;
use types::*;

impl FarFile {
    /// Whether it has targets for all that lies before `end`.
    pub(crate) fn reaches(&self, end: u64) -> bool {
        end <= self.place().striped().layout().end()
    }

    /// Whether this is the object by which the catalogue knows where it lies.
    pub(crate) fn lies_in(&self, object: ObjectId) -> bool {
        self.place().decider.is_some_and(|decider| decider.object() == object)
    }

    /// Has it get targets for all that lies before `end`; whoever asks holds nothing of it.
    pub(super) fn reach(&self, end: u64) -> FsResult<()> {
        while !self.reaches(end) {
            let decider = self.place().decider;
            let Some((node, object)) = decider.and_then(|one| Some((one.node()?, one.object()))) else {
                tracing::error!("inode {} gets no more targets: the node stops", self.ino);
                return Err(FsError::Io);
            };
            node.widen_far(self, object, end)?;
        }
        Ok(())
    }

    /// Waits for all who write; then nobody does until what this gives is dropped.
    pub(crate) fn writes_end(&self, patience: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        self.length.try_write_for(patience)
    }

    /// It has more targets from now on. Nobody writes.
    pub(crate) fn widen(&self, to: Place) {
        self.machines.widen();
        *self.place.write() = to;
        self.note_machines();
    }
}
