//! Locks: fcntl(2) and flock(2) of programs, asked of the interface instead of the kernel.

use crate::errno::errno;
use crate::gateway::Core;
use crate::ops::reply_empty;
use crate::signals::{self, LockCall};
use crate::table::Route;
use fuser::{Errno, FileHandle, LockOwner, ReplyEmpty, ReplyLock, Request};
use std::sync::Arc;
use types::{FsError, Handle, LockKind, LockOrder, LockRange, LockSpace, LockWait};

/// A lock as the kernel describes it.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    pub owner: LockOwner,
    pub range: LockRange,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    pub pid: u32,
}

impl Described {
    fn order(&self, space: LockSpace, wait: LockWait) -> Option<LockOrder> {
        let kind = match self.kind {
            libc::F_RDLCK => Some(LockKind::Shared),
            libc::F_WRLCK => Some(LockKind::Exclusive),
            libc::F_UNLCK => None,
            _ => return None,
        };
        Some(LockOrder { space, owner: self.owner.0, kind, range: self.range, pid: self.pid, wait })
    }
}

/// Which family a request is of, and how it waits. The protocol crate does not hand on the bit that tells flock(2) from fcntl(2): what the
/// caller is doing does, for he waits in his system call. Only requests for all bytes can be of flock(2), and only who waits is checked for
/// circles. A caller of another pid namespace is not seen: his flock(2) is one of fcntl(2) for all bytes then, as on NFS.
fn family(tid: u32, lock: &Described, sleep: bool) -> (LockSpace, LockWait) {
    let look = tid != 0 && (sleep || lock.range == LockRange::WHOLE);
    let call = if look { signals::lock_call(tid) } else { None };
    let space = if call == Some(LockCall::File) { LockSpace::Files } else { LockSpace::Records };
    let wait = match (sleep, call) {
        (false, _) => LockWait::Never,
        (true, Some(LockCall::Process)) => LockWait::Checked,
        (true, _) => LockWait::Patient,
    };
    (space, wait)
}

impl Core {
    pub(crate) fn setlk(
        &self,
        req: &Request,
        fh: FileHandle,
        lock: &Described,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (space, patience) = family(req.pid(), lock, sleep);
        let Some(order) = lock.order(space, patience) else { return reply.error(Errno::EINVAL) };
        let wait = self.waits.begin();
        let done = Arc::clone(&wait);
        let answer = Box::new(move |outcome| {
            done.finish();
            reply_empty(outcome, reply);
        });
        // What is given back is given back, whatever signals come.
        if let Some(id) = self.api.lock(Handle(fh.0), order, answer)
            && order.kind.is_some()
        {
            wait.enter(id, req.pid());
        }
    }

    pub(crate) fn getlk(&self, fh: FileHandle, lock: &Described, reply: ReplyLock) {
        let Some(order) = lock.order(LockSpace::Records, LockWait::Never) else {
            return reply.error(Errno::EINVAL);
        };
        match self.api.test_lock(Handle(fh.0), order) {
            Ok(None) => reply.locked(0, 0, libc::F_UNLCK, 0),
            Ok(Some(held)) => {
                let kind = if held.kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
                reply.locked(held.range.start, held.range.end, kind, held.pid);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    /// A process closes a file: what it wrote is told, which may wait for whoever takes the bytes.
    pub(crate) fn flush(self: &Arc<Self>, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let file = self.opens.get(Handle(fh.0));
        let served = file.is_some_and(|file| matches!(file.route, Route::Served));
        match served.then(|| self.close_pool.slot()).flatten() {
            Some(slot) => {
                let core = Arc::clone(self);
                slot.run(move || core.flush_now(fh, owner, reply));
            }
            None => self.flush_now(fh, owner, reply),
        }
    }

    /// What the process wrote is told, then its record locks end, through whatever descriptor it got them.
    fn flush_now(&self, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let handle = Handle(fh.0);
        let flushed = self.api.flush(handle);
        if !self.locks {
            return reply_empty(flushed, reply);
        }
        let answer = Box::new(move |unlocked: Result<(), FsError>| {
            reply_empty(flushed.and(unlocked), reply);
        });
        self.api.lock(handle, LockOrder::give_back(owner.0), answer);
    }
}
