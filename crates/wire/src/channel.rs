//! Typed messages over a unix socket, there with descriptors, or over any other stream.

use crate::frame::{self, Frame, Kind};
use crate::{Call, Failure, Hello, Reply, VERSION, WireError};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest wait for the first frame of the other end.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);

/// What a client receives for a call.
#[derive(Debug)]
pub struct Inbound {
    /// The call it answers; 0 with a failure that concerns the whole connection.
    pub id: u64,
    /// The answer.
    pub result: Result<Reply, Failure>,
    /// Descriptor that came with it.
    pub descriptor: Option<OwnedFd>,
}

/// Something else than a unix socket that carries frames: TLS.
pub trait Stream: Read + Write + Send + std::fmt::Debug {}

impl<T: Read + Write + Send + std::fmt::Debug> Stream for T {}

#[derive(Debug)]
enum Carrier {
    Unix(UnixStream),
    Other(Box<dyn Stream>),
}

/// One end of a connection after the exchange of `Hello`.
#[derive(Debug)]
pub struct Channel {
    carrier: Carrier,
    peer: Hello,
    version: u32,
}

impl Channel {
    /// Exchanges `Hello`; both ends call this.
    ///
    /// # Errors
    /// [`WireError::Version`] and [`WireError::NotThermocline`], or what the socket says.
    pub fn open(mut stream: UnixStream, program: &str) -> Result<Self, WireError> {
        stream.set_read_timeout(Some(HELLO_PATIENCE))?;
        let peer = greet(&mut stream, program)?;
        stream.set_read_timeout(None)?;
        Self { carrier: Carrier::Unix(stream), peer, version: VERSION }.agreed()
    }

    /// The same over another stream, which carries no descriptors. How long the other end's `Hello` may take is for the caller
    /// to limit.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn over(mut stream: Box<dyn Stream>, program: &str) -> Result<Self, WireError> {
        let peer = greet(&mut stream, program)?;
        Self { carrier: Carrier::Other(stream), peer, version: VERSION }.agreed()
    }

    fn agreed(self) -> Result<Self, WireError> {
        let mut channel = self;
        match frame::agree(&channel.peer) {
            Ok(version) => Ok(Self { version, ..channel }),
            Err(refused) => {
                // The other end may be the newer one and believe that we understand each other: tell it (best effort).
                let failure = Failure { class: refused.class(), fs: None, message: refused.to_string() };
                let _ = channel.send_result(0, &Err(failure), None);
                Err(refused)
            }
        }
    }

    /// The wire version that both ends speak here.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the other end said of itself.
    pub fn peer(&self) -> &Hello {
        &self.peer
    }

    /// Id of the process at the other end (of a server: that which began to listen).
    ///
    /// # Errors
    /// The kernel does not say, or the other end is not on this host.
    pub fn process(&self) -> std::io::Result<i32> {
        match &self.carrier {
            Carrier::Unix(stream) => Ok(crate::peer(stream)?.pid),
            Carrier::Other(_) => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether descriptors can travel with answers.
    pub fn carries_descriptors(&self) -> bool {
        matches!(self.carrier, Carrier::Unix(_))
    }

    /// Sends a call.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] and [`WireError::NotYet`] leave the connection usable; others do not.
    pub fn send_call(&mut self, id: u64, call: &Call) -> Result<(), WireError> {
        if call.since() > self.version {
            let program = self.peer.program.clone();
            return Err(WireError::NotYet { needs: call.since(), speaks: self.version, program });
        }
        self.send(Kind::Call, id, &frame::encode(call)?, None)
    }

    /// Sends an answer, with a descriptor if there is one.
    ///
    /// # Errors
    /// As [`Channel::send_call`].
    pub fn send_result(
        &mut self,
        id: u64,
        result: &Result<Reply, Failure>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), WireError> {
        match result {
            Ok(reply) => self.send(Kind::Reply, id, &frame::encode(reply)?, descriptor),
            Err(failure) => self.send(Kind::Failure, id, &frame::encode(failure)?, None),
        }
    }

    /// Waits for the next call.
    ///
    /// # Errors
    /// [`WireError::Closed`] when the client is gone.
    pub fn receive_call(&mut self) -> Result<(u64, Call), WireError> {
        let (frame, _unwanted) = self.receive()?;
        match frame.kind {
            Kind::Call => Ok((frame.id, frame::decode(frame.kind, &frame.payload)?)),
            got => Err(WireError::Unexpected { expected: "Call", got }),
        }
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`WireError::Closed`] when the node is gone.
    pub fn receive_result(&mut self) -> Result<Inbound, WireError> {
        let (frame, descriptor) = self.receive()?;
        let result = match frame.kind {
            Kind::Reply => Ok(frame::decode(frame.kind, &frame.payload)?),
            Kind::Failure => Err(frame::decode(frame.kind, &frame.payload)?),
            got => return Err(WireError::Unexpected { expected: "Reply", got }),
        };
        Ok(Inbound { id: frame.id, result, descriptor })
    }

    fn send(
        &mut self,
        kind: Kind,
        id: u64,
        payload: &[u8],
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), WireError> {
        match &mut self.carrier {
            Carrier::Unix(stream) => {
                frame::write_frame(&mut Sender { stream, descriptor: fd }, kind, id, payload)
            }
            Carrier::Other(stream) => {
                frame::write_frame(stream, kind, id, payload)?;
                Ok(stream.flush()?)
            }
        }
    }

    fn receive(&mut self) -> Result<(Frame, Option<OwnedFd>), WireError> {
        match &mut self.carrier {
            Carrier::Unix(stream) => {
                let mut receiver = Receiver { stream, descriptor: None };
                let frame = frame::read_frame(&mut receiver)?;
                Ok((frame, receiver.descriptor))
            }
            Carrier::Other(stream) => Ok((frame::read_frame(stream)?, None)),
        }
    }
}

/// Says who we are, and hears who the other end is.
fn greet(stream: &mut (impl Read + Write), program: &str) -> Result<Hello, WireError> {
    let ours = Hello { version: VERSION, program: program.to_owned() };
    frame::write_frame(stream, Kind::Hello, 0, &frame::encode_hello(&ours))?;
    stream.flush()?;
    match frame::read_frame(stream) {
        Ok(first) => frame::decode_hello(&first),
        Err(WireError::UnknownKind(_) | WireError::TooLarge(_)) => Err(WireError::NotThermocline),
        Err(e) => Err(e),
    }
}

/// Writes to the socket; the descriptor travels with the first bytes.
struct Sender<'a> {
    stream: &'a mut UnixStream,
    descriptor: Option<BorrowedFd<'a>>,
}

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Some(fd) = self.descriptor else {
            return self.stream.write(bytes);
        };
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(std::io::Error::other("no room for a descriptor"));
        }
        let sent = sendmsg(&*self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        self.descriptor = None;
        Ok(sent)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads from the socket and keeps the last descriptor that came along; more than one per frame are closed.
struct Receiver<'a> {
    stream: &'a UnixStream,
    descriptor: Option<OwnedFd>,
}

impl Read for Receiver<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got =
            recvmsg(self.stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.descriptor = fds.last();
            }
        }
        Ok(got)
    }
}
