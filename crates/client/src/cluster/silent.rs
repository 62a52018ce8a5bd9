//! A node that keeps a connection and does not answer: it may be busy, wait for tape, or stand still while another one serves in its place. The last is
//! found out by looking whether another one takes the session.

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// After so long without an answer it is looked elsewhere, and again as often.
const SILENT: Duration = Duration::from_secs(3);

/// Looks at other nodes, by all who wait together.
#[derive(Default)]
pub(super) struct Silent(Mutex<Option<Instant>>);

impl Silent {
    /// Waits until there is something to be read, or the connection is broken. False: `elsewhere` has said that another node serves.
    pub(super) fn wait(&self, socket: &TcpStream, elsewhere: impl Fn() -> bool) -> bool {
        let pause = Timespec { tv_sec: SILENT.as_secs() as i64, tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&pause)) {
                Ok(0) if elsewhere() => return false,
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return true, // whoever reads is told what is wrong
            }
        }
    }

    /// Whether it is this caller's turn to look.
    pub(super) fn is_due(&self) -> bool {
        let mut looked = self.0.lock();
        let due = looked.is_none_or(|at| at.elapsed() >= SILENT);
        if due {
            *looked = Some(Instant::now());
        }
        due
    }
}
