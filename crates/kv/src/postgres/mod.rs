//! An engine over the PostgreSQL wire protocol: PostgreSQL itself, and what speaks as it does. How and why:
//! `docs/design/0008-postgres-engine.md`; its tables: `docs/formats/engine.md`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use self::base::Base;
use self::commit::End;
use self::connection::{Conn, Fault, Statements};
use self::patience::Patience;
use self::pool::Pool;
use self::server::Server;
use self::session::Session;
use crate::copy;
use crate::counted::Txn;
use crate::{Aside, Database, DatabaseOptions, Durability, Engine, KvError, Reader, Result, Stats, Writer};

mod address;
mod base;
mod commit;
mod connection;
mod keeper;
mod owner;
mod patience;
mod pool;
mod server;
mod session;
mod sql;
mod tls;

const READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const WRITING: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";
const WRITING_RELAXED: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL synchronous_commit TO off";

/// An engine whose data is in a database server. Closures run side by side, each as a serialisable transaction of the server.
pub struct PostgresEngine {
    core: Arc<Core>,
    keeper: Option<JoinHandle<()>>,
}

struct Core {
    server: Server,
    options: DatabaseOptions,
    writers: Pool<Session>,
    readers: Pool<Option<(Conn, Statements)>>,
    /// Shared by closures that write; held alone by one that has lost against others several times.
    turn: RwLock<()>,
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
        let server = Server::new(address)?;
        let mut patience = Patience::new(options.patience);
        loop {
            let opened = Conn::open(&server).and_then(|conn| take_over(&server, &conn, &options));
            match opened {
                Ok(()) => break,
                Err(fault) => patience.after(&server, fault)?,
            }
        }
        let connections = server.address.connections;
        let core = Arc::new(Core {
            writers: Pool::new((0..connections as i64).rev().map(Session::new)),
            readers: Pool::new((0..connections).map(|_| None)),
            server,
            options,
            turn: RwLock::new(()),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let kept = core.clone();
        let keeper = thread::Builder::new()
            .name("kv-keeper".into())
            .spawn(move || keeper::run(&kept))
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

    fn shown(&self) -> String {
        self.core.server.address.to_string()
    }
}

fn take_over(server: &Server, conn: &Conn, options: &DatabaseOptions) -> Result<(), Fault> {
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

    /// Runs the closure once, and commits; with `always` also when it has changed nothing.
    fn attempt(&self, session: &mut Session, how: &How, f: Change<'_>) -> Result<End, Fault> {
        session.ready(&self.server)?;
        let Some((conn, statements)) = &session.link else { return Err(Fault::Lost("not connected".into())) };
        let relaxed = how.durability == Durability::Relaxed && self.server.can_relax();
        let begin = if relaxed { WRITING_RELAXED } else { WRITING };
        let mut txn = Txn::new(Base::new(&self.server, conn, statements, begin));
        let answer = f(&mut txn);
        let (base, done) = txn.into_parts();
        let end = match base.take_fault() {
            Some(fault) => Err(fault),
            None => answer.map_err(Fault::Failed).and_then(|()| match done.is_empty() && !how.always {
                true => commit::nothing(&base),
                false => {
                    let mark = (self.server.epoch(), session.slot, session.last + 1);
                    commit::commit(&base, mark, &done, how.plain)
                }
            }),
        };
        let closed = base.roll_back();
        if closed.is_err() || matches!(end, Ok(End::Unknown(_)) | Err(Fault::Lost(_))) {
            session.link = None;
        }
        match &end {
            Ok(End::Committed) => {
                session.last += 1;
                self.server.acknowledge(session.slot, session.last);
            }
            Ok(End::Unknown(_)) => session.unsettled = true,
            _ => {}
        }
        end
    }

    /// Runs the closure until it is committed, once.
    fn transact(&self, mut how: How, f: Change<'_>) -> Result<()> {
        let mut session = self.writers.take();
        let mut patience = Patience::new(self.options.patience);
        loop {
            self.server.still_ours()?;
            let before = self.server.relaxed_so_far();
            let end = {
                let alone = patience.needs_turn().then(|| self.turn.write());
                let _beside = alone.is_none().then(|| self.turn.read());
                self.attempt(&mut session, &how, f)
            };
            match end {
                Ok(End::Committed) => return self.committed(how.durability, before),
                Ok(End::Nothing) => {
                    drop(session);
                    return if how.durability == Durability::Durable { self.sync() } else { Ok(()) };
                }
                Ok(End::Unknown(detail)) => {
                    if self.settle(&mut session, &mut patience, detail)? {
                        return self.committed(how.durability, before);
                    }
                }
                Ok(End::Stale) => how.plain = true,
                Ok(End::Fenced) => {
                    match session.link.as_ref().map(|(conn, _)| self.server.lost_ownership(conn)) {
                        Some(fault) => patience.after(&self.server, fault)?,
                        None => session.unsettled = true,
                    }
                }
                Err(fault) => patience.after(&self.server, fault)?,
            }
        }
    }

    /// What became of a transaction whose answer was lost.
    fn settle(&self, session: &mut Session, patience: &mut Patience, detail: String) -> Result<bool> {
        let mut fault = Fault::Lost(detail);
        loop {
            patience.after(&self.server, fault).map_err(|e| self.server.unsure(e))?;
            match session.settle(&self.server) {
                Ok(committed) => return Ok(committed),
                Err(again) => fault = again,
            }
        }
    }

    fn committed(&self, durability: Durability, before: u64) -> Result<()> {
        match durability {
            Durability::Relaxed => self.server.note_relaxed(),
            Durability::Durable => self.server.note_durable(before),
        }
        Ok(())
    }
}

type Change<'f> = &'f mut dyn FnMut(&mut dyn Writer) -> Result<()>;

/// How a closure is to be committed.
struct How {
    durability: Durability,
    /// Counters are read and set, not added to.
    plain: bool,
    /// Commit also if nothing was changed.
    always: bool,
}

impl Engine for Core {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        let mut place = self.readers.take();
        let mut patience = Patience::new(self.options.patience);
        loop {
            self.server.still_ours()?;
            match self.read_once(&mut place, f) {
                Ok(()) => return Ok(()),
                Err(fault) => patience.after(&self.server, fault)?,
            }
        }
    }

    fn write_dyn(&self, durability: Durability, f: Change<'_>) -> Result<()> {
        self.transact(How { durability, plain: false, always: false }, f)
    }

    fn sync(&self) -> Result<()> {
        if self.server.is_durable() {
            return Ok(());
        }
        self.transact(How { durability: Durability::Durable, plain: false, always: true }, &mut |_| Ok(()))
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
                let detail =
                    format!("something was added to key {}, which is no counter", crate::error::hex(&key));
                Err(KvError::Corrupt { path: self.server.path(), detail })
            }
        }
    }

    fn backup(&self, to: &Path) -> Result<()> {
        copy::copy(self, to)
    }

    fn stats(&self) -> Stats {
        let (writes, flushes) = self.server.counted();
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

    fn read_once(
        &self,
        place: &mut Option<(Conn, Statements)>,
        f: &mut dyn FnMut(&dyn Reader) -> Result<()>,
    ) -> Result<(), Fault> {
        if place.as_ref().is_none_or(|(conn, _)| conn.client.is_closed()) {
            let conn = Conn::open(&self.server)?;
            self.server.has_kept_all(&conn)?;
            let statements = conn.prepare(&self.server)?;
            *place = Some((conn, statements));
        }
        let Some((conn, statements)) = place.as_ref() else {
            return Err(Fault::Lost("not connected".into()));
        };
        let txn = Txn::new(Base::new(&self.server, conn, statements, READING));
        let answer = f(&txn);
        let (base, _) = txn.into_parts();
        let fault = base.take_fault();
        let closed = base.roll_back();
        if closed.is_err() || matches!(fault, Some(Fault::Lost(_))) {
            *place = None; // what was read is good all the same
        }
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
