//! Drives that ask to be cleaned (TapeAlert flags 20 and 21 at a mount, sense 0/00/17 at work): the volume is put away, a cleaning cartridge put in until
//! the drive gives it back, and put away again. By the convention of all libraries the barcode of such a cartridge begins
//! with `CLN`. How often one was used is counted and kept ([`super::cleaners`]); that it is used up only the drive knows (flag 22).

use super::Event;
use super::library::Workers;
use super::worker::{Job, Worker};
use crate::Node;
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

/// Has drives that ask for it, and have nothing else to do, cleaned.
pub fn dispatch(node: &Node, workers: &Workers) {
    let mut state = node.archive.state.lock();
    let asking: Vec<DriveNo> =
        state.drives.values().filter(|d| d.soiled && d.usable()).map(|d| d.no).collect();
    for no in asking {
        let Some(shelf) = state.drives.get(&no).and_then(|d| state.shelves.get(&d.library)) else { continue };
        let Some((cartridge, from)) = shelf.cleaner(&state.cleaners) else {
            let what = format!(
                "drive {no} asks to be cleaned, and no usable cleaning cartridge (CLN...) is in its library: put one in"
            );
            if !state.warnings.contains(&what) {
                state.warn(what);
            }
            continue;
        };
        if !shelf.robot_free() {
            continue;
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
            if let Some(shelf) = state.shelf_of(no) {
                shelf.moves.insert(no, Some(from));
            }
            if let Some(drive) = state.drives.get_mut(&no) {
                drive.state = DriveState::Busy(Busy::new(cartridge, Work::Maintain));
                drive.status.set(DriveStatus::Maintaining);
                drive.activity = "is being cleaned".into();
            }
        }
    }
}

/// A cleaning ended, one way or the other.
pub fn ended(node: &Node, cleaned: Cleaned) {
    let Cleaned { drive: no, cartridge, moved, result } = cleaned;
    let mut state = node.archive.state.lock();
    moved.into_iter().for_each(|(from, to)| state.moved(no, from, to));
    let element = state.drives.get(&no).map_or(0, |d| d.element);
    let inside = state.shelf_of(no).is_some_and(|shelf| {
        shelf.moves.remove(&no);
        shelf.robot_ended(result.as_ref().err());
        shelf.full(element)
    });
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
    drive.state = DriveState::Empty;
    drive.status.set(DriveStatus::Free);
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
