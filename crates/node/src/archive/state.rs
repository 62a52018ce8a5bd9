//! What the archive service knows: drives, library, queues. Locked only for short steps that do no IO.

use super::RecallTask;
use super::accounts::AccountTable;
use super::breaks::Breaks;
use super::cleaners::Cleaners;
use super::media::Refusals;
use super::parked::Parked;
use super::passing::Passing;
use super::revive::Comeback;
use super::shelf::Shelf;
use super::tapes::Tapes;
use crate::archive::progress::Progress;
use crate::clock::Moment;
use crossbeam_channel::Sender;
use sched::{DriveState, Maintenance, RecallQueue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use types::*;

/// A drive and what it does.
pub struct DriveSlot {
    /// Number.
    pub no: DriveNo,
    /// Its library.
    pub library: LibraryNo,
    /// Element address.
    pub element: u16,
    /// Vendor, product, revision.
    pub product: String,
    /// Serial number.
    pub serial: String,
    /// What the scheduler sees.
    pub state: DriveState,
    /// What people see, and since when.
    pub status: Standing,
    /// Why it does what it does.
    pub activity: String,
    /// What its present job was given.
    pub serves: Serves,
    /// Bytes moved, written by the worker.
    pub progress: Arc<Progress>,
    /// Slot that the loaded cartridge came from.
    pub home: Option<u16>,
    /// When the volume was mounted.
    pub mounted: Time,
    /// When the present job began.
    pub begun: Time,
    /// Mounts since start.
    pub mounts: u64,
    /// Errors since start.
    pub errors: u64,
    /// TapeAlert flags seen last.
    pub alerts: Vec<u8>,
    /// Its way back into use after a failure.
    pub comeback: Comeback,
    /// It asks to be cleaned.
    pub soiled: bool,
    /// Resets in a row that cost it its position.
    pub resets: u32,
    /// Media that it says it takes.
    pub reach: Reach,
    /// What it did not take all the same.
    pub refusals: Refusals,
}

impl DriveSlot {
    /// Whether it may get work.
    pub fn usable(&self) -> bool {
        !matches!(*self.status, DriveStatus::Suspect(_) | DriveStatus::Down)
    }
}

/// For whom a drive works, beyond what its volume tells.
#[derive(Default)]
pub struct Serves {
    /// Files that it reads.
    pub files: Vec<Ino>,
    /// Request of an operator that it carries out.
    pub request: Option<RequestId>,
}

/// State of a drive as people see it.
pub struct Standing {
    status: DriveStatus,
    since: Time,
}

impl Standing {
    /// From now on.
    pub fn new(status: DriveStatus) -> Self {
        Self { status, since: crate::now() }
    }

    /// It is this from now on. Another reason for the same state is no other state.
    pub fn set(&mut self, status: DriveStatus) {
        if std::mem::discriminant(&self.status) != std::mem::discriminant(&status) {
            self.since = crate::now();
        }
        self.status = status;
    }

    /// When it became so.
    pub fn since(&self) -> Time {
        self.since
    }
}

impl std::ops::Deref for Standing {
    type Target = DriveStatus;

    fn deref(&self) -> &DriveStatus {
        &self.status
    }
}

/// A file being recalled: which copy, and what is still to be read.
pub struct Recall {
    /// What was asked.
    pub task: RecallTask,
    /// Copies that failed, with the reasons.
    pub failed: Vec<(CopyNo, String)>,
    /// Which attempt this is: segments of earlier ones may still be in a drive.
    pub attempt: u32,
    /// Segments of it not yet read.
    pub left: usize,
    /// Queue items of those not yet given to a drive (some may have been since).
    pub queued: Vec<u64>,
    /// Segments that drives have or had, and their places on the drives' ways.
    pub reading: Vec<(Weak<Passing>, usize)>,
}

impl Recall {
    /// What drives have of it now.
    pub fn in_drives(&self) -> impl Iterator<Item = (Arc<Passing>, usize)> {
        self.reading.iter().filter_map(|(passing, nth)| Some((passing.upgrade()?, *nth)))
    }
}

/// A segment in a queue or in a drive.
#[derive(Clone)]
pub struct QueuedSegment {
    /// File.
    pub ino: Ino,
    /// Copy.
    pub copy: CopyNo,
    /// Attempt of the recall that it belongs to.
    pub attempt: u32,
    /// Where it lies.
    pub segment: Segment,
}

/// A comparison of one volume with the catalogue.
pub struct CheckAsk {
    /// Volumes.
    pub volumes: Vec<Barcode>,
    /// Read every byte.
    pub deep: bool,
    /// Gets one answer per volume.
    pub answer: Sender<Checked>,
}

/// What a comparison found.
pub struct Checked {
    /// File segments compared.
    pub files: u64,
    /// Bytes read and compared.
    pub bytes: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// What was taken from a volume that the catalogue did not know.
#[derive(Default)]
pub struct Adopted {
    /// Why it, or the rest of it, was not taken.
    pub failed: Option<String>,
    /// Once other volumes are known it may be taken.
    pub again: bool,
    /// In a few words, what it turned out to be.
    pub what: String,
    /// It is of another program or namespace: only an import takes it.
    pub foreign: bool,
    /// File segments that current versions need.
    pub live: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// File segments that nothing needs.
    pub dead: u64,
    /// What somebody should know: one line each.
    pub notes: Vec<String>,
    /// When its index was written, and the classes and pools of that day.
    pub rules: Option<(Time, format::ltfs::origin::Rules)>,
}

impl Adopted {
    /// Something that somebody should know, as long as a report has room for it.
    pub fn note(&mut self, line: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(line);
        }
    }
}

/// What a maintenance job is about, beyond what the scheduler needs.
pub enum Errand {
    /// Write a label for an operator's request.
    Label {
        /// Request to report to.
        request: RequestId,
        /// Pool.
        pool: Option<PoolName>,
        /// Overwrite what is not ours.
        force: bool,
        /// Name of the key that it gets; None: as its pool has it.
        key: Option<String>,
    },
    /// Write an index.
    Index,
    /// Compare with the catalogue.
    Check {
        /// Read every byte.
        deep: bool,
        /// Where the answer goes.
        answer: Sender<Checked>,
    },
    /// Enter its files into the catalogue.
    Adopt {
        /// Those of other namespaces are imported so.
        import: Option<Arc<super::import::Import>>,
        /// Where the answer goes.
        answer: Sender<(Barcode, Adopted)>,
    },
    /// Read its copies through.
    Verify(crate::keep::Ticket),
    /// Make it scratch: nothing on it is needed.
    Reclaim(crate::keep::Ticket),
}

/// All of it.
#[derive(Default)]
pub struct State {
    /// Drives by number.
    pub drives: BTreeMap<DriveNo, DriveSlot>,
    /// Libraries by number.
    pub shelves: BTreeMap<LibraryNo, Shelf>,
    /// Volumes as the scheduler sees them, until the catalogue or the library has others.
    pub tapes: Option<Tapes>,
    /// For whom files are read.
    pub accounts: AccountTable,
    /// How often which volumes are wanted.
    pub heat: sched::Heat,
    /// Files to be read, per volume.
    pub recalls: BTreeMap<Barcode, RecallQueue>,
    /// Segments by queue item id.
    pub segments: BTreeMap<u64, QueuedSegment>,
    /// Recalls by inode.
    pub files: BTreeMap<Ino, Recall>,
    /// Segments that wait for room on disk.
    pub parked: Vec<Parked>,
    /// Labels, indexes and checks that wait.
    pub maintenance: Vec<Maintenance>,
    /// What they are about.
    pub errands: BTreeMap<u64, Errand>,
    /// The catalogue or the disk tier failed while a volume was written: nothing is written before then.
    pub write_again: Option<Moment>,
    /// Volumes of a pool's backlog wait since then.
    pub waiting_since: BTreeMap<PoolName, Time>,
    /// Queues that wait for nothing: their pools have as many volumes as they may, and all are full.
    pub crowded: BTreeSet<PoolName>,
    /// Volumes that gave an error lately: copies elsewhere are preferred.
    pub avoid: BTreeSet<Barcode>,
    /// Cleaning cartridges that were used.
    pub cleaners: Cleaners,
    /// Media of volumes, where a drive says something else than the barcode.
    pub media: BTreeMap<Barcode, Generation>,
    /// Volumes that drives have failed with.
    pub breaks: Breaks,
    /// For operators, newest first.
    pub warnings: Vec<String>,
    /// Next queue item or maintenance id.
    pub next_id: u64,
    /// Set when the service ends: true writes indexes first.
    pub stopping: Option<bool>,
    /// Drives that had an error since start, or since the order to stop.
    pub troubled: BTreeSet<DriveNo>,
    /// What each demand was found blocked by, as the scheduler said it last.
    pub blocked: Vec<sched::Blocked>,
}

/// Lines about one volume that a report has room for.
const MOST_NOTES: usize = 1_000;
/// Most warnings kept.
const WARNINGS: usize = 50;

impl State {
    /// A fresh id.
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Tells the operator.
    pub fn warn(&mut self, text: String) {
        tracing::warn!("{text}");
        self.warnings.retain(|w| *w != text);
        self.warnings.insert(0, text);
        self.warnings.truncate(WARNINGS);
    }
}
