//! The next volume is brought before the present one is full: a file that goes on on it, and a drive that writes a long
//! backlog, then lose no time to the robot.

use crate::{Backlog, DriveState, SchedView, Want, Work};
use types::PoolName;

/// A volume counts as soon full in its last part only, whatever the time of an exchange is worth in bytes: one in so many.
const LAST_PART: u64 = 4;

/// Drives that write to a pool now, and how many of their volumes are to be followed by another soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Drives that write, without those that prepare for it.
    pub writing: u64,
    /// Volumes that will be full in about the time that it takes to bring another, if what is to be written has no room on
    /// those that are being written.
    pub soon_full: u64,
}

/// Looks at the drives that write to a pool.
pub(crate) fn ahead(view: &SchedView<'_>, pool: &PoolName, backlog: &Backlog) -> Ahead {
    let (mut found, mut room) = (Ahead::default(), 0u64);
    for drive in view.drives {
        let DriveState::Busy(busy) = &drive.state else { continue };
        if busy.work != Work::Migrate || !matches!(&busy.want, Some(Want::Write(of)) if of == pool) {
            continue;
        }
        found.writing += 1;
        let Some(tape) = view.volumes.get(&busy.volume) else { continue };
        let free = busy.room.unwrap_or(tape.free);
        room = room.saturating_add(free);
        let last_part = tape.written.saturating_add(tape.free) / LAST_PART;
        found.soon_full += u64::from(free <= view.limits.ahead_bytes.min(last_part));
    }
    if view.limits.ahead_bytes == 0 || backlog.bytes.saturating_add(backlog.in_hand) <= room {
        found.soon_full = 0;
    }
    found
}
