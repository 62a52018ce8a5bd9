//! The copy, the tail, and what interrupts them.

use crate::bed::*;
use kv::standby::{FollowError, Follower, Mode, Sender, Step};
use kv::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, write};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>, bool),
    Big(u8),
    Steps(u8),
    Again,
    ReopenPrimary,
    ReopenStandby,
    NewHistory,
}

fn op() -> impl Strategy<Value = Op> {
    let key = prop::collection::vec(1..4u8, 1..4);
    let value = prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..20));
    prop_oneof![
        8 => (prop::collection::vec((key, value), 1..6), any::<bool>()).prop_map(|(c, d)| Op::Write(c, d)),
        2 => any::<u8>().prop_map(Op::Big),
        6 => (1..5u8).prop_map(Op::Steps),
        2 => Just(Op::Again),
        1 => Just(Op::ReopenPrimary),
        1 => Just(Op::ReopenStandby),
        1 => Just(Op::NewHistory),
    ]
}

fn put(engine: &LmdbEngine, changes: &[(Vec<u8>, Option<Vec<u8>>)], durable: bool) {
    let durability = if durable { Durability::Durable } else { Durability::Relaxed };
    write::<_, KvError>(engine, durability, |w| {
        changes.iter().try_for_each(|(k, v)| match v {
            Some(v) => w.put(k, v),
            None => w.delete(k),
        })
    })
    .unwrap();
}

fn run(ops: &[Op]) {
    let dirs = dirs();
    let mut history = 1;
    let mut feed = feed_of(history, Mode::Follow, false);
    let mut engine = primary(&dirs.primary, &feed);
    let mut standby = follower(&dirs.standby);
    for op in ops {
        match op {
            Op::Write(changes, durable) => put(&engine, changes, *durable),
            // Several parts of a copy.
            Op::Big(n) => put(&engine, &[(vec![2, n % 4, 9], Some(vec![*n; 900_000]))], true),
            Op::Steps(n) => {
                let mut sender = Sender::new(&engine, feed.clone());
                (0..*n).for_each(|_| assert!(step(&mut sender, &feed, &mut standby).is_ok()));
            }
            Op::Again => {
                // A step whose answer was lost comes again: it changes nothing.
                let next = Sender::new(&engine, feed.clone()).next(standby.state()).unwrap();
                standby.take(&next).unwrap();
                let had = standby.state().clone();
                let twice = standby.take(&next);
                match next {
                    Step::Batch(..) | Step::Page(..) => {
                        assert!(matches!(twice, Err(FollowError::Order { .. })), "{twice:?}");
                    }
                    _ => twice.unwrap(),
                }
                assert_eq!(*standby.state(), had);
            }
            Op::ReopenPrimary => {
                drop(engine);
                feed = feed_of(history, Mode::Follow, false);
                engine = primary(&dirs.primary, &feed);
            }
            Op::ReopenStandby => {
                let had = standby.state().clone();
                drop(standby);
                standby = follower(&dirs.standby);
                assert_eq!(*standby.state(), had, "its state is as durable as what it holds");
            }
            Op::NewHistory => {
                drop(engine);
                history += 1;
                feed = feed_of(history, Mode::Follow, false);
                engine = primary(&dirs.primary, &feed);
            }
        }
    }
    engine.sync().unwrap();
    catch_up(&engine, &feed, &mut standby);
    assert_eq!(promoted(standby, &dirs.standby), dump(&engine));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_standby_that_was_stopped_anywhere_holds_the_same_in_the_end(ops in prop::collection::vec(op(), 1..40)) {
        run(&ops);
    }
}

#[test]
fn a_copy_ends_while_the_engine_changes_all_the_time() {
    let (dirs, feed) = (dirs(), feed(Mode::Follow, false));
    let engine = primary(&dirs.primary, &feed);
    for n in 1..9u8 {
        put(&engine, &[(vec![n], Some(vec![n; 900_000]))], true);
    }
    let mut standby = follower(&dirs.standby);
    let mut sender = Sender::new(&engine, feed.clone());
    let mut steps = 0;
    while !standby.state().is_complete() {
        put(&engine, &[(vec![steps % 9 + 1, 1], Some(vec![steps])), (vec![steps % 5 + 1], None)], true);
        step(&mut sender, &feed, &mut standby).unwrap();
        steps += 1;
        assert!(steps < 200, "the copy does not end: {:?}", standby.state());
    }
    catch_up(&engine, &feed, &mut standby);
    assert_eq!(promoted(standby, &dirs.standby), dump(&engine));
}

#[test]
fn a_standby_that_holds_something_else_notices_and_begins_anew() {
    let (dirs, feed) = (dirs(), feed(Mode::Follow, false));
    let engine = primary(&dirs.primary, &feed);
    put(&engine, &[(vec![1], Some(vec![1])), (vec![2], Some(vec![2]))], true);
    let mut standby = follower(&dirs.standby);
    catch_up(&engine, &feed, &mut standby);
    drop(standby);
    let tampered = opened(|| LmdbEngine::open(&dirs.standby, LmdbOptions::default())).unwrap();
    put(&tampered, &[(vec![2], Some(vec![3]))], true);
    drop(tampered);
    let mut standby = follower(&dirs.standby);
    put(&engine, &[(vec![9], Some(vec![9]))], true);
    let mut sender = Sender::new(&engine, feed.clone());
    let noticed = step(&mut sender, &feed, &mut standby).unwrap_err();
    assert!(matches!(noticed, FollowError::Differs { .. }), "{noticed}");
    assert!(!standby.state().is_complete(), "it cannot take over");
    catch_up(&engine, &feed, &mut standby);
    assert_eq!(promoted(standby, &dirs.standby), dump(&engine));
}

#[test]
fn what_is_no_complete_copy_does_not_take_over_and_no_other_engine_follows() {
    let (dirs, feed) = (dirs(), feed(Mode::Follow, false));
    let engine = primary(&dirs.primary, &feed);
    (1..4).for_each(|n| put(&engine, &[(vec![n], Some(vec![n; 900_000]))], true));
    let mut standby = follower(&dirs.standby);
    let mut sender = Sender::new(&engine, feed.clone());
    step(&mut sender, &feed, &mut standby).unwrap();
    step(&mut sender, &feed, &mut standby).unwrap();
    assert!(!standby.state().is_complete());
    assert!(matches!(standby.promote(&dirs.standby), Err(KvError::Corrupt { .. })));
    let mut standby = follower(&dirs.standby);
    catch_up(&engine, &feed, &mut standby);
    assert_eq!(promoted(standby, &dirs.standby), dump(&engine));
    let other = opened(|| Follower::open(&dirs.standby, LmdbOptions::default()));
    assert!(matches!(other, Err(KvError::Corrupt { .. })), "it is an ordinary engine now");
}
