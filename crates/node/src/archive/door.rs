//! What goes into the library and out of it: its doors and import/export slots.
//!
//! The robot is asked every few seconds whether somebody opened a door; if so everybody learns where things are now. A
//! cartridge that an operator lays into an import/export slot is used from there. One that the robot laid there is on its
//! way out, and left alone until an operator takes it or orders it back; the library itself remembers which is which.

use super::Event;
use super::library::tape_failure;
use crate::Node;
use crate::error::failure;
use parking_lot::Mutex;
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
    /// Notices doors that are opened, until the node stops.
    pub(crate) fn watch_door(&self) {
        while !self.stops_within(LOOK) {
            let Some(robot) = self.archive.robot() else { return };
            // While it moves something it finds out by itself.
            let Some(mut robot) = robot.try_lock() else { continue };
            if robot.look()
                && let Ok(elements) = robot.inventory()
            {
                tracing::info!("the library was opened or reset: its inventory was taken");
                self.archive.send(Event::Inventory(elements));
            }
        }
    }

    /// Asks the library anew where everything is; with `audit` it looks at each slot itself, which may take long.
    ///
    /// # Errors
    /// The library does not answer.
    pub(crate) fn take_inventory(&self, audit: bool) -> Result<LibraryView, Failure> {
        let robot = self.robot()?;
        let mut robot = robot.lock();
        if audit {
            robot.audit().map_err(|e| tape_failure(&e))?;
        }
        self.look_again(&mut robot)
    }

    /// The inventory as it is now, for everybody.
    fn look_again(&self, robot: &mut Changer) -> Result<LibraryView, Failure> {
        let elements = robot.inventory().map_err(|e| tape_failure(&e))?;
        super::library::enter_volumes(self, &elements)?;
        self.archive.state.lock().set_elements(elements);
        Ok(self.archive.view().library)
    }

    fn robot(&self) -> Result<Arc<Mutex<Changer>>, Failure> {
        self.archive.robot().ok_or_else(|| failure(ErrorClass::Busy, "the node stops"))
    }

    /// Lays cartridges into import/export slots, from where an operator takes them.
    ///
    /// # Errors
    /// One is not in a storage slot, or no import/export slot is empty: those named before it were moved.
    pub(crate) fn export(&self, volumes: &[Barcode]) -> Result<LibraryView, Failure> {
        let robot = self.robot()?;
        // What was just taken out makes room.
        self.take_inventory(false)?;
        for volume in volumes {
            self.carry(&mut robot.lock(), &|state| state.way_out(volume))?;
        }
        self.look_again(&mut robot.lock())
    }

    /// Moves cartridges from import/export slots into the library; of none means all that are there.
    ///
    /// # Errors
    /// One is in no import/export slot, or no storage slot is empty: those named before it were moved.
    pub(crate) fn import(&self, volumes: &[Barcode]) -> Result<LibraryView, Failure> {
        let robot = self.robot()?;
        let view = self.take_inventory(false)?;
        let waiting = view.elements.iter().filter(|e| e.kind == ElementKind::ImportExport && e.full);
        let wanted: Vec<u16> = match volumes {
            [] => waiting.map(|e| e.address).collect(),
            some => {
                let at = |volume: &Barcode| {
                    let mut waiting = waiting.clone();
                    let found = waiting.find(|e| e.barcode.as_ref() == Some(volume)).map(|e| e.address);
                    let what =
                        || format!("volume {volume} is in no import/export slot; see `thermo library show`");
                    found.ok_or_else(|| failure(ErrorClass::NotFound, what()))
                };
                some.iter().map(at).collect::<Result<_, _>>()?
            }
        };
        for from in wanted {
            self.carry(&mut robot.lock(), &|state| {
                let full = || failure(ErrorClass::NoSpace, "no storage slot is empty; export a cartridge");
                Ok((from, state.free_slot(None).ok_or_else(full)?))
            })?;
        }
        self.look_again(&mut robot.lock())
    }

    /// One move for an operator; no drive begins one meanwhile, and nobody else's goes to the same slot.
    fn carry(&self, robot: &mut Changer, way: &dyn Fn(&super::state::State) -> Way) -> Result<(), Failure> {
        let (from, to) = {
            let mut state = self.archive.state.lock();
            let way = way(&state)?;
            state.moves.insert(OPERATOR, Some(way.1));
            way
        };
        let moved = robot.move_medium(from, to);
        let mut state = self.archive.state.lock();
        state.moves.remove(&OPERATOR);
        if moved.is_ok() {
            state.moved(from, to);
        }
        moved.map_err(|e| tape_failure(&e))
    }
}

impl super::Archive {
    /// The robot; None once the service has ended.
    fn robot(&self) -> Option<Arc<Mutex<Changer>>> {
        self.robots.lock().first().cloned()
    }
}

impl super::state::State {
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
                    "volume {volume} is in a drive; wait until it is put away, or take it out of use first: `thermo volume state {volume} exported`"
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
