//! Reading segments from a volume into disk objects, by three threads: this one gives the drive nothing to wait for, one
//! stores and hashes ([`super::store`]), one makes whole files resident ([`super::settle`]). Readers of
//! large files get bytes as they come off the tape, of small ones once the digest is right.

use super::buffers::Buffers;
use super::pace::Pace;
use super::parked::{Lacks, TARGETS_FULL};
use super::passing::Passing;
use super::settle::Settler;
use super::store::{Piece, Storer, Taking};
use super::times;
use super::trouble::ours;
use super::worker::{Done, Wanted, Worker};
use crate::clock::Moment;
use crate::files::{Again, Backing, Content, Outcome, Staging};
use crossbeam_channel::{Sender, unbounded};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use tape::{Blame, Fault, LabelState, Mounted, TapeError};
use types::*;

/// Errors in a row after which the rest of a batch goes back to the queues.
const GIVE_UP_AFTER: usize = 3;
/// Fewer bytes than these go through the node: to have them go straight costs a connection.
const LITTLE: u64 = 1 << 20;
/// Room for a recall is waited for this long before others may need the drive more.
const ROOM_WAIT: Duration = Duration::from_millis(500);
/// Why a recall finds no room.
const FULL: &str = "the disk tier is full and nothing can be released; unpin files, or let migration catch up, then stage again";

/// What became of a batch.
pub struct Read {
    /// Position of the tape, or the error that ended the batch.
    pub result: Result<Done, TapeError>,
    /// Not tried.
    pub unread: Vec<Wanted>,
    /// Tried and failed.
    pub failed: Vec<(Wanted, TapeError)>,
}

/// Why one segment was not read.
enum Trouble {
    Tape(TapeError),
    /// Nobody wants it any more.
    Dropped,
    /// There will be room once waiting files are on tape, for which this drive may be needed, or once other recalls have ended.
    NoRoomYet,
    /// The same, of the targets of this file only.
    TargetsFull,
    /// The disk side failed; another copy would not help.
    Disk(String),
    /// The thread that stores has ended, which it does by a defect only.
    Closed,
}

/// Reads the segments in the order given.
pub fn read_segments(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    volume: &Barcode,
    wanted: Vec<Wanted>,
    passing: &Passing,
) -> Read {
    if let Some(e) = another(worker, mounted, volume) {
        let failed = wanted.into_iter().map(|one| (one, e.clone())).collect();
        return Read { result: Err(e), unread: Vec::new(), failed };
    }
    let (failed, unstored) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let buffers = buffers(worker, mounted, volume, &wanted);
    let pace = Pace::new(times::mechanics(&worker.node, volume));
    let (result, unread) = std::thread::scope(|scope| {
        let (out, pieces) = unbounded(); // as many as there are buffers, and two words per segment
        let alone = crate::clock::alone();
        let (tell, news) = unbounded(); // two words per segment
        let storer = Storer::new(worker, tell, &buffers, &unstored);
        let settler = Settler::new(worker, &failed);
        let reading = Reading { worker, buffers: &buffers, out, failed: &failed, pace: &pace, passing };
        if alone {
            let ended = reading.run(mounted, wanted);
            storer.run(&pieces);
            settler.run(&news);
            return ended;
        }
        let threads = worker
            .helper(scope, "store", move || storer.run(&pieces))
            .and_then(|first| Ok([first, worker.helper(scope, "settle", move || settler.run(&news))?]));
        let threads = match threads {
            Ok(threads) => threads,
            Err(e) => return (Err(ours(volume, "starting threads", e)), wanted),
        };
        let ended = reading.run(mounted, wanted);
        threads.into_iter().for_each(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended
    });
    let failed = failed.into_inner();
    let unread = together(unstored.into_inner(), unread);
    let calm = result.is_ok() && unread.is_empty() && failed.is_empty();
    pace.note(&worker.node.archive.times, worker.no, calm);
    Read { result, unread, failed }
}

/// What goes back to the queues: lost with the drive's host, and not read. One may be both.
fn together(lost: Vec<Wanted>, unread: Vec<Wanted>) -> Vec<Wanted> {
    let place = |one: &Wanted| (one.queued.ino, one.queued.attempt, one.queued.segment.file_offset);
    let known: HashSet<_> = lost.iter().map(place).collect();
    lost.into_iter().chain(unread.into_iter().filter(|one| !known.contains(&place(one)))).collect()
}

/// Buffers for what is to be read: at the drive's host, if that is another one, and it pays to open a connection for them.
fn buffers(worker: &Worker, mounted: &Mounted<'_>, volume: &Barcode, wanted: &[Wanted]) -> Buffers {
    let bytes = wanted.iter().flat_map(|one| &one.queued.segment.extents).map(|extent| extent.byte_count);
    let config = worker.node.settings();
    let there = || {
        let known = worker.node.catalog.volume(volume).ok().flatten()?;
        if matches!(mounted.label(), LabelState::Tar(_)) || bytes.sum::<u64>() < LITTLE {
            return None;
        }
        Buffers::to_read_there(worker, known.block_size as usize)
    };
    there().unwrap_or_else(|| Buffers::of_drive(&config, config.tape.block_size.0 as usize))
}

/// Files of other programs' archives have no digest before they were read once: so it has to be the cartridge that was
/// imported.
fn another(worker: &Worker, mounted: &Mounted<'_>, volume: &Barcode) -> Option<TapeError> {
    let known = worker.node.catalog.volume(volume).ok().flatten();
    let known = known.filter(|v| v.format == VolumeFormat::Tar && mounted.label().uuid() != Some(&v.uuid))?;
    let found = mounted.label().describe();
    let what =
        format!("the cartridge carries {found}, but not the archives that were imported ({})", known.uuid);
    let advice = "find out what cartridge this is; nothing was read from it";
    let error = ours(volume, "reading archives of another program", what);
    Some(TapeError { blame: Blame::Medium, fault: tape::Fault::WrongVolume, advice, ..error })
}

/// The drive's side.
struct Reading<'t> {
    worker: &'t Worker,
    buffers: &'t Buffers,
    out: Sender<Piece>,
    failed: &'t Mutex<Vec<(Wanted, TapeError)>>,
    pace: &'t Pace,
    passing: &'t Passing,
}

impl Reading<'_> {
    fn run(self, mounted: &mut Mounted<'_>, wanted: Vec<Wanted>) -> (Result<Done, TapeError>, Vec<Wanted>) {
        let (node, mut queue) = (&self.worker.node, wanted.into_iter().enumerate());
        let (mut errors, mut unread, mut next) = (0, Vec::new(), 0);
        let mut ended = None;
        while let Some((nth, one)) = queue.next() {
            if node.archive.halted() || self.buffers.are_gone() {
                unread.push(one);
                break;
            }
            self.passing.begin(node, nth);
            match self.read_one(mounted, &mut next, &one) {
                Ok(()) => errors = 0,
                Err(Trouble::NoRoomYet) => {
                    let rest = queue.by_ref().map(|(_, one)| one);
                    node.archive.park(std::iter::once(one).chain(rest).collect(), Lacks::Tier);
                }
                Err(Trouble::TargetsFull) => node.archive.park(vec![one], Lacks::Targets),
                Err(Trouble::Dropped) => node.archive.forget_recall(&one),
                Err(Trouble::Disk(why)) => {
                    node.archive.forget_recall(&one);
                    node.end_recall(&one.staging, Outcome::Failed(why));
                }
                // The drive is as it was.
                Err(Trouble::Tape(e)) if self.buffers.there().is_some_and(|there| there.has_failed(&e)) => {
                    unread.push(one);
                    break;
                }
                Err(Trouble::Tape(e)) => {
                    errors += 1;
                    let place = e.blame == Blame::Medium && e.fault != Fault::Incompatible;
                    let hopeless = !place || errors >= GIVE_UP_AFTER;
                    ended = hopeless.then(|| e.clone());
                    self.failed.lock().push((one, e));
                    if hopeless {
                        break;
                    }
                }
                Err(Trouble::Closed) => break,
            }
        }
        unread.extend(queue.map(|(_, one)| one));
        (ended.map_or_else(|| Ok(Done::Worked { position: mounted.reads_from() }), Err), unread)
    }

    /// Reads one segment and hands its bytes over. `next`: where the stream goes on that lies at the drive's host.
    fn read_one(&self, mounted: &mut Mounted<'_>, next: &mut u64, wanted: &Wanted) -> Result<(), Trouble> {
        let (staging, segment) = (&wanted.staging, &wanted.queued.segment);
        if staging.outcome().is_some() {
            return Err(Trouble::Dropped);
        }
        let content = object_of(self.worker, self.pace, staging, segment)?;
        let taking = Arc::new(Taking::new(wanted.clone(), content));
        self.put(Piece::Begin(taking.clone()))?;
        for extent in &segment.extents {
            let mut closed = false;
            let mut run = self.pace.run(mounted.reads_from(), extent);
            let mut came = |bytes: usize, handed: Result<(), Trouble>| {
                run.arrived(bytes);
                self.passing.came(bytes);
                staging.reads(crate::now);
                closed = handed.is_err();
                if closed || taking.given_up() || self.worker.node.archive.halted() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let read = match self.buffers.there() {
                Some(there) => {
                    let place = (there.number(), &mut *next);
                    mounted.read_there(extent, place, &mut |offset, piece| {
                        let buffer = self.buffers.holding(piece.at, piece.bytes);
                        came(piece.bytes, self.put(Piece::Bytes(offset, buffer)))
                    })
                }
                None => mounted
                    .read(extent, &mut |offset, bytes| came(bytes.len(), self.hand_over(offset, bytes))),
            };
            match read {
                Ok(ControlFlow::Continue(())) => self.pace.ran(run),
                _ if closed => return Err(Trouble::Closed),
                // Whoever gave it up has told everybody.
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(e) => return Err(Trouble::Tape(e)),
            }
        }
        self.pace.file(&self.worker.node.archive.times, self.worker.no);
        self.put(Piece::End)
    }

    fn hand_over(&self, offset: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let (mut offset, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let mut buffer = self.buffers.take();
            let n = buffer.put(rest).map_err(|_| Trouble::Closed)?;
            self.put(Piece::Bytes(offset, buffer))?;
            (offset, rest) = (offset + n as u64, &rest[n..]);
        }
        Ok(())
    }

    fn put(&self, piece: Piece) -> Result<(), Trouble> {
        self.out.send(piece).map_err(|_| Trouble::Closed)
    }
}

/// Room in the disk tier. While files wait to be written to tape, this drive may be the one that has to make it; and what other
/// drives bring in may take longer than anybody waits here.
fn reserve(worker: &Worker, bytes: u64) -> Result<(), Trouble> {
    let node = &worker.node;
    let deadline = Moment::now() + node.space.patience();
    loop {
        let begun = Moment::now();
        if node.space.reserve_within(node, bytes, ROOM_WAIT).is_ok() {
            return Ok(());
        }
        if node.archive.halted() {
            return Err(Trouble::Dropped);
        }
        if bytes <= node.space.view().capacity && node.room_comes() {
            return Err(Trouble::NoRoomYet);
        }
        // It is said before its time when nothing can make room.
        if begun.elapsed() < ROOM_WAIT || Moment::now() >= deadline {
            return Err(Trouble::Disk(FULL.to_owned()));
        }
    }
}

/// The object that a recall fills, chosen at its first segment: on targets, or taken from the stock with space reserved.
fn object_of(
    worker: &Worker,
    pace: &Pace,
    staging: &Arc<Staging>,
    segment: &Segment,
) -> Result<Content, Trouble> {
    let node = &worker.node;
    let disk = |e: FsError| Trouble::Disk(e.to_string());
    if staging.object().is_some() {
        match pace.apart(|| node.may_go_on(staging)) {
            Some(true) => {}
            Some(false) => return Err(Trouble::TargetsFull),
            None => return Err(Trouble::Disk(TARGETS_FULL.to_owned())),
        }
    }
    let begun = staging.begin(|| {
        match pace.apart(|| node.far_again(staging)).map_err(disk)? {
            Again::Targets(far) => return Ok(far),
            Again::Later => return Err(Trouble::TargetsFull),
            Again::Tier => {}
        }
        pace.apart(|| reserve(worker, staging.data_bytes()))?;
        staging.set_failed_syncs(node.disk.failed_syncs());
        let (object, fd) = node.objects.take(&node.catalog, &node.disk).map_err(disk)?;
        // Dense files get their blocks in one piece, and a full disk shows before the first byte is read.
        let data: u64 = segment.extents.iter().map(|e| e.byte_count).sum();
        let dense = data == staging.size && data > 0;
        let sized = node.disk.set_len(&fd, staging.size).and_then(|()| {
            if dense { node.disk.preallocate(&fd, 0, staging.size).map(drop) } else { Ok(()) }
        });
        if let Err(e) = sized {
            node.objects.settle(object);
            return Err(Trouble::Disk(e.to_string()));
        }
        Ok(Backing::local(object, Arc::new(fd)))
    })?;
    if staging.outcome().is_some()
        && let Some(object) = staging.object()
    {
        // It ended while it waited for space: nobody else gives the object up.
        node.settle_object(&object);
        return Err(Trouble::Dropped);
    }
    Ok(begun)
}
