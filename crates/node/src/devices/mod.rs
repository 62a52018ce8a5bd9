//! `[[devices]]`: drives and robots of this host that another node of the cluster uses.
//!
//! One connection at a time has a device: who opens it takes it from the connection before, whose late commands are refused. So a node that
//! lost a connection cannot have a command of that one carried out behind those of the next.
//!
//! A device may be for a node and its standby: the one that took over last has it, and the one before gets it no more, also after a restart of this node.

mod depot;
mod epochs;
mod peer;

pub(crate) use depot::Filling;
use epochs::Epochs;
pub(crate) use peer::{Depot, DepotError};
pub use peer::{NodePeers, devices_at};

pub use crate::config::DeviceConfig;
use crate::config::Users;
use crate::error::failure;
use parking_lot::Mutex;
use scsi::{Alone, Data, Sense, SenseKey, Transport, TransportError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId};
use wire::{Failure, MAX_SCSI_DATA, ScsiOrder, ScsiResult};

/// The devices that this node gives.
pub(crate) struct Given {
    devices: BTreeMap<String, Arc<GivenDevice>>,
    epochs: Epochs,
}

struct GivenDevice {
    name: String,
    node: Users,
    /// Number of the connection that has it.
    holder: AtomicU64,
    transport: Mutex<Box<dyn Transport>>,
    /// Bytes on their way to it.
    depot: Mutex<Option<Arc<depot::Depot>>>,
}

/// A device that a connection has opened.
pub struct Held {
    device: Arc<GivenDevice>,
    number: u64,
}

impl Given {
    /// Those of the configuration. Nothing is opened before the first command.
    pub fn of(config: &crate::Config) -> Self {
        let device = |given: &DeviceConfig| {
            let device = GivenDevice {
                name: given.name.clone(),
                node: given.node.clone(),
                holder: AtomicU64::new(0),
                transport: Mutex::new(given.device.0.transport(&Alone)),
                depot: Mutex::default(),
            };
            (given.name.clone(), Arc::new(device))
        };
        Self { devices: config.devices.iter().map(device).collect(), epochs: Epochs::of(&config.state_dir) }
    }

    /// What a node may open.
    pub fn names(&self, who: MemberId) -> Vec<String> {
        let mine = self.devices.values().filter(|device| device.node.contains(who));
        mine.map(|device| device.name.clone()).collect()
    }

    /// Takes a device, from whichever connection has it, unless one of a higher epoch (of [`crate::standby`]) has had it.
    pub fn open(&self, who: MemberId, name: &str, epoch: u64) -> Result<Held, Failure> {
        let device = self.device(who, name)?;
        // One opening at a time: the one of the lower epoch does not come behind the other.
        let number = self.epochs.admit(name, epoch, || device.holder.fetch_add(1, Ordering::AcqRel) + 1)?;
        tracing::info!("{who} has device {name}");
        Ok(Held { device, number })
    }

    fn device(&self, who: MemberId, name: &str) -> Result<Arc<GivenDevice>, Failure> {
        let device = self.devices.get(name).filter(|device| device.node.contains(who)).cloned();
        device.ok_or_else(|| {
            let message =
                format!("this node has no device {name} for {who}; see [[devices]] in its configuration");
            failure(ErrorClass::NotFound, message)
        })
    }
}

impl Held {
    /// Has a command carried out.
    pub fn execute(&self, order: &ScsiOrder) -> Result<ScsiResult, Failure> {
        let there = order.there.or(order.keep).map_or(0, |there| there.bytes as usize);
        if order.out.len().max(order.room as usize).max(there) > MAX_SCSI_DATA {
            return Ok(ScsiResult::Refused(too_large()));
        }
        if order.cdb.is_empty() || order.cdb.len() > 16 {
            return Err(failure(ErrorClass::Invalid, "a SCSI command has 1 to 16 bytes"));
        }
        let timeout = Duration::from_millis(order.timeout_ms);
        let begun = Instant::now();
        // A command of a connection before may be at work.
        let Some(mut transport) = self.device.transport.try_lock_for(timeout) else {
            return Ok(ScsiResult::TimedOut);
        };
        if self.device.holder.load(Ordering::Acquire) != self.number {
            let name = &self.device.name;
            return Ok(ScsiResult::Lost(format!("another connection has taken device {name}")));
        }
        let there = match order.there.as_ref().map(|there| self.device.out_of_depot(there)).transpose() {
            Ok(there) => there.unwrap_or_default(),
            Err(why) => return Ok(ScsiResult::Lost(why)),
        };
        let mut room = vec![0; order.keep.map_or(order.room as usize, |keep| depot::length(&keep))];
        let both = order.keep.is_some() && order.room > 0;
        let data = match (order.out.is_empty(), there.is_empty(), room.is_empty()) {
            (false, true, true) => Data::Out(&order.out),
            (true, false, true) => Data::Out(&there),
            (true, true, false) if !both => Data::In(&mut room),
            (true, true, true) => Data::None,
            _ => return Err(failure(ErrorClass::Invalid, "a SCSI command moves data one way only")),
        };
        let reply = match transport.execute(&order.cdb, data, timeout.saturating_sub(begun.elapsed())) {
            Ok(reply) => reply,
            Err(TransportError::Timeout { .. }) => return Ok(ScsiResult::TimedOut),
            Err(TransportError::Lost { detail, .. }) => return Ok(ScsiResult::Lost(detail)),
            Err(TransportError::Refused { detail, .. }) => return Ok(ScsiResult::Refused(detail)),
            Err(TransportError::Garbled { .. }) => return Ok(ScsiResult::Garbled),
        };
        room.truncate(reply.transferred);
        if order.keep.is_some() && !has_record(&reply) {
            room.clear();
        } else if let Some(keep) = &order.keep {
            match self.device.into_depot(keep, &room) {
                Ok(true) => room.clear(),
                Ok(false) => return Ok(ScsiResult::Garbled),
                Err(why) => return Ok(ScsiResult::Lost(why)),
            }
        }
        let transferred = reply.transferred as u32;
        Ok(ScsiResult::Answered { status: reply.status, transferred, sense: reply.sense, data: room })
    }
}

/// Whether what came with the answer to a READ is a whole record.
fn has_record(reply: &scsi::Reply) -> bool {
    if reply.status == scsi::GOOD {
        return true;
    }
    Sense::decode(&reply.sense).is_some_and(|sense| {
        let fine = matches!(sense.key, SenseKey::NoSense | SenseKey::RecoveredError) && !sense.deferred;
        // A longer one than asked for, or of unknown length.
        let cut = sense.ili && sense.information.is_none_or(|short| short < 0);
        fine && !sense.filemark && !cut
    })
}

fn too_large() -> String {
    format!("a command moves at most {MAX_SCSI_DATA} bytes to or from the device of another node")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const B: MemberId = MemberId::Node(types::NodeId(1));
    const STANDBY: MemberId = MemberId::Node(types::NodeId(2));

    fn given(dir: &std::path::Path) -> (vtl::Server, Given) {
        // A connection of a server before lets go of the library when it sees that it has ended.
        let deadline = Instant::now() + Duration::from_secs(30);
        let library = loop {
            match vtl::Library::open(vtl::VtlConfig::new(dir.join("library"))) {
                Ok(library) => break library,
                Err(why) => assert!(Instant::now() < deadline, "{why}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let server = vtl::serve(library, &dir.join("sockets")).unwrap();
        let device = format!("unix:{}", dir.join("sockets/drive0.sock").display());
        let text = format!(
            "[cluster]\nlisten = \"127.0.0.1:7430\"\n[[devices]]\nname = \"d0\"\ndevice = \"{device}\"\nnode = [1, 2]\n"
        );
        (server, Given::of(&Config { state_dir: dir.to_owned(), ..Config::parse(&text).unwrap() }))
    }

    fn inquiry() -> ScsiOrder {
        ScsiOrder {
            cdb: vec![0x12, 0, 0, 0, 96, 0],
            out: Vec::new(),
            room: 96,
            timeout_ms: 10_000,
            there: None,
            keep: None,
        }
    }

    fn answered(held: &Held) -> bool {
        matches!(held.execute(&inquiry()), Ok(ScsiResult::Answered { status: 0, data, .. }) if data[0] == 1)
    }

    #[test]
    fn a_device_belongs_to_the_connection_that_opened_it_last() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, given) = given(dir.path());
        let first = given.open(B, "d0", 0).unwrap();
        assert!(answered(&first));
        let second = given.open(B, "d0", 0).unwrap();
        assert!(answered(&second));
        assert!(
            matches!(first.execute(&inquiry()), Ok(ScsiResult::Lost(why)) if why.contains("another connection"))
        );
        assert!(answered(&second));
    }

    /// Also after a restart of the node that gives it.
    #[test]
    fn whoever_was_taken_over_from_gets_it_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let (server, before) = given(dir.path());
        let old = before.open(B, "d0", 1).unwrap();
        let new = before.open(STANDBY, "d0", 2).unwrap();
        assert!(matches!(old.execute(&inquiry()), Ok(ScsiResult::Lost(_))));
        let refused = |given: &Given| {
            let why = given.open(B, "d0", 1).err().expect("a refusal");
            assert!(why.class == ErrorClass::Denied && why.message.contains("taken over"), "{why}");
        };
        refused(&before);
        assert!(answered(&new), "nobody took it from the new one");
        drop(server);
        let (_server, after) = given(dir.path());
        refused(&after);
        assert!(answered(&after.open(STANDBY, "d0", 2).unwrap()));
        // It may take over again.
        assert!(answered(&after.open(B, "d0", 3).unwrap()));
        std::fs::write(dir.path().join("devices"), "damaged").unwrap();
        assert_eq!(after.open(B, "d0", 3).err().unwrap().class, ErrorClass::Corrupt);
    }

    #[test]
    fn only_the_nodes_that_are_named_get_it() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, given) = given(dir.path());
        for who in [MemberId::Node(types::NodeId(3)), MemberId::Client(types::ClientId(1))] {
            assert!(given.names(who).is_empty());
            assert_eq!(given.open(who, "d0", 0).err().unwrap().class, ErrorClass::NotFound);
        }
        assert_eq!([given.names(B), given.names(STANDBY)], [["d0"], ["d0"]]);
        assert!(given.open(B, "d1", 0).is_err());
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, given) = given(dir.path());
        let held = given.open(B, "d0", 0).unwrap();
        for order in [
            ScsiOrder { cdb: Vec::new(), ..inquiry() },
            ScsiOrder { cdb: vec![0; 17], ..inquiry() },
            ScsiOrder { out: vec![1], ..inquiry() },
        ] {
            assert!(held.execute(&order).is_err(), "{order:?}");
        }
        let large = ScsiOrder { room: u32::MAX, ..inquiry() };
        assert!(matches!(held.execute(&large), Ok(ScsiResult::Refused(_))));
    }
}
