//! A node and its standby as real processes: what was acknowledged is there after a take-over, and the old node does not serve again.

use e2e::Bed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const LIBRARY: &str = "[library]\ncartridges = 2\ncartridge_capacity = \"64 MiB\"\n";
/// Longest wait for what needs no more than a moment.
const SOON: Duration = Duration::from_secs(120);

/// Of 127.0.0.0/8 everything is this machine.
fn address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{low}.{}:7430", 1 + high % 254, NEXT.fetch_add(1, Ordering::Relaxed))
}

fn configure(bed: &Bed, text: &str) {
    std::fs::write(bed.state().join("config.toml"), text).unwrap();
}

struct Pair {
    first: Bed,
    second: Bed,
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A stopped one would not end.
        for bed in [&self.first, &self.second] {
            signal(bed, Signal::CONT);
            signal(bed, Signal::KILL);
        }
    }
}

/// A node, and a second one that follows it with these settings.
fn pair(settings: &str) -> Pair {
    let (at_first, at_second) = (address(), address());
    let first = Bed::new(&format!("{LIBRARY}[cluster]\nlisten = \"{at_first}\"\n"));
    first.up();
    first.ok(["cluster", "init", "--name", "first"]);
    let token = first.ok(["cluster", "token"]);
    let second =
        Bed::new(&format!("{LIBRARY}[cluster]\nlisten = \"{at_second}\"\n[standby]\nof = 1\nlease_s = 4\n"));
    let mut join = second.command(["cluster", "join", "--name", "second"]);
    let mut join = join.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    join.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    assert!(join.wait().unwrap().success());
    assert!(second.ok(["up"]).contains("as a standby"));
    first.ok(["down"]);
    let listens = format!("[cluster]\nlisten = \"{at_first}\"\n");
    configure(
        &first,
        &format!("{LIBRARY}{listens}[standby]\nto = [\"{at_second}\"]\nlease_s = 4\n{settings}"),
    );
    first.up();
    Pair { first, second }
}

fn until(what: &str, mut f: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !f() {
        assert!(begin.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn standby(bed: &Bed) -> Value {
    bed.json(["standby", "status"])
}

/// To the node of this bed, by its program's arguments: a standby has no status that names its process.
fn signal(bed: &Bed, signal: Signal) {
    let state = bed.state();
    let state = state.to_str().unwrap().as_bytes();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        if arguments.contains(&state) && arguments.contains(&b"--detach".as_slice()) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), signal); // it may have ended meanwhile
        }
    }
}

fn put(bed: &Bed, name: &str) -> Result<(), String> {
    let source = bed.path("source");
    std::fs::write(&source, name).unwrap();
    let output = bed.run(["put", source.to_str().unwrap(), &format!("tc:/{name}")]);
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn has(bed: &Bed, name: &str) -> bool {
    bed.run(["stat", &format!("tc:/{name}")]).status.success()
}

#[test]
fn what_was_acknowledged_is_there_after_a_take_over_and_the_old_node_does_not_serve() {
    let pair = pair("mode = \"wait\"\npatience_s = 2\n");
    let (first, second) = (&pair.first, &pair.second);
    until("the copy becomes complete", || standby(second)["promised"] == true);
    put(first, "before").unwrap();
    let (_, error) = second.fails(["status"]);
    assert!(error.contains("is the standby of node 1"), "{error}");
    let (_, error) = second.fails(["standby", "take-over"]);
    assert!(error.contains("may be alive"), "{error}");

    // The standby is cut off: changes wait, then it is said why.
    signal(second, Signal::STOP);
    let begin = Instant::now();
    let refused = put(first, "cut").unwrap_err();
    assert!(begin.elapsed() >= Duration::from_secs(2), "{refused}");
    until("the status says why", || first.ok(["status"]).contains("changes are refused until it answers"));
    signal(second, Signal::CONT);
    until("all goes on", || put(first, "again").is_ok());

    // Killed under load.
    let mut acknowledged = vec!["before".to_owned(), "again".to_owned()];
    for n in 0..12 {
        let name = format!("file-{n}");
        put(first, &name).unwrap();
        acknowledged.push(name);
    }
    signal(first, Signal::KILL);
    until("its lease runs out", || second.run(["standby", "take-over"]).status.success());
    for name in &acknowledged {
        assert!(has(second, name), "{name} was acknowledged");
    }
    put(second, "after").unwrap();
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
    // It remembers, whether the other one can be asked or not.
    signal(second, Signal::KILL);
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
    second.up();
    assert!(has(second, "after") && has(second, "before"), "it serves again after a crash of its own");
}

#[test]
fn one_that_only_follows_shows_how_far_it_is_and_takes_over_by_force_alone() {
    let pair = pair("mode = \"follow\"\n");
    let (first, second) = (&pair.first, &pair.second);
    put(first, "early").unwrap();
    until("it catches up", || {
        let view = standby(second);
        view["complete"] == true && view["number"] == standby(first)["last"]
    });
    signal(second, Signal::STOP);
    put(first, "late").expect("nobody waits for it");
    until("the lag is shown", || {
        let view = standby(first);
        view["last"].as_u64() > view["number"].as_u64() && view["promised"] == false
    });
    signal(first, Signal::KILL);
    signal(second, Signal::CONT);
    let mut said = String::new();
    until("the lease runs out", || {
        said = second.fails(["standby", "take-over"]).1;
        !said.contains("may be alive")
    });
    assert!(said.contains("acknowledges changes without this standby"), "{said}");
    second.ok(["standby", "take-over", "--force"]);
    assert!(has(second, "early"));
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
}
