//! Several metadata services at once: nodes of one cluster that each hold a namespace, shown as one by junctions.

use crate::server::Server;
use client::{ClientError, Connection, Remote};
use e2e::cluster::{self, address, join, targets, up};
use e2e::{Bed, noise};
use ident::Credentials;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use types::ErrorClass;
use wire::{Call, Reply};

/// The settings of `[cluster]` with which a node is asked at an address, and others.
pub fn listening(address: &str, more: &str) -> String {
    format!(
        "[library]\ncartridges = 2\ncartridge_capacity = \"64 MiB\"\n[cluster]\nlisten = \"{address}\"\n{more}"
    )
}

/// A node with a target, and more settings of `[cluster]`.
fn with_target(more: &str) -> Bed {
    let bed = Bed::new("");
    cluster::configure(&bed, "");
    let path = bed.state().join("config.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("[cluster]\n", &format!("[cluster]\n{more}\n"))).unwrap();
    bed
}

pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A host of a subsystem sees its names, and its targets are that one's; the first node has its own.
#[test]
fn a_subsystem_holds_names_and_targets_of_its_own_in_the_cluster_of_another_node() {
    if !e2e::can_mount("a subsystem") {
        return;
    }
    let (at_first, at_scratch) = (address(), address());
    let (first, scratch) =
        (Bed::new(&listening(&at_first, "")), Bed::new(&listening(&at_scratch, "subsystem = \"scratch\"\n")));
    first.up();
    first.ok(["cluster", "init", "--name", "first"]);
    scratch.up();
    let (_, error) = scratch.fails(["cluster", "init"]);
    assert!(error.contains("subsystem scratch"), "{error}");
    join(&first, &scratch, "scratch");
    scratch.ok([OsStr::new("mount"), scratch.mount().as_os_str()]);
    let host = with_target(&format!("namespace = [{at_scratch:?}]"));
    host.up();
    join(&first, &host, "host");
    host.ok([OsStr::new("mount"), host.mount().as_os_str()]);
    scratch.wait("the target", || up(&scratch) == [3]);
    assert!(targets(&first).is_empty(), "it is the subsystem's");

    fs::create_dir(host.mount().join("striped")).unwrap();
    scratch.ok(["layout", "set", "tc:/striped", "--stripes", "1"]);
    let bytes = noise(7, 3 << 20);
    fs::write(host.mount().join("striped/file"), &bytes).unwrap();
    assert!(fs::read(scratch.mount().join("striped/file")).unwrap() == bytes);
    assert!(!first.ok(["ls", "tc:/"]).contains("striped"), "the names of the first node are others");
    assert!(scratch.ok(["ls", "tc:/"]).contains("striped"));
    assert_eq!(cluster::lies_on(&scratch, &scratch.mount().join("striped/file")), [1]);

    // Each call is done once, whatever becomes of the node.
    fs::File::open(host.mount().join("striped/file")).unwrap().sync_all().unwrap();
    scratch.kill();
    scratch.up();
    for n in 0..10 {
        fs::write(host.mount().join(format!("striped/{n}")), b"bytes").unwrap();
    }
    assert_eq!(names(&host.mount().join("striped")).len(), 11);
    assert!(fs::read(host.mount().join("striped/file")).unwrap() == bytes);

    // Another namespace at the same address, and of the same name: its names are not taken for those.
    scratch.ok(["down", "--now"]);
    let other = Bed::new(&listening(&at_scratch, "subsystem = \"scratch\"\n"));
    other.up();
    join(&first, &other, "other");
    std::thread::scope(|scope| {
        let dir = host.mount().join("striped");
        let looks = scope.spawn(move || names(&dir));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!looks.is_finished(), "whoever has them is waited for");
        other.ok(["down", "--now"]);
        scratch.up();
        assert_eq!(looks.join().unwrap().len(), 11);
    });

    is_told_what_is_there(&host, &at_scratch, &at_first);
    users_of_the_first_node_are_known(&first, &at_scratch);
    // And so is who was removed of the hosts.
    first.ok(["cluster", "remove", "node", "3", "--reason", "sold"]);
    assert!(fs::write(host.mount().join("striped/late"), b"bytes").is_err());
    scratch.wait("its target to count as down", || targets(&scratch)[0]["state"] == "Down");
}

/// Who takes a subsystem for the first node, whose address it may have by now, is told so; who asks whose names there are is served.
fn is_told_what_is_there(host: &Bed, at_scratch: &str, at_first: &str) {
    let member = Credentials::load(&host.state().join("cluster")).unwrap().unwrap();
    let line = || {
        let remote = Remote::new(at_scratch, &member).unwrap();
        Connection::open_remote(remote, Duration::ZERO).unwrap()
    };
    for call in [Call::Session(7), Call::ClusterAddresses, Call::Junctions] {
        let Err(ClientError::Refused(why)) = line().call(&call) else { panic!("{call:?} is answered") };
        assert_eq!(why.class, ErrorClass::Retry, "{why}");
    }
    let mut knows = line();
    let Reply::Subsystem(found) = knows.call(&Call::Subsystem).unwrap().0 else { panic!("no subsystem") };
    assert_eq!(found.name.as_deref(), Some("scratch"));
    knows.ask::<u64>(&Call::Session(7)).unwrap();
    drop(knows);
    // Junctions are the first node's, and so is where it is to be had.
    let remote = Remote::new(at_first, &member).unwrap();
    let mut asks = Connection::open_remote(remote, Duration::ZERO).unwrap();
    assert_eq!(asks.ask::<Vec<types::JunctionView>>(&Call::Junctions).unwrap(), []);
}

/// A user whom the first node has on record is known at the subsystem, too, and on while that is away.
fn users_of_the_first_node_are_known(first: &Bed, at_scratch: &str) {
    let desk = Bed::new("");
    let token = first.ok(["cluster", "token", "--client-uid", "4711", "--client-gid", "4711"]);
    crate::cluster::joined(&desk, &token, "desk");
    desk.ok(["ls", "tc:/striped", "--node", at_scratch]);
    first.kill();
    desk.ok(["ls", "tc:/striped", "--node", at_scratch]);
    first.up();
    first.ok(["cluster", "remove", "client", "1"]);
    let (_, error) = desk.fails(["ls", "tc:/striped", "--node", at_scratch]);
    assert!(error.contains("removed from the cluster"), "{error}");
}

/// Every object of a node's target, with its bytes.
fn kept(bed: &Bed) -> Vec<(PathBuf, Vec<u8>)> {
    let dirs = fs::read_dir(bed.path("target/objects")).unwrap();
    let objects = dirs.flat_map(|dir| fs::read_dir(dir.unwrap().path()).unwrap());
    let mut kept: Vec<_> = objects
        .map(|object| object.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    kept.sort();
    kept
}

/// Its configuration loses the line that says whose its targets are: it reports them to the first node.
#[test]
fn a_host_that_has_lost_the_line_of_its_subsystem_is_refused_by_the_first_node_and_nothing_is_gone() {
    if !e2e::can_mount("a host that has lost its subsystem") {
        return;
    }
    let (at_first, at_scratch) = (address(), address());
    let (first, scratch) =
        (Bed::new(&listening(&at_first, "")), Bed::new(&listening(&at_scratch, "subsystem = \"scratch\"\n")));
    first.up();
    first.ok(["cluster", "init", "--name", "first"]);
    scratch.up();
    join(&first, &scratch, "scratch");
    [&first, &scratch].iter().for_each(|bed| bed.up_mounted_there());
    let line = format!("namespace = [{at_scratch:?}]\n");
    let host = with_target(&line);
    host.up();
    join(&first, &host, "host");
    scratch.wait("the target", || up(&scratch) == [3]);
    for bed in [&first, &scratch] {
        fs::create_dir(bed.mount().join("striped")).unwrap();
    }
    scratch.ok(["layout", "set", "tc:/striped", "--stripes", "1"]);
    fs::create_dir(first.mount().join("led")).unwrap();
    first.ok(["junction", "make", "tc:/led", "scratch", "--at", &at_scratch]);
    let (path, bytes) = (scratch.mount().join("striped/file"), noise(9, 3 << 20));
    fs::write(&path, &bytes).unwrap();
    cluster::wait_for_close(&scratch, &path);
    scratch.wait("its disk to say whose it is", || host.path("target/site").exists());
    let config = host.state().join("config.toml");
    let whole = fs::read_to_string(&config).unwrap();
    host.ok(["down"]);
    let before = kept(&host);
    fs::write(&config, whole.replace(&line, "")).unwrap();
    host.up();
    for bed in [&first, &host] {
        bed.wait("it to be refused", || {
            let warnings = bed.json(["status"])["warnings"].to_string();
            ["is refused", "subsystem scratch", "`cluster.namespace`"]
                .iter()
                .all(|part| warnings.contains(part))
        });
    }
    let target = host.path("target").display().to_string();
    assert!(
        host.log().contains("is refused") && host.json(["status"])["warnings"].to_string().contains(&target)
    );
    assert!(first.ok(["target", "ls"]).contains("is refused"));
    assert!(targets(&first).is_empty(), "it is no target of the first node's");
    assert!(first.fails(["layout", "set", "tc:/striped", "--stripes", "1"]).1.contains("has 0"));
    scratch.wait("it to count as down", || targets(&scratch)[0]["state"] == "Down");
    host.ok(["down"]);
    assert!(kept(&host) == before, "nothing there has changed");
    // With the line all is as it was.
    fs::write(&config, whole).unwrap();
    host.up();
    scratch.wait("the target", || up(&scratch) == [3]);
    assert!(fs::read(&path).unwrap() == bytes);
    first.wait("nothing to be refused", || {
        !first.json(["status"])["warnings"].to_string().contains("is refused")
    });
    [first, scratch].iter().for_each(Bed::check);
}

/// A first node whose catalogue is in a database, two hosts that take turns with that of a subsystem there, and a fourth host with a target for files of the subsystem.
struct Site {
    first: Bed,
    taking: [Bed; 2],
    /// Mounts the first node's namespace.
    host: Bed,
    /// A second node of that host.
    mover: Bed,
    _server: Server,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.taking.iter().for_each(|bed| bed.signal(Signal::KILL));
    }
}

impl Site {
    fn new() -> Self {
        let server = Server::start();
        let of = |name: &str, turns: &str| {
            format!("[catalog]\nengine = {:?}\n{turns}", server.address(name, "&connections=4&relaxed=no"))
        };
        let first = Bed::new(&format!("{}{}", of("home", ""), listening(&address(), "")));
        first.up();
        first.ok(["cluster", "init", "--name", "first"]);
        let addresses = [address(), address()];
        let taking = addresses.clone().map(|address| {
            let scratch = listening(&address, "subsystem = \"scratch\"\n");
            Bed::new(&format!("{}{scratch}", of("scratch", "take_turns_s = 4\n")))
        });
        for (n, bed) in taking.iter().enumerate() {
            join(&first, bed, &format!("scratch{n}"));
            bed.up();
            bed.wait("it to serve or to have what it needs", || {
                let view = bed.run(["--json", "cluster", "status"]).stdout;
                let view: serde_json::Value = serde_json::from_slice(&view).unwrap_or_default();
                n == 0 && serves(bed)
                    || view["nodes"][1]["state"] == "Waits" && view["nodes"][1]["lacks"].is_null()
            });
        }
        let at = format!("{:?}, {:?}", addresses[0], addresses[1]);
        let (host, mover) = (Bed::new(""), with_target(&format!("namespace = [{at}]")));
        for (bed, name) in [(&host, "host"), (&mover, "mover")] {
            join(&first, bed, name);
            bed.up();
        }
        taking[0].wait("the target", || up(&taking[0]).len() == 1);
        taking[0].ok(["layout", "set", "tc:/", "--stripes", "1"]);
        first.up_mounted_there();
        host.up_mounted_there();
        fs::create_dir_all(host.mount().join("dept/projects")).unwrap();
        let make = |bed: &Bed, path: &str, subsystem: &str, at: &str| {
            bed.run(["junction", "make", path, subsystem, "--at", at])
        };
        let refused = |made: std::process::Output, why: &str| {
            let error = String::from_utf8_lossy(&made.stderr).into_owned();
            assert!(!made.status.success() && error.contains(why), "{error}");
        };
        refused(make(&first, "tc:/dept/projects", "other", &addresses[0]), "is subsystem scratch");
        let at_first = first.json(["cluster", "status"])["members"][0]["control"][0].clone();
        let at_first = at_first.as_str().expect("an address");
        refused(make(&first, "tc:/dept/projects", "scratch", at_first), "is the first node");
        refused(make(&taking[0], "tc:/deeper", "scratch", at_first), "those of the cluster's first node");
        first.ok(["junction", "make", "tc:/dept/projects", "scratch", "--at", &addresses.join(",")]);
        for bed in [&first, &host] {
            bed.wait("the subsystem to be mounted", || bed.log().contains("mounted subsystem scratch"));
        }
        Self { first, taking, host, mover, _server: server }
    }

    fn projects(&self) -> PathBuf {
        self.host.mount().join("dept/projects")
    }
}

trait Mounted {
    fn up_mounted_there(&self);
}

impl Mounted for Bed {
    fn up_mounted_there(&self) {
        self.ok([OsStr::new("mount"), self.mount().as_os_str()]);
    }
}

fn serves(bed: &Bed) -> bool {
    bed.run(["status"]).status.success()
}

/// Makes files in a directory until it is told to stop; the longest that one took.
fn make_files(dir: &Path, made: &AtomicUsize, stop: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Acquire) {
        let (n, begin) = (made.load(Ordering::Acquire), Instant::now());
        let mut file = fs::File::create_new(dir.join(format!("file-{n}"))).unwrap();
        file.write_all(b"bytes").unwrap();
        file.sync_all().unwrap();
        longest = longest.max(begin.elapsed());
        made.store(n + 1, Ordering::Release);
    }
    longest
}

/// Whatever becomes of the test: they end.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn two_services_show_one_tree_and_each_goes_on_when_the_other_one_dies() {
    if !e2e::can_mount("subsystems at junctions") {
        return;
    }
    let site = Site::new();
    let (first, host, projects) = (&site.first, &site.host, site.projects());
    // One tree, two file systems.
    fs::write(projects.join("file"), b"bytes").unwrap();
    assert_eq!(fs::read(first.mount().join("dept/projects/file")).unwrap(), b"bytes");
    assert!(site.taking[0].ok(["ls", "tc:/"]).contains("file"));
    assert_ne!(fs::metadata(&projects).unwrap().dev(), fs::metadata(host.mount()).unwrap().dev());
    fs::write(host.mount().join("here"), b"bytes").unwrap();
    let crossed = fs::rename(host.mount().join("here"), projects.join("here")).unwrap_err();
    assert_eq!(crossed.kind(), std::io::ErrorKind::CrossesDevices);
    assert!(fs::remove_dir(&projects).is_err(), "it leads somewhere");

    first.wait("it to be seen", || first.json(["junction", "ls"])[0]["state"] == "Answers");
    let dirs = [host.mount().join("home"), projects.join("work")];
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let (made, stop) = ([AtomicUsize::new(0), AtomicUsize::new(0)], AtomicBool::new(false));
    let done = |n: usize| made[n].load(Ordering::Acquire);
    let longest = std::thread::scope(|scope| {
        let end = End(&stop);
        let makers: Vec<_> =
            dirs.iter().zip(&made).map(|(dir, made)| scope.spawn(|| make_files(dir, made, &stop))).collect();
        host.wait("work", || (0..2).all(|n| done(n) > 3));
        let (home, work) = (done(0), done(1));
        site.taking[0].signal(Signal::KILL);
        host.wait("the other host to serve", || serves(&site.taking[1]));
        assert!(done(0) > home + 3, "the first node has not waited for that");
        host.wait("work to go on", || done(1) > work + 3);
        drop(end);
        makers.into_iter().map(|maker| maker.join().unwrap()).collect::<Vec<_>>()
    });
    eprintln!("longest: at the first node {:?}, at the subsystem {:?}", longest[0], longest[1]);
    dirs.iter().enumerate().for_each(|(n, dir)| assert_eq!(names(dir).len(), done(n)));
    assert!(longest[0] < longest[1]);

    // The first node dies: who works below the junction goes on.
    let inside = fs::File::open(&projects).unwrap();
    let below = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&inside)));
    first.signal(Signal::KILL);
    fs::write(below.join("alone"), b"bytes").unwrap();
    first.up();
    first.up_mounted_there();
    first.wait("the subsystem to be mounted again", || first.mount().join("dept/projects/alone").exists());
    assert_eq!(fs::read(projects.join("alone")).unwrap(), b"bytes");
    site.taking[1].check();

    // A directory above it is renamed, on one of the hosts.
    fs::rename(host.mount().join("dept"), host.mount().join("unit")).unwrap();
    let projects = host.mount().join("unit/projects");
    assert!(projects.join("alone").exists(), "the mount has moved along");
    first.wait("it to be mounted there", || first.mount().join("unit/projects/alone").exists());

    // Nothing leads there any more.
    host.wait("its node to know the path by now", || {
        host.fails([OsStr::new("umount"), projects.as_os_str()]).1.contains("shows subsystem scratch")
    });
    first.ok(["junction", "rm", "tc:/unit/projects"]);
    std::thread::sleep(Duration::from_secs(4));
    assert!(projects.join("alone").exists(), "somebody is in it");
    drop(inside);
    host.wait("it to be unmounted", || names(&projects).is_empty());
    fs::remove_dir(&projects).unwrap();
    assert!(site.taking[1].ok(["ls", "tc:/"]).contains("alone"));
    first.check();
    drop(site.mover.ok(["down"]));
}
