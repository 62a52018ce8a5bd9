//! The library: inventory, moves, and errors of the robot.

use crate::support::rig::{BARCODE, Rig};
use tape::{Blame, Fault};
use types::{Barcode, ElementKind};

#[test]
fn inventory_and_moves() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut changer = rig.changer();
    assert!(!changer.product().is_empty());
    let inventory = changer.inventory().unwrap();
    assert!(inventory.is_sorted_by_key(|e| e.address));
    let full: Vec<_> = inventory.iter().filter(|e| e.full).collect();
    assert_eq!(full.len(), 4);
    assert_eq!(full[0].barcode, Some(Barcode::from(BARCODE)));
    let drives = rig.elements(ElementKind::Drive);
    assert_eq!((drives.len(), rig.elements(ElementKind::ImportExport).len()), (2, 1));
    let identified = changer.drives().unwrap();
    assert_eq!(identified.iter().map(|d| d.0).collect::<Vec<_>>(), drives);
    for (n, (_, id)) in identified.iter().enumerate() {
        assert!(id.contains(rig.drive(n as u16).serial()), "{id}");
    }
    let slot = full[0].address;
    changer.move_medium(slot, drives[0]).unwrap();
    let error = changer.move_medium(slot, drives[1]).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::SourceEmpty, Blame::Library));
    assert!(changer.inventory_is_stale());
    changer.inventory().unwrap();
    let error = changer.move_medium(full[1].address, drives[0]).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::DestinationFull, Blame::Library));
    assert!(changer.inventory_is_stale());
    let inventory = changer.inventory().unwrap();
    assert!(!changer.inventory_is_stale());
    let in_drive = inventory.iter().find(|e| e.address == drives[0]).unwrap();
    assert_eq!((in_drive.barcode.clone(), in_drive.source), (Some(Barcode::from(BARCODE)), Some(slot)));
    // a mounted volume cannot be taken; an unloaded one can
    let mut drive = rig.drive(0);
    let mounted = drive.mount(None).unwrap();
    let error = changer.move_medium(drives[0], slot).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::Prevented, Blame::Library), "{error}");
    mounted.unload().unwrap();
    changer.move_medium(drives[0], slot).unwrap();
    assert_eq!(drive.mount(None).err().unwrap().fault, Fault::NotReady);
    drive.unload().unwrap();
}

#[test]
fn a_change_behind_our_back_makes_the_inventory_stale() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut changer = rig.changer();
    changer.inventory().unwrap();
    rig.library.create_cartridge("TC0099L9", 1 << 26).unwrap();
    let slot = rig.library.insert("TC0099L9").unwrap();
    let inventory = changer.inventory().unwrap();
    let found = inventory.iter().find(|e| e.address == slot).unwrap();
    assert_eq!(found.barcode, Some(Barcode::from("TC0099L9")));
}

#[test]
fn nothing_is_moved_by_an_inventory_that_may_be_wrong() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut changer = rig.changer();
    let inventory = changer.inventory().unwrap();
    let drive = rig.elements(ElementKind::Drive)[0];
    let at = |barcode: &str, of: &[types::ElementView]| {
        of.iter().find(|e| e.barcode == Some(Barcode::from(barcode))).map(|e| e.address).unwrap()
    };
    let slot = at(BARCODE, &inventory);
    let other_drive = rig.elements(ElementKind::Drive)[1];
    // Somebody moves the cartridge and puts another one, which is new, into its slot.
    rig.library.create_cartridge("TC0099L9", 1 << 26).unwrap();
    let door = rig.library.insert("TC0099L9").unwrap();
    let mut other = tape::Changer::open(Box::new(rig.library.changer_as(1)), Box::new(|_| {})).unwrap();
    other.move_medium(slot, other_drive).unwrap();
    other.move_medium(door, slot).unwrap();
    for _ in 0..2 {
        let error = changer.move_medium(slot, drive).unwrap_err();
        assert_eq!((error.fault, error.blame), (Fault::InventoryStale, Blame::Library), "{error}");
        assert!(changer.inventory_is_stale() && error.code() == "TC-L059", "{error}");
    }
    // The same while the move itself waits for the door to be closed.
    let inventory = changer.inventory().unwrap();
    assert_eq!(at("TC0099L9", &inventory), slot);
    for sense in [
        scsi::Sense::new(scsi::SenseKey::UnitAttention, 0x28, 0x01),
        scsi::Sense::new(scsi::SenseKey::NotReady, 0x04, 0x01),
    ] {
        rig.library.inject(vtl::Fault::Answer { device: vtl::Device::Changer, opcode: 0xA5, sense });
    }
    assert_eq!(changer.move_medium(slot, drive).unwrap_err().fault, Fault::InventoryStale);
    assert!(changer.inventory().unwrap().iter().all(|e| e.address != drive || !e.full), "nothing was moved");
    changer.move_medium(slot, drive).unwrap();
}

#[test]
fn a_stuck_robot_is_the_librarys_fault() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut changer = rig.changer();
    rig.library.inject(vtl::Fault::RobotStuck);
    let (slots, drives) = (rig.elements(ElementKind::Slot), rig.elements(ElementKind::Drive));
    let error = changer.move_medium(slots[0], drives[0]).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::HardwareError, Blame::Library));
    rig.library.clear_faults();
    changer.move_medium(slots[0], drives[0]).unwrap();
}
