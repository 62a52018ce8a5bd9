//! States of volumes that an operator sets.

use super::volume;
use crate::rec::VolumeRec;
use crate::store::Tx;
use crate::{CatalogError, Result, StateOrder};
use types::*;

/// Longest reason that is kept (bytes).
const MAX_REASON: usize = 1_000;

/// Sets the state of all of them, or of none.
pub fn set(tx: &mut Tx<'_>, volumes: &[Barcode], order: &StateOrder) -> Result<()> {
    if order.reason.len() > MAX_REASON {
        let why = format!("it has {} bytes, at most {MAX_REASON} are kept", order.reason.len());
        return Err(CatalogError::refused("the reason", why));
    }
    for barcode in volumes {
        let rec = volume::load_for_update(tx, barcode)?;
        let shown = volume::shown(&*tx.w, rec.clone())?;
        may(&shown, order.state, &order.reason)
            .map_err(|why| CatalogError::refused(format!("volume {barcode}"), why))?;
        // An export that is asked for once more finds what it has made of the volume itself.
        let before = if order.leave { rec.before.clone().or_else(|| Before::of(&shown)) } else { None };
        let mut volume = rec.volume.clone();
        volume.becomes(order.state, order.reason.clone(), order.now);
        volume.by = Some(order.by);
        // That he has it written again is his decision; nothing else makes it forget that its tape may hold more.
        volume.holds_more &= order.state != VolumeState::Filling;
        volume::store(tx, &VolumeRec { volume, before, ..rec })?;
    }
    Ok(())
}

/// Whether an operator may decide that for a reason that he gives; the reason if not.
fn may(v: &Volume, to: VolumeState, reason: &str) -> Result<(), String> {
    use VolumeState as S;
    match v.state {
        S::Foreign => {
            return Err(format!(
                "it carries what is not ours ({}); take it out of the library, or overwrite it with \
                 `thermo volume label --force`",
                v.reason
            ));
        }
        S::Unverified => {
            return Err(
                "it may carry more than the catalogue knows; run `thermo catalog rebuild` first".into()
            );
        }
        _ => {}
    }
    let labelled = !v.uuid.is_empty();
    match to {
        S::Scratch | S::Blank if v.live_files > 0 => Err(format!(
            "{} file segments on it are needed by current files; it is emptied by `thermo volume label` only, and not \
             before nothing on it is needed",
            v.live_files
        )),
        S::Scratch | S::Blank => Err("only a new label makes it so: `thermo volume label`".into()),
        S::Unknown | S::Foreign | S::Unverified => {
            Err("the node finds that out by itself, it cannot be set".into())
        }
        S::Repacking => Err("`thermo volume repack` makes it so".into()),
        S::Retired if v.live_files > 0 => Err(format!(
            "{} file segments on it are needed by current files; `exported` takes it out of the library and keeps them",
            v.live_files
        )),
        S::Filling | S::Full | S::ReadOnly | S::Suspect if !labelled => {
            Err("it carries no label of ours; give it one with `thermo volume label`".into())
        }
        S::Filling | S::Full if v.imported => {
            Err("it was imported from another namespace or program and is only read: `read-only`".into())
        }
        S::Filling if v.holds_more && v.append_block == 0 => {
            let why = "its files are still being entered: make it `read-only`, and `thermo catalog rebuild` goes on with that";
            Err(why.into())
        }
        // Whoever just has a volume back that was elsewhere, or was suspect, may not know.
        S::Filling if v.holds_more && reason.is_empty() => Err(
            "its tape holds, or may hold, more than the catalogue lists (`thermo volume show`), which is written over from then on:              say with `--reason` why that may be"
                .into(),
        ),
        S::Filling if v.pool.is_none() => {
            Err("it belongs to no pool; give it to one with `thermo volume label --pool`".into())
        }
        S::Filling | S::Full | S::ReadOnly | S::Suspect | S::Broken | S::Exported | S::Retired => Ok(()),
    }
}
