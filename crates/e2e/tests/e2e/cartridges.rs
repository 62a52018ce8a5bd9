//! Every cartridge is read by a reader that shares no code with the program, and every copy is compared with the source.

use e2e::{Bed, digests, make_files};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Cartridges so small that files go on from one to the next.
const CONFIG: &str = "
[library]
cartridge_capacity = \"64 MiB\"
[[classes]]
name = \"default\"
copies = [\"primary\", \"second\"]
migrate_after_s = 3600
";

const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/judges/ltfs_reader.py");

/// What the judge says of a cartridge, and the directory with the contents by uid.
pub fn judged(bed: &Bed, cartridge: &PathBuf) -> Vec<(Value, Vec<u8>)> {
    let contents = bed.path("contents").join(cartridge.file_name().unwrap());
    std::fs::create_dir_all(&contents).unwrap();
    let output = Command::new("python3")
        .args([JUDGE, "--compare-sha", "--require-memory", "--extract"])
        .args([&contents, cartridge])
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{}: {}", cartridge.display(), String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|v| (v.clone(), std::fs::read(contents.join(v["uid"].to_string())).unwrap())).collect()
}

#[test]
fn every_copy_of_every_file_is_what_was_put() {
    let bed = Bed::new(CONFIG);
    make_files(&bed.path("tree"), 300, 9000);
    make_files(&bed.path("tree/large"), 4, 40 << 20);
    std::fs::write(bed.path("tree/\u{e9}<&>\"'\n%"), "odd name").unwrap();
    bed.up();
    let tree = bed.path("tree");
    bed.ok(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    bed.check();
    bed.ok(["down"]);
    // (path, inode.version.copy) -> parts by offset
    let mut copies: BTreeMap<(String, String), BTreeMap<u64, Vec<u8>>> = BTreeMap::new();
    let mut used = 0;
    for cartridge in bed.cartridges() {
        if !cartridge.join("0_0_R").exists() {
            continue;
        }
        used += 1;
        for (file, data) in judged(&bed, &cartridge) {
            let attribute = |name: &str| file["xattrs"][name].as_str().map(str::to_owned);
            let part = attribute("thermo.part").unwrap_or("0/".into());
            let offset = part.split('/').next().unwrap().parse().unwrap();
            let path =
                attribute("thermo.path").unwrap_or_else(|| file["tape_path"].as_str().unwrap().to_owned());
            copies.entry((path, attribute("thermo.id").unwrap())).or_default().insert(offset, data);
        }
    }
    assert!(used >= 4, "{used} cartridges used; the data should need two in each pool");
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for parts in copies.values() {
        let whole: Vec<u8> = parts.values().flatten().copied().collect();
        *found.entry(e2e::digest(&whole)).or_default() += 1;
    }
    let mut expected: BTreeMap<String, u32> = BTreeMap::new();
    digests(&tree).into_values().for_each(|digest| *expected.entry(digest).or_default() += 2);
    assert!(found == expected, "{} contents on tape, {} expected", found.len(), expected.len());
}
