//! Copies that turn out to be lost, and the files that are to come back to disk so that they are made anew.

use super::record_copies::covers;
use super::{tape_tree, version, volume};
use crate::keys;
use crate::rec::VolumeRec;
use crate::store::{Tx, View};
use crate::{LostCopy, Result};
use std::ops::ControlFlow;
use types::*;

/// One of those of [`Catalog::lose_copies`](crate::Catalog::lose_copies).
pub fn lose_copy(tx: &mut Tx<'_>, lost: &LostCopy, now: Time) -> Result<Lost> {
    let Some(old) = tx.trace(lost.ino)? else { return Ok(Lost::Gone) };
    let mut rec = old.clone();
    let Some(f) = rec.file.as_mut().filter(|f| f.version == lost.version) else { return Ok(Lost::Gone) };
    let copies = version::copies(tx.view(), lost.ino, lost.version)?;
    let (bad, left): (Vec<_>, Vec<_>) = copies.into_iter().partition(|c| c.copy == lost.copy);
    if !bad.iter().any(|c| c.segments.iter().any(|s| s.volume == lost.volume)) {
        return Ok(Lost::Gone);
    }
    let whole = bad.iter().any(|c| covers(&c.segments, old.data_size()));
    if whole && !f.has_copy(lost.copy.0) {
        return Ok(Lost::Gone); // it waits for another to take its place
    }
    let others = !left.is_empty();
    let good: Vec<_> = left.into_iter().filter(|c| f.has_copy(c.copy.0)).collect();
    if old.has_data() && f.object.is_none() && !any_good(tx.view(), &good, old.size)? {
        return Ok(Lost::Last);
    }
    f.copies &= !(1 << (lost.copy.0 - 1));
    f.mend = true;
    let class = tx.class(rec.class)?;
    // It stays on record until another has taken its place: should the others turn out to be worse, it is all there is. One
    // that the class does not ask for gets no successor, and what is not whole is no copy.
    if !whole || usize::from(lost.copy.0) > class.copies.len() {
        tx.w.delete(&keys::copy(lost.ino, lost.version, lost.copy))?;
        for segment in bad.iter().flat_map(|c| &c.segments) {
            tape_tree::kill(tx, lost.ino, lost.version, segment)?;
        }
        rec.file.iter_mut().for_each(|f| f.known = others);
        if !others {
            super::parts::forget(tx, lost.ino, lost.version)?;
        }
    }
    rec.settle(&class, now);
    tx.replace(Some(&old), Some(&rec))?;
    Ok(Lost::Dropped)
}

/// Whether a copy is whole, and no volume of it is known to be lost itself.
fn any_good(view: View<'_>, copies: &[CopyRecord], size: u64) -> Result<bool> {
    for copy in copies.iter().filter(|c| covers(&c.segments, size)) {
        let mut good = true;
        for segment in &copy.segments {
            // Of a volume whose own record is damaged nobody knows.
            let volume = match volume::load(view.r, &segment.volume) {
                Err(e) if e.is_damage() => None,
                loaded => loaded?,
            };
            let lost = |v: &VolumeRec| matches!(v.volume.state, VolumeState::Broken | VolumeState::Foreign);
            good &= volume.is_some_and(|v| !lost(&v));
        }
        if good {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What became of a copy that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It counts no more, and the file is to get another.
    Dropped,
    /// It is all there is of the file: it stays on record.
    Last,
    /// Nobody needs it any more.
    Gone,
}

/// Files to be brought back, in order of inode.
pub fn to_mend(view: View<'_>, after: Ino, limit: usize) -> Result<Vec<Ino>> {
    let mut found = Vec::new();
    if limit > 0 {
        view.r.scan(&keys::after(&keys::mend(after)), &[keys::MEND + 1], &mut |k, _| {
            found.extend(keys::number_at(k, 1).map(Ino));
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    }
    Ok(found)
}
