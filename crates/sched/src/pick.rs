//! Which volume a pool's backlog is written to.

use crate::fit::{Class, Reached};
use crate::plan::Planner;
use crate::volumes::{Volume, Volumes};
use crate::{BlockedWhy, DriveState, Limits, SchedView, Tape, Want};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use types::{Access, Generation, LibraryNo, PoolName, VolumeState};

/// The choice.
#[derive(Clone, Copy)]
pub(crate) struct Pick<'v> {
    pub volume: &'v Volume<'v>,
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

    /// How well it takes data of its pool, or of one that it joins, whose media are of this kind; best first, None: not at
    /// all.
    fn rank(&self, worm: bool, limits: &Limits) -> Option<u8> {
        use VolumeState as S;
        let old = |g: Generation| limits.given_up.is_some_and(|given_up| g.number() <= given_up.number());
        if !self.is_present() || self.generation.is_some_and(old) {
            return None;
        }
        let (joins, room) = (self.pool.is_none(), self.free > 0);
        match self.state {
            S::Filling | S::Scratch if !joins && room => Some(0),
            S::Scratch if joins && room && self.worm == worm => Some(1),
            S::Blank if limits.label_blank && self.worm == worm => Some(2),
            _ => None,
        }
    }
}

/// The volumes that may be written, by pool.
pub(crate) struct Pools<'v> {
    /// Those that have a backlog.
    waiting: BTreeMap<&'v PoolName, Pool<'v>>,
    /// Empty volumes that belong to none.
    unassigned: Vec<&'v Volume<'v>>,
    /// The same, for whichever pool has a use for them: by kind of medium, and by drives that take them.
    joining: Option<BTreeMap<(bool, Likes), Alike<'v>>>,
}

#[derive(Default)]
struct Pool<'v> {
    /// Number of its volumes, if there may only be so many.
    members: usize,
    /// Those of them that are not full, nor kept from being written for any other reason.
    open: Vec<&'v Volume<'v>>,
    candidates: Option<Candidates<'v>>,
}

/// Volumes that take the data of one pool.
struct Candidates<'v> {
    /// Of its own.
    own: BTreeMap<Likes, Alike<'v>>,
    /// Only those in this library.
    only: Option<LibraryNo>,
    worm: bool,
    /// Volumes that the pool may still get.
    room: u64,
}

/// Those that the same drives take, best first.
#[derive(Default)]
struct Alike<'v> {
    ranked: Vec<(Rank, Pick<'v>)>,
    /// Those before it cannot be had any more in this plan.
    next: usize,
    /// The first that would do, but no drive writes this medium.
    no_writer: Option<&'v Volume<'v>>,
}

/// How well a volume takes the data of a pool: its kind, at hand, of a newer medium (where it joins the pool), most written;
/// then by number.
type Rank = (u8, bool, Reverse<Option<Generation>>, Reverse<u64>, u32);

impl<'v> Pools<'v> {
    pub(crate) fn new(view: &SchedView<'v>, volumes: &'v Volumes<'v>) -> Self {
        let waiting = view.writes.iter().filter(|(_, backlog)| backlog.files > 0 || backlog.in_hand > 0);
        let mut waiting: BTreeMap<_, _> = waiting.map(|(pool, _)| (pool, Pool::default())).collect();
        let mut unassigned = Vec::new();
        let all = if waiting.is_empty() { &[] } else { volumes.all() };
        // Most volumes are full: which pool has them matters only where their number does.
        let counted = view.writes.values().any(|backlog| backlog.max_volumes > 0);
        for volume in all {
            use VolumeState as S;
            let open = matches!(volume.tape.state, S::Filling | S::Scratch | S::Blank);
            if !open && !counted {
                continue;
            }
            let Some(pool) = &volume.tape.pool else {
                if open && volume.tape.state != S::Filling {
                    unassigned.push(volume);
                }
                continue;
            };
            if let Some(pool) = waiting.get_mut(pool) {
                pool.members += 1;
                if open {
                    pool.open.push(volume);
                }
            }
        }
        Self { waiting, unassigned, joining: None }
    }

    /// Volumes of a pool that has a backlog, but those that are full or not to be written.
    pub(crate) fn open(&self, pool: &PoolName) -> &[&'v Volume<'v>] {
        self.waiting.get(pool).map_or(&[], |pool| &pool.open)
    }

    /// A volume joins the pool.
    pub(crate) fn grown(&mut self, pool: &PoolName) {
        if let Some(candidates) = self.waiting.get_mut(pool).and_then(|pool| pool.candidates.as_mut()) {
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
    let known = planner.pools.waiting.get_mut(pool).and_then(|pool| pool.candidates.take());
    let mut candidates = known.unwrap_or_else(|| Candidates::new(planner, pool));
    let mut joining = planner.pools.joining.take().unwrap_or_else(|| joining(planner));
    let picks = candidates.picks(planner, &mut joining);
    let failed = if picks.is_empty() { Some(candidates.why_none(planner, pool, &joining)) } else { None };
    planner.pools.joining = Some(joining);
    if let Some(pool) = planner.pools.waiting.get_mut(pool) {
        pool.candidates = Some(candidates);
    }
    if let Some(why) = failed {
        return Err(why);
    }
    let keyed = |(rank, pick): (Rank, Pick<'v>)| {
        let drive = planner.empty_for(pick.volume, Access::Write);
        let library = pick.volume.class.0;
        let fails = library.is_some_and(|library| planner.view.robots_troubled.contains(&library));
        let fetched = !planner.at_hand(pick.volume);
        ((fetched && fails, fetched && drive.is_none(), rank), pick)
    };
    let mut picks: Vec<_> = picks.into_iter().map(keyed).collect();
    picks.sort_unstable_by_key(|(key, _)| *key);
    Ok(picks.into_iter().map(|(_, pick)| pick).collect())
}

impl<'v> Candidates<'v> {
    fn new(planner: &mut Planner<'v>, pool: &PoolName) -> Self {
        let backlog = planner.view.writes.get(pool);
        let (only, worm) = (backlog.and_then(|b| b.library), backlog.is_some_and(|b| b.worm));
        let of_pool = planner.pools.waiting.get_mut(pool);
        let (members, open) = of_pool.map_or((0, Vec::new()), |p| (p.members, p.open.clone()));
        let mut own: BTreeMap<Likes, Alike<'v>> = BTreeMap::new();
        for volume in open.into_iter().filter(|volume| is_in(only, volume.class)) {
            if let Some(rank) = volume.tape.rank(worm, planner.view.limits) {
                own.entry(likes(volume)).or_default().add(planner, volume, rank);
            }
        }
        own.values_mut().for_each(Alike::sort);
        Self { own, only, worm, room: room(planner.view, pool, members) }
    }

    /// The best that can be had of each kind that the same drives take.
    fn picks(
        &mut self,
        planner: &Planner<'v>,
        joining: &mut BTreeMap<(bool, Likes), Alike<'v>>,
    ) -> Vec<(Rank, Pick<'v>)> {
        let mut best: Vec<(Likes, (Rank, Pick<'v>))> = Vec::new();
        for (class, alike) in &mut self.own {
            best.extend(alike.best(planner).map(|found| (*class, found)));
        }
        let (only, worm) = (self.only, self.worm);
        let joining = joining.iter_mut().filter(|((kind, class), _)| *kind == worm && is_in(only, class.0));
        for ((_, class), alike) in joining.take_while(|_| self.room > 0) {
            let Some(found) = alike.best(planner) else { continue };
            match best.iter_mut().find(|(own, _)| own == class) {
                Some((_, own)) if own.0 <= found.0 => {}
                Some((_, own)) => *own = found,
                None => best.push((*class, found)),
            }
        }
        best.into_iter().map(|(_, found)| found).collect()
    }

    /// Why none can be had.
    fn why_none(
        &self,
        planner: &Planner<'v>,
        pool: &PoolName,
        joining: &BTreeMap<(bool, Likes), Alike<'v>>,
    ) -> BlockedWhy {
        // A volume that takes data has other work now.
        let mut own = self.own.values().flat_map(|alike| &alike.ranked).filter(|(_, pick)| !pick.grows);
        let in_use = own.find_map(|(_, pick)| match pick.volume.drive {
            Some(drive) if drive.usable => Some(BlockedWhy::VolumeBusy(drive.id)),
            None if planner.is_taken(pick.volume) => Some(BlockedWhy::DrivesBusy),
            _ => None,
        });
        if let Some(why) = in_use {
            return why;
        }
        if self.room == 0 {
            return BlockedWhy::PoolFull(pool.clone());
        }
        let first = |volumes: &mut dyn Iterator<Item = &'v Volume<'v>>| volumes.min_by_key(|v| v.no);
        let own = first(&mut self.own.values().filter_map(|alike| alike.no_writer));
        let others =
            joining.iter().filter(|((kind, class), _)| *kind == self.worm && is_in(self.only, class.0));
        match own.or_else(|| first(&mut others.filter_map(|(_, alike)| alike.no_writer))) {
            Some(volume) => {
                let (medium, volume) = (volume.tape.generation, volume.name.clone());
                BlockedWhy::NoWriter { pool: pool.clone(), volume, medium }
            }
            None => BlockedWhy::NoVolume(pool.clone()),
        }
    }
}

/// Empty volumes for whichever pool has a use for them.
fn joining<'v>(planner: &mut Planner<'v>) -> BTreeMap<(bool, Likes), Alike<'v>> {
    let mut all: BTreeMap<_, Alike<'v>> = BTreeMap::new();
    for volume in std::mem::take(&mut planner.pools.unassigned) {
        let worm = volume.tape.worm;
        if let Some(rank) = volume.tape.rank(worm, planner.view.limits) {
            all.entry((worm, likes(volume))).or_default().add(planner, volume, rank);
        }
    }
    all.values_mut().for_each(Alike::sort);
    all
}

impl<'v> Alike<'v> {
    fn add(&mut self, planner: &mut Planner<'v>, volume: &'v Volume<'v>, rank: u8) {
        if planner.reached(volume, Access::Write) == Reached::Never {
            self.no_writer = self.no_writer.or(Some(volume));
            return;
        }
        let (newer, written) = match rank {
            0 => (None, volume.tape.written),
            _ => (volume.tape.generation, 0),
        };
        let pick = Pick { volume, blank: rank == 2, grows: volume.tape.pool.is_none() };
        let rank = (rank, !planner.at_hand(volume), Reverse(newer), Reverse(written), volume.no);
        self.ranked.push((rank, pick));
    }

    fn sort(&mut self) {
        self.ranked.sort_unstable_by_key(|(rank, _)| *rank);
    }

    /// The best that can be had.
    fn best(&mut self, planner: &Planner<'v>) -> Option<(Rank, Pick<'v>)> {
        let usable = |(_, pick): &&(Rank, Pick<'v>)| {
            // Not in a drive that has other work, nor chosen already by this plan.
            (pick.volume.drive.is_none() || planner.at_hand(pick.volume)) && !planner.is_taken(pick.volume)
        };
        let left = self.ranked.get(self.next..).unwrap_or_default();
        self.next += left.iter().take_while(|found| !usable(found)).count();
        self.ranked.get(self.next).copied()
    }
}

/// Those that the same drives take; one that some drive has refused is by itself, and does not keep others of its class from
/// that drive.
type Likes = (Class, Option<u32>);

fn likes(volume: &Volume<'_>) -> Likes {
    (volume.class, volume.refused.then_some(volume.no))
}

fn is_in(library: Option<LibraryNo>, (place, _): Class) -> bool {
    library.is_none() || library == place
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
