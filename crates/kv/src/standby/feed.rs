//! The end that is followed: the last batches, how far the standby is, and whether changes may be acknowledged.

use super::{Batch, Lineage, MAX_STEP, Shared, State};
use crate::{KvError, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Batches that are kept for a standby that was away for a moment (bytes); one that needs older ones begins a new copy.
const WINDOW: usize = 64 << 20;
/// What a step has besides its batch, and room to spare (bytes).
const AROUND: usize = 1 << 10;

/// When a change counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When it is on stable storage here; the standby follows as fast as it can.
    Follow,
    /// When the standby has it on stable storage, too.
    Wait(Away),
}

/// What happens in [`Mode::Wait`] while the standby cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Nothing is acknowledged.
    Refuse,
    /// It goes on as with [`Mode::Follow`] until the standby has caught up.
    GoOn,
}

/// How to feed a standby.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// Which history the engine has.
    pub lineage: Lineage,
    /// When a change counts as durable.
    pub mode: Mode,
    /// How long changes wait for a standby that does not answer.
    pub patience: Duration,
    /// For how long after a message that it has answered the standby does not take over by itself.
    pub lease: Duration,
    /// The standby was promised once that nothing is acknowledged without it (matters for [`Away::Refuse`] only).
    pub armed: bool,
    /// Wall clock: milliseconds since 1970.
    pub clock_ms: fn() -> i64,
}

/// How far the standby is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The last batch committed here.
    pub last: u64,
    /// When it was (milliseconds since 1970); 0: before this start.
    pub last_ms: i64,
    /// What the standby has said last; None: nothing since this start.
    pub standby: Option<State>,
    /// How long ago it answered.
    pub heard: Option<Duration>,
    /// It has everything, as far as is known.
    pub in_step: bool,
    /// Changes are acknowledged although it may not have them.
    pub alone: bool,
    /// Nothing is acknowledged without it.
    pub armed: bool,
    /// Who has taken over.
    pub taken: Option<String>,
    /// The standby has this batch, which never was here.
    pub ahead: Option<u64>,
}

/// Where a running engine hands its batches to. Times are those of a monotonic clock.
#[derive(Debug)]
pub struct Feed {
    options: FeedOptions,
    state: Mutex<Now>,
    changed: Condvar,
}

#[derive(Debug)]
struct Now {
    window: VecDeque<Shared>,
    bytes: usize,
    last: u64,
    last_ms: i64,
    /// The highest number that the standby can have from here.
    handed: u64,
    standby: Option<State>,
    heard: Option<Instant>,
    lease_until: Option<Instant>,
    alone: bool,
    armed: bool,
    /// A wait was in vain since the standby answered last: further ones do not begin.
    gave_up: bool,
    taken: Option<String>,
    ahead: Option<u64>,
    stopped: bool,
}

impl Now {
    fn has(&self, number: u64) -> bool {
        let has = |s: &State| s.is_complete() && s.number >= number;
        self.ahead.is_none() && self.standby.as_ref().is_some_and(has)
    }

    /// Whether it is of this history; and notes if it has more of that than it can have from here.
    fn look(&mut self, state: &State, lineage: Lineage) -> bool {
        let of_this = state.lineage == lineage;
        if of_this && state.number > self.handed {
            self.ahead = Some(state.number);
        }
        of_this
    }

    fn keep(&mut self, batch: Batch) {
        if batch.bytes.len() > MAX_STEP - AROUND {
            (self.bytes, self.window) = (0, VecDeque::new()); // it cannot be sent: a standby without it begins a new copy
            return;
        }
        self.bytes += batch.bytes.len();
        self.window.push_back(Arc::new(batch));
        while self.bytes > WINDOW && self.window.len() > 1 {
            let gone = self.window.pop_front();
            self.bytes -= gone.map_or(0, |batch| batch.bytes.len());
        }
    }

    /// The first batch that is kept, or the one that comes next.
    fn first(&self) -> u64 {
        self.window.front().map_or(self.last + 1, |batch| batch.number)
    }

    fn holds_lease(&self) -> bool {
        self.lease_until.is_some_and(|until| Instant::now() < until)
    }
}

impl Feed {
    /// For an engine that is about to be opened with it.
    pub fn new(options: FeedOptions) -> Self {
        let armed = options.armed && options.mode == Mode::Wait(Away::Refuse);
        let state = Now {
            window: VecDeque::new(),
            bytes: 0,
            last: 0,
            last_ms: 0,
            handed: 0,
            standby: None,
            heard: None,
            lease_until: None,
            alone: !armed,
            armed,
            gave_up: false,
            taken: None,
            ahead: None,
            stopped: false,
        };
        Self { options, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The engine is open; its last transaction is `at`, and wrote `last`, if that is known.
    pub(crate) fn opened(&self, at: u64, last: Option<Batch>) {
        let mut now = self.state.lock();
        (now.last, now.handed) = (at, at);
        if let Some(batch) = last {
            now.last_ms = batch.time_ms();
            now.keep(batch);
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn time_ms(&self) -> i64 {
        (self.options.clock_ms)()
    }

    /// A batch is on stable storage here.
    pub(crate) fn committed(&self, batch: Batch) {
        let mut now = self.state.lock();
        (now.last, now.last_ms) = (batch.number, batch.time_ms());
        now.keep(batch);
        drop(now);
        self.changed.notify_all();
    }

    /// Which history the engine has.
    pub fn lineage(&self) -> Lineage {
        self.options.lineage
    }

    /// When a change counts as durable.
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// The last batch committed.
    pub fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// Whether all batches behind `number` are here, and `number` is not ahead.
    pub(super) fn reaches(&self, number: u64) -> bool {
        let now = self.state.lock();
        (now.first()..=now.last + 1).contains(&number.saturating_add(1))
    }

    /// The batch behind `number`, which the standby is given now.
    pub(super) fn after(&self, number: u64) -> Option<Shared> {
        let mut now = self.state.lock();
        let at = number.checked_add(1)?.checked_sub(now.first())?;
        let batch = now.window.get(usize::try_from(at).ok()?).cloned()?;
        now.handed = now.handed.max(batch.number);
        Some(batch)
    }

    /// Whether a standby with `state`, or the one before, has what is nowhere else: it keeps it, and is given nothing.
    pub(super) fn is_behind(&self, state: &State) -> bool {
        let mut now = self.state.lock();
        now.look(state, self.options.lineage);
        now.ahead.is_some()
    }

    /// Behind which batch a copy is begun now.
    pub(super) fn begin(&self) -> u64 {
        let mut now = self.state.lock();
        now.handed = now.last;
        now.last
    }

    /// Returns when there is a batch behind `number`, or after `longest`.
    pub fn wait_behind(&self, number: u64, longest: Duration) {
        let mut now = self.state.lock();
        if now.last <= number {
            self.changed.wait_for(&mut now, longest);
        }
    }

    /// The standby has answered a message that was sent at `sent` or later: it has `state` on stable storage, and does not take over by itself
    /// before the lease has run out. If it has more of this history than it can have from here, nothing is accepted any more.
    pub fn answered(&self, state: &State, sent: Instant) {
        let mut now = self.state.lock();
        let until = sent + self.options.lease;
        now.lease_until = Some(now.lease_until.map_or(until, |before| before.max(until)));
        now.heard = Some(Instant::now());
        let of_this = now.look(state, self.options.lineage);
        now.standby = Some(if of_this { state.clone() } else { State::default() });
        now.gave_up = false;
        let caught_up = now.has(now.last);
        match self.options.mode {
            Mode::Wait(Away::Refuse) => now.alone = !now.armed,
            Mode::Wait(Away::GoOn) => now.alone &= !caught_up,
            Mode::Follow => {}
        }
        drop(now);
        self.changed.notify_all();
    }

    /// From now on nothing is acknowledged without the standby, for [`Away::Refuse`]; returns the last batch of which a part may have been. Whoever
    /// calls this writes that down, so that it is known after a restart, and only then tells the standby.
    pub fn arm(&self) -> u64 {
        let mut now = self.state.lock();
        now.armed = self.options.mode == Mode::Wait(Away::Refuse);
        now.alone &= !now.armed;
        now.last
    }

    /// The standby is fed no more: nobody waits for it in vain.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Another node has taken over: this engine accepts and acknowledges nothing any more.
    pub fn taken_over(&self, by: &str) {
        self.state.lock().taken = Some(by.into());
        self.changed.notify_all();
    }

    /// How far the standby is.
    pub fn health(&self) -> Health {
        let now = self.state.lock();
        Health {
            last: now.last,
            last_ms: now.last_ms,
            standby: now.standby.clone(),
            heard: now.heard.map(|at| at.elapsed()),
            in_step: now.has(now.last),
            alone: now.alone,
            armed: now.armed,
            taken: now.taken.clone(),
            ahead: now.ahead,
        }
    }

    /// Returns when everything committed so far may count as durable, or why it does not.
    pub(crate) fn settle(&self, engine: &Path) -> Result<()> {
        let mut now = self.state.lock();
        let number = now.last;
        let end = Instant::now() + self.options.patience;
        loop {
            may_change(&now, engine)?;
            let waits = self.options.mode != Mode::Follow && !now.alone;
            let needs_lease = now.armed;
            if !waits || now.has(number) && (!needs_lease || now.holds_lease()) {
                return Ok(());
            }
            if now.stopped || self.changed.wait_until(&mut now, end).timed_out() {
                self.give_up(&mut now, engine)?;
            }
        }
    }

    /// Returns when changes may be accepted, or why they may not.
    pub(crate) fn admit(&self, engine: &Path) -> Result<()> {
        let mut now = self.state.lock();
        let end = Instant::now() + self.options.patience;
        loop {
            may_change(&now, engine)?;
            if !now.armed || now.holds_lease() {
                return Ok(());
            }
            if now.gave_up || now.stopped || self.changed.wait_until(&mut now, end).timed_out() {
                self.give_up(&mut now, engine)?;
            }
        }
    }

    fn give_up(&self, now: &mut MutexGuard<'_, Now>, engine: &Path) -> Result<()> {
        if self.options.mode == Mode::Wait(Away::GoOn) {
            now.alone = true;
            return Ok(());
        }
        now.gave_up = true;
        let detail = match now.heard {
            _ if now.stopped => "this node stops".into(),
            Some(at) => format!("it answered last {} s ago", at.elapsed().as_secs()),
            None => "it has not answered since this start".into(),
        };
        Err(KvError::Standby { path: engine.into(), detail })
    }
}

fn may_change(now: &Now, engine: &Path) -> Result<()> {
    match (&now.taken, now.ahead) {
        (Some(by), _) => Err(KvError::Taken { path: engine.into(), by: by.clone() }),
        (None, Some(there)) => Err(KvError::Older { path: engine.into(), here: now.last, there }),
        (None, None) => Ok(()),
    }
}
