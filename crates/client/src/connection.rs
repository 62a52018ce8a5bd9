//! One connection to a node: one call at a time.

use crate::{ClientError, FromReply, Remote};
use data::Place;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::ErrorClass;
use wire::{Call, Channel, FileCall, Reply, WireError};

pub(crate) const PROGRAM: &str = concat!("thermo ", env!("CARGO_PKG_VERSION"));

/// A connection to a node. With patience it waits for a node that is starting, and repeats calls that may be repeated
/// when the node restarts under them.
#[derive(Debug)]
pub struct Connection {
    socket: PathBuf,
    remote: Option<Remote>,
    patience: Duration,
    place: Place,
    channel: Option<Channel>,
    /// How often it was connected.
    connected: u64,
    /// Number of the session that it belongs to, whenever it is connected.
    joins: Option<u64>,
    /// What the node calls that session now; None: there is none, or it knows of none.
    session: Option<u64>,
    last_id: u64,
}

/// How long handles of the node are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// In any connection of the session that has this number at the node.
    Session(u64),
    /// In one connection, until it is connected another time.
    Connection(u64),
}

impl Connection {
    /// Connects, at once or not at all; a connection that breaks stays broken.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`], [`ClientError::Wire`].
    pub fn open(socket: &Path) -> Result<Self, ClientError> {
        Self::open_patient(socket, Duration::ZERO)
    }

    /// Connects, and for up to `patience` waits for the node, now and whenever it restarts.
    ///
    /// # Errors
    /// As [`Connection::open`], after `patience`.
    pub fn open_patient(socket: &Path, patience: Duration) -> Result<Self, ClientError> {
        Self::open_placed(socket, patience, |socket| socket)
    }

    /// The same with a place for the socket.
    ///
    /// # Errors
    /// As [`Connection::open_patient`].
    pub fn open_placed(socket: &Path, patience: Duration, place: Place) -> Result<Self, ClientError> {
        Self::to(socket.to_owned(), None, patience, place)
    }

    /// Connects to a node of a cluster over TLS.
    ///
    /// # Errors
    /// As [`Connection::open_patient`], and [`ClientError::Ident`].
    pub fn open_remote(remote: Remote, patience: Duration) -> Result<Self, ClientError> {
        Self::to(remote.address().into(), Some(remote), patience, |socket| socket)
    }

    fn to(
        socket: PathBuf,
        remote: Option<Remote>,
        patience: Duration,
        place: Place,
    ) -> Result<Self, ClientError> {
        let mut connection = Self {
            socket,
            remote,
            patience,
            place,
            channel: None,
            connected: 0,
            joins: None,
            session: None,
            last_id: 0,
        };
        connection.with_patience(|c| c.connect())?;
        Ok(connection)
    }

    /// Control socket of this connection, or address of the node.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Belongs to a session from now on, if the node knows of such.
    pub(crate) fn joined(mut self, number: u64) -> Result<Self, ClientError> {
        self.joins = Some(number);
        self.with_patience(|c| if c.channel.is_some() { c.join() } else { c.connect() })?;
        Ok(self)
    }

    /// Connects anew if it has broken.
    pub(crate) fn mended(&mut self) -> Result<&mut Self, ClientError> {
        self.with_patience(Self::connect)?;
        Ok(self)
    }

    /// Whether it has not broken, as far as is known.
    pub(crate) fn is_whole(&self) -> bool {
        self.channel.is_some()
    }

    /// For how long what is opened now is open.
    pub(crate) fn life(&self) -> Life {
        self.session.map_or(Life::Connection(self.connected), Life::Session)
    }

    /// Id of the process that listens at the control socket, whatever its role is.
    ///
    /// # Errors
    /// The kernel does not say: the connection is broken, or not to this host.
    pub fn process(&self) -> std::io::Result<i32> {
        let none = || std::io::Error::from(std::io::ErrorKind::NotConnected);
        self.channel.as_ref().ok_or_else(none)?.process()
    }

    /// Asks, and expects the kind of answer that `T` is.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the node says no; otherwise the connection's errors.
    pub fn ask<T: FromReply>(&mut self, call: &Call) -> Result<T, ClientError> {
        let (reply, _) = self.call(call)?;
        T::from_reply(reply).ok_or(ClientError::WrongAnswer { asked: T::NAME })
    }

    /// Asks for file access; see [`Connection::ask`].
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn file<T: FromReply>(&mut self, call: FileCall) -> Result<T, ClientError> {
        self.ask(&Call::File(call))
    }

    /// Asks; the descriptor comes with [`Reply::Opened`] only.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn call(&mut self, call: &Call) -> Result<(Reply, Option<OwnedFd>), ClientError> {
        if self.patience.is_zero() || !repeatable(call) {
            return self.call_once(call);
        }
        self.with_patience(|c| {
            c.connect()?;
            c.call_once(call)
        })
    }

    fn with_patience<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let end = Instant::now() + self.patience;
        let mut pause = Duration::from_millis(20);
        loop {
            match attempt(self) {
                Err(e) if self.is_away(&e) && Instant::now() < end => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
                other => return other,
            }
        }
    }

    /// Whether the error says that no node is there: this host's, or while it is connected to, the one that it asks in its turn.
    fn is_away(&self, error: &ClientError) -> bool {
        match error {
            ClientError::Unreachable { .. } | ClientError::Lost { .. } => true,
            other => self.channel.is_none() && other.class() == ErrorClass::Retry,
        }
    }

    fn connect(&mut self) -> Result<(), ClientError> {
        if self.channel.is_some() {
            return Ok(());
        }
        let channel = match &self.remote {
            Some(remote) => remote.channel()?,
            None => {
                let stream = UnixStream::connect(&self.socket)
                    .map_err(|source| ClientError::Unreachable { socket: self.socket.clone(), source })?;
                let stream = UnixStream::from((self.place)(stream.into()));
                Channel::open(stream, PROGRAM).map_err(|e| self.broken("connecting", e))?
            }
        };
        self.channel = Some(channel);
        self.connected += 1;
        self.join()
    }

    fn join(&mut self) -> Result<(), ClientError> {
        let Some(number) = self.joins else { return Ok(()) };
        self.session = match self.call_once(&Call::Session(number)) {
            Ok((Reply::Count(begun), _)) => Some(begun),
            Ok(_) => return Err(ClientError::WrongAnswer { asked: "Session" }),
            // A node of an earlier release.
            Err(ClientError::Wire { source: WireError::NotYet { .. }, .. }) => None,
            Err(ClientError::Refused(why)) if why.class == ErrorClass::Invalid => None,
            Err(e) => {
                self.channel = None;
                return Err(e);
            }
        };
        Ok(())
    }

    /// The same over the connection that there is, and no other one.
    pub(crate) fn call_once(&mut self, call: &Call) -> Result<(Reply, Option<OwnedFd>), ClientError> {
        self.last_id += 1;
        let id = self.last_id;
        let Some(channel) = self.channel.as_mut() else {
            return Err(self.broken(name(call), WireError::Closed));
        };
        let inbound = match channel.send_call(id, call) {
            Err(e @ (WireError::TooLarge(_) | WireError::NotYet { .. })) => {
                return Err(ClientError::Wire { socket: self.socket.clone(), source: e });
            }
            Err(e) => Err(e),
            Ok(()) => channel.receive_result(),
        };
        let inbound = inbound.map_err(|e| self.broken(name(call), e))?;
        if inbound.id != id && !(inbound.id == 0 && inbound.result.is_err()) {
            self.channel = None;
            return Err(ClientError::WrongAnswer { asked: name(call) });
        }
        Ok((inbound.result?, inbound.descriptor))
    }

    fn broken(&mut self, doing: &'static str, source: WireError) -> ClientError {
        self.channel = None;
        let socket = self.socket.clone();
        match source {
            WireError::Io(ref e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                ClientError::Wire { socket, source }
            }
            WireError::Closed | WireError::Io(_) => ClientError::Lost { socket, doing, source },
            _ => ClientError::Wire { socket, source },
        }
    }
}

/// Whether a call that was perhaps carried out may simply be made again, also by a node that was restarted meanwhile.
fn repeatable(call: &Call) -> bool {
    match call {
        Call::Status
        | Call::List { .. }
        | Call::Stat { .. }
        | Call::Pin { .. }
        | Call::Requests { .. }
        | Call::Request(_)
        | Call::RequestItems { .. }
        | Call::Volumes
        | Call::Volume(_)
        | Call::VolumeFiles { .. }
        | Call::VolumeFilesFrom(_)
        | Call::ExportedAs(_)
        | Call::Layout(_)
        | Call::SetLayout(..)
        | Call::Drives
        | Call::Library
        | Call::Classes
        | Call::SetClass { .. }
        | Call::AssignClass { .. }
        | Call::Pools
        | Call::Usage
        | Call::Quotas
        | Call::Cluster
        | Call::ClusterStatus
        | Call::ClusterRevoke
        | Call::ClusterRemoved { .. }
        | Call::ClusterAddresses
        | Call::ClusterPlaces { .. }
        | Call::Holdings { .. }
        | Call::RequestSums(_)
        | Call::PurgeList { .. }
        | Call::Ended { .. }
        | Call::Check { .. } => true,
        Call::File(file) => matches!(
            file,
            FileCall::Resolve { .. }
                | FileCall::Follow { .. }
                | FileCall::Lookup { .. }
                | FileCall::GetAttr(_)
                | FileCall::ReadDir { .. }
                | FileCall::ReadLink(_)
                | FileCall::Xattrs(_)
        ),
        _ => false,
    }
}

fn name(call: &Call) -> &'static str {
    match call {
        Call::Down { .. } => "stopping it",
        Call::Mount { .. } => "mounting",
        Call::Umount { .. } => "unmounting",
        Call::Stage(_) | Call::StageAs { .. } => "asking for a stage request",
        Call::Migrate(_) => "asking for a migrate request",
        Call::Purge(_) => "asking for a purge request",
        Call::Act(_) => "acting on a list of files",
        Call::Cancel(_) => "cancelling a request",
        Call::Label { .. } => "asking for labels",
        Call::Check { .. } => "checking",
        Call::Inventory { .. } => "taking the inventory",
        Call::ExportCartridges(_) => "exporting cartridges",
        Call::ImportCartridges(_) => "importing cartridges",
        Call::Backup { .. } => "asking for a backup of the catalogue",
        Call::ClusterInit { .. } => "making a cluster",
        Call::ClusterToken { .. } => "asking for a token",
        Call::ClusterJoin(_) => "joining the cluster",
        Call::ClusterRenew(_) => "asking for another certificate",
        Call::ClusterRemove { .. } => "removing a member",
        Call::ClusterRevoke => "withdrawing tokens",
        Call::MoveEngine { .. } => "asking for a move of the catalogue",
        Call::Rebuild => "asking for a rebuild of the catalogue",
        Call::File(FileCall::Read { .. }) => "reading a file",
        Call::File(FileCall::Write { .. }) => "writing a file",
        Call::File(FileCall::Sync) => "making changes durable",
        Call::File(_) => "accessing files",
        _ => "answering a question",
    }
}
