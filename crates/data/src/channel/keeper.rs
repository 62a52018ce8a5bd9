//! The thread that connects, reads answers that nobody waits for, and connects again.

use super::answers::receive;
use super::item::{Granted, Item, Reply};
use super::reading::listen;
use super::{Live, Shared};
use crate::frame::{self, Answer, Op, Request, Session};
use crate::hello::{self, ClientHello, HELLO_LEN, MoverHello};
use crate::{CAPABILITY_LEN, DataError, Incoming, Link, Outgoing, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, Result};
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

/// The connection is gone.
fn disconnect(shared: &Shared) {
    shared.is_near.store(false, Ordering::Release);
    let live = shared.state.lock().live.take();
    if let Some(live) = live {
        (live.hang_up)();
    }
    // Whoever reads comes to its end.
    *shared.receiving.lock() = None;
    let gone = std::mem::take(&mut *shared.descriptors.lock());
    drop(gone);
    *shared.sending.lock() = None;
    let mut state = shared.state.lock();
    (state.sent, state.broken) = (0, None);
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

/// Whether somebody has waited for longer than that.
pub(super) fn overdue(shared: &Shared) -> bool {
    let state = shared.state.lock();
    let patience =
        if state.away.is_some() { shared.terms.patience.min(AWAY_PATIENCE) } else { shared.terms.patience };
    state.since.is_some_and(|since| since.elapsed() >= patience)
}
