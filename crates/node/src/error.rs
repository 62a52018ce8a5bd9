//! From the rooms' errors to what callers see; whatever a POSIX reason cannot say goes to the log.

use catalog::CatalogError;
use disk::DiskError;
use types::{ErrorClass, FsError};
use wire::Failure;

/// A catalogue error as a POSIX reason; anything that is not one is logged.
pub fn fs_error(doing: &str, error: &CatalogError) -> FsError {
    match error {
        CatalogError::Fs(_) => {}
        error if error.is_answer() => tracing::debug!("{doing}: {error}"),
        error => tracing::error!("{doing}: {error}"),
    }
    error.fs()
}

/// A disk error as a POSIX reason, logged.
pub fn disk_error(doing: &str, error: &DiskError) -> FsError {
    tracing::error!("{doing}: {error}");
    match error {
        DiskError::NoSpace { .. } => FsError::NoSpace,
        _ => FsError::Io,
    }
}

/// Builds a failure.
pub fn failure(class: ErrorClass, message: impl Into<String>) -> Failure {
    Failure { class, fs: None, message: message.into() }
}

/// A catalogue error as a failure about `subject`.
pub fn refused(subject: &str, error: &CatalogError) -> Failure {
    Failure { class: error.class(), fs: Some(error.fs()), message: format!("{subject}: {error}") }
}

/// A POSIX reason as a failure about `subject`.
pub fn fs_failure(subject: &str, error: FsError) -> Failure {
    Failure { class: error.class(), fs: Some(error), message: format!("{subject}: {error}") }
}
