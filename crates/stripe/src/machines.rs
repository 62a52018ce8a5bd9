//! Which machines have what was written and is not known to be durable: one that was started anew meanwhile may have lost it.

use crate::opened::Place;
use crate::{Result, Striped};
use data::frame::Op;
use data::{Channel, DataError, Ticket};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::TargetId;

/// The machines of the columns of a file, also of those that are moved or rebuilt while it is open.
pub struct Machines(Mutex<Known<Arc<Channel>>>);

/// Tells the number of the start of a machine: of the connection to it that there is, and of those that there were.
trait Boots {
    fn boot(&self) -> Option<u64>;
    fn connections(&self) -> u64;
    fn boot_of(&self, connection: u64) -> Option<u64>;
    /// Whether these are the same connections.
    fn is(&self, other: &Self) -> bool;
}

impl Boots for Arc<Channel> {
    fn boot(&self) -> Option<u64> {
        Channel::boot(self)
    }

    fn connections(&self) -> u64 {
        Channel::connections(self)
    }

    fn boot_of(&self, connection: u64) -> Option<u64> {
        Channel::boot_of(self, connection)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }
}

struct Known<C> {
    /// All columns, also those that do not count now.
    places: Vec<(usize, u16)>,
    /// By component and column.
    columns: BTreeMap<(usize, u16), Machine<C>>,
    /// Columns, and machines that they have left with all that was written there, and have not come back to.
    left: BTreeSet<((usize, u16), u64)>,
    /// Columns that may lack something, until [`Machines::forget`].
    lost: BTreeSet<(usize, u16)>,
    /// Something may be lost that no column stands for, so that no other one has it either; until then too.
    adrift: bool,
    /// The columns are others than they were at first: what is heard may be of those.
    relaid: bool,
    /// What the node has written for this client: for each column the machine that it told last. It tells the first one as long as the column stays there.
    served: Vec<u64>,
    /// The same of nodes before it: the first that any of them told.
    before: Vec<u64>,
}

/// The way to a column, and the machine that was there when something was written that is not known to be durable.
struct Machine<C> {
    target: TargetId,
    way: C,
    boot: Option<u64>,
    /// There was no connection when that was to be noted: what was written since may have gone over the one that was made next, with this number.
    next: Option<u64>,
}

impl<C: Boots> Machine<C> {
    fn known(&self) -> Option<u64> {
        self.boot.or_else(|| self.way.boot_of(self.next?))
    }
}

impl<C: Boots> Known<C> {
    fn new() -> Self {
        let (left, lost) = (BTreeSet::new(), BTreeSet::new());
        let (places, served, before) = (Vec::new(), Vec::new(), Vec::new());
        Self { places, columns: BTreeMap::new(), left, lost, adrift: false, relaid: false, served, before }
    }

    /// All that was written is durable elsewhere.
    fn leave_all(&mut self) {
        self.relaid = true;
        let columns = std::mem::take(&mut self.columns);
        self.left.extend(columns.into_iter().filter_map(|(place, machine)| Some((place, machine.boot?))));
        self.lost.clear();
    }

    /// There are going to be more columns.
    fn widen(&mut self) {
        self.relaid = true;
    }

    fn forget(&mut self) {
        self.columns.values_mut().for_each(|machine| (machine.boot, machine.next) = (None, None));
        self.lost.clear();
        self.adrift = false;
        self.served.clear();
        self.before.clear();
    }

    /// For each column the machine that was there, 0 where nothing was written.
    fn columns(&self) -> Vec<u64> {
        let boot = |place| self.columns.get(place).and_then(|machine| machine.boot).unwrap_or(0);
        self.places.iter().map(boot).collect()
    }

    /// The node has written, and tells where: what it told before of other columns is durable elsewhere.
    fn served(&mut self, machines: &[u64]) {
        if !machines.is_empty() {
            self.served.resize(machines.len(), 0);
            let told = self.served.iter_mut().zip(machines).filter(|(_, machine)| **machine != 0);
            told.for_each(|(known, machine)| *known = *machine);
        }
    }

    /// What is told from now on is told by another node. Of a machine that was started anew since it was told first nothing more has to be known.
    fn another(&mut self) {
        self.before.resize(self.served.len().max(self.before.len()), 0);
        let served = std::mem::take(&mut self.served);
        let unknown = self.before.iter_mut().zip(served).filter(|(known, _)| **known == 0);
        unknown.for_each(|(known, machine)| *known = machine);
    }

    /// All of it, by whomever it was written.
    fn told(&self) -> Vec<u64> {
        let mut all = self.columns();
        all.resize(self.served.len().max(self.before.len()).max(all.len()), 0);
        let mut more: BTreeSet<u64> = self.left.iter().map(|(_, boot)| *boot).collect();
        let served = self.before.iter().enumerate().chain(self.served.iter().enumerate());
        for (column, served) in served {
            let own = &mut all[column];
            match *own {
                0 => *own = *served,
                // One of them is from before the machine was started anew, or the column has moved.
                own if own != *served && *served != 0 => drop(more.insert(*served)),
                _ => {}
            }
        }
        all.extend(more);
        all
    }

    /// Sees all columns, and those that count now; those that may lack something.
    fn see(
        &mut self,
        places: Vec<(usize, u16)>,
        present: BTreeMap<(usize, u16), (TargetId, C)>,
    ) -> Vec<(usize, u16)> {
        self.places = places;
        // What is out of date is made anew from others; in another layout there may be fewer.
        let gone = self.columns.iter().filter(|(place, _)| !present.contains_key(place));
        self.left.extend(gone.filter_map(|(place, machine)| Some((*place, machine.boot?))));
        self.columns.retain(|place, _| present.contains_key(place));
        self.lost.retain(|place| present.contains_key(place));
        for (place, (target, way)) in present {
            // In this order: a connection that is made in between is the next one.
            let (next, now) = (way.connections(), way.boot());
            let (known, before) = match self.columns.remove(&place) {
                Some(machine) if machine.target == target => {
                    (machine.known(), machine.next.filter(|_| machine.way.is(&way)))
                }
                Some(old) => {
                    self.leave(place, &old);
                    (None, None)
                }
                None => (None, None),
            };
            if now.is_some() && known.is_some() && known != now {
                self.lost.insert(place);
            }
            let boot = known.or(now);
            if let Some(boot) = boot {
                // What is written there from now on is there only.
                self.left.remove(&(place, boot));
            }
            let next = before.or(Some(next)).filter(|_| boot.is_none());
            self.columns.insert(place, Machine { target, way, boot, next });
        }
        if self.relaid {
            // Of other columns than these: the machine itself is where something may be lost again.
            let now: BTreeSet<u64> = self.columns.values().filter_map(|machine| machine.boot).collect();
            self.left.retain(|(_, boot)| !now.contains(boot));
        }
        self.lost.iter().copied().collect()
    }

    /// What was written there is where the column lies now, if the machine was the same all the time.
    fn leave(&mut self, place: (usize, u16), old: &Machine<C>) {
        match (old.known(), old.way.boot()) {
            (Some(known), Some(now)) if known != now => drop(self.lost.insert(place)),
            (known, now) => self.left.extend(known.or(now).map(|boot| (place, boot))),
        }
    }

    fn heard(&mut self, others: &[u64]) -> bool {
        if self.relaid {
            // Which of the columns it is of does not matter: it is there still.
            let free = self.columns.values_mut().filter(|machine| machine.boot.is_none());
            free.for_each(|machine| machine.boot = machine.way.boot().filter(|boot| others.contains(boot)));
        }
        let now: BTreeSet<u64> = self.columns.values().filter_map(|machine| machine.boot).collect();
        let mut all = true;
        let there: BTreeSet<(usize, u16)> = self.columns.keys().copied().collect();
        let mut places = self.places.iter();
        for heard in others {
            let place = places.next();
            let here = place.and_then(|place| Some((place, self.columns.get_mut(place)?)));
            if place.is_some() && here.is_none() && !self.relaid {
                // It is out of date, and made anew from others.
                continue;
            }
            // Of another column that is there it says nothing: that one may be elsewhere, while this one is still on that machine. Of other
            // columns than these nobody knows which one it is.
            let concerns = |place: &(usize, u16)| {
                self.relaid || here.as_ref().is_none_or(|(own, _)| *own == place) || !there.contains(place)
            };
            let left = self.left.iter().any(|(place, boot)| boot == heard && concerns(place));
            if *heard == 0 || left || now.contains(heard) {
                continue;
            }
            let same = match here {
                Some((place, machine)) if !self.relaid => {
                    let same = *machine.boot.get_or_insert(*heard) == *heard;
                    if !same {
                        self.lost.insert(*place);
                    }
                    same
                }
                // Of other columns than these, or a machine that one has left, and that is not known here: which one, nobody says.
                _ => {
                    self.adrift = true;
                    false
                }
            };
            all &= same;
        }
        all
    }
}

impl Default for Machines {
    /// Nothing was written yet.
    fn default() -> Self {
        Self(Mutex::new(Known::new()))
    }
}

impl Machines {
    /// Notes which machines have what is written now; component and column of those whose machine was started anew since something was
    /// written there that was not durable: it may be gone.
    pub fn note(&self, file: &Striped) -> Vec<(usize, u16)> {
        let present = file.ways().into_iter().map(|(place, way)| (place, (way.target, way.channel)));
        let all = file.layout().components.iter().enumerate();
        let all = all.flat_map(|(n, one)| (0..one.targets.len() as u16).map(move |column| (n, column)));
        self.0.lock().see(all.collect(), present.collect())
    }

    /// All that was written is durable, or is known to be lost.
    pub fn forget(&self) {
        self.0.lock().forget();
    }

    /// The same if that is so when nobody notes anything, and nothing has been found lost.
    pub fn forget_if(&self, so: impl FnOnce() -> bool) -> bool {
        let mut known = self.0.lock();
        let so = so() && known.lost.is_empty() && !known.adrift;
        if so {
            known.forget();
        }
        so
    }

    /// The same whatever has been found lost.
    pub fn forget_all_if(&self, so: impl FnOnce() -> bool) -> bool {
        let mut known = self.0.lock();
        let so = so();
        if so {
            known.forget();
        }
        so
    }

    /// Whether something may be lost that no column stands for, however many copies there are.
    pub fn adrift(&self) -> bool {
        self.0.lock().adrift
    }

    /// Whether of every column it is known which machine has what was written there.
    pub fn is_complete(&self) -> bool {
        self.0.lock().columns.values().all(|machine| machine.boot.is_some())
    }

    /// All that was written is durable elsewhere: the columns that come to be noted are others.
    pub fn leave(&self) {
        self.0.lock().leave_all();
    }

    /// The file gets more columns: what others tell may be of fewer.
    pub fn widen(&self) {
        self.0.lock().widen();
    }

    /// For each column the machine that was there, 0 where nothing was written; behind them those that columns have left.
    pub fn known(&self) -> Vec<u64> {
        self.0.lock().told()
    }

    /// The same of the columns only, for a client for which this one writes.
    pub fn columns(&self) -> Vec<u64> {
        self.0.lock().columns()
    }

    /// Another node tells that from now on.
    pub fn another(&self) {
        self.0.lock().another();
    }

    /// The node has written for this client, and tells where, as [`Machines::columns`] gives it.
    pub fn served(&self, machines: &[u64]) {
        self.0.lock().served(machines);
    }

    /// Those that columns have left are known where it matters.
    pub fn told(&self, machines: &[u64]) {
        self.0.lock().left.retain(|(_, boot)| !machines.contains(boot));
    }

    /// Takes over what another client that wrote the file knows, as [`Machines::known`] gives it; false if something may be lost.
    pub fn heard(&self, others: &[u64]) -> bool {
        self.0.lock().heard(others)
    }
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machines({:?})", self.known())
    }
}

/// How often something is done again because a machine was started anew before it was durable there.
const ATTEMPTS: usize = 4;

impl Striped {
    /// Does something that may be repeated, and makes it durable at some places; again if one of their machines was started anew in between, which
    /// may have lost it.
    pub(crate) fn durably(&self, places: &[Place], what: impl Fn() -> Result<()>) -> Result<()> {
        let mut suspect = 0;
        for _ in 0..ATTEMPTS {
            let before = self.starts(places);
            what()?;
            self.everywhere(Op::Sync, places, &|_| Vec::new())?;
            let now = self.starts(places);
            // What was left out meanwhile is made anew from others.
            let lost = now.into_iter().find(|(column, start)| before.get(column) != Some(start));
            match lost {
                None => return Ok(()),
                Some(((_, column), _)) => suspect = column,
            }
        }
        let component = places.first().map_or(0, |place| place.component);
        let mover = format!("of target {}", self.target(component, suspect));
        let reason = "its machine is started anew again and again; see its log".to_owned();
        Err(self.failed(component, suspect, DataError::Unreachable { mover, reason }))
    }

    /// Asks those columns of which it is not known which start of their machine serves them: before something is written there that may take more than one
    /// request, so that [`Machines::note`] notices if that machine was started anew in between.
    pub fn meet(&self) {
        let places: Vec<Place> =
            (0..self.layout.components.len()).flat_map(|number| self.own_places(number)).collect();
        self.starts(&places);
    }

    /// Which starts of their machines the columns of some places are served by now, as far as they count and answer.
    fn starts(&self, places: &[Place]) -> BTreeMap<(usize, u16), u64> {
        let concerned: BTreeSet<(usize, u16)> =
            places.iter().map(|place| (place.component, place.column)).collect();
        let mut starts = BTreeMap::new();
        for (place, way) in self.ways().into_iter().filter(|(place, _)| concerned.contains(place)) {
            if way.channel.boot().is_none()
                && let Some(one) = places.iter().find(|one| (one.component, one.column) == place)
            {
                // Nothing was asked there yet. If it does not answer, what comes next says so.
                drop(self.submit(one, Op::Stat, Vec::new()).and_then(Ticket::wait));
            }
            starts.extend(way.channel.boot().map(|start| (place, start)));
        }
        starts
    }
}

#[cfg(test)]
mod tests;
