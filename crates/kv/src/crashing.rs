//! An engine in memory that can be killed: what was not made durable goes, from the newest change back. For the
//! simulator.

use crate::buffer::Changes;
use crate::memory::MemoryEngine;
use crate::{Durability, Engine, KvError, Reader, Result, Stats, Writer};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A [`MemoryEngine`] that keeps what would undo each relaxed change, until the next durable one.
#[derive(Default)]
pub struct CrashingEngine {
    map: MemoryEngine,
    /// Inverse of each commit since the last durable one, oldest first. Held while a closure that writes runs.
    undo: Mutex<Vec<Changes>>,
    dead: AtomicBool,
}

impl CrashingEngine {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// The process dies: no change gets in any more, and everybody who tries is told.
    pub fn kill(&self) {
        let _undo = self.undo.lock();
        self.dead.store(true, Ordering::Release);
    }

    /// Commits that the next crash may take.
    pub fn relaxed(&self) -> usize {
        self.undo.lock().len()
    }

    /// The process is started again, and finds the first `keep` of the commits that were not durable.
    pub fn restart(&self, keep: usize) {
        let mut undo = self.undo.lock();
        while undo.len() > keep {
            let Some(inverse) = undo.pop() else { break };
            self.map.commit(inverse);
        }
        undo.clear();
        self.dead.store(false, Ordering::Release);
    }

    fn alive(&self) -> Result<()> {
        if !self.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(KvError::Io { path: "memory".into(), detail: "the process has been killed".into() })
    }
}

impl Engine for CrashingEngine {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        self.map.read_dyn(f)
    }

    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>,
    ) -> Result<()> {
        let mut undo = self.undo.lock();
        self.alive()?;
        let inverse = self.map.change(f)?;
        match durability {
            Durability::Relaxed => undo.push(inverse),
            Durability::Durable => undo.clear(),
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut undo = self.undo.lock();
        self.alive()?;
        undo.clear();
        Ok(())
    }

    fn verify(&self) -> Result<()> {
        self.map.verify()
    }

    fn backup(&self, to: &Path) -> Result<()> {
        self.map.backup(to)
    }

    fn stats(&self) -> Stats {
        self.map.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read, write};

    fn put(engine: &CrashingEngine, durability: Durability, key: &[u8], value: &[u8]) -> Result<()> {
        write(engine, durability, |w| w.put(key, value))
    }

    fn get(engine: &CrashingEngine, key: &[u8]) -> Option<Vec<u8>> {
        read(engine, |r| r.get(key)).unwrap()
    }

    #[test]
    fn behaves_as_an_engine() {
        crate::conformance::check_engine(&|| Box::new(CrashingEngine::new()));
    }

    #[test]
    fn a_crash_takes_the_newest_relaxed_changes_and_no_durable_one() {
        let engine = CrashingEngine::new();
        put(&engine, Durability::Relaxed, b"a", b"1").unwrap();
        put(&engine, Durability::Durable, b"b", b"1").unwrap();
        assert_eq!(engine.relaxed(), 0, "everything before a durable one is durable");
        put(&engine, Durability::Relaxed, b"a", b"2").unwrap();
        put(&engine, Durability::Relaxed, b"a", b"3").unwrap();
        write::<_, KvError>(&engine, Durability::Relaxed, |w| w.delete(b"b")).unwrap();
        engine.kill();
        assert!(put(&engine, Durability::Relaxed, b"c", b"1").is_err() && engine.sync().is_err());
        engine.restart(1);
        assert_eq!((get(&engine, b"a"), get(&engine, b"b")), (Some(b"2".to_vec()), Some(b"1".to_vec())));
        put(&engine, Durability::Relaxed, b"a", b"4").unwrap();
        engine.sync().unwrap();
        engine.kill();
        engine.restart(0);
        assert_eq!(get(&engine, b"a"), Some(b"4".to_vec()));
    }
}
