//! A private node in a directory of its own.

use anyhow::{Result, bail, ensure};
use node::{Config, Node, Size};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::{Call, Reply, Selection};

/// How often a request is asked for its state.
const POLL: Duration = Duration::from_millis(10);
/// Bytes of one write.
const WRITE: usize = 1 << 20;

/// A running node; stopped when dropped.
pub struct Bed {
    /// The node.
    pub node: Arc<Node>,
    /// In the end volumes get their indexes; otherwise they are left as they are.
    pub graceful: bool,
}

/// A configuration in which nothing is copied to tape unless asked for.
pub fn config(state: &Path, copies: &[&str]) -> Config {
    let mut config = Config { state_dir: state.to_owned(), ..Config::default() };
    config.disk.capacity = Some(Size::gib(1 << 10));
    config.library.cartridge_capacity = Size::gib(64);
    config.tape.idle_unmount_s = 600;
    let class = &mut config.classes[0];
    class.copies = copies.iter().map(ToString::to_string).collect();
    (class.migrate_after_s, class.migrate_bytes) = (1_000_000, Size(0));
    config
}

/// The administrator, now.
pub fn cx() -> Cx {
    Cx::admin(SystemTime::now().into())
}

impl Bed {
    /// Starts it.
    pub fn start(config: Config) -> Result<Self> {
        Ok(Self { node: Node::start(config)?, graceful: true })
    }

    /// Starts it with a library that is open already.
    pub fn start_with(config: Config, library: Arc<vtl::Library>) -> Result<Self> {
        Ok(Self { node: Node::start_with(config, library)?, graceful: true })
    }

    /// Makes `name` in the root with `bytes` bytes.
    pub fn put(&self, name: &str, bytes: u64) -> Result<()> {
        let opened = self.node.create(&cx(), Ino::ROOT, name.as_bytes(), 0o644, flags(true))?;
        let block: Vec<u8> = (0..WRITE.min(bytes as usize)).map(|n| (n / 7 * 31) as u8).collect();
        let mut offset = 0;
        while offset < bytes {
            let len = block.len().min((bytes - offset) as usize);
            offset += self.node.write(opened.handle, offset, &block[..len])? as u64;
        }
        self.node.fsync(opened.handle, false)?;
        self.node.release(opened.handle);
        Ok(())
    }

    /// Opens a file of the root for reading.
    pub fn open(&self, name: &str) -> Result<Handle> {
        let ino = self.node.lookup(&cx(), Ino::ROOT, name.as_bytes())?.ino;
        Ok(self.node.open(&cx(), ino, flags(false))?.handle)
    }

    /// Asks for something to be done with files and returns when it is done.
    pub fn act(&self, call: impl FnOnce(Selection) -> Call, names: &[String]) -> Result<()> {
        let paths = names.iter().map(|n| format!("/{n}").into_bytes()).collect();
        self.ask(call(Selection { paths, recursive: false }))
    }

    /// Asks for something and returns when it is done.
    pub fn ask(&self, call: Call) -> Result<()> {
        let mut view = self.request(call)?;
        while matches!(view.state, RequestState::Queued | RequestState::Active) {
            std::thread::sleep(POLL);
            view = self.request(Call::Request(view.id))?;
        }
        ensure!(
            view.state == RequestState::Done,
            "{:?} ended as {:?}: {}",
            view.kind,
            view.state,
            view.message
        );
        Ok(())
    }

    fn request(&self, call: Call) -> Result<Request> {
        match self.node.call(&cx(), &mut node::Session::default(), call)?.reply {
            Reply::Request(view) => Ok(view.request),
            other => bail!("the node answered {other:?} where a request was expected"),
        }
    }

    /// All volumes.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        match self.node.call(&cx(), &mut node::Session::default(), Call::Volumes)?.reply {
            Reply::Volumes(views) => Ok(views.into_iter().map(|v| v.volume).collect()),
            other => bail!("the node answered {other:?} where volumes were expected"),
        }
    }

    /// Counters of a drive.
    pub fn stats(&self, drive: u16) -> vtl::DriveStats {
        self.node.virtual_library().stats(drive).unwrap_or_default()
    }

    /// Counters of all drives.
    pub fn all_stats(&self) -> Vec<vtl::DriveStats> {
        (0..self.drives()).map(|n| self.stats(n)).collect()
    }

    /// Drives.
    pub fn drives(&self) -> u16 {
        self.node.virtual_library().drives()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.node.stop(self.graceful);
    }
}

fn flags(write: bool) -> OpenFlags {
    OpenFlags { read: !write, write, ..OpenFlags::default() }
}
