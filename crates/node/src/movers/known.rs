//! Which disks this node has served: a directory whose file system is not mounted must not become a new target, whose files then vanish when
//! it is.

use crate::error::failure;
use crate::startup::io;
use disk::DiskTarget;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use types::ErrorClass;
use wire::Failure;

/// File of the state directory: lines of uuid and path.
const NAME: &str = "targets";

/// What the target in a directory says.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// Of itself.
    pub(super) uuid: String,
    /// Its size, and what can still be written there (bytes).
    pub(super) capacity: u64,
    pub(super) free: u64,
    /// The namespace that has it; empty: none yet.
    pub(super) site: String,
    /// None has it, and there are objects.
    pub(super) unclaimed: bool,
}

/// The list of them, of a state directory.
pub(super) struct Disks {
    state: PathBuf,
    /// Held by who changes the list.
    changes: Mutex<()>,
}

impl Disks {
    pub(super) fn of(state: &Path) -> Self {
        Self { state: state.into(), changes: Mutex::default() }
    }

    /// What the target in a directory says. A new one is made where none was before. It may hang with the disk, and keeps nobody from asking another one.
    ///
    /// # Errors
    /// Another target was there before, or the disk fails.
    pub(super) fn look(&self, path: &Path) -> Result<Said, Failure> {
        let told = |e: disk::DiskError| failure(e.class(), e.to_string());
        let listed = || known(&self.state).map_err(|e| io(&self.state.join(NAME), &e));
        let shown = path.display().to_string();
        let (all, mut found) = (listed()?, DiskTarget::identity(path).map_err(told)?);
        match (&found, all.get(&shown)) {
            (found, Some(known)) if found.as_ref() != Some(known) => {
                let is = found.as_ref().map_or("there is none".to_owned(), |uuid| format!("there is {uuid}"));
                let message = format!(
                    "target {shown}: the disk {known} was there, and now {is}. Mount its file system; if it is lost, `thermo target replace` with its number, remove its line from {}, and start this node again",
                    self.state.join(NAME).display()
                );
                return Err(failure(ErrorClass::Invalid, message));
            }
            (_, Some(_)) => {}
            (_, None) => {
                let uuid = DiskTarget::open(path).map_err(told)?.uuid().to_owned();
                let _alone = self.changes.lock();
                let mut all = listed()?;
                all.insert(shown, uuid.clone());
                remember(&self.state, &all).map_err(|e| io(&self.state.join(NAME), &e))?;
                found = Some(uuid);
            }
        }
        let stat = rustix::fs::statvfs(path).map_err(|e| io(path, &e.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let site = mover::Target::site_of(path).map_err(|e| failure(ErrorClass::Invalid, e.to_string()))?;
        let unclaimed = site.is_empty() && DiskTarget::holds_objects(path).map_err(told)?;
        let (capacity, free) = (bytes(stat.f_blocks), bytes(stat.f_bavail));
        Ok(Said { uuid: found.unwrap_or_default(), capacity, free, site, unclaimed })
    }
}

fn known(state: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let text = match fs::read_to_string(state.join(NAME)) {
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(uuid, path)| (path.to_owned(), uuid.to_owned())).collect())
}

fn remember(state: &Path, all: &BTreeMap<String, String>) -> std::io::Result<()> {
    let new = state.join("targets.new");
    let mut file = File::create(&new)?;
    all.iter().try_for_each(|(path, uuid)| writeln!(file, "{uuid} {path}"))?;
    file.sync_all()?;
    fs::rename(&new, state.join(NAME))?;
    File::open(state)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_whose_disk_is_gone_is_not_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t1");
        let disks = Disks::of(dir.path());
        let look = |path: &Path| disks.look(path);
        let Said { uuid, capacity, free, .. } = look(&path).unwrap();
        assert!(capacity > 0 && free <= capacity);
        assert_eq!(look(&path).unwrap().uuid, uuid);
        fs::rename(&path, dir.path().join("away")).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(look(&path).unwrap_err().message.contains("there is none"));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is made below a mount point");
        fs::remove_dir(&path).unwrap();
        fs::rename(dir.path().join("away"), &path).unwrap();
        assert_eq!(look(&path).unwrap().uuid, uuid);
    }
}
