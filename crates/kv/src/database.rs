//! Engines whose data is in servers, which an address names.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::postgres::PostgresTurns;
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

    /// Whether this node may go on with it: what it reads and changes counts.
    ///
    /// # Errors
    /// `Taken` if another node has taken over; `Lapsed` if one may, because no sign of life got there in time ([`DatabaseOptions::others_wait`]);
    /// `Rewound` if the server has lost changes.
    fn is_held(&self) -> Result<()>;

    /// How far it certainly is, as this owner knows it.
    fn reached(&self) -> Reached;

    /// The address, without a password.
    fn shown(&self) -> String;
}

/// How far an engine is. One that loses nothing only ever gets further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached {
    /// Raised by everyone who opens the engine.
    pub epoch: u64,
    /// The last transaction of that owner.
    pub number: u64,
}

/// A place in the history of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// How far it is.
    pub reached: Reached,
    /// Name of the node whose opening that is.
    pub owner: String,
}

impl Place {
    /// Whether an engine that is `there` cannot have been here, or not with what was done then.
    pub fn is_lost_at(&self, there: &Self) -> bool {
        let same = there.reached.epoch == self.reached.epoch;
        there.reached < self.reached || same && there.owner != self.owner
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "change {} of opening {} by {}", self.reached.number, self.reached.epoch, self.owner)
    }
}

/// The way to an engine for nodes that take turns with it: each tells the others of itself there, and sees whose turn it is. It locks nothing, so that
/// one that stands still keeps nobody waiting.
pub trait Turns: Send {
    /// Says something of this node, in the place of what it said before, and looks. Where no engine is yet nothing is written.
    ///
    /// # Errors
    /// `Server` if the server refuses or cannot be reached.
    fn tell(&mut self, told: &str) -> Result<Seen>;
}

/// What is seen of an engine from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// None: there is no engine yet.
    pub owner: Option<SeenOwner>,
    /// All who have ever told something.
    pub takers: Vec<Taker>,
}

/// Who has an engine open, or had it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenOwner {
    /// Name of the node.
    pub name: String,
    /// How far it is.
    pub reached: Reached,
    /// Its lease has not ended by the server's clock.
    pub live: bool,
}

/// One who takes turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Taker {
    /// Name of the node.
    pub name: String,
    /// What it told last.
    pub told: String,
    /// How long ago, by the server's clock.
    pub ago: Duration,
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
    /// After this long without a sign of life another node may take over. The engine gives one five times as often.
    pub lease: Duration,
    /// Others wait to take over: from the moment when the lease may have ended, by this host's clock, nothing is read or changed.
    pub others_wait: bool,
    /// How long a server that does not answer is tried again before an operation fails.
    pub patience: Duration,
    /// The engine has been here: one that has not is left as it is (`Rewound`).
    pub has_been: Option<Place>,
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
            others_wait: false,
            patience: Duration::from_secs(30),
            has_been: None,
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

    /// Whether the engine at `path`, which is there now, may be opened.
    pub(crate) fn may_go_on_from(&self, path: PathBuf, there: &Place) -> Result<()> {
        match &self.has_been {
            Some(known) if known.is_lost_at(there) => {
                Err(KvError::Rewound { path, detail: format!("it is at {there} and was at {known}") })
            }
            _ => Ok(()),
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

/// The way to the engine at `address` for the node called `name`; nothing is asked yet.
///
/// # Errors
/// `Address`, as [`open_database`].
pub fn watch_database(address: &str, name: &str) -> Result<Box<dyn Turns>> {
    match address.starts_with(TIKV) {
        true => tikv::watch(address, name),
        false => Ok(Box::new(PostgresTurns::new(address, name)?)),
    }
}

#[cfg(feature = "tikv")]
mod tikv {
    use super::{Database, DatabaseOptions, Turns};
    use crate::tikv::TikvTurns;
    use crate::{Result, TikvEngine};

    pub(super) fn check(address: &str) -> Result<String> {
        TikvEngine::check_address(address)
    }

    pub(super) fn open(address: &str, options: DatabaseOptions) -> Result<Box<dyn Database>> {
        Ok(Box::new(TikvEngine::open(address, options)?))
    }

    pub(super) fn watch(address: &str, name: &str) -> Result<Box<dyn Turns>> {
        Ok(Box::new(TikvTurns::new(address, name)?))
    }
}

#[cfg(not(feature = "tikv"))]
mod tikv {
    use super::{Database, DatabaseOptions, Turns};
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

    pub(super) fn watch(_address: &str, _name: &str) -> Result<Box<dyn Turns>> {
        Err(missing())
    }
}
