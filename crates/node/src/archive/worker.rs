//! A drive's thread: one job at a time, every end reported as an event.

use super::defect::Current;
use super::passing::Passing;
use super::progress::Progress;
use super::state::{Errand, QueuedSegment};
use super::there::Ways;
use super::trouble::ours;
use super::{Event, adopt, blocked, index, label, migrate, nearest, read, recalls, times, verify};
use crate::Node;
use crate::clock::Moment;
use crate::files::Staging;
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;
use tape::{Blame, Changer, Drive, Fault, Mounted, Onto, TapeError, Unloaded};
use types::*;

/// Before work is tried again that failed through no fault of volume or drive.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// A segment to be read, and the recall it belongs to.
#[derive(Clone)]
pub struct Wanted {
    /// Where it lies.
    pub queued: QueuedSegment,
    /// Where it goes.
    pub staging: Arc<Staging>,
}

/// What a drive is told.
pub enum Job {
    /// Fetch and load.
    Mount {
        /// Element that holds the cartridge.
        from: u16,
    },
    /// Unload and put away.
    Unmount {
        /// Slot.
        to: u16,
    },
    /// Read segments in this order.
    Recall(Vec<Wanted>),
    /// Write a pool's backlog.
    Migrate(PoolName),
    /// Write a label; `errand` is None when a pool needs the volume.
    Label {
        /// Pool.
        pool: Option<PoolName>,
        /// Operator's order.
        errand: Option<Errand>,
    },
    /// Write an index.
    Index,
    /// See whether a drive that failed works again, and empty it.
    Revive {
        /// Slot for the cartridge in it, if there is one.
        to: Option<u16>,
        /// Take it from another host that has reserved it.
        preempt: bool,
    },
    /// Have the drive cleaned.
    Clean {
        /// Element that holds the cleaning cartridge.
        from: u16,
    },
    /// Compare with the catalogue.
    Check {
        /// Read every byte.
        deep: bool,
        /// Where the answer goes.
        answer: crossbeam_channel::Sender<super::Checked>,
    },
    /// Read its copies through.
    Verify(crate::keep::Ticket),
    /// Enter its files into the catalogue.
    Adopt {
        /// Those of other namespaces are imported so.
        import: Option<Arc<super::import::Import>>,
        /// Where the answer goes.
        answer: crossbeam_channel::Sender<(Barcode, super::Adopted)>,
    },
}

/// How a job ended.
pub struct Ended {
    /// Drive.
    pub drive: DriveNo,
    /// Volume concerned.
    pub volume: Barcode,
    /// Cartridge move that happened, whatever else did.
    pub moved: Option<(u16, u16)>,
    /// What is true now, or what went wrong.
    pub result: Result<Done, TapeError>,
    /// Segments that the drive did not read: they go back to the queues.
    pub unread: Vec<Wanted>,
    /// Segments that could not be read.
    pub failed: Vec<(Wanted, TapeError)>,
    /// What the drive said of cartridge and itself when it let go of the cartridge.
    pub unloaded: Unloaded,
}

impl Ended {
    /// Of a job that was to read nothing, or read all.
    pub fn new(
        drive: DriveNo,
        volume: Barcode,
        moved: Option<(u16, u16)>,
        result: Result<Done, TapeError>,
    ) -> Self {
        let unloaded = Unloaded::default();
        Self { drive, volume, moved, result, unread: Vec::new(), failed: Vec::new(), unloaded }
    }
}

/// Opens a drive's device.
pub type OpenDrive = Box<dyn Fn() -> Result<Drive, TapeError> + Send>;

/// What a job achieved.
pub enum Done {
    /// A volume is mounted.
    Mounted {
        /// TapeAlert flags.
        alerts: Vec<u8>,
        /// Its medium can be written once.
        worm: bool,
        /// Medium, where the drive tells it.
        medium: Option<Generation>,
    },
    /// The drive is empty.
    Unmounted,
    /// The volume stays mounted.
    Worked {
        /// Block of the data partition from which on reading goes forward.
        position: u64,
    },
}

/// One drive and the way to its cartridges.
pub struct Worker {
    /// The node.
    pub node: Arc<Node>,
    /// Number.
    pub no: DriveNo,
    /// Its library.
    pub library: LibraryNo,
    /// Element address.
    pub element: u16,
    /// The robot, shared.
    pub robot: Arc<Mutex<Changer>>,
    /// Counters shown to operators.
    pub progress: Arc<Progress>,
    /// The order that runs.
    pub(super) current: Mutex<Option<Current>>,
    /// How bytes get to and from its drive, if that is at another host.
    pub(super) ways: Arc<Mutex<Ways>>,
}

/// A job and the volume that it is about.
pub type Order = (Barcode, Job);

impl Worker {
    /// A worker that has nothing to do yet.
    pub fn new(
        node: Arc<Node>,
        no: DriveNo,
        (library, element): (LibraryNo, u16),
        robot: Arc<Mutex<Changer>>,
        progress: Arc<Progress>,
    ) -> Self {
        Self { node, no, library, element, robot, progress, current: Mutex::default(), ways: Arc::default() }
    }

    /// The thread: ends when the archive service drops the channel. After a defect the drive is out of use, and what it
    /// had to do is done elsewhere: nobody waits for it, and the node stops when it is told to. `drive` is None if it did
    /// not answer when the node started; `open` opens it anew.
    pub fn run(&self, drive: Option<Drive>, open: &OpenDrive, orders: &Receiver<Order>) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(drive, open, orders))) {
            self.broke_off(panic.as_ref());
        }
    }

    /// The next order, noted in case that it does not come to its end.
    fn next(&self, orders: &Receiver<Order>) -> Option<Order> {
        crate::clock::at_rest();
        let (volume, job) = orders.recv().ok()?;
        *self.current.lock() = Some(Current::new(&volume, &job));
        Some((volume, job))
    }

    fn serve(&self, mut drive: Option<Drive>, open: &OpenDrive, orders: &Receiver<Order>) {
        let mut left = None;
        while let Some((volume, job)) = left.take().or_else(|| self.next(orders)) {
            left = match (job, &mut drive) {
                (Job::Revive { to, preempt }, drive) => {
                    self.revive(drive, open, to, preempt);
                    None
                }
                (job, None) => {
                    let what = "the drive did not answer when it was opened";
                    self.not_started(volume.clone(), job, super::trouble::no_drive(&volume, what));
                    None
                }
                (Job::Clean { from }, Some(drive)) => {
                    self.clean(drive, volume, from);
                    None
                }
                (Job::Mount { from }, Some(drive)) => self.fetch(drive, volume, from, orders),
                (Job::Unmount { to }, Some(drive)) => {
                    let unloaded = self.timed_unload(&volume, || drive.unload());
                    self.put_away(volume, to, unloaded);
                    None
                }
                // The cartridge is still here after an error that ended its session.
                (job, Some(drive)) => match drive.mount(Some(&volume)) {
                    Ok(mounted) => {
                        super::label::forget_unwritten(&self.node, mounted.label(), &volume);
                        self.session(mounted, Some((volume, job)), orders)
                    }
                    Err(e) => {
                        self.not_started(volume, job, e);
                        None
                    }
                },
            };
            self.progress.claimed(drive.as_ref().map(Drive::claimed).unwrap_or_default());
        }
        if let Some(drive) = &mut drive {
            drive.release();
        }
    }

    /// The order has come to its end.
    pub(super) fn settled(&self) {
        *self.current.lock() = None;
    }

    /// Opens the device anew, and takes the cartridge out of the drive: both must work.
    fn revive(&self, drive: &mut Option<Drive>, open: &OpenDrive, to: Option<u16>, preempt: bool) {
        let mut moved = None;
        // An order to take devices is for each of them once, also for one that could not be reached when it was given.
        let force = preempt || self.node.config.preempt && !self.progress.was_held();
        let result = open().and_then(|mut fresh| {
            if let Some(mut old) = drive.take().filter(|old| old.name() != fresh.name()) {
                // Another one has come in its place.
                old.release();
            }
            fresh.claim(force)?;
            // What fails from here on leaves it to whoever gives it back.
            let fresh = drive.insert(fresh);
            fresh.probe()?;
            if let Some(to) = to {
                fresh.unload()?;
                self.carry(self.element, to)?;
                moved = Some((self.element, to));
            }
            let identity = (fresh.product().to_owned(), fresh.serial().to_owned(), fresh.reach());
            Ok(identity)
        });
        // Before anybody is told that the drive is there: he may look at once.
        self.progress.claimed(drive.as_ref().map(Drive::claimed).unwrap_or_default());
        self.settled();
        let revived = super::revive::Revived { drive: self.no, moved, result };
        self.node.archive.send(Event::Revived(Box::new(revived)));
    }

    fn fetch(
        &self,
        drive: &mut Drive,
        volume: Barcode,
        from: u16,
        orders: &Receiver<Order>,
    ) -> Option<Order> {
        if let Err(e) = self.carry_timed(&volume, from, self.element) {
            self.ended(volume, None, Err(e));
            return None;
        }
        let moved = Some((from, self.element));
        self.progress.bytes.store(0, Ordering::Relaxed);
        let begun = Moment::now();
        let mounted = drive.mount(Some(&volume));
        match mounted {
            Ok(mounted) => {
                self.progress.claimed(mounted.claimed());
                let expected_s = times::mechanics(&self.node, &volume).load_s;
                self.took(sched::Timed::Load, expected_s, begun);
                super::label::forget_unwritten(&self.node, mounted.label(), &volume);
                let (alerts, worm, medium) = (mounted.alerts().to_vec(), mounted.worm(), mounted.medium());
                self.ended(volume, moved, Ok(Done::Mounted { alerts, worm, medium }));
                self.session(mounted, None, orders)
            }
            Err(e) => {
                self.ended(volume, moved, Err(e));
                None
            }
        }
    }

    /// From mount to unmount, or to an error: the next job begins with mounting anew then, and looks at the medium
    /// again. Returns an order that is not for this session.
    fn session(
        &self,
        mut mounted: Mounted<'_>,
        first: Option<Order>,
        orders: &Receiver<Order>,
    ) -> Option<Order> {
        let mut first = first;
        while let Some((volume, job)) = first.take().or_else(|| self.next(orders)) {
            match job {
                Job::Unmount { to } => {
                    let unloaded = self.timed_unload(&volume, || mounted.unload());
                    self.put_away(volume, to, unloaded);
                    return None;
                }
                Job::Revive { .. } | Job::Clean { .. } => return Some((volume, job)),
                _ => {}
            }
            self.progress.begin();
            let goes_on = self.work(&mut mounted, volume, job);
            self.progress.end();
            if !goes_on {
                return None;
            }
        }
        None
    }

    /// Does a job; false if it ended with an error.
    fn work(&self, mounted: &mut Mounted<'_>, volume: Barcode, job: Job) -> bool {
        let result = match job {
            Job::Recall(wanted) => {
                let (now, later) = nearest::choose(&self.node, &volume, mounted, wanted);
                recalls::unread(&self.node, later);
                let passing = Arc::new(Passing::new(self, &volume, mounted.reads_from(), &now));
                self.node.archive.reads(&passing, &now);
                self.progress.passes(passing.clone());
                let read = read::read_segments(self, mounted, &volume, now, &passing);
                drop(passing);
                self.look_for_soil(mounted);
                let (result, unread, failed) = (read.result, read.unread, read.failed);
                let good = result.is_ok();
                self.report(Ended { unread, failed, ..Ended::new(self.no, volume, None, result) });
                return good;
            }
            Job::Migrate(pool) => migrate::migrate(self, mounted, &volume, &pool),
            Job::Index => index::write_index(self, mounted, &volume, Onto::Both),
            Job::Label { pool, errand } => label::label(self, mounted, &volume, pool, errand),
            Job::Check { deep, answer } => crate::check::check_volume(self, mounted, &volume, deep, &answer),
            Job::Adopt { import: None, answer } => adopt::adopt(self, mounted, &volume, &answer),
            Job::Adopt { import: Some(order), answer } => {
                super::import::import(self, mounted, &volume, &order, &answer)
            }
            Job::Verify(ticket) => verify::verify(self, mounted, &volume, ticket),
            Job::Mount { .. } | Job::Unmount { .. } | Job::Revive { .. } | Job::Clean { .. } => {
                Err(ours(&volume, "starting a job", "the drive is not empty"))
            }
        };
        self.answered();
        self.look_for_soil(mounted);
        let good = result.is_ok();
        self.ended(volume, None, result.map(|position| Done::Worked { position }));
        good
    }

    /// A job of the drive is done, as the model expects it to take `expected_s`.
    pub fn took(&self, what: sched::Timed, expected_s: f64, begun: Moment) {
        self.node.archive.times.note(self.no, &[(what, expected_s, begun.elapsed().as_secs_f64())]);
    }

    fn timed_unload(
        &self,
        volume: &Barcode,
        unload: impl FnOnce() -> Result<Unloaded, TapeError>,
    ) -> Result<Unloaded, TapeError> {
        let begun = Moment::now();
        let unloaded = unload()?;
        self.took(sched::Timed::Unload, times::mechanics(&self.node, volume).unload_s, begun);
        Ok(unloaded)
    }

    fn carry_timed(&self, volume: &Barcode, from: u16, to: u16) -> Result<(), TapeError> {
        // One move at a time is ordered: nobody waits for the robot here.
        let begun = Moment::now();
        self.carry(from, to)?;
        self.took(sched::Timed::Move, times::mechanics(&self.node, volume).move_s, begun);
        Ok(())
    }

    /// Moves a cartridge into or out of this drive. A drive that does not take it or let go of it is at fault, not the
    /// robot; when cartridges are not where they were thought to be (an operator moved some), everybody learns where
    /// they are.
    pub(super) fn carry(&self, from: u16, to: u16) -> Result<(), TapeError> {
        let mut robot = self.robot.lock();
        let carried = robot.move_medium(from, to);
        if robot.inventory_is_stale()
            && let Ok(elements) = robot.inventory()
        {
            self.node.archive.send(Event::Inventory(self.library, elements));
        }
        if carried.is_err()
            && let Some(why) = self.node.hardware(self.library).and_then(|library| library.robot_trouble())
        {
            self.node.archive.warn(format!("the robot of the virtual library met this: {why}"));
        }
        carried.map_err(|e| match e.fault {
            Fault::Prevented => TapeError { blame: Blame::Drive, ..e },
            _ => e,
        })
    }

    /// The volume could not be mounted again: whoever waits for the job is told.
    fn not_started(&self, volume: Barcode, job: Job, e: TapeError) {
        let failed = refuse(&self.node, &volume, job, &e);
        self.report(Ended { failed, ..Ended::new(self.no, volume, None, Err(e)) });
    }

    fn put_away(&self, volume: Barcode, to: u16, unloaded: Result<Unloaded, TapeError>) {
        let unloaded = match unloaded {
            Ok(unloaded) => unloaded,
            Err(e) => return self.ended(volume, None, Err(e)),
        };
        let moved = self.carry_timed(&volume, self.element, to);
        let put = moved.is_ok().then_some((self.element, to));
        let ended = Ended::new(self.no, volume, put, moved.map(|()| Done::Unmounted));
        self.report(Ended { unloaded, ..ended });
    }

    /// A thread that helps with a job.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn helper<'s, 'e: 's>(
        &self,
        scope: &'s Scope<'s, 'e>,
        does: &str,
        work: impl FnOnce() + Send + 's,
    ) -> std::io::Result<ScopedJoinHandle<'s, ()>> {
        Builder::new().name(format!("drive-{}-{does}", self.no)).spawn_scoped(scope, work)
    }

    fn pause(&self) {
        let until = Moment::now() + RETRY_PAUSE;
        while Moment::now() < until && !self.node.archive.halted() {
            crate::clock::sleep(Duration::from_millis(20));
        }
    }

    fn ended(&self, volume: Barcode, moved: Option<(u16, u16)>, result: Result<Done, TapeError>) {
        self.report(Ended::new(self.no, volume, moved, result));
    }

    pub(super) fn report(&self, ended: Ended) {
        // Errors of the disk or the catalogue touch neither volume nor drive: the same work would be tried again at once, and
        // fail again. A robot that failed is left alone by the archive ([`super::rest`]).
        if ended.result.as_ref().is_err_and(|e| e.blame == Blame::Us) {
            self.pause();
        }
        *self.current.lock() = None;
        self.node.archive.send(Event::Ended(Box::new(ended)));
    }
}

/// A job is not done: whoever waits for it is told. What was to be read is left to the archive service.
pub fn refuse(node: &Node, volume: &Barcode, job: Job, e: &TapeError) -> Vec<(Wanted, TapeError)> {
    let errand = match job {
        Job::Recall(wanted) => return wanted.into_iter().map(|one| (one, e.clone())).collect(),
        Job::Label { errand, .. } => errand,
        Job::Check { deep, answer } => Some(Errand::Check { deep, answer }),
        Job::Adopt { import, answer } => Some(Errand::Adopt { import, answer }),
        Job::Verify(ticket) => Some(Errand::Verify(ticket)),
        _ => None,
    };
    if let Some(errand) = errand {
        blocked::refuse(node, volume, errand, e);
    }
    Vec::new()
}
