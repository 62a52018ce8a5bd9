//! What goes between targets and the drive of another host does not touch the node with the names: seen by what the links of the hosts carry.

use e2e::cluster::{join, up, words};
use e2e::network::{CONTROL, DATA};
use e2e::{Bed, Network, noise};
use std::fs;
use vtl::{Library, VtlConfig, serve};

/// The hosts: who has the names and the robot, who has the drive, and two that have a target each.
const FIRST: usize = 1;
const DRIVE: usize = 2;
const MOVERS: [usize; 2] = [3, 4];
const SIZE: usize = 40_000_000;
/// What commands, their answers and TLS may come to.
const LITTLE: u64 = 4_000_000;

struct Hosts {
    beds: Vec<Bed>,
    network: Network,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in (FIRST..=MOVERS[1]).rev() {
            if std::thread::panicking() {
                eprintln!("log of host {host}:\n{}", self.bed(host).log());
            }
            self.network.kill(host);
        }
    }
}

impl Hosts {
    fn bed(&self, host: usize) -> &Bed {
        &self.beds[host - FIRST]
    }

    /// What each host has sent and received over its networks so far (bytes), for control and for data.
    fn carried(&self) -> Vec<[u64; 2]> {
        let of = |host| [CONTROL, DATA].map(|device| self.network.carried(host, device));
        (FIRST..=MOVERS[1]).map(of).collect()
    }

    /// Does something that moves the file between its movers and the host of the drive, and nowhere else.
    fn straight(&self, what: &str, work: impl FnOnce()) {
        let before = self.carried();
        work();
        let more: Vec<[u64; 2]> =
            self.carried().iter().zip(&before).map(|(a, b)| [a[0] - b[0], a[1] - b[1]]).collect();
        let told = || format!("{what}: control and data of hosts: {more:?}");
        assert!(more.iter().all(|[control, _]| *control < LITTLE), "{}", told());
        assert!(more[0][1] < LITTLE, "{}", told());
        assert!(more[DRIVE - FIRST][1] > SIZE as u64, "{}", told());
        assert!(more[2][1] + more[3][1] > SIZE as u64, "{}", told());
    }
}

#[test]
fn bytes_go_between_movers_and_the_host_of_the_drive_over_the_network_for_data_only() {
    let Some(network) = Network::new("tape bytes over the network for data", MOVERS[1]) else { return };
    let network = network.with_data();
    let config =
        VtlConfig { drives: 1, serial: "HALLC001".into(), ..VtlConfig::new(network.disks().join("hall")) };
    let library = Library::open(VtlConfig { capacity_bytes: 256 << 20, ..config }).unwrap();
    let cables = network.disks().join("cables");
    let _server = serve(library, &cables).unwrap();
    let device = |name: &str| format!("unix:{}", cables.join(format!("{name}.sock")).display());
    let bed = |host: usize| {
        let (at, data) = (network.address(host), network.data_address(host));
        let bed = Bed::on(&network, host, "");
        let more = match host {
            FIRST => "[tape]\nidle_unmount_s = 60\n[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\nmigrate_after_s = 3600\n".to_owned(),
            DRIVE => format!("[[devices]]\nname = \"drive0\"\ndevice = \"{}\"\nnode = 1\n", device("drive0")),
            _ => format!("data_listen = \"{data}:7431\"\n[[targets]]\npath = \"{}\"\n", bed.path("target").display()),
        };
        let text = format!("[cluster]\nlisten = \"{at}:7430\"\n{more}");
        fs::write(bed.state().join("config.toml"), text).unwrap();
        bed.up();
        bed
    };
    let beds = (FIRST..=MOVERS[1]).map(bed).collect();
    let hosts = Hosts { beds, network };
    let first = hosts.bed(FIRST);
    first.ok(["cluster", "init", "--name", "first"]);
    for host in [DRIVE, MOVERS[0], MOVERS[1]] {
        join(first, hosts.bed(host), &format!("host{host}"));
    }
    first.wait("two targets", || up(first) == [3, 4]);
    first.ok(["down"]);
    let there = format!("thermo://{}:7430", hosts.network.address(DRIVE));
    first.json(["library", "discover", "--write", "--only", &device("changer"), &there]);
    first.up_mounted();
    let dir = first.mount().join("striped");
    fs::create_dir(&dir).unwrap();
    first.ok(words("layout set", &dir, "--stripes 2 --stripe-size 256KiB"));
    let (path, bytes) = (dir.join("file"), noise(5, SIZE));
    fs::write(&path, &bytes).unwrap();
    first.wait("its close", || first.json(words("stat", &path, ""))[0]["file"]["stamp"]["size"] == SIZE);
    hosts.straight("to tape", || drop(first.ok(words("migrate", &path, "--wait"))));
    first.ok(words("purge", &path, "--wait"));
    hosts.straight("back", || drop(first.ok(words("stage", &path, "--wait"))));
    assert!(fs::read(&path).unwrap() == bytes);
    first.check();
}
