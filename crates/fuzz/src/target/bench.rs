//! A small virtual library in memory for the targets that need tapes.

use scsi::{Smc, Ssc};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use vtl::{Library, VtlConfig};

/// Barcode of the only cartridge.
pub(super) const BARCODE: &str = "TC0001L9";

/// A directory where syncs cost nothing, if there is one.
pub(super) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory for temporary files")
}

/// One drive and one cartridge of 16 MiB.
pub(super) fn config(dir: &Path) -> VtlConfig {
    VtlConfig { cartridges: 1, slots: 2, drives: 1, capacity_bytes: 16 << 20, ..VtlConfig::new(dir) }
}

/// A library that goes away.
pub(super) struct Bench {
    pub(super) dir: TempDir,
    pub(super) library: Arc<Library>,
}

impl Bench {
    /// The cartridge is in the drive.
    pub(super) fn new() -> Self {
        let dir = scratch();
        let library = Library::open(config(dir.path())).expect("a new library");
        let mut changer = Smc::new(Box::new(library.changer()));
        while changer.test_unit_ready().is_err() {}
        changer.move_medium(1001, 1).expect("the cartridge goes into the drive");
        Self { dir, library }
    }

    /// A drive of this process, without unit attentions.
    pub(super) fn drive(&self) -> Ssc {
        let mut drive = Ssc::new(Box::new(self.library.drive(0)));
        while drive.test_unit_ready().is_err() {}
        drive
    }

    /// The same after an unload.
    pub(super) fn drive_loaded(&self) -> Ssc {
        let mut drive = Ssc::new(Box::new(self.library.drive(0)));
        drive.load().expect("the cartridge is still there");
        while drive.test_unit_ready().is_err() {}
        drive
    }

    /// Directory of the cartridge.
    pub(super) fn cartridge(&self) -> PathBuf {
        self.dir.path().join("cartridges").join(BARCODE)
    }
}
