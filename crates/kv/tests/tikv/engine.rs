//! Conformance, the model, large values, owners, backups.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use kv::conformance::check_engine;
use kv::{
    Aside, Database, DatabaseOptions, Durability, Engine, KvError, LmdbEngine, LmdbOptions, Role, TikvEngine,
    read, write,
};
use proptest::test_runner::{Config, TestRunner};

use crate::cluster::Cluster;
use crate::model::{op, run};

static NAMES: AtomicU32 = AtomicU32::new(1);

/// A name that no other engine of this process has.
pub fn fresh() -> String {
    format!("engine{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

fn open(cluster: &Cluster, name: &str) -> TikvEngine {
    TikvEngine::open(&cluster.address(name), DatabaseOptions::new("test")).expect("open")
}

fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) -> Result<(), KvError> {
    write(engine, Durability::Durable, |w| w.put(key, value))
}

fn get(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
    read::<_, KvError>(engine, |r| r.get(key)).expect("get")
}

fn all(engine: &dyn Engine) -> BTreeMap<Vec<u8>, Vec<u8>> {
    read::<_, KvError>(engine, |r| {
        let mut out = BTreeMap::new();
        r.scan(b"", &[255; 500], &mut |k, v| {
            out.insert(k.to_vec(), v.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(out)
    })
    .expect("scan")
}

#[test]
fn it_conforms() {
    let cluster = Cluster::shared();
    check_engine(&|| Box::new(open(&cluster, &fresh())));
}

#[test]
fn it_equals_the_model() {
    let cluster = Cluster::shared();
    let config = Config { cases: 6, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    runner
        .run(&proptest::collection::vec(op(), 1..30), |ops| {
            let name = fresh();
            run(&ops, Box::new(open(&cluster, &name)), &|engine| {
                drop(engine);
                Box::new(open(&cluster, &name))
            });
            Ok(())
        })
        .unwrap();
}

/// Values in pieces grow, shrink and go, and leave nothing behind; scans give them whole in both directions.
#[test]
fn large_values_and_long_scans_are_whole() {
    let cluster = Cluster::shared();
    let engine = open(&cluster, &fresh());
    let mut expected = BTreeMap::new();
    for n in 0..700u32 {
        expected.insert(n.to_be_bytes().to_vec(), vec![n as u8; if n % 200 == 0 { 300_000 } else { 9 }]);
    }
    write::<_, KvError>(&engine, Durability::Durable, |w| expected.iter().try_for_each(|(k, v)| w.put(k, v)))
        .unwrap();
    assert!(all(&engine) == expected, "ascending");
    for (n, len) in [(0u32, 100), (200, 70_000), (3, 200_000)] {
        let (key, value) = (n.to_be_bytes().to_vec(), vec![7; len]);
        put(&engine, &key, &value).unwrap();
        expected.insert(key, value);
    }
    let gone = 400u32.to_be_bytes();
    write::<_, KvError>(&engine, Durability::Durable, |w| w.delete(&gone)).unwrap();
    expected.remove(&gone[..]);
    engine.verify().unwrap();
    let mut keys = expected.iter().rev();
    read::<_, KvError>(&engine, |r| {
        r.scan_back(b"", &[255], &mut |k, v| {
            assert!(keys.next() == Some((&k.to_vec(), &v.to_vec())), "descending");
            ControlFlow::Continue(())
        })
    })
    .unwrap();
    assert_eq!(keys.next(), None);
    let dir = tempfile::tempdir().unwrap();
    engine.backup(&dir.path().join("backup")).unwrap();
    let copy = LmdbEngine::open(&dir.path().join("backup"), LmdbOptions::default()).unwrap();
    assert!(all(&copy) == expected, "the backup");
}

/// A counter that many add to makes nobody run again.
#[test]
fn adding_to_one_counter_conflicts_with_nobody() {
    let cluster = Cluster::shared();
    let engine = open(&cluster, &fresh());
    let runs = AtomicU32::new(0);
    thread::scope(|s| {
        for t in 0..4u32 {
            let (engine, runs) = (&engine, &runs);
            s.spawn(move || {
                for n in 0..50u32 {
                    write::<_, KvError>(engine, Durability::Relaxed, |w| {
                        runs.fetch_add(1, Ordering::Relaxed);
                        w.put(&[b"own".as_slice(), &t.to_be_bytes(), &n.to_be_bytes()].concat(), b"x")?;
                        w.add(b"hot", 1)
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(get(&engine, b"hot"), Some(200i64.to_le_bytes().to_vec()));
    assert_eq!(runs.into_inner(), 200);
    let stats = engine.stats();
    assert!(stats.writes == 200 && stats.flushes < 200, "several are committed together: {stats:?}");
}

#[test]
fn one_node_at_a_time() {
    let cluster = Cluster::shared();
    let address = cluster.address(&fresh());
    let options = |owner: &str| DatabaseOptions { take_over: false, ..DatabaseOptions::new(owner) };
    let open = |options: &DatabaseOptions| TikvEngine::open(&address, options.clone());
    let absent = open(&DatabaseOptions { create: false, ..options("first") }).err().expect("nothing there");
    assert!(matches!(absent, KvError::Absent { .. }), "{absent}");
    let first = open(&options("first")).unwrap();
    put(&first, b"k", b"1").unwrap();
    let refused = open(&options("second")).err().expect("in use");
    assert!(matches!(&refused, KvError::Owned { by, .. } if by == "first"), "{refused}");
    // under the same name it is taken over at once, and what the earlier one does afterwards is refused
    let mut again = None;
    let late = write::<_, KvError>(&first, Durability::Durable, |w| {
        assert_eq!(w.get(b"k")?.as_deref(), Some(b"1".as_slice()));
        again.get_or_insert_with(|| open(&options("first")).unwrap());
        w.put(b"k", b"late")
    });
    assert!(matches!(&late, Err(KvError::Taken { by, .. }) if by == "first"), "{late:?}");
    assert!(matches!(read::<_, KvError>(&first, |r| r.get(b"k")), Err(KvError::Taken { .. })));
    let again = again.unwrap();
    assert_eq!(get(&again, b"k").as_deref(), Some(b"1".as_slice()));
    drop(first);
    put(&again, b"k", b"2").unwrap();
    drop(again);
    let foreign = open(&options("second")).err().expect("of another node");
    assert!(matches!(&foreign, KvError::Foreign { by, .. } if by == "first"), "{foreign}");
    let second = open(&DatabaseOptions::new("second")).expect("given up when the first was closed");
    assert_eq!(get(&second, b"k").as_deref(), Some(b"2".as_slice()));
}

#[test]
fn a_cluster_that_does_not_answer_is_named() {
    let options = DatabaseOptions { patience: Duration::from_millis(100), ..DatabaseOptions::new("test") };
    let e = TikvEngine::open("tikv://127.0.0.1:1/x", options).err().expect("nobody there");
    assert!(matches!(&e, KvError::Server { address, .. } if address.contains("127.0.0.1:1")), "{e}");
}

#[test]
fn what_is_set_aside_opens_only_for_its_move() {
    let cluster = Cluster::shared();
    let address = cluster.address(&fresh());
    let mark = |role| Aside { role, id: "move-1".into(), why: format!("{role:?} of a test") };
    let open = |options: &DatabaseOptions| TikvEngine::open(&address, options.clone());
    let fill = DatabaseOptions { fill: Some(mark(Role::Copy)), ..DatabaseOptions::new("test") };
    let copy = open(&fill).unwrap();
    (0..3000u32).for_each(|n| {
        write::<_, KvError>(&copy, Durability::Durable, |w| w.put(&n.to_be_bytes(), &[0; 10])).unwrap();
    });
    put(&copy, b"large", &[7; 200_000]).unwrap();
    drop(copy);
    let plain = DatabaseOptions::new("test");
    let refused = open(&plain).err().expect("a copy");
    assert!(matches!(&refused, KvError::Aside { why, .. } if why == "Copy of a test"), "{refused}");
    // a copy is begun anew, without what the first one had
    let copy = open(&fill).unwrap();
    let mut keys = 0;
    copy.read_dyn(&mut |r| {
        r.scan(&[], &[255; 9], &mut |_, _| {
            keys += 1;
            ControlFlow::Continue(())
        })
    })
    .unwrap();
    copy.verify().expect("no pieces are left");
    assert_eq!(keys, 0);
    put(&copy, b"k", b"whole").unwrap();
    drop(copy);
    // opened for its move, it stays aside until somebody says otherwise
    let known = DatabaseOptions { aside: Some("move-1".into()), ..plain.clone() };
    drop(open(&known).unwrap());
    assert!(matches!(open(&plain), Err(KvError::Aside { .. })));
    open(&known).unwrap().set_aside(None).unwrap();
    let engine = open(&plain).unwrap();
    assert_eq!(get(&engine, b"k").as_deref(), Some(b"whole".as_slice()));
    assert!(matches!(open(&fill), Err(KvError::NotEmpty { .. })), "an engine in use");
    engine.set_aside(Some(&mark(Role::Left))).unwrap();
    drop(engine);
    assert!(matches!(open(&plain), Err(KvError::Aside { .. })));
    assert!(matches!(open(&fill), Err(KvError::NotEmpty { .. })), "what was left is kept");
    // unless it is to be cleared
    let clear = DatabaseOptions { clear: true, ..fill.clone() };
    assert_eq!(get(&open(&clear).unwrap(), b"k"), None);
    drop(open(&fill).expect("an unfinished copy again"));
}

/// A cluster of its own: what it forgets, it forgets for all.
#[test]
fn the_cluster_forgets_old_versions_and_no_reading_misses_them_unnoticed() {
    let cluster = Cluster::start();
    let engine = open(&cluster, "collects");
    let point = || {
        let told = cluster.asked("/pd/api/v1/gc/safepoint");
        let (_, rest) = told.split_once("\"gc_safe_point\":").expect("the placement driver tells it");
        rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<u64>().unwrap()
    };
    (0..200u32).for_each(|n| put(&engine, &n.to_be_bytes(), &[1; 100]).unwrap());
    assert_eq!(point(), 0);
    engine.collect(Duration::from_secs(600)).unwrap();
    let early = point();
    assert!(early > 0);
    let mut seen = 0;
    let missed = engine.read_dyn(&mut |r| {
        r.scan(&[], &[255; 9], &mut |_, _| {
            if seen == 0 {
                thread::sleep(Duration::from_millis(200)); // the cluster's clock goes in steps
                engine.collect(Duration::ZERO).unwrap();
            }
            seen += 1;
            ControlFlow::Continue(())
        })
    });
    let missed = missed.unwrap_err();
    assert!(missed.to_string().contains("keep=TIME"), "{missed}");
    assert!(seen < 200, "what came in the first answer was whole");
    assert!(point() > early + (599_000 << 18), "{} {early}", point());
    // It never goes back, and all that counts is there.
    let late = point();
    engine.collect(Duration::from_secs(3600)).unwrap();
    assert_eq!(point(), late);
    engine.verify().unwrap();
    assert_eq!(get(&engine, &7u32.to_be_bytes()).as_deref(), Some([1; 100].as_slice()));
}
