//! `rank PATH RANK RANKS`: one of several programs, on any host, that write one file at once, as checkpoints of parallel programs are written. Record `n` of
//! the file is that of rank `n` modulo `RANKS`; its bytes follow from `n` and from how often it was written. Each rank writes its records again and again, syncs,
//! and reads back what it wrote, until its standard input ends. Then it says how often its records were all written, and how many once more.

use e2e::record::{RECORD, RECORDS, bytes};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rank, ranks] = &arguments[..] else { panic!("rank PATH RANK RANKS") };
    let (rank, ranks): (u64, u64) = (rank.parse().unwrap(), ranks.parse().unwrap());
    // Made by one of them; nobody truncates it.
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        stopped.store(true, Ordering::Release);
    });
    let mut written = 0;
    while written < RECORDS || !stop.load(Ordering::Acquire) {
        let (pass, k) = (written / RECORDS, written % RECORDS);
        let n = k * ranks + rank;
        file.write_all_at(&bytes(n, pass), n * RECORD)
            .unwrap_or_else(|e| panic!("rank {rank}, record {n}: {e}"));
        written += 1;
        if k % 8 == 7 {
            file.sync_all().unwrap_or_else(|e| panic!("rank {rank}, fsync after record {n}: {e}"));
            // One of those just synced, and one that was written long ago.
            is_there(&file, rank, n, pass);
            let before = (k + RECORDS / 2) % RECORDS;
            if let Some(pass) = if before > k { pass.checked_sub(1) } else { Some(pass) } {
                is_there(&file, rank, before * ranks + rank, pass);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    file.sync_all().unwrap_or_else(|e| panic!("rank {rank}, last fsync: {e}"));
    println!("{} {}", written / RECORDS, written % RECORDS);
}

fn is_there(file: &File, rank: u64, n: u64, pass: u64) {
    let mut read = vec![0; RECORD as usize];
    file.read_exact_at(&mut read, n * RECORD).unwrap_or_else(|e| panic!("rank {rank}, record {n}: {e}"));
    assert!(read == bytes(n, pass), "rank {rank}: record {n} is not what it wrote in pass {pass}");
}
