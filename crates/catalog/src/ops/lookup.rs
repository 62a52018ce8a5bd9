//! Finds a name.

use super::names;
use crate::dirent::Dirent;
use crate::keys::{self, part};
use crate::rec::InodeRec;
use crate::store::View;
use crate::{CatalogError, Result};
use types::*;

/// The inode that `name` leads to.
pub fn lookup(view: View<'_>, dir: Ino, name: &[u8]) -> Result<InodeRec> {
    match name {
        b"." => return view.load_dir(dir),
        b".." => return view.load(view.load_dir(dir)?.link.0),
        _ if name.len() > 255 => return Err(FsError::NameTooLong.into()),
        _ => {}
    }
    match names::find(view, dir, name)? {
        Some(entry) => target(view, dir, &entry),
        None => Err(view.load_dir(dir).err().unwrap_or(CatalogError::Fs(FsError::NotFound))),
    }
}

/// The inode of an entry; it must be there.
pub fn target(view: View<'_>, dir: Ino, entry: &Dirent) -> Result<InodeRec> {
    view.try_load(entry.ino)?.ok_or_else(|| {
        CatalogError::corrupt("directory entry", dir, format!("names missing inode {}", entry.ino))
    })
}

/// Target of a symlink.
pub fn readlink(view: View<'_>, rec: &InodeRec) -> Result<Vec<u8>> {
    if rec.kind != FileKind::Symlink {
        return Err(FsError::Invalid.into());
    }
    view.r
        .get(&keys::inode(rec.ino, part::TARGET))?
        .ok_or_else(|| CatalogError::corrupt("symlink", rec.ino, "its target is missing"))
}

/// Owner of a disk object.
pub fn object_owner(view: View<'_>, object: ObjectId) -> Result<Option<Ino>> {
    let Some(value) = view.r.get(&keys::object(object))? else { return Ok(None) };
    let ino =
        keys::number_at(&value, 0).ok_or_else(|| CatalogError::corrupt("object", object, "bad owner"))?;
    Ok(Some(Ino(ino)))
}
