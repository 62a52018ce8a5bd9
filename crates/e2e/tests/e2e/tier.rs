//! A disk tier smaller than the data: migration and purge keep up while programs write.

use e2e::{Bed, can_mount, digests, make_files, noise};
use std::process::Command;

const CONFIG: &str = "
[disk]
capacity = \"48 MiB\"
space_wait_s = 5
[library]
cartridge_capacity = \"256 MiB\"
[[classes]]
name = \"default\"
copies = [\"primary\", \"second\"]
migrate_after_s = 1
migrate_bytes = \"4 MiB\"
";

#[test]
fn a_copy_larger_than_the_disk_tier() {
    if !can_mount("copy larger than the disk tier") {
        return;
    }
    let bed = Bed::new(CONFIG);
    make_files(&bed.path("tree"), 100, 1 << 20);
    make_files(&bed.path("tree/small"), 400, 4000);
    bed.up_mounted();
    let (tree, mount) = (bed.path("tree"), bed.mount());
    let copied = Command::new("cp").arg("-a").args([tree.as_os_str(), mount.as_os_str()]).status().unwrap();
    assert!(copied.success(), "cp failed; log:\n{}", bed.log());
    bed.ok(["migrate".as_ref(), "--wait".as_ref(), "-r".as_ref(), mount.join("tree").as_os_str()]);
    let disk = &bed.json(["status"])["disk"];
    assert!(disk["used"].as_u64().unwrap() <= disk["capacity"].as_u64().unwrap(), "{disk}");
    // Reading recalls what was purged, again more than fits.
    assert!(digests(&tree) == digests(&mount.join("tree")), "the copy differs");
    bed.check();
}

/// Nothing may be released: writing ends with ENOSPC, and what was there is untouched.
#[test]
fn a_full_tier_of_pinned_files_refuses_more() {
    if !can_mount("full disk tier") {
        return;
    }
    let bed = Bed::new(&CONFIG.replace("space_wait_s = 5", "space_wait_s = 2"));
    bed.up_mounted();
    let mount = bed.mount();
    std::fs::create_dir(mount.join("kept")).unwrap();
    make_files(&bed.path("tree"), 20, 1 << 20);
    let tree = bed.path("tree");
    let kept = mount.join("kept");
    assert!(
        Command::new("cp").arg("-a").args([tree.as_os_str(), kept.as_os_str()]).status().unwrap().success()
    );
    bed.ok(["pin".as_ref(), "-r".as_ref(), kept.as_os_str()]);
    let mut refused = None;
    for n in 0..40u64 {
        let path = kept.join(format!("more {n}"));
        if let Err(e) =
            std::fs::write(&path, noise(n, 2 << 20)).and_then(|()| std::fs::File::open(&path)?.sync_all())
        {
            refused = Some(e);
            break;
        }
        bed.ok(["pin".as_ref(), path.as_os_str()]);
    }
    let refused = refused.expect("80 MiB of pinned files do not fit into 48 MiB");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{refused}");
    assert!(digests(&tree) == digests(&kept.join("tree")), "files changed when the tier was full");
    bed.check();
    // Unpinning lets it go on.
    bed.ok(["unpin".as_ref(), "-r".as_ref(), kept.as_os_str()]);
    bed.wait("space", || std::fs::write(mount.join("after"), noise(99, 1 << 20)).is_ok());
}
