//! Which drives could take which volume: those of its library that read, or write, its medium.

use crate::volumes::Volume;
use crate::{Drive, SchedView, Tape};
use std::collections::BTreeMap;
use types::{Access, Barcode, Generation, LibraryNo};

/// What the drives could do with a volume, whatever else they do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// No drive of its library takes it.
    Never,
    /// Only drives that are out of use do.
    Down,
    /// A drive that is in use does.
    Yes,
}

/// Volumes that the same drives take, but for those that one of them has refused.
pub(crate) type Class = (Option<LibraryNo>, Option<Generation>);

impl Tape {
    pub(crate) fn class(&self) -> Class {
        (self.library(), self.generation)
    }
}

impl Drive {
    /// Whether it could take the volume.
    pub fn takes(&self, volume: &Barcode, tape: &Tape, access: Access) -> bool {
        let refused = self.refused.get(volume).is_some_and(|refused| *refused <= access);
        self.takes_class(tape.class(), access) && !refused
    }

    pub(crate) fn takes_class(&self, (library, generation): Class, access: Access) -> bool {
        library == Some(self.library) && self.reach.takes(generation, access)
    }
}

impl SchedView<'_> {
    /// What the drives could do with a volume.
    pub fn reached(&self, volume: &Barcode, tape: &Tape, access: Access) -> Reached {
        best(self.drives.iter().filter(|drive| drive.takes(volume, tape, access)))
    }
}

fn best<'d>(drives: impl Iterator<Item = &'d Drive>) -> Reached {
    let mut best = Reached::Never;
    for drive in drives {
        if drive.usable {
            return Reached::Yes;
        }
        best = Reached::Down;
    }
    best
}

/// [`SchedView::reached`], asked again and again.
#[derive(Default)]
pub(crate) struct Reaches {
    classes: BTreeMap<(Class, Access), Reached>,
}

impl Reaches {
    pub(crate) fn of(&mut self, view: &SchedView<'_>, volume: &Volume<'_>, access: Access) -> Reached {
        if volume.refused {
            return view.reached(&volume.name, volume.tape, access);
        }
        let class = volume.class;
        let known = self.classes.entry((class, access));
        *known.or_insert_with(|| best(view.drives.iter().filter(|d| d.takes_class(class, access))))
    }
}
