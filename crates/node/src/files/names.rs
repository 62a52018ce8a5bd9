//! [`FileApi`] on the node: names and attributes go to the catalogue, bytes to [`super::io`].

use super::Writer;
use super::open::Seals;
use crate::Node;
use crate::error::fs_error;
use crate::locks::LockSession;
use catalog::{CatalogError, New};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::api::*;
use types::*;

/// Bytes that an offline file shows as allocated: programs that take a file without blocks for a hole (tar -S, cp) would
/// otherwise not read it at all.
const OFFLINE_DISK_BYTES: u64 = 512;

impl Node {
    fn fail(&self, doing: &'static str) -> impl Fn(CatalogError) -> FsError {
        move |e| fs_error(doing, &e)
    }

    /// Attributes for users: what the object says of a file that is being written, and at least one block for an
    /// offline one.
    pub(crate) fn shown(&self, inode: Inode) -> Attr {
        let mut attr = inode.attr;
        let Some(file) = &inode.file else { return attr };
        if file.object.is_none() {
            attr.disk_bytes = if attr.size > 0 { OFFLINE_DISK_BYTES } else { 0 };
            return attr;
        }
        let Some(entry) = self.open.get(attr.ino) else { return attr };
        let state = entry.state.lock();
        if let (true, Some(backing)) = (state.writers > 0, &state.backing)
            && let Ok(stamp) = self.stamp_of(backing)
        {
            attr.disk_bytes = stamp.allocated;
            let untouched = match &inode.observed {
                Some(observed) => observed.same_content(&stamp),
                None => stamp.size == 0 && stamp.mtime <= attr.btime, // made in advance, not written yet
            };
            if !untouched {
                attr.size = stamp.size;
                attr.mtime = stamp.mtime;
                attr.ctime = attr.ctime.max(stamp.ctime);
            }
        }
        attr
    }

    /// Attributes for users of what is read now.
    pub(crate) fn shown_now(&self, read: impl FnOnce() -> catalog::Result<Inode>) -> catalog::Result<Attr> {
        let seals = self.open.seals();
        read().and_then(|inode| self.shown_since(&seals, inode))
    }

    /// The same of what was read since that moment: a file whose last writer has closed it meanwhile is read again.
    fn shown_since(&self, seals: &Seals, inode: Inode) -> catalog::Result<Attr> {
        let mut attr = self.shown(inode);
        let mut later = None;
        while attr.kind == FileKind::File && self.open.sealed_since(attr.ino, later.as_ref().unwrap_or(seals))
        {
            later = Some(self.open.seals());
            attr = match self.catalog.inode(attr.ino) {
                Ok(inode) => self.shown(inode),
                // Removed meanwhile: it was there when it was read.
                Err(e) if e.fs() == FsError::NotFound => return Ok(attr),
                Err(e) => return Err(e),
            };
        }
        Ok(attr)
    }

    /// Whether an object's stamp tells of content that the catalogue has not seen.
    pub(crate) fn changed(recorded: Option<&ObjectStamp>, now: &ObjectStamp) -> bool {
        recorded.is_none_or(|r| !r.same_content(now))
    }

    /// An unlinked inode goes as soon as nobody has it open.
    pub(crate) fn reap_if_closed(&self, ino: Ino) -> FsResult<()> {
        self.open.with(ino, |_, state| {
            if state.handles > 0 {
                return Ok(());
            }
            self.drop_recall(ino);
            self.catalog.reap(ino).map(drop).map_err(self.fail("remove an unlinked file"))
        })
    }

    fn new_node(&self, cx: &Cx, parent: Ino, name: &[u8], new: New) -> FsResult<Attr> {
        self.may_make(cx)?;
        Ok(self.seen_by_all(self.catalog.create(cx, parent, name, &new)).map_err(self.fail("create"))?.attr)
    }

    fn set_attributes(&self, cx: &Cx, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        if let Some(size) = set.size {
            self.may_resize(cx, ino, size)?;
            self.truncate(cx, ino, size)?;
        }
        let rest = SetAttr { size: None, ..set.clone() };
        if rest == SetAttr::default() {
            return self.getattr(cx, ino);
        }
        self.observe_open(cx, ino)?;
        Ok(self.shown(self.catalog.setattr(cx, ino, &rest).map_err(self.fail("setattr"))?))
    }
}

impl Node {
    /// Refuses to show programs that come through a mount a directory that leads to a subsystem: they would take it for an empty one, whose files are all gone. Commands
    /// go past it.
    fn names_are_here(&self, cx: &Cx, dir: Ino) -> FsResult<()> {
        if !cx.checked {
            return Ok(());
        }
        let elsewhere = self.catalog.elsewhere(dir).map_err(self.fail("a junction"))?;
        elsewhere.map_or(Ok(()), |_| Err(FsError::Elsewhere))
    }
}

impl FileApi for Node {
    fn lookup(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        match self.shown_now(|| self.catalog.lookup(parent, name)).map_err(self.fail("lookup")) {
            Err(FsError::NotFound) => self.names_are_here(cx, parent).and(Err(FsError::NotFound)),
            found => found,
        }
    }

    fn getattr(&self, _cx: &Cx, ino: Ino) -> FsResult<Attr> {
        self.shown_now(|| self.catalog.inode(ino)).map_err(self.fail("getattr"))
    }

    fn changes_unseen(&self, ino: Ino) -> bool {
        self.open.get(ino).is_some_and(|inode| inode.lent.load(Ordering::Acquire) > 0)
    }

    fn setattr(&self, cx: &Cx, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        self.seen_by_all(self.set_attributes(cx, ino, set))
    }

    fn clear_set_id(&self, cx: &Cx, ino: Ino) -> FsResult<bool> {
        self.seen_by_all(self.catalog.clear_set_id(ino, cx.now)).map_err(self.fail("clear set-id"))
    }

    fn readlink(&self, _cx: &Cx, ino: Ino) -> FsResult<Vec<u8>> {
        self.catalog.readlink(ino).map_err(self.fail("readlink"))
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], node: &NewNode) -> FsResult<Attr> {
        if node.kind == FileKind::File {
            self.may_make(cx)?;
            self.may_grow(cx, cx.uid)?;
            return self.seen_by_all(self.make_file(cx, parent, name, node.mode));
        }
        self.new_node(cx, parent, name, New { rdev: node.rdev, ..New::node(node.kind, node.mode) })
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> FsResult<Attr> {
        self.new_node(cx, parent, name, New::node(FileKind::Directory, mode))
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Attr> {
        let new = New { target: Some(target.to_vec()), ..New::node(FileKind::Symlink, 0o777) };
        self.new_node(cx, parent, name, new)
    }

    fn link(&self, cx: &Cx, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let linked = self.seen_by_all(self.catalog.link(cx, ino, parent, name));
        Ok(self.shown(linked.map_err(self.fail("link"))?))
    }

    fn unlink(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<()> {
        let removed = self.seen_by_all(self.catalog.unlink(cx, parent, name, &|_| true));
        let removed = removed.map_err(self.fail("unlink"))?;
        if removed.orphan { self.reap_if_closed(removed.ino) } else { Ok(()) }
    }

    fn rmdir(&self, cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.seen_by_all(self.catalog.rmdir(cx, parent, name)).map_err(self.fail("rmdir"))
    }

    fn rename(&self, cx: &Cx, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> FsResult<()> {
        let replaced = self.seen_by_all(self.catalog.rename(cx, from, to, mode, &|_| true));
        match replaced.map_err(self.fail("rename"))? {
            Some(removed) if removed.orphan => self.reap_if_closed(removed.ino),
            _ => Ok(()),
        }
    }

    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, flags: OpenFlags) -> FsResult<Opened> {
        self.may_make(cx)?;
        self.may_grow(cx, cx.uid)?;
        self.seen_by_all(self.create_file(cx, parent, name, mode, flags))
    }

    fn open(&self, cx: &Cx, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        self.may_write(cx, ino, flags)?;
        self.seen_by_all(self.open_file(cx, ino, flags))
    }

    fn may_wait_to_open(&self, ino: Ino, name: Option<&[u8]>, writes: bool) -> bool {
        let alone = || match name {
            None => self.leases.is_written_alone(ino),
            Some(name) => {
                self.catalog.lookup(ino, name).is_ok_and(|it| self.leases.is_written_alone(it.attr.ino))
            }
        };
        (self.leases.any_alone() && alone()) || (writes && self.may_be_lent(ino, name))
    }

    fn read(&self, handle: Handle, offset: u64, len: u32, done: ReadDone) -> Option<WaitId> {
        self.read_file(handle, offset, len, done)
    }

    fn prepare_change(&self, ino: Ino, nonblock: bool, done: ReadyDone) -> Option<WaitId> {
        self.prepare(ino, nonblock, done)
    }

    fn cancel_wait(&self, wait: WaitId) {
        if !self.locks.withdraw(wait) {
            self.finish_reads(self.staging.cancel(wait));
        }
    }

    fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.write_file(handle, offset, data, false, Writer::Mount)
    }

    fn write_back(&self, handle: Handle, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.write_file(handle, offset, data, true, Writer::Mount)
    }

    fn flush(&self, handle: Handle) -> FsResult<()> {
        let file = self.open.handle(handle).ok_or(FsError::BadHandle)?;
        self.flush_file(&file)
    }

    fn fsync(&self, handle: Handle, _data_only: bool) -> FsResult<()> {
        self.sync_file(handle)
    }

    fn release(&self, handle: Handle) {
        self.close_file(handle);
        self.leases.settle();
    }

    fn fallocate(&self, handle: Handle, mode: i32, offset: u64, len: u64) -> FsResult<()> {
        self.seen_by_all(self.allocate(handle, mode, offset, len))
    }

    fn seek(&self, handle: Handle, offset: u64, seek: Seek) -> FsResult<u64> {
        self.seek_file(handle, offset, seek)
    }

    fn lock(&self, handle: Handle, order: LockOrder, done: ReadyDone) -> Option<WaitId> {
        self.lock_for(LockSession::default(), (handle, order, false), done)
    }

    fn test_lock(&self, handle: Handle, order: LockOrder) -> FsResult<Option<LockHeld>> {
        self.test_lock_for(LockSession::default(), handle, order)
    }

    fn readdir(&self, cx: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<DirEntry>> {
        self.names_are_here(cx, dir)?;
        self.catalog.readdir(dir, cookie, limit).map(past_damage).map_err(self.fail("readdir"))
    }

    fn readdir_plus(&self, cx: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<(DirEntry, Attr)>> {
        self.names_are_here(cx, dir)?;
        let seals = self.open.seals();
        let page = self.catalog.readdir_plus(dir, cookie, limit).map_err(self.fail("readdir"))?;
        let page = past_damage(page);
        let with_attr = |(entry, inode): (DirEntry, catalog::Result<Inode>)| {
            let attr = match inode.and_then(|inode| self.shown_since(&seals, inode)) {
                Ok(attr) => attr,
                Err(e) => unknown(&entry, &e),
            };
            (entry, attr)
        };
        Ok(page.into_iter().map(with_attr).collect())
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.catalog.parent(dir).map_err(self.fail("parent"))
    }

    fn sync_names(&self) -> FsResult<()> {
        self.catalog.sync().map_err(self.fail("sync"))
    }

    fn statfs(&self) -> FsResult<StatFs> {
        let totals = self.catalog.totals().map_err(self.fail("statfs"))?;
        let space = self.space.view();
        let free = space.capacity.saturating_sub(space.used) + space.purgeable;
        Ok(StatFs { total_bytes: space.capacity, free_bytes: free.min(space.capacity), files: totals.inodes })
    }

    fn getxattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        match self.virtual_xattr(ino, name) {
            Some(value) => value,
            None => self.catalog.getxattr(cx, ino, name).map_err(|e| match e {
                CatalogError::Fs(f) => f,
                e => fs_error("getxattr", &e),
            }),
        }
    }

    fn listxattr(&self, cx: &Cx, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.catalog.listxattr(cx, ino).map_err(self.fail("listxattr"))
    }

    fn setxattr(&self, cx: &Cx, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.refuse_virtual(name)?;
        self.seen_by_all(self.catalog.setxattr(cx, ino, name, value, mode)).map_err(self.fail("setxattr"))
    }

    fn removexattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.refuse_virtual(name)?;
        self.seen_by_all(self.catalog.removexattr(cx, ino, name)).map_err(self.fail("removexattr"))
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.watchers.write().push(watcher);
        self.watched.store(true, Ordering::Release);
    }
}

/// What is to be listed; of entries that are damaged the log says so.
pub(crate) fn past_damage<T>(listed: catalog::Listed<T>) -> Vec<T> {
    for (_, e) in &listed.damaged {
        tracing::error!("a listing goes on behind it, with the name if that is known otherwise: {e}");
    }
    listed.found
}

/// What a listing shows of an entry whose inode is damaged: no links.
pub(crate) fn unknown(entry: &DirEntry, e: &catalog::CatalogError) -> Attr {
    tracing::error!("{}: {e}", types::escape(&entry.name));
    let never = Time::default();
    Attr {
        ino: entry.ino,
        kind: entry.kind,
        mode: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        disk_bytes: 0,
        atime: never,
        mtime: never,
        ctime: never,
        btime: never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_file_that_is_closed_while_somebody_looks_is_not_shown_as_it_was_before_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let (cx, flags) = (Cx::admin(crate::now()), OpenFlags { write: true, ..OpenFlags::default() });
        let made = node.create(&cx, Ino::ROOT, b"file", 0o644, flags).unwrap();
        assert_eq!(node.write(made.handle, 0, b"written").unwrap(), 7);
        let read_then_closed = || {
            let inode = node.catalog.inode(made.attr.ino);
            node.release(made.handle);
            inode
        };
        assert_eq!(node.shown_now(read_then_closed).unwrap().size, 7);
        node.stop(true);
    }

    #[test]
    fn a_file_that_nobody_opened_is_closed_as_soon_as_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let (cx, file) = (Cx::admin(crate::now()), NewNode { kind: FileKind::File, mode: 0o600, rdev: 0 });
        let made = node.mknod(&cx, Ino::ROOT, b"file", &file).unwrap();
        assert!(!node.catalog.is_writing(made.ino).unwrap());
        let inode = node.catalog.inode(made.ino).unwrap();
        let known = inode.file.and_then(|file| Some((file.object?, file.stamp?)));
        let (object, stamp) = known.expect("it is known how its object is");
        assert!(stamp.same_content(&node.stamp(&node.disk.open_object(object, false).unwrap()).unwrap()));
        assert_eq!(node.mknod(&cx, Ino::ROOT, b"file", &file), Err(FsError::Exists));
        node.objects.sweep(&node.catalog, &node.disk).unwrap();
        let opened = node
            .open(&cx, made.ino, OpenFlags { write: true, ..OpenFlags::default() })
            .expect("it is opened as any other");
        assert_eq!(node.write(opened.handle, 0, b"written").unwrap(), 7);
        node.release(opened.handle);
        assert_eq!(node.getattr(&cx, made.ino).unwrap().size, 7);
        node.stop(true);
    }
}
