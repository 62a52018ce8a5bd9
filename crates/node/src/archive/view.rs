//! What others may see of the archive service: drives, library, progress, estimates.

use super::shelf::Shelf;
use super::state::{DriveSlot, QueuedSegment, State};
use super::{Archive, outlook};
use crate::Node;
use sched::DriveState;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use types::*;

/// Volumes or drives named of one request.
const MOST_TOLD: usize = 8;

/// A copy of what operators see.
#[derive(Clone, Debug)]
pub struct ArchiveView {
    /// Drives.
    pub drives: Vec<DriveView>,
    /// Libraries.
    pub libraries: Vec<LibraryView>,
    /// Warnings, newest first.
    pub warnings: Vec<String>,
}

/// Where an open request stands.
#[derive(Clone, Debug, Default)]
pub struct Moving {
    /// Place in the queue; 0 when active.
    pub queue_position: u64,
    /// Bytes arrived of unfinished files.
    pub bytes: u64,
    /// When the first byte of an unfinished file moved, if one has.
    pub begun: Option<Time>,
    /// When it begins and ends.
    pub estimate: Option<Estimate>,
    /// What it waits for.
    pub doing: String,
    /// Why, in full.
    pub why: Vec<String>,
}

impl Archive {
    /// Drives, library and warnings now.
    pub fn view(&self) -> ArchiveView {
        let state = self.state.lock();
        ArchiveView {
            drives: state.drives.values().map(|d| state.drive_view(d)).collect(),
            libraries: state.shelves.values().map(Shelf::view).collect(),
            warnings: state.warnings.clone(),
        }
    }

    /// To be called before [`Archive::progress_of`] for many requests, with all that they wait for: then it costs them little.
    pub fn prepare_progress(&self, node: &Node, files: &[Ino]) {
        outlook::prepare(node, files);
    }

    /// Progress of a stage request from the recalls it waits for; `all`: there are no more of them.
    pub fn progress_of(&self, node: &Node, files: &[Ino], all: bool) -> Moving {
        let expected = outlook::expected(node, files, all);
        let state = self.state.lock();
        let recalls = files.iter().filter_map(|ino| state.files.get(ino));
        let begun = recalls.filter_map(|r| r.task.staging.begun()).min();
        let active = files.iter().any(|ino| state.in_a_drive(*ino));
        Moving {
            queue_position: if active { 0 } else { expected.as_ref().map_or(0, |e| e.position) },
            begun,
            estimate: expected.map(|e| e.estimate),
            doing: state.doing(files),
            why: state.why(files),
            ..Moving::default()
        }
    }

    /// Where writing to tape stands, for a request that is done when `left` files and bytes are written: at least its own, with
    /// what waits before them; None if some of it waits for an operator. `ahead` is the number of requests before it.
    pub fn writing_now(&self, node: &Node, left: Option<(u64, u64)>, ahead: u64) -> Moving {
        let estimate = left.map(|(files, bytes)| outlook::writing(node, files, bytes));
        let state = self.state.lock();
        let busy: Vec<_> = state.drives.values().filter(|d| *d.status == DriveStatus::Migrating).collect();
        if !busy.is_empty() {
            // With those that bring the next volume meanwhile.
            let next =
                state.drives.values().filter(|d| *d.status == DriveStatus::Mounting && d.works_to_write());
            let busy = busy.into_iter().chain(next);
            let doing: Vec<String> = busy.map(|d| format!("drive {}: {}", d.no, d.activity)).collect();
            return Moving { estimate, doing: doing.join("; "), ..Moving::default() };
        }
        let blocked = state.blocked.iter().filter(|b| matches!(b.want, sched::Want::Write(_)));
        let why: Vec<String> = blocked.map(|b| format!("{} waits: {}", b.want, b.why)).collect();
        Moving {
            queue_position: ahead + 1,
            estimate,
            doing: why.first().cloned().unwrap_or_default(),
            why: if why.is_empty() { why } else { [why, state.drives_now()].concat() },
            ..Moving::default()
        }
    }
}

impl State {
    fn in_a_drive(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|r| r.in_drives().next().is_some() || r.left == 0)
    }

    fn doing(&self, files: &[Ino]) -> String {
        let Some(ino) = files.iter().find(|ino| self.files.contains_key(ino)) else { return String::new() };
        let Some(queued) = self.queued(*ino).next() else { return self.reading(*ino) };
        let volume = &queued.segment.volume;
        match self.place_in_line(volume) {
            Some((place, why)) => {
                format!("waits for volume {volume}: {why} ({place} of {} in line)", self.blocked.len())
            }
            None => match self.drives.values().find(|d| d.volume() == Some(volume)) {
                Some(d) => format!("volume {volume} is in drive {}: {}", d.no, d.activity),
                None => format!("waits for volume {volume}"),
            },
        }
    }

    /// What goes on with a file of which nothing waits in a queue.
    fn reading(&self, ino: Ino) -> String {
        let parked = self.parked.iter().flat_map(|one| &one.wanted).any(|one| one.queued.ino == ino);
        if parked { "waits for room on disk".into() } else { "being read".into() }
    }

    /// Place among what waits for a drive, and why it waits.
    fn place_in_line(&self, volume: &Barcode) -> Option<(usize, &sched::BlockedWhy)> {
        let of = |b: &sched::Blocked| matches!(&b.want, sched::Want::Recall(wanted) if wanted == volume);
        let place = self.blocked.iter().position(of)?;
        Some((place + 1, &self.blocked[place].why))
    }

    /// What each volume of these files waits for, who is before it, and what the drives do.
    fn why(&self, files: &[Ino]) -> Vec<String> {
        let mut volumes: BTreeMap<&Barcode, (u64, u64)> = BTreeMap::new();
        for queued in files.iter().flat_map(|ino| self.queued(*ino)) {
            let (files, bytes) = volumes.entry(&queued.segment.volume).or_default();
            *files += 1;
            *bytes += queued.segment.length;
        }
        let more = volumes.len().saturating_sub(MOST_TOLD);
        let mut lines = Vec::new();
        let mut waits_for_a_drive = false;
        for (volume, (files, bytes)) in volumes.into_iter().take(MOST_TOLD) {
            let what = format!("volume {volume} ({}, {bytes} bytes)", plural(files, "file"));
            let in_drive = self.drives.values().find(|d| d.volume() == Some(volume));
            let why = match (self.place_in_line(volume), in_drive) {
                (Some((place, why)), _) => {
                    waits_for_a_drive = true;
                    format!("{why}; {}", self.ahead(place))
                }
                (None, Some(d)) => format!("is in drive {}: {}{}", d.no, d.activity, until(d)),
                (None, None) => "is looked at next".into(),
            };
            lines.push(format!("{what}: {why}"));
        }
        if more > 0 {
            lines.push(format!("and {}", plural(more, "more volume")));
        }
        if waits_for_a_drive {
            lines.extend(self.drives_now());
        }
        lines
    }

    /// Who is before that place in line.
    fn ahead(&self, place: usize) -> String {
        let before = &self.blocked[..place - 1];
        let Some(next) = before.first() else { return "next in line".into() };
        let others = before.len() - 1;
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        format!("ahead of it: {}{more}", next.want)
    }

    /// What each drive does, and for how long; a few of them.
    fn drives_now(&self) -> Vec<String> {
        let busy = |d: &&DriveSlot| matches!(d.state, DriveState::Busy(_)) || !d.usable();
        let line = |d: &DriveSlot| match &*d.status {
            DriveStatus::Suspect(why) => format!("drive {} is out of use: {why}", d.no),
            DriveStatus::Down => format!("drive {} was taken out of use", d.no),
            _ => {
                let volume = d.volume().map_or(String::new(), |v| format!(" volume {v},"));
                format!("drive {}:{volume} {}{}", d.no, d.activity, until(d))
            }
        };
        self.drives.values().filter(busy).map(line).take(MOST_TOLD).collect()
    }

    /// A file's segments that wait for a drive.
    fn queued(&self, ino: Ino) -> impl Iterator<Item = &QueuedSegment> {
        let ids = self.files.get(&ino).map_or(&[][..], |r| &r.queued[..]);
        ids.iter().filter_map(|id| self.segments.get(id))
    }
}

/// For how much longer a drive is busy, where that is known.
fn until(d: &DriveSlot) -> String {
    match &d.state {
        DriveState::Busy(busy) => {
            let left = busy.until.map(|until| until.since(crate::now()));
            let left = d.progress.passing().map(|passing| passing.end()).or(left).map(|left| left.as_secs());
            left.filter(|s| *s > 0).map_or(String::new(), |s| format!(", about {s} s more"))
        }
        _ => String::new(),
    }
}

impl DriveSlot {
    /// What it does now is done so that something can be written.
    fn works_to_write(&self) -> bool {
        matches!(&self.state, DriveState::Busy(b) if matches!(b.want, Some(sched::Want::Write(_))))
    }

    /// Volume in it, or on its way.
    pub fn volume(&self) -> Option<&Barcode> {
        match &self.state {
            DriveState::Empty => None,
            DriveState::Loaded(l) => Some(&l.volume),
            DriveState::Busy(b) => Some(&b.volume),
        }
    }
}

impl State {
    pub fn drive_view(&self, d: &DriveSlot) -> DriveView {
        let library = self.shelves.get(&d.library).map_or_else(String::new, |shelf| shelf.name.clone());
        DriveView { library, ..drive_view(d) }
    }
}

fn drive_view(d: &DriveSlot) -> DriveView {
    let slow = d.progress.slow_load.shown(d.volume()).filter(|_| *d.status == DriveStatus::Mounting);
    let (status, activity) = slow.unwrap_or_else(|| (DriveStatus::clone(&d.status), d.activity.clone()));
    DriveView {
        drive: d.no,
        library: String::new(),
        media: d.takes().0.to_string(),
        product: d.product.clone(),
        serial: d.serial.clone(),
        element: d.element,
        status,
        volume: d.volume().cloned(),
        activity,
        bytes: d.progress.bytes.load(Ordering::Relaxed),
        rate: d.progress.rate(),
        mounts: d.mounts,
        errors: d.errors,
        alerts: d.alerts.clone(),
        hold: hold(d.progress.claim()),
    }
}

fn hold(claim: tape::Claim) -> Hold {
    match claim {
        tape::Claim::None => Hold::No,
        tape::Claim::Unsupported => Hold::Unsupported,
        tape::Claim::Held => Hold::Held,
    }
}
