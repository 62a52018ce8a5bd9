//! Over a database in memory whose answers can be lost.

use std::cell::RefCell;
use std::sync::Arc;

use super::*;
use crate::merge::{Direction, Source};
use crate::{Reader, conformance};

/// What is stored, and what happens to the next batches.
#[derive(Default)]
struct Store {
    pairs: Values,
    faults: Vec<Fail>,
    /// What was sent and is still on its way.
    late: Option<Values>,
    settled: u32,
    /// A counter that cannot be read.
    damaged: Option<Key>,
}

/// What becomes of a batch.
#[derive(Clone, Copy, PartialEq)]
enum Fail {
    /// It never gets there.
    Gone,
    /// It is stored, the answer does not come.
    Answer,
    /// It is stored when it is asked what became of it for the second time; the first time nobody answers.
    Late,
}

type Shared = Arc<Mutex<Store>>;

struct Here(Shared);

fn lost() -> Fault {
    Fault::Lost("no answer".into())
}

impl Sink for Here {
    fn counters(&mut self, batch: &[&Proposal]) -> Result<Values, Fault> {
        let store = self.0.lock();
        let counters = || batch.iter().flat_map(|p| p.done.counters.keys());
        if let Some(key) = counters().find(|key| store.damaged.as_ref() == Some(*key)) {
            return Err(KvError::BadValue { path: "here".into(), key: key.bytes().into() }.into());
        }
        Ok(counters().map(|key| (key.clone(), store.pairs.get(key).cloned().flatten())).collect())
    }

    fn store(&mut self, values: &Values, _durability: Durability) -> Result<(), Fault> {
        let store = &mut *self.0.lock();
        match store.faults.pop() {
            None => store.pairs.extend(values.clone()),
            Some(Fail::Gone) => return Err(lost()),
            Some(Fail::Answer) => {
                store.pairs.extend(values.clone());
                (store.late, store.settled) = (Some(Values::new()), 1);
                return Err(lost());
            }
            Some(Fail::Late) => {
                store.late = Some(values.clone());
                return Err(lost());
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<bool, Fault> {
        let store = &mut *self.0.lock();
        store.settled += 1;
        match store.late.take() {
            None => Ok(false),
            Some(values) if store.settled > 1 => {
                store.pairs.extend(values);
                Ok(true)
            }
            late => {
                store.late = late;
                Err(Fault::Failed(KvError::Server { address: "here".into(), detail: "away".into() }))
            }
        }
    }
}

/// A copy of everything.
struct Moment {
    pairs: Values,
    reads: RefCell<Reads>,
}

impl Below for Moment {
    fn lookup(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.reads.borrow_mut().key(key);
        Ok(self.pairs.get(key).cloned().flatten())
    }

    fn pages<'s>(&'s self, range: (&[u8], &[u8]), direction: Direction) -> Result<Box<dyn Source + 's>> {
        self.reads.borrow_mut().range(range.0, range.1);
        let range = self.pairs.range(Key::new(range.0)..Key::new(range.1));
        Ok(Box::new(crate::buffer::MapSource::new(range, |v| v.as_deref(), direction)))
    }
}

impl Snapshot for Moment {
    fn finish(self) -> (Reads, Option<Fault>) {
        (self.reads.into_inner(), None)
    }
}

/// An engine of it.
struct Whole {
    store: Shared,
    batches: Batches<Here>,
}

impl Whole {
    fn new(faults: &[Fail]) -> Self {
        let store = Shared::new(Mutex::new(Store { faults: faults.to_vec(), ..Store::default() }));
        let batches = Batches::new(Here(store.clone()), "here".into(), Duration::from_secs(10));
        Self { store, batches }
    }

    fn moment(&self) -> Moment {
        Moment { pairs: self.store.lock().pairs.clone(), reads: RefCell::default() }
    }
}

impl crate::Engine for Whole {
    fn read_dyn(&self, f: &mut dyn FnMut(&dyn Reader) -> Result<()>) -> Result<()> {
        f(&Txn::new(self.moment()))
    }

    fn write_dyn(
        &self,
        durability: Durability,
        f: &mut dyn FnMut(&mut dyn Writer) -> Result<()>,
    ) -> Result<()> {
        self.batches.write(durability, &|| Ok(()), &|| self.moment(), f).map(drop)
    }

    fn sync(&self) -> Result<()> {
        self.batches.sync(&|| Ok(()))
    }

    fn verify(&self) -> Result<()> {
        Ok(())
    }

    fn backup(&self, _to: &std::path::Path) -> Result<()> {
        Ok(())
    }

    fn stats(&self) -> crate::Stats {
        crate::Stats::default()
    }
}

/// Raises the number at `n` by one, from what it reads there; how often it ran.
fn count(engine: &Whole) -> Result<u32> {
    let mut runs = 0;
    crate::write::<_, KvError>(engine, Durability::Durable, |w| {
        runs += 1;
        let before = w.get(b"n")?.map_or(0, |v| v[0]);
        w.put(b"n", &[before + 1])
    })?;
    Ok(runs)
}

fn number(engine: &Whole) -> Option<Vec<u8>> {
    engine.moment().lookup(&Key::new(b"n")).unwrap()
}

#[test]
fn transactions_committed_together_are_serialisable() {
    conformance::check_engine(&|| Box::new(Whole::new(&[])));
}

#[test]
fn a_lost_batch_is_done_again_and_a_lost_answer_is_not() {
    let engine = Whole::new(&[Fail::Answer, Fail::Gone]);
    assert_eq!(count(&engine).unwrap(), 2, "it never got there");
    assert_eq!(number(&engine), Some(vec![1]));
    assert_eq!(count(&engine).unwrap(), 1, "it was stored");
    assert_eq!(number(&engine), Some(vec![2]));
}

/// Whoever reads while it is not known what became of a batch may read what was there before it. It is noticed when that is known, even if the snapshot
/// was taken after the batch was sent.
#[test]
fn what_is_stored_late_is_noticed_by_who_has_read_before() {
    let engine = Whole::new(&[Fail::Late]);
    let unsure = count(&engine).expect_err("nobody knows");
    assert!(unsure.to_string().contains("may have taken effect"), "{unsure}");
    assert_eq!(number(&engine), None);
    assert_eq!(count(&engine).unwrap(), 2);
    assert_eq!(number(&engine), Some(vec![2]), "a change was lost");
}

#[test]
fn after_a_sync_nothing_takes_effect_late() {
    let engine = Whole::new(&[Fail::Late]);
    assert!(!engine.batches.is_unsure());
    count(&engine).expect_err("nobody knows");
    assert!(engine.batches.is_unsure() && number(&engine).is_none());
    crate::Engine::sync(&engine).unwrap();
    assert!(!engine.batches.is_unsure());
    assert_eq!(number(&engine), Some(vec![1]));
}

/// Of several that are committed together those that have to do with something damaged fail, and no others.
#[test]
fn a_damaged_counter_concerns_only_who_changes_it() {
    let engine = Whole::new(&[]);
    engine.store.lock().damaged = Some(Key::new(b"bad"));
    let adds = |key: &[u8]| {
        let mut txn = Txn::new(engine.moment());
        txn.add(key, 1).unwrap();
        let (reads, done) = (Reads::default(), txn.into_parts().1);
        Proposal { reads, since: 0, done, durability: Durability::Durable }
    };
    let ends = engine.batches.commit(&[adds(b"a"), adds(b"bad"), adds(b"b")]);
    let failed = |end: &End| matches!(end, End::Not(Fault::Failed(KvError::BadValue { .. })));
    assert_eq!(ends.iter().map(failed).collect::<Vec<_>>(), [false, true, false], "{ends:?}");
    let keys: Vec<_> = engine.moment().pairs.keys().map(|key| key.bytes().to_vec()).collect();
    assert_eq!(keys, [b"a", b"b"]);
    assert_eq!(engine.batches.counted().0, 2);
}
