//! Directories, symlinks and pipes go to tape with the files, in both formats, and come back when nothing but the
//! cartridges is left; tar makes them without us. So does what became of files after they went there.

use crate::support::{bed_with_library_outside, disaster, run, same, sections};
use e2e::{Bed, digests, make_files};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn bed(media: &str) -> Bed {
    bed_with_library_outside(&format!(
        "cartridge_capacity = \"32 MiB\"\n{media}\n\
         [[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n"
    ))
}

/// Type and mode, owner, group, modification time, number of names and length of files, target of links.
type Seen = (u32, u32, u32, i64, i64, (u64, u64), Option<PathBuf>);

fn tree(dir: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let size = if meta.is_file() { (meta.nlink(), meta.len()) } else { (0, 0) };
            let target = fs::read_link(&path).ok();
            let seen = (meta.mode(), meta.uid(), meta.gid(), meta.mtime(), meta.mtime_nsec(), size, target);
            found.insert(path.strip_prefix(dir).unwrap().to_owned(), seen);
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    found
}

/// Links, empty directories and pipes among files.
fn make_nodes(dir: &Path, number: usize) {
    for n in 0..number {
        let below = dir.join(format!("dir {}", n % 7));
        fs::create_dir_all(below.join(format!("empty {n}"))).unwrap();
        symlink(format!("../file {n}"), below.join(format!("link {n}"))).unwrap();
    }
    symlink("/somewhere \u{e9}/that is not there\n", dir.join("odd link")).unwrap();
    run("mkfifo", &["-m", "0620", "pipe"], dir);
    let odd = dir.join("dir 3/empty 3");
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o1731)).unwrap();
    chown(&odd, Some(1234), Some(4321)).unwrap();
    run("touch", &["-h", "-d", "1999-12-31 23:59:59.123456789Z", "odd link", "dir 3/empty 3"], dir);
    rustix::fs::setxattr(&odd, "user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
}

fn cartridges(bed: &Bed) -> Vec<PathBuf> {
    fs::read_dir(bed.path("library/cartridges")).unwrap().map(|e| e.unwrap().path()).collect()
}

/// What becomes of files whose data is on tape.
fn change_files(top: &Path) {
    let file = |n: usize| top.join(format!("dir {}/file {n}", n / 50));
    fs::rename(file(3), top.join("dir 1/renamed")).unwrap();
    fs::rename(file(4), file(5)).unwrap(); // which removes what was there
    fs::remove_file(file(6)).unwrap();
    fs::hard_link(file(7), top.join("dir 4/second name")).unwrap();
    fs::hard_link(file(7), top.join("dir 0/third name")).unwrap();
    fs::remove_file(top.join("dir 3/another name of 1")).unwrap();
    fs::rename(top.join("dir 3/another name of 2"), top.join("dir 5/moved name of 2")).unwrap();
    fs::set_permissions(file(8), fs::Permissions::from_mode(0o4755)).unwrap();
    chown(file(9), Some(1234), Some(4321)).unwrap();
    rustix::fs::setxattr(file(10), "user.note", b"later", rustix::fs::XattrFlags::empty()).unwrap();
    run("touch", &["-d", "2001-02-03 04:05:06.5Z", "dir 0/file 11"], top);
    fs::write(file(12), b"another version, and then another name").unwrap();
    fs::rename(file(12), top.join("dir 2/rewritten")).unwrap();
    fs::remove_file(file(50)).unwrap();
    fs::write(file(50), b"another file of the same name").unwrap();
}

/// What is there goes to tape, changes, goes to tape again; the node dies in the middle of that; then all is lost.
fn drill(bed: &Bed) {
    bed.up_mounted();
    let top = bed.mount().join("tree");
    fs::create_dir(&top).unwrap();
    make_files(&top, 60, 2_000);
    make_nodes(&top, 40);
    for n in [1, 2] {
        fs::hard_link(top.join(format!("dir 0/file {n}")), top.join(format!("dir 3/another name of {n}")))
            .unwrap();
    }
    bed.ok(["migrate", "--wait", "-r", "tc:/"]);
    let listed = bed.json(["ls", "tc:/tree"]);
    let of = |name: &str| {
        let entry = listed.as_array().unwrap().iter().find(|e| e["name"] == name).unwrap();
        entry["file"]["copies"].as_array().map(Vec::len)
    };
    assert_eq!((of("odd link"), of("pipe"), of("dir 2")), (Some(2), Some(2), Some(2)), "{listed:#}");
    // What was removed must not come back, what was renamed is where it is now, what was changed is as it is now.
    fs::remove_file(top.join("dir 1/link 1")).unwrap();
    fs::remove_dir(top.join("dir 1/empty 1")).unwrap();
    fs::rename(top.join("dir 2"), top.join("dir 4/moved")).unwrap();
    fs::create_dir(top.join("dir 2")).unwrap();
    symlink("another", top.join("dir 2/link 2")).unwrap();
    fs::set_permissions(top.join("dir 5/empty 5"), fs::Permissions::from_mode(0o500)).unwrap();
    change_files(&top);
    let mut begun = bed.command(["migrate", "--wait", "-r", "tc:/"]);
    let mut begun = begun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let half = |bed: &Bed| {
        bed.json(["ls", "tc:/tree/dir 2"])[0]["file"]["copies"].as_array().map(Vec::len) != Some(0)
    };
    bed.wait("something of it is on tape, or all", || half(bed));
    bed.kill();
    begun.wait().unwrap();
    bed.up_mounted();
    bed.ok(["migrate", "--wait", "-r", "tc:/"]);
    // What lies on a volume that is emptied goes to another first.
    let volumes = bed.json(["volume", "ls", "--pool", "primary"]);
    let barcode = volumes[0]["volume"]["barcode"].as_str().unwrap();
    bed.ok(["volume", "repack", "--wait", barcode]);
    let (was, bytes) = (tree(&top), digests(&top));
    assert!(fs::symlink_metadata(top.join("pipe")).unwrap().file_type().is_fifo());
    bed.ok(["umount".as_ref(), bed.mount().as_os_str()]);
    bed.check();
    bed.ok(["down"]);

    disaster(bed);
    bed.up_mounted();
    bed.ok(["catalog", "rebuild", "--wait"]);
    let top = bed.mount().join("tree");
    same(&was, &tree(&top));
    assert!(digests(&top) == bytes);
    for (path, value) in [("dir 3/empty 3", b"kept".as_slice()), ("dir 0/file 10", b"later")] {
        let mut note = [0; 10];
        let length = rustix::fs::getxattr(top.join(path), "user.note", &mut note);
        assert_eq!(&note[..length.unwrap()], value);
    }
    bed.ok(["umount".as_ref(), bed.mount().as_os_str()]);
    bed.check();
}

#[test]
fn the_tree_comes_back_from_ltfs_cartridges() {
    if !e2e::can_mount("the_tree_comes_back_from_ltfs_cartridges") {
        return;
    }
    let bed = bed("");
    drill(&bed);
    // Any LTFS program shows the links and directories.
    let index = |cartridge: PathBuf| {
        let records = fs::read_dir(cartridge).into_iter().flatten().map(|e| e.unwrap().path());
        records.filter_map(|path| fs::read_to_string(path).ok()).collect::<String>()
    };
    let all: String = cartridges(&bed).into_iter().map(index).collect();
    for element in ["<symlink>../file 7</symlink>", "<name>empty 6</name>", "<symlink>another</symlink>"] {
        assert!(all.contains(element), "{element}");
    }
}

#[test]
fn the_tree_comes_back_from_cartridges_without_partitions_and_tar_makes_it_too() {
    if !e2e::can_mount("the_tree_comes_back_from_cartridges_without_partitions_and_tar_makes_it_too") {
        return;
    }
    let bed = bed("media = \"L4\"\n[tape]\nblock_size = \"32 KiB\"");
    drill(&bed);
    let volumes = bed.json(["volume", "ls", "--pool", "second"]);
    let barcode = volumes[0]["volume"]["barcode"].as_str().unwrap();
    let written = bed.path("library/cartridges").join(barcode);
    for program in ["tar", "bsdtar"] {
        let to = bed.path(program);
        fs::create_dir_all(&to).unwrap();
        for section in sections(&written) {
            fs::write(to.join("section"), section).unwrap();
            let quiet: &[&str] = if program == "tar" { &["--warning=no-unknown-keyword"] } else { &[] };
            run(program, &[quiet, &["-xpf", "section"]].concat(), &to);
        }
        let made = tree(&to.join("tree"));
        let mounted = tree_of_links(&made);
        assert!(mounted.contains(&PathBuf::from("another")) && mounted.len() > 35, "{program}: {mounted:?}");
        let pipe = &made[Path::new("pipe")];
        assert_eq!(pipe.0 & 0o7777, 0o620, "{program}");
        let odd = &made[Path::new("dir 3/empty 3")];
        assert_eq!((odd.0, odd.1, odd.2, odd.3), (0o041_731, 1234, 4321, 946_684_799), "{program}");
    }
}

fn tree_of_links(tree: &BTreeMap<PathBuf, Seen>) -> Vec<PathBuf> {
    tree.values().filter_map(|seen| seen.6.clone()).collect()
}
