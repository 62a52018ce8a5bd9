//! The metadata engine alone on a disk that loses power. Writers number their transactions; whatever the moment of the
//! failure, the reopened engine holds those up to some number, and at least up to the last one that was confirmed durable. A program of its own: the library below
//! the engine lets commands inherit its file, which would keep the disk in use.

use e2e::can_mount;
use e2e::torture::dice::Dice;
use e2e::torture::disk::{FileSystem, RecordedDisk};
use e2e::torture::history::Clock;
use kv::{Durability, KvError, LmdbEngine, LmdbOptions, read, write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Power failures tried on each file system.
const FAILURES: u64 = 40;
const LOAD: Duration = Duration::from_millis(1500);

fn open(dir: &Path) -> LmdbEngine {
    // The store takes over what is in the journal many times.
    let options = LmdbOptions {
        flush_interval: Duration::from_millis(1),
        save_interval: Duration::from_millis(20),
        ..Default::default()
    };
    LmdbEngine::open(dir, options).unwrap()
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Transaction `n`: a key that every one changes, one of its own with a long value, and one of an older one goes.
fn transaction(engine: &LmdbEngine, n: u64) {
    let durability = if n.is_multiple_of(7) { Durability::Durable } else { Durability::Relaxed };
    write::<_, KvError>(engine, durability, |w| {
        w.put(b"seq", &n.to_be_bytes())?;
        let value = [n.to_be_bytes().as_slice(), &e2e::noise(n, (n * 37 % 3000) as usize)].concat();
        w.put(&[b"n".as_slice(), &n.to_be_bytes()].concat(), &value)?;
        if n > 100 {
            w.delete(&[b"n".as_slice(), &(n - 100).to_be_bytes()].concat())?;
        }
        Ok(())
    })
    .unwrap();
}

/// Checks that the engine holds exactly what transactions 1 to n leave; returns n.
fn prefix(engine: &LmdbEngine) -> u64 {
    read::<_, KvError>(engine, |r| {
        let seq = r.get(b"seq")?.map_or(0, |v| number(&v));
        let mut expected = seq.saturating_sub(99).max(1);
        r.scan(b"n", b"o", &mut |k, v| {
            let n = number(&k[1..]);
            assert_eq!(n, expected, "a transaction is missing, or one too many is there; newest {seq}");
            assert!(
                v[..8] == n.to_be_bytes() && v[8..] == e2e::noise(n, (n * 37 % 3000) as usize),
                "{n} is torn"
            );
            expected += 1;
            ControlFlow::Continue(())
        })?;
        assert_eq!(expected, seq + 1, "keys and sequence number belong to different transactions");
        Ok(seq)
    })
    .unwrap()
}

fn survives(file_system: FileSystem) {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let disk = RecordedDisk::start(dir.path(), file_system).unwrap();
    let state = disk.path().join("engine");
    let clock = Clock::of_disk(disk.position());
    // (transaction, length of the disk's record before it began, and when it was confirmed durable)
    let mut written = Vec::new();
    let engine = open(&state);
    let begin = Instant::now();
    for n in 1.. {
        if begin.elapsed() > LOAD {
            break;
        }
        let issued = clock.now().position;
        transaction(&engine, n);
        written.push((n, issued, n.is_multiple_of(7).then(|| clock.now().position)));
    }
    drop(engine);
    let mut failures = disk.finish().unwrap();
    let mut dice = Dice::new(seed);
    let mut durable = 0;
    for moment in failures.choose(FAILURES, &mut dice) {
        let survivor = failures.at(moment, &mut dice).unwrap();
        let least = written.iter().rfind(|w| w.2.is_some_and(|at| at <= moment)).map_or(0, |w| w.0);
        let most = written.iter().rfind(|w| w.1 <= moment).map_or(0, |w| w.0);
        let engine = open(&state);
        let kept = prefix(&engine);
        assert!(
            (least..=most).contains(&kept),
            "{kept} transactions after {moment} entries, not {least} to {most}"
        );
        // It goes on.
        transaction(&engine, kept + 1);
        assert_eq!(prefix(&engine), kept + 1);
        drop(engine);
        survivor.finish().unwrap();
        durable = durable.max(least);
    }
    println!(
        "{} transactions, {} entries, {} flushes",
        written.len(),
        failures.moments(),
        failures.flushes()
    );
    assert!(durable > 20, "there was nothing to lose");
}

#[test]
fn the_engine_survives_power_failures_on_ext4() {
    if can_mount("power failure of the engine, ext4") && FileSystem::Ext4.is_there() {
        survives(FileSystem::Ext4);
    }
}

#[test]
fn the_engine_survives_power_failures_on_xfs() {
    if can_mount("power failure of the engine, XFS") && FileSystem::Xfs.is_there() {
        survives(FileSystem::Xfs);
    }
}
