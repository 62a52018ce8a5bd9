//! Versions that were deleted or overwritten and are still on tape: listed, and made files again.

use super::create::check_new;
use super::record_copies::covers;
use super::{adopt, names, nodes, parts, path, set_class, tape_tree, version, volume};
use crate::classes;
use crate::dirent::Dirent;
use crate::keys;
use crate::rec::{self, FileRec, InodeRec, KnownVersion};
use crate::store::{Tx, View};
use crate::{CatalogError, EndedVersion, EndedVersions, Result};
use kv::Reader;
use std::ops::ControlFlow;
use types::*;

/// Keys of the table of versions looked at in one transaction.
const LOOK_AT: usize = 20_000;

/// See [`Catalog::ended_versions`](crate::Catalog::ended_versions).
pub fn list(
    view: View<'_>,
    below: &[u8],
    after: Option<(Ino, Version)>,
    limit: usize,
) -> Result<EndedVersions> {
    let from = after.map_or_else(|| vec![keys::VERSION], |(ino, v)| keys::end(&keys::version(ino, v)));
    let (mut heads, mut looked, mut next) = (Vec::new(), 0, None);
    view.r.scan(&from, &[keys::VERSION + 1], &mut |k, v| {
        let at = (Ino(keys::number_at(k, 1).unwrap_or(0)), number(k));
        if looked >= LOOK_AT || heads.len() >= limit {
            return ControlFlow::Break(());
        }
        looked += 1;
        next = Some(at);
        if k.len() == keys::version(at.0, at.1).len() {
            heads.push((at, v.to_vec()));
        }
        ControlFlow::Continue(())
    })?;
    let mut found = Vec::new();
    for ((ino, number), value) in heads {
        let known: KnownVersion = rec::decode("version", format!("{ino} version {number}"), &value)?;
        if let Some(one) = ended(view, ino, number, known)?.filter(|one| lies_below(&one.path, below)) {
            found.push(one);
        }
    }
    Ok(EndedVersions { found, next })
}

fn number(key: &[u8]) -> Version {
    Version(key.get(9..13).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes))
}

fn lies_below(path: &[u8], below: &[u8]) -> bool {
    let rest = path.strip_prefix(below.strip_suffix(b"/").unwrap_or(below));
    rest.is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

/// What can be said of an ended version; None if it has not ended: the file is open without a name.
fn ended(view: View<'_>, ino: Ino, version: Version, known: KnownVersion) -> Result<Option<EndedVersion>> {
    let present = view.try_load(ino)?.and_then(|r| r.file.map(|f| f.version));
    if present == Some(version) {
        return Ok(None);
    }
    let copies = version::copies(view, ino, version)?;
    let Some(segment) = copies.iter().flat_map(|c| &c.segments).next() else { return Ok(None) };
    let Some(file) = tape_tree::find(view, segment)?.filter(|file| file.has_data()) else { return Ok(None) };
    let mut restorable = false;
    for copy in &copies {
        restorable |= usable(view.r, copy, known.size)?;
    }
    let overwritten = known.replaced || present.is_some() || version::later_ended(view, ino, version)?;
    let path = if known.path.is_empty() { file.path.clone() } else { known.path };
    Ok(Some(EndedVersion {
        ino,
        version,
        path,
        size: known.size,
        mtime: known.mtime,
        digest: known.digest,
        ended: known.ended,
        owner: file.uid_owner,
        overwritten,
        copies,
        restorable,
    }))
}

/// See [`Catalog::ended_owner`](crate::Catalog::ended_owner).
pub fn owner(view: View<'_>, ino: Ino, number: Version) -> Result<Option<u32>> {
    let Some(known) = version::ended(view, ino, number)? else { return Ok(None) };
    Ok(ended(view, ino, number, known)?.map(|one| one.owner))
}

/// Whether a copy is whole and every volume of it may be read again.
fn usable(r: &dyn Reader, copy: &CopyRecord, size: u64) -> Result<bool> {
    Ok(unusable(r, copy, size)?.is_none())
}

/// Why nothing can be restored from a copy, and what to do; None: it serves.
fn unusable(r: &dyn Reader, copy: &CopyRecord, size: u64) -> Result<Option<String>> {
    if !covers(&copy.segments, size) {
        return Ok(Some(format!("copy {} is not whole", copy.copy)));
    }
    for segment in &copy.segments {
        use VolumeState as S;
        let (barcode, copy) = (&segment.volume, copy.copy);
        let Some(state) = volume::load(r, barcode)?.map(|v| v.volume.state) else {
            return Ok(Some(format!("copy {copy} is on volume {barcode}, which is not known")));
        };
        // Whoever is about to write a new label has seen that nothing on the volume is needed.
        let goes = r.get(&keys::volume(keys::vol::INTENDED, barcode))?.is_some();
        let back =
            format!("`thermo volume state {barcode} read-only` has it read again, if the cartridge can be");
        let why = match state {
            _ if goes => "which is being labelled anew".to_owned(),
            S::Filling | S::Full | S::ReadOnly | S::Suspect | S::Unverified | S::Exported => continue,
            S::Retired | S::Broken => format!("which is {state}: {back}"),
            S::Repacking => "which is being emptied: `thermo request cancel` the repack first".to_owned(),
            _ => format!("which is {state}"),
        };
        return Ok(Some(format!("copy {copy} is on volume {barcode}, {why}")));
    }
    Ok(None)
}

/// See [`Catalog::undelete`](crate::Catalog::undelete).
pub fn undelete(
    tx: &mut Tx<'_>,
    cx: &Cx,
    from: (Ino, Version),
    to: (Ino, &[u8]),
    fresh: Ino,
) -> Result<Inode> {
    let what = || format!("version {} of inode {}", from.1, from.0);
    let known =
        version::ended(tx.view(), from.0, from.1)?.ok_or_else(|| CatalogError::missing("ended", what()))?;
    let seen = ended(tx.view(), from.0, from.1, known.clone())?;
    let seen = seen.ok_or_else(|| CatalogError::refused(what(), "somebody still has it open"))?;
    let parent = check_new(tx.view(), cx, to.0, to.1)?;
    let (mut copies, mut not) = (Vec::new(), Vec::new());
    for copy in &seen.copies {
        match unusable(&*tx.w, copy, known.size)? {
            None => copies.push(copy.clone()),
            Some(why) => not.push(why),
        }
    }
    let Some(first) = copies.first().and_then(|c| c.segments.first()) else {
        return Err(CatalogError::refused(what(), format!("it cannot be restored: {}", not.join("; "))));
    };
    let file = tape_tree::find(tx.view(), first)?;
    let file = file.ok_or_else(|| CatalogError::missing("segment on tape of", what()))?;
    let class = classes::current(&*tx.w, &file.class)?.unwrap_or(parent.class);
    let at = path::below(tx.view(), to.0, to.1)?;
    let mut state = FileRec {
        version: Version(1),
        sealed: true,
        known: true,
        digest: known.digest,
        used: cx.now.secs,
        ..FileRec::default()
    };
    for copy in &copies {
        tx.w.delete(&keys::copy(from.0, from.1, copy.copy))?;
        version::put_copy(tx, fresh, state.version, copy)?;
        state.copies |= 1 << (copy.copy.0 - 1);
        for segment in &copy.segments {
            tape_tree::revive(tx, from, segment, (fresh, state.version), &at)?;
        }
    }
    parts::inherit(tx, from, (fresh, state.version))?;
    if version::copies(tx.view(), from.0, from.1)?.is_empty() {
        tx.w.delete(&keys::version(from.0, from.1))?;
        parts::forget(tx, from.0, from.1)?;
        nodes::forget(tx, from.0)?;
    }
    let class_rec = tx.class(class)?;
    set_class::renumber(tx, fresh, &mut state, &class_rec)?;
    state.mend = true;
    let rec = InodeRec {
        size: known.size,
        mtime: known.mtime,
        ctime: cx.now,
        ..record(&file, fresh, class, state)
    };
    let rec = InodeRec { link: (to.0, fresh.0), ..rec };
    let mut rec = adopt::put_xattrs(tx, rec, &file.xattrs)?;
    rec.settle(&class_rec, cx.now);
    names::put(tx, to.0, to.1, &Dirent { ino: fresh, kind: FileKind::File, cookie: fresh.0 })?;
    tx.replace(None, Some(&rec))?;
    names::changed(tx, to.0, cx.now, 1, 0)?;
    tx.inode(&rec)
}

/// A file as it went to tape, without a name.
fn record(file: &TapeFile, ino: Ino, class: u32, state: FileRec) -> InodeRec {
    InodeRec {
        ino,
        kind: FileKind::File,
        mode: file.mode & 0o7777,
        nlink: 1,
        uid: file.uid_owner,
        gid: file.gid_owner,
        rdev: 0,
        class,
        size: file.file_size,
        atime: file.times[0],
        mtime: file.times[1],
        ctime: file.times[2],
        btime: file.times[3],
        link: (Ino::ROOT, ino.0),
        xattrs: 0,
        file: Some(state),
    }
}
