//! File access over a socket: the caller is whoever the kernel says is at the other end.

use super::acts::Gathered;
use crate::Node;
use crate::error::{failure, fs_failure};
use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use types::api::{FileApi, NewNode, OpenFlags, Opened, XattrMode};
use types::*;
use wire::{Answer, Failure, FileCall, Reply};

/// Longest read or write of one call (bytes).
const MAX_IO: usize = 1 << 20;

/// What one connection has open; released when it ends.
#[derive(Default)]
pub struct Session {
    handles: HashSet<Handle>,
    /// What parts of a list it has given.
    pub(super) gathered: Gathered,
}

impl Node {
    /// Releases what a connection left open.
    pub fn end_session(&self, session: Session) {
        for handle in session.handles {
            self.release(handle);
        }
    }

    pub(super) fn file_call(
        &self,
        cx: &Cx,
        session: &mut Session,
        call: FileCall,
    ) -> Result<Answer, Failure> {
        let what = describe(&call);
        self.check_reach(cx, &call).map_err(|e| fs_failure(&what, e))?;
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
            FileCall::Read { handle, offset, len } => {
                self.read_now(session, handle, offset, len).map(Answer::from)
            }
            FileCall::Write { handle, offset, data } => {
                let mine = session.handles.contains(&handle) && data.len() <= MAX_IO;
                let written = if mine { self.write(handle, offset, &data) } else { Err(FsError::BadHandle) };
                written.map(|n| Reply::Count(n as u64).into())
            }
            FileCall::Release { handle, sync } => {
                if !session.handles.remove(&handle) {
                    return Err(fs_failure(&what, FsError::BadHandle));
                }
                let synced = if sync { self.fsync(handle, false) } else { Ok(()) };
                self.release(handle);
                synced.map(|()| Reply::Done.into())
            }
            FileCall::Fsync { handle, data_only } => {
                let mine = session.handles.contains(&handle);
                let synced = if mine { self.fsync(handle, data_only) } else { Err(FsError::BadHandle) };
                synced.map(|()| Reply::Done.into())
            }
            other => self.name_call(cx, other).map(Answer::from),
        };
        answer.map_err(|e| fs_failure(&what, e))
    }

    fn name_call(&self, cx: &Cx, call: FileCall) -> Result<Reply, FsError> {
        Ok(match call {
            FileCall::Lookup { parent, name } => Reply::Attr(self.lookup(cx, parent, &name)?),
            FileCall::Resolve { path } => {
                let inode = self.catalog.resolve(cx, &path, false).map_err(|e| e.fs())?;
                Reply::Attr(self.shown(inode))
            }
            FileCall::Follow { path } => {
                let inode = self.catalog.resolve(cx, &path, true).map_err(|e| e.fs())?;
                Reply::Attr(self.shown(inode))
            }
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
            FileCall::Sync => {
                self.disk.sync_fs().map_err(|e| crate::error::disk_error("sync", &e))?;
                self.sync_names()?;
                Reply::Done
            }
            _ => return Err(FsError::NotSupported),
        })
    }

    /// Waits for tape if need be; the connection waits with it.
    fn read_now(&self, session: &Session, handle: Handle, offset: u64, len: u32) -> Result<Reply, FsError> {
        if !session.handles.contains(&handle) {
            return Err(FsError::BadHandle);
        }
        let (done, result) = crossbeam_channel::bounded(1);
        let send = Box::new(move |r| drop(done.send(r)));
        self.read(handle, offset, len.min(MAX_IO as u32), send);
        result.recv().unwrap_or(Err(FsError::Io)).map(Reply::Bytes)
    }

    /// Inode numbers give no way around the directories above: a caller who is not the administrator must be able to
    /// walk to them.
    fn check_reach(&self, cx: &Cx, call: &FileCall) -> Result<(), FsError> {
        let (ino, want) = match call {
            FileCall::Lookup { parent, .. } => (*parent, 1),
            FileCall::ReadDir { dir, .. } => (*dir, 4),
            FileCall::GetAttr(ino) | FileCall::ReadLink(ino) => (*ino, 0),
            FileCall::Xattrs(ino) => (*ino, 4),
            FileCall::SetAttr { ino, .. }
            | FileCall::SetXattr { ino, .. }
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
    fn open_for(
        &self,
        cx: &Cx,
        session: &mut Session,
        ino: Ino,
        flags: OpenFlags,
    ) -> Result<Answer, FsError> {
        let inode = self.catalog.inode(ino).map_err(|e| e.fs())?;
        let (read, write) = (4 * u32::from(flags.read || !flags.write), 2 * u32::from(flags.write));
        self.catalog.access(cx, &inode.attr, read | write).map_err(|e| e.fs())?;
        if flags.write && !self.is_admin(cx) {
            self.clear_set_id(cx, ino)?;
        }
        let flags = OpenFlags { read: read != 0, ..flags };
        self.open(cx, ino, flags).map(|o| opened(session, o, flags))
    }

    /// Creates and opens; opens what is there already, if that is wanted, as [`Node::open_for`] does.
    fn create_for(
        &self,
        cx: &Cx,
        session: &mut Session,
        (parent, name): (Ino, &[u8]),
        mode: u32,
        flags: OpenFlags,
    ) -> Result<Answer, FsError> {
        let flags = OpenFlags { write: true, ..flags };
        loop {
            match self.create(cx, parent, name, mode, OpenFlags { exclusive: true, ..flags }) {
                Err(FsError::Exists) if !flags.exclusive => {}
                created => return created.map(|o| opened(session, o, flags)),
            }
            match self.lookup(cx, parent, name) {
                Err(FsError::NotFound) => {} // removed meanwhile
                found => return self.open_for(cx, session, found?.ino, flags),
            }
        }
    }
}

/// What goes to the caller: a descriptor that can do no more than he may.
fn opened(session: &mut Session, opened: Opened, flags: OpenFlags) -> Answer {
    session.handles.insert(opened.handle);
    let descriptor = match opened.backing {
        // Whether a file is long enough to be written at its end is known to the node only at that moment.
        Some(_) if flags.append => None,
        Some(fd) if flags.read && flags.write => Some(fd),
        Some(fd) => reopen(&fd, flags.write).ok(),
        None => None,
    };
    let direct = descriptor.is_some();
    Answer { reply: Reply::Opened { handle: opened.handle, attr: opened.attr, direct }, descriptor }
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

fn describe(call: &FileCall) -> String {
    let name = |n: &[u8]| types::escape(n);
    match call {
        FileCall::Resolve { path } | FileCall::Follow { path } => name(path),
        FileCall::Lookup { name: n, .. }
        | FileCall::Mkdir { name: n, .. }
        | FileCall::Unlink { name: n, .. }
        | FileCall::Symlink { name: n, .. }
        | FileCall::Link { name: n, .. }
        | FileCall::Mknod { name: n, .. }
        | FileCall::Create { name: n, .. }
        | FileCall::CreateAs { name: n, .. }
        | FileCall::Rmdir { name: n, .. } => format!("`{}`", name(n)),
        FileCall::Rename { from, to, .. } => format!("`{}` to `{}`", name(&from.1), name(&to.1)),
        FileCall::GetAttr(ino) | FileCall::ReadLink(ino) | FileCall::Xattrs(ino) => format!("inode {ino}"),
        FileCall::SetAttr { ino, .. }
        | FileCall::Open { ino, .. }
        | FileCall::OpenAs { ino, .. }
        | FileCall::SetXattr { ino, .. }
        | FileCall::RemoveXattr { ino, .. } => format!("inode {ino}"),
        FileCall::ReadDir { dir, .. } => format!("directory inode {dir}"),
        FileCall::Read { .. }
        | FileCall::Write { .. }
        | FileCall::Fsync { .. }
        | FileCall::Release { .. } => "open file".into(),
        FileCall::Sync => "sync".into(),
    }
}
