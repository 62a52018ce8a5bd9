//! A quote: copies are chosen as for a recall, and nothing is queued.

use super::look::{with_view, with_volumes};
use super::recalls::{covers, recall_item};
use super::waits;
use crate::Node;
use sched::{AccountId, BlockedWhy, CopyPlace, Place, Quote, Reached, RecallItem, SchedView, Tape};
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

/// A file that somebody would have back: its version, its length, and whose limits count.
pub type Asked = (Ino, Version, u64, AccountId);

/// What reading these files would take, behind everything that waits now.
pub fn quote(node: &Node, files: &[Asked]) -> Quoted {
    let mut wanted: BTreeMap<Barcode, Vec<RecallItem>> = BTreeMap::new();
    let mut lost = Vec::new();
    for some in files.chunks(TOGETHER) {
        place(node, some, &mut wanted, &mut lost);
    }
    let times = node.archive.times.known();
    let known = files.is_empty() || node.archive.has_drives();
    let quote = with_view(node, |view, _| sched::quote(view, &times, &wanted)).filter(|_| known);
    Quoted { quote, lost }
}

fn place(
    node: &Node,
    files: &[Asked],
    wanted: &mut BTreeMap<Barcode, Vec<RecallItem>>,
    lost: &mut Vec<(Ino, String)>,
) {
    let mut placing = Vec::with_capacity(files.len());
    for (ino, version, size, account) in files {
        match node.catalog.version_copies(*ino, *version) {
            Ok(copies) => {
                let whole: Vec<CopyRecord> = copies.into_iter().filter(|c| covers(c, *size)).collect();
                placing.push((*ino, *size, whole, *account));
            }
            Err(e) => lost.push((*ino, e.to_string())),
        }
    }
    with_volumes(node, |view, state| {
        for (ino, size, copies, account) in placing {
            let place = |c: &CopyRecord| CopyPlace {
                copy: c.copy,
                volumes: c.segments.iter().map(|s| s.volume.clone()).collect(),
            };
            let places: Vec<CopyPlace> = copies.iter().map(place).collect();
            let choice = sched::choose_copy(view, &places, &state.avoid)
                .or_else(|| sched::choose_copy(view, &places, &BTreeSet::new()));
            // What only drives out of use could read waits for them, nobody knows how long.
            let choice = choice.filter(|choice| size == 0 || !waits::is_down(view, &places[choice.index]));
            match choice.and_then(|choice| copies.get(choice.index)) {
                // An empty file needs no tape.
                Some(_) if size == 0 => {}
                Some(copy) => {
                    for segment in &copy.segments {
                        let item = recall_item(ino.0, segment, Request::USUAL_PRIORITY, view.now);
                        let item = RecallItem { account, ..item };
                        wanted.entry(segment.volume.clone()).or_default().push(item);
                    }
                }
                None => lost.push((ino, why_not(view, &places))),
            }
        }
    });
}

/// Why none of these copies can be read now.
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
        Some(tape) => {
            let stuck = view.drive_of(volume).filter(|drive| !drive.usable);
            let stuck =
                stuck.map(|drive| format!("volume {volume} is in drive {}, which is out of use", drive.id));
            let down = || BlockedWhy::DrivesDown(tape.generation);
            stuck.or_else(|| {
                waits::volume_is_down(view, volume).then(|| format!("volume {volume}: {}", down()))
            })
        }
    };
    let of_copy = |place: &CopyPlace| {
        let why: Vec<String> = place.volumes.iter().filter_map(of_volume).collect();
        format!("copy {}: {}", place.copy, why.join(", "))
    };
    let why: Vec<String> = places.iter().map(of_copy).collect();
    if why.is_empty() { "no whole copy on tape is known".into() } else { why.join("; ") }
}
