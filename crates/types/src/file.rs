//! Files as the namespace sees them.

use crate::{ClassName, CopyNo, Digest, Ino, NodeId, ObjectId, Time, Version};
use serde::{Deserialize, Serialize};

/// What kind of node an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileKind {
    /// The type bits of a mode with this kind.
    pub fn type_bits(self) -> u32 {
        match self {
            Self::File => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
        }
    }

    /// The kind that the type bits of a mode say; None if they say none.
    pub fn of_mode(mode: u32) -> Option<Self> {
        use FileKind as K;
        let all = [K::File, K::Directory, K::Symlink, K::Fifo, K::Socket, K::CharDevice, K::BlockDevice];
        all.into_iter().find(|kind| kind.type_bits() == mode & !0o7777)
    }
}

/// POSIX attributes of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Kind of node.
    pub kind: FileKind,
    /// Permission bits including setuid, setgid and sticky: `mode & 0o7777`.
    pub mode: u32,
    /// Number of hard links (directories: 2 + number of subdirectories).
    pub nlink: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Device number of a device node, as Linux encodes it in `st_rdev`.
    pub rdev: u32,
    /// Length in bytes (of the target for a symlink; number of entries for a directory).
    pub size: u64,
    /// Bytes that the content occupies on disk (0 when offline), for `st_blocks`.
    pub disk_bytes: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
}

/// Where the current version of a file's bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Residency {
    /// Wholly on disk; not (or not wholly) on tape.
    Resident,
    /// Wholly on disk and all copies that the class of service requires are on tape.
    Dual,
    /// Only on tape.
    Offline,
    /// Coming back from tape: some ranges are on disk.
    Staging,
}

/// What `fstat` of a disk object said when the catalogue last looked: a difference means that the content changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectStamp {
    /// Length in bytes.
    pub size: u64,
    /// Bytes allocated on disk.
    pub allocated: u64,
    /// Modification time of the object file.
    pub mtime: Time,
    /// Change time of the object file; cannot be set back by a program.
    pub ctime: Time,
}

impl ObjectStamp {
    /// Whether nothing changed between two looks. `allocated` is left out: the file system may allocate late (delayed
    /// allocation) or give back what it allocated ahead, without any change of content.
    pub fn same_content(&self, other: &Self) -> bool {
        (self.size, self.mtime, self.ctime) == (other.size, other.mtime, other.ctime)
    }
}

/// The archive state of a regular file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Version of the current content.
    pub version: Version,
    /// Disk object that holds the whole current version, if any.
    pub object: Option<ObjectId>,
    /// Stamp of that object when the version was sealed (last writer closed); None while never sealed.
    pub stamp: Option<ObjectStamp>,
    /// Digest of the current version, known after its first migration.
    pub digest: Option<Digest>,
    /// Class of service.
    pub class: ClassName,
    /// Copy numbers of the current version that count (flushed to their medium and recorded).
    pub copies: Vec<CopyNo>,
    /// Pinned files are never purged.
    pub pinned: bool,
    /// The object lies on disk targets of the cluster, not in the node's disk tier. Not part of any stored or sent form.
    #[serde(skip)]
    pub far: bool,
}

/// An inode: attributes plus, for a regular file, its archive state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// POSIX attributes.
    pub attr: Attr,
    /// Archive state (regular files only).
    pub file: Option<FileState>,
    /// Stamp of the object when the catalogue last looked, also while it is being written. What `attr` says of size and
    /// times is true as long as the object has this stamp. Not part of any stored or sent form.
    #[serde(skip)]
    pub observed: Option<ObjectStamp>,
}

/// Who calls and when: every operation of the namespace gets this instead of reading a clock or a global.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cx {
    /// Effective user of the caller.
    pub uid: u32,
    /// Effective group of the caller.
    pub gid: u32,
    /// Supplementary groups of the caller, where known.
    pub groups: Vec<u32>,
    /// The caller's permissions have been checked by somebody who knows more about him (the kernel, for a mount): the
    /// namespace does not check them again. User and group still say to whom new nodes belong.
    pub checked: bool,
    /// Wall-clock time of the call.
    pub now: Time,
    /// Which call of another host it is, if it must not be done twice: what it did is recorded with what it changes.
    #[serde(skip)]
    pub call: Option<CallId>,
}

/// A call of another host on names, which may be made again when the node was started anew, or another one has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    /// Whose.
    pub node: NodeId,
    /// The number that he gave the session.
    pub session: u64,
    /// That of the call in its session.
    pub number: u64,
    /// No call below this number is made again.
    pub answered: u64,
}

impl Cx {
    /// A user with one group, to be checked.
    pub fn user(uid: u32, gid: u32, now: Time) -> Self {
        Self { uid, gid, groups: Vec::new(), checked: false, now, call: None }
    }

    /// The administrator (uid 0) at `now`.
    pub fn admin(now: Time) -> Self {
        Self { checked: true, ..Self::user(0, 0, now) }
    }
}

/// Attribute changes of one `setattr`; None leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttr {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length (regular files).
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<Time>,
    /// New modification time.
    pub mtime: Option<Time>,
}

/// One entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Name (bytes, no `/`, no NUL, 1 to 255 bytes).
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: Ino,
    /// Kind of node.
    pub kind: FileKind,
    /// Cookie: give it back to continue the listing after this entry. Stable across changes of the directory.
    pub cookie: u64,
}

/// How a rename treats an existing target (renameat2(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replace the target atomically.
    #[default]
    Replace,
    /// Fail if the target exists.
    NoReplace,
    /// Swap the two names.
    Exchange,
}
