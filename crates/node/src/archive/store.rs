//! Stores what a drive reads: hashes it, writes it to disk objects, and wakes the readers that wait for it.

use super::buffers::{Buffer, Buffers};
use super::bytes::FileHash;
use super::parked::{Lacks, TARGETS_FULL};
use super::settle::News;
use super::there::{Back, There, Unsent};
use super::worker::{Wanted, Worker};
use crate::files::{Content, Outcome, Unstored};
use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::Digest;
use wire::MAX_STORE;

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
    /// They were at the drive's host, which is gone: the segment is read again.
    Gone,
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
    way: Way,
    /// Offset in the file up to which it has come.
    at: u64,
    kept: Kept,
    /// It was told that bytes of it come.
    begun: bool,
}

/// What of a segment has come and is not stored yet, one run of the file: it fills no row of a coded file, which is best written whole.
struct Kept {
    /// Where it begins in the file.
    from: u64,
    /// With their offsets; the first may be stored in part.
    buffers: VecDeque<(u64, Buffer)>,
}

impl Kept {
    fn new(from: u64) -> Self {
        Self { from, buffers: VecDeque::new() }
    }

    fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    fn put(&mut self, offset: u64, buffer: Buffer) {
        if self.is_empty() {
            self.from = offset;
        }
        self.buffers.push_back((offset, buffer));
    }

    fn end(&self) -> u64 {
        self.buffers.back().map_or(self.from, |(offset, buffer)| offset + buffer.len() as u64)
    }

    /// Up to where it is to be stored: by whole rows, or all of it if more than `most` buffers would stay. `row_end`: where the row ends that has a byte at an offset; None:
    /// it is stored as it comes.
    fn storable(&self, row_end: impl Fn(u64) -> Option<u64>, most: usize) -> u64 {
        let end = self.end();
        let mut to = self.from;
        while to < end {
            match row_end(to) {
                Some(next) if next <= end => to = next,
                Some(_) => {
                    let ends = |(offset, buffer): &(u64, Buffer)| offset + buffer.len() as u64;
                    let stay = self.buffers.iter().filter(|one| ends(one) > to).count();
                    return if stay <= most { to } else { end };
                }
                None => return end,
            }
        }
        to
    }

    /// The next bytes that lie in one run of a stream, up to an offset: where there, and how many.
    fn there(&self, to: u64) -> Option<(u64, usize)> {
        let (mut at, mut bytes) = (None, 0);
        for (offset, buffer) in &self.buffers {
            let (begins, used) = buffer.there()?;
            let skip = self.from.saturating_sub(*offset);
            let end = to.min(offset + used as u64).min(self.from + MAX_STORE as u64);
            let follows = at.is_none_or(|at| at + bytes == begins);
            if !follows || end <= offset + skip {
                break;
            }
            at.get_or_insert(begins + skip);
            bytes = end - self.from;
        }
        Some((at?, bytes as usize))
    }

    /// Brings what lies before an offset here.
    fn bring(&mut self, to: u64) -> Result<(), String> {
        self.buffers.iter_mut().filter(|(offset, _)| *offset < to).try_for_each(|(_, buffer)| buffer.bring())
    }

    /// The bytes up to an offset, which are here.
    fn bytes(&self, to: u64) -> Cow<'_, [u8]> {
        let parts = self.buffers.iter().filter(|(offset, _)| *offset < to).map(|(offset, buffer)| {
            let bytes = buffer.filled();
            let skip = self.from.saturating_sub(*offset) as usize;
            &bytes[skip..bytes.len().min((to - offset) as usize)]
        });
        match parts.collect::<Vec<&[u8]>>().as_slice() {
            [all] => Cow::Borrowed(all),
            parts => Cow::Owned(parts.concat()),
        }
    }

    /// What lies before an offset is stored.
    fn stored(&mut self, to: u64) {
        self.from = to;
        while self.buffers.front().is_some_and(|(offset, buffer)| offset + buffer.len() as u64 <= to) {
            self.buffers.pop_front();
        }
    }
}

/// How the bytes of a segment go, and where they are hashed.
enum Way {
    /// Through here.
    Here(FileHash),
    /// Straight from the drive's host.
    There(Box<Back>),
    /// They went straight, and do no more: nobody has hashed all of them.
    Mixed,
}

/// The thread that stores.
pub struct Storer<'t> {
    worker: &'t Worker,
    tell: Sender<News>,
    /// Memory at the drive's host that has what was read, if that is another one.
    there: Option<Arc<There>>,
    /// So many buffers may be kept.
    keeps: usize,
    /// What was read there and lost with it.
    unstored: &'t Mutex<Vec<Wanted>>,
}

impl<'t> Storer<'t> {
    /// Tells of files that begin and that are whole.
    pub fn new(
        worker: &'t Worker,
        tell: Sender<News>,
        buffers: &Buffers,
        unstored: &'t Mutex<Vec<Wanted>>,
    ) -> Self {
        Self { worker, tell, there: buffers.there().cloned(), keeps: buffers.keeps(), unstored }
    }

    /// Stores until the drive is done.
    pub fn run(self, pieces: &Receiver<Piece>) {
        let mut current: Option<Storing> = None;
        for piece in pieces {
            let Some(storing) = &mut current else {
                if let Piece::Begin(taking) = piece {
                    current = Some(self.begin(taking));
                }
                continue;
            };
            let stored = match piece {
                Piece::Begin(taking) => {
                    *storing = self.begin(taking);
                    continue;
                }
                Piece::Bytes(offset, buffer) => {
                    self.begins(storing);
                    storing.bytes(self.worker, (offset, buffer), self.keeps).map(|()| false)
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
        let Some(Storing { taking, way, .. }) = storing else { return };
        let one = &taking.wanted;
        let (segment, size) = (&one.queued.segment, one.staging.size);
        let whole = segment.file_offset == 0 && segment.length == size;
        let digest = if whole { way.digest(size) } else { None };
        if self.worker.node.archive.segment_read(one) {
            if digest.is_some() && digest == super::settle::recorded_digest(self.worker, one) {
                let proved = one.staging.store(one.queued.attempt, || one.staging.prove());
                self.worker.node.finish_reads(proved.unwrap_or_default());
            }
            self.tell(News::Whole(one.clone(), digest));
        }
    }

    fn begin(&self, taking: Arc<Taking>) -> Storing {
        let at = taking.wanted.queued.segment.file_offset;
        let (staging, segment) = (&taking.wanted.staging, &taking.wanted.queued.segment);
        let whole = segment.file_offset == 0 && segment.length == staging.size;
        let back = |there| Back::begin(&self.worker.node, there, (staging, &taking.content), whole);
        let back = self.there.as_ref().and_then(back);
        // Of a part nobody asks for a digest.
        let hash = || if whole { FileHash::new() } else { FileHash::of_parts([]) };
        let way = back.map_or_else(|| Way::Here(hash()), |back| Way::There(Box::new(back)));
        Storing { taking, way, at, kept: Kept::new(at), begun: false }
    }

    fn give_up(&self, taking: &Taking, trouble: Trouble) {
        taking.given_up.store(true, Ordering::Relaxed);
        let (node, staging) = (&self.worker.node, &taking.wanted.staging);
        let why = match trouble {
            Trouble::Gone => return self.unstored.lock().push(taking.wanted.clone()),
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

impl Way {
    /// Digest of a file of that length of which all went this way.
    fn digest(self, size: u64) -> Option<Digest> {
        match self {
            Self::Here(hash) => hash.finish(size),
            Self::There(back) => back.digest(),
            Self::Mixed => None,
        }
    }
}

impl Storing {
    fn bytes(
        &mut self,
        worker: &Worker,
        (offset, buffer): (u64, Buffer),
        keeps: usize,
    ) -> Result<(), Trouble> {
        self.hole(worker, offset)?;
        self.kept.put(offset, buffer);
        self.at = self.kept.end();
        let row_end = |at| self.taking.content.row_end(at, MAX_STORE as u64);
        let to = self.kept.storable(row_end, keeps);
        self.flush(worker, to)
    }

    /// Stores what is kept, up to an offset.
    fn flush(&mut self, worker: &Worker, to: u64) -> Result<(), Trouble> {
        while !self.kept.is_empty() && self.kept.from < to {
            let from = self.kept.from;
            if !self.straight(worker, to)? {
                self.here(worker, to)?;
            }
            worker.progress.bytes.fetch_add(self.kept.from - from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has bytes written by the drive's host; false: they are to go through here.
    fn straight(&mut self, worker: &Worker, to: u64) -> Result<bool, Trouble> {
        let (Way::There(back), Some(there)) = (&mut self.way, self.kept.there(to)) else { return Ok(false) };
        if worker.node.archive.halted() {
            return Err(Trouble::Dropped);
        }
        let (node, Wanted { staging, queued }) = (&worker.node, &self.taking.wanted);
        let (offset, end) = (self.kept.from, self.kept.from + there.1 as u64);
        let store = || {
            let sent = back.store(node, there, offset);
            if sent.is_ok() {
                node.finish_reads(staging.arrive(offset, end));
            }
            sent
        };
        match staging.store(queued.attempt, store).ok_or(Trouble::Dropped)? {
            Ok(()) => {
                self.kept.stored(end);
                Ok(true)
            }
            Err(Unsent::Gone(why)) => {
                tracing::warn!("inode {}: {why}: it is read again", staging.ino);
                Err(Trouble::Gone)
            }
            Err(Unsent::Here(why)) => {
                tracing::info!("inode {} goes on through this node: {why}", staging.ino);
                self.way = Way::Mixed;
                Ok(false)
            }
            Err(Unsent::Unknown(why)) => Err(Trouble::Disk(why)),
        }
    }

    fn here(&mut self, worker: &Worker, to: u64) -> Result<(), Trouble> {
        self.kept.bring(to).map_err(|why| {
            tracing::warn!("inode {}: {why}: it is read again", self.taking.wanted.staging.ino);
            Trouble::Gone
        })?;
        let bytes = self.kept.bytes(to);
        let (staging, content, offset) = (&self.taking.wanted.staging, &self.taking.content, self.kept.from);
        self.store(worker, || {
            content.store(&worker.node, &bytes, offset)?;
            worker.node.finish_reads(staging.arrive(offset, to));
            Ok(())
        })?;
        // After those who wait for the bytes have been told.
        if let Way::Here(hash) = &mut self.way {
            hash.add(offset, &bytes);
        }
        drop(bytes);
        self.kept.stored(to);
        Ok(())
    }

    fn end(&mut self, worker: &Worker) -> Result<(), Trouble> {
        self.flush(worker, self.at)?;
        let segment = &self.taking.wanted.queued.segment;
        self.hole(worker, segment.file_offset + segment.length)
    }

    /// What no extent covers is a hole. It is there already in a new object; a copy tried before may have left bytes in it.
    fn hole(&mut self, worker: &Worker, end: u64) -> Result<(), Trouble> {
        let start = self.at;
        if start >= end {
            return Ok(());
        }
        self.flush(worker, start)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const ROW: u64 = 100;

    fn buffer(buffers: &Buffers, bytes: &[u8]) -> Buffer {
        let mut buffer = buffers.take();
        assert_eq!(buffer.put(bytes).ok(), Some(bytes.len()));
        buffer
    }

    #[test]
    fn what_fills_no_row_is_kept_until_it_does_or_is_too_much_and_nothing_else_is_stored() {
        let buffers = Buffers::of_drive(&Config::default(), 4096);
        let bytes: Vec<u8> = (0..250).collect();
        let row_end = |at: u64| (at < 230).then(|| ((at / ROW + 1) * ROW).min(230));
        let mut kept = Kept::new(70);
        assert_eq!((kept.is_empty(), kept.from, kept.end(), kept.storable(row_end, 9)), (true, 70, 70, 70));
        // From within a row, in pieces of 30.
        let (mut stored, mut most) = (Vec::new(), 0);
        for at in (130_u64..250).step_by(30) {
            kept.put(at, buffer(&buffers, &bytes[at as usize..at as usize + 30]));
            let to = kept.storable(row_end, 9);
            if to > kept.from {
                kept.bring(to).unwrap();
                stored.push((kept.from, kept.bytes(to).into_owned()));
                kept.stored(to);
            }
            most = most.max(kept.buffers.len());
        }
        let ranges: Vec<_> = stored.iter().map(|(from, bytes)| (*from, bytes.len())).collect();
        // Behind 230 everything is stored as it comes.
        assert_eq!((ranges, most, kept.is_empty()), (vec![(130, 70), (200, 50)], 2, true));
        assert!(stored.iter().all(|(from, found)| *found == bytes[*from as usize..][..found.len()]));
        // So many may stay, and no more.
        for (most, stays) in [(0, 0), (1, 1), (2, 2)] {
            let mut kept = Kept::new(0);
            for n in 0..=stays {
                kept.put(10 * n, buffer(&buffers, &bytes[..10]));
                let expected = if n < stays { 0 } else { kept.end() };
                assert_eq!(kept.storable(row_end, most), expected, "{n} of {most}");
            }
        }
    }
}
