//! Calls for names and bytes of files.

use serde::{Deserialize, Serialize};
use types::api::OpenFlags;
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
    /// -> `Count` of bytes.
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
}
