//! Which calls of other hosts are on record, so that what is to be forgotten with the next one of a session need not be looked up.
//!
//! It is known of sessions that have made a call since the catalogue was opened. What is missing here stays on record until it is old.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use types::{CallId, NodeId};

/// Sessions of which it is known at most; then all are looked up again.
const SESSIONS: usize = 4096;

/// Numbers of the calls on record, by session.
#[derive(Default)]
pub struct Recorded(Mutex<BTreeMap<(NodeId, u64), BTreeSet<u64>>>);

/// A call that is recorded by a transaction.
pub struct Recording {
    pub call: CallId,
    /// Calls of its session that were found on record.
    pub found: Vec<u64>,
    /// Those of them that are so no more.
    pub forgotten: Vec<u64>,
}

fn session(call: &CallId) -> (NodeId, u64) {
    (call.node, call.session)
}

impl Recorded {
    /// Calls on record of the same session to which the answer has come, the first `most`; None: they have to be looked up.
    pub fn answered(&self, call: &CallId, most: usize) -> Option<Vec<u64>> {
        let all = self.0.lock();
        let known = all.get(&session(call))?;
        Some(known.range(..call.answered.min(call.number)).copied().take(most).collect())
    }

    /// The transaction is committed.
    pub fn done(&self, recording: Recording) {
        let Recording { call, found, forgotten } = recording;
        let mut all = self.0.lock();
        if all.len() >= SESSIONS && !all.contains_key(&session(&call)) {
            all.clear();
        }
        let known = all.entry(session(&call)).or_default();
        known.extend(found);
        forgotten.iter().for_each(|number| _ = known.remove(number));
        known.insert(call.number);
    }

    /// Whether it is committed is not known.
    pub fn failed(&self, recording: &Recording) {
        self.0.lock().remove(&session(&recording.call));
    }
}
