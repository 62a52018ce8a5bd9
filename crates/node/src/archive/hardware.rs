//! The tape library of this node: the built-in virtual one, or one that is attached.

use super::entries::{Entries, Place, is_another};
use super::library::{numbered, open_virtual, sleeper, tape_failure};
use super::worker::OpenDrive;
use crate::Node;
use crate::attached::{AttachedDrive, AttachedLibrary, Device, Used, VIRTUAL};
use crate::config::Config;
use crate::error::failure;
use parking_lot::{Mutex, RwLock};
use scsi::{Address, Transport};
use std::path::Path;
use std::sync::Arc;
use tape::{Changer, Drive, Settings};
use types::{DriveNo, ElementKind, ElementView, ErrorClass, LibraryNo, PathNo};
use wire::Failure;

/// Where drives and robot are.
pub enum Hardware {
    /// In this process; maybe also served to other programs.
    Virtual {
        /// Name for people.
        name: String,
        /// The library.
        library: Arc<vtl::Library>,
        /// Keeps the sockets.
        _sockets: Option<vtl::Server>,
    },
    /// Behind the operating system or a network.
    Attached {
        /// Name for people.
        name: String,
        /// Where its robot is.
        changer: Device,
        /// Serial number that the robot must give.
        serial: Option<String>,
        /// Its drives.
        drives: Arc<Entries>,
    },
    /// In a simulator's world.
    Simulated(Arc<dyn Devices>),
}

/// The libraries of a node, in the order of their numbers. More may come while it runs, none goes.
pub struct Libraries(RwLock<Known>);

struct Known {
    hardware: Vec<Arc<Hardware>>,
    /// Data path of each drive, in the order of their numbers.
    paths: Vec<PathNo>,
}

impl Libraries {
    /// Those that a node begins with.
    pub fn new(hardware: Vec<Hardware>) -> Self {
        let hardware: Vec<Arc<Hardware>> = hardware.into_iter().map(Arc::new).collect();
        let paths = data_paths(&hardware);
        Self(RwLock::new(Known { hardware, paths }))
    }

    /// All attached drives as they are used, whatever the configuration says by now.
    pub fn used(&self) -> Vec<Used> {
        let Known { hardware, .. } = &*self.0.read();
        let places = hardware.iter().flat_map(|one| (0..usize::from(one.count())).map(move |n| (one, n)));
        let used = |(no, (one, n)): (DriveNo, (&Arc<Hardware>, usize))| match &**one {
            Hardware::Attached { drives, .. } => {
                Some(Used { no, opened: drives.was_opened(n), drive: drives.used(n)? })
            }
            _ => None,
        };
        (0..).map(DriveNo).zip(places).filter_map(used).collect()
    }

    /// From now on the configuration says this of them, and may have more: their numbers. Virtual ones stay as they are.
    pub fn renew(&self, config: &[AttachedLibrary], state: &Path) -> Vec<LibraryNo> {
        let Known { hardware, paths } = &mut *self.0.write();
        if !hardware.iter().all(|one| one.is_attached()) {
            return Vec::new();
        }
        for (one, library) in hardware.iter().zip(config) {
            if let Hardware::Attached { drives, .. } = &**one {
                drives.renew(&library.drives);
            }
        }
        let known = hardware.len();
        hardware
            .extend(config.iter().skip(known).map(|library| Arc::new(Hardware::attached(library, state))));
        *paths = data_paths(hardware);
        (known as u16..hardware.len() as u16).map(LibraryNo).collect()
    }
}

/// The devices of a simulated library.
pub trait Devices: Send + Sync {
    /// A way to the robot.
    fn changer(&self) -> Box<dyn Transport>;
    /// A way to a drive, counted from 0 in the order of the elements.
    fn drive(&self, n: u16) -> Box<dyn Transport>;
}

/// A drive of the library, counted from 0; or why it has no place there.
pub type Sought = (usize, Result<Site, Failure>);

/// A drive of the library: its element, and how it is opened.
pub struct Site {
    /// Its place in the inventory.
    pub element: ElementView,
    /// Opens it, again and again if need be.
    pub open: OpenDrive,
}

impl Hardware {
    /// The libraries of the configuration: those that are attached, else virtual ones, of which the first may be given.
    ///
    /// # Errors
    /// A virtual library cannot be used.
    pub fn of(config: &Config, given: Option<Arc<vtl::Library>>) -> Result<Vec<Self>, Failure> {
        if !config.libraries.is_empty() {
            let attached = |library| Self::attached(library, &config.state_dir);
            return Ok(config.libraries.iter().map(attached).collect());
        }
        let mut given = given;
        (0..config.library.count).map(|n| Self::virtual_one(config, n, given.take())).collect()
    }

    fn attached(library: &AttachedLibrary, state: &Path) -> Self {
        Self::Attached {
            name: library.name.clone(),
            changer: library.changer.clone(),
            serial: library.serial.clone(),
            drives: Arc::new(Entries::new(&library.drives, state)),
        }
    }

    fn virtual_one(config: &Config, n: u8, given: Option<Arc<vtl::Library>>) -> Result<Self, Failure> {
        let library = given.map_or_else(|| open_virtual(config, n), Ok)?;
        let sockets = config.library.sockets.as_deref().map(|dir| numbered(dir, n));
        let sockets = sockets.map(|dir| vtl::serve(library.clone(), &dir)).transpose();
        let _sockets = sockets.map_err(|e| failure(ErrorClass::Library, e.to_string()))?;
        let name = numbered(Path::new(VIRTUAL), n).display().to_string();
        Ok(Self::Virtual { name, library, _sockets })
    }

    /// Name for people.
    pub fn name(&self) -> &str {
        match self {
            Self::Virtual { name, .. } | Self::Attached { name, .. } => name,
            Self::Simulated(_) => VIRTUAL,
        }
    }

    /// Whether its robot is at another node: that may be away when this one begins.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Attached { changer, .. } if matches!(changer.0, Address::Node(_)))
    }

    /// Serial numbers of its drives as far as they are known without asking, one for each drive.
    pub fn serials(&self) -> Vec<String> {
        match self {
            Self::Virtual { library, .. } => vec![String::new(); library.drives().into()],
            Self::Simulated(_) => Vec::new(),
            Self::Attached { .. } => {
                self.entries().into_iter().map(|drive| drive.serial.unwrap_or_default()).collect()
            }
        }
    }

    /// What the configuration says of its drives; nothing of those that are not attached.
    pub fn entries(&self) -> Vec<AttachedDrive> {
        match self {
            Self::Virtual { .. } | Self::Simulated(_) => Vec::new(),
            Self::Attached { drives, .. } => drives.now(),
        }
    }

    /// How many drives it has, as far as that is known without asking.
    pub fn count(&self) -> u16 {
        match self {
            Self::Virtual { library, .. } => library.drives(),
            Self::Simulated(_) => 0,
            Self::Attached { drives, .. } => drives.count() as u16,
        }
    }

    /// Whether one of its drives, counted from 0, was ever opened; so it is of those that are not attached.
    pub fn was_opened(&self, n: usize) -> bool {
        match self {
            Self::Virtual { .. } | Self::Simulated(_) => true,
            Self::Attached { drives, .. } => drives.was_opened(n),
        }
    }

    /// Address of one of its drives, counted from 0; None: it has none of its own.
    pub fn device(&self, n: usize) -> Option<Address> {
        match self {
            Self::Virtual { .. } | Self::Simulated(_) => None,
            Self::Attached { drives, .. } => drives.used(n).map(|drive| drive.device.0),
        }
    }

    /// Data path of each of its drives, by name.
    fn data_paths(&self) -> Vec<String> {
        match self {
            Self::Virtual { .. } | Self::Simulated(_) => vec!["this process".into(); self.count().into()],
            Self::Attached { .. } => self.entries().iter().map(AttachedDrive::data_path).collect(),
        }
    }

    /// Whether it is one of metal (or takes the place of one).
    pub fn is_attached(&self) -> bool {
        matches!(self, Self::Attached { .. })
    }

    /// Why a virtual robot could not do what it was told, beyond what its sense data say.
    pub fn robot_trouble(&self) -> Option<String> {
        match self {
            Self::Virtual { library, .. } => library.take_robot_error(),
            Self::Attached { .. } | Self::Simulated(_) => None,
        }
    }

    /// Opens the robot.
    ///
    /// # Errors
    /// It does not answer, or is another one than the configuration says.
    pub fn changer(&self) -> Result<Changer, Failure> {
        let opened = match self {
            Self::Virtual { library, .. } => Changer::open(Box::new(library.changer()), sleeper()),
            Self::Attached { changer, serial, drives, .. } => Changer::open(drives.way(changer), sleeper())
                .and_then(|changer| changer.insist(serial.as_deref())),
            Self::Simulated(devices) => Changer::open(devices.changer(), sleeper()),
        };
        opened.map_err(|e| tape_failure(&e))
    }

    /// The drives in the order of the configuration that are `wanted` in their element, each used as `settings` say; and those that the library does not have.
    ///
    /// # Errors
    /// The library does not answer.
    pub fn drives(
        &self,
        robot: &Arc<Mutex<Changer>>,
        elements: &[ElementView],
        settings: Settings,
        wanted: &dyn Fn(usize, u16) -> bool,
    ) -> Result<Vec<Sought>, Failure> {
        let drives = elements.iter().filter(|e| e.kind == ElementKind::Drive);
        match self {
            Self::Virtual { library, .. } => {
                let site = |(n, e)| {
                    let library = library.clone();
                    (usize::from(n), Ok(site(move || Box::new(library.drive(n)), e, settings)))
                };
                Ok((0..).zip(drives).map(site).collect())
            }
            Self::Simulated(devices) => {
                let site = |(n, e)| {
                    let devices = devices.clone();
                    (usize::from(n), Ok(site(move || devices.drive(n), e, settings)))
                };
                Ok((0..).zip(drives).map(site).collect())
            }
            Self::Attached { name, drives: entries, .. } => {
                let identified = robot.lock().drives().map_err(|e| tape_failure(&e))?;
                let elements: Vec<&ElementView> = drives.collect();
                let site = |n, drive, element: &ElementView| {
                    let (library, robot) = (name.clone(), robot.clone());
                    let place = Place { library, robot, element: element.address, drive };
                    let entries = entries.clone();
                    let open: OpenDrive = Box::new(move || Ok(entries.open(n, &place)?.with(settings)));
                    Site { element: element.clone(), open }
                };
                let sought = |(n, drive): (usize, AttachedDrive)| match element_of(
                    &drive,
                    name,
                    &elements,
                    &identified,
                ) {
                    Ok(element) => wanted(n, element.address).then(|| (n, Ok(site(n, drive, element)))),
                    Err(e) => Some((n, Err(e))),
                };
                Ok(entries.now().into_iter().enumerate().filter_map(sought).collect())
            }
        }
    }
}

/// Data path of each drive of these libraries, in the order of their numbers.
fn data_paths(libraries: &[Arc<Hardware>]) -> Vec<PathNo> {
    let names: Vec<String> = libraries.iter().flat_map(|library| library.data_paths()).collect();
    let number = |name: &String| names.iter().position(|first| first == name).unwrap_or_default();
    names.iter().map(|name| PathNo(number(name) as u16)).collect()
}

impl Node {
    /// Data path of a drive.
    pub(crate) fn data_path(&self, drive: DriveNo) -> PathNo {
        self.hardware.0.read().paths.get(usize::from(drive.0)).copied().unwrap_or_default()
    }

    /// Numbers of the libraries.
    pub(crate) fn libraries(&self) -> impl Iterator<Item = LibraryNo> + use<> {
        (0..self.hardware.0.read().hardware.len() as u16).map(LibraryNo)
    }

    /// A library by its number.
    pub(crate) fn hardware(&self, library: LibraryNo) -> Option<Arc<Hardware>> {
        self.hardware.0.read().hardware.get(usize::from(library.0)).cloned()
    }

    /// Name of a library.
    pub(crate) fn library_name(&self, library: LibraryNo) -> String {
        self.hardware(library).map_or_else(String::new, |hardware| hardware.name().to_owned())
    }

    /// A library by its name.
    pub(crate) fn library_named(&self, name: &str) -> Option<LibraryNo> {
        self.libraries().find(|no| self.library_name(*no) == name)
    }

    /// Number of a library's first drive: those of the libraries before it come first.
    pub(crate) fn first_drive(&self, library: LibraryNo) -> u16 {
        self.hardware.0.read().hardware.iter().take(library.0.into()).map(|hardware| hardware.count()).sum()
    }

    /// Where a drive of a library is; None: it has no address of its own.
    pub(crate) fn device_of(&self, library: LibraryNo, drive: DriveNo) -> Option<Address> {
        self.hardware(library)?.device(drive.0.checked_sub(self.first_drive(library))?.into())
    }

    /// Whether a drive of a library was ever opened.
    pub(crate) fn was_opened(&self, library: LibraryNo, drive: DriveNo) -> bool {
        let n = drive.0.checked_sub(self.first_drive(library));
        self.hardware(library).zip(n).is_some_and(|(hardware, n)| hardware.was_opened(n.into()))
    }

    /// Whether libraries of metal (or what takes their place) are attached, and no virtual ones used.
    pub(crate) fn is_attached(&self) -> bool {
        self.hardware.0.read().hardware.iter().any(|hardware| hardware.is_attached())
    }

    /// Name of the library that a pool is bound to.
    pub(crate) fn pool_library(&self, pool: &types::PoolName) -> Option<String> {
        let pools = self.catalog.pools().ok()?;
        pools.into_iter().find(|p| p.name == *pool)?.library
    }

    /// The library that a pool is bound to; one that is not there has a number that no library has.
    pub(crate) fn bound_to(&self, pool: &types::Pool) -> Option<LibraryNo> {
        let name = pool.library.as_deref()?;
        Some(self.library_named(name).unwrap_or(LibraryNo(u16::MAX)))
    }
}

fn site(
    to: impl Fn() -> Box<dyn Transport> + Send + 'static,
    element: &ElementView,
    settings: Settings,
) -> Site {
    let open: OpenDrive = Box::new(move || Ok(Drive::open(to(), sleeper())?.with(settings)));
    Site { element: element.clone(), open }
}

/// Finds the element of a drive of the configuration: as it says, else by serial number.
fn element_of<'a>(
    drive: &AttachedDrive,
    library: &str,
    elements: &[&'a ElementView],
    identified: &[(u16, String)],
) -> Result<&'a ElementView, Failure> {
    let serial = drive.serial.as_deref();
    let by_serial = || {
        let same = |id: &&(u16, String)| serial.is_some_and(|s| tape::discover::identifies(&id.1, s));
        identified.iter().find(same).map(|id| id.0)
    };
    let address = drive.element.or_else(by_serial);
    let Some(element) = elements.iter().find(|e| Some(e.address) == address) else {
        let known: Vec<String> = elements.iter().map(|e| e.address.to_string()).collect();
        let wanted = address.map_or_else(
            || format!("says of none of its drives that it has serial number {}", serial.unwrap_or("(none)")),
            |address| format!("has no drive element {address}"),
        );
        let what = format!(
            "drive {}: library {library} {wanted}; its drive elements are {}: run `thermo library discover`",
            drive.device.0,
            known.join(", ")
        );
        return Err(failure(ErrorClass::Library, what));
    };
    match is_another(drive, (library, element.address), identified) {
        Some(what) => Err(failure(ErrorClass::Library, what)),
        None => Ok(element),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_of_one_portal_adapter_or_name_share_a_data_path() {
        let drive = |device: &str, path: &str| {
            let path = if path.is_empty() { String::new() } else { format!("path = \"{path}\"\n") };
            format!("[[libraries.drives]]\ndevice = \"{device}\"\nserial = \"{device}\"\n{path}")
        };
        let a = ["iscsi://h:3260/iqn.a:b/1", "iscsi://h:3260/iqn.a:b/2", "iscsi://i:3260/iqn.a:b/1"];
        let a = a.map(|device| drive(device, "")).join("");
        let b = drive("unix:/run/b/0.sock", "left") + &drive("iscsi://h:3260/iqn.a:b/9", "left");
        let text = format!(
            "[[libraries]]\nname = \"a\"\nchanger = \"unix:/run/a.sock\"\n{a}\
             [[libraries]]\nname = \"b\"\nchanger = \"unix:/run/b.sock\"\n{b}"
        );
        let libraries = Libraries::new(Hardware::of(&Config::parse(&text).unwrap(), None).unwrap());
        assert_eq!(libraries.0.read().paths, [0, 0, 2, 3, 3].map(PathNo));
    }
}
