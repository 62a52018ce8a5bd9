//! Lists a directory in order of cookies: an entry keeps its cookie for as long as it has its name, and new ones come
//! behind all others, so a listing in several calls sees each lasting entry exactly once.

use super::lookup;
use crate::Result;
use crate::dirent::Dirent;
use crate::keys;
use crate::store::{self, View};
use std::ops::ControlFlow;
use types::*;

/// At most `limit` entries after `cookie`.
pub fn readdir(view: View<'_>, dir: Ino, cookie: u64, limit: usize) -> Result<Vec<DirEntry>> {
    view.load_dir(dir)?;
    let mut found = Vec::with_capacity(limit.min(4096));
    let Some(first) = cookie.checked_add(1) else { return Ok(found) };
    let to = keys::end(&keys::entry(dir, 0)[..9]);
    store::each(view.r, &keys::entry(dir, first), &to, |k, v| {
        if found.len() >= limit {
            return Ok(ControlFlow::Break(()));
        }
        let cookie = keys::number_at(k, 9).unwrap_or(0);
        let (e, name) = Dirent::from_entry(dir, cookie, v)?;
        found.push(DirEntry { name: name.to_vec(), ino: e.ino, kind: e.kind, cookie });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// The same with inodes, from one snapshot; a damaged inode does not keep out the others.
pub fn readdir_plus(
    view: View<'_>,
    dir: Ino,
    cookie: u64,
    limit: usize,
) -> Result<Vec<(DirEntry, Result<Inode>)>> {
    let entries = readdir(view, dir, cookie, limit)?;
    let with_inode = |e: DirEntry| {
        let named = Dirent { ino: e.ino, kind: e.kind, cookie: e.cookie };
        match lookup::target(view, dir, &named).and_then(|rec| view.inode(&rec)) {
            Err(error) if !error.is_damage() => Err(error),
            inode => Ok((e, inode)),
        }
    };
    entries.into_iter().map(with_inode).collect()
}
