//! A [`FileApi`] over a real directory, for tests and measurements: every node is known by its kernel file handle
//! (so it needs root, and no descriptor per node). Chosen files can pretend to be offline and arrive from "tape" on command.
#![allow(dead_code)] // each user of this module needs another part of it

use rustix::fs::{self as rfs, AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::api::*;
use types::*;

/// How often the interface was entered.
#[derive(Default)]
pub struct Counters {
    pub lookups: AtomicU64,
    pub getattrs: AtomicU64,
    pub getxattrs: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub flushes: AtomicU64,
    pub fsyncs: AtomicU64,
    pub releases: AtomicU64,
    pub prepared: AtomicU64,
    /// Calls that have waited until nobody reads elsewhere, or wait.
    pub ended: AtomicU64,
}

struct File {
    ino: Ino,
    fd: Arc<OwnedFd>,
    nonblock: bool,
}

enum Done {
    Read { handle: Handle, offset: u64, len: u32, done: ReadDone },
    Ready(ReadyDone),
}

#[derive(Default)]
struct Tape {
    arrived: u64,
    recalls: u64,
    waiting: Vec<(WaitId, Done)>,
}

#[derive(Default)]
pub struct Loopback {
    pub count: Counters,
    /// New first opens are served even if resident.
    pub pressure: AtomicBool,
    /// The next `lookup` panics.
    pub panic_once: AtomicBool,
    /// While this is held no `flush` ends.
    pub closing: Mutex<()>,
    /// Files are read elsewhere: while `ending` is held no open for writing of one that is there ends, and no truncation.
    pub read_elsewhere: AtomicBool,
    pub ending: Mutex<()>,
    /// For so long a kernel that keeps nothing may answer from attributes.
    pub term: Mutex<Duration>,
    root: u64,
    root_fd: Option<OwnedFd>,
    next: AtomicU64,
    nodes: Mutex<HashMap<u64, KernelHandle>>,
    files: Mutex<HashMap<Handle, Arc<File>>>,
    modes: Mutex<HashMap<Ino, (u32, bool)>>,
    tapes: Mutex<HashMap<Ino, Tape>>,
    watchers: Mutex<Vec<Arc<dyn Watcher>>>,
}

fn fs_error(error: Errno) -> FsError {
    use FsError as E;
    match error {
        Errno::NOENT => E::NotFound,
        Errno::EXIST => E::Exists,
        Errno::NOTDIR => E::NotADirectory,
        Errno::ISDIR => E::IsADirectory,
        Errno::NOTEMPTY => E::NotEmpty,
        Errno::ACCESS => E::AccessDenied,
        Errno::PERM => E::NotPermitted,
        Errno::INVAL => E::Invalid,
        Errno::NAMETOOLONG => E::NameTooLong,
        Errno::NODATA => E::NoAttribute,
        Errno::TOOBIG => E::TooBig,
        Errno::NOSPC => E::NoSpace,
        Errno::FBIG => E::FileTooLarge,
        Errno::OPNOTSUPP => E::NotSupported,
        Errno::NXIO => E::NoData,
        Errno::LOOP => E::Loop,
        Errno::MLINK => E::TooManyLinks,
        other => panic!("loopback: no FsError for {other}"),
    }
}

/// `struct file_handle` of name_to_handle_at(2).
#[derive(Clone, Copy)]
#[repr(C)]
struct KernelHandle {
    bytes: u32,
    kind: i32,
    data: [u8; 64],
}

fn handle_of(dir: &OwnedFd, name: &[u8]) -> FsResult<KernelHandle> {
    let name = CString::new(name).unwrap();
    let mut handle = KernelHandle { bytes: 64, kind: 0, data: [0; 64] };
    let mut mount = 0;
    // SAFETY: `handle` is laid out as the kernel wants it, with room for as many bytes as it says
    let rc = unsafe {
        libc::name_to_handle_at(
            dir.as_raw_fd(),
            name.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 },
        )
    };
    if rc == 0 {
        Ok(handle)
    } else {
        Err(fs_error(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()))
    }
}

fn open_handle(root: &OwnedFd, mut handle: KernelHandle) -> FsResult<OwnedFd> {
    let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: `handle` came from name_to_handle_at; the descriptor that comes back is ours
    unsafe {
        match libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), flags) {
            -1 if *libc::__errno_location() == libc::ESTALE => Err(FsError::NotFound),
            -1 => Err(fs_error(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap())),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

trait OrFs<T> {
    fn fs(self) -> FsResult<T>;
}

impl<T> OrFs<T> for rustix::io::Result<T> {
    fn fs(self) -> FsResult<T> {
        self.map_err(fs_error)
    }
}

fn kind(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::File,
    }
}

fn proc_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn timespec(time: Option<Time>) -> rfs::Timespec {
    match time {
        Some(t) => rfs::Timespec { tv_sec: t.secs, tv_nsec: i64::from(t.nanos) },
        None => rfs::Timespec { tv_sec: 0, tv_nsec: rfs::UTIME_OMIT },
    }
}

impl Loopback {
    /// Over `dir`, which must exist.
    pub fn new(dir: &Path) -> Arc<Self> {
        let fd = rfs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let root = rfs::fstat(&fd).unwrap().st_ino;
        let handle = handle_of(&fd, b"").unwrap();
        let this = Self { root, root_fd: Some(fd), next: AtomicU64::new(1), ..Self::default() };
        this.nodes.lock().unwrap().insert(1, handle);
        Arc::new(this)
    }

    /// The inode of a path below the real directory.
    pub fn ino(&self, real: &Path) -> Ino {
        self.number(rfs::lstat(real).unwrap().st_ino)
    }

    fn number(&self, real: u64) -> Ino {
        Ino(if real == self.root { 1 } else { real })
    }

    fn end_reading_elsewhere(&self) {
        if self.read_elsewhere.load(Relaxed) {
            self.count.ended.fetch_add(1, Relaxed);
            drop(self.ending.lock());
        }
    }

    fn node(&self, ino: Ino) -> FsResult<OwnedFd> {
        let handle = self.nodes.lock().unwrap().get(&ino.0).copied().ok_or(FsError::NotFound)?;
        open_handle(self.root_fd.as_ref().unwrap(), handle)
    }

    fn attr(&self, fd: &OwnedFd) -> FsResult<Attr> {
        self.attr_of(&rfs::fstat(fd).fs()?)
    }

    fn attr_of(&self, s: &rfs::Stat) -> FsResult<Attr> {
        let ino = self.number(s.st_ino);
        let offline = self.tapes.lock().unwrap().contains_key(&ino);
        Ok(Attr {
            ino,
            kind: kind(s.st_mode),
            mode: s.st_mode & 0o7777,
            nlink: s.st_nlink as u32,
            uid: s.st_uid,
            gid: s.st_gid,
            rdev: s.st_rdev as u32,
            size: s.st_size as u64,
            disk_bytes: if offline { 0 } else { s.st_blocks as u64 * 512 },
            atime: Time::new(s.st_atime, s.st_atime_nsec as u32),
            mtime: Time::new(s.st_mtime, s.st_mtime_nsec as u32),
            ctime: Time::new(s.st_ctime, s.st_ctime_nsec as u32),
            btime: Time::default(),
        })
    }

    /// Attributes of a name; its node is known from now on.
    fn enter(&self, dir: &OwnedFd, name: &[u8]) -> FsResult<Attr> {
        let attr = self.attr_of(&rfs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).fs()?)?;
        let handle = handle_of(dir, name)?;
        self.nodes.lock().unwrap().insert(attr.ino.0, handle);
        Ok(attr)
    }

    /// Owner and mode of a new node: what the caller asked for, not what this process would give it.
    fn made(&self, cx: &Cx, dir: &OwnedFd, name: &[u8], mode: Option<u32>) -> FsResult<Attr> {
        if cx.uid != 0 || cx.gid != 0 {
            let uid = Some(rfs::Uid::from_raw(cx.uid));
            let keep_group = rfs::fstat(dir).fs()?.st_mode & libc::S_ISGID != 0;
            let gid = (!keep_group).then(|| rfs::Gid::from_raw(cx.gid));
            rfs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).fs()?;
        }
        if let Some(mut mode) = mode {
            let made = rfs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).fs()?.st_mode;
            mode |= made & libc::S_ISGID; // of a directory in a set-group-id directory
            rfs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty()).fs()?;
        }
        self.enter(dir, name)
    }

    fn opened(&self, fd: OwnedFd, attr: Attr, flags: OpenFlags) -> Opened {
        let handle = Handle(self.next.fetch_add(1, Relaxed));
        let resident = !self.tapes.lock().unwrap().contains_key(&attr.ino) && !self.pressure.load(Relaxed);
        let mut modes = self.modes.lock().unwrap();
        let mode = modes.entry(attr.ino).or_insert((0, resident));
        mode.0 += 1;
        let direct = mode.1;
        drop(modes);
        let fd = Arc::new(fd);
        let file = File { ino: attr.ino, fd: Arc::clone(&fd), nonblock: flags.nonblock };
        self.files.lock().unwrap().insert(handle, Arc::new(file));
        Opened { handle, attr, backing: direct.then_some(fd), parallel_writes: false }
    }

    fn file(&self, handle: Handle) -> FsResult<Arc<File>> {
        self.files.lock().unwrap().get(&handle).cloned().ok_or(FsError::BadHandle)
    }

    fn pread(file: &File, offset: u64, len: u32) -> FsResult<Vec<u8>> {
        let mut buffer = vec![0; len as usize];
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::pread(&file.fd, &mut buffer[filled..], offset + filled as u64).fs()? {
                0 => break,
                n => filled += n,
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    }

    fn oflags(flags: OpenFlags) -> OFlags {
        let mut o = match (flags.read, flags.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        } | OFlags::CLOEXEC;
        o.set(OFlags::APPEND, flags.append);
        o.set(OFlags::TRUNC, flags.truncate);
        o
    }

    /// Handles that are open.
    pub fn open_handles(&self) -> usize {
        self.files.lock().unwrap().len()
    }

    /// Makes a file pretend to be offline.
    pub fn purge(&self, ino: Ino) {
        self.tapes.lock().unwrap().insert(ino, Tape::default());
        self.watchers.lock().unwrap().iter().for_each(|w| w.attributes_changed(ino));
    }

    /// How often something waited for this file; None if it is resident.
    pub fn recalls(&self, ino: Ino) -> Option<u64> {
        self.tapes.lock().unwrap().get(&ino).map(|t| t.recalls)
    }

    /// How many wait for this file now.
    pub fn waiting(&self, ino: Ino) -> usize {
        self.tapes.lock().unwrap().get(&ino).map_or(0, |t| t.waiting.len())
    }

    /// The first `bytes` have come from tape; all of it makes the file resident.
    pub fn arrive(&self, ino: Ino, bytes: u64) {
        let size = rfs::fstat(self.node(ino).unwrap()).unwrap().st_size as u64;
        let ready = {
            let mut tapes = self.tapes.lock().unwrap();
            let Some(tape) = tapes.get_mut(&ino) else { return };
            tape.arrived = bytes;
            let all = bytes >= size;
            let (ready, rest) =
                std::mem::take(&mut tape.waiting).into_iter().partition(|(_, done)| match done {
                    Done::Read { offset, len, .. } => (offset + u64::from(*len)).min(size) <= bytes,
                    Done::Ready(_) => all,
                });
            tape.waiting = rest;
            if all {
                tapes.remove(&ino);
            }
            ready
        };
        self.complete(ready, None);
        self.watchers.lock().unwrap().iter().for_each(|w| w.attributes_changed(ino));
    }

    /// The recall failed: everyone who waits gets EIO.
    pub fn fail(&self, ino: Ino) {
        let all = self
            .tapes
            .lock()
            .unwrap()
            .get_mut(&ino)
            .map(|t| std::mem::take(&mut t.waiting))
            .unwrap_or_default();
        self.complete(all, Some(FsError::Io));
    }

    /// Every recall fails.
    pub fn fail_all(&self) {
        let all: Vec<Ino> = self.tapes.lock().unwrap().keys().copied().collect();
        all.into_iter().for_each(|ino| self.fail(ino));
    }

    /// Somebody else has changed attributes; returns when nobody remembers the old ones.
    pub fn attributes_changed(&self, ino: Ino) {
        for watcher in self.watchers.lock().unwrap().iter() {
            watcher.attributes_changed(ino);
            watcher.wait_forgotten();
        }
    }

    /// Tells the watchers, as another gateway would.
    pub fn entry_changed(&self, parent: Ino, name: &[u8]) {
        self.watchers.lock().unwrap().iter().for_each(|w| w.entry_changed(parent, name));
    }

    fn complete(&self, all: Vec<(WaitId, Done)>, error: Option<FsError>) {
        for (_, done) in all {
            match (done, error) {
                (Done::Read { done, .. }, Some(e)) => done(Err(e)),
                (Done::Ready(done), Some(e)) => done(Err(e)),
                (Done::Ready(done), None) => done(Ok(())),
                (Done::Read { handle, offset, len, done }, None) => {
                    done(self.file(handle).and_then(|f| Self::pread(&f, offset, len)));
                }
            }
        }
    }

    fn wait(&self, tape: &mut Tape, done: Done) -> WaitId {
        let id = WaitId(self.next.fetch_add(1, Relaxed));
        tape.recalls += 1;
        tape.waiting.push((id, done));
        id
    }

    fn list(&self, dir: Ino, cookie: u64, limit: usize) -> FsResult<(OwnedFd, Vec<DirEntry>)> {
        let node = self.node(dir)?;
        let fd = rfs::openat(&node, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .fs()?;
        rfs::seek(&fd, rfs::SeekFrom::Start(cookie)).fs()?;
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut entries = Vec::with_capacity(limit);
        {
            let mut raw = RawDir::new(&fd, &mut buffer);
            while let Some(entry) = raw.next() {
                let entry = entry.fs()?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                entries.push(DirEntry {
                    name: name.to_vec(),
                    ino: self.number(entry.ino()),
                    kind: kind(entry.file_type().as_raw_mode()),
                    cookie: entry.next_entry_cookie().min(i64::MAX as u64 - 16),
                });
                if entries.len() == limit {
                    break;
                }
            }
        }
        Ok((fd, entries))
    }
}

impl FileApi for Loopback {
    fn lookup(&self, _: &Cx, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.count.lookups.fetch_add(1, Relaxed);
        assert!(!self.panic_once.swap(false, Relaxed), "expected by a test");
        self.enter(&self.node(parent)?, name)
    }

    fn getattr(&self, _: &Cx, ino: Ino) -> FsResult<Attr> {
        self.count.getattrs.fetch_add(1, Relaxed);
        self.attr(&self.node(ino)?)
    }

    fn attr_term(&self, _: Ino) -> Duration {
        *self.term.lock().unwrap()
    }

    fn clear_set_id(&self, cx: &Cx, ino: Ino) -> FsResult<bool> {
        let attr = self.getattr(cx, ino)?;
        let group = if attr.mode & 0o010 != 0 { 0o2000 } else { 0 };
        let mode = attr.mode & !(0o4000 | group);
        let clears = attr.kind == FileKind::File && mode != attr.mode;
        if clears {
            self.setattr(cx, ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
        }
        Ok(clears)
    }

    fn setattr(&self, _: &Cx, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let node = self.node(ino)?;
        let path = proc_path(&node);
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(rfs::Uid::from_raw), set.gid.map(rfs::Gid::from_raw));
            rfs::chownat(&node, "", uid, gid, AtFlags::EMPTY_PATH).fs()?;
        }
        if let Some(mode) = set.mode {
            rfs::chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty()).fs()?;
        }
        if let Some(size) = set.size {
            self.end_reading_elsewhere();
            if size == 0 {
                self.tapes.lock().unwrap().remove(&ino);
            }
            let fd = rfs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).fs()?;
            rfs::ftruncate(&fd, size).fs()?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                rfs::Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
            rfs::utimensat(&node, "", &times, AtFlags::EMPTY_PATH).fs()?;
        }
        self.attr(&node)
    }

    fn readlink(&self, _: &Cx, ino: Ino) -> FsResult<Vec<u8>> {
        Ok(rfs::readlinkat(&self.node(ino)?, "", Vec::new()).fs()?.into_bytes())
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], node: &NewNode) -> FsResult<Attr> {
        let file_type = match node.kind {
            FileKind::File => FileType::RegularFile,
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::Directory | FileKind::Symlink => return Err(FsError::Invalid),
        };
        let dir = self.node(parent)?;
        rfs::mknodat(&dir, name, file_type, Mode::from_raw_mode(node.mode), u64::from(node.rdev)).fs()?;
        self.made(cx, &dir, name, Some(node.mode))
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> FsResult<Attr> {
        let dir = self.node(parent)?;
        rfs::mkdirat(&dir, name, Mode::from_raw_mode(mode)).fs()?;
        self.made(cx, &dir, name, Some(mode))
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Attr> {
        let dir = self.node(parent)?;
        rfs::symlinkat(target, &dir, name).fs()?;
        self.made(cx, &dir, name, None)
    }

    fn link(&self, _: &Cx, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let (node, dir) = (self.node(ino)?, self.node(parent)?);
        rfs::linkat(&node, "", &dir, name, AtFlags::EMPTY_PATH).fs()?;
        self.attr(&node)
    }

    fn unlink(&self, _: &Cx, parent: Ino, name: &[u8]) -> FsResult<()> {
        rfs::unlinkat(&self.node(parent)?, name, AtFlags::empty()).fs()
    }

    fn rmdir(&self, _: &Cx, parent: Ino, name: &[u8]) -> FsResult<()> {
        rfs::unlinkat(&self.node(parent)?, name, AtFlags::REMOVEDIR).fs()
    }

    fn rename(&self, _: &Cx, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> FsResult<()> {
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        let (source, target) = (self.node(from.0)?, self.node(to.0)?);
        rfs::renameat_with(&source, from.1, &target, to.1, flags).fs()
    }

    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, flags: OpenFlags) -> FsResult<Opened> {
        let dir = self.node(parent)?;
        let mut o = Self::oflags(flags) | OFlags::CREATE | OFlags::NOFOLLOW;
        o.set(OFlags::EXCL, flags.exclusive);
        if rfs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            self.end_reading_elsewhere();
        }
        let fd = rfs::openat(&dir, name, o, Mode::from_raw_mode(mode)).fs()?;
        let attr = self.made(cx, &dir, name, Some(mode))?;
        Ok(self.opened(fd, attr, flags))
    }

    fn may_wait_to_open(&self, ino: Ino, name: Option<&[u8]>, writes: bool) -> bool {
        let there =
            |name| self.node(ino).is_ok_and(|dir| rfs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok());
        writes && self.read_elsewhere.load(Relaxed) && name.is_none_or(there)
    }

    fn open(&self, _: &Cx, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        let node = self.node(ino)?;
        if flags.write {
            self.end_reading_elsewhere();
        }
        if flags.truncate {
            self.tapes.lock().unwrap().remove(&ino);
        }
        let fd = rfs::open(proc_path(&node), Self::oflags(flags), Mode::empty()).fs()?;
        let attr = self.attr(&node)?;
        Ok(self.opened(fd, attr, flags))
    }

    fn read(&self, handle: Handle, offset: u64, len: u32, done: ReadDone) -> Option<WaitId> {
        self.count.reads.fetch_add(1, Relaxed);
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(error) => {
                done(Err(error));
                return None;
            }
        };
        let size = rfs::fstat(&file.fd).unwrap().st_size as u64;
        let mut tapes = self.tapes.lock().unwrap();
        match tapes.get_mut(&file.ino) {
            Some(tape) if (offset + u64::from(len)).min(size) > tape.arrived => {
                if file.nonblock {
                    tape.recalls += 1;
                    drop(tapes);
                    done(Err(FsError::WouldBlock));
                    return None;
                }
                Some(self.wait(tape, Done::Read { handle, offset, len, done }))
            }
            _ => {
                drop(tapes);
                done(Self::pread(&file, offset, len));
                None
            }
        }
    }

    fn prepare_change(&self, ino: Ino, nonblock: bool, done: ReadyDone) -> Option<WaitId> {
        self.count.prepared.fetch_add(1, Relaxed);
        let mut tapes = self.tapes.lock().unwrap();
        match tapes.get_mut(&ino) {
            Some(tape) if !nonblock => Some(self.wait(tape, Done::Ready(done))),
            waits => {
                let result = if waits.is_some() { Err(FsError::WouldBlock) } else { Ok(()) };
                drop(tapes);
                done(result);
                None
            }
        }
    }

    fn cancel_wait(&self, wait: WaitId) {
        let found = {
            let mut tapes = self.tapes.lock().unwrap();
            let mut lists = tapes.values_mut().map(|t| &mut t.waiting);
            lists.find_map(|l| l.iter().position(|w| w.0 == wait).map(|i| l.remove(i)))
        };
        self.complete(found.into_iter().collect(), Some(FsError::Interrupted));
    }

    fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.count.writes.fetch_add(1, Relaxed);
        rustix::io::pwrite(&self.file(handle)?.fd, data, offset).fs()
    }

    fn flush(&self, _: Handle) -> FsResult<()> {
        self.count.flushes.fetch_add(1, Relaxed);
        drop(self.closing.lock());
        Ok(())
    }

    fn fsync(&self, handle: Handle, data_only: bool) -> FsResult<()> {
        self.count.fsyncs.fetch_add(1, Relaxed);
        let file = self.file(handle)?;
        if data_only { rfs::fdatasync(&file.fd).fs() } else { rfs::fsync(&file.fd).fs() }
    }

    fn release(&self, handle: Handle) {
        self.count.releases.fetch_add(1, Relaxed);
        let Some(file) = self.files.lock().unwrap().remove(&handle) else { return };
        let mut modes = self.modes.lock().unwrap();
        if let Some(mode) = modes.get_mut(&file.ino) {
            mode.0 -= 1;
            if mode.0 == 0 {
                modes.remove(&file.ino);
            }
        }
    }

    fn fallocate(&self, handle: Handle, mode: i32, offset: u64, len: u64) -> FsResult<()> {
        let flags = rfs::FallocateFlags::from_bits_retain(mode as u32);
        rfs::fallocate(&self.file(handle)?.fd, flags, offset, len).fs()
    }

    fn seek(&self, handle: Handle, offset: u64, seek: Seek) -> FsResult<u64> {
        let to = match seek {
            Seek::Data => rfs::SeekFrom::Data(offset),
            Seek::Hole => rfs::SeekFrom::Hole(offset),
        };
        rfs::seek(&self.file(handle)?.fd, to).fs()
    }

    fn readdir(&self, _: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<DirEntry>> {
        Ok(self.list(dir, cookie, limit)?.1)
    }

    fn readdir_plus(&self, _: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<(DirEntry, Attr)>> {
        let (fd, entries) = self.list(dir, cookie, limit)?;
        let with_attr = |e: DirEntry| match self.enter(&fd, &e.name) {
            Ok(attr) => Some(Ok((e, attr))),
            Err(FsError::NotFound) => None,
            Err(error) => Some(Err(error)),
        };
        entries.into_iter().filter_map(with_attr).collect()
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        if dir == Ino::ROOT {
            return Ok(dir);
        }
        Ok(self.enter(&self.node(dir)?, b"..")?.ino)
    }

    fn sync_names(&self) -> FsResult<()> {
        Ok(())
    }

    fn statfs(&self) -> FsResult<StatFs> {
        let s = rfs::fstatfs(&self.node(Ino::ROOT)?).fs()?;
        let unit = s.f_bsize as u64;
        Ok(StatFs {
            total_bytes: s.f_blocks * unit,
            free_bytes: s.f_bavail * unit,
            files: s.f_files - s.f_ffree,
        })
    }

    fn getxattr(&self, _: &Cx, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.count.getxattrs.fetch_add(1, Relaxed);
        let mut value = vec![0; 64 << 10];
        let n = rfs::getxattr(proc_path(&self.node(ino)?), name, &mut value).fs()?;
        value.truncate(n);
        Ok(value)
    }

    fn listxattr(&self, cx: &Cx, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let mut list = vec![0; 64 << 10];
        let n = rfs::listxattr(proc_path(&self.node(ino)?), &mut list).fs()?;
        let seen = |name: &&[u8]| !name.is_empty() && (cx.uid == 0 || !name.starts_with(b"trusted."));
        Ok(list[..n].split(|b| *b == 0).filter(seen).map(<[u8]>::to_vec).collect())
    }

    fn setxattr(&self, _: &Cx, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let flags = match mode {
            XattrMode::Any => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        rfs::setxattr(proc_path(&self.node(ino)?), name, value, flags).fs()
    }

    fn removexattr(&self, _: &Cx, ino: Ino, name: &[u8]) -> FsResult<()> {
        rfs::removexattr(proc_path(&self.node(ino)?), name).fs()
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.watchers.lock().unwrap().push(watcher);
    }
}
