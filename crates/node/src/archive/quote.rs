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
    /// Files that a request would wait for, until a drive is back; and for which.
    pub waiting: Vec<(Ino, String)>,
}

/// A file that somebody would have back: its version, its length, and whose limits count.
pub type Asked = (Ino, Version, u64, AccountId);

/// What reading these files would take, behind everything that waits now.
pub fn quote(node: &Node, files: &[Asked]) -> Quoted {
    let mut wanted: BTreeMap<Barcode, Vec<RecallItem>> = BTreeMap::new();
    let mut quoted = Quoted { quote: None, lost: Vec::new(), waiting: Vec::new() };
    for some in files.chunks(TOGETHER) {
        place(node, some, &mut wanted, &mut quoted);
    }
    let times = node.archive.times.known();
    let nothing_else = quoted.waiting.len() == files.len() && !files.is_empty();
    let known = files.is_empty() || (node.archive.has_drives() && !nothing_else);
    quoted.quote = with_view(node, |view, _| sched::quote(view, &times, &wanted)).filter(|_| known);
    quoted
}

fn place(node: &Node, files: &[Asked], wanted: &mut BTreeMap<Barcode, Vec<RecallItem>>, quoted: &mut Quoted) {
    let mut placing = Vec::with_capacity(files.len());
    for (ino, version, size, account) in files {
        match node.catalog.version_copies(*ino, *version) {
            Ok(copies) => {
                let whole: Vec<CopyRecord> = copies.into_iter().filter(|c| covers(c, *size)).collect();
                match too_large(node, *ino, &whole) {
                    Some(why) => quoted.lost.push((*ino, why)),
                    None => placing.push((*ino, *size, whole, *account)),
                }
            }
            Err(e) => quoted.lost.push((*ino, e.to_string())),
        }
    }
    let copies = placing.iter().flat_map(|(_, _, copies, _)| copies);
    let volumes = copies.flat_map(|copy| &copy.segments).map(|segment| &segment.volume).collect();
    with_volumes(node, &volumes, |view, state| {
        for &(ino, size, ref copies, account) in &placing {
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
                None => match waits::any(view, &places) {
                    Some(choice) => quoted.waiting.push((ino, waits_for(view, &places[choice.index]))),
                    None => quoted.lost.push((ino, why_not(view, &places))),
                },
            }
        }
    });
}

/// Why a file that can be read cannot come back: its data does not fit into the disk tier.
fn too_large(node: &Node, ino: Ino, copies: &[CopyRecord]) -> Option<String> {
    let data = |c: &CopyRecord| c.segments.iter().flat_map(|s| &s.extents).map(|e| e.byte_count).sum::<u64>();
    let (bytes, tier) = (copies.iter().map(data).min()?, node.space.view().capacity);
    let on_targets = || node.catalog.layout_rule(ino).is_ok_and(|rule| rule.is_some());
    (bytes > tier && !on_targets()).then(|| {
        format!("its {bytes} bytes do not fit into the disk tier of {tier}, to which it would come back: make that larger")
    })
}

/// For which drives a copy waits.
fn waits_for(view: &SchedView<'_>, place: &CopyPlace) -> String {
    let of_volume = |volume: &Barcode| {
        let tape = view.volumes.get(volume)?;
        if let Some(drive) = view.drive_of(volume).filter(|drive| !drive.usable) {
            return Some(format!(
                "volume {volume} is in drive {}, which is out of use; repair it and `thermo drive up {0}`, or take the \
                 cartridge out",
                drive.id
            ));
        }
        if !waits::volume_is_down(view, volume) {
            return None;
        }
        let drives = view.drives.iter().filter(|drive| drive.takes(volume, tape, Access::Read));
        let drives: Vec<String> = drives.map(|drive| drive.id.to_string()).collect();
        let drives = drives.join(" or ");
        Some(format!(
            "volume {volume} waits for drive {drives}, out of use; `thermo drive ls` says why, `thermo drive up N` brings one back"
        ))
    };
    let why: Vec<String> = place.volumes.iter().filter_map(of_volume).collect();
    format!("copy {}: {}", place.copy, why.join(", "))
}

/// What keeps a volume of this state from being read, and what to do.
fn unreadable(volume: &Barcode, state: VolumeState) -> String {
    match state {
        VolumeState::Exported => {
            format!("volume {volume} is exported; `thermo volume import {volume}` when it is back")
        }
        VolumeState::Broken | VolumeState::Retired => {
            format!("volume {volume} is {state}: it cannot be read; see `thermo volume show {volume}`")
        }
        _ => format!("volume {volume} cannot be read; see `thermo volume show {volume}`"),
    }
}

/// Why none of these copies can be read now.
pub fn why_not(view: &SchedView<'_>, places: &[CopyPlace]) -> String {
    let of_volume = |volume: &Barcode| match view.volumes.get(volume) {
        None => Some(format!("volume {volume} is not known")),
        Some(tape) if tape.place == Place::Absent => Some(format!("volume {volume} is not in the library")),
        Some(tape) if !Tape::readable(tape) => Some(unreadable(volume, tape.state)),
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
