//! What this host has written through the node stays here too until the node says that it is at the targets: so the node may gather it in its memory until it fills rows.
//!
//! * A node that was started anew, or that took over, gets it again: before anything else is done with the file through a handle of this host, and from a host that does nothing as soon as
//!   it notices, since others wait for that. What was written is returned in the order in which the node had it.
//! * What the node has not answered is not returned: it is being asked for that again. An answer of a session of which all was returned already counts as none.
//! * Nothing older is ever returned over what went another way: before that goes what is kept is brought to the targets, and none of its range is kept meanwhile ([`Apart`]).
//! * Calls are in `returns.rs`, what is kept is here.
//! * What comes too late is lost as it would be if the write itself had failed: fsync and close say so.

use super::bytes::{count, done};
use super::lines::{Tried, Trouble};
use super::returns::{Room, Taken};
use super::table::OpenInode;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::{FsError, Ino};
use wire::{FileCall, Reply, Spare};

/// So many writes through the node tell that more will come.
const STEADY: u32 = 8;
/// Where the node wants nothing to be kept it is written to as ever for so long.
const QUIET: Duration = Duration::from_secs(2);
/// Most bytes of one file.
const MOST: u64 = 16 << 20;
/// Most pieces of one file.
const PIECES: usize = 4096;

/// An epoch, and a number in it.
type Place = (u64, u64);

/// What is kept of an open file.
#[derive(Default)]
pub(super) struct Spares {
    state: Mutex<State>,
    /// Something is not under way any more.
    changed: Condvar,
    /// In this session nothing of an earlier one is to be returned.
    whole_in: AtomicU64,
    /// One returns it, others wait for him.
    returns: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// In which it was answered.
    session: u64,
    kept: BTreeMap<Place, Arc<Piece>>,
    /// What was answered in another one before, in order.
    earlier: Vec<Arc<Piece>>,
    /// So many of these this session has taken.
    returned: usize,
    /// What is below is at the targets.
    settled: Place,
    /// The last one that was answered.
    last: Option<Place>,
    /// Writes that are being asked for, by when they were entered.
    under_way: BTreeMap<u64, UnderWay>,
    /// What goes another way just now.
    plain: Vec<(u64, Range<u64>)>,
    /// Tells what was before what.
    next: u64,
    /// Of what is kept, and was earlier.
    bytes: u64,
    /// Writes through the node that were not kept.
    served: u32,
    quiet: Option<Instant>,
}

struct Piece {
    epoch: u64,
    offset: u64,
    data: Box<[u8]>,
    /// When it was answered.
    at: u64,
    _taken: Taken,
}

struct UnderWay {
    bytes: u64,
    /// It gets no lower place; None: that is not known.
    from: Option<Place>,
}

/// What becomes of a write.
pub(super) enum Entry<E> {
    Entered(E),
    /// It is not to be kept.
    Plain,
    /// There is no room for it.
    Full,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn keeps_any(&self) -> bool {
        !self.kept.is_empty() || !self.earlier.is_empty()
    }

    /// A write is about to be made.
    fn enter(&mut self, now: Instant, range: &Range<u64>, room: &Arc<Room>) -> Entry<(u64, Taken)> {
        let quiet = self.quiet.is_some_and(|until| now < until);
        let meets = |(_, other): &(u64, Range<u64>)| other.start < range.end && range.start < other.end;
        if self.served < STEADY || quiet || self.plain.iter().any(meets) {
            return Entry::Plain;
        }
        let len = range.end - range.start;
        let bytes = self.under_way.values().map(|one| one.bytes).sum::<u64>() + self.bytes;
        let pieces = self.under_way.len() + self.kept.len() + self.earlier.len();
        if bytes + len > MOST || pieces >= PIECES {
            return Entry::Full;
        }
        let Some(taken) = room.take(len) else { return Entry::Full };
        let ticket = self.tick();
        let from = self.last.map(|(epoch, number)| (epoch, number.saturating_add(1)));
        self.under_way.insert(ticket, UnderWay { bytes: len, from });
        Entry::Entered((ticket, taken))
    }

    /// What the node may take for kept while this write is made: nothing below, though it may have answered what has not come yet.
    fn keeps(&self) -> Option<Place> {
        let epoch = self.last?.0;
        let begins = (epoch, 0);
        let asked = self.under_way.values();
        let asked = asked.map(|one| one.from.filter(|from| from.0 == epoch).unwrap_or(begins));
        let lowest = self.kept.keys().next().copied().into_iter().chain(asked).min()?;
        Some(lowest.max(self.settled))
    }

    /// A write was answered in a session. An error: what was kept in that is being returned already, so it is to be made again.
    fn answered(
        &mut self,
        ticket: u64,
        begun: u64,
        spare: Spare,
        (offset, data, taken): (u64, Box<[u8]>, Taken),
    ) -> Result<(), Taken> {
        if self.session != begun {
            return Err(taken);
        }
        let place = (spare.epoch, spare.number);
        self.last = self.last.max(Some(place));
        self.settled = self.settled.max((spare.epoch, spare.settled));
        if self.kept.keys().next().is_some_and(|first| *first < self.settled) {
            let rest = self.kept.split_off(&self.settled);
            let gone = std::mem::replace(&mut self.kept, rest);
            self.forget(gone.values());
        }
        self.under_way.remove(&ticket);
        // Answers may come in another order than they were given.
        if place >= self.settled && !data.is_empty() {
            self.bytes += data.len() as u64;
            let at = self.tick();
            let piece = Piece { epoch: spare.epoch, offset, data, at, _taken: taken };
            let before = self.kept.insert(place, Arc::new(piece));
            self.forget(before.iter());
        }
        Ok(())
    }

    fn forget<'p>(&mut self, gone: impl Iterator<Item = &'p Arc<Piece>>) {
        let gone: u64 = gone.map(|piece| piece.data.len() as u64).sum();
        self.bytes = self.bytes.saturating_sub(gone);
    }

    /// What was answered before this moment is at the targets.
    fn settled_before(&mut self, moment: u64) {
        let (gone, rest): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.kept).into_iter().partition(|(_, piece)| piece.at < moment);
        self.kept = rest;
        self.forget(gone.values());
    }

    /// This session has begun: what is kept is of an earlier one.
    fn turn(&mut self, begun: u64) {
        if self.session != begun {
            self.session = begun;
            self.earlier.extend(std::mem::take(&mut self.kept).into_values());
            self.returned = 0;
            (self.settled, self.last) = ((0, 0), None);
            self.under_way.values_mut().for_each(|one| one.from = None);
        }
    }

    /// Nothing is to be returned any more; gives how many bytes were.
    fn returned(&mut self) -> u64 {
        let earlier = std::mem::take(&mut self.earlier);
        let before = self.bytes;
        self.forget(earlier.iter());
        self.returned = 0;
        before - self.bytes
    }
}

/// A write that is being made, and will be kept.
pub(super) struct Entered<'s> {
    spares: &'s Spares,
    ticket: u64,
    taken: Option<Taken>,
}

impl Entered<'_> {
    /// What the node may take for kept while this is made.
    pub(super) fn keeps(&self) -> Option<Place> {
        self.spares.state.lock().keeps()
    }

    /// Whether it is kept, or is at the targets; false: it is to be made again.
    pub(super) fn answered(&mut self, begun: u64, spare: Spare, offset: u64, data: &[u8]) -> bool {
        let data = data.into();
        let Some(taken) = self.taken.take() else { return true };
        let mut state = self.spares.state.lock();
        self.taken = state.answered(self.ticket, begun, spare, (offset, data, taken)).err();
        self.taken.is_none()
    }

    /// It is at the targets, with all that was answered before it was made, and nothing is to be kept for a while.
    pub(super) fn refused(&self) {
        let mut state = self.spares.state.lock();
        state.settled_before(self.ticket);
        state.quiet = Some(Instant::now() + QUIET);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.spares.state.lock().under_way.remove(&self.ticket);
        self.spares.changed.notify_all();
    }
}

/// Something goes another way until this is dropped: nothing in its range is kept.
pub(super) struct Apart<'s> {
    spares: &'s Spares,
    ticket: u64,
}

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        self.spares.state.lock().plain.retain(|(ticket, _)| *ticket != self.ticket);
    }
}

impl Spares {
    /// A write is about to be made.
    pub(super) fn enter(&self, range: &Range<u64>, room: &Arc<Room>) -> Entry<Entered<'_>> {
        match self.state.lock().enter(Instant::now(), range, room) {
            Entry::Entered((ticket, taken)) => {
                Entry::Entered(Entered { spares: self, ticket, taken: Some(taken) })
            }
            Entry::Plain => Entry::Plain,
            Entry::Full => Entry::Full,
        }
    }

    /// A write through the node was answered that is not kept.
    pub(super) fn served(&self) {
        let mut state = self.state.lock();
        state.served = state.served.saturating_add(1);
    }

    pub(super) fn apart(&self, range: Range<u64>) -> Apart<'_> {
        let mut state = self.state.lock();
        let ticket = state.tick();
        state.plain.push((ticket, range));
        Apart { spares: self, ticket }
    }

    /// What was answered until now is before this moment.
    pub(super) fn moment(&self) -> u64 {
        self.state.lock().next
    }

    /// What was answered before that moment is at the targets.
    pub(super) fn settled_before(&self, moment: u64) {
        self.state.lock().settled_before(moment);
    }

    /// Waits for the answers to what was asked before; the moment of then, if something is kept.
    pub(super) fn wait(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let upto = state.next;
        while state.under_way.keys().next().is_some_and(|first| *first < upto) {
            self.changed.wait(&mut state);
        }
        state.keeps_any().then_some(state.next)
    }

    /// Nothing that was answered in another session than this one is kept, nor will be.
    pub(super) fn is_whole_in(&self, begun: u64) -> bool {
        self.whole_in.load(Ordering::Acquire) == begun
    }

    /// Who returns what is kept is the only one until this is dropped.
    pub(super) fn one_returns(&self) -> MutexGuard<'_, ()> {
        self.returns.lock()
    }

    /// Something is kept that another session than this one has answered.
    pub(super) fn is_late(&self, begun: u64) -> bool {
        let state = self.state.lock();
        !state.earlier.is_empty() || !state.kept.is_empty() && state.session != begun
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.under_way.is_empty() && !state.keeps_any()
    }

    /// Returns what is kept of a file to the node of this session. What it has taken it is not asked to take again, while others may have the file already.
    fn bring(&self, ino: Ino, begun: u64, ask: &mut dyn FnMut(FileCall) -> Tried<Reply>) -> Tried<()> {
        let mut state = self.state.lock();
        state.turn(begun);
        while let Some(piece) = state.earlier.get(state.returned).cloned() {
            let index = state.returned as u64;
            drop(state);
            let Piece { epoch, offset, ref data, .. } = *piece;
            let data = data.to_vec();
            let taken = ask(FileCall::ReturnSpared { ino, epoch, index, offset, data })?;
            count(taken).map_err(Trouble::Refused)?;
            state = self.state.lock();
            state.returned += 1;
        }
        let mut epochs: Vec<u64> = state.earlier.iter().map(|piece| piece.epoch).collect();
        drop(state);
        epochs.dedup();
        for epoch in epochs {
            let said = ask(FileCall::SparedReturned { ino, epoch })?;
            done(said).map_err(Trouble::Refused)?;
        }
        Ok(())
    }
}

impl OpenInode {
    /// In this session nothing of an earlier one is kept any more when this returns. `ask` asks its node.
    pub(super) fn return_kept(
        &self,
        ino: Ino,
        begun: u64,
        ask: &mut dyn FnMut(FileCall) -> Tried<Reply>,
    ) -> Tried<()> {
        let spares = &self.spares;
        let brought = spares.bring(ino, begun, ask);
        match brought {
            Ok(()) | Err(Trouble::Refused(FsError::Stale | FsError::NotFound)) => {}
            Err(Trouble::Refused(e)) => {
                tracing::debug!("inode {ino}: what is kept of it is not taken now: {e}");
                return Err(Trouble::Later);
            }
            Err(e) => return Err(e),
        }
        let bytes = spares.state.lock().returned();
        match brought {
            Err(Trouble::Refused(FsError::Stale)) => {
                tracing::error!(
                    "inode {ino}: {bytes} bytes that programs have written are lost: the node was started anew, and this host came too late with them; fsync and close say so: write them again"
                );
                self.behind.lost(FsError::Io);
            }
            Err(_) => tracing::debug!("inode {ino}: it is gone, with {bytes} bytes that were kept of it"),
            Ok(()) if bytes > 0 => {
                tracing::info!(
                    "inode {ino}: {bytes} bytes were brought again to the node that was started anew"
                );
            }
            Ok(()) => {}
        }
        spares.whole_in.store(begun, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::returns::ROOM;
    use super::*;

    const FIRST: u64 = 7;
    const SECOND: u64 = 3;

    /// A file that is written through the node all the time.
    fn steady() -> (OpenInode, Arc<Room>) {
        let inode = OpenInode::default();
        (0..STEADY).for_each(|_| inode.spares.served());
        assert!(inode.return_kept(Ino(5), FIRST, &mut |_| panic!("nothing was kept")).is_ok());
        (inode, Arc::default())
    }

    fn enter<'s>(spares: &'s Spares, room: &Arc<Room>, range: Range<u64>) -> Option<Entered<'s>> {
        match spares.enter(&range, room) {
            Entry::Entered(entered) => Some(entered),
            Entry::Plain | Entry::Full => None,
        }
    }

    fn spare(epoch: u64, number: u64, settled: u64) -> Spare {
        Spare { epoch, number, settled }
    }

    /// A byte was written at this offset and answered in the first session.
    fn wrote(spares: &Spares, room: &Arc<Room>, offset: u64, answer: Spare) {
        let mut entered = enter(spares, room, offset..offset + 1).unwrap();
        assert!(entered.answered(FIRST, answer, offset, b"x"));
    }

    /// Offsets of what is kept.
    fn kept(spares: &Spares) -> Vec<u64> {
        spares.state.lock().kept.values().map(|piece| piece.offset).collect()
    }

    /// What is said to the node of a session: offsets, or the epoch of which there is no more.
    fn returned(
        inode: &OpenInode,
        begun: u64,
        mut answer: impl FnMut(u64) -> Tried<Reply>,
    ) -> (Vec<Result<u64, u64>>, Tried<()>) {
        let mut said = Vec::new();
        let brought = inode.return_kept(Ino(5), begun, &mut |call| match call {
            FileCall::ReturnSpared { offset, .. } => {
                said.push(Ok(offset));
                answer(offset)
            }
            FileCall::SparedReturned { epoch, .. } => {
                said.push(Err(epoch));
                answer(u64::MAX).map(|_| Reply::Done)
            }
            other => panic!("{other:?}"),
        });
        (said, brought)
    }

    #[test]
    fn what_was_answered_is_returned_in_the_order_of_the_node_and_what_is_under_way_is_not() {
        let (inode, room) = steady();
        let spares = &inode.spares;
        let mut writes = [10, 20, 30].map(|at| enter(spares, &room, at..at + 1).unwrap());
        assert!(writes[1].answered(FIRST, spare(4, 1, 0), 20, b"x"));
        assert!(writes[0].answered(FIRST, spare(4, 2, 0), 10, b"x"));
        let (said, brought) = returned(&inode, SECOND, |_| Ok(Reply::Count(1)));
        assert!(brought.is_ok());
        assert_eq!(said, [Ok(20), Ok(10), Err(4)]);
        assert!(spares.is_whole_in(SECOND) && !spares.is_late(SECOND));
        // Its answer is from before that: it is to be made again, and that is kept.
        assert!(!writes[2].answered(FIRST, spare(4, 3, 0), 30, b"x"));
        assert_eq!(kept(spares), [0; 0]);
        assert!(writes[2].answered(SECOND, spare(1, 1, 0), 30, b"xyz"));
        assert_eq!((kept(spares), spares.state.lock().bytes), (vec![30], 3));
        drop(writes);
        assert_eq!(room.0.load(Ordering::Acquire), 1);
    }

    #[test]
    fn what_is_at_the_targets_is_not_kept_in_whatever_order_answers_come() {
        let (inode, room) = steady();
        let spares = &inode.spares;
        (0..4).for_each(|n| wrote(spares, &room, n, spare(4, n, 0)));
        let mut late = enter(spares, &room, 40..41).unwrap();
        let mut older = enter(spares, &room, 41..42).unwrap();
        wrote(spares, &room, 5, spare(4, 5, 2));
        assert_eq!(kept(spares), [2, 3, 5]);
        wrote(spares, &room, 6, spare(4, 6, 5));
        assert!(late.answered(FIRST, spare(4, 4, 1), 40, b"x"));
        assert_eq!(kept(spares), [5, 6], "settled goes only forward");
        wrote(spares, &room, 7, spare(9, 0, 0));
        assert!(older.answered(FIRST, spare(4, 8, 0), 41, b"x"));
        assert_eq!((kept(spares), spares.state.lock().bytes), (vec![7], 1), "another epoch");
    }

    #[test]
    fn who_is_refused_keeps_nothing_of_before_and_keeps_again_later() {
        let (inode, room) = steady();
        let spares = &inode.spares;
        wrote(spares, &room, 1, spare(4, 1, 0));
        let refused = enter(spares, &room, 2..3).unwrap();
        wrote(spares, &room, 3, spare(5, 0, 0));
        refused.refused();
        drop(refused);
        assert_eq!(kept(spares), [3], "it may be of after that");
        assert!(enter(spares, &room, 4..5).is_none());
        let later = Instant::now() + QUIET;
        assert!(matches!(spares.state.lock().enter(later, &(4..5), &room), Entry::Entered(_)));
    }

    #[test]
    fn the_node_hears_of_nothing_less_than_what_may_be_kept() {
        let (inode, room) = steady();
        let spares = &inode.spares;
        let first = enter(spares, &room, 1..2).unwrap();
        assert_eq!(first.keeps(), None);
        wrote(spares, &room, 2, spare(4, 6, 0));
        let second = enter(spares, &room, 3..4).unwrap();
        assert_eq!(
            (first.keeps(), second.keeps()),
            (Some((4, 0)), Some((4, 0))),
            "the first may have any number"
        );
        drop(first);
        assert_eq!(second.keeps(), Some((4, 6)));
        wrote(spares, &room, 4, spare(4, 8, 8));
        assert_eq!(second.keeps(), Some((4, 8)));
        let third = enter(spares, &room, 5..6).unwrap();
        spares.settled_before(spares.moment());
        assert_eq!((second.keeps(), third.keeps()), (Some((4, 8)), Some((4, 8))));
        drop(second);
        assert_eq!(third.keeps(), Some((4, 9)), "it gets no lower number itself");
    }

    #[test]
    fn what_is_kept_has_an_end() {
        let (inode, room) = steady();
        let spares = &inode.spares;
        let full = |len| matches!(spares.enter(&(0..len), &room), Entry::Full);
        let big = enter(spares, &room, 0..MOST - 1).unwrap();
        assert!(full(2) && !full(1));
        drop(big);
        (0..PIECES as u64).for_each(|n| wrote(spares, &room, n, spare(4, n, 0)));
        assert!(full(1));
        let moment = spares.moment();
        assert!(spares.wait().is_some_and(|upto| upto >= moment));
        spares.settled_before(moment);
        assert!(!full(1) && spares.is_empty() && spares.wait().is_none());
        let others = room.take(ROOM - 1).unwrap();
        assert!(full(2) && !full(1));
        drop(others);
        assert_eq!(room.0.load(Ordering::Acquire), 0);
    }

    #[test]
    fn nothing_is_kept_of_a_few_writes_nor_in_the_range_of_what_goes_another_way() {
        let (inode, room) = (OpenInode::default(), Arc::default());
        let spares = &inode.spares;
        for _ in 0..STEADY {
            assert!(enter(spares, &room, 0..1).is_none());
            spares.served();
        }
        let apart = spares.apart(10..20);
        for (range, may) in [(5..10, true), (5..11, false), (12..13, false), (19..30, false), (20..30, true)]
        {
            assert_eq!(enter(spares, &room, range.clone()).is_some(), may, "{range:?}");
        }
        drop(apart);
        let entered = enter(spares, &room, 12..13).unwrap();
        let _later = spares.apart(10..20);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| spares.wait());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waits.is_finished(), "it is under way");
            drop(entered);
            assert_eq!(waits.join().unwrap(), None);
        });
    }

    #[test]
    fn what_a_node_has_taken_it_is_not_asked_to_take_again_but_the_next_node_is() {
        let (inode, room) = steady();
        (1..4).for_each(|n| wrote(&inode.spares, &room, n, spare(4, n, 0)));
        let breaks_at = |broken: u64| {
            move |at| match at == broken {
                true => Err(Trouble::Lost("test".into())),
                false => Ok(Reply::Count(1)),
            }
        };
        let (said, brought) = returned(&inode, SECOND, breaks_at(2));
        assert!(matches!(brought, Err(Trouble::Lost(_))) && inode.spares.is_late(SECOND));
        assert_eq!(said, [Ok(1), Ok(2)]);
        // Here the answer is lost that all of it was taken: others may have written since.
        assert_eq!(returned(&inode, SECOND, breaks_at(u64::MAX)).0, [Ok(2), Ok(3), Err(4)]);
        assert_eq!(returned(&inode, SECOND, breaks_at(u64::MAX)).0, [Err(4)]);
        let (said, brought) = returned(&inode, SECOND + 1, |_| Ok(Reply::Count(0)));
        assert!(brought.is_ok());
        assert_eq!(said, [Ok(1), Ok(2), Ok(3), Err(4)]);
        assert!(inode.spares.is_empty());
        assert_eq!(room.0.load(Ordering::Acquire), 0);
    }

    #[test]
    fn what_comes_too_late_is_lost_and_of_what_is_gone_nobody_is_told() {
        let refused = |e| {
            let (inode, room) = steady();
            wrote(&inode.spares, &room, 1, spare(4, 1, 0));
            let (_, brought) = returned(&inode, SECOND, |_| Err(Trouble::Refused(e)));
            (brought.is_ok(), inode.spares.is_empty(), inode.behind.losses())
        };
        assert_eq!(refused(FsError::Stale), (true, true, 1));
        assert_eq!(refused(FsError::NotFound), (true, true, 0));
        assert_eq!(refused(FsError::NoSpace), (false, false, 0));
    }
}
