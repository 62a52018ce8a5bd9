//! How many volumes of their own owners may have in pools that keep owners apart. Who has as many, and none of them takes data,
//! shares: his copies wait in the queue of the pool itself, for volumes that are nobody's. So nothing waits for a limit.

use super::family::{split, takes};
use super::{look, tapes};
use crate::Node;
use sched::Tape;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use types::*;

/// Family of an owner's files.
pub fn family_of(uid: u32) -> String {
    format!("uid {uid}")
}

fn owner_of(family: &str) -> Option<u32> {
    family.strip_prefix("uid ")?.parse().ok()
}

/// Limits of owners.
#[derive(Debug, Default)]
pub struct OwnLimits {
    of: HashMap<u32, u32>,
    others: u32,
}

impl OwnLimits {
    /// What quotas say.
    pub fn new(quotas: &[Quota]) -> Self {
        let of = quotas.iter().filter_map(|q| Some((q.uid?, q.volumes))).collect();
        let others = quotas.iter().find(|q| q.uid.is_none()).map_or(0, |q| q.volumes);
        Self { of, others }
    }

    fn is_empty(&self) -> bool {
        self.others == 0 && self.of.values().all(|most| *most == 0)
    }

    /// Most volumes of its own that a family of this pool may have.
    pub fn of(&self, pool: &Pool, family: Option<&str>) -> u32 {
        let by_owner = pool.collocate == Collocate::Owner;
        let Some(uid) = family.filter(|_| by_owner).and_then(owner_of) else { return u32::MAX };
        // As with other quotas, what is for everybody does not concern the administrator.
        let others = if uid == 0 { 0 } else { self.others };
        match self.of.get(&uid).copied().unwrap_or(others) {
            0 => u32::MAX,
            most => most,
        }
    }
}

/// How many volumes of his own each owner has, of the pools that keep owners apart in the one where he has most.
pub fn own_volumes(volumes: &[Volume], pools: &[Pool]) -> HashMap<u32, u32> {
    let by_owner = |pool: &PoolName| pools.iter().any(|p| p.name == *pool && p.collocate == Collocate::Owner);
    let mut of_pool: HashMap<(u32, &PoolName), u32> = HashMap::new();
    for v in volumes {
        if let (Some(uid), Some(pool)) = (v.family.as_deref().and_then(owner_of), &v.pool)
            && by_owner(pool)
        {
            *of_pool.entry((uid, pool)).or_default() += 1;
        }
    }
    let mut most: HashMap<u32, u32> = HashMap::new();
    for ((uid, _), count) in of_pool {
        let known = most.entry(uid).or_default();
        *known = count.max(*known);
    }
    most
}

/// Volumes of a family, and whether one of them takes data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    volumes: u32,
    open: bool,
}

/// What there is to write with.
struct Drives {
    all: Vec<sched::Drive>,
    /// Media of this generation and of older ones take no more data.
    given_up: Option<Generation>,
}

impl Drives {
    /// Whether a drive writes it, or would if any were in use.
    fn write(&self, barcode: &Barcode, tape: &Tape) -> bool {
        let old = |g: Generation| self.given_up.is_some_and(|given_up| g.number() <= given_up.number());
        let writes = |d: &sched::Drive| d.usable && d.takes(barcode, tape, Access::Write);
        takes(tape)
            && !tape.generation.is_some_and(old)
            && (self.all.iter().any(writes) || self.all.iter().all(|d| !d.usable))
    }
}

impl Node {
    /// Limits of volumes, if any pool keeps owners apart.
    pub(crate) fn own_limits(&self, pools: &[Pool]) -> OwnLimits {
        if pools.iter().all(|p| p.collocate != Collocate::Owner) {
            return OwnLimits::default();
        }
        // Without them nothing is lost: owners get volumes of their own.
        let quotas = self.catalog.quotas().inspect_err(|e| tracing::error!("quotas of volumes: {e}"));
        OwnLimits::new(&quotas.unwrap_or_default())
    }

    /// What waits for owners who have as many volumes as they may, and none that takes data, goes to volumes that they share.
    pub(crate) fn share_volumes(&self) {
        let pools = self.catalog.pools().unwrap_or_default();
        let limits = self.own_limits(&pools);
        if limits.is_empty() {
            return;
        }
        let backlog = self.writes.backlog();
        let mut limited: BTreeMap<&PoolName, (&Pool, u32, Held)> = BTreeMap::new();
        for queue in backlog.keys() {
            let (base, family) = split(queue);
            let pool = pools.iter().find(|p| p.name == base);
            let (Some(pool), Some(family)) = (pool, family) else { continue };
            let most = limits.of(pool, Some(family));
            if most < u32::MAX {
                limited.insert(queue, (pool, most, Held::default()));
            }
        }
        if limited.is_empty() {
            return;
        }
        let all = tapes::all(self);
        let bound: HashMap<&PoolName, Option<LibraryNo>> =
            pools.iter().map(|p| (&p.name, self.bound_to(p))).collect();
        let mut state = self.archive.state.lock();
        let Some((apart, _)) = tapes::take_apart(&mut state, &pools, &all) else { return };
        let drives = state.drives.values().map(|d| look::sched_drive(d, &BTreeSet::new())).collect();
        let drives = Drives { all: drives, given_up: look::given_up(self) };
        for (queue, (.., held)) in &mut limited {
            held.volumes = apart.held_by(queue);
        }
        for (barcode, tape) in apart.open() {
            if let Some((pool, _, held)) = tape.pool.as_ref().and_then(|queue| limited.get_mut(queue)) {
                let only = bound.get(&pool.name).copied().flatten();
                held.open |= (only.is_none() || only == tape.library()) && drives.write(barcode, tape);
            }
        }
        tapes::keep_apart(&mut state, apart);
        drop(state);
        for (queue, (pool, most, held)) in limited {
            if held.volumes >= most && !held.open {
                self.writes.move_all(queue, &pool.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owners_own_limit_goes_before_that_of_all_which_is_not_for_root() {
        let quota = |uid, volumes| Quota { uid, volumes, ..Quota::default() };
        let limits = OwnLimits::new(&[quota(Some(7), 2), quota(Some(8), 0), quota(None, 5)]);
        let pool = Pool { collocate: Collocate::Owner, ..Pool::new("p".into()) };
        let of = |uid| limits.of(&pool, Some(&family_of(uid)));
        assert_eq!([of(7), of(8), of(9), of(0)], [2, u32::MAX, 5, u32::MAX]);
        assert_eq!(limits.of(&pool, None), u32::MAX, "what nobody owns is not limited");
        let by_group = Pool { collocate: Collocate::Group, ..pool };
        assert_eq!(limits.of(&by_group, Some("uid 7")), u32::MAX, "a directory may be called so");
        assert!(OwnLimits::new(&[quota(Some(7), 0)]).is_empty() && !limits.is_empty());
    }

    #[test]
    fn volumes_of_an_owner_are_counted_by_pool() {
        let volume = |n: u32, pool: &str, family: Option<&str>| Volume {
            pool: Some(pool.into()),
            family: family.map(str::to_owned),
            ..Volume::new(Barcode::from(format!("V{n}")), Time::default())
        };
        let all = [
            volume(1, "p", Some("uid 7")),
            volume(2, "p", Some("uid 7")),
            volume(3, "q", Some("uid 7")),
            volume(4, "p", None),
            volume(5, "p", Some("gid 7")),
        ];
        let pools = ["p", "q"].map(|name| Pool { collocate: Collocate::Owner, ..Pool::new(name.into()) });
        assert_eq!(own_volumes(&all, &pools), HashMap::from([(7, 2)]));
        assert_eq!(own_volumes(&all, &pools[1..]), HashMap::from([(7, 1)]), "the other keeps nobody apart");
    }

    #[test]
    fn a_volume_that_no_drive_writes_is_none_to_wait_for() {
        use sched::Place;
        let place = Place::Library(LibraryNo(0));
        let tape = Tape {
            state: VolumeState::Filling,
            pool: Some("p".into()),
            place,
            written: 1,
            free: 1,
            generation: Some(Generation::Lto7),
            wraps: false,
            worm: false,
        };
        let drive = |generation, usable| sched::Drive {
            reach: Reach::of(generation),
            usable,
            ..sched::Drive::new(DriveNo(0))
        };
        let volume = Barcode::from("V1");
        let writes =
            |all: &[sched::Drive], given_up| Drives { all: all.to_vec(), given_up }.write(&volume, &tape);
        let (old, new) = (drive(Generation::Lto7, true), drive(Generation::Lto9, true));
        assert!(writes(&[old.clone(), new.clone()], None));
        assert!(!writes(std::slice::from_ref(&new), None), "it is too old for that drive");
        assert!(!writes(&[drive(Generation::Lto7, false), new], None), "that one is out of use");
        assert!(writes(&[drive(Generation::Lto7, false)], None), "all are: nothing would be gained");
        assert!(!writes(&[old], Some(Generation::Lto7)), "it is being emptied");
    }
}
