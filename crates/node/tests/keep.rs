//! What keeps data on tape in order: verify, repack, broken volumes.

mod support;

use node::Size;
use support::{Bed, pattern};
use types::*;
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
        use types::api::FileApi;
        bed.node.unlink(&support::cx(), Ino::ROOT, name(n).as_bytes()).unwrap();
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
        items.iter().map(|i| (i.path.as_str(), i.state.clone())).collect::<Vec<_>>(),
        [(format!("volume {volume}").as_str(), ItemState::Done)]
    );
    clean(&bed);
}
