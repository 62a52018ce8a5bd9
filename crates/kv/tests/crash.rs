//! Kill -9 at random moments. The test runs itself again as the process to be killed.
//!
//! A trial's writer numbers its transactions: each sets `seq` and a key of its own to the number, every fortieth is
//! durable. After a durable one is acknowledged the number goes into a pipe. Whatever the moment of the kill, the
//! reopened engine must hold exactly the transactions up to some number, and at least up to the last acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kv::{Durability, KvError, LmdbEngine, LmdbOptions, read, write};

const DIR: &str = "KV_CRASH_DIR";
const TRIALS: u64 = 8;

fn open(dir: &Path) -> LmdbEngine {
    // The store takes over what is in the journal all the time.
    let options = LmdbOptions {
        flush_interval: Duration::from_micros(200),
        save_interval: Duration::from_millis(1),
        ..Default::default()
    };
    LmdbEngine::open(dir, options).unwrap()
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Checks that the engine holds a prefix of the transactions and returns its length.
fn prefix(engine: &LmdbEngine) -> u64 {
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

/// The process that is killed; does nothing when run as an ordinary test.
#[test]
fn writer_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let engine = open(Path::new(&dir));
    let mut out = std::io::stdout();
    for n in prefix(&engine) + 1.. {
        let durability = if n % 40 == 0 { Durability::Durable } else { Durability::Relaxed };
        write::<_, KvError>(&engine, durability, |w| {
            w.put(b"seq", &n.to_be_bytes())?;
            w.put(&[b"n".as_slice(), &n.to_be_bytes()].concat(), &n.to_be_bytes())
        })
        .unwrap();
        if durability == Durability::Durable {
            writeln!(out, "\nacknowledged {n}").and_then(|()| out.flush()).unwrap();
        }
    }
}

#[test]
fn kill_loses_nothing_durable_and_keeps_the_order() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let mut before = 0;
    for trial in 0..TRIALS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_process", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut wait =
            Some(Duration::from_micros((seed ^ trial.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % 300_000));
        let mut killer = None;
        let mut acknowledged = 0;
        // the moment is counted from the first acknowledgement, so that every trial has something to lose
        for line in lines.map_while(Result::ok) {
            if let Some(n) = line.strip_prefix("acknowledged ").and_then(|n| n.parse::<u64>().ok()) {
                acknowledged = n;
                if let Some(wait) = wait.take() {
                    let pid = rustix::process::Pid::from_child(&child);
                    killer = Some(std::thread::spawn(move || {
                        std::thread::sleep(wait);
                        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                    }));
                }
            }
        }
        killer.expect("the writer acknowledged something").join().unwrap();
        assert!(!child.wait().unwrap().success(), "it was killed");
        let engine = open(dir.path());
        let kept = prefix(&engine);
        assert!(acknowledged > before, "the trial made progress");
        assert!(kept >= acknowledged, "acknowledged {acknowledged}, kept {kept}");
        println!("trial {trial}: acknowledged {acknowledged}, kept {kept}");
        before = kept;
    }
}

#[test]
fn second_process_is_locked_out() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let second = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer_process"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    assert!(!second.status.success());
    let said =
        String::from_utf8_lossy(&second.stdout).into_owned() + &String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("Locked"), "{said}");
    let again =
        LmdbEngine::open(dir.path(), LmdbOptions::default()).err().expect("locked in this process too");
    assert!(matches!(&again, KvError::Locked { path } if path == dir.path()), "{again}");
    drop(engine);
    open(dir.path());
}
