//! Columns move between targets, and files get other layouts, while a client on another host writes straight to them, and nodes die meanwhile.

use e2e::cluster::{Small, configure, join, lies_on, objects, serves, targets, up, wait_for_close, words};
use e2e::hosts::{Hosts, TARGET};
use e2e::{Bed, can_mount, noise};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of each target's file system where all of one is taken.
const SMALL: u64 = 48 << 20;

/// A program that writes a file below the second mount, straight at the targets, and reads it below both.
struct Writer(Child);

impl Writer {
    fn begin(hosts: &Hosts, what: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_writer"));
        command.arg(what).arg(hosts.there.join(what)).arg(hosts.here.join(what)).stdin(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn goes_on(&mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "a writer has ended");
    }

    /// Stops it; what it wrote is there.
    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success(), "see what the writer says");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(self.0.kill());
        }
    }
}

/// Says stop when dropped, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Appends records to a file while both hosts do.
fn append(hosts: &Hosts, dir: &Path, stop: &AtomicBool) -> u64 {
    use std::io::Write;
    let mut file = OpenOptions::new().append(true).create(true).open(dir.join("log")).unwrap();
    let letter = if dir == hosts.here { 1 } else { 2 };
    let mut n = 0;
    while !stop.load(Ordering::Acquire) {
        file.write_all(&noise(letter, 5_000)).unwrap();
        n += 1;
        std::thread::sleep(Duration::from_millis(15));
    }
    file.sync_all().unwrap();
    n
}

#[test]
fn targets_are_drained_and_balanced_while_another_host_writes_straight_to_them() {
    if !can_mount("draining below another host") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, stop) = (hosts.first(), AtomicBool::new(false));
    let mut writers = ["written", "long"].map(|what| Writer::begin(&hosts, what));
    first.wait("the files", || ["written", "long"].iter().all(|what| hosts.here.join(what).exists()));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let logs = [&hosts.here, &hosts.there].map(|dir| scope.spawn(|| append(&hosts, dir, &stop)));
        for target in [1_u64, 2, 3, 2, 1] {
            first.ok(["target", "drain", &target.to_string(), "--wait"]);
            assert!(!lies_on(first, &hosts.here.join("written")).contains(&target));
            hosts.drained(target);
            hosts.give_back(target);
            writers.iter_mut().for_each(Writer::goes_on);
        }
        // The last one that was drained is emptier than the others now, when its node says so.
        let used = || {
            let used = |view: &Value| {
                let number = |what: &str| view["target"][what].as_u64().unwrap();
                (view["target"]["id"].as_u64().unwrap(), number("capacity") - number("free"))
            };
            targets(first).iter().map(used).collect::<Vec<_>>()
        };
        let of_first = |used: Vec<(u64, u64)>| used.into_iter().find(|(id, _)| *id == 1).unwrap().1;
        first.wait("its room", || of_first(used()) < 3 << 20);
        first.ok(["target", "balance", "--wait"]);
        assert!(objects(hosts.of(1)) > 0, "it has something again");
        writers.into_iter().for_each(Writer::end);
        stop.store(true, Ordering::Release);
        let records: u64 = logs.map(|log| log.join().unwrap()).iter().sum();
        let log = fs::read(hosts.there.join("log")).unwrap();
        assert_eq!(log.len() as u64, records * 5_000);
        let known = [noise(1, 5_000), noise(2, 5_000)];
        assert!(log.chunks(5_000).all(|record| known.iter().any(|known| known == record)), "records mixed");
    });
    hosts.all_moved();
    first.wait("what was left behind", || hosts.beds[1..].iter().map(objects).sum::<usize>() == 6);
    first.check();
}

#[test]
fn a_drain_below_another_host_goes_on_when_the_node_or_a_mover_dies_in_the_middle() {
    if !can_mount("crashes in a drain") {
        return;
    }
    // So slow that the deaths fall into it.
    let hosts = Hosts::new("6 MiB");
    let first = hosts.first();
    for n in 0..6 {
        fs::write(hosts.here.join(format!("f{n}")), noise(n, 3_000_000)).unwrap();
    }
    let mut writers = ["written", "long"].map(|what| Writer::begin(&hosts, what));
    std::thread::sleep(Duration::from_secs(1));
    for (target, pauses) in [(2_u64, [700, 1500, 400]), (3, [300, 900, 2000])] {
        first.ok(["target", "drain", &target.to_string()]);
        for pause in pauses {
            std::thread::sleep(Duration::from_millis(pause));
            first.kill();
            first.up_mounted();
        }
        // The mover of the target itself, unless it is on the host that writes.
        let mover = hosts.of(target);
        if mover.state() != hosts.beds[1].state() {
            mover.kill();
            std::thread::sleep(Duration::from_millis(300));
            mover.up();
        }
        hosts.all_moved();
        hosts.drained(target);
        hosts.give_back(target);
        writers.iter_mut().for_each(Writer::goes_on);
    }
    writers.into_iter().for_each(Writer::end);
    for n in 0..6 {
        assert!(fs::read(hosts.here.join(format!("f{n}"))).unwrap() == noise(n, 3_000_000), "file {n}");
    }
    first.wait("what was left behind", || hosts.beds[1..].iter().map(objects).sum::<usize>() == 16);
    first.check();
}

/// Ways to deal out files, and how many objects a file has with them.
const LAYOUTS: [(&str, usize); 4] = [
    ("--copies 2 --stripe-size 64KiB", 2),
    ("--code 2+1 --stripe-size 64KiB", 5),
    ("--copies 3", 3),
    ("--copies 1 --stripes 2 --stripe-size 128KiB", 2),
];

/// Objects on all targets.
#[test]
fn files_get_another_layout_while_another_host_writes_straight_to_them() {
    if !can_mount("changing layouts below another host") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, stop) = (hosts.first(), AtomicBool::new(false));
    let closed = noise(9, 9_000_000);
    fs::write(hosts.here.join("closed"), &closed).unwrap();
    fs::create_dir(hosts.here.join("below")).unwrap();
    let sparse = fs::File::create(hosts.here.join("below/sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"here", 30 << 20).unwrap();
    drop(sparse);
    let mut writers = ["written", "long"].map(|what| Writer::begin(&hosts, what));
    first.wait("the files", || ["written", "long"].iter().all(|what| hosts.here.join(what).exists()));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let logs = [&hosts.here, &hosts.there].map(|dir| scope.spawn(|| append(&hosts, dir, &stop)));
        first.wait("the log", || hosts.here.join("log").exists());
        for (layout, columns) in LAYOUTS {
            first.ok(words("protect --wait -r", &hosts.here, layout));
            for file in ["closed", "below/sparse", "written", "long", "log"] {
                assert_eq!(lies_on(first, &hosts.here.join(file)).len(), columns, "{file} with {layout}");
            }
            assert!(fs::read(hosts.here.join("closed")).unwrap() == closed, "{layout}");
            assert!(fs::read(hosts.there.join("closed")).unwrap() == closed, "{layout}, on the other host");
            let get = hosts.beds[1].path("got");
            first.ok([OsStr::new("get"), OsStr::new("tc:/striped/closed"), get.as_os_str()]);
            assert!(fs::read(get).unwrap() == closed, "{layout}, past the mount");
            let sparse = fs::read(hosts.there.join("below/sparse")).unwrap();
            assert_eq!(sparse.len(), 40 << 20);
            assert!(&sparse[30 << 20..(30 << 20) + 4] == b"here");
            writers.iter_mut().for_each(Writer::goes_on);
        }
        writers.into_iter().for_each(Writer::end);
        stop.store(true, Ordering::Release);
        let records: u64 = logs.map(|log| log.join().unwrap()).iter().sum();
        let log = fs::read(hosts.there.join("log")).unwrap();
        assert_eq!(log.len() as u64, records * 5_000);
        let known = [noise(1, 5_000), noise(2, 5_000)];
        assert!(log.chunks(5_000).all(|record| known.iter().any(|known| known == record)), "records mixed");
    });
    fs::write(hosts.here.join("below/new"), b"new").unwrap();
    assert_eq!(lies_on(first, &hosts.here.join("below/new")).len(), 2, "new files get it, too");
    first.wait("what was left behind", || hosts.objects() == 6 * 2);
    first.check();
}

#[test]
fn another_layout_is_there_or_the_old_one_when_the_node_or_a_mover_dies_in_the_middle() {
    if !can_mount("crashes while layouts change") {
        return;
    }
    // So slow that the deaths fall into it.
    let hosts = Hosts::new("12 MiB");
    let first = hosts.first();
    for n in 0..6 {
        fs::write(hosts.here.join(format!("f{n}")), noise(n, 2_000_000)).unwrap();
    }
    let mut writers = ["written", "long"].map(|what| Writer::begin(&hosts, what));
    std::thread::sleep(Duration::from_secs(1));
    let (layout, columns) = LAYOUTS[1];
    first.ok(words("protect -r", &hosts.here, layout));
    for pause in [300, 1500] {
        std::thread::sleep(Duration::from_millis(pause));
        first.kill();
        first.up_mounted();
    }
    hosts.beds[3].kill();
    std::thread::sleep(Duration::from_millis(300));
    hosts.beds[3].up();
    hosts.all_moved();
    for n in 0..6 {
        let file = hosts.here.join(format!("f{n}"));
        assert_eq!(lies_on(first, &file).len(), columns, "file {n}");
        assert!(fs::read(file).unwrap() == noise(n, 2_000_000), "file {n}");
    }
    writers.iter_mut().for_each(Writer::goes_on);
    writers.into_iter().for_each(Writer::end);
    first.wait("what was left behind", || hosts.objects() == 8 * 5);
    first.check();
}

#[test]
fn a_layout_without_room_changes_nothing_and_what_is_on_tape_only_comes_back_as_it_is_wanted() {
    if !can_mount("a layout without room") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, bytes) = (hosts.first(), noise(3, 12_000_000));
    let file = hosts.here.join("file");
    fs::write(&file, &bytes).unwrap();
    let before = first.json(words("layout get", &file, ""));
    let ballast = hosts.beds[1..].iter().map(|bed| bed.path("target").join("ballast"));
    let ballast: Vec<PathBuf> = ballast.collect();
    // A third of it fits.
    for path in &ballast {
        let used = TARGET - (16 << 20);
        let status = Command::new("fallocate").arg("-l").arg(used.to_string()).arg(path).status();
        assert!(status.unwrap().success(), "ballast");
    }
    let refused = first.run(words("protect --wait", &file, "--copies 3"));
    assert!(!refused.status.success(), "it has no room");
    let requests = first.json(["request", "ls", "--all"]);
    let id = requests[0]["request"]["id"].to_string();
    let said = first.ok(["request", "show", &id, "--failed"]);
    assert!(said.contains("it stays as it is"), "{said}");
    let now = first.json(words("layout get", &file, ""));
    assert_eq!(
        (&now["file"]["rule"], &now["file"]["columns"]),
        (&before["file"]["rule"], &before["file"]["columns"])
    );
    assert!(fs::read(&file).unwrap() == bytes && fs::read(hosts.there.join("file")).unwrap() == bytes);
    first.wait("what was begun", || hosts.objects() == 2);
    ballast.iter().for_each(|path| fs::remove_file(path).unwrap());
    // They tell that every five seconds; until then, what comes back goes to the node's own disk tier.
    let has_room = |view: &Value| view["target"]["free"].as_u64().unwrap() > TARGET / 2;
    first.wait("their room", || targets(first).iter().all(has_room));
    first.ok(words("migrate --wait", &file, ""));
    first.ok(words("purge --wait", &file, ""));
    first.ok(words("protect --wait", &file, "--code 2+1"));
    assert_eq!(lies_on(first, &file), [0_u64; 0], "it stays on tape");
    assert!(fs::read(hosts.there.join("file")).unwrap() == bytes, "from tape");
    first.wait("it is back on targets", || lies_on(first, &file).len() == 5);
    // What counts on tape counts with another layout.
    first.ok(words("protect --wait", &file, "--copies 2"));
    first.ok(words("purge --wait", &file, ""));
    first.wait("nothing is left on targets", || hosts.objects() == 0);
    assert!(fs::read(&file).unwrap() == bytes, "from tape again");
    assert!(!first.run(words("protect", &file, "")).status.success(), "it has to be said what may be lost");
    first.check();
}

/// A first node and three more with a target each, and a directory at the first whose files are coded over three of them.
struct Coded {
    beds: [Bed; 4],
    dir: PathBuf,
    _small: Vec<Small>,
}

impl Coded {
    fn new() -> Self {
        let beds: [Bed; 4] = std::array::from_fn(|_| Bed::new(""));
        let small = beds.iter().map(|bed| Small::mount(bed, SMALL)).collect();
        for bed in &beds {
            configure(bed, "");
            bed.up();
        }
        let first = &beds[0];
        first.ok(["cluster", "init", "--name", "first"]);
        ["second", "third", "fourth"].iter().zip(&beds[1..]).for_each(|(name, bed)| join(first, bed, name));
        first.wait("four targets", || up(first) == [1, 2, 3, 4]);
        first.ok([OsStr::new("mount"), first.mount().as_os_str()]);
        let dir = first.mount().join("coded");
        fs::create_dir(&dir).unwrap();
        first.ok(words("layout set", &dir, "--code 2+1 --stripe-size 64KiB"));
        Self { beds, dir, _small: small }
    }

    /// Somebody else takes all that is left of the target of a node; how to give it back.
    fn fill(&self, node: usize) -> PathBuf {
        let filler = self.beds[node].path("target").join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        let full = std::iter::repeat_with(|| std::io::Write::write_all(&mut file, &[1; 4096]));
        let full = full.take(SMALL as usize / 4096 + 1).find_map(Result::err).expect("it is not endless");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        filler
    }
}

/// Bytes that nobody uses of a target, as its node has told.
fn free(first: &Bed, target: u64) -> u64 {
    let all = targets(first);
    let view = all.iter().find(|view| view["target"]["id"] == target).expect("it is known");
    view["target"]["free"].as_u64().unwrap()
}

/// What a file is to be, and the file.
struct Kept {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Kept {
    fn new(dir: &Path, name: &str, length: usize) -> Self {
        let kept = Self { path: dir.join(name), bytes: noise(7, length) };
        fs::write(&kept.path, &kept.bytes).unwrap();
        kept
    }

    /// Changes it in the middle, makes it longer, and cuts it in a row.
    fn change(&mut self, seed: u64) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        let told = |what: &str, done: std::io::Result<()>| {
            done.unwrap_or_else(|e| panic!("{what} {}: {e}", self.path.display()));
        };
        let (middle, end) = (noise(seed, 20_000), noise(seed + 1, 300_000));
        let half = self.bytes.len() / 2;
        told("changing", file.write_all_at(&middle, half as u64));
        self.bytes.resize(self.bytes.len().max(half + middle.len()), 0);
        self.bytes[half..half + middle.len()].copy_from_slice(&middle);
        told("appending to", file.write_all_at(&end, self.bytes.len() as u64));
        self.bytes.extend(end);
        self.bytes.truncate(self.bytes.len() - 50_000);
        told("cutting", file.set_len(self.bytes.len() as u64));
        told("syncing", file.sync_all());
    }

    fn is_there(&self) {
        assert!(fs::read(&self.path).unwrap() == self.bytes, "{}", self.path.display());
    }
}

#[test]
fn files_are_made_and_written_while_one_of_more_targets_than_they_need_is_full() {
    if !can_mount("files beside a full target") {
        return;
    }
    let site = Coded::new();
    let (first, dir) = (&site.beds[0], &site.dir);
    let plain = first.mount().join("plain");
    fs::create_dir(&plain).unwrap();
    first.ok(words("layout set", &plain, "--stripes 2 --stripe-size 64KiB"));
    let full = (1..=4).find(|id| serves(first, &site.beds[3], *id)).expect("its number");
    let there = |kept: &Kept| lies_on(first, &kept.path).contains(&full);
    // Of some nothing was ever written.
    let mut kept: Vec<Kept> = (0..6).map(|n| Kept::new(&plain, &format!("empty-{n}"), 0)).collect();
    let mut coded: Vec<Kept> = (0..9).map(|n| Kept::new(dir, &format!("old-{n}"), 700_000)).collect();
    assert!(kept.iter().any(there) && coded.iter().any(there), "nothing lies there");
    // What their logs have is in no row yet, most likely, and rows would be longer than they are.
    coded.iter_mut().for_each(|kept| kept.change(1));
    kept.append(&mut coded);
    let filler = site.fill(3);
    for (n, kept) in kept.iter_mut().enumerate() {
        kept.change(10 + n as u64);
        kept.is_there();
    }
    kept.extend((0..9).map(|n| Kept::new(dir, &format!("new-{n}"), 700_000)));
    // Many writers of one file meet the full target at once.
    let mut shared = Kept::new(dir, "shared", 0);
    shared.bytes = noise(8, 1_600_000);
    std::thread::scope(|scope| {
        for (n, part) in shared.bytes.chunks(100_000).enumerate() {
            let path = &shared.path;
            scope.spawn(move || {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                let written = file.write_all_at(part, n as u64 * 100_000);
                written.unwrap_or_else(|e| panic!("part {n} of the shared file: {e}"));
            });
        }
    });
    kept.push(shared);
    kept.iter().for_each(Kept::is_there);
    fs::remove_file(filler).unwrap();
    first.wait("its room", || free(first, full) > SMALL / 2);
    for (n, kept) in kept.iter_mut().enumerate() {
        kept.change(50 + n as u64);
        kept.is_there();
    }
    first.check();
}

#[test]
fn a_coded_file_goes_on_when_there_is_room_again_after_all_targets_were_full() {
    if !can_mount("coded files on full targets") {
        return;
    }
    let site = Coded::new();
    let mut kept = Kept::new(&site.dir, "kept", 700_000);
    let file = OpenOptions::new().write(true).open(&kept.path).unwrap();
    let fillers: Vec<PathBuf> = (0..4).map(|node| site.fill(node)).collect();
    let full = file.write_all_at(&noise(9, 300_000), kept.bytes.len() as u64).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(28), "ENOSPC: {full}");
    assert!(fs::read(&kept.path).unwrap()[..kept.bytes.len()] == kept.bytes, "what was there before");
    fillers.into_iter().for_each(|filler| fs::remove_file(filler).unwrap());
    let more = noise(9, 300_000);
    file.write_all_at(&more, kept.bytes.len() as u64).expect("there is room again");
    kept.bytes.extend(more);
    file.sync_all().unwrap();
    drop(file);
    kept.change(90);
    kept.is_there();
    site.beds[0].check();
}

/// What moves keeps this rate until it was seen how far it is (bytes per second).
const RATE: u64 = 3 << 20;
/// More than that may be under way: a step of a column, and one that was begun when the step before was smaller than expected.
const STEPS: u64 = 8 << 20;

/// Bytes that all targets have.
fn have(hosts: &Hosts) -> u64 {
    let used = |bed: &Bed| {
        let space = rustix::fs::statvfs(bed.path("target")).unwrap();
        (space.f_blocks - space.f_bfree) * space.f_frsize
    };
    hosts.beds[1..].iter().map(used).sum()
}

fn set_pace(hosts: &Hosts, from: &str, to: &str) {
    let config = hosts.first().state().join("config.toml");
    let [from, to] = [from, to].map(|pace| format!("move_rate = \"{pace}\""));
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(&from), "{text}");
    fs::write(&config, text.replace(&from, &to)).unwrap();
    hosts.first().ok(["reload"]);
}

/// Begins something that moves much: it keeps the rate, and says how far it is and how long the rest takes. However slow this machine is, not more is moved than the rate allows.
fn keeps_the_rate(hosts: &Hosts, command: &[&str]) {
    let (first, before, begun) = (hosts.first(), have(hosts), Instant::now());
    first.ok(command);
    let newest = || first.json(["request", "ls", "--all"])[0].clone();
    first.wait("more to be moved than is under way at once, and what there is to say of it", || {
        let moved = have(hosts).saturating_sub(before);
        let allowed = (begun.elapsed().as_secs_f64() * RATE as f64) as u64 + STEPS;
        assert!(moved <= allowed, "{command:?}: {moved} bytes are moved, {allowed} may be");
        let view = newest();
        assert_ne!(view["request"]["state"], "done", "{view:#}");
        let says = (1..100).contains(&view["percent"].as_u64().unwrap()) && view["eta_s"].is_u64();
        moved > STEPS + RATE && says
    });
    let id = newest()["request"]["id"].to_string();
    let text = first.ok(["request", "show", &id]);
    assert!(text.contains(" left\n") && text.contains("  ends      in "), "{text}");
    // What is under way goes on at another rate.
    set_pace(hosts, "3 MiB", "0");
    hosts.all_moved();
    set_pace(hosts, "0", "3 MiB");
}

#[test]
fn drains_balances_and_replacements_keep_the_rate_and_say_how_far_they_are() {
    if !can_mount("the rate of what moves") {
        return;
    }
    let hosts = Hosts::new("3 MiB");
    let (first, path, bytes) = (hosts.first(), hosts.here.join("file"), noise(5, 60 << 20));
    fs::write(&path, &bytes).unwrap();
    wait_for_close(first, &path);
    let target = lies_on(first, &path)[0];
    keeps_the_rate(&hosts, &["target", "drain", &target.to_string()]);
    hosts.drained(target);
    hosts.give_back(target);
    let used = |view: &Value| {
        let number = |what: &str| view["target"][what].as_u64().unwrap();
        number("capacity") - number("free")
    };
    first.wait("what all targets have to be told", || {
        let of = |view: &Value| (view["target"]["id"] == target) == (used(view) < 3 << 20);
        targets(first).iter().all(of)
    });
    keeps_the_rate(&hosts, &["target", "balance"]);
    assert!(lies_on(first, &path).contains(&target));
    assert!(fs::read(&path).unwrap() == bytes);
    fs::remove_file(&path).unwrap();
    first.wait("it is gone", || hosts.objects() == 0);
    first.check();
    // Of a lost target everything is rebuilt, several files at once.
    first.ok(words("layout set", &hosts.here, "--copies 2"));
    let files: Vec<(PathBuf, Vec<u8>)> =
        (0..30).map(|n| (hosts.here.join(format!("f{n}")), noise(n, 2_000_000))).collect();
    for (path, bytes) in &files {
        fs::write(path, bytes).unwrap();
        wait_for_close(first, path);
    }
    let lost = (1..=3).find(|target| hosts.of(*target).state() != hosts.beds[1].state()).unwrap();
    hosts.of(lost).kill();
    keeps_the_rate(&hosts, &["target", "replace", &lost.to_string()]);
    for (path, bytes) in &files {
        assert!(!lies_on(first, path).contains(&lost) && fs::read(path).unwrap() == *bytes);
    }
}
