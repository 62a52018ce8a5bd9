//! Operators: they take drives out of use and back, say that suspect volumes are good, take cartridges away and bring
//! them back.

use crate::dice::Dice;
use node::Stepped;
use scsi::Smc;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::*;
use vtl::Library;
use wire::{Call, VolumeChoice};

/// See the module.
pub struct Operators {
    dice: Dice,
    /// A cartridge that lies on the table.
    away: Option<String>,
    /// A drive that is out of use.
    down: Option<DriveNo>,
}

impl Operators {
    /// Nothing is done yet.
    pub fn new(dice: Dice) -> Self {
        Self { dice, away: None, down: None }
    }

    /// A restart puts every drive into use.
    pub fn after_crash(&mut self) {
        self.down = None;
    }

    /// One of them does something: what, and whether it was a fault to the node.
    pub fn act(
        &mut self,
        node: &Stepped,
        library: &Arc<Library>,
        spoilt: &BTreeSet<String>,
        robot_rests: bool,
    ) -> (String, bool) {
        match self.dice.below(8) {
            0 | 1 => (declare_good(node, spoilt), false),
            2 => self.vary(node),
            6 => (self.order(node, spoilt, "emptied"), false),
            7 => (self.order(node, spoilt, "verified"), false),
            3 | 4 if robot_rests => self.carry(library),
            _ => ("looks on".into(), false),
        }
    }

    /// Everything is put in order.
    pub fn put_in_order(&mut self, node: &Stepped, library: &Arc<Library>, spoilt: &BTreeSet<String>) {
        if let Some(barcode) = self.away.take() {
            let _ = library.insert(&barcode);
        }
        if let Some(drive) = self.down.take() {
            drop(node.set_drive(drive, true));
        }
        declare_good(node, spoilt);
    }

    fn vary(&mut self, node: &Stepped) -> (String, bool) {
        let drives = node.drives();
        let (drive, up) = match self.down.take() {
            Some(drive) => (drive, true),
            None => {
                let Some(drive) = self.dice.pick(&drives).copied() else { return (String::new(), false) };
                self.down = Some(drive);
                (drive, false)
            }
        };
        drop(node.set_drive(drive, up));
        (format!("operator: drive {drive} {}", if up { "up" } else { "down" }), !up)
    }

    /// A volume is to be read through, or emptied and made scratch.
    fn order(&mut self, node: &Stepped, spoilt: &BTreeSet<String>, what: &str) -> String {
        let volumes = node.catalog().volumes().unwrap_or_default();
        let written = |v: &&Volume| v.files > 0 && !spoilt.contains(v.barcode.as_str());
        let written: Vec<&Volume> = volumes.iter().filter(written).collect();
        let Some(volume) = self.dice.pick(&written) else { return format!("operator: nothing is {what}") };
        let these = VolumeChoice::These(vec![volume.barcode.clone()]);
        let call = match what {
            "emptied" => Call::Repack { volumes: these, dead_percent: None, generation: None },
            _ => Call::Verify(these),
        };
        let cx = Cx::admin(Time::new(super::hub::BEGIN_S, 0));
        let taken = node.node().call(&cx, &mut node::Session::default(), call).is_ok();
        format!("operator: {} is to be {what}: {taken}", volume.barcode)
    }

    /// Takes a cartridge out of its slot with the library's own panel, or brings it back.
    fn carry(&mut self, library: &Arc<Library>) -> (String, bool) {
        if let Some(barcode) = self.away.take() {
            let put = library.insert(&barcode);
            let did = format!("operator: brings {barcode} back {}", put.is_ok());
            if put.is_err() {
                self.away = Some(barcode);
            }
            return (did, false);
        }
        let mut panel = Smc::new(Box::new(library.changer_as(9)));
        // Unit attentions come first.
        let addresses = (0..4).find_map(|_| panel.element_addresses().ok());
        let Some(addresses) = addresses else { return ("operator: the panel does not answer".into(), false) };
        let slots = addresses.storage.first..addresses.storage.first + addresses.storage.count;
        let contents = library.contents();
        let in_slots: Vec<&(u16, String)> = contents.iter().filter(|(at, _)| slots.contains(at)).collect();
        let Some((from, barcode)) = self.dice.pick(&in_slots) else {
            return ("operator: finds no cartridge".into(), false);
        };
        let moved = panel.move_medium(*from, addresses.import_export.first).is_ok();
        let done = moved && library.remove(barcode).is_ok();
        if done {
            self.away = Some(barcode.clone());
        }
        (format!("operator: takes {barcode} away {done}"), done)
    }
}

/// Suspect volumes that nobody has damaged are used again.
fn declare_good(node: &Stepped, spoilt: &BTreeSet<String>) -> String {
    let volumes = node.catalog().volumes().unwrap_or_default();
    let good: Vec<Barcode> = volumes
        .into_iter()
        .filter(|v| v.state == VolumeState::Suspect && !spoilt.contains(v.barcode.as_str()))
        .map(|v| v.barcode)
        .collect();
    let cx = Cx::admin(Time::new(super::hub::BEGIN_S, 0));
    let mut done = 0;
    for barcode in &good {
        for state in [VolumeState::Filling, VolumeState::Full] {
            let call = Call::SetVolume { volumes: vec![barcode.clone()], state, reason: "looked at".into() };
            if node.node().call(&cx, &mut node::Session::default(), call).is_ok() {
                done += 1;
                break;
            }
        }
    }
    format!("operator: {done} of {} suspect volumes are good", good.len())
}
