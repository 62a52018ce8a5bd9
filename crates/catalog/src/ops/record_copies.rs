//! Records what lies flushed on tape. The one operation that makes copies count.

use super::tape_tree::Planter;
use super::{nodes, path, tape_tree, version, volume, words, xattr};
use crate::keys;
use crate::rec::{InodeRec, KnownVersion};
use crate::store::{self, Tx, View};
use crate::{CatalogError, NewSegment, RecordOutcome, Result, VolumeAppend};
use format::record;
use types::*;

/// What a segment is to the catalogue now.
enum Standing {
    /// Part of a copy that is wanted.
    Wanted(Box<InodeRec>),
    /// Bytes of a version that was real but is not wanted (any more): recorded as dead.
    Dead { rec: Option<Box<InodeRec>>, ended: bool, why: String },
    /// Not what it claims to be: not recorded.
    Unfit(String),
}

/// See [`Catalog::record_copies`](crate::Catalog::record_copies).
pub fn record_copies(
    tx: &mut Tx<'_>,
    append: &VolumeAppend,
    segments: &[NewSegment],
) -> Result<Vec<RecordOutcome>> {
    let mut volume = volume::load_for_update(tx, &append.volume)?;
    let v = &mut volume.volume;
    if append.append_block < v.append_block || append.next_uid < v.next_uid {
        let why = format!(
            "an append ended at block {} (next uid {}), but block {} (uid {}) is recorded already; check the volume",
            append.append_block, append.next_uid, v.append_block, v.next_uid
        );
        return Err(CatalogError::refused(format!("volume {}", append.volume), why));
    }
    (v.append_block, v.next_uid, v.vcr) = (append.append_block, append.next_uid, append.vcr);
    v.generation = append.section.unwrap_or(v.generation);
    if !segments.is_empty() {
        // Empty files move nothing, but the newest index does not list them.
        v.indexed_to = v.indexed_to.min(append.append_block.saturating_sub(1));
    }
    v.last_written = Some(append.now);
    let pool = v.pool.clone();
    let gone = match v.state {
        VolumeState::Retired => Some("retired"),
        VolumeState::Broken => Some("declared broken"),
        _ => None,
    };
    let mut planter = Planter::new(&mut volume, append.now);
    let outcomes = segments
        .iter()
        .map(|segment| match standing(tx, segment, pool.as_ref())? {
            Standing::Wanted(rec) if gone.is_some() => {
                bury(tx, &mut planter, append.now, segment, Some(&rec), false)?;
                let how = gone.unwrap_or_default();
                Ok(RecordOutcome::Stale { why: format!("the volume was {how} meanwhile") })
            }
            Standing::Wanted(rec) => count(tx, &mut planter, append.now, segment, *rec),
            Standing::Dead { rec, ended, why } => {
                bury(tx, &mut planter, append.now, segment, rec.as_deref(), ended)?;
                Ok(RecordOutcome::Stale { why })
            }
            Standing::Unfit(why) => Ok(RecordOutcome::Stale { why }),
        })
        .collect::<Result<Vec<_>>>()?;
    volume::store(tx, &volume)?;
    Ok(outcomes)
}

fn standing(tx: &mut Tx<'_>, s: &NewSegment, pool: Option<&PoolName>) -> Result<Standing> {
    version::check_copy(s.copy)?;
    let Some(rec) = tx.trace(s.ino)? else {
        return Ok(Standing::Dead { rec: None, ended: true, why: "the file was deleted".into() });
    };
    let Some(f) = &rec.file else {
        return Ok(Standing::Unfit("it has no version that could be on tape".into()));
    };
    let dead = |ended, why: String| Standing::Dead { rec: Some(Box::new(rec.clone())), ended, why };
    if s.version > f.version {
        return Ok(Standing::Unfit(format!("version {} does not exist yet", s.version)));
    }
    if s.version < f.version {
        return Ok(dead(true, format!("version {} was overwritten by version {}", s.version, f.version)));
    }
    if !f.sealed {
        return Ok(Standing::Unfit("the file is being written".into()));
    }
    if s.size != rec.data_size() || s.file_offset.checked_add(s.length).is_none_or(|end| end > s.size) {
        return Ok(Standing::Unfit(format!(
            "it covers other bytes than the {} of the file",
            rec.data_size()
        )));
    }
    if f.digest.zip(s.digest).is_some_and(|(a, b)| a != b) {
        return Ok(Standing::Unfit("its digest differs from the one recorded for this version".into()));
    }
    if rec.nlink == 0 && !rec.is_trace() {
        return Ok(dead(false, "the file was deleted".into()));
    }
    if f.has_copy(s.copy.0) {
        if moves(tx, s, pool)? {
            return Ok(Standing::Wanted(Box::new(rec)));
        }
        return Ok(dead(false, format!("copy {} is recorded already", s.copy)));
    }
    let class = tx.class(rec.class)?;
    if pool.is_none() || class.copies.get(usize::from(s.copy.0) - 1) != pool {
        return Ok(dead(false, format!("class {} wants no copy {} in this pool", class.name, s.copy)));
    }
    Ok(Standing::Wanted(Box::new(rec)))
}

/// Whether exactly this part of the copy lies on a volume of the same pool that is being repacked: then this one takes its
/// place, and the copy counts before and after.
fn moves(tx: &mut Tx<'_>, s: &NewSegment, pool: Option<&PoolName>) -> Result<bool> {
    let Some(copy) = version::copy(tx, s.ino, s.version, s.copy)? else { return Ok(false) };
    let part = |have: &&Segment| (have.file_offset, have.length) == (s.file_offset, s.length);
    let Some(old) = copy.segments.iter().find(part) else { return Ok(false) };
    let from = volume::load(&*tx.w, &old.volume)?.map(|v| v.volume);
    Ok(from.is_some_and(|v| v.state == VolumeState::Repacking && v.pool.as_ref() == pool))
}

/// Enters a wanted segment; with the last one the copy counts.
fn count(
    tx: &mut Tx<'_>,
    planter: &mut Planter<'_>,
    now: Time,
    s: &NewSegment,
    old: InodeRec,
) -> Result<RecordOutcome> {
    // What says that a node is gone keeps no volume from being emptied: it can be written again at any time.
    let file = tape_file(tx.view(), s, Some(&old), now, !old.is_gone())?;
    let segment = planter.plant(tx, file)?;
    let fresh = || CopyRecord { copy: s.copy, segments: Vec::new(), recorded: now };
    let mut copy = version::copy(tx, s.ino, s.version, s.copy)?.unwrap_or_else(fresh);
    let counts = old.file.as_ref().is_some_and(|f| f.has_copy(s.copy.0));
    // Of a copy that was lost nothing is part of the new one.
    let lost = !counts && covers(&copy.segments, old.data_size());
    let replaced = |have: &Segment| lost || overlap(have, &segment);
    let (over, kept) = copy.segments.into_iter().partition::<Vec<_>, _>(replaced);
    for had in &over {
        tape_tree::kill(tx, s.ino, s.version, had)?;
    }
    copy.segments = kept;
    copy.segments.push(segment);
    copy.segments.sort_by_key(|part| part.file_offset);
    copy.recorded = now;
    version::put_copy(tx, s.ino, s.version, &copy)?;
    let whole = covers(&copy.segments, old.data_size());
    let class = tx.class(old.class)?;
    let mut rec = old.clone();
    if let Some(f) = &mut rec.file {
        f.known = true;
        f.digest = f.digest.or(s.digest);
        if whole {
            f.copies |= 1 << (s.copy.0 - 1);
        }
    }
    rec.settle(&class, now);
    tx.replace(Some(&old), Some(&rec))?;
    // What was told on tape with the data may have changed before it was recorded.
    if let Some(told) = s.told.as_ref().filter(|_| rec.has_data())
        && (told.times[2], &told.class) != (rec.ctime, &class.name)
    {
        words::changed(tx, &rec, now)?;
    }
    Ok(if whole { RecordOutcome::Counted } else { RecordOutcome::Partial })
}

/// Enters a dead segment, and (`ended`) its version among those known.
fn bury(
    tx: &mut Tx<'_>,
    planter: &mut Planter<'_>,
    now: Time,
    s: &NewSegment,
    rec: Option<&InodeRec>,
    ended: bool,
) -> Result<()> {
    let file = tape_file(tx.view(), s, rec, now, false)?;
    let mtime = file.times[1];
    let segment = planter.plant(tx, file)?;
    if !ended {
        return Ok(());
    }
    let known = version::ended(tx.view(), s.ino, s.version)?;
    let mut known = known.unwrap_or_else(|| KnownVersion::new(s.size, mtime, None));
    if known.size != s.size || known.digest.zip(s.digest).is_some_and(|(a, b)| a != b) {
        return Ok(());
    }
    known.digest = known.digest.or(s.digest);
    let fresh = || CopyRecord { copy: s.copy, segments: Vec::new(), recorded: now };
    let mut copy = version::copy(tx, s.ino, s.version, s.copy)?.unwrap_or_else(fresh);
    if copy.segments.iter().any(|have| overlap(have, &segment)) {
        return Ok(());
    }
    copy.segments.push(segment);
    copy.segments.sort_by_key(|part| part.file_offset);
    tx.w.put(&keys::version(s.ino, s.version), &record::encode(&known))?;
    version::put_copy(tx, s.ino, s.version, &copy)
}

/// Whether two segments cover a byte in common; empty ones do at the same offset.
pub fn overlap(a: &Segment, b: &Segment) -> bool {
    let end = |s: &Segment| s.file_offset.saturating_add(s.length.max(1));
    a.file_offset < end(b) && b.file_offset < end(a)
}

/// Whether segments in order of offset cover a file of `size` bytes.
pub fn covers(segments: &[Segment], size: u64) -> bool {
    let mut to = 0;
    for s in segments {
        if s.file_offset > to {
            return false;
        }
        to = to.max(s.file_offset.saturating_add(s.length));
    }
    !segments.is_empty() && to >= size
}

/// See [`Catalog::tape_file`](crate::Catalog::tape_file).
pub fn describe(view: View<'_>, s: &NewSegment, now: Time) -> Result<TapeFile> {
    let rec = view.trace(s.ino)?.ok_or_else(|| CatalogError::missing("inode", s.ino))?;
    if rec.file.as_ref().map(|f| f.version) != Some(s.version) {
        // What is said of another version must not be taken for a word on this one.
        return Err(FsError::Stale.into());
    }
    let mut file = tape_file(view, s, Some(&rec), now, !rec.is_gone())?;
    if rec.has_data() && rec.nlink > 0 {
        // Until it is recorded, and as long as no index tells of it, its directory may get another name.
        file.node.parent = rec.link.0;
    }
    Ok(file)
}

fn tape_file(
    view: View<'_>,
    s: &NewSegment,
    rec: Option<&InodeRec>,
    now: Time,
    live: bool,
) -> Result<TapeFile> {
    let kind = rec.map_or(FileKind::File, |rec| rec.kind);
    if let Some(told) = &s.told {
        let (extents, digest) = (s.extents.clone(), s.digest.or(told.digest));
        return Ok(TapeFile { extents, digest, live, ..TapeFile::clone(told) });
    }
    let mut file = TapeFile {
        uid: s.uid,
        ino: s.ino,
        version: s.version,
        copy: s.copy,
        file_size: s.size,
        segment_offset: s.file_offset,
        segment_length: s.length,
        extents: s.extents.clone(),
        path: Vec::new(),
        mode: kind.type_bits() | 0o600,
        uid_owner: 0,
        gid_owner: 0,
        times: [now; 4],
        digest: s.digest,
        xattrs: Vec::new(),
        class: ClassName::default(),
        written: now,
        live,
        node: NodeFacts::default(),
    };
    let Some(rec) = rec else { return Ok(file) };
    if rec.ino.is_word() {
        return words::describe(view, rec, file);
    }
    if rec.nlink > 0 {
        file.path = path::path_of(view, rec.ino)?;
    }
    file.mode = kind.type_bits() | rec.mode;
    (file.uid_owner, file.gid_owner) = (rec.uid, rec.gid);
    let attr = if rec.is_dir() && !rec.is_gone() { view.inode(rec)?.attr } else { store::attr_of(rec) };
    file.times = [attr.atime, attr.mtime, attr.ctime, attr.btime];
    file.node = nodes::facts(view, rec)?;
    file.xattrs = xattr::all(view, rec)?;
    file.class = view.class(rec.class)?.name.clone();
    Ok(file)
}
