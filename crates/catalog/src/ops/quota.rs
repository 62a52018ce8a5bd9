//! What owners may hold.

use crate::keys;
use crate::rec;
use crate::store::{Tx, View};
use crate::{CatalogError, Result};
use format::record;
use std::ops::ControlFlow;
use types::{FsError, Quota};

/// All quotas in order of uid, that of everybody else last.
pub fn all(view: View<'_>) -> Result<Vec<Quota>> {
    let mut values = Vec::new();
    view.r.scan(&[keys::QUOTA], &[keys::QUOTA + 1], &mut |_, v| {
        values.push(v.to_vec());
        ControlFlow::Continue(())
    })?;
    values.iter().map(|v| rec::decode("quota", "list", v)).collect()
}

/// Sets a quota. An owner's quota without limits exempts him from that of everybody else.
pub fn put(tx: &mut Tx<'_>, quota: &Quota) -> Result<()> {
    if quota.uid == Some(u32::MAX) {
        return Err(CatalogError::from(FsError::Invalid));
    }
    let key = keys::quota(quota.uid);
    tx.w.get_for_update(&key)?;
    match quota.is_unlimited() && quota.uid.is_none() {
        true => tx.w.delete(&key)?,
        false => tx.w.put(&key, &record::encode(quota))?,
    }
    Ok(())
}

/// Forgets an owner's quota: that of everybody else is his then.
pub fn remove(tx: &mut Tx<'_>, uid: u32) -> Result<bool> {
    let key = keys::quota(Some(uid));
    let found = tx.w.get_for_update(&key)?.is_some();
    if found {
        tx.w.delete(&key)?;
    }
    Ok(found)
}
