//! Content of open objects: stamps, reading and writing at an offset, length, durability, data and holes.

use crate::{DiskError, DiskTarget, Result};
use rustix::fs::{self, AtFlags, SeekFrom, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use types::{ObjectStamp, Time};

impl DiskTarget {
    /// The stamp of an open object. Asking arms the kernel (6.13 and newer: ext4, XFS, Btrfs, tmpfs) to give the next
    /// change a new ctime however soon it comes; older kernels may repeat a ctime within one clock tick (1 to 10 ms).
    /// `allocated` may change without a change of content (delayed and speculative allocation): compare with
    /// [`ObjectStamp::same_content`].
    ///
    /// # Errors
    /// `Io`.
    pub fn stamp(&self, object: impl AsFd) -> Result<ObjectStamp> {
        let want = StatxFlags::SIZE | StatxFlags::BLOCKS | StatxFlags::MTIME | StatxFlags::CTIME;
        let stat = fs::statx(&object, c"", AtFlags::EMPTY_PATH, want)
            .map_err(|e| DiskError::on("looking at", &object, e))?;
        Ok(ObjectStamp {
            size: stat.stx_size,
            allocated: stat.stx_blocks * 512,
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
        })
    }

    /// Reads at `offset` until `buf` is full or the object ends; says how many bytes it got.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_at(&self, object: impl AsFd, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&object, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(DiskError::on("reading", object, e)),
            }
        }
        Ok(done)
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// `NoSpace` (a part may be written), `Io`.
    pub fn write_at(&self, object: impl AsFd, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(&object, &data[done..], offset + done as u64) {
                Ok(0) => return Err(DiskError::on("writing", object, Errno::IO)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(DiskError::on("writing", object, e)),
            }
        }
        Ok(())
    }

    /// Sets the length (bytes); what is new reads as zeros. Also frees what was preallocated behind it.
    ///
    /// # Errors
    /// `Io`.
    pub fn set_len(&self, object: impl AsFd, len: u64) -> Result<()> {
        fs::ftruncate(&object, len).map_err(|e| DiskError::on("setting the length of", object, e))
    }

    /// Makes data and length durable, not times (fdatasync).
    ///
    /// # Errors
    /// `NoSpace`, `Io`: what was written since the last good sync may be lost; a second sync proves nothing.
    pub fn sync(&self, object: impl AsFd) -> Result<()> {
        fs::fdatasync(&object).map_err(|e| DiskError::on("syncing", object, e))
    }

    /// Makes data, length and times durable (fsync): before a stamp is recorded durably.
    ///
    /// # Errors
    /// As [`DiskTarget::sync`].
    pub fn sync_all(&self, object: impl AsFd) -> Result<()> {
        fs::fsync(&object).map_err(|e| DiskError::on("syncing", object, e))
    }

    /// Makes everything written to this target so far durable, times and names included: one syncfs serves any number
    /// of objects.
    ///
    /// The kernel tells a lost write to one caller only. Whoever was writing while another one got the error learns of
    /// it by [`DiskTarget::failed_syncs`]: note it before the first write, and compare after the sync.
    ///
    /// # Errors
    /// As [`DiskTarget::sync`], for anything written to the file system.
    pub fn sync_fs(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = fs::syncfs(&self.root).map_err(|e| DiskError::at("syncing", self.dir(), e));
        self.failed_syncs.fetch_add(u64::from(synced.is_err()), Ordering::AcqRel);
        synced
    }

    /// How many calls of [`DiskTarget::sync_fs`] have failed. Does not wait for one that runs.
    pub fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::Acquire)
    }

    /// The ranges of `0..size` that hold data, in order, found step by step (SEEK_DATA, SEEK_HOLE). What lies between
    /// is zeros. Moves the file offset of the descriptor.
    pub fn data_ranges<'a>(&self, object: &'a impl AsFd, size: u64) -> DataRanges<'a> {
        DataRanges { object: object.as_fd(), next: 0, size }
    }
}

/// Iterator of [`DiskTarget::data_ranges`]. Ends after an error.
#[derive(Debug)]
pub struct DataRanges<'a> {
    object: BorrowedFd<'a>,
    next: u64,
    size: u64,
}

impl DataRanges<'_> {
    fn seek(&self) -> Result<Option<Range<u64>>, Errno> {
        let start = match fs::seek(self.object, SeekFrom::Data(self.next)) {
            Ok(start) if start < self.size => start,
            Ok(_) | Err(Errno::NXIO) => return Ok(None),
            Err(e) => return Err(e),
        };
        let end = match fs::seek(self.object, SeekFrom::Hole(start)) {
            Ok(end) => end.min(self.size),
            // Truncated in between: the caller sees it by the stamp.
            Err(Errno::NXIO) => return Ok(None),
            Err(e) => return Err(e),
        };
        // A hole punched in between gives an empty range: call it one byte of data (it reads as zero), so that every
        // step moves on.
        Ok(Some(start..end.max(start + 1)))
    }
}

impl Iterator for DataRanges<'_> {
    type Item = Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.size {
            return None;
        }
        match self.seek() {
            Ok(Some(range)) => {
                self.next = range.end;
                Some(Ok(range))
            }
            Ok(None) => {
                self.next = self.size;
                None
            }
            Err(e) => {
                self.next = self.size;
                Some(Err(DiskError::on("looking for holes in", self.object, e)))
            }
        }
    }
}

fn time(stamp: StatxTimestamp) -> Time {
    Time::new(stamp.tv_sec, stamp.tv_nsec)
}
