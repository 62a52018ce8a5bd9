//! A disk that is full: what is there stays what was written, can be fenced and removed, and goes on when there is room again.

mod common;

use common::{Served, ask, capability, create, key, read, write};
use data::frame::Op;
use data::{Channel, DataError, Slot};
use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use types::ErrorClass;

const PAGE: u64 = 4096;

/// A disk of 4 MiB, unmounted when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(dir.path()).output();
        let mounted = mount.is_ok_and(|done| done.status.success());
        if !mounted {
            eprintln!("LEFT OUT a mover on a full disk: no tmpfs may be mounted here");
        }
        mounted.then(|| Self(dir))
    }

    /// Takes all room but some pages.
    fn fill(&self, but: u64) -> File {
        let mut filler = File::create(self.0.path().join("filler")).unwrap();
        let pages = (0..4 << 20).take_while(|_| filler.write_all(&[1; PAGE as usize]).is_ok()).count() as u64;
        filler.set_len((pages - but) * PAGE).unwrap();
        filler
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(self.0.path()).status().is_ok_and(|s| s.success());
        assert!(done || std::thread::panicking(), "{} stays mounted", self.0.path().display());
    }
}

fn try_write(channel: &Channel, slot: &Slot, object: u64, bytes: &[u8]) -> Result<(), DataError> {
    let ask = ask(Op::Write, object, 0, bytes.len() as u64);
    channel.call(slot, ask, bytes.to_vec()).map(drop)
}

#[test]
fn an_object_that_was_cut_is_written_with_its_sums_or_not_at_all() {
    let Some(disk) = Mounted::new() else { return };
    let served = Served::new(disk.0.path());
    let (channel, granted) = (served.channel(1, 1), capability(1));
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 5..6);
    write(&channel, &slot, 5, 0, &[1; 100_000]);
    channel.call(&slot, ask(Op::SetLength, 5, 0, 0), vec![]).unwrap();
    // There is room for the bytes, or for their sum.
    let filler = disk.fill(1);
    let full = try_write(&channel, &slot, 5, b"both").unwrap_err();
    assert_eq!(full.class(), ErrorClass::NoSpace, "{full}");
    assert!(read(&channel, &slot, 5, 0, 10).is_empty(), "nothing of it is there");
    filler.set_len(0).unwrap();
    try_write(&channel, &slot, 5, b"both").unwrap();
    assert_eq!(read(&channel, &slot, 5, 0, 10), b"both");
    drop((channel, filler));
    served.stop();
}

#[test]
fn objects_are_fenced_and_removed_where_there_is_no_room_for_anything() {
    let Some(disk) = Mounted::new() else { return };
    let served = Served::new(disk.0.path());
    let (channel, mut granted) = (served.channel(1, 1), capability(1));
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 5..8);
    write(&channel, &slot, 5, 0, &[1; 100_000]);
    let _filler = disk.fill(0);
    // Of one nothing was ever written.
    for object in [5, 6] {
        channel.call(&slot, ask(Op::Fence, object, 2, 0), vec![]).unwrap();
        let fenced = try_write(&channel, &slot, object, b"late").unwrap_err();
        assert!(fenced.is(&data::Refusal::Fenced), "{fenced}");
    }
    granted.generation = 2;
    let newer = channel.attach(&granted, key(&granted)).unwrap();
    for object in [7, 5, 6] {
        channel.call(&newer, ask(Op::Remove, object, 0, 0), vec![]).unwrap();
    }
    assert_eq!(fs::read_dir(disk.0.path().join("objects/00")).unwrap().count(), 0);
    drop(channel);
    served.stop();
}
