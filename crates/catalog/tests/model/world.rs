//! A plain model of what the catalogue promises: POSIX names in maps, copies in sets. Shares no code with it.

use std::collections::{BTreeMap, BTreeSet};
use types::{FileKind, FsError, RenameMode};

pub type Res<T = ()> = Result<T, FsError>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub version: u32,
    pub object: Option<u64>,
    pub sealed: bool,
    pub pinned: bool,
    pub copies: BTreeSet<u8>,
    /// End of the first part of copy 1, if only that is on tape.
    pub part: bool,
    pub known: bool,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: FileKind,
    pub mode: u32,
    pub uid: u32,
    pub size: u64,
    pub mtime: i64,
    pub ctime: i64,
    pub names: BTreeSet<(u64, String)>,
    pub children: BTreeMap<String, u64>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    pub content: Option<Content>,
}

#[derive(Default)]
pub struct World {
    pub nodes: BTreeMap<u64, Node>,
    /// Copies of versions that ended: (inode, version) -> number of copies with at least a segment.
    pub ended: BTreeMap<(u64, u32), usize>,
    /// Directories that lead to a subsystem.
    pub junctions: BTreeSet<u64>,
}

pub fn may(uid: u32, node: &Node, want: u32) -> Res {
    // every model user has a group of his own, and all nodes belong to group 0 or the user's
    let bits = if uid == 0 {
        7
    } else if uid == node.uid {
        node.mode >> 6
    } else {
        node.mode
    };
    if bits & want == want { Ok(()) } else { Err(FsError::AccessDenied) }
}

impl World {
    pub fn new(now: i64) -> Self {
        let mut w = Self::default();
        let mut root = Node::new(FileKind::Directory, 0o755, 0, now);
        root.names.insert((1, "/".into()));
        w.nodes.insert(1, root);
        w
    }

    pub fn node(&self, ino: u64) -> Res<&Node> {
        self.nodes.get(&ino).ok_or(FsError::NotFound)
    }

    fn dir(&self, ino: u64) -> Res<&Node> {
        let n = self.node(ino)?;
        if n.kind == FileKind::Directory { Ok(n) } else { Err(FsError::NotADirectory) }
    }

    fn edit(&mut self, ino: u64) -> &mut Node {
        self.nodes.get_mut(&ino).expect("checked")
    }

    fn stamp(&mut self, ino: u64, now: i64) {
        let n = self.edit(ino);
        (n.mtime, n.ctime) = (now, now);
    }

    pub fn can_make(&self, uid: u32, dir: u64, name: &str) -> Res {
        let d = self.dir(dir)?;
        may(uid, d, 1)?;
        if d.children.contains_key(name) {
            return Err(FsError::Exists);
        }
        may(uid, d, 2)?;
        if self.junctions.contains(&dir) { Err(FsError::Elsewhere) } else { Ok(()) }
    }

    /// A directory leads to a subsystem from now on, or (`to: false`) does no more.
    pub fn lead(&mut self, ino: u64, to: bool, now: i64) -> Res {
        let n = self.node(ino)?;
        match (to, self.junctions.contains(&ino)) {
            (true, _) if n.kind != FileKind::Directory => return Err(FsError::NotADirectory),
            (true, known) if known || ino == 1 => return Err(FsError::Busy),
            (true, _) if !n.children.is_empty() => return Err(FsError::NotEmpty),
            (true, _) => _ = self.junctions.insert(ino),
            (false, false) => return Err(FsError::NotFound),
            (false, true) => _ = self.junctions.remove(&ino),
        }
        self.edit(ino).ctime = now;
        Ok(())
    }

    pub fn make(&mut self, dir: u64, name: &str, ino: u64, node: Node, now: i64) {
        self.nodes.insert(ino, node);
        self.enter(dir, name, ino, now);
    }

    fn enter(&mut self, dir: u64, name: &str, ino: u64, now: i64) {
        self.edit(dir).children.insert(name.into(), ino);
        self.edit(ino).names.insert((dir, name.into()));
        self.stamp(dir, now);
    }

    fn leave(&mut self, dir: u64, name: &str, now: i64) {
        let ino = self.edit(dir).children.remove(name).expect("checked");
        self.edit(ino).names.remove(&(dir, name.to_owned()));
        self.stamp(dir, now);
    }

    pub fn link(&mut self, uid: u32, ino: u64, dir: u64, name: &str, now: i64) -> Res {
        self.can_make(uid, dir, name)?;
        let n = self.node(ino)?;
        if n.kind == FileKind::Directory {
            return Err(FsError::NotPermitted);
        }
        if n.names.is_empty() {
            return Err(FsError::NotFound);
        }
        self.enter(dir, name, ino, now);
        self.edit(ino).ctime = now;
        Ok(())
    }

    fn victim(&self, uid: u32, dir: u64, name: &str) -> Res<u64> {
        let d = self.dir(dir)?;
        may(uid, d, 1)?;
        let ino = *d.children.get(name).ok_or(FsError::NotFound)?;
        self.may_take(uid, d, ino)?;
        Ok(ino)
    }

    fn may_take(&self, uid: u32, dir: &Node, ino: u64) -> Res {
        may(uid, dir, 3)?;
        let sticky = dir.mode & 0o1000 != 0;
        if sticky && uid != 0 && uid != dir.uid && uid != self.node(ino)?.uid {
            return Err(FsError::NotPermitted);
        }
        Ok(())
    }

    pub fn unlink(&mut self, uid: u32, dir: u64, name: &str, open: bool, now: i64) -> Res {
        let ino = self.victim(uid, dir, name)?;
        if self.node(ino)?.kind == FileKind::Directory {
            return Err(FsError::IsADirectory);
        }
        self.leave(dir, name, now);
        self.lost(ino, open, now);
        Ok(())
    }

    fn lost(&mut self, ino: u64, open: bool, now: i64) {
        let n = self.edit(ino);
        n.ctime = now;
        if n.names.is_empty() && !open {
            self.end(ino);
            self.nodes.remove(&ino);
        }
    }

    pub fn reap(&mut self, ino: u64) {
        if self.nodes.get(&ino).is_some_and(|n| n.names.is_empty()) {
            self.end(ino);
            self.nodes.remove(&ino);
        }
    }

    pub fn rmdir(&mut self, uid: u32, dir: u64, name: &str, now: i64) -> Res {
        let ino = self.victim(uid, dir, name)?;
        let n = self.node(ino)?;
        if n.kind != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        if !n.children.is_empty() {
            return Err(FsError::NotEmpty);
        }
        if self.junctions.contains(&ino) {
            return Err(FsError::Busy);
        }
        self.leave(dir, name, now);
        self.nodes.remove(&ino);
        Ok(())
    }

    fn inside(&self, moved: u64, mut dir: u64) -> bool {
        loop {
            if dir == moved {
                return true;
            }
            if dir == 1 {
                return false;
            }
            dir = self.nodes[&dir].names.first().expect("directories have a name").0;
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub fn rename(
        &mut self,
        uid: u32,
        from: (u64, &str),
        to: (u64, &str),
        mode: RenameMode,
        open: bool,
        now: i64,
    ) -> Res {
        for dir in [from.0, to.0] {
            may(uid, self.dir(dir)?, 1)?;
        }
        let source = *self.nodes[&from.0].children.get(from.1).ok_or(FsError::NotFound)?;
        let target = self.nodes[&to.0].children.get(to.1).copied();
        if target.is_some() && mode == RenameMode::NoReplace {
            return Err(FsError::Exists);
        }
        if target.is_none() && mode == RenameMode::Exchange {
            return Err(FsError::NotFound);
        }
        if self.is_dir(source) && self.inside(source, to.0) {
            return Err(FsError::Invalid);
        }
        if let Some(t) = target {
            if self.is_dir(t) && self.inside(t, from.0) {
                return Err(if mode == RenameMode::Exchange { FsError::Invalid } else { FsError::NotEmpty });
            }
            if t == source {
                return Ok(());
            }
        }
        self.may_take(uid, &self.nodes[&from.0], source)?;
        match target {
            None => may(uid, &self.nodes[&to.0], 3)?,
            Some(t) => {
                self.may_take(uid, &self.nodes[&to.0], t)?;
                if mode == RenameMode::Exchange {
                    self.may_move(uid, t, to.0, from.0)?;
                } else {
                    match (self.is_dir(source), self.is_dir(t)) {
                        (true, false) => return Err(FsError::NotADirectory),
                        (false, true) => return Err(FsError::IsADirectory),
                        (true, true) if !self.nodes[&t].children.is_empty() => return Err(FsError::NotEmpty),
                        _ => {}
                    }
                }
            }
        }
        self.may_move(uid, source, from.0, to.0)?;
        self.may_lead(source, target, to.0)?;
        self.leave(from.0, from.1, now);
        if let Some(t) = target {
            self.leave(to.0, to.1, now);
            if mode == RenameMode::Exchange {
                self.enter(from.0, from.1, t, now);
                self.edit(t).ctime = now;
            } else if self.is_dir(t) {
                self.nodes.remove(&t);
            } else {
                self.lost(t, open, now);
            }
        }
        self.enter(to.0, to.1, source, now);
        self.edit(source).ctime = now;
        Ok(())
    }

    pub fn is_dir(&self, ino: u64) -> bool {
        self.nodes[&ino].kind == FileKind::Directory
    }

    /// Junctions are not moved, and nothing is moved into one.
    fn may_lead(&self, source: u64, target: Option<u64>, to: u64) -> Res {
        match [Some(source), target].iter().flatten().any(|moved| self.junctions.contains(moved)) {
            true => Err(FsError::Busy),
            false if self.junctions.contains(&to) => Err(FsError::Elsewhere),
            false => Ok(()),
        }
    }

    fn may_move(&self, uid: u32, ino: u64, from: u64, to: u64) -> Res {
        if self.is_dir(ino) && from != to { may(uid, &self.nodes[&ino], 2) } else { Ok(()) }
    }

    /// The present version ends.
    pub fn end(&mut self, ino: u64) {
        let Some(c) = self.nodes.get(&ino).and_then(|n| n.content.as_ref()) else { return };
        let copies = c.copies.len() + usize::from(c.part);
        if c.known {
            self.ended.insert((ino, c.version), copies);
        }
    }
}

impl Node {
    pub fn new(kind: FileKind, mode: u32, uid: u32, now: i64) -> Self {
        Self {
            kind,
            mode,
            uid,
            size: 0,
            mtime: now,
            ctime: now,
            names: BTreeSet::new(),
            children: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            content: None,
        }
    }
}
