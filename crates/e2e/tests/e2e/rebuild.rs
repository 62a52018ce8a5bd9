//! The drill: the state directory is gone, and the catalogue comes back from the cartridges.

use crate::cartridges::judged;
use crate::support::{bed_with_library_outside, disaster, newest, report, same};
use e2e::{Bed, digests, make_files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn bed() -> Bed {
    bed_with_library_outside(
        "cartridge_capacity = \"64 MiB\"\n\
         [[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n",
    )
}

/// Mode, owner and modification time of all files and directories.
fn metadata(dir: &Path) -> BTreeMap<PathBuf, (u32, u32, u32, Option<i64>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            // When a directory changed last is not on tape.
            let mtime = meta.is_file().then(|| meta.mtime_nsec() + meta.mtime() * 1_000_000_000);
            if meta.is_dir() {
                todo.push(path.clone());
            }
            let below = path.strip_prefix(dir).unwrap().to_owned();
            found.insert(below, (meta.mode(), meta.uid(), meta.gid(), mtime));
        }
    }
    found
}

fn rebuild(bed: &Bed) -> String {
    let said = bed.ok(["catalog", "rebuild", "--wait"]);
    assert_eq!(newest(bed)["kind"], "rebuild");
    said + &report(bed)
}

/// A tree with odd names, owners and modes.
fn make_tree(tree: &Path) {
    make_files(tree, 10_000, 400);
    make_files(&tree.join("large"), 5, 20 << 20);
    fs::write(tree.join("\u{e9}<&>\"'\n%"), "odd name").unwrap();
    let odd = tree.join("dir 7");
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o2710)).unwrap();
    std::os::unix::fs::chown(&odd, Some(1234), Some(4321)).unwrap();
    std::os::unix::fs::chown(odd.join("file 351"), Some(1234), Some(4321)).unwrap();
    fs::set_permissions(odd.join("file 352"), fs::Permissions::from_mode(0o4711)).unwrap();
    for n in 0..300 {
        let dir = tree.join(format!("dir {}", n % 20));
        symlink(format!("file {n}"), dir.join(format!("link {n}"))).unwrap();
        fs::create_dir_all(tree.join(format!("empty {}/{n}", n % 9))).unwrap();
    }
}

/// Records on all cartridges.
fn records(bed: &Bed) -> usize {
    let is_record = |e: &fs::DirEntry| e.file_name().to_str().is_some_and(|name| name.ends_with("_R"));
    let cartridges = fs::read_dir(bed.path("library/cartridges")).unwrap().map(|c| c.unwrap().path());
    let entries = cartridges.filter_map(|c| fs::read_dir(c).ok()).flatten();
    entries.map(Result::unwrap).filter(is_record).count()
}

#[test]
fn ten_thousand_files_come_back_from_the_cartridges() {
    if !e2e::can_mount("ten_thousand_files_come_back_from_the_cartridges") {
        return;
    }
    let bed = bed();
    bed.up_mounted();
    let (tree, out) = (bed.path("tree"), bed.path("out"));
    make_tree(&tree);
    bed.ok(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["class", "set", "once", "--copies", "second"]);
    fs::create_dir(bed.mount().join("scratch")).unwrap();
    bed.ok(["class", "set", "once", "--on", "tc:/scratch"]);
    fs::write(bed.mount().join("scratch/one"), "one copy").unwrap();
    bed.ok(["migrate", "--wait", "-r", "tc:/"]);
    // A second version, a move, a removal; and what tapes do not know.
    fs::write(bed.mount().join("tree/dir 3/file 151"), "second version").unwrap();
    fs::write(tree.join("dir 3/file 151"), "second version").unwrap();
    fs::rename(bed.mount().join("tree/dir 4"), bed.mount().join("tree/moved")).unwrap();
    fs::remove_file(bed.mount().join("tree/dir 5/file 251")).unwrap();
    bed.ok(["migrate", "--wait", "-r", "tc:/"]);
    symlink("nowhere", bed.mount().join("link")).unwrap();
    fs::write(bed.mount().join("never on tape"), "gone").unwrap();
    let changed = fs::metadata(bed.mount().join("tree/dir 3/file 151")).unwrap().mtime();
    bed.ok(["umount".as_ref(), bed.mount().as_os_str()]);
    bed.ok(["down"]);
    let before = records(&bed);

    disaster(&bed);
    bed.up();
    let report = rebuild(&bed);
    assert!(report.contains("0 without a complete copy, 0 with fewer copies"), "{report}");
    assert_eq!(records(&bed), before, "reading an index writes nothing");
    bed.check();
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/tree".as_ref(), out.as_os_str()]);
    // A directory that moved is where it went, with the files that were in it.
    fs::rename(tree.join("dir 4"), tree.join("moved")).unwrap();
    fs::remove_file(tree.join("dir 5/file 251")).unwrap();
    same(&digests(&tree), &digests(&out));
    let (mut was, is) = (metadata(&tree), metadata(&out));
    let second = was.get_mut(Path::new("dir 3/file 151")).unwrap();
    second.3 = is[Path::new("dir 3/file 151")].3;
    assert_eq!(second.3.unwrap() / 1_000_000_000, changed);
    same(&was, &is);
    let stat = bed.json(["stat", "tc:/tree/dir 3/file 151"]);
    assert_eq!(stat[0]["versions"].as_array().map(Vec::len), Some(2), "{stat:#}");
    let once = bed.json(["stat", "tc:/scratch/one"]);
    assert_eq!(once[0]["file"]["class"], "once");
    let classes = bed.json(["class", "ls"]);
    assert!(classes.as_array().unwrap().iter().any(|c| c["name"] == "once" && c["copies"][0] == "second"));

    // Nothing is left to be done; and the system is whole again.
    let again = rebuild(&bed);
    assert!(again.contains("known to the catalogue") && again.contains(" 0 segments entered"), "{again}");
    make_files(&bed.path("new"), 60, 9_000);
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.path("new").as_os_str(), "tc:/new".as_ref()]);
    bed.ok(["migrate", "--wait", "-r", "tc:/new"]);
    bed.ok(["purge", "--wait", "-r", "tc:/new"]);
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/new".as_ref(), bed.path("new2").as_os_str()]);
    same(&digests(&bed.path("new")), &digests(&bed.path("new2")));
    bed.check();
}

#[test]
fn a_missing_cartridge_is_missed_by_name_and_can_come_later() {
    let bed = bed();
    bed.up();
    make_files(&bed.path("tree"), 40, 3_000);
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.path("tree").as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    let pool = |name: &str| {
        let volumes = bed.json(["volume", "ls", "--pool", name]);
        volumes[0]["volume"]["barcode"].as_str().unwrap().to_owned()
    };
    let second = pool("second");
    bed.ok(["down"]);
    // Taken out of its slot, as by hand.
    let table = bed.path("library/elements");
    let whole = fs::read_to_string(&table).unwrap();
    let without: String = whole.lines().filter(|l| !l.contains(&second)).map(|l| format!("{l}\n")).collect();
    assert_ne!(whole, without);
    fs::write(&table, without).unwrap();
    disaster(&bed);
    bed.up();
    let report = rebuild(&bed);
    assert!(report.contains("40 with fewer copies"), "{report}");
    assert!(report.contains("/tree/dir 0/file 7 (inode"), "{report}");
    bed.ok(["class", "set", "default", "--migrate-after", "2h"]);
    bed.ok(["down"]);
    fs::write(&table, whole).unwrap();
    bed.up();
    let report = rebuild(&bed);
    assert!(report.contains("0 with fewer copies"), "{report}");
    // What an operator decided since is not undone by an old index.
    assert!(report.contains("they stay as they are now: class default"), "{report}");
    let classes = bed.json(["class", "ls"]);
    assert_eq!(classes[0]["migrate_after_s"], 7200, "{classes:#}");
    bed.check();
}

#[test]
fn a_backup_is_restored_and_brought_up_to_date_from_tapes_and_disk() {
    let bed = bed();
    bed.up();
    let put = |name: &str, seed: usize| {
        make_files(&bed.path(name), 20 + seed, 3_000 + seed);
        let to = format!("tc:/{name}");
        bed.ok(["put".as_ref(), "-T".as_ref(), bed.path(name).as_os_str(), to.as_ref()]);
    };
    put("before", 1);
    bed.ok(["migrate", "--wait", "-r", "tc:/before"]);
    put("disk only", 2);
    let dir = bed.path("backups");
    let made = bed.json(["catalog".as_ref(), "backup".as_ref(), dir.as_os_str()]);
    let backup = PathBuf::from(made["path"].as_str().unwrap());
    // The world goes on: new files, on tape and off the disk; one changed on disk; one purged.
    put("after", 3);
    bed.ok(["migrate", "--wait", "-r", "tc:/after"]);
    bed.ok(["purge", "--wait", "-r", "tc:/after", "tc:/before/dir 0/file 3"]);
    let (changed, copy) = (bed.path("disk only/dir 0/file 5"), "tc:/disk only/dir 0/file 5");
    fs::write(&changed, "changed after the backup").unwrap();
    bed.ok(["put".as_ref(), "-T".as_ref(), "--overwrite".as_ref(), changed.as_os_str(), copy.as_ref()]);
    let (code, error) = bed.fails(["catalog".as_ref(), "restore".as_ref(), backup.as_os_str()]);
    assert_eq!(code, 6, "{error}");
    bed.ok(["down"]);

    // A damaged backup changes nothing.
    let data = backup.join("data.mdb");
    let good = fs::read(&data).unwrap();
    let mut bad = good.clone();
    // A page in the middle: a single byte might lie where nothing is.
    let page = bad.len() / 2 / 4096 * 4096;
    bad[page..page + 4096].iter_mut().for_each(|b| *b ^= 0xFF);
    fs::write(&data, bad).unwrap();
    let catalogue = || digests(&bed.state().join("catalog"));
    let untouched = catalogue();
    let (_, error) = bed.fails(["catalog".as_ref(), "restore".as_ref(), backup.as_os_str()]);
    assert!(error.contains("damaged"), "{error}");
    assert_eq!(catalogue(), untouched);
    fs::write(&data, good).unwrap();

    let said = bed.ok(["catalog".as_ref(), "restore".as_ref(), backup.as_os_str()]);
    assert!(
        said.contains("not on disk any more, and read from tape if they are there: 1 file\n")
            && said.contains("the catalogue that was there"),
        "{said}"
    );
    bed.up();
    let states = |bed: &Bed| -> Vec<String> {
        let volumes = bed.json(["volume", "ls"]);
        volumes
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v["volume"]["state"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(states(&bed).iter().filter(|s| *s == "unverified").count(), 2);
    let report = rebuild(&bed);
    assert!(!states(&bed).contains(&"unverified".to_owned()), "{report}");
    for name in ["before", "disk only", "after"] {
        let out = bed.path("out").join(name);
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        bed.ok(["get".as_ref(), "-T".as_ref(), format!("tc:/{name}").as_ref(), out.as_os_str()]);
        same(&digests(&bed.path(name)), &digests(&out));
    }
    bed.ok(["migrate", "--wait", "-r", "tc:/"]);
    bed.check();
}

#[test]
fn backups_are_made_by_themselves_and_old_ones_go() {
    let bed = bed();
    let dir = bed.path("backups");
    let settings = format!("[catalog]\nbackup_dir = {dir:?}\nbackup_every_s = 1\nbackup_keep = 2\n");
    let config = bed.state().join("config.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap() + &settings).unwrap();
    bed.up();
    let names = || -> BTreeSet<String> {
        let entries = fs::read_dir(&dir).into_iter().flatten().map(|e| e.unwrap().file_name());
        entries
            .map(|name| name.into_string().unwrap())
            .filter(|name| name.starts_with("catalog-") && !name.ends_with(".partial"))
            .collect()
    };
    bed.wait("two backups", || names().len() == 2);
    let oldest = names().pop_first().unwrap();
    bed.wait("the oldest to go", || !names().contains(&oldest));
    bed.ok(["down"]);
    assert!(names().len() <= 2, "{:?}", names());
    let newest = dir.join(names().pop_last().unwrap());
    bed.ok(["catalog".as_ref(), "restore".as_ref(), newest.as_os_str()]);
    bed.up();
    bed.check();
}

#[test]
fn the_catalogue_comes_back_as_it_was_at_a_moment_between_two_backups() {
    let bed = bed();
    let dir = bed.path("backups");
    let settings = format!("[catalog]\nbackup_dir = {dir:?}\nlog_changes = true\n");
    let config = bed.state().join("config.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap() + &settings).unwrap();
    bed.up();
    let first = || {
        let entries = fs::read_dir(&dir).into_iter().flatten().map(|e| e.unwrap().path());
        let is_backup = |path: &PathBuf| path.join("position").exists() && path.extension().is_none();
        entries.filter(is_backup).min()
    };
    bed.wait("the first backup, without which the log is worth nothing", || first().is_some());
    let first = first().unwrap();
    let put = |name: &str| {
        make_files(&bed.path(name), 12, 2_000);
        bed.ok(["put".as_ref(), "-T".as_ref(), bed.path(name).as_os_str(), format!("tc:/{name}").as_ref()]);
        bed.ok(["migrate", "--wait", "-r", &format!("tc:/{name}")]);
    };
    put("one");
    let moment = utc_now();
    put("two");
    bed.ok(["down"]);
    bed.up();
    put("three");
    let held = |bed: &Bed| -> Vec<String> {
        let listed = bed.json(["ls", "tc:/"]);
        let mut names: Vec<String> =
            listed.as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(held(&bed), ["/one", "/three", "/two"]);
    bed.ok(["down"]);
    let restore = |from: &Path, at: &str| bed.ok(["catalog", "restore", from.to_str().unwrap(), "--at", at]);
    let said = restore(&dir, &moment);
    assert!(said.contains("brought forward to"), "{said}");
    bed.up();
    assert_eq!(held(&bed), ["/one"], "as it was between the two");
    bed.ok(["down"]);
    restore(&first, &utc_now());
    bed.up();
    assert_eq!(held(&bed), ["/one", "/three", "/two"], "as far as the log of that backup goes");
    rebuild(&bed);
    bed.check();
}

/// With the cartridges alone: a reader that shares no code with the program finds a backup on them, and that one is restored.
#[test]
fn a_backup_is_read_from_the_cartridges_when_everything_else_is_gone() {
    let bed = bed();
    let dir = bed.path("backups");
    let settings = format!(
        "[catalog]\nbackup_dir = {dir:?}\nbackup_to = \"tc:/system/catalogue\"\nbackup_keep = 2\nlog_changes = true\n"
    );
    let config = bed.state().join("config.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap() + &settings).unwrap();
    bed.up();
    let inside = || -> Vec<String> {
        let listed = bed.run(["--json", "ls", "tc:/system/catalogue"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        let names = listed.as_array().into_iter().flatten().map(|f| f["name"].as_str().unwrap().to_owned());
        names.filter(|name| !name.ends_with(".partial")).collect()
    };
    bed.wait("the first backup, which the log calls for", || inside().len() == 1);
    let first = inside().remove(0);
    make_files(&bed.path("tree"), 40, 3_000);
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.path("tree").as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    bed.ok(["class", "set", "default", "--migrate-after", "2h"]);
    for _ in 0..2 {
        std::thread::sleep(std::time::Duration::from_millis(1100)); // they are named after the second
        bed.ok(["catalog", "backup"]);
    }
    let names = inside();
    assert!(names.len() == 2 && !names.contains(&first), "as many as are to be kept: {names:?}");
    let newest_one = names.iter().max().unwrap();
    let path = format!("tc:/system/catalogue/{newest_one}/data.mdb");
    bed.wait("two copies of it", || {
        let copies = bed.json(["stat", &path])[0]["file"]["copies"].clone();
        copies.as_array().is_some_and(|copies| copies.len() == 2)
    });
    bed.ok(["down"]);

    disaster(&bed);
    fs::remove_dir_all(&dir).unwrap();
    let found = bed.path("found").join(newest_one);
    fs::create_dir_all(&found).unwrap();
    let cartridges = fs::read_dir(bed.path("library/cartridges")).unwrap().map(|c| c.unwrap().path());
    for cartridge in cartridges.filter(|c| c.join("0_0_R").exists()) {
        for (file, data) in judged(&bed, &cartridge) {
            let path = file["xattrs"]["thermo.path"].as_str().or(file["tape_path"].as_str()).unwrap();
            let at = path.split_once(&format!("system/catalogue/{newest_one}/"));
            if let Some((_, name)) = at {
                fs::write(found.join(name), data).unwrap();
            }
        }
    }
    bed.ok(["catalog".as_ref(), "restore".as_ref(), found.as_os_str()]);
    bed.up();
    let begun = || newest(&bed)["kind"] == "migrate" && inside().iter().max() > Some(newest_one);
    bed.wait("the first backup of the new log", begun);
    // What no tape knows, and what is on tape.
    assert_eq!(bed.json(["class", "ls"])[0]["migrate_after_s"], 7200);
    rebuild(&bed);
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/tree".as_ref(), bed.path("out").as_os_str()]);
    same(&digests(&bed.path("tree")), &digests(&bed.path("out")));
    bed.check();
}

/// Now, as the command line takes it.
fn utc_now() -> String {
    let out = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%NZ"]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}
