//! Volumes of another namespace, or of another program, become part of this one: their names appear below a directory, no
//! data is copied, and they are only read from then on. A volume of our own that was exported is just made available again.

mod again;
mod enter;
mod tar;
mod walk;

use super::adopt::{self, Label};
use super::layout::{self, Found};
use super::state::Adopted;
use super::trouble::ours;
use super::worker::Worker;
use catalog::{CatalogError, ListedFile};
use crossbeam_channel::Sender;
use enter::Enter;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use tape::{Mounted, TapeError};
use types::*;
use walk::{Entry, Walk};

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
    /// What volumes of others were before they were exported, as far as that is known.
    pub was: BTreeMap<Barcode, Before>,
    /// Those of our own that were exported, as they were until they were asked for.
    pub back: BTreeMap<Barcode, Before>,
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
    if label.format == VolumeFormat::Tar {
        return match known.filter(|v| v.generation > 0) {
            Some(known) => again::available(worker, &known, order, adopted),
            None => tar::take(worker, mounted, barcode, order, &label, adopted),
        };
    }
    // First pass: whose it is, and whether all its names are free.
    let enter = Enter::new(worker, barcode, order, label.labelled, adopted);
    let mut look = Pass::new(enter, &label.uuid);
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
    if let Some(known) = known.filter(|v| v.generation > 0) {
        return again::available(worker, &known, order, adopted);
    }
    let refused = refusal(order, &site, conflicts);
    if refused.is_some() {
        adopted.failed = refused;
        adopted.what = format!("a volume of {site}");
        return Ok(());
    }
    adopted.notes.clear();
    begin(worker, mounted, barcode, order, &label).map_err(entering)?;
    let mut enter = Enter::new(worker, barcode, order, label.labelled, adopted);
    enter.site.clone_from(&site);
    let mut pass = Pass::new(enter, &label.uuid);
    let found = layout::read(mounted, &mut |_, told| pass.told(told))?;
    let (cut, error) = (pass.cut, pass.error.take());
    match error {
        Some(e) => return Err(entering(e)),
        None => pass.enter.flush().map_err(entering)?,
    }
    if cut {
        adopted.failed = Some("the node stopped before all its files were entered; ask again".into());
        return Ok(());
    }
    adopted.what = format!("imported from {site}");
    settle(worker, mounted, (barcode, &site), &found, order.was.get(barcode))
}

/// Why a volume of another namespace is not imported.
fn refusal(order: &Import, site: &str, conflicts: u64) -> Option<String> {
    match &order.into {
        None => {
            Some(format!("it belongs to another namespace ({site}); say below which directory with --into"))
        }
        Some(_) if conflicts > 0 => {
            Some(format!("{conflicts} of its names are taken by other files; nothing was entered"))
        }
        Some(_) => None,
    }
}

/// The volume is known from now on, read-only.
fn begin(
    worker: &Worker,
    mounted: &Mounted<'_>,
    barcode: &Barcode,
    order: &Import,
    label: &Label,
) -> catalog::Result<()> {
    let catalog = &worker.node.catalog;
    if let Some(pool) = &order.pool
        && !catalog.pools()?.iter().any(|known| known.name == *pool)
    {
        catalog.put_pool(&Pool::new(pool.clone()))?;
    }
    catalog.begin_adoption(&Volume {
        state: VolumeState::ReadOnly,
        imported: true,
        reason: "its files are being imported".into(),
        pool: order.pool.clone(),
        uuid: label.uuid.clone(),
        labelled: (label.format != VolumeFormat::Tar).then_some(label.labelled),
        block_size: label.block_size,
        worm: label.worm,
        format: label.format,
        capacity: mounted.capacity().map_or(0, |c| c.maximum),
        key: mounted.key().unwrap_or_default().to_owned(),
        ..Volume::new(barcode.clone(), crate::now())
    })
}

/// All files are entered.
fn settle(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    (barcode, site): (&Barcode, &str),
    found: &Found,
    was: Option<&Before>,
) -> Result<(), TapeError> {
    let end = layout::survey(mounted, found)?;
    let now = crate::now();
    let recorded = worker.node.catalog.update_volume(barcode, &mut |v| {
        v.becomes(VolumeState::ReadOnly, format!("imported from {site}: only read"), now);
        if let Some(was) = was.filter(|was| was.state == VolumeState::Suspect) {
            v.becomes(was.state, format!("suspect where it comes from: {}", was.reason), now);
        }
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
            adopted.what = format!("known to the catalogue, and {state}: nothing was changed");
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
    enter: Enter<'p>,
    entering: bool,
    walk: Walk,
    conflicts: u64,
    class: Option<ClassName>,
    cut: bool,
    error: Option<CatalogError>,
}

impl<'p> Pass<'p> {
    fn new(enter: Enter<'p>, uuid: &str) -> Self {
        let (walk, entering) = (Walk::new(uuid), !enter.site.is_empty());
        Self { enter, entering, walk, conflicts: 0, class: None, cut: false, error: None }
    }

    fn told(&mut self, told: layout::Tells<'_>) -> ControlFlow<()> {
        for (name, entry) in self.walk.next(told) {
            let done = if self.entering { self.enter(&name, entry) } else { self.look(entry) };
            match done {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return ControlFlow::Break(()),
                Err(e) => self.error = Some(e),
            }
        }
        self.cut = self.enter.worker.node.archive.halted();
        if self.error.is_none() && !self.cut { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn look(&mut self, entry: Entry) -> catalog::Result<ControlFlow<()>> {
        let worker = self.enter.worker;
        let catalog = &worker.node.catalog;
        let cx = Cx::admin(crate::now());
        let site = self.walk.site.clone().unwrap_or_default();
        if matches!(entry, Entry::Begin) {
            let own = catalog.site()?.as_deref() == Some(&site);
            let stop = own || self.enter.order.into.is_none();
            return Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        }
        let (path, free) = match entry {
            Entry::File(file) => {
                let path = self.enter.place(&file.path);
                let own = catalog.imported(&site, file.ino)?;
                let free = there(catalog, &cx, &path);
                (path, free.map(|here| here.is_none_or(|here| Some(here.attr.ino) == own)))
            }
            Entry::Dir { path, .. } => {
                let path = self.enter.place(&path);
                let free = there(catalog, &cx, &path);
                (path, free.map(|here| here.is_none_or(|here| here.attr.kind == FileKind::Directory)))
            }
            Entry::Symlink { path, target } => {
                let path = self.enter.place(&path);
                let same = |here: Inode| catalog.readlink(here.attr.ino).is_ok_and(|to| to == target);
                let free = there(catalog, &cx, &path);
                (path, free.map(|here| here.is_none_or(same)))
            }
            Entry::Begin | Entry::Dead | Entry::Left(_) => return Ok(ControlFlow::Continue(())),
        };
        let taken = match free {
            // Something on the way to it is a file.
            Err(e) if e.fs() == FsError::NotADirectory => Some("is there already".to_owned()),
            Err(e) if e.fs() == FsError::Elsewhere => Some(format!("cannot be made: {e}")),
            free => (!free?).then(|| "is there already".to_owned()),
        };
        if let Some(why) = taken {
            self.conflicts += 1;
            self.enter.adopted.note(format!("{} {why}", types::escape(&path)));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn enter(&mut self, name: &str, entry: Entry) -> catalog::Result<ControlFlow<()>> {
        let enter = &mut self.enter;
        match entry {
            Entry::Begin => {
                let dir = enter.make_dir(&enter.place(b""), None)?;
                self.class = Some(enter.worker.node.catalog.class_of(dir)?);
            }
            Entry::Dir { path, facts } => {
                enter.make_dir(&enter.place(&path), facts)?;
            }
            Entry::Symlink { path, target } => {
                enter.make_link(&enter.place(&path), target, enter.order.by)?;
            }
            Entry::File(mut file) => {
                file.path = enter.place(&file.path);
                file.class = self.class.clone().unwrap_or_default();
                (file.uid_owner, file.gid_owner) = match self.walk.ours {
                    true => enter.owner(file.uid_owner, file.gid_owner),
                    false => enter.order.by,
                };
                let listed = ListedFile { dirs: self.walk.dirs(), name: name.to_owned(), file: *file };
                enter.file(listed, false)?;
            }
            Entry::Dead => enter.adopted.dead += 1,
            Entry::Left(why) => enter.adopted.note(format!("not taken: {why}")),
        }
        Ok(ControlFlow::Continue(()))
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

#[cfg(test)]
mod tests;
