//! What this host has written through the node stays here too until the node says that it is at the targets: so the node may gather it in its memory until it fills rows.
//!
//! * A node that was started anew, or that took over, gets it again: before anything else is done with the file through a handle of this host, and from a host that does nothing as soon as
//!   it notices, since others wait for that. What was written is returned in the order in which the node had it.
//! * What the node has not answered is not returned: it is being asked for that again. An answer of a session of which all was returned already counts as none.
//! * Nothing older is ever returned over what went another way: before that goes what is kept is brought to the targets, and none of its range is kept meanwhile ([`Apart`]).
//! * Calls of mounts are in `cluster/returns.rs`, and those of programs with the native library in `native/spares.rs`; what is kept is here.
//! * What comes too late is lost as it would be if the write itself had failed: fsync and close say so.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::{FsError, Ino};
use wire::{FileCall, Reply, Spare};

/// Most bytes of all files of a mount, or of a program.
pub(crate) const ROOM: u64 = 64 << 20;
/// All of a file.
pub(crate) const WHOLE: Range<u64> = 0..u64::MAX;
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
#[derive(Debug, Default)]
pub(crate) struct Spares {
    state: Mutex<State>,
    /// Something is not under way any more.
    changed: Condvar,
    /// In this session nothing of an earlier one is to be returned.
    whole_in: AtomicU64,
    /// One returns it, others wait for him.
    returns: Mutex<()>,
}

#[derive(Debug, Default)]
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

#[derive(Debug)]
struct Piece {
    epoch: u64,
    offset: u64,
    data: Box<[u8]>,
    /// When it was answered.
    at: u64,
    _taken: Taken,
}

#[derive(Debug)]
struct UnderWay {
    bytes: u64,
    /// It gets no lower place; None: that is not known.
    from: Option<Place>,
}

/// Bytes that are kept of all files.
#[derive(Debug, Default)]
pub(crate) struct Room(pub(crate) AtomicU64);

/// A part of them.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    fn take(self: &Arc<Self>, bytes: u64) -> Option<Taken> {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= ROOM);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Taken { room: self.clone(), bytes })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Why a node was asked in vain.
pub(crate) trait Refusal {
    /// What it said, if it said no.
    fn refused(&self) -> Option<FsError>;
    /// It did.
    fn of(fs: FsError) -> Self;
}

/// What became of what was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It is at the targets, if the file is there.
    All,
    /// It is lost.
    TooLate,
}

/// What becomes of a write.
pub(crate) enum Entry<E> {
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

    /// This session has begun, if that is another one: what is kept is of an earlier one.
    fn turn(&mut self, begun: u64) -> bool {
        let turns = self.session != begun;
        if turns {
            self.session = begun;
            self.earlier.extend(std::mem::take(&mut self.kept).into_values());
            self.returned = 0;
            (self.settled, self.last) = ((0, 0), None);
            self.under_way.values_mut().for_each(|one| one.from = None);
        }
        turns
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
pub(crate) struct Entered<'s> {
    spares: &'s Spares,
    ticket: u64,
    taken: Option<Taken>,
}

impl Entered<'_> {
    /// What the node may take for kept while this is made.
    pub(crate) fn keeps(&self) -> Option<Place> {
        self.spares.state.lock().keeps()
    }

    /// Whether it is kept, or is at the targets; false: it is to be made again.
    pub(crate) fn answered(&mut self, begun: u64, spare: Spare, offset: u64, data: &[u8]) -> bool {
        let data = data.into();
        let Some(taken) = self.taken.take() else { return true };
        let mut state = self.spares.state.lock();
        self.taken = state.answered(self.ticket, begun, spare, (offset, data, taken)).err();
        self.taken.is_none()
    }

    /// It is at the targets, with all that was answered before it was made, and nothing is to be kept for a while.
    pub(crate) fn refused(&self) {
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
pub(crate) struct Apart<'s> {
    spares: &'s Spares,
    ticket: u64,
}

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        self.spares.state.lock().plain.retain(|(ticket, _)| *ticket != self.ticket);
    }
}

impl Spares {
    /// It is open in a session for the first time.
    pub(crate) fn begin(&self, begun: u64) {
        self.state.lock().session = begun;
        self.whole_in.store(begun, Ordering::Release);
    }

    /// A write is about to be made.
    pub(crate) fn enter(&self, range: &Range<u64>, room: &Arc<Room>) -> Entry<Entered<'_>> {
        match self.state.lock().enter(Instant::now(), range, room) {
            Entry::Entered((ticket, taken)) => {
                Entry::Entered(Entered { spares: self, ticket, taken: Some(taken) })
            }
            Entry::Plain => Entry::Plain,
            Entry::Full => Entry::Full,
        }
    }

    /// A write through the node was answered that is not kept.
    pub(crate) fn served(&self) {
        let mut state = self.state.lock();
        state.served = state.served.saturating_add(1);
    }

    pub(crate) fn apart(&self, range: Range<u64>) -> Apart<'_> {
        let mut state = self.state.lock();
        let ticket = state.tick();
        state.plain.push((ticket, range));
        Apart { spares: self, ticket }
    }

    /// What was answered until now is before this moment.
    pub(crate) fn moment(&self) -> u64 {
        self.state.lock().next
    }

    /// What was answered before that moment is at the targets.
    pub(crate) fn settled_before(&self, moment: u64) {
        self.state.lock().settled_before(moment);
    }

    /// Waits for the answers to what was asked before; the moment of then, if something is kept.
    pub(crate) fn wait(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let upto = state.next;
        while state.under_way.keys().next().is_some_and(|first| *first < upto) {
            self.changed.wait(&mut state);
        }
        state.keeps_any().then_some(state.next)
    }

    /// Nothing that was answered in another session than this one is kept, nor will be.
    pub(crate) fn is_whole_in(&self, begun: u64) -> bool {
        self.whole_in.load(Ordering::Acquire) == begun
    }

    /// Who returns what is kept is the only one until this is dropped.
    pub(crate) fn one_returns(&self) -> MutexGuard<'_, ()> {
        self.returns.lock()
    }

    /// Something is kept that another session than this one has answered.
    pub(crate) fn is_late(&self, begun: u64) -> bool {
        let state = self.state.lock();
        !state.earlier.is_empty() || !state.kept.is_empty() && state.session != begun
    }

    /// Something was answered that may not be at the targets.
    pub(crate) fn keeps_any(&self) -> bool {
        self.state.lock().keeps_any()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.under_way.is_empty() && !state.keeps_any()
    }

    /// In this session nothing of an earlier one is kept any more when this returns; `ask` asks its node. What that has taken it is not asked to take again, while
    /// others may have the file already.
    ///
    /// # Errors
    /// Those of `ask`, if that is not that it came too late, or that the file is gone.
    pub(crate) fn bring<E: Refusal>(
        &self,
        ino: Ino,
        begun: u64,
        ask: &mut dyn FnMut(FileCall) -> Result<Reply, E>,
    ) -> Result<Came, E> {
        let brought = match self.bring_all(ino, begun, ask) {
            Ok(()) => Ok(()),
            Err(e) => {
                Err(e.refused().filter(|fs| [FsError::Stale, FsError::NotFound].contains(fs)).ok_or(e)?)
            }
        };
        let bytes = self.state.lock().returned();
        match brought {
            Err(FsError::Stale) => tracing::error!(
                "inode {ino}: {bytes} bytes that programs have written are lost: the node was started anew, and this host came too late with them; fsync and close say so: write them again"
            ),
            Err(_) => tracing::debug!("inode {ino}: it is gone, with {bytes} bytes that were kept of it"),
            Ok(()) if bytes > 0 => {
                tracing::info!(
                    "inode {ino}: {bytes} bytes were brought again to the node that was started anew"
                );
            }
            Ok(()) => {}
        }
        self.whole_in.store(begun, Ordering::Release);
        Ok(if brought == Err(FsError::Stale) { Came::TooLate } else { Came::All })
    }

    fn bring_all<E: Refusal>(
        &self,
        ino: Ino,
        begun: u64,
        ask: &mut dyn FnMut(FileCall) -> Result<Reply, E>,
    ) -> Result<(), E> {
        let mut state = self.state.lock();
        if state.turn(begun) {
            // Until this is done: if it fails, whoever uses a session does it for that.
            self.whole_in.store(0, Ordering::Release);
        }
        while let Some(piece) = state.earlier.get(state.returned).cloned() {
            let index = state.returned as u64;
            drop(state);
            let Piece { epoch, offset, ref data, .. } = *piece;
            let data = data.to_vec();
            match ask(FileCall::ReturnSpared { ino, epoch, index, offset, data })? {
                Reply::Count(_) => {}
                _ => return Err(E::of(FsError::Io)),
            }
            state = self.state.lock();
            state.returned += 1;
        }
        let mut epochs: Vec<u64> = state.earlier.iter().map(|piece| piece.epoch).collect();
        drop(state);
        epochs.dedup();
        for epoch in epochs {
            match ask(FileCall::SparedReturned { ino, epoch })? {
                Reply::Done => {}
                _ => return Err(E::of(FsError::Io)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
