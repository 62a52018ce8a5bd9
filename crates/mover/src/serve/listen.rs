//! Sockets that clients connect to.

use super::gate::{Denial, What};
use super::{Mover, Peer, Served};
use data::{Link, Refusal};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Connections that are served at once.
const MOST: usize = 8192;

impl Mover {
    /// Serves whoever connects, each in a thread of its own, until the listener is shut down or this mover stops. Blocks.
    ///
    /// # Errors
    /// The listener fails.
    pub fn listen_tcp(self: &Arc<Self>, listener: &TcpListener) -> std::io::Result<()> {
        self.listen(|| {
            let (stream, from) = listener.accept()?;
            let peer = Peer::of(&stream, from);
            Ok((Link::tcp(stream)?, peer))
        })
    }

    /// The same for clients of this host, who may be given descriptors by which they read.
    ///
    /// # Errors
    /// The listener fails.
    pub fn listen_unix(self: &Arc<Self>, listener: &UnixListener) -> std::io::Result<()> {
        self.listen(|| {
            let (stream, _) = listener.accept()?;
            let peer = Peer::beside(&stream);
            Ok((Link::unix(stream), peer))
        })
    }

    /// The same for whoever `next` brings. Whoever was refused too often is not let in for a while.
    ///
    /// # Errors
    /// Of `next`, unless one connection only was lost.
    pub fn listen(
        self: &Arc<Self>,
        mut next: impl FnMut() -> std::io::Result<(Link, Peer)>,
    ) -> std::io::Result<()> {
        use std::io::ErrorKind as E;
        loop {
            let connected = next();
            if self.stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            let (link, peer) = match connected {
                Ok(connected) => connected,
                Err(e) if e.kind() == E::InvalidInput => return Ok(()),
                Err(e) if matches!(e.kind(), E::ConnectionAborted | E::Interrupted | E::NotConnected) => {
                    continue;
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc_errno::EMFILE | libc_errno::ENFILE)) => {
                    tracing::warn!("connections have to wait: {e}; raise the limit of open files");
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    continue;
                }
                Err(e) => return Err(e),
            };
            if !self.gate.lets(&peer, Instant::now()) {
                tracing::debug!(%peer, "not let in: refused too often");
                (link.hang_up)();
                continue;
            }
            if self.connections.lock().len() >= MOST {
                let full = Refusal::Busy(format!("{MOST} connections are open already"));
                self.gate.refused(&peer, What::default(), &Denial::ordinary(full), Instant::now());
                (link.hang_up)();
                continue;
            }
            let mover = self.clone();
            let spawned = std::thread::Builder::new().name("mover".into()).spawn(move || {
                log(&mover.serve(link, &peer), &peer);
            });
            if let Err(e) = spawned {
                tracing::warn!("a connection was dropped because there is no thread for it: {e}");
            }
        }
    }
}

/// Numbers of errors that `ErrorKind` does not name.
mod libc_errno {
    use rustix::io::Errno;
    pub(super) const EMFILE: i32 = Errno::MFILE.raw_os_error();
    pub(super) const ENFILE: i32 = Errno::NFILE.raw_os_error();
}

/// Why somebody was refused has been told when he was.
fn log(served: &Served, peer: &Peer) {
    match served {
        Served::Refused(refusal) => tracing::debug!(%peer, "connection ended: {refusal}"),
        Served::Gone(e) => tracing::debug!(%peer, "connection ended: {e}"),
        Served::Ended => tracing::debug!(%peer, "connection ended"),
    }
}
