//! A local file system as an end of a copy. Places are paths; nothing here follows a symlink.

use super::NodeTree;
use super::tree::{Item, Open, Seed, Sink, Source, Xattrs, aim, split};
use crate::ClientError;
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{Attr, FileKind, Ino, Time};

type Done<T> = Result<T, ClientError>;

/// A local tree.
#[derive(Clone, Debug, Default)]
pub struct LocalTree {
    /// The file system that `sync` makes durable.
    root: Option<Arc<File>>,
}

impl LocalTree {
    /// A tree to write to, below `dest` or beside it.
    ///
    /// # Errors
    /// Neither `dest` nor its parent is a directory.
    pub fn syncing(dest: &Path) -> Done<Self> {
        let dir = if dest.is_dir() { dest } else { parent_of(dest) };
        let root = File::open(dir).map_err(|e| ClientError::local("cannot open the directory", dir, e))?;
        Ok(Self { root: Some(Arc::new(root)) })
    }

    pub(super) fn again(&self) -> Done<Self> {
        Ok(self.clone())
    }
}

pub(super) fn seeds(
    sources: &[PathBuf],
    sink: &mut NodeTree,
    dest: &[u8],
    exact: &mut bool,
) -> Done<Vec<Seed<PathBuf, Ino>>> {
    let (parent, given) = aim(dest, sources.len(), exact, &mut |path| sink.resolve(path))?;
    let seed = |path: &PathBuf| {
        let meta = path.symlink_metadata().map_err(|e| ClientError::local("cannot read", path, e))?;
        let whole = path.canonicalize().ok().and_then(|p| Some(p.file_name()?.as_bytes().to_vec()));
        let own = match path.file_name() {
            Some(name) => Some(name.as_bytes().to_vec()),
            None => whole,
        };
        Ok(Seed {
            item: item(path.clone(), &meta),
            path: path.as_os_str().as_bytes().to_vec(),
            parent,
            name: given.clone().or(own),
        })
    };
    sources.iter().map(seed).collect()
}

pub(super) fn resolve(path: &[u8]) -> Done<Option<Item<PathBuf>>> {
    let path = PathBuf::from(OsStr::from_bytes(path));
    match path.metadata() {
        Ok(meta) => Ok(Some(item(path, &meta))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(ClientError::local("cannot look up", &path, e)),
    }
}

fn parent_of(path: &Path) -> &Path {
    Path::new(OsStr::from_bytes(split(path.as_os_str().as_bytes()).0))
}

fn item(place: PathBuf, meta: &Metadata) -> Item<PathBuf> {
    Item { place, attr: attr(meta), dev: meta.dev() }
}

fn attr(meta: &Metadata) -> Attr {
    let kind = meta.file_type();
    let kind = match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () => FileKind::File,
    };
    Attr {
        ino: Ino(meta.ino()),
        kind,
        mode: meta.mode() & 0o7777,
        nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: meta.rdev() as u32,
        size: meta.size(),
        disk_bytes: meta.blocks().saturating_mul(512),
        atime: Time::new(meta.atime(), meta.atime_nsec() as u32),
        mtime: Time::new(meta.mtime(), meta.mtime_nsec() as u32),
        ctime: Time::new(meta.ctime(), meta.ctime_nsec() as u32),
        btime: meta.created().map(Time::from).unwrap_or_default(),
    }
}

fn child(parent: &Path, name: &[u8]) -> PathBuf {
    parent.join(OsStr::from_bytes(name))
}

impl Source for LocalTree {
    type Place = PathBuf;

    fn children(
        &mut self,
        dir: &PathBuf,
        each: &mut dyn FnMut(Vec<u8>, Done<Item<PathBuf>>) -> bool,
    ) -> Done<()> {
        let failed = |e| ClientError::local("cannot list", dir, e);
        for entry in dir.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let found = match entry.metadata() {
                Ok(meta) => Ok(item(path, &meta)),
                Err(e) => Err(ClientError::local("cannot read", &path, e)),
            };
            if !each(entry.file_name().as_bytes().to_vec(), found) {
                break;
            }
        }
        Ok(())
    }

    fn attr(&mut self, place: &PathBuf) -> Done<Attr> {
        let meta = place.symlink_metadata().map_err(|e| ClientError::local("cannot read", place, e))?;
        Ok(attr(&meta))
    }

    fn link_target(&mut self, place: &PathBuf) -> Done<Vec<u8>> {
        let target = place.read_link().map_err(|e| ClientError::local("cannot read the link", place, e))?;
        Ok(target.as_os_str().as_bytes().to_vec())
    }

    fn xattrs(&mut self, place: &PathBuf) -> Done<Xattrs> {
        read_xattrs(place).map_err(|e| ClientError::local("cannot read the extended attributes of", place, e))
    }

    fn open(&mut self, place: &PathBuf) -> Done<Open> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::options().read(true).custom_flags(flags.bits() as i32).open(place);
        let file = file.map_err(|e| ClientError::local("cannot open", place, e))?;
        Ok(Open { file: Some(file), handle: None })
    }

    fn read(&mut self, _open: &Open, _offset: u64, _len: usize) -> Done<Vec<u8>> {
        Err(ClientError::WrongAnswer { asked: "local read" })
    }

    fn close(&mut self, _open: Open) -> Done<()> {
        Ok(())
    }
}

/// Names are read anew if they change in between; an attribute that vanishes meanwhile is left out.
fn read_xattrs(path: &Path) -> io::Result<Xattrs> {
    let mut names = vec![0; 64 << 10];
    let len = match fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let mut found = Vec::new();
    for name in names[..len].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; 64 << 10];
        match fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                found.push((name.to_vec(), value));
            }
            Err(rustix::io::Errno::NODATA) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}

impl Sink for LocalTree {
    type Place = PathBuf;

    fn lookup(&mut self, parent: &PathBuf, name: &[u8]) -> Done<Option<Item<PathBuf>>> {
        let path = child(parent, name);
        match path.symlink_metadata() {
            Ok(meta) => Ok(Some(item(path, &meta))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(ClientError::local("cannot look up", &path, e)),
        }
    }

    fn mkdir(&mut self, parent: &PathBuf, name: &[u8]) -> Done<PathBuf> {
        let path = child(parent, name);
        fs::mkdirat(CWD, &path, Mode::RWXU)
            .map_err(|e| ClientError::local("cannot make the directory", &path, e))?;
        Ok(path)
    }

    fn symlink(&mut self, parent: &PathBuf, name: &[u8], target: &[u8]) -> Done<PathBuf> {
        let path = child(parent, name);
        fs::symlinkat(OsStr::from_bytes(target), CWD, &path)
            .map_err(|e| ClientError::local("cannot make the link", &path, e))?;
        Ok(path)
    }

    fn mknod(&mut self, parent: &PathBuf, name: &[u8], attr: &Attr) -> Done<PathBuf> {
        let path = child(parent, name);
        let kind = match attr.kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::CharDevice => FileType::CharacterDevice,
            _ => FileType::BlockDevice,
        };
        fs::mknodat(CWD, &path, kind, Mode::RUSR | Mode::WUSR, u64::from(attr.rdev))
            .map_err(|e| ClientError::local("cannot make the special file", &path, e))?;
        Ok(path)
    }

    fn link(&mut self, place: &PathBuf, parent: &PathBuf, name: &[u8]) -> Done<()> {
        let path = child(parent, name);
        fs::linkat(CWD, place, CWD, &path, AtFlags::empty())
            .map_err(|e| ClientError::local("cannot make the hard link", &path, e))
    }

    fn remove(&mut self, parent: &PathBuf, name: &[u8]) -> Done<()> {
        let path = child(parent, name);
        std::fs::remove_file(&path).map_err(|e| ClientError::local("cannot replace", &path, e))
    }

    fn create(&mut self, parent: &PathBuf, name: &[u8]) -> Done<(PathBuf, Open)> {
        let path = child(parent, name);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|e| ClientError::local("cannot create", &path, e))?;
        Ok((path, Open { file: Some(file), handle: None }))
    }

    fn rewrite(&mut self, place: &PathBuf) -> Done<Open> {
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let file = File::options().write(true).truncate(true).custom_flags(flags).open(place);
        let file = file.map_err(|e| ClientError::local("cannot overwrite", place, e))?;
        Ok(Open { file: Some(file), handle: None })
    }

    fn write(&mut self, _open: &Open, _offset: u64, _data: Vec<u8>) -> Done<()> {
        Err(ClientError::WrongAnswer { asked: "local write" })
    }

    fn set_len(&mut self, place: &PathBuf, open: &Open, len: u64) -> Done<()> {
        let file = open.file.as_ref().ok_or(ClientError::WrongAnswer { asked: "local length" })?;
        file.set_len(len).map_err(|e| ClientError::local("cannot set the length of", place, e))
    }

    fn close(&mut self, _open: Open) -> Done<()> {
        Ok(())
    }

    fn set_xattr(&mut self, place: &PathBuf, name: &[u8], value: &[u8]) -> Done<()> {
        fs::lsetxattr(place, OsStr::from_bytes(name), value, XattrFlags::empty())
            .map_err(|e| ClientError::local("cannot set an extended attribute of", place, e))
    }

    fn finish(&mut self, place: &PathBuf, attr: &Attr, owner: bool) -> Done<()> {
        let failed = |doing| move |e| ClientError::local(doing, place, e);
        if owner {
            let (uid, gid) = (fs::Uid::from_raw(attr.uid), fs::Gid::from_raw(attr.gid));
            fs::chownat(CWD, place, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed("cannot set the owner of"))?;
        }
        if attr.kind != FileKind::Symlink {
            fs::chmodat(CWD, place, Mode::from_raw_mode(attr.mode), AtFlags::empty())
                .map_err(failed("cannot set the mode of"))?;
        }
        let spec = |t: Time| Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
        let times = Timestamps { last_access: spec(attr.atime), last_modification: spec(attr.mtime) };
        fs::utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed("cannot set the times of"))
    }

    fn sync(&mut self) -> Done<()> {
        let Some(root) = &self.root else { return Ok(()) };
        fs::syncfs(root)
            .map_err(|e| ClientError::local("cannot make durable what was written to", Path::new("."), e))
    }
}
