//! Reads the files of a pool's backlog ahead of the drive, as one stream of bytes and of what they are. Files follow each
//! other without gaps, as they lie on tape; after a flush the stream goes on in a fresh buffer, because a record begins
//! there.

use super::buffers::{Buffer, Buffers};
use super::hand::{InHand, Ticket};
use super::room::for_one_piece;
use super::source::{self, Origin, Skip, Source};
use super::there::Sums;
use super::worker::Worker;
use crate::clock::Moment;
use crossbeam_channel::Sender;
use policy::MigrateItem;
use std::ops::Range;
use std::time::Duration;
use types::{Digest, Ino};

/// How long a drive waits for files that another one is reading, and how often it looks.
const MORE_WAIT: Duration = Duration::from_secs(2);
const MORE_LOOK: Duration = Duration::from_millis(5);

/// Next in the stream.
pub enum Fed {
    /// Bytes, and what begins and ends in them.
    Chunk(Chunk),
    /// Flush and record everything so far.
    Commit,
    /// Nothing follows; the reason if it is that the volume takes no more.
    End(Option<&'static str>),
}

/// A piece of the stream.
pub struct Chunk {
    /// Position of its first byte in the stream.
    pub at: u64,
    /// The bytes.
    pub bytes: Buffer,
    /// What they are, with positions in the stream, in order.
    pub parts: Vec<(u64, Part)>,
}

/// What is at a position of the stream.
pub enum Part {
    /// A file begins.
    Begin(Box<NewFile>),
    /// Bytes of it, which may go on in later chunks.
    Bytes {
        /// Offset of the first in the file.
        file_offset: u64,
        /// How many.
        length: u64,
    },
    /// It is whole and was not changed meanwhile.
    End(Option<Digest>),
    /// It cannot be used: its bytes are lost space.
    Lost,
}

/// A file in the stream.
pub struct NewFile {
    /// To settle it by.
    pub ticket: Ticket,
    /// Which copy of what.
    pub item: MigrateItem,
    /// Where it comes from.
    pub origin: Origin,
    /// Where in the file this segment begins ...
    pub from: u64,
    /// ... and ends.
    pub to: u64,
    /// It takes the place of one that counts: it is not to be split.
    pub moves: bool,
}

/// How much goes into one volume and between two flushes.
pub struct Limits {
    /// Files that the volume still takes ...
    pub files: u64,
    /// ... and bytes of data.
    pub bytes: u64,
    /// Bytes that the pool takes by its own limit: nothing more is begun behind them.
    pub allowed: u64,
    /// Bytes of a batch.
    pub flush_bytes: u64,
    /// Files of a batch.
    pub flush_files: u32,
    /// Time of a batch: after this it ends with the file that is being read.
    pub flush_after: Duration,
}

/// Why reading ends.
enum Stop {
    /// This file only.
    Skip(Skip),
    /// It must lie on one volume, and goes to another.
    Leave,
    /// The drive takes no more.
    Closed,
}

impl From<Skip> for Stop {
    fn from(why: Skip) -> Self {
        Self::Skip(why)
    }
}

/// Reads files until the backlog is empty, a limit is reached, or nobody listens any more.
pub struct Feeder<'t> {
    worker: &'t Worker,
    hand: &'t InHand<'t>,
    buffers: &'t Buffers,
    out: Sender<Fed>,
    limits: Limits,
    /// What is not yet sent, and where in the stream it begins.
    buffer: Buffer,
    base: u64,
    parts: Vec<(u64, Part)>,
    /// Chunks sent.
    sent: u64,
    batch: Batch,
}

/// What has been read since the last flush was asked for.
struct Batch {
    files: u32,
    /// Where in the stream it begins, and since when it is read.
    at: u64,
    since: Moment,
}

impl Batch {
    fn begin(at: u64) -> Self {
        Self { files: 0, at, since: Moment::now() }
    }

    /// Whether it is to be flushed now that the stream has come to `at`.
    fn is_due(&self, at: u64, limits: &Limits) -> bool {
        at - self.at >= limits.flush_bytes
            || self.files >= limits.flush_files
            || self.since.elapsed() >= limits.flush_after
    }
}

/// A place in the stream to which it can be taken back until the next chunk is sent.
struct Mark {
    at: u64,
    parts: usize,
    sent: u64,
}

impl<'t> Feeder<'t> {
    /// At the beginning of a stream.
    pub fn new(
        worker: &'t Worker,
        hand: &'t InHand<'t>,
        buffers: &'t Buffers,
        out: Sender<Fed>,
        limits: Limits,
    ) -> Self {
        let buffer = buffers.take();
        Self {
            worker,
            hand,
            buffers,
            out,
            limits,
            buffer,
            base: 0,
            parts: Vec::new(),
            sent: 0,
            batch: Batch::begin(0),
        }
    }

    /// Does it all.
    pub fn run(mut self) {
        // Closed: the drive has ended its turn and says why itself.
        let _ = self.feed();
    }

    fn feed(&mut self) -> Result<(), Stop> {
        let why = loop {
            if self.worker.node.archive.halted() {
                break None;
            }
            if self.limits.files == 0 {
                break Some("it holds as many files as tape.max_files_per_volume allows");
            }
            if self.at() >= self.limits.allowed {
                break None; // the pool holds as much as it may
            }
            let Some((ticket, item)) = self.next() else { break None };
            let begun = Mark { at: self.at(), parts: self.parts.len(), sent: self.sent };
            match self.file(ticket, item) {
                Ok(()) => {
                    self.limits.files -= 1;
                    self.batch.files += 1;
                }
                // With what it had of the stream: the file is no worse for that, and stays in hand until the turn ends.
                Err(Stop::Skip(_)) if self.buffers.are_gone() => return Err(Stop::Closed),
                Err(Stop::Skip(why)) => {
                    let wasteful = self.take_back(&begun);
                    self.hand.hold(ticket, wasteful, crate::now());
                    self.skipped(item.ino, why);
                }
                // It stays in hand until the turn ends.
                Err(Stop::Leave) => {
                    break Some("what waits must lie on one volume, and is larger than its rest");
                }
                Err(Stop::Closed) => return Err(Stop::Closed),
            }
            if self.batch.is_due(self.at(), &self.limits) {
                self.put_chunk()?;
                self.put(Fed::Commit)?;
                self.batch = Batch::begin(self.at());
            }
        };
        self.put_chunk()?;
        self.put(Fed::Commit)?;
        self.put(Fed::End(why))
    }

    /// The next copy. A drive that reads for this one is waited for a little: to end the turn and begin another would cost
    /// a flush.
    fn next(&self) -> Option<(Ticket, MigrateItem)> {
        let since = Moment::now();
        loop {
            let next = self.hand.pop();
            let archive = &self.worker.node.archive;
            let waits = next.is_none()
                && self.hand.more_comes()
                && since.elapsed() < MORE_WAIT
                && !crate::clock::alone()
                && !archive.halted()
                && !archive.drive_is_wanted(self.worker.no);
            if !waits {
                return next;
            }
            crate::clock::sleep(MORE_LOOK);
        }
    }

    fn skipped(&self, ino: Ino, why: Skip) {
        let node = &self.worker.node;
        match why {
            Skip::Later(why) => {
                tracing::debug!("inode {ino} is not migrated now: {why}");
                node.finish_migrated(ino);
                node.migrate_again(ino);
            }
            Skip::Never(why) => node.cannot_migrate(ino, why),
        }
    }

    /// Length of the stream so far.
    fn at(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Forgets a file that failed; true if some of it is on its way to the drive, where it takes space in vain.
    fn take_back(&mut self, begun: &Mark) -> bool {
        if self.sent == begun.sent {
            self.buffer.truncate((begun.at - self.base) as usize);
            self.parts.truncate(begun.parts);
            return false;
        }
        self.parts.push((self.at(), Part::Lost));
        self.at() > begun.at
    }

    fn file(&mut self, ticket: Ticket, item: MigrateItem) -> Result<(), Stop> {
        if let Some(moves) = source::dataless(self.worker, &item)? {
            let file = NewFile { ticket, item, origin: Origin::NONE, from: 0, to: 0, moves };
            self.parts.push((self.at(), Part::Begin(Box::new(file))));
            self.parts.push((self.at(), Part::End(None)));
            return Ok(());
        }
        let (node, source) = (&self.worker.node, Source::open(self.worker, &item)?);
        let bytes = source.to.saturating_sub(source.from);
        if source.moves
            && let Some(why) = node.does_not_move(self.hand.pool(), bytes)
        {
            return Err(Skip::Never(why).into());
        }
        if source.moves && for_one_piece(bytes) > self.limits.bytes.saturating_sub(self.at()) {
            return Err(Stop::Leave);
        }
        if bytes > self.limits.bytes.saturating_sub(self.at())
            && let Some(why) = node.does_not_fit(self.hand.pool(), &item)
        {
            return Err(Skip::Never(why).into());
        }
        if node.writes.was_wasteful(&item) {
            // Look at all that is needed before it costs more space in vain.
            node.catalog.path_of(item.ino).map_err(Skip::from)?;
            source.verify(self.worker, item.ino, self.buffers)?;
        }
        node.takes_off(&item, source.from);
        let Source { origin, from, to, moves, .. } = source;
        let mut sums = source.sums(self.worker, &item, self.buffers, None);
        let file = NewFile { ticket, item, origin, from, to, moves };
        self.parts.push((self.at(), Part::Begin(Box::new(file))));
        for range in source.ranges(self.worker) {
            self.range(&source, &mut sums, range.map_err(Skip::from)?)?;
        }
        source.unchanged(self.worker, item.ino)?;
        let digest = source.digest(self.worker, &item, sums.finish(source.size())?)?;
        self.parts.push((self.at(), Part::End(digest)));
        Ok(())
    }

    /// Hashes a range of data and puts what lies between `source.from` and `source.to` into the stream.
    fn range(&mut self, source: &Source, sums: &mut Sums, range: Range<u64>) -> Result<(), Stop> {
        let wanted = range.start.max(source.from)..range.end.min(source.to);
        if !wanted.is_empty() {
            let (file_offset, length) = (wanted.start, wanted.end - wanted.start);
            self.parts.push((self.at(), Part::Bytes { file_offset, length }));
        }
        let mut offset = range.start;
        while offset < range.end {
            let (skips, end) = match offset {
                at if at < source.from => (true, range.end.min(source.from)),
                at if at < source.to => (false, range.end.min(source.to)),
                _ => (true, range.end),
            };
            if self.buffer.space() == 0 {
                self.put_chunk()?;
            }
            let most = usize::try_from(end - offset).unwrap_or(usize::MAX);
            let got = source.read(self.worker, sums, (offset, most), (&mut self.buffer, !skips))?;
            self.hand.read(got as u64);
            offset += got as u64;
        }
        Ok(())
    }

    fn put_chunk(&mut self) -> Result<(), Stop> {
        if self.buffer.len() == 0 && self.parts.is_empty() {
            return Ok(());
        }
        let at = self.base;
        self.base = self.at();
        self.worker.progress.takes(self.limits.bytes.saturating_sub(self.base), false);
        self.sent += 1;
        self.worker.node.note_begun();
        let parts = std::mem::take(&mut self.parts);
        let next = self.buffers.after(&self.buffer);
        let bytes = std::mem::replace(&mut self.buffer, next);
        self.put(Fed::Chunk(Chunk { at, bytes, parts }))
    }

    fn put(&self, fed: Fed) -> Result<(), Stop> {
        self.out.send(fed).map_err(|_| Stop::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::WriteQueue;
    use super::super::testing::Rig;
    use super::*;
    use crossbeam_channel::{Receiver, unbounded};
    use types::PoolName;

    const MIB: u64 = 1 << 20;

    /// Nothing of what the tests feed comes to a limit.
    fn limits() -> Limits {
        let (bytes, flush_bytes, allowed) = (u64::MAX, u64::MAX, u64::MAX);
        Limits { files: 10, bytes, allowed, flush_bytes, flush_files: 10, flush_after: Duration::MAX }
    }

    fn words(fed: &Fed) -> Vec<&'static str> {
        let word = |(_, part): &(u64, Part)| match part {
            Part::Begin(_) => "begin",
            Part::Bytes { .. } => "bytes",
            Part::End(_) => "end",
            Part::Lost => "lost",
        };
        match fed {
            Fed::Chunk(chunk) => chunk.parts.iter().map(word).collect(),
            Fed::Commit => vec!["commit"],
            Fed::End(_) => vec!["stop"],
        }
    }

    /// Feeds a file of 8 MiB and a small one through three buffers of 1 MiB, and calls `meanwhile` when the first of them
    /// is full; returns what was fed.
    fn feed(rig: &Rig, queue: &WriteQueue, meanwhile: impl FnOnce(&Rig, MigrateItem)) -> Vec<&'static str> {
        feed_within(rig, queue, limits(), meanwhile)
    }

    fn feed_within(
        rig: &Rig,
        queue: &WriteQueue,
        limits: Limits,
        meanwhile: impl FnOnce(&Rig, MigrateItem),
    ) -> Vec<&'static str> {
        let pool = PoolName("p".into());
        let items = [rig.put("large", 8 * MIB), rig.put("small", 1000)];
        queue.push(&Rig::batch(&pool, &items), false, crate::now());
        let hand = InHand::new(queue, &pool);
        let buffers = Buffers::of_drive(&rig.config(), 512 << 10);
        let (out, fed): (_, Receiver<Fed>) = unbounded();
        std::thread::scope(|scope| {
            let feeder = Feeder::new(&rig.worker, &hand, &buffers, out, limits);
            scope.spawn(move || feeder.run());
            let first = fed.recv().unwrap();
            meanwhile(rig, items[0]);
            let mut all = words(&first);
            drop(first);
            fed.iter().for_each(|fed| all.extend(words(&fed)));
            all
        })
    }

    #[test]
    fn files_follow_each_other() {
        let (rig, queue) = (Rig::new(), WriteQueue::default());
        let all = feed(&rig, &queue, |_, _| {});
        assert_eq!(all, ["begin", "bytes", "end", "begin", "bytes", "end", "commit", "stop"]);
    }

    #[test]
    fn files_that_are_about_to_come_are_waited_for() {
        let (rig, queue, pool) = (Rig::new(), WriteQueue::default(), PoolName("p".into()));
        let item = rig.put("late", 1000);
        queue.set_coming(std::collections::BTreeSet::from([pool.clone()]));
        let hand = InHand::new(&queue, &pool);
        let buffers = Buffers::of_drive(&rig.config(), 512 << 10);
        let (out, fed) = unbounded();
        std::thread::scope(|scope| {
            let feeder = Feeder::new(&rig.worker, &hand, &buffers, out, limits());
            scope.spawn(move || feeder.run());
            std::thread::sleep(Duration::from_millis(50));
            queue.push(&Rig::batch(&pool, &[item]), false, crate::now());
            queue.set_coming(Default::default());
            let all: Vec<_> = fed.iter().flat_map(|fed| words(&fed)).collect();
            assert_eq!(all, ["begin", "bytes", "end", "commit", "stop"]);
        });
    }

    #[test]
    fn a_batch_ends_after_enough_bytes_files_or_time() {
        let by_each = [
            Limits { flush_bytes: 2 * MIB, ..limits() },
            Limits { flush_files: 1, ..limits() },
            Limits { flush_after: Duration::ZERO, ..limits() },
        ];
        for within in by_each {
            let (rig, queue) = (Rig::new(), WriteQueue::default());
            let bytes = within.flush_bytes;
            let all = feed_within(&rig, &queue, within, |_, _| {});
            let first = ["begin", "bytes", "end", "commit", "begin", "bytes", "end", "commit"];
            // The small file does not fill a batch by its bytes: it is flushed because nothing follows.
            let rest: &[&str] = if bytes == u64::MAX { &["commit", "stop"] } else { &["stop"] };
            assert_eq!(all, [&first, rest].concat());
        }
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_lost_and_left_alone_and_the_next_is_fed() {
        let changes: [fn(&Rig, MigrateItem); 2] =
            [|rig, item| rig.overwrite(item.ino, 5), |rig, item| rig.cut(item.ino, 100)];
        for change in changes {
            let (rig, queue) = (Rig::new(), WriteQueue::default());
            let mut large = None;
            let all = feed(&rig, &queue, |rig, item| {
                change(rig, item);
                large = Some(item);
            });
            assert_eq!(all, ["begin", "bytes", "lost", "begin", "bytes", "end", "commit", "stop"]);
            assert!(queue.was_wasteful(&large.unwrap()));
        }
    }

    #[test]
    fn a_copy_whose_bytes_are_not_those_that_another_drive_got_does_not_count() {
        let (rig, queue, pool) = (Rig::new(), WriteQueue::default(), PoolName("p".into()));
        let item = rig.put("f", 3 * MIB);
        let Ok(source) = Source::open(&rig.worker, &item) else { panic!("it can be copied") };
        let (digests, file) = (&rig.worker.node.archive.digests, (item.ino, item.version));
        let mut other = digests.join(file, source.origin, || true).unwrap();
        let mut read = vec![7; 3 * MIB as usize];
        read[MIB as usize] = 8;
        other.add(&read);
        assert!(other.finish().unwrap().is_some());
        for expected in
            [&["begin", "bytes", "lost", "commit", "stop"][..], &["begin", "bytes", "end", "commit", "stop"]]
        {
            queue.let_in(std::iter::once(item.ino), crate::now());
            queue.push(&Rig::batch(&pool, &[item]), false, crate::now());
            let (hand, buffers) = (InHand::new(&queue, &pool), Buffers::of_drive(&rig.config(), 512 << 10));
            let (out, fed) = unbounded();
            std::thread::scope(|scope| {
                let feeder = Feeder::new(&rig.worker, &hand, &buffers, out, limits());
                scope.spawn(move || feeder.run());
                let all: Vec<_> = fed.iter().flat_map(|fed| words(&fed)).collect();
                assert_eq!(all, expected, "the other's sums count once only");
            });
        }
    }

    #[test]
    fn when_the_node_stops_nothing_more_is_read() {
        let (rig, queue) = (Rig::new(), WriteQueue::default());
        let all = feed(&rig, &queue, |rig, _| rig.worker.node.archive.halt());
        assert_eq!(all, ["begin", "bytes", "lost", "commit", "stop"]);
        let left = queue.pop(&PoolName("p".into())).unwrap();
        assert_eq!(left.size, 1000, "it was in hand or in the queue");
    }

    #[test]
    fn when_the_drive_ends_its_turn_everything_read_ahead_goes_back_in_order() {
        let (rig, queue, pool) = (Rig::new(), WriteQueue::default(), PoolName("p".into()));
        let items = [rig.put("a", 1000), rig.put("b", 8 * MIB), rig.put("c", 10)];
        queue.push(&Rig::batch(&pool, &items), false, crate::now());
        {
            let hand = InHand::new(&queue, &pool);
            let buffers = Buffers::of_drive(&rig.config(), 512 << 10);
            let limits = limits();
            let (out, fed) = unbounded();
            std::thread::scope(|scope| {
                let feeder = Feeder::new(&rig.worker, &hand, &buffers, out, limits);
                let thread = scope.spawn(move || feeder.run());
                let first = fed.recv().unwrap();
                assert_eq!(words(&first), ["begin", "bytes", "end", "begin", "bytes"]);
                drop((first, fed));
                thread.join().unwrap();
            });
            assert!(queue.makes_progress(), "they are in flight");
        }
        let order: Vec<MigrateItem> = std::iter::from_fn(|| queue.pop(&pool)).collect();
        assert_eq!(order, items);
    }

    #[test]
    fn a_file_that_fails_before_its_bytes_are_sent_takes_no_place() {
        let (rig, queue, pool) = (Rig::new(), WriteQueue::default(), PoolName("p".into()));
        let hand = InHand::new(&queue, &pool);
        let buffers = Buffers::of_drive(&rig.config(), 512 << 10);
        let (out, _fed) = unbounded();
        let limits = limits();
        let mut feeder = Feeder::new(&rig.worker, &hand, &buffers, out, limits);
        feeder.buffer.put(&[0; 10]).map_err(|_| ()).unwrap();
        let begun = Mark { at: feeder.at(), parts: 0, sent: feeder.sent };
        feeder.parts.push((10, Part::Bytes { file_offset: 0, length: 20 }));
        feeder.buffer.put(&[0; 20]).map_err(|_| ()).unwrap();
        assert!(!feeder.take_back(&begun));
        assert_eq!((feeder.at(), feeder.parts.len()), (10, 0));
        feeder.buffer.put(&[0; 20]).map_err(|_| ()).unwrap();
        assert!(feeder.put_chunk().is_ok());
        assert!(feeder.take_back(&begun), "sent: it is lost space");
        assert!(matches!(feeder.parts[..], [(30, Part::Lost)]));
    }
}
