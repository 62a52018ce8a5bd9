//! Nodes without data (directories, symlinks, devices, pipes, sockets) on their way to tape. The catalogue has all there is
//! to copy, so they need no disk object: each change makes a new version, which is due like a file that was closed. Of one
//! that is removed a trace stays until no volume tells of its earlier versions any more: its last version says that it is
//! gone, and goes to tape like the others.

use super::{class, version, words};
use crate::keys::{self, meta};
use crate::rec::{FileRec, InodeRec};
use crate::store::{Tx, View};
use crate::{Listed, Result};
use types::*;

/// `rec` is what becomes of `old`: what is on tape, of a file beside its data, is not what it is any more.
pub fn changed(tx: &mut Tx<'_>, old: &InodeRec, rec: &mut InodeRec, now: Time) -> Result<()> {
    if rec.has_data() {
        return words::changed(tx, rec, now);
    }
    if !is_made_up(tx, old)? {
        version::end(tx, old, Some(now))?;
        let next = next(tx, old)?;
        rec.file = Some(FileRec { due: old.file.as_ref().and_then(|f| f.due), ..next });
        let class = tx.class(rec.class)?;
        rec.settle(&class, now);
    }
    Ok(())
}

/// The root as a new node gives it to whom it belongs, before anything is in it: every new node does that again.
fn is_made_up(tx: &Tx<'_>, old: &InodeRec) -> Result<bool> {
    Ok(old.ino == Ino::ROOT && old.file.is_none() && tx.view().dir_counters(old.ino)?.entries == 0)
}

/// The archive part of a new node without data. Nodes are not used as files are: the time says until when it is known to have
/// been so.
pub fn fresh(now: Time) -> FileRec {
    FileRec { version: Version(1), sealed: true, used: now.as_nanos(), ..FileRec::default() }
}

/// That of the version that follows.
fn next(tx: &Tx<'_>, old: &InodeRec) -> Result<FileRec> {
    let version = version::after(tx, old.file.as_ref().map_or(Version(0), |f| f.version))?;
    Ok(FileRec { version, ..fresh(old.ctime) })
}

/// A node was removed: what is to be left of it, if tapes tell of it. Its versions have ended.
pub fn trace(tx: &mut Tx<'_>, rec: &InodeRec) -> Result<()> {
    if rec.has_data() {
        return words::removed(tx, rec, rec.ctime);
    }
    if !version::any_ended(tx.view(), rec.ino)? {
        return Ok(());
    }
    let file = FileRec { gone: true, ..next(tx, rec)? };
    let mut gone = InodeRec { nlink: 0, size: 0, xattrs: 0, file: Some(file), ..rec.clone() };
    let class = tx.class(gone.class)?;
    gone.settle(&class, rec.ctime);
    tx.replace(None, Some(&gone))
}

/// Nothing on tape tells of earlier versions of this inode any more: if it was removed nothing needs to say so.
pub fn forget(tx: &mut Tx<'_>, ino: Ino) -> Result<()> {
    let ino = ino.told_of();
    if version::any_ended(tx.view(), ino)? {
        return Ok(());
    }
    if let Some(gone) = tx.gone(ino)? {
        version::end(tx, &gone, None)?;
        return tx.replace(Some(&gone), None);
    }
    match tx.gone(ino.word())? {
        Some(word) if word.is_gone() => words::drop_it(tx, &word),
        _ => Ok(()),
    }
}

/// A segment of what says that a node is gone is lost with its volume, which it did not keep from being used again: it is
/// written anew, from the catalogue.
pub fn lapse(tx: &mut Tx<'_>, file: &TapeFile, now: Time) -> Result<()> {
    let Some(old) = tx.gone(file.ino)?.filter(InodeRec::is_gone) else { return Ok(()) };
    let mut gone = old.clone();
    let Some(f) = gone.file.as_mut().filter(|f| f.version == file.version) else { return Ok(()) };
    let left = version::copies(tx.view(), file.ino, file.version)?;
    f.known = !left.is_empty();
    f.copies &= left.iter().fold(0, |bits, copy| bits | 1 << (copy.copy.0 - 1));
    gone.settle(&tx.class(old.class)?.clone(), now);
    tx.replace(Some(&old), Some(&gone))
}

/// What is left of removed nodes, in order of number.
pub fn all_gone(view: View<'_>, after: Ino, limit: usize) -> Result<Listed<InodeRec>> {
    let of = |key: &[u8]| keys::number_at(key, 1).map(Ino);
    class::records(view, (&keys::after(&keys::gone(after)), &[keys::GONE + 1]), limit, of)
}

/// A catalogue of an earlier release: its nodes get their place in the archive one by one, as classes that were changed
/// reach their inodes.
pub fn introduce(tx: &mut Tx<'_>) -> Result<()> {
    let key = keys::meta_key(meta::NODES);
    if tx.w.get_for_update(&key)?.is_none() {
        tx.w.put(&key, &[1])?;
        tx.w.put(&keys::meta_key(meta::REFRESH), &0u64.to_be_bytes())?;
    }
    Ok(())
}

/// Whether that goes on. Otherwise a node without versions is a directory that was made up because something lay in it: it stays so
/// until a volume tells of it, or it is changed.
pub fn entering(tx: &mut Tx<'_>) -> Result<bool> {
    Ok(tx.w.get_for_update(&keys::meta_key(meta::NODES))?.is_none_or(|value| !value.is_empty()))
}

/// It has come to its end.
pub fn entered(tx: &mut Tx<'_>) -> Result<()> {
    Ok(tx.w.put(&keys::meta_key(meta::NODES), &[])?)
}

/// One of them; the root only when something of it is changed.
pub fn enter(rec: &mut InodeRec, now: Time) {
    if !rec.has_data() && rec.file.is_none() && rec.ino != Ino::ROOT {
        rec.file = Some(fresh(now));
    }
}

/// See [`Catalog::archived`](crate::Catalog::archived).
pub fn archived(view: View<'_>, ino: Ino) -> Result<Option<FileState>> {
    view.trace(ino)?.map(|rec| view.archived(&rec)).transpose().map(Option::flatten)
}

/// What tapes tell of a node beside what they tell of every one.
pub fn facts(view: View<'_>, rec: &InodeRec) -> Result<NodeFacts> {
    if rec.has_data() {
        let beside = words::version_of(view.gone(rec.ino.word())?.as_ref());
        return Ok(NodeFacts { beside, ..NodeFacts::default() });
    }
    if rec.is_gone() {
        return Ok(NodeFacts { gone: true, ..NodeFacts::default() });
    }
    let target = match rec.kind {
        FileKind::Symlink => super::lookup::readlink(view, rec)?,
        _ => Vec::new(),
    };
    let names = words::further(view, rec)?;
    Ok(NodeFacts { target, rdev: rec.rdev, parent: rec.link.0, names, ..NodeFacts::default() })
}

/// A directory as an index tells of it, at present.
pub fn directory(view: View<'_>, rec: &InodeRec, now: Time) -> Result<Option<TapeFile>> {
    let Some(f) = rec.file.as_ref().filter(|_| rec.is_dir()) else { return Ok(None) };
    let attr = view.inode(rec)?.attr;
    Ok(Some(TapeFile {
        uid: 0,
        ino: rec.ino,
        version: f.version,
        copy: CopyNo(0),
        file_size: 0,
        segment_offset: 0,
        segment_length: 0,
        extents: Vec::new(),
        path: super::path::path_of(view, rec.ino)?,
        mode: rec.kind.type_bits() | rec.mode,
        uid_owner: rec.uid,
        gid_owner: rec.gid,
        times: [attr.atime, attr.mtime, attr.ctime, attr.btime],
        digest: None,
        xattrs: super::xattr::all(view, rec)?,
        class: view.class(rec.class)?.name.clone(),
        written: now,
        live: true,
        node: facts(view, rec)?,
    }))
}
