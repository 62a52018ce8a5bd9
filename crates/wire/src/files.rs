//! Calls for names and bytes of files.

use serde::{Deserialize, Serialize};
use types::api::{OpenFlags, XattrMode};
use types::*;

/// File access over a socket (`put`, `get`, the native library): the caller's uid and gid are those of the socket's peer. Handles belong
/// to their connection: when it ends, the node releases those that are still open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileCall {
    /// -> `Attr`.
    Lookup {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
    },
    /// Path from the root, no symlink followed at its end -> `Attr`.
    Resolve {
        /// Absolute path.
        path: Vec<u8>,
    },
    /// -> `Attr`.
    GetAttr(Ino),
    /// -> `Attr`.
    SetAttr {
        /// Inode.
        ino: Ino,
        /// Changes.
        set: SetAttr,
    },
    /// -> `Entries`.
    ReadDir {
        /// Directory.
        dir: Ino,
        /// Continue after this cookie.
        after: u64,
        /// Most entries.
        limit: u32,
    },
    /// -> `Bytes`.
    ReadLink(Ino),
    /// -> `Attr`.
    Mkdir {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
        /// Permission bits.
        mode: u32,
    },
    /// -> `Attr`.
    Symlink {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
        /// Target.
        target: Vec<u8>,
    },
    /// -> `Attr`.
    Link {
        /// Existing file.
        ino: Ino,
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
    },
    /// Fifo, socket or device -> `Attr`.
    Mknod {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
        /// Kind.
        kind: FileKind,
        /// Permission bits.
        mode: u32,
        /// Device number.
        rdev: u32,
    },
    /// Create and open for writing -> `Opened` (descriptor attached when `direct`).
    Create {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
        /// Permission bits.
        mode: u32,
        /// Fail if it exists.
        exclusive: bool,
    },
    /// Open -> `Opened` (descriptor attached when `direct`).
    Open {
        /// Inode.
        ino: Ino,
        /// For writing.
        write: bool,
        /// Set length to 0.
        truncate: bool,
    },
    /// -> `Bytes`; waits for tape.
    Read {
        /// Handle.
        handle: Handle,
        /// Offset.
        offset: u64,
        /// Most bytes (at most 1 MiB).
        len: u32,
    },
    /// -> `Written`; before version 5 `Count` of bytes.
    Write {
        /// Handle.
        handle: Handle,
        /// Offset.
        offset: u64,
        /// Bytes (at most 1 MiB).
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// -> `Done`; content and name durable when `sync`.
    Release {
        /// Handle.
        handle: Handle,
        /// Wait for stable storage; errors are reported.
        sync: bool,
    },
    /// -> `Done`.
    SetXattr {
        /// Inode.
        ino: Ino,
        /// Name.
        name: Vec<u8>,
        /// Value.
        value: Vec<u8>,
    },
    /// -> `Xattrs`.
    Xattrs(Ino),
    /// Make all content written and all names and attributes changed so far durable -> `Done`.
    Sync,
    /// Remove a name that is not a directory -> `Done`.
    Unlink {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
    },
    /// Path from the root, a symlink at its end followed -> `Attr`.
    Follow {
        /// Absolute path.
        path: Vec<u8>,
    },
    /// `Create` with all that can be wanted of an open file -> `Opened` (no descriptor where writes append).
    CreateAs {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
        /// Permission bits.
        mode: u32,
        /// How it is opened.
        flags: OpenFlags,
    },
    /// `Open` with all that can be wanted of an open file -> `Opened` (no descriptor where writes append).
    OpenAs {
        /// Inode.
        ino: Ino,
        /// How it is opened.
        flags: OpenFlags,
    },
    /// Content, and the name unless `data_only`, are durable -> `Done`.
    Fsync {
        /// Handle.
        handle: Handle,
        /// Of the attributes only what reading the content needs.
        data_only: bool,
    },
    /// -> `Done`.
    Rename {
        /// Directory and name.
        from: (Ino, Vec<u8>),
        /// New directory and name.
        to: (Ino, Vec<u8>),
        /// What happens to a file of the new name.
        mode: RenameMode,
    },
    /// Remove an empty directory -> `Done`.
    Rmdir {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
    },
    /// -> `Done`.
    RemoveXattr {
        /// Inode.
        ino: Ino,
        /// Name.
        name: Vec<u8>,
    },
    /// Take set-user-id, and set-group-id where it means "run as group", from a file -> `Count` (1: there was any).
    ClearSetId(Ino),
    /// Directory above a directory -> `Count` (its inode).
    Parent(Ino),
    /// -> `StatFs`.
    StatFs,
    /// -> `Bytes`.
    GetXattr {
        /// Inode.
        ino: Ino,
        /// Name.
        name: Vec<u8>,
    },
    /// -> `Done`.
    SetXattrAs {
        /// Inode.
        ino: Ino,
        /// Name.
        name: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// Whether it must be there, or must not.
        mode: XattrMode,
    },
    /// `Read` that waits for no tape: EAGAIN instead, and the recall begins -> `Bytes`.
    ReadNow {
        /// Handle.
        handle: Handle,
        /// Offset.
        offset: u64,
        /// Most bytes (at most 1 MiB).
        len: u32,
    },
    /// `Write` at exactly this offset, also through a handle that appends -> `Written`.
    WriteAt {
        /// Handle.
        handle: Handle,
        /// Offset.
        offset: u64,
        /// Bytes (at most 1 MiB).
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Answered when the content can be changed without waiting for tape -> `Done`.
    Prepare {
        /// Inode.
        ino: Ino,
        /// EAGAIN instead of waiting; what is needed begins all the same.
        nonblock: bool,
    },
    /// Another call of the session, by its number, is to wait no more: EINTR is its answer -> `Done`.
    Withdraw(u64),
    /// fallocate(2) -> `Done`.
    Fallocate {
        /// Handle.
        handle: Handle,
        /// Bits of fallocate(2).
        mode: i32,
        /// Offset.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// lseek(2) for holes -> `Count` (offset).
    Seek {
        /// Handle.
        handle: Handle,
        /// Offset.
        offset: u64,
        /// The next hole; else the next data.
        hole: bool,
    },
    /// Make all names and attributes changed so far durable -> `Done`.
    SyncNames,
    /// Where the bytes of an open file lie, with the right to read and write there -> `FileLayout`.
    LayoutGet(Handle),
    /// What was written there: to be told before it counts as written that a file is longer. Of what was written through a node that was started anew since only
    /// `machines` says something, which that one told -> `Count` (how often its length was set).
    LayoutCommit {
        /// Handle.
        handle: Handle,
        /// Greatest end of what was written (bytes).
        end: u64,
        /// For each column the number of the machine's start (its mover says it) when something was written that is not known to be durable; 0: nothing.
        machines: Vec<u64>,
        /// How often the length was set, as the last answer said; 0: there was none.
        cuts: u64,
    },
    /// Asks for a lock or gives one back -> `Count`: 1 it is done; 0 it waits, and `LockEvents` will tell.
    Lock {
        /// Handle.
        handle: Handle,
        /// The lock.
        order: LockOrder,
        /// It was held before the node was started anew; ESTALE if that is not known, or too long ago.
        claimed: bool,
    },
    /// A lock of somebody else that is in the way -> `Lock`.
    TestLock {
        /// Handle.
        handle: Handle,
        /// The lock.
        order: LockOrder,
    },
    /// Waits some seconds for news of locks that wait -> `LockEvents`.
    LockEvents {
        /// Place of the last that has come; it and those before are forgotten.
        after: u64,
        /// All that was held before the node was started anew has been claimed.
        claimed: bool,
    },
    /// By one who wants to remember the answer for a moment -> `Leased`.
    Leased(Look),
    /// Waits some seconds for what is to be forgotten -> `Forget`.
    Forgotten {
        /// All up to this place is forgotten; 0: nothing is remembered, which is answered at once.
        after: u64,
    },
    /// As `Lock`, by a session whose calls have no numbers -> `Count`, as there.
    LockAs {
        /// What `LockEvents` and `Withdraw` call it: of one call of the session only.
        number: u64,
        /// Handle.
        handle: Handle,
        /// The lock.
        order: LockOrder,
    },
    /// By one who reads much: where the bytes of a file with copies or parity lie that nobody writes, with the right to read there for a moment -> `Lent`.
    LayoutLend(Handle),
    /// By one who has the file open for writing and goes to its targets: may what he writes stay in his memory for a moment? -> `Alone`.
    WriteAlone(Handle),
    /// That is over, and what was in memory is at the targets, or is given up -> `Done`.
    WriteAloneEnd {
        /// The file.
        ino: Ino,
        /// Of the lease that is over.
        number: u64,
    },
    /// By one who has something in memory that its targets refuse: may it still come there, with rights that he got before? -> `Done`; ESTALE: it may not.
    WriteAloneStands {
        /// Handle.
        handle: Handle,
        /// Of the lease by which it was written.
        number: u64,
    },
    /// By one who writes much: where all copies of a file lie that nobody else has open for writing, with the right to write there for a moment. Until that has ended
    /// whoever got it writes the same everywhere, or says `CopiesEnd` -> `Copies`.
    LayoutCopies(Handle),
    /// What was written with that right may not have come to all copies, or come to some of them later: the right is to end -> `Done`: nothing comes any more to a copy
    /// that counts, and what is written through the node comes after it.
    CopiesEnd {
        /// Handle.
        handle: Handle,
        /// Nobody writes it anew: one copy is to count, and the others are to be made like it.
        differ: bool,
    },
    /// `WriteAt` by a host that keeps what it writes until the node says that it is at the targets, and brings it again if the node is started anew before: so the node may have it in
    /// its memory only -> `Spared`.
    WriteSpared {
        /// Handle.
        handle: Handle,
        /// Offset.
        offset: u64,
        /// Bytes (at most 1 MiB).
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// An epoch, and the number below which all of it is at the targets, as far as the host was told: it keeps nothing of that.
        keeps: Option<(u64, u64)>,
    },
    /// All that was written to the file through the node is to be at its targets -> `Done`.
    SettleSpared(Handle),
    /// What was kept of a file when the node was started anew: it is at the targets then. ESTALE: it came too late -> `Count` (1: it was written; 0: it was there).
    ReturnSpared {
        /// The file.
        ino: Ino,
        /// That it was answered in.
        epoch: u64,
        /// Its place among all that is returned: one that comes again has the same.
        index: u64,
        /// Offset.
        offset: u64,
        /// Bytes (at most 1 MiB).
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// All that was kept of a file, in an epoch, has been returned -> `Done`: it is durable.
    SparedReturned {
        /// The file.
        ino: Ino,
        /// The epoch.
        epoch: u64,
    },
    /// So has all that this session has kept of any file -> `Done`.
    SparedOver,
}

/// A look at names and attributes. (No call within a call: whoever decodes it would go as deep as a frame is long.)
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// As the call of this name.
    Lookup {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Vec<u8>,
    },
    /// As the call of this name.
    GetAttr(Ino),
    /// As the call of this name.
    ReadDir {
        /// Directory.
        dir: Ino,
        /// Continue after this cookie.
        after: u64,
        /// Most entries.
        limit: u32,
    },
}

impl From<Look> for FileCall {
    fn from(look: Look) -> Self {
        match look {
            Look::Lookup { parent, name } => Self::Lookup { parent, name },
            Look::GetAttr(ino) => Self::GetAttr(ino),
            Look::ReadDir { dir, after, limit } => Self::ReadDir { dir, after, limit },
        }
    }
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// Attributes.
    Attr(Attr),
    /// There is no such name.
    Absent,
    /// Entries of a directory with attributes.
    Entries(Vec<(DirEntry, Attr)>),
}

/// An answer, and what of it may be remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedReply {
    /// The answer to the look.
    pub seen: Seen,
    /// What is not to be remembered: of these inodes the attributes, and the names in them.
    pub refused: Vec<Ino>,
    /// How long the rest may be remembered, counted from before the call was made (milliseconds).
    pub term_ms: u32,
}

/// What who writes a file alone may take for given ([design](../../../docs/design/0013-other-hosts.md#who-writes-alone)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alone {
    /// Of this lease; another one is given after it was taken back.
    pub number: u64,
    /// How long that is so, counted from before the call was made (milliseconds).
    pub term_ms: u32,
    /// How long the file is (bytes).
    pub length: u64,
    /// How often that was set.
    pub cuts: u64,
}

/// What became of a lock that was waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockEvent {
    /// Its place among all of the session; the first is 1.
    pub place: u64,
    /// Number of the call that asked for it.
    pub call: u64,
    /// None: it is held.
    pub refused: Option<FsError>,
}

impl FileCall {
    /// Whether the node records with what the call changes that it was done, so that it may be made again when the node was started anew.
    pub fn is_recorded(&self) -> bool {
        matches!(
            self,
            Self::Mkdir { .. }
                | Self::Mknod { .. }
                | Self::Symlink { .. }
                | Self::Link { .. }
                | Self::Unlink { .. }
                | Self::Rmdir { .. }
                | Self::Rename { .. }
                | Self::CreateAs { .. }
                | Self::SetXattr { .. }
                | Self::SetXattrAs { .. }
                | Self::RemoveXattr { .. }
        )
    }

    /// Inodes that the call itself names and changes, in their attributes or names: who makes it forgets them before, and the node takes that for granted.
    pub fn changes(&self) -> impl Iterator<Item = Ino> {
        let (first, second) = match self {
            Self::Mkdir { parent, .. }
            | Self::Symlink { parent, .. }
            | Self::Mknod { parent, .. }
            | Self::Create { parent, .. }
            | Self::CreateAs { parent, .. }
            | Self::Unlink { parent, .. }
            | Self::Rmdir { parent, .. } => (Some(*parent), None),
            Self::Link { ino, parent, .. } => (Some(*ino), Some(*parent)),
            Self::Rename { from, to, .. } => (Some(from.0), Some(to.0)),
            Self::SetAttr { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::SetXattrAs { ino, .. }
            | Self::RemoveXattr { ino, .. }
            | Self::ClearSetId(ino) => (Some(*ino), None),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The inode that the call itself names and whose length it sets: who makes it takes no length of it for given meanwhile, and the node takes that for granted.
    pub fn cuts(&self) -> Option<Ino> {
        match self {
            Self::SetAttr { ino, set: SetAttr { size: Some(_), .. } }
            | Self::Open { ino, truncate: true, .. } => Some(*ino),
            Self::OpenAs { ino, flags } if flags.truncate => Some(*ino),
            _ => None,
        }
    }

    /// Whether doing it twice is not the same as once: an answer that was lost is given again, not made again.
    pub fn is_once(&self) -> bool {
        !matches!(
            self,
            Self::Lookup { .. }
                | Self::Resolve { .. }
                | Self::Follow { .. }
                | Self::GetAttr(_)
                | Self::ReadDir { .. }
                | Self::ReadLink(_)
                | Self::Read { .. }
                | Self::ReadNow { .. }
                | Self::WriteAt { .. }
                | Self::Fsync { .. }
                | Self::Sync
                | Self::SyncNames
                | Self::Xattrs(_)
                | Self::GetXattr { .. }
                | Self::Parent(_)
                | Self::StatFs
                | Self::Seek { .. }
                | Self::Prepare { .. }
                | Self::Withdraw(_)
                | Self::LayoutGet(_)
                | Self::LayoutCommit { .. }
                | Self::TestLock { .. }
                | Self::LockEvents { .. }
                | Self::Leased(_)
                | Self::Forgotten { .. }
                | Self::LayoutLend(_)
                | Self::WriteAlone(_)
                | Self::WriteAloneEnd { .. }
                | Self::WriteAloneStands { .. }
                | Self::LayoutCopies(_)
                | Self::SettleSpared(_)
                | Self::SparedReturned { .. }
                | Self::SparedOver
                | Self::CopiesEnd { .. }
        )
    }
}

/// A file call that a node makes for a user of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOrder {
    /// For whom.
    pub who: Speaks,
    /// Number of the call in its session, never used for another one.
    pub number: u64,
    /// Answers to all calls of the session below this number have come.
    pub answered: u64,
    /// Where one of them is waited for so long that many others were answered since: all calls from `answered` on and below this one whose answers have not come,
    /// in order. Else none.
    pub open: Vec<u64>,
    /// The call.
    pub call: FileCall,
}

/// Who stands behind a call, as the node says that makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speaks {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups, where known.
    pub groups: Vec<u32>,
    /// The kernel of the host has checked his rights.
    pub checked: bool,
}
