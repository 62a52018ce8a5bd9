//! Pools that keep together what belongs together.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use support::{Bed, cx, pattern};
use types::api::FileApi;
use types::*;
use wire::{Call, PoolChange, Reply};

const MB: usize = 1 << 20;

/// Files of three owners in turn, one copy each.
fn bed(change: PoolChange) -> Bed {
    let bed = Bed::with(|c| c.classes[0].copies.truncate(1));
    bed.call(Call::SetPool { name: PoolName("primary".into()), create: false, change });
    for i in 0..12 {
        let ino = bed.write(&format!("f{i}"), &pattern(MB, i));
        let owner = SetAttr { uid: Some(owner_of(i)), ..SetAttr::default() };
        bed.node.setattr(&cx(), ino, &owner).unwrap();
    }
    bed
}

fn owner_of(i: u64) -> u32 {
    1000 + (i % 3) as u32
}

/// Owners on each volume.
fn owners(bed: &Bed) -> BTreeMap<Barcode, BTreeSet<u32>> {
    let mut found: BTreeMap<Barcode, BTreeSet<u32>> = BTreeMap::new();
    for i in 0..12 {
        for volume in bed.volumes_of(&format!("/f{i}")) {
            found.entry(volume).or_default().insert(owner_of(i));
        }
    }
    found
}

#[test]
fn every_owner_has_volumes_of_his_own_also_after_a_restart_and_an_order_to_label() {
    let by_owner = PoolChange { collocate: Some(Collocate::Owner), ..PoolChange::default() };
    let mut bed = bed(by_owner);
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let first = owners(&bed);
    assert!(first.len() == 3 && first.values().all(|owners| owners.len() == 1), "{first:?}");
    for volume in bed.volumes().iter().filter(|v| v.files > 0) {
        let owner = first[&volume.barcode].first().unwrap();
        assert_eq!(volume.family, Some(format!("uid {owner}")));
        assert_eq!(volume.pool, Some("primary".into()));
    }
    bed = bed.restart();
    bed.write("f3", &pattern(2 * MB, 77));
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    assert_eq!(owners(&bed), first, "the volume of its owner takes it");
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn when_a_pool_has_no_volume_for_a_family_it_shares_those_of_others() {
    let change =
        PoolChange { collocate: Some(Collocate::Owner), max_volumes: Some(2), ..PoolChange::default() };
    let bed = bed(change);
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let found = owners(&bed);
    assert_eq!(found.len(), 2, "{found:?}");
    let Reply::Pools(pools) = bed.call(Call::Pools) else { panic!("no pools") };
    assert!(pools.iter().any(|p| (p.volumes, p.collocate) == (2, Collocate::Owner)), "{pools:?}");
    assert_eq!(bed.check(true).findings, []);
}

fn every_owner_keeps_his_volumes_when_the_catalogue_is_lost(format: FormatRule) {
    let by_owner =
        PoolChange { collocate: Some(Collocate::Owner), format: Some(format), ..PoolChange::default() };
    let bed = bed(by_owner);
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let (first, families) = (owners(&bed), families(&bed));
    assert_eq!(families.len(), 3, "{families:?}");
    let mut config = bed.node.config().clone();
    bed.node.stop(true);
    drop(bed.node);
    let state = tempfile::tempdir().unwrap();
    config.library.path = Some(bed.dir.path().join("library"));
    config.state_dir = state.path().to_owned();
    let bed = Bed { node: node::Node::start(config).unwrap(), dir: bed.dir };
    assert_eq!(bed.act(Call::Rebuild).state, RequestState::Done);
    assert_eq!(self::families(&bed), families);
    bed.write("f3", &pattern(2 * MB, 77));
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    assert_eq!(owners(&bed), first, "the volume of its owner takes it");
    bed.node.stop(true);
    drop(state);
}

fn families(bed: &Bed) -> BTreeMap<Barcode, String> {
    bed.volumes().into_iter().filter_map(|v| Some((v.barcode, v.family?))).collect()
}

#[test]
fn families_come_back_from_the_tapes() {
    every_owner_keeps_his_volumes_when_the_catalogue_is_lost(FormatRule::Ltfs);
}

#[test]
fn families_come_back_from_tapes_without_partitions() {
    every_owner_keeps_his_volumes_when_the_catalogue_is_lost(FormatRule::AnsiTar);
}
