//! What is stored of files on disk targets of the cluster.

use serde::{Deserialize, Serialize};
use types::LayoutRule;

/// Where an object lies that is on disk targets of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarRec {
    pub layout: layout::Layout,
    /// Component and column of what is out of date.
    pub stale: Vec<(u16, u16)>,
}

/// What new files of a directory get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRec(pub LayoutRule);

format::records! {
    FarRec = 1,
    RuleRec = 1,
}
