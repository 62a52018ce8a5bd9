//! Drives that ask to be cleaned (TapeAlert flags 20 and 21 at a mount, sense 0/00/17 at work): the volume is put away, a cleaning cartridge put in until
//! the drive gives it back, and put away again. By the convention of all libraries the barcode of such a cartridge begins
//! with `CLN`. How often one was used is counted and kept ([`super::cleaners`]); that it is used up only the drive knows (flag 22).

use super::Event;
use super::library::{Workers, is_cleaning};
use super::state::State;
use super::worker::{Job, Worker};
use crate::Node;
use crate::clock::Moment;
use sched::{Busy, DriveState, Work};
use std::sync::atomic::Ordering;
use tape::{Drive, Mounted, TapeError};
use types::*;

/// TapeAlert flags: clean now, clean periodically.
const ASKS: [u8; 2] = [20, 21];

/// How the cleaning of a drive ended.
pub struct Cleaned {
    /// Drive.
    pub drive: DriveNo,
    /// Cleaning cartridge.
    pub cartridge: Barcode,
    /// Its moves that happened.
    pub moved: Vec<(u16, u16)>,
    /// Whether it cleaned, or was used up.
    pub result: Result<bool, TapeError>,
}

/// Whether these TapeAlert flags ask for cleaning.
pub fn asks(alerts: &[u8]) -> bool {
    ASKS.iter().any(|flag| alerts.contains(flag))
}

impl State {
    /// A cleaning cartridge that lies in a slot and is not used up, and where.
    pub fn cleaner(&self) -> Option<(Barcode, u16)> {
        let slots = self
            .elements
            .iter()
            .filter(|e| e.kind == ElementKind::Slot || e.kind == ElementKind::ImportExport);
        slots.filter(|e| !e.outgoing).find_map(|e| {
            let barcode = e.barcode.as_ref().filter(|b| is_cleaning(b))?;
            let used_up = self.cleaners.0.get(barcode).is_some_and(|c| c.used_up);
            (!used_up).then(|| (barcode.clone(), e.address))
        })
    }
}

/// Has drives that ask for it, and have nothing else to do, cleaned.
pub fn dispatch(node: &Node, workers: &Workers) {
    let mut state = node.archive.state.lock();
    let asking: Vec<DriveNo> =
        state.drives.values().filter(|d| d.soiled && d.usable()).map(|d| d.no).collect();
    for no in asking {
        let Some((cartridge, from)) = state.cleaner() else {
            let what = format!(
                "drive {no} asks to be cleaned, and no usable cleaning cartridge (CLN...) is in the library: put one in"
            );
            if !state.warnings.contains(&what) {
                state.warn(what);
            }
            return;
        };
        if state.robot_busy() || state.rest.lasts(Moment::now()) {
            return;
        }
        let loaded = state.drives.get(&no).is_some_and(|d| matches!(d.state, DriveState::Loaded(_)));
        if loaded {
            super::revive::put_away(&mut state, workers, no, "the drive is to be cleaned");
            continue;
        }
        let empty = state.drives.get(&no).is_some_and(|d| d.state == DriveState::Empty);
        if empty
            && workers.get(&no).is_some_and(|w| w.try_send((cartridge.clone(), Job::Clean { from })).is_ok())
        {
            state.moves.insert(no, Some(from));
            if let Some(drive) = state.drives.get_mut(&no) {
                drive.state = DriveState::Busy(Busy::new(cartridge, Work::Maintain));
                drive.status = DriveStatus::Maintaining;
                drive.activity = "is being cleaned".into();
            }
        }
    }
}

/// A cleaning ended, one way or the other.
pub fn ended(node: &Node, cleaned: Cleaned) {
    let Cleaned { drive: no, cartridge, moved, result } = cleaned;
    let mut state = node.archive.state.lock();
    moved.into_iter().for_each(|(from, to)| state.moved(from, to));
    state.moves.remove(&no);
    state.robot_ended(result.as_ref().err());
    let inside = state.drives.get(&no).map(|d| d.element);
    let inside = state.elements.iter().any(|e| Some(e.address) == inside && e.full);
    let cleaner = state.cleaners.0.entry(cartridge.clone()).or_default();
    let told = match &result {
        Ok(true) => {
            cleaner.uses += 1;
            tracing::info!("drive {no} was cleaned with {cartridge}, use {}", cleaner.uses);
            None
        }
        Ok(false) => {
            cleaner.used_up = true;
            Some(format!(
                "cleaning cartridge {cartridge} is used up (TapeAlert 22), after {} uses counted: take it out and put in another",
                cleaner.uses
            ))
        }
        Err(e) => Some(format!("drive {no} was not cleaned: {e}")),
    };
    told.into_iter().for_each(|text| state.warn(text));
    state.cleaners.keep(&node.config.state_dir);
    let Some(drive) = state.drives.get_mut(&no) else { return };
    drive.activity.clear();
    (drive.state, drive.status) = (DriveState::Empty, DriveStatus::Free);
    match result {
        Ok(done) => {
            drive.soiled = !done;
            drive.alerts.retain(|flag| !ASKS.contains(flag));
        }
        Err(e) => {
            drive.errors += 1;
            drive.suspect(e.to_string());
            if inside {
                drive.state = DriveState::Busy(Busy::new(cartridge, Work::Unmount));
            }
        }
    }
}

impl Worker {
    /// Notes whether the drive asked for it during a job.
    pub fn look_for_soil(&self, mounted: &mut Mounted<'_>) {
        if mounted.take_cleaning_request() {
            self.progress.soiled.store(true, Ordering::Release);
        }
    }

    /// Has the drive cleaned.
    pub fn clean(&self, drive: &mut Drive, cartridge: Barcode, from: u16) {
        let mut moved = Vec::new();
        let result = self.carry(from, self.element).and_then(|()| {
            moved.push((from, self.element));
            let cleaned = drive.clean();
            // A drive that was not content may still give it back.
            self.carry(self.element, from)?;
            moved.push((self.element, from));
            cleaned
        });
        self.settled();
        let cleaned = Cleaned { drive: self.no, cartridge, moved, result };
        self.node.archive.send(Event::Cleaned(Box::new(cleaned)));
    }
}
