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
    /// A flush has failed, and what it should have flushed is not yet taken away.
    lost: bool,
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
        let result = match self.unsynced.lost {
            true => Err(io::Error::other("an earlier flush failed")),
            false => self.try_flush(),
        };
        if result.is_err() {
            self.unsynced.lost = true;
            self.unsynced.clear();
            for partition in 0..self.partitions() {
                let flushed = self.partitions[usize::from(partition)].flushed;
                self.truncate(partition, flushed)?;
            }
            self.unsynced.lost = false;
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

#[cfg(test)]
mod tests {
    use super::super::Meta;
    use super::*;
    use crate::fault::{Fault, Faults};
    use std::sync::Arc;

    #[test]
    fn what_a_flush_has_lost_is_never_taken_for_flushed() {
        let base = tempfile::tempdir().unwrap();
        let (dir, barcode) = (base.path().join("TC0001L9"), "TC0001L9");
        Cartridge::create(&dir, &Meta::new("1".into(), 1 << 20)).unwrap();
        let faults = Arc::new(Faults::default());
        let mut cartridge = Cartridge::open(&dir, barcode, faults.clone()).unwrap();
        cartridge.write_record(0, 0, b"kept", None).unwrap();
        cartridge.flush().unwrap();
        cartridge.write_record(0, 1, b"lost", None).unwrap();
        // Neither can it be synced, nor taken away.
        let record = dir.join("0_1_R");
        std::fs::remove_file(&record).unwrap();
        std::fs::create_dir(&record).unwrap();
        faults.add(Fault::HostError { barcode: barcode.into(), op: HostOp::Sync, errno: 5 });
        assert!(cartridge.flush().is_err());
        faults.clear();
        assert!(cartridge.flush().is_err() && cartridge.dirty(), "nobody knows what of it arrived");
        std::fs::remove_dir(&record).unwrap();
        assert!(cartridge.flush().is_err(), "it is told of until it is gone");
        assert_eq!((cartridge.index(0).end(), cartridge.dirty()), (1, false));
        cartridge.write_record(0, 1, b"new", None).unwrap();
        cartridge.flush().unwrap();
        assert_eq!(Cartridge::open(&dir, barcode, faults).unwrap().index(0).end(), 2);
    }
}
