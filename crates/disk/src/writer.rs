//! Whether anybody can write to an object right now: also a program that mapped it, closed its descriptor and goes on
//! storing into the mapping, which no table of open files shows.
#![allow(unsafe_code)]

use crate::{DiskError, DiskTarget, Result};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// Not in the `libc` crate; the value of `include/uapi/asm-generic/fcntl.h`.
const F_SETSIG: i32 = 10;

fn fcntl(fd: i32, command: i32, argument: i32) -> std::result::Result<(), Errno> {
    // SAFETY: the commands used here take an int, and the descriptor is borrowed from its owner for the call.
    match unsafe { libc::fcntl(fd, command, argument) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
        _ => Ok(()),
    }
}

/// Whether anybody can write to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// No descriptor and no mapping that can.
    Nobody,
    /// One at least.
    Somebody,
    /// The file system gives no leases, so the kernel does not say.
    Unknown,
}

/// What the answer to a request for a read lease tells.
fn told(asked: std::result::Result<(), Errno>) -> std::result::Result<Writers, Errno> {
    match asked {
        Ok(()) => Ok(Writers::Nobody),
        Err(Errno::AGAIN) => Ok(Writers::Somebody),
        // Also where `fs.leases-enable` is 0.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Writers::Unknown),
        Err(e) => Err(e),
    }
}

impl DiskTarget {
    /// True if a descriptor or a mapping that can write to the object exists anywhere (our own included). `object` must
    /// be open for reading only. The kernel gives a read lease exactly when there is no writer (fcntl(2), `F_SETLEASE`);
    /// it is given back at once. File systems without leases count as having no such writer: see [`DiskTarget::writers`].
    pub fn has_writer(&self, object: impl AsFd) -> Result<bool> {
        Ok(self.writers(object)? == Writers::Somebody)
    }

    /// The same for who has to know it.
    pub fn writers(&self, object: impl AsFd) -> Result<Writers> {
        let fd = object.as_fd().as_raw_fd();
        // A lease that somebody breaks in between is told by a signal that is ignored by default, not by SIGIO.
        let asked =
            fcntl(fd, F_SETSIG, libc::SIGURG).and_then(|()| fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK));
        if asked.is_ok() {
            let back = fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
            back.map_err(|e| DiskError::on("giving back a lease of", &object, e))?;
        }
        told(asked).map_err(|e| DiskError::on("asking for writers of", &object, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ObjectId;

    #[test]
    fn a_descriptor_that_can_write_is_seen_and_readers_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let target = DiskTarget::open(dir.path()).unwrap();
        let writer = target.create(ObjectId(1)).unwrap();
        let reader = target.open_object(ObjectId(1), false).unwrap();
        assert!(target.has_writer(&reader).unwrap());
        assert_eq!(target.writers(&reader).unwrap(), Writers::Somebody);
        drop(writer);
        let _second = target.open_object(ObjectId(1), false).unwrap();
        assert!(!target.has_writer(&reader).unwrap());
        assert_eq!(target.writers(&reader).unwrap(), Writers::Nobody);
    }

    #[test]
    fn a_file_system_without_leases_does_not_say_that_nobody_writes() {
        for none in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS] {
            assert_eq!(told(Err(none)), Ok(Writers::Unknown));
        }
        assert_eq!(told(Err(Errno::AGAIN)), Ok(Writers::Somebody));
        assert_eq!(told(Ok(())), Ok(Writers::Nobody));
        assert_eq!(told(Err(Errno::ACCESS)), Err(Errno::ACCESS));
    }
}
