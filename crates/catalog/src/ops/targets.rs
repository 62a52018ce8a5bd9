//! Disk targets of the cluster.

use super::target_pools;
use crate::keys::{self, meta};
use crate::rec;
use crate::store::{self, Tx, View, each};
use crate::{CatalogError, Result};
use format::record;
use std::ops::ControlFlow;
use types::{NodeId, Target, TargetId, Time};

/// What a node says of a target that it serves.
#[derive(Clone, Debug)]
pub struct Reported<'a> {
    /// What the disk says of itself.
    pub uuid: &'a str,
    /// Who says so.
    pub node: NodeId,
    /// Where bytes are moved (`host:port`).
    pub data: &'a [String],
    /// What fails together with it.
    pub domain: &'a str,
    /// Size (bytes).
    pub capacity: u64,
    /// What can still be written (bytes).
    pub free: u64,
}

/// The turn of whoever serves.
pub fn turn(view: View<'_>) -> Result<u64> {
    let turn = store::counter(view.r.get(&keys::meta_key(meta::TURN))?)?;
    Ok(u64::try_from(turn).unwrap_or_default())
}

/// A turn that is greater than `other`, and no less than the present one.
pub fn turn_above(tx: &mut Tx<'_>, other: u64) -> Result<u64> {
    let key = keys::meta_key(meta::TURN);
    let present = store::counter(tx.w.get_for_update(&key)?)?;
    let above = i64::try_from(other).ok().and_then(|other| other.checked_add(1));
    let spent = || {
        CatalogError::refused("the targets", format!("there is no turn behind {other}: a disk is damaged"))
    };
    let turn = above.ok_or_else(spent)?.max(present);
    tx.w.put(&key, &turn.to_le_bytes())?;
    Ok(u64::try_from(turn).unwrap_or_default())
}

/// All targets, in order of their numbers.
pub fn all(view: View<'_>) -> Result<Vec<Target>> {
    list(view, keys::targets())
}

/// Those that were taken out of the list, as they were then.
pub fn removed(view: View<'_>) -> Result<Vec<Target>> {
    list(view, keys::removed_targets())
}

fn list(view: View<'_>, prefix: [u8; 2]) -> Result<Vec<Target>> {
    let mut found = Vec::new();
    each(view.r, &prefix, &keys::end(&prefix), |_, value| {
        found.push(rec::decode("target", "list", value)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Takes note of what a node says, at `now`; a target that is not known gets the next number. One that another node has served since
/// `lately` is refused: two disks with one name are copies of each other.
pub fn report(tx: &mut Tx<'_>, said: &Reported<'_>, now: Time, lately: Time) -> Result<Target> {
    // Taken first: two that report at once must not get one number.
    let last = store::counter(tx.w.get_for_update(&keys::last_target())?)?;
    let is_said = |target: &Target| target.uuid == said.uuid;
    if let Some(gone) = removed(tx.view())?.into_iter().find(is_said) {
        let what = format!("target {} ({}) was taken out of the list", gone.id, gone.uuid);
        return Err(CatalogError::refused("target", what));
    }
    let known = all(tx.view())?.into_iter().find(is_said);
    let (id, draining, lost) = match &known {
        Some(other) if other.node != said.node && other.seen > lately => {
            let what = format!("node {} serves the target {} ({}) already", other.node, other.id, other.uuid);
            return Err(CatalogError::refused("target", what + ": is one disk a copy of the other?"));
        }
        Some(target) => (target.id, target.draining, target.lost),
        None => {
            let next = u32::try_from(last.saturating_add(1));
            let spent = |_| CatalogError::refused("target", "all numbers of targets have been given");
            let id = TargetId(next.map_err(spent)?);
            tx.w.put(&keys::last_target(), &i64::from(id.0).to_le_bytes())?;
            (id, false, false)
        }
    };
    let target = Target {
        id,
        uuid: said.uuid.to_owned(),
        node: said.node,
        data: said.data.to_vec(),
        domain: said.domain.to_owned(),
        draining,
        lost,
        capacity: said.capacity,
        free: said.free,
        seen: now,
    };
    tx.w.put(&keys::target(id), &record::encode(&target))?;
    Ok(target)
}

/// A target; none with that number is known.
pub fn one(tx: &mut Tx<'_>, id: TargetId) -> Result<Option<Target>> {
    let value = tx.w.get_for_update(&keys::target(id))?;
    value.map(|v| rec::decode("target", id, &v)).transpose()
}

/// Says whether a target gets new files, and whether it will never come back.
pub fn set(tx: &mut Tx<'_>, id: TargetId, draining: bool, lost: bool) -> Result<Target> {
    let known = one(tx, id)?.ok_or_else(|| CatalogError::missing("target", id))?;
    let target = Target { draining, lost, ..known };
    tx.w.put(&keys::target(id), &record::encode(&target))?;
    Ok(target)
}

/// Takes a target out of the list; its number is given to no other one. It is to be empty, or lost, and the caller has seen that nothing lies there:
/// what is to be emptied gets nothing more.
pub fn remove(tx: &mut Tx<'_>, id: TargetId) -> Result<Target> {
    // Reports wait for it: one that comes meanwhile must not bring it back.
    tx.w.get_for_update(&keys::last_target())?;
    let known = one(tx, id)?.ok_or_else(|| CatalogError::missing("target", id))?;
    if !known.draining && !known.lost {
        return Err(CatalogError::refused("target", format!("target {id} gets new files")));
    }
    target_pools::forget(tx, id)?;
    tx.w.delete(&keys::target(id))?;
    tx.w.put(&keys::removed_target(id), &record::encode(&known))?;
    Ok(known)
}

/// Whether new things may come to lie on a target: no operator wants it empty, and it was not taken out of the list.
pub fn takes_more(tx: &mut Tx<'_>, id: TargetId) -> Result<bool> {
    match one(tx, id)? {
        Some(known) => Ok(!known.draining && !known.lost),
        None => Ok(tx.w.get_for_update(&keys::removed_target(id))?.is_none()),
    }
}
