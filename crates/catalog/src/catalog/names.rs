//! Names and attributes. All Relaxed: in order, on stable storage soon, or at the next `sync` or Durable operation.

use super::Catalog;
use crate::{New, Removed, Result, Totals, Usage};
use types::api::XattrMode;
use types::*;

impl Catalog {
    /// Finds a name; `.` and `..` too. Checks no permission.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Inode> {
        todo!()
    }

    /// An inode by its number, open-unlinked ones included.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        todo!()
    }

    /// Target of a symlink.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        todo!()
    }

    /// At most `limit` entries after `cookie` (0: from the start), in order of cookies, without `.` and `..`.
    pub fn readdir(&self, dir: Ino, cookie: u64, limit: usize) -> Result<Vec<DirEntry>> {
        todo!()
    }

    /// The same with inodes.
    pub fn readdir_plus(&self, dir: Ino, cookie: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        todo!()
    }

    /// Parent of a directory; the root is its own.
    pub fn parent(&self, dir: Ino) -> Result<Ino> {
        todo!()
    }

    /// One absolute path of an inode; `NotFound` for an open-unlinked one.
    pub fn path_of(&self, ino: Ino) -> Result<Vec<u8>> {
        todo!()
    }

    /// Walks an absolute path, with search permission checked on each directory and symlinks followed (at most 40);
    /// the last one only if `follow_last`.
    pub fn resolve(&self, cx: &Cx, path: &[u8], follow_last: bool) -> Result<Inode> {
        todo!()
    }

    /// Refuses with `AccessDenied` unless the mode bits grant `want` (4 read, 2 write, 1 execute or search). uid 0 has
    /// read and write everywhere, execute where any execute bit is set or on directories.
    pub fn access(&self, cx: &Cx, attr: &Attr, want: u32) -> Result<()> {
        todo!()
    }

    /// Makes a node. Its owner is the caller; a setgid directory gives it its group (and a directory the bit); its class
    /// is its directory's.
    pub fn create(&self, cx: &Cx, parent: Ino, name: &[u8], new: &New) -> Result<Inode> {
        todo!()
    }

    /// Adds a hard link to anything but a directory.
    pub fn link(&self, cx: &Cx, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode> {
        todo!()
    }

    /// Removes a name that is not a directory. The last link of an inode that `is_open` leaves an orphan. `is_open` is
    /// called within the transaction, maybe more than once.
    pub fn unlink(
        &self,
        cx: &Cx,
        parent: Ino,
        name: &[u8],
        is_open: &dyn Fn(Ino) -> bool,
    ) -> Result<Removed> {
        todo!()
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, cx: &Cx, parent: Ino, name: &[u8]) -> Result<()> {
        todo!()
    }

    /// Renames; the result is what became of a replaced node (also a replaced directory).
    pub fn rename(
        &self,
        cx: &Cx,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        is_open: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>> {
        todo!()
    }

    /// Changes mode, owner, group and times by POSIX's rules. `set.size` is ignored: length belongs to `observe`. A time
    /// equal to `cx.now` means "now" (UTIME_NOW): write permission is enough for it.
    pub fn setattr(&self, cx: &Cx, ino: Ino, set: &SetAttr) -> Result<Inode> {
        todo!()
    }

    /// An orphan was closed: forgets it and returns its object (to be removed once durable, see [`Removed`]). Does nothing
    /// to an inode that has a name or is gone already.
    pub fn reap(&self, ino: Ino) -> Result<Option<ObjectId>> {
        todo!()
    }

    /// Open-unlinked inodes; after a restart all of them are to be reaped.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        todo!()
    }

    /// Value of an extended attribute.
    pub fn getxattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        todo!()
    }

    /// Names of extended attributes, in byte order; `trusted.` ones only for uid 0.
    pub fn listxattr(&self, cx: &Cx, ino: Ino) -> Result<Vec<Vec<u8>>> {
        todo!()
    }

    /// Sets an extended attribute: `user.`, `trusted.`, `security.` or the two POSIX ACLs, stored as given.
    pub fn setxattr(&self, cx: &Cx, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        todo!()
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> Result<()> {
        todo!()
    }

    /// Sums over the namespace; costs a read per user.
    pub fn totals(&self) -> Result<Totals> {
        todo!()
    }

    /// What one user holds.
    pub fn usage(&self, uid: u32) -> Result<Usage> {
        todo!()
    }
}
