//! Moving columns from target to target: of targets that are to be empty, that are lost, or that are fuller than others. What is to be moved is a
//! request with its files; a column lies at its new place from the transaction on that says so, and whatever a crash leaves elsewhere is on record
//! to be removed.

use super::PAGE;
use super::claims::Claim;
use super::mend::{MENDERS, Started, Whose};
use super::places::Places;
use super::requested::{AtOnce, Stop};
use crate::Node;
use crate::clock::Moment;
use crate::error::{failure, refused};
use crate::files::FarFile;
use catalog::Far;
use layout::Candidate;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stripe::{Mended, Progress};
use types::*;
use wire::Failure;

/// Between two looks for something to do.
const AGAIN: Duration = Duration::from_secs(1);
/// What changes while a column is copied is copied once more so often at most ...
const ROUNDS: usize = 8;
/// ... or until it is no more than this (bytes): then writers wait for the rest.
const CLOSE: u64 = 16 << 20;

/// What a file waits for that had something on a lost target.
const REBUILT: &str = "what it had on a lost target is being rebuilt";
/// Why a column stays where it is whose request has ended.
const WITHDRAWN: &str = "the request was withdrawn";

/// Why a column leaves its target.
#[derive(Clone, Copy)]
enum Leaves<'a> {
    /// That is full: a writer waits for it, and it waits for nobody's pace but its own.
    Full,
    /// A request asks for it; and who is to be told how much of it is copied (bytes).
    Asked(RequestId, &'a dyn Fn(u64)),
}

/// Of which pool of targets there has to be one, for people.
fn of_pool(far: &Far) -> String {
    far.pool.as_ref().map_or_else(String::new, |pool| format!(" of target pool {pool}"))
}

/// Bytes that a column has of a file of a size.
pub(super) fn bytes_of(far: &Far, (component, column): (u16, u16), size: u64) -> u64 {
    far.layout.components.get(usize::from(component)).map_or(0, |c| c.object_length(column, size))
}

/// There is no target that a column could go to now.
fn nowhere(places: &Places, far: &Far, (number, _): (u16, u16)) -> Stop {
    let of = of_pool(far);
    let see = "see `thermo target ls`";
    match places.may_come(far, number) {
        true => Stop::Later(format!(
            "no other target{of} that answers has room for it, and one that is down may have: {see}"
        )),
        false => Stop::NoRoom(format!("no other target{of} has room for it: {see}")),
    }
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
        let work = |request: &Request, ino| self.move_file(ino, request);
        let at_once = AtOnce { files: MENDERS, bytes: u64::MAX };
        self.each_requested(&kinds, at_once, work, |request| self.follow_up(request))
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
    fn move_file(&self, ino: Ino, request: &Request) -> Result<(), Stop> {
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
        let places = Places::of(&views, request.kind, far.pool.as_deref());
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
        if request.kind == RequestKind::Balance {
            leaving.truncate(1);
        } else if leaving.is_empty() && !places.lost.is_empty() {
            return self.mend_relocated(object);
        }
        let (mut rebuilt, mut done) = (false, 0);
        for (place, target) in leaving {
            let claim = self.movers.claims.take(object);
            let far = self.catalog.far(object).map_err(told)?.ok_or_else(gone)?;
            let to = places.choose(&far, place).ok_or_else(|| nowhere(&places, &far, place))?;
            if places.lost.contains(&target) || far.stale.contains(&place) {
                // Nobody reads what is lost, should it be there still, when the file has changed.
                let _unlent = self.end_lending(object).map_err(|e| e.to_string())?;
                let far = self.catalog.relocate_column(object, place, to, true).map_err(told)?;
                if places.lost.contains(&target) {
                    rebuilt = true;
                } else {
                    self.mend_file(object, &far, &places.lost, &claim)?;
                }
                continue;
            }
            let copied = |bytes| self.movers.note_copied(request.id, ino, done + bytes);
            let leaves = Leaves::Asked(request.id, &copied);
            let copy = |file: &Arc<FarFile>| self.copy_column(file, object, (place, to), leaves, &claim);
            let moved = self.with_far(ino, object, copy).map_err(|why| self.stays(request.id, why))?;
            moved.ok_or_else(|| Stop::Later("it has other objects by now".to_owned()))?;
            done += bytes_of(&far, place, inode.attr.size);
        }
        self.movers.wake();
        match rebuilt {
            // Several files at once, once they have their new places: this thread comes back to them, and is one of those who do it.
            true => Err(Stop::Later(REBUILT.to_owned())),
            false => Ok(()),
        }
    }

    /// What becomes of a file of which something could not be moved. What was copied is removed.
    fn stays(&self, request: RequestId, why: String) -> Stop {
        self.movers.wake();
        if self.is_open_request(request) { Stop::Later(why) } else { Stop::Failed(why) }
    }

    /// Makes what was given another place because its target is lost, unless others have done that.
    fn mend_relocated(&self, object: ObjectId) -> Result<(), Stop> {
        let later = || Stop::Later(REBUILT.to_owned());
        let claim = self.movers.claims.try_take(object).ok_or_else(later)?;
        let far = self.catalog.far(object).map_err(|e| e.to_string())?;
        let Some(far) = far.filter(|far| !far.stale.is_empty()) else { return Ok(()) };
        self.mend_file(object, &far, &self.down_targets().map_err(|e| e.to_string())?, &claim)?;
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
                match self.copy_column(file, object, (place, to), Leaves::Full, claim) {
                    Ok(()) => return Ok(()),
                    Err(e) => why = format!("target {to} does not take what lies there: {e}"),
                }
                places.to.retain(|one| one.target != to);
            }
        }
        Err(why)
    }

    /// Copies a column while its file is used, and has it lie at its new place from one moment on. Of a coded file the log is folded first, unless
    /// it lies on a target that is full: then it is carried as it is, and writers wait.
    ///
    /// Rights to write that others were given end before the first byte is copied: what is written meanwhile passes through the node, which copies
    /// it once more. Rights to read end before the catalogue says that the column lies elsewhere, so nobody reads at the old place what is
    /// written at the new one.
    fn copy_column(
        &self,
        file: &FarFile,
        object: ObjectId,
        (place, target): ((u16, u16), TargetId),
        leaves: Leaves<'_>,
        claim: &Claim<'_>,
    ) -> Result<(), String> {
        claim.copies_to(target);
        let moved = self.copy_claimed(file, object, (place, target), leaves, claim);
        claim.over();
        moved
    }

    fn copy_claimed(
        &self,
        file: &FarFile,
        object: ObjectId,
        (place, target): ((u16, u16), TargetId),
        leaves: Leaves<'_>,
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
        let carried = matches!(leaves, Leaves::Full) && file.striped().is_coded();
        if !carried {
            self.copy_while_used(file, moved, leaves, claim)?;
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
    fn copy_while_used(
        &self,
        file: &FarFile,
        moved: Mended<'_>,
        leaves: Leaves<'_>,
        claim: &Claim<'_>,
    ) -> Result<(), String> {
        // What is under way keeps its rate: it is that of all of it.
        let (rate, begun, mut bytes) = (self.settings().cluster.move_rate.0, Moment::now(), 0);
        let copy = |from| -> Result<(Progress, u64), String> {
            let step = file.striped().copy_column(moved, from).map_err(|e| e.to_string())?;
            let bytes = step.bytes;
            Ok((step, bytes))
        };
        let mut at = Some(0);
        while let Some(from) = at {
            let step = match leaves {
                Leaves::Full => copy(from)?.0,
                Leaves::Asked(request, _) => {
                    let whose = Whose { claim: Some(claim), request: Some(request) };
                    self.at_pace(whose, stripe::STEP.min(file.stamp().size), || copy(from))?
                }
            };
            bytes += step.bytes;
            at = step.next;
            match leaves {
                Leaves::Full => self.keep_pace(rate, begun, bytes)?,
                Leaves::Asked(request, copied) => {
                    copied(bytes);
                    if !self.is_open_request(request) {
                        return Err(WITHDRAWN.to_owned());
                    }
                }
            }
        }
        // The longer this waits, the more has changed again, and for what is left at the end writers wait: it keeps the rate by itself.
        let (rate, begun, mut bytes) = (self.settings().cluster.move_rate.0, Moment::now(), 0);
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
