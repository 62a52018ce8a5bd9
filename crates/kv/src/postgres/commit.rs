//! Storing what a batch changes, and the end of its transaction, all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join;
use tokio_postgres::Error;

use super::Server;
use super::base::stored;
use super::connection::Link;
use super::session::Session;
use crate::batch::{Proposal, Sink, Values};
use crate::key::Key;
use crate::lmdb::sealed;
use crate::patience::Fault;
use crate::{Durability, Result};

/// What one statement may carry (bytes of keys and values, rows).
const STATEMENT_BYTES: usize = 4 << 20;
const STATEMENT_ROWS: usize = 10_000;
/// Statements that are sent before an answer is waited for; each of them may be as large as above.
const AT_ONCE: usize = 8;
/// Counters whose values are remembered.
const REMEMBERED: usize = 100_000;

/// The level is the one that PostgreSQL, CockroachDB and YugabyteDB share; one transaction after another needs no higher one.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
const RELAXED: &str = "SET LOCAL synchronous_commit TO off";
const COMMIT: &str = "COMMIT";

/// Commits batches over a connection of its own.
pub(super) struct Commits {
    server: Arc<Server>,
    session: Session,
    /// Counters as the last batch has left them: nobody else changes them, and each transaction finds the mark of the one before, or fails.
    known: BTreeMap<Key, Option<Vec<u8>>>,
    /// The transaction under way has begun.
    begun: bool,
    /// What becomes durable with the transaction that was sent last.
    sent: Sent,
}

/// What is counted once a transaction is committed.
#[derive(Clone, Copy, Default)]
struct Sent {
    relaxed: bool,
    /// Relaxed commits before it.
    before: u64,
}

enum Step {
    Say(&'static str),
    /// The number of this transaction.
    Mark(i64),
    Put(Puts),
    Delete(Vec<Vec<u8>>),
}

#[derive(Default)]
struct Puts {
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    bytes: usize,
}

impl Commits {
    pub(super) fn new(server: Arc<Server>) -> Self {
        let (known, begun, sent) = Default::default();
        Self { server, session: Session::new(), known, begun, sent }
    }

    /// Begins the transaction, and reads counters in it. The mark is changed only with all the rest: its row is locked from then on.
    fn read(&mut self, keys: &[&Key]) -> Result<(), Fault> {
        self.session.ready(&self.server)?;
        let link = self.session.link()?;
        let names: Vec<&[u8]> = keys.iter().map(|key| key.bytes()).collect();
        let (client, known) = (&link.conn.client, &link.statements);
        let both = async {
            let begin = client.batch_execute(BEGIN);
            let (begun, rows) = join(begin, client.query(&known.get_many, &[&names])).await;
            begun.and(rows)
        };
        let rows = link.conn.run(&self.server, both)?;
        let mut found = BTreeMap::new();
        for row in &rows {
            let pair = stored(&self.server, row)?;
            found.insert(pair.key, pair.value);
        }
        self.begun = true;
        self.known.extend(keys.iter().map(|key| ((*key).clone(), found.remove(key.bytes()))));
        Ok(())
    }

    fn failed(&mut self, fault: Fault) -> Fault {
        self.begun = false;
        self.known.clear();
        self.session.doubt(&self.server, &fault);
        fault
    }

    /// The transaction after the last one is committed.
    fn committed(&self) {
        if !self.sent.relaxed {
            self.server.note_durable(self.sent.before);
        }
    }

    fn steps(&self, values: &Values) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.begun {
            steps.push(Step::Say(BEGIN));
        }
        steps.push(Step::Mark(self.session.last + 1));
        if self.sent.relaxed {
            steps.push(Step::Say(RELAXED));
        }
        put_all(&mut steps, values);
        let deleted = values.iter().filter(|(_, value)| value.is_none());
        let deleted: Vec<_> = deleted.map(|(key, _)| key.bytes().to_vec()).collect();
        steps.extend(deleted.chunks(STATEMENT_ROWS).map(|keys| Step::Delete(keys.to_vec())));
        steps.push(Step::Say(COMMIT));
        steps
    }

    fn try_store(&mut self, values: &Values) -> Result<(), Fault> {
        if !self.begun {
            self.session.ready(&self.server)?;
        }
        let steps = self.steps(values);
        send(&self.server, self.session.link()?, &steps)?;
        self.begun = false;
        self.session.last += 1;
        self.server.acknowledge(self.session.last);
        self.committed();
        for (key, value) in values {
            if let Some(known) = self.known.get_mut(key) {
                known.clone_from(value);
            }
        }
        Ok(())
    }
}

impl Sink for Commits {
    fn counters(&mut self, batch: &[&Proposal]) -> Result<Values, Fault> {
        let counters = || batch.iter().flat_map(|proposal| proposal.done.counters.keys());
        if self.known.len() > REMEMBERED {
            self.known.clear();
        }
        let unknown: BTreeSet<&Key> = counters().filter(|key| !self.known.contains_key(key)).collect();
        if !unknown.is_empty() {
            let unknown: Vec<_> = unknown.into_iter().collect();
            self.read(&unknown).map_err(|fault| self.failed(fault))?;
        }
        Ok(counters().filter_map(|key| Some((key.clone(), self.known.get(key)?.clone()))).collect())
    }

    fn store(&mut self, values: &Values, durability: Durability) -> Result<(), Fault> {
        let relaxed = durability == Durability::Relaxed && self.server.can_relax();
        self.sent = Sent { relaxed, before: self.server.relaxed_so_far() };
        if relaxed {
            self.server.note_relaxed(); // now, since others may see it before its answer is here
        }
        self.try_store(values).map_err(|fault| self.failed(fault))
    }

    fn settle(&mut self) -> Result<bool, Fault> {
        let stored = self.session.settle(&self.server)?;
        if stored {
            self.committed();
        }
        Ok(stored)
    }
}

fn put_all(steps: &mut Vec<Step>, values: &Values) {
    let mut puts = Puts::default();
    for (key, value) in values.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        let mut stored = Vec::with_capacity(value.len() + sealed::SUM);
        sealed::seal(key.bytes(), value, &mut stored);
        puts.bytes += key.bytes().len() + stored.len();
        puts.keys.push(key.bytes().to_vec());
        puts.values.push(stored);
        if puts.bytes >= STATEMENT_BYTES || puts.keys.len() >= STATEMENT_ROWS {
            steps.push(Step::Put(std::mem::take(&mut puts)));
        }
    }
    if !puts.keys.is_empty() {
        steps.push(Step::Put(puts));
    }
}

/// Large changes go one after another; what is left, with the end of the transaction, at once.
fn send(server: &Server, link: &Link, steps: &[Step]) -> Result<(), Fault> {
    let first = steps.len().saturating_sub(AT_ONCE);
    steps[..first].iter().try_for_each(|step| link.conn.run(server, one(server, link, step)))?;
    // The first that failed says why; those behind it only that the transaction has.
    link.conn.run_all(server, steps[first..].iter().map(|step| one(server, link, step))).into_iter().collect()
}

async fn one(server: &Server, link: &Link, step: &Step) -> Result<(), Error> {
    let (client, known) = (&link.conn.client, &link.statements);
    match step {
        Step::Say(text) => client.batch_execute(text).await,
        Step::Mark(number) => client.query(&known.mark, &[&server.epoch(), number]).await.map(drop),
        Step::Put(puts) => client.execute(&known.put, &[&puts.keys, &puts.values]).await.map(drop),
        Step::Delete(keys) => client.execute(&known.delete, &[keys]).await.map(drop),
    }
}
