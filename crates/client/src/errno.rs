//! The one table from [`FsError`] to errno, for gateways that speak POSIX.

use crate::ClientError;
use rustix::io::Errno;
use types::{ErrorClass, FsError};

/// The errno that programs get for `error`.
pub fn errno(error: FsError) -> Errno {
    use FsError as E;
    match error {
        E::NotFound => Errno::NOENT,
        E::Exists => Errno::EXIST,
        E::NotADirectory => Errno::NOTDIR,
        E::IsADirectory => Errno::ISDIR,
        E::NotEmpty => Errno::NOTEMPTY,
        E::AccessDenied => Errno::ACCESS,
        E::NotPermitted => Errno::PERM,
        E::Invalid => Errno::INVAL,
        E::NameTooLong => Errno::NAMETOOLONG,
        E::TooManyLinks => Errno::MLINK,
        E::NoAttribute => Errno::NODATA,
        E::TooBig => Errno::TOOBIG,
        E::NoSpace => Errno::NOSPC,
        E::FileTooLarge => Errno::FBIG,
        E::Busy => Errno::BUSY,
        E::WouldBlock => Errno::AGAIN,
        E::Interrupted => Errno::INTR,
        E::Io => Errno::IO,
        E::ReadOnly => Errno::ROFS,
        E::BadHandle => Errno::BADF,
        E::Stale => Errno::STALE,
        E::NoData => Errno::NXIO,
        E::NotSupported => Errno::OPNOTSUPP,
        E::Loop => Errno::LOOP,
        E::Quota => Errno::DQUOT,
        E::Deadlock => Errno::DEADLK,
        E::NoLocks => Errno::NOLCK,
        E::Elsewhere => Errno::REMOTE,
    }
}

impl ClientError {
    /// The errno of this error: that of the node's reason, else the nearest to what the class says.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Refused(failure) if failure.fs.is_some() => failure.fs.map_or(Errno::IO, errno),
            Self::Local { source, .. } => source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error),
            Self::Unreachable { source, .. } => {
                source.raw_os_error().map_or(Errno::CONNREFUSED, Errno::from_raw_os_error)
            }
            Self::Lost { .. } => Errno::CONNRESET,
            other => match other.class() {
                ErrorClass::Retry => Errno::AGAIN,
                ErrorClass::Busy => Errno::BUSY,
                ErrorClass::NotFound => Errno::NOENT,
                ErrorClass::Exists => Errno::EXIST,
                ErrorClass::Namespace => Errno::NOTDIR,
                ErrorClass::Denied => Errno::ACCESS,
                ErrorClass::Invalid => Errno::INVAL,
                ErrorClass::NoSpace => Errno::NOSPC,
                _ => Errno::IO,
            },
        }
    }
}
