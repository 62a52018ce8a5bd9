//! Lists a directory in order of cookies: an entry keeps its cookie for as long as it has its name, and new ones come
//! behind all others, so a listing in several calls sees each lasting entry exactly once.

use super::lookup;
use crate::dirent::Dirent;
use crate::keys;
use crate::store::{self, View};
use crate::{Listed, Result};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use types::*;

/// At most `limit` entries after `cookie`; fewer only at the end. One that is damaged is listed as the table of names has it,
/// and left out if that does not have it; either way it is named.
pub fn readdir(view: View<'_>, dir: Ino, cookie: u64, limit: usize) -> Result<Listed<DirEntry>> {
    view.load_dir(dir)?;
    let mut listed = Listed { found: Vec::with_capacity(limit.min(4096)), damaged: Vec::new() };
    let mut next = cookie.checked_add(1);
    while let Some(first) = next.filter(|_| listed.found.len() < limit) {
        let (mut bad, room) = (BTreeMap::new(), limit - listed.found.len());
        let (mut seen, mut last) = (0, None);
        let to = keys::end(&keys::entry(dir, 0)[..9]);
        store::each_past_damage(view.r, &keys::entry(dir, first), &to, |k, v| {
            let cookie = keys::number_at(k, 9).unwrap_or(u64::MAX);
            match v.and_then(|v| Dirent::from_entry(dir, cookie, v).map(|(e, name)| (e, name.to_vec()))) {
                Ok((e, name)) => listed.found.push(DirEntry { name, ino: e.ino, kind: e.kind, cookie }),
                Err(e) => drop(bad.insert(cookie, e)),
            }
            (seen, last) = (seen + 1, Some(cookie));
            if seen < room { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if !bad.is_empty() {
            by_name(view, dir, |entry| {
                listed.found.extend(bad.contains_key(&entry.cookie).then_some(entry))
            })?;
            listed.found.sort_by_key(|entry| entry.cookie);
            listed.damaged.extend(bad.into_values().map(|e| (dir, e)));
        }
        next = last.filter(|_| seen == room).and_then(|last: u64| last.checked_add(1));
    }
    Ok(listed)
}

/// All entries that the table of names has, in no order that a listing could have.
fn by_name(view: View<'_>, dir: Ino, mut found: impl FnMut(DirEntry)) -> Result<()> {
    let prefix = keys::names(dir);
    store::each_past_damage(view.r, &prefix, &keys::end(&prefix), |k, v| {
        // Whoever looks up a name that is damaged here is told so.
        if let Ok(e) = v.and_then(|v| Dirent::from_name(dir, v)) {
            let name = k.get(prefix.len()..).unwrap_or_default().to_vec();
            found(DirEntry { name, ino: e.ino, kind: e.kind, cookie: e.cookie });
        }
        ControlFlow::Continue(())
    })
}

/// The same with inodes, from one snapshot; a damaged inode does not keep out the others.
pub fn readdir_plus(
    view: View<'_>,
    dir: Ino,
    cookie: u64,
    limit: usize,
) -> Result<Listed<(DirEntry, Result<Inode>)>> {
    let Listed { found, damaged } = readdir(view, dir, cookie, limit)?;
    let with_inode = |e: DirEntry| {
        let named = Dirent { ino: e.ino, kind: e.kind, cookie: e.cookie };
        match lookup::target(view, dir, &named).and_then(|rec| view.inode(&rec)) {
            Err(error) if !error.is_damage() => Err(error),
            inode => Ok((e, inode)),
        }
    };
    Ok(Listed { found: found.into_iter().map(with_inode).collect::<Result<_>>()?, damaged })
}
