//! What goes into the library and out of it: its doors and import/export slots.
//!
//! The robot is asked every few seconds whether somebody opened a door; if so everybody learns where things are now. A
//! cartridge that an operator lays into an import/export slot is used from there. One that the robot laid there is on its
//! way out, and left alone until an operator takes it or orders it back; the library itself remembers which is which.

use super::Event;
use super::library::{take_stock, tape_failure};
use super::more::{Tried, Wanted};
use super::shelf::Shelf;
use crate::Node;
use crate::error::failure;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tape::Changer;
use types::*;
use wire::Failure;

/// Between two looks at the door.
const LOOK: Duration = Duration::from_secs(3);
/// Stands for an operator among the drives that wait for the robot.
const OPERATOR: DriveNo = DriveNo(u16::MAX);

/// From where to where a cartridge is to go.
type Way = Result<(u16, u16), Failure>;

impl Node {
    /// Notices doors of a library that are opened, and drives that it gets, until the node stops; tries one that cannot be used again and again.
    /// `tried`: when that was done last.
    pub(crate) fn watch_door(self: &Arc<Self>, library: LibraryNo, mut tried: Tried) {
        let mut wanted = Wanted::default();
        while !self.stops_within(LOOK) {
            let Some(robot) = self.archive.robot(library) else {
                if self.archive.is_out(library) && tried.is_due_again(self, library) {
                    tried = Tried::now(self, library);
                    self.try_library(library);
                }
                continue;
            };
            self.take_in_drives(library, &robot, &mut wanted);
            // While it moves something it finds out by itself.
            let Some(mut robot) = robot.try_lock() else { continue };
            if robot.look()
                && let Ok(elements) = robot.inventory()
            {
                tracing::info!("library {library} was opened or reset: its inventory was taken");
                self.archive.send(Event::Inventory(library, elements));
            }
        }
    }

    fn try_library(self: &Arc<Self>, library: LibraryNo) {
        match take_stock(self, library) {
            Ok(stock) => self.archive.send(Event::Library(Box::new(stock))),
            Err(e) => tracing::info!("library {library} still cannot be used: {}", e.message),
        }
    }

    /// Asks libraries anew where everything is, one or all; with `audit` they look at each slot themselves, which may take long.
    ///
    /// # Errors
    /// There is no such library, or one does not answer: the others were asked.
    pub(crate) fn take_inventory(
        &self,
        name: Option<&str>,
        audit: bool,
    ) -> Result<Vec<LibraryView>, Failure> {
        match self.ask_each(self.chosen(name)?, audit).pop_first() {
            Some((_, failed)) => Err(failed),
            None => Ok(self.archive.view().libraries),
        }
    }

    /// Asks these libraries anew; returns those that do not answer.
    fn ask_each(&self, libraries: Vec<LibraryNo>, audit: bool) -> BTreeMap<LibraryNo, Failure> {
        let ask = |library| {
            let robot = self.robot(library)?;
            let mut robot = robot.lock();
            if audit {
                robot.audit().map_err(|e| tape_failure(&e))?;
            }
            self.look_again(library, &mut robot)
        };
        libraries.into_iter().filter_map(|library| Some((library, ask(library).err()?))).collect()
    }

    /// The library of this name; of none all that can be used.
    fn chosen(&self, name: Option<&str>) -> Result<Vec<LibraryNo>, Failure> {
        let Some(name) = name else {
            return Ok(self.libraries().filter(|library| !self.archive.is_out(*library)).collect());
        };
        let found = self.library_named(name);
        let what = || format!("there is no library `{name}`; see `thermo library ls`");
        Ok(vec![found.ok_or_else(|| failure(ErrorClass::NotFound, what()))?])
    }

    /// The inventory as it is now, for everybody.
    fn look_again(&self, library: LibraryNo, robot: &mut Changer) -> Result<(), Failure> {
        let elements = robot.inventory().map_err(|e| tape_failure(&e))?;
        super::library::enter_volumes(self, &elements)?;
        self.archive.state.lock().set_elements(library, elements);
        Ok(())
    }

    fn robot(&self, library: LibraryNo) -> Result<Arc<Mutex<Changer>>, Failure> {
        let name = self.library_name(library);
        let what = || format!("library {name} cannot be used now; see `thermo library ls`");
        self.archive.robot(library).ok_or_else(|| failure(ErrorClass::Busy, what()))
    }

    /// Lays cartridges into import/export slots of their libraries, from where an operator takes them.
    ///
    /// # Errors
    /// One is not in a storage slot, or no import/export slot is empty: those named before it were moved.
    pub(crate) fn export(&self, volumes: &[Barcode]) -> Result<Vec<LibraryView>, Failure> {
        // What was just taken out makes room.
        let silent = self.ask_each(self.chosen(None)?, false);
        let mut libraries = BTreeSet::new();
        for volume in volumes {
            let found = self.archive.state.lock().find(volume).map(|(library, _)| library);
            let what = || failure(ErrorClass::NotFound, format!("volume {volume} is not in the library"));
            // It may be where nobody answers.
            let library = found.ok_or_else(|| silent.values().next().cloned().unwrap_or_else(what))?;
            if let Some(failed) = silent.get(&library) {
                return Err(failed.clone());
            }
            self.carry(library, &|shelf| shelf.way_out(volume))?;
            libraries.insert(library);
        }
        self.moved_in(libraries)
    }

    /// Moves cartridges from import/export slots into their libraries; of none means all that are there.
    ///
    /// # Errors
    /// One is in no import/export slot, or no storage slot is empty: those named before it were moved. A library does not
    /// answer: what is in the others was moved.
    pub(crate) fn import(&self, volumes: &[Barcode]) -> Result<Vec<LibraryView>, Failure> {
        let mut silent = self.ask_each(self.chosen(None)?, false);
        let waiting: Vec<(LibraryNo, u16, Option<Barcode>)> = {
            let state = self.archive.state.lock();
            let doors = |(no, shelf): (&LibraryNo, &Shelf)| {
                let full =
                    shelf.elements.iter().filter(|e| e.kind == ElementKind::ImportExport && e.full).cloned();
                let no = *no;
                full.map(move |e| (no, e.address, e.barcode)).collect::<Vec<_>>()
            };
            state.shelves.iter().filter(|(no, _)| !silent.contains_key(no)).flat_map(doors).collect()
        };
        let wanted: Vec<(LibraryNo, u16)> = match volumes {
            [] => waiting.iter().map(|(no, address, _)| (*no, *address)).collect(),
            some => {
                let at = |volume: &Barcode| {
                    let found = waiting.iter().find(|(.., barcode)| barcode.as_ref() == Some(volume));
                    let what =
                        || format!("volume {volume} is in no import/export slot; see `thermo library show`");
                    let none = || failure(ErrorClass::NotFound, what());
                    let found = found.ok_or_else(|| silent.values().next().cloned().unwrap_or_else(none))?;
                    Ok((found.0, found.1))
                };
                some.iter().map(at).collect::<Result<_, Failure>>()?
            }
        };
        for (library, from) in &wanted {
            self.carry(*library, &|shelf| {
                let full = || failure(ErrorClass::NoSpace, "no storage slot is empty; export a cartridge");
                Ok((*from, shelf.free_slot(None).ok_or_else(full)?))
            })?;
        }
        let moved = self.moved_in(wanted.into_iter().map(|(library, _)| library).collect())?;
        match silent.pop_first() {
            Some((_, failed)) if volumes.is_empty() => Err(failed),
            _ => Ok(moved),
        }
    }

    fn moved_in(&self, libraries: BTreeSet<LibraryNo>) -> Result<Vec<LibraryView>, Failure> {
        for library in libraries {
            self.look_again(library, &mut self.robot(library)?.lock())?;
        }
        Ok(self.archive.view().libraries)
    }

    /// One move for an operator; no drive of the library begins one meanwhile, and nobody else's goes to the same slot.
    fn carry(&self, library: LibraryNo, way: &dyn Fn(&Shelf) -> Way) -> Result<(), Failure> {
        let robot = self.robot(library)?;
        let mut robot = robot.lock();
        let gone = || failure(ErrorClass::Busy, "the node stops");
        let (from, to) = {
            let mut state = self.archive.state.lock();
            let shelf = state.shelves.get_mut(&library).ok_or_else(gone)?;
            let way = way(shelf)?;
            shelf.moves.insert(OPERATOR, Some(way.1));
            way
        };
        let moved = robot.move_medium(from, to);
        let mut state = self.archive.state.lock();
        if let Some(shelf) = state.shelves.get_mut(&library) {
            shelf.moves.remove(&OPERATOR);
            if moved.is_ok() {
                shelf.moved(from, to);
            }
        }
        state.replace_all();
        moved.map_err(|e| tape_failure(&e))
    }
}

impl super::Archive {
    /// The robot of a library; None while that cannot be used, and once the service has ended.
    fn robot(&self, library: LibraryNo) -> Option<Arc<Mutex<Changer>>> {
        self.robots.lock().get(&library).cloned()
    }

    /// Whether a library cannot be used.
    fn is_out(&self, library: LibraryNo) -> bool {
        self.state.lock().shelves.get(&library).is_none_or(|shelf| shelf.out.is_some())
    }
}

impl Shelf {
    /// Where a cartridge is that is to leave, and the slot that it leaves through.
    fn way_out(&self, volume: &Barcode) -> Way {
        let Some(element) = self.find(volume) else {
            let what = format!("volume {volume} is not in the library");
            return Err(failure(ErrorClass::NotFound, what));
        };
        match element.kind {
            ElementKind::Slot => {}
            ElementKind::ImportExport => {
                let what = format!("volume {volume} is in import/export slot {} already", element.address);
                return Err(failure(ErrorClass::Invalid, what));
            }
            ElementKind::Drive | ElementKind::Transport => {
                let what = format!(
                    "volume {volume} is in a drive; ask again in a minute if it is exported (it is put away at once then), else take it out of \
                     use first: `thermo volume export {volume} --to FILE`, or `thermo volume state {volume} exported`"
                );
                return Err(failure(ErrorClass::Busy, what));
            }
        }
        let door = self.elements.iter().find(|e| e.kind == ElementKind::ImportExport && !e.full);
        let full = || {
            let what =
                "every import/export slot is full, or there is none; take out what lies there".to_owned();
            failure(ErrorClass::NoSpace, what)
        };
        Ok((element.address, door.ok_or_else(full)?.address))
    }
}
