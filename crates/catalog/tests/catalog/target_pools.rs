//! Pools of targets: what is to lie in one never lies elsewhere, and what a pool has is said here only.

use crate::common::*;
use catalog::{Far, New, Reported};
use layout::Candidate;
use std::collections::BTreeSet;
use types::*;

const NOBODY: BTreeSet<TargetId> = BTreeSet::new();

/// A catalogue that knows six targets, of which 2, 4 and 5 are in a pool.
fn with_pool() -> Fixture {
    let f = lmdb();
    for uuid in ["a", "b", "c", "d", "e", "f"] {
        report(&f, uuid);
    }
    let fast = [5, 2, 4].map(TargetId);
    let made = f.catalog.change_target_pool("fast", &fast, &[]).unwrap();
    assert_eq!(made.targets, [2, 4, 5].map(TargetId));
    f
}

fn report(f: &Fixture, uuid: &str) {
    let said = Reported { uuid, node: NodeId(1), data: &[], domain: uuid, capacity: 100, free: 50 };
    f.catalog.report_target(&said, t(100), t(80)).unwrap();
}

fn candidates() -> Vec<Candidate> {
    (1..=6).map(|n| Candidate { target: TargetId(n), domain: n, weight: 1 << 40 }).collect()
}

fn rule(stripes: u16, copies: u8) -> LayoutRule {
    let then = vec![Widening { from: 1 << 20, stripes: stripes + 1, unit_bytes: 4096 }];
    LayoutRule { unit_bytes: 4096, stripes, copies, parity: 0, then, pool: Some("fast".to_owned()) }
}

fn lies_on(far: &Far) -> BTreeSet<u32> {
    far.layout.components.iter().flat_map(|component| &component.targets).map(|target| target.0).collect()
}

fn base(far: &Far) -> ObjectId {
    far.layout.components[0].base
}

#[test]
fn all_parts_of_a_file_lie_on_targets_of_its_pool() {
    let f = with_pool();
    let (fast, mut used) = (BTreeSet::from([2, 4, 5]), BTreeSet::new());
    for n in 0..60 {
        let one = if n % 2 == 0 { rule(1, 1) } else { LayoutRule { then: Vec::new(), ..rule(1, 3) } };
        let far = f.catalog.reserve_far(&one, &candidates(), &NOBODY).unwrap();
        assert_eq!(far.rule(), one);
        used.extend(lies_on(&far));
        if !one.then.is_empty() {
            let grown = f.catalog.reserve_wider(base(&far), &candidates(), &NOBODY).unwrap();
            assert_eq!((grown.layout.components.len(), &grown.rule()), (2, &one));
            used.extend(lies_on(&grown));
        }
    }
    assert_eq!(used, fast, "all of it, and nothing else");
    // Nor where there is no room in it.
    let outside: Vec<Candidate> =
        candidates().into_iter().filter(|one| !fast.contains(&one.target.0)).collect();
    for from in [outside, candidates()] {
        let too_many = f.catalog.reserve_far(&rule(4, 1), &from, &NOBODY).unwrap_err().to_string();
        assert!(too_many.contains("target pool fast"), "{too_many}");
    }
    let gone = LayoutRule { pool: Some("gone".to_owned()), ..rule(1, 1) };
    let unknown = f.catalog.reserve_far(&gone, &candidates(), &NOBODY).unwrap_err().to_string();
    assert!(unknown.contains("there is no target pool gone"), "{unknown}");
    assert!(unknown.contains("`thermo target pool gone --add TARGET`"), "{unknown}");
    f.check();
}

#[test]
fn what_was_reserved_on_a_target_that_has_left_the_pool_meanwhile_is_not_taken() {
    let f = with_pool();
    let reserve = |stripes| f.catalog.reserve_far(&rule(stripes, 1), &candidates(), &NOBODY).unwrap();
    let (old, new) = (reserve(2), reserve(2));
    let file = New { far: true, ..New::file(0o644, base(&old)) };
    let ino = f.catalog.create(&root(10), Ino::ROOT, b"file", &file).unwrap().attr.ino;
    let near = ObjectId(f.catalog.alloc_objects(1).unwrap().start);
    let tier = f.catalog.create(&root(10), Ino::ROOT, b"near", &New::file(0o644, near)).unwrap().attr.ino;
    let stamp = stamp(5000, 11);
    f.catalog.observe(&root(11), tier, near, &stamp, true, kv::Durability::Relaxed).unwrap();
    // All three targets have something of what it grows by.
    let grown = f.catalog.reserve_wider(base(&old), &candidates(), &NOBODY).unwrap();
    let gone = new.layout.components[0].targets[0];
    let replace = || f.catalog.replace_object(ino, base(&old), base(&new));
    let leave = || f.catalog.leave_tier(tier, (near, &stamp), (base(&new), &stamp));
    let widen = || f.catalog.widen(base(&old), &grown, false);
    f.catalog.change_target_pool("fast", &[], &[gone]).unwrap();
    for refused in [replace(), leave(), widen()] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, catalog::CatalogError::Refused { .. }), "others are chosen then");
        let (refused, why) = (refused.to_string(), "is not in target pool fast any more");
        assert!(refused.contains(&format!("target {gone}, which it was to lie on, {why}")), "{refused}");
    }
    assert_eq!(f.catalog.far(base(&old)).unwrap(), Some(old.clone()), "what is refused changes nothing");
    f.catalog.change_target_pool("fast", &[gone], &[]).unwrap();
    widen().unwrap();
    leave().unwrap();
    f.check();
}

#[test]
fn nothing_of_a_file_moves_out_of_its_pool() {
    let f = with_pool();
    let far = f.catalog.reserve_far(&rule(1, 1), &candidates(), &NOBODY).unwrap();
    let here = far.layout.components[0].targets[0];
    let (object, to) = (base(&far), [2, 4].map(TargetId).into_iter().find(|one| *one != here).unwrap());
    for outside in [1, 3, 6].map(TargetId) {
        let refused = f.catalog.intend_column(object, (0, 0), outside).unwrap_err().to_string();
        assert!(refused.contains("is not in target pool fast"), "{refused}");
        assert!(f.catalog.relocate_column(object, (0, 0), outside, true).is_err());
    }
    f.catalog.intend_column(object, (0, 0), to).unwrap();
    // It may leave the pool while a column is copied there.
    f.catalog.change_target_pool("fast", &[], &[to]).unwrap();
    assert!(f.catalog.relocate_column(object, (0, 0), to, false).is_err());
    f.catalog.change_target_pool("fast", &[to], &[]).unwrap();
    let moved = f.catalog.relocate_column(object, (0, 0), to, false).unwrap();
    assert_eq!(moved.pool.as_deref(), Some("fast"));
    f.check();
}

#[test]
fn what_comes_back_from_tape_has_the_pool_that_it_had() {
    let f = with_pool();
    let far = f.catalog.reserve_far(&rule(1, 1), &candidates(), &NOBODY).unwrap();
    let new = New { far: true, ..New::file(0o644, base(&far)) };
    let ino = f.catalog.create(&root(10), Ino::ROOT, b"file", &new).unwrap().attr.ino;
    let stamp = stamp(5000, 11);
    f.catalog.observe(&root(11), ino, base(&far), &stamp, true, kv::Durability::Relaxed).unwrap();
    let version = f.catalog.inode(ino).unwrap().file.unwrap().version;
    for (copy, volume) in [(1, "VA0001L9"), (2, "VB0001L9")] {
        record(&f.catalog, volume, 20, vec![segment(ino, version, copy, 5000, (0, 5000), 0)]);
    }
    f.catalog.release_object(ino, version, base(&far), &stamp).unwrap();
    assert_eq!(f.catalog.layout_rule(ino).unwrap(), Some(rule(1, 1)));
    f.check();
}

#[test]
fn a_pool_keeps_its_targets_until_they_are_taken_out_and_goes_only_without_any() {
    let f = with_pool();
    let pools = || f.catalog.target_pools().unwrap();
    report(&f, "d");
    assert_eq!(pools()[0].targets, [2, 4, 5].map(TargetId), "whatever a host says");
    assert!(f.catalog.change_target_pool("fast", &[TargetId(9)], &[]).is_err(), "there is no such target");
    assert!(f.catalog.change_target_pool("fast", &[TargetId(1)], &[TargetId(3)]).is_err(), "3 is not in it");
    assert!(f.catalog.change_target_pool("slow", &[], &[TargetId(3)]).is_err(), "there is no such pool");
    assert_eq!(pools().len(), 1);
    assert_eq!(pools()[0].targets, [2, 4, 5].map(TargetId), "what is refused changes nothing");
    f.catalog.change_target_pool("slow", &[TargetId(4), TargetId(4), TargetId(6)], &[]).unwrap();
    // A target that goes from the list goes from all pools.
    f.catalog.set_target(TargetId(4), true, false).unwrap();
    f.catalog.remove_target(TargetId(4)).unwrap();
    let members: Vec<_> = pools().into_iter().map(|pool| (pool.name, pool.targets)).collect();
    assert_eq!(
        members,
        [("fast".to_owned(), [2, 5].map(TargetId).to_vec()), ("slow".to_owned(), vec![TargetId(6)])]
    );
    assert!(f.catalog.change_target_pool("slow", &[TargetId(4)], &[]).is_err());
    let refused = f.catalog.delete_target_pool("slow").unwrap_err().to_string();
    assert!(refused.contains("--remove 6"), "{refused}");
    assert!(f.catalog.change_target_pool("slow", &[], &[TargetId(6)]).unwrap().targets.is_empty());
    assert_eq!(pools().len(), 2, "layouts may name it");
    f.catalog.delete_target_pool("slow").unwrap();
    assert!(f.catalog.delete_target_pool("slow").is_err());
    assert_eq!(pools().len(), 1);
    f.check();
}
