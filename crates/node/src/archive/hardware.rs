//! The tape library of this node: the built-in virtual one, or one that is attached.

use super::library::{numbered, open_virtual, sleeper, tape_failure};
use super::worker::OpenDrive;
use crate::Node;
use crate::attached::{AttachedDrive, AttachedLibrary, VIRTUAL};
use crate::config::Config;
use crate::devices::NodePeers;
use crate::error::failure;
use scsi::{Address, NodeAddress, Peers, Transport};
use std::path::Path;
use std::sync::Arc;
use tape::{Changer, Drive, Settings, TapeError};
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
        /// What the configuration says of it.
        library: AttachedLibrary,
        /// Reaches those of its devices that other nodes have.
        peers: Arc<dyn Peers>,
    },
    /// In a simulator's world.
    Simulated(Arc<dyn Devices>),
}

/// The devices of a simulated library.
pub trait Devices: Send + Sync {
    /// A way to the robot.
    fn changer(&self) -> Box<dyn Transport>;
    /// A way to a drive, counted from 0 in the order of the elements.
    fn drive(&self, n: u16) -> Box<dyn Transport>;
}

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
            let attached = |library: &AttachedLibrary| {
                let peers = Arc::new(NodePeers::of(&config.state_dir));
                Self::Attached { library: library.clone(), peers }
            };
            return Ok(config.libraries.iter().map(attached).collect());
        }
        let mut given = given;
        (0..config.library.count).map(|n| Self::virtual_one(config, n, given.take())).collect()
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
            Self::Virtual { name, .. } => name,
            Self::Simulated(_) => VIRTUAL,
            Self::Attached { library, .. } => &library.name,
        }
    }

    /// Whether its robot is at another node: that may be away when this one begins.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Attached { library, .. } if matches!(library.changer.0, Address::Node(_)))
    }

    /// Serial numbers of its drives as far as they are known without asking, one for each drive.
    pub fn serials(&self) -> Vec<String> {
        match self {
            Self::Virtual { library, .. } => vec![String::new(); library.drives().into()],
            Self::Simulated(_) => Vec::new(),
            Self::Attached { library, .. } => {
                library.drives.iter().map(|drive| drive.serial.clone().unwrap_or_default()).collect()
            }
        }
    }

    /// Address of one of its drives, counted from 0; None: it has none of its own.
    pub fn device(&self, n: usize) -> Option<String> {
        match self {
            Self::Virtual { .. } | Self::Simulated(_) => None,
            Self::Attached { library, .. } => library.drives.get(n).map(|drive| drive.device.0.to_string()),
        }
    }

    /// Where one of its drives is, counted from 0, that is at another node.
    pub fn elsewhere(&self, n: usize) -> Option<&NodeAddress> {
        match self {
            Self::Virtual { .. } | Self::Simulated(_) => None,
            Self::Attached { library, .. } => match &library.drives.get(n)?.device.0 {
                Address::Node(address) => Some(address),
                _ => None,
            },
        }
    }

    /// Data path of each of its drives, by name.
    fn data_paths(&self) -> Vec<String> {
        match self {
            Self::Virtual { .. } | Self::Simulated(_) => vec!["this process".into(); self.serials().len()],
            Self::Attached { library, .. } => library.drives.iter().map(AttachedDrive::data_path).collect(),
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
            Self::Attached { library, peers } => {
                Changer::open(library.changer.0.transport(&**peers), sleeper())
                    .and_then(|changer| changer.insist(library.serial.as_deref()))
            }
            Self::Simulated(devices) => Changer::open(devices.changer(), sleeper()),
        };
        opened.map_err(|e| tape_failure(&e))
    }

    /// The drives in the order of the configuration, each used as `settings` say.
    ///
    /// # Errors
    /// The library does not have a drive of the configuration, or does not answer.
    pub fn drives(
        &self,
        changer: &mut Changer,
        elements: &[ElementView],
        settings: Settings,
    ) -> Result<Vec<Site>, Failure> {
        let drives = elements.iter().filter(|e| e.kind == ElementKind::Drive);
        match self {
            Self::Virtual { library, .. } => {
                let site = |(n, e)| {
                    let library = library.clone();
                    site(move || Box::new(library.drive(n)), e, settings)
                };
                Ok((0..).zip(drives).map(site).collect())
            }
            Self::Simulated(devices) => {
                let site = |(n, e)| {
                    let devices = devices.clone();
                    site(move || devices.drive(n), e, settings)
                };
                Ok((0..).zip(drives).map(site).collect())
            }
            Self::Attached { library, peers } => {
                let identified = changer.drives().map_err(|e| tape_failure(&e))?;
                let drives: Vec<&ElementView> = drives.collect();
                let sites = library
                    .drives
                    .iter()
                    .map(|d| attached((library, d), peers, &drives, &identified, settings));
                sites.collect()
            }
        }
    }
}

/// Data path of each drive of these libraries, in the order of their numbers.
pub fn data_paths(libraries: &[Hardware]) -> Vec<PathNo> {
    let names: Vec<String> = libraries.iter().flat_map(Hardware::data_paths).collect();
    let number = |name: &String| names.iter().position(|first| first == name).unwrap_or_default();
    names.iter().map(|name| PathNo(number(name) as u16)).collect()
}

impl Node {
    /// Data path of a drive.
    pub(crate) fn data_path(&self, drive: DriveNo) -> PathNo {
        self.data_paths.get(usize::from(drive.0)).copied().unwrap_or_default()
    }

    /// Numbers of the libraries.
    pub(crate) fn libraries(&self) -> impl Iterator<Item = LibraryNo> + use<> {
        (0..self.hardware.len() as u16).map(LibraryNo)
    }

    /// A library by its number.
    pub(crate) fn hardware(&self, library: LibraryNo) -> Option<&Hardware> {
        self.hardware.get(usize::from(library.0))
    }

    /// A library by its name.
    pub(crate) fn library_named(&self, name: &str) -> Option<LibraryNo> {
        self.libraries().find(|no| self.hardware(*no).is_some_and(|hardware| hardware.name() == name))
    }

    /// Number of a library's first drive: those of the libraries before it come first.
    pub(crate) fn first_drive(&self, library: LibraryNo) -> u16 {
        self.hardware.iter().take(library.0.into()).map(|hardware| hardware.serials().len() as u16).sum()
    }

    /// Whether libraries of metal (or what takes their place) are attached, and no virtual ones used.
    pub(crate) fn is_attached(&self) -> bool {
        self.hardware.iter().any(Hardware::is_attached)
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
fn attached(
    (library, drive): (&AttachedLibrary, &AttachedDrive),
    peers: &Arc<dyn Peers>,
    elements: &[&ElementView],
    identified: &[(u16, String)],
    settings: Settings,
) -> Result<Site, Failure> {
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
            "drive {}: library {} {wanted}; its drive elements are {}: run `thermo library discover`",
            drive.device.0,
            library.name,
            known.join(", ")
        );
        return Err(failure(ErrorClass::Library, what));
    };
    let other = identified.iter().find(|(at, id)| {
        *at == element.address && serial.is_some_and(|s| !tape::discover::identifies(id, s))
    });
    if let Some((at, id)) = other {
        let what = format!(
            "drive {}: library {} has drive {id} in element {at}, not serial number {}: run `thermo library discover --write`",
            drive.device.0,
            library.name,
            serial.unwrap_or_default()
        );
        return Err(failure(ErrorClass::Library, what));
    }
    let (address, serial, peers) = (drive.device.0.clone(), drive.serial.clone(), peers.clone());
    let open = move || -> Result<Drive, TapeError> {
        Ok(Drive::open(address.transport(&*peers), sleeper())?.insist(serial.as_deref())?.with(settings))
    };
    Ok(Site { element: (*element).clone(), open: Box::new(open) })
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
        let libraries = Hardware::of(&Config::parse(&text).unwrap(), None).unwrap();
        assert_eq!(data_paths(&libraries), [0, 0, 2, 3, 3].map(PathNo));
    }
}
