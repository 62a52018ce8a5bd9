//! An engine in a TiKV cluster. How and why: `docs/design/0010-tikv-engine.md`; what is stored: `docs/formats/engine.md`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use self::address::Address;
use self::batch::{End, Proposal};
use self::link::{Fault, Link, Patience};
use self::queue::Queue;
use self::reads::Latest;
use self::snapshot::Moment;
use crate::counted::Txn;
use crate::{Durability, Engine, KvError, Reader, Result, Stats, Writer, copy};

mod address;
mod batch;
mod keys;
mod link;
mod owner;
mod queue;
mod reads;
mod snapshot;
mod verify;

/// Attempts beside others; then one alone.
const BESIDE: u32 = 4;

/// How to open a [`TikvEngine`].
#[derive(Clone, Debug)]
pub struct TikvOptions {
    /// Name of the node. While one has the engine open, another name is refused; the same name takes over at once, as after a crash.
    pub owner: String,
    /// Whether an engine may be made where there is none.
    pub create: bool,
    /// Whether data of another node, which does not use it any more, may be taken over.
    pub take_over: bool,
    /// After this long without a sign of life another node may take over. The engine gives one three times as often.
    pub lease: Duration,
    /// How long a cluster that does not answer is tried again before an operation fails.
    pub patience: Duration,
}

impl TikvOptions {
    /// Makes an engine; a lease of 15 s, patience of 30 s.
    pub fn new(owner: &str) -> Self {
        let (lease, patience) = (Duration::from_secs(15), Duration::from_secs(30));
        Self { owner: owner.into(), create: true, take_over: true, lease, patience }
    }
}

/// An engine whose data is in a TiKV cluster. Closures run side by side on snapshots; those that end at the same time are committed together.
/// Every commit is durable.
pub struct TikvEngine {
    core: Arc<Core>,
    keeper: Option<JoinHandle<()>>,
}

struct Core {
    link: Link,
    options: TikvOptions,
    /// What was changed lately.
    latest: Mutex<Latest>,
    queue: Queue,
    writer: Mutex<batch::Writer>,
    /// Shared by closures that write; held alone by one that has lost against others several times.
    turn: RwLock<()>,
    /// Who has taken the engine over.
    taken: Mutex<Option<String>>,
    stopping: Mutex<bool>,
    stopped: Condvar,
    writes: AtomicU64,
    batches: AtomicU64,
}

impl TikvEngine {
    /// Opens the engine at `address`: `tikv://HOST:PORT,HOST:PORT/NAME?SETTING=VALUE`.
    ///
    /// # Errors
    /// `Address` if it is no address; `Owned` while another node uses the engine; `Format` if another release made it; `Absent` if there is none and
    /// none is to be made; `Foreign` if it holds the data of another node that is not to be taken over; `Server` if the cluster cannot be reached.
    pub fn open(address: &str, options: TikvOptions) -> Result<Self> {
        let address = Address::parse(address)?;
        let mut patience = Patience::new(options.patience);
        let (link, mark) = loop {
            let taken =
                Link::open(&address).and_then(|link| owner::take(&link, &options).map(|mark| (link, mark)));
            match taken {
                Ok(taken) => break taken,
                Err(fault) => patience.after(&address, fault)?,
            }
        };
        let core = Arc::new(Core {
            link,
            options,
            latest: Mutex::default(),
            queue: Queue::default(),
            writer: Mutex::new(batch::Writer { mark, unsettled: false }),
            turn: RwLock::new(()),
            taken: Mutex::new(None),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
            writes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        });
        let kept = core.clone();
        let keeper = thread::Builder::new()
            .name("kv-keeper".into())
            .spawn(move || kept.keep(mark.epoch))
            .map_err(|e| core.link.refuses(&format!("starting the thread that keeps its lease: {e}")))?;
        Ok(Self { core, keeper: Some(keeper) })
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
    fn keep(&self, epoch: u64) {
        while self.pause(self.options.lease / 3) {
            if let Err(Fault::Failed(KvError::Taken { by, .. })) =
                owner::renew(&self.link, &self.options, epoch, false)
            {
                *self.taken.lock() = Some(by);
                return;
            }
        }
        let _ = owner::renew(&self.link, &self.options, epoch, true); // otherwise it ends by itself
    }

    fn still_ours(&self) -> Result<()> {
        match &*self.taken.lock() {
            Some(by) => Err(KvError::Taken { path: self.link.path(), by: by.clone() }),
            None => Ok(()),
        }
    }

    /// Runs the closure once, and commits.
    fn attempt(&self, f: Change<'_>) -> Result<(), Fault> {
        let since = self.latest.lock().begin();
        let mut txn = Txn::new(Moment::new(&self.link, true));
        let answer = f(&mut txn);
        let (moment, done) = txn.into_parts();
        let (reads, fault) = moment.into_parts();
        let end = match (fault, answer) {
            (Some(fault), _) => Err(fault),
            (None, Err(e)) => Err(Fault::Failed(e)),
            (None, Ok(())) if done.is_empty() => Ok(()),
            (None, Ok(())) => {
                let proposal = Proposal { reads, since, done };
                match self.queue.end(proposal, &|batch| self.commit_counted(batch)) {
                    End::Committed => Ok(()),
                    End::Conflict => Err(Fault::Conflict),
                    End::Lost(detail) => Err(Fault::Lost(detail)),
                    End::Failed(e) => Err(Fault::Failed(e)),
                }
            }
        };
        self.latest.lock().end(since);
        end
    }

    fn commit_counted(&self, batch: &[Proposal]) -> Vec<End> {
        let ends = self.commit_batch(batch);
        let committed = ends.iter().filter(|end| matches!(end, End::Committed)).count();
        self.writes.fetch_add(committed as u64, Ordering::Relaxed);
        self.batches.fetch_add(u64::from(committed > 0), Ordering::Relaxed);
        ends
    }

    fn read_once(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<(), Fault> {
        let txn = Txn::new(Moment::new(&self.link, false));
        let answer = f(&txn);
        let (_, fault) = txn.into_parts().0.into_parts();
        fault.map_or_else(|| answer.map_err(Fault::Failed), Err)
    }
}

impl Engine for TikvEngine {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        let mut patience = Patience::new(self.core.options.patience);
        loop {
            self.core.still_ours()?;
            match self.core.read_once(f) {
                Ok(()) => return Ok(()),
                Err(fault) => patience.after(&self.core.link.address, fault)?,
            }
        }
    }

    fn write_dyn(&self, _durability: Durability, f: Change<'_>) -> Result<()> {
        let (mut patience, mut conflicts) = (Patience::new(self.core.options.patience), 0);
        loop {
            self.core.still_ours()?;
            let end = {
                let alone = (conflicts > BESIDE).then(|| self.core.turn.write());
                let _beside = alone.is_none().then(|| self.core.turn.read());
                self.core.attempt(f)
            };
            match end {
                Ok(()) => return Ok(()),
                Err(fault) => {
                    conflicts += u32::from(matches!(fault, Fault::Conflict));
                    patience.after(&self.core.link.address, fault)?;
                }
            }
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(()) // nothing is acknowledged before
    }

    fn verify(&self) -> Result<()> {
        verify::verify(self, &self.core.link)
    }

    fn backup(&self, to: &Path) -> Result<()> {
        copy::copy(self, to)
    }

    /// What a cluster holds is not counted: keys and bytes are 0.
    fn stats(&self) -> Stats {
        let number = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Stats { keys: 0, bytes: 0, writes: number(&self.core.writes), flushes: number(&self.core.batches) }
    }
}

impl Drop for TikvEngine {
    fn drop(&mut self) {
        *self.core.stopping.lock() = true;
        self.core.stopped.notify_all();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join(); // it holds nothing that a panic could have left half done
        }
    }
}
