//! The tape library of this node: the built-in virtual one, or one that is attached.

use super::library::{open_virtual, sleeper, tape_failure};
use super::worker::OpenDrive;
use crate::attached::{AttachedDrive, AttachedLibrary, VIRTUAL};
use crate::config::Config;
use crate::error::failure;
use scsi::Transport;
use std::sync::Arc;
use tape::{Changer, Drive, Settings, TapeError};
use types::{ElementKind, ElementView, ErrorClass};
use wire::Failure;

/// Where drives and robot are.
pub enum Hardware {
    /// In this process; maybe also served to other programs.
    Virtual {
        /// The library.
        library: Arc<vtl::Library>,
        /// Keeps the sockets.
        _sockets: Option<vtl::Server>,
    },
    /// Behind the operating system or a network.
    Attached(AttachedLibrary),
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
    /// The library of the configuration, or the virtual one that is given.
    ///
    /// # Errors
    /// The virtual library cannot be used, or more than one library is attached.
    pub fn of(config: &Config, given: Option<Arc<vtl::Library>>) -> Result<Self, Failure> {
        match config.libraries.as_slice() {
            [] => {
                let library = given.map_or_else(|| open_virtual(config), Ok)?;
                let sockets = config.library.sockets.as_deref();
                let sockets = sockets.map(|dir| vtl::serve(library.clone(), dir)).transpose();
                let _sockets = sockets.map_err(|e| failure(ErrorClass::Library, e.to_string()))?;
                Ok(Self::Virtual { library, _sockets })
            }
            [one] => Ok(Self::Attached(one.clone())),
            more => {
                let names: Vec<&str> = more.iter().map(|l| l.name.as_str()).collect();
                let names = names.join(", ");
                let what = format!(
                    "configuration: libraries {names}: this release works with one of them; leave one"
                );
                Err(failure(ErrorClass::Invalid, what))
            }
        }
    }

    /// Name for people.
    pub fn name(&self) -> &str {
        match self {
            Self::Virtual { .. } | Self::Simulated(_) => VIRTUAL,
            Self::Attached(library) => &library.name,
        }
    }

    /// Whether it is one of metal (or takes the place of one).
    pub fn is_attached(&self) -> bool {
        matches!(self, Self::Attached(_))
    }

    /// Why a virtual robot could not do what it was told, beyond what its sense data say.
    pub fn robot_trouble(&self) -> Option<String> {
        match self {
            Self::Virtual { library, .. } => library.take_robot_error(),
            Self::Attached(_) | Self::Simulated(_) => None,
        }
    }

    /// Opens the robot.
    ///
    /// # Errors
    /// It does not answer, or is another one than the configuration says.
    pub fn changer(&self) -> Result<Changer, Failure> {
        let opened = match self {
            Self::Virtual { library, .. } => Changer::open(Box::new(library.changer()), sleeper()),
            Self::Attached(library) => Changer::open(library.changer.0.transport(), sleeper())
                .and_then(|changer| changer.insist(library.serial.as_deref())),
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
            Self::Attached(library) => {
                let identified = changer.drives().map_err(|e| tape_failure(&e))?;
                let drives: Vec<&ElementView> = drives.collect();
                library.drives.iter().map(|d| attached(library, d, &drives, &identified, settings)).collect()
            }
        }
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
    library: &AttachedLibrary,
    drive: &AttachedDrive,
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
    let (address, serial) = (drive.device.0.clone(), drive.serial.clone());
    let open = move || -> Result<Drive, TapeError> {
        Ok(Drive::open(address.transport(), sleeper())?.insist(serial.as_deref())?.with(settings))
    };
    Ok(Site { element: (*element).clone(), open: Box::new(open) })
}
