//! Kill -9 of both sides at random moments. The test runs itself again as the process that is killed, which has both: its durable changes wait for the
//! standby. Whatever the moment, the standby holds exactly the transactions up to some number, and all that were acknowledged.

use crate::bed::*;
use kv::standby::{Away, Mode, Sender};
use kv::{Durability, KvError, write};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DIR: &str = "KV_STANDBY_DIR";
const TRIALS: u64 = 6;

fn numbers(pairs: &Pairs) -> u64 {
    let numbers = pairs.iter().filter(|(k, _)| k[0] == b'n');
    let count = numbers
        .zip(1u64..)
        .map(|((k, v), n)| {
            assert_eq!(
                (&k[1..], v.as_slice()),
                (&n.to_be_bytes()[..], &n.to_be_bytes()[..]),
                "one is missing"
            );
        })
        .count() as u64;
    let seq = pairs
        .iter()
        .find(|(k, _)| k == b"seq")
        .map_or(0, |(_, v)| u64::from_be_bytes(v[..].try_into().unwrap()));
    assert_eq!(count, seq, "a transaction is torn");
    count
}

/// The process that is killed; does nothing when run as an ordinary test.
#[test]
fn both_sides() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    let feed = feed_patient(Mode::Wait(Away::Refuse), dir.join("armed").exists());
    let engine = primary(&dir.join("primary"), &feed);
    let mut standby = follower(&dir.join("standby"));
    if !feed.health().armed {
        catch_up(&engine, &feed, &mut standby);
        std::fs::write(dir.join("armed"), b"").unwrap();
        feed.arm();
    }
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut sender = Sender::new(&engine, feed.clone());
            loop {
                step(&mut sender, &feed, &mut standby).unwrap();
                feed.wait_behind(standby.state().number, Duration::from_millis(5));
            }
        });
        let mut out = std::io::stdout();
        for n in numbers(&dump(&engine)) + 1.. {
            let durability = if n % 20 == 0 { Durability::Durable } else { Durability::Relaxed };
            write::<_, KvError>(&engine, durability, |w| {
                w.put(b"seq", &n.to_be_bytes())?;
                w.put(&[b"n".as_slice(), &n.to_be_bytes()].concat(), &n.to_be_bytes())
            })
            .unwrap();
            if durability == Durability::Durable {
                writeln!(out, "\nacknowledged {n}").and_then(|()| out.flush()).unwrap();
            }
        }
    });
}

/// One life: returns what was acknowledged last.
fn life(dir: &Path, wait: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::both_sides", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut killer, mut acknowledged) = (None, 0);
    for line in lines.map_while(Result::ok) {
        if let Some(n) = line.strip_prefix("acknowledged ").and_then(|n| n.parse::<u64>().ok()) {
            acknowledged = n;
            let pid = rustix::process::Pid::from_child(&child);
            killer.get_or_insert_with(|| {
                std::thread::spawn(move || {
                    std::thread::sleep(wait);
                    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                })
            });
        }
    }
    killer.expect("something was acknowledged").join().unwrap();
    assert!(!child.wait().unwrap().success(), "it was killed");
    acknowledged
}

#[test]
fn a_kill_of_both_loses_nothing_acknowledged_at_the_standby() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let mut before = 0;
    for trial in 0..TRIALS {
        let wait = Duration::from_micros((seed ^ trial.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % 200_000);
        let acknowledged = life(dir.path(), wait);
        // Looked at in a copy: the next life goes on with it as a standby.
        let look = dir.path().join(format!("look-{trial}"));
        std::fs::create_dir(&look).unwrap();
        for name in ["data.mdb", "engine"] {
            std::fs::copy(dir.path().join("standby").join(name), look.join(name)).unwrap();
        }
        let kept = numbers(&promoted(follower(&look), &look));
        assert!(acknowledged > before, "the trial made progress");
        assert!(kept >= acknowledged, "acknowledged {acknowledged}, kept {kept}");
        println!("trial {trial}: acknowledged {acknowledged}, kept {kept}");
        before = acknowledged;
    }
}
