//! Closures of one process run side by side on snapshots of a database; those that end at the same time are committed by it as one transaction.
//! What they have read is compared here with what others have changed since. Why that is serialisable: `docs/design/0008-postgres-engine.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

pub(crate) use self::reads::Reads;

use self::queue::Queue;
use self::reads::{Latest, touches};
use crate::counted::{Below, Done, Txn};
use crate::key::Key;
use crate::patience::{Fault, Patience};
use crate::{Durability, KvError, Result, Writer};

mod queue;
mod reads;
#[cfg(test)]
mod tests;

/// What a transaction that has come to its end wants to change. Without a change it asks for nothing but that all before it is durable.
#[derive(Debug)]
pub(crate) struct Proposal {
    reads: Reads,
    since: u64,
    pub(crate) done: Done,
    durability: Durability,
}

impl Proposal {
    /// Bytes that it changes, about.
    fn bytes(&self) -> usize {
        let value = |v: &Option<Vec<u8>>| v.as_ref().map_or(0, Vec::len);
        self.done.changes.iter().map(|(k, v)| k.bytes().len() + value(v) + 64).sum::<usize>()
            + self.done.counters.len() * 100
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.done.changes.keys().chain(self.done.counters.keys())
    }
}

/// How a proposal ended.
#[derive(Debug)]
enum End {
    Committed,
    Not(Fault),
}

/// Keys and their values; `None`: there is none.
pub(crate) type Values = BTreeMap<Key, Option<Vec<u8>>>;

/// A state of a database, that of some moment between its making and the first reading.
pub(crate) trait Snapshot: Below {
    /// What was read, and why it cannot be relied on.
    fn finish(self) -> (Reads, Option<Fault>);
}

/// Where one batch after another is stored, by one thread at a time.
pub(crate) trait Sink: Send {
    /// What the counters of these proposals hold behind all batches so far. `store` follows, whatever it stores, unless this fails.
    fn counters(&mut self, batch: &[&Proposal]) -> Result<Values, Fault>;
    /// Commits all or nothing. After an error it is not known which, until it is settled.
    fn store(&mut self, values: &Values, durability: Durability) -> Result<(), Fault>;
    /// Whether what was given to `store` last is stored. If not, it never will be.
    fn settle(&mut self) -> Result<bool, Fault>;
}

/// The transactions of a process that owns a database.
pub(crate) struct Batches<S> {
    /// The database, as errors name it.
    address: String,
    /// How long it may be silent.
    limit: Duration,
    /// What was changed lately.
    latest: Mutex<Latest>,
    queue: Queue,
    committer: Mutex<Committer<S>>,
    /// Shared by closures that write; held alone by one that has lost against others several times.
    turn: RwLock<()>,
    /// Somebody was told that his change may have taken effect, and it is still not known.
    unsure: AtomicBool,
    writes: AtomicU64,
    batches: AtomicU64,
}

/// Whoever commits; nobody else does meanwhile.
struct Committer<S> {
    sink: S,
    /// What the last batch changes, while it is not known whether it is stored.
    open: Option<Vec<Key>>,
}

/// A transaction under way.
struct UnderWay<'l> {
    latest: &'l Mutex<Latest>,
    since: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.latest.lock().end(self.since);
    }
}

impl<S: Sink> Batches<S> {
    pub(crate) fn new(sink: S, address: String, limit: Duration) -> Self {
        Self {
            address,
            limit,
            latest: Mutex::default(),
            queue: Queue::default(),
            committer: Mutex::new(Committer { sink, open: None }),
            turn: RwLock::new(()),
            unsure: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        }
    }

    /// Transactions that were committed, and batches of them.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (self.writes.load(Ordering::Relaxed), self.batches.load(Ordering::Relaxed))
    }

    /// Whether a change that has failed may still take effect, until something else is committed or [`Batches::sync`] returns.
    pub(crate) fn is_unsure(&self) -> bool {
        self.unsure.load(Ordering::Acquire)
    }

    /// Runs the closure on a snapshot until what it does is committed, once; whether it has changed anything. Before each attempt `may` says whether
    /// there may be one.
    pub(crate) fn write<B: Snapshot>(
        &self,
        durability: Durability,
        may: &dyn Fn() -> Result<(), Fault>,
        snapshot: &dyn Fn() -> B,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>,
    ) -> Result<bool> {
        let mut patience = Patience::new(self.limit);
        loop {
            let end = {
                let alone = patience.needs_turn().then(|| self.turn.write());
                let _beside = alone.is_none().then(|| self.turn.read());
                may().and_then(|()| self.attempt(durability, snapshot, f))
            };
            match end {
                Ok(changed) => return Ok(changed),
                Err(fault) => patience.after(&self.address, fault)?,
            }
        }
    }

    fn attempt<B: Snapshot>(
        &self,
        durability: Durability,
        snapshot: &dyn Fn() -> B,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>,
    ) -> Result<bool, Fault> {
        // Before the snapshot is taken: whatever is complete now is in it.
        let under_way = self.begin();
        let mut txn = Txn::new(snapshot());
        let answer = f(&mut txn);
        let (snapshot, done) = txn.into_parts();
        let (reads, fault) = snapshot.finish();
        if let Some(fault) = fault {
            return Err(fault); // what the closure says of it does not count
        }
        answer?;
        if done.is_empty() {
            return Ok(false);
        }
        self.end(Proposal { reads, since: under_way.since, done, durability }).map(|()| true)
    }

    /// Commits nothing, durably, and so everything before it.
    pub(crate) fn sync(&self, may: &dyn Fn() -> Result<(), Fault>) -> Result<()> {
        let mut patience = Patience::new(self.limit);
        loop {
            let (reads, done) = Default::default();
            let nothing = Proposal { reads, since: 0, done, durability: Durability::Durable };
            match may().and_then(|()| self.end(nothing)) {
                Ok(()) => return Ok(()),
                Err(fault) => patience.after(&self.address, fault)?,
            }
        }
    }

    fn begin(&self) -> UnderWay<'_> {
        UnderWay { latest: &self.latest, since: self.latest.lock().begin() }
    }

    fn end(&self, proposal: Proposal) -> Result<(), Fault> {
        match self.queue.end(proposal, &|batch| self.commit(batch)) {
            End::Committed => Ok(()),
            End::Not(fault) => Err(fault),
        }
    }

    /// Commits what can be committed; an end for each.
    fn commit(&self, batch: &[Proposal]) -> Vec<End> {
        let mut ends: Vec<_> = batch.iter().map(|_| End::Committed).collect();
        let mut committer = self.committer.lock();
        if let Err(fault) = self.try_commit(&mut committer, batch, &mut ends) {
            // What is wrong with one of them (a counter that is damaged) must not concern the others. Of none it is open whether it is stored.
            let apart = batch.len() > 1 && matches!(fault, Fault::Failed(_)) && committer.open.is_none();
            for n in 0..batch.len() {
                if !matches!(ends[n], End::Committed) {
                    continue;
                }
                let end = match apart {
                    true => self.try_commit(&mut committer, &batch[n..=n], &mut ends[n..=n]),
                    false => Err(self.again(&fault)),
                };
                if let Err(fault) = end {
                    ends[n] = End::Not(fault);
                }
            }
        }
        drop(committer);
        let writes =
            batch.iter().zip(&ends).filter(|(p, end)| !p.done.is_empty() && matches!(end, End::Committed));
        let writes = writes.count() as u64; // no more than a batch holds
        self.writes.fetch_add(writes, Ordering::Relaxed);
        self.batches.fetch_add(u64::from(writes > 0), Ordering::Relaxed);
        ends
    }

    fn try_commit(
        &self,
        committer: &mut Committer<S>,
        batch: &[Proposal],
        ends: &mut [End],
    ) -> Result<(), Fault> {
        let mut patience = Patience::new(self.limit);
        while committer.open.is_some() {
            if let Err(fault) = self.settle(committer) {
                patience.after(&self.address, fault)?;
            }
        }
        let chosen = self.choose(batch, ends);
        let proposals: Vec<_> = chosen.iter().map(|n| &batch[*n]).collect();
        if proposals.is_empty() {
            return Ok(());
        }
        let counters = committer.sink.counters(&proposals)?;
        let mut changes = Values::new();
        for n in &chosen {
            if let Err(e) = apply(&batch[*n].done, &counters, &mut changes) {
                ends[*n] = End::Not(Fault::Failed(e));
            }
        }
        let durable = proposals.iter().any(|p| p.durability == Durability::Durable);
        let durability = if durable { Durability::Durable } else { Durability::Relaxed };
        committer.open = Some(changes.keys().cloned().collect());
        match committer.sink.store(&changes, durability) {
            Ok(()) => self.complete(committer),
            Err(fault) => return self.find_out(committer, fault),
        }
        Ok(())
    }

    /// Those that have read nothing that others have changed, be it earlier in the same batch; the others get their end.
    fn choose(&self, batch: &[Proposal], ends: &mut [End]) -> Vec<usize> {
        let latest = self.latest.lock();
        let mut changed = BTreeSet::new();
        let mut chosen = Vec::new();
        for (n, proposal) in batch.iter().enumerate() {
            if latest.changed(&proposal.reads, proposal.since) || touches(&proposal.reads, &changed) {
                ends[n] = End::Not(Fault::Conflict);
                continue;
            }
            changed.extend(proposal.keys().cloned());
            chosen.push(n);
        }
        chosen
    }

    /// It is known what became of the last batch: whoever began before, and has read something of it, may have read too early.
    fn complete(&self, committer: &mut Committer<S>) {
        if let Some(keys) = committer.open.take() {
            self.latest.lock().completed(keys);
        }
        self.unsure.store(false, Ordering::Release);
    }

    fn settle(&self, committer: &mut Committer<S>) -> Result<bool, Fault> {
        let stored = committer.sink.settle()?;
        self.complete(committer);
        Ok(stored)
    }

    /// After this fault of `store`: it is handed back if nothing was stored.
    fn find_out(&self, committer: &mut Committer<S>, fault: Fault) -> Result<(), Fault> {
        let mut patience = Patience::new(self.limit);
        loop {
            let again = match self.settle(committer) {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(fault),
                Err(again) => again,
            };
            if let Err(e) = patience.after(&self.address, again) {
                self.unsure.store(true, Ordering::Release);
                return Err(unsure(e));
            }
        }
    }

    /// The same fault for one more of those that it concerns.
    fn again(&self, fault: &Fault) -> Fault {
        let refuses = |detail: String| KvError::Server { address: self.address.clone(), detail };
        Fault::Failed(match fault {
            Fault::Conflict => return Fault::Conflict,
            Fault::Lost(detail) => return Fault::Lost(detail.clone()),
            Fault::Failed(KvError::Taken { path, by }) => {
                KvError::Taken { path: path.clone(), by: by.clone() }
            }
            Fault::Failed(KvError::Rewound { path, detail }) => {
                KvError::Rewound { path: path.clone(), detail: detail.clone() }
            }
            Fault::Failed(KvError::BadValue { path, key }) => {
                KvError::BadValue { path: path.clone(), key: key.clone() }
            }
            Fault::Failed(KvError::Full { path }) => KvError::Full { path: path.clone() },
            Fault::Failed(KvError::Server { detail, .. }) => refuses(detail.clone()),
            Fault::Failed(other) => refuses(other.to_string()),
        })
    }
}

/// Puts what a transaction does behind what those before it in its batch do. One that fails changes nothing.
fn apply(done: &Done, counters: &Values, changes: &mut Values) -> Result<()> {
    let mut counted = Values::new();
    for (key, delta) in &done.counters {
        let before = changes.get(key).or_else(|| counters.get(key)).and_then(Option::as_deref);
        counted.insert(key.clone(), Some(delta.apply(before)?));
    }
    changes.extend(done.changes.iter().map(|(k, v)| (k.clone(), v.clone())));
    changes.extend(counted);
    Ok(())
}

/// The outcome of a batch could not be found out.
fn unsure(e: KvError) -> Fault {
    Fault::Failed(match e {
        KvError::Server { address, detail } => {
            let detail = format!(
                "{detail}; the connection was lost while a change was committed: it may have taken effect"
            );
            KvError::Server { address, detail }
        }
        other => other,
    })
}
