//! Reservations between several hosts, as SPC-4, SSC-4 and SMC-3 have them.

use scsi::{Data, Reservation, ReservationKind as Kind, ScsiError, SenseKey, Smc, Ssc, opcode as op};
use std::sync::Arc;
use std::time::Duration;
use vtl::{Library, VtlConfig};

const A: u64 = 0xA;
const B: u64 = 0xB;

fn settle(device: &mut scsi::Device) {
    while device.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention))
    {
    }
}

struct Rig {
    library: Arc<Library>,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = Library::open(VtlConfig::new(dir.path())).unwrap();
        let mut changer = Smc::new(Box::new(library.changer()));
        settle(&mut changer);
        changer.move_medium(1001, 1).unwrap();
        Self { library, _dir: dir }
    }

    fn host(&self, n: u32) -> Ssc {
        let mut drive = Ssc::new(Box::new(self.library.drive_as(0, n)));
        settle(&mut drive);
        drive
    }
}

fn conflicts<T: std::fmt::Debug>(result: Result<T, ScsiError>) -> bool {
    match result {
        Err(ScsiError::Status { status: 0x18, .. }) => true,
        Ok(_) => false,
        Err(other) => panic!("{other}"),
    }
}

#[track_caller]
fn attention(device: &mut scsi::Device, ascq: u8) {
    let e = device.test_unit_ready().unwrap_err();
    assert!(e.sense().is_some_and(|s| s.is(SenseKey::UnitAttention, 0x2A, ascq)), "{e}");
}

/// PERSISTENT RESERVE OUT of any action: status and sense.
fn out(drive: &mut Ssc, action: u8, kind: u8, key: u64, other: u64, flags: u8) -> (u8, Option<(u8, u8)>) {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&other.to_be_bytes());
    list[20] = flags;
    let cdb = [op::PERSISTENT_RESERVE_OUT, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let reply = drive.transport().execute(&cdb, Data::Out(&list), Duration::MAX).unwrap();
    (reply.status, scsi::Sense::decode(&reply.sense).map(|s| (s.asc, s.ascq)))
}

#[test]
fn one_host_holds_a_drive_and_another_takes_it_by_force_only() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.host(0), rig.host(7));
    assert!(conflicts(a.reserve(Kind::ExclusiveAccess, A)), "not registered");
    a.register_key(A).unwrap();
    a.reserve(Kind::ExclusiveAccess, A).unwrap();
    a.reserve(Kind::ExclusiveAccess, A).unwrap();
    assert!(conflicts(a.reserve(Kind::WriteExclusive, A)), "it holds another kind");
    b.register_key(B).unwrap();
    assert_eq!(b.registered_keys().unwrap(), [A, B]);
    assert_eq!(b.reservation().unwrap(), Some(Reservation { key: A, kind: 3 }));
    assert!(conflicts(b.reserve(Kind::ExclusiveAccess, B)));
    b.release(Kind::ExclusiveAccess, B).unwrap();
    assert_eq!(b.reservation().unwrap().map(|r| r.key), Some(A), "it was not the other's to release");
    assert!(conflicts(b.write(b"x")) && conflicts(b.rewind()) && conflicts(b.unload()));
    a.write(b"x").unwrap();

    a.prevent_removal(true).unwrap();
    b.preempt(Kind::ExclusiveAccess, B, A).unwrap();
    attention(&mut a, 0x05);
    assert_eq!(a.registered_keys().unwrap(), [B]);
    assert!(conflicts(a.write(b"x")) && conflicts(a.release(Kind::ExclusiveAccess, A)));
    b.unload().unwrap();
    b.load().unwrap();
    settle(&mut b);
    settle(&mut a);
    b.register_key(0).unwrap();
    assert_eq!(a.reservation().unwrap(), None, "the holder is no longer registered");
    settle(&mut a);
    a.write(b"x").unwrap();
}

#[test]
fn registrations_survive_a_reset_and_not_the_power() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.host(0), rig.host(1));
    a.register_key(A).unwrap();
    a.reserve(Kind::ExclusiveAccess, A).unwrap();
    rig.library.reset_drive(0);
    for (host, ascq) in [(&mut a, 0x00), (&mut b, 0x00)] {
        let e = host.test_unit_ready().unwrap_err();
        assert!(e.sense().unwrap().is(SenseKey::UnitAttention, 0x29, ascq), "{e}");
    }
    assert!(conflicts(b.rewind()));
    rig.library.power_cycle_drive(0).unwrap();
    settle(&mut a);
    settle(&mut b);
    assert_eq!((b.reservation().unwrap(), b.registered_keys().unwrap()), (None, vec![]));
    b.rewind().unwrap();
}

#[test]
fn a_host_that_comes_later_learns_of_the_power_on() {
    let rig = Rig::new();
    let mut late = Ssc::new(Box::new(rig.library.drive_as(0, 99)));
    let e = late.test_unit_ready().unwrap_err();
    assert!(e.sense().unwrap().is(SenseKey::UnitAttention, 0x29, 0x01), "{e}");
}

#[test]
fn clear_and_the_end_of_shared_reservations_are_told_to_the_others() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.host(0), rig.host(1));
    a.register_key(A).unwrap();
    b.register_key(B).unwrap();
    assert_eq!(out(&mut a, 1, 6, A, 0, 0), (0, None), "exclusive access, registrants only");
    b.write(b"x").unwrap();
    let mut stranger = rig.host(2);
    assert!(conflicts(stranger.rewind()));
    assert_eq!(out(&mut a, 2, 3, A, 0, 0), (2, Some((0x26, 0x04))), "not the kind that is held");
    assert_eq!(out(&mut a, 2, 6, A, 0, 0), (0, None));
    attention(&mut b, 0x04);
    assert_eq!(out(&mut b, 1, 8, B, 0, 0), (0, None), "exclusive access, all registrants");
    assert_eq!(a.reservation().unwrap(), Some(Reservation { key: 0, kind: 8 }));
    b.register_key(0).unwrap();
    assert_eq!(a.reservation().unwrap().map(|r| r.kind), Some(8), "one holder is left");
    b.register_key(B).unwrap();
    assert_eq!(out(&mut b, 3, 0, B, 0, 0), (0, None), "clear");
    attention(&mut a, 0x03);
    assert_eq!((a.registered_keys().unwrap(), a.reservation().unwrap()), (vec![], None));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let rig = Rig::new();
    let mut a = rig.host(0);
    assert_eq!(out(&mut a, 0, 0, 0, A, 0x01), (2, Some((0x26, 0x00))), "APTPL");
    assert_eq!(out(&mut a, 0, 0, B, A, 0), (0x18, None), "it has no key yet");
    assert_eq!(out(&mut a, 0, 0, 0, A, 0), (0, None));
    assert_eq!(out(&mut a, 1, 2, A, 0, 0), (2, Some((0x24, 0x00))), "no such kind");
    assert_eq!(out(&mut a, 1, 0x13, A, 0, 0), (2, Some((0x24, 0x00))), "no such scope");
    assert_eq!(out(&mut a, 9, 3, A, 0, 0), (2, Some((0x24, 0x00))), "no such action");
    assert_eq!(out(&mut a, 4, 3, A, 0, 0), (2, Some((0x26, 0x00))), "nobody is named");
    assert_eq!(out(&mut a, 4, 3, A, B, 0), (0x18, None), "nobody has that key");
    let cdb = [op::PERSISTENT_RESERVE_OUT, 1, 3, 0, 0, 0, 0, 0, 8, 0];
    let short = a.transport().execute(&cdb, Data::Out(&[0; 8]), Duration::MAX).unwrap();
    assert_eq!(scsi::Sense::decode(&short.sense).map(|s| (s.asc, s.ascq)), Some((0x1A, 0x00)));
}

/// SPC-4 table 48, SSC-4 table 15 and SMC-3 table 9, the commands that these devices have: what a host without a share may
/// send (c: conflict, a: allowed) under write exclusive and under exclusive access.
const DRIVE: &[(&str, [u8; 6], &str)] = &[
    ("TEST UNIT READY", [0x00, 0, 0, 0, 0, 0], "aa"),
    ("REWIND", [0x01, 0, 0, 0, 0, 0], "cc"),
    ("REQUEST SENSE", [0x03, 0, 0, 0, 18, 0], "aa"),
    ("FORMAT MEDIUM", [0x04, 0, 0, 0, 0, 0], "cc"),
    ("READ BLOCK LIMITS", [0x05, 0, 0, 0, 0, 0], "aa"),
    ("READ", [0x08, 0, 0, 0, 1, 0], "cc"),
    ("WRITE", [0x0A, 0, 0, 0, 1, 0], "cc"),
    ("WRITE FILEMARKS", [0x10, 0, 0, 0, 0, 0], "cc"),
    ("SPACE", [0x11, 0, 0, 0, 0, 0], "cc"),
    ("INQUIRY", [0x12, 0, 0, 0, 96, 0], "aa"),
    ("MODE SELECT", [0x15, 0x10, 0, 0, 0, 0], "cc"),
    ("RESERVE", [0x16, 0, 0, 0, 0, 0], "cc"),
    ("RELEASE", [0x17, 0, 0, 0, 0, 0], "aa"),
    ("ERASE", [0x19, 0, 0, 0, 0, 0], "cc"),
    ("MODE SENSE", [0x1A, 0, 0x3F, 0, 200, 0], "ac"),
    ("LOAD UNLOAD", [0x1B, 0, 0, 0, 0, 0], "cc"),
    ("SEND DIAGNOSTIC", [0x1D, 0, 0, 0, 0, 0], "cc"),
    ("PREVENT", [0x1E, 0, 0, 0, 1, 0], "cc"),
    ("ALLOW", [0x1E, 0, 0, 0, 0, 0], "aa"),
    ("LOCATE", [0x2B, 0, 0, 0, 0, 0], "cc"),
    ("READ POSITION", [0x34, 0, 0, 0, 0, 0], "cc"),
    ("REPORT DENSITY SUPPORT", [0x44, 0, 0, 0, 0, 0], "aa"),
    ("LOG SENSE", [0x4D, 0, 0x6E, 0, 0, 0], "aa"),
    ("PERSISTENT RESERVE IN", [0x5E, 0, 0, 0, 0, 0], "aa"),
    ("READ ATTRIBUTE", [0x8C, 0, 0, 0, 0, 0], "ac"),
    ("WRITE ATTRIBUTE", [0x8D, 0, 0, 0, 0, 0], "cc"),
    ("SECURITY PROTOCOL IN", [0xA2, 0, 0, 0, 0, 0], "ac"),
    ("SECURITY PROTOCOL OUT", [0xB5, 0, 0, 0, 0, 0], "cc"),
    ("REPORT LUNS", [0xA0, 0, 0, 0, 0, 0], "aa"),
];

fn status(device: &mut scsi::Device, cdb: &[u8]) -> u8 {
    let mut room = [0; 256];
    device.transport().execute(cdb, Data::In(&mut room), Duration::MAX).unwrap().status
}

#[test]
fn the_commands_that_others_may_send_are_those_of_the_tables() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.host(0), rig.host(1));
    a.register_key(A).unwrap();
    for (column, kind) in [(0, Kind::WriteExclusive), (1, Kind::ExclusiveAccess)] {
        a.reserve(kind, A).unwrap();
        for registered in [false, true] {
            if registered {
                b.register_key(B).unwrap();
            }
            for (name, cdb, columns) in DRIVE {
                let conflict = status(&mut b, cdb) == 0x18;
                // A registration answers RESERVE and RELEASE (CRH); all else is as without.
                let expected = columns.as_bytes()[column] == b'c' && !(registered && *name == "RESERVE");
                assert_eq!(conflict, expected, "{name} under {kind:?}, registered: {registered}");
            }
        }
        b.register_key(0).unwrap();
        a.release(kind, A).unwrap();
    }
}

#[test]
fn a_robot_that_is_held_moves_for_its_holder_only() {
    let rig = Rig::new();
    let mut a = Smc::new(Box::new(rig.library.changer_as(0)));
    let mut b = Smc::new(Box::new(rig.library.changer_as(1)));
    settle(&mut b);
    a.register_key(A).unwrap();
    a.reserve(Kind::ExclusiveAccess, A).unwrap();
    assert!(conflicts(b.move_medium(1002, 1005)) && conflicts(b.exchange_medium(1002, 1003, 1004)));
    assert!(conflicts(b.position_to_element(1002)));
    assert_eq!(status(&mut b, &[op::INITIALIZE_ELEMENT_STATUS, 0, 0, 0, 0, 0]), 0x18);
    let inventory = |flags| [op::READ_ELEMENT_STATUS, 0, 0, 0, 0, 1, flags, 0, 0, 200, 0, 0];
    assert_eq!(status(&mut b, &inventory(2)), 0, "nothing moves for that");
    assert_eq!(status(&mut b, &inventory(0)), 0x18, "without CURDATA something may");
    a.move_medium(1002, 1008).unwrap_err();
    a.release(Kind::ExclusiveAccess, A).unwrap();
    b.position_to_element(1002).unwrap();
}
