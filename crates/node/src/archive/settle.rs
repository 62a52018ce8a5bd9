//! Makes recalled files resident, on a thread of its own: while their bytes reach stable storage the drive streams on.

use super::store::Arrived;
use super::worker::{Wanted, Worker};
use crate::files::Outcome;
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use std::time::Duration;
use tape::TapeError;
use types::*;

/// Kernels before 6.13 may give a change this soon after the last the same time.
const SETTLED_AFTER: Duration = Duration::from_millis(20);

const LOST: &str = "the disk tier lost writes while it was recalled; look at the kernel log and at the disk, then stage again";

/// The thread that settles.
pub struct Settler<'t> {
    worker: &'t Worker,
    failed: &'t Mutex<Vec<(Wanted, TapeError)>>,
}

impl<'t> Settler<'t> {
    /// Files with bytes that are not those of the version go to `failed`.
    pub fn new(worker: &'t Worker, failed: &'t Mutex<Vec<(Wanted, TapeError)>>) -> Self {
        Self { worker, failed }
    }

    /// Settles what comes.
    pub fn run(&self, batches: &Receiver<Arrived>) {
        batches.iter().for_each(|arrived| self.settle(arrived));
    }

    /// Syncs once, compares digests, and makes the files resident.
    fn settle(&self, arrived: Arrived) {
        let node = &self.worker.node;
        let synced = node.disk.sync_fs().map_err(|e| e.to_string());
        // The stamps taken below tell of every change that follows them.
        crate::clock::sleep(SETTLED_AFTER);
        for (one, digest) in arrived {
            let lost = node.disk.failed_syncs() != one.staging.failed_syncs();
            let stored = if lost { synced.clone().and(Err(LOST.to_owned())) } else { synced.clone() };
            if let Err(why) = stored {
                node.archive.forget_recall(&one);
                node.end_recall(&one.staging, Outcome::Failed(why));
                continue;
            }
            match digest_matches(self.worker, &one, digest) {
                Ok(()) => {
                    node.archive.forget_recall(&one);
                    node.recall_arrived(&one.staging);
                    note_digest(self.worker, &one, digest);
                }
                Err(e) => {
                    one.staging.distrust();
                    self.failed.lock().push((one, e));
                }
            }
        }
    }
}

/// The digest of the version that is recalled, if it is the present one and still wanted.
pub fn recorded_digest(worker: &Worker, one: &Wanted) -> Option<Digest> {
    let file = worker.node.catalog.inode(one.queued.ino).ok()?.file?;
    file.digest.filter(|_| file.version == one.staging.version && one.staging.outcome().is_none())
}

/// A file that was imported without a digest has one from now on.
fn note_digest(worker: &Worker, one: &Wanted, digest: Option<Digest>) {
    let catalog = &worker.node.catalog;
    let ino = one.queued.ino;
    let none = || catalog.inode(ino).is_ok_and(|inode| inode.file.is_some_and(|f| f.digest.is_none()));
    if let Some(digest) = digest
        && none()
        && let Err(e) = catalog.note_digest(ino, one.staging.version, digest)
    {
        tracing::warn!("inode {ino}: its digest cannot be recorded: {e}");
    }
}

/// Versions that are not wanted any more have nothing to be compared with: recording them will be refused.
fn digest_matches(worker: &Worker, one: &Wanted, digest: Option<Digest>) -> Result<(), TapeError> {
    if one.staging.is_proved() {
        return Ok(());
    }
    let Some(expected) = recorded_digest(worker, one) else { return Ok(()) };
    let found = match digest {
        Some(digest) => Some(digest),
        None => one.staging.object().and_then(|(_, fd)| worker.node.digest_of_object(&fd, one.staging.size)),
    };
    if found == Some(expected) {
        return Ok(());
    }
    let (ino, copy) = (one.queued.ino, one.queued.copy);
    let what =
        format!("inode {ino} copy {copy}: the bytes read do not have the digest recorded at migration");
    Err(super::trouble::damaged(&one.queued.segment.volume, what))
}
