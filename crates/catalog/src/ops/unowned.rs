//! Objects of the node's disk tier that belong to no inode: what a crash may leave on disk, without any scan to find it.

use crate::store::{Tx, View};
use crate::{Result, keys};
use std::ops::ControlFlow;
use types::ObjectId;

/// Up to `limit` unowned objects after `after`.
pub fn list(view: View<'_>, after: ObjectId, limit: usize) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    let from = keys::after(&keys::unowned(after));
    view.r.scan(&from, &keys::end(&[keys::UNOWNED]), &mut |k, v| {
        found.extend(keys::number_at(k, 1).map(ObjectId).filter(|_| v.is_empty()));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

/// These objects are gone from disk.
pub fn forget(tx: &mut Tx<'_>, objects: &[ObjectId]) -> Result<()> {
    for object in objects {
        tx.w.delete(&keys::unowned(*object))?;
    }
    Ok(())
}
