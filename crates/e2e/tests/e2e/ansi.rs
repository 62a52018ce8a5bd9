//! Cartridges that cannot be partitioned: ANSI labels and pax tar, written by a node, read by tar, bsdtar, sha256sum and
//! hetmap, kept through a kill, and rebuilt from.

use crate::support::{bed_with_library_outside, disaster, newest, run, sections};
use e2e::{Bed, digests, make_files};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cartridges so small that files go on from one to the next.
const CONFIG: &str = "
[library]
cartridge_capacity = \"64 MiB\"
media = \"L4\"
[tape]
block_size = \"32 KiB\"
flush_every = \"8 MiB\"
[[classes]]
name = \"default\"
copies = [\"primary\", \"second\"]
migrate_after_s = 3600
";

fn used(bed: &Bed) -> Vec<PathBuf> {
    bed.cartridges().into_iter().filter(|c| c.join("0_0_R").exists()).collect()
}

/// Extracts all sections of a cartridge with `program` and lets sha256sum compare them.
fn extract(bed: &Bed, program: &str, cartridge: &Path) -> PathBuf {
    let to = bed.path(program).join(cartridge.file_name().unwrap());
    fs::create_dir_all(&to).unwrap();
    for section in sections(cartridge) {
        fs::write(to.join("section"), section).unwrap();
        run(program, &["-xf", "section"], &to);
    }
    fs::remove_file(to.join("section")).unwrap();
    for entry in fs::read_dir(to.join(".thermocline")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "sha256") {
            run("sha256sum", &["--quiet", "--strict", "-c", path.to_str().unwrap()], &to);
        }
    }
    to
}

fn put(bed: &Bed, name: &str) {
    let to = format!("tc:/{name}");
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.path(name).as_os_str(), to.as_ref()]);
}

/// All of `name` comes back from tape and is what was put.
fn comes_back(bed: &Bed, name: &str) {
    let from = format!("tc:/{name}");
    bed.ok(["purge", "--wait", "-r", &from]);
    let out = bed.path(&format!("{name} out"));
    bed.ok(["get".as_ref(), "-T".as_ref(), from.as_ref(), out.as_os_str()]);
    assert!(digests(&bed.path(name)) == digests(&out), "other files came back");
    fs::remove_dir_all(out).unwrap();
}

#[test]
fn what_a_node_writes_is_read_by_tar_bsdtar_sha256sum_and_hetmap() {
    let bed = Bed::new(CONFIG);
    make_files(&bed.path("tree"), 300, 9000);
    make_files(&bed.path("tree/large"), 4, 30 << 20);
    fs::write(bed.path("tree/empty"), "").unwrap();
    fs::write(bed.path("tree/\u{e9}<&>\"'\n%"), "odd name").unwrap();
    bed.up();
    put(&bed, "tree");
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    bed.check();
    let deep = bed.json(["check", "--deep"]);
    assert_eq!(deep["findings"].as_array().map(Vec::len), Some(0), "{deep:#}");
    comes_back(&bed, "tree");
    bed.ok(["purge", "--wait", "-r", "tc:/tree"]);
    // Small files in any order.
    bed.ok(["stage", "--wait", "tc:/tree/dir 1/file 99", "tc:/tree/dir 0/file 3", "tc:/tree/empty"]);
    let listed = bed.json(["volume", "ls"]);
    let formats: Vec<_> = listed.as_array().unwrap().iter().map(|v| v["volume"]["format"].clone()).collect();
    bed.ok(["down"]);
    let cartridges = used(&bed);
    assert!(cartridges.len() >= 4, "{} cartridges used; each pool should need two", cartridges.len());
    assert_eq!(formats.iter().filter(|f| *f == "ansi-tar").count(), cartridges.len());
    for program in ["tar", "bsdtar"] {
        // Parts of files that go on on other cartridges are put together by name.
        let mut found: BTreeMap<String, Vec<(u64, PathBuf)>> = BTreeMap::new();
        for cartridge in &cartridges {
            let to = extract(&bed, program, cartridge);
            for name in digests(&to).into_keys() {
                let text = name.to_string_lossy().into_owned();
                if !text.starts_with(".thermocline") {
                    let (whole, at) = text.split_once(".part-").unwrap_or((&text, "0"));
                    found.entry(whole.to_owned()).or_default().push((at.parse().unwrap(), to.join(&name)));
                }
            }
        }
        for (name, digest) in digests(&bed.path("tree")) {
            let length = fs::metadata(bed.path("tree").join(&name)).unwrap().len();
            let mut parts = found.remove(&format!("tree/{}", name.display())).unwrap_or_default();
            for copy in 1..=2 {
                let bytes = put_together(&mut parts, length);
                assert!(e2e::digest(&bytes) == digest, "{name:?}, copy {copy}");
            }
            assert!(parts.is_empty(), "{name:?}: {parts:?}");
        }
        assert!(found.is_empty(), "{found:?}");
    }
    labels_are_read_by_hetmap(&bed, &cartridges[0]);
}

/// One copy of a file: of its parts (offset, file) each time one that begins where the last one ended.
fn put_together(parts: &mut Vec<(u64, PathBuf)>, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let next = parts.iter().position(|(at, _)| *at == bytes.len() as u64);
        let (_, path) = parts.swap_remove(next.unwrap_or_else(|| panic!("no part at {}", bytes.len())));
        bytes.extend(fs::read(path).unwrap());
        if bytes.len() as u64 >= length {
            return bytes;
        }
    }
}

fn labels_are_read_by_hetmap(bed: &Bed, cartridge: &Path) {
    let (mut image, mut before) = (Vec::new(), 0_u16);
    for block in 0.. {
        let record = fs::read(cartridge.join(format!("0_{block}_R"))).ok();
        if record.is_none() && !cartridge.join(format!("0_{block}_F")).exists() {
            break;
        }
        let flag = if record.is_some() { 0xa0 } else { 0x40 };
        let bytes = record.unwrap_or_default();
        let length = u16::try_from(bytes.len()).unwrap();
        image.extend([length.to_le_bytes(), before.to_le_bytes(), [flag, 0]].concat());
        image.extend(bytes);
        before = length;
    }
    image.extend([[0; 2], before.to_le_bytes(), [0x40, 0]].concat());
    let path = bed.path("image.aws");
    fs::write(&path, image).unwrap();
    let output = Command::new("hetmap").arg("-a").arg(&path).output().expect("hetmap of hercules runs");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    let count = |label: &str| text.matches(&format!("'{label}'")).count().max(text.matches(label).count());
    assert_eq!(count("HDR1"), sections(cartridge).len(), "{text}");
    assert_eq!(count("EOF1"), sections(cartridge).len());
}

#[test]
fn a_killed_node_goes_on_and_nothing_that_counted_is_lost() {
    let bed = Bed::new(CONFIG);
    make_files(&bed.path("first"), 50, 20_000);
    make_files(&bed.path("second"), 40, 1 << 20);
    bed.up();
    put(&bed, "first");
    bed.ok(["migrate", "--wait", "-r", "tc:/first"]);
    put(&bed, "second");
    bed.ok(["migrate", "-r", "tc:/second"]);
    let records = |bed: &Bed| -> usize { used(bed).iter().map(|c| fs::read_dir(c).unwrap().count()).sum() };
    let begun = records(&bed);
    bed.wait("some of it on tape", || records(&bed) > begun + 60);
    bed.kill();
    bed.up();
    bed.check();
    bed.ok(["migrate", "--wait", "-r", "tc:/"]);
    bed.check();
    comes_back(&bed, "first");
    comes_back(&bed, "second");
}

#[test]
fn the_catalogue_comes_back_from_labels_lists_and_indexes() {
    let bed = bed_with_library_outside(CONFIG.trim_start().trim_start_matches("[library]"));
    make_files(&bed.path("tree"), 200, 5_000);
    make_files(&bed.path("later"), 60, 5_000);
    bed.up();
    put(&bed, "tree");
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    bed.ok(["down"]);
    // Not indexed as a whole: the node is killed while its volumes are mounted.
    bed.up();
    put(&bed, "later");
    bed.ok(["migrate", "--wait", "-r", "tc:/later"]);
    bed.kill();
    disaster(&bed);
    bed.up();
    bed.ok(["catalog", "rebuild", "--wait"]);
    let message = newest(&bed)["message"].to_string();
    assert!(message.contains("0 without a complete copy, 0 with fewer copies"), "{message}");
    bed.check();
    comes_back(&bed, "tree");
    comes_back(&bed, "later");
    // The volumes are written again, and nothing is entered twice.
    make_files(&bed.path("new"), 30, 3_000);
    put(&bed, "new");
    bed.ok(["migrate", "--wait", "-r", "tc:/new"]);
    comes_back(&bed, "new");
    bed.check();
    bed.ok(["catalog", "rebuild", "--wait"]);
    let again = newest(&bed)["message"].to_string();
    assert!(again.contains(" 0 segments entered"), "{again}");
}

#[test]
fn a_volume_that_was_labelled_and_never_written_is_ours_after_a_loss() {
    for media in ["L9", "L4"] {
        let bed =
            bed_with_library_outside(&format!("media = \"{media}\"\ncartridge_capacity = \"64 MiB\"\n"));
        bed.up();
        let volumes = [("TC0003", "filling"), ("TC0004", "scratch")].map(|(v, s)| (format!("{v}{media}"), s));
        bed.ok(["volume", "label", "--wait", "--pool", "primary", &volumes[0].0]);
        bed.ok(["volume", "label", "--wait", &volumes[1].0]);
        bed.ok(["down"]);
        disaster(&bed);
        bed.up();
        bed.ok(["catalog", "rebuild", "--wait"]);
        for (volume, state) in volumes {
            let shown = bed.json(["volume", "show", &volume]);
            assert_eq!(shown["volume"]["state"], state, "{shown:#}");
        }
    }
}
