//! Cartridges between sites: exported with a manifest, imported elsewhere without copying, and back; and cartridges that
//! another program wrote.

use crate::support::{newest, report};
use e2e::{Bed, digests, make_files};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WRITER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/judges/ltfs_writer.py");

fn bed(media: &str) -> Bed {
    Bed::new(&format!(
        "[library]\ncartridge_capacity = \"64 MiB\"\nmedia = \"{media}\"\ncartridges = 4\nslots = 12\n\
         [tape]\nblock_size = \"64 KiB\"\n\
         [[classes]]\nname = \"default\"\ncopies = [\"primary\"]\nmigrate_after_s = 3600\n"
    ))
}

fn put(bed: &Bed, tree: &Path, to: &str) {
    bed.ok(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), to.as_ref()]);
    bed.ok(["migrate", "--wait", "-r", to]);
}

/// Barcodes of volumes that hold files.
fn used(bed: &Bed) -> Vec<String> {
    let list = bed.json(["volume", "ls"]);
    let used = list.as_array().unwrap().iter().filter(|v| v["volume"]["files"].as_u64().unwrap() > 0);
    used.map(|v| v["volume"]["barcode"].as_str().unwrap().to_owned()).collect()
}

fn state(bed: &Bed, volume: &str) -> String {
    let shown = bed.json(["volume", "show", volume]);
    shown["volume"]["state"].as_str().unwrap().to_owned()
}

/// Carries a cartridge from one library (whose node is down) to another, under another barcode of the same serial.
fn carry(from: &Bed, to: &Bed, barcode: &str) {
    let dirs = [from, to].map(|bed| bed.state().join("library"));
    let (source, target) =
        (dirs[0].join("cartridges").join(barcode), dirs[1].join("cartridges").join(barcode));
    let _ = fs::remove_dir_all(&target);
    fs::create_dir(&target).unwrap();
    for entry in fs::read_dir(&source).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
    }
    let meta = |dir: &Path| PathBuf::from(format!("{}.cartridge", dir.display()));
    fs::copy(meta(&source), meta(&target)).unwrap();
}

fn same(bed: &Bed, from: &str, tree: &Path) {
    let out = bed.path("came back");
    bed.ok(["get".as_ref(), "-T".as_ref(), from.as_ref(), out.as_os_str()]);
    assert!(digests(tree) == digests(&out), "{from}: other files came back");
    fs::remove_dir_all(out).unwrap();
}

fn lists_with_digests(manifest: &Path, files: usize) {
    let lines = fs::read_to_string(manifest).unwrap();
    let lines: Vec<serde_json::Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), files + 1);
    assert!(lines[1..].iter().all(|line| line["sha256"].as_str().is_some_and(|hex| hex.len() == 64)));
}

/// Nothing is imported into a directory that leads to a subsystem, or below it.
fn nothing_goes_where_a_junction_leads(bed: &Bed, into: impl Fn(&'static str) -> Vec<String>) {
    fs::create_dir_all(bed.path("led/tree")).unwrap();
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.path("led").as_os_str(), "tc:/led".as_ref()]);
    bed.ok(["junction", "make", "tc:/led/tree", "elsewhere", "--at", "mds2:1"]);
    let leads = "/led/tree leads to subsystem elsewhere";
    let (_, said) = bed.fails(into("tc:/led/tree"));
    assert!(said.contains(leads), "{said}");
    let (_, said) = bed.fails(into("tc:/led/tree/below"));
    assert!(said.contains(leads), "{said}");
    bed.fails(into("tc:/led"));
    assert!(report(bed).contains(leads), "{}", report(bed));
    assert!(used(bed).is_empty());
    bed.ok(["junction", "rm", "tc:/led/tree"]);
}

fn from_site_to_site(media: &str) {
    let (here, there) = (bed(media), bed(media));
    make_files(&here.path("tree"), 60, 9_000);
    fs::write(here.path("tree/\u{e9}<&>\"'\n%"), "odd name").unwrap();
    here.up();
    put(&here, &here.path("tree"), "tc:/tree");
    let volumes = used(&here);
    let manifest = here.path("manifest");
    let export = |bed: &Bed| {
        let mut words =
            vec!["volume".to_owned(), "export".into(), "--to".into(), manifest.display().to_string()];
        words.extend(volumes.clone());
        bed.ok(words)
    };
    let said = export(&here);
    assert!(said.contains("61 files listed"), "{said}");
    assert!(newest(&here)["kind"] == "export" && newest(&here)["files_done"] == volumes.len());
    assert!(volumes.iter().all(|v| state(&here, v) == "exported"));
    lists_with_digests(&manifest, 61);
    export(&here); // again: nothing but the manifest
    // At the other site the barcodes are not in use.
    there.up();
    there.ok(["down"]);
    volumes.iter().for_each(|v| carry(&here, &there, v));
    there.up();
    let mut import = vec!["volume", "import", "--wait"];
    import.extend(volumes.iter().map(String::as_str));
    let owners = there.path("owners");
    fs::write(&owners, "# numbers\nuid 0 1234\n").unwrap();
    there.fails(&import);
    assert!(report(&there).contains("--into"), "{}", report(&there));
    let into = |dir: &'static str| {
        let mut words = import.clone();
        words.extend(["--into", dir, "--pool", "theirs", "--owner-map"]);
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        words.push(owners.display().to_string());
        words
    };
    // A name that is taken: nothing changes.
    fs::create_dir_all(there.path("mine/tree/dir 0")).unwrap();
    fs::write(there.path("mine/tree/dir 0/file 3"), "mine").unwrap();
    there.ok(["put".as_ref(), "-T".as_ref(), there.path("mine").as_os_str(), "tc:/taken".as_ref()]);
    there.fails(into("tc:/taken"));
    let told = report(&there);
    assert!(told.contains("1 of its names are taken"), "{told}");
    assert!(told.contains("/taken/tree/dir 0/file 3 is there already"), "{told}");
    nothing_goes_where_a_junction_leads(&there, into);
    there.ok(into("tc:/theirs"));
    assert_eq!(newest(&there)["kind"], "import");
    assert!(volumes.iter().all(|v| state(&there, v) == "read-only"));
    let stat = there.json(["stat", "tc:/theirs/tree/dir 0/file 3"]);
    assert_eq!(
        stat[0]["file"]["attr"]["uid"].as_u64().or(stat[0]["attr"]["uid"].as_u64()),
        Some(1234),
        "{stat:#}"
    );
    same(&there, "tc:/theirs/tree", &here.path("tree"));
    there.check();
    there.ok(into("tc:/theirs")); // known by now
    make_files(&there.path("own"), 20, 3_000);
    put(&there, &there.path("own"), "tc:/own");
    same(&there, "tc:/own", &there.path("own"));
    there.check();
    // Back home: available again, and written again.
    here.ok(&import);
    assert!(volumes.iter().all(|v| state(&here, v) == "filling"), "{}", report(&here));
    here.ok(["purge", "--wait", "-r", "tc:/tree"]);
    same(&here, "tc:/tree", &here.path("tree"));
    here.check();
}

#[test]
fn ltfs_volumes_go_to_another_site_and_come_back() {
    from_site_to_site("L9");
}

#[test]
fn volumes_without_partitions_go_to_another_site_and_come_back() {
    from_site_to_site("L4");
}

#[test]
fn a_cartridge_of_another_ltfs_program_is_imported_in_place() {
    let bed = bed("L9");
    bed.up();
    bed.ok(["volume", "label", "--wait", "TC0002L9"]);
    bed.ok(["down"]);
    let cartridge = bed.state().join("library/cartridges/TC0002L9");
    let written =
        Command::new("python3").arg(WRITER).arg(&cartridge).arg(bed.path("theirs")).output().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    // It is somebody else's: nothing is known of it.
    fs::remove_dir_all(bed.state().join("catalog")).unwrap();
    fs::remove_file(bed.state().join("format")).unwrap();
    bed.up();
    bed.ok(["volume", "import", "TC0002L9", "--into", "tc:/theirs", "--wait"]);
    let told = report(&bed);
    assert!(told.contains("misplaced") && told.contains("lies on the index partition"), "{told}");
    assert_eq!(state(&bed, "TC0002L9"), "read-only");
    let file = "tc:/theirs/first dir/small <&>";
    assert!(bed.json(["stat", file])[0]["versions"][0]["digest"].is_null());
    same(&bed, "tc:/theirs", &bed.path("theirs"));
    // The digest is known once it was read.
    bed.wait("a digest", || !bed.json(["stat", file])[0]["versions"][0]["digest"].is_null());
    let listed = bed.ok(["ls", "tc:/theirs"]);
    assert!(listed.contains("empty dir"), "{listed}");
    bed.check();
    let deep = bed.json(["check", "--deep"]);
    assert!(deep["findings"].as_array().unwrap().iter().all(|f| f["grade"] != "serious"), "{deep:#}");
}

/// A node whose volumes are encrypted, if it has the keys.
fn with_keys(keys: &str) -> Bed {
    let bed = bed("L9");
    let file = bed.path("keys");
    fs::write(&file, keys).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = bed.state().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let section = format!("[encryption]\nkeys = \"file:{}\"\npools = [\"primary\"]\n", file.display());
    fs::write(config, text + &section).unwrap();
    bed
}

#[test]
fn encrypted_volumes_of_another_site_need_its_keys() {
    let key = format!("bonn-1 {} *\n", "5a".repeat(32));
    let (here, there) = (with_keys(&key), with_keys(&format!("own-1 {} *\n", "11".repeat(32))));
    make_files(&here.path("tree"), 20, 9_000);
    here.up();
    put(&here, &here.path("tree"), "tc:/tree");
    let volumes = used(&here);
    let manifest = here.path("manifest");
    here.ok(["volume", "export", "--pool", "primary", "--to", manifest.to_str().unwrap()]);
    there.up();
    there.ok(["down"]);
    volumes.iter().for_each(|v| carry(&here, &there, v));
    there.up();
    let import = ["volume", "import", &volumes[0], "--into", "tc:/theirs", "--wait"];
    there.fails(import);
    let told = report(&there);
    assert!(told.contains("bonn-1"), "{told}");
    assert!(used(&there).is_empty());
    // Keys are read at each mount.
    let both = fs::read_to_string(there.path("keys")).unwrap() + &key.replace(" *", "");
    fs::write(there.path("keys"), both).unwrap();
    there.ok(import);
    let shown = there.json(["volume", "show", &volumes[0]]);
    assert_eq!(shown["volume"]["key"], "bonn-1", "{shown:#}");
    same(&there, "tc:/theirs/tree", &here.path("tree"));
    // What is written there has the key of there.
    make_files(&there.path("own"), 5, 3_000);
    put(&there, &there.path("own"), "tc:/own");
    let own = used(&there).into_iter().find(|v| *v != volumes[0]).unwrap();
    assert_eq!(there.json(["volume", "show", &own])["volume"]["key"], "own-1");
    there.check();
}
