//! Connections between a client and a mover, as two halves that different threads use.
//!
//! The traits say only what a fast network offers everywhere: bytes go into memory that the receiver named before, bytes come out of
//! memory or straight out of a file, and nobody looks at them on the way. So RDMA (where the memory is registered, and a file is sent
//! from the page cache by the adapter) can stand behind them as well as sockets.

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// What becomes of a descriptor before it is used; a library in a program that does not know of it moves them out of the program's way.
pub type Place = fn(OwnedFd) -> OwnedFd;

/// The half that sends.
pub trait Outgoing: Send {
    /// Sends all of `parts`, one after the other. With `more`, something follows at once.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&mut self, parts: &[&[u8]], more: bool) -> Result<()>;

    /// Sends `length` bytes of `file` from `offset` on, without looking at them.
    ///
    /// # Errors
    /// The connection is broken. `UnexpectedEof` if the file is shorter: the receiver waits for the rest, so the connection has to end.
    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<()>;

    /// Sends `bytes` and with them a descriptor; only on connections within one host.
    ///
    /// # Errors
    /// The connection is broken; `Unsupported` if it leads to another host.
    fn pass(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> Result<()>;

    /// Nothing more is sent: the other end sees the end of the stream once it has what was sent before.
    fn finish(&mut self);

    /// Whether [`Outgoing::pass`] works.
    fn is_local(&self) -> bool;
}

/// The half that receives.
pub trait Incoming: Send {
    /// Fills `into`.
    ///
    /// # Errors
    /// The connection is broken, or ended (`UnexpectedEof`). `WouldBlock` when nothing came for as long as patience lasts; `TimedOut`
    /// when something came and then no more: the connection is of no use then.
    fn receive(&mut self, into: &mut [u8]) -> Result<()>;

    /// The descriptor that came with what was received last.
    fn descriptor(&mut self) -> Option<OwnedFd>;

    /// Whether the other end has ended the connection, as far as is known without waiting. For who has received all that was sent.
    fn has_ended(&mut self) -> bool;

    /// Waits no longer than `patience` from now on; without it for ever.
    ///
    /// # Errors
    /// Of the system.
    fn set_patience(&mut self, patience: Option<Duration>) -> Result<()>;
}

/// A connection.
pub struct Link {
    /// Receives.
    pub incoming: Box<dyn Incoming>,
    /// Sends.
    pub outgoing: Box<dyn Outgoing>,
    /// Ends it, whoever waits in one of the halves.
    pub hang_up: HangUp,
}

/// Ends a connection.
pub type HangUp = Arc<dyn Fn() + Send + Sync>;

impl Link {
    /// Connects to the first of these addresses (`host:port`) that answers, by a socket that is put there.
    ///
    /// # Errors
    /// None does.
    pub fn dial(addresses: &[String], place: Place) -> Result<Self> {
        let mut last = Error::new(ErrorKind::NotFound, "its address is not known");
        for address in addresses {
            for resolved in address.to_socket_addrs()? {
                match connect(resolved, place) {
                    Ok(stream) => return Self::tcp(stream),
                    Err(e) => last = Error::new(e.kind(), format!("{address}: {e}")),
                }
            }
        }
        Err(last)
    }

    /// Connects to a socket of this host; it and the descriptors that come over it are put there.
    ///
    /// # Errors
    /// Nobody listens there, or whoever does has too many who wait.
    pub fn near(socket: &Path, place: Place) -> Result<Self> {
        let address = SockAddr::unix(socket)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let socket = Socket::from(place(socket.into()));
        socket.connect_timeout(&address, CONNECT)?;
        Ok(Self::over(socket.into(), true, Some(place)))
    }

    /// Over TCP. Without traffic, a dead host is noticed within 15 s.
    ///
    /// # Errors
    /// Of the system.
    pub fn tcp(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(6))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(3))?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        sockopt::set_tcp_user_timeout(&stream, 15_000)?;
        Ok(Self::over(stream.into(), false, None))
    }

    /// Over a unix socket, that is, within one host, for who gives descriptors and takes none.
    pub fn unix(stream: UnixStream) -> Self {
        Self::over(stream.into(), true, None)
    }

    /// `local`: within one host. `place`: what becomes of descriptors that come; none: they do not come.
    fn over(socket: OwnedFd, local: bool, place: Option<Place>) -> Self {
        let socket = Arc::new(socket);
        let closing = socket.clone();
        Self {
            incoming: Box::new(SocketIn { socket: socket.clone(), place, descriptor: None, patience: None }),
            outgoing: Box::new(SocketOut { socket, local }),
            // It may be shut down already.
            hang_up: Arc::new(move || {
                let _ = rustix::net::shutdown(&*closing, rustix::net::Shutdown::Both);
            }),
        }
    }
}

/// A connection, whose socket is where it is to be before anything is waited for.
fn connect(address: SocketAddr, place: Place) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    let socket = Socket::from(place(socket.into()));
    socket.connect_timeout(&address.into(), CONNECT)?;
    Ok(socket.into())
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link(..)")
    }
}

struct SocketOut {
    socket: Arc<OwnedFd>,
    local: bool,
}

/// Most parts that go to the kernel at once.
const PARTS: usize = 4;

impl Outgoing for SocketOut {
    fn send(&mut self, parts: &[&[u8]], more: bool) -> Result<()> {
        let mut left: Vec<&[u8]> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        while !left.is_empty() {
            let mut slices = [IoSlice::new(&[]); PARTS];
            let count = left.len().min(PARTS);
            slices.iter_mut().zip(&left).for_each(|(slice, part)| *slice = IoSlice::new(part));
            let sent = rustix::net::sendmsg(
                &*self.socket,
                &slices[..count],
                &mut SendAncillaryBuffer::default(),
                flags,
            );
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => forget_sent(&mut left, sent),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<()> {
        let (mut offset, mut left) = (offset, length);
        while left > 0 {
            match rustix::fs::sendfile(&*self.socket, file, Some(&mut offset), left) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(sent) => left -= sent,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn pass(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> Result<()> {
        if !self.local {
            return Err(ErrorKind::Unsupported.into());
        }
        let fds = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Error::other("no room for a descriptor"));
        }
        let sent = loop {
            match rustix::net::sendmsg(
                &*self.socket,
                &[IoSlice::new(bytes)],
                &mut control,
                SendFlags::NOSIGNAL,
            ) {
                Err(Errno::INTR) => {}
                sent => break sent?,
            }
        };
        self.send(&[&bytes[sent..]], false)
    }

    fn finish(&mut self) {
        // It may be shut down already.
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Write);
    }

    fn is_local(&self) -> bool {
        self.local
    }
}

/// Takes the first `sent` bytes away from what is left.
fn forget_sent(left: &mut Vec<&[u8]>, mut sent: usize) {
    let whole = left
        .iter()
        .take_while(|part| {
            let fits = part.len() <= sent;
            sent -= if fits { part.len() } else { 0 };
            fits
        })
        .count();
    left.drain(..whole);
    if let Some(part) = left.first_mut() {
        *part = &part[sent..];
    }
}

struct SocketIn {
    socket: Arc<OwnedFd>,
    place: Option<Place>,
    descriptor: Option<OwnedFd>,
    patience: Option<Duration>,
}

impl Incoming for SocketIn {
    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        let mut done = 0;
        let mut disturbed = None;
        while done < into.len() {
            let got = match self.place {
                Some(place) => self.receive_with_descriptor(&mut into[done..], place),
                None => rustix::net::recv(&*self.socket, &mut into[done..], RecvFlags::empty())
                    .map(|(got, _)| got),
            };
            match got {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => (done, disturbed) = (done + got, None),
                // The system begins to wait anew with each signal.
                Err(Errno::INTR) => {
                    let since = *disturbed.get_or_insert_with(Instant::now);
                    if self.patience.is_some_and(|patience| since.elapsed() >= patience) {
                        return Err(timed_out(done));
                    }
                }
                Err(Errno::AGAIN) => return Err(timed_out(done)),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    fn has_ended(&mut self) -> bool {
        let peeked =
            rustix::net::recv(&*self.socket, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        match peeked {
            Ok((got, _)) => got == 0,
            Err(e) => !matches!(e, Errno::AGAIN | Errno::INTR),
        }
    }

    fn set_patience(&mut self, patience: Option<Duration>) -> Result<()> {
        self.patience = patience;
        Ok(sockopt::set_socket_timeout(self.socket.as_fd(), sockopt::Timeout::Recv, patience)?)
    }
}

/// Nothing has come for too long, or no more.
fn timed_out(done: usize) -> Error {
    if done > 0 { ErrorKind::TimedOut.into() } else { ErrorKind::WouldBlock.into() }
}

impl SocketIn {
    fn receive_with_descriptor(&mut self, into: &mut [u8], place: Place) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got =
            rustix::net::recvmsg(&*self.socket, &mut [IoSliceMut::new(into)], &mut control, flags)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.descriptor = fds.last().map(place);
            }
        }
        Ok(got)
    }
}
