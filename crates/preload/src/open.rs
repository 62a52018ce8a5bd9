//! An open file of the program, and how its bytes go.

use crate::log;
use crate::nodes::Found;
use crate::table::{Table, advance};
use client::ClientError;
use client::native::File;
use libc::{c_int, iovec};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::api::OpenFlags;

/// Flags with which bytes go otherwise than by offset and at once, or do not go at all.
const OTHERWISE: c_int = libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DIRECT
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_ASYNC
    | libc::O_PATH
    | libc::O_DIRECTORY;
/// Longest read or write that Linux does at once (bytes); a longer one is for the mount.
const LONGEST: usize = 0x7fff_f000;
/// A file is opened beside the mount when so many bytes of it were read or written: that takes as long as moving them through it.
const WORTH: u64 = 256 << 10;
/// Of what lies on targets only so many bytes at once count: each request is a way to a mover, and smaller writes the mount answers from memory.
const LARGE: usize = 64 << 10;
/// After so many more bytes is asked again whether a file with copies or parity may be read at its targets.
const LATER: u64 = 8 << 20;

/// For how long who syncs waits for a node that is started anew, as the mount of another host would, and how long between two attempts.
pub const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// Which file: device and inode.
pub type What = (u64, u64);

/// An open file; copies of its descriptor share it.
pub struct Open {
    /// Which.
    pub what: What,
    flags: OpenFlags,
    moved: AtomicU64,
    /// Of these, those that were moved many at once.
    moved_large: AtomicU64,
    /// It lies on targets.
    far: AtomicBool,
    /// Before so many were moved so nobody is asked again.
    due: AtomicU64,
    /// Its bytes go through the mount for good.
    left: AtomicBool,
    opening: Mutex<()>,
    direct: RwLock<Option<Arc<File>>>,
    read: AtomicU64,
    written: AtomicU64,
    /// Something was written to targets since the last sync.
    unsynced: AtomicBool,
    /// And may be lost, or nobody knows, as the file is not open beside the mount any more.
    unsure: AtomicBool,
    /// Something was lost, of which another descriptor of the file has heard.
    lost: AtomicBool,
    /// Held while something is synced.
    syncing: Mutex<()>,
}

/// The kernel asks how long the file is: pages behind the end that it knows cannot be touched.
pub fn measure(fd: c_int) {
    // SAFETY: a structure of numbers that is filled.
    unsafe { libc::fstat(fd, &mut std::mem::zeroed()) };
}

/// Device and inode of a regular file of a file system without a device; asks nobody but the kernel.
fn look(fd: c_int) -> Option<What> {
    // SAFETY: a structure of numbers.
    let mut seen: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty path, and a structure to be filled.
    let told = unsafe { libc::statx(fd, c"".as_ptr(), flags, libc::STATX_TYPE, &mut seen) };
    let regular = u32::from(seen.stx_mode) & libc::S_IFMT == libc::S_IFREG;
    (told == 0 && regular && seen.stx_dev_major == 0).then_some((seen.stx_dev_minor.into(), seen.stx_ino))
}

static AFTER: AtomicU64 = AtomicU64::new(WORTH);

/// Looks whether `THERMO_PRELOAD_AFTER` says something else than [`WORTH`].
pub fn begin() {
    let given = std::env::var("THERMO_PRELOAD_AFTER").ok().and_then(|bytes| bytes.parse().ok());
    AFTER.store(given.unwrap_or(WORTH), Ordering::Relaxed);
}

/// The bytes of all parts; None: that is for the mount, or nobody knows.
fn total(parts: &[iovec]) -> Option<usize> {
    let total = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len))?;
    (1..=LONGEST).contains(&total).then_some(total)
}

/// Whether there is a limit to the length of files that this process writes. The kernel sees to it where it writes itself.
fn is_limited() -> bool {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it fills the structure.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    told != 0 || limit.rlim_cur != libc::RLIM_INFINITY
}

/// Asks a node, again and again while it is away.
fn insist(until: Instant, ask: impl Fn() -> Result<(), ClientError>) -> Result<(), ClientError> {
    loop {
        match ask() {
            Err(e) if e.is_away() && Instant::now() < until => std::thread::sleep(PAUSE),
            answered => return answered,
        }
    }
}

impl Open {
    /// Whether a file that was opened with these flags can be one of these.
    pub fn may_be(flags: c_int) -> bool {
        flags & OTHERWISE == 0
    }

    /// What was just opened, if it may lie on a mount.
    pub fn new(fd: c_int, flags: c_int) -> Option<Self> {
        let mode = flags & libc::O_ACCMODE;
        Some(Self {
            what: look(fd)?,
            flags: OpenFlags {
                read: mode != libc::O_WRONLY,
                write: mode != libc::O_RDONLY,
                ..OpenFlags::default()
            },
            moved: AtomicU64::new(0),
            moved_large: AtomicU64::new(0),
            far: AtomicBool::new(false),
            due: AtomicU64::new(0),
            left: AtomicBool::new(false),
            opening: Mutex::new(()),
            direct: RwLock::default(),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            unsynced: AtomicBool::new(false),
            unsure: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            syncing: Mutex::new(()),
        })
    }

    /// From now on its bytes go through the mount. The node has told the kernel to forget what it knew of them when this returns, unless
    /// another thread is just reading or writing.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
        // Whoever syncs meanwhile waits for what comes of it.
        let one = self.syncing.lock();
        let file = self.direct.write().take();
        // The mount knows nothing of what was written past it, when it is to sync that.
        if let Some(file) = &file
            && self.unsynced.swap(false, Ordering::AcqRel)
            && insist(Instant::now() + PATIENCE, || file.sync()).is_err()
        {
            self.unsure.store(true, Ordering::Release);
        }
        drop(one);
        drop(file);
    }

    fn trouble(&self, doing: &str, error: &ClientError) {
        log::say(&format_args!("inode {}: {doing}: {error}; it goes through the mount again", self.what.1));
        self.leave();
    }

    /// The way past the mount for so many bytes, which may be many at once; None: through it.
    fn way(&self, table: &Table, fd: c_int, bytes: usize, large: bool) -> Option<Arc<File>> {
        if self.left.load(Ordering::Acquire) {
            return None;
        }
        // The program may have closed the descriptor in a way that is not seen here.
        if let Some(file) = self.direct.read().clone() {
            return Some(file).filter(|_| look(fd) == Some(self.what));
        }
        let add =
            |count: &AtomicU64, bytes: usize| count.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let moved = add(&self.moved, bytes);
        let moved_large = add(&self.moved_large, if large { bytes } else { 0 });
        let after = AFTER.load(Ordering::Relaxed);
        let counts = if self.far.load(Ordering::Relaxed) { moved_large } else { moved };
        if counts < after.max(self.due.load(Ordering::Relaxed)) {
            return None;
        }
        let _one = self.opening.try_lock()?;
        if look(fd) != Some(self.what) || self.left.load(Ordering::Acquire) {
            return None;
        }
        // Somebody else was there first.
        if let Some(file) = self.direct.read().clone() {
            return Some(file);
        }
        let (mapped, much) = (table.is_mapped(self.what), moved_large >= after);
        match table.nodes.open(fd, self.what.1, self.flags, much) {
            Found::Past(file) if !mapped => {
                log::say(&format_args!("inode {} goes past the mount", self.what.1));
                Some(self.direct.write().insert(Arc::from(file)).clone())
            }
            Found::Later if !mapped => {
                let why = if much {
                    "may not be read at its targets now"
                } else {
                    "the mount is as quick until more is moved at once"
                };
                log::say(&format_args!("inode {}: {why}", self.what.1));
                self.due.store(if much { moved_large + LATER } else { 0 }, Ordering::Relaxed);
                self.far.store(true, Ordering::Relaxed);
                None
            }
            _ => {
                self.leave();
                None
            }
        }
    }

    /// Reads at the position of the descriptor.
    ///
    /// # Safety
    /// `parts` are as readv(2) wants them.
    pub unsafe fn read(&self, table: &Table, fd: c_int, parts: &[iovec]) -> Option<usize> {
        let total = total(parts).filter(|_| self.flags.read)?;
        let file = self.way(table, fd, total, total >= LARGE)?;
        // The position moves first, as a whole: whoever shares it reads what follows.
        let at = advance(fd, total as i64)?;
        // SAFETY: the caller's promise.
        let read = unsafe { self.read_from(&file, parts, at) };
        if read != Some(total) {
            advance(fd, read.unwrap_or(0) as i64 - total as i64);
        }
        read
    }

    /// Writes at the position of the descriptor.
    ///
    /// # Safety
    /// `parts` are as writev(2) wants them.
    pub unsafe fn write(&self, table: &Table, fd: c_int, parts: &[iovec]) -> Option<usize> {
        let total = total(parts).filter(|_| self.flags.write)?;
        let file = self.way(table, fd, total, total > LARGE)?;
        let at = advance(fd, total as i64)?;
        // SAFETY: the caller's promise.
        let written = unsafe { self.write_to(&file, parts, at) };
        if written.is_none() {
            advance(fd, -(total as i64));
        }
        written
    }

    /// Reads at an offset.
    ///
    /// # Safety
    /// `parts` are as preadv(2) wants them.
    pub unsafe fn read_at(&self, table: &Table, fd: c_int, parts: &[iovec], at: i64) -> Option<usize> {
        let total = total(parts).filter(|_| self.flags.read)?;
        let file = self.way(table, fd, total, total >= LARGE)?;
        // SAFETY: the caller's promise.
        unsafe { self.read_from(&file, parts, at) }
    }

    /// Writes at an offset.
    ///
    /// # Safety
    /// `parts` are as pwritev(2) wants them.
    pub unsafe fn write_at(&self, table: &Table, fd: c_int, parts: &[iovec], at: i64) -> Option<usize> {
        let total = total(parts).filter(|_| self.flags.write)?;
        let file = self.way(table, fd, total, total > LARGE)?;
        // SAFETY: the caller's promise.
        unsafe { self.write_to(&file, parts, at) }
    }

    /// The node is told what was written past the mount; one that is away so long is not.
    pub fn tell(&self, until: Instant) {
        let file = self.direct.read().clone();
        let Some(file) = file else { return };
        match insist(until, || file.flush()) {
            Err(e) if !e.is_away() => self.trouble("telling the node", &e),
            _ => {}
        }
    }

    /// Somebody who synced another descriptor of the file has heard that something was lost: this one is to hear it too.
    pub fn note_loss(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether that is so; once.
    pub fn hears_of_loss(&self) -> bool {
        self.lost.swap(false, Ordering::AcqRel)
    }

    /// What was written past the mount is durable; false: it is not, or nobody knows. Waits so long for a node.
    pub fn sync(&self, until: Instant) -> bool {
        let one = self.syncing.lock();
        if self.unsure.swap(false, Ordering::AcqRel) {
            return false;
        }
        let file = self.direct.read().clone();
        let unsynced = self.unsynced.swap(false, Ordering::AcqRel);
        // Somebody was still writing past the mount when the file was given back to it.
        let Some(file) = file else { return !unsynced };
        // What the object has the mount's own call makes durable.
        if file.has_object() {
            return true;
        }
        let synced = insist(until, || file.sync());
        drop(one);
        synced.inspect_err(|e| self.trouble("syncing", e)).is_ok()
    }

    unsafe fn read_from(&self, file: &File, parts: &[iovec], at: i64) -> Option<usize> {
        let (at, mut read) = (u64::try_from(at).ok()?, 0);
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the caller's promise.
            let buffer = unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast(), part.iov_len) };
            match file.read_at(buffer, at + read as u64) {
                Ok(got) => {
                    read += got;
                    if got < buffer.len() {
                        break;
                    }
                }
                Err(e) => {
                    self.trouble("reading", &e);
                    return None;
                }
            }
        }
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Some(read)
    }

    /// All of it, or the mount writes it once more and says how far it came.
    unsafe fn write_to(&self, file: &File, parts: &[iovec], at: i64) -> Option<usize> {
        if !file.has_object() && is_limited() {
            log::say(&format_args!(
                "inode {}: its length has a limit; it goes through the mount",
                self.what.1
            ));
            self.leave();
            return None;
        }
        let (at, mut written) = (u64::try_from(at).ok()?, 0);
        let note = || self.unsynced.fetch_or(!file.has_object(), Ordering::AcqRel);
        note();
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the caller's promise.
            let data = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            if let Err(e) = file.write_at(data, at + written as u64) {
                self.trouble("writing", &e);
                return None;
            }
            written += data.len();
        }
        note();
        self.written.fetch_add(written as u64, Ordering::Relaxed);
        Some(written)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Nobody can ask whether it is durable any more.
        self.unsynced.store(false, Ordering::Release);
        self.leave();
        let (read, written) = (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed));
        if read + written > 0 {
            log::say(&format_args!(
                "inode {}: {read} bytes read and {written} written past the mount",
                self.what.1
            ));
        }
    }
}
