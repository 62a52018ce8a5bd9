//! Ordered transactional key-value store: the only thing the catalogue knows of a metadata engine.
//!
//! An engine runs *closures* as serialisable transactions. A closure may be run again (retried), so it must not
//! have effects outside its transaction, and must not call its engine again. A closure that returns an error leaves
//! nothing behind. Keys have 1 to [`MAX_KEY`] bytes, values up to [`MAX_VALUE`]; bounds of scans may be any bytes.

#![deny(unsafe_code)]

use std::ops::ControlFlow;
use std::path::Path;

mod aside;
mod batch;
mod buffer;
pub mod conformance;
mod copy;
mod counted;
mod counter;
mod crashing;
mod database;
mod error;
mod key;
mod lease;
mod limits;
mod lmdb;
mod memory;
mod merge;
mod movable;
mod patience;
mod postgres;
pub mod standby;
#[cfg(feature = "tikv")]
mod tikv;
mod txn;

pub use aside::{Aside, Role};
pub use crashing::CrashingEngine;
pub use database::{
    Database, DatabaseOptions, Place, Reached, Seen, SeenOwner, Taker, Turns, check_address, open_database,
    watch_database,
};
pub use error::{KvError, Result};
pub use lmdb::{LmdbEngine, LmdbOptions, log};
pub use memory::MemoryEngine;
pub use movable::{Movable, Noting, Paused};
pub use postgres::PostgresEngine;
#[cfg(feature = "tikv")]
pub use tikv::TikvEngine;

/// Longest key (bytes); the shortest has 1. The embedded engine would allow 511.
pub const MAX_KEY: usize = 480;

/// Longest value (bytes).
pub const MAX_VALUE: usize = 16 << 20;

/// Called for each pair of a scan; `Break` ends it.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Reads one consistent snapshot.
pub trait Reader {
    /// Value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Visits pairs with `from <= key < to` in ascending order.
    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()>;
    /// Visits pairs with `from <= key < to` in descending order.
    fn scan_back(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()>;
}

/// Reads its own writes and changes them.
pub trait Writer: Reader {
    /// Like `get`, and promises that no other transaction changes `key` before this one ends.
    fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Sets `key`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Removes `key`; no error if it is absent.
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// Adds `delta` to the little-endian i64 at `key` (absent counts as 0), wrapping on overflow; commutes with other adds, so that
    /// counters of a hot directory do not serialise on engines that can merge.
    fn add(&mut self, key: &[u8], delta: i64) -> Result<()>;
    /// Raises the little-endian i64 at `key` to at least `value`; commutes with other raises.
    fn raise(&mut self, key: &[u8], value: i64) -> Result<()>;
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As soon as every later reader sees it; on stable storage within the engine's flush interval, in order.
    Relaxed,
    /// Only when it, and everything acknowledged before it, survives power loss.
    Durable,
}

/// Figures of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys on stable storage (estimate).
    pub keys: u64,
    /// Bytes of the store file in use.
    pub bytes: u64,
    /// Write transactions since open.
    pub writes: u64,
    /// Flushes to stable storage since open.
    pub flushes: u64,
}

/// A metadata engine. Object safe: the typed entrances are [`read`] and [`write`].
pub trait Engine: Send + Sync {
    /// Runs `f` on a snapshot.
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()>;
    /// Runs `f` as a transaction; commits if it returns Ok.
    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>,
    ) -> Result<()>;
    /// Returns when everything acknowledged so far survives power loss; a change that has failed is seen by then, or never will be.
    fn sync(&self) -> Result<()>;
    /// Reads everything that is on stable storage and compares it with what was written there.
    ///
    /// # Errors
    /// `Corrupt` says what is wrong where; `Io` if it cannot be read.
    fn verify(&self) -> Result<()>;
    /// Writes a consistent copy, openable as an engine, into the new directory `to` while running.
    fn backup(&self, to: &Path) -> Result<()>;
    /// How the log of changes is, if this engine keeps one.
    fn log(&self) -> Option<log::LogState> {
        None
    }
    /// Figures.
    fn stats(&self) -> Stats;
}

/// Runs a reading closure with a result and an error type of its own.
pub fn read<T, E: From<KvError>>(
    engine: &dyn Engine,
    mut f: impl FnMut(&dyn Reader) -> Result<T, E>,
) -> Result<T, E> {
    let mut out = None;
    engine.read_dyn(&mut |r| {
        out = Some(f(r));
        Ok(())
    })?;
    out.expect("an engine that returns Ok has run the closure")
}

/// Runs a writing closure with a result and an error type of its own; an error rolls back.
pub fn write<T, E: From<KvError>>(
    engine: &dyn Engine,
    durability: Durability,
    mut f: impl FnMut(&mut dyn Writer) -> Result<T, E>,
) -> Result<T, E> {
    let mut out = None;
    let committed = engine.write_dyn(durability, &mut |w| {
        let result = f(w);
        let ok = result.is_ok();
        out = Some(result);
        if ok { Ok(()) } else { Err(KvError::Aborted) }
    });
    match (committed, out) {
        (Ok(()), Some(result)) => result,
        (Err(KvError::Aborted), Some(Err(e))) => Err(e),
        (Err(e), _) => Err(e.into()),
        (Ok(()), None) => unreachable!("an engine that returns Ok has run the closure"),
    }
}
