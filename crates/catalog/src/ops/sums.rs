//! Sums over the namespace.

use super::{layouts, lookup};
use crate::keys::{self, meta, sum};
use crate::store::{self, Derived, Tx, View};
use crate::{Backlog, CatalogError, Result, Totals, Usage};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use types::{ClassName, ObjectId, PoolName};

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// Sum of all counters below `prefix`.
fn total(view: View<'_>, prefix: &[u8]) -> Result<u64> {
    let mut sum = 0i64;
    store::each(view.r, prefix, &keys::end(prefix), |_, v| {
        sum = sum.saturating_add(store::counter_value(v)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(unsigned(sum))
}

fn one(view: View<'_>, key: &[u8]) -> Result<u64> {
    Ok(unsigned(store::counter(view.r.get(key)?)?))
}

/// Sums over all users.
pub fn totals(view: View<'_>) -> Result<Totals> {
    Ok(Totals {
        inodes: total(view, &[keys::SUM, sum::FILES])?,
        bytes: total(view, &[keys::SUM, sum::BYTES])?,
        disk_bytes: total(view, &[keys::SUM, sum::DISK])?,
        purgeable: one(view, &[keys::SUM, sum::PURGEABLE])?,
        backlog_files: total(view, &[keys::SUM, sum::CLASS_FILES])?,
        backlog_bytes: total(view, &[keys::SUM, sum::CLASS_BYTES])?,
    })
}

/// Sums of one user.
pub fn usage(view: View<'_>, uid: u32) -> Result<Usage> {
    Ok(Usage {
        files: total(view, &keys::sum_user(sum::FILES, uid))?,
        bytes: one(view, &keys::sum_user(sum::BYTES, uid))?,
        disk_bytes: one(view, &keys::sum_user(sum::DISK, uid))?,
        target_bytes: one(view, &keys::sum_user(sum::FAR, uid))?,
        tape_bytes: one(view, &keys::sum_user(sum::TAPE, uid))?,
    })
}

/// Sums of every user who holds anything, in order of uid.
pub fn usages(view: View<'_>) -> Result<Vec<(u32, Usage)>> {
    let mut users = BTreeSet::new();
    let prefix = [keys::SUM, sum::FILES];
    store::each(view.r, &prefix, &keys::end(&prefix), |k, v| {
        let uid = k.get(2..6).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
        if store::counter_value(v)? > 0 {
            users.extend(uid);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    users.into_iter().map(|uid| Ok((uid, usage(view, uid)?))).collect()
}

/// A catalogue of an earlier release has no sums of what lies on targets: adds up to `limit` objects there to those of their owners. False when
/// all are in.
pub fn count_far(tx: &mut Tx<'_>, limit: usize) -> Result<bool> {
    let key = keys::meta_key(meta::FAR_COUNTED);
    let after = match tx.w.get_for_update(&key)?.as_deref() {
        Some([]) => return Ok(false),
        Some(value) => {
            let after = keys::number_at(value, 0).ok_or_else(|| {
                CatalogError::corrupt("counter", "files on targets that were counted", "it is no number")
            });
            ObjectId(after?)
        }
        None => ObjectId(0),
    };
    let found = layouts::numbers(tx.view(), after, limit)?;
    for object in &found {
        match of_object(tx, *object) {
            Ok((uid, held)) => store::add(tx.w, sum::FAR, uid, held)?,
            // A check names it; it must not keep the catalogue from being opened.
            Err(e) if e.is_damage() => {}
            Err(e) => return Err(e),
        }
    }
    let last = found.last().filter(|_| found.len() == limit).map(|object| object.0.to_be_bytes());
    tx.w.put(&key, last.as_ref().map_or(&[], |last| &last[..]))?;
    Ok(last.is_some())
}

/// Owner of the file that has an object on targets, and its bytes there.
fn of_object(tx: &mut Tx<'_>, object: ObjectId) -> Result<(Option<u32>, i64)> {
    let Some(ino) = lookup::object_owner(tx.view(), object)? else { return Ok((None, 0)) };
    // A check names an object whose file is not there, or has another one.
    let Some(rec) = tx.try_load(ino)? else { return Ok((None, 0)) };
    if rec.file.as_ref().is_none_or(|file| file.object != Some(object)) {
        return Ok((None, 0));
    }
    Ok((Some(rec.uid), Derived::of(&tx.view(), &rec)?.on_targets))
}

/// Work waiting for a pool.
pub fn pool_backlog(view: View<'_>, pool: &PoolName) -> Result<Backlog> {
    let of = |what| one(view, &keys::sum_text(what, pool.as_str()));
    Ok(Backlog { files: of(sum::POOL_FILES)?, bytes: of(sum::POOL_BYTES)? })
}

/// Work waiting for a class.
pub fn class_backlog(view: View<'_>, class: &ClassName) -> Result<Backlog> {
    let of = |what| one(view, &keys::sum_text(what, class.as_str()));
    Ok(Backlog { files: of(sum::CLASS_FILES)?, bytes: of(sum::CLASS_BYTES)? })
}
