//! Random operations on the catalogue and on a plain model of it, on every engine; afterwards both must show the same, and
//! the catalogue's self-check must find nothing.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../kv/tests/postgres/server.rs"]
mod server;
mod world;

use catalog::{Catalog, CatalogError, New, RecordOutcome, check};
use common::*;
use kv::Durability;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::{BTreeMap, BTreeSet};
use types::api::XattrMode;
use types::*;
use world::{Content, Node, World};

const NAMES: [&str; 3] = ["a", "b", "c"];
const USERS: [u32; 2] = [0, 7];

#[derive(Clone, Debug)]
enum Op {
    Make { kind: u8, dir: u8, name: u8, user: u8, mode: u8 },
    Link { ino: u8, dir: u8, name: u8, user: u8 },
    Unlink { dir: u8, name: u8, user: u8, open: bool },
    Rmdir { dir: u8, name: u8, user: u8 },
    Rename { from: (u8, u8), to: (u8, u8), mode: u8, user: u8, open: bool },
    Chmod { ino: u8, mode: u8, user: u8 },
    Utimes { ino: u8, back: u8 },
    Xattr { ino: u8, name: u8, remove: bool },
    Write { ino: u8, size: u16, close: bool },
    Look { ino: u8 },
    Truncate { ino: u8 },
    Copy { ino: u8, copy: bool, part: bool, old: u8 },
    Release { ino: u8 },
    Recall { ino: u8 },
    Pin { ino: u8, pin: bool },
    Reap { ino: u8 },
    Lead { ino: u8, to: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let b = any::<u8>;
    prop_oneof![
        6 => (b(), b(), b(), b(), b()).prop_map(|(kind, dir, name, user, mode)| Op::Make { kind, dir, name, user, mode }),
        2 => (b(), b(), b(), b()).prop_map(|(ino, dir, name, user)| Op::Link { ino, dir, name, user }),
        2 => (b(), b(), b(), any::<bool>()).prop_map(|(dir, name, user, open)| Op::Unlink { dir, name, user, open }),
        1 => (b(), b(), b()).prop_map(|(dir, name, user)| Op::Rmdir { dir, name, user }),
        4 => ((b(), b()), (b(), b()), b(), b(), any::<bool>())
            .prop_map(|(from, to, mode, user, open)| Op::Rename { from, to, mode, user, open }),
        1 => (b(), b(), b()).prop_map(|(ino, mode, user)| Op::Chmod { ino, mode, user }),
        1 => (b(), b()).prop_map(|(ino, back)| Op::Utimes { ino, back }),
        1 => (b(), b(), any::<bool>()).prop_map(|(ino, name, remove)| Op::Xattr { ino, name, remove }),
        4 => (b(), 0u16..9000, any::<bool>()).prop_map(|(ino, size, close)| Op::Write { ino, size, close }),
        1 => b().prop_map(|ino| Op::Look { ino }),
        1 => b().prop_map(|ino| Op::Truncate { ino }),
        8 => (b(), any::<bool>(), any::<bool>(), b()).prop_map(|(ino, copy, part, old)| Op::Copy { ino, copy, part: part && old % 4 == 0, old }),
        4 => b().prop_map(|ino| Op::Release { ino }),
        3 => b().prop_map(|ino| Op::Recall { ino }),
        1 => (b(), any::<bool>()).prop_map(|(ino, pin)| Op::Pin { ino, pin }),
        1 => b().prop_map(|ino| Op::Reap { ino }),
        2 => (b(), any::<bool>()).prop_map(|(ino, to)| Op::Lead { ino, to }),
    ]
}

struct Run {
    fixture: Fixture,
    world: World,
    now: i64,
    next_object: u64,
    stamps: BTreeMap<u64, ObjectStamp>,
}

fn outcome<T>(r: Result<T, CatalogError>) -> Result<(), FsError> {
    match r {
        Ok(_) => Ok(()),
        Err(e) if e.is_answer() => Err(e.fs()),
        Err(other) => panic!("{other}"),
    }
}

impl Run {
    fn new(fixture: Fixture) -> Self {
        Self { fixture, world: World::new(1), now: 10, next_object: 1, stamps: BTreeMap::new() }
    }

    fn c(&self) -> &Catalog {
        &self.fixture.catalog
    }

    /// Any inode that is, or was a moment ago.
    fn any(&self, pick: u8) -> u64 {
        let all: Vec<_> = self.world.nodes.keys().copied().collect();
        all[pick as usize % all.len()]
    }

    /// A directory mostly; sometimes anything.
    fn dir(&self, pick: u8) -> u64 {
        let dirs: Vec<_> =
            self.world.nodes.iter().filter(|(_, n)| n.kind == FileKind::Directory).map(|(i, _)| *i).collect();
        if pick > 245 { self.any(pick) } else { dirs[pick as usize % dirs.len().min(4)] }
    }

    fn file(&self, pick: u8) -> Option<u64> {
        let files: Vec<_> =
            self.world.nodes.iter().filter(|(_, n)| n.content.is_some()).map(|(i, _)| *i).collect();
        (!files.is_empty()).then(|| files[pick as usize % files.len()])
    }

    fn content(&mut self, ino: u64) -> &mut Content {
        self.world.nodes.get_mut(&ino).and_then(|n| n.content.as_mut()).expect("a file")
    }

    fn cx(&self, user: u8) -> Cx {
        let uid = USERS[user as usize % 2];
        if uid == 0 { root(self.now) } else { user_cx(uid, self.now) }
    }

    fn step(&mut self, op: &Op) {
        self.now += 3;
        match op.clone() {
            Op::Make { kind, dir, name, user, mode } => self.make(kind, dir, name, user, mode),
            Op::Link { .. } | Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } => self.names(op),
            Op::Chmod { .. } | Op::Utimes { .. } | Op::Xattr { .. } => self.attributes(op),
            Op::Copy { ino, copy, part, old } => self.copy(ino, copy, part, old),
            Op::Lead { ino, to } => self.lead(self.any(ino), to),
            Op::Reap { ino } => {
                let ino = self.any(ino);
                self.c().reap(Ino(ino)).expect("reap");
                self.world.reap(ino);
            }
            _ => self.data(op),
        }
    }

    fn make(&mut self, kind: u8, dir: u8, name: u8, user: u8, mode: u8) {
        let kind =
            [FileKind::File, FileKind::File, FileKind::Directory, FileKind::Symlink][kind as usize % 4];
        let (dir, name, cx) = (self.dir(dir), NAMES[name as usize % 3], self.cx(user));
        let mode = [0o755, 0o644, 0o1777, 0o777][mode as usize % 4];
        let object = (kind == FileKind::File).then_some(self.next_object);
        let target = (kind == FileKind::Symlink).then(|| b"to".to_vec());
        let new = New { target, object: object.map(ObjectId), ..New::node(kind, mode) };
        let made = self.c().create(&cx, Ino(dir), name.as_bytes(), &new);
        let expected = self.world.can_make(cx.uid, dir, name);
        assert_eq!(made.as_ref().map(|_| ()).map_err(CatalogError::fs), expected);
        let Ok(inode) = made else { return };
        let mut node =
            Node::new(kind, if kind == FileKind::Symlink { 0o777 } else { mode }, cx.uid, self.now);
        node.size = if kind == FileKind::Symlink { 2 } else { 0 };
        node.content = object.map(|o| Content {
            version: 1,
            object: Some(o),
            sealed: false,
            pinned: false,
            copies: BTreeSet::new(),
            part: false,
            known: false,
        });
        self.next_object += 1;
        self.world.make(dir, name, inode.attr.ino.0, node, self.now);
    }

    fn lead(&mut self, ino: u64, to: bool) {
        // What is open only has no path.
        let Ok(path) = self.c().path_of(Ino(ino)) else { return };
        let cx = root(self.now);
        let leads = Junction { subsystem: ino.to_string(), addresses: vec!["a:1".into()], made: cx.now };
        let done = match to {
            true => self.c().make_junction(&cx, &path, &leads).map(drop),
            false => self.c().remove_junction(&cx, &path).map(drop),
        };
        assert_eq!(done.map_err(|e| e.fs()), self.world.lead(ino, to, self.now), "{ino} {to}");
    }

    fn names(&mut self, op: &Op) {
        let now = self.now;
        let name = |n: u8| NAMES[n as usize % 3];
        let (got, want) = match *op {
            Op::Link { ino, dir, name: n, user } => {
                let (ino, dir, cx) = (self.any(ino), self.dir(dir), self.cx(user));
                let got = outcome(self.c().link(&cx, Ino(ino), Ino(dir), name(n).as_bytes()));
                (got, self.world.link(cx.uid, ino, dir, name(n), now))
            }
            Op::Unlink { dir, name: n, user, open } => {
                let (dir, cx) = (self.dir(dir), self.cx(user));
                let got = outcome(self.c().unlink(&cx, Ino(dir), name(n).as_bytes(), &|_| open));
                (got, self.world.unlink(cx.uid, dir, name(n), open, now))
            }
            Op::Rmdir { dir, name: n, user } => {
                let (dir, cx) = (self.dir(dir), self.cx(user));
                let got = outcome(self.c().rmdir(&cx, Ino(dir), name(n).as_bytes()));
                (got, self.world.rmdir(cx.uid, dir, name(n), now))
            }
            Op::Rename { from, to, mode, user, open } => {
                let mode =
                    [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]
                        [mode as usize % 4];
                let (a, b, cx) =
                    ((self.dir(from.0), name(from.1)), (self.dir(to.0), name(to.1)), self.cx(user));
                let (p, q) = ((Ino(a.0), a.1.as_bytes()), (Ino(b.0), b.1.as_bytes()));
                let got = outcome(self.c().rename(&cx, p, q, mode, &|_| open));
                (got, self.world.rename(cx.uid, a, b, mode, open, now))
            }
            _ => unreachable!("not about names"),
        };
        assert_eq!(got, want, "{op:?}");
    }

    fn attributes(&mut self, op: &Op) {
        let now = self.now;
        match *op {
            Op::Chmod { ino, mode, user } => {
                let (ino, cx) = (self.any(ino), self.cx(user));
                let mode = [0o700, 0o755, 0o1777, 0o555][mode as usize % 4];
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                let node = self.world.nodes.get_mut(&ino).expect("there");
                let want =
                    if cx.uid == 0 || cx.uid == node.uid { Ok(()) } else { Err(FsError::NotPermitted) };
                if want.is_ok() {
                    (node.mode, node.ctime) = (mode, now);
                }
                assert_eq!(outcome(self.c().setattr(&cx, Ino(ino), &set)), want);
            }
            Op::Utimes { ino, back } => {
                let ino = self.any(ino);
                let mtime = now - i64::from(back);
                let set = SetAttr { mtime: Some(t(mtime)), ..SetAttr::default() };
                self.c().setattr(&root(now), Ino(ino), &set).expect("utimes");
                let node = self.world.nodes.get_mut(&ino).expect("there");
                (node.mtime, node.ctime) = (mtime, now);
            }
            Op::Xattr { ino, name, remove } => {
                let ino = self.any(ino);
                let name = format!("trusted.{}", name % 3);
                let node = self.world.nodes.get_mut(&ino).expect("there");
                if remove {
                    let want =
                        node.xattrs.remove(&name).map(|_| node.ctime = now).ok_or(FsError::NoAttribute);
                    assert_eq!(outcome(self.c().removexattr(&root(now), Ino(ino), name.as_bytes())), want);
                } else {
                    node.xattrs.insert(name.clone(), vec![now as u8]);
                    node.ctime = now;
                    self.c()
                        .setxattr(&root(now), Ino(ino), name.as_bytes(), &[now as u8], XattrMode::Any)
                        .expect("set");
                }
            }
            _ => unreachable!("not about attributes"),
        }
    }

    /// The version changes because its content does.
    fn bump(&mut self, ino: u64) {
        let c = self.content(ino).clone();
        if c.sealed || c.known {
            self.world.end(ino);
            let c = self.content(ino);
            (c.version, c.sealed, c.known, c.part) = (c.version + 1, false, false, false);
            c.copies.clear();
        }
    }

    fn data(&mut self, op: &Op) {
        let now = self.now;
        let pick = match *op {
            Op::Write { ino, .. } | Op::Look { ino } | Op::Truncate { ino } => ino,
            Op::Release { ino } | Op::Recall { ino } | Op::Pin { ino, .. } => ino,
            _ => unreachable!("not about data"),
        };
        let Some(ino) = self.file(pick) else { return };
        let c = self.content(ino).clone();
        match *op {
            Op::Write { size, close, .. } => {
                let Some(object) = c.object else { return };
                self.bump(ino);
                let s = stamp(u64::from(size), now);
                self.stamps.insert(object, s);
                self.c()
                    .observe(&root(now), Ino(ino), ObjectId(object), &s, close, Durability::Relaxed)
                    .expect("observe");
                self.content(ino).sealed |= close;
                let node = self.world.nodes.get_mut(&ino).expect("there");
                (node.size, node.mtime, node.ctime) = (u64::from(size), now, now);
            }
            Op::Look { .. } => {
                let (Some(object), false) = (c.object, c.object.is_none()) else { return };
                let Some(s) = self.stamps.get(&object).copied() else { return };
                let late = ObjectStamp { allocated: s.allocated + 4096, ..s };
                self.stamps.insert(object, late);
                self.c()
                    .observe(&root(now), Ino(ino), ObjectId(object), &late, false, Durability::Relaxed)
                    .expect("observe");
            }
            Op::Truncate { .. } => {
                self.world.end(ino);
                let object = self.next_object;
                self.next_object += 1;
                let s = stamp(0, now);
                self.stamps.insert(object, s);
                let (_, freed) =
                    self.c().new_content(&root(now), Ino(ino), ObjectId(object), &s).expect("truncate");
                assert_eq!(freed.map(|o| o.0), c.object);
                let fresh = Content {
                    version: c.version + 1,
                    object: Some(object),
                    sealed: false,
                    known: false,
                    part: false,
                    copies: BTreeSet::new(),
                    ..c
                };
                *self.content(ino) = fresh;
                let node = self.world.nodes.get_mut(&ino).expect("there");
                (node.size, node.mtime, node.ctime) = (0, now, now);
            }
            Op::Release { .. } => {
                let Some(object) = c.object else { return };
                let s = self.stamps.get(&object).copied().unwrap_or_default();
                let got = self.c().release_object(Ino(ino), Version(c.version), ObjectId(object), &s);
                let allowed = c.sealed && c.copies.len() == 2 && !c.pinned;
                assert_eq!(got.is_ok(), allowed, "{got:?} {c:?}");
                if allowed {
                    self.content(ino).object = None;
                }
            }
            Op::Recall { .. } => {
                let object = self.next_object;
                let s = stamp(self.world.nodes[&ino].size, now);
                let wanted = c.object.is_none();
                let got = self.c().set_resident(Ino(ino), Version(c.version), ObjectId(object), &s, t(now));
                assert_eq!(got.expect("recall"), wanted);
                if wanted {
                    self.next_object += 1;
                    self.stamps.insert(object, s);
                    self.content(ino).object = Some(object);
                }
            }
            Op::Pin { pin, .. } => {
                self.content(ino).pinned = pin;
                self.c().pin(Ino(ino), pin).expect("pin");
            }
            _ => unreachable!("not about data"),
        }
    }

    fn copy(&mut self, pick: u8, second: bool, part: bool, old: u8) {
        let Some(ino) = self.file(pick) else { return };
        let (size, named) = (self.world.nodes[&ino].size, !self.world.nodes[&ino].names.is_empty());
        let c = self.content(ino).clone();
        let (copy, barcode) = if second { (2, "VB0001L9") } else { (1, "VA0001L9") };
        if old > 240 && c.version > 1 {
            let s = segment(Ino(ino), Version(c.version - 1), copy, 77, (0, 77), 0);
            let got = record(self.c(), barcode, self.now, vec![s]);
            assert!(matches!(got[0], RecordOutcome::Stale { .. }));
            self.world.ended.remove(&(ino, c.version - 1));
            return;
        }
        if !named {
            return;
        }
        let part = part && copy == 1 && size >= 2;
        let cover = if part { (0, size / 2) } else { (0, size) };
        let got = record(
            self.c(),
            barcode,
            self.now,
            vec![segment(Ino(ino), Version(c.version), copy, size, cover, 0)],
        );
        if !c.sealed || c.copies.contains(&copy) {
            assert!(matches!(got[0], RecordOutcome::Stale { .. }), "{got:?}");
            return;
        }
        assert_eq!(got, [if part { RecordOutcome::Partial } else { RecordOutcome::Counted }]);
        let c = self.content(ino);
        c.known = true;
        if part {
            c.part = true;
        } else {
            c.copies.insert(copy);
            c.part &= copy == 2;
        }
    }

    /// Both show the same.
    fn compare(&self) {
        let findings = check::verify(self.c());
        assert!(findings.is_empty(), "{findings:#?}");
        let inodes = self.c().for_each_inode(Ino(0), usize::MAX).expect("inodes").found;
        assert_eq!(
            inodes.iter().map(|i| i.attr.ino.0).collect::<Vec<_>>(),
            self.world.nodes.keys().copied().collect::<Vec<_>>()
        );
        for inode in &inodes {
            self.compare_inode(inode, &self.world.nodes[&inode.attr.ino.0]);
        }
        for ((ino, version), copies) in &self.world.ended {
            let versions = self.c().versions(Ino(*ino)).expect("versions");
            let found = versions.iter().find(|v| v.version.0 == *version).expect("ended version is known");
            assert!(!found.current);
            assert_eq!(found.copies.len(), *copies, "copies of version {version} of {ino}");
        }
        let junctions = self.c().junctions().expect("list");
        assert_eq!(junctions.iter().map(|j| j.ino.0).collect::<BTreeSet<_>>(), self.world.junctions);
        self.compare_sums();
    }

    fn compare_inode(&self, inode: &Inode, node: &Node) {
        let a = &inode.attr;
        let subdirs = node.children.values().filter(|c| self.world.is_dir(**c)).count() as u32;
        let dir = node.kind == FileKind::Directory;
        let nlink = if dir { 2 + subdirs } else { node.names.len() as u32 };
        let size = if dir { node.children.len() as u64 } else { node.size };
        assert_eq!(
            (a.kind, a.mode, a.uid, a.nlink, a.size),
            (node.kind, node.mode, node.uid, nlink, size),
            "{inode:?}"
        );
        let from_first_look = a.ino == Ino::ROOT && node.mtime == 1;
        assert!(
            from_first_look || a.mtime == t(node.mtime),
            "mtime {:?} of {} is not {}",
            a.mtime,
            a.ino,
            node.mtime
        );
        assert!(a.ctime == t(node.ctime), "ctime {:?} of {} is not {}", a.ctime, a.ino, node.ctime);
        let xattrs = self.c().listxattr(&root(1), a.ino).expect("list");
        assert_eq!(xattrs, node.xattrs.keys().map(|k| k.clone().into_bytes()).collect::<Vec<_>>());
        for (name, value) in &node.xattrs {
            assert_eq!(&self.c().getxattr(&root(1), a.ino, name.as_bytes()).expect("value"), value);
        }
        if dir {
            let listed = self.c().readdir(a.ino, 0, usize::MAX).expect("list").found;
            let listed: BTreeMap<_, _> =
                listed.into_iter().map(|e| (String::from_utf8(e.name).expect("text"), e.ino.0)).collect();
            assert_eq!(listed, node.children);
        } else if let Ok(path) = self.c().path_of(a.ino) {
            assert_eq!(
                self.c().resolve(&root(1), &path, false).expect("its path leads to it").attr.ino,
                a.ino
            );
        } else {
            assert!(node.names.is_empty());
        }
        let Some(c) = &node.content else { return assert!(inode.file.is_none()) };
        let f = inode.file.as_ref().expect("regular");
        assert_eq!((f.version.0, f.object.map(|o| o.0), f.pinned), (c.version, c.object, c.pinned));
        assert_eq!(f.copies.iter().map(|n| n.0).collect::<BTreeSet<_>>(), c.copies);
    }

    fn compare_sums(&self) {
        let named = |n: &&Node| !n.names.is_empty();
        let files =
            || self.world.nodes.values().filter(named).filter_map(|n| n.content.as_ref().map(|c| (n, c)));
        let waits: u64 = files().filter(|(_, c)| c.sealed && c.copies.len() < 2).count() as u64;
        let purgeable = files()
            .filter(|(_, c)| c.sealed && c.copies.len() == 2 && !c.pinned && c.object.is_some())
            .count();
        let totals = self.c().totals().expect("totals");
        let candidates = self.c().candidates(t(1 << 40), None, usize::MAX).expect("list").found;
        // None goes to tape here, so each that was ever needed waits.
        let (words, candidates): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|c| c.ino.is_word());
        for (ino, _) in self.world.nodes.iter().filter(|(_, n)| n.content.is_some() && n.names.len() > 1) {
            assert!(words.iter().any(|w| w.ino.told_of().0 == *ino), "names of inode {ino} are not told");
        }
        let (nodes, files): (Vec<_>, Vec<_>) = candidates.iter().partition(|c| c.dataless);
        assert_eq!(files.len() as u64, waits);
        // Nothing but files is written to tape here; the root waits once something of it was changed.
        let root = usize::from(nodes.iter().any(|c| c.ino == Ino::ROOT));
        let others = self
            .world
            .nodes
            .iter()
            .filter(|(ino, n)| **ino != Ino::ROOT.0 && n.content.is_none() && !n.names.is_empty());
        assert_eq!(nodes.len(), root + others.count());
        let waits = waits + (nodes.len() + words.len()) as u64;
        assert_eq!((totals.inodes, totals.backlog_files), (self.world.nodes.len() as u64, waits));
        assert_eq!(self.c().purge_candidates(None, usize::MAX).expect("list").found.len(), purgeable);
        for uid in USERS {
            let mine: Vec<_> = self.world.nodes.values().filter(|n| n.uid == uid).collect();
            let bytes: u64 = mine.iter().filter(|n| n.content.is_some()).map(|n| n.size).sum();
            let usage = self.c().usage(uid).expect("usage");
            let listed = self.c().usages().expect("usages").into_iter().find(|(found, _)| *found == uid);
            assert_eq!(listed.map(|(_, u)| u), (usage.files > 0).then_some(usage));
            assert_eq!((usage.files, usage.bytes), (mine.len() as u64, bytes));
        }
    }
}

fn user_cx(uid: u32, now: i64) -> Cx {
    common::user(uid, now)
}

fn run(fixture: Fixture, ops: &[Op]) {
    let mut run = Run::new(fixture);
    for op in ops {
        run.step(op);
    }
    run.compare();
}

/// Runs random sequences from a seed of its own, printed so that a failure can be repeated with THERMO_SEED.
fn random(cases: u32, length: usize, fixture: impl Fn() -> Fixture) {
    let seed = std::env::var("THERMO_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(fresh_seed);
    println!("THERMO_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&u64::to_le_bytes(seed));
    let rng = proptest::test_runner::TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &bytes);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(config, rng);
    let tested = runner.run(&proptest::collection::vec(op(), 1..length), |ops| {
        run(fixture(), &ops);
        Ok(())
    });
    if let Err(e) = tested {
        panic!("THERMO_SEED={seed}: {e}");
    }
}

fn fresh_seed() -> u64 {
    let mut runner = proptest::test_runner::TestRunner::default();
    any::<u64>().new_tree(&mut runner).expect("any number will do").current()
}

#[test]
fn the_catalogue_does_what_the_model_does_on_the_memory_engine() {
    random(500, 250, memory);
}

#[test]
fn the_catalogue_does_what_the_model_does_on_lmdb() {
    random(25, 250, lmdb);
}

#[test]
fn the_catalogue_does_what_the_model_does_on_postgresql() {
    let server = server::Server::shared();
    let schemas = std::cell::Cell::new(0);
    random(3, 100, || {
        schemas.set(schemas.get() + 1);
        let address = server.address(&format!("model{}", schemas.get()), "&connections=3");
        let engine =
            kv::PostgresEngine::open(&address, kv::DatabaseOptions::new("test")).expect("engine opens");
        over(std::sync::Arc::new(engine))
    });
}
