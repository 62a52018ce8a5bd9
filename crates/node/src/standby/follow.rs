//! The standby: a process that has an engine and nothing else, until it takes over.

use super::{Record, Role};
use crate::Config;
use crate::cluster::{directory, member_id};
use crate::engine::{EMBEDDED, class};
use crate::error::failure;
use crate::restore::put_aside;
use crate::startup::{io, patiently, prepare};
use ident::{Acceptor, Credentials};
use kv::standby::{FollowError, Follower, Step};
use kv::{KvError, LmdbOptions};
use parking_lot::{Condvar, Mutex};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId, NodeId};
use wire::{Answer, Call, Channel, Failure, Reply, StandbyAnswer, StandbyStep, StandbyView};

/// Most connections at once, of either kind.
const MAX_CONNECTIONS: usize = 32;
/// Longest step (bytes): the largest batch of an engine with the built-in limits, with room to spare.
const MAX_STEP: u32 = 256 << 20;
/// Lets the answer to who ordered the end get there.
const PARTING: Duration = Duration::from_millis(300);
const PROGRAM: &str = concat!("thermo ", env!("CARGO_PKG_VERSION"));

/// How following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The process was told to stop.
    Stopped,
    /// It serves from now on: start the node.
    TookOver,
}

struct Standby {
    config: Config,
    state: Mutex<Now>,
    changed: Condvar,
    connections: AtomicUsize,
}

struct Now {
    /// None: it has taken over.
    follower: Option<Follower>,
    record: Record,
    parts: Vec<u8>,
    /// When the other node was answered last; at first when this process began, since an earlier answer may be as late as that.
    answered: Instant,
    heard: bool,
    lease: Duration,
    last: u64,
    last_ms: i64,
    ended: Option<Followed>,
}

/// See [`super::is_standby`].
pub(super) fn is_standby(config: &Config) -> Result<bool, Failure> {
    let state = &config.state_dir;
    match Record::read(state)? {
        Some(record) if record.role != Role::Serves => Ok(true),
        Some(record) => Ok(record.replaced_by.is_some() && config.standby.of.is_some()),
        None if config.standby.of.is_none() => Ok(false),
        None if !state.join(EMBEDDED).exists() && !state.join("format").exists() => Ok(true),
        None => {
            let message = format!(
                "standby.of: {} holds the catalogue of a node of its own; a standby begins with an empty state directory (only `thermo cluster join` \
                 comes before)",
                state.display()
            );
            Err(failure(ErrorClass::Invalid, message))
        }
    }
}

/// Follows another node until it is stopped or takes over.
///
/// # Errors
/// The state directory, the engine or the addresses cannot be used.
pub fn follow(config: &Config, stopped: &AtomicBool) -> Result<Followed, Failure> {
    config.validate().map_err(|e| failure(ErrorClass::Invalid, format!("configuration: {e}")))?;
    let state = &config.state_dir;
    let (lock, _) = patiently(|| prepare(state))?;
    let mut record = Record::read(state)?.unwrap_or_default();
    let engine = state.join(EMBEDDED);
    if record.role == Role::Taking {
        finish(&mut record, config)?;
        return Ok(Followed::TookOver);
    }
    if record.role == Role::Serves {
        if record.replaced_by.is_some() && engine.exists() {
            let kept = put_aside(state, &engine, crate::now().secs).map_err(|e| io(state, &e))?;
            tracing::info!("the catalogue from before is kept in {}", kept.display());
        }
        record = Record { role: Role::Follows, epoch: record.epoch, ..Record::default() };
        record.write(state)?;
    }
    let follower = Follower::open(&engine, LmdbOptions::default()).map_err(fail)?;
    let (answered, lease) = (Instant::now(), config.standby.lease());
    let now = Now {
        follower: Some(follower),
        record,
        parts: Vec::new(),
        answered,
        heard: false,
        lease,
        last: 0,
        last_ms: 0,
        ended: None,
    };
    let standby = Arc::new(Standby {
        config: config.clone(),
        state: Mutex::new(now),
        changed: Condvar::new(),
        connections: AtomicUsize::new(0),
    });
    listen(&standby)?;
    tracing::info!("this node is a standby, and follows");
    let followed = standby.wait(stopped);
    std::thread::sleep(PARTING);
    let _ = std::fs::remove_file(config.socket_path()); // the node makes it anew
    standby.state.lock().follower = None;
    drop(lock);
    Ok(followed)
}

fn fail(e: KvError) -> Failure {
    failure(class(&e), e.to_string())
}

/// Makes the engine an ordinary one; also what a crash has interrupted.
fn finish(record: &mut Record, config: &Config) -> Result<(), Failure> {
    let engine = config.state_dir.join(EMBEDDED);
    match Follower::open(&engine, LmdbOptions::default()) {
        Ok(follower) => follower.promote(&engine).map_err(fail)?,
        Err(KvError::Corrupt { .. }) => {} // it is one already; if it is damaged, its opening says so
        Err(e) => return Err(fail(e)),
    }
    // What it was promised was for a standby; it has none of its own yet.
    (record.role, record.promised) = (Role::Serves, false);
    record.write(&config.state_dir)
}

impl Standby {
    fn wait(&self, stopped: &AtomicBool) -> Followed {
        loop {
            let mut now = self.state.lock();
            if let Some(ended) = now.ended {
                return ended;
            }
            self.changed.wait_for(&mut now, Duration::from_millis(100));
            if stopped.load(Ordering::Acquire) {
                now.ended = Some(Followed::Stopped);
            }
        }
    }

    /// One part of a step.
    fn step(&self, order: &StandbyStep) -> Result<StandbyAnswer, Failure> {
        let now = &mut *self.state.lock();
        let state = &self.config.state_dir;
        let Some(follower) = &mut now.follower else {
            return Ok(StandbyAnswer { epoch: now.record.epoch, serves: true, ..StandbyAnswer::default() });
        };
        if order.epoch >= now.record.epoch && now.record.role == Role::Follows {
            if order.epoch > now.record.epoch || order.promise != now.record.promised {
                (now.record.epoch, now.record.promised) = (order.epoch, order.promise);
                now.record.write(state)?;
            }
            (now.last, now.last_ms) = (order.last, order.last_ms);
            now.lease = now.lease.max(Duration::from_millis(order.lease_ms.into()));
            take_part(&mut now.parts, follower, order)?;
            (now.answered, now.heard) = (Instant::now(), true);
        }
        let has = follower.state().clone();
        Ok(StandbyAnswer {
            epoch: now.record.epoch,
            serves: false,
            lineage: has.lineage,
            number: has.number,
            time_ms: has.time_ms,
            copied: has.copied,
        })
    }

    fn take_over(&self, force: bool) -> Result<(), Failure> {
        let now = &mut *self.state.lock();
        let (quiet, of) = (now.answered.elapsed(), self.other());
        let Some(follower) = &now.follower else { return Ok(()) };
        if !follower.state().is_complete() {
            let message = format!(
                "this standby has no complete copy of the catalogue of {of} yet, and cannot take over; nothing was changed"
            );
            return Err(failure(ErrorClass::Busy, message));
        }
        let safe_after = now.lease + now.lease / 2;
        if quiet < safe_after && !force {
            let message = format!(
                "{of} may be alive: it was answered {} s ago{}, and counts as gone after {} s. Stop it, or wait; --force takes over at once, and what it \
                 acknowledges meanwhile may be lost. Nothing was changed",
                quiet.as_secs(),
                if now.heard { "" } else { " or later (this standby was started then)" },
                safe_after.as_secs()
            );
            return Err(failure(ErrorClass::Busy, message));
        }
        if !now.record.promised && !force {
            let message = format!(
                "{of} acknowledges changes without this standby, so its last ones may be missing here: of its batches {} is the last here and {} the \
                 last that it told of. Nothing was changed. If it is lost, take over with --force: what is missing is lost then, and files changed \
                 since are as they were",
                follower.state().number,
                now.last
            );
            return Err(failure(ErrorClass::Busy, message));
        }
        now.record.epoch += 1;
        now.record.role = Role::Taking;
        now.record.write(&self.config.state_dir)?;
        now.follower = None;
        finish(&mut now.record, &self.config)?;
        tracing::warn!("this node takes over from {of}, epoch {}", now.record.epoch);
        now.ended = Some(Followed::TookOver);
        self.changed.notify_all();
        Ok(())
    }

    fn other(&self) -> String {
        self.config.standby.of.map_or("its node".into(), |n| MemberId::Node(NodeId(n)).to_string())
    }

    fn view(&self) -> StandbyView {
        let now = self.state.lock();
        let has = now.follower.as_ref().map(|f| f.state().clone()).unwrap_or_default();
        let behind = if has.number >= now.last { 0 } else { now.last_ms.saturating_sub(has.time_ms) };
        StandbyView {
            standby: true,
            other: self.other(),
            epoch: now.record.epoch,
            complete: has.is_complete(),
            last: now.last,
            number: has.number,
            behind_ms: u64::try_from(behind).unwrap_or(0),
            heard_ms: now.heard.then(|| now.answered.elapsed().as_millis() as u64),
            promised: now.record.promised,
            replaced_by: None,
        }
    }

    /// What people of this host ask.
    fn call(&self, call: Call, administrator: bool) -> Result<Reply, Failure> {
        match call {
            Call::Standby => Ok(Reply::Standby(Box::new(self.view()))),
            Call::StandbyTakeOver { .. } | Call::Down { .. } if !administrator => {
                Err(failure(ErrorClass::Denied, "that is for the administrator, and for who runs this node"))
            }
            Call::StandbyTakeOver { force } => self.take_over(force).map(|()| Reply::Done),
            Call::Down { .. } => {
                self.state.lock().ended = Some(Followed::Stopped);
                self.changed.notify_all();
                Ok(Reply::Done)
            }
            _ => {
                let message = format!(
                    "this node is the standby of {}: it has no files of its own; ask that node, or see `thermo standby status`",
                    self.other()
                );
                Err(failure(ErrorClass::Busy, message))
            }
        }
    }
}

fn take_part(parts: &mut Vec<u8>, follower: &mut Follower, order: &StandbyStep) -> Result<(), Failure> {
    if order.offset == 0 {
        parts.clear();
    }
    if order.offset as usize != parts.len() || order.total > MAX_STEP {
        return Err(failure(ErrorClass::Invalid, "a part of a step for the standby is not the next one"));
    }
    parts.extend(&order.bytes);
    if parts.len() < order.total as usize {
        return Ok(());
    }
    let step = Step::decode(parts);
    parts.clear();
    let step = step.ok_or_else(|| failure(ErrorClass::Corrupt, "a step for the standby is damaged"))?;
    match follower.take(&step) {
        Ok(()) => Ok(()),
        Err(FollowError::Kv(e)) => Err(fail(e)),
        // Its state, which is the answer, says what it needs.
        Err(e) => {
            tracing::warn!("{e}");
            Ok(())
        }
    }
}

fn listen(standby: &Arc<Standby>) -> Result<(), Failure> {
    let config = &standby.config;
    let no_cluster = || {
        let message =
            "a standby belongs to the cluster of the node that it follows: `thermo cluster join` first";
        failure(ErrorClass::Invalid, message)
    };
    let told = |e: ident::IdentError| failure(e.class(), e.to_string());
    let own = Credentials::load(&directory(&config.state_dir)).map_err(told)?.ok_or_else(no_cluster)?;
    let acceptor = Acceptor::new(&own, Arc::default()).map_err(told)?;
    let listen = config.cluster.listen.ok_or_else(no_cluster)?;
    let socket = config.socket_path();
    let fail = |e: std::io::Error| failure(ErrorClass::Invalid, format!("the standby cannot listen: {e}"));
    let _ = std::fs::remove_file(&socket); // of a process that died
    let local = UnixListener::bind(&socket).map_err(fail)?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).map_err(fail)?;
    let remote = TcpListener::bind(listen).map_err(fail)?;
    local.set_nonblocking(true).and_then(|()| remote.set_nonblocking(true)).map_err(fail)?;
    let here = standby.clone();
    let locals = move || {
        while here.goes_on() {
            match local.accept() {
                Ok((stream, _)) => here.serve(move |standby| serve_local(standby, stream)),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    };
    let (there, acceptor) = (standby.clone(), Arc::new(acceptor));
    let remotes = move || {
        while there.goes_on() {
            match remote.accept() {
                Ok((stream, _)) => {
                    let acceptor = acceptor.clone();
                    there.serve(move |standby| serve_remote(standby, &acceptor, stream));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    };
    std::thread::Builder::new().name("accept".into()).spawn(locals).map_err(fail)?;
    std::thread::Builder::new().name("accept-tls".into()).spawn(remotes).map_err(fail)?;
    Ok(())
}

impl Standby {
    fn goes_on(&self) -> bool {
        self.state.lock().ended.is_none()
    }

    fn serve(self: &Arc<Self>, f: impl FnOnce(&Self) + Send + 'static) {
        if self.connections.fetch_add(1, Ordering::AcqRel) >= MAX_CONNECTIONS {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let standby = self.clone();
        let spawned = std::thread::Builder::new().name("connection".into()).spawn(move || {
            f(&standby);
            standby.connections.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            self.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn serve_local(standby: &Standby, stream: UnixStream) {
    let own = rustix::process::geteuid().as_raw();
    let administrator = wire::peer(&stream).is_ok_and(|peer| peer.uid == 0 || peer.uid == own);
    let ready = stream.set_nonblocking(false).is_ok();
    if ready {
        let _ = wire::serve_connection(stream, PROGRAM, &mut |call| {
            standby.call(call, administrator).map(Answer::from)
        });
    }
}

fn serve_remote(standby: &Standby, acceptor: &Acceptor, stream: std::net::TcpStream) {
    let serve = || -> Result<(), String> {
        stream.set_nonblocking(false).map_err(|e| e.to_string())?;
        let stream = acceptor.accept(stream).map_err(|e| e.to_string())?;
        let who = stream.peer().map(|(identity, _)| member_id(identity.role));
        let of = standby.config.standby.of.map(|n| MemberId::Node(NodeId(n)));
        let channel = Channel::over(Box::new(stream), PROGRAM).map_err(|e| e.to_string())?;
        let served = wire::serve_channel(channel, &mut |call| match call {
            Call::StandbyStep(order) if who.is_some() && who == of => {
                standby.step(&order).map(|answer| Reply::StandbyState(Box::new(answer)).into())
            }
            _ => Err(failure(
                ErrorClass::Denied,
                "this is a standby, and listens to the node that it follows only",
            )),
        });
        served.map_err(|e| e.to_string())
    };
    if let Err(e) = serve() {
        tracing::debug!("a connection ended: {e}");
    }
}
