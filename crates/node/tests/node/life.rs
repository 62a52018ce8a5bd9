//! A file's life: written, copied to tape, released from disk, read back.

use crate::support::{Bed, pattern};
use types::*;
use wire::Call;

#[test]
fn files_go_to_two_volumes_leave_the_disk_and_come_back() {
    let bed = Bed::new();
    let sizes = [0, 1, 1000, 4096, 600_000, 3_000_000];
    let files: Vec<(Ino, Vec<u8>)> = sizes
        .iter()
        .enumerate()
        .map(|(i, &n)| {
            let data = pattern(n, i as u64 + 1);
            (bed.write(&format!("file{i}"), &data), data)
        })
        .collect();
    bed.migrate_and_purge();
    for i in 0..sizes.len() {
        let view = bed.stat(&format!("/file{i}"));
        assert_eq!(view.residency, Some(Residency::Offline), "{view:?}");
        let copies = &view.versions[0].copies;
        assert_eq!(copies.len(), 2);
        assert_ne!(copies[0].segments[0].volume, copies[1].segments[0].volume);
    }
    for (ino, data) in &files {
        assert!(bed.read(*ino) == *data, "inode {ino} came back changed");
    }
    bed.settle();
    let report = bed.check(true);
    assert_eq!(report.findings, [], "{report:?}");
    assert_eq!(report.tape_files, 2 * sizes.len() as u64);
}

#[test]
fn everything_is_there_after_a_restart() {
    let bed = Bed::new();
    let data = pattern(700_000, 3);
    let ino = bed.write("kept", &data);
    bed.migrate_and_purge();
    let bed = bed.restart();
    assert_eq!(bed.stat("/kept").residency, Some(Residency::Offline));
    assert!(bed.read(ino) == data);
    bed.settle();
    assert_eq!(bed.stat("/kept").residency, Some(Residency::Dual));
    assert_eq!(bed.check(true).findings, []);
}

/// Empty files take no block of a tape, but its index lists them.
#[test]
fn empty_files_that_follow_an_index_get_another() {
    let bed = Bed::new();
    bed.write("data", b"data");
    bed.act(Call::Migrate(bed.all()));
    assert_eq!(bed.check(true).findings, []); // writes the index
    bed.write("empty", b"");
    bed.act(Call::Migrate(bed.all()));
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn writing_to_a_migrated_file_makes_a_new_version() {
    let bed = Bed::new();
    let ino = bed.write("f", b"one");
    bed.act(Call::Migrate(bed.all()));
    bed.write("f", b"two, longer");
    let view = bed.stat("/f");
    assert_eq!(view.residency, Some(Residency::Resident));
    assert!(view.file.unwrap().version > Version(1));
    assert_eq!(view.versions.len(), 2);
    bed.migrate_and_purge();
    assert_eq!(bed.read(ino), b"two, longer");
}

#[test]
fn a_mount_over_the_log_of_changes_is_refused_because_the_catalogue_would_wait_for_itself() {
    let bed = Bed::with(|c| {
        c.catalog.backup_dir = Some(c.state_dir.join("mnt/backups"));
        c.catalog.log_changes = true;
    });
    let state = bed.dir.path();
    let mount = |path: &std::path::Path| {
        let path = path.display().to_string();
        bed.try_call(Call::Mount { path, nonblock: None }).unwrap_err().message
    };
    for above in [state.join("mnt"), state.join("mnt/backups"), state.to_owned()] {
        let refused = mount(&above);
        assert!(refused.contains("catalog.log_changes"), "{refused}");
    }
    // This node has no front end to mount with, which is found out later.
    let elsewhere = mount(&state.join("other"));
    assert!(!elsewhere.contains("catalog.log_changes"), "{elsewhere}");
}
