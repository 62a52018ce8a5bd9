//! Cartridges, drives and the robot fail: another copy or drive serves, the failing part is named, nothing is lost.

use crate::support::{Bed, pattern};
use node::Size;
use types::*;
use vtl::Fault;
use wire::Call;

/// Where copy `n` of a file lies: volume and first block.
fn place(bed: &Bed, path: &str, n: usize) -> (Barcode, u64) {
    let view = bed.stat(path);
    let version = view.file.unwrap().version;
    let newest = view.versions.iter().find(|v| v.version == version).unwrap();
    let segment = &newest.copies[n].segments[0];
    (segment.volume.clone(), segment.extents[0].start_block)
}

fn unreadable(bed: &Bed, path: &str, copy: usize) -> Barcode {
    let (volume, block) = place(bed, path, copy);
    let barcode = volume.to_string();
    bed.node.virtual_library().inject(Fault::ReadError { barcode, partition: 1, block });
    volume
}

#[test]
fn a_bad_spot_on_one_copy_is_read_from_the_other() {
    let bed = Bed::new();
    let data = pattern(900_000, 1);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    let volumes: Vec<Barcode> = (0..2).map(|copy| place(&bed, "/f", copy).0).collect();
    let suspects = || -> Vec<&Barcode> {
        volumes.iter().filter(|v| bed.volume(v).state == VolumeState::Suspect).collect()
    };
    // Which copy is chosen depends on what is mounted: sooner or later it is the bad one.
    for copy in [0, 1].into_iter().cycle().take(10).take_while(|_| suspects().is_empty()) {
        bed.node.virtual_library().clear_faults();
        unreadable(&bed, "/f", copy);
        assert_eq!(bed.read(ino), data);
        bed.settle();
        bed.purge("/f");
    }
    let suspects = suspects();
    assert!(!suspects.is_empty());
    for volume in suspects {
        assert!(bed.volume(volume).reason.contains(volume.as_str()), "{}", bed.volume(volume).reason);
    }
}

#[test]
fn when_both_copies_are_bad_the_read_fails_and_both_reasons_are_named() {
    let bed = Bed::new();
    let data = pattern(100_000, 2);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    let bad: Vec<Barcode> = (0..2).map(|copy| unreadable(&bed, "/f", copy)).collect();
    assert_eq!(bed.probe(ino), Err(FsError::Io));
    let request = bed.act(Call::Stage(bed.one("/f")));
    assert_eq!(request.state, RequestState::Failed);
    let [ItemState::Failed(why)] = &bed.items(request.id)[..] else { panic!("no reason") };
    for volume in &bad {
        assert!(why.contains(volume.as_str()), "{why}");
    }
    bed.node.virtual_library().clear_faults();
    assert_eq!(bed.read(ino), data, "nothing was lost");
}

#[test]
fn another_drive_serves_when_one_dies() {
    for answers in [true, false] {
        let bed = Bed::new();
        let data = pattern(300_000, 3);
        let ino = bed.write("f", &data);
        bed.migrate_and_purge();
        bed.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
        bed.node.virtual_library().inject(Fault::DriveDead { drive: 0, answers });
        assert_eq!(bed.read(ino), data);
        bed.settle();
        bed.write("g", &data);
        let request = bed.begin(Call::Migrate(bed.one("/g"))).request;
        assert_eq!(bed.wait(request.id).state, RequestState::Done);
        let drives = bed.drives();
        let DriveStatus::Suspect(why) = &drives[0].status else { panic!("{drives:?}") };
        assert!(!why.is_empty() && !matches!(drives[1].status, DriveStatus::Suspect(_)), "{drives:?}");
        assert!(!bed.status().warnings.is_empty());
    }
}

#[test]
fn a_file_of_one_copy_is_read_in_the_other_drive() {
    let bed = Bed::with(|c| {
        c.classes[0].copies.truncate(1);
        c.tape.idle_unmount_s = 0;
    });
    let data = pattern(300_000, 3);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    bed.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
    // Dead while it is empty: the cartridge never gets stuck in it.
    bed.node.virtual_library().inject(Fault::DriveDead { drive: 0, answers: true });
    let result = bed.probe(ino);
    if result.is_err() {
        // It was caught in the dead drive: said, not waited for.
        assert_eq!(result, Err(FsError::Io));
        let volume = bed.volumes_of("/f").remove(0);
        assert!(bed.status().warnings.iter().any(|w| w.contains(volume.as_str())));
        return;
    }
    assert_eq!(bed.read(ino), data);
}

#[test]
fn no_drive_left_is_an_error_for_who_opens_a_file() {
    let bed = Bed::new();
    let ino = bed.write("f", &pattern(1000, 3));
    bed.migrate_and_purge();
    for drive in 0..2 {
        bed.node.virtual_library().inject(Fault::DriveDead { drive, answers: true });
    }
    assert_eq!(bed.probe(ino), Err(FsError::Io));
    let report = bed.check(true);
    assert!(report.findings.iter().any(|f| f.is_serious()), "{report:?}");
    bed.node.stop(true);
}

#[test]
fn a_stuck_robot_is_named_and_work_goes_on_when_it_moves_again() {
    let bed = Bed::new();
    let data = pattern(1000, 4);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    bed.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
    bed.node.virtual_library().inject(Fault::RobotStuck);
    let opened = bed.open(ino, crate::support::READ);
    let (_, got) = bed.begin_read(opened.handle, 0, 1000);
    bed.until("the robot is named", |b| b.status().warnings.iter().any(|w| w.contains("moving")));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let errors: u64 = bed.drives().iter().map(|d| d.errors).sum();
    assert!(errors < 5, "{errors} attempts within a moment");
    use types::api::FileApi;
    bed.node.virtual_library().clear_faults();
    assert_eq!(got.recv_timeout(crate::support::PATIENCE).unwrap().unwrap(), data);
    bed.node.release(opened.handle);
    bed.settle();
    bed.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
}

#[test]
fn a_robot_that_stays_stuck_does_not_keep_the_node_from_stopping() {
    let bed = Bed::new();
    bed.write("f", &pattern(1000, 4));
    let request = bed.act(Call::Migrate(bed.all()));
    assert_eq!(request.state, RequestState::Done);
    bed.node.virtual_library().inject(Fault::RobotStuck);
    let begun = std::time::Instant::now();
    bed.node.stop(true);
    assert!(begun.elapsed() < crate::support::PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn a_volume_that_ends_early_is_continued_on_the_next() {
    let bed = Bed::with(|c| c.library.cartridge_capacity = Size::mib(32));
    for barcode in bed.node.virtual_library().contents().into_iter().map(|(_, b)| b) {
        bed.node.virtual_library().inject(Fault::EarlyEnd { barcode, bytes: 6 << 20 });
    }
    let files: Vec<(Ino, Vec<u8>)> = (0..4)
        .map(|i| (bed.write(&format!("f{i}"), &pattern(2_500_000, i)), pattern(2_500_000, i)))
        .collect();
    bed.migrate_and_purge();
    bed.node.virtual_library().clear_faults();
    for (ino, data) in &files {
        assert!(bed.read(*ino) == *data);
    }
    bed.settle();
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn a_write_error_makes_the_volume_suspect_and_the_copy_goes_elsewhere() {
    let bed = Bed::new();
    bed.write("first", &pattern(1000, 1));
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let (volume, block) = place(&bed, "/first", 0);
    for block in block..block + 60 {
        let barcode = volume.to_string();
        bed.node.virtual_library().inject(Fault::WriteError { barcode, partition: 1, block });
    }
    let data = pattern(2_000_000, 9);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    assert_eq!(bed.volume(&volume).state, VolumeState::Suspect);
    assert!(!bed.volumes_of("/f").contains(&volume));
    assert!(bed.read(ino) == data);
}

#[test]
fn a_file_whose_object_is_gone_is_read_from_tape_again() {
    let bed = Bed::new();
    let data = pattern(5000, 5);
    let ino = bed.write("f", &data);
    let other = bed.write("not on tape", &data);
    assert_eq!(bed.act(Call::Migrate(bed.one("/f"))).state, RequestState::Done);
    for path in ["/f", "/not on tape"] {
        let object = bed.stat(path).file.unwrap().object.unwrap();
        let name = format!("{:016x}", object.0);
        let found = walk(&bed.node.config().disk_path()).into_iter().find(|p| p.ends_with(&name));
        std::fs::remove_file(found.unwrap()).unwrap();
    }
    assert_eq!(bed.check(false).findings.len(), 2);
    assert_eq!(bed.probe_open(other), Err(FsError::Io), "nothing else is said of a file that is lost");
    assert_eq!(bed.act(Call::Purge(bed.one("/not on tape"))).state, RequestState::Failed);
    assert_eq!(bed.read(ino), data);
    let warnings = bed.status().warnings;
    assert!(
        warnings.iter().any(|w| w.starts_with("/f (inode") && w.contains("is read from tape again")),
        "{warnings:?}"
    );
    assert!(
        warnings.iter().any(|w| w.starts_with("/not on tape") && w.contains("no copy on tape")),
        "{warnings:?}"
    );
    bed.settle();
    let findings = bed.check(false).findings;
    assert!(findings.len() == 1 && findings[0].subject.contains(&other.to_string()), "{findings:?}");
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}
