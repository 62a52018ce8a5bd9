//! What every gateway sees: names and bytes, whether the node is in this process or elsewhere. The node implements it;
//! the `client` room offers it to gateways.

use crate::{Attr, Cx, DirEntry, FileKind, FsError, Handle, Ino, LockHeld, LockOrder, RenameMode, SetAttr};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Result of a file operation.
pub type FsResult<T> = Result<T, FsError>;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFlags {
    /// Reading wanted.
    pub read: bool,
    /// Writing wanted.
    pub write: bool,
    /// Length set to 0 at open (an offline file is not recalled for it).
    pub truncate: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// Never wait for tape: offline data gives [`FsError::WouldBlock`] and starts the recall.
    pub nonblock: bool,
    /// With `create`: fail if the name exists.
    pub exclusive: bool,
}

impl OpenFlags {
    /// Whether nobody reads or writes what the file has by this: it is there so that the file stays.
    pub fn is_idle(self) -> bool {
        !self.read && !self.write
    }
}

/// An open file.
#[derive(Debug)]
pub struct Opened {
    /// Handle for all later calls; must be released.
    pub handle: Handle,
    /// Attributes at open.
    pub attr: Attr,
    /// The whole file as an open descriptor of its disk object: read and write it directly (`Some`), or go through
    /// `read` and `write` (`None`: partly resident, or the disk tier is under pressure).
    pub backing: Option<Arc<OwnedFd>>,
    /// Several writes of the file may come at once: those that overlap are put in order, and none of them waits for tape.
    pub parallel_writes: bool,
}

/// A node to be made.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// Kind; regular files too (mknod), but not symlinks or directories with their own calls.
    pub kind: FileKind,
    /// Permission bits after umask.
    pub mode: u32,
    /// Device number.
    pub rdev: u32,
}

/// Figures for statfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatFs {
    /// Bytes of the disk tier.
    pub total_bytes: u64,
    /// Bytes free or releasable at once.
    pub free_bytes: u64,
    /// Inodes in use.
    pub files: u64,
}

/// Completion of a read: called exactly once, maybe on another thread, maybe before `read` returns.
pub type ReadDone = Box<dyn FnOnce(FsResult<Vec<u8>>) + Send>;

/// Completion of a preparation: called exactly once, maybe on another thread, maybe before the call returns.
pub type ReadyDone = Box<dyn FnOnce(FsResult<()>) + Send>;

/// Names a waiting read, preparation or lock so that it can be withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitId(pub u64);

/// How `setxattr` treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Set in any case.
    Any,
    /// Fail if it exists.
    Create,
    /// Fail if it does not exist.
    Replace,
}

/// seek(2) for holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// SEEK_DATA
    Data,
    /// SEEK_HOLE
    Hole,
}

/// Told by the node when something that a gateway may have cached has changed behind its back.
pub trait Watcher: Send + Sync {
    /// Attributes (residency, size on disk) of this inode changed.
    fn attributes_changed(&self, ino: Ino);
    /// A name was changed by another gateway.
    fn entry_changed(&self, parent: Ino, name: &[u8]);
    /// Returns when nothing of what was told before is remembered otherwise any more, or after a second. One that remembers nothing needs no
    /// more than this default.
    fn wait_forgotten(&self) {}
}

/// POSIX-shaped access to the namespace. Nothing here waits for tape except `read` (through its completion),
/// `write`, and a `setattr` that shortens an offline file to something other than zero.
pub trait FileApi: Send + Sync {
    /// Finds a name.
    fn lookup(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<Attr>;
    /// Attributes now (an open file's size is looked up in its object).
    fn getattr(&self, cx: &Cx, ino: Ino) -> FsResult<Attr>;
    /// What [`FileApi::lookup`] would say now, if that is known without waiting for the network or for other calls; None: ask it. Gateways ask this
    /// first, on a thread for which others wait. An implementation that waits for no network needs no more than this default.
    fn lookup_at_once(&self, _cx: &Cx, _parent: Ino, _name: &[u8]) -> Option<FsResult<Attr>> {
        None
    }
    /// The same of [`FileApi::getattr`].
    fn getattr_at_once(&self, _cx: &Cx, _ino: Ino) -> Option<Attr> {
        None
    }
    /// Whether somebody changes content and attributes without being seen: nobody may remember them meanwhile.
    fn changes_unseen(&self, _ino: Ino) -> bool {
        false
    }
    /// For how long from now on a kernel that is to remember nothing may answer from the attributes of `ino` that were told last: a part of a lease, so
    /// nobody else is told of a change before the [`Watcher`] was, and [`Watcher::wait_forgotten`] has returned. Zero: not at all.
    fn attr_term(&self, _ino: Ino) -> Duration {
        Duration::ZERO
    }
    /// Changes attributes. Ownership and permission rules that the kernel does not check are applied here.
    fn setattr(&self, cx: &Cx, ino: Ino, set: &SetAttr) -> FsResult<Attr>;
    /// Somebody without the privilege changes the content of a file: takes set-user-id, and set-group-id where it means
    /// "run as group", from its mode, whatever that is at this moment. True if there was any; never on anything but a file.
    fn clear_set_id(&self, cx: &Cx, ino: Ino) -> FsResult<bool>;
    /// Target of a symlink.
    fn readlink(&self, cx: &Cx, ino: Ino) -> FsResult<Vec<u8>>;
    /// Makes a file, fifo, socket or device.
    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], node: &NewNode) -> FsResult<Attr>;
    /// Makes a directory.
    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> FsResult<Attr>;
    /// Makes a symlink.
    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Attr>;
    /// Adds a hard link.
    fn link(&self, cx: &Cx, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr>;
    /// Removes a name that is not a directory.
    fn unlink(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<()>;
    /// Removes an empty directory.
    fn rmdir(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<()>;
    /// Renames.
    fn rename(&self, cx: &Cx, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> FsResult<()>;
    /// Creates and opens a regular file (opens the existing one unless `flags.exclusive`).
    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, flags: OpenFlags) -> FsResult<Opened>;
    /// Opens a regular file. Never waits for tape.
    fn open(&self, cx: &Cx, ino: Ino, flags: OpenFlags) -> FsResult<Opened>;
    /// Whether an open of `ino` (of what is `name` in the directory `ino`, if one is given; for writing, or a truncation, if `writes`) may wait for readers or
    /// writers elsewhere who cannot be told; costs little. Gateways ask first, so that such calls hold few of their threads for requests.
    /// An implementation that never waits, or where others may wait, needs no more than this default.
    fn may_wait_to_open(&self, ino: Ino, name: Option<&[u8]>, writes: bool) -> bool {
        let _ = (ino, name, writes);
        false
    }
    /// Reads up to `len` bytes (fewer only at end of file). If bytes are offline the completion is called when they
    /// have arrived; then the returned id can be used with `cancel_wait`.
    fn read(&self, handle: Handle, offset: u64, len: u32, done: ReadDone) -> Option<WaitId>;
    /// Calls `done` as soon as the content of `ino` can be changed (`write`, `fallocate`, a shortening `setattr`)
    /// without waiting for tape or for space; the change itself is made afterwards by the usual call. Gateways call this
    /// first so that a waiting change holds none of their threads and can be withdrawn with `cancel_wait`.
    /// With `nonblock`, [`FsError::WouldBlock`] instead of waiting (what is needed is started all the same).
    /// An implementation that never waits needs no more than this default.
    fn prepare_change(&self, ino: Ino, nonblock: bool, done: ReadyDone) -> Option<WaitId> {
        let _ = (ino, nonblock);
        done(Ok(()));
        None
    }
    /// Withdraws a waiting read, preparation or lock: its completion is called at once with [`FsError::Interrupted`].
    fn cancel_wait(&self, wait: WaitId);
    /// Writes; may wait for a recall when the file is not wholly resident, or for space.
    fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> FsResult<usize>;
    /// Writes at exactly `offset`, also through a handle that appends: pages of a mapping, which the kernel writes back
    /// through whatever handle it finds. An implementation whose `write` minds the offset needs no more than this default.
    fn write_back(&self, handle: Handle, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.write(handle, offset, data)
    }
    /// Called at each close(2).
    fn flush(&self, handle: Handle) -> FsResult<()>;
    /// Returns when content (and, unless `data_only`, the name) is on stable storage.
    fn fsync(&self, handle: Handle, data_only: bool) -> FsResult<()>;
    /// Last use of a handle.
    fn release(&self, handle: Handle);
    /// fallocate(2) with its mode bits.
    fn fallocate(&self, handle: Handle, mode: i32, offset: u64, len: u64) -> FsResult<()>;
    /// Next data or hole.
    fn seek(&self, handle: Handle, offset: u64, seek: Seek) -> FsResult<u64>;
    /// Asks for a lock or gives one back. `done` is called when it is held; with [`FsError::WouldBlock`] if somebody else's is in the way and the
    /// order is not to wait; with [`FsError::Deadlock`]. A wait can be withdrawn with `cancel_wait`. What an owner got through a handle
    /// ends with it at the latest.
    fn lock(&self, handle: Handle, order: LockOrder, done: ReadyDone) -> Option<WaitId> {
        let _ = (handle, order);
        done(Err(FsError::NotSupported));
        None
    }
    /// A lock of somebody else that would be in the way of this one.
    fn test_lock(&self, handle: Handle, order: LockOrder) -> FsResult<Option<LockHeld>> {
        let _ = (handle, order);
        Err(FsError::NotSupported)
    }
    /// Entries after `cookie` (0: from the start), without `.` and `..`.
    fn readdir(&self, cx: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<DirEntry>>;
    /// The same with attributes. Those of an entry whose inode is damaged have `nlink` 0, and only its number and kind
    /// are true; [`FileApi::getattr`] gives the error.
    fn readdir_plus(&self, cx: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<(DirEntry, Attr)>>;
    /// Parent of a directory (the root is its own).
    fn parent(&self, dir: Ino) -> FsResult<Ino>;
    /// Makes all changes of names so far durable.
    fn sync_names(&self) -> FsResult<()>;
    /// Figures for statfs.
    fn statfs(&self) -> FsResult<StatFs>;
    /// Value of an extended attribute, virtual ones (`user.thermo.*`) included.
    fn getxattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;
    /// Names of extended attributes.
    fn listxattr(&self, cx: &Cx, ino: Ino) -> FsResult<Vec<Vec<u8>>>;
    /// Sets an extended attribute.
    fn setxattr(&self, cx: &Cx, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()>;
    /// Removes an extended attribute.
    fn removexattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> FsResult<()>;
    /// Registers who is told about changes.
    fn watch(&self, watcher: Arc<dyn Watcher>);
}
