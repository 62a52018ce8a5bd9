//! What can go wrong on a disk target.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use types::{ErrorClass, ObjectId};

/// Result of a disk operation.
pub type Result<T, E = DiskError> = std::result::Result<T, E>;

/// An error of a disk target.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file system has no blocks or inodes left, or a quota is used up (ENOSPC, EDQUOT).
    #[error(
        "no space left while {doing} {}: purge or migrate files (`thermo purge`), unpin files, or enlarge the disk below",
        path.display()
    )]
    NoSpace {
        /// What was being done.
        doing: &'static str,
        /// File or directory.
        path: PathBuf,
    },
    /// An object is not there.
    #[error("object {id} is missing: expected {}; run `thermo check` to see which file it belonged to", path.display())]
    Missing {
        /// The object.
        id: ObjectId,
        /// Where it should be.
        path: PathBuf,
    },
    /// An object that was to be made is there already; ids are never used twice, so its bytes are not touched.
    #[error(
        "object {id} exists already at {}: the catalogue is older than this disk target; restore the newer \
         catalogue, or run `thermo check`",
        path.display()
    )]
    Exists {
        /// The object.
        id: ObjectId,
        /// Where it is.
        path: PathBuf,
    },
    /// The operating system reports an error.
    #[error("{doing} {}: {source}; look at the kernel log and at the disk", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// File or directory.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Another process has this target open.
    #[error("disk target {} is in use by another process; stop that node first", path.display())]
    InUse {
        /// Directory of the target.
        path: PathBuf,
    },
    /// The directory is not a target that this version may use.
    #[error("disk target {} refused: {why}", path.display())]
    Refused {
        /// Directory of the target.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
}

impl DiskError {
    /// What the error means for a caller.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NoSpace { .. } => ErrorClass::NoSpace,
            Self::Missing { .. } => ErrorClass::NotFound,
            Self::Exists { .. } => ErrorClass::Exists,
            Self::Io { .. } => ErrorClass::Corrupt,
            Self::InUse { .. } => ErrorClass::Busy,
            Self::Refused { .. } => ErrorClass::Invalid,
        }
    }

    /// An error of the system while `doing` something with `path`.
    pub(crate) fn at(doing: &'static str, path: &Path, errno: Errno) -> Self {
        let path = path.to_path_buf();
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { doing, path },
            _ => Self::Io { doing, path, source: errno.into() },
        }
    }

    /// The same for an open descriptor; its path is looked up only now.
    pub(crate) fn on(doing: &'static str, fd: impl AsFd, errno: Errno) -> Self {
        let number = fd.as_fd().as_raw_fd();
        let path = std::fs::read_link(format!("/proc/self/fd/{number}"))
            .unwrap_or_else(|_| PathBuf::from(format!("descriptor {number}")));
        Self::at(doing, &path, errno)
    }
}
