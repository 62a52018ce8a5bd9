//! Where the cartridges lie that are written: in memory if there is enough.

use crate::place;
use anyhow::Result;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;

/// File system in memory.
const MEMORY: &str = "/dev/shm";
/// What is left to labels, indexes and names (bytes).
const SPARE: u64 = 256 << 20;
/// Bytes that are free for drives before they need them.
const AHEAD: u64 = 512 << 20;

/// A directory for cartridges on something faster than the drives, so that these are what is measured.
pub(super) struct Shelf {
    pub(super) dir: TempDir,
    /// There once it is loaded.
    pub(super) ballast: Option<Ballast>,
    memory: bool,
}

impl Shelf {
    /// With room for `need` bytes: memory if there is enough, else a directory in `dir`.
    pub(super) fn new(dir: &Path, need: u64) -> Result<Self> {
        let memory = place::make(Path::new(MEMORY), need + SPARE);
        let in_memory = memory.is_ok();
        let dir = memory.or_else(|_| place::make(dir, need + SPARE))?;
        Ok(Self { dir, ballast: None, memory: in_memory })
    }

    /// Has the machine find memory for what will be written, now and not while it is measured.
    pub(super) fn load(&mut self, bytes: u64) -> Result<()> {
        if self.memory {
            self.ballast = Some(Ballast::new(&self.dir.path().join("ballast"), bytes)?);
        }
        Ok(())
    }
}

/// Memory that a virtual machine has not used for some seconds may have been given back to its host; to get it again is
/// five to ten times slower than to write it. So it is held by this file until the drives want it.
pub(super) struct Ballast {
    file: File,
    bytes: u64,
}

impl Ballast {
    fn new(path: &Path, bytes: u64) -> Result<Self> {
        let (mut file, block) = (File::create(path)?, vec![0xa5; 1 << 20]);
        for _ in 0..bytes >> 20 {
            file.write_all(&block)?;
        }
        Ok(Self { file, bytes })
    }

    /// Gives up as much as has been written to cartridges, and what will be next.
    pub(super) fn make_room(&mut self, written: u64) -> Result<()> {
        Ok(self.file.set_len(self.bytes.saturating_sub(written + AHEAD))?)
    }
}
