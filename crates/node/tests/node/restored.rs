//! A catalogue that comes from a backup, and a world that went on without it.

use crate::support::{Bed, Running, pattern};
use node::{Config, Source};
use std::path::{Path, PathBuf};
use types::*;
use wire::{Call, Reply, VolumeChoice};

fn backup(bed: &Bed) -> PathBuf {
    let dir = bed.dir.path().join("backups").display().to_string();
    match bed.call(Call::Backup { dir: Some(dir) }) {
        Reply::Backup(made) => made.path.into(),
        other => panic!("{other:?}"),
    }
}

/// Stops the node, puts the backup in the place of its catalogue, starts it and has the cartridges looked at.
fn restored(bed: Bed, backup: &Path) -> (Bed, String) {
    let config: Config = bed.node.config().clone();
    bed.node.stop(true);
    let Bed { dir, node } = bed;
    drop(node);
    let source = Source::choose(backup, None).unwrap();
    node::restore_catalog(&config, &source).unwrap();
    let bed = Bed { node: Running::start(config), dir };
    let request = bed.act(Call::Rebuild);
    let report = bed.dir.path().join(format!("rebuild-{}.txt", request.id));
    let report = std::fs::read_to_string(report).unwrap_or_default();
    assert_eq!(request.state, RequestState::Done, "{}\n{report}", request.message);
    (bed, report)
}

/// Where an object lies on the disk tier.
fn relative(object: ObjectId) -> String {
    format!("objects/{:02x}/{:016x}", (object.0 >> 8) as u8, object.0)
}

/// Nothing is wrong but that the restored catalogue does not know all disk objects.
fn sound(bed: &Bed) {
    bed.settle();
    let wrong: Vec<Finding> = bed.check(true).findings.into_iter().filter(|f| f.is_serious()).collect();
    assert_eq!(wrong, []);
}

#[test]
fn what_was_overwritten_copied_and_purged_after_a_backup_is_what_is_read() {
    let bed = Bed::new();
    let ino = bed.write("on tape", &pattern(100_000, 1));
    let act = bed.act(Call::Migrate(bed.all()));
    assert_eq!(act.state, RequestState::Done);
    let only = bed.write("on disk only", &pattern(50_000, 2));
    let backup = backup(&bed);
    bed.write("on tape", &pattern(70_000, 3));
    bed.write("on disk only", &pattern(60_000, 4));
    bed.migrate_and_purge();
    let (bed, report) = restored(bed, &backup);
    assert!(bed.read(ino) == pattern(70_000, 3), "{report}");
    assert!(bed.read(only) == pattern(60_000, 4), "{report}");
    sound(&bed);
}

#[test]
fn what_was_removed_after_a_backup_is_on_tape_again_and_nothing_is_amiss() {
    let bed = Bed::new();
    let data = pattern(100_000, 1);
    let ino = bed.write("removed", &data);
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let object = bed.stat("/removed").file.unwrap().object.unwrap();
    let object = relative(object);
    let backup = backup(&bed);
    types::api::FileApi::unlink(&**bed.node, &crate::support::cx(), Ino::ROOT, b"removed").unwrap();
    bed.until("its object is gone", |b| !b.node.config().disk_path().join(&object).exists());
    let (bed, report) = restored(bed, &backup);
    sound(&bed);
    assert_eq!(bed.stat("/removed").residency, Some(Residency::Offline), "{report}");
    assert_eq!(bed.act(Call::Stage(bed.one("/removed"))).files_done, 1);
    assert!(bed.read(ino) == data, "{report}");
}

#[test]
fn what_was_moved_to_other_volumes_after_a_backup_is_found_there_and_so_is_what_took_its_place() {
    let bed = Bed::new();
    let moved = bed.write("moved", &pattern(100_000, 1));
    bed.migrate_and_purge();
    let volumes = bed.volumes_of("/moved");
    let backup = backup(&bed);
    for volume in &volumes {
        let choice = VolumeChoice::These(vec![volume.clone()]);
        let emptied = bed.act(Call::Repack { volumes: choice, dead_percent: None, generation: None });
        assert_eq!(emptied.state, RequestState::Done, "{emptied:?}");
        bed.until("it left the disk again", |b| b.stat("/moved").residency == Some(Residency::Offline));
    }
    // The volumes that were emptied take what comes next.
    for volume in bed.volumes().iter().filter(|v| v.state == VolumeState::Filling) {
        let state = VolumeState::ReadOnly;
        bed.call(Call::SetVolume { volumes: vec![volume.barcode.clone()], state, reason: String::new() });
    }
    let after = bed.write("after", &pattern(80_000, 2));
    bed.migrate_and_purge();
    let now = [bed.volumes_of("/after"), bed.volumes_of("/moved")].concat();
    assert!(volumes.iter().all(|volume| now.contains(volume)), "emptied volumes are used again: {now:?}");
    let places = bed.volumes_of("/moved");
    let (bed, report) = restored(bed, &backup);
    assert!(bed.read(moved) == pattern(100_000, 1), "{report}");
    assert!(bed.read(after) == pattern(80_000, 2), "{report}");
    assert_eq!(bed.volumes_of("/moved"), places, "{report}");
    sound(&bed);
}

#[test]
fn an_object_that_cannot_be_opened_ends_the_restoring_before_anything_is_changed() {
    let bed = Bed::new();
    bed.write("file", &pattern(100_000, 1));
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let object = bed.stat("/file").file.unwrap().object.unwrap();
    let backup = backup(&bed);
    let config: Config = bed.node.config().clone();
    bed.node.stop(true);
    let Bed { dir: _dir, node } = bed;
    drop(node);
    // It is there, perhaps newer than any copy, and the system will not open it just now.
    let path = config.disk_path().join(relative(object));
    std::fs::rename(&path, path.with_extension("away")).unwrap();
    std::fs::create_dir(&path).unwrap();
    let source = Source::choose(&backup, None).unwrap();
    let Err(refused) = node::restore_catalog(&config, &source) else {
        panic!("nothing is known of the object")
    };
    assert!(refused.message.contains(&format!("{:x}", object.0)), "{}", refused.message);
    let names = std::fs::read_dir(&config.state_dir).unwrap().map(|e| e.unwrap().file_name());
    let replaced: Vec<_> = names.filter(|n| n.to_string_lossy().contains("replaced")).collect();
    assert!(replaced.is_empty(), "{replaced:?}");
}

#[test]
fn a_backup_takes_nothing_from_the_disk_tier_of_a_catalogue_that_was_begun_anew_meanwhile() {
    let bed = Bed::new();
    let data = pattern(100_000, 1);
    let ino = bed.write("kept", &data);
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let backup = backup(&bed);
    let config: Config = bed.node.config().clone();
    bed.node.stop(true);
    let Bed { dir, node } = bed;
    drop(node);
    // Everything but cartridges and backups is lost; somebody starts without the backup, and finds it later.
    std::fs::remove_file(config.state_dir.join("format")).unwrap();
    std::fs::remove_dir_all(config.state_dir.join("catalog")).unwrap();
    std::fs::remove_dir_all(config.disk_path()).unwrap();
    let bed = Bed { node: Running::start(config), dir };
    bed.write("another", &pattern(50_000, 2));
    let (bed, report) = restored(bed, &backup);
    assert!(bed.read(ino) == data, "{report}");
    sound(&bed);
}

#[test]
fn empty_objects_that_a_catalogue_does_not_know_are_one_finding() {
    let bed = Bed::new();
    bed.write("f", b"data");
    let objects = bed.dir.path().join("disk/objects");
    let made = std::fs::read_dir(&objects).unwrap().next().unwrap().unwrap().path();
    let last = made.file_name().unwrap().to_str().unwrap().to_owned();
    for (n, data) in [b"".as_slice(), b"", b"", b"left"].iter().enumerate() {
        std::fs::write(made.join(format!("0fff00000000{last}{n:02x}")), data).unwrap();
    }
    let mut findings = bed.check(false).findings;
    findings.sort_by(|a, b| a.problem.cmp(&b.problem));
    let told: Vec<_> = findings.iter().map(|f| (f.grade, f.problem.as_str())).collect();
    let left = Grade::Leftover;
    assert_eq!(
        told,
        [(left, "belongs to no file"), (left, "is empty and belongs to no file")],
        "{findings:#?}"
    );
    assert!(findings[1].subject.ends_with(" and 2 more"), "{findings:#?}");
}
