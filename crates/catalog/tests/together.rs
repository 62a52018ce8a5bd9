//! Many threads on one catalogue, over every engine: what each was told is true, and the catalogue's self-check finds nothing.

mod common;
#[path = "../../kv/tests/postgres/server.rs"]
mod server;

use catalog::{Catalog, New, check};
use common::*;
use kv::{DatabaseOptions, Durability, Engine, KvError, PostgresEngine, Reader, Stats, Writer};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use types::*;

const THREADS: u32 = 4;
const ROUNDS: u32 = 24;

fn file(name: &str, catalog: &Catalog, dir: Ino) -> Result<Inode, FsError> {
    catalog.create(&root(3), dir, name.as_bytes(), &New::node(FileKind::File, 0o644)).map_err(|e| e.fs())
}

/// One thread's part: files of its own in a common directory, some moved to another, some removed; and in each round a fight of all for one name.
fn part(catalog: &Catalog, t: u32, (here, there): (Ino, Ino), won: &AtomicU32, start: &Barrier) {
    for n in 0..ROUNDS {
        start.wait();
        match file(&format!("prize{n}"), catalog, here) {
            Ok(_) => drop(won.fetch_add(1, Ordering::Relaxed)),
            Err(e) => assert_eq!(e, FsError::Exists),
        }
        let name = format!("own-{t}-{n}");
        let made = file(&name, catalog, here).expect("nobody else makes it").attr.ino;
        assert_eq!(catalog.lookup(here, name.as_bytes()).expect("it is there").attr.ino, made);
        match n % 3 {
            0 => {
                let (from, to) = ((here, name.as_bytes()), (there, name.as_bytes()));
                catalog.rename(&root(4), from, to, types::RenameMode::NoReplace, &|_| false).expect("moved");
                assert_eq!(catalog.lookup(there, name.as_bytes()).expect("it is there").attr.ino, made);
            }
            1 => drop(catalog.unlink(&root(4), here, name.as_bytes(), &|_| false).expect("removed")),
            _ => {}
        }
    }
}

fn together(catalog: &Catalog) {
    let dir = |name: &str| {
        let new = New::node(FileKind::Directory, 0o755);
        catalog.create(&root(2), Ino::ROOT, name.as_bytes(), &new).expect("mkdir").attr.ino
    };
    let dirs = (dir("here"), dir("there"));
    let (won, start) = (AtomicU32::new(0), Barrier::new(THREADS as usize));
    thread::scope(|s| {
        for t in 0..THREADS {
            let (won, start) = (&won, &start);
            s.spawn(move || part(catalog, t, dirs, won, start));
        }
    });
    assert_eq!(won.into_inner(), ROUNDS, "each prize is won once");
    let third = THREADS * ROUNDS / 3;
    for (dir, files) in [(dirs.0, ROUNDS + third), (dirs.1, third)] {
        assert_eq!(catalog.readdir(dir, 0, usize::MAX).expect("list").found.len() as u32, files);
        assert_eq!(catalog.inode(dir).expect("stat").attr.size, u64::from(files), "its counter");
    }
    let findings = check::verify(catalog);
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn threads_get_along_over_the_engine_in_memory() {
    together(&memory().catalog);
}

#[test]
fn threads_get_along_over_the_embedded_engine() {
    together(&lmdb().catalog);
}

#[test]
fn threads_get_along_over_postgresql() {
    let server = server::Server::shared();
    let address = server.address("together", "&connections=6");
    let engine = PostgresEngine::open(&address, DatabaseOptions::new("test")).expect("engine");
    together(&Catalog::open(Arc::new(engine), t(1)).expect("opens"));
}

/// Counts how often closures that write are run.
struct Counted<E> {
    engine: E,
    writes: AtomicU32,
    runs: AtomicU32,
}

impl<E: Engine> Engine for Counted<E> {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<(), KvError>) -> Result<(), KvError> {
        self.engine.read_dyn(f)
    }

    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<(), KvError>,
    ) -> Result<(), KvError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.engine.write_dyn(durability, &mut |w| {
            self.runs.fetch_add(1, Ordering::Relaxed);
            f(w)
        })
    }

    fn sync(&self) -> Result<(), KvError> {
        self.engine.sync()
    }

    fn verify(&self) -> Result<(), KvError> {
        self.engine.verify()
    }

    fn backup(&self, to: &std::path::Path) -> Result<(), KvError> {
        self.engine.backup(to)
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

/// Names that lie next to each other are made in one directory by all threads at once, and nobody has to do it twice: what each reads is its own name, and
/// the directory's record, which none of them changes.
#[test]
fn creators_of_different_names_do_not_get_in_each_others_way_over_postgresql() {
    const EACH: u32 = 50;
    let server = server::Server::shared();
    let address = server.address("crowd", "&connections=8");
    let engine = PostgresEngine::open(&address, DatabaseOptions::new("test")).expect("engine");
    let engine = Arc::new(Counted { engine, writes: AtomicU32::new(0), runs: AtomicU32::new(0) });
    let catalog = Catalog::open(engine.clone(), t(1)).expect("opens");
    let dir = catalog.create(&root(2), Ino::ROOT, b"crowd", &New::node(FileKind::Directory, 0o755));
    let dir = dir.expect("mkdir").attr.ino;
    let before = [&engine.writes, &engine.runs].map(|n| n.load(Ordering::Relaxed));
    let start = Barrier::new(2 * THREADS as usize);
    thread::scope(|s| {
        for t in 0..2 * THREADS {
            let (catalog, start) = (&catalog, &start);
            s.spawn(move || {
                start.wait();
                for n in 0..EACH {
                    file(&format!("name-{}", n * 2 * THREADS + t), catalog, dir).expect("made");
                }
            });
        }
    });
    let after = [&engine.writes, &engine.runs].map(|n| n.load(Ordering::Relaxed));
    let (writes, runs) = (after[0] - before[0], after[1] - before[1]);
    assert!(writes >= 2 * THREADS * EACH, "{writes}");
    assert!((runs - writes) * 50 <= writes, "{writes} transactions ran {runs} times");
    assert_eq!(catalog.inode(dir).expect("stat").attr.size, u64::from(2 * THREADS * EACH));
}
