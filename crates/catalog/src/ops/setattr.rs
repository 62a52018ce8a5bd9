//! chmod, chown and utimes.

use super::nodes;
use crate::Result;
use crate::keys::{self, part};
use crate::perm::{self, SETGID, W};
use crate::rec::InodeRec;
use crate::store::Tx;
use types::*;

/// Applies `set` (but for its size) by the rules of setattr_prepare() in Linux.
pub fn setattr(tx: &mut Tx<'_>, cx: &Cx, ino: Ino, set: &SetAttr) -> Result<Inode> {
    let old = tx.load(ino)?;
    let asked = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    let times = set.atime.is_some() || set.mtime.is_some();
    if !asked && !times {
        return tx.inode(&old);
    }
    may_change(cx, &old, set)?;
    let mut rec = old.clone();
    if set.uid.is_some() || set.gid.is_some() {
        rec.mode = perm::after_chown(cx, &old);
        rec.uid = set.uid.unwrap_or(old.uid);
        rec.gid = set.gid.unwrap_or(old.gid);
    }
    if let Some(mode) = set.mode {
        rec.mode = mode & 0o7777;
        if cx.uid != 0 && !perm::in_group(cx, rec.gid) {
            rec.mode &= !SETGID;
        }
    }
    rec.atime = set.atime.unwrap_or(rec.atime);
    rec.ctime = cx.now;
    if let Some(mtime) = set.mtime {
        rec.mtime = mtime;
        if rec.is_dir() {
            forget_change_time(tx, &mut rec)?;
        }
    }
    nodes::changed(tx, &old, &mut rec, cx.now)?;
    tx.replace(Some(&old), Some(&rec))?;
    tx.inode(&rec)
}

/// Whether it is a file with bits that go when somebody without the privilege writes.
pub fn has_set_id(rec: &InodeRec) -> bool {
    rec.has_data() && perm::without_set_id(rec.mode) != rec.mode
}

/// See [`Catalog::clear_set_id`](crate::Catalog::clear_set_id).
pub fn clear_set_id(tx: &mut Tx<'_>, ino: Ino, now: Time) -> Result<bool> {
    let old = tx.load(ino)?;
    if !has_set_id(&old) {
        return Ok(false);
    }
    let mut rec = InodeRec { mode: perm::without_set_id(old.mode), ctime: now, ..old.clone() };
    nodes::changed(tx, &old, &mut rec, now)?;
    tx.replace(Some(&old), Some(&rec))?;
    Ok(true)
}

/// Drops the time of the last change of entries, which would hide the mtime that is set now.
pub fn forget_change_time(tx: &mut Tx<'_>, rec: &mut InodeRec) -> Result<()> {
    if let Some(changed) = tx.view().dir_counters(rec.ino)?.changed {
        rec.ctime = rec.ctime.max(changed);
        tx.touched.push(rec.ino);
        tx.w.get_for_update(&keys::inode(rec.ino, part::CHANGED))?;
        tx.w.delete(&keys::inode(rec.ino, part::CHANGED))?;
    }
    Ok(())
}

fn may_change(cx: &Cx, rec: &InodeRec, set: &SetAttr) -> Result<()> {
    let root = cx.uid == 0;
    let owner = perm::owns(cx, rec);
    let uid_ok = set.uid.is_none_or(|uid| root || (owner && uid == rec.uid));
    let gid_ok = set.gid.is_none_or(|gid| root || (owner && (gid == rec.gid || perm::in_group(cx, gid))));
    let mode_ok = set.mode.is_none() || owner;
    if !uid_ok || !gid_ok || !mode_ok {
        return Err(FsError::NotPermitted.into());
    }
    if owner || (set.atime.is_none() && set.mtime.is_none()) {
        return Ok(());
    }
    let now = Some(cx.now);
    if set.atime == now && set.mtime == now {
        return perm::check_rec(cx, rec, W);
    }
    Err(FsError::NotPermitted.into())
}
