//! What the scheduler looks at.

use crate::{AccountId, Accounts, Heat, Limited, Mechanics, RecallQueue, Want};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Access, Barcode, DriveNo, Generation, LibraryNo, PathNo, PoolName, Reach, Time, VolumeState};

/// Everything a plan rests on.
#[derive(Clone, Debug)]
pub struct SchedView<'a> {
    /// Wall-clock time.
    pub now: Time,
    /// All drives.
    pub drives: &'a [Drive],
    /// Volumes in the library or known to the catalogue.
    pub volumes: &'a BTreeMap<Barcode, Tape>,
    /// Files to be read, per volume; empty queues may be there.
    pub recalls: &'a BTreeMap<Barcode, RecallQueue>,
    /// Copies that wait for a writer, per pool; those that a running session has already taken do not count.
    pub writes: &'a BTreeMap<PoolName, Backlog>,
    /// Labels, indexes and checks that somebody asked for, in order of asking.
    pub maintenance: &'a [Maintenance],
    /// Libraries whose robot is moving: no mount or unmount can begin there.
    pub robots_busy: &'a BTreeSet<LibraryNo>,
    /// Libraries whose robot failed lately: copies in other libraries are preferred.
    pub robots_troubled: &'a BTreeSet<LibraryNo>,
    /// The disk pool is under hard pressure: writes go first.
    pub disk_pressure: bool,
    /// Bounds and times of the scheduler.
    pub limits: &'a Limits,
    /// Times of robot and drives, and of volumes of which no more is known.
    pub mechanics: &'a Mechanics,
    /// For whom files are read: shares and limits.
    pub accounts: &'a Accounts,
    /// How often which volumes are wanted.
    pub heat: &'a Heat,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Number.
    pub id: DriveNo,
    /// Library: it takes volumes of that one only.
    pub library: LibraryNo,
    /// Media that it reads and writes.
    pub reach: Reach,
    /// What its bytes go through, with those of other drives of the same number.
    pub path: PathNo,
    /// Volumes that it refused although their medium is one of those, and for what.
    pub refused: BTreeMap<Barcode, Access>,
    /// False when it is suspect or taken out of use: it gets no action, and what is in it cannot be reached.
    pub usable: bool,
    /// What it does.
    pub state: DriveState,
}

/// What a drive does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveState {
    /// No cartridge in it, nothing running.
    Empty,
    /// A volume is mounted, nothing running.
    Loaded(Loaded),
    /// A job runs. Jobs end by themselves; the scheduler never interrupts one.
    Busy(Busy),
}

/// A mounted volume at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The volume.
    pub volume: Barcode,
    /// When it was mounted.
    pub mounted: Time,
    /// When its last job ended.
    pub idle_since: Time,
    /// Data lies behind its newest index.
    pub dirty: bool,
    /// Block of the data partition from which on reading goes forward: where the tape stands, or the block before if
    /// that was read last, because it is still at hand.
    pub position: u64,
}

/// A job that runs on a drive; [`crate::Action::busy`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Volume concerned: the one being mounted, unmounted, read or written.
    pub volume: Barcode,
    /// What kind of job.
    pub work: Work,
    /// What the drive works towards, as the action said: keeps a second drive from being cleared for the same.
    pub want: Option<Want>,
    /// When it is expected to end, if known; for estimates.
    pub until: Option<Time>,
    /// Whose limits the drive counts for.
    pub charge: Option<AccountId>,
    /// Of writing: bytes that the volume still takes, where that is known better than by [`Tape::free`].
    pub room: Option<u64>,
}

impl Busy {
    /// A job that nobody waits for.
    pub fn new(volume: Barcode, work: Work) -> Self {
        Self { volume, work, want: None, until: None, charge: None, room: None }
    }
}

/// Kind of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Moving and loading a cartridge.
    Mount,
    /// Unloading and moving it back.
    Unmount,
    /// Reading files.
    Recall,
    /// Writing files of a pool.
    Migrate,
    /// Label, index or check.
    Maintain,
}

/// A cartridge volume as the scheduler needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tape {
    /// State in the catalogue.
    pub state: VolumeState,
    /// Pool it belongs to, or is reserved for.
    pub pool: Option<PoolName>,
    /// Where it is. A volume in a drive is found by [`Drive::state`]; this says where it is otherwise.
    pub place: Place,
    /// Bytes written.
    pub written: u64,
    /// Bytes that still fit (estimate).
    pub free: u64,
    /// Its medium, if that is known.
    pub generation: Option<Generation>,
    /// It is tape written in wraps; otherwise it is read forward only.
    pub wraps: bool,
    /// The medium can be written once.
    pub worm: bool,
}

/// Where a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this library: in a slot, or in a drive.
    Library(LibraryNo),
    /// In none (exported, or never seen).
    Absent,
}

/// Copies of one pool that wait to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Number.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that running sessions have taken and not yet written.
    pub in_hand: u64,
    /// Since when the oldest has waited for a drive (not its age: when policy handed it over).
    pub since: Time,
    /// Largest number of volumes that the pool may hold; 0: no limit.
    pub max_volumes: u32,
    /// Only volumes in this library are written; None: in any.
    pub library: Option<LibraryNo>,
    /// New volumes of the pool are of media that can be written once, and of no others.
    pub worm: bool,
    /// What the limits of those whose files wait leave of it; None: they limit nothing.
    pub limited: Option<Limited>,
    /// First come copies of files that have only one left.
    pub rescue: bool,
}

/// A job on one volume that is neither recall nor migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// Identifier given by the caller, returned in the action.
    pub id: u64,
    /// What to do.
    pub kind: MaintenanceKind,
    /// On which volume.
    pub volume: Barcode,
    /// When it was asked for.
    pub since: Time,
}

/// Kind of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceKind {
    /// Write a label (whether it may is the catalogue's decision, made before).
    Label,
    /// Write an index.
    Index,
    /// Read label and index and compare with the catalogue.
    Check,
    /// Read copies through; whatever else wants the drive goes first.
    Verify,
}

/// Bounds and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A demand that waited this long starves: it comes first.
    pub starve_after: Duration,
    /// A mounted volume with work keeps its drive at least this long against other starving demands.
    pub turn: Duration,
    /// A mounted volume without work is unmounted after this time, unless it pays to leave it where it is.
    pub unmount_idle: Duration,
    /// What taking one cartridge out and another in costs; zero: nothing, and volumes are not kept in drives for it.
    pub exchange: Duration,
    /// When a volume that is written has no more than so many bytes left, the next one of its pool is brought if a drive has
    /// nothing else to do; 0: never.
    pub ahead_bytes: u64,
    /// Most files of one recall action.
    pub recall_batch: usize,
    /// Bytes after which a recall action ends, so that something more urgent need not wait for long.
    pub recall_bytes: u64,
    /// One more writer of a pool for each so many bytes of its backlog.
    pub bytes_per_writer: u64,
    /// Blank cartridges are labelled when a pool needs one.
    pub label_blank: bool,
    /// Drives that are never used for writing, as long as one is left for it.
    pub drives_for_recall: u32,
    /// Media of this generation and of older ones take no more data: they are being emptied.
    pub given_up: Option<Generation>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            starve_after: Duration::from_secs(30 * 60),
            turn: Duration::from_secs(5 * 60),
            unmount_idle: Duration::from_secs(2 * 60),
            exchange: Duration::from_secs(92),
            ahead_bytes: 0,
            recall_batch: 1000,
            recall_bytes: 64 << 30,
            bytes_per_writer: 256 << 30,
            label_blank: true,
            drives_for_recall: 0,
            given_up: None,
        }
    }
}

impl MaintenanceKind {
    /// What it does with the volume.
    pub fn access(self) -> Access {
        match self {
            Self::Label | Self::Index => Access::Write,
            Self::Check | Self::Verify => Access::Read,
        }
    }
}

impl SchedView<'_> {
    /// The drive that holds `volume`, or is about to, if any.
    pub fn drive_of(&self, volume: &Barcode) -> Option<&Drive> {
        self.drives.iter().find(|drive| drive.volume() == Some(volume))
    }

    /// Cost model of reading a volume.
    pub fn mechanics_of(&self, volume: &Barcode) -> Mechanics {
        let tape = self.volumes.get(volume).filter(|tape| tape.wraps);
        let generation = tape.and_then(|tape| tape.generation);
        generation.map_or_else(|| self.mechanics.clone(), |generation| self.mechanics.with(generation))
    }
}

impl Drive {
    /// An empty drive that takes everything, of the first library.
    pub fn new(id: DriveNo) -> Self {
        Self {
            id,
            library: LibraryNo::default(),
            reach: Reach::default(),
            path: PathNo::default(),
            refused: BTreeMap::new(),
            usable: true,
            state: DriveState::Empty,
        }
    }

    /// The volume in this drive, or on its way in or out.
    pub fn volume(&self) -> Option<&Barcode> {
        match &self.state {
            DriveState::Empty => None,
            DriveState::Loaded(loaded) => Some(&loaded.volume),
            DriveState::Busy(busy) => Some(&busy.volume),
        }
    }
}

impl Tape {
    /// The library that it is in.
    pub fn library(&self) -> Option<LibraryNo> {
        match self.place {
            Place::Library(library) => Some(library),
            Place::Absent => None,
        }
    }

    /// Whether it is in a library.
    pub fn is_present(&self) -> bool {
        self.place != Place::Absent
    }

    /// Whether it is neither read nor written until an operator says otherwise.
    pub fn is_out_of_use(&self) -> bool {
        matches!(self.state, VolumeState::Exported | VolumeState::Retired | VolumeState::Broken)
    }

    /// Whether files may be read from it (a suspect volume too, for want of a better one).
    pub fn readable(&self) -> bool {
        use VolumeState as S;
        self.is_present()
            && matches!(
                self.state,
                S::Filling | S::Full | S::ReadOnly | S::Suspect | S::Unverified | S::Repacking
            )
    }
}
