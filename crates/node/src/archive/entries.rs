//! What the configuration says of the drives of an attached library. It may say something else while the node runs: that counts for a drive when it is opened
//! next, so what it does just then does not notice.

use super::library::sleeper;
use super::trouble::misplaced;
use crate::attached::{AttachedDrive, Device};
use crate::devices::NodePeers;
use parking_lot::{Mutex, RwLock};
use scsi::Transport;
use std::path::Path;
use std::sync::Arc;
use tape::discover::identifies;
use tape::{Changer, Drive, TapeError};

/// The drives in the order of their numbers. More may come, none goes.
pub struct Entries {
    all: RwLock<Vec<Entry>>,
    peers: NodePeers,
}

struct Entry {
    now: AttachedDrive,
    /// With what it was opened last.
    used: Option<AttachedDrive>,
    /// As what somebody just opens it.
    opening: Option<AttachedDrive>,
}

impl Entry {
    fn new(now: &AttachedDrive) -> Self {
        Self { now: now.clone(), used: None, opening: None }
    }

    /// Whether it is, or is about to be, at work as a drive that cannot be in use together with this one.
    fn meets(&self, drive: &AttachedDrive) -> bool {
        self.used.iter().chain(&self.opening).any(|used| used.meets(drive))
    }
}

impl Entries {
    /// Those of a configuration, for the node with this state directory.
    pub fn new(drives: &[AttachedDrive], state: &Path) -> Self {
        Self { all: RwLock::new(drives.iter().map(Entry::new).collect()), peers: NodePeers::of(state) }
    }

    /// A way to a device of the library.
    pub fn way(&self, device: &Device) -> Box<dyn Transport> {
        device.0.transport(&self.peers)
    }

    /// From now on the configuration says this of them, and may have more.
    pub fn renew(&self, drives: &[AttachedDrive]) {
        let mut all = self.all.write();
        all.iter_mut().zip(drives).for_each(|(entry, drive)| entry.now.clone_from(drive));
        let known = all.len();
        all.extend(drives.iter().skip(known).map(Entry::new));
    }

    /// As the configuration says now.
    pub fn now(&self) -> Vec<AttachedDrive> {
        self.all.read().iter().map(|entry| entry.now.clone()).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.read().len()
    }

    /// One of them, counted from 0, as it is used: what the configuration says since it was opened does not count for it yet.
    pub fn used(&self, n: usize) -> Option<AttachedDrive> {
        self.all.read().get(n).map(|entry| entry.used.as_ref().unwrap_or(&entry.now).clone())
    }

    /// Whether one of them was opened, as whatever, or just is.
    pub fn was_opened(&self, n: usize) -> bool {
        self.all.read().get(n).is_some_and(|entry| entry.used.is_some() || entry.opening.is_some())
    }

    /// Opens one of them as the configuration says now.
    ///
    /// # Errors
    /// It does not answer, is another drive, or is not in the element into which the node has its cartridges put.
    pub fn open(&self, n: usize, place: &Place) -> Result<Drive, TapeError> {
        let now = self.all.read().get(n).map(|entry| entry.now.clone());
        let now = now.ok_or_else(|| misplaced("the configuration has no such drive".into()))?;
        if now != place.drive {
            place.takes(&now)?;
        }
        self.begin(n, &now)?;
        let drive = Drive::open(self.way(&now.device), sleeper());
        let drive = drive.and_then(|drive| drive.insist(now.serial.as_deref()));
        if let Some(entry) = self.all.write().get_mut(n) {
            entry.opening = None;
            if drive.is_ok() {
                entry.used = Some(now);
            }
        }
        drive
    }

    /// One of them is about to be opened. An error if another one was that drive, or was there, before and has not been opened anew since: it may be at work.
    fn begin(&self, n: usize, now: &AttachedDrive) -> Result<(), TapeError> {
        let mut all = self.all.write();
        if all.iter().enumerate().any(|(m, entry)| m != n && entry.meets(now)) {
            let why = format!(
                "drive {} is still in use as another one of its library: `thermo drive down` and `thermo drive up` for that one first",
                now.device.0
            );
            return Err(misplaced(why));
        }
        if let Some(entry) = all.get_mut(n) {
            entry.opening = Some(now.clone());
        }
        Ok(())
    }
}

/// The element of a library into which cartridges for a drive are put.
pub struct Place {
    /// Name of the library.
    pub library: String,
    /// Its robot.
    pub robot: Arc<Mutex<Changer>>,
    /// Address of the element.
    pub element: u16,
    /// The drive that was found to be there.
    pub drive: AttachedDrive,
}

impl Place {
    /// Asks the robot whether another drive is here, as the configuration says now.
    fn takes(&self, drive: &AttachedDrive) -> Result<(), TapeError> {
        let Self { library, element, .. } = self;
        let (device, serial) = (&drive.device.0, drive.serial.as_deref().unwrap_or("(none)"));
        if let Some(other) = drive.element.filter(|other| other != element) {
            let why = format!(
                "drive {device}: that it is in element {other} of library {library}, not in {element}, counts from the next start of the node on"
            );
            return Err(misplaced(why));
        }
        let identified = self.robot.lock().drives()?;
        if let Some(why) = is_another(drive, (library, *element), &identified) {
            return Err(misplaced(why));
        }
        if drive.element.is_none() && !identified.iter().any(|(at, _)| at == element) {
            let why = format!(
                "drive {device}: library {library} does not say that serial number {serial} is in element {element}: if it is, add `element = {element}`"
            );
            return Err(misplaced(why));
        }
        Ok(())
    }
}

/// Why a drive of the configuration is not in this element of a library, as that says itself.
pub fn is_another(
    drive: &AttachedDrive,
    (library, element): (&str, u16),
    identified: &[(u16, String)],
) -> Option<String> {
    let serial = drive.serial.as_deref()?;
    let (_, id) = identified.iter().find(|(at, id)| *at == element && !identifies(id, serial))?;
    Some(format!(
        "drive {}: library {library} has drive {id} in element {element}, not serial number {serial}: run `thermo library discover --write`",
        drive.device.0
    ))
}
