//! `[[targets]]`: disk targets that a node of a cluster serves to the others.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A disk target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetConfig {
    /// Its directory, on a file system of its own: made when it is missing or empty at the first start.
    pub path: PathBuf,
    /// What fails together with it (host, shelf, room); empty: all targets of this node.
    pub domain: String,
}

/// Checks what the types cannot.
///
/// # Errors
/// What is wrong, and what to write instead.
pub(crate) fn validate(
    targets: &[TargetConfig],
    cluster: &super::ClusterConfig,
    disk_tier: &std::path::Path,
) -> Result<(), String> {
    for (n, target) in targets.iter().enumerate() {
        let path = target.path.display();
        if !target.path.is_absolute() {
            return Err(format!("targets: `{path}` is not an absolute path"));
        }
        if targets[..n].iter().any(|other| other.path == target.path) || target.path == disk_tier {
            return Err(format!("targets: {path} is in use already; each target has a directory of its own"));
        }
        if target.domain.len() > 255 || target.domain.chars().any(char::is_control) {
            return Err(format!(
                "targets: the domain of {path} must have at most 255 bytes and no control characters"
            ));
        }
    }
    match (targets.is_empty(), cluster.data_listen) {
        (false, None) => Err("targets: say in cluster.data_listen where their bytes are moved".into()),
        (false, Some(_)) if cluster.data().is_empty() => Err(
            "cluster.data_listen is an address that others cannot call: say in cluster.data what they shall"
                .into(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn targets_need_an_address_where_bytes_are_moved() {
        let with = |rest: &str| Config::parse(&format!("{rest}\n[[targets]]\npath = \"/t1\"\n"));
        assert!(with("").unwrap_err().contains("data_listen"));
        let config = with("[cluster]\ndata_listen = \"192.0.2.1:7431\"").unwrap();
        assert_eq!(config.cluster.data(), ["192.0.2.1:7431"]);
        assert!(with("[cluster]\ndata_listen = \"0.0.0.0:7431\"").unwrap_err().contains("cluster.data"));
        let two = with("[cluster]\ndata_listen = \"0.0.0.0:7431\"\ndata = [\"a:7431\"]").unwrap();
        assert_eq!(two.cluster.data(), ["a:7431"]);
        let twice = "[cluster]\ndata_listen = \"192.0.2.1:7431\"\n[[targets]]\npath = \"/t1\"";
        assert!(with(twice).unwrap_err().contains("in use already"));
        let relative = "[cluster]\ndata_listen = \"192.0.2.1:7431\"\n[[targets]]\npath = \"t1\"";
        assert!(with(relative).unwrap_err().contains("absolute"));
    }
}
