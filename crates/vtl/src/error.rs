//! What can go wrong with the library itself (devices report their own troubles by sense data).

use std::io;
use std::path::PathBuf;

/// A virtual library cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum VtlError {
    /// The host's file system failed.
    #[error("{path}: {doing}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not have the form that it must have.
    #[error("{path}: {what}; restore it from a backup or take the cartridge out of the library directory")]
    Damaged {
        /// File or directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Another process runs this library.
    #[error("{path}: this virtual library is in use by another process; stop that one first")]
    InUse {
        /// The library's directory.
        path: PathBuf,
    },
    /// The configuration or a request does not fit the library.
    #[error("{0}")]
    Refused(String),
}

/// Result of an operation on the library.
pub type Result<T> = std::result::Result<T, VtlError>;

pub(crate) fn io(path: impl Into<PathBuf>, doing: &'static str) -> impl FnOnce(io::Error) -> VtlError {
    let path = path.into();
    move |source| VtlError::Io { path, doing, source }
}

pub(crate) fn damaged(path: impl Into<PathBuf>, what: impl Into<String>) -> VtlError {
    VtlError::Damaged { path: path.into(), what: what.into() }
}
