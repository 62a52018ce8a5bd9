//! Exit codes, JSON and completions of the program as installed.

use e2e::Bed;
use std::fs;

#[test]
fn exit_codes_are_as_documented() {
    let bed = Bed::new("");
    let help = bed.ok(["--help"]);
    assert!(help.contains("Exit codes"), "{help}");
    let (code, error) = bed.fails(["status"]);
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("thermo up"), "{error}");
    assert_eq!(bed.fails(["no-such-command"]).0, 2);
    assert_eq!(bed.fails(["ls", "nonsense"]).0, 3, "without a node nothing can be looked up");
    bed.up();
    assert_eq!(bed.fails(["ls", "tc:/nowhere"]).0, 5);
    assert_eq!(bed.fails(["stage", "tc:/nowhere"]).0, 5);
    assert_eq!(bed.fails(["volume", "show", "NOSUCHL9"]).0, 5);
    assert_eq!(bed.fails(["request", "show", "999"]).0, 5);
    assert_eq!(bed.fails(["stat", bed.dir.path().to_str().unwrap()]).0, 2, "not below a mount");
    bed.ok(["down"]);
    assert_eq!(bed.fails(["status"]).0, 3);
    bed.ok(["down"]);
}

#[test]
fn everything_that_prints_data_prints_json() {
    let bed = Bed::new(
        "[[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n",
    );
    bed.up();
    fs::write(bed.path("file"), "content").unwrap();
    let put = bed.json(["put".as_ref(), bed.path("file").as_os_str(), "tc:/file".as_ref()]);
    assert_eq!(put["files"], 1);
    let request = bed.json(["migrate", "--wait", "tc:/file"]);
    assert_eq!(request["request"]["state"], "done");
    let id = request["request"]["id"].to_string();
    let stat = &bed.json(["stat", "tc:/file"])[0];
    assert_eq!(stat["residency"], "dual");
    assert_eq!(stat["file"]["digest"], e2e::digest(b"content"));
    let volumes = bed.json(["volume", "ls"]);
    assert_eq!(
        volumes.as_array().unwrap().iter().filter(|v| v["volume"]["files"] == 1).count(),
        2,
        "{volumes}"
    );
    let commands: [&[&str]; 11] = [
        &["status"],
        &["ls", "tc:/"],
        &["request", "ls", "--all"],
        &["request", "show", &id],
        &["drive", "ls"],
        &["library", "show"],
        &["class", "ls"],
        &["pool", "ls"],
        &["du"],
        &["du", "--tape", "--owner", "0"],
        &["check", "--deep"],
    ];
    for command in commands {
        let value = bed.json(command);
        assert!(!value.is_null(), "{command:?}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    let bed = Bed::new("");
    for shell in ["bash", "zsh", "fish"] {
        let script = bed.ok(["completions", shell]);
        assert!(script.contains("thermo") && script.contains("migrate"), "{shell}");
    }
}

#[test]
fn when_down_returns_every_lock_of_the_node_is_free() {
    let bed = Bed::new("");
    for round in 0..12 {
        bed.up();
        bed.ok(["down"]);
        let lock = std::fs::File::open(bed.state().join("lock")).unwrap();
        lock.try_lock().unwrap_or_else(|e| panic!("round {round}: {e}"));
        // Not by closing it: a command that another test starts at this moment may have the file too.
        lock.unlock().unwrap();
    }
}
