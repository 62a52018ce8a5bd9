//! What can go wrong in the catalogue.

use kv::KvError;
use types::{ErrorClass, FsError};

/// Result of a catalogue operation.
pub type Result<T, E = CatalogError> = std::result::Result<T, E>;

/// Why an operation of the catalogue failed. A failed operation leaves nothing behind.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// POSIX refuses it.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The metadata engine failed.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// A stored record cannot be understood.
    #[error(
        "catalogue record {what} of {id} is damaged: {detail}; run `thermo check` and restore a backup of the catalogue"
    )]
    Corrupt {
        /// Kind of record.
        what: &'static str,
        /// Whose record it is.
        id: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The named volume, class, pool or request is not in the catalogue.
    #[error("there is no {what} {name}")]
    Missing {
        /// Kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A directory leads to a subsystem: what is in it is there, and nothing of it is here.
    #[error(
        "{path} leads to subsystem {subsystem}, and what is in it is there: ask that (`thermo --node {address} ...`)"
    )]
    Elsewhere {
        /// Path of the directory.
        path: String,
        /// Name of the subsystem.
        subsystem: String,
        /// Where that is asked (`host:port`).
        address: String,
    },
    /// A directory leads to a subsystem, and stays where it is as long as it does.
    #[error(
        "{path} leads to subsystem {subsystem}, and stays where it is as long as it does: `thermo junction rm` it first"
    )]
    Junction {
        /// Path of the directory.
        path: String,
        /// Name of the subsystem.
        subsystem: String,
    },
    /// A rule of the archive forbids it now.
    #[error("{what}: {why}")]
    Refused {
        /// What it concerns.
        what: String,
        /// The rule, and what to do.
        why: String,
    },
}

impl CatalogError {
    /// What the caller can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Fs(e) => e.class(),
            Self::Kv(KvError::Full { .. }) => ErrorClass::NoSpace,
            Self::Kv(KvError::Locked { .. } | KvError::Owned { .. }) => ErrorClass::Busy,
            Self::Kv(KvError::Server { .. } | KvError::Standby { .. } | KvError::Lapsed { .. }) => {
                ErrorClass::Retry
            }
            Self::Kv(KvError::Absent { .. }) => ErrorClass::NotFound,
            Self::Kv(
                KvError::Taken { .. }
                | KvError::Older { .. }
                | KvError::Foreign { .. }
                | KvError::Rewound { .. },
            ) => ErrorClass::Denied,
            Self::Kv(KvError::Conflict) => ErrorClass::Retry,
            Self::Kv(KvError::Io { .. } | KvError::Corrupt { .. } | KvError::BadValue { .. }) => {
                ErrorClass::Corrupt
            }
            Self::Kv(
                KvError::Format { .. }
                | KvError::TargetExists { .. }
                | KvError::Address { .. }
                | KvError::Aside { .. }
                | KvError::NotEmpty { .. },
            ) => ErrorClass::Invalid,
            Self::Kv(_) => ErrorClass::Bug,
            Self::Corrupt { .. } => ErrorClass::Corrupt,
            Self::Missing { .. } => ErrorClass::NotFound,
            Self::Elsewhere { .. } => FsError::Elsewhere.class(),
            Self::Refused { .. } | Self::Junction { .. } => ErrorClass::Busy,
        }
    }

    /// The nearest reason that POSIX knows, for gateways.
    pub fn fs(&self) -> FsError {
        match self {
            Self::Fs(e) => *e,
            Self::Kv(KvError::Full { .. }) => FsError::NoSpace,
            Self::Kv(KvError::Conflict) => FsError::Busy,
            Self::Kv(
                KvError::Io { .. }
                | KvError::Locked { .. }
                | KvError::Server { .. }
                | KvError::Standby { .. }
                | KvError::Lapsed { .. }
                | KvError::Taken { .. }
                | KvError::Older { .. }
                | KvError::Rewound { .. },
            ) => FsError::ReadOnly,
            Self::Kv(_) | Self::Corrupt { .. } => FsError::Io,
            Self::Missing { .. } => FsError::NotFound,
            Self::Elsewhere { .. } => FsError::Elsewhere,
            Self::Refused { .. } | Self::Junction { .. } => FsError::Busy,
        }
    }

    /// Whether it is no more than what a file system answers to a call that it does not do.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Fs(_) | Self::Elsewhere { .. } | Self::Junction { .. })
    }

    /// Whether stored records are at fault: no other attempt will go better.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Kv(KvError::BadValue { .. }))
    }

    pub(crate) fn corrupt(what: &'static str, id: impl ToString, detail: impl ToString) -> Self {
        Self::Corrupt { what, id: id.to_string(), detail: detail.to_string() }
    }

    pub(crate) fn missing(what: &'static str, name: impl ToString) -> Self {
        Self::Missing { what, name: name.to_string() }
    }

    pub(crate) fn refused(what: impl ToString, why: impl ToString) -> Self {
        Self::Refused { what: what.to_string(), why: why.to_string() }
    }
}
