//! Small files that change as a whole or not at all.

use crate::error::{Result, io};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Replaces `path` so that after a power failure it has either the old or the new content: temporary file, sync,
/// rename, sync of the directory. The temporary name ends in `.tmp`.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = Path::new(&name);
    let mut file = File::create(temporary).map_err(io(temporary, "create"))?;
    file.write_all(content).map_err(io(temporary, "write"))?;
    file.sync_all().map_err(io(temporary, "sync"))?;
    fs::rename(temporary, path).map_err(io(path, "rename"))?;
    sync_parent(path)
}

/// Makes the directory entry of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    File::open(parent).and_then(|d| d.sync_all()).map_err(io(parent, "sync"))
}
