//! Cartridges that can be written once (WORM): pools that take them take no others, and they have their label for life.

use super::layout;
use super::trouble::ours;
use super::worker::Worker;
use tape::{LabelSpec, LabelState, Mounted, TapeError};
use types::*;

/// Why a cartridge of this kind is not given to a pool, if so.
pub fn mismatch(pools: &[Pool], pool: Option<&PoolName>, worm: bool) -> Option<String> {
    let wants = pool.and_then(|name| pools.iter().find(|p| p.name == *name)).map(|p| p.worm);
    match (worm, wants) {
        (true, None) => Some(
            "it is of WORM medium, which is labelled once: say for which pool (--pool; `thermo pool set NAME --create \
             --worm true` makes one)"
                .into(),
        ),
        (true, Some(false)) => Some("it is of WORM medium, and its pool takes only media that can be rewritten".into()),
        (false, Some(true)) => Some("its pool takes WORM media only, and it can be rewritten".into()),
        (false, None | Some(false)) | (true, Some(true)) => None,
    }
}

/// Why the mounted cartridge is not labelled for this pool, if so. `known` is the uuid on it, where it is ours.
pub fn refusal(
    worker: &Worker,
    mounted: &Mounted<'_>,
    barcode: &Barcode,
    pool: Option<&PoolName>,
    known: Option<&str>,
) -> Result<Option<String>, TapeError> {
    let pool = pool.map(super::family::pool_of);
    let pools = worker.node.catalog.pools().map_err(|e| ours(barcode, "looking up its pool", e))?;
    let wrong = mismatch(&pools, pool.as_ref(), mounted.worm());
    let labelled = mounted.worm() && *mounted.label() != LabelState::Blank && known.is_none();
    let what = mounted.label().describe();
    let for_life =
        labelled.then(|| format!("it is of WORM medium and carries {what}, which cannot be replaced"));
    Ok(wrong.or(for_life).map(|why| format!("volume {barcode} was not labelled: {why}")))
}

/// A WORM cartridge that carries the label already which it is to get: the node died before it was recorded. None: it is to be
/// written.
pub fn labelled_before(mounted: &mut Mounted<'_>, spec: &LabelSpec<'_>) -> Result<Option<Volume>, TapeError> {
    if !mounted.worm() || mounted.label().uuid() != Some(spec.uuid) {
        return Ok(None);
    }
    let end = mounted.find_end()?;
    Ok((end.section == 0).then(|| layout::fresh_sections(mounted, spec, end.block)))
}
