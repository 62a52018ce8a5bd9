//! What all connections to a server share.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::address::Address;
use super::connection::Conn;
use super::sql;
use super::tls::Tls;
use crate::patience::Fault;
use crate::{KvError, Result};

/// A server, and what is known of it.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) tls: Option<Tls>,
    epoch: AtomicI64,
    /// Whether it can acknowledge a commit before it is durable.
    relaxed: AtomicBool,
    /// Why nothing is done any more.
    ended: Mutex<Option<Ended>>,
    /// Number of the last transaction that is known to be committed.
    acknowledged: AtomicI64,
    /// Relaxed commits sent, and how many of them are durable for certain.
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
        Ok(Self {
            address,
            tls,
            epoch: AtomicI64::default(),
            relaxed: AtomicBool::default(),
            ended: Mutex::default(),
            acknowledged: AtomicI64::default(),
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

    /// A transaction is committed.
    pub(super) fn acknowledge(&self, number: i64) {
        self.acknowledged.fetch_max(number, Ordering::AcqRel);
    }

    pub(super) fn acknowledged(&self) -> i64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// A server that has failed, or one that replaces it, may come back without the newest relaxed changes. All connections end with it, so each new one
    /// asks before it is used.
    pub(super) fn has_kept_all(&self, conn: &Conn) -> Result<(), Fault> {
        let known = self.acknowledged();
        let rows = conn.rows(self, sql::KEPT, &[&self.epoch()])?;
        let Some(row) = rows.first() else { return Err(self.lost_ownership(conn)) };
        let found: i64 = row.get(0);
        if found < known { Err(self.rewound(found, known)) } else { Ok(()) }
    }

    /// The number of the last transaction is not one that follows what is known.
    pub(super) fn rewound(&self, found: i64, known: i64) -> Fault {
        let detail = format!("it is at change {found} and was at {known}");
        Fault::Failed(self.end(Ended::Rewound(detail)))
    }

    pub(super) fn relaxed_so_far(&self) -> u64 {
        self.relaxed_commits.load(Ordering::Acquire)
    }

    pub(super) fn note_relaxed(&self) {
        self.relaxed_commits.fetch_add(1, Ordering::AcqRel);
    }

    /// A durable commit was sent behind `before` relaxed ones; the server makes commits durable in their order.
    pub(super) fn note_durable(&self, before: u64) {
        self.durable.fetch_max(before, Ordering::AcqRel);
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire) >= self.relaxed_so_far()
    }

    /// Durable commits.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    // Errors.

    pub(super) fn path(&self) -> PathBuf {
        self.address.to_string().into()
    }

    pub(super) fn refuses(&self, detail: &str) -> KvError {
        KvError::Server { address: self.address.to_string(), detail: detail.into() }
    }

    /// A fault that is not worth another attempt.
    pub(super) fn give_up(&self, fault: Fault) -> KvError {
        match fault {
            Fault::Failed(e) => e,
            Fault::Lost(detail) => self.refuses(&detail),
            Fault::Conflict => self.refuses("other transactions were in the way"),
        }
    }

    /// Says who has taken over, for the row of the last transaction, or of the lease, is not there.
    pub(super) fn lost_ownership(&self, conn: &Conn) -> Fault {
        let rows = match conn.batch(self, "ROLLBACK").and_then(|()| conn.rows(self, sql::WHO, &[])) {
            Ok(rows) => rows,
            Err(fault) => return fault,
        };
        let found: Option<(i64, String)> = rows.first().map(|row| (row.get(0), row.get(1)));
        match found {
            Some((epoch, _)) if epoch == self.epoch() => {
                Fault::Failed(self.refuses("the number of the last change of this node is not there"))
            }
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

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Why an engine does nothing any more.
enum Ended {
    /// Another owner has taken over.
    Taken(String),
    /// The server has lost acknowledged changes.
    Rewound(String),
}
