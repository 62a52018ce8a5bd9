//! Scrubbing: the movers compare what lies on a target with its sums, file by file at a set pace, before somebody needs it. What is not what was
//! written is made from other copies or parity; of a file without redundancy the bytes come from tape, if its copies there count. What
//! nothing can repair is a failed item of the request, which `thermo check` looks at again; so is what the disk does not give, which may be good.

use super::moves::bytes_of;
use super::requested::{AtOnce, Stop};
use crate::Node;
use crate::clock::Moment;
use crate::error::failure;
use crate::files::FarFile;
use crate::startup::io;
use catalog::Far;
use data::frame::{COMPARED, MAX_IO, Op};
use data::sum::BLOCK;
use data::{Ask, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use types::*;
use wire::Failure;

/// Between two looks for something to do.
const AGAIN: Duration = Duration::from_secs(2);
/// Looks for what was asked for between two looks for what is due.
const LOOKS: u32 = 30;
/// File of the state directory: lines of target and the second since 1970 in which its last scrub began.
const NAME: &str = "scrubbed";
/// Bytes that a mover is asked to compare at once.
const STEP: u64 = MAX_IO as u64;
const SUBJECT: &str = "scrub target ";

/// What a request is about.
pub(super) fn subject(target: TargetId) -> String {
    format!("{SUBJECT}{target}")
}

fn target_of(subject: &str) -> Option<TargetId> {
    subject.strip_prefix(SUBJECT)?.parse().ok().map(TargetId)
}

/// A block that is not what was written: its object, and where it begins there (bytes).
type Block = (ObjectId, u64);

/// What is not as it was written of what a file has on a target.
enum Bad {
    Blocks(Vec<Block>),
    /// An object is missing, or its file of sums is of no use.
    Object(String),
}

/// When scrubs began, by target (seconds since 1970).
type Begun = BTreeMap<TargetId, i64>;

/// Targets that are due. A new one begins to count now.
fn due(begun: &mut Begun, targets: &[TargetId], now: i64, every_days: u32) -> Vec<TargetId> {
    let period = i64::from(every_days) * 24 * 3600;
    let mut due = Vec::new();
    for target in targets {
        let last = begun.entry(*target).or_insert(now);
        // A clock that was set back must not put it off for ever.
        if period > 0 && (now - *last >= period || *last > now) {
            *last = now;
            due.push(*target);
        }
    }
    due
}

fn read(state: &Path) -> std::io::Result<Begun> {
    let text = match fs::read_to_string(state.join(NAME)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let pair = |line: &str| {
        let (target, secs) = line.split_once(' ')?;
        Some((TargetId(target.parse().ok()?), secs.parse().ok()?))
    };
    Ok(text.lines().filter_map(pair).collect())
}

fn write(state: &Path, begun: &Begun) -> std::io::Result<()> {
    let new = state.join("scrubbed.new");
    let mut file = File::create(&new)?;
    begun.iter().try_for_each(|(target, secs)| writeln!(file, "{target} {secs}"))?;
    file.sync_all()?;
    fs::rename(&new, state.join(NAME))?;
    File::open(state)?.sync_all()
}

impl Node {
    /// Does it until the node stops.
    pub(crate) fn scrub_far(&self) {
        let (mut told, mut looks) = (String::new(), 0);
        while !self.stops_within(AGAIN) {
            let begun = if looks % LOOKS == 0 { self.begin_due() } else { Ok(()) };
            looks += 1;
            let work = |request: &Request, ino| match target_of(&request.subject) {
                Some(target) => self.scrub_file(target, ino),
                None => Err(Stop::Failed("it names no target".to_owned())),
            };
            let done = self.each_requested(&[RequestKind::Scrub], AtOnce::ONE, work, |_| Ok(()));
            let problem = begun.map_err(|e| e.message).and(done.map_err(|e| e.to_string())).err();
            let problem = problem.unwrap_or_default();
            if !problem.is_empty() && problem != told {
                tracing::error!("scrubbing targets: {problem}; tried again");
            }
            told = problem;
        }
    }

    /// Asks for the scrubs that are due.
    fn begin_due(&self) -> Result<(), Failure> {
        if self.membership()?.is_none_or(|own| !own.holds_names()) {
            return Ok(());
        }
        let fail = |e| crate::error::refused("the targets", &e);
        let all = self.catalog.targets().map_err(fail)?;
        let targets: Vec<TargetId> = all.iter().filter(|one| !one.lost).map(|one| one.id).collect();
        let state = &self.config.state_dir;
        let before = read(state).map_err(|e| io(&state.join(NAME), &e))?;
        let mut begun = before.clone();
        let due = due(&mut begun, &targets, crate::now().secs, self.settings().cluster.scrub_every_days);
        let open = self.catalog.open_requests_of(RequestKind::Scrub).map_err(fail)?;
        for target in due.into_iter().filter(|target| !open.iter().any(|r| r.subject == subject(*target))) {
            self.move_targets(&Cx::admin(crate::now()), TargetAct::Scrub(target))?;
        }
        // After the requests: a crash in between begins no second one, as the first is open.
        if begun != before { write(state, &begun).map_err(|e| io(&state.join(NAME), &e)) } else { Ok(()) }
    }

    /// Files with something on a target, and how much (bytes).
    pub(super) fn to_be_scrubbed(&self, target: TargetId) -> catalog::Result<Vec<(Ino, u64)>> {
        let (mut items, mut after) = (BTreeMap::new(), ObjectId(0));
        loop {
            let page = self.catalog.far_objects(after, super::PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(items.into_iter().collect()) };
            after = *last;
            for (object, far) in page {
                let places = far.on(&BTreeSet::from([target]));
                let owner = if places.is_empty() { None } else { self.catalog.object_owner(object)? };
                let Some(ino) = owner else { continue };
                let size = self.catalog.inode(ino)?.attr.size;
                let bytes = places.into_iter().map(|place| bytes_of(&far, place, size)).sum::<u64>();
                *items.entry(ino).or_default() += bytes;
            }
        }
    }

    /// Compares what a file has on a target, and repairs it.
    fn scrub_file(&self, target: TargetId, ino: Ino) -> Result<(), Stop> {
        let told = |e: catalog::CatalogError| e.to_string();
        if self.down_targets().map_err(|e| e.to_string())?.contains(&target) {
            return Err(Stop::Later(format!("target {target} is down")));
        }
        let inode = match self.catalog.inode(ino) {
            Err(e) if e.fs() == FsError::NotFound => return Ok(()),
            inode => inode.map_err(told)?,
        };
        let placed = inode.file.filter(|f| f.far).and_then(|f| Some((f.object?, f.version)));
        let Some((object, version)) = placed else { return Ok(()) };
        let Some(far) = self.catalog.far(object).map_err(told)? else { return Ok(()) };
        for place in far.on(&BTreeSet::from([target])).into_iter().filter(|place| !far.stale.contains(place))
        {
            let Some(bad) = self.bad_of(object, &far, place, target)? else { continue };
            let path = self.catalog.path_of(ino).unwrap_or_default();
            let told = match &bad {
                Bad::Object(why) => why.clone(),
                Bad::Blocks(blocks) => format!(
                    "{} blocks on target {target} are not what was written, the first at byte {} of object {}",
                    blocks.len(),
                    blocks[0].1,
                    blocks[0].0
                ),
            };
            let what = format!("{} (inode {ino}): {told}", String::from_utf8_lossy(&path));
            tracing::error!("{what}");
            match far.rule().is_redundant() {
                true => self.repair_file(ino, object, &far, (place, target), &bad, &what)?,
                false => self.purge_file(ino, version, object).map_err(|why| {
                    let open = self.is_open(ino);
                    let rest = match open {
                        true => {
                            "it comes from tape if it is there: scrub again when nobody has the file open"
                        }
                        false => "no other copy on disk, nor on tape",
                    };
                    Stop::Failed(format!("{what}; {rest}: {why}"))
                })?,
            }
            tracing::warn!(
                "inode {ino}: what was bad on target {target} is repaired, or comes from elsewhere"
            );
        }
        Ok(())
    }

    /// What is bad of a place of a file; None: nothing, or it does not lie there any more.
    fn bad_of(
        &self,
        object: ObjectId,
        far: &Far,
        place: (u16, u16),
        target: TargetId,
    ) -> Result<Option<Bad>, Stop> {
        match self.bad_blocks(far, place, target, self.settings().cluster.scrub_rate.0) {
            Ok(blocks) => Ok(Some(blocks).filter(|blocks| !blocks.is_empty()).map(Bad::Blocks)),
            Err(e) if matches!(e.class, ErrorClass::NotFound | ErrorClass::Corrupt) => {
                let now = self.catalog.far(object).map_err(|e| e.to_string())?;
                let there = now.is_some_and(|now| {
                    now.on(&BTreeSet::from([target])).contains(&place) && !now.stale.contains(&place)
                });
                Ok(there.then_some(Bad::Object(e.message)))
            }
            Err(e) if e.class == ErrorClass::Drive => Err(Stop::Failed(e.message)),
            Err(e) => Err(Stop::Later(e.message)),
        }
    }

    fn repair_file(
        &self,
        ino: Ino,
        object: ObjectId,
        far: &Far,
        at: ((u16, u16), TargetId),
        bad: &Bad,
        what: &str,
    ) -> Result<(), Stop> {
        if !far.on(&self.movers.down()).is_empty() {
            return Err(Stop::Later(format!("{what}; some of its targets are down")));
        }
        let claim = self.movers.claims.try_take(object);
        let _claim = claim.ok_or_else(|| Stop::Later("it is being moved or rebuilt".to_owned()))?;
        let _unlent = self.end_lending(object).map_err(|e| Stop::Later(format!("{what}; {e}")))?;
        let repaired = self.with_far(ino, object, |file| self.repair_far(file, far, at, bad));
        repaired.map(drop).map_err(|why| Stop::Failed(format!("{what}; not repaired from the others: {why}")))
    }

    /// Makes blocks of a column what the others say, durably.
    fn repair_far(
        &self,
        file: &FarFile,
        far: &Far,
        ((component, column), target): ((u16, u16), TargetId),
        bad: &Bad,
    ) -> Result<(), String> {
        let told = |e: stripe::StripeError| e.to_string();
        let number = usize::from(component);
        let own = far.layout.components[number].object(column);
        let bad = match bad {
            // All of it is made anew, by a rebuild.
            Bad::Object(why) => return file.striped().leave_out(number, column, why).map_err(told),
            Bad::Blocks(blocks) => blocks,
        };
        for (_, at) in bad.iter().filter(|(object, _)| *object == own) {
            file.striped().repair(number, column, *at..*at + BLOCK as u64).map_err(told)?;
        }
        if bad.iter().any(|(object, _)| *object != own) {
            // A journal is copied whole, by a rebuild of the column, which writes only what is not right.
            return file.striped().leave_out(number, column, "its journal is damaged").map_err(told);
        }
        file.striped().sync().map_err(told)?;
        bad.iter().try_for_each(|(object, at)| {
            self.compare_far(target, *object, *at, BLOCK as u64).map(drop).map_err(|e| e.message)
        })
    }

    /// Blocks of a column that are not what was written, looked for at a rate (bytes per second).
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`: one of its objects is missing, or has lost its sums. `Drive`: the disk does not give them.
    fn bad_blocks(
        &self,
        far: &Far,
        (component, column): (u16, u16),
        target: TargetId,
        rate: u64,
    ) -> Result<Vec<Block>, Failure> {
        let mut bad = Vec::new();
        let places = far.layout.components[usize::from(component)].places();
        for (object, _) in places.filter(|(_, place)| *place == column) {
            let length = self.answered(target, self.ask_far(target, Op::Stat, object, 0))?.object_length;
            for at in (0..length).step_by(MAX_IO) {
                let (begun, end) = (Moment::now(), length.min(at + STEP));
                let read = match self.compare_far(target, object, at, STEP) {
                    Err(e) if e.class == ErrorClass::Corrupt => {
                        for block in (at..end).step_by(BLOCK) {
                            match self.compare_far(target, object, block, BLOCK as u64) {
                                Err(e) if e.class == ErrorClass::Corrupt => bad.push((object, block)),
                                compared => drop(compared?),
                            }
                        }
                        end - at
                    }
                    // Movers of the release before say how long the object is.
                    compared => compared?.min(end - at),
                };
                self.keep_pace(rate, begun, read).map_err(|why| failure(ErrorClass::Retry, why))?;
            }
        }
        Ok(bad)
    }

    /// Has the mover of a target compare a range of an object with its sums; how many bytes it has read.
    fn compare_far(
        &self,
        target: TargetId,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<u64, Failure> {
        let ask = Ask { op: Op::Read, flags: COMPARED, object: object.0, offset, length };
        self.answered(target, self.submit_far(target, ask, Vec::new())).map(|reply| reply.object_length)
    }

    fn answered(
        &self,
        target: TargetId,
        ticket: Result<data::Ticket, Failure>,
    ) -> Result<data::Reply, Failure> {
        ticket?.wait().map_err(|e| {
            let class = if e.is(&Refusal::Disk(String::new())) { ErrorClass::Drive } else { e.class() };
            failure(class, format!("target {target}: {e}"))
        })
    }

    /// What scrubbing could not repair, by file.
    pub(crate) fn unrepaired(&self) -> catalog::Result<BTreeMap<Ino, String>> {
        let mut found = BTreeMap::new();
        let all = self.catalog.requests(true, usize::MAX)?;
        for request in all.iter().filter(|r| r.kind == RequestKind::Scrub && r.files_failed > 0) {
            let mut after = Ino(0);
            loop {
                let page = self.catalog.items(request.id, after, super::PAGE)?;
                let Some((last, ..)) = page.last() else { break };
                after = *last;
                for (ino, state, _) in page {
                    if let ItemState::Failed(why) = state {
                        found.entry(ino).or_insert(why);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Whether something of a file is not what was written, as its targets find now.
    pub(crate) fn is_bad(&self, far: &Far) -> Result<bool, Failure> {
        for (number, component) in (0..).zip(&far.layout.components) {
            for (column, target) in (0..).zip(&component.targets) {
                let place = (number, column);
                if !far.stale.contains(&place) && !self.bad_blocks(far, place, *target, 0)?.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_due_once_in_a_period_and_a_new_one_after_the_first() {
        let (day, targets) = (24 * 3600, [TargetId(1), TargetId(2)]);
        let mut begun = Begun::from([(TargetId(1), 0)]);
        assert_eq!(due(&mut begun, &targets, 2 * day - 1, 2), []);
        assert_eq!(due(&mut begun, &targets, 2 * day, 2), [TargetId(1)]);
        assert_eq!(due(&mut begun, &targets, 2 * day + 1, 2), []);
        assert_eq!(due(&mut begun, &targets, 4 * day - 1, 2), [TargetId(2)]);
        assert_eq!(due(&mut begun, &targets, day, 2), targets, "the clock was set back");
        assert_eq!(due(&mut begun, &targets, 100 * day, 0), [], "never");
    }

    #[test]
    fn when_scrubs_began_is_kept_and_what_a_request_is_about_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), Begun::new());
        let begun = Begun::from([(TargetId(3), 1_800_000_000), (TargetId(12), 5)]);
        write(dir.path(), &begun).unwrap();
        assert_eq!(read(dir.path()).unwrap(), begun);
        assert_eq!(target_of(&subject(TargetId(12))), Some(TargetId(12)));
        assert_eq!(target_of("drain target 12"), None);
    }
}
