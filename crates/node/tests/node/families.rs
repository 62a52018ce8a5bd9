//! Pools that keep together what belongs together.

use crate::support::{Bed, Running, cx, pattern};
use node::Size;
use std::collections::{BTreeMap, BTreeSet};
use types::api::FileApi;
use types::*;
use wire::{Call, PoolChange, QuotaChange, Reply};

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

/// Sixteen files in which owner, group, class and directory have nothing to do with each other, and by which of the four each
/// rule is to tell them apart.
#[test]
fn each_rule_keeps_together_what_it_names_and_nothing_else() {
    let bit = |i: u64, n: u64| (i >> n) & 1;
    let rules: [(Collocate, u64, [&str; 2]); 4] = [
        (Collocate::Owner, 0, ["uid 1000", "uid 1001"]),
        (Collocate::Group, 1, ["gid 2000", "gid 2001"]),
        (Collocate::Class, 2, ["default", "other"]),
        (Collocate::Directory(1), 3, ["d0", "d1"]),
    ];
    for (rule, decides, names) in rules {
        let bed = Bed::in_memory(|c| {
            c.classes[0].copies.truncate(1);
            let other = node::config::ClassConfig { name: "other".into(), ..c.classes[0].clone() };
            c.classes.push(other);
        });
        let change = PoolChange { collocate: Some(rule), ..PoolChange::default() };
        bed.call(Call::SetPool { name: PoolName("primary".into()), create: false, change });
        let dirs =
            ["d0", "d1"].map(|name| bed.node.mkdir(&cx(), Ino::ROOT, name.as_bytes(), 0o755).unwrap().ino);
        for i in 0..16 {
            let name = format!("f{i}");
            let ino = bed.write(&name, &pattern(10_000, i));
            let (uid, gid) = (1000 + bit(i, 0) as u32, 2000 + bit(i, 1) as u32);
            let who = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
            bed.node.setattr(&cx(), ino, &who).unwrap();
            if bit(i, 2) == 1 {
                let path = format!("/{name}").into_bytes();
                bed.call(Call::AssignClass { path, class: ClassName::from("other") });
            }
            let dir = dirs[bit(i, 3) as usize];
            let (from, to) = ((Ino::ROOT, name.as_bytes()), (dir, name.as_bytes()));
            bed.node.rename(&cx(), from, to, RenameMode::Replace).unwrap();
        }
        assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
        let mut used = BTreeSet::new();
        for i in 0..16 {
            let on = bed.volumes_of(&format!("/d{}/f{i}", bit(i, 3)));
            let families: Vec<_> = on.iter().map(|volume| bed.volume(volume).family).collect();
            assert_eq!(families, [Some(names[bit(i, decides) as usize].to_owned())], "{rule:?}: f{i}");
            used.extend(on);
        }
        assert_eq!(used.len(), 2, "{rule:?}: one volume for each");
        bed.node.stop(true); // each that goes on holds a thousand files open
    }
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

#[test]
fn who_has_as_many_volumes_as_he_may_shares_those_of_nobody() {
    // Some 11 MiB on each: what an owner has goes to two or three.
    let bed = Bed::with(|c| {
        c.classes[0].copies.truncate(1);
        c.library.cartridge_capacity = Size::mib(16);
    });
    let by_owner = PoolChange { collocate: Some(Collocate::Owner), ..PoolChange::default() };
    bed.call(Call::SetPool { name: PoolName("primary".into()), create: false, change: by_owner });
    let one = QuotaChange { volumes: Some(1), ..QuotaChange::default() };
    for uid in [1000, 1001] {
        bed.call(Call::SetQuota { uid: Some(uid), change: Some(one.clone()) });
    }
    for i in 0..12 {
        let ino = bed.write(&format!("f{i}"), &pattern(5 * MB, i));
        let owner = SetAttr { uid: Some(owner_of(i)), ..SetAttr::default() };
        bed.node.setattr(&cx(), ino, &owner).unwrap();
    }
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done, "nothing waits for a limit");
    let of = |uid| families(&bed).values().filter(|family| **family == format!("uid {uid}")).count();
    assert_eq!((of(1000), of(1001)), (1, 1));
    assert!(of(1002) > 1, "he has no limit");
    let nobodys: BTreeSet<u32> = {
        let families = families(&bed);
        let shared = owners(&bed).into_iter().filter(|(volume, _)| !families.contains_key(volume));
        shared.flat_map(|(_, owners)| owners).collect()
    };
    assert_eq!(nobodys, BTreeSet::from([1000, 1001]), "he who has no limit needs none of these");
    let Reply::Quotas(views) = bed.call(Call::Quotas) else { panic!("no quotas") };
    let shown: Vec<_> = views.iter().map(|v| (v.quota.uid, v.quota.volumes, v.volumes)).collect();
    assert_eq!(shown, [(Some(1000), 1, 1), (Some(1001), 1, 1)]);
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn a_pool_that_keeps_owners_apart_says_so_when_it_is_full_and_goes_on_when_it_may_grow() {
    // A volume is full of files, not of bytes: of these it is certain beforehand how many it takes. A file that is larger than what
    // is left waits if the drive begins it before the others are recorded, and is refused after that.
    let bed = Bed::with(|c| {
        c.classes[0].copies.truncate(1);
        c.tape.max_files_per_volume = 3;
    });
    let set = |max_volumes| {
        let change = PoolChange {
            collocate: Some(Collocate::Owner),
            max_volumes: Some(max_volumes),
            ..PoolChange::default()
        };
        bed.call(Call::SetPool { name: PoolName("primary".into()), create: false, change });
    };
    set(1);
    for i in 0..4 {
        bed.write(&format!("f{i}"), &pattern(100_000, i));
    }
    let request = bed.begin(Call::Migrate(bed.all()));
    bed.until("somebody is told", |b| {
        b.status()
            .warnings
            .iter()
            .any(|w| w.contains("pool primary has as many volumes as it may and all are full"))
    });
    set(0);
    let request = bed.wait(request.request.id);
    assert_eq!(request.state, RequestState::Done, "{:?}", bed.items(request.id));
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
    let bed = Bed { node: Running::start(config), dir: bed.dir };
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
