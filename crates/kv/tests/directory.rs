//! What the embedded engine does with its directory: reopening, backups, damaged and foreign files.

use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kv::{Aside, Durability, Engine, KvError, LmdbEngine, LmdbOptions, Role, read, write};

fn open(dir: &Path) -> Result<LmdbEngine, KvError> {
    LmdbEngine::open(dir, LmdbOptions::default())
}

fn put(engine: &LmdbEngine, key: &[u8], value: &[u8]) {
    write::<_, KvError>(engine, Durability::Relaxed, |w| w.put(key, value)).unwrap();
}

fn get(engine: &LmdbEngine, key: &[u8]) -> Option<Vec<u8>> {
    read::<_, KvError>(engine, |r| r.get(key)).unwrap()
}

fn refused(dir: &Path) -> KvError {
    open(dir).err().expect("must be refused")
}

#[test]
fn closing_flushes_and_the_new_directory_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b");
    let options = LmdbOptions { flush_interval: Duration::from_secs(3600), ..Default::default() };
    let engine = LmdbEngine::open(&deep, options).unwrap();
    put(&engine, b"k", b"v");
    assert_eq!(engine.stats().flushes, 0, "relaxed and not yet due");
    drop(engine);
    let engine = open(&deep).unwrap();
    assert_eq!(get(&engine, b"k").as_deref(), Some(b"v".as_slice()));
    assert_eq!(engine.stats().keys, 1);
}

#[test]
fn programs_that_are_started_do_not_inherit_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir.path().join("inherited")).unwrap();
    put(&engine, b"k", b"v");
    engine.backup(&dir.path().join("inherited-copy")).unwrap();
    let listed = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(" 1 -> pipe") && !listed.contains("inherited"), "{listed}");
}

#[test]
fn relaxed_changes_reach_the_disk_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    put(&engine, b"k", b"v");
    for _ in 0..500 {
        if engine.stats().keys == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not flushed after five seconds");
}

#[test]
fn backup_while_writing_is_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir.path().join("engine")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in 1u64.. {
                write::<_, KvError>(&engine, Durability::Relaxed, |w| {
                    w.put(b"count", &n.to_be_bytes())?;
                    w.put(&[b"n".as_slice(), &n.to_be_bytes()].concat(), &[n as u8; 200])
                })
                .unwrap();
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for round in 0..4 {
            std::thread::sleep(Duration::from_millis(40));
            let floor = get(&engine, b"count").map_or(0, |v| u64::from_be_bytes(v.try_into().unwrap()));
            let to = dir.path().join(format!("backup{round}"));
            engine.backup(&to).unwrap();
            let copy = open(&to).unwrap();
            let count = u64::from_be_bytes(get(&copy, b"count").unwrap().try_into().unwrap());
            let mut keys = 0;
            read::<_, KvError>(&copy, |r| {
                r.scan(b"n", b"o", &mut |_, _| {
                    keys += 1;
                    ControlFlow::Continue(())
                })
            })
            .unwrap();
            assert_eq!(keys, count, "the backup holds whole transactions");
            assert!(count >= floor, "the backup holds what was acknowledged before it began");
            put(&copy, b"later", b"a backup is an engine");
        }
        done.store(true, Ordering::Relaxed);
    });
    let taken = engine.backup(&dir.path().join("backup0")).unwrap_err();
    assert!(matches!(taken, KvError::TargetExists { .. }), "{taken}");
}

/// An engine with some megabytes, closed.
fn filled(dir: &Path) {
    let engine = open(dir).unwrap();
    for n in 0..2000u32 {
        put(&engine, &n.to_be_bytes(), &[7; 1000]);
    }
}

#[test]
fn damaged_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let data = dir.path().join("data.mdb");
    let whole = fs::read(&data).unwrap();
    for len in [0, 1, 100, 4096, 8192, 40_000, 1_000_000] {
        OpenOptions::new().write(true).open(&data).unwrap().set_len(len).unwrap();
        let error = refused(dir.path());
        assert!(matches!(error, KvError::Corrupt { .. }), "cut to {len}: {error}");
        fs::write(&data, &whole).unwrap();
    }
    for meta in [0, 4096] {
        File::options().write(true).open(&data).unwrap().write_all_at(&[0x5a; 512], meta).unwrap();
        let error = refused(dir.path());
        assert!(matches!(error, KvError::Corrupt { .. }), "meta page at {meta} overwritten: {error}");
        fs::write(&data, &whole).unwrap();
    }
    fs::write(&data, vec![b'x'; 1 << 20]).unwrap();
    assert!(matches!(refused(dir.path()), KvError::Corrupt { .. }));
    fs::remove_file(&data).unwrap();
    assert!(
        matches!(refused(dir.path()), KvError::Corrupt { .. }),
        "must not start anew when its data is gone"
    );
    fs::write(&data, &whole).unwrap();
    assert_eq!(get(&open(dir.path()).unwrap(), &7u32.to_be_bytes()), Some(vec![7; 1000]));
}

#[test]
fn marker_decides_whose_directory_it_is() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let marker = dir.path().join("engine");
    let ours = fs::read(&marker).unwrap();
    fs::write(&marker, "thermocline engine lmdb 4\n").unwrap();
    let newer = refused(dir.path());
    assert!(
        matches!(&newer, KvError::Format { found, .. } if found == "thermocline engine lmdb 4"),
        "{newer}"
    );
    fs::remove_file(&marker).unwrap();
    let lost = refused(dir.path());
    assert!(matches!(&lost, KvError::Corrupt { detail, .. } if detail.contains("engine")), "{lost}");
    fs::write(&marker, ours).unwrap();
    open(dir.path()).unwrap();
}

/// An engine of the release before, without a journal, opens, and is of this release from then on. (A copy is written as it was then.)
#[test]
fn an_engine_of_the_former_format_becomes_one_of_this() {
    let dir = tempfile::tempdir().unwrap();
    let (old, marker) = (dir.path().join("old"), dir.path().join("old/engine"));
    let new = dir.path().join("new");
    filled(&new);
    open(&new).unwrap().backup(&old).unwrap();
    fs::write(&marker, "thermocline engine lmdb 2\n").unwrap();
    let engine = open(&old).unwrap();
    assert_eq!(fs::read(&marker).unwrap(), b"thermocline engine lmdb 3\n", "before anything is written");
    put(&engine, b"later", b"1");
    drop(engine);
    assert_eq!(get(&open(&old).unwrap(), b"later").as_deref(), Some(b"1".as_slice()));
    fs::write(&marker, "thermocline engine lmdb 2 aside left move-1 moved to a test\n").unwrap();
    assert!(matches!(refused(&old), KvError::Aside { .. }));
    let options = LmdbOptions { aside: Some("move-1".into()), ..Default::default() };
    drop(LmdbEngine::open(&old, options).unwrap());
    assert_eq!(fs::read(&marker).unwrap(), b"thermocline engine lmdb 3 aside left move-1 moved to a test\n");
}

/// Power failed at each step of making an engine: before the data file was moved, and before the marker.
#[test]
fn half_made_engines_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("creating")).unwrap();
    fs::write(dir.path().join("creating/data.mdb"), "torn").unwrap();
    drop(open(dir.path()).unwrap());
    assert!(!dir.path().join("creating").exists());
    fs::remove_file(dir.path().join("engine")).unwrap();
    put(&open(dir.path()).unwrap(), b"k", b"v");
}

/// Runs out of map: the write that needed the space is refused, reads go on, nothing acknowledged as durable is lost.
#[test]
fn full_store_refuses_writes_only() {
    let dir = tempfile::tempdir().unwrap();
    let small = LmdbOptions { map_bytes: 2 << 20, ..Default::default() };
    let engine = LmdbEngine::open(dir.path(), small).unwrap();
    let put = |n: u32| {
        write::<_, KvError>(&engine, Durability::Durable, |w| {
            w.put(&n.to_be_bytes(), &vec![n as u8; 100_000])
        })
    };
    let (failed, error) =
        (0..1000).find_map(|n| put(n).err().map(|e| (n, e))).expect("2 MiB cannot hold 100 MB");
    assert!(failed > 2 && matches!(error, KvError::Full { .. }), "{failed}: {error}");
    assert!(matches!(put(5000), Err(KvError::Full { .. })));
    assert_eq!(get(&engine, &0u32.to_be_bytes()), Some(vec![0; 100_000]), "reads go on");
    drop(engine);
    let engine = open(dir.path()).unwrap();
    for n in 0..failed {
        assert_eq!(get(&engine, &n.to_be_bytes()), Some(vec![n as u8; 100_000]));
    }
    write::<_, KvError>(&engine, Durability::Durable, |w| w.put(b"more", b"room")).unwrap();
}

#[test]
fn what_is_set_aside_opens_only_for_its_move() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    put(&engine, b"k", b"v");
    let mark = Aside { role: Role::Left, id: "move-1".into(), why: "moved to a test".into() };
    engine.set_aside(Some(&mark)).unwrap();
    put(&engine, b"k", b"still open");
    drop(engine);
    assert_eq!(LmdbEngine::aside(dir.path()).unwrap(), Some(mark));
    let aside = refused(dir.path());
    assert!(matches!(&aside, KvError::Aside { why, .. } if why == "moved to a test"), "{aside}");
    let options = |id: &str| LmdbOptions { aside: Some(id.into()), ..Default::default() };
    assert!(matches!(LmdbEngine::open(dir.path(), options("move-2")), Err(KvError::Aside { .. })));
    drop(LmdbEngine::open(dir.path(), options("move-1")).unwrap());
    assert!(matches!(refused(dir.path()), KvError::Aside { .. }), "opening alone changes nothing");
    LmdbEngine::open(dir.path(), options("move-1")).unwrap().set_aside(None).unwrap();
    assert_eq!(get(&open(dir.path()).unwrap(), b"k").as_deref(), Some(b"still open".as_slice()));
    assert_eq!(LmdbEngine::aside(dir.path()).unwrap(), None);
}
