//! What a node and its standby tell each other, and people of it.

use serde::{Deserialize, Serialize};

/// Most bytes of a step in one part.
pub const MAX_PART: usize = 2 << 20;

/// A part of a step (`docs/formats/engine.md`), and how things are at the node that is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyStep {
    /// Raised by each take-over.
    pub epoch: u64,
    /// How long after its answer the standby does not take over (milliseconds).
    pub lease_ms: u32,
    /// From where on nothing is acknowledged without the standby.
    pub promise: Option<StandbyPromise>,
    /// The last batch committed at the node.
    pub last: u64,
    /// When it was (milliseconds since 1970).
    pub last_ms: i64,
    /// Where in the step this part begins.
    pub offset: u32,
    /// Length of the step (bytes).
    pub total: u32,
    /// The part.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// A file of the state directory that is not in the catalogue.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// Its path there.
    pub name: String,
    /// What is in it.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Without what is in it: it may be a key.
impl std::fmt::Debug for KeptFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptFile({:?}, {} bytes)", self.name, self.bytes.len())
    }
}

/// Nothing is acknowledged without the standby, but what came before: one that has all of that may take over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyPromise {
    /// Of this history.
    pub lineage: [u8; 16],
    /// Everything up to this batch may have been acknowledged without it.
    pub from: u64,
}

/// What the other end is and has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyAnswer {
    /// The highest epoch that it knows.
    pub epoch: u64,
    /// It is no standby: it serves the catalogue.
    pub serves: bool,
    /// What it has of the history with this name.
    pub lineage: [u8; 16],
    /// The last batch.
    pub number: u64,
    /// When that was written (milliseconds since 1970).
    pub time_ms: i64,
    /// How far its copy goes; None: it is complete.
    pub copied: Option<Vec<u8>>,
}

/// How the standby is, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyView {
    /// This node is the standby; else it is followed.
    pub standby: bool,
    /// The other end.
    pub other: String,
    /// Raised by each take-over.
    pub epoch: u64,
    /// The standby has a complete copy.
    pub complete: bool,
    /// The last batch of the node, as far as is known here.
    pub last: u64,
    /// The last batch that the standby has.
    pub number: u64,
    /// How much older the newest change at the standby is than that of the node (milliseconds).
    pub behind_ms: u64,
    /// How long ago the other end was heard (milliseconds).
    pub heard_ms: Option<u64>,
    /// Nothing is acknowledged without the standby.
    pub promised: bool,
    /// Who has taken over.
    pub replaced_by: Option<String>,
}
