//! Who reads the answers: whoever waits for one, and the keeper where nobody does.
//!
//! Answers come in the order of the requests, so whoever waits for his own reads those before it, too, and hands on to who waits for the next one. So a small request
//! takes two changes of threads, and not three. What nobody waits for yet (reads ahead, and requests of others that were sent before) the keeper reads: he is called where
//! that is known, and looks by himself whether something was left lying.

use super::answers::{Body, body};
use super::descriptors::{Got, read_by};
use super::item::{Item, Outcome, Reply};
use super::keeper::overdue;
use super::{Shared, State, descriptors};
use crate::frame::{ANSWER_LEN, Op, Request};
use crate::{DataError, Incoming, Refusal};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Reads of so many bytes are read before somebody waits for them.
const MUCH: u64 = 64 << 10;
/// Of more that wait at once the keeper reads: handing on to each of them takes longer.
const MANY: usize = 4;
/// How often the keeper looks whether answers are left lying, while something is asked.
const LOOK: Duration = Duration::from_millis(100);
/// The same for whether the connection has ended, while nothing is; twice as long each time.
const DOZE: std::ops::Range<Duration> = Duration::from_secs(1)..Duration::from_secs(16);

/// Whether so much comes that it is to be read before somebody waits for it.
pub(super) fn is_much(op: Op, length: u64) -> bool {
    op == Op::Read && length >= MUCH
}

impl Outcome {
    /// Waits for the answer; reads meanwhile what comes, unless somebody else does.
    pub(super) fn take(&self, shared: &Arc<Shared>) -> crate::Result<Reply> {
        loop {
            if let Some(answer) = self.there() {
                return answer;
            }
            if !shared.read_for(self) {
                self.wait();
            }
        }
    }
}

impl Shared {
    /// Reads until the answer is there; false if somebody else reads, or there is no connection.
    fn read_for(self: &Arc<Self>, outcome: &Outcome) -> bool {
        let Some(mut receiving) = self.receiving.try_lock() else { return false };
        let Some(incoming) = receiving.as_mut() else { return false };
        while !outcome.is_there() {
            if let Err(broken) = answer(self, incoming.as_mut()) {
                *receiving = None;
                self.broke(broken);
                return false;
            }
        }
        drop(receiving);
        self.hand_on();
        true
    }

    /// The keeper is to make another connection. Whoever says so has the half that receives.
    fn broke(&self, why: Error) {
        let mut state = self.state.lock();
        state.broken.get_or_insert(why);
        if let Some(live) = &state.live {
            (live.hang_up)();
        }
        drop(state);
        self.alert.notify_one();
    }

    /// Somebody reads no more: whoever waits for the next answer is to, or the keeper if nobody does.
    fn hand_on(&self) {
        let mut state = self.state.lock();
        let Some(next) = state.queue.front() else { return };
        if state.queue.len() > MANY || !next.outcome.call() {
            self.call_keeper(&mut state);
        }
    }

    /// Whether the connection has ended although nothing was read that says so. Never asked by who holds `state`.
    pub(super) fn look_for_end(&self) {
        let Some(mut receiving) = self.receiving.try_lock() else { return };
        if receiving.as_mut().is_some_and(|incoming| incoming.has_ended()) {
            *receiving = None;
            return self.broke(ErrorKind::UnexpectedEof.into());
        }
        drop(receiving);
        self.hand_on();
    }
}

/// What the keeper does while there is a connection, until it is of no use any more.
pub(super) fn listen(shared: &Arc<Shared>, incoming: Box<dyn Incoming>) -> Error {
    *shared.receiving.lock() = Some(incoming);
    // Who was here before that waits.
    let mut due = true;
    let mut called = true;
    let mut look = Look::default();
    loop {
        if called {
            read_all(shared, due);
        }
        let longest = if forget_idle(shared) { descriptors::LOOK } else { DOZE.end };
        let mut state = shared.state.lock();
        if let Some(broken) = state.broken.take() {
            // What it says of the mover's start is no longer to be had.
            state.live = None;
            return broken;
        }
        if state.closed {
            return Error::other("closed");
        }
        due = look.is_due(&state);
        called = std::mem::take(&mut state.called) || due;
        if called {
            continue;
        }
        let pause = look.pause(&state).min(longest);
        state.dozes = pause > LOOK;
        let rang = !shared.alert.wait_for(&mut state, pause).timed_out();
        state.dozes = false;
        let quiet = !rang && state.queue.is_empty();
        drop(state);
        if quiet {
            shared.look_for_end();
        }
    }
}

/// What the keeper saw when it looked last.
#[derive(Default)]
struct Look {
    /// How many answers had come, and whether others were to come.
    seen: Option<(u64, bool)>,
    pause: Duration,
}

impl Look {
    /// Whether nothing has come of what was to come then; said once.
    fn is_due(&mut self, state: &State) -> bool {
        let due = !state.queue.is_empty() && self.seen == Some((state.answered, true));
        self.seen = self.seen.filter(|_| !due);
        due
    }

    /// How long until it looks again.
    fn pause(&mut self, state: &State) -> Duration {
        let now = Some((state.answered, !state.queue.is_empty()));
        let idle = state.queue.is_empty() && self.seen == now;
        self.pause = if idle { (self.pause * 2).clamp(DOZE.start, DOZE.end) } else { LOOK };
        self.seen = now;
        self.pause
    }
}

/// Reads until nothing more is to come, or little that somebody waits for, unless somebody else reads. What is `due` is read in any case: whoever waits for it
/// may be held up himself.
fn read_all(shared: &Arc<Shared>, due: bool) {
    let Some(mut receiving) = shared.receiving.try_lock() else { return };
    let Some(incoming) = receiving.as_mut() else { return };
    let mut read = 0;
    while is_for_keeper(&shared.state.lock(), due && read == 0) {
        if let Err(broken) = answer(shared, incoming.as_mut()) {
            *receiving = None;
            return shared.broke(broken);
        }
        read += 1;
    }
    drop(receiving);
    shared.hand_on();
}

fn is_for_keeper(state: &State, due: bool) -> bool {
    let Some(next) = state.queue.front() else { return false };
    let much = is_much(next.request.op, next.request.length);
    due || much || state.queue.len() > MANY || !next.outcome.is_waited_for()
}

/// Forgets objects that nobody reads; whether any are left.
fn forget_idle(shared: &Shared) -> bool {
    if !shared.is_near.load(Ordering::Acquire) {
        return false;
    }
    let mut descriptors = shared.descriptors.lock();
    let gone = descriptors.forget_idle(Instant::now());
    let left = !descriptors.is_empty();
    drop(descriptors);
    drop(gone);
    left
}

/// Reads one answer and gives it to who waits for it.
fn answer(shared: &Arc<Shared>, incoming: &mut dyn Incoming) -> Result<()> {
    let mut header = [0; ANSWER_LEN];
    let received = incoming.receive(&mut header);
    match received {
        // Nothing came, and nobody has waited for so long.
        Err(e) if e.kind() == ErrorKind::WouldBlock && !overdue(shared) => return Ok(()),
        received => received?,
    }
    let (item, session) = {
        let state = shared.state.lock();
        let item = state.queue.front().filter(|_| state.sent > 0).cloned();
        let session = state.live.as_ref().map(|live| live.session);
        item.zip(session).ok_or_else(|| Error::other("it answers what was not asked"))?
    };
    let memory = match item.request.op {
        Op::Read => std::mem::take(&mut *item.buffer.lock()),
        _ => Vec::new(),
    };
    let granted = item.granted.lock().clone();
    let mut body =
        body(incoming, &header, &session, &granted, item.request.sequence, memory)?.said_by_the_target()?;
    if body.answer.op != item.request.op
        || body.answer.length > item.request.length.max(crate::MAX_MESSAGE as u64)
    {
        return Err(Error::other("it answers something else than was asked"));
    }
    by_descriptor(shared, &item, &mut body);
    let mut state = shared.state.lock();
    if !state.queue.front().is_some_and(|front| Arc::ptr_eq(front, &item)) {
        return Err(Error::other("closed"));
    }
    state.queue.pop_front();
    state.sent -= 1;
    state.bytes -= item.weight;
    state.answered += 1;
    let mut bytes = body.bytes;
    if item.request.op == Op::Write {
        let written = std::mem::take(&mut *item.buffer.lock());
        bytes = if body.answer.code == 0 { written } else { bytes };
    }
    state.since = (!state.queue.is_empty()).then(Instant::now);
    drop(state);
    shared.changed.notify_all();
    let reply = match body.answer.code {
        0 => Ok(Reply::new(&body.answer, body.sums, bytes, body.descriptor)),
        code => Err(DataError::Refused {
            mover: shared.terms.mover.clone(),
            code,
            message: String::from_utf8_lossy(&bytes).into_owned(),
        }),
    };
    let refused = reply.is_err();
    item.outcome.set(reply);
    match item.request.op {
        // The mover ends the connection, so that what follows does not overtake that.
        Op::Write | Op::SetLength if refused => Err(Error::other("it does nothing more of what was asked")),
        _ => Ok(()),
    }
}

/// Reads what the mover did not send, keeps a descriptor that was asked for, and none of what is elsewhere or gone.
fn by_descriptor(shared: &Shared, item: &Item, body: &mut Body) {
    let Request { op, slot, object, offset, length, .. } = item.request;
    let gone = [Refusal::Fenced.code(), Refusal::Missing(String::new()).code()];
    match (&item.held, op) {
        (_, Op::Descriptor) => {
            body.descriptor = shared.descriptors.lock().came(slot, object, body.descriptor.take());
        }
        (Some(descriptor), _) if body.is_not_sent() => {
            let length = length.min(body.answer.value.saturating_sub(offset)) as usize;
            let memory = std::mem::take(&mut body.bytes);
            let got = read_by(descriptor, offset, length, memory);
            let mut all = shared.descriptors.lock();
            all.tried(slot, object, matches!(&got, Got::Bytes(bytes) if bytes.len() == length));
            let useless = matches!(got, Got::Unknown(_)).then(|| all.of_no_use(slot, object));
            drop(all);
            drop(useless);
            body.bytes = match got {
                Got::Bytes(bytes) => bytes,
                // Fewer than there are to be: whoever waits asks for them over the connection.
                Got::NotThere(mut memory) | Got::Unknown(mut memory) => {
                    memory.clear();
                    memory
                }
            };
        }
        // It has no sums, by which what is read could be compared.
        (Some(_), Op::Read)
            if body.answer.code == 0 && body.answer.length > 0 && shared.is_near.load(Ordering::Acquire) =>
        {
            let useless = shared.descriptors.lock().of_no_use(slot, object);
            drop(useless);
        }
        _ if gone.contains(&body.answer.code) => shared.forget(object),
        _ => {}
    }
}
