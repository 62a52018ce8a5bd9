//! Every engine passes the conformance suite, the embedded one with unlike flush intervals and a tiny overlay.

use std::time::Duration;

use kv::conformance::check_engine;
use kv::{Durability, Engine, LmdbEngine, LmdbOptions, MemoryEngine, Reader, Result, Stats, Writer};

/// An engine with its directory, which goes when the engine has gone.
struct InDir {
    engine: LmdbEngine,
    _dir: tempfile::TempDir,
}

impl Engine for InDir {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        self.engine.read_dyn(f)
    }
    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>,
    ) -> Result<()> {
        self.engine.write_dyn(durability, f)
    }
    fn sync(&self) -> Result<()> {
        self.engine.sync()
    }
    fn verify(&self) -> Result<()> {
        self.engine.verify()
    }
    fn backup(&self, to: &std::path::Path) -> Result<()> {
        self.engine.backup(to)
    }
    fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

fn lmdb(options: &LmdbOptions) -> Box<dyn Engine> {
    let dir = tempfile::tempdir().unwrap();
    Box::new(InDir { engine: LmdbEngine::open(dir.path(), options.clone()).unwrap(), _dir: dir })
}

#[test]
fn memory() {
    check_engine(&|| Box::new(MemoryEngine::new()));
}

#[test]
fn lmdb_by_default() {
    check_engine(&|| lmdb(&LmdbOptions::default()));
}

#[test]
fn lmdb_that_flushes_all_the_time() {
    check_engine(&|| lmdb(&LmdbOptions { flush_interval: Duration::ZERO, ..Default::default() }));
}

#[test]
fn lmdb_that_flushes_only_on_demand() {
    check_engine(&|| lmdb(&LmdbOptions { flush_interval: Duration::from_secs(3600), ..Default::default() }));
}

#[test]
fn lmdb_under_back_pressure() {
    check_engine(&|| lmdb(&LmdbOptions { overlay_bytes: 2000, ..Default::default() }));
}
