//! The library at start: which cartridges are where, which drives answer.

use super::cleaners::Cleaners;
use super::hardware::Site;
use super::media::Refusals;
use super::progress::Progress;
use super::revive::Comeback;
use super::state::DriveSlot;
use super::worker::{OpenDrive, Order, Worker};
use crate::Node;
use crate::config::Config;
use crate::error::{failure, refused};
use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use sched::{Busy, DriveState, Work};
use std::collections::BTreeMap;
use std::sync::Arc;
use tape::{Drive, TapeError};
use types::*;
use wire::Failure;

/// Channels to the drives.
pub type Workers = BTreeMap<DriveNo, Sender<Order>>;

/// Opens (or makes) the virtual library of the configuration.
///
/// # Errors
/// Its directory cannot be used.
pub fn open_virtual(config: &Config) -> Result<Arc<vtl::Library>, Failure> {
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
        mechanics,
        ..vtl::VtlConfig::new(config.library_path())
    };
    vtl::Library::open(wanted).map_err(|e| {
        let busy = matches!(e, vtl::VtlError::InUse { .. });
        failure(if busy { ErrorClass::Busy } else { ErrorClass::Library }, e.to_string())
    })
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

/// Takes the inventory, opens the drives and starts a thread for each.
pub fn open_for_work(node: &Arc<Node>) -> Result<Workers, Failure> {
    let mut workers = Workers::new();
    for station in take_stock(node)? {
        let (orders, queue) = crossbeam_channel::bounded(ORDERS);
        workers.insert(station.worker.no, orders);
        station.man(queue)?;
    }
    Ok(workers)
}

/// Takes the inventory and opens the drives.
pub fn take_stock(node: &Arc<Node>) -> Result<Vec<Station>, Failure> {
    let mut changer = node.hardware.changer()?;
    let key = fence_key(node)?;
    if let Some(key) = key {
        changer.claim(key, node.config.preempt).map_err(|e| tape_failure(&e))?;
    }
    let elements = changer.inventory().map_err(|e| tape_failure(&e))?;
    enter_volumes(node, &elements)?;
    let product = changer.product().to_owned();
    let settings = tape::Settings { key, ..node.config.tape.settings() };
    let sites = node.hardware.drives(&mut changer, &elements, settings)?;
    let robot = Arc::new(Mutex::new(changer));
    let mut stations = Vec::new();
    node.archive.robots.lock().push(robot.clone());
    for (n, Site { element, open }) in (0..).zip(sites) {
        let no = DriveNo(n);
        let progress = Arc::new(Progress::default());
        let keys = node.keys.clone().map(|keys| keys as tape::KeySource);
        let told = progress.clone();
        let watcher: tape::Watcher = Arc::new(move |load| told.slow_load.tell(load));
        let open: OpenDrive = Box::new(move || Ok(open()?.with_keys(keys.clone()).watched(watcher.clone())));
        let drive = open().and_then(|mut drive| drive.claim(node.config.preempt).map(|_| drive));
        progress.claimed(drive.as_ref().map(Drive::claimed).unwrap_or_default());
        let mut slot = slot(no, &element, &drive, progress.clone());
        let drive = match drive {
            Ok(drive) => Some(drive),
            Err(e) => {
                slot.errors = 1;
                slot.suspect(e.to_string());
                node.archive.warn(e.to_string());
                None
            }
        };
        node.archive.state.lock().drives.insert(no, slot);
        let worker = Worker::new(node.clone(), no, element.address, robot.clone(), progress);
        stations.push(Station { worker, drive, open });
    }
    let mut state = node.archive.state.lock();
    state.cleaners = Cleaners::load(&node.config.state_dir);
    state.library_name = node.hardware.name().to_owned();
    state.library_product = product;
    state.set_elements(elements);
    Ok(stations)
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
fn slot(
    no: DriveNo,
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
        element: element.address,
        product,
        serial,
        comeback,
        state,
        status,
        activity: String::new(),
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
    for barcode in elements.iter().filter_map(|e| e.barcode.as_ref()).filter(|b| !is_cleaning(b)) {
        let fail = |e| refused(&format!("volume {barcode}"), &e);
        if node.catalog.volume(barcode).map_err(fail)?.is_none() {
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
            barcode: Some(Barcode(barcode.into())),
            source: None,
            exception: None,
            outgoing: false,
        };
        enter_volumes(node, &[element(1, "CLN001L9"), element(2, "TC0001L9")]).unwrap();
        assert_eq!(node.catalog.volume(&Barcode("CLN001L9".into())).unwrap(), None);
        assert_eq!(
            node.catalog.volume(&Barcode("TC0001L9".into())).unwrap().unwrap().state,
            VolumeState::Unknown
        );
    }
}
