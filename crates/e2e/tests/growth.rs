//! Files that get more targets as they grow, written at the first node and, straight at the targets, on another host.

use e2e::cluster::{columns, lies_on, objects, serves, up, wait_for_close, wait_for_mending, words};
use e2e::hosts::Hosts;
use e2e::{Bed, can_mount, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A head on one target, two from 1 MiB on, two of their own from 4 MiB on.
const GROWS: &str = "--stripes 1 --stripe-size 64KiB --then 1MiB:2 --then 4MiB:2:128KiB";
/// Bytes of a record that is written at once.
const RECORD: usize = 50_000;
/// Records of a file that has all its parts.
const RECORDS: usize = 160;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Where the parts of a file begin, a number for each object.
fn parts(hosts: &Hosts, path: &Path) -> Vec<u64> {
    let view = hosts.first().json(words("layout get", path, ""));
    let all = view["file"]["columns"].as_array().expect("columns").clone();
    all.iter().map(|column| column["from"].as_u64().expect("a number")).collect()
}

fn record(n: usize) -> Vec<u8> {
    noise(n as u64, RECORD)
}

fn is_whole(path: &Path) {
    let found = fs::read(path).unwrap();
    assert_eq!(found.len(), RECORDS * RECORD, "{}", path.display());
    for (n, bytes) in found.chunks(RECORD).enumerate() {
        assert!(bytes == record(n), "record {n} of {}", path.display());
    }
}

/// Both hosts write every second record of a file, and sync when they have, and `meanwhile` is over.
fn write_from_both(hosts: &Hosts, name: &str, meanwhile: impl FnOnce()) {
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let writers = [(0, &hosts.here), (1, &hosts.there)].map(|(n, dir)| {
            let (file, done) = (open(&dir.join(name)), &done);
            scope.spawn(move || {
                for record_number in (n..RECORDS).step_by(2) {
                    // Neither goes far ahead: they come to the end of what there is together.
                    while record_number > done.load(Ordering::Acquire) + 8 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    file.write_all_at(&record(record_number), (record_number * RECORD) as u64).unwrap();
                    done.fetch_add(1, Ordering::AcqRel);
                }
                file
            })
        });
        meanwhile();
        for writer in writers {
            writer.join().unwrap().sync_all().unwrap();
        }
    });
}

#[test]
fn a_file_grows_over_more_targets_from_two_hosts_while_a_mover_dies_and_goes_wherever_other_files_go() {
    if !can_mount("files that get more targets") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    first.ok(words("layout set", &hosts.here, GROWS));
    let [here, there] = [&hosts.here, &hosts.there].map(|dir| dir.join("file"));
    drop(File::create(&here).unwrap());
    assert_eq!((parts(&hosts, &here), hosts.objects()), (vec![0], 1), "only what it needs is made");
    write_from_both(&hosts, "file", || {
        std::thread::sleep(Duration::from_millis(200));
        hosts.beds[3].kill();
        std::thread::sleep(Duration::from_millis(300));
        hosts.beds[3].up();
    });
    is_whole(&here);
    is_whole(&there);
    let all = vec![0, 1 << 20, 1 << 20, 4 << 20, 4 << 20];
    assert_eq!(parts(&hosts, &here), all);
    first.wait("what was not needed", || hosts.objects() == 5);
    let said = first.ok(words("layout get", &here, ""));
    assert!(said.contains("FROM") && said.contains("4.00 MiB"), "{said}");
    // Shorter, it keeps them; what comes between is zeros, also for who had it open before.
    let file = open(&there);
    file.set_len(70_000).unwrap();
    open(&here).write_all_at(b"far", 5_000_000).unwrap();
    let mut found = vec![1; 5_000_003];
    file.read_exact_at(&mut found, 0).unwrap();
    let mut expected = record(0);
    expected.extend_from_slice(&record(1)[..20_000]);
    expected.resize(5_000_000, 0);
    assert!(found == [&expected[..], b"far"].concat(), "after it was shorter");
    drop(file);
    assert_eq!(parts(&hosts, &here), all);
    write_from_both(&hosts, "file", || {});
    // To tape and back, which makes all of it at once.
    wait_for_close(first, &here);
    first.ok(words("migrate --wait", &here, ""));
    first.ok(words("purge --wait", &here, ""));
    first.wait("nothing is left on targets", || hosts.objects() == 0);
    is_whole(&there);
    first.wait("it is back", || lies_on(first, &here).len() == 5);
    assert_eq!(parts(&hosts, &here), all);
    // A target that has something of the second part is emptied while both write.
    let target = columns(first, &here)[1].0;
    write_from_both(&hosts, "file", || {
        first.ok(["target", "drain", &target.to_string(), "--wait"]);
    });
    assert!(!lies_on(first, &here).contains(&target));
    is_whole(&here);
    is_whole(&there);
    hosts.give_back(target);
    first.ok(words("protect --wait", &here, "--copies 2"));
    assert_eq!(lies_on(first, &here).len(), 2);
    is_whole(&there);
    fs::remove_file(&there).unwrap();
    first.wait("nothing is left of it", || hosts.objects() == 0);
    first.check();
}

#[test]
fn a_reader_sees_what_another_host_writes_far_behind_what_it_knows_of_a_file() {
    if !can_mount("readers of a file that grows") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    first.ok(words("layout set", &hosts.here, GROWS));
    for (name, writes, reads) in [
        ("one", &hosts.here, &hosts.there),
        ("other", &hosts.there, &hosts.here),
        ("same", &hosts.there, &hosts.there),
    ] {
        let (writer, reader) = (open(&writes.join(name)), open(&reads.join(name)));
        writer.write_all_at(b"head", 0).unwrap();
        let mut found = vec![1; 100];
        assert_eq!((reader.read_at(&mut found, 0).unwrap(), &found[..4]), (4, &b"head"[..]), "{name}");
        writer.write_all_at(b"tail", 6 << 20).unwrap();
        assert_eq!(reader.metadata().unwrap().len(), (6 << 20) + 4, "{name}");
        assert_eq!(reader.read_at(&mut found, 0).unwrap(), 100, "{name}");
        assert_eq!((&found[..4], &found[4..]), (&b"head"[..], &[0; 96][..]), "{name}");
        assert_eq!(reader.read_at(&mut found, 6 << 20).unwrap(), 4, "{name}");
        assert_eq!(&found[..4], b"tail", "{name}");
        // Its length is enough.
        let longer = open(&writes.join(format!("{name}, longer")));
        longer.set_len(2 << 20).unwrap();
        assert_eq!(parts(&hosts, &hosts.here.join(format!("{name}, longer"))), [0, 1 << 20, 1 << 20]);
        writer.sync_all().unwrap();
    }
    // Where one target is full others take what a file grows by.
    let full = hosts.beds[3].path("target").join("ballast");
    let there = rustix::fs::statvfs(hosts.beds[3].path("target")).unwrap();
    let used = there.f_bavail * there.f_frsize - (2 << 20);
    let status = Command::new("fallocate").arg("-l").arg(used.to_string()).arg(&full).status();
    assert!(status.unwrap().success(), "ballast");
    let before = objects(&hosts.beds[3]);
    first.ok(words("layout set", &hosts.here, "--stripes 1 --then 1MiB:2"));
    let free = || {
        let all = e2e::cluster::targets(first);
        all.iter().map(|view| view["target"]["free"].as_u64().unwrap()).min().unwrap()
    };
    first.wait("the full target is known", || free() <= 2 << 20);
    for n in 0..4 {
        let path = hosts.there.join(format!("roomy {n}"));
        fs::write(&path, noise(n, 3_000_000)).unwrap();
        assert!(fs::read(&path).unwrap() == noise(n, 3_000_000));
    }
    assert_eq!(objects(&hosts.beds[3]), before, "the full one has got nothing");
    fs::remove_file(full).unwrap();
    copies_grow_while_a_target_is_away(&hosts);
    for wrong in [
        "--code 2+1 --then 1MiB:1",
        "--code 2+1 --then 1MiB:3",
        "--then 1000:2",
        "--then 1MiB:2 --then 1MiB:3",
        "--then 1MiB:9",
    ] {
        first.fails(words("layout set", &hosts.here, wrong));
    }
    first.check();
}

/// Copies lie on different targets in every part, and what a target that is away has missed is made there later.
fn copies_grow_while_a_target_is_away(hosts: &Hosts) {
    let first = hosts.first();
    first.ok(words("layout set", &hosts.here, "--copies 2 --then 1MiB:1"));
    let mirrored = hosts.here.join("mirrored");
    let (file, other) = (open(&mirrored), open(&hosts.there.join("mirrored")));
    file.write_all_at(&noise(1, 1_000_000), 0).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                other.sync_all().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        hosts.beds[2].kill();
        let written = file.write_all_at(&noise(2, 3_000_000), 1_000_000);
        done.store(true, Ordering::Release);
        written.unwrap();
        syncs.join().unwrap();
    });
    file.sync_all().unwrap();
    drop((file, other));
    hosts.beds[2].up();
    wait_for_mending(first, &mirrored);
    assert_eq!(parts(hosts, &mirrored), [0, 0, 1 << 20, 1 << 20]);
    assert!(
        fs::read(hosts.there.join("mirrored")).unwrap()
            == [noise(1, 1_000_000), noise(2, 3_000_000)].concat()
    );
}

#[test]
fn a_file_with_parity_grows_from_two_hosts_while_a_mover_dies_and_spares_a_target_in_each_part() {
    if !can_mount("files with parity that get more targets") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    // One border between rows, one within.
    let grows = "--code 2+1 --stripe-size 64KiB --then 1MiB:2:16KiB --then 4100KiB:2:128KiB";
    first.ok(words("layout set", &hosts.here, grows));
    let [here, there] = [&hosts.here, &hosts.there].map(|dir| dir.join("file"));
    drop(File::create(&here).unwrap());
    assert_eq!((parts(&hosts, &here), hosts.objects()), (vec![0; 5], 5), "only what it needs is made");
    write_from_both(&hosts, "file", || {
        std::thread::sleep(Duration::from_millis(200));
        hosts.beds[3].kill();
        std::thread::sleep(Duration::from_millis(300));
        hosts.beds[3].up();
    });
    is_whole(&here);
    is_whole(&there);
    let all = [[0; 5], [1 << 20; 5], [4100 << 10; 5]].concat();
    assert_eq!(parts(&hosts, &here), all);
    let said = first.ok(words("layout get", here.parent().unwrap(), ""));
    assert!(said.contains("from 1.00 MiB on 2 of 16.0 KiB") && said.contains("1 of parity"), "{said}");
    wait_for_mending(first, &here);
    hosts.beds[2].kill();
    is_whole(&here);
    hosts.beds[2].up();
    first.wait("all targets", || up(first).len() == 3);
    // Shorter, it keeps its parts, and what comes between is zeros.
    wait_for_mending(first, &here);
    let file = open(&there);
    file.set_len(70_000).unwrap();
    open(&here).write_all_at(b"far", 5_000_000).unwrap();
    let mut expected = [record(0), record(1)[..20_000].to_vec()].concat();
    expected.resize(5_000_000, 0);
    expected.extend_from_slice(b"far");
    assert!(fs::read(&there).unwrap() == expected, "after it was shorter");
    write_from_both(&hosts, "file", || {});
    first.kill();
    first.up_mounted();
    is_whole(&here);
    drop(file);
    first.ok(words("protect --wait", &here, "--copies 2"));
    assert_eq!(lies_on(first, &here).len(), 2);
    is_whole(&there);
    fs::remove_file(&there).unwrap();
    first.wait("nothing is left of it", || hosts.objects() == 0);
    first.check();
}

#[test]
fn what_was_answered_is_there_when_the_node_dies_while_files_grow_and_no_object_is_left_over() {
    if !can_mount("crashes while files grow") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    // Every few writes it grows.
    let then: String = (1..8).map(|n| format!(" --then {}KiB:{}", n * 128, 1 + n % 3)).collect();
    first.ok(words("layout set", &hosts.here, &format!("--stripes 1 --stripe-size 16KiB{then}")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_writer"));
    command.arg("many").args([&hosts.there, &hosts.here]).stdin(Stdio::piped());
    let mut writer = command.spawn().unwrap();
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(400 + 137 * round));
        assert_eq!(writer.try_wait().unwrap(), None, "the writer has ended");
        first.kill();
        first.up_mounted();
    }
    let files = || fs::read_dir(&hosts.here).unwrap().count();
    first.wait("some files", || files() > 6);
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success(), "see what the writer says");
    let files = files();
    // 1, 2, 3, 1, 2, 3, 1 and 2 of each part.
    first.wait("what was not needed", || hosts.objects() == files * 15);
    first.check();
    first.ok([OsStr::new("check"), OsStr::new("--deep")]);
}

#[test]
fn what_a_node_had_made_for_a_file_that_grew_when_it_died_is_removed_and_the_write_goes_on() {
    if !can_mount("a crash in the middle of a growth") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    first.ok(words("layout set", &hosts.here, "--stripes 1 --stripe-size 64KiB --then 1MiB:3"));
    let file = hosts.here.join("file");
    fs::write(&file, noise(1, 1 << 20)).unwrap();
    wait_for_close(first, &file);
    let has = lies_on(first, &file)[0];
    // One that has nothing of it, and serves no mount, does not answer while the others make their objects.
    let bare = |n: &usize| !serves(first, &hosts.beds[*n], has);
    let stopped = (2..4).find(bare).expect("a target without the file");
    let others: Vec<usize> = (1..4).filter(|n| *n != stopped).collect();
    let silent = Pid::from_raw(hosts.beds[stopped].pid()).unwrap();
    kill_process(silent, Signal::STOP).unwrap();
    let mut writer = Command::new("dd");
    writer
        .arg(format!("if={}", source(first).display()))
        .arg(format!("of={}", hosts.there.join("file").display()));
    let mut writer = writer.args(["bs=1M", "seek=1", "conv=notrunc,fsync"]).spawn().unwrap();
    first.wait("what is made for it", || others.iter().map(|n| objects(&hosts.beds[*n])).sum::<usize>() == 3);
    first.kill();
    // What it was asked for comes to nothing.
    kill_process(silent, Signal::KILL).unwrap();
    let socket = hosts.beds[stopped].state().join("control.sock");
    is_gone(&socket);
    hosts.beds[stopped].up();
    first.up_mounted();
    assert!(writer.wait().unwrap().success(), "see what dd says");
    assert!(fs::read(&file).unwrap() == [noise(1, 1 << 20), noise(2, 1 << 20)].concat());
    assert_eq!(parts(&hosts, &file), [0, 1 << 20, 1 << 20, 1 << 20]);
    first.wait("what the dead node had made", || hosts.objects() == 4);
    assert!(fs::read(hosts.there.join("file")).unwrap() == [noise(1, 1 << 20), noise(2, 1 << 20)].concat());
    first.check();
}

/// What is written behind the first part.
fn source(first: &Bed) -> std::path::PathBuf {
    let path = first.path("source");
    fs::write(&path, noise(2, 1 << 20)).unwrap();
    path
}

/// Waits until nobody answers at a socket.
fn is_gone(socket: &Path) {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
    while !UnixStream::connect(socket).is_err_and(refused) {
        assert!(std::time::Instant::now() < until, "a node that was killed answers");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn files_that_are_there_get_a_layout_by_which_they_grow_while_both_hosts_write_them() {
    if !can_mount("files that get a layout by which they grow") {
        return;
    }
    let hosts = Hosts::new("0");
    let (first, here, there) = (hosts.first(), &hosts.here, &hosts.there);
    let tier = first.mount().join("tier");
    fs::create_dir(&tier).unwrap();
    let (few, many) = (noise(1, 300_000), noise(2, 5_000_000));
    for (name, bytes) in [("few", &few), ("many", &many), ("tape", &many)] {
        fs::write(here.join(name), bytes).unwrap();
    }
    fs::write(tier.join("many"), &many).unwrap();
    wait_for_close(first, &here.join("tape"));
    first.ok(words("migrate --wait", &here.join("tape"), ""));
    first.ok(words("purge --wait", &here.join("tape"), ""));
    // One that grows meanwhile gets what it needs by then, and then as it grows.
    let grows = GROWS.replace("--stripes 1", "--copies 1");
    drop(File::create(here.join("file")).unwrap());
    write_from_both(&hosts, "file", || {
        first.ok(words("protect --wait -r", here, &grows));
    });
    first.ok(words("protect --wait -r", &tier, &grows));
    let all = vec![0, 1 << 20, 1 << 20, 4 << 20, 4 << 20];
    is_whole(&here.join("file"));
    is_whole(&there.join("file"));
    assert_eq!(parts(&hosts, &here.join("file")), all);
    assert_eq!(parts(&hosts, &here.join("few")), [0], "only what it needs is made");
    for path in [here.join("many"), tier.join("many")] {
        assert_eq!(parts(&hosts, &path), all, "{}", path.display());
        assert!(fs::read(&path).unwrap() == many, "{}", path.display());
    }
    assert!(fs::read(there.join("tape")).unwrap() == many, "from tape");
    first.wait("it is back", || lies_on(first, &here.join("tape")).len() == 5);
    assert_eq!(parts(&hosts, &here.join("tape")), all);
    open(&there.join("few")).write_all_at(b"tail", 2 << 20).unwrap();
    assert_eq!(parts(&hosts, &here.join("few")), [0, 1 << 20, 1 << 20], "it grows");
    let bytes = fs::read(here.join("few")).unwrap();
    assert!(bytes.len() == (2 << 20) + 4 && bytes[..300_000] == few && bytes.ends_with(b"\0tail"));
    fs::write(here.join("new"), &few).unwrap();
    assert_eq!(parts(&hosts, &here.join("new")), [0], "new files get it, too");
    // What has it stays where it is.
    let lies = |path: &Path| first.json(words("layout get", path, ""))["file"]["columns"].clone();
    let before = [lies(&here.join("many")), lies(&here.join("few"))];
    first.ok(words("protect --wait -r", here, &grows));
    assert_eq!([lies(&here.join("many")), lies(&here.join("few"))], before);
    for (layout, starts) in [
        ("--copies 2 --then 1MiB:1", vec![0, 0, 1 << 20, 1 << 20]),
        ("--code 2+1 --stripe-size 64KiB --then 1MiB:2:16KiB", [[0; 5], [1 << 20; 5]].concat()),
        ("--copies 3", vec![0; 3]),
    ] {
        write_from_both(&hosts, "file", || {
            first.ok(words("protect --wait", &here.join("file"), layout));
        });
        first.ok(words("protect --wait", &tier.join("many"), layout));
        for path in [here.join("file"), tier.join("many")] {
            assert_eq!(parts(&hosts, &path), starts, "{} with {layout}", path.display());
        }
        is_whole(&here.join("file"));
        is_whole(&there.join("file"));
        assert!(fs::read(tier.join("many")).unwrap() == many, "{layout}");
    }
    first.fails(words("protect", here, "--copies 1 --then 1000:2"));
    fs::remove_dir_all(here).unwrap();
    fs::remove_dir_all(&tier).unwrap();
    first.wait("nothing is left of them", || hosts.objects() == 0);
    first.check();
}
