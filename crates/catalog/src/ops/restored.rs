//! What must change in a catalogue that comes from a backup, because the world went on without it.

use super::volume;
use crate::keys;
use crate::store::Tx;
use crate::{CatalogError, Result};
use std::ops::ControlFlow;
use types::*;

/// Versions that this inode may have got after the backup: a file is not closed more often than that between two.
const VERSIONS: u32 = 1 << 16;

/// Forgets up to `limit` objects that belonged to nobody, or lay where they did not belong: they may be a file's by now, and the only ones that have its
/// bytes. False when none is left.
pub fn keep_unowned(tx: &mut Tx<'_>, limit: usize) -> Result<bool> {
    let mut found = Vec::new();
    for table in [keys::UNOWNED, keys::STRAY] {
        tx.w.scan(&[table], &keys::end(&[table]), &mut |k, _| {
            found.push(k.to_vec());
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if found.len() == limit {
            break;
        }
    }
    for key in &found {
        tx.w.delete(key)?;
    }
    Ok(found.len() == limit)
}

/// Stands for a label that was about to be written at the time of the backup: no cartridge carries it.
const BEFORE: &str = "one of before the backup";

/// Volumes that may have been written since are written no more before somebody has looked at them. A label that was about to be written then may be there by now, with files behind it
/// that are needed: a cartridge that carries it is not one whose label was cut short.
pub fn distrust(tx: &mut Tx<'_>, now: Time) -> Result<()> {
    for known in volume::volumes(tx.view())?.found {
        let intended = keys::volume(keys::vol::INTENDED, &known.barcode);
        match tx.w.get(&intended)? {
            Some(_) if known.uuid.is_empty() => tx.w.delete(&intended)?,
            // What was on it is not needed: nothing is restored from there.
            Some(_) => tx.w.put(&intended, BEFORE.as_bytes())?,
            None => {}
        }
        if !matches!(known.state, VolumeState::Filling | VolumeState::Scratch) {
            continue;
        }
        volume::update(tx, &known.barcode, &mut |v| {
            let why = "the catalogue comes from a backup: run `thermo catalog rebuild`";
            v.becomes(VolumeState::Unverified, why, now);
        })?;
    }
    Ok(())
}

/// The content of this file changed after the backup: its version gets a number that no copy on tape can have.
pub fn raise_version(tx: &mut Tx<'_>, ino: Ino) -> Result<()> {
    let old = tx.load_file(ino)?;
    let mut rec = old.clone();
    let Some(f) = rec.file.as_mut() else { return Ok(()) };
    if f.known {
        let why = "copies of its present version are recorded: its content has not changed";
        return Err(CatalogError::refused(format!("inode {ino}"), why));
    }
    f.version = Version(f.version.0.saturating_add(VERSIONS));
    tx.replace(Some(&old), Some(&rec))
}
