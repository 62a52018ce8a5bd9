//! A session: how a program reaches a node, and how files are opened.

use super::file::File;
use super::lanes::{Lanes, Way};
use super::{Done, names};
use crate::{ClientError, Connection, Place, Remote};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use types::api::OpenFlags;
use types::{Attr, FsError, Ino};
use wire::FileCall;

/// How a session works. The defaults suit most programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to wait for a node that is starting, and whenever it restarts.
    pub patience: Duration,
    /// Connections over which the bytes of one file travel, where they travel over connections.
    pub streams: usize,
    /// Connections for bytes, of all files together; beyond them files share connections.
    pub connections: usize,
    /// Bytes that are read ahead of a program that reads in order; 0: none.
    pub read_ahead: usize,
    /// Bytes that are written later than a program writes them; 0: none.
    pub write_behind: usize,
    /// Take descriptors of objects where the node offers them.
    pub descriptors: bool,
    /// What becomes of descriptors of sockets and objects before they are used.
    pub place: Place,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::ZERO,
            streams: 4,
            connections: 64,
            read_ahead: 8 << 20,
            write_behind: 8 << 20,
            descriptors: true,
            place: |descriptor| descriptor,
        }
    }
}

/// How a file is opened; begins with nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    flags: OpenFlags,
    create: Option<u32>,
}

impl OpenOptions {
    /// Neither reading nor writing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reading.
    pub fn read(mut self, read: bool) -> Self {
        self.flags.read = read;
        self
    }

    /// Writing.
    pub fn write(mut self, write: bool) -> Self {
        self.flags.write = write;
        self
    }

    /// Every write goes to the end, wherever that is by then, and whoever else writes there.
    pub fn append(mut self, append: bool) -> Self {
        self.flags.append = append;
        self.flags.write |= append;
        self
    }

    /// Length 0 at open; an offline file is not recalled for it.
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.flags.truncate = truncate;
        self
    }

    /// Made if it is not there, with these permission bits (no umask is applied).
    pub fn create(mut self, mode: u32) -> Self {
        self.create = Some(mode);
        self
    }

    /// Made, with these permission bits; refused if it is there.
    pub fn create_new(mut self, mode: u32) -> Self {
        self.create = Some(mode);
        self.flags.exclusive = true;
        self
    }

    /// Reading what is on tape only fails at once, and starts the recall.
    pub fn nonblock(mut self, nonblock: bool) -> Self {
        self.flags.nonblock = nonblock;
        self
    }
}

/// A program's way to a namespace. Clones are the same session; it may be used by any number of threads at once.
#[derive(Clone, Debug)]
pub struct Session(pub(super) Arc<Lanes>);

impl Session {
    /// The node on this host whose control socket this is.
    ///
    /// # Errors
    /// No node answers there.
    pub fn connect(socket: &Path) -> Done<Self> {
        Self::connect_with(socket, Options::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub fn connect_with(socket: &Path, options: Options) -> Done<Self> {
        Lanes::new(Way::Socket(socket.to_owned()), options).map(|lanes| Self(Arc::new(lanes)))
    }

    /// A node of a cluster on another host.
    ///
    /// # Errors
    /// It does not answer, or one does not believe the other.
    pub fn connect_remote(remote: Remote, options: Options) -> Done<Self> {
        Lanes::new(Way::Remote(remote), options).map(|lanes| Self(Arc::new(lanes)))
    }

    /// Runs calls of administration: requests, volumes, drives.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn ask<T>(&self, work: impl FnOnce(&mut Connection) -> Done<T>) -> Done<T> {
        self.0.names(work)
    }

    /// Opens a file. Never waits for tape; reading does.
    ///
    /// # Errors
    /// Those of open(2), as [`ClientError::Refused`] with their reason.
    pub fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> Done<File> {
        let path = path.as_ref().as_os_str().as_bytes();
        let OpenOptions { flags, create } = options;
        match (create, self.attr(path, true)) {
            (Some(_), Ok(_)) if flags.exclusive => Err(names::refused(path, FsError::Exists)),
            (_, Ok(attr)) => File::open(self, &attr, flags),
            (Some(mode), Err(e)) if names::reason(&e) == Some(FsError::NotFound) => {
                let (parent, name) = self.place(path)?;
                File::create(self, parent, name, mode, flags)
            }
            (_, Err(e)) => Err(e),
        }
        .map_err(|e| names::at(path, e))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn read(&self, path: impl AsRef<Path>) -> Done<File> {
        self.open(path, OpenOptions::new().read(true))
    }

    /// Opens a file by its inode if its bytes go to its object, or to movers, without passing through the node now; else None. It never waits for tape: what
    /// would, fails with EAGAIN. `much`: much of it is going to be moved, so that a right to read copies or parity is worth a change of the catalogue.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open_direct(&self, ino: Ino, flags: OpenFlags, much: bool) -> Done<Option<File>> {
        File::open_direct(self, ino, flags, much)
    }

    pub(super) fn attr(&self, path: &[u8], follow: bool) -> Done<Attr> {
        let path = path.to_vec();
        let call = if follow { FileCall::Follow { path } } else { FileCall::Resolve { path } };
        self.0.names(|connection| connection.file(call))
    }
}

impl From<ClientError> for std::io::Error {
    fn from(error: ClientError) -> Self {
        let kind = std::io::Error::from(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}
