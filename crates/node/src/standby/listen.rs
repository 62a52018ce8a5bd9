//! Whom a standby listens to: people of its host over the control socket (as does who waits for his turn with a database), and the node that it follows
//! over TLS.

use super::PROGRAM;
use super::follow::Standby;
use super::link::credentials;
use crate::Config;
use crate::cluster::{Member, member_id, renew_member};
use crate::error::failure;
use ident::{Acceptor, Refusals};
use parking_lot::Mutex;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use types::{ErrorClass, MemberId, NodeId};
use wire::{Answer, Call, Channel, Failure, Reply};

/// Most connections at once over the control socket, and of such over TLS as have not said yet who they are.
const MAX_CONNECTIONS: usize = 32;
/// Longest wait for the first frame of the other end.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Before the next look for a connection.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two looks whether the standby goes on.
const LOOK: Duration = Duration::from_millis(200);

/// One of a limited number, until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(count.clone());
        (count.fetch_add(1, Ordering::AcqRel) < MAX_CONNECTIONS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The connection of the node that is followed: a new one takes the place of the one before.
type Followed = Arc<Mutex<Option<TcpStream>>>;

/// Ends the connection of the node that is followed when it is dropped.
pub(super) struct Listening(Followed);

impl Drop for Listening {
    fn drop(&mut self) {
        cut(&mut self.0.lock());
    }
}

fn cut(connection: &mut Option<TcpStream>) {
    if let Some(socket) = connection.take() {
        let _ = socket.shutdown(Shutdown::Both); // it may be gone already
    }
}

/// Listens until the standby ends.
pub(super) fn listen(standby: &Arc<Standby>) -> Result<Listening, Failure> {
    let config = &standby.config;
    let own = credentials(config)?;
    Acceptor::new(&own, Arc::default()).map_err(|e| failure(e.class(), e.to_string()))?;
    let missing = || {
        failure(ErrorClass::Invalid, "a standby is called by the node that it follows: set cluster.listen")
    };
    let listen = config.cluster.listen.ok_or_else(missing)?;
    let fail = |e: std::io::Error| failure(ErrorClass::Invalid, format!("the standby cannot listen: {e}"));
    let remote = TcpListener::bind(listen).map_err(fail)?;
    remote.set_nonblocking(true).map_err(fail)?;
    let followed = Followed::default();
    let (there, feeding) = (standby.clone(), followed.clone());
    let renewed = standby.clone();
    std::thread::Builder::new().name("cluster".into()).spawn(move || renew(&renewed)).map_err(fail)?;
    listen_here(standby.clone(), &standby.config)?;
    std::thread::Builder::new()
        .name("accept-tls".into())
        .spawn(move || remotes(&there, &remote, &feeding))
        .map_err(fail)?;
    Ok(Listening(followed))
}

impl Member for Standby {
    const WHAT: &str = "this standby";

    fn config(&self) -> &Config {
        &self.config
    }

    fn signers(&self) -> Vec<String> {
        Vec::new()
    }

    fn keeps(&self, put: &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        if self.goes_on() { put() } else { Ok(()) }
    }
}

/// Sees to it that the certificate does not end.
fn renew(standby: &Standby) {
    while standby.goes_on() {
        let next = Instant::now() + renew_member(standby);
        while standby.goes_on() && Instant::now() < next {
            std::thread::sleep(LOOK);
        }
    }
}

/// In a thread of its own; one that cannot be had closes the connection.
fn serve(f: impl FnOnce() + Send + 'static) {
    if let Err(e) = std::thread::Builder::new().name("connection".into()).spawn(f) {
        tracing::error!("a connection gets no thread: {e}");
    }
}

/// A process that answers people of its host before there is a node.
pub(crate) trait Answers: Send + Sync + 'static {
    fn goes_on(&self) -> bool;
    /// `administrator`: he may order things.
    fn answer(&self, call: Call, administrator: bool) -> Result<Reply, Failure>;
}

impl Answers for Standby {
    fn goes_on(&self) -> bool {
        Standby::goes_on(self)
    }

    fn answer(&self, call: Call, administrator: bool) -> Result<Reply, Failure> {
        self.call(call, administrator)
    }
}

/// Listens at the control socket for as long as it goes on.
pub(crate) fn listen_here(who: Arc<impl Answers>, config: &Config) -> Result<(), Failure> {
    let socket = config.socket_path();
    let fail = |e: std::io::Error| failure(ErrorClass::Invalid, format!("{}: {e}", socket.display()));
    let _ = std::fs::remove_file(&socket); // of a process that died
    let local = UnixListener::bind(&socket).map_err(fail)?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).map_err(fail)?;
    local.set_nonblocking(true).map_err(fail)?;
    let spawned = std::thread::Builder::new().name("accept".into()).spawn(move || locals(&who, &local));
    spawned.map(drop).map_err(fail)
}

fn locals(who: &Arc<impl Answers>, listener: &UnixListener) {
    let count = Arc::default();
    while who.goes_on() {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        if let Some(place) = Place::take(&count) {
            let who = who.clone();
            serve(move || {
                serve_local(&*who, stream);
                drop(place);
            });
        }
    }
}

fn remotes(standby: &Arc<Standby>, listener: &TcpListener, followed: &Followed) {
    let (count, refusals) = (Arc::default(), Arc::<Refusals>::default());
    while standby.goes_on() {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        if let Some(place) = Place::take(&count) {
            let (standby, refusals, followed) = (standby.clone(), refusals.clone(), followed.clone());
            serve(move || {
                if let Err(e) = serve_remote(&standby, refusals, &followed, stream, place) {
                    tracing::debug!("a connection ended: {e}");
                }
            });
        }
    }
}

fn serve_local(who: &impl Answers, stream: UnixStream) {
    let own = rustix::process::geteuid().as_raw();
    let administrator = wire::peer(&stream).is_ok_and(|peer| peer.uid == 0 || peer.uid == own);
    let ready = stream.set_nonblocking(false).is_ok();
    if ready {
        let _ = wire::serve_connection(stream, PROGRAM, &mut |call| {
            who.answer(call, administrator).map(Answer::from)
        });
    }
}

/// What somebody is told whom a standby that follows `of` does not follow. A node whose standby denies it a step gives way for good: that is said only
/// where the configuration names another node, not where a line of it is missing. Others are members who look for the namespace, which may be here later.
fn no_listener(of: Option<MemberId>, call: &Call) -> Failure {
    let Some(of) = of else {
        let message = "this is a standby, and does not know of which node: set standby.of in its configuration, and start it again";
        return failure(ErrorClass::Retry, message);
    };
    let class = match call {
        Call::StandbyStep(_) => ErrorClass::Denied,
        _ => ErrorClass::Retry,
    };
    failure(class, format!("this is a standby, and listens to {of} only, which it follows"))
}

/// Whether that is for what is brought by the node that is followed: one such connection takes the place of the one before.
fn feeds(call: &Call) -> bool {
    matches!(call, Call::StandbyStep(_) | Call::StandbyKeep(_))
}

/// Credentials are read anew: they may have been replaced.
fn serve_remote(
    standby: &Standby,
    refusals: Arc<Refusals>,
    followed: &Followed,
    stream: TcpStream,
    place: Place,
) -> Result<(), String> {
    let told = |e: ident::IdentError| e.to_string();
    let of_io = |e: std::io::Error| e.to_string();
    let from = stream.peer_addr().map_err(of_io)?.ip();
    let own = credentials(&standby.config).map_err(|e| e.message)?;
    let acceptor = Acceptor::new(&own, refusals).map_err(told)?;
    if !acceptor.allows(from) {
        return Err(format!("{from} was refused too often"));
    }
    stream.set_nonblocking(false).map_err(of_io)?;
    let stream = acceptor.accept(stream).map_err(|e| {
        if e.counts() {
            acceptor.refused(from);
        }
        e.to_string()
    })?;
    let socket = stream.socket().try_clone().map_err(of_io)?;
    let who = stream.peer().map(|(identity, _)| member_id(identity.role));
    let of = standby.config.standby.of.map(|n| MemberId::Node(NodeId(n)));
    socket.set_read_timeout(Some(HELLO_PATIENCE)).map_err(of_io)?;
    let mut channel = Channel::over(Box::new(stream), PROGRAM).map_err(|e| e.to_string())?;
    let (id, call) = channel.receive_call().map_err(|e| e.to_string())?;
    if who.is_none() || who != of || !feeds(&call) {
        let answer = match call {
            Call::ClusterPlaces { list } if who.is_some() => {
                // One after the other: each reads what there is before it writes.
                let _one = standby.keeping_places.lock();
                let now = credentials(&standby.config);
                now.and_then(|own| crate::cluster::keep_list(&standby.config.state_dir, &own, &list))
                    .map(|_| Reply::Done)
            }
            call => Err(no_listener(of, &call)),
        };
        return channel.send_result(id, &answer, None).map_err(|e| e.to_string());
    }
    drop(place); // nobody else can have so many
    socket.set_read_timeout(None).map_err(of_io)?;
    let mut before = followed.lock();
    cut(&mut before);
    *before = Some(socket);
    drop(before);
    let mut answer = |call| match call {
        Call::StandbyStep(order) => {
            standby.step(&order).map(|answer| Reply::StandbyState(Box::new(answer)).into())
        }
        Call::StandbyKeep(files) => standby.keep(&files).map(|()| Reply::Done.into()),
        _ => Err(failure(
            ErrorClass::Invalid,
            "this is a standby: it takes batches from its node, and nothing else",
        )),
    };
    let first = answer(call).map(|answer: Answer| answer.reply);
    let served =
        channel.send_result(id, &first, None).and_then(|()| wire::serve_channel(channel, &mut answer));
    served.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::StandbyStep;

    #[test]
    fn only_one_that_follows_another_node_denies() {
        let step = Call::StandbyStep(StandbyStep {
            epoch: 1,
            lease_ms: 0,
            promise: None,
            last: 0,
            last_ms: 0,
            offset: 0,
            total: 0,
            bytes: Vec::new(),
        });
        let other = Some(MemberId::Node(NodeId(3)));
        assert_eq!(no_listener(other, &step).class, ErrorClass::Denied);
        assert_eq!(no_listener(other, &Call::Session(1)).class, ErrorClass::Retry);
        let lost = no_listener(None, &step);
        assert!(lost.class == ErrorClass::Retry && lost.message.contains("standby.of"), "{lost}");
    }
}
