//! What programs change in files stays in order when a connection breaks over it.
//!
//! A program makes a call again over another connection of its session when the first one has broken, under no number: the node may still be held up with the first
//! one, by a target that does not answer, and must not carry it out over what the program was told of since. Calls by one handle come over one connection, one after
//! another, so whoever makes a second one waits for no answer to the first.
//!
//! Hosts that speak for users have [numbers](wire::FileOrder): to them a call that is made again is answered, and not done.

use super::session::Held;
use crate::Node;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use types::{Handle, Ino};
use wire::FileCall;

/// What is being changed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Bytes, by this handle of this file; or the handle is being given back.
    Bytes(Handle, Ino),
    /// The length of a file.
    Length(Ino),
}

/// Changes of one session that are under way.
#[derive(Default)]
pub(super) struct Changing {
    under_way: Mutex<UnderWay>,
    over: Condvar,
}

#[derive(Default)]
struct UnderWay {
    handles: HashSet<Handle>,
    lengths: HashSet<Ino>,
}

impl UnderWay {
    /// Whether it comes behind nothing that is under way. Who sets a length does not wait for writes: what is cut off may wait for tape.
    fn enter(&mut self, change: Change) -> bool {
        match change {
            Change::Bytes(handle, ino) => !self.lengths.contains(&ino) && self.handles.insert(handle),
            Change::Length(ino) => self.lengths.insert(ino),
        }
    }

    fn leave(&mut self, change: Change) {
        match change {
            Change::Bytes(handle, _) => self.handles.remove(&handle),
            Change::Length(ino) => self.lengths.remove(&ino),
        };
    }
}

/// A change that is under way, until it is dropped.
pub(super) struct Begun<'c>(&'c Changing, Change);

impl Changing {
    /// Waits for what was begun before, and is under way.
    pub(super) fn begin(&self, change: Change) -> Begun<'_> {
        let mut under_way = self.under_way.lock();
        while !under_way.enter(change) {
            self.over.wait(&mut under_way);
        }
        Begun(self, change)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.under_way.lock().leave(self.1);
        self.0.over.notify_all();
    }
}

impl Node {
    /// Has a program's change wait for those of its session that it must not overtake.
    pub(super) fn in_order<'s>(&self, session: &'s Held, call: &FileCall) -> Option<Begun<'s>> {
        let changing = session.unnumbered()?;
        let change = match call {
            FileCall::Write { handle, .. }
            | FileCall::WriteAt { handle, .. }
            | FileCall::WriteSpared { handle, .. }
            | FileCall::Fallocate { handle, .. }
            | FileCall::Release { handle, .. } => {
                Change::Bytes(*handle, self.open.handle(*handle).filter(|_| session.has(*handle))?.inode.ino)
            }
            FileCall::SetAttr { ino, set } if set.size.is_some() => Change::Length(*ino),
            FileCall::Open { ino, truncate: true, .. } => Change::Length(*ino),
            FileCall::OpenAs { ino, flags } if flags.truncate => Change::Length(*ino),
            _ => return None,
        };
        Some(changing.begin(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::Session;
    use crate::locks::LockSession;
    use crate::{Config, Node};
    use crossbeam_channel::{Receiver, bounded};
    use std::sync::Arc;
    use std::thread::{Scope, scope};
    use std::time::Duration;
    use types::api::OpenFlags;
    use types::{Cx, NodeId, SetAttr};
    use wire::{Answer, Call, Failure, Reply};

    /// What is answered to a call that somebody makes over a connection of his own.
    fn asked<'s>(
        scope: &'s Scope<'s, '_>,
        node: &Arc<Node>,
        held: &Arc<Held>,
        call: FileCall,
    ) -> Receiver<Result<Answer, Failure>> {
        let (done, answers) = bounded(1);
        let (node, mut session) = (node.clone(), Session::of(held.clone()));
        scope.spawn(move || {
            drop(done.send(node.call(&Cx::admin(crate::now()), &mut session, Call::File(call))));
        });
        answers
    }

    fn waits(answers: &Receiver<Result<Answer, Failure>>) -> bool {
        answers.recv_timeout(Duration::from_millis(100)).is_err()
    }

    fn said(answers: &Receiver<Result<Answer, Failure>>) -> Reply {
        answers.recv_timeout(Duration::from_secs(20)).expect("an answer").expect("it is done").reply
    }

    #[test]
    fn what_a_program_asks_for_once_more_comes_behind_what_it_asked_for_before() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let held = Arc::new(Held::local(LockSession::default(), None));
        let open = |name: &str| {
            let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
            let (parent, name) = (Ino::ROOT, name.as_bytes().to_vec());
            let call = FileCall::CreateAs { parent, name, mode: 0o644, flags };
            let said = scope(|scope| said(&asked(scope, &node, &held, call)));
            let Reply::Opened { handle, attr, .. } = said else { panic!("{said:?}") };
            (handle, attr.ino)
        };
        let ((handle, ino), (other, _)) = (open("file"), open("other"));
        let write = |handle| FileCall::Write { handle, offset: 0, data: vec![7; 1000] };
        let cut = |size| FileCall::SetAttr { ino, set: SetAttr { size: Some(size), ..SetAttr::default() } };
        scope(|scope| {
            let ask = |call| asked(scope, &node, &held, call);
            // A write is held up.
            let first = held.unnumbered().unwrap().begin(Change::Bytes(handle, ino));
            let again = ask(write(handle));
            assert!(waits(&again));
            assert_eq!(said(&ask(FileCall::Read { handle, offset: 0, len: 9 })), Reply::Bytes(Vec::new()));
            said(&ask(write(other)));
            said(&ask(cut(2000)));
            drop(first);
            said(&again);
            // So is what sets the length: nothing is to be cut off behind it.
            let first = held.unnumbered().unwrap().begin(Change::Length(ino));
            let (cut_again, written) = (ask(cut(500)), ask(write(handle)));
            let truncate = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
            let opened = ask(FileCall::OpenAs { ino, flags: truncate });
            assert!(waits(&cut_again) && waits(&written) && waits(&opened));
            drop(first);
            [cut_again, written, opened].iter().for_each(|answers| drop(said(answers)));
            // Nor is a handle given back, for others to write by theirs, while it writes.
            let first = held.unnumbered().unwrap().begin(Change::Bytes(handle, ino));
            let released = ask(FileCall::Release { handle, sync: false });
            assert!(waits(&released));
            drop(first);
            said(&released);
        });
        node.stop(true);
    }

    #[test]
    fn calls_that_have_numbers_wait_for_none() {
        let host = Held::of(5, LockSession::default(), Some((NodeId(7), false)));
        assert!(host.unnumbered().is_none());
        assert!(Held::of_program(5, LockSession::default()).unnumbered().is_some());
    }
}
