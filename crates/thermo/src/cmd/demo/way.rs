//! Two ways to the namespace: through a mount, as any program goes, or through the control socket where no mount is allowed.

use anyhow::{Context, Result, bail};
use client::Connection;
use client::copy::{NodeTree, Open, Options, Sink, Source};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use types::{Attr, DirEntry, FileKind, Ino};
use wire::FileCall;

/// Directory of the demonstration in the namespace; nothing else there is touched.
pub const HOME: &str = "demo";
/// Name of the big file in it.
pub const BIG: &str = "big file";

/// How files are reached.
pub enum Way {
    /// Below this mount point.
    Mount(PathBuf),
    /// Over this control socket; trees are compared by fetching them to the scratch directory.
    Socket {
        /// Control socket.
        socket: PathBuf,
        /// Local directory that may be filled.
        scratch: PathBuf,
    },
}

/// The big file, open.
pub enum Big {
    /// Through the mount.
    Mount(File),
    /// Through the control socket.
    Socket {
        /// The connection.
        tree: Box<NodeTree>,
        /// Inode (of a file that is written).
        place: Ino,
        /// What the node gave.
        open: Open,
    },
}

impl Way {
    /// Path in the namespace.
    pub fn inside(name: &Path) -> Vec<u8> {
        let mut path = format!("/{HOME}").into_bytes();
        if !name.as_os_str().is_empty() {
            path.push(b'/');
            path.extend_from_slice(name.as_os_str().as_bytes());
        }
        path
    }

    /// Removes what an earlier demonstration left, and makes the directory; durably, since a kill may follow.
    pub fn clean(&self) -> Result<()> {
        match self {
            Way::Mount(mount) => {
                let home = mount.join(HOME);
                if home.symlink_metadata().is_ok() {
                    std::fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
                }
                std::fs::create_dir(&home)
                    .and_then(|()| File::open(&home)?.sync_all())
                    .with_context(|| format!("making {}", home.display()))
            }
            Way::Socket { socket, .. } => {
                let (mut node, mut tree) = (Connection::open(socket)?, NodeTree::open(socket)?);
                match tree.lookup(&Ino(1), HOME.as_bytes())? {
                    Some(home) => empty(&mut node, home.place)?,
                    None => {
                        let (parent, name) = (Ino(1), HOME.as_bytes().to_vec());
                        node.file::<Attr>(FileCall::Mkdir { parent, name, mode: 0o755 })?;
                    }
                }
                Ok(node.file::<()>(FileCall::Sync)?)
            }
        }
    }

    /// Copies trees in; `quiet` hides what cp complains about.
    pub fn copy_in(&self, roots: &[PathBuf], quiet: bool, watch: client::copy::Watch<'_>) -> Result<()> {
        match self {
            Way::Mount(mount) => {
                let mut cp = Command::new("cp");
                cp.args(["-a", "--"]).args(roots).arg(mount.join(HOME));
                if quiet {
                    cp.stderr(Stdio::null());
                }
                let status = cp.status().context("starting cp")?;
                anyhow::ensure!(status.success(), "cp -a ended with {status}");
                rustix::fs::syncfs(File::open(mount)?).context("syncfs")
            }
            Way::Socket { socket, .. } => {
                let dest = Self::inside(Path::new(""));
                let summary = client::copy::put(socket, roots, &dest, &Options::default(), watch)?;
                complete(summary)
            }
        }
    }

    /// Where the trees can be read: below the mount, or fetched to the scratch directory.
    pub fn bring_out(&self, names: &[PathBuf], watch: client::copy::Watch<'_>) -> Result<PathBuf> {
        match self {
            Way::Mount(mount) => Ok(mount.join(HOME)),
            Way::Socket { socket, scratch } => {
                let paths: Vec<Vec<u8>> = names.iter().map(|n| Self::inside(n)).collect();
                let summary = client::copy::get(socket, &paths, scratch, &Options::default(), watch)?;
                complete(summary)?;
                Ok(scratch.clone())
            }
        }
    }

    /// Makes the big file.
    pub fn create_big(&self) -> Result<Big> {
        match self {
            Way::Mount(mount) => {
                let path = mount.join(HOME).join(BIG);
                Ok(Big::Mount(File::create(&path).with_context(|| path.display().to_string())?))
            }
            Way::Socket { socket, .. } => {
                let mut tree = NodeTree::open(socket)?;
                let home = found(&mut tree, Ino(1), HOME)?;
                let (place, open) = Sink::create(&mut tree, &home, BIG.as_bytes())?;
                Ok(Big::Socket { tree: Box::new(tree), place, open })
            }
        }
    }

    /// Opens the big file for reading.
    pub fn open_big(&self) -> Result<Big> {
        match self {
            Way::Mount(mount) => {
                let path = mount.join(HOME).join(BIG);
                Ok(Big::Mount(File::open(&path).with_context(|| path.display().to_string())?))
            }
            Way::Socket { socket, .. } => {
                let mut tree = NodeTree::open(socket)?;
                let home = found(&mut tree, Ino(1), HOME)?;
                let place = found(&mut tree, home, BIG)?;
                let open = Source::open(&mut tree, &place)?;
                Ok(Big::Socket { tree: Box::new(tree), place, open })
            }
        }
    }
}

impl Big {
    /// Writes.
    pub fn write(&mut self, offset: u64, data: Vec<u8>) -> Result<()> {
        match self {
            Big::Mount(file) => Ok(file.write_all_at(&data, offset)?),
            Big::Socket { tree, open, .. } => match &open.file {
                Some(file) => Ok(file.write_all_at(&data, offset)?),
                None => Ok(Sink::write(&mut **tree, open, offset, data)?),
            },
        }
    }

    /// Makes durable and closes.
    pub fn finish(self) -> Result<()> {
        match self {
            Big::Mount(file) => Ok(file.sync_all()?),
            Big::Socket { mut tree, place, open } => {
                if let Some(file) = &open.file {
                    file.sync_all()?;
                }
                Sink::close(&mut *tree, open)?;
                let now = std::time::SystemTime::now().into();
                let attr = Source::attr(&mut *tree, &place)?;
                Sink::finish(
                    &mut *tree,
                    &place,
                    &Attr { mode: 0o644, mtime: now, atime: now, ..attr },
                    false,
                )?;
                Ok(Sink::sync(&mut *tree)?)
            }
        }
    }

    /// Reads up to `length` bytes; empty at the end.
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let file = match self {
            Big::Mount(file) => &*file,
            Big::Socket { tree, open, .. } => match &open.file {
                Some(file) => file,
                None => return Ok(Source::read(&mut **tree, open, offset, length)?),
            },
        };
        let mut data = vec![0; length];
        let got = file.read_at(&mut data, offset)?;
        data.truncate(got);
        Ok(data)
    }
}

fn found(tree: &mut NodeTree, parent: Ino, name: &str) -> Result<Ino> {
    let item = Sink::lookup(tree, &parent, name.as_bytes())?;
    Ok(item.with_context(|| format!("/{HOME}/{BIG} is gone"))?.place)
}

/// Over the socket directories stay: they are merged into.
fn empty(node: &mut Connection, dir: Ino) -> Result<()> {
    let mut after = 0;
    loop {
        let page: Vec<(DirEntry, Attr)> = node.file(FileCall::ReadDir { dir, after, limit: 1000 })?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = last.cookie;
        for (entry, _) in page {
            match entry.kind {
                FileKind::Directory => empty(node, entry.ino)?,
                _ => node.file::<()>(FileCall::Unlink { parent: dir, name: entry.name })?,
            }
        }
    }
}

fn complete(summary: client::copy::Summary) -> Result<()> {
    if let Some(error) = summary.fatal {
        return Err(error.into());
    }
    if summary.failed > 0 {
        bail!("{} entries could not be copied", summary.failed);
    }
    Ok(())
}
