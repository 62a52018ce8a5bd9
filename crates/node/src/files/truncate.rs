//! Setting the length of files.

use super::io::RECALL_LOOK;
use super::open::{Backing, OpenFile, OpenState};
use super::staging::Outcome;
use crate::Node;
use crate::error::fs_error;
use kv::Durability;
use std::sync::Arc;
use types::api::{FsResult, OpenFlags};
use types::*;

impl Node {
    pub(crate) fn truncate(&self, cx: &Cx, ino: Ino, size: u64) -> FsResult<()> {
        if size > i64::MAX as u64 {
            return Err(FsError::FileTooLarge);
        }
        loop {
            let inode = self.catalog.inode(ino).map_err(|e| fs_error("truncate", &e))?;
            let far = inode.file.as_ref().is_some_and(|f| f.far);
            if far && self.truncate_far(cx, ino, size)? {
                return Ok(());
            }
            // Before the lock is taken: a target that does not answer takes a minute.
            let offline = inode.file.as_ref().is_some_and(|f| f.object.is_none());
            let mut empty = if offline && size == 0 { Some(self.empty_object(ino)?) } else { None };
            let done = match far {
                true => Ok(false),
                false => {
                    self.open.with(ino, |_, state| self.truncate_locked(cx, ino, size, state, &mut empty))
                }
            };
            if let Some(unused) = empty {
                self.settle_object(&unused);
            }
            match done? {
                true => return Ok(()),
                // It has left the disk meanwhile.
                false if size == 0 => continue,
                false => {}
            }
            let staging = self.recall(ino, Some(cx.uid), "truncate")?;
            if let Some(Outcome::Failed(_)) = staging.and_then(|s| s.wait(RECALL_LOOK)) {
                return Err(FsError::Io);
            }
        }
    }

    /// Truncates; false if the file must be recalled first, or left the disk tier a moment ago. An offline one gets `empty`, for which no tape is
    /// needed.
    fn truncate_locked(
        &self,
        cx: &Cx,
        ino: Ino,
        size: u64,
        state: &mut OpenState,
        empty: &mut Option<Backing>,
    ) -> FsResult<bool> {
        let inode = self.catalog.inode(ino).map_err(|e| fs_error("truncate", &e))?;
        if inode.file.is_none() {
            return Err(if inode.attr.kind == FileKind::Directory {
                FsError::IsADirectory
            } else {
                FsError::Invalid
            });
        }
        if inode.file.as_ref().is_some_and(|file| file.far) {
            return Ok(false); // it has left the disk tier for targets
        }
        let backing = match &state.backing {
            Some(b) => Some(b.clone()),
            None => self.open_content(&inode, None)?,
        };
        match backing.and_then(|b| Some((b.object, b.fd()?.clone()))) {
            Some((object, fd)) => {
                rustix::fs::ftruncate(&fd, size).map_err(|e| match e {
                    rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => FsError::NoSpace,
                    rustix::io::Errno::FBIG => FsError::FileTooLarge,
                    _ => FsError::Io,
                })?;
                let stamp = self.stamp(&fd)?;
                self.observe(cx, ino, object, stamp, state.writers == 0, Durability::Relaxed)?;
            }
            None if size == 0 && empty.is_some() => {
                if let Some(object) = empty.take() {
                    self.replace_with_empty(cx, ino, state, object)?;
                }
            }
            None if size == inode.attr.size => {}
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Sets the length of a file on targets; false if it has left them meanwhile. Like a writer it has the file open, so that nothing is
    /// copied or released meanwhile, and no lock is held while targets are asked.
    pub(super) fn truncate_far(&self, cx: &Cx, ino: Ino, size: u64) -> FsResult<bool> {
        let opened = self.open_file(cx, ino, OpenFlags { write: true, ..OpenFlags::default() })?;
        let file = self.open.handle(opened.handle);
        let backing = file.as_ref().and_then(|file| file.inode.state.lock().backing.clone());
        let done = match backing.as_ref().and_then(Backing::far) {
            None => Ok(false),
            // It may have other objects by now.
            Some(far) => far
                .truncate(size, || self.end_known_lengths(file.as_ref()))
                .and_then(|()| self.observe_open(cx, ino))
                .map(|()| true),
        };
        self.close_file(opened.handle);
        done
    }

    /// Nobody takes the length of an open file for given any more.
    fn end_known_lengths(&self, file: Option<&Arc<OpenFile>>) -> FsResult<()> {
        let Some(file) = file.filter(|file| file.inode.lengths.take()) else { return Ok(()) };
        let object = file.inode.state.lock().backing.as_ref().map(|backing| backing.object);
        let ended = object.map_or(Ok(()), |object| self.fence_far(object));
        ended.map_err(|e| {
            file.inode.lengths.may_be_known();
            tracing::error!("inode {} is not cut, because others may be writing it: {e}", file.inode.ino);
            FsError::Io
        })
    }

    /// An offline file gets a new, empty object.
    fn replace_with_empty(&self, cx: &Cx, ino: Ino, state: &mut OpenState, object: Backing) -> FsResult<()> {
        let stamp = self.stamp_of(&object)?;
        let made = self.catalog.new_content(cx, ino, object.object, &stamp);
        self.settle_object(&object);
        made.map_err(|e| fs_error("truncate", &e))?;
        if state.writers == 0 {
            // Nobody will close it: it is what it is, and goes to tape like that.
            self.observe(cx, ino, object.object, stamp, true, Durability::Relaxed)?;
        }
        if state.handles > 0 {
            state.backing = Some(object);
        }
        self.drop_recall(ino);
        self.attributes_changed(ino);
        Ok(())
    }
}
