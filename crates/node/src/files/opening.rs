//! Opening files that are there.

use super::far::Learned;
use super::open::{OpenInode, OpenState};
use crate::Node;
use crate::error::fs_error;
use crate::movers::Unlent;
use kv::Durability;
use std::sync::Arc;
use types::api::*;
use types::*;

impl Node {
    pub(crate) fn open_file(&self, cx: &Cx, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        if flags.truncate && flags.write {
            self.truncate(cx, ino, 0)?;
        }
        let opened = loop {
            let unlent = if flags.write { self.unlent(ino)? } else { None };
            let learned = self.learn_unsettled(ino)?;
            let tried = self.open.with(ino, |entry, state| {
                self.open_locked(cx, ino, flags, (learned.as_ref(), unlent.as_ref()), (entry, state))
            })?;
            if let Some(opened) = tried {
                break opened;
            }
        };
        // What another host has written and keeps in its memory is at the targets before this is answered.
        self.leases.take_alone(ino);
        if flags.read
            && !flags.truncate
            && let Err(e) = self.catalog.touch_access(ino, cx.now)
        {
            tracing::warn!("the access to inode {ino} is not recorded: {e}");
        }
        Ok(opened)
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
        (learned, unlent): (Option<&Learned>, Option<&Unlent<'_>>),
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
        if flags.write && state.writers == 0 {
            let object = file.object.filter(|_| file.far);
            if object.is_some_and(|object| unlent.is_none_or(|unlent| !unlent.is_of(object))) {
                return Ok(None);
            }
            self.catalog.mark_writing(ino).map_err(|e| fs_error("open for writing", &e))?;
            if inode.file.as_ref().is_some_and(|f| f.far || !f.copies.is_empty()) {
                // The mark must be there before the first write can be: it tells after a power failure that the
                // object may not be what is on tape, whatever its times say.
                self.catalog.sync().map_err(|e| fs_error("open for writing", &e))?;
            }
        }
        Ok(Some(self.opened(entry, state, inode.attr, flags)))
    }
}
