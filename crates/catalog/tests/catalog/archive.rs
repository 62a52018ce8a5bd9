//! Content, copies, volumes, classes and requests: the cases by name.

use crate::common::*;
use catalog::{CatalogError, New, RecordOutcome, TapeNode};
use kv::Durability;
use std::ops::ControlFlow;
use types::*;

const R: Ino = Ino::ROOT;

fn file(f: &Fixture, name: &str, object: u64, size: u64, now: i64) -> Ino {
    let ino = f
        .catalog
        .create(&root(now), R, name.as_bytes(), &New::file(0o644, ObjectId(object)))
        .expect("create")
        .attr
        .ino;
    observe(f, ino, object, stamp(size, now), true, now);
    ino
}

fn observe(f: &Fixture, ino: Ino, object: u64, stamp: ObjectStamp, closed: bool, now: i64) -> Inode {
    f.catalog
        .observe(&root(now), ino, ObjectId(object), &stamp, closed, Durability::Relaxed)
        .expect("observe")
}

fn migrate(f: &Fixture, ino: Ino, version: u32, size: u64, now: i64) {
    for (copy, barcode) in [(1, "VA0001L9"), (2, "VB0001L9")] {
        let outcome =
            record(&f.catalog, barcode, now, vec![segment(ino, Version(version), copy, size, (0, size), 0)]);
        assert_eq!(outcome, [RecordOutcome::Counted]);
    }
}

fn state(f: &Fixture, ino: Ino) -> FileState {
    f.catalog.inode(ino).expect("inode").file.expect("regular")
}

fn candidates(f: &Fixture, before: i64) -> Vec<Ino> {
    f.catalog.candidates(t(before), None, 100).expect("list").found.into_iter().map(|c| c.ino).collect()
}

fn refused<T: std::fmt::Debug>(r: Result<T, CatalogError>) -> String {
    match r.expect_err("must be refused") {
        CatalogError::Refused { why, .. } => why,
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_goes_to_tape_leaves_the_disk_and_comes_back() {
    let f = lmdb();
    let x = file(&f, "x", 1, 5000, 100);
    assert_eq!(candidates(&f, 109), []);
    assert_eq!(candidates(&f, 111), [x]);
    let totals = f.catalog.totals().expect("totals");
    assert_eq!((totals.backlog_files, totals.backlog_bytes, totals.disk_bytes), (1, 5000, 8192));
    assert_eq!(f.catalog.pool_backlog(&"pool-b".into()).expect("backlog").bytes, 5000);
    assert!(
        refused(f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(5000, 100))).contains("2 of 2")
    );
    migrate(&f, x, 1, 5000, 120);
    f.check();
    assert_eq!(candidates(&f, 1000), []);
    assert_eq!(state(&f, x).copies, [CopyNo(1), CopyNo(2)]);
    assert_eq!(f.catalog.totals().expect("totals").purgeable, 8192);
    let p = f.catalog.purge_candidates(None, 10).expect("list").found;
    assert_eq!((p[0].ino, p[0].object, p[0].allocated), (x, ObjectId(1), 8192));
    assert!(
        refused(f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(5001, 100))).contains("changed")
    );
    for (version, object) in [(Version(2), ObjectId(1)), (Version(1), ObjectId(2))] {
        let other = refused(f.catalog.release_object(x, version, object, &stamp(5000, 100)));
        assert!(other.contains("other content"), "{other}");
    }
    f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(5000, 100)).expect("release");
    assert_eq!(f.catalog.object_owner(ObjectId(1)).expect("read"), None);
    let offline = f.catalog.inode(x).expect("inode");
    assert_eq!(
        (offline.attr.size, offline.attr.disk_bytes, offline.file.expect("file").object),
        (5000, 0, None)
    );
    f.check();
    assert!(
        refused(f.catalog.set_resident(x, Version(1), ObjectId(2), &stamp(4999, 200), t(200)))
            .contains("4999")
    );
    assert!(
        !f.catalog
            .set_resident(x, Version(2), ObjectId(2), &stamp(5000, 200), t(200))
            .expect("other version")
    );
    assert!(f.catalog.set_resident(x, Version(1), ObjectId(2), &stamp(5000, 200), t(200)).expect("back"));
    assert!(!f.catalog.set_resident(x, Version(1), ObjectId(3), &stamp(5000, 200), t(200)).expect("already"));
    assert_eq!(f.catalog.object_owner(ObjectId(2)).expect("read"), Some(x));
    assert_eq!(f.catalog.inode(x).expect("inode").attr.mtime, t(100), "a recall changes no times");
    assert_eq!(f.catalog.usage(0).expect("usage").tape_bytes, 10_000);
    f.check();
}

#[test]
fn writing_to_a_migrated_file_makes_a_new_version_and_dead_bytes() {
    let f = memory();
    let x = file(&f, "x", 1, 5000, 100);
    migrate(&f, x, 1, 5000, 120);
    assert_eq!(f.catalog.volume(&"VA0001L9".into()).expect("read").expect("there").live, 5000);
    let inode = observe(&f, x, 1, stamp(6000, 130), true, 131);
    assert_eq!((inode.attr.size, inode.attr.mtime), (6000, t(130)));
    let file = inode.file.expect("file");
    assert_eq!((file.version, file.copies.len(), file.digest), (Version(2), 0, None));
    let v = f.catalog.volume(&"VA0001L9".into()).expect("read").expect("there");
    assert_eq!((v.live, v.live_files, v.written, v.files), (0, 0, 5000, 1));
    let versions = f.catalog.versions(x).expect("versions");
    assert_eq!(versions.len(), 2);
    assert_eq!((versions[1].version, versions[1].current, versions[1].copies.len()), (Version(1), false, 2));
    assert_eq!((versions[1].size, versions[1].mtime), (5000, t(100)));
    assert_eq!(candidates(&f, 1000), [x]);
    f.check();
}

#[test]
fn a_sealed_version_that_changes_never_takes_a_copy_read_before() {
    let f = memory();
    let x = file(&f, "x", 1, 5000, 100);
    observe(&f, x, 1, stamp(5000, 110), true, 110);
    let outcome = record(&f.catalog, "VA0001L9", 120, vec![segment(x, Version(1), 1, 5000, (0, 5000), 0)]);
    assert!(matches!(&outcome[0], RecordOutcome::Stale { why } if why.contains("overwritten")));
    assert!(state(&f, x).copies.is_empty());
    let dead = &f.catalog.versions(x).expect("versions")[1];
    assert_eq!(
        (dead.version, dead.current, dead.copies.len()),
        (Version(1), false, 1),
        "recorded as dead, known"
    );
    f.check();
}

#[test]
fn a_file_that_is_being_written_takes_no_copy() {
    let f = memory();
    let x = f.catalog.create(&root(2), R, b"x", &New::file(0o644, ObjectId(1))).expect("create").attr.ino;
    observe(&f, x, 1, stamp(100, 3), false, 3);
    assert_eq!(f.catalog.writing().expect("list"), [x]);
    assert_eq!(f.catalog.candidate(x).expect("read"), None);
    let outcome = record(&f.catalog, "VA0001L9", 4, vec![segment(x, Version(1), 1, 100, (0, 100), 0)]);
    assert!(matches!(&outcome[0], RecordOutcome::Stale { why } if why.contains("being written")));
    assert!(f.catalog.version_copies(x, Version(1)).expect("read").is_empty());
    let held = refused(f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(100, 3)));
    assert!(held.contains("changed since it was closed"), "{held}");
    observe(&f, x, 1, stamp(100, 3), true, 5);
    assert!(f.catalog.writing().expect("list").is_empty());
    f.check();
}

#[test]
fn mtime_set_by_hand_survives_and_late_allocation_is_no_change() {
    let f = memory();
    let x = file(&f, "x", 1, 5000, 100);
    migrate(&f, x, 1, 5000, 110);
    f.catalog.setattr(&root(120), x, &SetAttr { mtime: Some(t(7)), ..SetAttr::default() }).expect("utimes");
    let late = ObjectStamp { allocated: 16384, ..stamp(5000, 100) };
    let inode = observe(&f, x, 1, late, true, 130);
    assert_eq!((inode.attr.mtime, inode.attr.ctime, inode.attr.disk_bytes), (t(7), t(120), 16384));
    assert_eq!(state(&f, x).version, Version(1));
    f.check();
}

#[test]
fn the_first_look_at_an_object_made_in_advance_changes_no_times() {
    let f = memory();
    let x = f.catalog.create(&root(100), R, b"x", &New::file(0o644, ObjectId(1))).expect("create").attr.ino;
    let inode = observe(&f, x, 1, stamp(0, 50), true, 101);
    assert_eq!((inode.attr.mtime, inode.attr.ctime), (t(100), t(100)));
    assert_eq!(candidates(&f, 1000), [x], "an empty file goes to tape too");
    migrate(&f, x, 1, 0, 120);
    assert!(candidates(&f, 1000).is_empty());
    f.check();
}

#[test]
fn truncating_an_offline_file_needs_no_recall() {
    let f = memory();
    let x = file(&f, "x", 1, 5000, 100);
    migrate(&f, x, 1, 5000, 110);
    f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(5000, 100)).expect("release");
    let (inode, freed) = f.catalog.new_content(&root(120), x, ObjectId(9), &stamp(0, 119)).expect("truncate");
    assert_eq!((inode.attr.size, inode.attr.mtime, freed), (0, t(120), None));
    assert_eq!(state(&f, x).version, Version(2));
    f.check();
    let (_, freed) = f.catalog.new_content(&root(130), x, ObjectId(10), &stamp(0, 129)).expect("again");
    assert_eq!(freed, Some(ObjectId(9)));
    assert!(matches!(
        f.catalog.observe(&root(131), x, ObjectId(9), &stamp(3, 130), true, Durability::Relaxed),
        Err(CatalogError::Fs(FsError::Stale))
    ));
    f.check();
}

#[test]
fn a_copy_over_two_volumes_counts_when_whole_and_a_new_try_replaces_parts() {
    let f = memory();
    let x = file(&f, "big", 1, 1000, 100);
    let part = |from, len| vec![segment(x, Version(1), 1, 1000, (from, len), 0)];
    assert_eq!(record(&f.catalog, "VA0001L9", 110, part(0, 600)), [RecordOutcome::Partial]);
    assert!(state(&f, x).copies.is_empty());
    f.check();
    assert_eq!(record(&f.catalog, "VA0002L9", 111, part(600, 300)), [RecordOutcome::Partial]);
    assert_eq!(record(&f.catalog, "VA0002L9", 112, part(600, 400)), [RecordOutcome::Counted]);
    let copies = f.catalog.version_copies(x, Version(1)).expect("read");
    assert_eq!(
        copies[0].segments.iter().map(|s| (s.file_offset, s.length)).collect::<Vec<_>>(),
        [(0, 600), (600, 400)]
    );
    let v = f.catalog.volume(&"VA0002L9".into()).expect("read").expect("there");
    assert_eq!((v.files, v.live_files, v.written, v.live), (2, 1, 700, 400));
    f.check();
}

#[test]
fn names_on_a_volume_mirror_paths_and_stay_unique() {
    let f = memory();
    let d = f
        .catalog
        .create(&root(2), R, b"dir", &New::node(FileKind::Directory, 0o755))
        .expect("mkdir")
        .attr
        .ino;
    let x = file(&f, "x", 1, 10, 3);
    f.catalog.rename(&root(4), (R, b"x"), (d, b"x.txt"), RenameMode::Replace, &|_| false).expect("rename");
    record(&f.catalog, "VA0001L9", 5, vec![segment(x, Version(1), 1, 10, (0, 10), 0)]);
    observe(&f, x, 1, stamp(11, 6), true, 6);
    record(&f.catalog, "VA0001L9", 7, vec![segment(x, Version(2), 1, 11, (0, 11), 0)]);
    f.catalog.unlink(&root(8), d, b"x.txt", &|_| false).expect("unlink");
    f.catalog.rmdir(&root(8), R, b"dir").expect("rmdir");
    let y = file(&f, "dir", 2, 5, 9);
    record(&f.catalog, "VA0001L9", 10, vec![segment(y, Version(1), 1, 5, (0, 5), 0)]);
    let paths = tape_paths(&f.catalog, "VA0001L9");
    assert_eq!(paths, ["/dir/x.txt", "/dir/x~2.txt", "/dir~1"]);
    let all = f.catalog.volume_files(&"VA0001L9".into(), 0, 10).expect("files");
    assert_eq!(
        (all[1].1.path.as_slice(), all[1].1.live, all[2].1.live),
        (b"/dir/x.txt".as_slice(), false, true)
    );
    assert_eq!(f.catalog.volume_files(&"VA0001L9".into(), 1, 1).expect("page")[0].0, "/dir/x~2.txt");
    f.check();
}

#[test]
fn the_walk_of_a_volume_nests_and_crosses_batches() {
    let f = memory();
    let mut at = R;
    let mut segments = Vec::new();
    for depth in 0..5u64 {
        let name = format!("d{depth}");
        at = f
            .catalog
            .create(&root(2), at, name.as_bytes(), &New::node(FileKind::Directory, 0o755))
            .expect("mkdir")
            .attr
            .ino;
        for i in 0..300u64 {
            let object = 1 + depth * 300 + i;
            let new = New::file(0o644, ObjectId(object));
            let ino =
                f.catalog.create(&root(3), at, format!("{i:04}").as_bytes(), &new).expect("create").attr.ino;
            observe(&f, ino, object, stamp(1, 4), true, 4);
            segments.push(segment(ino, Version(1), 1, 1, (0, 1), 0));
        }
    }
    record(&f.catalog, "VA0001L9", 5, segments);
    let (mut depth, mut files, mut deepest, mut last) = (0, 0, 0, String::new());
    let mut visit = |node: TapeNode<'_>| {
        match node {
            TapeNode::EnterDir { created, .. } => {
                assert_eq!(created, t(5));
                (depth, last) = (depth + 1, String::new());
            }
            TapeNode::LeaveDir => depth -= 1,
            TapeNode::File { name, .. } => {
                assert!(*name > *last, "in order");
                (files, last) = (files + 1, name.to_owned());
            }
        }
        deepest = deepest.max(depth);
        ControlFlow::Continue(())
    };
    f.catalog.walk_volume(&"VA0001L9".into(), &mut visit).expect("walk");
    assert_eq!((depth, files, deepest), (0, 1500, 5));
    let listed: Vec<_> = f.catalog.files_on(&"VA0001L9".into()).expect("list").map(Result::unwrap).collect();
    assert_eq!(listed.len(), 1500);
    // What the volume says of a file is where the walk has found it.
    assert!(listed.iter().all(|(path, file)| path.as_bytes() == file.path));
    let page = f.catalog.volume_files(&"VA0001L9".into(), 1400, 500).expect("page");
    assert_eq!(page, listed[1400..]);
    f.check();
}

#[test]
fn a_deleted_file_stays_known_until_its_volumes_are_labelled_anew() {
    let f = lmdb();
    let x = file(&f, "x", 1, 5000, 100);
    migrate(&f, x, 1, 5000, 110);
    assert!(
        refused(f.catalog.label_volume(&"VA0001L9".into(), &volume("VA0001L9", "pool-a"))).contains("1 file")
    );
    let removed = f.catalog.unlink(&root(120), R, b"x", &|_| false).expect("unlink");
    assert_eq!(removed.freed, Some(ObjectId(1)));
    let known = f.catalog.versions(x).expect("versions");
    assert_eq!((known.len(), known[0].current, known[0].copies.len()), (1, false, 2));
    f.check();
    f.catalog.label_volume(&"VA0001L9".into(), &volume("VA0001L9", "pool-a")).expect("label");
    assert_eq!(f.catalog.versions(x).expect("versions")[0].copies.len(), 1);
    f.catalog.label_volume(&"VB0001L9".into(), &volume("VB0001L9", "pool-b")).expect("label");
    assert!(f.catalog.versions(x).expect("versions").is_empty());
    assert!(tape_paths(&f.catalog, "VA0001L9").is_empty());
    assert_eq!(f.catalog.usage(0).expect("usage").bytes, 0);
    f.check();
}

#[test]
fn a_copy_of_a_file_deleted_meanwhile_is_recorded_as_dead() {
    let f = memory();
    let x = file(&f, "x", 1, 500, 100);
    f.catalog.unlink(&root(120), R, b"x", &|_| false).expect("unlink");
    let outcome = record(&f.catalog, "VA0001L9", 130, vec![segment(x, Version(1), 1, 500, (0, 500), 0)]);
    assert!(matches!(&outcome[0], RecordOutcome::Stale { why } if why.contains("deleted")));
    assert_eq!(tape_paths(&f.catalog, "VA0001L9"), [format!("/~deleted/inode-{x}")]);
    let v = f.catalog.volume(&"VA0001L9".into()).expect("read").expect("there");
    assert_eq!((v.written, v.live, v.files, v.live_files), (500, 0, 1, 0));
    assert_eq!(f.catalog.versions(x).expect("versions").len(), 1);
    f.check();
}

#[test]
fn what_a_cartridge_has_gone_through_stays_with_it_whatever_its_label() {
    let f = memory();
    let name = Barcode::from("VA0001L9");
    f.catalog.update_volume(&name, &mut |v| (v.mounts, v.errors, v.written) = (9, 2, 7)).expect("updated");
    f.catalog.label_volume(&name, &volume("VA0001L9", "pool-a")).expect("labelled");
    let v = f.catalog.volume(&name).expect("read").expect("there");
    assert_eq!((v.mounts, v.errors, v.written), (9, 2, 0));
}

#[test]
fn an_intended_label_is_known_until_it_is_recorded() {
    let f = lmdb();
    let barcode = Barcode::from("VA0001L9");
    assert_eq!(f.catalog.intended_label(&barcode).expect("read"), None);
    f.catalog.intend_label(&barcode, "new").expect("noted");
    f.catalog.intend_label(&barcode, "newer").expect("noted");
    assert_eq!(f.catalog.intended_label(&barcode).expect("read").as_deref(), Some("newer"));
    f.check();
    f.catalog.label_volume(&barcode, &volume("VA0001L9", "pool-a")).expect("labelled");
    assert_eq!(f.catalog.intended_label(&barcode).expect("read"), None);
    f.catalog.intend_label(&"nowhere".into(), "x").expect_err("no such volume");
    f.check();
}

#[test]
fn an_index_does_not_list_empty_files_recorded_after_it() {
    let f = memory();
    let name = "VA0001L9".into();
    let indexed = f.catalog.volume(&name).expect("volume").expect("there");
    assert_eq!(indexed.indexed_to, indexed.append_block);
    let x = file(&f, "empty", 1, 0, 100);
    let (append_block, next_uid, vcr) = (indexed.append_block, indexed.next_uid + 1, indexed.vcr);
    let append =
        catalog::VolumeAppend { volume: name.clone(), append_block, next_uid, vcr, now: t(5), section: None };
    f.catalog.record_copies(&append, &[]).expect("nothing");
    assert_eq!(f.catalog.volume(&name).expect("volume").expect("there").indexed_to, append_block);
    let s = segment(x, Version(1), 1, 0, (0, 0), indexed.next_uid);
    assert_eq!(f.catalog.record_copies(&append, &[s]).expect("recorded"), [RecordOutcome::Counted]);
    let after = f.catalog.volume(&name).expect("volume").expect("there");
    assert!(after.indexed_to < after.append_block, "{after:?}");
    f.check();
}

#[test]
fn an_append_never_goes_back() {
    let f = memory();
    let x = file(&f, "x", 1, 500, 100);
    let append = catalog::VolumeAppend {
        volume: "VA0001L9".into(),
        append_block: 5,
        next_uid: 9,
        vcr: 2,
        now: t(5),
        section: None,
    };
    let s = segment(x, Version(1), 1, 500, (0, 500), 2);
    assert!(refused(f.catalog.record_copies(&append, &[s])).contains("block 5"));
    assert!(state(&f, x).copies.is_empty());
    f.check();
}

#[test]
fn pins_and_classes_keep_files_on_disk() {
    let f = memory();
    let x = file(&f, "x", 1, 500, 100);
    migrate(&f, x, 1, 500, 110);
    assert!(f.catalog.pin(x, true).expect("pin"));
    assert!(!f.catalog.pin(x, true).expect("again"));
    assert!(f.catalog.purge_candidates(None, 10).expect("list").found.is_empty());
    assert!(
        refused(f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(500, 100))).contains("pinned")
    );
    f.catalog.pin(x, false).expect("unpin");
    let keep = Class { keep_on_disk: true, ..class("default", &POOLS) };
    f.catalog.put_class(&keep).expect("class");
    while f.catalog.refresh_classes(1, t(120)).expect("refresh") {}
    assert!(f.catalog.purge_candidates(None, 10).expect("list").found.is_empty());
    assert!(
        refused(f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(500, 100))).contains("keeps")
    );
    f.check();
}

#[test]
fn no_object_is_released_before_a_changed_class_has_reached_its_file() {
    let f = memory();
    let x = file(&f, "x", 1, 500, 100);
    migrate(&f, x, 1, 500, 110);
    f.catalog.put_class(&class("default", &["pool-a", "pool-b", "pool-a"])).expect("class");
    let release = || f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(500, 100));
    assert!(refused(release()).contains("has not reached"));
    while f.catalog.refresh_classes(2, t(120)).expect("refresh") {}
    assert!(refused(release()).contains("1 of 3"));
    assert_eq!(
        f.catalog.candidate(x).expect("read").expect("lacks one").missing,
        [(CopyNo(3), "pool-a".into())]
    );
    f.check();
}

#[test]
fn a_copy_of_an_orphan_is_dead_and_goes_with_it() {
    let f = memory();
    let x = file(&f, "x", 1, 500, 100);
    record(&f.catalog, "VA0001L9", 110, vec![segment(x, Version(1), 1, 500, (0, 500), 0)]);
    f.catalog.unlink(&root(120), R, b"x", &|_| true).expect("unlink");
    f.check();
    let outcome = record(&f.catalog, "VB0001L9", 130, vec![segment(x, Version(1), 2, 500, (0, 500), 0)]);
    assert!(matches!(outcome[0], RecordOutcome::Stale { .. }));
    f.check();
    assert_eq!(f.catalog.reap(x).expect("reap"), Some(ObjectId(1)));
    assert_eq!(f.catalog.volume(&"VA0001L9".into()).expect("read").expect("there").live_files, 0);
    f.check();
}

#[test]
fn copies_follow_a_file_into_another_class() {
    let f = memory();
    let x = file(&f, "x", 1, 500, 100);
    migrate(&f, x, 1, 500, 110);
    f.catalog.set_class(x, &"single".into(), t(120)).expect("set");
    assert_eq!(candidates(&f, 1000), [x.word()], "copy in pool-b counts as its first; its class is told");
    let copies = f.catalog.version_copies(x, Version(1)).expect("read");
    assert_eq!((copies[0].copy, copies[0].segments[0].volume.as_str()), (CopyNo(1), "VB0001L9"));
    assert_eq!(copies.len(), 2, "the other stays as an extra");
    f.check();
    f.catalog.put_pool(&Pool::new("pool-c".into())).expect("pool");
    f.catalog.put_class(&class("single", &["pool-c", "pool-a"])).expect("class");
    while f.catalog.refresh_classes(10, t(130)).expect("refresh") {}
    let waits = f.catalog.candidate(x).expect("read").expect("lacks pool-c");
    assert_eq!(waits.missing, [(CopyNo(1), PoolName::from("pool-c"))]);
    f.check();
}

#[test]
fn an_offline_file_that_lacks_a_copy_is_due_once_it_is_back() {
    let f = memory();
    f.catalog.set_class(Ino::ROOT, &"single".into(), t(50)).expect("class of new files");
    let x = file(&f, "x", 1, 5000, 100);
    record(&f.catalog, "VB0001L9", 120, vec![segment(x, Version(1), 1, 5000, (0, 5000), 0)]);
    f.catalog.release_object(x, Version(1), ObjectId(1), &stamp(5000, 100)).expect("release");
    f.catalog.set_class(x, &"default".into(), t(200)).expect("another class");
    f.check();
    assert_eq!(state(&f, x).copies, [CopyNo(2)]);
    assert_eq!(candidates(&f, 1000), [x.word()], "nothing can be copied from but its class");
    assert_eq!(f.catalog.candidate(x).expect("read"), None);
    assert_eq!(f.catalog.totals().expect("totals").backlog_files, 1);
    assert!(f.catalog.set_resident(x, Version(1), ObjectId(2), &stamp(5000, 300), t(300)).expect("back"));
    f.check();
    assert_eq!(candidates(&f, 1000), [x.word(), x]);
    assert_eq!(f.catalog.pool_backlog(&"pool-a".into()).expect("backlog").files, 2);
}

#[test]
fn classes_and_pools_that_are_named_must_exist() {
    let f = memory();
    let d =
        f.catalog.create(&root(2), R, b"d", &New::node(FileKind::Directory, 0o755)).expect("mkdir").attr.ino;
    f.catalog.set_class(d, &"single".into(), t(3)).expect("set");
    assert_eq!(f.catalog.class_of(d).expect("class"), "single".into());
    assert!(matches!(f.catalog.set_class(d, &"nope".into(), t(3)), Err(CatalogError::Missing { .. })));
    assert!(matches!(f.catalog.put_class(&class("x", &["nope"])), Err(CatalogError::Missing { .. })));
    f.check();
}

#[test]
fn purge_order_follows_use_to_the_minute() {
    let f = memory();
    let (x, y) = (file(&f, "x", 1, 500, 100), file(&f, "y", 2, 500, 110));
    migrate(&f, x, 1, 500, 120);
    migrate(&f, y, 1, 500, 120);
    let order = || {
        f.catalog
            .purge_candidates(None, 10)
            .expect("list")
            .found
            .into_iter()
            .map(|p| p.ino)
            .collect::<Vec<_>>()
    };
    f.catalog.touch_access(x, t(130)).expect("touch");
    assert_eq!(order(), [x, y], "within a minute nothing moves");
    f.catalog.touch_access(x, t(200)).expect("touch");
    assert_eq!(order(), [y, x]);
    let key = f.catalog.purge_candidates(None, 1).expect("list").found[0].key;
    assert_eq!(f.catalog.purge_candidates(Some(key), 10).expect("list").found[0].ino, x);
    f.check();
}

fn request(kind: RequestKind) -> Request {
    Request::new(kind, 5, "/x".into(), t(1))
}

#[test]
fn requests_count_their_items_and_end_with_the_last() {
    let f = memory();
    let c = &f.catalog;
    let a = c.create_request(&request(RequestKind::Stage), &[(Ino(5), 10), (Ino(6), 20)]).expect("create");
    let b = c.create_request(&request(RequestKind::Stage), &[(Ino(6), 20)]).expect("create");
    assert_eq!((a.files_total, a.bytes_total), (2, 30));
    assert_eq!(c.add_items(a.id, &[(Ino(6), 20), (Ino(7), 1)]).expect("add").files_total, 3);
    assert_eq!(c.requests_for(Ino(6)).expect("list"), [a.id, b.id]);
    f.check();
    let begun = [3, 4].map(|now| c.begin_request(a.id, t(now)).expect("begin; again: no effect"));
    assert_eq!((begun[1].state, begun[1].started), (RequestState::Active, Some(t(3))));
    for id in c.requests_for(Ino(6)).expect("list") {
        c.finish_item(id, Ino(6), ItemState::Done, 20, (t(4), t(5))).expect("finish");
    }
    assert!(c.requests_for(Ino(6)).expect("list").is_empty());
    assert_eq!(c.begin_request(b.id, t(9)).expect("it is done").started, Some(t(4)));
    let failed = ItemState::Failed("volume V is missing".into());
    c.finish_item(a.id, Ino(5), failed, 0, (t(6), t(6))).expect("finish");
    c.finish_item(a.id, Ino(5), ItemState::Done, 10, (t(6), t(6))).expect("again: no effect");
    let ended = c.finish_item(a.id, Ino(7), ItemState::Done, 1, (t(7), t(7))).expect("finish");
    assert_eq!((ended.state, ended.files_failed, ended.bytes_done), (RequestState::Failed, 1, 21));
    assert_eq!((&*ended.message, ended.started), ("volume V is missing", Some(t(3))));
    assert_eq!(c.items(a.id, Ino(5), 10).expect("items").len(), 2);
    assert!(c.open_requests().expect("list").is_empty());
    assert_eq!(c.requests(true, 1).expect("list")[0].id, b.id);
    f.check();
    let d = c.create_request(&request(RequestKind::Migrate), &[(Ino(9), 1)]).expect("create");
    c.update_request(d.id, &mut |r| r.state = RequestState::Cancelled).expect("cancel");
    assert!(c.requests_for(Ino(9)).expect("list").is_empty());
    assert_eq!(c.prune_requests(t(100), 10).expect("prune"), 3);
    assert!(c.requests(true, 10).expect("list").is_empty());
    f.check();
}

#[test]
fn objects_are_unowned_exactly_while_no_inode_has_them() {
    let f = memory();
    let c = &f.catalog;
    let ids = c.alloc_objects(3).expect("allocate");
    let object = |i: u64| ObjectId(ids.start + i);
    let unowned = || c.unowned_objects(ObjectId(0), 10).expect("list");
    assert_eq!(unowned(), [object(0), object(1), object(2)]);
    assert_eq!(c.unowned_objects(object(0), 1).expect("page"), [object(1)]);
    assert!(c.unowned_objects(ObjectId(0), 0).expect("nothing asked").is_empty());
    let x = file(&f, "x", object(0).0, 500, 100);
    assert_eq!(unowned(), [object(1), object(2)]);
    c.new_content(&root(110), x, object(1), &stamp(0, 110)).expect("truncate");
    assert_eq!(unowned(), [object(0), object(2)], "the old content's object is free");
    f.check();
    observe(&f, x, object(1).0, stamp(500, 120), true, 120);
    migrate(&f, x, 2, 500, 130);
    c.release_object(x, Version(2), object(1), &stamp(500, 120)).expect("purge");
    assert_eq!(unowned(), [object(0), object(1), object(2)]);
    assert!(c.set_resident(x, Version(2), object(2), &stamp(500, 140), t(140)).expect("recall"));
    assert_eq!(unowned(), [object(0), object(1)]);
    f.check();
    c.unlink(&root(150), R, b"x", &|_| false).expect("unlink");
    assert_eq!(unowned().len(), 3);
    c.forget_objects(&unowned()).expect("forget");
    assert!(unowned().is_empty());
    f.check();
}

#[test]
fn object_numbers_are_never_given_twice() {
    let f = memory();
    let (a, b) = (f.catalog.alloc_objects(100).expect("a"), f.catalog.alloc_objects(1).expect("b"));
    assert!(a.start >= 1 && a.end <= b.start);
}
