//! Another layout for files that are there: all bytes are copied to new objects while the file is used, and lie there from the transaction on
//! that says so. Until then the new objects belong to nobody, from then on the old ones do: whatever a crash leaves is on record to be removed.

use super::claims::Claim;
use super::mend::{MENDERS, Whose};
use super::requested::{AtOnce, Stop};
use crate::Node;
use crate::clock::Moment;
use crate::files::{Backing, Copy, FarFile, Unfinished};
use catalog::Far;
use std::sync::Arc;
use std::time::Duration;
use stripe::StripeError;
use types::*;

/// Between two looks for something to do.
const AGAIN: Duration = Duration::from_secs(1);
/// What changes while a file is copied is copied once more, until it is no more than this (bytes) or gets no less: then writers wait for the rest.
const CLOSE: u64 = 16 << 20;
/// Files take room twice while they are copied: of large ones only one does at a time.
const AT_ONCE: AtOnce = AtOnce { files: MENDERS, bytes: 256 << 20 };
const SUBJECT: &str = "protect ";
const THEN: &str = "--then";
const POOL: &str = "--pool";
const DOWN: &str = "targets are down, and too few others have room for it";

/// What a request is about: the options of `thermo protect`.
pub(crate) fn subject(rule: &LayoutRule, what: &str) -> String {
    let LayoutRule { unit_bytes, stripes, copies, parity, then, pool } = rule;
    let more =
        |Widening { from, stripes, unit_bytes }: &Widening| format!("{THEN} {from}:{stripes}:{unit_bytes} ");
    let then: String = then.iter().map(more).collect();
    let pool = pool.as_ref().map_or_else(String::new, |pool| format!("{POOL} {pool} "));
    format!(
        "{SUBJECT}--stripes {stripes} --copies {copies} --parity {parity} --stripe-size {unit_bytes} {pool}{then}{what}"
    )
}

fn rule_of(subject: &str) -> Option<LayoutRule> {
    let mut words = subject.strip_prefix(SUBJECT)?.split(' ');
    let mut number = |option: &str| {
        words.next().filter(|word| *word == option)?;
        words.next()?.parse::<u32>().ok()
    };
    let (stripes, copies) = (number("--stripes")?, number("--copies")?);
    let (parity, unit_bytes) = (number("--parity")?, number("--stripe-size")?);
    // Paths begin otherwise.
    let (mut then, mut next) = (Vec::new(), words.next());
    let mut pool = None;
    if next == Some(POOL) {
        (pool, next) = (Some(words.next()?.to_owned()), words.next());
    }
    while next == Some(THEN) {
        then.push(widening(words.next()?)?);
        next = words.next();
    }
    Some(LayoutRule {
        unit_bytes,
        stripes: stripes.try_into().ok()?,
        copies: copies.try_into().ok()?,
        parity: parity.try_into().ok()?,
        then,
        pool,
    })
}

fn widening(text: &str) -> Option<Widening> {
    let mut numbers = text.split(':').map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (from, stripes, unit_bytes) = (next()?, next()?, next()?);
    Some(Widening { from, stripes: stripes.try_into().ok()?, unit_bytes: unit_bytes.try_into().ok()? })
}

impl From<Unfinished> for Stop {
    fn from(why: Unfinished) -> Self {
        match why {
            Unfinished::Targets(e) => e.into(),
            Unfinished::Objects(e) => Self::Later(format!("its new objects are not made: {e}")),
            Unfinished::Later(why) => Self::Later(why),
            Unfinished::Failed(why) => Self::Failed(why),
        }
    }
}

impl Stop {
    /// What becomes of a file that is where it was, while targets are `down` or not; `no_room` says for people which others have none.
    fn after(why: Unfinished, down: bool, no_room: impl FnOnce() -> String) -> Self {
        match why {
            // One that is down may come back.
            Unfinished::Objects(FsError::NoSpace) if down => Self::Later(DOWN.to_owned()),
            Unfinished::Objects(FsError::NoSpace) => Self::NoRoom(no_room()),
            why => why.into(),
        }
    }
}

impl From<StripeError> for Stop {
    fn from(e: StripeError) -> Self {
        match e.class() {
            ErrorClass::NoSpace => Self::NoRoom(format!("{e}; it stays as it is")),
            ErrorClass::Corrupt => Self::Failed(format!(
                "{e}; it stays as it is: `thermo target scrub` brings what is bad from copies, parity or tape"
            )),
            _ => Self::Later(e.to_string()),
        }
    }
}

impl Node {
    /// Changes layouts that requests want otherwise until the node stops.
    pub(crate) fn protect_far(&self) {
        let mut told = String::new();
        while !self.stops_within(AGAIN) {
            let work = |request: &Request, ino| match rule_of(&request.subject) {
                Some(rule) => self.protect_file(request.id, ino, &rule),
                None => Err(Stop::Failed("it names no layout".to_owned())),
            };
            let done = self.each_requested(&[RequestKind::Protect], AT_ONCE, work, |_| Ok(()));
            let problem = done.map_or_else(|e| e.to_string(), |()| String::new());
            if !problem.is_empty() && problem != told {
                tracing::error!("changing layouts: {problem}; tried again");
            }
            told = problem;
        }
    }

    /// Gives a file a layout.
    fn protect_file(&self, request: RequestId, ino: Ino, rule: &LayoutRule) -> Result<(), Stop> {
        let told = |e: catalog::CatalogError| e.to_string();
        let inode = match self.catalog.inode(ino) {
            Err(e) if e.fs() == FsError::NotFound => return Ok(()),
            inode => inode.map_err(told)?,
        };
        let Some(file) = inode.file else { return Ok(()) };
        let Some(object) = file.object else { return self.protect_return(ino, rule) };
        if !file.far {
            return self.leave_tier(request, ino, object, rule);
        }
        let claim = self.movers.claims.try_take(object);
        let claim = claim.ok_or_else(|| "something of it is being moved or rebuilt".to_owned())?;
        let far = self.catalog.far(object).map_err(told)?.ok_or("it has left its targets".to_owned())?;
        if far.rule() == *rule && self.lies_in_pool(&far).map_err(told)? {
            return Ok(());
        }
        let copy = |file: &Arc<FarFile>| Ok(self.copy_far(request, file, object, rule, &claim));
        let copied = self.with_far(ino, object, copy)?;
        copied.unwrap_or_else(|| Err(Stop::Later("it has other content by now".to_owned())))
    }

    /// What is on tape only gets it when it comes back.
    fn protect_return(&self, ino: Ino, rule: &LayoutRule) -> Result<(), Stop> {
        self.open.with(ino, |_, _| match self.staging.get(ino) {
            Some(_) => Err(Stop::Later("it is coming back from tape".to_owned())),
            None => self.catalog.set_return_rule(ino, rule.clone()).map_err(|e| Stop::Later(e.to_string())),
        })
    }

    fn copy_far(
        &self,
        request: RequestId,
        file: &FarFile,
        object: ObjectId,
        rule: &LayoutRule,
        claim: &Claim<'_>,
    ) -> Result<(), Stop> {
        self.with_new_objects(file.ino(), rule, |to, new| {
            claim.copies();
            let copied = self.copy_far_claimed(request, file, to, (object, new), claim);
            claim.over();
            copied
        })
    }

    /// Makes new objects for a file, which are removed unless they belong to it after `copy`.
    pub(super) fn with_new_objects(
        &self,
        ino: Ino,
        rule: &LayoutRule,
        copy: impl FnOnce(Arc<FarFile>, ObjectId) -> Result<(), Unfinished>,
    ) -> Result<(), Stop> {
        let pool = rule.pool.as_deref();
        let stop = |why| Stop::after(why, self.is_any_down(pool), || self.no_room_for_it(pool));
        let (new, far) = self.make_far(rule).map_err(|e| stop(Unfinished::Objects(e)))?;
        let file = self.far_file_at(ino, new, far, ObjectStamp::default());
        // Later parts of its layout are made while it is copied.
        let copied = file.map_err(Unfinished::Objects).and_then(|to| copy(to, new));
        // It belongs to the file now, or is to be removed.
        self.movers.settle(new);
        self.movers.wake();
        if copied.is_ok() && rule.parity > 0 {
            self.movers.note_unfolded(ino);
        }
        copied.map_err(stop)
    }

    /// Whether a target that files may lie on is down: of a pool, if they are to lie in one.
    fn is_any_down(&self, pool: Option<&str>) -> bool {
        let down = self.movers.down();
        let here = |view: &TargetView| down.contains(&view.target.id) && view.is_in(pool);
        !down.is_empty() && self.target_views().map_or(true, |views| views.iter().any(here))
    }

    /// Rights to write that others were given end before the first byte is copied, rights to read before the catalogue says that the file lies
    /// elsewhere.
    fn copy_far_claimed(
        &self,
        request: RequestId,
        file: &FarFile,
        to: Arc<FarFile>,
        (object, new): (ObjectId, ObjectId),
        claim: &Claim<'_>,
    ) -> Result<(), Unfinished> {
        let ino = file.ino();
        let fence = || self.fence_far(object).map_err(|e| e.to_string());
        fence()?;
        let copy = Copy::begin(file, to)?;
        let mut at = 0;
        loop {
            let length = copy.length()?;
            if at >= length {
                break;
            }
            let whose = Whose { claim: Some(claim), request: Some(request) };
            at = self.at_pace(whose, stripe::STEP.min(length - at), || {
                let next = copy.step(at, length)?;
                Ok::<_, Unfinished>((next, next - at))
            })?;
            self.movers.note_copied(request, ino, at);
            if claim.is_wanted() {
                return Err(Unfinished::Later("a column of it moves first".to_owned()));
            }
            self.is_wanted_still(request)?;
        }
        // The longer this waits, the more has changed again: it keeps the rate by itself.
        let (rate, begun, mut bytes) = (self.settings().cluster.move_rate.0, Moment::now(), 0);
        let mut before = u64::MAX;
        while copy.behind() > CLOSE && copy.behind() < before {
            before = copy.behind();
            bytes += copy.catch_up()?;
            self.keep_pace(rate, begun, bytes)?;
        }
        let admit = || {
            claim.ends();
            fence()?;
            self.open.with(ino, |_, state| {
                let now = state.backing.as_mut().filter(|backing| backing.object == object);
                let backing: &mut Backing = now.ok_or("it has other content by now")?;
                self.lies_there(ino, new, self.catalog.replace_object(ino, object, new))?;
                backing.object = new;
                Ok(())
            })
        };
        copy.finish(admit)
    }

    pub(super) fn is_wanted_still(&self, request: RequestId) -> Result<(), Unfinished> {
        match self.is_open_request(request) {
            true => Ok(()),
            false => Err(Unfinished::Failed("the request was withdrawn".to_owned())),
        }
    }

    /// What has become of a change by which a file was to lie in another object on targets.
    pub(crate) fn lies_there(
        &self,
        ino: Ino,
        object: ObjectId,
        recorded: catalog::Result<Far>,
    ) -> Result<(), String> {
        self.settled(object, recorded, |_| self.lies_in(ino, object))
    }

    /// Whether a file has this object by now; asked until the engine answers, or the node stops.
    fn lies_in(&self, ino: Ino, object: ObjectId) -> bool {
        loop {
            match self.catalog.inode(ino) {
                Err(catalog::CatalogError::Kv(_)) if !self.stops_within(AGAIN) => {}
                inode => {
                    return inode
                        .is_ok_and(|inode| inode.file.is_some_and(|file| file.object == Some(object)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_without_room_waits_while_targets_are_down_and_fails_when_all_are_there() {
        let full = || Unfinished::Objects(FsError::NoSpace);
        let no_room = || "no room".to_owned();
        assert_eq!(Stop::after(full(), true, no_room), Stop::Later(DOWN.to_owned()));
        assert_eq!(Stop::after(full(), false, no_room), Stop::NoRoom(no_room()));
        let withdrawn = Unfinished::Failed("withdrawn".to_owned());
        assert_eq!(Stop::after(withdrawn, true, no_room), Stop::Failed("withdrawn".to_owned()));
    }

    #[test]
    fn a_request_says_which_layout_it_wants() {
        let rule =
            LayoutRule { unit_bytes: 1 << 19, stripes: 4, copies: 1, parity: 2, then: vec![], pool: None };
        let then = [(4096, 4, 1 << 20), (1 << 40, 16, 4 << 20)];
        let then = then.map(|(from, stripes, unit_bytes)| Widening { from, stripes, unit_bytes });
        let grows = LayoutRule { then: then.to_vec(), ..rule.clone() };
        let fast = |rule: &LayoutRule| LayoutRule { pool: Some("fast".to_owned()), ..rule.clone() };
        for what in ["/a", "/--stripes 3 and 2 more", "/--then 1:2:3", "/--pool slow", ""] {
            for rule in [&rule, &grows, &fast(&rule), &fast(&grows)] {
                assert_eq!(rule_of(&subject(rule, what)).as_ref(), Some(rule));
            }
        }
        let wrong = "protect --stripes 1 --copies 1 --parity 0 --stripe-size 4096 --then 4096:2 /a";
        assert_eq!(rule_of(wrong), None);
        let mirror =
            LayoutRule { unit_bytes: 1 << 20, stripes: 1, copies: 3, parity: 0, then: vec![], pool: None };
        assert_eq!(rule_of(&subject(&mirror, "/a")), Some(mirror));
        assert_eq!(rule_of("drain target 3"), None);
        assert_eq!(rule_of("protect --stripes 1 --copies 300 --parity 0 --stripe-size 4096 /a"), None);
    }
}
