//! Locks of a session of another host, or of a program without a mount. No connection waits for a lock: what becomes of it is told by the one that asks for news.

use super::session::Held;
use crate::Node;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use types::api::FsResult;
use types::{ErrorClass, FsError, Handle, LockOrder};
use wire::{Failure, FileCall, LockEvent, Reply};

/// How long who asks for news waits for some.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of locks that a session waits for; until it has said that it knows.
#[derive(Default)]
pub(super) struct News {
    state: Mutex<Told>,
    some: Condvar,
}

#[derive(Default)]
struct Told {
    last: u64,
    events: VecDeque<LockEvent>,
    /// Who asks is to be answered at once, with or without news.
    answer: bool,
}

impl News {
    fn add(&self, call: u64, outcome: FsResult<()>) {
        let mut told = self.state.lock();
        told.last += 1;
        let place = told.last;
        told.events.push_back(LockEvent { place, call, refused: outcome.err() });
        self.some.notify_all();
    }

    /// Has who asks be answered, to see whether he is still there.
    fn look_up(&self) {
        self.state.lock().answer = true;
        self.some.notify_all();
    }

    /// What is known after this place; waits for the first.
    fn after(&self, place: u64) -> Vec<LockEvent> {
        let mut told = self.state.lock();
        told.events.retain(|event| event.place > place);
        if told.events.is_empty() && !told.answer {
            self.some.wait_for(&mut told, PATIENCE);
        }
        told.answer = false;
        told.events.iter().cloned().collect()
    }
}

impl Held {
    /// A connection of the session has ended: if its program has, nobody is to wait any longer in its name.
    pub(crate) fn look_up(&self) {
        self.news.look_up();
    }
}

impl Node {
    /// Whether calls of the session for locks can be answered.
    pub(super) fn keeps_locks(&self, call: &FileCall) -> Result<(), Failure> {
        let of_locks = matches!(call, FileCall::LockAs { .. } | FileCall::TestLock { .. });
        if !of_locks || self.config.keeps_locks() {
            return Ok(());
        }
        let message = "open file: this node leaves locks to the kernel, which knows those of programs on mounts only; set `locks = true` in its configuration \
                       and start it anew";
        Err(Failure { class: ErrorClass::Invalid, fs: Some(FsError::NotSupported), message: message.into() })
    }

    /// Asks for a lock or gives one back; `number`: that of the call, under which it waits.
    pub(super) fn lock_call(
        &self,
        session: &Arc<Held>,
        number: u64,
        (handle, order, claimed): (Handle, LockOrder, bool),
    ) -> FsResult<Reply> {
        if !session.has(handle) {
            return Err(FsError::BadHandle);
        }
        if session.locks.number == 0 || number == 0 {
            return Err(FsError::NotSupported);
        }
        let (answered, answer) = crossbeam_channel::bounded(1);
        let (held, asked) = (session.clone(), Arc::new(Mutex::new(Some(answered))));
        let first = asked.clone();
        let done = move |outcome| match first.lock().take() {
            // It need not wait: this is the answer to the call itself.
            Some(answered) => drop(answered.send(outcome)),
            None => {
                held.waits_no_more(number);
                held.news.add(number, outcome);
            }
        };
        let Some(wait) = self.lock_for(session.locks, (handle, order, claimed), Box::new(done)) else {
            return answer.recv().unwrap_or(Err(FsError::Io)).map(|()| Reply::Count(1));
        };
        let withdrawn = !session.waits(number, wait);
        // From now on it is told as news; what came until now is the answer.
        if asked.lock().take().is_none() {
            session.waits_no_more(number);
            return answer.recv().unwrap_or(Err(FsError::Io)).map(|()| Reply::Count(1));
        }
        if withdrawn {
            self.locks.withdraw(wait);
        }
        Ok(Reply::Count(0))
    }

    /// News of locks that a session waits for.
    pub(super) fn lock_events(&self, session: &Held, after: u64, claimed: bool) -> FsResult<Reply> {
        if let Some(key) = session.locks.key.filter(|_| claimed) {
            self.has_claimed(key);
        }
        Ok(Reply::LockEvents(session.news.after(after)))
    }
}
