//! Volumes as the scheduler sees them where pools collocate: those of each family as of a pool of its own, and what is counted of
//! them. There may be tens of thousands, so this is kept from one pass to the next, and changed with each of them.

use super::family::{Member, join, pool_of, takes};
use sched::Tape;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use types::*;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// Pools that collocate.
    pools: BTreeSet<PoolName>,
    tapes: BTreeMap<Barcode, Tape>,
    /// Volumes of each queue.
    held: HashMap<PoolName, u32>,
    /// Volumes of each pool, of all its families.
    of_pool: HashMap<PoolName, u32>,
    /// Those of some pool that take data.
    open: BTreeSet<Barcode>,
    /// Empty ones of no pool: those that can be written again, and those that cannot.
    fresh: [u32; 2],
    /// What was lent, and to whom it belongs.
    lent: Vec<(Barcode, Option<PoolName>)>,
}

/// Pools that collocate.
pub fn collocating(pools: &[Pool]) -> BTreeSet<PoolName> {
    pools.iter().filter(|p| p.collocate != Collocate::Off).map(|p| p.name.clone()).collect()
}

impl Apart {
    /// All of these volumes.
    pub fn new(
        pools: BTreeSet<PoolName>,
        tapes: &BTreeMap<Barcode, Tape>,
        members: &HashMap<Barcode, Member>,
    ) -> Self {
        let mut new = Self { pools, ..Self::default() };
        for (barcode, tape) in tapes {
            new.put(barcode, Some((tape, members.get(barcode))));
        }
        new
    }

    /// Whether these are the pools that collocate.
    pub fn is_of(&self, pools: &BTreeSet<PoolName>) -> bool {
        self.pools == *pools
    }

    /// All volumes.
    pub fn tapes(&self) -> &BTreeMap<Barcode, Tape> {
        &self.tapes
    }

    /// Volumes of a queue.
    pub fn held_by(&self, queue: &PoolName) -> u32 {
        self.held.get(queue).copied().unwrap_or(0)
    }

    /// Volumes of a pool.
    pub fn held_in(&self, pool: &PoolName) -> u32 {
        self.of_pool.get(pool).copied().unwrap_or(0)
    }

    /// Volumes of some pool that take data.
    pub fn open(&self) -> impl Iterator<Item = (&Barcode, &Tape)> {
        self.open.iter().filter_map(|barcode| Some((barcode, self.tapes.get(barcode)?)))
    }

    /// Whether there are empty volumes of no pool, that can be written once or again.
    pub fn has_fresh(&self, worm: bool) -> bool {
        self.fresh[usize::from(worm)] > 0
    }

    /// The volume is so now; None: there is none.
    pub fn put(&mut self, barcode: &Barcode, now: Option<(&Tape, Option<&Member>)>) {
        let now = now.map(|(tape, member)| {
            let family = member.and_then(|m| m.family.as_deref());
            let mut tape = tape.clone();
            if let (Some(pool), Some(family)) =
                (tape.pool.as_ref().filter(|p| self.pools.contains(*p)), family)
            {
                tape.pool = Some(join(pool, family));
            }
            tape
        });
        self.set(barcode, now);
    }

    /// The volume takes data of this queue now, until all is given back.
    pub fn lend(&mut self, barcode: &Barcode, to: &PoolName) {
        let Some(tape) = self.tapes.get(barcode) else { return };
        let lent = Tape { pool: Some(to.clone()), ..tape.clone() };
        self.lent.push((barcode.clone(), tape.pool.clone()));
        self.set(barcode, Some(lent));
    }

    /// What was lent belongs to whom it did before.
    pub fn give_back(&mut self) {
        for (barcode, pool) in std::mem::take(&mut self.lent).into_iter().rev() {
            let tape = self.tapes.get(&barcode).map(|tape| Tape { pool, ..tape.clone() });
            self.set(&barcode, tape);
        }
    }

    fn set(&mut self, barcode: &Barcode, now: Option<Tape>) {
        let before = match &now {
            Some(tape) => self.tapes.insert(barcode.clone(), tape.clone()),
            None => self.tapes.remove(barcode),
        };
        if let Some(tape) = before {
            self.count(barcode, &tape, false);
        }
        if let Some(tape) = now {
            self.count(barcode, &tape, true);
        }
    }

    fn count(&mut self, barcode: &Barcode, tape: &Tape, there: bool) {
        let Some(queue) = &tape.pool else {
            let empty = matches!(tape.state, VolumeState::Scratch | VolumeState::Blank);
            if tape.is_present() && empty {
                let fresh = &mut self.fresh[usize::from(tape.worm)];
                *fresh = if there { *fresh + 1 } else { *fresh - 1 };
            }
            return;
        };
        add(&mut self.held, queue, there);
        add(&mut self.of_pool, &pool_of(queue), there);
        if !there {
            self.open.remove(barcode);
        } else if takes(tape) {
            self.open.insert(barcode.clone());
        }
    }
}

/// One more, or one less; what there is none of is not in the map.
pub fn add(counts: &mut HashMap<PoolName, u32>, of: &PoolName, more: bool) {
    match counts.get_mut(of) {
        Some(1) if !more => drop(counts.remove(of)),
        Some(count) => *count = if more { *count + 1 } else { *count - 1 },
        None if more => drop(counts.insert(of.clone(), 1)),
        None => {}
    }
}
