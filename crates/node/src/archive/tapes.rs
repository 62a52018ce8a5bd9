//! Volumes as the scheduler sees them. Every event asks for them and there may be tens of thousands, so they are made anew
//! only when the catalogue or the library has others.

use super::family::Member;
use crate::Node;
use sched::{Place, Tape};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use types::*;

/// What the scheduler sees, and after how many changes of the catalogue's volumes it was made.
pub struct Tapes {
    changes: u64,
    all: Arc<BTreeMap<Barcode, Tape>>,
    /// What matters of them to pools that collocate.
    pub members: Arc<HashMap<Barcode, Member>>,
}

/// All volumes, as they are now.
pub fn all(node: &Node) -> Arc<BTreeMap<Barcode, Tape>> {
    // Asked before they are read: what changes meanwhile is seen the next time.
    let changes = node.catalog.volume_changes();
    if let Some(known) = node.archive.state.lock().tapes.as_ref().filter(|known| known.changes == changes) {
        return known.all.clone();
    }
    let volumes = match node.catalog.volumes() {
        Ok(volumes) => volumes,
        Err(e) => {
            tracing::error!("the volumes cannot be read from the catalogue: {e}");
            // None at all would look as if every cartridge had been taken out.
            let known = node.archive.state.lock().tapes.as_ref().map(|known| known.all.clone());
            return known.unwrap_or_default();
        }
    };
    let mut state = node.archive.state.lock();
    let present = state.present();
    let auto_label = node.config.tape.auto_label;
    let members = Arc::new(volumes.iter().map(|v| (v.barcode.clone(), Member::from(v))).collect());
    let all = volumes.into_iter().map(|v| {
        let (generation, wraps) = (state.medium(&v.barcode), node.is_attached());
        (v.barcode.clone(), Tape { generation, wraps, ..tape(v, &present, auto_label) })
    });
    let all: Arc<BTreeMap<_, _>> = Arc::new(all.collect());
    state.tapes = Some(Tapes { changes, all: all.clone(), members });
    all
}

fn tape(v: Volume, present: &HashMap<&Barcode, LibraryNo>, auto_label: bool) -> Tape {
    // A cartridge whose label nobody has read yet is tried like a blank one: what it carries decides then.
    let blank = v.state == VolumeState::Unknown && auto_label;
    Tape {
        state: if blank { VolumeState::Blank } else { v.state },
        worm: v.worm,
        place: present.get(&v.barcode).map_or(Place::Absent, |library| Place::Library(*library)),
        pool: v.pool,
        written: v.written,
        free: v.capacity.saturating_sub(v.written),
        generation: None,
        wraps: false,
    }
}

/// The medium of a volume, as far as it matters for the order of reading: the tape of the virtual library is small, and read
/// forward only.
pub fn in_wraps(node: &Node, volume: &Barcode) -> Option<Generation> {
    node.is_attached().then(|| Generation::of(volume)).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Rig;
    use super::*;

    #[test]
    fn what_the_scheduler_sees_is_made_anew_when_the_catalogue_or_the_library_changes() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let volume = Volume::new(Barcode::from("TC0001L9"), Time::default());
        let seen = || all(node).get(&volume.barcode).map(|tape| (tape.place, tape.written));
        assert_eq!(seen(), None);
        node.catalog.put_volume(&volume).unwrap();
        assert_eq!(seen(), Some((Place::Absent, 0)));
        let element = ElementView {
            address: 1001,
            kind: ElementKind::Slot,
            full: true,
            barcode: Some(volume.barcode.clone()),
            source: None,
            exception: None,
            outgoing: false,
        };
        node.archive.state.lock().set_elements(LibraryNo(0), vec![element]);
        assert_eq!(seen(), Some((Place::Library(LibraryNo(0)), 0)));
        node.catalog.update_volume(&volume.barcode, &mut |v| v.written = 7).unwrap();
        assert_eq!(seen(), Some((Place::Library(LibraryNo(0)), 7)));
        assert!(Arc::ptr_eq(&all(node), &all(node)), "nothing has changed");
        let found = Volume { state: VolumeState::ReadOnly, uuid: "u".into(), ..volume.clone() };
        node.catalog.begin_adoption(&found).unwrap();
        assert_eq!(
            all(node)[&volume.barcode].state,
            VolumeState::ReadOnly,
            "nobody takes it for a blank one"
        );
    }
}
