//! The marker file `target`: says that a directory is a disk target, of which format, and which one.
//!
//! Text, three lines: `thermocline disk target`, `format 1`, `uuid <uuid>`. Format history, newest first:
//! * 1: objects at `objects/<bits 8..15 of the id, 2 hex>/<id, 16 hex>`.

use crate::{DiskError, Result};
use rustix::fs::{self, Mode, OFlags};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

const NAME: &str = "target";
const NEW_NAME: &str = "target.new";
const MAGIC: &str = "thermocline disk target";
const FORMAT: u32 = 1;

/// The uuid of the target at `dir`, if there is one; makes nothing.
pub(crate) fn read(dir: &Path) -> Result<Option<String>> {
    match std::fs::File::open(dir.join(NAME)) {
        Ok(file) => {
            let mut text = String::new();
            file.take(4096).read_to_string(&mut text).map_err(|e| io("reading", &dir.join(NAME), e))?;
            parse(&text).map(Some).map_err(|why| DiskError::Refused { path: dir.to_path_buf(), why })
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io("opening", &dir.join(NAME), e)),
    }
}

/// Reads the uuid of the target at `dir`; makes the marker first if the directory is empty.
pub(crate) fn read_or_make(dir: &Path, root: &OwnedFd) -> Result<String> {
    match read(dir)? {
        Some(uuid) => Ok(uuid),
        None => make(dir, root),
    }
}

fn parse(text: &str) -> Result<String, String> {
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Err(format!(
            "its file `{NAME}` is not a marker of ours; name another directory in the configuration"
        ));
    }
    let format = lines.next().and_then(|l| l.strip_prefix("format ")).and_then(|n| n.parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(newer) if newer > FORMAT => {
            return Err(format!(
                "its format is {newer}, this version knows formats up to {FORMAT}; use the newer version that made it"
            ));
        }
        _ => return Err(format!("its file `{NAME}` names no known format; restore that file from a backup")),
    }
    let uuid = lines.next().and_then(|l| l.strip_prefix("uuid ")).filter(|uuid| uuid.len() == 36);
    uuid.map(str::to_owned)
        .ok_or_else(|| format!("its file `{NAME}` has no uuid; restore that file from a backup"))
}

/// Written under another name, synced, renamed, directory synced: the marker is whole or not there.
fn make(dir: &Path, root: &OwnedFd) -> Result<String> {
    refuse_foreign(dir)?;
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map_err(|e| io("reading", Path::new("/proc/sys/kernel/random/uuid"), e))?;
    let uuid = uuid.trim().to_owned();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let path = dir.join(NEW_NAME);
    let fail = |e: rustix::io::Errno| DiskError::at("writing", &path, e);
    let mut file =
        std::fs::File::from(fs::openat(root, NEW_NAME, flags, Mode::from_raw_mode(0o644)).map_err(fail)?);
    file.write_all(format!("{MAGIC}\nformat {FORMAT}\nuuid {uuid}\n").as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|e| io("writing", &path, e))?;
    fs::renameat(root, NEW_NAME, root, NAME).and_then(|()| fs::fsync(root)).map_err(fail)?;
    Ok(uuid)
}

/// A directory without a marker must be empty: never mix objects with somebody's files.
fn refuse_foreign(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).map_err(|e| io("listing", dir, e))? {
        let name = entry.map_err(|e| io("listing", dir, e))?.file_name();
        if name != "lost+found" && name != NEW_NAME {
            return Err(DiskError::Refused {
                path: dir.to_path_buf(),
                why: format!(
                    "it has no marker file `{NAME}` but holds {name:?}; name an empty directory in the configuration"
                ),
            });
        }
    }
    Ok(())
}

fn io(doing: &'static str, path: &Path, source: std::io::Error) -> DiskError {
    match source.raw_os_error() {
        Some(code) => DiskError::at(doing, path, rustix::io::Errno::from_raw_os_error(code)),
        None => DiskError::Io { doing, path: path.to_path_buf(), source },
    }
}
