//! Stores what a drive reads: hashes it, writes it to disk objects, and wakes the readers that wait for it.

use super::buffers::Buffer;
use super::bytes::FileHash;
use super::parked::{Lacks, TARGETS_FULL};
use super::settle::News;
use super::worker::{Wanted, Worker};
use crate::files::{Content, Outcome, Unstored};
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a drive read.
pub enum Piece {
    /// A segment begins; the one before that was not ended is not whole.
    Begin(Arc<Taking>),
    /// Bytes of it at this offset of the file.
    Bytes(u64, Buffer),
    /// It is whole.
    End,
}

/// A segment that is being read.
pub struct Taking {
    wanted: Wanted,
    content: Content,
    given_up: AtomicBool,
}

impl Taking {
    /// A segment and the object that it goes to.
    pub fn new(wanted: Wanted, content: Content) -> Self {
        Self { wanted, content, given_up: AtomicBool::new(false) }
    }

    /// Nothing more of it is stored; whoever waits for it has been told.
    pub fn given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}

/// Why bytes are not stored.
enum Trouble {
    /// Nobody wants them any more.
    Dropped,
    /// The disk, or a target, failed; another copy would not help.
    Disk(String),
    /// Its targets are full.
    Full,
}

impl From<Unstored> for Trouble {
    fn from(why: Unstored) -> Self {
        match why {
            Unstored::Full => Self::Full,
            Unstored::Failed(why) => Self::Disk(why),
        }
    }
}

/// A segment on its way to disk.
struct Storing {
    taking: Arc<Taking>,
    hash: FileHash,
    /// Offset in the file up to which it is stored.
    at: u64,
    /// It was told that bytes of it come.
    begun: bool,
}

/// The thread that stores.
pub struct Storer<'t> {
    worker: &'t Worker,
    tell: Sender<News>,
}

impl<'t> Storer<'t> {
    /// Tells of files that begin and that are whole.
    pub fn new(worker: &'t Worker, tell: Sender<News>) -> Self {
        Self { worker, tell }
    }

    /// Stores until the drive is done.
    pub fn run(self, pieces: &Receiver<Piece>) {
        let mut current: Option<Storing> = None;
        for piece in pieces {
            let Some(storing) = &mut current else {
                if let Piece::Begin(taking) = piece {
                    current = Some(Storing::new(taking));
                }
                continue;
            };
            let stored = match piece {
                Piece::Begin(taking) => {
                    *storing = Storing::new(taking);
                    continue;
                }
                Piece::Bytes(offset, buffer) => {
                    self.begins(storing);
                    storing.bytes(self.worker, offset, buffer.filled()).map(|()| false)
                }
                Piece::End => storing.end(self.worker).map(|()| true),
            };
            match stored {
                Ok(false) => {}
                Ok(true) => self.ended(current.take()),
                Err(trouble) => {
                    self.give_up(&storing.taking, trouble);
                    current = None;
                }
            }
        }
    }

    /// The first bytes of a segment have come.
    fn begins(&self, storing: &mut Storing) {
        if !std::mem::replace(&mut storing.begun, true) {
            self.tell(News::Begun(storing.taking.wanted.staging.clone()));
        }
    }

    fn tell(&self, news: News) {
        // Nobody listens after a defect only, which then ends the drive's turn.
        let _ = self.tell.send(news);
    }

    fn ended(&self, storing: Option<Storing>) {
        let Some(Storing { taking, hash, .. }) = storing else { return };
        let one = &taking.wanted;
        let (segment, size) = (&one.queued.segment, one.staging.size);
        let whole = segment.file_offset == 0 && segment.length == size;
        let digest = if whole { hash.finish(size) } else { None };
        if self.worker.node.archive.segment_read(one) {
            if digest.is_some() && digest == super::settle::recorded_digest(self.worker, one) {
                let proved = one.staging.store(one.queued.attempt, || one.staging.prove());
                self.worker.node.finish_reads(proved.unwrap_or_default());
            }
            self.tell(News::Whole(one.clone(), digest));
        }
    }

    fn give_up(&self, taking: &Taking, trouble: Trouble) {
        taking.given_up.store(true, Ordering::Relaxed);
        let (node, staging) = (&self.worker.node, &taking.wanted.staging);
        let why = match trouble {
            // What has come stays; the segment is read again.
            Trouble::Full if node.rest_waits_for_targets(staging, &taking.content) => {
                return node.archive.park(vec![taking.wanted.clone()], Lacks::Targets);
            }
            Trouble::Full => Some(TARGETS_FULL.to_owned()),
            Trouble::Disk(why) => Some(why),
            Trouble::Dropped => None,
        };
        node.archive.forget_recall(&taking.wanted);
        if let Some(why) = why {
            node.end_recall(staging, Outcome::Failed(why));
        }
    }
}

impl Storing {
    fn new(taking: Arc<Taking>) -> Self {
        let at = taking.wanted.queued.segment.file_offset;
        Self { taking, hash: FileHash::new(), at, begun: false }
    }

    fn bytes(&mut self, worker: &Worker, offset: u64, bytes: &[u8]) -> Result<(), Trouble> {
        self.hole(worker, offset)?;
        let end = offset + bytes.len() as u64;
        let (staging, content) = (&self.taking.wanted.staging, &self.taking.content);
        self.store(worker, || {
            content.store(&worker.node, bytes, offset)?;
            worker.node.finish_reads(staging.arrive(offset, end));
            Ok(())
        })?;
        worker.progress.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // After those who wait for the bytes have been told.
        self.hash.add(offset, bytes);
        self.at = end;
        Ok(())
    }

    fn end(&mut self, worker: &Worker) -> Result<(), Trouble> {
        let segment = &self.taking.wanted.queued.segment;
        self.hole(worker, segment.file_offset + segment.length)
    }

    /// What no extent covers is a hole. It is there already in a new object; a copy tried before may have left bytes in it.
    fn hole(&mut self, worker: &Worker, end: u64) -> Result<(), Trouble> {
        let start = self.at;
        if start >= end {
            return Ok(());
        }
        let Wanted { staging, queued } = &self.taking.wanted;
        self.store(worker, || {
            if queued.attempt > 1 {
                self.taking.content.clear(&worker.node, start, end - start)?;
            }
            worker.node.finish_reads(staging.arrive(start, end));
            Ok(())
        })?;
        self.at = end;
        Ok(())
    }

    fn store(&self, worker: &Worker, store: impl FnOnce() -> Result<(), Unstored>) -> Result<(), Trouble> {
        if worker.node.archive.halted() {
            return Err(Trouble::Dropped);
        }
        let Wanted { staging, queued } = &self.taking.wanted;
        let stored = staging.store(queued.attempt, store);
        Ok(stored.ok_or(Trouble::Dropped)??)
    }
}
