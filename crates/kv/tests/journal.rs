//! What was acknowledged as durable is there after a failure, wherever it is: in the journal's present file, in both of them, or in the
//! store. A failure is a copy of the directory while the engine is open and nobody changes anything.

use kv::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, read, write};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Nothing happens by itself.
fn still() -> LmdbOptions {
    let never = Duration::from_secs(3600);
    LmdbOptions { flush_interval: never, save_interval: never, ..LmdbOptions::default() }
}

fn open(dir: &Path) -> LmdbEngine {
    LmdbEngine::open(dir, still()).unwrap()
}

fn put(engine: &LmdbEngine, durability: Durability, key: &[u8], value: &[u8]) {
    write::<_, KvError>(engine, durability, |w| w.put(key, value)).unwrap();
}

fn pairs(engine: &LmdbEngine) -> Pairs {
    read::<_, KvError>(engine, |r| {
        let mut all = Pairs::new();
        r.scan(&[], &[0xff; 8], &mut |k, v| {
            all.insert(k.to_vec(), v.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(all)
    })
    .unwrap()
}

/// The process dies: what is in the files now is what the next one finds.
fn fail(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in ["engine", "data.mdb", "journal.0", "journal.1"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// Waits until the store has so many keys.
fn store_gets(engine: &LmdbEngine, keys: u64) {
    let begin = Instant::now();
    while engine.stats().keys < keys {
        assert!(begin.elapsed() < Duration::from_secs(20), "the store has {} keys", engine.stats().keys);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes of the store.
fn store(dir: &Path) -> Vec<u8> {
    fs::read(dir.join("data.mdb")).unwrap()
}

#[test]
fn a_durable_change_goes_to_the_journal_and_an_orderly_end_leaves_nothing_there() {
    let dir = tempfile::tempdir().unwrap();
    let (state, dead) = (dir.path().join("engine"), dir.path().join("dead"));
    let engine = open(&state);
    put(&engine, Durability::Durable, b"first", b"makes the journal");
    let before = store(&state);
    put(&engine, Durability::Durable, b"key", b"only in the journal");
    assert!(store(&state) == before, "the store is as it was");
    fail(&state, &dead);
    let found = pairs(&open(&dead));
    assert_eq!(found, pairs(&engine));
    assert_eq!(found.len(), 2);
    drop(engine);
    fs::write(state.join("journal.0"), vec![0; 8 << 20]).unwrap();
    fs::write(state.join("journal.1"), vec![0; 8 << 20]).unwrap();
    assert_eq!(pairs(&open(&state)), found, "the store has all of it");
}

#[test]
fn a_journal_that_is_missing_or_of_another_state_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (state, dead) = (dir.path().join("engine"), dir.path().join("dead"));
    let engine = open(&state);
    put(&engine, Durability::Durable, b"a", b"1");
    put(&engine, Durability::Durable, b"b", b"2");
    let older = store(&state);
    fail(&state, &dead);
    fs::remove_file(dead.join("journal.1")).unwrap();
    let missing = LmdbEngine::open(&dead, still()).err().unwrap();
    assert!(
        matches!(&missing, KvError::Corrupt { detail, .. } if detail.contains("journal.1 is missing")),
        "{missing}"
    );
    engine.backup(&dir.path().join("backup")).unwrap(); // the store takes all over
    put(&engine, Durability::Durable, b"c", b"3");
    engine.backup(&dir.path().join("second")).unwrap();
    put(&engine, Durability::Durable, b"d", b"4");
    fs::remove_dir_all(&dead).unwrap();
    fail(&state, &dead);
    fs::write(dead.join("data.mdb"), older).unwrap();
    let foreign = LmdbEngine::open(&dead, still()).err().unwrap();
    assert!(matches!(foreign, KvError::Corrupt { .. }), "{foreign}");
    assert_eq!(pairs(&open(&dir.path().join("backup"))).len(), 2, "no journal goes on from a backup");
}

/// What a crash left in the journal has no room in the store: it opens, is read, changes nothing, and loses nothing.
#[test]
fn without_room_in_the_store_what_is_in_the_journal_waits_there() {
    let dir = tempfile::tempdir().unwrap();
    let (state, dead) = (dir.path().join("engine"), dir.path().join("dead"));
    let engine = open(&state);
    (0..30u8).for_each(|n| put(&engine, Durability::Durable, &[n], &vec![n; 100_000]));
    fail(&state, &dead);
    for _ in 0..2 {
        let small = LmdbEngine::open(&dead, LmdbOptions { map_bytes: 1 << 20, ..still() }).unwrap();
        assert!(pairs(&small) == pairs(&engine));
        let refused = write::<_, KvError>(&small, Durability::Durable, |w| w.put(b"k", b"v"));
        assert!(matches!(refused, Err(KvError::Full { .. })), "{refused:?}");
    }
    let whole = open(&dead);
    assert!(pairs(&whole) == pairs(&engine));
    put(&whole, Durability::Durable, b"k", b"v");
    drop(whole);
    assert_eq!(pairs(&open(&dead)).len(), 31);
}

/// While the store takes over what is in one file, batches go to the other; half a file's worth makes it do so.
#[test]
fn the_store_takes_over_when_half_a_file_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("engine");
    let engine = open(&state);
    let value = vec![7; 100_000];
    // The first makes the journal; 45 are a bit more than half a file.
    for n in 0..46u32 {
        put(&engine, Durability::Durable, &n.to_be_bytes(), &value);
    }
    store_gets(&engine, 30);
    assert_eq!(pairs(&engine).len(), 46);
}

/// What is only in the journal does not stay there.
#[test]
fn the_store_takes_over_after_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let options = LmdbOptions { save_interval: Duration::from_millis(50), ..still() };
    let engine = LmdbEngine::open(dir.path(), options).unwrap();
    put(&engine, Durability::Durable, b"a", b"1");
    put(&engine, Durability::Durable, b"b", b"2");
    store_gets(&engine, 2);
}

/// Many wait for flushes while the store takes over all the time: each is woken.
#[test]
fn everybody_who_waits_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let options = LmdbOptions { save_interval: Duration::ZERO, ..still() };
    let engine = LmdbEngine::open(dir.path(), options).unwrap();
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        for thread in 0..12u32 {
            let (engine, done) = (&engine, done.clone());
            s.spawn(move || {
                for n in 0..200u32 {
                    put(engine, Durability::Durable, &[thread.to_be_bytes(), n.to_be_bytes()].concat(), b"v");
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..12 {
            waits.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| {
                eprintln!("somebody was not woken");
                std::process::abort() // the threads that wait would keep this one
            });
        }
    });
    assert_eq!(pairs(&engine).len(), 2400);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, usize, bool),
    Delete(u8, bool),
    /// A counter that changes again and again is one key of the overlay and many changes of a batch.
    Count(u8),
    Sync,
    /// The store takes all over.
    Save,
    Fail,
    Close,
    /// Opened by who writes no journal, for one change.
    Without(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..20u8, 0..70_000usize, any::<bool>()).prop_map(|(k, n, d)| Step::Put(k, n, d)),
        2 => (0..20u8, any::<bool>()).prop_map(|(k, d)| Step::Delete(k, d)),
        2 => (1..50u8).prop_map(Step::Count),
        2 => Just(Step::Sync),
        1 => Just(Step::Save),
        2 => Just(Step::Fail),
        1 => Just(Step::Close),
        1 => (0..20u8).prop_map(Step::Without),
    ]
}

fn count(engine: &LmdbEngine, now: &mut Pairs, times: u8) {
    for _ in 0..times {
        write::<_, KvError>(engine, Durability::Relaxed, |w| w.add(b"count", 1)).unwrap();
    }
    let counter = now.entry(b"count".to_vec()).or_insert_with(|| vec![0; 8]);
    let sum = i64::from_le_bytes(counter.as_slice().try_into().unwrap()) + i64::from(times);
    *counter = sum.to_le_bytes().to_vec();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn what_is_durable_survives_whatever_comes_before(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let place = |n: u32| dir.path().join(n.to_string());
        // Numbers of the last directory, and of the one that is used.
        let (mut lives, mut here) = (0, 0);
        let mut engine = open(&place(here));
        // All, and what survives.
        let (mut now, mut durable) = (Pairs::new(), Pairs::new());
        for step in steps {
            let how = |d: bool| if d { Durability::Durable } else { Durability::Relaxed };
            match step {
                Step::Put(k, n, d) => {
                    let value = vec![k; n];
                    put(&engine, how(d), &[k], &value);
                    now.insert(vec![k], value);
                    if d { durable.clone_from(&now); }
                }
                Step::Delete(k, d) => {
                    write::<_, KvError>(&engine, how(d), |w| w.delete(&[k])).unwrap();
                    // One that changes nothing is durable all the same.
                    now.remove([k].as_slice());
                    if d { durable.clone_from(&now); }
                }
                Step::Count(times) => count(&engine, &mut now, times),
                Step::Sync => {
                    engine.sync().unwrap();
                    durable.clone_from(&now);
                }
                Step::Save => {
                    lives += 1;
                    engine.backup(&place(lives)).unwrap();
                    durable.clone_from(&now);
                    prop_assert_eq!(&pairs(&open(&place(lives))), &now);
                }
                Step::Fail => {
                    lives += 1;
                    fail(&place(here), &place(lives));
                    drop(engine);
                    engine = open(&place(lives));
                    engine.verify().unwrap();
                    prop_assert_eq!(&pairs(&engine), &durable, "what was relaxed had no time to get there");
                    now.clone_from(&durable);
                    here = lives;
                }
                Step::Close => {
                    drop(engine);
                    engine = open(&place(here));
                    prop_assert_eq!(&pairs(&engine), &now);
                    durable.clone_from(&now);
                }
                Step::Without(k) => {
                    drop(engine);
                    let options = LmdbOptions { journal: false, ..still() };
                    engine = LmdbEngine::open(&place(here), options).unwrap();
                    prop_assert_eq!(&pairs(&engine), &now);
                    put(&engine, Durability::Durable, &[k], b"without");
                    now.insert(vec![k], b"without".to_vec());
                    drop(engine);
                    engine = open(&place(here));
                    prop_assert_eq!(&pairs(&engine), &now);
                    durable.clone_from(&now);
                }
            }
        }
    }
}
