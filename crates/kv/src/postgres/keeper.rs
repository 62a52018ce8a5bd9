//! What goes on beside the work: the lease is renewed, and what was added to counters that have become quiet is put into their values.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Core;
use super::connection::{Conn, Fault};
use super::{owner, sql};
use crate::{Durability, Engine, KvError, write};

/// Counters put together in one transaction.
const FOLDED: i64 = 50;
/// Transactions of that kind in one round.
const ROUND: usize = 20;

/// Runs until the engine is dropped.
pub(super) fn run(core: &Core) {
    let mut conn = None;
    let mut renewed = Instant::now();
    while core.pause(core.options.fold_every) {
        if renewed.elapsed() >= core.options.lease / 3 {
            match renew(core, &mut conn) {
                Ok(()) => renewed = Instant::now(),
                Err(Fault::Failed(KvError::Taken { .. })) => return, // whoever writes is told
                Err(_) => conn = None,                               // tried again in a moment
            }
        }
        fold(core, &mut conn);
    }
    if let Some(conn) = conn.or_else(|| Conn::open(&core.server).ok()) {
        let _ = owner::renew(&core.server, &conn, Duration::ZERO); // otherwise it ends by itself
    }
}

fn connected<'c>(core: &Core, conn: &'c mut Option<Conn>) -> Result<&'c Conn, Fault> {
    if conn.as_ref().is_none_or(|c| c.client.is_closed()) {
        *conn = Some(Conn::open(&core.server)?);
    }
    conn.as_ref().ok_or_else(|| Fault::Lost("not connected".into()))
}

fn renew(core: &Core, conn: &mut Option<Conn>) -> Result<(), Fault> {
    owner::renew(&core.server, connected(core, conn)?, core.options.lease)
}

/// One round over counters that nobody has changed since the last one. What goes wrong is left to the next round: nothing depends on it.
fn fold(core: &Core, conn: &mut Option<Conn>) {
    let hot = core.server.changed_since();
    let mut after = Vec::new();
    for _ in 0..ROUND {
        let Ok(keys) = changed(core, conn, &after) else { return };
        let Some(last) = keys.last().cloned() else { return };
        let full = keys.len() as i64 == FOLDED;
        let quiet: Vec<_> = keys.into_iter().filter(|k| !hot.contains(k)).collect();
        if !quiet.is_empty() && fold_some(core, &quiet).is_err() {
            return;
        }
        if !full {
            return;
        }
        after = last;
    }
}

fn changed(core: &Core, conn: &mut Option<Conn>, after: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let conn = connected(core, conn)?;
    let rows = conn.rows(&core.server, sql::CHANGED, &[&after, &FOLDED])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Setting a counter to what it is takes in what was added.
fn fold_some(core: &Core, keys: &[Vec<u8>]) -> Result<(), KvError> {
    write(core as &dyn Engine, Durability::Relaxed, |w| {
        for key in keys {
            if let Some(value) = w.get(key)? {
                w.put(key, &value)?;
            }
        }
        Ok(())
    })
}

/// Counters changed since the last round.
#[derive(Default)]
pub(super) struct Recent(BTreeSet<Vec<u8>>);

/// Counters remembered; beyond that all count as quiet, which costs work and nothing else.
const REMEMBERED: usize = 10_000;

impl Recent {
    pub(super) fn note(&mut self, key: &[u8]) {
        if self.0.len() < REMEMBERED && !self.0.contains(key) {
            self.0.insert(key.to_vec());
        }
    }

    pub(super) fn turn(&mut self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.0)
    }
}
