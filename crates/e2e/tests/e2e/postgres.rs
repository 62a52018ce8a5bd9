//! A node whose catalogue is in a PostgreSQL server.

use crate::server::Server;
use e2e::{Bed, digests, make_files};
use std::fs;

fn config(server: &Server, name: &str) -> String {
    config_with(server, name, "")
}

fn config_with(server: &Server, name: &str, settings: &str) -> String {
    let address = server.address(name, &format!("&connections=8{settings}"));
    format!(
        "[catalog]\nengine = {address:?}\n[library]\ncartridge_capacity = \"256 MiB\"\n[[classes]]\nname = \"default\"\n\
         copies = [\"primary\", \"second\"]\nmigrate_after_s = 0\n"
    )
}

/// Files go to tape, leave the disk and come back, while the node is killed, and while the server is.
#[test]
fn a_catalogue_in_a_database_survives_its_node_and_its_server() {
    let server = Server::start();
    let bed = Bed::new(&config(&server, "node"));
    make_files(&bed.path("tree"), 60, 20_000);
    let tree = bed.path("tree");
    bed.up();
    bed.ok(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    bed.kill();
    bed.up();
    assert!(!bed.state().join("catalog").exists(), "there is no embedded engine beside it");
    bed.ok(["purge", "--wait", "-r", "tc:/tree"]);
    bed.ok(["stage", "--wait", "-r", "tc:/tree"]);
    let back = bed.path("back");
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/tree".as_ref(), back.as_os_str()]);
    assert!(digests(&tree) == digests(&back), "the copy differs");
    bed.check();
    let kept = bed.path("backups");
    bed.ok(["catalog".as_ref(), "backup".as_ref(), kept.as_os_str()]);
    let backup = fs::read_dir(&kept).unwrap().next().expect("a backup").unwrap().path();
    assert!(backup.join("data.mdb").is_file(), "it is an embedded engine");
    bed.ok(["down"]);
    let (_, refused) = bed.fails(["catalog".as_ref(), "restore".as_ref(), backup.as_os_str()]);
    assert!(refused.contains("catalog.engine"), "{refused}");
    server.crash(true);
    server.up();
    bed.up();
    bed.check();
    bed.ok(["down"]);
}

/// Two nodes never share a database, and no node begins beside a catalogue that is somewhere else.
#[test]
fn a_database_has_one_node() {
    let server = Server::start();
    let (first, second) = (Bed::new(&config(&server, "shared")), Bed::new(&config(&server, "shared")));
    first.up();
    let (_, refused) = second.fails(["up"]);
    assert!(refused.contains("in use by node"), "{refused}");
    first.ok(["down"]);
    let lease = server.sql("SELECT until <= now() FROM shared.kv_owner");
    assert_eq!(lease, "t", "a node that stops gives its lease back");
    let (_, refused) = second.fails(["up"]);
    assert!(refused.contains("which is not this one"), "{refused}");
    let own = first.state().join("config.toml");
    let settings = fs::read_to_string(&own).unwrap();
    fs::write(&own, config(&server, "empty")).unwrap();
    let (_, refused) = first.fails(["up"]);
    assert!(refused.contains("no engine in the database"), "{refused}");
    fs::write(&own, "").unwrap();
    let (_, refused) = first.fails(["up"]);
    assert!(refused.contains("is in a database"), "{refused}");
    fs::write(&own, settings).unwrap();
    first.up();
    first.ok(["down"]);
}

/// A server that fails while the node works is a pause; a copy that was under way goes on.
#[test]
fn a_node_waits_for_its_server() {
    let server = Server::start();
    let bed = Bed::new(&config_with(&server, "paused", "&relaxed=no"));
    make_files(&bed.path("tree"), 200, 2_000);
    let tree = bed.path("tree");
    bed.up();
    let keys = || server.sql("SELECT count(*) FROM paused.kv").parse::<u64>().unwrap();
    let before = keys();
    let mut copy =
        bed.command(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]).spawn().unwrap();
    bed.wait("the copy to begin", || keys() > before + 20);
    server.crash(true);
    server.up();
    assert!(copy.wait().unwrap().success(), "{}", bed.log());
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    let back = bed.path("back");
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/tree".as_ref(), back.as_os_str()]);
    assert!(digests(&tree) == digests(&back), "the copy differs");
    bed.check();
    bed.ok(["down"]);
}

/// What operators have set counts for a state directory that is made anew, once it has the name that the database knows.
#[test]
fn a_state_directory_that_is_lost_gets_its_catalogue_from_the_database() {
    let server = Server::start();
    let (lost, new) = (Bed::new(&config(&server, "lost")), Bed::new(&config(&server, "lost")));
    lost.up();
    lost.ok(["class", "set", "default", "--copies", "second"]);
    lost.ok(["down"]);
    let (_, refused) = new.fails(["up"]);
    assert!(refused.contains("which is not this one"), "{refused}");
    fs::copy(lost.state().join("engine-owner"), new.state().join("engine-owner")).unwrap();
    new.up();
    let classes = new.json(["class", "ls"]).to_string();
    assert!(!classes.contains("primary"), "{classes}");
    new.ok(["down"]);
}
