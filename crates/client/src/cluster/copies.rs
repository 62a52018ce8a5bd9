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

use super::direct::Direct;
use super::lent::{now, pause};
use super::table::OpenFile;
use super::{Shared, groups::Kind};
use crate::length::{Asked, Telling};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use stripe::{StripeError, Striped, Ways, generation_of, layout_of, redundancy};
use types::FsError;
use types::api::FsResult;
use wire::{CopiesLayout, FileCall, Reply};

/// A file of which the node has written so much (bytes) is asked a right for.
const MUCH: u64 = 1 << 20;
/// Where there is none the node is asked again so much later.
const AGAIN: Duration = Duration::from_secs(2);

/// What is known of the right to write all copies of a file.
#[derive(Default)]
pub(super) struct Copies {
    /// Bytes that the node has written.
    served: AtomicU64,
    /// Rights in a row that were of no use.
    failures: AtomicU32,
    state: Mutex<State>,
    order: Order,
    /// Copies may differ, and the node could not be told.
    untold: AtomicBool,
    /// Rights that are being ended: until they are there is no other one.
    ending: AtomicU32,
}

/// What became of a write to all copies.
pub(super) enum Wrote {
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
    direct: Direct,
    /// Of all capabilities: it is raised when a right is ended.
    generation: u64,
    term: Mutex<Term>,
    /// Nothing is written with it any more.
    dead: AtomicBool,
    /// It is being asked for again.
    renewing: AtomicBool,
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
        let renewed = ways.renewal(self.direct.striped(), self.generation, &found.lent.parts)?;
        let Some(renewed) = renewed.filter(|_| self.is_good()) else { return Ok(false) };
        renewed.begin();
        *self.term.lock() = Term::of(found, asked);
        Ok(true)
    }
}

/// Keeps what goes to the copies apart from what goes through the node.
#[derive(Default)]
pub(super) struct Order {
    /// Passed shared by who writes to the copies. Held alone by who writes through the node once somebody has had a right, and shared until then.
    gate: RwLock<()>,
    /// Somebody has had a right. Changes with the gate held alone.
    had: AtomicBool,
}

/// That the node may write.
pub(super) enum Served<'o> {
    Among(#[expect(dead_code, reason = "held")] RwLockReadGuard<'o, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'o, ()>),
}

impl Order {
    /// Something goes through the node until this is dropped.
    pub(super) fn serve(&self) -> Served<'_> {
        if !self.had.load(Ordering::Acquire) {
            let among = self.gate.read();
            if !self.had.load(Ordering::Acquire) {
                return Served::Among(among);
            }
        }
        Served::Alone(self.gate.write())
    }

    /// A right was got: whoever writes with an earlier one, or through the node, is waited for.
    fn begin(&self) {
        let _alone = self.gate.write();
        self.had.store(true, Ordering::Release);
    }

    /// Waits until nothing goes through the node.
    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }
}

impl Copies {
    /// The node has written so many bytes.
    pub(super) fn note_served(&self, bytes: usize) {
        self.served.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Something goes through the node until this is dropped.
    pub(super) fn serve(&self) -> Served<'_> {
        self.order.serve()
    }

    /// A right is of no use any more; when the node is asked for another one.
    fn drop_right(&self, right: &Arc<Right>, then: State) {
        right.dead.store(true, Ordering::Release);
        let mut state = self.state.lock();
        if matches!(&*state, State::Right(current) if Arc::ptr_eq(current, right)) {
            *state = then;
        }
    }

    fn failed(&self) -> State {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        State::Served(now() + pause(before.saturating_add(1)))
    }
}

impl Shared {
    /// Writes to all copies.
    pub(super) fn write_copies(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        data: &[u8],
    ) -> FsResult<Wrote> {
        let copies = &file.inode.copies;
        if copies.served.load(Ordering::Relaxed) < MUCH || data.is_empty() {
            return Ok(Wrote::Nothing);
        }
        let Some(right) = self.right_to_copies(file) else { return Ok(Wrote::Nothing) };
        let entered = copies.order.enter();
        if !right.is_good() {
            // It is not since somebody else was waited for.
            return Ok(Wrote::Nothing);
        }
        let mut failed = None;
        let pieces = [(offset, data)];
        let mut whole = true;
        let written = self.writing(file, &pieces, || {
            // A machine that was started anew may lack what was written before: only the node knows who has it.
            whole = right.direct.is_whole(file);
            if whole {
                failed = right.direct.put(file, &pieces).err();
                whole = failed.is_some() || right.direct.is_whole(file);
            }
            Ok(whole && failed.is_none())
        });
        drop(entered);
        match failed {
            None if !whole => self.give_up(file, &right).map(|()| Wrote::Some),
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
                    file.ino
                );
                self.give_up(file, &right).map(|()| Wrote::Some)
            }
        }
    }

    /// Not all copies took what was written with a right: it is ended before anything else is written.
    fn give_up(&self, file: &Arc<OpenFile>, right: &Arc<Right>) -> FsResult<()> {
        let copies = &file.inode.copies;
        copies.ending.fetch_add(1, Ordering::AcqRel);
        copies.drop_right(right, copies.failed());
        let ended = self.end_copies(file, false);
        copies.ending.fetch_sub(1, Ordering::AcqRel);
        ended
    }

    /// Nothing of what was written before comes to any copy later, if it counts. `differ`: nobody writes it anew, so that copies may differ.
    pub(super) fn end_copies(&self, file: &Arc<OpenFile>, differ: bool) -> FsResult<()> {
        // At which machines it was written, before the node leaves one of them out.
        let told = self.commit_by(&file.inode, Telling::All, Some(file));
        let number = self.lines.number();
        let call = |handle| Ok(FileCall::CopiesEnd { handle, differ });
        let ended = self.lines.ask_open(Kind::Bytes, file, number.value, &call).and_then(super::bytes::done);
        let ended = ended.and(told.map(drop));
        if ended.is_err() {
            file.inode.copies.untold.store(true, Ordering::Release);
        }
        ended
    }

    /// If copies may differ, the node knows that.
    pub(super) fn settle_copies(&self, file: &Arc<OpenFile>) -> FsResult<()> {
        let untold = file.flags.write && file.inode.copies.untold.swap(false, Ordering::AcqRel);
        if untold { self.end_copies(file, true) } else { Ok(()) }
    }

    fn right_to_copies(self: &Arc<Self>, file: &Arc<OpenFile>) -> Option<Arc<Right>> {
        let copies = &file.inode.copies;
        let mut state = copies.state.lock();
        let (asked, length) = (now(), file.inode.length.asks());
        let old = match &*state {
            State::Right(right) if right.is_good() => {
                if asked >= right.term.lock().renewed && !right.renewing.swap(true, Ordering::AcqRel) {
                    self.renew_behind(file, right);
                }
                return Some(right.clone());
            }
            State::Served(until) if asked < *until => return None,
            _ if copies.ending.load(Ordering::Acquire) > 0 => return None,
            State::Right(right) => Some(right.clone()),
            _ => None,
        };
        let got = self.ask_for_copies(file).map_err(|e| e.to_string());
        let got =
            got.and_then(|found| found.map(|found| self.right(file, &found, (asked, length))).transpose());
        old.iter().for_each(|old| old.dead.store(true, Ordering::Release));
        let (next, right) = match got.map(|got| got.map(Arc::new)) {
            Ok(Some(right)) => (State::Right(right.clone()), Some(right)),
            Ok(None) => (State::Served(now() + AGAIN), None),
            Err(e) => {
                tracing::debug!("inode {}: there is no right to write its copies: {e}", file.ino);
                (copies.failed(), None)
            }
        };
        if right.is_some() || old.is_some() {
            copies.order.begin();
        }
        *state = next;
        right
    }

    /// Asks for a right again that is good for a while; nobody waits for that.
    fn renew_behind(self: &Arc<Self>, file: &Arc<OpenFile>, right: &Arc<Right>) {
        let (shared, file, right) = (self.clone(), file.clone(), right.clone());
        self.landing.ask(Box::new(move || {
            let asked = now();
            let copies = &file.inode.copies;
            match shared
                .ask_for_copies(&file)
                .map(|found| found.map(|found| right.goes_on(&shared.quick_ways, &found, asked)))
            {
                Ok(Some(Ok(true))) => {}
                // Another one, or none.
                Ok(Some(_)) => copies.drop_right(&right, State::Unknown),
                Ok(None) => copies.drop_right(&right, State::Served(now() + AGAIN)),
                // It is good until it ends by itself.
                Err(_) => right.term.lock().renewed = now() + AGAIN,
            }
            right.renewing.store(false, Ordering::Release);
        }));
    }

    fn ask_for_copies(&self, file: &OpenFile) -> FsResult<Option<CopiesLayout>> {
        let number = self.lines.number();
        let call = |handle| Ok(FileCall::LayoutCopies(handle));
        match self.lines.ask_open(Kind::Bytes, file, number.value, &call)? {
            Reply::Copies(layout) => Ok(layout.map(|layout| *layout)),
            _ => Err(FsError::Io),
        }
    }

    fn right(
        &self,
        file: &OpenFile,
        found: &CopiesLayout,
        (asked, length): (Duration, Asked),
    ) -> Result<Right, String> {
        let parts = &found.lent.parts;
        let generation = generation_of(parts)?;
        let ways = self.quick_ways.columns(parts.iter().map(|part| &part.access))?;
        let layout = layout_of(parts.iter().map(|part| (&part.access, redundancy(part))));
        let striped = Striped::open_with(layout, ways, None).map_err(|e| e.to_string())?;
        file.inode.length.found(length, found.lent.length, found.cuts);
        let (term, dead) = (Mutex::new(Term::of(found, asked)), AtomicBool::new(false));
        Ok(Right { direct: Direct::new(striped), generation, term, dead, renewing: AtomicBool::new(false) })
    }
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
        order.begin();
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
    }
}
