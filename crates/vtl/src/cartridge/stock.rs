//! Files that lie ready for records: their memory or disk space need not be found while they are written.

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Files of one length, on the file system of the cartridges.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    files: parking_lot::Mutex<(u64, Vec<PathBuf>)>,
}

impl Stock {
    /// All files of `dir`, in no order, for records of just `length` bytes, which is that of each of them.
    pub(crate) fn fill(&self, dir: &Path, length: u64) -> io::Result<()> {
        let files = std::fs::read_dir(dir)?.map(|entry| entry.map(|e| e.path()));
        *self.files.lock() = (length, files.collect::<io::Result<_>>()?);
        Ok(())
    }

    /// One of them, open for writing under its new name, which nothing has yet; None: there is none for such a record.
    pub(crate) fn take(&self, length: u64, dir: impl AsFd, name: &str) -> io::Result<Option<File>> {
        let mut files = self.files.lock();
        let Some(file) = (files.0 == length).then(|| files.1.pop()).flatten() else { return Ok(None) };
        drop(files);
        renameat_with(CWD, &file, &dir, name, RenameFlags::NOREPLACE)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(Some(File::from(openat(dir, name, flags, Mode::empty())?)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cartridge, Meta};
    use crate::fault::Faults;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    #[test]
    fn records_go_into_files_of_their_length_that_lie_ready_and_are_what_was_written() {
        let base = tempfile::tempdir().unwrap();
        let (dir, ready, barcode) = (base.path().join("TC0001L9"), base.path().join("ready"), "TC0001L9");
        Cartridge::create(&dir, &Meta::new("1".into(), 1 << 20)).unwrap();
        std::fs::create_dir(&ready).unwrap();
        std::fs::write(ready.join("0"), [9; 100]).unwrap();
        let inode = std::fs::metadata(ready.join("0")).unwrap().ino();
        let faults = Arc::new(Faults::default());
        let mut cartridge = Cartridge::open(&dir, barcode, faults.clone()).unwrap();
        cartridge.stock.fill(&ready, 100).unwrap();
        let records = [vec![1; 99], vec![2; 100], vec![3; 100]];
        for (record, at) in records.iter().zip(0..) {
            cartridge.write_record(0, at, record, None).unwrap();
        }
        assert_eq!(std::fs::read_dir(&ready).unwrap().count(), 0);
        assert_eq!(std::fs::metadata(dir.join("0_1_R")).unwrap().ino(), inode);
        cartridge.flush().unwrap();
        let cartridge = Cartridge::open(&dir, barcode, faults).unwrap();
        for (record, at) in records.iter().zip(0..) {
            let mut read = vec![0; 100];
            let length = cartridge.read_record(0, at, &mut read, None).ok().unwrap();
            assert_eq!(read[..length], record[..]);
        }
    }
}
