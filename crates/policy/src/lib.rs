//! What should be migrated and purged now: a pure function from a view of the disk pool to a decision that can explain
//! itself. No IO, no clock, no memory: what one decision must know of the one before is in [`DiskUse::last`].
//!
//! Safety rules, each with a property test in `tests/rules.rs`:
//! * only a file with every copy that its class requires is purged, and never one that is open, pinned, of an unknown
//!   class, of a class that keeps files on disk, or of a class without copies;
//! * purging begins at the high watermark, ends at the low one, and takes the least recently used first;
//! * a file is migrated when it is due, when enough of its class waits, or when the disk needs the space.
#![forbid(unsafe_code)]

mod disk;
mod migrate;
mod purge;
mod reclaim;

pub use disk::{DiskMode, DiskUse, Pressure};
pub use migrate::{Candidate, MigrateBatch, MigrateItem, MigrateWhy};
pub use purge::{Held, Purge, PurgeCandidate, PurgeItem, held};
pub use reclaim::{Reclaim, ReclaimRules, dead_percent, generation, reclaim};

use std::collections::BTreeMap;
use types::{Class, ClassName, Time};

/// Everything a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct PolicyView<'a> {
    /// The disk pool.
    pub disk: DiskUse,
    /// All classes of service.
    pub classes: &'a BTreeMap<ClassName, Class>,
    /// Sealed files that lack copies, earliest due first: the first page of them, not only those already due.
    pub candidates: &'a [Candidate],
    /// Bytes that wait per class, also of files beyond the page; a class may be left out when the page holds all.
    pub waiting: &'a BTreeMap<ClassName, u64>,
    /// Files that occupy disk, least recently used first: the first page of them.
    pub purgeable: &'a [PurgeCandidate],
    /// Whether that page ends because there are no more.
    pub purgeable_complete: bool,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// State of the disk pool: give it back in [`DiskUse::last`] next time.
    pub mode: DiskMode,
    /// Files to write to tape, per class and pool.
    pub migrate: Vec<MigrateBatch>,
    /// Files whose disk space to release.
    pub purge: Purge,
}

/// Decides what to migrate and purge. Costs one step per candidate given.
pub fn decide(view: &PolicyView<'_>, now: Time) -> Decision {
    let level = disk::level(&view.disk);
    let purging = disk::purging(&view.disk);
    let purge = purge::select(view, purging);
    // When purging everything that may go is not enough, only migration makes more purgeable.
    let short = purging && purge.short > 0;
    let migrate = migrate::select(view, now, level, short);
    Decision { mode: DiskMode { pressure: level, purging }, migrate, purge }
}
