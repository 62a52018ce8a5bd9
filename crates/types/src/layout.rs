//! How files are dealt out to disk targets of a cluster, as users and the wire see it.

use crate::{ObjectId, TargetId};
use serde::{Deserialize, Serialize};

/// What new files of a directory get.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayoutRule {
    /// Bytes that lie in one piece on one target before the next target's turn comes.
    pub unit_bytes: u32,
    /// Targets among which the bytes of a file are dealt out.
    pub stripes: u16,
    /// Targets that hold the same byte; 1: no redundancy, or that of `parity`.
    pub copies: u8,
    /// Units of parity beside each `stripes` units of data, from which as many lost ones are computed; 0: none.
    pub parity: u8,
    /// What a file gets when it grows beyond what it has, in order of offset; empty: it is always as it was made.
    pub then: Vec<Widening>,
    /// All of it lies on targets of this pool, wherever it moves; none: on any targets.
    pub pool: Option<String>,
}

/// Where a file that grows is dealt out anew. What may be lost is the same for all of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Widening {
    /// First byte of the file that lies like this.
    pub from: u64,
    /// As in [`LayoutRule`].
    pub stripes: u16,
    /// As in [`LayoutRule`].
    pub unit_bytes: u32,
}

impl LayoutRule {
    /// The same without what a file gets when it grows.
    pub fn head(&self) -> Self {
        Self { then: Vec::new(), pool: self.pool.clone(), ..*self }
    }

    /// What a file of this rule gets from a place on.
    pub fn at(&self, Widening { stripes, unit_bytes, .. }: Widening) -> Self {
        Self { stripes, unit_bytes, ..self.head() }
    }

    /// Targets that a part of a file needs at most.
    pub fn most_columns(&self) -> u64 {
        self.then.iter().map(|part| self.at(*part).columns()).fold(self.columns(), u64::max)
    }

    /// Targets that a new file needs.
    pub fn columns(&self) -> u64 {
        u64::from(self.stripes) * u64::from(self.copies) + u64::from(self.parity)
    }

    /// Whether anything may be lost.
    pub fn is_redundant(&self) -> bool {
        self.copies > 1 || self.parity > 0
    }

    /// Objects that a new file has: the columns, and of a coded one journals.
    pub fn objects(&self) -> u64 {
        let journals = if self.parity > 0 { u64::from(self.parity) + 1 } else { 0 };
        self.columns() + journals
    }
}

/// One object of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnView {
    /// The object.
    pub object: ObjectId,
    /// Where it lies.
    pub target: TargetId,
    /// It has everything that was written; otherwise it is not read before it is rebuilt.
    pub current: bool,
    /// First byte of the part of the file of which it has something.
    pub from: u64,
    /// First byte behind that part; none: it has no end.
    pub until: Option<u64>,
}

/// Where the bytes of one file lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedView {
    /// Raised by every change of where bytes lie.
    pub generation: u32,
    /// What the directory said when the file was made.
    pub rule: LayoutRule,
    /// Its objects, part by part; with copies the first ones of a part are those of its first stripe.
    pub columns: Vec<ColumnView>,
}

/// The layout of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutView {
    /// Of a directory: what new files in it get; none: an object of the node's own disk tier.
    pub rule: Option<LayoutRule>,
    /// Of a file: where its bytes lie; none: in an object of the node's own disk tier, or on tape only.
    pub file: Option<PlacedView>,
}
