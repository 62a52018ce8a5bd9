//! `[[devices]]`: drives and robots of this host that another node of the cluster uses.

use crate::Config;
use crate::attached::Device;
use scsi::Address;
use scsi::address::is_device_name;
use serde::{Deserialize, Serialize};
use types::MemberId;

/// A device that this node gives to another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// What the other node calls it: `thermo://HOST:PORT/NAME`.
    pub name: String,
    /// Where it is.
    pub device: Device,
    /// Number of the node that may use it, or of each that may: a node and its standby.
    pub node: Users,
}

/// Numbers of nodes: `1` or `[1, 2]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the number of a node is due, or a list of them ([1, 2])")]
pub enum Users {
    /// One node.
    One(u32),
    /// Whichever of them has taken over last.
    Any(Vec<u32>),
}

impl Users {
    /// Whether this is one of them.
    pub fn contains(&self, who: MemberId) -> bool {
        let all = match self {
            Self::One(node) => std::slice::from_ref(node),
            Self::Any(nodes) => nodes,
        };
        matches!(who, MemberId::Node(types::NodeId(node)) if all.contains(&node))
    }
}

/// Checks what the types cannot.
///
/// # Errors
/// What is wrong, and what to write instead.
pub(crate) fn validate(config: &Config) -> Result<(), String> {
    for (n, given) in config.devices.iter().enumerate() {
        let (name, address) = (&given.name, &given.device.0);
        if !is_device_name(name) {
            return Err(format!("devices: `{name}`: a name has 1 to 64 letters, digits and . _ -"));
        }
        let before = &config.devices[..n];
        if before.iter().any(|other| other.name == *name || other.device == given.device) {
            return Err(format!("devices: {name} ({address}) is named twice"));
        }
        if matches!(address, Address::Node(_)) {
            return Err(format!(
                "devices: {name}: {address} is a device of another node; give it from there"
            ));
        }
        if given.node == Users::Any(Vec::new()) {
            return Err(format!("devices: {name}: node = [] is nobody; say which nodes may use it"));
        }
        let own = config.libraries.iter().any(|library| {
            library.changer == given.device || library.drives.iter().any(|drive| drive.device == given.device)
        });
        if own {
            return Err(format!(
                "devices: {name}: {address} belongs to a library of this node; only one node can use it"
            ));
        }
    }
    if !config.devices.is_empty() && config.cluster.listen.is_none() {
        return Err("devices: say in cluster.listen where other nodes call this one".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn mistakes_are_named() {
        let with = |device: &str| {
            let listen = "[cluster]\nlisten = \"127.0.0.1:7430\"\n";
            Config::parse(&format!("{listen}[[devices]]\nname = \"d0\"\n{device}")).map(drop)
        };
        assert_eq!(with("device = \"sg:/dev/sg1\"\nnode = 1"), Ok(()));
        assert_eq!(with("device = \"sg:/dev/sg1\"\nnode = [1, 2]"), Ok(()));
        assert!(with("device = \"sg:/dev/sg1\"\nnode = []").unwrap_err().contains("nobody"));
        assert!(with("device = \"thermo://a:1/d\"\nnode = 1").unwrap_err().contains("give it from there"));
        let twice = "device = \"sg:/dev/sg1\"\nnode = 1\n[[devices]]\nname = \"d1\"\ndevice = \"sg:/dev/sg1\"\nnode = 1";
        assert!(with(twice).unwrap_err().contains("named twice"));
        let own = "device = \"sg:/dev/sg1\"\nnode = 1\n[[libraries]]\nname = \"a\"\nchanger = \"sg:/dev/sg2\"\n\
                   [[libraries.drives]]\ndevice = \"sg:/dev/sg1\"\nserial = \"1\"";
        assert!(with(own).unwrap_err().contains("only one node can use it"));
        let alone = "[[devices]]\nname = \"d0\"\ndevice = \"sg:/dev/sg1\"\nnode = 1";
        assert!(Config::parse(alone).unwrap_err().contains("cluster.listen"));
    }
}
