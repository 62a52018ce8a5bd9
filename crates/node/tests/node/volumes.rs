//! Volumes: full, foreign, protected, labelled; files larger than one of them.

use crate::support::{Bed, Running, pattern};
use node::Size;
use types::*;
use wire::{Call, PoolChange, Reply, Selection};

const MB: usize = 1 << 20;

fn barcode(text: &str) -> Barcode {
    Barcode::from(text)
}

/// All cartridges behind the first few.
fn behind(bed: &Bed, keep: usize) -> Vec<Barcode> {
    let all: Vec<Barcode> = bed.volumes().into_iter().map(|v| v.barcode).collect();
    all.into_iter().skip(keep).collect()
}

#[test]
fn a_file_larger_than_a_cartridge_comes_back_whole() {
    let bed = Bed::with(|c| c.library.cartridge_capacity = Size::mib(24));
    let data = pattern(30 * MB, 5);
    let ino = bed.write("big", &data);
    bed.migrate_and_purge();
    assert!(bed.volumes_of("/big").len() >= 4, "{:?}", bed.volumes_of("/big"));
    assert!(bed.volumes().iter().all(|v| v.last_read.is_none()));
    assert!(bed.read(ino) == data);
    bed.settle();
    bed.until("the reading is noted", |b| b.volumes().iter().any(|v| v.last_read.is_some()));
    let report = bed.check(true);
    assert_eq!(report.findings, [], "{report:?}");
    let full = bed.volumes().into_iter().filter(|v| v.state == VolumeState::Full).count();
    assert!(full >= 2);
}

#[test]
fn when_all_cartridges_are_full_the_pool_is_named_and_data_stays_on_disk() {
    let bed = Bed::with(|c| {
        c.library.cartridge_capacity = Size::mib(16);
        c.library.cartridges = 2;
    });
    let files: Vec<Ino> = (0..8).map(|i| bed.write(&format!("f{i}"), &pattern(3 * MB, i))).collect();
    let request = bed.begin(Call::Migrate(bed.all())).request;
    bed.until("both pools are named", |b| {
        let warnings = b.status().warnings;
        ["primary", "second"].iter().all(|p| warnings.iter().any(|w| w.contains(p) && w.contains("full")))
    });
    assert_eq!(bed.request(request.id).request.state, RequestState::Active, "{:?}", bed.request(request.id));
    bed.act(Call::Purge(bed.all()));
    let offline = files
        .iter()
        .enumerate()
        .filter(|(i, _)| bed.stat(&format!("/f{i}")).residency == Some(Residency::Offline));
    let offline = offline.count();
    assert!((1..8).contains(&offline), "{offline}");
    for (i, ino) in files.iter().enumerate() {
        assert!(bed.read(*ino) == pattern(3 * MB, i as u64), "file {i}");
    }
    bed.call(Call::Cancel(request.id));
    bed.settle();
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn a_label_of_somebody_else_is_never_overwritten_without_force() {
    // One node labels the cartridges, another one (with an empty catalogue) finds them.
    let first = Bed::new();
    first.write("theirs", b"precious");
    assert_eq!(first.act(Call::Migrate(first.all())).state, RequestState::Done);
    let used: Vec<Barcode> = first.volumes_of("/theirs");
    first.node.stop(true);
    let library = first.node.config().library_path();
    let Bed { dir, node } = first;
    drop(node);
    let bed = Bed::with(|c| {
        c.library.path = Some(library);
        c.library.cartridges = 2;
    });
    for volume in &used {
        let request =
            bed.act(Call::Label { volumes: vec![volume.clone()], pool: None, force: false, key: None });
        assert_eq!(request.state, RequestState::Failed, "{request:?}");
        assert!(
            request.message.contains(volume.as_str()) && request.message.contains("--force"),
            "{request:?}"
        );
        assert_eq!(bed.volume(volume).state, VolumeState::Foreign);
    }
    let ino = bed.write("ours", b"elsewhere");
    bed.migrate_and_purge();
    assert_eq!(bed.read(ino), b"elsewhere");
    assert!(bed.volumes_of("/ours").iter().all(|v| !used.contains(v)));
    let forced =
        Call::Label { volumes: used.clone(), pool: Some(PoolName("primary".into())), force: true, key: None };
    assert_eq!(bed.act(forced).state, RequestState::Done);
    for volume in &used {
        let labelled = bed.volume(volume);
        assert_eq!((labelled.state, labelled.pool), (VolumeState::Filling, Some(PoolName("primary".into()))));
    }
    drop(dir);
}

#[test]
fn a_volume_in_use_is_not_labelled_and_nonsense_is_refused() {
    let bed = Bed::new();
    bed.write("f", b"data");
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let volume = bed.volumes_of("/f").remove(0);
    for force in [false, true] {
        let refused =
            bed.try_call(Call::Label { volumes: vec![volume.clone()], pool: None, force, key: None });
        assert!(refused.unwrap_err().message.contains(volume.as_str()));
    }
    let unknown = Call::Label { volumes: vec![barcode("XX9999L9")], pool: None, force: false, key: None };
    assert!(bed.try_call(unknown).unwrap_err().message.contains("XX9999L9"));
    let no_pool =
        Call::Label { volumes: Vec::new(), pool: Some(PoolName("nowhere".into())), force: false, key: None };
    assert!(bed.try_call(no_pool).unwrap_err().message.contains("nowhere"));
    let blank = bed.act(Call::Label { volumes: Vec::new(), pool: None, force: false, key: None });
    assert_eq!((blank.state, blank.files_total), (RequestState::Done, 6), "{blank:?}");
}

#[test]
fn protected_cartridges_are_read_but_not_written() {
    let bed = Bed::new();
    let ino = bed.write("f", b"data");
    bed.migrate_and_purge();
    bed.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
    let used = bed.volumes_of("/f");
    for volume in &used {
        bed.node.virtual_library().set_write_protect(volume.as_str(), true).unwrap();
    }
    let blank = behind(&bed, used.len() + 1).remove(0);
    bed.node.virtual_library().set_write_protect(blank.as_str(), true).unwrap();
    let request = bed.act(Call::Label { volumes: vec![blank.clone()], pool: None, force: false, key: None });
    assert_eq!(request.state, RequestState::Failed);
    assert!(request.message.contains("write protected"), "{request:?}");
    let other = bed.write("g", b"more");
    bed.migrate_and_purge();
    assert_eq!((bed.read(ino), bed.read(other)), (b"data".to_vec(), b"more".to_vec()));
    assert!(bed.volumes_of("/g").iter().all(|v| !used.contains(v)), "{:?}", bed.volumes_of("/g"));
    for volume in &used {
        assert_eq!(bed.volume(volume).state, VolumeState::ReadOnly);
    }
}

/// Stops the node, changes its catalogue, and starts it with another configuration.
fn restarted(
    bed: Bed,
    change: impl FnOnce(&catalog::Catalog),
    configure: impl FnOnce(&mut node::Config),
) -> Bed {
    let mut config = bed.node.config().clone();
    bed.node.stop(true);
    let Bed { dir, node } = bed;
    drop(node);
    let engine = kv::LmdbEngine::open(&dir.path().join("catalog"), kv::LmdbOptions::default()).unwrap();
    let catalog = catalog::Catalog::open(std::sync::Arc::new(engine), crate::support::cx().now).unwrap();
    change(&catalog);
    drop(catalog);
    configure(&mut config);
    Bed { node: Running::start(config), dir }
}

#[test]
fn a_label_that_a_crash_kept_from_being_recorded_is_still_ours() {
    let bed = Bed::with(|c| c.library.cartridges = 2);
    let all = bed.act(Call::Label { volumes: Vec::new(), pool: None, force: false, key: None });
    assert_eq!((all.state, all.files_total), (RequestState::Done, 2));
    let as_after_a_crash = |catalog: &catalog::Catalog| {
        // Between the writing of a label and its record.
        for labelled in catalog.volumes().unwrap() {
            let blank = Volume {
                state: VolumeState::Unknown,
                uuid: String::new(),
                labelled: None,
                append_block: 0,
                indexed_to: 0,
                ..labelled.clone()
            };
            catalog.put_volume(&blank).unwrap();
            catalog.intend_label(&labelled.barcode, &labelled.uuid).unwrap();
        }
    };
    let bed = restarted(bed, as_after_a_crash, |_| ());
    let ino = bed.write("f", b"data");
    bed.migrate_and_purge();
    assert_eq!(bed.read(ino), b"data");
}

#[test]
fn one_damaged_volume_record_keeps_out_that_volume_and_nothing_else() {
    let bed = Bed::new();
    let ino = bed.write("f", b"data");
    bed.migrate_and_purge();
    let [lost, good] = &bed.volumes_of("/f")[..] else { panic!("two copies") };
    bed.until_dismounted();
    bed.node.virtual_library().inject(vtl::Fault::RobotStuck);
    let these = || wire::VolumeChoice::These(vec![lost.clone()]);
    let asked = bed.begin(Call::Repack { volumes: these(), dead_percent: None, generation: None }).request.id;
    let config = bed.node.config().clone();
    bed.node.stop(true);
    let Bed { dir, node } = bed;
    drop(node);
    {
        let engine = kv::LmdbEngine::open(&dir.path().join("catalog"), kv::LmdbOptions::default()).unwrap();
        let key = [&[0x30, 0][..], lost.as_str().as_bytes()].concat();
        let mut damage = |w: &mut dyn kv::Writer| w.put(&key, &[3, 9, b'T']);
        kv::Engine::write_dyn(&engine, kv::Durability::Durable, &mut damage).unwrap();
    }
    let bed = Bed { node: Running::start(config), dir };
    // It is listed, with what to do; what was asked for before has ended, and nothing new is begun.
    let listed = bed.volumes().into_iter().find(|v| v.barcode == *lost).expect("it is listed");
    assert!(listed.state == VolumeState::Broken, "{listed:?}");
    for part in ["damaged: its record", "catalog restore"] {
        assert!(listed.reason.contains(part), "{listed:?}");
    }
    let RequestState::Failed = bed.wait(asked).state else { panic!("{:?}", bed.request(asked)) };
    assert!(matches!(&bed.items(asked)[..], [ItemState::Failed(why)] if why.contains("damaged: its record")));
    let repack = |these| Call::Repack { volumes: these, dead_percent: None, generation: None };
    let refused = bed.try_call(repack(wire::VolumeChoice::These(vec![lost.clone()]))).unwrap_err();
    assert!(refused.message.contains("damaged: its record"), "{refused}");
    assert_eq!(bed.read(ino), b"data", "from {good}");
    let named = |text: &str| text.contains(lost.as_str()) && text.contains("out of use");
    assert!(bed.status().warnings.iter().any(|w| named(w)), "{:?}", bed.status().warnings);
    assert!(bed.check(false).findings.iter().any(|f| f.is_serious() && named(&f.problem)));
    // The keeper goes on, and so does writing.
    let verify = Call::Verify(wire::VolumeChoice::These(vec![good.clone()]));
    assert_eq!(bed.act(verify).state, RequestState::Done);
    let other = bed.write("g", b"more");
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let purge = |path: &[u8]| Call::Purge(Selection { paths: vec![path.to_vec()], recursive: false });
    assert_eq!(bed.act(purge(b"/g")).state, RequestState::Done);
    assert_eq!(bed.act(purge(b"/f")).state, RequestState::Failed, "who knows whether it has its copies");
    assert!(bed.volumes_of("/g").len() == 2 && !bed.volumes_of("/g").contains(lost));
    assert_eq!(bed.read(other), b"more");
}

#[test]
fn empty_volumes_left_in_the_drives_give_way_to_those_of_the_pools() {
    let bed = Bed::with(|c| c.tape.idle_unmount_s = 3600);
    bed.write("first", b"one");
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    let labelled = bed.act(Call::Label { volumes: Vec::new(), pool: None, force: false, key: None });
    assert_eq!(labelled.state, RequestState::Done, "{labelled:?}");
    bed.write("second", b"two");
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
}

#[test]
fn cartridges_that_an_operator_puts_in_are_there_at_the_next_move() {
    let bed = Bed::with(|c| c.library.cartridges = 1);
    let library = bed.node.virtual_library().clone();
    library.create_cartridge("NEW001L9", 64 << 20).unwrap();
    library.insert("NEW001L9").unwrap();
    let ino = bed.write("f", b"data");
    bed.migrate_and_purge();
    assert!(bed.volumes_of("/f").contains(&barcode("NEW001L9")), "{:?}", bed.volumes_of("/f"));
    assert_eq!(bed.read(ino), b"data");
}

#[test]
fn an_operator_takes_volumes_out_of_use_and_back() {
    let bed = Bed::new();
    let ino = bed.write("f", b"data");
    bed.migrate_and_purge();
    let used = bed.volumes_of("/f");
    let order = |volumes: &[Barcode], state| Call::SetVolume {
        volumes: volumes.to_vec(),
        state,
        reason: "to the vault".into(),
    };
    let user = Cx { uid: 12345, ..crate::support::cx() };
    let refused = bed.node.call(&user, &mut node::Session::default(), order(&used, VolumeState::Exported));
    assert_eq!(refused.map(|a| a.reply).unwrap_err().class, ErrorClass::Denied);
    let retired = bed.try_call(order(&used, VolumeState::Retired)).unwrap_err();
    assert!(retired.message.contains("needed by current files"), "{retired:?}");
    assert!(bed.try_call(order(&[barcode("NOSUCHL9")], VolumeState::Full)).is_err());

    // The other copy serves.
    bed.call(order(&used[..1], VolumeState::Exported));
    let shown = bed.volume(&used[0]);
    assert_eq!((shown.by, shown.reason.as_str()), (Some(crate::support::cx().uid), "to the vault"));
    assert_eq!(bed.read(ino), b"data");
    bed.settle();
    bed.until("it was read there", |b| b.volume(&used[1]).last_read.is_some());
    assert_eq!(bed.volume(&used[0]).last_read, None);
    bed.purge("/f");
    bed.call(order(&used, VolumeState::Exported));
    assert!(bed.probe(ino).is_err());
    bed.settle();

    // Nothing is written to them before they are filling again.
    let other = bed.write("g", b"more");
    assert_eq!(bed.act(Call::Migrate(bed.one("/g"))).state, RequestState::Done);
    assert!(bed.volumes_of("/g").iter().all(|v| !used.contains(v)), "{:?}", bed.volumes_of("/g"));
    bed.call(order(&used, VolumeState::Filling));
    assert_eq!((bed.read(ino), bed.read(other)), (b"data".to_vec(), b"more".to_vec()));
    assert!(used.iter().all(|v| bed.volume(v).last_verified.is_none()));
    assert_eq!(bed.check(true).findings, []);
    assert!(used.iter().all(|v| bed.volume(v).last_verified.is_some()));
}

#[test]
fn a_pool_takes_more_volumes_once_its_limit_is_raised_and_new_pools_are_made() {
    let bed = Bed::with(|c| {
        c.library.cartridge_capacity = Size::mib(24);
        c.pools[0].max_volumes = 1;
        c.classes[0].copies.truncate(1);
    });
    for i in 0..10 {
        bed.write(&format!("f{i}"), &pattern(3 * MB, i));
    }
    let first = bed.begin(Call::Migrate(bed.all()));
    bed.until("its only volume is full", |b| b.volumes().iter().any(|v| v.state == VolumeState::Full));
    bed.call(Call::Cancel(first.request.id));
    let set = |name: &str, create, max_volumes| {
        bed.try_call(Call::SetPool {
            name: PoolName(name.into()),
            create,
            change: PoolChange { max_volumes, ..PoolChange::default() },
        })
    };
    assert_eq!(set("primry", false, Some(2)).unwrap_err().class, ErrorClass::NotFound);
    assert_eq!(set("primary", true, Some(2)).unwrap_err().class, ErrorClass::Invalid);
    let volumes = |bed: &Bed| -> std::collections::BTreeSet<Barcode> {
        (0..10).flat_map(|i| bed.volumes_of(&format!("/f{i}"))).collect()
    };
    assert_eq!(volumes(&bed).len(), 1);
    set("primary", false, Some(2)).unwrap();
    let second = bed.act(Call::Migrate(bed.all()));
    assert_eq!(second.state, RequestState::Done, "{second:?}");
    assert_eq!(volumes(&bed).len(), 2);
    set("offsite", true, None).unwrap();
    let Reply::Pools(pools) = bed.call(Call::Pools) else { panic!("no pools") };
    let limits: Vec<_> = pools.iter().map(|p| (p.name.as_str(), p.max_volumes)).collect();
    assert_eq!(limits, [("offsite", 0), ("primary", 2), ("second", 0)]);
}

#[test]
fn a_pool_takes_no_more_bytes_than_it_may_says_why_and_goes_on_when_there_is_room_again() {
    let bed = Bed::with(|c| {
        c.pools[0].max_bytes = Size::mib(4);
        c.classes[0].copies.truncate(1);
        c.tape.flush_files = 1;
    });
    for i in 0..4 {
        bed.write(&format!("f{i}"), &pattern(3 * MB, i));
    }
    let request = bed.begin(Call::Migrate(bed.all()));
    let live = |b: &Bed| b.volumes().iter().map(|v| v.live).sum::<u64>();
    bed.until("the pool is as full as it may be", |b| live(b) > 4 * MB as u64);
    bed.until("somebody is told", |b| {
        let Reply::Status(status) = b.call(Call::Status) else { return false };
        status.warnings.iter().any(|w| w.contains("pool primary holds as many bytes as it may"))
    });
    assert_eq!(live(&bed), 6 * MB as u64, "the file that crosses the limit is the last");
    let change = PoolChange { max_bytes: Some(0), ..PoolChange::default() };
    bed.call(Call::SetPool { name: PoolName("primary".into()), create: false, change });
    bed.until("the rest is written", |b| live(b) == 12 * MB as u64);
    assert_eq!(bed.wait(request.request.id).state, RequestState::Done);
}

#[test]
fn a_volume_that_is_due_is_verified_while_it_is_in_a_drive_anyway() {
    let bed = Bed::with(|c| c.library.drives = 1);
    let ino = bed.write("f", &pattern(250_000, 1));
    bed.migrate_and_purge();
    let [here, other] = [0, 1].map(|copy| bed.volumes_of("/f").remove(copy));
    // Both are due in a while, counted from the start of the node, the one that nobody reads first, and so soon before the other that
    // nobody looks in between.
    let mut due = [(here.clone(), Time::default()), (other.clone(), Time::default())];
    let at =
        |due: &[(Barcode, Time)], volume: &Barcode| due.iter().find(|(b, _)| b == volume).map(|(_, at)| *at);
    let bed = restarted(
        bed,
        |catalog| {
            let due_secs = crate::support::cx().now.secs - 86_400 + 15;
            (due[0].1, due[1].1) = (Time::new(due_secs, 1), Time::new(due_secs, 0));
            for volume in catalog.volumes().unwrap() {
                let last_verified = at(&due, &volume.barcode);
                catalog.put_volume(&Volume { last_verified, ..volume }).unwrap();
            }
        },
        |c| {
            c.tape.verify_every_days = 1;
            c.tape.idle_unmount_s = 600;
        },
    );
    let at = |volume: &Barcode| at(&due, volume);
    assert!(bed.read(ino) == pattern(250_000, 1));
    let mounts = |bed: &Bed| [&here, &other].map(|v| bed.volume(v).mounts);
    let before = mounts(&bed);
    assert_eq!(bed.drives()[0].volume.as_ref(), Some(&here));
    assert_eq!(bed.volume(&here).last_verified, at(&here), "it is not due yet");
    let verified = |b: &Bed, v: &Barcode| b.volume(v).last_verified > at(v);
    bed.until("both are verified", |b| verified(b, &here) && verified(b, &other));
    assert_eq!(mounts(&bed), [before[0], before[1] + 1]);
}
