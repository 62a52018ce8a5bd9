//! Locks of programs with the native library: against each other, against programs at mounts, and with whoever ends meanwhile.

use client::ClientError;
use client::Remote;
use client::native::{File, LockKind, OpenOptions, Options, Region, Session};
use e2e::cluster::{node, pair};
use e2e::locker::Locker;
use e2e::{Bed, can_mount, noise};
use ident::Credentials;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use types::FsError;

const MB: usize = 1 << 20;
const KEPT: &str = "locks = true\n[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\n";
const ALL: Region = Region::Bytes { start: 0, len: 0 };

/// A program in a process of its own.
fn program(bed: &Bed, path: &str, descriptors: bool) -> Locker {
    let library = std::env::current_exe().unwrap().with_file_name("libthermo.so");
    Locker::with_library(bed, &library, path, descriptors)
}

fn session(bed: &Bed, descriptors: bool) -> Session {
    let options = Options { descriptors, ..Options::default() };
    Session::connect_with(&bed.state().join("control.sock"), options).unwrap()
}

fn open(session: &Session, path: &str) -> File {
    session.open(path, OpenOptions::new().read(true).write(true).create(0o644)).unwrap()
}

fn reason<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> FsError {
    match outcome {
        Err(ClientError::Refused(why)) => why.fs.expect("a reason"),
        other => panic!("{other:?}"),
    }
}

fn ok(answers: &[String]) {
    assert!(answers.iter().all(|answer| answer == "ok"), "{answers:?}");
}

/// What a program with the library and another one, wherever it is, do to each other; `seen`: how each sees the other's process.
fn against(lib: &mut Locker, other: &mut Locker, seen: (u32, u32)) {
    assert_eq!(lib.ask("ofd ex 10 10"), "ok");
    assert_eq!((other.ask("ofd sh 19 1"), other.ask("ofd ex 20 0")), ("EAGAIN".into(), "ok".into()));
    assert_eq!(other.ask("test sh 12 1"), format!("1 10 10 {}", seen.0));
    assert_eq!(lib.ask("test ex 5000 0"), format!("1 20 0 {}", seen.1));
    assert_eq!((lib.ask("test ex 0 20"), other.ask("ofd un 20 0")), ("free".into(), "ok".into()));
    // Less, and more again.
    ok(&[lib.ask("ofd sh 10 10"), other.ask("ofd sh 12 2")]);
    lib.waits("ofdw ex 0 0");
    assert_eq!(other.ask("test ex 15 2"), format!("0 10 10 {}", seen.0));
    ok(&[other.ask("ofd un 0 0"), lib.hear()]);
    assert_eq!((other.ask("ofd sh 1000000 1"), lib.ask("ofd un 0 0")), ("EAGAIN".into(), "ok".into()));
    // Of whole files, which is another matter.
    ok(&[lib.ask("flock ex"), other.ask("ofd ex 0 0")]);
    other.waits("flockw sh");
    ok(&[lib.ask("flock un"), other.hear(), lib.ask("flock sh")]);
    assert_eq!(lib.ask("flock ex"), "EAGAIN");
    ok(&[other.ask("flock ex"), other.ask("flock un")]);
    // A signal, or time, ends a wait, and the wait is no more.
    assert_eq!((lib.ask("alarm 1"), lib.ask("ofdw ex 5 1")), ("ok".into(), "EINTR".into()));
    assert_eq!(lib.ask("within 0.2"), "EAGAIN");
    ok(&[other.ask("ofd un 0 0"), other.ask("ofd ex 5 1")]);
    lib.waits("within 100");
    ok(&[other.ask("ofd un 0 0"), lib.hear(), lib.ask("ofd un 0 0")]);
}

#[test]
fn programs_with_the_library_and_at_mounts_of_two_hosts_keep_each_other_out() {
    let Some(beds) = pair("locks of the native library") else { return };
    for descriptors in [true, false] {
        let name = format!("descriptors-{descriptors}");
        let mut lib = program(&beds[0], &format!("/{name}"), descriptors);
        let [mut here, mut there] = [0, 1].map(|n| Locker::new(&beds[n].mount().join(&name)));
        let mut other = program(&beds[0], &format!("/{name}"), !descriptors);
        let [pid, at_mount, beside] = [lib.pid(), here.pid(), other.pid()];
        against(&mut lib, &mut here, (pid, at_mount));
        against(&mut lib, &mut there, (0, 0));
        against(&mut lib, &mut other, (pid, beside));
    }
    beds[0].check();
}

/// It waits for a lock itself: another connection of it is waiting for news then.
#[test]
fn what_a_program_that_is_killed_had_locked_goes_at_once_to_who_waits() {
    if !can_mount("locks of who is killed") {
        return;
    }
    let bed = Bed::new(KEPT);
    bed.up_mounted();
    let [mut dies, mut waits] = [true, false].map(|descriptors| program(&bed, "/file", descriptors));
    let mut mount = Locker::new(&bed.mount().join("file"));
    ok(&[dies.ask("ofd ex 0 10"), dies.ask("flock ex"), waits.ask("ofd ex 20 1")]);
    dies.waits("ofdw ex 20 1");
    waits.waits("ofdw ex 5 1");
    mount.waits("flockw ex");
    let killed = Instant::now();
    dies.kill();
    ok(&[waits.hear(), mount.hear()]);
    assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    // So it is with who closes the file.
    ok(&[waits.ask("ofd un 0 0"), waits.ask("ofd ex 0 0")]);
    mount.waits("ofdw ex 7 1");
    ok(&[waits.ask("close"), mount.hear()]);
    drop((dies, waits, mount));
    bed.check();
}

#[test]
fn programs_count_under_a_lock_whichever_way_their_bytes_go() {
    let Some(beds) = pair("counting with the native library") else { return };
    let library = [true, false, false].map(|descriptors| program(&beds[0], "/counter", descriptors));
    let mounts = [0, 1].map(|n| Locker::new(&beds[n].mount().join("counter")));
    let mut all: Vec<Locker> = library.into_iter().chain(mounts).collect();
    all.iter_mut().for_each(|locker| locker.tell("count 100"));
    all.iter().for_each(|locker| assert_eq!(locker.hear(), "ok"));
    assert_eq!(std::fs::read_to_string(beds[1].mount().join("counter")).unwrap(), "500");
}

/// What lies with a writer reaches the node before his lock does, and a reader hands out nothing that came before his lock.
#[test]
fn what_was_written_under_a_lock_is_read_under_the_next() {
    let bed = Bed::new(KEPT);
    bed.up();
    let (one, other) = (session(&bed, false), session(&bed, false));
    let (writer, reader) = (open(&one, "/file"), open(&other, "/file"));
    let mut buffer = vec![0; MB];
    for n in 0..3 {
        writer.lock(ALL, LockKind::Exclusive, None).unwrap();
        writer.write_at(&noise(n, 12 * MB), 0).unwrap();
        writer.write_at(&[n as u8; 3], 0).unwrap();
        writer.unlock(ALL).unwrap();
        // He who reads in order has asked for what follows.
        reader.lock(ALL, LockKind::Shared, None).unwrap();
        for at in 0..4 {
            reader.read_at(&mut buffer, at * MB as u64).unwrap();
            assert!(at > 0 || buffer[..3] == [n as u8; 3], "{n}");
        }
        reader.unlock(ALL).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        writer.lock(Region::File, LockKind::Exclusive, None).unwrap();
        writer.write_at(b"a few bytes", 4 * MB as u64).unwrap();
        // Less is given back here, not all.
        writer.lock(Region::File, LockKind::Shared, None).unwrap();
        reader.lock(Region::File, LockKind::Shared, None).unwrap();
        reader.read_at(&mut buffer, 4 * MB as u64).unwrap();
        assert_eq!(buffer[..11], *b"a few bytes", "{n}");
        [&writer, &reader].iter().for_each(|file| file.unlock(Region::File).unwrap());
    }
    drop((writer, reader));
    bed.check();
}

#[test]
fn what_cannot_be_locked_is_refused_with_the_reason() {
    let bed = Bed::new(KEPT);
    bed.up();
    let (one, other) = (session(&bed, true), session(&bed, true));
    let (file, second) = (open(&one, "/file"), open(&other, "/file"));
    for (start, len) in [(1 << 63, 0), (1 << 63, 1), (u64::MAX, 1), (5, i64::MAX as u64), (1, u64::MAX)] {
        let region = Region::Bytes { start, len };
        assert_eq!(reason(file.lock(region, LockKind::Exclusive, None)), FsError::Invalid, "{region:?}");
    }
    let last = Region::Bytes { start: i64::MAX as u64, len: 1 };
    file.lock(last, LockKind::Exclusive, None).unwrap();
    assert!(!second.try_lock(ALL, LockKind::Shared).unwrap());
    let waited = Instant::now();
    let refused = second.lock(ALL, LockKind::Shared, Some(Duration::from_millis(300))).unwrap_err();
    assert!(waited.elapsed() >= Duration::from_millis(300));
    assert_eq!(refused.to_string(), "open file: somebody else has locked it");
    assert_eq!(reason::<()>(Err(refused)), FsError::WouldBlock);
    let (reads, writes) = (OpenOptions::new().read(true), OpenOptions::new().write(true));
    let (reads, writes) = (one.open("/file", reads).unwrap(), one.open("/file", writes).unwrap());
    assert_eq!(reason(reads.lock(ALL, LockKind::Exclusive, None)), FsError::BadHandle);
    assert_eq!(reason(writes.lock(ALL, LockKind::Shared, None)), FsError::BadHandle);
    // Two open files of one program are two owners.
    assert!(!writes.try_lock(ALL, LockKind::Exclusive).unwrap());
    assert!(reads.try_lock(Region::File, LockKind::Exclusive).unwrap());

    let bed = Bed::new("");
    bed.up();
    let file = open(&session(&bed, true), "/file");
    let refused = file.lock(ALL, LockKind::Exclusive, None).unwrap_err();
    assert!(refused.to_string().contains("set `locks = true`"), "{refused}");
    assert_eq!(reason(file.test_lock(ALL, LockKind::Exclusive)), FsError::NotSupported);
}

/// Every one of many waits of one program ends, whoever else waits and gives up meanwhile.
#[test]
fn threads_of_one_program_wait_for_many_locks_at_once() {
    let bed = Bed::new(KEPT);
    bed.up();
    let session = session(&bed, true);
    let file = open(&session, "/counter");
    file.write_at(b"0", 0).unwrap();
    let count = |file: &File| {
        let mut digits = [0; 8];
        let read = file.read_at(&mut digits, 0).unwrap();
        let n: u32 = std::str::from_utf8(&digits[..read]).unwrap().parse().unwrap();
        file.write_at((n + 1).to_string().as_bytes(), 0).unwrap();
    };
    std::thread::scope(|scope| {
        for n in 0..12 {
            let (session, count) = (&session, &count);
            scope.spawn(move || {
                let file = open(session, "/counter");
                for _ in 0..25 {
                    let limit = (n % 3 == 0).then_some(Duration::from_millis(n));
                    while let Err(e) = file.lock(ALL, LockKind::Exclusive, limit) {
                        assert_eq!(reason::<()>(Err(e)), FsError::WouldBlock);
                    }
                    count(&file);
                    file.unlock(ALL).unwrap();
                }
            });
        }
    });
    count(&file);
    let mut digits = [0; 3];
    assert_eq!((file.read_at(&mut digits, 0).unwrap(), &digits), (3, b"301"));
    drop(file);
    bed.check();
}

/// A lock of a program ends with the node; who holds one or waits for one is told.
#[test]
fn who_holds_a_lock_or_waits_for_one_is_told_that_the_node_has_died() {
    let bed = Bed::new(KEPT);
    bed.up();
    let patient = Options { patience: Duration::from_secs(30), ..Options::default() };
    let socket = bed.state().join("control.sock");
    let [one, other] = [(); 2].map(|()| Session::connect_with(&socket, patient.clone()).unwrap());
    let (holds, waits) = (open(&one, "/file"), open(&other, "/file"));
    holds.lock(ALL, LockKind::Exclusive, None).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waits.lock(ALL, LockKind::Exclusive, None));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished());
        bed.kill();
        bed.up();
        assert_eq!(reason(waiting.join().unwrap()), FsError::Stale);
    });
    one.stat("/").unwrap();
    assert_eq!(reason(holds.unlock(ALL)), FsError::Stale);
    let again = open(&other, "/file");
    again.lock(ALL, LockKind::Exclusive, Some(Duration::ZERO)).unwrap();
    assert_eq!(reason(holds.lock(ALL, LockKind::Exclusive, None)), FsError::Stale);
}

/// Also not over a connection that he makes for it.
#[test]
fn who_has_lost_his_lock_with_the_node_writes_nothing_more() {
    let bed = Bed::new(KEPT);
    bed.up();
    let patient = Options { patience: Duration::from_secs(30), descriptors: false, ..Options::default() };
    let socket = bed.state().join("control.sock");
    let [one, other] = [(); 2].map(|()| Session::connect_with(&socket, patient.clone()).unwrap());
    let had = open(&one, "/file");
    had.lock(ALL, LockKind::Exclusive, None).unwrap();
    bed.kill();
    bed.up();
    let has = open(&other, "/file");
    has.lock(ALL, LockKind::Exclusive, Some(Duration::ZERO)).unwrap();
    has.write_at(&noise(1, 12 * MB), 0).unwrap();
    has.flush().unwrap();
    for n in 2..5 {
        let wrote = had.write_at(&noise(n, 12 * MB), 0).and_then(|()| had.flush());
        assert!(wrote.is_err(), "{n}");
    }
    // Each connection may say once that it has broken.
    let set = (0..10).map(|_| had.set_len(0)).find(|set| !matches!(set, Err(ClientError::Lost { .. })));
    let mut found = vec![0; 12 * MB];
    assert_eq!(has.read_at(&mut found, 0).unwrap(), 12 * MB);
    assert!(found == noise(1, 12 * MB), "what was written under the lock");
    assert_eq!(reason(set.unwrap()), FsError::Stale);
}

/// Sockets of the session below.
static SOCKETS: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// The others keep what the session has open, and with it the lock, until the file is closed.
#[test]
fn a_lock_goes_with_its_file_also_when_the_connection_for_its_bytes_has_broken() {
    let bed = Bed::new(KEPT);
    bed.up();
    let place = |socket: OwnedFd| {
        SOCKETS.lock().unwrap().push(socket.try_clone().unwrap());
        socket
    };
    let options = Options { descriptors: false, place, ..Options::default() };
    let one = Session::connect_with(&bed.state().join("control.sock"), options).unwrap();
    let other = session(&bed, false);
    one.stat("/").unwrap();
    let names = SOCKETS.lock().unwrap().len();
    let (file, waits) = (open(&one, "/file"), open(&other, "/file"));
    file.lock(ALL, LockKind::Exclusive, None).unwrap();
    for socket in &SOCKETS.lock().unwrap()[names..] {
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
    }
    // He may learn of it, and has his lock still.
    let _ = file.write_at(b"some", 0).and_then(|()| file.flush());
    assert!(!waits.try_lock(ALL, LockKind::Shared).unwrap());
    let _ = file.close();
    assert!(waits.try_lock(ALL, LockKind::Exclusive).unwrap());
    // And when all have broken, others are made; each may say so once.
    for socket in SOCKETS.lock().unwrap().iter() {
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    }
    let opened = (0..10).find_map(|_| one.open("/file", OpenOptions::new().read(true)).ok());
    opened.expect("open").close().unwrap();
}

/// A member of the cluster that has no mount: over TLS, in the name of its user.
#[test]
fn programs_on_other_hosts_lock_files_without_a_mount() {
    let first = node();
    first.ok(["cluster", "init", "--name", "first"]);
    let desk = Bed::new("");
    let token = first.ok(["cluster", "token", "--client-uid", "4711", "--client-gid", "4711"]);
    crate::cluster::joined(&desk, &token, "desk");
    let here = session(&first, true);
    here.open("/file", OpenOptions::new().write(true).create(0o666)).unwrap().close().unwrap();
    let member = Credentials::load(&desk.state().join("cluster")).unwrap().unwrap();
    let far = || {
        let remote = Remote::new(&member.addresses[0], &member).unwrap();
        Session::connect_remote(remote, Options::default()).unwrap()
    };
    let (one, other) = (far(), far());
    let both = OpenOptions::new().read(true).write(true);
    let [mine, theirs, local] = [&one, &other, &here].map(|session| session.open("/file", both).unwrap());
    mine.lock(ALL, LockKind::Exclusive, None).unwrap();
    mine.write_at(b"under a lock", 0).unwrap();
    for file in [&theirs, &local] {
        assert!(!file.try_lock(ALL, LockKind::Shared).unwrap());
        assert_eq!(file.test_lock(ALL, LockKind::Shared).unwrap().unwrap().pid, 0);
    }
    std::thread::scope(|scope| {
        let waiting = [&theirs, &local].map(|file| scope.spawn(|| file.lock(ALL, LockKind::Shared, None)));
        std::thread::sleep(Duration::from_millis(300));
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        mine.unlock(ALL).unwrap();
        waiting.into_iter().for_each(|waiting| waiting.join().unwrap().unwrap());
    });
    for file in [&theirs, &local] {
        let mut read = [0; 12];
        assert_eq!((file.read_at(&mut read, 0).unwrap(), &read), (12, b"under a lock"));
    }
    // It ends with its session.
    local.unlock(ALL).unwrap();
    drop((theirs, other));
    assert!(local.try_lock(ALL, LockKind::Exclusive).unwrap());
}
