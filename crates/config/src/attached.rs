//! Attached tape libraries in the configuration: `[[libraries]]` with its changer and drives.

use scsi::Address;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;

/// Name of the built-in virtual library.
pub const VIRTUAL: &str = "virtual";

/// Whether a library of this name is a built-in one: `virtual`, `virtual-2` ...
pub fn is_virtual(name: &str) -> bool {
    name.strip_prefix(VIRTUAL).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// A tape library that is attached to this machine. `thermo library discover --write` makes the section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachedLibrary {
    /// Name for people; must be unique.
    pub name: String,
    /// Where its robot is.
    pub changer: Device,
    /// Serial number that the robot must give. Device names change when hardware is added, serial numbers do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Its drives.
    #[serde(default)]
    pub drives: Vec<AttachedDrive>,
}

/// A drive of an attached library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachedDrive {
    /// Where it is.
    pub device: Device,
    /// Serial number that it must give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Address of its element in the library. Needed for a library that does not say which drive sits where; otherwise
    /// the serial number tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<u16>,
    /// Name of its data path, if the address does not tell it (iSCSI portal, host adapter): drives of one name share a host, an
    /// adapter or a link, and work is spread over the names evenly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl AttachedLibrary {
    /// Whether this is the same library: by its serial number or, without one, its robot's address.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.serial, &other.serial) {
            (Some(a), Some(b)) => a == b,
            _ => self.changer == other.changer,
        }
    }
}

impl AttachedDrive {
    /// Whether this is the same drive: by its serial number or, without one, its address.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.serial, &other.serial) {
            (Some(a), Some(b)) => a == b,
            _ => self.device == other.device,
        }
    }

    /// Whether both cannot be in use at once: it is the same drive, or at the same address.
    pub fn meets(&self, other: &Self) -> bool {
        self.is(other) || self.device == other.device
    }

    /// Name of its data path.
    pub fn data_path(&self) -> String {
        self.path.clone().unwrap_or_else(|| self.device.0.data_path())
    }
}

/// Address of a device; in TOML text: `"sg:/dev/sg3"`, `"iscsi://host/target/lun"`, `"unix:/path"`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device(pub Address);

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map(Device).map_err(serde::de::Error::custom)
    }
}

/// Checks what the types cannot.
pub(crate) fn validate(libraries: &[AttachedLibrary]) -> Result<(), String> {
    let (mut names, mut devices) = (BTreeSet::new(), BTreeSet::new());
    for library in libraries {
        let name = &library.name;
        if name.is_empty() || is_virtual(name) || !names.insert(name) {
            return Err(format!(
                "libraries: each needs a name of its own, and `{name}` is empty, used twice or that of the built-in library"
            ));
        }
        if library.drives.is_empty() {
            return Err(format!(
                "library {name} has no drives; add [[libraries.drives]] or leave the library out"
            ));
        }
        let mut elements = BTreeSet::new();
        for drive in &library.drives {
            let device = &drive.device.0;
            if drive.element.is_none() && drive.serial.is_none() {
                return Err(format!(
                    "library {name}, drive {device}: `serial` or `element` must say which drive of the library it is"
                ));
            }
            if let Some(element) = drive.element.filter(|e| !elements.insert(*e)) {
                return Err(format!("library {name} has two drives in element {element}"));
            }
        }
        let all = library.drives.iter().map(|d| &d.device).chain([&library.changer]);
        for device in all {
            if !devices.insert(device) {
                return Err(format!("library {name}: device {} is named twice", device.0));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Config;

    const TWO: &str = r#"
[[libraries]]
name = "hall-a"
changer = "sg:/dev/sg4"
serial = "78A1234"
[[libraries.drives]]
device = "sg:/dev/sg1"
serial = "1013000001"
[[libraries.drives]]
device = "iscsi://10.0.0.7:3261/iqn.2026-01.test:vtl/2"
element = 257

[[libraries]]
name = "hall-b"
changer = "unix:/run/b/changer.sock"
[[libraries.drives]]
device = "unix:/run/b/drive0.sock"
element = 257
"#;

    #[test]
    fn several_libraries_are_read_and_written_as_they_were() {
        let config = Config::parse(TWO).unwrap();
        assert_eq!(config.libraries.len(), 2);
        assert_eq!(config.libraries[0].drives[1].element, Some(257));
        assert_eq!(config.drives(), 3);
        assert_eq!(Config::parse(&toml::to_string(&config).unwrap()).unwrap(), config);
    }

    #[test]
    fn mistakes_are_named() {
        let without = |line: &str| TWO.replacen(line, "", 1);
        for (text, reason) in [
            (TWO.replace("hall-b", "hall-a"), "used twice"),
            (TWO.replace("sg:/dev/sg1", "sg:/dev/sg4"), "device sg:/dev/sg4 is named twice"),
            (without("serial = \"1013000001\""), "`serial` or `element`"),
            (TWO.replace("sg:/dev/sg4", "/dev/sg4"), "write sg:/dev/sgN"),
            (TWO.replace("changer =", "charger ="), "did you mean `changer`?"),
            (TWO.replace("serial = \"1013000001\"", "element = 257"), "two drives in element 257"),
            ("[[libraries]]\nname = \"x\"\nchanger = \"sg:/dev/sg1\"\n".into(), "has no drives"),
        ] {
            let error = Config::parse(&text).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
}
