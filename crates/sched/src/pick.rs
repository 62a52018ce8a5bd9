//! Which volume a pool's backlog is written to.

use crate::plan::Planner;
use crate::{BlockedWhy, DriveState, Place, SchedView, Tape, Want};
use std::cmp::Reverse;
use std::collections::HashMap;
use types::{Barcode, PoolName, VolumeState};

/// The choice.
#[derive(Clone, Copy)]
pub(crate) struct Pick<'v> {
    pub volume: &'v Barcode,
    /// It has to be labelled first.
    pub blank: bool,
    /// It joins the pool.
    pub grows: bool,
}

impl Tape {
    /// Whether it is a volume of the pool that takes data.
    pub(crate) fn takes_data_of(&self, pool: &PoolName) -> bool {
        matches!(self.state, VolumeState::Filling | VolumeState::Scratch)
            && self.pool.as_ref() == Some(pool)
            && self.free > 0
    }

    /// The same, or an empty volume that may still join the pool.
    pub(crate) fn could_take_data_of(&self, pool: &PoolName) -> bool {
        let empty = matches!(self.state, VolumeState::Scratch | VolumeState::Blank);
        self.takes_data_of(pool) || (empty && self.pool.is_none())
    }

    /// How well it takes the pool's data, best first; None: not at all.
    fn rank(&self, pool: &PoolName, label_blank: bool) -> Option<u8> {
        if self.place != Place::Library {
            return None;
        }
        if self.takes_data_of(pool) {
            return Some(0);
        }
        let free = self.pool.is_none();
        match self.state {
            VolumeState::Scratch if free && self.free > 0 => Some(1),
            VolumeState::Blank if (free || self.pool.as_ref() == Some(pool)) && label_blank => Some(2),
            _ => None,
        }
    }
}

/// The volumes, sorted by pool in one look at all of them.
pub(crate) struct Pools<'v> {
    /// Of each pool that has a backlog.
    members: HashMap<&'v PoolName, Vec<(&'v Barcode, &'v Tape)>>,
    /// Empty ones that belong to none.
    unassigned: Vec<(&'v Barcode, &'v Tape)>,
    candidates: HashMap<&'v PoolName, Candidates<'v>>,
}

/// Volumes that take the data of one pool, best first.
struct Candidates<'v> {
    ranked: Vec<Pick<'v>>,
    /// Those before it cannot be had any more in this plan.
    next: usize,
    /// Volumes that the pool may still get.
    room: u64,
}

impl<'v> Pools<'v> {
    pub(crate) fn new(view: &SchedView<'v>) -> Self {
        let waiting = view.writes.iter().filter(|(_, backlog)| backlog.files > 0);
        let mut members: HashMap<&PoolName, Vec<_>> = waiting.map(|(pool, _)| (pool, Vec::new())).collect();
        let mut unassigned = Vec::new();
        if !members.is_empty() {
            for (volume, tape) in view.volumes {
                match &tape.pool {
                    Some(pool) => drop(members.get_mut(pool).map(|all| all.push((volume, tape)))),
                    None if matches!(tape.state, VolumeState::Scratch | VolumeState::Blank) => {
                        unassigned.push((volume, tape));
                    }
                    None => {}
                }
            }
        }
        Self { members, unassigned, candidates: HashMap::new() }
    }

    /// Volumes of a pool that has a backlog.
    pub(crate) fn members(&self, pool: &PoolName) -> &[(&'v Barcode, &'v Tape)] {
        self.members.get(pool).map_or(&[], |all| all)
    }

    /// A volume joins the pool.
    pub(crate) fn grown(&mut self, pool: &PoolName) {
        if let Some(candidates) = self.candidates.get_mut(pool) {
            candidates.room = candidates.room.saturating_sub(1);
        }
    }
}

/// Order of preference, best first: a volume of the pool that is mounted; one in a slot, most written first; an
/// unassigned scratch volume; a blank one. Among the last two a mounted one first.
pub(crate) fn pick_volume<'v>(planner: &mut Planner<'v>, pool: &'v PoolName) -> Result<Pick<'v>, BlockedWhy> {
    let mut candidates =
        planner.pools.candidates.remove(pool).unwrap_or_else(|| Candidates::new(planner, pool));
    let room = candidates.room > 0;
    let usable = |pick: &Pick<'v>| {
        // In a drive that has other work, or chosen already by this plan.
        let in_use = planner.drive_of.contains_key(pick.volume) && !planner.at_hand(pick.volume);
        !in_use && !planner.taken.contains(pick.volume) && (room || !pick.grows)
    };
    let left = candidates.ranked.get(candidates.next..).unwrap_or_default();
    let best = left.iter().position(usable).map(|n| candidates.next + n);
    candidates.next = best.unwrap_or(candidates.ranked.len());
    let pick = candidates.ranked.get(candidates.next).copied();
    planner.pools.candidates.insert(pool, candidates);
    pick.ok_or_else(|| {
        if room { BlockedWhy::NoVolume(pool.clone()) } else { BlockedWhy::PoolFull(pool.clone()) }
    })
}

impl<'v> Candidates<'v> {
    fn new(planner: &Planner<'v>, pool: &PoolName) -> Self {
        let view = planner.view;
        let members = planner.pools.members(pool);
        let ranked = members.iter().chain(&planner.pools.unassigned).filter_map(|(volume, tape)| {
            let rank = tape.rank(pool, view.limits.label_blank)?;
            let written = if rank == 0 { tape.written } else { 0 };
            Some(((rank, !planner.at_hand(volume), Reverse(written)), *volume, tape.pool.is_none()))
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_unstable();
        let picks =
            ranked.into_iter().map(|((rank, ..), volume, grows)| Pick { volume, blank: rank == 2, grows });
        Self { ranked: picks.collect(), next: 0, room: room(view, pool, members.len()) }
    }
}

/// Volumes that the pool may still get; those that are being prepared for it count.
fn room(view: &SchedView<'_>, pool: &PoolName, members: usize) -> u64 {
    let max = view.writes.get(pool).map_or(0, |backlog| backlog.max_volumes);
    if max == 0 {
        return u64::MAX;
    }
    let joining = view.drives.iter().filter(|drive| match &drive.state {
        DriveState::Busy(busy) => {
            matches!(&busy.want, Some(Want::Write(other)) if other == pool)
                && view.volumes.get(&busy.volume).is_some_and(|tape| tape.pool.is_none())
        }
        _ => false,
    });
    u64::from(max).saturating_sub((members + joining.count()) as u64)
}
