//! Targets of a cluster: each disk keeps its number, and no number is given twice.

use crate::common::*;
use catalog::Reported;
use types::*;

fn report(f: &Fixture, node: u32, uuid: &str, free: u64, now: i64) -> catalog::Result<Target> {
    let data = [format!("node{node}:7431")];
    let said = Reported { uuid, node: NodeId(node), data: &data, domain: "d", capacity: 100, free };
    f.catalog.report_target(&said, t(now), t(now - 20))
}

#[test]
fn a_disk_keeps_its_number_on_whatever_host_it_is() {
    let f = lmdb();
    let first = report(&f, 1, "a", 50, 100).unwrap();
    let second = report(&f, 2, "b", 60, 100).unwrap();
    assert_eq!((first.id, second.id), (TargetId(1), TargetId(2)));
    let again = report(&f, 1, "a", 40, 105).unwrap();
    assert_eq!((again.id, again.free, again.seen), (TargetId(1), 40, t(105)));
    // Two that say so at once: one disk is a copy of the other.
    let error = report(&f, 2, "a", 40, 110).unwrap_err().to_string();
    assert!(error.contains("node 1 serves"), "{error}");
    // The disk was carried to another host.
    let moved = report(&f, 2, "a", 40, 200).unwrap();
    assert_eq!(
        (moved.id, moved.node, moved.data.as_slice()),
        (TargetId(1), NodeId(2), &["node2:7431".to_owned()][..])
    );
    assert_eq!(f.catalog.targets().unwrap(), [moved, second]);
}

#[test]
fn a_target_that_is_to_be_empty_stays_so_and_gets_no_new_files() {
    let f = lmdb();
    let all = ["a", "b", "c"].map(|uuid| report(&f, 1, uuid, 50, 100).unwrap());
    f.catalog.set_target(TargetId(2), true, false).unwrap();
    assert!(f.catalog.set_target(TargetId(9), true, false).is_err());
    let again = report(&f, 1, "b", 40, 105).unwrap();
    assert!(again.draining && !again.lost);
    // Although whoever asks does not know it yet.
    let weigh = |target: &Target| layout::Candidate { target: target.id, domain: 1, weight: 1 };
    let candidates: Vec<layout::Candidate> = all.iter().map(weigh).collect();
    let rule = |stripes| LayoutRule {
        unit_bytes: 4096,
        stripes,
        copies: 1,
        parity: 0,
        then: Vec::new(),
        pool: None,
    };
    let nobody = Default::default();
    let far = f.catalog.reserve_far(&rule(2), &candidates, &nobody).unwrap();
    assert!(!far.layout.components[0].targets.contains(&TargetId(2)));
    assert!(f.catalog.reserve_far(&rule(3), &candidates, &nobody).is_err());
    f.catalog.set_target(TargetId(2), false, false).unwrap();
    f.catalog.reserve_far(&rule(3), &candidates, &nobody).unwrap();
    f.catalog.set_target(TargetId(2), true, true).unwrap();
    assert!(report(&f, 1, "b", 40, 110).unwrap().lost);
}

#[test]
fn a_turn_is_above_those_before_and_stays() {
    let f = lmdb();
    assert_eq!(f.catalog.turn().unwrap(), 0);
    assert_eq!(f.catalog.turn_above(0).unwrap(), 1);
    // Two reports of what one target has heard of raise it once, and nothing lowers it.
    assert_eq!([7, 7, 2].map(|other| f.catalog.turn_above(other).unwrap()), [8, 8, 8]);
    for damaged in [i64::MAX as u64, u64::MAX] {
        assert!(f.catalog.turn_above(damaged).is_err());
    }
    assert_eq!(f.catalog.turn().unwrap(), 8);
}

#[test]
fn a_target_that_was_taken_out_of_the_list_does_not_come_back_and_its_number_is_not_given_again() {
    let f = lmdb();
    let all = ["a", "b", "c"].map(|uuid| report(&f, 1, uuid, 50, 100).unwrap());
    let gone = TargetId(3);
    let why = f.catalog.remove_target(gone).unwrap_err().to_string();
    assert!(why.contains("gets new files"), "{why}");
    f.catalog.set_target(gone, true, false).unwrap();
    assert_eq!(f.catalog.remove_target(gone).unwrap().uuid, "c");
    let numbers = |targets: Vec<Target>| targets.iter().map(|one| one.id.0).collect::<Vec<_>>();
    assert_eq!(numbers(f.catalog.targets().unwrap()), [1, 2]);
    assert_eq!(numbers(f.catalog.removed_targets().unwrap()), [3]);
    assert!(f.catalog.remove_target(gone).is_err() && f.catalog.set_target(gone, false, false).is_err());
    let why = report(&f, 1, "c", 50, 105).unwrap_err().to_string();
    assert!(why.contains("taken out of the list"), "{why}");
    assert_eq!(report(&f, 2, "d", 50, 105).unwrap().id, TargetId(4));
    // Whoever has not heard of it gets nothing there.
    let weigh = |target: &Target| layout::Candidate { target: target.id, domain: target.id.0, weight: 1 };
    let candidates: Vec<layout::Candidate> = all.iter().map(weigh).collect();
    let rule =
        LayoutRule { unit_bytes: 4096, stripes: 2, copies: 1, parity: 0, then: Vec::new(), pool: None };
    let nobody = Default::default();
    let far = f.catalog.reserve_far(&rule, &candidates, &nobody).unwrap();
    assert!(!far.layout.components[0].targets.contains(&gone));
    let object = far.layout.components[0].base;
    for to in [gone, TargetId(2)] {
        f.catalog.set_target(TargetId(2), true, false).unwrap();
        let intended = f.catalog.intend_column(object, (0, 0), to).unwrap_err().to_string();
        let relocated = f.catalog.relocate_column(object, (0, 0), to, true).unwrap_err().to_string();
        assert!([intended, relocated].iter().all(|why| why.contains("being emptied")), "target {to}");
    }
    // One that is lost, too.
    f.catalog.set_target(TargetId(4), true, true).unwrap();
    f.catalog.remove_target(TargetId(4)).unwrap();
    assert_eq!(numbers(f.catalog.targets().unwrap()), [1, 2]);
    f.check();
}
