//! The least that anybody could do: one thread for each drive reads a file from memory, hashes it and gives it to the drive.

use anyhow::{Context, Result, anyhow};
use scsi::{Smc, Ssc};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vtl::{Library, VtlConfig};

/// Bytes of a record, and of one read.
const RECORD: usize = 512 << 10;
/// Element addresses of the first drive and of the first slot.
const FIRST: (u16, u16) = (1, 1001);

/// What is written to each drive.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) files: u64,
    /// Of each (bytes).
    pub(crate) size: u64,
    /// Files between two flushes.
    pub(crate) flush_files: u64,
}

/// Drives with a cartridge each, and a file to write to them.
pub(crate) struct Bare {
    pub(crate) library: Arc<Library>,
    path: PathBuf,
    drives: u16,
    load: Load,
}

impl Bare {
    /// Makes the file at `path`, and loads the drives.
    pub(crate) fn new(path: &Path, config: VtlConfig, load: Load) -> Result<Self> {
        std::fs::write(path, vec![0x5a; load.size as usize])?;
        File::open(path)?.sync_all()?;
        let drives = config.drives;
        let library = Library::open(config)?;
        let mut changer = Smc::new(Box::new(library.changer()));
        while changer.test_unit_ready().is_err() {}
        (0..drives).try_for_each(|n| changer.move_medium(FIRST.1 + n, FIRST.0 + n))?;
        Ok(Self { library, path: path.to_owned(), drives, load })
    }

    /// Writes until everything is flushed.
    pub(crate) fn run(&self) -> Result<()> {
        std::thread::scope(|scope| {
            let work = |n| {
                let drive = Ssc::new(Box::new(self.library.drive(n)));
                scope.spawn(move || self.write_all(drive).with_context(|| format!("writing to drive {n}")))
            };
            let threads: Vec<_> = (0..self.drives).map(work).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| anyhow!("a thread that writes to a drive panicked"))?
            })
        })
    }

    fn write_all(&self, mut drive: Ssc) -> Result<()> {
        while drive.test_unit_ready().is_err() {}
        drive.set_variable_blocks()?;
        let mut record = vec![0; RECORD];
        for n in 1..=self.load.files {
            let (mut file, mut hash) = (File::open(&self.path)?, Sha256::new());
            for _ in 0..self.load.size / RECORD as u64 {
                file.read_exact(&mut record)?;
                hash.update(&record);
                drive.write(&record)?;
            }
            std::hint::black_box(hash.finalize());
            if n.is_multiple_of(self.load.flush_files) || n == self.load.files {
                drive.write_filemarks(0, false)?;
            }
        }
        Ok(())
    }
}
