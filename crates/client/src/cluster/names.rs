//! [`FileApi`] over calls: each is what its name says, for the user who makes it.

use super::bytes::{count, done, nobody};
use super::groups::Kind;
use super::table::Place;
use super::{ClusterFiles, NODE};
use crate::length::{Cutting, Telling};
use crate::spares::WHOLE;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::api::*;
use types::{Attr, Cx, DirEntry, FsError, Handle, Ino, LockHeld, LockOrder, RenameMode, SetAttr};
use wire::{FileCall, Look, Reply, Seen};

/// Entries with attributes asked for at once: with names of 255 bytes they fit well into a frame.
const PAGE: usize = 2000;

/// An error after so long is no refusal: the node could not be asked.
const WAITED: Duration = Duration::from_secs(10);

impl ClusterFiles {
    fn ask(&self, cx: &Cx, call: FileCall) -> FsResult<Reply> {
        self.ask_as(Kind::Names, cx, call)
    }

    fn ask_as(&self, kind: Kind, cx: &Cx, call: FileCall) -> FsResult<Reply> {
        let number = self.0.lines.number();
        self.0.memory.forget(call.changes());
        let _cutting = self.cutting(&call);
        self.0.lines.ask_unless(kind, cx, number.value, &|| Ok(call.clone()))
    }

    /// Something open here is about to be made shorter, or longer.
    fn cutting(&self, call: &FileCall) -> Option<Cutting> {
        call.cuts().and_then(|ino| self.0.table.inode(ino)).map(|inode| inode.length.cutting())
    }

    /// Looks at something, and remembers it for as long as the node allows.
    fn look(&self, cx: &Cx, at: Look) -> FsResult<Seen> {
        let Some(look) = self.0.memory.look().filter(|_| cx.checked) else {
            return match self.ask(cx, at.into())? {
                Reply::Attr(attr) => Ok(Seen::Attr(attr)),
                Reply::Entries(entries) => Ok(Seen::Entries(entries)),
                _ => Err(FsError::Io),
            };
        };
        let (reply, begun) =
            self.0.lines.open_forgetting(Kind::Names, cx, &FileCall::Leased(at.clone()), || ())?;
        let Reply::Leased(told) = reply else { return Err(FsError::Io) };
        self.0.memory.remember(&look, begun, &at, &told);
        Ok(told.seen)
    }

    fn attr(&self, cx: &Cx, at: Look) -> FsResult<Attr> {
        let ask = |at| match self.look(cx, at)? {
            Seen::Attr(attr) => Ok(attr),
            Seen::Absent => Err(FsError::NotFound),
            Seen::Entries(_) => Err(FsError::Io),
        };
        let attr: Attr = ask(at)?;
        // What was written here is seen here.
        let Some(inode) = self.0.table.inode(attr.ino) else { return Ok(attr) };
        // Also what is in memory: its time is that of the write.
        self.0.land_soon(&inode);
        let late = self.0.return_late(attr.ino, &inode)?;
        let told = self.0.commit(&inode, Telling::All)?;
        if late || told { ask(Look::GetAttr(attr.ino)) } else { Ok(attr) }
    }

    /// Looks at names that will probably be wanted next, if this is one of them; None: it is to be looked up by itself.
    fn look_ahead(&self, cx: &Cx, dir: Ino, name: &[u8]) -> Option<FsResult<Attr>> {
        let (after, limit) = self.0.ahead.guess(dir).filter(|_| cx.checked && self.0.memory.is_live())?;
        let begun = Instant::now();
        let (entries, refused) = match self.look(cx, Look::ReadDir { dir, after, limit }) {
            Ok(Seen::Entries(entries)) => (entries, false),
            // The node was waited for in vain, and would be once more.
            Err(FsError::Io) if begun.elapsed() >= WAITED => return Some(Err(FsError::Io)),
            _ => (Vec::new(), true),
        };
        // Only what may be remembered counts: of what somebody writes a listing may tell less than a look at it.
        let among = entries.iter().any(|(entry, _)| entry.name == name);
        let known = if among { self.lookup_at_once(cx, dir, name) } else { None };
        let last = entries.last().filter(|_| known.is_some()).map(|(entry, _)| entry.cookie);
        self.0.ahead.came(dir, last, refused || !entries.is_empty());
        known
    }

    /// A call that makes something.
    fn made(&self, cx: &Cx, call: FileCall) -> FsResult<Attr> {
        match self.ask(cx, call)? {
            Reply::Attr(attr) => Ok(attr),
            _ => Err(FsError::Io),
        }
    }

    fn opened(&self, cx: &Cx, call: &FileCall, flags: OpenFlags) -> FsResult<Opened> {
        let (mut look, mut cutting) = (None, None);
        let forget = || {
            self.0.memory.forget(call.changes());
            cutting = self.cutting(call);
            look = self.0.memory.look();
        };
        // What is made was not there just now.
        let kind = if matches!(call, FileCall::CreateAs { .. }) { Kind::Names } else { Kind::Opens };
        match self.0.lines.open_forgetting(kind, cx, call, forget)? {
            (Reply::OpenedAt { handle, attr, resident, layout, parent }, begun) => {
                if let (Some(look), Some(told), FileCall::CreateAs { parent, .. }) = (&look, &parent, call) {
                    self.0.memory.remember(look, begun, &Look::GetAttr(*parent), told);
                }
                let (handle, file) = self.0.table.enter(cx, attr.ino, flags, Place { begun, handle });
                file.inode.prepared.fetch_or(resident, Ordering::AcqRel);
                // Where the node does not say it is asked when bytes are to go.
                if layout.is_some() || !matches!(call, FileCall::OpenAs { flags, .. } if flags.write) {
                    self.0.lies(&file, layout.as_deref());
                }
                Ok(Opened { handle, attr, backing: None, parallel_writes: false })
            }
            // A node that does not tell more is asked for it.
            (Reply::Opened { handle, attr, .. }, begun) => {
                let (handle, _) = self.0.table.enter(cx, attr.ino, flags, Place { begun, handle });
                Ok(Opened { handle, attr, backing: None, parallel_writes: false })
            }
            _ => Err(FsError::Io),
        }
    }

    /// A call about an open file.
    pub(super) fn of_open(
        &self,
        kind: Kind,
        handle: Handle,
        call: impl Fn(Handle) -> FileCall,
    ) -> FsResult<Reply> {
        let file = self.0.table.get(handle)?;
        let number = self.0.lines.number();
        self.0.lines.ask_open(kind, &file, number.value, &|handle| Ok(call(handle)))
    }
}

impl FileApi for ClusterFiles {
    fn lookup(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let known = self.lookup_at_once(cx, parent, name).or_else(|| self.look_ahead(cx, parent, name));
        known.unwrap_or_else(|| {
            let attr = self.attr(cx, Look::Lookup { parent, name: name.to_vec() })?;
            self.0.ahead.found(parent, attr.ino);
            Ok(attr)
        })
    }

    fn lookup_at_once(&self, cx: &Cx, parent: Ino, name: &[u8]) -> Option<FsResult<Attr>> {
        match self.0.memory.name(parent, name).filter(|_| cx.checked)? {
            Some(known) if self.0.table.inode(known.ino).is_none() => Some(Ok(known)),
            // What is written here is told before anybody is told of it.
            Some(_) => None,
            None => Some(Err(FsError::NotFound)),
        }
    }

    fn getattr(&self, cx: &Cx, ino: Ino) -> FsResult<Attr> {
        self.getattr_at_once(cx, ino).map_or_else(|| self.attr(cx, Look::GetAttr(ino)), Ok)
    }

    fn getattr_at_once(&self, cx: &Cx, ino: Ino) -> Option<Attr> {
        let known = self.0.memory.attr(ino).filter(|_| cx.checked);
        known.filter(|_| self.0.table.inode(ino).is_none())
    }

    fn attr_term(&self, ino: Ino) -> Duration {
        // What is written here the node is told of before anybody is told of it.
        if self.0.table.inode(ino).is_some() { Duration::ZERO } else { self.0.memory.term(ino) }
    }

    fn setattr(&self, cx: &Cx, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let kind = match set.size {
            None => Kind::Names,
            Some(0) => Kind::Opens,
            Some(_) => Kind::Tape,
        };
        if let Some(inode) = self.0.table.inode(ino) {
            // What was written before does not count as written after it.
            self.0.land(ino, &inode);
            self.0.commit(&inode, Telling::All)?;
        }
        let inode = self.0.table.inode(ino).filter(|_| set.size.is_some());
        let _apart = inode.as_deref().map(|inode| self.0.apart(ino, inode, None, WHOLE)).transpose()?;
        match self.ask_as(kind, cx, FileCall::SetAttr { ino, set: set.clone() })? {
            Reply::Attr(attr) => Ok(attr),
            _ => Err(FsError::Io),
        }
    }

    fn clear_set_id(&self, cx: &Cx, ino: Ino) -> FsResult<bool> {
        self.ask(cx, FileCall::ClearSetId(ino)).and_then(count).map(|any| any > 0)
    }

    fn readlink(&self, cx: &Cx, ino: Ino) -> FsResult<Vec<u8>> {
        match self.ask(cx, FileCall::ReadLink(ino))? {
            Reply::Bytes(target) => Ok(target),
            _ => Err(FsError::Io),
        }
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], node: &NewNode) -> FsResult<Attr> {
        let NewNode { kind, mode, rdev } = *node;
        self.made(cx, FileCall::Mknod { parent, name: name.to_vec(), kind, mode, rdev })
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> FsResult<Attr> {
        self.made(cx, FileCall::Mkdir { parent, name: name.to_vec(), mode })
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Attr> {
        self.made(cx, FileCall::Symlink { parent, name: name.to_vec(), target: target.to_vec() })
    }

    fn link(&self, cx: &Cx, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        self.made(cx, FileCall::Link { ino, parent, name: name.to_vec() })
    }

    fn unlink(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.ask(cx, FileCall::Unlink { parent, name: name.to_vec() }).and_then(done)
    }

    fn rmdir(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.ask(cx, FileCall::Rmdir { parent, name: name.to_vec() }).and_then(done)
    }

    fn rename(&self, cx: &Cx, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> FsResult<()> {
        let (from, to) = ((from.0, from.1.to_vec()), (to.0, to.1.to_vec()));
        self.ask(cx, FileCall::Rename { from, to, mode }).and_then(done)
    }

    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, flags: OpenFlags) -> FsResult<Opened> {
        let flags = OpenFlags { write: true, ..flags };
        self.opened(cx, &FileCall::CreateAs { parent, name: name.to_vec(), mode, flags }, flags)
    }

    fn open(&self, cx: &Cx, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        let inode = self.0.table.inode(ino).filter(|_| flags.truncate);
        if let Some(inode) = &inode {
            self.0.land(ino, inode);
        }
        let _apart = inode.as_deref().map(|inode| self.0.apart(ino, inode, None, WHOLE)).transpose()?;
        self.opened(cx, &FileCall::OpenAs { ino, flags }, flags)
    }

    /// Only the node knows. What is to be made was not there just now.
    fn may_wait_to_open(&self, _: Ino, name: Option<&[u8]>, _: bool) -> bool {
        name.is_none()
    }

    fn read(&self, handle: Handle, offset: u64, len: u32, done: ReadDone) -> Option<WaitId> {
        self.read_file(handle, offset, len, done)
    }

    fn prepare_change(&self, ino: Ino, nonblock: bool, done: ReadyDone) -> Option<WaitId> {
        self.prepare(ino, nonblock, done)
    }

    fn cancel_wait(&self, wait: WaitId) {
        self.withdraw(wait);
    }

    fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.0.write(handle, offset, data, false)
    }

    fn write_back(&self, handle: Handle, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.0.write(handle, offset, data, true)
    }

    fn flush(&self, handle: Handle) -> FsResult<()> {
        let file = self.0.table.get(handle)?;
        self.0.land(file.ino, &file.inode);
        let settled = self.0.settle_by(&file);
        file.inode.behind.is_whole(&file).and(settled)?;
        self.0.settle_copies(&file)?;
        self.0.commit_by(&file.inode, Telling::Rest, Some(&file)).map(drop)
    }

    fn fsync(&self, handle: Handle, data_only: bool) -> FsResult<()> {
        let file = self.0.table.get(handle)?;
        self.0.land(file.ino, &file.inode);
        self.0.settle_copies(&file)?;
        let synced = self.0.sync_direct(&file, || {
            let before = file.inode.spares.moment();
            let synced = self.of_open(Kind::Bytes, handle, |handle| FileCall::Fsync { handle, data_only });
            synced.and_then(done).map(|()| file.inode.spares.settled_before(before))
        });
        file.inode.behind.told(&file).and(synced)
    }

    fn release(&self, handle: Handle) {
        // While it is still known: who wants the file meanwhile waits for that.
        if let Some(file) = self.0.table.peek(handle) {
            file.inode.behind.closes();
            self.0.land(file.ino, &file.inode);
            if let Err(e) = self.0.settle_by(&file) {
                tracing::error!(
                    "inode {}: what was written is lost if the node is started anew now: it did not bring it to its targets ({e})",
                    file.ino
                );
            }
        }
        let Some(file) = self.0.table.leave(handle) else { return };
        if let Err(e) = self.0.settle_copies(&file) {
            tracing::error!("inode {}: its copies may differ, and the node was not told: {e}", file.ino);
        }
        self.0.locks.forget(&file);
        if let Err(e) = self.0.commit_by(&file.inode, Telling::All, Some(&file)) {
            tracing::error!(
                "inode {}: what was written at its targets was not told to the node: {e}",
                file.ino
            );
        }
        let number = self.0.lines.number();
        if let Err(e) = self.0.lines.release(&file, number.value) {
            tracing::debug!("inode {}: releasing it: {e}", file.ino);
        }
    }

    fn fallocate(&self, handle: Handle, mode: i32, offset: u64, len: u64) -> FsResult<()> {
        let file = self.0.table.get(handle)?;
        let _served = file.inode.copies.serve();
        let _apart = self.0.apart(file.ino, &file.inode, Some(&file), WHOLE)?;
        let call = |handle| FileCall::Fallocate { handle, mode, offset, len };
        self.of_open(Kind::Tape, handle, call).and_then(done)
    }

    fn seek(&self, handle: Handle, offset: u64, seek: Seek) -> FsResult<u64> {
        let hole = seek == Seek::Hole;
        self.of_open(Kind::Names, handle, |handle| FileCall::Seek { handle, offset, hole }).and_then(count)
    }

    fn lock(&self, handle: Handle, order: LockOrder, done: ReadyDone) -> Option<WaitId> {
        self.lock_file(handle, order, done)
    }

    fn test_lock(&self, handle: Handle, order: LockOrder) -> FsResult<Option<LockHeld>> {
        self.test_file_lock(handle, order)
    }

    fn readdir(&self, cx: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<DirEntry>> {
        let found = self.readdir_plus(cx, dir, cookie, limit)?;
        Ok(found.into_iter().map(|(entry, _)| entry).collect())
    }

    fn readdir_plus(&self, cx: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<(DirEntry, Attr)>> {
        let limit = limit.min(PAGE) as u32;
        match self.look(cx, Look::ReadDir { dir, after: cookie, limit })? {
            Seen::Entries(entries) => Ok(entries),
            _ => Err(FsError::Io),
        }
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.ask(&nobody(), FileCall::Parent(dir)).and_then(count).map(Ino)
    }

    fn sync_names(&self) -> FsResult<()> {
        self.ask(&nobody(), FileCall::SyncNames).and_then(done)
    }

    fn statfs(&self) -> FsResult<StatFs> {
        match self.ask(&nobody(), FileCall::StatFs)? {
            Reply::StatFs(figures) => Ok(figures),
            _ => Err(FsError::Io),
        }
    }

    fn getxattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        match self.ask(cx, FileCall::GetXattr { ino, name: name.to_vec() })? {
            Reply::Bytes(value) => {
                let own = self.0.node.as_ref().filter(|_| name == NODE);
                Ok(own.map_or(value, |node| node.as_bytes().to_vec()))
            }
            _ => Err(FsError::Io),
        }
    }

    fn listxattr(&self, cx: &Cx, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        match self.ask(cx, FileCall::Xattrs(ino))? {
            Reply::Xattrs(all) => Ok(all.into_iter().map(|(name, _)| name).collect()),
            _ => Err(FsError::Io),
        }
    }

    fn setxattr(&self, cx: &Cx, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let call = FileCall::SetXattrAs { ino, name: name.to_vec(), value: value.to_vec(), mode };
        self.ask(cx, call).and_then(done)
    }

    fn removexattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.ask(cx, FileCall::RemoveXattr { ino, name: name.to_vec() }).and_then(done)
    }

    /// It is told of attributes of which [`FileApi::attr_term`] has said that they may be remembered; names must not be.
    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.0.memory.watch(watcher);
    }
}
