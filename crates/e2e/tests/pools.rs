//! Pools of targets: files whose layout names one lie there and nowhere else, whatever becomes of its targets.

use e2e::cluster::{
    cluster, directory, join, lies_on, node, objects, serves, targets, up, wait_for_close, wait_for_mending,
    words,
};
use e2e::{Bed, can_mount, noise};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of each file.
const LENGTH: usize = 300_000;

/// Four nodes with a target each, and a directory whose files lie in a pool of the first three.
fn with_pool(layout: &str) -> ([Bed; 3], Bed, PathBuf) {
    let beds = cluster();
    let dir = directory(&beds, "--stripes 1");
    let fourth = node();
    join(&beds[0], &fourth, "fourth");
    beds[0].wait("four targets", || up(&beds[0]) == [1, 2, 3, 4]);
    let own = number(&beds[0], &fourth);
    let fast: Vec<String> = (1..=4).filter(|id| *id != own).map(|id: u64| id.to_string()).collect();
    beds[0].ok(["target", "pool", "fast", "--add"].into_iter().chain(fast.iter().map(String::as_str)));
    beds[0].ok(words("layout set", &dir, &format!("--pool fast {layout}")));
    (beds, fourth, dir)
}

/// The target of a node.
fn number(first: &Bed, bed: &Bed) -> u64 {
    (1..=4).find(|id| serves(first, bed, *id)).expect("its target")
}

fn make(dir: &Path, files: std::ops::Range<u64>) {
    files.for_each(|n| fs::write(dir.join(format!("f{n}")), noise(n, LENGTH)).unwrap());
}

/// All files are as they were written, and lie on some of these targets only.
fn all_on(first: &Bed, dir: &Path, files: std::ops::Range<u64>, allowed: &[u64]) {
    for n in files {
        let path = dir.join(format!("f{n}"));
        let on = lies_on(first, &path);
        assert!(!on.is_empty() && on.iter().all(|id| allowed.contains(id)), "file {n} lies on {on:?}");
        assert!(fs::read(&path).unwrap() == noise(n, LENGTH), "file {n}");
    }
}

/// What a command that fails says.
fn refused(first: &Bed, command: &[&str]) -> String {
    let said = first.run(command.iter().copied());
    assert!(!said.status.success(), "{command:?}");
    let text = [said.stdout, said.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn files_of_a_pool_lie_in_it_and_a_drain_that_finds_no_room_there_moves_nothing_elsewhere() {
    if !can_mount("pools of targets") {
        return;
    }
    let (beds, fourth, dir) = with_pool("--stripes 1 --stripe-size 64KiB --then 128KiB:2");
    let first = &beds[0];
    let fast = beds.each_ref().map(|bed| number(first, bed));
    let shown = dir.to_str().unwrap();
    // What names a pool without targets, or too small a one, changes nothing.
    let why = refused(first, &["layout", "set", shown, "--pool", "slow"]);
    assert!(why.contains("no target is in target pool slow"), "{why}");
    let why = refused(first, &["layout", "set", shown, "--stripes", "4", "--pool", "fast"]);
    assert!(why.contains("target pool fast has 3"), "{why}");
    let rule = first.json(words("layout get", &dir, ""))["rule"].clone();
    assert_eq!((&rule["pool"], &rule["then"][0]["stripes"]), (&"fast".into(), &2.into()));
    assert!(first.ok(words("layout get", &dir, "")).contains("of pool fast"));
    let in_fast = |view: &&serde_json::Value| view["pools"] == serde_json::json!(["fast"]);
    assert_eq!(targets(first).iter().filter(in_fast).count(), 3);
    // So many at once that objects are made ahead, too.
    make(&dir, 0..40);
    all_on(first, &dir, 0..40, &fast);
    assert_eq!(objects(&fourth), 0);
    let left = |gone: &[u64]| fast.into_iter().filter(|id| !gone.contains(id)).collect::<Vec<_>>();
    first.ok(["target", "drain", &fast[2].to_string(), "--wait"]);
    all_on(first, &dir, 0..40, &left(&[fast[2]]));
    // The rest is on both others: neither can stand in for the other, and there is room outside.
    let why = refused(first, &["target", "drain", &fast[1].to_string(), "--wait"]);
    assert!(why.contains("no other target of target pool fast has room"), "{why}");
    all_on(first, &dir, 0..40, &left(&[fast[2]]));
    // Without any target that takes files none is made, and everybody is told why.
    first.run(["target", "drain", &fast[0].to_string(), "--wait"]);
    let e = fs::write(dir.join("new"), b"new").unwrap_err();
    assert_eq!(e.raw_os_error(), Some(28), "no space: {e}");
    for command in [&["target", "ls"][..], &["cluster", "status"], &["status"]] {
        let told = first.ok(command.iter().copied());
        assert!(told.contains("target pool fast has no target that takes files"), "{told}");
    }
    assert!(fs::write(first.mount().join("elsewhere"), b"new").is_ok());
    assert_eq!(objects(&fourth), 0, "nothing came to lie outside");
    // All of it is so after a crash, and over when they take files again.
    first.kill();
    first.up_mounted();
    first.wait("four targets", || up(first).len() == 1);
    assert_eq!(fs::write(dir.join("new"), b"new").unwrap_err().raw_os_error(), Some(28));
    fast.iter().for_each(|id| drop(first.ok(["target", "return", &id.to_string()])));
    first.wait("all take files", || up(first) == [1, 2, 3, 4]);
    assert!(!first.ok(["target", "ls"]).contains("target pool"));
    make(&dir, 40..45);
    all_on(first, &dir, 0..45, &fast);
    first.check();
}

#[test]
fn what_a_lost_target_of_a_pool_had_is_made_anew_in_it_and_files_come_back_from_tape_to_it() {
    if !can_mount("the loss of a target of a pool") {
        return;
    }
    let (beds, fourth, dir) = with_pool("--copies 2");
    let (first, third) = (&beds[0], &beds[2]);
    let (fast, lost) = (beds.each_ref().map(|bed| number(first, bed)), number(first, third));
    make(&dir, 0..12);
    all_on(first, &dir, 0..12, &fast);
    third.kill();
    first.ok(["target", "replace", &lost.to_string(), "--wait"]);
    let left: Vec<u64> = fast.into_iter().filter(|id| *id != lost).collect();
    for n in 0..12 {
        wait_for_mending(first, &dir.join(format!("f{n}")));
    }
    all_on(first, &dir, 0..12, &left);
    (0..12).for_each(|n| wait_for_close(first, &dir.join(format!("f{n}"))));
    first.ok(words("migrate --wait -r", &dir, ""));
    first.ok(words("purge --wait -r", &dir, ""));
    (0..12).for_each(|n| drop(fs::read(dir.join(format!("f{n}"))).unwrap()));
    let back = |n: &u64| !lies_on(first, &dir.join(format!("f{n}"))).is_empty();
    first.wait("they are back", || (0..12).all(|n| back(&n)));
    all_on(first, &dir, 0..12, &left);
    assert_eq!(objects(&fourth), 0, "nothing came to lie outside");
    // A file that is elsewhere gets the pool by another layout, and leaves it by one without.
    let file = first.mount().join("file");
    fs::write(&file, noise(50, LENGTH)).unwrap();
    for (layout, within) in [("--pool fast", true), ("--stripes 3", false)] {
        first.ok(words(&format!("protect --copies 1 {layout} --wait"), &file, ""));
        let on = lies_on(first, &file);
        assert_eq!(on.iter().all(|id| left.contains(id)), within, "{on:?}");
        assert!(fs::read(&file).unwrap() == noise(50, LENGTH));
    }
    first.check();
}
