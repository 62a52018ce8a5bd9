//! Nodes that serve disk targets to a cluster: real processes on addresses of their own.

use e2e::Bed;
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};

/// A node with one target that is to join; where it takes calls. Of 127.0.0.0/8 everything is this machine, so each node has an address.
fn node() -> Bed {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let host = format!("127.{}.{low}.{}", 1 + high % 254, NEXT.fetch_add(1, Ordering::Relaxed));
    let bed = Bed::new("");
    let config = format!(
        "[library]\ncartridges = 2\ncartridge_capacity = \"64 MiB\"\n\
         [cluster]\nlisten = \"{host}:7430\"\ndata_listen = \"{host}:7431\"\n\
         [[targets]]\npath = \"{}\"\n",
        bed.path("target").display()
    );
    std::fs::write(bed.state().join("config.toml"), config).unwrap();
    bed.up();
    bed
}

fn join(first: &Bed, bed: &Bed, name: &str) {
    let token = first.ok(["cluster", "token"]);
    let mut command = bed.command(["cluster", "join", "--name", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("timeout(1) starts");
    child.stdin.take().expect("a pipe").write_all(token.as_bytes()).unwrap();
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A first node and two more, each with a target.
fn cluster() -> [Bed; 3] {
    let beds = [node(), node(), node()];
    beds[0].ok(["cluster", "init", "--name", "first"]);
    join(&beds[0], &beds[1], "second");
    join(&beds[0], &beds[2], "third");
    beds[0].wait("three targets", || up(&beds[0]) == [1, 2, 3]);
    beds
}

fn targets(bed: &Bed) -> Vec<Value> {
    bed.json(["target", "ls"]).as_array().expect("a list").clone()
}

/// Nodes whose targets are up.
fn up(bed: &Bed) -> Vec<u64> {
    let mut nodes: Vec<u64> = targets(bed)
        .iter()
        .filter(|view| view["state"] == "Up")
        .map(|view| view["target"]["node"].as_u64().expect("a number"))
        .collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn nodes_that_join_serve_their_targets_and_keep_them_over_a_crash() {
    let [first, second, third] = cluster();
    let numbers = |bed: &Bed| -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = targets(bed)
            .iter()
            .map(|view| &view["target"])
            .map(|target| (target["uuid"].as_str().unwrap().to_owned(), target["id"].as_u64().unwrap()))
            .collect();
        all.sort();
        all
    };
    let before = numbers(&first);
    assert_eq!(before.len(), 3);
    // Whoever is asked says the same.
    assert_eq!(numbers(&second), before);
    let text = first.ok(["cluster", "status"]);
    assert!(text.contains("TARGET") && text.contains("node 3"), "{text}");
    for bed in [&first, &third] {
        bed.kill();
        bed.up();
    }
    third.wait("its target after a restart", || third.log().contains("1 targets are served"));
    first.wait("three targets", || up(&first) == [1, 2, 3]);
    assert_eq!(numbers(&first), before);
    // A target whose file system is not mounted is no new one.
    third.kill();
    std::fs::rename(third.path("target"), third.path("away")).unwrap();
    std::fs::create_dir(third.path("target")).unwrap();
    third.up();
    third.wait("the warning", || third.log().contains("there is none"));
    assert_eq!(numbers(&first), before);
}
