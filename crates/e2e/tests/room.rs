//! Room on disk targets of a cluster: who may have how much of it, and what happens when there is little.

use e2e::cluster::{
    Small, configure, directory, lies_on, make_cluster, objects, serves, striped, targets, wait_for_close,
    words,
};
use e2e::{Bed, can_mount, noise};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

/// Whether uid 1000 can make a file with these bytes; what dd(1) says otherwise.
fn writes_as_1000(from: &Path, path: &Path) -> Result<(), String> {
    let mut dd = std::process::Command::new("dd");
    dd.arg(format!("if={}", from.display())).arg(format!("of={}", path.display())).arg("bs=1M");
    let said = dd.uid(1000).gid(1000).output().expect("dd");
    if said.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said.stderr).into_owned()) }
}

#[test]
fn files_on_targets_count_for_the_disk_space_that_their_owner_may_have() {
    if !can_mount("quotas of disk space") {
        return;
    }
    let (beds, dir) = striped();
    let first = &beds[0];
    fs::set_permissions(first.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(&dir, Some(1000), Some(1000)).unwrap();
    let bytes = first.path("bytes");
    fs::write(&bytes, noise(7, 3 << 20)).unwrap();
    let on_disk = || {
        let users = first.json(["du", "--owner", "1000"]);
        let number = |what: &str| users[0][what].as_u64().expect("a number");
        (number("disk_bytes"), number("target_bytes"))
    };
    let write = |name: &str| writes_as_1000(&bytes, &dir.join(name));
    let refused = |name: &str| {
        first.wait("two files", || on_disk() == (6 << 20, 6 << 20));
        // It is looked at a few times a second.
        std::thread::sleep(Duration::from_secs(2));
        let said = write(name).expect_err("he has as much as he may");
        assert!(said.contains("quota exceeded"), "{said}");
    };
    write("a").unwrap();
    first.wait("its bytes", || on_disk() == (3 << 20, 3 << 20));
    first.ok(["quota", "set", "--owner", "1000", "--disk", "5MiB"]);
    write("b").unwrap();
    refused("c");
    let limits = first.json(["quota", "ls"]);
    assert_eq!(
        (&limits[0]["quota"]["disk_bytes"], &limits[0]["usage"]["disk_bytes"]),
        (&(5 << 20).into(), &(6 << 20).into())
    );
    assert!(fs::read(dir.join("a")).unwrap() == noise(7, 3 << 20), "reading goes on");
    // What is on tape only takes nothing on disk, and what is given away is another one's.
    wait_for_close(first, &dir.join("a"));
    first.ok(words("migrate --wait", &dir.join("a"), ""));
    first.ok(words("purge --wait", &dir.join("a"), ""));
    first.wait("room again", || write("c").is_ok());
    refused("d");
    chown(dir.join("b"), Some(0), None).unwrap();
    first.wait("room once more", || write("d").is_ok());
    fs::remove_file(dir.join("c")).unwrap();
    fs::remove_file(dir.join("d")).unwrap();
    first.wait("nothing is left", || on_disk() == (0, 0));
    first.kill();
    first.up_mounted();
    first.check();
}

/// Per cent of the fullest target that is used.
fn fullest(first: &Bed) -> u64 {
    let used = |view: &serde_json::Value| {
        let number = |what: &str| view["target"][what].as_u64().expect("a number");
        100 - 100 * number("free") / number("capacity")
    };
    targets(first).iter().map(used).max().expect("targets")
}

#[test]
fn targets_that_get_full_are_emptied_by_themselves_of_what_is_safe_on_tape() {
    if !can_mount("full targets") {
        return;
    }
    let beds: [Bed; 3] = std::array::from_fn(|_| Bed::new(""));
    let _small = beds.each_ref().map(|bed| Small::mount(bed, 46 << 20));
    for bed in &beds {
        configure(bed, "");
        bed.up();
    }
    make_cluster(&beds);
    let dir = directory(&beds, "--stripes 3 --stripe-size 64KiB");
    let first = &beds[0];
    let write = |n: u64| fs::write(dir.join(format!("f{n:02}")), noise(n, 10 << 20)).unwrap();
    let on_targets = |n: u64| !lies_on(first, &dir.join(format!("f{n:02}"))).is_empty();
    (0..13).for_each(write);
    first.ok(words("migrate --wait -r", &dir, ""));
    first.wait("the targets' report", || fullest(first) > 90);
    // Nobody orders it. What is to leave is reckoned from a report that may be a little older than what was written last.
    first.wait("room", || fullest(first) <= 83);
    assert!((0..3).any(|n| !on_targets(n)), "the oldest go first");
    assert!(on_targets(12), "those used last stay");
    for n in 0..13 {
        assert!(fs::read(dir.join(format!("f{n:02}"))).unwrap() == noise(n, 10 << 20), "file {n}");
    }
    first.check();
}

#[test]
fn what_fills_targets_goes_to_tape_before_its_time_and_writing_goes_on() {
    if !can_mount("full targets and what is not on tape") {
        return;
    }
    let beds: [Bed; 3] = std::array::from_fn(|_| Bed::new(""));
    let _small = beds.each_ref().map(|bed| Small::mount(bed, 46 << 20));
    for bed in &beds {
        configure(bed, "");
        bed.up();
    }
    make_cluster(&beds);
    let dir = directory(&beds, "--stripes 3 --stripe-size 64KiB");
    let first = &beds[0];
    let path = |n: u64| dir.join(format!("f{n:02}"));
    let write = |n: u64| fs::write(path(n), noise(n, 5 << 20)).unwrap();
    let copies = |path: &Path| {
        first.json(words("stat", path, ""))[0]["file"]["copies"].as_array().expect("copies").len()
    };
    let elsewhere = first.mount().join("elsewhere");
    fs::write(&elsewhere, noise(99, 1 << 20)).unwrap();
    (0..24).for_each(write);
    let mut written = 24;
    loop {
        // The report that comes next.
        std::thread::sleep(Duration::from_secs(6));
        if fullest(first) >= 95 {
            break;
        }
        write(written);
        written += 1;
        assert!(written < 28, "{} % are used", fullest(first));
    }
    // Their class leaves them alone for an hour, and nobody orders it.
    let mut told = false;
    first.wait("room", || {
        told |= first.ok(["target", "ls"]).contains("is nearly full");
        fullest(first) <= 84
    });
    assert!(told, "operators are told");
    (written..written + 4).for_each(write);
    assert!((written + 4) * 5 > 3 * 46, "more than the targets can hold");
    assert!(lies_on(first, &path(0)).is_empty(), "the oldest have left");
    assert_eq!(copies(&path(0)), 2);
    assert_eq!(copies(&elsewhere), 0, "what lies elsewhere has time");
    // What comes back from tape takes room again, so it is only some.
    first.wait("room once more", || fullest(first) <= 84);
    let on_targets: Vec<u64> = (0..written + 4).filter(|n| !lies_on(first, &path(*n)).is_empty()).collect();
    assert!(on_targets.len() > 10 && !on_targets.contains(&1), "{on_targets:?}");
    for n in on_targets.into_iter().chain([0, 1]) {
        assert!(fs::read(path(n)).unwrap() == noise(n, 5 << 20), "file {n}");
    }
    first.check();
}

#[test]
fn a_file_that_grows_leaves_a_target_that_is_full() {
    if !can_mount("a file on a full target") {
        return;
    }
    let beds: [Bed; 3] = std::array::from_fn(|_| Bed::new(""));
    let sizes = [100 << 20, 40 << 20, 100 << 20];
    let _small: Vec<Small> = beds.iter().zip(sizes).map(|(bed, size)| Small::mount(bed, size)).collect();
    for bed in &beds {
        configure(bed, "");
        bed.up();
    }
    make_cluster(&beds);
    let dir = directory(&beds, "--stripes 2 --stripe-size 64KiB");
    let first = &beds[0];
    let small = (1..=3).find(|id| serves(first, &beds[1], *id)).expect("its number");
    let on_small = |path: &std::path::PathBuf| {
        File::create(path).unwrap();
        lies_on(first, path).contains(&small)
    };
    let path = (0..60).map(|n| dir.join(format!("f{n}"))).find(on_small).expect("a file on the small one");
    let bytes = noise(21, 90 << 20);
    fs::write(&path, &bytes).unwrap();
    assert!(!lies_on(first, &path).contains(&small), "it has left the target that is full");
    assert!(fs::read(&path).unwrap() == bytes);
    first.wait("room", || first.run(["target", "ls"]).status.success() && objects(&beds[1]) < 40);
    // With nowhere to go it is an honest end: what was written is there.
    let rest = dir.join("rest");
    let file = File::create(&rest).unwrap();
    let part = noise(22, 1 << 20);
    let full = (0..200).find_map(|n| file.write_all_at(&part, n << 20).err().map(|e| (n, e)));
    let (written, error) = full.expect("the targets are not endless");
    assert_eq!(error.raw_os_error(), Some(28), "ENOSPC: {error}");
    drop(file);
    let there = fs::read(&rest).unwrap();
    assert!(there.len() >= (written as usize) << 20 && there[..1 << 20] == part);
    assert!(fs::read(&path).unwrap() == bytes, "the other file");
    first.check();
}

/// A directory on three small targets, and a file of it that is on tape only.
fn small_targets(beds: &[Bed; 3], library: &str) -> (std::path::PathBuf, [Small; 3]) {
    let small = beds.each_ref().map(|bed| Small::mount(bed, 46 << 20));
    for bed in beds {
        configure(bed, library);
        bed.up();
    }
    make_cluster(beds);
    let dir = directory(beds, "--stripes 3 --stripe-size 64KiB");
    let (first, back) = (&beds[0], dir.join("back"));
    fs::write(&back, noise(50, 30 << 20)).unwrap();
    wait_for_close(first, &back);
    first.ok(words("migrate --wait", &back, ""));
    first.ok(words("purge --wait", &back, ""));
    first.wait("its removal", || fullest(first) < 20);
    (dir, small)
}

/// Fills them nearly up to the high watermark with files that are on tape, too.
fn fill(first: &Bed, dir: &Path) {
    (0..11).for_each(|n| fs::write(dir.join(format!("f{n:02}")), noise(n, 10 << 20)).unwrap());
    first.ok(words("migrate --wait -r", dir, ""));
}

#[test]
fn a_file_that_comes_back_to_full_targets_makes_room_for_itself() {
    if !can_mount("recalls to full targets") {
        return;
    }
    let beds: [Bed; 3] = std::array::from_fn(|_| Bed::new(""));
    let (dir, _small) = small_targets(&beds, "");
    let first = &beds[0];
    fill(first, &dir);
    first.wait("the targets' report", || (80..=90).contains(&fullest(first)));
    let back = dir.join("back");
    assert!(lies_on(first, &back).is_empty(), "it is on tape only");
    assert!(fs::read(&back).unwrap() == noise(50, 30 << 20));
    first.wait("its place", || lies_on(first, &back).len() == 3);
    let left = (0..11).filter(|n| lies_on(first, &dir.join(format!("f{n:02}"))).is_empty()).count();
    assert!((1..6).contains(&left), "{left} files made room");
    for n in 0..11 {
        assert!(fs::read(dir.join(format!("f{n:02}"))).unwrap() == noise(n, 10 << 20), "file {n}");
    }
    first.check();
}

#[test]
fn a_file_for_which_targets_have_no_room_comes_back_to_the_disk_tier() {
    if !can_mount("recalls to targets that stay full") {
        return;
    }
    let beds: [Bed; 3] = std::array::from_fn(|_| Bed::new(""));
    let (dir, _small) = small_targets(&beds, "");
    let first = &beds[0];
    fill(first, &dir);
    first.ok(words("pin -r", &dir, ""));
    first.wait("the targets' report", || (80..=90).contains(&fullest(first)));
    let back = dir.join("back");
    assert!(fs::read(&back).unwrap() == noise(50, 30 << 20));
    assert!(lies_on(first, &back).is_empty(), "nothing could leave");
    assert!(
        (0..11).all(|n| lies_on(first, &dir.join(format!("f{n:02}"))).len() == 3),
        "what is pinned stays"
    );
    first.check();
}

#[test]
fn a_recall_whose_targets_get_full_meanwhile_waits_for_room() {
    if !can_mount("targets that get full while a file comes back") {
        return;
    }
    let beds: [Bed; 3] = std::array::from_fn(|_| Bed::new(""));
    let (dir, small) = small_targets(&beds, "drive_rate = \"4 MB\"");
    let (first, back) = (&beds[0], dir.join("back"));
    let read = {
        let back = back.clone();
        std::thread::spawn(move || fs::read(back))
    };
    // So it has begun.
    first.wait("its first bytes", || small.iter().all(|small| small.used() > 2 << 20));
    let balloons: Vec<_> = small.iter().map(|small| small.fill("balloon", 1 << 20)).collect();
    first.wait("the targets' report", || fullest(first) > 95);
    assert!(!read.is_finished(), "there is no room");
    let doing = || {
        let requests = first.json(["request", "ls"]);
        let all = requests.as_array().expect("requests");
        let stage = all.iter().find(|one| one["request"]["kind"] == "stage").expect("the recall");
        stage["doing"].to_string()
    };
    first.wait("its reason", || doing().contains("waits for room on disk"));
    balloons.iter().for_each(|balloon| fs::remove_file(balloon).unwrap());
    assert!(read.join().unwrap().unwrap() == noise(50, 30 << 20));
    first.wait("its place", || lies_on(first, &back).len() == 3);
    first.check();
}
