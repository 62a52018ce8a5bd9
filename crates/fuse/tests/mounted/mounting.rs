//! Mounting and unmounting, and what is in the way.

use crate::loopback::Loopback;
use crate::{can_mount, eventually, fixture};
use fuse::{Mount, MountError, MountOptions, Place, mount, mount_at};
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

/// A loopback of another directory, mounted inside a mount.
fn inner(top: &Mount, inside: &str, below: &Path) -> Result<Mount, MountError> {
    let _ = fs::create_dir(below);
    mount_at(Loopback::new(below), Place::below(top, Path::new(inside))?, MountOptions::default())
}

#[test]
fn what_is_mounted_inside_a_mount_is_mounted_on_the_directory_that_was_found() {
    let Some(f) = fixture() else { return };
    fs::create_dir_all(f.path("dept/place")).unwrap();
    fs::write(f.path("dept/place/hidden"), b"x").unwrap();
    let free = Place::below(&f.mount, Path::new("/dept/place")).unwrap();
    assert_eq!(free.device(), f.mount.device());
    assert_eq!(free.ino(), std::os::unix::fs::MetadataExt::ino(&fs::metadata(f.path("dept/place")).unwrap()));
    // Somebody changes the way there.
    let other = tempfile::tempdir().unwrap();
    fs::create_dir(other.path().join("place")).unwrap();
    fs::rename(f.path("dept"), f.path("away")).unwrap();
    std::os::unix::fs::symlink(other.path(), f.path("dept")).unwrap();
    assert!(matches!(inner(&f.mount, "dept/place", &f.real("below")), Err(MountError::NotFound { .. })));
    let up = Path::new("../..");
    assert!(matches!(Place::below(&f.mount, up), Err(MountError::NotFound { .. })));

    fs::create_dir(other.path().join("below")).unwrap();
    let options = MountOptions::default();
    let mounted = mount_at(Loopback::new(&other.path().join("below")), free, options).unwrap();
    fs::write(f.path("away/place/file"), b"x").unwrap();
    assert!(other.path().join("below/file").exists() && !f.path("away/place/hidden").exists());
    assert!(fs::read_dir(other.path().join("place")).unwrap().next().is_none());
    assert_eq!(mounted.shown_at().unwrap(), Some(f.path("away/place")));
    let seen = Place::below(&f.mount, Path::new("away/place")).unwrap();
    assert_eq!(seen.device(), mounted.device());
    drop(seen);

    let open = File::open(f.path("away/place/file")).unwrap();
    assert!(matches!(mounted.unmount(), Err(MountError::Busy { .. })));
    drop(open);
    mounted.unmount().unwrap();
    assert!(mounted.has_ended() && f.path("away/place/hidden").exists());
}

#[test]
fn what_was_taken_out_of_the_tree_is_known_to_be_so_while_it_is_used() {
    let Some(f) = fixture() else { return };
    let other = tempfile::tempdir().unwrap();
    let below = other.path().join("below");
    fs::create_dir(f.path("place")).unwrap();
    let first = inner(&f.mount, "place", &below).unwrap();
    let mut open = File::create(f.path("place/file")).unwrap();
    unmount(f.path("place"), UnmountFlags::DETACH).unwrap();
    assert!(first.is_alive() && first.shown_at().unwrap().is_none());
    first.detach();
    let second = inner(&f.mount, "place", &below).unwrap();
    std::io::Write::write_all(&mut open, b"goes on").unwrap();
    assert!(first.is_used() && !first.has_ended());
    drop(open);
    eventually("its end", || first.has_ended());
    assert_eq!(fs::read(f.path("place/file")).unwrap(), b"goes on");

    // What somebody else mounts over it is left alone.
    rustix::mount::mount("none", f.path("place"), "tmpfs", MountFlags::empty(), None).unwrap();
    assert!(matches!(second.unmount(), Err(MountError::Busy { .. })));
    unmount(f.path("place"), UnmountFlags::empty()).unwrap();
    assert!(f.path("place/file").exists());

    // With a mount goes what is mounted in it.
    f.mount.detach();
    assert!(second.shown_at().unwrap().is_none());
    second.detach();
    eventually("the end of both", || second.has_ended() && f.mount.has_ended());
}

#[test]
fn a_dead_mount_inside_a_mount_is_removed() {
    let Some(f) = fixture() else { return };
    fs::create_dir(f.path("place")).unwrap();
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    let flags = MountFlags::empty();
    rustix::mount::mount("dead", f.path("place"), "fuse", flags, Some(data.as_c_str())).unwrap();
    drop(device); // the daemon is gone
    let other = tempfile::tempdir().unwrap();
    let mounted = inner(&f.mount, "place", &other.path().join("below")).unwrap();
    fs::write(f.path("place/works"), b"again").unwrap();
    mounted.unmount().unwrap();
    assert!(fs::read_dir(f.path("place")).unwrap().next().is_none());
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
