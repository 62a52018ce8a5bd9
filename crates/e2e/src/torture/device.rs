//! A disk that remembers what was written when, and when it was told to flush: `disk.img` in a small FUSE file system,
//! made for a loop device. What a power failure would have left at any moment can be made from the record afterwards.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, Session, SessionACL, WriteFlags,
};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// Name of the file.
const IMAGE: &str = "disk.img";
const IMAGE_INO: INodeNo = INodeNo(2);
/// How long the kernel may remember attributes: they never change.
const TTL: Duration = Duration::from_secs(3600);

/// One thing that the disk was told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Bytes were written at `offset` of the disk; they are at `at` of the record.
    Write {
        /// Where on the disk (bytes).
        offset: u64,
        /// Where in the record (bytes).
        at: u64,
        /// How many bytes.
        length: u32,
    },
    /// Everything answered so far is on stable storage from here on.
    Flush,
}

/// What was recorded.
pub struct Record {
    /// In order.
    pub entries: Vec<Entry>,
    /// The bytes of all writes.
    pub bytes: File,
}

struct Shared {
    disk: File,
    size: u64,
    record: Mutex<Record>,
    /// Number of entries.
    position: Arc<AtomicU64>,
}

/// The recording disk, mounted as a file system of one file.
pub struct Recorder {
    shared: Arc<Shared>,
    mountpoint: PathBuf,
    session: Option<BackgroundSession>,
}

impl Recorder {
    /// Records what happens to the disk image `disk`; it appears as the file [`Recorder::image`] below `mountpoint`. The
    /// record grows in the new file `record`.
    pub fn start(disk: &Path, record: &Path, mountpoint: &Path) -> io::Result<Self> {
        let options = || File::options().read(true).write(true).clone();
        let disk = options().open(disk)?;
        let bytes = options().create_new(true).open(record)?;
        let size = disk.metadata()?.len();
        let record = Mutex::new(Record { entries: Vec::new(), bytes });
        let shared = Arc::new(Shared { disk, size, record, position: Arc::default() });
        let fuse = File::options().read(true).write(true).open("/dev/fuse")?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", fuse.as_raw_fd());
        let data = CString::new(data)?;
        rustix::mount::mount(
            "recorder",
            mountpoint,
            "fuse.recorder",
            MountFlags::empty(),
            Some(data.as_c_str()),
        )?;
        let session =
            Session::from_fd(Server(shared.clone()), fuse.into(), SessionACL::All, Config::default())
                .and_then(Session::spawn)
                .inspect_err(|_| {
                    let _ = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH);
                })?;
        Ok(Self { shared, mountpoint: mountpoint.into(), session: Some(session) })
    }

    /// The file to put a loop device on.
    pub fn image(&self) -> PathBuf {
        self.mountpoint.join(IMAGE)
    }

    /// Number of entries recorded, counted as they come.
    pub fn position(&self) -> Arc<AtomicU64> {
        self.shared.position.clone()
    }

    /// Ends the recording; the disk must not be in use any more.
    pub fn finish(mut self) -> io::Result<Record> {
        rustix::mount::unmount(&self.mountpoint, UnmountFlags::empty())?;
        if let Some(session) = self.session.take() {
            session.join()?;
        }
        let mut record = self.shared.record.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Record { entries: std::mem::take(&mut record.entries), bytes: record.bytes.try_clone()? })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.session.is_some() {
            let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
        }
    }
}

struct Server(Arc<Shared>);

impl Shared {
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let at = record.entries.iter().rev().find_map(|e| match e {
            Entry::Write { at, length, .. } => Some(at + u64::from(*length)),
            Entry::Flush => None,
        });
        let at = at.unwrap_or(0);
        record.bytes.write_all_at(data, at)?;
        self.disk.write_all_at(data, offset)?;
        record.entries.push(Entry::Write { offset, at, length: data.len() as u32 });
        self.position.store(record.entries.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    fn flush(&self) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.entries.push(Entry::Flush);
        self.position.store(record.entries.len() as u64, Ordering::SeqCst);
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let file = ino == IMAGE_INO;
        FileAttr {
            ino,
            size: if file { self.size } else { 0 },
            blocks: if file { self.size / 512 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: if file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == IMAGE {
            reply.entry(&TTL, &self.0.attr(IMAGE_INO), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.0.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = self.0.size.saturating_sub(offset).min(u64::from(size));
        let mut data = vec![0; length as usize];
        match self.0.disk.read_exact_at(&mut data, offset) {
            Ok(()) => reply.data(&data),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.flush();
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}
