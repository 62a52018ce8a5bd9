//! The demonstration itself, small: on a mount and without one, and twice on the same node.

use crate::support::run;
use e2e::{Bed, can_mount};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// A real tree: the sources of this repository, copied so that nobody changes them meanwhile.
fn tree(bed: &Bed) -> PathBuf {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let tree = bed.path("sources");
    assert!(
        Command::new("cp").arg("-a").args([sources.as_ref(), tree.as_os_str()]).status().unwrap().success()
    );
    tree
}

fn demo(bed: &Bed, extra: &[&str]) -> serde_json::Value {
    let mut arguments: Vec<OsString> = ["demo", "--big-file", "64MiB", "--tree"].map(OsString::from).to_vec();
    arguments.push(bed.path("sources").into());
    arguments.extend(extra.iter().map(OsString::from));
    bed.json(arguments)
}

fn steps(report: &serde_json::Value) -> Vec<&str> {
    report["steps"].as_array().unwrap().iter().map(|s| s["step"].as_str().unwrap()).collect()
}

fn bed() -> Bed {
    let bed = Bed::new("");
    std::fs::remove_dir_all(bed.state()).unwrap();
    tree(&bed);
    bed
}

#[test]
fn on_a_mount_and_again() {
    if !can_mount("demo on a mount") {
        return;
    }
    let bed = bed();
    let mount = bed.mount().display().to_string();
    for round in 0..2 {
        let report = demo(&bed, &["--mount", &mount]);
        assert_eq!(report["differences"], serde_json::json!([]), "round {round}");
        assert!(report["entries"].as_u64().unwrap() > 200, "{report}");
        for step in ["copy tree in", "migrate the rest", "stat all, offline", "recall big file", "check"] {
            assert!(steps(&report).contains(&step), "{step} is missing in {report}");
        }
    }
    // The node stays up and the files are there.
    assert!(bed.mount().join("demo/sources/e2e/tests/e2e/demo.rs").exists());
    bed.ok(["check", "--deep"]);
}

#[test]
fn with_a_disk_tier_smaller_than_the_tree() {
    if !can_mount("demo with a small disk tier") {
        return;
    }
    let bed = bed();
    e2e::make_files(&bed.path("sources/more"), 60, 2 << 20);
    let report = demo(&bed, &["--mount", &bed.mount().display().to_string(), "--disk-pool", "48MiB"]);
    assert_eq!(report["differences"], serde_json::json!([]));
    assert!(steps(&report).contains(&"stage and read tree"), "{report}");
}

#[test]
fn with_a_kill_in_the_middle_of_the_copy() {
    if !can_mount("demo with a kill -9") {
        return;
    }
    let bed = bed();
    e2e::make_files(&bed.path("sources/more"), 1000, 3000);
    let report = demo(&bed, &["--mount", &bed.mount().display().to_string(), "--crash"]);
    assert_eq!(report["differences"], serde_json::json!([]));
}

/// Without root and FUSE everything but the mount is shown.
#[test]
fn as_an_ordinary_user() {
    const NOBODY: &str = "65534";
    if !rustix::process::geteuid().is_root() {
        eprintln!("LEFT OUT demo as an ordinary user: it needs root to become one");
        return;
    }
    let bed = bed();
    let program = bed.path("thermo");
    // Written by another process: a file that a command of another test has inherited for a moment cannot be executed.
    run("cp", &[e2e::thermo().to_str().unwrap(), "thermo"], bed.dir.path());
    assert!(Command::new("chown").args(["-R", NOBODY]).arg(bed.dir.path()).status().unwrap().success());
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "timeout", "600"])
        .arg(program)
        .args(["--json".as_ref(), "--state-dir".as_ref(), bed.state().as_os_str()])
        .args(["demo", "--big-file", "32MiB", "--mount"])
        .args([bed.mount().as_os_str(), "--tree".as_ref(), bed.path("sources").as_os_str()])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("No mount") && told.contains("root and /dev/fuse"), "{told}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["differences"], serde_json::json!([]));
    bed.ok(["check", "--deep"]);
}

#[test]
fn without_a_mount() {
    let bed = bed();
    let report = demo(&bed, &["--no-mount", "--crash"]);
    assert_eq!(report["differences"], serde_json::json!([]));
    assert!(steps(&report).contains(&"recall big file"), "{report}");
}
