//! Random operations and the ordered map that an engine is compared with.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kv::{Durability, Engine, KvError, Reader, read, write};
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// One change of a transaction.
#[derive(Clone, Debug)]
pub enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Add(u8, i64),
    Raise(u8, i64),
}

/// One step.
#[derive(Clone, Debug)]
pub enum Op {
    Write { changes: Vec<Change>, durable: bool, fail: bool },
    Read(Vec<u8>),
    Scan(Vec<u8>, Vec<u8>),
    Sync,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..3u8, 1..4)
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (key(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(k, v)| Change::Put(k, v)),
        1 => key().prop_map(|k| Change::Put(k, vec![1; 9000])),
        3 => key().prop_map(Change::Delete),
        1 => (0..2u8, any::<i64>()).prop_map(|(k, d)| Change::Add(k, d)),
        1 => (0..2u8, any::<i64>()).prop_map(|(k, v)| Change::Raise(k, v)),
    ]
}

/// Any step.
pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (prop::collection::vec(change(), 0..6), any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(changes, durable, fail)| Op::Write { changes, durable, fail }),
        2 => key().prop_map(Op::Read),
        3 => (prop::collection::vec(0..4u8, 0..3), prop::collection::vec(0..4u8, 0..3)).prop_map(|(a, b)| Op::Scan(a, b)),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

fn counter_key(n: u8) -> Vec<u8> {
    vec![200, n]
}

fn counter(model: &Model, key: &[u8]) -> Option<i64> {
    model.get(key).map(|v| i64::from_le_bytes(v.as_slice().try_into().unwrap()))
}

fn apply(model: &mut Model, change: &Change) {
    match change {
        Change::Put(k, v) => drop(model.insert(k.clone(), v.clone())),
        Change::Delete(k) => drop(model.remove(k)),
        Change::Add(n, d) => {
            let sum = counter(model, &counter_key(*n)).unwrap_or(0).wrapping_add(*d);
            model.insert(counter_key(*n), sum.to_le_bytes().into());
        }
        Change::Raise(n, v) => {
            let top = counter(model, &counter_key(*n)).map_or(*v, |now| now.max(*v));
            model.insert(counter_key(*n), top.to_le_bytes().into());
        }
    }
}

fn check_scan(r: &(impl Reader + ?Sized), model: &Model, from: &[u8], to: &[u8]) {
    let mut expected: Vec<(&[u8], &[u8])> =
        model.iter().map(|(k, v)| (&k[..], &v[..])).filter(|(k, _)| *k >= from && *k < to).collect();
    for back in [false, true] {
        let mut at = 0;
        let mut visit = |k: &[u8], v: &[u8]| {
            assert_eq!(expected.get(at), Some(&(k, v)), "pair {at} of {from:?}..{to:?}, back {back}");
            at += 1;
            ControlFlow::Continue(())
        };
        if back { r.scan_back(from, to, &mut visit) } else { r.scan(from, to, &mut visit) }.unwrap();
        assert_eq!(at, expected.len(), "{from:?}..{to:?}, back {back}");
        expected.reverse();
    }
}

fn transact(engine: &dyn Engine, model: &mut Model, changes: &[Change], durability: Durability, fail: bool) {
    let mut after = model.clone();
    let result = write::<_, KvError>(engine, durability, |w| {
        after = model.clone();
        for change in changes {
            apply(&mut after, change);
            match change {
                Change::Put(k, v) => w.put(k, v)?,
                Change::Delete(k) => w.delete(k)?,
                Change::Add(n, d) => w.add(&counter_key(*n), *d)?,
                Change::Raise(n, v) => w.raise(&counter_key(*n), *v)?,
            }
        }
        check_scan(w, &after, b"", &[255]);
        if fail { Err(KvError::Conflict) } else { Ok(()) }
    });
    assert_eq!(result.is_err(), fail, "{result:?}");
    if !fail {
        *model = after;
    }
}

/// Runs the operations; `reopen` gives the engine back after closing it.
pub fn run(ops: &[Op], mut engine: Box<dyn Engine>, reopen: &dyn Fn(Box<dyn Engine>) -> Box<dyn Engine>) {
    let mut model = Model::new();
    for op in ops {
        match op {
            Op::Write { changes, durable, fail } => {
                let durability = if *durable { Durability::Durable } else { Durability::Relaxed };
                transact(&*engine, &mut model, changes, durability, *fail);
            }
            Op::Read(k) => {
                assert_eq!(read::<_, KvError>(&*engine, |r| r.get(k)).unwrap().as_ref(), model.get(k))
            }
            Op::Scan(from, to) => read::<_, KvError>(&*engine, |r| {
                check_scan(r, &model, from, to);
                Ok(())
            })
            .unwrap(),
            Op::Sync => engine.sync().unwrap(),
            Op::Reopen => engine = reopen(engine),
        }
    }
    read::<_, KvError>(&*engine, |r| {
        check_scan(r, &model, b"", &[255]);
        Ok(())
    })
    .unwrap();
}
