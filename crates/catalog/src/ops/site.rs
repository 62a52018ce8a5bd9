//! Which namespace this is: a uuid that volumes carry, because inode numbers mean something only within one; and what
//! volumes tell of its directories.

use super::{names, nodes};
use crate::keys::{self, meta};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use format::ltfs::origin::DirFacts;
use types::{FileKind, Ino, Time, Version};

/// A number that no earlier life of this namespace gave: numbers come one by one, and far fewer than a million a second.
const NUMBERS_PER_SECOND: i64 = 1 << 20;

/// The second in which versions would be numbered from 1: 2020 began. Nothing has more of them than seconds since then.
const FIRST_SECOND: i64 = 1_577_836_800;
/// Numbers of versions end far behind this one, and those of inodes behind the other: what says something higher is damaged.
pub const HIGHEST_VERSION: Version = Version(1 << 31);
const HIGHEST_INO: Ino = Ino(1 << 62);

/// The uuid; None until one is set.
pub fn get(view: View<'_>) -> Result<Option<String>> {
    let value = view.r.get(&keys::meta_key(meta::SITE))?;
    let text = value.map(String::from_utf8);
    text.transpose().map_err(|e| CatalogError::corrupt("site", "the catalogue", e))
}

/// The uuid, for what is to note it for good: it stays from now on. None while it may still become another one.
pub fn give(tx: &mut Tx<'_>) -> Result<Option<String>> {
    if !is_given(tx.view())? {
        if is_empty(tx.view())? {
            return Ok(None);
        }
        tx.w.put(&keys::meta_key(meta::SITE_GIVEN), &[])?;
    }
    get(tx.view())
}

/// Whether something has noted the uuid for good.
pub fn is_given(view: View<'_>) -> Result<bool> {
    Ok(view.r.get(&keys::meta_key(meta::SITE_GIVEN))?.is_some())
}

/// Whether this may become another namespace: it holds nothing, and no target has been told its uuid.
pub fn may_change(view: View<'_>) -> Result<bool> {
    Ok(!is_given(view)? && is_empty(view)?)
}

/// Sets the uuid. Another one than the present is refused once the namespace holds anything, or was given to a target.
pub fn set(tx: &mut Tx<'_>, site: &str) -> Result<()> {
    let present = get(tx.view())?;
    if present.as_deref() == Some(site) {
        return Ok(());
    }
    if let Some(present) = present.filter(|_| !may_change(tx.view()).unwrap_or(false)) {
        let why = format!(
            "it is namespace {present}, and not empty or that of targets; it cannot become namespace {site}"
        );
        return Err(CatalogError::refused("the catalogue", why));
    }
    Ok(tx.w.put(&keys::meta_key(meta::SITE), site.as_bytes())?)
}

/// Whether there is nothing but the root directory.
pub fn is_empty(view: View<'_>) -> Result<bool> {
    let found = super::class::inodes(view, Ino(0), 2)?;
    Ok(found.damaged.is_empty() && found.found.iter().all(|rec| rec.ino == Ino::ROOT))
}

/// What an index tells of the directory that `name` leads to.
pub fn dir_facts(view: View<'_>, parent: Ino, name: &[u8], now: Time) -> Result<Option<(Ino, DirFacts)>> {
    let found = names::find(view, parent, name)?.filter(|found| found.kind == FileKind::Directory);
    let Some(found) = found else { return Ok(None) };
    let facts = facts_of(view, found.ino, now)?;
    Ok(facts.map(|facts| (found.ino, facts)))
}

/// What an index tells of a directory.
pub fn facts_of(view: View<'_>, dir: Ino, now: Time) -> Result<Option<DirFacts>> {
    let Some(rec) = view.try_load(dir)? else { return Ok(None) };
    let class = view.class(rec.class)?.name.clone();
    let node = nodes::directory(view, &rec, now)?.map(Box::new);
    Ok(Some(DirFacts { mode: rec.mode, uid: rec.uid, gid: rec.gid, class, node }))
}

/// Gives new numbers to inodes, objects and versions only from here on: above all that this namespace can have given before
/// its catalogue was lost.
pub fn skip_numbers(tx: &mut Tx<'_>, now: Time) -> Result<()> {
    skip(tx, meta::NEXT_ID, now)?;
    let versions = now.secs.saturating_sub(FIRST_SECOND).clamp(1, i64::from(HIGHEST_VERSION.0));
    raise(tx, meta::LEAST_VERSION, versions)?;
    skip_objects(tx, now)
}

/// Tapes tell of this inode: nothing new gets its number, whatever the clock said when numbers were skipped. True if that had to
/// be seen to.
pub fn skip_inode(tx: &mut Tx<'_>, ino: Ino) -> Result<bool> {
    let next = store::counter(tx.w.get(&keys::meta_key(meta::NEXT_ID))?)?;
    let above = i64::try_from(ino.0).unwrap_or(0).saturating_add(1);
    if next < above {
        raise(tx, meta::NEXT_ID, above)?;
    }
    Ok(next < above)
}

/// Whether something can have this number.
pub fn is_ino(ino: Ino) -> bool {
    Ino(0) < ino && ino < HIGHEST_INO
}

/// The same for objects alone.
pub fn skip_objects(tx: &mut Tx<'_>, now: Time) -> Result<()> {
    skip(tx, meta::NEXT_OBJECT, now)
}

fn skip(tx: &mut Tx<'_>, counter: u8, now: Time) -> Result<()> {
    // Also of two that begin within the same second each has its own.
    let within = i64::from(now.nanos) * NUMBERS_PER_SECOND / 1_000_000_000;
    raise(tx, counter, now.secs.saturating_mul(NUMBERS_PER_SECOND).saturating_add(within))
}

fn raise(tx: &mut Tx<'_>, counter: u8, floor: i64) -> Result<()> {
    let key = keys::meta_key(counter);
    let next = store::counter(tx.w.get_for_update(&key)?)?;
    Ok(tx.w.put(&key, &next.max(floor).to_le_bytes())?)
}
