//! Scans in both directions over every mixture of stored, recent and own changes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::{Check, Pairs, down, get, put, up};
use crate::Durability::{Durable, Relaxed};
use crate::{Engine, KvError, MAX_KEY, Reader, read, write};

pub(super) const ALL: &[Check] = &[merges_all_layers, takes_any_bounds, stops_early, long_runs_of_one_key];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every fourth change of each key is a deletion; the layers disagree about most keys.
fn change(layer: u8, model: &mut Model) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut changes = Vec::new();
    for n in (0..40u8).filter(|n| (n / 3 + layer).is_multiple_of(2)) {
        let key = vec![n / 4, n];
        let value = (!(n + layer).is_multiple_of(4)).then(|| vec![layer, n]);
        match &value {
            Some(v) => drop(model.insert(key.clone(), v.clone())),
            None => drop(model.remove(&key)),
        }
        changes.push((key, value));
    }
    changes
}

fn compare(r: &(impl Reader + ?Sized), model: &Model) {
    for from in (0..=11u8).map(|b| vec![b]) {
        for to in (0..=11u8).map(|b| vec![b, 17]) {
            let expected: Pairs = match from < to {
                true => model.range(from.clone()..to.clone()).map(|(k, v)| (k.clone(), v.clone())).collect(),
                false => Pairs::new(),
            };
            assert_eq!(up(r, &from, &to).expect("scan"), expected, "up {from:?} {to:?}");
            let mut back = down(r, &from, &to).expect("scan_back");
            back.reverse();
            assert_eq!(back, expected, "down {from:?} {to:?}");
        }
    }
    for n in 0..40u8 {
        let key = vec![n / 4, n];
        assert_eq!(r.get(&key).expect("get").as_ref(), model.get(&key), "get {key:?}");
    }
}

fn merges_all_layers(engine: &dyn Engine) {
    let mut model = Model::new();
    for layer in 0..6 {
        write::<_, KvError>(engine, if layer % 2 == 0 { Durable } else { Relaxed }, |w| {
            let mut own = model.clone();
            for (key, value) in change(layer, &mut own) {
                match value {
                    Some(value) => w.put(&key, &value)?,
                    None => w.delete(&key)?,
                }
            }
            compare(w, &own);
            Ok(())
        })
        .expect("write");
        change(layer, &mut model);
        read::<_, KvError>(engine, |r| {
            compare(r, &model);
            Ok(())
        })
        .expect("read");
    }
}

fn takes_any_bounds(engine: &dyn Engine) {
    let edge = vec![9; MAX_KEY];
    put(engine, Durable, &edge, b"stored");
    put(engine, Relaxed, &[9; 3], b"recent");
    let behind = vec![9; MAX_KEY + 100];
    read::<_, KvError>(engine, |r| {
        for scan in [up, down] {
            assert_eq!(scan(r, b"", &[255])?.len(), 2, "an empty bound is the beginning");
            assert_eq!(scan(r, b"", &behind)?.len(), 2, "a long end lies behind the key that begins it");
            assert_eq!(scan(r, &behind, &[255])?.len(), 0, "a long start too");
            assert_eq!(scan(r, &edge, &behind)?.len(), 1);
            assert_eq!(scan(r, b"", &edge)?.len(), 1, "the end is exclusive");
            assert_eq!(scan(r, b"", b"")?.len(), 0);
            assert_eq!(scan(r, &[255], b"")?.len(), 0, "a range that ends before it starts is empty");
        }
        Ok(())
    })
    .expect("read");
}

fn stops_early(engine: &dyn Engine) {
    for n in 0..10u8 {
        put(engine, if n % 2 == 0 { Durable } else { Relaxed }, &[n + 1], &[n]);
    }
    read::<_, KvError>(engine, |r| {
        let mut seen = Vec::new();
        let mut three = |k: &[u8], _: &[u8]| {
            seen.push(k[0]);
            if seen.len() % 3 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        r.scan(b"", &[255], &mut three)?;
        r.scan_back(b"", &[255], &mut three)?;
        assert_eq!(seen, [1, 2, 3, 10, 9, 8]);
        Ok(())
    })
    .expect("read");
}

fn long_runs_of_one_key(engine: &dyn Engine) {
    for n in 0..500u32 {
        write::<_, KvError>(engine, Relaxed, |w| {
            w.put(b"a", b"first")?;
            w.put(b"hot", &n.to_be_bytes())?;
            w.put(b"z", b"last")
        })
        .expect("write");
    }
    let expected: Pairs = [(&b"a"[..], &b"first"[..]), (b"hot", &499u32.to_be_bytes()), (b"z", b"last")]
        .map(|(k, v)| (k.to_vec(), v.to_vec()))
        .into();
    read::<_, KvError>(engine, |r| {
        assert_eq!(up(r, b"a", b"zz")?, expected);
        assert_eq!(down(r, b"a", b"zz")?.into_iter().rev().collect::<Pairs>(), expected);
        Ok(())
    })
    .expect("read");
    assert_eq!(get(engine, b"hot"), Some(499u32.to_be_bytes().into()));
}
