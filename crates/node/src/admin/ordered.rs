//! What a program writes by a handle stays in order when a connection breaks over it.
//!
//! A program makes a call again over another connection of its session when the first one has broken, under no number: the node may still be held up with the first
//! one, by a target that does not answer, or find it only later in what the network brings. It must not carry it out over what the program was told of since. Calls by
//! one handle come over one connection at a time, one after another: so a handle has one change under way, and no more of a connection that another one has followed.
//!
//! Hosts that speak for users have [numbers](wire::FileOrder): to them a call that is made again is answered, and not done.

use super::Session;
use super::session::Held;
use types::api::FsResult;
use types::{FsError, Handle};
use wire::FileCall;

/// What changes come by one handle.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The latest connection of the session, in the order in which they joined it, that one came over.
    connection: u64,
    under_way: bool,
}

/// A change that is under way, until it is dropped.
pub(super) struct Begun<'h>(&'h Held, Handle);

impl Held {
    /// Waits until no other change by the handle is under way.
    ///
    /// # Errors
    /// EBADF: it is not open (any more), or a change has come over a later connection, and nobody listens at this one.
    fn begin(&self, handle: Handle, connection: u64) -> FsResult<Begun<'_>> {
        let mut handles = self.handles.lock();
        loop {
            let changes = handles.get_mut(&handle).ok_or(FsError::BadHandle)?;
            if changes.connection > connection {
                return Err(FsError::BadHandle);
            }
            changes.connection = connection;
            if !changes.under_way {
                changes.under_way = true;
                return Ok(Begun(self, handle));
            }
            self.changed.wait(&mut handles);
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut handles = self.0.handles.lock();
        // It may have been given back.
        if let Some(changes) = handles.get_mut(&self.1) {
            changes.under_way = false;
        }
        drop(handles);
        self.0.changed.notify_all();
    }
}

/// Has a program's change by a handle wait for the one before; None: it is none, or has a number.
///
/// # Errors
/// EBADF: see [`Held::begin`].
pub(super) fn in_order<'s>(session: &'s Session, call: &FileCall) -> FsResult<Option<Begun<'s>>> {
    match call {
        FileCall::Write { handle, .. }
        | FileCall::WriteAt { handle, .. }
        | FileCall::WriteSpared { handle, .. }
        | FileCall::Fallocate { handle, .. }
        | FileCall::Release { handle, .. }
            if !session.held.has_numbers() =>
        {
            session.held.begin(*handle, session.connection).map(Some)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::LockSession;
    use crate::{Config, Node};
    use crossbeam_channel::{Receiver, bounded};
    use std::sync::Arc;
    use std::thread::{Scope, scope};
    use std::time::Duration;
    use types::api::OpenFlags;
    use types::{Cx, Ino, NodeId};
    use wire::{Answer, Call, Failure, Reply};

    /// What is answered to a call that somebody makes over this connection.
    fn asked<'s>(
        scope: &'s Scope<'s, '_>,
        node: &Arc<Node>,
        mut session: Session,
        call: FileCall,
    ) -> Receiver<Result<Answer, Failure>> {
        let (done, answers) = bounded(1);
        let node = node.clone();
        scope.spawn(move || {
            drop(done.send(node.call(&Cx::admin(crate::now()), &mut session, Call::File(call))));
        });
        answers
    }

    fn waits(answers: &Receiver<Result<Answer, Failure>>) -> bool {
        answers.recv_timeout(Duration::from_millis(100)).is_err()
    }

    fn answered(answers: &Receiver<Result<Answer, Failure>>) -> Result<Reply, Option<FsError>> {
        let answer = answers.recv_timeout(Duration::from_secs(20)).expect("an answer");
        answer.map(|answer| answer.reply).map_err(|failure| failure.fs)
    }

    fn said(answers: &Receiver<Result<Answer, Failure>>) -> Reply {
        answered(answers).expect("it is done")
    }

    /// A node, a session, and a file that is open in it, twice.
    fn with_two_handles(test: impl FnOnce(&Arc<Node>, &Arc<Held>, Handle, Handle)) {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let held = Arc::new(Held::local(LockSession::default(), None));
        let open = || {
            let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
            let call = FileCall::CreateAs { parent: Ino::ROOT, name: b"file".into(), mode: 0o644, flags };
            let said = scope(|scope| said(&asked(scope, &node, Session::of(held.clone()), call)));
            let Reply::Opened { handle, .. } = said else { panic!("{said:?}") };
            handle
        };
        test(&node, &held, open(), open());
        node.stop(true);
    }

    fn write(handle: Handle, byte: u8) -> FileCall {
        FileCall::Write { handle, offset: 0, data: vec![byte; 9] }
    }

    #[test]
    fn what_a_program_writes_once_more_comes_behind_what_it_wrote_before() {
        with_two_handles(|node, held, handle, other| {
            scope(|scope| {
                let ask = |call| asked(scope, node, Session::of(held.clone()), call);
                // A write is held up.
                let first = held.begin(handle, Session::of(held.clone()).connection).unwrap();
                let again = ask(write(handle, 1));
                assert!(waits(&again));
                assert_eq!(
                    said(&ask(FileCall::Read { handle, offset: 0, len: 9 })),
                    Reply::Bytes(Vec::new())
                );
                said(&ask(write(other, 2)));
                drop(first);
                said(&again);
                // Nor is a handle given back, for others to write by theirs, while it writes.
                let first = held.begin(handle, Session::of(held.clone()).connection).unwrap();
                let released = ask(FileCall::Release { handle, sync: false });
                assert!(waits(&released));
                drop(first);
                said(&released);
            });
        });
    }

    #[test]
    fn what_comes_over_a_connection_that_another_one_has_followed_is_not_done() {
        with_two_handles(|node, held, handle, other| {
            scope(|scope| {
                let ask = |session, call| asked(scope, node, session, call);
                let connections: [_; 5] = std::array::from_fn(|_| Session::of(held.clone()));
                let [late, first, second, third, reader] = connections;
                // Two that make it again while the first one is held up: whoever came last is listened to.
                let held_up = held.begin(handle, first.connection).unwrap();
                let unheard = ask(second, write(handle, 1));
                assert!(waits(&unheard));
                let heard = ask(third, write(handle, 1));
                assert!(waits(&heard) && waits(&unheard));
                drop(held_up);
                said(&heard);
                assert_eq!(answered(&unheard), Err(Some(FsError::BadHandle)));
                // Whatever the network brings of one before comes too late.
                let newer = ask(Session::of(held.clone()), write(handle, 2));
                said(&newer);
                assert_eq!(answered(&ask(late, write(handle, 3))), Err(Some(FsError::BadHandle)));
                let read = ask(reader, FileCall::Read { handle: other, offset: 0, len: 9 });
                assert_eq!(said(&read), Reply::Bytes(vec![2; 9]));
                // Of other handles it is not known over which connections theirs come.
                said(&ask(Session { connection: 0, ..Session::of(held.clone()) }, write(other, 4)));
            });
        });
    }

    #[test]
    fn calls_that_have_numbers_wait_for_none() {
        assert!(Held::of(5, LockSession::default(), Some((NodeId(7), false))).has_numbers());
        assert!(!Held::of_program(5, LockSession::default()).has_numbers());
    }
}
