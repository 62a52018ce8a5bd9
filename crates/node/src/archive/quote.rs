//! A quote: copies are chosen as for a recall, and nothing is queued.

use super::look::{with_view, with_volumes};
use super::recalls::{covers, recall_item};
use crate::Node;
use sched::{BlockedWhy, CopyPlace, Place, Quote, Reached, RecallItem, SchedView, Tape};
use std::collections::{BTreeMap, BTreeSet};
use types::*;

/// Files for which copies are chosen in one look.
const TOGETHER: usize = 500;

/// What was found.
pub struct Quoted {
    /// What reading takes; None: no drive is in use.
    pub quote: Option<Quote>,
    /// Files that cannot be read from any copy, and why.
    pub lost: Vec<(Ino, String)>,
}

/// What reading these files would take, behind everything that waits now.
pub fn quote(node: &Node, files: &[(Ino, Version, u64)]) -> Quoted {
    let mut wanted: BTreeMap<Barcode, Vec<RecallItem>> = BTreeMap::new();
    let mut lost = Vec::new();
    for some in files.chunks(TOGETHER) {
        place(node, some, &mut wanted, &mut lost);
    }
    let times = node.archive.times.known();
    let quote = with_view(node, |view, _| sched::quote(view, &times, &wanted));
    Quoted { quote, lost }
}

fn place(
    node: &Node,
    files: &[(Ino, Version, u64)],
    wanted: &mut BTreeMap<Barcode, Vec<RecallItem>>,
    lost: &mut Vec<(Ino, String)>,
) {
    let mut placing = Vec::with_capacity(files.len());
    for (ino, version, size) in files {
        match node.catalog.version_copies(*ino, *version) {
            Ok(copies) => {
                let whole: Vec<CopyRecord> = copies.into_iter().filter(|c| covers(c, *size)).collect();
                placing.push((*ino, *size, whole));
            }
            Err(e) => lost.push((*ino, e.to_string())),
        }
    }
    with_volumes(node, |view, state| {
        for (ino, size, copies) in placing {
            let place = |c: &CopyRecord| CopyPlace {
                copy: c.copy,
                volumes: c.segments.iter().map(|s| s.volume.clone()).collect(),
            };
            let places: Vec<CopyPlace> = copies.iter().map(place).collect();
            let choice = sched::choose_copy(view, &places, &state.avoid)
                .or_else(|| sched::choose_copy(view, &places, &BTreeSet::new()));
            match choice.and_then(|choice| copies.get(choice.index)) {
                // An empty file needs no tape.
                Some(_) if size == 0 => {}
                Some(copy) => {
                    for segment in &copy.segments {
                        let item = recall_item(ino.0, segment, Request::USUAL_PRIORITY, view.now);
                        wanted.entry(segment.volume.clone()).or_default().push(item);
                    }
                }
                None => lost.push((ino, why_not(view, &places))),
            }
        }
    });
}

/// Why none of these copies can be read.
pub fn why_not(view: &SchedView<'_>, places: &[CopyPlace]) -> String {
    let of_volume = |volume: &Barcode| match view.volumes.get(volume) {
        None => Some(format!("volume {volume} is not known")),
        Some(tape) if tape.place == Place::Absent => Some(format!("volume {volume} is not in the library")),
        Some(tape) if !Tape::readable(tape) => {
            Some(format!("volume {volume} cannot be read; see `thermo volume show {volume}`"))
        }
        Some(tape) if view.reached(volume, tape, Access::Read) == Reached::Never => {
            let (volume, medium, access) = (volume.clone(), tape.generation, Access::Read);
            Some(BlockedWhy::NoDriveFor { volume, medium, access }.to_string())
        }
        Some(_) => {
            let stuck = view.drive_of(volume).filter(|drive| !drive.usable);
            stuck.map(|drive| format!("volume {volume} is in drive {}, which is out of use", drive.id))
        }
    };
    let of_copy = |place: &CopyPlace| {
        let why: Vec<String> = place.volumes.iter().filter_map(of_volume).collect();
        format!("copy {}: {}", place.copy, why.join(", "))
    };
    let why: Vec<String> = places.iter().map(of_copy).collect();
    if why.is_empty() { "no whole copy on tape is known".into() } else { why.join("; ") }
}
