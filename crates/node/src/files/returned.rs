//! What hosts have kept a spare of ([`super::spares`]) comes back to a node that was started anew, or took over, before anybody else has the file.
//!
//! Who keeps something is on record by its epoch. Whoever opens such a file waits until it has been returned, the host has said that it keeps nothing more, or [`GRACE`]
//! has passed: then it is lost, which is on record before others have the file, and its host is told when it comes late. An epoch that is not on
//! record was ended when all of it was at the targets; or the catalogue is older than it (a backup, a standby that was behind), which its number tells.

use super::spares::Epochs;
use crate::Node;
use crate::error::{fs_error, refused};
use crate::files::Writer;
use crate::startup::spawn;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use types::api::{FsResult, OpenFlags};
use types::{Cx, FsError, Handle, Ino};
use wire::Failure;

/// How long hosts are waited for.
const GRACE: Duration = Duration::from_secs(30);
/// Before what could not be recorded is tried again.
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
    /// What came, or will come, too late.
    lost: BTreeSet<(Ino, u64)>,
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
        if let Some(kept) = state.files.get_mut(&self.ino).and_then(|kept| kept.get_mut(&self.epoch)) {
            kept.coming -= 1;
        }
        self.returning.changed.notify_all();
    }
}

/// What becomes of what comes.
enum Found<'r> {
    Awaited(Option<Handle>, Coming<'r>),
    Lost,
    /// It was at the targets before.
    Settled,
}

impl Returning {
    /// Whether something of a file has to come back before it can be opened.
    pub(crate) fn awaits(&self, ino: Ino) -> bool {
        self.any.load(Ordering::Acquire) && self.state.lock().files.contains_key(&ino)
    }

    fn find(&self, ino: Ino, epoch: u64) -> Found<'_> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(kept) = state.files.get_mut(&ino).and_then(|kept| kept.get_mut(&epoch)) else {
            // What the catalogue does not know of may never have come there.
            let (known, first) =
                (self.known.load(Ordering::Acquire), self.epochs.first.load(Ordering::Acquire));
            let lost = state.lost.contains(&(ino, epoch)) || (known < epoch && epoch < first);
            return if lost { Found::Lost } else { Found::Settled };
        };
        if kept.late {
            return Found::Lost;
        }
        kept.coming += 1;
        Found::Awaited(kept.handle, Coming { returning: self, ino, epoch })
    }

    /// From now on all that is waited for comes too late; which that is, when nothing of it is just coming.
    fn close(&self) -> Vec<(Ino, u64, Option<Handle>)> {
        let mut state = self.state.lock();
        state.files.values_mut().flat_map(BTreeMap::values_mut).for_each(|kept| kept.late = true);
        while state.files.values().flat_map(BTreeMap::values).any(|kept| kept.coming > 0) {
            self.changed.wait(&mut state);
        }
        drop(state);
        self.all(None)
    }

    /// That is waited for no more.
    fn end(&self, ino: Ino, epoch: u64, lost: bool) {
        let mut state = self.state.lock();
        if let Some(kept) = state.files.get_mut(&ino) {
            kept.remove(&epoch);
            if kept.is_empty() {
                state.files.remove(&ino);
            }
        }
        if lost {
            state.lost.insert((ino, epoch));
        }
        self.any.store(!state.files.is_empty(), Ordering::Release);
        self.changed.notify_all();
    }

    /// All that is waited for, of one session or of all.
    fn all(&self, session: Option<u64>) -> Vec<(Ino, u64, Option<Handle>)> {
        let state = self.state.lock();
        let all =
            state.files.iter().flat_map(|(ino, kept)| kept.iter().map(|(epoch, kept)| (*ino, *epoch, kept)));
        let of = all.filter(|(_, _, kept)| session.is_none_or(|session| kept.session == session));
        of.map(|(ino, epoch, kept)| (ino, epoch, kept.handle)).collect()
    }
}

impl Node {
    /// Waits until all has come back that hosts have kept of a file, or is lost.
    pub(super) fn wait_for_spares(&self, ino: Ino) -> FsResult<()> {
        while self.spared.awaits(ino) {
            if self.stops_within(Duration::ZERO) {
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
                state.lost.insert((kept.ino, kept.epoch));
                continue;
            }
            let file = state.files.entry(kept.ino).or_default();
            file.insert(kept.epoch, Kept { session: kept.session, handle: None, coming: 0, late: false });
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

    /// What has not come by now is lost.
    fn end_returning(&self) {
        if self.stops_within(GRACE) {
            return;
        }
        loop {
            let late = self.spared.close();
            for (ino, epoch, handle) in &late {
                tracing::error!(
                    "inode {ino}: a host that was writing it has not come back for {GRACE:?}; what it wrote last, and did not sync, may be lost"
                );
                match self.catalog.lose_spare(*ino, *epoch) {
                    Ok(()) => self.returned(*ino, *epoch, *handle, true),
                    Err(e) => {
                        tracing::error!("inode {ino}: that cannot be recorded, and is tried again: {e}")
                    }
                }
            }
            if late.is_empty() || self.stops_within(AGAIN) {
                return;
            }
        }
    }

    fn returned(&self, ino: Ino, epoch: u64, handle: Option<Handle>, lost: bool) {
        self.spared.end(ino, epoch, lost);
        handle.into_iter().for_each(|handle| self.close_file(handle));
        self.movers.wake();
    }

    /// Something comes that a host has kept; false: it was at the targets before.
    ///
    /// # Errors
    /// ESTALE: it comes too late. ENOENT: the file is gone.
    pub(crate) fn return_spare(&self, ino: Ino, epoch: u64, offset: u64, data: &[u8]) -> FsResult<bool> {
        let (handle, _coming) = match self.spared.find(ino, epoch) {
            Found::Settled => return Ok(false),
            Found::Lost => return Err(FsError::Stale),
            Found::Awaited(Some(handle), coming) => (handle, coming),
            Found::Awaited(None, coming) => (self.open_to_return(ino, epoch)?, coming),
        };
        match self.write_file(handle, offset, data, true, Writer::Elsewhere)? == data.len() {
            true => Ok(true),
            false => Err(FsError::NoSpace),
        }
    }

    fn open_to_return(&self, ino: Ino, epoch: u64) -> FsResult<Handle> {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let handle = match self.open_file_now(&Cx::admin(crate::now()), ino, flags) {
            Ok(opened) => opened.handle,
            Err(FsError::Stale) => return Err(FsError::NotFound),
            Err(e) => return Err(e),
        };
        let known = {
            let mut state = self.spared.state.lock();
            let kept = state.files.get_mut(&ino).and_then(|kept| kept.get_mut(&epoch));
            kept.map(|kept| *kept.handle.get_or_insert(handle))
        };
        if known != Some(handle) {
            self.close_file(handle);
        }
        known.ok_or(FsError::Stale)
    }

    /// All of an epoch has come: it is durable when this returns.
    pub(crate) fn spare_returned(&self, ino: Ino, epoch: u64) -> FsResult<()> {
        let Found::Awaited(handle, _coming) = self.spared.find(ino, epoch) else { return Ok(()) };
        if let Some(handle) = handle {
            self.sync_file(handle)?;
        }
        self.catalog.forget_spares(ino, &[epoch]).map_err(|e| fs_error("fsync", &e))?;
        self.returned(ino, epoch, handle, false);
        Ok(())
    }

    /// A session keeps nothing more of an earlier node.
    pub(crate) fn spares_over(&self, session: u64) -> FsResult<()> {
        self.spared
            .all(Some(session))
            .into_iter()
            .try_for_each(|(ino, epoch, _)| self.spare_returned(ino, epoch))
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
        let kept = Kept { session: 3, handle: None, coming: 0, late: false };
        returning.state.lock().files.insert(ino, BTreeMap::from([(7, kept)]));
        returning.any.store(true, Ordering::Release);
        assert!(returning.awaits(ino) && !returning.awaits(Ino(6)));
        assert!(matches!(returning.find(ino, 8), Found::Settled), "it was ended before");
        assert!(matches!(returning.find(ino, 11), Found::Lost), "of a catalogue that knew more");
        assert!(matches!(returning.find(ino, 1_000), Found::Settled), "of this node");
        assert_eq!(returning.all(Some(4)), []);
        let Found::Awaited(None, coming) = returning.find(ino, 7) else { panic!("it is awaited") };
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| returning.close());
            while !returning.state.lock().files[&ino][&7].late {
                std::thread::yield_now();
            }
            assert!(matches!(returning.find(ino, 7), Found::Lost), "it comes too late");
            assert!(!closing.is_finished(), "what came before is waited for");
            drop(coming);
            assert_eq!(closing.join().unwrap(), [(ino, 7, None)]);
        });
        returning.end(ino, 7, true);
        assert!(!returning.awaits(ino));
        assert!(matches!(returning.find(ino, 7), Found::Lost));
    }
}
