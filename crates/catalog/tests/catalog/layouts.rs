//! Files whose bytes lie on disk targets of the cluster.

use crate::common::*;
use catalog::{Far, New, Reported};
use layout::{Candidate, Redundancy};
use types::*;

const NOBODY: std::collections::BTreeSet<TargetId> = std::collections::BTreeSet::new();
const RULE: LayoutRule =
    LayoutRule { unit_bytes: 1 << 20, stripes: 2, copies: 1, parity: 0, then: Vec::new(), pool: None };

fn targets(domains: &[u32]) -> Vec<Candidate> {
    let one = |(n, domain): (u32, &u32)| Candidate { target: TargetId(n), domain: *domain, weight: 1 << 40 };
    (1..).zip(domains).map(one).collect()
}

fn base(far: &Far) -> ObjectId {
    far.layout.components[0].base
}

/// A file on two targets that was written and closed.
fn written(f: &Fixture, name: &str, size: u64) -> (Ino, ObjectId) {
    let object = base(&f.catalog.reserve_far(&RULE, &targets(&[1, 2, 3]), &NOBODY).unwrap());
    let new = New { far: true, ..New::file(0o644, object) };
    let ino = f.catalog.create(&root(10), Ino::ROOT, name.as_bytes(), &new).unwrap().attr.ino;
    let stamp = stamp(size, 11);
    f.catalog.observe(&root(11), ino, object, &stamp, true, kv::Durability::Relaxed).unwrap();
    (ino, object)
}

#[test]
fn new_directories_have_the_layout_of_the_one_above_and_old_ones_keep_theirs() {
    let f = lmdb();
    let make = |dir: Ino, name: &str| {
        let new = New::node(FileKind::Directory, 0o755);
        f.catalog.create(&root(2), dir, name.as_bytes(), &new).unwrap().attr.ino
    };
    let above = make(Ino::ROOT, "above");
    let old = make(above, "old");
    f.catalog.set_layout_rule(above, Some(RULE)).unwrap();
    let new = make(above, "new");
    let rules = [above, old, new].map(|dir| f.catalog.layout_rule(dir).unwrap());
    assert_eq!(rules, [Some(RULE), None, Some(RULE)]);
    f.catalog.set_layout_rule(above, None).unwrap();
    assert_eq!(f.catalog.layout_rule(above).unwrap(), None);
    f.check();
    f.catalog.rmdir(&root(3), above, b"new").unwrap();
    assert_eq!(f.catalog.layout_rule(new).unwrap(), None);
    f.check();
    let (file, _) = written(&f, "file", 1);
    assert!(f.catalog.set_layout_rule(file, Some(RULE)).is_err(), "no directory");
}

#[test]
fn a_file_on_targets_keeps_its_objects_until_every_copy_counts_and_takes_nothing_of_the_disk_tier() {
    let f = lmdb();
    let (ino, object) = written(&f, "far", 5 << 20);
    let inode = f.catalog.inode(ino).unwrap();
    let file = inode.file.unwrap();
    assert!(file.far && file.object == Some(object));
    assert_eq!(inode.attr.disk_bytes, 5 << 20, "programs see that it has blocks");
    assert_eq!(f.catalog.totals().unwrap().disk_bytes, 0);
    assert_eq!(f.catalog.unowned_far(ObjectId(0), 10).unwrap(), []);
    f.check();
    let release = || f.catalog.release_object(ino, file.version, object, &stamp(5 << 20, 11));
    assert!(release().unwrap_err().to_string().contains("2 of 2 copies"));
    record(&f.catalog, "VA0001L9", 20, vec![segment(ino, file.version, 1, 5 << 20, (0, 5 << 20), 0)]);
    assert!(release().unwrap_err().to_string().contains("1 of 2 copies"));
    record(&f.catalog, "VB0001L9", 21, vec![segment(ino, file.version, 2, 5 << 20, (0, 5 << 20), 0)]);
    // The policy for the disk tier has nothing to gain from it, that for targets has.
    assert_eq!(f.catalog.purge_candidates(None, 10).unwrap().found, []);
    let for_targets = f.catalog.far_purge_candidates(None, 10).unwrap().found;
    assert_eq!(for_targets.iter().map(|one| one.ino).collect::<Vec<_>>(), [ino]);
    assert_eq!(f.catalog.unowned_far(ObjectId(0), 10).unwrap(), []);
    assert_eq!(f.catalog.far(object).unwrap().unwrap().layout.components[0].targets.len(), 2);
    f.check();
    release().unwrap();
    // On record until the targets have removed it.
    let given_up: Vec<ObjectId> =
        f.catalog.unowned_far(ObjectId(0), 10).unwrap().iter().map(|(object, _)| *object).collect();
    assert_eq!(given_up, [object]);
    assert_eq!(f.catalog.unowned_objects(ObjectId(0), 10).unwrap(), [], "not one of the disk tier");
    f.check();
    f.catalog.forget_far(&[object]).unwrap();
    assert_eq!(
        (f.catalog.far(object).unwrap(), f.catalog.unowned_far(ObjectId(0), 10).unwrap()),
        (None, vec![])
    );
    // It is remembered what it had there, and it gets the like again.
    assert_eq!(f.catalog.layout_rule(ino).unwrap(), Some(RULE));
    let again = base(&f.catalog.reserve_far(&RULE, &targets(&[1, 2]), &NOBODY).unwrap());
    assert!(f.catalog.set_resident(ino, file.version, again, &stamp(5 << 20, 29), t(29)).unwrap());
    assert!(f.catalog.inode(ino).unwrap().file.unwrap().far);
    assert_eq!(f.catalog.layout_rule(ino).unwrap(), None);
    f.check();
    f.catalog.release_object(ino, file.version, again, &stamp(5 << 20, 29)).unwrap();
    // Back in the disk tier it is a file like any other.
    let back = ObjectId(f.catalog.alloc_objects(1).unwrap().start);
    assert!(f.catalog.set_resident(ino, file.version, back, &stamp(5 << 20, 30), t(30)).unwrap());
    assert!(!f.catalog.inode(ino).unwrap().file.unwrap().far);
    assert_eq!(f.catalog.purge_candidates(None, 10).unwrap().found.len(), 1);
    assert_eq!(f.catalog.far_purge_candidates(None, 10).unwrap().found.len(), 0);
    f.check();
    f.catalog.unlink(&root(40), Ino::ROOT, b"far", &|_| false).unwrap();
    assert_eq!(f.catalog.layout_rule(ino).unwrap(), None);
    f.check();
}

#[test]
fn what_is_removed_or_emptied_is_on_record_for_the_targets_and_what_has_an_owner_is_not_forgotten() {
    let f = lmdb();
    let (_, removed) = written(&f, "removed", 1);
    let (emptied, old) = written(&f, "emptied", 1);
    f.catalog.forget_far(&[removed, old]).unwrap();
    assert!(f.catalog.far(removed).unwrap().is_some() && f.catalog.far(old).unwrap().is_some());
    f.catalog.unlink(&root(20), Ino::ROOT, b"removed", &|_| false).unwrap();
    let empty = ObjectId(f.catalog.alloc_objects(1).unwrap().start);
    f.catalog.new_content(&root(21), emptied, empty, &stamp(0, 21)).unwrap();
    assert!(!f.catalog.inode(emptied).unwrap().file.unwrap().far);
    f.check();
    let unowned: Vec<ObjectId> =
        f.catalog.unowned_far(ObjectId(0), 10).unwrap().into_iter().map(|(object, _)| object).collect();
    assert_eq!(unowned, [removed, old]);
    // What never became a file is on record from its reservation on.
    let far = f.catalog.reserve_far(&RULE, &targets(&[1, 2]), &NOBODY).unwrap();
    let last = f.catalog.unowned_far(old, 10).unwrap();
    assert_eq!(last, [(base(&far), far)]);
    f.check();
}

#[test]
fn copies_of_the_same_bytes_never_share_what_fails_together() {
    let f = memory();
    let rule = LayoutRule { stripes: 2, copies: 2, ..RULE };
    let all = targets(&[1, 1, 2, 2, 3]);
    let domain = |target: &TargetId| all[target.0 as usize - 1].domain;
    for _ in 0..200 {
        let far = f.catalog.reserve_far(&rule, &all, &NOBODY).unwrap();
        let component = &far.layout.components[0];
        assert_eq!(component.redundancy, Redundancy::Mirror { copies: 2 });
        let apart = |pair: &[TargetId]| domain(&pair[0]) != domain(&pair[1]);
        assert!(component.targets.chunks(2).all(apart), "{component:?}");
    }
    let error = f.catalog.reserve_far(&rule, &targets(&[1, 1, 1, 1]), &NOBODY).unwrap_err().to_string();
    assert!(error.contains("failure domains"), "{error}");
    let error = f.catalog.reserve_far(&RULE, &targets(&[1]), &NOBODY).unwrap_err().to_string();
    assert!(error.contains("2 columns need as many targets"), "{error}");
}

#[test]
fn what_is_out_of_date_is_on_record_with_a_generation_of_its_own() {
    let f = lmdb();
    let object = base(&f.catalog.reserve_far(&RULE, &targets(&[1, 2]), &NOBODY).unwrap());
    let far = f.catalog.set_stale(object, (0, 1), true).unwrap();
    assert_eq!((far.layout.generation, far.stale.as_slice()), (2, &[(0, 1)][..]));
    assert_eq!(f.catalog.set_stale(object, (0, 1), true).unwrap(), far, "nothing changes twice");
    let far = f.catalog.set_stale(object, (0, 1), false).unwrap();
    assert_eq!((far.layout.generation, far.stale.len()), (3, 0));
    assert_eq!(f.catalog.far(object).unwrap(), Some(far));
}

#[test]
fn what_is_out_of_date_is_listed_until_it_is_mended_or_gone() {
    let f = lmdb();
    let rule = LayoutRule { stripes: 2, copies: 1, parity: 1, ..RULE };
    let all = targets(&[1, 2, 3]);
    let away = std::collections::BTreeSet::from([TargetId(2)]);
    // Of three targets one is away: there is a new file all the same, of which something is missing from the beginning.
    let far = f.catalog.reserve_far(&rule, &all, &away).unwrap();
    assert_eq!(far.rule(), rule);
    assert_eq!((far.stale.len(), far.stale.clone()), (1, far.on(&away)));
    assert!(far.can_spare(&NOBODY) && far.can_spare(&away));
    assert!(!far.can_spare(&std::collections::BTreeSet::from([TargetId(1)])), "two of three are too many");
    let listed = || f.catalog.stale_far(ObjectId(0), 10).unwrap();
    assert_eq!(listed(), [(base(&far), far.clone())]);
    f.check();
    // Another one has numbers behind its columns and journals.
    let next = f.catalog.reserve_far(&rule, &all, &NOBODY).unwrap();
    assert_eq!(base(&next).0, base(&far).0 + 5);
    f.catalog.set_stale(base(&far), far.stale[0], false).unwrap();
    assert_eq!(listed(), []);
    f.catalog.set_stale(base(&next), (0, 0), true).unwrap();
    assert_eq!(listed().len(), 1);
    f.catalog.forget_far(&[base(&next)]).unwrap();
    assert_eq!(listed(), []);
    f.check();
    let plain = f.catalog.reserve_far(&RULE, &targets(&[1, 2]), &away);
    assert!(plain.unwrap_err().to_string().contains("are down"));
}

#[test]
fn a_column_that_moves_is_on_record_where_it_comes_from_and_where_it_goes() {
    let f = lmdb();
    let rule = LayoutRule { stripes: 2, copies: 1, parity: 1, ..RULE };
    let far = f.catalog.reserve_far(&rule, &targets(&[1, 2, 3]), &NOBODY).unwrap();
    let (object, from) = (base(&far), far.layout.components[0].targets[0]);
    let to = TargetId(4);
    let strays = || f.catalog.strays((ObjectId(0), TargetId(0)), 10).unwrap();
    // The column and its journal: behind three columns come two journals.
    let of = |target: TargetId| vec![(object, target), (ObjectId(object.0 + 3), target)];
    f.catalog.intend_column(object, (0, 0), to).unwrap();
    assert_eq!(strays(), of(to));
    assert_eq!(f.catalog.far(object).unwrap().unwrap(), far, "nothing has moved yet");
    assert!(f.catalog.is_stray((object, to)).unwrap() && !f.catalog.is_stray((object, from)).unwrap());
    // What an earlier attempt has left is removed first.
    let again = f.catalog.intend_column(object, (0, 0), to).unwrap_err();
    assert!(again.to_string().contains("yet to remove"), "{again}");
    let moved = f.catalog.relocate_column(object, (0, 0), to, false).unwrap();
    assert_eq!(moved.layout.components[0].targets[0], to);
    assert_eq!((moved.layout.generation, moved.stale.len()), (2, 0));
    assert_eq!(strays(), of(from));
    f.check();
    f.catalog.forget_strays(&strays()).unwrap();
    assert_eq!(strays(), []);
    // One whose target is lost has to be rebuilt at its new place, when nothing of an earlier copy is left there to be removed.
    f.catalog.intend_column(object, (0, 1), TargetId(5)).unwrap();
    let early = f.catalog.relocate_column(object, (0, 1), TargetId(5), true).unwrap_err();
    assert!(early.to_string().contains("yet to remove"), "{early}");
    f.catalog.forget_strays(&strays()).unwrap();
    let rebuilt = f.catalog.relocate_column(object, (0, 1), TargetId(5), true).unwrap();
    assert_eq!(rebuilt.stale, [(0, 1)]);
    assert_eq!(f.catalog.stale_far(ObjectId(0), 10).unwrap().len(), 1);
    let twice = f.catalog.relocate_column(object, (0, 2), TargetId(5), false).unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    assert_eq!(f.catalog.far(object).unwrap().unwrap(), rebuilt, "nothing of it stays");
    f.check();
}

#[test]
fn a_file_gets_other_objects_in_one_step_and_keeps_its_content_and_its_copies() {
    let f = lmdb();
    let (ino, object) = written(&f, "file", 5 << 20);
    let before = f.catalog.inode(ino).unwrap();
    let version = before.file.as_ref().unwrap().version;
    record(&f.catalog, "VA0001L9", 20, vec![segment(ino, version, 1, 5 << 20, (0, 5 << 20), 0)]);
    let mirror = LayoutRule { stripes: 1, copies: 2, ..RULE };
    let new = base(&f.catalog.reserve_far(&mirror, &targets(&[1, 2]), &NOBODY).unwrap());
    assert!(f.catalog.replace_object(ino, ObjectId(object.0 + 1), new).is_err(), "it has another object");
    f.check();
    let said = Reported { uuid: "a", node: NodeId(1), data: &[], domain: "d", capacity: 100, free: 50 };
    f.catalog.report_target(&said, t(100), t(80)).unwrap();
    f.catalog.set_target(TargetId(1), true, false).unwrap();
    let emptied = f.catalog.replace_object(ino, object, new).unwrap_err();
    assert!(emptied.to_string().contains("being emptied"), "{emptied}");
    f.catalog.set_target(TargetId(1), false, false).unwrap();
    f.catalog.replace_object(ino, object, new).unwrap();
    f.check();
    let after = f.catalog.inode(ino).unwrap();
    let file = after.file.unwrap();
    assert_eq!((file.object, file.far, file.version), (Some(new), true, version));
    assert_eq!(
        (after.attr.size, after.attr.mtime, after.observed),
        (5 << 20, before.attr.mtime, before.observed)
    );
    assert_eq!(file.copies.len(), 1, "the copy on tape counts as before");
    assert_eq!(f.catalog.far(new).unwrap().unwrap().rule(), mirror);
    let unowned: Vec<ObjectId> =
        f.catalog.unowned_far(ObjectId(0), 10).unwrap().iter().map(|(object, _)| *object).collect();
    assert_eq!(unowned, [object], "the old objects are to be removed");
    assert!(f.catalog.replace_object(ino, new, object).is_ok(), "as long as they are on record");
    f.catalog.replace_object(ino, object, new).unwrap();
    f.catalog.forget_far(&[object]).unwrap();
    assert!(f.catalog.replace_object(ino, new, object).is_err(), "they are gone");
    f.check();
    // What is on tape only comes back as it is wanted now.
    assert!(f.catalog.set_return_rule(ino, RULE).is_err(), "it is on disk");
    record(&f.catalog, "VB0001L9", 21, vec![segment(ino, version, 2, 5 << 20, (0, 5 << 20), 0)]);
    f.catalog.release_object(ino, version, new, &stamp(5 << 20, 11)).unwrap();
    assert_eq!(f.catalog.layout_rule(ino).unwrap(), Some(mirror));
    f.catalog.set_return_rule(ino, RULE).unwrap();
    assert_eq!(f.catalog.layout_rule(ino).unwrap(), Some(RULE));
    f.check();
}

#[test]
fn that_somebody_may_read_at_targets_is_on_record_until_it_has_ended_or_the_object_is_gone() {
    let f = lmdb();
    let (_, object) = written(&f, "far", 5 << 20);
    let (_, other) = written(&f, "other", 1);
    let lent = || f.catalog.lent(ObjectId(0), 10).unwrap();
    assert!(f.catalog.lend(ObjectId(object.0 + 1)).is_err(), "no file begins there");
    assert!(lent().is_empty() && !f.catalog.is_lent(object).unwrap());
    for _ in 0..2 {
        f.catalog.lend(object).unwrap();
        f.catalog.lend(other).unwrap();
    }
    assert_eq!((lent(), f.catalog.is_lent(object).unwrap()), (vec![object, other], true));
    assert_eq!(f.catalog.lent(object, 10).unwrap(), [other]);
    f.check();
    f.catalog.end_lending(&[other, ObjectId(99)]).unwrap();
    assert_eq!(lent(), [object]);
    f.catalog.unlink(&root(12), Ino::ROOT, b"far", &|_| false).unwrap();
    f.catalog.forget_far(&[object]).unwrap();
    assert_eq!((f.catalog.far(object).unwrap(), lent()), (None, vec![]));
    f.check();
}

#[test]
fn what_hosts_keep_of_a_file_is_on_record_until_it_is_at_the_targets_or_is_lost() {
    let f = lmdb();
    let one = written(&f, "one", 1).0;
    let other = written(&f, "other", 1).0;
    let on_record = || -> Vec<_> {
        let all = f.catalog.spares().unwrap();
        all.into_iter().map(|kept| (kept.ino, kept.epoch, kept.session, kept.lost)).collect()
    };
    assert!(f.catalog.keep_spare(Ino(other.0 + 1000), 1, 7).is_err(), "there is no such file");
    f.catalog.keep_spare(one, 5, 7).unwrap();
    f.catalog.keep_spare(one, 6, 8).unwrap();
    f.catalog.keep_spare(other, 3, 7).unwrap();
    assert_eq!(on_record(), [(one, 5, 7, false), (one, 6, 8, false), (other, 3, 7, false)]);
    assert_eq!(f.catalog.last_spare().unwrap(), 6);
    f.check();
    for _ in 0..2 {
        f.catalog.lose_spare(one, 5).unwrap();
        f.catalog.lose_spare(one, 99).unwrap();
        assert_eq!(on_record(), [(one, 5, 7, true), (one, 6, 8, false), (other, 3, 7, false)]);
    }
    f.catalog.forget_spares(one, &[6, 99]).unwrap();
    f.catalog.unlink(&root(12), Ino::ROOT, b"other", &|_| false).unwrap();
    // Of a file that is gone nobody asks what became of it.
    f.catalog.lose_spare(other, 3).unwrap();
    assert_eq!(on_record(), [(one, 5, 7, true)]);
    f.catalog.forget_spares(one, &[5]).unwrap();
    assert_eq!((on_record().len(), f.catalog.last_spare().unwrap()), (0, 6));
    f.check();
}

/// Bytes that two owners have on targets, and what the disk tier has.
fn held(f: &Fixture) -> (u64, u64, u64) {
    let on_targets = |uid| f.catalog.usage(uid).unwrap().target_bytes;
    (on_targets(0), on_targets(7), f.catalog.totals().unwrap().disk_bytes)
}

#[test]
fn what_lies_on_targets_counts_for_its_owner_through_everything_that_happens_to_it() {
    let f = lmdb();
    let (ino, object) = written(&f, "far", 5 << 20);
    assert_eq!(held(&f), (5 << 20, 0, 0), "two stripes, counted once");
    let observe = |object, size, at| {
        f.catalog.observe(&root(at), ino, object, &stamp(size, at), true, kv::Durability::Relaxed).unwrap()
    };
    observe(object, 9 << 20, 12);
    assert_eq!(held(&f), (9 << 20, 0, 0), "it grew");
    observe(object, 4096, 13);
    assert_eq!(held(&f), (4096, 0, 0), "it was cut");
    observe(object, 8192, 14);
    let given = SetAttr { uid: Some(7), ..SetAttr::default() };
    f.catalog.setattr(&root(15), ino, &given).unwrap();
    assert_eq!(held(&f), (0, 8192, 0), "it was given away");
    // Another layout, with redundancy: the same bytes.
    let rule = LayoutRule { stripes: 1, copies: 2, ..RULE };
    let to = base(&f.catalog.reserve_far(&rule, &targets(&[1, 2, 3]), &NOBODY).unwrap());
    f.catalog.replace_object(ino, object, to).unwrap();
    assert_eq!(held(&f), (0, 8192, 0));
    f.check();
    // To tape, and back.
    let version = f.catalog.inode(ino).unwrap().file.unwrap().version;
    for (copy, volume) in [(1, "VA0001L9"), (2, "VB0001L9")] {
        record(&f.catalog, volume, 20, vec![segment(ino, version, copy, 8192, (0, 8192), 0)]);
    }
    f.catalog.release_object(ino, version, to, &stamp(8192, 14)).unwrap();
    assert_eq!(held(&f), (0, 0, 0), "on tape only");
    let back = base(&f.catalog.reserve_far(&RULE, &targets(&[1, 2]), &NOBODY).unwrap());
    assert!(f.catalog.set_resident(ino, version, back, &stamp(8192, 29), t(29)).unwrap());
    assert_eq!(held(&f), (0, 8192, 0), "back");
    f.catalog.release_object(ino, version, back, &stamp(8192, 29)).unwrap();
    let near = ObjectId(f.catalog.alloc_objects(1).unwrap().start);
    assert!(f.catalog.set_resident(ino, version, near, &stamp(8192, 30), t(30)).unwrap());
    assert_eq!(held(&f), (0, 0, 8192), "in the disk tier it counts there");
    let (_, removed) = written(&f, "removed", 4096);
    assert_eq!(held(&f), (4096, 0, 8192));
    f.catalog.unlink(&root(40), Ino::ROOT, b"removed", &|_| false).unwrap();
    f.catalog.unlink(&root(40), Ino::ROOT, b"far", &|_| false).unwrap();
    assert_eq!(held(&f), (0, 0, 0), "also while targets have yet to remove {removed}");
    f.check();
}

#[test]
fn a_catalogue_of_a_release_that_did_not_count_what_lies_on_targets_counts_it_when_it_is_opened() {
    let engine: std::sync::Arc<dyn kv::Engine> = std::sync::Arc::new(kv::MemoryEngine::new());
    let f = over(engine.clone());
    // More than go into one transaction, and of two owners.
    for n in 0..1_100 {
        written(&f, &format!("f{n}"), 4096);
    }
    let ino = f.catalog.lookup(Ino::ROOT, b"f7").unwrap().attr.ino;
    f.catalog.setattr(&root(15), ino, &SetAttr { uid: Some(7), ..SetAttr::default() }).unwrap();
    let near = ObjectId(f.catalog.alloc_objects(1).unwrap().start);
    f.catalog.create(&root(16), Ino::ROOT, b"near", &New::file(0o644, near)).unwrap();
    f.catalog.unlink(&root(40), Ino::ROOT, b"f8", &|_| false).unwrap();
    let lost = f.catalog.lookup(Ino::ROOT, b"f9").unwrap().attr.ino;
    drop(f);
    // An object of a file that is not there is a finding of a check, and keeps nobody from opening the catalogue.
    let gone = [&[0x10][..], &lost.0.to_be_bytes(), &[0]].concat();
    // What such a release leaves behind: no sums of that kind (0x22 0x09), and no note that they are there (0x01 0x0c).
    let sums = [0, 7_u32].map(|uid| [&[0x22, 9], &uid.to_be_bytes()[..]].concat());
    kv::write::<_, catalog::CatalogError>(&*engine, kv::Durability::Durable, |w| {
        sums.iter().try_for_each(|key| w.delete(key))?;
        w.delete(&gone)?;
        let mut format = w.get(&[1, 0])?.unwrap().to_vec();
        assert_eq!(std::mem::replace(&mut format[0], 1), 2);
        w.put(&[1, 0], &format)?;
        Ok(w.delete(&[1, 12])?)
    })
    .unwrap();
    for _ in 0..2 {
        let f = Fixture { catalog: catalog::Catalog::open(engine.clone(), t(50)).unwrap(), dir: None };
        assert_eq!(held(&f), (1_097 * 4096, 4096, 0), "counted once");
        let format =
            kv::read::<_, catalog::CatalogError>(&*engine, |r| Ok(r.get(&[1, 0])?.unwrap().to_vec()));
        assert_eq!(format.unwrap()[0], 2, "a release that would not keep them refuses it");
    }
}

#[test]
fn a_file_leaves_the_disk_tier_for_targets_in_one_step_and_keeps_its_content_and_its_copies() {
    let f = lmdb();
    let near = ObjectId(f.catalog.alloc_objects(1).unwrap().start);
    let ino = f.catalog.create(&root(10), Ino::ROOT, b"near", &New::file(0o644, near)).unwrap().attr.ino;
    let (was, is) = (stamp(5 << 20, 11), stamp(5 << 20, 50));
    f.catalog.observe(&root(11), ino, near, &was, false, kv::Durability::Relaxed).unwrap();
    let reserve = || base(&f.catalog.reserve_far(&RULE, &targets(&[1, 2, 3]), &NOBODY).unwrap());
    let new = reserve();
    let leave = |from, expect: &ObjectStamp, to, stamp: &ObjectStamp| {
        f.catalog.leave_tier(ino, (from, expect), (to, stamp))
    };
    assert!(leave(near, &was, new, &is).is_err(), "somebody writes it");
    f.catalog.observe(&root(11), ino, near, &was, true, kv::Durability::Relaxed).unwrap();
    let before = f.catalog.inode(ino).unwrap();
    let version = before.file.as_ref().unwrap().version;
    record(&f.catalog, "VA0001L9", 20, vec![segment(ino, version, 1, 5 << 20, (0, 5 << 20), 0)]);
    let totals = f.catalog.totals().unwrap();
    assert_eq!(totals.disk_bytes, before.attr.disk_bytes);
    assert!(leave(new, &was, new, &is).is_err(), "it has another object");
    assert!(leave(near, &stamp(5 << 20, 12), new, &is).is_err(), "it has changed since it was copied");
    assert!(leave(near, &was, new, &stamp(4 << 20, 50)).is_err(), "it is shorter there");
    f.catalog.mark_writing(ino).unwrap();
    assert!(leave(near, &was, new, &is).is_err(), "it may be changing");
    f.catalog.clear_writing(ino).unwrap();
    let said = Reported { uuid: "a", node: NodeId(1), data: &[], domain: "d", capacity: 100, free: 50 };
    let target = f.catalog.far(new).unwrap().unwrap().layout.components[0].targets[0];
    for n in 1..=3 {
        let uuid = n.to_string();
        f.catalog.report_target(&Reported { uuid: &uuid, ..said }, t(100), t(80)).unwrap();
    }
    f.catalog.set_target(target, true, false).unwrap();
    let emptied = leave(near, &was, new, &is).unwrap_err();
    assert!(emptied.to_string().contains("being emptied"), "{emptied}");
    f.catalog.set_target(target, false, false).unwrap();
    leave(near, &was, new, &is).unwrap();
    f.check();
    let after = f.catalog.inode(ino).unwrap();
    let file = after.file.unwrap();
    assert_eq!((file.object, file.far, file.version), (Some(new), true, version));
    assert_eq!((after.attr.size, after.attr.mtime, after.observed), (5 << 20, before.attr.mtime, Some(is)));
    assert_eq!(file.copies.len(), 1, "the copy on tape counts as before");
    assert_eq!(
        held(&f),
        (5 << 20, 0, 0),
        "it takes nothing of the disk tier, and counts for its owner on targets"
    );
    assert_eq!(f.catalog.unowned_objects(ObjectId(0), 10).unwrap(), [near], "that object is to be removed");
    assert_eq!(f.catalog.unowned_far(ObjectId(0), 10).unwrap(), [], "these belong to the file");
    assert!(leave(near, &was, reserve(), &is).is_err(), "it has left");
    let other = ObjectId(f.catalog.alloc_objects(1).unwrap().start);
    let second = f.catalog.create(&root(12), Ino::ROOT, b"2nd", &New::file(0o644, other)).unwrap().attr.ino;
    f.catalog.observe(&root(12), second, other, &was, true, kv::Durability::Relaxed).unwrap();
    assert!(f.catalog.leave_tier(second, (other, &was), (new, &is)).is_err(), "they are another file's");
    f.check();
}
