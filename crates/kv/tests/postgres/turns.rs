//! Nodes that take turns: what a lease is worth to its owner, and what the others see.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kv::{
    Database, DatabaseOptions, Durability, KvError, Place, PostgresEngine, Reached, Seen, SeenOwner,
    watch_database,
};

use crate::engine::{fresh, get, put};
use crate::server::Server;

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "waited for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_owner_whose_lease_may_have_ended_reads_nothing_until_it_is_renewed() {
    let server = Server::shared();
    let name = fresh();
    let lease = Duration::from_secs(2);
    let options = DatabaseOptions { lease, others_wait: true, ..DatabaseOptions::new("first") };
    let engine = PostgresEngine::open(&server.address(&name, "&connections=3"), options).unwrap();
    put(&engine, Durability::Durable, b"k", b"1").unwrap();
    engine.is_held().unwrap();
    let (read, freed) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        // The server answers, but no renewal gets through.
        scope.spawn(|| {
            server
                .sql(&format!("BEGIN; SELECT * FROM {name}.kv_owner FOR UPDATE; SELECT pg_sleep(5); COMMIT"));
            freed.store(true, Ordering::Release);
        });
        until("the lease to run out", || matches!(engine.is_held(), Err(KvError::Lapsed { .. })));
        assert!(!freed.load(Ordering::Acquire), "before another one could take over");
        scope.spawn(|| {
            assert_eq!(get(&engine, b"k").as_deref(), Some(b"1".as_slice()));
            put(&engine, Durability::Relaxed, b"k", b"2").unwrap();
            read.store(true, Ordering::Release);
        });
        while !freed.load(Ordering::Acquire) {
            assert!(!read.load(Ordering::Acquire) || engine.is_held().is_ok(), "read without a lease");
            thread::sleep(Duration::from_millis(10));
        }
        until("the renewal", || engine.is_held().is_ok());
    });
    assert_eq!(get(&engine, b"k").as_deref(), Some(b"2".as_slice()));
}

#[test]
fn who_waits_sees_whose_turn_it_is_and_what_the_others_tell() {
    let server = Server::shared();
    let name = fresh();
    let address = server.address(&name, "&connections=3");
    let mut waits = watch_database(&address, "second").unwrap();
    assert_eq!(waits.tell("too early").unwrap(), Seen::default(), "no engine yet");
    let options = DatabaseOptions { others_wait: true, ..DatabaseOptions::new("first") };
    let first = PostgresEngine::open(&address, options.clone()).unwrap();
    let owner = |name: &str, epoch, live| {
        Some(SeenOwner { name: name.into(), reached: Reached { epoch, number: 0 }, live })
    };
    let seen = waits.tell("here").unwrap();
    assert_eq!(seen.owner, owner("first", 1, true));
    watch_database(&address, "first").unwrap().tell("there").unwrap();
    let seen = waits.tell("still here").unwrap();
    let told: Vec<_> = seen.takers.iter().map(|t| (t.name.as_str(), t.told.as_str())).collect();
    assert_eq!(told, [("first", "there"), ("second", "still here")]);
    assert!(seen.takers.iter().all(|taker| taker.ago < Duration::from_secs(60)));
    drop(first);
    assert_eq!(waits.tell("").unwrap().owner, owner("first", 1, false));
    let second =
        PostgresEngine::open(&address, DatabaseOptions { owner: "second".into(), ..options }).unwrap();
    assert_eq!(waits.tell("").unwrap().owner, owner("second", 2, true));
    for value in [b"1", b"2"] {
        put(&second, Durability::Durable, b"k", value).unwrap();
        let reached = waits.tell("").unwrap().owner.unwrap().reached;
        assert_eq!((reached, reached.epoch), (second.reached(), 2));
    }
    assert_eq!(second.reached().number, 2);
}

/// Between the look and the taking the server may have died, and another one may be in its place.
#[test]
fn an_engine_that_has_not_been_where_it_was_seen_is_left_as_it_is() {
    let server = Server::shared();
    let name = fresh();
    let address = server.address(&name, "&connections=3");
    let options = DatabaseOptions { others_wait: true, ..DatabaseOptions::new("first") };
    let first = PostgresEngine::open(&address, options.clone()).unwrap();
    for value in [b"1", b"2"] {
        put(&first, Durability::Durable, b"k", value).unwrap();
    }
    let reached = first.reached();
    drop(first);
    let mut waits = watch_database(&address, "second").unwrap();
    let mut seen = || waits.tell("").unwrap().owner.unwrap();
    let there = seen();
    assert_eq!((there.reached, there.live), (reached, false));
    let open = |reached, owner: &str| {
        let has_been = Some(Place { reached, owner: owner.into() });
        PostgresEngine::open(
            &address,
            DatabaseOptions { owner: "second".into(), has_been, ..options.clone() },
        )
    };
    let later = |epoch, number| Reached { epoch: reached.epoch + epoch, number: reached.number + number };
    for lost in [open(later(0, 1), "first"), open(later(1, 0), "first"), open(reached, "other")] {
        let refused = lost.err().expect("it has lost something");
        assert!(matches!(refused, KvError::Rewound { .. }), "{refused}");
        assert_eq!(seen(), there);
    }
    assert_eq!(open(reached, "first").unwrap().reached(), Reached { epoch: reached.epoch + 1, number: 0 });
}
