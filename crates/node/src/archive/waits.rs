//! Files that wait until a drive is back: asked for by request, while every drive that could read them is out of use. Whoever only
//! opens a file is told at once.

use super::state::State;
use sched::{Blocked, BlockedWhy, CopyChoice, CopyPlace, CopyWhy, Reached, SchedView, Want};
use std::collections::BTreeSet;
use types::{Access, Barcode};

/// Whether that ends when a drive comes back.
pub fn for_a_drive(why: &BlockedWhy) -> bool {
    matches!(why, BlockedWhy::NoDrive | BlockedWhy::DrivesDown(_) | BlockedWhy::StuckInDrive(_))
}

impl State {
    /// Drives or cartridges have come: for what waits for a drive another copy may do now.
    pub fn look_again(&mut self) {
        self.blocked.retain(|b| !for_a_drive(&b.why));
    }
}

/// Volumes that are read as soon as a drive is back.
pub fn volumes(blocked: &[Blocked]) -> BTreeSet<Barcode> {
    let waits = blocked.iter().filter(|b| for_a_drive(&b.why));
    waits
        .filter_map(|b| if let Want::Recall(volume) = &b.want { Some(volume.clone()) } else { None })
        .collect()
}

/// Whether all drives that read a volume are out of use.
pub fn volume_is_down(view: &SchedView<'_>, volume: &Barcode) -> bool {
    view.volumes.get(volume).is_some_and(|tape| view.reached(volume, tape, Access::Read) == Reached::Down)
}

/// Whether that is so of a volume of this copy.
pub fn is_down(view: &SchedView<'_>, place: &CopyPlace) -> bool {
    place.volumes.iter().any(|volume| volume_is_down(view, volume))
}

/// The first copy for which nothing is wanting but a drive.
pub fn any(view: &SchedView<'_>, places: &[CopyPlace]) -> Option<CopyChoice> {
    let comes = |volume: &Barcode| {
        let tape = view.volumes.get(volume).filter(|tape| tape.readable());
        tape.is_some_and(|tape| view.reached(volume, tape, Access::Read) != Reached::Never)
    };
    let index = places.iter().position(|place| place.volumes.iter().all(comes))?;
    Some(CopyChoice { index, why: CopyWhy::Remaining })
}
