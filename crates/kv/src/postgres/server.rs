//! What all connections to a server share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::address::Address;
use super::connection::{Conn, Fault};
use super::keeper::Recent;
use super::sql;
use super::tls::Tls;
use crate::counter::Kind;
use crate::key::Key;
use crate::{KvError, Result};

/// Counters whose kind is remembered.
const REMEMBERED: usize = 100_000;

/// A server, and what is known of it.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) tls: Option<Tls>,
    epoch: AtomicI64,
    /// Whether it can acknowledge a commit before it is durable.
    relaxed: AtomicBool,
    /// Why nothing is done any more.
    ended: Mutex<Option<Ended>>,
    /// Number of the last transaction of each connection that is known to be committed.
    acknowledged: Vec<AtomicI64>,
    /// Kinds of counters, as they were when last seen. May be wrong: each use is checked by the server.
    kinds: Mutex<BTreeMap<Key, Kind>>,
    recent: Mutex<Recent>,
    /// Relaxed commits acknowledged, and how many of them are durable for certain.
    relaxed_commits: AtomicU64,
    durable: AtomicU64,
    flushes: AtomicU64,
}

impl Server {
    pub(super) fn new(address: &str) -> Result<Self> {
        let bad = |detail: String| KvError::Address {
            detail: format!("{detail}; write postgres://USER@HOST:PORT/DATABASE"),
        };
        let address = Address::parse(address).map_err(bad)?;
        let tls = address.tls.as_ref().map(Tls::new).transpose().map_err(bad)?;
        let acknowledged = (0..address.connections).map(|_| AtomicI64::default()).collect();
        Ok(Self {
            address,
            tls,
            epoch: AtomicI64::default(),
            relaxed: AtomicBool::default(),
            ended: Mutex::default(),
            acknowledged,
            kinds: Mutex::default(),
            recent: Mutex::default(),
            relaxed_commits: AtomicU64::default(),
            durable: AtomicU64::default(),
            flushes: AtomicU64::default(),
        })
    }

    pub(super) fn own(&self, epoch: i64, relaxed: bool) {
        self.epoch.store(epoch, Ordering::Release);
        self.relaxed.store(relaxed && self.address.relaxed, Ordering::Release);
    }

    pub(super) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn can_relax(&self) -> bool {
        self.relaxed.load(Ordering::Acquire)
    }

    // What was acknowledged, and what became durable when.

    /// A transaction of a connection is committed.
    pub(super) fn acknowledge(&self, slot: i64, number: i64) {
        if let Some(last) = usize::try_from(slot).ok().and_then(|slot| self.acknowledged.get(slot)) {
            last.fetch_max(number, Ordering::AcqRel);
        }
    }

    /// A server that has failed, or one that replaces it, may come back without the newest relaxed changes. All connections end with it, so each new one
    /// asks before it is used.
    pub(super) fn has_kept_all(&self, conn: &Conn) -> Result<(), Fault> {
        let known: Vec<i64> = self.acknowledged.iter().map(|last| last.load(Ordering::Acquire)).collect();
        let rows = conn.rows(self, sql::ALL_LAST, &[&self.epoch()])?;
        if rows.is_empty() {
            return Err(self.lost_ownership(conn));
        }
        for row in rows {
            let (slot, found): (i64, i64) = (row.get(0), row.get(1));
            let known =
                usize::try_from(slot).ok().and_then(|slot| known.get(slot)).copied().unwrap_or_default();
            if found < known {
                let detail = format!("connection {slot} is at change {found} and was at {known}");
                return Err(Fault::Failed(self.end(Ended::Rewound(detail))));
            }
        }
        Ok(())
    }

    pub(super) fn relaxed_so_far(&self) -> u64 {
        self.relaxed_commits.load(Ordering::Acquire)
    }

    pub(super) fn note_relaxed(&self) {
        self.relaxed_commits.fetch_add(1, Ordering::AcqRel);
    }

    /// A durable commit was sent when `before` relaxed ones were acknowledged; the server makes commits durable in their order.
    pub(super) fn note_durable(&self, before: u64) {
        self.durable.fetch_max(before, Ordering::AcqRel);
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire) >= self.relaxed_so_far()
    }

    /// Commits, and durable ones.
    pub(super) fn counted(&self) -> (u64, u64) {
        let flushes = self.flushes.load(Ordering::Relaxed);
        (flushes + self.relaxed_so_far(), flushes)
    }

    // Counters.

    pub(super) fn knows(&self, key: &Key, kind: Kind) -> bool {
        self.kinds.lock().get(key) == Some(&kind)
    }

    pub(super) fn remember<'k>(&self, counters: impl IntoIterator<Item = (&'k Key, Kind)>) {
        let mut kinds = self.kinds.lock();
        for (key, kind) in counters {
            if kinds.len() >= REMEMBERED {
                kinds.clear();
            }
            kinds.insert(key.clone(), kind);
        }
    }

    pub(super) fn forget<'k>(&self, counters: impl IntoIterator<Item = &'k Key>) {
        let mut kinds = self.kinds.lock();
        for key in counters {
            kinds.remove(key);
        }
    }

    pub(super) fn note_changed<'k>(&self, counters: impl IntoIterator<Item = &'k [u8]>) {
        let mut recent = self.recent.lock();
        counters.into_iter().for_each(|key| recent.note(key));
    }

    /// Counters changed since this was asked last.
    pub(super) fn changed_since(&self) -> BTreeSet<Vec<u8>> {
        self.recent.lock().turn()
    }

    // Errors.

    pub(super) fn path(&self) -> PathBuf {
        self.address.to_string().into()
    }

    pub(super) fn refuses(&self, detail: &str) -> KvError {
        KvError::Server { address: self.address.to_string(), detail: detail.into() }
    }

    pub(super) fn unreachable(&self, since: Duration, detail: &str) -> KvError {
        self.refuses(&format!("no answer for {} s, the last attempt said: {detail}", since.as_secs()))
    }

    /// The outcome of a change could not be found out.
    pub(super) fn unsure(&self, e: KvError) -> KvError {
        match e {
            KvError::Server { address, detail } => {
                let detail = format!(
                    "{detail}; the connection was lost while a change was committed: it may have taken effect"
                );
                KvError::Server { address, detail }
            }
            other => other,
        }
    }

    /// A fault that is not worth another attempt.
    pub(super) fn give_up(&self, fault: Fault) -> KvError {
        match fault {
            Fault::Failed(e) => e,
            Fault::Lost(detail) => self.refuses(&detail),
            Fault::Conflict | Fault::Guard => self.refuses("other transactions were in the way"),
        }
    }

    /// Says who has taken over, for the row of a connection, or of the lease, is not there.
    pub(super) fn lost_ownership(&self, conn: &Conn) -> Fault {
        let rows = match conn.batch(self, "ROLLBACK").and_then(|()| conn.rows(self, sql::WHO, &[])) {
            Ok(rows) => rows,
            Err(fault) => return fault,
        };
        let found: Option<(i64, String)> = rows.first().map(|row| (row.get(0), row.get(1)));
        match found {
            Some((epoch, _)) if epoch == self.epoch() => Fault::Failed(
                self.refuses("the numbers of its connections are not those that this node gave them"),
            ),
            other => {
                let by = other.map_or_else(|| "nobody known".into(), |(_, name)| name);
                Fault::Failed(self.end(Ended::Taken(by)))
            }
        }
    }

    /// Nothing is done from now on.
    fn end(&self, why: Ended) -> KvError {
        let e = self.error(&why);
        self.ended.lock().get_or_insert(why);
        e
    }

    fn error(&self, why: &Ended) -> KvError {
        match why {
            Ended::Taken(by) => KvError::Taken { path: self.path(), by: by.clone() },
            Ended::Rewound(detail) => KvError::Rewound { path: self.path(), detail: detail.clone() },
        }
    }

    pub(super) fn still_ours(&self) -> Result<()> {
        self.ended.lock().as_ref().map_or(Ok(()), |why| Err(self.error(why)))
    }
}

/// Why an engine does nothing any more.
enum Ended {
    /// Another owner has taken over.
    Taken(String),
    /// The server has lost acknowledged changes.
    Rewound(String),
}
