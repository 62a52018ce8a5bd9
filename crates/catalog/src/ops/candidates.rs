//! What waits for migration, earliest due first.

use crate::keys;
use crate::rec::InodeRec;
use crate::store::View;
use crate::{Candidate, CandidateKey, CatalogError, Listed, Result};
use std::ops::ControlFlow;
use types::*;

/// See [`Catalog::candidates`](crate::Catalog::candidates).
pub fn candidates(
    view: View<'_>,
    due_before: Time,
    after: Option<CandidateKey>,
    limit: usize,
) -> Result<Listed<Candidate>> {
    let from =
        after.map_or_else(|| vec![keys::CANDIDATE], |k| keys::after(&keys::candidate(k.due_secs, k.ino)));
    let last = due_before.secs.saturating_add(i64::from(due_before.nanos > 0));
    list(scan(view, &from, &keys::candidate(last, Ino(0)), limit)?, |due, ino| {
        let rec = view.trace(ino)?;
        rec.map(|r| of(view, &r)).transpose()?.flatten().ok_or_else(|| {
            CatalogError::corrupt("candidate index", ino, format!("no such file is due at {due}"))
        })
    })
}

/// Loads what an index names; damaged records are set aside.
pub fn list<T>(keys: Vec<(i64, Ino)>, mut load: impl FnMut(i64, Ino) -> Result<T>) -> Result<Listed<T>> {
    let mut listed = Listed { found: Vec::with_capacity(keys.len()), damaged: Vec::new() };
    for (secs, ino) in keys {
        match load(secs, ino) {
            Ok(one) => listed.found.push(one),
            Err(e) if e.is_damage() => listed.damaged.push((ino, e)),
            Err(e) => return Err(e),
        }
    }
    Ok(listed)
}

/// Seconds and inodes of index keys.
pub fn scan(view: View<'_>, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(i64, Ino)>> {
    let mut found = Vec::new();
    if limit == 0 || from >= to {
        return Ok(found);
    }
    view.r.scan(from, to, &mut |k, _| {
        found.extend(keys::secs_at(k, 1).zip(keys::number_at(k, 9).map(Ino)));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

/// What one file lacks; None if nothing, or if it is being written or offline.
pub fn of(view: View<'_>, rec: &InodeRec) -> Result<Option<Candidate>> {
    let Some((f, due)) = rec.file.as_ref().and_then(|f| f.due.map(|d| (f, d))) else { return Ok(None) };
    let class = view.class(rec.class)?;
    Ok(Some(Candidate {
        key: CandidateKey { due_secs: due, ino: rec.ino },
        ino: rec.ino,
        version: f.version,
        size: rec.data_size(),
        due: Time::new(due, 0),
        class: class.name.clone(),
        object: f.object,
        far: f.far && f.object.is_some(),
        dataless: !rec.has_data(),
        missing: f.missing(&class).map(|(n, pool)| (n, pool.clone())).collect(),
    }))
}
