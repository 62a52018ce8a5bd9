//! Acts on chosen files. A list may come in parts; what of it cannot be chosen is named, the rest is done.

use crate::Selection;
use serde::{Deserialize, Serialize};
use types::*;

/// Most paths of one part; the answer names each that cannot be chosen, and must fit into a frame.
pub const MAX_PATHS: usize = 10_000;

/// What is done with the files of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Bring them back to disk.
    Stage {
        /// 1 to 9, greater goes first; None: as the limits say.
        priority: Option<u8>,
        /// Wanted by then.
        by: Option<Time>,
    },
    /// Write the copies that they lack.
    Migrate,
    /// Release their disk space.
    Purge,
    /// Keep them on disk (true), or no longer.
    Pin(bool),
    /// Nothing: say what bringing them back would take.
    Quote,
    /// Give them another layout on disk targets; new files of the directories among them get it too.
    Protect(LayoutRule),
}

/// One part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActOrder {
    /// The same for all parts.
    pub act: Act,
    /// Which files; at most [`MAX_PATHS`] paths.
    pub files: Selection,
    /// Paths in the parts of this list that went before on this connection; 0: this is the first.
    pub after: u64,
    /// No part follows: do it now.
    pub last: bool,
}

/// A path that cannot be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Which path of this part, counted from 0.
    pub of: u32,
    /// What below it, as a path of the namespace; None: itself.
    pub below: Option<Vec<u8>>,
    /// Class of the reason.
    pub class: ErrorClass,
    /// The reason, without the path.
    pub why: String,
}

/// Answer to one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// What of this part is left out.
    pub left: Vec<LeftOut>,
    /// Further files below directories of this part that are left out, too many to be named here; the log names them.
    pub unnamed: u64,
    /// What was done.
    pub outcome: Outcome,
}

/// What was done with a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Nothing yet: more parts follow.
    Gathered,
    /// Nothing: no path of the whole list could be chosen.
    Nothing,
    /// A request was made.
    Request(Box<RequestView>),
    /// So many files were pinned or unpinned.
    Changed(u64),
    /// What it would take, and what of it waits for drives.
    Quote(Box<QuoteView>, Box<QuoteWaits>),
}
