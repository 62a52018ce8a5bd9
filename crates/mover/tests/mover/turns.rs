//! Another node has come to serve the namespace: what the one before has given out, or does itself, changes nothing at a target that has heard of it.

use crate::common::{CLUSTER, EPOCH, Served, TARGET, ask, capability, create, key, read, secret, write};
use data::frame::Op;
use data::{Capability, Channel, Refusal, Slot, epoch};
use mover::{Secrets, Target};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What the node of a turn tells.
fn of(turn: u64) -> Secrets {
    Secrets { site: String::new(), turn, keys: [(epoch::of(turn, EPOCH), secret())].into() }
}

/// Shows what it gives out.
fn attach(channel: &Channel, turn: u64) -> Slot {
    let granted = Capability { epoch: epoch::of(turn, EPOCH), ..capability(1) };
    channel.attach(&granted, key(&granted)).unwrap()
}

/// A mover whose object 1 holds "of the first".
fn served(dir: &Path) -> Served {
    let served = Served::new(dir);
    let channel = served.channel(1, 1);
    let slot = attach(&channel, 0);
    create(&channel, &slot, 1..2);
    write(&channel, &slot, 1, 0, b"of the first");
    served
}

/// What becomes of a write with the right of a turn.
fn write_in(served: &Served, turn: u64, channel: u64) -> Result<(), data::DataError> {
    let channel = served.channel(1, channel);
    let slot = attach(&channel, turn);
    channel.call(&slot, ask(Op::Write, 1, 0, 6), b"of who".to_vec()).map(drop)
}

#[test]
fn what_is_of_an_earlier_turn_is_refused_at_once_and_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let first = served(dir.path());
    let channel = first.channel(1, 2);
    let slot = attach(&channel, 0);
    assert_eq!(read(&channel, &slot, 1, 0, 2), b"of");
    first.target.set_secrets(of(2), crate::common::PATIENCE).unwrap();
    // In use, presented again, and presented for the first time.
    for op in [Op::Read, Op::Sync, Op::SetLength] {
        let ended = channel.call(&slot, ask(op, 1, 0, 2), vec![]).unwrap_err();
        assert!(ended.is(&Refusal::Expired), "{op:?}: {ended}");
    }
    assert!(write_in(&first, 0, 3).unwrap_err().is(&Refusal::Expired));
    // Who served before awakes, and answers the report that this mover has sent him.
    for turn in [0, 1] {
        let over = first.target.set_secrets(of(turn), crate::common::PATIENCE).unwrap_err();
        assert!(over.to_string().contains("has heard of turn 2"), "{over}");
    }
    assert!(write_in(&first, 1, 4).unwrap_err().is(&Refusal::Expired));
    drop(channel);
    first.stop();
    // The same after a restart, whoever answers the first report.
    let again = Served::new(dir.path());
    assert_eq!(again.target.turn(), 2);
    assert!(write_in(&again, 0, 5).unwrap_err().is(&Refusal::Expired));
    assert!(again.target.set_secrets(of(1), crate::common::PATIENCE).is_err());
    again.target.set_secrets(of(2), crate::common::PATIENCE).unwrap();
    write_in(&again, 2, 6).unwrap();
    assert_eq!(fs::read(crate::common::path(dir.path(), 1)).unwrap(), b"of who first");
}

#[test]
fn a_right_of_a_turn_that_a_target_has_not_heard_of_makes_it_ask_and_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    // The node that serves answers the second time.
    let (asked, target) = (Arc::new(AtomicUsize::new(0)), served.target.clone());
    let count = asked.clone();
    served.mover.when_behind(Box::new(move || {
        if count.fetch_add(1, Ordering::Relaxed) == 1 {
            target.set_secrets(of(1), crate::common::PATIENCE).unwrap();
        }
    }));
    let begin = Instant::now();
    write_in(&served, 1, 2).unwrap();
    assert!(asked.load(Ordering::Relaxed) == 2 && begin.elapsed() < crate::common::PATIENCE / 4);
    assert_eq!(fs::read(crate::common::path(dir.path(), 1)).unwrap(), b"of who first");
}

#[test]
fn a_turn_begins_when_what_was_begun_before_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    let writer = served.channel(1, 2);
    let slot = attach(&writer, 0);
    let until = Instant::now() + Duration::from_millis(300);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < until {
                served.target.set_secrets(of(0), crate::common::PATIENCE).unwrap(); // as with each report: that holds up nobody
            }
            served.target.set_secrets(of(1), crate::common::PATIENCE).unwrap();
            let before = fs::read(crate::common::path(dir.path(), 1)).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(fs::read(crate::common::path(dir.path(), 1)).unwrap(), before);
        });
        for n in 0u64.. {
            let bytes = n.to_le_bytes();
            if writer.call(&slot, ask(Op::Write, 1, 0, 8), bytes.to_vec()).is_err() {
                break;
            }
        }
    });
}

#[test]
fn a_record_of_turns_that_is_damaged_lets_in_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turn");
    let open = || Target::open(TARGET, CLUSTER, dir.path(), of(0));
    drop(open().unwrap());
    for torn in ["0", "0000000000000000000\n", "0000000000000000000x\n"] {
        fs::write(&path, torn).unwrap();
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains("turn"), "{refused}");
    }
    // Power failed before the first one was durable.
    fs::write(&path, "").unwrap();
    let target = open().unwrap();
    target.set_secrets(of(7), crate::common::PATIENCE).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "00000000000000000007\n");
}
