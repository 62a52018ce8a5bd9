//! Resident files are the kernel's business.

use crate::{Fixture, child, eventually, fixture, fixture_with};
use fuse::MountOptions;
use rustix::fs as rfs;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

fn entered(f: &Fixture) -> (u64, u64) {
    (f.api.count.reads.load(Relaxed), f.api.count.writes.load(Relaxed))
}

#[test]
fn data_of_resident_files_never_enters_the_daemon() {
    let Some(f) = fixture() else { return };
    if !f.mount.passthrough() {
        println!("SKIPPED: this kernel has no FUSE passthrough");
        return;
    }
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(f.path("big"), &data).unwrap();
    assert_eq!(fs::read(f.path("big")).unwrap(), data);
    assert_eq!(fs::read(f.real("big")).unwrap(), data);
    assert_eq!(entered(&f), (0, 0));
    assert_eq!(f.api.count.flushes.load(Relaxed), 0, "no message at close");
}

#[test]
fn a_writer_does_not_ask_for_the_capability_again_and_again() {
    let Some(f) = fixture() else { return };
    let mut file = File::create(f.path("log")).unwrap();
    file.write_all(b"line").unwrap();
    let before = f.api.count.getxattrs.load(Relaxed);
    for _ in 0..100 {
        file.write_all(b"line").unwrap();
    }
    assert_eq!(f.api.count.getxattrs.load(Relaxed), before);
}

#[test]
fn many_opens_of_one_file_share_its_backing() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("shared"), vec![b'.'; 4096]).unwrap();
    std::thread::scope(|scope| {
        for t in 0..8u8 {
            let path = f.path("shared");
            scope.spawn(move || {
                for _ in 0..200 {
                    let file = OpenOptions::new().read(true).write(t % 2 == 0).open(&path).unwrap();
                    if t % 2 == 0 {
                        file.write_all_at(&[b'a' + t], u64::from(t)).unwrap();
                    }
                    file.read_exact_at(&mut [0; 64], 0).unwrap();
                }
            });
        }
    });
    assert_eq!(&fs::read(f.path("shared")).unwrap()[..8], b"a.c.e.g.");
    f.settled();
}

#[test]
fn mappings_read_and_write_the_file() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("m"), b"mapped content").unwrap();
    assert!(child::run("map-read", &f.path("m"), 0));
    let before = fs::metadata(f.path("m")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(child::run("map-write", &f.path("m"), 0));
    assert_eq!(fs::read(f.path("m")).unwrap(), b"mMpped content");
    eventually("the time of the write is seen", || {
        let after = fs::metadata(f.path("m")).unwrap();
        (after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec())
    });
}

#[test]
fn without_passthrough_the_daemon_serves_the_same_bytes() {
    let Some(f) = fixture_with(MountOptions { passthrough: false, ..MountOptions::default() }) else {
        return;
    };
    assert!(!f.mount.passthrough());
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(f.path("big"), &data).unwrap();
    assert_eq!(fs::read(f.path("big")).unwrap(), data);
    let both = OpenOptions::new().read(true).open(f.path("big")).unwrap();
    let mut appending = OpenOptions::new().append(true).open(f.path("big")).unwrap();
    appending.write_all(b"tail").unwrap();
    let mut tail = [0; 4];
    both.read_exact_at(&mut tail, 3_000_000).unwrap();
    assert_eq!(&tail, b"tail");
    fs::write(f.path("m"), b"mapped content").unwrap();
    assert!(child::run("map-read", &f.path("m"), 0));
    assert!(child::run("map-write", &f.path("m"), 0));
    eventually("the mapped write is there", || fs::read(f.path("m")).unwrap() == b"mMpped content");
    assert_eq!(entered(&f), (0, 0), "the backing descriptor is used, not the interface");
}

#[test]
fn copies() {
    let Some(f) = fixture() else { return };
    let data: Vec<u8> = (0..2_000_000u32).map(|i| (i % 253) as u8).collect();
    fs::write(f.path("from"), &data).unwrap();
    let (from, to) = (File::open(f.path("from")).unwrap(), File::create(f.path("to")).unwrap());
    let mut done = 0;
    while done < data.len() {
        done += rfs::copy_file_range(&from, None, &to, None, data.len() - done).unwrap();
    }
    assert_eq!(fs::read(f.path("to")).unwrap(), data);
    assert_eq!(fs::metadata(f.path("to")).unwrap().len(), data.len() as u64);
    assert!(Command::new("cp").arg(f.path("from")).arg(f.path("cp")).status().unwrap().success());
    assert_eq!(fs::read(f.path("cp")).unwrap(), data);
    drop((from, to));
    // between a served and a resident file the kernel copies by reads and writes
    f.settled();
    f.api.pressure.store(true, Relaxed);
    assert!(Command::new("cp").arg(f.path("from")).arg(f.path("served")).status().unwrap().success());
    f.api.pressure.store(false, Relaxed);
    assert_eq!(fs::read(f.path("served")).unwrap(), data);
    assert!(entered(&f).0 > 0);
}

#[test]
fn attributes_are_cached_and_changes_pushed() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("a"), vec![1; 100_000]).unwrap();
    f.settled();
    let ino = f.api.ino(&f.real("a"));
    let blocks = fs::metadata(f.path("a")).unwrap().blocks();
    assert!(blocks > 0);
    let before = f.api.count.getattrs.load(Relaxed);
    for _ in 0..100 {
        fs::metadata(f.path("a")).unwrap();
    }
    assert_eq!(f.api.count.getattrs.load(Relaxed), before);
    f.api.purge(ino);
    eventually("a purged file shows no blocks", || fs::metadata(f.path("a")).unwrap().blocks() == 0);
    f.api.arrive(ino, 100_000);
    eventually("a recalled file shows its blocks", || fs::metadata(f.path("a")).unwrap().blocks() == blocks);
}

#[test]
fn a_file_written_while_served_is_passed_through_at_its_next_open() {
    let Some(f) = fixture() else { return };
    f.api.pressure.store(true, Relaxed);
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(f.path("s")).unwrap();
    file.write_all(b"served bytes").unwrap();
    file.sync_all().unwrap();
    let mut back = [0; 12];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"served bytes");
    assert_eq!(file.metadata().unwrap().len(), 12);
    f.api.pressure.store(false, Relaxed);
    let second = File::open(f.path("s")).unwrap(); // the inode stays as it is while open
    let mut text = String::new();
    (&second).read_to_string(&mut text).unwrap();
    assert_eq!(text, "served bytes");
    drop((file, second));
    f.settled();
    assert!(f.api.count.flushes.load(Relaxed) >= 2);
    let before = entered(&f);
    assert_eq!(fs::read(f.path("s")).unwrap(), b"served bytes");
    if f.mount.passthrough() {
        assert_eq!(entered(&f), before);
    }
}
