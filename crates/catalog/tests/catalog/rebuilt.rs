//! What a rebuild must get right where tapes are late, damaged, or were written just before something changed.

use crate::common::listing::{empty, listing};
use crate::common::{memory, record, root, segment, stamp, t, user};
use catalog::{Adoption, Catalog, ListedDir, ListedFile, New, NewSegment, RecordOutcome, check};
use types::*;

fn sound(c: &Catalog) {
    let findings = check::verify(c);
    assert!(findings.is_empty(), "{findings:#?}");
}

fn file(c: &Catalog, dir: Ino, name: &str, now: i64) -> (Ino, ObjectId) {
    let object = ObjectId(c.alloc_objects(1).unwrap().start);
    let ino = c.create(&user(7, now), dir, name.as_bytes(), &New::file(0o640, object)).unwrap().attr.ino;
    c.observe(&root(now), ino, object, &stamp(10, now), true, kv::Durability::Relaxed).unwrap();
    (ino, object)
}

fn dir(c: &Catalog, parent: Ino, name: &str, now: i64) -> Ino {
    let new = New::node(FileKind::Directory, 0o777);
    c.create(&root(now), parent, name.as_bytes(), &new).unwrap().attr.ino
}

fn rename(c: &Catalog, dir: Ino, from: &str, to: &str, now: i64) {
    let (from, to) = ((dir, from.as_bytes()), (dir, to.as_bytes()));
    c.rename(&root(now), from, to, RenameMode::NoReplace, &|_| false).unwrap();
}

fn world() -> (Catalog, Ino) {
    let c = memory().catalog;
    c.put_volume(&crate::common::volume("VB0002L9", "pool-b")).unwrap();
    c.setattr(&root(5), Ino::ROOT, &SetAttr { mode: Some(0o777), ..SetAttr::default() }).unwrap();
    let home = dir(&c, Ino::ROOT, "home", 10);
    (c, home)
}

/// What waits goes to a volume of each pool.
fn write_what_waits(c: &Catalog, volumes: [&str; 2], now: i64) {
    for (copy, volume) in (1u8..).zip(volumes) {
        let of = c.candidates(t(1 << 40), None, 1000).unwrap().found;
        let of = of.iter().filter(|w| w.missing.iter().any(|(n, _)| n.0 == copy));
        let made = of.map(|w| {
            let made = segment(w.ino, w.version, copy, w.size, (0, w.size), 0);
            NewSegment { digest: made.digest.filter(|_| !w.dataless), ..made }
        });
        let done = record(c, volume, now, made.collect());
        assert!(done.iter().all(|d| *d == RecordOutcome::Counted), "{done:?}");
    }
}

fn begin(from: &Catalog, to: &Catalog, barcode: &str) {
    let v = from.volume(&barcode.into()).unwrap().unwrap();
    to.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).unwrap();
}

fn take(from: &Catalog, to: &Catalog, barcode: &str, files: &[ListedFile]) {
    begin(from, to, barcode);
    to.adopt(&barcode.into(), t(60), files).unwrap();
    sound(to);
}

fn rebuild(from: &Catalog, volumes: &[&str]) -> Catalog {
    let new = empty();
    volumes.iter().for_each(|v| take(from, &new, v, &listing(from, v)));
    new
}

fn path(c: &Catalog, ino: Ino) -> String {
    String::from_utf8(c.path_of(ino).unwrap()).unwrap()
}

#[test]
fn a_file_that_was_removed_while_it_was_written_keeps_no_volume_out() {
    let (c, home) = world();
    let (ino, _) = file(&c, home, "a", 20);
    c.unlink(&root(25), home, b"a", &|_| false).unwrap();
    let done = record(&c, "VA0001L9", 30, vec![segment(ino, Version(1), 1, 10, (0, 10), 0)]);
    assert!(matches!(done[..], [RecordOutcome::Stale { .. }]), "{done:?}");
    let (other, _) = file(&c, home, "b", 40);
    write_what_waits(&c, ["VA0001L9", "VB0001L9"], 50);
    let new = rebuild(&c, &["VA0001L9"]);
    assert_eq!(path(&new, other), "/home/b");
    let ended = new.ended_versions(b"/", None, 9).unwrap().found;
    assert_eq!(ended.iter().map(|one| (one.ino, one.restorable)).collect::<Vec<_>>(), [(ino, true)]);
}

#[test]
fn a_directory_that_is_renamed_before_its_section_is_recorded_keeps_its_files() {
    let (c, home) = world();
    let (early, _) = file(&c, home, "a", 20);
    write_what_waits(&c, ["VA0002L9", "VB0002L9"], 21);
    let (late, _) = file(&c, home, "b", 22);
    let made = segment(late, Version(1), 1, 10, (0, 10), 2);
    let told = c.tape_file(&made, t(23)).unwrap();
    rename(&c, Ino::ROOT, "home", "house", 24);
    let done = record(&c, "VA0001L9", 30, vec![NewSegment { told: Some(Box::new(told)), ..made }]);
    assert_eq!(done, [RecordOutcome::Counted]);
    write_what_waits(&c, ["VA0002L9", "VB0002L9"], 31);
    for order in [["VA0001L9", "VA0002L9"], ["VA0002L9", "VA0001L9"]] {
        let new = rebuild(&c, &order);
        assert_eq!(
            (path(&new, early), path(&new, late)),
            ("/house/a".into(), "/house/b".into()),
            "{order:?}"
        );
    }
}

/// Sections that no index tells of know directories only by what they were called then.
#[test]
fn files_of_sections_lie_in_their_directory_whatever_it_is_called_by_now() {
    let (c, home) = world();
    let (ino, _) = file(&c, home, "a", 20);
    let told = |ino: Ino, uid: u64, now: i64| {
        let version = c.archived(ino).unwrap().unwrap().version;
        let size = c.inode(ino).unwrap().file.map_or(0, |_| 10);
        c.tape_file(&segment(ino, version, 1, size, (0, size), uid), t(now)).unwrap()
    };
    let listed = |at: &str, name: String, file: &TapeFile| {
        let at = ListedDir { name: at.to_owned(), created: t(1), facts: None };
        ListedFile { dirs: [at].into(), name, file: file.clone() }
    };
    let (before, data) = (told(home, 2, 21), told(ino, 3, 21));
    rename(&c, Ino::ROOT, "home", "house", 24);
    let after = told(home, 2, 25);
    let old = [
        listed("home", Catalog::dir_entry(&before), &before),
        listed("~section-0000000001", "3".into(), &data),
    ];
    let late = [listed("house", Catalog::dir_entry(&after), &after)];
    for flip in [false, true] {
        let mut order = [("VA0001L9", &old[..]), ("VA0002L9", &late[..])];
        if flip {
            order.reverse();
        }
        let new = empty();
        order.iter().for_each(|(v, files)| take(&c, &new, v, files));
        assert_eq!(path(&new, ino), "/house/a", "{flip}");
        assert_eq!(path(&new, home), "/house");
    }
}

#[test]
fn what_is_said_of_another_version_goes_to_no_section() {
    let (c, home) = world();
    let v = |ino: Ino| c.archived(ino).unwrap().unwrap().version;
    let made = segment(home, v(home), 1, 0, (0, 0), 2);
    assert_eq!(c.tape_file(&made, t(20)).unwrap().path, b"/home");
    rename(&c, Ino::ROOT, "home", "house", 24);
    let refused = c.tape_file(&made, t(25)).unwrap_err();
    assert!(refused.fs() == FsError::Stale && !refused.is_damage(), "{refused}");
    assert_eq!(c.tape_file(&NewSegment { version: v(home), ..made }, t(25)).unwrap().path, b"/house");
}

#[test]
fn what_becomes_of_an_open_file_without_a_name_does_not_bring_it_back() {
    let (c, home) = world();
    let (ino, _) = file(&c, home, "a", 20);
    write_what_waits(&c, ["VA0001L9", "VB0001L9"], 21);
    c.unlink(&root(25), home, b"a", &|_| true).unwrap();
    c.setattr(&root(26), ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    write_what_waits(&c, ["VA0002L9", "VB0002L9"], 31);
    sound(&c);
    let new = rebuild(&c, &["VA0001L9", "VA0002L9"]);
    new.inode(ino).expect_err("nobody could open it any more");
}

#[test]
fn set_id_bits_that_a_write_takes_away_are_not_back() {
    let (c, home) = world();
    let (ino, _) = file(&c, home, "a", 20);
    c.setattr(&root(20), ino, &SetAttr { mode: Some(0o4755), ..SetAttr::default() }).unwrap();
    write_what_waits(&c, ["VA0001L9", "VB0001L9"], 21);
    assert!(c.clear_set_id(ino, t(22)).unwrap());
    write_what_waits(&c, ["VA0002L9", "VB0002L9"], 31);
    let new = rebuild(&c, &["VA0001L9", "VA0002L9"]);
    assert_eq!(new.inode(ino).unwrap().attr.mode, 0o755);
}

/// The catalogue was rebuilt without some volumes, people went on, and then those volumes turn up.
#[test]
fn what_is_done_after_a_rebuild_is_later_than_what_volumes_say_that_come_late() {
    let (c, home) = world();
    let (moved, _) = file(&c, home, "m", 20);
    let (removed, _) = file(&c, home, "r", 20);
    let (content, object) = file(&c, home, "c", 20);
    let sub = dir(&c, home, "d", 20);
    write_what_waits(&c, ["VA0001L9", "VB0001L9"], 21);
    let old = listing(&c, "VA0001L9");
    for (now, name) in [(22, "m"), (23, "r"), (24, "d")] {
        rename(&c, home, name, &format!("{name}1"), now);
        rename(&c, home, &format!("{name}1"), &format!("{name}2"), now);
    }
    for size in [20, 30, 40] {
        c.observe(&root(25), content, object, &stamp(size, size as i64), true, kv::Durability::Relaxed)
            .unwrap();
    }
    write_what_waits(&c, ["VA0002L9", "VB0002L9"], 41);

    let new = empty();
    new.skip_numbers(t(1_700_000_000)).unwrap();
    take(&c, &new, "VA0001L9", &old);
    rename(&new, home, "m", "mine", 9_100);
    rename(&new, home, "d", "dir", 9_100);
    new.unlink(&root(9_101), home, b"r", &|_| false).unwrap();
    let empty = ObjectId(new.alloc_objects(1).unwrap().start);
    new.new_content(&root(9_102), content, empty, &stamp(0, 9_102)).unwrap();
    new.observe(&root(9_103), content, empty, &stamp(5, 9_103), true, kv::Durability::Relaxed).unwrap();
    // Its object is gone from disk, as after a purge.
    let gone = |_| true;
    for v in ["VA0002L9", "VB0001L9", "VB0002L9"] {
        begin(&c, &new, v);
        new.adopt_beside(&v.into(), t(60), &listing(&c, v), &gone).unwrap();
        sound(&new);
    }
    assert_eq!((path(&new, moved), path(&new, sub)), ("/home/mine".into(), "/home/dir".into()));
    new.inode(removed).expect_err("it was removed since");
    assert_eq!(new.inode(content).unwrap().attr.size, 5, "what was written since");
}

#[test]
fn numbers_that_tapes_tell_of_are_not_given_again_whatever_the_clock_said() {
    let (c, home) = world();
    c.skip_numbers(t(1 << 33)).unwrap();
    let far = dir(&c, home, "far", 20);
    let (ino, _) = file(&c, far, "a", 20);
    write_what_waits(&c, ["VA0001L9", "VB0001L9"], 21);
    let new = empty();
    // Some are in stock before.
    dir(&new, Ino::ROOT, "before", 70);
    take(&c, &new, "VA0001L9", &listing(&c, "VA0001L9"));
    let later = dir(&new, Ino::ROOT, "later", 71);
    assert!(later > ino && later > far, "{later}, on tape {ino} and {far}");
}

#[test]
fn what_cannot_be_is_named_and_keeps_nothing_else_out() {
    let (c, home) = world();
    let (ino, _) = file(&c, home, "a", 20);
    write_what_waits(&c, ["VA0001L9", "VB0001L9"], 21);
    let of = listing(&c, "VA0001L9").into_iter().find(|l| l.file.ino == ino).unwrap();
    let node = |mode: u32| TapeFile {
        mode,
        file_size: 0,
        segment_length: 0,
        extents: Vec::new(),
        digest: None,
        ..of.file.clone()
    };
    let with = |parent: u64, file: TapeFile| {
        let node = NodeFacts { parent: Ino(parent), ..file.node.clone() };
        TapeFile { node, ..file }
    };
    let named = |dir: u64| NodeFacts { names: vec![(Ino(dir), b"/x".to_vec())], ..NodeFacts::default() };
    let gone = NodeFacts { gone: true, ..NodeFacts::default() };
    let odd = [
        TapeFile { ino: Ino(0), ..of.file.clone() },
        TapeFile { ino: Ino(u64::MAX), ..of.file.clone() },
        TapeFile { ino: Ino(u64::MAX >> 1), ..of.file.clone() },
        TapeFile { ino: Ino(1 << 63), ..of.file.clone() },
        TapeFile { ino: Ino::ROOT.word(), ..of.file.clone() },
        TapeFile { ino: Ino::ROOT, version: Version(9), node: gone, ..node(0o040_755) },
        TapeFile { version: Version(0), ..of.file.clone() },
        TapeFile { version: Version(u32::MAX), ..of.file.clone() },
        TapeFile { node: NodeFacts { beside: Version(u32::MAX), ..NodeFacts::default() }, ..of.file.clone() },
        with(u64::MAX, of.file.clone()),
        with(u64::MAX, node(0o010_755)),
        with(ino.0, node(0o010_755)),
        with(ino.0, node(0o040_755)),
        TapeFile { node: named(ino.0), ..node(0o010_755) },
        TapeFile { node: named(1 << 63), ..node(0o010_755) },
    ];
    for odd in odd {
        let new = empty();
        begin(&c, &new, "VA0001L9");
        let (good, what) = (of.clone(), format!("{odd:?}"));
        let bad = ListedFile { name: "odd".into(), file: odd, ..of.clone() };
        let done = new.adopt(&"VA0001L9".into(), t(60), &[bad, good]).unwrap();
        assert!(matches!(&done[..], [Adoption::Contradicts { .. }, Adoption::Live]), "{what}: {done:?}");
        sound(&new);
        dir(&new, Ino::ROOT, "later", 70);
        sound(&new);
    }
    // Of a class that none can be the file has that of the root.
    for class in ["", "a b", "a/b"] {
        let new = empty();
        let odd = ListedFile { file: TapeFile { class: class.into(), ..of.file.clone() }, ..of.clone() };
        take(&c, &new, "VA0001L9", &[odd]);
        assert_eq!(new.class_of(ino).unwrap(), "default".into());
    }
}
