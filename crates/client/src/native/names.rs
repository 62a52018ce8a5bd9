//! Names and attributes.

use super::{Done, Session};
use crate::{ClientError, FilesPage, escape};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use types::{Attr, DirEntry, FileView, FsError, Ino, RenameMode, RequestId, RequestView, SetAttr};
use wire::{Call, Failure, FileCall, Selection};

/// Entries asked for at a time; with names of 255 bytes they fit well into a frame.
const PAGE: u32 = 2000;

/// POSIX's reason of a refusal.
pub fn reason(error: &ClientError) -> Option<FsError> {
    match error {
        ClientError::Refused(failure) => failure.fs,
        _ => None,
    }
}

/// A refusal of our own, of the kind that the node gives.
pub fn refused(path: &[u8], fs: FsError) -> ClientError {
    let message = format!("{}: {fs}", escape(path));
    ClientError::Refused(Failure { class: fs.class(), fs: Some(fs), message })
}

/// The node names what it was asked for, an inode or the last name; people know the path.
pub fn at(path: &[u8], error: ClientError) -> ClientError {
    match error {
        ClientError::Refused(Failure { class, fs: Some(fs), message }) => {
            let path = escape(path);
            let message = if message.starts_with(&path) { message } else { format!("{path}: {fs}") };
            ClientError::Refused(Failure { class, fs: Some(fs), message })
        }
        other => other,
    }
}

fn bytes(path: &(impl AsRef<Path> + ?Sized)) -> &[u8] {
    path.as_ref().as_os_str().as_bytes()
}

impl Session {
    /// Attributes; a symlink at the end is followed.
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn stat(&self, path: impl AsRef<Path>) -> Done<Attr> {
        self.attr(bytes(&path), true).map_err(|e| at(bytes(&path), e))
    }

    /// Attributes of the name itself.
    ///
    /// # Errors
    /// Those of lstat(2).
    pub fn lstat(&self, path: impl AsRef<Path>) -> Done<Attr> {
        self.attr(bytes(&path), false).map_err(|e| at(bytes(&path), e))
    }

    /// Changes attributes; a symlink at the end is followed. The length of an offline file can be set to 0 without a recall.
    ///
    /// # Errors
    /// Those of chmod(2), chown(2), utimensat(2) and truncate(2).
    pub fn set_attr(&self, path: impl AsRef<Path>, set: SetAttr) -> Done<Attr> {
        let ino = self.stat(&path)?.ino;
        let _cutting = set.size.map(|_| self.0.cuts.begin());
        self.named(bytes(&path), FileCall::SetAttr { ino, set })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Done<Attr> {
        let (parent, name) = self.place(bytes(&path))?;
        self.named(bytes(&path), FileCall::Mkdir { parent, name, mode })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of rmdir(2).
    pub fn rmdir(&self, path: impl AsRef<Path>) -> Done<()> {
        let (parent, name) = self.place(bytes(&path))?;
        self.named(bytes(&path), FileCall::Rmdir { parent, name })
    }

    /// Removes a name that is not a directory.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn unlink(&self, path: impl AsRef<Path>) -> Done<()> {
        let (parent, name) = self.place(bytes(&path))?;
        self.named(bytes(&path), FileCall::Unlink { parent, name })
    }

    /// Renames.
    ///
    /// # Errors
    /// Those of renameat2(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Done<()> {
        let call = FileCall::Rename { from: self.place(bytes(&from))?, to: self.place(bytes(&to))?, mode };
        self.named(bytes(&from), call)
    }

    /// Makes a symlink at `path`.
    ///
    /// # Errors
    /// Those of symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Done<Attr> {
        let (parent, name) = self.place(bytes(&path))?;
        let target = bytes(&target).to_vec();
        self.named(bytes(&path), FileCall::Symlink { parent, name, target })
    }

    /// Makes a hard link at `path`.
    ///
    /// # Errors
    /// Those of link(2).
    pub fn link(&self, existing: impl AsRef<Path>, path: impl AsRef<Path>) -> Done<Attr> {
        let ino = self.lstat(existing)?.ino;
        let (parent, name) = self.place(bytes(&path))?;
        self.named(bytes(&path), FileCall::Link { ino, parent, name })
    }

    /// What a symlink points to.
    ///
    /// # Errors
    /// Those of readlink(2).
    pub fn readlink(&self, path: impl AsRef<Path>) -> Done<Vec<u8>> {
        let ino = self.lstat(&path)?.ino;
        self.named(bytes(&path), FileCall::ReadLink(ino))
    }

    /// One page of a directory, with attributes: entries after the one with this cookie (0: from the first). An empty page: no more.
    ///
    /// # Errors
    /// Those of readdir(3).
    pub fn read_dir(&self, path: impl AsRef<Path>, after: u64) -> Done<Vec<(DirEntry, Attr)>> {
        let dir = self.stat(&path)?.ino;
        self.named(bytes(&path), FileCall::ReadDir { dir, after, limit: PAGE })
    }

    /// Extended attributes.
    ///
    /// # Errors
    /// Those of getxattr(2).
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Done<Vec<(Vec<u8>, Vec<u8>)>> {
        let ino = self.stat(&path)?.ino;
        self.named(bytes(&path), FileCall::Xattrs(ino))
    }

    /// One extended attribute of an inode.
    ///
    /// # Errors
    /// Those of fgetxattr(2).
    pub fn xattr_of(&self, ino: Ino, name: &[u8]) -> Done<Vec<u8>> {
        self.0.names(|connection| connection.file(FileCall::GetXattr { ino, name: name.to_vec() }))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Those of setxattr(2).
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: &[u8], value: &[u8]) -> Done<()> {
        let ino = self.stat(&path)?.ino;
        self.named(bytes(&path), FileCall::SetXattr { ino, name: name.to_vec(), value: value.to_vec() })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of removexattr(2).
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Done<()> {
        let ino = self.stat(&path)?.ino;
        self.named(bytes(&path), FileCall::RemoveXattr { ino, name: name.to_vec() })
    }

    /// All that is known of a file: residency, versions, copies, how far a recall is.
    ///
    /// # Errors
    /// It is not there, or not for the caller.
    pub fn state(&self, path: impl AsRef<Path>) -> Done<FileView> {
        self.0.names(|connection| connection.ask(&Call::Stat { path: bytes(&path).to_vec() }))
    }

    /// States of the entries of a directory, a page at a time.
    ///
    /// # Errors
    /// It is not there, or not for the caller.
    pub fn states(&self, path: impl AsRef<Path>, after: u64) -> Done<FilesPage> {
        let call = Call::List { path: bytes(&path).to_vec(), after, limit: PAGE };
        self.0.names(|connection| connection.ask(&call))
    }

    /// Brings files back from tape; all of them are planned as one request.
    ///
    /// # Errors
    /// One of the paths is not there or not for the caller; then nothing is asked for.
    pub fn stage(&self, paths: Vec<Vec<u8>>, recursive: bool) -> Done<RequestView> {
        self.0.names(|connection| connection.ask(&Call::Stage(Selection { paths, recursive })))
    }

    /// How far a request is.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn request(&self, id: RequestId) -> Done<RequestView> {
        self.0.names(|connection| connection.ask(&Call::Request(id)))
    }

    /// Makes names and attributes that were changed so far durable, and all content that was flushed.
    ///
    /// # Errors
    /// The node could not write them.
    pub fn sync(&self) -> Done<()> {
        self.0.names(|connection| connection.file(FileCall::Sync))
    }

    /// Directory and last name of a path.
    pub(super) fn place(&self, path: &[u8]) -> Done<(Ino, Vec<u8>)> {
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let (dir, name) = match trimmed.iter().rposition(|b| *b == b'/') {
            Some(0) => (&b"/"[..], &trimmed[1..]),
            Some(slash) => (&trimmed[..slash], &trimmed[slash + 1..]),
            None => return Err(refused(path, FsError::Invalid)),
        };
        if name.is_empty() {
            return Err(refused(path, FsError::Busy));
        }
        Ok((self.attr(dir, true)?.ino, name.to_vec()))
    }

    fn named<T: crate::FromReply>(&self, path: &[u8], call: FileCall) -> Done<T> {
        self.0.names(|connection| connection.file(call)).map_err(|e| at(path, e))
    }
}
