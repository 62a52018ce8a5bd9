//! Removes names, and inodes that lost their last one: unlink, rmdir, and the reaping of orphans.

use super::{junction, names, nodes, version, words};
use crate::dirent::Dirent;
use crate::keys::{self, part};
use crate::perm::{self, X};
use crate::rec::InodeRec;
use crate::store::{Tx, View};
use crate::{CatalogError, Removed, Result};
use std::ops::ControlFlow;
use types::*;

/// Whether an inode is open now; asked when it loses its last name.
pub type IsOpen<'a> = &'a dyn Fn(Ino) -> bool;

/// Finds what a caller wants to remove or rename: directory, entry and inode. Refuses what he may not remove.
fn find_victim(tx: &mut Tx<'_>, cx: &Cx, dir: Ino, name: &[u8]) -> Result<(InodeRec, Dirent, InodeRec)> {
    let parent = tx.view().load_dir(dir)?;
    perm::check_rec(cx, &parent, X)?;
    perm::check_name(name)?;
    let entry = names::find_for_update(tx, dir, name)?.ok_or(CatalogError::Fs(FsError::NotFound))?;
    let rec = tx.try_load(entry.ino)?;
    let rec = rec.ok_or_else(|| {
        CatalogError::corrupt("directory entry", dir, format!("names missing inode {}", entry.ino))
    })?;
    perm::may_remove(cx, &parent, &rec)?;
    Ok((parent, entry, rec))
}

/// unlink(2).
pub fn unlink(tx: &mut Tx<'_>, cx: &Cx, dir: Ino, name: &[u8], is_open: IsOpen<'_>) -> Result<Removed> {
    let (_, entry, rec) = find_victim(tx, cx, dir, name)?;
    if rec.is_dir() {
        return Err(FsError::IsADirectory.into());
    }
    names::delete(tx, dir, name, &entry)?;
    names::changed(tx, dir, cx.now, -1, 0)?;
    lose_name(tx, rec, (dir, entry.cookie, name), cx.now, is_open)
}

/// rmdir(2).
pub fn rmdir(tx: &mut Tx<'_>, cx: &Cx, dir: Ino, name: &[u8]) -> Result<()> {
    if name == b".." {
        return Err(FsError::NotEmpty.into());
    }
    let (_, entry, rec) = find_victim(tx, cx, dir, name)?;
    if !rec.is_dir() {
        return Err(FsError::NotADirectory.into());
    }
    check_empty(tx.view(), rec.ino)?;
    junction::check_itself(tx.view(), &rec)?;
    names::delete(tx, dir, name, &entry)?;
    names::changed(tx, dir, cx.now, -1, -1)?;
    erase(tx, &rec)
}

/// Refuses a directory with entries. Asks the entries themselves: the truth that the counters follow.
pub fn check_empty(view: View<'_>, dir: Ino) -> Result<()> {
    let mut empty = true;
    let prefix = keys::names(dir);
    view.r.scan(&prefix, &keys::end(&prefix), &mut |_, _| {
        empty = false;
        ControlFlow::Break(())
    })?;
    if empty { Ok(()) } else { Err(FsError::NotEmpty.into()) }
}

/// A non-directory lost a name (already deleted); with the last one it goes, or becomes an orphan while open.
pub fn lose_name(
    tx: &mut Tx<'_>,
    old: InodeRec,
    place: (Ino, u64, &[u8]),
    now: Time,
    is_open: IsOpen<'_>,
) -> Result<Removed> {
    let mut rec = old.clone();
    names::drop_link(tx, &mut rec, place.0, place.1)?;
    rec.ctime = now;
    let mut removed = Removed { ino: rec.ino, freed: None, orphan: false };
    if rec.nlink == 0 && rec.file.as_ref().is_some_and(|f| f.known) {
        let path = super::path::below(tx.view(), place.0, place.2)?;
        version::note_removed(tx, &old, path, now)?;
    }
    if rec.nlink > 0 {
        nodes::changed(tx, &old, &mut rec, now)?;
        tx.replace(Some(&old), Some(&rec))?;
        return Ok(removed);
    }
    if is_open(rec.ino) {
        if let Some(f) = &mut rec.file {
            f.due = None;
        }
        tx.replace(Some(&old), Some(&rec))?;
        if rec.has_data() {
            words::removed(tx, &rec, now)?;
        }
        tx.w.put(&keys::orphan(rec.ino), &[])?;
        removed.orphan = true;
        return Ok(removed);
    }
    removed.freed = old.file.as_ref().and_then(|f| f.object);
    erase(tx, &old)?;
    Ok(removed)
}

/// Takes an inode without names out of the catalogue; what is known of its versions on tape stays.
pub fn erase(tx: &mut Tx<'_>, rec: &InodeRec) -> Result<()> {
    version::end(tx, rec, None)?;
    take_out(tx, rec)?;
    nodes::trace(tx, rec)
}

/// The same without a word on its versions.
pub fn take_out(tx: &mut Tx<'_>, rec: &InodeRec) -> Result<()> {
    tx.replace(Some(rec), None)?;
    tx.w.delete(&keys::writing(rec.ino))?;
    match rec.kind {
        FileKind::Symlink => tx.w.delete(&keys::inode(rec.ino, part::TARGET))?,
        FileKind::Directory => {
            for what in [part::ENTRIES, part::SUBDIRS, part::CHANGED, part::LAYOUT] {
                tx.w.delete(&keys::inode(rec.ino, what))?;
            }
            tx.w.delete(&keys::junction(rec.ino))?;
        }
        FileKind::File => tx.w.delete(&keys::inode(rec.ino, part::LAYOUT))?,
        _ => {}
    }
    if rec.xattrs > 0 { erase_xattrs(tx, rec.ino) } else { Ok(()) }
}

fn erase_xattrs(tx: &mut Tx<'_>, ino: Ino) -> Result<()> {
    let prefix = keys::inode(ino, part::XATTR);
    let mut found = Vec::new();
    tx.w.scan(&prefix, &keys::end(&prefix), &mut |k, _| {
        found.push(k.to_vec());
        ControlFlow::Continue(())
    })?;
    found.iter().try_for_each(|k| Ok(tx.w.delete(k)?))
}

/// The last handle of an orphan was closed.
pub fn reap(tx: &mut Tx<'_>, ino: Ino) -> Result<Option<ObjectId>> {
    if tx.w.get_for_update(&keys::orphan(ino))?.is_none() {
        return Ok(None);
    }
    tx.w.delete(&keys::orphan(ino))?;
    let Some(rec) = tx.try_load(ino)? else { return Ok(None) };
    erase(tx, &rec)?;
    Ok(rec.file.and_then(|f| f.object))
}

/// All orphans.
pub fn orphans(view: View<'_>) -> Result<Vec<Ino>> {
    marked(view, keys::ORPHAN)
}

/// Inodes in a table whose keys are `table ino`.
pub fn marked(view: View<'_>, table: u8) -> Result<Vec<Ino>> {
    let mut found = Vec::new();
    view.r.scan(&[table], &[table + 1], &mut |k, _| {
        found.extend(keys::number_at(k, 1).map(Ino));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
