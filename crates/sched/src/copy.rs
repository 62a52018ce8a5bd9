//! Which copy of a file to read.

use crate::{DriveState, Reached, SchedView, Work};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use types::{Access, Barcode, CopyNo, VolumeState};

/// Where one copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlace {
    /// Which copy.
    pub copy: CopyNo,
    /// Volumes that hold its segments; all are needed.
    pub volumes: Vec<Barcode>,
}

/// Why a copy is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyWhy {
    /// Its volume is mounted.
    Mounted,
    /// Other files are wanted from its volume.
    Shared,
    /// It is the first that can be read.
    First,
    /// The better ones are being written or are suspect.
    Remaining,
}

impl fmt::Display for CopyWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mounted => "its volume is mounted",
            Self::Shared => "other files are wanted from its volume",
            Self::First => "it is the first copy that can be read",
            Self::Remaining => "the volumes of the other copies cannot be read or are in worse state",
        })
    }
}

/// The chosen copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyChoice {
    /// Position in the slice that was given.
    pub index: usize,
    /// Reason.
    pub why: CopyWhy,
}

/// How good one volume is; smaller is better. First whether it is suspect, only drives that are out of use
/// read it, or the robot that has to fetch it failed lately.
type Score = (bool, Standing, Reverse<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Mounted,
    InSlot,
    /// Being written, labelled or taken away.
    InUse,
}

/// Chooses the copy to read: sound volumes before suspect ones, a mounted volume, then one that is not in use, then the
/// one with most queued files, then the first copy. `avoid` names volumes that already failed for this file. None when
/// no copy can be read now.
pub fn choose_copy(
    view: &SchedView<'_>,
    copies: &[CopyPlace],
    avoid: &BTreeSet<Barcode>,
) -> Option<CopyChoice> {
    let scored = copies.iter().enumerate().filter_map(|(index, place)| {
        let scores: Option<Vec<Score>> =
            place.volumes.iter().map(|volume| score(view, volume, avoid)).collect();
        // A copy is as good as its worst volume.
        let worst = scores?.into_iter().max()?;
        Some((worst, place.copy, index))
    });
    let (score, _, index) = scored.min()?;
    let why = match score {
        (false, Standing::Mounted, _) => CopyWhy::Mounted,
        (false, Standing::InSlot, Reverse(queued)) if queued > 0 => CopyWhy::Shared,
        (false, Standing::InSlot, _) => CopyWhy::First,
        _ => CopyWhy::Remaining,
    };
    Some(CopyChoice { index, why })
}

fn score(view: &SchedView<'_>, volume: &Barcode, avoid: &BTreeSet<Barcode>) -> Option<Score> {
    let tape = view.volumes.get(volume).filter(|tape| tape.readable() && !avoid.contains(volume))?;
    let reached = view.reached(volume, tape, Access::Read);
    if reached == Reached::Never {
        return None;
    }
    let troubled = tape.library().is_some_and(|library| view.robots_troubled.contains(&library));
    let mut needs_robot = false;
    let standing = match view.drive_of(volume) {
        Some(drive) if !drive.usable => return None,
        Some(drive) => match &drive.state {
            DriveState::Busy(busy) => match busy.work {
                Work::Mount | Work::Recall => Standing::Mounted,
                Work::Unmount | Work::Migrate | Work::Maintain => Standing::InUse,
            },
            _ => Standing::Mounted,
        },
        None => {
            needs_robot = true;
            Standing::InSlot
        }
    };
    let queued = view.recalls.get(volume).map_or(0, |queue| queue.len() as u64);
    let worse = tape.state == VolumeState::Suspect || reached == Reached::Down || (troubled && needs_robot);
    Some((worse, standing, Reverse(queued)))
}
