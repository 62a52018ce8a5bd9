//! What rots, goes missing or cannot be read on a disk target is found, and made anew or named; what is only away is waited for.

use e2e::cluster::{
    cluster, columns, configure, deep_findings, directory, findings, join, lies_on, make_cluster, node,
    objects_on, on_second_and_third, serves, up, wait_for_close, wait_for_mending, words,
};
use e2e::{Bed, can_mount, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A byte of an object as it lies on a disk.
fn byte_of(bed: &Bed, (object, at): (u64, u64)) -> u8 {
    let path = bed.path("target").join(format!("objects/{:02x}/{object:016x}", (object >> 8) as u8));
    let mut byte = [0];
    File::open(path).unwrap().read_exact_at(&mut byte, at).unwrap();
    byte[0]
}

/// Changes a byte of an object below its mover; what it was.
fn spoil(bed: &Bed, (object, at): (u64, u64)) -> u8 {
    let before = byte_of(bed, (object, at));
    let path = bed.path("target").join(format!("objects/{:02x}/{object:016x}", (object >> 8) as u8));
    File::options().write(true).open(path).unwrap().write_all_at(&[!before], at).unwrap();
    before
}

/// A cluster with directories for coded files and such without redundancy.
fn files_are_scrubbed() -> ([Bed; 3], PathBuf, PathBuf) {
    let beds: [Bed; 3] = std::array::from_fn(|_| Bed::new(""));
    for bed in &beds {
        // What is on tape must not leave the targets before, however full this machine is.
        configure(bed, "[disk]\nhigh_watermark = 100\nlow_watermark = 99");
        bed.up();
    }
    make_cluster(&beds);
    let coded = directory(&beds, "--code 2+1 --stripe-size 64KiB");
    let plain = beds[0].mount().join("plain");
    fs::create_dir(&plain).unwrap();
    beds[0].ok(words("layout set", &plain, "--stripes 3 --stripe-size 64KiB"));
    (beds, coded, plain)
}

#[test]
fn what_rots_on_a_target_is_found_and_comes_from_copies_parity_or_tape() {
    if !can_mount("scrubbing a target") {
        return;
    }
    let (beds, coded, plain) = files_are_scrubbed();
    let first = &beds[0];
    let mirrored = first.mount().join("mirrored");
    fs::create_dir(&mirrored).unwrap();
    first.ok(words("layout set", &mirrored, "--copies 2"));
    let bed = &beds[2];
    let target = (1..=3).find(|id| serves(first, bed, *id)).expect("its number");
    let there = |path: &PathBuf| {
        File::create(path).unwrap();
        lies_on(first, path).contains(&target)
    };
    let copy = (0..60).map(|n| mirrored.join(format!("f{n}"))).find(there).expect("a file on it");
    let files = [coded.join("rows"), coded.join("journal"), copy, plain.join("safe"), plain.join("gone")];
    let content = |n: usize| noise(70 + n as u64, 1_000_000 + n);
    for (n, path) in files.iter().enumerate() {
        fs::write(path, content(n)).unwrap();
        wait_for_close(first, path);
    }
    first.ok(words("migrate --wait", &files[3], ""));
    let number = target.to_string();
    first.ok(["target", "scrub", &number, "--wait"]);
    let spoiled = files.each_ref().map(|path| {
        let objects = objects_on(first, path, target);
        let journal = path.ends_with("journal") && objects.len() > 1;
        let place = if journal { (objects[1], 10) } else { (objects[0], 100_000) };
        (place, spoil(bed, place))
    });
    for path in &files {
        let name = path.strip_prefix(first.mount()).unwrap().to_str().unwrap();
        let found = deep_findings(first, name);
        let told = found.first().and_then(|one| one["problem"].as_str()).unwrap_or_default();
        assert!(
            told.contains(&format!("target {target}")),
            "{name} is read whole, each copy of it: {found:?}"
        );
    }
    let scrubbed = first.run(["target", "scrub", &number, "--wait"]);
    assert!(!scrubbed.status.success(), "nothing can repair one of them");
    for path in &files[..3] {
        wait_for_mending(first, path);
    }
    assert_eq!(lies_on(first, &files[3]), [0_u64; 0], "its bytes are on tape");
    assert_eq!(findings(first, "plain/gone")[0]["grade"], "serious");
    let told = findings(first, "plain/gone")[0]["problem"].as_str().expect("a text").to_owned();
    assert!(told.contains("plain/gone") && told.contains(&format!("target {target}")), "{told}");
    assert!(fs::read(&files[3]).unwrap() == content(3), "from tape");
    fs::remove_file(&files[4]).unwrap();
    first.ok(["target", "scrub", &number, "--wait"]);
    for (n, (place, before)) in spoiled.into_iter().enumerate().take(3) {
        assert_eq!(byte_of(bed, place), before, "{} on the disk", files[n].display());
        assert!(fs::read(&files[n]).unwrap() == content(n), "{}", files[n].display());
    }
    first.check();
}

#[test]
fn what_is_missing_on_a_target_is_made_anew_and_what_its_disk_does_not_give_stays() {
    if !can_mount("scrubbing a target that lacks something") {
        return;
    }
    let (beds, coded, plain) = files_are_scrubbed();
    let (first, bed) = (&beds[0], &beds[2]);
    let target = (1..=3).find(|id| serves(first, bed, *id)).expect("its number");
    let number = target.to_string();
    let names =
        [coded.join("gone"), coded.join("sums"), plain.join("gone"), plain.join("disk"), plain.join("held")];
    let content = |n: usize| noise(90 + n as u64, 1_000_000 + n);
    for (n, path) in names.iter().enumerate() {
        fs::write(path, content(n)).unwrap();
        wait_for_close(first, path);
    }
    for path in &names[2..4] {
        first.ok(words("migrate --wait", path, ""));
    }
    let files = names.each_ref().map(|path| {
        let object = objects_on(first, path, target)[0];
        ["objects", "sums"]
            .map(|kind| bed.path("target").join(format!("{kind}/{:02x}/{object:016x}", (object >> 8) as u8)))
    });
    // So that its mover has none of them open.
    bed.ok(["down"]);
    fs::remove_file(&files[0][0]).unwrap();
    File::options().write(true).open(&files[1][1]).unwrap().write_all_at(b"rot", 12).unwrap();
    fs::remove_file(&files[2][0]).unwrap();
    let kept = bed.path("kept");
    fs::rename(&files[3][1], &kept).unwrap();
    fs::create_dir(&files[3][1]).unwrap();
    bed.up();
    first.wait("it is up", || up(first) == [1, 2, 3]);
    spoil(bed, (objects_on(first, &names[4], target)[0], 100_000));
    let held = File::open(&names[4]).unwrap();
    let scrubbed = first.run(["target", "scrub", &number, "--wait"]);
    assert!(!scrubbed.status.success(), "it ends, and says what is left");
    for path in &names[..2] {
        wait_for_mending(first, path);
    }
    assert!(files[0][0].exists(), "it is made anew");
    assert_eq!(lies_on(first, &names[2]), [0_u64; 0], "its bytes are on tape");
    assert_eq!(lies_on(first, &names[3]), [1, 2, 3], "nothing says that it is bad");
    let told = |name: &str| findings(first, name)[0]["problem"].as_str().expect("a text").to_owned();
    assert!(
        told("plain/disk").contains("disk") && told("plain/disk").contains(files[3][1].to_str().unwrap())
    );
    assert!(told("plain/held").contains("open"), "{}", told("plain/held"));
    drop(held);
    fs::remove_file(&names[4]).unwrap();
    fs::remove_dir(&files[3][1]).unwrap();
    fs::rename(&kept, &files[3][1]).unwrap();
    first.ok(["target", "scrub", &number, "--wait"]);
    for (n, path) in names[..4].iter().enumerate() {
        assert!(fs::read(path).unwrap() == content(n), "{}", path.display());
    }
    first.check();
}

/// For longer than is waited for one that others can stand in for.
#[test]
fn the_only_copy_that_counts_is_waited_for_while_its_mover_starts_anew() {
    if !can_mount("the only copy that counts") {
        return;
    }
    let beds = cluster();
    let dir = directory(&beds, "--copies 2");
    let [first, second, third] = &beds;
    let path = on_second_and_third(first, &dir);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let write = |n: u64| {
        file.write_all_at(&noise(n, 100_000), n * 100_000).unwrap();
        file.sync_all().unwrap();
    };
    write(0);
    third.kill();
    write(1);
    assert_eq!(columns(first, &path).iter().filter(|(_, current)| *current).count(), 1);
    second.kill();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(12));
            second.up();
        });
        write(2);
    });
    drop(file);
    wait_for_close(first, &path);
    third.up();
    wait_for_mending(first, &path);
    second.kill();
    first.kill();
    first.up_mounted();
    let all = [0, 1, 2].map(|n| noise(n, 100_000)).concat();
    assert!(fs::read(&path).unwrap() == all, "from what was mended");
}

/// Makes so many files in a directory that lie on two targets, and no others.
fn on_these(first: &Bed, (dir, name): (&Path, &str), mut targets: [u64; 2], count: usize) -> Vec<PathBuf> {
    targets.sort_unstable();
    let made = |n| {
        let path = dir.join(format!("{name}{n}"));
        File::create(&path).unwrap();
        path
    };
    let on_both = |path: &PathBuf| {
        let there = lies_on(first, path) == targets;
        if !there {
            fs::remove_file(path).unwrap();
        }
        there
    };
    let paths: Vec<PathBuf> = (0..150).map(made).filter(on_both).take(count).collect();
    assert_eq!(paths.len(), count);
    paths
}

#[test]
fn a_file_that_cannot_be_mended_now_holds_up_no_other() {
    if !can_mount("mending beside a file that waits") {
        return;
    }
    let beds = cluster();
    let dir = directory(&beds, "--copies 2");
    let [first, second, third] = &beds;
    let [one, two, three] =
        beds.each_ref().map(|bed| (1..=3).find(|id| serves(first, bed, *id)).expect("its number"));
    // What is made first is mended first.
    let mut files = on_these(first, (&dir, "waits"), [two, three], 1);
    files.extend(on_these(first, (&dir, "others"), [one, three], 3));
    let open = files.iter().map(|path| File::options().write(true).open(path).unwrap());
    let open: Vec<File> = open.collect();
    third.kill();
    for (n, file) in (60..).zip(&open) {
        file.write_all_at(&noise(n, 1_000_000), 0).unwrap();
        file.sync_all().unwrap();
    }
    drop(open);
    files.iter().for_each(|path| wait_for_close(first, path));
    let is_whole = |path: &PathBuf| columns(first, path).iter().all(|(_, current)| *current);
    assert!(!files.iter().any(is_whole), "all lack what lies there");
    // The only copy that counts of one of them is there, and nobody gets it.
    let still = Pid::from_raw(second.pid()).expect("a pid");
    kill_process(still, Signal::STOP).unwrap();
    third.up();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) && !files[1..].iter().all(is_whole) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (took, whole) = (begun.elapsed(), files.iter().map(is_whole).collect::<Vec<_>>());
    kill_process(still, Signal::CONT).unwrap();
    assert_eq!(whole, [false, true, true, true], "after {took:?}; log:\n{}", first.log());
    wait_for_mending(first, &files[0]);
    second.kill();
    first.kill();
    first.up_mounted();
    first.wait("its target", || up(first).contains(&1));
    for (n, path) in (60..).zip(&files) {
        assert!(fs::read(path).unwrap() == noise(n, 1_000_000), "from what was mended");
    }
    second.up();
    first.wait("they are up", || up(first) == [1, 2, 3]);
    first.check();
}

#[test]
fn what_a_lost_target_had_is_rebuilt_while_one_of_the_files_waits() {
    if !can_mount("replacing a target beside a file that waits") {
        return;
    }
    let (beds, fourth) = (cluster(), node());
    let dir = directory(&beds, "--copies 2");
    let [first, second, third] = &beds;
    join(first, &fourth, "fourth");
    first.wait("four targets", || up(first) == [1, 2, 3, 4]);
    let [one, two, three] =
        beds.each_ref().map(|bed| (1..=4).find(|id| serves(first, bed, *id)).expect("its number"));
    let mut files = on_these(first, (&dir, "waits"), [two, three], 1);
    files.extend(on_these(first, (&dir, "others"), [one, three], 6));
    for (n, path) in (60..).zip(&files) {
        fs::write(path, noise(n, 1_000_000)).unwrap();
        wait_for_close(first, path);
    }
    let still = Pid::from_raw(second.pid()).expect("a pid");
    third.kill();
    kill_process(still, Signal::STOP).unwrap();
    first.ok(["target", "replace", &three.to_string()]);
    // Those that are to lie on the second from now on wait, too: all of them once in 64 times, when nothing is to be seen.
    let is_whole = |path: &PathBuf| columns(first, path).iter().all(|(_, current)| *current);
    let can_be = |path: &&PathBuf| !lies_on(first, path).contains(&two);
    let is_done = |path: &PathBuf| is_whole(path) && !lies_on(first, path).contains(&three);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) && !files.iter().filter(can_be).all(is_done) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (took, whole) = (begun.elapsed(), files.iter().filter(can_be).map(is_done).collect::<Vec<_>>());
    let waits = !is_done(&files[0]);
    kill_process(still, Signal::CONT).unwrap();
    assert!(waits && whole.iter().all(|done| *done), "{whole:?} after {took:?}; log:\n{}", first.log());
    first.wait("all of it", || files.iter().all(is_done));
    first.wait("the request", || {
        let all = first.json(["request", "ls", "--all"]);
        all.as_array().unwrap().iter().all(|view| view["request"]["state"] == "done")
    });
    for (n, path) in (60..).zip(&files) {
        assert!(fs::read(path).unwrap() == noise(n, 1_000_000), "{}", path.display());
    }
    first.check();
}

#[test]
fn a_rebuild_names_what_cannot_be_made_and_takes_from_tape_what_is_there() {
    if !can_mount("a rebuild with too little") {
        return;
    }
    let (beds, coded, _) = files_are_scrubbed();
    let (first, bed) = (&beds[0], &beds[2]);
    let [target, other] =
        [2, 1].map(|n| (1..=3).find(|id| serves(first, &beds[n], *id)).expect("its number"));
    let names = ["lost", "taped", "whole"].map(|name| coded.join(name));
    let content = |n: usize| noise(50 + n as u64, 1_000_000 + n);
    for (n, path) in names.iter().enumerate() {
        fs::write(path, content(n)).unwrap();
        wait_for_close(first, path);
    }
    first.ok(words("migrate --wait", &names[1], ""));
    let gone = names.each_ref().map(|path| {
        let object = objects_on(first, path, target)[0];
        bed.path("target").join(format!("objects/{:02x}/{object:016x}", (object >> 8) as u8))
    });
    // What the log of a file has would stand in for its rows.
    for bed in &beds[1..] {
        bed.ok(["down"]);
    }
    gone.iter().for_each(|path| fs::remove_file(path).unwrap());
    for path in &names[..2] {
        spoil(&beds[1], (objects_on(first, path, other)[0], 100_000));
    }
    for bed in &beds[1..] {
        bed.up();
    }
    first.wait("they are up", || up(first) == [1, 2, 3]);
    first.ok(["target", "scrub", &target.to_string(), "--wait"]);
    wait_for_mending(first, &names[2]);
    first.wait("check names it", || {
        let found = findings(first, "striped/lost");
        found.iter().any(|one| one["problem"].as_str().is_some_and(|s| s.contains("cannot be made")))
    });
    first.wait("it comes from tape", || lies_on(first, &names[1]).is_empty());
    for n in [1, 2] {
        assert!(fs::read(&names[n]).unwrap() == content(n), "{}", names[n].display());
    }
    // Once it is written again, nothing is missing.
    let new = noise(60, 1_000_000);
    File::options().write(true).open(&names[0]).unwrap().write_all_at(&new, 0).unwrap();
    wait_for_mending(first, &names[0]);
    assert!(fs::read(&names[0]).unwrap() == new);
    first.check();
}

/// What checks that read everything say of the targets and of the files below a directory.
fn told_of(first: &Bed, dir: &Path) -> Vec<(String, String)> {
    let name = dir.strip_prefix(first.mount()).unwrap().to_str().unwrap().to_owned();
    let all = deep_findings(first, "");
    let text = |one: &serde_json::Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let ours = |one: &&serde_json::Value| {
        let subject = text(one, "subject");
        subject.starts_with("target ") || subject.contains(&name)
    };
    all.iter().filter(ours).map(|one| (text(one, "grade"), text(one, "problem"))).collect()
}

#[test]
fn what_could_not_be_compared_because_a_mover_went_away_is_told_by_each_check_as_long_as_that_holds() {
    if !can_mount("a mover that goes away during a check") {
        return;
    }
    let beds = cluster();
    let (first, third) = (&beds[0], &beds[2]);
    let dir = directory(&beds, "--copies 2");
    let plain = first.mount().join("plain");
    fs::create_dir(&plain).unwrap();
    first.ok(words("layout set", &plain, "--stripes 3 --stripe-size 64KiB"));
    let file = on_second_and_third(first, &dir);
    for path in [&file, &plain.join("spread")] {
        fs::write(path, noise(31, 1_000_000)).unwrap();
        wait_for_close(first, path);
    }
    let without = fs::read_dir(&dir).unwrap().filter(|one| one.as_ref().unwrap().path() != file);
    without.for_each(|one| fs::remove_file(one.unwrap().path()).unwrap());
    first.wait("all is well", || told_of(first, &dir).is_empty());
    // It counts as up until it has been silent for long.
    third.signal(Signal::STOP);
    let away = |told: Vec<(String, String)>| {
        let [(grade, problem)] = told.as_slice() else { panic!("one finding, of the target: {told:#?}") };
        assert!(problem.contains("what lies there was not compared"), "{problem}");
        assert!(
            problem.contains("of 1 file") && problem.contains(file.file_name().unwrap().to_str().unwrap())
        );
        assert!(
            problem.contains("without it 1 file could not be looked at") && problem.contains("spread"),
            "{problem}"
        );
        assert_eq!(grade, "serious", "nobody can read the other one");
    };
    away(told_of(first, &dir));
    first.wait("it is down", || up(first) == [1, 2]);
    away(told_of(first, &dir));
    fs::remove_file(plain.join("spread")).unwrap();
    let told = told_of(first, &dir);
    assert!(
        told.len() == 1 && told[0].0 == "incomplete" && told[0].1.contains("was not compared"),
        "{told:?}"
    );
    third.signal(Signal::CONT);
    first.wait("it is up", || up(first) == [1, 2, 3]);
    first.wait("all is well again", || told_of(first, &dir).is_empty());
    first.check();
}
