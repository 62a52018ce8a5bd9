//! The control socket: one thread per connection, bounded.

use crate::Node;
use crate::admin::{Held, Session};
use crate::cluster::{Whose, join};
use crate::error::failure;
use crate::locks::LockSession;
use crate::node::Relayed;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use types::{Cx, ErrorClass};
use wire::{Answer, Call, Failure, Reply};

/// Most connections at once; a further one is closed at once.
const MAX_CONNECTIONS: usize = 4096;
/// Beyond these there is room for root, who looks what is the matter.
const FOR_ROOT: usize = 64;
/// Before the next attempt to take a connection after a failed one.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// A connection that is open.
struct Connection {
    number: u64,
    /// Whose it is.
    uid: u32,
    stream: UnixStream,
}

impl Connection {
    fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// All of them.
type Open = Arc<Mutex<Vec<Connection>>>;

/// A listening control socket.
pub struct Server {
    path: std::path::PathBuf,
    stop: Arc<AtomicBool>,
    open: Open,
    acceptor: Option<std::thread::JoinHandle<()>>,
}

/// Listens at `<state_dir>/control.sock`. Any local user may connect; what he may do is decided per call.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(node: Arc<Node>) -> Result<Server, Failure> {
    let path = node.config.socket_path();
    let fail = |e: std::io::Error| {
        failure(
            ErrorClass::Denied,
            format!("control socket {}: {e}; check the state directory's owner and mode", path.display()),
        )
    };
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(fail)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).map_err(fail)?;
    let stop = Arc::new(AtomicBool::new(false));
    let open = Open::default();
    let (stopped, streams) = (stop.clone(), open.clone());
    let acceptor = std::thread::Builder::new()
        .name("accept".into())
        .spawn(move || accept(&node, &listener, &stopped, &streams))
        .map_err(fail)?;
    Ok(Server { path, stop, open, acceptor: Some(acceptor) })
}

fn accept(node: &Arc<Node>, listener: &UnixListener, stop: &AtomicBool, open: &Open) {
    let next = AtomicU64::new(0);
    for stream in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let taken = stream.and_then(|stream| Ok((stream.try_clone()?, stream)));
        let (clone, stream) = match taken {
            Ok(taken) => taken,
            Err(e) => {
                // Out of descriptors, for one: the connection stays in the queue and would fail again at once.
                tracing::warn!("a connection cannot be taken: {e}");
                std::thread::sleep(RETRY_PAUSE);
                continue;
            }
        };
        let peer = match wire::peer(&stream) {
            Ok(peer) => peer,
            Err(e) => {
                tracing::warn!("a connection without credentials is refused: {e}");
                continue;
            }
        };
        let (number, uid) = (next.fetch_add(1, Ordering::Relaxed), peer.uid);
        {
            let mut open = open.lock();
            let most = crate::startup::connections(MAX_CONNECTIONS);
            if let Some(why) = full(most, uid, open.iter().map(|one| one.uid)) {
                tracing::warn!("a further connection of uid {uid} is refused: {why}");
                continue;
            }
            open.push(Connection { number, uid, stream: clone });
        }
        let (node, table) = (node.clone(), open.clone());
        let spawned = std::thread::Builder::new().name("connection".into()).spawn(move || {
            let cut = || table.lock().iter().filter(|one| one.number == number).for_each(Connection::cut);
            answer(&node, stream, &peer, &cut);
            table.lock().retain(|one| one.number != number);
        });
        if let Err(e) = spawned {
            tracing::error!("a connection gets no thread: {e}");
            open.lock().retain(|one| one.number != number);
        }
    }
}

/// Why there is no room for one more connection of a user beside those that are open, of `most`. One user may have a quarter: he keeps nobody else away.
fn full(most: usize, uid: u32, open: impl ExactSizeIterator<Item = u32>) -> Option<String> {
    let all = open.len();
    if all >= if uid == 0 { most + FOR_ROOT } else { most } {
        return Some(format!("{all} are open"));
    }
    let his = open.filter(|one| *one == uid).count();
    (uid != 0 && his >= most / 4).then(|| format!("{his} of that user are open"))
}

/// Where a program's files are.
enum Files {
    Unknown,
    Here,
    Elsewhere(Box<dyn Relayed>),
}

impl Files {
    /// What is asked of another node there; None: it is asked here.
    fn elsewhere(&mut self, node: &Node, uid: u32) -> Result<Option<&mut Box<dyn Relayed>>, Failure> {
        if let Self::Unknown = self {
            *self = node.relay(uid, None)?.map_or(Self::Here, Self::Elsewhere);
        }
        Ok(match self {
            Self::Elsewhere(relayed) => Some(relayed),
            _ => None,
        })
    }
}

/// The answer of another node. If its connection is of no use any more, that of the program is not either: to it, its node was started anew.
fn answer_from(relayed: &mut dyn Relayed, cut: &dyn Fn(), cx: &Cx, call: Call) -> Result<Answer, Failure> {
    relayed.call(cx, call).map_or_else(
        |lost| {
            cut();
            Err(failure(
                ErrorClass::Retry,
                format!("the node that holds the namespace does not answer: {lost}"),
            ))
        },
        |answered| answered.map(Answer::from),
    )
}

/// `cut` ends the connection.
fn answer(node: &Arc<Node>, stream: UnixStream, peer: &wire::Peer, cut: &dyn Fn()) {
    let mut session = Session::of(Arc::new(Held::local(LockSession::default(), None)));
    let mut files = Files::Unknown;
    // Requests that this node makes for itself, also where those for files are made elsewhere.
    let mut own_requests = HashSet::new();
    // Where the session is shared with other connections, this is its part in it.
    let mut part = None;
    let served = wire::serve_connection(stream, concat!("thermo ", env!("CARGO_PKG_VERSION")), &mut |call| {
        let cx = Cx { groups: peer.groups.clone(), ..Cx::user(peer.uid, peer.gid, crate::now()) };
        match call {
            Call::Session(number) if part.is_none() && !matches!(files, Files::Elsewhere(_)) => {
                if matches!(files, Files::Unknown)
                    && let Some(relayed) = node.relay(peer.uid, Some(number))?
                {
                    let begun = relayed.begun();
                    files = Files::Elsewhere(relayed);
                    return Ok(Reply::Count(begun).into());
                }
                files = Files::Here;
                let mine = part.insert(join(node, Whose::User(peer.uid), number)?);
                node.end_session(std::mem::replace(&mut session, Session::of(mine.held.clone())));
                Ok(Reply::Count(mine.begun).into())
            }
            Call::Request(id) if own_requests.contains(&id) => node.call(&cx, &mut session, call),
            call if matches!(call, Call::File(_)) || call.is_of_files() => {
                match files.elsewhere(node, peer.uid)? {
                    Some(relayed) => answer_from(&mut **relayed, cut, &cx, call),
                    None => node.call(&cx, &mut session, call),
                }
            }
            call => {
                let answer = node.call(&cx, &mut session, call)?;
                if let Reply::Request(request) = &answer.reply {
                    own_requests.insert(request.request.id);
                }
                Ok(answer)
            }
        }
    });
    match part {
        Some(part) => drop(part),
        None => node.end_session(session),
    }
    if let Err(e) = served {
        tracing::debug!("connection of uid {} ended: {e}", peer.uid);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the acceptor; whether the connection succeeds does not matter.
        let _ = UnixStream::connect(&self.path);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.open.lock().iter().for_each(Connection::cut);
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_very_many_connections_keeps_nobody_else_away_and_nobody_keeps_root_away() {
        let is_full = |uid, open: &[u32]| full(20, uid, open.iter().copied()).is_some();
        assert!(!is_full(1, &[1; 4]));
        assert_eq!([1, 2, 0].map(|uid| is_full(uid, &[1; 5])), [true, false, false]);
        let all: Vec<u32> = (0..20).map(|n| 1 + n % 5).collect();
        assert_eq!([6, 0].map(|uid| is_full(uid, &all)), [true, false]);
        assert_eq!([20, 20 + FOR_ROOT].map(|open| is_full(0, &vec![0; open])), [false, true]);
    }
}
