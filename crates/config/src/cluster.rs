//! `[cluster]`: where a node of a cluster is reached.

use super::Size;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Certificates are not good for less (seconds).
const SHORTEST: u32 = 10;
/// Nor for more: ten years (seconds).
const LONGEST: u32 = 10 * ident::YEAR as u32;

/// Where a node of a cluster is reached. Without `listen` it takes calls on its own host only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Take calls over TLS at this address (`"0.0.0.0:7430"`).
    pub listen: Option<SocketAddr>,
    /// What others are told to call (`"mds1.example:7430"`); none: `listen`, which then must be an address that others can use.
    pub control: Vec<String>,
    /// Where bytes are moved, if others call that by another name or network; none: `data_listen`, or as `control`.
    pub data: Vec<String>,
    /// Move the bytes of this node's targets at this address (`"0.0.0.0:7431"`).
    pub data_listen: Option<SocketAddr>,
    /// Hold a namespace of its own in the cluster that this node has joined: that of the subsystem of this name, which the namespace of the first node shows at a
    /// junction.
    pub subsystem: Option<String>,
    /// This host mounts the namespace of the subsystem that answers there, and its targets are that one's (`["meta2.example:7430"]`); none: the first node's.
    pub namespace: Vec<String>,
    /// How long certificates are good that this node signs, as the first of its cluster (seconds). Members get the next one when two thirds of it have gone.
    pub certificate_s: u32,
    /// What is moved between targets, or rebuilt there, at most (bytes per second); 0: as fast as they can.
    pub move_rate: Size,
    /// How often all that lies on each target is compared with its sums (days); 0: only when asked for.
    pub scrub_every_days: u32,
    /// What is read of a target for that, at most (bytes per second); 0: as fast as it can.
    pub scrub_rate: Size,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            listen: None,
            control: Vec::new(),
            data: Vec::new(),
            data_listen: None,
            subsystem: None,
            namespace: Vec::new(),
            certificate_s: ident::YEAR as u32,
            move_rate: Size(0),
            scrub_every_days: 30,
            scrub_rate: Size(20_000_000),
        }
    }
}

impl ClusterConfig {
    /// What others are told to call.
    pub fn control(&self) -> Vec<String> {
        match self.listen {
            Some(listen) if self.control.is_empty() && !listen.ip().is_unspecified() => {
                vec![listen.to_string()]
            }
            _ => self.control.clone(),
        }
    }

    /// Where bytes are moved.
    pub fn data(&self) -> Vec<String> {
        match self.data_listen {
            _ if !self.data.is_empty() => self.data.clone(),
            Some(listen) if listen.ip().is_unspecified() => Vec::new(),
            Some(listen) => vec![listen.to_string()],
            None => self.control(),
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn validate(&self) -> Result<(), String> {
        if self.listen.is_some() && self.control().is_empty() {
            let listen = self.listen.map(|l| l.to_string()).unwrap_or_default();
            return Err(format!(
                "cluster.listen is {listen}, which others cannot call: say in cluster.control what they shall, as [\"mds1.example:7430\"]"
            ));
        }
        self.validate_subsystem()?;
        if !(SHORTEST..=LONGEST).contains(&self.certificate_s) {
            return Err(format!(
                "cluster.certificate_s = {}: certificates are good for {SHORTEST} seconds to ten years ({LONGEST})",
                self.certificate_s
            ));
        }
        for address in self.control.iter().chain(&self.data).chain(&self.namespace) {
            types::check_address(address).map_err(|why| format!("cluster: {why}"))?;
        }
        Ok(())
    }

    fn validate_subsystem(&self) -> Result<(), String> {
        let Some(name) = &self.subsystem else { return Ok(()) };
        types::check_subsystem(name).map_err(|why| format!("cluster.subsystem: {why}"))?;
        if self.listen.is_none() {
            return Err(
                "cluster.subsystem: other hosts reach its names here: say where it listens (cluster.listen)"
                    .into(),
            );
        }
        if !self.namespace.is_empty() {
            return Err("cluster.namespace is for a host that has no namespace, and one with cluster.subsystem has its own: take one of them out".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_an_address_that_they_can_use() {
        let read = |text: &str| -> Result<ClusterConfig, String> {
            let config: ClusterConfig = toml::from_str(text).map_err(|e| e.to_string())?;
            config.validate().map(|()| config)
        };
        let plain = read("listen = \"192.0.2.1:7430\"").unwrap();
        assert_eq!(
            (plain.control(), plain.data()),
            (vec!["192.0.2.1:7430".into()], vec!["192.0.2.1:7430".into()])
        );
        let two = read("listen = \"0.0.0.0:7430\"\ncontrol = [\"a:7430\"]\ndata = [\"b:7431\"]").unwrap();
        assert_eq!((two.control(), two.data()), (vec!["a:7430".into()], vec!["b:7431".into()]));
        assert!(read("listen = \"0.0.0.0:7430\"").unwrap_err().contains("cluster.control"));
        for bad in [
            "certificate_s = 9",
            "control = [\"a\"]",
            "control = [\":1\"]",
            "data = [\"a:99999\"]",
            "listen = \"a\"",
            "lisen = \"a:1\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
