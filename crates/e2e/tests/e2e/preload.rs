//! Programs that know nothing of it, with the preload library: every byte is where it is without it.

use e2e::preloaded::{Preloaded, judge, run};
use e2e::{Bed, can_mount};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// Bytes go past the mount only where it does not hand files to the kernel: there it makes a difference.
const SERVED: &str = "passthrough = false\n[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\n";
const PASSED: &str = "[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\n";

fn mounted(config: &str) -> Option<Bed> {
    can_mount("programs with the preload library").then(|| {
        let bed = Bed::new(config);
        bed.up_mounted();
        bed
    })
}

fn preloaded(bed: &Bed) -> Preloaded {
    Preloaded::new(bed.path("preload.log"))
}

/// Every file and all that is printed is the same with the library and without.
#[test]
fn programs_do_what_they_do_without_it() {
    for config in [SERVED, PASSED] {
        let Some(bed) = mounted(config) else { return };
        preloaded(&bed).does_the_same(&bed.mount());
        bed.check();
    }
}

/// Random calls on a descriptor, its copies, in children and other programs, by mappings and lengths set.
#[test]
fn random_calls_on_descriptors_give_what_was_written() {
    for config in [SERVED, PASSED] {
        let Some(bed) = mounted(config) else { return };
        preloaded(&bed).calls_at_random(&bed.mount(), 1..9);
        bed.check();
    }
}

/// What one program with the library writes others see at once without it, and the other way round.
#[test]
fn programs_with_it_and_without_see_what_the_others_write() {
    for config in [SERVED, PASSED] {
        let Some(bed) = mounted(config) else { return };
        let path = bed.mount().join("shared");
        preloaded(&bed).sees_what_others_write(&path, &path);
        bed.check();
    }
}

/// What stands in the way of going past the mount costs nothing but time.
#[test]
fn what_cannot_go_past_the_mount_goes_through_it() {
    let Some(bed) = mounted(SERVED) else { return };
    let (socket, aside) = (bed.state().join("control.sock"), bed.state().join("aside.sock"));
    let act = |told: &str| {
        let mut command = Command::new("python3");
        command.arg(judge()).arg(bed.mount().join(told)).args(["7", "60"]);
        preloaded(&bed).with(&mut command);
        run(&mut command);
        assert!(preloaded(&bed).said().contains(told), "{told}: {}", preloaded(&bed).said());
        assert!(!preloaded(&bed).said().contains("written past"), "{told}: {}", preloaded(&bed).said());
    };
    fs::rename(&socket, &aside).unwrap();
    act("no node listens");
    // Another node, with other inodes, where the one that serves the mount was.
    let other = Bed::new(PASSED);
    other.up();
    std::os::unix::fs::symlink(other.state().join("control.sock"), &socket).unwrap();
    fs::copy(judge(), other.path("some")).unwrap();
    for n in 0..40 {
        other.ok([OsStr::new("put"), other.path("some").as_os_str(), OsStr::new(&format!("tc:/{n}"))]);
    }
    act("is not the one that serves it");
    fs::remove_file(&socket).unwrap();
    fs::rename(&aside, &socket).unwrap();
    bed.check();
}

/// A program that closes all that it finds open, or takes any number, does not get between the library and the node.
#[test]
fn the_descriptors_of_the_library_are_out_of_the_programs_way() {
    let Some(bed) = mounted(SERVED) else { return };
    preloaded(&bed).keeps_out_of_the_way(&bed.mount().join("file"), &bed.path("local"));
    bed.check();
}

/// Rights at the node are those of the user that the program was when it connected, and only mounts say which node serves them.
#[test]
fn another_user_and_files_of_other_file_systems_ask_no_node() {
    let Some(bed) = mounted(SERVED) else { return };
    let elsewhere = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let program = |script: &str| {
        let mut command = Command::new("python3");
        command.arg("-c").arg(format!("import os, sys\nmount, elsewhere = sys.argv[1:]\n{script}"));
        command.arg(bed.mount()).arg(elsewhere.path());
        preloaded(&bed).with(&mut command);
        run(&mut command);
        let log = preloaded(&bed).said();
        preloaded(&bed).forget();
        log
    };
    let log = program(
        "
os.close(os.open(mount + '/one', os.O_RDWR | os.O_CREAT))
os.setxattr(elsewhere, 'user.thermo.node', os.getxattr(mount + '/one', 'user.thermo.node'))
fd = os.open(elsewhere, os.O_RDWR)
assert os.write(fd, b'a' * 300000) == 300000 and os.fstat(fd).st_size == 300000
fd = os.open(mount + '/one', os.O_RDWR)
os.write(fd, b'b' * 300000)
",
    );
    assert!(log.contains("goes past the mount") && !log.contains("stays with the mount"), "{log}");
    assert!(fs::read(elsewhere.path()).unwrap() == [b'a'; 300_000]);
    assert!(fs::read(bed.mount().join("one")).unwrap() == [b'b'; 300_000]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can become another user: not tried");
        return;
    }
    let log = program(
        "
os.mkdir(mount + '/all'); os.chmod(mount + '/all', 0o777)
for name, user in [('root', 0), ('nobody', 65534), ('root again', 0)]:
    os.seteuid(user)
    fd = os.open(mount + '/all/' + name, os.O_RDWR | os.O_CREAT)
    os.write(fd, b'c' * 300000)
    assert os.pread(fd, 2, 299998) == b'cc'
    os.close(fd)
",
    );
    assert_eq!(log.matches("goes past the mount").count(), 1, "{log}");
    bed.check();
}
