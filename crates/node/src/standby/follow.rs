//! The standby: a process that has an engine and nothing else, until it takes over.

use super::ledger::{NAME, Record, Role};
use super::listen::{Listening, listen};
use super::{Ledger, kept};
use crate::Config;
use crate::engine::{EMBEDDED, class};
use crate::error::failure;
use crate::restore::put_aside;
use crate::startup::{has_catalogue, io, patiently, prepare};
use kv::standby::{FollowError, Follower, MAX_STEP, State, Step};
use kv::{KvError, LmdbOptions};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId, NodeId};
use wire::{Call, Failure, KeptFile, Reply, StandbyAnswer, StandbyStep, StandbyView};

/// Lets the answer to who ordered the end get there.
const PARTING: Duration = Duration::from_millis(300);

/// After so long between two looks this process has stood still.
const STOOD_STILL: Duration = Duration::from_secs(2);

/// How following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The process was told to stop.
    Stopped,
    /// It serves from now on: start the node.
    TookOver,
}

pub(super) struct Standby {
    pub(super) config: Config,
    ledger: Ledger,
    state: Mutex<Now>,
    changed: Condvar,
    /// Held by who writes down where the namespace is.
    pub(super) keeping_places: Mutex<()>,
}

struct Now {
    /// None: it takes over, or the process ends.
    follower: Option<Follower>,
    parts: Vec<u8>,
    /// When the other node was answered last; at first when this process began, since an earlier answer may be as late as that.
    answered: Instant,
    heard: bool,
    last: u64,
    last_ms: i64,
    ended: Option<Result<Followed, Failure>>,
}

/// See [`super::is_standby`].
pub(super) fn is_standby(config: &Config) -> Result<bool, Failure> {
    let state = &config.state_dir;
    let (ledger, of) = (Ledger::open(state)?, config.standby.of);
    let record = ledger.exists().then(|| ledger.get());
    match record {
        Some(record) if record.role != Role::Serves => Ok(true),
        Some(record) if record.replaced_by.is_some() => Ok(of.is_some()),
        Some(record) if of.is_some() && record.of != of => Err(serves_already(config)),
        Some(_) => Ok(false),
        None if of.is_none() => Ok(false),
        None if !state.join(EMBEDDED).exists() && !state.join("format").exists() => Ok(true),
        None => {
            let message = format!(
                "standby.of: {} holds the catalogue of a node of its own; a standby begins with an empty state directory (only `thermo cluster join` \
                 comes before)",
                state.display()
            );
            Err(failure(ErrorClass::Invalid, message))
        }
    }
}

fn serves_already(config: &Config) -> Failure {
    let message = format!(
        "standby.of: this node serves a catalogue, and does not know that another node has taken over from it ({}). If one has, start this one \
         once as it was ([standby] with `to`, without `of`) while that one runs: it then hears of it, and becomes its standby with `of`. If its catalogue is \
         to be given up although nobody has taken over, give it an empty state directory and let it join again",
        config.state_dir.join(NAME).display()
    );
    failure(ErrorClass::Invalid, message)
}

/// Follows another node until it is stopped or takes over.
///
/// # Errors
/// The state directory, the engine or the addresses cannot be used.
pub fn follow(config: &Config, stopped: &AtomicBool) -> Result<Followed, Failure> {
    config.validate().map_err(|e| failure(ErrorClass::Invalid, format!("configuration: {e}")))?;
    let state = &config.state_dir;
    let (lock, _) = patiently(|| prepare(state))?;
    let ledger = Ledger::open(state)?;
    let engine = state.join(EMBEDDED);
    if ledger.has_taken_over() {
        finish(config)?;
        kept::install(&config.state_dir)?;
        return Ok(Followed::TookOver);
    }
    begin(&ledger, config)?;
    let follower = Follower::open(&engine, LmdbOptions::default()).map_err(fail)?;
    let now = Now {
        follower: Some(follower),
        parts: Vec::new(),
        answered: Instant::now(),
        heard: false,
        last: 0,
        last_ms: 0,
        ended: None,
    };
    let (now, changed) = (Mutex::new(now), Condvar::new());
    let standby = Arc::new(Standby {
        config: config.clone(),
        ledger,
        state: now,
        changed,
        keeping_places: Mutex::default(),
    });
    let listening: Listening = listen(&standby)?;
    tracing::info!("this node is a standby, and follows");
    let mut followed = standby.wait(stopped);
    std::thread::sleep(PARTING);
    drop(listening);
    if followed == Ok(Followed::TookOver) {
        followed = kept::install(state).map(|()| Followed::TookOver);
    }
    let _ = std::fs::remove_file(config.socket_path()); // the node makes it anew
    standby.state.lock().follower = None;
    drop(lock);
    followed
}

/// Writes down whom this node follows; a catalogue from before is kept beside.
fn begin(ledger: &Ledger, config: &Config) -> Result<(), Failure> {
    let (state, engine) = (&config.state_dir, config.state_dir.join(EMBEDDED));
    let (record, of) = (ledger.get(), config.standby.of);
    if record.role == Role::Serves && record.replaced_by.is_some() && engine.exists() {
        let kept = put_aside(state, &engine, crate::now().secs).map_err(|e| io(state, &e))?;
        tracing::info!("the catalogue from before is kept in {}", kept.display());
    }
    if record.role == Role::Follows && record.of == of {
        return Ok(());
    }
    // What another node has promised, or brought, does not concern this one.
    kept::forget(state)?;
    ledger.change(|r| *r = Record { role: Role::Follows, epoch: r.epoch, of, ..Record::default() })
}

fn fail(e: KvError) -> Failure {
    failure(class(&e), e.to_string())
}

/// Makes the engine an ordinary one, if a crash has interrupted that.
fn finish(config: &Config) -> Result<(), Failure> {
    has_catalogue(&config.state_dir)?;
    let engine = config.state_dir.join(EMBEDDED);
    match Follower::open(&engine, LmdbOptions::default()) {
        Ok(follower) => follower.promote(&engine).map_err(fail),
        Err(KvError::Corrupt { .. }) => Ok(()), // it is one already; if it is damaged, its opening says so
        Err(e) => Err(fail(e)),
    }
}

/// Whether everything is there that the other node may have acknowledged.
fn has_everything(state: &State, record: &Record) -> bool {
    let has = |lineage: [u8; 16], from: u64| state.lineage == lineage && state.number >= from;
    record.promise.as_ref().is_some_and(|promise| state.is_complete() && has(promise.lineage, promise.from))
}

impl Standby {
    fn wait(&self, stopped: &AtomicBool) -> Result<Followed, Failure> {
        let mut looked = Instant::now();
        loop {
            let mut now = self.state.lock();
            if looked.elapsed() > STOOD_STILL {
                // This process stood still, and may have been spoken to meanwhile.
                now.answered = Instant::now();
            }
            looked = Instant::now();
            if let Some(ended) = &now.ended {
                return ended.clone();
            }
            self.changed.wait_for(&mut now, Duration::from_millis(100));
            if stopped.load(Ordering::Acquire) {
                now.ended.get_or_insert(Ok(Followed::Stopped));
            }
            let due = now.ended.is_none() && self.is_due(&now);
            drop(now);
            if due && let Err(e) = self.take_over(false) {
                tracing::error!("{} is silent, and this standby does not take over: {e}", self.other());
                // It is not tried again before that one was heard.
                self.state.lock().heard = false;
            }
        }
    }

    /// Whether it is to take over by itself: the other node was heard, and is silent for as long as the settings say and as is safe, and acknowledges nothing without
    /// this one.
    fn is_due(&self, now: &Now) -> bool {
        let Some(after) = self.config.standby.take_over_after_s.filter(|_| now.heard) else { return false };
        let record = self.ledger.get();
        let safe = self.safe_after(&record).max(Duration::from_secs(after.into()));
        let complete = now.follower.as_ref().is_some_and(|f| has_everything(f.state(), &record));
        complete && now.answered.elapsed() >= safe
    }

    pub(super) fn goes_on(&self) -> bool {
        self.state.lock().ended.is_none()
    }

    fn end(&self, now: &mut Now, how: Result<Followed, Failure>) {
        now.ended = Some(how);
        self.changed.notify_all();
    }

    /// One part of a step.
    pub(super) fn step(&self, order: &StandbyStep) -> Result<StandbyAnswer, Failure> {
        let now = &mut *self.state.lock();
        let record = self.ledger.get();
        if record.role != Role::Follows {
            return Ok(StandbyAnswer { epoch: record.epoch, serves: true, ..StandbyAnswer::default() });
        }
        let Some(follower) = now.follower.as_mut().filter(|_| now.ended.is_none()) else {
            return Err(failure(ErrorClass::Busy, "this standby stops"));
        };
        let mut epoch = record.epoch;
        if order.epoch >= epoch {
            epoch = order.epoch;
            let noted = self.ledger.change(|r| {
                (r.epoch, r.lease_ms, r.promise) = (epoch, order.lease_ms, order.promise.clone());
            });
            // What is wrong with this disk must not sound like a no to who is followed: he would give way.
            noted.map_err(|e| Failure { class: ErrorClass::Retry, ..e })?;
            (now.last, now.last_ms) = (order.last, order.last_ms);
            take_part(&mut now.parts, follower, order)?;
            (now.answered, now.heard) = (Instant::now(), true);
        }
        let State { lineage, number, time_ms, copied } = follower.state().clone();
        Ok(StandbyAnswer { epoch, serves: false, lineage, number, time_ms, copied })
    }

    /// Files that it needs when it takes over.
    pub(super) fn keep(&self, files: &[KeptFile]) -> Result<(), Failure> {
        let mut now = self.state.lock();
        if self.ledger.get().role != Role::Follows || now.ended.is_some() {
            return Err(failure(ErrorClass::Busy, "this standby stops"));
        }
        let kept = kept::keep(&self.config.state_dir, files);
        now.answered = Instant::now(); // it takes its time
        kept
    }

    /// How long it is silent before it may take over, from its last answer on: clocks may run differently.
    fn safe_after(&self, record: &Record) -> Duration {
        let lease = match record.lease_ms {
            0 => self.config.standby.lease(),
            ms => Duration::from_millis(ms.into()),
        };
        lease + lease / 2
    }

    fn take_over(&self, force: bool) -> Result<(), Failure> {
        let now = &mut *self.state.lock();
        let record = self.ledger.get();
        if let Some(ended) = &now.ended {
            return match ended {
                Ok(Followed::TookOver) => Ok(()),
                Ok(Followed::Stopped) => Err(failure(ErrorClass::Busy, "this standby stops")),
                Err(e) => Err(e.clone()),
            };
        }
        let Some(follower) = now.follower.as_ref() else {
            return Err(failure(ErrorClass::Busy, "this standby stops"));
        };
        self.may_take_over(now, follower.state(), &record, force)?;
        let behind = !has_everything(follower.state(), &record);
        let taking = Record {
            role: Role::Taking,
            epoch: record.epoch + 1,
            of: record.of,
            behind,
            ..Record::default()
        };
        if let Err(e) = self.ledger.change(|r| *r = taking) {
            if !self.ledger.is_certain() {
                // Whether the next start takes over is not known: until then nothing is to be answered.
                now.follower = None;
                self.end(now, Err(e.clone()));
            }
            return Err(e);
        }
        let promoted =
            now.follower.take().map(|follower| follower.promote(&self.config.state_dir.join(EMBEDDED)));
        if let Some(Err(e)) = promoted {
            let message = format!(
                "this node takes over, and could not begin: {e}. Mend that, and start it (`thermo up`): it goes on there"
            );
            let e = failure(class(&e), message);
            self.end(now, Err(e.clone()));
            return Err(e);
        }
        tracing::warn!("this node takes over from {}, epoch {}", self.other(), record.epoch + 1);
        if behind {
            tracing::warn!(
                "what the other node acknowledged last may be missing: volumes are looked at before they are written"
            );
        }
        self.end(now, Ok(Followed::TookOver));
        Ok(())
    }

    fn may_take_over(&self, now: &Now, state: &State, record: &Record, force: bool) -> Result<(), Failure> {
        let (quiet, of) = (now.answered.elapsed(), self.other());
        if !state.is_complete() {
            let message = format!(
                "this standby has no complete copy of the catalogue of {of} yet, and cannot take over; nothing was changed"
            );
            return Err(failure(ErrorClass::Busy, message));
        }
        let safe_after = self.safe_after(record);
        if quiet < safe_after && !force {
            let message = format!(
                "{of} may be alive: it was answered {} s ago{}, and counts as gone after {} s. Stop it, or wait; --force takes over at once, and what it \
                 acknowledges meanwhile may be lost. Nothing was changed",
                quiet.as_secs(),
                if now.heard { "" } else { " or later (this standby was started then)" },
                safe_after.as_secs()
            );
            return Err(failure(ErrorClass::Busy, message));
        }
        if !has_everything(state, record) && !force {
            let message = format!(
                "{of} acknowledges changes without this standby, so its last ones may be missing here: of its batches {} is the last here and {} the \
                 last that it told of. Nothing was changed. If it is lost, take over with --force: what is missing is lost then, files changed \
                 since are as they were, and volumes that it may have written are not written before they were looked at",
                state.number, now.last
            );
            return Err(failure(ErrorClass::Busy, message));
        }
        Ok(())
    }

    fn other(&self) -> String {
        self.config.standby.of.map_or("its node".into(), |n| MemberId::Node(NodeId(n)).to_string())
    }

    fn view(&self) -> StandbyView {
        let (now, record) = (self.state.lock(), self.ledger.get());
        let has = now.follower.as_ref().map(|f| f.state().clone()).unwrap_or_default();
        let behind = if has.number >= now.last { 0 } else { now.last_ms.saturating_sub(has.time_ms) };
        StandbyView {
            standby: true,
            other: self.other(),
            epoch: record.epoch,
            complete: has.is_complete(),
            last: now.last,
            number: has.number,
            behind_ms: u64::try_from(behind).unwrap_or(0),
            heard_ms: now.heard.then(|| now.answered.elapsed().as_millis() as u64),
            promised: has_everything(&has, &record),
            replaced_by: None,
        }
    }

    /// What people of this host ask.
    pub(super) fn call(&self, call: Call, administrator: bool) -> Result<Reply, Failure> {
        match call {
            Call::Standby => Ok(Reply::Standby(Box::new(self.view()))),
            Call::StandbyTakeOver { .. } | Call::Down { .. } if !administrator => {
                Err(failure(ErrorClass::Denied, "that is for the administrator, and for who runs this node"))
            }
            Call::StandbyTakeOver { force } => self.take_over(force).map(|()| Reply::Done),
            Call::Down { .. } => {
                let now = &mut *self.state.lock();
                if now.ended.is_none() {
                    self.end(now, Ok(Followed::Stopped));
                }
                Ok(Reply::Done)
            }
            _ => {
                let message = format!(
                    "this node is the standby of {}: it has no files of its own; ask that node, or see `thermo standby status`",
                    self.other()
                );
                Err(failure(ErrorClass::Busy, message))
            }
        }
    }
}

fn take_part(parts: &mut Vec<u8>, follower: &mut Follower, order: &StandbyStep) -> Result<(), Failure> {
    if order.offset == 0 {
        parts.clear();
    }
    if order.offset as usize != parts.len() || order.total as usize > MAX_STEP {
        return Err(failure(ErrorClass::Invalid, "a part of a step for the standby is not the next one"));
    }
    parts.extend(&order.bytes);
    if parts.len() < order.total as usize {
        return Ok(());
    }
    let step = Step::decode(parts);
    parts.clear();
    let step = step.ok_or_else(|| failure(ErrorClass::Corrupt, "a step for the standby is damaged"))?;
    if let Step::Begin { number, .. } = &step {
        tracing::info!("a new copy of the catalogue begins, behind batch {number}");
    }
    match follower.take(&step) {
        Ok(()) => Ok(()),
        Err(FollowError::Kv(e)) => Err(fail(e)),
        // Its state, which is the answer, says what it needs.
        Err(e) => {
            tracing::warn!("{e}");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::StandbyPromise;

    #[test]
    fn a_disk_where_nothing_can_be_written_down_is_no_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { state_dir: dir.path().into(), ..Config::default() };
        let ledger = Ledger::open(dir.path()).unwrap();
        ledger.change(|r| r.role = Role::Follows).unwrap();
        let now = Now {
            follower: Some(Follower::open(&dir.path().join(EMBEDDED), LmdbOptions::default()).unwrap()),
            parts: Vec::new(),
            answered: Instant::now(),
            heard: false,
            last: 0,
            last_ms: 0,
            ended: None,
        };
        let standby = Standby {
            config,
            ledger,
            state: Mutex::new(now),
            changed: Condvar::new(),
            keeping_places: Mutex::default(),
        };
        let bytes = Step::Idle.encode();
        let total = bytes.len() as u32;
        let order = StandbyStep {
            epoch: 1,
            lease_ms: 0,
            promise: None,
            last: 0,
            last_ms: 0,
            offset: 0,
            total,
            bytes,
        };
        let in_the_way = dir.path().join("standby.new");
        std::fs::create_dir(&in_the_way).unwrap();
        assert_eq!(standby.step(&order).unwrap_err().class, ErrorClass::Retry);
        assert!(!standby.state.lock().heard && standby.ledger.get().epoch == 0);
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(standby.step(&order).unwrap().epoch, 1);
    }

    #[test]
    fn a_promise_counts_for_who_has_all_from_before_it_and_of_the_same_history_only() {
        let record = |promise| Record { promise, ..Record::default() };
        let promise = |history, from| record(Some(StandbyPromise { lineage: [history; 16], from }));
        let whole = State { lineage: [1; 16], number: 7, time_ms: 0, copied: None };
        assert!(has_everything(&whole, &promise(1, 7)));
        assert!(!has_everything(&whole, &promise(1, 8)));
        assert!(!has_everything(&whole, &promise(2, 3)));
        assert!(!has_everything(&whole, &record(None)));
        let part = State { copied: Some(vec![1]), ..whole };
        assert!(!has_everything(&part, &promise(1, 3)));
    }
}
