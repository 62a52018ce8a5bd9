//! Plain data that callers give to the catalogue and get from it, where `types` has no room for it.

use crate::CatalogError;
use format::ltfs::origin::DirFacts;
use std::sync::Arc;
use types::*;

/// A node to be made by `create`.
#[derive(Clone, Debug)]
pub struct New {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits after umask (`& 0o7777` is applied).
    pub mode: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Target of a symlink (1 to 4095 bytes), None for everything else.
    pub target: Option<Vec<u8>>,
    /// Disk object of a regular file: an empty, pre-created one.
    pub object: Option<ObjectId>,
    /// That object lies on disk targets of the cluster.
    pub far: bool,
    /// Enter the new file among those being written, as `mark_writing` does.
    pub writing: bool,
    /// The new file is closed already, with its object like this: as if `observe` had seen that next.
    pub closed: Option<ObjectStamp>,
}

impl New {
    /// A node of `kind` with nothing special.
    pub fn node(kind: FileKind, mode: u32) -> Self {
        Self { kind, mode, rdev: 0, target: None, object: None, far: false, writing: false, closed: None }
    }

    /// A regular file that is opened for writing at once.
    pub fn file(mode: u32, object: ObjectId) -> Self {
        Self { object: Some(object), writing: true, ..Self::node(FileKind::File, mode) }
    }

    /// A regular file that nobody opens; `stamp` is that of its object.
    pub fn closed_file(mode: u32, object: ObjectId, stamp: ObjectStamp) -> Self {
        Self { object: Some(object), closed: Some(stamp), ..Self::node(FileKind::File, mode) }
    }
}

/// What became of the inode whose name was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The inode.
    pub ino: Ino,
    /// Its disk object, free to be removed **once this operation is durable** (`Catalog::sync`, or any later Durable
    /// operation): before that a crash brings the name back, and it needs the object.
    pub freed: Option<ObjectId>,
    /// Nothing names it any more, but it is open: call `reap` at its last close.
    pub orphan: bool,
}

/// Sums over the whole namespace. Open-unlinked files count until reaped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Inodes of all kinds.
    pub inodes: u64,
    /// Length of all regular files (bytes).
    pub bytes: u64,
    /// Bytes allocated on disk.
    pub disk_bytes: u64,
    /// Bytes on disk that a purge could release at once.
    pub purgeable: u64,
    /// Closed files that lack a copy of their class ...
    pub backlog_files: u64,
    /// ... and their length (bytes), once per file.
    pub backlog_bytes: u64,
}

/// What one user holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Inodes of all kinds.
    pub files: u64,
    /// Length of regular files (bytes).
    pub bytes: u64,
    /// Bytes allocated on the node's disk.
    pub disk_bytes: u64,
    /// Bytes on disk targets of the cluster; what redundancy takes there is not counted.
    pub target_bytes: u64,
    /// Length times number of copies that count (bytes).
    pub tape_bytes: u64,
}

/// Work that waits for a class or a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Files.
    pub files: u64,
    /// Their length (bytes).
    pub bytes: u64,
}

/// Place in the index of files that wait for migration; ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateKey {
    /// Second since the epoch at which it is due.
    pub due_secs: i64,
    /// Inode.
    pub ino: Ino,
}

/// A closed regular file, or a node without data, that lacks copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where to continue the listing.
    pub key: CandidateKey,
    /// Inode.
    pub ino: Ino,
    /// Its current version.
    pub version: Version,
    /// Length (bytes).
    pub size: u64,
    /// When it becomes due.
    pub due: Time,
    /// Class of service.
    pub class: ClassName,
    /// Disk object; None when the missing copy must be made from another copy on tape, and of nodes without data.
    pub object: Option<ObjectId>,
    /// That object lies on disk targets of the cluster.
    pub far: bool,
    /// It is no regular file: the catalogue has all there is to copy.
    pub dataless: bool,
    /// Copies it lacks, each with the pool it goes to.
    pub missing: Vec<(CopyNo, PoolName)>,
}

/// Place in the index of files whose disk space may be released; ordered, least recently used first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PurgeKey {
    /// Second since the epoch of the last access.
    pub access_secs: i64,
    /// Inode.
    pub ino: Ino,
}

/// A file that is on disk and in all its copies on tape, not pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeCandidate {
    /// Where to continue the listing.
    pub key: PurgeKey,
    /// Inode.
    pub ino: Ino,
    /// Its current version.
    pub version: Version,
    /// Its disk object ...
    pub object: ObjectId,
    /// ... the stamp to compare with before `release_object` ...
    pub stamp: ObjectStamp,
    /// ... and the bytes that it occupies.
    pub allocated: u64,
    /// Last access, to the minute.
    pub last_access: Time,
}

/// What an operator decides about volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateOrder {
    /// The state from now on.
    pub state: VolumeState,
    /// Why.
    pub reason: String,
    /// Who (uid).
    pub by: u32,
    /// When.
    pub now: Time,
    /// The volumes are on their way out of the library: what they are now they are again when they come back.
    pub leave: bool,
}

/// What a flushed append did to a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAppend {
    /// Volume.
    pub volume: Barcode,
    /// Logical object number at which the next record goes, behind the filemark that flushed the segments.
    pub append_block: u64,
    /// Next LTFS file uid.
    pub next_uid: u64,
    /// Volume change reference after the flush.
    pub vcr: u64,
    /// When it was flushed.
    pub now: Time,
    /// Of a volume without partitions: number of the section that was written.
    pub section: Option<u64>,
}

/// A part of one copy that was read consistently from disk and lies flushed on tape. A file that changed while it was
/// read must not be given at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSegment {
    /// File.
    pub ino: Ino,
    /// Version that was read.
    pub version: Version,
    /// Which copy it belongs to.
    pub copy: CopyNo,
    /// First byte of the file that it covers.
    pub file_offset: u64,
    /// Bytes of the file that it covers, holes included.
    pub length: u64,
    /// Extents on the data partition.
    pub extents: Vec<Extent>,
    /// Length of the whole file (bytes).
    pub size: u64,
    /// Digest of the whole file, if known by now.
    pub digest: Option<Digest>,
    /// LTFS file uid given to it.
    pub uid: u64,
    /// What the volume itself tells of it already (the list of a section); None: the next index will tell.
    pub told: Option<Box<TapeFile>>,
}

/// What a recorded segment is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// The copy is whole and counts.
    Counted,
    /// Recorded; more segments are needed before the copy counts.
    Partial,
    /// The version is no longer current, or the copy is not wanted: the bytes are dead.
    Stale {
        /// Why, for the log.
        why: String,
    },
    /// A record of this file is damaged: nothing of the segment was recorded, its bytes are dead.
    Damaged {
        /// Which record, and what to do.
        why: String,
    },
}

/// A copy of which a part on one volume cannot be read, or is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCopy {
    /// File.
    pub ino: Ino,
    /// Version.
    pub version: Version,
    /// Copy.
    pub copy: CopyNo,
    /// Where that part lies: if the copy lies elsewhere by now it is not lost.
    pub volume: Barcode,
}

/// A version that was deleted or overwritten, and is still on tape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedVersion {
    /// Its inode, which may have other versions or be gone.
    pub ino: Ino,
    /// Version.
    pub version: Version,
    /// What it was called last.
    pub path: Vec<u8>,
    /// Length (bytes).
    pub size: u64,
    /// Modification time of the content.
    pub mtime: Time,
    /// Digest, if known.
    pub digest: Option<Digest>,
    /// When it ended, if known.
    pub ended: Option<Time>,
    /// Owner when it went to tape (uid).
    pub owner: u32,
    /// Other content took its place, also if the file was deleted later; otherwise this is what was deleted.
    pub overwritten: bool,
    /// Its copies.
    pub copies: Vec<CopyRecord>,
    /// One of them is whole, on volumes that can be read.
    pub restorable: bool,
}

/// A page of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedVersions {
    /// What was found, maybe nothing.
    pub found: Vec<EndedVersion>,
    /// Where to go on; None: that was all.
    pub next: Option<(Ino, Version)>,
}

/// A page of an index. A damaged record keeps out its own file only.
#[derive(Debug)]
pub struct Listed<T> {
    /// What could be read, in order.
    pub found: Vec<T>,
    /// Files whose records are damaged.
    pub damaged: Vec<(Ino, CatalogError)>,
}

/// One step of a walk over the tree of a volume, depth first, names in byte order.
#[derive(Debug)]
pub enum TapeNode<'a> {
    /// A directory begins (not called for the root).
    EnterDir {
        /// Its name.
        name: &'a str,
        /// Its number in the volume's tree, never used again on this volume.
        dir: TapeDir,
        /// When it was made.
        created: Time,
        /// The directory of the namespace whose files lie in it; 0: not known.
        mirrors: Ino,
    },
    /// A file segment.
    File {
        /// Its name.
        name: &'a str,
        /// Its record.
        file: &'a TapeFile,
    },
    /// The directory entered last ends.
    LeaveDir,
}

/// A directory of a volume's tree as the index of the volume lists it.
#[derive(Clone, Debug)]
pub struct ListedDir {
    /// Name on the volume.
    pub name: String,
    /// When it was made there.
    pub created: Time,
    /// The directory of the namespace that it mirrors, when the index was written.
    pub facts: Option<DirFacts>,
}

/// A file segment as the index of a volume lists it.
#[derive(Clone, Debug)]
pub struct ListedFile {
    /// Directories that lead to it, the root left out.
    pub dirs: Arc<[ListedDir]>,
    /// Name on the volume.
    pub name: String,
    /// The segment.
    pub file: TapeFile,
}

/// What became of a listed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It is part of a copy of a current version.
    Live,
    /// It is on the volume, but no current version needs it.
    Dead,
    /// It was known already.
    Known,
    /// As `Live`, but its path is taken: it is found at `at`.
    Displaced {
        /// Where it should be.
        path: Vec<u8>,
        /// Where it is.
        at: Vec<u8>,
    },
    /// It contradicts what is known of its inode; entered as dead.
    Contradicts {
        /// How.
        why: String,
    },
}

/// That a host keeps what it has written to a file through the node, until it is at the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spared {
    /// The file.
    pub ino: Ino,
    /// Of what is kept; no other one has this number.
    pub epoch: u64,
    /// Number of the host's session.
    pub session: u64,
    /// It was waited for in vain, and others have used the file since.
    pub lost: bool,
}
