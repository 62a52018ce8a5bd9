//! What a caller has open and has under way: of one connection, or of several that belong together.

use super::acts::Gathered;
use super::ordered::Changes;
use crate::Node;
use crate::files::Writer;
use crate::locks::LockSession;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::api::{FileApi, WaitId};
use types::{CallId, ErrorClass, Handle, NodeId};
use wire::{Failure, Reply};

/// Answers that are kept for one session at once: more than calls that its caller can have under way.
const MOST_ANSWERS: usize = 1024;

/// One connection.
#[derive(Default)]
pub struct Session {
    pub(super) held: Arc<Held>,
    /// The how manieth one it is that has joined the session.
    pub(super) connection: u64,
    /// What parts of a list it has given.
    pub(super) gathered: Gathered,
}

impl Session {
    /// A connection that shares what is open with others.
    pub(crate) fn of(held: Arc<Held>) -> Self {
        let connection = held.connections.fetch_add(1, Ordering::Relaxed) + 1;
        Self { held, connection, gathered: Gathered::default() }
    }
}

/// What is open and under way; released when the last connection to it ends.
#[derive(Default)]
pub(crate) struct Held {
    /// Number of the client on data connections; 0: he has none.
    client: u64,
    /// The host of the session, and whether calls of an earlier session of this number are on record.
    caller: Option<(NodeId, bool)>,
    /// As whom it locks files.
    pub(super) locks: LockSession,
    pub(super) news: super::locks::News,
    /// Descriptors travel to him.
    local: bool,
    /// Number of the session that a program of this host had while another node held the names.
    elsewhere: Option<u64>,
    asks_later: bool,
    /// How many connections have joined it.
    connections: AtomicU64,
    /// What he has open, and what changes come by that.
    pub(super) handles: Mutex<HashMap<Handle, Changes>>,
    /// A change by a handle has ended.
    pub(super) changed: Condvar,
    /// Those of them whose bytes he reads and writes at the targets.
    at_targets: Mutex<HashSet<Handle>>,
    waits: Mutex<HashMap<u64, Wait>>,
    answers: Mutex<BTreeMap<u64, Option<Result<Reply, Failure>>>>,
    answered: Condvar,
}

/// A call that waits.
enum Wait {
    For(WaitId),
    /// It is not to wait: that was said before it did.
    Withdrawn,
}

impl Held {
    /// Of a session with a number; `caller`: the host, and whether calls of such a session are on record.
    pub(crate) fn of(client: u64, locks: LockSession, caller: Option<(NodeId, bool)>) -> Self {
        Self { client, locks, caller, ..Self::default() }
    }

    /// Of a program on the host of another node.
    pub(crate) fn of_program(client: u64, locks: LockSession) -> Self {
        Self { client, locks, asks_later: true, ..Self::default() }
    }

    /// He asks himself for the way to the targets of what he opens.
    pub(super) fn asks_later(&self) -> bool {
        self.asks_later
    }

    /// The name of a call for the record, and whether it may be there already.
    pub(super) fn recorded(&self, number: u64, answered: u64) -> Option<(CallId, bool)> {
        let (node, resumed) = self.caller?;
        Some((CallId { node, session: self.client, number, answered }, resumed))
    }

    /// Whether calls of this session have numbers.
    pub(super) fn has_numbers(&self) -> bool {
        self.caller.is_some()
    }

    /// Of a program on this host. `elsewhere`: number of its session where other nodes hold the names.
    pub(crate) fn local(locks: LockSession, elsewhere: Option<u64>) -> Self {
        Self {
            client: uuid::Uuid::new_v4().as_u64_pair().0,
            local: true,
            elsewhere,
            locks,
            ..Self::default()
        }
    }

    /// Whether descriptors travel to him.
    pub(super) fn is_local(&self) -> bool {
        self.local
    }

    /// Whether what he was answered outlives the node.
    pub(super) fn writer(&self) -> Writer {
        if self.local { Writer::Here } else { Writer::Elsewhere }
    }

    /// Number of the client on data connections; None: he has none.
    pub(super) fn client(&self) -> Option<u64> {
        Some(self.client).filter(|client| *client != 0)
    }

    /// Number of the session of a host that speaks for users, or of a program of another host: it keeps a spare of what it writes.
    pub(super) fn keeper(&self) -> Option<u64> {
        (self.caller.is_some() || self.asks_later).then_some(self.client)
    }

    /// In whose name he brings what he has kept while another node was asked, or this one before it was started anew.
    pub(super) fn returner(&self) -> Option<u64> {
        self.keeper().or(self.elsewhere)
    }

    /// He reads and writes at the targets.
    pub(super) fn goes_to_targets(&self, handle: Handle) {
        self.at_targets.lock().insert(handle);
    }

    /// So he does through all of these.
    pub(super) fn all_go_to_targets(&self, which: impl Fn(Handle) -> bool) {
        let handles = self.handles.lock();
        self.at_targets.lock().extend(handles.keys().copied().filter(|handle| which(*handle)));
    }

    pub(super) fn add(&self, handle: Handle) {
        self.handles.lock().insert(handle, Changes::default());
    }

    /// Whether the handle is one of these.
    pub(super) fn has(&self, handle: Handle) -> bool {
        self.handles.lock().contains_key(&handle)
    }

    /// How many of these are such ones.
    pub(super) fn handles_of(&self, which: impl Fn(Handle) -> bool) -> usize {
        self.handles.lock().keys().filter(|handle| which(**handle)).count()
    }

    /// False if it is none of these (any more).
    pub(super) fn remove(&self, handle: Handle) -> bool {
        self.at_targets.lock().remove(&handle);
        self.handles.lock().remove(&handle).is_some()
    }

    /// Nobody asks again for what is below this number.
    pub(super) fn answered_below(&self, number: u64) {
        let mut answers = self.answers.lock();
        // One by one: to divide the map gets and returns memory for several answers, with every call.
        while answers.first_key_value().is_some_and(|(first, _)| *first < number) {
            answers.pop_first();
        }
        drop(answers);
        self.waits.lock().retain(|call, wait| *call >= number || matches!(wait, Wait::For(_)));
    }

    /// Nobody asks again for the answers to all below `number` but these.
    pub(super) fn answered_but(&self, number: u64, open: &[u64]) {
        let is_open = |call: &u64| *call >= number || open.binary_search(call).is_ok();
        self.answers.lock().retain(|call, answer| answer.is_none() || is_open(call));
    }

    /// Does what must not be done twice, or gives the answer of the time when it was done.
    pub(super) fn once(
        &self,
        number: u64,
        act: impl FnOnce() -> Result<Reply, Failure>,
    ) -> Result<Reply, Failure> {
        let mut answers = self.answers.lock();
        loop {
            match answers.get(&number) {
                Some(Some(answer)) => return answer.clone(),
                // The connection broke while it was done: it is still being done.
                Some(None) => self.answered.wait(&mut answers),
                None => break,
            }
        }
        if answers.len() >= MOST_ANSWERS {
            let message =
                "more calls of one session are under way than can be; this is a defect, please report it";
            return Err(Failure { class: ErrorClass::Bug, fs: None, message: message.into() });
        }
        answers.insert(number, None);
        drop(answers);
        let mut doing = Doing { held: self, number, answer: None };
        let answer = act();
        doing.answer = Some(answer.clone());
        answer
    }

    /// The call of this number waits from now on; false if it is not to.
    pub(super) fn waits(&self, number: u64, wait: WaitId) -> bool {
        let mut waits = self.waits.lock();
        let withdrawn = waits.contains_key(&number);
        if !withdrawn {
            waits.insert(number, Wait::For(wait));
        }
        !withdrawn
    }

    pub(super) fn waits_no_more(&self, number: u64) {
        self.waits.lock().remove(&number);
    }

    /// What the call of this number waits for, if it does; else it will not.
    pub(super) fn withdraw(&self, number: u64) -> Option<WaitId> {
        let mut waits = self.waits.lock();
        match waits.get(&number) {
            Some(Wait::For(wait)) => Some(*wait),
            Some(Wait::Withdrawn) => None,
            None => {
                waits.insert(number, Wait::Withdrawn);
                None
            }
        }
    }
}

/// Something that is being done once; whatever becomes of it, nobody waits for it for ever.
struct Doing<'h> {
    held: &'h Held,
    number: u64,
    answer: Option<Result<Reply, Failure>>,
}

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        let mut answers = self.held.answers.lock();
        match self.answer.take() {
            Some(answer) => drop(answers.insert(self.number, Some(answer))),
            None => drop(answers.remove(&self.number)),
        }
        self.held.answered.notify_all();
    }
}

impl Node {
    /// If a session that is gone holds locks, they go to others once it can write at no target any more what it had open: until this returns, that may be minutes
    /// where a target does not answer.
    pub(crate) fn fence_what_locks_protect(&self, held: &Held) {
        if self.locks.any_of(held.locks) {
            let handles: Vec<Handle> = held.at_targets.lock().iter().copied().collect();
            self.fence_patiently(handles.into_iter().filter_map(|handle| self.written_far(handle)).collect());
        }
    }

    /// Releases what was left open. `stops`: the node does, and the next one ends rights at targets before somebody else opens a file: until then hosts bring there
    /// what they have.
    pub(crate) fn end_held(&self, held: &Held, stops: bool) {
        let at_targets = std::mem::take(&mut *held.at_targets.lock());
        at_targets.into_iter().for_each(|handle| self.leave_targets(handle, stops));
        let handles = std::mem::take(&mut *held.handles.lock());
        handles.into_keys().for_each(|handle| self.release(handle));
    }

    /// Releases what a connection left open that shares it with no other.
    pub fn end_session(&self, session: Session) {
        self.end_held(&session.held, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn failed() -> Failure {
        Failure { class: ErrorClass::Exists, fs: None, message: "it is there".into() }
    }

    #[test]
    fn what_is_asked_again_is_answered_and_not_done_again() {
        let (held, done) = (Held::default(), AtomicU32::new(0));
        let ask = |number, answered| {
            held.answered_below(answered);
            held.once(number, || {
                done.fetch_add(1, Ordering::SeqCst);
                if number == 7 { Err(failed()) } else { Ok(Reply::Count(number)) }
            })
        };
        assert_eq!(ask(5, 5), Ok(Reply::Count(5)));
        assert_eq!(ask(7, 5), Err(failed()));
        assert_eq!((ask(5, 5), ask(7, 5)), (Ok(Reply::Count(5)), Err(failed())));
        assert_eq!(done.load(Ordering::SeqCst), 2);
        // Nobody asks again for what has come.
        assert_eq!(ask(9, 8), Ok(Reply::Count(9)));
        assert_eq!(held.answers.lock().keys().copied().collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn of_answers_beside_a_call_that_waits_only_those_that_are_missing_are_kept() {
        let held = Held::default();
        let ask = |number, open: &[u64]| {
            held.answered_below(1);
            held.answered_but(number, open);
            held.once(number, || Ok(Reply::Count(number)))
        };
        for number in 1..3 * MOST_ANSWERS as u64 {
            // Those of 1 and 5 do not come.
            let missing: &[u64] = if number > 5 { &[1, 5] } else { &[1] };
            assert_eq!(ask(number, missing), Ok(Reply::Count(number)));
        }
        assert!(held.answers.lock().len() < 5);
        let again = |number| held.once(number, || Ok(Reply::Done));
        assert_eq!(
            [again(1), again(5), again(9)],
            [Ok(Reply::Count(1)), Ok(Reply::Count(5)), Ok(Reply::Done)]
        );
        // Who does not tell is told himself.
        let refused = (5000..5000 + 2 * MOST_ANSWERS as u64).find_map(|number| again(number).err());
        assert_eq!(refused.map(|failure| failure.class), Some(ErrorClass::Bug));
    }

    #[test]
    fn what_is_being_done_is_not_forgotten_whatever_is_told() {
        let held = Held::default();
        let answer = held.once(3, || {
            held.answered_but(7, &[1]);
            assert_eq!(held.answers.lock().keys().copied().collect::<Vec<_>>(), [3]);
            Ok(Reply::Count(3))
        });
        assert_eq!(answer, Ok(Reply::Count(3)));
    }

    #[test]
    fn who_asks_again_while_it_is_being_done_waits_for_the_one_answer() {
        let (held, done) = (Held::default(), AtomicU32::new(0));
        let (begun, wait) = crossbeam_channel::bounded(0);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                held.once(1, || {
                    done.fetch_add(1, Ordering::SeqCst);
                    begun.send(()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    Ok(Reply::Count(4))
                })
            });
            wait.recv().unwrap();
            let again = held.once(1, || {
                done.fetch_add(1, Ordering::SeqCst);
                Ok(Reply::Done)
            });
            assert_eq!((again, first.join().unwrap()), (Ok(Reply::Count(4)), Ok(Reply::Count(4))));
        });
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_wait_that_was_withdrawn_before_it_began_does_not_begin() {
        let held = Held::default();
        assert!(held.waits(1, WaitId(10)));
        assert_eq!(held.withdraw(1), Some(WaitId(10)));
        held.waits_no_more(1);
        assert_eq!(held.withdraw(2), None);
        assert!(!held.waits(2, WaitId(11)));
        held.waits_no_more(2);
        assert!(held.waits(2, WaitId(12)));
    }
}
