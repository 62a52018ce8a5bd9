//! Sessions of other nodes: what they have open for their users, over however many connections. A session outlives its last connection for a
//! moment, so that a network that fails for a moment closes nothing.

use crate::Node;
use crate::admin::Held;
use crate::error::failure;
use crate::locks::{LockSession, SessionKey};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use types::{ErrorClass, MemberId, NodeId, Time};
use wire::Failure;

/// How long a session waits for another connection when its last one has ended.
const GRACE: Duration = Duration::from_secs(30);
/// How long it is known which calls were done for a host that does not come back for their answers (seconds).
const KEEP_CALLS_S: i64 = 24 * 3600;
/// Most sessions at once: each holds memory for as long as it has a connection, or `GRACE` longer.
const MOST: usize = 4096;

/// Whose session, and the number that he gave it.
type Key = (MemberId, u64);

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Key, Shared>>);

struct Shared {
    held: Arc<Held>,
    /// Told to every connection, so that a session that was begun anew is known as another.
    begun: u64,
    connections: usize,
    /// How often the last connection has ended.
    left: u64,
}

/// One connection's part in a session, until it is dropped.
pub(super) struct Part {
    node: Arc<Node>,
    key: Key,
    pub(super) held: Arc<Held>,
    pub(super) begun: u64,
}

/// Another connection for a session, which begins with its first.
pub(super) fn join(node: &Arc<Node>, who: MemberId, number: u64) -> Result<Part, Failure> {
    let mut all = node.membership.sessions.0.lock();
    if all.len() >= MOST && !all.contains_key(&(who, number)) {
        return Err(failure(
            ErrorClass::Busy,
            format!("{MOST} sessions of other hosts are open; try again later"),
        ));
    }
    let begin = || {
        // What cannot be read may be there: each call looks for itself, then.
        let resumed = |id: NodeId| node.catalog.has_done_calls(id, number).unwrap_or(true);
        let begun = uuid::Uuid::new_v4().as_u64_pair().0;
        let key = lock_key((who, number));
        let caller = key.map(|(node, _)| (node, resumed(node)));
        let held = Arc::new(Held::of(number, LockSession { number: begun, key }, caller));
        Shared { held, begun, connections: 0, left: 0 }
    };
    let shared = all.entry((who, number)).or_insert_with(begin);
    shared.connections += 1;
    Ok(Part { node: node.clone(), key: (who, number), held: shared.held.clone(), begun: shared.begun })
}

/// Only nodes have sessions with locks that outlive a restart.
fn lock_key((who, number): Key) -> Option<SessionKey> {
    match who {
        MemberId::Node(id) => Some((id, number)),
        MemberId::Client(_) => None,
    }
}

impl Node {
    /// Forgets which calls were done for hosts that did not come back for them.
    pub(super) fn forget_old_calls(&self) -> Result<(), Failure> {
        let now = crate::now();
        let before = Time::new(now.secs - KEEP_CALLS_S, 0);
        self.catalog.forget_done_before(before).map_err(|e| crate::error::refused("calls of other hosts", &e))
    }

    /// Whether a session is there.
    pub(crate) fn has_session(&self, key: Key) -> bool {
        self.membership.sessions.0.lock().contains_key(&key)
    }
}

impl Drop for Part {
    /// The thread of the connection has nothing else to do: it waits here whether somebody comes back.
    fn drop(&mut self) {
        let sessions = &self.node.membership.sessions;
        let mine = {
            let mut all = sessions.0.lock();
            let Some(shared) = all.get_mut(&self.key) else { return };
            shared.connections -= 1;
            if shared.connections > 0 {
                return;
            }
            shared.left += 1;
            shared.left
        };
        let removed = self.node.membership.removed.contains(super::role(self.key.0));
        let grace = if removed { Duration::ZERO } else { GRACE };
        // A node that stops waits for nobody; who was cut off then may claim his locks from the next.
        let stops = self.node.stops_within(grace);
        if stops {
            self.node.locks.stop();
        }
        let ended = {
            let mut all = sessions.0.lock();
            let over = all.get(&self.key).is_some_and(|s| s.connections == 0 && s.left == mine);
            if over { all.remove(&self.key) } else { None }
        };
        if let Some(shared) = ended {
            tracing::info!("a session of {} has ended", self.key.0);
            lock_key(self.key).filter(|_| !stops).into_iter().for_each(|key| self.node.forget_locks_of(key));
            self.node.end_held(&shared.held);
        }
    }
}
