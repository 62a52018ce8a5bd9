//! Several libraries in one node: each has its own robot, drives, slots and doors, and a bad one stops only itself.

use crate::support::{Bed, config, pattern};
use scsi::{Sense, SenseKey};
use types::*;
use vtl::{Device, Fault};
use wire::{Call, PoolChange, Reply};

const READ_ELEMENT_STATUS: u8 = 0xB8;

/// Two virtual libraries; the first copies go to one, the second ones to the other.
fn two(change: impl FnOnce(&mut node::Config)) -> Bed {
    let bed = Bed::with(|c| {
        c.library.count = 2;
        c.library.cartridges = 3;
        change(c);
    });
    bind(&bed, "primary", "virtual");
    bind(&bed, "second", "virtual-2");
    bed
}

fn bind(bed: &Bed, pool: &str, library: &str) {
    let change = PoolChange { library: Some(library.into()), ..PoolChange::default() };
    bed.call(Call::SetPool { name: PoolName::from(pool), create: false, change });
}

fn libraries(bed: &Bed, call: Call) -> Vec<LibraryView> {
    match bed.call(call) {
        Reply::Library(libraries) => libraries,
        other => panic!("{other:?}"),
    }
}

fn location(bed: &Bed, barcode: &Barcode) -> String {
    match bed.call(Call::Volume(barcode.clone())) {
        Reply::Volume(view) => view.location,
        other => panic!("{other:?}"),
    }
}

/// The copies of a file in the order of the libraries: barcodes of the first begin with TC, of the second with TD.
fn copies(bed: &Bed, path: &str) -> [Barcode; 2] {
    let mut volumes = bed.volumes_of(path);
    volumes.sort();
    volumes.try_into().unwrap()
}

#[test]
fn copies_go_to_the_libraries_of_their_pools_and_are_read_from_both() {
    let bed = two(|_| {});
    let data = pattern(200_000, 1);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    let [here, there] = copies(&bed, "/f");
    assert!(here.as_str().starts_with("TC") && there.as_str().starts_with("TD"), "{here}, {there}");
    assert!(bed.read(ino) == data);
    bed.settle();
    bed.until_dismounted();
    // The addresses are the same in both libraries; the names tell them apart.
    assert!(location(&bed, &here).starts_with("virtual slot 100"), "{}", location(&bed, &here));
    assert!(location(&bed, &there).starts_with("virtual-2 slot 100"), "{}", location(&bed, &there));
    let drives: Vec<_> = bed.drives().into_iter().map(|d| (d.drive.0, d.library, d.element)).collect();
    let expected = [(0, "virtual", 1), (1, "virtual", 2), (2, "virtual-2", 1), (3, "virtual-2", 2)];
    assert_eq!(drives, expected.map(|(no, name, element)| (no, name.to_owned(), element)));
    // Without the first copy it comes from the other library.
    let set = |state| Call::SetVolume { volumes: vec![here.clone()], state, reason: "test".into() };
    bed.call(set(VolumeState::Exported));
    bed.purge("/f");
    assert!(bed.read(ino) == data);
    assert!(bed.status().warnings.iter().all(|w| !w.contains("TC-")), "{:?}", bed.status().warnings);
    // A restart finds everything where it was.
    let bed = bed.restart();
    bed.call(set(VolumeState::Filling));
    assert!(bed.check(true).findings.is_empty(), "{:?}", bed.check(true).findings);
}

#[test]
fn a_pool_is_bound_to_a_library_that_there_is() {
    let bed = two(|_| {});
    let change = PoolChange { library: Some("hall-z".into()), ..PoolChange::default() };
    let call = Call::SetPool { name: PoolName::from("primary"), create: false, change };
    let refused = bed.try_call(call).unwrap_err();
    assert!(refused.message.contains("no library `hall-z`, but virtual, virtual-2"), "{}", refused.message);
    // Bound to one library, both copies go there; bound to none, anywhere.
    bind(&bed, "second", "virtual");
    bed.write("f", &pattern(10_000, 1));
    bed.act(Call::Migrate(bed.all()));
    assert!(bed.volumes_of("/f").iter().all(|v| v.as_str().starts_with("TC")), "{:?}", bed.volumes_of("/f"));
    bind(&bed, "second", "");
    let Reply::Pools(pools) = bed.call(Call::Pools) else { panic!("no pools") };
    let bound: Vec<_> = pools.into_iter().map(|p| p.library).collect();
    assert_eq!(bound, [Some("virtual".to_owned()), None]);
}

#[test]
fn a_library_that_is_dead_at_the_start_stops_only_itself_and_comes_back() {
    let bed = two(|c| c.tape.drive_retry_s = 1);
    let data = pattern(100_000, 7);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    let config = bed.node.config().clone();
    bed.node.stop(true);
    drop(bed.node);
    let library = node::Node::open_library(&config).unwrap();
    let sense = Sense::new(SenseKey::HardwareError, 0x44, 0x00);
    let fault = Fault::Answer { device: Device::Changer, opcode: READ_ELEMENT_STATUS, sense };
    library.inject(fault);
    let node = node::Node::start_with(config, library).unwrap();
    let bed = Bed { node: node.into(), dir: bed.dir };
    let first = libraries(&bed, Call::Library).remove(0);
    let out = first.out.is_some();
    if out {
        let suspect =
            |d: &DriveView| matches!(&d.status, DriveStatus::Suspect(why) if why.contains("library virtual"));
        assert!(bed.drives().iter().filter(|d| suspect(d)).count() == 2, "{:?}", bed.drives());
    }
    assert!(bed.read(ino) == data, "from the other library");
    bed.until("it is in use again", |b| libraries(b, Call::Library)[0].out.is_none());
    assert!(bed.status().warnings.iter().any(|w| w.contains("library virtual cannot be used: TC-D024")));
    bed.settle();
    let [_, there] = copies(&bed, "/f");
    bed.call(Call::SetVolume { volumes: vec![there], state: VolumeState::Exported, reason: "test".into() });
    bed.purge("/f");
    assert!(bed.read(ino) == data, "from the one that came back");
    assert!(bed.drives().iter().all(|d| !matches!(d.status, DriveStatus::Suspect(_))), "{:?}", bed.drives());
}

#[test]
fn a_robot_that_fails_stops_only_its_library() {
    let bed = two(|_| {});
    let files: Vec<(Ino, Vec<u8>)> = (0..3)
        .map(|n| {
            let data = pattern(50_000, n);
            (bed.write(&format!("f{n}"), &data), data)
        })
        .collect();
    bed.migrate_and_purge();
    bed.until_dismounted();
    for n in [0, 1] {
        bed.node.virtual_library_no(n).inject(Fault::RobotStuck);
        for (ino, data) in &files {
            assert!(bed.read(*ino) == *data, "library {n} is stuck");
        }
        bed.settle();
        for n in 0..3 {
            bed.purge(&format!("/f{n}"));
        }
        // What is written waits for the one library, and goes to the other.
        bed.node.virtual_library_no(n).clear_faults();
        bed.until_dismounted();
    }
    bed.write("g", b"new");
    assert_eq!(bed.act(Call::Migrate(bed.one("/g"))).state, RequestState::Done);
    assert_eq!(copies(&bed, "/g").len(), 2);
}

#[test]
fn doors_are_those_of_each_library() {
    let bed = two(|_| {});
    let volumes = ["TC0001L9", "TD0002L9"].map(Barcode::from);
    let views = libraries(&bed, Call::ExportCartridges(volumes.to_vec()));
    for (view, volume) in views.iter().zip(&volumes) {
        let door = view.elements.iter().find(|e| e.kind == ElementKind::ImportExport).unwrap();
        assert_eq!((door.barcode.as_ref(), door.outgoing), (Some(volume), true));
        assert!(location(&bed, volume).contains("import/export slot 101, to be taken out"));
    }
    for (n, volume) in volumes.iter().enumerate() {
        bed.node.virtual_library_no(n).remove(volume.as_str()).unwrap();
    }
    // What leaves one library may go into the other.
    let moved = volumes[0].as_str();
    let way = |n: usize| {
        bed.node.config().library_path().with_file_name(if n == 0 { "library" } else { "library-2" })
    };
    for suffix in ["", ".cartridge"] {
        let file = |n: usize| way(n).join("cartridges").join(format!("{moved}{suffix}"));
        std::fs::rename(file(0), file(1)).unwrap();
    }
    bed.node.virtual_library_no(1).insert(moved).unwrap();
    let views = libraries(&bed, Call::ImportCartridges(vec![volumes[0].clone()]));
    assert!(
        views[1]
            .elements
            .iter()
            .any(|e| e.kind == ElementKind::Slot && e.barcode.as_ref() == Some(&volumes[0]))
    );
    assert!(location(&bed, &volumes[0]).starts_with("virtual-2 slot"));
    let one = Call::Inventory { library: Some("virtual-2".into()), audit: true };
    assert_eq!(libraries(&bed, one).len(), 2);
    let none = Call::Inventory { library: Some("elsewhere".into()), audit: false };
    assert_eq!(bed.try_call(none).unwrap_err().class, ErrorClass::NotFound);
}

#[test]
fn a_library_that_does_not_answer_keeps_no_cartridge_in_another() {
    let bed = two(|_| {});
    let dead = |n: usize| {
        let sense = Sense::new(SenseKey::HardwareError, 0x44, 0x00);
        let fault = Fault::Answer { device: Device::Changer, opcode: READ_ELEMENT_STATUS, sense };
        bed.node.virtual_library_no(n).inject(fault);
    };
    let at_door = |barcode: &str| location(&bed, &Barcode::from(barcode)).contains("import/export slot");
    for (n, other) in [(0, "TD0001L9"), (1, "TC0001L9")] {
        dead(n);
        bed.call(Call::ExportCartridges(vec![Barcode::from(other)]));
        assert!(at_door(other));
    }
    dead(1);
    let refused = bed.try_call(Call::ExportCartridges(vec![Barcode::from("TD0002L9")])).unwrap_err();
    assert_eq!((refused.class, at_door("TD0002L9")), (ErrorClass::Library, false), "{}", refused.message);
    // All that lies at the doors comes in where somebody answers; who does not is named.
    dead(0);
    let refused = bed.try_call(Call::ImportCartridges(Vec::new())).unwrap_err();
    assert_eq!(refused.class, ErrorClass::Library, "{}", refused.message);
    assert!(at_door("TC0001L9") && !at_door("TD0001L9"));
    dead(1);
    bed.call(Call::ImportCartridges(vec![Barcode::from("TC0001L9")]));
    assert!(!at_door("TC0001L9"));
}

#[test]
fn a_barcode_that_two_libraries_have_is_used_in_neither() {
    let bed = two(|c| c.library.cartridges = 0);
    for n in [0, 1] {
        let library = bed.node.virtual_library_no(n);
        library.create_cartridge("XX0001L9", 64 << 20).unwrap();
        library.insert("XX0001L9").unwrap();
    }
    libraries(&bed, Call::Inventory { library: None, audit: false });
    assert_eq!(location(&bed, &Barcode::from("XX0001L9")), "in two libraries, and used in neither");
    let warnings = bed.status().warnings;
    assert!(
        warnings.iter().any(|w| w.contains("a cartridge XX0001L9 in library virtual-2 and one in virtual")),
        "{warnings:?}"
    );
    let request = bed.begin(Call::Label {
        volumes: vec![Barcode::from("XX0001L9")],
        pool: None,
        force: false,
        key: None,
    });
    assert_eq!(bed.wait(request.request.id).state, RequestState::Failed);
    // One is taken out: the other is used.
    bed.node.virtual_library_no(0).remove("XX0001L9").unwrap();
    bed.until("it is known", |b| location(b, &Barcode::from("XX0001L9")).starts_with("virtual-2 "));
    let request = bed.act(Call::Label {
        volumes: vec![Barcode::from("XX0001L9")],
        pool: None,
        force: false,
        key: None,
    });
    assert_eq!(request.state, RequestState::Done, "{request:?}");
}

#[test]
fn a_node_of_which_no_library_works_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let library = node::Node::open_library(&config).unwrap();
    let sense = Sense::new(SenseKey::HardwareError, 0x44, 0x00);
    library.inject(Fault::Answer { device: Device::Changer, opcode: READ_ELEMENT_STATUS, sense });
    let failed = node::Node::start_with(config, library);
    assert!(failed.is_err_and(|e| e.message.contains("TC-D024")));
}
