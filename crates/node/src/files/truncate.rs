//! Setting the length of files.

use super::io::RECALL_LOOK;
use super::open::{Backing, OpenState};
use super::staging::Outcome;
use crate::Node;
use crate::error::fs_error;
use kv::Durability;
use std::sync::Arc;
use types::api::FsResult;
use types::*;

impl Node {
    pub(crate) fn truncate(&self, cx: &Cx, ino: Ino, size: u64) -> FsResult<()> {
        if size > i64::MAX as u64 {
            return Err(FsError::FileTooLarge);
        }
        loop {
            let inode = self.catalog.inode(ino).map_err(|e| fs_error("truncate", &e))?;
            let far = inode.file.is_some_and(|f| f.far);
            if far && self.truncate_far(cx, ino, size)? {
                return Ok(());
            }
            if !far && self.open.with(ino, |_, state| self.truncate_locked(cx, ino, size, state))? {
                return Ok(());
            }
            let staging = self.recall(ino, Some(cx.uid), "truncate")?;
            if let Some(Outcome::Failed(_)) = staging.and_then(|s| s.wait(RECALL_LOOK)) {
                return Err(FsError::Io);
            }
        }
    }

    /// Truncates; false if the file must be recalled first.
    fn truncate_locked(&self, cx: &Cx, ino: Ino, size: u64, state: &mut OpenState) -> FsResult<bool> {
        let inode = self.catalog.inode(ino).map_err(|e| fs_error("truncate", &e))?;
        if inode.file.is_none() {
            return Err(if inode.attr.kind == FileKind::Directory {
                FsError::IsADirectory
            } else {
                FsError::Invalid
            });
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
            None if size == 0 => self.replace_with_empty(cx, ino, state)?,
            None if size == inode.attr.size => {}
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Truncating an offline file to nothing needs no tape: it gets a new, empty object.
    fn replace_with_empty(&self, cx: &Cx, ino: Ino, state: &mut OpenState) -> FsResult<()> {
        let (object, fd) = self.objects.take(&self.catalog, &self.disk)?;
        let stamp = self.stamp(&fd)?;
        match self.catalog.new_content(cx, ino, object, &stamp) {
            Ok(_) => self.objects.settle(object),
            Err(e) => {
                self.objects.give_back(object, fd);
                return Err(fs_error("truncate", &e));
            }
        }
        if state.writers == 0 {
            // Nobody will close it: it is what it is, and goes to tape like that.
            self.observe(cx, ino, object, stamp, true, Durability::Relaxed)?;
        }
        if state.handles > 0 {
            state.backing = Some(Backing::local(object, Arc::new(fd)));
        }
        self.drop_recall(ino);
        self.attributes_changed(ino);
        Ok(())
    }
}
