//! What the archive service knows: drives, library, queues. Locked only for short steps that do no IO.

use super::RecallTask;
use super::accounts::AccountTable;
use super::breaks::Breaks;
use super::cleaners::Cleaners;
use super::media::Refusals;
use super::outlook::Promise;
use super::rest::Rest;
use super::revive::Comeback;
use super::tapes::Tapes;
use crate::archive::progress::Progress;
use crate::archive::worker::Wanted;
use crate::clock::Moment;
use crossbeam_channel::Sender;
use sched::{DriveState, Maintenance, RecallQueue};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use types::*;

/// A drive and what it does.
pub struct DriveSlot {
    /// Number.
    pub no: DriveNo,
    /// Element address.
    pub element: u16,
    /// Vendor, product, revision.
    pub product: String,
    /// Serial number.
    pub serial: String,
    /// What the scheduler sees.
    pub state: DriveState,
    /// What people see.
    pub status: DriveStatus,
    /// Why it does what it does.
    pub activity: String,
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
        !matches!(self.status, DriveStatus::Suspect(_) | DriveStatus::Down)
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
    /// When what a drive has of it will be there.
    pub promise: Option<Promise>,
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
    /// Vendor, product and revision of the library.
    pub library_product: String,
    /// Name for people.
    pub library_name: String,
    /// Elements at the last inventory, kept up to date by moves.
    pub elements: Vec<ElementView>,
    /// Volumes as the scheduler sees them, until the catalogue or the library has others.
    pub tapes: Option<Tapes>,
    /// Moves of the robot that have been ordered and have not ended: the drive, and the slot that is to take its cartridge.
    pub moves: BTreeMap<DriveNo, Option<u16>>,
    /// Whether the robot is left alone after failures.
    pub rest: Rest,
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
    /// Segments that wait for room in the disk tier, and until when.
    pub parked: Vec<(Moment, Vec<Wanted>)>,
    /// Labels, indexes and checks that wait.
    pub maintenance: Vec<Maintenance>,
    /// What they are about.
    pub errands: BTreeMap<u64, Errand>,
    /// The catalogue or the disk tier failed while a volume was written: nothing is written before then.
    pub write_again: Option<Moment>,
    /// Volumes of a pool's backlog wait since then.
    pub waiting_since: BTreeMap<PoolName, Time>,
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

    /// The library was looked at.
    pub fn set_elements(&mut self, elements: Vec<ElementView>) {
        self.elements = elements;
        let (present, cleaners) = (&self.elements, &mut self.cleaners.0);
        // One that left may come back as another of the same name.
        for (barcode, cleaner) in cleaners {
            cleaner.used_up &= present.iter().any(|e| e.barcode.as_ref() == Some(barcode));
        }
        self.tapes = None;
    }

    /// Cartridges in the library, but for those on their way out.
    pub fn present(&self) -> HashSet<&Barcode> {
        self.elements.iter().filter(|e| !e.outgoing).filter_map(|e| e.barcode.as_ref()).collect()
    }

    /// Element that holds this cartridge.
    pub fn find(&self, barcode: &Barcode) -> Option<&ElementView> {
        self.elements.iter().find(|e| e.barcode.as_ref() == Some(barcode))
    }

    /// The robot is on its way, or will be.
    pub fn robot_busy(&self) -> bool {
        !self.moves.is_empty()
    }

    /// An empty storage slot that no move is for, preferably `home`.
    pub fn free_slot(&self, home: Option<u16>) -> Option<u16> {
        let awaited: Vec<u16> = self.moves.values().copied().flatten().collect();
        let empty =
            |e: &&ElementView| e.kind == ElementKind::Slot && !e.full && !awaited.contains(&e.address);
        let slots: Vec<u16> = self.elements.iter().filter(empty).map(|e| e.address).collect();
        home.filter(|h| slots.contains(h)).or_else(|| slots.first().copied())
    }

    /// Notes that a cartridge moved.
    pub fn moved(&mut self, from: u16, to: u16) {
        let Some(source) = self.elements.iter_mut().find(|e| e.address == from) else { return };
        // An inventory taken meanwhile shows the move already.
        if !std::mem::take(&mut source.full) {
            return;
        }
        let barcode = source.barcode.take();
        self.tapes = None;
        source.outgoing = false;
        let slot = source.kind == ElementKind::Slot;
        if let Some(target) = self.elements.iter_mut().find(|e| e.address == to) {
            target.barcode = barcode;
            target.full = true;
            target.outgoing = target.kind == ElementKind::ImportExport;
            target.source = slot.then_some(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(address: u16, barcode: Option<&str>) -> ElementView {
        ElementView {
            address,
            kind: if address < 10 { ElementKind::Drive } else { ElementKind::Slot },
            full: barcode.is_some(),
            barcode: barcode.map(Barcode::from),
            source: None,
            exception: None,
            outgoing: false,
        }
    }

    #[test]
    fn a_move_that_the_inventory_shows_already_changes_nothing() {
        let elements = vec![element(1, None), element(20, Some("TC0001L9"))];
        let mut state = State { elements, ..State::default() };
        state.moved(20, 1);
        assert_eq!(state.find(&Barcode::from("TC0001L9")).map(|e| e.address), Some(1));
        state.moved(20, 1);
        assert_eq!(state.find(&Barcode::from("TC0001L9")).map(|e| e.address), Some(1));
    }

    #[test]
    fn two_moves_are_not_for_one_slot() {
        let elements = vec![element(20, None), element(21, None), element(22, Some("TC0001L9"))];
        let mut state = State { elements, ..State::default() };
        state.moves.insert(DriveNo(0), Some(20));
        assert_eq!(state.free_slot(Some(20)), Some(21));
        state.moves.insert(DriveNo(1), Some(21));
        assert_eq!(state.free_slot(None), None);
        state.moves.remove(&DriveNo(0));
        assert!(state.robot_busy() && state.free_slot(Some(21)) == Some(20));
        state.moves.remove(&DriveNo(1));
        assert!(!state.robot_busy());
    }

    #[test]
    fn a_cartridge_without_a_readable_barcode_moves_too() {
        let unread = ElementView { full: true, ..element(1, None) };
        let mut state = State { elements: vec![unread, element(20, None)], ..State::default() };
        state.moved(1, 20);
        assert_eq!(state.elements.iter().map(|e| e.full).collect::<Vec<_>>(), [false, true]);
        assert_eq!(state.free_slot(None), None);
    }
}
