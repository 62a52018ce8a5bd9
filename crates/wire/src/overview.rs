//! How a whole cluster is, in one answer.

use crate::{StandbyView, SubsystemView, TurnsView};
use serde::{Deserialize, Serialize};
use types::*;

/// A cluster as the node sees it that holds the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Uuid.
    pub id: String,
    /// The node that answers: it holds the names.
    pub answers: MemberId,
    /// Members that were not removed: nodes, then clients. Empty where they cannot be asked for; a warning says why.
    pub members: Vec<MemberStatus>,
    /// Disk targets.
    pub targets: Vec<TargetView>,
    /// What targets lack that were away, and have to get.
    pub out_of_date: Vec<OutOfDate>,
    /// There is more that is out of date than was looked at.
    pub more_out_of_date: bool,
    /// Open requests that move, rebuild or compare what lies on targets.
    pub moves: Vec<RequestView>,
    /// Nodes that take turns with one database, if they do.
    pub turns: Option<TurnsView>,
    /// The standby, if there is one.
    pub standby: Option<StandbyView>,
    /// Where names of subsystems are shown, and whether these answer.
    pub subsystems: Vec<JunctionView>,
    /// What an operator should look at: members that do not answer, and all that the node that answers warns of.
    pub warnings: Vec<String>,
}

/// A member, as it answers now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// As it is on record.
    pub member: Member,
    /// Whether it answers.
    pub state: MemberState,
    /// When it was heard of last, as far as is known since the answering node was started.
    pub heard: Option<Time>,
    /// What it says of itself, if it answers.
    pub report: Option<MemberReport>,
}

/// Whether a member answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// It does.
    Answers,
    /// It does not, and why.
    Away(String),
    /// It takes no calls: it is a client, or a node without `cluster.listen`.
    TakesNoCalls,
    /// There was no time to ask it: too many others did not answer.
    NotAsked,
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Version of the program; empty: it does not say (a standby, or one that waits for its turn).
    pub version: String,
    /// Why it says no more than that it is there.
    pub silent: Option<String>,
    /// Whose names it holds, if it holds any.
    pub names: Option<SubsystemView>,
    /// Where the namespace is mounted there.
    pub mounts: Vec<String>,
    /// Drives and robots of its host that the answering node may use.
    pub devices: Vec<String>,
    /// Drives that it uses.
    pub drives: Vec<DriveView>,
    /// Its requests that are queued or active.
    pub requests_open: u64,
    /// What it warns of itself.
    pub warnings: Vec<String>,
}

/// What a target lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfDate {
    /// Which one.
    pub target: TargetId,
    /// Files that have something there that is out of date.
    pub files: u64,
    /// What they have there (bytes).
    pub bytes: u64,
}
