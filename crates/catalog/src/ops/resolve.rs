//! Walks a path.

use super::{junction, lookup};
use crate::perm::{self, X};
use crate::rec::InodeRec;
use crate::store::View;
use crate::{CatalogError, Result};
use std::collections::VecDeque;
use types::*;

/// Symlinks followed before giving up, as Linux does.
const MAX_LINKS: u32 = 40;

/// The inode at an absolute path.
pub fn resolve(view: View<'_>, cx: &Cx, path: &[u8], follow_last: bool) -> Result<InodeRec> {
    if path.is_empty() {
        return Err(FsError::NotFound.into());
    }
    if path[0] != b'/' {
        return Err(FsError::Invalid.into());
    }
    let mut rest: VecDeque<Vec<u8>> = split(path).collect();
    let must_be_dir = path.ends_with(b"/") || path.ends_with(b"/.");
    let mut at = view.load(Ino::ROOT)?;
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if !at.is_dir() {
            return Err(FsError::NotADirectory.into());
        }
        perm::check_rec(cx, &at, X)?;
        let next = match lookup::lookup(view, at.ino, &name) {
            Err(CatalogError::Fs(FsError::NotFound)) => return Err(absent(view, at.ino)?),
            found => found?,
        };
        let last = rest.is_empty();
        if next.kind != FileKind::Symlink || (last && !follow_last && !must_be_dir) {
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(FsError::Loop.into());
        }
        let target = lookup::readlink(view, &next)?;
        if target.starts_with(b"/") {
            at = view.load(Ino::ROOT)?;
        }
        split(&target).rev().for_each(|part| rest.push_front(part));
    }
    if must_be_dir && !at.is_dir() { Err(FsError::NotADirectory.into()) } else { Ok(at) }
}

/// Why nothing of a name is in a directory.
fn absent(view: View<'_>, dir: Ino) -> Result<CatalogError> {
    Ok(junction::why_absent(view, dir)?.unwrap_or(FsError::NotFound.into()))
}

fn split(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|b| *b == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec)
}

/// Parent of a directory.
pub fn parent(view: View<'_>, dir: Ino) -> Result<Ino> {
    Ok(view.load_dir(dir)?.link.0)
}
