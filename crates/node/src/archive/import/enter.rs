//! Entering what a volume of somebody else holds: directories, links, and files in batches.

use super::super::state::Adopted;
use super::super::worker::Worker;
use super::Import;
use catalog::{Adoption, ListedFile, New};
use format::ltfs::origin::DirFacts;
use std::collections::BTreeMap;
use types::*;

/// Files entered in one transaction.
const BATCH: usize = 500;

/// Puts things into the namespace.
pub struct Enter<'p> {
    /// The drive's.
    pub worker: &'p Worker,
    /// The volume.
    pub barcode: &'p Barcode,
    /// What was asked for.
    pub order: &'p Import,
    /// What becomes of it.
    pub adopted: &'p mut Adopted,
    /// Name of the other namespace.
    pub site: String,
    /// When what the volume says was true.
    pub as_of: Time,
    batch: Vec<ListedFile>,
    /// Of these the inode number is one of ours already.
    own: Vec<bool>,
}

impl<'p> Enter<'p> {
    /// Nothing is entered yet.
    pub fn new(
        worker: &'p Worker,
        barcode: &'p Barcode,
        order: &'p Import,
        as_of: Time,
        adopted: &'p mut Adopted,
    ) -> Self {
        let (site, batch, own) = (String::new(), Vec::new(), Vec::new());
        Self { worker, barcode, order, adopted, site, as_of, batch, own }
    }

    /// Where a path of the volume goes.
    pub fn place(&self, path: &[u8]) -> Vec<u8> {
        [self.order.into.as_deref().unwrap_or_default(), path].concat()
    }

    /// An owner of theirs.
    pub fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        let mapped = |map: &BTreeMap<u32, u32>, id| map.get(&id).copied().unwrap_or(id);
        (mapped(&self.order.uids, uid), mapped(&self.order.gids, gid))
    }

    /// The directory of a path, made if need be.
    pub fn make_dir(&self, path: &[u8], facts: Option<DirFacts>) -> catalog::Result<Ino> {
        let worker = self.worker;
        let catalog = &worker.node.catalog;
        let mut dir = Ino::ROOT;
        let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
        for (depth, name) in names.iter().enumerate() {
            match catalog.lookup(dir, name) {
                Ok(found) => dir = found.attr.ino,
                Err(e) if e.fs() == FsError::NotFound => {
                    let cx = Cx::admin(crate::now());
                    dir = catalog.create(&cx, dir, name, &New::node(FileKind::Directory, 0o755))?.attr.ino;
                    let facts = facts.as_ref().filter(|_| depth + 1 == names.len());
                    let (mode, owner) = match facts {
                        Some(facts) => (facts.mode, self.owner(facts.uid, facts.gid)),
                        None => (0o755, self.order.by),
                    };
                    self.belongs(dir, mode, owner)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(dir)
    }

    /// Sets owner, then mode.
    pub fn belongs(&self, ino: Ino, mode: u32, (uid, gid): (u32, u32)) -> catalog::Result<()> {
        let worker = self.worker;
        let cx = Cx::admin(crate::now());
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        worker.node.catalog.setattr(&cx, ino, &set)?;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        worker.node.catalog.setattr(&cx, ino, &set).map(drop)
    }

    /// A symbolic link.
    pub fn make_link(&mut self, path: &[u8], target: Vec<u8>, (uid, gid): (u32, u32)) -> catalog::Result<()> {
        let at = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let dir = self.make_dir(&path[..at], None)?;
        let worker = self.worker;
        let catalog = &worker.node.catalog;
        let cx = Cx::admin(crate::now());
        let new = New { target: Some(target.clone()), ..New::node(FileKind::Symlink, 0o777) };
        match catalog.create(&cx, dir, &path[at + 1..], &new) {
            Ok(made) => {
                let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
                catalog.setattr(&cx, made.attr.ino, &set).map(drop)
            }
            Err(e) if e.fs() == FsError::Exists => {
                let there = catalog.lookup(dir, &path[at + 1..])?.attr.ino;
                if catalog.readlink(there).ok().as_ref() != Some(&target) {
                    self.adopted.note(format!("not taken: link {}: the name is taken", types::escape(path)));
                }
                Ok(())
            }
            Err(e) if e.fs() == FsError::Invalid => {
                self.adopted.note(format!("not taken: link {}", types::escape(path)));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// A file, with the inode number of the other namespace, or (`own`) of ours. It is entered with others.
    pub fn file(&mut self, listed: ListedFile, own: bool) -> catalog::Result<()> {
        self.batch.push(listed);
        self.own.push(own);
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Whether a file with this path waits to be entered.
    pub fn waits(&self, path: &[u8]) -> bool {
        self.batch.iter().any(|listed| listed.file.path == path)
    }

    /// All files given are in the catalogue when this returns.
    pub fn flush(&mut self) -> catalog::Result<()> {
        let (mut batch, own) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.own));
        if batch.is_empty() {
            return Ok(());
        }
        let worker = self.worker;
        let catalog = &worker.node.catalog;
        let foreign: Vec<Ino> =
            batch.iter().zip(&own).filter(|(_, own)| !**own).map(|(listed, _)| listed.file.ino).collect();
        let numbers = catalog.import_numbers(&self.site, &foreign)?;
        let strangers = batch.iter_mut().zip(&own).filter(|(_, own)| !**own);
        for ((listed, _), ino) in strangers.zip(numbers) {
            listed.file.ino = ino;
            // Numbers of directories are those of the other site too: here its paths count.
            listed.file.node.parent = Ino(0);
        }
        let outcomes = catalog.adopt(self.barcode, self.as_of, &batch)?;
        for (listed, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Adoption::Live => {
                    self.adopted.live += 1;
                    self.adopted.bytes += listed.file.segment_length;
                }
                Adoption::Displaced { path, at } => {
                    self.adopted.live += 1;
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    self.adopted.note(format!("{} is taken: found at {}", text(&path), text(&at)));
                }
                Adoption::Contradicts { why } => self.adopted.note(format!("{:?}: {why}", listed.name)),
                Adoption::Dead => self.adopted.dead += 1,
                Adoption::Known => {}
            }
        }
        Ok(())
    }
}
