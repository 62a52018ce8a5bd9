//! Locks of files between programs of all hosts: one table in memory, asked by mounts here, by sessions of programs without a mount, and by those of
//! other hosts.
//!
//! What a session of another host holds outlives a restart of this node: the catalogue remembers which sessions may hold locks, durably before they
//! get the first. After a restart nobody gets a new lock until these have claimed theirs, or `GRACE` has passed. Of a session that ended
//! otherwise that is forgotten, durably, before its locks go to others: it may not claim them later. Locks of a mount here, and of
//! programs without one, end with the node.

mod table;

use crate::Node;
use crate::error::{fs_error, refused};
use crate::startup::spawn;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use table::{Answer, Asked, Ended, Table, Ticket};
use types::api::{FsResult, ReadyDone, WaitId};
use types::{FsError, Handle, Ino, LockHeld, LockKind, LockOrder, LockRange, NodeId};
use wire::Failure;

/// How long a restarted node waits for those who held locks.
const GRACE: Duration = Duration::from_secs(30);
/// Set in numbers of waits that are for locks.
const WAIT: u64 = 1 << 63;

/// A session of another node: whose, and the number that it gave itself.
pub(crate) type SessionKey = (NodeId, u64);

/// Who asks: programs at the mounts of this host, a session of programs without a mount, or one of another host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockSession {
    /// No other session had or gets it; 0: the mounts of this host.
    pub(crate) number: u64,
    pub(crate) key: Option<SessionKey>,
    /// Its programs are on another host, where the numbers of processes mean others.
    pub(crate) far: bool,
}

/// All locks, and who waits for one.
#[derive(Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    next: AtomicU64,
    /// Sessions that the catalogue remembers.
    remembered: Mutex<HashSet<SessionKey>>,
}

#[derive(Default)]
struct State {
    table: Table,
    waiting: HashMap<Ticket, ReadyDone>,
    /// Sessions that may still claim what they held.
    returning: HashSet<SessionKey>,
}

impl State {
    /// Whom to tell, once nothing here is held any more.
    fn told(&mut self, ended: Ended) -> Vec<(ReadyDone, FsResult<()>)> {
        ended.into_iter().filter_map(|(t, outcome)| Some((self.waiting.remove(&t)?, outcome))).collect()
    }
}

fn tell(told: Vec<(ReadyDone, FsResult<()>)>) {
    told.into_iter().for_each(|(done, outcome)| done(outcome));
}

impl Locks {
    fn change<T>(&self, act: impl FnOnce(&mut State, &mut Ended) -> T) -> T {
        let (mut state, mut ended) = (self.state.lock(), Vec::new());
        let result = act(&mut state, &mut ended);
        let told = state.told(ended);
        drop(state);
        tell(told);
        result
    }

    /// A handle was closed, and is no longer in the table of those that are open.
    pub(crate) fn end(&self, ino: Ino, handle: Handle) {
        self.change(|state, ended| state.table.end(ino, handle, ended));
    }

    /// Whether a session holds any.
    pub(crate) fn any_of(&self, session: LockSession) -> bool {
        self.state.lock().table.any_of(session.number)
    }

    /// The node stops: sessions end with it and come back, and nothing of theirs may go to others meanwhile.
    pub(crate) fn stop(&self) {
        self.state.lock().table.close();
    }

    /// Whether this wait was for a lock; it has ended then.
    pub(crate) fn withdraw(&self, wait: WaitId) -> bool {
        let ticket = wait.0 & !WAIT;
        if wait.0 == ticket {
            return false;
        }
        self.change(|state, ended| {
            if state.table.withdraw(ticket) {
                ended.push((ticket, Err(FsError::Interrupted)));
            }
        });
        true
    }

    /// Of those who may claim locks one has, or will not; nobody else gets any before the last one.
    fn has_returned(&self, key: SessionKey) {
        self.change(|state, ended| {
            if state.returning.remove(&key) && state.returning.is_empty() {
                tracing::info!("all locks that other hosts held before the restart are claimed or given up");
                state.table.open(ended);
            }
        });
    }
}

impl Node {
    /// If sessions held locks when the node ended, waits for them to claim these.
    pub(crate) fn begin_locks(self: &Arc<Self>) -> Result<(), Failure> {
        let known = self.catalog.lock_sessions().map_err(|e| refused("locks", &e))?;
        if known.is_empty() {
            return Ok(());
        }
        tracing::info!("{} sessions of other hosts may claim the locks that they held", known.len());
        {
            let mut state = self.locks.state.lock();
            state.table.close();
            state.returning.extend(&known);
        }
        self.locks.remembered.lock().extend(known);
        let node = self.clone();
        spawn(Some(self), "locks", move || node.end_grace()).map(drop)
    }

    fn end_grace(&self) {
        if self.stops_within(GRACE) {
            return;
        }
        let late: Vec<SessionKey> = self.locks.state.lock().returning.iter().copied().collect();
        for key in late {
            tracing::warn!(
                "node {} did not claim in time what it held locked; others may have it now",
                key.0.0
            );
            if !self.has_session(key) {
                self.forget_locks_of(key);
            }
            self.locks.has_returned(key);
        }
    }

    /// A session has ended, and with it all that it held: it cannot claim that any more. Before others get its locks: power fails here.
    pub(crate) fn forget_locks_of(&self, key: SessionKey) {
        if self.locks.remembered.lock().remove(&key)
            && let Err(e) = self.catalog.forget_lock_session(key.0, key.1)
        {
            // A catalogue that takes no changes lets nobody change what the locks protected, either.
            tracing::error!("node {} may claim locks after a restart that it has lost: {e}", key.0.0);
        }
        self.locks.has_returned(key);
    }

    /// A session has claimed all that it held.
    pub(crate) fn has_claimed(&self, key: SessionKey) {
        self.locks.has_returned(key);
    }

    /// The catalogue remembers a session before it holds anything: power fails here.
    fn remember(&self, key: SessionKey) -> FsResult<()> {
        let mut remembered = self.locks.remembered.lock();
        if !remembered.contains(&key) {
            self.catalog.put_lock_session(key.0, key.1).map_err(|e| fs_error("lock", &e))?;
            remembered.insert(key);
        }
        Ok(())
    }

    /// See [`types::api::FileApi::lock`]. `claimed`: it was held before a restart.
    pub(crate) fn lock_for(
        &self,
        session: LockSession,
        (handle, order, claimed): (Handle, LockOrder, bool),
        done: ReadyDone,
    ) -> Option<WaitId> {
        if order.range.start > order.range.end {
            done(Err(FsError::Invalid));
            return None;
        }
        if let Some(key) = session.key.filter(|_| order.kind.is_some())
            && let Err(e) = self.remember(key)
        {
            done(Err(e));
            return None;
        }
        let ticket = self.locks.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut done = Some(done);
        let answer = self.locks.change(|state, ended| {
            if claimed && session.key.is_none_or(|key| !state.returning.contains(&key)) {
                return Answer::Refused(FsError::Stale);
            }
            // Who closes it takes it out of the table of open handles first, and ends its locks then.
            let Some(file) = self.open.handle(handle) else { return Answer::Refused(FsError::BadHandle) };
            let asked = Asked {
                ino: file.inode.ino,
                handle,
                session: session.number,
                far: session.far,
                order,
                claimed,
            };
            let answer = state.table.ask(ticket, asked, ended);
            if answer == Answer::Waits {
                done.take().map(|done| state.waiting.insert(ticket, done));
            }
            answer
        });
        match (answer, done) {
            (Answer::Done, Some(done)) => done(Ok(())),
            (Answer::Refused(e), Some(done)) => done(Err(e)),
            _ => return Some(WaitId(WAIT | ticket)),
        }
        None
    }

    /// See [`types::api::FileApi::test_lock`].
    pub(crate) fn test_lock_for(
        &self,
        session: LockSession,
        handle: Handle,
        order: LockOrder,
    ) -> FsResult<Option<LockHeld>> {
        let file = self.open.handle(handle).ok_or(FsError::BadHandle)?;
        let state = self.locks.state.lock();
        if state.table.is_closed() {
            // Somebody may hold it who has not claimed it yet.
            let (kind, range) = (LockKind::Exclusive, LockRange::WHOLE);
            return Ok(Some(LockHeld { kind, range, pid: 0 }));
        }
        let (ino, far) = (file.inode.ino, session.far);
        let asked = Asked { ino, handle, session: session.number, far, order, claimed: false };
        Ok(state.table.test(&asked))
    }
}
