//! A file with copies or parity that nobody else has open for writing is written straight to all of its copies, or to its rows and log, by whoever writes much of it,
//! with a right of some seconds. As long as there is no right, and where anything goes wrong, the node writes: it decides which columns count.
//!
//! What lies at the targets belongs together, as all of it takes what is written in the same order:
//!
//! * What overlaps is written one after the other ([`Striped`] sees to that), and nothing goes through the node meanwhile.
//! * What has failed may be in some copies only, or come to one later. So the right is ended first, by the node, which has targets refuse what comes late, and then
//!   the node writes the same bytes.
//! * Whoever writes the log of a coded file is its only writer: one for all handles of this mount, from one right to the next, which has another generation if the one before
//!   was ended.

use crate::length::{Asked, Length};
use crate::lent::{now, pause};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use stripe::{StripeError, Striped, Ways, generation_of, layout_of, redundancy};
use types::{Ino, ObjectId};
use wire::CopiesLayout;

/// A file of which the node has written so much (bytes) is asked a right for.
const MUCH: u64 = 1 << 20;
/// Before it is asked what is under way is waited for, for so long.
const SOON: Duration = Duration::from_millis(500);
/// Where there is none the node is asked again so much later.
const AGAIN: Duration = Duration::from_secs(2);

/// Then it is asked for less and less often, up to so many times in a row.
const REFUSALS: u32 = 3;

/// What is known of the right to write all copies of a file.
#[derive(Default)]
pub(crate) struct Copies {
    /// Bytes that the node has written.
    served: AtomicU64,
    /// Rights in a row that were of no use.
    failures: AtomicU32,
    state: Mutex<State>,
    order: Order,
    /// Copies may differ, and the node could not be told.
    untold: AtomicBool,
    settling: Mutex<()>,
    /// Rights that are being ended: until they are there is no other one.
    ending: AtomicU32,
    /// The last right that failed: what was written with it may come late, so nothing is written with another one of its generation.
    spent: Mutex<Option<Generation>>,
    /// Times in a row that there was none.
    refusals: AtomicU32,
}

/// What became of a write to all copies.
pub(crate) enum Wrote {
    /// All have it.
    All,
    /// Nothing was written.
    Nothing,
    /// Some may have it: the node is to write it, or to be told that nobody does.
    Some,
}

#[derive(Default)]
enum State {
    #[default]
    Unknown,
    /// There was no right, or it was of no use; the node is asked for one then.
    Served(Duration),
    Right(Arc<Right>),
}

/// A right to write all copies.
struct Right {
    striped: Striped,
    generation: Generation,
    term: Mutex<Term>,
    /// Nothing is written with it any more.
    dead: AtomicBool,
    /// It is being asked for again.
    renewing: AtomicBool,
}

/// Of all capabilities of a right: it is raised when that is ended.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Generation {
    /// The first object of the file, which has others with another layout.
    object: Option<ObjectId>,
    number: u64,
}

#[derive(Clone, Copy)]
struct Term {
    /// It is asked for again.
    renewed: Duration,
    /// It counts no more.
    ends: Duration,
}

impl Term {
    fn of(found: &CopiesLayout, asked: Duration) -> Self {
        let term = found.lent.term();
        Self { renewed: asked + term / 2, ends: asked + term }
    }
}

impl Right {
    fn is_good(&self) -> bool {
        !self.dead.load(Ordering::Acquire) && now() < self.term.lock().ends
    }

    /// Goes on for longer. False: it has ended before that was answered, or was ended meanwhile.
    fn goes_on(&self, ways: &Ways, found: &CopiesLayout, asked: Duration) -> Result<bool, String> {
        let renewed = ways.renewal(&self.striped, self.generation.number, &found.lent.parts)?;
        let Some(renewed) = renewed.filter(|_| self.is_good()) else { return Ok(false) };
        renewed.begin();
        *self.term.lock() = Term::of(found, asked);
        Ok(true)
    }
}

/// Keeps what goes to the copies apart from what goes through the node.
#[derive(Default)]
pub(crate) struct Order {
    /// Passed shared by who writes to the copies. Held alone by who writes through the node once somebody has had a right, and shared until then, and again when
    /// there was none when it was asked for.
    gate: RwLock<()>,
    /// Somebody has a right, or had one. Changes with the gate held alone.
    had: AtomicBool,
}

/// That the node may write.
pub(crate) enum Served<'o> {
    Among(#[expect(dead_code, reason = "held")] RwLockReadGuard<'o, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'o, ()>),
}

impl Order {
    /// Something goes through the node until this is dropped.
    pub(crate) fn serve(&self) -> Served<'_> {
        if !self.had.load(Ordering::Acquire) {
            let among = self.gate.read();
            if !self.had.load(Ordering::Acquire) {
                return Served::Among(among);
            }
        }
        Served::Alone(self.gate.write())
    }

    /// Waits until nobody writes with an earlier right, or through the node, which would have it give none; but not for long.
    fn alone(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.gate.try_write_for(SOON)
    }

    /// Whether somebody has a right from now on. The caller has waited ([`Self::alone`]).
    fn change(&self, has: bool, _alone: &RwLockWriteGuard<'_, ()>) {
        self.had.store(has, Ordering::Release);
    }

    /// Waits until nothing goes through the node.
    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }
}

impl Copies {
    /// The node has written so many bytes.
    pub(crate) fn note_served(&self, bytes: usize) {
        self.served.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Something goes through the node until this is dropped.
    pub(crate) fn serve(&self) -> Served<'_> {
        self.order.serve()
    }

    /// Whether there is a right now, and none is being asked for.
    pub(crate) fn has_right(&self) -> bool {
        let state = self.state.try_lock();
        state.is_some_and(|state| matches!(&*state, State::Right(right) if right.is_good()))
    }

    /// Whether the node knows all that it has to know before anybody else writes the file.
    pub(crate) fn is_settled(&self) -> bool {
        !self.untold.load(Ordering::Acquire)
    }

    /// A right is of no use any more; when the node is asked for another one.
    fn drop_right(&self, right: &Arc<Right>, then: State) {
        right.dead.store(true, Ordering::Release);
        let mut state = self.state.lock();
        if matches!(&*state, State::Right(current) if Arc::ptr_eq(current, right)) {
            *state = then;
        }
    }

    /// The node has said that there is none: somebody else may have the file open for long.
    fn refused(&self) -> State {
        let before = self.refusals.fetch_add(1, Ordering::Relaxed);
        State::Served(now() + pause(before.saturating_add(1).min(REFUSALS)))
    }

    fn failed(&self) -> State {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        State::Served(now() + pause(before.saturating_add(1)))
    }
}

/// Who writes a file through its node, and may get a right to write it straight.
pub(crate) trait Writer: Clone + Send + 'static {
    /// Why something could not be done.
    type Error;
    /// Through what it was written.
    type By: Clone;

    /// Number of the file, for messages.
    fn ino(&self) -> Ino;

    /// The same for all who write this file here: they are one writer.
    fn copies(&self) -> &Copies;

    /// What is known of its length.
    fn length(&self) -> &Length<Self::By>;

    /// Connections to movers that do not wait for long.
    fn quick_ways(&self) -> &Ways;

    /// Asks the node for a right, or for the same one again; None: there is none now.
    fn ask(&self) -> Result<Option<CopiesLayout>, String>;

    /// Has pieces written at movers, and the node told if the file is longer then; false: they were not written there.
    fn writing(
        &self,
        pieces: &[(u64, &[u8])],
        write: impl FnOnce() -> Result<bool, Self::Error>,
    ) -> Result<bool, Self::Error>;

    /// Tells the node at which machines something was written, and has it end the right. `differ`: nobody writes anew what may be in some copies only.
    fn end(&self, differ: bool) -> Result<(), Self::Error>;

    /// Does something for which nobody waits.
    fn later(&self, work: impl FnOnce(&Self) + Send + 'static);
}

/// Writes to all copies.
pub(crate) fn write<W: Writer>(writer: &W, offset: u64, data: &[u8]) -> Result<Wrote, W::Error> {
    let copies = writer.copies();
    if copies.served.load(Ordering::Relaxed) < MUCH || data.is_empty() {
        return Ok(Wrote::Nothing);
    }
    let Some(right) = right_now(writer) else { return Ok(Wrote::Nothing) };
    let entered = copies.order.enter();
    if !right.is_good() {
        // It is not since somebody else was waited for.
        return Ok(Wrote::Nothing);
    }
    let mut failed = None;
    let pieces = [(offset, data)];
    let mut whole = true;
    let length = writer.length();
    let written = writer.writing(&pieces, || {
        // A machine that was started anew may lack what was written before: only the node knows who has it.
        whole = length.is_whole(&right.striped);
        if whole {
            failed = length.put(&right.striped, &pieces).err();
            whole = failed.is_some() || length.is_whole(&right.striped);
        }
        Ok(whole && failed.is_none())
    });
    let beyond = matches!(failed, Some(StripeError::Beyond(_)));
    if !whole || (failed.is_some() && !beyond) {
        // Before anybody who waits for this may ask for another one.
        *copies.spent.lock() = Some(right.generation);
        right.dead.store(true, Ordering::Release);
        copies.ending.fetch_add(1, Ordering::AcqRel);
    }
    drop(entered);
    match failed {
        None if !whole => give_up(writer, &right).map(|()| Wrote::Some),
        None => {
            copies.failures.store(0, Ordering::Relaxed);
            written.map(|_| Wrote::All)
        }
        // The node has the file get more, which ends the right.
        Some(StripeError::Beyond(_)) => {
            copies.drop_right(&right, State::Unknown);
            Ok(Wrote::Nothing)
        }
        Some(e) => {
            tracing::debug!(
                "inode {}: not all of its copies were written: {e}; the node writes",
                writer.ino()
            );
            give_up(writer, &right).map(|()| Wrote::Some)
        }
    }
}

/// Not all copies took what was written with a right: it is ended before anything else is written. The caller has counted that it is being ended.
fn give_up<W: Writer>(writer: &W, right: &Arc<Right>) -> Result<(), W::Error> {
    let copies = writer.copies();
    copies.drop_right(right, copies.failed());
    let ended = end(writer, false);
    copies.ending.fetch_sub(1, Ordering::AcqRel);
    ended
}

/// Nothing of what was written before comes to any copy later, if it counts. `differ`: nobody writes it anew, so that copies may differ.
pub(crate) fn end<W: Writer>(writer: &W, differ: bool) -> Result<(), W::Error> {
    let ended = writer.end(differ);
    if ended.is_err() {
        writer.copies().untold.store(true, Ordering::Release);
    }
    ended
}

/// If copies may differ, the node knows that.
pub(crate) fn settle<W: Writer>(writer: &W) -> Result<(), W::Error> {
    let copies = writer.copies();
    if copies.is_settled() {
        return Ok(());
    }
    // One after the other: who comes meanwhile is told the same.
    let _one = copies.settling.lock();
    if copies.is_settled() {
        return Ok(());
    }
    writer.end(true)?;
    copies.untold.store(false, Ordering::Release);
    Ok(())
}

/// The right that there is; if there is none, and it is time to, the node is asked for one.
fn right_now<W: Writer>(writer: &W) -> Option<Arc<Right>> {
    let copies = writer.copies();
    let mut state = copies.state.lock();
    let time = now();
    let old = match &*state {
        State::Right(right) if right.is_good() => {
            let right = right.clone();
            drop(state);
            if time >= right.term.lock().renewed && !right.renewing.swap(true, Ordering::AcqRel) {
                let renewed = right.clone();
                writer.later(move |writer| renew(writer, &renewed));
            }
            return Some(right);
        }
        State::Served(until) if time < *until => return None,
        _ if copies.ending.load(Ordering::Acquire) > 0 => return None,
        State::Right(right) => Some(right.clone()),
        _ => None,
    };
    old.iter().for_each(|old| old.dead.store(true, Ordering::Release));
    let Some(alone) = copies.order.alone() else {
        *state = State::Served(now() + AGAIN);
        return None;
    };
    let asked = (now(), writer.length().asks());
    let got = writer.ask().and_then(|found| found.map(|found| begin(writer, &found, asked)).transpose());
    let (next, right) = match got.map(|got| got.map(Arc::new)) {
        Ok(Some(right)) => (State::Right(right.clone()), Some(right)),
        Ok(None) => (copies.refused(), None),
        Err(e) => {
            tracing::debug!("inode {}: there is no right to write its copies: {e}", writer.ino());
            (copies.failed(), None)
        }
    };
    if right.is_some() {
        copies.refusals.store(0, Ordering::Relaxed);
    }
    copies.order.change(right.is_some(), &alone);
    *state = next;
    right
}

/// Asks for a right again that is good for a while.
fn renew<W: Writer>(writer: &W, right: &Arc<Right>) {
    let asked = now();
    let copies = writer.copies();
    match writer.ask().map(|found| found.map(|found| right.goes_on(writer.quick_ways(), &found, asked))) {
        Ok(Some(Ok(true))) => {}
        // Another one, or none.
        Ok(Some(_)) => copies.drop_right(right, State::Unknown),
        Ok(None) => copies.drop_right(right, State::Served(now() + AGAIN)),
        // It is good until it ends by itself.
        Err(_) => right.term.lock().renewed = now() + AGAIN,
    }
    right.renewing.store(false, Ordering::Release);
}

fn begin<W: Writer>(
    writer: &W,
    found: &CopiesLayout,
    (asked, length): (Duration, Asked),
) -> Result<Right, String> {
    let parts = &found.lent.parts;
    let object = parts.first().map(|part| part.access.object);
    let generation = Generation { object, number: generation_of(parts)? };
    if *writer.copies().spent.lock() == Some(generation) {
        return Err("the one before, which failed, has not been ended yet".into());
    }
    let ways = writer.quick_ways().columns(parts.iter().map(|part| &part.access))?;
    let layout = layout_of(parts.iter().map(|part| (&part.access, redundancy(part))));
    let striped = Striped::open_with(layout, ways, None).map_err(|e| e.to_string())?;
    writer.length().found(length, found.lent.length, found.cuts);
    let (term, dead) = (Mutex::new(Term::of(found, asked)), AtomicBool::new(false));
    Ok(Right { striped, generation, term, dead, renewing: AtomicBool::new(false) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn nothing_goes_to_the_copies_beside_what_goes_through_the_node() {
        let order = Order::default();
        let among = [order.serve(), order.serve()];
        assert!(among.iter().all(|served| matches!(served, Served::Among(_))));
        drop(among);
        order.change(true, &order.alone().unwrap());
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let both = [order.enter(), order.enter()];
            let served = scope.spawn(|| {
                let alone = order.serve();
                assert!(matches!(alone, Served::Alone(_)));
                tell.send(()).unwrap();
            });
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "something goes to the copies");
            drop(both);
            served.join().unwrap();
        });
        drop(order.enter());
        order.change(false, &order.alone().unwrap());
        let among = [order.serve(), order.serve()];
        assert!(among.iter().all(|served| matches!(served, Served::Among(_))));
        assert!(order.alone().is_none(), "something goes through the node");
    }
}
