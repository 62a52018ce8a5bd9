//! Classes of service. A changed class is a new record; inodes move to it one by one.

use super::{nodes, set_class, words};
use crate::classes;
use crate::keys::{self, meta, part};
use crate::rec::{self, InodeRec};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Listed, Result};
use format::record;
use kv::KvError;
use std::ops::ControlFlow;
use types::*;

/// Most copies that a class may ask for; half of what a version may have, so that copies of an older class fit beside.
const MAX_COPIES: usize = rec::MAX_COPIES as usize / 2;

/// A class by name.
pub fn class(view: View<'_>, name: &ClassName) -> Result<Option<Class>> {
    let id = classes::current(view.r, name)?;
    id.map(|id| view.class(id).map(|c| Class::clone(&c))).transpose()
}

/// All classes in order of name.
pub fn all(view: View<'_>) -> Result<Vec<Class>> {
    let mut names = Vec::new();
    let prefix = [keys::CLASS, keys::class::CURRENT];
    view.r.scan(&prefix, &keys::end(&prefix), &mut |k, _| {
        names.push(ClassName(String::from_utf8_lossy(&k[2..]).into_owned()));
        ControlFlow::Continue(())
    })?;
    names.iter().map(|n| class(view, n)?.ok_or_else(|| CatalogError::missing("class", n))).collect()
}

/// Refuses a name that would not fit into keys or onto a line.
pub fn check_text(what: &str, name: &str) -> Result<()> {
    if (1..=64).contains(&name.len())
        && !name.chars().any(|c| c.is_control() || c.is_whitespace() || c == '/')
    {
        return Ok(());
    }
    let why = "a name has 1 to 64 bytes, no spaces, no control characters and no '/'";
    Err(CatalogError::refused(format!("{what} {name:?}"), why))
}

/// Makes or changes a class.
pub fn put(tx: &mut Tx<'_>, class: &Class) -> Result<()> {
    check_text("class", class.name.as_str())?;
    if class.copies.len() > MAX_COPIES {
        return Err(CatalogError::refused(
            format!("class {}", class.name),
            format!("at most {MAX_COPIES} copies"),
        ));
    }
    for pool in &class.copies {
        if tx.w.get(&keys::pool(pool))?.is_none() {
            return Err(CatalogError::missing("pool", pool));
        }
    }
    if let Some(id) = classes::current(&*tx.w, &class.name)? {
        if classes::load(&*tx.w, id)? == *class {
            return Ok(());
        }
        tx.w.put(&keys::meta_key(meta::REFRESH), &0u64.to_be_bytes())?;
    }
    let next = keys::meta_key(meta::NEXT_CLASS);
    let id = store::counter(tx.w.get_for_update(&next)?)? + 1;
    tx.w.put(&next, &id.to_le_bytes())?;
    let id = u32::try_from(id).map_err(|_| CatalogError::refused("class", "no class number is left"))?;
    tx.w.put(&keys::class_record(id), &record::encode(class))?;
    Ok(tx.w.put(&keys::class_current(&class.name), &id.to_be_bytes())?)
}

/// Brings the next inodes to the newest record of their class; false when all are done.
pub fn refresh(tx: &mut Tx<'_>, limit: usize, now: Time) -> Result<bool> {
    let key = keys::meta_key(meta::REFRESH);
    let Some(value) = tx.w.get_for_update(&key)? else { return Ok(false) };
    let after =
        keys::number_at(&value, 0).ok_or_else(|| CatalogError::corrupt("cursor", "refresh", "too short"))?;
    let entering = nodes::entering(tx)?;
    let (there, last) = batch(inodes(tx.view(), Ino(after), limit.max(1))?, limit);
    let (gone, last_gone) = batch(nodes::all_gone(tx.view(), Ino(after), limit.max(1))?, limit);
    let end = last.into_iter().chain(last_gone).min();
    for old in there.iter().chain(&gone).filter(|rec| end.is_none_or(|end| rec.ino <= end)) {
        let mut rec = old.clone();
        if entering {
            nodes::enter(&mut rec, now);
            words::enter(tx, &rec, now)?;
        }
        set_class::update(tx, &mut rec, now)?;
        tx.replace(Some(old), Some(&rec))?;
    }
    match end {
        Some(end) => tx.w.put(&key, &end.0.to_be_bytes())?,
        None => {
            tx.w.delete(&key)?;
            nodes::entered(tx)?;
        }
    }
    Ok(end.is_some())
}

/// The records of a listing, and the last one if there may be more. A damaged record says nothing of its class; whoever
/// restores it gives it one.
fn batch(listed: Listed<InodeRec>, limit: usize) -> (Vec<InodeRec>, Option<Ino>) {
    let Listed { found, damaged } = listed;
    let more = found.len() + damaged.len() >= limit.max(1);
    let last = found.iter().map(|r| r.ino).chain(damaged.iter().map(|d| d.0)).max();
    (found, last.filter(|_| more))
}

/// Inode records in order of number.
pub fn inodes(view: View<'_>, after: Ino, limit: usize) -> Result<Listed<InodeRec>> {
    let Some(first) = after.0.checked_add(1).filter(|_| limit > 0) else {
        return Ok(Listed { found: Vec::new(), damaged: Vec::new() });
    };
    records(view, (&keys::inode(Ino(first), part::RECORD), &[keys::INODE + 1]), limit, record_of)
}

/// The first records between two keys, at least one; `record_of` says whose record has a key, None for what is none.
pub fn records(
    view: View<'_>,
    (from, to): (&[u8], &[u8]),
    limit: usize,
    record_of: impl Fn(&[u8]) -> Option<Ino>,
) -> Result<Listed<InodeRec>> {
    let mut listed = Listed { found: Vec::new(), damaged: Vec::new() };
    let mut from = from.to_vec();
    loop {
        let scanned = view.r.scan(&from, to, &mut |k, v| {
            let Some(ino) = record_of(k) else { return ControlFlow::Continue(()) };
            match InodeRec::decode(ino, v) {
                Ok(rec) => listed.found.push(rec),
                Err(e) => listed.damaged.push((ino, e)),
            }
            let more = listed.found.len() + listed.damaged.len() < limit;
            if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        // A value that the engine finds damaged: go on behind it.
        let Err(KvError::BadValue { path, key }) = scanned else {
            return scanned.map(|()| listed).map_err(Into::into);
        };
        from = keys::after(&key);
        if let Some(ino) = record_of(&key) {
            listed.damaged.push((ino, KvError::BadValue { path, key }.into()));
        }
        if listed.found.len() + listed.damaged.len() >= limit {
            return Ok(listed);
        }
    }
}

/// Whose record has this key; None for other parts of an inode.
fn record_of(key: &[u8]) -> Option<Ino> {
    keys::number_at(key, 1).filter(|_| key.len() == 10 && key[9] == part::RECORD).map(Ino)
}
