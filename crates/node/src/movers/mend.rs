//! Rebuilds what is out of date on targets that answer again, beside whoever uses the files. What is left to do is on record in the catalogue.
//!
//! One thread goes over what is on record and hands it out to several others, each of which mends one file at a time: a file whose targets do not
//! answer is waited for by one of them only. All of them together keep one pace.

use super::PAGE;
use super::claims::Claim;
use super::pace::Pace;
use super::requested::Stop;
use crate::Node;
use crate::clock::Moment;
use crate::counted::Counted;
use crate::error::fs_error;
use crate::files::{Content, FarFile};
use catalog::Far;
use crossbeam_channel::{Receiver, Sender};
use data::frame::Op;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stripe::{Column, Columns, Mended, Progress};
use types::api::OpenFlags;
use types::*;

/// So many files are mended at once. Each has pieces of 4 MiB in memory, a few at a time.
pub(crate) const MENDERS: usize = 8;

/// Between two looks for something to do.
const AGAIN: Duration = Duration::from_secs(2);

/// Between two looks at the pace while others are at work.
const LOOK: Duration = Duration::from_millis(100);

/// What cannot be made is tried again after this, or when the file has changed.
const UNMADE: Duration = Duration::from_secs(600);

/// A file of which something is out of date, and the targets that are down.
pub(crate) type Stale = (ObjectId, Arc<BTreeSet<TargetId>>);

/// What those who mend files have in common.
#[derive(Default)]
pub(super) struct Mending {
    pace: Pace,
    /// How many who rebuild wait for it: nobody else begins a step meanwhile.
    first: AtomicUsize,
    problems: Mutex<Problems>,
}

impl Mending {
    fn is_left_alone(&self, object: ObjectId) -> bool {
        self.problems.lock().left_alone.contains(&object)
    }

    fn leave_alone(&self, object: ObjectId) {
        tracing::error!(
            "object {object}: mending it panicked; it is left alone until the node is started anew. Please report this with the log"
        );
        self.problems.lock().left_alone.insert(object);
    }

    /// A file was tried, unless somebody else was at it.
    fn note(&self, object: ObjectId, tried: Option<Result<(), Stop>>) {
        let Some(tried) = tried else { return };
        let why = tried.err().map(Stop::why);
        self.problems.lock().note(object, why);
    }
}

/// Why files cannot be mended now.
#[derive(Default)]
struct Problems {
    /// The last one of them. While it is tried again, as it was before.
    last: Option<(ObjectId, String)>,
    /// Where the program itself fails: nobody tries these again before the node is started anew.
    left_alone: BTreeSet<ObjectId>,
}

impl Problems {
    /// A file was tried.
    fn note(&mut self, object: ObjectId, why: Option<String>) {
        match why {
            Some(why) if self.last.as_ref().is_none_or(|(last, _)| *last <= object) => {
                self.last = Some((object, why));
            }
            None => self.forget(object),
            Some(_) => {}
        }
    }

    /// Nothing is out of date of a file.
    fn forget(&mut self, object: ObjectId) {
        self.last = self.last.take().filter(|(last, _)| *last != object);
    }
}

/// Columns with something that cannot be made from the others, as they were found lately.
#[derive(Default)]
pub(super) struct Unmade(Mutex<BTreeMap<Which, Found>>);

/// An object, with component and column.
type Which = (ObjectId, (u16, u16));

/// How one was found.
struct Found {
    at: Moment,
    stamp: Option<ObjectStamp>,
    why: String,
}

impl Unmade {
    fn note(&self, object: ObjectId, place: (u16, u16), stamp: Option<ObjectStamp>, why: String) {
        let mut all = self.0.lock();
        all.retain(|_, found| found.at.elapsed() < UNMADE);
        all.insert((object, place), Found { at: Moment::now(), stamp, why });
    }

    /// Why the first column of an object, or one of them, cannot be made, if the file is as it was then.
    fn of(&self, object: ObjectId, place: Option<(u16, u16)>, stamp: Option<ObjectStamp>) -> Option<String> {
        let all = self.0.lock();
        let known = all.range((object, (0, 0))..=(object, (u16::MAX, u16::MAX)));
        let mut here = known.filter(|((_, known), _)| place.is_none_or(|place| place == *known));
        let found = here.find(|(_, found)| found.at.elapsed() < UNMADE && found.stamp == stamp);
        found.map(|(_, found)| found.why.clone())
    }
}

/// Who does a step.
#[derive(Clone, Copy)]
pub(super) struct Whose<'c> {
    /// Of the file.
    pub claim: Option<&'c Claim<'c>>,
    /// For which request; none: he rebuilds what was lost, and nobody else begins while he waits.
    pub request: Option<RequestId>,
}

/// The start of the machine that a column is written to: what was written there before another one, and not synced, may be lost.
pub(super) struct Started<'a> {
    to: &'a Column,
    boot: Option<u64>,
}

impl<'a> Started<'a> {
    pub(super) fn of(to: &'a Column) -> Self {
        Self { to, boot: to.channel.boot() }
    }

    /// Asked when all was synced.
    pub(super) fn is_the_same(&self) -> Result<(), String> {
        let boot = self.to.channel.boot();
        if boot.is_some() && boot == self.boot {
            return Ok(());
        }
        Err(format!(
            "the machine of target {} may have been started anew meanwhile: it is done again",
            self.to.target
        ))
    }
}

impl Node {
    /// Hands out what is to be mended to those who do it, until the node stops.
    pub(crate) fn mend_far(&self, give: &Sender<Stale>) {
        let mut told = String::new();
        while !self.stops_within(AGAIN) {
            let problem = self.give_stale(give).map_or_else(|e| e.to_string(), |e| e.unwrap_or_default());
            if !problem.is_empty() && problem != told {
                tracing::warn!("a file lacks a column, and is tried again: {problem}");
            }
            told = problem;
        }
    }

    /// Hands out each file with something that is out of date; why the last one of those that cannot be mended now cannot.
    fn give_stale(&self, give: &Sender<Stale>) -> Result<Option<String>, FsError> {
        let fail = |e| fs_error("look for files to mend", &e);
        let mut after = ObjectId(0);
        loop {
            let page = self.catalog.stale_far(after, PAGE).map_err(fail)?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            let down = Arc::new(self.down_targets()?);
            for (object, _) in page {
                // It waits until one of them is free.
                if give.send((object, down.clone())).is_err() || self.stops_within(Duration::ZERO) {
                    return Ok(None);
                }
            }
        }
        let last = self.movers.mending.problems.lock().last.clone();
        let Some((object, why)) = last else { return Ok(None) };
        if self.catalog.far(object).map_err(fail)?.is_some_and(|far| !far.stale.is_empty()) {
            return Ok(Some(why));
        }
        self.movers.mending.problems.lock().forget(object);
        Ok(None)
    }

    /// Mends what is handed out, one file after the other.
    pub(crate) fn mend_given(&self, files: &Receiver<Stale>) {
        for (object, down) in files {
            if self.stops_within(Duration::ZERO) || self.movers.mending.is_left_alone(object) {
                continue;
            }
            // Without that, one after the other of those who mend would end at the same file.
            match catch_unwind(AssertUnwindSafe(|| self.mend_unclaimed(object, &down))) {
                Ok(tried) => self.movers.mending.note(object, tried),
                Err(_) => self.movers.mending.leave_alone(object),
            }
        }
    }

    /// Mends a file that nobody else rebuilds or moves; None if somebody does, who looks at it again soon.
    fn mend_unclaimed(&self, object: ObjectId, down: &BTreeSet<TargetId>) -> Option<Result<(), Stop>> {
        let claim = self.movers.claims.try_take(object)?;
        match self.catalog.far(object) {
            Ok(far) => far.map(|far| self.mend_file(object, &far, down, &claim)),
            Err(e) => Some(Err(Stop::Later(format!("object {object}: {e}")))),
        }
    }

    /// Mends the columns of a file whose targets are not down, those behind one that cannot be made too.
    pub(super) fn mend_file(
        &self,
        object: ObjectId,
        far: &Far,
        down: &BTreeSet<TargetId>,
        claim: &Claim<'_>,
    ) -> Result<(), Stop> {
        let owner = self.catalog.object_owner(object).map_err(|e| e.to_string())?;
        let Some(ino) = owner else { return Ok(()) };
        let inode = self.catalog.inode(ino).map_err(|e| e.to_string())?;
        let (mut later, mut unmade) = (Vec::new(), Vec::new());
        for (component, column) in far.stale.iter().copied() {
            let target = far.layout.components.get(usize::from(component)).and_then(|c| c.target(column));
            let Some(target) = target.filter(|target| !down.contains(target)) else { continue };
            let place = (component, column);
            if let Some(why) = self.movers.unmade.of(object, Some(place), inode.observed) {
                unmade.push(why);
                continue;
            }
            let told = |e: String| format!("inode {ino}, column {column} on target {target}: {e}");
            match self.with_far(ino, object, |file| self.mend_column(file, object, (place, target), claim)) {
                Ok(Some(Some(lost))) => {
                    let why = told(lost);
                    self.movers.unmade.note(object, place, inode.observed, why.clone());
                    unmade.push(why);
                }
                Ok(_) => {}
                Err(e) => later.push(told(e)),
            }
        }
        if !later.is_empty() {
            return Err(Stop::Later(later.join("; ")));
        }
        let Some(why) = (!unmade.is_empty()).then(|| unmade.join("; ")) else { return Ok(()) };
        // On tape all of it is.
        let version = inode.file.map(|f| f.version).ok_or("it is no file any more".to_owned())?;
        match self.purge_file(ino, version, object) {
            Ok(()) => {
                tracing::warn!("{why}; its bytes come from tape");
                Ok(())
            }
            Err(e) => match self.is_open(ino) {
                true => Err(Stop::Later(format!("{why}; it comes from tape if it is there: {e}"))),
                false => Err(Stop::Failed(format!("{why}; nor does it come from tape: {e}"))),
            },
        }
    }

    /// Why a file of which something is out of date cannot be made whole, as far as that was tried lately.
    pub(crate) fn unmade(&self, object: ObjectId, stamp: Option<ObjectStamp>) -> Option<String> {
        self.movers.unmade.of(object, None, stamp)
    }

    /// Does something with a file that nobody releases or removes meanwhile; nothing if it has left its targets.
    pub(super) fn with_far<T>(
        &self,
        ino: Ino,
        object: ObjectId,
        what: impl FnOnce(&Arc<FarFile>) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let opened = self.open_file(&Cx::admin(crate::now()), ino, OpenFlags::default());
        let opened = opened.map_err(|e| e.to_string())?;
        let backing = self.open.handle(opened.handle).and_then(|f| f.inode.state.lock().backing.clone());
        let done = match backing.filter(|backing| backing.object == object).map(|b| b.content) {
            Some(Content::Far(file)) => what(&file).map(Some),
            _ => Ok(None),
        };
        self.close_file(opened.handle);
        done
    }

    /// Makes a column what the others say; what is missing there if it cannot.
    fn mend_column(
        &self,
        file: &Arc<FarFile>,
        object: ObjectId,
        ((component, column), target): ((u16, u16), TargetId),
        claim: &Claim<'_>,
    ) -> Result<Option<String>, String> {
        // What was lent before it was out of date is not to be read there while it is written anew.
        let _unlent = self.end_lending(object).map_err(|e| e.to_string())?;
        let to = self.column_to(file, (component, column), target)?;
        // An object that was missing, where there was nothing to end, has been made anew and knows of no end.
        self.fence_column(object, (component, column), target)?;
        let (started, sources) = (Started::of(&to), file.sources());
        let mended = Mended { component: component.into(), column, to: &to };
        let (mut at, mut bytes) = (Some(0), 0);
        let (mut lost, mut first) = (0, None);
        while let Some(from) = at {
            let step = self.mend_step(file, mended, from, claim)?;
            bytes += step.bytes;
            lost += step.lost;
            first = first.or(step.why);
            at = step.next;
        }
        if let Some(why) = first {
            return Ok(Some(format!(
                "{lost} of {bytes} bytes cannot be made from the others, the first because {why}"
            )));
        }
        let admit = || {
            started.is_the_same()?;
            file.sources_hold(&sources)?;
            // All that can fail comes before it is on record: whoever has the file open must use the column from then on.
            let mut columns = self.columns_but(object, Some((component, column)))?;
            columns[usize::from(component)][usize::from(column)] = Some(to.clone());
            let recorded = self.catalog.set_stale(object, (component, column), false);
            self.settled(object, recorded, |far| !far.stale.contains(&(component, column)))?;
            Ok(columns)
        };
        file.striped().finish_mending(mended, admit).map_err(|e| e.to_string())?;
        tracing::info!("inode {}: column {column} on target {target} is up to date again", file.ino());
        Ok(None)
    }

    /// Makes a part of a column what the others say when all who mend together may go on.
    fn mend_step(
        &self,
        file: &FarFile,
        mended: Mended<'_>,
        from: u64,
        claim: &Claim<'_>,
    ) -> Result<Progress, String> {
        let whose = Whose { claim: Some(claim), request: None };
        self.at_pace(whose, stripe::STEP.min(file.stamp().size), || {
            let done = file.striped().mend(mended, from).map_err(|e| e.to_string())?;
            let bytes = done.bytes;
            Ok((done, bytes))
        })
    }

    /// Does a step of about so many bytes when all who rebuild, move and copy files together may go on, those who rebuild first; while somebody waits for the claim of
    /// the file, who may be a writer, it waits for nobody, and keeps the rate by itself. It says how many bytes it had.
    pub(super) fn at_pace<T, E: From<String>>(
        &self,
        whose: Whose<'_>,
        expected: u64,
        step: impl FnOnce() -> Result<(T, u64), E>,
    ) -> Result<T, E> {
        let mending = &self.movers.mending;
        let (mut wait, mut waits) = (Duration::ZERO, None);
        loop {
            if self.stops_within(wait) {
                return Err("the node stops".to_owned().into());
            }
            let rate = self.settings().cluster.move_rate.0;
            if whose.claim.is_some_and(Claim::is_wanted) {
                drop(waits);
                let begun = Moment::now();
                let (done, bytes) = step()?;
                self.keep_pace(rate, begun, bytes)?;
                return Ok(done);
            }
            if let Some(request) = whose.request
                && mending.first.load(Ordering::Acquire) > 0
            {
                if !self.is_open_request(request) {
                    return Err("the request was withdrawn".to_owned().into());
                }
                wait = LOOK;
                continue;
            }
            match mending.pace.begin(rate, expected) {
                Ok(begun) => {
                    drop(waits);
                    let (done, bytes) = step()?;
                    mending.pace.end(&begun, rate, bytes);
                    return Ok(done);
                }
                Err(time) => wait = time.min(LOOK),
            }
            if whose.request.is_none() {
                waits.get_or_insert_with(|| Counted::begin(&mending.first));
            }
        }
    }

    /// The columns of a file as they are on record, all of which have to answer but those that are out of date; of one nothing is asked.
    pub(super) fn columns_but(&self, object: ObjectId, but: Option<(u16, u16)>) -> Result<Columns, String> {
        let far = self.catalog.far(object).map_err(|e| e.to_string())?.ok_or("it has left its targets")?;
        let (columns, absent) = self.columns(&far, &BTreeSet::new()).map_err(|e| e.to_string())?;
        match absent.iter().find(|place| Some(**place) != but) {
            None => Ok(columns),
            Some((_, column)) => Err(format!("column {column} cannot be reached either")),
        }
    }

    /// The way to a column that is to be written anew, with its objects made where they are missing.
    pub(super) fn column_to(
        &self,
        file: &FarFile,
        (component, column): (u16, u16),
        target: TargetId,
    ) -> Result<Column, String> {
        let striped = file.striped();
        let shape = &striped.layout().components[usize::from(component)];
        for (object, _) in shape.places().filter(|(_, place)| *place == column) {
            let ask = |op, length| -> Result<data::Result<data::Reply>, String> {
                Ok(self.ask_far(target, op, object, length).map_err(|e| e.to_string())?.wait())
            };
            match ask(Op::Stat, 0)? {
                Ok(_) => continue,
                Err(e) if e.class() == ErrorClass::NotFound => {}
                // Its file of sums is of no use: nothing of it counts, and all of it is written anew.
                Err(e) if e.class() == ErrorClass::Corrupt => {
                    ask(Op::Remove, 1)?.map_err(|e| e.to_string())?;
                }
                Err(e) => return Err(e.to_string()),
            }
            ask(Op::Create, 1)?.map_err(|e| e.to_string())?;
        }
        self.way(target, false).map_err(|e| e.to_string())
    }

    /// Waits as long as a rate wants it (bytes per second; 0: as fast as they can).
    pub(super) fn keep_pace(&self, rate: u64, begun: Moment, bytes: u64) -> Result<(), String> {
        let due = match rate {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        };
        match self.stops_within(due.saturating_sub(begun.elapsed())) {
            true => Err("the node stops".to_owned()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::config::Size;

    #[test]
    fn a_writer_who_waits_for_a_file_waits_for_no_other_rebuild() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.cluster.move_rate = Size(1);
        let node = Node::start(config).unwrap();
        let claim = node.movers.claims.take(ObjectId(7));
        let others = node.movers.mending.pace.begin(1, 1 << 40).unwrap();
        let writer = node.clone();
        let writer = std::thread::spawn(move || drop(writer.movers.claims.take(ObjectId(7))));
        // It waits for the others until the writer comes, which may be a moment after that.
        assert_eq!(
            node.at_pace(Whose { claim: Some(&claim), request: Some(RequestId(1)) }, 1, || Ok::<_, String>(
                (5, 0)
            )),
            Ok(5)
        );
        assert!(claim.is_wanted());
        assert!(node.movers.mending.pace.begin(1, 1).is_err(), "the others keep theirs");
        assert_eq!(
            node.at_pace(
                Whose { claim: Some(&claim), request: Some(RequestId(1)) },
                1,
                || Err::<((), u64), _>("gone".to_owned())
            ),
            Err("gone".to_owned())
        );
        drop((claim, others));
        writer.join().unwrap();
        node.stop(true);
    }

    #[test]
    fn the_last_of_the_problems_is_told_whoever_is_tried_meanwhile() {
        let mending = Mending::default();
        let tried = |object, tried: Option<Result<(), Stop>>| {
            mending.note(ObjectId(object), tried);
            mending.problems.lock().last.as_ref().map(|(object, why)| (object.0, why.clone()))
        };
        let fails = |why: &str| Some(Err(Stop::Later(why.to_owned())));
        let told = |object: u64, why: &str| Some((object, why.to_owned()));
        assert_eq!(tried(5, fails("first")), told(5, "first"));
        assert_eq!(tried(9, fails("last")), told(9, "last"));
        assert_eq!(tried(5, fails("first")), told(9, "last"), "the last one may still be tried");
        assert_eq!(tried(9, None), told(9, "last"), "somebody else is at it");
        assert_eq!(tried(3, Some(Ok(()))), told(9, "last"));
        assert_eq!(tried(9, Some(Err(Stop::Failed("other".to_owned())))), told(9, "other"));
        assert_eq!(tried(9, Some(Ok(()))), None);
        assert_eq!(tried(5, fails("first")), told(5, "first"));
        mending.leave_alone(ObjectId(9));
        assert!(mending.is_left_alone(ObjectId(9)) && !mending.is_left_alone(ObjectId(5)));
    }

    #[test]
    fn nobody_copies_while_somebody_waits_to_rebuild() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.cluster.move_rate = Size(1000);
        let node = Node::start(config).unwrap();
        let order = Mutex::new(Vec::new());
        let asked = Request::new(RequestKind::Purge, 0, "what no service does".to_owned(), crate::now());
        let asked = node.catalog.create_request(&asked, &[(Ino(99), 1)]).unwrap().id;
        let step = |request, name: &'static str| {
            let done = node.at_pace(Whose { claim: None, request }, 2000, || {
                order.lock().push(name);
                Ok::<_, String>(((), 2000))
            });
            done.unwrap();
        };
        let until = |so: &dyn Fn() -> bool| {
            let end = std::time::Instant::now() + Duration::from_secs(60);
            while !so() && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let waiting = || node.movers.mending.first.load(Ordering::Acquire);
        step(Some(asked), "copied");
        std::thread::scope(|scope| {
            let rebuilds = [(); 2].map(|()| scope.spawn(|| step(None, "rebuilt")));
            until(&|| waiting() > 0);
            assert!(waiting() > 0);
            scope.spawn(|| step(Some(asked), "copied"));
            rebuilds.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(order.into_inner(), ["copied", "rebuilt", "rebuilt", "copied"]);
        assert_eq!(waiting(), 0);
        node.stop(true);
    }
}
