//! The one table from [`FsError`] to errno.

use fuser::Errno;
use rustix::io::Errno as Sys;
use types::FsError;

/// The errno that programs get for `error`.
pub(crate) fn errno(error: FsError) -> Errno {
    use FsError as E;
    match error {
        E::NotFound => Errno::ENOENT,
        E::Exists => Errno::EEXIST,
        E::NotADirectory => Errno::ENOTDIR,
        E::IsADirectory => Errno::EISDIR,
        E::NotEmpty => Errno::ENOTEMPTY,
        E::AccessDenied => Errno::EACCES,
        E::NotPermitted => Errno::EPERM,
        E::Invalid => Errno::EINVAL,
        E::NameTooLong => Errno::ENAMETOOLONG,
        E::TooManyLinks => Errno::EMLINK,
        E::NoAttribute => Errno::ENODATA,
        E::TooBig => Errno::E2BIG,
        E::NoSpace => Errno::ENOSPC,
        E::FileTooLarge => Errno::EFBIG,
        E::Busy => Errno::EBUSY,
        E::WouldBlock => Errno::EAGAIN,
        E::Interrupted => Errno::EINTR,
        E::Io => Errno::EIO,
        E::ReadOnly => Errno::EROFS,
        E::BadHandle => Errno::EBADF,
        E::Stale => Errno::ESTALE,
        E::NoData => Errno::ENXIO,
        E::NotSupported => Errno::EOPNOTSUPP,
        E::Loop => Errno::ELOOP,
        E::Quota => Errno::EDQUOT,
    }
}

/// The errno of a failed system call on a backing file.
pub(crate) fn of_sys(error: Sys) -> Errno {
    Errno::from_i32(error.raw_os_error())
}
