//! Devices of other nodes, as this one uses them.

use super::too_large;
use crate::cluster::directory;
use crate::error::failure;
use ident::{Connector, Credentials, Role};
use parking_lot::Mutex;
use scsi::{Data, NodeAddress, Peers, Reply, There, Transport, TransportError};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::ErrorClass;
use wire::{
    Call, Channel, DepotCall, DepotDigests, DepotFile, Failure, LentLayout, MAX_FETCH, MAX_SCSI_DATA,
    ScsiOrder, ScsiResult, ScsiThere,
};

const PROGRAM: &str = concat!("thermo ", env!("CARGO_PKG_VERSION"));
/// Longest wait for an answer that no device has a part in.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer than the device the other node may take to say that it did not answer.
const GRACE: Duration = Duration::from_secs(5);

/// Reaches devices of other nodes as the member of the cluster that a node is.
#[derive(Clone, Debug)]
pub struct NodePeers {
    state: PathBuf,
}

impl NodePeers {
    /// As the node of this state directory.
    pub fn of(state: &Path) -> Self {
        Self { state: state.to_owned() }
    }
}

impl Peers for NodePeers {
    fn transport(&self, address: &NodeAddress) -> Box<dyn Transport> {
        let (address, name) = (address.clone(), address.to_string());
        Box::new(PeerTransport { state: self.state.clone(), address, name, line: None })
    }
}

/// Names of the devices that the node at `node` (`host:port`) gives to this one.
///
/// # Errors
/// That node does not answer, or does not know this one.
pub fn devices_at(state: &Path, node: &str) -> Result<Vec<NodeAddress>, Failure> {
    let mut line =
        Line::to(&directory(state), node).map_err(|e| failure(ErrorClass::Drive, format!("{node}: {e}")))?;
    match line.ask(&Call::Devices, PATIENCE) {
        Ok(Ok(wire::Reply::Devices(names))) => {
            Ok(names.into_iter().map(|device| NodeAddress { node: node.into(), device }).collect())
        }
        Ok(Ok(other)) => Err(failure(ErrorClass::Bug, format!("{node} answered {other:?}"))),
        Ok(Err(e)) => Err(failure(e.class, format!("{node}: {}", e.message))),
        Err(e) => Err(failure(ErrorClass::Drive, format!("{node}: {e}"))),
    }
}

/// A connection.
struct Line {
    channel: Channel,
    socket: TcpStream,
    calls: u64,
}

impl Line {
    fn to(credentials: &Path, node: &str) -> Result<Self, String> {
        let own = Credentials::load(credentials).map_err(|e| e.to_string())?;
        let own = own.ok_or("this node belongs to no cluster: `thermo cluster join`")?;
        let connector = Connector::member(&own).map_err(|e| e.to_string())?;
        let stream = connector.connect(node).map_err(|e| e.to_string())?;
        match stream.peer() {
            Some((identity, _)) if matches!(identity.role, Role::Node(_)) => {}
            _ => return Err("that is no node of the cluster".into()),
        }
        let socket = stream.socket().try_clone().map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        let channel = Channel::over(Box::new(stream), PROGRAM).map_err(|e| e.to_string())?;
        Ok(Self { channel, socket, calls: 0 })
    }

    /// The outer result is that of the connection, the inner one the node's.
    fn ask(
        &mut self,
        call: &Call,
        patience: Duration,
    ) -> Result<Result<wire::Reply, Failure>, wire::WireError> {
        self.socket.set_read_timeout(Some(patience))?;
        self.socket.set_write_timeout(Some(patience))?;
        self.calls += 1;
        self.channel.send_call(self.calls, call)?;
        Ok(self.channel.receive_result()?.result)
    }
}

/// How long a depot may take to bring bytes: movers that do not answer are given up there before.
const FETCH_PATIENCE: Duration = Duration::from_secs(30);

/// Why a depot has not done what it was asked.
pub(crate) enum DepotError {
    /// It is gone with what it had.
    Gone(String),
    /// It could not, and is there still.
    Failed(ErrorClass, String),
}

impl DepotError {
    /// What happened.
    pub fn why(self) -> String {
        let (Self::Gone(why) | Self::Failed(_, why)) = self;
        why
    }
}

/// Memory beside a drive of another node, as this node fills it.
pub(crate) struct Depot {
    number: u64,
    name: String,
    line: Mutex<Line>,
    /// To end a call that is under way.
    socket: TcpStream,
    gone: AtomicBool,
}

impl Depot {
    /// Makes one of so many bytes.
    ///
    /// # Errors
    /// That node does not answer, or does not make depots.
    pub fn open(state: &Path, address: &NodeAddress, bytes: u64) -> Result<Self, DepotError> {
        let epoch = crate::standby::serving_epoch(state).map_err(|e| DepotError::Gone(e.message))?;
        let line = Line::to(&directory(state), &address.node).map_err(DepotError::Gone)?;
        let number = uuid::Uuid::new_v4().as_u64_pair().0;
        let socket = line.socket.try_clone().map_err(|e| DepotError::Gone(e.to_string()))?;
        let (line, gone) = (Mutex::new(line), AtomicBool::new(false));
        let depot = Self { number, name: address.to_string(), line, socket, gone };
        depot.ask(DepotCall::Open { device: address.device.clone(), epoch, depot: number, bytes })?;
        Ok(depot)
    }

    /// What it is called, which nothing else is.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Nothing more is asked of it, and what is under way ends.
    pub fn give_up(&self) {
        self.gone.store(true, Ordering::Release);
        let _ = self.socket.shutdown(Shutdown::Both); // it may be closed already
    }

    fn ask(&self, call: DepotCall) -> Result<wire::Reply, DepotError> {
        let mut line = self.line.lock();
        if self.is_gone() {
            return Err(DepotError::Gone(format!("{}: gone", self.name)));
        }
        match line.ask(&Call::Depot(Box::new(call)), FETCH_PATIENCE) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(e)) => Err(DepotError::Failed(e.class, format!("{}: {}", self.name, e.message))),
            Err(e) => {
                self.give_up();
                Err(DepotError::Gone(format!("{}: {e}", self.name)))
            }
        }
    }

    fn done(&self, call: DepotCall) -> Result<(), DepotError> {
        match self.ask(call)? {
            wire::Reply::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn unexpected(&self, reply: &wire::Reply) -> DepotError {
        DepotError::Failed(ErrorClass::Bug, format!("{} answered {reply:?}", self.name))
    }

    /// Bytes at a place of the stream, or nowhere; with an offset they are what the file has there that is read.
    pub fn put(&self, at: Option<u64>, offset: Option<u64>, bytes: &[u8]) -> Result<(), DepotError> {
        let mut before = 0;
        for piece in bytes.chunks(MAX_FETCH) {
            let behind = |place: u64| place + before;
            let (at, offset) = (at.map(behind), offset.map(behind));
            self.done(DepotCall::Put { at, offset, bytes: piece.to_vec() })?;
            before += piece.len() as u64;
        }
        Ok(())
    }

    /// A file is read there from now on.
    pub fn file(&self, file: DepotFile) -> Result<(), DepotError> {
        self.done(DepotCall::File(Box::new(file)))
    }

    /// With these rights from now on.
    pub fn rights(&self, lent: LentLayout) -> Result<(), DepotError> {
        self.done(DepotCall::Rights(Box::new(lent)))
    }

    /// Has bytes of the file brought to a place of the stream, or only into its digests; how many.
    pub fn fetch(&self, at: Option<u64>, offset: u64, most: usize) -> Result<usize, DepotError> {
        let bytes = most.min(MAX_FETCH) as u32;
        match self.ask(DepotCall::Fetch { at, offset, bytes })? {
            wire::Reply::Count(got) if got <= bytes.into() => Ok(got as usize),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Bytes of the stream.
    pub fn get(&self, at: u64, bytes: usize) -> Result<Vec<u8>, DepotError> {
        let mut found = Vec::with_capacity(bytes);
        while found.len() < bytes {
            let want = (bytes - found.len()).min(MAX_FETCH) as u32;
            match self.ask(DepotCall::Get { at: at + found.len() as u64, bytes: want })? {
                wire::Reply::Bytes(got) if got.len() == want as usize => found.extend(got),
                other => return Err(self.unexpected(&other)),
            }
        }
        Ok(found)
    }

    /// A file is written there from now on.
    pub fn back(&self, file: DepotFile) -> Result<(), DepotError> {
        self.done(DepotCall::Back(Box::new(file)))
    }

    /// Has bytes of the stream written to the file; the machines that have them.
    pub fn store(&self, at: u64, bytes: usize, offset: u64) -> Result<Vec<u64>, DepotError> {
        match self.ask(DepotCall::Store { at, bytes: bytes as u32, offset })? {
            wire::Reply::Machines(machines) => Ok(machines),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Digests of what was fetched or stored.
    pub fn digests(&self) -> Result<DepotDigests, DepotError> {
        match self.ask(DepotCall::Digests)? {
            wire::Reply::Digests(found) => Ok(*found),
            other => Err(self.unexpected(&other)),
        }
    }
}

/// A way to a device of another node. A connection that broke is dropped; the next command takes the device anew.
struct PeerTransport {
    state: PathBuf,
    address: NodeAddress,
    name: String,
    line: Option<Line>,
}

impl PeerTransport {
    fn lost(&self, detail: String) -> TransportError {
        TransportError::Lost { device: self.name.clone(), detail }
    }

    fn refused(&self, detail: String) -> TransportError {
        TransportError::Refused { device: self.name.clone(), detail }
    }

    fn open(&self) -> Result<Line, TransportError> {
        let epoch = crate::standby::serving_epoch(&self.state).map_err(|e| self.refused(e.message))?;
        let mut line = Line::to(&directory(&self.state), &self.address.node).map_err(|e| self.lost(e))?;
        match line.ask(&Call::OpenDevice { name: self.address.device.clone(), epoch }, PATIENCE) {
            Ok(Ok(wire::Reply::Done)) => Ok(line),
            Ok(Ok(other)) => Err(self.lost(format!("the node answered {other:?}"))),
            Ok(Err(e)) => Err(self.refused(e.message)),
            Err(e) => Err(self.lost(e.to_string())),
        }
    }
}

impl Transport for PeerTransport {
    fn execute(
        &mut self,
        cdb: &[u8],
        mut data: Data<'_>,
        timeout: Duration,
    ) -> Result<Reply, TransportError> {
        let (out, room) = match &mut data {
            Data::None => (Vec::new(), 0),
            Data::Out(out) => (out.to_vec(), 0),
            Data::In(room) => (Vec::new(), room.len()),
            Data::There(_) | Data::Keep(_) => (Vec::new(), 0),
        };
        if data.len() > MAX_SCSI_DATA {
            return Err(self.refused(too_large()));
        }
        let mut line = match self.line.take() {
            Some(line) => line,
            None => self.open()?,
        };
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let place = |place: &There| ScsiThere {
            depot: place.depot,
            at: place.at,
            bytes: place.bytes as u32,
            sealed: place.sealed,
        };
        let (there, keep) = match &data {
            Data::There(there) => (Some(place(there)), None),
            Data::Keep(keep) => (None, Some(place(keep))),
            _ => (None, None),
        };
        let order = ScsiOrder { cdb: cdb.to_vec(), out, room: room as u32, timeout_ms, there, keep };
        let result = match line.ask(&Call::Scsi(Box::new(order)), timeout.saturating_add(GRACE)) {
            Ok(Ok(wire::Reply::Scsi(result))) => *result,
            Ok(Ok(other)) => return Err(self.lost(format!("the node answered {other:?}"))),
            Ok(Err(e)) => return Err(self.refused(e.message)),
            Err(e) => return Err(self.lost(e.to_string())),
        };
        match result {
            ScsiResult::Answered { status, transferred, sense, data: given } => {
                if let Data::In(room) = data {
                    let Some(into) = room.get_mut(..given.len()) else {
                        return Err(self.lost("the node gave more data than was asked for".into()));
                    };
                    into.copy_from_slice(&given);
                }
                self.line = Some(line);
                Ok(Reply { status, transferred: transferred as usize, sense })
            }
            ScsiResult::TimedOut => {
                Err(TransportError::Timeout { device: self.name.clone(), seconds: timeout.as_secs() })
            }
            ScsiResult::Lost(detail) => Err(self.lost(detail)),
            ScsiResult::Garbled => {
                self.line = Some(line);
                Err(TransportError::Garbled { device: self.name.clone() })
            }
            ScsiResult::Refused(detail) => {
                self.line = Some(line);
                Err(self.refused(detail))
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}
