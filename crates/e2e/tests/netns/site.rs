//! The hosts and their nodes.

use crate::hall::{AT, Hall};
use e2e::cluster::{join, targets};
use e2e::{Bed, Network};
use std::ffi::OsStr;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the namespace is at first.
const FIRST: usize = 1;
/// Where a copy of its catalogue is at first.
const STANDBY: usize = 2;
/// Hosts with a target each.
pub const MOVERS: RangeInclusive<usize> = 3..=6;
/// Hosts with a mount and programs.
pub const CLIENTS: [usize; 2] = [7, 8];
/// Bytes of the file system of a target.
pub const TARGET: u64 = 128 << 20;
/// For how long certificates are good (seconds): all hosts get several in the shortest run, and whoever is away for some seconds comes back with one that has ended.
pub const CERTIFICATE: u64 = 10;
/// Directories of different layouts.
const LAYOUTS: [(&str, &str); 4] = [
    ("striped", "--stripes 2 --stripe-size 64KiB"),
    ("copies", "--copies 2"),
    ("coded", "--code 2+1 --stripe-size 64KiB"),
    ("taped", "--copies 2"),
];

pub struct Site {
    beds: Vec<Arc<Bed>>,
    pub hall: Hall,
    pub network: Network,
    /// Where the namespace is now.
    pub first: usize,
    /// Where a copy of its catalogue is now.
    pub standby: usize,
    /// How often the standby has taken over.
    pub taken_over: usize,
    /// How many disks each host has had for its target.
    disks: Vec<usize>,
}

impl Site {
    /// A cluster whose clients have mounted it, if this machine lets us.
    pub fn new(test: &str) -> Option<Self> {
        if Command::new("fio").arg("--version").output().is_err() {
            eprintln!("LEFT OUT {test}: it needs fio");
            return None;
        }
        let network = Network::new(test, CLIENTS[1])?;
        let beds: Vec<_> = (FIRST..=CLIENTS[1]).map(|host| Arc::new(Bed::on(&network, host, ""))).collect();
        let hall = Hall::new(&network.disks());
        for (host, bed) in (FIRST..).zip(&beds) {
            fs::write(bed.state().join("config.toml"), configuration(&network, host)).unwrap();
        }
        let disks = vec![0; beds.len()];
        let mut site = Self { disks, beds, hall, network, first: FIRST, standby: STANDBY, taken_over: 0 };
        MOVERS.for_each(|host| site.new_disk(host));
        let site = site;
        site.first().up();
        site.first().ok(["cluster", "init", "--name", "first"]);
        // The numbers of nodes are those of hosts.
        for host in STANDBY..=CLIENTS[1] {
            join(site.first(), site.bed(host), &format!("host{host}"));
        }
        // All others hear of the standby when they are started. The library can be reached from here on.
        site.bed(AT).up();
        let with_library = Hall::used(&site.network) + &is_followed(&site.network, STANDBY);
        site.set_standby(FIRST, &with_library);
        site.first().ok(["down"]);
        site.first().up();
        std::thread::scope(|scope| {
            site.beds[1..].iter().for_each(|bed| drop(scope.spawn(|| bed.up())));
        });
        site.is_whole();
        for host in CLIENTS {
            let everybody = fs::Permissions::from_mode(0o755);
            fs::set_permissions(site.bed(host).dir.path(), everybody).unwrap();
            site.mount(host);
        }
        for (name, layout) in LAYOUTS {
            fs::create_dir(site.dir(CLIENTS[0], name)).unwrap();
            let path = format!("tc:/{name}");
            site.first().ok(["layout", "set", &path].into_iter().chain(layout.split(' ')));
        }
        Some(site)
    }

    pub fn bed(&self, host: usize) -> &Bed {
        &self.beds[host - FIRST]
    }

    /// The two that may have the namespace.
    pub fn both(&self) -> [Arc<Bed>; 2] {
        [FIRST, STANDBY].map(|host| self.beds[host - FIRST].clone())
    }

    /// The node that has the namespace.
    pub fn first(&self) -> &Bed {
        self.bed(self.first)
    }

    /// Replaces what the configuration of a host says of standbys.
    pub fn set_standby(&self, host: usize, section: &str) {
        let config = self.bed(host).state().join("config.toml");
        let text = fs::read_to_string(&config).unwrap();
        let before = text.split("[standby]").next().unwrap_or_default();
        fs::write(&config, format!("{before}{section}")).unwrap();
    }

    /// A directory below the mount of a client.
    pub fn dir(&self, client: usize, name: &str) -> PathBuf {
        self.bed(client).mount().join(name)
    }

    /// Mounts the namespace at a client, anew if its node has died.
    pub fn mount(&self, client: usize) {
        let bed = self.bed(client);
        let _ = Command::new("umount").arg("-l").arg(bed.mount()).stderr(Stdio::null()).status(); // there may be none
        bed.ok([OsStr::new("mount"), bed.mount().as_os_str()]);
    }

    /// Where the target of a mover is.
    pub fn target(&self, host: usize) -> PathBuf {
        self.bed(host).path(&format!("target-{}", self.disks[host - FIRST]))
    }

    /// Gives a mover that does not run an empty disk for its target, and takes away the one that it has.
    pub fn new_disk(&mut self, host: usize) {
        let old = self.target(host);
        if self.disks[host - FIRST] > 0 {
            let gone = Command::new("umount").arg("-l").arg(&old).status();
            assert!(gone.unwrap().success(), "{}", old.display());
        }
        self.disks[host - FIRST] += 1;
        let (path, config) = (self.target(host), self.bed(host).state().join("config.toml"));
        fs::create_dir(&path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={TARGET}"), "none"])
            .arg(&path)
            .status();
        assert!(mount.unwrap().success(), "tmpfs");
        let text = fs::read_to_string(&config).unwrap();
        let before = text.split("[[targets]]").next().unwrap_or_default();
        fs::write(&config, format!("{before}[[targets]]\npath = \"{}\"\n", path.display())).unwrap();
    }

    /// Files that this makes lie on two of the targets: another one may be lost.
    pub fn on_two_targets(&self, make: impl FnOnce()) {
        let first = self.first();
        let all: Vec<String> = targets(first).iter().map(|view| view["target"]["id"].to_string()).collect();
        let order = |what: &str| all[2..].iter().for_each(|id| drop(first.ok(["target", what, id])));
        order("drain");
        make();
        order("return");
        self.is_whole();
    }

    /// Waits until all targets are up, drives can be used, and the standby has everything.
    pub fn is_whole(&self) {
        let first = self.first();
        let up = || targets(first).iter().filter(|view| view["state"] == "Up").count();
        first.wait("all targets", || up() == MOVERS.count());
        let drives = || first.json(["drive", "ls"]).as_array().expect("a list").clone();
        // What is out of use says why.
        first.wait("all drives", || drives().iter().all(|drive| drive["status"].is_string()));
        first.wait("the standby", || first.json(["standby", "status"])["promised"] == true);
    }

    /// Every file has all its copies and parity again: what is lost now is one too many for none of them.
    pub fn is_mended(&self) {
        let first = self.first();
        let lacks = |one: &serde_json::Value| one["grade"] == "incomplete";
        first.wait("what was away to be rebuilt", || {
            !first.json(["check"])["findings"].as_array().expect("a list").iter().any(lacks)
        });
    }

    /// When the certificate of a host ends, or has ended (seconds since 1970).
    fn expires(&self, host: usize) -> u64 {
        let status = self.first().json(["cluster", "status"]);
        let members = status["members"].as_array().expect("a list");
        let member = members.iter().find(|member| member["id"]["Node"] == host).expect("a member");
        member["expires"]["secs"].as_u64().expect("a time")
    }

    /// Waits until the certificate has ended of a host that is away.
    pub fn wait_for_its_end(&self, host: usize) {
        while now() <= self.expires(host) {
            sleep(Duration::from_millis(200));
        }
    }

    /// All hosts have certificates that are good.
    pub fn certificates_are_good(&self) {
        for host in FIRST..=CLIENTS[1] {
            self.first().wait("its certificate", || now() < self.expires(host));
        }
    }

    /// Nothing is missing or out of date, on disk and on tape. A host that is the first node once more may have objects from when it was that before, made ahead then.
    pub fn check(&self) {
        let first = self.first();
        let report = |options: &[&str]| -> Vec<serde_json::Value> {
            let report = first.json(["check"].iter().chain(options));
            let mut found = report["findings"].as_array().expect("a list").clone();
            if self.taken_over > 1 {
                found.retain(|one| one["problem"] != "is empty and belongs to no file");
            }
            found
        };
        let mut found = report(&[]);
        let begun = Instant::now();
        // Columns that were away are rebuilt in their time.
        while !found.is_empty() && begun.elapsed() < Duration::from_secs(120) {
            sleep(Duration::from_millis(500));
            found = report(&[]);
        }
        let thorough = report(&["--deep", "--tapes"]);
        assert!(thorough.is_empty(), "{found:#?}, then {thorough:#?}");
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Drop for Site {
    fn drop(&mut self) {
        // What is below a mount whose node is gone fails at once, and nothing is waited for.
        CLIENTS.into_iter().chain(MOVERS).chain([FIRST, STANDBY]).for_each(|host| {
            if std::thread::panicking() {
                eprintln!("log of host {host}:\n{}", self.bed(host).log());
            }
            self.network.kill(host);
        });
    }
}

fn configuration(network: &Network, host: usize) -> String {
    let at = network.address(host);
    let mut text = format!(
        "[library]\ncartridges = 2\ncartridge_capacity = \"256 MiB\"\n\
         [[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n\
         [cluster]\nlisten = \"{at}:7430\"\ndata_listen = \"{at}:7431\"\n\
         certificate_s = {CERTIFICATE}\n"
    );
    match host {
        STANDBY => text.push_str(&(Hall::used(network) + &follows(FIRST, ""))),
        AT => text.push_str(&Hall::given(&network.disks())),
        _ => {}
    }
    text
}

/// What the configuration of a standby says, with more settings.
pub fn follows(first: usize, settings: &str) -> String {
    format!("[standby]\nof = {first}\nlease_s = 4\n{settings}")
}

/// What the configuration of a node with a standby says.
pub fn is_followed(network: &Network, standby: usize) -> String {
    let at = network.address(standby);
    format!("[standby]\nto = [\"{at}:7430\"]\nmode = \"wait\"\nlease_s = 4\npatience_s = 40\n")
}
