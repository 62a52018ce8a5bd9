//! Programs with the preload library, whose files lie on targets: at the first node, and on a host whose node holds no names.

use e2e::hosts::Hosts;
use e2e::preloaded::{Preloaded, run};
use e2e::{Bed, can_mount, noise};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn preloaded(bed: &Bed) -> Preloaded {
    Preloaded::new(bed.path("preload.log"))
}

fn python(script: &str, file: &Path) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(file);
    command
}

#[test]
fn programs_do_on_targets_what_they_do_without_it() {
    if !can_mount("programs with the preload library") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, joined) = (hosts.first(), &hosts.beds[1]);
    preloaded(joined).does_the_same(&hosts.there);
    preloaded(joined).calls_at_random(&hosts.there, 1..4);
    preloaded(first).calls_at_random(&hosts.here, 4..7);
    first.check();
}

#[test]
fn programs_of_two_hosts_with_it_and_without_see_what_the_others_write() {
    if !can_mount("programs with the preload library") {
        return;
    }
    let hosts = Hosts::new("0");
    let [here, there] = [&hosts.here, &hosts.there];
    for (n, (host, mine, others)) in
        [(1, there, here), (1, there, there), (0, here, there), (0, here, here)].into_iter().enumerate()
    {
        let name = format!("shared{n}");
        preloaded(&hosts.beds[host]).sees_what_others_write(&mine.join(&name), &others.join(&name));
    }
    hosts.first().check();
}

/// It hears from movers by threads of its own, over connections of its own: the program notices neither.
#[test]
fn threads_and_connections_of_the_library_are_out_of_the_programs_way() {
    if !can_mount("programs with the preload library") {
        return;
    }
    let hosts = Hosts::new("0");
    let (joined, program) = (&hosts.beds[1], preloaded(&hosts.beds[1]));
    program.keeps_out_of_the_way(&hosts.there.join("file"), &joined.path("local"));
    // Whatever comes to the process comes to the thread that it knows of; what it blocks waits, also with others that do not block it.
    let script = "
import os, signal, sys, threading
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(fd, b'a' * 300000)
assert os.pread(fd, 2, 299999) == b'a'
others = [t for t in os.listdir('/proc/self/task') if int(t) != os.getpid()]
assert len(others) >= 2, others
came = []
signal.signal(signal.SIGUSR1, lambda *_: came.append(threading.get_native_id()))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
os.write(fd, b'b' * 300000)
assert not came and signal.SIGUSR1 in signal.sigpending()
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
assert came == [os.getpid()], came
";
    program.with_run(&mut python(script, &hosts.there.join("signals")));
    assert!(program.said().contains("600000 written past the mount"), "{}", program.said());
    hosts.first().check();
}

/// A limit to the length of files holds, and what is synced is on record; a program that is killed loses nothing that it was told was written.
#[test]
fn limits_hold_and_what_was_written_stays_when_the_program_is_killed() {
    if !can_mount("programs with the preload library") {
        return;
    }
    let hosts = Hosts::new("0");
    let program = preloaded(&hosts.beds[1]);
    let script = "
import errno, os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
assert os.write(fd, b'a' * 100000) == 100000
resource.setrlimit(resource.RLIMIT_FSIZE, (150000, resource.RLIM_INFINITY))
assert os.write(fd, b'b' * 100000) == 50000
try: os.write(fd, b'c')
except OSError as e: assert e.errno == errno.EFBIG, e
else: raise SystemExit('it was written')
assert os.fstat(fd).st_size == 150000
";
    program.with_run(&mut python(script, &hosts.there.join("limited")));
    assert!(program.said().contains("100000 written past the mount"), "{}", program.said());
    let script = "
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for n in range(30):
    os.write(fd, bytes([n]) * 70000)
    if n % 10 == 0: os.fsync(fd)
print('written', flush=True)
time.sleep(600)
";
    let mut command = python(script, &hosts.there.join("killed"));
    program.with(command.stdout(Stdio::piped()));
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(line, "written\n");
    for dir in [&hosts.here, &hosts.there] {
        let found = fs::read(dir.join("killed")).unwrap();
        assert_eq!(found.len(), 2_100_000);
        assert!(found.chunks(70_000).zip(0_u8..).all(|(part, n)| part.iter().all(|byte| *byte == n)));
    }
    hosts.first().check();
}

/// What is moved in small pieces stays with the mount, which keeps them together.
#[test]
fn who_moves_little_at_once_stays_with_the_mount() {
    if !can_mount("programs with the preload library") {
        return;
    }
    let hosts = Hosts::new("0");
    let program = preloaded(&hosts.beds[1]);
    let past = |size: &str| {
        let path = hosts.there.join(size);
        for way in ["wb", "r+b", "rb"] {
            let script = format!(
                "
import sys
with open(sys.argv[1], '{way}', buffering=0) as f:
    for n in range(3000000 // {size}):
        f.read({size}) if '{way}' == 'rb' else f.write(b'x' * {size})
"
            );
            program.with_run_as_usual(&mut python(&script, &path));
        }
        let said = program.said();
        program.forget();
        said.matches("goes past the mount").count()
    };
    assert_eq!(past("4096"), 0);
    // Written in such pieces it stays, read it does not.
    assert_eq!(past("65536"), 1);
    assert_eq!(past("1000000"), 3);
    hosts.first().check();
}

/// Nobody writes it: the right to read it at its targets is lent, for some seconds at a time, and ends when somebody opens it for writing.
#[test]
fn who_only_reads_a_file_with_copies_or_parity_reads_it_at_its_targets() {
    if !can_mount("programs with the preload library") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    for (name, layout) in [("copies", "--copies 2"), ("parity", "--code 2+1 --stripe-size 64KiB")] {
        let dir = first.mount().join(name);
        fs::create_dir(&dir).unwrap();
        first.ok(e2e::cluster::words("layout set", &dir, layout));
        let (path, mut bytes) = (dir.join("file"), noise(3, 6_000_000));
        fs::write(&path, &bytes).unwrap();
        let there = hosts.beds[1].mount().join(name).join("file");
        for (bed, path) in [(first, &path), (&hosts.beds[1], &there)] {
            let program = preloaded(bed);
            program.forget();
            let script = "import sys, hashlib; print(hashlib.sha256(open(sys.argv[1], 'rb', buffering=0).read()).hexdigest())";
            let read = || program.with_run_as_usual(&mut python(script, path));
            let sum = run(Command::new("sha256sum").arg(path));
            // Whoever has written it closes it a moment later.
            first.wait("a right", || {
                program.forget();
                assert_eq!(read().trim_end(), &sum[..64]);
                program.said().contains("goes past the mount")
            });
            assert!(program.said().contains("6000000 bytes read"), "{}", program.said());
        }
        // The node at whose mount it is stands still: its bytes do not pass there.
        let mut reader = preloaded(first).obeys(&path, "");
        let piece = |bytes: &[u8], at: usize| format!("b'{}'", hex(&bytes[at..at + 300_000]));
        let ask = |at: usize| format!("__import__('binascii').hexlify(os.pread(fd, 300000, {at}))");
        assert_eq!(reader.ask(&ask(0)), piece(&bytes, 0));
        first.signal(Signal::STOP);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(2));
                first.signal(Signal::CONT);
            });
            for at in [1_000_000, 3_000_000, 5_000_000] {
                assert_eq!(reader.ask(&ask(at)), piece(&bytes, at));
            }
            assert!(begun.elapsed() < Duration::from_secs(2), "it waited for the node");
        });
        let other = fs::OpenOptions::new().write(true).open(&there).unwrap();
        other.write_all_at(b"written elsewhere", 3_000_000).unwrap();
        bytes[3_000_000..3_000_017].copy_from_slice(b"written elsewhere");
        assert_eq!(reader.ask(&ask(3_000_000)), piece(&bytes, 3_000_000));
        drop(other);
        assert_eq!(reader.ask(&ask(2_900_000)), piece(&bytes, 2_900_000));
        reader.end();
    }
    first.check();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A time that was set stays, also after something was written in place.
#[test]
fn times_that_are_set_stay_when_the_file_is_closed() {
    if !can_mount("programs with the preload library") {
        return;
    }
    let hosts = Hosts::new("0");
    let program = preloaded(&hosts.beds[1]);
    let script = "
import ctypes, os, sys
path = sys.argv[1]
libc = ctypes.CDLL(None)
ways = {
    'futimens': lambda fd: os.utime(fd, ns=(10**18, 10**18)),
    'utimensat': lambda fd: os.utime(path, ns=(10**18, 10**18)),
    'utimes': lambda fd: libc.utimes(path.encode(), (ctypes.c_long * 4)(10**9, 0, 10**9, 0)),
    'futimes': lambda fd: libc.futimes(fd, (ctypes.c_long * 4)(10**9, 0, 10**9, 0)),
    'utime': lambda fd: libc.utime(path.encode(), (ctypes.c_long * 2)(10**9, 10**9)),
}
for name, way in ways.items():
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b'a' * 300000, 0)
    os.pwrite(fd, b'b' * 1000, 5000)
    way(fd)
    assert os.fstat(fd).st_mtime_ns == 10**18, (name, os.fstat(fd))
    os.close(fd)
    assert os.stat(path).st_mtime_ns == 10**18, (name, os.stat(path))
";
    program.with_run(&mut python(script, &hosts.there.join("old")));
    assert_eq!(program.said().matches("301000 written past the mount").count(), 5, "{}", program.said());
    hosts.first().check();
}

/// A target that does not answer costs time, and then the mount says what it has to say; a first node that is started anew costs nothing.
#[test]
fn the_mount_has_the_last_word_when_nodes_die() {
    if !can_mount("programs with the preload library") {
        return;
    }
    let hosts = Hosts::new("0");
    let program = preloaded(&hosts.beds[1]);
    let data = noise(7, 400_000);
    fs::write(hosts.here.join("read"), &data).unwrap();
    let script = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
found = os.read(fd, 100000)
os.pwrite(fd, found[:5000], 0)
print('begun', flush=True)
sys.stdin.readline()
os.utime(fd, ns=(10**18, 10**18))
assert os.fstat(fd).st_mtime_ns == 10**18
os.fsync(fd)
while part := os.read(fd, 70000): found += part
os.write(fd, found)
os.fsync(fd)
os.lseek(fd, 0, os.SEEK_SET)
assert os.read(fd, 3000000) == found + found and len(found) == 400000
";
    let mut command = python(script, &hosts.there.join("read"));
    program.with(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    hosts.first().kill();
    // Whatever it tells the node, and the mount, waits.
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    hosts.first().up();
    assert!(child.wait().unwrap().success());
    assert!(fs::read(hosts.there.join("read")).unwrap() == [data.clone(), data].concat());
    hosts.first().check();
}
