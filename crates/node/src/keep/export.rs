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
        if v.indexed_to >= v.append_block && !node.archive.writes_to(barcode) {
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
