//! Append-only mode of a drive.

use scsi::{FormatKind, ReadOutcome, ScsiError, SenseKey, Smc, Ssc};
use vtl::{Library, VtlConfig};

fn drive() -> (Ssc, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = VtlConfig { cartridges: 1, slots: 2, capacity_bytes: 4 << 20, ..VtlConfig::new(dir.path()) };
    let library = Library::open(config).unwrap();
    let mut changer = Smc::new(Box::new(library.changer()));
    settle(&mut changer);
    changer.move_medium(1001, 1).unwrap();
    let mut drive = Ssc::new(Box::new(library.drive(0)));
    settle(&mut drive);
    (drive, dir)
}

/// Takes unit attentions until there are none.
fn settle(device: &mut scsi::Device) {
    while device.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention))
    {
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ScsiError>, key: SenseKey, asc: u8, ascq: u8) {
    let error = result.unwrap_err();
    assert!(error.sense().is_some_and(|s| s.is(key, asc, ascq)), "{error}");
}

#[test]
fn only_what_is_allowed_just_before_is_overwritten() {
    let (mut drive, _dir) = drive();
    assert_eq!(drive.append_only().unwrap(), Some(false));
    refused(drive.allow_overwrite(0, 0), SenseKey::IllegalRequest, 0x20, 0x0C);
    drive.write(b"first").unwrap();
    refused(drive.set_append_only(true), SenseKey::IllegalRequest, 0x3B, 0x0C);
    drive.rewind().unwrap();
    drive.set_append_only(true).unwrap();
    assert_eq!(drive.append_only().unwrap(), Some(true));
    refused(drive.write(b"other"), SenseKey::DataProtect, 0x5A, 0x02);
    refused(drive.write_filemarks(1, false), SenseKey::DataProtect, 0x5A, 0x02);
    refused(drive.erase(false), SenseKey::DataProtect, 0x5A, 0x02);
    refused(drive.format_medium(FormatKind::Default), SenseKey::DataProtect, 0x5A, 0x02);
    drive.locate(0, 1).unwrap();
    drive.write(b"second").unwrap();
    drive.write_filemarks(1, false).unwrap();
    // At another place than where it stands, and at one that it left.
    refused(drive.allow_overwrite(0, 1), SenseKey::IllegalRequest, 0x3B, 0x00);
    drive.locate(0, 1).unwrap();
    drive.allow_overwrite(0, 1).unwrap();
    drive.rewind().unwrap();
    drive.locate(0, 1).unwrap();
    refused(drive.write(b"third"), SenseKey::DataProtect, 0x5A, 0x02);
    drive.allow_overwrite(0, 1).unwrap();
    drive.write(b"third").unwrap();
    drive.write(b"fourth").unwrap();
    drive.locate(0, 1).unwrap();
    refused(drive.write(b"again"), SenseKey::DataProtect, 0x5A, 0x02);
    let mut buffer = [0; 10];
    assert_eq!(drive.read(&mut buffer).unwrap(), ReadOutcome::Record { bytes: 5 });
    assert_eq!(&buffer[..5], b"third");
}

#[test]
fn formatting_is_allowed_by_itself_and_the_mode_ends_without_a_tape() {
    let (mut drive, _dir) = drive();
    drive.write(b"first").unwrap();
    drive.rewind().unwrap();
    drive.set_append_only(true).unwrap();
    drive.allow_overwrite(0, 0).unwrap();
    refused(drive.format_medium(FormatKind::Default), SenseKey::DataProtect, 0x5A, 0x02);
    drive.allow_format().unwrap();
    drive.format_medium(FormatKind::Default).unwrap();
    drive.write(b"second").unwrap();
    refused(drive.set_append_only(false), SenseKey::IllegalRequest, 0x26, 0x00);
    drive.unload().unwrap();
    assert_eq!(drive.append_only().unwrap(), Some(true), "it stays for the next tape");
    drive.set_append_only(false).unwrap();
    assert_eq!(drive.append_only().unwrap(), Some(false));
}
