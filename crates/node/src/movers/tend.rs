//! What has to be done on targets sooner or later, whether or not they answer now: objects of files that are gone are removed, and files are
//! closed that were being written when the node or a target went down. Both are on record in the catalogue until they are done.

use super::PAGE;
use super::stock::LIFE;
use super::ways::Purpose;
use crate::Node;
use crate::error::{failure, fs_error};
use catalog::Far;
use data::frame::{LISTED, MAX_CREATE, Op, encode_list};
use data::{Ask, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::*;
use wire::Failure;

/// Between two attempts at what could not be done.
const AGAIN: Duration = Duration::from_secs(2);
/// Longest pause: capabilities are renewed meanwhile.
const PAUSE: Duration = Duration::from_secs(300);

/// Objects of each target, with their numbers.
type Wanted = BTreeMap<TargetId, Vec<(usize, u64)>>;
/// What has been asked of a target: waits for the answer.
type Asked = Box<dyn FnOnce() -> Result<(), Failure>>;
/// Asks a target to remove objects.
type Remover<'a> = dyn Fn(TargetId, &[u64]) -> Result<Asked, Failure> + 'a;

/// Asks targets to remove objects, many by one request; the numbers of those that stay. A target that does not answer is asked for nothing more: each time would be
/// waited for.
fn removed(wanted: &Wanted, away: &mut BTreeSet<TargetId>, ask: &Remover<'_>) -> BTreeSet<usize> {
    let mut asked = Vec::new();
    for (target, objects) in wanted {
        for some in objects.chunks(MAX_CREATE as usize) {
            let list: Vec<u64> = some.iter().map(|(_, object)| *object).collect();
            let answer = match away.contains(target) {
                true => Err(failure(ErrorClass::Retry, "its node is down")),
                false => ask(*target, &list),
            };
            if let Err(e) = &answer
                && e.class == ErrorClass::Retry
                && away.insert(*target)
            {
                tracing::warn!("objects are not removed now: {e}; tried again until that is done");
            }
            asked.push((some, *target, answer));
        }
    }
    let mut left = BTreeSet::new();
    for (some, target, answer) in asked {
        match answer.and_then(|answer| answer()) {
            Ok(()) => {}
            Err(e) if e.class == ErrorClass::NotFound => {}
            // One that the disk does not let go keeps no other.
            Err(e) if e.class != ErrorClass::Retry && some.len() > 1 => {
                for place in some {
                    left.extend(removed(&BTreeMap::from([(target, vec![*place])]), away, ask));
                }
            }
            Err(e) => {
                let answers = e.class != ErrorClass::Retry;
                if answers || away.insert(target) {
                    tracing::warn!("objects are not removed now: {e}; tried again until that is done");
                }
                left.extend(some.iter().map(|(n, _)| *n));
            }
        }
    }
    left
}

impl Node {
    /// Does it until the node stops.
    pub(crate) fn tend_far(&self) {
        let mut told = String::new();
        loop {
            let mut away = BTreeSet::new();
            let stocked = self.shrink_stock(LIFE);
            let outcome = self.down_targets().and_then(|down| {
                self.movers.note_down(&down);
                away = down;
                Ok(self.settle_all(&away)? + self.sweep_far(&mut away)? + self.sweep_strays(&mut away)?)
            });
            if let Err(e) = self.forget_lent() {
                tracing::warn!("what is not lent any more stays on record: {e}");
            }
            self.renew_ways();
            let problem = match &outcome {
                Ok(0) => String::new(),
                Ok(left) => format!(
                    "{left} files on targets wait for targets that do not answer ({away:?}) to be closed or removed there; see `thermo \
                     target ls`"
                ),
                Err(e) => format!("files on targets: {e}; tried again"),
            };
            if !problem.is_empty() && problem != told {
                tracing::warn!("{problem}");
            }
            told = problem;
            let mut woken = self.movers.wake.0.lock();
            if !*woken {
                let pause = match outcome {
                    Ok(0) if stocked => LIFE,
                    Ok(0) => PAUSE,
                    _ => AGAIN,
                };
                self.movers.wake.1.wait_for(&mut woken, pause);
            }
            *woken = false;
            drop(woken);
            if self.stops_within(Duration::ZERO) {
                return;
            }
        }
    }

    /// Targets whose nodes have not been heard of lately: it would take a minute to ask them.
    pub(crate) fn down_targets(&self) -> Result<BTreeSet<TargetId>, FsError> {
        Ok(super::down(&self.target_views().map_err(|_| FsError::Io)?))
    }

    /// Targets that are known not to answer, if an object cannot be used without them.
    pub(crate) fn missing_targets_of(&self, object: ObjectId) -> Result<Vec<TargetId>, FsError> {
        let down = self.down_targets()?;
        let far = self.catalog.far(object).map_err(|e| fs_error("open", &e))?;
        let Some(far) = far.filter(|far| !far.can_spare(&down)) else { return Ok(Vec::new()) };
        let all = far.layout.components.into_iter().flat_map(|one| one.targets);
        Ok(all.filter(|target| down.contains(target)).collect())
    }

    /// Closes what was being written; how many files are left.
    fn settle_all(&self, away: &BTreeSet<TargetId>) -> Result<usize, FsError> {
        let mut left = 0;
        for ino in self.catalog.writing().map_err(|e| fs_error("close files on targets", &e))? {
            let Ok(inode) = self.catalog.inode(ino) else { continue };
            let Some(object) = inode.file.filter(|f| f.far).and_then(|f| f.object) else { continue };
            let far = self.catalog.far(object).map_err(|e| fs_error("close files on targets", &e))?;
            let Some(far) = far.filter(|_| !self.is_open(ino)) else { continue };
            if self.spared.awaits(ino) {
                continue; // this is done again when it has come
            }
            if !far.can_spare(away) {
                left += 1;
                continue;
            }
            match self.settle_far(ino) {
                Ok(true) => {
                    self.attributes_changed(ino);
                    self.governor.wake();
                }
                Ok(false) => {}
                Err(_) => left += 1, // the log has it
            }
        }
        Ok(left)
    }

    /// Removes what belongs to no file; how many files are left because a target does not answer.
    pub(crate) fn sweep_far(&self, away: &mut BTreeSet<TargetId>) -> Result<usize, FsError> {
        let fail = |e| fs_error("remove objects on targets", &e);
        let (mut after, mut left) = (ObjectId(0), 0);
        loop {
            // Before the catalogue is asked: what is unowned after this was given up, or is reserved.
            let reserved = self.movers.reserved();
            let page = self.catalog.unowned_far(after, PAGE).map_err(fail)?;
            let Some((last, _)) = page.last() else { return Ok(left) };
            after = *last;
            let free = |id: &ObjectId| *id <= reserved.known_to && !reserved.objects.contains(id);
            let doomed: Vec<(ObjectId, Far)> = page.into_iter().filter(|(id, _)| free(id)).collect();
            if doomed.is_empty() {
                continue;
            }
            // A crash must not bring back a file whose objects are gone.
            self.catalog.sync().map_err(fail)?;
            let gone = self.remove_far(&doomed, away)?;
            left += doomed.len() - gone.len();
            self.catalog.forget_far(&gone).map_err(fail)?;
        }
    }

    /// Removes objects on all their targets; those of which nothing is left.
    fn remove_far(
        &self,
        doomed: &[(ObjectId, Far)],
        away: &mut BTreeSet<TargetId>,
    ) -> Result<Vec<ObjectId>, FsError> {
        let mut places = Vec::new();
        for (n, (_, far)) in doomed.iter().enumerate() {
            for component in &far.layout.components {
                let on = |(object, column)| Some((n, object, component.target(column)?));
                places.extend(component.places().filter_map(on));
            }
        }
        let left = self.remove_objects(&places, away)?;
        let done = doomed.iter().enumerate().filter(|(n, _)| !left.contains(n));
        Ok(done.map(|(_, (object, _))| *object).collect())
    }

    /// Removes what lies on targets where it does not belong; how many objects are left because a target does not answer.
    fn sweep_strays(&self, away: &mut BTreeSet<TargetId>) -> Result<usize, FsError> {
        let fail = |e| fs_error("remove objects on targets", &e);
        let (mut after, mut left) = ((ObjectId(0), TargetId(0)), 0);
        loop {
            let page = self.catalog.strays(after, PAGE).map_err(fail)?;
            let Some(last) = page.last() else { return Ok(left) };
            after = *last;
            let mut doomed = Vec::new();
            for stray in page {
                // Whoever copies says so before it is on record, and until it is on record no more.
                let copied = || self.movers.claims.copies(stray.0, stray.1);
                if !copied() && self.catalog.is_stray(stray).map_err(fail)? && !copied() {
                    doomed.push(stray);
                }
            }
            if doomed.is_empty() {
                continue;
            }
            // A crash must not bring back a layout whose objects are gone.
            self.catalog.sync().map_err(fail)?;
            let places: Vec<_> =
                doomed.iter().enumerate().map(|(n, (object, to))| (n, *object, *to)).collect();
            let stay = self.remove_objects(&places, away)?;
            let gone = doomed.iter().enumerate().filter(|(n, _)| !stay.contains(n));
            let gone: Vec<(ObjectId, TargetId)> = gone.map(|(_, stray)| *stray).collect();
            left += stay.len();
            self.catalog.forget_strays(&gone).map_err(fail)?;
        }
    }

    /// Removes objects; the numbers of those that a target still has. What is lost has none, and what was there before it was to be made is somebody else's.
    fn remove_objects(
        &self,
        places: &[(usize, ObjectId, TargetId)],
        away: &mut BTreeSet<TargetId>,
    ) -> Result<BTreeSet<usize>, FsError> {
        let all = self.catalog.targets().map_err(|e| fs_error("remove objects on targets", &e))?;
        let lost: BTreeSet<TargetId> =
            all.iter().filter(|target| target.lost).map(|target| target.id).collect();
        let mut wanted = Wanted::new();
        let is_own = |target, object| !self.movers.is_others(target, object);
        let there = places.iter().filter(|(.., target)| !lost.contains(target));
        for (n, object, target) in there.filter(|(_, object, target)| is_own(*target, *object)) {
            wanted.entry(*target).or_default().push((*n, object.0));
        }
        Ok(removed(&wanted, away, &|target, objects| {
            let ticket = self.ask_of_many(target, Op::Remove, objects)?;
            Ok(Box::new(move || {
                let answer = ticket.wait();
                answer.map(drop).map_err(|e| failure(e.class(), format!("target {target}: {e}")))
            }))
        }))
    }

    /// Asks the mover of a target to make or to remove objects.
    pub(super) fn ask_of_many(&self, target: TargetId, op: Op, objects: &[u64]) -> Result<Ticket, Failure> {
        let object = objects.iter().min().copied().unwrap_or_default();
        let ask = Ask { op, flags: LISTED, object, offset: 0, length: objects.len() as u64 };
        self.submit_far(target, ask, encode_list(objects))
    }

    /// Asks the mover of a target for something that concerns one object.
    pub(super) fn ask_far(
        &self,
        target: TargetId,
        op: Op,
        object: ObjectId,
        length: u64,
    ) -> Result<Ticket, Failure> {
        self.submit_far(target, Ask { op, flags: 0, object: object.0, offset: 0, length }, Vec::new())
    }

    /// Asks the mover of a target. Objects are made and removed one after the other: what somebody has given up making is not made behind its removal.
    pub(super) fn submit_far(&self, target: TargetId, ask: Ask, body: Vec<u8>) -> Result<Ticket, Failure> {
        let purpose = match ask.op {
            Op::Create | Op::Remove => Purpose::Objects,
            _ => Purpose::Needed,
        };
        let column = self.way_for(target, purpose)?;
        let told = |e: data::DataError| failure(e.class(), format!("target {target}: {e}"));
        column.channel.submit(&column.slot, ask, body).map_err(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// What stays, which targets are away, and what was asked.
    type Outcome = (BTreeSet<usize>, BTreeSet<TargetId>, Vec<Vec<u64>>);

    fn ask(wanted: &Wanted, answer: &dyn Fn(&[u64]) -> Option<ErrorClass>) -> Outcome {
        let (asked, mut away) = (RefCell::new(Vec::new()), BTreeSet::new());
        let left = removed(wanted, &mut away, &|_, objects| {
            asked.borrow_mut().push(objects.to_vec());
            let outcome = answer(objects).map_or(Ok(()), |class| Err(failure(class, "refused")));
            Ok(Box::new(move || outcome))
        });
        (left, away, asked.into_inner())
    }

    #[test]
    fn one_that_stays_keeps_no_other_and_a_target_that_went_away_is_asked_for_nothing_more() {
        let wanted = Wanted::from([(TargetId(1), (0..5).map(|n| (n, 10 + n as u64)).collect())]);
        let (left, away, asked) =
            ask(&wanted, &|objects| objects.contains(&12).then_some(ErrorClass::Corrupt));
        assert_eq!((left, away.len(), asked.len()), (BTreeSet::from([2]), 0, 6));
        // The connection ends while the node stops; from then on nobody is there.
        let closed = |objects: &[u64]| match objects.len() {
            1 => Some(ErrorClass::Retry),
            _ => Some(ErrorClass::Bug),
        };
        let (left, away, asked) = ask(&wanted, &closed);
        assert_eq!(left, (0..5).collect());
        assert_eq!(away, BTreeSet::from([TargetId(1)]));
        assert_eq!(asked, [vec![10, 11, 12, 13, 14], vec![10]]);
        assert_eq!(ask(&wanted, &|_| None).0, BTreeSet::new());
    }
}
