//! Where a device is, as an operator writes it.

use crate::iscsi::IscsiTransport;
use crate::sg::SgTransport;
use crate::socket::SocketTransport;
use crate::{Data, Reply, Transport, TransportError};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Port of iSCSI targets.
pub const ISCSI_PORT: u16 = 3260;

/// Most bytes of a device's name at another node.
const MAX_NAME: usize = 64;

/// Address of a drive or changer: `sg:/dev/sg3`, `iscsi://host[:port]/target/lun`, `thermo://host:port/name`, `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A SCSI generic device of this machine.
    Sg(PathBuf),
    /// A logical unit of an iSCSI target.
    Iscsi(IscsiAddress),
    /// A device of a virtual library of another process (see [`crate::socket`]).
    Unix(PathBuf),
    /// A device of another host, which a node of the cluster there gives to this one.
    Node(NodeAddress),
}

/// A device that another node of the cluster gives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeAddress {
    /// Where that node takes calls: `host:port`.
    pub node: String,
    /// What the device is called there.
    pub device: String,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thermo://{}/{}", self.node, self.device)
    }
}

/// Reaches devices of other nodes.
pub trait Peers: Send + Sync {
    /// A way to the device. Nothing is opened before the first command, which tells what is wrong.
    fn transport(&self, address: &NodeAddress) -> Box<dyn Transport>;
}

/// Of a program that knows no cluster: devices of other nodes are not reached.
pub struct Alone;

impl Peers for Alone {
    fn transport(&self, address: &NodeAddress) -> Box<dyn Transport> {
        Box::new(Unreached(address.to_string()))
    }
}

struct Unreached(String);

impl Transport for Unreached {
    fn execute(&mut self, _: &[u8], _: Data<'_>, _: Duration) -> Result<Reply, TransportError> {
        let detail = "only a member of its cluster reaches the device of another node".to_owned();
        Err(TransportError::Refused { device: self.0.clone(), detail })
    }

    fn name(&self) -> &str {
        &self.0
    }
}

/// Whether a device may be called so: letters, digits, `.`, `_` and `-`.
pub fn is_device_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(fits)
}

/// A logical unit of an iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IscsiAddress {
    /// Name or address of the host; an IPv6 address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Name of the target (`iqn.`, `eui.` or `naa.`).
    pub target: String,
    /// Logical unit.
    pub lun: u16,
}

impl IscsiAddress {
    /// `host:port`, an IPv6 address in brackets.
    pub fn portal(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for IscsiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iscsi://{}/{}/{}", self.portal(), self.target, self.lun)
    }
}

/// A portal, maybe with one of its targets: `iscsi://host[:port][/target]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Name or address of the host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Only this target.
    pub target: Option<String>,
}

impl Address {
    /// A way to the device. Nothing is opened before the first command, which tells what is wrong.
    pub fn transport(&self, peers: &dyn Peers) -> Box<dyn Transport> {
        match self {
            Self::Node(address) => peers.transport(address),
            Self::Sg(path) => Box::new(SgTransport::new(path)),
            Self::Iscsi(address) => Box::new(IscsiTransport::new(address.clone())),
            Self::Unix(path) => Box::new(SocketTransport::new(path)),
        }
    }
}

impl Address {
    /// What the bytes to and from the device go through on their way, as far as the address tells: the portal, the host adapter
    /// that Linux names in `/sys/class/scsi_generic` (H of the device's H:C:T:L), or the process behind the sockets of a directory.
    pub fn data_path(&self) -> String {
        match self {
            Self::Iscsi(address) => format!("iscsi {}", address.portal()),
            Self::Node(address) => format!("node {}", address.node),
            Self::Unix(path) => format!("unix {}", path.parent().unwrap_or(path).display()),
            Self::Sg(path) => {
                let real = path.canonicalize().unwrap_or_else(|_| path.clone());
                let name = real.file_name().unwrap_or_default();
                let device =
                    std::fs::read_link(Path::new("/sys/class/scsi_generic").join(name).join("device"));
                let numbers = device.ok().and_then(|to| to.file_name()?.to_str().map(str::to_owned));
                let host = numbers.as_deref().and_then(|numbers| numbers.split(':').next());
                host.map_or_else(|| "sg".to_owned(), |host| format!("host adapter {host}"))
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sg(path) => write!(f, "sg:{}", path.display()),
            Self::Iscsi(address) => address.fmt(f),
            Self::Node(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no device: {problem}; write sg:/dev/sgN, iscsi://host[:port]/target/lun, thermo://host:port/name or unix:/path"
)]
pub struct AddressError {
    text: String,
    problem: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let fail = |problem| AddressError { text: text.into(), problem };
        let absolute = |path: &str| match path.starts_with('/') {
            true => Ok(PathBuf::from(path)),
            false => Err(fail("its path is not absolute")),
        };
        if let Some(path) = text.strip_prefix("sg:") {
            return Ok(Self::Sg(absolute(path)?));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(absolute(path)?));
        }
        if let Some(rest) = text.strip_prefix("thermo://") {
            let (node, device) =
                rest.split_once('/').ok_or_else(|| fail("the name of the device is missing"))?;
            let port = node.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                return Err(fail("host and port of the node's calls are missing"));
            }
            if !is_device_name(device) {
                return Err(fail("a device's name has 1 to 64 letters, digits and . _ -"));
            }
            return Ok(Self::Node(NodeAddress { node: node.into(), device: device.into() }));
        }
        let rest = text.strip_prefix("iscsi://").ok_or_else(|| fail("the kind is missing"))?;
        let (rest, lun) = rest.rsplit_once('/').ok_or_else(|| fail("target and logical unit are missing"))?;
        // Flat addressing of logical units has 14 bits.
        let lun = lun.parse().ok().filter(|n: &u16| *n < 0x4000);
        let lun = lun.ok_or_else(|| fail("the logical unit is no number up to 16383"))?;
        let portal = portal(rest).map_err(fail)?;
        let target = portal.target.ok_or_else(|| fail("the target is missing"))?;
        Ok(Self::Iscsi(IscsiAddress { host: portal.host, port: portal.port, target, lun }))
    }
}

impl FromStr for Portal {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        portal(text.strip_prefix("iscsi://").unwrap_or(text))
            .map_err(|problem| AddressError { text: text.into(), problem })
    }
}

/// `host[:port][/target]`.
fn portal(text: &str) -> Result<Portal, &'static str> {
    let (host, target) = match text.split_once('/') {
        None | Some((_, "")) => (text.trim_end_matches('/'), None),
        Some((host, target)) => (host, Some(target)),
    };
    if target.is_some_and(|t| t.contains('/') || !["iqn.", "eui.", "naa."].iter().any(|p| t.starts_with(p))) {
        return Err("its target begins with none of iqn. eui. naa.");
    }
    let (host, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a bracket is missing")?;
            (host, port.strip_prefix(':').unwrap_or(port))
        }
        None => host.split_once(':').unwrap_or((host, "")),
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    let port = match port {
        "" => ISCSI_PORT,
        number => number.parse().map_err(|_| "the port is no number up to 65535")?,
    };
    Ok(Portal { host: host.into(), port, target: target.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in [
            "sg:/dev/sg3",
            "sg:/dev/tape/by-id/scsi-1013000ABC-changer",
            "unix:/run/vtl/changer.sock",
            "iscsi://10.0.0.7:3261/iqn.2026-01.test:vtl/3",
            "iscsi://[fe80::1]:3260/iqn.2026-01.test:vtl/0",
            "thermo://tape-b:7430/drive-0",
            "thermo://[fe80::1]:7430/changer",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let paths = ["sg:/dev/sg-that-is-not-there", "unix:/run/vtl/changer.sock", "iscsi://[::1]/iqn.a:b/3"];
        let paths = paths.map(|text| text.parse::<Address>().unwrap().data_path());
        assert_eq!(paths, ["sg", "unix /run/vtl", "iscsi [::1]:3260"]);
        let short: Address = "iscsi://tape-a/eui.0123456789abcdef/1".parse().unwrap();
        assert_eq!(short.to_string(), "iscsi://tape-a:3260/eui.0123456789abcdef/1");
        let portal: Portal = "tape-a:3261".parse().unwrap();
        assert_eq!((portal.host.as_str(), portal.port, portal.target), ("tape-a", 3261, None));
        let portal: Portal = "iscsi://[::1]/iqn.a:b".parse().unwrap();
        assert_eq!(
            (portal.host.as_str(), portal.port, portal.target.as_deref()),
            ("::1", 3260, Some("iqn.a:b"))
        );
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, reason) in [
            ("/dev/sg3", "kind is missing"),
            ("sg:dev/sg3", "not absolute"),
            ("iscsi://host", "target and logical unit"),
            ("iscsi://host/1", "target is missing"),
            ("iscsi:///iqn.a:b/1", "host is missing"),
            ("iscsi://host/target/1", "begins with none of"),
            ("iscsi://host/iqn.a:b/16384", "16383"),
            ("iscsi://host:99999/iqn.a:b/1", "65535"),
            ("iscsi://[::1/iqn.a:b/1", "bracket"),
            ("thermo://tape-b:7430", "name of the device"),
            ("thermo://tape-b/drive0", "port"),
            ("thermo://:7430/drive0", "port"),
            ("thermo://tape-b:7430/a/b", "letters"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
    }
}
