//! A catalogue comes back from what the indexes of its volumes list.

use crate::common::listing::{empty, listing};
use crate::common::{memory, record, root, segment, stamp, t, user};
use catalog::{Adoption, Catalog, ListedFile, New, NewSegment, RecordOutcome, check};
use proptest::prelude::*;
use types::*;

fn adopt(from: &Catalog, to: &Catalog, barcode: &str, as_of: i64, at_once: usize) -> Vec<Adoption> {
    let v = from.volume(&barcode.into()).unwrap().unwrap();
    to.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).unwrap();
    let files = listing(from, barcode);
    files.chunks(at_once).flat_map(|part| to.adopt(&barcode.into(), t(as_of), part).unwrap()).collect()
}

fn sound(c: &Catalog) {
    let findings = check::verify(c);
    assert!(findings.is_empty(), "{findings:#?}");
}

fn file(c: &Catalog, dir: Ino, name: &str, size: u64, now: i64) -> (Ino, ObjectId) {
    let object = ObjectId(c.alloc_objects(1).unwrap().start);
    let ino = c.create(&user(7, now), dir, name.as_bytes(), &New::file(0o640, object)).unwrap().attr.ino;
    c.observe(&root(now), ino, object, &stamp(size, now), true, kv::Durability::Relaxed).unwrap();
    (ino, object)
}

fn both_copies(c: &Catalog, ino: Ino, size: u64, now: i64) {
    let version = c.inode(ino).unwrap().file.unwrap().version;
    for (volume, copy) in [("VA0001L9", 1), ("VB0001L9", 2)] {
        let done = record(c, volume, now, vec![segment(ino, version, copy, size, (0, size), 0)]);
        assert_eq!(done, [RecordOutcome::Counted]);
    }
}

/// Everything about a file that tapes know.
fn facts(c: &Catalog, path: &str) -> (Attr, FileState, Vec<VersionRecord>) {
    let inode = c.resolve(&root(1), path.as_bytes(), false).unwrap();
    let ino = inode.attr.ino;
    let attr = Attr { disk_bytes: 0, ..inode.attr };
    let mut versions = c.versions(ino).unwrap();
    for copy in versions.iter_mut().flat_map(|v| v.copies.iter_mut()) {
        for s in &mut copy.segments {
            s.tape_dir = TapeDir(0);
        }
    }
    (attr, FileState { object: None, stamp: None, ..inode.file.unwrap() }, versions)
}

fn world() -> (Catalog, Ino) {
    let c = memory().catalog;
    c.setattr(&root(5), Ino::ROOT, &SetAttr { mode: Some(0o777), ..SetAttr::default() }).unwrap();
    let dir = c.create(&user(7, 10), Ino::ROOT, b"home", &New::node(FileKind::Directory, 0o750)).unwrap();
    (c, dir.attr.ino)
}

#[test]
fn files_directories_and_versions_come_back() {
    let (c, home) = world();
    let (ino, object) = file(&c, home, "data", 1000, 20);
    c.setxattr(&user(7, 21), ino, b"user.run", b"12", types::api::XattrMode::Any).unwrap();
    both_copies(&c, ino, 1000, 30);
    c.observe(&root(40), ino, object, &stamp(2000, 40), true, kv::Durability::Relaxed).unwrap();
    both_copies(&c, ino, 2000, 50);

    let new = empty();
    for volume in ["VB0001L9", "VA0001L9"] {
        adopt(&c, &new, volume, 60, 1);
    }
    sound(&new);
    assert_eq!(facts(&new, "/home/data"), facts(&c, "/home/data"));
    assert_eq!(new.getxattr(&root(1), ino, b"user.run").unwrap(), b"12");
    let dir = new.resolve(&root(1), b"/home", false).unwrap().attr;
    assert_eq!((dir.mode, dir.uid, dir.gid), (0o750, 7, 7));
    assert_eq!(dir.ino, home, "volumes tell the numbers of directories");
    let later = new.create(&root(70), Ino::ROOT, b"later", &New::node(FileKind::Directory, 0o755)).unwrap();
    assert!(later.attr.ino.0 > 1 << 30, "a new inode number that the old namespace cannot have given");
    for volume in ["VA0001L9", "VB0001L9"] {
        let (was, is) = (listing(&c, volume), listing(&new, volume));
        let shape = |l: &ListedFile| (l.name.clone(), l.file.clone());
        assert_eq!(was.iter().map(shape).collect::<Vec<_>>(), is.iter().map(shape).collect::<Vec<_>>());
    }
    // Twice is as good as once.
    let again = adopt(&c, &new, "VA0001L9", 60, 100);
    assert!(again.iter().all(|a| *a == Adoption::Known), "{again:?}");
    sound(&new);
}

#[test]
fn a_missing_volume_leaves_its_copies_out() {
    let (c, home) = world();
    let (ino, _) = file(&c, home, "data", 1000, 20);
    both_copies(&c, ino, 1000, 30);
    let new = empty();
    adopt(&c, &new, "VB0001L9", 60, 10);
    sound(&new);
    assert_eq!(new.inode(ino).unwrap().file.unwrap().copies, [CopyNo(2)]);
}

#[test]
fn a_file_of_which_a_part_was_imported_is_no_fault_of_the_catalogue() {
    let (c, home) = world();
    c.update_volume(&"VB0001L9".into(), &mut |v| v.pool = Some("pool-a".into())).unwrap();
    let (ino, _) = file(&c, home, "data", 1000, 20);
    let parts = [("VA0001L9", (0, 600)), ("VB0001L9", (600, 400))];
    let done = parts.map(|(volume, part)| {
        record(&c, volume, 30, vec![segment(ino, Version(1), 1, 1000, part, 0)]).remove(0)
    });
    assert_eq!(done, [RecordOutcome::Partial, RecordOutcome::Counted]);
    for imported in [true, false] {
        let new = empty();
        let v = c.volume(&"VA0001L9".into()).unwrap().unwrap();
        new.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, imported, ..v }).unwrap();
        new.adopt(&"VA0001L9".into(), t(60), &listing(&c, "VA0001L9")).unwrap();
        let findings = check::verify(&new);
        assert_eq!(findings.is_empty(), imported, "{findings:#?}");
        assert_eq!(adopt(&c, &new, "VB0001L9", 60, 10), [Adoption::Live]);
        sound(&new);
    }
}

#[test]
fn of_two_files_at_one_path_the_later_has_it() {
    let (c, home) = world();
    let (first, _) = file(&c, home, "data", 10, 20);
    record(&c, "VA0001L9", 30, vec![segment(first, Version(1), 1, 10, (0, 10), 0)]);
    let old = listing(&c, "VA0001L9");
    c.unlink(&user(7, 31), home, b"data", &|_| false).unwrap();
    let (second, _) = file(&c, home, "data", 20, 40);
    record(&c, "VB0001L9", 50, vec![segment(second, Version(1), 2, 20, (0, 20), 0)]);
    for order in [[0, 1], [1, 0]] {
        let new = empty();
        let mut said = Vec::new();
        for which in order {
            if which == 0 {
                // This index was written before the first file was deleted.
                let v = c.volume(&"VA0001L9".into()).unwrap().unwrap();
                new.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).unwrap();
                said.extend(new.adopt(&"VA0001L9".into(), t(35), &old).unwrap());
            } else {
                said.extend(adopt(&c, &new, "VB0001L9", 60, 10));
            }
        }
        sound(&new);
        assert_eq!(new.resolve(&root(1), b"/home/data", false).unwrap().attr.ino, second);
        let kept = format!("/lost+found/{first}~data");
        assert_eq!(new.resolve(&root(1), kept.as_bytes(), false).unwrap().attr.ino, first);
        let displaced = said.iter().any(|a| matches!(a, Adoption::Displaced { .. }));
        assert_eq!(displaced, order == [1, 0], "{said:?}");
    }
}

#[test]
fn a_renamed_file_is_where_it_was_written_last() {
    let (c, home) = world();
    let (ino, _) = file(&c, home, "early", 10, 20);
    record(&c, "VA0001L9", 30, vec![segment(ino, Version(1), 1, 10, (0, 10), 0)]);
    c.rename(&user(7, 40), (home, b"early"), (Ino::ROOT, b"late"), RenameMode::Replace, &|_| false).unwrap();
    record(&c, "VB0001L9", 50, vec![segment(ino, Version(1), 2, 10, (0, 10), 0)]);
    for order in [["VA0001L9", "VB0001L9"], ["VB0001L9", "VA0001L9"]] {
        let new = empty();
        order.iter().for_each(|v| drop(adopt(&c, &new, v, 60, 10)));
        sound(&new);
        assert_eq!(new.path_of(ino).unwrap(), b"/late");
        assert_eq!(new.inode(ino).unwrap().file.unwrap().copies.len(), 2);
    }
}

/// What waits goes to a volume of each pool.
fn write_what_waits(c: &Catalog, volumes: [&str; 2], now: i64) {
    for (copy, volume) in (1u8..).zip(volumes) {
        let of = c.candidates(t(1 << 40), None, 1000).unwrap().found;
        let of = of.iter().filter(|w| w.missing.iter().any(|(n, _)| n.0 == copy));
        let made = of
            .map(|w| NewSegment { digest: None, ..segment(w.ino, w.version, copy, w.size, (0, w.size), 0) });
        let done = record(c, volume, now, made.collect());
        assert!(done.iter().all(|d| *d == RecordOutcome::Counted), "{done:?}");
    }
}

/// The data lies on volumes whose indexes are older than all that became of the file; words on it on others, which are read
/// before or after.
#[test]
fn what_became_of_a_file_after_it_went_to_tape_is_known_again() {
    let (c, home) = world();
    c.put_volume(&crate::common::volume("VB0002L9", "pool-b")).unwrap();
    let (ino, _) = file(&c, home, "data", 1000, 20);
    both_copies(&c, ino, 1000, 30);
    let old = ["VA0001L9", "VB0001L9"].map(|v| (v, listing(&c, v)));
    let u = |now| user(7, now);
    let other =
        c.create(&u(40), Ino::ROOT, b"other", &New::node(FileKind::Directory, 0o711)).unwrap().attr.ino;
    c.rename(&root(41), (home, b"data"), (other, b"moved"), RenameMode::Replace, &|_| false).unwrap();
    c.link(&root(42), ino, home, b"second").unwrap();
    c.link(&root(43), ino, home, b"third").unwrap();
    c.setxattr(&u(44), ino, b"user.k", b"v", types::api::XattrMode::Any).unwrap();
    let set = SetAttr { mode: Some(0o400), uid: Some(9), mtime: Some(t(3)), ..SetAttr::default() };
    c.setattr(&root(45), ino, &set).unwrap();
    c.set_class(ino, &"default".into(), t(46)).unwrap();
    write_what_waits(&c, ["VA0002L9", "VB0002L9"], 50);
    sound(&c);
    let new = ["VA0002L9", "VB0002L9"].map(|v| (v, listing(&c, v)));
    for flip in [false, true] {
        let mut order: Vec<_> = old.iter().chain(&new).collect();
        if flip {
            order.reverse();
        }
        let back = empty();
        for (barcode, files) in order {
            let v = c.volume(&(*barcode).into()).unwrap().unwrap();
            back.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).unwrap();
            back.adopt(&(*barcode).into(), t(60), files).unwrap();
            sound(&back);
        }
        for path in ["/other/moved", "/home/second", "/home/third"] {
            let (attr, file, versions) = facts(&back, path);
            assert_eq!((attr, file, versions), facts(&c, path), "{path}, {flip}");
        }
        assert_eq!(back.getxattr(&root(1), ino, b"user.k").unwrap(), b"v");
        back.resolve(&root(1), b"/home/data", false).expect_err("it has another name");
        assert!(back.candidates(t(1 << 40), None, 9).unwrap().found.is_empty());
        // From here on it goes on: the next word is later than those on tape.
        back.unlink(&root(70), home, b"second", &|_| false).unwrap();
        let due = back.candidates(t(1 << 40), None, 9).unwrap().found;
        assert_eq!(due.iter().map(|w| (w.ino, w.dataless)).collect::<Vec<_>>(), [(ino.word(), true)]);
        assert!(due[0].version > c.archived(ino.word()).unwrap().unwrap().version);
        sound(&back);
    }
}

#[test]
fn a_removed_file_is_not_back_and_can_be_restored() {
    let (c, home) = world();
    c.put_volume(&crate::common::volume("VB0002L9", "pool-b")).unwrap();
    let (ino, _) = file(&c, home, "data", 1000, 20);
    both_copies(&c, ino, 1000, 30);
    write_what_waits(&c, ["VA0001L9", "VB0001L9"], 31);
    let old = ["VA0001L9", "VB0001L9"].map(|v| (v, listing(&c, v)));
    c.unlink(&root(40), home, b"data", &|_| false).unwrap();
    c.rmdir(&root(41), Ino::ROOT, b"home").unwrap();
    write_what_waits(&c, ["VA0002L9", "VB0002L9"], 50);
    let new = ["VA0002L9", "VB0002L9"].map(|v| (v, listing(&c, v)));
    for flip in [false, true] {
        let mut order: Vec<_> = old.iter().chain(&new).collect();
        if flip {
            order.reverse();
        }
        let back = empty();
        for (barcode, files) in order {
            let v = c.volume(&(*barcode).into()).unwrap().unwrap();
            back.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).unwrap();
            back.adopt(&(*barcode).into(), t(60), files).unwrap();
            sound(&back);
        }
        let left = back.readdir(Ino::ROOT, 0, 9).unwrap().found;
        assert!(left.is_empty(), "{left:?}");
        let ended = back.ended_versions(b"/", None, 9).unwrap().found;
        assert_eq!(
            ended.iter().map(|e| (e.ino, e.size, e.copies.len())).collect::<Vec<_>>(),
            [(ino, 1000, 2)]
        );
        let file = back.undelete(&root(70), (ino, Version(1)), (Ino::ROOT, b"back")).unwrap();
        assert_eq!(file.file.unwrap().copies.len(), 2);
        assert_eq!(back.archived(ino.word()).unwrap(), None, "no tape is to tell of it any more");
        sound(&back);
    }
}

#[test]
fn another_namespace_is_not_taken_into_one_that_is_in_use() {
    let (c, _) = world();
    c.set_site("a").unwrap();
    c.set_site("a").unwrap();
    assert!(c.set_site("b").is_err());
    let new = empty();
    new.set_site("x").unwrap();
    new.set_site("y").unwrap();
    assert_eq!(new.site().unwrap().as_deref(), Some("y"));
    // What targets were told stays, also when it is empty again.
    assert_eq!(new.give_site().unwrap(), None, "it holds nothing");
    new.create(&root(1), Ino::ROOT, b"d", &New::node(FileKind::Directory, 0o755)).unwrap();
    assert!(!new.may_change_site().unwrap());
    assert_eq!(new.give_site().unwrap().as_deref(), Some("y"));
    new.rmdir(&root(2), Ino::ROOT, b"d").unwrap();
    assert!(new.is_empty().unwrap() && !new.may_change_site().unwrap());
    assert_eq!(new.give_site().unwrap().as_deref(), Some("y"));
    assert!(new.set_site("z").is_err());
}

#[test]
fn an_index_that_contradicts_is_told() {
    let (c, home) = world();
    let (ino, _) = file(&c, home, "data", 10, 20);
    both_copies(&c, ino, 10, 30);
    let new = empty();
    adopt(&c, &new, "VA0001L9", 60, 10);
    let mut lies = listing(&c, "VB0001L9");
    lies[0].file.digest = Some(Digest([0xEE; 32]));
    let v = c.volume(&"VB0001L9".into()).unwrap().unwrap();
    new.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).unwrap();
    let said = new.adopt(&"VB0001L9".into(), t(60), &lies).unwrap();
    assert!(matches!(&said[..], [Adoption::Contradicts { why }] if why.contains("digest")), "{said:?}");
    sound(&new);
    assert_eq!(new.inode(ino).unwrap().file.unwrap().copies, [CopyNo(1)]);
}

/// The catalogue comes from a backup; since then one volume was emptied onto another and has a new label and new files.
#[test]
fn what_was_moved_after_a_backup_is_found_where_it_lies_now() {
    let (c, home) = world();
    let (ino, object) = file(&c, home, "data", 1000, 20);
    both_copies(&c, ino, 1000, 30);
    c.release_object(ino, Version(1), object, &stamp(1000, 20)).unwrap();
    let backup = empty();
    for volume in ["VA0001L9", "VB0001L9"] {
        adopt(&c, &backup, volume, 31, 10);
    }
    c.update_volume(&"VA0001L9".into(), &mut |v| v.state = VolumeState::Repacking).unwrap();
    let moved = record(&c, "VA0002L9", 40, vec![segment(ino, Version(1), 1, 1000, (0, 1000), 0)]);
    assert_eq!(moved, [RecordOutcome::Counted]);
    let fresh = Volume { uuid: "newer".into(), ..crate::common::volume("VA0001L9", "pool-a") };
    c.label_volume(&"VA0001L9".into(), &fresh).unwrap();
    let (late, _) = file(&c, home, "late", 10, 50);
    record(&c, "VA0001L9", 51, vec![segment(late, Version(1), 1, 10, (0, 10), 0)]);

    let v = c.volume(&"VA0001L9".into()).unwrap().unwrap();
    backup
        .begin_adoption(&Volume { written: 0, files: 0, ..v })
        .expect_err("its files are not known elsewhere yet");
    adopt(&c, &backup, "VA0002L9", 60, 10);
    sound(&backup);
    assert_eq!(backup.volume(&"VA0001L9".into()).unwrap().unwrap().live_files, 0);
    adopt(&c, &backup, "VA0001L9", 60, 10);
    sound(&backup);
    let volumes = |ino, copy| -> Vec<Barcode> {
        let found =
            backup.version_copies(ino, Version(1)).unwrap().into_iter().find(|c| c.copy == CopyNo(copy));
        found.into_iter().flat_map(|c| c.segments).map(|s| s.volume).collect()
    };
    assert_eq!([volumes(ino, 1), volumes(ino, 2)], [["VA0002L9".into()], ["VB0001L9".into()]]);
    assert_eq!(volumes(late, 1), ["VA0001L9".into()]);
    // An older index that still lists what was moved changes nothing.
    assert_eq!(backup.inode(ino).unwrap().file.unwrap().copies.len(), 2);
}

/// The catalogue comes from a backup; since then a deleted file was restored, and the indexes of its volumes tell of it.
#[test]
fn what_was_restored_after_a_backup_comes_back_and_what_the_backup_needs_stays() {
    for deleted_before in [true, false] {
        let history = || {
            let (c, home) = world();
            let (ino, object) = file(&c, home, "data", 1000, 20);
            both_copies(&c, ino, 1000, 30);
            c.release_object(ino, Version(1), object, &stamp(1000, 20)).unwrap();
            (c, home, ino)
        };
        let delete = |c: &Catalog, home| c.unlink(&user(7, 40), home, b"data", &|_| false).unwrap();
        let ((c, home, ino), (backup, ..)) = (history(), history());
        backup.skip_numbers(t(9_000)).unwrap();
        delete(&c, home);
        if deleted_before {
            delete(&backup, home);
        }
        let back = c.undelete(&root(50), (ino, Version(1)), (home, b"back")).unwrap().attr.ino;
        for volume in ["VA0001L9", "VB0001L9"] {
            adopt(&c, &backup, volume, 60, 10);
            sound(&backup);
            assert_eq!(backup.volume(&volume.into()).unwrap().unwrap().live_files, 1);
        }
        let (path, is) =
            if deleted_before { (b"/home/back".as_slice(), back) } else { (b"/home/data".as_slice(), ino) };
        let inode = backup.resolve(&root(1), path, false).unwrap();
        assert_eq!((inode.attr.ino, inode.attr.size), (is, 1000));
        assert_eq!(inode.file.unwrap().copies, [CopyNo(1), CopyNo(2)]);
        assert_eq!(backup.ended_versions(b"/", None, 10).unwrap().found, []);
        let again = adopt(&c, &backup, "VA0001L9", 60, 10);
        assert!(again.iter().all(|a| *a == Adoption::Known), "{again:?}");
        sound(&backup);
    }
}

#[test]
fn a_newer_version_on_tape_takes_the_place_of_one_whose_object_is_gone_and_of_no_other() {
    let (c, home) = world();
    let (ino, object) = file(&c, home, "data", 1000, 20);
    let backup = |gone: bool| {
        let (b, home) = world();
        let (same, object) = file(&b, home, "data", 1000, 20);
        assert_eq!(same, ino);
        both_copies(&b, ino, 1000, 30);
        let v = c.volume(&"VA0002L9".into()).unwrap().unwrap();
        b.begin_adoption(&Volume { written: 0, files: 0, ..v }).unwrap();
        let files = listing(&c, "VA0002L9");
        let said = b.adopt_beside(&"VA0002L9".into(), t(60), &files, &|o| gone && o == object).unwrap();
        sound(&b);
        let inode = b.inode(ino).unwrap();
        (said, inode.attr.size, inode.file.unwrap())
    };
    both_copies(&c, ino, 1000, 30);
    c.observe(&root(40), ino, object, &stamp(2000, 40), true, kv::Durability::Relaxed).unwrap();
    record(&c, "VA0002L9", 50, vec![segment(ino, Version(2), 1, 2000, (0, 2000), 0)]);
    let (said, size, file) = backup(true);
    assert_eq!((said, size, file.version), (vec![Adoption::Live], 2000, Version(2)));
    assert_eq!((file.object, file.copies), (None, vec![CopyNo(1)]));
    let (said, size, file) = backup(false);
    assert!(matches!(&said[..], [Adoption::Contradicts { .. }]), "{said:?}");
    assert_eq!((size, file.version), (1000, Version(1)));
}

#[derive(Clone, Debug)]
enum Act {
    Make(u8, u8),
    Change(u8),
    Copy(u8, u8),
    Rename(u8, u8),
    Delete(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0u8..3, 0u8..6).prop_map(|(d, n)| Act::Make(d, n)),
        (0u8..12).prop_map(Act::Change),
        (0u8..12, 1u8..3).prop_map(|(f, c)| Act::Copy(f, c)),
        (0u8..12, 0u8..6).prop_map(|(f, n)| Act::Rename(f, n)),
        (0u8..12).prop_map(Act::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever happened, the indexes of all volumes, in any order and cut anywhere, make a sound catalogue that has
    /// every live copy.
    #[test]
    fn any_history_comes_back(acts in prop::collection::vec(act(), 1..60), flip: bool, at_once in 1usize..9) {
        let (c, home) = world();
        let mut dirs = vec![Ino::ROOT, home];
        dirs.push(c.create(&user(7, 11), home, b"sub", &New::node(FileKind::Directory, 0o755)).unwrap().attr.ino);
        let mut files: Vec<(Ino, ObjectId, Ino, String)> = Vec::new();
        for (now, act) in (100i64..).step_by(10).zip(acts) {
            let pick = |n: u8| if files.is_empty() { None } else { Some(usize::from(n) % files.len()) };
            match act {
                Act::Make(d, n) => {
                    let (dir, name) = (dirs[usize::from(d)], format!("f{n}"));
                    if c.lookup(dir, name.as_bytes()).is_err() {
                        let (ino, object) = file(&c, dir, &name, 10 + now as u64, now);
                        files.push((ino, object, dir, name));
                    }
                }
                Act::Change(n) => if let Some(at) = pick(n) {
                    let (ino, object, ..) = files[at];
                    c.observe(&root(now), ino, object, &stamp(10 + now as u64, now), true,
                        kv::Durability::Relaxed).unwrap();
                },
                Act::Copy(n, copy) => if let Some(at) = pick(n) {
                    let inode = c.inode(files[at].0).unwrap();
                    let (size, version) = (inode.attr.size, inode.file.unwrap().version);
                    let volume = ["VA0001L9", "VB0001L9"][usize::from(copy) - 1];
                    record(&c, volume, now, vec![segment(files[at].0, version, copy, size, (0, size), 0)]);
                },
                Act::Rename(n, to) => if let Some(at) = pick(n) {
                    let (_, _, dir, name) = files[at].clone();
                    let to = format!("f{to}");
                    if c.lookup(dir, to.as_bytes()).is_err() {
                        c.rename(&user(0, now), (dir, name.as_bytes()), (dir, to.as_bytes()),
                            RenameMode::Replace, &|_| false).unwrap();
                        files[at].3 = to;
                    }
                },
                Act::Delete(n) => if let Some(at) = pick(n) {
                    let (_, _, dir, name) = files.swap_remove(at);
                    c.unlink(&user(0, now), dir, name.as_bytes(), &|_| false).unwrap();
                },
            }
        }
        let new = empty();
        let mut volumes = ["VA0001L9", "VB0001L9", "VA0002L9"];
        if flip { volumes.reverse(); }
        for v in volumes {
            adopt(&c, &new, v, 10_000, at_once);
            let findings = check::verify(&new);
            prop_assert!(findings.is_empty(), "{findings:#?}");
        }
        for (ino, ..) in files {
            let was = c.inode(ino).unwrap();
            let copies = was.file.as_ref().unwrap().copies.clone();
            if copies.is_empty() { continue }
            let is = new.inode(ino).unwrap();
            prop_assert_eq!(&is.file.as_ref().unwrap().copies, &copies);
            prop_assert_eq!(is.file.unwrap().digest, was.file.unwrap().digest);
            prop_assert_eq!((is.attr.size, is.attr.uid, is.attr.mode), (was.attr.size, was.attr.uid, was.attr.mode));
        }
    }
}
