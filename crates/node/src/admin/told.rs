//! What a call over a socket changes is told to the mounts of this node, whose kernel may remember it otherwise for an hour.

use super::session::Held;
use crate::Node;
use std::sync::atomic::Ordering;
use types::{FsError, Handle, Ino};
use wire::FileCall;

/// What mounts are to forget.
#[derive(Default)]
pub(super) struct Changes {
    inodes: Vec<Ino>,
    names: Vec<(Ino, Vec<u8>)>,
}

impl Changes {
    fn name(&mut self, (dir, name): (Ino, &[u8])) {
        self.names.push((dir, name.to_vec()));
        self.inodes.push(dir);
    }
}

/// Whether whoever is refused in this way has changed no name. Others may be told after the change.
fn left_names(refusal: FsError) -> bool {
    use FsError as E;
    matches!(
        refusal,
        E::NotFound
            | E::Exists
            | E::NotADirectory
            | E::IsADirectory
            | E::NotEmpty
            | E::AccessDenied
            | E::NotPermitted
            | E::Invalid
            | E::NameTooLong
            | E::Busy
            | E::Quota
            | E::Elsewhere
    )
}

impl Node {
    /// What a call is about to change; nothing if there is no mount.
    pub(super) fn about_to_change(&self, session: &Held, call: &FileCall) -> Changes {
        let mut changes = Changes::default();
        if !self.watched.load(Ordering::Acquire) {
            return changes;
        }
        match call {
            FileCall::Mkdir { parent, name, .. }
            | FileCall::Symlink { parent, name, .. }
            | FileCall::Mknod { parent, name, .. }
            | FileCall::Create { parent, name, .. }
            | FileCall::CreateAs { parent, name, .. }
            | FileCall::Rmdir { parent, name } => changes.name((*parent, name)),
            FileCall::Unlink { parent, name } => {
                // It may have other names, and is one link short then.
                changes.inodes.extend(self.named(*parent, name));
                changes.name((*parent, name));
            }
            FileCall::Link { ino, parent, name } => {
                changes.inodes.push(*ino);
                changes.name((*parent, name));
            }
            FileCall::Rename { from, to, .. } => {
                for (dir, name) in [from, to] {
                    changes.inodes.extend(self.named(*dir, name));
                    changes.name((*dir, name));
                }
            }
            FileCall::SetAttr { ino, .. }
            | FileCall::SetXattr { ino, .. }
            | FileCall::SetXattrAs { ino, .. }
            | FileCall::RemoveXattr { ino, .. }
            | FileCall::ClearSetId(ino)
            | FileCall::Open { ino, truncate: true, .. }
            | FileCall::Open { ino, write: true, .. } => changes.inodes.push(*ino),
            // Whoever writes by a descriptor is not seen from here on.
            FileCall::OpenAs { ino, flags } if flags.truncate || flags.write => changes.inodes.push(*ino),
            FileCall::Write { handle, .. }
            | FileCall::WriteAt { handle, .. }
            | FileCall::WriteSpared { handle, .. }
            | FileCall::Fallocate { handle, .. }
            | FileCall::LayoutCommit { handle, .. }
            | FileCall::Release { handle, .. } => changes.inodes.extend(self.written(session, *handle)),
            _ => {}
        }
        changes
    }

    /// It is done, or was refused. Linux takes away what is mounted on a name, and below it, when it is told to forget that: it is told of no name that is as it was.
    pub(super) fn has_changed(&self, mut changes: Changes, refused: Option<FsError>) {
        if refused.is_some_and(left_names) {
            changes.names.clear();
        }
        if changes.inodes.is_empty() && changes.names.is_empty() {
            return;
        }
        for watcher in &*self.watchers.read() {
            changes.names.iter().for_each(|(dir, name)| watcher.entry_changed(*dir, name));
            changes.inodes.iter().for_each(|ino| watcher.attributes_changed(*ino));
            // Who is answered knows that it is seen everywhere.
            watcher.wait_forgotten();
        }
    }

    fn named(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.catalog.lookup(dir, name).ok().map(|inode| inode.attr.ino)
    }

    /// The inode of a handle that may write.
    fn written(&self, session: &Held, handle: Handle) -> Option<Ino> {
        let file = self.open.handle(handle).filter(|_| session.has(handle))?;
        file.flags.write.then_some(file.inode.ino)
    }
}
