//! Finding libraries and their drives: several virtual ones behind unix sockets, and Debian's tgt over iSCSI.

#![expect(
    clippy::disallowed_methods,
    reason = "the target is another process; a library may take time to start"
)]

#[path = "support/tgt.rs"]
mod tgt;

use scsi::Address;
use std::sync::Arc;
use tape::Sleeper;
use tape::discover::{Discovery, discover};
use vtl::{Library, Server, VtlConfig, serve};

struct Hall {
    dir: tempfile::TempDir,
    library: Arc<Library>,
    _server: Server,
}

fn hall(serial: &str, drives: u16) -> Hall {
    let dir = tempfile::tempdir().unwrap();
    let config = VtlConfig { drives, serial: serial.into(), ..VtlConfig::new(dir.path().join("l")) };
    let library = Library::open(config).unwrap();
    let server = serve(library.clone(), dir.path()).unwrap();
    Hall { dir, library, _server: server }
}

impl Hall {
    fn at(&self, name: &str) -> Address {
        Address::Unix(self.dir.path().join(format!("{name}.sock")))
    }
}

fn sleeper() -> Sleeper {
    Box::new(std::thread::sleep)
}

/// Serial numbers of the drives of a library, by element.
fn serials(discovery: &Discovery, library: usize) -> Vec<&str> {
    discovery.libraries[library].drives.iter().map(|(_, d)| d.serial.as_str()).collect()
}

#[test]
fn drives_of_several_libraries_are_put_into_their_elements_whatever_their_order() {
    let (a, b) = (hall("AAVTL001", 3), hall("BBVTL001", 2));
    let addresses = [
        b.at("drive1"),
        a.at("drive2"),
        b.at("changer"),
        a.at("drive0"),
        a.at("changer"),
        b.at("drive0"),
        a.at("drive1"),
    ];
    let found = discover(&addresses, &scsi::Alone, sleeper);
    assert_eq!((found.left.len(), found.failed.len()), (0, 0), "{found:#?}");
    assert_eq!(found.libraries[0].changer.serial, "BBVTL001LL0");
    assert_eq!(serials(&found, 0), ["BBVTL001D00", "BBVTL001D01"]);
    assert_eq!(serials(&found, 1), ["AAVTL001D00", "AAVTL001D01", "AAVTL001D02"]);
    let addresses: Vec<&Address> = found.libraries[1].drives.iter().map(|(_, d)| &d.address).collect();
    assert_eq!(addresses, [&a.at("drive0"), &a.at("drive1"), &a.at("drive2")]);
    assert!(found.libraries.iter().all(|l| l.drives.is_sorted_by_key(|d| d.0) && l.unmatched.is_empty()));
}

#[test]
fn what_cannot_be_matched_is_named_with_the_reason() {
    let (a, b) = (hall("AAVTL001", 2), hall("BBVTL001", 1));
    let nobody = Address::Unix("/nowhere/drive.sock".into());
    // A second way to the same drive, as with two host adapters.
    let second = a.dir.path().join("second.sock");
    std::os::unix::fs::symlink(a.dir.path().join("drive0.sock"), &second).unwrap();
    let second = Address::Unix(second);
    let addresses = [a.at("changer"), a.at("drive0"), second.clone(), b.at("drive0"), nobody.clone()];
    let found = discover(&addresses, &scsi::Alone, sleeper);
    assert_eq!(serials(&found, 0), ["AAVTL001D00"]);
    let (element, why) = &found.libraries[0].unmatched[0];
    assert!(
        *element == found.libraries[0].drives[0].0 + 1 && why.contains("AAVTL001D01"),
        "{element}: {why}"
    );
    let left: Vec<(&Address, &str)> = found.left.iter().map(|(d, why)| (&d.address, why.as_str())).collect();
    assert_eq!(left[0].0, &second);
    assert!(left[0].1.contains("another way to the device at"), "{}", left[0].1);
    assert_eq!(left[1].0, &b.at("drive0"));
    assert!(left[1].1.contains("BBVTL001D00 is that of no drive element"), "{}", left[1].1);
    assert_eq!(found.failed[0].0, nobody);
    assert!(found.failed[0].1.contains("cannot connect"), "{}", found.failed[0].1);

    let alone = discover(&[b.at("drive0")], &scsi::Alone, sleeper);
    assert!(alone.left[0].1.contains("no library was found"), "{alone:?}");
}

#[test]
fn a_library_that_another_host_has_reserved_is_found_with_the_reservation() {
    const KEY: u64 = 0x4242_0000_0000_0001;
    let (a, b) = (hall("AAVTL001", 1), hall("BBVTL001", 1));
    let mut other = scsi::Device::new(Box::new(a.library.changer_as(7)));
    let _attention = other.test_unit_ready();
    other.change_key(0, KEY).unwrap();
    other.reserve(scsi::ReservationKind::ExclusiveAccess, KEY).unwrap();
    let found =
        discover(&[a.at("changer"), a.at("drive0"), b.at("changer"), b.at("drive0")], &scsi::Alone, sleeper);
    assert!(found.failed.is_empty(), "{found:#?}");
    let reserved = &found.libraries[0];
    assert_eq!((reserved.changer.serial.as_str(), reserved.drives.len()), ("AAVTL001LL0", 0));
    let who = reserved.reserved.as_deref().unwrap();
    assert!(who.contains("another host") && who.contains("0x4242000000000001"), "{who}");
    assert_eq!((serials(&found, 1), &found.libraries[1].reserved), (vec!["BBVTL001D00"], &None));
    let (drive, why) = &found.left[0];
    assert!(drive.serial == "AAVTL001D00" && why.contains("another host has reserved it"), "{why}");
    // It is as it was, and can be used when the other has gone.
    assert_eq!(other.reservation().unwrap().map(|r| r.key), Some(KEY));
    other.release(scsi::ReservationKind::ExclusiveAccess, KEY).unwrap();
    let found = discover(&[a.at("changer"), a.at("drive0")], &scsi::Alone, sleeper);
    assert_eq!(serials(&found, 0), ["AAVTL001D00"]);
}

#[test]
fn looking_for_drives_takes_no_unit_attention_from_them() {
    let a = hall("AAVTL001", 1);
    discover(&[a.at("changer"), a.at("drive0")], &scsi::Alone, sleeper);
    let mut drive = scsi::Device::new(a.at("drive0").transport(&scsi::Alone));
    let attention = drive.test_unit_ready().unwrap_err();
    assert_eq!(attention.sense().map(|s| s.asc), Some(0x29), "the power-on is still to be told: {attention}");
}

/// tgt cuts the serial number of the last drive off: that one is named, not guessed. The first is in the element where it
/// is, not where its number would put it.
#[test]
fn a_foreign_library_is_found_behind_its_portal() {
    let tgt = tgt::Tgt::start([2, 1]);
    let units = scsi::iscsi::find("127.0.0.1", tgt.port, None).unwrap();
    let addresses: Vec<Address> = units.into_iter().map(Address::Iscsi).collect();
    let found = discover(&addresses, &scsi::Alone, sleeper);
    let library = &found.libraries[0];
    let changer = (library.changer.product.as_str(), library.changer.serial.as_str());
    assert_eq!(changer, ("TGT VTL2x8 0100", "LIB0000001"));
    assert_eq!(library.drives[0].0, tgt::DRIVE);
    assert_eq!(serials(&found, 0), ["DRV0000002"]);
    assert_eq!(library.unmatched[0].0, tgt::DRIVE + 1);
    assert!(library.unmatched[0].1.contains("does not say which drive"), "{library:#?}");
    assert_eq!(found.left[0].0.serial, "DRV0000001");
    assert!(found.failed[0].1.contains("neither a tape drive nor a library"), "{:?}", found.failed);
}
