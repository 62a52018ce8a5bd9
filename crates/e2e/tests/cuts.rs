//! Files that one host makes shorter while another one writes them.

use client::native::{OpenOptions as NativeOptions, Options as NativeWays, Session};
use e2e::cluster::up;
use e2e::hosts::Hosts;
use e2e::{Starter, can_mount, noise, put};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A file that the first host has made: its paths there and at the other host, and open there.
fn file(hosts: &Hosts) -> ([PathBuf; 2], File) {
    let paths = [&hosts.here, &hosts.there].map(|dir| dir.join("file"));
    fs::write(&paths[0], noise(1, 1 << 20)).unwrap();
    let writer = OpenOptions::new().read(true).write(true).open(&paths[1]).unwrap();
    (paths, writer)
}

/// Who writes within a length that he knows from before somebody else has made the file shorter makes it longer; also a native program, and when the first node was
/// started anew since it told the length.
#[test]
fn what_is_written_behind_where_another_host_has_cut_a_file_is_part_of_it_at_once() {
    if !can_mount("writing behind a cut") {
        return;
    }
    let hosts = Hosts::new("0");
    let first = hosts.first();
    let ([here, there], one) = file(&hosts);
    let mut at_end = OpenOptions::new().append(true).open(&there).unwrap();
    for pass in 0..4 {
        let mut model = noise(pass, 300_000);
        one.write_all_at(&model, 0).unwrap();
        one.write_all_at(&model[..70_000], 0).unwrap();
        if pass == 3 {
            let start = Starter::of(first);
            first.kill();
            start.now();
            first.ok([OsStr::new("mount"), first.mount().as_os_str()]);
            first.wait("the targets", || up(first).len() == 3);
        }
        let cut = OpenOptions::new().write(true).open(&here).unwrap();
        cut.set_len(10_000).unwrap();
        model.truncate(10_000);
        if pass % 2 == 0 {
            drop(cut);
        }
        put(&one, &mut model, 9_000, &noise(100 + pass, 90_000));
        assert_eq!(fs::metadata(&here).unwrap().len(), 99_000, "pass {pass}: at the first host");
        cut_at(&there, &mut model, 20_000);
        put(&one, &mut model, 18_000, &noise(200 + pass, 70_000));
        assert_eq!(fs::metadata(&here).unwrap().len(), 88_000, "pass {pass}: behind its own cut");
        at_end.write_all(&noise(300 + pass, 5_000)).unwrap();
        model.extend_from_slice(&noise(300 + pass, 5_000));
        assert!(fs::read(&here).unwrap() == model, "pass {pass}");
    }
    let nothing_held = NativeWays { read_ahead: 0, write_behind: 0, ..NativeWays::default() };
    let session = Session::connect_with(&first.state().join("control.sock"), nothing_held).unwrap();
    let path = Path::new("/").join(here.strip_prefix(first.mount()).unwrap());
    let program = session.open(path, NativeOptions::new().read(true).write(true)).unwrap();
    let mut model = noise(50, 300_000);
    program.write_at(&model, 0).unwrap();
    program.write_at(&model[..70_000], 0).unwrap();
    for (cut, length) in [(&there, 10_000), (&here, 20_000)] {
        cut_at(cut, &mut model, length);
        let (at, bytes) = (length as u64 - 1_000, noise(60 + length as u64, 90_000));
        program.write_at(&bytes, at).unwrap();
        model.truncate(at as usize);
        model.extend_from_slice(&bytes);
        assert!(fs::read(&there).unwrap() == model, "a native program, behind a cut to {length}");
    }
    program.set_len(5_000).unwrap();
    program.write_at(&model[4_000..6_000], 4_000).unwrap();
    assert!(fs::read(&there).unwrap() == model[..6_000], "behind its own cut");
    drop((program, one, at_end));
    first.check();
}

/// The same while the writer is busy: whatever he has begun behind the cut is there.
#[test]
fn who_writes_while_another_host_cuts_the_file_makes_it_longer_with_the_next_write() {
    if !can_mount("writing during cuts") {
        return;
    }
    let hosts = Hosts::new("0");
    let ([here, _], one) = file(&hosts);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut lengths = Vec::new();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let pass = written.load(Ordering::Acquire) + 1;
                // In all columns.
                one.write_all_at(&noise(pass, 400_000), 100_000).unwrap();
                written.store(pass, Ordering::Release);
            }
        });
        for _ in 0..40 {
            let cut = OpenOptions::new().write(true).open(&here).unwrap();
            cut.set_len(10_000).unwrap();
            drop(cut);
            let begun = written.load(Ordering::Acquire) + 2;
            while written.load(Ordering::Acquire) < begun && !work.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            lengths.push(fs::metadata(&here).unwrap().len());
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!(lengths, [500_000; 40]);
    let last = noise(written.load(Ordering::Acquire), 400_000);
    assert!(fs::read(&here).unwrap()[100_000..] == last, "what was written last");
    hosts.first().check();
}

fn cut_at(path: &Path, model: &mut Vec<u8>, length: usize) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length as u64).unwrap();
    model.truncate(length);
}
