//! The two ends of a copy: a tree to read from and a tree to write to.

use crate::ClientError;
use std::fs::File;
use types::{Attr, ErrorClass, FileKind, Handle};

/// One entry of a tree.
#[derive(Clone, Debug)]
pub struct Item<P> {
    /// Where it is.
    pub place: P,
    /// Its attributes.
    pub attr: Attr,
    /// Device of the file system (0 in the namespace): with the inode number it tells hard links.
    pub dev: u64,
}

/// A file open for copying: its descriptor where there is one, and the node's handle where there is one.
#[derive(Debug, Default)]
pub struct Open {
    /// Descriptor for direct reading or writing.
    pub file: Option<File>,
    /// Handle to be released.
    pub handle: Option<Handle>,
}

/// Where a copy begins.
#[derive(Debug)]
pub struct Seed<S, D> {
    /// Entry to copy.
    pub item: Item<S>,
    /// Its path, for people.
    pub path: Vec<u8>,
    /// Directory to copy it into.
    pub parent: D,
    /// Name there; None: what the directory `item` holds goes straight into `parent`.
    pub name: Option<Vec<u8>>,
}

type Done<T> = Result<T, ClientError>;
type Resolve<'a, P> = dyn FnMut(&[u8]) -> Done<Option<Item<P>>> + 'a;
/// Names and values of extended attributes.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A tree to read from.
pub trait Source {
    /// Names an entry for as long as the pass lasts.
    type Place: Clone + Send;
    /// Calls `each` for every entry of a directory until it returns false.
    fn children(
        &mut self,
        dir: &Self::Place,
        each: &mut dyn FnMut(Vec<u8>, Done<Item<Self::Place>>) -> bool,
    ) -> Done<()>;
    /// Attributes now.
    fn attr(&mut self, place: &Self::Place) -> Done<Attr>;
    /// Target of a symlink.
    fn link_target(&mut self, place: &Self::Place) -> Done<Vec<u8>>;
    /// Extended attributes.
    fn xattrs(&mut self, place: &Self::Place) -> Done<Xattrs>;
    /// Opens for reading.
    fn open(&mut self, place: &Self::Place) -> Done<Open>;
    /// Reads where there is no descriptor; empty at the end of the file.
    fn read(&mut self, open: &Open, offset: u64, len: usize) -> Done<Vec<u8>>;
    /// Ends reading.
    fn close(&mut self, open: Open) -> Done<()>;
}

/// A tree to write to.
pub trait Sink {
    /// Names an entry for as long as the pass lasts.
    type Place: Clone + Send;
    /// Finds a name.
    fn lookup(&mut self, parent: &Self::Place, name: &[u8]) -> Done<Option<Item<Self::Place>>>;
    /// Makes a directory that only its owner may use until it is finished.
    fn mkdir(&mut self, parent: &Self::Place, name: &[u8]) -> Done<Self::Place>;
    /// Makes a symlink.
    fn symlink(&mut self, parent: &Self::Place, name: &[u8], target: &[u8]) -> Done<Self::Place>;
    /// Makes a pipe, socket or device like `attr`.
    fn mknod(&mut self, parent: &Self::Place, name: &[u8], attr: &Attr) -> Done<Self::Place>;
    /// Adds a hard link.
    fn link(&mut self, place: &Self::Place, parent: &Self::Place, name: &[u8]) -> Done<()>;
    /// Removes a name that is not a directory.
    fn remove(&mut self, parent: &Self::Place, name: &[u8]) -> Done<()>;
    /// Makes and opens a file that only its owner may use until it is finished.
    fn create(&mut self, parent: &Self::Place, name: &[u8]) -> Done<(Self::Place, Open)>;
    /// Opens a file for writing and empties it.
    fn rewrite(&mut self, place: &Self::Place) -> Done<Open>;
    /// Writes where there is no descriptor.
    fn write(&mut self, open: &Open, offset: u64, data: Vec<u8>) -> Done<()>;
    /// Sets the length (up: a hole).
    fn set_len(&mut self, place: &Self::Place, open: &Open, len: u64) -> Done<()>;
    /// Ends writing; errors of delayed writes are reported.
    fn close(&mut self, open: Open) -> Done<()>;
    /// Sets an extended attribute.
    fn set_xattr(&mut self, place: &Self::Place, name: &[u8], value: &[u8]) -> Done<()>;
    /// Sets owner (if `owner`), permission bits (not of symlinks), and times, the modification time last.
    fn finish(&mut self, place: &Self::Place, attr: &Attr, owner: bool) -> Done<()>;
    /// Whether a lack of space may pass while one waits (the node moves files to tape).
    fn makes_room(&self) -> bool {
        false
    }
    /// Makes everything so far durable.
    fn sync(&mut self) -> Done<()>;
}

/// Where copies go: a directory, and the name in it if the user gave one.
pub(crate) type Aim<P> = (P, Option<Vec<u8>>);

/// As `cp` understands its last argument: into `dest` if it is a directory, otherwise (one source only) to that name.
/// `exact` says that it is the name in any case; it is set when that was found out, for the passes that follow.
pub(crate) fn aim<P>(
    dest: &[u8],
    sources: usize,
    exact: &mut bool,
    resolve: &mut Resolve<'_, P>,
) -> Done<Aim<P>> {
    let is_dir = |item: &Item<P>| item.attr.kind == FileKind::Directory;
    let missing = |path| ClientError::tree(path, ErrorClass::NotFound, "no such directory; make it first");
    if !*exact {
        match resolve(dest)? {
            Some(item) if is_dir(&item) => return Ok((item.place, None)),
            None if sources > 1 => return Err(missing(dest)),
            _ => *exact = true,
        }
    }
    if sources > 1 {
        let problem = "several sources need a directory to go into, not a name";
        return Err(ClientError::tree(dest, ErrorClass::Namespace, problem));
    }
    let (parent, name) = split(dest);
    match resolve(parent)? {
        Some(item) if is_dir(&item) && !name.is_empty() => Ok((item.place, Some(name.to_vec()))),
        _ => Err(missing(parent)),
    }
}

/// Parent and last component of a path; trailing slashes are ignored.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |p| p + 1);
    let path = &path[..end];
    match path.iter().rposition(|&b| b == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b".", path),
    }
}
