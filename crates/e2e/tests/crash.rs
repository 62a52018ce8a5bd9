//! kill -9 in the middle: what was acknowledged stays, interrupted copies go on.

use e2e::{Bed, can_mount, digest, digests, make_files, noise, write_synced};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

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

/// Files whose fsync returned before the kill are whole after it, with migration running all the time.
#[test]
fn fsynced_files_are_whole_after_a_kill() {
    if !can_mount("kill -9 under a mount") {
        return;
    }
    let bed = Bed::new(CONFIG);
    bed.up_mounted();
    let acknowledged = Mutex::new(Vec::new());
    for round in 0..3u64 {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for writer in 0..3u64 {
                let (bed, acknowledged) = (&bed, &acknowledged);
                scope.spawn(move || write_until_killed(&bed.mount(), round * 10 + writer, acknowledged));
            }
            bed.wait("some files", || {
                acknowledged.lock().unwrap().len() as u64 > 30 * (round + 1)
                    && started.elapsed() > Duration::from_millis(400 + 170 * round)
            });
            bed.kill();
        });
        bed.up_mounted();
        for (name, expected) in acknowledged.lock().unwrap().iter() {
            let path = bed.mount().join(name);
            let data = std::fs::read(&path).unwrap_or_else(|e| panic!("round {round}: {name}: {e}"));
            assert!(digest(&data) == *expected, "round {round}: {name} is not what was acknowledged");
        }
        bed.check();
    }
}

fn write_until_killed(mount: &Path, writer: u64, acknowledged: &Mutex<Vec<(String, String)>>) {
    for n in 0..100_000u64 {
        let name = format!("w{writer} {n}");
        let data = noise(writer << 32 | n, 100 + (n as usize * 3571) % 150_000);
        match write_synced(&mount.join(&name), &data) {
            Ok(()) => acknowledged.lock().unwrap().push((name, digest(&data))),
            Err(_) => return, // the node is gone
        }
    }
}
