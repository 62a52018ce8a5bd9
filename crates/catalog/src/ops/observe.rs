//! Takes note of what the kernel did to an object behind our back.

use super::{set_class, version};
use crate::Result;
use crate::keys;
use crate::rec::{FileRec, InodeRec};
use crate::store::Tx;
use types::*;

/// See [`Catalog::observe`](crate::Catalog::observe).
pub fn observe(
    tx: &mut Tx<'_>,
    cx: &Cx,
    ino: Ino,
    object: ObjectId,
    stamp: &ObjectStamp,
    closed: bool,
) -> Result<Inode> {
    let old = tx.load_file(ino)?;
    let mut rec = old.clone();
    let mut file = rec.file.take().unwrap_or_default();
    if file.object != Some(object) {
        return Err(FsError::Stale.into());
    }
    let unchanged = file.stamp.is_some_and(|s| s.same_content(stamp));
    if !unchanged {
        if file.sealed || file.known || file.digest.is_some() {
            version::end(tx, &old, Some(cx.now))?;
            file = next_version(tx, file)?;
        }
        take_times(&mut rec, &file, stamp);
        rec.size = stamp.size;
        file.used = file.used.max(cx.now.secs);
    }
    file.stamp = Some(*stamp);
    rec.file = Some(file);
    if closed {
        tx.w.delete(&keys::writing(ino))?;
        seal(tx, cx, &mut rec)?;
    } else if !unchanged {
        tx.w.put(&keys::writing(ino), &[])?;
    }
    tx.replace(Some(&old), Some(&rec))?;
    tx.inode(&rec)
}

/// The same of a file that is being made in this transaction, and is not opened: it is closed from the beginning.
pub fn made_closed(tx: &mut Tx<'_>, cx: &Cx, rec: &mut InodeRec, stamp: &ObjectStamp) -> Result<()> {
    let file = rec.file.take().unwrap_or_default();
    take_times(rec, &file, stamp);
    rec.size = stamp.size;
    rec.file = Some(FileRec { stamp: Some(*stamp), ..file });
    seal(tx, cx, rec)
}

/// Nobody writes the file any more.
fn seal(tx: &mut Tx<'_>, cx: &Cx, rec: &mut InodeRec) -> Result<()> {
    if let Some(file) = &mut rec.file {
        file.sealed = true;
    }
    set_class::update(tx, rec, cx.now)
}

/// The file part of a version that begins: nothing of it is on tape.
pub fn next_version(tx: &Tx<'_>, file: FileRec) -> Result<FileRec> {
    Ok(FileRec {
        version: version::after(tx, file.version)?,
        object: file.object,
        far: file.far,
        stamp: file.stamp,
        pinned: file.pinned,
        used: file.used,
        ..FileRec::default()
    })
}

/// The first look at an object that was made in advance: its times matter only if something was written.
fn take_times(rec: &mut InodeRec, file: &FileRec, stamp: &ObjectStamp) {
    if file.stamp.is_none() {
        if stamp.size == 0 && stamp.mtime <= rec.btime {
            return;
        }
        rec.mtime = stamp.mtime.max(rec.btime);
    } else {
        rec.mtime = stamp.mtime;
    }
    rec.ctime = rec.ctime.max(stamp.ctime);
}

/// Remembers that a file is open for writing.
pub fn mark_writing(tx: &mut Tx<'_>, ino: Ino) -> Result<()> {
    tx.view().load(ino)?;
    Ok(tx.w.put(&keys::writing(ino), &[])?)
}
