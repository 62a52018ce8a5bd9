//! A node that does nothing by itself: whoever holds it runs its services step by step, in the order he likes and on
//! his own clock. The simulator's way in; the code that runs is that of a node at work.
//!
//! What is the same: every call, the archive service ([`Stepped::step`]), the governor ([`Stepped::govern`]), recovery at
//! start, and each drive's thread, of which one at a time runs. What is not there: the threads that help within a job
//! (reading ahead, recording, storing, settling: the drive's own thread does their work one after the other), that of
//! backups, and the loops that wait for time to pass.

use crate::archive::{
    self, CheckAsk, Checked, Devices, DriveAsk, Event, Hardware, Job, ORDERS, Queues, Workers,
};
use crate::clock::{self, Clock};
use crate::files::Ready;
use crate::startup::{self, Assembled};
use crate::{Config, Node};
use catalog::Catalog;
use crossbeam_channel::{Receiver, Sender};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::{Barcode, DriveNo, FsError, TakenOut};
use wire::Failure;

/// What a drive is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKind {
    /// Fetch and load.
    Mount,
    /// Unload and put away.
    Unmount,
    /// Read files back.
    Recall,
    /// Write a pool's backlog.
    Migrate,
    /// Write a label.
    Label,
    /// Write an index.
    Index,
    /// See whether it works again.
    Revive,
    /// Anything else that an operator asked for.
    Other,
}

impl OrderKind {
    /// It needs the robot, or may.
    pub fn moves(self) -> bool {
        matches!(self, Self::Mount | Self::Unmount | Self::Revive)
    }
}

/// An order that waits to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// To this drive.
    pub drive: DriveNo,
    /// About this volume.
    pub volume: Barcode,
    /// What.
    pub kind: OrderKind,
}

/// Orders on their way from the archive service to one drive.
struct Route {
    from: Receiver<archive::Order>,
    waiting: VecDeque<archive::Order>,
    to: Sender<archive::Order>,
}

/// See the module.
pub struct Stepped {
    node: Arc<Node>,
    events: Receiver<Event>,
    ready: Receiver<Ready>,
    workers: Workers,
    routes: BTreeMap<DriveNo, Route>,
    desk: crate::keep::Desk,
}

impl Stepped {
    /// Opens (or makes) the state directory with a catalogue in `engine` and a library of `devices`, and recovers as a
    /// node does. From here on this thread, and every one started from it, has `clock`.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn open(
        config: Config,
        engine: Arc<dyn kv::Engine>,
        devices: Arc<dyn Devices>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        Self::with(config, engine, clock, |_| Ok(vec![Hardware::Simulated(devices.clone())]))
    }

    /// The same with the virtual libraries of the configuration, of which there may be any number: to measure what the service itself
    /// costs when it has very many drives. Their orders need not be delivered, see [`Stepped::pretend`].
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn open_virtual(
        config: Config,
        engine: Arc<dyn kv::Engine>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        Self::with(config, engine, clock, |config| Hardware::of(config, None))
    }

    fn with(
        config: Config,
        engine: Arc<dyn kv::Engine>,
        clock: Arc<dyn Clock>,
        hardware: impl Fn(&Config) -> Result<Vec<Hardware>, Failure>,
    ) -> Result<Self, Failure> {
        clock::give(Some(clock));
        let place = startup::prepare(&config.state_dir)?;
        let Assembled { node, events, ready } = startup::assemble(config, place, engine, hardware)?;
        startup::recover(&node)?;
        let (workers, routes, desk) = (Workers::new(), BTreeMap::new(), crate::keep::Desk::default());
        let mut stepped = Self { node, events, ready, workers, routes, desk };
        for library in stepped.node.libraries() {
            let stock = archive::take_stock(&stepped.node, library)?;
            for station in archive::enter(&stepped.node, stock) {
                let no = station.worker.no;
                let (give, from) = crossbeam_channel::bounded(ORDERS);
                let (to, orders) = crossbeam_channel::bounded(ORDERS);
                stepped.workers.insert(no, give);
                stepped.routes.insert(no, Route { from, waiting: VecDeque::new(), to });
                station.man(orders)?;
            }
        }
        archive::begin(&stepped.node, &stepped.workers);
        startup::resume(&stepped.node)?;
        stepped.collect();
        Ok(stepped)
    }

    /// The node, for its calls.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Its catalogue, to look at.
    pub fn catalog(&self) -> &Catalog {
        &self.node.catalog
    }

    /// The archive service takes what has happened and gives its orders.
    pub fn step(&mut self) {
        archive::step(&self.node, &self.workers, self.events.try_iter());
        self.collect();
    }

    /// It takes what has happened, and gives no orders yet.
    pub fn take(&mut self) {
        archive::take(&self.node, &self.workers, self.events.try_iter());
    }

    /// It gives its orders without taking what has happened since.
    pub fn decide(&mut self) {
        archive::decide(&self.node, &self.workers);
        self.collect();
    }

    /// It works out anew when requests end, if somebody has asked.
    pub fn expect(&self) {
        archive::renew(&self.node);
    }

    /// The first order that waits for a drive counts as carried out in no time, without its drive; what was to be read is given back
    /// unread.
    pub fn pretend(&mut self, drive: DriveNo) {
        if let Some(order) = self.routes.get_mut(&drive).and_then(|route| route.waiting.pop_front()) {
            self.node.archive.send(archive::carried_out(&self.node, drive, order));
        }
    }

    /// The keeper looks for what is to be verified, emptied or made anew.
    ///
    /// # Errors
    /// The catalogue cannot be read or written.
    pub fn keep(&mut self) -> Result<(), Failure> {
        self.desk.tick(&self.node).map_err(|e| crate::error::refused("keeping volumes in order", &e))
    }

    /// Whether something has happened that the archive service does not know yet.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The archive service looks around at least this often.
    pub const TICK: Duration = archive::TICK;

    fn collect(&mut self) {
        for route in self.routes.values_mut() {
            route.waiting.extend(route.from.try_iter());
        }
    }

    /// The first order that waits for each drive.
    pub fn orders(&self) -> Vec<Order> {
        let first = |(drive, route): (&DriveNo, &Route)| {
            let (volume, job) = route.waiting.front()?;
            Some(Order { drive: *drive, volume: volume.clone(), kind: kind(job) })
        };
        self.routes.iter().filter_map(first).collect()
    }

    /// Gives a drive's thread the first order that waits for it; it begins at once.
    pub fn deliver(&mut self, drive: DriveNo) {
        if let Some(route) = self.routes.get_mut(&drive)
            && let Some(order) = route.waiting.pop_front()
        {
            // The thread has ended by a defect, which it has reported.
            let _ = route.to.try_send(order);
        }
    }

    /// One look of the governor.
    ///
    /// # Errors
    /// The catalogue or the disk tier fails.
    pub fn govern(&self) -> Result<(), FsError> {
        self.node.govern_once()
    }

    /// Whether somebody has asked the governor to look soon, since this was asked before.
    pub fn governor_is_poked(&self) -> bool {
        self.node.governor.is_poked()
    }

    /// The governor looks at least this often.
    pub const GOVERNOR_TICK: Duration = crate::governor::TICK;

    /// Answers the readers whose bytes have arrived; returns how many.
    pub fn finish_reads(&self) -> usize {
        self.ready.try_iter().map(Ready::finish).count()
    }

    /// Lengths of the archive service's queues, and copies to be written, for whoever checks that they are bounded.
    pub fn queues(&self) -> (Queues, usize) {
        (self.node.archive.queues(), self.node.writes.len())
    }

    /// Its drives.
    pub fn drives(&self) -> Vec<DriveNo> {
        self.routes.keys().copied().collect()
    }

    /// Orders a drive into use or out of it; the answer comes when it is there.
    pub fn set_drive(&self, drive: DriveNo, up: bool) -> Receiver<Result<(), String>> {
        let (answer, answers) = crossbeam_channel::bounded(1);
        let out = (!up).then(|| TakenOut { by: None, at: crate::now(), reason: String::new() });
        self.node.archive.send(Event::Drive(DriveAsk { drive, out, preempt: false, answer }));
        answers
    }

    /// Orders volumes to be compared with the catalogue; an answer comes for each.
    pub fn begin_check(&self, volumes: Vec<Barcode>, deep: bool) -> Receiver<Checked> {
        let (answer, answers) = crossbeam_channel::unbounded();
        self.node.archive.send(Event::Check(CheckAsk { volumes, deep, answer }));
        answers
    }

    /// Nothing more is done: what runs gives up at its next occasion. Returns when every thread has ended, which those
    /// that wait on the clock cannot before the clock lets them.
    pub fn kill(self) {
        self.node.archive.halt();
        let Self { node, routes, workers, .. } = self;
        drop((routes, workers));
        let threads: Vec<_> = node.threads.lock().drain(..).collect();
        for thread in threads {
            // Its panic has been logged.
            let _ = thread.join();
        }
    }
}

fn kind(job: &Job) -> OrderKind {
    match job {
        Job::Mount { .. } => OrderKind::Mount,
        Job::Unmount { .. } => OrderKind::Unmount,
        Job::Recall(_) => OrderKind::Recall,
        Job::Migrate(_) => OrderKind::Migrate,
        Job::Label { .. } => OrderKind::Label,
        Job::Index => OrderKind::Index,
        Job::Revive { .. } | Job::Clean { .. } => OrderKind::Revive,

        _ => OrderKind::Other,
    }
}
