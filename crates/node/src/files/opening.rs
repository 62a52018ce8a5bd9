//! Opening files that are there.

use super::learned::{GONE, Learned};
use super::open::{OpenInode, OpenState};
use crate::Node;
use crate::error::fs_error;
use crate::movers::Unlent;
use kv::Durability;
use std::sync::Arc;
use types::api::*;
use types::*;

/// How long whoever opens a file waits until its targets refuse what another host has kept too long.
const FENCED: std::time::Duration = std::time::Duration::from_secs(5);

impl Node {
    pub(crate) fn open_file(&self, cx: &Cx, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        self.wait_for_spares(ino)?;
        self.open_file_now(cx, ino, flags)
    }

    /// The same although hosts may have kept something of it.
    pub(super) fn open_file_now(&self, cx: &Cx, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        if flags.truncate && flags.write {
            self.truncate(cx, ino, 0)?;
        }
        let opened = loop {
            let unlent = if flags.write { self.unlent(ino)? } else { None };
            let learned = self.learn_unsettled(ino, GONE)?;
            let tried = self.open.with(ino, |entry, state| {
                self.open_locked(cx, ino, flags, (learned.as_ref(), unlent.as_ref()), (entry, state))
            })?;
            if let Some(opened) = tried {
                break opened;
            }
        };
        // What another host has written and keeps in its memory is at the targets before this is answered.
        self.take_alone(ino);
        if flags.read
            && !flags.truncate
            && let Err(e) = self.catalog.touch_access(ino, cx.now)
        {
            tracing::warn!("the access to inode {ino} is not recorded: {e}");
        }
        Ok(opened)
    }

    /// Nobody has anything in its memory any more that was written of a file that is open; what a host does not bring to the targets in time is refused from now on.
    pub(super) fn take_alone(&self, ino: Ino) {
        let Some(lost) = self.leases.take_alone(ino) else { return };
        tracing::warn!(
            "inode {ino}: a host that wrote it has not said that its targets have all of it; if it still has something, that is refused from now on, and it tells its programs"
        );
        if let Err(why) = self.refuse_what_is_kept(ino) {
            tracing::warn!(
                "inode {ino}: if that host still has something, it may land for up to ten minutes: {why}"
            );
        }
        drop(lost);
    }

    /// Ends all rights to write a file at its targets that were given out before. On a thread of its own: those for targets may all wait for one that does not
    /// answer.
    fn refuse_what_is_kept(&self, ino: Ino) -> Result<(), String> {
        let backing = self.open.get(ino).and_then(|entry| entry.state.lock().backing.clone());
        let (Some(object), Some(node)) =
            (backing.filter(|it| it.far().is_some()).map(|it| it.object), self.movers.node())
        else {
            return Ok(());
        };
        let (places, generation) = self.raised(object).map_err(|e| e.to_string())?;
        let (tell, told) = std::sync::mpsc::channel();
        let fences = move || _ = tell.send(node.fence_objects(places, generation));
        let thread = std::thread::Builder::new().name("lost-lease".into());
        thread.spawn(fences).map_err(|e| format!("no thread for that: {e}"))?;
        match told.recv_timeout(FENCED) {
            Ok(fenced) => fenced.map_err(|e| e.to_string()),
            Err(_) => Err(format!("a target has not answered for {FENCED:?}; see `thermo target ls`")),
        }
    }

    /// Nobody but the node reads a file on targets any more, nor does as long as this is held; None: it lies elsewhere.
    fn unlent(&self, ino: Ino) -> FsResult<Option<Unlent<'_>>> {
        let file = self.catalog.inode(ino).map_err(|e| fs_error("open", &e))?.file;
        let object = file.filter(|file| file.far).and_then(|file| file.object);
        let ended = object.map(|object| self.end_lending(object)).transpose();
        ended.map_err(|e| {
            tracing::error!("inode {ino} is not opened for writing, because others may be reading it: {e}");
            FsError::Io
        })
    }

    /// Opens under the lock of the file; None if its targets have to be asked (again) before, or if it may be lent to readers.
    pub(super) fn open_locked(
        &self,
        cx: &Cx,
        ino: Ino,
        flags: OpenFlags,
        (learned, unlent): (Option<&Learned<'_>>, Option<&Unlent<'_>>),
        (entry, state): (&Arc<OpenInode>, &mut OpenState),
    ) -> FsResult<Option<Opened>> {
        let mut inode = self.catalog.inode(ino).map_err(|e| fs_error("open", &e))?;
        let Some(file) = inode.file.clone() else {
            return Err(match inode.attr.kind {
                FileKind::Directory => FsError::IsADirectory,
                _ => FsError::Invalid,
            });
        };
        if inode.attr.nlink == 0 && state.handles == 0 {
            return Err(FsError::Stale);
        }
        if state.handles == 0 {
            let learned = match file.far {
                true => match self.stamp_to_open(&inode, learned)? {
                    None => return Ok(None),
                    known => known,
                },
                false => None,
            };
            state.direct = false;
            state.backing = self.open_content(&inode, learned)?;
            if let Some(backing) = &state.backing {
                let local = backing.fd().is_some();
                state.direct = local && (!flags.write || self.space.allows_direct_writes());
                let stamp = self.stamp_of(backing)?;
                if Self::changed(file.stamp.as_ref(), &stamp) {
                    inode = self.observe(cx, ino, backing.object, stamp, true, Durability::Relaxed)?;
                }
            }
        }
        let object = file.object.filter(|_| file.far && flags.write);
        if object.is_some_and(|object| unlent.is_none_or(|unlent| !unlent.is_of(object))) {
            return Ok(None);
        }
        if flags.write && state.writers == 0 {
            self.catalog.mark_writing(ino).map_err(|e| fs_error("open for writing", &e))?;
            if inode.file.as_ref().is_some_and(|f| f.far || !f.copies.is_empty()) {
                // The mark must be there before the first write can be: it tells after a power failure that the
                // object may not be what is on tape, whatever its times say.
                self.catalog.sync().map_err(|e| fs_error("open for writing", &e))?;
            }
        }
        if state.handles == 0 {
            state.returned = self.open.opens_left(ino).then_some(0);
            entry.lengths.begin(state.returned.is_some());
        }
        Ok(Some(self.opened(entry, state, inode.attr, flags)))
    }
}
