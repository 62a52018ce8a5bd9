//! Things that go wrong, and things that a real drive and library refuse.

use scsi::mode::{DataProtection, PartitionPage};
use scsi::{Attribute, ElementType, FormatKind, ReadOutcome, ScsiError, Sense, SenseKey, Smc, Ssc, mam};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vtl::{Clock, Device, Fault, HostOp, Library, Mechanics, VirtualClock, VtlConfig, VtlError};

const MIB: usize = 1 << 20;

fn config(dir: &Path) -> VtlConfig {
    VtlConfig { cartridges: 3, slots: 4, capacity_bytes: 40 << 20, ..VtlConfig::new(dir) }
}

struct Rig {
    library: Arc<Library>,
    changer: Smc,
    drive: Ssc,
    _dir: tempfile::TempDir,
}

/// Takes unit attentions until there are none.
fn settle(device: &mut scsi::Device) {
    while device.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention))
    {
    }
}

fn rig_with(change: impl FnOnce(&mut VtlConfig), clock: Arc<dyn Clock>) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    change(&mut config);
    let library = Library::open_with_clock(config, clock).unwrap();
    let mut changer = Smc::new(Box::new(library.changer()));
    settle(&mut changer);
    changer.move_medium(1001, 1).unwrap();
    let mut drive = Ssc::new(Box::new(library.drive(0)));
    settle(&mut drive);
    Rig { library, changer, drive, _dir: dir }
}

fn rig() -> Rig {
    rig_with(|_| {}, Arc::new(VirtualClock::default()))
}

#[track_caller]
fn sense<T: std::fmt::Debug>(result: Result<T, ScsiError>) -> Sense {
    *result.expect_err("succeeded").sense().expect("no sense")
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, ScsiError>, key: SenseKey, asc: u8, ascq: u8) {
    let s = sense(result);
    assert!(s.is(key, asc, ascq), "{s}");
}

#[test]
fn early_warning_then_volume_overflow_and_everything_written_is_readable() {
    let mut r = rig();
    let record = vec![7u8; MIB];
    let (mut written, mut warned_at) = (0u64, None);
    let overflow = loop {
        match r.drive.write(&record) {
            Ok(outcome) => {
                written += 1;
                if outcome.early_warning {
                    warned_at.get_or_insert(written);
                }
            }
            Err(e) => break e,
        }
    };
    let s = *overflow.sense().unwrap();
    assert!(s.is(SenseKey::VolumeOverflow, 0x00, 0x02) && s.eom, "{s}");
    assert_eq!((written, warned_at), (40, Some(38)));
    assert!(r.drive.write_filemarks(1, false).unwrap().early_warning, "filemarks still fit");
    let p = r.drive.read_position().unwrap();
    assert!(p.eop && p.block == 41);
    assert_eq!(r.drive.capacity().unwrap()[0].unwrap().remaining, 0);
    r.drive.rewind().unwrap();
    let mut buf = vec![0u8; MIB];
    for _ in 0..40 {
        assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: MIB });
    }
    assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Filemark);
}

#[test]
fn protected_records_carry_their_sum_and_a_wrong_one_is_refused() {
    let mut r = rig();
    let bad = DataProtection { method: 1, ..DataProtection::CRC32C };
    refused(r.drive.set_data_protection(bad), SenseKey::IllegalRequest, 0x26, 0x00);
    r.drive.set_data_protection(DataProtection::CRC32C).unwrap();
    assert_eq!(r.drive.data_protection().unwrap(), Some(DataProtection::CRC32C));
    let sealed = b"123456789\x83\x92\x06\xE3"; // E3069283h, low byte first
    r.drive.write(sealed).unwrap();
    let mut wrong = *sealed;
    wrong[0] ^= 1;
    refused(r.drive.write(&wrong), SenseKey::HardwareError, 0x10, 0x01);
    refused(r.drive.write(&sealed[9..]), SenseKey::IllegalRequest, 0x24, 0x00);
    r.drive.write_filemarks(1, false).unwrap();
    for room in [13, 100] {
        r.drive.rewind().unwrap();
        let mut buf = vec![0u8; room];
        assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: 13 });
        assert_eq!(buf[..13], *sealed);
        assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Filemark, "the refused ones are not there");
    }
    r.drive.rewind().unwrap();
    assert_eq!(r.drive.read(&mut [0; 12]).unwrap(), ReadOutcome::TooLong { length: Some(13) });
    r.library.reset_drive(0);
    settle(&mut r.drive);
    assert_eq!(r.drive.data_protection().unwrap(), Some(DataProtection::OFF), "a reset switches it off");
    let mut buf = [0; 20];
    assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: 9 });
}

#[test]
fn programmable_early_warning_comes_once() {
    let mut r = rig();
    let mut data = r.drive.mode_sense(0x10, 1).unwrap();
    data.pages[6..8].copy_from_slice(&20u16.to_be_bytes()); // 20 MB before early warning
    r.drive.mode_select(&data).unwrap();
    let reported: Vec<u64> =
        (1..=36u64).filter(|_| r.drive.write(&vec![1; MIB]).unwrap().programmable_early_warning).collect();
    assert_eq!(reported, [19]); // 38 MiB - 20 MB = 18.9 MiB
    assert!(r.drive.read_position().unwrap().bpew);
}

#[test]
fn an_early_end_is_met_before_the_capacity() {
    let mut r = rig();
    r.library.inject(Fault::EarlyEnd { barcode: "TC0001L9".into(), bytes: 10 << 20 });
    let fits = (0..40).take_while(|_| r.drive.write(&vec![1; MIB]).is_ok()).count();
    assert_eq!(fits, 10);
}

#[test]
fn two_partitions_each_with_its_own_data_and_attributes() {
    let mut r = rig();
    let mut page = r.drive.partition_page().unwrap();
    assert_eq!((page.max_additional, page.additional), (1, 0));
    page.additional = 1;
    page.flags = PartitionPage::IDP | PartitionPage::PSUM_POWER | PartitionPage::POFM;
    (page.units, page.sizes) = (6, vec![5, 0xFFFF]);
    r.drive.set_partition_page(&page).unwrap();
    r.drive.write(b"old").unwrap();
    refused(r.drive.format_medium(FormatKind::Partition), SenseKey::IllegalRequest, 0x3B, 0x0C);
    r.drive.rewind().unwrap();
    r.drive.format_medium(FormatKind::Partition).unwrap();
    assert_eq!(r.drive.partition_page().unwrap().additional, 1);
    for p in 0..2u8 {
        r.drive.locate(p, 0).unwrap();
        r.drive.write(&[p; 10]).unwrap();
        let id = mam::id::VOLUME_COHERENCY;
        r.drive.write_attributes(p, &[Attribute::binary(id, [p; 70])]).unwrap();
    }
    refused(r.drive.locate(2, 0), SenseKey::IllegalRequest, 0x24, 0);
    for p in 0..2u8 {
        r.drive.locate(p, 0).unwrap();
        let mut buf = [0xFF; 10];
        r.drive.read(&mut buf).unwrap();
        assert_eq!(buf, [p; 10]);
        let attribute = r.drive.read_attribute(p, mam::id::VOLUME_COHERENCY).unwrap().unwrap();
        assert_eq!(attribute.value, [p; 70]);
    }
    assert_eq!(r.drive.read_attribute(1, 0x0801).unwrap(), None);
    let capacity = r.drive.capacity().unwrap();
    assert_eq!(capacity[0].unwrap().maximum, 4 << 20); // 5 MB in whole MiB
    assert_eq!(capacity[1].unwrap().maximum, 40 << 20);
    r.drive.locate(0, 0).unwrap();
    r.drive.format_medium(FormatKind::Default).unwrap();
    refused(r.drive.locate(1, 0), SenseKey::IllegalRequest, 0x24, 0);
}

#[test]
fn the_change_reference_goes_up_once_per_load_and_survives_a_crash() {
    let mut r = rig();
    let vcr = |d: &mut Ssc| {
        d.read_attribute(0, mam::id::VOLUME_CHANGE_REFERENCE).unwrap().unwrap().number().unwrap()
    };
    assert_eq!(vcr(&mut r.drive), 0);
    r.drive.write(b"a").unwrap();
    r.drive.write_filemarks(1, false).unwrap();
    r.drive.write(b"b").unwrap();
    assert_eq!(vcr(&mut r.drive), 1);
    r.drive.unload().unwrap();
    r.drive.load().unwrap();
    settle(&mut r.drive);
    assert_eq!(vcr(&mut r.drive), 1);
    r.drive.write(b"c").unwrap(); // overwrites block 0, never flushed
    assert_eq!(vcr(&mut r.drive), 2);
    r.library.power_cycle().unwrap();
    settle(&mut r.drive);
    assert_eq!(vcr(&mut r.drive), 2, "the medium was changed, so the reference must say so");
    assert_eq!(r.drive.read(&mut [0; 9]).unwrap(), ReadOutcome::EndOfData);
}

#[test]
fn flags_outlast_the_unload_and_not_the_next_load() {
    let mut r = rig();
    let alert = |flag| {
        let then = Box::new(Fault::Alert { drive: 0, flag });
        Fault::At { device: Device::Drive(0), opcode: scsi::opcode::WRITE_6, nth: 1, then }
    };
    r.library.inject(alert(19));
    r.drive.write(&[1; 100]).unwrap();
    r.drive.unload().unwrap();
    assert_eq!(r.drive.tape_alerts().unwrap(), [19]);
    r.drive.load().unwrap();
    let _changed = r.drive.test_unit_ready();
    r.library.inject(alert(7));
    r.drive.write(&[1; 100]).unwrap();
    r.drive.unload().unwrap();
    r.drive.load().unwrap();
    let _changed = r.drive.test_unit_ready();
    assert_eq!(r.drive.tape_alerts().unwrap(), [0u8; 0]);
}

#[test]
fn medium_errors_stay_at_their_block_and_raise_alerts() {
    let mut r = rig();
    for n in 0..4u8 {
        r.drive.write(&[n; 100]).unwrap();
    }
    r.drive.rewind().unwrap();
    let at = |block| (String::from("TC0001L9"), 0u8, block);
    let (barcode, partition, block) = at(2);
    r.library.inject(Fault::ReadError { barcode, partition, block });
    let mut buf = [0u8; 100];
    r.drive.read(&mut buf).unwrap();
    r.drive.read(&mut buf).unwrap();
    refused(r.drive.read(&mut buf), SenseKey::MediumError, 0x11, 0);
    assert_eq!(r.drive.read_position().unwrap().block, 2);
    assert_eq!(r.drive.tape_alerts().unwrap(), [3, 4, 5]);
    assert_eq!(r.drive.tape_alerts().unwrap(), [0u8; 0], "reading clears them");
    r.drive.locate(0, 3).unwrap();
    r.drive.read(&mut buf).unwrap();
    assert_eq!(buf, [3; 100]);

    let (barcode, partition, block) = at(5);
    r.library.inject(Fault::WriteError { barcode, partition, block });
    r.drive.write(&[4; 100]).unwrap();
    r.drive.write(&[5; 100]).unwrap(); // into the buffer
    let s = sense(r.drive.write(&[6; 100]));
    assert!(s.deferred && s.is(SenseKey::MediumError, 0x0C, 0), "{s}");
    assert_eq!(r.drive.read_position().unwrap().block, 5);
    let statistics = r.drive.volume_statistics().unwrap();
    assert_eq!(statistics.mount_unrecovered_write_errors, Some(1));
    assert_eq!(statistics.mount_unrecovered_read_errors, Some(1));
}

#[test]
fn power_failure_takes_only_what_was_not_flushed() {
    let mut r = rig();
    r.drive.write(b"kept").unwrap();
    r.drive.write_filemarks(0, false).unwrap();
    r.drive.write(b"lost").unwrap();
    r.drive.write_filemarks(1, true).unwrap(); // immediate: still in the buffer
    r.library.power_cycle().unwrap();
    refused(r.drive.test_unit_ready(), SenseKey::UnitAttention, 0x29, 0x01);
    settle(&mut r.drive);
    let mut buf = [0u8; 10];
    assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: 4 });
    assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::EndOfData);
}

#[test]
fn a_reset_loses_the_position_but_not_the_data() {
    let mut r = rig();
    r.drive.write(b"one").unwrap();
    r.library.reset_drive(0);
    refused(r.drive.write(b"two"), SenseKey::UnitAttention, 0x29, 0x00);
    let p = r.drive.read_position().unwrap();
    assert!(p.bop && p.block == 0);
    assert_eq!(r.drive.read(&mut [0; 9]).unwrap(), ReadOutcome::Record { bytes: 3 });
}

#[test]
fn faults_begin_at_the_command_that_they_wait_for() {
    let mut r = rig();
    let at = |device, opcode, nth, then| Fault::At { device, opcode, nth, then: Box::new(then) };
    let write = scsi::opcode::WRITE_6;
    r.library.inject(at(Device::Drive(1), write, 1, Fault::PowerLoss { drive: 0 }));
    r.library.inject(at(Device::Drive(0), write, 3, Fault::Reset { drive: 0 }));
    r.drive.write(b"one").unwrap();
    r.drive.write(b"two").unwrap();
    refused(r.drive.write(b"three"), SenseKey::UnitAttention, 0x29, 0x00);
    assert!(r.drive.read_position().unwrap().bop, "the position is lost");
    r.drive.locate(0, 2).unwrap();
    r.drive.write_filemarks(0, false).unwrap();
    r.library.inject(at(Device::Drive(0), write, 2, Fault::PowerLoss { drive: 0 }));
    r.drive.write(b"three").unwrap();
    refused(r.drive.write(b"four"), SenseKey::UnitAttention, 0x29, 0x01);
    settle(&mut r.drive);
    let mut buf = [0u8; 9];
    for expected in [&b"one"[..], b"two"] {
        assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: 3 });
        assert_eq!(&buf[..3], expected);
    }
    assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::EndOfData, "what was in the buffer is lost");
    let moving = scsi::opcode::MOVE_MEDIUM;
    r.library.inject(at(Device::Changer, moving, 2, Fault::RobotStuck));
    r.changer.move_medium(1002, 1004).unwrap();
    refused(r.changer.move_medium(1004, 1002), SenseKey::HardwareError, 0x15, 0x01);
    r.library.clear_faults();
    r.library.inject(at(Device::Changer, moving, 1, Fault::PowerCut));
    refused(r.changer.move_medium(1004, 1002), SenseKey::UnitAttention, 0x29, 0x01);
    refused(r.drive.test_unit_ready(), SenseKey::UnitAttention, 0x29, 0x01);
    assert!(r.library.contents().contains(&(1004, "TC0002L9".into())), "nothing was moved");
}

/// Names and lengths of the files of a cartridge: what would be there after a power failure.
fn on_medium(r: &Rig) -> Vec<(String, u64)> {
    let dir = std::fs::read_dir(r.library.config().dir.join("cartridges/TC0001L9")).unwrap();
    let mut all: Vec<_> = dir
        .map(|e| e.unwrap())
        .map(|e| (e.file_name().into_string().unwrap(), e.metadata().unwrap().len()))
        .filter(|(name, _)| !name.starts_with("attr"))
        .collect();
    all.sort();
    all
}

#[test]
fn a_failure_of_the_hosts_file_system_leaves_the_cartridge_and_is_told() {
    let mut r = rig();
    // What the robot would write its table to.
    let in_the_way = r.library.config().dir.join("elements.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    let before = r.library.contents();
    refused(r.changer.move_medium(1002, 2), SenseKey::HardwareError, 0x44, 0x00);
    let told = r.library.take_robot_error().unwrap();
    assert!(told.contains("elements.tmp"), "{told}");
    assert_eq!((r.library.contents(), r.library.take_robot_error()), (before, None));
    std::fs::remove_dir(&in_the_way).unwrap();
    r.changer.move_medium(1002, 2).unwrap();
}

#[test]
fn failures_of_the_hosts_file_system_are_never_success() {
    const ENOSPC: i32 = 28;
    const EIO: i32 = 5;
    for (op, errno) in
        [(HostOp::Write, ENOSPC), (HostOp::Write, EIO), (HostOp::Sync, EIO), (HostOp::SyncNames, EIO)]
    {
        let mut r = rig();
        r.drive.write(b"kept").unwrap();
        r.drive.write_filemarks(0, false).unwrap();
        let before = on_medium(&r);
        r.drive.write(b"in the buffer").unwrap();
        r.library.inject(Fault::HostError { barcode: "TC0001L9".into(), op, errno });
        let wrote = r.drive.write(b"lost").and_then(|_| r.drive.write_filemarks(0, false));
        let s = sense(wrote);
        assert!(s.is(SenseKey::HardwareError, 0x03, 0x00), "{op:?}: {s}");
        assert_eq!(s.deferred, op != HostOp::Write);
        assert!(r.library.stats(0).unwrap().host_error.unwrap().contains("TC0001L9"));
        assert_eq!(r.drive.tape_alerts().unwrap(), [30]);
        r.library.clear_faults();
        if op == HostOp::Write {
            // The record is not there, those before it still are.
            assert_eq!(r.drive.read_position().unwrap().block, 2);
            r.drive.write_filemarks(0, false).unwrap();
        } else {
            assert_eq!(on_medium(&r), before, "{op:?}: nothing since the last flush may count");
            assert_eq!(r.drive.read_position().unwrap().block, 1);
        }
        r.drive.write(b"again").unwrap();
        r.drive.write_filemarks(0, false).unwrap();
        r.drive.locate(0, if op == HostOp::Write { 2 } else { 1 }).unwrap();
        let mut buf = [0u8; 20];
        assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: 5 });
    }
}

#[test]
fn a_record_that_the_host_cannot_read_is_a_bad_spot_of_the_medium() {
    let mut r = rig();
    for n in 0..3u8 {
        r.drive.write(&[n; 50]).unwrap();
    }
    r.drive.rewind().unwrap();
    let mut buf = [0u8; 50];
    r.library.inject(Fault::HostError { barcode: "TC0001L9".into(), op: HostOp::Read, errno: 5 });
    refused(r.drive.read(&mut buf), SenseKey::MediumError, 0x11, 0x00);
    assert_eq!(r.drive.read_position().unwrap().block, 0);
    r.library.clear_faults();
    r.drive.read(&mut buf).unwrap();
    // A file that really is too short.
    std::fs::write(r.library.config().dir.join("cartridges/TC0001L9/0_1_R"), [1; 20]).unwrap();
    refused(r.drive.read(&mut buf), SenseKey::MediumError, 0x11, 0x00);
    r.drive.locate(0, 2).unwrap();
    r.drive.read(&mut buf).unwrap();
    assert_eq!((buf, r.drive.tape_alerts().unwrap()), ([2; 50], vec![3, 4, 5]));
}

#[test]
fn dead_drives_and_stuck_robots_stop_only_themselves() {
    let mut r = rig();
    r.library.inject(Fault::DriveDead { drive: 0, answers: true });
    refused(r.drive.test_unit_ready(), SenseKey::HardwareError, 0x44, 0);
    refused(r.changer.move_medium(1, 1001), SenseKey::HardwareError, 0x53, 0x01);
    r.changer.move_medium(1002, 2).unwrap();
    let mut other = Ssc::new(Box::new(r.library.drive(1)));
    settle(&mut other);
    other.write(b"fine").unwrap();
    r.library.clear_faults();
    r.library.inject(Fault::DriveDead { drive: 1, answers: false });
    assert!(matches!(other.test_unit_ready(), Err(ScsiError::Transport(_))));
    r.library.clear_faults();
    r.library.inject(Fault::RobotStuck);
    refused(r.changer.move_medium(1003, 1004), SenseKey::HardwareError, 0x15, 0x01);
    r.drive.unload().unwrap();
    refused(r.changer.move_medium(1, 1001), SenseKey::HardwareError, 0x15, 0x01);
    r.library.clear_faults();
    r.changer.move_medium(1, 1001).unwrap();
    assert_eq!(r.library.contents()[..2], [(2, "TC0002L9".into()), (1001, "TC0001L9".into())]);
}

#[test]
fn the_changer_refuses_what_cannot_be_and_remembers_where_things_are() {
    let mut r = rig();
    refused(r.changer.move_medium(1004, 1001), SenseKey::IllegalRequest, 0x3B, 0x0E);
    refused(r.changer.move_medium(1002, 1003), SenseKey::IllegalRequest, 0x3B, 0x0D);
    refused(r.changer.move_medium(1002, 4711), SenseKey::IllegalRequest, 0x21, 0x01);
    refused(r.changer.move_medium(1, 1001), SenseKey::IllegalRequest, 0x53, 0x03);
    r.drive.prevent_removal(true).unwrap();
    refused(r.drive.unload(), SenseKey::IllegalRequest, 0x53, 0x02);
    refused(r.changer.move_medium(1, 1001), SenseKey::IllegalRequest, 0x53, 0x02);
    r.drive.prevent_removal(false).unwrap();

    let all = r.changer.read_all_elements().unwrap();
    let drive = all.iter().find(|e| e.address == 1).unwrap();
    assert_eq!(drive.kind, ElementType::DataTransfer);
    assert_eq!((drive.full, drive.access, drive.source), (true, false, Some(1001)));
    assert_eq!(drive.barcode.as_deref(), Some("TC0001L9"));
    assert!(drive.device.as_deref().unwrap().ends_with("TCVTL001D00"));
    assert_eq!(all.iter().filter(|e| e.full).count(), 3);
    assert_eq!(all.len(), 1 + 2 + 1 + 4);

    r.library.inject(Fault::UnreadableBarcode { barcode: "TC0002L9".into() });
    let slot = r.changer.read_elements(ElementType::Storage, scsi::Range { first: 1002, count: 1 }).unwrap();
    assert!(slot[0].full && slot[0].barcode.is_none());

    r.changer.exchange_medium(1002, 1003, 1002).unwrap();
    assert_eq!(
        r.library.contents(),
        [(1, "TC0001L9".into()), (1002, "TC0003L9".into()), (1003, "TC0002L9".into())]
    );
    r.changer.move_medium(1002, 101).unwrap();
    r.library.remove("TC0003L9").unwrap();
    assert!(matches!(r.library.remove("TC0001L9"), Err(VtlError::Refused(_))));
    refused(r.changer.test_unit_ready(), SenseKey::UnitAttention, 0x28, 0x01);
    r.library.create_cartridge("NEW001L9", 1 << 20).unwrap();
    assert_eq!(r.library.insert("NEW001L9").unwrap(), 101);
    assert!(matches!(r.library.insert("TC0003L9"), Err(VtlError::Refused(_))), "the slot is full");
}

#[test]
fn the_wrong_cartridge_shows_only_by_what_is_on_it() {
    let mut r = rig();
    r.drive.write(b"I am TC0001L9").unwrap();
    r.drive.unload().unwrap();
    r.changer.move_medium(1, 1001).unwrap();
    r.library.inject(Fault::WrongCartridge { barcode: "TC0002L9".into(), actual: "TC0001L9".into() });
    r.changer.move_medium(1002, 1).unwrap();
    settle(&mut r.drive);
    let mut buf = [0u8; 20];
    assert_eq!(r.drive.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: 13 });
    let all = r.changer.read_all_elements().unwrap();
    assert_eq!(all.iter().find(|e| e.address == 1).unwrap().barcode.as_deref(), Some("TC0002L9"));
}

#[test]
fn a_set_tab_protects_the_cartridge() {
    let mut r = rig();
    assert!(matches!(r.library.set_write_protect("TC0001L9", true), Err(VtlError::Refused(_))));
    r.drive.unload().unwrap();
    r.changer.move_medium(1, 1001).unwrap();
    r.library.set_write_protect("TC0001L9", true).unwrap();
    r.changer.move_medium(1001, 1).unwrap();
    settle(&mut r.drive);
    assert!(r.drive.write_protected().unwrap());
    refused(r.drive.write(b"x"), SenseKey::DataProtect, 0x27, 0);
    refused(r.drive.erase(true), SenseKey::DataProtect, 0x27, 0);
    refused(r.drive.format_medium(FormatKind::Default), SenseKey::DataProtect, 0x27, 0);
    refused(
        r.drive.write_attributes(0, &[Attribute::binary(0x0805, [0x81])]),
        SenseKey::DataProtect,
        0x27,
        0,
    );
    assert_eq!(r.drive.tape_alerts().unwrap(), [9]);
}

#[test]
fn lto9_mechanics_take_their_time_on_the_injected_clock() {
    let clock = Arc::new(VirtualClock::default());
    let mut r = rig_with(
        |c| {
            c.mechanics = Mechanics::LTO9;
            c.buffer_bytes = 8 << 20;
        },
        clock.clone(),
    );
    assert_eq!(clock.now(), Mechanics::LTO9.robot_move);
    refused(r.drive.test_unit_ready(), SenseKey::NotReady, 0x04, 0x01);
    r.drive.load().unwrap();
    settle(&mut r.drive);
    let ready = clock.now();
    assert_eq!(ready, Mechanics::LTO9.robot_move + Mechanics::LTO9.load);
    for _ in 0..32 {
        r.drive.write(&vec![0; MIB]).unwrap();
    }
    let streamed = r.library.stats(0).unwrap().streaming;
    assert_eq!(streamed, Mechanics::LTO9.stream(24 << 20), "the rest is in the buffer");
    r.drive.write_filemarks(0, false).unwrap();
    let wrote = clock.now() - ready;
    let expected = Mechanics::LTO9.stream(32 << 20);
    assert!(wrote.abs_diff(expected) < Duration::from_micros(1), "{wrote:?} instead of {expected:?}");
    let stats = r.library.stats(0).unwrap();
    assert_eq!((stats.gaps, stats.idle), (0, Duration::ZERO));
    let before = clock.now();
    r.drive.locate(0, 1).unwrap();
    assert!(clock.now() - before > Duration::from_secs(9), "wrap change and turn");
    clock.advance(Duration::from_secs(3));
    r.drive.read(&mut vec![0; MIB]).unwrap();
    let (stood, stats) = (clock.now() - before, r.library.stats(0).unwrap());
    assert_eq!(stats.standing, stood - Mechanics::LTO9.stream(1 << 20), "the locate and the pause behind it");
    r.drive.unload().unwrap();
    assert_eq!(r.library.stats(0).unwrap().backward, 1);
}

#[test]
fn reservations_keep_other_hosts_out() {
    let mut r = rig();
    let mut other = Ssc::new(Box::new(r.library.drive_as(0, 1)));
    settle(&mut other);
    let reserve = |d: &mut Ssc, op: u8| {
        d.transport().execute(&[op, 0, 0, 0, 0, 0], scsi::Data::None, Duration::MAX).unwrap().status
    };
    assert_eq!(reserve(&mut r.drive, 0x16), 0);
    assert!(matches!(other.write(b"x"), Err(ScsiError::Status { status: 0x18, .. })));
    other.inquiry().unwrap();
    assert_eq!(reserve(&mut r.drive, 0x17), 0);
    other.write(b"x").unwrap();
}

#[test]
fn a_library_is_open_once_and_a_damaged_cartridge_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let library = Library::open(config(dir.path())).unwrap();
    assert!(matches!(Library::open(config(dir.path())), Err(VtlError::InUse { .. })));
    let mut changer = Smc::new(Box::new(library.changer()));
    settle(&mut changer);
    changer.move_medium(1001, 1).unwrap();
    let mut drive = Ssc::new(Box::new(library.drive(0)));
    settle(&mut drive);
    (0..3).for_each(|_| _ = drive.write(b"x").unwrap());
    drive.rewind().unwrap();
    drop((changer, drive, library));
    std::fs::remove_file(dir.path().join("cartridges/TC0001L9/0_1_R")).unwrap();
    let error = Library::open(config(dir.path())).err().unwrap().to_string();
    assert!(error.contains("TC0001L9") && error.contains("object 1 of partition 0 is missing"), "{error}");
}

#[test]
fn fixed_blocks_are_cut_and_short_ones_reported() {
    let mut r = rig();
    let mut mode = r.drive.mode_sense(0, 0).unwrap();
    mode.pages.clear();
    mode.block.as_mut().unwrap().block_length = 100;
    r.drive.mode_select(&mode).unwrap();
    let mut run =
        |cdb: &[u8], data: scsi::Data<'_>| r.drive.transport().execute(cdb, data, Duration::MAX).unwrap();
    assert_eq!(run(&[0x0A, 1, 0, 0, 3, 0], scsi::Data::Out(&[9; 300])).status, 0);
    run(&[0x0A, 0, 0, 0, 40, 0], scsi::Data::Out(&[8; 40]));
    run(&[0x01, 0, 0, 0, 0, 0], scsi::Data::None);
    let mut buf = [0u8; 500];
    let reply = run(&[0x08, 1, 0, 0, 5, 0], scsi::Data::In(&mut buf));
    let s = Sense::decode(&reply.sense).unwrap();
    assert_eq!((s.ili, s.information, reply.transferred), (true, Some(2), 340));
    assert_eq!(buf[..340], [[9u8; 300].as_slice(), &[8; 40]].concat());
}
