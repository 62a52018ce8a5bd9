//! The library as a whole: opening, faults, power, and what an operator does by hand.

use crate::cartridge::{Cartridge, Meta, Stock};
use crate::changer::Robot;
use crate::clock::{Clock, RealClock};
use crate::config::VtlConfig;
use crate::drive::Drive;
use crate::durable;
use crate::elements::{Elements, Occupant, check_barcode};
use crate::error::{Result, VtlError, io};
use crate::fault::{Device, Fault, Faults};
use crate::identity::Identity;
use crate::stats::DriveStats;
use crate::transport::LibraryTransport;
use crate::unit::{Host, Hosts};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use scsi::ElementType;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// A virtual tape library. One process at a time can have it open.
pub struct Library {
    pub(crate) config: VtlConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) faults: Arc<Faults>,
    stock: Arc<Stock>,
    pub(crate) drives: Vec<Drive>,
    /// Designators of the drives, for READ ELEMENT STATUS.
    pub(crate) designators: Vec<Vec<u8>>,
    pub(crate) robot: Mutex<Robot>,
    /// Hosts that were given out, see [`Host`].
    pub(crate) hosts: AtomicU32,
    _lock: File,
}

impl Library {
    /// Opens (or makes) the library with the machine's clock.
    pub fn open(config: VtlConfig) -> Result<Arc<Self>> {
        Self::open_with_clock(config, Arc::new(RealClock::new()))
    }

    /// Opens (or makes) the library. This is a power-on: buffered data of an earlier run are gone, cartridges are in the
    /// elements where they were, those in drives get loaded.
    pub fn open_with_clock(config: VtlConfig, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let cartridges = config.dir.join("cartridges");
        fs::create_dir_all(&cartridges).map_err(io(&cartridges, "create"))?;
        let lock_path = config.dir.join("lock");
        let lock = File::create(&lock_path).map_err(io(&lock_path, "create"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| VtlError::InUse { path: config.dir.clone() })?;
        let (mut elements, new) = Elements::load(&config)?;
        if new {
            durable::sync_parent(&cartridges)?;
            durable::sync_parent(&config.dir)?;
            populate(&config, &mut elements)?;
        }
        let faults = Arc::new(Faults::default());
        let drive = |n| Drive::new(n, &config, clock.clone(), faults.clone());
        let drives: Vec<Drive> = (0..config.drives).map(drive).collect();
        let designators = drives.iter().map(Drive::designator).collect();
        let mut hosts = Hosts::default();
        hosts.power_on();
        let identity = Identity::changer(format!("{}LL0", config.serial));
        let robot = Mutex::new(Robot { identity, hosts, elements, host_error: None });
        let library = Arc::new(Self {
            config,
            clock,
            faults,
            stock: Arc::default(),
            drives,
            designators,
            robot,
            hosts: AtomicU32::new(1),
            _lock: lock,
        });
        library.restore(&library.robot.lock())?;
        Ok(library)
    }

    /// Puts the cartridges that the table has in drives into them.
    fn restore(&self, robot: &Robot) -> Result<()> {
        for (address, occupant) in &robot.elements.full {
            if let Some(n) = robot.elements.drive(*address) {
                self.drives[n].power_cycle(Some(self.open_cartridge(&occupant.barcode)?));
            }
        }
        Ok(())
    }

    pub(crate) fn open_cartridge(&self, barcode: &str) -> Result<Cartridge> {
        let actual = self.faults.actual(barcode).unwrap_or_else(|| barcode.to_string());
        let dir = Elements::cartridge_dir(&self.config.dir, &actual);
        let mut cartridge = Cartridge::open(&dir, &actual, self.faults.clone())?;
        cartridge.stock = self.stock.clone();
        Ok(cartridge)
    }

    /// Records of just `length` bytes are written into the files of `dir` while there are some: each has that length, and lies
    /// on the file system of the library. For measurements, in which to find memory or disk space would count for the drive.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn write_into(&self, dir: &Path, length: u64) -> Result<()> {
        self.stock.fill(dir, length).map_err(io(dir, "list"))
    }

    // ---- access ----

    /// A way to drive `n` (from 0) for the process that owns the library.
    ///
    /// # Panics
    /// If there is no such drive.
    pub fn drive(self: &Arc<Self>, n: u16) -> LibraryTransport {
        self.drive_as(n, 0)
    }

    /// The same for another host (reservations and unit attentions are per host).
    ///
    /// # Panics
    /// If there is no such drive.
    pub fn drive_as(self: &Arc<Self>, n: u16, host: Host) -> LibraryTransport {
        assert!(usize::from(n) < self.drives.len(), "the virtual library has no drive {n}");
        LibraryTransport::new(self.clone(), Device::Drive(n), host)
    }

    /// A way to the changer for the process that owns the library.
    pub fn changer(self: &Arc<Self>) -> LibraryTransport {
        self.changer_as(0)
    }

    /// The same for another host.
    pub fn changer_as(self: &Arc<Self>, host: Host) -> LibraryTransport {
        LibraryTransport::new(self.clone(), Device::Changer, host)
    }

    /// Number of drives.
    pub fn drives(&self) -> u16 {
        self.drives.len() as u16
    }

    /// The configuration it was opened with.
    pub fn config(&self) -> &VtlConfig {
        &self.config
    }

    /// Counters of drive `n`; waits for the command that it is carrying out. None: no such drive.
    pub fn stats(&self, n: u16) -> Option<DriveStats> {
        self.drives.get(usize::from(n)).map(Drive::stats)
    }

    /// Last failure of the host's file system that the robot met since this was asked before: what its sense data cannot say.
    pub fn take_robot_error(&self) -> Option<String> {
        self.robot.lock().host_error.take()
    }

    /// Barcode in each full element, by address.
    pub fn contents(&self) -> Vec<(u16, String)> {
        let robot = self.robot.lock();
        robot.elements.full.iter().map(|(a, o)| (*a, o.barcode.clone())).collect()
    }

    // ---- faults and power ----

    /// Makes something go wrong.
    pub fn inject(&self, fault: Fault) {
        self.faults.add(fault);
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.faults.clear();
    }

    /// Power off and on again: what was not flushed is lost, all hosts get a unit attention.
    pub fn power_cycle(&self) -> Result<()> {
        let mut robot = self.robot.lock();
        robot.hosts.power_on();
        for drive in &self.drives {
            drive.drop_medium();
            drive.power_cycle(None);
        }
        self.restore(&robot)
    }

    /// Power off and on again of one drive: what it had not flushed is lost, all its hosts get a unit attention.
    pub fn power_cycle_drive(&self, n: u16) -> Result<()> {
        let robot = self.robot.lock();
        let Some(drive) = self.drives.get(usize::from(n)) else { return Ok(()) };
        drive.drop_medium();
        let inside =
            robot.elements.full.iter().find(|(a, _)| robot.elements.drive(**a) == Some(usize::from(n)));
        let cartridge = inside.map(|(_, o)| self.open_cartridge(&o.barcode)).transpose()?;
        drive.power_cycle(cartridge);
        Ok(())
    }

    /// Faults that were to begin with this command; those that happen at once do so.
    pub(crate) fn begin_faults(&self, device: Device, opcode: u8) {
        for fault in self.faults.arrive(device, opcode) {
            let done = match fault {
                Fault::Reset { drive } => {
                    self.reset_drive(drive);
                    Ok(())
                }
                Fault::PowerLoss { drive } => self.power_cycle_drive(drive),
                Fault::Alert { drive, flag } => {
                    self.drives.get(usize::from(drive)).into_iter().for_each(|d| d.raise(flag));
                    Ok(())
                }
                _ => self.power_cycle(),
            };
            if let Err(e) = done {
                self.robot.lock().host_error = Some(e.to_string());
            }
        }
    }

    /// Resets drive `n`: it stands at the beginning of partition 0 and every host gets unit attention 29/00.
    pub fn reset_drive(&self, n: u16) {
        if let Some(drive) = self.drives.get(usize::from(n)) {
            drive.reset();
        }
    }

    // ---- the operator's hands ----

    /// Makes a new empty cartridge, outside of the library; [`Library::insert`] puts it in.
    pub fn create_cartridge(&self, barcode: &str, capacity_bytes: u64) -> Result<()> {
        check_barcode(barcode)?;
        create(&self.config, barcode, capacity_bytes, false)
    }

    /// The same of WORM medium, which can be written once.
    pub fn create_worm_cartridge(&self, barcode: &str, capacity_bytes: u64) -> Result<()> {
        check_barcode(barcode)?;
        create(&self.config, barcode, capacity_bytes, true)
    }

    /// Makes a cleaning cartridge that is good for so many uses, outside of the library.
    pub fn create_cleaning_cartridge(&self, barcode: &str, uses: u64) -> Result<()> {
        check_barcode(barcode)?;
        create(&self.config, barcode, 1 << 20, false)?;
        let dir = Elements::cartridge_dir(&self.config.dir, barcode);
        let mut meta = Meta::load(&dir)?;
        meta.cleaning = Some(uses);
        meta.store(&dir)
    }

    /// The heads of drive `n` get dirty: it asks to be cleaned (TapeAlert 20) until it is.
    pub fn soil(&self, n: u16) {
        if let Some(drive) = self.drives.get(usize::from(n)) {
            drive.soil();
        }
    }

    /// The same, and it says so with the next record that it reads or writes (0/00/17).
    pub fn request_cleaning(&self, n: u16) {
        if let Some(drive) = self.drives.get(usize::from(n)) {
            drive.request_cleaning();
        }
    }

    /// Whether drive `n` asks to be cleaned.
    pub fn soiled(&self, n: u16) -> bool {
        self.drives.get(usize::from(n)).is_some_and(Drive::soiled)
    }

    /// Puts a cartridge that lies outside of the library into the first empty import/export slot; returns its address.
    pub fn insert(&self, barcode: &str) -> Result<u16> {
        check_barcode(barcode)?;
        let mut robot = self.robot.lock();
        if let Some(address) = robot.elements.find(barcode) {
            return Err(VtlError::Refused(format!("cartridge {barcode} is already in element {address}")));
        }
        Meta::load(&Elements::cartridge_dir(&self.config.dir, barcode))?;
        let Some(address) = robot.elements.empty(ElementType::ImportExport) else {
            return Err(VtlError::Refused(
                "all import/export slots are full: move a cartridge away first".into(),
            ));
        };
        let mut next = robot.elements.clone();
        next.full.insert(address, Occupant { barcode: barcode.into(), source: None, by_operator: true });
        next.store()?;
        robot.elements = next;
        robot.hosts.attention(0x28, 0x01);
        Ok(address)
    }

    /// Takes a cartridge out of an import/export slot; its directory stays where it is.
    pub fn remove(&self, barcode: &str) -> Result<()> {
        let mut robot = self.robot.lock();
        let at = robot.elements.find(barcode);
        let Some(address) = at.filter(|a| robot.elements.kind(*a) == Some(ElementType::ImportExport)) else {
            let what = format!("cartridge {barcode} is not in an import/export slot: move it there first");
            return Err(VtlError::Refused(what));
        };
        let mut next = robot.elements.clone();
        next.full.remove(&address);
        next.store()?;
        robot.elements = next;
        robot.hosts.attention(0x28, 0x01);
        Ok(())
    }

    /// Sets or clears the write-protect tab of a cartridge that is not in a drive.
    pub fn set_write_protect(&self, barcode: &str, protected: bool) -> Result<()> {
        check_barcode(barcode)?;
        let robot = self.robot.lock();
        if robot.elements.find(barcode).is_some_and(|a| robot.elements.drive(a).is_some()) {
            return Err(VtlError::Refused(format!("cartridge {barcode} is in a drive: unload it first")));
        }
        let dir = Elements::cartridge_dir(&self.config.dir, barcode);
        let mut meta = Meta::load(&dir)?;
        meta.protected = protected;
        meta.store(&dir)
    }
}

fn create(config: &VtlConfig, barcode: &str, capacity: u64, worm: bool) -> Result<()> {
    let serial = format!("{}{barcode}", config.serial);
    let meta = Meta { worm, ..Meta::new(serial, capacity) };
    Cartridge::create(&Elements::cartridge_dir(&config.dir, barcode), &meta)
}

/// Whether the media identifier at the end of a barcode is that of LTO WORM media (`LT` for the third generation to `LZ` for
/// the ninth).
fn is_worm(barcode: &str) -> bool {
    matches!(barcode.as_bytes(), [.., b'L', b'T'..=b'Z'])
}

/// Makes the cartridges of a new library. Runs again after a crash in the middle, so half-made ones are removed first.
fn populate(config: &VtlConfig, elements: &mut Elements) -> Result<()> {
    for n in 0..config.cartridges {
        let barcode = format!("{}{:04}{}", config.prefix, n + 1, config.media_of(n));
        let Some(address) = elements.empty(ElementType::Storage) else {
            let (cartridges, slots) = (config.cartridges, config.slots);
            return Err(VtlError::Refused(format!("{cartridges} cartridges do not fit into {slots} slots")));
        };
        let dir = Elements::cartridge_dir(&config.dir, &barcode);
        if !Meta::path(&dir).exists() {
            if dir.exists() {
                fs::remove_dir_all(&dir).map_err(io(&dir, "remove"))?;
            }
            create(config, &barcode, config.capacity_bytes, is_worm(&barcode))?;
        }
        elements.full.insert(address, Occupant { barcode, source: None, by_operator: false });
    }
    elements.store()
}
