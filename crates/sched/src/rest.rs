//! Mounted volumes at rest, and which of them makes room for another.

use crate::demand::{Demand, InHand, Level, Need};
use crate::fit::Class;
use crate::turns::STEPS_OF_TURN;
use crate::volumes::Volume;
use crate::{Drive, DriveState, Loaded, SchedView};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use types::{Access, DriveNo};

/// Turns by which the use of drives of two owners differs clearly.
const CLEARLY: u64 = 2 * STEPS_OF_TURN as u64;

/// One of them.
#[derive(Clone, Copy)]
struct Mounted<'v> {
    drive: &'v Drive,
    loaded: &'v Loaded,
    /// Best demand that it could serve.
    own: Option<&'v Demand<'v>>,
    /// It has had its time.
    turn_over: bool,
    /// It is wanted so often that the next wish is likely to come before its cartridge would be back: without work too it keeps
    /// its drive against others, for one turn.
    held: bool,
}

impl<'v> Mounted<'v> {
    fn new(view: &SchedView<'v>, drive: &'v Drive, own: Option<&'v Demand<'v>>) -> Option<Self> {
        let DriveState::Loaded(loaded) = &drive.state else { return None };
        let turn_over = view.now.since(loaded.mounted) >= view.limits.turn;
        let wanted = || view.heat.of(&loaded.volume, view.now) * view.limits.exchange.as_secs_f64();
        let held = own.is_none() && !turn_over && wanted() > 1.0;
        Some(Self { drive, loaded, own, turn_over, held })
    }

    fn takes(&self, volume: &Volume<'_>, access: Access) -> bool {
        self.drive.takes(&volume.name, volume.tape, access)
    }

    fn may_go_for(&self, demand: &Demand<'_>) -> bool {
        let presses = demand.starving || demand.level == Level::PressedWrite;
        self.own.map_or(presses || !self.held, |own| demand.may_displace(own, self.turn_over))
    }

    /// How easily it can be done without, easiest first: nothing to do for longest, else of the least urgent demand.
    fn rank(&self) -> impl Ord + use<> {
        let own = self.own.map(|own| (own.starving, Reverse(own.level)));
        (own, self.loaded.idle_since, self.drive.id)
    }
}

/// Those in drives that may still get an action.
#[derive(Default)]
pub(crate) struct AtRest<'v> {
    /// Easiest to do without first.
    mounted: Vec<Mounted<'v>>,
    /// Whose volume has had its turn of recalls: they may go to an owner who has fewer. By drive.
    to_share: Vec<Mounted<'v>>,
    /// Drives that each owner holds: working for him, or at rest with a volume that has work of his.
    held: HashMap<u32, u32>,
    /// Demands that could not displace anything: later ones of the same kind, for which the same drives would do, cannot
    /// either, and need not look at every drive again.
    hopeless: BTreeSet<(Kind, Class, Access)>,
    /// Owners, with their weight, to whom none of [`AtRest::to_share`] may go: later demands of theirs, who have had more by
    /// then, need not look again until others hold more.
    in_turn: HashSet<(u32, u64, Kind, Class, Access)>,
}

impl<'v> AtRest<'v> {
    pub(crate) fn new(
        view: &SchedView<'v>,
        hand: &InHand<'v>,
        free: impl Iterator<Item = &'v Drive>,
        own: &BTreeMap<DriveNo, &'v Demand<'v>>,
    ) -> Self {
        let mounted = free.filter_map(|drive| Mounted::new(view, drive, own.get(&drive.id).copied()));
        let mut mounted: Vec<Mounted<'v>> = mounted.collect();
        let recalls = |m: &&Mounted<'_>| m.own.is_some_and(|own| matches!(own.need, Need::Recall(_)));
        let to_share = mounted.iter().filter(|m| m.turn_over).filter(recalls).copied().collect();
        let mut held = hand.owners.clone();
        for own in mounted.iter().filter(recalls).filter_map(|m| m.own) {
            *held.entry(own.owner).or_default() += 1;
        }
        mounted.sort_by_cached_key(Mounted::rank);
        Self { mounted, to_share, held, hopeless: BTreeSet::new(), in_turn: HashSet::new() }
    }

    /// Its drive has got an action.
    pub(crate) fn remove(&mut self, id: DriveNo) {
        for all in [&mut self.mounted, &mut self.to_share] {
            if let Some(at) = all.iter().position(|mounted| mounted.drive.id == id) {
                all.remove(at);
            }
        }
    }

    /// The mounted volume that is easiest to do without, else one of an owner who holds more than his share.
    pub(crate) fn victim(
        &mut self,
        demand: &Demand<'v>,
        volume: &Volume<'_>,
        access: Access,
    ) -> Option<(DriveNo, &'v Loaded)> {
        let alike = (kind(demand), volume.class, access);
        let mut victim = None;
        if !self.hopeless.contains(&alike) {
            let may = |m: &&Mounted<'_>| m.takes(volume, access) && m.may_go_for(demand);
            victim = self.mounted.iter().find(may).copied();
            if victim.is_none() && !volume.refused {
                self.hopeless.insert(alike);
            }
        }
        let victim = victim.or_else(|| self.shared(demand, volume, access))?;
        if let Some(own) = victim.own.filter(|own| matches!(own.need, Need::Recall(_))) {
            self.held.entry(own.owner).and_modify(|drives| *drives = drives.saturating_sub(1));
        }
        self.holds_one_more(demand);
        Some((victim.drive.id, victim.loaded))
    }

    /// One of an owner who holds more than his share.
    fn shared(&mut self, demand: &Demand<'v>, volume: &Volume<'_>, access: Access) -> Option<Mounted<'v>> {
        if self.to_share.is_empty() || demand.level != Level::Recall || demand.starving {
            return None;
        }
        let who = (demand.owner, demand.weight.to_bits(), kind(demand), volume.class, access);
        if self.in_turn.contains(&who) {
            return None;
        }
        let fairer = |m: &&Mounted<'_>| m.own.is_some_and(|own| self.is_fairer(demand, own));
        let found = self.to_share.iter().filter(fairer).find(|m| m.takes(volume, access)).copied();
        // Deadlines come before what has been had.
        if found.is_none() && !volume.refused && demand.due.is_none() {
            self.in_turn.insert(who);
        }
        found
    }

    /// An owner gets a drive, or one is cleared for him.
    pub(crate) fn holds_one_more(&mut self, demand: &Demand<'_>) {
        if let Need::Recall(_) = demand.need {
            *self.held.entry(demand.owner).or_default() += 1;
            if self.to_share.iter().any(|m| m.own.is_some_and(|own| own.owner == demand.owner)) {
                self.in_turn.clear();
            }
        }
    }

    /// Whether the owner of a demand would still hold fewer drives than the other, for his weight, if he took one of his; or
    /// hardly more, and he has had clearly less so far.
    fn is_fairer(&self, demand: &Demand<'_>, other: &Demand<'_>) -> bool {
        if kind(demand) != kind(other) {
            return false;
        }
        let drives = |d: &Demand<'_>| f64::from(self.held.get(&d.owner).copied().unwrap_or(0));
        let (mine, his) = ((drives(demand) + 1.0) / demand.weight, drives(other) / other.weight);
        let had_less = demand.had.saturating_add(CLEARLY) < other.had;
        let hardly_more = mine <= his + 1.0 / demand.weight.min(other.weight);
        demand.owner != other.owner && (mine < his || (had_less && hardly_more))
    }
}

/// What decides, with its age, which mounted volumes a demand may displace: starving, level, priority, due.
type Kind = (bool, Level, u8, bool);

fn kind(demand: &Demand<'_>) -> Kind {
    (demand.starving, demand.level, demand.priority, demand.due.is_some())
}
