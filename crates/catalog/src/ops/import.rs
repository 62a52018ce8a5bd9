//! Inodes of other namespaces whose volumes were imported: which number each has here. So files that lie on several volumes
//! are put together whichever comes first, and an import that was interrupted goes on.

use super::open;
use crate::keys;
use crate::rec::InodeRec;
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use types::{Digest, Ino, Version};

/// The number that an inode of another namespace has here; None: it was never imported.
pub fn known(view: View<'_>, site: &str, foreign: Ino) -> Result<Option<Ino>> {
    let value = view.r.get(&keys::import(foreign, site))?;
    Ok(value.map(|value| store::counter(Some(value))).transpose()?.map(|n| Ino(n as u64)))
}

/// Gives numbers to inodes of another namespace; those that have one keep it.
pub fn numbers(tx: &mut Tx<'_>, site: &str, foreign: &[Ino]) -> Result<Vec<Ino>> {
    if site.is_empty() || site.len() > 128 {
        return Err(CatalogError::refused("the other namespace", "its name has no length that it can have"));
    }
    let mut found = Vec::with_capacity(foreign.len());
    for ino in foreign {
        let own = match known(tx.view(), site, *ino)? {
            Some(own) => own,
            None => {
                let own = Ino(open::reserve_ids(tx, 1)?);
                tx.w.put(&keys::import(*ino, site), &own.0.to_le_bytes())?;
                own
            }
        };
        found.push(own);
    }
    Ok(found)
}

/// Records the digest of a version whose digest nobody knew before it was read from tape.
pub fn note_digest(tx: &mut Tx<'_>, ino: Ino, version: Version, digest: Digest) -> Result<()> {
    let Some(old) = tx.try_load(ino)?.filter(InodeRec::has_data) else { return Ok(()) };
    let mut rec = old.clone();
    match &mut rec.file {
        Some(f) if f.version == version && f.digest.is_none() => f.digest = Some(digest),
        _ => return Ok(()),
    }
    tx.replace(Some(&old), Some(&rec))
}
