//! Error classes: what a caller can do about an error, independent of the room it comes from.

use serde::{Deserialize, Serialize};

/// What an error means for the one who gets it. Gateways choose errno, FTP and S3 codes from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// Transient; the same call may succeed later.
    Retry,
    /// Somebody else holds what is needed (open file, lease, mounted volume).
    Busy,
    /// The named thing does not exist.
    NotFound,
    /// The thing to be made exists already.
    Exists,
    /// A directory was needed, or must not be one, is not empty, or leads elsewhere: see [`FsError`].
    Namespace,
    /// Permission refused.
    Denied,
    /// The input is not acceptable.
    Invalid,
    /// No space or quota left.
    NoSpace,
    /// Stored bytes are not what was written.
    Corrupt,
    /// A cartridge is suspect.
    Medium,
    /// A drive is suspect.
    Drive,
    /// A library (changer) is suspect.
    Library,
    /// A defect of ours.
    Bug,
}

/// Why a namespace operation was refused: POSIX's reasons, without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum FsError {
    /// ENOENT
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST
    #[error("file exists")]
    Exists,
    /// ENOTDIR
    #[error("not a directory")]
    NotADirectory,
    /// EISDIR
    #[error("is a directory")]
    IsADirectory,
    /// ENOTEMPTY
    #[error("directory not empty")]
    NotEmpty,
    /// EACCES
    #[error("permission denied")]
    AccessDenied,
    /// EPERM
    #[error("operation not permitted")]
    NotPermitted,
    /// EINVAL
    #[error("invalid argument")]
    Invalid,
    /// ENAMETOOLONG
    #[error("file name too long")]
    NameTooLong,
    /// EMLINK
    #[error("too many links")]
    TooManyLinks,
    /// ENODATA
    #[error("no such extended attribute")]
    NoAttribute,
    /// E2BIG
    #[error("extended attribute too large")]
    TooBig,
    /// ENOSPC
    #[error("no space left on the disk pool")]
    NoSpace,
    /// EFBIG
    #[error("file too large")]
    FileTooLarge,
    /// EBUSY
    #[error("resource busy")]
    Busy,
    /// EAGAIN
    #[error("data is offline; recall started")]
    WouldBlock,
    /// EINTR
    #[error("interrupted")]
    Interrupted,
    /// EIO
    #[error("input/output error")]
    Io,
    /// EROFS: the node no longer accepts changes (engine failed or shutting down).
    #[error("node accepts no changes")]
    ReadOnly,
    /// EBADF
    #[error("stale or bad file handle")]
    BadHandle,
    /// ESTALE
    #[error("stale inode")]
    Stale,
    /// ENXIO: seek for data or a hole beyond the end of the file.
    #[error("no data beyond this offset")]
    NoData,
    /// EOPNOTSUPP
    #[error("not supported")]
    NotSupported,
    /// ELOOP
    #[error("too many levels of symbolic links")]
    Loop,
    /// EDQUOT
    #[error("the owner holds as much as his quota allows; see `thermo quota ls`")]
    Quota,
    /// EDEADLK
    #[error("owners of locks would wait for each other")]
    Deadlock,
    /// ENOLCK
    #[error("no more locks can be held")]
    NoLocks,
    /// EREMOTE: it lies in a subsystem, to which the directory leads.
    #[error("the directory leads to a subsystem, and what is in it is there; see `thermo junction ls`")]
    Elsewhere,
}

impl FsError {
    /// The error class of this reason.
    pub fn class(self) -> ErrorClass {
        use FsError as E;
        match self {
            E::NotFound | E::NoAttribute | E::NoData | E::Stale | E::BadHandle => ErrorClass::NotFound,
            E::Exists => ErrorClass::Exists,
            E::NotADirectory | E::IsADirectory | E::NotEmpty | E::TooManyLinks | E::Loop | E::Elsewhere => {
                ErrorClass::Namespace
            }
            E::AccessDenied | E::NotPermitted | E::ReadOnly => ErrorClass::Denied,
            E::Invalid | E::NameTooLong | E::TooBig | E::FileTooLarge | E::NotSupported => {
                ErrorClass::Invalid
            }
            E::NoSpace | E::Quota => ErrorClass::NoSpace,
            E::Busy | E::Deadlock | E::NoLocks => ErrorClass::Busy,
            E::WouldBlock | E::Interrupted => ErrorClass::Retry,
            E::Io => ErrorClass::Corrupt,
        }
    }
}
