//! The embedded engine: memory overlays over LMDB. How and why: `docs/design/0002-overlay-engine.md`; what is on
//! disk: `docs/formats/engine.md`.

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use self::log::{LogOptions, LogState};
use self::shared::Core;
use self::store::Store;
use crate::standby::{Content, Feed, Page};
use crate::txn::Txn;
use crate::{Aside, Durability, Engine, KvError, Reader, Result, Stats, Writer};

mod at;
mod file;
mod journal;
mod last;
pub mod log;
pub(crate) use self::log::batch;
mod overlay;
pub(crate) mod place;
mod save;
pub(crate) mod sealed;
mod shared;
mod store;
mod tables;
mod view;

/// How to open an [`LmdbEngine`].
#[derive(Clone, Debug)]
pub struct LmdbOptions {
    /// Address space for the data file (bytes), the most it can grow to; takes no memory and no disk by itself.
    pub map_bytes: usize,
    /// How long a relaxed change may wait for stable storage.
    pub flush_interval: Duration,
    /// Memory for changes not yet in the store (bytes); writers wait when it is used up. While a flush runs, twice
    /// this may be held.
    pub overlay_bytes: usize,
    /// Whether changes may be made durable by a journal, and go into the store later. Without, or with `feed`, each flush writes
    /// the store.
    pub journal: bool,
    /// How long a change may be in the journal only.
    pub save_interval: Duration,
    /// Where changes are logged, if anywhere.
    pub log: Option<LogOptions>,
    /// Number of a move ([`Aside`]): what was set aside for it opens too.
    pub aside: Option<String>,
    /// Where committed batches are handed to, if a standby follows.
    pub feed: Option<Arc<Feed>>,
}

impl Default for LmdbOptions {
    /// 1 TiB, 50 ms, 32 MiB, with a journal, 1 s, no log, nothing that was set aside, no standby.
    fn default() -> Self {
        Self {
            map_bytes: 1 << 40,
            flush_interval: Duration::from_millis(50),
            overlay_bytes: 32 << 20,
            journal: true,
            save_interval: Duration::from_secs(1),
            log: None,
            aside: None,
            feed: None,
        }
    }
}

/// The embedded engine. Writing closures run one after another on their callers' threads and commit into an overlay; a flush writes
/// them to a journal with one sync, and now and then the overlay goes to LMDB as one transaction. Readers never wait for
/// writers or flushes. Dropping it flushes.
pub struct LmdbEngine {
    core: Arc<Core>,
    flusher: Option<JoinHandle<()>>,
}

impl LmdbEngine {
    /// Opens the engine in `dir`, or makes one if `dir` is missing or empty.
    ///
    /// # Errors
    /// `Locked` if anybody has it open, `Aside` if it does not count, `Format` if a build of another format made it, `Corrupt` if its data file, which
    /// is read from end to end, is not what was written, `Full` and `Io` as the file system says. If only what a crash left in the journal has no
    /// room in the store, it opens, and refuses changes until it has.
    pub fn open(dir: &Path, options: LmdbOptions) -> Result<Self> {
        let (store, unsaved) = Store::open(dir, &options)?;
        let core = Arc::new(Core::new(store, unsaved, options));
        let shared = core.clone();
        let flusher = thread::Builder::new()
            .name("kv-flusher".into())
            .spawn(move || shared.run_flusher())
            .map_err(|e| KvError::Io { path: dir.into(), detail: format!("starting the flusher: {e}") })?;
        Ok(Self { core, flusher: Some(flusher) })
    }

    /// Says durably that this engine does not count from its next opening on, or that it does (`None`).
    ///
    /// # Errors
    /// `Full` and `Io` as the file system says: it is as before, or as asked for.
    pub fn set_aside(&self, mark: Option<&Aside>) -> Result<()> {
        self.core.save()?;
        self.core.store.place.mark(mark)
    }

    /// The mark of the engine in `dir`, if it was set aside.
    ///
    /// # Errors
    /// `Format` if a build of another format made it, `Io` if its marker cannot be read.
    pub fn aside(dir: &Path) -> Result<Option<Aside>> {
        match place::read_marker(dir)? {
            place::Marker::Aside(_, mark) => Ok(Some(mark)),
            place::Marker::None | place::Marker::Whole(_) => Ok(None),
        }
    }
}

/// What standbys need.
impl LmdbEngine {
    /// What is on stable storage, without what only a standby has.
    pub(crate) fn content(&self) -> Content {
        self.core.store.content()
    }

    /// The pairs from `from` on, about `bytes` of them, as of the last batch on stable storage.
    pub(crate) fn page(&self, from: &[u8], bytes: usize) -> Result<Page> {
        self.core.store.page(from, bytes)
    }
}

impl Engine for LmdbEngine {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        f(&Txn::new(self.core.view()?))
    }

    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>,
    ) -> Result<()> {
        let core = &*self.core;
        core.make_room()?;
        let seq = {
            let _writer = core.writer.lock();
            let changes = {
                let mut txn = Txn::new(core.writer_view());
                f(&mut txn)?;
                txn.into_changes()
            };
            if changes.is_empty() { core.visible() } else { core.commit(changes) }
        };
        match durability {
            Durability::Durable => core.wait_flushed(seq)?,
            Durability::Relaxed => core.wake_flusher(),
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.core.wait_flushed(self.core.visible())
    }

    fn verify(&self) -> Result<()> {
        self.core.store.verify()
    }

    fn backup(&self, to: &Path) -> Result<()> {
        self.core.mend_log();
        self.core.save()?;
        self.core.store.copy(to)
    }

    fn log(&self) -> Option<LogState> {
        self.core.store.log.as_ref().map(log::ChangeLog::view)
    }

    fn stats(&self) -> Stats {
        let (keys, bytes) = self.core.store.size();
        Stats { keys, bytes, writes: self.core.visible(), flushes: self.core.flushes() }
    }
}

impl Drop for LmdbEngine {
    fn drop(&mut self) {
        self.core.stop_flusher();
        if let Some(flusher) = self.flusher.take() {
            let _ = flusher.join(); // it holds nothing that a panic could have left half done
        }
        let _ = self.core.flush_at_last(); // a failure was or will be seen by whoever asked for durability
    }
}
