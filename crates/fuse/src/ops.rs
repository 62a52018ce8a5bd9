//! Names, attributes, listings and extended attributes.

use crate::attr::{absent, file_attr, file_type, ino, kind_of_mode, set_time};
use crate::errno::errno;
use crate::gateway::{Core, cx};
use fuser::{
    Errno, FileType, Generation, INodeNo, RenameFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyXattr, Request, TimeOrNow,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use types::api::{FsResult, NewNode, XattrMode};
use types::{Attr, Cx, FsError, Ino, RenameMode, SetAttr};

/// Inode numbers are never reused.
pub(crate) const GENERATION: Generation = Generation(0);
/// Entries fetched at once for a listing with attributes; the kernel's buffer (32 KiB) holds about 180.
const PLUS_CHUNK: usize = 96;
/// Entries fetched at once for a plain listing; the kernel's buffer holds about 800.
const PLAIN_CHUNK: usize = 256;
/// Offsets 0 and 1 belong to `.` and `..`; then the interface's cookies follow, shifted by this.
const DOTS: u64 = 2;
const BLOCK: u32 = 4096;

/// What setattr is asked to change.
pub(crate) struct Change {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

/// Whether set-id bits go with this change by `uid` (FUSE_HANDLE_KILLPRIV_V2 leaves that to us): with a new length set by
/// somebody without the privilege, and with a change of nothing, which is all that the kernel says when somebody without it
/// writes to such a file through passthrough (`a_write_by_another_user_clears_set_id_bits`).
fn clears_set_id(set: &SetAttr, uid: u32) -> bool {
    *set == SetAttr::default() || (set.mode.is_none() && set.size.is_some() && uid != 0)
}

/// Changes attributes. The kernel has checked who may (`default_permissions`), with supplementary groups that are not
/// sent here, and it has set-id bits cleared in the name of writers who do not own the file; so the call is made as root.
pub(crate) fn setattr(core: &Arc<Core>, req: &Request, node: INodeNo, change: Change, reply: ReplyAttr) {
    let cx = Cx { uid: 0, gid: 0, ..cx(req) };
    let set = SetAttr {
        mode: change.mode.map(|m| m & 0o7777),
        uid: change.uid,
        gid: change.gid,
        size: change.size,
        atime: change.atime.map(|t| set_time(t, cx.now)),
        mtime: change.mtime.map(|t| set_time(t, cx.now)),
    };
    let ino = ino(node);
    core.opens.changes(ino);
    if clears_set_id(&set, req.uid())
        && let Err(error) = core.api.clear_set_id(&cx, ino)
    {
        return reply.error(errno(error));
    }
    let again = Arc::clone(core);
    if set.size.is_none_or(|size| size == 0) {
        let pool = if set.size.is_some() { &core.open_pool } else { &core.attr_pool };
        let waits = core.api.may_wait_to_open(ino, None, set.size.is_some());
        let slot = waits.then(|| pool.slot()).flatten();
        let change = move || again.reply_attr(again.api.setattr(&cx, ino, &set), reply);
        return match slot {
            Some(slot) => slot.run_here(change),
            None => change(),
        };
    }
    let refused =
        crate::io::when_changeable(core, req.pid(), ino, false, core.change_pool.slot(), move |ready| {
            match ready {
                Ok(()) => again.reply_attr(again.api.setattr(&cx, ino, &set), reply),
                Err(error) => reply.error(errno(error)),
            }
        });
    if let Err(job) = refused {
        job(Err(FsError::WouldBlock));
    }
}

impl Core {
    /// How long the kernel may keep the attributes of `ino`: not while a writable mapping of it may exist, through
    /// which content changes unseen, or a program beside the mount writes into its object.
    pub(crate) fn attr_ttl(&self, ino: Ino) -> Duration {
        if self.opens.may_be_mapped(ino) || self.api.changes_unseen(ino) {
            return Duration::ZERO;
        }
        // A kernel that keeps nothing may do so for a moment with an inode that it has already: it can be told of a change.
        if self.ttl.is_zero() && self.known.has(ino) { self.api.attr_term(ino) } else { self.ttl }
    }

    fn reply_attr(&self, result: FsResult<Attr>, reply: ReplyAttr) {
        match result {
            Ok(attr) => reply.attr(&self.attr_ttl(attr.ino), &file_attr(&attr)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn reply_entry(&self, result: FsResult<Attr>, reply: ReplyEntry) {
        match result {
            Ok(attr) => {
                let ttl = self.attr_ttl(attr.ino);
                self.note_known(attr.ino);
                reply.entry_with_ttls(&ttl, &self.ttl, &file_attr(&attr), GENERATION);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(crate) fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (cx, parent) = (cx(req), ino(parent));
        let found = match name.as_bytes() {
            b"." => self.attr_of(&cx, parent),
            b".." => {
                self.may_wait();
                self.api.parent(parent).and_then(|p| self.api.getattr(&cx, p))
            }
            name => self.api.lookup_at_once(&cx, parent, name).unwrap_or_else(|| {
                self.may_wait();
                self.api.lookup(&cx, parent, name)
            }),
        };
        match found {
            Err(FsError::NotFound) => reply.entry(&self.ttl, &absent(), GENERATION),
            found => self.reply_entry(found, reply),
        }
    }

    /// The kernel has this inode from now on, until it says that it forgot it.
    fn note_known(&self, ino: Ino) {
        if self.ttl.is_zero() {
            self.known.enter(ino);
        }
    }

    pub(crate) fn getattr(&self, req: &Request, node: INodeNo, reply: ReplyAttr) {
        // Whoever asks holds it.
        self.note_known(ino(node));
        let made = self.opens.take_made(ino(node), req.pid());
        self.reply_attr(made.map_or_else(|| self.attr_of(&cx(req), ino(node)), Ok), reply);
    }

    /// Attributes, at once if they are known, else when they have been asked for.
    fn attr_of(&self, cx: &Cx, ino: Ino) -> FsResult<Attr> {
        self.api.getattr_at_once(cx, ino).map_or_else(
            || {
                self.may_wait();
                self.api.getattr(cx, ino)
            },
            Ok,
        )
    }

    pub(crate) fn readlink(&self, req: &Request, node: INodeNo, reply: ReplyData) {
        match self.api.readlink(&cx(req), ino(node)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(crate) fn mknod(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        let node = NewNode { kind, mode: mode & 0o7777, rdev };
        self.reply_entry(self.api.mknod(&cx(req), ino(dir), name.as_bytes(), &node), reply);
    }

    pub(crate) fn mkdir(&self, req: &Request, dir: INodeNo, name: &OsStr, mode: u32, reply: ReplyEntry) {
        self.reply_entry(self.api.mkdir(&cx(req), ino(dir), name.as_bytes(), mode & 0o7777), reply);
    }

    pub(crate) fn symlink(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        self.reply_entry(self.api.symlink(&cx(req), ino(dir), name.as_bytes(), target), reply);
    }

    pub(crate) fn link(&self, req: &Request, node: INodeNo, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(self.api.link(&cx(req), ino(node), ino(dir), name.as_bytes()), reply);
    }

    pub(crate) fn unlink(&self, req: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.api.unlink(&cx(req), ino(dir), name.as_bytes()), reply);
    }

    pub(crate) fn rmdir(&self, req: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.api.rmdir(&cx(req), ino(dir), name.as_bytes()), reply);
    }

    pub(crate) fn rename(
        &self,
        req: &Request,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags.bits() {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL), // whiteouts are for overlayfs' upper layers
        };
        let (from, to) = ((ino(from.0), from.1.as_bytes()), (ino(to.0), to.1.as_bytes()));
        reply_empty(self.api.rename(&cx(req), from, to, mode), reply);
    }

    pub(crate) fn readdir(&self, req: &Request, node: INodeNo, mut offset: u64, mut reply: ReplyDirectory) {
        let (cx, dir) = (cx(req), ino(node));
        while offset < DOTS {
            let (name, of) = match offset {
                0 => (".", Ok(dir)),
                _ => ("..", self.api.parent(dir)),
            };
            let of = match of {
                Ok(of) => of,
                Err(error) => return reply.error(errno(error)),
            };
            offset += 1;
            if reply.add(INodeNo(of.0), offset, FileType::Directory, name) {
                return reply.ok();
            }
        }
        let mut cookie = offset - DOTS;
        let mut some = offset > DOTS;
        loop {
            let entries = match self.api.readdir(&cx, dir, cookie, PLAIN_CHUNK) {
                Ok(entries) => entries,
                Err(_) if some => return reply.ok(),
                Err(error) => return reply.error(errno(error)),
            };
            for e in &entries {
                let name = OsStr::from_bytes(&e.name);
                if reply.add(INodeNo(e.ino.0), e.cookie + DOTS, file_type(e.kind), name) {
                    return reply.ok();
                }
            }
            match entries.last() {
                Some(last) if entries.len() == PLAIN_CHUNK => cookie = last.cookie,
                _ => return reply.ok(),
            }
            some = true;
        }
    }

    pub(crate) fn readdir_plus(
        &self,
        req: &Request,
        node: INodeNo,
        mut offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (cx, dir) = (cx(req), ino(node));
        while offset < DOTS {
            let (name, of) = match offset {
                0 => (".", Ok(dir)),
                _ => ("..", self.api.parent(dir)),
            };
            // the kernel takes number and kind from these two, nothing else
            let of = match of.and_then(|of| self.api.getattr(&cx, of)) {
                Ok(of) => of,
                Err(error) => return reply.error(errno(error)),
            };
            offset += 1;
            if reply.add(INodeNo(of.ino.0), offset, name, &Duration::ZERO, &file_attr(&of), GENERATION) {
                return reply.ok();
            }
        }
        let mut cookie = offset - DOTS;
        loop {
            let entries = match self.api.readdir_plus(&cx, dir, cookie, PLUS_CHUNK) {
                Ok(entries) => entries,
                Err(error) => return reply.error(errno(error)),
            };
            for (e, attr) in &entries {
                let name = OsStr::from_bytes(&e.name);
                // A damaged inode is not remembered: its stat asks again, and gets the error.
                // It counts for the name too, of which a kernel that keeps nothing cannot be told in time.
                let none = attr.nlink == 0 || self.ttl.is_zero();
                let ttl = if none { Duration::ZERO } else { self.attr_ttl(e.ino) };
                let attr = file_attr(attr);
                if reply.add(INodeNo(e.ino.0), e.cookie + DOTS, name, &ttl, &attr, GENERATION) {
                    return reply.ok();
                }
                self.note_known(e.ino);
            }
            match entries.last() {
                Some((last, _)) if entries.len() == PLUS_CHUNK => cookie = last.cookie,
                _ => return reply.ok(),
            }
        }
    }

    pub(crate) fn statfs(&self, reply: ReplyStatfs) {
        match self.api.statfs() {
            Ok(s) => {
                let (total, free) = (s.total_bytes / u64::from(BLOCK), s.free_bytes / u64::from(BLOCK));
                // inodes are made as long as there is space: one per free block is what can be promised
                reply.statfs(total, free, free, s.files.saturating_add(free), free, BLOCK, 255, BLOCK);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(crate) fn setxattr(
        &self,
        req: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        if is_unenforced(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        reply_empty(self.api.setxattr(&cx(req), ino(node), name.as_bytes(), value, mode), reply);
    }

    pub(crate) fn getxattr(&self, req: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if is_unenforced(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.api.getxattr(&cx(req), ino(node), name.as_bytes()) {
            Ok(value) => reply_sized(&value, size, reply),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(crate) fn listxattr(&self, req: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        match self.api.listxattr(&cx(req), ino(node)) {
            Ok(mut names) => {
                names.retain(|name| !is_unenforced(OsStr::from_bytes(name)));
                names.iter_mut().for_each(|name| name.push(0));
                reply_sized(&names.concat(), size, reply);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(crate) fn removexattr(&self, req: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if is_unenforced(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        reply_empty(self.api.removexattr(&cx(req), ino(node), name.as_bytes()), reply);
    }
}

/// POSIX ACLs and SELinux labels are refused as not supported: stored but not enforced they would deceive their owner.
/// It also spares `ls -l` a request per file: it asks no more once it has been told so.
fn is_unenforced(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"system.posix_acl_") || name.as_bytes() == b"security.selinux"
}

pub(crate) fn reply_empty(result: FsResult<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// The length for a caller who asks with 0, the value if it fits, else ERANGE.
fn reply_sized(value: &[u8], size: u32, reply: ReplyXattr) {
    match (size, u32::try_from(value.len())) {
        (0, Ok(len)) => reply.size(len),
        (_, Ok(len)) if len <= size => reply.data(value),
        (_, Ok(_)) => reply.error(Errno::ERANGE),
        (_, Err(_)) => reply.error(Errno::E2BIG),
    }
}
