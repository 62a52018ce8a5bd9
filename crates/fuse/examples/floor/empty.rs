//! A file system that does nothing: names live in memory, contents in a few shared files (so every file is handed to the
//! kernel like a resident one, but all of them show the same bytes). What it costs is the cost of FUSE itself.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use types::api::*;
use types::*;

/// Files that the contents share; more than one, so that opens side by side do not meet in one inode.
const SHARED: u64 = 64;

struct Node {
    attr: Attr,
    parent: Ino,
    /// By the cookie of a listing, which is the inode number.
    entries: BTreeMap<u64, Vec<u8>>,
}

#[derive(Default)]
struct Names {
    nodes: HashMap<Ino, Node>,
    by_name: HashMap<(Ino, Vec<u8>), Ino>,
    last: u64,
}

/// The file system.
pub struct Empty {
    names: Mutex<Names>,
    shared: Vec<Arc<OwnedFd>>,
    handles: AtomicU64,
}

fn attr(ino: Ino, kind: FileKind, mode: u32, cx: &Cx) -> Attr {
    let (atime, mtime, ctime, btime) = (cx.now, cx.now, cx.now, cx.now);
    let (uid, gid, rdev, size, disk_bytes) = (cx.uid, cx.gid, 0, 0, 0);
    let nlink = if kind == FileKind::Directory { 2 } else { 1 };
    Attr { ino, kind, mode, nlink, uid, gid, rdev, size, disk_bytes, atime, mtime, ctime, btime }
}

impl Names {
    fn add(&mut self, cx: &Cx, parent: Ino, name: &[u8], kind: FileKind, mode: u32) -> FsResult<Attr> {
        if self.by_name.contains_key(&(parent, name.to_vec())) {
            return Err(FsError::Exists);
        }
        self.last += 1;
        let ino = Ino(self.last);
        let attr = attr(ino, kind, mode, cx);
        self.nodes.insert(ino, Node { attr: attr.clone(), parent, entries: BTreeMap::new() });
        self.by_name.insert((parent, name.to_vec()), ino);
        let dir = self.nodes.get_mut(&parent).ok_or(FsError::NotFound)?;
        dir.entries.insert(ino.0, name.to_vec());
        dir.attr.mtime = cx.now;
        Ok(attr)
    }

    fn remove(&mut self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let ino = self.by_name.get(&(parent, name.to_vec())).copied().ok_or(FsError::NotFound)?;
        if self.nodes.get(&ino).is_some_and(|n| !n.entries.is_empty()) {
            return Err(FsError::NotEmpty);
        }
        self.by_name.remove(&(parent, name.to_vec()));
        self.nodes.remove(&ino);
        if let Some(dir) = self.nodes.get_mut(&parent) {
            dir.entries.remove(&ino.0);
        }
        Ok(())
    }

    fn attr(&self, ino: Ino) -> FsResult<Attr> {
        self.nodes.get(&ino).map(|n| n.attr.clone()).ok_or(FsError::NotFound)
    }
}

impl Empty {
    /// With the shared contents in `dir`, as files without a name.
    pub fn new(dir: &Path) -> std::io::Result<Arc<Self>> {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let shared = (0..SHARED).map(|_| Ok(Arc::new(open(dir, flags, Mode::RUSR | Mode::WUSR)?)));
        let shared = shared.collect::<std::io::Result<_>>()?;
        let mut names = Names { last: Ino::ROOT.0, ..Names::default() };
        let cx = Cx::admin(std::time::SystemTime::now().into());
        let attr = attr(Ino::ROOT, FileKind::Directory, 0o755, &cx);
        names.nodes.insert(Ino::ROOT, Node { attr, parent: Ino::ROOT, entries: BTreeMap::new() });
        Ok(Arc::new(Self { names: Mutex::new(names), shared, handles: AtomicU64::new(1) }))
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn opened(&self, attr: Attr) -> Opened {
        let handle = Handle(self.handles.fetch_add(1, Ordering::Relaxed));
        let backing = Some(self.shared[(attr.ino.0 % SHARED) as usize].clone());
        Opened { handle, attr, backing, parallel_writes: false }
    }
}

impl FileApi for Empty {
    fn clear_set_id(&self, _: &Cx, _: Ino) -> FsResult<bool> {
        Ok(false)
    }
    fn lookup(&self, _cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let names = self.names();
        let ino = names.by_name.get(&(parent, name.to_vec())).copied().ok_or(FsError::NotFound)?;
        names.attr(ino)
    }
    fn getattr(&self, _cx: &Cx, ino: Ino) -> FsResult<Attr> {
        self.names().attr(ino)
    }
    fn setattr(&self, _cx: &Cx, ino: Ino, _set: &SetAttr) -> FsResult<Attr> {
        self.names().attr(ino)
    }
    fn readlink(&self, _cx: &Cx, _ino: Ino) -> FsResult<Vec<u8>> {
        Err(FsError::Invalid)
    }
    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], node: &NewNode) -> FsResult<Attr> {
        self.names().add(cx, parent, name, node.kind, node.mode)
    }
    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> FsResult<Attr> {
        self.names().add(cx, parent, name, FileKind::Directory, mode)
    }
    fn symlink(&self, _cx: &Cx, _parent: Ino, _name: &[u8], _target: &[u8]) -> FsResult<Attr> {
        Err(FsError::NotSupported)
    }
    fn link(&self, _cx: &Cx, _ino: Ino, _parent: Ino, _name: &[u8]) -> FsResult<Attr> {
        Err(FsError::NotSupported)
    }
    fn unlink(&self, _cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.names().remove(parent, name)
    }
    fn rmdir(&self, _cx: &Cx, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.names().remove(parent, name)
    }
    fn rename(&self, _cx: &Cx, _from: (Ino, &[u8]), _to: (Ino, &[u8]), _mode: RenameMode) -> FsResult<()> {
        Err(FsError::NotSupported)
    }
    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, _flags: OpenFlags) -> FsResult<Opened> {
        let attr = self.names().add(cx, parent, name, FileKind::File, mode)?;
        Ok(self.opened(attr))
    }
    fn open(&self, _cx: &Cx, ino: Ino, _flags: OpenFlags) -> FsResult<Opened> {
        let attr = self.names().attr(ino)?;
        Ok(self.opened(attr))
    }
    fn read(&self, _handle: Handle, _offset: u64, _len: u32, done: ReadDone) -> Option<WaitId> {
        done(Ok(Vec::new()));
        None
    }
    fn cancel_wait(&self, _wait: WaitId) {}
    fn write(&self, _handle: Handle, _offset: u64, data: &[u8]) -> FsResult<usize> {
        Ok(data.len())
    }
    fn flush(&self, _handle: Handle) -> FsResult<()> {
        Ok(())
    }
    fn fsync(&self, _handle: Handle, _data_only: bool) -> FsResult<()> {
        Ok(())
    }
    fn release(&self, _handle: Handle) {}
    fn fallocate(&self, _handle: Handle, _mode: i32, _offset: u64, _len: u64) -> FsResult<()> {
        Err(FsError::NotSupported)
    }
    fn seek(&self, _handle: Handle, _offset: u64, _seek: Seek) -> FsResult<u64> {
        Err(FsError::NotSupported)
    }
    fn readdir(&self, _cx: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<DirEntry>> {
        let page = self.readdir_plus(_cx, dir, cookie, limit)?;
        Ok(page.into_iter().map(|(entry, _)| entry).collect())
    }
    fn readdir_plus(&self, _cx: &Cx, dir: Ino, cookie: u64, limit: usize) -> FsResult<Vec<(DirEntry, Attr)>> {
        let names = self.names();
        let entries = names.nodes.get(&dir).ok_or(FsError::NotFound)?.entries.range(cookie + 1..).take(limit);
        let full = |(&cookie, name): (&u64, &Vec<u8>)| {
            let attr = names.attr(Ino(cookie))?;
            Ok((DirEntry { name: name.clone(), ino: attr.ino, kind: attr.kind, cookie }, attr))
        };
        entries.map(full).collect()
    }
    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.names().nodes.get(&dir).map(|n| n.parent).ok_or(FsError::NotFound)
    }
    fn sync_names(&self) -> FsResult<()> {
        Ok(())
    }
    fn statfs(&self) -> FsResult<StatFs> {
        Ok(StatFs { total_bytes: 1 << 40, free_bytes: 1 << 40, files: self.names().nodes.len() as u64 })
    }
    fn getxattr(&self, _cx: &Cx, _ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NoAttribute)
    }
    fn listxattr(&self, _cx: &Cx, _ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
    fn setxattr(&self, _cx: &Cx, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> FsResult<()> {
        Err(FsError::NotSupported)
    }
    fn removexattr(&self, _cx: &Cx, _ino: Ino, _name: &[u8]) -> FsResult<()> {
        Err(FsError::NotSupported)
    }
    fn watch(&self, _watcher: Arc<dyn Watcher>) {}
}
