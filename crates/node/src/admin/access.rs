//! File access over a socket: the caller is whoever the kernel says is at the other end.

use super::Session;
use super::described::describe;
use super::junctions;
use super::ordered::in_order;
use super::session::Held;
use crate::Node;
use crate::error::{failure, fs_failure, refused};
use crate::files::Writer;
use crate::movers::Grantee;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use types::api::{FileApi, FsResult, NewNode, OpenFlags, Opened, Seek, WaitId, XattrMode};
use types::*;
use wire::{Answer, Failure, FileCall, FileLayout, FileOrder, Reply, Speaks};

/// Longest read or write of one call (bytes).
const MAX_IO: usize = 1 << 20;

impl Node {
    /// `number`: that of the call in its session, if it has one.
    pub(super) fn file_call(
        &self,
        cx: &Cx,
        session: &Session,
        call: FileCall,
        number: u64,
    ) -> Result<Answer, Failure> {
        let what = describe(&call);
        let place = junctions::place(&call);
        let _ordered = in_order(session, &call).map_err(|e| fs_failure(&what, e))?;
        let session = &session.held;
        self.keeps_locks(&call)?;
        self.check_reach(cx, &call).map_err(|e| fs_failure(&what, e))?;
        self.forgets_what_it_changes(session, &call, number);
        let changes = self.about_to_change(session, &call);
        let answer = match call {
            FileCall::Create { parent, name, mode, exclusive } => {
                let flags = OpenFlags { write: true, exclusive, ..OpenFlags::default() };
                self.create_for(cx, session, (parent, &name), mode, flags)
            }
            FileCall::CreateAs { parent, name, mode, flags } => {
                self.create_for(cx, session, (parent, &name), mode, flags)
            }
            FileCall::Open { ino, write, truncate } => {
                let flags = OpenFlags { read: !write, write, truncate, ..OpenFlags::default() };
                self.open_for(cx, session, ino, flags)
            }
            FileCall::OpenAs { ino, flags } => self.open_for(cx, session, ino, flags),
            FileCall::Release { handle, .. } if !session.remove(handle) => Err(FsError::BadHandle),
            FileCall::Release { handle, sync } => {
                let synced = match (sync, session.writer()) {
                    (true, _) => self.fsync(handle, false),
                    (false, Writer::Here | Writer::Mount) => self.flush(handle),
                    // What he has written is at the targets. What others wrote is not his.
                    (false, Writer::Elsewhere) => Ok(()),
                };
                self.release(handle);
                synced.map(|()| Reply::Done.into())
            }
            call if of_handle(&call).is_some() => self.byte_call(cx, session, call, number).map(Answer::from),
            FileCall::Prepare { ino, nonblock } => {
                self.prepared(session, number, ino, nonblock).map(|()| Reply::Done.into())
            }
            FileCall::Lock { handle, order, claimed } => {
                self.lock_call(session, number, (handle, order, claimed)).map(Answer::from)
            }
            FileCall::LockAs { number, handle, order } => {
                session.answered_below(number);
                self.lock_call(session, number, (handle, order, false)).map(Answer::from)
            }
            FileCall::LockEvents { after, claimed } => {
                self.lock_events(session, after, claimed).map(Answer::from)
            }
            FileCall::Leased(at) => self.leased(cx, session, at, number).map(Answer::from),
            FileCall::Forgotten { after } => self.to_forget(session, after).map(Answer::from),
            FileCall::WriteAloneEnd { ino, number } => {
                self.write_alone_end(session, ino, number).map(Answer::from)
            }
            FileCall::ReturnSpared { .. } | FileCall::SparedReturned { .. } | FileCall::SparedOver => {
                self.returned_call(session, call).map(Answer::from)
            }
            FileCall::Withdraw(other) => {
                session.withdraw(other).into_iter().for_each(|wait| self.cancel_wait(wait));
                Ok(Reply::Done.into())
            }
            other => self.name_call(cx, other).map(Answer::from),
        };
        self.has_changed(changes, answer.as_ref().err().copied());
        answer.map_err(|e| self.told(cx, &what, place, e))
    }

    fn name_call(&self, cx: &Cx, call: FileCall) -> Result<Reply, FsError> {
        Ok(match call {
            FileCall::Lookup { parent, name } => Reply::Attr(self.lookup(cx, parent, &name)?),
            FileCall::Resolve { path } => Reply::Attr(self.resolved(cx, &path, false)?),
            FileCall::Follow { path } => Reply::Attr(self.resolved(cx, &path, true)?),
            FileCall::GetAttr(ino) => Reply::Attr(self.getattr(cx, ino)?),
            FileCall::SetAttr { ino, set } => Reply::Attr(self.setattr(cx, ino, &set)?),
            FileCall::ReadDir { dir, after, limit } => {
                Reply::Entries(self.readdir_plus(cx, dir, after, limit.clamp(1, 5_000) as usize)?)
            }
            FileCall::ReadLink(ino) => Reply::Bytes(self.readlink(cx, ino)?),
            FileCall::Mkdir { parent, name, mode } => Reply::Attr(self.mkdir(cx, parent, &name, mode)?),
            FileCall::Symlink { parent, name, target } => {
                Reply::Attr(self.symlink(cx, parent, &name, &target)?)
            }
            FileCall::Link { ino, parent, name } => Reply::Attr(self.link(cx, ino, parent, &name)?),
            FileCall::Mknod { parent, name, kind, mode, rdev } => {
                Reply::Attr(self.mknod(cx, parent, &name, &NewNode { kind, mode, rdev })?)
            }
            FileCall::SetXattr { ino, name, value } => {
                self.setxattr(cx, ino, &name, &value, XattrMode::Any)?;
                Reply::Done
            }
            FileCall::Xattrs(ino) => {
                let value = |name: Vec<u8>| Ok((name.clone(), self.getxattr(cx, ino, &name)?));
                Reply::Xattrs(
                    self.listxattr(cx, ino)?.into_iter().map(value).collect::<Result<_, FsError>>()?,
                )
            }
            FileCall::Unlink { parent, name } => {
                self.unlink(cx, parent, &name)?;
                Reply::Done
            }
            FileCall::Rmdir { parent, name } => {
                self.rmdir(cx, parent, &name)?;
                Reply::Done
            }
            FileCall::Rename { from, to, mode } => {
                self.rename(cx, (from.0, &from.1), (to.0, &to.1), mode)?;
                Reply::Done
            }
            FileCall::RemoveXattr { ino, name } => {
                self.removexattr(cx, ino, &name)?;
                Reply::Done
            }
            FileCall::ClearSetId(ino) => Reply::Count(self.clear_set_id(cx, ino)?.into()),
            FileCall::Parent(dir) => Reply::Count(self.parent(dir)?.0),
            FileCall::StatFs => Reply::StatFs(self.statfs()?),
            FileCall::GetXattr { ino, name } => Reply::Bytes(self.getxattr(cx, ino, &name)?),
            FileCall::SetXattrAs { ino, name, value, mode } => {
                self.setxattr(cx, ino, &name, &value, mode)?;
                Reply::Done
            }
            FileCall::SyncNames => {
                self.sync_names()?;
                Reply::Done
            }
            FileCall::Sync => {
                self.disk.sync_fs().map_err(|e| crate::error::disk_error("sync", &e))?;
                self.sync_names()?;
                Reply::Done
            }
            _ => return Err(FsError::NotSupported),
        })
    }

    fn resolved(&self, cx: &Cx, path: &[u8], follow: bool) -> Result<Attr, FsError> {
        self.shown_now(|| self.catalog.resolve(cx, path, follow)).map_err(|e| e.fs())
    }

    /// Calls about the bytes of an open file of the session.
    fn byte_call(&self, cx: &Cx, session: &Held, call: FileCall, number: u64) -> Result<Reply, FsError> {
        if !of_handle(&call).is_some_and(|handle| session.has(handle)) {
            return Err(FsError::BadHandle);
        }
        match call {
            FileCall::Read { handle, offset, len } => {
                self.read_now(session, number, (handle, offset, len), true)
            }
            FileCall::ReadNow { handle, offset, len } => {
                self.read_now(session, number, (handle, offset, len), false)
            }
            FileCall::Write { data, .. }
            | FileCall::WriteAt { data, .. }
            | FileCall::WriteSpared { data, .. }
                if data.len() > MAX_IO =>
            {
                Err(FsError::BadHandle)
            }
            FileCall::Write { handle, offset, data } => {
                self.write_for(session, handle, (offset, &data), false)
            }
            FileCall::WriteAt { handle, offset, data } => {
                self.write_for(session, handle, (offset, &data), true)
            }
            FileCall::WriteSpared { handle, offset, data, keeps } => {
                let keeper = session.keeper().ok_or(FsError::NotSupported)?;
                let (written, spare) = self.write_spared(handle, (offset, &data), keeper, keeps)?;
                Ok(Reply::Spared(written as u64, self.starts_with(handle, session.writer()), spare))
            }
            FileCall::SettleSpared(handle) => self.settle_spared(handle).map(|()| Reply::Done),
            FileCall::Fsync { handle, data_only } => self.fsync(handle, data_only).map(|()| Reply::Done),
            FileCall::Fallocate { handle, mode, offset, len } => {
                self.fallocate(handle, mode, offset, len).map(|()| Reply::Done)
            }
            FileCall::LayoutGet(handle) => {
                self.layout_for(cx, session, (handle, number)).map(Reply::FileLayout)
            }
            FileCall::LayoutLend(handle) => {
                let grantee = session.client().map(|client| Grantee { client, uid: cx.uid });
                let lent = grantee.map_or(Ok(None), |grantee| self.layout_lend(handle, grantee));
                lent.map(|layout| Reply::Lent(layout.map(Box::new)))
            }
            FileCall::LayoutCopies(handle) => self.copies_for(cx, session, handle).map(Reply::Copies),
            FileCall::CopiesEnd { handle, differ } => self.copies_end(handle, differ).map(|()| Reply::Done),
            FileCall::TestLock { handle, order } => {
                self.test_lock_for(session.locks, handle, order).map(Reply::Lock)
            }
            FileCall::WriteAlone(handle) => self.write_alone(session, (handle, number)),
            FileCall::WriteAloneStands { handle, number } => self.write_alone_stands(session, handle, number),
            FileCall::LayoutCommit { handle, end, machines, cuts } => {
                let by = (session.client(), number);
                self.layout_commit(by, handle, end, &machines, cuts).map(Reply::Count)
            }
            FileCall::Seek { handle, offset, hole } => {
                let seek = if hole { Seek::Hole } else { Seek::Data };
                self.seek(handle, offset, seek).map(Reply::Count)
            }
            _ => Err(FsError::NotSupported),
        }
    }

    /// What a host has kept of files comes back.
    fn returned_call(&self, session: &Held, call: FileCall) -> Result<Reply, FsError> {
        let keeper = session.returner().ok_or(FsError::NotSupported)?;
        match call {
            FileCall::ReturnSpared { ino, epoch, index, offset, data } if data.len() <= MAX_IO => {
                let written = self.return_spare(keeper, (ino, epoch, index), offset, &data)?;
                Ok(Reply::Count(written.into()))
            }
            FileCall::SparedReturned { ino, epoch } => {
                self.spare_returned(keeper, ino, epoch).map(|()| Reply::Done)
            }
            FileCall::SparedOver => self.spares_over(keeper).map(|()| Reply::Done),
            _ => Err(FsError::BadHandle),
        }
    }

    /// Writes, and tells where that is until it is synced.
    fn write_for(
        &self,
        session: &Held,
        handle: Handle,
        (offset, data): (u64, &[u8]),
        exact: bool,
    ) -> Result<Reply, FsError> {
        let count = self.write_file(handle, offset, data, exact, session.writer())? as u64;
        Ok(Reply::Written { count, machines: self.starts_with(handle, session.writer()) })
    }

    /// Waits for tape if need be and `patient`; the connection waits with it.
    fn read_now(
        &self,
        session: &Held,
        number: u64,
        (handle, offset, len): (Handle, u64, u32),
        patient: bool,
    ) -> Result<Reply, FsError> {
        let len = len.min(MAX_IO as u32);
        if let Some(read) = self.read_targets(handle, offset, len) {
            return read.map(Reply::Bytes);
        }
        let (done, result) = crossbeam_channel::bounded(1);
        let send = Box::new(move |r| drop(done.send(r)));
        match self.read(handle, offset, len, send) {
            Some(wait) if !patient => {
                // If the bytes have come meanwhile they are there.
                self.cancel_wait(wait);
                let read = result.recv().unwrap_or(Err(FsError::Io));
                read.map_err(|e| if e == FsError::Interrupted { FsError::WouldBlock } else { e })
            }
            waiting => self.wait_out(session, number, waiting, &result),
        }
        .map(Reply::Bytes)
    }

    fn prepared(&self, session: &Held, number: u64, ino: Ino, nonblock: bool) -> Result<(), FsError> {
        let (done, result) = crossbeam_channel::bounded(1);
        let waiting = self.prepare_change(
            ino,
            nonblock,
            Box::new(move |r| {
                let _ = done.send(r);
            }),
        );
        self.wait_out(session, number, waiting, &result)
    }

    /// Waits for something, unless the call of this number is withdrawn; 0: it has none.
    fn wait_out<T>(
        &self,
        session: &Held,
        number: u64,
        waiting: Option<WaitId>,
        result: &crossbeam_channel::Receiver<Result<T, FsError>>,
    ) -> Result<T, FsError> {
        let wait = waiting.filter(|_| number > 0);
        if let Some(wait) = wait
            && !session.waits(number, wait)
        {
            self.cancel_wait(wait);
        }
        let outcome = result.recv().unwrap_or(Err(FsError::Io));
        if wait.is_some() {
            session.waits_no_more(number);
        }
        outcome
    }

    /// A call of another node for one of its users, which is done once however often it is made.
    pub(crate) fn file_for(&self, session: &Session, order: FileOrder) -> Result<Reply, Failure> {
        let FileOrder { who: Speaks { uid, gid, groups, checked }, number, answered, open, call } = order;
        let recorded = session.held.recorded(number, answered).filter(|_| call.is_recorded());
        let (name, resumed) = recorded.map_or((None, false), |(name, resumed)| (Some(name), resumed));
        let cx = Cx { uid, gid, groups, checked, now: crate::now(), call: name };
        session.held.answered_below(answered.min(number));
        if !open.is_empty() {
            session.held.answered_but(number, &open);
        }
        let once = call.is_once();
        let lasts = call.is_recorded() || matches!(call, FileCall::SetAttr { .. });
        let made_in = match &call {
            FileCall::CreateAs { parent, .. } => Some(*parent),
            _ => None,
        };
        // No descriptor travels to another host.
        let asks_later =
            session.held.asks_later() || matches!(&call, FileCall::OpenAs { flags, .. } if flags.write);
        let act = || {
            let done = match name.filter(|_| resumed) {
                Some(name) => self.catalog.done_call(&name).map_err(|e| refused("the call", &e))?,
                None => None,
            };
            let answer = match done {
                Some(made) => self.done_before(&cx, session, &call, made),
                None => self.file_call(&cx, session, call, number),
            };
            answer.map(|answer| {
                let reply = self.opened_for(&cx, &session.held, (answer.reply, number), asks_later);
                self.with_parent(&cx, &session.held, reply, made_in, number)
            })
        };
        let reply = if once { session.held.once(number, act) } else { act() }?;
        // Whoever asked may be answered by another node next: what he was told of names is there. Until then it is no answer, and he asks again.
        match if lasts { self.catalog.sync() } else { Ok(()) } {
            Err(e) if e.class() == ErrorClass::Retry => {
                Err(failure(ErrorClass::Retry, format!("what was done is not durable yet: {e}")))
            }
            synced => synced.map(|()| reply).map_err(|e| refused("names", &e)),
        }
    }

    /// Who opens a file from another host reads or writes next: he is told where it lies without asking for that. Who opens for
    /// writing what is there and writes nothing would get a right that has to be ended: he `asks_later`.
    fn opened_for(&self, cx: &Cx, session: &Held, (reply, number): (Reply, u64), asks_later: bool) -> Reply {
        let Reply::Opened { handle, attr, .. } = reply else { return reply };
        let file = self.open.handle(handle);
        let resident = file.is_some_and(|file| file.inode.state.lock().backing.is_some());
        let layout = match asks_later {
            true => None,
            // If that fails he asks, and is told why.
            false => self.layout_for(cx, session, (handle, number)).unwrap_or_default(),
        };
        Reply::OpenedAt { handle, attr, resident, layout, parent: None }
    }

    /// Where the bytes of a file of the session lie, with rights.
    fn layout_for(
        &self,
        cx: &Cx,
        session: &Held,
        (handle, number): (Handle, u64),
    ) -> FsResult<Option<Box<FileLayout>>> {
        let Some(client) = session.client() else { return Ok(None) };
        let layout = self.layout_get((handle, number), Grantee { client, uid: cx.uid })?;
        if layout.is_some() {
            session.goes_to_targets(handle);
        }
        Ok(layout.map(Box::new))
    }

    /// The answer to a call that was done in an earlier session of the same number.
    fn done_before(
        &self,
        cx: &Cx,
        session: &Session,
        call: &FileCall,
        made: Option<Ino>,
    ) -> Result<Answer, Failure> {
        let answer = match (call, made) {
            (FileCall::CreateAs { flags, .. }, Some(ino)) => {
                let flags = OpenFlags { truncate: false, exclusive: false, ..*flags };
                self.open(cx, ino, flags).map(|opened| self.handed(&session.held, opened, flags))
            }
            (_, Some(ino)) => self.getattr(cx, ino).map(|attr| Reply::Attr(attr).into()),
            (_, None) => Ok(Reply::Done.into()),
        };
        self.seen_by_all(answer).map_err(|e| fs_failure("a call that was done before", e))
    }

    /// Inode numbers give no way around the directories above: a caller who is not the administrator must be able to
    /// walk to them.
    fn check_reach(&self, cx: &Cx, call: &FileCall) -> Result<(), FsError> {
        if cx.checked {
            return Ok(());
        }
        let (ino, want) = match call {
            FileCall::Lookup { parent, .. } => (*parent, 1),
            FileCall::ReadDir { dir, .. } => (*dir, 4),
            FileCall::GetAttr(ino) | FileCall::ReadLink(ino) => (*ino, 0),
            FileCall::Xattrs(ino) | FileCall::GetXattr { ino, .. } => (*ino, 4),
            FileCall::Prepare { ino, .. } => (*ino, 2),
            FileCall::Parent(dir) => (*dir, 1),
            // That is for gateways, which see writes that nobody else does.
            FileCall::ClearSetId(_) if !self.is_admin(cx) => return Err(FsError::NotPermitted),
            FileCall::SetAttr { ino, .. }
            | FileCall::SetXattr { ino, .. }
            | FileCall::SetXattrAs { ino, .. }
            | FileCall::RemoveXattr { ino, .. }
            | FileCall::Link { ino, .. }
            | FileCall::Open { ino, .. }
            | FileCall::OpenAs { ino, .. } => (*ino, 0),
            FileCall::Mkdir { parent, .. }
            | FileCall::Unlink { parent, .. }
            | FileCall::Symlink { parent, .. }
            | FileCall::Mknod { parent, .. }
            | FileCall::CreateAs { parent, .. }
            | FileCall::Rmdir { parent, .. }
            | FileCall::Create { parent, .. } => (*parent, 1),
            FileCall::Rename { from, to, .. } => {
                self.reach(cx, from.0, 1)?;
                (to.0, 1)
            }
            _ => return Ok(()),
        };
        let reached = self.reach(cx, ino, want)?;
        match (call, reached) {
            (FileCall::SetAttr { set, .. }, Some(inode)) if set.size.is_some() => {
                self.catalog.access(cx, &inode.attr, 2).map_err(|e| e.fs())
            }
            _ => Ok(()),
        }
    }

    /// The inode, if the caller can walk to it and may do `want` with it; None for the administrator, who may all.
    fn reach(&self, cx: &Cx, ino: Ino, want: u32) -> Result<Option<Inode>, FsError> {
        if self.is_admin(cx) {
            return Ok(None);
        }
        let path = self.catalog.path_of(ino).map_err(|e| e.fs())?;
        let inode = self.catalog.resolve(cx, &path, false).map_err(|e| e.fs())?;
        if want != 0 {
            self.catalog.access(cx, &inode.attr, want).map_err(|e| e.fs())?;
        }
        Ok(Some(inode))
    }

    /// Opens for a caller who may do with the file what he wants of it.
    fn open_for(&self, cx: &Cx, session: &Held, ino: Ino, flags: OpenFlags) -> Result<Answer, FsError> {
        if cx.checked {
            return self.open(cx, ino, flags).map(|o| self.handed(session, o, flags));
        }
        let inode = self.catalog.inode(ino).map_err(|e| e.fs())?;
        let (read, write) = (4 * u32::from(flags.read || !flags.write), 2 * u32::from(flags.write));
        self.catalog.access(cx, &inode.attr, read | write).map_err(|e| e.fs())?;
        if flags.write && !self.is_admin(cx) {
            self.clear_set_id(cx, ino)?;
        }
        let flags = OpenFlags { read: read != 0, ..flags };
        self.open(cx, ino, flags).map(|o| self.handed(session, o, flags))
    }

    /// Creates and opens; opens what is there already, if that is wanted, as [`Node::open_for`] does.
    fn create_for(
        &self,
        cx: &Cx,
        session: &Held,
        (parent, name): (Ino, &[u8]),
        mode: u32,
        flags: OpenFlags,
    ) -> Result<Answer, FsError> {
        if cx.checked {
            return self.create(cx, parent, name, mode, flags).map(|o| self.handed(session, o, flags));
        }
        let flags = OpenFlags { write: true, ..flags };
        loop {
            match self.create(cx, parent, name, mode, OpenFlags { exclusive: true, ..flags }) {
                Err(FsError::Exists) if !flags.exclusive => {}
                created => return created.map(|o| self.handed(session, o, flags)),
            }
            match self.lookup(cx, parent, name) {
                Err(FsError::NotFound) => {} // removed meanwhile
                found => return self.open_for(cx, session, found?.ino, flags),
            }
        }
    }

    /// What goes to the caller: a descriptor that can do no more than he may.
    fn handed(&self, session: &Held, opened: Opened, flags: OpenFlags) -> Answer {
        session.add(opened.handle);
        let descriptor = match opened.backing {
            // Whether a file is long enough to be written at its end is known to the node only at that moment.
            Some(_) if flags.append => None,
            Some(fd) if flags.read && flags.write => Some(fd),
            Some(fd) => reopen(&fd, flags.write).ok(),
            None => None,
        };
        let direct = descriptor.is_some();
        // None travels to another host, whatever is written from there is seen.
        if direct
            && flags.write
            && session.is_local()
            && let Some(file) = self.open.handle(opened.handle)
        {
            file.lend();
        }
        Answer { reply: Reply::Opened { handle: opened.handle, attr: opened.attr, direct }, descriptor }
    }
}

/// The node's own descriptors can read and write.
fn reopen(fd: &OwnedFd, write: bool) -> Result<Arc<OwnedFd>, Failure> {
    use rustix::fs::{Mode, OFlags};
    let way = if write { OFlags::WRONLY } else { OFlags::RDONLY };
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, way | OFlags::CLOEXEC, Mode::empty())
        .map(Arc::new)
        .map_err(|e| failure(ErrorClass::Retry, format!("a disk object cannot be opened again: {e}")))
}

/// The open file that a call about bytes is about.
fn of_handle(call: &FileCall) -> Option<Handle> {
    match call {
        FileCall::Read { handle, .. }
        | FileCall::ReadNow { handle, .. }
        | FileCall::Write { handle, .. }
        | FileCall::WriteAt { handle, .. }
        | FileCall::WriteSpared { handle, .. }
        | FileCall::SettleSpared(handle)
        | FileCall::Fsync { handle, .. }
        | FileCall::Fallocate { handle, .. }
        | FileCall::LayoutGet(handle)
        | FileCall::LayoutLend(handle)
        | FileCall::WriteAlone(handle)
        | FileCall::WriteAloneStands { handle, .. }
        | FileCall::LayoutCopies(handle)
        | FileCall::CopiesEnd { handle, .. }
        | FileCall::TestLock { handle, .. }
        | FileCall::LayoutCommit { handle, .. }
        | FileCall::Seek { handle, .. } => Some(*handle),
        _ => None,
    }
}
