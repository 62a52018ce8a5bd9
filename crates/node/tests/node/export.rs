//! Volumes on their way out of the library.

use crate::support::{Bed, pattern};
use types::*;
use wire::Call;

fn export(volumes: &[Barcode]) -> Call {
    Call::Export { volumes: volumes.to_vec(), reason: "to the vault".into() }
}

#[test]
fn an_export_is_a_request_says_how_far_it_is_and_outlives_a_restart() {
    let bed = Bed::with(|config| {
        // Drives that take their time, so that the request is met on its way.
        config.library.mechanics = "lto9".into();
        config.library.speed = 100.0;
    });
    let ino = bed.write("f", &pattern(100_000, 1));
    assert_eq!(bed.act(Call::Migrate(bed.one("/f"))).state, RequestState::Done);
    let volumes = bed.volumes_of("/f");
    let begun = bed.begin(export(&volumes));
    assert_eq!((begun.request.kind, begun.request.files_total), (RequestKind::Export, volumes.len() as u64));
    assert!(begun.estimate.is_some_and(|e| e.finish_p50_s > 0), "{begun:?}");
    let bed = bed.restart();
    let ended = bed.wait(begun.request.id);
    assert_eq!((ended.state, ended.files_done), (RequestState::Done, volumes.len() as u64), "{ended:?}");
    for barcode in &volumes {
        let v = bed.volume(barcode);
        assert_eq!((v.state, v.reason.as_str()), (VolumeState::Exported, "to the vault"));
        assert!(v.indexed_to >= v.append_block && v.by.is_some());
    }
    // Again: nothing is left to do, and nothing changes.
    assert_eq!(bed.act(export(&volumes)).state, RequestState::Done);
    assert!(volumes.iter().all(|barcode| bed.volume(barcode).state == VolumeState::Exported));
    // Copies on them count, but cannot be read.
    assert_eq!(bed.stat("/f").file.map(|f| f.copies.len()), Some(volumes.len()));
    bed.purge("/f");
    assert!(bed.try_read(ino).is_err());
}

#[test]
fn what_happens_to_a_volume_meanwhile_ends_its_export() {
    let bed = Bed::new();
    bed.write("f", &pattern(1000, 1));
    assert_eq!(bed.act(Call::Migrate(bed.one("/f"))).state, RequestState::Done);
    let volumes = bed.volumes_of("/f");
    // Blank ones hold nothing.
    let blank = bed.volumes().into_iter().find(|v| v.uuid.is_empty()).expect("a blank cartridge").barcode;
    let refused = bed.try_call(export(&[volumes[0].clone(), blank])).expect_err("it holds no files");
    assert!(refused.message.contains("nothing was changed"), "{}", refused.message);
    assert_eq!(bed.volume(&volumes[0]).state, VolumeState::Filling);
    let begun = bed.begin(export(&volumes[..1]));
    let state = VolumeState::Broken;
    bed.call(Call::SetVolume { volumes: volumes[..1].to_vec(), state, reason: "it fell".into() });
    let ended = bed.wait(begun.request.id);
    let done = ended.state == RequestState::Done;
    // Whoever came first; never both.
    assert_eq!(bed.volume(&volumes[0]).state, VolumeState::Broken);
    assert!(done || ended.message.contains("it fell"), "{ended:?}");
}
