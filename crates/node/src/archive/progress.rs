//! How far a drive is with its job, for whoever looks meanwhile.

use super::passing::Passing;
use super::slow::SlowLoad;
use crate::clock::Moment;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tape::Claim;

/// Bytes that a drive has moved since its volume was mounted, and since when the present job runs.
#[derive(Default)]
pub struct Progress {
    /// Bytes.
    pub bytes: AtomicU64,
    /// Files written.
    pub files: AtomicU64,
    job: Mutex<Option<(Moment, u64, u64)>>,
    /// Of a job that writes: bytes that its volume still takes, and whether it takes no more files.
    room: Mutex<Option<(u64, bool)>>,
    /// Of a job that reads: how far it is with its files.
    passing: Mutex<Option<Arc<Passing>>>,
    claim: Mutex<Claim>,
    held: AtomicBool,
    /// The drive has asked to be cleaned in the middle of its work.
    pub soiled: AtomicBool,
    /// How the volume that it loads gets on, if that takes long.
    pub slow_load: SlowLoad,
}

impl Progress {
    /// A job begins.
    pub fn begin(&self) {
        let [bytes, files] = [&self.bytes, &self.files].map(|count| count.load(Ordering::Relaxed));
        *self.job.lock() = Some((Moment::now(), bytes, files));
    }

    /// A job ended.
    pub fn end(&self) {
        *self.job.lock() = None;
        *self.room.lock() = None;
        *self.passing.lock() = None;
    }

    /// The volume that is being written takes so many bytes more; `closing`: none, it only gets its index.
    pub fn takes(&self, bytes: u64, closing: bool) {
        *self.room.lock() = Some((bytes, closing));
    }

    /// What [`Progress::takes`] was told last in this job.
    pub fn room(&self) -> Option<(u64, bool)> {
        *self.room.lock()
    }

    /// The job reads these files.
    pub fn passes(&self, passing: Arc<Passing>) {
        *self.passing.lock() = Some(passing);
    }

    /// What [`Progress::passes`] was told last in this job.
    pub fn passing(&self) -> Option<Arc<Passing>> {
        self.passing.lock().clone()
    }

    /// Whether the drive is reserved for us.
    pub fn claimed(&self, claim: Claim) {
        *self.claim.lock() = claim;
        if claim == Claim::Held {
            self.held.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was so at any time since the node began.
    pub fn was_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// What [`Progress::claimed`] was told last.
    pub fn claim(&self) -> Claim {
        *self.claim.lock()
    }

    /// Bytes per second of the present job.
    pub fn rate(&self) -> u64 {
        self.moved().map_or(0, |(took_s, bytes, _)| (bytes as f64 / took_s.max(0.001)) as u64)
    }

    /// Of the present job: how long it runs (seconds), bytes moved, and files written.
    pub fn moved(&self) -> Option<(f64, u64, u64)> {
        let (since, bytes, files) = (*self.job.lock())?;
        let since_then = |count: &AtomicU64, before| count.load(Ordering::Relaxed).saturating_sub(before);
        Some((since.elapsed().as_secs_f64(), since_then(&self.bytes, bytes), since_then(&self.files, files)))
    }
}
