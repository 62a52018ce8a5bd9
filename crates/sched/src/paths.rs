//! Empty drives, and which of them is taken: data paths are loaded evenly.

use crate::fit::Class;
use crate::volumes::Volume;
use crate::{Drive, DriveState, SchedView};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use types::{Access, DriveNo, LibraryNo, PathNo, Reach};

/// Drives without a cartridge that may still get an action.
pub(crate) struct Empty {
    /// Alike ones together, last first.
    drives: BTreeMap<(LibraryNo, Reach, PathNo), Vec<DriveNo>>,
    /// Drives on each path that hold a volume or get one.
    loads: BTreeMap<PathNo, u32>,
    /// Volumes for which there is none: there will be none later.
    none_for: BTreeSet<(Class, Access)>,
}

impl Empty {
    pub(crate) fn new(view: &SchedView<'_>) -> Self {
        let mut all = Self { drives: BTreeMap::new(), loads: BTreeMap::new(), none_for: BTreeSet::new() };
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

    /// The drive to take a volume, of those that `takes` allows if some have refused it: the oldest that can, so that newer
    /// ones are left for newer media, then one whose data path has least to carry.
    pub(crate) fn best(
        &mut self,
        volume: &Volume<'_>,
        access: Access,
        takes: impl Fn(DriveNo) -> bool,
    ) -> Option<DriveNo> {
        let class = volume.class;
        if self.drives.is_empty() || self.none_for.contains(&(class, access)) {
            return None;
        }
        let (place, generation) = class;
        let alike = self
            .drives
            .iter()
            .filter(|((library, reach, _), _)| place == Some(*library) && reach.takes(generation, access));
        let each = alike.filter_map(|((_, reach, path), drives)| {
            let id = drives.iter().rev().copied().find(|id| !volume.refused || takes(*id))?;
            Some((reach.generation(), self.loads.get(path).copied().unwrap_or(0), id))
        });
        let best = each.min().map(|(_, _, id)| id);
        if best.is_none() && !volume.refused {
            self.none_for.insert((class, access));
        }
        best
    }

    /// It gets a volume.
    pub(crate) fn remove(&mut self, drive: &Drive) {
        let Some(alike) = self.drives.get_mut(&key(drive)) else { return };
        let Some(at) = alike.iter().rposition(|other| *other == drive.id) else { return };
        alike.remove(at);
        if alike.is_empty() {
            self.drives.remove(&key(drive));
        }
        *self.loads.entry(drive.path).or_default() += 1;
    }

    /// Whether some drive of the library is left.
    pub(crate) fn any_in(&self, library: LibraryNo) -> bool {
        self.drives.keys().any(|(of, ..)| *of == library)
    }
}

fn key(drive: &Drive) -> (LibraryNo, Reach, PathNo) {
    (drive.library, drive.reach, drive.path)
}
