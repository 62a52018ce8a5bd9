//! The index of a volume, written from the catalogue: its files, and what else a catalogue could be rebuilt from.

use super::layout;
use super::migrate::{fill, volume};
use super::trouble::ours;
use super::worker::Worker;
use catalog::{Catalog, TapeNode};
use format::ltfs::index::{DirMeta, EntryTimes};
use format::ltfs::origin::{DirFacts, Origin, Rules};
use std::ops::ControlFlow;
use tape::{Indexed, Mounted, Onto, TapeError};
use types::*;

/// Directories of the tape's tree get LTFS uids above this, files below.
const DIRECTORY_UIDS: u64 = 1 << 48;

/// Writes a full index of the volume from the catalogue; returns the tape's position. None is written to a volume that may hold more than
/// the catalogue lists: it would go over that, or no more tell of it.
pub fn write_index(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    onto: Onto,
) -> Result<u64, TapeError> {
    let catalog = &worker.node.catalog;
    let volume = volume(worker, barcode)?;
    if volume.may_hold_more() {
        tracing::warn!("volume {barcode} gets no index: its tape may hold more than the catalogue lists");
        return Ok(mounted.reads_from());
    }
    let now = crate::now();
    let root_time = volume.labelled.unwrap_or(now);
    let creator = concat!("Thermocline ", env!("CARGO_PKG_VERSION"));
    let origin = origin(worker, &volume).map_err(|e| ours(barcode, "writing an index", e))?;
    let spec = layout::Index { volume: &volume, creator, highest_uid: DIRECTORY_UIDS * 2, now, onto };
    let indexed = layout::write_index(mounted, &spec, &mut |writer| {
        let root = directory(barcode.as_str(), 1, root_time);
        let mut root = DirMeta { xattrs: origin.attributes(), ..root };
        let of_root = catalog.facts_of(Ino::ROOT, now).ok().flatten();
        tell(&mut root, of_root, catalog.dir_node(barcode, TapeDir(0)).ok().flatten());
        writer.enter_dir(&root)?;
        // The directories of the namespace that are mirrored on the way to where we are.
        let mut mirrored = vec![Some(Ino::ROOT)];
        let mut failed: Option<Box<dyn std::error::Error + Send + Sync>> = None;
        catalog.walk_volume(barcode, &mut |node| {
            let done = match node {
                TapeNode::EnterDir { name, dir, created, mirrors } => {
                    let mut meta = directory(name, DIRECTORY_UIDS + dir.0, created);
                    let parent = mirrored.last().copied().flatten().filter(|_| mirrors == Ino(0));
                    let (ino, facts) = facts(catalog, parent, name, mirrors, now).unzip();
                    mirrored.push(ino);
                    tell(&mut meta, facts, catalog.dir_node(barcode, dir).ok().flatten());
                    writer.enter_dir(&meta).map_err(Into::into)
                }
                // Told with the directory itself.
                TapeNode::File { file, .. } if file.is_dir() => Ok(()),
                TapeNode::File { name, file } => format::ltfs::file::to_index(name, file)
                    .map_err(Into::into)
                    .and_then(|f| writer.file(&f).map_err(Into::into)),
                TapeNode::LeaveDir => {
                    mirrored.pop();
                    writer.leave_dir().map_err(Into::into)
                }
            };
            match done {
                Ok(()) => ControlFlow::Continue(()),
                Err(e) => {
                    failed = Some(e);
                    ControlFlow::Break(())
                }
            }
        })?;
        match failed {
            Some(e) => Err(e),
            None => Ok(writer.leave_dir()?),
        }
    })?;
    let recorded = catalog.update_volume(barcode, &mut |v| has(v, &indexed, now));
    recorded.map_err(|e| ours(barcode, "recording an index", e))?;
    Ok(indexed.append_block)
}

/// The volume has a new index.
fn has(v: &mut Volume, indexed: &Indexed, now: Time) {
    v.generation = indexed.generation;
    v.index_block = indexed.index_block;
    v.append_block = indexed.append_block;
    if indexed.on_both {
        v.indexed_to = indexed.append_block;
    }
    v.vcr = indexed.vcr;
    if indexed.data_partition_full {
        fill(v, "its end was reached by an index", now);
    }
}

/// What a volume says of the namespace that it belongs to.
pub fn origin(worker: &Worker, volume: &Volume) -> catalog::Result<Origin> {
    let catalog = &worker.node.catalog;
    let rules = Rules { classes: catalog.classes()?, pools: catalog.pools()? };
    let (pool, family) = (volume.pool.clone(), volume.family.clone());
    Ok(Origin { site: catalog.site()?.unwrap_or_default(), pool, family, rules })
}

/// The directory of the namespace that one of the volume mirrors: by its number, or by its name in `parent`. Without word of it
/// (removed since, or damaged) it comes back with its first file's owner.
fn facts(
    catalog: &Catalog,
    parent: Option<Ino>,
    name: &str,
    mirrors: Ino,
    now: Time,
) -> Option<(Ino, DirFacts)> {
    match parent {
        Some(parent) => catalog.dir_facts(parent, name.as_bytes(), now).ok()?,
        None => catalog.facts_of(mirrors, now).ok()?.map(|facts| (mirrors, facts)),
    }
}

/// Tells of a directory as it is now, and (`copy`) that the volume has a copy of it.
fn tell(meta: &mut DirMeta, facts: Option<DirFacts>, copy: Option<TapeFile>) {
    let mut facts = match (facts, &copy) {
        (Some(facts), _) => facts,
        // It has another name on the volume, or was renamed.
        (None, Some(copy)) => DirFacts {
            mode: copy.mode & 0o7777,
            uid: copy.uid_owner,
            gid: copy.gid_owner,
            class: copy.class.clone(),
            node: None,
        },
        (None, None) => return,
    };
    if let Some(copy) = copy {
        let now = facts.node.take().filter(|now| (now.ino, now.version) == (copy.ino, copy.version));
        let times = now.map_or(copy.times, |now| now.times);
        facts.node = Some(Box::new(TapeFile { times, ..copy }));
    }
    meta.times = facts.times().unwrap_or(meta.times);
    meta.xattrs.append(&mut facts.attributes());
}

fn directory(name: &str, uid: u64, created: Time) -> DirMeta {
    let times =
        EntryTimes { creation: created, change: created, modify: created, access: created, backup: created };
    DirMeta { name: name.into(), uid, times, ..DirMeta::default() }
}
