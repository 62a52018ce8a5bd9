//! Words on files: what tapes tell of a file beside its data, and when it goes there.

use crate::common::listing::{empty, listing};
use crate::common::{memory, record, root, segment, stamp, t, user};
use catalog::{Candidate, Catalog, ListedFile, New, NewSegment, RecordOutcome, check};
use types::*;

fn sound(c: &Catalog) {
    let findings = check::verify(c);
    assert!(findings.is_empty(), "{findings:#?}");
}

fn file(c: &Catalog, name: &str, now: i64) -> (Ino, ObjectId) {
    let object = ObjectId(c.alloc_objects(1).unwrap().start);
    let ino =
        c.create(&user(7, now), Ino::ROOT, name.as_bytes(), &New::file(0o640, object)).unwrap().attr.ino;
    c.observe(&root(now), ino, object, &stamp(10, now), true, kv::Durability::Relaxed).unwrap();
    (ino, object)
}

fn world() -> Catalog {
    let c = memory().catalog;
    c.setattr(&root(5), Ino::ROOT, &SetAttr { mode: Some(0o777), ..SetAttr::default() }).unwrap();
    c
}

fn waiting(c: &Catalog) -> Vec<Candidate> {
    c.candidates(t(1 << 40), None, 100).unwrap().found
}

/// The first copies of what waits.
fn write(c: &Catalog, volume: &str, now: i64) {
    let of = waiting(c).into_iter().filter(|w| w.missing.iter().any(|(n, _)| n.0 == 1));
    let made = of.map(|w| {
        let made = segment(w.ino, w.version, 1, w.size, (0, w.size), 0);
        NewSegment { digest: made.digest.filter(|_| !w.dataless), ..made }
    });
    let done = record(c, volume, now, made.collect());
    assert!(done.iter().all(|d| *d == RecordOutcome::Counted), "{done:?}");
}

fn rename(c: &Catalog, from: &str, to: &str, now: i64) {
    let (from, to) = ((Ino::ROOT, from.as_bytes()), (Ino::ROOT, to.as_bytes()));
    c.rename(&root(now), from, to, RenameMode::NoReplace, &|_| false).unwrap();
}

fn begin(from: &Catalog, to: &Catalog, barcode: &str) {
    let v = from.volume(&barcode.into()).unwrap().unwrap();
    to.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).unwrap();
}

fn mode(c: &Catalog, ino: Ino, mode: u32, now: i64) {
    c.setattr(&root(now), ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
}

#[test]
fn what_changes_again_and_again_goes_to_tape_when_its_first_change_is_due() {
    let c = world();
    let (ino, _) = file(&c, "a", 20);
    let dir =
        c.create(&user(7, 20), Ino::ROOT, b"d", &New::node(FileKind::Directory, 0o755)).unwrap().attr.ino;
    for (copy, volume) in [(1, "VA0001L9"), (2, "VB0001L9")] {
        for (ino, size) in [(ino, 10), (dir, 0)] {
            let made = segment(ino, Version(1), copy, size, (0, size), 0);
            let made = NewSegment { digest: made.digest.filter(|_| size > 0), ..made };
            assert_eq!(record(&c, volume, 30, vec![made]), [RecordOutcome::Counted]);
        }
    }
    let due = |ino: Ino| waiting(&c).iter().find(|w| w.ino == ino).map(|w| w.due.secs);
    assert_eq!((due(ino), due(ino.word()), due(dir)), (None, None, None));
    for now in [100, 105, 109, 120] {
        mode(&c, ino, 0o600 + now as u32 % 8, now);
        mode(&c, dir, 0o700 + now as u32 % 8, now);
        assert_eq!((due(ino), due(ino.word()), due(dir)), (None, Some(110), Some(110)), "{now}");
    }
    sound(&c);
}

/// The time at which content changed is that of the content that came back, whatever else a word says.
#[test]
fn a_word_beside_content_that_is_lost_tells_no_time_of_that() {
    let c = world();
    let (ino, object) = file(&c, "a", 20);
    write(&c, "VA0001L9", 30);
    let old = listing(&c, "VA0001L9");
    rename(&c, "a", "b", 39);
    c.observe(&root(40), ino, object, &stamp(99, 40), true, kv::Durability::Relaxed).unwrap();
    mode(&c, ino, 0o604, 42);
    let word = waiting(&c).into_iter().find(|w| w.ino == ino.word()).expect("tapes tell of it");
    let made = NewSegment { digest: None, ..segment(word.ino, word.version, 1, 0, (0, 0), 0) };
    assert_eq!(record(&c, "VA0002L9", 50, vec![made]), [RecordOutcome::Counted]);
    let late = listing(&c, "VA0002L9");
    let mut order: [(&str, &[ListedFile]); 2] = [("VA0001L9", &old), ("VA0002L9", &late)];
    for _ in 0..2 {
        let new = empty();
        for (volume, files) in order {
            begin(&c, &new, volume);
            new.adopt(&volume.into(), t(60), files).unwrap();
            sound(&new);
        }
        let found = new.resolve(&root(1), b"/b", false).unwrap().attr;
        assert_eq!((found.ino, found.size, found.mode, found.mtime), (ino, 10, 0o604, t(20)), "{order:?}");
        order.reverse();
    }
}

/// A backup is older than a removal of which tapes tell; but if the file is on disk, it was not removed.
#[test]
fn a_file_that_is_on_disk_was_not_removed_whatever_tapes_say() {
    let begun = || {
        let c = world();
        let (ino, _) = file(&c, "a", 20);
        write(&c, "VA0001L9", 30);
        (c, ino)
    };
    let (later, ino) = begun();
    later.unlink(&root(40), Ino::ROOT, b"a", &|_| false).unwrap();
    write(&later, "VA0002L9", 50);
    for (lost, left) in [(false, true), (true, false)] {
        let (backup, same) = begun();
        assert_eq!(same, ino);
        begin(&later, &backup, "VA0002L9");
        backup.adopt_beside(&"VA0002L9".into(), t(60), &listing(&later, "VA0002L9"), &|_| lost).unwrap();
        sound(&backup);
        assert_eq!(backup.inode(ino).is_ok(), left);
        let told =
            waiting(&backup).into_iter().filter(|w| w.ino == ino.word() && w.missing.len() == 2).count();
        assert_eq!(told, usize::from(left), "that it is there is to be told, by a later word");
        if left {
            write(&backup, "VA0001L9", 70);
            for flip in [false, true] {
                let new = empty();
                let mut order = [("VA0002L9", &later), ("VA0001L9", &backup)];
                if flip {
                    order.reverse();
                }
                for (volume, from) in order {
                    begin(from, &new, volume);
                    new.adopt(&volume.into(), t(80), &listing(from, volume)).unwrap();
                    sound(&new);
                }
                assert_eq!(new.path_of(ino).unwrap(), b"/a", "{flip}");
            }
        }
    }
}

/// It was never lost, whenever the other was written.
#[test]
fn a_file_that_is_on_disk_keeps_its_name() {
    let later = world();
    let (first, _) = file(&later, "x", 20);
    let (second, _) = file(&later, "a", 20);
    write(&later, "VA0001L9", 90);
    let of_second: Vec<_> =
        listing(&later, "VA0001L9").into_iter().filter(|l| l.file.ino == second).collect();
    let backup = world();
    let (here, _) = file(&backup, "a", 20);
    assert_eq!(here, first, "another file than the one on tape");
    write(&backup, "VA0002L9", 30);
    begin(&later, &backup, "VA0001L9");
    backup.adopt_beside(&"VA0001L9".into(), t(95), &of_second, &|_| false).unwrap();
    sound(&backup);
    assert_eq!(backup.path_of(here).unwrap(), b"/a");
    assert_eq!(backup.path_of(second).unwrap(), format!("/lost+found/{second}~a").as_bytes());
}

/// The volume with the word is missing: it is written again, and what changes then is later than what that volume says.
#[test]
fn a_word_of_which_only_the_data_tells_is_written_again() {
    let c = world();
    let (ino, object) = file(&c, "a", 20);
    write(&c, "VA0001L9", 30);
    rename(&c, "a", "b", 40);
    write(&c, "VA0002L9", 41);
    let word = listing(&c, "VA0002L9");
    c.observe(&root(50), ino, object, &stamp(99, 50), true, kv::Durability::Relaxed).unwrap();
    let made = segment(ino, Version(2), 1, 99, (0, 99), 0);
    assert_eq!(record(&c, "VA0001L9", 60, vec![made]), [RecordOutcome::Counted]);
    let new = empty();
    begin(&c, &new, "VA0001L9");
    new.adopt(&"VA0001L9".into(), t(60), &listing(&c, "VA0001L9")).unwrap();
    sound(&new);
    let told = |c: &Catalog| waiting(c).into_iter().find(|w| w.ino == ino.word()).map(|w| w.version);
    assert_eq!((new.path_of(ino).unwrap(), told(&new)), (b"/b".to_vec(), Some(Version(1))));
    rename(&new, "b", "c", 9_100);
    assert_eq!(told(&new), Some(Version(2)));
    begin(&c, &new, "VA0002L9");
    new.adopt(&"VA0002L9".into(), t(60), &word).unwrap();
    sound(&new);
    assert_eq!((new.path_of(ino).unwrap(), told(&new)), (b"/c".to_vec(), Some(Version(2))));
}

/// The one volume that said so got a new label, and then the one that told of what was removed.
#[test]
fn nothing_is_left_of_what_was_removed_once_no_tape_tells_of_it() {
    let c = world();
    c.put_volume(&crate::common::volume("VB0002L9", "pool-b")).unwrap();
    let (ino, _) = file(&c, "a", 20);
    c.set_class(ino, &"single".into(), t(21)).unwrap();
    let made = segment(ino, Version(1), 1, 10, (0, 10), 0);
    assert_eq!(record(&c, "VB0001L9", 30, vec![made]), [RecordOutcome::Counted]);
    c.unlink(&root(40), Ino::ROOT, b"a", &|_| false).unwrap();
    let word = waiting(&c).into_iter().find(|w| w.ino == ino.word()).expect("tapes are to tell so");
    let made = NewSegment { digest: None, ..segment(word.ino, word.version, 1, 0, (0, 0), 0) };
    assert_eq!(record(&c, "VB0002L9", 50, vec![made]), [RecordOutcome::Counted]);
    let relabel = |barcode: &str| {
        let fresh = Volume { uuid: "v".into(), ..crate::common::volume(barcode, "pool-b") };
        c.intend_label(&barcode.into(), "v").unwrap();
        c.label_volume(&barcode.into(), &fresh).unwrap();
        sound(&c);
    };
    relabel("VB0002L9");
    assert!(waiting(&c).iter().any(|w| w.ino == ino.word()), "it is to be told again");
    relabel("VB0001L9");
    assert_eq!((c.archived(ino.word()).unwrap(), c.versions(ino.word()).unwrap()), (None, vec![]));
    assert_eq!(c.versions(ino).unwrap(), vec![]);
}
