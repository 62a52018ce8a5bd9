//! Programs of a host whose node holds no names, and that go past its mounts: what they ask of its node goes on to the node that has the names, in their user's name. Where
//! bytes lie they are told, and go there by themselves.
//!
//! * A program's session is one of this host there, with a number that is drawn here: of programs that choose the same number each has its own.
//! * Each connection of a program has one of its own there, and ends with it: to the program it is as if its node had been started anew.
//! * What a session has left open when its last connection ends is closed.

use super::Reach;
use super::bytes::nobody;
use super::lines::{Line, Lines, speaks};
use super::whose::Names;
use crate::ClientError;
use ident::Uuid;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use types::{Cx, ErrorClass, FsError, Handle};
use wire::{Call, Failure, FileCall, LockEvent, Reply, WireError};

/// A program's numbers of locks that it waits for are greater by this than those of calls.
const PROGRAMS: u64 = 1 << 48;

/// The namespace that other nodes hold, for programs.
pub struct Relay {
    reach: Arc<Reach>,
    names: Names,
    /// By user, and the number that the program gave its session.
    sessions: Mutex<HashMap<(u32, u64), Weak<Session>>>,
}

struct Session {
    lines: Arc<Lines>,
    /// Handles of the node.
    opened: Mutex<HashSet<Handle>>,
}

/// One connection of a program.
pub struct Relayed {
    session: Arc<Session>,
    line: Line,
}

impl Session {
    fn new(reach: Arc<Reach>, names: Names) -> Arc<Self> {
        let number = Uuid::new_v4().as_u64_pair().0;
        let lines = Arc::new(Lines::new(Box::new(move || reach()), number, names));
        Arc::new(Self { lines, opened: Mutex::default() })
    }

    /// Keeps in mind what is open from now on, and gives a program the answer as a node of its host would.
    fn answered(&self, reply: Reply, releases: Option<Handle>) -> Reply {
        if let Some(handle) = releases {
            self.opened.lock().remove(&handle);
        }
        match reply {
            Reply::OpenedAt { handle, attr, .. } | Reply::Opened { handle, attr, .. } => {
                self.opened.lock().insert(handle);
                // No descriptor travels from another host.
                Reply::Opened { handle, attr, direct: false }
            }
            Reply::LockEvents(events) => {
                let own = |event: LockEvent| LockEvent { call: event.call & (PROGRAMS - 1), ..event };
                Reply::LockEvents(events.into_iter().map(own).collect())
            }
            other => other,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (lines, opened) = (self.lines.clone(), std::mem::take(&mut *self.opened.lock()));
        if opened.is_empty() {
            return;
        }
        let close = move || {
            // If there is no way the session ends there after half a minute, and all of this with it.
            let Ok(mut line) = lines.connect() else { return };
            for handle in opened {
                let number = lines.number();
                let call = Call::File(FileCall::Release { handle, sync: false });
                let _ = lines.ask_over(&mut line, speaks(&nobody()), number.value, call);
            }
        };
        if let Err(e) = std::thread::Builder::new().name("relay-close".into()).spawn(close) {
            tracing::warn!("what a program has left open is closed later, for want of a thread: {e}");
        }
    }
}

/// A call as the node is to get it: numbers of calls are those of the connection here.
fn passed_on(call: Call) -> Result<Call, Failure> {
    let passed = |number: u64| match number < PROGRAMS {
        true => Ok(number | PROGRAMS),
        false => Err(Failure {
            class: ErrorClass::Invalid,
            fs: Some(FsError::Invalid),
            message: format!("a lock with number {number}: numbers below {PROGRAMS} are due"),
        }),
    };
    Ok(match call {
        Call::File(FileCall::LockAs { number, handle, order }) => {
            Call::File(FileCall::LockAs { number: passed(number)?, handle, order })
        }
        Call::File(FileCall::Withdraw(number)) => Call::File(FileCall::Withdraw(passed(number)?)),
        other => other,
    })
}

impl Relay {
    /// Nobody is asked yet.
    pub fn new(reach: Reach, names: Names) -> Self {
        Self { reach: Arc::new(reach), names, sessions: Mutex::default() }
    }

    /// One more connection of a user's program, in its session of that number; None: in one of its own.
    ///
    /// # Errors
    /// No node that holds the namespace answers, or none takes this host for a member.
    pub fn connect(&self, uid: u32, session: Option<u64>) -> Result<Relayed, ClientError> {
        let begin = || Session::new(self.reach.clone(), self.names.clone());
        let session = match session {
            None => begin(),
            Some(number) => {
                let mut all = self.sessions.lock();
                all.retain(|_, session| session.strong_count() > 0);
                let known = all.get(&(uid, number)).and_then(Weak::upgrade);
                let session = known.unwrap_or_else(begin);
                all.insert((uid, number), Arc::downgrade(&session));
                session
            }
        };
        let line = session.lines.connect()?;
        Ok(Relayed { session, line })
    }
}

impl Relayed {
    /// Tells the session from every other one.
    pub fn begun(&self) -> u64 {
        self.line.begun
    }

    /// Asks about files and requests for a user, whose rights the node checks.
    ///
    /// # Errors
    /// The connection is of no use any more: whether the call was carried out is not known.
    pub fn call(&mut self, cx: &Cx, call: Call) -> Result<Result<Reply, Failure>, WireError> {
        let releases = match &call {
            Call::File(FileCall::Release { handle, .. }) => Some(*handle),
            _ => None,
        };
        let call = match passed_on(call) {
            Ok(call) => call,
            Err(e) => return Ok(Err(e)),
        };
        let (lines, number) = (&self.session.lines, self.session.lines.number());
        let answer = lines.ask_over(&mut self.line, speaks(cx), number.value, call)?;
        Ok(answer.map(|reply| self.session.answered(reply, releases)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_numbers_of_locks_are_no_numbers_of_calls() {
        let withdraw = |number| Call::File(FileCall::Withdraw(number));
        let withdrawn = |number| passed_on(withdraw(number)).map_err(|e| e.class);
        assert_eq!(withdrawn(7), Ok(withdraw(PROGRAMS | 7)));
        assert_eq!(withdrawn(PROGRAMS), Err(ErrorClass::Invalid));
        let session = Session::new(Arc::new(Box::new(|| Ok(Vec::new()))), Names::First);
        let event = |call| vec![LockEvent { place: 1, call, refused: None }];
        let told = session.answered(Reply::LockEvents(event(PROGRAMS | 7)), None);
        assert_eq!(told, Reply::LockEvents(event(7)));
    }
}
