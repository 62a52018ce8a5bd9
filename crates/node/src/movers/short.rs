//! Files that come back from tape and find no room on targets: what they lack there is released for them, and they wait as long as that can help.

use super::REPORT_EVERY;
use crate::files::Staging;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use types::*;

/// Bytes of each target.
pub(crate) type Shares = BTreeMap<TargetId, u64>;

/// For a recall that is not tried again for so long nothing is released: drives have other work.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Between two tries so much counts as waiting for room: the rest is waiting for a drive.
const STEP: Duration = Duration::from_secs(5);
/// What was released is free there by then, and its node has said so.
const REPORTED: Duration = Duration::from_secs(3 * REPORT_EVERY.as_secs());
/// A recall that has begun is read again so often when there is room by what targets tell, and not when it comes to writing.
const AGAIN_MOST: u32 = 5;
/// Of what a file has on a target, that much more is used there for its sums and for the file system's own records: one in so many bytes ...
const OVERHEAD: u64 = 64;
/// ... and so many bytes.
const OVERHEAD_LEAST: u64 = 128 << 10;

/// Room on targets that recalls have, or lack.
#[derive(Default)]
pub(crate) struct Short(Mutex<State>);

#[derive(Default)]
struct State {
    /// Recalls that have begun, and what they fill.
    promised: Vec<Promise>,
    /// What those lack that found no room.
    lacking: BTreeMap<Ino, Lacking>,
    /// What has left targets that have not reported since.
    released: Vec<(TargetId, u64, Time)>,
    /// Targets on which nothing more can be released, as it was found then.
    stuck: BTreeMap<TargetId, Time>,
}

/// What targets have told, and what of it is taken, as it was found at one moment: many recalls are looked at with it.
pub(crate) struct Room {
    free: Shares,
    capacity: Shares,
    /// By recalls that have begun, as one sees it that has not.
    brought: Shares,
    /// By those that have not, and have asked for their drives.
    called: Shares,
}

impl Room {
    /// Whether no target is too small for this, however empty.
    pub(crate) fn may_hold(&self, shares: &Shares) -> bool {
        shares.iter().all(|(target, bytes)| self.capacity.get(target).is_none_or(|most| bytes <= most))
    }
}

struct Promise {
    ino: Ino,
    recall: Weak<Staging>,
    shares: Shares,
    /// What it had not brought of its share of each target when that reported last (bytes): what has come since is not in what is free there.
    unreported: Shares,
    /// When it was found that it had ended.
    ended: Option<Time>,
}

struct Lacking {
    recall: Weak<Staging>,
    /// Empty while it is tried again, and where it needs nothing there any more.
    shares: Shares,
    /// It comes back to the node's own disk tier.
    elsewhere: bool,
    /// When there was no room for the first time, or a sign of room for the last one.
    since: Time,
    /// When it was tried last, and how much of it had come by then (bytes).
    tried: Time,
    arrived: u64,
    /// How long it has waited for room since more of it came.
    waited: Duration,
    /// How often it was read again in vain.
    again: u32,
    /// There is room, and it has asked for its drive since then: these shares are for it.
    called: Option<Time>,
}

/// Whether a recall that lacks room is to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hope {
    /// Something can still make room.
    Wait,
    /// Nothing has for as long as anybody waits.
    None,
}

/// A recall that has not ended.
fn lives(recall: &Weak<Staging>) -> Option<Arc<Staging>> {
    recall.upgrade().filter(|recall| recall.outcome().is_none())
}

impl Promise {
    /// What it has not brought yet of its share of a target (bytes).
    fn left_on(&self, target: TargetId) -> u64 {
        let Some(recall) = lives(&self.recall) else { return 0 };
        let share = share(&self.shares, target);
        let left = recall.size.saturating_sub(recall.arrived_bytes());
        // What has come may have been holes, which took nothing.
        let bytes = recall.data_bytes().max(1);
        share.min((u128::from(share) * u128::from(left) / u128::from(bytes)) as u64)
    }

    fn is_of(&self, recall: &Arc<Staging>) -> bool {
        is_of(&self.recall, recall)
    }

    /// What it takes of a target beside what that has told (bytes): if it `waits` for room, no more than has come since.
    fn takes(&self, target: TargetId, waits: bool) -> u64 {
        let unreported = share(&self.unreported, target);
        if waits { unreported.saturating_sub(self.left_on(target)) } else { unreported }
    }
}

fn is_of(one: &Weak<Staging>, recall: &Arc<Staging>) -> bool {
    std::ptr::eq(one.as_ptr(), Arc::as_ptr(recall))
}

fn share(shares: &Shares, target: TargetId) -> u64 {
    shares.get(&target).copied().unwrap_or_default()
}

fn add(sum: &mut Shares, shares: &Shares) {
    shares.iter().for_each(|(target, bytes)| *sum.entry(*target).or_default() += bytes);
}

fn sum<'a>(all: impl Iterator<Item = &'a Shares>) -> Shares {
    all.fold(Shares::new(), |mut sum, shares| {
        add(&mut sum, shares);
        sum
    })
}

impl State {
    fn room(&self, views: &[TargetView]) -> Room {
        Room {
            free: views.iter().map(|view| (view.target.id, view.target.free)).collect(),
            capacity: views.iter().map(|view| (view.target.id, view.target.capacity)).collect(),
            brought: sum(self.promised.iter().map(|one| &one.unreported)),
            called: self.called(),
        }
    }

    /// What recalls that have not begun take of targets, which have asked for their drives.
    fn called(&self) -> Shares {
        let begun: HashSet<*const Staging> = self.promised.iter().map(|one| one.recall.as_ptr()).collect();
        let called = self.lacking.values().filter(|one| one.called.is_some());
        let new = called.filter(|one| !begun.contains(&one.recall.as_ptr()) && lives(&one.recall).is_some());
        sum(new.map(|one| &one.shares))
    }

    /// That without what one recall has of it itself.
    fn called_beside(&self, recall: &Arc<Staging>, room: &Room, target: TargetId) -> u64 {
        let own = self.lacking.get(&recall.ino).filter(|one| is_of(&one.recall, recall));
        let own = own.filter(|one| one.called.is_some() && !self.has_begun(recall));
        let own = own.map_or(0, |one| share(&one.shares, target));
        share(&room.called, target).saturating_sub(own)
    }

    fn has_begun(&self, recall: &Arc<Staging>) -> bool {
        self.promised.iter().any(|one| one.is_of(recall))
    }

    /// Whether a recall that has begun waits for room.
    fn waits(&self, promise: &Promise) -> bool {
        let own = self.lacking.get(&promise.ino).filter(|one| one.recall.ptr_eq(&promise.recall));
        own.is_some_and(|one| !one.shares.is_empty() && one.called.is_none())
    }

    /// Whether another recall goes on to one of these targets, which ends before long, and then can leave again.
    fn others_run(&self, than: &Arc<Staging>, shares: &Shares, room: &Room) -> bool {
        let shared = |theirs: &Shares| theirs.keys().any(|target| shares.contains_key(target));
        let runs = |one: &&Promise| !one.is_of(than) && shared(&one.shares) && lives(&one.recall).is_some();
        self.promised.iter().filter(runs).any(|one| !self.waits(one))
            || shares.keys().any(|target| self.called_beside(than, room, *target) > 0)
    }

    /// Targets of these on which there is no room for what a recall needs, beside what others still bring.
    fn without_room(&self, recall: &Arc<Staging>, room: &Room, needs: &Shares) -> Shares {
        let own = self.promised.iter().position(|one| one.is_of(recall));
        // Of two that have begun and wait, the first one goes on first.
        let waits =
            |own| (0..).zip(&self.promised).map(move |(n, one)| n == own || (n > own && self.waits(one)));
        let waits: Option<Vec<bool>> = own.map(|own| waits(own).collect());
        let brought = |target| match &waits {
            Some(waits) => {
                self.promised.iter().zip(waits).map(|(one, waits)| one.takes(target, *waits)).sum()
            }
            None => share(&room.brought, target),
        };
        let has_room = |target: TargetId, bytes| {
            let taken: u64 = brought(target) + self.called_beside(recall, room, target);
            room.free.get(&target).is_some_and(|free| free.saturating_sub(taken) >= bytes)
        };
        needs.iter().filter(|(target, bytes)| !has_room(**target, **bytes)).map(|(t, b)| (*t, *b)).collect()
    }

    /// Whether all that may leave one of these targets has left it, and been reported.
    fn is_stuck(&self, shares: &Shares, since: Time, now: Time) -> bool {
        let comes = |target: &TargetId| {
            self.released.iter().any(|(id, _, at)| id == target && now.since(*at) < REPORTED)
        };
        let stuck = shares.keys().filter(|target| !comes(target)).filter_map(|target| self.stuck.get(target));
        stuck.max().is_some_and(|at| at.plus(STEP) >= since)
    }
}

/// What a file that takes so many bytes of each target needs to be free there.
pub(crate) fn with_overhead(shares: &Shares) -> Shares {
    let more = |bytes: u64| bytes.saturating_add(bytes / OVERHEAD).saturating_add(OVERHEAD_LEAST);
    shares.iter().filter(|(_, bytes)| **bytes > 0).map(|(target, bytes)| (*target, more(*bytes))).collect()
}

impl Short {
    /// What targets have told, and what of it is taken now.
    pub(crate) fn room(&self, views: &[TargetView]) -> Room {
        self.0.lock().room(views)
    }

    /// Targets of these on which there is no room for what a recall needs, beside what others still bring.
    pub(crate) fn without_room(&self, recall: &Arc<Staging>, room: &Room, needs: &Shares) -> Shares {
        self.0.lock().without_room(recall, room, needs)
    }

    /// A recall begins that needs so much. What it lacks of that; if nothing, it has the room from now on.
    pub(crate) fn promise(&self, recall: &Arc<Staging>, views: &[TargetView], needs: Shares) -> Shares {
        let mut state = self.0.lock();
        let lacking = state.without_room(recall, &state.room(views), &needs);
        if lacking.is_empty() {
            state.lacking.remove(&recall.ino);
            let (ino, recall, unreported) = (recall.ino, Arc::downgrade(recall), needs.clone());
            state.promised.push(Promise { ino, recall, shares: needs, unreported, ended: None });
        }
        lacking
    }

    /// What a recall lacked when it was tried last; None if it has not been tried, or is tried again.
    pub(crate) fn lacked(&self, recall: &Arc<Staging>) -> Option<Shares> {
        let state = self.0.lock();
        let one = state.lacking.get(&recall.ino)?;
        let same = std::ptr::eq(one.recall.as_ptr(), Arc::as_ptr(recall));
        (same && !one.shares.is_empty()).then(|| one.shares.clone())
    }

    /// A target has reported: what has come there by now is not free by what it tells.
    pub(crate) fn reported(&self, target: TargetId) {
        let mut state = self.0.lock();
        for one in &mut state.promised {
            match (one.left_on(target), lives(&one.recall)) {
                (0, _) | (_, None) => drop(one.unreported.remove(&target)),
                (left, Some(_)) => drop(one.unreported.insert(target, left)),
            }
        }
        state.promised.retain(|one| lives(&one.recall).is_some() || !one.unreported.is_empty());
    }

    /// There is room for a recall that had none: it asks for its drive, and nobody else gets that room before it was tried.
    pub(crate) fn call(&self, recall: &Arc<Staging>, room: &mut Room, now: Time) {
        let mut state = self.0.lock();
        let begun = state.has_begun(recall);
        let lacking = state.lacking.get_mut(&recall.ino).filter(|one| is_of(&one.recall, recall));
        let Some(lacking) = lacking else { return };
        if lacking.called.replace(now).is_none() && !begun {
            add(&mut room.called, &lacking.shares);
        }
    }

    /// What a recall that has begun needs for the rest of it.
    pub(crate) fn needed_by(&self, recall: &Arc<Staging>) -> Shares {
        let state = self.0.lock();
        let own = state.promised.iter().find(|one| one.is_of(recall));
        let left = own.map(|one| one.shares.keys().map(|target| (*target, one.left_on(*target))).collect());
        left.unwrap_or_default()
    }

    /// There was no room for a recall. `comes`: copies are being written, after which more can leave the disk. Whether it is to wait: for so long
    /// since more of it came, and one that has not begun not when nothing more can leave its targets.
    pub(crate) fn lacks(
        &self,
        recall: &Arc<Staging>,
        shares: Shares,
        room: &Room,
        comes: bool,
        (now, patience): (Time, Duration),
    ) -> Hope {
        let mut state = self.0.lock();
        let begun = state.has_begun(recall);
        let signs = comes || state.others_run(recall, &shares, room);
        let before = state.lacking.remove(&recall.ino).filter(|one| is_of(&one.recall, recall));
        let mut now_lacking = Lacking {
            recall: Arc::downgrade(recall),
            shares,
            elsewhere: false,
            since: now,
            tried: now,
            arrived: recall.arrived_bytes(),
            waited: Duration::ZERO,
            again: 0,
            called: None,
        };
        if let Some(before) = before {
            let more = now_lacking.arrived > before.arrived;
            now_lacking.since = if signs || more { now } else { before.since };
            let waited = before.waited + now.since(before.tried).min(STEP);
            now_lacking.waited = if more { Duration::ZERO } else { waited };
            now_lacking.again = before.again + u32::from(before.shares.is_empty());
        }
        // One that has begun could only fail then, so it is waited for what others may remove.
        let stuck = !begun && !signs && state.is_stuck(&now_lacking.shares, now_lacking.since, now);
        let over = now_lacking.waited >= patience || now_lacking.again > AGAIN_MOST;
        state.lacking.insert(recall.ino, now_lacking);
        if stuck || over { Hope::None } else { Hope::Wait }
    }

    /// A recall that has begun is tried again.
    pub(crate) fn tried_again(&self, recall: &Arc<Staging>) {
        if let Some(lacking) = self.0.lock().lacking.get_mut(&recall.ino) {
            lacking.shares.clear();
        }
    }

    /// A recall that has waited needs no room on targets any more: it comes back elsewhere.
    pub(crate) fn gives_up(&self, recall: &Arc<Staging>) {
        if let Some(lacking) = self.0.lock().lacking.get_mut(&recall.ino) {
            lacking.shares.clear();
            lacking.elsewhere = true;
        }
    }

    /// Whether that was found of it.
    pub(crate) fn has_given_up(&self, recall: &Arc<Staging>) -> bool {
        let state = self.0.lock();
        let one = state.lacking.get(&recall.ino);
        one.is_some_and(|one| one.elsewhere && std::ptr::eq(one.recall.as_ptr(), Arc::as_ptr(recall)))
    }

    /// Bytes that have to leave targets for recalls that wait.
    pub(crate) fn wanted(&self, views: &[TargetView], now: Time) -> Shares {
        let mut state = self.0.lock();
        state.lacking.retain(|_, one| lives(&one.recall).is_some());
        state.released.retain(|(_, _, at)| now.since(*at) < REPORTED);
        state.stuck.retain(|_, at| now.since(*at) < FORGOTTEN);
        state.promised.iter_mut().filter(|one| lives(&one.recall).is_none()).for_each(|one| {
            one.ended.get_or_insert(now);
        });
        // It may be of targets that report no more.
        state.promised.retain(|one| one.ended.is_none_or(|at| now.since(at) < REPORTED));
        // Its drive may be out of use.
        let forgotten = |at: &Time| now.since(*at) >= FORGOTTEN;
        for one in state.lacking.values_mut() {
            one.called = one.called.filter(|at| !forgotten(at));
        }
        let mut wanted = Shares::new();
        let waits = |one: &&Lacking| one.called.is_none() && !forgotten(&one.tried);
        let asked = state.lacking.values().filter(waits);
        for (target, bytes) in asked.flat_map(|one| &one.shares) {
            *wanted.entry(*target).or_default() += bytes;
        }
        let called = state.called();
        let mut due = Shares::new();
        for TargetView { target, state: how, .. } in views {
            let Some(bytes) = wanted.get(&target.id).filter(|_| *how == TargetState::Up) else { continue };
            let gone: u64 =
                state.released.iter().filter(|(id, _, _)| *id == target.id).map(|(_, bytes, _)| bytes).sum();
            let taken = state.promised.iter().map(|one| one.takes(target.id, state.waits(one)));
            let taken = taken.sum::<u64>() + share(&called, target.id);
            let free = target.free.saturating_add(gone).saturating_sub(taken);
            // All files that may go were looked at a moment ago.
            let rests = state.stuck.get(&target.id).is_some_and(|at| now.since(*at) < REPORTED);
            if *bytes > free && !rests {
                due.insert(target.id, bytes - free);
            }
        }
        due
    }

    /// A file has left targets, or will have when they remove its objects.
    pub(crate) fn released(&self, shares: &Shares, now: Time) {
        let mut state = self.0.lock();
        if !state.lacking.is_empty() {
            state.released.extend(shares.iter().map(|(target, bytes)| (*target, *bytes, now)));
        }
    }

    /// A round for these targets is over; on those of `unmet` nothing more could be released.
    pub(crate) fn round_over(&self, due: &Shares, unmet: &Shares, now: Time) {
        let mut state = self.0.lock();
        for target in due.keys() {
            match unmet.contains_key(target) {
                true => drop(state.stuck.insert(*target, now)),
                false => drop(state.stuck.remove(target)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
