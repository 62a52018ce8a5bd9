//! What a user or a machine can do wrong: a clear error, and nothing lost.

use e2e::{Bed, digests, make_files};
use std::fs;

const SMALL: &str = "
[library]
cartridges = 2
cartridge_capacity = \"64 MiB\"
[[classes]]
name = \"default\"
copies = [\"primary\", \"second\"]
migrate_after_s = 3600
";

#[test]
fn a_second_node_on_the_same_state_is_refused() {
    let bed = Bed::new(SMALL);
    bed.up();
    assert!(bed.ok(["up"]).contains("already up"));
    let (code, error) = bed.fails(["up", "--foreground"]);
    assert_eq!(code, 6, "{error}");
    assert!(error.contains(&bed.state().display().to_string()), "{error}");
    bed.check();
}

#[test]
fn a_newer_state_is_left_alone() {
    let bed = Bed::new(SMALL);
    bed.up();
    bed.ok(["down"]);
    let marker = bed.state().join("format");
    let ours = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, "thermocline-state 9999\n").unwrap();
    let (_, error) = bed.fails(["up"]);
    assert!(error.contains("newer release") && error.contains("9999"), "{error}");
    assert_eq!(fs::read_to_string(&marker).unwrap(), "thermocline-state 9999\n");
    fs::write(&marker, ours).unwrap();
    bed.up();
}

#[test]
fn a_wrong_key_is_named_with_the_nearest_one() {
    let bed = Bed::new("[library]\ncartridge_capacty = \"1 GiB\"\n");
    let (code, error) = bed.fails(["up"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("cartridge_capacty") && error.contains("`cartridge_capacity`"), "{error}");
}

/// A cartridge with an ANSI label of somebody else.
#[test]
fn a_foreign_cartridge_is_not_overwritten() {
    let bed = Bed::new(SMALL);
    bed.up();
    bed.ok(["down"]);
    let cartridge = bed.cartridges().remove(0);
    let barcode = cartridge.file_name().unwrap().to_str().unwrap().to_owned();
    for entry in fs::read_dir(&cartridge).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let label = format!("{:<79}3", "VOL1OTHERS");
    fs::write(cartridge.join("0_0_R"), &label).unwrap();
    fs::write(cartridge.join("0_1_F"), "").unwrap();
    fs::write(cartridge.join("0_2_R"), "precious").unwrap();
    fs::write(cartridge.join("0_3_E"), "").unwrap();
    bed.up();
    let (_, error) = bed.fails(["volume", "label", "--wait", &barcode]);
    assert!(error.contains(&barcode) && error.contains("--force"), "{error}");
    assert_eq!(fs::read_to_string(cartridge.join("0_2_R")).unwrap(), "precious");
    // Automatic labelling leaves it alone too: the second copy finds no volume.
    fs::write(bed.path("file"), "content").unwrap();
    bed.ok(["put".as_ref(), bed.path("file").as_os_str(), "tc:/file".as_ref()]);
    bed.ok(["migrate", "tc:/file"]);
    let one_copy =
        || bed.json(["stat", "tc:/file"])[0]["file"]["copies"].as_array().is_some_and(|c| c.len() == 1);
    bed.wait("the copy that is possible", one_copy);
    assert_eq!(fs::read_to_string(cartridge.join("0_2_R")).unwrap(), "precious");
    bed.ok(["volume", "label", "--wait", "--force", &barcode]);
    assert!(fs::read_to_string(cartridge.join("0_2_R")).map_or(true, |text| text != "precious"));
    bed.check();
}

/// More than the cartridges hold: files stay on disk, readable, and the operator is told.
#[test]
fn full_cartridges_lose_nothing() {
    let bed = Bed::new(SMALL);
    make_files(&bed.path("tree"), 40, 3 << 20);
    bed.up();
    let tree = bed.path("tree");
    bed.ok(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]);
    bed.ok(["migrate", "-r", "tc:/tree"]);
    let told = || bed.json(["status"])["warnings"].as_array().is_some_and(|w| !w.is_empty());
    bed.wait("a warning", told);
    let purged = bed.run(["purge", "--wait", "-r", "tc:/tree"]);
    assert!(purged.status.code().is_some(), "purge ends");
    let back = bed.path("back");
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/tree".as_ref(), back.as_os_str()]);
    assert!(digests(&tree) == digests(&back), "a file was lost");
    bed.check();
}
