//! An engine in a TiKV cluster. How and why: `docs/design/0010-tikv-engine.md`; what is stored: `docs/formats/engine.md`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use self::address::Address;
use self::batch::Commits;
use self::link::Link;
use self::snapshot::Moment;
use crate::batch::{Batches, Snapshot};
use crate::counted::Txn;
use crate::lease::{self, Lease};
use crate::patience::{Fault, Patience};
use crate::{
    Aside, Database, DatabaseOptions, Durability, Engine, KvError, MAX_KEY, Reached, Reader, Result, Stats,
    Writer, copy,
};

mod address;
mod batch;
mod keys;
mod link;
mod owner;
mod snapshot;
mod turns;
mod verify;

pub(crate) use self::turns::TikvTurns;

/// Between two times that the cluster hears what it may forget.
const COLLECT_EVERY: Duration = Duration::from_secs(600);
/// Keys of an unfinished copy that are removed at once.
const REMOVED_AT_ONCE: usize = 2000;

/// An engine whose data is in a TiKV cluster. Closures run side by side on snapshots; those that end at the same time are committed together.
/// Every commit is durable.
pub struct TikvEngine {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

struct Core {
    link: Arc<Link>,
    options: DatabaseOptions,
    epoch: u64,
    /// Of the last transaction that is known to be committed.
    number: Arc<AtomicU64>,
    lease: Lease,
    batches: Batches<Commits>,
    /// Who has taken the engine over.
    taken: Mutex<Option<String>>,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

impl TikvEngine {
    /// Whether `address` can be one.
    ///
    /// # Errors
    /// `Address` says what is wrong with it.
    pub fn check_address(address: &str) -> Result<String> {
        Address::parse(address).map(|address| address.to_string())
    }

    /// Opens the engine at `address`: `tikv://HOST:PORT,HOST:PORT/NAME?SETTING=VALUE`.
    ///
    /// # Errors
    /// `Address` if it is no address; `Aside` if it does not count; `NotEmpty` if it is to be filled and holds something; `Owned` while another node uses the engine; `Format` if another release made it; `Absent` if there is none and
    /// none is to be made; `Foreign` if it holds the data of another node that is not to be taken over; `Server` if the cluster cannot be reached.
    pub fn open(address: &str, options: DatabaseOptions) -> Result<Self> {
        let address = Address::parse(address)?;
        let mut patience = Patience::new(options.patience);
        let (link, mark, lease) = loop {
            let sent = lease::now();
            let taken = Link::open(&address).and_then(|link| {
                owner::take(&link, &options).map(|mark| (link, mark, Lease::new(&options, sent)))
            });
            match taken {
                Ok(taken) => break taken,
                Err(fault) => patience.after(&address, fault)?,
            }
        };
        let link = Arc::new(link);
        let number = Arc::new(AtomicU64::new(mark.number));
        let commits = Commits::new(link.clone(), mark, number.clone());
        let core = Arc::new(Core {
            batches: Batches::new(commits, address.to_string(), options.patience),
            link,
            options,
            epoch: mark.epoch,
            number,
            lease,
            taken: Mutex::new(None),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let mut engine = Self { core, threads: Vec::new() };
        engine.start("kv-keeper", Core::keep)?;
        if engine.core.options.fill.is_some() {
            engine.empty()?;
        }
        if let Some(keep) = engine.core.link.address.keep {
            engine.start("kv-collector", move |core| core.collect(keep))?;
        }
        Ok(engine)
    }

    /// Lets the cluster forget what was changed or removed longer than `keep` ago; it does so when it comes to it. Readings that began before that
    /// fail. The engine does this by itself, as its address says.
    ///
    /// # Errors
    /// `Server` if the cluster cannot be reached, or another node does the same now.
    pub fn collect(&self, keep: Duration) -> Result<()> {
        let once = Duration::ZERO;
        self.core
            .link
            .collect(keep)
            .or_else(|fault| Patience::new(once).after(&self.core.link.address, fault))
    }

    fn start(&mut self, name: &str, f: impl FnOnce(&Core) + Send + 'static) -> Result<()> {
        let core = self.core.clone();
        let thread = thread::Builder::new().name(name.into()).spawn(move || f(&core));
        let refuses = |e| self.core.link.refuses(&format!("starting the thread {name}: {e}"));
        self.threads.push(thread.map_err(refuses)?);
        Ok(())
    }

    /// Removes what an unfinished copy has left.
    fn empty(&self) -> Result<()> {
        let mut more = true;
        while more {
            self.write_dyn(Durability::Durable, &mut |w| {
                let mut keys = Vec::new();
                w.scan(&[], &[255; MAX_KEY + 1], &mut |key, _| {
                    keys.push(key.to_vec());
                    if keys.len() < REMOVED_AT_ONCE {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                })?;
                more = !keys.is_empty();
                keys.iter().try_for_each(|key| w.delete(key))
            })?;
        }
        Ok(())
    }
}

type Change<'f> = &'f mut dyn FnMut(&mut dyn Writer) -> Result<()>;

impl Core {
    /// Waits; false once the engine is being dropped.
    fn pause(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, time);
        }
        !*stopping
    }

    /// Renews the lease until the engine is dropped.
    fn keep(&self) {
        while self.pause(self.options.lease / lease::RENEWALS) {
            let sent = lease::now();
            match owner::renew(&self.link, &self.options, self.epoch, false) {
                Ok(()) => self.lease.renewed(sent),
                Err(Fault::Failed(KvError::Taken { by, .. })) => {
                    *self.taken.lock() = Some(by);
                    return;
                }
                Err(_) => {} // tried again in a moment
            }
        }
        let _ = owner::renew(&self.link, &self.options, self.epoch, true); // otherwise it ends by itself
    }

    /// Tells the cluster from time to time what it may forget, until the engine is dropped.
    fn collect(&self, keep: Duration) {
        while self.pause(COLLECT_EVERY) {
            if self.still_ours().is_err() {
                return;
            }
            let _ = self.link.collect(keep); // the next time does what this one could not
        }
    }

    fn still_ours(&self) -> Result<()> {
        match &*self.taken.lock() {
            Some(by) => Err(KvError::Taken { path: self.link.path(), by: by.clone() }),
            None => Ok(()),
        }
    }

    /// Whether this owner still counts. A lease that has run out may yet be renewed: that is waited for, as for a cluster that does not answer.
    fn counts(&self) -> Result<(), Fault> {
        self.still_ours()?;
        self.lease.holds(|| self.link.path()).map_err(|e| Fault::Lost(e.to_string()))
    }

    fn read_once(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<(), Fault> {
        let txn = Txn::new(Moment::new(&self.link, false));
        let answer = f(&txn);
        let (_, fault) = txn.into_parts().0.finish();
        fault.map_or_else(|| answer.map_err(Fault::Failed), Err)
    }
}

impl Engine for TikvEngine {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        let mut patience = Patience::new(self.core.options.patience);
        loop {
            // What was read while the lease ran out may have been read too late.
            let core = &self.core;
            match core.counts().and_then(|()| core.read_once(f)).and_then(|()| core.counts()) {
                Ok(()) => return Ok(()),
                Err(fault) => patience.after(&self.core.link.address, fault)?,
            }
        }
    }

    fn write_dyn(&self, durability: Durability, f: Change<'_>) -> Result<()> {
        let core = &self.core;
        let snapshot = || Moment::new(&core.link, true);
        let written = core.batches.write(durability, &|| core.counts(), &snapshot, f);
        if let Err(KvError::Taken { by, .. }) = &written {
            *core.taken.lock() = Some(by.clone());
        }
        written.map(drop)
    }

    fn sync(&self) -> Result<()> {
        match self.core.batches.is_unsure() {
            true => self.core.batches.sync(&|| self.core.counts()),
            false => Ok(()), // nothing is acknowledged before
        }
    }

    fn verify(&self) -> Result<()> {
        verify::verify(self, &self.core.link)
    }

    fn backup(&self, to: &Path) -> Result<()> {
        copy::copy(self, to)
    }

    /// What a cluster holds is not counted: keys and bytes are 0.
    fn stats(&self) -> Stats {
        let (writes, flushes) = self.core.batches.counted();
        Stats { keys: 0, bytes: 0, writes, flushes }
    }
}

impl Database for TikvEngine {
    fn set_aside(&self, mark: Option<&Aside>) -> Result<()> {
        let core = &self.core;
        let mut patience = Patience::new(core.options.patience);
        loop {
            match owner::set_aside(&core.link, core.epoch, mark) {
                Ok(()) => return Ok(()),
                Err(fault) => patience.after(&core.link.address, fault)?,
            }
        }
    }

    fn is_held(&self) -> Result<()> {
        self.core.still_ours()?;
        self.core.lease.holds(|| self.core.link.path())
    }

    fn reached(&self) -> Reached {
        Reached { epoch: self.core.epoch, number: self.core.number.load(Ordering::Acquire) }
    }

    fn shown(&self) -> String {
        self.core.link.address.to_string()
    }
}

impl Drop for TikvEngine {
    fn drop(&mut self) {
        *self.core.stopping.lock() = true;
        self.core.stopped.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // it holds nothing that a panic could have left half done
        }
    }
}
