//! kill -9 of the process that uses the engine, and of the server below it.
//!
//! A transaction reads the number of the last one, sets it to the next, and puts a key of that number: whatever happens, the engine holds
//! exactly the transactions up to some number, and at least up to the last that was acknowledged as durable.

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kv::{DatabaseOptions, Durability, Engine, KvError, PostgresEngine, read, write};

use crate::engine::fresh;
use crate::server::Server;

const ADDRESS: &str = "KV_CRASH_ADDRESS";
const TRIALS: u64 = 5;
const LONG: Duration = Duration::from_secs(120);

fn open(address: &str) -> PostgresEngine {
    let options = DatabaseOptions { patience: LONG, ..DatabaseOptions::new("crash") };
    PostgresEngine::open(address, options).unwrap()
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Checks that the engine holds a prefix of the transactions and returns its length.
fn prefix(engine: &dyn Engine) -> u64 {
    read::<_, KvError>(engine, |r| {
        let seq = r.get(b"seq")?.map_or(0, |v| number(&v));
        let mut expected = 1;
        r.scan(b"n", b"o", &mut |k, v| {
            assert_eq!(
                (number(&k[1..]), number(v)),
                (expected, expected),
                "a transaction is missing or torn"
            );
            expected += 1;
            ControlFlow::Continue(())
        })?;
        assert_eq!(expected - 1, seq, "the keys and the sequence number belong to different transactions");
        Ok(seq)
    })
    .unwrap()
}

/// The next transaction; its number.
fn next(engine: &dyn Engine, durability: Durability) -> Result<u64, KvError> {
    write(engine, durability, |w| {
        let n = w.get_for_update(b"seq")?.map_or(0, |v| number(&v)) + 1;
        w.put(b"seq", &n.to_be_bytes())?;
        w.put(&[b"n".as_slice(), &n.to_be_bytes()].concat(), &n.to_be_bytes())?;
        Ok(n)
    })
}

fn mixed(n: u64) -> Durability {
    if n.is_multiple_of(10) { Durability::Durable } else { Durability::Relaxed }
}

/// The process that is killed; does nothing when run as an ordinary test.
#[test]
fn writer_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let engine = open(&address);
    let mut out = std::io::stdout();
    for n in prefix(&engine) + 1.. {
        assert_eq!(next(&engine, mixed(n)).unwrap(), n);
        writeln!(out, "\nacknowledged {n}").and_then(|()| out.flush()).unwrap();
    }
}

#[test]
fn kill_loses_nothing_acknowledged_and_keeps_the_order() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let server = Server::shared();
    let address = server.address(&fresh(), "&connections=2");
    let mut before = 0;
    for trial in 0..TRIALS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writer_process", "--nocapture"])
            .env(ADDRESS, &address)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 2 + (seed ^ trial.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % 60;
        let mut acknowledged = 0;
        for n in
            lines.map_while(Result::ok).filter_map(|l| l.strip_prefix("acknowledged ")?.parse::<u64>().ok())
        {
            acknowledged = n;
            left = left.saturating_sub(1);
            if left == 0 {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
        let engine = open(&address);
        let kept = prefix(&engine);
        assert!(acknowledged > before, "the trial made progress");
        assert!(kept >= acknowledged && kept <= acknowledged + 1, "acknowledged {acknowledged}, kept {kept}");
        before = kept;
    }
}

/// Ends the server several times while `work` runs, whenever it has got further.
fn with_crashes(server: &Server, done: &AtomicU64, work: impl FnOnce(&AtomicBool) + Send) {
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let worker = s.spawn(|| work(&stop));
        for round in 0..4 {
            let (from, end) = (done.load(Ordering::Relaxed), Instant::now() + LONG);
            while done.load(Ordering::Relaxed) < from + 25 && !worker.is_finished() {
                assert!(Instant::now() < end, "no progress after {from} transactions");
                thread::sleep(Duration::from_millis(1));
            }
            server.crash(round % 2 == 0);
            server.up();
        }
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
    });
}

/// Where every commit is durable, nobody notices that the server failed: nothing is lost, nothing is done twice.
#[test]
fn a_server_that_crashes_is_waited_for() {
    let server = Server::start();
    let address = server.address("engine", "&connections=2&relaxed=no");
    let engine = open(&address);
    let done = AtomicU64::new(0);
    with_crashes(&server, &done, |stop| {
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            assert_eq!(next(&engine, mixed(n)).expect("waits for the server"), n, "lost, or done twice");
            done.store(n, Ordering::Relaxed);
        }
    });
    assert_eq!(prefix(&engine), done.into_inner());
    engine.verify().unwrap();
}

/// Where relaxed changes were lost with the server, the engine says so and stops: what its node remembers is newer than what is stored. Opened
/// again it holds a prefix, with everything durable.
#[test]
fn a_server_that_loses_relaxed_changes_is_noticed() {
    let server = Server::start();
    let address = server.address("engine", "&connections=2");
    let done = AtomicU64::new(0);
    with_crashes(&server, &done, |stop| {
        let mut engine = open(&address);
        let (mut last, mut durable) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            let durability = mixed(last + 1);
            match next(&engine, durability) {
                Ok(n) => {
                    assert_eq!(n, last + 1, "changes went while the engine was open");
                    last = n;
                    if durability == Durability::Durable {
                        durable = n;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Err(KvError::Rewound { .. }) => {
                    assert!(matches!(engine.sync(), Err(KvError::Rewound { .. })), "it stays stopped");
                    drop(engine);
                    engine = open(&address);
                    last = prefix(&engine);
                    assert!(last >= durable, "{durable} was acknowledged as durable, {last} is left");
                }
                Err(e) => panic!("{e}"),
            }
        }
        prefix(&engine);
    });
}
