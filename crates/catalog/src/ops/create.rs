//! Makes a file, directory, symlink or special node.

use super::{junction, layouts, names, nodes, observe};
use crate::dirent::Dirent;
use crate::keys::{self, part};
use crate::perm::{self, SETGID, W, X};
use crate::rec::{FileRec, InodeRec};
use crate::store::{Tx, View};
use crate::{New, Result};
use types::*;

/// Longest target of a symlink (bytes), as PATH_MAX allows.
const MAX_TARGET: usize = 4095;

/// Refuses a name that is there already or may not be made; the directory.
pub fn check_new(view: View<'_>, cx: &Cx, dir: Ino, name: &[u8]) -> Result<InodeRec> {
    let rec = view.load_dir(dir)?;
    perm::check_rec(cx, &rec, X)?;
    if matches!(name, b"." | b"..") {
        return Err(FsError::Exists.into());
    }
    perm::check_name(name)?;
    if names::find(view, dir, name)?.is_some() {
        return Err(FsError::Exists.into());
    }
    perm::check_rec(cx, &rec, W)?;
    junction::check_inside(view, dir)?;
    Ok(rec)
}

/// Makes the node with the fresh id `ino`. Reads the directory without locking it, so creates in one directory go side
/// by side; removing the directory changes what is read here, which a serialisable engine notices.
pub fn create(tx: &mut Tx<'_>, cx: &Cx, dir: Ino, name: &[u8], new: &New, ino: Ino) -> Result<Inode> {
    check_shape(new)?;
    let parent = check_new(tx.view(), cx, dir, name)?;
    let mut rec = record(cx, &parent, new, ino);
    if !rec.has_data() {
        rec.settle(&tx.class(rec.class)?.clone(), cx.now);
    }
    if let Some(stamp) = &new.closed {
        observe::made_closed(tx, cx, &mut rec, stamp)?;
    }
    let subdirs = i64::from(rec.is_dir());
    names::put(tx, dir, name, &Dirent { ino, kind: new.kind, cookie: ino.0 })?;
    tx.replace(None, Some(&rec))?;
    if let Some(target) = &new.target {
        tx.w.put(&keys::inode(ino, part::TARGET), target)?;
    }
    if rec.is_dir() {
        layouts::inherit(tx, dir, ino)?;
    }
    if new.writing && new.kind == FileKind::File {
        tx.w.put(&keys::writing(ino), &[])?;
    }
    names::changed(tx, dir, cx.now, 1, subdirs)?;
    tx.inode(&rec)
}

fn check_shape(new: &New) -> Result<()> {
    let target_fits = match (&new.target, new.kind) {
        (Some(t), FileKind::Symlink) if t.is_empty() => return Err(FsError::NotFound.into()),
        (Some(t), FileKind::Symlink) if t.len() > MAX_TARGET => return Err(FsError::NameTooLong.into()),
        (Some(t), FileKind::Symlink) => !t.contains(&0),
        (None, FileKind::Symlink) | (Some(_), _) => false,
        (None, _) => true,
    };
    let object_fits = new.object.is_none() || new.kind == FileKind::File;
    let closed_fits = new.closed.is_none() || (new.object.is_some() && !new.writing);
    if target_fits && object_fits && closed_fits { Ok(()) } else { Err(FsError::Invalid.into()) }
}

fn record(cx: &Cx, parent: &InodeRec, new: &New, ino: Ino) -> InodeRec {
    let inherit = parent.mode & SETGID != 0;
    let gid = if inherit { parent.gid } else { cx.gid };
    let mut mode = new.mode & 0o7777;
    if new.kind == FileKind::Symlink {
        mode = 0o777;
    } else if inherit && new.kind == FileKind::Directory {
        mode |= SETGID;
    } else if inherit && mode & 0o2010 == 0o2010 && cx.uid != 0 && !perm::in_group(cx, gid) {
        mode &= !SETGID;
    }
    let device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice);
    InodeRec {
        ino,
        kind: new.kind,
        mode,
        nlink: 1,
        uid: cx.uid,
        gid,
        rdev: if device { new.rdev } else { 0 },
        class: parent.class,
        size: new.target.as_ref().map_or(0, |t| t.len() as u64),
        atime: cx.now,
        mtime: cx.now,
        ctime: cx.now,
        btime: cx.now,
        link: (parent.ino, ino.0),
        xattrs: 0,
        file: Some(match new.kind {
            FileKind::File => {
                let file = FileRec { version: Version(1), object: new.object, ..FileRec::default() };
                FileRec { far: new.far, used: cx.now.secs, ..file }
            }
            _ => nodes::fresh(cx.now),
        }),
    }
}
