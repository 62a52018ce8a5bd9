//! A disk object that is to be copied to tape: unchanged since it was sealed, and read by nobody who might change it.

use super::buffers::{Buffer, Buffers};
use super::bytes::FileHash;
use super::there::{Far, Found, Need, Sums};
use super::worker::Worker;
use crate::files::Content;
use catalog::Part;
use policy::MigrateItem;
use std::sync::Arc;
use std::time::Duration;
use types::*;

/// Read from disk and hashed in pieces of this size (bytes): small enough to be in the processor's cache still when hashed.
pub const PIECE: usize = 256 << 10;
/// A file this young could change again within the resolution of its times.
const SETTLED_AFTER: Duration = Duration::from_millis(20);

/// Why a file is not copied now.
pub enum Skip {
    /// It is being written, changed, or gone: look again later.
    Later(String),
    /// It cannot be copied until somebody has mended something.
    Never(String),
}

impl From<disk::DiskError> for Skip {
    fn from(e: disk::DiskError) -> Self {
        Self::Later(e.to_string())
    }
}

impl From<catalog::CatalogError> for Skip {
    fn from(e: catalog::CatalogError) -> Self {
        if e.is_damage() { Self::Never(e.to_string()) } else { Self::Later(e.to_string()) }
    }
}

fn later<T>(why: &str) -> Result<T, Skip> {
    Err(Skip::Later(why.to_owned()))
}

/// The node stops: nothing more is read.
pub fn halted(worker: &Worker) -> Result<(), Skip> {
    if worker.node.archive.halted() { later("the node stops") } else { Ok(()) }
}

/// Looks at a node without data, of which the catalogue has all there is to copy; None if it has data. Says whether the
/// copy counts already, and leaves its volume.
pub fn dataless(worker: &Worker, item: &MigrateItem) -> Result<Option<bool>, Skip> {
    let catalog = &worker.node.catalog;
    match catalog.inode(item.ino) {
        Ok(inode) if inode.attr.kind == FileKind::File => return Ok(None),
        Ok(_) => {}
        Err(e) if e.fs() == FsError::NotFound => {} // it may be that it was removed what is to be told
        Err(e) => return Err(e.into()),
    }
    let Some(node) = catalog.archived(item.ino)? else { return later("it was removed") };
    let moves = node.copies.contains(&item.copy);
    if node.version != item.version || (moves && part_to_move(worker, item)?.is_none()) {
        return later("it has another version by now, or this copy already");
    }
    Ok(Some(moves))
}

/// An open object.
pub struct Source {
    /// To read from.
    content: Content,
    /// What was open when reading began.
    pub origin: Origin,
    /// Where this copy continues whose first segments lie on other volumes already ...
    pub from: u64,
    /// ... and where it ends: behind the last byte, or where that part ends that leaves a volume which is being repacked.
    pub to: u64,
    /// The copy counts already, and this part of it leaves its volume: it goes as a whole to another.
    pub moves: bool,
    /// Digest recorded for this version.
    known: Option<Digest>,
    /// Parts of this copy that lie on other volumes, in order.
    before: Vec<Part>,
}

/// Which object in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Object.
    pub object: ObjectId,
    /// Its stamp.
    pub stamp: ObjectStamp,
    /// It lies on targets of the cluster.
    pub far: bool,
}

impl Source {
    /// Opens what is to be copied.
    pub fn open(worker: &Worker, item: &MigrateItem) -> Result<Self, Skip> {
        let node = &worker.node;
        let inode = node.catalog.inode(item.ino)?;
        let Some(file) = inode.file.as_ref() else { return later("it is not a regular file") };
        let moves = file.copies.contains(&item.copy);
        let part = if moves { part_to_move(worker, item)? } else { None };
        if file.version != item.version || (moves && part.is_none()) {
            return later("it has another version by now, or this copy already");
        }
        let Some(object) = file.object else { return later("it is offline") };
        if node.is_being_written(item.ino) {
            return later("it is open for writing");
        }
        if file.far {
            return Self::open_far(worker, &inode, item, part);
        }
        let fd = node.disk.open_object(object, false).map_err(|e| match &e {
            disk::DiskError::Missing { .. } => match node.object_vanished(item.ino, object, &e) {
                Err(FsError::Io) => Skip::Never(e.to_string()),
                _ => e.into(),
            },
            _ => e.into(),
        })?;
        let stamp = node.disk.stamp(&fd)?;
        if crate::Node::changed(file.stamp.as_ref(), &stamp) {
            node.observe_closed(item.ino, object);
            return later("its content changed without the catalogue knowing");
        }
        let (to, known) = (stamp.size, file.digest);
        let content = Content::Local(Arc::new(fd));
        let source = Self {
            content,
            origin: Origin { object, stamp, far: false },
            from: 0,
            to,
            moves,
            known,
            before: Vec::new(),
        };
        source.settled(worker)?;
        Ok(match part {
            Some((from, to)) => Self { from, to, ..source },
            None => source.after(written(worker, item, to)?),
        })
    }

    /// The same of a file on targets: nobody writes there but this node, so that what the catalogue says of a file that nobody has open for
    /// writing is true.
    fn open_far(
        worker: &Worker,
        inode: &Inode,
        item: &MigrateItem,
        part: Option<(u64, u64)>,
    ) -> Result<Self, Skip> {
        let node = &worker.node;
        let known = inode.file.as_ref().and_then(|f| Some((f.object?, f.stamp?, f.digest, &f.copies)));
        let Some((object, stamp, known, copies)) = known else { return later("it is not closed yet") };
        if node.catalog.is_writing(item.ino)? {
            return later("it is closed when its targets answer");
        }
        let failed = |e: FsError| Skip::Later(format!("its targets: {e}"));
        let missing = node.missing_targets_of(object).map_err(failed)?;
        if !missing.is_empty() {
            return Err(Skip::Later(format!("its targets {missing:?} do not answer")));
        }
        // Who had it open may write at the targets still: all copies are to be the same.
        node.end_rights(object).map_err(|e| Skip::Later(format!("its targets: {e}")))?;
        let content = Content::Far(node.far_file(item.ino, object, stamp).map_err(failed)?);
        let origin = Origin { object, stamp, far: true };
        let (from, to) = part.unwrap_or((0, stamp.size));
        let moves = copies.contains(&item.copy);
        let source = Self { content, origin, from, to, moves, known, before: Vec::new() };
        if part.is_some() { Ok(source) } else { Ok(source.after(written(worker, item, stamp.size)?)) }
    }

    /// Where a copy goes on of which these parts are on tape.
    fn after(self, before: Vec<Part>) -> Self {
        Self { from: before.last().map_or(0, |(offset, length)| offset + length), before, ..self }
    }

    fn settled(&self, worker: &Worker) -> Result<(), Skip> {
        let Content::Local(fd) = &self.content else { return Ok(()) };
        let (disk, stamp, now) = (&worker.node.disk, self.origin.stamp, crate::now());
        // A change time ahead of the clock was set before somebody turned the clock back.
        if stamp.ctime <= now && now.since(stamp.ctime) < SETTLED_AFTER {
            crate::clock::sleep(SETTLED_AFTER);
            if disk.stamp(fd)? != stamp {
                return later("it changed a moment ago");
            }
        }
        // Somebody has it open for reading (the descriptor can write), or has it mapped for writing. Storing into a page
        // that is dirty already changes no time; after this sync every store does.
        if disk.has_writer(fd)? {
            disk.sync(fd)?;
            if disk.stamp(fd)? != stamp {
                return later("it changes right now");
            }
        }
        Ok(())
    }

    /// Digest recorded for this version.
    pub fn known(&self) -> Option<Digest> {
        self.known
    }

    /// Its length (bytes).
    pub fn size(&self) -> u64 {
        self.origin.stamp.size
    }

    /// Fails if anything may have changed since it was opened: what was read then is not a copy of anything.
    pub fn unchanged(&self, worker: &Worker, ino: Ino) -> Result<(), Skip> {
        let same = match &self.content {
            Content::Local(fd) => worker.node.disk.stamp(fd)? == self.origin.stamp,
            Content::Far(_) => self.origin.is_recorded(worker, ino),
        };
        if same && !worker.node.is_being_written(ino) {
            return Ok(());
        }
        later("it changed while it was read; that copy does not count")
    }

    /// Reads a piece of at most `most` bytes into a buffer, which is to keep it or not, and hashes it while it is in the cache; says how
    /// many bytes, never 0.
    pub fn read(
        &self,
        worker: &Worker,
        sums: &mut Sums,
        (offset, most): (u64, usize),
        (buffer, keep): (&mut Buffer, bool),
    ) -> Result<usize, Skip> {
        halted(worker)?;
        let read = |buf: &mut [u8]| {
            let got = match &self.content {
                Content::Local(fd) => worker.node.disk.read_at(fd, buf, offset)?,
                Content::Far(file) => {
                    let failed = |e: FsError| Skip::Later(format!("reading it from its targets: {e}"));
                    file.read_into(offset, buf).map_err(failed)?
                }
            };
            if got == 0 { later("it became shorter while it was read") } else { Ok(got) }
        };
        match sums {
            Sums::Here(hash) => buffer.read(most, keep, |buf| {
                let got = read(buf)?;
                hash.add(offset, &buf[..got]);
                Ok(got)
            }),
            Sums::There(far) => buffer.fetch(&worker.node, far, (offset, most, keep), read),
        }
    }

    /// Sums of all of it, which goes to these buffers, and of a part of it if that is asked for; where other copies of it wait to be written or are being written, made together with their readers.
    pub fn sums(&self, worker: &Worker, item: &MigrateItem, buffers: &Buffers, also: Option<Part>) -> Sums {
        let mut parts = self.parts(worker, item);
        parts.extend(also.filter(|part| !parts.contains(part)));
        let need = Need { whole: true, parts };
        if let Some(far) = self.far(worker, item.ino, buffers, &need) {
            return Sums::There(far);
        }
        let archive = &worker.node.archive;
        let others = || worker.node.writes.has_others(item);
        let joint = archive.digests.join((item.ino, item.version), self.origin, others);
        Sums::Here(joint.map_or_else(FileHash::new, FileHash::together).with_parts(need.parts))
    }

    /// Sums of a part of it alone.
    pub fn sums_of(&self, worker: &Worker, ino: Ino, buffers: &Buffers, part: Part) -> Sums {
        let need = Need { whole: false, parts: vec![part] };
        let far = self.far(worker, ino, buffers, &need);
        far.map_or_else(|| Sums::Here(FileHash::of_parts([part])), Sums::There)
    }

    /// The way on which it is read where the buffers are, if that is another host.
    fn far(&self, worker: &Worker, ino: Ino, buffers: &Buffers, need: &Need) -> Option<Far> {
        Far::begin(&worker.node, buffers.there()?, (ino, &self.origin), need)
    }

    /// Parts that are on tape or go there now, other parts being on other volumes, and whose digest is not known yet.
    fn parts(&self, worker: &Worker, item: &MigrateItem) -> Vec<Part> {
        if (self.from, self.to) == (0, self.size()) {
            return Vec::new();
        }
        let own = (self.from, self.to - self.from);
        let known = |part: &Part| {
            worker.node.catalog.part_digest(item.ino, item.version, *part).is_ok_and(|known| known.is_some())
        };
        self.before.iter().copied().chain([own]).filter(|part| !known(part)).collect()
    }

    /// The digest of all that was read; refuses bytes that are not those of the version, or not those that another drive got.
    pub fn digest(&self, worker: &Worker, item: &MigrateItem, found: Found) -> Result<Option<Digest>, Skip> {
        let Found { whole: Ok(found), parts } = found else {
            worker.node.archive.digests.forget((item.ino, item.version));
            let text = format!(
                "inode {}: two drives that read its disk object for two copies got different bytes although nobody changed it; \
                 the second copy is read again later: run `thermo check --deep`, and look at memory and disk of this machine",
                item.ino
            );
            tracing::error!("{text}");
            return Err(Skip::Later(text));
        };
        self.expect(item.ino, found)?;
        if !parts.is_empty() {
            worker.node.catalog.note_parts(item.ino, item.version, &parts)?;
        }
        Ok(found)
    }

    /// Its ranges of data, in order. Of a file on targets holes are not known.
    pub fn ranges<'a>(
        &'a self,
        worker: &Worker,
    ) -> Box<dyn Iterator<Item = disk::Result<std::ops::Range<u64>>> + 'a> {
        match &self.content {
            Content::Local(fd) => Box::new(worker.node.disk.data_ranges(fd, self.size())),
            Content::Far(_) => Box::new((self.size() > 0).then(|| Ok(0..self.size())).into_iter()),
        }
    }

    /// Refuses bytes that are not those of the version.
    fn expect(&self, ino: Ino, found: Option<Digest>) -> Result<(), Skip> {
        if self.known.is_none() || self.known == found {
            return Ok(());
        }
        let text = format!(
            "inode {ino}: the disk object does not have the digest recorded for this version; it is not copied to tape \
             and not purged: run `thermo check --deep`"
        );
        tracing::error!("{text}");
        Err(Skip::Later(text))
    }

    /// Reads all of it through, where the buffers are to which it is to go, and compares it with the recorded digest.
    pub fn verify(&self, worker: &Worker, ino: Ino, buffers: &Buffers) -> Result<(), Skip> {
        let far = self.far(worker, ino, buffers, &Need { whole: true, parts: Vec::new() });
        let mut sums = far.map_or_else(|| Sums::Here(FileHash::new()), Sums::There);
        self.read_through(worker, &mut sums, u64::MAX)?;
        let Ok(found) = sums.finish(self.size())?.whole else { return later("it is read by others, too") };
        self.expect(ino, found)
    }

    /// Reads it up to `to` for its sums only.
    pub fn read_through(&self, worker: &Worker, sums: &mut Sums, to: u64) -> Result<(), Skip> {
        let mut buffer = Buffer::scratch();
        for range in self.ranges(worker) {
            let range = range?;
            let (mut at, end) = (range.start, range.end.min(to));
            while at < end {
                let most = usize::try_from(end - at).unwrap_or(usize::MAX);
                at += self.read(worker, sums, (at, most), (&mut buffer, false))? as u64;
            }
        }
        Ok(())
    }
}

impl Origin {
    /// Of what has no data.
    pub const NONE: Self = Self {
        object: ObjectId(0),
        stamp: ObjectStamp { size: 0, allocated: 0, mtime: Time::new(0, 0), ctime: Time::new(0, 0) },
        far: false,
    };

    /// Whether this is what the catalogue has as the file's content, closed.
    fn is_recorded(&self, worker: &Worker, ino: Ino) -> bool {
        let catalog = &worker.node.catalog;
        let same = |file: FileState| file.object == Some(self.object) && file.stamp == Some(self.stamp);
        catalog.inode(ino).is_ok_and(|inode| inode.file.is_some_and(same))
            && catalog.is_writing(ino).is_ok_and(|marked| !marked)
    }

    /// Whether the object is still what was read.
    pub fn unchanged(&self, worker: &Worker, ino: Ino) -> bool {
        if self.far {
            return self.is_recorded(worker, ino) && !worker.node.is_being_written(ino);
        }
        let disk = &worker.node.disk;
        let now = disk.open_object(self.object, false).and_then(|fd| disk.stamp(&fd));
        now.is_ok_and(|stamp| stamp == self.stamp) && !worker.node.is_being_written(ino)
    }
}

/// The first part of a copy that lies on a volume which is being repacked.
fn part_to_move(worker: &Worker, item: &MigrateItem) -> Result<Option<(u64, u64)>, Skip> {
    let catalog = &worker.node.catalog;
    let known = catalog.version_copies(item.ino, item.version)?;
    for segment in known.iter().filter(|c| c.copy == item.copy).flat_map(|c| &c.segments) {
        let volume = catalog.volume(&segment.volume)?;
        if volume.is_some_and(|v| v.state == VolumeState::Repacking) {
            return Ok(Some((segment.file_offset, segment.file_offset + segment.length)));
        }
    }
    Ok(None)
}

/// Parts of a copy that are on tape; none of one that is whole and does not count: it was lost, and is made anew.
fn written(worker: &Worker, item: &MigrateItem, size: u64) -> Result<Vec<Part>, Skip> {
    let known = worker.node.catalog.version_copies(item.ino, item.version)?;
    let copy = known.iter().find(|c| c.copy == item.copy).filter(|c| !super::recalls::covers(c, size));
    Ok(copy.into_iter().flat_map(|c| &c.segments).map(|s| (s.file_offset, s.length)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::Rig;
    use super::*;

    #[test]
    fn an_object_that_is_not_what_was_recorded_is_not_copied() {
        let rig = Rig::new();
        let item = rig.put("f", 1_000_000);
        let Ok(mut source) = Source::open(&rig.worker, &item) else { panic!("it can be copied") };
        let (mut hash, here) = (FileHash::new(), Buffers::of_drive(&rig.config(), 512 << 10));
        hash.add(0, &vec![7; 1_000_000]);
        source.known = hash.finish(1_000_000);
        assert!(source.known.is_some() && source.verify(&rig.worker, item.ino, &here).is_ok());
        // A byte decays on disk and no time changes: only the digest tells.
        source.known = Some(Digest([1; 32]));
        let Err(Skip::Later(why)) = source.verify(&rig.worker, item.ino, &here) else {
            panic!("it was not noticed")
        };
        assert!(why.contains("does not have the digest recorded"), "{why}");
        assert!(source.unchanged(&rig.worker, item.ino).is_ok());
        rig.overwrite(item.ino, 3);
        assert!(source.unchanged(&rig.worker, item.ino).is_err());
        assert!(!source.origin.unchanged(&rig.worker, item.ino));
        assert!(Source::open(&rig.worker, &item).is_err(), "the catalogue knows another stamp");
    }

    #[test]
    fn readers_of_two_copies_have_one_digest_between_them() {
        let rig = Rig::new();
        let one = rig.put("f", 1_000_000);
        let (other, node) = (MigrateItem { copy: CopyNo(2), ..one }, &rig.worker.node);
        let read = |item: &MigrateItem| {
            let Ok(source) = Source::open(&rig.worker, item) else { panic!("it can be copied") };
            let here = Buffers::of_drive(&rig.config(), 512 << 10);
            let mut sums = source.sums(&rig.worker, item, &here, None);
            assert!(source.read_through(&rig.worker, &mut sums, u64::MAX).is_ok(), "it can be read");
            let Ok(found) = sums.finish(source.size()) else { panic!("they are here") };
            source.digest(&rig.worker, item, found).ok().flatten()
        };
        let shared = |item: &MigrateItem| {
            let Ok(source) = Source::open(&rig.worker, item) else { panic!("it can be copied") };
            node.archive.digests.join((item.ino, item.version), source.origin, || false).is_some()
        };
        let alone = read(&one);
        assert!(alone.is_some() && !shared(&one), "no other copy waits");
        node.writes.push(&Rig::batch(&PoolName("q".into()), &[other]), false, crate::now());
        assert_eq!(read(&one), alone);
        assert!(shared(&one));
        assert_eq!(read(&other), alone);
    }

    #[test]
    fn an_object_that_goes_while_the_file_is_open_is_kept_on_record_until_it_is_closed() {
        let rig = Rig::new();
        let (item, node) = (rig.put("f", 1000), &rig.worker.node);
        let object = node.catalog.inode(item.ino).unwrap().file.unwrap().object.unwrap();
        let other = rig.put("other", 10);
        let gone = disk::DiskError::Missing { id: object, path: node.disk.path(object) };
        // The file has another object by now, or was deleted: nothing is lost, and nobody is alarmed.
        let stale = [other.ino, Ino(u64::MAX)].map(|ino| node.object_vanished(ino, object, &gone));
        assert_eq!(stale, [Err(FsError::Stale), Err(FsError::Stale)]);

        let flags = types::api::OpenFlags { read: true, ..Default::default() };
        let opened = node.open_file(&Cx::admin(crate::now()), item.ino, flags).unwrap();
        node.disk.remove(object).unwrap();
        assert!(matches!(Source::open(&rig.worker, &item), Err(Skip::Later(_))));
        node.close_file(opened.handle);
        assert!(matches!(Source::open(&rig.worker, &item), Err(Skip::Never(_))));
    }
}
