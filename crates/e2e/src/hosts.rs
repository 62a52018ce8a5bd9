//! Four nodes for files on targets that two hosts use.

use crate::Bed;
use crate::cluster::{Small, configure, join, objects, serves, up, words};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Bytes of each target's file system.
pub const TARGET: u64 = 150 << 20;

/// A first node without targets, and three others with one each; the first and the second are mounted.
pub struct Hosts {
    /// The nodes.
    pub beds: [Bed; 4],
    /// Where files lie in two stripes, below the first mount.
    pub here: PathBuf,
    /// The same directory below the second mount.
    pub there: PathBuf,
    small: Vec<Small>,
}

impl Hosts {
    /// Starts them; columns are moved as fast as `pace` says.
    pub fn new(pace: &str) -> Self {
        let beds: [Bed; 4] = std::array::from_fn(|_| Bed::new(""));
        let small = beds[1..].iter().map(|bed| Small::mount(bed, TARGET)).collect();
        for (n, bed) in beds.iter().enumerate() {
            configure(bed, "");
            let path = bed.state().join("config.toml");
            let config = fs::read_to_string(&path).unwrap();
            let (before, target) = config.split_once("[[targets]]").expect("its target");
            let target = if n == 0 { String::new() } else { format!("[[targets]]{target}") };
            fs::write(&path, format!("{before}move_rate = \"{pace}\"\n{target}")).unwrap();
            bed.up();
        }
        beds[0].ok(["cluster", "init", "--name", "first"]);
        ["second", "third", "fourth"]
            .iter()
            .zip(&beds[1..])
            .for_each(|(name, bed)| join(&beds[0], bed, name));
        beds[0].wait("three targets", || up(&beds[0]) == [2, 3, 4]);
        for bed in &beds[..2] {
            fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            bed.ok([OsStr::new("mount"), bed.mount().as_os_str()]);
        }
        let [here, there] = [&beds[0], &beds[1]].map(|bed| bed.mount().join("striped"));
        fs::create_dir(&here).unwrap();
        beds[0].ok(words("layout set", &here, "--stripes 2 --stripe-size 64KiB"));
        Self { beds, here, there, small }
    }

    /// The first node.
    pub fn first(&self) -> &Bed {
        &self.beds[0]
    }

    /// The node that serves a target.
    pub fn of(&self, target: u64) -> &Bed {
        let found = self.beds[1..].iter().find(|bed| serves(self.first(), bed, target));
        found.expect("a node that serves it")
    }

    /// Waits until nothing is left to be done, and nothing has failed.
    pub fn all_moved(&self) {
        self.first().wait("all requests", || {
            let all = self.first().json(["request", "ls", "--all"]);
            let all = all.as_array().unwrap();
            assert!(all.iter().all(|view| view["request"]["state"] != "failed"), "{all:#?}");
            all.iter().all(|view| view["request"]["state"] == "done")
        });
    }

    /// Bytes that the file systems of all targets have in use.
    pub fn used(&self) -> u64 {
        self.small.iter().map(Small::used).sum()
    }

    /// Waits until a target is empty.
    pub fn drained(&self, target: u64) {
        self.first().wait("it is empty", || objects(self.of(target)) == 0);
    }

    /// It gets new files again.
    pub fn give_back(&self, target: u64) {
        self.first().ok(["target", "return", &target.to_string()]);
        self.first().wait("it is up", || up(self.first()).len() == 3);
    }

    /// How many objects all targets have.
    pub fn objects(&self) -> usize {
        self.beds[1..].iter().map(objects).sum()
    }
}
