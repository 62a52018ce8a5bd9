//! Sets of volumes between two sites: what is there after the import of some of them.

use crate::support::{Bed, Running, pattern};
use node::Size;
use std::fs;
use std::path::Path;
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
    let start = |(config, dir)| Bed { node: Running::start(config), dir };
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
    assert!(findings.iter().all(|f| !f.is_serious()), "{findings:#?}");
    let of_file = |f: &&Finding| f.subject.starts_with("/theirs/large");
    let found = findings.iter().find(of_file).expect("it is named");
    assert_eq!(found.grade, Grade::Incomplete, "{found:?}");
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

#[test]
fn an_import_that_comes_to_nothing_leaves_an_exported_volume_exported_and_says_why() {
    let bed = site();
    bed.write("f", &pattern(1000, 1));
    bed.migrate_and_purge();
    let volume = bed.volumes_of("/f").remove(0);
    let one = || vec![volume.clone()];
    let state = VolumeState::ReadOnly;
    bed.call(Call::SetVolume { volumes: one(), state, reason: "as I say".into() });
    let before = is(&bed, &volume);
    assert_eq!(bed.act(Call::Export { volumes: one(), reason: "vault".into() }).state, RequestState::Done);
    bed.until_dismounted();
    bed.call(Call::ExportCartridges(one()));
    bed.node.virtual_library().remove(volume.as_str()).unwrap();
    bed.until("it is missed", |b| {
        !b.node.virtual_library().contents().iter().any(|(_, b)| *b == volume.as_str())
    });
    for _ in 0..2 {
        let failed = import(&bed, &one());
        assert_eq!(failed.state, RequestState::Failed, "{failed:?}");
        let (state, reason, _) = is(&bed, &volume);
        assert_eq!(state, VolumeState::Exported, "{reason}");
        assert!(reason.starts_with("vault; its import failed: "), "{reason}");
        assert_eq!(reason.matches("failed").count(), 1, "{reason}");
    }
    bed.node.virtual_library().insert(volume.as_str()).unwrap();
    bed.call(Call::ImportCartridges(Vec::new()));
    assert_eq!(import(&bed, &one()).state, RequestState::Done);
    assert_eq!(is(&bed, &volume), before);
}

#[test]
fn a_second_import_elsewhere_enters_nothing_and_says_where_the_files_are() {
    let (there, here) = (site(), site());
    there.write("f", &pattern(1000, 1));
    there.migrate_and_purge();
    let volume = there.volumes_of("/f").remove(0);
    let (_there, here) = carry(there, here, std::slice::from_ref(&volume));
    let order = |dir: &str| {
        let (into, volumes) = (Some(dir.as_bytes().to_vec()), vec![volume.clone()]);
        Call::Import(ImportOrder { volumes, into, pool: None, uids: Vec::new(), gids: Vec::new() })
    };
    let into = |dir: &str| here.act(order(dir));
    assert_eq!(into("/theirs").state, RequestState::Done);
    assert_eq!(into("/theirs/").state, RequestState::Done, "the same once more");
    assert_eq!(into("").state, RequestState::Done, "they lie below the root too");
    for elsewhere in ["/other", "/the", "/theirs/g"] {
        let second = into(elsewhere);
        assert_eq!(second.state, RequestState::Failed, "{elsewhere}");
        let says = format!("its files lie below /theirs; nothing was entered below {elsewhere}: rename them");
        assert!(second.message.contains(&says), "{}", second.message);
    }
    assert!(here.try_call(Call::Stat { path: b"/other".to_vec() }).is_err());
    for file in ["/theirs/f", "/theirs/f/below"] {
        let refused = here.try_call(order(file)).expect_err("it is a file");
        assert!(refused.message.contains("not a directory"), "{}", refused.message);
    }
}
