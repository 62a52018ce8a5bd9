//! Clusters of nodes with disk targets: real processes on addresses of their own.

use crate::{Bed, can_mount};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A node with one target that is to join; where it takes calls. Of 127.0.0.0/8 everything is this machine, so each node has an address.
pub fn node() -> Bed {
    let bed = Bed::new("");
    configure(&bed, "");
    bed.up();
    bed
}

/// An address of this machine that nobody else in this process has been given, nor in others that run.
pub fn host() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let high = (u16::from(high) + next / 250 * 97) % 254;
    format!("127.{}.{low}.{}", 1 + high, 1 + next % 250)
}

/// Where a node listens there.
pub fn address() -> String {
    host() + ":7430"
}

/// Writes the configuration of such a node, with more lines for its library.
pub fn configure(bed: &Bed, library: &str) {
    let host = host();
    let config = format!(
        "[library]\ncartridges = 2\ncartridge_capacity = \"256 MiB\"\n{library}\n\
         [[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n\
         [cluster]\nlisten = \"{host}:7430\"\ndata_listen = \"{host}:7431\"\n\
         [[targets]]\npath = \"{}\"\n",
        bed.path("target").display()
    );
    std::fs::write(bed.state().join("config.toml"), config).unwrap();
}

/// Has a node join.
pub fn join(first: &Bed, bed: &Bed, name: &str) {
    let token = first.ok(["cluster", "token"]);
    let mut command = bed.command(["cluster", "join", "--name", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("timeout(1) starts");
    child.stdin.take().expect("a pipe").write_all(token.as_bytes()).unwrap();
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A first node and one that has joined it, both mounted; everybody may enter their directories.
pub fn pair(test: &str) -> Option<[Bed; 2]> {
    can_mount(test).then(|| {
        let beds = [node(), node()];
        beds[0].ok(["cluster", "init", "--name", "first"]);
        join(&beds[0], &beds[1], "second");
        for bed in &beds {
            fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            bed.ok([OsStr::new("mount"), bed.mount().as_os_str()]);
        }
        beds
    })
}

/// A first node and two more, each with a target.
pub fn cluster() -> [Bed; 3] {
    let beds = [node(), node(), node()];
    make_cluster(&beds);
    beds
}

/// Makes a cluster of nodes that run.
pub fn make_cluster(beds: &[Bed; 3]) {
    beds[0].ok(["cluster", "init", "--name", "first"]);
    join(&beds[0], &beds[1], "second");
    join(&beds[0], &beds[2], "third");
    beds[0].wait("three targets", || up(&beds[0]) == [1, 2, 3]);
}

/// Targets as a node tells them.
pub fn targets(bed: &Bed) -> Vec<Value> {
    bed.json(["target", "ls"]).as_array().expect("a list").clone()
}

/// Nodes whose targets are up.
pub fn up(bed: &Bed) -> Vec<u64> {
    let mut nodes: Vec<u64> = targets(bed)
        .iter()
        .filter(|view| view["state"] == "Up")
        .map(|view| view["target"]["node"].as_u64().expect("a number"))
        .collect();
    nodes.sort_unstable();
    nodes
}

/// A cluster whose first node is mounted, and a directory there whose files lie in three stripes.
pub fn striped() -> ([Bed; 3], PathBuf) {
    let beds = cluster();
    let dir = directory(&beds, "--stripes 3 --stripe-size 64KiB");
    (beds, dir)
}

/// Mounts the first node of a cluster, and makes a directory there with a layout.
pub fn directory(beds: &[Bed; 3], layout: &str) -> PathBuf {
    beds[0].ok([OsStr::new("mount"), beds[0].mount().as_os_str()]);
    let dir = beds[0].mount().join("striped");
    fs::create_dir(&dir).unwrap();
    beds[0].ok(words("layout set", &dir, layout));
    dir
}

/// The words of a command around a path.
pub fn words(command: &str, path: &Path, options: &str) -> Vec<std::ffi::OsString> {
    let split =
        |text: &str| text.split(' ').filter(|word| !word.is_empty()).map(Into::into).collect::<Vec<_>>();
    [split(command), vec![path.as_os_str().to_owned()], split(options)].concat()
}

/// How many objects the target of a node has.
pub fn objects(bed: &Bed) -> usize {
    let below = |dir: PathBuf| fs::read_dir(dir).map_or(0, |files| files.count());
    let dirs = fs::read_dir(bed.path("target").join("objects")).expect("the target's objects");
    dirs.map(|dir| below(dir.unwrap().path())).sum()
}

/// Targets on which a file lies.
pub fn lies_on(bed: &Bed, path: &Path) -> Vec<u64> {
    let view = bed.json(words("layout get", path, ""));
    let columns = view["file"]["columns"].as_array().cloned().unwrap_or_default();
    let mut targets: Vec<u64> = columns.iter().map(|column| column["target"].as_u64().unwrap()).collect();
    targets.sort_unstable();
    targets
}

/// Makes a file in a directory that lies on the targets of the other two nodes of a cluster, whatever it has on that of the first.
pub fn on_second_and_third(first: &Bed, dir: &Path) -> PathBuf {
    let on_both = |path: &PathBuf| {
        fs::File::create(path).unwrap();
        lies_on(first, path).ends_with(&[2, 3])
    };
    (0..60).map(|n| dir.join(format!("f{n}"))).find(on_both).expect("a file on both")
}

/// Any object of a target.
pub fn find(objects: &Path) -> Option<PathBuf> {
    let dirs = fs::read_dir(objects).unwrap().map(|dir| dir.unwrap().path());
    dirs.filter_map(|dir| fs::read_dir(dir).ok()?.next()).map(|file| file.unwrap().path()).next()
}

/// Whether a node serves this target.
pub fn serves(first: &Bed, bed: &Bed, target: u64) -> bool {
    let marker = |view: &Value| view["target"]["uuid"].as_str().unwrap().to_owned();
    let uuid = targets(first).iter().find(|view| view["target"]["id"] == target).map(marker).unwrap();
    fs::read_to_string(bed.state().join("targets")).is_ok_and(|text| text.contains(&uuid))
}

/// A small file system, unmounted when dropped.
pub struct Small(PathBuf);

impl Small {
    /// Where the target of a node is to be.
    pub fn mount(bed: &Bed, bytes: u64) -> Self {
        let path = bed.path("target");
        fs::create_dir(&path).unwrap();
        let size = format!("size={bytes}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&path).status();
        assert!(mount.is_ok_and(|status| status.success()), "tmpfs");
        Self(path)
    }

    /// Bytes that are used there.
    pub fn used(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.0).unwrap();
        (space.f_blocks - space.f_bfree) * space.f_frsize
    }

    /// Fills it with a file until less than a piece of so many bytes is free.
    pub fn fill(&self, name: &str, piece: usize) -> PathBuf {
        let (path, zeros) = (self.0.join(name), vec![0; piece]);
        let mut file = fs::File::create(&path).unwrap();
        while std::io::Write::write_all(&mut file, &zeros).is_ok() {}
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(&self.0).status().is_ok_and(|s| s.success());
        assert!(done || std::thread::panicking(), "{} stays mounted", self.0.display());
    }
}

/// Waits until a file is closed, as the catalogue sees it.
pub fn wait_for_close(first: &Bed, path: &Path) {
    first.wait("its close", || first.json(words("stat", path, ""))[0]["file"]["stamp"].is_object());
}

/// Columns of a file: target, and whether it is up to date.
pub fn columns(first: &Bed, path: &Path) -> Vec<(u64, bool)> {
    let view = first.json(words("layout get", path, ""));
    let column = |column: &Value| {
        (column["target"].as_u64().expect("a number"), column["current"].as_bool().expect("yes or no"))
    };
    view["file"]["columns"].as_array().expect("columns").iter().map(column).collect()
}

/// Waits until nothing of a file is out of date.
pub fn wait_for_mending(first: &Bed, path: &Path) {
    first.wait("it is mended", || columns(first, path).iter().all(|(_, current)| *current));
}

/// What `thermo check` says of a file.
pub fn findings(first: &Bed, name: &str) -> Vec<Value> {
    found_by(first, "--json check", name)
}

/// What a check that reads everything finds of them.
pub fn deep_findings(first: &Bed, name: &str) -> Vec<Value> {
    found_by(first, "--json check --deep", name)
}

fn found_by(first: &Bed, check: &str, name: &str) -> Vec<Value> {
    let checked = first.run(check.split(' '));
    let report: Value = serde_json::from_slice(&checked.stdout).expect("a report");
    let all = report["findings"].as_array().expect("findings").clone();
    all.into_iter().filter(|one| one["subject"].as_str().is_some_and(|s| s.contains(name))).collect()
}

/// Objects of a file on a target.
pub fn objects_on(first: &Bed, path: &Path, target: u64) -> Vec<u64> {
    let view = first.json(words("layout get", path, ""));
    let all = view["file"]["columns"].as_array().expect("columns").clone();
    let here = all.iter().filter(|column| column["target"] == target);
    here.map(|column| column["object"].as_u64().expect("a number")).collect()
}
