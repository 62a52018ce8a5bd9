//! An engine whose place another one can take while it is used. While that is prepared, the keys that change are noted; whoever prepares it brings
//! their values over, and holds changes back only for the last few. Which values, how often and in which order they changed does not matter: what a
//! key has when nothing changes any more is what counts. So it is the same for all engines, and what is noted is bounded by the keys that change.

use std::collections::BTreeSet;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};

use crate::{Durability, Engine, Reader, Result, Stats, Visit, Writer, log};

/// For so long the end of noting waits for changes under way.
const A_MOMENT: Duration = Duration::from_secs(1);
/// What a noted key takes besides its bytes (estimate).
const AROUND: usize = 48;

/// An engine that can be replaced. Whoever reads or writes meanwhile does not notice.
pub struct Movable<E> {
    /// Shared by every closure that writes, from before it begins until its keys are noted; held alone by who replaces the engine.
    gate: RwLock<Option<Arc<Notes>>>,
    /// Changes only under `gate`. Reading does not wait for that one.
    engine: RwLock<Arc<E>>,
}

/// Keys that changed.
struct Notes {
    noted: Mutex<Noted>,
    taken: Condvar,
    /// More than this is not noted (bytes).
    most: usize,
}

#[derive(Default)]
struct Noted {
    keys: BTreeSet<Vec<u8>>,
    bytes: usize,
    /// There were more than can be noted, or nobody takes them; none is any more.
    too_many: bool,
    /// While more keys than this are noted, changes wait, so long at most; until then.
    held_above: Option<(usize, Duration, Instant)>,
}

impl Notes {
    fn note(&self, keys: Vec<Vec<u8>>) {
        let mut noted = self.noted.lock();
        for key in keys {
            let bytes = key.len() + AROUND;
            if !noted.too_many && noted.keys.insert(key) {
                noted.bytes += bytes;
            }
        }
        if noted.bytes > self.most {
            *noted = Noted { too_many: true, ..Noted::default() };
        }
    }

    fn take(&self) -> Option<BTreeSet<Vec<u8>>> {
        let mut noted = self.noted.lock();
        noted.bytes = 0;
        let keys = mem::take(&mut noted.keys);
        self.taken.notify_all();
        (!noted.too_many).then_some(keys)
    }

    /// Nothing is noted any more, and nothing waits.
    fn end(&self) {
        *self.noted.lock() = Noted { too_many: true, ..Noted::default() };
        self.taken.notify_all();
    }

    fn hold(&self) {
        let mut noted = self.noted.lock();
        let Some((keys, most, ends)) = noted.held_above else { return };
        let until = ends.min(Instant::now() + most);
        while noted.keys.len() > keys && !self.taken.wait_until(&mut noted, until).timed_out() {}
    }
}

impl<E: Engine> Movable<E> {
    /// Over an engine.
    pub fn new(engine: E) -> Self {
        Self { gate: RwLock::new(None), engine: RwLock::new(Arc::new(engine)) }
    }

    /// The engine that counts.
    pub fn engine(&self) -> Arc<E> {
        self.engine.read().clone()
    }

    /// From when this returns until what it returns is dropped, the keys that change are noted: what is read of the engine afterwards, and the values of
    /// noted keys, are all. `most`: bytes of keys that are noted before they are taken. One at a time. None if a change under way takes longer than `patience`.
    pub fn note(&self, most: usize, patience: Duration) -> Option<Noting<'_, E>> {
        let notes = Arc::new(Notes { noted: Mutex::default(), taken: Condvar::new(), most });
        *self.gate.try_write_for(patience)? = Some(notes.clone());
        Some(Noting { of: self, notes })
    }
}

/// Keys are being noted.
pub struct Noting<'e, E> {
    of: &'e Movable<E>,
    notes: Arc<Notes>,
}

impl<E: Engine> Noting<'_, E> {
    /// The keys noted since they were taken last; None if there were too many, so that some are missing.
    pub fn take(&self) -> Option<BTreeSet<Vec<u8>>> {
        self.notes.take()
    }

    /// From now on every change waits while more than `keys` are noted, until they are taken, and for no longer than `most`; after the time `ends` none does.
    pub fn hold_above(&self, keys: usize, most: Duration, ends: Instant) {
        self.notes.noted.lock().held_above = Some((keys, most, ends));
    }

    /// Waits for changes under way, and begins no other until what this returns is dropped. Reading goes on. None if that takes longer than `most`.
    pub fn pause(&self, most: Duration) -> Option<Paused<'_, E>> {
        let gate = self.of.gate.try_write_for(most)?;
        Some(Paused { gate, of: self.of, notes: &self.notes })
    }
}

impl<E> Drop for Noting<'_, E> {
    fn drop(&mut self) {
        self.notes.end();
        // Whoever waits at the gate keeps others waiting. Behind a change that does not end these notes stay, and nothing is noted in them.
        if let Some(mut gate) = self.of.gate.try_write_for(A_MOMENT) {
            *gate = None;
        }
    }
}

/// Nothing changes.
pub struct Paused<'e, E> {
    gate: RwLockWriteGuard<'e, Option<Arc<Notes>>>,
    of: &'e Movable<E>,
    notes: &'e Notes,
}

impl<E: Engine> Paused<'_, E> {
    /// As [`Noting::take`].
    pub fn take(&self) -> Option<BTreeSet<Vec<u8>>> {
        self.notes.take()
    }

    /// The engine that counts from now on, and holds what the other one holds. Changes go on; no more keys are noted.
    pub fn replace(mut self, engine: Arc<E>) {
        *self.gate = None;
        *self.of.engine.write() = engine;
    }
}

impl<E: Engine> Engine for Movable<E> {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        self.engine().read_dyn(f)
    }

    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>,
    ) -> Result<()> {
        let noting = self.gate.read().clone();
        if let Some(notes) = noting {
            notes.hold();
        }
        let gate = self.gate.read();
        let engine = self.engine();
        let Some(notes) = &*gate else { return engine.write_dyn(durability, f) };
        let mut keys = Vec::new();
        let done = engine.write_dyn(durability, &mut |w| f(&mut NotingWriter { w, keys: &mut keys }));
        // Only now, since a key that is taken is read at once. Of what failed it may not be known whether it took effect.
        notes.note(keys);
        done
    }

    fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    fn verify(&self) -> Result<()> {
        self.engine().verify()
    }

    fn backup(&self, to: &Path) -> Result<()> {
        self.engine().backup(to)
    }

    fn log(&self) -> Option<log::LogState> {
        self.engine().log()
    }

    fn stats(&self) -> Stats {
        self.engine().stats()
    }
}

/// Notes what a closure changes, in all its runs.
struct NotingWriter<'w> {
    w: &'w mut dyn Writer,
    keys: &'w mut Vec<Vec<u8>>,
}

impl Reader for NotingWriter<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.w.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.w.scan(from, to, visit)
    }

    fn scan_back(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.w.scan_back(from, to, visit)
    }
}

impl Writer for NotingWriter<'_> {
    fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.w.get_for_update(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keys.push(key.to_vec());
        self.w.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.keys.push(key.to_vec());
        self.w.delete(key)
    }

    fn add(&mut self, key: &[u8], delta: i64) -> Result<()> {
        self.keys.push(key.to_vec());
        self.w.add(key, delta)
    }

    fn raise(&mut self, key: &[u8], value: i64) -> Result<()> {
        self.keys.push(key.to_vec());
        self.w.raise(key, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::check_engine;
    use crate::{KvError, MemoryEngine, read, write};
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    const MUCH: usize = 1 << 20;

    fn all(engine: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut pairs = Vec::new();
        let scanned = read::<_, KvError>(engine, |r| {
            pairs.clear();
            r.scan(&[], &[255], &mut |k, v| {
                pairs.push((k.to_vec(), v.to_vec()));
                ControlFlow::Continue(())
            })
        });
        scanned.unwrap();
        pairs
    }

    fn put(engine: &dyn Engine, key: &[u8]) {
        write::<_, KvError>(engine, Durability::Relaxed, |w| w.put(key, b"v")).unwrap();
    }

    fn noting_of(engine: &Movable<MemoryEngine>, most: usize) -> Noting<'_, MemoryEngine> {
        engine.note(most, Duration::from_secs(60)).expect("changes end")
    }

    /// Brings the values of these keys over.
    fn bring(keys: BTreeSet<Vec<u8>>, from: &dyn Engine, to: &dyn Engine) {
        for key in keys {
            let value = read::<_, KvError>(from, |r| r.get(&key)).unwrap();
            let changed = write::<_, KvError>(to, Durability::Relaxed, |w| match &value {
                Some(value) => w.put(&key, value),
                None => w.delete(&key),
            });
            changed.unwrap();
        }
    }

    #[test]
    fn an_engine_that_can_be_replaced_is_one_while_keys_are_noted_too() {
        check_engine(&|| Box::new(Movable::new(MemoryEngine::new())));
        check_engine(&|| {
            let engine = Movable::new(MemoryEngine::new());
            *engine.gate.write() =
                Some(Arc::new(Notes { noted: Mutex::default(), taken: Condvar::new(), most: 9 }));
            Box::new(engine)
        });
    }

    #[test]
    fn whatever_changes_a_key_is_noted_once_and_until_it_is_taken() {
        let engine = Movable::new(MemoryEngine::new());
        put(&engine, b"before");
        let noting = noting_of(&engine, MUCH);
        let all_kinds = write::<_, KvError>(&engine, Durability::Durable, |w| {
            w.put(b"put", b"1")?;
            w.delete(b"before")?;
            w.add(b"added", 2)?;
            w.raise(b"raised", 3)?;
            w.get_for_update(b"read").map(drop)
        });
        all_kinds.unwrap();
        put(&engine, b"put");
        let expected: [&[u8]; 4] = [b"added", b"before", b"put", b"raised"];
        assert!(noting.take().unwrap().iter().eq(expected));
        assert_eq!(noting.take().map(|keys| keys.len()), Some(0));
        drop(noting);
        put(&engine, b"after");
        let noting = noting_of(&engine, 3 * AROUND);
        put(&engine, b"a");
        put(&engine, b"b");
        assert_eq!(noting.take().map(|keys| keys.len()), Some(2));
        (0..4u8).for_each(|n| put(&engine, &[n + 1]));
        assert_eq!(noting.take(), None, "there were more than can be noted");
        put(&engine, b"a");
        assert_eq!(noting.take(), None, "and so it stays");
    }

    #[test]
    fn changes_wait_a_moment_for_who_brings_keys_over_and_no_longer() {
        let engine = Movable::new(MemoryEngine::new());
        let noting = noting_of(&engine, MUCH);
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(3600));
        noting.hold_above(1, short, Instant::now() + long);
        (0..4u8).for_each(|n| put(&engine, &[n + 1])); // would hang
        noting.hold_above(1, long, Instant::now() + short);
        (4..8u8).for_each(|n| put(&engine, &[n + 1])); // likewise
        assert_eq!(noting.take().map(|keys| keys.len()), Some(8));
    }

    #[test]
    fn a_change_that_does_not_end_keeps_changes_from_being_paused_and_no_other_change_waiting() {
        let engine = Movable::new(MemoryEngine::new());
        let noting = noting_of(&engine, MUCH);
        thread::scope(|scope| {
            let (began, begins) = std::sync::mpsc::channel();
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let stuck = &engine;
            scope.spawn(move || {
                write::<_, KvError>(stuck, Durability::Relaxed, |w| {
                    began.send(()).unwrap();
                    let _ = ends.recv();
                    w.put(b"late", b"v")
                })
                .unwrap();
            });
            begins.recv().unwrap();
            assert!(noting.pause(Duration::from_millis(20)).is_none());
            assert!(engine.gate.try_read().is_some(), "others wait");
            drop(noting);
            assert!(engine.note(MUCH, Duration::from_millis(20)).is_none());
            assert!(engine.gate.try_read().is_some(), "others wait");
            drop(end);
        });
        let noting = noting_of(&engine, MUCH);
        put(&engine, b"k");
        let paused = noting.pause(Duration::from_secs(60)).expect("nothing is under way");
        assert_eq!(paused.take().map(|keys| keys.len()), Some(1));
    }

    /// Tells threads to stop.
    struct StopAtEnd<'a>(&'a AtomicBool);

    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Threads change counters and names; each key that was acknowledged is in the engine that counts in the end, and nothing else is.
    #[test]
    fn what_was_acknowledged_is_in_the_engine_that_counts() {
        let engine = Movable::new(MemoryEngine::new());
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        let added: Vec<i64> = thread::scope(|scope| {
            // Also when this fails, or the scope would wait for threads for ever.
            let _stop = StopAtEnd(&stop);
            let work = |n: u8| {
                let mut done = 0i64;
                while !stop.load(Ordering::Acquire) {
                    let changed = write::<_, KvError>(&engine, Durability::Relaxed, |w| {
                        w.add(b"sum", 1)?;
                        let key = [b'k', n, (done % 7) as u8];
                        if done % 3 == 0 { w.delete(&key) } else { w.put(&key, &done.to_le_bytes()) }
                    });
                    changed.unwrap();
                    done += 1;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                done
            };
            let threads: Vec<_> = (0..3).map(|n| scope.spawn(move || work(n))).collect();
            for _ in 0..20 {
                let (before, old) = (rounds.load(Ordering::Relaxed), engine.engine());
                let (noting, copy) = (noting_of(&engine, MUCH), MemoryEngine::new());
                for (key, value) in all(&*old) {
                    write::<_, KvError>(&copy, Durability::Relaxed, |w| w.put(&key, &value)).unwrap();
                }
                while rounds.load(Ordering::Relaxed) < before + 100 {
                    bring(noting.take().unwrap(), &*old, &copy);
                    thread::yield_now();
                }
                let paused = noting.pause(Duration::from_secs(60)).expect("changes end");
                bring(paused.take().unwrap(), &*old, &copy);
                assert_eq!(all(&*old), all(&copy));
                paused.replace(Arc::new(copy));
            }
            stop.store(true, Ordering::Release);
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let sum = read::<_, KvError>(&engine, |r| r.get(b"sum")).unwrap().unwrap();
        assert_eq!(sum, added.iter().sum::<i64>().to_le_bytes());
    }
}
