//! Moving columns from target to target: of targets that are to be empty, that are lost, or that are fuller than others. What is to be moved is a
//! request with its files; a column lies at its new place from the transaction on that says so, and whatever a crash leaves elsewhere is on record
//! to be removed.

use super::PAGE;
use super::claims::Claim;
use super::mend::Started;
use super::requested::Stop;
use crate::Node;
use crate::clock::Moment;
use crate::error::{failure, refused};
use crate::files::FarFile;
use catalog::Far;
use layout::{Candidate, Redundancy, Spread};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stripe::Mended;
use types::*;
use wire::Failure;

/// Between two looks for something to do.
const AGAIN: Duration = Duration::from_secs(1);
/// Targets that are fuller than all together by this are emptied to that, in parts of a hundred.
const UNEVEN_PERCENT: u64 = 2;
/// What changes while a column is copied is copied once more so often at most ...
const ROUNDS: usize = 8;
/// ... or until it is no more than this (bytes): then writers wait for the rest.
const CLOSE: u64 = 16 << 20;

/// What a file waits for that had something on a lost target.
const REBUILT: &str = "what it had on a lost target is being rebuilt";

/// Where columns may come from and go to.
#[derive(Default)]
struct Places {
    /// Bytes that are to leave each target.
    from: BTreeMap<TargetId, u64>,
    to: Vec<Candidate>,
    /// Of all targets.
    domains: BTreeMap<TargetId, u32>,
    lost: BTreeSet<TargetId>,
}

impl Places {
    /// Where what lies in a `pool`, or (None) anywhere, may come from and go to.
    fn of(views: &[TargetView], kind: RequestKind, pool: Option<&str>) -> Self {
        let mut places = Self::default();
        let mut domains = BTreeMap::new();
        for TargetView { target, .. } in views {
            let next = domains.len() as u32;
            places.domains.insert(target.id, *domains.entry(target.domain.clone()).or_insert(next));
        }
        let up = views.iter().filter(|view| view.state == TargetState::Up && view.is_in(pool));
        let up: Vec<&Target> = up.map(|view| &view.target).collect();
        let candidate = |target: &Target, weight| {
            let domain = places.domains.get(&target.id).copied().unwrap_or_default();
            Candidate { target: target.id, domain, weight }
        };
        if kind == RequestKind::Balance {
            let capacity: u64 = up.iter().map(|target| target.capacity).sum();
            let used = |target: &Target| target.capacity.saturating_sub(target.free);
            let all: u64 = up.iter().map(|target| used(target)).sum();
            let share = |target: &Target, more: u64| {
                let part = u128::from(all) * u128::from(target.capacity) / u128::from(capacity.max(1));
                part as u64 + target.capacity / 100 * more
            };
            for target in up {
                let (used, even) = (used(target), share(target, 0));
                if used > share(target, UNEVEN_PERCENT) {
                    places.from.insert(target.id, used - even);
                } else if used < even {
                    places.to.push(candidate(target, even - used));
                }
            }
            return places;
        }
        places.to = up.iter().map(|target| candidate(target, target.free)).collect();
        for TargetView { target, .. } in views.iter().filter(|view| view.target.draining || view.target.lost)
        {
            places.from.insert(target.id, u64::MAX);
            if target.lost {
                places.lost.insert(target.id);
            }
        }
        places
    }

    /// Where a column may go: to a target that has nothing of the component, and where bytes lie more than once to another domain than
    /// the others if there is one.
    fn choose(&self, far: &Far, (number, column): (u16, u16)) -> Option<TargetId> {
        let component = far.layout.components.get(usize::from(number))?;
        let open: Vec<Candidate> =
            self.to.iter().copied().filter(|one| !component.targets.contains(&one.target)).collect();
        let others = (0..).zip(&component.targets).filter(|(other, _)| *other != column);
        let together: BTreeSet<u32> = others
            .filter(|(other, _)| match component.redundancy {
                Redundancy::None => false,
                Redundancy::Mirror { .. } => component.replicas(column).contains(other),
                Redundancy::Coded { .. } => true,
            })
            .filter_map(|(_, target)| self.domains.get(target).copied())
            .collect();
        let apart: Vec<Candidate> =
            open.iter().copied().filter(|one| !together.contains(&one.domain)).collect();
        let from = if apart.iter().any(|one| one.weight > 0) { apart } else { open };
        let seed = component.object(column).0.wrapping_add(far.layout.generation.into());
        layout::place(seed, &from, 1, Spread::Targets).ok()?.first().copied()
    }

    /// Columns of a file that are to leave where they are.
    fn leaving(&self, far: &Far) -> Vec<((u16, u16), TargetId)> {
        let places = far.on(&self.from.keys().copied().collect()).into_iter();
        let target = |(component, column): (u16, u16)| {
            far.layout.components.get(usize::from(component)).and_then(|c| c.target(column))
        };
        places.filter_map(|place| Some((place, target(place)?))).collect()
    }
}

/// Of which pool of targets there has to be one, for people.
fn of_pool(far: &Far) -> String {
    far.pool.as_ref().map_or_else(String::new, |pool| format!(" of target pool {pool}"))
}

/// Bytes that a column has of a file of a size.
pub(super) fn bytes_of(far: &Far, (component, column): (u16, u16), size: u64) -> u64 {
    far.layout.components.get(usize::from(component)).map_or(0, |c| c.object_length(column, size))
}

impl Node {
    /// Begins what an operator wants of targets; a request unless there is nothing to be moved.
    pub(crate) fn move_targets(&self, cx: &Cx, act: TargetAct) -> Result<Option<Request>, Failure> {
        let fail = |e| refused("targets", &e);
        let own = self.membership()?;
        if own.is_none_or(|own| !own.holds_names()) {
            let message = "targets are moved by the cluster's first node; see `thermo cluster status`";
            return Err(failure(ErrorClass::Invalid, message));
        }
        let (kind, subject) = match act {
            TargetAct::Return(id) => {
                let _alone = self.movers.listing.lock();
                self.catalog.set_target(id, false, false).map_err(fail)?;
                return Ok(None);
            }
            TargetAct::Remove(id) => return self.remove_target(id).map(|()| None),
            TargetAct::Drain(id) => {
                self.catalog.set_target(id, true, false).map_err(fail)?;
                self.tell_of_pools();
                (RequestKind::Drain, format!("drain target {id}"))
            }
            TargetAct::Replace(id) => {
                self.catalog.set_target(id, true, true).map_err(fail)?;
                self.tell_of_pools();
                (RequestKind::Drain, format!("replace target {id}"))
            }
            TargetAct::Balance => (RequestKind::Balance, "balance targets".to_owned()),
            TargetAct::Scrub(id) => {
                if !self.catalog.targets().map_err(fail)?.iter().any(|one| one.id == id) {
                    let message = format!("there is no target {id}; see `thermo target ls`");
                    return Err(failure(ErrorClass::NotFound, message));
                }
                (RequestKind::Scrub, super::scrub::subject(id))
            }
        };
        let items = match act {
            TargetAct::Scrub(id) => self.to_be_scrubbed(id).map_err(fail)?,
            _ => self.to_be_moved(kind, &self.target_views()?).map_err(fail)?,
        };
        let mut request = Request::new(kind, cx.uid, subject, crate::now());
        if items.is_empty() {
            (request.state, request.finished) = (RequestState::Done, Some(request.created));
            request.message = "it has nothing".to_owned();
        }
        let request = self.catalog.create_request(&request, &items).map_err(fail)?;
        // It is promised now: a crash takes it no more.
        self.catalog.sync().map_err(fail)?;
        Ok(Some(request))
    }

    /// Files with something to be moved, and how much (bytes).
    fn to_be_moved(&self, kind: RequestKind, views: &[TargetView]) -> catalog::Result<Vec<(Ino, u64)>> {
        let mut pools: BTreeMap<Option<String>, Places> = BTreeMap::new();
        let (mut items, mut after) = (BTreeMap::new(), ObjectId(0));
        // What leaves each target already, by whatever pool it has to.
        let mut gone: BTreeMap<TargetId, u64> = BTreeMap::new();
        loop {
            let page = self.catalog.far_objects(after, PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(items.into_iter().collect()) };
            after = *last;
            for (object, far) in page {
                let Some(ino) = self.catalog.object_owner(object)? else { continue };
                let size = self.catalog.inode(ino)?.attr.size;
                let all = || Places::of(views, kind, far.pool.as_deref());
                let places = pools.entry(far.pool.clone()).or_insert_with(all);
                for (place, target) in places.leaving(&far) {
                    let bytes = bytes_of(&far, place, size);
                    if kind == RequestKind::Balance {
                        let left = places.from.get(&target).copied().unwrap_or_default();
                        let gone = gone.entry(target).or_default();
                        if bytes == 0 || *gone >= left || places.choose(&far, place).is_none() {
                            continue;
                        }
                        *gone += bytes;
                    }
                    *items.entry(ino).or_default() += bytes;
                }
            }
        }
    }

    /// Moves what requests want until the node stops.
    pub(crate) fn move_far(&self) {
        let mut told = String::new();
        while !self.stops_within(AGAIN) {
            let problem = self.move_requested().map_or_else(|e| e.to_string(), |()| String::new());
            if !problem.is_empty() && problem != told {
                tracing::error!("moving columns between targets: {problem}; tried again");
            }
            told = problem;
        }
    }

    fn move_requested(&self) -> Result<(), FsError> {
        let kinds = [RequestKind::Drain, RequestKind::Balance];
        let work = |request: &Request, ino| self.move_file(ino, request.kind);
        self.each_requested(&kinds, work, |request| self.follow_up(request))
    }

    /// Files that came to lie on a target just when it was to be emptied are moved by a request of their own.
    fn follow_up(&self, request: &Request) -> catalog::Result<()> {
        let now = self.catalog.request(request.id)?;
        // What failed would fail again.
        let clean = now.is_some_and(|now| now.state == RequestState::Done && now.files_failed == 0);
        if request.kind != RequestKind::Drain || !clean {
            return Ok(());
        }
        let views = match self.target_views() {
            Ok(views) => views,
            Err(e) => {
                tracing::error!(
                    "whether something came to lie there while request {} went on is not known: {e}; drain again",
                    request.id
                );
                return Ok(());
            }
        };
        let mut left = Vec::new();
        for (ino, bytes) in self.to_be_moved(request.kind, &views)? {
            if !self.catalog.items(request.id, Ino(ino.0 - 1), 1)?.iter().any(|(known, ..)| *known == ino) {
                left.push((ino, bytes));
            }
        }
        if !left.is_empty() {
            let more = Request::new(request.kind, request.owner, request.subject.clone(), crate::now());
            self.catalog.create_request(&more, &left)?;
            self.catalog.sync()?;
        }
        Ok(())
    }

    /// Moves what a file has where it is not to be.
    fn move_file(&self, ino: Ino, kind: RequestKind) -> Result<(), Stop> {
        let told = |e: catalog::CatalogError| e.to_string();
        let gone = || "it has left its targets".to_owned();
        let views = self.target_views().map_err(|e| e.to_string())?;
        let inode = match self.catalog.inode(ino) {
            Err(e) if e.fs() == FsError::NotFound => return Ok(()),
            inode => inode.map_err(told)?,
        };
        let Some((object, version)) = inode.file.filter(|f| f.far).and_then(|f| Some((f.object?, f.version)))
        else {
            return Ok(()); // it has left all targets meanwhile
        };
        let far = self.catalog.far(object).map_err(told)?.ok_or_else(gone)?;
        let places = Places::of(&views, kind, far.pool.as_deref());
        if !far.on(&places.lost).is_empty() && !far.can_spare(&places.lost) {
            // What is lost comes from tape.
            return self.purge_file(ino, version, object).map_err(|why| {
                let lost = "what it had on the lost target is not on disk any more, and it stays as it is";
                match self.is_open(ino) {
                    true => Stop::Later(why),
                    false => Stop::Failed(format!("{lost}: {why}")),
                }
            });
        }
        let mut leaving = places.leaving(&far);
        if kind == RequestKind::Balance {
            leaving.truncate(1);
        } else if leaving.is_empty() && !places.lost.is_empty() {
            return self.mend_relocated(object);
        }
        let mut rebuilt = false;
        for (place, target) in leaving {
            let claim = self.movers.claims.take(object);
            let far = self.catalog.far(object).map_err(told)?.ok_or_else(gone)?;
            let none = || {
                Stop::Failed(format!(
                    "no other target{} has room for it: see `thermo target ls`",
                    of_pool(&far)
                ))
            };
            let to = places.choose(&far, place).ok_or_else(none)?;
            if places.lost.contains(&target) || far.stale.contains(&place) {
                // Nobody reads what is lost, should it be there still, when the file has changed.
                let _unlent = self.end_lending(object).map_err(|e| e.to_string())?;
                let far = self.catalog.relocate_column(object, place, to, true).map_err(told)?;
                if places.lost.contains(&target) {
                    rebuilt = true;
                } else {
                    self.mend_file(object, &far, &places.lost)?;
                }
                continue;
            }
            let copy = |file: &Arc<FarFile>| self.copy_column(file, object, (place, to), false, &claim);
            let moved = self.with_far(ino, object, copy)?;
            moved.ok_or_else(|| Stop::Later("it has other objects by now".to_owned()))?;
        }
        self.movers.wake();
        match rebuilt {
            // Several files at once, once they have their new places: this thread comes back to them, and is one of those who do it.
            true => Err(Stop::Later(REBUILT.to_owned())),
            false => Ok(()),
        }
    }

    /// Makes what was given another place because its target is lost, unless others have done that.
    fn mend_relocated(&self, object: ObjectId) -> Result<(), Stop> {
        let later = || Stop::Later(REBUILT.to_owned());
        let _claim = self.movers.claims.try_take(object).ok_or_else(later)?;
        let far = self.catalog.far(object).map_err(|e| e.to_string())?;
        let Some(far) = far.filter(|far| !far.stale.is_empty()) else { return Ok(()) };
        self.mend_file(object, &far, &self.down_targets().map_err(|e| e.to_string())?)?;
        // Its new target may be down by now.
        let far = self.catalog.far(object).map_err(|e| e.to_string())?;
        if far.is_some_and(|far| !far.stale.is_empty()) { Err(later()) } else { Ok(()) }
    }

    /// Moves what a file that grows has on a target that is full, so that it goes on; the writer waits for it.
    pub(crate) fn leave_full(&self, file: &FarFile, object: ObjectId, full: TargetId) -> Result<(), String> {
        let claim = self.movers.claims.take(object);
        let far = self.catalog.far(object).map_err(|e| e.to_string())?.ok_or("it has left its targets")?;
        let views = self.target_views().map_err(|e| e.to_string())?;
        let mut places = Places::of(&views, RequestKind::Drain, far.pool.as_deref());
        let all = std::mem::take(&mut places.to);
        let tight = |one: &Candidate| {
            let target = views.iter().map(|view| &view.target).find(|target| target.id == one.target);
            target.is_none_or(|target| target.free < target.capacity / 100 * super::layouts::TIGHT_PERCENT)
        };
        // Another writer may have moved it meanwhile: then nothing is left there.
        for place in far.on(&BTreeSet::from([full])).into_iter().filter(|place| !far.stale.contains(place)) {
            let length = bytes_of(&far, place, file.stamp().size);
            let (roomy, others): (Vec<Candidate>, Vec<Candidate>) =
                all.iter().partition(|one| !tight(one) && one.weight > length);
            // What they have told may be old: only themselves know.
            let others = others.into_iter().map(|one| Candidate { weight: 1, ..one }).collect();
            self.leave_by(file, (object, &far), (place, full), &mut places, [roomy, others], &claim)?;
        }
        self.movers.wake();
        Ok(())
    }

    /// Moves a column to the first target that takes it, of these in turn.
    fn leave_by(
        &self,
        file: &FarFile,
        (object, far): (ObjectId, &Far),
        (place, full): ((u16, u16), TargetId),
        places: &mut Places,
        candidates: [Vec<Candidate>; 2],
        claim: &Claim<'_>,
    ) -> Result<(), String> {
        let mut why = format!("no other target{} has room for what lies there", of_pool(far));
        for candidates in candidates {
            places.to = candidates;
            while let Some(to) = places.choose(far, place) {
                let (ino, column) = (file.ino(), place.1);
                tracing::info!(
                    "inode {ino}: column {column} moves from target {full}, which is full, to {to}"
                );
                match self.copy_column(file, object, (place, to), true, claim) {
                    Ok(()) => return Ok(()),
                    Err(e) => why = format!("target {to} does not take what lies there: {e}"),
                }
                places.to.retain(|one| one.target != to);
            }
        }
        Err(why)
    }

    /// Copies a column while its file is used, and has it lie at its new place from one moment on. Of a coded file the log is folded first, unless
    /// it lies on a target that is `full`: then it is carried as it is, and writers wait.
    ///
    /// Rights to write that others were given end before the first byte is copied: what is written meanwhile passes through the node, which copies
    /// it once more. Rights to read end before the catalogue says that the column lies elsewhere, so nobody reads at the old place what is
    /// written at the new one.
    fn copy_column(
        &self,
        file: &FarFile,
        object: ObjectId,
        (place, target): ((u16, u16), TargetId),
        full: bool,
        claim: &Claim<'_>,
    ) -> Result<(), String> {
        claim.copies_to(target);
        let moved = self.copy_claimed(file, object, (place, target), full, claim);
        claim.over();
        moved
    }

    fn copy_claimed(
        &self,
        file: &FarFile,
        object: ObjectId,
        (place, target): ((u16, u16), TargetId),
        full: bool,
        claim: &Claim<'_>,
    ) -> Result<(), String> {
        file.note_machines();
        self.fence_far(object).map_err(|e| e.to_string())?;
        // On record before there is anything to remove.
        self.catalog.intend_column(object, place, target).map_err(|e| e.to_string())?;
        let to = self.column_to(file, place, target)?;
        self.fence_column(object, place, target)?;
        let started = Started::of(&to);
        let moved = Mended { component: place.0.into(), column: place.1, to: &to };
        let carried = full && file.striped().is_coded();
        if !carried {
            self.copy_while_used(file, moved)?;
        }
        let admit = || {
            claim.ends();
            started.is_the_same()?;
            self.fence_far(object).map_err(|e| e.to_string())?;
            // All that can fail comes before it is on record: whoever has the file open must use the new place from then on.
            let mut columns = self.columns_but(object, None)?;
            columns[usize::from(place.0)][usize::from(place.1)] = Some(to.clone());
            let recorded = self.catalog.relocate_column(object, place, target, false);
            let lies = |far: &Far| far.layout.components.get(usize::from(place.0))?.target(place.1);
            self.settled(object, recorded, |far| lies(far) == Some(target))?;
            Ok(columns)
        };
        let ended = match carried {
            true => file.striped().carry(moved, admit),
            false => file.striped().finish_moving(moved, admit),
        };
        file.note_machines();
        ended.map_err(|e| e.to_string())
    }

    /// Copies a column, and what changes meanwhile until that is little.
    fn copy_while_used(&self, file: &FarFile, moved: Mended<'_>) -> Result<(), String> {
        // What is under way keeps its rate: it is that of all of it.
        let (rate, begun) = (self.settings().cluster.move_rate.0, Moment::now());
        let (mut at, mut bytes) = (Some(0), 0);
        while let Some(from) = at {
            let step = file.striped().copy_column(moved, from).map_err(|e| e.to_string())?;
            bytes += step.bytes;
            at = step.next;
            self.keep_pace(rate, begun, bytes)?;
        }
        for _ in 0..ROUNDS {
            if file.striped().behind() <= CLOSE {
                break;
            }
            bytes += file.striped().catch_up(moved).map_err(|e| e.to_string())?;
            self.keep_pace(rate, begun, bytes)?;
        }
        Ok(())
    }

    /// Rights to what a target had of a column in earlier times are of no use for what is copied there now.
    pub(super) fn fence_column(
        &self,
        object: ObjectId,
        place: (u16, u16),
        target: TargetId,
    ) -> Result<(), String> {
        let far = self.catalog.far(object).map_err(|e| e.to_string())?.ok_or("it has left its targets")?;
        let component = far.layout.components.get(usize::from(place.0)).into_iter();
        let objects = component.flat_map(layout::Component::places).filter(|(_, column)| *column == place.1);
        let objects = objects.map(|(object, _)| (object, target));
        self.fence_objects(objects, far.layout.generation).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(id: u32, domain: &str, free: u64, state: TargetState) -> TargetView {
        let target = Target {
            id: TargetId(id),
            uuid: String::new(),
            node: NodeId(id),
            data: Vec::new(),
            domain: domain.to_owned(),
            draining: matches!(state, TargetState::Draining | TargetState::Lost),
            lost: state == TargetState::Lost,
            capacity: 1000,
            free,
            seen: Time::new(1, 0),
        };
        TargetView { target, state, pools: Vec::new() }
    }

    fn far(redundancy: Redundancy, targets: &[u32]) -> Far {
        let targets = targets.iter().copied().map(TargetId).collect();
        let component = layout::Component {
            range: 0..u64::MAX,
            unit_bytes: 4096,
            redundancy,
            base: ObjectId(1),
            targets,
        };
        Far {
            layout: layout::Layout { generation: 1, components: vec![component] },
            stale: Vec::new(),
            then: Vec::new(),
            pool: None,
        }
    }

    #[test]
    fn balancing_takes_from_those_above_all_together_and_gives_to_those_below() {
        let up = TargetState::Up;
        let views = [
            view(1, "a", 100, up),
            view(2, "b", 900, up),
            view(3, "c", 490, up),
            view(4, "d", 0, TargetState::Down),
        ];
        let places = Places::of(&views, RequestKind::Balance, None);
        // 1510 of 3000 bytes are used, 503 of 1000.
        assert_eq!(places.from, BTreeMap::from([(TargetId(1), 397)]));
        let to: Vec<(u32, u64)> = places.to.iter().map(|one| (one.target.0, one.weight)).collect();
        assert_eq!(to, [(2, 403)], "one that is about right gets nothing");
        let even = [view(1, "a", 500, up), view(2, "b", 490, up)];
        assert!(Places::of(&even, RequestKind::Balance, None).from.is_empty());
    }

    #[test]
    fn what_leaves_a_target_goes_where_nothing_of_the_file_is_and_apart_from_its_copies() {
        let up = TargetState::Up;
        let views = [
            view(1, "a", 500, TargetState::Draining),
            view(2, "b", 500, up),
            view(3, "b", 900, up),
            view(4, "c", 1, up),
            view(5, "d", 900, TargetState::Lost),
        ];
        let places = Places::of(&views, RequestKind::Drain, None);
        assert_eq!(places.from.keys().map(|target| target.0).collect::<Vec<_>>(), [1, 5]);
        let mirror = far(Redundancy::Mirror { copies: 2 }, &[1, 2]);
        assert_eq!(places.leaving(&mirror), [((0, 0), TargetId(1))]);
        assert_eq!(places.choose(&mirror, (0, 0)), Some(TargetId(4)), "its copy is in the domain of 2 and 3");
        let striped = far(Redundancy::None, &[1, 2, 4]);
        assert_eq!(places.choose(&striped, (0, 0)), Some(TargetId(3)));
        let everywhere = far(Redundancy::None, &[1, 2, 3, 4]);
        assert_eq!(places.choose(&everywhere, (0, 0)), None);
    }

    #[test]
    fn what_lies_in_a_pool_leaves_a_target_for_others_of_it_only_and_is_balanced_among_them() {
        let up = TargetState::Up;
        let fast = |view: TargetView| TargetView { pools: vec!["fast".to_owned()], ..view };
        let views = [
            fast(view(1, "a", 500, TargetState::Draining)),
            fast(view(2, "b", 1, up)),
            view(3, "c", 900, up),
            fast(view(4, "d", 400, TargetState::Down)),
        ];
        let places = |pool| Places::of(&views, RequestKind::Drain, pool);
        let striped = Far { pool: Some("fast".to_owned()), ..far(Redundancy::None, &[1]) };
        for generation in 0..200 {
            let layout = layout::Layout { generation, ..striped.layout.clone() };
            let striped = Far { layout, ..striped.clone() };
            assert_eq!(places(Some("fast")).choose(&striped, (0, 0)), Some(TargetId(2)));
        }
        let both = Far { pool: Some("fast".to_owned()), ..far(Redundancy::Mirror { copies: 2 }, &[1, 2]) };
        assert_eq!(places(Some("fast")).choose(&both, (0, 0)), None, "there is room outside only");
        assert_eq!(
            places(None).choose(&far(Redundancy::Mirror { copies: 2 }, &[1, 2]), (0, 0)),
            Some(TargetId(3))
        );
        assert_eq!(places(Some("gone")).choose(&striped, (0, 0)), None);
        // What is outside its pool by now leaves a target like all the rest.
        assert_eq!(places(Some("gone")).leaving(&striped), [((0, 0), TargetId(1))]);
        let uneven = [fast(view(1, "a", 100, up)), fast(view(2, "b", 500, up)), view(3, "c", 1000, up)];
        let places = Places::of(&uneven, RequestKind::Balance, Some("fast"));
        assert_eq!(places.from, BTreeMap::from([(TargetId(1), 200)]));
        assert_eq!(places.to.iter().map(|one| one.target.0).collect::<Vec<_>>(), [2]);
        let places = Places::of(&uneven, RequestKind::Balance, None);
        assert_eq!(places.from, BTreeMap::from([(TargetId(1), 434), (TargetId(2), 34)]));
    }
}
