//! Waiting for a turn: a process that has no engine, and takes the database when nobody has it.

use super::pause;
use super::told::{self, Told, Way};
use crate::Config;
use crate::cluster::Own;
use crate::engine::Opened;
use crate::error::{failure, refused};
use crate::standby::kept;
use crate::standby::listen::{Answers, listen_here};
use crate::startup::{patiently, prepare};
use catalog::Catalog;
use kv::{Movable, Seen};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId, NodeId};
use wire::{Call, Failure, Reply, TurnState, TurnsView};

/// Between two times that what is needed besides the catalogue is fetched.
const FETCH: Duration = Duration::from_secs(30);
/// After so long it is worth saying that the database has not answered.
const SILENT: Duration = Duration::from_secs(3);
/// Lets the answer to who ordered the end get there.
const PARTING: Duration = Duration::from_millis(300);

/// How waiting ended.
pub enum Waited {
    /// The process was told to stop.
    Stopped,
    /// It is this node's turn: start it.
    Turn(Turn),
}

/// The engine, held by this node from now on.
pub struct Turn {
    engine: Arc<Movable<Opened>>,
    /// Who else there is, as it was seen last.
    seen: Seen,
}

impl Turn {
    /// Who else there is.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// Objects of this node's disk tier that are made from now on must not be taken for those of another's.
    pub(crate) fn begin(self) -> Result<Arc<Movable<Opened>>, Failure> {
        let settle = || {
            let catalog = Catalog::open(self.engine.clone(), crate::now())?;
            catalog.skip_objects(crate::now())?;
            catalog.turn_above(catalog.turn()?)?;
            catalog.sync()
        };
        settle().map_err(|e| refused("taking over", &e))?;
        Ok(self.engine)
    }
}

struct Waiting {
    config: Config,
    lease: Duration,
    now: Mutex<Now>,
    begun: Instant,
    /// Somebody has had the database while this process looked.
    had_owner: AtomicBool,
    ended: AtomicBool,
}

#[derive(Default)]
struct Now {
    seen: Seen,
    trouble: Option<String>,
    lacks: Option<String>,
    /// When the others had what is needed besides the catalogue.
    fetched: Option<Instant>,
}

/// Waits until no other node has the database, and takes it. What is needed besides it is fetched from the one that serves meanwhile.
///
/// # Errors
/// The state directory, the configuration or the database cannot be used.
pub fn wait_for_turn(config: &Config, stopped: &AtomicBool) -> Result<Waited, Failure> {
    config.validate().map_err(|e| failure(ErrorClass::Invalid, format!("configuration: {e}")))?;
    let state = &config.state_dir;
    let (lock, fresh) = patiently(|| prepare(state))?;
    let lease = config.turn().unwrap_or_default();
    let now = Mutex::new(Now { lacks: Some("it was started a moment ago".into()), ..Now::default() });
    let ended = AtomicBool::new(false);
    let waiting = Arc::new(Waiting {
        config: config.clone(),
        lease,
        now,
        begun: Instant::now(),
        had_owner: AtomicBool::new(false),
        ended,
    });
    let waited = waiting.wait(stopped, fresh);
    waiting.ended.store(true, Ordering::Release);
    drop(lock); // the node takes it anew
    waited
}

impl Waiting {
    fn wait(self: &Arc<Self>, stopped: &AtomicBool, fresh: bool) -> Result<Waited, Failure> {
        let (mut way, since) = (Way::of(&self.config)?, crate::now().secs);
        listen_here(self.clone(), &self.config)?;
        let mut said = false;
        loop {
            if let Some(turn) = self.look(&mut way, since, fresh)? {
                if kept::is_complete(&self.config.state_dir) {
                    kept::install(&self.config.state_dir)?;
                }
                tracing::info!("it is this node's turn");
                return Ok(Waited::Turn(turn));
            }
            if !std::mem::replace(&mut said, true) {
                tracing::info!("this node waits for its turn with the database");
            }
            if stopped.load(Ordering::Acquire) || self.ended.load(Ordering::Acquire) {
                std::thread::sleep(PARTING);
                let _ = std::fs::remove_file(self.config.socket_path()); // the next start does it otherwise
                return Ok(Waited::Stopped);
            }
            std::thread::sleep(pause(self.lease));
        }
    }

    /// Tells the others, and takes the database if it may.
    fn look(&self, way: &mut Way, since: i64, fresh: bool) -> Result<Option<Turn>, Failure> {
        let own = crate::cluster::own(&self.config.state_dir)?;
        let lacks = self.now.lock().lacks.clone();
        let member = own.as_ref().and_then(Own::number);
        let told = Told { member, lacks, ..Told::of(&self.config, since) };
        let seen = match way.tell(&told) {
            Ok(seen) => seen,
            Err(e) if e.class == ErrorClass::Retry => {
                self.trouble(e);
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let owner = seen.owner.clone();
        self.had_owner.fetch_or(owner.is_some(), Ordering::AcqRel);
        self.now.lock().seen = seen.clone();
        let lacks = self.fetch(own.as_ref(), &way.name);
        if let Some(why) = lacks.as_ref().filter(|why| self.now.lock().lacks.as_ref() != Some(why)) {
            tracing::warn!("this node cannot serve yet: {why}");
        }
        self.now.lock().lacks.clone_from(&lacks);
        if owner.as_ref().is_some_and(|owner| owner.live) || lacks.is_some() {
            self.now.lock().trouble = None;
            return Ok(None);
        }
        // Where tables are missing that others have used (a dump is being restored) no new catalogue begins.
        let first = own.is_none() && !kept::is_complete(&self.config.state_dir);
        let create = fresh && first && !self.had_owner.load(Ordering::Acquire);
        match crate::engine::open(&self.config, create, None, None) {
            Ok(engine) => Ok(Some(Turn { engine, seen })),
            Err(e) if matches!(e.class, ErrorClass::Retry | ErrorClass::Busy | ErrorClass::NotFound) => {
                self.trouble(e);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn trouble(&self, e: Failure) {
        let mut now = self.now.lock();
        if now.trouble.as_ref() != Some(&e.message) {
            tracing::warn!("{e}; it is tried on");
        }
        now.trouble = Some(e.message);
    }

    /// Fetches from the node that serves what is not in the catalogue. What is missing, if this node could not serve without it.
    fn fetch(&self, own: Option<&Own>, name: &str) -> Option<String> {
        let server = self.server(name);
        let Some(own) = own else {
            let why =
                "the node that serves belongs to a cluster, and this one does not: `thermo cluster join`";
            return server.and_then(|server| server.member).map(|_| why.into());
        };
        let has = own.credentials.authority_key.is_some() || kept::is_complete(&self.config.state_dir);
        let due = {
            let now = self.now.lock();
            // One that may be gone is not waited for by a node that has what it needs.
            let live = now.seen.owner.as_ref().is_some_and(|owner| owner.live);
            (live || !has) && now.fetched.is_none_or(|at| at.elapsed() >= FETCH)
        };
        if let (true, Some(server)) = (due, &server) {
            match self.fetch_now(own, server) {
                Ok(()) => self.now.lock().fetched = Some(Instant::now()),
                Err(e) => tracing::debug!("what is needed to serve the cluster is not fetched: {e}"),
            }
        }
        let has = own.credentials.authority_key.is_some() || kept::is_complete(&self.config.state_dir);
        let from = server.map_or_else(String::new, |server| format!(" at {}", server.addresses.join(" ")));
        (!has)
            .then(|| format!("the keys of the cluster were not fetched yet from the node that serves{from}"))
    }

    /// What the other node told that has, or had, the database.
    fn server(&self, name: &str) -> Option<Told> {
        let Seen { owner, takers } = &self.now.lock().seen;
        let owner = owner.as_ref().filter(|owner| owner.name != name)?;
        takers.iter().find(|taker| taker.name == owner.name).map(|taker| Told::read(&taker.told))
    }

    fn fetch_now(&self, own: &Own, server: &Told) -> Result<(), Failure> {
        let whom = server.member.map(|number| MemberId::Node(NodeId(number)));
        match own.ask(&server.addresses, whom, &Call::TurnKept)? {
            Reply::Kept(files) => kept::keep(&self.config.state_dir, &files),
            _ => Err(failure(ErrorClass::Bug, "keys were asked for, and something else came")),
        }
    }

    fn view(&self) -> TurnsView {
        let now = self.now.lock();
        let silent = now.seen.owner.is_none() && self.begun.elapsed() > SILENT;
        let trouble = || silent.then(|| "the database has not answered yet".to_owned());
        let trouble = now.trouble.clone().or_else(trouble);
        TurnsView { trouble, ..told::view(&now.seen, self.lease, true) }
    }
}

impl Answers for Waiting {
    fn goes_on(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// What people of this host ask.
    fn answer(&self, call: Call, administrator: bool) -> Result<Reply, Failure> {
        match call {
            Call::Turns => Ok(Reply::Turns(Box::new(self.view()))),
            Call::Down { .. } if !administrator => {
                Err(failure(ErrorClass::Denied, "that is for the administrator, and for who runs this node"))
            }
            Call::Down { .. } => {
                self.ended.store(true, Ordering::Release);
                Ok(Reply::Done)
            }
            _ => {
                let view = self.view();
                let served = view.nodes.iter().find(|node| node.state == TurnState::Serves).map_or_else(
                    || "no other node serves now".into(),
                    |node| format!("the names are at {} ({})", node.host, node.addresses.join(" ")),
                );
                let message = format!(
                    "this node waits for its turn: {served}; ask there, or see `thermo cluster status`"
                );
                Err(failure(ErrorClass::Busy, message))
            }
        }
    }
}
