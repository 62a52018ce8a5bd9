//! Catalogue values: one version byte, then the postcard encoding of a serde type (`docs/formats/records.md`).
//!
//! A type that changes gets a higher [`Record::VERSION`]; its old shape stays in the code as a type of its own and
//! [`Record::upgrade`] turns old bytes into the present type. Values are rewritten in the new shape only when they
//! change, so old versions stay readable for ever.

use serde::{Serialize, de::DeserializeOwned};
use types::ErrorClass;

/// Why a stored value could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer release.
    #[error("{name} record has version {found}, this release reads up to {known}: use the newer release")]
    Newer {
        /// Type of the record.
        name: &'static str,
        /// Version byte found.
        found: u8,
        /// Highest version known.
        known: u8,
    },
    /// A version that never existed (or is no longer supported).
    #[error(
        "{name} record has version {found}, which no release wrote: the catalogue is damaged, restore a backup"
    )]
    Unknown {
        /// Type of the record.
        name: &'static str,
        /// Version byte found.
        found: u8,
    },
    /// The bytes are not an encoding of this type.
    #[error("{name} record of {length} bytes is damaged ({why}): restore a backup of the catalogue")]
    Damaged {
        /// Type of the record.
        name: &'static str,
        /// Bytes in the value, the version byte included.
        length: usize,
        /// What the decoder met.
        why: String,
    },
}

impl RecordError {
    /// The error class: a newer version is an input we do not accept, all else is corruption.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Newer { .. } => ErrorClass::Invalid,
            Self::Unknown { .. } | Self::Damaged { .. } => ErrorClass::Corrupt,
        }
    }
}

/// A type that is stored in the catalogue.
pub trait Record: Serialize + DeserializeOwned {
    /// Name in error messages.
    const NAME: &'static str;
    /// Version of the present shape, counted from 1. Raise it whenever the encoding of the type changes.
    const VERSION: u8;

    /// Decodes the body of an older version (`1..VERSION`): decode the old type with [`body`], then convert it, step
    /// by step through the versions between.
    fn upgrade(version: u8, _body: &[u8]) -> Result<Self, RecordError> {
        Err(RecordError::Unknown { name: Self::NAME, found: version })
    }
}

/// Declares types as records of a version without predecessors.
#[macro_export]
macro_rules! records {
    ($($type:ty = $version:literal),+ $(,)?) => {
        $(impl $crate::record::Record for $type {
            const NAME: &'static str = stringify!($type);
            const VERSION: u8 = $version;
        })+
    };
}

use types::{
    Class, Cluster, CopyRecord, Junction, Member, NodeId, Pool, PoolName, Quota, Request, RequestId,
    RequestKind, RequestState, TakenOut, Target, TargetId, TargetPool, Time, TokenRecord,
};
records! {
    CopyRecord = 1,
    Class = 1,
    Cluster = 1,
    Member = 1,
    TokenRecord = 1,
    TakenOut = 1,
    Junction = 1,
    TargetPool = 1,
}

/// `Pool` before it had a limit of bytes and a format.
#[derive(serde::Deserialize)]
struct PoolV1 {
    name: PoolName,
    max_volumes: u32,
}

/// `Quota` before it limited volumes.
#[derive(serde::Deserialize)]
struct QuotaV1 {
    uid: Option<u32>,
    files: u64,
    bytes: u64,
    tape_bytes: u64,
}

/// `Quota` before it limited bytes on disk.
#[derive(serde::Deserialize)]
struct QuotaV2 {
    uid: Option<u32>,
    files: u64,
    bytes: u64,
    tape_bytes: u64,
    volumes: u32,
}

/// `Target` before it could be lost.
#[derive(serde::Deserialize)]
struct TargetV1 {
    id: TargetId,
    uuid: String,
    node: NodeId,
    data: Vec<String>,
    domain: String,
    draining: bool,
    capacity: u64,
    free: u64,
    seen: Time,
}

impl From<TargetV1> for Target {
    fn from(old: TargetV1) -> Self {
        let TargetV1 { id, uuid, node, data, domain, draining, capacity, free, seen } = old;
        Self { id, uuid, node, data, domain, draining, lost: false, capacity, free, seen }
    }
}

/// `Request` before it had a priority.
#[derive(serde::Deserialize)]
struct RequestV1 {
    id: RequestId,
    kind: RequestKind,
    owner: u32,
    subject: String,
    state: RequestState,
    created: Time,
    started: Option<Time>,
    finished: Option<Time>,
    files_total: u64,
    files_done: u64,
    files_failed: u64,
    bytes_total: u64,
    bytes_done: u64,
    message: String,
}

impl From<RequestV1> for Request {
    fn from(old: RequestV1) -> Self {
        Self {
            id: old.id,
            state: old.state,
            started: old.started,
            finished: old.finished,
            files_total: old.files_total,
            files_done: old.files_done,
            files_failed: old.files_failed,
            bytes_total: old.bytes_total,
            bytes_done: old.bytes_done,
            message: old.message,
            ..Self::new(old.kind, old.owner, old.subject, old.created)
        }
    }
}

impl Record for Request {
    const NAME: &'static str = "Request";
    const VERSION: u8 = 2;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => body::<RequestV1>(bytes).map(Self::from).map_err(damaged),
            found => Err(RecordError::Unknown { name: Self::NAME, found }),
        }
    }
}

impl Record for Target {
    const NAME: &'static str = "Target";
    const VERSION: u8 = 2;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => body::<TargetV1>(bytes).map(Self::from).map_err(damaged),
            found => Err(RecordError::Unknown { name: Self::NAME, found }),
        }
    }
}

impl Record for Pool {
    const NAME: &'static str = "Pool";
    const VERSION: u8 = 2;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => {
                let PoolV1 { name, max_volumes } = body(bytes).map_err(damaged)?;
                Ok(Self { max_volumes, ..Self::new(name) })
            }
            found => Err(RecordError::Unknown { name: Self::NAME, found }),
        }
    }
}

impl Record for Quota {
    const NAME: &'static str = "Quota";
    const VERSION: u8 = 3;

    fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => {
                let QuotaV1 { uid, files, bytes, tape_bytes } = body(bytes).map_err(damaged)?;
                Ok(Self { uid, files, bytes, tape_bytes, volumes: 0, disk_bytes: 0 })
            }
            2 => {
                let QuotaV2 { uid, files, bytes, tape_bytes, volumes } = body(bytes).map_err(damaged)?;
                Ok(Self { uid, files, bytes, tape_bytes, volumes, disk_bytes: 0 })
            }
            found => Err(RecordError::Unknown { name: Self::NAME, found }),
        }
    }
}

/// Encodes a value: version byte, then its body.
pub fn encode<T: Record>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.push(T::VERSION);
    // Writing to memory cannot fail; postcard refuses only sequences of unknown length, which no record has.
    postcard::to_extend(value, out).expect("records have no sequences of unknown length")
}

/// Decodes a value of any version up to the present one.
pub fn decode<T: Record>(bytes: &[u8]) -> Result<T, RecordError> {
    let damaged = |why: String| RecordError::Damaged { name: T::NAME, length: bytes.len(), why };
    match bytes.split_first() {
        None => Err(damaged("empty".to_owned())),
        Some((&version, rest)) if version == T::VERSION => body(rest).map_err(damaged),
        Some((&found, _)) if found > T::VERSION => {
            Err(RecordError::Newer { name: T::NAME, found, known: T::VERSION })
        }
        Some((&0, _)) => Err(RecordError::Unknown { name: T::NAME, found: 0 }),
        Some((&version, rest)) => T::upgrade(version, rest),
    }
}

/// Decodes a body (without version byte) that must fill `bytes` exactly; the error says what is wrong.
pub fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}
