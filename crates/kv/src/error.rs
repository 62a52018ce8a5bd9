//! What can go wrong in an engine.

use std::path::PathBuf;

use crate::{MAX_KEY, MAX_VALUE};

/// What can go wrong in an engine.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// The storage below failed; the engine accepts no more changes until it is opened again.
    #[error(
        "metadata engine at {path}: {detail}; the engine takes no more changes, see the log and restart the node"
    )]
    Io {
        /// Engine directory or address.
        path: PathBuf,
        /// What the storage said.
        detail: String,
    },
    /// The storage is full.
    #[error("metadata engine at {path} is full; free space there, then restart the node")]
    Full {
        /// Engine directory.
        path: PathBuf,
    },
    /// Another process has the engine open.
    #[error("metadata engine at {path} is in use by another process; stop that node first")]
    Locked {
        /// Engine directory.
        path: PathBuf,
    },
    /// Stored data cannot be read.
    #[error("metadata engine at {path} is damaged: {detail}; restore a backup")]
    Corrupt {
        /// Engine directory.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The directory holds a format that this build does not know.
    #[error("metadata engine at {path} has format {found:?}, this build knows {known:?}; use a newer thermo")]
    Format {
        /// Engine directory.
        path: PathBuf,
        /// What its marker file says.
        found: String,
        /// What this build writes.
        known: String,
    },
    /// A backup would overwrite something.
    #[error("backup target {path} exists and is not an empty directory; name a new one")]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// A key outside the limits.
    #[error("key of {len} bytes; keys have 1 to {MAX_KEY} bytes")]
    KeyTooLong {
        /// Its length.
        len: usize,
    },
    /// A value beyond the limit.
    #[error("value of {len} bytes; values have at most {MAX_VALUE} bytes")]
    ValueTooLong {
        /// Its length.
        len: usize,
    },
    /// `add` or `raise` met a value that is no counter.
    #[error("value of {len} bytes where a counter of 8 bytes belongs")]
    NotACounter {
        /// Its length.
        len: usize,
    },
    /// The transaction lost against another one; engines retry by themselves, callers never see it.
    #[error("transaction conflict")]
    Conflict,
    /// A closure asked to give up; used by [`read`](crate::read) and [`write`](crate::write) to carry the caller's
    /// own error out.
    #[error("transaction given up by its closure")]
    Aborted,
}

/// Result of an engine.
pub type Result<T, E = KvError> = std::result::Result<T, E>;
