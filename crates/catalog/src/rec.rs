//! Stored shapes that differ from the public ones: small where there are many of them.

mod far;
mod volume;

pub use far::{FarRec, RuleRec};
pub use volume::VolumeRec;

use crate::{CatalogError, Result};
use format::record::{self, Record, RecordError};
use serde::{Deserialize, Serialize};
use types::*;

/// Most copies that one version may have: bits of [`FileRec::copies`].
pub const MAX_COPIES: u8 = 32;

/// An inode as stored. Directories keep their counters and change time in keys of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeRec {
    pub ino: Ino,
    pub kind: FileKind,
    pub mode: u32,
    /// Names of a non-directory; unused for directories.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Class record in force for this inode.
    pub class: u32,
    pub size: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    /// Directory and cookie of its first name. Further ones are in the `LINK` table.
    pub link: (Ino, u64),
    /// Bytes that a list of its extended attributes takes; 0: it has none.
    pub xattrs: u32,
    pub file: Option<FileRec>,
}

/// The archive part of an inode. A regular file always has one. Any other node has one from the moment on that its copies
/// are to be on tape: then it is sealed, and has no object, because the catalogue has all there is to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRec {
    pub version: Version,
    pub object: Option<ObjectId>,
    /// The object lies on disk targets of the cluster.
    pub far: bool,
    /// What the object looked like when last observed.
    pub stamp: Option<ObjectStamp>,
    /// The last writer closed it and nothing changed since.
    pub sealed: bool,
    /// Segments of the present version are recorded.
    pub known: bool,
    pub pinned: bool,
    /// A copy of the present version was lost: it is made anew, and for that the file comes back to disk.
    pub mend: bool,
    /// The node, or of a word the file, was removed, and tapes are to tell so because they tell of earlier versions.
    pub gone: bool,
    /// Of a directory: it is here because the index of a volume told of it, as of one that something lies in.
    pub heard: bool,
    /// Bit n-1: copy n is whole.
    pub copies: u32,
    pub digest: Option<Digest>,
    /// Second at which it is due for migration; Some exactly while it is in the candidate index: closed, on disk, and
    /// lacking a copy.
    pub due: Option<i64>,
    /// Second of last use, to the minute; of a node without data, the nanosecond up to which it is known to have been so.
    pub used: i64,
}

impl FileRec {
    pub fn has_copy(&self, copy: u8) -> bool {
        (1..=MAX_COPIES).contains(&copy) && self.copies & (1 << (copy - 1)) != 0
    }

    /// Copies that the class requires and that do not count yet.
    pub fn missing<'a>(&'a self, class: &'a Class) -> impl Iterator<Item = (CopyNo, &'a PoolName)> {
        let wanted = class.copies.iter().zip(1u8..);
        wanted.filter(|(_, n)| !self.has_copy(*n)).map(|(pool, n)| (CopyNo(n), pool))
    }

    /// Everything that the class requires is on tape (a class without copies requires what can never be met).
    pub fn complete(&self, class: &Class) -> bool {
        !class.copies.is_empty() && self.missing(class).next().is_none()
    }
}

impl InodeRec {
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether it is a file with content. Of every other node the catalogue has all there is.
    pub fn has_data(&self) -> bool {
        self.kind == FileKind::File && !self.ino.is_word()
    }

    /// Bytes that a copy on tape has.
    pub fn data_size(&self) -> u64 {
        if self.has_data() { self.size } else { 0 }
    }

    /// Whether it is no inode of the namespace: a word on a file, or what is left of a node that was removed.
    pub fn is_trace(&self) -> bool {
        self.ino.is_word() || self.is_gone()
    }

    /// What is left of a node that was removed, or the word that a file was.
    pub fn is_gone(&self) -> bool {
        self.file.as_ref().is_some_and(|f| f.gone)
    }

    /// Second at which a file closed now is due. What lies on tape only has nothing to copy from: it is due once it is
    /// back.
    pub fn settle(&mut self, class: &Class, now: Time) {
        let linked = self.nlink > 0 || self.is_trace();
        let has_data = self.has_data();
        if let Some(f) = &mut self.file {
            let lacks = f.missing(class).next().is_some();
            let waits = f.sealed && linked && (f.object.is_some() || !has_data) && lacks;
            f.mend &= lacks;
            let age = if f.mend { 0 } else { class.migrate_after_s };
            let due = now.secs.saturating_add(i64::from(age));
            f.due = waits.then(|| f.due.unwrap_or(due));
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        record::encode(&InodeWire::from(self))
    }

    pub fn decode(ino: Ino, bytes: &[u8]) -> Result<Self> {
        decode::<InodeWire>("inode", ino, bytes)?.into_rec(ino)
    }
}

/// Decodes a stored record; an error names it.
pub fn decode<T: Record>(what: &'static str, id: impl ToString, bytes: &[u8]) -> Result<T> {
    record::decode(bytes).map_err(|e| match e {
        RecordError::Newer { .. } => CatalogError::refused(format!("{what} {}", id.to_string()), e),
        _ => CatalogError::corrupt(what, id, e),
    })
}

/// Times are stored as nanoseconds after the creation time: zero, so one byte, for a new inode.
#[derive(Serialize, Deserialize)]
struct InodeWire {
    kind: FileKind,
    mode: u16,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    class: u32,
    size: u64,
    btime: Time,
    atime: i128,
    mtime: i128,
    ctime: i128,
    parent: u64,
    cookie: i64,
    xattrs: u32,
    file: Option<FileWire>,
}

#[derive(Serialize, Deserialize)]
struct FileWire {
    version: u32,
    flags: u8,
    object: Option<u64>,
    stamp: Option<StampWire>,
    copies: u32,
    digest: Option<Digest>,
    due: Option<i64>,
    used: i64,
}

#[derive(Serialize, Deserialize)]
struct StampWire {
    size: u64,
    allocated: u64,
    mtime: i128,
    ctime: i128,
}

const SEALED: u8 = 1;
const KNOWN: u8 = 2;
const PINNED: u8 = 4;
const MEND: u8 = 8;
const GONE: u8 = 16;
const ON_TARGETS: u8 = 32;
const HEARD: u8 = 64;

fn nanos(t: Time) -> i128 {
    i128::from(t.secs) * 1_000_000_000 + i128::from(t.nanos)
}

fn time(ino: Ino, nanos: i128) -> Result<Time> {
    let secs = i64::try_from(nanos.div_euclid(1_000_000_000))
        .map_err(|_| CatalogError::corrupt("inode", ino, "time out of range"))?;
    Ok(Time::new(secs, nanos.rem_euclid(1_000_000_000) as u32))
}

impl From<&InodeRec> for InodeWire {
    fn from(r: &InodeRec) -> Self {
        let base = nanos(r.btime);
        Self {
            kind: r.kind,
            mode: r.mode as u16,
            nlink: r.nlink,
            uid: r.uid,
            gid: r.gid,
            rdev: r.rdev,
            class: r.class,
            size: r.size,
            btime: r.btime,
            atime: nanos(r.atime) - base,
            mtime: nanos(r.mtime) - base,
            ctime: nanos(r.ctime) - base,
            parent: r.link.0.0,
            cookie: r.link.1.wrapping_sub(r.ino.0) as i64,
            xattrs: r.xattrs,
            file: r.file.as_ref().map(|f| FileWire::new(f, r.btime)),
        }
    }
}

impl InodeWire {
    fn into_rec(self, ino: Ino) -> Result<InodeRec> {
        let base = nanos(self.btime);
        let at = |delta: i128| time(ino, base.saturating_add(delta));
        Ok(InodeRec {
            ino,
            kind: self.kind,
            mode: u32::from(self.mode),
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            class: self.class,
            size: self.size,
            atime: at(self.atime)?,
            mtime: at(self.mtime)?,
            ctime: at(self.ctime)?,
            btime: self.btime,
            link: (Ino(self.parent), ino.0.wrapping_add(self.cookie as u64)),
            xattrs: self.xattrs,
            file: self.file.map(|f| f.into_rec(&at, self.btime)).transpose()?,
        })
    }
}

impl FileWire {
    fn new(f: &FileRec, btime: Time) -> Self {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        Self {
            version: f.version.0,
            flags: flag(f.sealed, SEALED)
                | flag(f.known, KNOWN)
                | flag(f.pinned, PINNED)
                | flag(f.mend, MEND)
                | flag(f.gone, GONE)
                | flag(f.far, ON_TARGETS)
                | flag(f.heard, HEARD),
            object: f.object.map(|o| o.0),
            stamp: f.stamp.map(|s| StampWire {
                size: s.size,
                allocated: s.allocated,
                mtime: nanos(s.mtime) - nanos(btime),
                ctime: nanos(s.ctime) - nanos(btime),
            }),
            copies: f.copies,
            digest: f.digest,
            due: f.due.map(|d| d.wrapping_sub(btime.secs)),
            used: f.used.wrapping_sub(btime.secs),
        }
    }

    fn into_rec(self, at: &dyn Fn(i128) -> Result<Time>, btime: Time) -> Result<FileRec> {
        let stamp = |s: StampWire| -> Result<ObjectStamp> {
            Ok(ObjectStamp { size: s.size, allocated: s.allocated, mtime: at(s.mtime)?, ctime: at(s.ctime)? })
        };
        Ok(FileRec {
            version: Version(self.version),
            object: self.object.map(ObjectId),
            stamp: self.stamp.map(stamp).transpose()?,
            sealed: self.flags & SEALED != 0,
            known: self.flags & KNOWN != 0,
            pinned: self.flags & PINNED != 0,
            mend: self.flags & MEND != 0,
            gone: self.flags & GONE != 0,
            far: self.flags & ON_TARGETS != 0,
            heard: self.flags & HEARD != 0,
            copies: self.copies,
            digest: self.digest,
            due: self.due.map(|d| d.wrapping_add(btime.secs)),
            used: self.used.wrapping_add(btime.secs),
        })
    }
}

/// A version that ended but has copies, or segments of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownVersion {
    pub size: u64,
    pub mtime: Time,
    pub digest: Option<Digest>,
    /// Where it was named last; empty: as its segments on tape say.
    pub path: Vec<u8>,
    /// When it was deleted or overwritten, if that is known.
    pub ended: Option<Time>,
    /// Other content took its place; otherwise its file was removed, or nobody knows.
    pub replaced: bool,
}

impl KnownVersion {
    /// One of which nothing else is known.
    pub fn new(size: u64, mtime: Time, digest: Option<Digest>) -> Self {
        Self { size, mtime, digest, path: Vec::new(), ended: None, replaced: false }
    }
}

/// `KnownVersion` before it said why it ended.
#[derive(Deserialize)]
struct KnownVersionV2 {
    size: u64,
    mtime: Time,
    digest: Option<Digest>,
    path: Vec<u8>,
    ended: Option<Time>,
}

/// `KnownVersion` before it said what the file was called.
#[derive(Deserialize)]
struct KnownVersionV1 {
    size: u64,
    mtime: Time,
    digest: Option<Digest>,
}

impl Record for KnownVersion {
    const NAME: &'static str = "KnownVersion";
    const VERSION: u8 = 3;

    fn upgrade(version: u8, bytes: &[u8]) -> std::result::Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => {
                let old = record::body::<KnownVersionV1>(bytes).map_err(damaged)?;
                Ok(Self::new(old.size, old.mtime, old.digest))
            }
            2 => {
                let old = record::body::<KnownVersionV2>(bytes).map_err(damaged)?;
                let (path, ended) = (old.path, old.ended);
                Ok(Self { path, ended, ..Self::new(old.size, old.mtime, old.digest) })
            }
            found => Err(RecordError::Unknown { name: Self::NAME, found }),
        }
    }
}

/// Where a listing of a volume's files goes on: the tree, and for each directory that is open, the root first, the next key and
/// the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesPlace {
    pub tree: u64,
    pub open: Vec<(Vec<u8>, String)>,
}

/// An entry of a volume's tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapeEntry {
    /// `mirrors` is the directory of the namespace whose files lie in it; 0: not known.
    Dir {
        id: TapeDir,
        created: Time,
        mirrors: Ino,
    },
    File(Box<TapeFile>),
}

/// One file of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRec {
    pub state: ItemState,
    pub bytes: u64,
}

/// What kind of catalogue this is; written once, checked at open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatRec {
    pub created: Time,
}

format::records! {
    InodeWire = 1,
    ItemRec = 1,
    FilesPlace = 1,
}

impl Record for FormatRec {
    const NAME: &'static str = "FormatRec";
    /// 2: the sums of owners have what lies on targets. A release that does not keep these must not change the catalogue.
    const VERSION: u8 = 2;

    fn upgrade(version: u8, bytes: &[u8]) -> std::result::Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => record::body(bytes).map_err(damaged),
            found => Err(RecordError::Unknown { name: Self::NAME, found }),
        }
    }
}

impl Record for TapeEntry {
    const NAME: &'static str = "TapeEntry";
    const VERSION: u8 = 2;

    fn upgrade(version: u8, bytes: &[u8]) -> std::result::Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => record::body::<TapeEntryV1>(bytes).map(Self::from).map_err(damaged),
            found => Err(RecordError::Unknown { name: Self::NAME, found }),
        }
    }
}

/// `TapeEntry` before nodes without data went to tape.
#[derive(Deserialize)]
enum TapeEntryV1 {
    Dir { id: TapeDir, created: Time },
    File(Box<TapeFileV1>),
}

#[derive(Deserialize)]
struct TapeFileV1 {
    uid: u64,
    ino: Ino,
    version: Version,
    copy: CopyNo,
    file_size: u64,
    segment_offset: u64,
    segment_length: u64,
    extents: Vec<Extent>,
    path: Vec<u8>,
    mode: u32,
    uid_owner: u32,
    gid_owner: u32,
    times: [Time; 4],
    digest: Option<Digest>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    class: ClassName,
    written: Time,
    live: bool,
}

impl From<TapeEntryV1> for TapeEntry {
    fn from(old: TapeEntryV1) -> Self {
        let old = match old {
            TapeEntryV1::Dir { id, created } => return Self::Dir { id, created, mirrors: Ino(0) },
            TapeEntryV1::File(old) => *old,
        };
        Self::File(Box::new(TapeFile {
            uid: old.uid,
            ino: old.ino,
            version: old.version,
            copy: old.copy,
            file_size: old.file_size,
            segment_offset: old.segment_offset,
            segment_length: old.segment_length,
            extents: old.extents,
            path: old.path,
            mode: old.mode,
            uid_owner: old.uid_owner,
            gid_owner: old.gid_owner,
            times: old.times,
            digest: old.digest,
            xattrs: old.xattrs,
            class: old.class,
            written: old.written,
            live: old.live,
            node: NodeFacts::default(),
        }))
    }
}
