//! Nodes that serve disk targets to a cluster: real processes on addresses of their own.

#[path = "common/at_movers.rs"]
mod at_movers;

use at_movers::at_movers;
use client::native::{OpenOptions as NativeOptions, Session};
use e2e::cluster::{cluster, configure, find, lies_on, objects, striped, targets, up, words};
use e2e::hosts::Hosts;
use e2e::{Bed, can_mount, noise};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::{Call, FileCall, Reply, Seen};

#[test]
fn nodes_that_join_serve_their_targets_and_keep_them_over_a_crash() {
    let [first, second, third] = cluster();
    let numbers = |bed: &Bed| -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = targets(bed)
            .iter()
            .map(|view| &view["target"])
            .map(|target| (target["uuid"].as_str().unwrap().to_owned(), target["id"].as_u64().unwrap()))
            .collect();
        all.sort();
        all
    };
    let before = numbers(&first);
    assert_eq!(before.len(), 3);
    // Whoever is asked says the same.
    assert_eq!(numbers(&second), before);
    let text = first.ok(["cluster", "status"]);
    assert!(text.contains("TARGET") && text.contains("node 3"), "{text}");
    for bed in [&first, &third] {
        bed.kill();
        bed.up();
    }
    third.wait("its target after a restart", || third.log().contains(" is served"));
    first.wait("three targets", || up(&first) == [1, 2, 3]);
    assert_eq!(numbers(&first), before);
    // A target whose file system is not mounted is no new one.
    third.kill();
    std::fs::rename(third.path("target"), third.path("away")).unwrap();
    std::fs::create_dir(third.path("target")).unwrap();
    third.up();
    third.wait("the warning", || third.log().contains("there is none"));
    assert_eq!(numbers(&first), before);
}

/// What a host does for its users, call by call.
fn session_of(bed: &Bed, session: u64) -> impl FnMut(FileCall) -> Reply {
    let own = ident::Credentials::load(&bed.state().join("cluster")).unwrap().expect("it has joined");
    let remote = client::Remote::new(&own.addresses[0], &own).unwrap();
    let mut line = client::Connection::open_remote(remote, Duration::ZERO).unwrap();
    let Reply::Count(_) = line.call(&Call::Session(session)).unwrap().0 else { panic!("no session") };
    let mut number = 1;
    move |call| {
        number += 1;
        let who = wire::Speaks { uid: 0, gid: 0, groups: vec![], checked: true };
        let order = wire::FileOrder { who, number, answered: number, open: vec![], call };
        line.call(&Call::FileFor(Box::new(order))).unwrap().0
    }
}

#[test]
fn who_makes_a_file_elsewhere_is_told_what_its_directory_has_become_and_of_its_next_change() {
    if !can_mount("directories with a create") {
        return;
    }
    let (beds, here) = striped();
    let dir = types::Ino(fs::metadata(&here).unwrap().ino());
    let mut ask = session_of(&beds[1], 78);
    let flags = types::api::OpenFlags { write: true, ..Default::default() };
    let mut number = 0;
    let mut parent_of = |ask: &mut dyn FnMut(FileCall) -> Reply| {
        number += 1;
        let name = format!("file-{number}").into_bytes();
        match ask(FileCall::CreateAs { parent: dir, name, mode: 0o644, flags }) {
            Reply::OpenedAt { parent, .. } => parent.expect("its rights are checked on its host"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(parent_of(&mut ask).refused, [dir], "it does not hear yet what to forget");
    let Reply::Forget { place, .. } = ask(FileCall::Forgotten { after: 0 }) else { panic!("no news") };
    // Whoever else may have made something there a moment ago.
    let told = (0..50).map(|_| parent_of(&mut ask)).find(|told| told.refused.is_empty()).expect("a lease");
    let Seen::Attr(attr) = &told.seen else { panic!("{told:?}") };
    let now = fs::metadata(&here).unwrap();
    assert_eq!((attr.ino, attr.size, attr.mtime.secs), (dir, now.len(), now.mtime()));
    std::thread::scope(|scope| {
        let change = scope.spawn(|| fs::create_dir(here.join("another")).unwrap());
        let Reply::Forget { inodes, .. } = ask(FileCall::Forgotten { after: place }) else {
            panic!("no news")
        };
        assert!(inodes.contains(&dir), "{inodes:?}");
        change.join().unwrap();
    });
}

#[test]
fn who_makes_a_file_elsewhere_is_told_where_it_lies() {
    if !can_mount("rights with a create") {
        return;
    }
    let (beds, here) = striped();
    let second = &beds[1];
    let dir = types::Ino(fs::metadata(&here).unwrap().ino());
    let mut ask = session_of(second, 77);
    let flags = types::api::OpenFlags { write: true, ..Default::default() };
    let name = || b"file".to_vec();
    let made = ask(FileCall::CreateAs { parent: dir, name: name(), mode: 0o644, flags });
    let Reply::OpenedAt { handle, attr, resident: true, layout: Some(layout), .. } = made else {
        panic!("{made:?}")
    };
    at_movers(&layout).write_at(0, b"written with it").unwrap();
    let (end, machines, cuts) = (15, vec![0; 3], layout.cuts);
    assert!(matches!(ask(FileCall::LayoutCommit { handle, end, machines, cuts }), Reply::Count(_)));
    assert_eq!(ask(FileCall::Release { handle, sync: false }), Reply::Done);
    let path = here.join("file");
    assert_eq!(fs::read(&path).unwrap(), b"written with it");

    let flags = types::api::OpenFlags { read: true, ..Default::default() };
    let opened = ask(FileCall::OpenAs { ino: attr.ino, flags });
    let Reply::OpenedAt { layout: Some(layout), .. } = opened else { panic!("{opened:?}") };
    let reader = at_movers(&layout);
    let mut bytes = [0; 7];
    assert_eq!((reader.read_at(0, &mut bytes).unwrap(), &bytes), (7, b"written"));
    let refused = reader.write_at(0, b"x").unwrap_err();
    assert_eq!(refused.class(), types::ErrorClass::Denied, "{refused}");
    // A right to write what is there is not given before somebody asks: it would have to be ended.
    let flags = types::api::OpenFlags { write: true, ..flags };
    let opened = ask(FileCall::OpenAs { ino: attr.ino, flags });
    assert!(matches!(opened, Reply::OpenedAt { resident: true, layout: None, .. }), "{opened:?}");
}

#[test]
fn files_in_stripes_are_what_was_written_through_the_mount_and_by_put() {
    if !can_mount("files in stripes") {
        return;
    }
    let (beds, dir) = striped();
    let first = &beds[0];
    let rule = &first.json(words("layout get", &dir, ""))["rule"];
    assert_eq!((rule["stripes"].as_u64(), rule["unit_bytes"].as_u64()), (Some(3), Some(65_536)));
    fs::create_dir(dir.join("below")).unwrap();
    let path = dir.join("below/file");
    let mut model = noise(1, 5_000_000);
    fs::write(&path, &model).unwrap();
    assert_eq!(lies_on(first, &path), [1, 2, 3]);
    for bed in &beds {
        assert_eq!(objects(bed), 1, "one column on each target");
    }
    assert!(fs::read(&path).unwrap() == model, "what was written");
    // In place, at odd places, behind the end, shorter, longer, at the end.
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for n in 0..40_u64 {
        let at = (n * 7_919_993) % 6_000_000;
        let bytes = noise(n, 1 + (n as usize * 13_007) % 200_000);
        file.write_all_at(&bytes, at).unwrap();
        let end = at as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[at as usize..end].copy_from_slice(&bytes);
    }
    for length in [3_333_333, 4_444_444_usize] {
        file.set_len(length as u64).unwrap();
        model.resize(length, 0);
    }
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"the end").unwrap();
    model.extend_from_slice(b"the end");
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().len(), model.len() as u64);
    assert!(fs::read(&path).unwrap() == model, "what was changed");
    let mut part = vec![0; 100_000];
    File::open(&path).unwrap().read_exact_at(&mut part, 1_234_567).unwrap();
    assert!(part == model[1_234_567..1_334_567]);
    // By command, without the mount.
    let (source, back) = (first.path("source"), first.path("back"));
    fs::write(&source, noise(2, 3_000_000)).unwrap();
    let put = dir.join("put");
    first.ok([OsStr::new("put"), source.as_os_str(), put.as_os_str()]);
    assert_eq!(lies_on(first, &put), [1, 2, 3]);
    first.ok([OsStr::new("get"), put.as_os_str(), back.as_os_str()]);
    assert!(fs::read(&back).unwrap() == noise(2, 3_000_000), "what was put");
    // A crash takes nothing that was synced, and what was being written is closed again.
    let open = File::create(dir.join("open")).unwrap();
    (&open).write_all(&noise(3, 1_000_000)).unwrap();
    open.sync_all().unwrap();
    first.kill();
    drop(open);
    first.up_mounted();
    assert!(fs::read(&path).unwrap() == model, "after a crash");
    assert!(fs::read(dir.join("open")).unwrap() == noise(3, 1_000_000), "what was open in the crash");
    first.check();
    for too_many in ["--stripes 4", "--stripes 2 --copies 2", "--code 3+1"] {
        let why = first.fails(words("layout set", &dir, too_many)).1;
        assert!(why.contains("the cluster has 3"), "{why}");
    }
    first.ok(words("layout set", &dir, "--local"));
    fs::write(dir.join("local"), b"here").unwrap();
    assert_eq!(lies_on(first, &dir.join("local")), [0_u64; 0]);
}

#[test]
fn a_mover_that_dies_while_a_file_is_written_makes_the_writer_wait_and_takes_nothing() {
    if !can_mount("a mover that dies") {
        return;
    }
    let ([first, second, third], dir) = striped();
    let path = dir.join("file");
    let bytes = noise(7, 24 << 20);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut file = File::create(&path).unwrap();
            for (n, part) in bytes.chunks(1 << 20).enumerate() {
                file.write_all(part).unwrap();
                if n % 4 == 3 {
                    file.sync_all().unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            file.sync_all().unwrap();
        });
        for bed in [&second, &third] {
            std::thread::sleep(std::time::Duration::from_millis(400));
            bed.kill();
            std::thread::sleep(std::time::Duration::from_millis(300));
            bed.up();
        }
        writer.join().unwrap();
    });
    assert!(fs::read(&path).unwrap() == bytes, "a mover died, and something is missing");
    assert_eq!(lies_on(&first, &path), [1, 2, 3]);
    first.check();
    // Objects that vanish are found.
    let object = find(&second.path("target").join("objects")).expect("the column of the file");
    fs::remove_file(object).unwrap();
    second.kill();
    second.up();
    first.wait("the target", || up(&first) == [1, 2, 3]);
    let checked = first.run(["--json", "check"]);
    assert!(!checked.status.success(), "check finds nothing");
    let report: Value = serde_json::from_slice(&checked.stdout).expect("a report");
    let of_the_file =
        |finding: &Value| finding["subject"].as_str().is_some_and(|s| s.contains("/striped/file"));
    assert!(report["findings"].as_array().unwrap().iter().any(of_the_file), "{report:#?}");
}

#[test]
fn what_is_removed_while_a_target_is_away_goes_there_when_it_is_back() {
    if !can_mount("removing while a target is away") {
        return;
    }
    let ([first, second, third], dir) = striped();
    for name in ["one", "two", "kept"] {
        fs::write(dir.join(name), noise(1, 400_000)).unwrap();
    }
    let all = [&first, &second, &third];
    assert_eq!(all.map(objects), [3; 3]);
    third.kill();
    fs::remove_file(dir.join("one")).unwrap();
    fs::remove_file(dir.join("two")).unwrap();
    first.wait("the targets that are there", || (objects(&first), objects(&second)) == (1, 1));
    // It is remembered over a crash too.
    first.kill();
    first.up_mounted();
    assert_eq!(objects(&third), 3);
    third.up();
    first.wait("the target that is back", || objects(&third) == 1);
    assert!(fs::read(dir.join("kept")).unwrap() == noise(1, 400_000));
    first.check();
}

/// A catalogue that has forgotten them, or another one's target: what has the number of something new is neither used nor removed.
#[test]
fn what_was_there_before_it_was_to_be_made_stays() {
    if !can_mount("objects of somebody else") {
        return;
    }
    let (beds, dir) = striped();
    fs::write(dir.join("first"), b"bytes").unwrap();
    let last = find(&beds[1].path("target/objects")).unwrap();
    let last = u64::from_str_radix(last.file_name().unwrap().to_str().unwrap(), 16).unwrap();
    let planted: Vec<_> = (last + 1..last + 400)
        .map(|id| beds[1].path(&format!("target/objects/{:02x}/{id:016x}", id >> 8 & 0xff)))
        .filter(|path| !path.exists())
        .collect();
    planted.iter().for_each(|path| fs::write(path, b"of somebody else").unwrap());
    // Two targets do for it.
    beds[0].ok(words("layout set", &dir, "--stripes 1 --copies 2"));
    for n in 0..8 {
        fs::write(dir.join(format!("file-{n}")), b"bytes").unwrap();
    }
    assert!(beds[0].log().contains("exists already"), "one of them was asked for");
    // What was made ahead and nobody used is removed ten seconds later.
    std::thread::sleep(Duration::from_secs(15));
    assert!(planted.iter().all(|path| fs::read(path).is_ok_and(|bytes| bytes == b"of somebody else")));
    for n in 0..8 {
        assert_eq!(fs::read(dir.join(format!("file-{n}"))).unwrap(), b"bytes");
    }
}

#[test]
fn objects_of_files_that_are_made_in_a_row_are_there_before_and_what_is_left_of_them_goes() {
    if !can_mount("many files in a row") {
        return;
    }
    let (beds, dir) = striped();
    let [first, second, third] = &beds;
    let content = |n: usize| noise(n as u64, 100 + 7_000 * n);
    let make = |numbers: std::ops::Range<usize>| {
        numbers.for_each(|n| fs::write(dir.join(n.to_string()), content(n)).unwrap());
    };
    let there = |count: usize| beds.each_ref().map(objects) == [count; 3];
    make(0..40);
    first.wait("objects for the next files", || objects(second) > 40);
    // What a node that dies has ready belongs to nobody; the names of files are there once they are synced.
    fs::File::open(&dir).unwrap().sync_all().unwrap();
    first.kill();
    first.up_mounted();
    first.wait("what it had made goes", || there(40));
    // A mover dies with objects that it has made: they are used.
    make(40..70);
    first.wait("objects for the next files", || objects(third) > 70);
    third.kill();
    third.up();
    first.wait("the target", || up(first) == [1, 2, 3]);
    make(70..80);
    first.wait("what nobody has used goes", || there(80));
    for n in 0..80 {
        assert!(fs::read(dir.join(n.to_string())).unwrap() == content(n), "file {n}");
    }
    first.check();
}

/// A pipe in the place of a file keeps whoever opens it, as a disk that hangs.
#[test]
fn a_target_whose_disk_hangs_takes_no_other_one_of_its_host_down_and_the_node_stops() {
    let bed = Bed::new("");
    configure(&bed, "");
    let (hangs, other) = (bed.path("target"), bed.path("other"));
    let config = bed.state().join("config.toml");
    let more = format!("{}[[targets]]\npath = {other:?}\n", fs::read_to_string(&config).unwrap());
    fs::write(config, more).unwrap();
    bed.up();
    bed.ok(["cluster", "init", "--name", "first"]);
    bed.wait("two targets", || up(&bed) == [1, 1]);
    let marker = hangs.join("target");
    fs::remove_file(&marker).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &marker,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    bed.wait("one to be down", || up(&bed).len() < 2);
    assert_eq!(up(&bed), [1], "{}", bed.log());
    assert!(bed.log().contains("does not say how full it is"), "{}", bed.log());
    bed.ok(["down"]);
}

/// Nodes that stand still, and go on when this is dropped.
struct Still<'a>(Vec<&'a Bed>);

impl<'a> Still<'a> {
    fn new(beds: &[&'a Bed]) -> Self {
        beds.iter().for_each(|bed| bed.signal(Signal::STOP));
        Self(beds.to_vec())
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|bed| bed.signal(Signal::CONT));
    }
}

/// A file that was written at the first host, with copies and with parity: its path there and at the other host.
fn redundant(hosts: &Hosts, layout: &str, bytes: &[u8]) -> [PathBuf; 2] {
    let name = layout.replace(' ', "");
    let dirs = [&hosts.here, &hosts.there].map(|dir| dir.with_file_name(&name));
    fs::create_dir(&dirs[0]).unwrap();
    hosts.first().ok(words("layout set", &dirs[0], layout));
    let paths = dirs.map(|dir| dir.join("file"));
    fs::write(&paths[0], bytes).unwrap();
    paths
}

const REDUNDANT: [&str; 2] = ["--copies 2 --stripe-size 64KiB", "--code 2+1 --stripe-size 64KiB"];

/// All of a file as a handle reads it.
fn all_of(file: &File, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Reads all of a file while some nodes stand still, until that ends in time.
fn read_without(hosts: &Hosts, still: &[&Bed], read: impl Fn() -> Vec<u8> + Sync, bytes: &[u8]) {
    hosts.first().wait("it is read without the first node", || {
        assert!(read() == bytes, "through whomever");
        std::thread::scope(|scope| {
            let still = Still::new(still);
            let reader = scope.spawn(&read);
            let end = Instant::now() + Duration::from_secs(10);
            while !reader.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            let done = reader.is_finished();
            drop(still);
            assert!(reader.join().unwrap() == bytes, "without the first node");
            done
        })
    });
}

#[test]
fn files_that_nobody_writes_are_read_from_copies_and_rows_without_the_first_node() {
    if !can_mount("reading what is lent") {
        return;
    }
    let hosts = Hosts::new("0");
    let bytes = noise(1, 8_000_000);
    for layout in REDUNDANT {
        let [here, there] = redundant(&hosts, layout, &bytes);
        let file = File::open(there).unwrap();
        read_without(&hosts, &[hosts.first()], || all_of(&file, bytes.len()), &bytes);
        // A mover does not answer either; that is waited for once.
        read_without(&hosts, &[hosts.first(), &hosts.beds[3]], || all_of(&file, bytes.len()), &bytes);
        // Programs of the first node's host, too.
        let session = Session::connect(&hosts.first().state().join("control.sock")).unwrap();
        let path = Path::new("/").join(here.strip_prefix(hosts.first().mount()).unwrap());
        let program = session.open(path, NativeOptions::new().read(true)).unwrap();
        let backwards = || {
            let mut found = vec![0; bytes.len()];
            for (n, part) in found.chunks_mut(250_000).enumerate().rev() {
                assert_eq!(program.read_at(part, n as u64 * 250_000).unwrap(), part.len());
            }
            found
        };
        read_without(&hosts, &[hosts.first()], backwards, &bytes);
    }
    hosts.first().check();
}

#[test]
fn who_reads_what_is_lent_sees_what_others_have_written_also_after_a_crash_of_the_first_node() {
    if !can_mount("writing what is lent") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    for (n, layout) in (1..).zip(REDUNDANT) {
        let mut bytes = noise(n, 4_000_000);
        let [here, there] = redundant(&hosts, layout, &bytes);
        let file = File::open(there).unwrap();
        let change = |bytes: &mut Vec<u8>, at: usize| {
            let writer = OpenOptions::new().write(true).open(&here).unwrap();
            let new = noise(100 * n + at as u64, 1_000_000);
            writer.write_all_at(&new, at as u64).unwrap();
            bytes[at..at + new.len()].copy_from_slice(&new);
            assert!(all_of(&file, bytes.len()) == *bytes, "while it is open");
            writer.sync_all().unwrap();
            drop(writer);
            assert!(all_of(&file, bytes.len()) == *bytes, "after the close");
        };
        read_without(&hosts, &[first], || all_of(&file, bytes.len()), &bytes);
        change(&mut bytes, 300_001);
        read_without(&hosts, &[first], || all_of(&file, bytes.len()), &bytes);
        // Whoever serves next does not know the reader.
        first.kill();
        first.up_mounted();
        change(&mut bytes, 1_234_567);
        // Shorter, and gone.
        read_without(&hosts, &[first], || all_of(&file, bytes.len()), &bytes);
        File::options().write(true).open(&here).unwrap().set_len(1_500_000).unwrap();
        let mut end = vec![0; 10];
        assert_eq!(file.read_at(&mut end, 1_500_000).unwrap(), 0);
        assert!(all_of(&file, 1_500_000) == bytes[..1_500_000]);
    }
    first.check();
}

#[test]
fn who_is_lent_a_file_sees_at_once_what_others_append_and_what_they_write_into_a_hole() {
    if !can_mount("appending to what is lent") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    for (n, layout) in (1..).zip(REDUNDANT) {
        let bytes = noise(n, 4_000_000);
        let [here, there] = redundant(&hosts, layout, &bytes);
        File::options().write(true).open(&here).unwrap().set_len(6_000_000).unwrap();
        let whole = [&bytes[..], &vec![0; 2_000_000]].concat();
        let path = Path::new("/").join(here.strip_prefix(first.mount()).unwrap());
        let session = Session::connect(&first.state().join("control.sock")).unwrap();
        let program = session.open(path, NativeOptions::new().read(true)).unwrap();
        let file = File::open(there).unwrap();
        let seen = |at: u64, wanted: &[u8]| {
            let mut found = vec![0; wanted.len()];
            file.read_exact_at(&mut found, at).unwrap();
            assert!(found == wanted, "{layout}: at {at} through the mount");
            let got = program.read_at(&mut found, at).unwrap();
            assert!(got == wanted.len() && found == wanted, "{layout}: at {at} with the library");
        };
        read_without(&hosts, &[first], || all_of(&file, whole.len()), &whole);
        let ask = || {
            let mut found = vec![0; whole.len()];
            assert_eq!(program.read_at(&mut found, 0).unwrap(), whole.len());
            found
        };
        read_without(&hosts, &[first], ask, &whole);
        // Nothing else of the file is read in between: no mover says that the right has ended.
        let new = noise(10 + n, 200_000);
        let mut writer = OpenOptions::new().append(true).open(&here).unwrap();
        writer.write_all(&new).unwrap();
        File::options().write(true).open(&here).unwrap().write_all_at(&new, 5_000_000).unwrap();
        writer.sync_all().unwrap();
        drop(writer);
        seen(6_000_000, &new);
        seen(5_000_000, &new);
    }
    first.check();
}

/// It has a right, and the node cannot tell the mover that it has ended.
#[test]
fn who_writes_what_is_lent_waits_for_a_mover_that_does_not_answer_and_nobody_reads_there_what_was_before() {
    if !can_mount("writing what is lent without a mover") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    let mut bytes = noise(1, 4_000_000);
    let [here, there] = redundant(&hosts, "--copies 3 --stripe-size 64KiB", &bytes);
    // Each copy has another unit for its readers; who is refused at one reads no other.
    let files: [File; 3] = std::array::from_fn(|_| File::open(&there).unwrap());
    files.iter().for_each(|file| read_without(&hosts, &[first], || all_of(file, bytes.len()), &bytes));
    hosts.beds[3].kill();
    let writer = OpenOptions::new().write(true).open(&here).unwrap();
    let new = noise(2, 4_000_000);
    writer.write_all_at(&new, 0).unwrap();
    bytes.copy_from_slice(&new);
    hosts.beds[3].up();
    hosts.beds[3].wait("its target", || hosts.beds[3].log().contains(" is served"));
    for (n, file) in files.iter().enumerate() {
        let mut unit = vec![0; 65_536];
        file.read_exact_at(&mut unit, n as u64 * 65_536).unwrap();
        assert!(unit == bytes[n * 65_536..(n + 1) * 65_536], "copy {n}, one of which was left out");
    }
    assert!(all_of(&files[0], bytes.len()) == bytes, "all of it");
    drop(writer);
    first.check();
}
