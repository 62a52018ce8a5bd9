//! TapeAlert flags that a drive raised while it had a volume, as it tells when it lets go of it: the volume or the drive is
//! suspect for them, unless it is out of use already, and is not used as if nothing had been said.

use super::clean;
use super::events::note_error;
use super::state::State;
use crate::Node;
use tape::{Blame, Unloaded};
use types::*;

/// What they say of the drive.
pub fn of_the_drive(state: &mut State, no: DriveNo, unloaded: &Unloaded) {
    let Some(drive) = state.drives.get_mut(&no).filter(|_| !unloaded.alerts.is_empty()) else { return };
    drive.soiled |= clean::asks(&unloaded.alerts);
    drive.alerts.clone_from(&unloaded.alerts);
    let shelf = state.shelves.get(&drive.library);
    let cleanable = drive.soiled && shelf.is_some_and(|shelf| shelf.cleaner(&state.cleaners).is_some());
    let trouble = unloaded.troubles.iter().find(|e| e.blame == Blame::Drive);
    if let Some(e) = trouble.filter(|_| drive.usable() && !cleanable) {
        drive.errors += 1;
        drive.suspect(e.to_string());
        state.warn(e.to_string());
    }
}

/// What they say of the volume.
pub fn of_the_volume(node: &Node, volume: &Barcode, unloaded: &Unloaded, now: Time) {
    let Some(e) = unloaded.troubles.iter().find(|e| e.blame == Blame::Medium) else { return };
    let mut news = false;
    let noted = node.catalog.update_volume(volume, &mut |v| {
        let before = v.state;
        if before != VolumeState::Suspect {
            note_error(v, e, now);
        }
        news = v.state != before;
    });
    match noted {
        Ok(_) if news => node.archive.warn(e.to_string()),
        Ok(_) => {}
        Err(e) => tracing::error!("volume {volume}: what TapeAlert says of it cannot be recorded: {e}"),
    }
}
