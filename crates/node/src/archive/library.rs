//! A library when it comes into use: which cartridges are where, which drives answer.

use super::Event;
use super::cleaners::Cleaners;
use super::hardware::Site;
use super::media::Refusals;
use super::progress::Progress;
use super::revive::{Comeback, kept};
use super::shelf::Shelf;
use super::state::{DriveSlot, Serves, Standing, State};
use super::tapes;
use super::worker::{OpenDrive, Order, Worker};
use crate::Node;
use crate::config::{BlockProtection, Config, TapeConfig};
use crate::error::{failure, refused};
use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use sched::{Busy, DriveState, Work};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tape::{Changer, Drive, TapeError};
use types::*;
use wire::Failure;

/// Channels to the drives.
#[derive(Default)]
pub struct Workers(Mutex<BTreeMap<DriveNo, Sender<Order>>>);

impl Workers {
    /// Nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The way to a drive's thread.
    pub fn get(&self, drive: &DriveNo) -> Option<Sender<Order>> {
        self.0.lock().get(drive).cloned()
    }

    /// A drive has a thread.
    pub fn insert(&self, drive: DriveNo, orders: Sender<Order>) {
        self.0.lock().insert(drive, orders);
    }
}

/// Opens (or makes) a virtual library of the configuration, counted from 0: each has its own directory, serial number and
/// barcodes.
///
/// # Errors
/// Its directory cannot be used.
pub fn open_virtual(config: &Config, n: u8) -> Result<Arc<vtl::Library>, Failure> {
    let l = &config.library;
    let mut mechanics = match l.mechanics.as_str() {
        "lto9" => vtl::Mechanics::LTO9.scaled(1.0 / l.speed),
        _ => vtl::Mechanics::ZERO,
    };
    if l.drive_rate.0 > 0 {
        mechanics.stream_bytes_per_s = Some(l.drive_rate.0);
    }
    let wanted = vtl::VtlConfig {
        drives: l.drives,
        generations: l.generations.iter().map(|drive| drive.0).collect(),
        slots: l.slots,
        import_export: l.import_export,
        cartridges: l.cartridges,
        media: l.media.0.clone(),
        capacity_bytes: l.cartridge_capacity.0,
        buffer_bytes: l.drive_buffer.0,
        mechanics,
        serial: format!("TCVTL{:03}", n + 1),
        prefix: format!("T{}", char::from(b'C' + n)),
        ..vtl::VtlConfig::new(numbered(&config.library_path(), n))
    };
    vtl::Library::open(wanted).map_err(|e| {
        let busy = matches!(e, vtl::VtlError::InUse { .. });
        failure(if busy { ErrorClass::Busy } else { ErrorClass::Library }, e.to_string())
    })
}

/// The path of the first as it is, of the second with `-2` behind it.
pub fn numbered(path: &Path, n: u8) -> PathBuf {
    match n {
        0 => path.to_owned(),
        n => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!("-{}", n + 1));
            name.into()
        }
    }
}

/// As a caller of the node is told.
pub fn tape_failure(e: &TapeError) -> Failure {
    failure(e.class(), e.to_string())
}

/// Waits in earnest.
pub fn sleeper() -> tape::Sleeper {
    Box::new(crate::clock::sleep)
}

/// A drive that somebody is to work.
pub struct Station {
    /// What is to be done there.
    pub worker: Worker,
    /// The drive; None if it did not answer.
    pub drive: Option<Drive>,
    /// Opens it anew.
    pub open: OpenDrive,
}

impl Station {
    /// Starts a thread that carries out what `orders` bring.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn man(self, orders: Receiver<Order>) -> Result<(), Failure> {
        let Self { worker, drive, open } = self;
        let (node, name) = (worker.node.clone(), format!("drive-{}", worker.no));
        crate::startup::spawn(Some(&node), &name, move || worker.run(drive, &open, &orders)).map(drop)
    }
}

/// Orders that a drive has not begun yet, at most.
pub const ORDERS: usize = 4;

/// Takes the inventory of every library, opens the drives and starts a thread for each.
///
/// # Errors
/// No library can be used, and none may come later because another host has it: what is the matter with the first.
pub fn open_for_work(node: &Arc<Node>) -> Result<Workers, Failure> {
    let workers = Workers::new();
    let mut failed = None;
    for library in node.libraries() {
        match take_stock(node, library).and_then(|stock| man(&workers, enter(node, stock))) {
            Ok(()) => {}
            Err(e) => {
                out_of_use(node, library, &e.message);
                failed = failed.or(Some(e));
            }
        }
    }
    let may_come = |library| node.hardware(library).is_some_and(|hardware| hardware.is_elsewhere());
    let in_use = node.archive.state.lock().shelves.values().any(|shelf| shelf.out.is_none());
    let usable = in_use || node.libraries().any(may_come);
    match failed {
        Some(e) if !usable => Err(e),
        _ => Ok(workers),
    }
}

fn man(workers: &Workers, stations: Vec<Station>) -> Result<(), Failure> {
    for station in stations {
        let (orders, queue) = crossbeam_channel::bounded(ORDERS);
        workers.insert(station.worker.no, orders);
        station.man(queue)?;
    }
    Ok(())
}

/// Drives that have no place in their library, and why.
pub type Failed = BTreeMap<DriveNo, Failure>;

/// What a look at a library gave.
pub struct Stock {
    library: LibraryNo,
    product: String,
    elements: Vec<ElementView>,
    robot: Arc<Mutex<Changer>>,
    drives: Vec<(DriveSlot, Station)>,
}

impl Stock {
    /// Numbers of the drives that were opened, or tried.
    pub fn drives(&self) -> impl Iterator<Item = DriveNo> + '_ {
        self.drives.iter().map(|(slot, _)| slot.no)
    }
}

/// Takes the inventory of a library and opens its drives. One that it does not have is left out, as long as it has others.
///
/// # Errors
/// It does not answer, or is not as the configuration says.
pub fn take_stock(node: &Arc<Node>, library: LibraryNo) -> Result<Stock, Failure> {
    let hardware = node.hardware(library).ok_or_else(|| failure(ErrorClass::Bug, "no such library"))?;
    let mut changer = hardware.changer()?;
    let key = fence_key(node)?;
    // Another node may have come to serve while this one was starting: that one has them.
    node.counts()?;
    if let Some(key) = key {
        changer.claim(key, node.config.preempt).map_err(|e| tape_failure(&e))?;
    }
    let elements = changer.inventory().map_err(|e| tape_failure(&e))?;
    enter_volumes(node, &elements)?;
    let product = changer.product().to_owned();
    let robot = Arc::new(Mutex::new(changer));
    let (drives, failed) = stations(node, library, (&robot, &elements), &|_, _| true)?;
    // Whoever watches its door tells of those that have no place, if there are others.
    match failed.into_values().next().filter(|_| drives.is_empty()) {
        Some(e) => Err(e),
        None => Ok(Stock { library, product, elements, robot, drives }),
    }
}

/// The same of the drives that a library in use has, as far as they are `wanted` in their element; and why others have no place in it.
///
/// # Errors
/// It does not answer.
pub fn take_stock_of(
    node: &Arc<Node>,
    library: LibraryNo,
    robot: &Arc<Mutex<Changer>>,
    wanted: &dyn Fn(DriveNo, u16) -> bool,
) -> Result<(Stock, Failed), Failure> {
    let (elements, product) = {
        let mut robot = robot.lock();
        let elements = robot.inventory().map_err(|e| tape_failure(&e))?;
        // The robot tells once that something has changed: so it is for everybody, and known before it moves anything.
        node.archive.send(Event::Inventory(library, elements.clone()));
        (elements, robot.product().to_owned())
    };
    let (drives, failed) = stations(node, library, (robot, &elements), wanted)?;
    Ok((Stock { library, product, elements, robot: robot.clone(), drives }, failed))
}

fn stations(
    node: &Arc<Node>,
    library: LibraryNo,
    (robot, elements): (&Arc<Mutex<Changer>>, &[ElementView]),
    wanted: &dyn Fn(DriveNo, u16) -> bool,
) -> Result<(Vec<(DriveSlot, Station)>, Failed), Failure> {
    let hardware = node.hardware(library).ok_or_else(|| failure(ErrorClass::Bug, "no such library"))?;
    let settings = tape::Settings { key: fence_key(node)?, ..settings(&node.config.tape) };
    let first = node.first_drive(library);
    let number = |n: usize| DriveNo(first + n as u16);
    let sought = hardware.drives(robot, elements, settings, &|n, element| wanted(number(n), element))?;
    node.counts()?;
    let (mut stations, mut failed) = (Vec::new(), Failed::new());
    for (n, site) in sought {
        match site {
            Ok(site) => stations.push(station(node, (library, number(n)), site, robot)),
            Err(e) => drop(failed.insert(number(n), e)),
        }
    }
    Ok((stations, failed))
}

/// How drives are used.
pub(super) fn settings(config: &TapeConfig) -> tape::Settings {
    tape::Settings {
        block_protection: config.block_protection == BlockProtection::Auto,
        compression: config.compression,
        append_only: config.append_only,
        key: None,
    }
}

fn station(
    node: &Arc<Node>,
    (library, no): (LibraryNo, DriveNo),
    Site { element, open }: Site,
    robot: &Arc<Mutex<Changer>>,
) -> (DriveSlot, Station) {
    let progress = Arc::new(Progress::default());
    let keys = node.keys.clone().map(|keys| keys as tape::KeySource);
    let told = progress.clone();
    let watcher: tape::Watcher = Arc::new(move |load| told.slow_load.tell(load));
    let open: OpenDrive = Box::new(move || Ok(open()?.with_keys(keys.clone()).watched(watcher.clone())));
    let drive = open().and_then(|mut drive| drive.claim(node.config.preempt).map(|_| drive));
    progress.claimed(drive.as_ref().map(Drive::claimed).unwrap_or_default());
    let mut slot = slot((library, no), &element, &drive, progress.clone());
    let drive = match drive {
        Ok(drive) => Some(drive),
        Err(e) => {
            slot.errors = 1;
            slot.suspect(e.to_string());
            node.archive.warn(e.to_string());
            None
        }
    };
    let worker = Worker::new(node.clone(), no, (library, element.address), robot.clone(), progress);
    (slot, Station { worker, drive, open })
}

/// Enters what a look at a library gave; returns the drives that somebody is to work.
pub fn enter(node: &Node, stock: Stock) -> Vec<Station> {
    let Stock { library, product, elements, robot, drives } = stock;
    node.archive.robots.lock().insert(library, robot);
    let mut state = node.archive.state.lock();
    if state.shelves.values().all(|shelf| shelf.out.is_some()) {
        state.cleaners = Cleaners::load(&node.config.state_dir);
    }
    let name = node.library_name(library);
    state.shelves.insert(library, Shelf { name, product, ..Shelf::default() });
    state.set_elements(library, elements);
    // What stood for them while it could not be used.
    state.drives.retain(|_, drive| drive.library != library);
    enter_drives(node, &mut state, drives)
}

fn enter_drives(node: &Node, state: &mut State, drives: Vec<(DriveSlot, Station)>) -> Vec<Station> {
    let entered = drives.into_iter().map(|(mut slot, station)| {
        slot.comeback.out = kept(node, &slot.serial);
        state.drives.insert(slot.no, slot);
        station
    });
    entered.collect()
}

/// A library cannot be used: its drives are suspect, and it is tried again.
pub fn out_of_use(node: &Node, library: LibraryNo, why: &str) {
    let name = node.library_name(library);
    node.archive.warn(format!("library {name} cannot be used: {why}; it is tried again by itself"));
    enter_out(node, library, why);
}

/// Enters a library and its drives as out of use.
pub fn enter_out(node: &Node, library: LibraryNo, why: &str) {
    let Some(hardware) = node.hardware(library) else { return };
    let name = hardware.name().to_owned();
    let mut state = node.archive.state.lock();
    let numbers = (node.first_drive(library)..).map(DriveNo);
    for (no, serial) in numbers.zip(hardware.serials()) {
        let none = ElementView {
            address: 0,
            kind: ElementKind::Drive,
            full: false,
            barcode: None,
            source: None,
            exception: None,
            outgoing: false,
        };
        let away = Err(super::trouble::no_drive(&Barcode::default(), "its library does not answer"));
        let mut slot = slot((library, no), &none, &away, Arc::default());
        slot.serial = serial;
        slot.status.set(DriveStatus::Suspect(format!("its library {name} cannot be used")));
        state.drives.insert(no, slot);
    }
    let out = Some(why.to_owned());
    state.shelves.insert(library, Shelf { name, out, ..Shelf::default() });
    state.replace_all();
}

/// A library that could not be used answers now, or has drives that it did not have before.
pub fn came_back(node: &Arc<Node>, workers: &Workers, stock: Stock) {
    let library = stock.library;
    let name = node.library_name(library);
    let out = {
        let state = node.archive.state.lock();
        if state.stopping.is_some() {
            return;
        }
        state.shelves.get(&library).is_none_or(|shelf| shelf.out.is_some())
    };
    let stations = if out { enter(node, stock) } else { enter_more(node, stock) };
    let drives: Vec<DriveNo> = stations.iter().map(|station| station.worker.no).collect();
    if let Err(e) = man(workers, stations) {
        node.archive.warn(format!("drives of library {name} have no thread: {}", e.message));
    }
    super::ends::put_away_leftovers(node, workers, &drives);
    if out {
        super::ends::index_what_a_crash_left(node);
        node.archive.warn(format!("library {name} is in use now"));
    } else if !drives.is_empty() {
        let numbers: Vec<String> = drives.iter().map(ToString::to_string).collect();
        node.archive.warn(format!("library {name} has more drives: {}", numbers.join(", ")));
    }
}

/// Enters drives that a library in use did not have before, or that never answered where they were looked for. Of the latter all or none: their elements may be each other's.
fn enter_more(node: &Node, stock: Stock) -> Vec<Station> {
    // From a look at a library that was out of use then, and has come back by another one: whoever watches its door looks again.
    let same = |robot: &Arc<Mutex<Changer>>| Arc::ptr_eq(robot, &stock.robot);
    if !node.archive.robots.lock().get(&stock.library).is_some_and(same) {
        return Vec::new();
    }
    let mut state = node.archive.state.lock();
    let known = |no: &DriveNo| state.drives.get(no);
    let settled = stock.drives().any(|no| known(&no).is_some_and(|slot| !slot.may_be_elsewhere()));
    let new: Vec<_> =
        stock.drives.into_iter().filter(|(slot, _)| !settled || known(&slot.no).is_none()).collect();
    let stations = enter_drives(node, &mut state, new);
    state.look_again();
    stations
}

/// Key of this node for reservations: of its namespace and this machine, so that a copy of either is another.
fn fence_key(node: &Node) -> Result<Option<u64>, Failure> {
    if !node.config.tape.reserve {
        return Ok(None);
    }
    let site = node.catalog.site().map_err(|e| refused("the namespace's name", &e))?.unwrap_or_default();
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let machine = if machine.trim().is_empty() { host.as_str() } else { machine.trim() };
    Ok(Some(tape::fence::key(&format!("{site} {machine}"))))
}

/// A cartridge left in a drive by the last run is put away before the drive is used.
pub fn slot(
    (library, no): (LibraryNo, DriveNo),
    element: &ElementView,
    drive: &Result<Drive, TapeError>,
    progress: Arc<Progress>,
) -> DriveSlot {
    let left = element.barcode.clone().filter(|_| element.full);
    let state = match left {
        Some(volume) => DriveState::Busy(Busy::new(volume, Work::Unmount)),
        None => DriveState::Empty,
    };
    let (product, serial) = drive
        .as_ref()
        .map_or_else(|_| Default::default(), |d| (d.product().to_owned(), d.serial().to_owned()));
    let mut comeback = Comeback::default();
    let mut status = DriveStatus::Free;
    if element.full && element.barcode.is_none() {
        // Nobody knows which: it goes into a slot before the drive is used.
        status = DriveStatus::Suspect("a cartridge without a readable barcode is in it".into());
        comeback.failed();
    }
    DriveSlot {
        no,
        library,
        element: element.address,
        product,
        serial,
        comeback,
        state,
        status: Standing::new(status),
        activity: String::new(),
        serves: Serves::default(),
        progress,
        home: element.source,
        mounted: Time::default(),
        begun: Time::default(),
        mounts: 0,
        errors: 0,
        alerts: Vec::new(),
        soiled: false,
        resets: 0,
        reach: drive.as_ref().map(Drive::reach).unwrap_or_default(),
        refusals: Refusals::default(),
    }
}

/// True for a cleaning cartridge: by the convention of all libraries its barcode begins so. It is no volume.
pub fn is_cleaning(barcode: &Barcode) -> bool {
    barcode.as_str().starts_with("CLN")
}

/// Cartridges that the catalogue has never seen are entered as unknown.
pub fn enter_volumes(node: &Node, elements: &[ElementView]) -> Result<(), Failure> {
    let seen = tapes::all(node);
    let new = |barcode: &&Barcode| !is_cleaning(barcode) && !seen.contains_key(*barcode);
    for barcode in elements.iter().filter_map(|e| e.barcode.as_ref()).filter(new) {
        let fail = |e| refused(&format!("volume {barcode}"), &e);
        let known = match node.catalog.volume(barcode) {
            // It is out of use until its record is mended; the others are not concerned.
            Err(e) if e.is_damage() => continue,
            known => known.map_err(fail)?,
        };
        if known.is_none() {
            node.catalog.put_volume(&Volume::new(barcode.clone(), crate::now())).map_err(fail)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::testing::Rig;

    #[test]
    fn cleaning_cartridges_are_no_volumes() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let element = |address, barcode: &str| ElementView {
            kind: ElementKind::Slot,
            address,
            full: true,
            barcode: Some(Barcode::from(barcode)),
            source: None,
            exception: None,
            outgoing: false,
        };
        enter_volumes(node, &[element(1, "CLN001L9"), element(2, "TC0001L9")]).unwrap();
        assert_eq!(node.catalog.volume(&Barcode::from("CLN001L9")).unwrap(), None);
        assert_eq!(
            node.catalog.volume(&Barcode::from("TC0001L9")).unwrap().unwrap().state,
            VolumeState::Unknown
        );
    }
}
