//! `[[devices]]`: drives and robots of this host that another node of the cluster uses.
//!
//! One connection at a time has a device: who opens it takes it from the connection before, whose late commands are refused. So a node that
//! lost a connection cannot have a command of that one carried out behind those of the next.
//!
//! A device may be for a node and its standby: the one that took over last has it, and the one before gets it no more, also after a restart of this node.
//!
//! The configuration may change while devices are used. A device that is given as before does not notice. Who has one that is no more given to him, or that is
//! another one from now on, hears so with his next command: one that is at work ends first.

mod depot;
mod epochs;
mod peer;

pub(crate) use depot::Filling;
use epochs::Epochs;
pub(crate) use peer::{Depot, DepotError};
pub use peer::{NodePeers, devices_at};

use crate::attached::Device;
pub use crate::config::DeviceConfig;
use crate::config::Users;
use crate::error::failure;
use parking_lot::{Mutex, RwLock};
use scsi::{Alone, Data, Sense, SenseKey, Transport, TransportError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId};
use wire::{Failure, MAX_SCSI_DATA, ScsiOrder, ScsiResult};

/// The devices that this node gives.
pub(crate) struct Given {
    devices: RwLock<BTreeMap<String, Arc<GivenDevice>>>,
    /// The ways to those that were given, as long as a command may be at work there.
    ways: Mutex<Vec<(Device, Weak<OneByOne>)>>,
    epochs: Epochs,
    /// Of this node.
    pub(super) state: PathBuf,
}

/// The way to a device, for one command at a time.
type OneByOne = Mutex<Box<dyn Transport>>;

type Way = Arc<OneByOne>;

struct GivenDevice {
    name: String,
    address: Device,
    /// Who may use it; or why nobody may any more.
    users: RwLock<Result<Users, &'static str>>,
    /// Number of the connection that has it.
    holder: AtomicU64,
    transport: Way,
    /// Bytes on their way to it.
    depot: Mutex<Option<Arc<depot::Depot>>>,
}

/// A device that a connection has opened.
pub struct Held {
    device: Arc<GivenDevice>,
    who: MemberId,
    number: u64,
}

impl Given {
    /// Those of the configuration. Nothing is opened before the first command.
    pub fn of(config: &crate::Config) -> Self {
        let epochs = Epochs::of(&config.state_dir);
        let state = config.state_dir.clone();
        let given = Self { devices: RwLock::default(), ways: Mutex::default(), epochs, state };
        given.renew(&config.devices);
        given
    }

    /// From now on it is these.
    pub fn renew(&self, config: &[DeviceConfig]) {
        let mut devices = self.devices.write();
        let before = std::mem::take(&mut *devices);
        for given in config {
            let device = match before.get(&given.name) {
                Some(device) if device.address == given.device => {
                    device.is_for(Ok(given.node.clone()));
                    device.clone()
                }
                _ => Arc::new(GivenDevice::new(given, self.way(&given.device))),
            };
            devices.insert(given.name.clone(), device);
        }
        for device in before.into_values() {
            match devices.get(&device.name) {
                Some(now) if Arc::ptr_eq(now, &device) => continue,
                Some(_) => device.is_for(Err("is another one from now on")),
                None => device.is_for(Err("is not given any more")),
            }
            if !devices.values().any(|now| now.address == device.address) {
                device.close();
            }
        }
    }

    /// The way to a device: under another name, or given again, too it does one command after the other.
    fn way(&self, address: &Device) -> Way {
        let mut ways = self.ways.lock();
        ways.retain(|(_, way)| way.strong_count() > 0);
        let known = ways.iter().find(|(device, _)| device == address);
        known.and_then(|(_, way)| way.upgrade()).unwrap_or_else(|| {
            let way = Arc::new(Mutex::new(address.0.transport(&Alone)));
            ways.push((address.clone(), Arc::downgrade(&way)));
            way
        })
    }

    /// What a node may open.
    pub fn names(&self, who: MemberId) -> Vec<String> {
        let devices = self.devices.read();
        let mine = devices.values().filter(|device| device.is_given_to(who));
        mine.map(|device| device.name.clone()).collect()
    }

    /// Takes a device, from whichever connection has it, unless one of a higher epoch (of [`crate::standby`]) has had it.
    pub fn open(&self, who: MemberId, name: &str, epoch: u64) -> Result<Held, Failure> {
        let device = self.device(who, name)?;
        // One opening at a time: the one of the lower epoch does not come behind the other.
        let number = self.epochs.admit(name, epoch, || device.holder.fetch_add(1, Ordering::AcqRel) + 1)?;
        tracing::info!("{who} has device {name}");
        Ok(Held { device, who, number })
    }

    fn device(&self, who: MemberId, name: &str) -> Result<Arc<GivenDevice>, Failure> {
        let device = self.devices.read().get(name).filter(|device| device.is_given_to(who)).cloned();
        device.ok_or_else(|| {
            let message =
                format!("this node has no device {name} for {who}; see [[devices]] in its configuration");
            failure(ErrorClass::NotFound, message)
        })
    }
}

impl GivenDevice {
    fn new(given: &DeviceConfig, transport: Way) -> Self {
        Self {
            name: given.name.clone(),
            address: given.device.clone(),
            users: RwLock::new(Ok(given.node.clone())),
            holder: AtomicU64::new(0),
            transport,
            depot: Mutex::default(),
        }
    }

    fn is_given_to(&self, who: MemberId) -> bool {
        self.users.read().as_ref().is_ok_and(|users| users.contains(who))
    }

    /// From now on these may use it; a depot of somebody else ends.
    fn is_for(&self, users: Result<Users, &'static str>) {
        *self.users.write() = users;
        let mut depot = self.depot.lock();
        if let Some(ended) = depot.take_if(|depot| !self.is_given_to(depot.who)) {
            ended.end();
        }
    }

    /// Nobody is given it any more under any name. Behind a command that is at work the way to it ends with the connection.
    fn close(&self) {
        if let Some(mut transport) = self.transport.try_lock() {
            *transport = self.address.0.transport(&Alone);
        }
    }

    /// Why a connection does not have it any more.
    fn has_lost(&self, held: &Held) -> Option<String> {
        let (name, who) = (&self.name, held.who);
        let see = "see [[devices]] in the configuration of its host";
        match &*self.users.read() {
            Err(why) => Some(format!("device {name} {why}; {see}")),
            Ok(users) if !users.contains(who) => {
                Some(format!("device {name} is not for {who} any more; {see}"))
            }
            Ok(_) if self.holder.load(Ordering::Acquire) != held.number => {
                Some(format!("another connection has taken device {name}"))
            }
            Ok(_) => None,
        }
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
        if let Some(why) = self.device.has_lost(self) {
            return Ok(ScsiResult::Lost(why));
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
        let devices = devices(dir, &[("d0", 0, "[1, 2]")]);
        (server, Given::of(&Config { state_dir: dir.to_owned(), devices, ..Config::default() }))
    }

    /// What a configuration says: name, drive of the library, for whom.
    fn devices(dir: &std::path::Path, all: &[(&str, u16, &str)]) -> Vec<DeviceConfig> {
        let entry = |(name, drive, node): &(&str, u16, &str)| {
            let at = dir.join(format!("sockets/drive{drive}.sock"));
            format!("[[devices]]\nname = \"{name}\"\ndevice = \"unix:{}\"\nnode = {node}\n", at.display())
        };
        let text: String = all.iter().map(entry).collect();
        Config::parse(&format!("[cluster]\nlisten = \"127.0.0.1:7430\"\n{text}")).unwrap().devices
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

    /// Why a connection has lost its device.
    fn lost(held: &Held) -> String {
        match held.execute(&inquiry()) {
            Ok(ScsiResult::Lost(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// The last character of the serial number of the drive.
    fn number(held: &Held) -> char {
        let page = ScsiOrder { cdb: vec![0x12, 1, 0x80, 0, 96, 0], ..inquiry() };
        let Ok(ScsiResult::Answered { status: 0, data, .. }) = held.execute(&page) else { panic!("no page") };
        data.last().map_or(' ', |last| char::from(*last))
    }

    fn filled(given: &Given, who: MemberId, name: &str) -> Filling {
        let mut filling = given.open_depot(who, (name, 0), (7, 100)).unwrap();
        filling.answer(wire::DepotCall::Put { at: Some(0), offset: None, bytes: b"bytes".into() }).unwrap();
        filling
    }

    fn has_bytes(filling: &mut Filling) -> bool {
        filling.answer(wire::DepotCall::Get { at: 0, bytes: 5 }).is_ok()
    }

    #[test]
    fn another_configuration_counts_at_once_and_what_is_given_as_before_does_not_notice() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, given) = given(dir.path());
        let renew = |all: &[(&str, u16, &str)]| given.renew(&devices(dir.path(), all));
        let first = given.open(B, "d0", 0).unwrap();
        let mut depot = filled(&given, B, "d0");
        assert!(given.open(B, "d1", 0).is_err());
        renew(&[("d0", 0, "[1, 2]"), ("d1", 1, "1")]);
        assert!(number(&first) == '0' && has_bytes(&mut depot), "nothing of it has changed");
        let second = given.open(B, "d1", 0).unwrap();
        assert_eq!(number(&second), '1');
        // Each is the other one from now on.
        renew(&[("d0", 1, "[1, 2]"), ("d1", 0, "1")]);
        assert!(lost(&first).contains("device d0 is another one from now on"));
        assert!(lost(&second).contains("device d1 is another one from now on"));
        assert!(!has_bytes(&mut depot));
        let (first, second) = (given.open(B, "d0", 0).unwrap(), given.open(B, "d1", 0).unwrap());
        assert_eq!((number(&first), number(&second)), ('1', '0'));
        let mut depot = filled(&given, B, "d0");
        renew(&[("d0", 1, "[1, 2]")]);
        assert!(lost(&second).contains("device d1 is not given any more"));
        assert!(given.open(B, "d1", 0).is_err() && given.names(B) == ["d0"]);
        assert!(number(&first) == '1' && has_bytes(&mut depot), "nothing of it has changed");
    }

    #[test]
    fn who_is_named_no_more_loses_it_and_who_still_is_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, given) = given(dir.path());
        let renew = |users| given.renew(&devices(dir.path(), &[("d0", 0, users)]));
        let (held, mut depot) = (given.open(STANDBY, "d0", 0).unwrap(), filled(&given, STANDBY, "d0"));
        renew("2");
        assert!(answered(&held) && has_bytes(&mut depot) && given.names(B).is_empty());
        renew("1");
        assert!(lost(&held).contains("is not for node 2 any more"));
        assert!(!has_bytes(&mut depot) && given.open(STANDBY, "d0", 0).is_err());
        assert!(answered(&given.open(B, "d0", 0).unwrap()));
    }

    #[test]
    fn a_name_that_was_away_is_still_refused_to_whoever_was_taken_over_from() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, given) = given(dir.path());
        given.open(STANDBY, "d0", 2).unwrap();
        given.renew(&[]);
        given.renew(&devices(dir.path(), &[("d0", 1, "[1, 2]")]));
        assert_eq!(given.open(B, "d0", 1).err().unwrap().class, ErrorClass::Denied);
        assert!(answered(&given.open(STANDBY, "d0", 2).unwrap()));
    }

    /// A device that is at work until it is told to end.
    struct AtWork {
        begun: crossbeam_channel::Sender<()>,
        end: crossbeam_channel::Receiver<()>,
    }

    impl Transport for AtWork {
        fn execute(&mut self, _: &[u8], data: Data<'_>, _: Duration) -> Result<scsi::Reply, TransportError> {
            self.begun.send(()).unwrap();
            self.end.recv().unwrap();
            Ok(scsi::Reply { status: scsi::GOOD, transferred: data.len(), sense: Vec::new() })
        }

        fn name(&self) -> &str {
            "at work"
        }
    }

    #[test]
    fn a_command_that_is_at_work_ends_before_its_device_is_given_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, given) = given(dir.path());
        let held = given.open(B, "d0", 0).unwrap();
        let (begun, begins) = crossbeam_channel::bounded(9);
        let (end, ends) = crossbeam_channel::bounded(9);
        *held.device.transport.lock() = Box::new(AtWork { begun, end: ends });
        let good = |result| matches!(result, Ok(ScsiResult::Answered { status: 0, .. }));
        std::thread::scope(|scope| {
            let working = scope.spawn(|| held.execute(&inquiry()));
            begins.recv().unwrap();
            given.renew(&devices(dir.path(), &[("d1", 0, "1")]));
            let next = given.open(B, "d1", 0).unwrap();
            let next = scope.spawn(move || next.execute(&inquiry()));
            assert!(begins.recv_timeout(Duration::from_millis(100)).is_err(), "two at once");
            end.send(()).unwrap();
            assert!(good(working.join().unwrap()));
            end.send(()).unwrap();
            assert!(good(next.join().unwrap()));
        });
        assert!(lost(&held).contains("not given any more"));
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
