//! Names and attributes. All Relaxed: in order, on stable storage soon, or at the next `sync` or Durable operation.

use super::Catalog;
use crate::ops::{create, done, link, list, lookup, path, remove, rename, resolve, setattr, sums, xattr};
use crate::perm;
use crate::{Listed, New, Removed, Result, Totals, Usage};
use types::api::XattrMode;
use types::*;

impl Catalog {
    /// Finds a name; `.` and `..` too. Checks no permission.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Inode> {
        self.read(|v| v.inode(&lookup::lookup(v, parent, name)?))
    }

    /// An inode by its number, open-unlinked ones included.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        self.read(|v| v.inode(&v.load(ino)?))
    }

    /// Target of a symlink.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.read(|v| lookup::readlink(v, &v.load(ino)?))
    }

    /// At most `limit` entries after `cookie` (0: from the start), in order of cookies, without `.` and `..`; fewer only at the
    /// end. Damaged entries are named, and listed too if the table of names has them.
    pub fn readdir(&self, dir: Ino, cookie: u64, limit: usize) -> Result<Listed<DirEntry>> {
        self.read(|v| list::readdir(v, dir, cookie, limit))
    }

    /// The same with inodes.
    pub fn readdir_plus(
        &self,
        dir: Ino,
        cookie: u64,
        limit: usize,
    ) -> Result<Listed<(DirEntry, Result<Inode>)>> {
        self.read(|v| list::readdir_plus(v, dir, cookie, limit))
    }

    /// Parent of a directory; the root is its own.
    pub fn parent(&self, dir: Ino) -> Result<Ino> {
        self.read(|v| resolve::parent(v, dir))
    }

    /// One absolute path of an inode; `NotFound` for an open-unlinked one.
    pub fn path_of(&self, ino: Ino) -> Result<Vec<u8>> {
        self.read(|v| path::path_of(v, ino))
    }

    /// Walks an absolute path, with search permission checked on each directory and symlinks followed (at most 40);
    /// the last one only if `follow_last`.
    pub fn resolve(&self, cx: &Cx, path: &[u8], follow_last: bool) -> Result<Inode> {
        self.read(|v| v.inode(&resolve::resolve(v, cx, path, follow_last)?))
    }

    /// Refuses with `AccessDenied` unless the mode bits grant `want` (4 read, 2 write, 1 execute or search). uid 0 has
    /// read and write everywhere, execute where any execute bit is set or on directories.
    pub fn access(&self, cx: &Cx, attr: &Attr, want: u32) -> Result<()> {
        perm::check(cx, attr, want)
    }

    /// Makes a node. Its owner is the caller; a setgid directory gives it its group (and a directory the bit); its class
    /// is its directory's.
    pub fn create(&self, cx: &Cx, parent: Ino, name: &[u8], new: &New) -> Result<Inode> {
        let id = Ino(self.next_id()?);
        self.relaxed(|tx| {
            let made = create::create(tx, cx, parent, name, new, id)?;
            done::record(tx, cx, Some(id)).map(|()| made)
        })
    }

    /// Adds a hard link to anything but a directory.
    pub fn link(&self, cx: &Cx, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode> {
        let cookie = self.next_id()?;
        self.relaxed(|tx| {
            let linked = link::link(tx, cx, ino, parent, name, cookie)?;
            done::record(tx, cx, Some(ino)).map(|()| linked)
        })
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
        self.relaxed(|tx| {
            let removed = remove::unlink(tx, cx, parent, name, is_open)?;
            done::record(tx, cx, None).map(|()| removed)
        })
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, cx: &Cx, parent: Ino, name: &[u8]) -> Result<()> {
        self.relaxed(|tx| {
            remove::rmdir(tx, cx, parent, name)?;
            done::record(tx, cx, None)
        })
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
        let cookie = self.next_id()?;
        self.relaxed(|tx| {
            let replaced = rename::rename(tx, cx, from, to, mode, is_open, cookie)?;
            done::record(tx, cx, None).map(|()| replaced)
        })
    }

    /// Changes mode, owner, group and times by POSIX's rules. `set.size` is ignored: length belongs to `observe`. A time
    /// equal to `cx.now` means "now" (UTIME_NOW): write permission is enough for it.
    pub fn setattr(&self, cx: &Cx, ino: Ino, set: &SetAttr) -> Result<Inode> {
        self.relaxed(|tx| setattr::setattr(tx, cx, ino, set))
    }

    /// Takes set-user-id, and set-group-id where it means "run as group", from the mode that a file has at this moment: a
    /// change of the mode just before is kept. True if there was any. Durable: the bytes that somebody writes next may outlive
    /// a crash, and must not run with the rights of the owner.
    pub fn clear_set_id(&self, ino: Ino, now: Time) -> Result<bool> {
        if !self.read(|v| Ok(setattr::has_set_id(&v.load(ino)?)))? {
            return Ok(false);
        }
        self.durable(|tx| setattr::clear_set_id(tx, ino, now))
    }

    /// An orphan was closed: forgets it and returns its object (to be removed once durable, see [`Removed`]). Does nothing
    /// to an inode that has a name or is gone already.
    pub fn reap(&self, ino: Ino) -> Result<Option<ObjectId>> {
        self.relaxed(|tx| remove::reap(tx, ino))
    }

    /// Open-unlinked inodes; after a restart all of them are to be reaped.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        self.read(remove::orphans)
    }

    /// Value of an extended attribute.
    pub fn getxattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.read(|v| xattr::get(v, cx, ino, name))
    }

    /// Names of extended attributes, in byte order; `trusted.` ones only for uid 0.
    pub fn listxattr(&self, cx: &Cx, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.read(|v| xattr::list(v, cx, ino))
    }

    /// Sets an extended attribute: `user.`, `trusted.`, `security.` or the two POSIX ACLs, stored as given.
    pub fn setxattr(&self, cx: &Cx, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.relaxed(|tx| {
            xattr::set(tx, cx, ino, name, value, mode)?;
            done::record(tx, cx, None)
        })
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, cx: &Cx, ino: Ino, name: &[u8]) -> Result<()> {
        self.relaxed(|tx| {
            xattr::remove(tx, cx, ino, name)?;
            done::record(tx, cx, None)
        })
    }

    /// Sums over the namespace; costs a read per user.
    pub fn totals(&self) -> Result<Totals> {
        self.read(sums::totals)
    }

    /// What one user holds.
    pub fn usage(&self, uid: u32) -> Result<Usage> {
        self.read(|v| sums::usage(v, uid))
    }

    /// What every user who holds anything holds, in order of uid.
    pub fn usages(&self) -> Result<Vec<(u32, Usage)>> {
        self.read(sums::usages)
    }
}
