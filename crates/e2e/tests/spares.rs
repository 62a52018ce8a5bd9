//! What several hosts write to one file with parity stays in the memory of the first node until it fills rows, and each host has a spare of what it wrote: whatever happens to
//! that node, what was answered is there, and nothing older comes over it.

use client::native::{self, OpenOptions as Open, Options, Session};
use e2e::cluster::{columns, configure, deep_findings, join, up, wait_for_close, words};
use e2e::hosts::Hosts;
use e2e::{Bed, Starter, can_mount, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CODED: &str = "--code 2+1 --stripe-size 64KiB";
/// Bytes of one write.
const PIECE: usize = 47_008;
/// Bytes of a row.
const ROW: usize = 128 << 10;
/// After so many writes a host keeps what it writes.
const STEADY: usize = 12;

/// A cluster with two more hosts that have no target, and a directory with parity.
struct World {
    hosts: Hosts,
    writers: [Bed; 2],
    name: String,
}

impl World {
    fn new() -> Self {
        let hosts = Hosts::new("0");
        let writers = ["fifth", "sixth"].map(|name| {
            let bed = Bed::new("");
            configure(&bed, "");
            let path = bed.state().join("config.toml");
            let config = fs::read_to_string(&path).unwrap();
            fs::write(&path, config.split_once("[[targets]]").expect("its target").0).unwrap();
            bed.up();
            join(hosts.first(), &bed, name);
            fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            bed.ok([OsStr::new("mount"), bed.mount().as_os_str()]);
            bed
        });
        let dir = hosts.here.with_file_name("coded");
        fs::create_dir(&dir).unwrap();
        hosts.first().ok(words("layout set", &dir, CODED));
        Self { hosts, writers, name: String::new() }
    }

    fn first(&self) -> &Bed {
        self.hosts.first()
    }

    /// A file that both hosts have open, and have written so much to that they keep what they write now: its first rows, of which they wrote pieces by turns.
    fn open(&mut self, name: &str) -> ([File; 2], Vec<u8>) {
        self.name = format!("coded/{name}");
        fs::write(self.here(), b"").unwrap();
        let files = [0, 1].map(|n| {
            let path = self.writers[n].mount().join(&self.name);
            OpenOptions::new().read(true).write(true).open(path).unwrap()
        });
        let bytes = noise(1, 2 * STEADY * PIECE);
        write_by_turns(&files, &bytes, 0);
        (files, bytes)
    }

    /// The same by programs with the native library on both; the second one writes at once what it writes.
    fn open_by_library(&mut self, name: &str) -> ([native::File; 2], Vec<u8>) {
        self.name = format!("coded/{name}");
        fs::write(self.here(), b"").unwrap();
        let files = [8 << 20, 0].into_iter().zip(&self.writers).map(|(write_behind, writer)| {
            let options = Options { write_behind, patience: Duration::from_secs(60), ..Options::default() };
            let session = Session::connect_with(&writer.state().join("control.sock"), options).unwrap();
            session.open(format!("/{}", self.name), Open::new().read(true).write(true)).unwrap()
        });
        let files: [native::File; 2] = files.collect::<Vec<_>>().try_into().unwrap();
        let bytes = noise(1, 2 * STEADY * PIECE);
        by_turns(&bytes, 0, |n, piece, at| files[n].write_at(piece, at).unwrap());
        files[0].flush().unwrap();
        (files, bytes)
    }

    /// Its path at the first host.
    fn here(&self) -> PathBuf {
        self.first().mount().join(&self.name)
    }

    /// The first node is killed and started anew.
    fn restart(&self) {
        self.restart_behind(|| ());
    }

    /// The same just when something was done. (No program is started in between: it would close what is open here, and so have it flushed.)
    fn restart_behind(&self, last: impl FnOnce()) {
        let start = Starter::of(self.first());
        let pid = Pid::from_raw(self.first().pid()).unwrap();
        last();
        kill_process(pid, Signal::KILL).unwrap();
        self.first().wait_for_end(pid);
        start.now();
        self.first().wait("the targets", || up(self.first()).len() == 3);
    }

    /// It is mounted there once more.
    fn mount_again(&self) {
        let mount = self.first().mount();
        let gone = Command::new("umount").arg("-l").arg(&mount).status().unwrap();
        assert!(gone.success());
        self.first().ok([OsStr::new("mount"), mount.as_os_str()]);
    }

    /// Hosts have returned something.
    fn returned(&self) -> bool {
        self.writers.iter().any(|writer| writer.log().contains("were brought again to the node"))
    }

    /// All of it lies as it should, and nothing was left out.
    fn is(&self, bytes: &[u8]) {
        if fs::symlink_metadata(self.here()).is_err() {
            self.mount_again();
        }
        wait_for_close(self.first(), &self.here());
        same(&fs::read(self.here()).unwrap(), bytes, "what is read at the first host");
        assert!(columns(self.first(), &self.here()).iter().all(|(_, current)| *current));
        let found = deep_findings(self.first(), self.here().file_name().unwrap().to_str().unwrap());
        assert!(found.is_empty(), "{found:#?}");
    }
}

fn same(found: &[u8], bytes: &[u8], what: &str) {
    let differs = found.iter().zip(bytes).position(|(one, other)| one != other);
    assert!(
        found == bytes,
        "{what}: {} bytes of {}, other ones from {differs:?} on",
        found.len(),
        bytes.len()
    );
}

/// Both write every other piece.
fn by_turns(bytes: &[u8], from: usize, write: impl Fn(usize, &[u8], u64) + Sync) {
    std::thread::scope(|scope| {
        for n in 0..2 {
            let write = &write;
            scope.spawn(move || {
                for (number, piece) in bytes.chunks(PIECE).enumerate().skip(n).step_by(2) {
                    write(n, piece, (from + number * PIECE) as u64);
                }
            });
        }
    });
}

fn write_by_turns(files: &[File; 2], bytes: &[u8], from: usize) {
    by_turns(bytes, from, |n, piece, at| files[n].write_all_at(piece, at).unwrap());
}

#[test]
fn what_two_hosts_write_by_turns_outlives_the_first_node_again_and_again() {
    if !can_mount("hosts that write one file") {
        return;
    }
    let mut world = World::new();
    let (files, mut bytes) = world.open("file");
    let more = noise(2, 600 * PIECE + 1000);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_by_turns(&files, &more, bytes.len()));
        let mut restarts = 0;
        while !writing.is_finished() {
            world.restart();
            restarts += 1;
            std::thread::sleep(Duration::from_millis(300));
        }
        assert!(restarts > 0);
    });
    bytes.extend_from_slice(&more);
    // Once more when both have written all, and neither has synced.
    let last = noise(3, PIECE);
    world.restart_behind(|| files[0].write_all_at(&last, bytes.len() as u64).unwrap());
    bytes.extend_from_slice(&last);
    for writer in &world.writers {
        same(&fs::read(writer.mount().join(&world.name)).unwrap(), &bytes, "at a host that has it open");
    }
    assert!(world.returned(), "nothing was kept");
    files.iter().for_each(|file| file.sync_all().unwrap());
    drop(files);
    world.is(&bytes);
    world.first().check();
}

/// So it is of programs with the native library on these hosts, which keep spares themselves.
#[test]
fn what_programs_of_two_hosts_write_by_turns_outlives_the_first_node_again_and_again() {
    if !can_mount("programs that write one file") {
        return;
    }
    let mut world = World::new();
    let (files, mut bytes) = world.open_by_library("file");
    let more = noise(2, 600 * PIECE + 1000);
    std::thread::scope(|scope| {
        let (len, files, more) = (bytes.len(), &files, &more);
        let write = move |n: usize, piece: &[u8], at| files[n].write_at(piece, at).unwrap();
        let writing = scope.spawn(move || by_turns(more, len, write));
        let mut restarts = 0;
        while !writing.is_finished() {
            world.restart();
            restarts += 1;
            std::thread::sleep(Duration::from_millis(1500));
        }
        assert!(restarts > 0);
    });
    bytes.extend_from_slice(&more);
    files[0].flush().unwrap();
    // Once more when both have written all, and neither has synced: what a program brings that does nothing.
    let last = noise(3, PIECE);
    world.restart_behind(|| files[1].write_at(&last, bytes.len() as u64).unwrap());
    bytes.extend_from_slice(&last);
    assert!(world.first().log().contains("hosts may return what they have kept of 1 files"));
    let begun = Instant::now();
    let found = fs::read(world.writers[0].mount().join(&world.name)).unwrap();
    same(&found, &bytes, "at another host");
    assert!(begun.elapsed() < Duration::from_secs(20), "it was waited for in vain: {:?}", begun.elapsed());
    for file in files {
        let mut found = vec![0; bytes.len()];
        assert_eq!(
            (file.len().unwrap(), file.read_at(&mut found, 0).unwrap()),
            (found.len() as u64, found.len())
        );
        same(&found, &bytes, "by a program that has it open");
        file.sync().unwrap();
        file.close().unwrap();
    }
    world.is(&bytes);
    world.first().check();
}

/// With each write in the log it is more than twice as much.
#[test]
fn what_two_hosts_write_by_turns_goes_to_rows_without_the_log() {
    if !can_mount("hosts that write one file") {
        return;
    }
    let mut world = World::new();
    let (files, bytes) = world.open("file");
    files.iter().for_each(|file| file.sync_all().unwrap());
    let before = world.hosts.used();
    let more = noise(4, 64 * ROW);
    write_by_turns(&files, &more, bytes.len().next_multiple_of(ROW));
    let used = world.hosts.used() - before;
    assert!(used < 2 * more.len() as u64, "{used} bytes of targets for {}", more.len());
    drop(files);
    let mut all = bytes;
    all.resize(all.len().next_multiple_of(ROW), 0);
    all.extend_from_slice(&more);
    world.is(&all);
}

#[test]
fn what_one_host_has_a_spare_of_comes_not_over_what_was_written_there_later() {
    if !can_mount("hosts that write one file") {
        return;
    }
    let mut world = World::new();
    for (n, by) in ["another host", "the first node's host", "a cut"].into_iter().enumerate() {
        if n > 0 {
            world.mount_again();
        }
        // Of this one what is kept comes back.
        let (beside, end) = world.open(&format!("beside{n}"));
        let (files, mut bytes) = world.open(&format!("file{n}"));
        let here = OpenOptions::new().write(true).open(world.here()).unwrap();
        // Part of a row that nobody completes, and what comes over it.
        let (at, kept, later) = (bytes.len() as u64, noise(5, 30_000), noise(6, 10_000));
        world.restart_behind(|| {
            files[0].write_all_at(&kept, at).unwrap();
            match by {
                "another host" => files[1].write_all_at(&later, at + 5_000).unwrap(),
                "the first node's host" => {
                    here.write_all_at(&later, at + 5_000).unwrap();
                    here.sync_all().unwrap();
                }
                _ => {
                    here.set_len(at + 5_000).unwrap();
                    here.sync_all().unwrap();
                }
            }
            beside[0].write_all_at(&[1; 1000], end.len() as u64).unwrap();
        });
        bytes.extend_from_slice(&kept);
        match by {
            "a cut" => bytes.truncate(at as usize + 5_000),
            _ => bytes[at as usize + 5_000..at as usize + 15_000].copy_from_slice(&later),
        }
        for (file, writer) in files.iter().zip(&world.writers) {
            same(&fs::read(writer.mount().join(&world.name)).unwrap(), &bytes, by);
            file.sync_all().unwrap();
        }
        drop(files);
        world.is(&bytes);
    }
    assert!(world.returned(), "nothing was kept");
    world.first().check();
}

/// A program of a host that stands still later: of what it has open nothing is inherited by programs that are started meanwhile.
const PROGRAM: &str = r#"
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
piece = int(sys.argv[2])
for n in range(0, 24, 2):
    os.pwrite(file, b"a" * piece, n * piece)
def next():
    print("done", flush=True)
    sys.stdin.readline()
next()
os.fsync(file)
os.pwrite(file, b"b" * 30000, 24 * piece)
next()
try:
    os.fsync(file)
    sys.exit("what it wrote is lost, and it was not told")
except OSError:
    pass
os.pwrite(file, b"c" * 100, 0)
os.fsync(file)
os.close(file)
"#;

/// The same with the native library.
const LIBRARY: &str = r#"
import sys, thermocline
session = thermocline.connect(sys.argv[1], patience=60.0, write_behind=0)
file = session.open(sys.argv[2], "r+", buffering=0)
piece = int(sys.argv[3])
for n in range(0, 24, 2):
    file.pwrite(b"a" * piece, n * piece)
def next():
    print("done", flush=True)
    sys.stdin.readline()
next()
file.fsync()
file.pwrite(b"b" * 30000, 24 * piece)
next()
try:
    file.fsync()
    sys.exit("what it wrote is lost, and it was not told")
except OSError:
    pass
file.pwrite(b"c" * 100, 0)
file.fsync()
file.close()
"#;

#[test]
fn what_a_host_returns_too_late_is_refused_and_its_programs_are_told() {
    if !can_mount("hosts that write one file") {
        return;
    }
    let world = World::new();
    let mut program = Command::new("python3");
    program.args(["-c", PROGRAM]).arg(world.writers[0].mount().join("coded/file"));
    comes_too_late(world, program, |world, _, signal| world.writers[0].signal(signal));
}

#[test]
fn what_a_program_with_the_library_returns_too_late_is_refused_and_it_is_told() {
    if !can_mount("programs that write one file") {
        return;
    }
    let world = World::new();
    let mut program = Command::new("python3");
    program.args(["-c", LIBRARY]).arg(world.writers[0].state().join("control.sock")).arg("/coded/file");
    program.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/python"));
    program.env("LIBTHERMO", std::env::current_exe().unwrap().with_file_name("libthermo.so"));
    comes_too_late(world, program, |_, program, signal| {
        kill_process(Pid::from_raw(program.id().cast_signed()).unwrap(), signal).unwrap();
    });
}

/// The program writes by turns with another host, and stands still, by a signal, while the first node is killed and started anew.
fn comes_too_late(mut world: World, mut program: Command, send: impl Fn(&World, &Child, Signal)) {
    world.name = "coded/file".into();
    fs::write(world.here(), b"").unwrap();
    let path = world.writers[1].mount().join(&world.name);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut program =
        program.arg(PIECE.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut asks, mut says) =
        (program.stdin.take().unwrap(), BufReader::new(program.stdout.take().unwrap()));
    let mut done = || {
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    };
    (1..24).step_by(2).for_each(|n| file.write_all_at(&[b'x'; PIECE], (n * PIECE) as u64).unwrap());
    done();
    file.sync_all().unwrap();
    asks.write_all(b"\n").unwrap();
    done();
    send(&world, &program, Signal::STOP);
    world.restart();
    // It waits for the host that stands still, and no longer.
    let found = fs::read(&path).unwrap();
    let mut bytes: Vec<u8> = (0..24).flat_map(|n| [b"ax"[n % 2]; PIECE]).collect();
    same(&found[..bytes.len()], &bytes, "what was synced");
    let newer = noise(7, 30_000);
    file.write_all_at(&newer, bytes.len() as u64).unwrap();
    send(&world, &program, Signal::CONT);
    asks.write_all(b"\n").unwrap();
    assert!(program.wait().unwrap().success());
    file.sync_all().unwrap();
    drop(file);
    bytes.extend_from_slice(&newer);
    bytes[..100].fill(b'c');
    world.is(&bytes);
}
