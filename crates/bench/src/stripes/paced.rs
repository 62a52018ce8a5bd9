//! Connections that send no faster than a target is meant to be.

use anyhow::{Result, ensure};
use std::os::fd::{AsFd, AsRawFd};

/// Makes a socket send at most so many bytes per second: the kernel's own pacing of TCP (socket(7), SO_MAX_PACING_RATE), so it costs our
/// side nothing. Connections that a listening socket accepts are paced as it is.
#[allow(unsafe_code)]
pub fn pace(socket: &impl AsFd, bytes_per_s: u32) -> Result<()> {
    let size = size_of_val(&bytes_per_s) as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the call, and the option is an integer of that size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_s).cast(),
            size,
        )
    };
    ensure!(done == 0, "pacing a connection: {}", std::io::Error::last_os_error());
    Ok(())
}
