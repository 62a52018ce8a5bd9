//! What keeps data on tape in order: verify, repack, broken volumes.

use crate::support::medium::counted_copies_are_there;
use crate::support::{Bed, Running, pattern};
use node::Size;
use types::api::FileApi;
use types::*;
use vtl::Fault;
use wire::{Call, Reply, VolumeChoice};

fn verify(bed: &Bed, volumes: &[Barcode]) -> Request {
    bed.act(Call::Verify(VolumeChoice::These(volumes.to_vec())))
}

fn repack(volumes: &[Barcode]) -> Call {
    let volumes = VolumeChoice::These(volumes.to_vec());
    Call::Repack { volumes, dead_percent: None, generation: None }
}

/// Volume of copy `n` of a file, which lies on one.
fn volume_of(bed: &Bed, path: &str, copy: usize) -> Barcode {
    bed.volumes_of(path).remove(copy)
}

fn copies(bed: &Bed, path: &str) -> usize {
    bed.stat(path).file.unwrap().copies.len()
}

fn clean(bed: &Bed) {
    bed.settle();
    let report = bed.check(true);
    assert_eq!(report.findings, [], "{report:?}");
}

#[test]
fn a_copy_that_decayed_on_tape_is_found_and_made_anew_from_the_other() {
    let bed = Bed::new();
    let data: Vec<Vec<u8>> = (0..5).map(|n| pattern(200_000, n + 1)).collect();
    let files: Vec<Ino> = data.iter().enumerate().map(|(n, d)| bed.write(&format!("f{n}"), d)).collect();
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/f0", 0);
    let good = verify(&bed, std::slice::from_ref(&volume));
    assert_eq!((good.state, good.message.as_str()), (RequestState::Done, ""));
    let before = bed.volume(&volume).last_verified.expect("noted");
    bed.flip_a_bit_on(&volume, &data[2][1000..1032]);
    let found = verify(&bed, std::slice::from_ref(&volume));
    assert_eq!(found.state, RequestState::Done);
    assert!(found.message.contains("/f2") && !found.message.contains("/f1"), "{}", found.message);
    assert!(bed.volume(&volume).last_verified > Some(before), "the rest of it is good");
    assert_eq!(bed.volume(&volume).state, VolumeState::Suspect);
    assert!(bed.status().warnings.iter().any(|w| w.contains("/f2") && w.contains(volume.as_str())));
    bed.until("the copy is there again", |b| copies(b, "/f2") == 2);
    assert_ne!(volume_of(&bed, "/f2", 0), volume, "not where it decayed");
    bed.until("it left the disk again", |b| b.stat("/f2").residency == Some(Residency::Offline));
    assert!((0..5).all(|n| bed.read(files[n]) == data[n]));
    clean(&bed);
}

#[test]
fn the_only_copy_of_a_file_is_kept_and_named_when_it_decays() {
    let bed = Bed::with(|c| c.classes[0].copies.truncate(1));
    let data = pattern(100_000, 1);
    bed.write("f", &data);
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/f", 0);
    bed.flip_a_bit_on(&volume, &data[500..532]);
    let found = verify(&bed, std::slice::from_ref(&volume));
    assert_eq!(found.state, RequestState::Failed);
    assert!(found.message.contains("ONLY COPY") && found.message.contains("/f"), "{}", found.message);
    assert_eq!(copies(&bed, "/f"), 1, "what is left of it stays on record");
    assert!(bed.status().warnings.iter().any(|w| w.contains("no other copy")));
    assert_eq!(bed.volume(&volume).last_verified, None);
}

#[test]
fn a_half_dead_volume_is_emptied_and_scratch_again() {
    let bed = Bed::with(|c| c.disk.capacity = Some(Size::mib(64)));
    let data: Vec<Vec<u8>> = (0..20).map(|n| pattern(100_000 + 1000 * n, n as u64 + 1)).collect();
    let name = |n: usize| format!("f{n}");
    let files: Vec<Ino> = data.iter().enumerate().map(|(n, d)| bed.write(&name(n), d)).collect();
    bed.write("empty", b"");
    bed.migrate_and_purge();
    for n in (0..20).step_by(2) {
        bed.node.unlink(&crate::support::cx(), Ino::ROOT, name(n).as_bytes()).unwrap();
    }
    // Some are on disk anyway.
    assert_eq!(bed.read(files[3]), data[3]);
    bed.settle();
    let volume = volume_of(&bed, "/f1", 0);
    let before = bed.volume(&volume);
    assert!(before.live < before.written * 6 / 10, "{before:?}");
    let request = bed.act(repack(std::slice::from_ref(&volume)));
    assert_eq!(request.state, RequestState::Done, "{request:?}");
    let after = bed.volume(&volume);
    assert_eq!((after.state, after.pool, after.files, after.live), (VolumeState::Scratch, None, 0, 0));
    assert_ne!(after.uuid, before.uuid, "it has a fresh label");
    for n in (1..20).step_by(2) {
        assert_eq!(copies(&bed, &format!("/f{n}")), 2);
        assert!(!bed.volumes_of(&format!("/f{n}")).contains(&volume));
        assert!(bed.read(files[n]) == data[n]);
    }
    assert_eq!(copies(&bed, "/empty"), 2);
    let Reply::RequestItems(items) =
        bed.call(Call::RequestItems { id: request.id, after: Ino(0), limit: 10 })
    else {
        panic!("no items")
    };
    assert_eq!(
        items.iter().map(|i| (i.path.to_string(), i.state.clone())).collect::<Vec<_>>(),
        [(format!("volume {volume}"), ItemState::Done)]
    );
    clean(&bed);
}

#[test]
fn a_volume_whose_medium_has_failed_is_retired_when_it_is_emptied() {
    let bed = Bed::new();
    let data = [pattern(100_000, 1), pattern(100_000, 2)];
    let files = [bed.write("a", &data[0]), bed.write("b", &data[1])];
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/a", 0);
    bed.flip_a_bit_on(&volume, &data[1][1000..1032]);
    assert_eq!(verify(&bed, std::slice::from_ref(&volume)).state, RequestState::Done);
    bed.until("the copy is there again", |b| copies(b, "/b") == 2);
    let before = bed.volume(&volume);
    assert!(before.state == VolumeState::Suspect && before.errors > 0, "{before:?}");
    assert_eq!(bed.act(repack(std::slice::from_ref(&volume))).state, RequestState::Done);
    let after = bed.volume(&volume);
    assert_eq!((after.state, after.live_files, after.errors), (VolumeState::Retired, 0, before.errors));
    assert!(after.reason.contains("volume label --force"), "{}", after.reason);
    assert!(bed.status().warnings.iter().any(|w| w.contains(volume.as_str()) && w.contains("retired")));
    assert!(files.iter().zip(&data).all(|(ino, data)| bed.read(*ino) == *data));
    clean(&bed);
}

#[test]
fn parts_of_files_that_go_on_on_another_volume_leave_theirs_in_both_formats() {
    for format in [FormatRule::Ltfs, FormatRule::AnsiTar] {
        let bed = Bed::with(|c| {
            c.tape.format = format;
            c.library.cartridge_capacity = Size::mib(8);
            c.classes[0].copies.truncate(1);
        });
        let data = [pattern(4 << 20, 1), pattern(5 << 20, 2)];
        let files = [bed.write("a", &data[0]), bed.write("b", &data[1])];
        bed.migrate_and_purge();
        let volumes = bed.volumes_of("/b");
        assert_eq!(volumes.len(), 2, "{format:?}: it goes on on another volume");
        for volume in volumes.iter().rev() {
            let request = bed.act(repack(std::slice::from_ref(volume)));
            assert_eq!(request.state, RequestState::Done, "{format:?}: {request:?}");
            assert_eq!(bed.volume(volume).live_files, 0);
        }
        assert!(files.iter().zip(&data).all(|(ino, data)| bed.read(*ino) == *data), "{format:?}");
        clean(&bed);
    }
}

#[test]
fn a_volume_whose_label_is_not_the_one_recorded_is_not_made_scratch() {
    let bed = Bed::new();
    let (data, blank) = (pattern(300_000, 1), "TC0008L9".to_owned());
    bed.write("f", &data);
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/f", 0);
    let uuid = bed.volume(&volume).uuid;
    bed.node.unlink(&crate::support::cx(), Ino::ROOT, b"f").unwrap();
    bed.until_dismounted();
    for (barcode, actual) in [(volume.to_string(), blank.clone()), (blank.clone(), volume.to_string())] {
        bed.node.virtual_library().inject(Fault::WrongCartridge { barcode, actual });
    }
    let request = bed.act(repack(std::slice::from_ref(&volume)));
    assert_eq!(request.state, RequestState::Failed);
    assert!(request.message.contains(volume.as_str()) && request.message.contains("label"), "{request:?}");
    let after = bed.volume(&volume);
    assert_eq!((after.state, after.uuid), (VolumeState::Foreign, uuid), "{}", after.reason);
    assert!(bed.status().warnings.iter().any(|w| w.contains("is not emptied")));
}

/// Files that a slow drive takes seconds to read, on one volume of each pool.
fn slow_bed(drives: u16) -> (Bed, Vec<Ino>, Barcode) {
    let bed = Bed::with(|c| {
        c.library.drives = drives;
        c.library.drive_rate = Size(6 << 20);
        c.tape.idle_unmount_s = 60;
    });
    let files = (0..40).map(|n| bed.write(&format!("f{n}"), &pattern(250_000, n))).collect();
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/f0", 0);
    (bed, files, volume)
}

fn is_open(bed: &Bed, id: RequestId) -> bool {
    matches!(bed.request(id).request.state, RequestState::Queued | RequestState::Active)
}

#[test]
fn a_verification_gives_the_drive_to_whoever_wants_it_and_goes_on() {
    let (bed, files, volume) = slow_bed(1);
    let request = bed.begin(Call::Verify(VolumeChoice::These(vec![volume.clone()]))).request;
    assert_eq!(request.subject, format!("volume {volume}"));
    bed.until("it has begun", |b| b.request(request.id).percent > 5);
    assert!(bed.request(request.id).doing.contains(volume.as_str()));
    assert!(bed.read(files[30]) == pattern(250_000, 30));
    assert!(is_open(&bed, request.id), "the reader did not wait for its end");
    assert_eq!(bed.wait(request.id).state, RequestState::Done);
    let v = bed.volume(&volume);
    assert!(v.last_verified.is_some() && v.verified_to == 0);
}

#[test]
fn a_verification_goes_on_after_a_restart_where_it_was() {
    let (bed, _, volume) = slow_bed(1);
    let id = bed.begin(Call::Verify(VolumeChoice::All)).request.id;
    bed.until("it has begun", |b| b.request(id).percent > 20);
    let bed = bed.restart();
    let begun: Vec<Volume> = bed.volumes().into_iter().filter(|v| v.verified_to > 0).collect();
    assert_eq!(begun.len(), 1, "one of two");
    assert!(is_open(&bed, id));
    assert_eq!(bed.wait(id).state, RequestState::Done);
    assert!(bed.volume(&volume).last_verified.is_some());
}

fn set_state(bed: &Bed, volume: &Barcode, state: VolumeState) {
    let reason = "as I say".to_owned();
    bed.call(Call::SetVolume { volumes: vec![volume.clone()], state, reason });
}

#[test]
fn a_suspect_volume_is_trusted_again_when_all_that_is_needed_of_it_is_right_and_not_written() {
    let bed = Bed::new();
    let data: Vec<Vec<u8>> = (0..3).map(|n| pattern(200_000, n + 1)).collect();
    for (n, data) in data.iter().enumerate() {
        bed.write(&format!("f{n}"), data);
    }
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/f0", 0);
    let state = || bed.volume(&volume).state;
    let verify = || verify(&bed, std::slice::from_ref(&volume));
    bed.flip_a_bit_on(&volume, &data[2][1000..1032]);
    assert!(verify().message.contains("/f2"));
    assert_eq!(state(), VolumeState::Suspect, "the time that finds damage does not clear it of it");
    bed.until("the copy is there again", |b| copies(b, "/f2") == 2);
    let good = verify();
    assert_eq!((good.state, state()), (RequestState::Done, VolumeState::ReadOnly));
    assert!(good.message.contains("was suspect") && good.message.contains("/f2"), "{}", good.message);
    assert_eq!(bed.volume(&volume).reason, good.message.split_once(": ").unwrap().1);
    bed.write("new", b"new");
    bed.migrate_and_purge();
    assert!(!bed.volumes_of("/new").contains(&volume));

    bed.flip_a_bit_on(&volume, &data[1][1000..1032]);
    assert!(verify().message.contains("/f1"));
    assert_eq!(state(), VolumeState::Suspect, "it was trusted too early");
    bed.until("the copy is there again", |b| copies(b, "/f1") == 2);
    set_state(&bed, &volume, VolumeState::Suspect);
    assert_eq!((verify().message.as_str(), state()), ("", VolumeState::Suspect), "only he takes it back");
    set_state(&bed, &volume, VolumeState::Filling);
    assert_eq!((verify().message.as_str(), state()), ("", VolumeState::Filling));
}

#[test]
fn a_suspect_volume_with_the_only_copy_of_a_damaged_file_stays_suspect() {
    let bed = Bed::with(|c| c.classes[0].copies.truncate(1));
    let data = pattern(100_000, 1);
    bed.write("f", &data);
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/f", 0);
    bed.flip_a_bit_on(&volume, &data[500..532]);
    for _ in 0..2 {
        assert_eq!(verify(&bed, std::slice::from_ref(&volume)).state, RequestState::Failed);
        assert_eq!(bed.volume(&volume).state, VolumeState::Suspect);
    }
}

#[test]
fn what_was_read_before_a_volume_became_suspect_does_not_count() {
    let (bed, files, volume) = slow_bed(1);
    let these = || Call::Verify(VolumeChoice::These(vec![volume.clone()]));
    let begun = bed.begin(these()).request.id;
    bed.until("it has begun", |b| b.request(begun).percent > 20);
    bed.call(Call::Cancel(begun));
    bed.until("it has stopped", |b| b.volume(&volume).verified_to > 0);
    let in_the_middle = |n| pattern(250_000, n)[1000..1032].to_vec();
    [0, 39].into_iter().for_each(|n| bed.flip_a_bit_on(&volume, &in_the_middle(n)));
    assert!(bed.read(files[39]) == pattern(250_000, 39), "from the other copy");
    assert_eq!(bed.volume(&volume).state, VolumeState::Suspect);
    let found = bed.act(these());
    assert!(found.message.contains("/f0") && found.message.contains("/f39"), "{}", found.message);
    assert_eq!(bed.volume(&volume).state, VolumeState::Suspect);
    bed.until("the copies are there again", |b| copies(b, "/f0") == 2 && copies(b, "/f39") == 2);
    bed.act(these());
    assert_eq!(bed.volume(&volume).state, VolumeState::ReadOnly);
}

#[test]
fn copies_on_a_broken_volume_count_no_more_and_are_made_anew() {
    let bed = Bed::new();
    let data: Vec<Vec<u8>> = (0..6).map(|n| pattern(150_000, n + 1)).collect();
    for (n, d) in data.iter().enumerate() {
        bed.write(&format!("f{n}"), d);
    }
    bed.migrate_and_purge();
    bed.read(bed.stat("/f1").attr.ino);
    bed.settle();
    let volume = volume_of(&bed, "/f0", 1);
    let broken = |state| Call::SetVolume { volumes: vec![volume.clone()], state, reason: "chewed".into() };
    bed.call(broken(VolumeState::Broken));
    bed.until("nothing on it counts", |b| b.volume(&volume).live_files == 0);
    bed.until("every file has two copies", |b| (0..6).all(|n| copies(b, &format!("/f{n}")) == 2));
    for (n, d) in data.iter().enumerate() {
        let path = format!("/f{n}");
        assert!(!bed.volumes_of(&path).contains(&volume));
        assert_eq!(counted_copies_are_there(&bed, &path, d), 2);
    }
    bed.until("they left the disk again", |b| b.stat("/f5").residency == Some(Residency::Offline));
    assert_eq!(bed.stat("/f1").residency, Some(Residency::Dual), "that one was there before");
    assert_eq!(bed.volume(&volume).state, VolumeState::Broken);
    clean(&bed);
}

#[test]
fn one_drive_empties_two_volumes_and_a_cancelled_request_leaves_them_readable() {
    let (bed, files, volume) = slow_bed(1);
    let both: Vec<Barcode> = bed.volumes_of("/f0");
    let id = bed.begin(repack(&both)).request.id;
    bed.until("some have moved", |b| b.volume(&volume).live_files < 35);
    let again = bed.try_call(repack(std::slice::from_ref(&volume))).unwrap_err();
    assert!(again.message.contains("already"), "{}", again.message);
    bed.call(Call::Cancel(id));
    // On a machine that halts for a moment one of them may have been emptied before.
    let stands = |b: &Bed, v: &Barcode| matches!(b.volume(v).state, VolumeState::Repacking);
    bed.until("they are left", |b| both.iter().all(|v| !stands(b, v)));
    assert!(bed.read(files[39]) == pattern(250_000, 39));
    let left: Vec<Barcode> = both.into_iter().filter(|v| bed.volume(v).state == VolumeState::Full).collect();
    let labels: Vec<String> = left.iter().map(|v| bed.volume(v).uuid).collect();
    if !left.is_empty() {
        let request = bed.act(repack(&left));
        assert_eq!(request.state, RequestState::Done, "{request:?}");
    }
    // The first to be scratch may take files of the other.
    assert!(left.iter().zip(labels).all(|(v, label)| bed.volume(v).uuid != label));
    assert!((0..40).all(|n| copies(&bed, &format!("/f{n}")) == 2));
    clean(&bed);
}

#[test]
fn a_request_to_empty_a_volume_ends_when_an_operator_decides_otherwise() {
    // No volume is left that could take the file.
    let bed = Bed::with(|c| c.library.cartridges = 2);
    bed.write("f", &pattern(1000, 1));
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/f", 0);
    let id = bed.begin(repack(std::slice::from_ref(&volume))).request.id;
    let state = VolumeState::ReadOnly;
    bed.call(Call::SetVolume { volumes: vec![volume], state, reason: "left".into() });
    let request = bed.wait(id);
    assert_eq!(request.state, RequestState::Failed);
    assert!(request.message.contains("its state was set to read-only"), "{request:?}");
}

#[test]
fn a_part_that_filled_a_volume_uses_up_no_other_volumes_when_it_cannot_move_and_its_volume_is_full_again() {
    let bed = Bed::with(|c| {
        c.library.cartridge_capacity = Size::mib(16);
        c.tape.block_size = Size(64 << 10);
        c.classes[0].copies.truncate(1);
    });
    let data = pattern(24 << 20, 1);
    let ino = bed.write("large", &data);
    bed.migrate_and_purge();
    let full = bed.volumes().into_iter().find(|v| v.state == VolumeState::Full).expect("one is full").barcode;
    let request = bed.act(repack(std::slice::from_ref(&full)));
    assert_eq!(request.state, RequestState::Failed);
    assert!(request.message.contains("one piece"), "{request:?}");
    let now = bed.volume(&full);
    assert_eq!(now.state, VolumeState::Full, "{}", now.reason);
    assert!(
        now.reason.starts_with("it was not emptied: ") && now.reason.contains("one piece"),
        "{}",
        now.reason
    );
    let used = bed.volumes().into_iter().filter(|v| !v.uuid.is_empty() && v.files == 0).count();
    assert_eq!(used, 0, "{:?}", bed.volumes());
    assert!(bed.read(ino) == data);
    bed.settle();
    clean(&bed);
}

#[test]
fn rules_say_what_is_verified_and_emptied_without_being_asked() {
    let bed = Bed::with(|c| {
        c.reclaim.dead_percent = 50;
        c.tape.verify_every_days = 1;
        c.library.cartridge_capacity = Size::mib(16);
    });
    for n in 0..6 {
        bed.write(&format!("f{n}"), &pattern(3 << 20, n));
    }
    bed.migrate_and_purge();
    let full = bed.volumes().into_iter().find(|v| v.state == VolumeState::Full).expect("one is full").barcode;
    for n in 0..5 {
        bed.node.unlink(&crate::support::cx(), Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    bed.until("it is scratch", |b| b.volume(&full).state != VolumeState::Full && b.volume(&full).files == 0);
    let left = volume_of(&bed, "/f5", 0);
    assert_eq!(bed.volume(&left).last_verified, None, "it was labelled today");
    bed.settle();
    clean(&bed);
}

#[test]
fn a_class_that_numbers_its_copies_otherwise_is_no_defect_of_the_volumes() {
    for format in [FormatRule::Ltfs, FormatRule::AnsiTar] {
        let bed = Bed::with(|c| c.tape.format = format);
        let data = pattern(70_000, 8);
        let ino = bed.write("f", &data);
        bed.migrate_and_purge();
        // The volumes have an index from now on, and nothing calls for another.
        clean(&bed);
        let before = bed.volumes_of("/f");
        let copies = Some(vec!["second".into(), "primary".into()]);
        let change = wire::ClassChange { copies, ..wire::ClassChange::default() };
        bed.call(Call::SetClass { name: "default".into(), change });
        let after: Vec<Barcode> = before.iter().rev().cloned().collect();
        assert_eq!(bed.volumes_of("/f"), after, "{format:?}: the first copy is the second now");
        clean(&bed);
        assert!(bed.read(ino) == data);
        bed.node.stop(true); // each that goes on holds a thousand files open
    }
}

/// What could be restored at or below a path: path, version, and whether it can be.
fn ended(bed: &Bed, path: &str) -> Vec<EndedView> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let call = Call::Ended { path: path.into(), below: true, after };
        let Reply::Ended { found, next } = bed.call(call) else { panic!("no list") };
        all.extend(found);
        after = next;
        if after.is_none() {
            return all;
        }
    }
}

fn undelete(bed: &Bed, from: &EndedView, to: &str) -> Ino {
    let call = Call::Undelete { ino: from.ino, version: from.version, to: to.into() };
    match bed.call(call) {
        Reply::File(view) => view.attr.ino,
        other => panic!("{other:?}"),
    }
}

fn deleted_and_overwritten_files_come_back(format: FormatRule) {
    let bed = Bed::with(|c| c.tape.format = format);
    let (first, second, gone) = (pattern(120_000, 1), pattern(90_000, 2), pattern(70_000, 3));
    let changed = bed.write("changed", &first);
    bed.write("gone", &gone);
    bed.migrate_and_purge();
    bed.read(changed);
    bed.settle();
    let opened = bed.open(changed, crate::support::WRITE);
    let (fd, handle) = (opened.backing.expect("it is on disk"), opened.handle);
    rustix::fs::ftruncate(&fd, second.len() as u64).unwrap();
    rustix::io::pwrite(&fd, &second, 0).unwrap();
    drop(fd);
    bed.node.release(handle);
    bed.node.unlink(&crate::support::cx(), Ino::ROOT, b"gone").unwrap();
    bed.migrate_and_purge();
    let all = ended(&bed, "/");
    assert_eq!(
        all.iter().map(|v| (v.path.to_string(), v.overwritten)).collect::<Vec<_>>(),
        [("/changed".to_owned(), true), ("/gone".to_owned(), false)]
    );
    let taken = Call::Undelete { ino: all[0].ino, version: all[0].version, to: b"/changed".to_vec() };
    assert!(bed.try_call(taken).unwrap_err().message.contains("name another place with --to"));
    let user = Cx::user(1000, 1000, crate::support::cx().now);
    let theirs = Call::Undelete { ino: all[1].ino, version: all[1].version, to: b"/mine".to_vec() };
    bed.node.call(&user, &mut node::Session::default(), theirs).expect_err("it is root's");
    let old = undelete(&bed, &all[0], "/changed.old");
    let back = undelete(&bed, &all[1], "/gone");
    assert_eq!(bed.stat("/gone").residency, Some(Residency::Offline));
    assert!(bed.read(old) == first && bed.read(back) == gone && bed.read(changed) == second);
    clean(&bed);
    let bed = bed.restart();
    assert_eq!((ended(&bed, "/"), copies(&bed, "/gone")), (Vec::new(), 2));
    // Once its volumes are emptied a version is gone.
    bed.node.unlink(&crate::support::cx(), Ino::ROOT, b"gone").unwrap();
    let volumes = bed.volumes_of("/changed");
    assert_eq!(ended(&bed, "/gone").len(), 1);
    for volume in volumes {
        assert_eq!(bed.act(repack(&[volume])).state, RequestState::Done);
    }
    assert_eq!(ended(&bed, "/"), []);
    assert!(bed.read(old) == first && bed.read(changed) == second);
    clean(&bed);
    bed.node.stop(true);
}

#[test]
fn deleted_and_overwritten_files_come_back_until_their_volume_is_emptied() {
    deleted_and_overwritten_files_come_back(FormatRule::Ltfs);
}

#[test]
fn deleted_and_overwritten_files_come_back_from_volumes_without_partitions() {
    deleted_and_overwritten_files_come_back(FormatRule::AnsiTar);
}

#[test]
fn what_was_restored_comes_back_from_the_tapes_alone_in_both_formats() {
    for format in [FormatRule::Ltfs, FormatRule::AnsiTar] {
        let bed = Bed::with(|c| c.tape.format = format);
        let data = pattern(80_000, 5);
        bed.write("gone", &data);
        bed.write("stays", &pattern(1000, 6));
        bed.migrate_and_purge();
        bed.node.unlink(&crate::support::cx(), Ino::ROOT, b"gone").unwrap();
        let back = undelete(&bed, &ended(&bed, "/gone")[0], "/back");
        // It mounts all volumes, and has the indexes written.
        clean(&bed);
        assert!(bed.volumes().iter().all(|v| v.files == 0 || v.indexed_to >= v.append_block), "{format:?}");
        let mut config = bed.node.config().clone();
        bed.node.stop(true);
        drop(bed.node);
        let state = tempfile::tempdir().unwrap();
        config.library.path = Some(bed.dir.path().join("library"));
        config.state_dir = state.path().to_owned();
        let bed = Bed { node: Running::start(config), dir: bed.dir };
        assert_eq!(bed.act(Call::Rebuild).state, RequestState::Done);
        let found = bed.stat("/back");
        assert_eq!((found.attr.ino, found.file.unwrap().copies.len()), (back, 2), "{format:?}");
        assert!(bed.read(back) == data);
        bed.try_call(Call::Stat { path: b"/gone".to_vec() }).expect_err("it is another file by now");
        assert_eq!(ended(&bed, "/"), []);
        bed.node.stop(true);
        drop(state);
    }
}

#[test]
fn a_cartridge_that_cannot_tell_of_what_was_restored_from_it_is_named() {
    for format in [FormatRule::Ltfs, FormatRule::AnsiTar] {
        let bed = Bed::with(|c| c.tape.format = format);
        let data = pattern(80_000, 7);
        bed.write("gone", &data);
        bed.migrate_and_purge();
        let volumes = bed.volumes_of("/gone");
        bed.node.unlink(&crate::support::cx(), Ino::ROOT, b"gone").unwrap();
        clean(&bed);
        bed.until_dismounted();
        for volume in &volumes {
            bed.node.virtual_library().set_write_protect(volume.as_str(), true).unwrap();
        }
        let back = undelete(&bed, &ended(&bed, "/gone")[0], "/back");
        assert!(bed.read(back) == data, "{format:?}");
        bed.settle();
        let report = bed.check(true);
        assert_eq!(report.findings.len(), 2, "{format:?}: {report:?}");
        for finding in &report.findings {
            assert!(
                !finding.is_serious() && finding.problem.contains("before it was restored"),
                "{finding:?}"
            );
        }
        bed.node.stop(true);
    }
}

#[test]
fn a_volume_that_was_trusted_again_gets_its_index_from_a_check() {
    let bed = Bed::new();
    let data = pattern(200_000, 1);
    bed.write("f", &data);
    bed.write("gone", &pattern(1000, 2));
    bed.migrate_and_purge();
    let volume = volume_of(&bed, "/f", 0);
    bed.flip_a_bit_on(&volume, &data[1000..1032]);
    verify(&bed, std::slice::from_ref(&volume));
    bed.until("the copy is there again", |b| copies(b, "/f") == 2);
    verify(&bed, std::slice::from_ref(&volume));
    bed.node.unlink(&crate::support::cx(), Ino::ROOT, b"gone").unwrap();
    undelete(&bed, &ended(&bed, "/gone")[0], "/back");
    let now = || {
        let v = bed.volume(&volume);
        (v.state, v.by, v.indexed_to < v.append_block)
    };
    assert_eq!(now(), (VolumeState::ReadOnly, None, true));
    clean(&bed);
    assert_eq!(now(), (VolumeState::ReadOnly, None, false));
}
