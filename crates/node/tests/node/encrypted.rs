//! Pools whose volumes the drives encrypt: from file to cartridge and back, with keys that change, are missing, or are all
//! that is left besides the cartridges.

use crate::support::{Bed, Running, config, pattern};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use types::*;
use wire::Call;

const SECRET: &[u8] = b"what only the owner may read ";

fn key_file(dir: &Path) -> PathBuf {
    dir.join("keys")
}

/// Keys by name, each with the pools that use it for new volumes.
fn write_keys(dir: &Path, keys: &[(&str, u8, &str)]) {
    let text: String = keys
        .iter()
        .map(|(name, byte, pools)| format!("{name} {} {pools}\n", format!("{byte:02x}").repeat(32)))
        .collect();
    let path = key_file(dir);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn bed(pools: &[&str]) -> Bed {
    let dir = tempfile::tempdir().unwrap();
    write_keys(dir.path(), &[("k1", 0x11, "*")]);
    let mut config = config(dir.path());
    config.encryption.keys = Some(format!("file:{}", key_file(dir.path()).display()));
    config.encryption.pools = pools.iter().map(ToString::to_string).collect();
    let node = node::Node::start(config).unwrap();
    Bed { dir, node: node.into() }
}

fn migrate(bed: &Bed, path: &str) -> RequestState {
    bed.wait(bed.begin(Call::Migrate(bed.one(path))).request.id).state
}

fn keys_of(bed: &Bed, path: &str) -> Vec<String> {
    bed.volumes_of(path).iter().map(|barcode| bed.volume(barcode).key).collect()
}

/// Whether some object of the cartridge holds these bytes.
fn holds(bed: &Bed, barcode: &Barcode, what: &[u8]) -> bool {
    let dir = bed.node.config().library_path().join("cartridges").join(barcode.as_str());
    let mut files = std::fs::read_dir(dir).unwrap().map(|e| std::fs::read(e.unwrap().path()).unwrap());
    files.any(|bytes| bytes.windows(what.len()).any(|w| w == what))
}

#[test]
fn volumes_of_a_pool_are_encrypted_and_those_of_others_are_not() {
    let bed = bed(&["primary"]);
    let data = SECRET.repeat(1000);
    let ino = bed.write("f", &data);
    assert_eq!(migrate(&bed, "/f"), RequestState::Done);
    let mut keys = keys_of(&bed, "/f");
    keys.sort();
    assert_eq!(keys, ["", "k1"]);
    for barcode in bed.volumes_of("/f") {
        let plain = bed.volume(&barcode).key.is_empty();
        assert_eq!(holds(&bed, &barcode, SECRET), plain, "{barcode}");
    }
    bed.purge("/f");
    assert!(bed.read(ino) == data);
}

#[test]
fn new_volumes_take_the_new_key_and_old_ones_are_still_read() {
    let bed = bed(&["primary", "second"]);
    let data = pattern(100_000, 1);
    let old = bed.write("old", &data);
    assert_eq!(migrate(&bed, "/old"), RequestState::Done);
    write_keys(bed.dir.path(), &[("k1", 0x11, "*"), ("k2", 0x22, "*")]);
    let volumes = bed.volumes_of("/old");
    bed.call(Call::SetVolume { volumes, state: VolumeState::ReadOnly, reason: "full enough".into() });
    let new = bed.write("new", &data);
    assert_eq!(migrate(&bed, "/new"), RequestState::Done);
    assert_eq!((keys_of(&bed, "/old"), keys_of(&bed, "/new")), (vec!["k1".into(); 2], vec!["k2".into(); 2]));
    for (path, ino) in [("/old", old), ("/new", new)] {
        bed.purge(path);
        assert!(bed.read(ino) == data, "{path}");
    }
}

#[test]
fn a_missing_key_is_named_with_its_volume_and_all_is_well_once_it_is_there() {
    let bed = bed(&["primary", "second"]);
    let data = pattern(100_000, 1);
    let ino = bed.write("f", &data);
    assert_eq!(migrate(&bed, "/f"), RequestState::Done);
    bed.purge("/f");
    let bed = bed.restart();
    write_keys(bed.dir.path(), &[("k2", 0x22, "*")]);
    bed.try_read(ino).unwrap_err();
    let warnings = bed.status().warnings.join("\n");
    let volume = bed.volumes_of("/f")[0].to_string();
    assert!(warnings.contains(&volume) && warnings.contains("key `k1`, which cannot be had"), "{warnings}");
    assert!(bed.drives().iter().all(|d| !matches!(d.status, DriveStatus::Suspect(_))), "{:?}", bed.drives());
    // Another key by that name is no better, and says so.
    write_keys(bed.dir.path(), &[("k1", 0x22, "*")]);
    bed.try_read(ino).unwrap_err();
    let warnings = bed.status().warnings.join("\n");
    assert!(warnings.contains("cannot read it with the key that it was given (key `k1`)"), "{warnings}");
    write_keys(bed.dir.path(), &[("k1", 0x11, "*")]);
    bed.until("it is read", |bed| bed.try_read(ino).is_ok_and(|bytes| bytes == data));
}

#[test]
fn nothing_is_written_in_plain_for_want_of_a_key() {
    let bed = bed(&["primary", "second"]);
    write_keys(bed.dir.path(), &[("k1", 0x11, "other")]);
    bed.write("f", &SECRET.repeat(100));
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request.id;
    bed.until("it says why", |bed| bed.status().warnings.iter().any(|w| w.contains("names no key for pool")));
    assert!(bed.drives().iter().all(|drive| drive.errors == 0), "it is no drive's fault: {:?}", bed.drives());
    let inside = bed.node.virtual_library().contents();
    assert!(!inside.iter().any(|(_, barcode)| holds(&bed, &Barcode::from(barcode.as_str()), SECRET)));
    write_keys(bed.dir.path(), &[("k1", 0x11, "*")]);
    assert_eq!(bed.wait(request).state, RequestState::Done);
    assert_eq!(keys_of(&bed, "/f"), ["k1", "k1"]);
}

#[test]
fn a_volume_labelled_before_its_pool_was_known_gets_the_key_of_the_pool() {
    let bed = bed(&["primary", "second"]);
    let volumes: Vec<Barcode> = ["TC0001L9", "TC0002L9"].map(Barcode::from).to_vec();
    let label = Call::Label { volumes: volumes.clone(), pool: None, force: false, key: None };
    assert_eq!(bed.wait(bed.begin(label).request.id).state, RequestState::Done);
    assert!(volumes.iter().all(|v| bed.volume(v).key.is_empty()));
    let data = SECRET.repeat(1000);
    let ino = bed.write("f", &data);
    assert_eq!(migrate(&bed, "/f"), RequestState::Done);
    assert_eq!(keys_of(&bed, "/f"), ["k1", "k1"]);
    assert!(bed.volumes_of("/f").iter().all(|v| !holds(&bed, v, SECRET)));
    bed.purge("/f");
    assert!(bed.read(ino) == data);
}

#[test]
fn a_pool_that_becomes_encrypted_leaves_its_plain_volumes_as_they_are() {
    let bed = bed(&[]);
    bed.write("f", b"in plain");
    assert_eq!(migrate(&bed, "/f"), RequestState::Done);
    let before = bed.volumes_of("/f");
    let mut config = bed.node.config().clone();
    bed.node.stop(true);
    drop(bed.node);
    config.encryption.pools = vec!["primary".into(), "second".into()];
    let bed = Bed { node: Running::start(config), dir: bed.dir };
    let ino = bed.write("g", SECRET);
    assert_eq!(migrate(&bed, "/g"), RequestState::Done);
    assert_eq!(keys_of(&bed, "/g"), ["k1", "k1"]);
    for volume in before.iter().map(|v| bed.volume(v)) {
        assert!(volume.state == VolumeState::Full && volume.reason.contains("not encrypted"), "{volume:?}");
    }
    bed.purge("/f");
    bed.purge("/g");
    assert!(bed.read(ino) == SECRET);
}

#[test]
fn a_lost_catalogue_comes_back_from_encrypted_cartridges_and_their_keys() {
    let bed = bed(&["primary", "second"]);
    let data = pattern(100_000, 3);
    bed.write("f", &data);
    assert_eq!(migrate(&bed, "/f"), RequestState::Done);
    let volumes = bed.volumes_of("/f");
    let mut config = bed.node.config().clone();
    bed.node.stop(true);
    drop(bed.node);
    let state = tempfile::tempdir().unwrap();
    config.library.path = Some(bed.dir.path().join("library"));
    config.state_dir = state.path().to_owned();
    let bed = Bed { node: Running::start(config), dir: bed.dir };
    assert_eq!(bed.wait(bed.begin(Call::Rebuild).request.id).state, RequestState::Done);
    assert!(volumes.iter().all(|v| bed.volume(v).key == "k1"), "the catalogue knows the keys' names again");
    let ino = bed.stat("/f").attr.ino;
    assert!(bed.read(ino) == data);
    bed.node.stop(true);
    drop(state);
}

#[test]
fn keys_are_named_for_a_pool_and_for_single_volumes() {
    let bed = bed(&[]);
    write_keys(bed.dir.path(), &[("k1", 0x11, ""), ("k2", 0x22, ""), ("k3", 0x33, "")]);
    let change = |key: &str| wire::PoolChange { key: Some(key.into()), ..wire::PoolChange::default() };
    let set = |pool: &str, key: &str| {
        let name = PoolName::from(pool);
        bed.try_call(Call::SetPool { name, create: false, change: change(key) })
    };
    let volume = Barcode::from("TC0001L9");
    let label = |key: &str| Call::Label {
        volumes: vec![volume.clone()],
        pool: Some(PoolName::from("second")),
        force: false,
        key: Some(key.into()),
    };
    for refused in [set("primary", "k9").map(drop), bed.try_call(label("k9")).map(drop)] {
        let refused = refused.unwrap_err();
        assert!(refused.message.contains("key `k9` cannot be had"), "{refused}");
    }
    set("primary", "k2").unwrap();
    assert_eq!(bed.wait(bed.begin(label("k3")).request.id).state, RequestState::Done);
    assert_eq!(bed.volume(&volume).key, "k3");
    let data = SECRET.repeat(1000);
    let ino = bed.write("f", &data);
    assert_eq!(migrate(&bed, "/f"), RequestState::Done);
    assert_eq!(keys_of(&bed, "/f"), ["k2", "k3"]);
    assert!(bed.volumes_of("/f").iter().all(|v| !holds(&bed, v, SECRET)));
    bed.purge("/f");
    let bed = bed.restart();
    assert!(bed.read(ino) == data);
    // The key of the pool goes: nothing is written in plain for want of it.
    write_keys(bed.dir.path(), &[("k3", 0x33, "")]);
    let volumes = bed.volumes_of("/f");
    bed.call(Call::SetVolume { volumes, state: VolumeState::ReadOnly, reason: "full enough".into() });
    bed.write("g", SECRET);
    let request = bed.begin(Call::Migrate(bed.one("/g"))).request.id;
    bed.until("it says why", |bed| bed.status().warnings.iter().any(|w| w.contains("no key for it")));
    write_keys(bed.dir.path(), &[("k2", 0x22, ""), ("k3", 0x33, "")]);
    // The other pool is not encrypted.
    assert_eq!(bed.wait(request).state, RequestState::Done);
    assert_eq!(keys_of(&bed, "/g"), ["k2", ""]);
}

#[test]
fn a_key_is_named_in_vain_where_there_is_no_source_of_keys() {
    let bed = Bed::new();
    let change = wire::PoolChange { key: Some("k1".into()), ..wire::PoolChange::default() };
    let call = Call::SetPool { name: PoolName::from("primary"), create: false, change };
    let refused = bed.try_call(call).unwrap_err();
    assert!(refused.message.contains("encryption.keys"), "{refused}");
}

#[test]
fn a_pool_tells_which_key_it_writes_with_and_how_many_of_its_volumes_are_away() {
    let bed = bed(&["primary"]);
    let key = |bed: &Bed, pool: &str| match bed.call(Call::PoolKeys) {
        wire::Reply::PoolKeys(keys) => keys.into_iter().find(|key| key.name.as_str() == pool).unwrap(),
        other => panic!("{other:?}"),
    };
    let primary = key(&bed, "primary");
    assert_eq!((primary.key.as_deref(), primary.by_configuration, primary.problem), (Some("k1"), true, None));
    assert_eq!((key(&bed, "second").key, key(&bed, "second").by_configuration), (None, false));
    let change = wire::PoolChange { key: Some("k1".into()), ..Default::default() };
    bed.call(Call::SetPool { name: "second".into(), create: false, change });
    assert_eq!(
        (key(&bed, "second").key.as_deref(), key(&bed, "second").by_configuration),
        (Some("k1"), false)
    );
    write_keys(bed.dir.path(), &[("k2", 0x22, "other")]);
    let [primary, second] = ["primary", "second"].map(|pool| key(&bed, pool));
    assert!(
        primary.problem.is_some_and(|why| why.contains("no key for pool primary"))
            && primary.by_configuration
    );
    assert!(second.problem.is_some_and(|why| why.contains("no key of this name")));
    assert_eq!(second.key.as_deref(), Some("k1"), "what was wanted");
    // Volumes that nobody can write to are not among those that take data.
    write_keys(bed.dir.path(), &[("k1", 0x11, "*")]);
    bed.write("f", b"data");
    assert_eq!(migrate(&bed, "/f"), RequestState::Done);
    let filling =
        |bed: &Bed| bed.status().pools.into_iter().find(|p| p.name.as_str() == "primary").unwrap().filling;
    assert_eq!((filling(&bed), key(&bed, "primary").absent), (1, 0));
    let barcode =
        bed.volumes_of("/f").into_iter().find(|v| bed.volume(v).pool == Some("primary".into())).unwrap();
    bed.until_dismounted();
    bed.call(Call::ExportCartridges(vec![barcode.clone()]));
    bed.node.virtual_library().remove(barcode.as_str()).unwrap();
    bed.until("it is away", |b| key(b, "primary").absent == 1);
    assert_eq!(filling(&bed), 0);
}
