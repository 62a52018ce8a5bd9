//! What goes wrong is noticed, blamed on the right resource, and never costs recorded data.

use crate::support::catalogue::{Catalogue, barcode, indexed_files};
use crate::support::rig::{BARCODE, Rig};
use crate::support::row;
use scsi::{Sense, SenseKey};
use std::ops::ControlFlow;
use std::path::Path;
use tape::policy::Then;
use tape::{Appender, Blame, Fault, LabelState, Mounted, Room};

const BLOCK: u32 = 4096;
const MIB: u64 = 1 << 20;
/// Opcodes.
const READ: u8 = 0x08;
const WRITE_FILEMARKS: u8 = 0x10;

fn sense(key: SenseKey, asc: u8, ascq: u8) -> Sense {
    Sense::new(key, asc, ascq)
}

/// Runs `test` on a fresh volume that holds one recorded batch.
fn on_volume(capacity: u64, test: impl FnOnce(&Rig, &mut Mounted<'_>, &mut Catalogue)) {
    let rig = Rig::new(capacity, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000], vec![8; 100]]).unwrap();
    test(&rig, &mut mounted, &mut catalogue);
}

fn fill(appender: &mut Appender<'_, '_>, stop_at: Room) -> u64 {
    let chunk: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
    let mut written = 0;
    loop {
        let room = appender.write(&chunk).unwrap();
        written += chunk.len() as u64;
        if room == stop_at {
            return written;
        }
        assert_ne!(room, Room::Full, "full before {stop_at:?}");
    }
}

#[test]
fn end_of_medium_in_the_middle_of_a_file() {
    on_volume(4 * MIB, |_, mounted, catalogue| {
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        let (start_block, byte_offset) = appender.here();
        fill(&mut appender, Room::EarlyWarning);
        let before = appender.taken();
        let handed = before + fill(&mut appender, Room::Full);
        assert_eq!(appender.write(&[1, 2, 3]).unwrap(), Room::Full);
        let flushed = appender.flush().unwrap();
        assert!(flushed.safe_bytes > before && flushed.safe_bytes <= handed);
        assert_eq!(flushed.safe_bytes % u64::from(BLOCK), 0);
        catalogue.record(flushed);
        let byte_count = flushed.safe_bytes;
        let extent = types::Extent { file_offset: 0, start_block, byte_offset, byte_count };
        let bytes = crate::support::catalogue::read_file(mounted, byte_count as usize, &[extent]);
        let chunk: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
        assert!(bytes.chunks(100_000).all(|c| *c == chunk[..c.len()]));
    });
}

/// Small files fill a record bit by bit: where it has no room, bytes were taken that are not on the medium.
#[test]
fn bytes_that_had_no_room_are_not_called_safe() {
    on_volume(4 * MIB, |_, mounted, catalogue| {
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        let (start, _) = appender.here();
        while appender.write(&[5; 1000]).unwrap() != Room::Full {}
        let taken = appender.taken();
        let flushed = appender.flush().unwrap();
        assert_eq!(flushed.safe_bytes, (flushed.append_block - start) * u64::from(BLOCK));
        assert!(flushed.safe_bytes < taken);
    });
}

#[test]
fn the_reserve_for_the_index_counts_as_full() {
    on_volume(8 * MIB, |rig, mounted, catalogue| {
        let mut appender = mounted.appender(&catalogue.point, 4 * MIB).unwrap();
        let handed = fill(&mut appender, Room::Full);
        let flushed = appender.flush().unwrap();
        assert!(flushed.safe_bytes < handed && flushed.safe_bytes > 2 * MIB && flushed.safe_bytes < 4 * MIB);
        catalogue.record(flushed);
        catalogue.index(mounted).unwrap();
        let objects = rig.objects(BARCODE);
        let on_tape: usize =
            objects.iter().filter(|(name, _)| name.starts_with("1_")).map(|(_, r)| r.len()).sum();
        assert!(on_tape as u64 <= 4 * MIB + 64 * 1024);
    });
}

#[test]
fn an_index_without_room_on_the_data_partition_goes_to_the_index_partition() {
    let rig = Rig::new(4 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000], vec![8; 100]]).unwrap();
    let first = catalogue.index(&mut mounted).unwrap();
    catalogue.append(&mut mounted, &[vec![9; 100_000]]).unwrap();
    let end = catalogue.point.block;
    rig.library.inject(vtl::Fault::EarlyEnd { barcode: BARCODE.into(), bytes: 100_000 });
    for generation in [3, 4] {
        let done = catalogue.index(&mut mounted).unwrap();
        assert!(done.data_partition_full);
        assert_eq!(
            (done.generation, done.index_block, done.append_block),
            (generation, first.index_block, end)
        );
        mounted.unload().unwrap();
        mounted = drive.mount(None).unwrap();
        catalogue.verify(&mut mounted);
        let (found, stale, files) = indexed_files(&mut mounted);
        assert_eq!((found, stale, files.len()), (generation, false, 3));
    }
    // also without cartridge memory
    mounted.unload().unwrap();
    rig.tamper(BARCODE, |dir| std::fs::remove_file(dir.join("attr_0_80c")).unwrap());
    assert_eq!(indexed_files(&mut drive.mount(None).unwrap()).2.len(), 3);
}

#[test]
fn a_foreign_writer_is_noticed() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 5000]]).unwrap();
    mounted.unload().unwrap();
    // another program mounts, appends a record, unloads
    let mut raw = rig.raw(0);
    raw.load().unwrap();
    let _ = raw.test_unit_ready();
    raw.locate(1, catalogue.point.block).unwrap();
    raw.write(&[9; 10]).unwrap();
    raw.unload().unwrap();
    let mut mounted = drive.mount(None).unwrap();
    let before = rig.objects(BARCODE);
    let error = mounted.appender(&catalogue.point, 0).err().unwrap();
    assert_eq!((error.fault, error.blame), (Fault::ForeignWriter, Blame::Medium));
    assert_eq!(row(&error), ("TC-M049", Then::OtherVolume));
    assert!(error.to_string().contains("somebody else wrote to this volume"), "{error}");
    assert_eq!(catalogue.index(&mut mounted).unwrap_err().fault, Fault::ForeignWriter);
    assert_eq!(rig.objects(BARCODE), before);
    catalogue.verify(&mut mounted);
}

#[test]
fn a_volume_that_lost_recorded_data_is_noticed() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 50_000]]).unwrap();
    mounted.unload().unwrap();
    rig.tamper(BARCODE, |dir| {
        for block in 9..catalogue.point.block {
            std::fs::remove_file(dir.join(format!("1_{block}_R"))).unwrap();
        }
        std::fs::rename(dir.join(format!("1_{}_E", catalogue.point.block)), dir.join("1_9_E")).unwrap();
    });
    let mut mounted = drive.mount(None).unwrap();
    let error = mounted.appender(&catalogue.point, 0).err().unwrap();
    assert_eq!((error.fault, error.blame), (Fault::DataMissing, Blame::Medium));
    assert_eq!(row(&error), ("TC-M026", Then::OtherVolume));
}

#[test]
fn errors_are_blamed_on_the_right_resource() {
    let cases = [
        (sense(SenseKey::MediumError, 0x11, 0), Fault::MediumError, Blame::Medium),
        (sense(SenseKey::HardwareError, 0x44, 0), Fault::HardwareError, Blame::Drive),
        (sense(SenseKey::AbortedCommand, 0x4b, 0), Fault::NoAnswer, Blame::Path),
        (sense(SenseKey::UnitAttention, 0x29, 0), Fault::PositionLost, Blame::Drive),
    ];
    for (sense, fault, blame) in cases {
        on_volume(16 * MIB, |rig, mounted, catalogue| {
            rig.wire().answer = Some((READ, sense));
            let error = mounted.read(&catalogue.files[0].extents[0], &mut |_, _| unreachable!()).unwrap_err();
            assert_eq!((error.fault, error.blame), (fault, blame));
            assert_eq!(error.volume, Some(barcode()));
            let text = error.to_string();
            assert!(
                text.contains(": volume TC0001L9 in virtual drive 0: reading at block 7 of partition 1:"),
                "{text}"
            );
        });
    }
}

#[test]
fn a_write_error_leaves_what_was_recorded_and_can_be_repeated() {
    on_volume(16 * MIB, |rig, mounted, catalogue| {
        let (barcode, block) = (BARCODE.to_owned(), catalogue.point.block + 3);
        rig.library.inject(vtl::Fault::WriteError { barcode, partition: 1, block });
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        let error = (0..100).find_map(|_| appender.write(&[1; 100_000]).err()).unwrap();
        assert_eq!((error.fault, error.blame), (Fault::MediumError, Blame::Medium));
        assert_eq!(appender.write(&[1]).unwrap_err().fault, Fault::Misuse);
        assert_eq!(appender.flush().unwrap_err().fault, Fault::Misuse);
        rig.library.clear_faults();
        catalogue.append(mounted, &[vec![3; 9000]]).unwrap();
        catalogue.verify(mounted);
    });
}

#[test]
fn a_flush_that_fails_counts_nothing() {
    on_volume(16 * MIB, |rig, mounted, catalogue| {
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        appender.write(&vec![1; 100_000]).unwrap();
        let deferred = Sense { deferred: true, ..sense(SenseKey::MediumError, 0x0c, 0) };
        rig.wire().answer = Some((WRITE_FILEMARKS, deferred));
        assert_eq!(appender.flush().unwrap_err().fault, Fault::MediumError);
        catalogue.append(mounted, &[vec![3; 9000]]).unwrap();
        catalogue.verify(mounted);
    });
}

#[test]
fn a_reset_ends_the_session_until_it_is_mounted_again() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
    appender.write(&vec![1; 10_000]).unwrap();
    rig.library.reset_drive(0);
    let before = rig.objects(BARCODE);
    let error = appender.write(&vec![1; 10_000]).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::PositionLost, Blame::Drive));
    assert!(appender.flush().is_err());
    assert_eq!(mounted.appender(&catalogue.point, 0).err().unwrap().fault, Fault::PositionLost);
    assert_eq!(catalogue.index(&mut mounted).unwrap_err().fault, Fault::PositionLost);
    assert_eq!(rig.objects(BARCODE), before, "nothing is written after a reset");
    drop(mounted);
    let mut mounted = drive.mount(None).unwrap();
    catalogue.append(&mut mounted, &[vec![2; 20_000]]).unwrap();
    catalogue.verify(&mut mounted);
}

#[test]
fn a_drive_that_stands_elsewhere_is_not_written_to() {
    on_volume(16 * MIB, |rig, mounted, catalogue| {
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        let before = rig.objects(BARCODE);
        rig.raw(0).locate(1, 2).unwrap();
        let error = appender.write(&vec![1; 10_000]).unwrap_err();
        assert_eq!((error.fault, error.blame), (Fault::WrongPosition, Blame::Drive));
        assert_eq!(row(&error), ("TC-D042", Then::OtherDrive));
        assert_eq!(rig.objects(BARCODE), before);
    });
}

#[test]
fn a_record_of_another_length_is_noticed() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000]]).unwrap();
    let extent = catalogue.files[0].extents[0];
    for length in [1, 100, BLOCK as usize - 1, BLOCK as usize + 1] {
        mounted.unload().unwrap();
        let record = format!("1_{}_R", extent.start_block);
        rig.tamper(BARCODE, |dir| std::fs::write(dir.join(record), vec![7; length]).unwrap());
        mounted = drive.mount(None).unwrap();
        let error = mounted.read(&extent, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
        assert_eq!((error.fault, error.blame), (Fault::BadRecord, Blame::Medium), "{length}");
        assert_eq!(row(&error), ("TC-M045", Then::OtherVolume));
    }
}

#[test]
fn protected_and_alarming_volumes_are_read_only() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 5000]]).unwrap();
    for (protected, alerts, fault, blame, means) in [
        (true, vec![], Fault::WriteProtected, Blame::Medium, ("TC-M011", Then::ReadOnly)),
        (false, vec![3, 4], Fault::Alert, Blame::Medium, ("TC-M040", Then::OtherVolume)),
        (false, vec![30], Fault::Alert, Blame::Drive, ("TC-D041", Then::OtherDrive)),
    ] {
        mounted.unload().unwrap();
        rig.wire().alerts = alerts.clone();
        rig.tamper(BARCODE, |_| rig.library.set_write_protect(BARCODE, protected).unwrap());
        mounted = drive.mount(None).unwrap();
        assert_eq!((mounted.write_protected(), mounted.alerts()), (protected, &alerts[..]));
        let error = mounted.appender(&catalogue.point, 0).err().unwrap();
        assert_eq!((error.fault, error.blame, row(&error)), (fault, blame, means));
        catalogue.verify(&mut mounted);
    }
    mounted.unload().unwrap();
    rig.wire().alerts = vec![0x32];
    mounted = drive.mount(None).unwrap();
    catalogue.append(&mut mounted, &[vec![2; 5000]]).unwrap();
}

#[test]
fn labels_that_disagree_are_damaged() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    Catalogue::format(&mut mounted, BLOCK).unwrap();
    mounted.unload().unwrap();
    let spoil: [fn(&Path); 3] = [
        |dir| {
            let other = std::fs::read_to_string(dir.join("0_2_R")).unwrap().replace("30a91a08", "30a91a09");
            std::fs::write(dir.join("0_2_R"), other).unwrap();
        },
        |dir| std::fs::write(dir.join("1_2_R"), b"<ltfslabel").unwrap(),
        |dir| {
            for object in ["1_1_F", "1_2_R", "1_3_F", "1_4_F", "1_5_R", "1_6_F", "1_7_E"] {
                std::fs::remove_file(dir.join(object)).unwrap();
            }
            std::fs::write(dir.join("1_1_E"), []).unwrap();
        },
    ];
    for spoil in spoil {
        rig.tamper(BARCODE, spoil);
        let mounted = drive.mount(None).unwrap();
        assert!(matches!(mounted.label(), LabelState::Damaged { .. }), "{:?}", mounted.label());
        mounted.unload().unwrap();
    }
}

#[test]
fn a_label_that_was_cut_short_before_it_says_whose_it_is_is_none() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    for left in [&["1_0_R", "1_1_F"][..], &["1_0_R"]] {
        let mut mounted = drive.mount(None).unwrap();
        Catalogue::format(&mut mounted, BLOCK).unwrap();
        mounted.unload().unwrap();
        rig.tamper(BARCODE, |dir| {
            for object in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap()) {
                let name = object.file_name().into_string().unwrap();
                let of_partition = name.starts_with("0_") || name.starts_with("1_");
                if of_partition && !left.contains(&name.as_str()) {
                    std::fs::remove_file(object.path()).unwrap();
                }
            }
            for end in ["0_0_E".to_owned(), format!("1_{}_E", left.len())] {
                std::fs::write(dir.join(end), []).unwrap();
            }
        });
        let mounted = drive.mount(None).unwrap();
        assert_eq!(mounted.label(), &LabelState::Blank);
        mounted.unload().unwrap();
    }
}

#[test]
fn a_stale_index_partition_is_passed_over() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![4; 5000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    let old = rig.objects(BARCODE)["0_5_R"].clone();
    catalogue.append(&mut mounted, &[vec![5; 5000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    mounted.unload().unwrap();
    rig.tamper(BARCODE, |dir| {
        std::fs::write(dir.join("0_5_R"), old).unwrap();
        std::fs::remove_file(dir.join("attr_0_80c")).unwrap();
    });
    let mut mounted = drive.mount(None).unwrap();
    let (generation, stale, files) = indexed_files(&mut mounted);
    assert_eq!((generation, stale, files.len()), (3, true, 2));
    catalogue.append(&mut mounted, &[vec![6; 5000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    let (generation, stale, files) = indexed_files(&mut mounted);
    assert_eq!((generation, stale, files.len()), (4, false, 3));
}

#[test]
fn a_dead_drive_is_not_the_mediums_fault() {
    for (answers, fault, blame, code) in [
        (true, Fault::HardwareError, Blame::Drive, "TC-D024"),
        (false, Fault::NoAnswer, Blame::Path, "TC-P031"),
    ] {
        on_volume(16 * MIB, |rig, mounted, catalogue| {
            rig.library.inject(vtl::Fault::DriveDead { drive: 0, answers });
            let extent = catalogue.files[0].extents[0];
            let error = mounted.read(&extent, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
            assert_eq!((error.fault, error.blame), (fault, blame));
            assert_eq!(row(&error), (code, Then::OtherDrive));
        });
    }
}

#[test]
fn a_medium_error_is_the_mediums_fault_and_other_files_are_read() {
    on_volume(16 * MIB, |rig, mounted, catalogue| {
        catalogue.append(mounted, &[vec![9; 20_000]]).unwrap();
        let bad = catalogue.files[2].extents[0];
        let (barcode, block) = (BARCODE.to_owned(), bad.start_block + 1);
        rig.library.inject(vtl::Fault::ReadError { barcode, partition: 1, block });
        let error = mounted.read(&bad, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
        assert_eq!((error.fault, error.blame), (Fault::MediumError, Blame::Medium));
        assert!(error.to_string().contains(&format!("block {block} of partition 1")), "{error}");
        catalogue.files.pop();
        catalogue.verify(mounted);
    });
}

#[test]
fn the_wrong_cartridge_is_noticed_by_its_label() {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    mounted.unload().unwrap();
    // another volume of ours is asked for by uuid
    let mut mounted = drive.mount(None).unwrap();
    let mut point = catalogue.point.clone();
    point.uuid = "00000000-0000-4000-8000-000000000000".into();
    let error = mounted.appender(&point, 0).err().unwrap();
    assert_eq!((error.fault, error.blame), (Fault::WrongVolume, Blame::Medium));
    assert_eq!(row(&error), ("TC-M048", Then::OtherVolume));
    mounted.unload().unwrap();
    rig.empty_drive();
    let actual = BARCODE.to_owned();
    rig.library.inject(vtl::Fault::WrongCartridge { barcode: "TC0002L9".into(), actual });
    let mut drive = rig.load("TC0002L9", 0);
    let mounted = drive.mount(Some(&types::Barcode::from("TC0002L9"))).unwrap();
    assert!(matches!(mounted.label(), LabelState::Foreign { what } if what.contains("TC0001")));
}

#[test]
fn a_result_that_was_not_recorded_does_not_block_the_session() {
    on_volume(16 * MIB, |_, mounted, catalogue| {
        catalogue.append(mounted, &[vec![1; 5000]]).unwrap();
        let (point, files) = (catalogue.point.clone(), catalogue.files.len());
        catalogue.append(mounted, &[vec![2; 50_000]]).unwrap();
        catalogue.point = point;
        catalogue.files.truncate(files);
        catalogue.append(mounted, &[vec![3; 9000]]).unwrap();
        catalogue.verify(mounted);
        catalogue.index(mounted).unwrap();
    });
}
