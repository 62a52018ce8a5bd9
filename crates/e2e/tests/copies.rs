//! Files with copies or parity that one host writes: its bytes go straight to all copies, or to rows and log, which belong together whatever happens meanwhile.

use e2e::cluster::{columns, deep_findings, lies_on, wait_for_close, wait_for_mending, words};
use e2e::hosts::Hosts;
use e2e::{Bed, Starter, can_mount, noise, put};
use posix::random::Random;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const COPIES: &str = "--copies 2 --stripe-size 64KiB";
/// All targets have something of it.
const CODED: &str = "--code 2+1 --stripe-size 64KiB";
const LENGTH: usize = 6_000_000;
/// Bytes of one write.
const PIECE: usize = 300_000;

/// A directory with copies: at the first host, and at the one that writes.
fn directory(hosts: &Hosts, layout: &str) -> [PathBuf; 2] {
    let dirs = [&hosts.here, &hosts.there].map(|dir| dir.with_file_name(layout.replace(' ', "")));
    fs::create_dir(&dirs[0]).unwrap();
    hosts.first().ok(words("layout set", &dirs[0], layout));
    dirs
}

/// A file that the other host has made and has open, with no copy there; its paths at both, and what is in it.
fn written_there(hosts: &Hosts, layout: &str) -> ([PathBuf; 2], File, Vec<u8>) {
    let dirs = directory(hosts, layout);
    let bytes = noise(1, LENGTH);
    for n in 0..30 {
        let paths = dirs.clone().map(|dir| dir.join(format!("file{n}")));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&paths[1]).unwrap();
        let on_others = lies_on(hosts.first(), &paths[0]);
        if layout == CODED || on_others.iter().all(|target| hosts.of(*target).pid() != hosts.beds[1].pid()) {
            file.write_all_at(&bytes, 0).unwrap();
            return (paths, file, bytes);
        }
    }
    panic!("no file that lies on others");
}

fn write_over(file: &File, bytes: &mut [u8], seed: u64) {
    bytes.copy_from_slice(&noise(seed, bytes.len()));
    for (n, part) in bytes.chunks(PIECE).enumerate() {
        file.write_all_at(part, (n * PIECE) as u64).unwrap();
    }
}

/// Nodes that stand still until this is dropped.
struct Still<'h>(Vec<&'h Bed>);

impl<'h> Still<'h> {
    fn new(beds: &[&'h Bed]) -> Self {
        beds.iter().for_each(|bed| bed.signal(Signal::STOP));
        Self(beds.to_vec())
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|bed| bed.signal(Signal::CONT));
    }
}

/// Writes all of a file anew, again and again, until that needs no first node.
fn write_without_first(hosts: &Hosts, file: &File, bytes: &mut [u8]) {
    let mut seed = 100;
    hosts.first().wait("it is written without the first node", || {
        write_over(file, bytes, seed);
        seed += 2;
        std::thread::scope(|scope| {
            let still = Still::new(&[hosts.first()]);
            let writer = scope.spawn(|| write_over(file, bytes, seed + 1));
            let end = Instant::now() + Duration::from_secs(10);
            while !writer.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            let done = writer.is_finished();
            drop(still);
            writer.join().unwrap();
            done
        })
    });
}

/// All copies have these bytes.
fn all_copies_are(hosts: &Hosts, path: &Path, bytes: &[u8]) {
    wait_for_close(hosts.first(), path);
    wait_for_mending(hosts.first(), path);
    assert!(fs::read(path).unwrap() == bytes, "what is read at the first host");
    let found = deep_findings(hosts.first(), path.file_name().unwrap().to_str().unwrap());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_one_host_writes_to_copies_needs_no_first_node_and_everybody_sees_it() {
    if !can_mount("writing copies straight") {
        return;
    }
    let hosts = Hosts::new("0");
    for layout in [COPIES, CODED] {
        let ([here, there], file, mut bytes) = written_there(&hosts, layout);
        write_without_first(&hosts, &file, &mut bytes);
        assert!(fs::read(&here).unwrap() == bytes, "at the first host, while it is open");
        assert!(fs::read(&there).unwrap() == bytes, "at the same host");
        // It grows, and is synced.
        let more = noise(7, 3 * PIECE);
        file.write_all_at(&more, bytes.len() as u64).unwrap();
        bytes.extend_from_slice(&more);
        assert_eq!(fs::metadata(&here).unwrap().len(), bytes.len() as u64);
        file.sync_all().unwrap();
        drop(file);
        assert!(columns(hosts.first(), &here).iter().all(|(_, current)| *current), "a copy was left out");
        all_copies_are(&hosts, &here, &bytes);
    }
    hosts.first().check();
}

/// Each writes where the other does not; what one has written is there when the other has opened the file, and stays.
#[test]
fn two_hosts_that_come_to_write_one_file_leave_equal_copies() {
    if !can_mount("copies with two writers") {
        return;
    }
    let hosts = Hosts::new("0");
    for layout in [COPIES, CODED] {
        let ([here, _], file, mut bytes) = written_there(&hosts, layout);
        for turn in 0..3 {
            write_without_first(&hosts, &file, &mut bytes);
            let half = LENGTH / 2;
            let (left, right) = bytes.split_at_mut(half);
            let writes = |file: &File, part: &mut [u8], at: usize, seed: u64| {
                for pass in 0..4 {
                    part.copy_from_slice(&noise(seed + pass, part.len()));
                    for (n, piece) in part.chunks(PIECE).enumerate() {
                        file.write_all_at(piece, (at + n * PIECE) as u64).unwrap();
                    }
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| writes(&file, left, 0, 1000 * turn));
                std::thread::sleep(Duration::from_millis(50));
                let other = OpenOptions::new().write(true).open(&here).unwrap();
                writes(&other, right, half, 1000 * turn + 500);
            });
            assert!(fs::read(&here).unwrap() == bytes, "turn {turn}");
        }
        drop(file);
        all_copies_are(&hosts, &here, &bytes);
    }
    hosts.first().check();
}

/// What was on its way to the mover that stands still comes there late, and is not to be seen.
#[test]
fn a_copy_whose_mover_stands_still_is_left_out_and_gets_what_was_written_last() {
    if !can_mount("copies without a mover") {
        return;
    }
    let hosts = Hosts::new("0");
    for layout in [COPIES, CODED] {
        let ([here, _], file, mut bytes) = written_there(&hosts, layout);
        write_without_first(&hosts, &file, &mut bytes);
        let movers = lies_on(hosts.first(), &here).into_iter().map(|target| hosts.of(target));
        let mover = movers.max_by_key(|bed| bed.pid() != hosts.beds[1].pid()).expect("a mover");
        let still = Still::new(&[mover]);
        write_over(&file, &mut bytes, 11);
        assert!(fs::read(&here).unwrap() == bytes, "without it");
        write_over(&file, &mut bytes, 12);
        drop(still);
        write_over(&file, &mut bytes, 13);
        assert!(fs::read(&here).unwrap() == bytes, "when it is back");
        file.sync_all().unwrap();
        drop(file);
        all_copies_are(&hosts, &here, &bytes);
    }
    hosts.first().check();
}

#[test]
fn a_first_node_that_is_started_anew_finds_what_was_written_to_copies_meanwhile() {
    if !can_mount("copies over a restart") {
        return;
    }
    let hosts = Hosts::new("0");
    for layout in [COPIES, CODED] {
        let ([here, _], file, mut bytes) = written_there(&hosts, layout);
        write_without_first(&hosts, &file, &mut bytes);
        let start = Starter::of(hosts.first());
        std::thread::scope(|scope| {
            let bytes = &mut bytes;
            let writer = scope.spawn(|| (20..26).for_each(|seed| write_over(&file, bytes, seed)));
            hosts.first().kill();
            start.now();
            writer.join().unwrap();
        });
        hosts.first().ok([OsStr::new("mount"), hosts.first().mount().as_os_str()]);
        assert!(fs::read(&here).unwrap() == bytes, "while it is open");
        file.sync_all().unwrap();
        drop(file);
        all_copies_are(&hosts, &here, &bytes);
    }
    hosts.first().check();
}

/// It dies between two copies of what it writes.
#[test]
fn a_host_that_dies_while_it_writes_copies_leaves_them_equal() {
    if !can_mount("copies of a host that dies") {
        return;
    }
    let hosts = Hosts::new("0");
    let ([here, there], file, mut bytes) = written_there(&hosts, COPIES);
    // What is written through one handle is the affair of the other, too.
    let other = OpenOptions::new().write(true).open(&there).unwrap();
    write_without_first(&hosts, &file, &mut bytes);
    file.sync_all().unwrap();
    drop(file);
    let file = other;
    let before = bytes.clone();
    let last = noise(50, PIECE);
    let mover = hosts.of(lies_on(hosts.first(), &here)[1]);
    let still = Still::new(&[mover]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write_at(&last, 0));
        // It is at one of them.
        std::thread::sleep(Duration::from_millis(500));
        hosts.beds[1].kill();
        assert!(writer.join().unwrap().is_err(), "nobody has answered");
    });
    drop((file, still));
    // Whoever reads it reads the same each time, as soon as the node knows that the host is gone.
    let other = File::open(&here).unwrap();
    let read = || {
        let mut found = vec![0; LENGTH];
        other.read_exact_at(&mut found, 0).unwrap();
        found
    };
    hosts.first().wait("one copy counts", || {
        hosts.first().log().contains("what a host wrote last may be in another copy only")
    });
    let found = read();
    for (n, unit) in found.chunks(4096).enumerate() {
        let at = n * 4096;
        let new = at < PIECE && unit[..(PIECE - at).min(4096)] == last[at..(at + 4096).min(PIECE)];
        assert!(new || *unit == before[at..(at + 4096).min(LENGTH)], "byte {at} is what nobody wrote");
    }
    for _ in 0..10 {
        assert!(read() == found, "it is another file each time");
    }
    drop(other);
    all_copies_are(&hosts, &here, &found);
}

/// Random calls at one host, which the other one looks at now and then.
#[test]
fn what_one_host_does_to_copies_in_any_order_is_what_everybody_reads() {
    if !can_mount("random calls on copies") {
        return;
    }
    let hosts = Hosts::new("0");
    for layout in [COPIES, CODED] {
        let ([here, there], mut one, mut model) = written_there(&hosts, layout);
        let mut random = Random::new(11);
        let end = Instant::now() + Duration::from_secs(6);
        let mut step = 0;
        while Instant::now() < end || step < 200 {
            step += 1;
            let at = random.below(model.len() + 1) as u64;
            let length = 1 + random.below(PIECE);
            match random.below(60) {
                0 => assert!(fs::read(&here).unwrap() == model, "step {step}: at the first host"),
                1 => {
                    model.truncate(at as usize);
                    one.set_len(at).unwrap();
                }
                2 => one.sync_all().unwrap(),
                3 => one = OpenOptions::new().read(true).write(true).open(&there).unwrap(),
                4 => put(
                    &OpenOptions::new().write(true).open(&here).unwrap(),
                    &mut model,
                    at,
                    &noise(step, length),
                ),
                5..=12 => {
                    let mut found = vec![0; length.min(model.len() - at as usize)];
                    one.read_exact_at(&mut found, at).unwrap();
                    assert!(found == model[at as usize..][..found.len()], "step {step}: at {at}");
                }
                _ => put(&one, &mut model, at % (LENGTH as u64 * 2), &noise(step, length)),
            }
        }
        drop(one);
        all_copies_are(&hosts, &here, &model);
    }
    hosts.first().check();
}
