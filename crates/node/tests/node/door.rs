//! Cartridges that go into the library and out of it while the node runs.

use crate::support::{Bed, pattern};
use scsi::{SenseKey, Smc};
use std::sync::Arc;
use types::*;
use wire::{Call, Reply};

const DOOR: u16 = 101;

fn elements(bed: &Bed) -> Vec<ElementView> {
    match bed.call(Call::Library) {
        Reply::Library(mut views) => views.remove(0).elements,
        other => panic!("{other:?}"),
    }
}

/// Kind of the element that holds a cartridge.
fn place(bed: &Bed, barcode: &str) -> Option<ElementKind> {
    elements(bed).into_iter().find(|e| e.barcode == Some(Barcode::from(barcode))).map(|e| e.kind)
}

fn library(bed: &Bed) -> Arc<vtl::Library> {
    bed.node.virtual_library().clone()
}

fn lay_in(bed: &Bed, barcode: &str) {
    library(bed).create_cartridge(barcode, 64 << 20).unwrap();
    library(bed).insert(barcode).unwrap();
}

#[test]
fn a_cartridge_laid_into_the_door_is_known_within_seconds_or_at_once_when_asked() {
    let bed = Bed::with(|c| c.library.import_export = 2);
    lay_in(&bed, "NEW001L9");
    bed.until("it is seen", |bed| place(bed, "NEW001L9") == Some(ElementKind::ImportExport));
    assert_eq!(bed.volume(&Barcode::from("NEW001L9")).state, VolumeState::Unknown);
    lay_in(&bed, "NEW002L9");
    let Reply::Library(mut views) = bed.call(Call::Inventory { library: None, audit: true }) else {
        panic!("no library")
    };
    let view = views.remove(0);
    assert!(view.elements.iter().any(|e| e.barcode == Some(Barcode::from("NEW002L9"))));
    library(&bed).remove("NEW001L9").unwrap();
    bed.until("it is gone", |bed| place(bed, "NEW001L9").is_none());
}

#[test]
fn a_volume_goes_out_and_comes_back_and_is_not_fetched_in_between() {
    let bed = Bed::new();
    let data = pattern(50_000, 1);
    let ino = bed.write("f", &data);
    bed.migrate_and_purge();
    let volumes = bed.volumes_of("/f");
    let busy = bed.try_call(Call::ExportCartridges(vec![volumes[0].clone()]));
    if let Err(e) = busy {
        assert!(e.class == ErrorClass::Busy && e.message.contains("is in a drive"), "{e}");
        bed.until_dismounted();
        bed.call(Call::ExportCartridges(vec![volumes[0].clone()]));
    }
    assert_eq!(place(&bed, volumes[0].as_str()), Some(ElementKind::ImportExport));
    let full = bed.try_call(Call::ExportCartridges(vec![volumes[1].clone()])).unwrap_err();
    assert!(
        full.message.contains("every import/export slot is full") || full.message.contains("is in a drive")
    );
    // The other copy serves; this one stays where the operator takes it, also after a restart.
    assert!(bed.read(ino) == data);
    bed.purge("/f");
    let bed = bed.restart();
    assert!(bed.read(ino) == data);
    assert_eq!(place(&bed, volumes[0].as_str()), Some(ElementKind::ImportExport));
    bed.call(Call::ImportCartridges(Vec::new()));
    assert_eq!(place(&bed, volumes[0].as_str()), Some(ElementKind::Slot));
    let nowhere = bed.try_call(Call::ImportCartridges(vec![volumes[0].clone()])).unwrap_err();
    assert!(nowhere.message.contains("in no import/export slot"), "{nowhere}");
    let unknown = bed.try_call(Call::ExportCartridges(vec![Barcode::from("NONE01L9")])).unwrap_err();
    assert_eq!(unknown.class, ErrorClass::NotFound);
    // Only this copy is left: it is fetched again.
    let other = Call::SetVolume {
        volumes: vec![volumes[1].clone()],
        state: VolumeState::Exported,
        reason: "vault".into(),
    };
    bed.call(other);
    bed.purge("/f");
    assert!(bed.read(ino) == data);
}

#[test]
fn a_volume_that_was_taken_out_comes_back_with_its_files() {
    let bed = Bed::new();
    let ino = bed.write("f", b"data");
    bed.migrate_and_purge();
    bed.until_dismounted();
    for volume in bed.volumes_of("/f") {
        bed.call(Call::ExportCartridges(vec![volume.clone()]));
        library(&bed).remove(volume.as_str()).unwrap();
    }
    bed.until("both are missed", |bed| bed.volumes_of("/f").iter().all(|v| place(bed, v.as_str()).is_none()));
    bed.try_read(ino).unwrap_err();
    library(&bed).insert(bed.volumes_of("/f")[0].as_str()).unwrap();
    bed.until("it is read", |bed| bed.try_read(ino).is_ok_and(|bytes| bytes == b"data"));
}

#[test]
fn only_the_administrator_opens_the_door() {
    let bed = Bed::new();
    let user = Cx { uid: 12345, ..crate::support::cx() };
    for call in [
        Call::Inventory { library: None, audit: false },
        Call::ExportCartridges(Vec::new()),
        Call::ImportCartridges(Vec::new()),
    ] {
        let refused = bed.node.call(&user, &mut node::Session::default(), call);
        assert_eq!(refused.map(|a| a.reply).unwrap_err().class, ErrorClass::Denied);
    }
    let mut robot = Smc::new(Box::new(library(&bed).changer()));
    while robot.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention))
    {
    }
    assert!(elements(&bed).iter().any(|e| e.address == DOOR && e.kind == ElementKind::ImportExport));
}
