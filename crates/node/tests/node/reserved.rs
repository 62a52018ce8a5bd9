//! Another host on the same library: it is kept out, and keeps us out, until an operator says otherwise.

use crate::support::{Bed, Running, config, cx, pattern};
use node::{Node, Session};
use scsi::{Device, ReservationKind as Kind, ScsiError, SenseKey, Smc, Ssc};
use std::sync::Arc;
use types::*;
use wire::Call;

const THEIRS: u64 = 0x7E57;
/// A host that is not ours.
const HOST: u32 = 9;

fn settle(device: &mut Device) {
    while device.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention))
    {
    }
}

fn take(device: &mut Device) {
    settle(device);
    device.register_key(THEIRS).unwrap();
    device.reserve(Kind::ExclusiveAccess, THEIRS).unwrap();
}

fn conflicts<T>(result: Result<T, ScsiError>) -> bool {
    matches!(result.err(), Some(ScsiError::Status { status: 0x18, .. }))
}

fn their_drive(library: &Arc<vtl::Library>, n: u16) -> Ssc {
    Ssc::new(Box::new(library.drive_as(n, HOST)))
}

#[test]
fn a_drive_of_another_host_is_suspect_until_an_operator_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.tape.drive_retry_s = 0;
    let library = Node::open_library(&config).unwrap();
    let mut theirs = their_drive(&library, 0);
    take(&mut theirs);
    let bed = Bed { node: Running::with(config, library), dir };
    let drives = bed.drives();
    let DriveStatus::Suspect(why) = &drives[0].status else { panic!("{:?}", drives[0]) };
    assert!(why.contains("reserved by another host at 5000000000000009, key 0x7e57"), "{why}");
    assert_eq!([drives[0].hold, drives[1].hold], [Hold::No, Hold::Held]);
    // The other drive does all the work.
    let ino = bed.write("f", &pattern(100_000, 1));
    assert_eq!(bed.wait(bed.begin(Call::Migrate(bed.one("/f"))).request.id).state, RequestState::Done);
    let refused = bed.try_call(Call::SetDrive { drive: DriveNo(0), up: true }).unwrap_err();
    assert!(refused.message.contains("0x7e57") && refused.message.contains("--preempt"), "{refused}");
    assert_eq!(theirs.reservation().unwrap().map(|r| r.key), Some(THEIRS), "it was not touched");
    bed.call(Call::TakeDrive { drive: DriveNo(0) });
    assert!(bed.drives().iter().all(|d| d.hold == Hold::Held), "{:?}", bed.drives());
    settle(&mut theirs);
    assert!(conflicts(theirs.rewind()) && conflicts(their_drive(&bed.node.virtual_library(), 1).rewind()));
    bed.purge("/f");
    assert!(bed.read(ino) == pattern(100_000, 1));
    let library = bed.node.virtual_library().clone();
    bed.node.stop(true);
    for n in 0..2 {
        let mut theirs = their_drive(&library, n);
        settle(&mut theirs);
        assert!(theirs.registered_keys().unwrap().is_empty(), "drive {n} is given back at the end");
    }
    let mut robot = Smc::new(Box::new(library.changer_as(HOST)));
    assert!(robot.registered_keys().or_else(|_| robot.registered_keys()).unwrap().is_empty());
}

#[test]
fn a_robot_of_another_host_is_named_at_start_and_taken_only_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    let library = Node::open_library(&config).unwrap();
    let mut theirs = Smc::new(Box::new(library.changer_as(HOST)));
    take(&mut theirs);
    let refused = Node::start_with(config.clone(), library.clone()).map(|node| node.stop(false)).unwrap_err();
    assert!(refused.message.contains("key 0x7e57") && refused.message.contains("--preempt"), "{refused}");
    assert_eq!(refused.class, ErrorClass::Busy);
    config.preempt = true;
    let node = Node::start_with(config, library).unwrap();
    settle(&mut theirs);
    assert!(conflicts(theirs.move_medium(1001, 1008)));
    node.stop(true);
}

/// Each is taken once: it can be given to another host later.
#[test]
fn an_order_to_take_drives_is_for_those_too_that_answer_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    (config.tape.drive_retry_s, config.preempt) = (1, true);
    let library = Node::open_library(&config).unwrap();
    let mut theirs = their_drive(&library, 0);
    take(&mut theirs);
    library.inject(vtl::Fault::DriveDead { drive: 0, answers: false });
    let bed = Bed { node: Running::with(config, library.clone()), dir };
    assert_eq!(bed.drives()[0].hold, Hold::No);
    library.clear_faults();
    bed.until("it is taken", |bed| bed.drives()[0].hold == Hold::Held);
    settle(&mut theirs);
    theirs.register_key(THEIRS).unwrap();
    let ours = theirs.reservation().unwrap().unwrap().key;
    theirs.preempt(Kind::ExclusiveAccess, THEIRS, ours).unwrap();
    bed.write("f", &pattern(100_000, 1));
    bed.begin(Call::Migrate(bed.one("/f")));
    let elsewhere =
        |bed: &Bed| matches!(&bed.drives()[0].status, DriveStatus::Suspect(why) if why.contains("0x7e57"));
    bed.until("the drive is named", elsewhere);
    std::thread::sleep(std::time::Duration::from_secs(3)); // it is tried each second
    assert!(elsewhere(&bed), "{:?}", bed.drives());
}

#[test]
fn a_drive_that_another_host_takes_meanwhile_ends_the_work_of_that_drive_only() {
    let bed = Bed::with(|c| {
        c.tape.drive_retry_s = 1;
        c.tape.idle_unmount_s = 600;
    });
    let ino = bed.write("f", &pattern(100_000, 1));
    assert_eq!(bed.wait(bed.begin(Call::Migrate(bed.one("/f"))).request.id).state, RequestState::Done);
    let mut theirs = their_drive(&bed.node.virtual_library(), 0);
    settle(&mut theirs);
    theirs.register_key(THEIRS).unwrap();
    let ours = theirs.reservation().unwrap().unwrap().key;
    theirs.preempt(Kind::ExclusiveAccess, THEIRS, ours).unwrap();
    bed.purge("/f");
    assert!(bed.read(ino) == pattern(100_000, 1), "from whatever can still be reached");
    let suspect =
        |bed: &Bed| matches!(&bed.drives()[0].status, DriveStatus::Suspect(w) if w.contains("0x7e57"));
    bed.write("g", &pattern(100_000, 2));
    let request = bed.begin(Call::Migrate(bed.one("/g"))).request.id;
    bed.until("the drive is named", suspect);
    assert_eq!(bed.drives()[0].hold, Hold::No);
    // The other host is done: the drive comes back by itself.
    theirs.register_key(0).unwrap();
    bed.until("it is ours again", |bed| bed.drives()[0].hold == Hold::Held);
    assert_eq!(bed.wait(request).state, RequestState::Done);
    let _ = bed.node.call(&cx(), &mut Session::default(), Call::Status);
}
