//! The log of changes: a backup and the batches behind it give every later moment; what is missing is noticed.

use kv::log::{LogOptions, Position, position, prune, replay};
use kv::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, read, write};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use tempfile::TempDir;

/// Every look at the clock is a millisecond later.
fn clock_ms() -> i64 {
    static NOW: AtomicI64 = AtomicI64::new(1_000);
    NOW.fetch_add(1, Ordering::Relaxed)
}

struct Bed {
    dir: TempDir,
    backups: Cell<u32>,
}

type Dump = BTreeMap<Vec<u8>, Vec<u8>>;

impl Bed {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), backups: Cell::new(0) }
    }

    fn logs(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn engine(&self) -> PathBuf {
        self.dir.path().join("engine")
    }

    fn open(&self) -> LmdbEngine {
        let log = Some(LogOptions { dir: self.logs(), clock_ms });
        LmdbEngine::open(&self.engine(), LmdbOptions { log, ..LmdbOptions::default() }).unwrap()
    }

    fn backup(&self, engine: &LmdbEngine) -> PathBuf {
        self.backups.set(self.backups.get() + 1);
        let to = self.dir.path().join(format!("backup{}", self.backups.get()));
        engine.backup(&to).unwrap();
        to
    }

    /// The backup as it was at a time.
    fn at(&self, backup: &Path, until_ms: i64) -> Result<(Dump, kv::log::Replayed), KvError> {
        let copy = tempfile::tempdir_in(self.dir.path()).unwrap();
        for entry in fs::read_dir(backup).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let from = position(backup).unwrap().expect("the backup has a place in the log");
        let engine = LmdbEngine::open(copy.path(), LmdbOptions::default()).unwrap();
        let done = replay(&engine, &self.logs(), &from, until_ms)?;
        engine.verify().unwrap();
        Ok((dump(&engine), done))
    }

    fn segments(&self) -> Vec<PathBuf> {
        let chains = fs::read_dir(self.logs()).unwrap().map(|e| e.unwrap().path());
        let mut all: Vec<_> =
            chains.flat_map(|c| fs::read_dir(c).unwrap().map(|e| e.unwrap().path())).collect();
        all.sort();
        all
    }
}

fn dump(engine: &LmdbEngine) -> Dump {
    read::<_, KvError>(engine, |r| {
        let mut all = Dump::new();
        r.scan(b"", &[0xff; 8], &mut |k, v| {
            all.insert(k.to_vec(), v.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(all)
    })
    .unwrap()
}

fn put(engine: &LmdbEngine, key: &[u8], value: &[u8]) {
    write::<_, KvError>(engine, Durability::Durable, |w| w.put(key, value)).unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Vec<u8>),
    Delete(u8),
    Add(u8, i64),
    Flush,
    Backup,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..20u8, proptest::collection::vec(any::<u8>(), 0..40)).prop_map(|(k, v)| Step::Put(k, v)),
        2 => (0..20u8).prop_map(Step::Delete),
        2 => (20..24u8, any::<i64>()).prop_map(|(k, n)| Step::Add(k, n)),
        3 => Just(Step::Flush),
        1 => Just(Step::Backup),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn every_backup_can_be_brought_forward_to_every_later_moment(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let bed = Bed::new();
        let mut engine = bed.open();
        let first = bed.backup(&engine);
        let mut moments = vec![(clock_ms(), dump(&engine))];
        let mut backups = vec![(first, 0)];
        for step in steps {
            let change = |f: &dyn Fn(&mut dyn kv::Writer) -> kv::Result<()>| {
                write::<_, KvError>(&engine, Durability::Relaxed, f).unwrap();
            };
            match step {
                Step::Put(k, v) => change(&|w| w.put(&[k, 1], &v)),
                Step::Delete(k) => change(&|w| w.delete(&[k, 1])),
                Step::Add(k, n) => change(&|w| w.add(&[k, 1], n)),
                Step::Flush => {
                    engine.sync().unwrap();
                    moments.push((clock_ms(), dump(&engine)));
                }
                Step::Backup => {
                    let made = bed.backup(&engine);
                    moments.push((clock_ms(), dump(&engine)));
                    backups.push((made, moments.len() - 1));
                }
                Step::Reopen => {
                    drop(engine);
                    engine = bed.open();
                    prop_assert!(!engine.log().unwrap().needs_backup, "the chain goes on");
                    moments.push((clock_ms(), dump(&engine)));
                }
            }
        }
        for (backup, since) in &backups {
            for (n, (time, held)) in moments.iter().enumerate().skip(*since) {
                let (found, done) = bed.at(backup, *time).unwrap();
                prop_assert_eq!(&found, held, "moment {} of {}: {:?}", n, moments.len(), done);
            }
        }
    }
}

#[test]
fn what_was_logged_but_did_not_get_into_the_store_is_taken_back() {
    let bed = Bed::new();
    let engine = bed.open();
    let backup = bed.backup(&engine);
    put(&engine, b"a", b"1");
    drop(engine);
    let before = bed.dir.path().join("before");
    fs::create_dir(&before).unwrap();
    fs::copy(bed.engine().join("data.mdb"), before.join("data.mdb")).unwrap();
    let engine = bed.open();
    put(&engine, b"b", b"2");
    drop(engine);
    // The power failed after the log and before the store.
    fs::copy(before.join("data.mdb"), bed.engine().join("data.mdb")).unwrap();
    let engine = bed.open();
    assert!(!engine.log().unwrap().needs_backup);
    assert_eq!(bed.at(&backup, i64::MAX).unwrap().0, dump(&engine));
    put(&engine, b"c", b"3");
    let (found, done) = bed.at(&backup, i64::MAX).unwrap();
    assert_eq!((found.keys().map(|k| k[0]).collect::<Vec<_>>(), done.more), (vec![b'a', b'c'], false));
}

#[test]
fn a_log_that_lost_its_end_is_noticed_and_a_new_chain_begins_with_a_backup() {
    let bed = Bed::new();
    let engine = bed.open();
    assert!(engine.log().unwrap().needs_backup);
    let backup = bed.backup(&engine);
    assert!(!engine.log().unwrap().needs_backup);
    for n in 0..5u8 {
        put(&engine, &[b'k', n], &[n]);
    }
    drop(engine);
    let segment = bed.segments().pop().unwrap();
    let length = fs::metadata(&segment).unwrap().len();
    OpenOptions::new().write(true).open(&segment).unwrap().set_len(length - 3).unwrap();
    let engine = bed.open();
    assert_eq!(engine.log().unwrap().trouble, None);
    assert!(engine.log().unwrap().needs_backup, "one batch is missing");
    put(&engine, b"later", b"");
    assert_eq!(bed.at(&backup, i64::MAX).unwrap().0.len(), 4, "as far as the old chain goes");
    let second = bed.backup(&engine);
    put(&engine, b"last", b"");
    assert_eq!(bed.at(&second, i64::MAX).unwrap().0, dump(&engine));
    let needed: Vec<Position> = [&second].iter().map(|b| position(b).unwrap().unwrap()).collect();
    prune(&bed.logs(), &needed).unwrap();
    assert_eq!(bed.at(&second, i64::MAX).unwrap().0, dump(&engine));
    assert!(matches!(bed.at(&backup, i64::MAX), Err(KvError::Io { .. })), "its chain was let go");
}

/// A segment is followed by another one, and goes when no backup needs it.
#[test]
fn segments_follow_each_other_and_go_when_no_backup_needs_them() {
    let bed = Bed::new();
    let engine = bed.open();
    let first = bed.backup(&engine);
    let value = vec![7; 1 << 20];
    for n in 0..66u8 {
        put(&engine, &[b'k', n % 3], &value[usize::from(n)..]);
    }
    assert_eq!(bed.segments().len(), 2);
    assert_eq!(bed.at(&first, i64::MAX).unwrap().0, dump(&engine));
    let second = bed.backup(&engine);
    put(&engine, b"last", b"1");
    let needed = |backups: &[&PathBuf]| -> Vec<Position> {
        backups.iter().map(|b| position(b).unwrap().unwrap()).collect()
    };
    prune(&bed.logs(), &needed(&[&first, &second])).unwrap();
    assert_eq!(bed.at(&first, i64::MAX).unwrap().0, dump(&engine), "what a backup needs stays");
    prune(&bed.logs(), &needed(&[&second])).unwrap();
    assert_eq!(bed.segments().len(), 1);
    assert_eq!(bed.at(&second, i64::MAX).unwrap().0, dump(&engine));
    assert!(bed.at(&first, i64::MAX).is_err(), "a gap is never passed over");
}

/// A clock that goes back does not make the chain that is being written look like an old one.
#[test]
fn the_chain_that_is_written_is_the_last_whatever_the_clock_says() {
    static NOW: AtomicI64 = AtomicI64::new(9_000_000);
    let bed = Bed::new();
    let open = || {
        let log = Some(LogOptions { dir: bed.logs(), clock_ms: || NOW.load(Ordering::Relaxed) });
        LmdbEngine::open(&bed.engine(), LmdbOptions { log, ..LmdbOptions::default() }).unwrap()
    };
    let first = open();
    let old = bed.backup(&first);
    drop(first);
    // The catalogue was restored, and the clock put right.
    fs::remove_dir_all(bed.engine()).unwrap();
    NOW.store(5_000_000, Ordering::Relaxed);
    let second = open();
    put(&second, b"a", b"1");
    prune(&bed.logs(), &[position(&old).unwrap().unwrap()]).unwrap();
    let backup = bed.backup(&second);
    put(&second, b"b", b"2");
    assert_eq!(bed.at(&backup, i64::MAX).unwrap().0, dump(&second));
}

#[test]
fn a_changed_byte_never_changes_what_comes_back_it_ends_it_or_is_an_error() {
    let bed = Bed::new();
    let engine = bed.open();
    let backup = bed.backup(&engine);
    let mut states = vec![dump(&engine)];
    for n in 0..6u8 {
        put(&engine, &[b'k', n], &[n; 9]);
        states.push(dump(&engine));
    }
    drop(engine);
    let segment = bed.segments().pop().unwrap();
    let whole = fs::read(&segment).unwrap();
    for at in (0..whole.len()).step_by(5) {
        let mut bad = whole.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&segment, &bad).unwrap();
        if let Ok((found, _)) = bed.at(&backup, i64::MAX) {
            assert!(states[..states.len() - 1].contains(&found), "byte {at}");
        }
    }
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing_and_goes_on_with_the_next_backup() {
    let bed = Bed::new();
    fs::write(bed.logs(), b"in the way").unwrap();
    let engine = bed.open();
    put(&engine, b"a", b"1");
    let trouble = engine.log().unwrap().trouble.expect("a file is in the place of the directory");
    assert!(trouble.contains("change log"), "{trouble}");
    assert_eq!(position(&bed.backup(&engine)).unwrap(), None, "nothing follows this backup");
    fs::remove_file(bed.logs()).unwrap();
    let backup = bed.backup(&engine);
    assert_eq!(engine.log().unwrap().trouble, None);
    put(&engine, b"b", b"2");
    assert_eq!(bed.at(&backup, i64::MAX).unwrap().0, dump(&engine));
}
