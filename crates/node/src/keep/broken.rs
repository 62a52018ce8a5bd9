//! Volumes that an operator declared broken: their copies count no more and are made anew from the others.

use crate::Node;
use catalog::{Lost, LostCopy, TapePlace};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::*;

/// Segments listed at a time: each listing looks through the whole volume.
const PAGE: usize = 20_000;
/// Copies given up in one transaction.
const TOGETHER: usize = 1_000;

/// Volumes that have been gone through, each as of which order.
#[derive(Default)]
pub struct Broken(BTreeMap<Barcode, Time>);

impl Broken {
    /// Goes through one volume that is newly broken; after a restart through those on which something is still needed.
    pub fn tick(&mut self, node: &Arc<Node>, volumes: &[Volume]) -> catalog::Result<()> {
        let fresh = |v: &&Volume| {
            v.state == VolumeState::Broken && v.live_files > 0 && self.0.get(&v.barcode) != Some(&v.since)
        };
        let Some(volume) = volumes.iter().find(fresh) else { return Ok(()) };
        let (mut dropped, mut kept) = (0u64, Vec::new());
        let mut from: TapePlace = (0, 0, 0);
        loop {
            let page = node.catalog.live_segments(&volume.barcode, from, PAGE)?;
            let Some(last) = page.last() else { break };
            let (block, byte, uid) = catalog::place_of(last);
            from = (block, byte, uid.saturating_add(1));
            let lost = |f: &TapeFile| LostCopy {
                ino: f.ino,
                version: f.version,
                copy: f.copy,
                volume: volume.barcode.clone(),
            };
            let lost: Vec<LostCopy> = page.iter().map(lost).collect();
            let mut outcomes = Vec::with_capacity(lost.len());
            for some in lost.chunks(TOGETHER) {
                if node.archive.halted() {
                    return Ok(()); // the next run goes on
                }
                outcomes.extend(node.catalog.lose_copies(some, crate::now())?);
            }
            for (file, outcome) in page.iter().zip(outcomes) {
                dropped += u64::from(outcome == Lost::Dropped);
                if outcome == Lost::Last {
                    kept.push(types::escape(&file.path));
                }
            }
        }
        self.0.insert(volume.barcode.clone(), volume.since);
        tracing::info!("volume {} is broken: {dropped} copies are made anew from others", volume.barcode);
        if let Some(first) = kept.first() {
            node.archive.warn(format!(
                "volume {} is broken and has the only copy of {} file segments, which stay on record: {first}{}; if it can be \
                 read after all: `thermo volume state {} suspect`",
                volume.barcode,
                kept.len(),
                if kept.len() > 1 { " and others" } else { "" },
                volume.barcode,
            ));
        }
        node.governor.wake();
        node.keeper.wake();
        Ok(())
    }
}
