//! What the node is told of an open file that is written past it: that it has become longer before a write is answered, and that bytes were changed in
//! place at flush, sync and close. And if it was started anew, of one that was written past it or through it, which machines have what is not synced.

use super::Done;
use super::lanes::{Held, Lanes};
use super::names::refused;
use crate::length::{Length, News, Telling};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::FsError;
use wire::FileCall;

/// Tells it by one handle.
#[derive(Debug)]
pub struct Told {
    pub(super) lanes: Arc<Lanes>,
    pub(super) held: Arc<Held>,
    pub(super) length: Arc<Length<()>>,
    /// How often the file had been opened again when the node was told what it may have forgotten.
    lives: AtomicU64,
}

impl Told {
    /// Of a handle by which nothing was written yet.
    pub fn new(lanes: &Arc<Lanes>, held: &Arc<Held>) -> Self {
        Self {
            lanes: lanes.clone(),
            held: held.clone(),
            length: held.length(),
            lives: AtomicU64::new(held.lives()),
        }
    }

    /// Has something written up to `end` (bytes), and the node told if the file is longer then. False: it was not written.
    pub fn writing(&self, end: Option<u64>, write: impl FnOnce() -> Done<bool>) -> Done<bool> {
        let end = end.filter(|end| *end <= i64::MAX as u64);
        let end = end.ok_or_else(|| refused(b"open file", FsError::FileTooLarge))?;
        let writing = self.length.writing(());
        if !write()? {
            return Ok(false);
        }
        if self.length.written((), writing, end) {
            self.commit()?;
        }
        Ok(true)
    }

    /// A node that has opened the file again knows nothing of what the one before was told.
    fn look(&self) {
        let lives = self.held.lives();
        if self.held.was_told_elsewhere() || self.lives.load(Ordering::Acquire) != lives {
            // In this order: who sees the one sees the other.
            self.length.forgotten();
            self.lives.store(lives, Ordering::Release);
        }
    }

    /// Tells the node what was written, if it has not said yet that it knows.
    pub fn commit(&self) -> Done<()> {
        self.look();
        let tell = |News { end, cuts, machines }: &News| {
            // Who could not tell it must not close the file as if it had not been changed.
            let lives = Cell::new(0);
            let call = |handle| {
                lives.set(self.held.lives());
                FileCall::LayoutCommit { handle, end: *end, machines: machines.clone(), cuts: *cuts }
            };
            let told = self.lanes.call_again(&self.held, call).0;
            if told.is_ok() {
                // Also what those before were told.
                self.lives.fetch_max(lives.get(), Ordering::AcqRel);
            }
            told
        };
        self.length.commit(Telling::All, |_, news| tell(news).map(Some)).map(drop)
    }

    /// What was written before is durable when the node says so.
    pub fn sync(&self) -> Done<()> {
        let sync = || {
            let synced = self.lanes.fsync(&self.held);
            self.look();
            synced
        };
        self.length.sync(|| self.commit(), sync, |e| !e.is_away() && !e.no_node())
    }
}
