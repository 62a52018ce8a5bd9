//! What is asked for: files scattered over full LTO-9 cartridges.

use super::chance::Chance;
use sched::{Facts, Mechanics, RecallItem};
use types::{Barcode, Generation, Time};

/// Begin of simulated time (seconds since the epoch).
pub const BEGIN_S: i64 = 1_800_000_000;
/// Sizes are spread evenly over their logarithms between these (bytes).
const SMALLEST: f64 = 1e6;
const LARGEST: f64 = 1e10;
const BLOCK: u64 = 512 << 10;

/// Files that are wanted at one moment.
pub struct Load {
    /// Of each cartridge, in order of blocks; ids count from 0 over all.
    pub wanted: Vec<Vec<RecallItem>>,
    /// Cartridge and id, in the order in which they were asked for.
    pub asked: Vec<(usize, u64)>,
    /// Times of drives and tapes.
    pub mechanics: Mechanics,
}

impl Load {
    pub fn new(files: usize, cartridges: usize, chance: &mut Chance) -> Self {
        let mechanics = Mechanics::of(Generation::Lto9, BLOCK);
        let blocks = Facts::of(Generation::Lto9).map_or(0.0, |facts| facts.capacity) / BLOCK as f64;
        let mut wanted = vec![Vec::new(); cartridges];
        let mut asked = Vec::with_capacity(files);
        for id in 0..files as u64 {
            let on = chance.below(cartridges);
            let bytes = SMALLEST * (LARGEST / SMALLEST).powf(chance.share());
            wanted[on].push(RecallItem {
                id,
                block: (chance.share() * blocks) as u64,
                byte: 0,
                bytes: bytes as u64,
                priority: 5,
                since: Time::new(BEGIN_S, 0),
                ..RecallItem::default()
            });
            asked.push((on, id));
        }
        wanted.iter_mut().for_each(|items| items.sort_by_key(|item| (item.block, item.id)));
        Self { wanted, asked, mechanics }
    }

    pub fn barcode(cartridge: usize) -> Barcode {
        Barcode::from(format!("TC{cartridge:04}L9").as_str())
    }
}

/// How it went: when each file was there (seconds from the beginning).
pub struct Outcome {
    waits: Vec<f64>,
}

impl Outcome {
    pub fn new(mut waits: Vec<f64>) -> Self {
        waits.sort_by(f64::total_cmp);
        Self { waits }
    }

    /// Until the last file.
    pub fn total_s(&self) -> f64 {
        self.waits.last().copied().unwrap_or(0.0)
    }

    /// Nine of ten files were there by then.
    pub fn p90_s(&self) -> f64 {
        self.waits.get(self.waits.len() * 9 / 10).copied().unwrap_or(0.0)
    }

    pub fn files(&self) -> usize {
        self.waits.len()
    }
}

/// One file after the other in the order in which they were asked for: each goes to the drive that holds its cartridge,
/// else to the drive that is free first. The robot is never in the way.
pub fn first_come(load: &Load, drives: usize) -> Outcome {
    let m = &load.mechanics;
    let items: std::collections::HashMap<u64, RecallItem> =
        load.wanted.iter().flatten().map(|item| (item.id, *item)).collect();
    let mut state: Vec<(f64, Option<usize>, u64)> = vec![(0.0, None, 0); drives];
    let mut waits = Vec::new();
    for (on, id) in &load.asked {
        let item = items[id];
        let holder = state.iter().position(|(_, volume, _)| *volume == Some(*on));
        let first = (0..drives).min_by(|a, b| state[*a].0.total_cmp(&state[*b].0));
        let Some(drive) = holder.or(first) else { continue };
        let (free, volume, at) = &mut state[drive];
        if *volume != Some(*on) {
            *free += m.mount_s() + if volume.is_some() { m.unmount_s() } else { 0.0 };
            (*volume, *at) = (Some(*on), 0);
        }
        *free += m.locate(*at, item.block) + m.transfer(item.bytes);
        *at = m.last_block(item.block, item.byte, item.bytes);
        waits.push(*free);
    }
    Outcome::new(waits)
}
