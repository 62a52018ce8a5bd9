//! Backups of the catalogue, and putting one in the place of a catalogue that was lost.

use crate::error::{failure, refused};
use crate::moment::{CHANGES, Source};
use crate::startup::{io, open_engine, patiently, prepare, write_marker};
use crate::{Config, Node};
use catalog::Catalog;
use disk::DiskTarget;
use kv::{Durability, Engine};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use types::*;
use wire::Failure;

/// Every backup is a directory whose name begins so.
const PREFIX: &str = "catalog-";
/// What a backup is called while it is written.
pub(crate) const PARTIAL: &str = ".partial";
/// Inodes read at a time.
const PAGE: usize = 1_000;
/// Findings of a damaged backup that an error tells.
const MOST_TOLD: usize = 5;
/// How long after a failed backup the next is tried.
const RETRY: Duration = Duration::from_secs(600);
/// How often the log of changes is looked at.
const LOOK: Duration = Duration::from_secs(60);

impl Node {
    /// Writes a backup below `dir`, named after the time: one consistent moment, openable as an engine.
    ///
    /// # Errors
    /// The directory cannot be written; nothing of the partial backup counts.
    pub fn backup_catalog(&self, dir: &Path) -> Result<BackupView, Failure> {
        let begun = std::time::Instant::now();
        if !dir.is_absolute() {
            let message = format!("backup directory {}: give an absolute path", dir.display());
            return Err(failure(ErrorClass::Invalid, message));
        }
        fs::create_dir_all(dir).map_err(|e| in_backup(dir, &e))?;
        let name = name_of(crate::now());
        let (path, partial) = (dir.join(&name), dir.join(name + PARTIAL));
        if path.exists() {
            let message = format!("backup {} was made in this very second and counts", path.display());
            return Err(failure(ErrorClass::Busy, message));
        }
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(|e| in_backup(&partial, &e))?;
        }
        self.catalog.engine().backup(&partial).map_err(|e| {
            let message = format!("backup of the catalogue to {}: {e}", dir.display());
            failure(ErrorClass::NoSpace, message)
        })?;
        renameat_with(CWD, &partial, CWD, &path, RenameFlags::NOREPLACE)
            .map_err(|e| in_backup(&path, &e.into()))?;
        File::open(dir).and_then(|d| d.sync_all()).map_err(|e| in_backup(dir, &e))?;
        let bytes = fs::metadata(path.join("data.mdb")).map_or(0, |m| m.len());
        let took_ms = begun.elapsed().as_millis() as u64;
        Ok(BackupView { path: path.display().to_string(), bytes, took_ms })
    }

    /// Makes backups as configured until the node stops.
    pub(crate) fn keep_backups(self: &Arc<Self>) {
        let Some(dir) = &self.config.catalog.backup_dir else { return };
        let every = || Duration::from_secs(self.settings().catalog.backup_every_s.max(1).into());
        let mut wait = if self.log_wants_backup() { Duration::ZERO } else { until_due(dir, every()) };
        while !self.stops_within(wait.min(LOOK)) {
            // It may have got shorter meanwhile.
            wait = wait.saturating_sub(LOOK).min(every());
            if !wait.is_zero() && !self.log_wants_backup() {
                self.put_newest_backup(dir);
                continue;
            }
            wait = match self.backup_catalog(dir) {
                Ok(made) => {
                    tracing::info!("backup of the catalogue: {} ({} ms)", made.path, made.took_ms);
                    let keep = self.settings().catalog.backup_keep.max(1) as usize;
                    prune(dir, Path::new(&made.path), keep);
                    every()
                }
                Err(e) => {
                    self.archive.warn(format!("no backup of the catalogue was made: {}", e.message));
                    every().min(RETRY)
                }
            };
            self.put_newest_backup(dir);
        }
    }

    fn put_newest_backup(self: &Arc<Self>, dir: &Path) {
        if let Err(e) = self.put_backup(dir) {
            self.archive.warn(format!("the backup of the catalogue is not in the namespace: {}", e.message));
        }
    }
}

impl Node {
    /// Whether changes go unlogged, or into a log that no backup belongs to.
    fn log_wants_backup(&self) -> bool {
        let Some(state) = self.catalog.engine().log() else { return false };
        if let Some(trouble) = &state.trouble {
            self.archive.warn(trouble.clone());
        }
        state.needs_backup || state.trouble.is_some()
    }
}

fn in_backup(path: &Path, e: &std::io::Error) -> Failure {
    failure(
        ErrorClass::Denied,
        format!("backup {}: {e}; check its owner, mode and free space", path.display()),
    )
}

/// `catalog-20261121T085959Z`: names sort by time.
fn name_of(now: Time) -> String {
    let text = format::ltfs::time::encode(now);
    let digits = text.iter().take(19).filter(|b| !matches!(b, b'-' | b':')).map(|b| char::from(*b));
    format!("{PREFIX}{}Z", digits.collect::<String>())
}

/// Whether this is the name of a whole backup.
pub(crate) fn is_backup(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes()) && !name.ends_with(PARTIAL.as_bytes())
}

/// Whole backups in a directory, oldest first.
pub fn backups(dir: &Path) -> Vec<PathBuf> {
    let is_ours = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default();
        is_backup(name.as_bytes())
    };
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(|e| Some(e.ok()?.path()));
    let mut found: Vec<PathBuf> = entries.filter(is_ours).collect();
    found.sort();
    found
}

fn until_due(dir: &Path, every: Duration) -> Duration {
    let newest = backups(dir).pop().and_then(|path| fs::metadata(path).ok()?.modified().ok());
    let age = newest.and_then(|made| made.elapsed().ok());
    age.map_or(Duration::ZERO, |age| every.saturating_sub(age))
}

/// Keeps the one just made, whatever its name: the clock may have been wrong when others were made.
fn prune(dir: &Path, made: &Path, keep: usize) {
    let mut found = backups(dir);
    found.retain(|backup| backup != made);
    for old in found.iter().take((found.len() + 1).saturating_sub(keep)) {
        if let Err(e) = fs::remove_dir_all(old) {
            tracing::warn!("old backup {} cannot be removed: {e}", old.display());
        }
    }
    let kept: kv::Result<Vec<Option<_>>> =
        backups(dir).iter().map(|backup| kv::log::position(backup)).collect();
    // A backup that cannot be read now may need any of them.
    let pruned = kept.map_err(|e| e.to_string()).and_then(|kept| {
        let needed: Vec<_> = kept.into_iter().flatten().collect();
        kv::log::prune(&dir.join(CHANGES), &needed).map_err(|e| e.to_string())
    });
    if let Err(e) = pruned {
        tracing::warn!("old changes in {} are not removed: {e}", dir.display());
    }
}

/// What a restore did.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Inodes in the catalogue now.
    pub inodes: u64,
    /// Files on disk whose content changed after the backup: they are as they are on disk.
    pub changed: u64,
    /// Files that are on disk according to the backup, but not there.
    pub missing: u64,
    /// Where the catalogue is kept that was there before.
    pub replaced: Option<PathBuf>,
    /// Batches of changes that were applied to the backup.
    pub batches: u64,
    /// When the last of them was made.
    pub as_of: Option<Time>,
}

/// Puts a backup in the place of the catalogue of a node that is not running. The backup is copied, brought forward by the log of
/// changes, checked from end to end and fitted to the disk tier before it takes the place of the catalogue in one step; that is kept beside it.
///
/// # Errors
/// The node runs; the backup is damaged or is none; the state directory cannot be written. Nothing was changed then.
pub fn restore_catalog(config: &Config, source: &Source) -> Result<Restored, Failure> {
    let backup = source.backup.as_path();
    let state = &config.state_dir;
    if config.in_database() {
        let message = "the catalogue is in a database (catalog.engine in the configuration), and a backup is put in the place of the \
                       embedded one: take that line out first (nothing in the database is changed), then restore and start; the database \
                       itself comes back by its own means";
        return Err(failure(ErrorClass::Invalid, message));
    }
    let (_lock, fresh) = patiently(|| prepare(state))?;
    // What is not there now would be taken for purged.
    let disk = crate::tier::open(config, fresh)?;
    let (place, fitting) = (state.join("catalog"), state.join("catalog.restoring"));
    copy_dir(backup, &fitting)?;
    let mut restored = fit(&disk, &fitting, source)?;
    let fail = |e: std::io::Error| io(state, &e);
    restored.replaced = put_in_place(state, &fitting, &place, crate::now().secs).map_err(fail)?;
    File::open(state).and_then(|d| d.sync_all()).map_err(fail)?;
    // A move of the catalogue that was under way is over: what it copied does not open any more.
    crate::engine::pending::remove(state).map_err(fail)?;
    if fresh {
        write_marker(state).map_err(fail)?;
    }
    Ok(restored)
}

/// Puts a catalogue in the place of the one that is there, and says where that is kept. At every moment there is a whole
/// catalogue in the place, and the other has a name under which nobody removes it.
pub(crate) fn put_in_place(
    state: &Path,
    fitting: &Path,
    place: &Path,
    secs: i64,
) -> std::io::Result<Option<PathBuf>> {
    if !place.exists() {
        return fs::rename(fitting, place).map(|()| None);
    }
    let first = state.join(format!("catalog.replaced-{secs}"));
    let further = (2..).map(|n| state.join(format!("catalog.replaced-{secs}-{n}")));
    let kept = std::iter::once(first).chain(further).find(|name| !name.exists()).unwrap_or_default();
    fs::rename(fitting, &kept)?;
    renameat_with(CWD, &kept, CWD, place, RenameFlags::EXCHANGE)?;
    Ok(Some(kept))
}

/// Gives a catalogue that does not count any more another name, and says which.
pub(crate) fn put_aside(state: &Path, place: &Path, secs: i64) -> std::io::Result<PathBuf> {
    let kept = (0..).map(|n| state.join(format!("catalog.replaced-{}", secs + n)));
    let kept = kept.into_iter().find(|name| !name.exists()).unwrap_or_default();
    fs::rename(place, &kept)?;
    File::open(state)?.sync_all()?;
    Ok(kept)
}

/// Copies the files of an engine directory, on stable storage.
fn copy_dir(from: &Path, to: &Path) -> Result<(), Failure> {
    let copy = || -> std::io::Result<()> {
        if to.exists() {
            fs::remove_dir_all(to)?;
        }
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.file_type()?.is_file() && entry.file_name() != kv::log::POSITION_FILE {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
                File::open(to.join(entry.file_name()))?.sync_all()?;
            }
        }
        File::open(to)?.sync_all()
    };
    copy().map_err(|e| in_backup(from, &e))
}

/// Checks the copy of a backup, and brings it together with the disk tier as it is now.
fn fit(disk: &DiskTarget, copy: &Path, source: &Source) -> Result<Restored, Failure> {
    let fail = |e| refused("restore", &e);
    let engine: Arc<dyn Engine> = Arc::new(open_engine(copy, None, None, None)?);
    let forward = source.bring_forward(engine.as_ref())?;
    let catalog = Catalog::open(engine, crate::now()).map_err(fail)?;
    let findings = catalog::check::verify(&catalog);
    if !findings.is_empty() {
        let told: Vec<&str> = findings.iter().take(MOST_TOLD).map(String::as_str).collect();
        let message = format!(
            "backup {} is damaged ({} findings, the first: {}); take another one",
            source.backup.display(),
            findings.len(),
            told.join("; ")
        );
        return Err(failure(ErrorClass::Corrupt, message));
    }
    catalog.mark_restored(crate::now()).map_err(fail)?;
    let writing = catalog.writing().map_err(fail)?;
    let as_of =
        forward.last_ms.map(|ms| Time::new(ms.div_euclid(1000), ms.rem_euclid(1000) as u32 * 1_000_000));
    let mut restored = Restored { batches: forward.batches, as_of, ..Restored::default() };
    let mut after = Ino(0);
    loop {
        let page = catalog.for_each_inode(after, PAGE).map_err(fail)?;
        let Some(last) = page.found.iter().map(|i| i.attr.ino).max() else { break };
        after = last;
        for inode in &page.found {
            restored.inodes += 1;
            fit_file(&catalog, disk, inode, writing.contains(&inode.attr.ino), &mut restored)?;
        }
    }
    catalog.sync().map_err(fail)?;
    Ok(restored)
}

/// What is on disk counts: it is at least as new as the backup.
fn fit_file(
    catalog: &Catalog,
    disk: &DiskTarget,
    inode: &Inode,
    writing: bool,
    restored: &mut Restored,
) -> Result<(), Failure> {
    let fail = |e| refused("restore", &e);
    let Some((file, object)) = inode.file.as_ref().and_then(|f| Some((f, f.object?))) else { return Ok(()) };
    if file.far {
        return distrust_far(catalog, inode, file, object, restored);
    }
    let fd = match disk.open_object(object, true) {
        Ok(fd) => fd,
        Err(disk::DiskError::Missing { .. }) => {
            restored.missing += 1;
            // Purged or removed after the backup: it is read from tape. What is not there is left to `thermo check`.
            let _ = catalog.lose_object(inode.attr.ino, object, crate::now());
            return Ok(());
        }
        // It may be there, and newer than every copy: without it in the catalogue nobody would find it again.
        Err(e) => return Err(failure(e.class(), e.to_string())),
    };
    let mut stamp = disk.stamp(&fd).map_err(|e| failure(e.class(), e.to_string()))?;
    if !writing && file.stamp.is_some_and(|s| s.same_content(&stamp)) {
        return Ok(());
    }
    if writing {
        // As after a crash: a fresh change time makes the content count as changed whatever the stamp says.
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::fchmod(&fd, mode).map_err(|e| io(&disk.path(object), &e.into()))?;
        stamp = disk.stamp(&fd).map_err(|e| failure(e.class(), e.to_string()))?;
    }
    let cx = Cx::admin(crate::now());
    catalog.observe(&cx, inode.attr.ino, object, &stamp, true, Durability::Relaxed).map_err(fail)?;
    catalog.raise_version(inode.attr.ino).map_err(fail)?;
    restored.changed += 1;
    Ok(())
}

/// What targets have may be newer than the backup, and they cannot be asked yet: the content counts as changed, and as being written, so
/// that it is asked for before the file is used.
fn distrust_far(
    catalog: &Catalog,
    inode: &Inode,
    file: &FileState,
    object: ObjectId,
    restored: &mut Restored,
) -> Result<(), Failure> {
    let fail = |e| refused("restore", &e);
    let ino = inode.attr.ino;
    let now = crate::now();
    let size = inode.attr.size;
    let stamp = ObjectStamp { size, mtime: now, ctime: now, ..file.stamp.unwrap_or_default() };
    catalog.observe(&Cx::admin(now), ino, object, &stamp, true, Durability::Relaxed).map_err(fail)?;
    catalog.raise_version(ino).map_err(fail)?;
    catalog.mark_writing(ino).map_err(fail)?;
    restored.changed += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_catalogue_that_was_in_the_place_is_ever_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (state, place, fitting) = (dir.path(), dir.path().join("catalog"), dir.path().join("fitting"));
        let mut kept = Vec::new();
        for n in 0..3 {
            fs::create_dir(&fitting).unwrap();
            fs::write(fitting.join("data.mdb"), [n]).unwrap();
            kept.extend(put_in_place(state, &fitting, &place, 7).unwrap());
            assert_eq!(fs::read(place.join("data.mdb")).unwrap(), [n]);
            assert!(!fitting.exists());
        }
        let held: Vec<_> = kept.iter().map(|kept| fs::read(kept.join("data.mdb")).unwrap()).collect();
        assert_eq!(held, [[0], [1]]);
    }

    #[test]
    fn the_backup_just_made_stays_although_the_clock_was_ahead_before() {
        let dir = tempfile::tempdir().unwrap();
        let make = |year: u32| {
            let path = dir.path().join(format!("{PREFIX}{year}0101T000000Z"));
            fs::create_dir(&path).unwrap();
            path
        };
        let wrong: Vec<PathBuf> = (2050..2053).map(make).collect();
        for year in 2030..2033 {
            let made = make(year);
            prune(dir.path(), &made, 3);
            assert_eq!(backups(dir.path()), [&[made][..], &wrong[1..]].concat());
        }
    }
}
