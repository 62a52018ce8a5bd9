//! Sets of volumes between two sites: what is there after the import of some of them.

mod support;

use node::{Node, Size};
use std::fs;
use std::path::Path;
use support::{Bed, pattern};
use types::*;
use wire::{Call, ImportOrder};

fn site() -> Bed {
    Bed::with(|c| {
        c.library.cartridge_capacity = Size::mib(8);
        c.library.cartridges = 4;
        c.classes[0].copies = vec!["primary".into()];
    })
}

/// The cartridges of these barcodes go from one library to the other; both nodes begin anew.
fn carry(from: Bed, to: Bed, volumes: &[Barcode]) -> (Bed, Bed) {
    let stop = |bed: Bed| {
        let config = bed.node.config().clone();
        bed.node.stop(true);
        (config, bed.dir)
    };
    let [(there, there_dir), (here, here_dir)] = [from, to].map(stop);
    let cartridges = |dir: &Path| dir.join("library/cartridges");
    for volume in volumes {
        let [source, target] =
            [&there_dir, &here_dir].map(|dir| cartridges(dir.path()).join(volume.as_str()));
        fs::remove_dir_all(&target).unwrap();
        fs::create_dir(&target).unwrap();
        for entry in fs::read_dir(&source).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
        }
        let meta = |dir: &Path| dir.with_file_name(format!("{volume}.cartridge"));
        fs::copy(meta(&source), meta(&target)).unwrap();
    }
    let start = |(config, dir)| Bed { node: Node::start(config).unwrap(), dir };
    (start((there, there_dir)), start((here, here_dir)))
}

fn import(bed: &Bed, volumes: &[Barcode]) -> Request {
    let order = ImportOrder {
        volumes: volumes.to_vec(),
        into: Some(b"/theirs".to_vec()),
        pool: None,
        uids: Vec::new(),
        gids: Vec::new(),
    };
    bed.act(Call::Import(order))
}

#[test]
fn a_file_that_goes_on_on_a_volume_not_yet_imported_is_incomplete_and_says_what_to_import() {
    let (there, here) = (site(), site());
    let data = pattern(10 << 20, 1);
    there.write("large", &data);
    there.migrate_and_purge();
    let volumes = there.volumes_of("/large");
    let [first, second] = &volumes[..] else { panic!("on {volumes:?}") };
    let (_there, here) = carry(there, here, &volumes);
    assert_eq!(import(&here, std::slice::from_ref(first)).state, RequestState::Done);
    let findings = here.check(false).findings;
    assert!(findings.iter().all(|f| !f.serious), "{findings:#?}");
    let of_file = |f: &&Finding| f.subject.starts_with("/theirs/large");
    let found = findings.iter().find(of_file).expect("it is named");
    assert!(found.problem.contains("is incomplete") && found.problem.contains(first.as_str()), "{found:?}");
    assert!(found.remedy.contains(second.as_str()) && found.remedy.contains("--into"), "{found:?}");
    assert_eq!(import(&here, std::slice::from_ref(second)).state, RequestState::Done);
    assert!(!here.check(false).findings.iter().any(|f| of_file(&f)));
    assert!(here.read(here.stat("/theirs/large").attr.ino) == data);
}

fn is(bed: &Bed, volume: &Barcode) -> (VolumeState, String, Option<u32>) {
    let Volume { state, reason, by, .. } = bed.volume(volume);
    (state, reason, by)
}

#[test]
fn a_volume_that_comes_back_is_what_it_was_and_elsewhere_a_suspect_one_is_suspect() {
    let (there, here) = (site(), site());
    there.write("f", &pattern(1000, 1));
    there.migrate_and_purge();
    let volume = there.volumes_of("/f").remove(0);
    let one = || vec![volume.clone()];
    let set = |state, reason: &str| {
        there.call(Call::SetVolume { volumes: one(), state, reason: reason.into() });
    };
    let export = || there.act(Call::Export { volumes: one(), reason: "vault".into() });
    let exported_as = || match there.call(Call::ExportedAs(one())) {
        wire::Reply::ExportedAs(mut before) => before.remove(0),
        other => panic!("{other:?}"),
    };
    let states = [VolumeState::Full, VolumeState::ReadOnly, VolumeState::Suspect, VolumeState::Filling];
    for state in states {
        set(state, "as I say");
        let before = is(&there, &volume);
        assert_eq!(export().state, RequestState::Done);
        assert_eq!(export().state, RequestState::Done, "again, for the manifest");
        assert_eq!(there.volume(&volume).state, VolumeState::Exported);
        let kept = exported_as().map(|before| before.state);
        assert_eq!(kept, (state != VolumeState::Filling).then_some(state));
        assert_eq!(import(&there, &one()).state, RequestState::Done);
        if state == VolumeState::Filling {
            assert_eq!(there.volume(&volume).state, state);
        } else {
            assert_eq!(is(&there, &volume), before);
        }
    }
    set(VolumeState::Suspect, "it smells");
    assert_eq!(export().state, RequestState::Done);
    let was = vec![(volume.clone(), exported_as().unwrap())];
    let (_there, here) = carry(there, here, &one());
    let order = ImportOrder {
        volumes: one(),
        into: Some(b"/theirs".to_vec()),
        pool: None,
        uids: Vec::new(),
        gids: Vec::new(),
    };
    assert_eq!(here.act(Call::ImportAs(order, was)).state, RequestState::Done);
    let (state, reason, _) = is(&here, &volume);
    assert!(state == VolumeState::Suspect && reason.contains("it smells"), "{state}: {reason}");
}
