//! Where an inode is named.

use crate::dirent::Dirent;
use crate::keys;
use crate::rec::InodeRec;
use crate::store::View;
use crate::{CatalogError, Result};
use types::*;

/// Name of an inode in the directory that its record points to.
pub fn name_of(view: View<'_>, rec: &InodeRec) -> Result<Vec<u8>> {
    name_at(view, rec.ino, rec.link)
}

/// Name of an inode at one of its places.
pub fn name_at(view: View<'_>, ino: Ino, (dir, cookie): (Ino, u64)) -> Result<Vec<u8>> {
    let value = view.r.get(&keys::entry(dir, cookie))?;
    let value = value
        .ok_or_else(|| CatalogError::corrupt("inode", ino, format!("not named in {dir} at {cookie}")))?;
    let (_, name) = Dirent::from_entry(dir, cookie, &value)?;
    Ok(name.to_vec())
}

/// Path of what has this name in a directory.
pub fn below(view: View<'_>, dir: Ino, name: &[u8]) -> Result<Vec<u8>> {
    let mut path = path_of(view, dir)?;
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Ok(path)
}

/// One absolute path of an inode (the first of several hard links); `NotFound` if nothing names it.
pub fn path_of(view: View<'_>, ino: Ino) -> Result<Vec<u8>> {
    let mut rec = view.load(ino)?;
    if ino == Ino::ROOT {
        return Ok(b"/".to_vec());
    }
    if !rec.is_dir() && rec.nlink == 0 {
        return Err(FsError::NotFound.into());
    }
    let mut names = vec![name_of(view, &rec)?];
    while rec.link.0 != Ino::ROOT {
        let dir = rec.link.0;
        rec = view.try_load(dir)?.ok_or_else(|| {
            CatalogError::corrupt("inode", rec.ino, format!("its directory {dir} is missing"))
        })?;
        names.push(name_of(view, &rec)?);
    }
    Ok(names.iter().rev().fold(Vec::new(), |mut path, name| {
        path.push(b'/');
        path.extend_from_slice(name);
        path
    }))
}
