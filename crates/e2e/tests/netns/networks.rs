//! Hosts with two networks, one of them for data: what is written and read goes over that one, whoever does it and however.

use client::native::{OpenOptions as NativeOptions, Session};
use e2e::cluster::{join, lies_on, targets, up, wait_for_close};
use e2e::network::{CONTROL, DATA};
use e2e::{Bed, Network, noise};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Holds the names, and has a mount.
const FIRST: usize = 1;
/// Hosts with a target each.
const MOVERS: [usize; 3] = [2, 3, 4];
/// Has a mount.
const CLIENT: usize = 5;
/// Bytes of a file.
const FILE: usize = 40 << 20;
/// Control may carry less than so many bytes meanwhile: questions about names, reports, and whoever looks how far it is.
const LITTLE: u64 = 4 << 20;

struct Site {
    beds: Vec<Bed>,
    network: Network,
}

/// What each host has carried so far.
struct Carried(Vec<[u64; 2]>);

impl Drop for Site {
    fn drop(&mut self) {
        for host in (FIRST..=CLIENT).rev() {
            if std::thread::panicking() {
                eprintln!("log of host {host}:\n{}", self.bed(host).log());
            }
            self.network.kill(host);
        }
    }
}

impl Site {
    fn new(test: &str) -> Option<Self> {
        let network = Network::new(test, CLIENT)?.with_data();
        let beds: Vec<Bed> = (FIRST..=CLIENT).map(|host| Bed::on(&network, host, "")).collect();
        let site = Self { beds, network };
        for host in FIRST..=CLIENT {
            fs::write(site.bed(host).state().join("config.toml"), site.configuration(host)).unwrap();
        }
        site.bed(FIRST).up();
        site.bed(FIRST).ok(["cluster", "init", "--name", "first"]);
        for host in FIRST + 1..=CLIENT {
            join(site.bed(FIRST), site.bed(host), &format!("host{host}"));
            site.bed(host).up();
        }
        site.bed(FIRST).wait("three targets", || up(site.bed(FIRST)) == [2, 3, 4]);
        for bed in [site.bed(FIRST), site.bed(CLIENT)] {
            bed.ok([OsStr::new("mount"), bed.mount().as_os_str()]);
        }
        site.bed(FIRST).ok(["layout", "set", "tc:/", "--stripes", "2"]);
        Some(site)
    }

    fn bed(&self, host: usize) -> &Bed {
        &self.beds[host - FIRST]
    }

    /// All take calls on the one network. Where bytes are moved is said in either way: by the address itself, or by `cluster.data`, behind which a mover listens
    /// at all of its addresses.
    fn configuration(&self, host: usize) -> String {
        let (at, data) = (self.network.address(host), self.network.data_address(host));
        let bytes = match host {
            2 => format!("data_listen = \"{data}:7431\"\n"),
            _ if MOVERS.contains(&host) => {
                format!("data_listen = \"0.0.0.0:7431\"\ndata = [\"{data}:7431\"]\n")
            }
            _ => String::new(),
        };
        let target = match bytes.is_empty() {
            true => String::new(),
            false => format!("[[targets]]\npath = \"{}\"\n", self.bed(host).path("target").display()),
        };
        format!(
            "[library]\ncartridges = 2\ncartridge_capacity = \"256 MiB\"\n\
             [[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n\
             [cluster]\nlisten = \"{at}:7430\"\n{bytes}{target}"
        )
    }

    fn carried(&self) -> Carried {
        let of = |host| [CONTROL, DATA].map(|device| self.network.carried(host, device));
        Carried((FIRST..=CLIENT).map(of).collect())
    }

    /// Does something that moves so many bytes to or from `host`, and to or from movers: over the network for data, and not over the other one.
    fn over_data(&self, what: &str, host: usize, bytes: u64, work: impl FnOnce()) {
        let before = self.carried();
        work();
        let after = self.carried();
        let more = |host: usize| {
            let [before, after] = [&before, &after].map(|carried| carried.0[host - FIRST]);
            [after[0] - before[0], after[1] - before[1]]
        };
        let all: Vec<[u64; 2]> = (FIRST..=CLIENT).map(more).collect();
        assert!(
            all.iter().all(|[control, _]| *control < LITTLE),
            "{what}: control and data of hosts: {all:?}"
        );
        assert!(more(host)[1] >= bytes, "{what}: control and data of hosts: {all:?}");
        let movers: u64 = MOVERS.into_iter().map(|mover| more(mover)[1]).sum();
        assert!(movers >= bytes, "{what}: control and data of hosts: {all:?}");
    }

    fn path(&self, host: usize, name: &str) -> PathBuf {
        self.bed(host).mount().join(name)
    }
}

fn write(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

fn is(path: &Path, bytes: &[u8]) {
    let mut found = Vec::new();
    File::open(path).unwrap().read_to_end(&mut found).unwrap();
    assert!(found == bytes, "{} is not what was written", path.display());
}

#[test]
fn bytes_of_files_stay_on_the_network_for_data() {
    let Some(site) = Site::new("two networks") else { return };
    let (first, bytes) = (site.bed(FIRST), noise(3, FILE));
    let data: Vec<String> = MOVERS.map(|host| format!("{}:7431", site.network.data_address(host))).to_vec();
    let told: Vec<String> = targets(first)
        .iter()
        .map(|view| view["target"]["data"][0].as_str().expect("an address").to_owned())
        .collect();
    assert!(data.iter().all(|address| told.contains(address)), "{told:?}");

    let (there, here) = (site.path(CLIENT, "there"), site.path(FIRST, "here"));
    site.over_data("written on another host", CLIENT, FILE as u64, || write(&there, &bytes));
    site.over_data("written at the first node", FIRST, FILE as u64, || write(&here, &bytes));
    [&site.path(FIRST, "there"), &here].into_iter().for_each(|path| wait_for_close(first, path));
    let (read_here, read_there) = (site.path(FIRST, "there"), site.path(CLIENT, "here"));
    site.over_data("read at the first node", FIRST, FILE as u64, || is(&read_here, &bytes));
    site.over_data("read on another host", CLIENT, FILE as u64, || is(&read_there, &bytes));

    site.network.inside(FIRST, || {
        let session = Session::connect(&first.state().join("control.sock")).unwrap();
        site.over_data("written by a native program", FIRST, FILE as u64, || {
            let file = session.open("/native", NativeOptions::new().write(true).create(0o644)).unwrap();
            for (n, part) in bytes.chunks(1 << 20).enumerate() {
                file.write_at(part, (n as u64) << 20).unwrap();
            }
            file.sync().unwrap();
            file.close().unwrap();
        });
        site.over_data("read by a native program", FIRST, FILE as u64, || {
            let file = session.open("/there", NativeOptions::new().read(true)).unwrap();
            for (n, part) in bytes.chunks(1 << 20).enumerate() {
                let mut found = vec![0; part.len()];
                assert_eq!(file.read_at(&mut found, (n as u64) << 20).unwrap(), part.len());
                assert!(found == part, "MiB {n} is not what was written");
            }
        });
    });
    is(&site.path(CLIENT, "native"), &bytes);

    // What is moved from target to target passes through the first node.
    let on = |name: &str| lies_on(first, &site.path(FIRST, name));
    let target = *on("there").first().expect("a target");
    let of = || ["there", "here", "native"].map(|name| on(name).contains(&target));
    let drained = of().iter().filter(|has| **has).count() as u64 * (FILE as u64 / 2);
    assert!(drained > 0, "nothing lies on target {target}");
    site.over_data("moved to other targets", FIRST, 2 * drained, || {
        first.ok(["target", "drain", &target.to_string(), "--wait"]);
    });
    assert_eq!(of(), [false; 3]);
    is(&site.path(CLIENT, "there"), &bytes);
    first.check();
}
