//! A file gets its content back on disk, or gives it up; and when it was used last.

use super::{layouts, version, volume};
use crate::classes;
use crate::keys;
use crate::rec::InodeRec;
use crate::store::{Tx, View};
use crate::{CatalogError, Result};
use types::*;

/// Seconds between two moves of a file in the purge order.
const COARSE: i64 = 60;
/// Seconds after which an access is noted although nothing changed (relatime).
const DAY: i64 = 86_400;

/// See [`Catalog::set_resident`](crate::Catalog::set_resident).
pub fn set_resident(
    tx: &mut Tx<'_>,
    ino: Ino,
    version: Version,
    object: ObjectId,
    stamp: &ObjectStamp,
    now: Time,
) -> Result<bool> {
    let Some(old) = tx.try_load(ino)? else { return Ok(false) };
    let mut rec = old.clone();
    let Some(f) = &mut rec.file else { return Ok(false) };
    if f.version != version || f.object.is_some() || f.copies == 0 {
        return Ok(false);
    }
    if stamp.size != rec.size {
        let why = format!(
            "object {object} has {} bytes, version {version} has {}; remove the object",
            stamp.size, rec.size
        );
        return Err(CatalogError::refused(format!("inode {ino}"), why));
    }
    f.object = Some(object);
    f.far = layouts::belongs(tx, ino, object)?;
    f.stamp = Some(*stamp);
    f.used = f.used.max(now.secs);
    let class = tx.class(rec.class)?;
    rec.settle(&class, now);
    tx.replace(Some(&old), Some(&rec))?;
    Ok(true)
}

/// See [`Catalog::release_object`](crate::Catalog::release_object).
pub fn release_object(
    tx: &mut Tx<'_>,
    ino: Ino,
    version: Version,
    object: ObjectId,
    expect: &ObjectStamp,
) -> Result<()> {
    let old = tx.load_file(ino)?;
    let class = tx.class(old.class)?;
    let mut rec = old.clone();
    let Some(f) = &mut rec.file else { return Err(FsError::Invalid.into()) };
    let missing = f.missing(&class).count();
    let rules = classes::require(&*tx.w, &class.name)?;
    let why = if f.version != version || f.object != Some(object) {
        "it has other content by now".to_owned()
    } else if !f.sealed || !f.stamp.is_some_and(|s| s.same_content(expect)) {
        "its content changed since it was closed; migrate it again".to_owned()
    } else if rules != old.class {
        format!("class {} was changed and the change has not reached it yet; try again later", class.name)
    } else if class.copies.is_empty() {
        format!("class {} makes no copies on tape", class.name)
    } else if missing > 0 {
        format!("{missing} of {} copies are not yet on tape; migrate it first", class.copies.len())
    } else if f.pinned {
        "it is pinned; unpin it first".to_owned()
    } else if class.keep_on_disk {
        format!("class {} keeps its files on disk", class.name)
    } else if let Some(volume) = on_broken_volume(tx.view(), ino, version)? {
        format!("a copy of it lies on volume {volume}, which is broken, and is made anew first")
    } else {
        if f.far {
            layouts::keep(tx, ino, object)?;
        }
        (f.object, f.stamp, f.far) = (None, None, false);
        return tx.replace(Some(&old), Some(&rec));
    };
    Err(CatalogError::refused(format!("inode {ino}"), why))
}

/// A volume that was declared broken and holds some of a copy that still counts: nobody has gone through it yet.
fn on_broken_volume(view: View<'_>, ino: Ino, version: Version) -> Result<Option<Barcode>> {
    for segment in version::copies(view, ino, version)?.into_iter().flat_map(|copy| copy.segments) {
        let found = volume::load(view.r, &segment.volume)?;
        if found.is_some_and(|rec| rec.volume.state == VolumeState::Broken) {
            return Ok(Some(segment.volume));
        }
    }
    Ok(None)
}

/// See [`Catalog::lose_object`](crate::Catalog::lose_object).
pub fn lose_object(tx: &mut Tx<'_>, ino: Ino, object: ObjectId, now: Time) -> Result<Version> {
    let old = tx.load_file(ino)?;
    let class = tx.class(old.class)?;
    let written = tx.w.get(&keys::writing(ino))?.is_some();
    let mut rec = old.clone();
    let Some(f) = &mut rec.file else { return Err(FsError::Invalid.into()) };
    let why = if f.object != Some(object) {
        "it has other content by now"
    } else if !f.sealed || written {
        "it was being written, so that its copies on tape may be older"
    } else if f.copies == 0 {
        "there is no copy on tape"
    } else {
        let version = f.version;
        (f.object, f.stamp, f.far) = (None, None, false);
        rec.settle(&class, now);
        tx.replace(Some(&old), Some(&rec))?;
        return Ok(version);
    };
    Err(CatalogError::refused(format!("inode {ino}"), why))
}

/// Whether an access at `now` changes anything in the record.
pub fn touches(view: View<'_>, ino: Ino, now: Time) -> Result<bool> {
    let rec = view.load(ino)?;
    Ok(touched(&rec, now) != rec)
}

/// Notes an access.
pub fn touch_access(tx: &mut Tx<'_>, ino: Ino, now: Time) -> Result<()> {
    let old = tx.load(ino)?;
    tx.replace(Some(&old), Some(&touched(&old, now)))
}

fn touched(rec: &InodeRec, now: Time) -> InodeRec {
    let mut rec = rec.clone();
    if rec.atime <= rec.mtime || rec.atime <= rec.ctime || now.secs.saturating_sub(rec.atime.secs) >= DAY {
        rec.atime = rec.atime.max(now);
    }
    if let Some(f) = &mut rec.file
        && now.secs.saturating_sub(f.used) >= COARSE
    {
        f.used = now.secs;
    }
    rec
}
