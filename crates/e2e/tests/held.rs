//! A program on the host of a mover reads what lies there by descriptors of objects.

use client::native::{self, OpenOptions, Session};
use e2e::cluster::{Small, configure, up, words};
use e2e::{Bed, can_mount, noise};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const LENGTH: usize = 12_000_000;
const PIECE: usize = 1 << 20;
const LAYOUTS: [&str; 3] =
    ["--stripes 3 --stripe-size 64KiB", "--copies 2 --stripe-size 64KiB", "--code 2+1 --stripe-size 64KiB"];

/// A node with three targets, mounted.
fn node() -> (Bed, Small) {
    let bed = Bed::new("");
    let small = Small::mount(&bed, 300 << 20);
    configure(&bed, "");
    let path = bed.state().join("config.toml");
    let config = fs::read_to_string(&path).unwrap();
    let (before, _) = config.split_once("[[targets]]").expect("its target");
    let targets = (1..4).map(|n| {
        let at = bed.path("target").join(n.to_string());
        fs::create_dir(&at).unwrap();
        format!("[[targets]]\npath = \"{}\"\ndomain = \"{n}\"\n", at.display())
    });
    fs::write(&path, format!("{before}{}", targets.collect::<String>())).unwrap();
    bed.up();
    bed.ok(["cluster", "init", "--name", "first"]);
    bed.wait("three targets", || up(&bed) == [1; 3]);
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    bed.ok([OsStr::new("mount"), bed.mount().as_os_str()]);
    (bed, small)
}

/// Files of the targets that a process has open.
fn open(process: &str, bed: &Bed) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let links = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.starts_with(bed.path("target"))).collect()
}

/// Of how many targets this process has objects open.
fn held(bed: &Bed) -> usize {
    let all = open("self", bed);
    let of = |n: usize| all.iter().any(|path| path.starts_with(bed.path("target").join(n.to_string())));
    (1..4).filter(|n| of(*n)).count()
}

fn make(bed: &Bed, layout: &str, bytes: &[u8]) -> PathBuf {
    let dir = bed.mount().join(layout.replace(' ', ""));
    fs::create_dir(&dir).unwrap();
    bed.ok(words("layout set", &dir, layout));
    fs::write(dir.join("file"), bytes).unwrap();
    dir.join("file")
}

fn opened(session: &Session, bed: &Bed, file: &Path) -> native::File {
    let path = Path::new("/").join(file.strip_prefix(bed.mount()).unwrap());
    session.open(path, OpenOptions::new().read(true)).unwrap()
}

/// Reads all of it, twice.
fn read(file: &native::File, bytes: &[u8]) {
    for n in (0..2 * LENGTH.div_ceil(PIECE)).map(|n| n % LENGTH.div_ceil(PIECE) * PIECE) {
        let expected = &bytes[n..(n + PIECE).min(LENGTH)];
        let mut found = vec![0; expected.len()];
        assert_eq!(file.read_at(&mut found, n as u64).unwrap(), expected.len());
        assert!(found == expected, "at {n}");
    }
}

fn session(bed: &Bed, descriptors: bool) -> Session {
    let options = native::Options { descriptors, ..native::Options::default() };
    Session::connect_with(&bed.state().join("control.sock"), options).unwrap()
}

/// How many reads by descriptors the node has told of when it stopped.
fn told(bed: &Bed) -> u64 {
    let log = fs::read_to_string(bed.state().join("thermo.log")).unwrap();
    let lines = log.lines().filter(|line| line.contains("have read by descriptors"));
    let counts =
        lines.filter_map(|line| line.split("reads=").nth(1)?.split_whitespace().next()?.parse::<u64>().ok());
    counts.sum()
}

#[test]
fn a_program_beside_the_movers_reads_by_descriptors_and_over_the_network_where_there_is_no_socket() {
    if !can_mount("reading by descriptors of objects") {
        return;
    }
    let (bed, small) = node();
    let before = small.used();
    let files: Vec<(PathBuf, Vec<u8>)> = (1..)
        .zip(LAYOUTS)
        .map(|(n, layout)| (n, layout, noise(n, LENGTH)))
        .map(|(_, layout, bytes)| (make(&bed, layout, &bytes), bytes))
        .collect();
    // One who does not want descriptors, and one who does.
    let without = session(&bed, false);
    files.iter().for_each(|(path, bytes)| read(&opened(&without, &bed, path), bytes));
    assert_eq!(held(&bed), 0);
    let with = session(&bed, true);
    for (path, bytes) in &files {
        let file = opened(&with, &bed, path);
        read(&file, bytes);
        // Of copies one is read.
        let least = if path.to_string_lossy().contains("copies") { 1 } else { 2 };
        assert!(held(&bed) >= least, "{}: {:?}", path.display(), open("self", &bed));
        // Somebody writes meanwhile.
        File::options().write(true).open(path).unwrap().write_all_at(&bytes[500..900_000], 500).unwrap();
        read(&file, bytes);
        drop(file);
        bed.wait("nothing of it is open", || open("self", &bed).is_empty());
    }
    // Who still has it open keeps what is removed; no other one does, also not the node, which has read it for the mount.
    for (path, bytes) in &files {
        assert!(&fs::read(path).unwrap() == bytes && &fs::read(path).unwrap() == bytes);
        fs::remove_file(path).unwrap();
    }
    bed.wait("the room of what was removed", || small.used() < before + LENGTH as u64 / 2);
    let gone = |path: &PathBuf| path.to_string_lossy().contains("(deleted)");
    let pid = bed.pid().to_string();
    bed.wait("none of it is open", || !open(&pid, &bed).iter().any(gone));
    // Without a socket.
    let sockets = bed.state().join("movers");
    assert!(fs::metadata(sockets.join("3.sock")).is_ok());
    fs::remove_dir_all(sockets).unwrap();
    let bytes = noise(9, LENGTH);
    let path = bed.mount().join(LAYOUTS[0].replace(' ', "")).join("new");
    fs::write(&path, &bytes).unwrap();
    let far = session(&bed, true);
    read(&opened(&far, &bed, &path), &bytes);
    assert_eq!(held(&bed), 0);
    drop((with, without, far));
    bed.check();
    bed.ok(["down"]);
    assert!(told(&bed) > 30, "{}", told(&bed));
    bed.up();
}
