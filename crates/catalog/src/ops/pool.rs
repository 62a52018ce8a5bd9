//! Pools of volumes.

use super::class::check_text;
use crate::Result;
use crate::keys;
use crate::rec;
use crate::store::{Tx, View};
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
