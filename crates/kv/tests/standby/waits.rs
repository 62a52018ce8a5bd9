//! What is acknowledged when: waiting, its end, the lease, and a take-over.

use crate::bed::*;
use kv::standby::{Away, Feed, Follower, Mode, Sender};
use kv::{Durability, KvError, LmdbEngine, write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const REFUSE: Mode = Mode::Wait(Away::Refuse);
const GO_ON: Mode = Mode::Wait(Away::GoOn);

fn put(engine: &LmdbEngine, durability: Durability, key: u8) -> Result<(), KvError> {
    write(engine, durability, |w| w.put(&[key], &[key]))
}

fn has(standby: Follower, dirs: &Dirs, key: u8) -> bool {
    promoted(standby, &dirs.standby).contains(&(vec![key], vec![key]))
}

/// Steps, in a thread, until it is told to stop.
fn following<T>(engine: &LmdbEngine, feed: &Arc<Feed>, standby: &mut Follower, f: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut sender = Sender::new(engine, feed.clone());
            while !stop.load(Ordering::Acquire) {
                step(&mut sender, feed, standby).unwrap();
                feed.wait_behind(standby.state().number, Duration::from_millis(5));
            }
        });
        let done = f();
        stop.store(true, Ordering::Release);
        done
    })
}

#[test]
fn what_is_acknowledged_is_at_the_standby_and_without_it_nothing_is() {
    let (dirs, feed) = (dirs(), feed(REFUSE, false));
    let engine = primary(&dirs.primary, &feed);
    put(&engine, Durability::Durable, 1).expect("no standby was ever complete: nothing was promised");
    let mut standby = follower(&dirs.standby);
    catch_up(&engine, &feed, &mut standby);
    feed.arm();
    following(&engine, &feed, &mut standby, || put(&engine, Durability::Durable, 2)).unwrap();
    let begin = Instant::now();
    let refused = put(&engine, Durability::Durable, 3).unwrap_err();
    assert!(begin.elapsed() >= PATIENCE, "it waits first");
    assert!(matches!(refused, KvError::Standby { .. }), "{refused}");
    let refused = put(&engine, Durability::Durable, 4).unwrap_err();
    assert!(matches!(refused, KvError::Standby { .. }), "{refused}");
    // It answers again, and all goes on.
    following(&engine, &feed, &mut standby, || {
        let begin = Instant::now();
        while put(&engine, Durability::Durable, 5).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", feed.health());
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(has(standby, &dirs, 5));
}

#[test]
fn without_a_lease_nothing_at_all_is_accepted() {
    let (dirs, feed) = (dirs(), feed(REFUSE, false));
    let engine = primary(&dirs.primary, &feed);
    let mut standby = follower(&dirs.standby);
    put(&engine, Durability::Durable, 1).unwrap();
    catch_up(&engine, &feed, &mut standby);
    feed.arm();
    feed.answered(standby.state(), Instant::now());
    std::thread::sleep(LEASE);
    let refused = put(&engine, Durability::Relaxed, 2).unwrap_err();
    assert!(matches!(refused, KvError::Standby { .. }), "{refused}");
    // An answer to what was sent long ago is worth nothing.
    feed.answered(standby.state(), Instant::now() - LEASE);
    assert!(put(&engine, Durability::Relaxed, 3).is_err());
    feed.answered(standby.state(), Instant::now());
    put(&engine, Durability::Relaxed, 4).expect("it has a lease");
}

#[test]
fn a_promise_holds_over_a_restart() {
    let dirs = dirs();
    let first = feed(REFUSE, false);
    let engine = primary(&dirs.primary, &first);
    let mut standby = follower(&dirs.standby);
    put(&engine, Durability::Durable, 1).unwrap();
    catch_up(&engine, &first, &mut standby);
    drop(engine);
    let second = feed(REFUSE, true);
    let engine = primary(&dirs.primary, &second);
    assert!(matches!(put(&engine, Durability::Relaxed, 2), Err(KvError::Standby { .. })));
    following(&engine, &second, &mut standby, || {
        let begin = Instant::now();
        while put(&engine, Durability::Durable, 3).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", second.health());
        }
    });
    assert!(has(standby, &dirs, 3));
}

#[test]
fn as_configured_it_goes_on_alone_says_so_and_waits_again_later() {
    let (dirs, feed) = (dirs(), feed(GO_ON, false));
    let engine = primary(&dirs.primary, &feed);
    let mut standby = follower(&dirs.standby);
    put(&engine, Durability::Durable, 1).unwrap();
    assert!(feed.health().alone, "there was no standby yet");
    catch_up(&engine, &feed, &mut standby);
    assert!(!feed.health().alone && feed.health().in_step);
    let begin = Instant::now();
    put(&engine, Durability::Durable, 2).unwrap();
    assert!(begin.elapsed() >= PATIENCE && feed.health().alone);
    let begin = Instant::now();
    put(&engine, Durability::Durable, 3).unwrap();
    assert!(begin.elapsed() < PATIENCE, "once is enough");
    assert!(!feed.health().in_step);
    catch_up(&engine, &feed, &mut standby);
    assert!(!feed.health().alone && feed.health().in_step);
}

#[test]
fn who_was_replaced_accepts_nothing_and_says_by_whom() {
    for mode in [REFUSE, GO_ON, Mode::Follow] {
        let (dirs, feed) = (dirs(), feed(mode, false));
        let engine = primary(&dirs.primary, &feed);
        put(&engine, Durability::Durable, 1).unwrap();
        feed.taken_over("node 2");
        for durability in [Durability::Relaxed, Durability::Durable] {
            let refused = put(&engine, durability, 2).unwrap_err();
            assert!(matches!(&refused, KvError::Taken { by, .. } if by == "node 2"), "{refused}");
        }
    }
}
