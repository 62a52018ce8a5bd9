//! Drives that leave and come back: taken out of use by an operator, tried again after they failed.
//!
//! A drive that failed is tried again by itself, each time after a longer pause: it must say who it is, answer, and give
//! up the cartridge that is in it. Then it is in use again; what failed may have been the cartridge, a cable or a power
//! cut. Downside: a drive that fails only under load comes back again and again; an operator takes it out of use.

use super::Event;
use super::library::Workers;
use super::media::Refusals;
use super::state::{DriveSlot, State};
use super::worker::Job;
use crate::Node;
use crate::clock::Moment;
use crossbeam_channel::Sender;
use sched::{DriveState, Work};
use std::time::Duration;
use tape::{Fault, TapeError};
use types::*;

/// Longest pause before a failed drive is tried again.
const LONGEST: Duration = Duration::from_secs(3600);
/// The same for one that does not answer at all: its host may be off, or a cable.
const LONGEST_SILENT: Duration = Duration::from_secs(300);

/// How the trial of a drive ended.
pub struct Revived {
    /// Drive.
    pub drive: DriveNo,
    /// Cartridge move that happened.
    pub moved: Option<(u16, u16)>,
    /// Product, serial number and media that it takes, or why it is still not in order.
    pub result: Result<(String, String, Reach), TapeError>,
}

/// What an operator wants of a drive.
pub struct DriveAsk {
    /// Drive.
    pub drive: DriveNo,
    /// Out of use; None: into it.
    pub out: Option<TakenOut>,
    /// Take it from another host that has reserved it.
    pub preempt: bool,
    /// Gets the outcome, in words if it did not work.
    pub answer: Sender<Result<(), String>>,
}

/// A drive's way back into use.
#[derive(Default)]
pub struct Comeback {
    /// Failures since it last did a job well.
    strikes: u32,
    /// It did not answer when it was tried last.
    silent: bool,
    /// When it failed last; None: it is not tried by itself.
    since: Option<Moment>,
    /// It is being tried.
    pub trying: bool,
    /// An operator wants it out of use.
    pub out: Option<TakenOut>,
    /// The operators want it taken from another host.
    preempt: bool,
    /// Operators who wait for it.
    asked: Vec<Sender<Result<(), String>>>,
}

impl Comeback {
    /// The drive failed.
    pub fn failed(&mut self) {
        self.strikes += 1;
        self.since = Some(Moment::now());
    }

    /// It was tried, and is not in order yet. `alone`: no drive of its library works. Then it is not known whether this one is to blame, and it is not tried more
    /// rarely for that when another one works.
    fn still_fails(&mut self, fault: Fault, alone: bool) {
        self.silent = fault == Fault::NoAnswer;
        match alone {
            true => self.since = Some(Moment::now()),
            false => self.failed(),
        }
    }

    /// Time from its last failure until it is tried again: `first`, twice as long each further time. While no other
    /// drive of its library works it is never longer than `first`, since everybody waits for it.
    fn pause(&self, first: Duration, alone: bool) -> Duration {
        let times = if alone { 1 } else { 1 << self.strikes.saturating_sub(1).min(16) };
        let longest = if self.silent { LONGEST_SILENT } else { LONGEST };
        first.saturating_mul(times).min(longest.max(first))
    }

    /// It did a job well.
    pub fn worked(&mut self) {
        (self.strikes, self.since, self.silent) = (0, None, false);
    }

    /// Its thread has ended: it cannot come back before the node restarts.
    pub fn gone(&mut self, why: &str) {
        (self.since, self.trying) = (None, false);
        self.answer(&Err(why.to_owned()));
    }

    /// `first` zero: never by itself.
    fn is_due(&self, first: Duration, alone: bool) -> bool {
        let elapsed = self.since.is_some_and(|since| since.elapsed() >= self.pause(first, alone));
        !self.trying && (!self.asked.is_empty() || (elapsed && self.out.is_none() && !first.is_zero()))
    }

    fn answer(&mut self, outcome: &Result<(), String>) {
        for one in self.asked.drain(..) {
            // Whoever asked may have gone away.
            let _ = one.send(outcome.clone());
        }
    }
}

/// Takes note of what an operator wants.
pub fn ask(node: &Node, ask: DriveAsk) {
    let mut state = node.archive.state.lock();
    let out = state.shelf_of(ask.drive).and_then(|shelf| Some((shelf.name.clone(), shelf.out.clone()?)));
    if let Some((library, why)) = out.filter(|_| ask.out.is_none()) {
        let _ = ask.answer.send(Err(format!("its library {library} cannot be used: {why}")));
        return;
    }
    let Some(drive) = state.drives.get_mut(&ask.drive) else {
        let _ = ask.answer.send(Err(format!("there is no drive {}; see `thermo drive ls`", ask.drive)));
        return;
    };
    match ask.out {
        None if drive.usable() => {
            drive.comeback.out = None;
            drive.refusals = Refusals::default();
            let _ = ask.answer.send(Ok(()));
        }
        None => {
            drive.comeback.preempt |= ask.preempt;
            drive.comeback.asked.push(ask.answer);
        }
        out => {
            drive.comeback.out = out;
            if *drive.status == DriveStatus::Down {
                drive.tell_why_out();
            }
            let _ = ask.answer.send(Ok(()));
        }
    }
}

/// Orders trials that are due, and puts away what is in drives that are to leave.
pub fn dispatch(node: &Node, workers: &Workers) {
    let mut state = node.archive.state.lock();
    let first = Duration::from_secs(u64::from(node.settings().tape.drive_retry_s));
    let due: Vec<DriveNo> = state
        .drives
        .values()
        .filter(|d| !d.usable() && d.comeback.is_due(first, is_alone(&state, d.library)))
        .map(|d| d.no)
        .collect();
    for no in due {
        try_again(&mut state, workers, no);
    }
    let leaving: Vec<DriveNo> = state
        .drives
        .values()
        .filter(|d| d.comeback.out.is_some() && *d.status != DriveStatus::Down)
        .map(|d| d.no)
        .collect();
    for no in leaving {
        leave(&mut state, workers, no);
    }
    drop(state);
    super::clean::dispatch(node, workers);
}

/// Whether no drive of the library works.
fn is_alone(state: &State, library: LibraryNo) -> bool {
    !state.drives.values().any(|drive| drive.library == library && drive.usable())
}

fn try_again(state: &mut State, workers: &Workers, no: DriveNo) {
    let Some(drive) = state.drives.get(&no) else { return };
    let Some(shelf) = state.shelves.get(&drive.library) else { return };
    let (volume, alone) = (drive.volume().cloned().unwrap_or_default(), is_alone(state, drive.library));
    let mut to = None;
    if shelf.full(drive.element) {
        if !shelf.robot_free() {
            return;
        }
        to = shelf.free_slot(drive.home);
        if to.is_none() {
            let why = format!("drive {no} cannot be emptied: no slot is empty; export a cartridge");
            state.warn(why.clone());
            if let Some(drive) = state.drives.get_mut(&no) {
                drive.comeback.answer(&Err(why));
                drive.comeback.still_fails(Fault::Refused, alone);
            }
            return;
        }
    }
    let preempt = state.drives.get_mut(&no).is_some_and(|d| std::mem::take(&mut d.comeback.preempt));
    let sent = workers.get(&no).is_some_and(|w| w.try_send((volume, Job::Revive { to, preempt })).is_ok());
    if let Some(shelf) = state.shelf_of(no).filter(|_| sent && to.is_some()) {
        shelf.moves.insert(no, to);
    }
    if let Some(drive) = state.drives.get_mut(&no) {
        match sent {
            true => (drive.comeback.trying, drive.activity) = (true, "is tried again".into()),
            false => drive.comeback.gone("the drive's thread has ended; see the log and restart the node"),
        }
    }
}

/// A drive that an operator wants out of use: index, unload, put away, down.
fn leave(state: &mut State, workers: &Workers, no: DriveNo) {
    let Some(drive) = state.drives.get(&no) else { return };
    match &drive.state {
        _ if !drive.usable() && !drive.comeback.trying => set_down(state, no),
        DriveState::Empty => set_down(state, no),
        _ => put_away(state, workers, no, "an operator takes the drive out of use"),
    }
}

/// Index, unload and put away what is in the drive, unless it works.
pub fn put_away(state: &mut State, workers: &Workers, no: DriveNo, why: &str) {
    let Some(drive) = state.drives.get(&no) else { return };
    let Some(shelf) = state.shelves.get(&drive.library) else { return };
    let (job, work) = match &drive.state {
        DriveState::Loaded(_) if !shelf.robot_free() => return,
        DriveState::Loaded(l) if l.dirty => (Job::Index, Work::Maintain),
        DriveState::Loaded(_) => match shelf.free_slot(drive.home) {
            Some(to) => (Job::Unmount { to }, Work::Unmount),
            None => return,
        },
        DriveState::Busy(_) | DriveState::Empty => return,
    };
    let Some(volume) = drive.volume().cloned() else { return };
    let to = if let Job::Unmount { to } = &job { Some(*to) } else { None };
    if workers.get(&no).is_some_and(|w| w.try_send((volume.clone(), job)).is_ok()) {
        if let Some(shelf) = state.shelf_of(no).filter(|_| to.is_some()) {
            shelf.moves.insert(no, to);
        }
        if let Some(drive) = state.drives.get_mut(&no) {
            drive.state = DriveState::Busy(sched::Busy::new(volume, work));
            drive.status.set(DriveStatus::Mounting);
            drive.activity = why.into();
        }
    }
}

fn set_down(state: &mut State, no: DriveNo) {
    if let Some(drive) = state.drives.get_mut(&no) {
        drive.status.set(DriveStatus::Down);
        drive.tell_why_out();
        tracing::info!("drive {no} is out of use, as an operator asked");
    }
}

/// A trial ended.
pub fn tried(node: &Node, revived: Revived) {
    let Revived { drive: no, moved, result } = revived;
    let mut state = node.archive.state.lock();
    if let Some((from, to)) = moved {
        state.moved(no, from, to);
    }
    if let Some(shelf) = state.shelf_of(no) {
        shelf.moves.remove(&no);
    }
    let alone = state.drives.get(&no).is_some_and(|drive| is_alone(&state, drive.library));
    let Some(drive) = state.drives.get_mut(&no) else { return };
    drive.comeback.trying = false;
    drive.activity.clear();
    match result {
        Ok(identity) => {
            (drive.product, drive.serial, drive.reach) = identity;
            drive.refusals = Refusals::default();
            (drive.comeback.since, drive.comeback.silent) = (None, false);
            drive.comeback.out = match drive.comeback.asked.is_empty() {
                // One that did not answer before says only now which it is.
                true => drive.comeback.out.take().or_else(|| kept(node, &drive.serial)),
                false => None,
            };
            (drive.state, drive.home) = (DriveState::Empty, None);
            drive.status.set(DriveStatus::Free);
            drive.comeback.answer(&Ok(()));
            tracing::warn!("drive {no} is in use again");
            state.look_again();
        }
        Err(e) => {
            let text = e.to_string();
            drive.comeback.still_fails(e.fault, alone);
            drive.errors += 1;
            let status = DriveStatus::Suspect(text.clone());
            let is_new = *drive.status != status;
            drive.status.set(status);
            drive.comeback.answer(&Err(format!("drive {no} still fails: {text}")));
            if is_new {
                state.warn(text);
            }
        }
    }
}

impl DriveSlot {
    /// The drive failed: out of use until it is tried again.
    pub fn suspect(&mut self, why: String) {
        self.status.set(DriveStatus::Suspect(why));
        self.comeback.failed();
    }

    /// Whether it never answered where it was looked for, and nobody is about to try it there: it may be in another element.
    pub fn may_be_elsewhere(&self) -> bool {
        let Comeback { trying, asked, out, .. } = &self.comeback;
        self.serial.is_empty() && !self.usable() && !trying && asked.is_empty() && out.is_none()
    }

    /// What an operator has said is shown as what the drive does.
    fn tell_why_out(&mut self) {
        let reason = self.comeback.out.as_ref().map(|out| out.reason.clone());
        self.activity = reason.unwrap_or_default();
    }
}

/// Who took the drive with this serial number out of use in this run of the node or an earlier one.
pub fn kept(node: &Node, serial: &str) -> Option<TakenOut> {
    // Damage of the record keeps no drive from working.
    let known = node.catalog.taken_out(serial);
    known.inspect_err(|e| tracing::error!("drive with serial number {serial}: {e}")).ok().flatten()
}

impl Node {
    /// Takes a drive into use, if it works; from another host that has reserved it if so ordered.
    ///
    /// # Errors
    /// There is no such drive, or it still fails.
    pub(crate) fn drive_up(&self, drive: DriveNo, preempt: bool) -> Result<(), wire::Failure> {
        self.order_drive(drive, None, preempt)?;
        self.keep_out(drive, None)
    }

    /// Takes a drive out of use, until somebody takes it into use again.
    ///
    /// # Errors
    /// There is no such drive, or the catalogue does not take it.
    pub(crate) fn drive_out(&self, cx: &Cx, drive: DriveNo, reason: String) -> Result<(), wire::Failure> {
        let out = TakenOut { by: Some(cx.uid), at: crate::now(), reason };
        self.keep_out(drive, Some(&out))?;
        self.order_drive(drive, Some(out), false)
    }

    /// What an operator wants of a drive is true after a restart too, for the drive with this serial number.
    fn keep_out(&self, drive: DriveNo, out: Option<&TakenOut>) -> Result<(), wire::Failure> {
        let serial = self.archive.state.lock().drives.get(&drive).map(|d| d.serial.clone());
        let Some(serial) = serial.filter(|serial| !serial.is_empty()) else {
            if out.is_some() {
                tracing::warn!(
                    "drive {drive} has not said its serial number: a restart takes it into use again"
                );
            }
            return Ok(());
        };
        let kept = self.catalog.take_out(&serial, out);
        kept.map_err(|e| crate::error::refused(&format!("drive {drive}"), &e))
    }

    fn order_drive(&self, drive: DriveNo, out: Option<TakenOut>, preempt: bool) -> Result<(), wire::Failure> {
        if !self.archive.state.lock().drives.contains_key(&drive) {
            let message = format!("there is no drive {drive}; see `thermo drive ls`");
            return Err(crate::error::failure(ErrorClass::NotFound, message));
        }
        let (answer, answers) = crossbeam_channel::bounded(1);
        self.archive.send(Event::Drive(DriveAsk { drive, out, preempt, answer }));
        let outcome = answers.recv().unwrap_or_else(|_| Err("the node stops".into()));
        outcome.map_err(|why| crate::error::failure(ErrorClass::Drive, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_keeps_failing_is_tried_ever_more_rarely() {
        let mut c = Comeback::default();
        let first = Duration::from_secs(30);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            c.failed();
            pauses.push(c.pause(first, false).as_secs());
            assert_eq!(c.pause(first, true), first, "everybody waits for it");
        }
        assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
        c.worked();
        c.failed();
        assert_eq!(c.pause(first, false), first);
        assert!(!c.is_due(first, true));
        assert!(c.is_due(Duration::from_nanos(1), true));
        assert!(!c.is_due(Duration::ZERO, true), "never by itself");
        for _ in 0..9 {
            c.still_fails(Fault::NoAnswer, true);
        }
        assert_eq!(c.pause(first, false), first, "all were off for long, and another one is back");
        for _ in 0..9 {
            c.still_fails(Fault::NoAnswer, false);
        }
        assert_eq!(c.pause(first, false), LONGEST_SILENT);
        c.still_fails(Fault::HardwareError, false);
        assert_eq!(c.pause(first, false), LONGEST);
        let (answer, answers) = crossbeam_channel::bounded(1);
        c.asked.push(answer);
        assert!(c.is_due(Duration::ZERO, false));
        c.gone("gone");
        assert_eq!(answers.recv().unwrap(), Err("gone".into()));
    }
}
