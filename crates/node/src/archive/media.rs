//! What drives and media teach of each other: pairs that did not work although they should, and media of which the barcode
//! says something else than the drive that they are in. Known until the node restarts, of a drive until an operator says
//! `thermo drive up`.
//!
//! A drive that refuses a volume does not get it again. It may be the drive (firmware) or the cartridge (a wrong barcode): only
//! when it refuses a second volume of a generation of which it has taken none, it gets none of them any more. Abandoned design:
//! to exclude the generation at the first refusal; one cartridge with a wrong barcode would have gone from drive to drive, and
//! then no drive would have taken any of that generation.

use super::state::{DriveSlot, State};
use std::collections::{BTreeMap, BTreeSet};
use tape::TapeError;
use types::*;

/// Volumes of a generation that a drive refuses before it gets no others of it.
const ENOUGH: usize = 2;

/// What a drive took and did not take.
#[derive(Default)]
pub struct Refusals {
    volumes: BTreeMap<Barcode, (Option<Generation>, Access)>,
    took: BTreeSet<(Generation, Access)>,
}

impl Refusals {
    /// It did not take a volume of this medium.
    pub fn refused(&mut self, volume: &Barcode, medium: Option<Generation>, access: Access) {
        let known = self.volumes.entry(volume.clone()).or_insert((medium, access));
        *known = (medium, access.min(known.1));
    }

    /// It did.
    pub fn took(&mut self, volume: &Barcode, medium: Option<Generation>, access: Access) {
        self.took.extend(medium.map(|medium| (medium, access)));
        if self.volumes.get(volume).is_some_and(|(_, refused)| *refused <= access) {
            self.volumes.remove(volume);
        }
    }

    /// What is left of the media that it says it takes.
    pub fn reach(&self, own: Reach) -> Reach {
        let mut counts: BTreeMap<(Generation, Access), usize> = BTreeMap::new();
        for (medium, access) in self.volumes.values() {
            medium.iter().for_each(|medium| *counts.entry((*medium, *access)).or_default() += 1);
        }
        let none = |(what, n): &(&(Generation, Access), &usize)| **n >= ENOUGH && !self.took.contains(*what);
        counts.iter().filter(none).fold(own, |reach, ((medium, access), _)| reach.without(*medium, *access))
    }

    /// Whether there is anything that it did not take.
    pub fn any(&self) -> bool {
        !self.volumes.is_empty()
    }

    /// Single volumes that it does not get.
    pub fn volumes(&self) -> BTreeMap<Barcode, Access> {
        self.volumes.iter().map(|(volume, (_, access))| (volume.clone(), *access)).collect()
    }
}

impl State {
    /// The medium of a volume, by what a drive said of it, else by its barcode.
    pub fn medium(&self, volume: &Barcode) -> Option<Generation> {
        self.media.get(volume).copied().or_else(|| Generation::of(volume))
    }

    /// A drive has mounted a volume, and says what medium it is, if it can.
    pub fn mounted_medium(&mut self, no: DriveNo, volume: &Barcode, said: Option<Generation>) {
        let by_barcode = Generation::of(volume);
        if let Some(medium) = said.filter(|said| by_barcode != Some(*said))
            && self.media.insert(volume.clone(), medium) != Some(medium)
        {
            self.replace(volume);
            if let Some(label) = by_barcode {
                self.warn(format!("volume {volume} is of {medium}, not of {label} as its barcode says"));
            }
        }
        let medium = self.medium(volume);
        if let Some(drive) = self.drives.get_mut(&no) {
            drive.refusals.took(volume, medium, Access::Read);
        }
    }

    /// A drive refused a medium.
    pub fn refused_medium(&mut self, no: DriveNo, volume: &Barcode, e: &TapeError) {
        let Some(access) = e.refused() else { return };
        let medium = self.medium(volume);
        let Some(drive) = self.drives.get_mut(&no) else { return };
        drive.refusals.refused(volume, medium, access);
        let does = if access == Access::Read { "does not read" } else { "does not write" };
        let reach = drive.refusals.reach(drive.reach);
        let none = medium.filter(|m| drive.reach.takes(Some(*m), access) && !reach.takes(Some(*m), access));
        let more = none.map_or(String::new(), |m| format!(", nor any other volume of {m}"));
        self.warn(format!(
            "drive {no} {does} volume {volume} and does not get it again for that{more}; `thermo drive up {no}` after a repair"
        ));
    }
}

impl DriveSlot {
    /// What the scheduler sees of the media that it takes.
    pub fn takes(&self) -> (Reach, BTreeMap<Barcode, Access>) {
        (self.refusals.reach(self.reach), self.refusals.volumes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Generation::{Lto8, Lto9};

    #[test]
    fn one_refusal_is_the_volumes_matter_a_second_the_drives_unless_it_took_others() {
        let own = Reach::of(Lto9);
        let [a, b, c] = ["TC0001L9", "TC0002L9", "TC0003L8"].map(Barcode::from);
        let mut r = Refusals::default();
        r.refused(&a, Some(Lto9), Access::Read);
        r.refused(&a, Some(Lto9), Access::Read);
        r.refused(&c, Some(Lto8), Access::Write);
        assert_eq!(r.reach(own), own);
        assert_eq!(r.volumes(), BTreeMap::from([(a.clone(), Access::Read), (c.clone(), Access::Write)]));
        r.refused(&b, Some(Lto9), Access::Read);
        assert_eq!(r.reach(own), own.without(Lto9, Access::Read));
        r.took(&a, Some(Lto9), Access::Read);
        assert_eq!(r.reach(own), own);
        assert!(!r.volumes().contains_key(&a) && r.volumes().contains_key(&b));
        r.refused(&a, Some(Lto9), Access::Read);
        assert_eq!(r.reach(own), own, "it took one of them: the volumes are at fault");
        r.took(&c, Some(Lto8), Access::Read);
        assert!(r.volumes().contains_key(&c), "that it reads it says nothing of writing");
        r.refused(&c, Some(Lto8), Access::Read);
        assert_eq!(r.volumes()[&c], Access::Read);
    }
}
