//! Files with copies or parity that one host writes: its bytes go straight to all copies, or to rows and log, which belong together whatever happens meanwhile.

use client::native::{self, Session};
use e2e::cluster::{columns, deep_findings, lies_on, wait_for_close, wait_for_mending, words};
use e2e::hosts::Hosts;
use e2e::{Bed, Starter, can_mount, noise, put};
use posix::random::Random;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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

/// Writes to a file and closes it, as it is told on lines: a number, by which the bytes are known, or nothing any more.
const PROGRAM: &str = r#"
import sys, thermocline
session = thermocline.connect(sys.argv[1])
file = session.open(sys.argv[2], 'r+', buffering=0)
for line in sys.stdin:
    with open(line.strip(), 'rb') as bytes:
        file.pwrite(bytes.read(), 0)
    file.flush()
    print(int(file.is_direct()), flush=True)
"#;

/// A session of a program at the other host, which keeps so many bytes for a moment.
fn session(hosts: &Hosts, write_behind: usize) -> Session {
    let options = native::Options { write_behind, ..native::Options::default() };
    Session::connect_with(&hosts.beds[1].state().join("control.sock"), options).unwrap()
}

/// Opens a file of the namespace, as programs call it.
fn open(session: &Session, hosts: &Hosts, here: &Path) -> native::File {
    let path = Path::new("/").join(here.strip_prefix(hosts.first().mount()).unwrap());
    session.open(path, native::OpenOptions::new().read(true).write(true).create(0o644)).unwrap()
}

/// Writes all of it anew.
fn write_by(file: &native::File, bytes: &mut [u8], seed: u64) {
    bytes.copy_from_slice(&noise(seed, bytes.len()));
    for (n, part) in bytes.chunks(PIECE).enumerate() {
        file.write_at(part, (n * PIECE) as u64).unwrap();
    }
}

/// Again and again, until that does not pass through the node.
fn write_straight(hosts: &Hosts, file: &native::File, bytes: &mut [u8]) {
    let mut seed = 200;
    hosts.first().wait("it is written straight", || {
        write_by(file, bytes, seed);
        file.flush().unwrap();
        seed += 1;
        file.is_direct()
    });
}

#[test]
fn what_a_program_with_the_native_library_writes_to_copies_needs_no_first_node() {
    if !can_mount("writing copies by the native library") {
        return;
    }
    let hosts = Hosts::new("0");
    for layout in [COPIES, CODED] {
        let here = directory(&hosts, layout)[0].join("native");
        let session = session(&hosts, 0);
        let file = open(&session, &hosts, &here);
        let mut bytes = vec![0; LENGTH];
        write_straight(&hosts, &file, &mut bytes);
        std::thread::scope(|scope| {
            let still = Still::new(&[hosts.first()]);
            let writer = scope.spawn(|| write_by(&file, &mut bytes, 7));
            let end = Instant::now() + Duration::from_secs(10);
            while !writer.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            let done = writer.is_finished();
            drop(still);
            writer.join().unwrap();
            assert!(done, "{layout}: it waits for the first node");
        });
        assert!(fs::read(&here).unwrap() == bytes, "{layout}: while it is open");
        // It grows, is cut, and is synced, by several threads at once.
        let more = noise(8, 4 * PIECE);
        std::thread::scope(|scope| {
            for (n, part) in more.chunks(PIECE).enumerate() {
                let file = &file;
                scope.spawn(move || file.write_at(part, (LENGTH + n * PIECE) as u64).unwrap());
            }
        });
        bytes.extend_from_slice(&more);
        assert_eq!(file.len().unwrap(), bytes.len() as u64);
        file.set_len(LENGTH as u64 - 1000).unwrap();
        bytes.truncate(LENGTH - 1000);
        file.write_at(b"end", LENGTH as u64).unwrap();
        bytes.resize(LENGTH, 0);
        bytes.extend_from_slice(b"end");
        // What nobody waits for is there behind the close.
        let begun = noise(9, PIECE);
        let _pending = file.write_async(begun.clone(), 0).unwrap();
        bytes[..PIECE].copy_from_slice(&begun);
        file.sync().unwrap();
        file.close().unwrap();
        assert_eq!(fs::metadata(&here).unwrap().len(), bytes.len() as u64);
        assert!(columns(hosts.first(), &here).iter().all(|(_, current)| *current), "a copy was left out");
        all_copies_are(&hosts, &here, &bytes);
    }
    hosts.first().check();
}

/// Two files of one session, at last also one of another and one of a mount: each writes where the others do not.
#[test]
fn programs_that_come_to_write_one_file_leave_equal_copies() {
    if !can_mount("copies with several programs") {
        return;
    }
    let hosts = Hosts::new("0");
    for layout in [COPIES, CODED] {
        let dirs = directory(&hosts, layout);
        let [here, there] = dirs.map(|dir| dir.join("native"));
        let sessions = [session(&hosts, 8 << 20), session(&hosts, 0)];
        let first = open(&sessions[0], &hosts, &here);
        let mut bytes = vec![0; LENGTH];
        for turn in 0..3 {
            write_straight(&hosts, &first, &mut bytes);
            let same = open(&sessions[0], &hosts, &here);
            let others = (turn > 0).then(|| {
                (open(&sessions[1], &hosts, &here), OpenOptions::new().write(true).open(&there).unwrap())
            });
            // Two of one session may get rights when those from before are forgotten: that takes some seconds.
            let end = Instant::now() + Duration::from_secs(if others.is_some() { 1 } else { 5 });
            std::thread::scope(|scope| {
                for (n, part) in bytes.chunks_mut(LENGTH / 4).enumerate() {
                    let (first, same, others) = (&first, &same, others.as_ref());
                    scope.spawn(move || {
                        let mut seed = 1000 * (turn + 1) + 100_000 * n as u64;
                        while Instant::now() < end {
                            seed += 1;
                            part.copy_from_slice(&noise(seed, part.len()));
                            for (k, piece) in part.chunks(70_000).enumerate() {
                                let at = (n * (LENGTH / 4) + k * 70_000) as u64;
                                match (n, others) {
                                    (2, Some((other, _))) => other.write_at(piece, at).unwrap(),
                                    (3, Some((_, mount))) => mount.write_all_at(piece, at).unwrap(),
                                    (0 | 2, _) => first.write_at(piece, at).unwrap(),
                                    _ => same.write_at(piece, at).unwrap(),
                                }
                            }
                        }
                    });
                }
            });
            same.close().unwrap();
            drop(others);
            first.flush().unwrap();
            assert!(fs::read(&here).unwrap() == bytes, "{layout}, turn {turn}");
        }
        first.close().unwrap();
        all_copies_are(&hosts, &here, &bytes);
    }
    hosts.first().check();
}

/// Random calls of a program, at which the first host looks now and then, and into which it writes.
#[test]
fn what_a_program_does_to_copies_in_any_order_is_what_everybody_reads() {
    if !can_mount("random calls of a program on copies") {
        return;
    }
    let hosts = Hosts::new("0");
    let mut straight = 0;
    for layout in [COPIES, CODED] {
        let ([here, _], file, mut model) = written_there(&hosts, layout);
        drop(file);
        let session = session(&hosts, 4 << 20);
        let mut one = open(&session, &hosts, &here);
        let mut random = Random::new(12);
        let end = Instant::now() + Duration::from_secs(5);
        let mut step = 0;
        while Instant::now() < end || step < 200 {
            step += 1;
            let at = random.below(model.len() + 1);
            let length = 1 + random.below(PIECE);
            let bytes = noise(step, length);
            match random.below(80) {
                0 => {
                    one.flush().unwrap();
                    assert!(fs::read(&here).unwrap() == model, "step {step}: at the first host");
                }
                1 => {
                    model.truncate(at);
                    one.set_len(at as u64).unwrap();
                }
                2 => one.sync().unwrap(),
                3 => {
                    one.close().unwrap();
                    one = open(&session, &hosts, &here);
                }
                4 => {
                    one.flush().unwrap();
                    put(&OpenOptions::new().write(true).open(&here).unwrap(), &mut model, at as u64, &bytes);
                }
                5..=12 => {
                    let mut found = vec![0; length.min(model.len() - at)];
                    assert_eq!(one.read_at(&mut found, at as u64).unwrap(), found.len(), "step {step}");
                    assert!(found == model[at..][..found.len()], "step {step}: at {at}");
                }
                _ => {
                    let at = at % (LENGTH * 2);
                    one.write_at(&bytes, at as u64).unwrap();
                    model.resize(model.len().max(at + length), 0);
                    model[at..at + length].copy_from_slice(&bytes);
                }
            }
            straight += usize::from(one.is_direct());
        }
        one.close().unwrap();
        all_copies_are(&hosts, &here, &model);
    }
    assert!(straight > 60, "it went through the node nearly always: {straight}");
    hosts.first().check();
}

/// It dies between two copies of what it writes.
#[test]
fn a_program_that_dies_while_it_writes_copies_leaves_them_equal() {
    if !can_mount("copies of a program that dies") {
        return;
    }
    let hosts = Hosts::new("0");
    let ([here, _], file, bytes) = written_there(&hosts, COPIES);
    drop(file);
    let place = tempfile::tempdir().unwrap();
    let given = |seed: u64, length: usize| {
        let path = place.path().join(seed.to_string());
        fs::write(&path, noise(seed, length)).unwrap();
        path
    };
    let mut program = Command::new("python3")
        .args(["-c", PROGRAM])
        .arg(hosts.beds[1].state().join("control.sock"))
        .arg(Path::new("/").join(here.strip_prefix(hosts.first().mount()).unwrap()))
        .env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/python"))
        .env("LIBTHERMO", std::env::current_exe().unwrap().with_file_name("libthermo.so"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut orders, answers) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
    let mut answers = BufReader::new(answers).lines();
    let mut seed = 300;
    hosts.first().wait("it is written straight", || {
        seed += 1;
        writeln!(orders, "{}", given(seed, LENGTH).display()).unwrap();
        answers.next().unwrap().unwrap() == "1"
    });
    let before = noise(seed, LENGTH);
    assert!(before.len() == bytes.len() && fs::read(&here).unwrap() == before);
    let last = noise(50, PIECE);
    let mover = hosts.of(lies_on(hosts.first(), &here)[1]);
    let still = Still::new(&[mover]);
    writeln!(orders, "{}", given(50, PIECE).display()).unwrap();
    // It is at one of them.
    std::thread::sleep(Duration::from_millis(500));
    program.kill().unwrap();
    program.wait().unwrap();
    drop(still);
    hosts.first().wait("one copy counts", || {
        hosts.first().log().contains("what a host wrote last may be in another copy only")
    });
    let found = fs::read(&here).unwrap();
    for (n, unit) in found.chunks(4096).enumerate() {
        let at = n * 4096;
        let new = at < PIECE && unit[..(PIECE - at).min(4096)] == last[at..(at + 4096).min(PIECE)];
        assert!(new || *unit == before[at..(at + 4096).min(LENGTH)], "byte {at} is what nobody wrote");
    }
    all_copies_are(&hosts, &here, &found);
}
