//! A node in miniature: the file calls, answered from a local directory. Inode numbers are those of that directory.
#![allow(dead_code)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use types::{Attr, DirEntry, ErrorClass, FileKind, FsError, Handle, Ino, SetAttr, Time};
use wire::{Answer, Call, Failure, FileCall, Reply};

pub struct FakeNode {
    pub root: PathBuf,
    pub socket: PathBuf,
    pub direct: bool,
    paths: Mutex<HashMap<u64, PathBuf>>,
    files: Mutex<HashMap<u64, File>>,
    next: AtomicU64,
    pub syncs: AtomicUsize,
    /// Calls until the connection breaks, once; 0: never.
    pub break_after: AtomicUsize,
}

impl FakeNode {
    pub fn start(dir: &Path, direct: bool) -> Arc<Self> {
        let root = dir.join("namespace");
        fs::create_dir_all(&root).unwrap();
        let socket = dir.join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let ino = fs::metadata(&root).unwrap().ino();
        let node = Arc::new(Self {
            paths: Mutex::new(HashMap::from([(ino, root.clone())])),
            root,
            socket,
            direct,
            files: Mutex::default(),
            next: AtomicU64::new(1),
            syncs: AtomicUsize::new(0),
            break_after: AtomicUsize::new(0),
        });
        let shared = node.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (node, stream) = (shared.clone(), stream.unwrap());
                let breaker = stream.try_clone().unwrap();
                std::thread::spawn(move || {
                    let _ = wire::serve_connection(stream, "fake node", &mut |call| {
                        if node.break_after.load(Ordering::SeqCst) > 0
                            && node.break_after.fetch_sub(1, Ordering::SeqCst) == 1
                        {
                            let _ = breaker.shutdown(std::net::Shutdown::Both);
                        }
                        node.answer(call)
                    });
                });
            }
        });
        node
    }

    fn answer(&self, call: Call) -> Result<Answer, Failure> {
        let Call::File(call) = call else {
            return Err(Failure { class: ErrorClass::Bug, fs: None, message: "not in the miniature".into() });
        };
        self.file(call).map_err(|e| {
            let (class, fs) = match e.kind() {
                io::ErrorKind::NotFound => (ErrorClass::NotFound, Some(FsError::NotFound)),
                _ => (ErrorClass::Invalid, None),
            };
            Failure { class, fs, message: e.to_string() }
        })
    }

    fn path(&self, ino: Ino) -> PathBuf {
        self.paths.lock().unwrap()[&ino.0].clone()
    }

    fn child(&self, parent: Ino, name: &[u8]) -> PathBuf {
        self.path(parent).join(std::ffi::OsStr::from_bytes(name))
    }

    fn attr(&self, path: &Path) -> io::Result<Attr> {
        let m = path.symlink_metadata()?;
        self.paths.lock().unwrap().insert(m.ino(), path.to_owned());
        let t = m.file_type();
        let kind = if t.is_dir() {
            FileKind::Directory
        } else if t.is_symlink() {
            FileKind::Symlink
        } else if t.is_fifo() {
            FileKind::Fifo
        } else {
            FileKind::File
        };
        let time = |s, n| Time::new(s, n as u32);
        Ok(Attr {
            ino: Ino(m.ino()),
            kind,
            mode: m.mode() & 0o7777,
            nlink: m.nlink() as u32,
            uid: m.uid(),
            gid: m.gid(),
            rdev: m.rdev() as u32,
            size: m.size(),
            disk_bytes: m.blocks() * 512,
            atime: time(m.atime(), m.atime_nsec()),
            mtime: time(m.mtime(), m.mtime_nsec()),
            ctime: time(m.ctime(), m.ctime_nsec()),
            btime: Time::default(),
        })
    }

    fn opened(&self, path: &Path, file: File) -> io::Result<Answer> {
        let handle = self.next.fetch_add(1, Ordering::SeqCst);
        let descriptor = self.direct.then(|| Arc::new(file.try_clone().unwrap().into()));
        self.files.lock().unwrap().insert(handle, file);
        let reply = Reply::Opened { handle: Handle(handle), attr: self.attr(path)?, direct: self.direct };
        Ok(Answer { reply, descriptor })
    }

    fn set(&self, path: &Path, set: &SetAttr) -> io::Result<Attr> {
        if let Some(size) = set.size {
            File::options().write(true).open(path)?.set_len(size)?;
        }
        if let Some(mode) = set.mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        if let (Some(a), Some(m)) = (set.atime, set.mtime) {
            let spec = |t: Time| rustix::fs::Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
            let times = rustix::fs::Timestamps { last_access: spec(a), last_modification: spec(m) };
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags)?;
        }
        self.attr(path)
    }

    fn list(&self, dir: Ino, after: u64, limit: usize) -> io::Result<Reply> {
        let mut all: Vec<_> = fs::read_dir(self.path(dir))?.map(|e| e.unwrap().path()).collect();
        all.sort();
        let page = all.iter().enumerate().skip(after as usize).take(limit.min(3));
        let entry = |(i, path): (usize, &PathBuf)| {
            let attr = self.attr(path)?;
            let name = path.file_name().unwrap().as_bytes().to_vec();
            Ok((DirEntry { name, ino: attr.ino, kind: attr.kind, cookie: i as u64 + 1 }, attr))
        };
        Ok(Reply::Entries(page.map(entry).collect::<io::Result<_>>()?))
    }

    fn file(&self, call: FileCall) -> io::Result<Answer> {
        use FileCall as F;
        let files = || self.files.lock().unwrap();
        let reply = match call {
            F::Resolve { path } => {
                let path = String::from_utf8(path).unwrap();
                Reply::Attr(self.attr(&self.root.join(path.trim_start_matches('/')))?)
            }
            F::Lookup { parent, name } => Reply::Attr(self.attr(&self.child(parent, &name))?),
            F::GetAttr(ino) => Reply::Attr(self.attr(&self.path(ino))?),
            F::SetAttr { ino, set } => Reply::Attr(self.set(&self.path(ino), &set)?),
            F::ReadDir { dir, after, limit } => self.list(dir, after, limit as usize)?,
            F::ReadLink(ino) => Reply::Bytes(fs::read_link(self.path(ino))?.as_os_str().as_bytes().to_vec()),
            F::Mkdir { parent, name, .. } => {
                let path = self.child(parent, &name);
                fs::create_dir(&path)?;
                Reply::Attr(self.attr(&path)?)
            }
            F::Symlink { parent, name, target } => {
                let path = self.child(parent, &name);
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&target), &path)?;
                Reply::Attr(self.attr(&path)?)
            }
            F::Link { ino, parent, name } => {
                let path = self.child(parent, &name);
                fs::hard_link(self.path(ino), &path)?;
                Reply::Attr(self.attr(&path)?)
            }
            F::Mknod { parent, name, .. } => {
                let path = self.child(parent, &name);
                let mode = rustix::fs::Mode::RUSR;
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)?;
                Reply::Attr(self.attr(&path)?)
            }
            F::Create { parent, name, .. } => {
                let path = self.child(parent, &name);
                let file = File::options().read(true).write(true).create_new(true).open(&path)?;
                return self.opened(&path, file);
            }
            F::Open { ino, write, truncate } => {
                let path = self.path(ino);
                let file = File::options().read(true).write(write).truncate(truncate).open(&path)?;
                return self.opened(&path, file);
            }
            F::Read { handle, offset, len } => {
                let mut data = vec![0; len as usize];
                let got = files()[&handle.0].read_at(&mut data, offset)?;
                data.truncate(got);
                Reply::Bytes(data)
            }
            F::Write { handle, offset, data } => {
                files()[&handle.0].write_all_at(&data, offset)?;
                Reply::Count(data.len() as u64)
            }
            F::Release { handle, .. } => {
                files().remove(&handle.0).unwrap();
                Reply::Done
            }
            F::Unlink { parent, name } => {
                fs::remove_file(self.child(parent, &name))?;
                Reply::Done
            }
            F::Sync => {
                self.syncs.fetch_add(1, Ordering::SeqCst);
                Reply::Done
            }
            F::Xattrs(_) => Reply::Xattrs(vec![(b"user.thermo.residency".to_vec(), b"offline".to_vec())]),
            F::SetXattr { .. } => Reply::Done,
            _ => return Err(io::Error::other("not in the miniature")),
        };
        Ok(reply.into())
    }
}

/// Everything that a copy must keep, of a whole tree: path -> (kind and mode, size, mtime, link group, content).
pub fn picture(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut groups: HashMap<u64, String> = HashMap::new();
    let mut todo = vec![root.to_owned()];
    let mut all = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                todo.push(path.clone());
            }
            all.push(path);
        }
    }
    all.sort();
    for path in all {
        let m = path.symlink_metadata().unwrap();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let group = groups.entry(m.ino()).or_insert_with(|| name.clone()).clone();
        let content = match m.file_type() {
            t if t.is_file() => format!("{:?}", checksum(&fs::read(&path).unwrap())),
            t if t.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
            _ => String::new(),
        };
        let size = if m.is_dir() { 0 } else { m.size() };
        let raw = path.as_os_str().as_bytes().last().unwrap();
        lines.push(format!(
            "{name} {raw:02x} {:o} {size} {}.{:09} {} {group} {content}",
            m.mode(),
            m.mtime(),
            m.mtime_nsec(),
            m.uid()
        ));
    }
    lines
}

fn checksum(data: &[u8]) -> (usize, u64) {
    (data.len(), data.iter().fold(7u64, |h, &b| h.wrapping_mul(1_099_511_628_211) ^ u64::from(b)))
}

/// A tree with everything that is awkward.
pub fn awkward_tree(root: &Path) {
    let write = |name: &[u8], data: &[u8]| {
        let path = root.join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, data).unwrap();
        path
    };
    write(b"empty", b"");
    write(b"with space and \n newline", b"x");
    write(b"not utf-8 \xff\xfe", b"bytes");
    write(b"deep/er/and/deeper/file", b"deep");
    for i in 0..40 {
        write(format!("many/{i}").as_bytes(), format!("{i}").repeat(i * 50).as_bytes());
    }
    let big: Vec<u8> = (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    write(b"big", &big);
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 5 << 20).unwrap();
    sparse.set_len(12 << 20).unwrap();
    let linked = write(b"linked/one", b"two names");
    fs::hard_link(&linked, root.join("linked/two")).unwrap();
    fs::hard_link(&linked, root.join("another name")).unwrap();
    std::os::unix::fs::symlink("nowhere/at all", root.join("dangling")).unwrap();
    std::os::unix::fs::symlink("big", root.join("link")).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::create_dir(root.join("empty dir")).unwrap();
    fs::set_permissions(root.join("empty dir"), fs::Permissions::from_mode(0o1751)).unwrap();
    let old = Time::new(-5, 123_456_789);
    let spec = rustix::fs::Timespec { tv_sec: old.secs, tv_nsec: old.nanos.into() };
    let times = rustix::fs::Timestamps { last_access: spec, last_modification: spec };
    for name in ["deep/er", "big", "dangling", "pipe"] {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, root.join(name), &times, flags).unwrap();
    }
}
