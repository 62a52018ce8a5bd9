//! Why a mount or unmount did not happen, and what to do about it.

use std::io;
use std::path::PathBuf;
use types::ErrorClass;

/// Why mounting or unmounting failed. The text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE device.
    #[error(
        "cannot mount {mountpoint}: /dev/fuse does not exist. Load the module with `modprobe fuse` (in a container, pass the device with `--device /dev/fuse`)"
    )]
    NoFuse {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
    },
    /// The FUSE device cannot be opened.
    #[error(
        "cannot mount {mountpoint}: opening /dev/fuse failed: {source}. Run as root, or check the permissions of /dev/fuse"
    )]
    Device {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Not privileged.
    #[error(
        "cannot mount {mountpoint}: mounting needs root (CAP_SYS_ADMIN). Run as root, or use the node without a mount"
    )]
    NotPrivileged {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
    },
    /// The mount point does not exist.
    #[error(
        "cannot mount {mountpoint}: the directory does not exist. Create it with `mkdir -p {mountpoint}`"
    )]
    Missing {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
    },
    /// The way to a directory inside another mount is not the one that was told, or cannot be walked now.
    #[error(
        "cannot mount {mountpoint}: the directory is not found there: {source}. Symbolic links are not followed; it is looked for again"
    )]
    NotFound {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The mount point is not a directory.
    #[error("cannot mount {mountpoint}: it is not a directory. Name an empty directory")]
    NotADirectory {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
    },
    /// The mount point has entries that the mount would hide.
    #[error(
        "cannot mount {mountpoint}: the directory is not empty and its files would be hidden. Name an empty directory"
    )]
    NotEmpty {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
    },
    /// Something is mounted there already.
    #[error(
        "cannot mount {mountpoint}: a file system is already mounted there. Unmount it with `umount {mountpoint}`, or name another directory"
    )]
    AlreadyMounted {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
    },
    /// A dead mount of an earlier daemon could not be removed.
    #[error(
        "cannot mount {mountpoint}: a dead mount of an earlier daemon is there and could not be removed: {source}. Remove it with `umount -l {mountpoint}`"
    )]
    Stale {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// mount(2) or the first exchange with the kernel failed.
    #[error("cannot mount {mountpoint}: {doing} failed: {source}. See the kernel log (`dmesg`)")]
    Failed {
        /// Where the mount was wanted.
        mountpoint: PathBuf,
        /// The step.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Files are open or somebody's working directory is inside.
    #[error(
        "cannot unmount {mountpoint}: it is in use. See who uses it with `fuser -vm {mountpoint}`, close those programs and try again"
    )]
    Busy {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// umount(2) failed.
    #[error("cannot unmount {mountpoint}: {source}. Try `umount -l {mountpoint}`")]
    Unmount {
        /// The mount point.
        mountpoint: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl MountError {
    /// What whoever asked can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Missing { .. } | Self::NotFound { .. } => ErrorClass::NotFound,
            Self::NotADirectory { .. } | Self::NotEmpty { .. } | Self::AlreadyMounted { .. } => {
                ErrorClass::Invalid
            }
            Self::NoFuse { .. } | Self::Device { .. } | Self::NotPrivileged { .. } => ErrorClass::Denied,
            Self::Stale { .. } | Self::Busy { .. } | Self::Unmount { .. } => ErrorClass::Busy,
            Self::Failed { .. } => ErrorClass::Bug,
        }
    }
}
