//! Locks of files and of ranges of them, kept by the node: they hold between all programs, also those at mounts and on other hosts.
//!
//! A lock belongs to the open file, as one of fcntl(2) with F_OFD_SETLK, or of flock(2). It ends when it is given back, when the file is closed, and when
//! the program ends. No connection waits for a lock: the node says that it waits, and a thread which asks for news, while anybody waits, brings the answer.

use super::file::File;
use super::lanes::{Held, Lanes};
use super::names::refused;
use super::{Done, LockHeld, LockKind};
use crate::ClientError;
use crate::answer::LockNews;
use crate::connection::{Connection, Life};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::api::FsResult;
use types::{FsError, LockOrder, LockRange, LockSpace, LockWait};
use wire::{Failure, FileCall, LockEvent};

/// What is locked. The two know nothing of each other, as on a local file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// Bytes of the file, as by fcntl(2) with F_OFD_SETLK. They need not be there yet.
    Bytes {
        /// First byte.
        start: u64,
        /// Number of bytes; 0: to the end of the file, wherever that will be.
        len: u64,
    },
    /// The file, as by flock(2).
    File,
}

impl Region {
    fn range(self) -> Option<LockRange> {
        let most = LockRange::WHOLE.end;
        match self {
            Self::File => Some(LockRange::WHOLE),
            Self::Bytes { start, len: 0 } => (start <= most).then_some(LockRange { start, end: most }),
            Self::Bytes { start, len } => {
                let end = start.checked_add(len - 1).filter(|end| *end <= most)?;
                Some(LockRange { start, end })
            }
        }
    }
}

/// All locks that a session waits for.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last number that a call for a lock got.
    last: u64,
    waiting: HashMap<u64, Arc<Wait>>,
    /// A thread asks for news.
    tended: bool,
    /// The last news that have come, and of which session of the node.
    heard: Option<(Life, u64)>,
}

/// Somebody who waits for a lock.
#[derive(Debug)]
struct Wait {
    /// In which session of the node.
    life: Life,
    outcome: Mutex<Option<FsResult<()>>>,
    /// Can be read when there is an outcome.
    bell: OwnedFd,
}

impl Wait {
    fn end(&self, outcome: FsResult<()>) {
        *self.outcome.lock() = Some(outcome);
        // A number that is not 0 in a counter that nobody has read: it takes one more.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Waits until there is an outcome or the time has come.
    fn rest(&self, end: Option<Instant>) -> Result<(), Errno> {
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let time = left.map(|left| {
                left.try_into().unwrap_or(rustix::event::Timespec { tv_sec: i32::MAX.into(), tv_nsec: 0 })
            });
            match poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], time.as_ref()) {
                Ok(0) if left.is_some_and(|left| left.is_zero()) => return Err(Errno::TIMEDOUT),
                Ok(0) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }
}

impl Waits {
    fn name(&self) -> u64 {
        let mut state = self.0.lock();
        state.last += 1;
        state.last
    }

    /// Somebody may have to wait from now on.
    fn begin(&self, life: Life) -> Done<(u64, Arc<Wait>)> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| local("cannot make", e.into()))?;
        let wait = Arc::new(Wait { life, outcome: Mutex::default(), bell });
        let number = self.name();
        self.0.lock().waiting.insert(number, wait.clone());
        Ok((number, wait))
    }

    fn take(&self, number: u64) -> Option<Arc<Wait>> {
        self.0.lock().waiting.remove(&number)
    }

    /// Whoever waits in a session that has ended waits for nothing.
    fn strand(&self, life: Life) {
        let ended: Vec<_> = self.0.lock().waiting.extract_if(|_, wait| wait.life != life).collect();
        ended.into_iter().for_each(|(_, wait)| wait.end(Err(FsError::Stale)));
    }

    /// Whether a thread is to begin to ask for news.
    fn tend(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().tended, true)
    }

    /// Asks for news until there are none and nobody waits.
    fn listen(&self, connection: &mut Connection) -> Done<()> {
        loop {
            let life = connection.life();
            self.strand(life);
            let after = self.0.lock().heard.filter(|(of, _)| *of == life).map_or(0, |(_, place)| place);
            let LockNews(events) = connection.file(FileCall::LockEvents { after, claimed: false })?;
            if let Some(last) = events.last() {
                self.0.lock().heard = Some((life, last.place));
                events.into_iter().for_each(|event| self.settle(&event));
                continue;
            }
            let mut state = self.0.lock();
            if state.waiting.is_empty() {
                state.tended = false;
                return Ok(());
            }
        }
    }

    fn settle(&self, event: &LockEvent) {
        if let Some(wait) = self.take(event.call) {
            wait.end(event.refused.map_or(Ok(()), Err));
        }
    }

    /// There are no news any more: who waits is told.
    fn give_up(&self) {
        let mut state = self.0.lock();
        state.tended = false;
        let ended = std::mem::take(&mut state.waiting);
        drop(state);
        ended.into_values().for_each(|wait| wait.end(Err(FsError::Stale)));
    }
}

fn local(doing: &'static str, source: std::io::Error) -> ClientError {
    ClientError::Local { doing, path: "what a lock is waited for with".into(), source }
}

/// The text of the general reason speaks of tape.
fn held_by_others() -> ClientError {
    let fs = FsError::WouldBlock;
    ClientError::Refused(Failure {
        class: fs.class(),
        fs: Some(fs),
        message: "open file: somebody else has locked it".into(),
    })
}

fn of_lock(error: ClientError) -> ClientError {
    match error {
        ClientError::Refused(Failure { fs: Some(FsError::WouldBlock), .. }) => held_by_others(),
        other => other,
    }
}

impl Lanes {
    /// Gets a lock, if need be by waiting so long; None: however long it takes.
    fn lock(self: &Arc<Self>, held: &Held, order: LockOrder, limit: Option<Duration>) -> Done<()> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let (number, wait) = self.waits.begin(held.life())?;
        let asked = self.beside(held, |handle| FileCall::LockAs { number, handle, order });
        if !matches!(asked, Ok(0)) {
            self.waits.take(number);
            return asked.map(|_: u64| ()).map_err(of_lock);
        }
        self.tend_locks();
        let broken = wait.rest(end).err();
        if broken.is_some() {
            // The node answers with its news: it may have been got just now.
            let withdrawn = self.beside::<()>(held, |_| FileCall::Withdraw(number));
            if let Err(e) = withdrawn
                && self.waits.take(number).is_some()
            {
                return Err(e);
            }
            while matches!(wait.rest(None), Err(Errno::INTR)) {}
        }
        let outcome = wait.outcome.lock().take().unwrap_or(Err(FsError::Io));
        if outcome == Err(FsError::Stale) {
            // There were no news; if the node is there it is to give nothing to nobody. It may have done so, or be gone.
            let _ = self.beside::<()>(held, |_| FileCall::Withdraw(number));
        }
        match (outcome, broken) {
            (Err(FsError::Interrupted), Some(Errno::TIMEDOUT)) => Err(held_by_others()),
            (outcome, _) => outcome.map_err(|fs| of_lock(refused(b"open file", fs))),
        }
    }

    /// Begins to ask for news, if nobody does. Until the thread has a connection it has none of the session, which may end meanwhile.
    fn tend_locks(self: &Arc<Self>) {
        if !self.waits.tend() {
            return;
        }
        let (lanes, waits) = (self.clone(), self.waits.clone());
        let work = move || {
            let connection = lanes.connect();
            // Else the session would last as long as its thread.
            drop(lanes);
            let heard = connection.and_then(|mut connection| waits.listen(&mut connection));
            if let Err(e) = heard {
                tracing::warn!("no news of locks: {e}");
                waits.give_up();
            }
        };
        if let Err(e) = std::thread::Builder::new().name("thermo-locks".into()).spawn(work) {
            tracing::warn!("no thread for news of locks: {e}");
            self.waits.give_up();
        }
    }
}

impl File {
    fn order(&self, region: Region, kind: Option<LockKind>, wait: LockWait) -> Done<LockOrder> {
        let range = region.range().ok_or_else(|| refused(b"open file", FsError::Invalid))?;
        let space = if region == Region::File { LockSpace::Files } else { LockSpace::Records };
        Ok(LockOrder { space, owner: self.held.handle().0, kind, range, pid: std::process::id(), wait })
    }

    /// Gets a lock; waits for it, at most for `limit` (zero: not at all; None: however long it takes). What this open file held of the region
    /// already it holds in this way then; until it has that, it keeps what it has of bytes, and gives up another kind of lock of the file first, as flock(2) does.
    /// What others wrote before they gave their locks back is read from then on.
    ///
    /// # Errors
    /// EAGAIN: somebody else has it still. EINTR: a signal handler ran meanwhile. EBADF: a shared lock of bytes needs a file that is open for reading, an
    /// exclusive one for writing. EINVAL: bytes that no file can have. ENOLCK: there are too many. EOPNOTSUPP: the node keeps no locks. ESTALE: the node
    /// was started anew. Those of [`File::flush`] for a shared lock.
    pub fn lock(&self, region: Region, kind: LockKind, limit: Option<Duration>) -> Done<()> {
        match (region, kind) {
            (Region::File, _) => {}
            (_, LockKind::Shared) => self.may(self.flags.read)?,
            (_, LockKind::Exclusive) => self.may(self.flags.write)?,
        }
        if kind == LockKind::Shared {
            // It may have been exclusive: others read what was written.
            self.flush()?;
        }
        self.lanes.locks(&self.held)?;
        let at_once = limit.is_some_and(|limit| limit.is_zero());
        let wait = if at_once { LockWait::Never } else { LockWait::Patient };
        self.lanes.lock(&self.held, self.order(region, Some(kind), wait)?, limit)?;
        self.ahead.lock().clear(u64::MAX);
        Ok(())
    }

    /// Gets a lock if nobody else's is in the way; says whether it did.
    ///
    /// # Errors
    /// As [`File::lock`], but for EAGAIN.
    pub fn try_lock(&self, region: Region, kind: LockKind) -> Done<bool> {
        match self.lock(region, kind, Some(Duration::ZERO)) {
            Err(ClientError::Refused(Failure { fs: Some(FsError::WouldBlock), .. })) => Ok(false),
            got => got.map(|()| true),
        }
    }

    /// Flushes, and gives back what this open file holds of the region, also when the flush fails.
    ///
    /// # Errors
    /// As [`File::flush`]; ESTALE: the node was started anew, and others may have had the lock since.
    pub fn unlock(&self, region: Region) -> Done<()> {
        let order = self.order(region, None, LockWait::Never)?;
        let flushed = self.flush();
        let number = self.lanes.waits.name();
        let unlocked = self.lanes.beside(&self.held, |handle| FileCall::LockAs { number, handle, order });
        flushed.and(unlocked.map(|_: u64| ()))
    }

    /// A lock of somebody else that is in the way of this one; None: there is none. Its process is 0 if it is one of another host.
    ///
    /// # Errors
    /// As [`File::lock`], but for EAGAIN.
    pub fn test_lock(&self, region: Region, kind: LockKind) -> Done<Option<LockHeld>> {
        let order = self.order(region, Some(kind), LockWait::Never)?;
        self.lanes.beside(&self.held, |handle| FileCall::TestLock { handle, order })
    }
}
