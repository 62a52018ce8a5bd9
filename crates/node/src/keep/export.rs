//! Volumes on their way out of the library: nothing more is written to them, they get their index, and count as exported.

use super::AGAIN;
use crate::Node;
use crate::archive::{Errand, Event};
use crate::clock::Moment;
use sched::MaintenanceKind;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::*;

/// How often an index is ordered for a volume before it counts as one that cannot be had.
const ATTEMPTS: u32 = 3;

/// Indexes that were ordered: how often, and when last.
#[derive(Default)]
pub struct Export(BTreeMap<Barcode, (u32, Moment)>);

impl Export {
    /// Looks after all volumes that are asked for.
    pub fn tick(&mut self, node: &Arc<Node>) -> catalog::Result<()> {
        let mut asked: Vec<Barcode> =
            node.volumes_asked_for(RequestKind::Export)?.into_iter().map(|(volume, _)| volume).collect();
        asked.dedup();
        self.0.retain(|volume, _| asked.contains(volume));
        for volume in asked {
            if let Some(end) = self.step(node, &volume)? {
                node.finish_volume(RequestKind::Export, &volume, &end, "")?;
            }
        }
        Ok(())
    }

    /// What became of it; None: not yet known.
    fn step(&mut self, node: &Node, barcode: &Barcode) -> catalog::Result<Option<ItemState>> {
        let failed = |why: String| Ok(Some(ItemState::Failed(format!("{why}; it is not exported"))));
        let v = match node.catalog.volume(barcode) {
            Ok(Some(v)) => v,
            Ok(None) => return failed("it is not known any more".into()),
            Err(e) if e.is_damage() => return failed(e.to_string()),
            Err(e) => return Err(e),
        };
        match v.state {
            VolumeState::Exported => return Ok(Some(ItemState::Done)),
            VolumeState::ReadOnly => {}
            state => return failed(format!("it is {state} by now ({})", v.reason)),
        }
        let behind = v.indexed_to < v.append_block;
        if behind && v.may_hold_more() {
            return failed(
                "its index does not list all that the catalogue has on it, and no index is written to it, as its tape may hold more \
                 than the catalogue lists; it is read-only now"
                    .into(),
            );
        }
        if !behind && !node.archive.writes_to(barcode) {
            let now = crate::now();
            let left = node.catalog.update_volume(barcode, &mut |v| {
                if v.state == VolumeState::ReadOnly {
                    // Who and why stay as they were when it was asked for.
                    (v.state, v.since) = (VolumeState::Exported, now);
                }
            })?;
            return Ok((left.state == VolumeState::Exported).then_some(ItemState::Done));
        }
        let now = Moment::now();
        let (times, last) = self.0.get(barcode).copied().unwrap_or((0, now));
        if node.archive.works_on(barcode) || (times > 0 && now - last < AGAIN) {
            return Ok(None);
        }
        if times == ATTEMPTS {
            return failed("its index could not be written, see `thermo status`; it is read-only now".into());
        }
        self.0.insert(barcode.clone(), (times + 1, now));
        let errand = Errand::Index;
        node.archive.send(Event::Errand { kind: MaintenanceKind::Index, volume: barcode.clone(), errand });
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::testing::Rig;

    #[test]
    fn a_volume_that_is_behind_with_its_index_and_may_hold_more_than_the_catalogue_lists_is_not_exported() {
        let rig = Rig::new();
        let (node, barcode) = (&rig.worker.node, Barcode::from("MORE01L9"));
        let found = Volume { state: VolumeState::ReadOnly, ..Volume::new(barcode.clone(), crate::now()) };
        let found = Volume { holds_more: true, by: Some(0), append_block: 9, ..found };
        let exported = |indexed_to| {
            node.catalog.put_volume(&Volume { indexed_to, ..found.clone() }).unwrap();
            Export::default().step(node, &barcode).unwrap()
        };
        let Some(ItemState::Failed(why)) = exported(8) else { panic!("it lacks an index") };
        assert!(why.contains("no index is written") && why.ends_with("it is not exported"), "{why}");
        assert_eq!(exported(9), Some(ItemState::Done));
        assert!(node.catalog.volume(&barcode).unwrap().unwrap().holds_more);
    }
}
