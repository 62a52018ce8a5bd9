//! The node: everything it owns, starting and stopping.

use crate::archive::{Archive, Hardware, Libraries, WriteQueue};
use crate::error::failure;
use crate::files::{ObjectPool, OpenTable, Quotas, Ready, Space, StagingTable};
use crate::governor::Governor;
use crate::{Config, startup};
use catalog::Catalog;
use crossbeam_channel::Sender;
use disk::DiskTarget;
use parking_lot::{Condvar, Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
use types::api::Watcher;
use types::{Cx, ErrorClass, Ino, NonBlock};
use wire::{Call, Failure, Reply};

/// Mounts the namespace for the node; given by whoever has a mount gateway.
pub trait Mounter: Send + Sync {
    /// Mounts at `path`; `nonblock` says what `O_NONBLOCK` means there (None: as configured).
    ///
    /// # Errors
    /// Ready for the user.
    fn mount(&self, path: &Path, nonblock: Option<NonBlock>) -> Result<(), Failure>;
    /// Unmounts.
    ///
    /// # Errors
    /// Ready for the user.
    fn unmount(&self, path: &Path) -> Result<(), Failure>;
    /// Where it is mounted.
    fn mounts(&self) -> Vec<PathBuf>;
    /// A connection to the node that holds the namespace, for a program of a user of this host whose node holds none; in its session of that number (None: in
    /// one of its own).
    ///
    /// # Errors
    /// Ready for the user.
    fn relay(&self, uid: u32, session: Option<u64>) -> Result<Box<dyn Relayed>, Failure>;
}

/// A program's connection to the node that holds the namespace.
pub trait Relayed {
    /// Tells its session from every other one.
    fn begun(&self) -> u64;
    /// Asks about files in the name of a user.
    ///
    /// # Errors
    /// Why the connection is of no use any more; whether the call was carried out is not known.
    fn call(&mut self, cx: &Cx, call: Call) -> Result<Result<Reply, Failure>, String>;
}

/// A running node.
pub struct Node {
    pub(crate) config: Config,
    /// The same as far as it has changed since.
    pub(crate) settings: crate::settings::Settings,
    pub(crate) uid: u32,
    pub(crate) started: Instant,
    /// Tells this run of the node from every other one of any node.
    pub(crate) run: uuid::Uuid,
    /// Which start of its machine this is, as movers tell it.
    pub(crate) start: u64,
    pub(crate) catalog: Catalog,
    pub(crate) disk: DiskTarget,
    pub(crate) objects: ObjectPool,
    pub(crate) open: OpenTable,
    pub(crate) staging: Arc<StagingTable>,
    pub(crate) ready: Sender<Ready>,
    pub(crate) space: Space,
    pub(crate) quotas: Quotas,
    pub(crate) governor: Governor,
    pub(crate) writes: WriteQueue,
    /// Files that end go from what is counted in memory to what is recorded.
    pub(crate) steady: crate::files::Steady,
    pub(crate) archive: Archive,
    pub(crate) keeper: crate::keep::Keeper,
    pub(crate) watchers: RwLock<Vec<Arc<dyn Watcher>>>,
    pub(crate) watched: AtomicBool,
    pub(crate) mounter: Mutex<Option<Arc<dyn Mounter>>>,
    /// Some(graceful) once the node is to stop.
    pub(crate) stopping: Mutex<Option<bool>>,
    pub(crate) stop_asked: Condvar,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) hardware: Libraries,
    /// Keys of encrypted volumes, if there are such.
    pub(crate) keys: Option<Arc<crate::keys::NodeKeys>>,
    /// What the node is in a cluster.
    pub(crate) membership: crate::cluster::Membership,
    /// Locks of files, of programs here and on other hosts.
    pub(crate) locks: crate::locks::Locks,
    /// What hosts kept of files when the node before ended.
    pub(crate) spared: crate::files::Returning,
    /// What other hosts may remember.
    pub(crate) leases: Arc<crate::leases::Leases>,
    /// Devices that it gives to other nodes.
    pub(crate) given: crate::devices::Given,
    /// What it has open of the cluster's targets.
    pub(crate) movers: crate::movers::Movers,
    /// Brings batches to the standby, if there is one.
    pub(crate) feeding: std::sync::OnceLock<crate::standby::Feeding>,
    /// The engine below the catalogue, and its move to another one.
    pub(crate) engine_moves: crate::engine::EngineMoves,
    /// Who takes turns with it.
    pub(crate) turns: crate::turns::Turns,
    /// One at a time puts a backup of the catalogue into the namespace.
    pub(crate) putting_backup: Mutex<()>,
    pub(crate) _lock: std::fs::File,
}

impl Node {
    /// Opens (or makes) the state directory and starts every service.
    ///
    /// # Errors
    /// What is in the way, ready for the user: another node on this directory, a newer format, damage, no space.
    pub fn start(config: Config) -> Result<Arc<Self>, Failure> {
        startup::start(config, None, None)
    }

    /// The same in its turn, with the engine that it waited for.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_in_turn(config: Config, turn: crate::Turn) -> Result<Arc<Self>, Failure> {
        startup::start(config, None, Some(turn))
    }

    /// The same with a library that [`Node::open_library`] opened: tests break it before the node takes stock of it.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_with(config: Config, library: Arc<vtl::Library>) -> Result<Arc<Self>, Failure> {
        startup::start(config, Some(library), None)
    }

    /// Opens (or makes) the virtual library of a configuration.
    ///
    /// # Errors
    /// Its directory cannot be used.
    pub fn open_library(config: &Config) -> Result<Arc<vtl::Library>, Failure> {
        crate::archive::open_virtual(config, 0)
    }

    /// The configuration at the start.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The virtual library, for tests and benchmarks that look at its mechanics or inject faults.
    ///
    /// # Panics
    /// If the node uses an attached library.
    pub fn virtual_library(&self) -> Arc<vtl::Library> {
        self.virtual_library_no(0)
    }

    /// The same of one of several, counted from 0.
    ///
    /// # Panics
    /// If there is no such virtual library.
    pub fn virtual_library_no(&self, n: usize) -> Arc<vtl::Library> {
        match self.hardware(types::LibraryNo(n as u16)).as_deref() {
            Some(Hardware::Virtual { library, .. }) => library.clone(),
            other => panic!("the node uses the library {:?}", other.map(Hardware::name)),
        }
    }

    /// Gives the node a way to mount itself.
    pub fn set_mounter(&self, mounter: Arc<dyn Mounter>) {
        *self.mounter.lock() = Some(mounter);
    }

    /// Returns when somebody asked the node to stop; true: gracefully.
    pub fn wait_for_stop(&self) -> bool {
        let mut stopping = self.stopping.lock();
        loop {
            match *stopping {
                Some(graceful) => return graceful,
                None => self.stop_asked.wait(&mut stopping),
            }
        }
    }

    /// Waits this long, or until the node is to stop: then true.
    pub fn stops_within(&self, time: std::time::Duration) -> bool {
        let mut stopping = self.stopping.lock();
        let end = Instant::now() + time;
        while stopping.is_none() {
            if self.stop_asked.wait_until(&mut stopping, end).timed_out() {
                break;
            }
        }
        stopping.is_some()
    }

    /// Asks the node to stop; [`Node::wait_for_stop`] returns.
    pub fn request_stop(&self, graceful: bool) {
        *self.stopping.lock() = Some(graceful);
        self.stop_asked.notify_all();
    }

    /// Stops every service: running batches end (`graceful`: at their end, with indexes written) and everything
    /// acknowledged is durable when this returns. Gateways must be gone before.
    pub fn stop(&self, graceful: bool) {
        self.request_stop(graceful);
        self.governor.stop();
        self.keeper.stop();
        self.end_behind();
        self.objects.stop();
        self.movers.close();
        self.archive.halt();
        self.end_waits();
        self.archive.stop(graceful);
        for staging in self.staging.all() {
            self.finish_reads(
                self.staging.end(&staging, crate::files::Outcome::Failed("the node stops".into())),
            );
        }
        for entry in self.open.all() {
            tracing::warn!("inode {} was still open when the node stopped", entry.ino);
        }
        if let Err(e) = self.catalog.sync() {
            tracing::error!("the last changes could not be made durable: {e}");
        }
        for thread in self.threads.lock().drain(..) {
            // A thread of ours that panicked has said so in the log.
            let _ = thread.join();
        }
    }

    pub(crate) fn attributes_changed(&self, ino: Ino) {
        if self.watched.load(Ordering::Acquire) {
            self.watchers.read().iter().for_each(|w| w.attributes_changed(ino));
        }
    }

    /// What files say of this node (attribute `user.thermo.node`), by which a program that goes past a mount finds it: its run, and its control socket.
    pub fn name_for_programs(&self) -> String {
        format!("{} {}", self.run, self.config.socket_path().display())
    }

    /// As [`Mounter::relay`]; None: names are asked for here.
    pub(crate) fn relay(&self, uid: u32, session: Option<u64>) -> Result<Option<Box<dyn Relayed>>, Failure> {
        match self.joined()? {
            None => Ok(None),
            Some(_) => self.mounter()?.relay(uid, session).map(Some),
        }
    }

    fn mounter(&self) -> Result<Arc<dyn Mounter>, Failure> {
        self.mounter.lock().clone().ok_or_else(|| {
            failure(ErrorClass::Invalid, "this node has no mount gateway; start it with `thermo up` as root")
        })
    }

    pub(crate) fn mount_at(&self, path: &Path, nonblock: Option<NonBlock>) -> Result<(), Failure> {
        self.keep_off_the_log(path)?;
        self.mounter()?.mount(path, nonblock)
    }

    pub(crate) fn unmount_at(&self, path: &Path) -> Result<(), Failure> {
        self.mounter()?.unmount(path)
    }

    pub(crate) fn mount_points(&self) -> Vec<String> {
        let mounter = self.mounter.lock().clone();
        mounter.map_or(Vec::new(), |m| m.mounts().iter().map(|p| p.display().to_string()).collect())
    }
}
