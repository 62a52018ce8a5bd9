//! The general suite (`crates/posix`) through the mount; the same expectations hold on ext4 (`crates/posix/tests/native.rs`).

use crate::fixture_with;
use fuse::MountOptions;
use posix::{Host, Part};

struct Mounted;

impl Host for Mounted {}

#[test]
fn the_mount_does_what_ext4_does() {
    let options = MountOptions { suid: true, dev: true, ..MountOptions::default() };
    let Some(f) = fixture_with(options) else { return };
    let dir = f.path("suite");
    std::fs::create_dir(&dir).unwrap();
    posix::run(Part::General, &dir, &Mounted).check("the mount over a directory", posix::MOUNT);
}
