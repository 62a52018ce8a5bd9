//! What is stored of files on disk targets of the cluster.

use format::record::{self, Record, RecordError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use types::{LayoutRule, Widening};

/// Where an object lies that is on disk targets of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarRec {
    pub layout: layout::Layout,
    /// Component and column of what is out of date.
    pub stale: Vec<(u16, u16)>,
    /// What it gets when it grows beyond its components.
    pub then: Vec<Widening>,
    /// Pool of targets that all of it lies in.
    pub pool: Option<String>,
}

/// What new files of a directory get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRec(pub LayoutRule);

/// `FarRec` before files got more as they grew.
#[derive(Deserialize)]
struct FarRecV1 {
    layout: layout::Layout,
    stale: Vec<(u16, u16)>,
}

/// `FarRec` before files could be kept to a pool of targets.
#[derive(Deserialize)]
struct FarRecV2 {
    layout: layout::Layout,
    stale: Vec<(u16, u16)>,
    then: Vec<Widening>,
}

impl From<FarRecV1> for FarRecV2 {
    fn from(FarRecV1 { layout, stale }: FarRecV1) -> Self {
        Self { layout, stale, then: Vec::new() }
    }
}

impl From<FarRecV2> for FarRec {
    fn from(FarRecV2 { layout, stale, then }: FarRecV2) -> Self {
        Self { layout, stale, then, pool: None }
    }
}

/// `RuleRec` before files got more as they grew.
#[derive(Deserialize)]
struct RuleRecV1 {
    unit_bytes: u32,
    stripes: u16,
    copies: u8,
    parity: u8,
}

/// `RuleRec` before files could be kept to a pool of targets.
#[derive(Deserialize)]
struct RuleRecV2 {
    unit_bytes: u32,
    stripes: u16,
    copies: u8,
    parity: u8,
    then: Vec<Widening>,
}

impl From<RuleRecV1> for RuleRecV2 {
    fn from(RuleRecV1 { unit_bytes, stripes, copies, parity }: RuleRecV1) -> Self {
        Self { unit_bytes, stripes, copies, parity, then: Vec::new() }
    }
}

impl From<RuleRecV2> for RuleRec {
    fn from(RuleRecV2 { unit_bytes, stripes, copies, parity, then }: RuleRecV2) -> Self {
        Self(LayoutRule { unit_bytes, stripes, copies, parity, then, pool: None })
    }
}

/// A record of version 1 or 2, made one of today.
fn upgraded<One, Two, T>(version: u8, bytes: &[u8]) -> Result<T, RecordError>
where
    One: DeserializeOwned + Into<Two>,
    Two: DeserializeOwned + Into<T>,
    T: Record,
{
    let second = match version {
        1 => record::body::<One>(bytes).map(Into::into),
        2 => record::body::<Two>(bytes),
        found => return Err(RecordError::Unknown { name: T::NAME, found }),
    };
    let damaged = |why| RecordError::Damaged { name: T::NAME, length: bytes.len() + 1, why };
    second.map(Into::into).map_err(damaged)
}

impl Record for FarRec {
    const NAME: &'static str = "FarRec";
    const VERSION: u8 = 3;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        upgraded::<FarRecV1, FarRecV2, Self>(version, bytes)
    }
}

impl Record for RuleRec {
    const NAME: &'static str = "RuleRec";
    const VERSION: u8 = 3;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        upgraded::<RuleRecV1, RuleRecV2, Self>(version, bytes)
    }
}
