//! Extended attributes, stored as given. ACLs too: nothing here interprets them, and chmod leaves them alone.

use super::nodes;
use crate::keys::{self, part};
use crate::perm::{self, R, W};
use crate::rec::InodeRec;
use crate::store::{Tx, View};
use crate::{CatalogError, Result};
use std::ops::ControlFlow;
use types::api::XattrMode;
use types::*;

/// Longest value (bytes; XATTR_SIZE_MAX).
const MAX_VALUE: usize = 65536;
/// Longest list of names, each with its NUL (bytes; XATTR_LIST_MAX).
const MAX_LIST: u32 = 65536;

const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

enum Space {
    User,
    Trusted,
    Security,
    Acl { default: bool },
}

fn space(name: &[u8]) -> Result<Space> {
    if name.is_empty() || name.contains(&0) {
        return Err(FsError::Invalid.into());
    }
    if name.len() > 255 {
        return Err(FsError::NameTooLong.into());
    }
    let found = match name {
        n if n == ACLS[0] => Space::Acl { default: false },
        n if n == ACLS[1] => Space::Acl { default: true },
        n if longer(n, b"user.") => Space::User,
        n if longer(n, b"trusted.") => Space::Trusted,
        n if longer(n, b"security.") => Space::Security,
        b"user." | b"trusted." | b"security." => return Err(FsError::Invalid.into()),
        _ => return Err(FsError::NotSupported.into()),
    };
    Ok(found)
}

fn longer(name: &[u8], prefix: &[u8]) -> bool {
    name.starts_with(prefix) && name.len() > prefix.len()
}

fn user_kind(rec: &InodeRec) -> bool {
    matches!(rec.kind, FileKind::File | FileKind::Directory)
}

fn may_write(cx: &Cx, rec: &InodeRec, name: &[u8]) -> Result<()> {
    let denied = |no: bool| if no { Err(FsError::NotPermitted.into()) } else { Ok(()) };
    match space(name)? {
        Space::User => {
            let sticky_dir = rec.is_dir() && rec.mode & 0o1000 != 0;
            denied(!user_kind(rec) || (sticky_dir && !perm::owns(cx, rec)))?;
            perm::check_rec(cx, rec, W)
        }
        Space::Trusted | Space::Security => denied(cx.uid != 0 && !cx.checked),
        Space::Acl { .. } if rec.kind == FileKind::Symlink => Err(FsError::NotSupported.into()),
        Space::Acl { default } if default && !rec.is_dir() => Err(FsError::AccessDenied.into()),
        Space::Acl { .. } => denied(!perm::owns(cx, rec)),
    }
}

/// getxattr(2).
pub fn get(view: View<'_>, cx: &Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
    let rec = view.load(ino)?;
    match space(name)? {
        Space::User if !user_kind(&rec) => return Err(FsError::NoAttribute.into()),
        Space::User => perm::check_rec(cx, &rec, R)?,
        Space::Trusted if cx.uid != 0 && !cx.checked => return Err(FsError::NoAttribute.into()),
        _ => {}
    }
    view.r.get(&keys::xattr(ino, name))?.ok_or(CatalogError::Fs(FsError::NoAttribute))
}

/// All attributes, without any check.
pub fn all(view: View<'_>, rec: &InodeRec) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    if rec.xattrs == 0 {
        return Ok(found);
    }
    let prefix = keys::inode(rec.ino, part::XATTR);
    view.r.scan(&prefix, &keys::end(&prefix), &mut |k, v| {
        found.push((k[prefix.len()..].to_vec(), v.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// listxattr(2).
pub fn list(view: View<'_>, cx: &Cx, ino: Ino) -> Result<Vec<Vec<u8>>> {
    let rec = view.load(ino)?;
    let names = all(view, &rec)?.into_iter().map(|(name, _)| name);
    Ok(names.filter(|n| cx.uid == 0 || !n.starts_with(b"trusted.")).collect())
}

/// setxattr(2).
pub fn set(tx: &mut Tx<'_>, cx: &Cx, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    let old = tx.load(ino)?;
    may_write(cx, &old, name)?;
    if value.len() > MAX_VALUE {
        return Err(FsError::TooBig.into());
    }
    let key = keys::xattr(ino, name);
    let present = tx.w.get_for_update(&key)?.is_some();
    match (mode, present) {
        (XattrMode::Create, true) => return Err(FsError::Exists.into()),
        (XattrMode::Replace, false) => return Err(FsError::NoAttribute.into()),
        _ => {}
    }
    let mut rec = old.clone();
    if !present {
        rec.xattrs += name.len() as u32 + 1;
    }
    if rec.xattrs > MAX_LIST {
        return Err(FsError::TooBig.into());
    }
    rec.ctime = cx.now;
    tx.w.put(&key, value)?;
    nodes::changed(tx, &old, &mut rec, cx.now)?;
    tx.replace(Some(&old), Some(&rec))
}

/// removexattr(2).
pub fn remove(tx: &mut Tx<'_>, cx: &Cx, ino: Ino, name: &[u8]) -> Result<()> {
    let old = tx.load(ino)?;
    may_write(cx, &old, name)?;
    let key = keys::xattr(ino, name);
    if tx.w.get_for_update(&key)?.is_none() {
        return Err(FsError::NoAttribute.into());
    }
    let mut rec = old.clone();
    rec.xattrs = rec.xattrs.saturating_sub(name.len() as u32 + 1);
    rec.ctime = cx.now;
    tx.w.delete(&key)?;
    nodes::changed(tx, &old, &mut rec, cx.now)?;
    tx.replace(Some(&old), Some(&rec))
}
