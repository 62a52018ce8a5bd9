//! Whose a target is (`<target>/site`): the namespace that has it, by the uuid that tells it from every other one. Nobody else reads or changes anything there.

use crate::sidecar::FileError;
use parking_lot::Mutex;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Its name in the directory of the target.
pub const SITE_FILE: &str = "site";
/// Longest name of a namespace (bytes).
const LONGEST: usize = 255;

/// The namespace of one target.
pub(crate) struct Site {
    dir: PathBuf,
    /// Empty: none yet. Held by who writes it down.
    known: Mutex<String>,
}

impl Site {
    pub(crate) fn open(dir: &Path) -> Result<Self, FileError> {
        Ok(Self { dir: dir.to_path_buf(), known: Mutex::new(read(dir)?) })
    }

    /// Whether it belongs to a namespace; if it belongs to none yet it does from now on, durably. A namespace without a name may use one that belongs to
    /// nobody, or that it has been seen to have, and leaves it as it is.
    pub(crate) fn belong(&self, to: &str) -> Result<(), Foreign> {
        let mut known = self.known.lock();
        if to.is_empty() || *known == to {
            return Ok(());
        }
        // An operator may have given it away since it was read.
        *known = read(&self.dir).map_err(Foreign::Unwritten)?;
        match known.as_str() {
            "" => {
                write(&self.dir, to).map_err(Foreign::Unwritten)?;
                to.clone_into(&mut known);
                Ok(())
            }
            of if of == to => Ok(()),
            of => Err(Foreign::Of(of.to_owned())),
        }
    }
}

/// Why a target does not belong to a namespace.
pub(crate) enum Foreign {
    /// It belongs to another one.
    Of(String),
    /// That could not be written down.
    Unwritten(FileError),
}

/// Reads it; empty where none was written.
pub(crate) fn read(target: &Path) -> Result<String, FileError> {
    let path = target.join(SITE_FILE);
    let error = |doing, source| FileError { doing, path: path.clone(), source };
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Err(e) => return Err(error("reading", Errno::from_io_error(&e).unwrap_or(Errno::IO))),
    };
    let site = String::from_utf8(text).map(|text| text.trim().to_owned());
    // What cannot be read may name another one.
    site.ok()
        .filter(|site| site.len() <= LONGEST && !site.chars().any(char::is_control))
        .ok_or_else(|| error("understanding", Errno::ILSEQ))
}

/// Written under another name, synced, renamed, directory synced: it is whole or not there.
fn write(target: &Path, site: &str) -> Result<(), FileError> {
    let new = target.join("site.new");
    let fail = |doing| {
        let path = new.clone();
        move |source| FileError { doing, path, source }
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = fs::open(&new, flags, Mode::from_raw_mode(0o644)).map_err(fail("making"))?;
    let text = format!("{site}\n");
    if rustix::io::write(&file, text.as_bytes()).map_err(fail("writing"))? < text.len() {
        return Err(fail("writing")(Errno::NOSPC));
    }
    fs::fsync(&file).map_err(fail("syncing"))?;
    fs::rename(&new, target.join(SITE_FILE)).map_err(fail("renaming"))?;
    fs::open(target, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(fs::fsync)
        .map_err(fail("syncing the directory of"))
}
