//! Versions that were deleted or overwritten: listed, and made files again.

use crate::Node;
use crate::error::{failure, fs_failure, refused};
use catalog::EndedVersion;
use types::*;
use wire::{Failure, Reply};

/// Most of them in one answer.
const PAGE: usize = 1_000;

impl Node {
    /// Those that the caller owned, or all for an administrator.
    pub(super) fn ended(
        &self,
        cx: &Cx,
        path: &[u8],
        below: bool,
        after: Option<(Ino, Version)>,
    ) -> Result<Reply, Failure> {
        let page = self.catalog.ended_versions(path, after, PAGE).map_err(|e| refused("versions", &e))?;
        let wanted = |one: &EndedVersion| below || one.path == path;
        let mine = |one: &EndedVersion| self.is_admin(cx) || one.owner == cx.uid;
        let found = page.found.into_iter().filter(|one| wanted(one) && mine(one)).map(view).collect();
        Ok(Reply::Ended { found, next: page.next })
    }

    /// The version is a file at `to` from now on.
    pub(super) fn undelete(
        &self,
        cx: &Cx,
        ino: Ino,
        version: Version,
        to: &[u8],
    ) -> Result<FileView, Failure> {
        let shown = escape(to);
        let fail = |e| refused(&shown, &e);
        let at = to.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let (dir, name) = (to.get(..at).unwrap_or_default(), to.get(at + 1..).unwrap_or_default());
        if name.is_empty() {
            return Err(failure(ErrorClass::Invalid, format!("{shown}: name the file that it is to be")));
        }
        let dir = if dir.is_empty() { b"/" } else { dir };
        let parent = self.catalog.resolve(cx, dir, true).map_err(|e| {
            let dir = escape(dir);
            refused(&format!("{dir}: make the directory, or name another with --to"), &e)
        })?;
        let was = self.catalog.ended_owner(ino, version).map_err(fail)?;
        let owner = was.ok_or_else(|| {
            let message =
                format!("version {version} of inode {ino} is not on tape (any more); see `thermo versions`");
            failure(ErrorClass::NotFound, message)
        })?;
        if !self.is_admin(cx) && owner != cx.uid {
            return Err(fs_failure(&format!("a version of uid {owner}"), FsError::NotPermitted));
        }
        let may = self.may_make(cx).and_then(|()| self.may_grow(cx, owner));
        may.map_err(|e| fs_failure(&shown, e))?;
        let made = self.seen_by_all(self.catalog.undelete(cx, (ino, version), (parent.attr.ino, name)));
        let made = made.map_err(|e| {
            let taken = format!("{shown}: something is there; name another place with --to, or move it away");
            if e.fs() == FsError::Exists { failure(e.class(), taken) } else { fail(e) }
        })?;
        tracing::info!("{shown} is version {version} of inode {ino} again, by order of uid {}", cx.uid);
        let watchers = self.watchers.read();
        watchers.iter().for_each(|w| w.entry_changed(parent.attr.ino, name));
        self.keeper.wake();
        Ok(self.file_view(to.into(), made))
    }
}

fn view(one: EndedVersion) -> EndedView {
    let mut volumes: Vec<Barcode> =
        one.copies.iter().flat_map(|c| c.segments.iter().map(|s| s.volume.clone())).collect();
    volumes.sort();
    volumes.dedup();
    EndedView {
        ino: one.ino,
        version: one.version,
        path: one.path.into(),
        size: one.size,
        mtime: one.mtime,
        ended: one.ended,
        owner: one.owner,
        overwritten: one.overwritten,
        volumes,
        restorable: one.restorable,
    }
}
