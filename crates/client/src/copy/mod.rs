//! Copies of trees between a local file system and the namespace.
//!
//! Files are copied by several workers, each with its own connection. A copy is restartable: a file of the same size and
//! modification time is taken as complete, and the modification time is set only after a sync has made the content durable.
//! So whatever interrupts a copy (a signal, power, a restart of the node), running it again completes it. When the node goes
//! away, the copy waits for it and starts over by itself.

mod content;
mod engine;
mod finish;
mod local;
mod node;
mod tree;
mod worker;

pub use engine::copy_trees;
pub use local::LocalTree;
pub use node::NodeTree;
pub use tree::{Item, Open, Seed, Sink, Source};

use crate::{ClientError, Connection};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to copy.
#[derive(Clone, Debug)]
pub struct Options {
    /// Files copied at the same time.
    pub workers: usize,
    /// Set owner and group as at the source (needs uid 0).
    pub owner: bool,
    /// The destination is the name of the copy even if it is a directory (then the source is merged into it).
    pub exact: bool,
    /// Copy again what seems complete.
    pub overwrite: bool,
    /// How long to wait for a node that went away before giving up.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 4,
            owner: rustix::process::geteuid().is_root(),
            exact: false,
            overwrite: false,
            patience: Duration::from_secs(60),
        }
    }
}

/// What happens during a copy; paths are those of the source.
#[derive(Debug)]
pub enum Event<'a> {
    /// A file was found; the totals grow by it.
    Found {
        /// Its length.
        bytes: u64,
    },
    /// So many bytes more were copied (holes included).
    Bytes(u64),
    /// An entry is complete.
    Done {
        /// Which.
        path: &'a [u8],
    },
    /// A file was complete already.
    Skipped {
        /// Which.
        path: &'a [u8],
        /// Its length.
        bytes: u64,
    },
    /// Something minor could not be kept.
    Warning {
        /// Which entry.
        path: &'a [u8],
        /// What.
        problem: &'a ClientError,
    },
    /// An entry failed; the copy goes on.
    Failed {
        /// Which.
        path: &'a [u8],
        /// Why.
        error: &'a ClientError,
    },
    /// The node went away; totals start again from zero once it is back.
    Waiting {
        /// Why.
        error: &'a ClientError,
    },
}

/// Receives events, from several threads.
pub type Watch<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// What was done in the last pass.
#[derive(Debug, Default)]
pub struct Summary {
    /// Regular files copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were complete already.
    pub skipped: u64,
    /// Directories made or merged into.
    pub directories: u64,
    /// Symbolic links, hard links, pipes, sockets and devices made.
    pub others: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Minor losses (see [`Event::Warning`]).
    pub warnings: u64,
    /// Why the copy ended before everything was tried.
    pub fatal: Option<ClientError>,
}

/// Copies local files and trees into the namespace, as `cp -a` does: into `dest` if that is a directory, to the name `dest`
/// if there is one source only. When this returns with nothing failed, all of it is durable.
///
/// # Errors
/// Nothing could be started: no node, no such destination. All else is in the summary.
pub fn put(
    socket: &Path,
    sources: &[PathBuf],
    dest: &[u8],
    options: &Options,
    watch: Watch<'_>,
) -> Result<Summary, ClientError> {
    let (mut wait, mut exact) = (Duration::ZERO, options.exact);
    passes(options, watch, || {
        Connection::open_patient(socket, std::mem::replace(&mut wait, options.patience))?;
        let seeds = local::seeds(sources, &mut NodeTree::open(socket)?, dest, &mut exact)?;
        copy_trees(&|| Ok(LocalTree::default()), &|| NodeTree::open(socket), seeds, options, watch)
    })
}

/// Copies files and trees of the namespace to a local place; see [`put`].
///
/// # Errors
/// As [`put`].
pub fn get(
    socket: &Path,
    sources: &[Vec<u8>],
    dest: &Path,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Summary, ClientError> {
    let (mut wait, mut exact) = (Duration::ZERO, options.exact);
    passes(options, watch, || {
        Connection::open_patient(socket, std::mem::replace(&mut wait, options.patience))?;
        let seeds = node::seeds(&mut NodeTree::open(socket)?, sources, dest, &mut exact)?;
        let sink = LocalTree::syncing(dest)?;
        copy_trees(&|| NodeTree::open(socket), &|| sink.again(), seeds, options, watch)
    })
}

/// Runs passes until one is not ended by a node that goes away. Inode numbers of one pass mean nothing in the next.
fn passes(
    options: &Options,
    watch: Watch<'_>,
    mut pass: impl FnMut() -> Result<Summary, ClientError>,
) -> Result<Summary, ClientError> {
    let mut fruitless = 0;
    loop {
        let mut summary = pass()?;
        let error = match summary.fatal.take() {
            Some(e @ (ClientError::Lost { .. } | ClientError::Unreachable { .. }))
                if !options.patience.is_zero() =>
            {
                e
            }
            other => return Ok(Summary { fatal: other, ..summary }),
        };
        fruitless = if summary.files == 0 { fruitless + 1 } else { 0 };
        if fruitless > 5 {
            return Ok(Summary { fatal: Some(error), ..summary });
        }
        watch(Event::Waiting { error: &error });
        std::thread::sleep(Duration::from_millis(200));
    }
}
