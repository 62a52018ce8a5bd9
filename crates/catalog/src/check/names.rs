//! Inodes against directories and indexes.

use super::Check;
use crate::classes;
use crate::dirent::Dirent;
use crate::keys::{self, part, sum};
use crate::ops::{layouts, lookup, names, remove, version, volume, xattr};
use crate::rec::{self, InodeRec};
use crate::store::Derived;
use crate::{CatalogError, Result};
use std::collections::BTreeMap;
use types::*;

pub(super) fn inodes(c: &mut Check<'_>) -> Result<()> {
    c.table(&[keys::INODE], |c, (key, value)| {
        let ino = Ino(keys::number_at(&key, 1).unwrap_or(0));
        if key.get(9) != Some(&part::RECORD) {
            let owned = c.has(&keys::inode(ino, part::RECORD))?;
            c.expect(owned, || format!("part {:?} of inode {ino} is there without its record", key.get(9)));
            if key.get(9) == Some(&part::LAYOUT) {
                c.read(|v| layouts::rule(v, ino))?;
                let rec = c.read(|v| v.try_load(ino))?;
                let fits = rec.is_none_or(|rec| rec.is_dir() || rec.file.is_some_and(|f| !f.far));
                c.expect(fits, || {
                    format!("inode {ino} has a layout for new files, or for its return, and another one")
                });
            }
            return Ok(());
        }
        let rec = InodeRec::decode(ino, &value)?;
        derived(c, &rec)?;
        let class = c.read(|v| v.class(rec.class))?.name.clone();
        let current = c.read(|v| classes::current(v.r, &class))?;
        c.expect(current.is_some(), || format!("inode {ino} has class {class}, which is missing"));
        archive(c, &rec)?;
        let xattrs: usize = c.read(|v| xattr::all(v, &rec))?.iter().map(|(name, _)| name.len() + 1).sum();
        c.expect(xattrs == rec.xattrs as usize, || {
            format!("inode {ino} counts {} bytes of attribute names, has {xattrs}", rec.xattrs)
        });
        match rec.kind {
            FileKind::Directory => directory(c, &rec)?,
            FileKind::Symlink => {
                let target = c.read(|v| Ok(v.r.get(&keys::inode(ino, part::TARGET))?))?;
                c.expect(target.is_some_and(|t| t.len() as u64 == rec.size), || {
                    format!("symlink {ino} has no target of its size")
                });
            }
            _ => {}
        }
        if ino == Ino::ROOT { Ok(()) } else { links(c, &rec) }
    })
}

/// Words on files, and what is left of nodes that were removed.
pub(super) fn gone(c: &mut Check<'_>) -> Result<()> {
    c.table(&[keys::GONE], |c, (key, value)| {
        let ino = Ino(keys::number_at(&key, 1).unwrap_or(0));
        let rec = InodeRec::decode(ino, &value)?;
        let there = c.has(&keys::inode(ino.told_of(), part::RECORD))?;
        // One that is open without a name is removed, and there.
        let odd = there && rec.is_gone() && !c.has(&keys::orphan(ino.told_of()))?;
        c.expect(!odd && rec.is_trace() && !rec.has_data(), || {
            format!("inode {} is on record as removed, and is there: {there}", ino.told_of())
        });
        derived(c, &rec)?;
        archive(c, &rec)
    })
}

/// Sums and indexes that follow from the record.
fn derived(c: &mut Check<'_>, rec: &InodeRec) -> Result<()> {
    let d = c.read(|v| Derived::of(&v, rec))?;
    c.add(keys::sum_files(rec.uid, rec.class).to_vec(), i64::from(!rec.is_trace()));
    let sums = [(sum::BYTES, d.bytes), (sum::DISK, d.disk), (sum::TAPE, d.tape), (sum::FAR, d.on_targets)];
    for (what, n) in sums {
        c.add(keys::sum_user(what, rec.uid).to_vec(), n);
    }
    for (key, n) in d.backlog_sums() {
        c.add(key, n);
    }
    c.add(vec![keys::SUM, sum::PURGEABLE], d.purge.map_or(0, |p| p.1));
    let wanted = [
        d.object.map(|o| keys::object(o).to_vec()),
        d.candidate.map(|s| keys::candidate(s, rec.ino).to_vec()),
        d.purge_key(rec.ino).map(|key| key.to_vec()),
        d.mend.then(|| keys::mend(rec.ino).to_vec()),
    ];
    for key in wanted.into_iter().flatten() {
        *c.counts.entry(key[0]).or_default() += 1;
        let there = c.has(&key)?;
        c.expect(there, || format!("inode {} is not in index {:#04x}", rec.ino, key[0]));
    }
    if let Some(object) = d.object {
        let placed = c.read(|v| layouts::far(v, object))?.is_some();
        c.expect(placed == d.far, || {
            format!(
                "object {object} of inode {} is on targets: {}, its layout is there: {placed}",
                rec.ino, d.far
            )
        });
        let owner = c.read(|v| lookup::object_owner(v, object))?;
        c.expect(owner == Some(rec.ino), || {
            format!("object {object} of inode {} has owner {owner:?}", rec.ino)
        });
    }
    Ok(())
}

/// The file part against its copies.
fn archive(c: &mut Check<'_>, rec: &InodeRec) -> Result<()> {
    let Some(f) = &rec.file else { return Ok(()) };
    let (ino, named) = (rec.ino, rec.nlink > 0 || rec.is_trace());
    let copies = c.read(|v| version::copies(v, ino, f.version))?;
    if named {
        c.expect(f.known != copies.is_empty(), || {
            format!("inode {ino} has {} copies, known is {}", copies.len(), f.known)
        });
    }
    let mut whole = 0;
    for copy in &copies {
        if crate::ops::record_copies::covers(&copy.segments, rec.data_size()) {
            whole |= 1u32.checked_shl(u32::from(copy.copy.0) - 1).unwrap_or(0);
        }
    }
    if f.known || named {
        // A copy that was lost stays on record until it is made anew.
        let counted = if f.mend { whole & f.copies } else { whole };
        c.expect(counted == f.copies, || {
            format!("inode {ino} counts copies {:#b}, whole are {whole:#b}", f.copies)
        });
    }
    let class = c.read(|v| v.class(rec.class))?;
    let there = f.object.is_some() || !rec.has_data();
    let waits = f.sealed && there && named && f.missing(&class).next().is_some();
    c.expect(waits == f.due.is_some(), || format!("inode {ino} lacks copies: {waits}, due {:?}", f.due));
    let lost = rec.has_data() && f.object.is_none() && f.sealed && f.copies == 0;
    let lost = lost && !goes_on_elsewhere(c, &copies)?;
    c.expect(!lost, || format!("inode {ino} is neither on disk nor on tape"));
    Ok(())
}

/// Whether part of a file came with a volume that was imported: the rest is on others of its set, and the catalogue is right.
fn goes_on_elsewhere(c: &mut Check<'_>, copies: &[CopyRecord]) -> Result<bool> {
    for segment in copies.iter().flat_map(|copy| &copy.segments) {
        let volume = c.read(|v| volume::load(v.r, &segment.volume))?;
        if volume.is_some_and(|rec| rec.volume.imported) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Counters against entries.
fn directory(c: &mut Check<'_>, rec: &InodeRec) -> Result<()> {
    let (dir, mut entries, mut subdirs, mut named) = (rec.ino, 0, 0, 0);
    let prefix = keys::entry(dir, 0);
    c.table(&prefix[..9], |_, (key, value)| {
        let (entry, _) = Dirent::from_entry(dir, keys::number_at(&key, 9).unwrap_or(0), &value)?;
        entries += 1;
        subdirs += u64::from(entry.kind == FileKind::Directory);
        Ok(())
    })?;
    c.table(&keys::names(dir), |_, _| {
        named += 1;
        Ok(())
    })?;
    let counted = c.read(|v| v.dir_counters(dir))?;
    c.expect(entries == named, || format!("directory {dir} has {named} names but {entries} entries"));
    c.expect((counted.entries, counted.subdirs) == (entries, subdirs), || {
        format!(
            "directory {dir} counts {} entries and {} subdirectories, has {entries} and {subdirs}",
            counted.entries, counted.subdirs
        )
    });
    Ok(())
}

/// Every place at which a record says it is named.
fn links(c: &mut Check<'_>, rec: &InodeRec) -> Result<()> {
    let ino = rec.ino;
    let mut places = if rec.nlink > 0 { vec![rec.link] } else { Vec::new() };
    c.table(&keys::links(ino), |_, (key, _)| {
        places.extend(keys::number_at(&key, 9).map(Ino).zip(keys::number_at(&key, 17)));
        Ok(())
    })?;
    c.expect(places.len() == rec.nlink as usize, || {
        format!("inode {ino} has {} names, counts {}", places.len(), rec.nlink)
    });
    for (dir, cookie) in places {
        let value = c.read(|v| Ok(v.r.get(&keys::entry(dir, cookie))?))?;
        let named = value.map(|v| Dirent::from_entry(dir, cookie, &v).map(|(e, _)| e.ino)).transpose()?;
        c.expect(named == Some(ino), || format!("inode {ino} is not named in {dir} at {cookie}: {named:?}"));
    }
    let orphan = c.has(&keys::orphan(ino))?;
    c.expect(orphan == (rec.nlink == 0), || {
        format!("inode {ino} has {} names, orphan is {orphan}", rec.nlink)
    });
    Ok(())
}

/// Every entry leads to an inode that says so, and the two directory tables agree.
pub(super) fn entries(c: &mut Check<'_>) -> Result<()> {
    c.table(&[keys::ENTRY], |c, (key, value)| {
        let dir = Ino(keys::number_at(&key, 1).unwrap_or(0));
        let cookie = keys::number_at(&key, 9).unwrap_or(0);
        let (entry, name) = Dirent::from_entry(dir, cookie, &value)?;
        let by_name = c.read(|v| names::find(v, dir, name))?;
        let shown = String::from_utf8_lossy(name).into_owned();
        c.expect(by_name == Some(entry), || {
            format!("{shown:?} in {dir}: {entry:?}, but by name {by_name:?}")
        });
        let rec = c.read(|v| v.try_load(entry.ino))?;
        let rec = rec.ok_or_else(|| {
            CatalogError::corrupt(
                "directory entry",
                dir,
                format!("{shown:?} names missing inode {}", entry.ino),
            )
        })?;
        c.expect(rec.kind == entry.kind, || {
            format!("{shown:?} in {dir} is {:?}, entry says {:?}", rec.kind, entry.kind)
        });
        let linked = rec.link == (dir, cookie) || c.has(&keys::link(entry.ino, dir, cookie))?;
        c.expect(linked, || format!("{shown:?} in {dir}: inode {} does not know it", entry.ino));
        let parent = c.has(&keys::inode(dir, part::RECORD))?;
        c.expect(parent, || format!("{shown:?} is in directory {dir}, which is missing"));
        Ok(())
    })
}

/// Every layout of which something is out of date is listed, and no other.
pub(super) fn stale(c: &mut Check<'_>) -> Result<()> {
    let mut listed = 0;
    c.table(&[keys::STALE], |_, _| {
        listed += 1;
        Ok(())
    })?;
    c.table(&[keys::FAR], |c, (key, _)| {
        let object = ObjectId(keys::number_at(&key, 1).unwrap_or(0));
        let stale = c.read(|v| layouts::far(v, object))?.is_some_and(|far| !far.stale.is_empty());
        let there = c.has(&keys::stale(object))?;
        listed -= u64::from(there);
        c.expect(stale == there, || {
            format!("object {object} is out of date somewhere: {stale}, and is listed as such: {there}")
        });
        Ok(())
    })?;
    c.expect(listed == 0, || format!("{listed} objects without a layout are listed as out of date"));
    Ok(())
}

/// Junctions are empty directories, of which no two lead to one subsystem.
pub(super) fn junctions(c: &mut Check<'_>) -> Result<()> {
    let mut seen = BTreeMap::new();
    c.table(&[keys::JUNCTION], |c, (key, value)| {
        let dir = Ino(keys::number_at(&key, 1).unwrap_or(0));
        let junction: Junction = rec::decode("junction", dir, &value)?;
        let subsystem = &junction.subsystem;
        let there = c.read(|v| v.try_load(dir))?.is_some_and(|rec| rec.is_dir());
        c.expect(there, || format!("inode {dir} leads to subsystem {subsystem}, and is no directory"));
        let wrong = junction.validate().err();
        c.expect(wrong.is_none(), || format!("the junction of directory {dir}: {}", wrong.unwrap_or_default()));
        let empty = c.read(|v| match remove::check_empty(v, dir) {
            Err(CatalogError::Fs(FsError::NotEmpty)) => Ok(false),
            other => other.map(|()| true),
        })?;
        c.expect(empty, || {
            format!(
                "directory {dir} leads to subsystem {subsystem} and is not empty: hosts that mount that there do not show \
                 what is in it; `thermo junction rm` does"
            )
        });
        let other = seen.insert(subsystem.clone(), dir);
        c.expect(other.is_none(), || {
            format!("directories {dir} and {} both lead to subsystem {subsystem}", other.unwrap_or(dir))
        });
        Ok(())
    })
}

/// Marks belong to inodes, and no object is owned and unowned at once.
pub(super) fn marks(c: &mut Check<'_>) -> Result<()> {
    c.table(&[keys::UNOWNED], |c, (key, value)| {
        let object = ObjectId(keys::number_at(&key, 1).unwrap_or(0));
        let placed = c.read(|v| layouts::far(v, object))?.is_some();
        c.expect(placed != value.is_empty(), || {
            format!("unowned object {object} has the mark {value:02x?}, its layout is there: {placed}")
        });
        let owner = c.read(|v| lookup::object_owner(v, object))?;
        c.expect(owner.is_none(), || {
            format!("object {object} counts as unowned, but inode {owner:?} has it")
        });
        Ok(())
    })?;
    for (table, what) in [(keys::ORPHAN, "orphan"), (keys::WRITING, "writing"), (keys::LINK, "link")] {
        c.table(&[table], |c, (key, _)| {
            let ino = Ino(keys::number_at(&key, 1).unwrap_or(0));
            let there = c.has(&keys::inode(ino, part::RECORD))?;
            c.expect(there, || format!("mark {what} of missing inode {ino}"));
            Ok(())
        })?;
    }
    Ok(())
}
