//! Copies into a miniature node and out of it again.

mod common;

use client::copy::{Event, Options, get, put};
use client::{ClientError, Connection};
use common::{FakeNode, awkward_tree, picture};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::{ErrorClass, FileKind};
use wire::FileCall;

fn quick() -> Options {
    Options { workers: 3, patience: Duration::from_secs(5), ..Options::default() }
}

fn there_and_back(direct: bool) {
    let dir = tempfile::tempdir().unwrap();
    let node = FakeNode::start(dir.path(), direct);
    let source = dir.path().join("source");
    awkward_tree(&source);
    let (moved, found) = (AtomicU64::new(0), AtomicU64::new(0));
    let watch = |event: Event<'_>| match event {
        Event::Bytes(n) => drop(moved.fetch_add(n, Ordering::Relaxed)),
        Event::Found { bytes } => drop(found.fetch_add(bytes, Ordering::Relaxed)),
        Event::Failed { path, error } => panic!("{}: {error}", path.escape_ascii()),
        _ => {}
    };
    let summary = put(&node.socket, std::slice::from_ref(&source), b"/in", &quick(), &watch).unwrap();
    assert!(summary.fatal.is_none(), "{summary:?}");
    assert_eq!((summary.files, summary.failed, summary.skipped), (47, 0, 0), "{summary:?}");
    assert_eq!(moved.load(Ordering::Relaxed), summary.bytes);
    assert_eq!(found.load(Ordering::Relaxed), summary.bytes);
    assert_eq!(picture(&node.root.join("in")), picture(&source));
    assert!(node.syncs.load(Ordering::Relaxed) >= 2);

    let dest = dir.path().join("back");
    fs::create_dir(&dest).unwrap();
    let summary = get(&node.socket, &[b"/in".to_vec()], &dest, &quick(), &watch).unwrap();
    assert!(summary.fatal.is_none(), "{summary:?}");
    assert_eq!(picture(&dest.join("in")), picture(&source));
    let sparse = dest.join("in/sparse").metadata().unwrap();
    assert!(sparse.blocks() * 512 < 3 << 20, "a hole became {} bytes", sparse.blocks() * 512);
}

#[test]
fn an_awkward_tree_goes_in_and_comes_back_through_descriptors() {
    there_and_back(true);
}

#[test]
fn an_awkward_tree_goes_in_and_comes_back_through_frames() {
    there_and_back(false);
}

#[test]
fn a_second_run_copies_only_what_is_not_complete() {
    let dir = tempfile::tempdir().unwrap();
    let node = FakeNode::start(dir.path(), true);
    let source = dir.path().join("source");
    awkward_tree(&source);
    let run = |options: &Options| {
        let options = &Options { exact: true, ..options.clone() };
        put(&node.socket, std::slice::from_ref(&source), b"/in", options, &|_| {}).unwrap()
    };
    run(&quick());
    // cut short with a later time, same length with another time, another kind, a new file, a link that is none
    fs::write(node.root.join("in/big"), b"half").unwrap();
    fs::write(node.root.join("in/many/7"), fs::read(source.join("many/7")).unwrap()).unwrap();
    fs::remove_file(node.root.join("in/dangling")).unwrap();
    fs::write(node.root.join("in/dangling"), b"").unwrap();
    fs::write(source.join("new"), b"new").unwrap();
    fs::remove_file(node.root.join("in/linked/two")).unwrap();
    fs::write(node.root.join("in/linked/two"), b"impostor!").unwrap();
    let again = run(&quick());
    assert_eq!((again.files, again.failed), (3, 0), "{again:?}");
    assert_eq!(picture(&node.root.join("in")), picture(&source));
    let all = run(&Options { overwrite: true, ..quick() });
    assert_eq!((all.files, all.skipped), (48, 0), "{all:?}");
    assert_eq!(picture(&node.root.join("in")), picture(&source));
}

#[test]
fn names_that_were_one_file_before_do_not_overwrite_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let node = FakeNode::start(dir.path(), true);
    let source = dir.path().join("s");
    fs::create_dir(&source).unwrap();
    fs::create_dir(node.root.join("s")).unwrap();
    fs::write(node.root.join("s/a"), b"old").unwrap();
    fs::hard_link(node.root.join("s/a"), node.root.join("s/b")).unwrap();
    fs::write(source.join("a"), b"content of a").unwrap();
    fs::write(source.join("b"), b"content of b").unwrap();
    let one = Options { workers: 1, ..quick() };
    put(&node.socket, std::slice::from_ref(&source), b"/", &one, &|_| {}).unwrap();
    assert_eq!(picture(&node.root.join("s")), picture(&source));
}

#[test]
fn a_copy_survives_connections_that_break() {
    let dir = tempfile::tempdir().unwrap();
    let node = FakeNode::start(dir.path(), true);
    let source = dir.path().join("source");
    awkward_tree(&source);
    let waits = AtomicU64::new(0);
    let watch = |event: Event<'_>| match event {
        Event::Waiting { .. } => drop(waits.fetch_add(1, Ordering::Relaxed)),
        Event::Failed { path, error } => panic!("{}: {error}", path.escape_ascii()),
        _ => {}
    };
    node.break_after.store(120, Ordering::SeqCst);
    let summary = put(&node.socket, std::slice::from_ref(&source), b"/in", &quick(), &watch).unwrap();
    assert!(summary.fatal.is_none() && summary.failed == 0, "{summary:?}");
    assert_eq!(waits.load(Ordering::Relaxed), 1);
    assert_eq!(picture(&node.root.join("in")), picture(&source));
}

#[test]
fn what_cannot_be_copied_is_named_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = FakeNode::start(dir.path(), true);
    let source = dir.path().join("s");
    fs::create_dir(&source).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(source.join(name), name).unwrap();
    }
    fs::create_dir_all(node.root.join("s/b")).unwrap();
    let failures = std::sync::Mutex::new(Vec::new());
    let watch = |event: Event<'_>| {
        if let Event::Failed { error, .. } = event {
            failures.lock().unwrap().push((error.class(), error.to_string()));
        }
    };
    let summary = put(&node.socket, std::slice::from_ref(&source), b"/", &quick(), &watch).unwrap();
    assert_eq!((summary.files, summary.failed), (2, 1), "{summary:?}");
    let failures = failures.into_inner().unwrap();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].0 == ErrorClass::Namespace && failures[0].1.contains("s/b"), "{failures:?}");
}

#[test]
fn destinations_are_understood_as_cp_does() {
    let dir = tempfile::tempdir().unwrap();
    let node = FakeNode::start(dir.path(), true);
    let file = dir.path().join("f");
    fs::write(&file, b"1").unwrap();
    let put_to = |sources: &[&Path], dest: &[u8]| {
        let sources: Vec<_> = sources.iter().map(|p| p.to_path_buf()).collect();
        put(&node.socket, &sources, dest, &quick(), &|_| {})
    };
    put_to(&[&file], b"/").unwrap();
    put_to(&[&file], b"/g").unwrap();
    put_to(&[&file], b"/g").unwrap();
    assert!(node.root.join("f").exists() && node.root.join("g").exists());
    let missing = put_to(&[&file], b"/no/h").unwrap_err();
    assert_eq!(missing.class(), ErrorClass::NotFound, "{missing}");
    let two = put_to(&[&file, dir.path()], b"/g").unwrap_err();
    assert_eq!(two.class(), ErrorClass::Namespace, "{two}");
    symlink("f", dir.path().join("l")).unwrap();
    put_to(&[&dir.path().join("l")], b"/").unwrap();
    assert!(node.root.join("l").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn a_connection_says_that_nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let error = Connection::open(&dir.path().join("none.sock")).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }));
    assert!(error.to_string().contains("thermo up"), "{error}");
}

#[test]
fn a_patient_connection_asks_again_and_an_impatient_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let node = FakeNode::start(dir.path(), true);
    let root = || FileCall::Resolve { path: b"/".to_vec() };
    let mut patient = Connection::open_patient(&node.socket, Duration::from_secs(5)).unwrap();
    node.break_after.store(1, Ordering::SeqCst);
    let attr: types::Attr = patient.file(root()).unwrap();
    assert_eq!(attr.kind, FileKind::Directory);
    let mut impatient = Connection::open(&node.socket).unwrap();
    node.break_after.store(1, Ordering::SeqCst);
    let error = impatient.file::<types::Attr>(root()).unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
}
