//! Rates of the embedded engine: `cargo run --release -p kv --example kv_bench -- [dir] [rounds]`
//! (in a temporary directory of `dir`).
//! Prints min/median/max over rounds. A create-like transaction is one get and six puts of 40-byte keys and 100-byte
//! values, two of them counters that every transaction changes.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kv::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, read, write};

/// A key of 40 bytes: table, major number, minor number, as the catalogue's keys are built.
fn key(table: u8, major: u64, minor: u64) -> [u8; 40] {
    let mut key = [table; 40];
    key[1..9].copy_from_slice(&major.to_be_bytes());
    key[9..17].copy_from_slice(&minor.to_be_bytes());
    key
}

/// Enters file `n` into directory `dir`: a scattered name, three tables in order of `n`, the directory, a counter.
fn create_like(engine: &dyn Engine, durability: Durability, dir: u64, n: u64) {
    let name = key(b'd', dir, n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    write::<_, KvError>(engine, durability, |w| {
        assert!(w.get_for_update(&name)?.is_none(), "created twice");
        w.put(&name, &[1; 100])?;
        for table in *b"ico" {
            w.put(&key(table, n, 0), &[table; 100])?;
        }
        w.put(&key(b'p', dir, 0), &[n as u8; 100])?;
        w.put(&key(b'u', 0, 0), &[n as u8; 100])
    })
    .expect("create");
}

/// Runs `count` transactions on each of `threads`, each in a directory of its own; transactions per second.
fn creates(engine: &dyn Engine, durability: Durability, threads: u64, count: u64, next: &AtomicU64) -> f64 {
    let start = Instant::now();
    thread::scope(|s| {
        for t in 0..threads {
            s.spawn(move || {
                for _ in 0..count {
                    create_like(engine, durability, t, next.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
    });
    (threads * count) as f64 / start.elapsed().as_secs_f64()
}

/// Gets of stored keys in scattered order; per second.
fn gets(engine: &dyn Engine, threads: u64, count: u64, keys: u64) -> f64 {
    let start = Instant::now();
    thread::scope(|s| {
        for t in 0..threads {
            s.spawn(move || {
                for n in 0..count {
                    let k = key(b'i', (n * 7919 + t * 104_729) % keys, 0);
                    assert!(read::<_, KvError>(engine, |r| r.get(&k)).expect("get").is_some());
                }
            });
        }
    });
    (threads * count) as f64 / start.elapsed().as_secs_f64()
}

fn scan(engine: &dyn Engine, back: bool) -> f64 {
    let start = Instant::now();
    let mut seen = 0u64;
    let mut count = |k: &[u8], v: &[u8]| {
        seen += u64::from(k.len() + v.len() == 140);
        ControlFlow::Continue(())
    };
    read::<_, KvError>(engine, |r| match back {
        true => r.scan_back(b"", &[255], &mut count),
        false => r.scan(b"", &[255], &mut count),
    })
    .expect("scan");
    seen as f64 / start.elapsed().as_secs_f64()
}

/// Syncs of one page appended to a file beside the engine; per second. What the disk allows a lone durable client.
fn disk_syncs(dir: &Path) -> f64 {
    use std::io::Write;
    let mut file = std::fs::File::create(dir.join("syncs")).expect("create");
    let start = Instant::now();
    for _ in 0..200 {
        file.write_all(&[1; 4096]).and_then(|()| file.sync_data()).expect("sync");
    }
    200.0 / start.elapsed().as_secs_f64()
}

fn report(what: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    let (min, median, max) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
    println!("{what:<44} {min:>12.0} {median:>12.0} {max:>12.0}");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let parent = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let temp = tempfile::tempdir_in(parent).expect("temporary directory");
    let dir = temp.path();
    let rounds: u64 = args.next().map_or(5, |r| r.parse().expect("rounds"));
    let engine = LmdbEngine::open(&dir.join("engine"), LmdbOptions::default()).expect("open");
    let next = AtomicU64::new(0);
    let run = |durability, threads, count| {
        let before = engine.stats();
        let rates = (0..rounds).map(|_| creates(&engine, durability, threads, count, &next)).collect();
        engine.sync().expect("sync");
        let now = engine.stats();
        println!(
            "  transactions per flush: {}",
            (now.writes - before.writes) / (now.flushes - before.flushes).max(1)
        );
        rates
    };
    println!("{:<44} {:>12} {:>12} {:>12}", "per second", "min", "median", "max");
    report("disk: append 4 KiB + fdatasync", (0..rounds).map(|_| disk_syncs(dir)).collect());
    report("create-like, relaxed, 1 thread", run(Durability::Relaxed, 1, 100_000));
    report("create-like, relaxed, 16 threads", run(Durability::Relaxed, 16, 10_000));
    report("create-like, durable, 1 thread", run(Durability::Durable, 1, 1_000));
    report("create-like, durable, 16 threads", run(Durability::Durable, 16, 1_000));
    report("create-like, durable, 64 threads", run(Durability::Durable, 64, 1_000));
    let keys = next.load(Ordering::Relaxed);
    report("get, 1 thread", (0..rounds).map(|_| gets(&engine, 1, 400_000, keys)).collect());
    report("get, 2 threads", (0..rounds).map(|_| gets(&engine, 2, 400_000, keys)).collect());
    report("scan up (pairs)", (0..rounds).map(|_| scan(&engine, false)).collect());
    report("scan down (pairs)", (0..rounds).map(|_| scan(&engine, true)).collect());
    let start = Instant::now();
    engine.backup(&dir.join("backup")).expect("backup");
    let took: Duration = start.elapsed();
    println!("{} keys, {} MiB; backup took {took:.1?}", engine.stats().keys, engine.stats().bytes >> 20);
}
