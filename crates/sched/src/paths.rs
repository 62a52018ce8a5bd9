//! Empty drives, and which of them is taken: data paths are loaded evenly.

use crate::{Drive, DriveState, SchedView, Tape};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use types::{Access, DriveNo, LibraryNo, PathNo, Reach};

/// Drives without a cartridge that may still get an action.
pub(crate) struct Empty {
    /// Alike ones together, last first.
    drives: BTreeMap<(LibraryNo, Reach, PathNo), Vec<DriveNo>>,
    /// Drives on each path that hold a volume or get one.
    loads: BTreeMap<PathNo, u32>,
}

impl Empty {
    pub(crate) fn new(view: &SchedView<'_>) -> Self {
        let mut all = Self { drives: BTreeMap::new(), loads: BTreeMap::new() };
        for drive in view.drives.iter().filter(|drive| drive.usable) {
            if drive.state == DriveState::Empty {
                all.drives.entry(key(drive)).or_default().push(drive.id);
            } else {
                *all.loads.entry(drive.path).or_default() += 1;
            }
        }
        all.drives.values_mut().for_each(|alike| alike.sort_unstable_by_key(|id| Reverse(*id)));
        all
    }

    /// The drive to take a volume, of those that `takes` allows: the oldest that can, so that newer ones are left for newer
    /// media, then one whose data path has least to carry.
    pub(crate) fn best(
        &self,
        tape: &Tape,
        access: Access,
        takes: impl Fn(DriveNo) -> bool,
    ) -> Option<DriveNo> {
        let alike = self.drives.iter().filter(|((library, reach, _), _)| {
            tape.library() == Some(*library) && reach.takes(tape.generation, access)
        });
        let each = alike.filter_map(|((_, reach, path), drives)| {
            let id = drives.iter().rev().copied().find(|id| takes(*id))?;
            Some((reach.generation(), self.loads.get(path).copied().unwrap_or(0), id))
        });
        each.min().map(|(_, _, id)| id)
    }

    /// It gets a volume.
    pub(crate) fn remove(&mut self, id: DriveNo) {
        for ((_, _, path), drives) in &mut self.drives {
            if let Some(at) = drives.iter().rposition(|other| *other == id) {
                drives.remove(at);
                *self.loads.entry(*path).or_default() += 1;
                return;
            }
        }
    }

    /// Whether some drive of the library is left.
    pub(crate) fn any_in(&self, library: LibraryNo) -> bool {
        self.drives.iter().any(|((of, ..), drives)| *of == library && !drives.is_empty())
    }
}

fn key(drive: &Drive) -> (LibraryNo, Reach, PathNo) {
    (drive.library, drive.reach, drive.path)
}
