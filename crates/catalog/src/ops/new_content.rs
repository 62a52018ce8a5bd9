//! Truncation to zero without a recall.

use super::{layouts, observe, version};
use crate::Result;
use crate::keys;
use crate::store::Tx;
use types::*;

/// Gives the file an empty object and a new version; the old object.
pub fn new_content(
    tx: &mut Tx<'_>,
    cx: &Cx,
    ino: Ino,
    object: ObjectId,
    stamp: &ObjectStamp,
) -> Result<(Inode, Option<ObjectId>)> {
    let old = tx.load_file(ino)?;
    version::end(tx, &old, Some(cx.now))?;
    let mut rec = old.clone();
    let mut file = observe::next_version(tx, rec.file.take().unwrap_or_default())?;
    let freed = file.object.replace(object).filter(|o| *o != object);
    file.far = layouts::belongs(tx, ino, object)?;
    file.stamp = Some(*stamp);
    file.used = file.used.max(cx.now.secs);
    rec.file = Some(file);
    rec.size = stamp.size;
    rec.mtime = cx.now;
    rec.ctime = cx.now;
    tx.w.put(&keys::writing(ino), &[])?;
    tx.replace(Some(&old), Some(&rec))?;
    Ok((tx.inode(&rec)?, freed))
}
