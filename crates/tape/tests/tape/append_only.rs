//! Drives refuse what would overwrite something that was not named just before.

use crate::support::catalogue::{Catalogue, NOW, barcode, spec};
use crate::support::rig::{BARCODE, Rig};
use crate::support::sections::{append, content, read};
use scsi::SenseKey;
use tape::{LabelState, Overwrite, Settings};

const BLOCK: u32 = 4096;

#[test]
fn a_write_that_goes_astray_destroys_nothing() {
    let rig = Rig::new(16 << 20, 1 << 20);
    let plain = Settings { block_protection: false, ..Settings::default() };
    let mut drive = rig.load(BARCODE, 0).with(plain);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 9000], vec![2; 100]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    let before = rig.objects(BARCODE);
    // Whoever moves the head between our check and our write, or a defect of ours.
    let mut astray = rig.raw(0);
    let attentions = (0..8).find(|_| astray.test_unit_ready().is_ok());
    assert!(attentions.is_some());
    for (partition, block) in [(0, 0), (0, 4), (0, 5), (1, 0), (1, 7)] {
        astray.locate(partition, block).unwrap();
        let error = astray.write(b"astray").unwrap_err();
        assert!(error.sense().is_some_and(|s| s.is(SenseKey::DataProtect, 0x5A, 0x02)), "{error}");
    }
    assert!(rig.objects(BARCODE) == before);
    // It is mounted again, appended to and given an index in the place of the old one.
    let mut mounted = drive.mount(None).unwrap();
    catalogue.append(&mut mounted, &[vec![3; 5000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    catalogue.verify(&mut mounted);
    mounted.unload().unwrap();
    assert_eq!(rig.raw(0).append_only().unwrap(), Some(false), "other programs find it as they know it");
}

#[test]
fn what_a_volume_carried_is_replaced_when_it_is_labelled_anew() {
    let rig = Rig::new(16 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    Catalogue::format(&mut mounted, BLOCK).unwrap();
    for _ in 0..2 {
        let point = mounted.format_ansi(&spec(&barcode(), BLOCK, Overwrite::Anything)).unwrap();
        let (files, _) = append(&mut mounted, &point, &[1, 2]).unwrap();
        assert_eq!(read(&mut mounted, &files[1]), content(2));
        // Not recorded: it is replaced.
        drop(mounted.begin_section(&point, NOW).unwrap());
        let (files, _) = append(&mut mounted, &point, &[3]).unwrap();
        assert_eq!(read(&mut mounted, &files[0]), content(3));
    }
    mounted.format(&spec(&barcode(), BLOCK, Overwrite::Anything)).unwrap();
}

#[test]
fn it_is_left_off_where_it_is_not_wanted_or_not_there() {
    let rig = Rig::new(16 << 20, 1 << 20);
    let off = Settings { append_only: false, ..Settings::default() };
    let mut drive = rig.load(BARCODE, 0).with(off);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    assert!(!rig.wire().opcodes.contains(&0x82));
    mounted.unload().unwrap();
    // A drive that somebody left so is used so.
    rig.raw(0).set_append_only(true).unwrap();
    rig.tamper(BARCODE, |_| {});
    let mut mounted = drive.mount(None).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 9000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    assert!(rig.wire().opcodes.contains(&0x82));
    catalogue.verify(&mut mounted);
}

/// The power fails after the first record of a label: nobody's cartridge, and not an empty one either.
#[test]
fn what_was_left_of_a_label_that_was_cut_short_is_replaced() {
    let rig = Rig::new(16 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    mounted.format_ansi(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap();
    mounted.unload().unwrap();
    let mut raw = rig.raw(0);
    raw.load().unwrap();
    assert!((0..8).any(|_| raw.test_unit_ready().is_ok()));
    let mut vol1 = [0; 80];
    raw.read(&mut vol1).unwrap();
    raw.locate(0, 0).unwrap();
    raw.write(&vol1).unwrap();
    raw.write_filemarks(0, false).unwrap();
    let mut mounted = drive.mount(None).unwrap();
    assert_eq!(*mounted.label(), LabelState::Blank, "it does not say whose it is");
    let point = mounted.format_ansi(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap();
    let (files, _) = append(&mut mounted, &point, &[1]).unwrap();
    assert_eq!(read(&mut mounted, &files[0]), content(1));
}
