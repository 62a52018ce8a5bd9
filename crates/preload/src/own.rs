//! Descriptors of the library itself. They have high numbers, out of the way of programs that count on theirs, and a program that closes
//! whatever it finds open does not close them: the next file would get their number, and what was meant for a node would go there.

use crate::real;
use crate::table::{Inside, MOST, Numbers};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

static OWN: Numbers = Numbers::new();

/// First number of those.
fn base() -> RawFd {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it fills the structure.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let most = if told == 0 { limit.rlim_cur.min(MOST as u64) as RawFd } else { 256 };
    most - (most / 4).min(1024)
}

/// Takes a descriptor out of the program's way.
pub fn place(descriptor: OwnedFd) -> OwnedFd {
    // SAFETY: a copy of a descriptor that is open.
    let high = unsafe { real::fcntl()(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, base()) };
    let placed = match high {
        0.. => {
            drop(descriptor);
            // SAFETY: it was made here.
            unsafe { OwnedFd::from_raw_fd(high) }
        }
        _ => descriptor,
    };
    // Whoever has just closed it takes its mark away behind that. A program that closed it by itself leaves the mark.
    for _ in 0..1000 {
        if !OWN.has(placed.as_raw_fd()) {
            break;
        }
        std::thread::yield_now();
    }
    OWN.add(placed.as_raw_fd());
    placed
}

/// Whether it is one of these.
pub fn is_own(fd: RawFd) -> bool {
    OWN.has(fd)
}

/// Whether a descriptor may be closed: what is one of these, not by the program.
pub fn may_close(fd: RawFd) -> bool {
    !is_own(fd) || Inside::is()
}

/// It was closed by the library: only now may the program have its number.
pub fn closed(fd: RawFd) {
    OWN.remove(fd);
}

/// Closes the copies that a child has got.
pub fn close_all() {
    for fd in OWN.within(0, RawFd::MAX) {
        // SAFETY: nobody in this process uses it.
        unsafe { real::close()(fd) };
        OWN.remove(fd);
    }
}

/// Those between two, both included.
pub fn within(first: RawFd, last: RawFd) -> impl Iterator<Item = RawFd> {
    OWN.within(first, last)
}
