//! What is acknowledged when: waiting, its end, the lease, and a take-over.

use crate::bed::*;
use kv::standby::{Away, Feed, Follower, Mode, Sender, Step};
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

#[test]
fn a_copy_of_another_history_counts_for_nothing() {
    let (dirs, first) = (dirs(), feed(REFUSE, false));
    let mut standby = follower(&dirs.standby);
    let engine = primary(&dirs.primary, &first);
    (1..9).for_each(|key| put(&engine, Durability::Durable, key).unwrap());
    catch_up(&engine, &first, &mut standby);
    drop(engine);
    // Restored: few batches, and another name.
    let second = feed_of(2, REFUSE, true);
    let engine = primary(&dirs.primary.with_extension("restored"), &second);
    second.answered(standby.state(), Instant::now());
    assert!(!second.health().in_step, "{:?}", second.health());
    let refused = put(&engine, Durability::Durable, 1).unwrap_err();
    assert!(matches!(refused, KvError::Standby { .. }), "{refused}");
    following(&engine, &second, &mut standby, || {
        let begin = Instant::now();
        while put(&engine, Durability::Durable, 2).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", second.health());
        }
    });
    assert!(has(standby, &dirs, 2));
}

#[test]
fn a_promise_begins_behind_all_that_was_acknowledged_without_the_standby() {
    let (dirs, feed) = (dirs(), feed(REFUSE, false));
    let engine = primary(&dirs.primary, &feed);
    let mut standby = follower(&dirs.standby);
    catch_up(&engine, &feed, &mut standby);
    assert!(feed.health().in_step);
    put(&engine, Durability::Durable, 1).expect("it is not armed yet");
    let from = feed.arm();
    assert!(standby.state().number < from, "the standby lacks what was acknowledged, and can see it");
    assert!(put(&engine, Durability::Durable, 2).is_err());
    catch_up(&engine, &feed, &mut standby);
    assert!(standby.state().number >= from);
}

/// What the standby is sent first by an engine that begins, whose last batch it lacks.
fn first_step_after_a_start(dirs: &Dirs, mode: Mode, unsent: u8) -> (LmdbEngine, Arc<Feed>, Follower, Step) {
    let first = feed(Mode::Follow, false);
    let engine = primary(&dirs.primary, &first);
    let mut standby = follower(&dirs.standby);
    put(&engine, Durability::Durable, 1).unwrap();
    write::<_, KvError>(&engine, Durability::Durable, |w| w.put(&[9], &[9])).unwrap();
    catch_up(&engine, &first, &mut standby);
    for n in 0..unsent {
        write::<_, KvError>(&engine, Durability::Durable, |w| {
            w.delete(&[9])?;
            w.put(&[100 + n], &[100 + n])
        })
        .unwrap();
    }
    drop(engine);
    let second = feed(mode, mode == REFUSE);
    let engine = primary(&dirs.primary, &second);
    second.answered(standby.state(), Instant::now());
    let step = Sender::new(&engine, second.clone()).next(standby.state()).unwrap();
    (engine, second, standby, step)
}

#[test]
fn the_one_batch_that_was_not_sent_is_sent_after_the_next_start_and_the_copy_is_kept() {
    let dirs = dirs();
    let (engine, feed, mut standby, step) = first_step_after_a_start(&dirs, REFUSE, 1);
    assert!(matches!(step, Step::Batch(..)), "{step:?}");
    standby.take(&step).unwrap();
    assert!(standby.state().is_complete() && standby.state().number == feed.last());
    assert_eq!(promoted(standby, &dirs.standby), dump(&engine));
}

#[test]
fn of_several_batches_that_were_not_sent_a_new_copy_is_made() {
    let dirs = dirs();
    let (engine, feed, mut standby, step) = first_step_after_a_start(&dirs, Mode::Follow, 2);
    assert!(matches!(step, Step::Begin { .. }), "{step:?}");
    catch_up(&engine, &feed, &mut standby);
    assert_eq!(promoted(standby, &dirs.standby), dump(&engine));
}

#[test]
fn one_that_came_back_older_changes_nothing_and_leaves_the_standby_what_it_has() {
    for mode in [REFUSE, GO_ON, Mode::Follow] {
        let (dirs, first) = (dirs(), feed(Mode::Follow, false));
        let engine = primary(&dirs.primary, &first);
        let mut standby = follower(&dirs.standby);
        put(&engine, Durability::Durable, 1).unwrap();
        drop(engine);
        let kept = dirs.primary.with_extension("kept");
        std::fs::create_dir(&kept).unwrap();
        for name in ["data.mdb", "engine"] {
            std::fs::copy(dirs.primary.join(name), kept.join(name)).unwrap();
        }
        let first = feed(Mode::Follow, false);
        let engine = primary(&dirs.primary, &first);
        put(&engine, Durability::Durable, 2).unwrap();
        put(&engine, Durability::Durable, 3).unwrap();
        catch_up(&engine, &first, &mut standby);
        let had = standby.state().clone();
        let second = feed(mode, mode == REFUSE);
        let engine = primary(&kept, &second);
        let mut sender = Sender::new(&engine, second.clone());
        // Also when it has gone on meanwhile, so that its number is not lower any more.
        if mode != REFUSE {
            (5..8).for_each(|key| put(&engine, Durability::Durable, key).unwrap());
        }
        for _ in 0..5 {
            step(&mut sender, &second, &mut standby).unwrap();
        }
        assert_eq!(*standby.state(), had, "{mode:?}");
        for durability in [Durability::Relaxed, Durability::Durable] {
            let refused = put(&engine, durability, 4).unwrap_err();
            assert!(matches!(refused, KvError::Older { there, .. } if there == had.number), "{refused}");
        }
        assert!(has(standby, &dirs, 3));
    }
}

#[test]
fn nobody_waits_for_a_standby_that_is_fed_no_more() {
    let (dirs, feed) = (dirs(), feed_patient(REFUSE, true));
    let engine = primary(&dirs.primary, &feed);
    let begin = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| put(&engine, Durability::Durable, 1).unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        feed.stop();
    });
    assert!(put(&engine, Durability::Durable, 1).is_err());
    drop(engine);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn what_a_standby_held_before_its_new_copy_is_removed_in_pieces() {
    let (dirs, first) = (dirs(), feed(Mode::Follow, false));
    let engine = primary(&dirs.primary, &first);
    write::<_, KvError>(&engine, Durability::Durable, |w| {
        (0..25_000u32).try_for_each(|n| w.put(&n.wrapping_add(1 << 24).to_be_bytes(), &[]))
    })
    .unwrap();
    let mut standby = follower(&dirs.standby);
    catch_up(&engine, &first, &mut standby);
    let second = feed_of(2, Mode::Follow, false);
    let engine = primary(&dirs.primary.with_extension("restored"), &second);
    put(&engine, Durability::Durable, 1).unwrap();
    catch_up(&engine, &second, &mut standby);
    assert_eq!(promoted(standby, &dirs.standby), dump(&engine));
}
