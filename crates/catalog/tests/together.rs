//! Many threads on one catalogue, over every engine: what each was told is true, and the catalogue's self-check finds nothing.

mod common;
#[path = "../../kv/tests/postgres/server.rs"]
mod server;

use catalog::{Catalog, New, check};
use common::*;
use kv::{DatabaseOptions, PostgresEngine};
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
