//! Directories, symlinks, devices, pipes and sockets on tape, and what became of files after they went there: a catalogue that
//! is lost gets all of it back as it was, whatever older indexes say.

use crate::common::listing::{empty, listing};
use crate::common::{memory, record, root, segment, stamp, t};
use catalog::{Candidate, Catalog, ListedFile, New, NewSegment, RecordOutcome, check};
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::api::XattrMode;
use types::*;

fn sound(c: &Catalog) {
    let findings = check::verify(c);
    assert!(findings.is_empty(), "{findings:#?}");
}

/// What comes back of a node: number, kind, names, mode, owner, times, device, target, length and attributes. Times of
/// directories go on with their entries, and are as of the last index.
type Seen =
    (Ino, FileKind, u32, u32, u32, Option<(Time, Time)>, u32, Vec<u8>, u64, BTreeMap<Vec<u8>, Vec<u8>>);

fn tree(c: &Catalog) -> BTreeMap<Vec<u8>, Seen> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![(Ino::ROOT, Vec::new())]);
    while let Some((dir, path)) = todo.pop() {
        for entry in c.readdir(dir, 0, 1000).unwrap().found {
            let path = [&path[..], b"/", &entry.name].concat();
            let a = c.inode(entry.ino).unwrap().attr;
            let target = c.readlink(a.ino).unwrap_or_default();
            let names = c.listxattr(&root(1), a.ino).unwrap();
            let xattrs = names.into_iter().map(|n| (n.clone(), c.getxattr(&root(1), a.ino, &n).unwrap()));
            let dir = a.kind == FileKind::Directory;
            let times = (!dir).then_some((a.mtime, a.ctime));
            let (nlink, size) = if dir { (0, 0) } else { (a.nlink, a.size) };
            let seen = (a.ino, a.kind, nlink, a.mode, a.uid, times, a.rdev, target, size, xattrs.collect());
            found.insert(path.clone(), seen);
            if a.kind == FileKind::Directory {
                todo.push((a.ino, path));
            }
        }
    }
    found
}

fn waiting(c: &Catalog) -> Vec<Candidate> {
    c.candidates(t(1 << 40), None, 10_000).unwrap().found
}

/// Writes what lacks a copy to one volume of each pool.
fn write(c: &Catalog, volumes: [&str; 2], now: i64, which: impl Fn(&Candidate) -> bool) {
    for (copy, barcode) in (1u8..).zip(volumes) {
        let lacks = |w: &Candidate| which(w) && w.missing.iter().any(|(n, _)| n.0 == copy);
        let of: Vec<_> = waiting(c).into_iter().filter(lacks).collect();
        let segments = of.iter().map(|w| copy_of(w, copy)).collect::<Vec<_>>();
        let done = record(c, barcode, now, segments);
        assert!(done.iter().all(|d| *d == RecordOutcome::Counted), "{done:?}");
    }
}

fn copy_of(w: &Candidate, copy: u8) -> NewSegment {
    let made = segment(w.ino, w.version, copy, w.size, (0, w.size), 0);
    NewSegment { digest: made.digest.filter(|_| !w.dataless), ..made }
}

/// The indexes of volumes, in this order, in a new catalogue.
fn rebuild(c: &Catalog, indexes: &[(&str, i64, Vec<ListedFile>)], at_once: usize) -> Catalog {
    let new = empty();
    for (barcode, as_of, files) in indexes {
        let v = c.volume(&(*barcode).into()).unwrap().unwrap();
        new.begin_adoption(&Volume { written: 0, files: 0, next_uid: 2, ..v }).unwrap();
        for part in files.chunks(at_once) {
            new.adopt(&(*barcode).into(), t(*as_of), part).unwrap();
        }
        sound(&new);
    }
    new
}

fn world() -> Catalog {
    let c = memory().catalog;
    c.put_volume(&crate::common::volume("VB0002L9", crate::common::POOLS[1])).unwrap();
    c
}

const KINDS: [FileKind; 6] = [
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::CharDevice,
    FileKind::BlockDevice,
];

fn node(kind: FileKind, number: u8) -> New {
    let target = (kind == FileKind::Symlink).then(|| vec![b'/', number, 0xff]);
    New { target, rdev: 0x0801 + u32::from(number), ..New::node(kind, 0o640 + u32::from(number % 8)) }
}

#[derive(Clone, Debug)]
enum Act {
    Node(u8, u8, u8),
    File(u8, u8),
    /// Its content changes.
    Change(u8),
    Link(u8, u8, u8),
    Move(u8, u8, u8),
    Remove(u8),
    Mode(u8),
    Xattr(u8),
    Touch(u8),
    /// Some of what waits goes to tape.
    Write(u8),
    /// The first volumes are full: their indexes stay as they are now.
    Close,
}

fn act() -> impl Strategy<Value = Act> {
    let n = 0u8..40;
    prop_oneof![
        4 => (0u8..6, n.clone(), 0u8..8).prop_map(|(k, d, n)| Act::Node(k, d, n)),
        3 => (n.clone(), 0u8..8).prop_map(|(d, n)| Act::File(d, n)),
        1 => n.clone().prop_map(Act::Change),
        2 => (n.clone(), n.clone(), 0u8..8).prop_map(|(f, d, n)| Act::Link(f, d, n)),
        3 => (n.clone(), n.clone(), 0u8..8).prop_map(|(f, d, n)| Act::Move(f, d, n)),
        2 => n.clone().prop_map(Act::Remove),
        1 => n.clone().prop_map(Act::Mode),
        1 => n.clone().prop_map(Act::Xattr),
        1 => n.clone().prop_map(Act::Touch),
        2 => any::<u8>().prop_map(Act::Write),
        1 => Just(Act::Close),
    ]
}

/// Everything below the root, in order of path.
fn all(c: &Catalog) -> Vec<(Vec<u8>, Ino, FileKind)> {
    tree(c).into_iter().map(|(path, seen)| (path, seen.0, seen.1)).collect()
}

fn parent(c: &Catalog, path: &[u8]) -> (Ino, Vec<u8>) {
    let at = path.iter().rposition(|b| *b == b'/').unwrap();
    let dir = if at == 0 { &b"/"[..] } else { &path[..at] };
    (c.resolve(&root(1), dir, false).unwrap().attr.ino, path[at + 1..].to_vec())
}

fn perform(c: &Catalog, act: &Act, now: i64) {
    let nodes = all(c);
    let pick = |n: u8| (!nodes.is_empty()).then(|| nodes[usize::from(n) % nodes.len()].clone());
    let dirs: Vec<Ino> = nodes.iter().filter(|n| n.2 == FileKind::Directory).map(|n| n.1).collect();
    let dir = |n: u8| *dirs.get(usize::from(n) % (dirs.len() + 1)).unwrap_or(&Ino::ROOT);
    let (cx, open) = (root(now), |_: Ino| false);
    // What is not possible (a name that is taken, a directory that is not empty) is not done.
    match *act {
        Act::Node(kind, d, n) => {
            let _ = c.create(&cx, dir(d), &[b'n', b'a' + n], &node(KINDS[usize::from(kind)], n));
        }
        Act::File(d, n) => {
            let object = ObjectId(c.alloc_objects(1).unwrap().start);
            if let Ok(made) = c.create(&cx, dir(d), &[b'f', b'a' + n], &New::file(0o644, object)) {
                let at = stamp(10, now);
                c.observe(&cx, made.attr.ino, object, &at, true, kv::Durability::Relaxed).unwrap();
            }
        }
        Act::Change(f) => {
            if let Some(file) = pick(f).and_then(|(_, ino, _)| c.inode(ino).unwrap().file) {
                let (ino, object) = (pick(f).unwrap().1, file.object.unwrap());
                let at = stamp(10 + now as u64, now);
                c.observe(&cx, ino, object, &at, true, kv::Durability::Relaxed).unwrap();
            }
        }
        Act::Link(f, d, n) => {
            if let Some((_, ino, _)) = pick(f) {
                let _ = c.link(&cx, ino, dir(d), &[b'l', b'a' + n]);
            }
        }
        Act::Move(f, d, n) => {
            if let Some((path, _, kind)) = pick(f) {
                let (from, name) = parent(c, &path);
                let to = if kind == FileKind::Directory { b'd' } else { b'm' };
                let mode = if n % 2 == 0 { RenameMode::NoReplace } else { RenameMode::Replace };
                let _ = c.rename(&cx, (from, &name), (dir(d), &[to, b'a' + n]), mode, &open);
            }
        }
        Act::Remove(f) => {
            if let Some((path, _, kind)) = pick(f) {
                let (from, name) = parent(c, &path);
                match kind {
                    FileKind::Directory => drop(c.rmdir(&cx, from, &name)),
                    _ => drop(c.unlink(&cx, from, &name, &open).unwrap()),
                }
            }
        }
        Act::Mode(f) => {
            if let Some((_, ino, _)) = pick(f) {
                let set = SetAttr { mode: Some(u32::from(f) * 7), uid: Some(f.into()), ..SetAttr::default() };
                c.setattr(&cx, ino, &set).unwrap();
            }
        }
        Act::Xattr(f) => {
            if let Some((_, ino, _)) = pick(f) {
                c.setxattr(&cx, ino, b"trusted.k", &[f, 0, 255], XattrMode::Any).unwrap();
            }
        }
        Act::Touch(f) => {
            if let Some((_, ino, _)) = pick(f) {
                c.setattr(&cx, ino, &SetAttr { mtime: Some(t(7)), ..SetAttr::default() }).unwrap();
            }
        }
        Act::Write(_) | Act::Close => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Nodes of all kinds are made, moved, linked, changed and removed while some go to tape; the first volumes become full at some
    /// time, and what their indexes say grows old. In whatever order they are read, everything is there as it was, and
    /// nothing that was removed is back.
    #[test]
    fn whatever_happened_the_tree_comes_back(
        acts in prop::collection::vec(act(), 1..70),
        order in Just(vec![0usize, 1, 2, 3]).prop_shuffle(),
        at_once in 1usize..12,
    ) {
        let c = world();
        let (mut volumes, mut closed) = (["VA0001L9", "VB0001L9"], Vec::new());
        for (now, act) in (100i64..).step_by(10).zip(&acts) {
            perform(&c, act, now);
            if let Act::Write(mask) = act {
                write(&c, volumes, now, |w| (w.ino.0 as u8) & 3 != mask & 3);
            }
            if matches!(act, Act::Close) && closed.is_empty() {
                closed = volumes.iter().map(|v| (*v, now, listing(&c, v))).collect();
                volumes = ["VA0002L9", "VB0002L9"];
            }
        }
        write(&c, volumes, 9_000, |_| true);
        prop_assert!(waiting(&c).is_empty());
        sound(&c);
        let open = ["VA0001L9", "VB0001L9", "VA0002L9", "VB0002L9"].into_iter();
        let open = open.filter(|v| closed.iter().all(|(barcode, ..)| barcode != v));
        let open: Vec<_> = open.map(|v| (v, 9_500, listing(&c, v))).collect();
        let indexes: Vec<_> = closed.into_iter().chain(open).collect();
        let indexes: Vec<_> = order.iter().map(|n| indexes[*n].clone()).collect();
        let new = rebuild(&c, &indexes, at_once);
        let mut back = tree(&new);
        // What was removed may have been there until the word on that was read.
        back.remove(&b"/lost+found"[..]);
        prop_assert_eq!(back, tree(&c));
        prop_assert!(waiting(&new).is_empty(), "{:?}", waiting(&new));
    }
}

#[test]
fn a_directory_comes_back_with_the_class_that_it_was_given_last() {
    let c = world();
    let dir = c.create(&root(10), Ino::ROOT, b"d", &New::node(FileKind::Directory, 0o755)).unwrap().attr.ino;
    write(&c, ["VA0001L9", "VB0001L9"], 20, |_| true);
    c.set_class(dir, &"single".into(), t(30)).unwrap();
    let lacks: Vec<_> = waiting(&c).into_iter().filter(|w| w.ino == dir).collect();
    let done = record(&c, "VB0002L9", 40, lacks.iter().map(|w| copy_of(w, 1)).collect());
    assert_eq!(done, [RecordOutcome::Counted], "its copies tell of another class");
    sound(&c);
    let indexes = ["VA0001L9", "VB0001L9", "VB0002L9"].map(|v| (v, 50, listing(&c, v)));
    assert_eq!(rebuild(&c, &indexes, 10).class_of(dir).unwrap(), "single".into());
}

/// Only what lay in it told of it: it has no entry of its own that could say that it is gone.
#[test]
fn a_directory_that_was_removed_before_it_went_to_tape_itself_goes_with_what_told_of_it() {
    let c = world();
    let dir = |above: Ino, name: &[u8], now| {
        c.create(&root(now), above, name, &New::node(FileKind::Directory, 0o755)).unwrap().attr.ino
    };
    let (a, kept) = (dir(Ino::ROOT, b"a", 10), dir(Ino::ROOT, b"kept", 11));
    let b = dir(a, b"b", 12);
    let below = dir(b, b"c", 13);
    let in_kept = dir(kept, b"d", 14);
    write(&c, ["VA0001L9", "VB0001L9"], 20, |w| [b, below, in_kept].contains(&w.ino));
    let closed = ["VA0001L9", "VB0001L9"].map(|v| (v, 30, listing(&c, v)));
    for (above, name) in [(b, &b"c"[..]), (a, b"b"), (Ino::ROOT, b"a"), (kept, b"d")] {
        c.rmdir(&root(40), above, name).unwrap();
    }
    write(&c, ["VA0002L9", "VB0002L9"], 50, |_| true);
    let later = ["VA0002L9", "VB0002L9"].map(|v| (v, 60, listing(&c, v)));
    let new = rebuild(&c, &[closed.clone(), later.clone()].concat(), 1);
    assert_eq!(tree(&new), tree(&c), "read in the order of their age");
    let new = rebuild(&c, &[later, closed].concat(), 1);
    assert_eq!(tree(&new), tree(&c), "read in the other order");
}
