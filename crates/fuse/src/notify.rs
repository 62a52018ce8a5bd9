//! Tells the kernel what to forget when something changed behind its back.
//!
//! A thread of its own sends the notices: dropping a name takes the lock of its directory in the kernel, which a request
//! that is being handled may hold, so a notice must never be sent from within a request.

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};
use types::Ino;
use types::api::Watcher;

/// Bound of the queue; whoever has more to say waits (changes of attributes and names are never lost).
const MAX_QUEUED: usize = 1 << 16;
/// Longest wait for the kernel to take what was told.
const MOST_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Notice {
    Attributes(Ino),
    Entry(Ino, Box<[u8]>),
}

/// The queue of notices; it is the [`Watcher`] that the node gets.
#[derive(Default)]
pub(crate) struct Invalidator {
    state: Mutex<State>,
    wake: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Notices so far, and how many of them the kernel has got.
    told: u64,
    sent: u64,
    queue: VecDeque<Notice>,
    queued: HashSet<Notice>,
    ended: bool,
}

impl Watcher for Invalidator {
    fn attributes_changed(&self, ino: Ino) {
        self.push(Notice::Attributes(ino));
    }

    fn entry_changed(&self, parent: Ino, name: &[u8]) {
        self.push(Notice::Entry(parent, name.into()));
    }

    /// The kernel may be held up by whoever has locked a directory and asks for something there: that takes no second.
    fn wait_forgotten(&self) {
        let mut state = self.state.lock();
        let (told, end) = (state.told, Instant::now() + MOST_WAIT);
        while state.sent < told && !state.ended {
            if self.room.wait_until(&mut state, end).timed_out() {
                return;
            }
        }
    }
}

impl Invalidator {
    fn push(&self, notice: Notice) {
        let mut state = self.state.lock();
        while state.queue.len() >= MAX_QUEUED && !state.ended {
            self.room.wait(&mut state);
        }
        if !state.ended && state.queued.insert(notice.clone()) {
            state.told += 1;
            state.queue.push_back(notice);
            self.wake.notify_one();
        }
    }

    /// The mount is gone: no more notices.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.queue.clear();
        self.wake.notify_all();
        self.room.notify_all();
    }

    /// The sending thread.
    pub(crate) fn send_all(&self, kernel: &Notifier) {
        while let Some(notice) = self.next() {
            let sent = match &notice {
                Notice::Attributes(ino) => kernel.inval_inode(INodeNo(ino.0), -1, 0),
                Notice::Entry(parent, name) => kernel.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name)),
            };
            if let Err(error) = sent {
                tracing::debug!(?notice, %error, "the kernel did not take a notice");
            }
            self.state.lock().sent += 1;
            self.room.notify_all();
        }
    }

    fn next(&self) -> Option<Notice> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(notice) = state.queue.pop_front() {
                state.queued.remove(&notice);
                self.room.notify_all();
                return Some(notice);
            }
            self.wake.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_queued_once_and_again_after_it_was_taken() {
        let queue = Invalidator::default();
        queue.attributes_changed(Ino(7));
        queue.attributes_changed(Ino(7));
        queue.entry_changed(Ino(1), b"a");
        assert_eq!(queue.next(), Some(Notice::Attributes(Ino(7))));
        queue.attributes_changed(Ino(7));
        assert_eq!(queue.next(), Some(Notice::Entry(Ino(1), b"a"[..].into())));
        assert_eq!(queue.next(), Some(Notice::Attributes(Ino(7))));
        queue.end();
        queue.attributes_changed(Ino(8));
        assert_eq!(queue.next(), None);
    }
}
