//! What could leave the disk, least recently used first.

use super::candidates::{list, scan};
use crate::keys;
use crate::rec::InodeRec;
use crate::store::View;
use crate::{CatalogError, Listed, PurgeCandidate, PurgeKey, Result};
use types::*;

/// See [`Catalog::purge_candidates`](crate::Catalog::purge_candidates).
pub fn purge_candidates(
    view: View<'_>,
    far: bool,
    after: Option<PurgeKey>,
    limit: usize,
) -> Result<Listed<PurgeCandidate>> {
    let (table, key) = match far {
        true => (keys::PURGE_FAR, keys::purge_far as fn(i64, Ino) -> [u8; 17]),
        false => (keys::PURGE, keys::purge as fn(i64, Ino) -> [u8; 17]),
    };
    let from = after.map_or_else(|| vec![table], |k| keys::after(&key(k.access_secs, k.ino)));
    list(scan(view, &from, &[table + 1], limit)?, |used, ino| {
        let rec = view.try_load(ino)?.and_then(|r| of(&r));
        rec.ok_or_else(|| {
            CatalogError::corrupt("purge index", ino, format!("no such file on disk, used at {used}"))
        })
    })
}

fn of(rec: &InodeRec) -> Option<PurgeCandidate> {
    let f = rec.file.as_ref()?;
    let (object, stamp) = f.object.zip(f.stamp)?;
    Some(PurgeCandidate {
        key: PurgeKey { access_secs: f.used, ino: rec.ino },
        ino: rec.ino,
        version: f.version,
        object,
        stamp,
        allocated: stamp.allocated,
        last_access: Time::new(f.used, 0),
    })
}
