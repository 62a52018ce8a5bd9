//! What hosts have kept a spare of ([`super::spares`]) comes back to a node that was started anew, or took over, before anybody else has the file.
//!
//! Who keeps something is on record by its epoch. Whoever opens such a file waits until it has been returned, the host has said that it keeps nothing more, or has brought
//! nothing for [`GRACE`]: then it is lost, which is on record before others have the file, and its host is told when it comes late. An epoch that is not on
//! record was ended when all of it was at the targets; or the catalogue is older than it, which its number tells. In a catalogue that comes from a backup, or of a
//! standby that was behind, all that is on record is lost: it may lack that somebody wrote over it.

use super::spares::Epochs;
use crate::Node;
use crate::error::{fs_error, refused};
use crate::files::Writer;
use crate::startup::spawn;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::api::{FsResult, OpenFlags};
use types::{Cx, FsError, Handle, Ino};
use wire::Failure;

/// How long hosts are waited for that bring nothing.
const GRACE: Duration = Duration::from_secs(30);
/// The same of those that bring something again and again that its targets do not take.
const LONGEST: Duration = Duration::from_secs(600);
/// How long whoever opens a file waits for it at most.
const PATIENCE: Duration = Duration::from_secs(50);
/// Between two looks.
const AGAIN: Duration = Duration::from_secs(1);

/// What is on record of a node before this one.
#[derive(Default)]
pub(crate) struct Returning {
    pub(super) epochs: Epochs,
    /// The greatest epoch that the catalogue knew.
    known: AtomicU64,
    /// Somebody is waited for.
    any: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By epoch.
    files: HashMap<Ino, BTreeMap<u64, Kept>>,
    /// What came, or will come, too late, and of which session.
    lost: BTreeMap<(Ino, u64), u64>,
    /// When sessions tried to bring something last, and when that was taken.
    heard: HashMap<u64, (Instant, Instant)>,
}

/// What a host has kept of a file.
struct Kept {
    session: u64,
    /// Through which it is being written, once something has come.
    handle: Option<Handle>,
    /// Calls that bring something of it just now.
    coming: u32,
    /// It comes too late.
    late: bool,
    /// Held by who writes what has come: the place of the next, behind all once all has come. What comes again, as its answer was lost, is not written again.
    turn: Arc<Mutex<u64>>,
}

impl State {
    /// A session has tried to bring something, or has brought it.
    fn heard(&mut self, session: u64, taken: bool) {
        let now = Instant::now();
        let (tried, last) = self.heard.entry(session).or_insert((now, now));
        *tried = now;
        if taken {
            *last = now;
        }
    }
}

impl Kept {
    fn of(session: u64) -> Self {
        Self { session, handle: None, coming: 0, late: false, turn: Arc::default() }
    }
}

/// Until this is dropped something of an epoch is just coming.
struct Coming<'r> {
    returning: &'r Returning,
    ino: Ino,
    epoch: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut state = self.returning.state.lock();
        let kept = state.files.get_mut(&self.ino).and_then(|kept| kept.get_mut(&self.epoch));
        let session = kept.map(|kept| {
            kept.coming -= 1;
            kept.session
        });
        session.into_iter().for_each(|session| state.heard(session, false));
    }
}

/// What becomes of what comes.
enum Found<'r> {
    Awaited(Arc<Mutex<u64>>, Coming<'r>),
    Lost,
    /// It was at the targets before.
    Settled,
    /// This node has given the epoch: only the session has ended.
    Own,
}

impl Returning {
    /// Whether something of a file has to come back before it can be opened.
    pub(crate) fn awaits(&self, ino: Ino) -> bool {
        self.any.load(Ordering::Acquire) && self.state.lock().files.contains_key(&ino)
    }

    /// Of what another session keeps nobody brings anything.
    fn find(&self, session: u64, ino: Ino, epoch: u64) -> Found<'_> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(kept) = state.files.get_mut(&ino).and_then(|kept| kept.get_mut(&epoch)) else {
            return match epoch {
                _ if state.lost.contains_key(&(ino, epoch)) => Found::Lost,
                epoch if epoch <= self.known.load(Ordering::Acquire) => Found::Settled,
                epoch if self.epochs.has_given(epoch) => Found::Own,
                // What the catalogue does not know of may never have come there.
                _ => Found::Lost,
            };
        };
        if kept.late || kept.session != session {
            return Found::Lost;
        }
        kept.coming += 1;
        Found::Awaited(kept.turn.clone(), Coming { returning: self, ino, epoch })
    }

    fn handle(&self, ino: Ino, epoch: u64) -> Option<Handle> {
        let state = self.state.lock();
        state.files.get(&ino)?.get(&epoch)?.handle
    }

    /// What sessions keep that have tried nothing, or brought nothing, for so long, and try nothing just now, comes too late from now on; which that is.
    fn close(&self, silent: Duration, longest: Duration) -> Vec<(Ino, u64)> {
        let mut guard = self.state.lock();
        let State { files, heard, .. } = &mut *guard;
        let busy: BTreeSet<u64> = files
            .values()
            .flat_map(BTreeMap::values)
            .filter(|kept| kept.coming > 0)
            .map(|kept| kept.session)
            .collect();
        let mut late = Vec::new();
        for (ino, kept) in files {
            for (epoch, kept) in kept {
                let (tried, taken) = heard.get(&kept.session).copied().unzip();
                let is_silent = tried.is_none_or(|at| at.elapsed() >= silent);
                let takes_long = taken.is_none_or(|at| at.elapsed() >= longest);
                // What has begun ends; nothing more does.
                kept.late |= takes_long || (is_silent && !busy.contains(&kept.session));
                late.extend((kept.late && kept.coming == 0).then_some((*ino, *epoch)));
            }
        }
        late
    }

    /// Something of a session was taken.
    fn taken(&self, ino: Ino, epoch: u64) {
        let mut state = self.state.lock();
        let session = state.files.get(&ino).and_then(|kept| kept.get(&epoch)).map(|kept| kept.session);
        session.into_iter().for_each(|session| state.heard(session, true));
    }

    /// What of this node's own epochs is at the targets by now.
    fn settled(&self, ino: Ino, epoch: u64) -> FsResult<()> {
        if self.state.lock().lost.contains_key(&(ino, epoch)) { Err(FsError::Stale) } else { Ok(()) }
    }

    /// What comes of an epoch comes too late.
    pub(super) fn lose(&self, ino: Ino, epoch: u64, session: u64) {
        self.state.lock().lost.insert((ino, epoch), session);
    }

    /// That is waited for no more; gives the handle by which it was written.
    fn end(&self, ino: Ino, epoch: u64, lost: bool) -> Option<Handle> {
        let mut state = self.state.lock();
        let kept = state.files.get_mut(&ino)?;
        let ended = kept.remove(&epoch);
        if kept.is_empty() {
            state.files.remove(&ino);
        }
        match (&ended, lost) {
            (Some(ended), true) => drop(state.lost.insert((ino, epoch), ended.session)),
            // It goes on with the next file.
            (Some(ended), false) => state.heard(ended.session, true),
            (None, _) => {}
        }
        self.any.store(!state.files.is_empty(), Ordering::Release);
        self.changed.notify_all();
        ended?.handle
    }

    /// All that is waited for of a session.
    fn all_of(&self, session: u64) -> Vec<(Ino, u64)> {
        let state = self.state.lock();
        let all = state.files.iter().flat_map(|(ino, kept)| kept.iter().map(|kept| (*ino, kept)));
        all.filter(|(_, (_, kept))| kept.session == session).map(|(ino, (epoch, _))| (ino, *epoch)).collect()
    }

    /// All that a session has lost.
    fn lost_of(&self, session: u64) -> Vec<(Ino, u64)> {
        let state = self.state.lock();
        state.lost.iter().filter(|(_, of)| **of == session).map(|(lost, _)| *lost).collect()
    }
}

impl Node {
    /// Waits until all has come back that hosts have kept of a file, or is lost.
    ///
    /// # Errors
    /// EIO: that takes too long, or the node stops.
    pub(super) fn wait_for_spares(&self, ino: Ino) -> FsResult<()> {
        let begun = Instant::now();
        while self.spared.awaits(ino) {
            if self.stops_within(Duration::ZERO) || begun.elapsed() >= PATIENCE {
                return Err(FsError::Io);
            }
            let mut state = self.spared.state.lock();
            if state.files.contains_key(&ino) {
                self.spared.changed.wait_for(&mut state, AGAIN);
            }
        }
        Ok(())
    }

    /// If hosts kept something when the node ended, waits for them to return it.
    pub(crate) fn begin_returning(self: &Arc<Self>) -> Result<(), Failure> {
        let fail = |e| refused("what hosts keep", &e);
        let last = self.catalog.last_spare().map_err(fail)?;
        self.spared.known.store(last, Ordering::Release);
        self.spared.epochs.begin(last, crate::now());
        let mut state = self.spared.state.lock();
        for kept in self.catalog.spares().map_err(fail)? {
            if kept.lost {
                state.lost.insert((kept.ino, kept.epoch), kept.session);
                continue;
            }
            state.heard(kept.session, true);
            state.files.entry(kept.ino).or_default().insert(kept.epoch, Kept::of(kept.session));
        }
        let files = state.files.len();
        drop(state);
        if files == 0 {
            return Ok(());
        }
        self.spared.any.store(true, Ordering::Release);
        tracing::info!("hosts may return what they have kept of {files} files");
        let node = self.clone();
        spawn(Some(self), "returning", move || node.end_returning()).map(drop)
    }

    /// What does not come in time is lost.
    fn end_returning(&self) {
        while self.spared.any.load(Ordering::Acquire) && !self.stops_within(AGAIN) {
            for (ino, epoch) in self.spared.close(GRACE, LONGEST) {
                tracing::error!(
                    "inode {ino}: a host that was writing it has brought nothing for {GRACE:?}, or nothing that was taken for {LONGEST:?}; what it wrote last, and did not sync, may be lost"
                );
                match self.catalog.lose_spare(ino, epoch) {
                    Ok(()) => self.returned(ino, epoch, true),
                    Err(e) => {
                        tracing::error!("inode {ino}: that cannot be recorded, and is tried again: {e}")
                    }
                }
            }
        }
    }

    fn returned(&self, ino: Ino, epoch: u64, lost: bool) {
        if let Some(handle) = self.spared.end(ino, epoch, lost) {
            self.close_file(handle);
        }
        self.attributes_changed(ino);
        self.movers.wake();
    }

    /// Something comes that a host has kept, at its place among all that comes; false: it was at the targets before.
    ///
    /// # Errors
    /// ESTALE: it comes too late. ENOENT: the file is gone.
    pub(crate) fn return_spare(
        &self,
        session: u64,
        (ino, epoch, index): (Ino, u64, u64),
        offset: u64,
        data: &[u8],
    ) -> FsResult<bool> {
        let (turn, _coming) = match self.spared.find(session, ino, epoch) {
            Found::Settled => return Ok(false),
            Found::Own => {
                self.settle_kept(session, ino, epoch)?;
                return self.spared.settled(ino, epoch).map(|()| false);
            }
            Found::Lost => return Err(FsError::Stale),
            Found::Awaited(turn, coming) => (turn, coming),
        };
        let mut next = turn.lock();
        if index < *next {
            return Ok(true);
        }
        let handle = self.spared.handle(ino, epoch).map_or_else(|| self.open_to_return(ino, epoch), Ok)?;
        if self.write_file(handle, offset, data, true, Writer::Elsewhere)? != data.len() {
            return Err(FsError::NoSpace);
        }
        *next = index + 1;
        self.spared.taken(ino, epoch);
        Ok(true)
    }

    /// The caller has the turn.
    fn open_to_return(&self, ino: Ino, epoch: u64) -> FsResult<Handle> {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let handle = match self.open_file_now(&Cx::admin(crate::now()), ino, flags) {
            Ok(opened) => opened.handle,
            Err(FsError::Stale) => return Err(FsError::NotFound),
            Err(e) => return Err(e),
        };
        let mut state = self.spared.state.lock();
        if let Some(kept) = state.files.get_mut(&ino).and_then(|kept| kept.get_mut(&epoch)) {
            kept.handle = Some(handle);
            return Ok(handle);
        }
        drop(state);
        self.close_file(handle);
        Err(FsError::Stale)
    }

    /// All of an epoch has come: it is durable when this returns.
    ///
    /// # Errors
    /// ESTALE: it is lost.
    pub(crate) fn spare_returned(&self, session: u64, ino: Ino, epoch: u64) -> FsResult<()> {
        let (turn, _coming) = match self.spared.find(session, ino, epoch) {
            Found::Settled => return Ok(()),
            Found::Own => {
                self.settle_kept(session, ino, epoch)?;
                return self.spared.settled(ino, epoch);
            }
            Found::Lost => return Err(FsError::Stale),
            Found::Awaited(turn, coming) => (turn, coming),
        };
        let mut next = turn.lock();
        if let Some(handle) = self.spared.handle(ino, epoch) {
            self.sync_file(handle)?;
        }
        self.catalog.forget_spares(ino, &[epoch]).map_err(|e| fs_error("fsync", &e))?;
        *next = u64::MAX;
        self.returned(ino, epoch, false);
        Ok(())
    }

    /// A session keeps nothing more of an earlier node, and knows what is lost.
    pub(crate) fn spares_over(&self, session: u64) -> FsResult<()> {
        for (ino, epoch) in self.spared.all_of(session) {
            match self.spare_returned(session, ino, epoch) {
                Ok(()) | Err(FsError::Stale) => {}
                Err(e) => return Err(e),
            }
        }
        for (ino, epoch) in self.spared.lost_of(session) {
            self.catalog.forget_spares(ino, &[epoch]).map_err(|e| fs_error("write", &e))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Time;

    #[test]
    fn what_is_on_record_is_awaited_and_what_the_catalogue_never_knew_is_lost() {
        let returning = Returning::default();
        returning.known.store(10, Ordering::Release);
        returning.epochs.begin(10, Time::from_nanos(1_000));
        let ino = Ino(5);
        {
            let mut state = returning.state.lock();
            state.files.insert(ino, BTreeMap::from([(7, Kept::of(3)), (9, Kept::of(4))]));
            [3, 4].into_iter().for_each(|session| state.heard(session, true));
        }
        returning.any.store(true, Ordering::Release);
        assert!(returning.awaits(ino) && !returning.awaits(Ino(6)));
        assert!(matches!(returning.find(3, ino, 8), Found::Settled), "it was ended before");
        assert!(matches!(returning.find(3, ino, 11), Found::Lost), "of a catalogue that knew more");
        assert!(matches!(returning.find(3, ino, 1_000), Found::Lost), "of a node with another clock");
        let own = returning.epochs.next();
        assert!(matches!(returning.find(3, ino, own), Found::Own));
        assert_eq!(returning.all_of(3), [(ino, 7)]);
        assert!(matches!(returning.find(4, ino, 7), Found::Lost), "another one keeps it");
        let Found::Awaited(turn, coming) = returning.find(3, ino, 7) else { panic!("it is awaited") };
        assert_eq!(*turn.lock(), 0);
        assert_eq!(returning.close(GRACE, LONGEST), [], "both were heard of just now");
        assert_eq!(
            returning.close(Duration::ZERO, LONGEST),
            [(ino, 9)],
            "something of the other is just coming"
        );
        drop(coming);
        returning.end(ino, 9, true);
        assert_eq!(returning.close(GRACE, LONGEST), [], "it was heard of just now");
        assert_eq!(returning.close(GRACE, Duration::ZERO), [(ino, 7)], "nothing of it was taken");
        assert!(matches!(returning.find(3, ino, 7), Found::Lost), "it comes too late");
        assert!(returning.awaits(ino), "until that is on record");
        returning.end(ino, 7, true);
        assert!(!returning.awaits(ino));
        assert!(matches!(returning.find(3, ino, 7), Found::Lost));
        assert_eq!(returning.lost_of(3), [(ino, 7)]);
    }
}
