//! What one thread did, in order, with when each call was issued and when it was answered.

use super::names::NameOp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A regular file of a worker, whatever names it has.
pub type FileId = u64;

/// A moment: `order` puts the calls of all threads in a row, `position` is the length of the disk's record then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Counts every call and every answer.
    pub order: u64,
    /// Entries in the record of the disk; 0 without a recording disk.
    pub position: u64,
}

/// Gives moments.
#[derive(Clone, Default)]
pub struct Clock {
    order: Arc<AtomicU64>,
    position: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// A clock that also reads the length of a disk's record.
    pub fn of_disk(position: Arc<AtomicU64>) -> Self {
        Self { position: Some(position), ..Self::default() }
    }

    /// Whether it reads a recording disk of this process.
    pub fn is_of_disk(&self) -> bool {
        self.position.is_some()
    }

    /// Now.
    pub fn now(&self) -> Moment {
        let position = self.position.as_ref().map_or(0, |p| p.load(Ordering::SeqCst));
        Moment { order: self.order.fetch_add(1, Ordering::SeqCst), position }
    }
}

/// A change of a file's content.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Which file.
    pub file: FileId,
    /// What becomes of it.
    pub change: Change,
    /// Nothing promises that it is there, even while the machine runs on, before a sync: written through a mapping
    /// without msync, or the call failed half way.
    pub loose: bool,
}

/// Kinds of [`Edit`].
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes [`crate::noise`] of `seed` are written at `at`.
    Write {
        /// Offset (bytes).
        at: u64,
        /// How many bytes.
        length: usize,
        /// Of the noise.
        seed: u64,
    },
    /// The file gets this length.
    Resize(u64),
}

impl Change {
    /// Applies it.
    pub fn apply(&self, content: &mut Vec<u8>) {
        match *self {
            Change::Write { at, length, seed } => {
                let end = at as usize + length;
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[at as usize..end].copy_from_slice(&crate::noise(seed, length));
            }
            Change::Resize(length) => content.resize(length as usize, 0),
        }
    }
}

/// What a call was for.
#[derive(Clone, Debug)]
pub enum What {
    /// Changes names.
    Name(NameOp),
    /// Changes bytes.
    Edit(Edit),
    /// fsync of a file: its bytes and all names so far.
    SyncFile(FileId),
    /// fsync of a directory: all names so far.
    SyncNames,
    /// Files that have all their copies on tape.
    Archived(Vec<FileId>),
}

/// One call.
#[derive(Clone, Debug)]
pub struct Event {
    /// What for.
    pub what: What,
    /// Before the call.
    pub issued: Moment,
    /// After it came back with success; `None` when nobody knows what became of it.
    pub answered: Option<Moment>,
}

impl Event {
    /// Whether it may have had an effect by `cut` (a position of the disk's record).
    pub fn begun(&self, cut: u64) -> bool {
        self.issued.position <= cut
    }

    /// Whether it was confirmed by `cut`.
    pub fn confirmed(&self, cut: u64) -> bool {
        self.answered.is_some_and(|m| m.position <= cut)
    }
}

/// What was there at the beginning and what was done to it since.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Names at the beginning.
    pub names: super::names::Names,
    /// Inode numbers of files, as far as they were seen.
    pub inodes: BTreeMap<FileId, u64>,
    /// Contents at the beginning.
    pub contents: BTreeMap<FileId, Vec<u8>>,
    /// Numbers up to this one have been given to files and names.
    pub numbered: u64,
    /// Everything since, in order.
    pub events: Vec<Event>,
}

impl History {
    /// The calls that may have had an effect by `cut`.
    pub fn begun(&self, cut: u64) -> &[Event] {
        let end = self.events.iter().position(|e| !e.begun(cut)).unwrap_or(self.events.len());
        &self.events[..end]
    }
}
