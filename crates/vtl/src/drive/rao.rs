//! Recommended access order (SSC-5): the shortest way through segments that the mechanics know, found by going to what is
//! nearest and then moving runs of up to three to better places.

use super::State;
use crate::unit::{BAD_FIELD, Done, Outcome, field, give, parameters};
use scsi::rao::{DESCRIPTOR, DataSegment, HEADER, decode_list, encode_list};
use scsi::{Data, Sense, SenseKey};
use std::time::Duration;

/// Most segments of a list.
const MOST: usize = 1000;
/// Passes of the improvement over a list.
const PASSES: usize = 20;
/// Longest run that is moved as a whole.
const RUN: usize = 3;

const RAO: u8 = 0x1D;
const UDS_LIMITS: u8 = 0x80;
/// Parameter list length error.
const BAD_LENGTH: Sense = Sense::new(SenseKey::IllegalRequest, 0x1A, 0x00);

impl State {
    /// GENERATE RECOMMENDED ACCESS ORDER: takes note of the list in its best order from here.
    pub(super) fn generate_order(&mut self, cdb: &[u8; 16], data: Data<'_>) -> Outcome {
        if (cdb[1] & 0x1F, cdb[2] & 7, cdb[3] & 7) != (RAO, 2, 1) {
            return Err(BAD_FIELD);
        }
        let list = parameters(&data, field(cdb, 6, 4))?;
        let segments = decode_list(list).map_err(|_| BAD_LENGTH)?;
        if segments.len() > MOST || list.len() != HEADER + segments.len() * DESCRIPTOR {
            return Err(BAD_LENGTH);
        }
        self.flush()?;
        let m = self.ready()?;
        let partitions = m.cartridge.partitions();
        let recorded = |s: &DataSegment| {
            s.partition < partitions && s.begin <= s.end && s.end < m.cartridge.index(s.partition).end()
        };
        if !segments.iter().all(recorded) {
            return Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x00));
        }
        self.order = self.best_order(&segments)?;
        Ok(Done { transferred: list.len(), sense: None })
    }

    /// RECEIVE RECOMMENDED ACCESS ORDER: the list made last, or how long one may be.
    pub(super) fn receive_order(&self, cdb: &[u8; 16], data: Data<'_>) -> Outcome {
        if cdb[1] & 0x1F != RAO || cdb[10] & 7 != 1 || field(cdb, 2, 4) != 0 {
            return Err(BAD_FIELD);
        }
        let alloc = field(cdb, 6, 4);
        if cdb[1] & UDS_LIMITS != 0 {
            let (most, size) = ((MOST as u16).to_be_bytes(), (DESCRIPTOR as u16).to_be_bytes());
            return give(data, &[most, size].concat(), alloc);
        }
        give(data, &encode_list(&self.order), alloc)
    }

    fn best_order(&mut self, segments: &[DataSegment]) -> Result<Vec<DataSegment>, Sense> {
        let mechanics = self.config.mechanics;
        let m = self.ready()?;
        let spot = |partition: u8, block: u64| {
            (m.share(partition, block), m.cartridge.index(partition).bytes_before(block))
        };
        let here = spot(m.partition, m.block);
        let mut sorted = segments.to_vec();
        sorted.sort_by_key(|s| (s.partition, s.begin, s.end, s.id));
        let ends: Vec<_> =
            sorted.iter().map(|s| (spot(s.partition, s.begin), spot(s.partition, s.end + 1))).collect();
        let hop = |from: (f64, u64), to: (f64, u64)| mechanics.locate(from.0, to.0, from.1.abs_diff(to.1));
        // Node 0 is where the head stands; row by row the way from the end of one to the beginning of another.
        let starts = std::iter::once(here).chain(ends.iter().map(|(_, end)| *end));
        let costs = starts.map(|from| {
            std::iter::once(Duration::ZERO).chain(ends.iter().map(|(begin, _)| hop(from, *begin))).collect()
        });
        let tour = Tour { cost: costs.collect() }.best();
        Ok(tour.into_iter().map(|node| sorted[node - 1]).collect())
    }
}

struct Tour {
    cost: Vec<Vec<Duration>>,
}

impl Tour {
    fn best(&self) -> Vec<usize> {
        let forward: Vec<usize> = (1..self.cost.len()).collect();
        let ways = [forward.clone(), self.nearest()].map(|way| self.improved(way));
        // Of ways that take equally long the one that goes forward.
        let least = ways.into_iter().chain([forward]).rev().min_by_key(|way| self.length(way));
        least.unwrap_or_default()
    }

    fn length(&self, way: &[usize]) -> Duration {
        let from = std::iter::once(&0).chain(way);
        from.zip(way).map(|(a, b)| self.cost[*a][*b]).sum()
    }

    /// Always to what is nearest.
    fn nearest(&self) -> Vec<usize> {
        let mut left: Vec<usize> = (1..self.cost.len()).collect();
        let (mut at, mut way) = (0, Vec::with_capacity(left.len()));
        while let Some(n) = (0..left.len()).min_by_key(|n| (self.cost[at][left[*n]], left[*n])) {
            at = left.remove(n);
            way.push(at);
        }
        way
    }

    fn improved(&self, mut way: Vec<usize>) -> Vec<usize> {
        for _ in 0..PASSES {
            let before = self.length(&way);
            for run in 1..=RUN {
                for first in 0..way.len().saturating_sub(run - 1) {
                    self.move_run(&mut way, first, run);
                }
            }
            if self.length(&way) >= before {
                break;
            }
        }
        way
    }

    /// Puts the run where it costs least.
    fn move_run(&self, way: &mut Vec<usize>, first: usize, run: usize) {
        let moved: Vec<usize> = way.drain(first..first + run).collect();
        let (Some(head), Some(tail)) = (moved.first(), moved.last()) else { return };
        let added = |at: usize| {
            let before = at.checked_sub(1).map_or(0, |n| way[n]);
            let in_way = self.cost[before][*head];
            match way.get(at) {
                Some(next) => {
                    let with = in_way + self.cost[*tail][*next];
                    (with.saturating_sub(self.cost[before][*next]), at.abs_diff(first))
                }
                None => (in_way, at.abs_diff(first)),
            }
        };
        let best = (0..=way.len()).min_by_key(|at| added(*at)).unwrap_or(first);
        way.splice(best..best, moved);
    }
}
