//! The directory of an engine: its lock, its marker, and their durability.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::{Aside, KvError, Result};

/// Content of the marker file: which format the directory has.
const MARKER: &str = "thermocline engine lmdb 3\n";
/// The same without a journal; becomes the present one when it is opened.
const FORMER: &str = "thermocline engine lmdb 2\n";
const MARKER_FILE: &str = "engine";
const LOCK_FILE: &str = "lock";
pub(super) const DATA_FILE: &str = "data.mdb";
/// Where a new data file is made before it is moved into place.
const NEW_DIR: &str = "creating";

/// Turns what the operating system said into an error of the engine at `path`.
pub(crate) fn io_error(path: &Path, doing: &str, e: &io::Error) -> KvError {
    match e.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => KvError::Full { path: path.into() },
        _ => KvError::Io { path: path.into(), detail: format!("{doing}: {e}") },
    }
}

/// An engine's directory, locked against every other user for as long as this lives.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Place {
    /// Makes the directory if it is missing and locks it.
    pub(super) fn lock(dir: &Path) -> Result<Self> {
        let fail = |e: io::Error| io_error(dir, "making the directory", &e);
        if !dir.is_dir() {
            fs::create_dir_all(dir).map_err(fail)?;
            sync_dir(dir).and_then(|()| sync_parent(dir)).map_err(fail)?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join(LOCK_FILE))
            .map_err(|e| io_error(dir, "opening its lock file", &e))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { dir: dir.into(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(KvError::Locked { path: dir.into() }),
            Err(e) => Err(io_error(dir, "locking it", &e.into())),
        }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.join(DATA_FILE)
    }

    pub(super) fn corrupt(&self, detail: impl Into<String>) -> KvError {
        KvError::Corrupt { path: self.dir.clone(), detail: detail.into() }
    }

    /// What the marker says. One that was set aside opens only for the move `id`.
    pub(super) fn marker(&self, id: Option<&str>) -> Result<Marker> {
        match read_marker(&self.dir)? {
            Marker::Aside(_, mark) if !mark.opens_for(id) => {
                Err(KvError::Aside { path: self.dir.clone(), why: mark.why })
            }
            marker => Ok(marker),
        }
    }

    /// Length of the data file (bytes), if there is one.
    pub(super) fn data_len(&self) -> Result<Option<u64>> {
        match fs::metadata(self.data()) {
            Ok(meta) => Ok(Some(meta.len())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error(&self.dir, "looking at data.mdb", &e)),
        }
    }

    /// Lets `make` build a data file in a directory of its own, then moves it into place, all on stable storage.
    pub(super) fn create_data(&self, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let fail = |e: io::Error| io_error(&self.dir, "creating data.mdb", &e);
        let new = self.dir.join(NEW_DIR);
        if new.exists() {
            fs::remove_dir_all(&new).map_err(fail)?;
        }
        fs::create_dir(&new).map_err(fail)?;
        make(&new)?;
        File::open(new.join(DATA_FILE)).and_then(|f| f.sync_all()).map_err(fail)?;
        fs::rename(new.join(DATA_FILE), self.data()).map_err(fail)?;
        fs::remove_dir_all(&new).and_then(|()| sync_dir(&self.dir)).map_err(fail)
    }

    /// Says durably that the engine is complete, and counts unless it is set aside.
    pub(super) fn mark(&self, aside: Option<&Aside>) -> Result<()> {
        mark(&self.dir, aside).map_err(|e| io_error(&self.dir, "writing its marker", &e))
    }
}

/// Makes the directory of a backup; an empty one may be there already.
pub(crate) fn make_empty_dir(dir: &Path) -> Result<()> {
    let taken = || KvError::TargetExists { path: dir.into() };
    match fs::create_dir(dir) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => match fs::read_dir(dir) {
            Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(taken())),
            Err(_) => Err(taken()),
        },
        Err(e) => Err(io_error(dir, "making the directory of the backup", &e)),
    }
}

/// What the marker of a directory says.
pub(super) enum Marker {
    /// There is none: it was not made completely.
    None,
    /// The engine is complete.
    Whole(Format),
    /// It is complete, or a copy, and does not count.
    Aside(Format, Aside),
}

/// Which format a directory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// That of an earlier release, without a journal.
    Former,
    /// That of this one, which an earlier release refuses: it would not see the journal.
    Present,
}

pub(super) fn read_marker(dir: &Path) -> Result<Marker> {
    let found = match fs::read(dir.join(MARKER_FILE)) {
        Ok(found) => found,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Marker::None),
        Err(e) => return Err(io_error(dir, "reading its marker", &e)),
    };
    let text = String::from_utf8_lossy(&found);
    for (format, whole) in [(Format::Present, MARKER), (Format::Former, FORMER)] {
        if text == whole {
            return Ok(Marker::Whole(format));
        }
        let rest = text.strip_prefix(whole.trim_end()).and_then(|rest| rest.strip_prefix(" aside "));
        if let Some(mark) = rest.and_then(|rest| Aside::parse(rest.trim_end())) {
            return Ok(Marker::Aside(format, mark));
        }
    }
    Err(KvError::Format {
        path: dir.into(),
        found: String::from_utf8_lossy(&found[..found.len().min(80)]).trim_end().into(),
        known: MARKER.trim_end().into(),
    })
}

/// Writes the marker into `dir`, by rename, and syncs the directory.
pub(super) fn mark(dir: &Path, aside: Option<&Aside>) -> io::Result<()> {
    let new = dir.join("engine.new");
    let mut file = File::create(&new)?;
    match aside {
        None => file.write_all(MARKER.as_bytes())?,
        Some(mark) => writeln!(file, "{} aside {mark}", MARKER.trim_end())?,
    }
    file.sync_all()?;
    fs::rename(new, dir.join(MARKER_FILE))?;
    sync_dir(dir)
}

/// Makes names in `dir` survive power loss.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes the name of `dir` itself survive power loss.
pub(crate) fn sync_parent(dir: &Path) -> io::Result<()> {
    match dir.canonicalize()?.parent() {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}
