//! Files of the first node's own disk tier go to targets (`thermo protect`) while programs use them and nodes die.

use e2e::cluster::{lies_on, words};
use e2e::hosts::{Hosts, TARGET};
use e2e::{Bed, can_mount, noise};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Objects of a node's disk tier that have bytes: path and length.
fn tier(bed: &Bed) -> Vec<(PathBuf, u64)> {
    let (mut found, mut dirs) = (Vec::new(), vec![bed.state().join("disk")]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() => dirs.push(entry.path()),
                Ok(about)
                    if about.len() > 0 && entry.path().components().any(|c| c.as_os_str() == "objects") =>
                {
                    found.push((entry.path(), about.len()));
                }
                _ => {}
            }
        }
    }
    found
}

/// The object of the only file with this length.
fn object(bed: &Bed, length: u64) -> PathBuf {
    tier(bed).into_iter().find(|(_, has)| *has == length).expect("its object").0
}

/// A directory on the first host whose files lie in its disk tier; there, and as the second host sees it.
fn near(hosts: &Hosts) -> [PathBuf; 2] {
    let [here, there] = [0, 1].map(|n: usize| hosts.beds[n].mount().join("near"));
    fs::create_dir(&here).unwrap();
    [here, there]
}

/// What is said of the last request.
fn last(bed: &Bed) -> serde_json::Value {
    bed.json(["request", "ls", "--all"])[0].clone()
}

/// Files that programs have open or mapped, what they are to be, and by what they are held.
struct InUse {
    paths: [PathBuf; 4],
    bytes: [Vec<u8>; 4],
    open: [File; 4],
}

impl InUse {
    fn new(first: &Bed, [here, there]: [&Path; 2]) -> Self {
        let paths = ["a-read", "b-written", "c-mapped", "d-elsewhere"].map(|name| here.join(name));
        let bytes = [1, 2, 3, 4].map(|n: usize| noise(5, 1_000_000 + n));
        paths.iter().zip(&bytes).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        let open = [
            File::open(&paths[0]).unwrap(),
            File::options().read(true).write(true).open(&paths[1]).unwrap(),
            // A mapping outlives its descriptor; the kernel sees no difference to a descriptor of the object.
            File::options().write(true).open(object(first, 1_000_003)).unwrap(),
            File::options().append(true).open(there.join("d-elsewhere")).unwrap(),
        ];
        Self { paths, bytes, open }
    }

    /// Changes them, and closes all; the paths and what lies there.
    fn end(mut self) -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
        self.open[1].write_all_at(b"while it is open", 500_000).unwrap();
        self.bytes[1][500_000..500_016].copy_from_slice(b"while it is open");
        self.open[2].write_all_at(b"mapped", 7).unwrap();
        self.bytes[2][7..13].copy_from_slice(b"mapped");
        self.open[3].write_all(b"the end").unwrap();
        self.bytes[3].extend(b"the end");
        self.paths.into_iter().zip(self.bytes)
    }
}

/// A file of 40 MiB with four bytes of data.
fn make_sparse(path: &Path) -> Vec<u8> {
    let sparse = File::create(path).unwrap();
    sparse.set_len(40 << 20).unwrap();
    sparse.write_all_at(b"here", 30 << 20).unwrap();
    let mut bytes = vec![0; 40 << 20];
    bytes[30 << 20..(30 << 20) + 4].copy_from_slice(b"here");
    bytes
}

#[test]
fn files_of_the_disk_tier_go_to_targets_once_nobody_has_them_open_and_hold_up_no_others() {
    if !can_mount("files of the disk tier that go to targets") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    let [here, there] = near(&hosts);
    // These come first.
    let in_use = InUse::new(first, [&here, &there]);
    let mut plain: Vec<(&str, Vec<u8>)> = vec![
        ("closed", noise(1, 9_000_000)),
        ("empty", Vec::new()),
        ("below/small", noise(2, 3_000)),
        ("last", noise(3, 1_500_000)),
    ];
    fs::create_dir(here.join("below")).unwrap();
    plain.iter().for_each(|(name, bytes)| fs::write(here.join(name), bytes).unwrap());
    plain.push(("sparse", make_sparse(&here.join("sparse"))));
    first.ok(words("protect -r", &here, "--copies 2"));
    let moved = |path: &Path| lies_on(first, path).len() == 2;
    plain.iter().for_each(|(name, _)| first.wait(name, || moved(&here.join(name))));
    // Those that are open are where they were, are written as ever, and the request says why it waits.
    let waits = || last(first)["doing"].as_str().unwrap_or_default().to_owned();
    first.wait("the reason", || waits().contains("a-read") && waits().contains("open"));
    assert_eq!(last(first)["request"]["state"], "active");
    assert!(in_use.paths.iter().all(|path| lies_on(first, path).is_empty()));
    let changed = in_use.end();
    hosts.all_moved();
    let all = plain.iter().map(|(name, bytes)| (here.join(name), bytes.clone())).chain(changed);
    for (path, bytes) in all {
        let elsewhere = there.join(path.strip_prefix(&here).unwrap());
        assert!(moved(&path), "{}", path.display());
        assert!(fs::read(&path).unwrap() == bytes, "{}", path.display());
        assert!(fs::read(&elsewhere).unwrap() == bytes, "{}", elsewhere.display());
    }
    first.wait("the disk tier is empty", || tier(first).is_empty());
    first.wait("none of it counts as used", || first.json(["status"])["disk"]["used"] == 0);
    fs::write(here.join("below/new"), b"new").unwrap();
    assert!(moved(&here.join("below/new")), "new files get it, too");
    // They are as any other file on targets is.
    for (name, mut bytes) in plain {
        let file = OpenOptions::new().read(true).write(true).open(there.join(name)).unwrap();
        file.write_all_at(b"again", 0).unwrap();
        file.sync_all().unwrap();
        bytes.resize(bytes.len().max(5), 0);
        bytes[..5].copy_from_slice(b"again");
        assert!(fs::read(here.join(name)).unwrap() == bytes, "{name}, written again");
    }
    first.check();
}

#[test]
fn copies_on_tape_of_a_file_that_left_the_disk_tier_count_and_what_is_on_tape_only_comes_back_to_targets() {
    if !can_mount("files of the disk tier with copies on tape") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    let [here, there] = near(&hosts);
    for name in ["on-tape", "tape-only"] {
        fs::write(here.join(name), noise(4, 2_000_001)).unwrap();
        first.ok(words("migrate --wait", &here.join(name), ""));
    }
    first.ok(words("purge --wait", &here.join("tape-only"), ""));
    first.ok(words("protect --wait -r", &here, "--code 2+1"));
    let moved = |name: &str| lies_on(first, &here.join(name)).len() == 5;
    assert!(moved("on-tape") && lies_on(first, &here.join("tape-only")).is_empty());
    // No copy has to be made first.
    first.ok(words("purge --wait", &here.join("on-tape"), ""));
    first.wait("nothing is left on targets", || hosts.objects() == 0);
    for name in ["tape-only", "on-tape"] {
        assert!(fs::read(there.join(name)).unwrap() == noise(4, 2_000_001), "{name}, from tape");
        first.wait("it is back on targets", || moved(name));
    }
    assert_eq!(tier(first), []);
    first.check();
}

#[test]
fn who_reads_a_file_while_it_leaves_the_disk_tier_goes_on_and_who_writes_it_keeps_it_there() {
    if !can_mount("readers and writers of a file that leaves the disk tier") {
        return;
    }
    // So slow that programs come in the middle.
    let hosts = Hosts::new("3 MiB");
    let first = hosts.first();
    let [here, there] = near(&hosts);
    let mut bytes = noise(1, 12_000_000);
    let (path, other) = (here.join("file"), there.join("file"));
    fs::write(&path, &bytes).unwrap();
    first.ok(words("protect", &path, "--code 2+1 --stripe-size 64KiB"));
    first.wait("it is being copied", || hosts.objects() > 0);
    first.wait("how far it is, and how long the rest takes", || {
        let view = last(first);
        view["percent"].as_u64() > Some(20)
            && view["eta_s"].as_u64().is_some()
            && view["request"]["files_done"] == 0
    });
    // A writer ends that, and so does who sets the length.
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(b"in the middle", 6_000_000).unwrap();
    bytes[6_000_000..6_000_013].copy_from_slice(b"in the middle");
    first.wait("it is given up", || hosts.objects() == 0);
    assert_eq!(lies_on(first, &path), [0_u64; 0]);
    drop(writer);
    first.wait("it is being copied again", || hosts.objects() > 0);
    File::options().write(true).open(&other).unwrap().set_len(11_000_000).unwrap();
    bytes.truncate(11_000_000);
    assert!(fs::read(&other).unwrap() == bytes, "on the other host");
    // Readers do not, on either host.
    first.wait("it is given up again", || hosts.objects() == 0);
    first.wait("it is being copied once more", || hosts.objects() > 0);
    let readers = [&path, &other].map(|path| File::open(path).unwrap());
    let read = |mut file: &File| {
        let mut found = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut found).unwrap();
        found
    };
    while lies_on(first, &path).is_empty() {
        assert!(readers.iter().all(|file| read(file) == bytes), "while it is copied");
    }
    hosts.all_moved();
    assert_eq!(lies_on(first, &path).len(), 5);
    assert!(readers.iter().all(|file| read(file) == bytes), "afterwards");
    // What is written now they see.
    File::options().write(true).open(&other).unwrap().write_all_at(b"later", 3).unwrap();
    bytes[3..8].copy_from_slice(b"later");
    assert!(readers.iter().all(|file| read(file) == bytes), "what was written later");
    drop(readers);
    first.ok(words("protect", &path, "--copies 3"));
    first.wait("how far it is to other targets", || {
        (20..100).contains(&last(first)["percent"].as_u64().unwrap())
    });
    assert_eq!(last(first)["request"]["files_done"], 0);
    hosts.all_moved();
    first.wait("what it had is removed", || hosts.objects() == 3);
    // Withdrawn, it stays where it is.
    let stays = here.join("stays");
    fs::write(&stays, &bytes).unwrap();
    first.ok(words("protect", &stays, "--copies 2"));
    first.wait("it is being copied", || hosts.objects() > 3);
    first.ok(["request", "cancel", &last(first)["request"]["id"].to_string()]);
    first.wait("what was copied is removed", || hosts.objects() == 3);
    assert!(lies_on(first, &stays).is_empty() && fs::read(&stays).unwrap() == bytes);
    first.wait("nothing else is left", || tier(first).len() == 1);
    first.check();
}

/// A program that writes a file of the first host again and again, each time another one that it opens, and reads it; see the binary.
struct Writer(Child);

impl Writer {
    fn begin(paths: [&Path; 2]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_writer"));
        Self(command.arg("many").args(paths).stdin(Stdio::piped()).spawn().unwrap())
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success(), "see what the writer says");
    }
}

#[test]
fn files_lie_in_the_disk_tier_or_on_targets_when_the_node_or_a_mover_dies_in_the_middle() {
    if !can_mount("crashes while files leave the disk tier") {
        return;
    }
    // So slow that the deaths fall into it.
    let hosts = Hosts::new("8 MiB");
    let first = hosts.first();
    let [here, there] = near(&hosts);
    for n in 0..8 {
        fs::write(here.join(format!("f{n}")), noise(n, 2_500_000)).unwrap();
    }
    fs::create_dir(here.join("made")).unwrap();
    let writer = Writer::begin([&there.join("made"), &here.join("made")]);
    first.wait("some files", || fs::read_dir(here.join("made")).unwrap().count() > 2);
    first.ok(words("protect -r", &here, "--copies 2"));
    for pause in [300, 700, 1500] {
        std::thread::sleep(Duration::from_millis(pause));
        first.kill();
        first.up_mounted();
    }
    hosts.beds[3].kill();
    std::thread::sleep(Duration::from_millis(300));
    hosts.beds[3].up();
    hosts.all_moved();
    writer.end();
    for n in 0..8 {
        let file = here.join(format!("f{n}"));
        assert_eq!(lies_on(first, &file).len(), 2, "file {n}");
        assert!(fs::read(file).unwrap() == noise(n, 2_500_000), "file {n}");
    }
    let made = fs::read_dir(here.join("made")).unwrap().count();
    first.wait("what was left behind", || hosts.objects() == 2 * (8 + made) && tier(first).is_empty());
    first.check();
}

#[test]
fn a_file_of_the_disk_tier_for_which_targets_have_no_room_stays_there() {
    if !can_mount("targets without room for a file of the disk tier") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    let [here, _] = near(&hosts);
    let (file, bytes) = (here.join("file"), noise(3, 24_000_000));
    fs::write(&file, &bytes).unwrap();
    let ballast: Vec<PathBuf> =
        hosts.beds[1..].iter().map(|bed| bed.path("target").join("ballast")).collect();
    for path in &ballast {
        let used = TARGET - (16 << 20);
        let status = Command::new("fallocate").arg("-l").arg(used.to_string()).arg(path).status();
        assert!(status.unwrap().success(), "ballast");
    }
    let refused = first.run(words("protect --wait", &file, "--copies 3"));
    assert!(!refused.status.success(), "it has no room");
    let said = first.ok(["request", "show", &last(first)["request"]["id"].to_string(), "--failed"]);
    assert!(said.contains("it stays as it is"), "{said}");
    assert!(lies_on(first, &file).is_empty() && fs::read(&file).unwrap() == bytes);
    first.wait("what was begun", || hosts.objects() == 0);
    ballast.iter().for_each(|path| fs::remove_file(path).unwrap());
    first.ok(words("protect --wait", &file, "--copies 3"));
    assert!(lies_on(first, &file).len() == 3 && fs::read(&file).unwrap() == bytes);
    first.check();
}

/// Opens a file again and again, on either host, changes or reads it, and closes it; it always is what was written last.
fn use_again_and_again(paths: [&Path; 2], seed: u64, stop: &AtomicBool) {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut bytes = fs::read(paths[0]).unwrap();
    let mut round = 0;
    while !stop.load(Ordering::Acquire) {
        let path = paths[random(2) as usize];
        match random(4) {
            0 => {
                let file = File::options().write(true).open(path).unwrap();
                let (at, part) = (random(300_000), noise(seed + round, 1 + random(50_000) as usize));
                file.write_all_at(&part, at).unwrap();
                bytes.resize(bytes.len().max(at as usize + part.len()), 0);
                bytes[at as usize..at as usize + part.len()].copy_from_slice(&part);
            }
            1 => {
                let size = random(350_000);
                File::options().write(true).open(path).unwrap().set_len(size).unwrap();
                bytes.resize(size as usize, 0);
            }
            2 => {
                bytes = noise(seed + round, random(300_000) as usize);
                fs::write(path, &bytes).unwrap();
            }
            _ => std::thread::sleep(Duration::from_millis(random(1_500))),
        }
        let found = fs::read(paths[random(2) as usize]).unwrap();
        assert!(found == bytes, "{} after {round} changes: {} bytes", path.display(), found.len());
        round += 1;
    }
}

#[test]
fn files_that_are_opened_changed_and_closed_all_the_time_leave_the_disk_tier_as_they_are() {
    if !can_mount("files that change while they leave the disk tier") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    let [here, there] = near(&hosts);
    let names: Vec<String> = (0..12).map(|n| format!("f{n}")).collect();
    names.iter().for_each(|name| fs::write(here.join(name), noise(1, 200_000)).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let users: Vec<_> = (1..)
            .zip(&names)
            .map(|(seed, name)| {
                let (paths, stop) = ([here.join(name), there.join(name)], &stop);
                scope.spawn(move || use_again_and_again([&paths[0], &paths[1]], seed * 1_000_000, stop))
            })
            .collect();
        first.ok(words("protect -r", &here, "--copies 2 --then 256KiB:1"));
        let done =
            || last(first)["request"]["state"] == "done" || users.iter().any(|user| user.is_finished());
        first.wait("all to be moved", done);
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Release);
    });
    assert!(names.iter().all(|name| lies_on(first, &here.join(name)).len() >= 2));
    first.wait("the disk tier is empty", || tier(first).is_empty());
    first.check();
}
