//! Permission rules, the same as Linux' own. ACLs are stored but not consulted.

use crate::Result;
use crate::rec::InodeRec;
use types::{Attr, Cx, FileKind, FsError};

/// Search a directory.
pub const X: u32 = 1;
/// Write.
pub const W: u32 = 2;
/// Read.
pub const R: u32 = 4;

const STICKY: u32 = 0o1000;
/// Set group id.
pub const SETGID: u32 = 0o2000;
const SETUID: u32 = 0o4000;

/// Whether the caller is in `gid`.
pub fn in_group(cx: &Cx, gid: u32) -> bool {
    cx.checked || cx.gid == gid || cx.groups.contains(&gid)
}

/// Mode bits against what is wanted.
pub fn check(cx: &Cx, attr: &Attr, want: u32) -> Result<()> {
    allowed(cx, attr.kind, attr.mode, (attr.uid, attr.gid), want)
}

/// The same for a record.
pub fn check_rec(cx: &Cx, rec: &InodeRec, want: u32) -> Result<()> {
    allowed(cx, rec.kind, rec.mode, (rec.uid, rec.gid), want)
}

fn allowed(cx: &Cx, kind: FileKind, mode: u32, owner: (u32, u32), want: u32) -> Result<()> {
    if cx.checked {
        return Ok(());
    }
    let granted = if cx.uid == 0 {
        let any_x = kind == FileKind::Directory || mode & 0o111 != 0;
        R | W | if any_x { X } else { 0 }
    } else if cx.uid == owner.0 {
        mode >> 6
    } else if in_group(cx, owner.1) {
        mode >> 3
    } else {
        mode
    };
    if want & 7 & !granted == 0 { Ok(()) } else { Err(FsError::AccessDenied.into()) }
}

/// Owner or administrator.
pub fn owns(cx: &Cx, rec: &InodeRec) -> bool {
    cx.checked || cx.uid == 0 || cx.uid == rec.uid
}

/// Whether `victim` may be removed from or renamed in `dir`: write and search on the directory; in a sticky one only by
/// the owner of either.
pub fn may_remove(cx: &Cx, dir: &InodeRec, victim: &InodeRec) -> Result<()> {
    check_rec(cx, dir, W | X)?;
    if dir.mode & STICKY != 0 && !owns(cx, dir) && !owns(cx, victim) {
        return Err(FsError::NotPermitted.into());
    }
    Ok(())
}

/// A mode without set-user-id, and without set-group-id where that means "run as group".
pub fn without_set_id(mode: u32) -> u32 {
    mode & !SETUID & if mode & 0o010 != 0 { !SETGID } else { !0 }
}

/// Mode left after a change of owner or group: setuid goes, setgid too where it means "run as group" or the caller is not
/// in the group.
pub fn after_chown(cx: &Cx, rec: &InodeRec) -> u32 {
    if rec.is_dir() {
        return rec.mode;
    }
    let mut mode = rec.mode & !SETUID;
    if mode & 0o010 != 0 || (cx.uid != 0 && !in_group(cx, rec.gid)) {
        mode &= !SETGID;
    }
    mode
}

/// Longest name (bytes; NAME_MAX).
pub const MAX_NAME: usize = 255;

/// Checks a name to be made or removed.
pub fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(FsError::NotFound.into()),
        [b'.'] | [b'.', b'.'] => Err(FsError::Invalid.into()),
        n if n.len() > MAX_NAME => Err(FsError::NameTooLong.into()),
        n if n.iter().any(|b| matches!(b, 0 | b'/')) => Err(FsError::Invalid.into()),
        _ => Ok(()),
    }
}
