//! Exit codes, JSON and completions of the program as installed.

use e2e::Bed;
use std::fs;
use std::process::Command;

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
    assert_eq!(bed.fails(["volume", "export", "--pool", "nopool", "--to", "x.json"]).0, 5);
    let full = bed.dir.path().to_str().unwrap();
    for (point, code) in [(full, 2), ("/dev/null", 2), ("/no/such/directory", 5)] {
        let (found, error) = bed.fails(["mount", point]);
        assert!(found == code && error.contains(point), "{point}: {found}, {error}");
    }
    let barcode = bed.json(["volume", "ls"])[0]["volume"]["barcode"].as_str().unwrap().to_owned();
    bed.ok(["volume", "label", "--wait", &barcode]);
    let (code, error) = bed.fails(["volume", "label", &barcode]);
    assert!(code == 2 && error.contains("--force"), "{code}: {error}");
    let (code, error) = bed.fails(["volume", "state", &barcode, "scratch"]);
    assert!(code == 2 && error.contains("read-only") && !error.contains("unverified"), "{code}: {error}");
    bed.ok(["down"]);
    assert_eq!(bed.fails(["status"]).0, 3);
    bed.ok(["down"]);
}

/// As in many containers, and where a service manager starts the node: getsid(2) says 0 there.
#[test]
fn a_node_starts_in_a_session_that_it_cannot_see() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("LEFT OUT a_node_starts_in_a_session_that_it_cannot_see: it needs root");
    }
    let bed = Bed::new("");
    let script = r#""$0" --state-dir "$1" up || exit 1
        cut -d' ' -f6 /proc/$$/stat; grep -hs '(thermo)' /proc/[0-9]*/stat | cut -d' ' -f1,6
        "$0" --state-dir "$1" down"#;
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "5",
        "120",
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        script,
    ]);
    let out = command.arg(e2e::thermo()).arg(bed.state()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {said}", out.status);
    let numbers = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>();
    let shown: Vec<Vec<u32>> =
        said.lines().filter_map(|line| numbers(line).ok()).filter(|n| !n.is_empty()).collect();
    assert!(shown.len() == 2 && shown[0] == [0], "the test's own session is not out of sight: {said}");
    assert_eq!(shown[1][0], shown[1][1], "the node leads its session: {said}");
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

/// Bytes of a field in hexadecimal, as text.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn names_that_are_not_utf8_are_shown_whole() {
    use std::os::unix::ffi::OsStrExt;
    let bed = Bed::new("[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\nmigrate_after_s = 3600\n");
    bed.up();
    let (name, shown) = (b"odd \xff\n", r"'odd '$'\377\n'");
    let local = bed.dir.path().join(std::ffi::OsStr::from_bytes(name));
    fs::write(&local, "content").unwrap();
    let typed = [b"tc:/".as_slice(), name].concat();
    let typed = std::ffi::OsStr::from_bytes(&typed);
    bed.ok(["put".as_ref(), local.as_os_str(), typed]);
    bed.ok(["migrate".as_ref(), "--wait".as_ref(), typed]);
    let path = [b"/".as_slice(), name].concat();
    let whole = |value: &serde_json::Value, field: &str, bytes: &[u8]| {
        assert_eq!(value[format!("{field}_bytes")], hex(bytes), "{field} of {value}");
        assert_eq!(value[field], String::from_utf8_lossy(bytes).as_ref(), "{value}");
    };
    let list = bed.json(["ls", "tc:/"]);
    whole(&list[0], "name", name);
    whole(&list[0], "path", &path);
    assert_eq!((&list[0]["directory"], list[0].get("directory_bytes")), (&"/".into(), None));
    assert!(bed.ok(["ls", "tc:/"]).contains(shown));
    let stat = bed.json(["stat".as_ref(), typed]);
    whole(&stat[0], "path", &path);
    let volume = stat[0]["versions"][0]["copies"][0]["segments"][0]["volume"].as_str().unwrap().to_owned();
    whole(&bed.json(["volume", "files", &volume])["file"], "path", &path);
    let requests = bed.json(["request", "ls", "--all"]);
    assert_eq!(requests[0]["request"]["subject"], r"'/odd '$'\377\n'");
    let id = requests[0]["request"]["id"].to_string();
    whole(&bed.json(["request", "show", &id])["items"][0], "path", &path);
    assert!(bed.ok(["request", "show", &id]).contains(r"what      '/odd '$'\377\n'"));
    bed.ok(["purge".as_ref(), typed]);
    bed.ok(["volume", "state", &volume, "exported"]);
    let quote = bed.run(["stage".as_ref(), "--dry-run".as_ref(), "--json".as_ref(), typed]);
    let quote: serde_json::Value = serde_json::from_slice(&quote.stdout).unwrap();
    whole(&quote["lost_files"][0], "path", &path);
    let missing = bed.run(["stage".as_ref(), "--json".as_ref(), "tc:/".as_ref(), typed]);
    assert!(!missing.status.success(), "a directory is refused without --recursive: {missing:?}");
    fs::remove_file(&local).unwrap();
    bed.ok(["volume", "state", &volume, "filling"]);
    fs::write(&local, "other content").unwrap();
    bed.ok(["put".as_ref(), local.as_os_str(), typed]);
    whole(&bed.json(["undelete", "--list", "tc:/"])[0], "path", &path);
    let versions = bed.json(["versions".as_ref(), typed]);
    whole(&versions["ended"][0], "path", &path);
    whole(&versions["current"], "path", &path);
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
