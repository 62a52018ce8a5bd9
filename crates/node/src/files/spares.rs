//! What hosts keep a spare of: of a file with parity that several have open for writing, what they write through the node stays in its memory until it fills rows, as that of
//! programs here does ([`super::behind`]). A host keeps a spare of each write until the node has told it that it is at the targets, and brings it to the
//! node that serves next ([`super::returned`]): so what it was answered outlives this one.
//!
//! * That a host keeps something of a file is on record before anything of it is in memory only. An *epoch* is what it is recorded by.
//! * No two hosts keep the same byte, and nobody writes over what a host keeps, nor cuts it off: first all of it comes to the targets, and the epochs are taken from
//!   the record. What was kept in them is then refused, as it is older.
//! * Writes have numbers. One below [`FarFile::settled`] is at the targets, so its host needs no spare of it; until the host has said that it knows, it may return it.

use super::behind::Writer;
use super::far::FarFile;
use super::open::OpenFile;
use crate::Node;
use crate::clock::Moment;
use crate::error::fs_error;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use types::api::FsResult;
use types::{FsError, Handle, Ino, Time};
use wire::Spare;

/// Once somebody has written over what another one kept, nothing is kept of the file for so long: each such meeting costs more than what keeping gains.
const REST: Duration = Duration::from_secs(10);

/// Most bytes that were written since what is in memory only: each host can keep only so much, and rows that nobody completes are to hold up nobody.
const BEHIND: u64 = 12 << 20;
/// Whoever runs ahead of others waits for them before so many bytes of rows are in memory that they have to complete (some four rows, if those are larger). What they write meanwhile is as much
/// or more, and with more than [`BEHIND`] in all such rows would be written as they are, through the log.
pub(super) const AHEAD: u64 = BEHIND / 3;

/// Threads that write complete rows of one file.
const WRITERS: usize = 3;

/// What is kept of an open file.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Something is: whoever writes looks whether it is what he writes over. Set and taken with the length held alone.
    live: AtomicBool,
    state: Mutex<State>,
    /// Held by who writes what was left behind.
    catching_up: Mutex<()>,
    /// Threads that write rows which are complete.
    writing: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the next write: the bytes of those before.
    next: u64,
    /// Writes that are not answered.
    under_way: BTreeSet<u64>,
    /// By session.
    hosts: BTreeMap<u64, Host>,
    /// What is just written that nobody keeps.
    plain: Vec<Range<u64>>,
    rests: Option<Moment>,
    /// It failed to take epochs from the record: whether they are there is not known, so nothing is kept in them, or written beside them, before that is done.
    unsure: bool,
}

#[derive(Debug)]
struct Host {
    epoch: u64,
    /// What it may have a spare of, by number.
    kept: BTreeMap<u64, Range<u64>>,
    /// Open files through which it has written that.
    by: BTreeSet<usize>,
}

/// Who keeps what he writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeper {
    /// Session of the host.
    session: u64,
    /// Open file through which it writes.
    file: usize,
    /// An epoch, and below which number of it the host keeps nothing any more.
    knows: Option<(u64, u64)>,
}

/// What becomes of a write that its host keeps.
#[derive(Debug, PartialEq, Eq)]
enum Entered {
    /// It has this epoch and number, and is under way.
    As(u64, u64),
    /// Another host keeps some of the same bytes.
    Meets,
    /// Of this host nothing is on record.
    Unknown,
}

impl State {
    fn enter(&mut self, by: &Keeper, range: &Range<u64>) -> Entered {
        // Else what is kept might be returned over what came to lie over it.
        if self.unsure
            || self.meets(range, Some(by.session))
            || self.plain.iter().any(|other| overlap(other, range))
        {
            return Entered::Meets;
        }
        let Some(host) = self.hosts.get_mut(&by.session) else { return Entered::Unknown };
        if let Some((_, settled)) = by.knows.filter(|(epoch, _)| *epoch == host.epoch) {
            host.kept = host.kept.split_off(&settled);
        }
        let number = self.next;
        self.next += (range.end - range.start).max(1);
        self.under_way.insert(number);
        host.kept.insert(number, range.clone());
        host.by.insert(by.file);
        Entered::As(host.epoch, number)
    }

    /// Whether a host but this one keeps something of a range.
    fn meets(&self, range: &Range<u64>, but: Option<u64>) -> bool {
        let others = self.hosts.iter().filter(|(session, _)| Some(**session) != but);
        others.flat_map(|(_, host)| host.kept.values()).any(|kept| overlap(kept, range))
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Something that nobody keeps is being written until this is dropped.
pub(super) struct Plain<'s>(Option<(&'s Spares, Range<u64>)>);

impl Drop for Plain<'_> {
    fn drop(&mut self) {
        if let Some((spares, range)) = &self.0 {
            let mut state = spares.state.lock();
            if let Some(at) = state.plain.iter().position(|other| other == range) {
                state.plain.swap_remove(at);
            }
        }
    }
}

/// A write is under way until this is dropped.
struct UnderWay<'s>(&'s Spares, u64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state.lock().under_way.remove(&self.1);
    }
}

/// Numbers for epochs: greater than all that the catalogue knows, also of the node before.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    /// The least that this node gives.
    first: AtomicU64,
    last: AtomicU64,
}

impl Epochs {
    /// Behind the last that was given.
    pub(super) fn begin(&self, last: u64, now: Time) {
        let first = now.as_nanos().unsigned_abs().min(i64::MAX as u64 / 2).max(last + 1);
        self.first.store(first, Ordering::Release);
        self.last.store(first, Ordering::Release);
    }

    pub(super) fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::AcqRel)
    }

    /// Whether this node has given it.
    pub(super) fn has_given(&self, epoch: u64) -> bool {
        (self.first.load(Ordering::Acquire)..self.last.load(Ordering::Acquire)).contains(&epoch)
    }
}

impl FarFile {
    /// Writes what a host keeps a spare of; what it is to know of that, or None: it is at the targets, and so is all that its session kept before.
    fn write_spared(&self, by: &Keeper, offset: u64, data: &[u8]) -> FsResult<Option<Spare>> {
        loop {
            let shared = self.length.read();
            let range = Self::range_of(offset, data)?;
            if !self.reaches(range.end) {
                drop(shared);
                self.reach(range.end)?;
                continue;
            }
            let entered = self.spares.state.lock().enter(by, &range);
            match entered {
                Entered::As(epoch, number) => {
                    let under_way = UnderWay(&self.spares, number);
                    self.put(range, data, (Some(number), true))?;
                    drop(under_way);
                    return Ok(Some(Spare { epoch, number, settled: self.catch_up(number) }));
                }
                Entered::Meets => {
                    drop(shared);
                    self.part()?;
                }
                Entered::Unknown => {
                    drop(shared);
                    if !self.begin_keeping(by.session)? {
                        self.write(offset, data, false, Writer::Elsewhere)?;
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Below this number all is at the targets.
    fn settled(&self) -> u64 {
        // In this order: what is under way no more is in memory, or there.
        let (next, first) = {
            let state = self.spares.state.lock();
            (state.next, state.under_way.first().copied())
        };
        let gathered = self.striped().least_gathered();
        next.min(first.unwrap_or(next)).min(gathered.unwrap_or(next))
    }

    /// Writes the oldest of what is in memory if too much was written since; gives [`FarFile::settled`]. What that fails with whoever syncs is told.
    fn catch_up(&self, now: u64) -> u64 {
        let settled = self.settled();
        if settled.saturating_add(BEHIND) > now {
            return settled;
        }
        if let Some(_one) = self.spares.catching_up.try_lock() {
            let _ = self.flush_below(now - BEHIND / 2);
        }
        self.settled()
    }

    /// It is on record that the host of a session keeps what it writes; false: it does not now.
    fn begin_keeping(&self, session: u64) -> FsResult<bool> {
        let _alone = self.length.write();
        let place = self.place();
        let Some(node) = place.node() else { return Ok(false) };
        let can = place.striped.is_coded() && !self.pending.fails() && node.movers.behind.keeps();
        let mut state = self.spares.state.lock();
        if !can || state.rests.is_some_and(|until| Moment::now() < until) {
            return Ok(state.hosts.contains_key(&session));
        }
        if let Entry::Vacant(host) = state.hosts.entry(session) {
            let epoch = node.spared.epochs.next();
            node.catalog.keep_spare(self.ino, epoch, session).map_err(|e| fs_error("write", &e))?;
            host.insert(Host { epoch, kept: BTreeMap::new(), by: BTreeSet::new() });
            self.spares.live.store(true, Ordering::Release);
        }
        Ok(true)
    }

    /// Somebody writes these bytes, and does not keep them; None: he writes over what a host keeps. The caller holds the length.
    pub(super) fn enter_plain(&self, range: &Range<u64>) -> Option<Plain<'_>> {
        if !self.keeps_spares() {
            return Some(Plain(None));
        }
        let mut state = self.spares.state.lock();
        if state.unsure || state.meets(range, None) {
            return None;
        }
        state.plain.push(range.clone());
        Some(Plain(Some((&self.spares, range.clone()))))
    }

    /// Whether somebody who cuts these bytes off cuts off what a host keeps. The caller holds the length.
    pub(super) fn meets_spares(&self, range: &Range<u64>) -> bool {
        self.keeps_spares() && {
            let state = self.spares.state.lock();
            state.unsure || state.meets(range, None)
        }
    }

    /// Brings all to the targets that hosts keep; nothing is kept for a while then.
    pub(super) fn part(&self) -> FsResult<()> {
        let _alone = self.length.write();
        self.spares.state.lock().rests = Some(Moment::now() + REST);
        self.end_keeping()
    }

    /// Whether hosts may have a spare of something.
    pub(super) fn keeps_spares(&self) -> bool {
        self.spares.live.load(Ordering::Acquire)
    }

    /// What hosts keep of it, by epoch.
    fn kept_epochs(&self) -> Vec<(u64, u64)> {
        let state = self.spares.state.lock();
        state.hosts.iter().map(|(session, host)| (host.epoch, *session)).collect()
    }

    /// The session that keeps something in this epoch, if it has not ended.
    fn keeper_of(&self, epoch: u64) -> Option<u64> {
        // Who just ends it holds this.
        let _alone = self.length.write();
        let state = self.spares.state.lock();
        state.hosts.iter().find(|(_, host)| host.epoch == epoch).map(|(session, _)| *session)
    }

    /// Nobody returns anything that was kept until now: it is at the targets.
    pub(crate) fn settle_spares(&self) -> FsResult<()> {
        if !self.keeps_spares() {
            return Ok(());
        }
        let _alone = self.length.write();
        self.end_keeping()
    }

    /// The same; the caller holds the length alone.
    pub(super) fn end_keeping(&self) -> FsResult<()> {
        if !self.keeps_spares() {
            return Ok(());
        }
        self.flush()?;
        let node = self.place().node().ok_or(FsError::Io)?;
        let mut state = self.spares.state.lock();
        let epochs: Vec<u64> = state.hosts.values().map(|host| host.epoch).collect();
        state.unsure = true;
        node.catalog.forget_spares(self.ino, &epochs).map_err(|e| fs_error("write", &e))?;
        state.unsure = false;
        state.hosts.clear();
        self.spares.live.store(false, Ordering::Release);
        Ok(())
    }

    /// An open file is closed, and all that was written through it is durable: whose last one it is keeps nothing any more.
    pub(super) fn leave_spares(&self, node: &Node, file: usize) {
        if !self.keeps_spares() {
            return;
        }
        let _alone = self.length.write();
        let mut state = self.spares.state.lock();
        state.hosts.values_mut().for_each(|host| _ = host.by.remove(&file));
        let ended: Vec<u64> =
            state.hosts.values().filter(|host| host.by.is_empty()).map(|host| host.epoch).collect();
        let forgotten = match ended[..] {
            [] => return,
            _ => node.catalog.forget_spares(self.ino, &ended),
        };
        match forgotten {
            Ok(()) => state.hosts.retain(|_, host| !host.by.is_empty()),
            Err(e) => {
                state.unsure = true;
                tracing::warn!("inode {}: that a host keeps nothing of it is not recorded: {e}", self.ino);
            }
        }
        self.spares.live.store(!state.hosts.is_empty(), Ordering::Release);
    }
}

/// Tells an open file from all others.
pub(super) fn number_of(file: &OpenFile) -> usize {
    std::ptr::from_ref(file).addr()
}

impl Node {
    /// Writes through a handle what the host of a session keeps a spare of; see [`FarFile::write_spared`].
    pub(crate) fn write_spared(
        &self,
        handle: Handle,
        (offset, data): (u64, &[u8]),
        session: u64,
        knows: Option<(u64, u64)>,
    ) -> FsResult<(usize, Option<Spare>)> {
        let file = self.open.handle(handle).filter(|file| file.flags.write);
        let file = file.ok_or(FsError::BadHandle)?;
        let far: Option<Arc<FarFile>> = {
            let state = file.inode.state.lock();
            state.backing.as_ref().and_then(|backing| backing.far()).cloned()
        };
        let Some(far) = far.filter(|far| far.striped().is_coded()) else {
            return Ok((self.write_file(handle, offset, data, true, Writer::Elsewhere)?, None));
        };
        let by = Keeper { session, file: number_of(&file), knows };
        let spare = far.write_spared(&by, offset, data)?;
        self.write_completed(&far);
        Ok((data.len(), spare))
    }

    /// Has rows written that are complete: whoever completed them need not wait for that, as he has a spare.
    fn write_completed(&self, far: &Arc<FarFile>) {
        let Some(node) = self.movers.node() else { return };
        let one_more = |writing| Some(writing + 1).filter(|writing| *writing <= WRITERS);
        let writing = &far.spares.writing;
        if !far.striped().has_completed()
            || writing.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err()
        {
            return;
        }
        let far = far.clone();
        self.movers.run_behind(Box::new(move || {
            let written = node.while_open(far.ino, |backing| match backing.far() {
                Some(open) if Arc::ptr_eq(open, &far) => far.write_completed(),
                _ => false,
            });
            far.spares.writing.fetch_sub(1, Ordering::AcqRel);
            if written == Some(true) {
                // One may have been completed just now, whose writer found enough of us.
                node.write_completed(&far);
            }
        }));
    }

    /// What was kept in an epoch of this node is at the targets.
    ///
    /// # Errors
    /// ESTALE: another session than this one keeps it.
    pub(super) fn settle_kept(&self, session: u64, ino: Ino, epoch: u64) -> FsResult<()> {
        let settle = |far: &FarFile| match far.keeper_of(epoch) {
            // All of it was brought there before the epoch was taken from the record.
            None => Ok(()),
            Some(keeper) if keeper == session => far.settle_spares(),
            Some(_) => Err(FsError::Stale),
        };
        let settled = self.while_open(ino, |backing| backing.far().map_or(Ok(()), |far| settle(far)));
        settled.unwrap_or(Ok(()))
    }

    /// Nobody has the file open any more: what hosts keep is at the targets, or is lost, if not all of it is there.
    pub(super) fn close_spares(&self, far: &FarFile) {
        if !far.keeps_spares() {
            return;
        }
        let kept = far.kept_epochs();
        let ended = match far.is_settled() {
            true => {
                self.catalog.forget_spares(far.ino, &kept.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>())
            }
            false => {
                // All of them, whatever can be recorded of that: whoever brings one is told.
                kept.iter().for_each(|(epoch, session)| self.spared.lose(far.ino, *epoch, *session));
                kept.iter().try_for_each(|(epoch, _)| self.catalog.lose_spare(far.ino, *epoch))
            }
        };
        if let Err(e) = ended {
            tracing::warn!("inode {}: that nobody keeps anything of it is not recorded: {e}", far.ino);
        }
    }

    /// What was written through the node to the file of a handle is at its targets.
    pub(crate) fn settle_spared(&self, handle: types::Handle) -> FsResult<()> {
        let file = self.open.handle(handle).ok_or(FsError::BadHandle)?;
        let backing = file.inode.state.lock().backing.clone();
        backing.as_ref().and_then(|backing| backing.far()).map_or(Ok(()), |far| far.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(epoch: u64) -> Host {
        Host { epoch, kept: BTreeMap::new(), by: BTreeSet::new() }
    }

    fn by(session: u64, knows: Option<(u64, u64)>) -> Keeper {
        Keeper { session, file: 1, knows }
    }

    #[test]
    fn what_one_host_may_return_another_one_does_not_write_over() {
        let mut state = State::default();
        assert_eq!(state.enter(&by(1, None), &(0..10)), Entered::Unknown);
        state.hosts.insert(1, host(7));
        state.hosts.insert(2, host(8));
        assert_eq!(state.enter(&by(1, None), &(0..10)), Entered::As(7, 0));
        assert_eq!(state.enter(&by(1, None), &(5..15)), Entered::As(7, 10), "it returns them in this order");
        assert_eq!(state.enter(&by(2, None), &(15..20)), Entered::As(8, 20), "beside it");
        assert_eq!(state.enter(&by(2, None), &(14..16)), Entered::Meets);
        assert!(state.meets(&(19..100), None), "whoever else writes, too");
        // It knows that the first two are at the targets; in an epoch that has ended that says nothing.
        assert_eq!(state.enter(&by(1, Some((6, 20))), &(30..31)), Entered::As(7, 25));
        assert_eq!(state.enter(&by(2, None), &(0..1)), Entered::Meets);
        assert_eq!(state.enter(&by(1, Some((7, 20))), &(31..32)), Entered::As(7, 26));
        assert_eq!(state.enter(&by(2, None), &(0..15)), Entered::As(8, 27));
        assert!(state.meets(&(30..31), Some(2)) && !state.meets(&(30..31), Some(1)));
        state.plain.push(50..60);
        assert_eq!(state.enter(&by(1, None), &(40..51)), Entered::Meets, "it may come to lie below that");
        assert_eq!(state.enter(&by(1, None), &(40..50)), Entered::As(7, 42));
        state.unsure = true;
        assert_eq!(state.enter(&by(1, None), &(70..80)), Entered::Meets, "its epoch may not be on record");
    }

    #[test]
    fn epochs_are_greater_than_all_that_the_catalogue_knows() {
        let epochs = Epochs::default();
        epochs.begin(5, Time::from_nanos(1_000));
        assert_eq!([epochs.next(), epochs.next()], [1_000, 1_001]);
        assert_eq!(
            [999, 1_000, 1_001, 1_002].map(|epoch| epochs.has_given(epoch)),
            [false, true, true, false]
        );
        // A clock that was set back.
        epochs.begin(5_000, Time::from_nanos(1_000));
        assert_eq!((epochs.first.load(Ordering::Acquire), epochs.next()), (5_001, 5_001));
    }
}
