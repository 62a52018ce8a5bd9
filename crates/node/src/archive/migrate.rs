//! Writing a pool's backlog to a volume. A copy counts only after its bytes are flushed on tape *and* recorded.

use super::bytes::FileHash;
use super::room;
use super::trouble::ours;
use super::worker::Worker;
use catalog::{NewSegment, RecordOutcome, TapeNode, VolumeAppend};
use format::ltfs::index::{DirMeta, EntryTimes};
use policy::MigrateItem;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tape::{AppendPoint, Appender, IndexSpec, Mounted, Room, TapeError};
use types::*;

/// Read from disk in pieces of this size (bytes).
const CHUNK: usize = 1 << 20;
/// A file this young could change again within the resolution of its times.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
/// A file is split over two volumes only if it is larger than this share of a volume.
const SPLIT_SHARE: u64 = 4;
/// Why a volume is full.
const END_REACHED: &str = "its end was reached";
/// Directories of the tape's tree get LTFS uids above this, files below.
const DIRECTORY_UIDS: u64 = 1 << 48;

/// A file written but not yet recorded.
struct Written {
    item: MigrateItem,
    segment: NewSegment,
    /// The stream's length behind it.
    stream_end: u64,
}

/// Why a file was not written now.
enum Skip {
    /// It is being written, changed, or gone: look again later.
    Later(String),
    /// It cannot be copied until somebody has mended something.
    Never(String),
    Tape(TapeError),
}

impl From<catalog::CatalogError> for Skip {
    fn from(e: catalog::CatalogError) -> Self {
        if e.is_damage() { Self::Never(e.to_string()) } else { Self::Later(e.to_string()) }
    }
}

impl From<TapeError> for Skip {
    fn from(e: TapeError) -> Self {
        Self::Tape(e)
    }
}

/// One turn of writing to one volume.
struct Turn<'w> {
    worker: &'w Worker,
    pool: &'w PoolName,
    volume: Volume,
    batch: Vec<Written>,
    batch_bytes: u64,
    /// Bytes of the stream on the medium at the last flush.
    safe_bytes: u64,
    /// The volume takes no more.
    full: Option<&'static str>,
}

/// Writes until the backlog is empty, the volume is full or the node stops; returns the tape's position.
pub fn migrate(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    pool: &PoolName,
) -> Result<u64, TapeError> {
    let volume = volume(worker, barcode)?;
    let mut turn =
        Turn { worker, pool, volume, batch: Vec::new(), batch_bytes: 0, safe_bytes: 0, full: None };
    loop {
        let more = turn.write_some(mounted)?;
        if let Some(why) = turn.full {
            turn.close(why)?;
        }
        if turn.full.is_some() || index_is_due(worker, &turn.volume) {
            write_index(worker, mounted, barcode)?;
            turn.volume = self::volume(worker, barcode)?;
        }
        let takes_data = turn.full.is_none() && turn.volume.state == VolumeState::Filling;
        if !more || !takes_data {
            return Ok(turn.volume.append_block);
        }
    }
}

fn volume(worker: &Worker, barcode: &Barcode) -> Result<Volume, TapeError> {
    let found = worker.node.catalog.volume(barcode).map_err(|e| ours(barcode, "looking it up", e))?;
    found.ok_or_else(|| ours(barcode, "looking it up", "the catalogue does not know this volume"))
}

fn index_is_due(worker: &Worker, volume: &Volume) -> bool {
    let blocks = volume.append_block.saturating_sub(volume.indexed_to);
    blocks * u64::from(volume.block_size) >= worker.node.config.tape.index_every.0
}

impl Turn<'_> {
    /// Writes batches until there is reason to pause; true if the backlog may have more for this volume.
    fn write_some(&mut self, mounted: &mut Mounted<'_>) -> Result<bool, TapeError> {
        let reserve = room::index_reserve(&self.volume);
        let mut appender = mounted.appender(&AppendPoint::from(&self.volume), reserve)?;
        let limits = &self.worker.node.config.tape;
        let more = loop {
            if self.worker.node.archive.halted() {
                break false;
            }
            if self.volume.files + self.batch.len() as u64 >= limits.max_files_per_volume {
                self.full = Some("it holds as many files as tape.max_files_per_volume allows");
                break false;
            }
            let Some(item) = self.worker.node.writes.pop(self.pool) else { break false };
            let begun = appender.taken();
            match self.append(&mut appender, item) {
                Ok(Room::Ok) => {}
                Ok(Room::EarlyWarning | Room::Full) => {
                    self.full = Some(END_REACHED);
                    break false;
                }
                Err(Skip::Later(why)) => {
                    tracing::debug!("inode {} is not migrated now: {why}", item.ino);
                    self.worker.node.writes.hold(&item, appender.taken() > begun, crate::now());
                    self.worker.node.finish_migrated(item.ino);
                    self.worker.node.migrate_again(item.ino);
                }
                Err(Skip::Never(why)) => {
                    self.worker.node.writes.hold(&item, appender.taken() > begun, crate::now());
                    self.worker.node.cannot_migrate(item.ino, why);
                }
                Err(Skip::Tape(e)) => {
                    self.worker.node.writes.put_back(self.pool, item);
                    return Err(e);
                }
            }
            if self.batch_bytes >= limits.flush_every.0 || self.batch.len() >= limits.flush_files as usize {
                self.commit(&mut appender)?;
                if index_is_due(self.worker, &self.volume) {
                    break true;
                }
            }
        };
        self.commit(&mut appender)?;
        Ok(more)
    }

    /// Appends one file, or what of it is missing on this copy.
    fn append(&mut self, appender: &mut Appender<'_, '_>, item: MigrateItem) -> Result<Room, Skip> {
        let node = &self.worker.node;
        let inode = node.catalog.inode(item.ino)?;
        let (fd, stamp) = self.source(&inode, &item)?;
        let from = self.continues_at(&item)?;
        if stamp.size.saturating_sub(from) > room::free_on(&self.volume).saturating_sub(self.batch_bytes)
            && let Some(why) = node.does_not_fit(self.pool, &item)
        {
            return Err(Skip::Never(why));
        }
        let known = inode.file.as_ref().and_then(|f| f.digest);
        if node.writes.was_wasteful(&item) {
            // Look at all that is needed before it costs more space in vain.
            node.catalog.path_of(item.ino)?;
            let digest = digest_on_disk(self.worker, &fd, stamp.size)?;
            expect_digest(item.ino, known, digest)?;
        }
        let begun = appender.taken();
        let mut file = FileCopy { hash: FileHash::new(), extents: Vec::new(), room: Room::Ok };
        for range in node.disk.data_ranges(&fd, stamp.size) {
            let range = range.map_err(|e| Skip::Later(e.to_string()))?;
            file.copy(self.worker, appender, &fd, range.start, range.end, from)?;
            if file.room == Room::Full {
                break;
            }
        }
        let FileCopy { hash, extents, room } = file;
        if node.disk.stamp(&fd).ok() != Some(stamp) || node.is_being_written(item.ino) {
            return Err(Skip::Later("it changed while it was read; that copy does not count".into()));
        }
        if room == Room::Full {
            return self.split(appender, item, &inode, from, begun, extents).map_err(Skip::Tape);
        }
        let digest = hash.finish(stamp.size);
        expect_digest(item.ino, known, digest)?;
        self.keep(item, &stamp, from, stamp.size - from, extents, digest, appender.taken());
        Ok(room)
    }

    /// The object to copy, unchanged since it was sealed and read by nobody who might change it.
    fn source(&self, inode: &Inode, item: &MigrateItem) -> Result<(OwnedFd, ObjectStamp), Skip> {
        let node = &self.worker.node;
        let later = |why: &str| Skip::Later(why.to_owned());
        let file = inode.file.as_ref().ok_or_else(|| later("it is not a regular file"))?;
        if file.version != item.version || file.copies.contains(&item.copy) {
            return Err(later("it has another version by now, or this copy already"));
        }
        let object = file.object.ok_or_else(|| later("it is offline"))?;
        if node.is_being_written(item.ino) {
            return Err(later("it is open for writing"));
        }
        let fd = node.disk.open_object(object, false).map_err(|e| match &e {
            disk::DiskError::Missing { .. } if node.object_lost(item.ino, object, &e).is_err() => {
                Skip::Never(e.to_string())
            }
            _ => Skip::Later(e.to_string()),
        })?;
        let stamp = node.disk.stamp(&fd).map_err(|e| Skip::Later(e.to_string()))?;
        if crate::Node::changed(file.stamp.as_ref(), &stamp) {
            node.observe_closed(item.ino, object);
            return Err(later("its content changed without the catalogue knowing"));
        }
        let now = crate::now();
        // A change time ahead of the clock was set before somebody turned the clock back.
        if stamp.ctime <= now && now.since(stamp.ctime) < SETTLED_AFTER {
            std::thread::sleep(SETTLED_AFTER);
            if node.disk.stamp(&fd).ok() != Some(stamp) {
                return Err(later("it changed a moment ago"));
            }
        }
        // Somebody has it open for reading (the descriptor can write), or has it mapped for writing. Storing into a page
        // that is dirty already changes no time; after this sync every store does.
        let writer = node.disk.has_writer(&fd).map_err(|e| Skip::Later(e.to_string()))?;
        if writer {
            node.disk.sync(&fd).map_err(|e| Skip::Later(e.to_string()))?;
            if node.disk.stamp(&fd).ok() != Some(stamp) {
                return Err(later("it changes right now"));
            }
        }
        Ok((fd, stamp))
    }

    /// Where a copy continues whose first segments lie on other volumes already.
    fn continues_at(&self, item: &MigrateItem) -> Result<u64, Skip> {
        let known = self.worker.node.catalog.version_copies(item.ino, item.version)?;
        let copy = known.iter().find(|c| c.copy == item.copy);
        Ok(copy.and_then(|c| c.segments.last()).map_or(0, |s| s.file_offset + s.length))
    }

    /// The volume ended within this file: what is safely on it counts as a segment if the file is large, otherwise the
    /// whole file goes to the next volume.
    fn split(
        &mut self,
        appender: &mut Appender<'_, '_>,
        item: MigrateItem,
        inode: &Inode,
        from: u64,
        begun: u64,
        mut extents: Vec<Extent>,
    ) -> Result<Room, TapeError> {
        self.full = Some(END_REACHED); // commit flushes then even if this file is the first of its batch
        self.commit(appender)?;
        let mut safe = self.safe_bytes.saturating_sub(begun);
        let large = inode.attr.size > self.volume.capacity / SPLIT_SHARE;
        if large && safe > 0 {
            extents.retain_mut(|e| {
                e.byte_count = e.byte_count.min(safe);
                safe -= e.byte_count;
                e.byte_count > 0
            });
            let end = extents.last().map_or(from, |e| e.file_offset + e.byte_count);
            let stamp = ObjectStamp { size: inode.attr.size, ..ObjectStamp::default() };
            self.keep(item, &stamp, from, end - from, extents, None, self.safe_bytes);
        } else {
            self.worker.node.writes.put_back(self.pool, item);
        }
        Ok(Room::Full)
    }

    #[allow(clippy::too_many_arguments)]
    fn keep(
        &mut self,
        item: MigrateItem,
        stamp: &ObjectStamp,
        file_offset: u64,
        length: u64,
        extents: Vec<Extent>,
        digest: Option<Digest>,
        stream_end: u64,
    ) {
        let uid = self.volume.next_uid;
        self.volume.next_uid += 1;
        let segment = NewSegment {
            ino: item.ino,
            version: item.version,
            copy: item.copy,
            file_offset,
            length,
            extents,
            size: stamp.size,
            digest,
            uid,
        };
        self.batch_bytes += length;
        self.batch.push(Written { item, segment, stream_end });
    }

    /// Flushes, then records what is safe. Only now may anybody rely on these copies.
    fn commit(&mut self, appender: &mut Appender<'_, '_>) -> Result<(), TapeError> {
        if self.batch.is_empty() && self.full.is_none() {
            return Ok(());
        }
        let node = &self.worker.node;
        let name = self.volume.barcode.clone();
        // The disk objects first: a copy of bytes that a power failure takes from the disk would make the file look
        // changed.
        node.disk.sync_fs().map_err(|e| ours(&name, "syncing the disk tier", e))?;
        let flushed = appender.flush()?;
        self.safe_bytes = flushed.safe_bytes;
        let now = crate::now();
        let append = VolumeAppend {
            volume: name.clone(),
            append_block: flushed.append_block,
            next_uid: self.volume.next_uid,
            vcr: flushed.vcr,
            now,
        };
        let (safe, lost): (Vec<_>, Vec<_>) =
            self.batch.drain(..).partition(|w| w.stream_end <= flushed.safe_bytes);
        self.batch_bytes = 0;
        lost.into_iter().for_each(|w| node.writes.put_back(self.pool, w.item));
        let segments: Vec<NewSegment> = safe.iter().map(|w| w.segment.clone()).collect();
        let outcomes = match node.catalog.record_copies(&append, &segments) {
            Ok(outcomes) => outcomes,
            Err(e) => {
                safe.into_iter().for_each(|w| node.writes.put_back(self.pool, w.item));
                return Err(ours(&name, "recording copies", e));
            }
        };
        for (written, outcome) in safe.into_iter().zip(outcomes) {
            match outcome {
                RecordOutcome::Partial => node.writes.put_back(self.pool, written.item),
                RecordOutcome::Counted => {
                    node.writes.finish(&written.item);
                    node.finish_migrated(written.item.ino);
                }
                RecordOutcome::Stale { why } => {
                    tracing::info!(
                        "volume {name}: the copy of inode {} is dead already: {why}",
                        written.item.ino
                    );
                    node.writes.hold(&written.item, true, now);
                    node.finish_migrated(written.item.ino);
                    node.migrate_again(written.item.ino);
                }
                RecordOutcome::Damaged { why } => {
                    node.writes.hold(&written.item, true, now);
                    node.cannot_migrate(written.item.ino, why);
                }
            }
        }
        let next_uid = self.volume.next_uid;
        self.volume = volume(self.worker, &name)?;
        self.volume.next_uid = self.volume.next_uid.max(next_uid);
        node.governor.wake();
        Ok(())
    }

    /// The volume takes no more data.
    fn close(&mut self, why: &'static str) -> Result<(), TapeError> {
        let barcode = &self.volume.barcode;
        let now = crate::now();
        let closed = self.worker.node.catalog.update_volume(barcode, &mut |v| fill(v, why, now));
        self.volume = closed.map_err(|e| ours(barcode, "closing it", e))?;
        Ok(())
    }
}

/// However a turn ends, nothing since its last commit counts.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        for written in self.batch.drain(..) {
            self.worker.node.writes.put_back(self.pool, written.item);
        }
    }
}

/// Refuses bytes that are not those of the version.
fn expect_digest(ino: Ino, known: Option<Digest>, found: Option<Digest>) -> Result<(), Skip> {
    if known.is_none() || known == found {
        return Ok(());
    }
    let text = format!(
        "inode {ino}: the disk object does not have the digest recorded for this version; it is not copied to tape and \
         not purged: run `thermo check --deep`"
    );
    tracing::error!("{text}");
    Err(Skip::Later(text))
}

/// Reads a disk object through.
fn digest_on_disk(worker: &Worker, fd: &OwnedFd, size: u64) -> Result<Option<Digest>, Skip> {
    let disk = &worker.node.disk;
    let mut hash = FileHash::new();
    let mut buf = vec![0; CHUNK];
    for range in disk.data_ranges(fd, size) {
        let range = range.map_err(|e| Skip::Later(e.to_string()))?;
        let mut at = range.start;
        while at < range.end {
            if worker.node.archive.halted() {
                return Err(Skip::Later("the node stops".into()));
            }
            let want = buf.len().min((range.end - at) as usize);
            let got = disk.read_at(fd, &mut buf[..want], at).map_err(|e| Skip::Later(e.to_string()))?;
            if got == 0 {
                return Err(Skip::Later("it became shorter while it was read".into()));
            }
            hash.add(at, &buf[..got]);
            at += got as u64;
        }
    }
    Ok(hash.finish(size))
}

/// A volume that takes data takes no more; one that an operator or an error took out of use stays so.
fn fill(v: &mut Volume, why: &str, now: Time) {
    if matches!(v.state, VolumeState::Filling | VolumeState::Scratch) {
        (v.state, v.reason, v.since) = (VolumeState::Full, why.into(), now);
    }
}

/// One file on its way to tape.
struct FileCopy {
    hash: FileHash,
    extents: Vec<Extent>,
    room: Room,
}

impl FileCopy {
    /// Hashes `start..end` and appends what lies behind `from`.
    fn copy(
        &mut self,
        worker: &Worker,
        appender: &mut Appender<'_, '_>,
        fd: &OwnedFd,
        start: u64,
        end: u64,
        from: u64,
    ) -> Result<(), Skip> {
        let mut buf = vec![0; CHUNK.min((end - start) as usize)];
        let mut at = start;
        if end > from {
            let (start_block, byte_offset) = appender.here();
            self.extents.push(Extent {
                file_offset: start.max(from),
                start_block,
                byte_offset,
                byte_count: 0,
            });
        }
        while at < end && self.room != Room::Full {
            if worker.node.archive.halted() {
                return Err(Skip::Later("the node stops".into()));
            }
            let want = buf.len().min((end - at) as usize);
            let got =
                worker.node.disk.read_at(fd, &mut buf[..want], at).map_err(|e| Skip::Later(e.to_string()))?;
            if got == 0 {
                return Err(Skip::Later("it became shorter while it was read".into()));
            }
            self.hash.add(at, &buf[..got]);
            let skip = from.saturating_sub(at).min(got as u64) as usize;
            if skip < got {
                let before = appender.taken();
                let room = appender.write(&buf[skip..got])?;
                if self.room != Room::Full && room != Room::Ok {
                    self.room = room;
                }
                let taken = appender.taken() - before;
                worker.progress.bytes.fetch_add(taken, Ordering::Relaxed);
                if let Some(extent) = self.extents.last_mut() {
                    extent.byte_count += taken;
                }
            }
            at += got as u64;
        }
        self.extents.retain(|e| e.byte_count > 0);
        Ok(())
    }
}

/// Writes a full index of the volume from the catalogue to both partitions; returns the tape's position.
pub fn write_index(worker: &Worker, mounted: &mut Mounted<'_>, barcode: &Barcode) -> Result<u64, TapeError> {
    let catalog = &worker.node.catalog;
    let volume = volume(worker, barcode)?;
    let now = crate::now();
    let root_time = volume.labelled.unwrap_or(now);
    let creator = concat!("Thermocline ", env!("CARGO_PKG_VERSION"));
    let point = AppendPoint::from(&volume);
    let spec = IndexSpec { point: &point, creator, highest_uid: DIRECTORY_UIDS * 2, now };
    let indexed = mounted.write_index(&spec, &mut |writer| {
        writer.enter_dir(&directory(barcode.as_str(), 1, root_time))?;
        let mut failed: Option<Box<dyn std::error::Error + Send + Sync>> = None;
        catalog.walk_volume(barcode, &mut |node| {
            let done = match node {
                TapeNode::EnterDir { name, dir, created } => {
                    writer.enter_dir(&directory(name, DIRECTORY_UIDS + dir.0, created)).map_err(Into::into)
                }
                TapeNode::File { name, file } => format::ltfs::file::to_index(name, file)
                    .map_err(Into::into)
                    .and_then(|f| writer.file(&f).map_err(Into::into)),
                TapeNode::LeaveDir => writer.leave_dir().map_err(Into::into),
            };
            match done {
                Ok(()) => ControlFlow::Continue(()),
                Err(e) => {
                    failed = Some(e);
                    ControlFlow::Break(())
                }
            }
        })?;
        match failed {
            Some(e) => Err(e),
            None => Ok(writer.leave_dir()?),
        }
    })?;
    let recorded = catalog.update_volume(barcode, &mut |v| {
        v.generation = indexed.generation;
        v.index_block = indexed.index_block;
        v.append_block = indexed.append_block;
        v.indexed_to = indexed.append_block;
        v.vcr = indexed.vcr;
        if indexed.data_partition_full {
            fill(v, "its end was reached by an index", now);
        }
    });
    recorded.map_err(|e| ours(barcode, "recording an index", e))?;
    Ok(indexed.append_block)
}

fn directory(name: &str, uid: u64, created: Time) -> DirMeta {
    let times =
        EntryTimes { creation: created, change: created, modify: created, access: created, backup: created };
    DirMeta { name: name.into(), uid, times, ..DirMeta::default() }
}
