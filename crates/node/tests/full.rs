//! The file system that holds metadata engine and disk tier is full. Needs root to mount a small one; without it the tests
//! say so and pass.

mod support;

use rustix::fs::FallocateFlags;
use std::path::Path;
use std::process::Command;
use support::{Bed, cx, pattern};
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::Call;

const MIB: u64 = 1 << 20;

/// A file system of its own; unmounted when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=64m", "none"]).arg(dir.path()).output();
        let mounted = mounted.is_ok_and(|m| m.status.success());
        if !mounted {
            eprintln!("skipped: needs root and mount");
        }
        mounted.then(|| Self(dir))
    }

    fn free(&self) -> u64 {
        let s = rustix::fs::statvfs(self.0.path()).unwrap();
        s.f_bavail * s.f_frsize
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(self.0.path()).status().is_ok_and(|s| s.success());
        assert!(done || std::thread::panicking(), "{} stays mounted", self.0.path().display());
    }
}

/// Takes all the space that is left, at once.
fn fill(small: &Small, name: &Path) {
    let filler = std::fs::File::create(name).unwrap();
    rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, small.free() - 4096).unwrap();
}

/// While the catalogue takes no changes no tape is written in vain; once it does, everything is.
#[test]
fn nothing_is_written_to_tape_that_cannot_be_recorded() {
    let Some(small) = Small::mount() else { return };
    let state = small.0.path().join("state");
    let bed = Bed::with(|c| {
        (c.library.path, c.disk.path) = (Some(c.state_dir.join("library")), Some(c.state_dir.join("disk")));
        c.state_dir = state;
    });
    bed.write("first", b"labels both volumes");
    bed.migrate_and_purge();
    bed.until_dismounted();
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    bed.write("f", &pattern(3 << 20, 1));
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request.id;
    bed.node.sync_names().unwrap();
    let filler = small.0.path().join("filler");
    fill(&small, &filler);
    let full = (0..1_000_000)
        .map(|n| bed.node.mkdir(&cx(), Ino::ROOT, format!("{n:0200}").as_bytes(), 0o755))
        .find_map(Result::err);
    assert_eq!(full, Some(FsError::NoSpace));
    let warned = |b: &Bed| {
        b.status().warnings.iter().any(|w| w.contains("recording copies") && w.contains("has no space"))
    };
    bed.node.virtual_library().clear_faults();
    bed.until("it is said", warned);
    let mounts = |b: &Bed| b.drives().iter().map(|d| d.mounts).sum::<u64>();
    let so_far = mounts(&bed);
    bed.until("it is tried again", |b| mounts(b) > so_far);
    let written: u64 = bed.drives().iter().map(|d| d.bytes).sum(); // by the last job of each
    assert_eq!(written, 0, "tape was written in vain");
    std::fs::remove_file(filler).unwrap();
    assert_eq!(bed.wait(request).state, RequestState::Done);
    bed.node.stop(true);
}

/// Somebody else takes all the space: files leave the disk by themselves, and work goes on.
#[test]
fn a_node_recovers_by_purge_when_its_file_system_is_full() {
    let Some(small) = Small::mount() else { return };
    let state = small.0.path().join("state");
    let bed = Bed::with(|c| {
        c.library.path = Some(c.state_dir.join("library"));
        c.state_dir = state;
    });
    let files: Vec<(Ino, Vec<u8>)> =
        (0..8).map(|n| (bed.write(&format!("f{n}"), &pattern(2 << 20, n)), pattern(2 << 20, n))).collect();
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    fill(&small, &small.0.path().join("filler"));
    // Changes of names go on or are refused; the engine needs space for them, too.
    for n in 0..200 {
        let made = bed.node.mkdir(&cx(), Ino::ROOT, format!("d{n}").as_bytes(), 0o755);
        assert!(matches!(made, Ok(_) | Err(FsError::NoSpace)), "{made:?}");
    }
    bed.until("there is room again", |_| small.free() > 4 * MIB);
    bed.node.sync_names().unwrap();
    // Through the node: as long as space is short a new file is not given out directly.
    let flags = OpenFlags { write: true, read: true, ..OpenFlags::default() };
    let opened = bed.node.create(&cx(), Ino::ROOT, b"late", 0o644, flags).unwrap();
    assert_eq!(bed.node.write(opened.handle, 0, &pattern(100_000, 99)), Ok(100_000));
    bed.node.release(opened.handle);
    let late = opened.attr.ino;
    assert!(bed.read(late) == pattern(100_000, 99));
    std::fs::remove_file(small.0.path().join("filler")).unwrap();
    for (ino, data) in &files {
        assert!(bed.read(*ino) == *data);
    }
    bed.settle();
    assert_eq!(bed.check(false).findings.iter().filter(|f| f.is_serious()).count(), 0);
    bed.node.stop(true);
}
