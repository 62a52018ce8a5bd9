//! Offline files: bytes as they arrive, waits that end, changes that need no tape.

use crate::support::{Bed, PATIENCE, READ, WRITE, cx, pattern};
use node::Size;
use std::time::{Duration, Instant};
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::Call;

const MB: usize = 1 << 20;
/// Longer than what is proved before it is handed out.
const LARGE: usize = 9 * MB;

/// Drives of 6 MB/s.
fn slow() -> Bed {
    Bed::with(|c| {
        c.library.drive_rate = Size(6 << 20);
        c.tape.block_size = Size(64 << 10);
    })
}

fn offline(bed: &Bed, name: &str, size: usize) -> (Ino, Vec<u8>) {
    let data = pattern(size, 7);
    let ino = bed.write(name, &data);
    bed.migrate_and_purge();
    (ino, data)
}

#[test]
fn bytes_of_large_files_are_served_as_they_arrive_to_every_reader() {
    let bed = slow();
    let (ino, data) = offline(&bed, "f", LARGE);
    let early = (0..5).any(|_| {
        let early = ranges_come_early(&bed, ino, &data);
        bed.purge("/f");
        early
    });
    assert!(early, "the middle of the file never came before its end");
}

/// Reads ranges of an offline file; whether they were seen to come one after the other, which a machine that halts for a moment
/// may not see.
fn ranges_come_early(bed: &Bed, ino: Ino, data: &[u8]) -> bool {
    let opened = bed.open(ino, READ);
    assert!(opened.backing.is_none());
    let begun = Instant::now();
    let (_, last) = bed.begin_read(opened.handle, LARGE as u64 - 1000, 4096);
    let (_, middle) = bed.begin_read(opened.handle, 3 * MB as u64, 4096);
    let first = bed.read_at(opened.handle, 0, 4096).unwrap();
    let first_after = begun.elapsed();
    let middle = middle.recv_timeout(PATIENCE).unwrap().unwrap();
    let middle_after = begun.elapsed();
    let last = last.recv_timeout(PATIENCE).unwrap().unwrap();
    let last_after = begun.elapsed();
    assert_eq!(first, data[..4096]);
    assert_eq!(middle, data[3 * MB..3 * MB + 4096]);
    assert_eq!(last, data[LARGE - 1000..]);
    bed.node.release(opened.handle);
    bed.settle();
    assert_eq!(bed.stat("/f").residency, Some(Residency::Dual));
    first_after < middle_after && middle_after + Duration::from_millis(200) < last_after
}

#[test]
fn a_read_that_must_not_wait_starts_the_recall() {
    let bed = slow();
    let (ino, data) = offline(&bed, "f", MB);
    let opened = bed.open(ino, OpenFlags { nonblock: true, ..READ });
    assert_eq!(bed.read_at(opened.handle, 0, 10), Err(FsError::WouldBlock));
    bed.until("the recall ends", |b| b.stat("/f").residency == Some(Residency::Dual));
    assert_eq!(bed.read_at(opened.handle, 0, 10).unwrap(), data[..10]);
    bed.node.release(opened.handle);
}

#[test]
fn an_interrupted_wait_ends_and_the_recall_goes_on() {
    let bed = slow();
    let (ino, data) = offline(&bed, "f", 3 * MB);
    let opened = bed.open(ino, READ);
    let (wait, got) = bed.begin_read(opened.handle, 3 * MB as u64 - 10, 10);
    bed.node.cancel_wait(wait.unwrap());
    assert_eq!(got.recv_timeout(PATIENCE).unwrap(), Err(FsError::Interrupted));
    let view = bed.stat("/f");
    assert_eq!(view.residency, Some(Residency::Staging));
    assert!(view.request.is_some());
    bed.until("the recall ends", |b| b.stat("/f").residency == Some(Residency::Dual));
    bed.node.release(opened.handle);
    assert_eq!(bed.read(ino), data);
}

#[test]
fn truncating_to_nothing_needs_no_tape() {
    let bed = Bed::new();
    let (ino, _) = offline(&bed, "f", MB);
    let mounts: u64 = bed.drives().iter().map(|d| d.mounts).sum();
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(bed.node.setattr(&cx(), ino, &set).unwrap().size, 0);
    assert_eq!(bed.stat("/f").residency, Some(Residency::Resident));
    assert_eq!(bed.read(ino), b"");
    assert_eq!(bed.drives().iter().map(|d| d.mounts).sum::<u64>(), mounts);
    assert!(bed.stat("/f").request.is_none());
}

#[test]
fn shortening_keeps_the_rest_and_truncation_ends_a_recall() {
    let bed = slow();
    let (ino, data) = offline(&bed, "f", 2 * MB);
    let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    assert_eq!(bed.node.setattr(&cx(), ino, &set(1000)).unwrap().size, 1000);
    assert_eq!(bed.read(ino), data[..1000]);
    let (other, _) = offline(&bed, "g", 4 * MB);
    let opened = bed.open(other, READ);
    let (_, got) = bed.begin_read(opened.handle, 4 * MB as u64 - 10, 10);
    bed.until("the recall runs", |b| b.stat("/g").percent.is_some_and(|p| p > 0));
    bed.node.setattr(&cx(), other, &set(0)).unwrap();
    assert_eq!(got.recv_timeout(PATIENCE).unwrap(), Ok(Vec::new()));
    bed.node.release(opened.handle);
    assert_eq!(bed.stat("/g").residency, Some(Residency::Resident));
    bed.until("the drive is at rest", |b| b.drives().iter().all(|d| d.status != DriveStatus::Recalling));
    assert_eq!(bed.read(other), b"");
}

#[test]
fn writing_to_an_offline_file_keeps_the_old_bytes_around_it() {
    let bed = Bed::new();
    let (ino, mut data) = offline(&bed, "f", MB);
    let before = bed.stat("/f").file.unwrap().version;
    let opened = bed.open(ino, WRITE);
    assert_eq!(bed.node.write(opened.handle, 5000, b"new").unwrap(), 3);
    bed.node.release(opened.handle);
    data[5000..5003].copy_from_slice(b"new");
    assert_eq!(bed.read(ino), data);
    assert!(bed.stat("/f").file.unwrap().version > before);
    bed.migrate_and_purge();
    assert_eq!(bed.read(ino), data);
    bed.settle();
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn unlinked_and_replaced_files_keep_their_data_until_closed() {
    let bed = slow();
    let (a, a_data) = offline(&bed, "a", 2 * MB);
    let (b, _) = offline(&bed, "b", MB);
    let held = bed.open(a, READ);
    let (_, got) = bed.begin_read(held.handle, 2 * MB as u64 - 10, 10);
    bed.node.rename(&cx(), (Ino::ROOT, b"b"), (Ino::ROOT, b"a"), RenameMode::Replace).unwrap();
    assert_eq!(got.recv_timeout(PATIENCE).unwrap().unwrap(), a_data[2 * MB - 10..]);
    assert_eq!(bed.read_at(held.handle, 0, 10).unwrap(), a_data[..10]);
    bed.node.release(held.handle);
    assert_eq!(bed.node.getattr(&cx(), a), Err(FsError::NotFound));
    let running = bed.open(b, READ);
    let (_, got) = bed.begin_read(running.handle, 0, 10);
    bed.node.unlink(&cx(), Ino::ROOT, b"a").unwrap();
    assert_eq!(got.recv_timeout(PATIENCE).unwrap().unwrap().len(), 10);
    bed.node.release(running.handle);
    assert_eq!(bed.node.getattr(&cx(), b), Err(FsError::NotFound));
    bed.settle();
    bed.until("the objects are swept", |b| b.check(false).objects <= 1024 && b.status().disk.used == 0);
    assert_eq!(bed.check(false).findings, []);
}

#[test]
fn a_recall_that_is_withdrawn_and_asked_for_again_ends() {
    let bed = slow();
    let (ino, data) = offline(&bed, "f", 3 * MB);
    for _ in 0..3 {
        let request = bed.begin(Call::Stage(bed.one("/f"))).request;
        bed.until("it runs", |b| b.stat("/f").percent.is_some_and(|p| p > 0));
        bed.call(Call::Cancel(request.id));
        assert_eq!(bed.request(request.id).request.state, RequestState::Cancelled);
    }
    let request = bed.act(Call::Stage(bed.one("/f")));
    assert_eq!(request.state, RequestState::Done, "{request:?}");
    assert_eq!(bed.read(ino), data);
}

#[test]
fn readers_of_many_small_files_never_meet_an_early_end() {
    let bed = Bed::new();
    let files: Vec<Ino> = (0..40).map(|i| bed.write(&format!("f{i}"), &pattern(100 + i, i as u64))).collect();
    for _ in 0..2 {
        bed.settle();
        bed.migrate_and_purge();
        std::thread::scope(|scope| {
            for reader in 0..4 {
                let (bed, files) = (&bed, &files);
                scope.spawn(move || {
                    for (i, ino) in files.iter().enumerate() {
                        assert_eq!(bed.read(*ino), pattern(100 + i, i as u64), "reader {reader}, file {i}");
                    }
                });
            }
        });
    }
}

#[test]
fn files_cancelled_between_reading_and_recording_are_offline_again() {
    // Two seconds of the drive: whoever cancels may be slow.
    const FILES: u64 = 240;
    let bed = slow();
    let name = |n: u64| format!("f{n:03}");
    let files: Vec<Ino> = (0..FILES).map(|n| bed.write(&name(n), &pattern(50_000, n))).collect();
    bed.migrate_and_purge();
    bed.until_dismounted();
    let all = bed.begin(Call::Stage(bed.all())).request;
    let last = bed.begin(Call::Stage(bed.one(&format!("/{}", name(FILES - 1))))).request;
    // The drive reads on while those that it has read wait for the sync that they share.
    bed.until("some are back", |b| b.request(all.id).request.files_done > 0);
    bed.call(Call::Cancel(all.id));
    assert_eq!(bed.wait(last.id).state, RequestState::Done);
    let resident =
        || (0..FILES).filter(|n| bed.stat(&format!("/{}", name(*n))).residency == Some(Residency::Dual));
    let back = resident().count() as u64;
    assert!(back > 0 && back < FILES, "{back} are back");
    bed.until("the sweep comes by", |b| b.check(false).objects <= 1024 + back);
    assert_eq!(bed.check(false).findings, []);
    for (n, ino) in (0..).zip(&files) {
        assert_eq!(bed.read(*ino), pattern(50_000, n));
    }
}

#[test]
fn more_files_than_a_drive_takes_at_once_come_back_in_one_pass_forward() {
    const BATCH: usize = 1000;
    let bed = Bed::with(|c| {
        c.classes[0].copies.truncate(1);
        c.tape.block_size = Size(64 << 10);
        c.tape.idle_unmount_s = 600;
    });
    // Many of them share a block, also where one batch ends and the next begins.
    let files: Vec<Ino> =
        (0..=BATCH + 200).map(|n| bed.write(&format!("f{n:04}"), &pattern(300, n as u64))).collect();
    bed.migrate_and_purge();
    assert_eq!(bed.act(Call::Stage(bed.one("/f0000"))).state, RequestState::Done);
    let backward = || -> u64 {
        let library = bed.node.virtual_library();
        (0..library.drives()).filter_map(|n| library.stats(n)).map(|s| s.backward).sum()
    };
    let before = backward();
    let request = bed.act(Call::Stage(bed.all()));
    assert_eq!((request.state, request.files_failed), (RequestState::Done, 0), "{request:?}");
    assert_eq!(backward() - before, 0);
    for (n, ino) in files.iter().enumerate().step_by(97) {
        assert_eq!(bed.read(*ino), pattern(300, n as u64));
    }
}

#[test]
fn bytes_damaged_on_tape_without_an_error_come_from_the_other_copy() {
    let bed = Bed::new();
    let (ino, data) = offline(&bed, "f", 3 * MB);
    bed.until_dismounted();
    let volumes = bed.volumes_of("/f");
    bed.flip_a_bit_on(&volumes[0], &data[MB..MB + 64]);
    let request = bed.act(Call::Stage(bed.one("/f")));
    assert_eq!((request.state, request.files_failed), (RequestState::Done, 0), "{request:?}");
    assert!(bed.read(ino) == data);
    assert_eq!(bed.volume(&volumes[0]).state, VolumeState::Suspect);
    assert_ne!(bed.volume(&volumes[1]).state, VolumeState::Suspect);
}

#[test]
fn readers_of_small_files_never_see_bytes_damaged_on_tape() {
    let bed = slow();
    let (ino, data) = offline(&bed, "f", 3 * MB);
    bed.until_dismounted();
    let volumes = bed.volumes_of("/f");
    let read_everywhere = || {
        let opened = bed.open(ino, READ);
        let waits = [0, MB - 1000, 2 * MB].map(|at| (at, bed.begin_read(opened.handle, at as u64, 4096).1));
        let got = waits.map(|(at, got)| (at, got.recv_timeout(PATIENCE).unwrap()));
        bed.node.release(opened.handle);
        bed.settle();
        got
    };
    bed.flip_a_bit_on(&volumes[0], &data[MB..MB + 64]);
    for (at, got) in read_everywhere() {
        assert!(got.unwrap() == data[at..at + 4096], "bytes at {at}");
    }
    assert_eq!(bed.volume(&volumes[0]).state, VolumeState::Suspect);
    bed.purge("/f");
    bed.until_dismounted();
    bed.flip_a_bit_on(&volumes[1], &data[MB..MB + 64]);
    for (at, got) in read_everywhere() {
        assert_eq!(got, Err(FsError::Io), "no copy is right; bytes at {at}");
    }
}

#[test]
fn access_times_follow_relatime() {
    let bed = Bed::new();
    let ino = bed.write("f", b"content");
    let at = |seconds: u64| Cx::admin(cx().now.plus(Duration::from_secs(seconds)));
    let atime_after_opening = |cx: &Cx| {
        bed.node.release(bed.node.open(cx, ino, READ).unwrap().handle);
        bed.stat("/f").attr.atime
    };
    // The first access after a change counts, a second one only a day later.
    let (soon, later, next_day) = (at(100), at(5_000), at(100 + 86_400));
    assert_eq!(atime_after_opening(&soon), soon.now);
    assert_eq!(atime_after_opening(&later), soon.now);
    assert_eq!(atime_after_opening(&next_day), next_day.now);
}
