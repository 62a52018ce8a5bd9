//! The namespace of a cluster on a host whose node does not hold it: the same names and files as at the first node, with POSIX semantics.

#[path = "common/at_movers.rs"]
mod at_movers;

use at_movers::at_movers;
use client::native::{File as NativeFile, OpenOptions as NativeOptions, Options, Session};
use e2e::cluster::{configure, join, node, pair, up, words};
use e2e::{Bed, can_mount, noise};
use posix::twins::{Twins, calls};
use posix::{Host, Part, Tape, random};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use wire::{Call, FileCall, Reply};

/// What is below the mount of the second node has the same path below that of the first, which moves it to tape and back.
struct Elsewhere<'a>(&'a [Bed; 2]);

impl Elsewhere<'_> {
    fn at_first(&self, path: &Path) -> PathBuf {
        let [first, second] = self.0;
        first.mount().join(path.strip_prefix(second.mount()).expect("a path below the second mount"))
    }
}

impl Host for Elsewhere<'_> {
    fn tape(&self, act: Tape, path: &Path) {
        let act = match act {
            Tape::Migrate => "migrate",
            Tape::Purge => "purge",
            Tape::Stage => "stage",
        };
        self.0[0].ok([OsStr::new(act), OsStr::new("--wait"), self.at_first(path).as_os_str()]);
    }
}

fn suite(part: Part, exceptions: &[posix::Exception]) {
    let Some(beds) = pair("the POSIX suite on another host") else { return };
    let dir = beds[1].mount().join("tests");
    fs::create_dir(&dir).unwrap();
    posix::run(part, &dir, &Elsewhere(&beds)).check(&format!("another host, {part:?}"), exceptions);
    beds[0].check();
}

#[test]
fn resident_files_behave_as_on_ext4_on_another_host() {
    suite(Part::General, &[posix::MOUNT, posix::NODE, posix::HOST].concat());
}

#[test]
fn offline_files_behave_as_on_ext4_on_another_host() {
    suite(Part::Offline, &[]);
}

/// A file system that is known.
struct Native;

impl Host for Native {}

#[test]
fn random_names_are_as_on_ext4_on_another_host() {
    let Some(beds) = pair("random names on another host") else { return };
    let seed = random::seed("random_names_are_as_on_ext4_on_another_host");
    let (tested, known) = (beds[1].mount().join("tests"), beds[1].path("known"));
    fs::create_dir(&tested).unwrap();
    fs::create_dir(&known).unwrap();
    let host = Elsewhere(&beds);
    let mut twins = Twins { tested: (&host, &tested), known: (&Native, &known), runs: 0 };
    let end = Instant::now() + random::seconds(5).max(Duration::from_secs(1));
    let mut round = 0;
    while round == 0 || Instant::now() < end {
        twins.compare(&calls(seed.wrapping_add(round), 400));
        round += 1;
    }
}

#[test]
fn two_hosts_see_what_the_other_does_at_once() {
    let Some(beds) = pair("two hosts and one namespace") else { return };
    let [here, there] = [beds[0].mount(), beds[1].mount()];
    // Names, attributes and bytes, both ways.
    for (n, (a, b)) in [(&here, &there), (&there, &here)].into_iter().enumerate() {
        let dir = format!("dir-{n}");
        assert!(!b.join(&dir).exists());
        fs::create_dir(a.join(&dir)).unwrap();
        let (ours, theirs) = (a.join(&dir).join("file"), b.join(&dir).join("file"));
        let bytes = noise(n as u64, 3_000_000);
        fs::write(&ours, &bytes).unwrap();
        assert!(fs::read(&theirs).unwrap() == bytes, "what was closed is seen everywhere");
        let file = OpenOptions::new().read(true).write(true).open(&theirs).unwrap();
        file.write_all_at(b"changed", 1_000_000).unwrap();
        file.sync_all().unwrap();
        let mut part = [0; 7];
        File::open(&ours).unwrap().read_exact_at(&mut part, 1_000_000).unwrap();
        assert_eq!(&part, b"changed");
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(&theirs).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::metadata(&theirs).unwrap().ino(), fs::metadata(&ours).unwrap().ino());
        fs::rename(&theirs, b.join(&dir).join("renamed")).unwrap();
        assert!(!ours.exists() && a.join(&dir).join("renamed").exists());
    }
    // Appends from two hosts do not meet.
    let open = |dir: &Path| OpenOptions::new().append(true).create(true).open(dir.join("log")).unwrap();
    std::thread::scope(|scope| {
        for (dir, letter) in [(&here, b'a'), (&there, b'b')] {
            let mut file = open(dir);
            scope.spawn(move || (0..100).for_each(|_| file.write_all(&[letter; 100]).unwrap()));
        }
    });
    let log = fs::read(there.join("log")).unwrap();
    assert_eq!(log.len(), 20_000);
    assert!(log.chunks(100).all(|line| line.iter().all(|byte| *byte == line[0])), "lines are mixed");
    // A tree, as tar makes and reads it.
    let tar = |args: &[&str], dir: &Path| {
        assert!(Command::new("tar").args(args).current_dir(dir).status().unwrap().success(), "tar {args:?}");
    };
    let archive = beds[1].path("tree.tar").display().to_string();
    fs::create_dir(here.join("tree")).unwrap();
    e2e::make_files(&here.join("tree"), 60, 200_000);
    tar(&["-cf", &archive, "tree"], &there);
    fs::create_dir(there.join("copy")).unwrap();
    tar(&["-xpf", &archive, "-C", "copy"], &there);
    assert_eq!(e2e::digests(&here.join("tree")), e2e::digests(&here.join("copy/tree")));
    beds[0].check();
}

#[test]
fn the_first_node_is_started_anew_and_the_other_host_goes_on() {
    let Some(beds) = pair("a restart of the first node") else { return };
    let [first, second] = &beds;
    let path = second.mount().join("file");
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all(&noise(1, 1_000_000)).unwrap();
    file.sync_all().unwrap();
    let removed = second.mount().join("removed");
    let mut gone = File::options().read(true).write(true).create(true).truncate(true).open(&removed).unwrap();
    gone.write_all(b"nobody has a name for this").unwrap();
    gone.sync_all().unwrap();
    fs::remove_file(&removed).unwrap();
    File::open(second.mount()).unwrap().sync_all().unwrap();
    first.kill();
    // Whoever asks meanwhile waits.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| fs::metadata(&path).unwrap().len());
        std::thread::sleep(Duration::from_millis(300));
        first.up_mounted();
        assert_eq!(asked.join().unwrap(), 1_000_000);
    });
    file.write_all_at(b"after", 500_000).unwrap();
    file.sync_all().unwrap();
    let mut part = [0; 5];
    file.read_exact_at(&mut part, 500_000).unwrap();
    assert_eq!(&part, b"after");
    let mut seen = [0; 5];
    File::open(first.mount().join("file")).unwrap().read_exact_at(&mut seen, 500_000).unwrap();
    assert_eq!(&seen, b"after");
    // What had no name went with the crash, and that is said.
    let lost = gone.read_at(&mut part, 0).unwrap_err();
    assert_eq!(lost.raw_os_error(), Some(rustix::io::Errno::STALE.raw_os_error()));
    fs::create_dir(second.mount().join("made after it")).unwrap();
    first.check();
}

#[test]
fn a_host_that_dies_or_is_removed_leaves_nothing_open() {
    let Some(beds) = pair("a host that dies") else { return };
    let [first, second] = &beds;
    let path = second.mount().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&noise(2, 2_000_000)).unwrap();
    file.sync_all().unwrap();
    file.write_all(b"and some more").unwrap();
    second.kill();
    // At once, for who reads; and nothing is open soon.
    let at_first = first.mount().join("file");
    assert!(fs::read(&at_first).unwrap().starts_with(&noise(2, 2_000_000)));
    first.wait("the end of the session", || first.log().contains("a session of node 2 has ended"));
    first.ok([OsStr::new("migrate"), OsStr::new("--wait"), at_first.as_os_str()]);
    first.ok([OsStr::new("purge"), OsStr::new("--wait"), at_first.as_os_str()]);
    assert!(fs::read(&at_first).unwrap().starts_with(&noise(2, 2_000_000)), "from tape");
    drop(file);
    // A node that was removed speaks for nobody any more.
    second.up_mounted();
    assert!(fs::read(&path).unwrap().starts_with(&noise(2, 2_000_000)));
    first.ok(["cluster", "remove", "node", "2"]);
    // What it remembers ends a second later.
    std::thread::sleep(Duration::from_secs(1));
    let refused = fs::metadata(&path).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
}

/// A node that serves no target, so that nothing of what is written there goes to its address.
fn bare_node() -> Bed {
    let bed = Bed::new("");
    configure(&bed, "");
    let path = bed.state().join("config.toml");
    let config = fs::read_to_string(&path).unwrap();
    let (before, _) = config.split_once("[[targets]]").expect("its target");
    fs::write(&path, before).unwrap();
    bed.up();
    bed
}

/// A first node without targets and two others with one each; the first and the second are mounted, and files of a directory lie in stripes.
fn striped(test: &str) -> Option<([Bed; 3], [PathBuf; 2])> {
    can_mount(test).then(|| {
        let beds = [bare_node(), node(), node()];
        beds[0].ok(["cluster", "init", "--name", "first"]);
        join(&beds[0], &beds[1], "second");
        join(&beds[0], &beds[2], "third");
        beds[0].wait("two targets", || up(&beds[0]) == [2, 3]);
        for bed in &beds[..2] {
            fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            bed.ok([OsStr::new("mount"), bed.mount().as_os_str()]);
        }
        let dirs = [beds[0].mount().join("striped"), beds[1].mount().join("striped")];
        fs::create_dir(&dirs[0]).unwrap();
        beds[0].ok(words("layout set", &dirs[0], "--stripes 2 --stripe-size 64KiB"));
        (beds, dirs)
    })
}

/// Whether the file is told closed, with its length and time as they are.
fn is_closed(bed: &Bed, path: &Path) -> bool {
    let view = bed.json([OsStr::new("stat"), path.as_os_str()]);
    view[0]["file"]["stamp"]["size"].as_u64() == fs::metadata(path).ok().map(|meta| meta.len())
}

fn signal(bed: &Bed, pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, signal).unwrap_or_else(|e| panic!("{e}: {}", bed.log()));
}

#[test]
fn bytes_of_striped_files_do_not_pass_through_the_first_node() {
    let Some((beds, [here, there])) = striped("bytes straight to the movers") else { return };
    let first = &beds[0];
    // In by cp, out by md5sum at both.
    let source = beds[1].path("source");
    fs::write(&source, noise(1, 50_000_000)).unwrap();
    assert!(Command::new("cp").arg(&source).arg(there.join("file")).status().unwrap().success());
    assert!(fs::read(here.join("file")).unwrap() == noise(1, 50_000_000), "what the other host wrote");
    fs::write(here.join("other"), noise(2, 5_000_000)).unwrap();
    assert!(fs::read(there.join("other")).unwrap() == noise(2, 5_000_000), "what the first node wrote");
    // While the first node stands still, bytes move: nothing of them goes there.
    let mut model = noise(1, 50_000_000);
    let file = OpenOptions::new().read(true).write(true).open(there.join("file")).unwrap();
    file.write_all_at(b"begun", 0).unwrap();
    let mut part = vec![0; 5];
    file.read_exact_at(&mut part, 0).unwrap();
    let pid = first.pid();
    signal(first, pid, rustix::process::Signal::STOP);
    let moved = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            for n in 0..8_u64 {
                file.write_all_at(&noise(10 + n, 1_000_000), n * 6_000_001).unwrap();
            }
            let mut bytes = vec![0; 1_000_000];
            file.read_exact_at(&mut bytes, 3 * 6_000_001).unwrap();
            bytes == noise(13, 1_000_000)
        });
        let end = Instant::now() + Duration::from_secs(30);
        while !work.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let finished = work.is_finished();
        signal(first, pid, rustix::process::Signal::CONT);
        assert!(finished, "bytes wait for the first node");
        work.join().unwrap()
    });
    assert!(moved, "what was read while the first node stood still");
    (0..8_usize).for_each(|n| {
        let at = n * 6_000_001;
        model[at..at + 1_000_000].copy_from_slice(&noise(10 + n as u64, 1_000_000));
    });
    let before = fs::metadata(here.join("other")).unwrap().mtime();
    file.sync_all().unwrap();
    assert!(fs::metadata(here.join("file")).unwrap().mtime() >= before);
    drop(file);
    assert!(fs::read(here.join("file")).unwrap() == model, "what was changed in place");
    // It goes to tape and comes back as any other.
    let path = here.join("file");
    first.wait("its close", || is_closed(first, &path));
    first.ok([OsStr::new("migrate"), OsStr::new("--wait"), path.as_os_str()]);
    first.ok([OsStr::new("purge"), OsStr::new("--wait"), path.as_os_str()]);
    assert!(fs::read(there.join("file")).unwrap() == model, "from tape");
    first.check();
}

/// Longer, shorter, at the end, behind the end.
#[test]
fn every_host_sees_at_once_how_long_a_striped_file_is() {
    let Some((beds, [here, there])) = striped("lengths of striped files") else { return };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(there.join("lengths"))
        .unwrap();
    let length = || fs::metadata(here.join("lengths")).unwrap().len();
    file.write_all_at(&noise(3, 300_000), 0).unwrap();
    assert_eq!(length(), 300_000);
    file.set_len(100_000).unwrap();
    assert_eq!(length(), 100_000);
    file.write_all_at(b"far behind", 1_000_000).unwrap();
    assert_eq!(length(), 1_000_010);
    OpenOptions::new().append(true).open(here.join("lengths")).unwrap().write_all(b"appended here").unwrap();
    OpenOptions::new().append(true).open(there.join("lengths")).unwrap().write_all(b"and there").unwrap();
    OpenOptions::new().write(true).open(here.join("lengths")).unwrap().set_len(1_000_020).unwrap();
    let mut expected = noise(3, 100_000);
    expected.resize(1_000_000, 0);
    expected.extend_from_slice(b"far behindappended h");
    assert!(fs::read(there.join("lengths")).unwrap() == expected);
    drop(file);
    beds[0].check();
}

#[test]
fn a_host_that_dies_while_it_writes_to_movers_loses_nothing_that_was_synced() {
    let Some((beds, [here, there])) = striped("a host that dies while it writes") else { return };
    let [first, second, _] = &beds;
    let path = there.join("file");
    let bytes = noise(4, 20_000_000);
    let mut file = File::create(&path).unwrap();
    file.write_all(&bytes[..10_000_000]).unwrap();
    file.sync_all().unwrap();
    file.write_all(&bytes[10_000_000..]).unwrap();
    file.write_all_at(b"in place", 77).unwrap();
    second.kill();
    second.up();
    let at_first = here.join("file");
    let seen = fs::read(&at_first).unwrap();
    assert!(
        seen.len() >= 10_000_000
            && seen[..77] == bytes[..77]
            && seen[85..10_000_000] == bytes[85..10_000_000]
    );
    first.wait("the end of the session", || first.log().contains("a session of node 2 has ended"));
    first.wait("its close", || is_closed(first, &at_first));
    first.ok([OsStr::new("migrate"), OsStr::new("--wait"), at_first.as_os_str()]);
    let mut expected = bytes.clone();
    expected[77..85].copy_from_slice(b"in place");
    assert!(fs::read(&at_first).unwrap() == expected, "what was answered is there: no machine went down");
    first.check();
}

#[test]
fn the_first_node_and_movers_die_while_another_host_writes_to_them() {
    let Some((beds, [here, there])) = striped("nodes that die below another host") else { return };
    let [first, _, third] = &beds;
    let bytes = noise(5, 24 << 20);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut file = File::create(there.join("file")).unwrap();
            for (n, part) in bytes.chunks(1 << 20).enumerate() {
                file.write_all(part).unwrap();
                if n % 4 == 3 {
                    file.sync_all().unwrap();
                }
                std::thread::sleep(Duration::from_millis(150));
            }
            file.sync_all().unwrap();
        });
        for bed in [first, third, first] {
            std::thread::sleep(Duration::from_millis(700));
            bed.kill();
            std::thread::sleep(Duration::from_millis(300));
            bed.up();
        }
        writer.join().unwrap();
    });
    assert!(fs::read(there.join("file")).unwrap() == bytes, "a node died, and something is missing");
    first.ok([OsStr::new("mount"), first.mount().as_os_str()]);
    assert!(fs::read(here.join("file")).unwrap() == bytes, "at the first node");
    first.check();
}

#[test]
fn a_removed_host_cannot_write_at_the_movers_either() {
    if !can_mount("a removed host and movers") {
        return;
    }
    let beds = [bare_node(), node(), node(), bare_node()];
    let [first, .., other] = &beds;
    first.ok(["cluster", "init", "--name", "first"]);
    ["second", "third", "fourth"].into_iter().zip(&beds[1..]).for_each(|(name, bed)| join(first, bed, name));
    first.wait("two targets", || up(first) == [2, 3]);
    [first, other].iter().for_each(|bed| drop(bed.ok([OsStr::new("mount"), bed.mount().as_os_str()])));
    let dir = first.mount().join("striped");
    fs::create_dir(&dir).unwrap();
    first.ok(words("layout set", &dir, "--stripes 2 --stripe-size 64KiB"));
    let path = other.mount().join("striped/file");
    let bytes = noise(6, 1_000_000);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&bytes[..100_000], 0).unwrap();
    // While somebody has it open nobody asks the targets how it is, which would raise the fence too.
    let reader = File::open(dir.join("file")).unwrap();
    first.ok(["cluster", "remove", "node", "4"]);
    // Its right would be good for minutes, and no mover knows who was removed.
    first.wait("the fence", || file.write_all_at(&bytes[..100_000], 0).is_err());
    let refused = file.write_all_at(&[0; 200_000], 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert!(fs::read(dir.join("file")).unwrap() == bytes, "a removed host has written");
    drop(reader);
    first.check();
}

#[test]
fn who_has_closed_a_file_does_not_change_it_once_it_goes_to_tape() {
    let Some((beds, [here, _])) = striped("rights after a close") else { return };
    let first = &beds[0];
    let path = here.join("file");
    fs::write(&path, noise(8, 1_000_000)).unwrap();
    let ino = types::Ino(fs::metadata(&path).unwrap().ino());
    let mut connection = client::Connection::open(&first.state().join("control.sock")).unwrap();
    let mut ask = |call: FileCall| connection.call(&Call::File(call)).unwrap().0;
    let flags = types::api::OpenFlags { write: true, ..Default::default() };
    let Reply::Opened { handle, .. } = ask(FileCall::OpenAs { ino, flags }) else { panic!("no handle") };
    let Reply::FileLayout(Some(layout)) = ask(FileCall::LayoutGet(handle)) else { panic!("no layout") };
    let movers = at_movers(&layout);
    movers.write_at(0, b"before the close").unwrap();
    let (end, machines, cuts) = (16, vec![0, 0], layout.cuts);
    assert!(matches!(ask(FileCall::LayoutCommit { handle, end, machines, cuts }), Reply::Count(_)));
    assert_eq!(ask(FileCall::Release { handle, sync: false }), Reply::Done);
    movers.write_at(0, b"behind").expect("a close ends no right");
    first.wait("its close", || is_closed(first, &path));
    first.ok([OsStr::new("migrate"), OsStr::new("--wait"), path.as_os_str()]);
    let refused = movers.write_at(0, b"and this").unwrap_err();
    assert_eq!(refused.class(), types::ErrorClass::Denied, "{refused}");
    let seen = fs::read(&path).unwrap();
    assert_eq!(&seen[..16], b"behind the close");
    first.ok([OsStr::new("purge"), OsStr::new("--wait"), path.as_os_str()]);
    assert!(
        fs::read(&path).unwrap() == seen,
        "on tape there is something else than there was on the targets"
    );
    first.check();
}

#[test]
fn what_a_host_that_is_gone_held_locked_goes_to_others_when_it_cannot_write_any_more() {
    if !can_mount("locks of a host that is gone, and movers") {
        return;
    }
    let beds = [bare_node(), node(), node(), bare_node()];
    let [first, mover, _, other] = &beds;
    first.ok(["cluster", "init", "--name", "first"]);
    ["second", "third", "fourth"].into_iter().zip(&beds[1..]).for_each(|(name, bed)| join(first, bed, name));
    first.wait("two targets", || up(first) == [2, 3]);
    [first, other].iter().for_each(|bed| drop(bed.ok([OsStr::new("mount"), bed.mount().as_os_str()])));
    let dir = first.mount().join("striped");
    fs::create_dir(&dir).unwrap();
    first.ok(words("layout set", &dir, "--stripes 2 --stripe-size 64KiB"));
    let file = File::create(other.mount().join("striped/file")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    file.write_all_at(&noise(9, 300_000), 0).unwrap();
    let here = File::open(dir.join("file")).unwrap();
    let locked = || rustix::fs::flock(&here, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok();
    assert!(!locked());
    let pid = mover.pid();
    signal(mover, pid, rustix::process::Signal::STOP);
    first.ok(["cluster", "remove", "node", "4"]);
    let end = Instant::now() + Duration::from_secs(4);
    let mut early = false;
    while Instant::now() < end && !early {
        early = locked();
        std::thread::sleep(Duration::from_millis(100));
    }
    signal(mover, pid, rustix::process::Signal::CONT);
    assert!(!early, "the host that is gone may write at a target that was not told");
    first.wait("the lock", locked);
    assert!(file.write_all_at(&[0; 200_000], 0).is_err(), "a removed host has written");
    assert!(fs::read(dir.join("file")).unwrap() == noise(9, 300_000));
    drop(file);
    first.check();
}

fn session(bed: &Bed, options: Options) -> Session {
    Session::connect_with(&bed.state().join("control.sock"), options).unwrap()
}

/// Writes, reads and lengths in some order through the native library, compared with a list of bytes.
fn library_trial(file: &NativeFile, seed: u64) -> Vec<u8> {
    let mut model: Vec<u8> = Vec::new();
    for call in 0..120_u64 {
        let dice = noise(seed * 1000 + call, 16);
        let number = |at: usize, below: usize| {
            u32::from_le_bytes(dice[at..at + 4].try_into().unwrap()) as usize % below
        };
        let (at, len) = (number(0, 1_500_000), number(4, [300, 70_000, 1_200_000][number(8, 3)]));
        match number(12, 8) {
            0..3 => {
                let data = noise(seed + call, len);
                file.write_at(&data, at as u64).unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&data);
            }
            3..6 => {
                let mut bytes = vec![1; len];
                let got = file.read_at(&mut bytes, at as u64).unwrap();
                let wanted = &model[at.min(model.len())..(at + len).min(model.len())];
                assert!(bytes[..got] == *wanted, "seed {seed}, call {call}: {got} bytes at {at}");
            }
            6 => {
                file.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            _ => {
                file.flush().unwrap();
                assert_eq!(file.len().unwrap(), model.len() as u64, "seed {seed}, call {call}");
            }
        }
    }
    model
}

#[test]
fn programs_with_the_native_library_move_bytes_of_striped_files_straight_to_the_movers() {
    let Some((beds, [here, there])) = striped("the native library and movers") else { return };
    let first = &beds[0];
    let both = NativeOptions::new().read(true).write(true);
    let nothing_held = Options { read_ahead: 0, write_behind: 0, ..Options::default() };
    for (seed, options) in [(1, Options::default()), (2, nothing_held.clone()), (3, Options::default())] {
        let (session, name) = (session(first, options), format!("striped/library {seed}"));
        let file = session.open(format!("/{name}"), both.create(0o644)).unwrap();
        assert!(file.is_direct());
        let model = library_trial(&file, seed);
        file.sync().unwrap();
        file.close().unwrap();
        for dir in [&here, &there] {
            let read = fs::read(dir.parent().unwrap().join(&name)).unwrap();
            assert!(read == model, "seed {seed}: {} bytes, {} expected", read.len(), model.len());
        }
    }
    // What is written is seen everywhere at once, also how long the file is.
    let (one, other) = (session(first, nothing_held.clone()), session(first, nothing_held));
    let files = [&one, &other].map(|session| session.open("/striped/shared", both.create(0o644)).unwrap());
    for n in 0..6_u64 {
        files[n as usize % 2].write_at(&noise(n, 100_000), n * 100_000).unwrap();
        for dir in [&here, &there] {
            assert_eq!(fs::metadata(dir.join("shared")).unwrap().len(), (n + 1) * 100_000);
        }
        let mut bytes = vec![0; 100_000];
        assert_eq!(files[1 - n as usize % 2].read_at(&mut bytes, n * 100_000).unwrap(), 100_000);
        assert!(bytes == noise(n, 100_000), "{n}");
    }
    // While the first node stands still bytes move.
    let pid = first.pid();
    signal(first, pid, rustix::process::Signal::STOP);
    let moved = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            files[0].write_at(&noise(77, 300_000), 100_001).unwrap();
            let mut bytes = vec![0; 300_000];
            files[1].read_at(&mut bytes, 100_001).unwrap();
            bytes == noise(77, 300_000)
        });
        let end = Instant::now() + Duration::from_secs(30);
        while !work.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let finished = work.is_finished();
        signal(first, pid, rustix::process::Signal::CONT);
        assert!(finished, "bytes wait for the first node");
        work.join().unwrap()
    });
    assert!(moved, "what was read while the first node stood still");
    for file in files {
        file.sync().unwrap();
        file.close().unwrap();
    }
    drop((one, other));
    first.wait("the file to be closed", || is_closed(first, &here.join("shared")));
    first.check();
}
