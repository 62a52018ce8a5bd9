//! The protocol's operations, each guarded and handed on: names and attributes to `ops.rs`, bytes to `io.rs`.

use crate::config::MountOptions;
use crate::few::Few;
use crate::known::Known;
use crate::locks::Described;
use crate::notify::Invalidator;
use crate::pool::Pool;
use crate::readers::Readers;
use crate::table::OpenTable;
use crate::waits::Waits;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use types::api::FileApi;
use types::{Cx, LockRange, NonBlock, Time};

/// Largest read or write that the kernel sends in one request.
const MAX_TRANSFER: u32 = 1 << 20;
/// Requests that the kernel may have outstanding in the background (read-ahead, asynchronous direct IO).
const MAX_BACKGROUND: u16 = 128;
/// How many file systems may be stacked: 2 lets the disk pool itself be on a stacked one (overlayfs of a container).
const STACK_DEPTH: u32 = 2;

/// Everything that operations need.
pub(crate) struct Core {
    pub api: Arc<dyn FileApi>,
    pub opens: OpenTable,
    pub waits: Arc<Waits>,
    pub invalidator: Arc<Invalidator>,
    /// Syncs and other calls that wait for the disk.
    pub disk_pool: Pool,
    /// What is told at close(2). As many wait as programs close: none is refused, and none is done by a thread of the session.
    pub close_pool: Pool,
    /// Changes of files that are not wholly resident.
    pub change_pool: Pool,
    /// Of one file.
    pub changes: Few,
    /// Opens, and cuts to nothing, that may wait for others. None is refused.
    pub open_pool: Pool,
    /// Changes of attributes that may wait for what this host has of the file. None is refused.
    pub attr_pool: Pool,
    pub ttl: Duration,
    /// Inodes that a kernel which keeps nothing has.
    pub known: Known,
    /// Which of the session's threads read, where not all may.
    readers: Option<Arc<Readers>>,
    /// Locks are the interface's, not the kernel's.
    pub locks: bool,
    want_passthrough: bool,
    /// `O_NONBLOCK` never makes a call wait less.
    nonblock_waits: bool,
    pub passthrough: AtomicBool,
}

impl Core {
    pub(crate) fn new(api: Arc<dyn FileApi>, options: &MountOptions) -> Arc<Self> {
        let here = Arc::new(AtomicUsize::new(options.threads_for_changes()));
        Arc::new(Self {
            api,
            opens: OpenTable::new(),
            waits: Waits::new(),
            invalidator: Arc::default(),
            disk_pool: Pool::new("fuse-disk", 16, 4096),
            close_pool: Pool::new("fuse-close", 16, usize::MAX),
            change_pool: Pool::with_callers("fuse-change", 128, 512, (&here, 0)),
            changes: Few::new(64),
            open_pool: Pool::with_callers("fuse-open", 64, usize::MAX, (&here, 1)),
            attr_pool: Pool::with_callers("fuse-attr", 64, usize::MAX, (&here, 1)),
            ttl: options.ttl,
            known: Known::default(),
            readers: options.readers(),
            locks: options.locks,
            want_passthrough: options.passthrough,
            nonblock_waits: options.nonblock == NonBlock::Wait,
            passthrough: AtomicBool::new(false),
        })
    }
}

impl Core {
    /// Runs what a request asks for on a thread of the session.
    fn seated(&self, work: impl FnOnce()) {
        let readers = self.readers.as_ref();
        readers.inspect(|readers| readers.begin());
        work();
        readers.inspect(|readers| readers.end());
    }

    /// What this thread of the session does from now on may wait.
    pub(crate) fn may_wait(&self) {
        if let Some(readers) = &self.readers {
            readers.leave();
        }
    }

    /// Whether a call with these flags of its open file may not wait for tape.
    pub(crate) fn must_not_wait(&self, flags: OpenFlags) -> bool {
        flags.0 & libc::O_NONBLOCK != 0 && !self.nonblock_waits
    }
}

/// Who calls, now. The kernel has checked permissions (`default_permissions`) with all groups of the caller, which it does
/// not tell.
pub(crate) fn cx(req: &Request) -> Cx {
    Cx { checked: true, ..Cx::user(req.uid(), req.gid(), now()) }
}

pub(crate) fn now() -> Time {
    Time::from(SystemTime::now())
}

/// The protocol side of a mount.
pub(crate) struct Gateway(pub Arc<Core>);

/// Runs the handler of a request, near its caller. A panic would silently end the session thread: it is caught, and the reply, dropped on the way,
/// answers EIO.
fn caught(operation: &'static str, req: &Request, handler: impl FnOnce()) {
    crate::follow::caller(req.pid());
    if catch_unwind(AssertUnwindSafe(handler)).is_err() {
        tracing::error!(
            operation,
            "a file operation panicked; it was answered with EIO. Please report this with the log"
        );
    }
}

impl Gateway {
    /// Runs a handler that may wait.
    fn guarded(&self, operation: &'static str, req: &Request, handler: impl FnOnce()) {
        self.0.seated(|| {
            self.0.may_wait();
            caught(operation, req, handler);
        });
    }

    /// Runs a handler that says by itself when it may wait.
    fn guarded_at_once(&self, operation: &'static str, req: &Request, handler: impl FnOnce()) {
        self.0.seated(|| caught(operation, req, handler));
    }
}

impl Filesystem for Gateway {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            // without it the kernel asks for `security.capability` before every write(2)
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let locks = if self.0.locks {
            InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS
        } else {
            InitFlags::empty()
        };
        let available = (wanted | locks) & config.capabilities();
        let _ = config.add_capabilities(available); // cannot fail: they are available
        let _ = config.set_max_write(MAX_TRANSFER);
        let _ = config.set_max_readahead(MAX_TRANSFER).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(MAX_BACKGROUND);
        if self.0.want_passthrough && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            let _ = config.set_max_stack_depth(STACK_DEPTH);
            self.0.passthrough.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.guarded_at_once("lookup", req, || self.0.lookup(req, parent, name, reply));
    }

    // inodes live in the catalogue, not in this process: nothing is held for the kernel
    fn forget(&self, _req: &Request, ino: INodeNo, _nlookup: u64) {
        self.0.known.leave(types::Ino(ino.0));
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.guarded_at_once("getattr", req, || self.0.getattr(req, ino, reply));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.guarded("setattr", req, || {
            let change = crate::ops::Change { mode, uid, gid, size, atime, mtime };
            crate::ops::setattr(&self.0, req, ino, change, reply);
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.guarded("readlink", req, || self.0.readlink(req, ino, reply));
    }

    fn mknod(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.guarded("mknod", req, || self.0.mknod(req, dir, name, mode, rdev, reply));
    }

    fn mkdir(&self, req: &Request, dir: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        self.guarded("mkdir", req, || self.0.mkdir(req, dir, name, mode, reply));
    }

    fn unlink(&self, req: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.guarded("unlink", req, || self.0.unlink(req, dir, name, reply));
    }

    fn rmdir(&self, req: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.guarded("rmdir", req, || self.0.rmdir(req, dir, name, reply));
    }

    fn symlink(&self, req: &Request, dir: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.guarded("symlink", req, || self.0.symlink(req, dir, name, target, reply));
    }

    fn rename(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        new_dir: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.guarded("rename", req, || self.0.rename(req, (dir, name), (new_dir, new_name), flags, reply));
    }

    fn link(&self, req: &Request, ino: INodeNo, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.guarded("link", req, || self.0.link(req, ino, dir, name, reply));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.guarded("open", req, || crate::io::open(&self.0, req, ino, flags, reply));
    }

    fn create(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.guarded("create", req, || {
            crate::io::create(&self.0, req, (dir, name), mode, OpenFlags(flags), reply)
        });
    }

    fn read(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.guarded("read", req, || self.0.read(req.pid(), fh, offset, size, flags, reply));
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.guarded("write", req, || {
            crate::io::write(&self.0, req.pid(), fh, offset, data, (write_flags, flags), reply)
        });
    }

    fn flush(&self, req: &Request, _ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        self.guarded("flush", req, || self.0.flush(fh, lock_owner, reply));
    }

    fn getlk(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let lock = Described { owner, range: LockRange { start, end }, kind, pid };
        self.guarded("getlk", req, || self.0.getlk(fh, &lock, reply));
    }

    fn setlk(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let lock = Described { owner, range: LockRange { start, end }, kind, pid };
        self.guarded("setlk", req, || self.0.setlk(req, fh, &lock, sleep, reply));
    }

    fn release(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.guarded("release", req, || self.0.release(fh, reply));
    }

    fn fsync(&self, req: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.guarded("fsync", req, || crate::io::fsync(&self.0, fh, datasync, reply));
    }

    fn readdir(&self, req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.guarded("readdir", req, || self.0.readdir(req, ino, offset, reply));
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.guarded("readdirplus", req, || self.0.readdir_plus(req, ino, offset, reply));
    }

    fn fsyncdir(&self, req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.guarded("fsyncdir", req, || crate::io::sync_names(&self.0, reply));
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.guarded("statfs", req, || self.0.statfs(reply));
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.guarded("setxattr", req, || self.0.setxattr(req, ino, name, value, flags, reply));
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.guarded("getxattr", req, || self.0.getxattr(req, ino, name, size, reply));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.guarded("listxattr", req, || self.0.listxattr(req, ino, size, reply));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.guarded("removexattr", req, || self.0.removexattr(req, ino, name, reply));
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.guarded("fallocate", req, || {
            let range = crate::io::Range { mode, offset, length };
            crate::io::fallocate(&self.0, req.pid(), ino, fh, range, reply);
        });
    }

    fn lseek(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.guarded("lseek", req, || self.0.lseek(fh, offset, whence, reply));
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.guarded("copy_file_range", req, || {
            crate::io::copy_file_range(&self.0, (fh_in, offset_in), (fh_out, offset_out), len, reply);
        });
    }

    // ENOSYS tells the kernel to do these by itself, once and for all: regular files are always ready; permissions
    // are checked by the kernel (`default_permissions`); blocks have no addresses
    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _req: &Request, _ino: INodeNo, _blocksize: u32, _idx: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}
