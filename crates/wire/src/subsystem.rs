//! Whose names a node holds.

use serde::{Deserialize, Serialize};

/// The namespace that a node of a cluster holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubsystemView {
    /// Name of the subsystem; None: that of the cluster's first node.
    pub name: Option<String>,
    /// What tells the namespace from every other one.
    pub site: String,
    /// Where it may be had (`host:port`), the likeliest first.
    pub addresses: Vec<String>,
}
