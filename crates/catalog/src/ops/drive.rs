//! Drives that operators want out of use, by serial number: a drive that takes the place of one is another.

use crate::Result;
use crate::keys;
use crate::rec;
use crate::store::{Tx, View};
use format::record;
use types::TakenOut;

/// Who took a drive out of use, if anybody did.
pub fn taken_out(view: View<'_>, serial: &str) -> Result<Option<TakenOut>> {
    let value = view.r.get(&keys::drive(serial))?;
    value.map(|v| rec::decode("drive", serial, &v)).transpose()
}

/// Takes a drive out of use, or (None) into use again.
pub fn set(tx: &mut Tx<'_>, serial: &str, out: Option<&TakenOut>) -> Result<()> {
    let key = keys::drive(serial);
    tx.w.get_for_update(&key)?;
    match out {
        Some(out) => tx.w.put(&key, &record::encode(out))?,
        None => tx.w.delete(&key)?,
    }
    Ok(())
}
