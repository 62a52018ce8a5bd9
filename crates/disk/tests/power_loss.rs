//! What a real file system keeps: a copy of the block device below it is what a power failure would leave. Also a full
//! file system. Both need root to mount; without it they say so and pass.

use disk::{DiskError, DiskTarget, Found};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use tempfile::{TempDir, tempdir};
use types::{ErrorClass, ObjectId};

/// One test at a time: a program being started by another test would hold our descriptors for a moment, and with them
/// the mount.
static ALONE: Mutex<()> = Mutex::new(());

/// Something mounted; unmounted at the end.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        assert!(run("umount", &[&self.0]) || std::thread::panicking(), "{} stays mounted", self.0.display());
    }
}

fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> bool {
    let mut command = Command::new(program);
    command.args(args.iter().map(|arg| arg.as_ref()));
    command.output().is_ok_and(|output| output.status.success())
}

fn mount(args: &[&str], source: &Path, at: &Path) -> Option<Mounted> {
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = args.iter().map(|arg| arg as _).collect();
    all.extend([&source as &dyn AsRef<std::ffi::OsStr>, &at]);
    run("mount", &all).then(|| Mounted(at.to_path_buf()))
}

/// A small ext4 in a file, mounted, with a target in it.
struct Machine {
    // In the order of dropping: what is open, the mount, the files below it.
    target: DiskTarget,
    _mounted: Mounted,
    dir: TempDir,
}

fn machine() -> Option<Machine> {
    let dir = tempdir().unwrap();
    let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    std::fs::create_dir(&at).unwrap();
    if !run("mkfs.ext4", &[&"-q", &"-F", &image]) {
        return None;
    }
    // Commits of its own only after ten minutes: nothing becomes durable unless somebody asks.
    let mounted = mount(&["-o", "loop,commit=600"], &image, &at)?;
    let target = DiskTarget::open(&at).unwrap();
    Some(Machine { target, _mounted: mounted, dir })
}

/// The power fails now: the target as it comes up again.
fn after_power_loss(machine: &Machine, look: impl FnOnce(&DiskTarget)) {
    let (image, at) = (machine.dir.path().join("after"), machine.dir.path().join("mnt2"));
    std::fs::copy(machine.dir.path().join("image"), &image).unwrap();
    std::fs::create_dir(&at).unwrap();
    let mounted = mount(&["-o", "loop"], &image, &at).expect("the first mount worked too");
    let target = DiskTarget::open(&at).unwrap();
    assert_eq!(target.uuid(), machine.target.uuid());
    look(&target);
    drop(target);
    drop(mounted);
}

macro_rules! or_skip {
    ($machine:expr) => {
        match $machine {
            Some(machine) => machine,
            None => return eprintln!("skipped: needs root, mount and (for ext4) mkfs.ext4 and loop devices"),
        }
    };
}

#[test]
fn precreated_and_synced_objects_survive_others_need_not() {
    let _alone = ALONE.lock();
    let machine = or_skip!(machine());
    let target = &machine.target;
    target.precreate(0xf0..0x110).unwrap();
    let synced = target.open_object(ObjectId(0xf0), true).unwrap();
    target.write_at(&synced, &[7; 10_000], 0).unwrap();
    target.sync(&synced).unwrap();
    let created = target.create(ObjectId(0x5000)).unwrap();
    target.write_at(&created, b"recalled", 0).unwrap();
    target.sync_all(&created).unwrap();
    let stamp = target.stamp(&created).unwrap();
    let loose = target.open_object(ObjectId(0xf1), true).unwrap();
    target.write_at(&loose, b"never synced", 0).unwrap();

    after_power_loss(&machine, |target| {
        for id in 0xf0..0x110 {
            assert!(target.exists(ObjectId(id)).unwrap(), "object {id} is gone");
        }
        let mut buf = vec![0; 20_000];
        let fd = target.open_object(ObjectId(0xf0), false).unwrap();
        assert_eq!(target.read_at(&fd, &mut buf, 0).unwrap(), 10_000);
        assert!(buf[..10_000].iter().all(|b| *b == 7));
        let fd = target.open_object(ObjectId(0x5000), false).unwrap();
        assert_eq!(target.read_at(&fd, &mut buf, 0).unwrap(), 8);
        assert!(target.stamp(&fd).unwrap().same_content(&stamp), "sync_all keeps the stamp");
        // Proves that the test can fail: without a sync the data is not there.
        let fd = target.open_object(ObjectId(0xf1), false).unwrap();
        assert_eq!(target.read_at(&fd, &mut buf, 0).unwrap(), 0);
    });
}

#[test]
fn objects_whose_removal_was_synced_do_not_come_back() {
    let _alone = ALONE.lock();
    let machine = or_skip!(machine());
    let target = &machine.target;
    target.precreate(0xf0..0x110).unwrap();
    let (synced, loose) = ([ObjectId(0xf0), ObjectId(0x10f)], ObjectId(0xf1));
    synced.iter().for_each(|id| _ = target.remove(*id).unwrap());
    target.sync_entries(&synced).unwrap();
    target.remove(loose).unwrap();
    after_power_loss(&machine, |target| {
        synced.iter().for_each(|id| assert!(!target.exists(*id).unwrap(), "{id} is back"));
        // Proves that the test can fail: without the sync it is back.
        assert!(target.exists(loose).unwrap());
    });
}

#[test]
fn a_full_file_system_is_reported_before_and_while_writing() {
    let _alone = ALONE.lock();
    let dir = tempdir().unwrap();
    let _mounted =
        or_skip!(mount(&["-t", "tmpfs", "-o", "size=2m,nr_inodes=400"], Path::new("none"), dir.path()));
    let target = DiskTarget::open(dir.path()).unwrap();
    let fd = target.create(ObjectId(1)).unwrap();
    let no_space = |error: DiskError| {
        assert_eq!(error.class(), ErrorClass::NoSpace, "{error}");
        let text = error.to_string();
        assert!(text.contains(&dir.path().display().to_string()) && text.contains("thermo purge"), "{text}");
    };
    no_space(target.preallocate(&fd, 0, 4 << 20).unwrap_err());
    assert!(target.preallocate(&fd, 0, 1 << 20).unwrap());
    no_space(target.write_at(&fd, &vec![1; 4 << 20], 0).unwrap_err());
    // No inodes left: the batch fails as a whole and gives back what it took.
    no_space(target.precreate(1000..2000).unwrap_err());
    let mut left = Vec::new();
    let mut visit = |found| {
        left.push(found);
        ControlFlow::Continue(())
    };
    target.list(&mut visit).unwrap();
    assert_eq!(left, [Found::Object(ObjectId(1))]);
    target.remove(ObjectId(1)).unwrap();
    drop(fd);
    target.precreate(3000..3010).unwrap();
}
