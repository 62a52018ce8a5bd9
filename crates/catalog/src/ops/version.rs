//! Versions that ended, and the tape records that die with them.

use super::{path, tape_tree};
use crate::keys::{self, meta};
use crate::rec::{self, FileRec, InodeRec, KnownVersion};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use format::record;
use std::ops::ControlFlow;
use types::*;

/// The present version of this inode ends: nothing to do unless something of it is on tape. Then its bytes there are
/// dead, but the version stays known until its volumes are labelled anew. Works on the records beside the inode's; the
/// caller replaces that. `now`: other content takes its place at this moment; None: its removal is noted already, or nobody
/// knows when and why.
pub fn end(tx: &mut Tx<'_>, rec: &InodeRec, now: Option<Time>) -> Result<()> {
    let Some(f) = rec.file.as_ref().filter(|f| f.known) else { return Ok(()) };
    let noted = ended(tx.view(), rec.ino, f.version)?;
    if noted.is_none() {
        let path = path::path_of(tx.view(), rec.ino).unwrap_or_default();
        let known = KnownVersion { path, ended: now, replaced: now.is_some(), ..plain(rec, f) };
        note(tx, (rec.ino, f.version), &known)?;
    }
    for copy in copies(tx.view(), rec.ino, f.version)? {
        for segment in &copy.segments {
            tape_tree::kill(tx, rec.ino, f.version, segment)?;
        }
    }
    Ok(())
}

/// Notes what a version that lost its last name was called, if something of it is on tape.
pub fn note_removed(tx: &mut Tx<'_>, rec: &InodeRec, path: Vec<u8>, now: Time) -> Result<()> {
    let Some(f) = rec.file.as_ref().filter(|f| f.known) else { return Ok(()) };
    note(tx, (rec.ino, f.version), &KnownVersion { path, ended: Some(now), ..plain(rec, f) })
}

fn plain(rec: &InodeRec, f: &FileRec) -> KnownVersion {
    KnownVersion::new(rec.data_size(), rec.mtime, f.digest)
}

fn note(tx: &mut Tx<'_>, (ino, version): (Ino, Version), known: &KnownVersion) -> Result<()> {
    Ok(tx.w.put(&keys::version(ino, version), &record::encode(known))?)
}

/// The version that follows this one. Of a catalogue that was lost once it is higher than any that tapes can have, also those that
/// nobody has read yet: what is done now is later than what they tell.
pub fn after(tx: &Tx<'_>, version: Version) -> Result<Version> {
    let least = store::counter(tx.w.get(&keys::meta_key(meta::LEAST_VERSION))?)?;
    let next = version.0.checked_add(1);
    let next =
        next.ok_or_else(|| CatalogError::corrupt("version", version, "no number is left behind it"))?;
    Ok(Version(next.max(u32::try_from(least).unwrap_or(0))))
}

/// Copies of one version in order of their numbers.
pub fn copies(view: View<'_>, ino: Ino, version: Version) -> Result<Vec<CopyRecord>> {
    let mut values = Vec::new();
    let prefix = keys::version(ino, version);
    view.r.scan(&keys::after(&prefix), &keys::end(&prefix), &mut |k, v| {
        values.push((k[prefix.len()..].to_vec(), v.to_vec()));
        ControlFlow::Continue(())
    })?;
    values.iter().map(|(number, value)| decode_copy(ino, version, number, value)).collect()
}

/// A copy that has the number of its key, and one that a copy can have.
fn decode_copy(ino: Ino, version: Version, number: &[u8], value: &[u8]) -> Result<CopyRecord> {
    let id = || format!("{ino} version {version}");
    let found: CopyRecord = rec::decode("copy", id(), value)?;
    if number != [found.copy.0] || !(1..=rec::MAX_COPIES).contains(&found.copy.0) {
        let why = format!("it says that it is copy {}, its key says {number:?}", found.copy);
        return Err(crate::CatalogError::corrupt("copy", id(), why));
    }
    Ok(found)
}

/// One copy of one version, for a change.
pub fn copy(tx: &mut Tx<'_>, ino: Ino, version: Version, copy: CopyNo) -> Result<Option<CopyRecord>> {
    let value = tx.w.get_for_update(&keys::copy(ino, version, copy))?;
    value.map(|v| decode_copy(ino, version, &[copy.0], &v)).transpose()
}

/// Writes one copy; removes it when it has no segment left.
pub fn put_copy(tx: &mut Tx<'_>, ino: Ino, version: Version, copy: &CopyRecord) -> Result<()> {
    let key = keys::copy(ino, version, copy.copy);
    if copy.segments.is_empty() {
        Ok(tx.w.delete(&key)?)
    } else {
        Ok(tx.w.put(&key, &record::encode(copy))?)
    }
}

/// An ended version, if it is known.
pub fn ended(view: View<'_>, ino: Ino, version: Version) -> Result<Option<KnownVersion>> {
    let value = view.r.get(&keys::version(ino, version))?;
    value.map(|v| rec::decode("version", format!("{ino} version {version}"), &v)).transpose()
}

/// All versions, newest first.
pub fn versions(view: View<'_>, ino: Ino) -> Result<Vec<VersionRecord>> {
    let mut found = Vec::new();
    if let Some((rec, f)) = view.trace(ino)?.and_then(|r| r.file.clone().map(|f| (r, f))) {
        found.push(VersionRecord {
            version: f.version,
            size: rec.data_size(),
            mtime: rec.mtime,
            digest: f.digest,
            copies: if f.known { copies(view, ino, f.version)? } else { Vec::new() },
            current: true,
        });
    }
    let current = found.first().map(|v| v.version);
    // One that lost its last name while it is open is noted already.
    for (version, known) in all_ended(view, ino)?.into_iter().filter(|(v, _)| Some(*v) != current) {
        found.push(VersionRecord {
            version,
            size: known.size,
            mtime: known.mtime,
            digest: known.digest,
            copies: copies(view, ino, version)?,
            current: false,
        });
    }
    Ok(found)
}

/// Those that ended, newest first.
fn all_ended(view: View<'_>, ino: Ino) -> Result<Vec<(Version, KnownVersion)>> {
    let prefix = keys::versions(ino);
    let mut found = Vec::new();
    store::each(view.r, &prefix, &keys::end(&prefix), |k, v| {
        if let Ok(number) = <[u8; 4]>::try_from(&k[9..]) {
            found.push((Version(u32::from_be_bytes(number)), rec::decode("version", ino, v)?));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    found.reverse();
    Ok(found)
}

/// Whether a later version of this inode ended, too: then this one was overwritten, also if nobody noted that.
pub fn later_ended(view: View<'_>, ino: Ino, version: Version) -> Result<bool> {
    let from = keys::end(&keys::version(ino, version));
    let mut found = false;
    view.r.scan(&from, &keys::end(&keys::versions(ino)), &mut |k, _| {
        found = k.len() == keys::version(ino, version).len();
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// Whether tapes tell of a version of this inode that ended.
pub fn any_ended(view: View<'_>, ino: Ino) -> Result<bool> {
    let prefix = keys::versions(ino);
    let mut found = false;
    view.r.scan(&prefix, &keys::end(&prefix), &mut |k, _| {
        // Longer keys are of copies, the present version's too.
        found = k.len() == keys::version(ino, Version(0)).len();
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// A segment of an ended version is gone from its volume: forgets it, and the version with its last one.
pub fn forget_segment(
    tx: &mut Tx<'_>,
    file: &TapeFile,
    barcode: &Barcode,
    place: (TapeDir, &str),
) -> Result<()> {
    for mut copy in copies(tx.view(), file.ino, file.version)? {
        let before = copy.segments.len();
        copy.segments
            .retain(|s| (&s.volume, s.tape_dir, s.tape_name.as_str()) != (barcode, place.0, place.1));
        if copy.segments.len() != before {
            put_copy(tx, file.ino, file.version, &copy)?;
        }
    }
    super::nodes::lapse(tx, file, file.written)?;
    if copies(tx.view(), file.ino, file.version)?.is_empty() {
        tx.w.delete(&keys::version(file.ino, file.version))?;
        super::parts::forget(tx, file.ino, file.version)?;
        super::nodes::forget(tx, file.ino)?;
    }
    Ok(())
}

/// Refuses a number that cannot be a copy's.
pub fn check_copy(copy: CopyNo) -> Result<()> {
    if (1..=rec::MAX_COPIES).contains(&copy.0) {
        return Ok(());
    }
    Err(CatalogError::refused(
        format!("copy {copy}"),
        format!("copies are numbered 1 to {}", rec::MAX_COPIES),
    ))
}
