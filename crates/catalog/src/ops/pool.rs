//! Pools of volumes.

use super::class::{self, check_text};
use super::volume;
use crate::keys;
use crate::rec;
use crate::store::{Tx, View};
use crate::{CatalogError, Result};
use format::record;
use std::ops::ControlFlow;
use types::*;

/// All pools in order of name.
pub fn all(view: View<'_>) -> Result<Vec<Pool>> {
    let mut values = Vec::new();
    view.r.scan(&[keys::POOL], &[keys::POOL + 1], &mut |_, v| {
        values.push(v.to_vec());
        ControlFlow::Continue(())
    })?;
    values.iter().map(|v| rec::decode("pool", "list", v)).collect()
}

/// Makes or changes a pool.
pub fn put(tx: &mut Tx<'_>, pool: &Pool) -> Result<()> {
    check_text("pool", pool.name.as_str())?;
    Ok(tx.w.put(&keys::pool(&pool.name), &record::encode(pool))?)
}

/// Removes a pool that nothing names.
pub fn delete(tx: &mut Tx<'_>, name: &PoolName) -> Result<()> {
    if tx.w.get_for_update(&keys::pool(name))?.is_none() {
        return Err(CatalogError::missing("pool", name));
    }
    let refused = |why: String| Err(CatalogError::refused(format!("pool {name}"), why));
    if let Some(c) = class::all(tx.view())?.iter().find(|c| c.copies.contains(name)) {
        return refused(format!("class {} makes copies in it; change the class first", c.name));
    }
    if let Some(v) = volume::volumes(tx.view())?.iter().find(|v| v.pool.as_ref() == Some(name)) {
        return refused(format!("volume {} belongs to it; move it to another pool first", v.barcode));
    }
    Ok(tx.w.delete(&keys::pool(name))?)
}
