//! The catalogue of a node moves from one engine to another, and the command is killed on its way.

use crate::server::Server;
use e2e::{Bed, digests, make_files, thermo};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const CONFIG: &str = "# of this site\n[library]\ncartridge_capacity = \"256 MiB\"\n[[classes]]\nname = \"default\"\n\
                      copies = [\"primary\", \"second\"]\nmigrate_after_s = 0\n";
const EMBEDDED: &str = "embedded";

/// A node with some files, on tape and on disk, that does not run.
fn filled() -> Bed {
    let bed = Bed::new(CONFIG);
    make_files(&bed.path("tree"), 20, 10_000);
    bed.up();
    let tree = bed.path("tree");
    bed.ok(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    bed.ok(["down"]);
    bed
}

fn settings(bed: &Bed) -> String {
    fs::read_to_string(bed.state().join("config.toml")).unwrap()
}

fn set(bed: &Bed, text: &str) {
    fs::write(bed.state().join("config.toml"), text).unwrap();
}

fn with_engine(address: &str) -> String {
    format!("{CONFIG}[catalog]\nengine = {address:?}\n")
}

/// The node goes on from the engine that its configuration names: everything is there, and it takes one more file.
fn goes_on(bed: &Bed, more: &mut Vec<String>) {
    bed.up();
    let back = bed.path(&format!("back{}", more.len()));
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/tree".as_ref(), back.as_os_str()]);
    assert!(digests(&bed.path("tree")) == digests(&back), "the files differ");
    for name in more.iter() {
        bed.ok(["stat", name.as_str()]);
    }
    let name = format!("tc:/more{}", more.len());
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.state().join("config.toml").as_os_str(), name.as_ref()]);
    more.push(name);
    bed.ok(["down"]);
}

/// With the configuration `text` the node does not start, and says one of these.
fn refused(bed: &Bed, text: &str, expected: &[&str]) {
    let own = settings(bed);
    set(bed, text);
    let (_, said) = bed.fails(["up"]);
    assert!(expected.iter().any(|part| said.contains(part)), "{said}");
    set(bed, &own);
}

/// Once the node has run, the engine that the configuration does not name never opens, not even without the other.
fn the_other_is_refused(bed: &Bed, address: &str) {
    if settings(bed).contains("postgres://") {
        return refused(bed, CONFIG, &["the catalogue was moved to", "has not finished", "there is no"]);
    }
    refused(bed, &with_engine(address), &["the catalogue is in"]);
    let (catalog, hidden) = (bed.state().join("catalog"), bed.state().join("hidden"));
    fs::rename(&catalog, &hidden).unwrap();
    let expected = ["the catalogue was moved to", "has not finished", "there is no engine in the database"];
    refused(bed, &with_engine(address), &expected);
    fs::rename(&hidden, &catalog).unwrap();
}

#[test]
fn a_catalogue_moves_into_a_database_and_back() {
    let (server, bed, mut more) = (Server::start(), filled(), Vec::new());
    let address = server.address("moved", "&connections=4");
    let moved = bed.json(["engine", "move", "--to", address.as_str()]);
    assert_eq!(moved["sha256"].as_str().map(str::len), Some(64), "{moved}");
    assert!(settings(&bed).starts_with("# of this site\n") && settings(&bed).contains(&address));
    assert!(!bed.state().join("engine-move").exists());
    goes_on(&bed, &mut more);
    the_other_is_refused(&bed, &address);
    let (_, there) = bed.fails(["engine", "move", "--to", address.as_str()]);
    assert!(there.contains("is there already"), "{there}");
    bed.ok(["engine", "move", "--to", EMBEDDED]);
    assert!(!settings(&bed).contains("postgres://"));
    goes_on(&bed, &mut more);
    the_other_is_refused(&bed, &address);
    // What was left is kept: nothing is copied over it.
    let (_, full) = bed.fails(["engine", "move", "--to", address.as_str()]);
    assert!(full.contains("is not empty"), "{full}");
    bed.ok(["engine", "clear", "--at", address.as_str()]);
    assert_eq!(server.sql("SELECT count(*) FROM moved.kv"), "0");
    bed.ok(["engine", "move", "--to", address.as_str()]);
    let (_, counts) = bed.fails(["engine", "clear", "--at", address.as_str()]);
    assert!(counts.contains("the catalogue is there"), "{counts}");
    let own = settings(&bed);
    set(&bed, CONFIG);
    let (_, counts) = bed.fails(["engine", "clear", "--at", address.as_str()]);
    assert!(counts.contains("is not empty"), "whatever a configuration says: {counts}");
    let (_, none) = bed.fails(["engine", "clear", "--at", server.address("other", "").as_str()]);
    assert!(none.contains("there is no engine"), "{none}");
    set(&bed, &own);
    bed.up();
    bed.check();
    bed.ok(["down"]);
}

/// Tables of something else are not touched, and a log of changes does not go along.
#[test]
fn nothing_is_moved_to_where_it_does_not_belong() {
    let (server, bed) = (Server::start(), filled());
    let address = server.address("alien", "&connections=4");
    server.sql("CREATE TABLE alien.kv (k bytea PRIMARY KEY, v bytea NOT NULL, c int2 NOT NULL)");
    server.sql("INSERT INTO alien.kv VALUES ('a', 'b', 0)");
    let (_, full) = bed.fails(["engine", "move", "--to", address.as_str()]);
    assert!(full.contains("is not empty"), "{full}");
    assert_eq!(server.sql("SELECT count(*) FROM alien.kv"), "1");
    let backups = bed.path("backups");
    set(&bed, &format!("{CONFIG}[catalog]\nbackup_dir = {backups:?}\nlog_changes = true\n"));
    let (_, logged) = bed.fails(["engine", "move", "--to", address.as_str()]);
    assert!(logged.contains("catalog.log_changes"), "{logged}");
    set(&bed, CONFIG);
    goes_on(&bed, &mut Vec::new());
}

/// When a move is killed.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// When it has told of so many steps.
    Lines(usize),
    /// When the note of the move is there.
    Note,
}

/// Starts a move and kills it.
fn killed(bed: &Bed, to: &str, stop: Stop) {
    let mut command = Command::new(thermo());
    command.arg("--state-dir").arg(bed.state()).args(["engine", "move", "--to", to]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    match stop {
        Stop::Lines(lines) => {
            let said = BufReader::new(child.stderr.as_mut().expect("a pipe"));
            let told = said.lines().take(lines).map_while(Result::ok).count();
            assert_eq!(told, lines, "it ended before");
        }
        Stop::Note => {
            // It may come and go between two looks: then the move is complete.
            while !bed.state().join("engine-move").exists() && child.try_wait().unwrap().is_none() {
                std::thread::yield_now();
            }
        }
    }
    let _ = child.kill(); // it may have ended
    child.wait().unwrap();
}

/// Killed anywhere on its way, in both directions, a move leaves one engine that counts, which the node goes on from; and repeated it ends well.
#[test]
fn a_move_that_is_killed_leaves_one_engine_that_counts() {
    let (server, bed, mut more) = (Server::start(), filled(), Vec::new());
    // Into the database, and back.
    let stops = [
        [Stop::Lines(2), Stop::Lines(4)],
        [Stop::Lines(3), Stop::Note],
        [Stop::Note, Stop::Lines(3)],
        [Stop::Lines(4), Stop::Lines(1)],
    ];
    for (round, stops) in stops.into_iter().enumerate() {
        let address = server.address(&format!("round{round}"), "&connections=4");
        for (to, stop) in [address.as_str(), EMBEDDED].into_iter().zip(stops) {
            killed(&bed, to, stop);
            let there = |bed: &Bed| settings(bed).contains("postgres://") == (to != EMBEDDED);
            if !there(&bed) && round % 2 == 0 {
                // Nobody looks before it is repeated.
                bed.ok(["engine", "move", "--to", to]);
            }
            goes_on(&bed, &mut more);
            the_other_is_refused(&bed, &address);
            if !there(&bed) {
                bed.ok(["engine", "move", "--to", to]);
                goes_on(&bed, &mut more);
                the_other_is_refused(&bed, &address);
            }
            assert!(there(&bed), "{stop:?}");
        }
    }
    bed.up();
    bed.check();
    bed.ok(["down"]);
}
