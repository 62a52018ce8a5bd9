//! The disk tier of a node is the one that it had before, unless an operator says otherwise.

use crate::support::{Bed, Running, pattern};
use node::{Config, Node, Source};
use std::fs;
use std::path::Path;
use types::*;
use wire::{Call, Failure, Reply};

/// Stops the node.
fn stopped(bed: Bed) -> (Config, tempfile::TempDir) {
    let config = bed.node.config().clone();
    bed.node.stop(true);
    let Bed { dir, node } = bed;
    drop(node);
    (config, dir)
}

/// What the message has to say; and nothing was made in the place of the tier.
fn refused(outcome: Result<(), Failure>, tier: &Path) {
    let refused = outcome.expect_err("it began with another disk tier");
    assert_eq!(refused.class, ErrorClass::Invalid);
    let told = &refused.message;
    assert!(told.contains(&tier.display().to_string()), "{told}");
    assert!(told.contains("mount") && told.contains("--new-disk-tier"), "{told}");
    assert_eq!(fs::read_dir(tier).unwrap().count(), 0);
}

#[test]
fn a_node_does_not_begin_without_its_disk_tier_and_loses_nothing_when_that_is_back() {
    let bed = Bed::new();
    let ino = bed.write("on disk only", &pattern(50_000, 1));
    let backup = bed.dir.path().join("backups").display().to_string();
    let Reply::Backup(made) = bed.call(Call::Backup { dir: Some(backup) }) else { panic!("no backup") };
    let (config, dir) = stopped(bed);
    let tier = config.disk_path();
    let away = dir.path().join("not mounted");
    fs::rename(&tier, &away).unwrap();
    fs::create_dir(&tier).unwrap();
    refused(Node::start(config.clone()).map(drop), &tier);
    let source = Source::choose(Path::new(&made.path), None).unwrap();
    refused(node::restore_catalog(&config, &source).map(drop), &tier);
    fs::remove_dir(&tier).unwrap();
    fs::rename(&away, &tier).unwrap();
    let bed = Bed { node: Running::start(config), dir };
    assert!(bed.read(ino) == pattern(50_000, 1));
}

#[test]
fn a_tier_that_is_lost_is_replaced_by_order_and_files_come_back_from_tape() {
    let bed = Bed::new();
    let ino = bed.write("on tape", &pattern(60_000, 2));
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let (mut config, dir) = stopped(bed);
    let tier = config.disk_path();
    fs::remove_dir_all(&tier).unwrap();
    fs::create_dir(&tier).unwrap();
    refused(Node::start(config.clone()).map(drop), &tier);
    config.new_disk_tier = true;
    let bed = Bed { node: Running::start(config), dir };
    assert!(bed.read(ino) == pattern(60_000, 2));
    // The new one is the node's from now on.
    let (mut config, dir) = stopped(bed);
    config.new_disk_tier = false;
    let bed = Bed { node: Running::start(config), dir };
    assert!(bed.read(ino) == pattern(60_000, 2));
}
