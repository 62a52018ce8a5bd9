//! What the node makes of each row of the table of errors (docs/ERRORS.md), when a drive or the robot answers so in the
//! middle of a migration: which drive or volume is out of use afterwards, and that the work is done all the same.

use crate::support::{Bed, pattern};
use scsi::{Sense, SenseKey as K};
use std::collections::BTreeMap;
use tape::Blame;
use tape::policy::{Row, TABLE, Then, When};
use types::*;
use vtl::{Device, Fault};
use wire::Call;

const TEST_UNIT_READY: u8 = 0x00;
const WRITE: u8 = 0x0A;
const MOVE_MEDIUM: u8 = 0xA5;

/// Sense data for which this row is the first; rows for any key or code get one that no row before has.
fn example(row: &Row) -> Option<Sense> {
    let When::Sense(key, asc, first, _) = row.when else { return None };
    let rest = row.code == "TC-D014" || row.code == "TC-M008" || row.code == "TC-U010";
    Some(Sense::new(key.unwrap_or(K::Miscompare), asc.unwrap_or(0x5D), if rest { 0x01 } else { first }))
}

fn bed() -> Bed {
    Bed::in_memory(|c| {
        c.tape.idle_unmount_s = 600;
        c.tape.drive_retry_s = 600;
    })
}

fn migrate(bed: &Bed, path: &str) {
    let request = bed.begin(Call::Migrate(bed.one(path))).request.id;
    assert_eq!(bed.wait(request).state, RequestState::Done, "{:?}", bed.status());
}

/// Volumes that have become something else, and drives that are out of use.
fn changed(bed: &Bed, before: &BTreeMap<Barcode, VolumeState>) -> (Vec<VolumeState>, usize) {
    let states = bed.volumes().into_iter().filter(|v| before.get(&v.barcode) == Some(&VolumeState::Filling));
    let states = states.map(|v| v.state).filter(|s| *s != VolumeState::Filling).collect();
    let out = bed.drives().into_iter().filter(|d| matches!(d.status, DriveStatus::Suspect(_))).count();
    (states, out)
}

fn expected(then: Then) -> (Vec<VolumeState>, usize) {
    match then {
        Then::Wait | Then::Again | Then::MountAgain | Then::MoveAgain | Then::Operator | Then::OtherPair => {
            (vec![], 0)
        }
        Then::OtherDrive => (vec![], 1),
        Then::OtherVolume => (vec![VolumeState::Suspect], 0),
        Then::NextVolume => (vec![VolumeState::Full], 0),
        Then::ReadOnly => (vec![VolumeState::ReadOnly], 0),
    }
}

/// A drive answers so in the middle of writing, or while it loads.
fn drive_answers(row: &Row) {
    let sense = example(row).unwrap();
    let then = row.then(Blame::Drive);
    let bed = bed();
    let (device, inject) = (Device::Drive(0), bed.node.virtual_library());
    if then == Then::Wait {
        inject.inject(Fault::Answer { device, opcode: TEST_UNIT_READY, sense });
    }
    bed.write("before", &pattern(10_000, 1));
    migrate(&bed, "/before");
    let before: BTreeMap<_, _> = bed.volumes().into_iter().map(|v| (v.barcode, v.state)).collect();
    if then != Then::Wait {
        inject.inject(Fault::Answer { device, opcode: WRITE, sense });
    }
    let data = pattern(300_000, 2);
    let ino = bed.write("f", &data);
    migrate(&bed, "/f");
    let (now, warnings) = (changed(&bed, &before), bed.status().warnings);
    assert_eq!(now, expected(then), "{row:?}: {warnings:?}");
    let warned = bed.status().warnings.iter().any(|w| w.contains(&format!("{}: ", row.code)));
    assert_eq!(
        warned,
        row.fault.is_some() && then != Then::NextVolume,
        "{row:?}: {:?}",
        bed.status().warnings
    );
    let copies = bed.volumes_of("/f");
    assert_eq!(copies.len(), 2, "{row:?}");
    bed.purge("/f");
    assert!(bed.read(ino) == data, "{row:?}");
    bed.node.stop(true);
}

fn drives_answer(part: usize) {
    let rows = TABLE.iter().filter(|row| example(row).is_some());
    rows.enumerate().filter(|(n, _)| n % 3 == part).for_each(|(_, row)| drive_answers(row));
}

#[test]
fn a_third_of_what_drives_answer() {
    drives_answer(0);
}

#[test]
fn another_third_of_what_drives_answer() {
    drives_answer(1);
}

#[test]
fn the_last_third_of_what_drives_answer() {
    drives_answer(2);
}

#[test]
fn what_a_robot_answers() {
    for code in
        ["TC-D001", "TC-D012", "TC-D013", "TC-D014", "TC-L018", "TC-L019", "TC-L020", "TC-D021", "TC-D024"]
    {
        let row = TABLE.iter().find(|row| row.code == code).unwrap();
        let bed = bed();
        let sense = example(row).unwrap();
        bed.node.virtual_library().inject(Fault::Answer {
            device: Device::Changer,
            opcode: MOVE_MEDIUM,
            sense,
        });
        bed.write("f", &pattern(10_000, 1));
        migrate(&bed, "/f");
        // A drive that does not take a cartridge, or does not let go of it, is at fault, not the robot.
        let out = usize::from(code == "TC-L020");
        assert_eq!(changed(&bed, &BTreeMap::new()), (vec![], out), "{row:?}: {:?}", bed.status());
        bed.node.stop(true);
    }
}

#[test]
fn a_cartridge_that_two_drives_fail_with_is_suspect_itself() {
    let bed = bed();
    let ino = bed.write("f", &pattern(10_000, 1));
    migrate(&bed, "/f");
    bed.purge("/f");
    let bed = bed.restart();
    let volumes = bed.volumes_of("/f");
    let jam = Sense::new(K::HardwareError, 0x53, 0x00);
    for _ in 0..2 {
        bed.node.virtual_library().inject(Fault::Answer {
            device: Device::Changer,
            opcode: MOVE_MEDIUM,
            sense: jam,
        });
    }
    // The first drive does not take it, then the second: the other copy is read in that one.
    assert!(bed.read(ino) == pattern(10_000, 1));
    let suspect: Vec<Volume> =
        volumes.iter().map(|v| bed.volume(v)).filter(|v| v.state == VolumeState::Suspect).collect();
    assert_eq!(suspect.len(), 1, "{:?}", bed.status());
    let why = &suspect[0].reason;
    assert!(why.starts_with("TC-M058: ") && why.contains("failed with this volume before"), "{why}");
    let out = bed.drives().into_iter().filter(|d| matches!(d.status, DriveStatus::Suspect(_))).count();
    assert_eq!(out, 1, "the second drive is not at fault");
}
