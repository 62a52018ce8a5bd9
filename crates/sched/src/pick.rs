//! Which volume a pool's backlog is written to.

use crate::fit::{Class, Reached};
use crate::plan::Planner;
use crate::{BlockedWhy, DriveState, Limits, SchedView, Tape, Want};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use types::{Access, Barcode, Generation, PoolName, VolumeState};

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
    pub fn takes_data_of(&self, pool: &PoolName) -> bool {
        matches!(self.state, VolumeState::Filling | VolumeState::Scratch)
            && self.pool.as_ref() == Some(pool)
            && self.free > 0
    }

    /// The same, or an empty volume that may still join the pool, whose media are of this kind.
    pub(crate) fn could_take_data_of(&self, pool: &PoolName, worm: bool) -> bool {
        let empty = matches!(self.state, VolumeState::Scratch | VolumeState::Blank);
        self.takes_data_of(pool) || (empty && self.pool.is_none() && self.worm == worm)
    }

    /// How well it takes the pool's data, best first; None: not at all.
    fn rank(&self, pool: &PoolName, worm: bool, limits: &Limits) -> Option<u8> {
        let old = |g: Generation| limits.given_up.is_some_and(|given_up| g.number() <= given_up.number());
        if !self.is_present() || self.generation.is_some_and(old) {
            return None;
        }
        if self.takes_data_of(pool) {
            return Some(0);
        }
        if self.worm != worm {
            return None;
        }
        let free = self.pool.is_none();
        match self.state {
            VolumeState::Scratch if free && self.free > 0 => Some(1),
            VolumeState::Blank if (free || self.pool.as_ref() == Some(pool)) && limits.label_blank => Some(2),
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

/// Volumes that take the data of one pool.
struct Candidates<'v> {
    lists: Vec<Alike<'v>>,
    /// Volumes that the pool may still get.
    room: u64,
    /// Some would take it, but no drive writes this medium.
    no_writer: Option<(Barcode, Option<Generation>)>,
}

/// Those that the same drives take, best first.
struct Alike<'v> {
    ranked: Vec<(Rank, Pick<'v>)>,
    /// Those before it cannot be had any more in this plan.
    next: usize,
}

/// How well a volume takes the data of a pool: its kind, at hand, of a newer medium (where it joins the pool), most written.
type Rank = (u8, bool, Reverse<Option<Generation>>, Reverse<u64>);

impl<'v> Pools<'v> {
    pub(crate) fn new(view: &SchedView<'v>) -> Self {
        let waiting = view.writes.iter().filter(|(_, backlog)| backlog.files > 0 || backlog.in_hand > 0);
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
/// unassigned scratch volume; a blank one. Among the last two a mounted one first, then one of a newer medium. One of each
/// kind that the same drives take, those first for which there is a drive now; last those that wait for a robot that fails.
pub(crate) fn pick_volumes<'v>(
    planner: &mut Planner<'v>,
    pool: &'v PoolName,
) -> Result<Vec<Pick<'v>>, BlockedWhy> {
    let mut candidates = match planner.pools.candidates.remove(pool) {
        Some(candidates) => candidates,
        None => Candidates::new(planner, pool),
    };
    let room = candidates.room > 0;
    let usable = |pick: &Pick<'v>| {
        // In a drive that has other work, or chosen already by this plan.
        let in_use = planner.drive_of.contains_key(pick.volume) && !planner.at_hand(pick.volume);
        !in_use && !planner.taken.contains(pick.volume) && (room || !pick.grows)
    };
    let mut picks = Vec::new();
    for alike in &mut candidates.lists {
        let left = alike.ranked.get(alike.next..).unwrap_or_default();
        let best = left.iter().position(|(_, pick)| usable(pick)).map(|n| alike.next + n);
        alike.next = best.unwrap_or(alike.ranked.len());
        picks.extend(alike.ranked.get(alike.next).copied());
    }
    let no_writer = candidates.no_writer.clone();
    planner.pools.candidates.insert(pool, candidates);
    picks.sort_by_cached_key(|(rank, pick)| {
        let tape = planner.view.volumes.get(pick.volume);
        let drive = tape.and_then(|tape| planner.empty_for(pick.volume, tape, Access::Write));
        let library = tape.and_then(Tape::library);
        let fails = library.is_some_and(|library| planner.view.robots_troubled.contains(&library));
        let fetched = !planner.at_hand(pick.volume);
        (fetched && fails, fetched && drive.is_none(), *rank, pick.volume)
    });
    if !picks.is_empty() {
        return Ok(picks.into_iter().map(|(_, pick)| pick).collect());
    }
    Err(match no_writer {
        _ if !room => BlockedWhy::PoolFull(pool.clone()),
        Some((volume, medium)) => BlockedWhy::NoWriter { pool: pool.clone(), volume, medium },
        None => BlockedWhy::NoVolume(pool.clone()),
    })
}

impl<'v> Candidates<'v> {
    fn new(planner: &mut Planner<'v>, pool: &PoolName) -> Self {
        let view = planner.view;
        let only = view.writes.get(pool).and_then(|backlog| backlog.library);
        let worm = view.writes.get(pool).is_some_and(|backlog| backlog.worm);
        let members = planner.pools.members(pool);
        let room = room(view, pool, members.len());
        let all: Vec<_> = members.iter().chain(&planner.pools.unassigned).copied().collect();
        let mut lists: BTreeMap<Class, Vec<(Rank, Pick<'v>)>> = BTreeMap::new();
        let mut no_writer = None;
        for (volume, tape) in all {
            if only.is_some() && only != tape.library() {
                continue;
            }
            let Some(rank) = tape.rank(pool, worm, view.limits) else { continue };
            if planner.reached(volume, tape, Access::Write) == Reached::Never {
                no_writer = no_writer.or_else(|| Some((volume.clone(), tape.generation)));
                continue;
            }
            let (newer, written) = match rank {
                0 => (None, tape.written),
                _ => (tape.generation, 0),
            };
            let pick = Pick { volume, blank: rank == 2, grows: tape.pool.is_none() };
            let rank = (rank, !planner.at_hand(volume), Reverse(newer), Reverse(written));
            lists.entry(tape.class()).or_default().push((rank, pick));
        }
        let sorted = |mut ranked: Vec<(Rank, Pick<'v>)>| {
            ranked.sort_unstable_by_key(|(rank, pick)| (*rank, pick.volume));
            Alike { ranked, next: 0 }
        };
        Self { lists: lists.into_values().map(sorted).collect(), room, no_writer }
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
