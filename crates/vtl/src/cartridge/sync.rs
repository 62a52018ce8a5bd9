//! From the host's page cache to its stable storage.

use super::{Cartridge, end_name};
use crate::fault::HostOp;
use rustix::fs::renameat;
use std::fs::File;
use std::io;

/// Up to this many records since the last flush are synced one by one; more are cheaper (and not slowed much by other
/// users of the file system) with one syncfs.
const ONE_BY_ONE: usize = 8;

/// Records whose bytes may still be in the page cache only.
#[derive(Default)]
pub(super) struct Unsynced {
    files: Vec<File>,
    overflow: bool,
}

impl Unsynced {
    /// Notes a written record.
    pub(super) fn add(&mut self, file: File) {
        if self.files.len() < ONE_BY_ONE && !self.overflow {
            self.files.push(file);
        } else {
            self.overflow = true;
            self.files.clear();
        }
    }

    fn sync(&mut self, fs: &std::os::fd::OwnedFd) -> io::Result<()> {
        if self.overflow {
            rustix::fs::syncfs(fs)?;
        }
        for file in &self.files {
            file.sync_data()?;
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.files.clear();
        self.overflow = false;
    }
}

impl Cartridge {
    /// Brings everything written so far to stable storage: first the records, then the end-of-data mark behind them.
    /// On an error everything since the last good flush is given up, as it cannot be known what of it arrived.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.dirty() {
            return Ok(());
        }
        let result = self.try_flush();
        if result.is_err() {
            self.unsynced.clear();
            for partition in 0..self.partitions() {
                let flushed = self.partitions[usize::from(partition)].flushed;
                self.truncate(partition, flushed)?;
            }
        }
        result
    }

    fn try_flush(&mut self) -> io::Result<()> {
        self.host(HostOp::Sync)?;
        self.unsynced.sync(&self.fd)?;
        let before: Vec<u64> = self.partitions.iter().map(|p| p.flushed).collect();
        for number in 0..self.partitions() {
            self.move_end(number, self.index(number).end())?;
        }
        let synced = self.sync_names();
        if synced.is_err() {
            // Nobody may take for flushed what perhaps is not: not the next flush, and nobody who opens the cartridge.
            for (number, end) in before.into_iter().enumerate() {
                self.move_end(number as u8, end)?;
            }
        }
        synced
    }

    /// Moves the end-of-data mark of a partition.
    fn move_end(&mut self, partition: u8, end: u64) -> io::Result<()> {
        let p = &mut self.partitions[usize::from(partition)];
        if p.flushed != end {
            renameat(&self.fd, end_name(partition, p.flushed), &self.fd, end_name(partition, end))?;
            p.flushed = end;
        }
        Ok(())
    }
}
