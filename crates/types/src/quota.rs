//! What owners may hold.

use serde::{Deserialize, Serialize};

/// What an owner may hold; 0 means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Whose (uid); None: of everybody who has no quota of his own.
    pub uid: Option<u32>,
    /// Files, directories and other nodes.
    pub files: u64,
    /// Length of regular files (bytes).
    pub bytes: u64,
    /// Copies on tape that count (bytes): length times copies.
    pub tape_bytes: u64,
    /// Volumes of his own in each pool that keeps owners apart; beyond it his copies go to volumes that owners share.
    pub volumes: u32,
    /// Bytes on disk, the node's own and targets together; what redundancy takes there is not counted.
    pub disk_bytes: u64,
}

impl Quota {
    /// Whether it limits nothing.
    pub fn is_unlimited(&self) -> bool {
        (self.files, self.bytes, self.tape_bytes, self.volumes, self.disk_bytes) == (0, 0, 0, 0, 0)
    }
}
