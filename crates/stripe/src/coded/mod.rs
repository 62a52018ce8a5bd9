//! Coded components: rows of k units of data and m of parity, and the journals that keep small writes until they are folded into rows.
//! `docs/design/0011-coded.md` says what lies where, in which order things become durable, and why no moment is a bad one to crash.
//!
//! * `shape`: arithmetic, and seals: the sums of a row's units, by which it is known what of a row belongs together.
//! * `record`, `extents`: the log on disk and in memory. `journal`: appending; `load`: what another writer, or a crash, has left; `seen`: what
//!   a reader beside the writer remembers of that.
//! * `gather`: what stays in memory until it fills rows; `pace`: whether its writers wait for each other;
//!   `failures`: what of it was not written out.
//! * `units`: reading units, or computing them. `holes`: rows that have no bytes. `read`, `write`, `fold`, `cut`, `compare`: what is done with a file.

mod compare;
mod cut;
mod extents;
mod failures;
mod fold;
mod gather;
mod holes;
mod journal;
mod load;
mod mend;
mod pace;
mod read;
pub mod record;
mod room;
mod seen;
pub(crate) mod shape;
mod units;
mod write;

use crate::{Result, StripeError};

pub use extents::Extents;
use gather::Gathered;
use layout::Component;
use parking_lot::{Condvar, Mutex, RwLock};
pub(crate) use read::Over;
use record::Head;
pub use room::Room;
use seen::Seen;
use shape::{Seal, Shape};
use std::collections::{BTreeMap, BTreeSet};

/// One coded component of an open file.
#[derive(Debug)]
pub(crate) struct Coded {
    pub(crate) shape: Shape,
    /// Passed shared by whoever writes; what concerns the whole file takes it exclusively.
    pub(crate) gate: RwLock<()>,
    /// Held by who folds.
    folding: Mutex<()>,
    log: Mutex<Log>,
    /// What was written and is in memory only.
    gathered: Gathered,
    /// What this process knows of the log of another writer.
    seen: Mutex<Option<Seen>>,
    /// Why a quiet reader cannot know it: whoever waited meanwhile does not try again.
    unseen: Mutex<Option<StripeError>>,
    /// An append is done.
    appended: Condvar,
    /// Rows that somebody changes, or reads to compute what is missing.
    held: Mutex<BTreeSet<u64>>,
    released: Condvar,
}

/// What is known of the log and of the rows.
#[derive(Debug, Default)]
struct Log {
    /// This is the writer: what follows is all there is.
    writer: bool,
    head: Head,
    /// Where the next record of the epoch goes, in its half, and up to where all have been answered.
    end: u64,
    answered: u64,
    view: View,
    /// The file had so many rows when this became the writer; which rows have been written since.
    rows: u64,
    written: BTreeSet<u64>,
    /// Which of those that it had are holes but for that, of the runs of rows that were looked at.
    holes: BTreeSet<u64>,
    looked: BTreeSet<u64>,
    /// Rows that have changed since a column is being mended.
    changed: Option<BTreeSet<u64>>,
}

/// What lies over the columns.
#[derive(Clone, Debug, Default)]
struct View {
    /// Of the epoch that is being folded.
    old: Extents,
    /// Of the epoch that is being appended to.
    new: Extents,
    /// Parity and seals of rows as the fold that was interrupted makes them.
    redo: BTreeMap<u64, Redo>,
    /// Length of the file as far as it is in this component (bytes).
    length: u64,
}

#[derive(Clone, Debug)]
struct Redo {
    seal: Seal,
    /// By the first byte in each unit: the units of parity.
    parity: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl View {
    /// What lies over a range, in a file of this length (bytes).
    fn part(&self, range: std::ops::Range<u64>, length: u64) -> Self {
        let mut part = Self { length, ..Self::default() };
        self.old.within(range.clone()).for_each(|(at, bytes)| part.old.insert(at, bytes.to_vec()));
        self.new.within(range).for_each(|(at, bytes)| part.new.insert(at, bytes.to_vec()));
        part
    }
}

impl Coded {
    pub(crate) fn new(component: &Component, k: usize, m: usize) -> Result<Self> {
        let refused =
            |_| StripeError::Columns { component: 0, wanted: k + m, found: component.targets.len() };
        Ok(Self {
            shape: Shape::new(component, k, m).map_err(refused)?,
            gate: RwLock::default(),
            folding: Mutex::default(),
            log: Mutex::default(),
            gathered: Gathered::default(),
            seen: Mutex::default(),
            unseen: Mutex::default(),
            appended: Condvar::new(),
            held: Mutex::default(),
            released: Condvar::new(),
        })
    }

    /// Holds rows until what is returned is dropped.
    fn hold(&self, rows: impl Iterator<Item = u64> + Clone) -> Held<'_> {
        let mut held = self.held.lock();
        while rows.clone().any(|row| held.contains(&row)) {
            self.released.wait(&mut held);
        }
        held.extend(rows.clone());
        Held { coded: self, rows: rows.collect() }
    }
}

struct Held<'a> {
    coded: &'a Coded,
    rows: Vec<u64>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.coded.held.lock();
        held.retain(|row| !self.rows.contains(row));
        self.coded.released.notify_all();
    }
}

impl crate::Striped {
    /// Whether this is the writer of a log: nobody else may be.
    pub fn is_writer(&self) -> bool {
        // Who holds it for long writes the log.
        let writes = |coded: &Coded| coded.log.try_lock().is_none_or(|log| log.writer);
        self.coded.iter().flatten().any(writes)
    }
}

impl Log {
    /// Whether a row is known to have no bytes.
    fn is_fresh(&self, row: u64) -> bool {
        (row >= self.rows || self.holes.contains(&row)) && !self.written.contains(&row)
    }
}
