//! Disk targets of a cluster, as its engine keeps them.

use crate::*;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A disk target that a node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Which; never given again.
    pub id: TargetId,
    /// What the disk says of itself (its marker): it stays the same target on another host.
    pub uuid: String,
    /// Node that serves it.
    pub node: NodeId,
    /// Where its bytes are moved (`host:port`).
    pub data: Vec<String>,
    /// What fails together with it: host, shelf, room, as the configuration of its node says.
    pub domain: String,
    /// It gets no new files: an operator wants it empty.
    pub draining: bool,
    /// It will not come back: nothing is waited for there any more.
    pub lost: bool,
    /// Size of its file system (bytes).
    pub capacity: u64,
    /// What can still be written there (bytes).
    pub free: u64,
    /// When its node said so last.
    pub seen: Time,
}

/// How a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetState {
    /// Its node serves it.
    Up,
    /// Its node has not been heard of lately.
    Down,
    /// It is served, and gets no new files.
    Draining,
    /// An operator says that it will not come back.
    Lost,
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Lost => "lost",
        })
    }
}

/// What is to become of what lies on targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetAct {
    /// It gets no new files, and what it has moves to others.
    Drain(TargetId),
    /// It is lost: what it had is rebuilt on others, or comes from tape.
    Replace(TargetId),
    /// It gets new files again.
    Return(TargetId),
    /// What lies on the fuller ones moves to the emptier ones until they are about equally full.
    Balance,
    /// What lies there is compared with its sums, and repaired where it is not what was written.
    Scrub(TargetId),
}

/// A target as `thermo target ls` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetView {
    /// The target.
    pub target: Target,
    /// How it is now.
    pub state: TargetState,
}
