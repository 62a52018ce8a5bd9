//! Open files: bytes, syncs, space.

use crate::attr::{file_attr, ino};
use crate::errno::{errno, of_sys};
use crate::gateway::{Core, cx};
use crate::ops::{GENERATION, reply_empty};
use crate::pool::Slot;
use crate::table::{Made, OpenFile, Route};
use fuser::{
    Errno, FileHandle, FopenFlags, INodeNo, OpenAccMode, OpenFlags, ReplyCreate, ReplyData, ReplyEmpty,
    ReplyLseek, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use types::api::{self, FsResult, Seek, Watcher as _};
use types::{Cx, FsError, Handle, Ino};

/// Largest piece of one copy_file_range: the reply has 32 bits, and a thread of the pool is held meanwhile.
const MAX_COPY: u64 = 1 << 30;

/// A range for fallocate, with its mode bits.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub mode: i32,
    pub offset: u64,
    pub length: u64,
}

fn api_flags(core: &Core, flags: OpenFlags) -> api::OpenFlags {
    let mode = flags.acc_mode();
    let has = |bit| flags.0 & bit != 0;
    api::OpenFlags {
        read: mode != OpenAccMode::O_WRONLY,
        write: mode != OpenAccMode::O_RDONLY,
        truncate: has(libc::O_TRUNC),
        append: has(libc::O_APPEND),
        nonblock: core.must_not_wait(flags),
        exclusive: has(libc::O_EXCL),
    }
}

/// How the kernel is to treat an open file. Where writes never come here there is nothing to flush; a served file
/// bypasses the page cache, so that a signal can end a wait and the inode can become a passthrough one later. With locks of the interface's own
/// each close is told, since it ends the locks of its process.
fn open_flags(core: &Core, opened: &api::Opened, route: &Route) -> FopenFlags {
    match route {
        Route::Kernel(_) | Route::Local(_) if core.locks => FopenFlags::empty(),
        Route::Kernel(_) | Route::Local(_) => FopenFlags::FOPEN_NOFLUSH,
        // Otherwise whoever waits in a write holds up all others, and who is quick to come back has the kernel's lock for 4 ms at a time:
        // programs that write one file by turns drift far apart.
        Route::Served if opened.parallel_writes => {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        }
        Route::Served => FopenFlags::FOPEN_DIRECT_IO,
    }
}

impl Core {
    fn open(&self, cx: &Cx, ino: Ino, flags: api::OpenFlags, reply: ReplyOpen) {
        let opened = match self.api.open(cx, ino, flags) {
            Ok(opened) => opened,
            Err(error) => return reply.error(errno(error)),
        };
        if flags.truncate && flags.write && cx.uid != 0 {
            self.clear_set_id(ino);
        }
        let route = self.opens.enter(ino, flags, &opened, None, |fd| {
            self.passthrough.load(Ordering::Acquire).then(|| reply.open_backing(fd))
        });
        let (fh, how) = (FileHandle(opened.handle.0), open_flags(self, &opened, &route));
        match &route {
            Route::Kernel(id) => reply.opened_passthrough(fh, how, id),
            _ => reply.opened(fh, how),
        }
    }

    /// Somebody without the privilege changes content in a way that the kernel leaves to us: set-user-id goes, and
    /// set-group-id where it means "run as group", as the kernel does it for other writes.
    fn clear_set_id(&self, ino: Ino) {
        let cx = Cx::admin(crate::gateway::now());
        match self.api.clear_set_id(&cx, ino) {
            Ok(true) => self.invalidator.attributes_changed(ino),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%ino, ?error, "set-user-id and set-group-id could not be cleared for a write by another user")
            }
        }
    }

    fn create(
        &self,
        cx: &Cx,
        (dir, name): (Ino, &[u8]),
        mode: u32,
        (flags, thread): (api::OpenFlags, u32),
        reply: ReplyCreate,
    ) {
        let begun = Instant::now();
        let opened = match self.api.create(cx, dir, name, mode & 0o7777, flags) {
            Ok(opened) => opened,
            Err(error) => return reply.error(errno(error)),
        };
        // Of what was there before the answer may be older than what somebody knows.
        let made = (self.ttl.is_zero() && flags.exclusive).then(|| Made {
            attr: opened.attr.clone(),
            begun,
            thread,
        });
        let route = self.opens.enter(opened.attr.ino, flags, &opened, made, |fd| {
            self.passthrough.load(Ordering::Acquire).then(|| reply.open_backing(fd))
        });
        let attr = file_attr(&opened.attr);
        let (fh, how) = (FileHandle(opened.handle.0), open_flags(self, &opened, &route));
        match &route {
            Route::Kernel(id) => reply.created_passthrough(&self.ttl, &attr, GENERATION, fh, how, id),
            _ => reply.created(&self.ttl, &attr, GENERATION, fh, how),
        }
    }

    /// The table forgets a handle before the node does, so that what the table knows of an inode's mode is always
    /// backed by a handle that the node knows too.
    pub(crate) fn release(&self, fh: FileHandle, reply: ReplyEmpty) {
        let handle = Handle(fh.0);
        let file = self.opens.leave(handle);
        self.api.release(handle);
        reply.ok();
        if let Some(OpenFile { ino, flags, .. }) = file
            && flags.read
            && flags.write
        {
            self.invalidator.attributes_changed(ino); // it may have been written through a mapping
        }
    }

    pub(crate) fn read(
        &self,
        tid: u32,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        reply: ReplyData,
    ) {
        let handle = Handle(fh.0);
        let file = match self.opens.get(handle) {
            Some(file) => file,
            None => return reply.error(Errno::EBADF),
        };
        if let Route::Local(fd) = &file.route {
            return read_local(fd, offset, size, reply);
        }
        let wait = self.waits.begin();
        let done = Arc::clone(&wait);
        // set by fcntl(2) after the open, so the node does not know of it
        let late_nonblock = self.must_not_wait(flags) && !file.flags.nonblock;
        let waiting = self.api.read(
            handle,
            offset,
            size,
            Box::new(move |result| {
                done.finish();
                match result {
                    Ok(data) => reply.data(&data),
                    Err(FsError::Interrupted) if late_nonblock => reply.error(Errno::EAGAIN),
                    Err(error) => reply.error(errno(error)),
                }
            }),
        );
        match waiting {
            Some(id) if late_nonblock => self.api.cancel_wait(id),
            Some(id) => wait.enter(id, tid),
            None => {}
        }
    }

    pub(crate) fn lseek(&self, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let seek = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.api.seek(Handle(fh.0), offset, seek).map(i64::try_from) {
            Ok(Ok(found)) => reply.offset(found),
            Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
            Err(error) => reply.error(errno(error)),
        }
    }
}

/// Opens; where that may wait, it holds few of the session's threads.
pub(crate) fn open(core: &Arc<Core>, req: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
    let (cx, ino, flags) = (cx(req), ino(node), api_flags(core, flags));
    if !core.api.may_wait_to_open(ino, None, flags.write) {
        return core.open(&cx, ino, flags, reply);
    }
    let Some(slot) = core.open_pool.slot() else { return reply.error(Errno::EAGAIN) };
    let core = Arc::clone(core);
    slot.run_here(move || core.open(&cx, ino, flags, reply));
}

/// The same for what somebody else may have made by now.
pub(crate) fn create(
    core: &Arc<Core>,
    req: &Request,
    (dir, name): (INodeNo, &OsStr),
    mode: u32,
    flags: OpenFlags,
    reply: ReplyCreate,
) {
    let (cx, dir, name, flags) = (cx(req), ino(dir), name.as_bytes(), api_flags(core, flags));
    if flags.exclusive || !core.api.may_wait_to_open(dir, Some(name), true) {
        return core.create(&cx, (dir, name), mode, (flags, req.pid()), reply);
    }
    let Some(slot) = core.open_pool.slot() else { return reply.error(Errno::EAGAIN) };
    let (core, name, thread) = (Arc::clone(core), name.to_vec(), req.pid());
    slot.run_here(move || core.create(&cx, (dir, &name), mode, (flags, thread), reply));
}

fn read_local(fd: &OwnedFd, offset: u64, size: u32, reply: ReplyData) {
    let mut buffer = vec![0; size as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return reply.error(of_sys(error)),
        }
    }
    reply.data(&buffer[..filled]);
}

fn write_local(fd: &OwnedFd, offset: u64, data: &[u8], reply: ReplyWrite) {
    let mut written = 0;
    while written < data.len() {
        match rustix::io::pwrite(fd, &data[written..], offset + written as u64) {
            Ok(n) => written += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) if written > 0 => break,
            Err(error) => return reply.error(of_sys(error)),
        }
    }
    reply.written(written as u32);
}

/// What is to be done with a reply once it is known whether the file can be changed.
type WhenReady = Box<dyn FnOnce(FsResult<()>) + Send>;

/// Runs `change` on the pool for changes as soon as the file can be changed without waiting for tape, or on this thread, if that is so now and the
/// mount has threads for it; nobody's thread waits for tape meanwhile. Gives `change` back without a slot: too many changes wait already.
pub(crate) fn when_changeable(
    core: &Core,
    tid: u32,
    ino: Ino,
    nonblock: bool,
    slot: Option<Slot>,
    change: impl FnOnce(FsResult<()>) + Send + 'static,
) -> Result<(), WhenReady> {
    let Some(slot) = slot else {
        tracing::warn!(%ino, "too many changes wait for tape; refusing one more with EAGAIN");
        return Err(Box::new(change));
    };
    let wait = core.waits.begin();
    let done = Arc::clone(&wait);
    let (asked_by, changes) = (std::thread::current().id(), core.changes.clone());
    let ready = move |result| {
        done.finish();
        let here = std::thread::current().id() == asked_by;
        changes.run(ino, slot, here, move || change(result));
    };
    if let Some(id) = core.api.prepare_change(ino, nonblock, Box::new(ready)) {
        wait.enter(id, tid);
    }
    Ok(())
}

/// Writes. The data is copied because the session's buffer is used for the next request while this one waits.
pub(crate) fn write(
    core: &Arc<Core>,
    tid: u32,
    fh: FileHandle,
    offset: u64,
    data: &[u8],
    (write_flags, flags): (WriteFlags, OpenFlags),
    reply: ReplyWrite,
) {
    let handle = Handle(fh.0);
    let Some(file) = core.opens.get(handle) else { return reply.error(Errno::EBADF) };
    if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
        core.clear_set_id(file.ino);
    }
    if let Route::Local(fd) = &file.route {
        return write_local(fd, offset, data, reply);
    }
    let nonblock = core.must_not_wait(flags);
    let (again, data) = (Arc::clone(core), data.to_vec());
    let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
    // The kernel syncs by itself only what goes through its page cache.
    let (lasts, data_only) =
        (!mapped && flags.0 & libc::O_DSYNC != 0, flags.0 & libc::O_SYNC != libc::O_SYNC);
    // Such a file is on disk, so its writes wait for no tape, and who waits holds a thread of his own.
    let slot = match file.parallel_writes {
        true => Some(core.change_pool.slot_beside()),
        false => core.change_pool.slot(),
    };
    let refused = when_changeable(core, tid, file.ino, nonblock, slot, move |ready| {
        let written = ready.and_then(|()| match mapped {
            true => again.api.write_back(handle, offset, &data),
            false => again.api.write(handle, offset, &data),
        });
        let written = written.and_then(|n| match lasts {
            true => again.api.fsync(handle, data_only).map(|()| n),
            false => Ok(n),
        });
        match written {
            Ok(n) => reply.written(n as u32),
            Err(error) => reply.error(errno(error)),
        }
    });
    if let Err(job) = refused {
        job(Err(FsError::WouldBlock));
    }
}

pub(crate) fn fallocate(
    core: &Arc<Core>,
    tid: u32,
    node: INodeNo,
    fh: FileHandle,
    range: Range,
    reply: ReplyEmpty,
) {
    let again = Arc::clone(core);
    let refused = when_changeable(core, tid, ino(node), false, core.change_pool.slot(), move |ready| {
        let Range { mode, offset, length } = range;
        reply_empty(ready.and_then(|()| again.api.fallocate(Handle(fh.0), mode, offset, length)), reply);
    });
    if let Err(job) = refused {
        job(Err(FsError::WouldBlock));
    }
}

pub(crate) fn fsync(core: &Arc<Core>, fh: FileHandle, data_only: bool, reply: ReplyEmpty) {
    let Some(slot) = core.disk_pool.slot() else { return reply.error(Errno::EAGAIN) };
    let api = Arc::clone(&core.api);
    slot.run(move || reply_empty(api.fsync(Handle(fh.0), data_only), reply));
}

pub(crate) fn sync_names(core: &Arc<Core>, reply: ReplyEmpty) {
    let Some(slot) = core.disk_pool.slot() else { return reply.error(Errno::EAGAIN) };
    let api = Arc::clone(&core.api);
    slot.run(move || reply_empty(api.sync_names(), reply));
}

/// Copies between two backing files (a reflink where the disk pool can); anything else is refused with EOPNOTSUPP,
/// after which the kernel copies through reads and writes.
pub(crate) fn copy_file_range(
    core: &Arc<Core>,
    from: (FileHandle, u64),
    to: (FileHandle, u64),
    len: u64,
    reply: ReplyWrite,
) {
    let backing = |fh: FileHandle| core.opens.get(Handle(fh.0)).and_then(|file| file.backing);
    let (Some(source), Some(target)) = (backing(from.0), backing(to.0)) else {
        return reply.error(Errno::EOPNOTSUPP);
    };
    let Some(slot) = core.disk_pool.slot() else { return reply.error(Errno::EOPNOTSUPP) };
    slot.run(move || {
        let (mut read_at, mut write_at) = (from.1, to.1);
        let len = len.min(MAX_COPY) as usize;
        match rustix::fs::copy_file_range(&*source, Some(&mut read_at), &*target, Some(&mut write_at), len) {
            Ok(n) => reply.written(n as u32),
            Err(rustix::io::Errno::BADF) => reply.error(Errno::EOPNOTSUPP), // a backing descriptor without the right
            Err(error) => reply.error(of_sys(error)),
        }
    });
}
