//! Walking over all objects of a target.

use crate::target::{directory, fan_out};
use crate::{DiskError, DiskTarget, Result};
use rustix::fs::{self, Dir, Mode, OFlags};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use types::ObjectId;

/// Something found below `objects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An object in its place.
    Object(ObjectId),
    /// A file that no object of this target would be; never touched by us.
    Stray(PathBuf),
}

impl DiskTarget {
    /// Visits everything that is stored, in no particular order and in constant memory, until the visitor breaks.
    /// Objects made or removed meanwhile may or may not be seen.
    ///
    /// # Errors
    /// `Io` when a directory cannot be read.
    pub fn list(&self, visit: &mut dyn FnMut(Found) -> ControlFlow<()>) -> Result<()> {
        for number in 0..=u8::MAX {
            if self.list_one(number, visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Whether something is stored in the target in a directory. Makes nothing and takes no lock.
    ///
    /// # Errors
    /// `Io` when a directory cannot be read.
    pub fn holds_objects(dir: &Path) -> Result<bool> {
        for number in 0..=u8::MAX {
            let path = dir.join("objects").join(directory(number));
            match std::fs::read_dir(&path).map(|mut entries| entries.next()) {
                Ok(Some(_)) => return Ok(true),
                Ok(None) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(DiskError::Io { doing: "listing", path, source }),
            }
        }
        Ok(false)
    }

    fn list_one(
        &self,
        number: u8,
        visit: &mut dyn FnMut(Found) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let path = self.dir().join("objects").join(directory(number));
        let fail = |e| DiskError::at("listing", &path, e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::openat(self.objects(), directory(number), flags, Mode::empty()).map_err(fail)?;
        for entry in Dir::new(opened).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let found = match parse(name).filter(|id| fan_out(*id) == number) {
                Some(id) => Found::Object(id),
                None => Found::Stray(path.join(OsStr::from_bytes(name))),
            };
            if visit(found).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The id that a file name stands for: exactly 16 lower-case hexadecimal digits.
fn parse(name: &[u8]) -> Option<ObjectId> {
    let plain = name.len() == 16 && name.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(name).ok().filter(|_| plain)?;
    u64::from_str_radix(text, 16).ok().map(ObjectId)
}
