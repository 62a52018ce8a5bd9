//! Where the cartridges lie that are written: in memory if there is enough.

use crate::place;
use anyhow::{Context, Result};
use node::Config;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use vtl::Library;

/// File system in memory.
const MEMORY: &str = "/dev/shm";
/// What is left to labels, indexes and names (bytes).
const SPARE: u64 = 256 << 20;
/// Bytes of a record.
pub(crate) const RECORD: u64 = 512 << 10;

/// A directory for cartridges on something faster than the drives, so that these are what is measured.
///
/// Memory that a virtual machine has not used for some seconds may have been given back to its host; to get it again is five to
/// ten times slower than to write it, and to find memory at all costs as much again as to write it. So the files of records are made before
/// something is measured, and the virtual drives write into them.
pub(crate) struct Shelf {
    dir: TempDir,
    /// Files that lie ready for records.
    ready: Vec<PathBuf>,
    /// Number of the next file.
    next: u64,
}

impl Shelf {
    /// With room for `need` bytes: memory if there is enough, else a directory in `dir`.
    pub(crate) fn new(dir: &Path, need: u64) -> Result<Self> {
        let memory = place::make(Path::new(MEMORY), need + SPARE);
        let dir = memory.or_else(|_| place::make(dir, need + SPARE))?;
        fs::create_dir(dir.path().join("ready"))?;
        Ok(Self { dir, ready: Vec::new(), next: 0 })
    }

    /// Directory of the virtual library.
    pub(crate) fn library(&self) -> PathBuf {
        self.dir.path().join("library")
    }

    /// Sees to it that files for so many bytes of records lie ready.
    pub(crate) fn load(&mut self, bytes: u64) -> Result<()> {
        let block = vec![0xa5; RECORD as usize];
        while (self.ready.len() as u64) < bytes.div_ceil(RECORD) {
            let path = self.free_name();
            File::create(&path)?.write_all(&block)?;
            self.ready.push(path);
        }
        Ok(())
    }

    fn free_name(&mut self) -> PathBuf {
        self.next += 1;
        self.dir.path().join("ready").join(self.next.to_string())
    }

    /// The library's drives write into what lies ready.
    pub(crate) fn lend(&mut self, library: &Library) -> Result<()> {
        self.ready.clear();
        Ok(library.write_into(&self.dir.path().join("ready"), RECORD)?)
    }

    /// Opens the virtual library of a configuration, whose drives write into what lies ready.
    pub(crate) fn open(&mut self, config: &Config) -> Result<Arc<Library>> {
        let library = node::Node::open_library(config).map_err(|e| anyhow::anyhow!(e.message))?;
        self.lend(&library)?;
        Ok(library)
    }

    /// Removes the library, which nobody has open any more, but for the files of its records, which lie ready then, and for those that
    /// were not used.
    pub(crate) fn take_back(&mut self) -> Result<()> {
        let ready = |entry: fs::DirEntry| entry.path();
        let left = fs::read_dir(self.dir.path().join("ready"))?.map(|entry| entry.map(ready));
        self.ready = left.collect::<std::io::Result<_>>()?;
        let library = self.library();
        if !library.exists() {
            return Ok(());
        }
        for cartridge in fs::read_dir(library.join("cartridges"))? {
            let cartridge = cartridge?.path();
            if !cartridge.is_dir() {
                continue;
            }
            for record in fs::read_dir(cartridge)? {
                let record = record?;
                if record.metadata()?.len() == RECORD {
                    let path = self.free_name();
                    fs::rename(record.path(), &path)?;
                    self.ready.push(path);
                }
            }
        }
        fs::remove_dir_all(&library).with_context(|| format!("removing {}", library.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtl::VtlConfig;

    #[test]
    fn files_of_records_are_used_and_come_back() {
        let base = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::new(base.path(), 0).unwrap();
        let ready = |shelf: &Shelf| fs::read_dir(shelf.dir.path().join("ready")).unwrap().count();
        for _ in 0..2 {
            shelf.load(3 * RECORD).unwrap();
            assert_eq!(ready(&shelf), 3);
            let library = Library::open(VtlConfig::new(shelf.library())).unwrap();
            shelf.lend(&library).unwrap();
            let mut changer = scsi::Smc::new(Box::new(library.changer()));
            while changer.test_unit_ready().is_err() {}
            changer.move_medium(1001, 1).unwrap();
            let mut drive = scsi::Ssc::new(Box::new(library.drive(0)));
            while drive.test_unit_ready().is_err() {}
            drive.set_variable_blocks().unwrap();
            for length in [RECORD, 100, RECORD] {
                drive.write(&vec![1; length as usize]).unwrap();
            }
            assert_eq!(ready(&shelf), 1, "two records of that length have been written");
            drop((drive, changer, library));
            shelf.take_back().unwrap();
            assert_eq!((ready(&shelf), shelf.ready.len()), (3, 3));
            assert!(!shelf.library().exists());
        }
    }
}
