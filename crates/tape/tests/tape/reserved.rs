//! No second host moves our tape: reservations of drives and robot, between two hosts.

use crate::support::catalogue::{Catalogue, barcode};
use crate::support::rig::{BARCODE, Rig};
use crate::support::row;
use scsi::{ReservationKind, SenseKey, Ssc};
use tape::policy::Then;
use tape::{Blame, Changer, Claim, Drive, Fault, Settings, TapeError, fence};
use types::ElementKind;

const MIB: u64 = 1 << 20;

fn key(of: &str) -> u64 {
    fence::key(of)
}

fn used_by(rig: &Rig, host: u32, of: &str) -> Drive {
    let drive = Drive::open(Box::new(rig.library.drive_as(0, host)), Box::new(|_| {})).unwrap();
    drive.with(Settings { key: Some(key(of)), ..Settings::default() })
}

fn robot_of(rig: &Rig, host: u32) -> Changer {
    Changer::open(Box::new(rig.library.changer_as(host)), Box::new(|_| {})).unwrap()
}

/// A cartridge with a volume in drive 0.
fn rig() -> (Rig, Catalogue) {
    let rig = Rig::new(16 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let catalogue = Catalogue::format(&mut mounted, 4096).unwrap();
    mounted.unload().unwrap();
    (rig, catalogue)
}

#[track_caller]
fn elsewhere<T>(result: Result<T, TapeError>, named: &str) {
    let e = result.map(drop).unwrap_err();
    assert_eq!(e.fault, Fault::Reserved, "{e}");
    assert!(e.to_string().contains(named) && e.to_string().contains("--preempt"), "{e}");
}

#[test]
fn a_drive_of_another_node_is_left_alone_until_an_operator_takes_it() {
    let (rig, _) = rig();
    let (mut first, mut second) = (used_by(&rig, 0, "first"), used_by(&rig, 1, "second"));
    let mounted = first.mount(Some(&barcode())).unwrap();
    let named = format!("another Thermocline node at 5000000000000000, key {:#x}", key("first"));
    elsewhere(second.mount(Some(&barcode())), &named);
    let error = second.mount(Some(&barcode())).map(drop).unwrap_err();
    assert_eq!(row(&error), ("TC-D030", Then::OtherDrive));
    assert_eq!(second.claimed(), Claim::None);
    elsewhere(second.claim(false), &named);
    drop(mounted);
    assert_eq!(second.claim(true).unwrap(), Claim::Held);
    second.unload().unwrap();
    elsewhere(first.mount(Some(&barcode())), &format!("{:#x}", key("second")));
    second.release();
    assert_eq!(first.claim(false).unwrap(), Claim::Held);
    first.release();
    assert!(rig.raw(0).registered_keys().unwrap().is_empty());
}

#[test]
fn a_session_ends_when_another_host_takes_the_drive() {
    let (rig, mut catalogue) = rig();
    let mut drive = used_by(&rig, 0, "first");
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000]]).unwrap();
    // The other takes it, moves the tape and gives it back: only the unit attention tells.
    let mut other = used_by(&rig, 1, "second");
    other.claim(true).unwrap();
    let mut raw = Ssc::new(Box::new(rig.library.drive_as(0, 1)));
    raw.rewind().unwrap();
    other.release();
    let e = catalogue.append(&mut mounted, &[vec![8; 10_000]]).unwrap_err();
    assert_eq!((e.fault, e.blame), (Fault::Reserved, Blame::Drive), "{e}");
    let again = catalogue.append(&mut mounted, &[vec![8; 10_000]]).unwrap_err();
    assert_eq!(again.fault, Fault::Reserved, "the session is over");
    drop(mounted);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.append(&mut mounted, &[vec![8; 10_000]]).unwrap();
    catalogue.index(&mut mounted).unwrap();
    catalogue.verify(&mut mounted);
}

#[test]
fn a_drive_that_another_host_keeps_is_not_called_ours_any_more() {
    let (rig, mut catalogue) = rig();
    let mut drive = used_by(&rig, 0, "first");
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000]]).unwrap();
    assert_eq!(mounted.claimed(), Claim::Held);
    used_by(&rig, 1, "second").claim(true).unwrap();
    let e = catalogue.append(&mut mounted, &[vec![8; 10_000]]).unwrap_err();
    assert_eq!((e.fault, e.blame), (Fault::Reserved, Blame::Drive), "{e}");
    assert!(e.to_string().contains("another host has taken the drive from us"), "{e}");
    assert_eq!(mounted.claimed(), Claim::None);
}

#[test]
fn what_a_crash_left_reserved_is_taken_over() {
    let (rig, _) = rig();
    std::mem::forget(used_by(&rig, 0, "us").claim(false));
    // On the same way to the drive, and on another one (the cable is in another adapter).
    for host in [0, 1] {
        let mut drive = used_by(&rig, host, "us");
        assert_eq!(drive.claim(false).unwrap(), Claim::Held);
    }
    // Another node of the same host, or one whose state directory was lost.
    let mut stranger = used_by(&rig, 1, "stranger");
    elsewhere(stranger.claim(false), &format!("{:#x}", key("us")));
    assert_eq!(stranger.claim(true).unwrap(), Claim::Held);
}

#[test]
fn a_reset_does_not_leave_the_drive_to_others() {
    let (rig, _) = rig();
    let (mut ours, mut other) = (used_by(&rig, 0, "us"), used_by(&rig, 1, "other"));
    drop(ours.mount(Some(&barcode())).unwrap());
    rig.library.power_cycle_drive(0).unwrap();
    drop(ours.mount(Some(&barcode())).unwrap());
    elsewhere(other.claim(false), &format!("{:#x}", key("us")));
}

/// A way to drive 0, whose power fails when it is first asked whether it is ready.
struct Failing<T>(T, std::sync::Arc<vtl::Library>, bool);

impl<T: scsi::Transport> scsi::Transport for Failing<T> {
    fn execute(
        &mut self,
        cdb: &[u8],
        data: scsi::Data<'_>,
        limit: std::time::Duration,
    ) -> Result<scsi::Reply, scsi::TransportError> {
        if cdb[0] == 0 && !std::mem::replace(&mut self.2, true) {
            self.1.power_cycle_drive(0).unwrap();
        }
        self.0.execute(cdb, data, limit)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

#[test]
fn a_reset_while_a_cartridge_is_loaded_does_not_either() {
    let (rig, _) = rig();
    let transport = Failing(rig.library.drive(0), rig.library.clone(), false);
    let ours = Drive::open(Box::new(transport), Box::new(|_| {})).unwrap();
    let mut ours = ours.with(Settings { key: Some(key("us")), ..Settings::default() });
    drop(ours.mount(Some(&barcode())).unwrap());
    assert_eq!(ours.claimed(), Claim::Held);
    elsewhere(used_by(&rig, 1, "other").claim(false), &format!("{:#x}", key("us")));
}

#[test]
fn a_drive_reserved_the_old_way_is_named_too() {
    let (rig, _) = rig();
    let mut old = Ssc::new(Box::new(rig.library.drive_as(0, 1)));
    while old.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention)) {}
    old.transport().execute(&[0x16, 0, 0, 0, 0, 0], scsi::Data::None, std::time::Duration::MAX).unwrap();
    elsewhere(used_by(&rig, 0, "us").claim(false), "RESERVE, without a key");
}

#[test]
fn a_robot_serves_one_host_and_comes_back_to_it_after_a_reset() {
    let (rig, _) = rig();
    let slots = rig.elements(ElementKind::Slot);
    let (mut ours, mut other) = (robot_of(&rig, 0), robot_of(&rig, 1));
    assert_eq!(ours.claim(key("us"), false).unwrap(), Claim::Held);
    let named = format!("key {:#x}", key("us"));
    elsewhere(other.claim(key("other"), false), &named);
    let e = other.move_medium(slots[1], slots[0]).unwrap_err();
    assert_eq!((e.fault, e.blame), (Fault::Reserved, Blame::Library), "{e}");
    rig.library.power_cycle().unwrap();
    assert_eq!(ours.move_medium(slots[1], slots[0]).unwrap_err().fault, Fault::InventoryStale);
    ours.inventory().unwrap();
    ours.move_medium(slots[1], slots[0]).unwrap();
    elsewhere(other.claim(key("other"), false), &named);
    assert_eq!(other.claim(key("other"), true).unwrap(), Claim::Held);
    elsewhere(ours.move_medium(slots[0], slots[1]), &format!("key {:#x}", key("other")));
    other.release();
    ours.move_medium(slots[0], slots[1]).unwrap();
    ours.release();
    assert_eq!(ours.claimed(), Claim::None);
}

#[test]
fn without_a_key_nothing_is_reserved() {
    let (rig, _) = rig();
    let mut drive = rig.drive(0);
    drop(drive.mount(Some(&barcode())).unwrap());
    assert_eq!(drive.claimed(), Claim::None);
    let mut raw = rig.raw(0);
    assert!(raw.registered_keys().unwrap().is_empty());
    raw.register_key(7).unwrap();
    raw.reserve(ReservationKind::WriteExclusive, 7).unwrap();
    drop(drive.mount(Some(&barcode())).unwrap());
}
