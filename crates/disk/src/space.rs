//! Space of the file system below a target, and of objects in it.

use crate::{DiskError, DiskTarget, Result};
use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Space of the file system that holds a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsSpace {
    /// Size (bytes).
    pub total: u64,
    /// Bytes that may still be written.
    pub free: u64,
    /// Files that may still be made (0 where the file system has no such limit: see `inodes_total`).
    pub inodes_free: u64,
    /// Files that fit in all; 0 when the file system has no fixed number.
    pub inodes_total: u64,
}

impl DiskTarget {
    /// Space of the file system that holds this target.
    ///
    /// # Errors
    /// `Io`.
    pub fn fs_space(&self) -> Result<FsSpace> {
        let stat = fs::fstatvfs(self.objects())
            .map_err(|e| DiskError::at("asking for the space of", self.dir(), e))?;
        Ok(FsSpace {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            inodes_free: stat.f_favail,
            inodes_total: stat.f_files,
        })
    }

    /// Reserves blocks for `offset..offset + len` without changing the length (recalls, so that a full disk shows
    /// before the tape moves). False when the file system cannot reserve: then writes may still find it full.
    /// Changes ctime.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn preallocate(&self, object: impl AsFd, offset: u64, len: u64) -> Result<bool> {
        if len == 0 {
            return Ok(true);
        }
        match fs::fallocate(&object, FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(e) => Err(DiskError::on("reserving space for", object, e)),
        }
    }

    /// Frees the blocks of a range; it reads as zeros. The length stays.
    ///
    /// # Errors
    /// `Io` (also where the file system has no holes).
    pub fn punch_hole(&self, object: impl AsFd, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fs::fallocate(&object, flags, offset, len)
            .map_err(|e| DiskError::on("punching a hole into", object, e))
    }
}
