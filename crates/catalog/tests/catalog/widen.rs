//! Files on disk targets that get more of them as they grow.

use crate::common::*;
use catalog::{Far, New, Reported};
use layout::Candidate;
use std::collections::BTreeSet;
use types::*;

const NOBODY: BTreeSet<TargetId> = BTreeSet::new();

fn rule() -> LayoutRule {
    let then = [(64 << 20, 2), (1 << 30, 3)];
    let then = then.map(|(from, stripes)| Widening { from, stripes, unit_bytes: 1 << 20 });
    LayoutRule { unit_bytes: 1 << 16, stripes: 1, copies: 1, parity: 0, then: then.to_vec(), pool: None }
}

fn targets(count: u32) -> Vec<Candidate> {
    (1..=count).map(|n| Candidate { target: TargetId(n), domain: n, weight: 1 << 40 }).collect()
}

fn base(far: &Far) -> ObjectId {
    far.layout.components[0].base
}

fn strays(f: &Fixture) -> Vec<(ObjectId, TargetId)> {
    f.catalog.strays((ObjectId(0), TargetId(0)), 100).unwrap()
}

/// An empty file of this rule.
fn file(f: &Fixture, rule: &LayoutRule) -> (Ino, ObjectId) {
    let object = base(&f.catalog.reserve_far(rule, &targets(4), &NOBODY).unwrap());
    let new = New { far: true, ..New::file(0o644, object) };
    (f.catalog.create(&root(10), Ino::ROOT, b"file", &new).unwrap().attr.ino, object)
}

#[test]
fn a_file_gets_its_parts_one_by_one_and_what_comes_to_nothing_is_on_record_to_be_removed() {
    let f = lmdb();
    let (ino, object) = file(&f, &rule());
    let first = f.catalog.far(object).unwrap().unwrap();
    assert_eq!((first.layout.components.len(), first.layout.end(), first.rule()), (1, 64 << 20, rule()));
    // Reserved, and nothing became of it.
    let lost = f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap();
    assert_eq!(f.catalog.far(object).unwrap().as_ref(), Some(&first), "it has nothing yet");
    let places = |far: &Far| {
        let last = far.layout.components.last().unwrap();
        let places = last.places().map(|(object, column)| (object, last.target(column).unwrap()));
        places.collect::<Vec<_>>()
    };
    assert_eq!(strays(&f), places(&lost));
    f.check();
    let grown = f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap();
    assert_eq!(
        strays(&f),
        [places(&lost), places(&grown)].concat(),
        "other objects: the old ones may be there"
    );
    let has = f.catalog.widen(object, &grown, false).unwrap();
    assert_eq!((has.layout.generation, has.layout.end(), has.then.len()), (2, 1 << 30, 1));
    assert_eq!(has.layout.components[1].targets.len(), 2);
    assert_eq!((has.rule(), strays(&f)), (rule(), places(&lost)));
    assert_eq!(f.catalog.far(object).unwrap(), Some(has));
    f.check();
    let late = f.catalog.widen(object, &lost, false).unwrap_err().to_string();
    assert!(late.contains("grown meanwhile"), "{late}");
    f.catalog.forget_strays(&places(&lost)).unwrap();
    let last = f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap();
    let has = f.catalog.widen(object, &last, false).unwrap();
    assert_eq!((has.layout.end(), has.layout.components.len(), strays(&f).len()), (u64::MAX, 3, 0));
    let more = f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap_err().to_string();
    assert!(more.contains("all that it is to get"), "{more}");
    // A column of what it got later moves as any other.
    let from = has.layout.components[2].targets[1];
    f.catalog.intend_column(object, (2, 1), TargetId(9)).unwrap();
    let moved = f.catalog.relocate_column(object, (2, 1), TargetId(9), false).unwrap();
    assert_eq!(strays(&f), [(ObjectId(moved.layout.components[2].base.0 + 1), from)]);
    f.check();
    // On tape only, it comes back as it was made.
    let stamp = stamp(2 << 30, 11);
    f.catalog.observe(&root(11), ino, object, &stamp, true, kv::Durability::Relaxed).unwrap();
    let version = f.catalog.inode(ino).unwrap().file.unwrap().version;
    for (copy, volume) in [(1, "VA0001L9"), (2, "VB0001L9")] {
        record(&f.catalog, volume, 20, vec![segment(ino, version, copy, 2 << 30, (0, 2 << 30), 0)]);
    }
    f.catalog.release_object(ino, version, object, &stamp).unwrap();
    assert_eq!(f.catalog.layout_rule(ino).unwrap(), Some(rule()));
    let unowned = f.catalog.unowned_far(ObjectId(0), 10).unwrap();
    assert_eq!(unowned, [(object, moved)], "all parts are removed");
    f.check();
}

#[test]
fn a_file_that_is_removed_or_whose_new_target_is_emptied_gets_nothing() {
    let f = lmdb();
    let (_, object) = file(&f, &rule());
    for uuid in ["a", "b"] {
        let said = Reported { uuid, node: NodeId(1), data: &[], domain: "d", capacity: 100, free: 50 };
        f.catalog.report_target(&said, t(100), t(80)).unwrap();
    }
    let grown = f.catalog.reserve_wider(object, &targets(2), &NOBODY).unwrap();
    f.catalog.set_target(TargetId(1), true, false).unwrap();
    let emptied = f.catalog.widen(object, &grown, false).unwrap_err().to_string();
    assert!(emptied.contains("target 1, which it was to lie on"), "{emptied}");
    let other = f.catalog.reserve_wider(object, &targets(3), &NOBODY).unwrap();
    assert_eq!(
        BTreeSet::from_iter(&other.layout.components[1].targets),
        BTreeSet::from([&TargetId(2), &TargetId(3)])
    );
    f.catalog.unlink(&root(20), Ino::ROOT, b"file", &|_| false).unwrap();
    let removed = f.catalog.widen(object, &other, false).unwrap_err().to_string();
    assert!(removed.contains("removed"), "{removed}");
    assert_eq!(strays(&f).len(), 4);
    f.check();
    // One that is about to belong to a file, and that nobody sweeps.
    assert_eq!(f.catalog.widen(object, &other, true).unwrap().layout.components.len(), 2);
    assert_eq!(strays(&f).len(), 2);
}

#[test]
fn what_lies_on_a_target_that_is_away_is_out_of_date_from_the_beginning() {
    let f = lmdb();
    let (_, object) = file(&f, &LayoutRule { copies: 2, ..rule() });
    let away = BTreeSet::from([TargetId(2)]);
    let grown = f.catalog.reserve_wider(object, &targets(4), &away).unwrap();
    let column = grown.layout.components[1].targets.iter().position(|one| *one == TargetId(2)).unwrap();
    assert!(grown.stale.contains(&(1, column as u16)) && grown.stale.iter().all(|place| place.0 == 1));
    assert_eq!(strays(&f).len(), 3, "nothing is made there");
    let has = f.catalog.widen(object, &grown, false).unwrap();
    assert_eq!(has.stale, grown.stale);
    assert_eq!(f.catalog.stale_far(ObjectId(0), 10).unwrap().len(), 1);
    f.check();
}

/// Whoever has the file open goes on with what was known when its next part was reserved.
#[test]
fn what_has_become_of_a_file_since_its_next_part_was_reserved_is_not_passed_over() {
    let f = lmdb();
    let (_, object) = file(&f, &LayoutRule { copies: 2, ..rule() });
    let grown = f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap();
    let before = f.catalog.set_stale(object, (0, 1), true).unwrap();
    let late = f.catalog.widen(object, &grown, false).unwrap_err().to_string();
    assert!(late.contains("out of date, meanwhile"), "{late}");
    assert_eq!(f.catalog.far(object).unwrap(), Some(before), "it has what it had");
    let grown = f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap();
    assert_eq!(grown.stale, [(0, 1)]);
    f.catalog.set_stale(object, (0, 1), false).unwrap();
    assert!(f.catalog.widen(object, &grown, false).is_err(), "it is as good as the others again");
    let grown = f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap();
    f.catalog.intend_column(object, (0, 0), TargetId(9)).unwrap();
    f.catalog.relocate_column(object, (0, 0), TargetId(9), false).unwrap();
    assert!(f.catalog.widen(object, &grown, false).is_err(), "it has moved");
    // That another right to it was given or ended does not matter.
    let grown = f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap();
    f.catalog.raise_generation(object).unwrap();
    let has = f.catalog.widen(object, &grown, false).unwrap();
    assert_eq!((has.layout.components, has.stale), (grown.layout.components, grown.stale));
    f.check();
}

/// The parts and columns of a backup that were only meant to be may have become the file's after it.
#[test]
fn a_catalogue_from_a_backup_has_nothing_removed_that_was_about_to_be_a_files() {
    let f = lmdb();
    let (_, object) = file(&f, &rule());
    f.catalog.reserve_wider(object, &targets(4), &NOBODY).unwrap();
    f.catalog.intend_column(object, (0, 0), TargetId(9)).unwrap();
    assert_eq!(strays(&f).len(), 3, "{:?}", strays(&f));
    f.catalog.mark_restored(t(50)).unwrap();
    assert_eq!(strays(&f), []);
    f.check();
}

#[test]
fn a_file_of_which_nobody_can_read_what_it_has_grows() {
    let f = lmdb();
    let (_, object) = file(&f, &LayoutRule { stripes: 4, copies: 1, ..rule() });
    let first: BTreeSet<TargetId> = targets(4).iter().map(|one| one.target).collect();
    let others: Vec<Candidate> =
        (5..8).map(|n| Candidate { target: TargetId(n), domain: n, weight: 1 }).collect();
    assert!(f.catalog.reserve_wider(object, &others, &first).unwrap().stale.is_empty());
}

#[test]
fn parts_that_do_not_follow_each_other_are_refused() {
    let f = memory();
    for then in [vec![0], vec![8192, 4096], vec![4096, 4096], vec![u64::MAX]] {
        let widen = |from: &u64| Widening { from: *from, stripes: 1, unit_bytes: 4096 };
        let wrong = LayoutRule { then: then.iter().map(widen).collect(), ..rule() };
        assert!(f.catalog.reserve_far(&wrong, &targets(4), &NOBODY).is_err(), "{then:?}");
    }
}
