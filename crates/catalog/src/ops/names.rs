//! Names of directories: the two directory tables, the directory's counters, and where an inode says it is named.

use crate::dirent::Dirent;
use crate::keys::{self, part};
use crate::rec::InodeRec;
use crate::store::{Tx, View};
use crate::{CatalogError, Result};
use std::ops::ControlFlow;
use types::*;

/// What `name` leads to, if it is there.
pub fn find(view: View<'_>, dir: Ino, name: &[u8]) -> Result<Option<Dirent>> {
    view.r.get(&keys::name(dir, name))?.map(|v| Dirent::from_name(dir, &v)).transpose()
}

/// The same within a change: nobody else changes the name meanwhile.
pub fn find_for_update(tx: &mut Tx<'_>, dir: Ino, name: &[u8]) -> Result<Option<Dirent>> {
    tx.w.get_for_update(&keys::name(dir, name))?.map(|v| Dirent::from_name(dir, &v)).transpose()
}

/// Writes a name (new, or leading elsewhere from now on).
pub fn put(tx: &mut Tx<'_>, dir: Ino, name: &[u8], entry: &Dirent) -> Result<()> {
    tx.touched.push(dir);
    let (value, len) = entry.name_value();
    tx.w.put(&keys::name(dir, name), &value[..len])?;
    Ok(tx.w.put(&keys::entry(dir, entry.cookie), &entry.entry_value(name))?)
}

/// Removes a name.
pub fn delete(tx: &mut Tx<'_>, dir: Ino, name: &[u8], entry: &Dirent) -> Result<()> {
    tx.touched.push(dir);
    tx.w.delete(&keys::name(dir, name))?;
    Ok(tx.w.delete(&keys::entry(dir, entry.cookie))?)
}

/// Notes that entries of `dir` changed: its times and, by the given numbers, its counters.
pub fn changed(tx: &mut Tx<'_>, dir: Ino, now: Time, entries: i64, subdirs: i64) -> Result<()> {
    counted(tx, dir, entries, subdirs)?;
    Ok(tx.w.raise(&keys::inode(dir, part::CHANGED), now.as_nanos())?)
}

/// The counters alone: what comes back from tape was there before.
pub fn counted(tx: &mut Tx<'_>, dir: Ino, entries: i64, subdirs: i64) -> Result<()> {
    tx.touched.push(dir);
    if entries != 0 {
        tx.w.add(&keys::inode(dir, part::ENTRIES), entries)?;
    }
    if subdirs != 0 {
        tx.w.add(&keys::inode(dir, part::SUBDIRS), subdirs)?;
    }
    Ok(())
}

/// Adds a place at which `rec` is named. The record keeps the first one.
pub fn add_link(tx: &mut Tx<'_>, rec: &mut InodeRec, dir: Ino, cookie: u64) -> Result<()> {
    rec.nlink += 1;
    if rec.nlink == 1 {
        rec.link = (dir, cookie);
        return Ok(());
    }
    Ok(tx.w.put(&keys::link(rec.ino, dir, cookie), &[])?)
}

/// Removes one; if it was the one in the record, another takes its place.
pub fn drop_link(tx: &mut Tx<'_>, rec: &mut InodeRec, dir: Ino, cookie: u64) -> Result<()> {
    rec.nlink = rec
        .nlink
        .checked_sub(1)
        .ok_or_else(|| CatalogError::corrupt("inode", rec.ino, "link count below names"))?;
    if rec.link != (dir, cookie) {
        return Ok(tx.w.delete(&keys::link(rec.ino, dir, cookie))?);
    }
    if rec.nlink == 0 {
        return Ok(());
    }
    rec.link = further_link(tx.view(), rec.ino)?
        .ok_or_else(|| CatalogError::corrupt("inode", rec.ino, "a further link is missing"))?;
    Ok(tx.w.delete(&keys::link(rec.ino, rec.link.0, rec.link.1))?)
}

/// Moves one.
pub fn move_link(tx: &mut Tx<'_>, rec: &mut InodeRec, from: (Ino, u64), to: (Ino, u64)) -> Result<()> {
    if rec.link == from {
        rec.link = to;
        return Ok(());
    }
    tx.w.delete(&keys::link(rec.ino, from.0, from.1))?;
    Ok(tx.w.put(&keys::link(rec.ino, to.0, to.1), &[])?)
}

/// All places at which `rec` is named, that of its record first.
pub fn links(view: View<'_>, rec: &InodeRec) -> Result<Vec<(Ino, u64)>> {
    let prefix = keys::links(rec.ino);
    let mut found = Vec::from_iter((rec.nlink > 0).then_some(rec.link));
    view.r.scan(&prefix, &keys::end(&prefix), &mut |k, _| {
        found.extend(keys::number_at(k, 9).zip(keys::number_at(k, 17)).map(|(d, c)| (Ino(d), c)));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn further_link(view: View<'_>, ino: Ino) -> Result<Option<(Ino, u64)>> {
    let prefix = keys::links(ino);
    let mut found = None;
    view.r.scan(&prefix, &keys::end(&prefix), &mut |k, _| {
        found = keys::number_at(k, 9).zip(keys::number_at(k, 17)).map(|(d, c)| (Ino(d), c));
        ControlFlow::Break(())
    })?;
    Ok(found)
}
