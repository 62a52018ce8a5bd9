//! A file on targets gets more of them as it grows.
//!
//! The objects of its next component are on record as strays before they are made, and belong to the file from the transaction on that adds the
//! component: whatever a crash leaves is one or the other.

use super::layouts::{self, Far};
use super::open;
use crate::keys::{self, ON_TARGETS};
use crate::store::Tx;
use crate::{CatalogError, Result};
use layout::Candidate;
use std::collections::BTreeSet;
use types::*;

/// Reserves objects for the next component of a file, and chooses their targets; gives what the file is going to have. What comes to lie on
/// targets that are `away` is out of date from the beginning.
pub fn reserve(
    tx: &mut Tx<'_>,
    object: ObjectId,
    targets: &[Candidate],
    away: &BTreeSet<TargetId>,
) -> Result<Far> {
    let mut far = layouts::load(tx, object)?;
    let rule = far.rule();
    if far.then.is_empty() {
        return Err(CatalogError::refused(what(object), "it has all that it is to get"));
    }
    let next = far.then.remove(0);
    let (rule, end) = (rule.at(next), far.then.first().map_or(u64::MAX, |behind| behind.from));
    let first = open::reserve_numbers(tx, rule.objects())?;
    let component = layouts::component(tx, first, &rule, next.from..end, targets)?;
    let number = far.layout.components.len() as u16;
    far.layout.components.push(component.clone());
    far.check().map_err(|e| CatalogError::refused("layout", e))?;
    // Of what it has already others may be away.
    if !far.last_part().can_spare(away) {
        return Err(CatalogError::refused(what(object), "too many of the targets that have room are down"));
    }
    let missing: Vec<(u16, u16)> = far.on(away).into_iter().filter(|place| place.0 == number).collect();
    for (object, column) in component.places().filter(|(_, column)| !missing.contains(&(number, *column))) {
        if let Some(target) = component.target(column) {
            tx.w.put(&keys::stray(object, target), &[])?;
        }
    }
    far.stale.extend(missing);
    far.stale.sort_unstable();
    Ok(far)
}

/// The last component of `grown` belongs to the file from now on, under a new generation. `reserved`: the caller knows that nobody sweeps the
/// objects of the file, though they belong to none yet.
pub fn add(tx: &mut Tx<'_>, object: ObjectId, grown: &Far, reserved: bool) -> Result<Far> {
    let mut far = layouts::load(tx, object)?;
    let unowned = tx.w.get_for_update(&keys::unowned(object))?.as_deref() == Some(&[ON_TARGETS]);
    if unowned && !reserved {
        return Err(CatalogError::refused(what(object), "it has been removed"));
    }
    let number = far.layout.components.len();
    let component = match (&grown.layout.components[..], far.then.first()) {
        ([before @ .., last], Some(next)) if before.len() == number && next.from == last.range.start => last,
        _ => return Err(CatalogError::refused(what(object), "it has grown meanwhile")),
    };
    // Whoever has it open goes on with what was read when it was reserved.
    let (before, known) = (
        &grown.layout.components[..number],
        grown.stale.iter().filter(|place| usize::from(place.0) < number),
    );
    if far.layout.components != before || !far.stale.iter().eq(known) {
        return Err(CatalogError::refused(
            what(object),
            "something of it has moved, or is out of date, meanwhile",
        ));
    }
    layouts::stay(tx, far.pool.as_deref(), std::iter::once(component), || what(object))?;
    for (object, column) in component.places() {
        if let Some(target) = component.target(column) {
            tx.w.delete(&keys::stray(object, target))?;
        }
    }
    far.then.remove(0);
    far.layout.components.push(component.clone());
    far.stale.extend(grown.stale.iter().filter(|place| usize::from(place.0) == number));
    far.stale.sort_unstable();
    far.check().map_err(|e| CatalogError::refused("layout", e))?;
    far.layout.generation = far.layout.generation.saturating_add(1);
    layouts::store(tx, object, &far)?;
    Ok(far)
}

fn what(object: ObjectId) -> String {
    format!("a file that grows (object {object})")
}
