//! GNU tar opens every file with O_NONBLOCK.

use e2e::{Bed, can_mount, digests, make_files};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

fn tar(mount: &Path, archive: &Path) -> Output {
    Command::new("tar").arg("-cf").arg(archive).arg("-C").arg(mount).arg("tree").output().expect("tar starts")
}

/// By default tar says that it could not read offline files; on a mount with `--nonblock wait` it waits for them.
#[test]
fn tar_needs_a_mount_that_waits() {
    if !can_mount("tar of offline files") {
        return;
    }
    let bed = Bed::new(
        "[library]\ncartridge_capacity = \"256 MiB\"\n[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\n",
    );
    bed.up_mounted();
    let waiting = bed.path("waiting");
    std::fs::create_dir(&waiting).unwrap();
    bed.ok([OsStr::new("mount"), "--nonblock".as_ref(), "wait".as_ref(), waiting.as_os_str()]);
    let tree = bed.mount().join("tree");
    make_files(&tree, 12, 200_000);
    let content = digests(&tree);
    for act in ["migrate", "purge"] {
        bed.ok([OsStr::new(act), "--wait".as_ref(), "-r".as_ref(), tree.as_os_str()]);
    }
    let archive = bed.path("archive.tar");
    let refused = tar(&bed.mount(), &archive);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("Resource temporarily unavailable"), "{said}");
    // What tar asked for comes back all the same; it is sent away again.
    bed.ok([OsStr::new("stage"), "--wait".as_ref(), "-r".as_ref(), tree.as_os_str()]);
    bed.ok([OsStr::new("purge"), "--wait".as_ref(), "-r".as_ref(), tree.as_os_str()]);
    let read = tar(&waiting, &archive);
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let back = bed.path("back");
    std::fs::create_dir(&back).unwrap();
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&back).status().unwrap();
    assert!(unpacked.success());
    assert!(digests(&back.join("tree")) == content, "the archive differs");
    bed.ok([OsStr::new("umount"), waiting.as_os_str()]);
    bed.check();
}
