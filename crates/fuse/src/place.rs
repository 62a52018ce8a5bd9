//! Directories inside a mount on which something else is to be mounted. Users may rename what lies on the way there, and put symbolic links in its place.

use crate::error::MountError;
use crate::mount::Mount;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno as Sys;
use rustix::mount::{UnmountFlags, unmount};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Dead mounts that may lie over each other.
const MOST_DEAD: usize = 16;

/// A directory that was found.
pub struct Place {
    /// It, or the root of what is mounted there.
    pub(crate) dir: OwnedFd,
    pub(crate) path: PathBuf,
    device: (u32, u32),
    ino: u64,
}

/// What the kernel knows of an open directory without asking anybody.
pub(crate) struct Look {
    pub(crate) device: (u32, u32),
    pub(crate) ino: u64,
    /// Number of the mount by which it was opened.
    pub(crate) mount: u64,
}

impl Place {
    /// The directory `inside` a mount, found from the mount's root without following any symbolic link. A dead mount that lies there is removed.
    ///
    /// # Errors
    /// [`MountError::NotFound`]: the way there is another one, or cannot be walked now.
    pub fn below(top: &Mount, inside: &Path) -> Result<Self, MountError> {
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        let path = top.mountpoint().join(inside);
        let lost = |source: Sys| MountError::NotFound { mountpoint: path.clone(), source: source.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(top.mountpoint(), flags, Mode::empty()).map_err(lost)?;
        if look(&root).map_err(lost)?.device != top.device() {
            return Err(lost(Sys::XDEV));
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MOST_DEAD {
            let dir = openat2(&root, inside, flags, Mode::empty(), resolve).map_err(lost)?;
            let seen = look(&dir).map_err(lost)?;
            if seen.device == top.device() || !is_dead(&dir) {
                return Ok(Self { dir, path, device: seen.device, ino: seen.ino });
            }
            tracing::warn!(mountpoint = %path.display(), "removing a dead mount");
            unmount(by_descriptor(&dir), UnmountFlags::DETACH)
                .map_err(|source| MountError::Stale { mountpoint: path.clone(), source: source.into() })?;
        }
        Err(MountError::Stale { mountpoint: path, source: Sys::NOTCONN.into() })
    }

    /// Number of the file system that is there: that of the mount in which the directory lies, or of one that is mounted on it.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Its inode number.
    pub fn ino(&self) -> u64 {
        self.ino
    }
}

pub(crate) fn look(dir: &OwnedFd) -> Result<Look, Sys> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let seen = statx(dir, "", flags, StatxFlags::INO | StatxFlags::MNT_ID)?;
    let device = (seen.stx_dev_major, seen.stx_dev_minor);
    Ok(Look { device, ino: seen.stx_ino, mount: seen.stx_mnt_id })
}

/// A mount whose daemon is gone answers everything with ENOTCONN.
fn is_dead(root: &OwnedFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    matches!(statx(root, "", flags, StatxFlags::BASIC_STATS), Err(Sys::NOTCONN | Sys::CONNABORTED))
}

/// For calls that know paths only: they find what is uppermost at the directory.
pub(crate) fn by_descriptor(dir: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", dir.as_raw_fd())
}
