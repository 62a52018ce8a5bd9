//! A volume from label to read: what goes on comes back, by extents and by index.

use crate::support::catalogue::{Catalogue, barcode, indexed_files, read_file, spec};
use crate::support::rig::{BARCODE, Rig};
use crate::support::row;
use proptest::prelude::*;
use tape::policy::Then;
use tape::{Fault, LabelState, Onto, Overwrite};

const BLOCK: u32 = 4096;

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

#[test]
fn label_append_flush_index_read() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    assert!(!drive.serial().is_empty() && drive.product().contains("ULT"), "{}", drive.product());
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    assert_eq!(mounted.label(), &LabelState::Blank);
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    assert_eq!((catalogue.point.block, catalogue.point.index_block), (7, 5));
    let batch = [bytes(10, 1), Vec::new(), bytes(5000, 2), bytes(3 * 4096, 3), bytes(1, 4)];
    catalogue.append(&mut mounted, &batch).unwrap();
    assert_eq!(catalogue.files[2].extents[0].byte_offset, 10, "small files share records");
    let done = catalogue.index(&mut mounted).unwrap();
    assert_eq!((done.generation, done.index_block), (2, catalogue.point.block - 2));
    catalogue.append(&mut mounted, &[bytes(9000, 5)]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    mounted.unload().unwrap();

    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.verify(&mut mounted);
    let (generation, stale, files) = indexed_files(&mut mounted);
    assert_eq!((generation, stale, files.len()), (3, false, 6));
    for ((name, length, extents), file) in files.iter().zip(&catalogue.files) {
        assert_eq!((name, *length, extents), (&file.name, file.bytes.len() as u64, &file.extents));
        assert_eq!(read_file(&mut mounted, *length as usize, extents), file.bytes);
    }
}

#[test]
fn an_index_while_the_volume_is_filled_costs_no_way_to_the_index_partition_and_is_the_one_that_counts() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[bytes(5000, 1)]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    for n in 0..3 {
        catalogue.append(&mut mounted, &[bytes(7000, n)]).unwrap();
        rig.wire().opcodes.clear();
        let done = catalogue.index_onto(&mut mounted, Onto::Data).unwrap();
        assert!(!done.on_both && done.index_block == catalogue.point.block - 2, "{done:?}");
        assert!(!rig.wire().opcodes.contains(&0x92), "no LOCATE: the head stands at the end of data");
    }
    mounted.unload().unwrap();

    let mut mounted = drive.mount(None).unwrap();
    let (generation, stale, files) = indexed_files(&mut mounted);
    assert_eq!((generation, stale, files.len()), (5, true, 4), "found on the data partition");
    catalogue.append(&mut mounted, &[bytes(100, 9)]).unwrap();
    assert!(catalogue.index(&mut mounted).unwrap().on_both);
    mounted.unload().unwrap();
    let mut mounted = drive.mount(None).unwrap();
    let (generation, stale, files) = indexed_files(&mut mounted);
    assert_eq!((generation, stale, files.len()), (6, false, 5));
    catalogue.verify(&mut mounted);
}

#[test]
fn sequential_extents_stream_without_locate() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    let batch: Vec<_> = (0..200).map(|i| bytes(i * 37, i)).collect();
    catalogue.append(&mut mounted, &batch).unwrap();
    rig.wire().opcodes.clear();
    catalogue.verify(&mut mounted);
    let locates = rig.wire().opcodes.iter().filter(|&&op| op == 0x92).count();
    let reads = rig.wire().opcodes.iter().filter(|&&op| op == 0x08).count();
    let total: usize = batch.iter().map(Vec::len).sum();
    assert_eq!((locates, reads), (1, total.div_ceil(BLOCK as usize)));
}

#[test]
fn nothing_foreign_is_overwritten() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[bytes(100, 1)]).unwrap();
    // our own volume, but it is not said to be expendable
    let error = mounted.format(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap_err();
    assert_eq!((error.fault, row(&error)), (Fault::Refused, ("TC-U054", Then::Operator)));
    let other = Overwrite::Volume("00000000-0000-4000-8000-000000000000");
    assert_eq!(mounted.format(&spec(&barcode(), BLOCK, other)).unwrap_err().fault, Fault::Refused);
    catalogue.verify(&mut mounted);
    mounted.unload().unwrap();
    // a foreign record instead of the label
    rig.tamper(BARCODE, |dir| std::fs::write(dir.join("0_0_R"), b"backup of 1999").unwrap());
    let before = rig.objects(BARCODE);
    let mut mounted = drive.mount(None).unwrap();
    assert!(matches!(mounted.label(), LabelState::Foreign { what } if what.contains("backup of 1999")));
    let error = mounted.appender(&catalogue.point, 0).err().unwrap();
    assert_eq!((error.fault, row(&error)), (Fault::NotLtfs, ("TC-M050", Then::OtherVolume)));
    assert_eq!(
        mounted.format(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap_err().fault,
        Fault::Refused
    );
    assert_eq!(rig.objects(BARCODE), before);
    mounted.format(&spec(&barcode(), BLOCK, Overwrite::Anything)).unwrap();
    assert!(matches!(mounted.label(), LabelState::Ltfs(_)));
}

/// Cartridges that other programs have labelled for later use are not ours to take, though nothing is on them yet.
#[test]
fn an_empty_volume_of_another_program_is_not_blank() {
    for system in ["CASTOR 2.1.13", ""] {
        let rig = Rig::new(64 << 20, 1 << 20);
        let plain = tape::Settings { block_protection: false, ..tape::Settings::default() };
        let mut drive = rig.load(BARCODE, 0).with(plain);
        drop(drive.mount(None).unwrap());
        let mut raw = rig.raw(0);
        raw.locate(0, 0).unwrap();
        raw.write(format!("VOL1TC0001{:14}{system:13}{:42}3", "", "").as_bytes()).unwrap();
        raw.write_filemarks(0, false).unwrap();
        let mut mounted = drive.mount(None).unwrap();
        assert_ne!(mounted.label(), &LabelState::Blank, "{system}");
        let refused = mounted.format(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap_err();
        assert_eq!(refused.fault, Fault::Refused);
    }
}

#[test]
fn another_volume_than_the_barcode_says_is_foreign() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    Catalogue::format(&mut mounted, BLOCK).unwrap();
    mounted.unload().unwrap();
    let other = types::Barcode::from("TC0002L9");
    let mounted = drive.mount(Some(&other)).unwrap();
    assert!(matches!(mounted.label(), LabelState::Foreign { what } if what.contains("TC0001")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn any_files_in_any_batches_come_back(
        batches in proptest::collection::vec(proptest::collection::vec(0..20_000_usize, 0..12), 1..6),
        index_after in proptest::collection::vec(0..3, 6),
    ) {
        let rig = Rig::new(64 << 20, 1 << 20);
        let mut drive = rig.load(BARCODE, 0);
        let mut mounted = drive.mount(None).unwrap();
        let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
        for (n, lengths) in batches.iter().enumerate() {
            let batch: Vec<_> = lengths.iter().map(|&l| bytes(l, n + l)).collect();
            catalogue.append(&mut mounted, &batch).unwrap();
            match index_after[n] {
                0 => {}
                1 => drop(catalogue.index_onto(&mut mounted, Onto::Data).unwrap()),
                _ => drop(catalogue.index(&mut mounted).unwrap()),
            }
        }
        catalogue.index(&mut mounted).unwrap();
        catalogue.verify(&mut mounted);
        mounted.unload().unwrap();
        let mut mounted = drive.mount(None).unwrap();
        let (generation, stale, files) = indexed_files(&mut mounted);
        prop_assert_eq!((generation, stale), (catalogue.point.generation, false));
        prop_assert_eq!(files.len(), catalogue.files.len());
        for ((_, length, extents), file) in files.iter().zip(&catalogue.files) {
            prop_assert_eq!(&read_file(&mut mounted, *length as usize, extents), &file.bytes);
        }
    }
}
