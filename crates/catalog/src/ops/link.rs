//! Adds a hard link.

use super::{create, names, nodes};
use crate::Result;
use crate::dirent::Dirent;
use crate::store::Tx;
use types::*;

/// Most names of one inode. Larger than any program needs, smaller than what counters hold.
pub const MAX_LINKS: u32 = i32::MAX as u32;

/// Gives `ino` another name with the fresh `cookie`.
pub fn link(tx: &mut Tx<'_>, cx: &Cx, ino: Ino, dir: Ino, name: &[u8], cookie: u64) -> Result<Inode> {
    create::check_new(tx.view(), cx, dir, name)?;
    let old = tx.load(ino)?;
    if old.is_dir() {
        return Err(FsError::NotPermitted.into());
    }
    if old.nlink == 0 {
        return Err(FsError::NotFound.into());
    }
    if old.nlink >= MAX_LINKS {
        return Err(FsError::TooManyLinks.into());
    }
    let mut rec = old.clone();
    names::add_link(tx, &mut rec, dir, cookie)?;
    rec.ctime = cx.now;
    names::put(tx, dir, name, &Dirent { ino, kind: rec.kind, cookie })?;
    nodes::changed(tx, &old, &mut rec, cx.now)?;
    tx.replace(Some(&old), Some(&rec))?;
    names::changed(tx, dir, cx.now, 1, 0)?;
    tx.inode(&rec)
}
