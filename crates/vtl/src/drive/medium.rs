//! The cartridge in a drive, and where the head stands.

use crate::cartridge::{Cartridge, Moved};
use std::time::Duration;

/// How far a cartridge is threaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Becomes ready at this time.
    Loading { until: Duration },
    /// The same for the first time: the drive tells how far it is with what it began at the first time.
    Calibrating { since: Duration, until: Duration },
    /// A cleaning cartridge works until this time, and is given back then.
    Cleaning { until: Duration },
    /// Threaded.
    Ready,
    /// Unloaded; the robot may take it.
    Ejected,
}

/// A cartridge in a drive.
pub(super) struct Medium {
    pub(super) cartridge: Cartridge,
    pub(super) stage: Stage,
    pub(super) partition: u8,
    pub(super) block: u64,
    /// The volume change reference was counted up since the load.
    pub(super) changed: bool,
    /// The programmable early warning was reported since the last position before it.
    pub(super) warned: bool,
    pub(super) moved: Moved,
    pub(super) write_errors: u64,
    pub(super) read_errors: u64,
}

impl Medium {
    pub(super) fn new(cartridge: Cartridge, until: Duration) -> Self {
        Self {
            cartridge,
            stage: Stage::Loading { until },
            partition: 0,
            block: 0,
            changed: false,
            warned: false,
            moved: Moved::default(),
            write_errors: 0,
            read_errors: 0,
        }
    }

    /// Object number of the end of data of the current partition.
    pub(super) fn end(&self) -> u64 {
        self.cartridge.index(self.partition).end()
    }

    /// Whether nothing of worth lies behind the head: nothing at all, or filemarks only, and one before it.
    pub(super) fn only_marks_follow(&self) -> bool {
        let index = self.cartridge.index(self.partition);
        let marks = |from: u64| (from..self.end()).all(|block| index.length(block) == Some(0));
        self.block == self.end() || (self.block > 0 && marks(self.block - 1))
    }

    /// Bytes of records before the current position.
    pub(super) fn bytes_before(&self) -> u64 {
        self.cartridge.index(self.partition).bytes_before(self.block)
    }

    /// A position as share of the medium's length, the two partitions one behind the other.
    pub(super) fn share(&self, partition: u8, block: u64) -> f64 {
        let total: u64 = (0..self.cartridge.partitions()).map(|p| self.cartridge.capacity(p)).sum();
        let before: u64 = (0..partition).map(|p| self.cartridge.capacity(p)).sum();
        let at = before + self.cartridge.index(partition).bytes_before(block);
        at as f64 / total.max(1) as f64
    }
}
