//! The turn that a target has heard of last (`<target>/turn`): what the metadata service of an earlier one gives out counts for nothing, also after a
//! restart.

use crate::sidecar::FileError;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// Digits of the number. Its place is taken once and written again: a full disk must not keep a target from the node that would make room.
const DIGITS: usize = 20;

/// Reads it; 0 where none was written.
pub(crate) fn read(target: &Path) -> Result<u64, FileError> {
    let path = target.join("turn");
    let error = |doing, source| FileError { doing, path: path.clone(), source };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(error("reading", Errno::from_io_error(&e).unwrap_or(Errno::IO))),
    };
    if text.is_empty() {
        return Ok(0); // power failed before the first one was durable
    }
    let digits = text.strip_suffix('\n').filter(|digits| digits.len() == DIGITS);
    // A number that is too small could let in somebody whose turn is over.
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| error("understanding", Errno::ILSEQ))
}

/// Writes it durably. It lies within one sector: power that fails leaves the one before, or this one.
pub(crate) fn write(target: &Path, turn: u64) -> Result<(), FileError> {
    let path = target.join("turn");
    let fail = |doing| {
        let path = path.clone();
        move |source| FileError { doing, path, source }
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(fail("making"))?;
    let text = format!("{turn:0DIGITS$}\n");
    let written = rustix::io::pwrite(&file, text.as_bytes(), 0).map_err(fail("writing"))?;
    if written < text.len() {
        return Err(fail("writing")(Errno::NOSPC));
    }
    fs::fsync(&file).map_err(fail("syncing"))?;
    fs::open(target, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(fs::fsync)
        .map_err(fail("syncing the directory of"))
}
