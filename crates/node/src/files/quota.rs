//! Quotas: whoever holds as much as he may makes no more. Looked at a few times a second and kept for who asks, so that an
//! open costs nothing; what somebody writes in between, or through files that are open already, goes beyond.

use crate::Node;
use crate::error::fs_error;
use parking_lot::RwLock;
use std::collections::HashMap;
use types::api::{FsResult, OpenFlags};
use types::*;

/// Owners who are at their limits.
#[derive(Default)]
pub struct Quotas {
    over: RwLock<HashMap<u32, Over>>,
}

/// What an owner has used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Over {
    files: bool,
    bytes: bool,
}

impl Over {
    fn of(quota: &Quota, usage: &catalog::Usage) -> Self {
        let reached = |held: u64, most: u64| most > 0 && held >= most;
        Self {
            files: reached(usage.files, quota.files),
            bytes: reached(usage.bytes, quota.bytes)
                || reached(usage.disk_bytes.saturating_add(usage.target_bytes), quota.disk_bytes)
                || reached(usage.tape_bytes, quota.tape_bytes),
        }
    }

    fn any(self) -> bool {
        self.files || self.bytes
    }
}

impl Node {
    /// Looks at what owners hold.
    ///
    /// # Errors
    /// The catalogue fails: what was seen last stays.
    pub(crate) fn look_at_quotas(&self) -> FsResult<()> {
        let fail = |e| fs_error("look at quotas", &e);
        let quotas = self.catalog.quotas().map_err(fail)?;
        let mut over = HashMap::new();
        if !quotas.is_empty() {
            let others = quotas.iter().find(|q| q.uid.is_none());
            for (uid, usage) in self.catalog.usages().map_err(fail)? {
                let own = quotas.iter().find(|q| q.uid == Some(uid)).or(others.filter(|_| uid != 0));
                let used_up = own.map(|quota| Over::of(quota, &usage)).filter(|over| over.any());
                over.extend(used_up.map(|o| (uid, o)));
            }
        }
        let mut known = self.quotas.over.write();
        if *known != over {
            for (uid, o) in over.iter().filter(|(uid, _)| !known.contains_key(uid)) {
                tracing::info!("uid {uid} holds as much as its quota allows: {o:?}");
            }
            *known = over;
        }
        Ok(())
    }

    /// Whether `cx` may make another file, directory or other node; the administrator may.
    pub(crate) fn may_make(&self, cx: &Cx) -> FsResult<()> {
        self.within(cx, cx.uid, |over| over.files)
    }

    /// Whether a file may get this length.
    pub(crate) fn may_resize(&self, cx: &Cx, ino: Ino, size: u64) -> FsResult<()> {
        if size == 0 || !self.applies(cx) {
            return Ok(());
        }
        let attr = self.shown(self.catalog.inode(ino).map_err(|e| fs_error("truncate", &e))?);
        if size > attr.size { self.may_grow(cx, attr.uid) } else { Ok(()) }
    }

    /// Whether content may be added to a file of `owner` by `cx`.
    pub(crate) fn may_grow(&self, cx: &Cx, owner: u32) -> FsResult<()> {
        self.within(cx, owner, |over| over.bytes)
    }

    /// Whether a file may be opened so; its owner is looked up only if somebody is at his limits.
    pub(crate) fn may_write(&self, cx: &Cx, ino: Ino, flags: OpenFlags) -> FsResult<()> {
        if !flags.write || !self.applies(cx) {
            return Ok(());
        }
        let inode = self.catalog.inode(ino).map_err(|e| fs_error("open", &e))?;
        self.may_grow(cx, inode.attr.uid)
    }

    /// Whether anybody is at his limits, and `cx` is not the administrator.
    fn applies(&self, cx: &Cx) -> bool {
        cx.uid != 0 && !self.quotas.over.read().is_empty()
    }

    fn within(&self, cx: &Cx, uid: u32, used_up: impl Fn(&Over) -> bool) -> FsResult<()> {
        let refused = cx.uid != 0 && self.quotas.over.read().get(&uid).is_some_and(used_up);
        if refused { Err(FsError::Quota) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_disk_space_counts_the_nodes_disk_and_targets_together() {
        let quota = Quota { disk_bytes: 100, ..Quota::default() };
        let over = |disk_bytes, target_bytes| {
            Over::of(&quota, &catalog::Usage { bytes: 500, disk_bytes, target_bytes, ..Default::default() })
        };
        assert!(!over(60, 39).any());
        assert_eq!(over(60, 40), Over { files: false, bytes: true });
        assert!(over(0, 100).bytes && over(100, 0).bytes);
        assert!(
            Over::of(&Quota::default(), &catalog::Usage { target_bytes: 1, ..Default::default() })
                == Over::default()
        );
    }
}
