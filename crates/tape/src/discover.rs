//! Which devices form a library: robots and drives, matched by serial number. Nothing is moved, loaded or written, and
//! drives are only asked who they are: that leaves their unit attentions to whoever uses them.

use crate::classify::{Device as Kind, explain};
use crate::{Blame, Changer, Fault, Result, Sleeper, TapeError, fence};
use scsi::{Address, Device, Inquiry, Peers, ScsiError, SenseKey};

/// Device type of a tape drive in INQUIRY data.
const TAPE: u8 = 0x01;
/// Device type of a medium changer.
const CHANGER: u8 = 0x08;
/// Unit attentions in a row before a device counts as broken.
const MAX_ATTENTIONS: u32 = 8;
/// Length of vendor and product in front of the serial number, in identifiers that have them.
const VENDOR_AND_PRODUCT: usize = 24;

/// A device as it presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub address: Address,
    /// Vendor, product and revision.
    pub product: String,
    /// Unit serial number; empty if it gives none.
    pub serial: String,
}

/// A library with the drives that can be used in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// Its robot.
    pub changer: Found,
    /// Drives with the address of their element, by that.
    pub drives: Vec<(u16, Found)>,
    /// Drive elements for which no device was found: address, and why.
    pub unmatched: Vec<(u16, String)>,
    /// Another host keeps it for itself, so that it does not say which drives it has; who, as far as it says.
    pub reserved: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Libraries in the order of their addresses.
    pub libraries: Vec<FoundLibrary>,
    /// Devices that are in none of them (second ways to the same device too), and why.
    pub left: Vec<(Found, String)>,
    /// Addresses that gave no answer, or not that of a drive or robot, and why.
    pub failed: Vec<(Address, String)>,
}

/// True if `identifier`, by which a library names a drive, is that of the drive with this serial number: the number
/// itself, or vendor, product and number.
pub fn identifies(identifier: &str, serial: &str) -> bool {
    let behind = identifier.get(VENDOR_AND_PRODUCT..).map(str::trim);
    !serial.is_empty()
        && (identifier == serial
            || behind == Some(serial)
            || identifier.split_whitespace().next_back() == Some(serial))
}

/// Asks the devices at `addresses` who they are, and the robots among them which drives they have. `sleeper` is used while
/// a library starts up, `peers` for devices of other nodes.
pub fn discover(addresses: &[Address], peers: &dyn Peers, sleeper: impl Fn() -> Sleeper) -> Discovery {
    let mut discovery = Discovery::default();
    let (mut robots, mut drives) = (Vec::<Found>::new(), Vec::<Found>::new());
    for address in addresses {
        match probe(address, peers) {
            Ok((device_type, found)) => match device_type {
                TAPE => discovery.keep(&mut drives, found),
                CHANGER => discovery.keep(&mut robots, found),
                _ => {
                    let what = format!("{} is neither a tape drive nor a library", found.product);
                    discovery.failed.push((address.clone(), what));
                }
            },
            Err(e) => discovery.failed.push((address.clone(), e.to_string())),
        }
    }
    for changer in robots {
        let opened = Changer::open(changer.address.transport(peers), sleeper());
        match opened.and_then(|mut c| Ok((c.drives()?, c.drive_elements()?))) {
            Ok((identified, elements)) => {
                let library = assign(changer, &mut drives, &identified, &elements);
                discovery.libraries.push(library);
            }
            Err(e) if e.fault == Fault::Reserved => {
                let who = fence::who(&mut Device::new(changer.address.transport(peers)));
                let (drives, unmatched) = (Vec::new(), Vec::new());
                discovery.libraries.push(FoundLibrary { changer, drives, unmatched, reserved: Some(who) });
            }
            Err(e) => discovery.failed.push((changer.address, e.to_string())),
        }
    }
    for drive in drives {
        let why = discovery.why_left(&drive);
        discovery.left.push((drive, why));
    }
    discovery
}

impl Discovery {
    /// Enters a device, unless it is there already by another way.
    fn keep(&mut self, list: &mut Vec<Found>, found: Found) {
        let twin = list.iter().find(|f| !found.serial.is_empty() && f.serial == found.serial);
        match twin {
            Some(twin) => {
                let why = format!("another way to the device at {}", twin.address);
                self.left.push((found, why));
            }
            None => list.push(found),
        }
    }

    fn why_left(&self, drive: &Found) -> String {
        if drive.serial.is_empty() {
            return "it gives no serial number; write its element into the configuration by hand".into();
        }
        if self.libraries.is_empty() {
            return "no library was found that it could be in".into();
        }
        let names = |reserved: bool| {
            let these = self.libraries.iter().filter(|l| l.reserved.is_some() == reserved);
            these.map(|l| l.changer.address.to_string()).collect::<Vec<_>>().join(", ")
        };
        let (open, closed) = (names(false), names(true));
        let serial = &drive.serial;
        if closed.is_empty() {
            return format!("serial number {serial} is that of no drive element of {open}");
        }
        let may = format!(
            "it may be one of the library at {closed}, which does not say because another host has reserved it"
        );
        if open.is_empty() {
            return may;
        }
        format!("serial number {serial} is that of no drive element of {open}; {may}")
    }
}

/// Takes the drives of a library out of `drives`.
fn assign(
    changer: Found,
    drives: &mut Vec<Found>,
    identified: &[(u16, String)],
    elements: &[u16],
) -> FoundLibrary {
    let mut library = FoundLibrary { changer, drives: Vec::new(), unmatched: Vec::new(), reserved: None };
    for &element in elements {
        let Some((_, id)) = identified.iter().find(|(e, _)| *e == element) else {
            let why = "the library does not say which drive is there: write the element into the configuration by hand";
            library.unmatched.push((element, why.into()));
            continue;
        };
        match drives.iter().position(|d| identifies(id, &d.serial)) {
            Some(at) => library.drives.push((element, drives.remove(at))),
            None => {
                let why =
                    format!("the library has drive {id} there, and no device found says that it is that");
                library.unmatched.push((element, why));
            }
        }
    }
    library
}

/// Device type and identity.
fn probe(address: &Address, peers: &dyn Peers) -> Result<(u8, Found)> {
    let mut device = Device::new(address.transport(peers));
    let inquiry: Inquiry = patiently(&mut device, Device::inquiry)?;
    let serial = match patiently(&mut device, Device::unit_serial) {
        Ok(serial) => serial,
        // The page is optional.
        Err(e) if e.fault == Fault::Refused => String::new(),
        Err(e) => return Err(e),
    };
    let product = format!("{} {} {}", inquiry.vendor, inquiry.product, inquiry.revision);
    Ok((inquiry.device_type, Found { address: address.clone(), product, serial }))
}

/// Some devices report unit attentions where the standard says that they should not.
fn patiently<T>(device: &mut Device, ask: impl Fn(&mut Device) -> scsi::Result<T>) -> Result<T> {
    let mut attentions = 0;
    loop {
        match ask(device) {
            Ok(answer) => return Ok(answer),
            Err(e) if is_attention(&e) && attentions < MAX_ATTENTIONS => attentions += 1,
            Err(e) => return Err(error(device.name(), &e)),
        }
    }
}

fn is_attention(e: &ScsiError) -> bool {
    e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention)
}

fn error(device: &str, e: &ScsiError) -> TapeError {
    let (failure, what) = explain(e, Kind::Drive);
    TapeError {
        blame: failure.blame,
        fault: failure.fault,
        volume: None,
        drive: device.into(),
        doing: "asking the device who it is".into(),
        what: what.into(),
        sense: e.sense().copied(),
        advice: failure.advice,
    }
}

/// The device at a configured address is another one than the configuration says.
pub(crate) fn insist(name: &str, has: &str, wanted: &str) -> Result<()> {
    if has == wanted {
        return Ok(());
    }
    Err(TapeError {
        blame: Blame::Us,
        fault: Fault::Misuse,
        volume: None,
        drive: name.into(),
        doing: "opening".into(),
        what: format!("its serial number is {has}, and the configuration says {wanted}").into(),
        sense: None,
        advice: "device names may have changed: run `thermo library discover --write`",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_known_by_its_whole_serial_number_only() {
        for id in [
            "1013000001",
            "IBM     ULT3580-TD9     1013000001",
            "IBM ULT3580-TD9 1013000001",
            "HP      Ultrium 6-SCSI123456781013000001",
        ] {
            let whole = id != "HP      Ultrium 6-SCSI123456781013000001";
            assert_eq!(identifies(id, "1013000001"), whole, "{id}");
            for other in ["", "1", "013000001", "1013000002", "IBM"] {
                assert!(!identifies(id, other), "{id} is not {other:?}");
            }
        }
        assert!(identifies("HP      Ultrium 6-SCSI  A1", "A1"));
        assert!(identifies("VENDOR--PRODUCT-OF-16-CHA1", "A1"), "a product that fills its field");
    }
}
