//! One library of the node: what is where in it, what its robot does, and whether it answers.

use super::cleaners::Cleaners;
use super::library::is_cleaning;
use super::rest::Rest;
use super::state::State;
use crate::clock::Moment;
use std::collections::{BTreeMap, HashMap, HashSet};
use types::*;

/// A library.
#[derive(Default)]
pub struct Shelf {
    /// Name for people.
    pub name: String,
    /// Vendor, product and revision.
    pub product: String,
    /// Elements at the last inventory, kept up to date by moves.
    pub elements: Vec<ElementView>,
    /// Moves of the robot that have been ordered and have not ended: the drive, and the slot that is to take its cartridge.
    pub moves: BTreeMap<DriveNo, Option<u16>>,
    /// Why it cannot be used at all; None: it can.
    pub out: Option<String>,
    /// Whether its robot is left alone after failures; meanwhile copies in other libraries are preferred.
    pub rest: Rest,
}

impl Shelf {
    /// Element that holds this cartridge.
    pub fn find(&self, barcode: &Barcode) -> Option<&ElementView> {
        self.elements.iter().find(|e| e.barcode.as_ref() == Some(barcode))
    }

    /// Whether there is a cartridge in an element.
    pub fn full(&self, address: u16) -> bool {
        self.elements.iter().any(|e| e.address == address && e.full)
    }

    /// The robot is on its way, or will be.
    pub fn robot_busy(&self) -> bool {
        !self.moves.is_empty()
    }

    /// The robot may be given a move: it has none, does not rest, and answers.
    pub fn robot_free(&self) -> bool {
        !self.robot_busy() && !self.is_troubled()
    }

    /// An empty storage slot that no move is for, preferably `home`.
    pub fn free_slot(&self, home: Option<u16>) -> Option<u16> {
        let awaited: Vec<u16> = self.moves.values().copied().flatten().collect();
        let empty =
            |e: &&ElementView| e.kind == ElementKind::Slot && !e.full && !awaited.contains(&e.address);
        let slots: Vec<u16> = self.elements.iter().filter(empty).map(|e| e.address).collect();
        home.filter(|h| slots.contains(h)).or_else(|| slots.first().copied())
    }

    /// Notes that a cartridge moved.
    pub fn moved(&mut self, from: u16, to: u16) {
        let Some(source) = self.elements.iter_mut().find(|e| e.address == from) else { return };
        // An inventory taken meanwhile shows the move already.
        if !std::mem::take(&mut source.full) {
            return;
        }
        let barcode = source.barcode.take();
        source.outgoing = false;
        let slot = source.kind == ElementKind::Slot;
        if let Some(target) = self.elements.iter_mut().find(|e| e.address == to) {
            target.barcode = barcode;
            target.full = true;
            target.outgoing = target.kind == ElementKind::ImportExport;
            target.source = slot.then_some(from);
        }
    }

    /// A cleaning cartridge that lies in a slot and is not used up, and where.
    pub fn cleaner(&self, used: &Cleaners) -> Option<(Barcode, u16)> {
        let slots = self
            .elements
            .iter()
            .filter(|e| e.kind == ElementKind::Slot || e.kind == ElementKind::ImportExport);
        slots.filter(|e| !e.outgoing).find_map(|e| {
            let barcode = e.barcode.as_ref().filter(|b| is_cleaning(b))?;
            (!used.0.get(barcode).is_some_and(|c| c.used_up)).then(|| (barcode.clone(), e.address))
        })
    }

    /// Whether its robot failed lately and rests, or it cannot be used at all.
    pub fn is_troubled(&self) -> bool {
        self.out.is_some() || self.rest.lasts(Moment::now())
    }

    /// As shown to an operator.
    pub fn view(&self) -> LibraryView {
        LibraryView {
            name: self.name.clone(),
            product: self.product.clone(),
            elements: self.elements.clone(),
            out: self.out.clone().or_else(|| self.rest.shown(Moment::now())),
        }
    }
}

impl State {
    /// The library of a drive.
    pub fn shelf_of(&mut self, drive: DriveNo) -> Option<&mut Shelf> {
        let library = self.drives.get(&drive)?.library;
        self.shelves.get_mut(&library)
    }

    /// Cartridges in the libraries, but for those on their way out, and the library of each. One barcode in two places is
    /// nowhere: nobody knows which is meant.
    pub fn present(&self) -> HashMap<&Barcode, LibraryNo> {
        let mut places: HashMap<&Barcode, Option<LibraryNo>> = HashMap::new();
        for (no, shelf) in &self.shelves {
            for barcode in shelf.elements.iter().filter(|e| !e.outgoing).filter_map(|e| e.barcode.as_ref()) {
                places.entry(barcode).and_modify(|place| *place = None).or_insert(Some(*no));
            }
        }
        places.into_iter().filter_map(|(barcode, place)| Some((barcode, place?))).collect()
    }

    /// The library in which a cartridge is, as [`State::present`] has it.
    pub fn present_in(&self, barcode: &Barcode) -> Option<LibraryNo> {
        let is = |e: &&ElementView| !e.outgoing && e.barcode.as_ref() == Some(barcode);
        let mut found =
            self.shelves.iter().flat_map(|(no, shelf)| shelf.elements.iter().filter(is).map(|_| *no));
        found.next().filter(|_| found.next().is_none())
    }

    /// Library that holds this cartridge, and where.
    pub fn find(&self, barcode: &Barcode) -> Option<(LibraryNo, &ElementView)> {
        self.shelves.iter().find_map(|(no, shelf)| Some((*no, shelf.find(barcode)?)))
    }

    /// A library was looked at.
    pub fn set_elements(&mut self, library: LibraryNo, elements: Vec<ElementView>) {
        self.shelves.entry(library).or_default().elements = elements;
        // One that left may come back as another of the same name.
        for (barcode, cleaner) in &mut self.cleaners.0 {
            cleaner.used_up &= self.shelves.values().any(|shelf| shelf.find(barcode).is_some());
        }
        self.replace_all();
        self.name_doubles(library);
    }

    /// Barcodes that another library has too.
    fn name_doubles(&mut self, library: LibraryNo) {
        let Some(shelf) = self.shelves.get(&library) else { return };
        let mut said = Vec::new();
        for (_, other) in self.shelves.iter().filter(|(no, _)| **no != library) {
            let theirs: HashSet<&Barcode> =
                other.elements.iter().filter_map(|e| e.barcode.as_ref()).collect();
            let mine = shelf.elements.iter().filter_map(|e| e.barcode.as_ref()).filter(|b| !is_cleaning(b));
            said.extend(mine.filter(|b| theirs.contains(b)).map(|barcode| {
                format!(
                    "there is a cartridge {barcode} in library {} and one in {}: neither is used; give one of them another \
                     barcode, or take it out",
                    shelf.name, other.name
                )
            }));
        }
        said.into_iter().for_each(|text| self.warn(text));
    }

    /// A cartridge moved into or out of a drive.
    pub fn moved(&mut self, drive: DriveNo, from: u16, to: u16) {
        let Some(shelf) = self.shelf_of(drive) else { return };
        shelf.moved(from, to);
        let carried = shelf.elements.iter().find(|e| e.address == to).and_then(|e| e.barcode.clone());
        match carried {
            Some(barcode) => self.replace(&barcode),
            None => self.replace_all(),
        }
    }

    /// Libraries that `holds` is true of.
    pub fn shelves_that(&self, holds: impl Fn(&Shelf) -> bool) -> std::collections::BTreeSet<LibraryNo> {
        self.shelves.iter().filter(|(_, shelf)| holds(shelf)).map(|(no, _)| *no).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(address: u16, barcode: Option<&str>) -> ElementView {
        ElementView {
            address,
            kind: if address < 10 { ElementKind::Drive } else { ElementKind::Slot },
            full: barcode.is_some(),
            barcode: barcode.map(Barcode::from),
            source: None,
            exception: None,
            outgoing: false,
        }
    }

    fn shelf(elements: Vec<ElementView>) -> Shelf {
        Shelf { elements, ..Shelf::default() }
    }

    #[test]
    fn a_move_that_the_inventory_shows_already_changes_nothing() {
        let mut shelf = shelf(vec![element(1, None), element(20, Some("TC0001L9"))]);
        for _ in 0..2 {
            shelf.moved(20, 1);
            assert_eq!(shelf.find(&Barcode::from("TC0001L9")).map(|e| e.address), Some(1));
        }
    }

    #[test]
    fn two_moves_are_not_for_one_slot() {
        let mut shelf = shelf(vec![element(20, None), element(21, None), element(22, Some("TC0001L9"))]);
        shelf.moves.insert(DriveNo(0), Some(20));
        assert_eq!(shelf.free_slot(Some(20)), Some(21));
        shelf.moves.insert(DriveNo(1), Some(21));
        assert_eq!(shelf.free_slot(None), None);
        shelf.moves.remove(&DriveNo(0));
        assert!(shelf.robot_busy() && shelf.free_slot(Some(21)) == Some(20));
        shelf.moves.remove(&DriveNo(1));
        assert!(!shelf.robot_busy());
    }

    #[test]
    fn a_cartridge_without_a_readable_barcode_moves_too() {
        let unread = ElementView { full: true, ..element(1, None) };
        let mut shelf = shelf(vec![unread, element(20, None)]);
        shelf.moved(1, 20);
        assert_eq!(shelf.elements.iter().map(|e| e.full).collect::<Vec<_>>(), [false, true]);
        assert_eq!(shelf.free_slot(None), None);
    }

    #[test]
    fn a_barcode_that_two_libraries_have_is_in_neither() {
        let mut state = State::default();
        for (no, name, other) in [(0, "a", "TC0002L9"), (1, "b", "TC0003L9")] {
            let elements = vec![element(20, Some("TC0001L9")), element(21, Some(other))];
            state.shelves.entry(LibraryNo(no)).or_default().name = name.into();
            state.set_elements(LibraryNo(no), elements);
        }
        let present = state.present();
        assert!(!present.contains_key(&Barcode::from("TC0001L9")));
        assert_eq!(present.get(&Barcode::from("TC0002L9")), Some(&LibraryNo(0)));
        assert_eq!(present.get(&Barcode::from("TC0003L9")), Some(&LibraryNo(1)));
        assert!(
            state.warnings[0].contains("cartridge TC0001L9 in library b and one in a"),
            "{:?}",
            state.warnings
        );
    }
}
