//! The loop: take what happened, ask `sched` what to do now, hand it to the drives.

use super::give::give;
use super::library::Workers;
use super::look::with_view;
use super::state::{CheckAsk, Errand, Serves, State};
use super::worker::{Done, Ended, Job, Order, Wanted};
use super::{
    Event, alerts, blocked, clean, ends, family, label, library, look, outlook, parked, recalls, revive,
    times,
};
use crate::Node;
use crate::clock::Moment;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use sched::{DriveState, Loaded, Maintenance, MaintenanceKind, Work};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tape::policy::Then;
use tape::{Blame, Fault, TapeError};
use types::*;

/// The scheduler is asked at least this often (idle volumes are put away by the clock).
pub const TICK: Duration = Duration::from_millis(500);

/// Resets in a row, without a job done well in between, after which a drive counts as failed.
const RESETS_EXCUSED: u32 = 3;

/// Pause before anything is written again after the catalogue or the disk tier has failed: the fault is not the volume's, and
/// a drive would write the same stretch of tape over and over.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

/// When a volume was last read is kept as exactly as this: each note is a write to stable storage.
const READ_NOTED: Duration = Duration::from_secs(60);

/// Runs until stopped and every drive is at rest.
pub fn run(node: &Arc<Node>, queue: &Receiver<Event>, workers: Workers) {
    serve(node, queue, &workers);
    times::keep(node, true);
    // Whoever waits for an answer learns that none will come.
    let mut state = node.archive.state.lock();
    state.errands.clear();
    state.drives.values_mut().for_each(|d| d.comeback.gone("the node stops"));
}

fn serve(node: &Arc<Node>, queue: &Receiver<Event>, workers: &Workers) {
    ends::begin(node, workers);
    loop {
        let event = match queue.recv_timeout(TICK) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if step(node, workers, event.into_iter().chain(queue.try_iter())) {
            return;
        }
    }
}

/// Takes what happened and gives the drives their orders; true when the service has come to its end. The node's thread
/// does this again and again, and so does the simulator.
pub fn step(node: &Arc<Node>, workers: &Workers, events: impl Iterator<Item = Event>) -> bool {
    take(node, workers, events);
    let over = decide(node, workers);
    outlook::renew(node);
    over
}

/// Takes what happened.
pub fn take(node: &Arc<Node>, workers: &Workers, events: impl Iterator<Item = Event>) {
    events.for_each(|event| handle(node, workers, event));
    parked::unpark(node);
    times::keep(node, false);
}

/// Gives the drives their orders; true when the service has come to its end.
pub fn decide(node: &Arc<Node>, workers: &Workers) -> bool {
    let stopping = node.archive.state.lock().stopping;
    match stopping {
        None => {
            revive::dispatch(node, workers);
            dispatch(node, workers);
            false
        }
        Some(graceful) => ends::wind_down(node, workers, graceful),
    }
}

fn handle(node: &Arc<Node>, workers: &Workers, event: Event) {
    match event {
        Event::Recall(tasks) => recalls::add(node, tasks),
        Event::Hurry(staging) => recalls::hurry(node, &staging),
        Event::Raise { staging, account, priority, deadline } => {
            recalls::raise(node, &staging, account, (priority, deadline));
        }
        Event::Backlog => {}
        Event::Label { request, volumes, pool, force, key } => {
            for volume in volumes {
                let errand = Errand::Label { request, pool: pool.clone(), force, key: key.clone() };
                add_errand(&mut node.archive.state.lock(), MaintenanceKind::Label, volume, errand);
            }
        }
        Event::Check(CheckAsk { volumes, deep, answer }) => {
            for volume in volumes {
                let errand = Errand::Check { deep, answer: answer.clone() };
                add_errand(&mut node.archive.state.lock(), MaintenanceKind::Check, volume, errand);
            }
        }
        Event::Errand { kind, volume, errand } => {
            add_errand(&mut node.archive.state.lock(), kind, volume, errand);
        }
        Event::Adopt { volumes, import, answer } => {
            for volume in volumes {
                let errand = Errand::Adopt { import: import.clone(), answer: answer.clone() };
                add_errand(&mut node.archive.state.lock(), MaintenanceKind::Check, volume, errand);
            }
        }
        Event::Inventory(library, elements) => {
            if let Err(e) = library::enter_volumes(node, &elements) {
                tracing::error!("new cartridges cannot be entered: {}", e.message);
            }
            let mut state = node.archive.state.lock();
            state.set_elements(library, elements);
            state.look_again();
        }
        Event::Library(stock) => library::came_back(node, workers, *stock),
        Event::Ended(ended) => finished(node, *ended),
        Event::Drive(wish) => revive::ask(node, wish),
        Event::Cleaned(cleaned) => clean::ended(node, *cleaned),
        Event::Revived(revived) => revive::tried(node, *revived),
        Event::Stop { graceful } => {
            let mut state = node.archive.state.lock();
            state.stopping = Some(graceful);
            state.troubled.clear();
        }
    }
}

pub fn add_errand(state: &mut State, kind: MaintenanceKind, volume: Barcode, errand: Errand) {
    let id = state.id();
    state.maintenance.push(Maintenance { id, kind, volume, since: crate::now() });
    state.errands.insert(id, errand);
}

fn dispatch(node: &Arc<Node>, workers: &Workers) {
    node.share_volumes();
    let plan = with_view(node, |view, state| {
        let mut plan = sched::plan(view);
        plan.blocked.extend(state.crowded.iter().map(blocked::pool_full));
        plan
    });
    blocked::note(node, plan.blocked);
    for action in plan.actions {
        start(node, workers, &action);
    }
}

pub fn start(node: &Arc<Node>, workers: &Workers, action: &sched::Action) {
    let mut state = node.archive.state.lock();
    let Some((volume, job, status)) = prepare(node, &mut state, action) else { return };
    let serves = serves(&job);
    let mut busy = action.busy(None);
    let known = node.archive.times.known();
    let takes = outlook::job_s(&known, &look::mechanics(node), action.drive, busy.work);
    let takes = takes.and_then(|s| Duration::try_from_secs_f64(s).ok());
    busy.until = takes.map(|time| crate::now().plus(time));
    if let Some(drive) = state.drives.get_mut(&action.drive) {
        drive.state = DriveState::Busy(busy);
        drive.begun = crate::now();
        drive.status.set(status);
        drive.serves = serves;
        drive.activity = action.why.to_string();
    }
    drop(state);
    tracing::debug!("drive {}: {:?}: {}", action.drive, action.job, action.why);
    give(node, workers, action.drive, (volume, job));
}

/// Turns an action of the scheduler into an order; None if it is no longer possible.
fn prepare(node: &Node, state: &mut State, action: &sched::Action) -> Option<(Barcode, Job, DriveStatus)> {
    use sched::Job as J;
    Some(match &action.job {
        J::Mount { volume } => {
            let shelf = state.shelf_of(action.drive)?;
            let from = shelf.find(volume)?.address;
            shelf.moves.insert(action.drive, None);
            (volume.clone(), Job::Mount { from }, DriveStatus::Mounting)
        }
        J::Unmount { volume } => {
            let home = state.drives.get(&action.drive)?.home;
            let shelf = state.shelf_of(action.drive)?;
            let Some(to) = shelf.free_slot(home) else {
                state.warn(format!("volume {volume} cannot leave drive {}: no slot is empty", action.drive));
                return None;
            };
            shelf.moves.insert(action.drive, Some(to));
            (volume.clone(), Job::Unmount { to }, DriveStatus::Mounting)
        }
        J::Recall { volume, order } => {
            let wanted: Vec<Wanted> = order.iter().filter_map(|id| take_wanted(state, volume, *id)).collect();
            (volume.clone(), Job::Recall(wanted), DriveStatus::Recalling)
        }
        J::Migrate { volume, pool } => {
            adopt(node, volume, pool);
            // What this session takes no longer waits.
            state.waiting_since.insert(pool.clone(), crate::now());
            (volume.clone(), Job::Migrate(pool.clone()), DriveStatus::Migrating)
        }
        J::Label { volume, id, pool } => {
            let errand = id.and_then(|id| take_errand(state, id));
            let pool = match &errand {
                Some(Errand::Label { pool, .. }) => pool.clone(),
                _ => pool.clone(),
            };
            (volume.clone(), Job::Label { pool, errand }, DriveStatus::Maintaining)
        }
        J::WriteIndex { volume, id } => {
            id.and_then(|id| take_errand(state, id));
            (volume.clone(), Job::Index, DriveStatus::Maintaining)
        }
        J::Check { volume, id } => match take_errand(state, *id)? {
            Errand::Check { deep, answer } => {
                (volume.clone(), Job::Check { deep, answer }, DriveStatus::Maintaining)
            }
            Errand::Adopt { import, answer } => {
                (volume.clone(), Job::Adopt { import, answer }, DriveStatus::Maintaining)
            }
            Errand::Verify(ticket) => (volume.clone(), Job::Verify(ticket), DriveStatus::Maintaining),
            _ => return None,
        },
    })
}

/// For whom a job is done.
fn serves(job: &Job) -> Serves {
    match job {
        Job::Recall(wanted) => {
            let mut files: Vec<Ino> = wanted.iter().map(|one| one.queued.ino).collect();
            files.dedup();
            Serves { files, request: None }
        }
        Job::Label { errand: Some(Errand::Label { request, .. }), .. } => {
            Serves { request: Some(*request), ..Serves::default() }
        }
        _ => Serves::default(),
    }
}

fn take_errand(state: &mut State, id: u64) -> Option<Errand> {
    state.maintenance.retain(|m| m.id != id);
    state.errands.remove(&id)
}

fn take_wanted(state: &mut State, volume: &Barcode, id: u64) -> Option<Wanted> {
    state.recalls.get_mut(volume)?.remove(id);
    let queued = state.segments.remove(&id)?;
    let staging = state.files.get(&queued.ino)?.task.staging.clone();
    Some(Wanted { queued, staging })
}

/// An unassigned scratch volume joins the pool that needs it.
fn adopt(node: &Node, volume: &Barcode, pool: &PoolName) {
    let now = crate::now();
    let (own, family) = family::split(pool);
    let adopted = node.catalog.update_volume(volume, &mut |v| {
        if v.state == VolumeState::Scratch {
            v.pool = Some(own.clone());
            v.becomes(VolumeState::Filling, "", now);
        }
        if v.files == 0 {
            v.family = family.map(str::to_owned);
        }
    });
    if let Err(e) = adopted {
        tracing::error!("volume {volume} cannot join pool {pool}: {e}");
    }
}

/// The time of a job is put down to whom it was for.
fn charge(state: &mut State, no: DriveNo, now: Time) {
    let Some(drive) = state.drives.get(&no) else { return };
    if let DriveState::Busy(busy) = &drive.state
        && let Some(owner) = busy.charge.and_then(|account| state.accounts.owner(account))
    {
        let took_s = now.since(drive.begun).as_secs_f64();
        state.accounts.all.used.charge(owner, took_s, now);
    }
}

/// What a drive would say of an order that it carried out in no time, but for what was to be read, which it gives back.
pub fn carried_out(node: &Node, drive: DriveNo, (volume, job): Order) -> Event {
    let element = node.archive.state.lock().drives.get(&drive).map_or(0, |d| d.element);
    let worked = Done::Worked { position: 0 };
    let (moved, done, unread) = match job {
        Job::Mount { from } => {
            let done = Done::Mounted { alerts: Vec::new(), worm: false, medium: None };
            (Some((from, element)), done, Vec::new())
        }
        Job::Unmount { to } => (Some((element, to)), Done::Unmounted, Vec::new()),
        Job::Recall(wanted) => (None, worked, wanted),
        _ => (None, worked, Vec::new()),
    };
    Event::Ended(Box::new(Ended { unread, ..Ended::new(drive, volume, moved, Ok(done)) }))
}

pub fn finished(node: &Arc<Node>, ended: Ended) {
    let Ended { drive: no, volume, moved, result, unread, failed, unloaded } = ended;
    let now = crate::now();
    let result = node.archive.state.lock().breaks.judge(no, &volume, result);
    // It came into the drive, but could not be mounted.
    let mounting = moved.is_some() && result.is_err();
    let known = node.catalog.volume(&volume).ok().flatten();
    let behind = known.as_ref().filter(|v| v.indexed_to < v.append_block && !v.may_hold_more());
    let dirty = behind.is_some_and(|v| label::begun(node, v).is_none());
    let mut robot_failed = false;
    let work = {
        let mut state = node.archive.state.lock();
        if let Some((from, to)) = moved {
            state.moved(no, from, to);
        }
        let work = state.drives.get(&no).and_then(|d| match &d.state {
            DriveState::Busy(b) => Some(b.work),
            _ => None,
        });
        charge(&mut state, no, now);
        if let Some(drive) = state.drives.get_mut(&no) {
            // True if a defect ended its trial.
            drive.comeback.trying = false;
            drive.soiled |= drive.progress.soiled.swap(false, Ordering::AcqRel);
        }
        let moving = matches!(work, Some(Work::Mount | Work::Unmount));
        if let Some(shelf) = state.shelf_of(no) {
            shelf.moves.remove(&no);
            // What came into the drive was moved well, whatever the drive says of it.
            let error = result.as_ref().err().filter(|_| moved.is_none());
            robot_failed = moving && shelf.robot_ended(error);
        }
        match &result {
            Ok(done) => settle_drive(&mut state, no, &volume, done, moved, dirty, now),
            Err(e) => blame(&mut state, no, &volume, moved, e, dirty, now),
        }
        alerts::of_the_drive(&mut state, no, &unloaded);
        note_medium(&mut state, no, &volume, &result);
        if work == Some(Work::Migrate) && result.as_ref().is_err_and(|e| e.blame == Blame::Us) {
            state.write_again = Some(Moment::now() + WRITE_AGAIN);
        }
        if moving && result.is_ok() {
            state.avoid.remove(&volume);
        }
        work
    };
    let read_before = known.and_then(|v| v.last_read);
    let read = work == Some(Work::Recall)
        && result.is_ok()
        && read_before.is_none_or(|before| now.since(before) >= READ_NOTED);
    note_volume(node, &volume, &result, &failed, read, now);
    alerts::of_the_volume(node, &volume, &unloaded, now);
    recalls::unread(node, unread);
    if robot_failed {
        recalls::elsewhere(node, no);
    }
    for (wanted, error) in failed {
        recalls::failed(node, wanted, &error);
    }
    if let Err(e) = &result
        && (mounting || e.fault == Fault::BreaksDrives)
        // Another drive may take it.
        && e.fault != Fault::Incompatible
        && !matches!(e.blame, Blame::Drive | Blame::Path)
    {
        blocked::out_of_reach(node, &volume, e);
    }
}

/// What a mount has told of a volume's medium.
fn note_medium(state: &mut State, no: DriveNo, volume: &Barcode, result: &Result<Done, TapeError>) {
    match result {
        Ok(Done::Mounted { medium, .. }) => state.mounted_medium(no, volume, *medium),
        Ok(_) => {}
        Err(e) => state.refused_medium(no, volume, e),
    }
}

fn settle_drive(
    state: &mut State,
    no: DriveNo,
    volume: &Barcode,
    done: &Done,
    moved: Option<(u16, u16)>,
    dirty: bool,
    now: Time,
) {
    let Some(drive) = state.drives.get_mut(&no) else { return };
    drive.activity.clear();
    let loaded = |mounted, position| {
        DriveState::Loaded(Loaded { volume: volume.clone(), mounted, idle_since: now, dirty, position })
    };
    match done {
        Done::Mounted { alerts, .. } => {
            drive.soiled |= clean::asks(alerts);
            drive.mounts += 1;
            drive.alerts = alerts.clone();
            drive.home = moved.map(|(from, _)| from);
            drive.mounted = now;
            drive.state = loaded(now, 0);
            drive.status.set(DriveStatus::Idle);
        }
        Done::Unmounted => {
            drive.home = None;
            drive.state = DriveState::Empty;
            drive.status.set(DriveStatus::Free);
        }
        Done::Worked { position } => {
            drive.state = loaded(drive.mounted, *position);
            drive.status.set(DriveStatus::Idle);
            drive.resets = 0;
            drive.comeback.worked();
        }
    }
}

/// Puts an error where it belongs: a bad medium leaves the drive usable, a bad drive leaves the volume usable.
#[allow(clippy::too_many_arguments)]
fn blame(
    state: &mut State,
    no: DriveNo,
    volume: &Barcode,
    moved: Option<(u16, u16)>,
    e: &TapeError,
    dirty: bool,
    now: Time,
) {
    state.warn(e.to_string());
    state.troubled.insert(no);
    let Some(drive) = state.drives.get_mut(&no) else { return };
    let shelf = state.shelves.get(&drive.library);
    let cleanable = drive.soiled && shelf.is_some_and(|shelf| shelf.cleaner(&state.cleaners).is_some());
    let in_drive = shelf.is_some_and(|shelf| shelf.full(drive.element));
    // A key that is missing, and a robot that fails, are no fault of the drive.
    drive.errors += u64::from(!matches!(e.blame, Blame::Us | Blame::Library));
    drive.activity.clear();
    if let Some((from, to)) = moved
        && to == drive.element
    {
        drive.home = Some(from);
    }
    drive.status.set(if in_drive { DriveStatus::Idle } else { DriveStatus::Free });
    // A reset that somebody else made is no fault of the drive: the work is done again from the last flush.
    drive.resets += u32::from(e.fault == Fault::PositionLost);
    let failed = match e.then() {
        // It is cleaned instead.
        Then::OtherDrive if e.fault == Fault::Alert && cleanable => false,
        Then::OtherDrive => true,
        Then::MountAgain => drive.resets > RESETS_EXCUSED,
        _ => false,
    };
    if failed {
        drive.suspect(e.to_string());
    }
    drive.state = match in_drive {
        true => DriveState::Loaded(Loaded {
            volume: volume.clone(),
            mounted: drive.mounted,
            idle_since: now,
            // What just failed to take an index would fail again.
            dirty: dirty && e.blame != Blame::Medium,
            position: 0,
        }),
        false => DriveState::Empty,
    };
    if in_drive && !matches!(e.fault, Fault::Full | Fault::Incompatible) {
        state.avoid.insert(volume.clone());
    }
}

/// A volume cannot be used without its key: nothing is written to it until an operator says that the key is there.
fn locked(e: &TapeError) -> bool {
    e.fault == Fault::Key && e.blame == Blame::Us && &*e.doing != "labelling it"
}

/// What the catalogue should know of the volume's health.
fn note_volume(
    node: &Node,
    volume: &Barcode,
    result: &Result<Done, TapeError>,
    failed: &[(Wanted, TapeError)],
    read: bool,
    now: Time,
) {
    let mounted = matches!(result, Ok(Done::Mounted { .. }));
    let medium = |e: &&TapeError| e.blame == Blame::Medium && e.fault != Fault::Incompatible;
    let error = result.as_ref().err().filter(medium).or_else(|| failed.iter().map(|(_, e)| e).find(medium));
    let error = error.or_else(|| result.as_ref().err().filter(|e| locked(e)));
    if !mounted && !read && error.is_none() {
        return;
    }
    // A label of ours that was cut short is no failure of the medium.
    let not_there = error.is_some_and(|e| matches!(e.fault, Fault::NotLtfs | Fault::WrongVolume));
    let known = not_there.then(|| node.catalog.volume(volume).ok().flatten()).flatten();
    let cut_short = known.is_some_and(|v| label::begun(node, &v).is_some());
    let noted = node.catalog.update_volume(volume, &mut |v| {
        if read {
            v.last_read = Some(now);
        }
        v.mounts += u64::from(mounted);
        if let Ok(Done::Mounted { worm, .. }) = result {
            v.worm = *worm;
        }
        if let Some(e) = error {
            let errors = v.errors;
            note_error(v, e, now);
            v.errors = if cut_short { errors } else { v.errors };
        }
    });
    if let Err(e) = noted {
        tracing::error!("volume {volume}: its errors cannot be recorded: {e}");
    }
}

/// What an error says of a volume's health.
pub fn note_error(v: &mut Volume, e: &TapeError, now: Time) {
    // What was not written to because of its tab, its key or its end is no worse for that.
    let medium = !locked(e) && !matches!(e.fault, Fault::Full | Fault::WriteProtected);
    v.errors += u64::from(medium);
    let writable = matches!(
        v.state,
        VolumeState::Filling
            | VolumeState::Scratch
            | VolumeState::Full
            | VolumeState::Unknown
            | VolumeState::Blank
    );
    let state = match e.fault {
        Fault::Full => VolumeState::Full,
        Fault::WriteProtected => VolumeState::ReadOnly,
        Fault::Key if locked(e) => VolumeState::ReadOnly,
        _ => VolumeState::Suspect,
    };
    if writable {
        v.becomes(state, e.to_string(), now);
    }
}
