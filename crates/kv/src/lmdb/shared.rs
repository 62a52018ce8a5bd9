//! What the threads of an engine share: the layers, the order of writers, the flush.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use super::LmdbOptions;
use super::journal::Journal;
use super::log::batch::Writing;
use super::overlay::{Older, Overlay};
use super::save::Plan;
use super::store::{Store, Unsaved};
use super::view::View;
use crate::buffer::Changes;
use crate::{KvError, Result};

/// Changes that are entered while readers may not begin.
const SMALL: usize = 64;
/// The part of the last flush's time that the next one may wait for company.
const GATHER_SHARE: u32 = 8;
/// The longest such wait.
const GATHER_MOST: Duration = Duration::from_millis(1);
/// Time between two tries of a flush that fails.
const RETRY: Duration = Duration::from_secs(1);

/// The overlays above the store, uppermost first.
#[derive(Default)]
pub(super) struct Layers {
    pub(super) active: Arc<Overlay>,
    /// What came into `active` since the last batch of the journal, in its order. Only its writer adds to it.
    pub(super) pending: Mutex<Writing>,
    /// Being written to the store; the same data may already be there. Kept until that has succeeded.
    pub(super) frozen: Option<Arc<Overlay>>,
}

/// Why the engine takes no changes for now: what was tried last failed.
pub(super) enum Trouble {
    Full,
    Failed(String),
    /// The standby does not answer, which is said.
    Standby(String),
    /// Another node has taken over.
    Taken(String),
    /// The standby has newer batches than this engine.
    Older {
        here: u64,
        there: u64,
    },
}

impl Trouble {
    pub(super) fn of(e: &KvError) -> Self {
        match e {
            KvError::Full { .. } => Self::Full,
            KvError::Io { detail, .. } => Self::Failed(detail.clone()),
            KvError::Standby { detail, .. } => Self::Standby(detail.clone()),
            KvError::Taken { by, .. } => Self::Taken(by.clone()),
            KvError::Older { here, there, .. } => Self::Older { here: *here, there: *there },
            e => Self::Failed(e.to_string()),
        }
    }
}

/// What the flusher does.
enum Work {
    Flush,
    Save,
    Again,
}

/// Where threads meet to flush.
#[derive(Default)]
pub(super) struct Room {
    /// Threads that wait until their transaction is flushed.
    waiting: Vec<(u64, Thread)>,
    /// A thread is flushing.
    busy: bool,
    stop: bool,
    /// The last flush failed.
    trouble: Option<Trouble>,
    /// What is in the journal could not be put into the store.
    pub(super) unsaved: Option<Trouble>,
    /// When relaxed changes are to be made durable.
    flush_due: Option<Instant>,
    /// When what is in the journal is to be put into the store.
    pub(super) save_due: Option<Instant>,
    /// Threads that the last flush concerned: woken by it, or waiting for the next.
    company: u64,
    /// How long the last flush took.
    took: Duration,
}

pub(super) struct Core {
    pub(super) store: Store,
    /// Held by who writes the journal. Before `layers`.
    pub(super) journal: Mutex<Journal>,
    /// Held by who writes the store. Before `journal`.
    pub(super) plan: Mutex<Option<Plan>>,
    /// Changed (as opposed to inserted into) only under `journal`.
    pub(super) layers: RwLock<Layers>,
    /// Held by the one running writing closure.
    pub(super) writer: Mutex<()>,
    /// The last transaction that new readers see. Written under `writer` and a lock of `layers`.
    visible: AtomicU64,
    /// Everything up to this transaction survives power loss. Never goes back.
    pub(super) flushed: AtomicU64,
    pub(super) room: Mutex<Room>,
    pub(super) flusher_work: Condvar,
    /// The flusher has been told that there is something to flush.
    dirty: AtomicBool,
    /// The flusher has been told not to wait for its interval.
    urgent: AtomicBool,
    pub(super) flushes: AtomicU64,
    pub(super) options: LmdbOptions,
}

impl Core {
    pub(super) fn new(store: Store, unsaved: Option<Unsaved>, options: LmdbOptions) -> Self {
        let at = store.at();
        let mut journal = Journal::new(&store.place.dir, at.number);
        let may_write = options.journal && options.feed.is_none() && at.mark != 0;
        if may_write && journal.prepare() && unsaved.is_none() {
            journal.begin(at.mark, store.txn());
        }
        let plan = unsaved.map(|unsaved| Plan::unsaved(unsaved, &mut journal));
        let frozen = plan.as_ref().map(Plan::overlay);
        let room = Room { unsaved: plan.as_ref().map(|_| Trouble::Full), ..Room::default() };
        Self {
            store,
            journal: Mutex::new(journal),
            plan: Mutex::new(plan),
            layers: RwLock::new(Layers { frozen, ..Layers::default() }),
            writer: Mutex::default(),
            visible: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            room: Mutex::new(room),
            flusher_work: Condvar::new(),
            dirty: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            options,
        }
    }

    /// Whether flushes go to a journal. A standby is sent what goes into the store.
    pub(super) fn journaling(&self) -> bool {
        self.options.journal && self.options.feed.is_none()
    }

    pub(super) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// A point in time for a reader. The transaction of LMDB begins under the lock: a flush that freezes later is not
    /// in it, and one that froze earlier is in the layers until it is in the store.
    pub(super) fn view(&self) -> Result<View<'_>> {
        let layers = self.layers.read();
        let txn = self.store.read_txn()?;
        Ok(View::new(self, &layers, self.visible(), Some(txn)))
    }

    /// The view of the one writer, under the lock `writer`. The newest state does not change below it, so its
    /// transaction of LMDB may begin later, when a key is in no overlay.
    pub(super) fn writer_view(&self) -> View<'_> {
        View::new(self, &self.layers.read(), self.visible(), None)
    }

    /// Makes the changes of the one writer visible and returns their transaction. While few changes are entered no
    /// reader begins; if none runs either (nobody else holds the overlay), they take the place of what was there, so a
    /// counter that changes a million times between two flushes is one entry. Many changes are entered beside readers.
    pub(super) fn commit(&self, changes: Changes) -> u64 {
        if changes.len() > SMALL {
            let layers = self.layers.read();
            return self.enter(&layers, changes, Older::Keep);
        }
        let layers = self.layers.write();
        let unseen = Arc::strong_count(&layers.active) == 1;
        self.enter(&layers, changes, if unseen { Older::Drop } else { Older::Keep })
    }

    fn enter(&self, layers: &Layers, changes: Changes, older: Older) -> u64 {
        let seq = self.visible() + 1;
        if self.journaling() {
            let mut pending = layers.pending.lock();
            changes.iter().for_each(|(key, value)| pending.change(key.bytes(), value.as_deref()));
        }
        layers.active.insert(changes, seq, older);
        self.visible.store(seq, Ordering::Release);
        seq
    }

    /// Back pressure: waits for, or does, what makes room while the overlay is full, or what waits for the journal.
    pub(super) fn make_room(&self) -> Result<()> {
        let most = self.options.overlay_bytes;
        let (active, pending) = {
            let layers = self.layers.read();
            let pending = layers.pending.lock().len();
            (layers.active.bytes(), pending)
        };
        if pending >= most || active >= most && !self.journaling() {
            self.wait_flushed(self.visible())?;
        } else if active >= most {
            self.check()?;
            self.write_store(most)?;
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        if let Some(feed) = &self.options.feed {
            feed.admit(&self.store.place.dir)?;
        }
        let room = self.room.lock();
        let trouble = room.trouble.as_ref().or(room.unsaved.as_ref());
        trouble.map_or(Ok(()), |trouble| Err(self.refusal(trouble)))
    }

    fn refusal(&self, trouble: &Trouble) -> KvError {
        let path = self.store.place.dir.clone();
        match trouble {
            Trouble::Full => KvError::Full { path },
            Trouble::Failed(detail) => KvError::Io { path, detail: detail.clone() },
            Trouble::Standby(detail) => KvError::Standby { path, detail: detail.clone() },
            Trouble::Taken(by) => KvError::Taken { path, by: by.clone() },
            Trouble::Older { here, there } => KvError::Older { path, here: *here, there: *there },
        }
    }

    /// Returns when everything up to transaction `seq` survives power loss. The first thread that needs a flush does
    /// it itself; those that come meanwhile share the next one.
    pub(super) fn wait_flushed(&self, seq: u64) -> Result<()> {
        while self.flushed.load(Ordering::Acquire) < seq {
            let mut room = self.room.lock();
            if self.flushed.load(Ordering::Acquire) >= seq {
                break;
            }
            if let Some(trouble) = &room.trouble {
                return Err(self.refusal(trouble));
            }
            let lead = !mem::replace(&mut room.busy, true);
            if !lead {
                room.waiting.push((seq, thread::current()));
            }
            drop(room);
            if lead { self.lead() } else { thread::park() }
        }
        Ok(())
    }

    /// Flushes as the only thread that does, then wakes those who waited for it and one to lead the next flush.
    fn lead(&self) {
        self.gather();
        let begin = Instant::now();
        let result = self.flush();
        let took = begin.elapsed();
        let mut room = self.room.lock();
        room.busy = false;
        if let Ok(through) = &result {
            self.flushed.fetch_max(*through, Ordering::AcqRel);
        }
        room.trouble = result.as_ref().err().map(Trouble::of);
        let failed = room.trouble.is_some();
        let flushed = self.flushed.load(Ordering::Relaxed);
        let (done, mut waiting): (Vec<_>, Vec<_>) =
            mem::take(&mut room.waiting).into_iter().partition(|(seq, _)| failed || *seq <= flushed);
        (room.company, room.took) = ((done.len() + waiting.len()) as u64 + 1, took);
        let next = waiting.pop();
        room.waiting = waiting;
        drop(room);
        if failed {
            self.flusher_work.notify_one(); // it tries again
        }
        next.into_iter().chain(done).for_each(|(_, thread)| thread.unpark());
    }

    /// Something became durable that no leader has flushed: wakes those who wait for it, and one to lead the next flush if nobody does.
    pub(super) fn flushed_beside(&self, through: u64) {
        self.flushed.fetch_max(through, Ordering::AcqRel);
        let mut room = self.room.lock();
        let (mut woken, mut waiting): (Vec<_>, Vec<_>) =
            mem::take(&mut room.waiting).into_iter().partition(|(seq, _)| *seq <= through);
        if !room.busy {
            woken.extend(waiting.pop());
        }
        room.waiting = waiting;
        drop(room);
        woken.into_iter().for_each(|(_, thread)| thread.unpark());
    }

    /// Lets others enter their changes first: the threads that the last flush has woken would else just miss this one,
    /// and batches have half their size. Ends when as many came as then, or after a small part of a flush's time. A lone
    /// client waits for nobody.
    fn gather(&self) {
        let (company, took) = {
            let room = self.room.lock();
            (room.company, room.took)
        };
        let all = self.flushed.load(Ordering::Acquire) + company;
        let (begin, patience) = (Instant::now(), (took / GATHER_SHARE).min(GATHER_MOST));
        while self.visible() < all && begin.elapsed() < patience {
            thread::yield_now();
        }
    }

    /// Tries once more what has failed, unless somebody is just doing so.
    fn retry(&self) {
        if !mem::replace(&mut self.room.lock().busy, true) {
            self.lead();
            self.dirty.store(true, Ordering::Release); // for what came after the failed flush
        }
    }

    /// Puts everything into the store, also if that failed before.
    pub(super) fn flush_at_last(&self) -> Result<()> {
        if self.check().is_err() {
            self.retry();
        }
        self.save()
    }

    /// Tells the flusher of a relaxed change.
    pub(super) fn wake_flusher(&self) {
        let mut wake = !self.dirty.swap(true, Ordering::AcqRel);
        if self.layers.read().active.bytes() >= self.options.overlay_bytes / 2 {
            wake |= !self.urgent.swap(true, Ordering::AcqRel);
        }
        if wake {
            drop(self.room.lock());
            self.flusher_work.notify_one();
        }
    }

    /// The flusher's thread: makes relaxed changes durable after the interval, puts what is in the journal into the store when
    /// that is due, and does again what failed.
    pub(super) fn run_flusher(&self) {
        while let Some(work) = self.wait_for_work() {
            match work {
                Work::Again => {
                    let (flush, save) = {
                        let room = self.room.lock();
                        (room.trouble.is_some(), room.unsaved.is_some())
                    };
                    if flush {
                        self.retry();
                    } else if save {
                        // The journal may take what the store does not.
                        let _ = self.wait_flushed(self.visible());
                        let _ = self.save(); // a failure is noted as trouble
                    }
                }
                Work::Save => {
                    let _ = self.save();
                }
                Work::Flush => {
                    self.dirty.store(false, Ordering::Release);
                    self.urgent.store(false, Ordering::Release);
                    let _ = self.wait_flushed(self.visible());
                    if self.journaling() {
                        let _ = self.write_store(self.options.overlay_bytes / 2);
                    }
                }
            }
        }
    }

    /// What the flusher has to do next; None: it is to end.
    fn wait_for_work(&self) -> Option<Work> {
        let mut room = self.room.lock();
        loop {
            if room.stop {
                return None;
            }
            if room.trouble.is_some() || room.unsaved.is_some() {
                self.flusher_work.wait_for(&mut room, RETRY);
                return (!room.stop).then_some(Work::Again);
            }
            let now = Instant::now();
            if room.save_due.is_some_and(|due| due <= now) {
                room.save_due = None;
                return Some(Work::Save);
            }
            if self.dirty.load(Ordering::Acquire) {
                let due = *room.flush_due.get_or_insert(now + self.options.flush_interval);
                if due <= now || self.urgent.load(Ordering::Acquire) {
                    room.flush_due = None;
                    return Some(Work::Flush);
                }
            }
            // Whoever wakes it for the one does not end its wait for the other.
            match room.save_due.into_iter().chain(room.flush_due).min() {
                Some(due) => drop(self.flusher_work.wait_until(&mut room, due)),
                None => self.flusher_work.wait(&mut room),
            }
        }
    }

    pub(super) fn stop_flusher(&self) {
        self.room.lock().stop = true;
        self.flusher_work.notify_all();
    }
}
