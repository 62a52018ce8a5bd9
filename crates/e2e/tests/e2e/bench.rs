//! `thermo bench` works: every figure is printed, kept, and shown again as table and picture. Never how fast.

use e2e::{Bed, can_mount};
use serde_json::Value;
use std::fs;

/// Figures by group. Those of the mount need root.
const MOUNT: [&str; 13] = [
    "sequential write, fsync every 4 MiB",
    "sequential read, from memory",
    "sequential read, from the disk",
    "sequential read, O_DIRECT",
    "random read of 4 KiB, from memory",
    "random read of 4 KiB, O_DIRECT",
    "create + write + close, 1 thread",
    "create + write + close, 2 threads",
    "create + write + close, 1 thread, until all are durable",
    "`ls -l` of 2000 entries, forgotten",
    "`ls -l` of 2000 entries, known",
    "stat, forgotten",
    "stat, known",
];
const OTHERS: [&str; 26] = [
    "relaxed creates",
    "durable creates",
    "append 4 KiB + fdatasync",
    "listing 10000 entries",
    "anonymous memory, 10000 files",
    "node with 10000 files: thermo check",
    "node with 10000 files: anonymous memory",
    "share of time each drive streams",
    "first byte of a recall",
    "migrating",
    "backward moves",
    "p90 of the waits",
    "a new request placed",
    "of a half-dead cartridge",
    "a full LTO-9 cartridge of LTFS",
    "a full LTO-9 cartridge of ANSI labels and tar",
    "MiB written and synced",
    "a bare TCP stream",
    "÷ 8 x 100 MB/s",
    "interleaved 47008 bytes",
    "1 MiB written after the other, library",
    "4 KiB read anywhere, library over connections",
    "64 KiB",
    "embedded engine, durable creates, 32 clients",
    "opened and closed, 32 clients",
    "longest wait when a mover is killed",
];

#[test]
fn a_quick_run_prints_every_row() {
    let bed = Bed::new("");
    let (saved, drawn) = (bed.path("results.json"), bed.path("drawn"));
    fs::create_dir(&drawn).unwrap();
    let run = ["bench", "--quick", "--rounds", "1", "--remark", "tested", "--save"].map(Into::into);
    let dir = ["--dir".into(), bed.dir.path().as_os_str().to_owned()];
    let printed = bed.ok(run.into_iter().chain([saved.clone().into_os_string()]).chain(dir));
    let mounts = can_mount("the mount groups of `thermo bench`");
    for name in MOUNT.iter().filter(|_| mounts).chain(&OTHERS) {
        let row = printed.lines().find(|line| line.starts_with('|') && line.contains(name));
        let row = row.unwrap_or_else(|| panic!("no row {name:?} in\n{printed}"));
        assert!(row.split('|').any(|cell| cell.trim().starts_with(|c: char| c.is_ascii_digit())), "{row}");
    }
    values_are_sound(&serde_json::from_str(&fs::read_to_string(&saved).unwrap()).unwrap());

    let report = ["bench".as_ref(), "report".as_ref(), saved.as_os_str()];
    let again = bed.ok(report.into_iter().chain(["--pictures".as_ref(), drawn.as_os_str()]));
    assert_eq!(again, printed, "what is kept and what is printed differ");
    let picture = fs::read_to_string(drawn.join("perf-targets.svg")).unwrap();
    assert!(picture.contains("durable creates") && picture.ends_with("</svg>\n"), "{picture}");

    let left: Vec<_> =
        fs::read_dir(bed.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().starts_with("thermo-bench")),
        "left over: {left:?}"
    );
}

/// Every series has a value for the round, and none is a division by nothing.
fn values_are_sound(results: &Value) {
    assert_eq!(results["remark"], "tested");
    let groups = results["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 15);
    for group in groups {
        let figures = group["figures"].as_array().unwrap().iter();
        let series =
            group["comparisons"].as_array().unwrap().iter().flat_map(|c| c["series"].as_array().unwrap());
        for values in figures.chain(series) {
            let list = values["values"].as_array().unwrap();
            assert!(!list.is_empty() && list.iter().all(Value::is_f64), "{values}");
        }
    }
}

#[test]
fn results_of_something_else_are_refused() {
    let bed = Bed::new("");
    let file = bed.path("other.json");
    fs::write(&file, "{\"format\": 1}").unwrap();
    let (code, error) = bed.fails(["bench".as_ref(), "report".as_ref(), file.as_os_str()]);
    assert_ne!(code, 0);
    assert!(error.contains("other.json") && error.contains("--save"), "{error}");
}
