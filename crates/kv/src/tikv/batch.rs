//! Storing what a batch changes as one transaction of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tikv_client::Transaction;

use super::keys::{self, Stored};
use super::link::Link;
use super::owner::{self, Mark};
use crate::batch::{Proposal, Sink, Values};
use crate::patience::Fault;
use crate::{Durability, KvError, Result};

/// Commits batches.
pub(super) struct Commits {
    link: Arc<Link>,
    mark: Mark,
    /// Its number, for others.
    number: Arc<AtomicU64>,
    /// The transaction that the next batch is stored by, and what is stored of the keys that it changes.
    begun: Option<(Transaction, Names)>,
}

/// Names and what is stored there.
type Names = BTreeMap<Vec<u8>, Vec<u8>>;

impl Commits {
    /// `number` will be that of the last transaction that is known to be committed.
    pub(super) fn new(link: Arc<Link>, mark: Mark, number: Arc<AtomicU64>) -> Self {
        Self { link, mark, number, begun: None }
    }

    fn is_at(&mut self, mark: Mark) {
        self.mark = mark;
        self.number.store(mark.number, Ordering::Release);
    }
}

impl Sink for Commits {
    fn counters(&mut self, batch: &[&Proposal]) -> Result<Values, Fault> {
        let link = &self.link;
        let mut txn = link.begin()?;
        is_next(link, &mut txn, self.mark)?;
        let at = txn.start_timestamp();
        let name = |key: &crate::key::Key| link.names.data(key.bytes());
        let names: Vec<_> = batch.iter().flat_map(|proposal| proposal.keys()).map(name).collect();
        let stored = link.get_all(&at, &names)?;
        let mut counters = Values::new();
        for key in batch.iter().flat_map(|proposal| proposal.done.counters.keys()) {
            let found = stored.get(&name(key));
            let value =
                found.map(|bytes| super::snapshot::value(link, &at, key.bytes(), bytes)).transpose()?;
            counters.insert(key.clone(), value);
        }
        self.begun = Some((txn, stored));
        Ok(counters)
    }

    fn store(&mut self, values: &Values, _durability: Durability) -> Result<(), Fault> {
        let link = &self.link;
        let (mut txn, stored) =
            self.begun.take().ok_or_else(|| Fault::Lost("its transaction has not begun".into()))?;
        let changes = physical(link, &stored, values)?;
        link.run(async {
            // The first one decides whether all are committed.
            txn.put(link.names.mark(), self.mark.next().encode()).await?;
            for (name, value) in changes {
                match value {
                    Some(value) => txn.put(name, value).await?,
                    None => txn.delete(name).await?,
                }
            }
            txn.commit().await
        })?;
        self.is_at(self.mark.next());
        Ok(())
    }

    /// If the transaction after the mark was not committed, it never will be: the mark it builds on is changed.
    fn settle(&mut self) -> Result<bool, Fault> {
        let (link, before, after) = (&self.link, self.mark, self.mark.next());
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
        self.is_at(if committed { after } else { after.next() });
        Ok(committed)
    }
}

/// Nobody else has committed.
fn is_next(link: &Link, txn: &mut Transaction, mark: Mark) -> Result<(), Fault> {
    let found = link.get_in(txn, link.names.mark())?;
    if found.as_deref().and_then(Mark::decode) == Some(mark) {
        return Ok(());
    }
    owner::is_ours(link, txn, mark.epoch)?;
    let detail = format!(
        "its mark is not {mark:?}, although nobody has taken it over; it was put back to an earlier state"
    );
    Err(KvError::Rewound { path: link.path(), detail }.into())
}

/// A name, and what is to be stored there, if anything.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// What is to be stored under which names; pieces of earlier, larger values go.
fn physical(link: &Link, stored: &Names, values: &Values) -> Result<Vec<Change>, Fault> {
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
