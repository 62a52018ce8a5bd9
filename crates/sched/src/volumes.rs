//! The volumes as one plan sees them: in order and with numbers, so that what it notes of one among tens of thousands is
//! found without a look-up.

use crate::demand::InHand;
use crate::fit::Class;
use crate::{Drive, SchedView, Tape};
use types::Barcode;

/// A volume of the view.
#[derive(Debug)]
pub(crate) struct Volume<'v> {
    /// Its place in the order.
    pub no: u32,
    /// Some drive has refused it.
    pub refused: bool,
    /// A drive works towards reading it.
    pub in_hand: bool,
    /// [`Tape::readable`].
    pub readable: bool,
    /// [`Tape::class`].
    pub class: Class,
    pub name: Barcode,
    pub tape: &'v Tape,
    /// The drive that holds it or is about to.
    pub drive: Option<&'v Drive>,
}

/// All volumes of the view.
pub(crate) struct Volumes<'v> {
    all: Vec<Volume<'v>>,
    /// Drives that hold something, by its name.
    drives: Vec<(&'v Barcode, &'v Drive)>,
}

impl<'v> Volume<'v> {
    fn new(no: u32, name: &Barcode, tape: &'v Tape) -> Self {
        Self {
            no,
            refused: false,
            in_hand: false,
            readable: tape.readable(),
            class: tape.class(),
            name: name.clone(),
            tape,
            drive: None,
        }
    }

    /// Whether it is in a library.
    pub(crate) fn is_present(&self) -> bool {
        self.class.0.is_some()
    }
}

impl<'v> Volumes<'v> {
    pub(crate) fn new(view: &SchedView<'v>, hand: &InHand<'v>) -> Self {
        let all = (0..).zip(view.volumes).map(|(no, (name, tape))| Volume::new(no, name, tape));
        let mut drives: Vec<_> = view.drives.iter().filter_map(|d| Some((d.volume()?, d))).collect();
        drives.sort_by_key(|(name, _)| *name);
        let mut found = Self { all: all.collect(), drives };
        for (name, drive) in found.drives.clone() {
            found.change(name, |volume| volume.drive = Some(drive));
        }
        for name in view.drives.iter().flat_map(|drive| drive.refused.keys()) {
            found.change(name, |volume| volume.refused = true);
        }
        hand.recalls().for_each(|name| found.change(name, |volume| volume.in_hand = true));
        found
    }

    fn change(&mut self, name: &Barcode, change: impl FnOnce(&mut Volume<'v>)) {
        if let Ok(at) = self.all.binary_search_by(|volume| volume.name.cmp(name)) {
            change(&mut self.all[at]);
        }
    }

    /// All, in order.
    pub(crate) fn all(&self) -> &[Volume<'v>] {
        &self.all
    }

    /// The volume of this name.
    pub(crate) fn get(&self, name: &Barcode) -> Option<&Volume<'v>> {
        self.all.get(self.all.binary_search_by(|volume| volume.name.cmp(name)).ok()?)
    }

    /// The drive that holds what has this name, whether the view knows it as a volume or not.
    pub(crate) fn drive_of(&self, name: &Barcode) -> Option<&'v Drive> {
        let at = self.drives.binary_search_by_key(&name, |(other, _)| *other).ok()?;
        Some(self.drives.get(at)?.1)
    }

    /// Looks up names in ascending order.
    pub(crate) fn walk(&self) -> Walk<'_, 'v> {
        Walk { left: &self.all }
    }
}

/// Looks up volumes in ascending order: where most are asked for, each costs one comparison.
pub(crate) struct Walk<'p, 'v> {
    left: &'p [Volume<'v>],
}

impl<'p, 'v> Walk<'p, 'v> {
    pub(crate) fn at(&mut self, name: &Barcode) -> Option<&'p Volume<'v>> {
        // In steps that double, then by halves of the last one.
        let mut end = 0;
        while self.left.get(end).is_some_and(|volume| volume.name < *name) {
            end = 2 * end + 1;
        }
        let last = self.left.get(end / 2..end.min(self.left.len())).unwrap_or_default();
        let before = last.partition_point(|volume| volume.name < *name);
        self.left = self.left.get(end / 2 + before..).unwrap_or_default();
        let (first, left) = self.left.split_first().filter(|(first, _)| first.name == *name)?;
        self.left = left;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use std::collections::BTreeMap;
    use types::{LibraryNo, VolumeState};

    #[test]
    fn walking_along_finds_what_is_there_however_far_apart() {
        let place = Place::Library(LibraryNo(0));
        let (state, pool) = (VolumeState::Full, None);
        let tape =
            Tape { state, pool, place, written: 0, free: 0, generation: None, wraps: false, worm: false };
        let name = |n: u32| Barcode::from(format!("V{n:05}L9"));
        let known: BTreeMap<Barcode, Tape> = (0..200).map(|n| (name(2 * n), tape.clone())).collect();
        let all = (0..).zip(&known).map(|(no, (name, tape))| Volume::new(no, name, tape)).collect();
        let volumes = Volumes { all, drives: Vec::new() };
        for gap in 1..100 {
            let mut walk = volumes.walk();
            for n in (0..420).step_by(gap) {
                let found = walk.at(&name(n)).map(|volume| (volume.no, &volume.name));
                let wanted = name(n);
                let there = (n % 2 == 0 && n < 400).then_some((n / 2, &wanted));
                assert_eq!(found, there, "every {gap}");
                assert_eq!(volumes.get(&wanted).map(|volume| volume.no), there.map(|(no, _)| no));
            }
        }
    }
}
