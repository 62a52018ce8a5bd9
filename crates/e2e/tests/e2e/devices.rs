//! A library whose drives are on two hosts: the node uses its own and, over the cluster's TLS, those that a node on the other host gives to it.
//! A virtual library in this process plays it; each directory of sockets is a host to it.

use crate::cluster::{founder, joined, node_with};
use e2e::{Bed, noise};
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use vtl::{Library, Server, VtlConfig, serve};

struct Hall {
    first: Bed,
    second: Bed,
    at_second: String,
    library: Arc<Library>,
    _servers: [Server; 2],
}

impl Hall {
    /// The robot and drive 0 are cabled to the first node's host, drive 1 to the second's.
    fn new() -> Self {
        let (first, _) = founder();
        let config = VtlConfig {
            capacity_bytes: 256 << 20,
            serial: "HALLA001".into(),
            ..VtlConfig::new(first.path("hall"))
        };
        let library = Library::open(config).unwrap();
        let servers = ["here", "there"].map(|host| serve(library.clone(), &first.path(host)).unwrap());
        let far = first.path("there/drive1.sock");
        let given =
            format!("[[devices]]\nname = \"drive1\"\ndevice = \"unix:{}\"\nnode = 1\n", far.display());
        let (second, at_second) = node_with(&given);
        joined(&second, &first.ok(["cluster", "token"]), "second");
        Self { first, second, at_second, library, _servers: servers }
    }

    /// Looks for the library as an operator does, writes it into the configuration, and starts the node with it.
    fn discover(&self) -> Value {
        self.first.ok(["down"]);
        let path = self.first.state().join("config.toml");
        let mut config = fs::read_to_string(&path).unwrap();
        config.push_str(
            "[tape]\nidle_unmount_s = 1\ndrive_retry_s = 1\n[[classes]]\nname = \"default\"\n\
             copies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n",
        );
        fs::write(&path, config).unwrap();
        let here = |name: &str| format!("unix:{}", self.first.path(&format!("here/{name}.sock")).display());
        let there = format!("thermo://{}", self.at_second);
        let found = self.first.json([
            "library",
            "discover",
            "--write",
            "--only",
            &here("changer"),
            &here("drive0"),
            &there,
        ]);
        self.first.up();
        found
    }

    fn get_back(&self, data: &[u8]) {
        let back = self.first.path("back");
        self.first.ok(["purge", "tc:/file"]);
        self.first.ok(["get", "tc:/file", back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap() == data);
        fs::remove_file(back).unwrap();
    }

    fn put(&self, data: &[u8]) {
        fs::write(self.first.path("file"), data).unwrap();
        self.first.ok(["put", self.first.path("file").to_str().unwrap(), "tc:/file"]);
    }
}

#[test]
fn drives_of_two_hosts_work_for_one_node() {
    let hall = Hall::new();
    let found = hall.discover();
    let drives = found["libraries"][0]["drives"].as_array().unwrap();
    let addresses: Vec<&str> = drives.iter().map(|d| d["device"].as_str().unwrap()).collect();
    assert_eq!(addresses[1], format!("thermo://{}/drive1", hall.at_second), "{found:#}");
    let data = noise(7, 3_000_000);
    hall.put(&data);
    let usable = |drives: Value| drives.as_array().unwrap().iter().all(|drive| drive["status"] == "free");
    hall.first.wait("both drives can be used", || usable(hall.first.json(["drive", "ls"])));
    hall.first.ok(["migrate", "--wait", "tc:/file"]);
    let loads = || [0, 1].map(|n| hall.library.stats(n).unwrap().loads);
    assert!(loads().iter().all(|loads| *loads > 0), "both copies at once on two drives: {:?}", loads());
    hall.get_back(&data);
    // With the near drive out of use all goes through the other host.
    hall.first.ok(["drive", "down", "0"]);
    let empty = |drives: Value| drives.as_array().unwrap().iter().all(|drive| drive["volume"].is_null());
    hall.first.wait("the drives are empty", || empty(hall.first.json(["drive", "ls"])));
    let before = loads()[1];
    hall.get_back(&data);
    assert!(loads()[1] > before, "{:?}", loads());
    hall.first.ok(["check", "--tapes"]);
    hall.first.ok(["down"]);
}

#[test]
fn a_drive_whose_host_dies_is_used_again_when_that_is_back() {
    let hall = Hall::new();
    hall.discover();
    let data = noise(9, 40_000_000);
    hall.put(&data);
    hall.first.ok(["migrate", "tc:/file"]);
    hall.first.wait("the far drive writes", || hall.library.stats(1).unwrap().loads > 0);
    hall.second.kill();
    hall.first.wait("it is noticed", || hall.first.log().contains(&hall.at_second));
    hall.second.up();
    hall.first.ok(["migrate", "--wait", "tc:/file"]);
    hall.get_back(&data);
    hall.first.wait("drive 1 is in use", || {
        let status = hall.first.json(["drive", "ls"])[1]["status"].clone();
        status == "free" || status == "idle"
    });
    hall.first.ok(["check", "--tapes", "--deep"]);
    hall.first.ok(["down"]);
}

#[test]
fn a_node_begins_without_a_library_whose_host_is_away_and_uses_it_when_that_is_back() {
    let hall = Hall::new();
    let config = hall.first.state().join("config.toml");
    hall.discover();
    // The robot too is at the other host.
    let robot = format!(
        "[[devices]]\nname = \"changer\"\ndevice = \"unix:{}\"\nnode = 1\n",
        hall.first.path("there/changer.sock").display()
    );
    let given = hall.second.state().join("config.toml");
    fs::write(&given, fs::read_to_string(&given).unwrap() + &robot).unwrap();
    let here = format!("unix:{}", hall.first.path("here/changer.sock").display());
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(&here), "{text}");
    fs::write(&config, text.replace(&here, &format!("thermo://{}/changer", hall.at_second))).unwrap();
    hall.first.ok(["down"]);
    hall.second.ok(["down"]);
    hall.first.up();
    let data = noise(3, 100_000);
    hall.put(&data);
    assert!(hall.first.log().contains("cannot be used"));
    hall.second.up();
    hall.first.wait("the library", || hall.first.log().contains("is in use now"));
    hall.first.ok(["migrate", "--wait", "tc:/file"]);
    hall.get_back(&data);
    hall.first.ok(["down"]);
}

#[test]
fn devices_are_taken_away_and_given_again_while_both_nodes_run() {
    let hall = Hall::new();
    hall.discover();
    let config = hall.second.state().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let is_in_use = || {
        let status = hall.first.json(["drive", "ls"])[1]["status"].clone();
        status == "free" || status == "idle"
    };
    hall.first.wait("drive 1 is in use", is_in_use);
    let (before, _) = text.split_once("[[devices]]").expect("its device");
    fs::write(&config, before).unwrap();
    let told = hall.second.ok(["reload"]);
    assert!(told.contains("from now on: devices") && !told.contains("next start"), "{told}");
    let data = noise(5, 3_000_000);
    hall.put(&data);
    hall.first.ok(["migrate", "--wait", "tc:/file"]);
    assert!(hall.first.log().contains("device drive1 is not given any more"), "{}", hall.first.log());
    assert!(!is_in_use());
    // By another cable.
    let _other = serve(hall.library.clone(), &hall.first.path("other")).unwrap();
    let there = hall.first.path("there").display().to_string();
    let other = text.replace(&there, &hall.first.path("other").display().to_string());
    assert_ne!(other, text);
    fs::write(&config, other).unwrap();
    hall.second.ok(["reload"]);
    hall.first.wait("drive 1 is in use again", is_in_use);
    hall.first.ok(["drive", "down", "0"]);
    hall.get_back(&data);
    hall.first.ok(["down"]);
}

/// Only the node that is named in the configuration gets a device; whoever is no member gets nothing.
#[test]
fn devices_are_given_to_nobody_else() {
    let hall = Hall::new();
    let (stranger, _) = founder();
    let there = format!("thermo://{}", hall.at_second);
    stranger.ok(["down"]);
    // What is found nowhere is told with the reason.
    let looked = |bed: &Bed, at: &str| {
        let output = bed.run(["library", "discover", "--only", at]);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told = looked(&stranger, &there);
    assert!(told.contains(&hall.at_second) && told.contains("certificate"), "{told}");
    let (third, _) = node_with("");
    joined(&third, &hall.first.ok(["cluster", "token"]), "third");
    third.ok(["down"]);
    let told = looked(&third, &format!("{there}/drive1"));
    assert!(told.contains("no device drive1 for node 3"), "{told}");
    assert!(hall.second.log().contains("is refused"));
}
