//! What a call is about, for the log and for whoever is refused.

use wire::FileCall;

/// The file, or what else it is about.
pub(super) fn describe(call: &FileCall) -> String {
    let name = |n: &[u8]| types::escape(n);
    match call {
        FileCall::Resolve { path } | FileCall::Follow { path } => name(path),
        FileCall::Lookup { name: n, .. }
        | FileCall::Mkdir { name: n, .. }
        | FileCall::Unlink { name: n, .. }
        | FileCall::Symlink { name: n, .. }
        | FileCall::Link { name: n, .. }
        | FileCall::Mknod { name: n, .. }
        | FileCall::Create { name: n, .. }
        | FileCall::CreateAs { name: n, .. }
        | FileCall::Rmdir { name: n, .. } => format!("`{}`", name(n)),
        FileCall::Rename { from, to, .. } => format!("`{}` to `{}`", name(&from.1), name(&to.1)),
        FileCall::GetAttr(ino)
        | FileCall::ReadLink(ino)
        | FileCall::Xattrs(ino)
        | FileCall::ClearSetId(ino)
        | FileCall::Parent(ino)
        | FileCall::GetXattr { ino, .. }
        | FileCall::WriteAloneEnd { ino, .. }
        | FileCall::ReturnSpared { ino, .. }
        | FileCall::SparedReturned { ino, .. }
        | FileCall::SetXattrAs { ino, .. }
        | FileCall::Prepare { ino, .. }
        | FileCall::SetAttr { ino, .. }
        | FileCall::Open { ino, .. }
        | FileCall::OpenAs { ino, .. }
        | FileCall::SetXattr { ino, .. }
        | FileCall::RemoveXattr { ino, .. } => format!("inode {ino}"),
        FileCall::ReadDir { dir, .. } => format!("directory inode {dir}"),
        FileCall::Read { .. }
        | FileCall::ReadNow { .. }
        | FileCall::Write { .. }
        | FileCall::WriteAt { .. }
        | FileCall::WriteSpared { .. }
        | FileCall::SettleSpared(_)
        | FileCall::Fsync { .. }
        | FileCall::Fallocate { .. }
        | FileCall::LayoutGet(_)
        | FileCall::LayoutLend(_)
        | FileCall::WriteAlone(_)
        | FileCall::WriteAloneStands { .. }
        | FileCall::LayoutCopies(_)
        | FileCall::CopiesEnd { .. }
        | FileCall::Lock { .. }
        | FileCall::LockAs { .. }
        | FileCall::TestLock { .. }
        | FileCall::LayoutCommit { .. }
        | FileCall::Seek { .. }
        | FileCall::Release { .. } => "open file".into(),
        FileCall::Sync | FileCall::SyncNames => "sync".into(),
        FileCall::StatFs => "the file system".into(),
        FileCall::SparedOver => "what a host has kept".into(),
        FileCall::Withdraw(_) => "a call".into(),
        FileCall::LockEvents { .. } => "locks".into(),
        FileCall::Leased(at) => describe(&at.clone().into()),
        FileCall::Forgotten { .. } => "what is to be forgotten".into(),
    }
}
