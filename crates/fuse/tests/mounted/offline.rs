//! Files on tape: who reads waits, nobody else; signals end the wait.

use crate::{child, errno, eventually, fixture, fixture_with};
use fuse::MountOptions;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

fn kill(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_reader_gets_ranges_as_they_arrive() {
    let Some(f) = fixture() else { return };
    let data: Vec<u8> = (0..4_000_000u32).map(|i| (i % 249) as u8).collect();
    let (path, ino) = f.offline_file("tape", &data);
    let reader = std::thread::spawn({
        let path = path.clone();
        move || {
            let file = File::open(path).unwrap();
            let mut head = vec![0; 1000];
            file.read_exact_at(&mut head, 0).unwrap();
            let at_head = Instant::now();
            let mut all = Vec::new();
            (&file).read_to_end(&mut all).unwrap();
            (head, at_head, all)
        }
    });
    eventually("the reader waits", || f.api.waiting(ino) == 1);
    f.api.arrive(ino, 2_000_000);
    eventually("the reader waits for more", || f.api.waiting(ino) == 1);
    let rest_arrives = Instant::now();
    f.api.arrive(ino, data.len() as u64);
    let (head, at_head, all) = reader.join().unwrap();
    assert_eq!(head, data[..1000]);
    assert!(at_head < rest_arrives, "the first bytes came before the rest had arrived");
    assert!(all == data);
    f.settled();
    let before = f.api.count.reads.load(Relaxed);
    assert!(fs::read(&path).unwrap() == data);
    if f.mount.passthrough() {
        assert_eq!(f.api.count.reads.load(Relaxed), before, "whole again, it is passed through");
    }
}

#[test]
fn nothing_else_waits() {
    let Some(f) = fixture_with(MountOptions { threads: 1, ..MountOptions::default() }) else { return };
    let (path, ino) = f.offline_file("tape", b"far away");
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || fs::read(path).unwrap())
        })
        .collect();
    eventually("all wait", || f.api.waiting(ino) == 20);
    let start = Instant::now();
    let seen = fs::metadata(&path).unwrap();
    assert_eq!((seen.len(), seen.blocks()), (8, 0));
    fs::write(f.path("other"), b"resident").unwrap();
    assert_eq!(fs::read(f.path("other")).unwrap(), b"resident");
    assert_eq!(fs::read_dir(f.path("")).unwrap().count(), 2);
    fs::rename(&path, f.path("renamed")).unwrap();
    fs::rename(f.path("renamed"), &path).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    f.api.arrive(ino, 8);
    assert!(readers.into_iter().all(|r| r.join().unwrap() == b"far away"));
}

#[test]
fn a_failed_recall_is_an_io_error() {
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("tape", b"lost");
    let reader = std::thread::spawn(move || errno(fs::read(path)));
    eventually("the reader waits", || f.api.waiting(ino) == 1);
    f.api.fail(ino);
    assert_eq!(reader.join().unwrap(), libc::EIO);
}

#[test]
fn nonblocking_reads_start_the_recall_and_come_back() {
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("tape", b"later");
    let nonblock = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    assert_eq!(errno((&nonblock).read(&mut [0; 8])), libc::EAGAIN);
    assert_eq!(f.api.recalls(ino), Some(1));
    // made non-blocking only after the open
    let late = File::open(&path).unwrap();
    rustix::fs::fcntl_setfl(&late, rustix::fs::OFlags::NONBLOCK).unwrap();
    assert_eq!(errno((&late).read(&mut [0; 8])), libc::EAGAIN);
    f.api.arrive(ino, 5);
    let mut text = [0; 5];
    (&nonblock).read_exact(&mut text).unwrap();
    assert_eq!(&text, b"later");
}

#[test]
fn signals_end_the_wait() {
    use rustix::process::Signal;
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("tape", b"never");
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        // Whoever runs the tests in the background may have SIGINT ignored, and children inherit that.
        let mut cat = Command::new("env");
        let mut cat = cat.args(["--default-signal", "cat"]).arg(&path).stdout(Stdio::null()).spawn().unwrap();
        eventually("cat waits", || f.api.waiting(ino) == 1);
        let start = Instant::now();
        kill(&cat, signal);
        assert!(!cat.wait().unwrap().success());
        assert!(start.elapsed() < Duration::from_secs(1), "{signal:?} took {:?}", start.elapsed());
        assert_eq!(f.api.waiting(ino), 0);
    }
}

#[test]
fn a_handled_signal_runs_its_handler() {
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("tape", b"never\n");
    let script = "trap 'echo caught; exit 3' USR1; read line";
    let mut sh = Command::new("sh")
        .args(["-c", script])
        .stdin(File::open(&path).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the shell waits", || f.api.waiting(ino) == 1);
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(f.api.waiting(ino), 1, "without a signal it goes on waiting");
    kill(&sh, rustix::process::Signal::USR1);
    let mut said = String::new();
    sh.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), sh.wait().unwrap().code()), ("caught\n", Some(3)));
}

#[test]
fn changes_wait_too_and_can_be_interrupted() {
    let Some(f) = fixture_with(MountOptions { threads: 1, ..MountOptions::default() }) else { return };
    let (path, ino) = f.offline_file("tape", b"0123456789");
    let (short, other) = f.offline_file("short", b"0123456789");
    let writer = std::thread::spawn({
        let path = path.clone();
        move || OpenOptions::new().append(true).open(path).unwrap().write_all(b"+").unwrap()
    });
    eventually("the writer waits", || f.api.waiting(ino) == 1);
    let mut killed = Command::new("truncate").args(["-s", "5"]).arg(&short).spawn().unwrap();
    eventually("truncate waits", || f.api.waiting(other) == 1);
    kill(&killed, rustix::process::Signal::KILL);
    killed.wait().unwrap();
    assert_eq!(fs::metadata(f.path("")).unwrap().ino(), 1, "the only session thread is free");
    f.api.arrive(ino, 10);
    writer.join().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"0123456789+");
}

#[test]
fn truncating_to_nothing_recalls_nothing() {
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("by-open", b"old");
    fs::write(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(f.api.recalls(ino), None);
    let (path, ino) = f.offline_file("by-call", b"old");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(f.api.recalls(ino), None);
}

#[test]
fn an_offline_file_can_be_mapped() {
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("tape", b"mapped content");
    let mut mapper = child::start("map-read", &path, 0);
    eventually("the mapping waits", || f.api.waiting(ino) > 0);
    f.api.arrive(ino, 14);
    assert!(mapper.wait().unwrap().success());
}

#[test]
fn a_fault_on_an_offline_mapping_can_be_killed() {
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("tape", b"mapped content");
    let mut mapper = child::start("map-read", &path, 0);
    eventually("the mapping waits", || f.api.waiting(ino) > 0);
    kill(&mapper, rustix::process::Signal::KILL);
    assert!(!mapper.wait().unwrap().success());
}

#[test]
fn an_offline_program_runs() {
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("tool", &fs::read("/bin/true").unwrap());
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let size = fs::metadata(&path).unwrap().len();
    let running = std::thread::spawn(move || Command::new(path).status().unwrap().success());
    eventually("exec waits", || f.api.waiting(ino) > 0);
    f.api.arrive(ino, size);
    assert!(running.join().unwrap());
}
