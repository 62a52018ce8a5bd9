//! What is known of an open file that is written through the node.

use super::spares::Kept;
use crate::connection::Life;
use crate::length::{Cuts, Length};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::api::OpenFlags;

/// What was written through the node. Of what it may have in memory until it is synced, so that what was not is lost with it, there are counts only.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) writes: AtomicU64,
    pub(super) synced: AtomicU64,
    /// In which life of the file they were made last.
    life: Mutex<Option<Life>>,
    /// Of the rest the node tells which machines have it: what is known of the file, for whoever tells the next node ([`super::told::Told`]).
    pub(super) length: Arc<Length<()>>,
    told_in: Mutex<ToldIn>,
    /// What is kept of it here, until it is at the targets.
    pub(super) kept: Arc<Kept>,
}

/// In which lives of the file that was told.
#[derive(Debug, Default)]
struct ToldIn {
    lives: Vec<Life>,
    last: Option<Life>,
}

impl Served {
    /// A file that was cut when it was opened is not known to be durable either.
    pub(super) fn new(opened: Option<OpenFlags>, cuts: &Arc<Cuts>, kept: Arc<Kept>) -> Arc<Self> {
        Arc::new(Self {
            writes: AtomicU64::new(opened.is_some_and(|flags| flags.truncate).into()),
            synced: AtomicU64::new(0),
            life: Mutex::default(),
            length: Arc::new(Length::new(cuts.clone())),
            told_in: Mutex::default(),
            kept,
        })
    }

    /// Whether all is durable, or was written to the node of this life.
    pub(super) fn is_safe_in(&self, life: Life) -> bool {
        let synced = self.synced.load(Ordering::Acquire) == self.writes.load(Ordering::Acquire);
        synced || *self.life.lock() == Some(life)
    }

    pub(super) fn note(&self, life: Life) {
        *self.life.lock() = Some(life);
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn note_told(&self, life: Life, machines: &[u64]) {
        let mut told_in = self.told_in.lock();
        if told_in.last.replace(life).is_some_and(|last| last != life) {
            // What the node before has told counts as well.
            self.length.machines.another();
        }
        self.length.served((), machines);
        if !told_in.lives.contains(&life) {
            told_in.lives.push(life);
        }
    }

    /// Whether the node of another life than this has told where it has written, since that was asked last.
    pub(super) fn was_told_elsewhere(&self, life: Life) -> bool {
        let mut told_in = self.told_in.lock();
        let before = told_in.lives.len();
        told_in.lives.retain(|one| *one == life);
        told_in.lives.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::super::spares::Sparing;
    use super::*;
    use types::Ino;

    #[test]
    fn what_a_node_has_told_is_not_forgotten_for_what_the_next_one_tells() {
        let kept = Sparing::default().of(Ino(5), Life::Session(1));
        let served = Served::new(None, &Arc::default(), kept);
        let known = || served.length.machines.known();
        served.note_told(Life::Session(1), &[10, 20]);
        served.note_told(Life::Session(1), &[10, 30]);
        assert_eq!(known(), [10, 30], "a column was moved");
        served.note_told(Life::Session(2), &[11, 30]);
        assert_eq!(known(), [10, 30, 11], "whoever compares finds that a machine was started anew");
    }
}
