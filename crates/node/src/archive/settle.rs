//! Makes recalled files resident, on a thread of its own: while their bytes reach stable storage the drive streams on.

use super::worker::{Wanted, Worker};
use crate::clock::Moment;
use crate::files::{Outcome, Staging};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use tape::TapeError;
use types::*;

/// Kernels before 6.13 may give a change this soon after the last the same time.
const SETTLED_AFTER: Duration = Duration::from_millis(20);

const LOST: &str = "the disk tier lost writes while it was recalled; look at the kernel log and at the disk, then stage again";

/// Files wait for each other so long at most, and so many of them: one sync of the file system serves all. A drive that brings
/// one file after the other gets it resident within this time and that of the sync, and many small ones cost few syncs.
const TOGETHER: Duration = Duration::from_millis(200);
const TOGETHER_FILES: usize = 500;
const TOGETHER_BYTES: u64 = 1 << 30;
/// Files that another drive waits for do not wait longer when so much is here.
const PASSING_BYTES: u64 = 16 << 20;
/// Where syncs take long, because the disk tier has much else to write, the next one waits for so many times as long.
const SYNC_PAUSE: u32 = 4;
/// So few files are synced one by one, which leaves alone what others write meanwhile.
const FEW: usize = 4;
/// So many files on targets are synced at once.
const FAR_SYNCS: usize = 16;

/// What a drive's files come to.
pub enum News {
    /// Bytes of it come off the tape.
    Begun(Arc<Staging>),
    /// It is whole, with the digest of its bytes if it came in one segment.
    Whole(Wanted, Option<Digest>),
}

/// What is to be settled next.
#[derive(Default)]
struct Batch {
    begun: Vec<Arc<Staging>>,
    whole: Vec<(Wanted, Option<Digest>)>,
    bytes: u64,
    /// Bytes of those that another drive waits for.
    passing: u64,
}

impl Batch {
    fn add(&mut self, news: News) {
        match news {
            News::Begun(staging) => self.begun.push(staging),
            News::Whole(one, digest) => {
                let size = one.staging.size;
                self.bytes = self.bytes.saturating_add(size);
                self.passing = self.passing.saturating_add(if one.staging.passes() { size } else { 0 });
                self.whole.push((one, digest));
            }
        }
    }

    fn is_full(&self) -> bool {
        self.whole.len() >= TOGETHER_FILES || self.bytes >= TOGETHER_BYTES || self.passing >= PASSING_BYTES
    }
}

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

    /// Settles what comes, one group after the other: what comes while one is synced is the next.
    pub fn run(&self, news: &Receiver<News>) {
        let (mut next, mut goes_on) = (Moment::now(), true);
        while goes_on {
            let batch;
            (batch, goes_on) = gather(news, next);
            let took = self.settle(batch);
            next = Moment::now() + TOGETHER.max(took * SYNC_PAUSE);
        }
    }

    /// Makes whole files resident, and notes that requests have begun whose files go on; says how long the sync took.
    fn settle(&self, Batch { begun, whole, .. }: Batch) -> Duration {
        let took = if whole.is_empty() { Duration::ZERO } else { self.make_resident(whole) };
        begun.iter().filter(|staging| staging.outcome().is_none()).for_each(|staging| {
            self.worker.node.recall_began(staging);
        });
        took
    }

    fn sync(&self, one: &Wanted) -> Result<(), String> {
        one.staging.object().map_or(Ok(()), |object| object.content.sync(&self.worker.node))
    }

    /// Makes what is on targets durable, several files at once: each has several targets to wait for.
    fn sync_far(&self, far: &[&Wanted]) -> Vec<Result<(), String>> {
        let each = far.len().div_ceil(FAR_SYNCS).max(1);
        let sync = |part: &[&Wanted]| part.iter().map(|one| self.sync(one)).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            let parts: Vec<_> = far.chunks(each).map(|part| scope.spawn(move || sync(part))).collect();
            parts.into_iter().flat_map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    /// Makes files durable: those of the disk tier by one sync of its file system, if they are more than a few.
    fn sync_all(&self, whole: &[(Wanted, Option<Digest>)]) -> Vec<Result<(), String>> {
        let is_local = |one: &Wanted| one.staging.is_local();
        let far: Vec<&Wanted> = whole.iter().map(|(one, _)| one).filter(|one| !is_local(one)).collect();
        let disk = &self.worker.node.disk;
        let all = (whole.len() - far.len() > FEW).then(|| disk.sync_fs().map_err(|e| e.to_string()));
        let mut far = if far.is_empty() { Vec::new() } else { self.sync_far(&far) }.into_iter();
        let one = |(one, _): &(Wanted, _)| match is_local(one) {
            true => all.clone().unwrap_or_else(|| self.sync(one)),
            false => far.next().unwrap_or(Ok(())),
        };
        whole.iter().map(one).collect()
    }

    /// Syncs, compares digests, and makes the files resident.
    fn make_resident(&self, whole: Vec<(Wanted, Option<Digest>)>) -> Duration {
        let (node, begun) = (&self.worker.node, Moment::now());
        let synced = self.sync_all(&whole);
        let took = begun.elapsed();
        // The stamps taken below tell of every change that follows them.
        crate::clock::sleep(SETTLED_AFTER);
        for ((one, digest), synced) in whole.into_iter().zip(synced) {
            let lost = one.staging.is_local() && node.disk.failed_syncs() != one.staging.failed_syncs();
            let stored = if lost { synced.and(Err(LOST.to_owned())) } else { synced };
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
        took
    }
}

/// What comes until `next`, at least something, and whether more may come. It ends early when there is enough.
fn gather(news: &Receiver<News>, next: Moment) -> (Batch, bool) {
    let mut batch = Batch::default();
    let Ok(first) = news.recv() else { return (batch, false) };
    batch.add(first);
    // A file whose first bytes have come is mostly whole soon: then nothing is noted twice of it.
    let alone = Moment::now() + TOGETHER;
    while !batch.is_full() {
        let until = if batch.whole.is_empty() { alone } else { next };
        match news.recv_timeout(until - Moment::now()) {
            Ok(one) => batch.add(one),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return (batch, false),
        }
    }
    (batch, true)
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
        None => one.staging.object().and_then(|o| o.content.digest(&worker.node, one.staging.size)),
    };
    if found == Some(expected) {
        return Ok(());
    }
    let (ino, copy) = (one.queued.ino, one.queued.copy);
    let what =
        format!("inode {ino} copy {copy}: the bytes read do not have the digest recorded at migration");
    Err(super::trouble::damaged(&one.queued.segment.volume, what))
}
