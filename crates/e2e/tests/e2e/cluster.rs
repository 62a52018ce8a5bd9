//! A cluster as an administrator makes it, with real nodes that listen on loopback: who belongs to it is answered over TLS, everybody
//! else is refused and told why.

use e2e::Bed;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};

/// A node, and where it listens: of 127.0.0.0/8 everything is this machine, so each node of each test process has an address.
fn node() -> (Bed, String) {
    node_with("")
}

/// The same with more in its configuration.
pub fn node_with(more: &str) -> (Bed, String) {
    let address = e2e::cluster::address();
    let library = "[library]\ncartridges = 2\ncartridge_capacity = \"64 MiB\"\n";
    let bed = Bed::new(&format!("{library}[cluster]\nlisten = \"{address}\"\n{more}"));
    bed.up();
    (bed, address)
}

pub fn founder() -> (Bed, String) {
    let (bed, address) = node();
    bed.ok(["cluster", "init", "--name", "first"]);
    (bed, address)
}

/// `thermo cluster join`, the token on standard input.
fn join(bed: &Bed, token: &str, name: &str) -> Output {
    let mut command = bed.command(["cluster", "join", "--name", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("timeout(1) starts");
    child.stdin.take().expect("a pipe").write_all(token.as_bytes()).unwrap();
    child.wait_with_output().expect("it ends")
}

pub fn joined(bed: &Bed, token: &str, name: &str) {
    let output = join(bed, token, name);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn refused(bed: &Bed, token: &str) -> String {
    let output = join(bed, token, "thief");
    assert!(!output.status.success());
    assert!(!bed.state().join("cluster").exists(), "nothing is left of a join that failed");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(status: &Value) -> Vec<&str> {
    status["members"].as_array().expect("members").iter().map(|m| m["name"].as_str().unwrap()).collect()
}

#[test]
fn two_nodes_and_a_user_make_a_cluster_that_survives_power_failures() {
    let ((first, at_first), (second, at_second)) = (founder(), node());
    joined(&second, &first.ok(["cluster", "token"]), "second");
    let desk = Bed::new("");
    let token =
        first.ok(["cluster", "token", "--client-uid", "4711", "--client-gid", "4711", "--hours", "1"]);
    joined(&desk, &token, "desk");

    assert_eq!(names(&first.json(["cluster", "status"])), ["first", "second", "desk"]);
    // Any member asks any node; the second one began to listen before it was a member.
    for (who, address, asked) in
        [(&second, &at_first, &first), (&first, &at_second, &second), (&desk, &at_second, &second)]
    {
        let status = who.json(["status", "--node", address]);
        assert_eq!(status["state_dir"], asked.state().to_str().unwrap());
    }
    assert_eq!(names(&second.json(["cluster", "status", "--node", &at_first])), ["first", "second", "desk"]);

    for bed in [&first, &second] {
        bed.kill();
        bed.up();
    }
    desk.ok(["status", "--node", &at_second]);
    assert_eq!(names(&second.json(["cluster", "status", "--node", &at_first])), ["first", "second", "desk"]);
    // Wherever one asks, the answer is that of the node that knows.
    assert_eq!(names(&second.json(["cluster", "status"])), ["first", "second", "desk"]);
    let removed = first.ok(["cluster", "remove", "client", "1", "--reason", "lost on a train"]);
    assert!(removed.contains("client 1 is removed") && !removed.contains("not reached"), "{removed}");
    for address in [&at_first, &at_second] {
        let (_, error) = desk.fails(["status", "--node", address]);
        assert!(error.contains("removed from the cluster"), "{error}");
    }
    assert!(!first.ok(["cluster", "status"]).contains("desk"));
    assert!(first.ok(["cluster", "status", "--all"]).contains("lost on a train"));
    let (_, error) = second.fails(["cluster", "init"]);
    assert!(error.contains("belongs to a cluster already"), "{error}");
}

#[test]
fn whoever_does_not_belong_to_it_is_refused_and_told_why() {
    let ((first, at_first), (other, at_other)) = (founder(), founder());
    let outside = Bed::new("");
    let (code, error) = outside.fails(["status", "--node", &at_first]);
    assert!(code == 5 && error.contains("thermo cluster join"), "{code} {error}");

    let token = first.ok(["cluster", "token"]);
    let mut mistyped = token.trim().to_owned();
    let last = mistyped.pop();
    mistyped.push(if last == Some('A') { 'Q' } else { 'A' });
    assert!(refused(&outside, &mistyped).contains("no token"));
    let second = Bed::new("");
    joined(&second, &token, "second");
    let error = refused(&outside, &token);
    assert!(error.contains("used already, by node 2"), "{error}");
    assert!(first.log().contains("used already, by node 2"), "it is in the log of the node too");

    // A node of another cluster is not believed, and does not believe.
    let (_, error) = other.fails(["status", "--node", &at_first]);
    assert!(error.contains("not from the authority of this cluster"), "{error}");
    let (_, error) = second.fails(["status", "--node", &at_other]);
    assert!(error.contains("not from the authority of this cluster"), "{error}");

    let mut plain = TcpStream::connect(&at_first).unwrap();
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // A reset is as good an end as any.
    let _ = plain.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    first.wait("the line in the log", || first.log().contains("plain TCP came where TLS is due"));
}
