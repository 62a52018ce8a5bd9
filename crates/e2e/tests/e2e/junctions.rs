//! Directories that lead to subsystems: what commands and programs are told there.

use e2e::{Bed, can_mount, cluster};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

const EREMOTE: i32 = 66;
const EBUSY: i32 = 16;

fn bed() -> Bed {
    Bed::new("[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\nmigrate_after_s = 3600\n")
}

/// The command fails with this exit code, and what it says contains all of `words`.
fn refused(bed: &Bed, code: i32, command: &[&str], words: &[&str]) {
    let (found, said) = bed.fails(command.iter().copied());
    assert_eq!(found, code, "{command:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{command:?} does not say {word:?}: {said}");
    }
}

/// A tree in the namespace: `home/a`, and the empty directories `home/p` and `b`.
fn furnish(bed: &Bed) {
    for dir in ["tree/home/p", "tree/b"] {
        fs::create_dir_all(bed.path(dir)).unwrap();
    }
    fs::write(bed.path("tree/home/a"), "content").unwrap();
    for part in ["tree/home", "tree/b"] {
        bed.ok(["put".as_ref(), bed.path(part).as_os_str(), "tc:/".as_ref()]);
    }
}

fn make<'a>(path: &'a str, subsystem: &'a str) -> [&'a str; 6] {
    ["junction", "make", path, subsystem, "--at", "mds2:7430,mds3:7430"]
}

#[test]
fn commands_are_told_where_a_directory_leads() {
    let bed = bed();
    bed.up();
    furnish(&bed);
    refused(&bed, 2, &["junction", "make", "tc:/b", "x"], &["--at"]);
    refused(&bed, 2, &["junction", "make", "tc:/b", "x", "--at", "mds2"], &["mds2", "host:port"]);
    refused(&bed, 2, &make("tc:/b", "a/b"), &["a/b", "letters, digits"]);
    refused(&bed, 6, &make("tc:/", "x"), &["root"]);
    refused(&bed, 1, &make("tc:/home", "x"), &["/home", "not empty"]);
    refused(&bed, 1, &make("tc:/home/a", "x"), &["/home/a", "not a directory"]);
    refused(&bed, 5, &make("tc:/nowhere", "x"), &["/nowhere", "no such file"]);
    refused(&bed, 5, &["junction", "rm", "tc:/b"], &["no junction /b"]);
    assert_eq!(bed.json(["junction", "ls"]), serde_json::json!([]));

    let said = bed.ok(make("tc:/home/p", "scratch"));
    assert!(said.contains("/home/p leads to subsystem scratch"), "{said}");
    refused(&bed, 6, &make("tc:/home/p", "x"), &["/home/p", "leads to subsystem scratch already"]);
    refused(&bed, 6, &make("tc:/b", "scratch"), &["/home/p leads to subsystem scratch", "two places"]);
    let list = bed.json(["junction", "ls"]);
    assert_eq!((&list[0]["path"], &list[0]["junction"]["subsystem"]), (&"/home/p".into(), &"scratch".into()));
    let table = bed.ok(["junction", "ls"]);
    assert!(table.contains("/home/p") && table.contains("mds2:7430 mds3:7430"), "{table}");

    let leads = ["/home/p leads to subsystem scratch", "thermo --node mds2:7430"];
    let local = bed.path("tree/home/a");
    let local = local.to_str().unwrap();
    for command in [&["ls", "tc:/home/p/x"][..], &["stat", "tc:/home/p/x/y"], &["stage", "tc:/home/p/x"]] {
        refused(&bed, 1, command, &leads);
    }
    for command in [&["put", local, "tc:/home/p/x"][..], &["put", local, "tc:/home/p"]] {
        refused(&bed, 1, command, &leads);
    }
    assert_eq!(bed.ok(["ls", "tc:/home/p"]), bed.ok(["ls", "tc:/b"]), "it shows itself as empty");
    let shown = bed.ok(["stat", "tc:/home/p", "tc:/b"]);
    assert!(shown.contains("leads to     subsystem scratch at mds2:7430 or mds3:7430"), "{shown}");
    assert_eq!(shown.matches("leads to").count(), 1, "{shown}");
    let shown = bed.json(["stat", "tc:/home/p", "tc:/b"]);
    assert_eq!(shown[0]["junction"]["addresses"][1], "mds3:7430");
    assert!(shown[1].get("junction").is_none() && shown[1]["path"] == "/b", "{shown}");

    let said = bed.ok(["junction", "rm", "tc:/home/p"]);
    assert!(said.contains("/home/p is an empty directory"), "{said}");
    bed.ok(["put", local, "tc:/home/p/x"]);
    bed.check();
}

fn errno<T>(done: io::Result<T>) -> Option<i32> {
    done.err().and_then(|e| e.raw_os_error())
}

#[test]
fn programs_make_nothing_in_a_directory_that_leads_elsewhere_and_leave_it_where_it_is() {
    if !can_mount("junctions and programs") {
        return;
    }
    let bed = bed();
    bed.up_mounted();
    let root = bed.mount();
    let (home, at) = (root.join("home"), root.join("home/p"));
    fs::create_dir_all(&at).unwrap();
    fs::create_dir(home.join("empty")).unwrap();
    fs::write(home.join("a"), "content").unwrap();
    bed.ok([
        "junction".as_ref(),
        "make".as_ref(),
        at.as_os_str(),
        "scratch".as_ref(),
        "--at=mds2:1".as_ref(),
    ]);

    let (a, x) = (home.join("a"), at.join("x"));
    let node = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).map_err(io::Error::from);
    assert_eq!(errno(fs::File::create(&x)), Some(EREMOTE));
    assert_eq!(errno(fs::create_dir(&x)), Some(EREMOTE));
    assert_eq!(errno(symlink("to", &x)), Some(EREMOTE));
    assert_eq!(errno(node(&x)), Some(EREMOTE));
    assert_eq!(errno(fs::hard_link(&a, &x)), Some(EREMOTE));
    assert_eq!(errno(fs::rename(&a, &x)), Some(EREMOTE));
    assert_eq!(errno(fs::rename(home.join("empty"), &x)), Some(EREMOTE));
    assert_eq!(errno(fs::remove_dir(&at)), Some(EBUSY));
    assert_eq!(errno(fs::rename(&at, home.join("q"))), Some(EBUSY));
    assert_eq!(errno(fs::rename(home.join("empty"), &at)), Some(EBUSY));
    // It does not look like an empty directory.
    let entries = |dir: &Path| fs::read_dir(dir).and_then(|mut all| all.next().transpose());
    assert_eq!(errno(entries(&at)), Some(EREMOTE));
    assert_eq!(errno(fs::metadata(&x)), Some(EREMOTE));
    assert!(fs::metadata(&at).unwrap().is_dir() && entries(&home).unwrap().is_some());
    fs::set_permissions(&at, fs::Permissions::from_mode(0o750)).unwrap();

    fs::rename(&home, root.join("house")).unwrap();
    assert_eq!(bed.json(["junction", "ls"])[0]["path"], "/house/p");
    bed.ok(["junction", "rm", "tc:/house/p"]);
    fs::write(root.join("house/p/x"), "content").unwrap();
    fs::rename(root.join("house/p"), root.join("p")).unwrap();
    bed.check();
}

#[test]
fn a_junction_that_was_answered_is_there_after_a_kill_and_in_a_backup() {
    let bed = bed();
    bed.up();
    furnish(&bed);
    bed.ok(make("tc:/home/p", "scratch"));
    bed.kill();
    bed.up();
    let made = bed.json(["junction", "ls"]);
    assert_eq!(made[0]["path"], "/home/p");
    let backup = bed.path("backup");
    bed.ok(["catalog".as_ref(), "backup".as_ref(), backup.as_os_str()]);
    bed.ok(["junction", "rm", "tc:/home/p"]);
    bed.kill();
    bed.up();
    assert_eq!(bed.json(["junction", "ls"]), serde_json::json!([]));
    bed.check();
    bed.ok(["down"]);
    let copy = fs::read_dir(&backup).unwrap().next().unwrap().unwrap().path();
    bed.ok(["catalog".as_ref(), "restore".as_ref(), copy.as_os_str()]);
    bed.up();
    assert_eq!(bed.json(["junction", "ls"]), made);
    bed.check();
}

/// A path below a mount at a junction is one of the subsystem: commands to the first node do not take it for one of its own namespace.
#[test]
fn a_path_below_a_mounted_subsystem_is_not_taken_for_one_of_the_first_namespace() {
    if !can_mount("paths below a mounted subsystem") {
        return;
    }
    let (first, scratch) = (cluster::node(), Bed::new(""));
    cluster::configure(&scratch, "");
    let config = scratch.state().join("config.toml");
    let text =
        fs::read_to_string(&config).unwrap().replace("[cluster]\n", "[cluster]\nsubsystem = \"scratch\"\n");
    let at = text.split("\nlisten = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    fs::write(&config, text).unwrap();
    first.ok(["cluster", "init", "--name", "first"]);
    scratch.up();
    cluster::join(&first, &scratch, "scratch");
    first.ok(["mount".as_ref(), first.mount().as_os_str()]);
    let led = first.mount().join("led");
    fs::create_dir(&led).unwrap();
    fs::write(first.mount().join("mine"), "content").unwrap();
    first.ok(["junction", "make", "tc:/led", "scratch", "--at", &at]);
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    first.wait("the subsystem's mount", || device(&led) != device(&first.mount()));
    fs::write(led.join("theirs"), "content").unwrap();

    let below = led.join("mine");
    for command in ["ls", "stat", "pin", "purge"] {
        let out = first.run([command.as_ref(), below.as_os_str()]);
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(
            !out.status.success() && said.contains("/led leads to subsystem scratch"),
            "{command}: {said}"
        );
    }
    let shown = first.json(["stat".as_ref(), led.as_os_str()]);
    assert_eq!((&shown[0]["path"], &shown[0]["junction"]["subsystem"]), (&"/led".into(), &"scratch".into()));
    let listed = first.ok(["ls".as_ref(), led.as_os_str()]);
    assert!(!listed.contains("mine"), "{listed}");
    first.ok(["junction".as_ref(), "rm".as_ref(), led.as_os_str()]);
    first.wait("its end", || device(&led) == device(&first.mount()));
}
