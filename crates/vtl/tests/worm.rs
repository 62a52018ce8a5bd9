//! Media that can be written once.

use scsi::mode::PartitionPage;
use scsi::{FormatKind, ReadOutcome, ScsiError, SenseKey, Smc, Ssc};
use std::sync::Arc;
use vtl::{Library, VtlConfig};

/// A library with one cartridge of either kind.
struct Rig {
    library: Arc<Library>,
    _dir: tempfile::TempDir,
}

/// Takes unit attentions until there are none.
fn settle(device: &mut scsi::Device) {
    while device.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention))
    {
    }
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config =
            VtlConfig { cartridges: 1, slots: 2, capacity_bytes: 40 << 20, ..VtlConfig::new(dir.path()) };
        let library = Library::open(config).unwrap();
        library.create_worm_cartridge("WORM01LZ", 1 << 20).unwrap();
        library.insert("WORM01LZ").unwrap();
        Self { library, _dir: dir }
    }

    fn load(&self, from: u16, drive: u16) -> Ssc {
        let mut changer = Smc::new(Box::new(self.library.changer()));
        settle(&mut changer);
        changer.move_medium(from, drive + 1).unwrap();
        let mut drive = Ssc::new(Box::new(self.library.drive(drive)));
        settle(&mut drive);
        drive
    }

    fn worm(&self) -> Ssc {
        self.load(101, 1)
    }

    fn rewritable(&self) -> Ssc {
        self.load(1001, 0)
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ScsiError>, key: SenseKey, asc: u8, ascq: u8) {
    let error = result.unwrap_err();
    assert!(error.sense().is_some_and(|s| s.is(key, asc, ascq)), "{error}");
}

#[test]
fn worm_medium_takes_new_records_and_keeps_the_old_ones() {
    let rig = Rig::new();
    let (mut drive, mut other) = (rig.worm(), rig.rewritable());
    assert!(drive.worm().unwrap() && !other.worm().unwrap());
    assert_eq!(
        (drive.mode_sense(0, 0).unwrap().medium_type, drive.write_protected().unwrap()),
        (0x9C, false)
    );
    assert_eq!((medium_type(&mut drive), medium_type(&mut other)), (Some(0x80), Some(0)));
    let page = drive.partition_page().unwrap();
    assert_eq!(page.max_additional, 0, "it cannot be partitioned");
    refused(
        drive.set_partition_page(&PartitionPage { additional: 1, sizes: vec![1, 0xFFFF], ..page }),
        SenseKey::IllegalRequest,
        0x26,
        0x00,
    );
    drive.format_medium(FormatKind::Default).unwrap(); // blank as yet
    drive.write(b"first").unwrap();
    drive.write_filemarks(1, false).unwrap();
    drive.write(b"second").unwrap();
    drive.write_filemarks(0, false).unwrap();
    for at in 0..3 {
        drive.locate(0, at).unwrap();
        refused(drive.write(b"other"), SenseKey::DataProtect, 0x30, 0x0C);
        refused(drive.write_filemarks(1, false), SenseKey::DataProtect, 0x30, 0x0C);
        refused(drive.erase(false), SenseKey::DataProtect, 0x30, 0x0C);
        drive.write_filemarks(0, false).unwrap(); // writes nothing
    }
    assert_eq!(drive.tape_alerts().unwrap(), [60]);
    drive.rewind().unwrap();
    refused(drive.format_medium(FormatKind::Default), SenseKey::DataProtect, 0x30, 0x0C);
    refused(drive.set_capacity(0x1000), SenseKey::DataProtect, 0x30, 0x0C);
    let mut buf = [0; 10];
    assert_eq!(drive.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: 5 });
    drive.locate(0, 3).unwrap();
    drive.write(b"third").unwrap();
}

#[test]
fn of_the_filemarks_at_the_end_of_worm_medium_all_but_the_first_may_be_replaced() {
    let rig = Rig::new();
    let mut drive = rig.worm();
    drive.write(b"first").unwrap();
    drive.write_filemarks(3, false).unwrap();
    drive.locate(0, 1).unwrap();
    refused(drive.write(b"other"), SenseKey::DataProtect, 0x30, 0x0C);
    drive.locate(0, 2).unwrap();
    drive.write(b"second").unwrap();
    assert_eq!(drive.read_position().unwrap().block, 3);
    drive.locate(0, 2).unwrap();
    refused(drive.write(b"other"), SenseKey::DataProtect, 0x30, 0x0C);
}

/// Medium type by the chip of the cartridge.
fn medium_type(drive: &mut Ssc) -> Option<u64> {
    drive.read_attribute(0, scsi::mam::id::MEDIUM_TYPE).unwrap().and_then(|a| a.number())
}
