//! Cartridges that GNU tar and bsdtar have written, with ANSI labels and without, become part of the namespace without
//! being copied.

use crate::support::{output, report, run};
use e2e::{Bed, digests, noise};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const CONFIG: &str = "[library]\ncartridge_capacity = \"64 MiB\"\ncartridges = 4\nslots = 12\n\
     [tape]\nblock_size = \"64 KiB\"\n\
     [[classes]]\nname = \"default\"\ncopies = [\"primary\"]\nmigrate_after_s = 3600\n";

/// Objects of a tape.
#[derive(Default)]
struct Tape(Vec<Option<Vec<u8>>>);

impl Tape {
    /// A file in records of `size` bytes, and a filemark.
    fn file(&mut self, data: &[u8], size: usize) {
        self.0.extend(data.chunks(size).map(|record| Some(record.to_vec())));
        self.0.push(None);
    }

    /// Labels of 80 characters, and a filemark.
    fn labels(&mut self, labels: &[&str]) {
        self.0.extend(labels.iter().map(|label| Some(format!("{label:80}").into_bytes())));
        self.0.push(None);
    }

    /// Onto a blank cartridge of a node that is down.
    fn put(&self, bed: &Bed, barcode: &str) {
        let dir = bed.state().join("library/cartridges").join(barcode);
        fs::remove_file(dir.join("0_0_E")).unwrap();
        for (block, object) in self.0.iter().enumerate() {
            let (kind, data) = object.as_ref().map_or(("F", &[][..]), |data| ("R", &data[..]));
            fs::write(dir.join(format!("0_{block}_{kind}")), data).unwrap();
        }
        fs::write(dir.join(format!("0_{}_E", self.0.len())), "").unwrap();
    }
}

/// A tree with everything that archives carry: lengths around blocks and records, links, empty directories, long and odd names.
fn tree(root: &Path, name: &str, seed: u64, long: usize) {
    let dir = root.join(name);
    fs::create_dir_all(dir.join("sub/empty dir")).unwrap();
    for (n, length) in
        [0, 1, 511, 512, 513, 1024, 9_728, 10_240, 10_241, 32_768, 100_000, 700_001].into_iter().enumerate()
    {
        fs::write(dir.join(format!("sub/file {n}")), noise(seed + n as u64, length)).unwrap();
    }
    fs::write(dir.join("\u{e9}<&>\"'%"), "odd name").unwrap();
    fs::write(dir.join("sub").join("x".repeat(long)), "long name").unwrap();
    fs::set_permissions(dir.join("sub/file 3"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(dir.join("sub/empty dir"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::hard_link(dir.join("sub/file 8"), dir.join("z hard link")).unwrap();
    symlink("sub/file 3", dir.join("symbolic")).unwrap();
    symlink("y".repeat(long), dir.join("long symbolic")).unwrap();
}

fn get(bed: &Bed, from: &str) -> PathBuf {
    let out = bed.path("came back");
    let _ = fs::remove_dir_all(&out);
    bed.ok(["get".as_ref(), "-T".as_ref(), from.as_ref(), out.as_os_str()]);
    out
}

/// Content, modes, times, links and directories are those of the source.
fn same(source: &Path, back: &Path) {
    assert!(digests(source) == digests(back), "other files came back");
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(source.join(&dir)).unwrap().map(Result::unwrap) {
            let name = dir.join(entry.file_name());
            let (here, there) = (source.join(&name), back.join(&name));
            let [a, b] = [&here, &there].map(|at| fs::symlink_metadata(at).unwrap());
            assert_eq!(a.file_type(), b.file_type(), "{name:?}");
            if a.is_symlink() {
                assert_eq!(fs::read_link(here).unwrap(), fs::read_link(there).unwrap());
                continue;
            }
            assert_eq!(a.mode(), b.mode(), "{name:?}");
            if a.is_dir() {
                dirs.push(name);
            } else {
                assert_eq!(a.mtime(), b.mtime(), "{name:?}");
            }
        }
    }
}

fn stat(bed: &Bed, path: &str) -> serde_json::Value {
    bed.json(["stat", path])[0].clone()
}

fn volume(bed: &Bed, barcode: &str) -> serde_json::Value {
    bed.json(["volume", "show", barcode])["volume"].clone()
}

/// Archives of several programs, formats and record sizes, one behind the other, without labels.
fn many_archives(bed: &Bed, tape: &mut Tape) {
    let root = bed.path("source");
    let own = ["--owner=somebody:1234", "--group=others:5678"];
    let gnu = |format: &str, name: &str| {
        let format = format!("--format={format}");
        output("tar", &[&["-c", "-b", "20", &format][..], &own, &[name]].concat(), &root)
    };
    let bsd = |format: &str, name: &str| {
        let format = format!("--format={format}");
        output("bsdtar", &["-c", "-b", "64", &format, "--uid", "1234", "--gid", "5678", name], &root)
    };
    for (n, (name, long)) in
        [("gnu", 230), ("pax", 230), ("ustar", 90), ("v7", 60), ("bsd pax", 230), ("bsd ustar", 90)]
            .into_iter()
            .enumerate()
    {
        tree(&root, name, 100 * n as u64, long);
    }
    tape.file(&gnu("gnu", "./gnu"), 20 * 512);
    tape.file(&gnu("pax", "pax"), 20 * 512);
    tape.file(&gnu("ustar", "ustar"), 2048 * 512); // records of 1 MiB, the last one short
    tape.file(&gnu("v7", "v7"), 512);
    tape.file(&bsd("pax", "bsd pax"), 64 * 512);
    tape.file(&bsd("ustar", "bsd ustar"), 64 * 512);
}

/// What cannot be taken is named, and nothing behind it is lost.
fn odd_members(bed: &Bed, tape: &mut Tape) {
    let odd = bed.path("odd");
    fs::create_dir_all(odd.join("odd")).unwrap();
    run("mkfifo", &["odd/pipe"], &odd);
    let holes = fs::File::create(odd.join("odd/holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&holes, b"data", 500_000).unwrap();
    fs::write(odd.join("odd/whole"), "whole").unwrap();
    for format in ["gnu", "pax", "oldgnu"] {
        let format = format!("--format={format}");
        let names = ["odd/pipe", "odd/holes", "odd/whole"];
        tape.file(&output("tar", &[&["-cS", "-b", "20", &format][..], &names].concat(), &odd), 10_240);
    }
    let escape = ["-c", "-P", "--transform=s,^,../,", "odd/whole"];
    tape.file(&output("tar", &escape, &odd), 10_240);
}

#[test]
fn archives_of_gnu_tar_and_bsdtar_are_imported_in_place() {
    let bed = Bed::new(CONFIG);
    bed.up();
    bed.ok(["down"]);
    let mut tape = Tape::default();
    many_archives(&bed, &mut tape);
    odd_members(&bed, &mut tape);
    // The same name again: a later version.
    fs::write(bed.path("source/gnu/sub/file 2"), "later").unwrap();
    tape.file(&output("tar", &["-c", "gnu/sub/file 2"], &bed.path("source")), 10_240);
    tape.0.push(None);
    tape.put(&bed, "TC0002L9");
    bed.up();
    bed.ok(["volume", "import", "TC0002L9", "--into", "tc:/theirs/tape 2", "--wait"]);
    let told = report(&bed);
    assert!(told.contains("11 tar archives of another program imported"), "{told}");
    assert_eq!(told.matches("it has holes").count(), 3, "{told}");
    assert_eq!(told.matches("it is a named pipe").count(), 3, "{told}");
    assert!(told.contains("../odd/whole: its name has `..` in it"), "{told}");
    assert!(told.contains("7 things on it not taken"), "{told}");
    let shown = volume(&bed, "TC0002L9");
    assert_eq!((&shown["state"], &shown["format"]), (&"read-only".into(), &"tar".into()), "{shown:#}");
    // Nothing was copied, and the digest is known once a file was read.
    let first = "tc:/theirs/tape 2/gnu/sub/file 7";
    assert!(stat(&bed, first)["versions"][0]["digest"].is_null(), "{:#}", stat(&bed, first));
    assert_eq!(stat(&bed, first)["residency"], "offline", "{:#}", stat(&bed, first));
    fs::remove_dir_all(bed.path("source/odd")).ok();
    fs::create_dir(bed.path("source/odd")).unwrap();
    fs::write(bed.path("source/odd/whole"), "whole").unwrap();
    let back = get(&bed, "tc:/theirs/tape 2");
    assert_eq!(fs::read(back.join("odd/whole")).unwrap(), b"whole");
    fs::remove_dir_all(back.join("odd")).unwrap();
    fs::remove_dir_all(bed.path("source/odd")).unwrap();
    same(&bed.path("source"), &back);
    bed.wait("a digest", || !stat(&bed, first)["versions"][0]["digest"].is_null());
    let owner = stat(&bed, first)["attr"].clone();
    assert_eq!((owner["uid"].as_u64(), owner["gid"].as_u64()), (Some(1234), Some(5678)), "{owner}");
    let ino = |path: &str| stat(&bed, path)["attr"]["ino"].as_u64();
    for tree in ["gnu", "pax", "ustar", "v7", "bsd pax", "bsd ustar"] {
        let [a, b] =
            ["sub/file 8", "z hard link"].map(|name| ino(&format!("tc:/theirs/tape 2/{tree}/{name}")));
        assert!(a.is_some() && a == b, "{tree}: {a:?} {b:?}");
    }
    let later = stat(&bed, "tc:/theirs/tape 2/gnu/sub/file 2");
    assert_eq!(later["versions"].as_array().map(Vec::len), Some(2), "{later:#}");
    bed.check();
    let deep = bed.json(["check", "--deep"]);
    assert_eq!(deep["findings"].as_array().map(Vec::len), Some(0), "{deep:#}");
    // Again, and after a loss of the process.
    bed.ok(["volume", "import", "TC0002L9", "--into", "tc:/theirs/tape 2", "--wait"]);
    assert!(report(&bed).contains("imported already"));
    bed.kill();
    bed.up();
    bed.ok(["purge", "--wait", "-r", "tc:/theirs"]);
    same(&bed.path("source/bsd pax"), &get(&bed, "tc:/theirs/tape 2/bsd pax"));
    it_stays_what_it_is(&bed, first);
}

/// Nobody writes to the volume, and nobody takes another for it.
fn it_stays_what_it_is(bed: &Bed, first: &str) {
    let (_, why) = bed.fails(["volume", "state", "TC0002L9", "filling"]);
    assert!(why.contains("only read"), "{why}");
    bed.ok(["purge", "--wait", "-r", "tc:/theirs"]);
    bed.ok(["down"]);
    let dir = bed.state().join("library/cartridges/TC0002L9");
    let mut record = fs::read(dir.join("0_0_R")).unwrap();
    record[600] ^= 1;
    fs::write(dir.join("0_0_R"), record).unwrap();
    bed.up();
    let (_, why) = bed.fails(["stage", "--wait", first]);
    assert!(why.contains("not the archives that were imported"), "{why}");
}

/// Sixteen hundred names in four archives between labels, with small records.
fn labelled(bed: &Bed, tape: &mut Tape) {
    let root = bed.path("source");
    tape.0.push(Some(format!("{:80}", "VOL1OLD001").into_bytes()));
    for n in 1..=4 {
        let name = format!("part {n}");
        let dir = root.join(&name);
        fs::create_dir_all(&dir).unwrap();
        for file in 0..400 {
            fs::write(dir.join(format!("file {file}")), noise(n * 1000 + file, 700)).unwrap();
        }
        fs::hard_link(dir.join("file 7"), dir.join("link")).unwrap();
        let file = format!("PART{n:<13}OLD0010001{n:04}000100 24001 99365 000000OTHER");
        let second = "F1024000512";
        tape.labels(&[&format!("HDR1{file}"), &format!("HDR2{second}")]);
        tape.file(&output("tar", &["-c", "--format=ustar", "-b", "2", "--sort=name", &name], &root), 1024);
        tape.labels(&[&format!("EOF1{file}"), &format!("EOF2{second}")]);
    }
}

#[test]
fn an_import_that_was_killed_goes_on_and_into_no_other_directory() {
    // Times of real machines, divided: going over the tape takes some seconds.
    let slow = CONFIG.replacen("[tape]", "mechanics = \"lto9\"\nspeed = 400.0\n[tape]", 1);
    let bed = Bed::new(&slow);
    bed.up();
    bed.ok(["down"]);
    let mut tape = Tape::default();
    labelled(&bed, &mut tape);
    tape.put(&bed, "TC0003L9");
    bed.up();
    bed.ok(["volume", "import", "TC0003L9", "--into", "tc:/old"]);
    bed.wait("the first files", || volume(&bed, "TC0003L9")["files"].as_u64().unwrap() > 0);
    bed.kill();
    bed.up();
    let half = volume(&bed, "TC0003L9");
    assert!(half["files"].as_u64().unwrap() < 1600 && half["generation"] == 0, "{half:#}");
    // Half of its files are not taken for all, by nobody.
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.path("source/part 1").as_os_str(), "tc:/other".as_ref()]);
    bed.fails(["volume", "import", "TC0003L9", "--into", "tc:/other", "--wait"]);
    assert!(report(&bed).contains("/other is not empty"), "{}", report(&bed));
    bed.ok(["volume", "import", "TC0003L9", "--into", "tc:/old", "--wait"]);
    let whole = volume(&bed, "TC0003L9");
    assert!(whole["files"] == 1600 && whole["live_files"] == 1600 && whole["generation"] == 4, "{whole:#}");
    let told = report(&bed);
    assert!(told.contains("4 tar archives of another program imported,"), "{told}");
    same(&bed.path("source"), &get(&bed, "tc:/old"));
    bed.check();
}
