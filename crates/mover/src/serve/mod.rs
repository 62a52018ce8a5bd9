//! Connections of clients: one thread each, requests in the order in which they come.

mod connection;
mod gate;
mod listen;

pub use gate::Peer;

use crate::target::Target;
use data::{HangUp, Link};
use gate::Gate;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use types::{TargetId, Time};

/// Longest wait for requests that were begun when a mover is to stop.
const PARTING: Duration = Duration::from_secs(10);
/// Longest wait for what is to be made durable then. A disk that takes longer hangs, or has its sums computed anew at the next start.
const CLOSING: Duration = Duration::from_secs(30);

/// Serves targets.
pub struct Mover {
    cluster: [u8; 16],
    boot: u64,
    targets: RwLock<BTreeMap<TargetId, Arc<Target>>>,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
    ask: OnceLock<Box<dyn Fn() + Send + Sync>>,
    next: AtomicU64,
    /// Reads whose bytes clients took by descriptors.
    held: AtomicU64,
    gate: Gate,
    stopping: AtomicBool,
    connections: Mutex<BTreeMap<u64, HangUp>>,
    /// Whose turn it is in each channel, by (client, channel).
    turns: Mutex<BTreeMap<(u64, u64), Arc<Turn>>>,
}

/// Which connection a channel uses now. A client that connects anew may find requests of its old connection still being served: these
/// end before, and nothing of the old connection is done after, the first request of the new one.
#[derive(Default)]
struct Turn {
    connection: Mutex<u64>,
}

/// How a connection ended.
#[derive(Debug)]
pub enum Served {
    /// The client went away, or this mover stops.
    Gone(std::io::Error),
    /// The client sent what it must not.
    Refused(data::Refusal),
    /// The channel goes on in another connection, or has to after a failed write.
    Ended,
}

impl Mover {
    /// A mover of these targets. `clock` says what time it is; capabilities end by it.
    ///
    /// # Errors
    /// The system does not say when it started.
    pub fn new(
        cluster: [u8; 16],
        targets: impl IntoIterator<Item = Arc<Target>>,
        clock: Box<dyn Fn() -> Time + Send + Sync>,
    ) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            cluster,
            boot: crate::start_of_machine()?,
            targets: RwLock::new(targets.into_iter().map(|target| (target.id(), target)).collect()),
            clock,
            ask: OnceLock::new(),
            next: AtomicU64::new(1),
            held: AtomicU64::new(0),
            gate: Gate::default(),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            turns: Mutex::default(),
        }))
    }

    /// What to do when somebody has a capability of a turn that a target has not heard of, or for a target that is not served here: whoever knows the
    /// metadata service is to ask it. Called for each such capability, which may be forged.
    pub fn when_behind(&self, ask: Box<dyn Fn() + Send + Sync>) {
        let _ = self.ask.set(ask); // the first one counts
    }

    fn is_behind(&self) {
        if let Some(ask) = self.ask.get() {
            ask();
        }
    }

    /// Serves one more target from now on; one that is served, or any when this mover stops, changes nothing.
    pub fn add(&self, target: &Arc<Target>) {
        let mut targets = self.targets.write();
        // Looked at with the lock held: whoever stops closes all that are there after he has said so.
        if !self.stopping.load(Ordering::Acquire) {
            targets.entry(target.id()).or_insert_with(|| target.clone());
        }
    }

    /// How many reads were answered without bytes, because the client takes them by a descriptor.
    pub fn held_reads(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// A target, if it is served here.
    fn target(&self, id: TargetId) -> Option<Arc<Target>> {
        self.targets.read().get(&id).cloned()
    }

    /// Serves one connection until it ends, also of somebody whom [`Mover::listen`] would not let in.
    pub fn serve(&self, link: Link, peer: &Peer) -> Served {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.connections.lock().insert(number, link.hang_up.clone());
        let hang_up = link.hang_up.clone();
        let served = match self.stopping.load(Ordering::Acquire) {
            true => Served::Ended,
            false => connection::run(self, number, link, peer),
        };
        hang_up();
        self.connections.lock().remove(&number);
        served
    }

    /// Ends all connections, and makes everything durable once their threads have ended. A disk that hangs is not waited for for long, and keeps no other one from it.
    ///
    /// # Errors
    /// A target could not be made durable; it is repaired when it is opened again.
    pub fn stop(&self) -> Result<(), data::Refusal> {
        self.stop_within(PARTING, CLOSING)
    }

    fn stop_within(&self, patience: Duration, closing: Duration) -> Result<(), data::Refusal> {
        self.stopping.store(true, Ordering::Release);
        self.connections.lock().values().for_each(|hang_up| hang_up());
        self.gate.sum_up();
        if self.held_reads() > 0 {
            tracing::info!(reads = self.held_reads(), "programs of this host have read by descriptors");
        }
        let end = Instant::now() + patience;
        while !self.connections.lock().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let targets: Vec<_> = self.targets.read().values().cloned().collect();
        let begun: Vec<_> = targets.iter().map(|target| (target.id(), close(target))).collect();
        let end = Instant::now() + closing;
        let late = |id| {
            data::Refusal::Disk(format!(
                "target {id}: its disk takes longer than {closing:?} to write what is there; look at the kernel log"
            ))
        };
        let closed = begun.into_iter().map(|(id, closed)| {
            closed.and_then(|closed| {
                closed
                    .recv_timeout(end.saturating_duration_since(Instant::now()))
                    .unwrap_or_else(|_| Err(late(id)))
            })
        });
        // All of them are waited for before the first one that failed is told.
        closed.collect::<Vec<_>>().into_iter().collect()
    }

    /// The turn of a channel, taken by this connection. The requests of another one have ended then.
    fn take_turn(&self, channel: (u64, u64), connection: u64) -> Arc<Turn> {
        let turn = self.turns.lock().entry(channel).or_default().clone();
        let before = std::mem::replace(&mut *turn.connection.lock(), connection);
        if let Some(hang_up) = self.connections.lock().get(&before).filter(|_| before != connection) {
            hang_up();
        }
        turn
    }

    /// A connection is over: forgets channels that nobody uses.
    fn leave_turn(&self, channel: (u64, u64)) {
        let mut turns = self.turns.lock();
        // One is in the table, one is held by the caller.
        if turns.get(&channel).is_some_and(|turn| Arc::strong_count(turn) <= 2) {
            turns.remove(&channel);
        }
    }
}

/// Begins to close a target; what comes of that.
fn close(target: &Arc<Target>) -> Result<Receiver<Result<(), data::Refusal>>, data::Refusal> {
    let failed = |why: &str| data::Refusal::Disk(format!("target {}: {why}", target.id()));
    if target.is_in_use() {
        return Err(failed("what was begun there does not end"));
    }
    let (tell, closed) = std::sync::mpsc::sync_channel(1);
    let closing = target.clone();
    let close = move || {
        let closed = closing.close();
        // Whoever is told may open it again at once.
        drop(closing);
        drop(tell.send(closed)); // he may have gone
    };
    let thread = std::thread::Builder::new().name("mover-close".into()).spawn(close);
    thread.map(|_| closed).map_err(|e| failed(&format!("there is no thread to close it: {e}")))
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mover({:?})", self.targets.read().keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secrets;
    use data::{Capability, Rights, TargetSecret};
    use types::{Ino, TargetId};

    fn secrets(turn: u64) -> Secrets {
        Secrets { site: String::new(), turn, keys: [(turn as u32, TargetSecret::new(&[7; 32]))].into() }
    }

    /// Of turn 0, for everything.
    fn capability(target: TargetId) -> Capability {
        Capability {
            epoch: 0,
            cluster: [1; 16],
            target,
            file: Ino(7),
            objects: 0..u64::MAX,
            generation: 1,
            rights: Rights::READ,
            range: 0..u64::MAX,
            user: 0,
            client: 1,
            issued: Time::new(1, 0),
            expires: Time::new(2, 0),
        }
    }

    #[test]
    fn a_request_that_hangs_on_one_disk_keeps_neither_a_turn_nor_an_end_from_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let open = |id: u32| {
            let path = dir.path().join(id.to_string());
            Arc::new(Target::open(TargetId(id), [1; 16], &path, secrets(0)).unwrap())
        };
        let (hangs, other) = (open(1), open(2));
        let mover =
            Mover::new([1; 16], [hangs.clone(), other.clone()], Box::new(|| Time::new(1, 0))).unwrap();
        // As while it is done.
        let request = hangs.admits(&capability(hangs.id())).unwrap();
        mover.connections.lock().insert(1, Arc::new(|| {}));
        let moment = Duration::from_millis(50);
        let late = hangs.set_secrets(secrets(1), moment).unwrap_err();
        assert!(matches!(late, crate::TargetError::InUse { turn: 0, .. }), "{late}");
        other.set_secrets(secrets(1), moment).unwrap();
        assert_eq!((hangs.turn(), other.turn()), (0, 1));
        let stopped = mover.stop_within(moment, moment).unwrap_err().to_string();
        assert!(stopped.contains("target 1"), "{stopped}");
        drop(request);
        mover.connections.lock().clear();
        hangs.set_secrets(secrets(1), moment).unwrap();
        mover.stop_within(moment, PARTING).unwrap();
    }

    #[test]
    fn requests_that_follow_each_other_keep_no_later_turn_away() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::open(TargetId(1), [1; 16], dir.path(), secrets(0)).unwrap();
        let (former, moment) = (capability(target.id()), Duration::from_millis(20));
        let mut begun = target.admits(&former).ok();
        for late in 0.. {
            assert!(late < 3, "it does not hear of the turn");
            if target.set_secrets(secrets(1), moment).is_ok() {
                break;
            }
            // The next one comes before the former one ends, and both take longer than the turn is tried.
            begun = target.admits(&former).ok();
        }
        assert_eq!((target.turn(), begun.is_some()), (1, false));
        let durable = std::fs::read_to_string(dir.path().join("turn")).unwrap();
        assert_eq!(durable, "00000000000000000001\n");
    }

    /// As long as it is not durable that it has heard of the later turn nobody is served, also not whoever tells the earlier one again.
    #[test]
    fn between_two_turns_a_target_takes_neither() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::open(TargetId(1), [1; 16], dir.path(), secrets(0)).unwrap();
        let (former, later) =
            (capability(target.id()), Capability { epoch: data::epoch::of(1, 0), ..capability(target.id()) });
        let in_turn = |turn: u64| {
            let keys = [(data::epoch::of(turn, 0), TargetSecret::new(&[7; 32]))].into();
            target.set_secrets(Secrets { turn, keys, ..Secrets::default() }, Duration::from_millis(20))
        };
        let begun = target.admits(&former).unwrap();
        in_turn(1).unwrap_err();
        assert_eq!(target.reported_turn(), 0, "it has not written it down");
        // A catalogue that came back with less: its turn has to be raised.
        assert!(matches!(in_turn(0), Err(crate::TargetError::Over { heard: 1, .. })));
        assert_eq!(target.reported_turn(), 1);
        in_turn(1).unwrap_err();
        assert_eq!(target.reported_turn(), 0);
        assert!(matches!(target.judge(&former.encode()), Err(data::Refusal::Expired)));
        assert!(matches!(target.judge(&later.encode()), Err(data::Refusal::Elsewhere(_))));
        // The disk does not take it.
        drop(begun);
        let record = dir.path().join("turn");
        std::fs::remove_file(&record).unwrap();
        std::fs::create_dir(&record).unwrap();
        in_turn(1).unwrap_err();
        assert!(target.turn() == 0 && target.admits(&former).is_err() && target.admits(&later).is_err());
        std::fs::remove_dir(&record).unwrap();
        in_turn(1).unwrap();
        drop(target.admits(&later).unwrap());
    }

    #[test]
    fn secrets_of_the_same_turn_count_at_once_and_what_was_begun_with_others_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::open(TargetId(1), [1; 16], dir.path(), secrets(0)).unwrap();
        let former = capability(target.id());
        let next = Capability { epoch: 1, ..capability(target.id()) };
        let take = || {
            let keys = [(1, TargetSecret::new(&[7; 32]))].into();
            target.set_secrets(Secrets { keys, ..Secrets::default() }, Duration::from_millis(20))
        };
        let begun = target.admits(&former).unwrap();
        for _ in 0..2 {
            assert!(matches!(take(), Err(crate::TargetError::InUse { .. })));
            assert!(target.admits(&former).is_err() && target.admits(&next).is_ok());
        }
        drop(begun);
        take().unwrap();
    }

    #[test]
    fn a_disk_that_hangs_with_bytes_that_were_not_synced_keeps_no_mover_from_stopping() {
        let dir = tempfile::tempdir().unwrap();
        let open = |id: u32| {
            let path = dir.path().join(id.to_string());
            let target = Target::open(TargetId(id), [1; 16], &path, secrets(0)).unwrap();
            let by = crate::sidecar::Done { client: 1, channel: 1, sequence: 1 };
            target.create(&[1], by).unwrap();
            target.write(types::ObjectId(1), 1, 0, b"bytes", &data::sum::parts(0, b"bytes"), by).unwrap();
            Arc::new(target)
        };
        let (hangs, other) = (open(1), open(2));
        let mover =
            Mover::new([1; 16], [hangs.clone(), other.clone()], Box::new(|| Time::new(1, 0))).unwrap();
        let object = hangs.object(types::ObjectId(1)).unwrap();
        // As while its disk takes nothing: what makes it durable does not go on.
        let held = object.gate.write();
        let moment = Duration::from_millis(200);
        let begin = Instant::now();
        let stopped = mover.stop_within(moment, moment).unwrap_err().to_string();
        assert!(stopped.contains("target 1") && stopped.contains("takes longer"), "{stopped}");
        assert!(begin.elapsed() < PARTING);
        assert!(!other.object(types::ObjectId(1)).unwrap().is_dirty());
        drop(held);
    }
}
