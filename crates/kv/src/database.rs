//! Engines whose data is in servers, which an address names.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Aside, Engine, KvError, PostgresEngine, Result, Role};

/// How addresses of TiKV clusters begin.
const TIKV: &str = "tikv://";

/// An engine whose data is in servers.
pub trait Database: Engine {
    /// Says durably that this engine does not count from its next opening on, or that it does (`None`).
    ///
    /// # Errors
    /// `Taken` if another node has taken over; `Server` if the server refuses or cannot be reached: it is as before, or as asked for.
    fn set_aside(&self, mark: Option<&Aside>) -> Result<()>;

    /// The address, without a password.
    fn shown(&self) -> String;
}

/// How to open a [`Database`].
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// Name of the node. While one has the engine open, another name is refused; the same name takes over at once, as after a crash.
    pub owner: String,
    /// Whether an engine may be made where there is none.
    pub create: bool,
    /// Whether data of another node, which does not use it any more, may be taken over.
    pub take_over: bool,
    /// Number of a move ([`Aside`]): what was set aside for it opens too.
    pub aside: Option<String>,
    /// The engine becomes a copy with this mark: there must be nothing, or an earlier copy of this node that was not finished, which goes.
    pub fill: Option<Aside>,
    /// What was moved elsewhere ([`Role::Left`]) may be filled too: what it holds goes.
    pub clear: bool,
    /// After this long without a sign of life another node may take over. The engine gives one three times as often.
    pub lease: Duration,
    /// How long a server that does not answer is tried again before an operation fails.
    pub patience: Duration,
}

impl DatabaseOptions {
    /// Makes an engine; a lease of 15 s, patience of 30 s.
    pub fn new(owner: &str) -> Self {
        Self {
            owner: owner.into(),
            create: true,
            take_over: true,
            aside: None,
            fill: None,
            clear: false,
            lease: Duration::from_secs(15),
            patience: Duration::from_secs(30),
        }
    }

    /// Whether the engine at `path` of the node `by`, whose lease may be `live`, may be opened.
    pub(crate) fn may_follow(&self, path: PathBuf, by: String, live: bool) -> Result<()> {
        match by == self.owner {
            true => Ok(()),
            false if live => Err(KvError::Owned { path, by, seconds: self.lease.as_secs() }),
            false if self.take_over => Ok(()),
            false => Err(KvError::Foreign { path, by }),
        }
    }

    /// Whether the engine at `path` with this mark (`None`: it counts) may be opened.
    pub(crate) fn may_open(&self, path: PathBuf, mark: Option<Aside>) -> Result<()> {
        match (mark, &self.fill) {
            (None, None) => Ok(()),
            (Some(mark), Some(_)) if self.clear || mark.role == Role::Copy => Ok(()),
            (_, Some(_)) => Err(KvError::NotEmpty { path }),
            (Some(mark), None) if mark.opens_for(self.aside.as_deref()) => Ok(()),
            (Some(mark), None) => Err(KvError::Aside { path, why: mark.why }),
        }
    }
}

/// Whether `address` can be that of a database; the address without a password, as it is shown.
///
/// # Errors
/// `Address` says what is wrong with it.
pub fn check_address(address: &str) -> Result<String> {
    match address.starts_with(TIKV) {
        true => tikv::check(address),
        false => PostgresEngine::check_address(address),
    }
}

/// Opens the engine at `address`: `postgres://USER@HOST:PORT/DATABASE` or `tikv://HOST:PORT,HOST:PORT/NAME`, with settings behind a `?`.
///
/// # Errors
/// Those of [`PostgresEngine::open`]; `Address` also if this program was built without the engine.
pub fn open_database(address: &str, options: DatabaseOptions) -> Result<Box<dyn Database>> {
    match address.starts_with(TIKV) {
        true => tikv::open(address, options),
        false => Ok(Box::new(PostgresEngine::open(address, options)?)),
    }
}

#[cfg(feature = "tikv")]
mod tikv {
    use super::{Database, DatabaseOptions};
    use crate::{Result, TikvEngine};

    pub(super) fn check(address: &str) -> Result<String> {
        TikvEngine::check_address(address)
    }

    pub(super) fn open(address: &str, options: DatabaseOptions) -> Result<Box<dyn Database>> {
        Ok(Box::new(TikvEngine::open(address, options)?))
    }
}

#[cfg(not(feature = "tikv"))]
mod tikv {
    use super::{Database, DatabaseOptions};
    use crate::{KvError, Result};

    fn missing() -> KvError {
        let detail = "this program was built without the engine over TiKV: build one that has it (`cargo build --release -p thermo --features tikv`)";
        KvError::Address { detail: detail.into() }
    }

    pub(super) fn check(_address: &str) -> Result<String> {
        Err(missing())
    }

    pub(super) fn open(_address: &str, _options: DatabaseOptions) -> Result<Box<dyn Database>> {
        Err(missing())
    }
}
