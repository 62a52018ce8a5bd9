//! What is stored of files on disk targets of the cluster.

use format::record::{self, Record, RecordError};
use serde::{Deserialize, Serialize};
use types::{LayoutRule, Widening};

/// Where an object lies that is on disk targets of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarRec {
    pub layout: layout::Layout,
    /// Component and column of what is out of date.
    pub stale: Vec<(u16, u16)>,
    /// What it gets when it grows beyond its components.
    pub then: Vec<Widening>,
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

/// `RuleRec` before files got more as they grew.
#[derive(Deserialize)]
struct RuleRecV1 {
    unit_bytes: u32,
    stripes: u16,
    copies: u8,
    parity: u8,
}

/// A record of version 1, made one of today.
fn upgraded<O: serde::de::DeserializeOwned, T: Record>(
    version: u8,
    bytes: &[u8],
    make: impl FnOnce(O) -> T,
) -> Result<T, RecordError> {
    match version {
        1 => record::body::<O>(bytes).map(make).map_err(|why| RecordError::Damaged {
            name: T::NAME,
            length: bytes.len() + 1,
            why,
        }),
        found => Err(RecordError::Unknown { name: T::NAME, found }),
    }
}

impl Record for FarRec {
    const NAME: &'static str = "FarRec";
    const VERSION: u8 = 2;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        let make = |FarRecV1 { layout, stale }| Self { layout, stale, then: Vec::new() };
        upgraded(version, bytes, make)
    }
}

impl Record for RuleRec {
    const NAME: &'static str = "RuleRec";
    const VERSION: u8 = 2;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        let make = |RuleRecV1 { unit_bytes, stripes, copies, parity }| {
            Self(LayoutRule { unit_bytes, stripes, copies, parity, then: Vec::new() })
        };
        upgraded(version, bytes, make)
    }
}
