//! Connections that are cut, by a proxy between engine and server: anywhere, and around `COMMIT`.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kv::{DatabaseOptions, Durability, Engine, KvError, PostgresEngine, write};

use crate::engine::{fresh, get};
use crate::server::Server;

/// The end of a transaction as it goes over the wire.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// What a proxy does to the next connections.
struct Faults {
    on: AtomicBool,
    random: AtomicU64,
    cuts: AtomicU64,
}

impl Faults {
    fn random(&self) -> u64 {
        let mut x = self.random.load(Ordering::Relaxed) | 1;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Ordering::Relaxed);
        x >> 11
    }
}

/// Passes `from` on to `to`; false when the connection is to be cut.
fn forward(faults: &Faults, plan: &mut u64, chunk: &[u8], client: &UnixStream, to: &mut UnixStream) -> bool {
    let commits = chunk.windows(COMMIT.len()).any(|w| w == COMMIT);
    if !faults.on.load(Ordering::Relaxed) {
        return to.write_all(chunk).is_ok();
    }
    let fault = if commits { faults.random() % 8 } else { 7 };
    match fault {
        // the server never sees it
        0 => {}
        // the server sees it, nobody sees the answer
        1 => drop(to.write_all(chunk)),
        // the server sees it late: the client has been told that the connection is gone, and asks over another one
        2 => {
            let _ = client.shutdown(Shutdown::Both);
            thread::sleep(Duration::from_millis(faults.random() % 60));
            let _ = to.write_all(chunk);
        }
        // anywhere
        _ if *plan < chunk.len() as u64 => drop(to.write_all(&chunk[..*plan as usize])),
        _ => {
            *plan -= chunk.len() as u64;
            return to.write_all(chunk).is_ok();
        }
    }
    faults.cuts.fetch_add(1, Ordering::Relaxed);
    false
}

fn serve(faults: &Faults, client: UnixStream, server: &Path) {
    let Ok(mut to) = UnixStream::connect(server) else { return };
    let (Ok(mut from), Ok(mut back), Ok(mut answers)) =
        (client.try_clone(), client.try_clone(), to.try_clone())
    else {
        return;
    };
    thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    // the first bytes are the greeting and the statements to prepare; let some connections end in them
    let mut plan = if faults.random().is_multiple_of(10) {
        faults.random() % 3000
    } else {
        4000 + faults.random() % 40_000
    };
    let mut chunk = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut chunk) {
        if !forward(faults, &mut plan, &chunk[..n], &client, &mut to) {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Write); // what is on its way still arrives
}

fn proxy(dir: &Path, server: PathBuf, faults: &Arc<Faults>) {
    let listener = UnixListener::bind(dir.join(".s.PGSQL.5432")).unwrap();
    let faults = faults.clone();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (faults, server) = (faults.clone(), server.clone());
            thread::spawn(move || serve(&faults, client, &server));
        }
    });
}

/// Every transaction adds one to a number and notes it under a key of its own: if one ran twice, or was lost, they would not agree.
#[test]
fn a_cut_connection_makes_no_change_twice_and_loses_none() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let (server, name, dir) = (Server::shared(), fresh(), tempfile::tempdir().unwrap());
    let faults = Arc::new(Faults { on: false.into(), random: seed.into(), cuts: 0.into() });
    proxy(dir.path(), server.socket(), &faults);
    server.address(&name, "");
    let options = DatabaseOptions { patience: Duration::from_secs(120), ..DatabaseOptions::new("test") };
    let engine =
        PostgresEngine::open(&server.address_by(dir.path(), &name, "&connections=4"), options).unwrap();
    faults.on.store(true, Ordering::Relaxed);
    thread::scope(|s| {
        for t in 0..3u8 {
            let engine = &engine;
            s.spawn(move || {
                for n in 1..=80u64 {
                    let durability = if n % 3 == 0 { Durability::Durable } else { Durability::Relaxed };
                    write::<_, KvError>(engine, durability, |w| {
                        let before = w
                            .get_for_update(&[b'n', t])?
                            .map_or(0, |v| u64::from_be_bytes(v.try_into().unwrap()));
                        assert_eq!(before + 1, n, "of thread {t}: a change was made twice, or was lost");
                        w.add(b"all", 1)?;
                        w.put(&[b'n', t], &n.to_be_bytes())
                    })
                    .unwrap();
                }
            });
        }
    });
    faults.on.store(false, Ordering::Relaxed);
    assert_eq!(get(&engine, b"all"), Some(240i64.to_le_bytes().to_vec()));
    let cuts = faults.cuts.load(Ordering::Relaxed);
    assert!(cuts >= 20, "only {cuts} connections were cut");
    engine.verify().unwrap();
    fs::remove_file(dir.path().join(".s.PGSQL.5432")).unwrap();
}
