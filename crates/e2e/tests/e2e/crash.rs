//! kill -9 in the middle of a copy: it goes on. More of kill -9 is in `torture.rs`.

use e2e::{Bed, digests, make_files};

/// Migration starts at once and is recorded often, so that a kill meets it too.
const CONFIG: &str = "
[library]
cartridge_capacity = \"256 MiB\"
[tape]
flush_files = 20
[[classes]]
name = \"default\"
copies = [\"primary\", \"second\"]
migrate_after_s = 0
";

fn inodes(bed: &Bed) -> u64 {
    bed.json(["status"])["inodes"].as_u64().unwrap()
}

/// `put` waits for a node that was killed and completes the copy by itself; so does `get`.
#[test]
fn put_survives_a_kill() {
    let bed = Bed::new(CONFIG);
    make_files(&bed.path("tree"), 1500, 20_000);
    make_files(&bed.path("tree/large"), 6, 6 << 20);
    bed.up();
    let tree = bed.path("tree");
    let mut put =
        bed.command(["put".as_ref(), "-T".as_ref(), tree.as_os_str(), "tc:/tree".as_ref()]).spawn().unwrap();
    let start = inodes(&bed);
    for part in [150, 700] {
        bed.wait("a part of the copy", || inodes(&bed) > start + part);
        assert!(put.try_wait().unwrap().is_none(), "the copy was over before the kill");
        bed.kill();
        bed.up();
    }
    assert!(put.wait().unwrap().success(), "{}", bed.log());
    bed.check();
    bed.ok(["migrate", "--wait", "-r", "tc:/tree"]);
    bed.ok(["purge", "--wait", "-r", "tc:/tree"]);
    let back = bed.path("back");
    bed.ok(["get".as_ref(), "-T".as_ref(), "tc:/tree".as_ref(), back.as_os_str()]);
    assert!(digests(&tree) == digests(&back), "the copy differs");
    bed.check();
}
