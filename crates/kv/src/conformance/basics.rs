//! One transaction at a time: commit, rollback, own writes, counters, limits.

use super::{Check, get, put};
use crate::Durability::{Durable, Relaxed};
use crate::{Engine, KvError, MAX_KEY, MAX_VALUE, Result, read, write};

pub(super) const ALL: &[Check] =
    &[commits, rolls_back, sees_own_writes, counts, refuses_what_is_no_counter, keeps_limits, carries_errors];

fn commits(engine: &dyn Engine) {
    assert_eq!(get(engine, b"k"), None);
    for (durability, value) in [(Relaxed, b"1".as_slice()), (Durable, b""), (Relaxed, b"3")] {
        put(engine, durability, b"k", value);
        assert_eq!(get(engine, b"k").as_deref(), Some(value), "visible when acknowledged {durability:?}");
    }
    engine.sync().expect("sync");
    write::<_, KvError>(engine, Durable, |w| w.delete(b"k")).expect("delete");
    assert_eq!(get(engine, b"k"), None, "deleted");
    write::<_, KvError>(engine, Relaxed, |w| w.delete(b"k")).expect("deleting what is absent is no error");
}

fn rolls_back(engine: &dyn Engine) {
    put(engine, Relaxed, b"kept", b"old");
    let result: Result<(), KvError> = write(engine, Durable, |w| {
        w.put(b"kept", b"new")?;
        w.put(b"other", b"x")?;
        w.add(b"count", 1)?;
        Err(KvError::Conflict)
    });
    assert!(matches!(result, Err(KvError::Conflict)), "{result:?}");
    assert_eq!(get(engine, b"kept").as_deref(), Some(b"old".as_slice()));
    assert_eq!(get(engine, b"other"), None);
    assert_eq!(get(engine, b"count"), None);
}

fn sees_own_writes(engine: &dyn Engine) {
    put(engine, Durable, b"a", b"1");
    write::<_, KvError>(engine, Relaxed, |w| {
        w.put(b"b", b"2")?;
        w.put(b"b", b"3")?;
        assert_eq!(w.get(b"b")?.as_deref(), Some(b"3".as_slice()));
        w.delete(b"a")?;
        assert_eq!(w.get_for_update(b"a")?, None, "own deletion hides what is stored");
        w.put(b"a", b"4")?;
        assert_eq!(w.get(b"a")?.as_deref(), Some(b"4".as_slice()), "put after delete");
        Ok(())
    })
    .expect("write");
    assert_eq!(get(engine, b"a").as_deref(), Some(b"4".as_slice()));
}

fn counts(engine: &dyn Engine) {
    let counter = |key: &[u8]| get(engine, key).map(|v| i64::from_le_bytes(v.try_into().expect("8 bytes")));
    for durability in [Relaxed, Durable, Relaxed] {
        write::<_, KvError>(engine, durability, |w| {
            w.add(b"sum", 5)?;
            w.add(b"sum", -2)?;
            w.raise(b"top", -7)
        })
        .expect("add");
    }
    assert_eq!(counter(b"sum"), Some(9));
    assert_eq!(counter(b"top"), Some(-7), "absent is below every value");
    for (value, top) in [(3, 3), (1, 3), (4, 4)] {
        write::<_, KvError>(engine, Relaxed, |w| w.raise(b"top", value)).expect("raise");
        assert_eq!(counter(b"top"), Some(top));
    }
}

fn refuses_what_is_no_counter(engine: &dyn Engine) {
    put(engine, Relaxed, b"text", b"abc");
    let added = write::<_, KvError>(engine, Relaxed, |w| w.add(b"text", 1));
    assert!(matches!(added, Err(KvError::NotACounter { len: 3 })), "{added:?}");
    let raised = write::<_, KvError>(engine, Relaxed, |w| w.raise(b"text", 1));
    assert!(matches!(raised, Err(KvError::NotACounter { len: 3 })), "{raised:?}");
    assert_eq!(get(engine, b"text").as_deref(), Some(b"abc".as_slice()));
}

fn keeps_limits(engine: &dyn Engine) {
    let longest = vec![255; MAX_KEY];
    put(engine, Durable, &longest, b"edge");
    assert_eq!(get(engine, &longest).as_deref(), Some(b"edge".as_slice()));
    for bad in [vec![], vec![1; MAX_KEY + 1]] {
        let put = write::<_, KvError>(engine, Relaxed, |w| w.put(&bad, b""));
        assert!(matches!(put, Err(KvError::KeyTooLong { len }) if len == bad.len()), "{put:?}");
        let got = read::<_, KvError>(engine, |r| r.get(&bad));
        assert!(matches!(got, Err(KvError::KeyTooLong { len }) if len == bad.len()), "{got:?}");
        let gone = write::<_, KvError>(engine, Relaxed, |w| w.delete(&bad));
        assert!(matches!(gone, Err(KvError::KeyTooLong { len }) if len == bad.len()), "{gone:?}");
    }
    let large = vec![7; 100_000];
    put(engine, Durable, b"large", &large);
    assert_eq!(get(engine, b"large"), Some(large));
    let over = write::<_, KvError>(engine, Relaxed, |w| w.put(b"over", &vec![0; MAX_VALUE + 1]));
    assert!(matches!(over, Err(KvError::ValueTooLong { .. })), "{over:?}");
}

fn carries_errors(engine: &dyn Engine) {
    #[derive(Debug, PartialEq)]
    enum Own {
        Mine(u32),
        Engine,
    }
    impl From<KvError> for Own {
        fn from(_: KvError) -> Self {
            Own::Engine
        }
    }
    let from_write: Result<(), Own> =
        write(engine, Durable, |w| w.put(b"x", b"").map_err(Own::from).and(Err(Own::Mine(1))));
    assert_eq!(from_write, Err(Own::Mine(1)));
    let from_read: Result<(), Own> = read(engine, |_| Err(Own::Mine(2)));
    assert_eq!(from_read, Err(Own::Mine(2)));
    assert_eq!(get(engine, b"x"), None);
}
