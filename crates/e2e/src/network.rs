//! Hosts on one machine: a network namespace each, with an address of its own, at a switch whose links can be cut and slowed down.

use crate::can_mount;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What the names of all namespaces begin with; the process id of their test follows.
const PREFIX: &str = "thermo-";

/// Hosts 1 to `hosts`, the switch between them, and a file system in memory for their disks: hosts that die often, and many at a time, would wait for each
/// other's fsync on the disk of this machine. Everything is gone when it is dropped; what a killed test has left, when the next network is made.
pub struct Network {
    name: String,
    hosts: usize,
}

/// The device of a host on the network that all have.
pub const CONTROL: &str = "eth0";
/// Its device on the one that is for data only.
pub const DATA: &str = "eth1";

/// A direction of the link of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What others send does not arrive.
    To,
    /// What it sends does not arrive.
    From,
    /// Neither.
    Both,
}

impl Network {
    /// A network, if this machine lets us make it; if not, says which test is left out.
    pub fn new(test: &str, hosts: usize) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !can_mount(test) {
            return None;
        }
        sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = Self { name: format!("{PREFIX}{}-{number}", std::process::id()), hosts };
        if !network.has_switch() {
            eprintln!("LEFT OUT {test}: it needs network namespaces with bridge, veth and tc, and nsenter");
            return None;
        }
        (1..=hosts).for_each(|host| network.attach(host));
        fs::create_dir(network.disks()).unwrap();
        must(&format!("mount -t tmpfs -o size=4g,mode=755 {} {}", network.name, network.disks().display()));
        Some(network)
    }

    /// Where the disks of the hosts are.
    pub fn disks(&self) -> PathBuf {
        std::env::temp_dir().join(&self.name)
    }

    /// Where a host can be reached.
    pub fn address(&self, host: usize) -> String {
        assert!((1..=self.hosts).contains(&host), "no host {host}");
        format!("10.77.0.{host}")
    }

    /// Gives each host a second network, with a switch of its own.
    pub fn with_data(self) -> Self {
        let switch = self.switch();
        must(&format!("ip -n {switch} link add data type bridge"));
        must(&format!("ip -n {switch} link set data up"));
        for host in 1..=self.hosts {
            let (own, at) = (self.namespace(host), self.data_address(host));
            for command in [
                format!("ip -n {switch} link add data{host} type veth peer name {DATA} netns {own}"),
                format!("ip -n {switch} link set data{host} master data up"),
                format!("ip -n {own} addr add {at}/24 dev {DATA}"),
                format!("ip -n {own} link set {DATA} up"),
            ] {
                must(&command);
            }
        }
        self
    }

    /// Where a host can be reached on the second network.
    pub fn data_address(&self, host: usize) -> String {
        self.address(host).replace("10.77.", "10.78.")
    }

    /// Bytes that a host has sent and received at one of its devices, as the kernel counts them.
    pub fn carried(&self, host: usize, device: &str) -> u64 {
        let all = ["rx_bytes", "tx_bytes"].map(|name| format!("/sys/class/net/{device}/statistics/{name}"));
        // Unlike nsenter(1), ip-netns(8) shows the devices of the namespace there.
        let read =
            Command::new("ip").args(["netns", "exec", &self.namespace(host), "cat"]).args(all).output();
        let read = String::from_utf8(read.expect("ip(8) starts").stdout).expect("numbers");
        let numbers: Vec<u64> = read.lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(numbers.len(), 2, "host {host}, {device}: {read:?}");
        numbers.iter().sum()
    }

    /// Does something with the network of a host; threads that it starts have that, too.
    pub fn inside<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let namespace =
            fs::File::open(Path::new("/run/netns").join(self.namespace(host))).expect("a namespace");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("setns(2)");
                work()
            });
            thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
        })
    }

    /// Name of the namespace of a host.
    pub fn namespace(&self, host: usize) -> String {
        format!("{}-{host}", self.name)
    }

    /// Cuts the link of a host: packets vanish, and nobody is told.
    pub fn cut(&self, host: usize, way: Way) {
        self.shape(host, way, "blackhole");
    }

    /// Lets so many megabits per second through the link of a host, each way.
    pub fn slow(&self, host: usize, megabits: u32) {
        self.shape(host, Way::Both, &format!("tbf rate {megabits}mbit burst 64kb latency 400ms"));
    }

    /// Lets everything through again.
    pub fn heal(&self, host: usize) {
        for (namespace, device) in self.ends(host, Way::Both) {
            let _ = run(&format!("tc -n {namespace} qdisc del dev {device} root")); // there may be none
        }
    }

    /// Ends all processes of a host as a power failure would.
    pub fn kill(&self, host: usize) {
        kill(&self.namespace(host));
    }

    /// All processes of a host stand still; its kernel still answers for them.
    pub fn freeze(&self, host: usize) {
        signal(&self.namespace(host), Signal::STOP);
    }

    /// They go on.
    pub fn thaw(&self, host: usize) {
        signal(&self.namespace(host), Signal::CONT);
    }

    /// What decides about packets each way: what goes to a host is sent by its port of the switch.
    fn ends(&self, host: usize, way: Way) -> Vec<(String, String)> {
        let to = (self.switch(), format!("port{host}"));
        let from = (self.namespace(host), CONTROL.to_owned());
        match way {
            Way::To => vec![to],
            Way::From => vec![from],
            Way::Both => vec![to, from],
        }
    }

    fn shape(&self, host: usize, way: Way, discipline: &str) {
        for (namespace, device) in self.ends(host, way) {
            must(&format!("tc -n {namespace} qdisc replace dev {device} root {discipline}"));
        }
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn has_switch(&self) -> bool {
        let switch = self.switch();
        [
            format!("ip netns add {switch}"),
            format!("ip -n {switch} link add name switch type bridge"),
            format!("ip -n {switch} link set switch up"),
            format!("tc -n {switch} qdisc replace dev switch root blackhole"),
            format!("tc -n {switch} qdisc del dev switch root"),
            format!("nsenter --net=/run/netns/{switch} true"),
        ]
        .iter()
        .all(|command| run(command))
    }

    fn attach(&self, host: usize) {
        let (switch, own, at) = (self.switch(), self.namespace(host), self.address(host));
        for command in [
            format!("ip netns add {own}"),
            format!("ip -n {switch} link add port{host} type veth peer name eth0 netns {own}"),
            format!("ip -n {switch} link set port{host} master switch up"),
            format!("ip -n {own} addr add {at}/24 dev eth0"),
            format!("ip -n {own} link set eth0 up"),
            format!("ip -n {own} link set lo up"),
        ] {
            must(&command);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let hosts = (1..=self.hosts).map(|host| self.namespace(host));
        hosts.chain([self.switch()]).for_each(|namespace| remove(&namespace));
        remove_disks(&self.disks());
    }
}

/// Removes what tests have left that were killed themselves.
fn sweep() {
    let left = |dir: &Path| -> Vec<String> {
        let names = fs::read_dir(dir).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let of = |name: &str| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok();
        let is_left = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
        names.filter(|name| of(name).is_some_and(is_left)).collect()
    };
    left(Path::new("/run/netns")).iter().for_each(|namespace| remove(namespace));
    let disks = std::env::temp_dir();
    left(&disks).iter().for_each(|name| remove_disks(&disks.join(name)));
}

fn remove_disks(disks: &Path) {
    run(&format!("umount -l {}", disks.display()));
    let _ = fs::remove_dir(disks); // empty, if it was unmounted
}

/// Without its processes a namespace ends, and with it its links.
fn remove(namespace: &str) {
    if Path::new("/run/netns").join(namespace).exists() {
        kill(namespace);
        run(&format!("ip netns del {namespace}"));
    }
}

/// Kills all that runs in a namespace, and waits for its end.
fn kill(namespace: &str) {
    let begun = Instant::now();
    loop {
        let pids = signal(namespace, Signal::KILL);
        if pids.is_empty() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{namespace}: {pids:?} do not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to all that runs in a namespace; what that is.
fn signal(namespace: &str, signal: Signal) -> Vec<i32> {
    let listed = Command::new("ip").args(["netns", "pids", namespace]).output().expect("ip(8) starts");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let pids: Vec<i32> = listed.lines().filter_map(|line| line.trim().parse().ok()).collect();
    for pid in &pids {
        let _ = kill_process(Pid::from_raw(*pid).expect("a pid"), signal); // it may have ended meanwhile
    }
    pids
}

fn run(command: &str) -> bool {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn must(command: &str) {
    assert!(run(command), "{command}");
}
