//! Where the bytes of open files lie, with the rights to them.

use crate::JoinSecret;
use serde::{Deserialize, Serialize};
use types::*;

/// Where the bytes of an open file lie, and the right to read and write them there for some minutes. It is a file in stripes without copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLayout {
    /// Length of the file as the node knows it (bytes); 0 while somebody sets it.
    pub length: u64,
    /// How often the length was set since the file was opened.
    pub cuts: u64,
    /// Its parts in order, the first from byte 0 on. What is written behind the last one goes through the node, which has the file get more.
    pub parts: Vec<PartAccess>,
}

/// A part of a file; its columns are objects with consecutive numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartAccess {
    /// The first object.
    pub object: ObjectId,
    /// First byte of the file behind it; `u64::MAX`: it has no end.
    pub end: u64,
    /// Bytes of a stripe unit.
    pub unit_bytes: u32,
    /// The columns in order.
    pub columns: Vec<ColumnAccess>,
}

impl FileLayout {
    /// Whether a file of another layout has the same objects.
    pub fn same_place(&self, other: &Self) -> bool {
        let shape = |part: &PartAccess| (part.object, part.end, part.unit_bytes, part.columns.len());
        self.parts.iter().map(shape).eq(other.parts.iter().map(shape))
    }
}

/// Where the bytes of an open file with copies or parity lie, and the right to read them there for as long as nothing of it is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentLayout {
    /// Length of the file (bytes).
    pub length: u64,
    /// How long that holds and the right may be used, counted from before the call was made (milliseconds).
    pub term_ms: u32,
    /// Its parts in order, the first from byte 0 on.
    pub parts: Vec<LentPart>,
}

impl LentLayout {
    /// How long that holds, counted from before the call was made; who goes on asks again when half of it has passed.
    pub fn term(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.term_ms.into())
    }
}

/// A part of such a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentPart {
    /// Its columns. One without a capability is not to be read: what lies there is out of date, or its target is down.
    pub access: PartAccess,
    /// Copies of each stripe; 1 with parity.
    pub copies: u8,
    /// Units of parity in each row.
    pub parity: u8,
}

/// Where all copies of a file may be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiesLayout {
    /// How often the length was set since the file was opened.
    pub cuts: u64,
    /// Where they lie, with rights to write; every column has one.
    pub lent: LentLayout,
}

/// How a column is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnAccess {
    /// The target.
    pub target: TargetId,
    /// Where its mover moves bytes (`host:port`).
    pub data: Vec<String>,
    /// Capability.
    pub capability: Vec<u8>,
    /// Its key.
    pub key: JoinSecret,
}

/// What who keeps a spare of what he wrote through the node is told ([design](../../../docs/design/0013-other-hosts.md#what-hosts-keep-a-spare-of)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spare {
    /// What was kept in others before is at the targets.
    pub epoch: u64,
    /// Of this write.
    pub number: u64,
    /// What has lower numbers of this epoch is at the targets.
    pub settled: u64,
}
