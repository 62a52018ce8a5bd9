//! Errno as fuser has it.

use fuser::Errno;
use rustix::io::Errno as Sys;
use types::FsError;

/// The errno that programs get for `error`.
pub(crate) fn errno(error: FsError) -> Errno {
    of_sys(client::errno(error))
}

/// The errno of a failed system call on a backing file.
pub(crate) fn of_sys(error: Sys) -> Errno {
    Errno::from_i32(error.raw_os_error())
}
