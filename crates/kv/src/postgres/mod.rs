//! An engine over the PostgreSQL wire protocol: PostgreSQL itself, and what speaks as it does. How and why:
//! `docs/design/0008-postgres-engine.md`; its tables: `docs/formats/engine.md`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use self::base::Base;
use self::commit::Commits;
use self::connection::{Conn, Link};
use self::pool::Pool;
use self::server::Server;
use crate::batch::{Batches, Snapshot};
use crate::copy;
use crate::counted::Txn;
use crate::lease::{self, Lease};
use crate::patience::{Fault, Patience};
use crate::{
    Aside, Database, DatabaseOptions, Durability, Engine, KvError, Reached, Reader, Result, Stats, Writer,
};

mod address;
mod base;
mod commit;
mod connection;
mod keeper;
mod owner;
mod pool;
mod server;
mod session;
mod sql;
mod tls;
mod turns;

pub(crate) use self::turns::PostgresTurns;

/// Connections for readers at least: a copy of everything holds one for as long as it takes.
const READERS: usize = 2;

/// An engine whose data is in a database server. Closures run side by side on snapshots; those that end at the same time are committed together.
pub struct PostgresEngine {
    core: Arc<Core>,
    keeper: Option<JoinHandle<()>>,
}

struct Core {
    server: Arc<Server>,
    options: DatabaseOptions,
    lease: Lease,
    batches: Batches<Commits>,
    /// For closures that write, and for those that do not.
    writers: Pool<Option<Link>>,
    readers: Pool<Option<Link>>,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

impl PostgresEngine {
    /// Whether `address` can be one; the address without a password.
    ///
    /// # Errors
    /// `Address` says what is wrong with it.
    pub fn check_address(address: &str) -> Result<String> {
        Server::new(address).map(|server| server.address.to_string())
    }

    /// Opens the engine in the database at `address`: `postgres://USER@HOST:PORT/DATABASE?SETTING=VALUE`.
    ///
    /// # Errors
    /// `Address` if it is no address; `Aside` if it does not count; `NotEmpty` if it is to be filled and holds something; `Owned` while another node uses the database; `Format` if another release made the tables; `Server` if the
    /// server refuses or cannot be reached; `Absent` if there is no engine and none is to be made; `Foreign` if it holds the data of another node that
    /// is not to be taken over.
    pub fn open(address: &str, options: DatabaseOptions) -> Result<Self> {
        let server = Arc::new(Server::new(address)?);
        let mut patience = Patience::new(options.patience);
        let lease = loop {
            let sent = lease::now();
            let opened = Conn::open(&server).and_then(|conn| take_over(&server, &conn, &options));
            match opened {
                Ok(()) => break Lease::new(&options, sent),
                Err(fault) => patience.after(&server, fault)?,
            }
        };
        let connections = server.address.connections;
        let commits = Commits::new(server.clone());
        let core = Arc::new(Core {
            batches: Batches::new(commits, server.to_string(), options.patience),
            writers: Pool::new((0..connections).map(|_| None)),
            readers: Pool::new((0..connections.max(READERS)).map(|_| None)),
            server,
            options,
            lease,
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let kept = core.clone();
        let keeper = thread::Builder::new()
            .name("kv-lease".into())
            .spawn(move || keeper::hold(&kept))
            .map_err(|e| core.server.refuses(&format!("starting the thread that keeps its lease: {e}")))?;
        Ok(Self { core, keeper: Some(keeper) })
    }
}

impl Database for PostgresEngine {
    fn set_aside(&self, mark: Option<&Aside>) -> Result<()> {
        self.core.sync()?;
        let server = &self.core.server;
        let conn = self.core.connected()?;
        owner::set_format(server, &conn, &owner::format(mark)).map_err(|fault| server.give_up(fault))
    }

    fn is_held(&self) -> Result<()> {
        self.core.server.still_ours()?;
        self.core.lease.holds(|| self.core.server.path())
    }

    fn reached(&self) -> Reached {
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        Reached { epoch: number(self.core.server.epoch()), number: number(self.core.server.acknowledged()) }
    }

    fn shown(&self) -> String {
        self.core.server.address.to_string()
    }
}

fn take_over(server: &Server, conn: &Conn, options: &DatabaseOptions) -> Result<(), Fault> {
    conn.changes()?;
    owner::make_tables(server, conn, options.create)?;
    let epoch = owner::take(server, conn, options)?;
    if options.fill.is_some() {
        sql::EMPTY.iter().try_for_each(|statement| conn.batch(server, statement))?;
    }
    let relaxed = conn.optional("SET synchronous_commit TO off")?;
    server.own(epoch, relaxed);
    Ok(())
}

impl Core {
    /// Waits; false once the engine is being dropped.
    fn pause(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, time);
        }
        !*stopping
    }

    /// Whether this owner still counts. A lease that has run out may yet be renewed: that is waited for, as for a server that does not answer.
    fn counts(&self) -> Result<(), Fault> {
        self.server.still_ours()?;
        self.lease.holds(|| self.server.path()).map_err(|e| Fault::Lost(e.to_string()))
    }
}

type Change<'f> = &'f mut dyn FnMut(&mut dyn Writer) -> Result<()>;

impl Engine for Core {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        let mut patience = Patience::new(self.options.patience);
        loop {
            // What was read while the lease ran out may have been read too late.
            match self.counts().and_then(|()| self.read_once(f)).and_then(|()| self.counts()) {
                Ok(()) => return Ok(()),
                Err(fault) => patience.after(&self.server, fault)?,
            }
        }
    }

    fn write_dyn(&self, durability: Durability, f: Change<'_>) -> Result<()> {
        let snapshot = || Base::new(&self.server, &self.writers, true);
        let changed = self.batches.write(durability, &|| self.counts(), &snapshot, f)?;
        // What it has read may have been changed by others who were in no hurry.
        if durability == Durability::Durable && !changed { self.sync() } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        if self.server.is_durable() && !self.batches.is_unsure() {
            return Ok(());
        }
        self.batches.sync(&|| self.counts())
    }

    fn verify(&self) -> Result<()> {
        self.read_dyn(&mut |r| {
            r.scan(&[], &[255; crate::MAX_KEY + 1], &mut |_, _| ControlFlow::Continue(()))
        })?;
        let conn = self.connected()?;
        match conn.rows(&self.server, sql::STRAY, &[]).map_err(|fault| self.server.give_up(fault))?.first() {
            None => Ok(()),
            Some(row) => {
                let key: Vec<u8> = row.get(0);
                let detail = format!(
                    "something was added to key {} apart from its value, as an earlier thermo does",
                    crate::error::hex(&key)
                );
                Err(KvError::Corrupt { path: self.server.path(), detail })
            }
        }
    }

    fn backup(&self, to: &Path) -> Result<()> {
        copy::copy(self, to)
    }

    fn stats(&self) -> Stats {
        let (writes, flushes) = (self.batches.counted().0, self.server.flushes());
        let size = self.connected().ok().and_then(|conn| conn.rows(&self.server, sql::SIZE, &[]).ok());
        let size = size.as_ref().and_then(|rows| rows.first());
        let number = |n| size.and_then(|row| row.try_get::<_, i64>(n).ok()).map_or(0, |n| n.max(0) as u64);
        Stats { keys: number(0), bytes: number(1), writes, flushes }
    }
}

impl Core {
    fn connected(&self) -> Result<Conn> {
        Conn::open(&self.server).map_err(|fault| self.server.give_up(fault))
    }

    fn read_once(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<(), Fault> {
        let txn = Txn::new(Base::new(&self.server, &self.readers, false));
        let answer = f(&txn);
        let (_, fault) = txn.into_parts().0.finish();
        fault.map_or_else(|| answer.map_err(Fault::Failed), Err)
    }
}

impl Engine for PostgresEngine {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        self.core.read_dyn(f)
    }

    fn write_dyn(&self, durability: Durability, f: Change<'_>) -> Result<()> {
        self.core.write_dyn(durability, f)
    }

    fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    fn verify(&self) -> Result<()> {
        self.core.verify()
    }

    fn backup(&self, to: &Path) -> Result<()> {
        self.core.backup(to)
    }

    fn stats(&self) -> Stats {
        self.core.stats()
    }
}

impl Drop for PostgresEngine {
    fn drop(&mut self) {
        let _ = self.core.sync(); // whoever needed to know has asked
        *self.core.stopping.lock() = true;
        self.core.stopped.notify_all();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join(); // it holds nothing that a panic could have left half done
        }
    }
}
