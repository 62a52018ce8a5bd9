//! Logical block protection: no record that was changed on its way counts or is handed out.

use crate::support::catalogue::{Catalogue, barcode};
use crate::support::rig::{BARCODE, Rig};
use crate::support::row;
use scsi::Ssc;
use scsi::mode::DataProtection;
use std::ops::ControlFlow;
use tape::policy::Then;
use tape::{Blame, Drive, Fault, Mounted, Settings};

const BLOCK: u32 = 4096;
const MIB: u64 = 1 << 20;
/// Opcode.
const WRITE: u8 = 0x0a;

const OFF: Settings = Settings { block_protection: false, compression: None, append_only: true, key: None };

/// A volume with one recorded batch, in drive 0.
fn volume(rig: &Rig, settings: Settings) -> (Drive, Catalogue) {
    let mut drive = rig.load(BARCODE, 0).with(settings);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000], vec![8; 100]]).unwrap();
    mounted.unload().unwrap();
    (drive, catalogue)
}

/// From the `nth` command with `opcode` on, drive 0 gets and gives changed records.
fn garble(rig: &Rig, opcode: u8, nth: u32) {
    let then = Box::new(vtl::Fault::Garbled { drive: 0 });
    rig.library.inject(vtl::Fault::At { device: vtl::Device::Drive(0), opcode, nth, then });
}

fn read_first(mounted: &mut Mounted<'_>, catalogue: &Catalogue) -> tape::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    mounted
        .read(&catalogue.files[0].extents[0], &mut |_, piece| {
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        })
        .map(|_| bytes)
}

#[test]
fn a_record_changed_on_its_way_to_the_drive_does_not_count() {
    let rig = Rig::new(16 * MIB, MIB);
    let (mut drive, mut catalogue) = volume(&rig, Settings::default());
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    garble(&rig, WRITE, 2);
    let error = catalogue.append(&mut mounted, &[vec![9; 50_000]]).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::Garbled, Blame::Path));
    assert!(error.to_string().contains("TC0001L9") && error.to_string().contains("4/10/01"), "{error}");
    rig.library.clear_faults();
    mounted.unload().unwrap();
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.append(&mut mounted, &[vec![9; 50_000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    catalogue.verify(&mut mounted);
}

#[test]
fn a_record_changed_on_its_way_from_the_drive_is_never_handed_out() {
    let rig = Rig::new(16 * MIB, MIB);
    let (mut drive, catalogue) = volume(&rig, Settings::default());
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    rig.library.inject(vtl::Fault::Garbled { drive: 0 });
    let error = read_first(&mut mounted, &catalogue).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::Garbled, Blame::Path));
    assert_eq!(row(&error), ("TC-P047", Then::OtherDrive));
    assert!(error.to_string().contains("nothing of it was used"), "{error}");
    rig.library.clear_faults();
    catalogue.verify(&mut mounted);
}

#[test]
fn records_are_written_from_where_they_lie_wherever_they_begin() {
    for settings in [Settings::default(), OFF] {
        let rig = Rig::new(16 * MIB, MIB);
        let (mut drive, mut catalogue) = volume(&rig, settings);
        let mut mounted = drive.mount(Some(&barcode())).unwrap();
        let files = [100, 30_000, 5_000, 4096, 1, 12_288, 4095, 8192];
        let files: Vec<Vec<u8>> =
            files.iter().map(|n| (0..*n).map(|at| (at / 3 * 7 + n) as u8).collect()).collect();
        catalogue.append(&mut mounted, &files).unwrap();
        catalogue.verify(&mut mounted);
    }
}

/// What the two tests above would let through without it.
#[test]
fn without_protection_nobody_notices() {
    let rig = Rig::new(16 * MIB, MIB);
    let (mut drive, mut catalogue) = volume(&rig, OFF);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    assert_eq!(rig.raw(0).data_protection().unwrap(), Some(DataProtection::OFF));
    garble(&rig, WRITE, 1);
    catalogue.append(&mut mounted, &[vec![9; 50_000]]).unwrap();
    assert_ne!(read_first(&mut mounted, &catalogue).unwrap(), catalogue.files[0].bytes);
}

#[test]
fn protection_is_set_at_mount_and_taken_off_before_a_volume_leaves() {
    let rig = Rig::new(16 * MIB, MIB);
    let (mut drive, catalogue) = volume(&rig, Settings::default());
    assert_eq!(rig.raw(0).data_protection().unwrap(), Some(DataProtection::OFF), "unloaded");
    let mut mounted = drive.mount(None).unwrap();
    assert_eq!(rig.raw(0).data_protection().unwrap(), Some(DataProtection::CRC32C));
    catalogue.verify(&mut mounted);
    // A program that ends here leaves it on; one that does not want it finds it so.
    drop(mounted);
    let mut drive = rig.drive(0).with(OFF);
    let mut mounted = drive.mount(None).unwrap();
    assert_eq!(rig.raw(0).data_protection().unwrap(), Some(DataProtection::OFF));
    catalogue.verify(&mut mounted);
}

#[test]
fn compression_is_set_at_mount_only_when_asked_for() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    for (wanted, found) in [(None, true), (Some(false), false), (None, false), (Some(true), true)] {
        drive = drive.with(Settings { compression: wanted, ..Settings::default() });
        drive.mount(None).unwrap().unload().unwrap();
        assert_eq!(rig.raw(0).compression().unwrap(), Some(found), "{wanted:?}");
    }
}

#[test]
fn settings_changed_by_another_host_end_the_session() {
    let rig = Rig::new(16 * MIB, MIB);
    let (mut drive, mut catalogue) = volume(&rig, Settings::default());
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut other = Ssc::new(Box::new(rig.library.drive_as(0, 1)));
    while other.test_unit_ready().is_err() {}
    other.set_data_protection(DataProtection::OFF).unwrap();
    let before = rig.objects(BARCODE);
    for _ in 0..2 {
        let error = catalogue.append(&mut mounted, &[vec![9; 50_000]]).unwrap_err();
        assert_eq!((error.fault, error.blame), (Fault::PositionLost, Blame::Drive));
        assert!(error.to_string().contains("changed the drive's settings"), "{error}");
        assert_eq!(error.code(), "TC-D033");
    }
    assert_eq!(rig.objects(BARCODE), before, "no sum was recorded as data");
    mounted.unload().unwrap();
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.append(&mut mounted, &[vec![9; 50_000]]).unwrap();
    catalogue.verify(&mut mounted);
}
