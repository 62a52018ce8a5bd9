//! TLS 1.3 over TCP, blocking. Calls are made with certificates at both ends; only to join, the new one has none yet, and to get a new certificate it may have
//! one that has ended. Which of these it is to be is said in ALPN, so that a connection for calls without a good certificate ends in the handshake.
//!
//! Sessions are never resumed: every connection shows its certificate.

use crate::verify::{Trust, Verifier, identity_of};
use crate::{Credentials, Digest, IdentError, Identity, Refusals, Token, Withdrawn, digest, error};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, ConfigSide, ServerConfig, ServerConnection, StreamOwned,
};
use rustls::{WantsVerifier, version::TLS13};
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for a handshake as a whole, and for a TCP connection to be made.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a refused one still sends is taken for so long.
const PARTING: Duration = Duration::from_millis(500);
/// A silent connection is probed after this long (seconds), so that one whose host is gone ends.
const PROBE_AFTER: Duration = Duration::from_secs(15);
/// Between two probes, and how many go unanswered.
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// What was sent is acknowledged by the other host's kernel in this time (milliseconds), or that host is gone.
const ACKNOWLEDGED_MS: u32 = 30_000;
/// First byte of a TLS record that holds a handshake (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 22;
const CALLS: &[u8] = b"thermo/1";
const JOINS: &[u8] = b"thermo-join/1";
const RENEWS: &[u8] = b"thermo-renew/1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn tls13<S: ConfigSide>(
    builder: impl FnOnce(Arc<CryptoProvider>) -> ConfigBuilder<S, rustls::WantsVersions>,
) -> Result<ConfigBuilder<S, WantsVerifier>, rustls::Error> {
    builder(provider()).with_protocol_versions(&[&TLS13])
}

/// The accepting end: a node that listens.
#[derive(Debug)]
pub struct Acceptor {
    calls: Arc<ServerConfig>,
    joins: Arc<ServerConfig>,
    renews: Arc<ServerConfig>,
    refusals: Arc<Refusals>,
}

impl Acceptor {
    /// For a node. Who was refused is remembered where the caller keeps that, also when the node gets a new certificate.
    ///
    /// # Errors
    /// Its key does not belong to its certificate.
    pub fn new(node: &Credentials, refusals: Arc<Refusals>) -> Result<Self, IdentError> {
        let (chain, trust) = (chain(node), Trust::Certificate(node.authority.clone().into()));
        let verifier = Verifier::new(node.identity.cluster, trust, node.removed.clone(), provider());
        let known = |verifier: Verifier| {
            let builder = tls13(ServerConfig::builder_with_provider)?;
            builder.with_client_cert_verifier(Arc::new(verifier)).with_single_cert(chain.clone(), key(node))
        };
        let (calls, renews) = (known(verifier.clone())?, known(verifier.also_ended())?);
        let joins = tls13(ServerConfig::builder_with_provider)?.with_no_client_auth();
        let joins = joins.with_single_cert(chain.clone(), key(node))?;
        let finish = |mut config: ServerConfig, protocol: &[u8]| {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        let (calls, joins) = (finish(calls, CALLS), finish(joins, JOINS));
        Ok(Self { calls, joins, renews: finish(renews, RENEWS), refusals })
    }

    /// Whether somebody at that address is listened to: he is not for a while after many refusals.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.refusals.allows(address, Instant::now())
    }

    /// Counts a refusal, also one of a call (a token that is not good). True if nobody at that address is listened to any more.
    pub fn refused(&self, address: IpAddr) -> bool {
        self.refusals.refused(address, Instant::now())
    }

    /// Who is there. Takes at most 10 seconds.
    ///
    /// # Errors
    /// Not somebody of this cluster; plain TCP; the connection.
    pub fn accept(&self, socket: TcpStream) -> Result<TlsStream, IdentError> {
        match self.handshake(&socket) {
            Ok((connection, peer, renews)) => {
                settle(&socket)?;
                Ok(TlsStream { end: End::Node(Box::new(StreamOwned::new(connection, socket))), peer, renews })
            }
            Err(refused) => {
                part(&socket);
                Err(refused)
            }
        }
    }

    /// Who it is, and whether it is for a new certificate only.
    fn handshake(&self, socket: &TcpStream) -> Result<(ServerConnection, Peer, bool), IdentError> {
        let mut hurried = Hurried { socket, end: Instant::now() + PATIENCE };
        if hurried.first_byte()? != HANDSHAKE_RECORD {
            return Err(IdentError::PlainTcp);
        }
        let accepted = first_message(&mut hurried)?;
        let asks = |what: &[u8]| accepted.client_hello().alpn().is_some_and(|mut all| all.any(|p| p == what));
        let (joins, renews) = (asks(JOINS), asks(RENEWS));
        let config = match (joins, renews) {
            (true, _) => &self.joins,
            (_, true) => &self.renews,
            _ => &self.calls,
        };
        let mut connection = match accepted.into_connection(config.clone()) {
            Ok(connection) => connection,
            Err((error, mut alert)) => {
                // The other end may be gone already; the refusal stands either way.
                let _ = alert.write_all(&mut hurried);
                return Err(error.into());
            }
        };
        while connection.is_handshaking() {
            connection.complete_io(&mut hurried).map_err(error::of_io)?;
        }
        // A protocol that was not agreed on would otherwise be served as one for calls.
        if connection.alpn_protocol().is_none() {
            return Err(IdentError::Nameless("it names no protocol".into()));
        }
        let peer = peer(connection.peer_certificates())?;
        if peer.is_none() != joins {
            return Err(IdentError::NoCertificate);
        }
        Ok((connection, peer, renews && !joins))
    }
}

fn first_message(hurried: &mut Hurried<'_>) -> Result<rustls::server::Accepted, IdentError> {
    let mut acceptor = rustls::server::Acceptor::default();
    loop {
        if acceptor.read_tls(hurried)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted),
            Ok(None) => {}
            Err((error, mut alert)) => {
                let _ = alert.write_all(hurried);
                return Err(error.into());
            }
        }
    }
}

/// Closing a socket with bytes unread resets the connection, and the other end would not hear why: take them first, for a moment.
fn part(socket: &TcpStream) {
    let end = Instant::now() + PARTING;
    let _ = socket.shutdown(Shutdown::Write);
    let (mut hurried, mut bytes) = (Hurried { socket, end }, [0; 4096]);
    while hurried.read(&mut bytes).is_ok_and(|n| n > 0) {}
}

/// The connecting end.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
}

impl Connector {
    /// As a member of a cluster.
    ///
    /// # Errors
    /// Its key does not belong to its certificate.
    pub fn member(credentials: &Credentials) -> Result<Self, IdentError> {
        Self::shows(credentials, CALLS, &[])
    }

    /// The same, for calls to a node that is believed with one of these certificates after its end, too: who shows that he has its key would get a new one for it.
    ///
    /// # Errors
    /// Its key does not belong to its certificate.
    pub fn member_knowing(credentials: &Credentials, ended: &[Digest]) -> Result<Self, IdentError> {
        Self::shows(credentials, CALLS, ended)
    }

    /// As a member whose certificate may have ended: only to get a new one.
    ///
    /// # Errors
    /// Its key does not belong to its certificate.
    pub fn renewing(credentials: &Credentials) -> Result<Self, IdentError> {
        Self::shows(credentials, RENEWS, &[])
    }

    fn shows(credentials: &Credentials, protocol: &[u8], ended: &[Digest]) -> Result<Self, IdentError> {
        let trust = Trust::Certificate(credentials.authority.clone().into());
        let removed = credentials.removed.clone();
        let verifier =
            Verifier::new(credentials.identity.cluster, trust, removed, provider()).also_these(ended);
        let builder = tls13(ClientConfig::builder_with_provider)?.dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(verifier));
        let config = builder.with_client_auth_cert(chain(credentials), key(credentials))?;
        Ok(Self::finish(config, protocol))
    }

    /// As somebody who has a token, and nothing else: only to join.
    ///
    /// # Errors
    /// None that is known.
    pub fn bearer(token: &Token) -> Result<Self, IdentError> {
        let verifier =
            Verifier::new(token.cluster, Trust::Digest(token.authority), Withdrawn::default(), provider());
        let builder = tls13(ClientConfig::builder_with_provider)?.dangerous();
        let config = builder.with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        Ok(Self::finish(config, JOINS))
    }

    fn finish(mut config: ClientConfig, protocol: &[u8]) -> Self {
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config.alpn_protocols = vec![protocol.to_vec()];
        Self { config: Arc::new(config) }
    }

    /// Connects to `host:port`, each address of the host in turn, and makes sure that it is a node of the cluster. Whether that believes
    /// us is known with the first answer (TLS 1.3 does not wait for it).
    ///
    /// # Errors
    /// Nobody there, or not such a node.
    pub fn connect(&self, address: &str) -> Result<TlsStream, IdentError> {
        let socket = dial(address)?;
        // The name is not looked at: the verifier wants a node of the cluster, wherever it is.
        let name = ServerName::try_from("node.invalid").map_err(|e| IdentError::Io(io::Error::other(e)))?;
        let mut connection = ClientConnection::new(self.config.clone(), name)?;
        let mut hurried = Hurried { socket: &socket, end: Instant::now() + PATIENCE };
        while connection.is_handshaking() {
            connection.complete_io(&mut hurried).map_err(error::of_io)?;
        }
        let peer = peer(connection.peer_certificates())?;
        settle(&socket)?;
        Ok(TlsStream {
            end: End::Caller(Box::new(StreamOwned::new(connection, socket))),
            peer,
            renews: false,
        })
    }
}

fn dial(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(socket) => return Ok(socket),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn chain(of: &Credentials) -> Vec<CertificateDer<'static>> {
    vec![of.certificate.clone().into(), of.authority.clone().into()]
}

fn key(of: &Credentials) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(of.key.to_der()))
}

/// Who the other end is, and the digest of its certificate.
type Peer = Option<(Identity, Digest)>;

fn peer(shown: Option<&[CertificateDer<'_>]>) -> Result<Peer, IdentError> {
    let Some(leaf) = shown.and_then(|chain| chain.first()) else { return Ok(None) };
    Ok(Some((identity_of(leaf)?, digest(leaf))))
}

/// After the handshake: no limit of time, calls at once, and an end for connections whose host is gone.
fn settle(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    socket.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    rustix::net::sockopt::set_tcp_user_timeout(socket, ACKNOWLEDGED_MS)?;
    rustix::net::sockopt::set_tcp_keepidle(socket, PROBE_AFTER)?;
    rustix::net::sockopt::set_tcp_keepintvl(socket, PROBE_EVERY)?;
    Ok(rustix::net::sockopt::set_tcp_keepcnt(socket, PROBES)?)
}

/// Reads and writes until a moment and no longer, however slowly bytes come.
struct Hurried<'a> {
    socket: &'a TcpStream,
    end: Instant,
}

impl Hurried<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn first_byte(&self) -> io::Result<u8> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        let mut byte = [0];
        match self.socket.peek(&mut byte)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(byte[0]),
        }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(bytes)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    /// All records at once: rustls tries only once to send the alert that ends a handshake, and other records go before it.
    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// A connection whose other end is known.
#[derive(Debug)]
pub struct TlsStream {
    end: End,
    peer: Peer,
    /// It is there for a new certificate only.
    renews: bool,
}

#[derive(Debug)]
enum End {
    Node(Box<StreamOwned<ServerConnection, TcpStream>>),
    Caller(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl TlsStream {
    /// Who the other end is, and the digest of its certificate; None of somebody who wants to join, or a new certificate.
    pub fn peer(&self) -> Option<(Identity, Digest)> {
        self.peer.filter(|_| !self.renews)
    }

    /// Who wants a new certificate, and the digest of the present one, which may have ended.
    pub fn renewing(&self) -> Option<(Identity, Digest)> {
        self.peer.filter(|_| self.renews)
    }

    /// The socket, for limits of time and for ending the connection from elsewhere.
    pub fn socket(&self) -> &TcpStream {
        match &self.end {
            End::Node(stream) => stream.get_ref(),
            End::Caller(stream) => stream.get_ref(),
        }
    }
}

/// What TLS says becomes what people understand; a refusal is [`io::ErrorKind::PermissionDenied`], unless it passes.
fn explain(error: io::Error) -> io::Error {
    match error::of_io(error) {
        IdentError::Io(error) => error,
        passing if passing.class() == types::ErrorClass::Retry => io::Error::other(passing),
        refused => io::Error::new(io::ErrorKind::PermissionDenied, refused),
    }
}

impl Read for TlsStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.end {
            End::Node(stream) => stream.read(bytes),
            End::Caller(stream) => stream.read(bytes),
        }
        .map_err(explain)
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.end {
            End::Node(stream) => stream.write(bytes),
            End::Caller(stream) => stream.write(bytes),
        }
        .map_err(explain)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.end {
            End::Node(stream) => stream.flush(),
            End::Caller(stream) => stream.flush(),
        }
        .map_err(explain)
    }
}

impl Drop for TlsStream {
    /// Says goodbye, so that the other end knows that nothing is missing; whether it hears that does not matter.
    fn drop(&mut self) {
        let _ = self.socket().set_write_timeout(Some(Duration::from_secs(1)));
        match &mut self.end {
            End::Node(stream) => {
                stream.conn.send_close_notify();
                let _ = stream.conn.write_tls(&mut stream.sock);
            }
            End::Caller(stream) => {
                stream.conn.send_close_notify();
                let _ = stream.conn.write_tls(&mut stream.sock);
            }
        }
    }
}
