//! Digests of parts of a version: what lies on one of several volumes can be compared alone. They are of the content, whatever copy it
//! is read from, and are known as long as something of the version is on tape.

use crate::keys;
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use std::ops::ControlFlow;
use types::*;

/// First byte and length of a part (bytes).
pub type Part = (u64, u64);

/// Notes digests of parts of the present version; nothing if that is another one, or has nothing on tape.
pub fn put(tx: &mut Tx<'_>, ino: Ino, version: Version, parts: &[(Part, Digest)]) -> Result<()> {
    let file = tx.view().trace(ino)?.and_then(|rec| rec.file);
    if file.is_some_and(|f| f.version == version && f.known) {
        for (part, digest) in parts {
            tx.w.put(&keys::part(ino, version, *part), &digest.0)?;
        }
    }
    Ok(())
}

/// The digest of a part, if it was ever noted.
pub fn find(view: View<'_>, ino: Ino, version: Version, part: Part) -> Result<Option<Digest>> {
    let value = view.r.get(&keys::part(ino, version, part))?;
    value.map(|v| decode(ino, version, &v)).transpose()
}

fn decode(ino: Ino, version: Version, value: &[u8]) -> Result<Digest> {
    let corrupt = |_| CatalogError::corrupt("digest of a part of inode", ino, format!("version {version}"));
    value.try_into().map(Digest).map_err(corrupt)
}

/// Nothing of the version is on tape any more.
pub fn forget(tx: &mut Tx<'_>, ino: Ino, version: Version) -> Result<()> {
    for (key, _) in all(tx.view(), ino, version)? {
        tx.w.delete(&key)?;
    }
    Ok(())
}

/// The version `to` has the same content.
pub fn inherit(tx: &mut Tx<'_>, from: (Ino, Version), to: (Ino, Version)) -> Result<()> {
    for (key, digest) in all(tx.view(), from.0, from.1)? {
        let part = &key[keys::parts(from.0, from.1).len()..];
        tx.w.put(&[&keys::parts(to.0, to.1)[..], part].concat(), &digest)?;
    }
    Ok(())
}

type Pair = (Vec<u8>, Vec<u8>);

fn all(view: View<'_>, ino: Ino, version: Version) -> Result<Vec<Pair>> {
    let (prefix, mut found) = (keys::parts(ino, version), Vec::new());
    store::each(view.r, &prefix, &keys::end(&prefix), |k, v| {
        found.push((k.to_vec(), v.to_vec()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
