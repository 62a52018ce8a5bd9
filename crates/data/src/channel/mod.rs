//! A client's end of a connection to a mover: many requests on their way at once, each done exactly once.
//!
//! Requests go out in the order in which they are submitted and are answered in that order. When the connection breaks, the keeper
//! dials again, presents the capabilities again, and sends what was not answered again, under the same sequence numbers: the mover
//! knows by them what it has done already. Whoever waits sees nothing of it, unless the mover stays away for longer than
//! [`Terms::patience`].
//!
//! A mover on the same host is connected to over a socket of the host if there is one ([`Channel::open_near`]). It gives descriptors of objects then, by which
//! large pieces are read that do not have to go through the socket. That is seen nowhere but in the time it takes.

mod answers;
mod descriptors;
mod greeted;
mod item;
mod keeper;
mod reading;
mod send;

pub use item::{Granted, Reply, Slot, Ticket};

use crate::frame::{self, HELD, LISTED, Op, Request};
use crate::{Capability, CapabilityKey, DataError, HangUp, Incoming, Link, Outgoing, Result, sum};
use descriptors::{Descriptors, Kept, Way};
use greeted::Greeted;
use item::{Held, Item, Outcome};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Makes a connection to the mover.
pub type Dial = Box<dyn Fn() -> std::io::Result<Link> + Send + Sync>;

/// Who talks to whom, and for how long he waits.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Address of the mover, for messages.
    pub mover: String,
    /// This client.
    pub client: u64,
    /// Number of this channel: no other of this client has or had it.
    pub channel: u64,
    /// UUID of the cluster.
    pub cluster: [u8; 16],
    /// How long requests wait for a mover that does not answer before they fail. Once some have failed, others wait for two seconds at most
    /// until there is a connection again.
    pub patience: Duration,
    /// Most bytes that are on their way at once; one request may exceed it.
    pub window_bytes: usize,
}

/// Many requests on their way to one target: capabilities for others need channels of their own, since one that is not served there is waited for.
pub struct Channel {
    shared: Arc<Shared>,
    keeper: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    terms: Terms,
    /// Makes one within this host; tried first.
    near: Option<Dial>,
    dial: Dial,
    state: Mutex<State>,
    /// The connection is one within this host.
    is_near: AtomicBool,
    /// Never asked for by who holds `state`.
    descriptors: Mutex<Descriptors>,
    /// Something was queued, answered, or the channel was closed.
    changed: Condvar,
    /// The half of the connection that receives, if there is one; held by who reads answers, who never waits for it but to end it.
    receiving: Mutex<Option<Box<dyn Incoming>>>,
    /// The keeper is called, or the connection is of no use any more.
    alert: Condvar,
    /// Held while something is sent; never asked for by who holds `state`.
    sending: Mutex<Option<Box<dyn Outgoing>>>,
}

#[derive(Default)]
struct State {
    /// What was not answered, in the order in which it goes out.
    queue: VecDeque<Arc<Item>>,
    /// How many of them are on their way.
    sent: usize,
    /// Bytes of the queue.
    bytes: usize,
    /// Since when nothing was answered although something waits.
    since: Option<Instant>,
    /// Somebody has waited in vain, and there has been no connection since: when the first who did so began to wait.
    away: Option<Instant>,
    /// The connection, if there is one.
    live: Option<Live>,
    greeted: Greeted,
    sequence: u64,
    slots: BTreeMap<u16, Presented>,
    closed: bool,
    /// How many answers there were.
    answered: u64,
    /// The keeper is to read.
    called: bool,
    /// It does not look for long.
    dozes: bool,
    /// Why the connection is of no use any more.
    broken: Option<std::io::Error>,
}

/// A capability of a slot.
struct Presented {
    granted: Arc<Granted>,
    /// The mover was shown it, or is before anything that is asked with it: files have columns that nobody comes to use.
    shown: bool,
}

struct Live {
    session: frame::Session,
    boot: u64,
    hang_up: HangUp,
}

impl Channel {
    /// Begins to connect; requests may be submitted at once.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(dial: Dial, terms: Terms) -> std::io::Result<Self> {
        Self::open_near(None, dial, terms)
    }

    /// The same; `near` connects within this host, and is tried first each time. Where nobody is who has the target, it is as if nobody were there.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open_near(near: Option<Dial>, dial: Dial, terms: Terms) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            terms,
            near,
            dial,
            state: Mutex::default(),
            is_near: AtomicBool::new(false),
            descriptors: Mutex::default(),
            changed: Condvar::new(),
            receiving: Mutex::new(None),
            alert: Condvar::new(),
            sending: Mutex::new(None),
        });
        let kept = shared.clone();
        let keeper =
            std::thread::Builder::new().name("data-channel".into()).spawn(move || keeper::run(&kept))?;
        Ok(Self { shared, keeper: Some(keeper) })
    }

    /// Takes a capability, which is presented before the first request that names its slot, until that is dropped. The first one of a channel without a
    /// connection has that made.
    ///
    /// # Errors
    /// `Closed`; `Unreachable` when all 65,536 slots are used.
    pub fn attach(&self, capability: &Capability, key: CapabilityKey) -> Result<Slot> {
        let granted = Arc::new(Granted { capability: capability.encode(), key });
        let mut state = self.shared.state.lock();
        let Some(number) = (0..=u16::MAX).find(|n| !state.slots.contains_key(n)) else {
            let reason = "all slots for capabilities are in use".to_owned();
            return Err(DataError::Unreachable { mover: self.shared.terms.mover.clone(), reason });
        };
        state.slots.insert(number, Presented { granted, shown: false });
        let connected = state.live.is_some();
        drop(state);
        let slot = Slot(Arc::new(Held { number, shared: self.shared.clone() }));
        if !connected {
            self.shared.present(&slot)?;
        }
        Ok(slot)
    }

    /// Replaces the capability of a slot: what is submitted from now on is asked with the new one.
    pub fn renew(&self, slot: &Slot, capability: &Capability, key: CapabilityKey) {
        let granted = Arc::new(Granted { capability: capability.encode(), key });
        self.shared.state.lock().slots.insert(slot.0.number, Presented { granted, shown: false });
    }

    /// Sends a request; [`Ticket::wait`] gives the answer. For [`Op::Write`], `buffer` holds the bytes, for [`Op::Create`] and [`Op::Remove`] the list if there is one; for [`Op::Read`] it is memory
    /// that is used again for the answer. Waits while more than [`Terms::window_bytes`] are on their way.
    ///
    /// # Errors
    /// `Closed`.
    pub fn submit(&self, slot: &Slot, ask: Ask, buffer: Vec<u8>) -> Result<Ticket> {
        self.shared.submit(slot, ask, buffer)
    }

    /// Submits and waits.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn call(&self, slot: &Slot, ask: Ask, buffer: Vec<u8>) -> Result<Reply> {
        self.submit(slot, ask, buffer)?.wait()
    }

    /// Requests have waited in vain for the mover, and it has not been there since.
    pub fn is_away(&self) -> bool {
        self.away_for().is_some()
    }

    /// If that is so, for how long it has been waited for.
    pub fn away_for(&self) -> Option<Duration> {
        self.shared.state.lock().away.map(|since| since.elapsed())
    }

    /// Changes whenever the mover's machine has started anew: what was written before and not made durable may then be lost. `None`
    /// while there is no connection, as far as this host knows.
    pub fn boot(&self) -> Option<u64> {
        // What has ended meanwhile says nothing of the start that serves what is asked next.
        self.shared.look_for_end();
        let state = self.shared.state.lock();
        state.live.as_ref().filter(|_| state.broken.is_none()).map(|live| live.boot)
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.shared.state.lock().greeted.connections()
    }

    /// As [`Channel::boot`] of one of these connections, counted from 0; `None`: it was not made yet. So who asks how many there are before he submits
    /// something learns of the first start that may have it, whatever has become of that since.
    pub fn boot_of(&self, connection: u64) -> Option<u64> {
        self.shared.state.lock().greeted.start(connection)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(keeper) = self.keeper.take() {
            // It has nothing to say; a panic of it was reported when it happened.
            drop(keeper.join());
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({})", self.shared.terms.mover)
    }
}

/// What is asked of an object.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The operation.
    pub op: Op,
    /// Bits of it ([`frame::SETTLED`], [`frame::FOR_WRITING`], [`frame::COMPARED`], [`frame::LISTED`]).
    pub flags: u8,
    /// The object.
    pub object: u64,
    /// Where (bytes).
    pub offset: u64,
    /// How much (bytes).
    pub length: u64,
}

impl Shared {
    fn submit(self: &Arc<Self>, slot: &Slot, ask: Ask, buffer: Vec<u8>) -> Result<Ticket> {
        let way = self.way(slot, &ask, &buffer);
        self.submit_by(way, slot, ask, buffer)
    }

    fn submit_by(self: &Arc<Self>, way: Way, slot: &Slot, mut ask: Ask, buffer: Vec<u8>) -> Result<Ticket> {
        let sums = match ask.op {
            Op::Write => frame::encode_sums(&sum::parts(ask.offset, &buffer)),
            _ => Vec::new(),
        };
        let weight = match ask.op {
            Op::Write => buffer.len(),
            Op::Read => ask.length as usize,
            _ => 0,
        };
        let (held, wanted) = match way {
            Way::Held(descriptor) => (Some(descriptor), false),
            way => (None, matches!(way, Way::SentAndAsk)),
        };
        ask.flags |= if held.is_some() { HELD } else { 0 };
        let mut state = self.state.lock();
        while !state.closed && !state.queue.is_empty() && state.bytes + weight > self.terms.window_bytes {
            // Nobody may wait for what is on its way.
            self.call_keeper(&mut state);
            self.changed.wait(&mut state);
        }
        state.show(slot);
        let outcome = state.enqueue(slot, ask, (sums, buffer), weight, held).ok_or_else(|| self.closed())?;
        let refused = wanted && !state.want(slot, ask.object);
        if reading::is_much(ask.op, ask.length) {
            self.call_keeper(&mut state);
        }
        self.wake_keeper(&state);
        drop(state);
        if refused {
            self.descriptors.lock().came(slot.0.number, ask.object, None);
        }
        self.changed.notify_all();
        self.drain();
        Ok(Ticket { shared: self.clone(), slot: slot.clone(), ask, outcome })
    }

    /// How a request is to go, as far as descriptors are concerned. Those of what is removed would keep its room.
    fn way(&self, slot: &Slot, ask: &Ask, list: &[u8]) -> Way {
        if !self.is_near.load(Ordering::Acquire) {
            return Way::Sent;
        }
        match ask.op {
            Op::Read if ask.flags == 0 && ask.length >= descriptors::FROM => {
                let mut all = self.descriptors.lock();
                // What is asked for over a connection that is gone would never come.
                if !self.is_near.load(Ordering::Acquire) {
                    return Way::Sent;
                }
                let (way, gone) = all.read(slot.0.number, ask.object, Instant::now());
                drop(all);
                drop(gone);
                way
            }
            Op::Remove => {
                let listed =
                    if ask.flags & LISTED != 0 { frame::decode_list(list) } else { vec![ask.object] };
                listed.into_iter().for_each(|object| self.forget(object));
                Way::Sent
            }
            _ => Way::Sent,
        }
    }

    /// Uses no descriptor of an object any more.
    fn forget(&self, object: u64) {
        let gone = self.descriptors.lock().forget(object);
        drop(gone);
    }

    /// Has a capability presented although nothing is asked with it yet.
    fn present(&self, slot: &Slot) -> Result<()> {
        let mut state = self.state.lock();
        state.show(slot);
        let closed = state.closed;
        self.wake_keeper(&state);
        drop(state);
        self.changed.notify_all();
        self.drain();
        if closed { Err(self.closed()) } else { Ok(()) }
    }

    /// The keeper is to read what comes.
    fn call_keeper(&self, state: &mut State) {
        state.called = true;
        self.alert.notify_one();
    }

    /// Something is asked: it is to look again soon.
    fn wake_keeper(&self, state: &State) {
        if state.dozes {
            self.alert.notify_one();
        }
    }

    fn closed(&self) -> DataError {
        DataError::Closed { mover: self.terms.mover.clone() }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        if let Some(live) = &state.live {
            (live.hang_up)();
        }
        let dropped = state.abandon();
        drop(state);
        dropped.iter().for_each(|item| item.outcome.set(Err(self.closed())));
        self.changed.notify_all();
        self.alert.notify_one();
    }
}

impl State {
    /// Presents the capability of a slot, before all that is asked from now on, unless that was done.
    fn show(&mut self, slot: &Slot) {
        let unknown = self.slots.get_mut(&slot.0.number).filter(|known| !known.shown);
        if unknown.map(|known| known.shown = true).is_some() {
            let ask =
                Ask { op: Op::Attach, flags: 0, object: 0, offset: 0, length: crate::CAPABILITY_LEN as u64 };
            self.enqueue(slot, ask, (Vec::new(), Vec::new()), 0, None);
        }
    }

    /// Asks for a descriptor of an object. Nobody waits for it. False: a right to a part of the bytes is not enough for that.
    fn want(&mut self, slot: &Slot, object: u64) -> bool {
        let Some(known) = self.slots.get(&slot.0.number) else { return false };
        if Capability::decode(&known.granted.capability).is_ok_and(|granted| granted.range != (0..u64::MAX)) {
            return false;
        }
        let ask = Ask { op: Op::Descriptor, flags: 0, object, offset: 0, length: 0 };
        self.enqueue(slot, ask, (Vec::new(), Vec::new()), 0, None).is_some()
    }

    /// Puts a request behind the others; None if the channel is closed.
    fn enqueue(
        &mut self,
        slot: &Slot,
        ask: Ask,
        (sums, buffer): (Vec<u8>, Vec<u8>),
        weight: usize,
        held: Option<Arc<Kept>>,
    ) -> Option<Arc<Outcome>> {
        let granted = self.slots.get(&slot.0.number).filter(|_| !self.closed)?.granted.clone();
        let sequence = if ask.op == Op::Attach { 0 } else { self.sequence + 1 };
        self.sequence = self.sequence.max(sequence);
        let request = Request {
            op: ask.op,
            flags: ask.flags,
            slot: slot.0.number,
            sums: (sums.len() / 4) as u32,
            sequence,
            object: ask.object,
            offset: ask.offset,
            length: ask.length,
        };
        let outcome = Arc::new(Outcome::default());
        self.bytes += weight;
        self.since.get_or_insert_with(Instant::now);
        self.queue.push_back(Arc::new(Item {
            request,
            sums,
            weight,
            buffer: Mutex::new(buffer),
            granted: Mutex::new(granted),
            outcome: outcome.clone(),
            slot: slot.clone(),
            held,
        }));
        Some(outcome)
    }

    /// Takes everything out of the queue.
    fn abandon(&mut self) -> Vec<Arc<Item>> {
        (self.sent, self.bytes, self.since) = (0, 0, None);
        self.queue.drain(..).collect()
    }
}
