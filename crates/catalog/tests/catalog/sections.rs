//! What sections tell that were written behind the newest index of their volume: of each file by itself, and of directories
//! only as far as they were written too.

use crate::common::listing::empty;
use crate::common::{class, memory, record, root, segment, stamp, t};
use catalog::{Adoption, Catalog, ListedDir, ListedFile, New, RecordOutcome, check};
use types::*;

const VOLUME: &str = "VA0001L9";

fn sound(c: &Catalog) {
    let findings = check::verify(c);
    assert!(findings.is_empty(), "{findings:#?}");
}

fn dir(c: &Catalog, parent: Ino, name: &str, now: i64) -> Ino {
    let new = New::node(FileKind::Directory, 0o751);
    c.create(&root(now), parent, name.as_bytes(), &new).unwrap().attr.ino
}

fn file(c: &Catalog, parent: Ino, name: &str, now: i64) -> Ino {
    let object = ObjectId(c.alloc_objects(1).unwrap().start);
    let ino = c.create(&root(now), parent, name.as_bytes(), &New::file(0o640, object)).unwrap().attr.ino;
    c.observe(&root(now), ino, object, &stamp(10, now), true, kv::Durability::Relaxed).unwrap();
    ino
}

/// The first copy of a node as the list of a section has it.
fn told(c: &Catalog, ino: Ino, uid: u64, now: i64) -> TapeFile {
    let state = c.archived(ino).unwrap().unwrap();
    let size = c.inode(ino).unwrap().file.map_or(0, |_| 10);
    let made = segment(ino, state.version, 1, size, (0, size), uid);
    c.tape_file(&made, t(now)).unwrap()
}

/// A file of a section as the archive service enters it.
fn listed(section: u64, file: &TapeFile) -> ListedFile {
    let plain = |name: &str| ListedDir { name: name.to_owned(), created: t(section as i64), facts: None };
    let path = String::from_utf8(file.path.clone()).unwrap();
    let (dirs, name): (Vec<_>, _) = match file.kind() {
        Some(FileKind::Directory) => {
            (path.split('/').filter(|name| !name.is_empty()).map(plain).collect(), Catalog::dir_entry(file))
        }
        _ => (vec![plain(&format!("~section-{section:010}"))], file.uid.to_string()),
    };
    ListedFile { dirs: dirs.into(), name, file: file.clone() }
}

/// An empty catalogue that begins to take a volume.
fn lost() -> Catalog {
    let new = empty();
    new.begin_adoption(&Volume {
        written: 0,
        files: 0,
        next_uid: 2,
        ..crate::common::volume(VOLUME, "pool-a")
    })
    .unwrap();
    new
}

fn attr(c: &Catalog, path: &str) -> Attr {
    c.resolve(&root(1), path.as_bytes(), false).unwrap().attr
}

#[test]
fn a_directory_gets_its_name_back_where_a_file_had_it_before() {
    let c = memory().catalog;
    let a = dir(&c, Ino::ROOT, "a", 10);
    let before = file(&c, a, "b", 11);
    let of_index = ListedFile { name: "b".into(), ..listed(1, &told(&c, before, 2, 12)) };
    let of_index = ListedFile { dirs: listed(1, &told(&c, a, 3, 12)).dirs, ..of_index };
    c.unlink(&root(13), a, b"b", &|_| false).unwrap();
    let b = dir(&c, a, "b", 14);
    let after = file(&c, b, "c", 15);
    let of_sections = [told(&c, b, 4, 16), told(&c, after, 5, 16)].map(|file| listed(2, &file));

    let new = lost();
    let dead = TapeFile { live: false, ..of_index.file.clone() };
    new.adopt(&VOLUME.into(), t(12), &[ListedFile { file: dead, ..of_index }]).unwrap();
    for again in [false, true] {
        let done = new.adopt(&VOLUME.into(), t(16), &of_sections).unwrap();
        let expected = if again { Adoption::Known } else { Adoption::Live };
        assert_eq!(done, [expected.clone(), expected]);
        sound(&new);
    }
    assert_eq!((attr(&new, "/a/b").ino, attr(&new, "/a/b").mode), (b, 0o751));
    assert_eq!(attr(&new, "/a/b/c").ino, after);
}

#[test]
fn a_directory_that_two_sections_tell_of_is_entered_once() {
    let c = memory().catalog;
    let a = dir(&c, Ino::ROOT, "a", 10);
    let both = [told(&c, a, 2, 12), told(&c, a, 3, 13)].map(|file| listed(1, &file));
    let new = lost();
    assert_eq!(new.adopt(&VOLUME.into(), t(13), &both).unwrap(), [Adoption::Live, Adoption::Live]);
    sound(&new);
    assert_eq!(new.adopt(&VOLUME.into(), t(13), &both).unwrap(), [Adoption::Known, Adoption::Known]);
    assert_eq!(new.volume(&VOLUME.into()).unwrap().unwrap().live_files, 1, "the later one counts");
    assert_eq!(attr(&new, "/a").ino, a);
}

#[test]
fn a_class_that_changes_meanwhile_displaces_no_directory() {
    let c = memory().catalog;
    let a = dir(&c, Ino::ROOT, "a", 10);
    let inside = file(&c, a, "f", 11);
    let new = lost();
    new.adopt(&VOLUME.into(), t(12), &[listed(1, &told(&c, inside, 2, 12))]).unwrap();
    new.put_class(&class("default", &["pool-b", "pool-a"])).unwrap();
    while new.refresh_classes(100, t(20)).unwrap() {}
    assert_eq!(
        new.adopt(&VOLUME.into(), t(13), &[listed(2, &told(&c, a, 3, 13))]).unwrap(),
        [Adoption::Live]
    );
    sound(&new);
    assert_eq!((attr(&new, "/a").ino, attr(&new, "/a").mode), (a, 0o751));
    assert_eq!(attr(&new, "/a/f").ino, inside);
}

#[test]
fn what_is_left_of_a_removed_node_follows_its_class() {
    let c = memory().catalog;
    let a = dir(&c, Ino::ROOT, "a", 10);
    for (copy, volume) in [(1, VOLUME), (2, "VB0001L9")] {
        let made = segment(a, Version(1), copy, 0, (0, 0), 0);
        assert_eq!(
            record(&c, volume, 20, vec![catalog::NewSegment { digest: None, ..made }]),
            [RecordOutcome::Counted]
        );
    }
    c.rmdir(&root(30), Ino::ROOT, b"a").unwrap();
    let waits = |pool: &str| c.pool_backlog(&pool.into()).unwrap().files;
    assert_eq!((waits("pool-a"), waits("pool-b")), (1, 1), "tapes are to tell that it is gone");
    c.put_class(&class("default", &["pool-a"])).unwrap();
    while c.refresh_classes(1, t(40)).unwrap() {}
    sound(&c);
    assert_eq!((waits("pool-a"), waits("pool-b")), (1, 0), "no other pool is asked for it");
}
