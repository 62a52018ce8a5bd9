//! The disk below the engine fills up and gets space again. Needs root to mount a small file system; without it the test
//! says so and passes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kv::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, read, write};

struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(self.0.path()).status().is_ok_and(|s| s.success());
        assert!(done || std::thread::panicking(), "{} stays mounted", self.0.path().display());
    }
}

fn small_disk(size: &str) -> Option<Mounted> {
    let dir = tempfile::tempdir().unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
        .arg(dir.path())
        .output();
    mount.is_ok_and(|m| m.status.success()).then(|| Mounted(dir))
}

/// A child that another test starts holds copies of our descriptors, and so the lock, until it executes its program.
fn open(dir: &Path) -> LmdbEngine {
    let begin = Instant::now();
    loop {
        match LmdbEngine::open(&dir.join("engine"), LmdbOptions::default()) {
            Err(KvError::Locked { .. }) if begin.elapsed() < Duration::from_secs(30) => thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

fn put(engine: &LmdbEngine, durability: Durability, n: u32) -> Result<(), KvError> {
    write(engine, durability, |w| w.put(&n.to_be_bytes(), &[n as u8; 10_000]))
}

/// It goes on by itself.
fn put_when_there_is_room(engine: &LmdbEngine, n: u32) {
    let begin = Instant::now();
    while let Err(e) = put(engine, Durability::Durable, n) {
        assert!(matches!(e, KvError::Full { .. }) && begin.elapsed() < Duration::from_secs(60), "{e}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn kept(engine: &LmdbEngine, n: u32) -> bool {
    read::<_, KvError>(engine, |r| r.get(&n.to_be_bytes())).unwrap() == Some(vec![n as u8; 10_000])
}

#[test]
fn a_full_disk_loses_nothing_and_is_left_without_a_restart() {
    let Some(disk) = small_disk("3m") else {
        return eprintln!("skipped: needs root and mount");
    };
    let dir = disk.0.path();
    let filler = dir.join("filler");
    fs::write(&filler, vec![1; 1 << 20]).unwrap();
    let engine = open(dir);
    // every third is durable, the others are acknowledged at once
    let durability = |n: u32| if n.is_multiple_of(3) { Durability::Durable } else { Durability::Relaxed };
    let (refused, error) = (1..1000)
        .find_map(|n| put(&engine, durability(n), n).err().map(|e| (n, e)))
        .expect("2 MiB cannot hold 10 MB");
    assert!(refused > 30 && matches!(error, KvError::Full { .. }), "{refused}: {error}");
    assert!(
        matches!(put(&engine, Durability::Relaxed, 5000), Err(KvError::Full { .. })),
        "later ones are refused"
    );
    assert!(matches!(engine.sync(), Err(KvError::Full { .. })));
    assert!((1..refused).all(|n| kept(&engine, n)), "reads go on");
    fs::remove_file(filler).unwrap();
    put_when_there_is_room(&engine, 6000);
    engine.verify().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    engine.backup(&elsewhere.path().join("engine")).unwrap();
    let copy = open(elsewhere.path());
    assert!((1..refused).chain([6000]).all(|n| kept(&copy, n)), "what was acknowledged is on the disk");
    assert!(!kept(&copy, 5000));
    drop(engine);
    let engine = open(dir);
    assert!((1..refused).chain([6000]).all(|n| kept(&engine, n)));
}

/// The node stops while the disk is full: what was acknowledged as durable is there at the next start.
#[test]
fn a_stop_with_a_full_disk_keeps_what_is_durable() {
    let Some(disk) = small_disk("3m") else {
        return eprintln!("skipped: needs root and mount");
    };
    let dir = disk.0.path();
    let engine = open(dir);
    let refused = (1..1000).find(|n| put(&engine, Durability::Durable, *n).is_err()).expect("fills");
    drop(engine);
    let engine = open(dir);
    assert!((1..refused).all(|n| kept(&engine, n)));
    engine.verify().unwrap();
}

const LIMITED: &str = "KV_LIMITED_DIR";

/// The process whose writes fail; does nothing when run as an ordinary test.
#[test]
fn limited_process() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let Some(dir) = std::env::var_os(LIMITED) else { return };
    let engine = open(Path::new(&dir));
    let durability = |n: u32| if n.is_multiple_of(100) { Durability::Durable } else { Durability::Relaxed };
    let (refused, error) =
        (1..10_000).find_map(|n| put(&engine, durability(n), n).err().map(|e| (n, e))).unwrap();
    assert!(matches!(&error, KvError::Io { detail, .. } if detail.contains("too large")), "{error}");
    assert!(matches!(put(&engine, Durability::Relaxed, 50_000), Err(KvError::Io { .. })));
    assert!((1..refused).all(|n| kept(&engine, n)), "reads go on");
    let mut limit = getrlimit(Resource::Fsize);
    limit.current = limit.maximum;
    setrlimit(Resource::Fsize, limit).unwrap();
    let begin = Instant::now();
    while let Err(e) = put(&engine, Durability::Durable, 60_000) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{e}");
        thread::sleep(Duration::from_millis(50));
    }
    drop(engine);
    assert!((1..refused).chain([60_000]).all(|n| kept(&open(Path::new(&dir)), n)));
    println!("went on after {refused}");
}

/// Writes fail with another error than a full disk, and succeed again later: a limit on the size of files (blocks of 512 bytes), lifted.
fn fails_beyond(blocks: u32, dir: &Path) {
    let script =
        format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$0\" --exact limited_process --nocapture");
    let mut sh = Command::new("sh");
    sh.args(["-c", &script]).arg(std::env::current_exe().unwrap()).env(LIMITED, dir);
    let ran = sh.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("went on after"), "{said}");
}

#[test]
fn a_failing_disk_loses_nothing_and_is_left_without_a_restart() {
    fails_beyond(40_000, tempfile::tempdir().unwrap().path());
}

/// The journal is there, and its second half cannot be written.
#[test]
fn a_failing_journal_loses_nothing_and_is_left_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), Durability::Durable, 0).unwrap();
    assert!(dir.path().join("engine/journal.1").exists());
    fails_beyond(8_000, dir.path());
}

const DYING: &str = "KV_DYING_DIR";

/// Scattered keys: each changes a page of its own.
fn scattered(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// The process that dies with a full disk; does nothing when run as an ordinary test.
#[test]
fn dying_process() {
    let Some(dir) = std::env::var_os(DYING) else { return };
    let engine = open(Path::new(&dir));
    let filler = Path::new(&dir).join("filler");
    let change = |n: u64, value: &[u8]| {
        write::<_, KvError>(&engine, Durability::Durable, |w| w.put(&scattered(n), value))
    };
    let bulk = |from: u64| {
        write::<_, KvError>(&engine, Durability::Durable, |w| {
            (from..from + 1000).try_for_each(|n| w.put(&scattered(n), &[0; 300]))
        })
    };
    (0..60).for_each(|n| bulk(n * 1000).unwrap());
    engine.backup(&Path::new(&dir).join("copy")).unwrap(); // the store has all
    fs::remove_dir_all(Path::new(&dir).join("copy")).unwrap();
    let mut rest = fs::File::create(filler).unwrap();
    while std::io::Write::write_all(&mut rest, &[1; 4096]).is_ok() {}
    let mut acknowledged = 0;
    for n in 0..60_000 {
        match change(n, &n.to_be_bytes()) {
            Ok(()) => acknowledged = n + 1,
            Err(_) => break,
        }
    }
    println!("\nacknowledged {acknowledged}");
    std::process::abort();
}

/// What was acknowledged by the journal is there after a crash with a full disk, and gets into the store when there is room.
#[test]
fn a_crash_with_a_full_disk_keeps_what_is_durable() {
    let Some(disk) = small_disk("160m") else {
        return eprintln!("skipped: needs root and mount");
    };
    let dir = disk.0.path();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "dying_process", "--nocapture"]).env(DYING, dir);
    let said = String::from_utf8_lossy(&child.output().unwrap().stdout).into_owned();
    let acknowledged = said.lines().find_map(|l| l.strip_prefix("acknowledged ")?.parse::<u64>().ok());
    let acknowledged = acknowledged.unwrap_or_else(|| panic!("{said}"));
    assert!(acknowledged > 100, "the journal took some");
    let there = |engine: &LmdbEngine| {
        let get = |n: u64| read::<_, KvError>(engine, |r| r.get(&scattered(n))).unwrap().unwrap();
        (0..acknowledged).all(|n| get(n) == n.to_be_bytes())
    };
    let engine = open(dir);
    assert!(there(&engine), "with the disk as full as before");
    fs::remove_file(dir.join("filler")).unwrap();
    put_when_there_is_room(&engine, 6000);
    drop(engine);
    assert!(there(&open(dir)));
}

/// A disk that has room for the journal, and fills up behind it.
#[test]
fn a_disk_that_fills_up_behind_the_journal_loses_nothing() {
    let Some(disk) = small_disk("100m") else {
        return eprintln!("skipped: needs root and mount");
    };
    let dir = disk.0.path();
    let engine = open(dir);
    put(&engine, Durability::Durable, 0).unwrap();
    assert!(dir.join("engine/journal.1").exists());
    let durability = |n: u32| if n.is_multiple_of(3) { Durability::Durable } else { Durability::Relaxed };
    let (refused, error) = (1..20_000)
        .find_map(|n| put(&engine, durability(n), n).err().map(|e| (n, e)))
        .expect("100 MiB cannot hold 200 MB");
    assert!(refused > 3000 && matches!(error, KvError::Full { .. }), "{refused}: {error}");
    assert!((0..refused).all(|n| kept(&engine, n)), "reads go on");
    drop(engine);
    let engine = open(dir);
    let durable = (refused - 1) / 3 * 3;
    assert!(
        (0..=durable).all(|n| kept(&engine, n)),
        "what was durable is there, with a disk as full as before"
    );
    engine.verify().unwrap();
}
