//! A tape library that is cabled to one of the movers: the node that has the namespace uses it over the network. It outlives all hosts.

use e2e::Network;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use vtl::{Library, Mechanics, Server, VtlConfig, serve};

/// The mover that it is cabled to.
pub const AT: usize = 3;
const DEVICES: [&str; 3] = ["changer", "drive0", "drive1"];
const SERIAL: &str = "HALLA001";
/// Bytes per second that a drive reads or writes: it is at work for a moment.
const SPEED: u64 = 4_000_000;

/// What the drives do at a moment.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    Write,
    Read,
}

pub struct Hall {
    library: Arc<Library>,
    _server: Server,
}

impl Hall {
    pub fn new(disks: &Path) -> Self {
        let config = VtlConfig {
            capacity_bytes: 128 << 20,
            buffer_bytes: 256 << 10,
            mechanics: Mechanics::streaming(SPEED),
            serial: SERIAL.into(),
            ..VtlConfig::new(disks.join("hall"))
        };
        let library = Library::open(config).unwrap();
        let _server = serve(library.clone(), &disks.join("cables")).unwrap();
        Self { library, _server }
    }

    /// What the configuration of its host says: nodes 1 and 2 may have the namespace.
    pub fn given(disks: &Path) -> String {
        let device = |name: &str| {
            let at = disks.join(format!("cables/{name}.sock"));
            format!("[[devices]]\nname = \"{name}\"\ndevice = \"unix:{}\"\nnode = [1, 2]\n", at.display())
        };
        DEVICES.map(device).concat()
    }

    /// What the configuration of a node says that uses it.
    pub fn used(network: &Network) -> String {
        let at = |name: &str| format!("\"thermo://{}:7430/{name}\"", network.address(AT));
        let drive = |n: u16| {
            let device = at(DEVICES[1 + usize::from(n)]);
            format!("[[libraries.drives]]\ndevice = {device}\nserial = \"{SERIAL}D0{n}\"\n")
        };
        let changer = at(DEVICES[0]);
        format!(
            "[tape]\nidle_unmount_s = 1\ndrive_retry_s = 1\n[[libraries]]\nname = \"hall\"\nchanger = {changer}\n{}{}",
            drive(0),
            drive(1)
        )
    }

    /// Waits for a moment in which a drive is at work.
    pub fn wait_for(&self, work: Work) {
        let moved = || {
            let stats = [0, 1].map(|n| self.library.stats(n).expect("a drive"));
            match work {
                Work::Write => stats.map(|drive| drive.bytes_written),
                Work::Read => stats.map(|drive| drive.bytes_read),
            }
        };
        let (begun, mut before) = (Instant::now(), moved());
        loop {
            assert!(begun.elapsed() < Duration::from_secs(120), "no drive is at work: {work:?}");
            sleep(Duration::from_millis(20));
            let now = moved();
            // More than a label, or a look at one.
            if now.iter().zip(before).any(|(now, before)| now - before >= SPEED / 100) {
                return;
            }
            before = now;
        }
    }
}
