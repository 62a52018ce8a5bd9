//! Calls over TLS: one thread per connection, bounded. Who calls is what his certificate says, and what the cluster knows of
//! it.

use super::sessions::Part;
use super::{Own, Whose, join, member_id};
use crate::Node;
use crate::admin::Session;
use crate::clock::Moment;
use crate::devices::Filling;
use crate::error::failure;
use ident::{Digest, Identity, Role, TlsStream};
use parking_lot::Mutex;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use types::{BoundUser, Cx, ErrorClass, Member, MemberId};
use wire::{Answer, Call, Channel, DepotCall, Failure, Reply, Speaks, WireError};

/// Most connections at once; a further one is closed at once. A busy host has ten or twenty, one that is idle three. Each has three descriptors.
const MAX_CONNECTIONS: usize = 4096;
/// Before the next attempt to take a connection after a failed one.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for the first frame of the other end, and for the one call of somebody who joins.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Between two notes on one connection that its member was heard of: many calls each second need not wait for each other there.
const NOTED: Duration = Duration::from_secs(1);

/// Connections that are open.
#[derive(Clone, Default)]
pub(super) struct Open(Arc<Mutex<Vec<Connection>>>);

struct Connection {
    number: u64,
    stream: TcpStream,
    /// Whose it is, as soon as that is known.
    who: Option<Role>,
}

impl Open {
    /// False: there are too many.
    fn add(&self, number: u64, stream: TcpStream) -> bool {
        let mut all = self.0.lock();
        let room = all.len() < crate::startup::connections(MAX_CONNECTIONS);
        if room {
            all.push(Connection { number, stream, who: None });
        }
        room
    }

    fn is_of(&self, number: u64, role: Role) {
        let mut all = self.0.lock();
        all.iter_mut().filter(|c| c.number == number).for_each(|c| c.who = Some(role));
    }

    fn end(&self, number: u64) {
        self.0.lock().retain(|c| c.number != number);
    }

    /// Ends the connections of somebody. That they are gone already is as good.
    pub(super) fn cut(&self, role: Role) {
        for connection in self.0.lock().iter().filter(|c| c.who == Some(role)) {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }

    fn cut_all(&self) {
        for connection in self.0.lock().iter() {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

/// A listening node of a cluster.
pub struct ClusterServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    open: Open,
    acceptor: Option<std::thread::JoinHandle<()>>,
}

/// Listens where `[cluster] listen` says; None if it says nothing. Until the node is a member every connection is closed.
///
/// # Errors
/// The address cannot be used.
pub fn serve_cluster(node: Arc<Node>) -> Result<Option<ClusterServer>, Failure> {
    let Some(listen) = node.config.cluster.listen else { return Ok(None) };
    let fail = |e: std::io::Error| {
        let message =
            format!("cluster.listen = \"{listen}\": {e}; is that an address of this host, and free?");
        failure(ErrorClass::Invalid, message)
    };
    let listener = TcpListener::bind(listen).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    let (stop, open) = (Arc::new(AtomicBool::new(false)), node.membership.open.clone());
    let (stopped, streams) = (stop.clone(), open.clone());
    let acceptor = std::thread::Builder::new()
        .name("accept-tls".into())
        .spawn(move || accept(&node, &listener, &stopped, &streams))
        .map_err(fail)?;
    Ok(Some(ClusterServer { address, stop, open, acceptor: Some(acceptor) }))
}

impl ClusterServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ClusterServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the acceptor; whether the connection succeeds does not matter.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(match own {
                SocketAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = TcpStream::connect_timeout(&own, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.open.cut_all();
    }
}

fn accept(node: &Arc<Node>, listener: &TcpListener, stop: &AtomicBool, open: &Open) {
    let next = AtomicU64::new(0);
    loop {
        let taken = listener.accept().and_then(|(stream, from)| Ok((stream.try_clone()?, stream, from)));
        if stop.load(Ordering::Acquire) {
            return;
        }
        let (clone, stream, from) = match taken {
            Ok(taken) => taken,
            Err(e) => {
                tracing::warn!("a connection cannot be taken: {e}");
                std::thread::sleep(RETRY_PAUSE);
                continue;
            }
        };
        let own = match node.membership() {
            Ok(Some(own)) => own,
            Ok(None) => {
                tracing::debug!("{from}: this node belongs to no cluster yet");
                continue;
            }
            Err(e) => {
                tracing::error!("no calls over TLS: {e}");
                continue;
            }
        };
        if !own.acceptor.allows(from.ip()) {
            tracing::debug!("{from}: was refused too often");
            continue;
        }
        let id = next.fetch_add(1, Ordering::Relaxed);
        if !open.add(id, clone) {
            tracing::warn!(
                "{} connections are open; a further one from {from} is refused",
                crate::startup::connections(MAX_CONNECTIONS)
            );
            continue;
        }
        let (node, table) = (node.clone(), open.clone());
        let spawned = std::thread::Builder::new().name("connection".into()).spawn(move || {
            answer(&node, &own, stream, from, id);
            table.end(id);
        });
        if let Err(e) = spawned {
            tracing::error!("a connection gets no thread: {e}");
            open.end(id);
        }
    }
}

fn answer(node: &Arc<Node>, own: &Arc<Own>, socket: TcpStream, from: SocketAddr, number: u64) {
    let stream = match own.acceptor.accept(socket) {
        Ok(stream) => stream,
        Err(e) if e.counts() => return refused(node, own, from, &e.to_string()),
        Err(e) => return tracing::debug!("{from}: {e}"),
    };
    let served = match stream.peer() {
        None => match stream.renewing() {
            Some(who) => renew(node, own, stream, who, from),
            None => admit(node, own, stream, from),
        },
        Some((identity, certificate)) => match caller(node, own, identity, certificate) {
            Ok(caller) => {
                node.membership.open.is_of(number, identity.role);
                serve(node, stream, identity.role, &caller)
            }
            Err(why) => {
                if is_refusal(&why) {
                    refused(node, own, from, &why.message);
                }
                channel(stream).and_then(|channel| wire::serve_channel(channel, &mut |_| Err(why.clone())))
            }
        },
    };
    if let Err(e) = served {
        tracing::debug!("connection from {from} ended: {e}");
    }
}

/// Whether it is for whoever calls to mend: that nobody could be asked for whom he speaks is not.
fn is_refusal(why: &Failure) -> bool {
    matches!(why.class, ErrorClass::Denied | ErrorClass::Invalid)
}

fn refused(node: &Node, own: &Own, from: SocketAddr, why: &str) {
    node.membership.note_refusal(from, why);
    tracing::warn!("a connection from {from} is refused: {why}");
    if own.acceptor.refused(from.ip()) {
        tracing::warn!("{} was refused too often and is not listened to for a while", from.ip());
    }
}

/// Who calls.
enum Caller {
    /// A client of this cluster that speaks for a user.
    User(BoundUser),
    /// A member that speaks for itself only: it may see how things are.
    Itself(MemberId),
}

/// What the cluster knows of a certificate. A node that does not have the records believes the authority, and lets only look.
fn caller(node: &Node, own: &Arc<Own>, identity: Identity, certificate: Digest) -> Result<Caller, Failure> {
    let id = member_id(identity.role);
    let fail = |e| crate::error::refused("the cluster", &e);
    let known_here = node.catalog.cluster().map_err(fail)?;
    if known_here.is_none_or(|cluster| cluster.id != own.credentials.identity.cluster.to_string()) {
        return match (id, own.holds_names()) {
            (MemberId::Client(_), true) => node.told_user(own, id, certificate).map(Caller::User),
            _ => Ok(Caller::Itself(id)),
        };
    }
    let member = node.catalog.member(id).map_err(fail)?;
    if member.as_ref().is_some_and(|m| m.next.is_some_and(|next| next.0 == certificate)) {
        node.catalog.member_renewed(id, types::Digest(certificate)).map_err(fail)?;
        // The one before is not known any more, there neither.
        node.keep_roster_or_say(own);
    }
    let user = user_of(id, member, certificate)?;
    Ok(user.map_or(Caller::Itself(id), Caller::User))
}

/// For whom a member speaks who shows that certificate; None: for itself.
pub(super) fn user_of(
    id: MemberId,
    member: Option<Member>,
    certificate: Digest,
) -> Result<Option<BoundUser>, Failure> {
    let shown = |m: &Member| m.certificate.0 == certificate || m.next.is_some_and(|n| n.0 == certificate);
    match member {
        Some(Member { removed: Some(removal), .. }) => Err(failure(
            ErrorClass::Denied,
            format!(
                "{id} was removed from this cluster ({:?}); it can join again with a new token",
                removal.reason
            ),
        )),
        Some(member) if shown(&member) => Ok(member.user),
        _ => Err(failure(
            ErrorClass::Denied,
            format!("{id} with that certificate is no member of this cluster"),
        )),
    }
}

fn channel(stream: TlsStream) -> Result<Channel, WireError> {
    let socket = stream.socket().try_clone()?;
    socket.set_read_timeout(Some(HELLO_PATIENCE))?;
    let channel = Channel::over(Box::new(stream), concat!("thermo ", env!("CARGO_PKG_VERSION")))?;
    socket.set_read_timeout(None)?;
    Ok(channel)
}

fn serve(node: &Arc<Node>, stream: TlsStream, role: Role, caller: &Caller) -> Result<(), WireError> {
    let socket = stream.socket().try_clone()?;
    let channel = channel(stream)?;
    // Where the session is shared with other connections, this is its part in it.
    let (mut session, mut part) = (Session::default(), None);
    let (mut held, mut filling) = (None, None);
    let mut answer = |call| match (call, caller) {
        // He may have been removed since he connected.
        _ if node.membership.removed.contains(role) => {
            Err(failure(ErrorClass::Denied, format!("{role} was removed from this cluster")))
        }
        (Call::Devices, Caller::Itself(id)) => Ok(Reply::Devices(node.given.names(*id)).into()),
        (Call::OpenDevice { name, epoch }, Caller::Itself(id)) => {
            held = Some(node.given.open(*id, &name, epoch)?);
            Ok(Reply::Done.into())
        }
        (Call::Scsi(order), Caller::Itself(_)) => {
            let held = held.as_ref().ok_or_else(|| failure(ErrorClass::Invalid, "no device is open"))?;
            Ok(Reply::Scsi(Box::new(held.execute(&order)?)).into())
        }
        (Call::Depot(call), Caller::Itself(id)) => depot(node, &mut filling, *id, *call),
        (Call::Subsystem, _) => Ok(Reply::Subsystem(Box::new(node.held_names()?)).into()),
        (call @ (Call::ClusterAddresses | Call::ClusterPlaces { .. } | Call::ClusterRemoved { .. }), _) => {
            node.call(&Cx::admin(crate::now()), &mut session, call)
        }
        (Call::ReportTargets(order), Caller::Itself(MemberId::Node(id))) => {
            Ok(Reply::TargetGrants(node.report_targets(*id, &order)?).into())
        }
        (Call::TurnKept, Caller::Itself(MemberId::Node(id))) => Ok(Reply::Kept(node.kept_for(*id)?).into()),
        (Call::StandbyStep(_), Caller::Itself(MemberId::Node(_))) => serves(node),
        (Call::Session(number), Caller::Itself(MemberId::Node(_)) | Caller::User(_)) if part.is_none() => {
            begins(node, &mut session, &mut part, (Whose::Member(member_id(role)), number))
        }
        (Call::ProgramSession(number), Caller::Itself(MemberId::Node(id))) if part.is_none() => {
            begins(node, &mut session, &mut part, (Whose::Program(*id), number))
        }
        (call @ (Call::FileFor(_) | Call::For(_)), _) => {
            for_user(node, &mut session, (role, caller, part.is_some()), call)
        }
        (call, Caller::User(user)) => node.call(&of_user(user), &mut session, call),
        (call, Caller::Itself(id)) => look(node, *id, &mut session, call),
    };
    let mut knows = matches!(caller, Caller::User(_)); // he has said where he goes
    let mut heard = None;
    let served = wire::serve_channel(channel, &mut |call| {
        if heard.is_none_or(|at: Moment| at.elapsed() >= NOTED) {
            node.membership.note_heard(member_id(role));
            heard = Some(Moment::now());
        }
        knows |= matches!(call, Call::Subsystem);
        let answer = is_here(node, &call, knows).and_then(|()| answer(call));
        // He is to ask the other one what became of it.
        if node.counts().is_err() {
            let _ = socket.shutdown(Shutdown::Both); // it may be gone already
        }
        answer
    });
    match part {
        Some(part) => drop(part),
        None => node.end_session(session),
    }
    served
}

/// Brings bytes to a device of this host.
fn depot(
    node: &Node,
    filling: &mut Option<Filling>,
    who: MemberId,
    call: DepotCall,
) -> Result<Answer, Failure> {
    match (filling, call) {
        (Some(filling), call) => Ok(filling.answer(call)?.into()),
        (none, DepotCall::Open { device, epoch, depot, bytes }) => {
            *none = Some(node.given.open_depot(who, (&device, epoch), (depot, bytes))?);
            Ok(Reply::Done.into())
        }
        _ => Err(failure(ErrorClass::Invalid, "no depot is open")),
    }
}

/// What a node hears that takes this one for its standby.
fn serves(node: &Node) -> Result<Answer, Failure> {
    let epoch = crate::standby::epoch(&node.config)?;
    let answer = wire::StandbyAnswer { epoch, serves: true, ..Default::default() };
    Ok(Reply::StandbyState(Box::new(answer)).into())
}

/// Whether it is a question to a node that holds names, or admits others.
fn is_of_names(call: &Call) -> bool {
    matches!(
        call,
        Call::Session(_)
            | Call::FileFor(_)
            | Call::For(_)
            | Call::ProgramSession(_)
            | Call::ReportTargets(_)
            | Call::ClusterAddresses
            | Call::ClusterRenew(_)
            | Call::ClusterStatus
            | Call::Junctions
    )
}

/// Whether this is the node to ask; the caller may know whose names it holds.
fn is_here(node: &Node, call: &Call, knows: bool) -> Result<(), Failure> {
    if !knows && takes_it_for_another(node, call) {
        return Err(not_the_first(node));
    }
    if is_elsewhere(node, call) { Err(elsewhere()) } else { Ok(()) }
}

/// Whether a member may take this subsystem for the first node, whose address this one had once: whoever means a subsystem asks first whose names there are.
fn takes_it_for_another(node: &Node, call: &Call) -> bool {
    node.config.cluster.subsystem.is_some() && is_of_names(call)
}

/// He finds the first node elsewhere.
fn not_the_first(node: &Node) -> Failure {
    let name = node.config.cluster.subsystem.as_deref().unwrap_or_default();
    let message =
        format!("here is subsystem {name}, and not the first node of the cluster: ask at another address");
    failure(ErrorClass::Retry, message)
}

/// Whether another node has, or may have, what is asked for.
fn is_elsewhere(node: &Node, call: &Call) -> bool {
    let replaced = || node.feeding.get().is_some_and(crate::standby::Feeding::is_replaced);
    (is_of_names(call) && replaced()) || node.counts().is_err()
}

/// He finds it there.
fn elsewhere() -> Failure {
    failure(ErrorClass::Retry, "another node has that, or may have taken over from this one: ask that one")
}

/// The connection belongs to a session from now on.
fn begins(
    node: &Arc<Node>,
    session: &mut Session,
    part: &mut Option<Part>,
    (whose, number): (Whose, u64),
) -> Result<Answer, Failure> {
    node.holding()?;
    let mine = part.insert(join(node, whose, number)?);
    node.end_session(std::mem::replace(session, Session::of(mine.held.clone())));
    Ok(Reply::Count(mine.begun).into())
}

/// Asks for a user for whom a member may speak, if it does; `joined`: it has a session.
fn for_user(
    node: &Arc<Node>,
    session: &mut Session,
    (role, caller, joined): (Role, &Caller, bool),
    call: Call,
) -> Result<Answer, Failure> {
    let refused = |who: &Speaks| {
        tracing::warn!("{role} speaks for uid {} and may not", who.uid);
        Err(failure(ErrorClass::Denied, format!("{role} may not speak for uid {} here", who.uid)))
    };
    let its_users = joined && matches!(caller, Caller::Itself(MemberId::Node(_)));
    match (call, caller) {
        (Call::FileFor(order), _) if its_users => node.file_for(session, *order).map(Answer::from),
        (Call::FileFor(order), Caller::User(user)) if is_for(&order.who, user) => {
            node.call(&of_user(user), session, Call::File(order.call))
        }
        (Call::For(order), _) if its_users && !order.who.checked => {
            let call =
                order.call().map_err(|e| failure(ErrorClass::Invalid, format!("what is asked: {e}")))?;
            if !call.is_of_files() {
                return refused(&order.who);
            }
            let Speaks { uid, gid, groups, .. } = order.who;
            node.call(&Cx { groups, ..Cx::user(uid, gid, crate::now()) }, session, call)
        }
        (Call::FileFor(order), _) => refused(&order.who),
        (Call::For(order), _) => refused(&order.who),
        _ => Err(failure(ErrorClass::Bug, "what is no call for a user was taken for one")),
    }
}

fn of_user(user: &BoundUser) -> Cx {
    Cx { groups: user.groups.clone(), ..Cx::user(user.uid, user.gid, crate::now()) }
}

/// Whether that is the user himself, whose rights are still to be checked.
fn is_for(who: &Speaks, user: &BoundUser) -> bool {
    !who.checked && (who.uid, who.gid, &who.groups) == (user.uid, user.gid, &user.groups)
}

/// Calls that change nothing and show nobody's files.
fn look(node: &Arc<Node>, who: MemberId, session: &mut Session, call: Call) -> Result<Answer, Failure> {
    match call {
        // It would ask itself, round and round, where it has an address that the first node had.
        Call::Cluster if node.is(who) => Err(elsewhere()),
        // Of names that another node holds this one knows no junctions, which is not to say that there are none.
        Call::Junctions if node.admitting().is_err() => Err(elsewhere()),
        // Who holds the names is asked for it by each node itself.
        Call::ClusterStatus if node.holding().is_err() => Err(elsewhere()),
        // The rest is told by who holds the names, and two that do not must not ask each other.
        Call::RefusedTargets if node.holding().is_err() => {
            Ok(Reply::RefusedTargets(node.own_target_warnings()?).into())
        }
        Call::Status
        | Call::Site
        | Call::Cluster
        | Call::ClusterStatus
        | Call::Targets
        | Call::RefusedTargets
        | Call::Turns
        | Call::Junctions => node.call(&Cx::admin(crate::now()), session, call),
        _ => Err(failure(
            ErrorClass::Denied,
            format!("{who} may only ask for the status here; files are for clients that speak for a user"),
        )),
    }
}

/// One call of a member whose certificate may have ended: it gets a new one, if that is the last that it was given and it was not removed.
fn renew(
    node: &Arc<Node>,
    own: &Arc<Own>,
    stream: TlsStream,
    (identity, certificate): (Identity, Digest),
    from: SocketAddr,
) -> Result<(), WireError> {
    one_call(
        node,
        own,
        stream,
        from,
        "with a certificate that may have ended there is nothing here but to get a new one",
        |call| match call {
            Call::ClusterRenew(ref order) => {
                is_here(node, &call, false)?;
                // That is nothing to count against him: he may have been told of this node as one that signs.
                node.admitting().map_err(|e| Failure { class: ErrorClass::Retry, ..e })?;
                caller(node, own, identity, certificate)?;
                Some(node.cluster_renew(member_id(identity.role), order)).transpose()
            }
            _ => Ok(None),
        },
    )
}

/// One call of somebody who has a token.
fn admit(node: &Arc<Node>, own: &Own, stream: TlsStream, from: SocketAddr) -> Result<(), WireError> {
    one_call(node, own, stream, from, "without a certificate there is nothing here but to join", |call| {
        match call {
            Call::ClusterJoin(order) => Some(node.cluster_join(&order)).transpose(),
            _ => Ok(None),
        }
    })
}

/// One call in limited time, and no other. What is wrong with it counts against his address.
fn one_call(
    node: &Arc<Node>,
    own: &Own,
    stream: TlsStream,
    from: SocketAddr,
    nothing_else: &str,
    answer: impl FnOnce(Call) -> Result<Option<Reply>, Failure>,
) -> Result<(), WireError> {
    let socket = stream.socket().try_clone()?;
    let mut channel = channel(stream)?;
    socket.set_read_timeout(Some(HELLO_PATIENCE))?;
    let (id, call) = channel.receive_call()?;
    let result = answer(call).and_then(|done| done.ok_or_else(|| failure(ErrorClass::Denied, nothing_else)));
    if let Err(why) = &result
        && is_refusal(why)
    {
        refused(node, own, from, &why.message);
    }
    channel.send_result(id, &result, None)
}
