//! Reading segments from a volume into disk objects; readers get bytes as they come off the tape.

use super::bytes::FileHash;
use super::worker::{Done, Wanted, Worker};
use crate::files::{Outcome, Staging};
use disk::DiskError;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tape::{Blame, Mounted, TapeError};
use types::*;

/// Errors in a row after which the rest of a batch goes back to the queues.
const GIVE_UP_AFTER: usize = 3;
/// Recalled files are made resident together: one sync of the file system serves all of them.
const SETTLE_FILES: usize = 500;
const SETTLE_BYTES: u64 = 1 << 30;
/// Kernels before 6.13 may give a change this soon after the last the same time.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
/// Room for a recall is waited for this long before others may need the drive more.
const ROOM_WAIT: Duration = Duration::from_millis(500);
/// Why a recall finds no room.
const FULL: &str = "the disk tier is full and nothing can be released; unpin files, or let migration catch up, then stage again";

const LOST: &str = "the disk tier lost writes while it was recalled; look at the kernel log and at the disk, then stage again";

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
    /// There will be room once waiting files are on tape, for which this drive may be needed.
    NoRoomYet,
    /// The disk side failed; another copy would not help.
    Disk(String),
}

/// Reads the segments in the order given.
pub fn read_segments(worker: &Worker, mounted: &mut Mounted<'_>, wanted: Vec<Wanted>) -> Read {
    let mut read = Read { result: Ok(Done::Worked { position: 0 }), unread: Vec::new(), failed: Vec::new() };
    let (mut arrived, mut arrived_bytes, mut errors, mut position) = (Vec::new(), 0, 0, 0);
    let mut queue = wanted.into_iter();
    while let Some(one) = queue.next() {
        if worker.node.archive.halted() {
            read.unread.push(one);
            break;
        }
        match read_one(worker, mounted, &one) {
            Ok(digest) => {
                errors = 0;
                position = one.queued.segment.extents.last().map_or(position, |e| e.start_block + 1);
                if worker.node.archive.segment_read(&one) {
                    arrived_bytes += one.staging.size;
                    arrived.push((one, digest));
                }
            }
            Err(Trouble::NoRoomYet) => {
                worker.node.archive.park(std::iter::once(one).chain(queue.by_ref()).collect());
                break;
            }
            Err(Trouble::Dropped) => worker.node.archive.forget_recall(&one.staging),
            Err(Trouble::Disk(why)) => {
                worker.node.archive.forget_recall(&one.staging);
                worker.node.end_recall(&one.staging, Outcome::Failed(why));
            }
            Err(Trouble::Tape(e)) => {
                errors += 1;
                let hopeless = e.blame != Blame::Medium || errors >= GIVE_UP_AFTER;
                if hopeless {
                    read.result = Err(e.clone());
                }
                read.failed.push((one, e));
                if hopeless {
                    break;
                }
            }
        }
        if arrived.len() >= SETTLE_FILES || arrived_bytes >= SETTLE_BYTES {
            settle(worker, &mut arrived, &mut read.failed);
            arrived_bytes = 0;
        }
    }
    settle(worker, &mut arrived, &mut read.failed);
    read.unread.extend(queue);
    if let Ok(Done::Worked { position: at }) = &mut read.result {
        *at = position;
    }
    read
}

/// Reads one segment; the digest of the whole file if this segment is all of it.
fn read_one(worker: &Worker, mounted: &mut Mounted<'_>, wanted: &Wanted) -> Result<Option<Digest>, Trouble> {
    let (staging, segment) = (&wanted.staging, &wanted.queued.segment);
    let attempt = wanted.queued.attempt;
    if staging.outcome().is_some() {
        return Err(Trouble::Dropped);
    }
    let fd = object_of(worker, staging, segment)?;
    let end = segment.file_offset + segment.length;
    let mut hash = FileHash::new();
    let mut at = segment.file_offset;
    for extent in &segment.extents {
        hole(worker, wanted, &fd, at, extent.file_offset)?;
        let mut trouble = None;
        let read = mounted.read(extent, &mut |offset, bytes| {
            hash.add(offset, bytes);
            if let Err(why) = store(worker, staging, attempt, &fd, offset, bytes) {
                trouble = Some(why);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        let _whole = read.map_err(Trouble::Tape)?;
        at = extent.file_offset + extent.byte_count;
    }
    hole(worker, wanted, &fd, at, end)?;
    let whole = segment.file_offset == 0 && segment.length == staging.size;
    Ok(if whole { hash.finish(staging.size) } else { None })
}

fn store(
    worker: &Worker,
    staging: &Arc<Staging>,
    attempt: u32,
    fd: &OwnedFd,
    offset: u64,
    bytes: &[u8],
) -> Result<(), Trouble> {
    if worker.node.archive.halted() {
        return Err(Trouble::Dropped);
    }
    let stored = staging.store(attempt, || {
        worker.node.disk.write_at(fd, bytes, offset)?;
        worker.node.finish_reads(staging.arrive(offset, offset + bytes.len() as u64));
        Ok::<_, DiskError>(())
    });
    stored.ok_or(Trouble::Dropped)?.map_err(|e| Trouble::Disk(e.to_string()))?;
    worker.progress.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// What no extent covers is a hole. It is there already in a new object; a copy tried before may have left bytes in it.
fn hole(worker: &Worker, wanted: &Wanted, fd: &OwnedFd, start: u64, end: u64) -> Result<(), Trouble> {
    let (staging, attempt) = (&wanted.staging, wanted.queued.attempt);
    if start >= end {
        return Ok(());
    }
    let stored = staging.store(attempt, || {
        if attempt > 1 {
            worker.node.disk.punch_hole(fd, start, end - start)?;
        }
        worker.node.finish_reads(staging.arrive(start, end));
        Ok::<_, DiskError>(())
    });
    stored.ok_or(Trouble::Dropped)?.map_err(|e| Trouble::Disk(e.to_string()))
}

/// Room in the disk tier. While files wait to be written to tape, this drive may be the one that has to make it.
fn reserve(worker: &Worker, bytes: u64) -> Result<(), Trouble> {
    let node = &worker.node;
    let deadline = Instant::now() + node.space.patience();
    loop {
        let begun = Instant::now();
        if node.space.reserve_within(node, bytes, ROOM_WAIT).is_ok() {
            return Ok(());
        }
        if node.archive.halted() {
            return Err(Trouble::Dropped);
        }
        if bytes <= node.space.view().capacity && node.writes.makes_progress() {
            return Err(Trouble::NoRoomYet);
        }
        // It is said before its time when nothing can make room.
        if begun.elapsed() < ROOM_WAIT || Instant::now() >= deadline {
            return Err(Trouble::Disk(FULL.to_owned()));
        }
    }
}

/// The object that a recall fills; taken from the stock at its first segment, with space reserved.
fn object_of(worker: &Worker, staging: &Arc<Staging>, segment: &Segment) -> Result<Arc<OwnedFd>, Trouble> {
    let node = &worker.node;
    let begun = staging.begin(|| {
        reserve(worker, staging.data_bytes())?;
        staging.set_failed_syncs(node.disk.failed_syncs());
        let taken = node.objects.take(&node.catalog, &node.disk);
        let (object, fd) = taken.map_err(|e| Trouble::Disk(e.to_string()))?;
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
        Ok((object, Arc::new(fd)))
    })?;
    if staging.outcome().is_some()
        && let Some((object, _)) = staging.object()
    {
        // It ended while it waited for space: nobody else gives the object up.
        node.objects.settle(object);
        return Err(Trouble::Dropped);
    }
    Ok(begun)
}

/// Checks digests, syncs once, and makes the files resident.
fn settle(
    worker: &Worker,
    arrived: &mut Vec<(Wanted, Option<Digest>)>,
    failed: &mut Vec<(Wanted, TapeError)>,
) {
    if arrived.is_empty() {
        return;
    }
    let node = &worker.node;
    let synced = node.disk.sync_fs().map_err(|e| e.to_string());
    // The stamps taken below tell of every change that follows them.
    std::thread::sleep(SETTLED_AFTER);
    for (one, digest) in arrived.drain(..) {
        let lost = node.disk.failed_syncs() != one.staging.failed_syncs();
        let stored = if lost { synced.clone().and(Err(LOST.to_owned())) } else { synced.clone() };
        if let Err(why) = stored {
            node.archive.forget_recall(&one.staging);
            node.end_recall(&one.staging, Outcome::Failed(why));
            continue;
        }
        match digest_matches(worker, &one, digest) {
            Ok(()) => {
                node.archive.forget_recall(&one.staging);
                node.recall_arrived(&one.staging);
            }
            Err(e) => {
                one.staging.distrust();
                failed.push((one, e));
            }
        }
    }
}

/// Versions that are not wanted any more have nothing to be compared with: recording them will be refused.
fn digest_matches(worker: &Worker, one: &Wanted, digest: Option<Digest>) -> Result<(), TapeError> {
    let node = &worker.node;
    let file = node.catalog.inode(one.queued.ino).ok().and_then(|inode| inode.file);
    let current = file.filter(|f| f.version == one.staging.version && one.staging.outcome().is_none());
    let expected = current.and_then(|f| f.digest);
    let Some(expected) = expected else { return Ok(()) };
    let found = match digest {
        Some(digest) => Some(digest),
        None => one.staging.object().and_then(|(_, fd)| node.digest_of_object(&fd, one.staging.size)),
    };
    if found == Some(expected) {
        return Ok(());
    }
    let (ino, copy) = (one.queued.ino, one.queued.copy);
    let what =
        format!("inode {ino} copy {copy}: the bytes read do not have the digest recorded at migration");
    Err(super::trouble::damaged(&one.queued.segment.volume, what))
}
