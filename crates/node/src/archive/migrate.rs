//! Writing a pool's backlog to a volume, by three threads: one reads files ahead ([`super::feed`]), this one gives the drive
//! nothing to wait for, one records what is flushed ([`super::commit`]). A copy counts only after its bytes are flushed on
//! tape *and* recorded.

use super::buffers::Buffers;
use super::commit::{Recorder, Records};
use super::feed::{Chunk, Fed, Feeder, Limits, NewFile, Part};
use super::hand::InHand;
use super::index::write_index;
use super::label::{self, Fitness};
use super::stream::Stream;
use super::there::There;
use super::times;
use super::trouble::ours;
use super::worker::Worker;
use super::{Event, room, sections};
use crate::clock::Moment;
use catalog::VolumeAppend;
use crossbeam_channel::{Receiver, bounded, unbounded};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tape::{AppendPoint, Appender, LabelState, Mounted, Onto, Room, TapeError};
use types::*;

/// Why a volume is full.
const END_REACHED: &str = "its end was reached";
/// A file is split over two volumes if it is larger than this share of what the volume held that ended within it. So each
/// volume that ends takes some of a file, or has taken much more of others: whatever fits gets onto tape.
const SPLIT_SHARE: u64 = 4;
/// A physical drive loses seconds with each flush, in which it stops and comes back: it streams well only if flushes are
/// rare. Its copies count this late at most, or with the end of a file that takes longer to read.
const FLUSH_AFTER: Duration = Duration::from_secs(60);
/// A batch is at most this share of the disk tier: what a flushed one holds can be released while the next is written.
const FLUSH_SHARE: u64 = 4;
/// Orders that wait to be carried out while the drive goes on, two for each batch. A sync of the disk tier can take as long
/// as the drive takes for several batches, when much else is written there.
const RECORD_AHEAD: usize = 16;

/// One turn of writing to one volume.
struct Turn<'t> {
    worker: &'t Worker,
    pool: &'t PoolName,
    hand: &'t InHand<'t>,
    fed: Receiver<Fed>,
    stream: Stream,
    records: Records<'t>,
    /// Where the last flush ended.
    append_block: u64,
    /// When it did, and the bytes taken since.
    since: (Moment, u64),
    /// When the last of them were taken.
    last: Moment,
    /// The copy that the stream is in.
    copy: Option<(Ino, CopyNo)>,
    /// Where what is fed lies, if that is at the drive's host.
    there: Option<Arc<There>>,
}

/// Why writing stops for the moment.
enum Pause {
    /// An index is due, or the volume is no longer for us.
    Look,
    /// The volume takes no more.
    Full(&'static str),
    /// The backlog is empty, or the node stops.
    Done,
}

/// Writes until the backlog is empty, the volume is full or the node stops; returns the tape's position.
pub fn migrate(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    pool: &PoolName,
) -> Result<u64, TapeError> {
    let mut volume = self::volume(worker, barcode)?;
    if volume.state != VolumeState::Filling || volume.may_hold_more() {
        return Ok(mounted.reads_from()); // somebody took it out of use after the order was given
    }
    // While the catalogue takes no changes tape would be written in vain.
    worker.node.catalog.sync().map_err(|e| ours(barcode, "recording copies", e))?;
    match label::fit(worker, mounted, &volume, pool)? {
        Fitness::Fit => {}
        Fitness::Labelled => volume = self::volume(worker, barcode)?,
        Fitness::Plain => {
            let why = "it is not encrypted, and its pool is: it takes no more files";
            let full = &mut |v: &mut Volume| v.becomes(VolumeState::Full, why, crate::now());
            let noted = worker.node.catalog.update_volume(barcode, full);
            return noted.map(|_| mounted.reads_from()).map_err(|e| ours(barcode, "recording its state", e));
        }
    }
    if matches!(mounted.label(), LabelState::Sections(_)) {
        return sections::migrate(worker, mounted, volume, pool);
    }
    let hand = InHand::new(&worker.node.writes, pool);
    let buffers = Buffers::to_write(worker, volume.block_size as usize);
    let recorder = Recorder::new(worker, barcode, &hand);
    let limits = limits(worker, &volume, pool);
    std::thread::scope(|scope| {
        let (out, fed) = unbounded(); // as many chunks as there are buffers
        let (orders, queue) = bounded(RECORD_AHEAD);
        let (hand, buffers) = (&hand, &buffers);
        let failed = |e: std::io::Error| ours(barcode, "starting threads", e);
        let reads = move || Feeder::new(worker, hand, buffers, out, limits).run();
        let mut threads = Vec::new();
        let (append_block, stream) = (volume.append_block, Stream::new(volume.block_size, volume.next_uid));
        let records = if crate::clock::alone() {
            reads();
            Records::here(volume, recorder)
        } else {
            let (done, recorded) = unbounded();
            threads.push(worker.helper(scope, "read", reads).map_err(failed)?);
            let records = move || recorder.run(&queue, &done);
            threads.push(worker.helper(scope, "record", records).map_err(failed)?);
            Records::by_thread(volume, orders, recorded)
        };
        let (since, there) = ((Moment::now(), 0), buffers.there().cloned());
        let turn = Turn {
            worker,
            pool,
            hand,
            fed,
            stream,
            records,
            append_block,
            since,
            last: since.0,
            copy: None,
            there,
        };
        let ended = turn.run(mounted);
        threads.into_iter().for_each(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended
    })
}

/// How much a turn takes.
fn limits(worker: &Worker, volume: &Volume, pool: &PoolName) -> Limits {
    let config = worker.node.settings();
    Limits {
        files: config.tape.max_files_per_volume.saturating_sub(volume.files),
        bytes: room::free_on(volume),
        allowed: worker.node.allowed_to(pool).unwrap_or(u64::MAX),
        flush_bytes: config.tape.flush_every.0.min(worker.node.space.view().capacity / FLUSH_SHARE),
        flush_files: config.tape.flush_files,
        flush_after: FLUSH_AFTER,
    }
}

/// A volume as the catalogue knows it.
pub fn volume(worker: &Worker, barcode: &Barcode) -> Result<Volume, TapeError> {
    let found = worker.node.catalog.volume(barcode).map_err(|e| ours(barcode, "looking it up", e))?;
    found.ok_or_else(|| ours(barcode, "looking it up", "the catalogue does not know this volume"))
}

impl Turn<'_> {
    fn run(mut self, mounted: &mut Mounted<'_>) -> Result<u64, TapeError> {
        let barcode = self.records.volume.barcode.clone();
        loop {
            let pause = self.write(mounted)?;
            self.records.settle()?;
            if let Pause::Full(why) = pause {
                self.worker.progress.takes(0, true);
                self.records.volume = close(self.worker, &barcode, why)?;
                leave_to_others(self.worker, self.hand);
            }
            let full = matches!(pause, Pause::Full(_));
            if full || self.index_is_due() {
                let onto = if full { Onto::Both } else { Onto::Data };
                write_index(self.worker, mounted, &barcode, onto)?;
                self.records.volume = volume(self.worker, &barcode)?;
            }
            if !matches!(pause, Pause::Look) || self.records.volume.state != VolumeState::Filling {
                return Ok(self.records.volume.append_block);
            }
        }
    }

    fn index_is_due(&self) -> bool {
        let blocks = self.append_block.saturating_sub(self.records.volume.index_block);
        blocks * u64::from(self.records.volume.block_size) >= self.worker.node.settings().tape.index_every.0
    }

    /// Writes what is fed until there is reason to pause.
    fn write(&mut self, mounted: &mut Mounted<'_>) -> Result<Pause, TapeError> {
        match self.write_fed(mounted) {
            // It goes again: nothing counts of what was not flushed, and the drive is as it was.
            Err(e) if self.there.as_ref().is_some_and(|there| there.has_failed(&e)) => Ok(Pause::Done),
            paused => paused,
        }
    }

    fn write_fed(&mut self, mounted: &mut Mounted<'_>) -> Result<Pause, TapeError> {
        let reserve = room::index_reserve(&self.records.volume);
        let mut appender = mounted.appender(&AppendPoint::from(&self.records.volume), reserve)?;
        self.since = (Moment::now(), 0);
        self.last = self.since.0;
        self.stream.begin(appender.here().0);
        loop {
            // The reader ends with a word; if it does not it has panicked, and then so do we.
            match self.fed.recv().unwrap_or(Fed::End(None)) {
                Fed::Chunk(chunk) => {
                    if !self.chunk(&mut appender, chunk)? {
                        self.commit(&mut appender, true)?;
                        return Ok(Pause::Full(END_REACHED));
                    }
                }
                Fed::Commit => {
                    self.commit(&mut appender, false)?;
                    // What overflowed only now comes again, and would be written here again.
                    if appender.room() == Room::Full {
                        return Ok(Pause::Full(END_REACHED));
                    }
                    if self.index_is_due() || self.records.volume.state != VolumeState::Filling {
                        return Ok(Pause::Look);
                    }
                }
                Fed::End(None) => return Ok(Pause::Done),
                Fed::End(Some(why)) => return Ok(Pause::Full(why)),
            }
        }
    }

    /// Writes a piece of the stream; false if the volume takes no more.
    fn chunk(&mut self, appender: &mut Appender<'_, '_>, chunk: Chunk) -> Result<bool, TapeError> {
        let Chunk { at, mut bytes, parts } = chunk;
        let take = self.stream.takes(at, bytes.len(), &parts);
        let before = appender.taken();
        let room = appender.write_load(bytes.load(take))?;
        let taken = appender.taken() - before;
        self.worker.progress.bytes.fetch_add(taken, Ordering::Relaxed);
        self.since.1 += taken;
        self.last = Moment::now();
        let ends = parts.iter().filter(|(_, part)| matches!(part, Part::End(_))).count();
        self.worker.progress.files.fetch_add(ends as u64, Ordering::Relaxed);
        drop(bytes); // to be filled again
        self.note_written(at, at + taken, &parts);
        self.stream.pass(at + take as u64, parts);
        Ok(match room {
            Room::Ok => true,
            Room::EarlyWarning => self.stream.end_is_near(),
            Room::Full => false,
        })
    }

    /// The drive has taken the stream from `at` to `to`: whose bytes those are.
    fn note_written(&mut self, at: u64, to: u64, parts: &[(u64, Part)]) {
        let flights = &self.worker.node.writes.flights;
        let mut from = at;
        for (next, part) in parts.iter().filter(|(next, _)| *next <= to) {
            if let Some(copy) = self.copy.filter(|_| *next > from) {
                flights.wrote(copy, next - from, crate::now);
            }
            from = *next;
            match part {
                Part::Begin(file) => self.copy = Some((file.item.ino, file.item.copy)),
                Part::Bytes { .. } => {}
                Part::End(_) | Part::Lost => self.copy = None,
            }
        }
        if let Some(copy) = self.copy.filter(|_| to > from) {
            flights.wrote(copy, to - from, crate::now);
        }
    }

    /// A batch was written and flushed, which began then. To wait for files that do not come is nobody's time, and a flush counts as
    /// much as the batch is full: larger ones do not have more of them.
    fn took(&mut self, flushing: Moment) {
        let (begun, bytes) = std::mem::replace(&mut self.since, (Moment::now(), 0));
        let (node, files) = (&self.worker.node, self.stream.files());
        let tape = &node.settings().tape;
        let by_files = files as f64 / f64::from(tape.flush_files.max(1));
        let full = by_files.max(bytes as f64 / tape.flush_every.0.max(1) as f64).min(1.0);
        let took_s = (self.last - begun).as_secs_f64() + full * flushing.elapsed().as_secs_f64();
        let bytes_s = times::mechanics(node, &self.records.volume.barcode).transfer(bytes);
        node.archive.times.note_written(self.worker.no, bytes_s, files, took_s);
    }

    /// Flushes, and hands what is safe to the recorder.
    fn commit(&mut self, appender: &mut Appender<'_, '_>, full: bool) -> Result<(), TapeError> {
        if self.stream.is_empty() && !full {
            return Ok(());
        }
        self.records.sync()?;
        let flushing = Moment::now();
        let flushed = appender.flush()?;
        self.took(flushing);
        let held = flushed.append_block * u64::from(self.records.volume.block_size);
        let (worker, pool, volume) = (self.worker, self.pool, &self.records.volume.barcode);
        let files = self.stream.flushed(&flushed, |file| splits(worker, pool, volume, held, file));
        self.append_block = flushed.append_block;
        let append = VolumeAppend {
            volume: self.records.volume.barcode.clone(),
            append_block: flushed.append_block,
            next_uid: self.stream.next_uid(),
            vcr: flushed.vcr,
            now: crate::now(),
            section: None,
        };
        self.records.record(append, files)
    }
}

/// The volume takes no more data.
pub fn close(worker: &Worker, barcode: &Barcode, why: &str) -> Result<Volume, TapeError> {
    let now = crate::now();
    let closed = worker.node.catalog.update_volume(barcode, &mut |v| fill(v, why, now));
    closed.map_err(|e| ours(barcode, "closing it", e))
}

/// What waits for a volume that is full, the rest of a file too, goes to another one at once, while this one gets its index.
pub fn leave_to_others(worker: &Worker, hand: &InHand<'_>) {
    hand.give_back();
    worker.node.archive.send(Event::Backlog);
}

/// Whether a file goes on on another volume where this one ended after `held` bytes: if it is large, or no other takes it as
/// a whole, and if it is what it was.
fn splits(worker: &Worker, pool: &PoolName, volume: &Barcode, held: u64, file: &NewFile) -> bool {
    if file.moves {
        return false;
    }
    let size = file.origin.stamp.size;
    let split =
        size > held / SPLIT_SHARE || !worker.node.takes_whole(pool, volume, size.saturating_sub(file.from));
    split && file.origin.unchanged(worker, file.item.ino)
}

/// A volume that takes data takes no more; one that an operator or an error took out of use stays so.
pub fn fill(v: &mut Volume, why: &str, now: Time) {
    if matches!(v.state, VolumeState::Filling | VolumeState::Scratch) {
        v.becomes(VolumeState::Full, why, now);
    }
}
