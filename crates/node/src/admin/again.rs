//! Calls of other hosts that are made again: what was done is not done twice, also over a restart of the node.

use super::Session;
use super::session::Held;
use crate::locks::LockSession;
use crate::{Config, Node};
use std::path::Path;
use std::sync::Arc;
use types::api::{FileApi, OpenFlags, XattrMode};
use types::*;
use wire::{Failure, FileCall, FileOrder, Reply, Speaks};

const HOST: NodeId = NodeId(7);
const SESSION: u64 = 5;

fn start(state: &Path) -> Arc<Node> {
    Node::start(Config { state_dir: state.to_owned(), ..Config::default() }).unwrap()
}

fn stop(node: Arc<Node>) {
    node.catalog.sync().unwrap();
    node.stop(true);
}

/// The session of the host, as its next connection has it.
fn session(node: &Node) -> Session {
    let resumed = node.catalog.has_done_calls(HOST, SESSION).unwrap();
    Session::of(Arc::new(Held::of(SESSION, LockSession::default(), Some((HOST, resumed)))))
}

fn order(number: u64, answered: u64, call: &FileCall) -> FileOrder {
    let who = Speaks { uid: 0, gid: 0, groups: Vec::new(), checked: true };
    FileOrder { who, number, answered, open: Vec::new(), call: call.clone() }
}

fn names() -> Vec<FileCall> {
    let root = Ino::ROOT;
    let name = |text: &str| text.as_bytes().to_vec();
    let write = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
    let mode = RenameMode::NoReplace;
    vec![
        FileCall::Mkdir { parent: root, name: name("dir"), mode: 0o755 },
        FileCall::CreateAs { parent: root, name: name("file"), mode: 0o644, flags: write },
        FileCall::Symlink { parent: root, name: name("symlink"), target: name("file") },
        FileCall::Mknod { parent: root, name: name("pipe"), kind: FileKind::Fifo, mode: 0o600, rdev: 0 },
        FileCall::SetXattrAs { ino: root, name: name("user.a"), value: name("1"), mode: XattrMode::Create },
        FileCall::Rename { from: (root, name("symlink")), to: (root, name("renamed")), mode },
        FileCall::RemoveXattr { ino: root, name: name("user.a") },
        FileCall::Unlink { parent: root, name: name("pipe") },
        FileCall::Rmdir { parent: root, name: name("dir") },
    ]
}

/// What names a node has been given stays; a handle is another one each time.
fn said(answer: Result<Reply, Failure>) -> Reply {
    match answer.expect("it was done once") {
        Reply::OpenedAt { attr, resident, layout, .. } => {
            Reply::OpenedAt { handle: Handle(0), attr, resident, layout, parent: None }
        }
        other => other,
    }
}

#[test]
fn what_was_done_before_a_restart_is_not_done_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = start(dir.path());
    for (number, call) in (1..).zip(&names()) {
        assert!(call.is_recorded() && call.is_once());
        let first = said(node.file_for(&session(&node), order(number, number, call)));
        stop(node);
        node = start(dir.path());
        let again = said(node.file_for(&session(&node), order(number, number, call)));
        assert_eq!(again, first, "{call:?}");
        // Under another number it is another call, which comes too late.
        let other = node.file_for(&session(&node), order(number + 100, number, call));
        assert!(other.is_err_and(|e| e.fs.is_some()), "{call:?}");
    }
    // A link shows how many links there are.
    let cx = Cx::admin(crate::now());
    let file = node.lookup(&cx, Ino::ROOT, b"file").unwrap().ino;
    let link = FileCall::Link { ino: file, parent: Ino::ROOT, name: b"link".to_vec() };
    for _ in 0..2 {
        let Reply::Attr(attr) = said(node.file_for(&session(&node), order(50, 50, &link))) else { panic!() };
        assert_eq!(attr.nlink, 2);
        stop(node);
        node = start(dir.path());
    }
    stop(node);
}

#[test]
fn one_call_that_is_waited_for_keeps_no_answers_of_those_that_were_answered_since() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = start(dir.path());
    let of_host = session(&node);
    let make = |number: u64| FileCall::Mkdir {
        parent: Ino::ROOT,
        name: number.to_string().into_bytes(),
        mode: 0o755,
    };
    let first = said(node.file_for(&of_host, order(1, 1, &make(1))));
    // Its answer is not heard, and neither is another one's later.
    let tell = |number: u64, open: Vec<u64>| FileOrder { open, ..order(number, 1, &make(number)) };
    for number in 2..3000 {
        let open = match number {
            0..300 => vec![],
            300..=700 => vec![1],
            _ => vec![1, 700],
        };
        said(node.file_for(&of_host, tell(number, open)));
    }
    // Nothing is done twice: who makes a directory again is told that it is there.
    assert_eq!(said(node.file_for(&of_host, order(1, 1, &make(1)))), first);
    said(node.file_for(&of_host, order(700, 1, &make(700))));
    said(node.file_for(&of_host, order(2999, 1, &make(2999))));
    // Those on record go with later calls, some at a time, also at a node that has to look them up.
    let on_record = |node: &Node| {
        let name = |number| CallId { node: HOST, session: SESSION, number, answered: 0 };
        (1..4000)
            .filter(|number| node.catalog.done_call(&name(*number)).unwrap().is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(on_record(&node), (1..3000).collect::<Vec<_>>());
    stop(node);
    node = start(dir.path());
    for number in 3000..3004 {
        said(node.file_for(&session(&node), order(number, number, &make(number))));
        let next = number.min(1 + (number - 2999) * 1000);
        assert_eq!(on_record(&node), (next..=number).collect::<Vec<_>>());
    }
    stop(node);
}

#[test]
fn what_was_refused_is_tried_again_and_what_was_answered_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let make = |name: &str| FileCall::Mkdir { parent: Ino::ROOT, name: name.into(), mode: 0o755 };
    let below = |node: &Node, number: u64| {
        let name = CallId { node: HOST, session: SESSION, number, answered: 0 };
        node.catalog.done_call(&name).unwrap().is_some()
    };
    node.file_for(&session(&node), order(1, 1, &make("a"))).unwrap();
    assert!(node.file_for(&session(&node), order(2, 1, &make("a"))).is_err());
    assert!(below(&node, 1) && !below(&node, 2));
    let remove = FileCall::Rmdir { parent: Ino::ROOT, name: b"a".to_vec() };
    node.file_for(&session(&node), order(3, 2, &remove)).unwrap();
    assert!(!below(&node, 1) && below(&node, 3), "its answer had come");
    node.file_for(&session(&node), order(2, 2, &make("a"))).unwrap();
    node.catalog.forget_done_before(Time::new(crate::now().secs - 100, 0)).unwrap();
    assert!(below(&node, 2) && below(&node, 3));
    node.catalog.forget_done_before(Time::new(crate::now().secs + 1, 0)).unwrap();
    assert!(!below(&node, 2) && !below(&node, 3));
    stop(node);
}
