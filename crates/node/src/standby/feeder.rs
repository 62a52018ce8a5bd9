//! The end that is followed: what is asked before a node starts, and the thread that brings batches to the standby.

use super::{Record, Role};
use crate::Config;
use crate::cluster::directory;
use crate::error::failure;
use crate::startup::io;
use ident::{Connector, Credentials};
use kv::LmdbEngine;
use kv::standby::{Away, Feed, FeedOptions, Mode, Sender, State, Step};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::ErrorClass;
use wire::{Call, Channel, Failure, MAX_PART, Reply, StandbyAnswer, StandbyStep, StandbyView, WireError};

/// Between two attempts to reach the standby.
const PAUSE: Duration = Duration::from_millis(300);
/// Longest silence while the standby has everything.
const BEAT: Duration = Duration::from_secs(1);
const PROGRAM: &str = concat!("thermo ", env!("CARGO_PKG_VERSION"));

/// What a node needs that has a standby.
pub(crate) struct Prepared {
    pub(crate) feed: Arc<Feed>,
    connector: Connector,
    record: Record,
}

/// Looks whether this node may serve, and asks its standby. None: it has none.
///
/// # Errors
/// Another node serves in its place; or that cannot be known.
pub(crate) fn before_start(config: &Config) -> Result<Option<Prepared>, Failure> {
    let state = &config.state_dir;
    let record = Record::read(state)?.unwrap_or_default();
    if let Some(by) = &record.replaced_by {
        return Err(replaced(by));
    }
    let settings = &config.standby;
    if settings.to.is_empty() {
        return if record.promised && record.role == Role::Serves { Err(abandoned(state)) } else { Ok(None) };
    }
    let credentials =
        Credentials::load(&directory(&config.state_dir)).map_err(|e| failure(e.class(), e.to_string()))?;
    let credentials = credentials.ok_or_else(|| {
        let message = "standby.to: this node belongs to no cluster yet: start it without [standby], make one (`thermo cluster init`), let the \
                       standby join it, and start it again with [standby]";
        failure(ErrorClass::Invalid, message)
    })?;
    let connector = Connector::member(&credentials).map_err(|e| failure(e.class(), e.to_string()))?;
    let feed = Arc::new(Feed::new(FeedOptions {
        lineage: lineage(&state.join(crate::engine::EMBEDDED))?,
        mode: settings.mode(),
        patience: settings.patience(),
        lease: settings.lease(),
        armed: record.promised,
        clock_ms: || crate::moment::milliseconds(crate::now()),
    }));
    let mut prepared = Prepared { feed, connector, record };
    prepared.ask(config)?;
    Ok(Some(prepared))
}

impl Prepared {
    /// Whether the standby has taken over; and it hears it if nothing is promised any more.
    fn ask(&mut self, config: &Config) -> Result<(), Failure> {
        let promised = self.record.promised;
        self.record.promised &= config.standby.mode() == Mode::Wait(Away::Refuse);
        let link = Link::to(&self.connector, config);
        match link.and_then(|mut link| link.exchange(&Step::Idle, &self.record, &self.feed, config)) {
            Ok(answer) => {
                if let Some(by) = taken(&answer, &self.record, config) {
                    note_replaced(&mut self.record, &config.state_dir, answer.epoch, &by)?;
                    return Err(replaced(&by));
                }
                if promised != self.record.promised {
                    self.record.write(&config.state_dir)?;
                }
                Ok(())
            }
            Err(e) if promised => {
                let message = format!(
                    "the standby does not answer ({e}), and this node has promised to acknowledge nothing without it: whether it has taken over is not \
                     known. Start it (`thermo up` there), then this one; `thermo standby status` on both tells more"
                );
                Err(failure(ErrorClass::Retry, message))
            }
            Err(e) => {
                tracing::warn!("the standby does not answer yet: {e}");
                Ok(())
            }
        }
    }

    /// Begins to bring batches of the engine to the standby.
    pub(crate) fn start(self, engine: Arc<LmdbEngine>, config: &Config) -> Result<Feeding, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, feed, config) = (stop.clone(), self.feed.clone(), config.clone());
        let mut feeder = Feeder { engine, stop: stopped, config, prepared: self };
        let thread = std::thread::Builder::new().name("standby".into()).spawn(move || feeder.run());
        let thread =
            thread.map_err(|e| failure(ErrorClass::NoSpace, format!("no thread for the standby: {e}")))?;
        Ok(Feeding { feed, stop, thread: Some(thread) })
    }
}

/// The thread that brings batches to the standby, until it is dropped.
pub(crate) struct Feeding {
    pub(crate) feed: Arc<Feed>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has said in the log what went wrong
        }
    }
}

impl Feeding {
    pub(crate) fn view(&self, config: &Config) -> Result<StandbyView, Failure> {
        let health = self.feed.health();
        let standby = health.standby.unwrap_or_default();
        let behind = if health.in_step { 0 } else { health.last_ms.saturating_sub(standby.time_ms) };
        Ok(StandbyView {
            standby: false,
            other: config.standby.to.join(" "),
            epoch: super::epoch(config)?,
            complete: standby.is_complete(),
            last: health.last,
            number: standby.number,
            behind_ms: u64::try_from(behind).unwrap_or(0),
            heard_ms: health.heard.map(|d| d.as_millis() as u64),
            promised: health.armed,
            replaced_by: health.taken,
        })
    }

    /// What an operator should look at.
    pub(crate) fn warning(&self, config: &Config) -> Option<String> {
        let health = self.feed.health();
        if let Some(by) = &health.taken {
            return Some(replaced(by).message);
        }
        let silent = health.heard.is_none_or(|ago| ago > config.standby.lease());
        let heard =
            health.heard.map_or("not since the start".into(), |ago| format!("{} s ago", ago.as_secs()));
        let what = match (silent, health.armed, health.in_step) {
            (true, true, _) => "changes are refused until it answers",
            (true, false, _) => "it lacks what changes now",
            (false, _, true) => return None,
            (false, ..) if health.standby.as_ref().is_some_and(State::is_complete) => return None,
            (false, ..) => "it is being copied to, and cannot take over yet",
        };
        let to = config.standby.to.join(" ");
        Some(format!(
            "the standby {to} answered last {heard}: {what}; see `thermo standby status` here and there"
        ))
    }
}

struct Feeder {
    engine: Arc<LmdbEngine>,
    stop: Arc<AtomicBool>,
    config: Config,
    prepared: Prepared,
}

impl Feeder {
    fn run(&mut self) {
        let mut silent = false;
        while !self.stop.load(Ordering::Acquire) {
            match self.lead() {
                Ok(()) => return,
                Err(e) if !silent => tracing::warn!("the standby is not fed: {e}; it is tried on"),
                Err(e) => tracing::debug!("the standby is not fed: {e}"),
            }
            silent = true;
            std::thread::sleep(PAUSE);
        }
    }

    /// Over one connection; Ok: there is nothing more to be done.
    fn lead(&mut self) -> Result<(), Failure> {
        let Prepared { feed, connector, record } = &mut self.prepared;
        let mut link = Link::to(connector, &self.config)?;
        let mut sender = Sender::new(&self.engine, feed.clone());
        let mut step = Step::Idle;
        while !self.stop.load(Ordering::Acquire) {
            let sent = Instant::now();
            let answer = link.exchange(&step, record, feed, &self.config)?;
            if let Some(by) = taken(&answer, record, &self.config) {
                note_replaced(record, &self.config.state_dir, answer.epoch, &by)?;
                feed.taken_over(&by);
                tracing::error!("{}", replaced(&by));
                return Ok(());
            }
            if answer.serves {
                let message =
                    format!("the node at {} is no standby, it serves", self.config.standby.to.join(" "));
                return Err(failure(ErrorClass::Invalid, message));
            }
            let state = state_of(answer);
            feed.answered(&state, sent);
            let health = feed.health();
            if feed.mode() == Mode::Wait(Away::Refuse) && health.in_step && !health.armed {
                record.promised = true;
                record.write(&self.config.state_dir)?;
                feed.arm();
                tracing::info!("the standby has everything: from now on nothing is acknowledged without it");
            }
            let fail = |e: kv::KvError| failure(crate::engine::class(&e), e.to_string());
            step = sender.next(&state).map_err(fail)?;
            if step == Step::Idle {
                feed.wait_behind(state.number, BEAT.min(self.config.standby.lease() / 4));
                step = sender.next(&state).map_err(fail)?;
            }
        }
        Ok(())
    }
}

fn state_of(answer: StandbyAnswer) -> State {
    let StandbyAnswer { lineage, number, time_ms, copied, .. } = answer;
    State { lineage, number, time_ms, copied }
}

/// Who serves in the place of this node, if that is what the answer says.
fn taken(answer: &StandbyAnswer, record: &Record, config: &Config) -> Option<String> {
    (answer.epoch > record.epoch).then(|| format!("the node at {}", config.standby.to.join(" ")))
}

fn note_replaced(record: &mut Record, state: &Path, epoch: u64, by: &str) -> Result<(), Failure> {
    (record.epoch, record.replaced_by, record.promised) = (epoch, Some(by.into()), false);
    record.write(state)
}

fn replaced(by: &str) -> Failure {
    let message = format!(
        "{by} has taken over from this node, and serves its catalogue: this one must not. Nothing was changed. To make it the standby of that node, \
         say so in its configuration ([standby] of = NUMBER, without `to`) and start it; its catalogue is kept beside"
    );
    failure(ErrorClass::Denied, message)
}

fn abandoned(state: &Path) -> Failure {
    let message = format!(
        "this node has promised its standby to acknowledge nothing without it, and the configuration names none any more (standby.to): the \
         standby could take over beside it. Put the line back; to give the standby up, set mode = \"follow\" and start this node once while the \
         standby runs, or, if the standby is destroyed for good, remove {}",
        state.join(super::NAME).display()
    );
    failure(ErrorClass::Invalid, message)
}

/// The name of the history of an engine: made anew with each engine, since a restored one lies in a new directory.
fn lineage(engine: &Path) -> Result<[u8; 16], Failure> {
    let file = engine.join("lineage");
    let fail = |e: std::io::Error| io(engine, &e);
    if let Ok(text) = std::fs::read_to_string(&file)
        && let Ok(known) = text.trim().parse::<uuid::Uuid>()
    {
        return Ok(*known.as_bytes());
    }
    let new = uuid::Uuid::new_v4();
    std::fs::create_dir_all(engine).map_err(fail)?;
    std::fs::write(&file, format!("{new}\n")).map_err(fail)?;
    std::fs::File::open(&file).and_then(|f| f.sync_all()).map_err(fail)?;
    Ok(*new.as_bytes())
}

/// A connection to the standby.
struct Link {
    channel: Channel,
    calls: u64,
}

impl Link {
    fn to(connector: &Connector, config: &Config) -> Result<Self, Failure> {
        let mut last = failure(ErrorClass::Invalid, "no address of the standby is known (standby.to)");
        for address in &config.standby.to {
            match Self::at(connector, address, config.standby.lease()) {
                Ok(link) => return Ok(link),
                Err(e) => last = failure(e.class, format!("{address}: {}", e.message)),
            }
        }
        Err(last)
    }

    fn at(connector: &Connector, address: &str, patience: Duration) -> Result<Self, Failure> {
        let stream = connector.connect(address).map_err(|e| failure(e.class(), e.to_string()))?;
        let limit = stream.socket().set_read_timeout(Some(patience));
        limit.and_then(|()| stream.socket().set_write_timeout(Some(patience))).map_err(|e| lost(e.into()))?;
        let channel = Channel::over(Box::new(stream), PROGRAM).map_err(lost)?;
        Ok(Self { channel, calls: 0 })
    }

    /// Brings a step there, in parts, and returns what the last one is answered with.
    fn exchange(
        &mut self,
        step: &Step,
        record: &Record,
        feed: &Feed,
        config: &Config,
    ) -> Result<StandbyAnswer, Failure> {
        let bytes = step.encode();
        let health = feed.health();
        let mut offset = 0;
        loop {
            let part = &bytes[offset..bytes.len().min(offset + MAX_PART)];
            let call = StandbyStep {
                epoch: record.epoch,
                lease_ms: config.standby.lease().as_millis() as u32,
                promise: record.promised,
                last: health.last,
                last_ms: health.last_ms,
                offset: offset as u32,
                total: bytes.len() as u32,
                bytes: part.to_vec(),
            };
            offset += part.len();
            self.calls += 1;
            self.channel.send_call(self.calls, &Call::StandbyStep(call)).map_err(lost)?;
            let answer = match self.channel.receive_result().map_err(lost)?.result? {
                Reply::StandbyState(answer) => *answer,
                _ => return Err(failure(ErrorClass::Bug, "a standby was fed, and something else answered")),
            };
            if offset >= bytes.len() || answer.epoch > record.epoch {
                return Ok(answer);
            }
        }
    }
}

fn lost(e: WireError) -> Failure {
    failure(e.class(), e.to_string())
}
