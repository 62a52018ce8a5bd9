//! Transactions of this process that end at the same time are committed as one of the cluster.

use std::collections::BTreeMap;

use super::Core;
use super::keys::{self, Stored};
use super::link::{Fault, Link, Patience};
use super::owner::{self, Mark};
use super::reads::{Reads, touches};
use crate::counted::Done;
use crate::key::Key;
use crate::{KvError, Result};

/// What a transaction that has come to its end wants to change.
pub(super) struct Proposal {
    pub(super) reads: Reads,
    pub(super) since: u64,
    pub(super) done: Done,
}

impl Proposal {
    /// Bytes that it changes, about.
    pub(super) fn bytes(&self) -> usize {
        let value = |v: &Option<Vec<u8>>| v.as_ref().map_or(0, Vec::len);
        self.done.changes.iter().map(|(k, v)| k.bytes().len() + value(v) + 64).sum::<usize>()
            + self.done.counters.len() * 100
    }
}

/// How a proposal ended.
pub(super) enum End {
    Committed,
    /// It has read what others have changed.
    Conflict,
    /// Nothing was committed; the cluster did not answer.
    Lost(String),
    /// It cannot be committed, or it is not known whether it is.
    Failed(KvError),
}

/// What whoever commits has to know; nobody else commits meanwhile.
pub(super) struct Writer {
    pub(super) mark: Mark,
    /// It is not known whether the transaction after the mark was committed.
    pub(super) unsettled: bool,
}

/// What is stored now of the keys that a batch changes, and what it makes of them.
type Values = BTreeMap<Key, Option<Vec<u8>>>;

impl Core {
    /// Commits what can be committed; an end for each.
    pub(super) fn commit_batch(&self, batch: &[Proposal]) -> Vec<End> {
        let mut writer = self.writer.lock();
        let mut ends: Vec<_> = batch.iter().map(|_| End::Committed).collect();
        let answer = self.try_batch(&mut writer, batch, &mut ends);
        let Err(fault) = answer else { return ends };
        if let Fault::Failed(KvError::Taken { by, .. }) = &fault {
            *self.taken.lock() = Some(by.clone());
        }
        for end in ends.iter_mut().filter(|end| matches!(end, End::Committed)) {
            *end = match &fault {
                Fault::Conflict => End::Conflict,
                Fault::Lost(detail) => End::Lost(detail.clone()),
                Fault::Failed(e) => End::Failed(self.again(e)),
            };
        }
        ends
    }

    /// The same error for one more of those that it concerns.
    fn again(&self, e: &KvError) -> KvError {
        match e {
            KvError::Taken { path, by } => KvError::Taken { path: path.clone(), by: by.clone() },
            KvError::Rewound { path, detail } => {
                KvError::Rewound { path: path.clone(), detail: detail.clone() }
            }
            KvError::BadValue { path, key } => KvError::BadValue { path: path.clone(), key: key.clone() },
            KvError::Server { detail, .. } => self.link.refuses(detail),
            other => self.link.refuses(&other.to_string()),
        }
    }

    fn try_batch(&self, writer: &mut Writer, batch: &[Proposal], ends: &mut [End]) -> Result<(), Fault> {
        let mut patience = Patience::new(self.options.patience);
        while writer.unsettled {
            if let Err(fault) = settle(&self.link, writer) {
                patience.after(&self.link.address, fault)?;
            }
        }
        let mut txn = self.link.begin()?;
        self.is_next(&mut txn, writer.mark)?;
        let at = txn.start_timestamp();
        let names: Vec<_> =
            batch.iter().flat_map(|p| changed(&p.done)).map(|k| self.link.names.data(k.bytes())).collect();
        let stored = self.link.get_all(&at, &names)?;
        let values = self.merge(&at, batch, &stored, ends)?;
        if values.is_empty() {
            return Ok(());
        }
        let changes = physical(&self.link, &stored, &values)?;
        self.link.run(async {
            // The first one decides whether all are committed.
            txn.put(self.link.names.mark(), writer.mark.next().encode()).await?;
            for (name, value) in changes {
                match value {
                    Some(value) => txn.put(name, value).await?,
                    None => txn.delete(name).await?,
                }
            }
            Ok(())
        })?;
        let committed = match self.link.run(txn.commit()) {
            Ok(_) => {
                writer.mark = writer.mark.next();
                Ok(())
            }
            Err(fault) => {
                writer.unsettled = true;
                self.settle(writer, fault)
            }
        };
        // Also when it is not known: who has read any of it, reads again.
        self.latest.lock().completed(values.into_keys().collect());
        committed
    }

    /// Nobody else has committed.
    fn is_next(&self, txn: &mut tikv_client::Transaction, mark: Mark) -> Result<(), Fault> {
        let found = self.link.get_in(txn, self.link.names.mark())?;
        if found.as_deref().and_then(Mark::decode) == Some(mark) {
            return Ok(());
        }
        owner::is_ours(&self.link, txn, mark.epoch)?;
        let detail = format!(
            "its mark is not {mark:?}, although nobody has taken it over; it was put back to an earlier state"
        );
        Err(KvError::Rewound { path: self.link.path(), detail }.into())
    }

    /// Finds out what became of a batch whose end is not known; an error if it was not committed, or this cannot be found out now.
    fn settle(&self, writer: &mut Writer, mut fault: Fault) -> Result<(), Fault> {
        let mut patience = Patience::new(self.options.patience);
        loop {
            let told = match &fault {
                Fault::Lost(detail) => detail.clone(),
                Fault::Conflict | Fault::Failed(_) => String::new(),
            };
            if let Err(e) = patience.after(&self.link.address, fault) {
                return Err(match e {
                    KvError::Server { detail, .. } => {
                        let detail = format!("{detail}; whether the last changes are stored is not known");
                        self.link.refuses(&detail).into()
                    }
                    e => e.into(),
                });
            }
            match settle(&self.link, writer) {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(Fault::Lost(told)),
                Err(again) => fault = again,
            }
        }
    }

    /// What the proposals make of the values that they change, one after another; those that cannot be committed get their end and change nothing.
    fn merge(
        &self,
        at: &tikv_client::Timestamp,
        batch: &[Proposal],
        stored: &BTreeMap<Vec<u8>, Vec<u8>>,
        ends: &mut [End],
    ) -> Result<Values, Fault> {
        let mut values = Values::new();
        for (proposal, end) in batch.iter().zip(ends) {
            let stale = self.latest.lock().changed(&proposal.reads, proposal.since);
            if stale || touches(&proposal.reads, &values) {
                *end = End::Conflict;
                continue;
            }
            match self.counters(at, &proposal.done, stored, &values) {
                Ok(counted) => {
                    values.extend(proposal.done.changes.iter().map(|(k, v)| (k.clone(), v.clone())));
                    values.extend(counted);
                }
                Err(Fault::Failed(e)) => *end = End::Failed(e),
                Err(fault) => return Err(fault),
            }
        }
        Ok(values)
    }

    fn counters(
        &self,
        at: &tikv_client::Timestamp,
        done: &Done,
        stored: &BTreeMap<Vec<u8>, Vec<u8>>,
        values: &Values,
    ) -> Result<Values, Fault> {
        let mut counted = Values::new();
        for (key, delta) in &done.counters {
            let before = match (values.get(key), stored.get(&self.link.names.data(key.bytes()))) {
                (Some(value), _) => value.clone(),
                (None, Some(bytes)) => Some(super::snapshot::value(&self.link, at, key.bytes(), bytes)?),
                (None, None) => None,
            };
            counted.insert(key.clone(), Some(delta.apply(before.as_deref())?));
        }
        Ok(counted)
    }
}

/// A name, and what is to be stored there, if anything.
type Change = (Vec<u8>, Option<Vec<u8>>);

fn changed(done: &Done) -> impl Iterator<Item = &Key> {
    done.changes.keys().chain(done.counters.keys())
}

/// What is to be stored under which names; pieces of earlier, larger values go.
fn physical(link: &Link, stored: &BTreeMap<Vec<u8>, Vec<u8>>, values: &Values) -> Result<Vec<Change>, Fault> {
    let mut changes = Vec::with_capacity(values.len());
    for (key, value) in values {
        let (key, name) = (key.bytes(), link.names.data(key.bytes()));
        let earlier = stored.get(&name);
        let bad = || KvError::BadValue { path: link.path(), key: key.into() };
        let pieces = earlier.map_or(Ok(0), |bytes| keys::pieces(bytes).ok_or_else(bad))?;
        let now = match value {
            Some(value) => {
                let Stored { value, pieces } = keys::store(key, value);
                changes.push((name, Some(value)));
                pieces
            }
            None => {
                if earlier.is_some() {
                    changes.push((name, None));
                }
                Vec::new()
            }
        };
        let count = now.len() as u32; // at most 257
        changes.extend((0..).zip(now).map(|(n, piece)| (link.names.piece(key, n), Some(piece))));
        changes.extend((count..pieces).map(|n| (link.names.piece(key, n), None)));
    }
    Ok(changes)
}

/// Whether the transaction after the mark was committed. If not, it never will be: the mark it builds on is changed.
fn settle(link: &Link, writer: &mut Writer) -> Result<bool, Fault> {
    let (before, after) = (writer.mark, writer.mark.next());
    let mut txn = link.begin()?;
    // Where that transaction still holds the key, this waits until it is committed, or its time is over and it is taken back.
    let found = link.get_in(&mut txn, link.names.mark())?;
    let committed = match found.as_deref().and_then(Mark::decode) {
        Some(mark) if mark == after => true,
        // what an earlier attempt at this has written
        Some(mark) if mark == after.next() => false,
        Some(mark) if mark == before => {
            link.run(async {
                txn.put(link.names.mark(), after.next().encode()).await?;
                txn.commit().await
            })?;
            false
        }
        _ => {
            owner::is_ours(link, &mut txn, before.epoch)?;
            let detail = format!("its mark is neither {before:?} nor a later one of this node");
            return Err(KvError::Rewound { path: link.path(), detail }.into());
        }
    };
    writer.mark = if committed { after } else { after.next() };
    writer.unsettled = false;
    Ok(committed)
}
