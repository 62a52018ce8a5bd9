//! The namespace of a node as an end of a copy. Places are inode numbers, valid while the node runs.

use super::local;
use super::tree::{Item, Open, Seed, Sink, Source, Xattrs, aim, split};
use crate::{ClientError, Connection};
use std::fs::File;
use std::path::{Path, PathBuf};
use types::{Attr, DirEntry, ErrorClass, FileKind, FsError, Handle, Ino, SetAttr};
use wire::{Call, FileCall, Reply};

type Done<T> = Result<T, ClientError>;

/// Entries asked for at a time; with names of 255 bytes they fit well into a frame.
const PAGE: u32 = 2000;

/// The namespace, over a connection of its own.
#[derive(Debug)]
pub struct NodeTree {
    connection: Connection,
    /// The last object written directly: says which file system `sync` has to make durable.
    written: Option<File>,
}

impl NodeTree {
    /// Connects.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub fn open(socket: &Path) -> Done<Self> {
        Ok(Self { connection: Connection::open(socket)?, written: None })
    }

    pub(super) fn resolve(&mut self, path: &[u8]) -> Done<Option<Item<Ino>>> {
        found(self.connection.file(FileCall::Resolve { path: path.to_vec() }))
    }

    fn opened(&mut self, call: FileCall) -> Done<(Attr, Open)> {
        match self.connection.call(&Call::File(call))? {
            (Reply::Opened { handle, attr, direct }, descriptor) if direct == descriptor.is_some() => {
                Ok((attr, Open { file: descriptor.map(File::from), handle: Some(handle) }))
            }
            _ => Err(ClientError::WrongAnswer { asked: "Opened" }),
        }
    }

    fn release(&mut self, handle: Option<Handle>, sync: bool) -> Done<()> {
        match handle {
            Some(handle) => self.connection.file(FileCall::Release { handle, sync }),
            None => Ok(()),
        }
    }

    fn set(&mut self, ino: Ino, set: SetAttr) -> Done<()> {
        self.connection.file::<Attr>(FileCall::SetAttr { ino, set }).map(drop)
    }
}

pub(super) fn seeds(
    source: &mut NodeTree,
    paths: &[Vec<u8>],
    dest: &Path,
    exact: &mut bool,
) -> Done<Vec<Seed<Ino, PathBuf>>> {
    let dest = dest.as_os_str().as_encoded_bytes();
    let (parent, given) = aim(dest, paths.len(), exact, &mut local::resolve)?;
    let mut seeds = Vec::with_capacity(paths.len());
    for path in paths {
        let item = source
            .resolve(path)?
            .ok_or_else(|| ClientError::tree(path, ErrorClass::NotFound, "no such file or directory"))?;
        let own = split(path).1;
        let name = given.clone().or((!own.is_empty()).then(|| own.to_vec()));
        seeds.push(Seed { item, path: path.clone(), parent: parent.clone(), name });
    }
    Ok(seeds)
}

fn item(attr: Attr) -> Item<Ino> {
    Item { place: attr.ino, attr, dev: 0 }
}

fn found(result: Done<Attr>) -> Done<Option<Item<Ino>>> {
    match result {
        Ok(attr) => Ok(Some(item(attr))),
        Err(ClientError::Refused(f)) if f.fs == Some(FsError::NotFound) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Source for NodeTree {
    type Place = Ino;

    fn children(&mut self, dir: &Ino, each: &mut dyn FnMut(Vec<u8>, Done<Item<Ino>>) -> bool) -> Done<()> {
        let mut after = 0;
        loop {
            let call = FileCall::ReadDir { dir: *dir, after, limit: PAGE };
            let page: Vec<(DirEntry, Attr)> = self.connection.file(call)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = last.cookie;
            for (entry, attr) in page {
                if !each(entry.name, Ok(item(attr))) {
                    return Ok(());
                }
            }
        }
    }

    fn attr(&mut self, place: &Ino) -> Done<Attr> {
        self.connection.file(FileCall::GetAttr(*place))
    }

    fn link_target(&mut self, place: &Ino) -> Done<Vec<u8>> {
        self.connection.file(FileCall::ReadLink(*place))
    }

    fn xattrs(&mut self, place: &Ino) -> Done<Xattrs> {
        self.connection.file(FileCall::Xattrs(*place))
    }

    fn open(&mut self, place: &Ino) -> Done<Open> {
        let call = FileCall::Open { ino: *place, write: false, truncate: false };
        self.opened(call).map(|(_, open)| open)
    }

    fn read(&mut self, open: &Open, offset: u64, len: usize) -> Done<Vec<u8>> {
        let handle = open.handle.ok_or(ClientError::WrongAnswer { asked: "Opened" })?;
        let len = len.min(wire::frame::MAX_IO) as u32;
        self.connection.file(FileCall::Read { handle, offset, len })
    }

    fn close(&mut self, open: Open) -> Done<()> {
        drop(open.file);
        self.release(open.handle, false)
    }
}

impl Sink for NodeTree {
    type Place = Ino;

    fn lookup(&mut self, parent: &Ino, name: &[u8]) -> Done<Option<Item<Ino>>> {
        found(self.connection.file(FileCall::Lookup { parent: *parent, name: name.to_vec() }))
    }

    fn mkdir(&mut self, parent: &Ino, name: &[u8]) -> Done<Ino> {
        let call = FileCall::Mkdir { parent: *parent, name: name.to_vec(), mode: 0o700 };
        self.connection.file::<Attr>(call).map(|a| a.ino)
    }

    fn symlink(&mut self, parent: &Ino, name: &[u8], target: &[u8]) -> Done<Ino> {
        let call = FileCall::Symlink { parent: *parent, name: name.to_vec(), target: target.to_vec() };
        self.connection.file::<Attr>(call).map(|a| a.ino)
    }

    fn mknod(&mut self, parent: &Ino, name: &[u8], attr: &Attr) -> Done<Ino> {
        let (parent, name) = (*parent, name.to_vec());
        let call = FileCall::Mknod { parent, name, kind: attr.kind, mode: 0o600, rdev: attr.rdev };
        self.connection.file::<Attr>(call).map(|a| a.ino)
    }

    fn link(&mut self, place: &Ino, parent: &Ino, name: &[u8]) -> Done<()> {
        let call = FileCall::Link { ino: *place, parent: *parent, name: name.to_vec() };
        self.connection.file::<Attr>(call).map(drop)
    }

    fn remove(&mut self, parent: &Ino, name: &[u8]) -> Done<()> {
        self.connection.file(FileCall::Unlink { parent: *parent, name: name.to_vec() })
    }

    fn create(&mut self, parent: &Ino, name: &[u8]) -> Done<(Ino, Open)> {
        let call = FileCall::Create { parent: *parent, name: name.to_vec(), mode: 0o600, exclusive: true };
        self.opened(call).map(|(attr, open)| (attr.ino, open))
    }

    fn rewrite(&mut self, place: &Ino) -> Done<Open> {
        self.opened(FileCall::Open { ino: *place, write: true, truncate: true }).map(|(_, open)| open)
    }

    fn write(&mut self, open: &Open, mut offset: u64, mut data: Vec<u8>) -> Done<()> {
        let handle = open.handle.ok_or(ClientError::WrongAnswer { asked: "Opened" })?;
        while !data.is_empty() {
            let part = data[..data.len().min(wire::frame::MAX_IO)].to_vec();
            let written: u64 = self.connection.file(FileCall::Write { handle, offset, data: part })?;
            if written == 0 || written > data.len() as u64 {
                return Err(ClientError::WrongAnswer { asked: "Write" });
            }
            offset += written;
            data.drain(..written as usize);
        }
        Ok(())
    }

    fn set_len(&mut self, place: &Ino, _open: &Open, len: u64) -> Done<()> {
        self.set(*place, SetAttr { size: Some(len), ..SetAttr::default() })
    }

    fn close(&mut self, open: Open) -> Done<()> {
        // What went through the node is made durable by it, one file at a time; the rest by one sync for many files.
        let served = open.file.is_none();
        if open.file.is_some() {
            self.written = open.file;
        }
        self.release(open.handle, served)
    }

    fn set_xattr(&mut self, place: &Ino, name: &[u8], value: &[u8]) -> Done<()> {
        let call = FileCall::SetXattr { ino: *place, name: name.to_vec(), value: value.to_vec() };
        self.connection.file(call)
    }

    fn finish(&mut self, place: &Ino, attr: &Attr, owner: bool) -> Done<()> {
        if owner {
            // A change of owner clears setuid and setgid, so the mode comes in a call of its own.
            let set = SetAttr { uid: Some(attr.uid), gid: Some(attr.gid), ..SetAttr::default() };
            self.set(*place, set)?;
        }
        let mode = (attr.kind != FileKind::Symlink).then_some(attr.mode);
        let (atime, mtime) = (Some(attr.atime), Some(attr.mtime));
        self.set(*place, SetAttr { mode, atime, mtime, ..SetAttr::default() })
    }

    fn makes_room(&self) -> bool {
        true
    }

    fn sync(&mut self) -> Done<()> {
        if let Some(file) = self.written.take() {
            rustix::fs::syncfs(&file)
                .map_err(|e| ClientError::local("cannot sync the disk of", self.connection.socket(), e))?;
        }
        self.connection.file(FileCall::Sync)
    }
}
