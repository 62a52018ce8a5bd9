//! An errand of the keeper on its way through queue and drive. However it ends, the keeper learns of it.

use crate::Node;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tape::{Blame, TapeError};
use types::Barcode;

/// What is to be done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read its copies.
    Verify,
    /// Make it scratch.
    Reclaim,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it is done; what is to be said about it.
    Done(String),
    /// It goes on later.
    Paused(String),
    /// It will not be done.
    Refused(String),
    /// Drive or robot failed: another may do it.
    Failed(String),
}

/// An errand under way.
#[derive(Default)]
pub struct Running {
    /// Block that it has come to.
    pub block: AtomicU64,
    /// Nobody wants it any more.
    pub withdrawn: AtomicBool,
}

/// See the module.
pub struct Ticket {
    node: Weak<Node>,
    volume: Barcode,
    task: Task,
    /// It reads no more than the configured pace allows.
    paced: bool,
    running: Arc<Running>,
    told: bool,
}

impl Ticket {
    /// None if there is one for this volume already.
    pub(super) fn new(node: &Arc<Node>, volume: &Barcode, task: Task, paced: bool) -> Option<Self> {
        let mut all = node.keeper.running.lock();
        if all.contains_key(volume) {
            return None;
        }
        let running = Arc::<Running>::default();
        all.insert(volume.clone(), running.clone());
        drop(all);
        let (node, volume) = (Arc::downgrade(node), volume.clone());
        Some(Self { node, volume, task, paced, running, told: false })
    }

    /// It has come to this block.
    pub fn at(&self, block: u64) {
        self.running.block.store(block, Ordering::Relaxed);
    }

    /// Nobody wants it any more.
    pub fn withdrawn(&self) -> bool {
        self.running.withdrawn.load(Ordering::Relaxed)
    }

    /// Whether so many bytes may be read now.
    pub fn may_read(&self, bytes: u64) -> bool {
        let Some(node) = self.node.upgrade() else { return false };
        !self.paced || node.keeper.take(bytes, node.settings().tape.verify_pace.0)
    }

    /// All of it is done.
    pub fn done(self, note: String) {
        self.tell(End::Done(note));
    }

    /// It goes on later.
    pub fn paused(self, note: String) {
        self.tell(End::Paused(note));
    }

    /// It will not be done.
    pub fn refused(self, why: String) {
        self.tell(End::Refused(why));
    }

    /// An error ended it.
    pub fn failed(self, error: &TapeError) {
        let why = error.to_string();
        self.tell(if error.blame == Blame::Medium { End::Refused(why) } else { End::Failed(why) });
    }

    fn tell(mut self, end: End) {
        self.told = true;
        self.report(end);
    }

    fn report(&self, end: End) {
        let Some(node) = self.node.upgrade() else { return };
        node.keeper.running.lock().remove(&self.volume);
        node.keeper.ended.lock().push((self.volume.clone(), self.task, end));
        node.keeper.wake();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        self.report(match std::thread::panicking() {
            // Without a word of it every drive in turn would be given what ended this one.
            true => End::Failed("a defect ended the drive's thread; see the log".into()),
            false => End::Paused(String::new()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn what_a_defect_ended_counts_as_a_failure_and_is_not_tried_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        node.stop(true);
        let ended_by = |work: fn(Ticket)| {
            let ticket = Ticket::new(&node, &Barcode::from("XX0001L9"), Task::Verify, false).unwrap();
            let _ = std::thread::spawn(move || work(ticket)).join();
            node.keeper.ended.lock().pop().map(|(.., end)| end)
        };
        assert_eq!(ended_by(drop), Some(End::Paused(String::new())), "the node stops");
        assert!(matches!(ended_by(|_ticket| panic!("cannot be")), Some(End::Failed(_))));
    }
}
