//! `writer written|long|many PATH ELSEWHERE`: writes a file (many: files of a directory) until its standard input ends, and compares what it reads there and under another path with
//! what it wrote. A process of its own: one that starts others has them close its files, and they wait for a node that is away.

use e2e::noise;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of the file that is written in place.
const FILE: usize = 24 << 20;
/// Files of a MiB, after which more are made more slowly.
const MANY: u64 = 120;

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [what, path, elsewhere] = &arguments[..] else { panic!("writer written|long|many PATH ELSEWHERE") };
    let work = match what.to_str() {
        Some("written") => write_and_read,
        Some("long") => lengthen,
        _ => make_many,
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            stop.store(true, Ordering::Release);
        });
        // What fails ends all at once.
        if std::panic::catch_unwind(|| work(path, elsewhere, &stop)).is_err() {
            std::process::exit(1);
        }
    });
}

/// Writes a file in place and reads it, straight at the targets, until it is told to stop; then both hosts see the same.
fn write_and_read(path: &Path, elsewhere: &Path, stop: &AtomicBool) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let mut model = noise(1, FILE);
    file.write_all_at(&model, 0).unwrap();
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut rounds = 0;
    while !stop.load(Ordering::Acquire) {
        let (at, length) = (random(FILE), 1 + random(300_000));
        let bytes = noise(rounds, length.min(FILE - at));
        file.write_all_at(&bytes, at as u64).unwrap();
        model[at..at + bytes.len()].copy_from_slice(&bytes);
        let (at, length) = (random(FILE), 1 + random(500_000));
        let mut part = vec![0; length.min(FILE - at)];
        file.read_exact_at(&mut part, at as u64).unwrap();
        let expected = &model[at..at + part.len()];
        let wrong = part.iter().zip(expected).position(|(read, written)| read != written);
        assert_eq!(
            wrong.map(|n| at + n),
            None,
            "round {rounds}: {} bytes at {at} read otherwise",
            part.len()
        );
        if rounds % 16 == 15 {
            file.sync_all().unwrap();
        }
        rounds += 1;
    }
    file.sync_all().unwrap();
    drop(file);
    assert!(fs::read(path).unwrap() == model, "after {rounds} rounds");
    assert!(fs::read(elsewhere).unwrap() == model, "at the first node");
}

/// Lengthens a file piece by piece, by writes behind its end that the other host sees at once.
fn lengthen(path: &Path, elsewhere: &Path, stop: &AtomicBool) {
    let file = File::create(path).unwrap();
    let piece = |n: u64| noise(n, 1 + (n as usize * 7_919) % 40_000);
    let (mut n, mut end) = (0, 0);
    while !stop.load(Ordering::Acquire) && end < 60_000_000 {
        let bytes = piece(n);
        file.write_all_at(&bytes, end).unwrap();
        (n, end) = (n + 1, end + bytes.len() as u64);
        std::thread::sleep(Duration::from_millis(10));
    }
    file.sync_all().unwrap();
    drop(file);
    let expected: Vec<u8> = (0..n).flat_map(piece).collect();
    assert!(fs::read(path).unwrap() == expected, "{n} pieces");
    assert!(fs::read(elsewhere).unwrap() == expected, "{n} pieces at the first node");
}

/// Writes files of 1 MiB one after the other, which are synced again and again.
fn make_many(path: &Path, elsewhere: &Path, stop: &AtomicBool) {
    let mut files = 0;
    while !stop.load(Ordering::Acquire) {
        // However fast it is: there is to be room for all.
        std::thread::sleep(if files < MANY { Duration::from_millis(30) } else { Duration::from_millis(300) });
        if files == MANY + MANY / 4 {
            continue;
        }
        let file = File::create_new(path.join(files.to_string())).unwrap();
        for (at, bytes) in (0..).zip(noise(files, 1 << 20).chunks(64 << 10)) {
            file.write_all_at(bytes, at * (64 << 10)).unwrap();
            if at % 4 == 3 {
                file.sync_all().unwrap();
            }
        }
        files += 1;
    }
    for n in 0..files {
        let name = n.to_string();
        assert!(fs::read(path.join(&name)).unwrap() == noise(n, 1 << 20), "file {n} of {files}");
        assert!(fs::read(elsewhere.join(&name)).unwrap() == noise(n, 1 << 20), "file {n} at the first node");
    }
}
