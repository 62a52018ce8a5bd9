//! Mounting and unmounting, and what is in the way.

use crate::loopback::Loopback;
use crate::{can_mount, eventually, fixture};
use fuse::{MountError, MountOptions, mount};
use rustix::mount::{MountFlags, UnmountFlags, unmount};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

fn try_mount(at: &Path) -> Result<fuse::Mount, MountError> {
    let below = at.parent().unwrap().join("below");
    let _ = fs::create_dir(&below);
    mount(Loopback::new(&below), at, MountOptions::default())
}

#[test]
fn what_is_in_the_way_is_named() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(matches!(try_mount(&at("none")), Err(MountError::Missing { .. })));
    fs::write(at("file"), b"").unwrap();
    assert!(matches!(try_mount(&at("file")), Err(MountError::NotADirectory { .. })));
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/file"), b"").unwrap();
    assert!(matches!(try_mount(&at("full")), Err(MountError::NotEmpty { .. })));
    fs::create_dir(at("mnt")).unwrap();
    let first = try_mount(&at("mnt")).unwrap();
    let second = try_mount(&at("mnt"));
    let text = second.err().unwrap().to_string();
    assert!(text.contains("already mounted") && text.contains(at("mnt").to_str().unwrap()), "{text}");
    first.unmount().unwrap();
}

#[test]
fn a_busy_mount_is_refused_until_it_is_free() {
    let Some(f) = fixture() else { return };
    let open = File::create(f.path("open")).unwrap();
    assert!(matches!(f.mount.unmount(), Err(MountError::Busy { .. })));
    assert!(f.mount.is_alive());
    fs::write(f.path("works"), b"still").unwrap();
    drop(open);
    f.mount.unmount().unwrap();
    assert!(!f.mount.is_alive());
    f.mount.unmount().unwrap(); // again does nothing
    assert!(!f.path("works").exists());
}

#[test]
fn a_detached_mount_serves_what_is_open() {
    let Some(f) = fixture() else { return };
    let (path, ino) = f.offline_file("tape", b"far away");
    let reader = std::thread::spawn(move || fs::read(path).unwrap());
    eventually("the reader waits", || f.api.waiting(ino) == 1);
    f.mount.detach();
    assert!(!f.path("tape").exists());
    f.api.arrive(ino, 8);
    assert_eq!(reader.join().unwrap(), b"far away");
    f.settled();
}

#[test]
fn an_external_unmount_is_noticed_and_nothing_else_is_unmounted() {
    let Some(f) = fixture() else { return };
    unmount(f.path(""), UnmountFlags::empty()).unwrap();
    eventually("the end is noticed", || !f.mount.is_alive());
    let flags = MountFlags::empty();
    rustix::mount::mount("none", f.path(""), "tmpfs", flags, None).unwrap();
    fs::write(f.path("theirs"), b"x").unwrap();
    f.mount.unmount().unwrap();
    assert!(f.path("theirs").exists(), "the other mount is still there");
    unmount(f.path(""), UnmountFlags::empty()).unwrap();
}

#[test]
fn the_dead_mount_of_a_crashed_daemon_is_replaced() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("mnt");
    fs::create_dir(&at).unwrap();
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    rustix::mount::mount("dead", &at, "fuse", MountFlags::empty(), Some(data.as_c_str())).unwrap();
    drop(device); // the daemon is gone
    assert_eq!(fs::metadata(&at).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    let mount = try_mount(&at).unwrap();
    fs::write(at.join("works"), b"again").unwrap();
    mount.unmount().unwrap();
}

#[test]
fn read_ahead_is_raised() {
    let Some(f) = fixture() else { return };
    let seen = rustix::fs::stat(f.path("")).unwrap().st_dev;
    let path =
        format!("/sys/class/bdi/{}:{}/read_ahead_kb", rustix::fs::major(seen), rustix::fs::minor(seen));
    if let Ok(text) = fs::read_to_string(path) {
        assert_eq!(text.trim(), "1024");
    }
}
