//! Volumes of another namespace, or of another program, become part of this one: their names appear below a directory, no
//! data is copied, and they are only read from then on. A volume of our own that was exported is just made available again.

mod walk;

use super::adopt::{self, Label};
use super::layout::{self, Found};
use super::state::Adopted;
use super::trouble::ours;
use super::worker::Worker;
use catalog::{Adoption, CatalogError, ListedFile, New};
use crossbeam_channel::Sender;
use format::ltfs::origin::DirFacts;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use tape::{Mounted, TapeError};
use types::*;
use walk::{Entry, Walk};

/// Files entered in one transaction.
const BATCH: usize = 500;

/// What is to be imported where.
pub struct Import {
    /// Directory of the namespace, absolute, without a slash at its end; None: only our own volumes are taken.
    pub into: Option<Vec<u8>>,
    /// Pool that they join; None: none.
    pub pool: Option<PoolName>,
    /// Owners by number: there, here. Others keep theirs.
    pub uids: BTreeMap<u32, u32>,
    /// Groups by number.
    pub gids: BTreeMap<u32, u32>,
    /// Whose files without an owner become.
    pub by: (u32, u32),
}

/// Imports a mounted volume, and answers; returns the tape's position.
pub fn import(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    order: &Import,
    answer: &Sender<(Barcode, Adopted)>,
) -> Result<u64, TapeError> {
    adopt::answering(barcode, answer, |adopted| take(worker, mounted, barcode, order, adopted))
}

fn take(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    order: &Import,
    adopted: &mut Adopted,
) -> Result<(), TapeError> {
    let Some(label) = adopt::label(mounted, adopted) else {
        let what = format!("there is nothing to import: {}", adopted.what);
        adopted.failed.get_or_insert(what);
        return Ok(());
    };
    let entering = |e: CatalogError| ours(barcode, "entering its files", e);
    let catalog = &worker.node.catalog;
    let known = catalog.volume(barcode).map_err(entering)?.filter(|v| v.uuid == label.uuid);
    // First pass: whose it is, and whether all its names are free.
    let mut look = Pass::new(worker, barcode, order, &label, None, adopted);
    let found = layout::read(mounted, &mut |_, told| look.told(told))?;
    let (site, conflicts, error) = (look.walk.site.clone(), look.conflicts, look.error.take());
    if let Some(e) = error {
        return Err(entering(e));
    }
    let Some(site) = site else {
        adopted.what = "nothing is on it".into();
        return Ok(());
    };
    if catalog.site().map_err(entering)?.as_deref() == Some(&site) {
        return come_back(worker, mounted, (barcode, known.as_ref()), &found, adopted);
    }
    if known.as_ref().is_some_and(|v| v.generation > 0) {
        adopted.what = "imported already".into();
        return Ok(());
    }
    let refused = match &order.into {
        None => {
            Some(format!("it belongs to another namespace ({site}); say below which directory with --into"))
        }
        Some(_) if conflicts > 0 => {
            Some(format!("{conflicts} of its names are taken by other files; nothing was entered"))
        }
        Some(_) => None,
    };
    if refused.is_some() {
        adopted.failed = refused;
        adopted.what = format!("a volume of {site}");
        return Ok(());
    }
    adopted.notes.clear();
    let capacity = mounted.capacity().map_or(0, |c| c.maximum);
    begin(worker, barcode, order, (&label, capacity)).map_err(entering)?;
    let mut enter = Pass::new(worker, barcode, order, &label, Some(site.clone()), adopted);
    let found = layout::read(mounted, &mut |_, told| enter.told(told))?;
    enter.flush();
    let (cut, error) = (enter.cut, enter.error.take());
    if let Some(e) = error {
        return Err(entering(e));
    }
    if cut {
        adopted.failed = Some("the node stopped before all its files were entered; ask again".into());
        return Ok(());
    }
    adopted.what = format!("imported from {site}");
    settle(worker, mounted, (barcode, &site), &found)
}

/// The volume is known from now on, read-only.
fn begin(
    worker: &Worker,
    barcode: &Barcode,
    order: &Import,
    (label, capacity): (&Label, u64),
) -> catalog::Result<()> {
    let catalog = &worker.node.catalog;
    if let Some(pool) = &order.pool
        && !catalog.pools()?.iter().any(|known| known.name == *pool)
    {
        catalog.put_pool(&Pool::new(pool.clone()))?;
    }
    catalog.begin_adoption(&Volume {
        state: VolumeState::ReadOnly,
        reason: "its files are being imported".into(),
        pool: order.pool.clone(),
        uuid: label.uuid.clone(),
        labelled: Some(label.labelled),
        block_size: label.block_size,
        worm: label.worm,
        format: label.format,
        capacity,
        ..Volume::new(barcode.clone(), crate::now())
    })
}

/// All files are entered.
fn settle(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    (barcode, site): (&Barcode, &str),
    found: &Found,
) -> Result<(), TapeError> {
    let end = layout::survey(mounted, found)?;
    let now = crate::now();
    let recorded = worker.node.catalog.update_volume(barcode, &mut |v| {
        v.becomes(VolumeState::ReadOnly, format!("imported from {site}: only read"), now);
        v.generation = found.generation.max(1);
        v.index_block = end.index_block;
        v.append_block = end.end_of_data;
        v.indexed_to = end.end_of_data;
        v.vcr = end.vcr;
        v.last_written = found.written;
    });
    recorded.map(drop).map_err(|e| ours(barcode, "recording that it was imported", e))
}

/// A volume of this namespace.
fn come_back(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    (barcode, known): (&Barcode, Option<&Volume>),
    found: &Found,
    adopted: &mut Adopted,
) -> Result<(), TapeError> {
    match known.map(|v| v.state) {
        Some(VolumeState::Unverified) => adopt::verify(worker, mounted, barcode, found, adopted),
        Some(state) => {
            adopted.what = format!("known to the catalogue, and {state:?}: nothing was changed");
            Ok(())
        }
        None => {
            adopted.what = "a volume of this namespace that the catalogue has lost".into();
            adopted.failed = Some("it comes back with `thermo catalog rebuild`".into());
            Ok(())
        }
    }
}

/// One reading of what the volume tells: a look for conflicts, or (with a site) the entering.
struct Pass<'p> {
    worker: &'p Worker,
    barcode: &'p Barcode,
    order: &'p Import,
    label: &'p Label,
    entering: Option<String>,
    adopted: &'p mut Adopted,
    walk: Walk,
    conflicts: u64,
    class: Option<ClassName>,
    batch: Vec<ListedFile>,
    cut: bool,
    error: Option<CatalogError>,
}

impl<'p> Pass<'p> {
    fn new(
        worker: &'p Worker,
        barcode: &'p Barcode,
        order: &'p Import,
        label: &'p Label,
        entering: Option<String>,
        adopted: &'p mut Adopted,
    ) -> Self {
        let walk = Walk::new(&label.uuid);
        Self {
            worker,
            barcode,
            order,
            label,
            entering,
            adopted,
            walk,
            conflicts: 0,
            class: None,
            batch: Vec::new(),
            cut: false,
            error: None,
        }
    }

    fn told(&mut self, told: layout::Tells<'_>) -> ControlFlow<()> {
        for (name, entry) in self.walk.next(told) {
            let done = if self.entering.is_some() { self.enter(&name, entry) } else { self.look(entry) };
            match done {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return ControlFlow::Break(()),
                Err(e) => self.error = Some(e),
            }
        }
        self.cut = self.worker.node.archive.halted();
        if self.error.is_none() && !self.cut { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Where a path of the volume goes.
    fn place(&self, path: &[u8]) -> Vec<u8> {
        [self.order.into.as_deref().unwrap_or_default(), path].concat()
    }

    fn look(&mut self, entry: Entry) -> catalog::Result<ControlFlow<()>> {
        let worker = self.worker;
        let catalog = &worker.node.catalog;
        let cx = Cx::admin(crate::now());
        let site = self.walk.site.clone().unwrap_or_default();
        if matches!(entry, Entry::Begin) {
            let own = catalog.site()?.as_deref() == Some(&site);
            let stop = own || self.order.into.is_none();
            return Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        }
        let (path, free) = match entry {
            Entry::File(file) => {
                let path = self.place(&file.path);
                let here = there(catalog, &cx, &path)?;
                let own = catalog.imported(&site, file.ino)?;
                (path, here.is_none_or(|here| Some(here.attr.ino) == own))
            }
            Entry::Dir { path, .. } => {
                let path = self.place(&path);
                let here = there(catalog, &cx, &path)?;
                (path, here.is_none_or(|here| here.attr.kind == FileKind::Directory))
            }
            Entry::Symlink { path, target } => {
                let path = self.place(&path);
                let here = there(catalog, &cx, &path)?;
                let same = |here: Inode| catalog.readlink(here.attr.ino).is_ok_and(|to| to == target);
                (path, here.is_none_or(same))
            }
            Entry::Begin | Entry::Dead | Entry::Left(_) => return Ok(ControlFlow::Continue(())),
        };
        if !free {
            self.conflicts += 1;
            self.adopted.note(format!("{} is there already", String::from_utf8_lossy(&path)));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn enter(&mut self, name: &str, entry: Entry) -> catalog::Result<ControlFlow<()>> {
        match entry {
            Entry::Begin => {
                let into = self.order.into.clone().unwrap_or_default();
                let dir = self.make_dir(&into, None)?;
                self.class = Some(self.worker.node.catalog.class_of(dir)?);
            }
            Entry::Dir { path, facts } => {
                self.make_dir(&self.place(&path), facts)?;
            }
            Entry::Symlink { path, target } => self.make_link(&self.place(&path), target)?,
            Entry::File(file) => {
                let path = self.place(&file.path);
                let listed = ListedFile { dirs: self.walk.dirs(), name: name.to_owned(), file: *file };
                self.batch.push(self.translated(listed, path));
                if self.batch.len() >= BATCH {
                    self.flush();
                }
            }
            Entry::Dead => self.adopted.dead += 1,
            Entry::Left(why) => self.adopted.note(format!("not taken: {why}")),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A file as it is to be here, but for its inode number.
    fn translated(&self, mut listed: ListedFile, path: Vec<u8>) -> ListedFile {
        let file = &mut listed.file;
        file.path = path;
        file.class = self.class.clone().unwrap_or_default();
        (file.uid_owner, file.gid_owner) = match self.walk.ours {
            true => self.owner(file.uid_owner, file.gid_owner),
            false => self.order.by,
        };
        listed
    }

    fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        let mapped = |map: &BTreeMap<u32, u32>, id| map.get(&id).copied().unwrap_or(id);
        (mapped(&self.order.uids, uid), mapped(&self.order.gids, gid))
    }

    /// The directory of a path, made if need be.
    fn make_dir(&mut self, path: &[u8], facts: Option<DirFacts>) -> catalog::Result<Ino> {
        let worker = self.worker;
        let catalog = &worker.node.catalog;
        let mut dir = Ino::ROOT;
        let (uid, gid) = self.order.by;
        let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
        for (depth, name) in names.iter().enumerate() {
            match catalog.lookup(dir, name) {
                Ok(found) => dir = found.attr.ino,
                Err(e) if e.fs() == FsError::NotFound => {
                    let facts = facts.as_ref().filter(|_| depth + 1 == names.len());
                    let (mode, owner) = match facts {
                        Some(facts) => (facts.mode, self.owner(facts.uid, facts.gid)),
                        None => (0o755, (uid, gid)),
                    };
                    let cx = Cx::admin(crate::now());
                    dir = catalog.create(&cx, dir, name, &New::node(FileKind::Directory, mode))?.attr.ino;
                    let set = SetAttr { uid: Some(owner.0), gid: Some(owner.1), ..SetAttr::default() };
                    catalog.setattr(&cx, dir, &set)?;
                    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                    catalog.setattr(&cx, dir, &set)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(dir)
    }

    fn make_link(&mut self, path: &[u8], target: Vec<u8>) -> catalog::Result<()> {
        let at = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let dir = self.make_dir(&path[..at], None)?;
        let worker = self.worker;
        let catalog = &worker.node.catalog;
        let cx = Cx::admin(crate::now());
        let new = New { target: Some(target), ..New::node(FileKind::Symlink, 0o777) };
        match catalog.create(&cx, dir, &path[at + 1..], &new) {
            Ok(made) => {
                let (uid, gid) = self.order.by;
                let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
                catalog.setattr(&cx, made.attr.ino, &set).map(drop)
            }
            Err(e) if e.fs() == FsError::Exists => Ok(()),
            Err(e) if e.fs() == FsError::Invalid => {
                self.adopted.note(format!("not taken: link {}", String::from_utf8_lossy(path)));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    fn flush(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        if batch.is_empty() || self.error.is_some() {
            return;
        }
        if let Err(e) = self.put(&mut batch) {
            self.error = Some(e);
        }
    }

    fn put(&mut self, batch: &mut [ListedFile]) -> catalog::Result<()> {
        let worker = self.worker;
        let catalog = &worker.node.catalog;
        let site = self.entering.clone().unwrap_or_default();
        let foreign: Vec<Ino> = batch.iter().map(|listed| listed.file.ino).collect();
        let numbers = catalog.import_numbers(&site, &foreign)?;
        for (listed, ino) in batch.iter_mut().zip(numbers) {
            listed.file.ino = ino;
        }
        let outcomes = catalog.adopt(self.barcode, self.label.labelled, batch)?;
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

/// What is at a path; None: nothing.
fn there(catalog: &catalog::Catalog, cx: &Cx, path: &[u8]) -> catalog::Result<Option<Inode>> {
    match catalog.resolve(cx, path, false) {
        Ok(inode) => Ok(Some(inode)),
        Err(e) if e.fs() == FsError::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
