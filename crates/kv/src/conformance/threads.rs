//! Many threads: serialisable writers, snapshots that hold still, durability in order.

use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::{Check, get, put, up};
use crate::Durability::{Durable, Relaxed};
use crate::{Durability, Engine, KvError, Reader, Result, Writer, read, write};

pub(super) const ALL: &[Check] = &[
    transfers_keep_the_sum,
    no_write_skew,
    what_appears_where_nothing_was_is_noticed,
    adds_and_sets_of_one_counter_are_in_order,
    adds_are_not_lost,
    snapshots_hold_still,
    order_is_seen,
];

const ACCOUNTS: u8 = 8;
const SUM: i64 = ACCOUNTS as i64 * 100;

fn balance(r: &(impl Reader + ?Sized), account: u8) -> Result<i64> {
    Ok(r.get(&[b'c', account])?.map_or(0, |v| i64::from_le_bytes(v.try_into().expect("8 bytes"))))
}

fn set(w: &mut dyn Writer, account: u8, to: i64) -> Result<()> {
    w.put(&[b'c', account], &to.to_le_bytes())
}

fn mixed(n: u32) -> Durability {
    if n.is_multiple_of(16) { Durable } else { Relaxed }
}

fn transfer(engine: &dyn Engine, n: u32) {
    let (from, to) = ((n % 7) as u8 % ACCOUNTS, (n / 7 % 5 + 3) as u8 % ACCOUNTS);
    write::<_, KvError>(engine, mixed(n), |w| {
        let amount = i64::from(n % 13);
        let (a, b) = (w.get_for_update(&[b'c', from])?, w.get_for_update(&[b'c', to])?);
        assert!(a.is_some() && b.is_some());
        if from != to {
            let (a, b) = (balance(w, from)?, balance(w, to)?);
            set(w, from, a - amount)?;
            set(w, to, b + amount)?;
        }
        Ok(())
    })
    .expect("transfer");
}

fn transfers_keep_the_sum(engine: &dyn Engine) {
    write::<_, KvError>(engine, Relaxed, |w| (0..ACCOUNTS).try_for_each(|a| set(w, a, 100)))
        .expect("open accounts");
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let writers: Vec<_> = (0..4u32)
            .map(|t| s.spawn(move || (0..200).for_each(|n| transfer(engine, n * 31 + t * 17))))
            .collect();
        let done = &done;
        s.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let (gets, scanned) = read::<_, KvError>(engine, |r| {
                    let gets = (0..ACCOUNTS).map(|a| balance(r, a)).sum::<Result<i64>>()?;
                    let pairs = up(r, b"c", b"d")?;
                    let value = |v: &[u8]| i64::from_le_bytes(v.try_into().expect("8 bytes"));
                    Ok((gets, pairs.iter().map(|(_, v)| value(v)).sum::<i64>()))
                })
                .expect("read");
                assert_eq!((gets, scanned), (SUM, SUM), "a reader saw half a transfer");
                thread::yield_now();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|e| e.expect("writer"));
    });
}

fn no_write_skew(engine: &dyn Engine) {
    const ROUNDS: u32 = 100;
    let start = Barrier::new(2);
    thread::scope(|s| {
        for (me, other) in [(b"duty1", b"duty2"), (b"duty2", b"duty1")] {
            let start = &start;
            s.spawn(move || {
                for n in 0..ROUNDS {
                    put(engine, Relaxed, me, b"on");
                    start.wait();
                    write::<_, KvError>(engine, mixed(n), |w| match w.get_for_update(other)? {
                        Some(on) if on == b"on" => w.put(me, b"off"),
                        _ => Ok(()),
                    })
                    .expect("leave duty");
                    start.wait();
                    let on = [get(engine, me), get(engine, other)]
                        .iter()
                        .filter(|v| v.as_deref() == Some(b"on"))
                        .count();
                    assert_eq!(on, 1, "both left because each saw the other on duty");
                    start.wait();
                }
            });
        }
    });
}

/// Two look whether there is anything of the other, by its key or by scans from either end: one of them finds it.
fn what_appears_where_nothing_was_is_noticed(engine: &dyn Engine) {
    let start = Barrier::new(2);
    let empty = |w: &dyn Writer, round: u8, of: u8| -> Result<bool> {
        let (from, to, mut empty) = ([b'w', round, of, 0], [b'w', round, of, 255], true);
        let mut visit = |_: &[u8], _: &[u8]| {
            empty = false;
            ControlFlow::Break(())
        };
        match round % 3 {
            0 => w.scan(&from, &to, &mut visit)?,
            1 => w.scan_back(&from, &to, &mut visit)?,
            _ => empty = w.get(&[b'w', round, of, 7])?.is_none(),
        }
        Ok(empty)
    };
    for round in 0..30 {
        thread::scope(|s| {
            for me in 0..2u8 {
                let start = &start;
                s.spawn(move || {
                    start.wait();
                    write::<_, KvError>(engine, mixed(round.into()), |w| match empty(w, round, 1 - me)? {
                        true => w.put(&[b'w', round, me, 7], b"x"),
                        false => Ok(()),
                    })
                    .expect("look and put");
                });
            }
        });
        let there = [0, 1].map(|me| get(engine, &[b'w', round, me, 7]).is_some());
        assert_eq!(there.iter().filter(|t| **t).count(), 1, "both saw nothing of the other");
    }
}

/// One adds without looking, one takes what is there elsewhere: nothing is counted twice, or lost.
fn adds_and_sets_of_one_counter_are_in_order(engine: &dyn Engine) {
    const ROUNDS: i64 = 100;
    let value = |v: Option<Vec<u8>>| v.map_or(0, |v| i64::from_le_bytes(v.try_into().expect("8 bytes")));
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for n in 0..ROUNDS {
                    write::<_, KvError>(engine, mixed(n as u32), |w| w.add(b"here", 1)).expect("add");
                }
            });
        }
        s.spawn(|| {
            for n in 0..ROUNDS {
                write::<_, KvError>(engine, mixed(n as u32), |w| {
                    let here = value(w.get(b"here")?);
                    if n % 2 == 0 {
                        w.delete(b"here")?
                    } else {
                        w.put(b"here", &0i64.to_le_bytes())?
                    }
                    w.add(b"there", here)
                })
                .expect("move");
            }
        });
    });
    assert_eq!(value(get(engine, b"here")) + value(get(engine, b"there")), 2 * ROUNDS);
}

fn adds_are_not_lost(engine: &dyn Engine) {
    thread::scope(|s| {
        for t in 0..4i64 {
            s.spawn(move || {
                for n in 0..100 {
                    write::<_, KvError>(engine, mixed(n), |w| {
                        w.add(b"sum", t + 1)?;
                        w.raise(b"top", t * 1000 + i64::from(n))
                    })
                    .expect("add");
                }
            });
        }
    });
    let value =
        |key: &[u8]| i64::from_le_bytes(get(engine, key).expect("there").try_into().expect("8 bytes"));
    assert_eq!((value(b"sum"), value(b"top")), (1000, 3099));
}

fn snapshots_hold_still(engine: &dyn Engine) {
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let done = &done;
        s.spawn(move || {
            for n in 0..300u32 {
                let value = n.to_be_bytes();
                write::<_, KvError>(engine, mixed(n), |w| {
                    (0..20u8).try_for_each(|k| match (u32::from(k) + n) % 5 {
                        0 => w.delete(&[b's', k]),
                        _ => w.put(&[b's', k], &value),
                    })
                })
                .expect("write");
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            read::<_, KvError>(engine, |r| {
                let first = up(r, b"s", b"t")?;
                thread::yield_now();
                assert_eq!(first, up(r, b"s", b"t")?, "the snapshot moved");
                assert!(
                    first.windows(2).all(|p| p[0].1 == p[1].1),
                    "two transactions in one snapshot: {first:?}"
                );
                for k in 0..20u8 {
                    let scanned = first.iter().find(|(key, _)| key[1] == k).map(|(_, v)| v.clone());
                    assert_eq!(r.get(&[b's', k])?, scanned, "get and scan disagree");
                }
                Ok(())
            })
            .expect("read");
        }
    });
}

/// What a writer was told is done, everybody sees from then on; later states never go back.
fn order_is_seen(engine: &dyn Engine) {
    let told = AtomicU64::new(0);
    thread::scope(|s| {
        let told = &told;
        s.spawn(move || {
            for n in 1..=300u64 {
                put(engine, mixed(n as u32), b"seq", &n.to_be_bytes());
                told.store(n, Ordering::Release);
            }
        });
        for _ in 0..2 {
            s.spawn(move || {
                let mut last = 0;
                while last < 300 {
                    let floor = told.load(Ordering::Acquire).max(last);
                    last =
                        get(engine, b"seq").map_or(0, |v| u64::from_be_bytes(v.try_into().expect("8 bytes")));
                    assert!(last >= floor, "read {last} after {floor} was acknowledged");
                    thread::yield_now();
                }
            });
        }
    });
    engine.sync().expect("sync");
}
