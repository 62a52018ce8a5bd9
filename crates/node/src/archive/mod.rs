//! The archive service: one thread that owns the state of drives, queues and volumes and lets `sched` decide; one worker
//! thread per drive that does one job at a time and answers with an event.

mod accounts;
mod adopt;
mod ahead;
mod alerts;
mod apart;
mod blocked;
mod breaks;
mod buffers;
mod bytes;
mod clean;
mod cleaners;
mod commit;
mod defect;
mod details;
mod digests;
mod door;
mod ends;
mod entries;
mod events;
mod family;
mod feed;
mod flights;
mod give;
mod hand;
mod hardware;
pub mod import;
mod index;
mod key;
mod label;
mod lately;
pub mod layout;
mod library;
mod look;
mod media;
mod migrate;
mod more;
mod nearest;
mod outlook;
mod own;
mod pace;
mod parked;
mod passing;
mod progress;
mod queue;
mod quote;
mod read;
mod recalls;
mod reclaim;
mod rest;
mod revive;
mod room;
mod sections;
mod settle;
mod shelf;
mod slow;
mod source;
mod state;
mod store;
mod stream;
mod tapes;
#[cfg(test)]
pub mod testing;
mod there;
mod times;
mod trouble;
mod verify;
mod view;
mod waits;
mod worker;
mod worm;

use crate::Node;
use crate::files::Staging;
use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::*;
use wire::Failure;

pub use bytes::FileHash;
pub use ends::{begin, wants_index};
pub use events::{TICK, carried_out, decide, step, take};
pub use hardware::{Devices, Hardware, Libraries};
pub use index::write_index;
pub use label::left_of_one;
pub use library::{ORDERS, Workers, enter, open_virtual, take_stock};
pub use outlook::{expected, renew};
pub use own::own_volumes;
pub use queue::{POOL_ENOUGH, Pushed, WriteQueue};
pub use quote::{Asked, Quoted, quote};
pub use revive::DriveAsk;
pub use state::{Adopted, CheckAsk, Checked, Errand};
pub use view::Moving;
pub use worker::{Job, Order, Worker};
pub use worm::mismatch;

use state::State;
use worker::Ended;

/// One file to bring back.
#[derive(Clone)]
pub struct RecallTask {
    /// Its recall.
    pub staging: Arc<Staging>,
    /// Since when somebody waits.
    pub since: Time,
    /// Nobody waits: it is brought back so that copies of it can be written; drives that others want are left to them.
    pub background: bool,
    /// Volume that it is best read from.
    pub prefer: Option<Barcode>,
    /// For whom.
    pub account: sched::AccountId,
    /// Greater goes first, 1 to 9.
    pub priority: u8,
    /// Wanted by then.
    pub deadline: Option<Time>,
}

impl RecallTask {
    /// Somebody waits from now on, nobody in particular.
    pub fn new(staging: Arc<Staging>) -> Self {
        Self {
            staging,
            since: crate::now(),
            background: false,
            prefer: None,
            account: sched::AccountId::default(),
            priority: Request::USUAL_PRIORITY,
            deadline: None,
        }
    }
}

/// Everything that can happen to the archive service.
pub enum Event {
    /// Files are wanted back.
    Recall(Vec<RecallTask>),
    /// Somebody opened a file whose recall waits.
    Hurry(Arc<Staging>),
    /// Another request wants a file whose recall waits: it is as urgent as the more urgent of the two.
    Raise {
        /// The recall.
        staging: Arc<Staging>,
        /// For whom, if nobody has waited so far.
        account: sched::AccountId,
        /// Greater goes first.
        priority: u8,
        /// Wanted by then.
        deadline: Option<Time>,
    },
    /// The write queues have more.
    Backlog,
    /// An operator wants labels.
    Label {
        /// Request to report to.
        request: RequestId,
        /// Volumes.
        volumes: Vec<Barcode>,
        /// Pool that they go to; None: scratch.
        pool: Option<PoolName>,
        /// Overwrite what is not ours.
        force: bool,
        /// Name of the key that it gets; None: as its pool has it.
        key: Option<String>,
    },
    /// Compare volumes with the catalogue.
    Check(CheckAsk),
    /// Something is to be done with a volume.
    Errand {
        /// For the scheduler.
        kind: sched::MaintenanceKind,
        /// Volume.
        volume: Barcode,
        /// What.
        errand: Errand,
    },
    /// Enter the files of volumes that the catalogue has lost.
    Adopt {
        /// Volumes.
        volumes: Vec<Barcode>,
        /// Those of other namespaces are imported so; None: they are left alone.
        import: Option<Arc<import::Import>>,
        /// Gets one answer per volume.
        answer: Sender<(Barcode, Adopted)>,
    },
    /// A library was looked at anew.
    Inventory(LibraryNo, Vec<ElementView>),
    /// A library that could not be used answers again.
    Library(Box<library::Stock>),
    /// A drive finished its job.
    Ended(Box<Ended>),
    /// An operator wants a drive in or out of use.
    Drive(revive::DriveAsk),
    /// A drive was cleaned, or not.
    Cleaned(Box<clean::Cleaned>),
    /// A drive that had failed was tried again.
    Revived(Box<revive::Revived>),
    /// Stop: graceful finishes batches and writes indexes.
    Stop {
        /// Finish batches and write indexes.
        graceful: bool,
    },
}

/// Lengths of the queues of the archive service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Files on their way back.
    pub files: usize,
    /// Segments of them that wait for a drive.
    pub segments: usize,
    /// Labels, indexes, checks that wait.
    pub maintenance: usize,
    /// Segments that wait for room on disk.
    pub parked: usize,
}

/// The rest of the node's hold on the archive service.
pub struct Archive {
    events: Sender<Event>,
    state: Mutex<State>,
    stopped: Mutex<Option<Receiver<()>>>,
    halt: AtomicBool,
    /// How long things take.
    times: times::Times,
    /// When things will be done.
    outlook: outlook::Outlooks,
    /// Volumes as they were a moment ago.
    lately: lately::Lately,
    /// Of files that several drives read.
    digests: digests::Digests,
    robots: Mutex<BTreeMap<LibraryNo, Arc<Mutex<tape::Changer>>>>,
}

impl Archive {
    /// An archive without drives yet, and the end of its event queue that [`start`] takes.
    pub fn new() -> (Self, Receiver<Event>) {
        let (events, queue) = crossbeam_channel::unbounded();
        (
            Self {
                events,
                state: Mutex::new(State::default()),
                stopped: Mutex::new(None),
                halt: AtomicBool::new(false),
                times: times::Times::default(),
                outlook: outlook::Outlooks::default(),
                lately: lately::Lately::default(),
                digests: digests::Digests::default(),
                robots: Mutex::default(),
            },
            queue,
        )
    }

    /// How much of everything there is.
    pub fn queues(&self) -> Queues {
        let state = self.state.lock();
        Queues {
            files: state.files.len(),
            segments: state.segments.len(),
            maintenance: state.maintenance.len(),
            parked: state.parked.iter().map(|one| one.wanted.len()).sum(),
        }
    }

    /// Tells the service; after it has stopped nobody listens any more, which is as it should be.
    pub fn send(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Whether running jobs should end at the next file.
    pub fn halted(&self) -> bool {
        self.halt.load(Ordering::Acquire)
    }

    /// Tells operators, in the log and in the status.
    pub fn warn(&self, text: String) {
        self.state.lock().warn(text);
    }

    /// Whether any drive is in use at all.
    pub fn has_drives(&self) -> bool {
        self.state.lock().drives.values().any(state::DriveSlot::usable)
    }

    /// Cartridges in the libraries.
    pub fn present(&self) -> std::collections::BTreeSet<Barcode> {
        self.state.lock().present().into_keys().cloned().collect()
    }

    /// Whether something else than background work waits for this drive, or for any.
    pub fn drive_is_wanted(&self, drive: DriveNo) -> bool {
        use sched::{BlockedWhy, MaintenanceKind, Want};
        let state = self.state.lock();
        let waits = |want: &Want| match want {
            Want::Recall(volume) => {
                state.recalls.get(volume).is_some_and(|q| q.priority() > sched::BACKGROUND)
            }
            Want::Write(_) => true,
            Want::Maintain(id) => {
                let errand = state.maintenance.iter().find(|m| m.id == *id);
                errand.is_some_and(|m| m.kind != MaintenanceKind::Verify)
            }
        };
        state.blocked.iter().any(|b| match &b.why {
            BlockedWhy::DrivesBusy => waits(&b.want),
            BlockedWhy::VolumeBusy(busy) => *busy == drive && waits(&b.want),
            _ => false,
        })
    }

    /// Whether an errand waits for this volume, or a drive is at work on it.
    pub fn works_on(&self, volume: &Barcode) -> bool {
        let state = self.state.lock();
        let busy =
            |d: &state::DriveSlot| matches!(&d.state, sched::DriveState::Busy(b) if b.volume == *volume);
        state.maintenance.iter().any(|m| m.volume == *volume) || state.drives.values().any(busy)
    }

    /// Whether a drive writes files to this volume.
    pub fn writes_to(&self, volume: &Barcode) -> bool {
        let writes = |d: &state::DriveSlot| matches!(&d.state, sched::DriveState::Busy(b) if b.volume == *volume && b.work == sched::Work::Migrate);
        self.state.lock().drives.values().any(writes)
    }

    /// Running jobs are to end at the next occasion.
    pub fn halt(&self) {
        self.halt.store(true, Ordering::Release);
    }

    /// Stops the service and waits until it has.
    pub fn stop(&self, graceful: bool) {
        self.halt();
        self.send(Event::Stop { graceful });
        if let Some(stopped) = self.stopped.lock().take() {
            // The other end is dropped when the thread ends, however it does.
            let _ = stopped.recv();
        }
    }
}

/// Takes stock of the library and starts the service.
///
/// # Errors
/// The library or a drive does not answer.
pub fn start(node: &Arc<Node>, queue: Receiver<Event>) -> Result<(), Failure> {
    let workers = library::open_for_work(node)?;
    times::load(node);
    let (alive, stopped) = crossbeam_channel::bounded::<()>(0);
    *node.archive.stopped.lock() = Some(stopped);
    let running = node.clone();
    let service = move || {
        events::run(&running, &queue, workers);
        let robots = std::mem::take(&mut *running.archive.robots.lock());
        robots.into_values().for_each(|robot| robot.lock().release());
        drop(alive);
    };
    crate::startup::spawn(Some(node), "archive", service)?;
    for library in node.libraries() {
        let (watching, tried) = (node.clone(), more::Tried::now(node, library));
        let watch = move || watching.watch_door(library, tried);
        crate::startup::spawn(Some(node), &format!("door-{library}"), watch)?;
    }
    Ok(())
}
