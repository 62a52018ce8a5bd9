//! Nodes that take turns with one database.

use serde::{Deserialize, Serialize};
use types::{NodeId, Time};

/// Who serves, and who waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnsView {
    /// This node waits; else it serves.
    pub waits: bool,
    /// After this long without a sign of life another one goes on (seconds).
    pub lease_s: u32,
    /// What keeps this node from telling the others, or from seeing them.
    pub trouble: Option<String>,
    /// All that have ever taken part.
    pub nodes: Vec<TurnNode>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnNode {
    /// Name of its host.
    pub host: String,
    /// Its number, if it belongs to a cluster.
    pub node: Option<NodeId>,
    /// Where it is called when it serves (`host:port`).
    pub addresses: Vec<String>,
    /// What it does.
    pub state: TurnState,
    /// Since when, as it told.
    pub since: Time,
    /// How long ago it told something (seconds).
    pub heard_s: u64,
    /// Why it could not go on in the place of another one.
    pub lacks: Option<String>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TurnState {
    /// It serves the namespace.
    Serves,
    /// It waits, and goes on when the other one ends.
    Waits,
    /// It has not been heard.
    Away,
}
