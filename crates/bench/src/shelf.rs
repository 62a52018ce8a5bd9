//! Where the cartridges lie that are written: in memory if there is enough.

use crate::place;
use anyhow::{Result, anyhow};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// File system in memory.
const MEMORY: &str = "/dev/shm";
/// What is left to labels, indexes and names (bytes).
const SPARE: u64 = 256 << 20;
/// Bytes that are free for drives before they need them.
const AHEAD: u64 = 512 << 20;
/// How often it is looked how much drives have written.
const LOOK: Duration = Duration::from_millis(20);

/// A directory for cartridges on something faster than the drives, so that these are what is measured.
pub(crate) struct Shelf {
    pub(crate) dir: TempDir,
    /// There once it is loaded.
    pub(crate) ballast: Option<Ballast>,
    memory: bool,
}

impl Shelf {
    /// With room for `need` bytes: memory if there is enough, else a directory in `dir`.
    pub(crate) fn new(dir: &Path, need: u64) -> Result<Self> {
        let memory = place::make(Path::new(MEMORY), need + SPARE);
        let in_memory = memory.is_ok();
        let dir = memory.or_else(|_| place::make(dir, need + SPARE))?;
        Ok(Self { dir, ballast: None, memory: in_memory })
    }

    /// Has the machine find memory for what will be written, now and not while it is measured.
    pub(crate) fn load(&mut self, bytes: u64) -> Result<()> {
        if self.memory {
            let held = self.ballast.take();
            let ballast = held.map_or_else(|| Ballast::new(&self.dir.path().join("ballast")), Ok)?;
            self.ballast.insert(ballast).hold(bytes)?;
        }
        Ok(())
    }

    /// Does `work`, and gives up memory meanwhile for what drives have written by then.
    pub(crate) fn lend<T>(
        &mut self,
        written: &(dyn Fn() -> u64 + Sync),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(ballast) = &mut self.ballast else { return work() };
        let (done, before) = (AtomicBool::new(false), written());
        std::thread::scope(|scope| {
            let lender = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    ballast.make_room(written() - before)?;
                    std::thread::sleep(LOOK);
                }
                Ok(())
            });
            let result = work();
            done.store(true, Ordering::Release);
            let lent = lender.join().map_err(|_| anyhow!("the thread that lends memory panicked"))?;
            lent.and(result)
        })
    }
}

/// Memory that a virtual machine has not used for some seconds may have been given back to its host; to get it again is
/// five to ten times slower than to write it. So it is held by this file until the drives want it.
pub(crate) struct Ballast {
    file: File,
    bytes: u64,
}

impl Ballast {
    fn new(path: &Path) -> Result<Self> {
        Ok(Self { file: File::create(path)?, bytes: 0 })
    }

    /// Holds so much, of which it holds some already.
    fn hold(&mut self, bytes: u64) -> Result<()> {
        let block = vec![0xa5; 1 << 20];
        let mut at = self.file.seek(SeekFrom::End(0))?;
        while at < bytes {
            self.file.write_all(&block)?;
            at += block.len() as u64;
        }
        self.bytes = bytes;
        Ok(self.file.set_len(bytes)?)
    }

    /// Gives up as much as has been written to cartridges, and what will be next.
    pub(crate) fn make_room(&mut self, written: u64) -> Result<()> {
        Ok(self.file.set_len(self.bytes.saturating_sub(written + AHEAD))?)
    }
}
