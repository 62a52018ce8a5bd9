//! The library: what is where, and moving it.

use crate::classify::{Device, Verdict, classify, explain};
use crate::fence::{self, Claim, Refused};
use crate::{Blame, Fault, Result, Sleeper, TapeError, policy};
use scsi::{Element, ElementType, ScsiError, Sense, SenseKey, Smc, Transport};
use std::time::Duration;
use types::{Barcode, ElementKind, ElementView};

/// Device type of a medium changer in INQUIRY data.
const CHANGER: u8 = 0x08;
/// Time between two questions whether the library is ready.
const POLL: Duration = Duration::from_secs(1);
/// How long a library may start up or take its own inventory.
const READY_LIMIT: u32 = 3600;
/// Unit attentions in a row before a library counts as broken.
const MAX_ATTENTIONS: u32 = 32;

/// What a unit attention that says that cartridges may have moved means for the command that meets it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    /// It is sent again.
    Remember,
    /// It is not.
    EndIt,
}

/// A tape library with its robot.
pub struct Changer {
    smc: Smc,
    sleeper: Sleeper,
    product: String,
    changed: bool,
    /// That it must have, if one.
    serial: Option<String>,
    /// It did not answer since it said who it is.
    lost: bool,
    key: Option<u64>,
    claim: Claim,
}

impl Changer {
    /// Opens the changer behind `transport`, asks who it is and waits until it is ready.
    ///
    /// # Errors
    /// No answer, a device that is not a changer, or one that does not become ready within an hour.
    pub fn open(transport: Box<dyn Transport>, sleeper: Sleeper) -> Result<Self> {
        let mut changer = Self {
            smc: Smc::new(transport),
            sleeper,
            product: String::new(),
            changed: false,
            serial: None,
            lost: false,
            key: None,
            claim: Claim::None,
        };
        let inquiry = changer.attempt("asking the library who it is", |smc| smc.inquiry())?;
        changer.product = format!("{} {} {}", inquiry.vendor, inquiry.product, inquiry.revision);
        if inquiry.device_type != CHANGER {
            return Err(TapeError {
                blame: Blame::Us,
                fault: Fault::Misuse,
                volume: None,
                drive: changer.smc.name().into(),
                doing: "opening".into(),
                what: format!("this is no tape library but a {}", changer.product).into(),
                sense: None,
                advice: "correct the library's device name",
            });
        }
        changer.attempt("waiting until the library is ready", |smc| smc.test_unit_ready())?;
        changer.changed = false;
        Ok(changer)
    }

    /// Goes on only if the library's serial number is the given one (None: any).
    ///
    /// # Errors
    /// It has another one, or does not answer.
    pub fn insist(mut self, serial: Option<&str>) -> Result<Self> {
        if let Some(wanted) = serial {
            self.serial = Some(wanted.to_owned());
            self.insist_again()?;
        }
        Ok(self)
    }

    /// Whoever answers must be who it was.
    fn insist_again(&mut self) -> Result<()> {
        let Some(wanted) = self.serial.clone() else { return Ok(()) };
        let has = self.attempt("asking the library for its serial number", |smc| smc.unit_serial())?;
        crate::discover::insist(self.smc.name(), &has, &wanted)
    }

    /// Makes sure that no other host uses the robot, now and whenever it was reset; `force` takes it from whoever does.
    ///
    /// # Errors
    /// [`Fault::Reserved`]: another host has it; the message names it.
    pub fn claim(&mut self, key: u64, force: bool) -> Result<Claim> {
        self.key = Some(key);
        self.claim_again(force)
    }

    fn claim_again(&mut self, force: bool) -> Result<Claim> {
        const DOING: &str = "reserving the library";
        let Some(key) = self.key else { return Ok(Claim::None) };
        self.claim = match fence::claim(&mut self.smc, key, force) {
            Ok(claim) => claim,
            Err(Refused::Failed(e)) => {
                self.lost |= matches!(e, ScsiError::Transport(_));
                return Err(self.failed(DOING, e));
            }
            Err(Refused::Elsewhere(who)) => {
                return Err(TapeError {
                    blame: Blame::Library,
                    fault: Fault::Reserved,
                    volume: None,
                    drive: self.smc.name().into(),
                    doing: DOING.into(),
                    what: who.into(),
                    sense: None,
                    advice: "stop the other host, or take the library from it: `thermo down`, `thermo up --preempt`",
                });
            }
        };
        Ok(self.claim)
    }

    /// Whether it is reserved for us.
    pub fn claimed(&self) -> Claim {
        self.claim
    }

    /// Gives the robot back to other hosts.
    pub fn release(&mut self) {
        if let (Claim::Held, Some(key)) = (self.claim, self.key) {
            fence::release(&mut self.smc, key);
            self.claim = Claim::None;
        }
    }

    /// Vendor, product and revision.
    pub fn product(&self) -> &str {
        &self.product
    }

    /// True when the library said since the last [`Changer::inventory`] that cartridges may have moved without us
    /// (an operator opened a door or used the mail slot, or the library was reset).
    pub fn inventory_is_stale(&self) -> bool {
        self.changed
    }

    /// Asks whether cartridges may have moved without us since the last inventory. Waits for nothing.
    pub fn look(&mut self) -> bool {
        for _ in 0..MAX_ATTENTIONS {
            let error = match self.smc.test_unit_ready() {
                Ok(()) => break,
                Err(e) => e,
            };
            match error.sense() {
                Some(sense) if sense.key == SenseKey::UnitAttention => self.attend(*sense),
                // A door that is open, a robot that is down: whoever orders a move is told.
                _ => {
                    self.lost |= matches!(error, ScsiError::Transport(_));
                    break;
                }
            }
        }
        self.changed
    }

    /// Takes note of a unit attention.
    fn attend(&mut self, sense: Sense) {
        // Medium changed or mail slot accessed, reset, contents of the device changed, magazine inserted or removed.
        let moved = matches!((sense.asc, sense.ascq), (0x28 | 0x29 | 0x3f, _) | (0x3b, 0x12 | 0x13));
        self.changed |= moved;
        if matches!((sense.asc, sense.ascq), (0x29, _) | (0x2a, 3..=5)) {
            self.claim = Claim::None;
        }
    }

    /// Has the library look at all its elements itself, which may take as long as it has slots.
    ///
    /// # Errors
    /// As [`Changer::inventory`].
    pub fn audit(&mut self) -> Result<()> {
        self.smc_ready()?;
        self.attempt("having the library look at all its slots", |smc| smc.initialize_element_status())
    }

    /// All elements in order of address.
    ///
    /// # Errors
    /// The library does not answer or is not ready.
    pub fn inventory(&mut self) -> Result<Vec<ElementView>> {
        Ok(self.elements()?.into_iter().map(view).collect())
    }

    /// Element address and identifier (usually the unit serial number, maybe behind vendor and product) of each drive
    /// that the library can identify. An inventory that is stale stays so.
    ///
    /// # Errors
    /// As [`Changer::inventory`].
    pub fn drives(&mut self) -> Result<Vec<(u16, String)>> {
        self.smc_ready()?;
        let elements = self.attempt("asking for the drives", |smc| smc.read_all_elements())?;
        let drives = elements.into_iter().filter(|e| e.kind == ElementType::DataTransfer);
        Ok(drives.filter_map(|e| Some((e.address, e.device?))).collect())
    }

    /// Addresses of all drive elements, with or without an identifiable drive.
    ///
    /// # Errors
    /// As [`Changer::inventory`].
    pub fn drive_elements(&mut self) -> Result<Vec<u16>> {
        let drives = self.elements()?.into_iter().filter(|e| e.kind == ElementType::DataTransfer);
        Ok(drives.map(|e| e.address).collect())
    }

    fn elements(&mut self) -> Result<Vec<Element>> {
        self.smc_ready()?;
        let stale = std::mem::take(&mut self.changed);
        let elements = self.attempt("taking the inventory", |smc| smc.read_all_elements());
        self.changed |= stale && elements.is_err();
        elements
    }

    /// Moves the cartridge in element `from` to element `to`. The cartridge in a drive must be unloaded before. Nothing is moved
    /// once the library has said that somebody else may have moved cartridges (while this waited for a door to be closed, say):
    /// another one may lie in `from` by now.
    ///
    /// # Errors
    /// [`Fault::InventoryStale`]: take the inventory again. [`Fault::SourceEmpty`] and [`Fault::DestinationFull`]: the inventory is stale, take it again.
    /// [`Fault::Prevented`]: the drive does not let go. Others: the library failed.
    pub fn move_medium(&mut self, from: u16, to: u16) -> Result<()> {
        let doing = format!("moving the cartridge in element {from} to element {to}");
        self.smc_ready()?;
        if self.changed {
            return Err(self.stale(&doing));
        }
        self.run(&doing, Changes::EndIt, |smc| smc.move_medium(from, to))
    }

    fn stale(&self, doing: &str) -> TapeError {
        let row = policy::found(Fault::InventoryStale, Blame::Library);
        TapeError {
            blame: Blame::Library,
            fault: Fault::InventoryStale,
            volume: None,
            drive: self.smc.name().into(),
            doing: doing.into(),
            what: row.what.into(),
            sense: None,
            advice: row.advice,
        }
    }

    /// Takes pending unit attentions before a command that moves things, so that the inventory is known to be stale.
    fn smc_ready(&mut self) -> Result<()> {
        self.attempt("asking whether the library is ready", |smc| smc.test_unit_ready())?;
        if self.lost {
            self.insist_again()?;
            self.lost = false;
        }
        if self.key.is_some() && self.claim == Claim::None {
            self.claim_again(false)?;
        }
        Ok(())
    }

    /// Runs a command, waiting while the library becomes ready. A unit attention means that the command was not
    /// executed, so it is sent again; those that say that the inventory may have changed are remembered.
    fn attempt<T>(&mut self, doing: &str, command: impl FnMut(&mut Smc) -> scsi::Result<T>) -> Result<T> {
        self.run(doing, Changes::Remember, command)
    }

    fn run<T>(
        &mut self,
        doing: &str,
        changes: Changes,
        mut command: impl FnMut(&mut Smc) -> scsi::Result<T>,
    ) -> Result<T> {
        let (mut polls, mut attentions) = (0, 0);
        loop {
            let error = match command(&mut self.smc) {
                Ok(value) => return Ok(value),
                Err(e) => e,
            };
            let Some(sense) = error.sense() else {
                if matches!(error, ScsiError::Status { status: 0x18, .. }) {
                    self.claim = Claim::None;
                }
                // Another one may answer next.
                self.lost |= matches!(error, ScsiError::Transport(_));
                return Err(self.failed(doing, error));
            };
            match classify(sense, Device::Library) {
                _ if sense.key == SenseKey::UnitAttention && attentions < MAX_ATTENTIONS => {
                    let sense = *sense;
                    self.attend(sense);
                    attentions += 1;
                    if self.changed && changes == Changes::EndIt {
                        return Err(self.stale(doing));
                    }
                }
                Verdict::Wait if polls < READY_LIMIT => {
                    (self.sleeper)(POLL);
                    polls += 1;
                    attentions = 0;
                }
                _ => return Err(self.failed(doing, error)),
            }
        }
    }

    fn failed(&mut self, doing: &str, error: ScsiError) -> TapeError {
        let (failure, what) = explain(&error, Device::Library);
        self.changed |= matches!(failure.fault, Fault::SourceEmpty | Fault::DestinationFull);
        TapeError {
            blame: failure.blame,
            fault: failure.fault,
            volume: None,
            drive: self.smc.name().into(),
            doing: doing.into(),
            what: what.into(),
            sense: error.sense().copied(),
            advice: failure.advice,
        }
    }
}

fn view(element: Element) -> ElementView {
    ElementView {
        kind: match element.kind {
            ElementType::Transport => ElementKind::Transport,
            ElementType::Storage => ElementKind::Slot,
            ElementType::ImportExport => ElementKind::ImportExport,
            ElementType::DataTransfer => ElementKind::Drive,
        },
        address: element.address,
        full: element.full,
        barcode: element.barcode.map(Barcode::from),
        source: element.source,
        exception: element.exception,
        outgoing: element.kind == ElementType::ImportExport && element.full && !element.placed_by_operator,
    }
}
