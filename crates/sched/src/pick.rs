//! Which volume a pool's backlog is written to.

use crate::plan::Planner;
use crate::{BlockedWhy, DriveState, Place, Tape, Want};
use std::cmp::Reverse;
use types::{Barcode, PoolName, VolumeState};

/// The choice.
pub(crate) struct Pick {
    pub volume: Barcode,
    /// It has to be labelled first.
    pub blank: bool,
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
}

/// Order of preference, best first: a volume of the pool that is mounted; one in a slot, most written first; an
/// unassigned scratch volume; a blank one. Among the last two a mounted one first.
pub(crate) fn pick_volume(planner: &Planner<'_>, pool: &PoolName) -> Result<Pick, BlockedWhy> {
    let may_grow = may_grow(planner, pool);
    let ranked = planner.view.volumes.iter().filter_map(|(volume, tape)| {
        let rank = rank(planner, pool, tape, may_grow)?;
        let at_hand = planner.at_hand(volume);
        // In a drive that has other work, or chosen already by this plan.
        let in_use = planner.drive_of.contains_key(volume) && !at_hand;
        if in_use || planner.taken.contains(volume) {
            return None;
        }
        let key = if rank == 0 { (0, !at_hand, Reverse(tape.written)) } else { (rank, !at_hand, Reverse(0)) };
        Some((key, volume))
    });
    let best = ranked.min().map(|((rank, ..), volume)| Pick { volume: volume.clone(), blank: rank == 2 });
    best.ok_or_else(|| {
        if may_grow { BlockedWhy::NoVolume(pool.clone()) } else { BlockedWhy::PoolFull(pool.clone()) }
    })
}

fn rank(planner: &Planner<'_>, pool: &PoolName, tape: &Tape, may_grow: bool) -> Option<u8> {
    if tape.place != Place::Library {
        return None;
    }
    if tape.takes_data_of(pool) {
        return Some(0);
    }
    let free = tape.pool.is_none() && may_grow;
    match tape.state {
        VolumeState::Scratch if free && tape.free > 0 => Some(1),
        VolumeState::Blank
            if (free || tape.pool.as_ref() == Some(pool)) && planner.view.limits.label_blank =>
        {
            Some(2)
        }
        _ => None,
    }
}

/// Whether the pool may get one more volume; one that is being prepared for it counts.
fn may_grow(planner: &Planner<'_>, pool: &PoolName) -> bool {
    let max = planner.view.writes.get(pool).map_or(0, |backlog| backlog.max_volumes);
    if max == 0 {
        return true;
    }
    let view = planner.view;
    let members = view.volumes.values().filter(|tape| tape.pool.as_ref() == Some(pool)).count();
    let want = Want::Write(pool.clone());
    let joining = view.drives.iter().filter(|drive| match &drive.state {
        DriveState::Busy(busy) => {
            busy.want.as_ref() == Some(&want)
                && view.volumes.get(&busy.volume).is_some_and(|tape| tape.pool.is_none())
        }
        _ => false,
    });
    ((members + joining.count()) as u64) < u64::from(max)
}
