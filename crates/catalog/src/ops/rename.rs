//! rename(2) and renameat2(2).

use super::remove::{self, IsOpen};
use super::{junction, names, nodes};
use crate::dirent::Dirent;
use crate::perm::{self, W, X};
use crate::rec::InodeRec;
use crate::store::Tx;
use crate::{CatalogError, Removed, Result};
use types::*;

/// Directory and name.
pub type Place<'a> = (Ino, &'a [u8]);

/// One end of a rename.
struct End<'a> {
    dir: Ino,
    name: &'a [u8],
    entry: Dirent,
    rec: InodeRec,
}

/// Renames with the fresh `cookie` for the new name.
pub fn rename(
    tx: &mut Tx<'_>,
    cx: &Cx,
    from: Place<'_>,
    to: Place<'_>,
    mode: RenameMode,
    is_open: IsOpen<'_>,
    cookie: u64,
) -> Result<Option<Removed>> {
    for name in [from.1, to.1] {
        perm::check_name(name)?;
    }
    for dir in [from.0, to.0] {
        perm::check_rec(cx, &tx.view().load_dir(dir)?, X)?;
    }
    let source = end(tx, from)?.ok_or(CatalogError::Fs(FsError::NotFound))?;
    let target = end(tx, to)?;
    match (&target, mode) {
        (Some(_), RenameMode::NoReplace) => return Err(FsError::Exists.into()),
        (None, RenameMode::Exchange) => return Err(FsError::NotFound.into()),
        _ => {}
    }
    check_cycle(tx, &source.rec, to.0, FsError::Invalid)?;
    if let Some(t) = &target {
        let refusal = if mode == RenameMode::Exchange { FsError::Invalid } else { FsError::NotEmpty };
        check_cycle(tx, &t.rec, from.0, refusal)?;
        if t.rec.ino == source.rec.ino {
            return Ok(None);
        }
    }
    may_rename(tx, cx, &source, target.as_ref(), to.0, mode)?;
    for end in target.iter().chain([&source]) {
        junction::check_itself(tx.view(), &end.rec)?;
    }
    if to.0 != from.0 {
        junction::check_inside(tx.view(), to.0)?;
    }
    match (target, mode) {
        (Some(target), RenameMode::Exchange) => exchange(tx, cx, source, target).map(|()| None),
        (Some(target), _) => replace(tx, cx, source, target, is_open).map(Some),
        (None, _) => move_to(tx, cx, source, to, cookie).map(|()| None),
    }
}

fn end<'a>(tx: &mut Tx<'_>, (dir, name): Place<'a>) -> Result<Option<End<'a>>> {
    let Some(entry) = names::find_for_update(tx, dir, name)? else { return Ok(None) };
    let rec = tx.try_load(entry.ino)?;
    let rec = rec.ok_or_else(|| {
        CatalogError::corrupt("directory entry", dir, format!("names missing inode {}", entry.ino))
    })?;
    Ok(Some(End { dir, name, entry, rec }))
}

/// Refuses to put a directory below itself. Takes every ancestor for update: two renames that would close a ring
/// together cannot both commit, whatever the engine.
fn check_cycle(tx: &mut Tx<'_>, moved: &InodeRec, dir: Ino, refusal: FsError) -> Result<()> {
    if !moved.is_dir() {
        return Ok(());
    }
    let mut at = dir;
    loop {
        if at == moved.ino {
            return Err(refusal.into());
        }
        if at == Ino::ROOT || at == moved.link.0 {
            return Ok(());
        }
        at = tx.load(at)?.link.0;
    }
}

fn may_rename(
    tx: &mut Tx<'_>,
    cx: &Cx,
    source: &End<'_>,
    target: Option<&End<'_>>,
    to: Ino,
    mode: RenameMode,
) -> Result<()> {
    let (old_dir, new_dir) = (tx.view().load_dir(source.dir)?, tx.view().load_dir(to)?);
    perm::may_remove(cx, &old_dir, &source.rec)?;
    let Some(t) = target else {
        perm::check_rec(cx, &new_dir, W | X)?;
        return may_move(cx, source, to);
    };
    perm::may_remove(cx, &new_dir, &t.rec)?;
    if mode == RenameMode::Exchange {
        may_move(cx, t, source.dir)?;
    } else {
        match (source.rec.is_dir(), t.rec.is_dir()) {
            (true, false) => return Err(FsError::NotADirectory.into()),
            (false, true) => return Err(FsError::IsADirectory.into()),
            (true, true) => remove::check_empty(tx.view(), t.rec.ino)?,
            (false, false) => {}
        }
    }
    may_move(cx, source, to)
}

/// A directory that gets another parent is changed itself (its `..`).
fn may_move(cx: &Cx, end: &End<'_>, to: Ino) -> Result<()> {
    if end.rec.is_dir() && end.dir != to { perm::check_rec(cx, &end.rec, W) } else { Ok(()) }
}

/// The inode of `end` is named at `to` from now on.
fn rename_inode(tx: &mut Tx<'_>, cx: &Cx, end: &End<'_>, to: (Ino, u64)) -> Result<()> {
    let mut rec = end.rec.clone();
    names::move_link(tx, &mut rec, (end.dir, end.entry.cookie), to)?;
    rec.ctime = cx.now;
    nodes::changed(tx, &end.rec, &mut rec, cx.now)?;
    tx.replace(Some(&end.rec), Some(&rec))
}

/// Notes what a rename did to the two directories.
fn changed(tx: &mut Tx<'_>, now: Time, from: (Ino, i64, i64), to: (Ino, i64, i64)) -> Result<()> {
    if from.0 == to.0 {
        return names::changed(tx, from.0, now, from.1 + to.1, from.2 + to.2);
    }
    names::changed(tx, from.0, now, from.1, from.2)?;
    names::changed(tx, to.0, now, to.1, to.2)
}

fn move_to(tx: &mut Tx<'_>, cx: &Cx, source: End<'_>, to: Place<'_>, cookie: u64) -> Result<()> {
    names::delete(tx, source.dir, source.name, &source.entry)?;
    names::put(tx, to.0, to.1, &Dirent { cookie, ..source.entry })?;
    rename_inode(tx, cx, &source, (to.0, cookie))?;
    let subdirs = i64::from(source.rec.is_dir());
    changed(tx, cx.now, (source.dir, -1, -subdirs), (to.0, 1, subdirs))
}

/// The target's name keeps its cookie: a listing in progress sees it once.
fn replace(
    tx: &mut Tx<'_>,
    cx: &Cx,
    source: End<'_>,
    target: End<'_>,
    is_open: IsOpen<'_>,
) -> Result<Removed> {
    let cookie = target.entry.cookie;
    names::delete(tx, source.dir, source.name, &source.entry)?;
    names::put(tx, target.dir, target.name, &Dirent { cookie, ..source.entry })?;
    rename_inode(tx, cx, &source, (target.dir, cookie))?;
    let subdirs = i64::from(source.rec.is_dir());
    changed(tx, cx.now, (source.dir, -1, -subdirs), (target.dir, 0, 0))?;
    if target.rec.is_dir() {
        remove::erase(tx, &target.rec)?;
        return Ok(Removed { ino: target.rec.ino, freed: None, orphan: false });
    }
    remove::lose_name(tx, target.rec, (target.dir, cookie, target.name), cx.now, is_open)
}

fn exchange(tx: &mut Tx<'_>, cx: &Cx, a: End<'_>, b: End<'_>) -> Result<()> {
    names::put(tx, a.dir, a.name, &Dirent { cookie: a.entry.cookie, ..b.entry })?;
    names::put(tx, b.dir, b.name, &Dirent { cookie: b.entry.cookie, ..a.entry })?;
    rename_inode(tx, cx, &a, (b.dir, b.entry.cookie))?;
    rename_inode(tx, cx, &b, (a.dir, a.entry.cookie))?;
    let gain = i64::from(b.rec.is_dir()) - i64::from(a.rec.is_dir());
    changed(tx, cx.now, (a.dir, 0, gain), (b.dir, 0, -gain))
}
