//! Who is at the other end of a unix socket, as the kernel knows it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Credentials of the process that connected, taken at connect(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Process id.
    pub pid: i32,
}

/// Asks the kernel (SO_PEERCRED, SO_PEERGROUPS; unix(7)).
///
/// # Errors
/// Not a connected unix socket.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let socket = socket.as_fd();
    let cred = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(Peer {
        uid: cred.uid.as_raw(),
        gid: cred.gid.as_raw(),
        groups: groups(socket)?,
        pid: cred.pid.as_raw_nonzero().get(),
    })
}

#[allow(unsafe_code)]
fn groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the buffer is valid for `bytes` bytes for the whole call, and the kernel writes at most that many.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut bytes,
            )
        };
        let needed = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || needed <= groups.len() {
            return Err(error);
        }
        groups.resize(needed, 0);
    }
}
