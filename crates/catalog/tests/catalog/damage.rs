//! Damaged values are named, and never a panic.

use crate::common::*;
use catalog::{Catalog, CatalogError, New, RecordOutcome, check};
use kv::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, MemoryEngine};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;
use types::*;

fn filled() -> (Arc<MemoryEngine>, Catalog) {
    let engine = Arc::new(MemoryEngine::new());
    let c = Catalog::open(engine.clone(), t(1)).expect("opens");
    c.put_pool(&Pool::new("p".into())).expect("pool");
    c.put_class(&class("default", &["p"])).expect("class");
    while c.refresh_classes(10, t(1)).expect("refresh") {}
    c.put_volume(&volume("V1", "p")).expect("volume");
    let x = c.create(&root(2), Ino::ROOT, b"x", &New::file(0o644, ObjectId(1))).expect("create").attr.ino;
    c.observe(&root(3), x, ObjectId(1), &stamp(10, 3), true, Durability::Relaxed).expect("observe");
    record(&c, "V1", 4, vec![segment(x, Version(1), 1, 10, (0, 10), 0)]);
    let link = New { target: Some(b"x".to_vec()), ..New::node(FileKind::Symlink, 0) };
    c.create(&root(5), Ino::ROOT, b"l", &link).expect("symlink");
    (engine, c)
}

fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) {
    engine.write_dyn(Durability::Relaxed, &mut |w| w.put(key, value)).expect("put");
}

fn all(engine: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    let read: Result<(), KvError> = engine.read_dyn(&mut |r| {
        r.scan(&[0], &[0xff], &mut |k, v| {
            pairs.push((k.to_vec(), v.to_vec()));
            ControlFlow::Continue(())
        })
    });
    read.expect("scan");
    pairs
}

#[test]
fn a_damaged_inode_is_named() {
    let (engine, c) = filled();
    let x = c.lookup(Ino::ROOT, b"x").expect("there").attr.ino;
    let mut key = vec![0x10];
    key.extend_from_slice(&x.0.to_be_bytes());
    key.push(0);
    put(&*engine, &key, &[1, 0]);
    match c.inode(x).expect_err("damaged") {
        CatalogError::Corrupt { what: "inode", id, .. } => assert_eq!(id, x.to_string()),
        other => panic!("{other}"),
    }
    assert!(!check::verify(&c).is_empty());
}

#[test]
fn a_damaged_record_keeps_out_its_own_file_only() {
    let (engine, c) = filled();
    c.put_pool(&Pool::new("q".into())).expect("pool");
    c.put_class(&class("default", &["p", "q"])).expect("class");
    while c.refresh_classes(10, t(1)).expect("refresh") {}
    c.put_volume(&volume("V2", "q")).expect("volume");
    let mut files = vec![c.lookup(Ino::ROOT, b"x").expect("there").attr.ino];
    for n in 2..9u8 {
        let object = ObjectId(u64::from(n));
        let made = c.create(&root(2), Ino::ROOT, &[b'x', n], &New::file(0o644, object)).expect("create");
        c.observe(&root(3), made.attr.ino, object, &stamp(10, 3), true, Durability::Relaxed)
            .expect("observe");
        files.push(made.attr.ino);
    }
    let bad = files[3];
    let mut key = vec![0x10];
    key.extend_from_slice(&bad.0.to_be_bytes());
    key.push(0);
    put(&*engine, &key, &[1, 0]);
    let waiting = c.candidates(t(99), None, 100).expect("list");
    assert_eq!(
        (waiting.found.len(), waiting.damaged.len(), waiting.damaged[0].0),
        (8, 1, bad),
        "and the link"
    );
    // copy 2 of "x", copy 1 of the others
    for (barcode, copy, of) in [("V2", 2, &files[..1]), ("V1", 1, &files[1..])] {
        let segments = of.iter().map(|f| segment(*f, Version(1), copy, 10, (0, 10), 0)).collect();
        for (file, outcome) in of.iter().zip(record(&c, barcode, 9, segments)) {
            match outcome {
                RecordOutcome::Damaged { why } => {
                    assert!(*file == bad && why.contains(&bad.to_string()), "{why}")
                }
                other => assert!(*file != bad && other == RecordOutcome::Counted, "{file}: {other:?}"),
            }
        }
    }
    let purgeable = c.purge_candidates(None, 100).expect("list");
    assert_eq!(purgeable.found.iter().map(|p| p.ino).collect::<Vec<_>>(), files[..1]);
    assert_eq!(c.volume_files(&"V1".into(), 0, 100).expect("walk").len(), 7);
    // A damaged volume is no file's fault.
    put(&*engine, b"\x30\x00V1", &[1, 0]);
    let v2 = c.volume(&"V2".into()).expect("read").expect("there");
    let append = catalog::VolumeAppend {
        volume: "V1".into(),
        append_block: 1000,
        next_uid: v2.next_uid,
        vcr: 9,
        now: t(9),
        section: None,
    };
    let part = segment(files[1], Version(1), 1, 10, (0, 10), 99);
    assert!(c.record_copies(&append, &[part]).expect_err("damaged").is_damage());
}

#[test]
fn a_damaged_inode_stops_neither_listing_nor_classes_nor_check() {
    let (engine, c) = filled();
    let x = c.lookup(Ino::ROOT, b"x").expect("there").attr.ino;
    let later =
        c.create(&root(6), Ino::ROOT, b"y", &New::node(FileKind::Fifo, 0o644)).expect("create").attr.ino;
    let mut key = vec![0x10];
    key.extend_from_slice(&x.0.to_be_bytes());
    key.push(0);
    put(&*engine, &key, &[1, 0]);
    let listed = c.readdir_plus(Ino::ROOT, 0, 10).expect("lists").found;
    assert_eq!(listed.len(), 3);
    for (entry, inode) in listed {
        let damaged = inode.is_err_and(|e| e.is_damage() && e.fs() == FsError::Io);
        assert_eq!(damaged, entry.ino == x, "{entry:?}");
    }
    for limit in [1, 100] {
        let (mut after, mut seen, mut damaged) = (Ino(0), Vec::new(), Vec::new());
        loop {
            let page = c.for_each_inode(after, limit).expect("inodes");
            let read = page.found.iter().map(|i| i.attr.ino).chain(page.damaged.iter().map(|d| d.0));
            let Some(last) = read.max() else { break };
            after = last;
            seen.extend(page.found.iter().map(|i| i.attr.ino));
            damaged.extend(page.damaged.iter().map(|d| d.0));
        }
        assert_eq!((seen.len(), damaged), (3, vec![x]), "pages of {limit}");
        assert!(seen.contains(&later));
    }
    c.put_pool(&Pool::new("q".into())).expect("pool");
    c.put_class(&class("default", &["p", "q"])).expect("class");
    while c.refresh_classes(1, t(7)).expect("goes on behind it") {}
    assert!(check::verify(&c).iter().any(|f| f.contains(&format!("inode of {x} is damaged"))));
}

#[test]
fn a_damaged_key_of_a_tree_to_be_dropped_is_named() {
    for damaged in [&[0x32, 0, 0, 0][..], &[0x32, 0, 0, 0, 0, 0, 0, 0, 7, 1]] {
        let (engine, c) = filled();
        drop(c);
        put(&*engine, damaged, b"V9");
        match Catalog::open(engine, t(9)).err().expect("refused") {
            CatalogError::Corrupt { what: "tree to be dropped", id, .. } => assert_eq!(id, "V9"),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_damaged_entry_ends_no_listing_and_is_listed_by_its_name() {
    let (engine, c) = filled();
    let fifo = New::node(FileKind::Fifo, 0o644);
    for n in 0..9u8 {
        c.create(&root(6), Ino::ROOT, &[b'f', b'0' + n], &fifo).expect("create");
    }
    let before = c.readdir(Ino::ROOT, 0, 100).expect("lists").found;
    let key = |cookie: u64| [&[0x12][..], &Ino::ROOT.0.to_be_bytes(), &cookie.to_be_bytes()].concat();
    let name = |name: &[u8]| [&[0x11][..], &Ino::ROOT.0.to_be_bytes(), name].concat();
    let damaged = [1, 2, 5, before.len() - 1];
    let values = all(&*engine);
    for n in damaged {
        put(&*engine, &key(before[n].cookie), if n == 1 { &[] } else { &[1, 99, 0] });
    }
    // Of one nothing is left that could name it, of another only the entry is whole.
    let (lost, nameless) = (before[5].cookie, before[4].cookie);
    put(&*engine, &name(&before[5].name), &[7]);
    put(&*engine, &name(&before[4].name), &[7]);
    let expected: Vec<u64> = before.iter().map(|e| e.cookie).filter(|cookie| *cookie != lost).collect();
    assert!(expected.contains(&nameless));
    for limit in [1, 2, 3, 5, 100] {
        let (mut after, mut seen, mut named) = (0, Vec::new(), 0);
        loop {
            let page = c.readdir_plus(Ino::ROOT, after, limit).expect("goes on behind it");
            assert!(page.damaged.iter().all(|(dir, e)| *dir == Ino::ROOT && e.is_damage()));
            named += page.damaged.len();
            let Some((last, _)) = page.found.last() else { break };
            after = last.cookie;
            seen.extend(page.found.into_iter().map(|(e, inode)| (e, inode.is_ok())));
        }
        let cookies: Vec<u64> = seen.iter().map(|(e, _)| e.cookie).collect();
        assert_eq!(cookies, expected, "pages of {limit}");
        assert!(seen.iter().all(|(e, whole)| before.contains(e) && *whole), "{seen:?}");
        assert_eq!(named, damaged.len(), "pages of {limit}");
    }
    assert!(check::verify(&c).iter().any(|f| f.contains("directory entry")));
    values.iter().for_each(|(k, v)| put(&*engine, k, v));
    assert_eq!(check::verify(&c), Vec::<String>::new());
}

/// What is left of the list, and who is named.
fn listed(c: &Catalog) -> (Vec<String>, Vec<String>) {
    let all = c.all_volumes().expect("the list ends");
    let found = all.found.into_iter().map(|v| v.barcode.to_string()).collect();
    let damaged = all.damaged.into_iter().map(|(b, _)| b.to_string()).collect();
    (found, damaged)
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn a_damaged_volume_keeps_out_itself_only() {
    let (engine, c) = filled();
    for other in ["V0", "V2"] {
        c.put_volume(&volume(other, "p")).expect("volume");
    }
    let good = all(&*engine).into_iter().find(|(k, _)| k == b"\x30\x00V1").expect("its record");
    let other = all(&*engine).into_iter().find(|(k, _)| k == b"\x30\x00V2").expect("its record");
    for value in [&[3][..], &[3, 9, b'V'], &[], &[0, 1], &other.1] {
        put(&*engine, &good.0, value);
        assert_eq!(listed(&c), (names(&["V0", "V2"]), names(&["V1"])), "{value:02x?}");
        assert!(c.volume(&"V1".into()).is_err() || *value == other.1[..]);
        assert!(check::verify(&c).iter().any(|f| f.contains("volume V1 is out of use")), "{value:02x?}");
        let x = c.lookup(Ino::ROOT, b"x").expect("there").attr.ino;
        assert_eq!(c.versions(x).expect("its copy is known").len(), 1);
        c.put_volume(&volume("V0", "p")).expect("others are changed");
    }
    put(&*engine, &good.0, &[200]);
    assert!(c.volumes().is_err(), "a newer release's record is no damage");
    put(&*engine, &good.0, &good.1);
    assert_eq!(listed(&c), (names(&["V0", "V1", "V2"]), names(&[])));
    put(&*engine, b"\x30\x01V2", &(-5i64).to_le_bytes());
    assert_eq!(listed(&c), (names(&["V0", "V1"]), names(&["V2"])));
}

#[test]
fn a_copy_under_another_number_is_named() {
    let (engine, c) = filled();
    let x = c.lookup(Ino::ROOT, b"x").expect("there").attr.ino;
    let pairs = all(&*engine);
    let (key, value) = pairs.iter().rfind(|(k, _)| k[0] == 0x17 && k.len() == 14).expect("copy 1");
    // in the value: the number is its first field; in the key: its last byte
    let changes = [0, 2, 33, 255].map(|n| {
        let (mut other_key, mut other) = (key.clone(), value.clone());
        (other[1], other_key[13]) = (n, n);
        [(key.clone(), other), (other_key, value.clone())]
    });
    for (damaged, content) in changes.into_iter().flatten() {
        engine.write_dyn(Durability::Relaxed, &mut |w| w.delete(key)).expect("delete");
        put(&*engine, &damaged, &content);
        match c.versions(x).expect_err("damaged") {
            CatalogError::Corrupt { what: "copy", id, .. } => assert_eq!(id, format!("{x} version 1")),
            other => panic!("{other}"),
        }
        assert!(!check::verify(&c).is_empty(), "{damaged:02x?}");
        engine.write_dyn(Durability::Relaxed, &mut |w| w.delete(&damaged)).expect("delete");
        put(&*engine, key, value);
    }
}

#[test]
fn a_directory_below_itself_is_named_and_no_walk_is_endless() {
    let (engine, c) = filled();
    let pairs = all(&*engine);
    let (file, _) = pairs.iter().find(|(k, _)| k[0] == 0x31).expect("the tree of V1");
    let mut key = file[..17].to_vec();
    key.extend_from_slice(b"ring");
    // version 1, a directory, its number: that of the root, which holds it; created at second 0
    put(&*engine, &key, &[1, 0, 0, 0, 0]);
    let walk = c.walk_volume(&"V1".into(), &mut |_| ControlFlow::Continue(()));
    match walk.expect_err("damaged") {
        CatalogError::Corrupt { what: "volume tree", id, .. } => assert_eq!(id, "ring"),
        other => panic!("{other}"),
    }
    let files: Vec<_> = c.files_on(&"V1".into()).expect("there").take(1000).collect();
    assert_eq!(files.iter().filter(|f| f.is_err()).count(), 1, "the list ends with the error");
    assert!(files.last().is_some_and(Result::is_err));
    assert!(check::verify(&c).iter().any(|f| f.contains("ring")));
}

#[test]
fn a_newer_catalogue_is_refused() {
    let (engine, c) = filled();
    drop(c);
    put(&*engine, &[0x01, 0x00], &[9, 0, 0]);
    let e = Catalog::open(engine, t(9)).err().expect("refused").to_string();
    assert!(e.contains("newer release"), "{e}");
}

#[test]
fn the_self_check_finds_each_missing_key() {
    let (engine, _) = filled();
    for (key, value) in all(&*engine) {
        // meta data and the empty counters of sums that are zero are not findings; neither is a first access to a pool
        let zero = value == 0i64.to_le_bytes();
        if matches!(key[0], 0x01 | 0x41) || zero || (key[0] == 0x10 && key[9] == 3) {
            continue;
        }
        // a class record that no inode has any more is not missed
        let used =
            |k: &[u8], v: &[u8]| k[..2] == [0x22, 0] && v != 0i64.to_le_bytes() && k.ends_with(&key[2..]);
        if key[..2] == [0x40, 1] && !all(&*engine).iter().any(|(k, v)| used(k, v)) {
            continue;
        }
        engine.write_dyn(Durability::Relaxed, &mut |w| w.delete(&key)).expect("delete");
        let c = Catalog::open(engine.clone(), t(9)).expect("opens");
        assert!(!check::verify(&c).is_empty(), "nobody misses {key:02x?}");
        put(&*engine, &key, &value);
        let c = Catalog::open(engine.clone(), t(9)).expect("opens");
        assert_eq!(check::verify(&c), Vec::<String>::new(), "{key:02x?} is back");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_value_makes_it_panic(pick in any::<prop::sample::Index>(), garbage in prop::collection::vec(any::<u8>(), 0..40)) {
        let (engine, _) = filled();
        let pairs = all(&*engine);
        let (key, value) = &pairs[pick.index(pairs.len())];
        let mut bytes = value.clone();
        for (b, g) in bytes.iter_mut().skip(1).zip(&garbage) {
            *b ^= g;
        }
        put(&*engine, key, &bytes);
        let Ok(c) = Catalog::open(engine.clone(), t(9)) else { return Ok(()) };
        check::verify(&c);
        let x = c.lookup(Ino::ROOT, b"x").map(|i| i.attr.ino);
        if let Ok(x) = x {
            drop((c.path_of(x), c.versions(x), c.candidate(x), c.observe(&root(9), x, ObjectId(1), &stamp(11, 9), true, Durability::Relaxed)));
        }
        drop((c.readdir_plus(Ino::ROOT, 0, 10), c.totals(), c.usage(0), c.volumes(), c.volume_files(&"V1".into(), 0, 10)));
        drop((c.candidates(t(99), None, 9), c.purge_candidates(None, 9), c.classes(), c.resolve(&root(9), b"/l", true)));
        drop(c.unlink(&root(10), Ino::ROOT, b"x", &|_| false));
    }
}

/// A bit of a name flips on the disk below a running engine: looking it up fails, the check names the table and key.
#[test]
fn rot_below_the_catalogue_is_found() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().expect("dir");
    let open = || {
        let engine = LmdbEngine::open(dir.path(), LmdbOptions::default()).expect("engine");
        Catalog::open(Arc::new(engine), t(1)).expect("opens")
    };
    let c = open();
    c.create(&root(2), Ino::ROOT, b"x", &New::file(0o644, ObjectId(1))).expect("create");
    let value = b"target of a symbolic link";
    let link = New { target: Some(value.to_vec()), ..New::node(FileKind::Symlink, 0) };
    let link = c.create(&root(5), Ino::ROOT, b"l", &link).expect("symlink").attr.ino;
    for barcode in ["V0", "V1", "V2"] {
        c.put_volume(&Volume { reason: format!("reason of {barcode}"), ..volume(barcode, "p") })
            .expect("volume");
    }
    let rotten =
        c.create(&root(6), Ino::ROOT, b"rotten", &New::node(FileKind::Fifo, 0o644)).expect("create").attr.ino;
    c.create(&root(7), Ino::ROOT, b"z", &New::node(FileKind::Fifo, 0o644)).expect("create");
    drop(c); // what memory and journal hold goes into the store
    let c = open();
    assert_eq!(check::verify(&c), Vec::<String>::new());
    let data = dir.path().join("data.mdb");
    let bytes = std::fs::read(&data).expect("read");
    let file = std::fs::File::options().write(true).open(&data).expect("open");
    let entry = [&rotten.0.to_le_bytes(), &b"rotten"[..]].concat();
    for rots in [&value[..], b"reason of V1", &entry] {
        for (at, _) in bytes.windows(rots.len()).enumerate().filter(|(_, w)| *w == rots) {
            file.write_all_at(&[rots[0] ^ 1], at as u64).expect("write");
        }
    }
    assert_eq!(listed(&c), (names(&["V0", "V2"]), names(&["V1"])));
    let error = c.readlink(link).expect_err("not another target");
    assert!(matches!(error, CatalogError::Kv(KvError::BadValue { .. })), "{error}");
    assert_eq!(error.class(), ErrorClass::Corrupt);
    let found = check::verify(&c).join("; ");
    assert!(found.contains("the value of key 10") && found.contains("data.mdb, page"), "{found}");
    let there = c.readdir(Ino::ROOT, 0, 10).expect("goes on behind it");
    let shown: Vec<_> = there.found.iter().map(|e| String::from_utf8_lossy(&e.name)).collect();
    assert_eq!((shown.join(" "), there.damaged.len()), ("x l rotten z".into(), 1));
    assert!(c.lookup(Ino::ROOT, b"x").is_ok(), "others are not concerned");
}
