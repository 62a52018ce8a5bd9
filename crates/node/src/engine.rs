//! Which engine holds the catalogue: the embedded one in the state directory, or a database that the configuration names.

mod clearing;
mod moving;
mod online;
mod pairs;
pub(crate) mod pending;
mod plan;
mod switch;

pub use self::clearing::clear_engine;
pub use self::moving::{MoveStep, Moved, move_engine};
pub(crate) use self::online::EngineMoves;

use crate::Config;
use crate::error::failure;
use crate::startup::{has_catalogue, io, open_engine, patiently};
use kv::log::{LogOptions, LogState};
use kv::standby::Feed;
use kv::{
    Aside, Database, DatabaseOptions, Durability, Engine, KvError, LmdbEngine, Movable, Place, Reader, Stats,
    Writer,
};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use types::ErrorClass;
use wire::Failure;

/// The embedded engine's directory in the state directory.
pub(crate) const EMBEDDED: &str = "catalog";
/// Name by which a database knows this node.
const OWNER: &str = "engine-owner";

/// An engine of either kind.
pub(crate) enum Opened {
    /// In the state directory.
    Embedded(Arc<LmdbEngine>),
    /// In servers, at this address.
    Database { engine: Box<dyn Database>, address: String },
}

impl Opened {
    fn engine(&self) -> &dyn Engine {
        match self {
            Self::Embedded(engine) => engine.as_ref(),
            Self::Database { engine, .. } => engine.as_ref(),
        }
    }

    fn set_aside(&self, mark: Option<&Aside>) -> Result<(), Failure> {
        let set = match self {
            Self::Embedded(engine) => engine.set_aside(mark),
            Self::Database { engine, .. } => engine.set_aside(mark),
        };
        set.map_err(|e| failure(class(&e), e.to_string()))
    }

    /// What has failed, and may yet take effect because an answer was lost, has done so or never does. The embedded engine knows it at once.
    fn settle(&self) -> Result<(), Failure> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Database { engine, .. } => engine.sync().map_err(|e| failure(class(&e), e.to_string())),
        }
    }

    /// Where it is, without a password.
    fn shown(&self, state: &Path) -> String {
        match self {
            Self::Embedded(_) => state.join(EMBEDDED).display().to_string(),
            Self::Database { engine, .. } => engine.shown(),
        }
    }

    /// Whether this node may go on with it.
    fn is_held(&self) -> kv::Result<()> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Database { engine, .. } => engine.is_held(),
        }
    }

    /// How far it is, if others can have it after this node.
    pub(crate) fn reached(&self) -> Option<kv::Reached> {
        match self {
            Self::Embedded(_) => None,
            Self::Database { engine, .. } => Some(engine.reached()),
        }
    }

    /// What the configuration calls it; None: the embedded one.
    fn address(&self) -> Option<&str> {
        match self {
            Self::Embedded(_) => None,
            Self::Database { address, .. } => Some(address),
        }
    }

    /// As what it is, if it is embedded.
    pub(crate) fn embedded(&self) -> Option<Arc<LmdbEngine>> {
        match self {
            Self::Embedded(engine) => Some(engine.clone()),
            Self::Database { .. } => None,
        }
    }
}

impl Engine for Opened {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> kv::Result<()>) -> kv::Result<()> {
        self.engine().read_dyn(f)
    }

    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> kv::Result<()>,
    ) -> kv::Result<()> {
        self.engine().write_dyn(durability, f)
    }

    fn sync(&self) -> kv::Result<()> {
        self.engine().sync()
    }

    fn verify(&self) -> kv::Result<()> {
        self.engine().verify()
    }

    fn backup(&self, to: &Path) -> kv::Result<()> {
        self.engine().backup(to)
    }

    fn log(&self) -> Option<LogState> {
        self.engine().log()
    }

    fn stats(&self) -> Stats {
        self.engine().stats()
    }
}

/// Opens the engine that the configuration names; a `fresh` state directory may get a new one. Another one can take its place while it is used.
pub(crate) fn open(
    config: &Config,
    fresh: bool,
    log: Option<LogOptions>,
    feed: Option<Arc<Feed>>,
) -> Result<Arc<Movable<Opened>>, Failure> {
    open_counting(config, fresh, (log, feed), None).map(|engine| Arc::new(Movable::new(engine)))
}

/// The same for a node whose turn it is: an engine that has not been there is left as it is.
pub(crate) fn open_in_turn(
    config: &Config,
    fresh: bool,
    has_been: Option<Place>,
) -> Result<Arc<Movable<Opened>>, Failure> {
    open_counting(config, fresh, (None, None), has_been).map(|engine| Arc::new(Movable::new(engine)))
}

/// The same engine alone. A move that was under way is over then, before anything is changed: the other engine does not open any more.
fn open_counting(
    config: &Config,
    fresh: bool,
    kept: (Option<LogOptions>, Option<Arc<Feed>>),
    has_been: Option<Place>,
) -> Result<Opened, Failure> {
    let state = &config.state_dir;
    let fail = |e: std::io::Error| io(state, &e);
    let kind = kind(config);
    let note = pending::read(state).map_err(fail)?;
    let moved = note.as_ref().and_then(|note| note.id_for(kind));
    let engine = open_named(config, fresh, kept, (moved, has_been))?;
    if let Some(id) = moved {
        pending::choose(state, id, kind).map_err(fail)?;
        engine.set_aside(None)?;
    }
    if note.is_some() {
        pending::remove(state).map_err(fail)?;
    }
    Ok(engine)
}

/// How the note of a move calls the engine that the configuration names.
fn kind(config: &Config) -> &'static str {
    if config.in_database() { "database" } else { "embedded" }
}

fn open_named(
    config: &Config,
    fresh: bool,
    (log, feed): (Option<LogOptions>, Option<Arc<Feed>>),
    (moved, has_been): (Option<&str>, Option<Place>),
) -> Result<Opened, Failure> {
    let state = &config.state_dir;
    match &config.catalog.engine {
        None => {
            if !fresh {
                is_not_elsewhere(state)?;
                has_catalogue(state)?;
            }
            let engine = patiently(|| open_engine(&state.join(EMBEDDED), log.clone(), moved, feed.clone()))?;
            Ok(Opened::Embedded(Arc::new(engine)))
        }
        Some(address) => {
            let engine = open_database(state, address, (fresh, has_been), config.turn(), moved)?;
            Ok(Opened::Database { engine, address: address.clone() })
        }
    }
}

/// A node that has only used a database, and whose configuration names none.
fn is_not_elsewhere(state: &Path) -> Result<(), Failure> {
    if state.join(EMBEDDED).exists() || !state.join(OWNER).exists() {
        return Ok(());
    }
    let message = format!(
        "there is no {}: the catalogue of this node is in a database, which the configuration does not name any more; put its address back \
         (catalog.engine), or restore a backup with `thermo catalog restore`",
        state.join(EMBEDDED).display()
    );
    Err(failure(ErrorClass::NotFound, message))
}

fn open_database(
    state: &Path,
    address: &str,
    (fresh, has_been): (bool, Option<Place>),
    turns: Option<Duration>,
    moved: Option<&str>,
) -> Result<Box<dyn Database>, Failure> {
    let fail = |e: KvError| failure(class(&e), e.to_string());
    let embedded = state.join(EMBEDDED);
    if embedded.join("data.mdb").exists() && LmdbEngine::aside(&embedded).map_err(fail)?.is_none() {
        let message = format!(
            "the catalogue is in {}, and the configuration names a database (catalog.engine): take that line out; to bring the \
             catalogue into the database, use `thermo engine move` then; if it is not used any more, rename its directory",
            state.join(EMBEDDED).display()
        );
        return Err(failure(ErrorClass::Invalid, message));
    }
    let owner = owner(state).map_err(|e| io(state, &e))?;
    let mut options = DatabaseOptions::new(&owner);
    (options.create, options.take_over) = (fresh, false);
    if let Some(lease) = turns {
        (options.take_over, options.others_wait, options.lease) = (true, true, lease);
    }
    (options.aside, options.has_been) = (moved.map(Into::into), has_been);
    kv::open_database(address, options).map_err(fail)
}

/// What the caller can do about an engine that does not open.
pub(crate) fn class(e: &KvError) -> ErrorClass {
    match e {
        KvError::Owned { .. } | KvError::Locked { .. } => ErrorClass::Busy,
        KvError::Server { .. } | KvError::Standby { .. } | KvError::Lapsed { .. } => ErrorClass::Retry,
        KvError::Absent { .. } => ErrorClass::NotFound,
        KvError::Full { .. } => ErrorClass::NoSpace,
        KvError::Address { .. }
        | KvError::Format { .. }
        | KvError::Foreign { .. }
        | KvError::Aside { .. }
        | KvError::NotEmpty { .. } => ErrorClass::Invalid,
        _ => ErrorClass::Corrupt,
    }
}

/// The name by which databases know this node: made once, so that it is known again after a crash.
pub(crate) fn owner(state: &Path) -> std::io::Result<String> {
    match fs::read_to_string(state.join(OWNER)) {
        Ok(text) if !text.trim().is_empty() && text.trim().lines().count() == 1 => {
            return Ok(text.trim().into());
        }
        Ok(_) => {
            let detail = format!(
                "{OWNER} must hold one line, the name by which the database knows this node (PostgreSQL: column name of its table kv_owner)"
            );
            return Err(std::io::Error::new(ErrorKind::InvalidData, detail));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let host = rustix::system::uname();
    let name = format!("{} {}", host.nodename().to_string_lossy(), uuid::Uuid::new_v4());
    let new = state.join(format!("{OWNER}.new"));
    let mut file = File::create(&new)?;
    writeln!(file, "{name}")?;
    file.sync_all()?;
    fs::rename(new, state.join(OWNER))?;
    File::open(state)?.sync_all()?;
    Ok(name)
}
