//! What programs expect of any local file system.

use crate::{child, errno, eventually, fixture, fixture_with};
use fuse::MountOptions;
use rustix::fs::{self as rfs, AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use types::Ino;

#[test]
fn names() {
    let Some(f) = fixture() else { return };
    fs::create_dir(f.path("d")).unwrap();
    fs::write(f.path("d/a"), b"one").unwrap();
    fs::hard_link(f.path("d/a"), f.path("b")).unwrap();
    symlink("d/a", f.path("s")).unwrap();
    assert_eq!(fs::read(f.path("s")).unwrap(), b"one");
    assert_eq!(fs::read_link(f.path("s")).unwrap(), Path::new("d/a"));
    assert_eq!(fs::metadata(f.path("b")).unwrap().nlink(), 2);
    assert_eq!(errno(fs::remove_dir(f.path("d"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::create_dir(f.path("d"))), libc::EEXIST);
    assert_eq!(errno(fs::read(f.path("none"))), libc::ENOENT);
    assert_eq!(errno(fs::read(f.path("b/x"))), libc::ENOTDIR);
    assert_eq!(errno(File::create(f.path(&"n".repeat(256)))), libc::ENAMETOOLONG);
    fs::write(f.path(&"n".repeat(255)), b"").unwrap();
    fs::remove_file(f.path("d/a")).unwrap();
    assert_eq!(fs::metadata(f.path("b")).unwrap().nlink(), 1);
    fs::remove_dir(f.path("d")).unwrap();
    assert_eq!(errno(fs::metadata(f.path("s"))), libc::ENOENT);
}

#[test]
fn special_files() {
    let Some(f) = fixture_with(MountOptions { dev: true, ..MountOptions::default() }) else { return };
    let device = rfs::makedev(1, 3);
    rfs::mknodat(CWD, f.path("null"), rfs::FileType::CharacterDevice, Mode::from_raw_mode(0o666), device)
        .unwrap();
    assert_eq!(fs::metadata(f.path("null")).unwrap().rdev(), device);
    fs::write(f.path("null"), b"gone").unwrap();
    rfs::mknodat(CWD, f.path("fifo"), rfs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let (to, from) = (f.path("fifo"), f.path("fifo"));
    let writer = std::thread::spawn(move || fs::write(to, b"through").unwrap());
    assert_eq!(fs::read(from).unwrap(), b"through");
    writer.join().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(f.path("sock")).unwrap();
    std::os::unix::net::UnixStream::connect(f.path("sock")).unwrap();
}

#[test]
fn renames() {
    let Some(f) = fixture() else { return };
    let rename = |from: &str, to: &str, flags| rfs::renameat_with(CWD, f.path(from), CWD, f.path(to), flags);
    fs::write(f.path("a"), b"a").unwrap();
    fs::write(f.path("b"), b"b").unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(f.path("a")).unwrap(), fs::read(f.path("b")).unwrap()), (b"b".into(), b"a".into()));
    assert_eq!(rename("a", "c", RenameFlags::WHITEOUT), Err(rustix::io::Errno::INVAL));
    let kept = File::open(f.path("b")).unwrap();
    rename("a", "b", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(f.path("b")).unwrap(), b"b");
    let mut old = String::new();
    (&kept).read_to_string(&mut old).unwrap();
    assert_eq!(old, "a", "the replaced file lives on in its handle");
    fs::create_dir(f.path("d")).unwrap();
    assert_eq!(rename("b", "d", RenameFlags::empty()), Err(rustix::io::Errno::ISDIR));
    assert_eq!(rename("d", "d/e", RenameFlags::empty()), Err(rustix::io::Errno::INVAL));
}

#[test]
fn open_flags() {
    let Some(f) = fixture() else { return };
    let path = f.path("file");
    fs::write(&path, b"0123456789").unwrap();
    assert_eq!(errno(OpenOptions::new().write(true).create_new(true).open(&path)), libc::EEXIST);
    let mut one = OpenOptions::new().append(true).open(&path).unwrap();
    let mut two = OpenOptions::new().append(true).open(&path).unwrap();
    one.write_all(b"A").unwrap();
    two.write_all(b"B").unwrap();
    one.write_all(b"C").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"0123456789ABC");
    let kept = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    File::create(&path).unwrap();
    assert_eq!(kept.metadata().unwrap().len(), 0, "O_TRUNC is seen by other handles");
    kept.write_all_at(b"x", 4999).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 5000);
    let mut direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let mut rest = Vec::new();
    // reads to an unaligned buffer may be refused by the file system below, as they are without this one
    match direct.read_to_end(&mut rest) {
        Ok(_) => assert_eq!(rest.len(), 5000),
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EINVAL)),
    }
    assert_eq!(
        errno(OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(f.path(""))),
        libc::EOPNOTSUPP
    );
    let mask = rustix::process::umask(Mode::from_raw_mode(0o027));
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o666).open(f.path("masked"));
    rustix::process::umask(mask);
    assert_eq!(made.unwrap().metadata().unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn truncate_and_sizes() {
    let Some(f) = fixture() else { return };
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(f.path("t")).unwrap();
    file.write_all_at(b"hello world", 0).unwrap();
    file.set_len(5).unwrap();
    assert_eq!(fs::read(f.path("t")).unwrap(), b"hello");
    file.set_len(8).unwrap();
    assert_eq!(fs::read(f.path("t")).unwrap(), b"hello\0\0\0");
    assert_eq!(file.metadata().unwrap().len(), 8);
    rfs::fallocate(&file, rfs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    let seen = file.metadata().unwrap();
    assert_eq!(seen.len(), 1 << 20);
    assert!(seen.blocks() * 512 >= 1 << 20);
    rfs::fallocate(&file, rfs::FallocateFlags::KEEP_SIZE | rfs::FallocateFlags::PUNCH_HOLE, 0, 1 << 19)
        .unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(f.path("")).unwrap().sync_all().unwrap();
    // what was written since the last stat is seen by the next one
    for n in 1..50u64 {
        file.write_all_at(b"y", (1 << 20) + n).unwrap();
        assert_eq!(fs::metadata(f.path("t")).unwrap().len(), (1 << 20) + n + 1);
    }
}

#[test]
fn sparse_files() {
    let Some(f) = fixture() else { return };
    let file = File::create(f.path("sparse")).unwrap();
    file.write_all_at(b"data", 1 << 20).unwrap();
    let file = File::open(f.path("sparse")).unwrap();
    assert_eq!(rfs::seek(&file, rfs::SeekFrom::Data(0)).unwrap(), 1 << 20);
    assert_eq!(rfs::seek(&file, rfs::SeekFrom::Hole(0)).unwrap(), 0);
    assert_eq!(rfs::seek(&file, rfs::SeekFrom::Data(2 << 20)), Err(rustix::io::Errno::NXIO));
    assert!(file.metadata().unwrap().blocks() < 100);
}

#[test]
fn attributes() {
    let Some(f) = fixture() else { return };
    let path = f.path("a");
    fs::write(&path, b"").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4751);
    std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    let seen = fs::metadata(&path).unwrap();
    assert_eq!((seen.uid(), seen.gid()), (1234, 4321));
    assert_eq!(seen.mode() & 0o7777, 0o751, "chown clears set-user-id");
    for (secs, nanos) in [(1_700_000_000, 123_456_789), (0, 1), (-1, 500_000_000), (-86_400, 0)] {
        let t = rfs::Timespec { tv_sec: secs, tv_nsec: nanos };
        let times = rfs::Timestamps { last_access: t, last_modification: t };
        rfs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let seen = fs::metadata(&path).unwrap();
        assert_eq!(
            (seen.mtime(), seen.mtime_nsec(), seen.atime(), seen.atime_nsec()),
            (secs, nanos, secs, nanos)
        );
    }
    let now = rfs::Timespec { tv_sec: 0, tv_nsec: rfs::UTIME_NOW };
    let omit = rfs::Timespec { tv_sec: 0, tv_nsec: rfs::UTIME_OMIT };
    let times = rfs::Timestamps { last_access: omit, last_modification: now };
    rfs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    let seen = fs::metadata(&path).unwrap();
    assert_eq!(seen.atime(), -86_400);
    assert!(seen.mtime() > 1_700_000_000);
    assert!(seen.ctime() > 1_700_000_000);
}

#[test]
fn permissions_are_the_kernels() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("mine"), b"secret").unwrap();
    fs::set_permissions(f.path("mine"), PermissionsExt::from_mode(0o600)).unwrap();
    assert!(child::run("denied", &f.path("mine"), 1000));
    fs::set_permissions(f.path("mine"), PermissionsExt::from_mode(0o604)).unwrap();
    assert!(child::run("read-as-user", &f.path("mine"), 1000));
}

#[test]
fn a_write_by_another_user_clears_set_id_bits() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("tool"), b"#!").unwrap();
    fs::set_permissions(f.path("tool"), PermissionsExt::from_mode(0o6777)).unwrap();
    assert!(child::run("append-as-user", &f.path("tool"), 1000));
    assert_eq!(fs::metadata(f.path("tool")).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(fs::read(f.path("tool")).unwrap(), b"#!x");
}

#[test]
fn set_id_bits_given_while_another_user_writes_do_not_survive_his_next_write() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("tool"), b"#!").unwrap();
    fs::set_permissions(f.path("tool"), PermissionsExt::from_mode(0o777)).unwrap();
    let mut writer = child::start("append-until-set-id", &f.path("tool"), 1000);
    eventually("the other user has written", || fs::read(f.real("tool")).unwrap() == b"#!x");
    fs::set_permissions(f.path("tool"), PermissionsExt::from_mode(0o6777)).unwrap();
    assert!(writer.wait().unwrap().success());
    assert_eq!(fs::read(f.path("tool")).unwrap(), b"#!xy");
    assert_eq!(fs::metadata(f.path("tool")).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn listings() {
    let Some(f) = fixture() else { return };
    fs::create_dir(f.path("d")).unwrap();
    for i in 0..3000 {
        File::create(f.real(&format!("d/{i:04}"))).unwrap();
    }
    let names = |path| {
        let mut all: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
        all.sort();
        all
    };
    let expected: Vec<std::ffi::OsString> = (0..3000).map(|i| format!("{i:04}").into()).collect();
    assert_eq!(names(f.path("d")), expected);
    for entry in fs::read_dir(f.path("d")).unwrap() {
        entry.unwrap().metadata().unwrap(); // with attributes
    }
    // removing what was listed while listing skips nothing
    for entry in fs::read_dir(f.path("d")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert!(names(f.path("d")).is_empty());
    let dir = rfs::open(f.path("d"), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let dots: Vec<_> = rfs::Dir::read_from(&dir).unwrap().map(|e| e.unwrap()).collect();
    let mut dots: Vec<_> = dots.iter().map(|e| (e.file_name().to_str().unwrap(), e.ino())).collect();
    dots.sort();
    let (own, up) = (fs::metadata(f.path("d")).unwrap().ino(), fs::metadata(f.path("")).unwrap().ino());
    assert_eq!(dots, [(".", own), ("..", up)]);
}

#[test]
fn extended_attributes() {
    let Some(f) = fixture() else { return };
    let path = f.path("x");
    fs::write(&path, b"").unwrap();
    let get = |name: &str, size| {
        let mut value = vec![0; size];
        rfs::getxattr(&path, name, &mut value).map(|n| value[..n.min(size)].to_vec())
    };
    assert_eq!(get("user.a", 10), Err(rustix::io::Errno::NODATA));
    rfs::setxattr(&path, "user.a", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(rfs::setxattr(&path, "user.a", b"v", XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
    assert_eq!(rfs::setxattr(&path, "user.b", b"v", XattrFlags::REPLACE), Err(rustix::io::Errno::NODATA));
    assert_eq!(get("user.a", 10), Ok(b"value".to_vec()));
    assert_eq!(get("user.a", 2), Err(rustix::io::Errno::RANGE));
    let raw = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: two strings that end in NUL; size 0 means that nothing is written
    let length = unsafe { libc::getxattr(raw.as_ptr(), c"user.a".as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!(length, 5, "size 0 asks for the length");
    let mut list = [0; 100];
    let n = rfs::listxattr(&path, &mut list).unwrap();
    assert_eq!(&list[..n], b"user.a\0");
    rfs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rfs::removexattr(&path, "user.a"), Err(rustix::io::Errno::NODATA));
    assert_eq!(get("security.selinux", 10), Err(rustix::io::Errno::OPNOTSUPP));
    let acl = [2, 0, 0, 0];
    assert_eq!(
        rfs::setxattr(&path, "system.posix_acl_access", &acl, XattrFlags::empty()),
        Err(rustix::io::Errno::OPNOTSUPP)
    );
}

#[test]
fn locks() {
    let Some(f) = fixture() else { return };
    let path = f.path("locked");
    fs::write(&path, [0; 100]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert!(child::lock_file(&file, libc::F_SETLK));
    assert!(child::run("lock-busy", &path, 0));
    drop(file);
    assert!(child::run("lock-free", &path, 0));
    let file = File::open(&path).unwrap();
    rfs::flock(&file, rfs::FlockOperation::LockExclusive).unwrap();
    assert!(child::run("flock-busy", &path, 0));
    drop(file);
    assert!(child::run("flock-free", &path, 0));
}

#[test]
fn programs_and_scripts_run_from_the_mount() {
    let Some(f) = fixture() else { return };
    fs::copy("/bin/true", f.path("true")).unwrap();
    fs::write(f.path("script"), b"#!/bin/sh\nexit 7\n").unwrap();
    fs::set_permissions(f.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
    f.settled();
    assert!(std::process::Command::new(f.path("true")).status().unwrap().success());
    assert_eq!(std::process::Command::new(f.path("script")).status().unwrap().code(), Some(7));
}

#[test]
fn unlinked_files_live_until_closed() {
    let Some(f) = fixture() else { return };
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(f.path("gone")).unwrap();
    fs::remove_file(f.path("gone")).unwrap();
    file.write_all(b"still here").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(errno(File::open(f.path("gone"))), libc::ENOENT);
}

#[test]
fn space_figures() {
    let Some(f) = fixture() else { return };
    let (seen, below) = (rfs::statvfs(f.path("")).unwrap(), rfs::statvfs(f.real("")).unwrap());
    assert_eq!(seen.f_blocks * seen.f_frsize, below.f_blocks * below.f_frsize);
    assert_eq!(seen.f_namemax, 255);
    assert!(seen.f_files > 0 && seen.f_bavail > 0);
}

#[test]
fn what_cannot_be_is_refused_as_programs_expect() {
    let Some(f) = fixture() else { return };
    let file = File::create(f.path("x")).unwrap();
    // SAFETY: FS_IOC_GETVERSION writes one long at most
    let rc = unsafe {
        let mut version: libc::c_long = 0;
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&file), 0x8008_7601, &mut version)
    };
    assert_eq!((rc, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOTTY)));
    let mut polled = [rustix::event::PollFd::new(&file, rustix::event::PollFlags::OUT)];
    assert_eq!(rustix::event::poll(&mut polled, None).unwrap(), 1);
}

#[test]
fn names_of_other_gateways_appear_and_vanish() {
    let Some(f) = fixture() else { return };
    let looked = |name: &str| f.path(name).exists();
    assert!(!looked("late"));
    let before = f.api.count.lookups.load(Relaxed);
    assert!(!looked("late"));
    assert_eq!(f.api.count.lookups.load(Relaxed), before, "an absent name is cached");
    fs::write(f.real("late"), b"x").unwrap();
    f.api.entry_changed(Ino::ROOT, b"late");
    eventually("the name appears", || looked("late"));
    let before = f.api.count.lookups.load(Relaxed);
    assert!(looked("late"));
    assert_eq!(f.api.count.lookups.load(Relaxed), before, "a present name is cached");
    fs::remove_file(f.real("late")).unwrap();
    f.api.entry_changed(Ino::ROOT, b"late");
    eventually("the name vanishes", || !looked("late"));
}

#[test]
fn a_kernel_that_keeps_nothing_answers_for_a_moment_for_what_it_has_already_and_is_told_of_changes() {
    let options = MountOptions { ttl: Duration::ZERO, passthrough: false, ..MountOptions::default() };
    let Some(f) = fixture_with(options) else { return };
    fs::create_dir(f.real("dir")).unwrap();
    fs::write(f.real("dir/file"), b"text").unwrap();
    let asked = || f.api.count.getattrs.load(Relaxed);
    let asks = |times: u64| {
        let before = asked();
        for _ in 0..times {
            fs::symlink_metadata(f.path("dir/file")).unwrap();
        }
        asked() - before
    };
    asks(1);
    assert!(asks(10) >= 10, "nothing may be kept");
    *f.api.term.lock().unwrap() = Duration::from_secs(1000);
    asks(1);
    assert_eq!(asks(10), 0, "each name that was looked up said enough");
    // Of what is new to the kernel nobody could tell it in time.
    fs::write(f.real("dir/other"), b"text").unwrap();
    let before = asked();
    fs::symlink_metadata(f.path("dir/other")).unwrap();
    assert_eq!(asked(), before + 1);
    let held = rfs::open(f.path("dir/file"), OFlags::PATH, Mode::empty()).unwrap();
    let mode = || rfs::fstat(&held).unwrap().st_mode & 0o777;
    let before = mode();
    for changed in [0o604, 0o640, 0o600] {
        fs::set_permissions(f.real("dir/file"), fs::Permissions::from_mode(changed)).unwrap();
        if changed == 0o604 {
            assert_eq!(mode(), before, "nobody has told it");
        }
        f.api.attributes_changed(f.api.ino(&f.real("dir/file")));
        assert_eq!(mode(), changed);
    }
}

#[test]
fn a_kernel_that_keeps_nothing_is_told_of_a_new_file_once() {
    let options = MountOptions { ttl: Duration::ZERO, passthrough: false, ..MountOptions::default() };
    let Some(f) = fixture_with(options) else { return };
    let asked = || f.api.count.getattrs.load(Relaxed);
    let made = |n: u32| {
        let before = asked();
        let file = fs::File::create_new(f.path(&format!("new-{n}"))).unwrap();
        (file, asked() - before)
    };
    // Of the root the kernel may answer.
    *f.api.term.lock().unwrap() = Duration::from_secs(1000);
    fs::metadata(f.path("")).unwrap();
    // Where this process stands still for a moment the file is asked for.
    assert_eq!((0..20).map(|n| made(n).1).min(), Some(0));
    // Who looks afterwards sees what it has become, however soon.
    let (file, _) = made(30);
    fs::write(f.real("new-30"), b"text").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4);
    let (file, _) = made(31);
    file.set_permissions(fs::Permissions::from_mode(0o604)).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o604);
    // Nobody has made what is there.
    let before = asked();
    let there = fs::File::options().create(true).append(true).open(f.path("new-31")).unwrap();
    assert!(asked() > before && there.metadata().is_ok());
}

#[test]
fn what_is_written_with_o_sync_is_synced_before_it_is_answered() {
    let Some(f) = fixture_with(MountOptions { passthrough: false, ..MountOptions::default() }) else {
        return;
    };
    for served in [false, true] {
        f.api.pressure.store(served, Relaxed);
        let name = format!("synced-{served}");
        fs::write(f.real(&name), b"text").unwrap();
        for (flag, syncs) in [(0, 0), (libc::O_DSYNC, 3), (libc::O_SYNC, 3)] {
            let file = fs::File::options().write(true).custom_flags(flag).open(f.path(&name)).unwrap();
            let before = f.api.count.fsyncs.load(Relaxed);
            for _ in 0..3 {
                file.write_all_at(b"more", 0).unwrap();
            }
            assert_eq!(f.api.count.fsyncs.load(Relaxed) - before, syncs, "served: {served}, flag {flag:#o}");
        }
    }
    f.api.pressure.store(false, Relaxed);
}

#[test]
fn a_panic_is_an_io_error_for_one_call_only() {
    let Some(f) = fixture_with(MountOptions { threads: 1, ..MountOptions::default() }) else { return };
    f.api.panic_once.store(true, Relaxed);
    assert_eq!(errno(fs::metadata(f.path("a"))), libc::EIO);
    assert_eq!(errno(fs::metadata(f.path("a"))), libc::ENOENT);
}

#[test]
fn absurd_times_do_not_end_the_mount() {
    let Some(f) = fixture_with(MountOptions { threads: 1, ..MountOptions::default() }) else { return };
    fs::write(f.path("a"), b"").unwrap();
    for tv_sec in [i64::MIN, i64::MIN + 1, i64::MAX] {
        let t = rfs::Timespec { tv_sec, tv_nsec: 999_999_999 };
        let times = rfs::Timestamps { last_access: t, last_modification: t };
        let _ = rfs::utimensat(CWD, f.path("a"), &times, AtFlags::empty());
    }
    fs::write(f.path("b"), b"alive").unwrap();
}

#[test]
fn dots_and_file_handles_resolve() {
    let Some(f) = fixture() else { return };
    fs::create_dir(f.path("d")).unwrap();
    fs::write(f.path("d/file"), b"by handle").unwrap();
    assert_eq!(fs::read(f.path("d/../d/./file")).unwrap(), b"by handle");
    // open_by_handle_at(2), as an NFS server uses it: the kernel asks for the inode by its number
    let file = rfs::open(f.path("d/file"), OFlags::PATH, Mode::empty()).unwrap();
    let mut buffer = [0u64; 18]; // struct file_handle: length, type, bytes
    buffer[0] = 128;
    let (at, mut mount) = (buffer.as_mut_ptr().cast(), 0);
    let root = File::open(f.path("")).unwrap();
    // SAFETY: the buffer holds the header and as many bytes as it says
    let opened = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert_eq!(libc::name_to_handle_at(fd, c"".as_ptr(), at, &mut mount, libc::AT_EMPTY_PATH), 0);
        let root = std::os::fd::AsRawFd::as_raw_fd(&root);
        libc::open_by_handle_at(root, at, libc::O_RDONLY)
    };
    assert!(opened >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a descriptor that was just opened and belongs to nobody else
    let mut opened: File = unsafe { std::os::fd::FromRawFd::from_raw_fd(opened) };
    let mut text = String::new();
    opened.read_to_string(&mut text).unwrap();
    assert_eq!(text, "by handle");
}

/// While a program is started the kernel lets nobody look at it, and asks us to close its files.
#[test]
fn a_process_with_many_files_open_starts_programs() {
    let options = MountOptions { locks: true, ..MountOptions::default() };
    let Some(f) = fixture_with(options) else { return };
    let files: Vec<File> = (0..100).map(|n| File::create(f.path(&n.to_string())).unwrap()).collect();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let ran: Vec<bool> =
            (0..3).map(|_| std::process::Command::new("true").status().unwrap().success()).collect();
        let _ = done.send(ran);
    });
    let ran = ended.recv_timeout(std::time::Duration::from_secs(20)).expect("the mount stands still");
    assert_eq!(ran, [true; 3]);
    assert!(f.api.count.flushes.load(Relaxed) >= 300);
    drop(files);
}

#[test]
fn who_closes_and_waits_for_his_bytes_to_be_taken_keeps_nobody_from_syncing() {
    let Some(f) = fixture() else { return };
    f.api.pressure.store(true, Relaxed);
    let files: Vec<File> = (0..40).map(|n| File::create(f.path(&n.to_string())).unwrap()).collect();
    let other = File::create(f.path("other")).unwrap();
    let held = f.api.closing.lock().unwrap();
    let closing: Vec<_> = files.into_iter().map(|file| std::thread::spawn(move || drop(file))).collect();
    eventually("many close", || f.api.count.flushes.load(Relaxed) >= 16);
    let (done, ended) = std::sync::mpsc::channel();
    let synced = std::thread::spawn(move || done.send(other.sync_all().is_ok()).unwrap());
    let in_time = ended.recv_timeout(std::time::Duration::from_secs(20));
    assert!(fs::metadata(f.path("other")).is_ok(), "the mount answers");
    drop(held);
    closing.into_iter().for_each(|one| one.join().unwrap());
    synced.join().unwrap();
    assert_eq!(in_time, Ok(true), "fsync waits for who closes other files");
}

#[test]
fn who_opens_for_writing_what_is_read_elsewhere_waits_alone() {
    let Some(f) = fixture_with(MountOptions { threads: 1, ..MountOptions::default() }) else { return };
    for name in ["open", "truncate", "shorten", "other"] {
        fs::write(f.path(name), b"before").unwrap();
    }
    let shortened = OpenOptions::new().write(true).open(f.path("shorten")).unwrap();
    // The kernel knows that there is none, and asks for one to be made.
    fs::create_dir(f.path("dir")).unwrap();
    assert!(fs::metadata(f.path("dir/made")).is_err());
    fs::write(f.real("dir/made"), b"elsewhere").unwrap();
    let held = f.api.ending.lock().unwrap();
    f.api.read_elsewhere.store(true, Relaxed);
    let opens = |name: &str, truncate| {
        let (path, create) = (f.path(name), name == "dir/made");
        let open =
            move || OpenOptions::new().write(true).create(create).truncate(truncate).open(path).map(drop);
        std::thread::spawn(open)
    };
    let waiting = [opens("open", false), opens("truncate", true), opens("dir/made", false)];
    let shortening = std::thread::spawn(move || shortened.set_len(0));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually("all wait", || f.api.count.ended.load(Relaxed) == 4);
        fs::write(f.path("new"), b"new").unwrap();
        assert_eq!(fs::read(f.path("other")).unwrap(), b"before");
    }));
    drop(held);
    waiting.into_iter().for_each(|one| one.join().unwrap().unwrap());
    shortening.join().unwrap().unwrap();
    assert!(done.is_ok(), "the mount stands still");
    let length = |name| fs::metadata(f.path(name)).unwrap().len();
    assert_eq!([length("open"), length("truncate"), length("shorten"), length("dir/made")], [6, 0, 0, 9]);
}
