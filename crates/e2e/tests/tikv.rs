//! A node whose catalogue is in a TiKV cluster. `.ci/tikv` builds the cluster.
#![cfg(feature = "tikv")]

#[path = "../../kv/tests/tikv/cluster.rs"]
mod cluster;

use cluster::Cluster;
use e2e::{Bed, digests, make_files};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CONFIG: &str = "[library]\ncartridge_capacity = \"256 MiB\"\n[[classes]]\nname = \"default\"\n\
                      copies = [\"primary\", \"second\"]\nmigrate_after_s = 0\n";

fn with_engine(address: &str) -> String {
    format!("{CONFIG}[catalog]\nengine = {address:?}\n")
}

fn settings(bed: &Bed) -> String {
    fs::read_to_string(bed.state().join("config.toml")).unwrap()
}

fn set(bed: &Bed, text: &str) {
    fs::write(bed.state().join("config.toml"), text).unwrap();
}

fn put(bed: &Bed, name: &str) {
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.state().join("config.toml").as_os_str(), name.as_ref()]);
}

/// What is in the tree at `tc:/tree` is what was put there.
fn is_whole(bed: &Bed, name: &str) {
    let back = bed.path(name);
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/tree".as_ref(), back.as_os_str()]);
    assert!(digests(&bed.path("tree")) == digests(&back), "the copy differs");
}

/// Files go to tape, leave the disk and come back, while the node is killed under load, and its store hangs.
#[test]
fn a_catalogue_in_a_cluster_survives_its_node_and_a_store_that_hangs() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&with_engine(&cluster.address("node")));
    let tree = bed.path("tree");
    make_files(&tree, 60, 20_000);
    bed.up();
    assert!(!bed.state().join("catalog").exists(), "there is no embedded engine beside it");
    bed.ok(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    let acknowledged = kill_under_load(&bed);
    bed.up();
    for name in &acknowledged {
        bed.ok(["stat", name.as_str()]);
    }
    bed.ok(["purge", "--wait", "-r", "tc:/tree"]);
    bed.ok(["stage", "--wait", "-r", "tc:/tree"]);
    is_whole(&bed, "back");
    bed.check();
    cluster.hang();
    put(&bed, "tc:/late");
    let kept = bed.path("backups");
    bed.ok(["catalog".as_ref(), "backup".as_ref(), kept.as_os_str()]);
    let backup = fs::read_dir(&kept).unwrap().next().expect("a backup").unwrap().path();
    assert!(backup.join("data.mdb").is_file(), "it is an embedded engine");
    bed.ok(["down"]);
    bed.up();
    bed.check();
    bed.ok(["down"]);
}

/// Kills the node while three threads put files; names of those that were acknowledged.
fn kill_under_load(bed: &Bed) -> Vec<String> {
    let (stop, done) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let source = bed.state().join("config.toml");
    std::thread::scope(|s| {
        for thread in 0..3 {
            let (stop, done, source) = (&stop, &done, &source);
            s.spawn(move || {
                for n in 0.. {
                    let name = format!("tc:/load-{thread}-{n}");
                    let put = bed.run(["put".as_ref(), "-T".as_ref(), source.as_os_str(), name.as_ref()]);
                    if stop.load(Ordering::Acquire) || !put.status.success() {
                        return;
                    }
                    done.lock().unwrap().push(name);
                }
            });
        }
        let begin = Instant::now();
        while done.lock().unwrap().len() < 8 {
            assert!(begin.elapsed() < Duration::from_secs(120), "files are put");
            std::thread::sleep(Duration::from_millis(20));
        }
        bed.kill();
        stop.store(true, Ordering::Release);
    });
    done.into_inner().unwrap()
}

/// Two nodes never share an engine, several have engines of their own in one cluster, and none begins beside a catalogue that is somewhere else.
#[test]
fn an_engine_of_a_cluster_has_one_node_and_a_cluster_several_engines() {
    let cluster = Cluster::shared();
    let shared = with_engine(&cluster.address("shared"));
    let (first, second) = (Bed::new(&shared), Bed::new(&shared));
    first.up();
    let (_, refused) = second.fails(["up"]);
    assert!(refused.contains("in use by node"), "{refused}");
    set(&second, &with_engine(&cluster.address("other")));
    second.up();
    put(&first, "tc:/first");
    put(&second, "tc:/second");
    assert!(!second.ok(["ls", "tc:/"]).contains("first"));
    second.ok(["down"]);
    first.ok(["down"]);
    set(&second, &shared);
    let (_, foreign) = second.fails(["up"]);
    assert!(foreign.contains("holds the catalogue of node"), "{foreign}");
    set(&first, CONFIG);
    let (_, elsewhere) = first.fails(["up"]);
    assert!(elsewhere.contains("is in a database"), "{elsewhere}");
    set(&first, &with_engine("tikv://127.0.0.1:1/shared?keep=1m"));
    let (_, bad) = first.fails(["up"]);
    assert!(bad.contains("at least 10m"), "{bad}");
}

#[test]
fn a_catalogue_moves_into_a_cluster_and_back() {
    let cluster = Cluster::shared();
    let address = cluster.address("moved");
    let bed = Bed::new(CONFIG);
    let tree = bed.path("tree");
    make_files(&tree, 20, 10_000);
    bed.up();
    bed.ok(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    bed.ok(["down"]);
    let moved = bed.json(["engine", "move", "--to", address.as_str()]);
    assert_eq!(moved["sha256"].as_str().map(str::len), Some(64), "{moved}");
    assert!(settings(&bed).contains(&address));
    bed.up();
    is_whole(&bed, "there");
    put(&bed, "tc:/there");
    bed.ok(["down"]);
    let own = settings(&bed);
    set(&bed, CONFIG);
    let (_, refused) = bed.fails(["up"]);
    assert!(refused.contains("the catalogue was moved to"), "{refused}");
    set(&bed, &own);
    bed.ok(["engine", "move", "--to", "embedded"]);
    bed.up();
    is_whole(&bed, "back");
    bed.ok(["stat", "tc:/there"]);
    bed.check();
    bed.ok(["down"]);
    // What was left there is kept, and does not open.
    let (_, full) = bed.fails(["engine", "move", "--to", address.as_str()]);
    assert!(full.contains("is not empty") && full.contains("another name"), "{full}");
    bed.ok(["engine", "clear", "--at", address.as_str()]);
    bed.ok(["engine", "move", "--to", address.as_str()]);
    bed.up();
    is_whole(&bed, "again");
    bed.ok(["down"]);
    bed.ok(["engine", "move", "--to", "embedded"]);
    fs::rename(bed.state().join("catalog"), bed.path("hidden")).unwrap();
    set(&bed, &with_engine(&address));
    let (_, refused) = bed.fails(["up"]);
    assert!(refused.contains("the catalogue was moved to"), "{refused}");
}

/// Whichever dies or ends, the other one goes on with what was acknowledged; nobody serves beside it.
#[test]
fn two_nodes_over_one_cluster_take_turns() {
    let cluster = Cluster::start(); // one that no other test stops for a while
    // Names only: these two have no tape library and no targets in common.
    let shared =
        with_engine(&cluster.address("turns")).replace("migrate_after_s = 0", "migrate_after_s = 3600");
    let shared = format!("{shared}take_turns_s = 5\n");
    let listens = || format!("{shared}[cluster]\nlisten = \"{}\"\n", e2e::cluster::address());
    let [first, second] = [(); 2].map(|()| Bed::new(&listens()));
    first.up();
    first.ok(["cluster", "init", "--name", "first"]);
    e2e::cluster::join(&first, &second, "second");
    assert!(second.ok(["up"]).contains("and waits for its turn"));
    let waits = |bed: &Bed| {
        let shown = bed.run(["--json", "cluster", "status"]).stdout;
        let view: serde_json::Value = serde_json::from_slice(&shown).unwrap_or_default();
        let own = view["nodes"]
            .as_array()
            .and_then(|nodes| nodes.iter().find(|node| node["state"] == "Waits").cloned());
        view["waits"] == true && own.is_some_and(|own| own["lacks"].is_null())
    };
    let serves = |bed: &Bed| bed.run(["status"]).status.success();
    second.wait("the keys", || waits(&second));
    let [mut serving, mut waiting] = [&first, &second];
    for n in 0..3 {
        assert!(!serves(waiting));
        put(serving, &format!("tc:/file-{n}"));
        match n {
            2 => drop(serving.ok(["down"])),
            _ => serving.kill(),
        }
        waiting.wait("its turn", || serves(waiting));
        let names = waiting.ok(["ls", "tc:/"]);
        assert!((0..=n).all(|n| names.contains(&format!("file-{n}"))), "{names}");
        assert!(serving.ok(["up"]).contains("and waits for its turn"));
        serving.wait("the keys", || waits(serving));
        [serving, waiting] = [waiting, serving];
    }
    waiting.ok(["down"]);
    serving.ok(["down"]);
}
