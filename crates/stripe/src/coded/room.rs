//! Memory for bytes of rows that are not complete.

use super::pace::MOMENT;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One component has at most this part of the room.
const SHARE: u64 = 4;

/// Room in memory for what is written behind, for all files that share it.
#[derive(Debug)]
pub struct Room {
    whole: u64,
    pub(super) moment: Duration,
    left: AtomicU64,
    closed: AtomicBool,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: u64) -> Self {
        let (left, closed) = (AtomicU64::new(bytes), AtomicBool::new(false));
        Self { whole: bytes, moment: MOMENT, left, closed }
    }

    /// Who runs ahead of others waits so long when nothing moves, and ten times as long while something is on its way to targets.
    #[must_use]
    pub fn patient(self, moment: Duration) -> Self {
        Self { moment, ..self }
    }

    /// Most bytes that are kept of one component.
    pub(super) fn most(&self) -> u64 {
        self.whole / SHARE
    }

    /// How many bytes are free.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// From now on nothing more is kept: what is written goes through, and what a [`Striped::flush`] that begins after this leaves was not
    /// taken. False if it was so before.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Whether [`Room::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        !self.is_closed() && self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    pub(super) fn give(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::AcqRel);
    }
}
