//! Cartridges that can be written once: pools of their own, labelled once, appended to, emptied but never scratch again.

use crate::support::{Bed, Running, config, pattern};
use node::Node;
use types::api::FileApi;
use types::*;
use vtl::{Device, Fault};
use wire::{Call, PoolChange, Reply, VolumeChoice};

/// All cartridges are of WORM medium, and so are both pools.
fn bed() -> Bed {
    Bed::with(|c| {
        c.library.media = "LZ".into();
        c.library.cartridges = 4;
        c.pools.iter_mut().for_each(|pool| pool.worm = true);
        c.tape.drive_retry_s = 1;
    })
}

fn label(volume: &Barcode, pool: Option<&str>, force: bool) -> Call {
    Call::Label { volumes: vec![volume.clone()], pool: pool.map(PoolName::from), force, key: None }
}

/// Names and bytes of what lies on a cartridge.
fn objects(bed: &Bed, volume: &Barcode) -> Vec<(String, Vec<u8>)> {
    let dir = bed.node.config().library_path().join("cartridges").join(volume.as_str());
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap());
    let named = entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()));
    named.filter(|(name, _)| name.ends_with("_R") || name.ends_with("_F")).collect()
}

fn written(bed: &Bed, from: u64, to: u64) -> Vec<(Ino, String, Vec<u8>)> {
    let one = |n: u64| {
        let (name, data) = (format!("f{n}"), pattern(40_000 * n as usize + 10, n));
        (bed.write(&name, &data), format!("/{name}"), data)
    };
    (from..to).map(one).collect()
}

fn clean(bed: &Bed) {
    bed.settle();
    let report = bed.check(true);
    assert_eq!(report.findings, [], "{report:?}");
}

#[test]
fn files_go_to_worm_media_and_come_back_and_nothing_on_them_is_ever_replaced() {
    let bed = bed();
    let mut files = written(&bed, 1, 4);
    bed.migrate_and_purge();
    let volume = bed.volumes_of("/f1").remove(0);
    let before = objects(&bed, &volume);
    let bed = bed.restart();
    files.extend(written(&bed, 4, 7));
    bed.migrate_and_purge();
    assert!(bed.volumes_of("/f5").contains(&volume), "it is appended to");
    let known = bed.volume(&volume);
    assert!(known.worm && known.format == VolumeFormat::AnsiTar, "{known:?}");
    let after = objects(&bed, &volume);
    assert!(before.iter().all(|object| after.contains(object)), "something on it was replaced");
    assert!(files.iter().all(|(ino, _, data)| bed.read(*ino) == *data));
    clean(&bed);
    let refused = bed.try_call(label(&volume, Some("primary"), true)).unwrap_err();
    assert!(refused.message.contains("still needed"), "{refused}");
}

#[test]
fn power_failures_in_the_middle_of_sections_cost_tape_only() {
    let bed = bed();
    let mut files = written(&bed, 1, 3);
    bed.migrate_and_purge();
    for nth in [2, 5, 7, 11, 14, 16, 18] {
        let first = files.len() as u64 + 1;
        files.extend(written(&bed, first, first + 1));
        for drive in [0, 1] {
            let (device, then) = (Device::Drive(drive), Box::new(Fault::PowerLoss { drive }));
            bed.node.virtual_library().inject(Fault::At { device, opcode: 0x0A, nth, then });
        }
        bed.migrate_and_purge();
    }
    bed.node.virtual_library().clear_faults();
    assert!(bed.drives().iter().map(|d| d.errors).sum::<u64>() > 2, "faults were met: {:?}", bed.drives());
    assert!(files.iter().all(|(ino, _, data)| bed.read(*ino) == *data));
    clean(&bed);
    rebuilt(bed, &files);
}

/// The catalogue is lost; what the cartridges tell is all of it.
fn rebuilt(bed: Bed, files: &[(Ino, String, Vec<u8>)]) {
    let mut config = bed.node.config().clone();
    let volumes = bed.volumes_of("/f1");
    bed.node.stop(true);
    drop(bed.node);
    let state = tempfile::tempdir().unwrap();
    config.library.path = Some(bed.dir.path().join("library"));
    config.state_dir = state.path().to_owned();
    config.tape.auto_label = false;
    config.pools.clear();
    config.classes[0].copies.clear();
    let bed = Bed { node: Running::start(config), dir: bed.dir };
    assert_eq!(bed.wait(bed.begin(Call::Rebuild).request.id).state, RequestState::Done);
    for (_, path, data) in files {
        let ino = bed.stat(path).attr.ino;
        assert!(bed.read(ino) == *data, "{path}");
    }
    assert!(volumes.iter().all(|v| bed.volume(v).worm));
    let Reply::Pools(pools) = bed.call(Call::Pools) else { panic!("no pools") };
    assert!(pools.len() == 2 && pools.iter().all(|pool| pool.worm), "{pools:?}");
    let more = pattern(90_000, 77);
    let ino = bed.write("more", &more);
    bed.call(Call::SetClass {
        name: "default".into(),
        change: wire::ClassChange {
            copies: Some(vec!["primary".into(), "second".into()]),
            ..wire::ClassChange::default()
        },
    });
    bed.migrate_and_purge();
    let used = bed.volumes_of("/more");
    assert!(
        used.iter().all(|v| volumes.contains(v)),
        "it goes on where it ended: {used:?} {:#?}",
        bed.volumes()
    );
    assert!(bed.read(ino) == more);
    clean(&bed);
    bed.node.stop(true);
    drop(state);
}

#[test]
fn an_emptied_volume_is_retired_and_never_labelled_again() {
    let bed = bed();
    let files = written(&bed, 1, 4);
    bed.migrate_and_purge();
    let volume = bed.volumes_of("/f1").remove(0);
    let before = objects(&bed, &volume);
    let volumes = VolumeChoice::These(vec![volume.clone()]);
    let request = bed.act(Call::Repack { volumes, dead_percent: None, generation: None });
    assert_eq!(request.state, RequestState::Done, "{request:?}");
    let after = bed.volume(&volume);
    assert_eq!((after.state, after.live_files), (VolumeState::Retired, 0));
    assert!(after.reason.contains("WORM"), "{}", after.reason);
    assert!(
        files
            .iter()
            .all(|(ino, path, data)| { !bed.volumes_of(path).contains(&volume) && bed.read(*ino) == *data })
    );
    for (pool, force) in [(Some("primary"), true), (Some("primary"), false), (None, true)] {
        let refused = bed.try_call(label(&volume, pool, force)).unwrap_err();
        assert!(refused.message.contains("WORM"), "{refused}");
    }
    let after = objects(&bed, &volume);
    assert!(before.iter().all(|object| after.contains(object)));
}

#[test]
fn worm_cartridges_and_others_go_only_to_pools_of_their_kind() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.library.cartridges = 2;
    config.library.import_export = 2;
    let node = Node::start(config).unwrap();
    let bed = Bed { dir, node: node.into() };
    let (worm, other) = (Barcode::from("TC0009LZ"), Barcode::from("TC0002L9"));
    // One whose barcode does not tell.
    let hidden = Barcode::from("TC0010L9");
    for barcode in [&worm, &hidden] {
        bed.node.virtual_library().create_worm_cartridge(barcode.as_str(), 64 << 20).unwrap();
        bed.node.virtual_library().insert(barcode.as_str()).unwrap();
    }
    bed.call(Call::Inventory { library: None, audit: true });
    let change = PoolChange { worm: Some(true), ..PoolChange::default() };
    let records = PoolName::from("records");
    bed.call(Call::SetPool { name: records.clone(), create: true, change: change.clone() });
    for (volume, pool, why) in [
        (&worm, None, "say for which pool"),
        (&worm, Some("primary"), "only media that can be rewritten"),
        (&other, Some("records"), "WORM media only"),
    ] {
        let refused = bed.try_call(label(volume, pool, false)).unwrap_err();
        assert!(refused.message.contains(why), "{refused}");
    }
    let request = bed.act(label(&hidden, Some("primary"), false));
    assert_eq!(request.state, RequestState::Failed);
    assert!(request.message.contains("it is of WORM medium"), "{}", request.message);
    assert!(bed.volume(&hidden).worm, "the drive has said so");
    let data = pattern(100_000, 1);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    assert!(bed.volumes_of("/f").iter().all(|v| !bed.volume(v).worm), "{:?}", bed.volumes_of("/f"));
    assert!(bed.read(ino) == data);
    bed.node.unlink(&crate::support::cx(), Ino::ROOT, b"f").unwrap();
    bed.call(Call::SetClass {
        name: "default".into(),
        change: wire::ClassChange { copies: Some(vec![records.clone()]), ..wire::ClassChange::default() },
    });
    let ino = bed.write("g", &data);
    bed.migrate_and_purge();
    assert!(bed.volumes_of("/g").iter().all(|v| bed.volume(v).worm));
    assert!(bed.read(ino) == data);
    let change = PoolChange { worm: Some(false), ..PoolChange::default() };
    let refused = bed.try_call(Call::SetPool { name: records, create: false, change }).unwrap_err();
    assert!(refused.message.contains("make another pool"), "{refused}");
}
