//! The LTFS index of a volume, written from the catalogue.

use super::migrate::{fill, volume};
use super::trouble::ours;
use super::worker::Worker;
use catalog::TapeNode;
use format::ltfs::index::{DirMeta, EntryTimes};
use std::ops::ControlFlow;
use tape::{AppendPoint, IndexSpec, Mounted, TapeError};
use types::*;

/// Directories of the tape's tree get LTFS uids above this, files below.
const DIRECTORY_UIDS: u64 = 1 << 48;

/// Writes a full index of the volume from the catalogue to both partitions; returns the tape's position.
pub fn write_index(worker: &Worker, mounted: &mut Mounted<'_>, barcode: &Barcode) -> Result<u64, TapeError> {
    let catalog = &worker.node.catalog;
    let volume = volume(worker, barcode)?;
    let now = crate::now();
    let root_time = volume.labelled.unwrap_or(now);
    let creator = concat!("Thermocline ", env!("CARGO_PKG_VERSION"));
    let point = AppendPoint::from(&volume);
    let spec = IndexSpec { point: &point, creator, highest_uid: DIRECTORY_UIDS * 2, now };
    let indexed = mounted.write_index(&spec, &mut |writer| {
        writer.enter_dir(&directory(barcode.as_str(), 1, root_time))?;
        let mut failed: Option<Box<dyn std::error::Error + Send + Sync>> = None;
        catalog.walk_volume(barcode, &mut |node| {
            let done = match node {
                TapeNode::EnterDir { name, dir, created } => {
                    writer.enter_dir(&directory(name, DIRECTORY_UIDS + dir.0, created)).map_err(Into::into)
                }
                TapeNode::File { name, file } => format::ltfs::file::to_index(name, file)
                    .map_err(Into::into)
                    .and_then(|f| writer.file(&f).map_err(Into::into)),
                TapeNode::LeaveDir => writer.leave_dir().map_err(Into::into),
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
    let recorded = catalog.update_volume(barcode, &mut |v| {
        v.generation = indexed.generation;
        v.index_block = indexed.index_block;
        v.append_block = indexed.append_block;
        v.indexed_to = indexed.append_block;
        v.vcr = indexed.vcr;
        if indexed.data_partition_full {
            fill(v, "its end was reached by an index", now);
        }
    });
    recorded.map_err(|e| ours(barcode, "recording an index", e))?;
    Ok(indexed.append_block)
}

fn directory(name: &str, uid: u64, created: Time) -> DirMeta {
    let times =
        EntryTimes { creation: created, change: created, modify: created, access: created, backup: created };
    DirMeta { name: name.into(), uid, times, ..DirMeta::default() }
}
