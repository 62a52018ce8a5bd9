//! Objects: making, opening, removing, listing, refusing.

use disk::{DiskError, DiskTarget, Found};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use tempfile::{TempDir, tempdir};
use types::{ErrorClass, ObjectId};

fn target() -> (TempDir, DiskTarget) {
    let dir = tempdir().unwrap();
    let target = DiskTarget::open(dir.path()).unwrap();
    (dir, target)
}

fn listed(target: &DiskTarget) -> (Vec<u64>, Vec<PathBuf>) {
    let (mut objects, mut strays) = (Vec::new(), Vec::new());
    let mut visit = |found| {
        match found {
            Found::Object(id) => objects.push(id.0),
            Found::Stray(path) => strays.push(path),
        }
        ControlFlow::Continue(())
    };
    target.list(&mut visit).unwrap();
    objects.sort_unstable();
    (objects, strays)
}

#[test]
fn objects_lie_where_the_contract_says() {
    let (dir, target) = target();
    target.precreate(0x1234..0x1236).unwrap();
    assert!(dir.path().join("objects/12/0000000000001234").is_file());
    assert_eq!(target.path(ObjectId(0x1234)), dir.path().join("objects/12/0000000000001234"));
    target.precreate(u64::MAX - 1..u64::MAX).unwrap();
    assert!(dir.path().join("objects/ff/fffffffffffffffe").is_file());
}

#[test]
fn what_is_made_is_as_it_was_said_to_be() {
    let (_dir, target) = target();
    let made = target.precreate(0xfe..0x102).unwrap();
    assert_eq!(made.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [0xfe, 0xff, 0x100, 0x101]);
    for (id, stamp) in made {
        let fd = target.open_object(id, true).unwrap();
        assert_eq!(target.stamp(&fd).unwrap(), stamp);
        target.write_at(&fd, b"changed", 0).unwrap();
        assert_ne!(target.stamp(&fd).unwrap(), stamp);
    }
}

#[test]
fn everything_made_is_listed_and_nothing_else() {
    let (dir, target) = target();
    target.precreate(0xfe..0x302).unwrap();
    drop(target.create(ObjectId(7)).unwrap());
    assert_eq!(target.remove(ObjectId(0x200)).unwrap(), 0);
    let strays = ["objects/00/0000000000000102", "objects/00/readme", "objects/00/00000000000000FF"];
    strays.iter().for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
    let (objects, mut found) = listed(&target);
    let expected: Vec<u64> = [7].into_iter().chain((0xfe..0x302).filter(|id| *id != 0x200)).collect();
    assert_eq!(objects, expected);
    found.sort();
    let mut strays: Vec<_> = strays.iter().map(|name| dir.path().join(name)).collect();
    strays.sort();
    assert_eq!(found, strays);
}

#[test]
fn a_listing_ends_when_told() {
    let (_dir, target) = target();
    target.precreate(0..1000).unwrap();
    let mut seen = 0;
    let mut visit = |_| {
        seen += 1;
        if seen == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    target.list(&mut visit).unwrap();
    assert_eq!(seen, 5);
}

#[test]
fn an_existing_object_is_never_touched() {
    let (_dir, target) = target();
    let fd = target.create(ObjectId(105)).unwrap();
    target.write_at(&fd, b"only copy", 0).unwrap();
    let error = target.precreate(100..110).unwrap_err();
    assert!(matches!(&error, DiskError::Exists { id: ObjectId(105), .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Exists);
    assert!(matches!(target.create(ObjectId(105)), Err(DiskError::Exists { .. })));
    let mut buf = [0; 16];
    let fd = target.open_object(ObjectId(105), false).unwrap();
    assert_eq!(target.read_at(&fd, &mut buf, 0).unwrap(), 9);
    assert_eq!(&buf[..9], b"only copy");
    // The batch left nothing behind.
    assert_eq!(listed(&target).0, [105]);
}

#[test]
fn what_is_missing_is_named() {
    let (_dir, target) = target();
    let error = target.open_object(ObjectId(9), true).unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound);
    assert!(error.to_string().contains("objects/00/0000000000000009"), "{error}");
    assert!(matches!(target.remove(ObjectId(9)), Err(DiskError::Missing { .. })));
    assert!(!target.exists(ObjectId(9)).unwrap());
    target.precreate(9..10).unwrap();
    assert!(target.exists(ObjectId(9)).unwrap());
}

#[test]
fn descriptors_do_not_leak_into_programs_and_obey_their_mode() {
    let (_dir, target) = target();
    let write = target.create(ObjectId(1)).unwrap();
    let read = target.open_object(ObjectId(1), false).unwrap();
    for fd in [&write, &read] {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        assert_ne!(u32::from_str_radix(flags, 8).unwrap() & 0o2000000, 0, "no O_CLOEXEC: {flags}");
    }
    let error = target.write_at(&read, b"x", 0).unwrap_err();
    assert!(error.to_string().contains("0000000000000001"), "names the object: {error}");
}

#[test]
fn removal_says_what_it_frees() {
    let (_dir, target) = target();
    let fd = target.create(ObjectId(1)).unwrap();
    target.write_at(&fd, &vec![1; 1 << 20], 0).unwrap();
    target.sync(&fd).unwrap();
    let stamp = target.stamp(&fd).unwrap();
    assert!(stamp.allocated >= 1 << 20);
    assert_eq!(target.remove(ObjectId(1)).unwrap(), stamp.allocated);
}

#[test]
fn one_process_at_a_time() {
    let (dir, target) = target();
    let error = DiskTarget::open(dir.path()).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Busy);
    assert!(error.to_string().contains("in use by another process"), "{error}");
    let uuid = target.uuid().to_owned();
    drop(target);
    let again = DiskTarget::open(dir.path()).unwrap();
    assert_eq!((again.uuid(), uuid.len()), (uuid.as_str(), 36));
}

#[test]
fn foreign_newer_and_damaged_targets_are_refused() {
    let cases = [
        ("notes.txt", "hello", "holds \"notes.txt\""),
        ("target", "shopping list\n", "not a marker of ours"),
        ("target", "thermocline disk target\nformat 2\nuuid x\n", "format is 2"),
        ("target", "thermocline disk target\nformat\n", "no known format"),
        ("target", "thermocline disk target\nformat 1\n", "no uuid"),
        ("target", "", "not a marker of ours"),
    ];
    for (name, content, says) in cases {
        let dir = tempdir().unwrap();
        std::fs::write(dir.path().join(name), content).unwrap();
        let error = DiskTarget::open(dir.path()).unwrap_err();
        assert!(matches!(error, DiskError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(std::fs::read_to_string(dir.path().join(name)).unwrap(), content, "left as it was");
        assert!(!dir.path().join("objects").exists());
    }
}

#[test]
fn an_interrupted_first_start_is_finished_by_the_next() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("target.new"), "thermo").unwrap();
    std::fs::create_dir(dir.path().join("lost+found")).unwrap();
    drop(DiskTarget::open(dir.path()).unwrap());
    std::fs::remove_dir(dir.path().join("objects/7f")).unwrap();
    let target = DiskTarget::open(dir.path()).unwrap();
    target.precreate(0x7f00..0x7f01).unwrap();
    assert!(!dir.path().join("target.new").exists());
}
