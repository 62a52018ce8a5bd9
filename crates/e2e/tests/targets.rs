//! Files on disk targets of a cluster over their whole life: back from tape, with redundancy, moved from target to target.

use e2e::cluster::{
    cluster, columns, configure, directory, findings, join, lies_on, make_cluster, node, objects,
    on_second_and_third, serves, striped, targets, up, wait_for_close, wait_for_mending, words,
};
use e2e::{Bed, can_mount, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn files_on_targets_go_to_tape_leave_the_targets_only_then_and_come_back_to_targets() {
    if !can_mount("files on targets and tape") {
        return;
    }
    let (beds, dir) = striped();
    let (first, path, bytes) = (&beds[0], dir.join("file"), noise(5, 3_000_000));
    fs::write(&path, &bytes).unwrap();
    fs::write(dir.join("empty"), b"").unwrap();
    wait_for_close(first, &path);
    // Nothing is released before every copy counts.
    let refused = first.run(words("purge", &path, "--wait"));
    assert!(!refused.status.success(), "purged without copies");
    assert_eq!(beds.each_ref().map(objects), [2; 3]);
    first.ok(words("migrate --wait -r", &dir, ""));
    assert_eq!(beds.each_ref().map(objects), [2; 3], "copies on tape release nothing by themselves");
    first.ok(words("purge --wait -r", &dir, ""));
    first.wait("the targets", || beds.each_ref().map(objects) == [0; 3]);
    assert_eq!(lies_on(first, &path), [0_u64; 0]);
    assert!(fs::read(&path).unwrap() == bytes, "what came back from tape");
    // The bytes are handed out before all of that is on record.
    first.wait("it is back on targets", || lies_on(first, &path) == [1, 2, 3]);
    first.wait("what was taken for it", || beds.each_ref().map(objects) == [1; 3]);
    // It is as any other file on targets: after a crash, when it is changed, when it is emptied while it is on tape only.
    first.kill();
    first.up_mounted();
    assert!(fs::read(&path).unwrap() == bytes, "after a crash");
    first.ok(words("purge", &path, "--wait"));
    File::options().write(true).open(&path).unwrap().write_all_at(b"changed", 1_000_000).unwrap();
    let mut changed = bytes;
    changed[1_000_000..1_000_007].copy_from_slice(b"changed");
    assert!(fs::read(&path).unwrap() == changed, "written after it came back");
    first.ok(words("stage --wait", &dir.join("empty"), ""));
    assert_eq!(lies_on(first, &dir.join("empty")), [1, 2, 3]);
    wait_for_close(first, &path);
    first.ok(words("migrate --wait", &path, ""));
    first.ok(words("purge", &path, "--wait"));
    fs::write(&path, b"new").unwrap();
    assert_eq!(lies_on(first, &path), [1, 2, 3]);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    first.wait("nothing is left over", || beds.each_ref().map(objects) == [2; 3]);
    first.check();
}

#[test]
fn a_large_file_is_read_while_it_comes_back_to_targets() {
    if !can_mount("reading while a file comes back") {
        return;
    }
    let bed = Bed::new("");
    configure(&bed, "drive_rate = \"8 MiB\"");
    bed.up();
    let beds = [bed, node(), node()];
    make_cluster(&beds);
    let dir = directory(&beds, "--stripes 3 --stripe-size 64KiB");
    let (first, path, bytes) = (&beds[0], dir.join("file"), noise(6, 32 << 20));
    fs::write(&path, &bytes).unwrap();
    wait_for_close(first, &path);
    first.ok(words("migrate --wait", &path, ""));
    first.ok(words("purge", &path, "--wait"));
    let file = File::open(&path).unwrap();
    let mut part = vec![0; 1 << 20];
    file.read_exact_at(&mut part, 0).unwrap();
    assert!(part == bytes[..1 << 20]);
    assert_eq!(lies_on(first, &path), [0_u64; 0], "the first bytes are read while the rest is on its way");
    assert!(fs::read(&path).unwrap() == bytes, "all of it");
    first.wait("it is back", || lies_on(first, &path) == [1, 2, 3]);
    file.read_exact_at(&mut part, 20 << 20).unwrap();
    assert!(part == bytes[20 << 20..21 << 20], "through the descriptor that waited");
    drop(file);
    first.check();
}

/// A file goes to tape and back like any other.
fn to_tape_and_back(first: &Bed, path: &Path, content: &[u8]) {
    wait_for_mending(first, path);
    wait_for_close(first, path);
    first.ok(words("migrate --wait", path, ""));
    first.ok(words("purge --wait", path, ""));
    assert!(fs::read(path).unwrap() == content, "from tape");
    first.wait("it is back", || !lies_on(first, path).is_empty());
}

/// A file of such a layout goes on while one target is away, is made whole when it is back, and is all there without another one then.
fn goes_on_without_one(layout: &str) {
    let beds = cluster();
    let dir = directory(&beds, layout);
    let [first, second, third] = &beds;
    // One that lies on the targets of the nodes that are going to die.
    let path = on_second_and_third(first, &dir);
    let mut model = noise(11, 16 << 20);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (n, part) in model.chunks(1 << 20).enumerate() {
                file.write_all_at(part, (n as u64) << 20).unwrap();
                if n % 4 == 3 {
                    file.sync_all().unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        third.kill();
    });
    file.sync_all().unwrap();
    assert!(fs::read(&path).unwrap() == model, "written while a target went away");
    assert_eq!(columns(first, &path).iter().filter(|(_, current)| !current).count(), 1);
    // In place, beyond the end, and of another length.
    for n in 0..30_u64 {
        let at = (n * 7_919_993) % (18 << 20);
        let bytes = noise(n, 1 + (n as usize * 13_007) % 100_000);
        file.write_all_at(&bytes, at).unwrap();
        let end = at as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[at as usize..end].copy_from_slice(&bytes);
    }
    file.set_len(17_000_001).unwrap();
    model.resize(17_000_001, 0);
    file.sync_all().unwrap();
    drop(file);
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    first.wait("check tells of it", || findings(first, &name).iter().any(|one| one["grade"] == "incomplete"));
    // A new file, too, while it is away, and over a crash of the node.
    let new = dir.join("new");
    fs::write(&new, &model[..5_000_000]).unwrap();
    let open = File::options().write(true).open(&new).unwrap();
    open.write_all_at(b"before the crash", 1_000_000).unwrap();
    open.sync_all().unwrap();
    first.kill();
    drop(open);
    first.up_mounted();
    let mut of_new = model[..5_000_000].to_vec();
    of_new[1_000_000..1_000_016].copy_from_slice(b"before the crash");
    assert!(fs::read(&path).unwrap() == model && fs::read(&new).unwrap() == of_new, "after a crash");
    third.up();
    wait_for_mending(first, &path);
    wait_for_mending(first, &new);
    assert!(findings(first, &name).is_empty());
    // Now the other one goes, and nothing is in the caches of the kernel.
    first.kill();
    second.kill();
    first.up_mounted();
    assert!(fs::read(&path).unwrap() == model && fs::read(&new).unwrap() == of_new, "from what was mended");
    second.up();
    to_tape_and_back(first, &path, &model);
    first.check();
}

#[test]
fn files_in_two_copies_go_on_without_a_target_and_are_mended() {
    if can_mount("files in two copies") {
        goes_on_without_one("--copies 2");
    }
}

#[test]
fn coded_files_go_on_without_a_target_and_are_mended() {
    if can_mount("coded files") {
        goes_on_without_one("--code 2+1 --stripe-size 64KiB");
    }
}

/// Epoch of the log of a coded file and the last one that is in rows, by one of its journals, and whether the log has anything of the epoch.
fn log_of(beds: &[Bed; 3], path: &Path) -> (u64, u64, bool) {
    let view = beds[0].json(words("layout get", path, ""));
    let journal = view["file"]["columns"].as_array().expect("columns").last().expect("a journal").clone();
    let number = |name: &str| journal[name].as_u64().expect("a number");
    let bed = beds.iter().find(|bed| serves(&beds[0], bed, number("target"))).expect("its node");
    let object = number("object");
    let file = bed.path("target").join(format!("objects/{:02x}/{object:016x}", (object >> 8) as u8));
    let file = File::open(file).unwrap();
    let at = |offset: u64| {
        let mut bytes = [0; 8];
        file.read_at(&mut bytes, offset).unwrap();
        u64::from_le_bytes(bytes)
    };
    let head = [0, 2048].into_iter().max_by_key(|head| at(head + 16)).expect("two heads");
    let (epoch, folded) = (at(head + 24), at(head + 32));
    (epoch, folded, at(4096 + (epoch % 2) * (32 << 20) + 8) == epoch)
}

#[test]
fn small_writes_to_a_coded_file_come_into_its_rows_when_it_is_left_alone() {
    if !can_mount("a log that is folded") {
        return;
    }
    let beds = cluster();
    let dir = directory(&beds, "--code 2+1 --stripe-size 64KiB");
    let (first, path) = (&beds[0], dir.join("file"));
    let mut model = noise(31, 8_000_000);
    fs::write(&path, &model).unwrap();
    let folded = || matches!(log_of(&beds, &path), (epoch, folded, false) if folded + 1 >= epoch);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let small_writes = |model: &mut Vec<u8>, seed: u64| {
        for n in 0..40_u64 {
            let (at, bytes) = ((n * 7_919_993 + seed) % 7_900_000, noise(seed + n, 5_000));
            file.write_all_at(&bytes, at).unwrap();
            model[at as usize..][..5_000].copy_from_slice(&bytes);
        }
        file.sync_all().unwrap();
    };
    first.wait("something in its log", || {
        small_writes(&mut model, 1);
        !folded()
    });
    first.wait("it is in the rows", folded);
    assert!(fs::read(&path).unwrap() == model, "folded while it is open");
    small_writes(&mut model, 1000);
    // The node dies in the middle of it, if that can be met.
    let begun = std::time::Instant::now();
    first.wait("a fold", || {
        let (epoch, folded, _) = log_of(&beds, &path);
        folded + 1 < epoch || begun.elapsed().as_secs() > 5
    });
    first.kill();
    first.up_mounted();
    assert!(fs::read(&path).unwrap() == model, "the node died while it folded");
    drop(file);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"before a crash", 1_000_001).unwrap();
    file.sync_all().unwrap();
    model[1_000_001..1_000_015].copy_from_slice(b"before a crash");
    first.kill();
    drop(file);
    first.up_mounted();
    first.wait("what an earlier run has left", folded);
    assert!(fs::read(&path).unwrap() == model, "folded after a crash");
    first.check();
}

#[test]
fn what_a_node_that_is_stopped_has_in_memory_goes_to_its_own_target_too() {
    if !can_mount("a stop with something in memory") {
        return;
    }
    let beds = cluster();
    let dir = directory(&beds, "--code 2+1 --stripe-size 64KiB");
    let [first, _, third] = &beds;
    let mut model = noise(41, 500_000);
    // A copy of its log is on the node's own target.
    let logged_here = |path: &std::path::PathBuf| {
        fs::write(path, &model).unwrap();
        !serves(first, first, columns(first, path)[2].0)
    };
    let path =
        (0..60).map(|n| dir.join(format!("f{n}"))).find(logged_here).expect("a file that is logged here");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // From now on the node's own target is needed.
    third.kill();
    file.write_all_at(&noise(42, 10_000), 0).unwrap();
    file.sync_all().unwrap();
    model[..10_000].copy_from_slice(&noise(42, 10_000));
    let program = format!("/proc/{}/exe", first.pid());
    for n in 0..20_usize {
        let bytes = noise(43 + n as u64, 9_000);
        file.write_all_at(&bytes, n as u64 * 20_000).unwrap();
        model[n * 20_000..][..9_000].copy_from_slice(&bytes);
    }
    // Its mount is in use. No program is started for it: that closes its copies of descriptors, and so has all written.
    first.signal(rustix::process::Signal::TERM);
    first.wait("its end, also as a zombie", || fs::read_link(&program).is_err());
    drop(file);
    first.up_mounted();
    assert!(fs::read(&path).unwrap() == model, "what was written before the stop; log:\n{}", first.log());
    third.up();
    wait_for_mending(first, &path);
    first.check();
}

#[test]
fn who_closes_a_coded_file_whose_targets_are_away_is_told_and_may_write_it_again() {
    if !can_mount("closing without targets") {
        return;
    }
    let beds = cluster();
    let dir = directory(&beds, "--code 2+1 --stripe-size 64KiB");
    let [first, second, third] = &beds;
    let mut model = noise(51, 500_000);
    // Both copies of its log are with those that die.
    let logged_there = |path: &std::path::PathBuf| {
        fs::write(path, &model).unwrap();
        serves(first, first, columns(first, path)[2].0)
    };
    let path = (0..60).map(|n| dir.join(format!("f{n}"))).find(logged_there).expect("a file on both");
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"begun", 0).unwrap();
    file.sync_all().unwrap();
    second.kill();
    third.kill();
    let piece = first.path("piece");
    fs::write(&piece, noise(52, 9_000)).unwrap();
    // It says what close(2) says, too.
    let mut writes = std::process::Command::new("dd");
    writes.arg(format!("if={}", piece.display())).arg(format!("of={}", path.display()));
    let said = writes.args(["bs=9000", "seek=2", "conv=notrunc"]).output().expect("dd");
    assert!(!said.status.success(), "nobody has said that it is not written");
    drop(file);
    second.up();
    third.up();
    let again = || File::options().write(true).open(&path);
    first.wait("it can be opened", || again().is_ok());
    let file = again().unwrap();
    model = noise(53, 500_000);
    file.write_all_at(&model, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(fs::read(&path).unwrap() == model, "older bytes have come later");
    wait_for_mending(first, &path);
    first.check();
}

/// Files on three targets of a cluster with a fourth one, which is empty.
fn with_a_fourth(layout: &str) -> ([Bed; 3], Bed, std::path::PathBuf) {
    let beds = cluster();
    let dir = directory(&beds, layout);
    for n in 0..12 {
        fs::write(dir.join(format!("f{n:02}")), noise(n, 2_000_000 + n as usize)).unwrap();
    }
    let fourth = node();
    join(&beds[0], &fourth, "fourth");
    beds[0].wait("four targets", || up(&beds[0]) == [1, 2, 3, 4]);
    (beds, fourth, dir)
}

fn all_there(dir: &Path) {
    for n in 0..12 {
        let path = dir.join(format!("f{n:02}"));
        assert!(fs::read(&path).unwrap() == noise(n, 2_000_000 + n as usize), "file {n}");
    }
}

#[test]
fn a_target_is_drained_while_files_are_used_and_over_crashes() {
    if !can_mount("draining a target") {
        return;
    }
    let (beds, fourth, dir) = with_a_fourth("--stripes 3 --stripe-size 64KiB");
    let first = &beds[0];
    let third = (1..=4).find(|id| serves(first, &beds[2], *id)).expect("its number");
    let path = dir.join("written");
    let bytes = noise(99, 8 << 20);
    std::thread::scope(|scope| {
        let file = File::create(&path).unwrap();
        let bytes = &bytes;
        scope.spawn(move || {
            for (n, part) in bytes.chunks(1 << 17).enumerate() {
                file.write_all_at(part, (n as u64) << 17).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            file.sync_all().unwrap();
        });
        first.ok(["target", "drain", &third.to_string(), "--wait"]);
    });
    assert!(fs::read(&path).unwrap() == bytes, "written while it moved");
    all_there(&dir);
    first.wait("it is empty", || objects(&beds[2]) == 0);
    fs::write(dir.join("new"), b"new").unwrap();
    assert!(!lies_on(first, &dir.join("new")).contains(&third), "it gets no new files");
    assert_eq!(objects(&fourth), 14);
    // Without it nothing is missing.
    beds[2].kill();
    first.kill();
    first.up_mounted();
    all_there(&dir);
    beds[2].up();
    first.ok(["target", "return", &third.to_string()]);
    first.wait("it is up", || up(first) == [1, 2, 3, 4]);
    // The node dies again and again while another one is drained; what was begun goes on.
    let of_two = [&beds[0], &beds[1], &fourth].into_iter().find(|bed| serves(first, bed, 2));
    first.ok(["target", "drain", "2"]);
    for n in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(300 * n));
        first.kill();
        first.up_mounted();
        all_there(&dir);
    }
    first.wait("it is empty too", || objects(of_two.expect("its node")) == 0);
    first.wait("the request", || {
        let all = first.json(["request", "ls", "--all"]);
        all.as_array().unwrap().iter().all(|view| view["request"]["state"] == "done")
    });
    all_there(&dir);
    assert!(fs::read(&path).unwrap() == bytes);
    first.check();
}

#[test]
fn a_target_that_was_drained_is_taken_out_of_the_list_and_its_host_is_told() {
    if !can_mount("taking a target out") {
        return;
    }
    let (beds, _fourth, dir) = with_a_fourth("--stripes 3 --stripe-size 64KiB");
    let first = &beds[0];
    let gone = (1..=4).find(|id| serves(first, &beds[2], *id)).expect("its number");
    let number = gone.to_string();
    let refused = |words: &[&str]| {
        let said = first.run(words.iter().copied());
        assert!(!said.status.success(), "{words:?}");
        String::from_utf8_lossy(&said.stderr).into_owned()
    };
    let rm = ["target", "rm", number.as_str()];
    let why = refused(&rm);
    assert!(why.contains("is in use") && why.contains(&format!("thermo target drain {gone}")), "{why}");
    first.ok(["target", "drain", &number, "--wait"]);
    first.wait("it is empty", || objects(&beds[2]) == 0);
    first.wait("it is on record", || first.run(rm).status.success());
    let listed =
        |bed: &Bed| targets(bed).iter().map(|one| one["target"]["id"].as_u64().unwrap()).collect::<Vec<_>>();
    assert!(!listed(first).contains(&gone) && listed(first).len() == 3);
    let why = refused(&rm);
    assert!(why.contains("out of the list already"), "{why}");
    refused(&["target", "return", &number]);
    // Its host is told so, also when it is started anew, and over a restart of the first node.
    let told = |bed: &Bed| bed.ok(["target", "ls"]).contains("taken out of the list");
    first.wait("the first node tells it", || told(first));
    first.wait("its host tells it", || told(&beds[2]));
    let before = fs::read(beds[2].path("target/turn")).unwrap();
    beds[2].kill();
    first.kill();
    first.up_mounted();
    beds[2].up();
    first.wait("its host tells it again", || told(&beds[2]));
    assert!(!listed(first).contains(&gone));
    assert!(
        fs::read(beds[2].path("target/turn")).unwrap() == before && objects(&beds[2]) == 0,
        "nothing there is touched"
    );
    all_there(&dir);
    first.wait("the others are up", || up(first).len() == 3);
    // A new disk at the same place gets a number of its own.
    beds[2].kill();
    fs::remove_dir_all(beds[2].path("target")).unwrap();
    fs::remove_file(beds[2].state().join("targets")).unwrap();
    beds[2].up();
    first.wait("a new number", || {
        listed(first) == [1, 2, 3, 4, 5].into_iter().filter(|id| *id != gone).collect::<Vec<_>>()
    });
    fs::write(dir.join("new"), noise(1, 1_000_000)).unwrap();
    first.check();
}

#[test]
fn what_a_lost_target_had_is_rebuilt_on_another_or_comes_from_tape() {
    if !can_mount("replacing a target") {
        return;
    }
    let (beds, fourth, dir) = with_a_fourth("--code 2+1 --stripe-size 64KiB");
    let first = &beds[0];
    // Beside them files without redundancy: one on tape, and one that is not.
    let plain = beds[0].mount().join("plain");
    fs::create_dir(&plain).unwrap();
    first.ok(words("layout set", &plain, "--stripes 4 --stripe-size 64KiB"));
    fs::write(plain.join("safe"), noise(50, 1_000_000)).unwrap();
    wait_for_close(first, &plain.join("safe"));
    first.ok(words("migrate --wait", &plain.join("safe"), ""));
    fs::write(plain.join("gone"), noise(51, 1_000_000)).unwrap();
    wait_for_close(first, &plain.join("gone"));
    let lost = (1..=4).find(|id| serves(first, &beds[2], *id)).expect("its number");
    beds[2].kill();
    // Somebody has it open just then: it is come back to.
    let held = File::open(plain.join("safe")).unwrap();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(3));
        drop(held);
    });
    let replaced = first.run(["target", "replace", &lost.to_string(), "--wait"]);
    closing.join().unwrap();
    let said = String::from_utf8_lossy(&replaced.stdout).into_owned();
    assert!(!replaced.status.success(), "one file cannot be replaced: {said}");
    all_there(&dir);
    for n in 0..12 {
        let path = dir.join(format!("f{n:02}"));
        wait_for_mending(first, &path);
        assert!(!lies_on(first, &path).contains(&lost));
    }
    first.ok(words("layout set", &plain, "--stripes 3"));
    assert!(fs::read(plain.join("safe")).unwrap() == noise(50, 1_000_000), "from tape");
    assert!(fs::read(plain.join("gone")).is_err());
    fs::remove_file(plain.join("gone")).unwrap();
    File::open(&plain).unwrap().sync_all().expect("the node is killed soon");
    assert!(objects(&fourth) >= 12);
    // The rebuilt columns stand in for others.
    beds[1].kill();
    first.kill();
    first.up_mounted();
    // Its own target has to be served again: two of three are needed.
    first.wait("its target", || fs::read(dir.join("f00")).is_ok());
    all_there(&dir);
    beds[1].up();
    first.wait("it is up", || up(first).contains(&2));
    first.check();
}

#[test]
fn a_file_is_made_on_others_when_a_mover_stands_still() {
    if !can_mount("a mover that stands still") {
        return;
    }
    let beds = cluster();
    let dir = directory(&beds, "--stripes 2");
    let (first, still) = (&beds[0], &beds[1]);
    let number = (1..=3).find(|id| serves(first, still, *id)).expect("its number");
    let make = |name: &str, n: usize| {
        let path = dir.join(format!("{name}{n}"));
        File::create_new(&path).unwrap();
        lies_on(first, &path).contains(&number)
    };
    let pid = Pid::from_raw(still.pid()).expect("a pid");
    kill_process(pid, Signal::STOP).unwrap();
    let (begun, mut made) = (Instant::now(), 0);
    // Most are made in a moment; one is to lie there, which takes no answer.
    while begun.elapsed() < Duration::from_secs(7) && made < 15 {
        assert!(!make("early", made), "nobody can have made it there");
        made += 1;
    }
    let took = begun.elapsed();
    kill_process(pid, Signal::CONT).unwrap();
    assert!(took > Duration::from_secs(7), "{made} files, none was to lie there");
    assert!(
        took < Duration::from_secs(45),
        "who makes a file waits for a target that it does not need: {took:?}"
    );
    first.wait("it is used again", || up(first) == [1, 2, 3]);
    let there = (0..10).filter(|n| make("late", *n)).count();
    assert!(there > 0);
    fs::remove_dir_all(&dir).unwrap();
    first.wait("nothing is left", || beds.each_ref().map(objects) == [0; 3]);
    first.check();
}

/// As it is where the catalogue is from a backup of before a take-over.
#[test]
fn a_target_that_has_heard_of_a_later_turn_than_the_catalogue_is_used_on() {
    if !can_mount("targets of a later turn") {
        return;
    }
    let (beds, dir) = striped();
    let (path, bytes, mut changed) = (dir.join("file"), noise(9, 300_000), noise(9, 300_000));
    fs::write(&path, &bytes).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    beds[1].ok(["down"]);
    let turn = |bed: &Bed| fs::read_to_string(bed.path("target/turn")).unwrap();
    fs::write(beds[1].path("target/turn"), format!("{:020}\n", 7)).unwrap();
    beds[1].up();
    beds[0].wait("all to hear of the turn behind it", || {
        beds.each_ref().map(turn).iter().all(|turn| *turn == format!("{:020}\n", 8))
    });
    file.write_all_at(b"changed", 100_000).unwrap();
    file.sync_all().unwrap();
    changed[100_000..100_007].copy_from_slice(b"changed");
    assert!(fs::read(&path).unwrap() == changed);
    fs::write(dir.join("another"), &bytes).unwrap();
    File::open(dir.join("another")).unwrap().sync_all().unwrap();
    beds[0].kill();
    beds[0].up_mounted();
    assert!(fs::read(dir.join("another")).unwrap() == bytes);
    beds[0].check();
}
