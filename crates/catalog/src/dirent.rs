//! Values of the two directory tables. Fixed layout, no postcard: listings decode millions of them.
//!
//! `NAME dir name` -> `version 1, kind, ino (8, LE), [cookie (8, LE) if it differs from ino]`
//! `ENTRY dir cookie` -> `version 1, kind, ino (8, LE), name`

use crate::{CatalogError, Result};
use types::{FileKind, Ino};

const VERSION: u8 = 1;

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent {
    pub ino: Ino,
    pub kind: FileKind,
    pub cookie: u64,
}

/// d_type of readdir(3).
fn kind_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::Fifo => 1,
        FileKind::CharDevice => 2,
        FileKind::Directory => 4,
        FileKind::BlockDevice => 6,
        FileKind::File => 8,
        FileKind::Symlink => 10,
        FileKind::Socket => 12,
    }
}

fn kind_of(code: u8) -> Option<FileKind> {
    Some(match code {
        1 => FileKind::Fifo,
        2 => FileKind::CharDevice,
        4 => FileKind::Directory,
        6 => FileKind::BlockDevice,
        8 => FileKind::File,
        10 => FileKind::Symlink,
        12 => FileKind::Socket,
        _ => return None,
    })
}

impl Dirent {
    fn head(&self) -> [u8; 10] {
        let mut v = [VERSION; 10];
        v[1] = kind_code(self.kind);
        v[2..].copy_from_slice(&self.ino.0.to_le_bytes());
        v
    }

    pub fn name_value(&self) -> ([u8; 18], usize) {
        let mut v = [0; 18];
        v[..10].copy_from_slice(&self.head());
        v[10..].copy_from_slice(&self.cookie.to_le_bytes());
        (v, if self.cookie == self.ino.0 { 10 } else { 18 })
    }

    pub fn entry_value(&self, name: &[u8]) -> Vec<u8> {
        let mut v = Vec::with_capacity(10 + name.len());
        v.extend_from_slice(&self.head());
        v.extend_from_slice(name);
        v
    }

    pub fn from_name(dir: Ino, value: &[u8]) -> Result<Self> {
        let (ino, kind, rest) = split(dir, value)?;
        let cookie = match rest.len() {
            0 => ino.0,
            8 => u64::from_le_bytes(rest.try_into().expect("length was checked")),
            _ => return Err(damaged(dir)),
        };
        Ok(Self { ino, kind, cookie })
    }

    /// The entry and its name.
    pub fn from_entry(dir: Ino, cookie: u64, value: &[u8]) -> Result<(Self, &[u8])> {
        let (ino, kind, name) = split(dir, value)?;
        Ok((Self { ino, kind, cookie }, name))
    }
}

fn split(dir: Ino, value: &[u8]) -> Result<(Ino, FileKind, &[u8])> {
    let (head, rest) = value.split_at_checked(10).ok_or_else(|| damaged(dir))?;
    if head[0] != VERSION {
        return Err(CatalogError::corrupt("directory entry", dir, format!("version {}", head[0])));
    }
    let kind = kind_of(head[1]).ok_or_else(|| damaged(dir))?;
    Ok((Ino(u64::from_le_bytes(head[2..].try_into().expect("length was checked"))), kind, rest))
}

fn damaged(dir: Ino) -> CatalogError {
    CatalogError::corrupt("directory entry", dir, "bad value")
}
