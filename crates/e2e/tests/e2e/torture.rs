//! A few crash trials of each kind; `cargo run --release -p e2e --bin torture` runs as many as wanted
//! (`docs/design/0004-crash-testing.md`). Every run takes a new seed and prints it.

use e2e::can_mount;
use e2e::torture::disk::FileSystem;
use e2e::torture::{kill, power};
use std::time::{SystemTime, UNIX_EPOCH};

fn seed() -> u64 {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64 % 1_000_000_000;
    println!("seed {seed}");
    seed
}

/// Runs trials in a directory that stays when they fail.
fn trials<T: std::fmt::Debug>(name: &str, run: impl FnOnce(&std::path::Path) -> Result<T, String>) -> T {
    let dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let tally = run(&dir).unwrap_or_else(|problem| panic!("{problem}"));
    println!("{tally:?}");
    std::fs::remove_dir_all(&dir).unwrap();
    tally
}

#[test]
fn the_node_is_killed_at_random_moments() {
    if !can_mount("kill -9 under load") {
        return;
    }
    let plan = kill::Plan { trials: 12, seed: seed(), fresh: 12, load_ms: 1500 };
    let tally = trials("kill", |dir| kill::run(dir, plan, |line| println!("{line}")));
    assert!(tally.kills >= 12 && tally.calls > 100 && tally.files > 100, "idle: {tally:?}");
}

#[test]
fn the_power_fails_at_random_moments() {
    if !can_mount("power failure under load") || !FileSystem::Ext4.is_there() {
        return;
    }
    let file_system = FileSystem::Ext4;
    let plan = power::Plan { images: 8, seed: seed(), load_ms: 4000, file_system, lies: false };
    let tally = trials("power", |dir| power::run(dir, plan, |line| println!("{line}")));
    assert!(tally.images == 8 && tally.flushes > 50 && tally.calls > 100, "idle: {tally:?}");
}

/// Proves that the trials can fail: a disk that forgets what it flushed is noticed.
#[test]
fn a_disk_that_lies_is_noticed() {
    if !can_mount("a lying disk under load") || !FileSystem::Ext4.is_there() {
        return;
    }
    let file_system = FileSystem::Ext4;
    let plan = power::Plan { images: 3, seed: seed(), load_ms: 1500, file_system, lies: true };
    let dir = tempfile::tempdir().unwrap();
    let noticed = power::run(&dir.path().join("power"), plan, |line| println!("{line}"));
    let problem = noticed.expect_err("nobody noticed");
    assert!(problem.contains("names are at no point") || problem.contains("bytes safe"), "{problem}");
}
