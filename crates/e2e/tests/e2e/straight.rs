//! A drive at another host gets what lies on targets straight from their movers: none of it passes through the node with the names.

use e2e::cluster::{configure, join, node, up, words};
use e2e::{Bed, can_mount, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vtl::{Library, Mechanics, Server, VtlConfig, serve};

/// A first node with the robot and no targets, a second with all drives and a target, a third with a target. Volumes of pool `second` are without partitions.
struct Hall {
    beds: [Bed; 3],
    library: Arc<Library>,
    _servers: [Server; 2],
}

/// Bytes per second of a drive that is to be at work for a while.
const SLOW: u64 = 10_000_000;

impl Hall {
    fn new(drives: u16, mechanics: Mechanics, capacity_bytes: u64) -> Self {
        let beds = [Bed::new(""), Bed::new(""), node()];
        let config = VtlConfig {
            drives,
            mechanics,
            buffer_bytes: 1 << 20,
            capacity_bytes,
            serial: "HALLB001".into(),
            ..VtlConfig::new(beds[0].path("hall"))
        };
        let library = Library::open(config).unwrap();
        let servers = ["here", "there"].map(|host| serve(library.clone(), &beds[0].path(host)).unwrap());
        for bed in &beds[..2] {
            configure(bed, "");
        }
        let given = |n| {
            let device = beds[0].path(&format!("there/drive{n}.sock"));
            format!("[[devices]]\nname = \"drive{n}\"\ndevice = \"unix:{}\"\nnode = 1\n", device.display())
        };
        change(&beds[1], |text| text + &(0..drives).map(given).collect::<String>());
        change(&beds[0], |text| {
            let (before, _) = text.split_once("[[targets]]").expect("its target");
            format!("{before}[tape]\nidle_unmount_s = 1\ndrive_retry_s = 1\nbuffers = \"3 MiB\"\n")
        });
        beds[..2].iter().for_each(Bed::up);
        beds[0].ok(["cluster", "init", "--name", "first"]);
        join(&beds[0], &beds[1], "second");
        join(&beds[0], &beds[2], "third");
        beds[0].wait("two targets", || up(&beds[0]) == [2, 3]);
        beds[0].ok(["down"]);
        let text = fs::read_to_string(beds[1].state().join("config.toml")).unwrap();
        let at_second = text.split("listen = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let there = format!("thermo://{at_second}");
        let changer = format!("unix:{}", beds[0].path("here/changer.sock").display());
        beds[0].json(["library", "discover", "--write", "--only", &changer, &there]);
        beds[0].up();
        beds[0].ok(["pool", "set", "second", "--format", "ansi-tar"]);
        Self { beds, library, _servers: servers }
    }

    /// A directory at the mount of the first node.
    fn directory(&self, name: &str, layout: &str) -> PathBuf {
        let first = &self.beds[0];
        if !first.mount().join("..").join("mounted").exists() {
            first.ok([std::ffi::OsStr::new("mount"), first.mount().as_os_str()]);
            fs::write(first.mount().join("..").join("mounted"), "").unwrap();
        }
        let dir = first.mount().join(name);
        fs::create_dir(&dir).unwrap();
        first.ok(words("layout set", &dir, layout));
        dir
    }

    /// The third host has one more.
    fn add_target(&self) {
        let [first, _, third] = &self.beds;
        fs::create_dir(third.path("more")).unwrap();
        third.ok(words("target add", &third.path("more"), "--domain shelf"));
        first.wait("three targets", || up(first) == [2, 3, 3]);
    }

    /// Has a file written to more than one volume in either pool, checked, and purged. What went straight, and through the first node.
    fn written_to_several(&self, path: &Path, bytes: &[u8]) -> (u64, u64) {
        let first = &self.beds[0];
        fs::write(path, bytes).unwrap();
        closed(first, path, bytes.len());
        first.ok(words("migrate", path, "--wait"));
        let moved = self.moved();
        let volumes = first.json(["volume", "ls"]);
        let written = |pool: &str| {
            let all = volumes.as_array().expect("a list").iter().map(|view| &view["volume"]);
            all.filter(|volume| volume["pool"] == pool && volume["files"] == 1).count()
        };
        assert!(written("primary") >= 2 && written("second") >= 2, "{volumes:#}");
        // Every byte of every part has its digest.
        first.ok(["check", "--tapes", "--deep"]);
        first.ok(words("purge", path, "--wait"));
        moved
    }

    /// What the first node says of bytes that did not go straight.
    fn said(&self) -> String {
        let log = self.beds[0].log();
        let lines =
            log.lines().filter(|line| line.contains("through this node:") || line.contains("go on here"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Files that went on here as a mover did not answer in time: on a busy machine one may.
    fn late(&self) -> u64 {
        let files = self.said().matches("go on here").count() as u64;
        assert!(files <= 1, "{}", self.said());
        files
    }

    /// Bytes that went straight between movers and the drive's host, and through the first node, as its log tells.
    fn moved(&self) -> (u64, u64) {
        let log = fs::read_to_string(self.beds[0].state().join("thermo.log")).unwrap();
        let told = log.lines().filter_map(|line| line.split_once(" bytes straight from or to movers, "));
        told.fold((0, 0), |(straight, through), (before, after)| {
            let number = |word: Option<&str>| word.expect("a number").parse::<u64>().expect("a number");
            (straight + number(before.rsplit(' ').next()), through + number(after.split(' ').next()))
        })
    }
}

fn change(bed: &Bed, to: impl Fn(String) -> String) {
    let path = bed.state().join("config.toml");
    fs::write(&path, to(fs::read_to_string(&path).unwrap())).unwrap();
}

/// Waits until a file of that length is closed, as the catalogue sees it.
fn closed(first: &Bed, path: &Path, length: usize) {
    first.wait("its close", || first.json(words("stat", path, ""))[0]["file"]["stamp"]["size"] == length);
}

/// A node stands still for a while.
fn stand_still(bed: &Bed) {
    let pid = Pid::from_raw(bed.pid()).expect("a pid");
    kill_process(pid, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    kill_process(pid, Signal::CONT).unwrap();
}

#[test]
fn files_on_targets_go_straight_to_a_drive_of_another_host_in_both_formats() {
    if !can_mount("bytes straight to a drive") {
        return;
    }
    let hall = Hall::new(1, Mechanics::ZERO, 256 << 20);
    let first = &hall.beds[0];
    hall.add_target();
    let dirs = [
        hall.directory("striped", "--stripes 2 --stripe-size 64KiB"),
        hall.directory("copies", "--copies 2"),
        hall.directory("parity", "--code 2+1"),
    ];
    let mut files = Vec::new();
    for (n, dir) in (0..).zip(&dirs) {
        files.push((dir.join("large"), noise(n, 21_000_001)));
        files.push((dir.join("empty"), Vec::new()));
        files.extend((0..20).map(|k| (dir.join(format!("small{k}")), noise(100 * n + k, 3000 + k as usize))));
    }
    files.push((first.mount().join("near"), noise(7, 300_000)));
    for (path, bytes) in &files {
        fs::write(path, bytes).unwrap();
    }
    // A hole that no target has anything of, and one at the end.
    let sparse = dirs[0].join("sparse");
    let file = fs::File::create(&sparse).unwrap();
    file.write_all_at(&noise(9, 100_000), 5_000_000).unwrap();
    file.set_len(9_000_000).unwrap();
    drop(file);
    let mut bytes = vec![0; 9_000_000];
    bytes[5_000_000..5_100_000].copy_from_slice(&noise(9, 100_000));
    files.push((sparse, bytes));
    files.iter().for_each(|(path, bytes)| closed(first, path, bytes.len()));
    first.ok(["migrate", "--wait", "--recursive", "tc:/"]);
    let (straight, through) = hall.moved();
    let large = 2 * (3 * 21_000_001 + 9_000_000);
    let late = || hall.late() * 2 * 21_000_001;
    assert!(
        straight + late() >= large,
        "{straight} of {large} bytes straight, {through} not: {}",
        hall.said()
    );
    assert!(through < 2_500_000 + late(), "{through} bytes through the first node: {}", hall.said());
    // Each copy comes back straight, too.
    for copy in ["1", "2"] {
        let (straight, through) = hall.moved();
        // A file that was read lately is closed by the kernel behind its reader.
        first.wait("all are purged", || {
            first.run(["purge", "--wait", "--recursive", "tc:/"]).status.success()
        });
        let volume = if copy == "1" { 1 } else { 0 };
        let volumes = first.json(["volume", "ls"]);
        let away = volumes[volume]["volume"]["barcode"].as_str().expect("a barcode");
        first.ok(["volume", "state", away, "suspect"]);
        first.ok(["stage", "--wait", "--recursive", "tc:/"]);
        first.ok(["volume", "state", away, "filling"]);
        for (path, bytes) in &files {
            assert!(fs::read(path).unwrap() == *bytes, "{} from copy {copy}", path.display());
        }
        let moved = hall.moved();
        let (straight, through) = (moved.0 - straight, moved.1 - through);
        assert!(straight + late() >= 72_000_003, "{straight} bytes straight, {through} not: {}", hall.said());
        assert!(through < 2_500_000 + late(), "{through} bytes through the first node: {}", hall.said());
    }
    assert!(hall.library.stats(0).unwrap().loads > 0);
    first.ok(["check", "--tapes", "--deep"]);
    first.ok(["down"]);
}

/// A mover that stands still, a writer in between, and a drive's host that dies: the newest bytes come back.
#[test]
fn what_happens_on_the_way_to_a_drive_and_back_changes_no_byte() {
    if !can_mount("trouble on the way to a drive") {
        return;
    }
    let hall = Hall::new(1, Mechanics::streaming(SLOW), 256 << 20);
    hall.add_target();
    let layouts = [
        ("striped", "--stripes 2 --stripe-size 64KiB"),
        ("copies", "--copies 2"),
        ("parity", "--code 2+1 --stripe-size 64KiB"),
    ];
    for (name, layout) in layouts {
        trouble(&hall, name, layout);
    }
    let first = &hall.beds[0];
    first.ok(["check", "--tapes", "--deep"]);
    first.ok(["down"]);
}

fn trouble(hall: &Hall, name: &str, layout: &str) {
    let [first, second, third] = &hall.beds;
    let dir = hall.directory(name, layout);
    let (path, mut bytes) = (dir.join("file"), noise(1, 24_000_000));
    fs::write(&path, &bytes).unwrap();
    closed(first, &path, bytes.len());
    let wrote = || hall.library.stats(0).unwrap().bytes_written;
    let read = || hall.library.stats(0).unwrap().bytes_read;
    let command = |name: &str, wait: bool| {
        let wait = if wait { "--wait" } else { "" };
        first.ok(words(name, &path, wait));
    };
    let on_the_way = |moved: &dyn Fn() -> u64| {
        let begun = moved();
        first.wait("it is on its way", || moved() > begun + 4_000_000);
    };
    // To tape: a mover stands still, then somebody writes, then the host of the drive dies.
    command("migrate", false);
    on_the_way(&wrote);
    stand_still(third);
    command("migrate", true);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"changed", 12_000_000).unwrap();
    drop(file);
    bytes[12_000_000..12_000_007].copy_from_slice(b"changed");
    command("migrate", false);
    on_the_way(&wrote);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"once more", 100).unwrap();
    drop(file);
    bytes[100..109].copy_from_slice(b"once more");
    command("migrate", false);
    on_the_way(&wrote);
    second.kill();
    second.up();
    command("migrate", true);
    // And back, by way of the same. Who has read it closes it a moment later.
    let purge = || first.wait("it is purged", || first.run(words("purge", &path, "--wait")).status.success());
    purge();
    command("stage", false);
    on_the_way(&read);
    stand_still(third);
    command("stage", true);
    assert!(fs::read(&path).unwrap() == bytes, "with a mover that stood still");
    purge();
    command("stage", false);
    on_the_way(&read);
    second.kill();
    second.up();
    command("stage", true);
    assert!(fs::read(&path).unwrap() == bytes, "with a host that died");
    assert!(hall.moved().0 > 0, "nothing of it went straight");
    fs::remove_file(&path).unwrap();
}

/// Parts of a file on several volumes have digests of their own.
#[test]
fn a_file_larger_than_a_cartridge_goes_straight_to_several_in_both_formats_and_comes_back() {
    if !can_mount("a large file straight to a drive") {
        return;
    }
    let hall = Hall::new(1, Mechanics::ZERO, 32 << 20);
    let first = &hall.beds[0];
    let dir = hall.directory("striped", "--stripes 2 --stripe-size 64KiB");
    let (path, bytes) = (dir.join("file"), noise(3, 60_000_000));
    let (straight, through) = hall.written_to_several(&path, &bytes);
    assert!(
        straight >= 120_000_000 && through < 1_000_000,
        "{straight} straight, {through} through the node"
    );
    first.ok(words("stage", &path, "--wait"));
    assert!(fs::read(&path).unwrap() == bytes);
    assert!(hall.moved().0 >= straight + 60_000_000, "it came back straight");
    first.ok(["down"]);
}

/// Two drives bring parts of one file at the same time, of which each would write its log.
#[test]
fn parts_of_a_file_with_parity_come_back_from_two_drives_at_once() {
    if !can_mount("parts of a file with parity from two drives") {
        return;
    }
    let hall = Hall::new(2, Mechanics::streaming(SLOW), 32 << 20);
    hall.add_target();
    let first = &hall.beds[0];
    let dir = hall.directory("parity", "--code 2+1 --stripe-size 64KiB");
    let (path, bytes) = (dir.join("file"), noise(4, 60_000_001));
    hall.written_to_several(&path, &bytes);
    for _ in 0..2 {
        let reads = || [0, 1].map(|drive| hall.library.stats(drive).unwrap().bytes_read);
        let before = reads();
        first.ok(words("stage", &path, "--wait"));
        assert!(fs::read(&path).unwrap() == bytes);
        let each = [0, 1].map(|drive| reads()[drive] - before[drive]);
        assert!(each.iter().all(|bytes| *bytes > 1_000_000), "both drives have read it: {each:?}");
        // What the targets have belongs together.
        first.ok(["check", "--deep"]);
        first.wait("it is purged", || first.run(words("purge", &path, "--wait")).status.success());
    }
    first.ok(["down"]);
}

/// The largest object on the target of a node.
fn largest(bed: &Bed) -> PathBuf {
    let files = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let objects = files(bed.path("target/objects")).filter(|dir| dir.is_dir()).flat_map(files);
    objects.max_by_key(|path| path.metadata().map_or(0, |meta| meta.len())).expect("an object")
}

/// Also not what lies behind it, in its place.
#[test]
fn of_a_file_with_a_block_that_rotted_nothing_goes_to_tape_before_that_is_mended() {
    if !can_mount("a rotten block on the way to a drive") {
        return;
    }
    let hall = Hall::new(1, Mechanics::ZERO, 256 << 20);
    let [first, _, third] = &hall.beds;
    let dir = hall.directory("striped", "--stripes 2 --stripe-size 64KiB");
    let (path, bytes) = (dir.join("file"), noise(4, 40_000_000));
    fs::write(&path, &bytes).unwrap();
    closed(first, &path, bytes.len());
    first.ok(["down"]);
    third.ok(["down"]);
    // In the first piece that is read ahead, and in no other.
    let object = fs::OpenOptions::new().read(true).write(true).open(largest(third)).unwrap();
    let mut before = [0; 3];
    object.read_exact_at(&mut before, 100_000).unwrap();
    object.write_all_at(&before.map(|byte| !byte), 100_000).unwrap();
    object.sync_all().unwrap();
    third.up();
    first.up_mounted();
    first.wait("two targets", || up(first) == [2, 3]);
    first.ok(words("migrate", &path, ""));
    first.wait("it is found", || {
        let log = fs::read_to_string(first.state().join("thermo.log")).unwrap();
        log.contains("does not get at the targets of inode")
    });
    std::thread::sleep(Duration::from_secs(3));
    let copies = || first.json(words("stat", &path, ""))[0]["file"]["copies"].as_array().map_or(0, Vec::len);
    assert_eq!(copies(), 0, "it is not what was written");
    object.write_all_at(&before, 100_000).unwrap();
    object.sync_all().unwrap();
    first.ok(words("migrate", &path, "--wait"));
    first.ok(words("purge", &path, "--wait"));
    first.ok(words("stage", &path, "--wait"));
    assert!(fs::read(&path).unwrap() == bytes);
    first.ok(["check", "--tapes", "--deep"]);
    first.ok(["down"]);
}
