//! Sessions: what other nodes have open for their users, and programs for themselves, over however many connections. That of a node outlives its last
//! connection for a moment, so that a network that fails for a moment closes nothing.

use crate::Node;
use crate::admin::Held;
use crate::error::failure;
use crate::locks::{LockSession, SessionKey};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use types::{ErrorClass, MemberId, NodeId, Time};
use wire::Failure;

/// How long the session of a node waits for another connection when its last one has ended.
const GRACE: Duration = Duration::from_secs(30);
/// How long it is known which calls were done for a host that does not come back for their answers (seconds).
const KEEP_CALLS_S: i64 = 24 * 3600;
/// Most sessions at once: each holds memory for as long as it has a connection, or `GRACE` longer. Programs of other hosts may have half as many connections as a
/// node takes: they keep no mounts away.
const MOST: usize = 4096;

/// Whose session it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    /// A node's, or that of a program which shows a client's certificate.
    Member(MemberId),
    /// That of a program of this host, run by this user.
    User(u32),
    /// That of a program of a node's host, for which the node speaks.
    Program(NodeId),
}

impl std::fmt::Display for Whose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Member(id) => id.fmt(f),
            Self::User(uid) => write!(f, "a program of uid {uid}"),
            Self::Program(node) => write!(f, "a program of the host of {}", MemberId::Node(*node)),
        }
    }
}

/// Whose session, and the number that he gave it.
type Key = (Whose, u64);

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<Key, Shared>>,
    /// One has ended.
    over: Condvar,
}

struct Shared {
    held: Arc<Held>,
    /// Told to every connection, so that a session that was begun anew is known as another.
    begun: u64,
    connections: usize,
    /// How often the last connection has ended.
    left: u64,
    /// It ends: nobody joins it any more.
    ends: bool,
}

/// One connection's part in a session, until it is dropped.
pub(crate) struct Part {
    node: Arc<Node>,
    key: Key,
    pub(crate) held: Arc<Held>,
    pub(crate) begun: u64,
}

/// Another connection for a session, which begins with its first.
pub(crate) fn join(node: &Arc<Node>, who: Whose, number: u64) -> Result<Part, Failure> {
    let key = (who, number);
    // What cannot be read may be there: each call looks for itself, then.
    let resumed = |id: NodeId| node.catalog.has_done_calls(id, number).unwrap_or(true);
    let (held, begun) = node.membership.sessions.enter(key, resumed)?;
    Ok(Part { node: node.clone(), key, held, begun })
}

impl Sessions {
    /// One more connection. If the session is just ending another one of that number begins, once nothing of this one is remembered: else what the
    /// other one locks would be forgotten with it.
    /// `resumed`: whether calls of such a session of a host are on record.
    fn enter(&self, key: Key, resumed: impl FnOnce(NodeId) -> bool) -> Result<(Arc<Held>, u64), Failure> {
        let mut all = self.all.lock();
        while all.get(&key).is_some_and(|shared| shared.ends) {
            self.over.wait(&mut all);
        }
        if all.len() >= MOST && !all.contains_key(&key) {
            return Err(failure(ErrorClass::Busy, format!("{MOST} sessions are open; try again later")));
        }
        if let Whose::Program(_) = key.0 {
            let of_programs = all.iter().filter(|((whose, _), _)| matches!(whose, Whose::Program(_)));
            let most = crate::startup::connections(MOST) / 2;
            if of_programs.map(|(_, shared)| shared.connections).sum::<usize>() >= most {
                let message = format!("programs of other hosts have {most} connections; try again later");
                return Err(failure(ErrorClass::Busy, message));
            }
        }
        let begin = || {
            let begun = uuid::Uuid::new_v4().as_u64_pair().0;
            let far = !matches!(key.0, Whose::User(_));
            let locks = LockSession { number: begun, key: lock_key(key), far };
            let held = match (key.0, locks.key) {
                (Whose::User(uid), _) => Held::local(locks, Some(ident::session_of_program(uid, key.1))),
                (Whose::Program(_), _) => Held::of_program(key.1, locks),
                (_, Some((node, _))) => Held::of(key.1, locks, Some((node, resumed(node)))),
                // A client chooses its number, and goes to no targets.
                (_, None) => Held::of(0, locks, None),
            };
            Shared { held: Arc::new(held), begun, connections: 0, left: 0, ends: false }
        };
        let shared = all.entry(key).or_insert_with(begin);
        shared.connections += 1;
        Ok((shared.held.clone(), shared.begun))
    }

    /// One connection less; if it was the last, how often that was so.
    fn leave(&self, key: Key) -> Option<u64> {
        let mut all = self.all.lock();
        let shared = all.get_mut(&key)?;
        shared.connections -= 1;
        if shared.connections > 0 {
            return None;
        }
        shared.left += 1;
        Some(shared.left)
    }

    /// Ends a session to which nobody has come back since its last connection ended for this time. `forget` is done before another one of its number can
    /// begin.
    fn end(&self, key: Key, left: u64, forget: impl FnOnce()) -> Option<Arc<Held>> {
        let held = {
            let mut all = self.all.lock();
            let shared = all.get_mut(&key).filter(|s| s.connections == 0 && s.left == left && !s.ends)?;
            shared.ends = true;
            shared.held.clone()
        };
        forget();
        self.all.lock().remove(&key);
        self.over.notify_all();
        Some(held)
    }
}

/// Only nodes have sessions with locks that outlive a restart.
fn lock_key((who, number): Key) -> Option<SessionKey> {
    match who {
        Whose::Member(MemberId::Node(id)) => Some((id, number)),
        Whose::Member(MemberId::Client(_)) | Whose::User(_) | Whose::Program(_) => None,
    }
}

impl Node {
    /// Forgets which calls were done for hosts that did not come back for them.
    pub(super) fn forget_old_calls(&self) -> Result<(), Failure> {
        let now = crate::now();
        let before = Time::new(now.secs - KEEP_CALLS_S, 0);
        self.catalog.forget_done_before(before).map_err(|e| crate::error::refused("calls of other hosts", &e))
    }

    /// Whether a session of a node is there.
    pub(crate) fn has_session(&self, (node, number): SessionKey) -> bool {
        let key = (Whose::Member(MemberId::Node(node)), number);
        self.membership.sessions.all.lock().contains_key(&key)
    }

    /// How long somebody may take to come back. The connections of a program that has ended are closed by its kernel.
    fn grace(&self, who: Whose) -> Duration {
        match who {
            Whose::Member(id @ MemberId::Node(_)) if !self.membership.removed.contains(super::role(id)) => {
                GRACE
            }
            _ => Duration::ZERO,
        }
    }
}

impl Drop for Part {
    /// The thread of the connection has nothing else to do: it waits here whether somebody comes back.
    fn drop(&mut self) {
        let sessions = &self.node.membership.sessions;
        // Another connection of a program that has ended may be waiting for news.
        self.held.look_up();
        let Some(left) = sessions.leave(self.key) else { return };
        // A node that stops waits for nobody; who was cut off then may claim his locks from the next.
        let stops = self.node.stops_within(self.node.grace(self.key.0));
        if stops {
            self.node.locks.stop();
        }
        let forget = || {
            let Some(key) = lock_key(self.key) else { return };
            self.node.leases.leave(key.1);
            if !stops {
                self.node.forget_locks_of(key);
            }
        };
        if let Some(held) = sessions.end(self.key, left, forget) {
            match self.key.0 {
                Whose::Member(id) => tracing::info!("a session of {id} has ended"),
                Whose::User(_) | Whose::Program(_) => {
                    tracing::debug!("a session of {} has ended", self.key.0)
                }
            }
            if !stops {
                self.node.fence_what_locks_protect(&held);
            }
            self.node.end_held(&held, stops);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;

    #[test]
    fn who_comes_back_while_his_session_ends_begins_another_when_that_one_is_forgotten() {
        let (sessions, key) = (Sessions::default(), (Whose::Member(MemberId::Node(NodeId(2))), 7));
        let enter = || sessions.enter(key, |_| false);
        let (_, first) = enter().unwrap();
        let left = sessions.leave(key).unwrap();
        assert_eq!(enter().unwrap().1, first, "nobody has noticed");
        assert!(sessions.end(key, left, || panic!("somebody is there")).is_none());
        let left = sessions.leave(key).unwrap();
        let (begun, (forgets, forgotten)) = (bounded(0), bounded::<()>(0));
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| {
                sessions.end(key, left, || {
                    begun.0.send(()).unwrap();
                    forgotten.recv().unwrap();
                })
            });
            begun.1.recv().unwrap();
            let (joins, joined) = bounded(1);
            let enter = &enter;
            scope.spawn(move || joins.send(enter().unwrap().1).unwrap());
            assert!(
                joined.recv_timeout(Duration::from_millis(50)).is_err(),
                "it joins what is being forgotten"
            );
            forgets.send(()).unwrap();
            assert!(ended.join().unwrap().is_some());
            assert_ne!(joined.recv().unwrap(), first);
        });
        assert_eq!(sessions.all.lock()[&key].connections, 1);
    }
}
