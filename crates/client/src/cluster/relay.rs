//! Programs of a host whose node holds no names, and that go past its mounts: what they ask of its node goes on to the node that has the names, in their user's name. Where
//! bytes lie they are told, and go there by themselves.
//!
//! * A program's session is one of this host there, with a number that follows from the program's own and its user: of users who choose the same number each has his own, and whoever
//!   connects anew is known by it also if this node was started anew, so that he can return what he [has kept](crate::spares).
//! * Each connection of a program has one of its own there, and ends with it: to the program it is as if its node had been started anew.
//! * It ends there with its last connection, as that of a program of that host: what it has left open is closed.

use super::lines::{Line, Lines, speaks};
use super::whose::Names;
use super::{NODE, Reach};
use crate::ClientError;
use ident::{Uuid, session_of_program};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use types::{Cx, ErrorClass, FsError};
use wire::{Call, Failure, FileCall, LockEvent, Reply, WireError};

/// A program's numbers of locks that it waits for are greater by this than those of calls.
const PROGRAMS: u64 = 1 << 48;
/// How long nobody asks again where this host was refused: who is refused often is not listened to.
const QUIET: Duration = Duration::from_secs(5);

/// The namespace that other nodes hold, for programs.
pub struct Relay {
    reach: Arc<Reach>,
    names: Names,
    /// By user, and the number that the program gave its session.
    sessions: Mutex<HashMap<(u32, u64), Weak<Lines>>>,
    refused: Mutex<Option<(Instant, String)>>,
    /// What files say of their node.
    node: Arc<str>,
}

/// One connection of a program.
pub struct Relayed {
    lines: Arc<Lines>,
    line: Line,
    node: Arc<str>,
}

/// An answer as a node of the program's host would give it.
fn answered(reply: Reply) -> Reply {
    match reply {
        // No descriptor travels from another host.
        Reply::OpenedAt { handle, attr, .. } | Reply::Opened { handle, attr, .. } => {
            Reply::Opened { handle, attr, direct: false }
        }
        Reply::LockEvents(events) => {
            let own = |event: LockEvent| LockEvent { call: event.call & (PROGRAMS - 1), ..event };
            Reply::LockEvents(events.into_iter().map(own).collect())
        }
        other => other,
    }
}

/// A call as the node is to get it: numbers of calls are those of the connection here.
fn passed_on(call: Call) -> Result<Call, Failure> {
    let refused = |fs, message: String| Failure { class: ErrorClass::Invalid, fs: Some(fs), message };
    let passed = |number: u64| match number < PROGRAMS {
        true => Ok(number | PROGRAMS),
        false => {
            let message = format!("a lock with number {number}: numbers below {PROGRAMS} are due");
            Err(refused(FsError::Invalid, message))
        }
    };
    Ok(match call {
        Call::File(FileCall::LockAs { number, handle, order }) => {
            Call::File(FileCall::LockAs { number: passed(number)?, handle, order })
        }
        Call::File(FileCall::Withdraw(number)) => Call::File(FileCall::Withdraw(passed(number)?)),
        Call::File(
            FileCall::Lock { .. }
            | FileCall::LockEvents { claimed: true, .. }
            | FileCall::Leased(_)
            | FileCall::Forgotten { .. }
            | FileCall::WriteAlone(_)
            | FileCall::WriteAloneStands { .. }
            | FileCall::WriteAloneEnd { .. },
        ) => return Err(refused(FsError::NotSupported, "that is for mounts".into())),
        other => other,
    })
}

/// Number of the first call of a session that may have had others before, which the node answers no second time: greater than theirs, if those were no more than 32 in each millisecond,
/// and less than [`PROGRAMS`] for some ninety years to come.
fn first_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default().saturating_mul(32).clamp(1, PROGRAMS >> 1)
}

impl Relay {
    /// Nobody is asked yet. `node`: what files say of their node, here as on this host's mount of these names.
    pub fn new(reach: Reach, names: Names, node: &str) -> Self {
        Self {
            reach: Arc::new(reach),
            names,
            sessions: Mutex::default(),
            refused: Mutex::default(),
            node: node.into(),
        }
    }

    fn session(&self, number: u64) -> Arc<Lines> {
        let reach = self.reach.clone();
        let session = Call::ProgramSession(number);
        Arc::new(Lines::that_begin(Box::new(move || reach()), session, self.names.clone(), first_number()))
    }

    /// One more connection of a user's program, in its session of that number; None: in one of its own.
    ///
    /// # Errors
    /// No node that holds the namespace answers, or none takes this host for a member.
    pub fn connect(&self, uid: u32, session: Option<u64>) -> Result<Relayed, ClientError> {
        let lines = match session {
            None => self.session(Uuid::new_v4().as_u64_pair().0),
            Some(number) => {
                let mut all = self.sessions.lock();
                all.retain(|_, lines| lines.strong_count() > 0);
                let known = all.get(&(uid, number)).and_then(Weak::upgrade);
                let lines = known.unwrap_or_else(|| self.session(session_of_program(uid, number)));
                all.insert((uid, number), Arc::downgrade(&lines));
                lines
            }
        };
        let refused = self.refused.lock().clone();
        if let Some((_, message)) = refused.filter(|(at, _)| at.elapsed() < QUIET) {
            return Err(Failure { class: ErrorClass::Denied, fs: None, message }.into());
        }
        let connected = lines.connect();
        if let Err(e) = &connected
            && e.class() == ErrorClass::Denied
        {
            *self.refused.lock() = Some((Instant::now(), e.to_string()));
        }
        Ok(Relayed { line: connected?, lines, node: self.node.clone() })
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
        let call = match passed_on(call) {
            Ok(call) => call,
            Err(e) => return Ok(Err(e)),
        };
        let (number, of_file) = (self.lines.number(), matches!(call, Call::File(_)));
        let of_node = matches!(&call, Call::File(FileCall::GetXattr { name, .. }) if name == NODE);
        match self.lines.ask_over(&mut self.line, speaks(cx), number.value, call) {
            // Another node has taken over from that one.
            Ok(Err(e)) if of_file && e.fs.is_none() && e.class == ErrorClass::Retry => Err(WireError::Closed),
            Ok(Ok(Reply::Bytes(_))) if of_node => Ok(Ok(Reply::Bytes(self.node.as_bytes().to_vec()))),
            Ok(answer) => Ok(answer.map(answered)),
            // It was not asked.
            Err(e @ (WireError::TooLarge(_) | WireError::NotYet { .. })) => {
                Ok(Err(Failure { class: ErrorClass::Invalid, fs: None, message: e.to_string() }))
            }
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever connects anew, in a session that the node has not ended, is not given answers of before.
    #[test]
    fn a_session_that_goes_on_has_other_numbers_of_calls_than_before() {
        let session = || {
            let reach = || -> Result<Vec<crate::Remote>, ClientError> { Ok(Vec::new()) };
            Relay::new(Box::new(reach), Names::First, "node").session(7)
        };
        let before = session();
        let last = (0..1000).map(|_| before.number().value).max().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let next = session().number().value;
        assert!(last < next && next < PROGRAMS, "{last} {next}");
    }

    #[test]
    fn a_programs_numbers_of_locks_are_no_numbers_of_calls() {
        let withdraw = |number| Call::File(FileCall::Withdraw(number));
        let withdrawn = |number| passed_on(withdraw(number)).map_err(|e| e.class);
        assert_eq!(withdrawn(7), Ok(withdraw(PROGRAMS | 7)));
        assert_eq!(withdrawn(PROGRAMS), Err(ErrorClass::Invalid));
        let event = |call| Reply::LockEvents(vec![LockEvent { place: 1, call, refused: None }]);
        assert_eq!(answered(event(PROGRAMS | 7)), event(7));
        let claims = FileCall::LockEvents { after: 0, claimed: true };
        assert_eq!(passed_on(Call::File(claims)).unwrap_err().fs, Some(FsError::NotSupported));
    }
}
