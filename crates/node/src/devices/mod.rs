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
        let there = |place: Option<wire::ScsiThere>| place.map_or(0, |there| there.bytes as usize);
        let most = there(order.there).max(there(order.keep)).max(order.room as usize).max(order.out.len());
        if most > MAX_SCSI_DATA {
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
        let there = match order.there.as_ref().map(|there| self.device.get_from_depot(there)).transpose() {
            Ok(there) => there.unwrap_or_default(),
            Err(why) => return Ok(ScsiResult::Refused(why)),
        };
        // What the device gives has its place, also if nobody is left to fetch it.
        let keeps = match order.keep.map(|keep| self.device.depot_of(keep.depot)).transpose() {
            Ok(keeps) => keeps,
            Err(why) => return Ok(ScsiResult::Refused(why)),
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
        let mut transferred = reply.transferred;
        room.truncate(transferred);
        if let (Some(keep), Some(depot)) = (&order.keep, &keeps) {
            let record = record_in(&reply, depot::length(keep)).filter(|length| *length <= room.len());
            if let Some(record) = record.and_then(|length| room.get(..length)) {
                transferred = record.len();
                match self.device.put_into_depot(depot, keep, record) {
                    Ok(true) => {}
                    Ok(false) => return Ok(ScsiResult::Garbled),
                    Err(why) => return Ok(ScsiResult::Lost(why)),
                }
            }
            room.clear();
        }
        let transferred = transferred as u32;
        Ok(ScsiResult::Answered { status: reply.status, transferred, sense: reply.sense, data: room })
    }
}

/// Length of the record that came with the answer to a READ of so many bytes; None: no whole one.
fn record_in(reply: &scsi::Reply, asked: usize) -> Option<usize> {
    if reply.status == scsi::GOOD {
        return Some(reply.transferred);
    }
    let sense = Sense::decode(&reply.sense)?;
    let fine = matches!(sense.key, SenseKey::NoSense | SenseKey::RecoveredError);
    if !fine || sense.deferred || sense.filemark {
        return None;
    }
    match sense.information {
        // A shorter one than asked for, or a longer one, or one of unknown length.
        short if sense.ili => asked.checked_sub(usize::try_from(short?).ok()?),
        _ => Some(reply.transferred),
    }
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
    fn only_whole_records_are_kept() {
        // Fixed format sense data: key with ILI (20h) and FILEMARK (80h), information.
        let answer = |bits: u8, information: i32| {
            let mut sense = vec![0; 18];
            (sense[0], sense[2], sense[7]) = (0xF0, bits, 10);
            sense[3..7].copy_from_slice(&information.to_be_bytes());
            scsi::Reply { status: scsi::CHECK_CONDITION, transferred: 100, sense }
        };
        let good = scsi::Reply { status: scsi::GOOD, transferred: 60, sense: Vec::new() };
        assert_eq!(record_in(&good, 100), Some(60));
        assert_eq!(record_in(&answer(0x20, 30), 100), Some(70), "shorter, whatever was transferred");
        assert_eq!(record_in(&answer(0x20, -30), 100), None, "longer");
        assert_eq!(record_in(&answer(0x20, 130), 100), None, "nonsense");
        assert_eq!(record_in(&answer(0x01, 0), 100), Some(100), "a recovered error");
        assert_eq!(record_in(&answer(0x80, 100), 100), None, "a filemark");
        assert_eq!(record_in(&answer(0x03, 0), 100), None, "a medium error");
        assert_eq!(record_in(&scsi::Reply { sense: vec![1, 2], ..answer(0, 0) }, 100), None);
    }

    #[test]
    fn a_depot_is_for_the_nodes_that_are_named_and_the_last_one_that_was_made_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, given) = given(dir.path());
        let stranger = MemberId::Node(types::NodeId(3));
        assert_eq!(given.open_depot(stranger, ("d0", 9), (1, 10)).err().unwrap().class, ErrorClass::NotFound);
        for bytes in [0, wire::MAX_DEPOT + 1] {
            assert_eq!(given.open_depot(B, ("d0", 0), (1, bytes)).err().unwrap().class, ErrorClass::Invalid);
        }
        let put = |at: u64| wire::DepotCall::Put { at: Some(at), offset: None, bytes: b"bytes".into() };
        let get = |at: u64| wire::DepotCall::Get { at, bytes: 5 };
        let mut first = given.open_depot(B, ("d0", 1), (7, 100)).unwrap();
        assert!(first.answer(put(0)).is_ok() && first.answer(put(6)).is_err(), "a gap");
        assert_eq!(first.answer(get(0)), Ok(wire::Reply::Bytes(b"bytes".into())));
        let held = given.open(B, "d0", 1).unwrap();
        let there = |depot, at| wire::ScsiThere { depot, at, bytes: 5, sealed: false };
        let refused = |order: ScsiOrder| matches!(held.execute(&order), Ok(ScsiResult::Refused(_)));
        let order = |there| ScsiOrder { room: 0, there: Some(there), ..inquiry() };
        assert!(refused(order(there(8, 0))) && refused(order(there(7, 1))), "not what is there");
        assert!(held.execute(&ScsiOrder { keep: Some(there(7, 5)), ..order(there(7, 0)) }).is_err());
        assert!(refused(ScsiOrder { room: 0, keep: Some(there(8, 5)), ..inquiry() }), "nothing is done");
        // Whoever took over makes another; the one before makes none any more.
        let mut second = given.open_depot(STANDBY, ("d0", 2), (9, 100)).unwrap();
        assert!(first.answer(put(5)).is_err() && first.answer(get(0)).is_err());
        assert_eq!(given.open_depot(B, ("d0", 1), (11, 100)).err().unwrap().class, ErrorClass::Denied);
        drop(first);
        assert!(second.answer(put(0)).is_ok() && second.answer(get(0)).is_ok());
        for call in [wire::DepotCall::Digests, wire::DepotCall::Fetch { at: None, offset: 0, bytes: 1 }] {
            assert_eq!(second.answer(call).unwrap_err().class, ErrorClass::Invalid, "no file is open");
        }
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
