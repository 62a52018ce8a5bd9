//! Junctions: what is refused there, what stays possible, and what becomes of them when directories above are renamed, the process is
//! killed, or tapes tell of what was.

mod common;
#[path = "../../kv/tests/postgres/server.rs"]
mod server;

use catalog::{Catalog, CatalogError, New, NewSegment, check};
use common::*;
use kv::{CrashingEngine, DatabaseOptions, Durability, Engine, MemoryEngine, PostgresEngine, Reader, Writer};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use types::*;

fn dir(c: &Catalog, parent: Ino, name: &str) -> Ino {
    let new = New::node(FileKind::Directory, 0o777);
    c.create(&root(10), parent, name.as_bytes(), &new).expect("mkdir").attr.ino
}

fn file(c: &Catalog, parent: Ino, name: &str) -> Ino {
    c.create(&root(11), parent, name.as_bytes(), &New::node(FileKind::File, 0o644)).expect("made").attr.ino
}

fn to(subsystem: &str) -> Junction {
    let addresses = vec!["mds2:7430".into(), "mds3:7430".into()];
    Junction { subsystem: subsystem.into(), addresses, made: t(20) }
}

fn make(c: &Catalog, path: &str, subsystem: &str) -> Result<JunctionView, CatalogError> {
    c.make_junction(&root(20), path.as_bytes(), &to(subsystem))
}

/// `/home` with a file in it, and `/home/projects`, which leads to subsystem `scratch`.
fn furnished(f: &Fixture) -> (Ino, Ino) {
    let home = dir(&f.catalog, Ino::ROOT, "home");
    file(&f.catalog, home, "a");
    let at = dir(&f.catalog, home, "projects");
    let view = make(&f.catalog, "/home/projects", "scratch").expect("made");
    assert_eq!((view.path, view.ino, &view.junction), ("/home/projects".into(), at, &to("scratch")));
    (home, at)
}

fn refused<T: std::fmt::Debug>(done: Result<T, CatalogError>, with: FsError, words: &[&str]) {
    let error = done.expect_err("refused");
    assert_eq!(error.fs(), with, "{error}");
    let text = error.to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "{word:?} is not in: {text}"));
}

#[test]
fn nothing_is_made_in_a_directory_that_leads_elsewhere() {
    for f in [memory(), lmdb()] {
        let c = &f.catalog;
        let (home, at) = furnished(&f);
        let a = c.lookup(home, b"a").expect("there").attr.ino;
        let leads = ["/home/projects leads to subsystem scratch", "thermo --node mds2:7430"];
        for kind in [FileKind::File, FileKind::Directory, FileKind::Fifo, FileKind::Socket] {
            refused(c.create(&root(30), at, b"x", &New::node(kind, 0o644)), FsError::Elsewhere, &leads);
        }
        let link = New { target: Some(b"to".to_vec()), ..New::node(FileKind::Symlink, 0) };
        refused(c.create(&root(30), at, b"x", &link), FsError::Elsewhere, &leads);
        refused(c.link(&root(30), a, at, b"x"), FsError::Elsewhere, &leads);
        let rename =
            |from: &[u8], to: (Ino, &[u8]), mode| c.rename(&root(30), (home, from), to, mode, &|_| false);
        refused(rename(b"a", (at, b"x"), RenameMode::Replace), FsError::Elsewhere, &leads);
        refused(rename(b"a", (at, b"x"), RenameMode::NoReplace), FsError::Elsewhere, &leads);
        let sub = dir(c, home, "sub");
        refused(rename(b"sub", (at, b"sub"), RenameMode::Replace), FsError::Elsewhere, &leads);
        assert_eq!(c.path_of(sub).expect("path"), b"/home/sub");
        // It shows itself as empty, and has the attributes that one gives it.
        assert_eq!(c.readdir(at, 0, 10).expect("list").found, []);
        let set = SetAttr { mode: Some(0o750), uid: Some(7), ..SetAttr::default() };
        assert_eq!(c.setattr(&root(31), at, &set).expect("set").attr.mode, 0o750);
        // Nobody without rights learns where it leads.
        refused(
            c.create(&user(8, 32), at, b"x", &New::node(FileKind::File, 0o644)),
            FsError::AccessDenied,
            &[],
        );
        f.check();
    }
}

#[test]
fn a_directory_that_leads_elsewhere_stays_where_it_is() {
    let f = memory();
    let c = &f.catalog;
    let (home, at) = furnished(&f);
    let empty = dir(c, home, "empty");
    let leads = ["/home/projects leads to subsystem scratch", "thermo junction rm"];
    refused(c.rmdir(&root(30), home, b"projects"), FsError::Busy, &leads);
    let rename =
        |from: &[u8], to: &[u8], mode| c.rename(&root(30), (home, from), (home, to), mode, &|_| false);
    refused(rename(b"projects", b"p", RenameMode::NoReplace), FsError::Busy, &leads);
    refused(rename(b"projects", b"empty", RenameMode::Replace), FsError::Busy, &leads);
    refused(rename(b"empty", b"projects", RenameMode::Replace), FsError::Busy, &leads);
    refused(rename(b"a", b"projects", RenameMode::Exchange), FsError::Busy, &leads);
    refused(rename(b"projects", b"a", RenameMode::Exchange), FsError::Busy, &leads);
    refused(
        c.rename(&root(30), (home, b"projects"), (Ino::ROOT, b"p"), RenameMode::Replace, &|_| false),
        FsError::Busy,
        &leads,
    );
    assert_eq!(c.lookup(home, b"projects").expect("there").attr.ino, at);
    assert_eq!(c.lookup(home, b"empty").expect("there").attr.ino, empty);
    f.check();
}

#[test]
fn paths_are_those_of_now() {
    let f = memory();
    let c = &f.catalog;
    let (_, at) = furnished(&f);
    let other = dir(c, Ino::ROOT, "b");
    make(c, "/b", "b").expect("made");
    c.rename(&root(30), (Ino::ROOT, b"home"), (Ino::ROOT, b"house"), RenameMode::NoReplace, &|_| false)
        .expect("a directory above may be renamed");
    let found = c.junctions().expect("list");
    let found: Vec<_> = found.into_iter().map(|v| (v.path.lossy().into_owned(), v.ino)).collect();
    assert_eq!(found, [("/b".to_owned(), other), ("/house/projects".to_owned(), at)]);
    assert_eq!(c.junction(at).expect("read"), Some(to("scratch")));
    refused(
        c.resolve(&root(31), b"/house/projects/x/y", true),
        FsError::Elsewhere,
        &["/house/projects leads to"],
    );
    refused(c.resolve(&root(31), b"/house/x", true), FsError::NotFound, &[]);
    assert_eq!(c.resolve(&root(31), b"/house/projects/../a", true).expect("there").attr.size, 0);
    f.check();
}

#[test]
fn a_junction_is_made_of_an_empty_directory_that_leads_nowhere_and_by_no_two() {
    let f = memory();
    let c = &f.catalog;
    furnished(&f);
    dir(c, Ino::ROOT, "b");
    let link = New { target: Some(b"b".to_vec()), ..New::node(FileKind::Symlink, 0) };
    c.create(&root(12), Ino::ROOT, b"l", &link).expect("symlink");
    refused(make(c, "/", "other"), FsError::Busy, &["root"]);
    refused(make(c, "/home", "other"), FsError::NotEmpty, &[]);
    refused(make(c, "/home/a", "other"), FsError::NotADirectory, &[]);
    refused(make(c, "/l", "other"), FsError::NotADirectory, &[]);
    refused(make(c, "/none", "other"), FsError::NotFound, &[]);
    refused(make(c, "/home/projects", "other"), FsError::Busy, &["leads to subsystem scratch already"]);
    refused(make(c, "/home/projects/x", "other"), FsError::Elsewhere, &["leads to subsystem scratch"]);
    refused(make(c, "/b", "scratch"), FsError::Busy, &["/home/projects", "two places"]);
    assert_eq!(c.junctions().expect("list").len(), 1);
    f.check();
}

#[test]
fn a_junction_that_is_removed_leaves_an_empty_directory() {
    let f = memory();
    let c = &f.catalog;
    let (home, at) = furnished(&f);
    refused(c.remove_junction(&root(30), b"/home"), FsError::NotFound, &["junction", "/home"]);
    assert_eq!(c.remove_junction(&root(30), b"/home/projects").expect("removed"), to("scratch"));
    refused(c.remove_junction(&root(30), b"/home/projects"), FsError::NotFound, &[]);
    assert_eq!(c.junctions().expect("list"), []);
    file(c, at, "x");
    c.unlink(&root(31), at, b"x", &|_| false).expect("removed");
    make(c, "/home/projects", "scratch").expect("made again");
    c.remove_junction(&root(32), b"/home/projects").expect("removed");
    c.rmdir(&root(33), home, b"projects").expect("removed");
    f.check();
}

#[test]
fn who_watches_is_told_of_the_directory() {
    let f = memory();
    let told = Arc::new(Mutex::new(Vec::new()));
    let at = dir(&f.catalog, Ino::ROOT, "p");
    let seen = told.clone();
    f.catalog.watch(Box::new(move |inodes| seen.lock().expect("whole").extend_from_slice(inodes)));
    make(&f.catalog, "/p", "scratch").expect("made");
    assert!(told.lock().expect("whole").contains(&at));
    told.lock().expect("whole").clear();
    f.catalog.remove_junction(&root(30), b"/p").expect("removed");
    assert!(told.lock().expect("whole").contains(&at));
    assert_eq!(f.catalog.inode(at).expect("there").attr.ctime, t(30));
}

#[test]
fn what_was_answered_survives_a_crash() {
    let engine = Arc::new(CrashingEngine::new());
    let f = over(engine.clone());
    furnished(&f);
    engine.kill();
    engine.restart(0);
    let c = Catalog::open(engine.clone(), t(40)).expect("opens");
    let found = c.junctions().expect("list");
    assert_eq!((found.len(), &found[0].junction), (1, &to("scratch")));
    let refusal = c.create(&root(41), found[0].ino, b"x", &New::node(FileKind::File, 0o644));
    refused(refusal, FsError::Elsewhere, &["scratch"]);
    c.remove_junction(&root(42), b"/home/projects").expect("removed");
    engine.kill();
    engine.restart(0);
    let c = Catalog::open(engine, t(43)).expect("opens");
    assert_eq!(c.junctions().expect("list"), []);
    file(&c, c.resolve(&root(44), b"/home/projects", false).expect("there").attr.ino, "x");
    assert_eq!(check::verify(&c), Vec::<String>::new());
}

/// Somebody makes a file in a directory, or removes it, at the moment at which it is to lead elsewhere: one of them is refused.
fn at_once(c: &Catalog, rounds: u32) {
    for n in 0..rounds {
        let name = format!("d{n}");
        let at = dir(c, Ino::ROOT, &name);
        let start = Barrier::new(3);
        let (made, file, gone) = thread::scope(|s| {
            let made = s.spawn(|| {
                start.wait();
                make(c, &format!("/{name}"), &name)
            });
            let file = s.spawn(|| {
                start.wait();
                c.create(&root(30), at, b"x", &New::node(FileKind::File, 0o644)).map_err(|e| e.fs())
            });
            start.wait();
            let gone = c.rmdir(&root(30), Ino::ROOT, name.as_bytes()).map_err(|e| e.fs());
            (made.join().expect("ran"), file.join().expect("ran"), gone)
        });
        let won = [made.is_ok(), file.is_ok(), gone.is_ok()];
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{made:?} {file:?} {gone:?}");
    }
    let findings = check::verify(c);
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn one_of_two_at_the_same_moment_is_refused() {
    at_once(&memory().catalog, 50);
    at_once(&lmdb().catalog, 50);
}

#[test]
fn one_of_two_at_the_same_moment_is_refused_over_postgresql() {
    let server = server::Server::shared();
    let address = server.address("junctions", "&connections=4");
    let engine = PostgresEngine::open(&address, DatabaseOptions::new("test")).expect("engine");
    at_once(&Catalog::open(Arc::new(engine), t(1)).expect("opens"), 20);
}

/// Does something once, within a transaction of somebody else that is about to commit.
struct Between<E> {
    engine: E,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    runs: AtomicU32,
}

impl<E: Engine> Engine for Between<E> {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> kv::Result<()>) -> kv::Result<()> {
        self.engine.read_dyn(f)
    }

    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> kv::Result<()>,
    ) -> kv::Result<()> {
        self.engine.write_dyn(durability, &mut |w| {
            f(w)?;
            let act = self.act.lock().expect("whole").take();
            if let Some(act) = act {
                self.runs.fetch_add(1, Ordering::Relaxed);
                act();
            }
            Ok(())
        })
    }

    fn sync(&self) -> kv::Result<()> {
        self.engine.sync()
    }

    fn verify(&self) -> kv::Result<()> {
        self.engine.verify()
    }

    fn backup(&self, to: &std::path::Path) -> kv::Result<()> {
        self.engine.backup(to)
    }

    fn stats(&self) -> kv::Stats {
        self.engine.stats()
    }
}

/// The directory leads elsewhere by the time at which somebody is done with what he makes in it, and commits: it is not made.
#[test]
fn who_has_begun_before_a_junction_and_ends_after_it_is_refused_over_postgresql() {
    let server = server::Server::shared();
    let address = server.address("between", "&connections=4");
    let engine = PostgresEngine::open(&address, DatabaseOptions::new("test")).expect("engine");
    let engine = Arc::new(Between { engine, act: Mutex::new(None), runs: AtomicU32::new(0) });
    let c = Arc::new(Catalog::open(engine.clone(), t(1)).expect("opens"));
    let here = dir(&c, Ino::ROOT, "here");
    file(&c, here, "a");
    let acts: [&dyn Fn(Ino) -> Result<(), CatalogError>; 3] = [
        &|at| c.create(&root(30), at, b"x", &New::node(FileKind::File, 0o644)).map(drop),
        &|at| c.link(&root(30), c.lookup(here, b"a").expect("there").attr.ino, at, b"x").map(drop),
        &|at| c.rename(&root(30), (here, b"a"), (at, b"x"), RenameMode::Replace, &|_| false).map(drop),
    ];
    for (n, act) in (0..).zip(acts) {
        let name = format!("d{n}");
        let at = dir(&c, Ino::ROOT, &name);
        // So that no number has to be reserved in the middle.
        file(&c, here, &format!("b{n}"));
        let made = c.clone();
        let make = move || drop(make(&made, &format!("/{name}"), &name).expect("made"));
        *engine.act.lock().expect("whole") = Some(Box::new(make));
        refused(act(at), FsError::Elsewhere, &["leads to subsystem d"]);
        assert_eq!(engine.runs.load(Ordering::Relaxed), n + 1);
        assert_eq!(c.readdir(at, 0, 10).expect("list").found, []);
    }
    assert_eq!(check::verify(&c), Vec::<String>::new());
}

fn pairs(engine: &MemoryEngine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    let mut read = |r: &dyn Reader| {
        r.scan(&[0], &[0xff], &mut |k, v| {
            pairs.push((k.to_vec(), v.to_vec()));
            ControlFlow::Continue(())
        })
    };
    engine.read_dyn(&mut read).expect("scan");
    pairs
}

/// Everything without data that waits goes to a volume of each pool.
fn write_what_waits(c: &Catalog, volumes: [&str; 2], now: i64) {
    for (copy, volume) in (1u8..).zip(volumes) {
        let waits = c.candidates(t(1 << 40), None, 1000).expect("list").found;
        let waits = waits.iter().filter(|w| w.missing.iter().any(|(n, _)| n.0 == copy));
        let made =
            waits.map(|w| NewSegment { digest: None, ..segment(w.ino, w.version, copy, 0, (0, 0), 0) });
        record(c, volume, now, made.collect());
    }
}

fn adopt(from: &Catalog, to: &Catalog, barcode: &str) {
    let v = from.volume(&barcode.into()).expect("read").expect("there");
    to.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).expect("begins");
    to.adopt(&barcode.into(), t(90), &listing::listing(from, barcode)).expect("adopted");
    assert_eq!(check::verify(to), Vec::<String>::new());
}

/// Tapes know directories and not where they lead: a backup of the catalogue does, until tapes tell that the directory was removed since.
#[test]
fn a_junction_goes_with_the_catalogue_and_not_with_tapes() {
    let engine = Arc::new(MemoryEngine::new());
    let f = over(engine.clone());
    let c = &f.catalog;
    c.put_volume(&volume("VB0002L9", "pool-b")).expect("volume");
    let (home, at) = furnished(&f);
    c.unlink(&root(25), home, b"a", &|_| false).expect("removed");
    write_what_waits(c, ["VA0001L9", "VB0001L9"], 30);
    let rebuilt = listing::empty();
    adopt(c, &rebuilt, "VA0001L9");
    assert_eq!(rebuilt.path_of(at).expect("it is a directory"), b"/home/projects");
    assert_eq!(rebuilt.junctions().expect("list"), []);
    file(&rebuilt, at, "x");

    let backup = MemoryEngine::new();
    let saved = pairs(&engine);
    backup
        .write_dyn(Durability::Relaxed, &mut |w| saved.iter().try_for_each(|(k, v)| w.put(k, v)))
        .expect("copied");
    let restored = Catalog::open(Arc::new(backup), t(40)).expect("opens");
    assert_eq!(restored.junctions().expect("list"), c.junctions().expect("list"));
    c.remove_junction(&root(50), b"/home/projects").expect("removed");
    c.rmdir(&root(51), home, b"projects").expect("removed");
    write_what_waits(c, ["VA0002L9", "VB0002L9"], 60);
    adopt(c, &restored, "VA0002L9");
    assert!(restored.inode(at).is_err(), "tapes tell that it was removed");
    assert_eq!(restored.junctions().expect("list"), []);
}

fn put(engine: &MemoryEngine, dir: Ino, value: &[u8]) {
    let key = [&[0x1c][..], &dir.0.to_be_bytes()].concat();
    engine.write_dyn(Durability::Relaxed, &mut |w| w.put(&key, value)).expect("put");
}

#[test]
fn a_junction_that_is_not_what_it_should_be_is_found() {
    let engine = Arc::new(MemoryEngine::new());
    let f = over(engine.clone());
    let c = &f.catalog;
    let (home, _) = furnished(&f);
    let record = |subsystem: &str| format::record::encode(&to(subsystem));
    let found = |c: &Catalog| check::verify(c).join("\n");
    put(&engine, home, &record("other"));
    assert!(found(c).contains("is not empty"), "{}", found(c));
    put(&engine, home, &record("scratch"));
    assert!(found(c).contains("both lead to subsystem scratch"), "{}", found(c));
    put(&engine, home, &record("a b"));
    assert!(found(c).contains("no name of a subsystem"), "{}", found(c));
    put(&engine, home, &[1, 0xff]);
    assert!(found(c).contains("junction"), "{}", found(c));
    engine
        .write_dyn(Durability::Relaxed, &mut |w| w.delete(&[&[0x1c][..], &home.0.to_be_bytes()].concat()))
        .expect("gone");
    f.check();
    put(&engine, Ino(9999), &record("other"));
    assert!(found(c).contains("is no directory"), "{}", found(c));
    // Those beside it are shown.
    assert_eq!(c.junctions().expect("list").len(), 2);
}
