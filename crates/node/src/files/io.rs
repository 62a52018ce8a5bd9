//! Opening, reading, writing and closing files.

use super::behind::Writer;
use super::far::FarFile;
use super::open::{Backing, Content, OpenFile, OpenInode, OpenState};
use super::staging::{Outcome, Ready, Wish, read_at};
use crate::Node;
use crate::error::{disk_error, fs_error};
use catalog::{CatalogError, New};
use kv::{Durability, KvError};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::api::*;
use types::*;

/// How long a blocked write or truncate sleeps between looks at its recall.
pub(super) const RECALL_LOOK: Duration = Duration::from_secs(3600);

/// Writes at `offset`, or at the end wherever that is by then.
fn put(fd: &OwnedFd, data: &[u8], offset: u64, append: bool) -> rustix::io::Result<usize> {
    if append {
        let data = [std::io::IoSlice::new(data)];
        rustix::io::pwritev2(fd, &data, u64::MAX, rustix::io::ReadWriteFlags::APPEND)
    } else {
        rustix::io::pwrite(fd, data, offset)
    }
}

impl Node {
    pub(crate) fn create_file(
        &self,
        cx: &Cx,
        parent: Ino,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> FsResult<Opened> {
        let rule = self.catalog.layout_rule(parent).map_err(|e| fs_error("create", &e))?;
        if let Some(rule) = rule {
            return self.create_far(cx, (parent, name), mode, flags, &rule);
        }
        let (object, fd) = self.objects.take(&self.catalog, &self.disk)?;
        match self.catalog.create(cx, parent, name, &New::file(mode, object)) {
            Ok(inode) => {
                self.objects.settle(object);
                let backing = Backing::local(object, Arc::new(fd));
                Ok(self.open.with(inode.attr.ino, |entry, state| {
                    if state.handles == 0 {
                        state.direct = self.space.allows_direct_writes();
                        state.backing = Some(backing);
                    }
                    self.opened(entry, state, inode.attr, OpenFlags { write: true, ..flags })
                }))
            }
            Err(e) => {
                self.not_used(&e, object, Some(fd));
                if e.fs() == FsError::Exists && !flags.exclusive {
                    let existing = self.lookup(cx, parent, name)?;
                    return self.open_file(cx, existing.ino, flags);
                }
                Err(fs_error("create", &e))
            }
        }
    }

    /// Makes an empty file that nobody opens, in one transaction.
    pub(super) fn make_file(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> FsResult<Attr> {
        let rule = self.catalog.layout_rule(parent).map_err(|e| fs_error("create", &e))?;
        if let Some(rule) = rule {
            let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
            let opened = self.create_far(cx, (parent, name), mode, flags, &rule)?;
            self.release(opened.handle);
            return Ok(opened.attr);
        }
        let (object, stamp) = self.objects.take_closed(&self.catalog, &self.disk)?;
        match self.catalog.create(cx, parent, name, &New::closed_file(mode, object, stamp)) {
            Ok(inode) => {
                self.objects.settle(object);
                Ok(inode.attr)
            }
            Err(e) => {
                self.not_used(&e, object, None);
                Err(fs_error("create", &e))
            }
        }
    }

    /// A create has failed. Its object goes to another file only if this one surely does not have it: a database may say late that it took the change.
    fn not_used(&self, e: &CatalogError, object: ObjectId, fd: Option<OwnedFd>) {
        let unclear =
            matches!(e, CatalogError::Kv(e) if !matches!(e, KvError::Io { .. } | KvError::Full { .. }));
        if !unclear {
            self.objects.give_back(object, fd);
        } else {
            tracing::warn!(
                "object {object} is left until the next start, because it is not known whether a file has got it: {e}"
            );
        }
    }

    pub(super) fn opened(
        &self,
        entry: &Arc<OpenInode>,
        state: &mut OpenState,
        attr: Attr,
        flags: OpenFlags,
    ) -> Opened {
        state.handles += 1;
        match flags.is_idle() {
            true => state.idle += 1,
            false => state.returned = state.returned.map(|opened| opened.saturating_add(1)),
        }
        if flags.write {
            if state.writers == 0 {
                state.recorded_allocated = attr.disk_bytes;
            }
            state.writers += 1;
            self.leases.changed(&[entry.ino]); // From now on it changes without a word.
        }
        let handle = self.open.add_handle(entry.clone(), flags);
        let backing = state.backing.as_ref().filter(|_| state.direct).and_then(|b| b.fd().cloned());
        let coded = |far: &Arc<FarFile>| far.striped().is_coded();
        let parallel_writes = flags.write && state.backing.as_ref().and_then(|b| b.far()).is_some_and(coded);
        Opened { handle, attr, backing, parallel_writes }
    }

    /// The content of a file that is on disk, here or on targets; `learned` if those were asked.
    pub(super) fn open_content(
        &self,
        inode: &Inode,
        learned: Option<ObjectStamp>,
    ) -> FsResult<Option<Backing>> {
        let (ino, file) = (inode.attr.ino, inode.file.as_ref());
        let Some((object, far)) = file.and_then(|f| Some((f.object?, f.far))) else { return Ok(None) };
        if far {
            return self.far_backing(inode, object, learned).map(Some);
        }
        match self.disk.open_object(object, true) {
            Ok(fd) => Ok(Some(Backing::local(object, Arc::new(fd)))),
            Err(e @ disk::DiskError::Missing { .. }) => self.object_lost(ino, object, &e).map(|()| None),
            Err(e) => Err(disk_error(&format!("open the disk object of inode {ino}"), &e)),
        }
    }

    /// A file's object has vanished: from here on the file is read from its copies on tape, if there are any. `Stale` if
    /// the object is no longer that of the file: then it has gone as it should.
    pub(crate) fn object_lost(&self, ino: Ino, object: ObjectId, e: &disk::DiskError) -> FsResult<()> {
        let path = self.catalog.path_of(ino).unwrap_or_default();
        let path = types::escape(&path);
        let (text, result) = match self.catalog.lose_object(ino, object, crate::now()) {
            Ok(version) => (
                format!(
                    "{path} (inode {ino}): {e}; version {version} is read from tape again: look at the disk, at the \
                     kernel's log, and run `thermo check`"
                ),
                Ok(()),
            ),
            Err(_) if !self.names_object(ino, object) => return Err(FsError::Stale),
            Err(why) => (
                format!(
                    "{path} (inode {ino}): {e}, and it cannot be read from tape: {why}; restore it from elsewhere"
                ),
                Err(FsError::Io),
            ),
        };
        self.archive.warn(text);
        result
    }

    /// Whether this is the file's object, as far as anybody can tell.
    fn names_object(&self, ino: Ino, object: ObjectId) -> bool {
        match self.catalog.inode(ino) {
            Ok(inode) => inode.file.is_some_and(|f| f.object == Some(object)),
            Err(e) => e.fs() != FsError::NotFound,
        }
    }

    /// The same, seen by somebody who does not hold the file's lock. While the file is open its content is still there
    /// behind the descriptor, and what is written now goes there: the catalogue keeps the object until it is closed.
    pub(crate) fn object_vanished(&self, ino: Ino, object: ObjectId, e: &disk::DiskError) -> FsResult<()> {
        self.open.with(ino, |_, state| {
            if state.backing.as_ref().is_none_or(|backing| backing.object != object) {
                return self.object_lost(ino, object, e);
            }
            let path = self.catalog.path_of(ino).unwrap_or_default();
            let path = types::escape(&path);
            self.archive.warn(format!(
                "{path} (inode {ino}): {e}, but the file is open: copy it elsewhere before it is closed, its content goes \
                 with the last descriptor"
            ));
            Err(FsError::Busy)
        })
    }

    pub(crate) fn stamp(&self, fd: &OwnedFd) -> FsResult<ObjectStamp> {
        self.disk.stamp(fd).map_err(|e| disk_error("look at a disk object", &e))
    }

    /// How the content of an open file is now.
    pub(crate) fn stamp_of(&self, backing: &Backing) -> FsResult<ObjectStamp> {
        match &backing.content {
            Content::Local(fd) => self.stamp(fd),
            Content::Far(file) => Ok(file.stamp()),
        }
    }

    pub(crate) fn observe(
        &self,
        cx: &Cx,
        ino: Ino,
        object: ObjectId,
        stamp: ObjectStamp,
        closed: bool,
        durability: Durability,
    ) -> FsResult<Inode> {
        self.catalog
            .observe(cx, ino, object, &stamp, closed, durability)
            .map_err(|e| fs_error("record a file's new content", &e))
    }

    /// Brings the catalogue up to date with a file that is open for writing (before its times are set, for one).
    pub(crate) fn observe_open(&self, cx: &Cx, ino: Ino) -> FsResult<()> {
        let Some(entry) = self.open.get(ino) else { return Ok(()) };
        let state = entry.state.lock();
        let Some(backing) = state.backing.as_ref().filter(|_| state.writers > 0) else { return Ok(()) };
        let stamp = self.stamp_of(backing)?;
        self.observe(cx, ino, backing.object, stamp, false, Durability::Relaxed).map(drop)
    }

    /// Takes note of content that changed without a writer being open (through a mapping).
    pub(crate) fn observe_closed(&self, ino: Ino, object: ObjectId) {
        let observed = self.open.with(ino, |_, state| {
            if state.writers > 0 {
                return Ok(());
            }
            let fd =
                self.disk.open_object(object, false).map_err(|e| disk_error("look at a changed file", &e))?;
            let stamp = self.stamp(&fd)?;
            self.observe(&Cx::admin(crate::now()), ino, object, stamp, true, Durability::Relaxed).map(drop)
        });
        if let Err(e) = observed {
            tracing::debug!("inode {ino} has changed, and that cannot be recorded now: {e}");
        }
    }

    pub(crate) fn read_file(
        &self,
        handle: Handle,
        offset: u64,
        len: u32,
        mut done: ReadDone,
    ) -> Option<WaitId> {
        let Some(file) = self.open.handle(handle).filter(|f| f.flags.read) else {
            done(Err(FsError::BadHandle));
            return None;
        };
        let ino = file.inode.ino;
        loop {
            let backing = file.inode.state.lock().backing.clone();
            match backing.map(|b| b.content) {
                Some(Content::Local(fd)) => {
                    done(read_at(&fd, offset, len));
                    return None;
                }
                Some(Content::Far(file)) => {
                    // A target may be slow to answer, or gone: no thread of a gateway waits for it.
                    self.movers.run(Box::new(move || done(file.read(offset, len))));
                    return None;
                }
                None => {}
            }
            let staging = match self.recall_open(&file, "open") {
                Ok(Some(staging)) => staging,
                Ok(None) => continue,
                Err(e) => {
                    done(Err(e));
                    return None;
                }
            };
            let wait = self.staging.new_wait(ino);
            let table = self.staging.clone();
            let counted: ReadDone = Box::new(move |result| {
                table.end_wait(wait);
                done(result);
            });
            match staging.read(wait, offset, len, file.flags.nonblock, counted) {
                Wish::Waits => return Some(wait),
                Wish::Now(ready) => {
                    self.finish_read(ready);
                    return None;
                }
                Wish::Again(given_back) => done = given_back,
            }
        }
    }

    /// Calls `done` once a change of the content need not wait for tape.
    pub(crate) fn prepare(&self, ino: Ino, nonblock: bool, done: ReadyDone) -> Option<WaitId> {
        let known = self.catalog.inode(ino).map_err(|e| fs_error("change", &e));
        let staging = known.and_then(|inode| match inode.file {
            Some(_) => self.recall(ino, None, "change of"),
            None => Ok(None),
        });
        let staging = match staging {
            Ok(Some(staging)) => staging,
            Ok(None) => {
                done(Ok(()));
                return None;
            }
            Err(e) => {
                done(Err(e));
                return None;
            }
        };
        let wait = self.staging.new_wait(ino);
        let table = self.staging.clone();
        let done: ReadDone = Box::new(move |result| {
            table.end_wait(wait);
            done(result.map(drop));
        });
        match staging.when_ended(wait, nonblock, done) {
            Ok(()) => Some(wait),
            Err(ready) => {
                ready.finish();
                None
            }
        }
    }

    /// The running recall of an open file (started if need be); None if it is resident now.
    fn recall_open(&self, file: &OpenFile, why: &str) -> FsResult<Option<Arc<super::Staging>>> {
        let ino = file.inode.ino;
        if let Some(staging) = self.staging.get(ino)
            && staging.outcome().is_none()
        {
            if staging.add_reader() {
                self.archive.send(crate::archive::Event::Hurry(staging.clone()));
            }
            return Ok(Some(staging));
        }
        let inode = self.catalog.inode(ino).map_err(|e| fs_error("read", &e))?;
        let mut state = file.inode.state.lock();
        if state.backing.is_some() {
            return Ok(None);
        }
        if inode.file.as_ref().is_some_and(|f| f.object.is_some()) {
            state.backing = self.open_content(&inode, None)?;
            return Ok(None);
        }
        drop(state);
        self.recall(ino, None, why)
    }

    /// The object's descriptor of a file served by the node, recalled whole if need be.
    fn whole(&self, file: &OpenFile, why: &str) -> FsResult<Backing> {
        loop {
            if let Some(backing) = file.inode.state.lock().backing.clone() {
                return Ok(backing);
            }
            if let Some(staging) = self.recall_open(file, why)?
                && let Some(Outcome::Failed(_)) = staging.wait(RECALL_LOOK)
            {
                return Err(FsError::Io);
            }
        }
    }

    /// Writes; with `exact` at the offset also where the handle appends.
    pub(crate) fn write_file(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        exact: bool,
        writer: Writer,
    ) -> FsResult<usize> {
        let file = self.open.handle(handle).filter(|f| f.flags.write).ok_or(FsError::BadHandle)?;
        if file.flags.nonblock && file.inode.state.lock().backing.is_none() {
            self.recall_open(&file, "write")?;
            return Err(FsError::WouldBlock);
        }
        let backing = self.whole(&file, "write")?;
        let append = file.flags.append && !exact;
        let fd = match &backing.content {
            Content::Far(far) => return far.write(offset, data, append, writer),
            Content::Local(fd) => fd,
        };
        self.space.reserve(self, data.len() as u64)?;
        file.inode.growth.fetch_add(data.len() as u64, Ordering::Relaxed);
        let mut written = 0;
        while written < data.len() {
            match put(fd, &data[written..], offset + written as u64, append) {
                Ok(n) => written += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) if written > 0 => break,
                Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => return Err(FsError::NoSpace),
                Err(rustix::io::Errno::FBIG) => return Err(FsError::FileTooLarge),
                Err(e) => {
                    tracing::error!(
                        "writing the disk object {} of inode {}: {e}",
                        backing.object,
                        file.inode.ino
                    );
                    return Err(FsError::Io);
                }
            }
        }
        Ok(written)
    }

    pub(crate) fn sync_file(&self, handle: Handle) -> FsResult<()> {
        let file = self.open.handle(handle).ok_or(FsError::BadHandle)?;
        let backing = file.inode.state.lock().backing.clone();
        if let Some(backing) = backing {
            let (cx, ino) = (Cx::admin(crate::now()), file.inode.ino);
            match &backing.content {
                Content::Local(fd) => {
                    self.disk.sync_all(fd).map_err(|e| disk_error("fsync", &e))?;
                    let stamp = self.stamp_of(&backing)?;
                    self.observe(&cx, ino, backing.object, stamp, false, Durability::Relaxed)?;
                    file.inode.losses.say(&file.told)?;
                }
                // It may have other objects by now.
                Content::Far(far) => {
                    far.sync()?;
                    self.observe_open(&cx, ino)?;
                }
            }
        }
        self.catalog.sync().map_err(|e| fs_error("fsync", &e))
    }

    pub(crate) fn close_file(&self, handle: Handle) {
        let Some(file) = self.open.remove_handle(handle) else { return };
        self.locks.end(file.inode.ino, handle);
        match self.movers.node().filter(|_| Self::waits_for_targets(&file)) {
            Some(node) => node.close_written(file),
            None => {
                self.settle_written(&file);
                self.close_removed(&file);
            }
        }
    }

    /// Closes a handle that is no longer in the table.
    pub(super) fn close_removed(&self, file: &OpenFile) {
        let ino = file.inode.ino;
        file.take_back();
        let nlink = self.open.with(ino, |entry, state| {
            state.handles -= 1;
            let mut nlink = None;
            if file.flags.is_idle() {
                state.idle -= 1;
            }
            if file.flags.write {
                state.writers -= 1;
                if state.writers == 0 {
                    nlink = self.seal(ino, state);
                    self.open.sealed(ino);
                    entry.growth.store(0, Ordering::Relaxed);
                }
            }
            if state.handles > 0 {
                return Some(1);
            }
            self.leases.closed(ino);
            if state.returned == Some(0) {
                // Who comes next finds it as that node has left it.
                self.open.left_by_earlier(ino);
            }
            if let Some(far) = state.backing.as_ref().and_then(Backing::far) {
                self.close_spares(far);
                if !far.is_settled() {
                    self.forget_behind(far);
                    self.movers.wake();
                }
            }
            nlink
        });
        let orphan = match nlink {
            Some(n) => n == 0,
            None => self.catalog.inode(ino).is_ok_and(|i| i.attr.nlink == 0),
        };
        if orphan && let Err(e) = self.reap_if_closed(ino) {
            tracing::error!("removing unlinked inode {ino}: {e}");
        }
    }

    /// The last writer closed: the content is what it is until somebody opens the file for writing again.
    fn seal(&self, ino: Ino, state: &OpenState) -> Option<u32> {
        let sealed = match &state.backing {
            Some(b) if b.far().is_some_and(|far| !far.is_settled()) => {
                return None;
            }
            Some(b) => self.stamp_of(b).and_then(|stamp| {
                self.observe(&Cx::admin(crate::now()), ino, b.object, stamp, true, Durability::Relaxed)
            }),
            None => self
                .catalog
                .clear_writing(ino)
                .map_err(|e| fs_error("close", &e))
                .and_then(|()| self.catalog.inode(ino).map_err(|e| fs_error("close", &e))),
        };
        match sealed {
            Ok(inode) => Some(inode.attr.nlink),
            Err(e) => {
                tracing::error!("closing inode {ino}: {e}; its size is looked up again at the next open");
                None
            }
        }
    }

    pub(crate) fn allocate(&self, handle: Handle, mode: i32, offset: u64, len: u64) -> FsResult<()> {
        let file = self.open.handle(handle).filter(|f| f.flags.write).ok_or(FsError::BadHandle)?;
        let backing = self.whole(&file, "fallocate")?;
        // On targets nothing is allocated ahead.
        let fd = backing.fd().ok_or(FsError::NotSupported)?;
        if mode & libc::FALLOC_FL_PUNCH_HOLE == 0 {
            self.space.reserve(self, len)?;
        }
        let flags = rustix::fs::FallocateFlags::from_bits(mode as u32).ok_or(FsError::NotSupported)?;
        rustix::fs::fallocate(fd, flags, offset, len).map_err(|e| match e {
            rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => FsError::NoSpace,
            rustix::io::Errno::OPNOTSUPP => FsError::NotSupported,
            rustix::io::Errno::FBIG => FsError::FileTooLarge,
            rustix::io::Errno::INVAL => FsError::Invalid,
            _ => FsError::Io,
        })
    }

    pub(crate) fn seek_file(&self, handle: Handle, offset: u64, seek: Seek) -> FsResult<u64> {
        let file = self.open.handle(handle).ok_or(FsError::BadHandle)?;
        let backing = file.inode.state.lock().backing.clone();
        let Some(fd) = backing.as_ref().and_then(Backing::fd) else {
            // Offline or on targets: all data as far as anybody can tell; the one hole is the end.
            let size = match backing.as_ref().and_then(Backing::far) {
                Some(far) => far.stamp().size,
                None => self.catalog.inode(file.inode.ino).map_err(|e| fs_error("lseek", &e))?.attr.size,
            };
            return match (offset < size, seek) {
                (false, _) => Err(FsError::NoData),
                (true, Seek::Data) => Ok(offset),
                (true, Seek::Hole) => Ok(size),
            };
        };
        let from = match seek {
            Seek::Data => rustix::fs::SeekFrom::Data(offset),
            Seek::Hole => rustix::fs::SeekFrom::Hole(offset),
        };
        rustix::fs::seek(fd, from).map_err(|e| match e {
            rustix::io::Errno::NXIO => FsError::NoData,
            rustix::io::Errno::INVAL => FsError::Invalid,
            _ => FsError::Io,
        })
    }

    /// Hands finished reads to the completion threads, so that a drive never waits for a reader.
    pub(crate) fn finish_reads(&self, ready: impl IntoIterator<Item = Ready>) {
        for one in ready {
            if one.waits_for_targets() {
                self.finish_read(one);
            } else if let Err(lost) = self.ready.send(one) {
                lost.into_inner().finish();
            }
        }
    }

    /// Finishes a read at once; on threads that may wait, if targets have to be asked.
    fn finish_read(&self, ready: Ready) {
        if ready.waits_for_targets() {
            self.movers.run(Box::new(move || ready.finish()));
        } else {
            ready.finish();
        }
    }
}
