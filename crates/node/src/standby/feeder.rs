//! The end that is followed: what is asked before a node starts, and the thread that brings batches to the standby.

use super::ledger::{NAME, Role};
use super::link::Link;
use super::{Ledger, kept};
use crate::Config;
use crate::error::failure;
use crate::startup::io;
use kv::standby::{Away, Feed, FeedOptions, Mode, Sender, State, Step};
use kv::{KvError, LmdbEngine};
use parking_lot::Mutex;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::ErrorClass;
use wire::{Failure, KeptFile, StandbyAnswer, StandbyPromise, StandbyView};

/// Between two attempts to reach the standby.
const PAUSE: Duration = Duration::from_millis(300);
/// Longest silence while the standby has everything.
const BEAT: Duration = Duration::from_secs(1);

/// What a node needs that has a standby.
pub(crate) struct Prepared {
    pub(crate) feed: Arc<Feed>,
    ledger: Arc<Ledger>,
    /// What the standby has said, and when it was asked.
    heard: Option<(State, Instant)>,
}

/// Looks whether this node may serve, and asks its standby. None: it has none.
///
/// # Errors
/// Another node serves in its place; or that cannot be known.
pub(crate) fn before_start(config: &Config, ledger: &Arc<Ledger>) -> Result<Option<Prepared>, Failure> {
    let state = &config.state_dir;
    let record = ledger.get();
    if let Some(by) = &record.replaced_by {
        return Err(replaced(by, state));
    }
    let settings = &config.standby;
    if settings.to.is_empty() {
        let promised = record.promise.is_some() && record.role == Role::Serves;
        return if promised { Err(abandoned(state)) } else { Ok(None) };
    }
    let lineage = lineage(&state.join(crate::engine::EMBEDDED))?;
    // One that was made for a catalogue that is not there any more (a backup was restored) is taken back, like one that the settings do without.
    let keeps = settings.mode() == Mode::Wait(Away::Refuse);
    let promise = record.promise.filter(|promise| keeps && promise.lineage == lineage);
    let feed = Arc::new(Feed::new(FeedOptions {
        lineage,
        mode: settings.mode(),
        patience: settings.patience(),
        lease: settings.lease(),
        armed: promise.is_some(),
        clock_ms: || crate::moment::milliseconds(crate::now()),
    }));
    let mut prepared = Prepared { feed, ledger: ledger.clone(), heard: None };
    prepared.ask(config, promise.as_ref())?;
    // It has a standby of its own now: `of` is from the time before.
    ledger.change(|r| (r.of, r.promise) = (None, promise))?;
    Ok(Some(prepared))
}

impl Prepared {
    /// Whether the standby has taken over; and it hears it if it is promised nothing any more.
    fn ask(&mut self, config: &Config, promise: Option<&StandbyPromise>) -> Result<(), Failure> {
        let promised = self.ledger.get().promise.is_some();
        match self.reach(config, promise) {
            Ok(heard) => self.heard = Some(heard),
            Err(e) if e.class == ErrorClass::Denied => return Err(e),
            Err(e) if promised => {
                let message = format!(
                    "the standby cannot be asked ({e}), and this node has promised to acknowledge nothing without it: whether it has taken over is not \
                     known. Start it (`thermo up` there), then this one; `thermo standby status` on both tells more"
                );
                return Err(failure(ErrorClass::Retry, message));
            }
            Err(e) => tracing::warn!("the standby does not answer yet: {e}"),
        }
        Ok(())
    }

    fn reach(&self, config: &Config, promise: Option<&StandbyPromise>) -> Result<(State, Instant), Failure> {
        let mut link = Link::to(config, &self.ledger.get())?;
        loop {
            let sent = Instant::now();
            let told = (self.ledger.get().epoch, promise);
            let answer = link.exchange(&Step::Idle, told, &self.feed, config)?;
            if let Some(state) = hear(answer, link.node, &self.ledger, &self.feed, config)? {
                return Ok((state, sent));
            }
        }
    }

    /// Begins to bring batches of the engine to the standby. One that nothing is acknowledged without has everything when this returns.
    ///
    /// # Errors
    /// The standby has what is not here, or lacks what it needs to have, and does not answer.
    pub(crate) fn start(self, engine: Arc<LmdbEngine>, config: &Config) -> Result<Feeding, Failure> {
        if let Some((state, sent)) = &self.heard {
            self.feed.answered(state, *sent);
        }
        let (stop, socket) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let feed = self.feed.clone();
        let feeder = Feeder {
            engine,
            stop: stop.clone(),
            socket: socket.clone(),
            config: config.clone(),
            feed: self.feed,
            ledger: self.ledger,
        };
        let thread = std::thread::Builder::new().name("standby".into()).spawn(move || feeder.run());
        let thread =
            thread.map_err(|e| failure(ErrorClass::NoSpace, format!("no thread for the standby: {e}")))?;
        let feeding = Feeding { feed, stop, socket, thread: Some(thread) };
        feeding.wait_until_armed(config)?;
        Ok(feeding)
    }
}

/// The thread that brings batches to the standby, until it is dropped.
pub(crate) struct Feeding {
    feed: Arc<Feed>,
    stop: Arc<AtomicBool>,
    socket: Arc<Mutex<Option<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.feed.stop();
        if let Some(socket) = &*self.socket.lock() {
            let _ = socket.shutdown(Shutdown::Both); // it may be gone already
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has said in the log what went wrong
        }
    }
}

impl Feeding {
    /// The first changes of a node need its standby: a whole copy may have to be brought there first, if that was made anew.
    fn wait_until_armed(&self, config: &Config) -> Result<(), Failure> {
        let (begin, mut told) = (Instant::now(), false);
        loop {
            let health = self.feed.health();
            if let Some(there) = health.ahead {
                let path = config.state_dir.join(crate::engine::EMBEDDED);
                let older = KvError::Older { path, here: health.last, there };
                return Err(failure(ErrorClass::Denied, older.to_string()));
            }
            if let Some(by) = &health.taken {
                return Err(replaced(by, &config.state_dir));
            }
            if !health.armed || health.in_step {
                return Ok(());
            }
            let silent = health.heard.map_or(begin.elapsed(), |ago| ago.min(begin.elapsed()));
            if silent > config.standby.lease() + config.standby.patience() {
                let message = "the standby answered, and does not any more; nothing is acknowledged without it. See that it runs, and start this node again";
                return Err(failure(ErrorClass::Retry, message));
            }
            if !told && begin.elapsed() > BEAT {
                told = true;
                tracing::warn!(
                    "the standby lacks changes, and this node acknowledges nothing without it: it starts when the standby has them"
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

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

    /// Whether another node has taken over.
    pub(crate) fn is_replaced(&self) -> bool {
        self.feed.health().taken.is_some()
    }

    /// What an operator should look at.
    pub(crate) fn warning(&self, config: &Config) -> Option<String> {
        let health = self.feed.health();
        if let Some(by) = &health.taken {
            return Some(replaced(by, &config.state_dir).message);
        }
        if let Some(there) = health.ahead {
            let path = config.state_dir.join(crate::engine::EMBEDDED);
            return Some(KvError::Older { path, here: health.last, there }.to_string());
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
    /// Of the present connection.
    socket: Arc<Mutex<Option<TcpStream>>>,
    config: Config,
    feed: Arc<Feed>,
    ledger: Arc<Ledger>,
}

impl Feeder {
    fn run(&self) {
        let mut said = false;
        while !self.stop.load(Ordering::Acquire) {
            match self.lead(&mut said) {
                Ok(()) => return,
                // Until this is written down it is tried on.
                Err(e) if self.ledger.get().replaced_by.is_some() => return tracing::error!("{e}"),
                Err(e) if !said => tracing::warn!("the standby is not fed: {e}; it is tried on"),
                Err(e) => tracing::debug!("the standby is not fed: {e}"),
            }
            said = true;
            std::thread::sleep(PAUSE);
        }
    }

    /// Over one connection, until this is stopped. As soon as the standby answers, its next silence is worth saying.
    fn lead(&self, said: &mut bool) -> Result<(), Failure> {
        let (feed, ledger, config) = (&self.feed, &self.ledger, &self.config);
        let mut link = Link::to(config, &ledger.get())?;
        *self.socket.lock() = link.socket.try_clone().ok();
        let mut sender = Sender::new(&self.engine, feed.clone());
        let mut step = Step::Idle;
        let mut kept = Kept::default();
        while !self.stop.load(Ordering::Acquire) {
            let sent = Instant::now();
            let record = ledger.get();
            let answer = link.exchange(&step, (record.epoch, record.promise.as_ref()), feed, config)?;
            let Some(state) = hear(answer, link.node, ledger, feed, config)? else { continue };
            kept.bring(&mut link, &config.state_dir, record.promise.is_some())?;
            let was_ahead = feed.health().ahead.is_some();
            feed.answered(&state, sent);
            *said = false;
            let health = feed.health();
            if let (Some(there), false) = (health.ahead, was_ahead) {
                let path = config.state_dir.join(crate::engine::EMBEDDED);
                tracing::error!("{}", KvError::Older { path, here: health.last, there });
            }
            if feed.mode() == Mode::Wait(Away::Refuse) && health.in_step && record.promise.is_none() {
                let promise = StandbyPromise { lineage: feed.lineage(), from: feed.arm() };
                ledger.change(|r| r.promise = Some(promise))?;
                tracing::info!("the standby has everything: from now on nothing is acknowledged without it");
            }
            let fail = |e: KvError| failure(crate::engine::class(&e), e.to_string());
            step = sender.next(&state).map_err(fail)?;
            if step == Step::Idle {
                feed.wait_behind(state.number, BEAT.min(config.standby.lease() / 4));
                step = sender.next(&state).map_err(fail)?;
            }
        }
        Ok(())
    }
}

/// What the standby of this connection has of the files that it needs.
#[derive(Default)]
struct Kept {
    looked: Option<Instant>,
    there: Option<Vec<KeptFile>>,
    said: bool,
}

impl Kept {
    /// Brings them when they have changed. Nothing may be promised before it has them; later, what is promised goes on without the newest.
    fn bring(&mut self, link: &mut Link, state: &Path, promised: bool) -> Result<(), Failure> {
        if self.looked.is_some_and(|looked| looked.elapsed() < BEAT) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        match self.bring_now(link, state) {
            Err(e) if !promised => return Err(e),
            Err(e) if !self.said => {
                tracing::warn!(
                    "the standby cannot get what it needs beside the catalogue: {e}; it is tried on"
                );
                self.said = true;
            }
            Err(_) => {}
            Ok(()) => self.said = false,
        }
        Ok(())
    }

    fn bring_now(&mut self, link: &mut Link, state: &Path) -> Result<(), Failure> {
        let now = kept::gather(state, false)?;
        if self.there.as_ref() != Some(&now) {
            link.keep(now.clone())?;
            self.there = Some(now);
        }
        Ok(())
    }
}

/// What the node at the other end has said: what it has, or (None) that it is to be asked again. Who it is, is written down before it gets anything.
///
/// # Errors
/// `Denied`: it serves in the place of this node, which accepts nothing any more. Others: it is no standby of this node.
fn hear(
    answer: Result<StandbyAnswer, Failure>,
    node: u32,
    ledger: &Ledger,
    feed: &Feed,
    config: &Config,
) -> Result<Option<State>, Failure> {
    let record = ledger.get();
    let at = format!("node {node} at {}", config.standby.to.join(" "));
    let is_known = record.standby == Some(node);
    let give_way = |by: String, epoch: u64| {
        feed.taken_over(&by); // first: whatever becomes of the record
        // Where it asks for new certificates as a standby of that one.
        if let Err(e) = ident::Credentials::keep_addresses(
            &crate::cluster::directory(&config.state_dir),
            &config.standby.to,
        ) {
            tracing::warn!("where the namespace is to be had now is not written down: {e}");
        }
        ledger.change(|r| {
            (r.epoch, r.replaced_by, r.promise) = (r.epoch.max(epoch), Some(by.clone()), None);
        })?;
        Err(replaced(&by, &config.state_dir))
    };
    let answer = match answer {
        Ok(answer) => answer,
        // It listens to others, or has removed this node: it went on without it.
        Err(said) if said.class == ErrorClass::Denied && is_known => {
            return give_way(format!("{at} (it says: {said})"), record.epoch);
        }
        Err(said) => return Err(failure(ErrorClass::Retry, format!("{at} says: {said}"))),
    };
    if answer.serves && answer.epoch > record.epoch && is_known {
        return give_way(at, answer.epoch);
    }
    if answer.serves {
        let message = format!("{at} is no standby, it serves; is standby.to right?");
        return Err(failure(ErrorClass::Invalid, message));
    }
    if answer.epoch > record.epoch || !is_known {
        ledger.change(|r| (r.epoch, r.standby) = (r.epoch.max(answer.epoch), Some(node)))?;
        return Ok(None);
    }
    let StandbyAnswer { lineage, number, time_ms, copied, .. } = answer;
    Ok(Some(State { lineage, number, time_ms, copied }))
}

fn replaced(by: &str, state: &Path) -> Failure {
    let message = format!(
        "{by} has taken over from this node, and serves its catalogue: this one must not. Nothing was changed. To make it the standby of that node, \
         say so in its configuration ([standby] of = NUMBER, without `to`) and start it; its catalogue is kept beside. Only if you know that nobody serves \
         this catalogue: remove the line `replaced_by` from {}",
        state.join(NAME).display()
    );
    failure(ErrorClass::Denied, message)
}

fn abandoned(state: &Path) -> Failure {
    let message = format!(
        "this node has promised its standby to acknowledge nothing without it, and the configuration names none any more (standby.to): the \
         standby could take over beside it. Put the line back; to give the standby up, set mode = \"follow\" and start this node once while the \
         standby runs, or, if the standby is destroyed for good, remove {}",
        state.join(NAME).display()
    );
    failure(ErrorClass::Invalid, message)
}

/// The name of the history of an engine: made anew with each engine, since a restored one lies in a new directory.
fn lineage(engine: &Path) -> Result<[u8; 16], Failure> {
    let file = engine.join("lineage");
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let known = text.trim().parse::<uuid::Uuid>().map_err(|e| {
                let message = format!(
                    "{} names no history of the engine: {e}; bring it back from a copy of the state directory, or remove it: the standby then \
                     copies everything anew",
                    file.display()
                );
                failure(ErrorClass::Corrupt, message)
            })?;
            return Ok(*known.as_bytes());
        }
        // Another name would make the standby begin anew, over a good copy.
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(&file, &e)),
        Err(_) => {}
    }
    let new = uuid::Uuid::new_v4();
    let write = || {
        std::fs::create_dir_all(engine)?;
        let beside = engine.join("lineage.new");
        let mut out = std::fs::File::create(&beside)?;
        writeln!(out, "{new}")?;
        out.sync_all()?;
        std::fs::rename(&beside, &file)?;
        std::fs::File::open(engine)?.sync_all()
    };
    write().map_err(|e| io(engine, &e))?;
    Ok(*new.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standby::ledger::Record;

    struct Bed {
        dir: tempfile::TempDir,
        config: Config,
        ledger: Ledger,
        feed: Feed,
    }

    fn bed(record: Record) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { state_dir: dir.path().into(), ..Config::default() };
        let ledger = Ledger::open(dir.path()).unwrap();
        ledger.change(|r| *r = record).unwrap();
        let second = Duration::from_secs(1);
        let feed = Feed::new(FeedOptions {
            lineage: [1; 16],
            mode: Mode::Follow,
            patience: second,
            lease: second,
            armed: false,
            clock_ms: || 0,
        });
        Bed { dir, config, ledger, feed }
    }

    impl Bed {
        fn hear(&self, answer: Result<StandbyAnswer, Failure>, node: u32) -> Result<Option<State>, Failure> {
            hear(answer, node, &self.ledger, &self.feed, &self.config)
        }
    }

    fn known() -> Record {
        Record { epoch: 1, standby: Some(2), ..Record::default() }
    }

    fn serves(epoch: u64) -> Result<StandbyAnswer, Failure> {
        Ok(StandbyAnswer { epoch, serves: true, ..StandbyAnswer::default() })
    }

    #[test]
    fn only_its_standby_can_have_taken_over_from_a_node() {
        let bed = bed(known());
        for (answer, node) in [(serves(9), 3), (serves(1), 2), (serves(1), 3)] {
            assert_eq!(bed.hear(answer, node).unwrap_err().class, ErrorClass::Invalid);
            assert!(bed.ledger.get() == known() && bed.feed.health().taken.is_none());
        }
        assert_eq!(bed.hear(serves(2), 2).unwrap_err().class, ErrorClass::Denied);
        assert!(bed.feed.health().taken.is_some());
        let written = Ledger::open(bed.dir.path()).unwrap().get();
        assert!(written.epoch == 2 && written.replaced_by.is_some(), "{written:?}");
    }

    #[test]
    fn a_history_has_another_name_only_where_it_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let name = lineage(dir.path()).unwrap();
        assert_eq!(lineage(dir.path()).unwrap(), name);
        let file = dir.path().join("lineage");
        std::fs::write(&file, "no name").unwrap();
        assert_eq!(lineage(dir.path()).unwrap_err().class, ErrorClass::Corrupt);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap(); // it cannot be read
        assert!(lineage(dir.path()).is_err() && file.is_dir());
        std::fs::remove_dir(&file).unwrap();
        assert_ne!(lineage(dir.path()).unwrap(), name);
    }

    #[test]
    fn one_that_its_standby_does_not_listen_to_accepts_nothing() {
        let bed = bed(known());
        let denied = || Err(failure(ErrorClass::Denied, "node 1 was removed"));
        assert_eq!(bed.hear(denied(), 3).unwrap_err().class, ErrorClass::Retry);
        assert!(bed.feed.health().taken.is_none());
        assert_eq!(bed.hear(denied(), 2).unwrap_err().class, ErrorClass::Denied);
        assert!(bed.feed.health().taken.is_some() && bed.ledger.get().replaced_by.is_some());
    }

    #[test]
    fn who_was_replaced_accepts_nothing_although_that_cannot_be_written_down_and_tries_that_again() {
        let bed = bed(known());
        let in_the_way = bed.dir.path().join("standby.new");
        std::fs::create_dir(&in_the_way).unwrap();
        assert!(bed.hear(serves(2), 2).is_err());
        assert!(bed.feed.health().taken.is_some() && bed.ledger.get() == known());
        std::fs::remove_dir(&in_the_way).unwrap();
        assert!(bed.hear(serves(2), 2).is_err());
        assert!(bed.ledger.get().replaced_by.is_some());
    }

    #[test]
    fn who_the_standby_is_is_written_down_before_it_gets_anything() {
        let bed = bed(Record::default());
        let answer = || Ok(StandbyAnswer { epoch: 4, number: 7, ..StandbyAnswer::default() });
        assert_eq!(bed.hear(answer(), 2).unwrap(), None, "it is asked again");
        let written = Ledger::open(bed.dir.path()).unwrap().get();
        assert_eq!((written.standby, written.epoch), (Some(2), 4));
        assert_eq!(bed.hear(answer(), 2).unwrap().unwrap().number, 7);
    }
}
