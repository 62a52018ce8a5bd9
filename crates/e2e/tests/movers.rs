//! Nodes that serve disk targets to a cluster: real processes on addresses of their own.

#[path = "common/at_movers.rs"]
mod at_movers;

use at_movers::at_movers;
use e2e::cluster::{cluster, configure, find, lies_on, objects, striped, targets, up, words};
use e2e::{Bed, can_mount, noise};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;
use wire::{Call, FileCall, Reply};

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

#[test]
fn who_makes_a_file_elsewhere_is_told_where_it_lies() {
    if !can_mount("rights with a create") {
        return;
    }
    let (beds, here) = striped();
    let second = &beds[1];
    let dir = types::Ino(fs::metadata(&here).unwrap().ino());
    let own = ident::Credentials::load(&second.state().join("cluster")).unwrap().expect("it has joined");
    let remote = client::Remote::new(&own.addresses[0], &own).unwrap();
    let mut line = client::Connection::open_remote(remote, Duration::ZERO).unwrap();
    let Reply::Count(_) = line.call(&Call::Session(77)).unwrap().0 else { panic!("no session") };
    let mut number = 1;
    let mut ask = |call: FileCall| {
        number += 1;
        let who = wire::Speaks { uid: 0, gid: 0, groups: vec![], checked: true };
        let order = wire::FileOrder { who, number, answered: number, call };
        line.call(&Call::FileFor(Box::new(order))).unwrap().0
    };
    let flags = types::api::OpenFlags { write: true, ..Default::default() };
    let name = || b"file".to_vec();
    let made = ask(FileCall::CreateAs { parent: dir, name: name(), mode: 0o644, flags });
    let Reply::OpenedAt { handle, attr, resident: true, layout: Some(layout) } = made else {
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
