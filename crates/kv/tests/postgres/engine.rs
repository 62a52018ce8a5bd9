//! Conformance, the model, counters, owners, backups.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kv::conformance::check_engine;
use kv::{
    Aside, Database, DatabaseOptions, Durability, Engine, KvError, LmdbEngine, LmdbOptions, PostgresEngine,
    Role, read, write,
};
use proptest::test_runner::{Config, TestRunner};

use crate::model::{op, run};
use crate::server::Server;

static SCHEMAS: AtomicU32 = AtomicU32::new(1);

/// A name that no other engine of this process has.
pub fn fresh() -> String {
    format!("engine{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
}

pub fn open(server: &Server, name: &str) -> PostgresEngine {
    PostgresEngine::open(&server.address(name, "&connections=6"), DatabaseOptions::new("test")).expect("open")
}

pub fn put(engine: &dyn Engine, durability: Durability, key: &[u8], value: &[u8]) -> Result<(), KvError> {
    write(engine, durability, |w| w.put(key, value))
}

pub fn get(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
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
    let server = Server::shared();
    check_engine(&|| Box::new(open(&server, &fresh())));
}

#[test]
fn it_equals_the_model() {
    let server = Server::shared();
    let config = Config { cases: 8, failure_persistence: None, ..Config::default() };
    let ops = proptest::collection::vec(op(), 1..60);
    TestRunner::new(config)
        .run(&ops, |ops| {
            let name = fresh();
            run(&ops, Box::new(open(&server, &name)), &|engine| {
                drop(engine);
                Box::new(open(&server, &name))
            });
            server.sql(&format!("SET client_min_messages = error; DROP SCHEMA {name} CASCADE"));
            Ok(())
        })
        .unwrap();
}

/// Earlier programs kept what was added to a counter apart from its value: it is in the value once this one has opened their tables.
#[test]
fn what_an_earlier_program_added_apart_from_a_counter_is_in_it() {
    let server = Server::shared();
    let name = fresh();
    let engine = open(&server, &name);
    let number = |n: i64| Some(n.to_le_bytes().to_vec());
    write::<_, KvError>(&engine, Durability::Durable, |w| {
        w.add(b"sum", 5)?;
        w.raise(b"top", 5)?;
        w.put(b"other", b"x")
    })
    .unwrap();
    drop(engine);
    server.sql(&format!(
        "UPDATE {name}.kv SET c = 1 WHERE k = 'sum'; UPDATE {name}.kv SET c = 2 WHERE k = 'top'; \
         INSERT INTO {name}.kv_delta VALUES ('sum', 0, 2), ('sum', 3, -1), ('top', 0, 9), ('top', 1, 7)"
    ));
    for _ in 0..2 {
        let engine = open(&server, &name);
        let found = ["sum", "top", "other"].map(|key| get(&engine, key.as_bytes()));
        assert_eq!(found, [number(6), number(9), Some(b"x".to_vec())]);
        engine.verify().unwrap();
    }
    let engine = open(&server, &name);
    write::<_, KvError>(&engine, Durability::Durable, |w| w.add(b"sum", 1)).unwrap();
    assert_eq!(get(&engine, b"sum"), number(7));
}

/// A counter that many add to makes nobody try again: nothing of it is read or written in common.
#[test]
fn adding_to_one_counter_conflicts_with_nobody() {
    let server = Server::shared();
    let name = fresh();
    let engine = open(&server, &name);
    write::<_, KvError>(&engine, Durability::Relaxed, |w| w.add(b"hot", 0)).unwrap();
    let runs = AtomicU32::new(0);
    thread::scope(|s| {
        for t in 0..4u32 {
            let (engine, runs) = (&engine, &runs);
            s.spawn(move || {
                for n in 0..100u32 {
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
    assert_eq!(get(&engine, b"hot"), Some(400i64.to_le_bytes().to_vec()));
    assert_eq!(runs.into_inner(), 400);
    let stats = engine.stats();
    assert!(stats.writes == 401, "{stats:?}");
}

/// A snapshot that nobody uses any more would keep the server from clearing away what was changed since.
#[test]
fn nothing_stays_open_at_the_server_between_transactions() {
    let server = Server::shared();
    let name = fresh();
    let engine = open(&server, &name);
    put(&engine, Durability::Durable, b"k", b"1").unwrap();
    write::<_, KvError>(&engine, Durability::Durable, |w| {
        let before = w.get(b"k")?;
        assert!(before.is_some());
        w.put(b"k", b"2")
    })
    .unwrap();
    assert_eq!(get(&engine, b"k").as_deref(), Some(b"2".as_slice()));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'thermo' \
                AND state LIKE 'idle in transaction%' AND query LIKE '%FROM kv WHERE%'";
    let end = Instant::now() + Duration::from_secs(60);
    while server.sql(open) != "0" {
        assert!(Instant::now() < end, "a snapshot stays");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn with_one_connection_reading_goes_on_beside_a_reading_that_lasts() {
    let server = Server::shared();
    let engine =
        PostgresEngine::open(&server.address(&fresh(), "&connections=1"), DatabaseOptions::new("test"));
    let engine = Arc::new(engine.unwrap());
    put(&*engine, Durability::Durable, b"k", b"1").unwrap();
    let (told, tells) = std::sync::mpsc::channel();
    read::<_, KvError>(&*engine, |r| {
        assert!(r.get(b"k")?.is_some());
        let (engine, told) = (engine.clone(), told.clone());
        thread::spawn(move || {
            put(&*engine, Durability::Durable, b"k", b"2").unwrap();
            told.send(get(&*engine, b"k")).unwrap();
        });
        let beside = tells.recv_timeout(Duration::from_secs(60)).expect("it does not wait");
        assert_eq!(beside.as_deref(), Some(b"2".as_slice()));
        assert_eq!(r.get(b"k")?.as_deref(), Some(b"1".as_slice()), "its own moment");
        Ok(())
    })
    .unwrap();
}

#[test]
fn scans_of_many_and_of_large_values_are_whole_in_both_directions() {
    let server = Server::shared();
    let engine = open(&server, &fresh());
    let mut expected = BTreeMap::new();
    for n in 0..3000u32 {
        expected.insert(n.to_be_bytes().to_vec(), vec![n as u8; if n % 250 == 0 { 1 << 20 } else { 9 }]);
    }
    write::<_, KvError>(&engine, Durability::Durable, |w| expected.iter().try_for_each(|(k, v)| w.put(k, v)))
        .unwrap();
    assert!(all(&engine) == expected, "ascending");
    let mut keys = expected.keys().rev();
    read::<_, KvError>(&engine, |r| {
        r.scan_back(b"", &[255], &mut |k, _| {
            assert_eq!(Some(k), keys.next().map(Vec::as_slice));
            ControlFlow::Continue(())
        })
    })
    .unwrap();
    assert_eq!(keys.next(), None);
}

#[test]
fn one_node_at_a_time() {
    let server = Server::shared();
    let name = fresh();
    let address = server.address(&name, "&connections=3");
    let mut options = DatabaseOptions::new("first");
    let first = PostgresEngine::open(&address, options.clone()).unwrap();
    put(&first, Durability::Durable, b"k", b"1").unwrap();
    options.owner = "second".into();
    let refused = PostgresEngine::open(&address, options.clone()).err().expect("in use");
    assert!(matches!(&refused, KvError::Owned { by, .. } if by == "first"), "{refused}");
    drop(first);
    let second = PostgresEngine::open(&address, options.clone()).expect("given up when the first was closed");
    assert_eq!(get(&second, b"k").as_deref(), Some(b"1".as_slice()));
    // the lease of one that hangs ends; whatever it does afterwards is refused
    server.sql(&format!("UPDATE {name}.kv_owner SET until = now() - interval '1 second'"));
    options.owner = "third".into();
    options.take_over = false;
    let foreign = PostgresEngine::open(&address, options.clone()).err().expect("of another node");
    assert!(matches!(&foreign, KvError::Foreign { by, .. } if by == "second"), "{foreign}");
    options.take_over = true;
    let third = PostgresEngine::open(&address, options).unwrap();
    let fenced = put(&second, Durability::Relaxed, b"k", b"2").expect_err("fenced");
    assert!(matches!(&fenced, KvError::Taken { by, .. } if by == "third"), "{fenced}");
    assert!(matches!(read::<_, KvError>(&second, |r| r.get(b"k")), Err(KvError::Taken { .. })));
    put(&third, Durability::Relaxed, b"k", b"3").unwrap();
    drop(second);
    assert_eq!(get(&third, b"k").as_deref(), Some(b"3".as_slice()));
}

#[test]
fn a_transaction_that_began_before_the_take_over_is_not_committed() {
    let server = Server::shared();
    let name = fresh();
    let address = server.address(&name, "&connections=3");
    let options = DatabaseOptions::new("same");
    let old = PostgresEngine::open(&address, options.clone()).unwrap();
    put(&old, Durability::Durable, b"k", b"1").unwrap();
    let mut new = None;
    let late = write::<_, KvError>(&old, Durability::Durable, |w| {
        assert_eq!(w.get(b"k")?.as_deref(), Some(b"1".as_slice()));
        new.get_or_insert_with(|| PostgresEngine::open(&address, options.clone()).unwrap());
        w.put(b"k", b"late")
    });
    assert!(matches!(&late, Err(KvError::Taken { by, .. }) if by == "same"), "{late:?}");
    assert_eq!(get(&new.unwrap(), b"k").as_deref(), Some(b"1".as_slice()));
}

#[test]
fn a_backup_opens_as_an_embedded_engine() {
    let server = Server::shared();
    let engine = open(&server, &fresh());
    write::<_, KvError>(&engine, Durability::Durable, |w| {
        w.add(b"count", 5)?;
        (0..2000u32).try_for_each(|n| w.put(&n.to_be_bytes(), &vec![n as u8; 3000]))
    })
    .unwrap();
    write::<_, KvError>(&engine, Durability::Durable, |w| w.add(b"count", 2)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("backup");
    engine.backup(&to).unwrap();
    let copy = LmdbEngine::open(&to, LmdbOptions::default()).unwrap();
    assert!(all(&copy) == all(&engine));
    assert_eq!(get(&copy, b"count"), Some(7i64.to_le_bytes().to_vec()));
    let again = engine.backup(&to).expect_err("it is there");
    assert!(matches!(again, KvError::TargetExists { .. }), "{again}");
}

#[test]
fn damage_at_the_server_is_noticed() {
    let server = Server::shared();
    let name = fresh();
    let engine = open(&server, &name);
    put(&engine, Durability::Durable, b"a", b"right").unwrap();
    put(&engine, Durability::Durable, b"b", b"other").unwrap();
    engine.verify().unwrap();
    server.sql(&format!("UPDATE {name}.kv SET v = (SELECT v FROM {name}.kv WHERE k = 'b') WHERE k = 'a'"));
    let found = engine.verify().expect_err("the value of another key");
    assert!(matches!(&found, KvError::BadValue { key, .. } if key == b"a"), "{found}");
    put(&engine, Durability::Durable, b"a", b"mended").unwrap();
    server.sql(&format!("INSERT INTO {name}.kv_delta VALUES ('b', 0, 7)"));
    let found = engine.verify().expect_err("a delta of no counter");
    assert!(matches!(found, KvError::Corrupt { .. }), "{found}");
}

#[test]
fn a_database_without_an_engine_is_refused_when_there_should_be_one() {
    let server = Server::shared();
    let mut options = DatabaseOptions::new("test");
    options.create = false;
    let e = PostgresEngine::open(&server.address(&fresh(), ""), options).err().expect("nothing there");
    assert!(matches!(e, KvError::Absent { .. }), "{e}");
    let mut options = DatabaseOptions::new("test");
    options.patience = Duration::from_millis(100);
    let e = PostgresEngine::open("postgres://x@%2Fnonexistent/y", options).err().expect("no server");
    assert!(matches!(&e, KvError::Server { address, .. } if address.contains("/nonexistent")), "{e}");
}

#[test]
fn what_is_set_aside_opens_only_for_its_move() {
    let server = Server::shared();
    let name = fresh();
    let address = server.address(&name, "&connections=3");
    let mark = |role| Aside { role, id: "move-1".into(), why: format!("{role:?} of a test") };
    let mut options = DatabaseOptions::new("test");
    options.fill = Some(mark(Role::Copy));
    let open = |options: &DatabaseOptions| PostgresEngine::open(&address, options.clone());
    let copy = open(&options).unwrap();
    put(&copy, Durability::Durable, b"k", b"half").unwrap();
    drop(copy);
    let plain = DatabaseOptions::new("test");
    let refused = open(&plain).err().expect("a copy");
    assert!(matches!(&refused, KvError::Aside { why, .. } if why == "Copy of a test"), "{refused}");
    // a copy is begun anew
    let copy = open(&options).unwrap();
    assert_eq!(get(&copy, b"k"), None);
    put(&copy, Durability::Relaxed, b"k", b"whole").unwrap();
    drop(copy);
    // opened for its move, it stays aside until somebody says otherwise
    let known = DatabaseOptions { aside: Some("move-1".into()), ..plain.clone() };
    drop(open(&known).unwrap());
    assert!(matches!(open(&plain), Err(KvError::Aside { .. })));
    open(&known).unwrap().set_aside(None).unwrap();
    let engine = open(&plain).unwrap();
    assert_eq!(get(&engine, b"k").as_deref(), Some(b"whole".as_slice()));
    assert!(matches!(open(&options), Err(KvError::NotEmpty { .. })), "an engine in use");
    engine.set_aside(Some(&mark(Role::Left))).unwrap();
    drop(engine);
    assert!(matches!(open(&plain), Err(KvError::Aside { .. })));
    assert!(matches!(open(&options), Err(KvError::NotEmpty { .. })), "what was left is kept");
    // unless it is to be cleared
    let clear = DatabaseOptions { clear: true, ..options.clone() };
    assert_eq!(get(&open(&clear).unwrap(), b"k"), None);
    drop(open(&options).expect("an unfinished copy again"));
}

#[test]
fn tables_of_somebody_else_are_left_alone() {
    let server = Server::shared();
    let name = fresh();
    let address = server.address(&name, "");
    server.sql(&format!("CREATE TABLE {name}.kv (k bytea)"));
    server.sql(&format!("INSERT INTO {name}.kv VALUES ('theirs')"));
    let refused = PostgresEngine::open(&address, DatabaseOptions::new("test")).err().expect("not ours");
    assert!(matches!(refused, KvError::NotEmpty { .. }), "{refused}");
    assert_eq!(server.sql(&format!("SELECT count(*) FROM {name}.kv")), "1");
}

/// A closure that panics leaves no snapshot behind for the next one: that one would overwrite what was changed since.
#[test]
fn a_closure_that_panics_leaves_nothing_to_the_next_one() {
    let server = Server::shared();
    let address = server.address(&fresh(), "&connections=1");
    let engine = PostgresEngine::open(&address, DatabaseOptions::new("test")).unwrap();
    put(&engine, Durability::Durable, b"n", &[1]).unwrap();
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        write::<(), KvError>(&engine, Durability::Durable, |w| {
            assert_eq!(w.get(b"n")?, Some(vec![1]));
            panic!("as a bug would");
        })
    }));
    assert!(panics.is_err());
    put(&engine, Durability::Durable, b"n", &[5]).unwrap();
    write::<_, KvError>(&engine, Durability::Durable, |w| {
        let before = w.get(b"n")?.expect("it is there")[0];
        w.put(b"n", &[before + 1])
    })
    .unwrap();
    assert_eq!(get(&engine, b"n"), Some(vec![6]));
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        read::<(), KvError>(&engine, |r| panic!("as a bug would, behind {:?}", r.get(b"n")))
    }));
    assert!(panics.is_err());
    put(&engine, Durability::Durable, b"n", &[7]).unwrap();
    assert_eq!(get(&engine, b"n"), Some(vec![7]), "read of a snapshot that was left");
}
