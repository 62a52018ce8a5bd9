//! The library: inventory, moves, and errors of the robot.

use crate::support::rig::{BARCODE, Rig};
use scsi::{Data, Reply, Transport, TransportError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tape::{Blame, Changer, Fault};
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

/// The way to a robot that may break, and lead to another robot behind that.
struct Way {
    robot: Box<dyn Transport>,
    breaks: Arc<AtomicBool>,
    is_another: Arc<AtomicBool>,
}

impl Transport for Way {
    fn execute(
        &mut self,
        cdb: &[u8],
        mut data: Data<'_>,
        timeout: Duration,
    ) -> Result<Reply, TransportError> {
        if self.breaks.swap(false, Ordering::Relaxed) {
            return Err(TransportError::Lost { device: "robot".into(), detail: "it broke".into() });
        }
        let room = match &mut data {
            Data::In(room) => Data::In(room),
            Data::Out(bytes) => Data::Out(bytes),
            _ => Data::None,
        };
        let reply = self.robot.execute(cdb, room, timeout)?;
        // INQUIRY, the page with its serial number.
        if let (Data::In(room), [0x12, 1, 0x80, ..], true) =
            (data, cdb, self.is_another.load(Ordering::Relaxed))
        {
            room[4] ^= 1;
        }
        Ok(reply)
    }

    fn name(&self) -> &str {
        "robot"
    }
}

#[test]
fn a_robot_that_was_lost_moves_nothing_if_another_one_answers_then() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let [breaks, is_another] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let way = Way {
        robot: Box::new(rig.library.changer()),
        breaks: breaks.clone(),
        is_another: is_another.clone(),
    };
    let changer = Changer::open(Box::new(way), Box::new(|_| {})).unwrap();
    let mut changer = changer.insist(Some("TCVTL001LL0")).unwrap();
    let inventory = changer.inventory().unwrap();
    let full = inventory.iter().find(|e| e.full).unwrap().address;
    let free = rig.elements(ElementKind::ImportExport)[0];
    // The same one is back: it goes on.
    breaks.store(true, Ordering::Relaxed);
    changer.look();
    changer.move_medium(full, free).unwrap();
    for loses in [Changer::look as fn(&mut Changer) -> bool, |changer| changer.inventory().is_err()] {
        breaks.store(true, Ordering::Relaxed);
        is_another.store(true, Ordering::Relaxed);
        loses(&mut changer);
        assert!(changer.move_medium(free, full).is_err());
        assert!(changer.inventory().is_err(), "it is still another one");
        is_another.store(false, Ordering::Relaxed);
        changer.inventory().unwrap();
        changer.move_medium(free, full).unwrap();
        changer.move_medium(full, free).unwrap();
    }
}
