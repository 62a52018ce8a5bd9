//! Pools of disk targets: names by which layouts say where files are to lie. Which targets belong to one is said here, for all hosts at once, and not by
//! the hosts that serve them: layouts are here too, and a host that is away, or has lost its configuration, changes nothing of it.

use super::targets;
use crate::keys;
use crate::rec;
use crate::store::{Tx, View, each};
use crate::{CatalogError, Result};
use format::record;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use types::{TargetId, TargetPool};

/// All pools, in order of their names.
pub fn all(view: View<'_>) -> Result<Vec<TargetPool>> {
    let (prefix, mut found) = (keys::target_pools(), Vec::new());
    each(view.r, &prefix, &keys::end(&prefix), |_, value| {
        found.push(rec::decode("target pool", "list", value)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Targets of a pool; of one that is not known there are none.
pub fn members(tx: &mut Tx<'_>, name: &str) -> Result<BTreeSet<TargetId>> {
    Ok(one(tx, name)?.map(|pool| pool.targets.into_iter().collect()).unwrap_or_default())
}

/// Targets of a pool that something new is to lie in.
pub fn known_members(tx: &mut Tx<'_>, name: &str) -> Result<BTreeSet<TargetId>> {
    match one(tx, name)? {
        Some(pool) => Ok(pool.targets.into_iter().collect()),
        None => {
            let why = format!(
                "there is no target pool {name}: `thermo target pool {name} --add TARGET`, or give the directory another layout"
            );
            Err(CatalogError::refused("a new file", why))
        }
    }
}

fn one(tx: &mut Tx<'_>, name: &str) -> Result<Option<TargetPool>> {
    let value = tx.w.get_for_update(&keys::target_pool(name))?;
    value.map(|v| rec::decode("target pool", name, &v)).transpose()
}

/// Puts targets into a pool, which is made if it is not there, and takes others out. What lies on them stays there.
pub fn change(tx: &mut Tx<'_>, name: &str, add: &[TargetId], remove: &[TargetId]) -> Result<TargetPool> {
    // Taken first: a target that is taken out of the list meanwhile must not stay in a pool.
    tx.w.get_for_update(&keys::last_target())?;
    let known = one(tx, name)?;
    if known.is_none() && add.is_empty() {
        return Err(CatalogError::missing("target pool", name));
    }
    let mut members: BTreeSet<TargetId> =
        known.map(|pool| pool.targets.into_iter().collect()).unwrap_or_default();
    for id in remove {
        if !members.remove(id) {
            return Err(CatalogError::refused(
                format!("target pool {name}"),
                format!("target {id} is not in it"),
            ));
        }
    }
    for id in add {
        targets::one(tx, *id)?.ok_or_else(|| CatalogError::missing("target", id))?;
        members.insert(*id);
    }
    let pool = TargetPool { name: name.to_owned(), targets: members.into_iter().collect() };
    tx.w.put(&keys::target_pool(name), &record::encode(&pool))?;
    Ok(pool)
}

/// Takes away a pool that has no targets.
pub fn delete(tx: &mut Tx<'_>, name: &str) -> Result<()> {
    let pool = one(tx, name)?.ok_or_else(|| CatalogError::missing("target pool", name))?;
    if !pool.targets.is_empty() {
        let ids: Vec<String> = pool.targets.iter().map(TargetId::to_string).collect();
        let why = format!("it has targets: take them out first (`--remove {}`)", ids.join(" "));
        return Err(CatalogError::refused(format!("target pool {name}"), why));
    }
    Ok(tx.w.delete(&keys::target_pool(name))?)
}

/// A target goes from the list, and so from all pools. They stay, though nothing is left in them: layouts may name them.
pub fn forget(tx: &mut Tx<'_>, id: TargetId) -> Result<()> {
    for pool in all(tx.view())? {
        if pool.targets.contains(&id) {
            change(tx, &pool.name, &[], &[id])?;
        }
    }
    Ok(())
}
