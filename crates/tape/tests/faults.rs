//! What goes wrong is noticed, blamed on the right resource, and never costs recorded data.

mod support;

use scsi::{Sense, SenseKey};
use std::ops::ControlFlow;
use support::catalogue::{Catalogue, barcode, indexed_files};
use support::{Fake, Object};
use tape::{Appender, Blame, Fault, LabelState, Mounted, Room};

const BLOCK: u32 = 4096;
const MIB: u64 = 1 << 20;

fn sense(key: SenseKey, asc: u8, ascq: u8) -> Sense {
    Sense::new(key, asc, ascq)
}

/// Runs `test` on a fresh volume that holds one recorded batch.
fn on_volume(capacity: u64, test: impl FnOnce(&Fake, &mut Mounted<'_>, &mut Catalogue)) {
    let fake = Fake::new(capacity);
    let mut drive = fake.drive();
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000], vec![8; 100]]).unwrap();
    test(&fake, &mut mounted, &mut catalogue);
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
        let bytes = support::catalogue::read_file(mounted, byte_count as usize, &[extent]);
        let chunk: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
        assert!(bytes.chunks(100_000).all(|c| *c == chunk[..c.len()]));
    });
}

#[test]
fn the_reserve_for_the_index_counts_as_full() {
    on_volume(8 * MIB, |fake, mounted, catalogue| {
        let mut appender = mounted.appender(&catalogue.point, 4 * MIB).unwrap();
        let handed = fill(&mut appender, Room::Full);
        let flushed = appender.flush().unwrap();
        assert!(flushed.safe_bytes < handed && flushed.safe_bytes > 2 * MIB && flushed.safe_bytes < 4 * MIB);
        catalogue.record(flushed);
        catalogue.index(mounted).unwrap();
        let on_tape: usize = fake.state().live.partitions[1].iter().map(size).sum();
        assert!(on_tape as u64 <= 4 * MIB + 64 * 1024);
    });
}

fn size(object: &Object) -> usize {
    if let Object::Record(r) = object { r.len() } else { 0 }
}

#[test]
fn an_index_without_room_on_the_data_partition_goes_to_the_index_partition() {
    let fake = Fake::new(4 * MIB);
    let mut drive = fake.drive();
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000], vec![8; 100]]).unwrap();
    let first = catalogue.index(&mut mounted).unwrap();
    catalogue.append(&mut mounted, &[vec![9; 100_000]]).unwrap();
    let end = catalogue.point.block;
    fake.state().live.capacity = 100_000;
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
    fake.state().live.memory.remove(&(0, 0x080c));
    assert_eq!(indexed_files(&mut mounted).2.len(), 3);
}

#[test]
fn a_foreign_writer_is_noticed() {
    let fake = Fake::new(16 * MIB);
    let mut drive = fake.drive();
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 5000]]).unwrap();
    mounted.unload().unwrap();
    {
        // another program mounts, appends a record, unloads
        let mut s = fake.state();
        s.live.vcr += 1;
        s.live.partitions[1].push(Object::Record(vec![9; 10]));
    }
    let mut mounted = drive.mount(None).unwrap();
    let before = fake.state().live.partitions.clone();
    let error = mounted.appender(&catalogue.point, 0).err().unwrap();
    assert_eq!((error.fault, error.blame), (Fault::ForeignWriter, Blame::Medium));
    assert!(error.to_string().contains("somebody else wrote to this volume"), "{error}");
    assert_eq!(catalogue.index(&mut mounted).unwrap_err().fault, Fault::ForeignWriter);
    assert_eq!(fake.state().live.partitions, before);
    catalogue.verify(&mut mounted);
}

#[test]
fn a_volume_that_lost_recorded_data_is_noticed() {
    let fake = Fake::new(16 * MIB);
    let mut drive = fake.drive();
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 50_000]]).unwrap();
    mounted.unload().unwrap();
    fake.state().live.partitions[1].truncate(9);
    let mut mounted = drive.mount(None).unwrap();
    let error = mounted.appender(&catalogue.point, 0).err().unwrap();
    assert_eq!((error.fault, error.blame), (Fault::DataMissing, Blame::Medium));
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
        on_volume(16 * MIB, |fake, mounted, catalogue| {
            let block = catalogue.files[0].extents[0].start_block;
            fake.state().faults.insert((1, block as usize), sense);
            let error = mounted.read(&catalogue.files[0].extents[0], &mut |_, _| unreachable!()).unwrap_err();
            assert_eq!((error.fault, error.blame), (fault, blame));
            assert_eq!(error.volume, Some(barcode()));
            let text = error.to_string();
            assert!(
                text.starts_with("volume TC0001L9 in fake0: reading at block 7 of partition 1:"),
                "{text}"
            );
        });
    }
}

#[test]
fn a_write_error_leaves_what_was_recorded_and_can_be_repeated() {
    on_volume(16 * MIB, |fake, mounted, catalogue| {
        let block = catalogue.point.block as usize + 3;
        fake.state().faults.insert((1, block), sense(SenseKey::MediumError, 0x0c, 0));
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        let error = appender.write(&vec![1; 100_000]).unwrap_err();
        assert_eq!((error.fault, error.blame), (Fault::MediumError, Blame::Medium));
        assert_eq!(appender.write(&[1]).unwrap_err().fault, Fault::Misuse);
        assert_eq!(appender.flush().unwrap_err().fault, Fault::Misuse);
        fake.state().faults.clear();
        catalogue.append(mounted, &[vec![3; 9000]]).unwrap();
        catalogue.verify(mounted);
    });
}

#[test]
fn a_flush_that_fails_counts_nothing() {
    on_volume(16 * MIB, |fake, mounted, catalogue| {
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        appender.write(&vec![1; 100_000]).unwrap();
        let deferred = Sense { deferred: true, ..sense(SenseKey::MediumError, 0x0c, 0) };
        fake.state().flush_fault = Some(deferred);
        assert_eq!(appender.flush().unwrap_err().fault, Fault::MediumError);
        catalogue.append(mounted, &[vec![3; 9000]]).unwrap();
        catalogue.verify(mounted);
    });
}

#[test]
fn a_reset_ends_the_session_until_it_is_mounted_again() {
    let fake = Fake::new(16 * MIB);
    let mut drive = fake.drive();
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
    appender.write(&vec![1; 10_000]).unwrap();
    {
        let mut s = fake.state();
        s.attentions.push((0x29, 0));
        s.at = (0, 0);
    }
    let before = fake.state().live.partitions.clone();
    let error = appender.write(&vec![1; 10_000]).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::PositionLost, Blame::Drive));
    assert!(appender.flush().is_err());
    assert_eq!(mounted.appender(&catalogue.point, 0).err().unwrap().fault, Fault::PositionLost);
    assert_eq!(catalogue.index(&mut mounted).unwrap_err().fault, Fault::PositionLost);
    assert_eq!(fake.state().live.partitions, before, "nothing is written after a reset");
    drop(mounted);
    let mut mounted = drive.mount(None).unwrap();
    catalogue.append(&mut mounted, &[vec![2; 20_000]]).unwrap();
    catalogue.verify(&mut mounted);
}

#[test]
fn a_drive_that_stands_elsewhere_is_not_written_to() {
    on_volume(16 * MIB, |fake, mounted, catalogue| {
        let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
        let before = fake.state().live.partitions.clone();
        fake.state().at = (1, 2);
        let error = appender.write(&vec![1; 10_000]).unwrap_err();
        assert_eq!((error.fault, error.blame), (Fault::WrongPosition, Blame::Drive));
        assert_eq!(fake.state().live.partitions, before);
    });
}

#[test]
fn a_record_of_another_length_is_noticed() {
    on_volume(16 * MIB, |fake, mounted, catalogue| {
        let block = catalogue.files[0].extents[0].start_block as usize;
        for length in [0, 100, BLOCK as usize + 1] {
            fake.state().live.partitions[1][block] = Object::Record(vec![7; length]);
            let read = mounted.read(&catalogue.files[0].extents[0], &mut |_, _| ControlFlow::Continue(()));
            let error = read.unwrap_err();
            assert_eq!((error.fault, error.blame), (Fault::BadRecord, Blame::Medium), "{length}");
        }
    });
}

#[test]
fn protected_and_alarming_volumes_are_read_only() {
    let fake = Fake::new(16 * MIB);
    let mut drive = fake.drive();
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 5000]]).unwrap();
    for (protected, alerts, fault, blame) in [
        (true, vec![], Fault::WriteProtected, Blame::Medium),
        (false, vec![3, 4], Fault::HardwareError, Blame::Medium),
        (false, vec![30], Fault::HardwareError, Blame::Drive),
    ] {
        mounted.unload().unwrap();
        (fake.state().live.write_protected, fake.state().alerts) = (protected, alerts.clone());
        mounted = drive.mount(None).unwrap();
        assert_eq!((mounted.write_protected(), mounted.alerts()), (protected, &alerts[..]));
        let error = mounted.appender(&catalogue.point, 0).err().unwrap();
        assert_eq!((error.fault, error.blame), (fault, blame));
        catalogue.verify(&mut mounted);
    }
    mounted.unload().unwrap();
    (fake.state().live.write_protected, fake.state().alerts) = (false, vec![0x32]);
    mounted = drive.mount(None).unwrap();
    catalogue.append(&mut mounted, &[vec![2; 5000]]).unwrap();
}

#[test]
fn labels_that_disagree_are_damaged() {
    let fake = Fake::new(16 * MIB);
    let mut drive = fake.drive();
    let mut mounted = drive.mount(None).unwrap();
    Catalogue::format(&mut mounted, BLOCK).unwrap();
    mounted.unload().unwrap();
    let good = fake.state().live.partitions.clone();
    let spoil: [fn(&mut Vec<Vec<Object>>); 4] = [
        |p| p[1].clear(),
        |p| p[0].truncate(1),
        |p| p[1][2] = Object::Record(b"<ltfslabel".to_vec()),
        |p| {
            let Object::Record(xml) = &mut p[0][2] else { panic!() };
            let text = String::from_utf8(xml.clone()).unwrap().replace("30a91a08", "30a91a09");
            *xml = text.into_bytes();
        },
    ];
    for spoil in spoil {
        let mut partitions = good.clone();
        spoil(&mut partitions);
        fake.state().live.partitions = partitions;
        let mounted = drive.mount(None).unwrap();
        assert!(matches!(mounted.label(), LabelState::Damaged { .. }), "{:?}", mounted.label());
        mounted.unload().unwrap();
    }
}

#[test]
fn a_stale_index_partition_is_passed_over() {
    on_volume(16 * MIB, |fake, mounted, catalogue| {
        catalogue.index(mounted).unwrap();
        let old = fake.state().live.partitions[0].clone();
        catalogue.append(mounted, &[vec![5; 5000]]).unwrap();
        catalogue.index(mounted).unwrap();
        {
            let mut s = fake.state();
            s.live.partitions[0] = old;
            s.live.memory.remove(&(0, 0x080c));
        }
        let (generation, stale, files) = indexed_files(mounted);
        assert_eq!((generation, stale, files.len()), (3, true, 3));
        catalogue.append(mounted, &[vec![6; 5000]]).unwrap();
        catalogue.index(mounted).unwrap();
        let (generation, stale, files) = indexed_files(mounted);
        assert_eq!((generation, stale, files.len()), (4, false, 4));
    });
}
