//! Which disk tier belongs to a state directory. Files of a tier whose file system is not mounted would look lost, and new ones would go
//! below its mount point, out of sight once it is mounted.

use crate::Config;
use crate::error::failure;
use crate::startup::{io, patiently};
use disk::{DiskError, DiskTarget};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use types::ErrorClass;
use wire::Failure;

/// File of the state directory that names the tier.
const NAME: &str = "disk-tier";

/// Opens the disk tier of a node. Unless its state directory is `fresh`, or an operator has said that another one begins
/// (`Config::new_disk_tier`), it has to be the tier that the node had before.
///
/// # Errors
/// It is another one, or none: nothing was changed then. It is in use, or the disk fails.
pub(crate) fn open(config: &Config, fresh: bool) -> Result<DiskTarget, Failure> {
    let (state, path) = (&config.state_dir, config.disk_path());
    let disk_failed = |e: DiskError| failure(e.class(), e.to_string());
    let known = known(state).map_err(|e| io(state, &e))?;
    if let Some(known) = known.as_ref().filter(|_| !fresh && !config.new_disk_tier) {
        let found = DiskTarget::identity(&path).map_err(disk_failed)?;
        if found.as_ref() != Some(known) {
            return Err(another(&path, known, found.as_deref()));
        }
    }
    let disk = patiently(|| DiskTarget::open(&path).map_err(disk_failed))?;
    if known.as_deref() != Some(disk.uuid()) {
        remember(state, disk.uuid()).map_err(|e| io(state, &e))?;
    }
    Ok(disk)
}

fn another(path: &Path, known: &str, found: Option<&str>) -> Failure {
    let found = found.map_or_else(|| "there is none".to_owned(), |found| format!("the one there is {found}"));
    let message = format!(
        "disk tier {}: this node has its files on the tier {known}, and {found}. If it lies on a file system that is not mounted, mount \
         that. If it is lost, begin another one with `--new-disk-tier`: files that have copies on tape come back from there, `thermo check` \
         names those that have none",
        path.display()
    );
    failure(ErrorClass::Invalid, message)
}

/// The tier that the node had before; none in a new state directory, or one of an earlier release.
fn known(state: &Path) -> std::io::Result<Option<String>> {
    match fs::read_to_string(state.join(NAME)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn remember(state: &Path, uuid: &str) -> std::io::Result<()> {
    let new = state.join("disk-tier.new");
    let mut file = File::create(&new)?;
    writeln!(file, "{uuid}")?;
    file.sync_all()?;
    fs::rename(&new, state.join(NAME))?;
    File::open(state)?.sync_all()
}
