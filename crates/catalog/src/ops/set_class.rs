//! Class of an inode, and what changes with it: which copies are missing.

use super::{nodes, tape_tree, version, volume};
use crate::classes;
use crate::rec::{FileRec, InodeRec, MAX_COPIES};
use crate::store::Tx;
use crate::{CatalogError, Result};
use std::collections::BTreeMap;
use types::*;

/// See [`Catalog::set_class`](crate::Catalog::set_class).
pub fn set_class(tx: &mut Tx<'_>, ino: Ino, name: &ClassName, now: Time) -> Result<Inode> {
    let id = classes::require(&*tx.w, name)?;
    let old = tx.load(ino)?;
    let mut rec = old.clone();
    if rec.has_data() || tx.class(old.class)?.name == *name {
        assign(tx, &mut rec, id, now)?;
    } else {
        rec.class = id;
    }
    if tx.class(old.class)?.name != *name {
        // Tapes tell of it with its class.
        nodes::changed(tx, &old, &mut rec, now)?;
    }
    tx.replace(Some(&old), Some(&rec))?;
    tx.inode(&rec)
}

/// Pins or unpins.
pub fn pin(tx: &mut Tx<'_>, ino: Ino, pinned: bool) -> Result<bool> {
    let old = tx.load_file(ino)?;
    let mut rec = old.clone();
    if let Some(f) = &mut rec.file {
        f.pinned = pinned;
    }
    tx.replace(Some(&old), Some(&rec))?;
    Ok(old != rec)
}

/// Brings a record to the newest rules of its class, and its candidacy up to date.
pub fn update(tx: &mut Tx<'_>, rec: &mut InodeRec, now: Time) -> Result<()> {
    let name = tx.class(rec.class)?.name.clone();
    let id = classes::require(&*tx.w, &name)?;
    assign(tx, rec, id, now)
}

fn assign(tx: &mut Tx<'_>, rec: &mut InodeRec, id: u32, now: Time) -> Result<()> {
    let class = tx.class(id)?;
    if id != rec.class {
        let before = tx.class(rec.class)?;
        if let Some(f) = &mut rec.file {
            f.due = None;
            if f.known && before.copies != class.copies {
                renumber(tx, rec.ino, f, &class)?;
            }
        }
        rec.class = id;
    }
    rec.settle(&class, now);
    Ok(())
}

/// Numbers the copies by the pools of the new class. Whole copies in no pool of it stay as extra copies, numbered behind
/// those required; parts of copies are given up.
pub fn renumber(tx: &mut Tx<'_>, ino: Ino, f: &mut FileRec, class: &Class) -> Result<()> {
    let (whole, parts): (Vec<_>, Vec<_>) =
        version::copies(tx.view(), ino, f.version)?.into_iter().partition(|c| f.has_copy(c.copy.0));
    for copy in parts.iter().chain(&whole) {
        tx.w.delete(&crate::keys::copy(ino, f.version, copy.copy))?;
    }
    for segment in parts.iter().flat_map(|c| &c.segments) {
        tape_tree::kill(tx, ino, f.version, segment)?;
    }
    let mut left = whole;
    let mut numbered = BTreeMap::new();
    for (pool, n) in class.copies.iter().zip(1u8..) {
        for i in 0..left.len() {
            if lies_in(tx, &left[i], pool)? {
                numbered.insert(n, left.remove(i));
                break;
            }
        }
    }
    numbered.extend((class.copies.len() as u8 + 1..).zip(left));
    if numbered.last_key_value().is_some_and(|(n, _)| *n > MAX_COPIES) {
        return Err(CatalogError::refused(
            format!("inode {ino}"),
            "it has too many copies to change its class",
        ));
    }
    f.copies = 0;
    for (n, mut copy) in numbered {
        f.copies |= 1 << (n - 1);
        copy.copy = CopyNo(n);
        version::put_copy(tx, ino, f.version, &copy)?;
        for segment in &copy.segments {
            tape_tree::renumber(tx, ino, f.version, segment, copy.copy)?;
        }
    }
    f.known = f.copies != 0;
    if !f.known {
        super::parts::forget(tx, ino, f.version)?;
    }
    Ok(())
}

fn lies_in(tx: &Tx<'_>, copy: &CopyRecord, pool: &PoolName) -> Result<bool> {
    for segment in &copy.segments {
        let volume = volume::load(&*tx.w, &segment.volume)?;
        if volume.is_none_or(|v| v.volume.pool.as_ref() != Some(pool)) {
            return Ok(false);
        }
    }
    Ok(true)
}
