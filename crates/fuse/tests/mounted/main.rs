//! The room through a real mount of a loopback implementation. Needs root and /dev/fuse; says so and passes otherwise.

#[path = "../support/loopback.rs"]
mod loopback;

mod child;
mod mounting;
mod offline;
mod passthrough;
mod posix;
mod suite;

use fuse::{Mount, MountOptions};
use loopback::Loopback;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A mounted loopback; unmounted and checked for leaked handles when dropped.
pub struct Fixture {
    dir: tempfile::TempDir,
    /// What is mounted.
    pub api: Arc<Loopback>,
    /// The mount.
    pub mount: Mount,
}

/// Whether this machine can mount; prints why not.
pub fn can_mount() -> bool {
    let able = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !able {
        println!("SKIPPED: mounting needs root and /dev/fuse");
    }
    able
}

/// A mount with other options.
pub fn fixture_with(options: MountOptions) -> Option<Fixture> {
    can_mount().then(|| {
        let dir = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let api = Loopback::new(&dir.path().join("real"));
        let mount = fuse::mount(api.clone(), &dir.path().join("mnt"), options).unwrap();
        Fixture { dir, api, mount }
    })
}

/// A mount with the usual options.
pub fn fixture() -> Option<Fixture> {
    fixture_with(MountOptions { suid: true, ..MountOptions::default() })
}

impl Fixture {
    /// A path inside the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("mnt").join(name)
    }

    /// The same path in the directory below.
    pub fn real(&self, name: &str) -> PathBuf {
        self.dir.path().join("real").join(name)
    }

    /// Makes a file with `content` through the mount and purges it.
    pub fn offline_file(&self, name: &str, content: &[u8]) -> (PathBuf, types::Ino) {
        std::fs::write(self.path(name), content).unwrap();
        self.settled();
        let ino = self.api.ino(&self.real(name));
        self.api.purge(ino);
        (self.path(name), ino)
    }

    /// Waits until the kernel has released every handle (it does so after close(2) returned).
    pub fn settled(&self) {
        eventually("all handles are released", || self.api.open_handles() == 0);
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.api.fail_all(); // or a waiting child could hold this process for ever
            return self.mount.detach();
        }
        self.mount.unmount().unwrap();
        assert_eq!(self.api.open_handles(), 0, "a handle leaked");
    }
}

/// Waits (10 s at most) until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The errno of a failed call.
pub fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}
