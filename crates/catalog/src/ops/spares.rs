//! Which hosts keep a spare of what they have written to a file through the node: a node that serves after a crash waits for them before anybody else looks.

use crate::keys::{self, meta};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result, Spared};
use std::ops::ControlFlow;
use types::Ino;

/// They were waited for in vain.
const LOST: u8 = 1;

/// A session keeps one from now on, in an epoch that is greater than all before.
pub fn keep(tx: &mut Tx<'_>, ino: Ino, epoch: u64, session: u64) -> Result<()> {
    let key = keys::meta_key(meta::LAST_SPARE);
    let last = store::counter(tx.w.get_for_update(&key)?)?.max(epoch.try_into().unwrap_or(i64::MAX));
    tx.w.put(&key, &last.to_le_bytes())?;
    if tx.w.get_for_update(&keys::inode(ino, keys::part::RECORD))?.is_none() {
        return Err(CatalogError::missing("inode", ino));
    }
    Ok(tx.w.put(&keys::spare(ino, epoch), &session.to_be_bytes())?)
}

/// What was kept in these epochs is at the targets.
pub fn forget(tx: &mut Tx<'_>, ino: Ino, epochs: &[u64]) -> Result<()> {
    epochs.iter().try_for_each(|epoch| Ok(tx.w.delete(&keys::spare(ino, *epoch))?))
}

/// Others use the file now: what was kept comes too late. Of a file that is gone nothing is left to say.
pub fn lose(tx: &mut Tx<'_>, ino: Ino, epoch: u64) -> Result<()> {
    let key = keys::spare(ino, epoch);
    let there = tx.w.get_for_update(&keys::inode(ino, keys::part::RECORD))?.is_some();
    match tx.w.get_for_update(&key)? {
        Some(value) if there && value.len() == 8 => Ok(tx.w.put(&key, &[&value[..], &[LOST]].concat())?),
        Some(_) if !there => Ok(tx.w.delete(&key)?),
        _ => Ok(()),
    }
}

/// What is on record is older than what was written since.
pub fn lose_all(tx: &mut Tx<'_>) -> Result<()> {
    all(tx.view())?.into_iter().try_for_each(|kept| lose(tx, kept.ino, kept.epoch))
}

/// The greatest epoch so far.
pub fn last(view: View<'_>) -> Result<u64> {
    let last = store::counter(view.r.get(&keys::meta_key(meta::LAST_SPARE))?)?;
    Ok(last.try_into().unwrap_or(0))
}

/// All that is on record.
pub fn all(view: View<'_>) -> Result<Vec<Spared>> {
    let mut found = Vec::new();
    let mut bad = None;
    view.r.scan(&[keys::SPARE], &[keys::SPARE + 1], &mut |k, v| {
        match (keys::number_at(k, 1), keys::number_at(k, 9), keys::number_at(v, 0)) {
            (Some(ino), Some(epoch), Some(session)) => {
                found.push(Spared { ino: Ino(ino), epoch, session, lost: v.get(8) == Some(&LOST) });
            }
            (ino, ..) => bad = bad.or(Some(Ino(ino.unwrap_or(0)))),
        }
        ControlFlow::Continue(())
    })?;
    match bad {
        None => Ok(found),
        Some(ino) => Err(CatalogError::corrupt("spares of inode", ino, "the record is damaged")),
    }
}
