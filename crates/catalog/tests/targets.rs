//! Targets of a cluster: each disk keeps its number, and no number is given twice.

mod common;

use catalog::Reported;
use common::*;
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
