//! The target itself: opening it, and making, opening and removing objects.

use crate::{DiskError, Result, marker};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use types::{ObjectId, ObjectStamp};

const OBJECTS: &str = "objects";
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const DIR_MODE: Mode = Mode::from_raw_mode(0o700);
const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// One disk target, locked for this process until it is dropped. All methods may be called from any thread.
#[derive(Debug)]
pub struct DiskTarget {
    dir: PathBuf,
    uuid: String,
    objects: OwnedFd,
    /// Holds the lock, and since the start sees every error of writing back.
    pub(crate) root: OwnedFd,
    /// Held during a sync of the whole, so that nobody passes while another caller is told of a lost write.
    pub(crate) syncing: Mutex<()>,
    pub(crate) failed_syncs: AtomicU64,
}

impl DiskTarget {
    /// Opens the target at `dir`, making it when the directory is missing or empty (a lone `lost+found` counts as
    /// empty), and locks it against other processes.
    ///
    /// # Errors
    /// `InUse` when another process holds it; `Refused` when the directory holds something else, or a target of a
    /// newer format; `NoSpace`, `Io`.
    pub fn open(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(|e| DiskError::Io {
            doing: "making directory",
            path: dir.to_path_buf(),
            source: e,
        })?;
        let root = fs::open(dir, DIR_FLAGS, Mode::empty()).map_err(|e| DiskError::at("opening", dir, e))?;
        match fs::flock(&root, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(DiskError::InUse { path: dir.to_path_buf() }),
            Err(e) => return Err(DiskError::at("locking", dir, e)),
        }
        let uuid = marker::read_or_make(dir, &root)?;
        let objects = open_objects(dir, &root)?;
        Ok(Self {
            dir: dir.to_path_buf(),
            uuid,
            objects,
            root,
            syncing: Mutex::default(),
            failed_syncs: AtomicU64::default(),
        })
    }

    /// Which target a directory holds, if it holds one: what [`DiskTarget::uuid`] would say. Makes nothing and takes no lock.
    ///
    /// # Errors
    /// `Refused` when its marker is not one of ours, or of a newer format; `Io`.
    pub fn identity(dir: &Path) -> Result<Option<String>> {
        marker::read(dir)
    }

    /// Directory of the target.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Identity of the target, made when it was first opened.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Path of an object, for messages and for tools; the object need not exist.
    pub fn path(&self, id: ObjectId) -> PathBuf {
        self.dir.join(OBJECTS).join(relative(id))
    }

    pub(crate) fn objects(&self) -> &OwnedFd {
        &self.objects
    }

    /// Makes empty objects and syncs each directory that they fell into once, so that creating a file later costs only
    /// one [`DiskTarget::open_object`]. Ids of one batch should be consecutive: 256 of them share a directory. Returns how each object is
    /// now, and stays until somebody changes it.
    ///
    /// # Errors
    /// `Exists` when an object is there already, `NoSpace`, `Io`. What was made before the error is removed again as
    /// far as possible; the ids of the batch must not be used.
    pub fn precreate(&self, ids: impl IntoIterator<Item = u64>) -> Result<Vec<(ObjectId, ObjectStamp)>> {
        let mut made = Vec::new();
        match self.make_all(ids, &mut made) {
            Ok(()) => Ok(made),
            Err(e) => {
                // Best effort: a leftover is harmless, nobody refers to it and the start-up sweep finds it.
                made.into_iter().for_each(|(id, _)| drop(self.remove(id)));
                Err(e)
            }
        }
    }

    fn make_all(
        &self,
        ids: impl IntoIterator<Item = u64>,
        made: &mut Vec<(ObjectId, ObjectStamp)>,
    ) -> Result<()> {
        let mut touched = BTreeSet::new();
        for id in ids.into_iter().map(ObjectId) {
            let fd = self.make(id)?;
            made.push((id, ObjectStamp::default())); // removed with the others if it cannot be looked at
            let stamp = self.stamp(&fd)?;
            made.last_mut().into_iter().for_each(|last| last.1 = stamp);
            touched.insert(fan_out(id));
        }
        touched.into_iter().try_for_each(|number| self.sync_directory(number))
    }

    /// Makes one new empty object, durably (syncs its directory), and opens it for reading and writing.
    ///
    /// # Errors
    /// As [`DiskTarget::precreate`].
    pub fn create(&self, id: ObjectId) -> Result<OwnedFd> {
        let fd = self.make(id)?;
        if let Err(error) = self.sync_directory(fan_out(id)) {
            drop(self.remove(id));
            return Err(error);
        }
        Ok(fd)
    }

    /// Opens an object for reading, or for reading and writing. One system call.
    ///
    /// # Errors
    /// `Missing`, `Io`.
    pub fn open_object(&self, id: ObjectId, write: bool) -> Result<OwnedFd> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        fs::openat(&self.objects, relative(id), flags, Mode::empty())
            .map_err(|e| self.error("opening", id, e))
    }

    /// Whether an object is there.
    ///
    /// # Errors
    /// `Io`.
    pub fn exists(&self, id: ObjectId) -> Result<bool> {
        match fs::statat(&self.objects, relative(id), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(self.error("looking at", id, e)),
        }
    }

    /// Removes an object and says how many bytes it occupied; they are free once its last descriptor is closed.
    /// Not synced: see point 4 of the crash discipline, and [`DiskTarget::sync_entries`].
    ///
    /// # Errors
    /// `Missing`, `Io`.
    pub fn remove(&self, id: ObjectId) -> Result<u64> {
        let name = relative(id);
        let stat = fs::statat(&self.objects, &name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| self.error("looking at", id, e))?;
        fs::unlinkat(&self.objects, &name, AtFlags::empty()).map_err(|e| self.error("removing", id, e))?;
        Ok(stat.st_blocks.unsigned_abs() * 512)
    }

    /// Makes the presence or absence of these objects durable: syncs each directory that they fall into once.
    ///
    /// # Errors
    /// `Io`.
    pub fn sync_entries(&self, ids: &[ObjectId]) -> Result<()> {
        let touched: BTreeSet<u8> = ids.iter().map(|id| fan_out(*id)).collect();
        touched.into_iter().try_for_each(|number| self.sync_directory(number))
    }

    fn make(&self, id: ObjectId) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        fs::openat(&self.objects, relative(id), flags, FILE_MODE).map_err(|e| match e {
            Errno::EXIST => DiskError::Exists { id, path: self.path(id) },
            e => DiskError::at("making object", &self.path(id), e),
        })
    }

    fn sync_directory(&self, number: u8) -> Result<()> {
        let name = directory(number);
        fs::openat(&self.objects, &name, DIR_FLAGS, Mode::empty())
            .and_then(fs::fsync)
            .map_err(|e| DiskError::at("syncing directory", &self.dir.join(OBJECTS).join(&name), e))
    }

    fn error(&self, doing: &'static str, id: ObjectId, errno: Errno) -> DiskError {
        match errno {
            Errno::NOENT => DiskError::Missing { id, path: self.path(id) },
            e => DiskError::at(doing, &self.path(id), e),
        }
    }
}

/// Number of the directory that holds an object.
pub(crate) fn fan_out(id: ObjectId) -> u8 {
    (id.0 >> 8) as u8
}

/// Name of a fan-out directory.
pub(crate) fn directory(number: u8) -> String {
    format!("{number:02x}")
}

/// Name of an object below `objects`.
fn relative(id: ObjectId) -> String {
    format!("{:02x}/{:016x}", fan_out(id), id.0)
}

/// Opens `objects`, making it and the 256 directories in it where they are missing, durably.
fn open_objects(dir: &Path, root: &OwnedFd) -> Result<OwnedFd> {
    let path = dir.join(OBJECTS);
    let fail = |doing| {
        let path = &path;
        move |e| DiskError::at(doing, path, e)
    };
    let mut new = made(fs::mkdirat(root, OBJECTS, DIR_MODE)).map_err(fail("making directory"))?;
    let objects = fs::openat(root, OBJECTS, DIR_FLAGS, Mode::empty()).map_err(fail("opening"))?;
    for number in 0..=u8::MAX {
        new |= made(fs::mkdirat(&objects, directory(number), DIR_MODE))
            .map_err(fail("making directories in"))?;
    }
    if new {
        fs::fsync(&objects).and_then(|()| fs::fsync(root)).map_err(fail("syncing directory"))?;
    }
    Ok(objects)
}

/// Whether a directory is new; that it exists already is fine.
fn made(outcome: Result<(), Errno>) -> Result<bool, Errno> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(e),
    }
}
