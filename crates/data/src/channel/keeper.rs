//! The thread that connects, reads answers, and connects again.

use super::descriptors::Got;
use super::item::{Granted, Item, Reply};
use super::{Live, Shared, descriptors};
use crate::frame::{self, ANSWER_LEN, Answer, Op, Request, Session};
use crate::hello::{self, ClientHello, HELLO_LEN, MoverHello};
use crate::{CAPABILITY_LEN, DataError, Incoming, Link, Outgoing, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest wait for a mover that accepts a connection and says nothing.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// The same for one on this host, who can be reached in another way too.
const NEAR_PATIENCE: Duration = Duration::from_secs(1);
/// First and longest pause between two attempts to connect.
const PAUSES: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_secs(1);
/// How long requests wait for a mover for which others have waited in vain, before they fail too.
const AWAY_PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts to connect to such a mover while nobody asks for anything: so it is known whether it is still away when somebody does.
const LOOK: Duration = Duration::from_secs(5);
/// Capabilities that are presented before their answers are read.
const PRESENTED_AT_ONCE: usize = 64;

pub(super) fn run(shared: &Arc<Shared>) {
    let mut pause = PAUSES.start;
    while wait_for_work(shared) {
        let before = shared.state.lock().since;
        let broken = match connect(shared) {
            Ok(incoming) => listen(shared, incoming),
            Err(e) => e,
        };
        disconnect(shared);
        let progress = shared.state.lock().since != before;
        pause = if progress { PAUSES.start } else { (pause * 2).min(PAUSES.end) };
        give_up_late(shared, &broken);
        sleep(shared, pause);
    }
}

/// Waits until something is queued, or it is time to see whether a mover that was waited for in vain is back; false when the channel was closed.
fn wait_for_work(shared: &Shared) -> bool {
    let mut state = shared.state.lock();
    while !state.closed && state.queue.is_empty() {
        if state.away.is_none() {
            shared.changed.wait(&mut state);
        } else if shared.changed.wait_for(&mut state, LOOK).timed_out() {
            break;
        }
    }
    !state.closed
}

/// Pauses, unless the channel is closed meanwhile.
fn sleep(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    let mut state = shared.state.lock();
    while !state.closed && !shared.changed.wait_until(&mut state, until).timed_out() {}
}

/// Makes a connection. Where there is a socket of this host, whoever listens there may be gone, or have other targets: then it is as if there were none.
fn connect(shared: &Arc<Shared>) -> Result<Box<dyn Incoming>> {
    if let Some(near) = &shared.near
        && let Ok(incoming) = near().and_then(|link| take(shared, link, NEAR_PATIENCE))
    {
        return Ok(incoming);
    }
    take(shared, (shared.dial)()?, HELLO_PATIENCE)
}

/// Greets, presents the capabilities that are used, and has what was not answered sent again.
fn take(shared: &Arc<Shared>, link: Link, patience: Duration) -> Result<Box<dyn Incoming>> {
    let Link { mut incoming, mut outgoing, hang_up } = link;
    let near = outgoing.is_local();
    let (session, boot) = greet(shared, outgoing.as_mut(), incoming.as_mut(), patience)?;
    let mut presented = BTreeMap::new();
    loop {
        let mut state = shared.state.lock();
        // What waits is asked with the capabilities of now.
        let waiting: BTreeSet<u16> = state.queue.iter().map(|item| item.request.slot).collect();
        waiting
            .iter()
            .for_each(|number| state.slots.get_mut(number).into_iter().for_each(|known| known.shown = true));
        let new: Vec<(u16, Arc<Granted>)> = state
            .slots
            .iter()
            .filter(|(_, known)| known.shown)
            .map(|(number, known)| (*number, known.granted.clone()))
            .filter(|(number, granted)| presented.get(number).is_none_or(|old| !Arc::ptr_eq(old, granted)))
            .collect();
        if new.is_empty() && !state.closed {
            let done = state.begin(Live { session, boot, hang_up });
            drop(state);
            shared.is_near.store(near, Ordering::Release);
            // Whoever waits for the answer to an attachment has it.
            done.iter().for_each(|item| item.outcome.set(Ok(Reply::new(&attached(), vec![], vec![], None))));
            *shared.sending.lock() = Some(outgoing);
            let sender = shared.clone();
            std::thread::Builder::new().name("data-resend".into()).spawn(move || sender.drain())?;
            return Ok(incoming);
        }
        let closed = state.closed;
        drop(state);
        if closed {
            return Err(Error::other("closed"));
        }
        present(&new, outgoing.as_mut(), incoming.as_mut(), &session)?;
        presented.extend(new);
    }
}

impl super::State {
    /// Takes a new connection into use: nothing is on its way, attachments are done, all else is asked with the capabilities of now.
    fn begin(&mut self, live: Live) -> Vec<Arc<Item>> {
        let (attachments, queue) = self.queue.drain(..).partition(|item| item.request.op == Op::Attach);
        self.queue = queue;
        for item in &self.queue {
            if let Some(known) = self.slots.get(&item.slot.0.number) {
                *item.granted.lock() = known.granted.clone();
            }
        }
        self.sent = 0;
        self.away = None;
        self.greeted.note(live.boot);
        self.live = Some(live);
        if self.queue.is_empty() {
            self.since = None;
        }
        Vec::from(attachments)
    }
}

fn attached() -> Answer {
    Answer { op: Op::Attach, code: 0, sums: 0, sequence: 0, value: 0, length: 0 }
}

/// Exchanges greetings; gives what is signed with everything, and the mover's boot number.
fn greet(
    shared: &Shared,
    out: &mut dyn Outgoing,
    incoming: &mut dyn Incoming,
    patience: Duration,
) -> Result<(Session, u64)> {
    let mut nonce = [0; 16];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut nonce)
        .map_err(|_| Error::other("the system gives no random numbers"))?;
    let terms = &shared.terms;
    let ours = ClientHello {
        version: frame::VERSION,
        client: terms.client,
        channel: terms.channel,
        cluster: terms.cluster,
        nonce,
    };
    incoming.set_patience(Some(patience))?;
    out.send(&[&ours.encode()], false)?;
    let mut bytes = [0; HELLO_LEN];
    incoming.receive(&mut bytes)?;
    incoming.set_patience(Some(terms.patience))?;
    let theirs = MoverHello::decode(&bytes).map_err(Error::other)?;
    hello::agree(theirs.version).map_err(Error::other)?;
    if theirs.cluster != terms.cluster {
        return Err(Error::other("it belongs to another cluster"));
    }
    Ok((hello::session(&ours, &theirs), theirs.boot))
}

/// Presents capabilities and reads the answers. One that is refused is left out: requests that name its slot are refused too. Whoever on this host does not know
/// the key has the target no more than one who says so.
fn present(
    new: &[(u16, Arc<Granted>)],
    out: &mut dyn Outgoing,
    incoming: &mut dyn Incoming,
    session: &Session,
) -> Result<()> {
    for some in new.chunks(PRESENTED_AT_ONCE) {
        for (slot, granted) in some {
            let request = Request {
                op: Op::Attach,
                flags: 0,
                slot: *slot,
                sums: 0,
                sequence: 0,
                object: 0,
                offset: 0,
                length: CAPABILITY_LEN as u64,
            };
            let header = request.encode(session, &granted.key, &[], &granted.capability);
            out.send(&[&header, &granted.capability], false)?;
        }
        for (_, granted) in some {
            let body = receive(incoming, session, granted, 0, Vec::new())?.said_by_the_target()?;
            if out.is_local() && body.answer.code == Refusal::Signature.code() {
                return Err(Error::other("it does not know the key of the capability"));
            }
        }
    }
    Ok(())
}

/// Reads answers until the connection breaks.
fn listen(shared: &Arc<Shared>, mut incoming: Box<dyn Incoming>) -> Error {
    loop {
        if let Err(broken) = answer(shared, incoming.as_mut()) {
            return broken;
        }
    }
}

/// Reads one answer and gives it to who waits for it.
fn answer(shared: &Arc<Shared>, incoming: &mut dyn Incoming) -> Result<()> {
    let mut header = [0; ANSWER_LEN];
    let look = forget_idle(shared).then_some(descriptors::LOOK.min(shared.terms.patience));
    if look.is_some() {
        incoming.set_patience(look)?;
    }
    let received = incoming.receive(&mut header);
    if look.is_some() {
        incoming.set_patience(Some(shared.terms.patience))?;
    }
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
    state.queue.pop_front();
    state.sent -= 1;
    state.bytes -= item.weight;
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
    item.outcome.set(reply);
    Ok(())
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
            let got = descriptors::read_by(descriptor, offset, length, memory);
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

struct Body {
    answer: Answer,
    sums: Vec<u32>,
    bytes: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Body {
    /// There are sums of bytes that did not come.
    fn is_not_sent(&self) -> bool {
        is_not_sent(&self.answer)
    }

    /// The answer, if its mover has the target. If not, it is as if nobody had answered: a host may be back with another disk, and whoever waits does so
    /// until it has the right one, or until others stand in for it. That is not signed, as nobody there has the key; whoever forges it can as well cut
    /// the connection.
    fn said_by_the_target(self) -> Result<Self> {
        match self.answer.code == Refusal::Elsewhere(String::new()).code() {
            true => Err(Error::other(String::from_utf8_lossy(&self.bytes))),
            false => Ok(self),
        }
    }
}

fn receive(
    incoming: &mut dyn Incoming,
    session: &Session,
    granted: &Granted,
    sequence: u64,
    memory: Vec<u8>,
) -> Result<Body> {
    let mut header = [0; ANSWER_LEN];
    incoming.receive(&mut header)?;
    body(incoming, &header, session, granted, sequence, memory)
}

/// Reads what follows a header and checks the signature.
fn body(
    incoming: &mut dyn Incoming,
    header: &[u8; ANSWER_LEN],
    session: &Session,
    granted: &Granted,
    sequence: u64,
    mut memory: Vec<u8>,
) -> Result<Body> {
    let answer = Answer::decode(header).map_err(Error::other)?;
    if answer.sequence != sequence {
        return Err(Error::other("it answers out of order"));
    }
    let mut sums = vec![0; answer.sums as usize * 4];
    incoming.receive(&mut sums)?;
    // What does not come is read into it.
    if !is_not_sent(&answer) {
        memory.resize(answer.length as usize, 0);
        incoming.receive(&mut memory)?;
    }
    let unsigned = header[32..] == [0; ANSWER_LEN - 32];
    // Without a capability the mover cannot sign that it refuses. Whoever forges that can as well cut the connection.
    if !(unsigned && matches!(answer.code, 1..=5 | 12 | 13)) {
        Answer::verify(header, session, &granted.key, &sums, &memory)
            .map_err(|_: Refusal| Error::other("it does not sign as the target of the capability would"))?;
    }
    let descriptor = incoming.descriptor();
    Ok(Body { answer, sums: frame::decode_sums(&sums), bytes: memory, descriptor })
}

fn is_not_sent(answer: &Answer) -> bool {
    answer.code == 0 && answer.length == 0 && answer.sums > 0
}

/// The connection is gone.
fn disconnect(shared: &Shared) {
    shared.is_near.store(false, Ordering::Release);
    let gone = std::mem::take(&mut *shared.descriptors.lock());
    drop(gone);
    let live = shared.state.lock().live.take();
    if let Some(live) = live {
        (live.hang_up)();
    }
    *shared.sending.lock() = None;
    shared.state.lock().sent = 0;
}

/// Gives everybody up who has waited for longer than the patience of this channel.
fn give_up_late(shared: &Shared, broken: &Error) {
    if !overdue(shared) {
        return;
    }
    let mut state = shared.state.lock();
    let since = state.since.unwrap_or_else(Instant::now);
    state.away.get_or_insert(since);
    let dropped = state.abandon();
    drop(state);
    let error = DataError::Unreachable { mover: shared.terms.mover.clone(), reason: broken.to_string() };
    dropped.iter().for_each(|item| item.outcome.set(Err(error.clone())));
    shared.changed.notify_all();
}

fn overdue(shared: &Shared) -> bool {
    let state = shared.state.lock();
    let patience =
        if state.away.is_some() { shared.terms.patience.min(AWAY_PATIENCE) } else { shared.terms.patience };
    state.since.is_some_and(|since| since.elapsed() >= patience)
}
