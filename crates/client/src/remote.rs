//! Nodes of a cluster on other hosts: calls over TLS, and how one becomes a member.

use crate::connection::PROGRAM;
use crate::{ClientError, Connection};
use ident::{Connector, Credentials, IdentError, Key, TlsStream, Token};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;
use types::ErrorClass;
use wire::{Call, Channel, Failure, JoinOrder, JoinSecret, RenewOrder, Reply, WireError};

/// Longest wait for the first frame of a node.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Addresses of nodes that are remembered.
const MOST_ADDRESSES: usize = 8;

/// A node on another host, and who asks it.
#[derive(Clone, Debug)]
pub struct Remote {
    address: String,
    connector: Connector,
}

impl Remote {
    /// A member of a cluster asks the node at `host:port`.
    ///
    /// # Errors
    /// The member's key does not belong to its certificate.
    pub fn new(address: &str, member: &Credentials) -> Result<Self, ClientError> {
        let connector = Connector::member(member).map_err(|e| refused(address, e))?;
        Ok(Self { address: address.to_owned(), connector })
    }

    /// The same for one whose certificate may have ended: only to get a new one.
    fn renewing(address: &str, member: &Credentials) -> Result<Self, ClientError> {
        let connector = Connector::renewing(member).map_err(|e| refused(address, e))?;
        Ok(Self { address: address.to_owned(), connector })
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn channel(&self) -> Result<Channel, ClientError> {
        open(&self.address, &self.connector)
    }

    /// The socket too, to see whether the other end has closed it.
    pub(crate) fn channel_and_socket(&self) -> Result<(Channel, TcpStream), ClientError> {
        let stream = connect(&self.address, &self.connector)?;
        let socket = stream.socket().try_clone();
        let socket = socket
            .map_err(|source| ClientError::Unreachable { socket: self.address.as_str().into(), source })?;
        Ok((greeted(&self.address, stream)?, socket))
    }
}

/// What somebody who joins says of himself.
#[derive(Clone, Debug, Default)]
pub struct Newcomer {
    /// What he is called, for people.
    pub name: String,
    /// Where he takes calls (`host:port`).
    pub control: Vec<String>,
    /// Where he moves bytes (`host:port`).
    pub data: Vec<String>,
}

/// Becomes a member. The key is made here and goes nowhere; the first node of the token that answers signs.
///
/// # Errors
/// No node of the token answers, is who it should be, or takes the token.
pub fn join_cluster(token: &Token, newcomer: &Newcomer) -> Result<Credentials, ClientError> {
    let nobody = || refused("the token", IdentError::Token("it names no node to ask"));
    let connector = Connector::bearer(token).map_err(|e| refused("the token", e))?;
    let mut last = None;
    for address in &token.addresses {
        match open(address, &connector) {
            Ok(channel) => return ask(address, channel, token, newcomer),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(nobody))
}

/// Replaces the certificate of a client in its directory when two thirds of its time have gone at `now` (seconds since 1970); None: not yet,
/// or it is a node, which does that by itself. The node `at` (`host:port`) is asked first, which may have taken over from all that were known before: if it
/// signs, it is remembered.
///
/// # Errors
/// As [`renew_certificate`], and files that cannot be written. The present certificate stays.
pub fn renew_if_due(
    dir: &Path,
    member: &Credentials,
    at: &str,
    now: u64,
) -> Result<Option<Credentials>, ClientError> {
    if member.identity.is_node() || !member.valid.is_ending(now) {
        return Ok(None);
    }
    let known = member.addresses.iter().filter(|address| *address != at).cloned();
    let addresses: Vec<String> = [at.to_owned()].into_iter().chain(known).take(MOST_ADDRESSES).collect();
    let (new, from) = renew_at(member, &addresses)?;
    let kept = |e| refused("the certificate", e);
    Credentials::replace(dir, &new.certificate, &new.key).map_err(kept)?;
    if from == at
        && !member.addresses.contains(&addresses[0])
        && let Err(e) = Credentials::keep_addresses(dir, &addresses)
    {
        tracing::warn!("that {at} signs certificates is not remembered: {e}");
    }
    Ok(Some(new))
}

/// Gets another certificate for a client, from the first node of its cluster that answers. The present one, which may have ended, is believed until that is used.
///
/// # Errors
/// No node that can sign answers, or it refuses.
pub fn renew_certificate(member: &Credentials) -> Result<Credentials, ClientError> {
    renew_at(member, &member.addresses).map(|(new, _)| new)
}

/// The same from one of these addresses, and which it was.
fn renew_at(member: &Credentials, addresses: &[String]) -> Result<(Credentials, String), ClientError> {
    let key = Key::generate().map_err(|e| refused("the certificate", e))?;
    let request = key.request().map_err(|e| refused("the certificate", e))?;
    let order = Call::ClusterRenew(RenewOrder { request, control: Vec::new(), data: Vec::new() });
    let mut last = refused("the cluster", IdentError::Token("no node of it is known"));
    for address in addresses {
        let asked = Remote::renewing(address, member)
            .and_then(|remote| Connection::open_remote(remote, Duration::ZERO))
            .and_then(|mut connection| connection.call(&order));
        match asked {
            Ok((Reply::Joined { certificate, authority }, _)) => {
                let new = Credentials::new(certificate, key, authority).map_err(|e| refused(address, e))?;
                if new.identity != member.identity || new.authority != member.authority {
                    return Err(refused(address, IdentError::Foreign));
                }
                let new = Credentials { addresses: member.addresses.clone(), ..new };
                return Ok((new, address.clone()));
            }
            Ok(_) => return Err(ClientError::WrongAnswer { asked: "Joined" }),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn ask(
    address: &str,
    mut channel: Channel,
    token: &Token,
    newcomer: &Newcomer,
) -> Result<Credentials, ClientError> {
    let key = Key::generate().map_err(|e| refused(address, e))?;
    let order = JoinOrder {
        token: *token.id.as_bytes(),
        secret: JoinSecret(*token.secret.bytes()),
        request: key.request().map_err(|e| refused(address, e))?,
        name: newcomer.name.clone(),
        control: newcomer.control.clone(),
        data: newcomer.data.clone(),
    };
    let lost = |source| ClientError::Lost { socket: address.into(), doing: "joining the cluster", source };
    channel.send_call(1, &Call::ClusterJoin(order)).map_err(lost)?;
    let Reply::Joined { certificate, authority } = channel.receive_result().map_err(lost)?.result? else {
        return Err(ClientError::WrongAnswer { asked: "Joined" });
    };
    let member = Credentials::new(certificate, key, authority).map_err(|e| refused(address, e))?;
    if ident::digest(&member.authority) != token.authority || member.identity.cluster != token.cluster {
        return Err(refused(address, IdentError::Foreign));
    }
    Ok(Credentials { addresses: token.addresses.clone(), ..member })
}

fn open(address: &str, connector: &Connector) -> Result<Channel, ClientError> {
    greeted(address, connect(address, connector)?)
}

fn connect(address: &str, connector: &Connector) -> Result<TlsStream, ClientError> {
    connector.connect(address).map_err(|e| refused(address, e))
}

fn greeted(address: &str, stream: TlsStream) -> Result<Channel, ClientError> {
    greet(stream).map_err(|source| match source {
        WireError::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            let message = format!("{address}: {e}");
            ClientError::Refused(Failure { class: ErrorClass::Denied, fs: None, message })
        }
        WireError::Closed | WireError::Io(_) => {
            ClientError::Lost { socket: address.into(), doing: "connecting", source }
        }
        _ => ClientError::Wire { socket: address.into(), source },
    })
}

fn greet(stream: TlsStream) -> Result<Channel, WireError> {
    let socket = stream.socket().try_clone()?;
    socket.set_read_timeout(Some(HELLO_PATIENCE))?;
    let channel = Channel::over(Box::new(stream), PROGRAM)?;
    socket.set_read_timeout(None)?;
    Ok(channel)
}

fn refused(node: &str, source: IdentError) -> ClientError {
    match source {
        IdentError::Io(source) => ClientError::Unreachable { socket: node.into(), source },
        source => ClientError::Ident { node: node.to_owned(), source },
    }
}
