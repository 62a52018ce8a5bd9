//! How hosts mount subsystems at junctions: on that directory and no other, again when the kernel took one away, and away in a moment when the node ends.

use crate::subsystems::{listening, names};
use e2e::cluster::{address, join};
use e2e::{Bed, can_mount};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A first node, a subsystem, and a host that mounts the names of the first node.
struct Three {
    first: Bed,
    scratch: Bed,
    host: Bed,
    at_scratch: String,
}

impl Three {
    fn new() -> Self {
        let (at_first, at_scratch) = (address(), address());
        let first = Bed::new(&listening(&at_first, ""));
        let scratch = Bed::new(&listening(&at_scratch, "subsystem = \"scratch\"\n"));
        let host = Bed::new("");
        first.up();
        first.ok(["cluster", "init", "--name", "first"]);
        for (bed, name) in [(&scratch, "scratch"), (&host, "host")] {
            bed.up();
            join(&first, bed, name);
        }
        for bed in [&first, &host] {
            bed.ok([OsStr::new("mount"), bed.mount().as_os_str()]);
        }
        fs::create_dir_all(first.mount().join("dept/projects")).unwrap();
        Self { first, scratch, host, at_scratch }
    }

    fn lead(&self) {
        self.first.ok(["junction", "make", "tc:/dept/projects", "scratch", "--at", &self.at_scratch]);
    }

    /// Both show the subsystem.
    fn mounted() -> Self {
        let three = Self::new();
        three.lead();
        for bed in [&three.first, &three.host] {
            bed.wait("the subsystem to be mounted", || device(&three.at(bed)) != device(&bed.mount()));
        }
        three
    }

    fn at(&self, bed: &Bed) -> PathBuf {
        bed.mount().join("dept/projects")
    }
}

/// None: nothing can be seen there.
fn device(path: &PathBuf) -> Option<u64> {
    fs::metadata(path).ok().map(|seen| seen.dev())
}

/// Takes longer only if something waits for a node that does not answer.
fn within<T>(most: u64, what: &str, done: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = done();
    assert!(begin.elapsed() < Duration::from_secs(most), "{what} took {:?}", begin.elapsed());
    result
}

#[test]
fn what_the_kernel_took_away_is_mounted_again_while_programs_use_the_old_one() {
    if !can_mount("subsystems that the kernel takes away") {
        return;
    }
    let three = Three::mounted();
    let (first, host) = (&three.first, &three.host);
    // Whoever is refused to change a directory above does not take it away.
    let before = device(&three.at(first));
    assert!(fs::remove_dir(host.mount().join("dept")).is_err(), "it is not empty");
    assert!(fs::create_dir(host.mount().join("dept")).is_err());
    first.ok(["ls", "tc:/dept"]);
    first.run(["rm", "tc:/dept"]);
    for _ in 0..5 {
        assert_eq!(device(&three.at(first)), before, "it is there as before");
        let _ = fs::remove_dir(host.mount().join("dept"));
    }

    let at = three.at(host);
    let mut open = fs::File::create(at.join("open")).unwrap();
    let before = device(&at);
    unmount(&at, UnmountFlags::DETACH).unwrap();
    // Until it is there again it is no empty directory.
    let mut looks = 0;
    host.wait("it to be mounted again", || {
        looks += 1;
        let seen =
            fs::read_dir(&at).map(|all| all.map(|entry| entry.map(|e| e.file_name())).collect::<Vec<_>>());
        assert!(seen.is_err() || !seen.unwrap().is_empty(), "it looks empty");
        device(&at).is_some_and(|now| now != device(&host.mount()).unwrap())
    });
    assert!(device(&at) != before && looks > 0);
    open.write_all(b"goes on").unwrap();
    open.sync_all().unwrap();
    drop(open);
    assert_eq!(fs::read(at.join("open")).unwrap(), b"goes on");
    assert_eq!(names(&three.at(first)), ["open"]);
    three.scratch.check();
}

#[test]
fn a_subsystem_is_mounted_where_the_junction_is_and_not_where_a_user_has_a_link_lead() {
    if !can_mount("subsystems and symbolic links") {
        return;
    }
    let three = Three::new();
    let (first, host) = (&three.first, &three.host);
    let trap = host.path("trap");
    fs::create_dir_all(trap.join("projects")).unwrap();
    // The host has begun, and waits for the subsystem, as somebody changes the way there.
    three.scratch.signal(Signal::STOP);
    three.lead();
    std::thread::sleep(Duration::from_secs(3));
    fs::rename(host.mount().join("dept"), host.mount().join("real")).unwrap();
    symlink(&trap, host.mount().join("dept")).unwrap();
    three.scratch.signal(Signal::CONT);
    let real = host.mount().join("real/projects");
    host.wait("the subsystem to be mounted", || {
        // Not for a moment.
        assert_eq!(device(&trap.join("projects")), device(&trap), "something is mounted outside");
        device(&real).is_some_and(|d| Some(d) != device(&host.mount()))
    });
    fs::write(real.join("file"), b"bytes").unwrap();
    let there = first.mount().join("real/projects/file");
    first.wait("it to be mounted at the first node", || there.exists());
    three.scratch.check();
}

#[test]
fn a_host_ends_in_a_moment_while_the_first_node_does_not_answer() {
    if !can_mount("subsystems and the end of a host") {
        return;
    }
    let three = Three::mounted();
    let (first, host) = (&three.first, &three.host);
    let open = fs::File::create(three.at(host).join("open")).unwrap();
    first.signal(Signal::STOP);
    let (status, refused) = std::thread::scope(|scope| {
        let umount = scope.spawn(|| host.run([OsStr::new("umount"), host.mount().as_os_str()]));
        std::thread::sleep(Duration::from_millis(300));
        let status = scope.spawn(|| within(5, "status", || host.run(["status"])));
        (status.join().unwrap(), within(30, "umount", || umount.join().unwrap()))
    });
    assert!(status.status.success());
    assert!(!refused.status.success(), "somebody is in it");
    let down = within(60, "the end", || host.run(["down", "--timeout", "120"]));
    first.signal(Signal::CONT);
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    drop(open);
    assert!(!host.mount().join("dept").exists(), "it was unmounted");
    three.scratch.check();
}
