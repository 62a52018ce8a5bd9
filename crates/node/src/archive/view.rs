//! What others may see of the archive service: drives, library, progress, estimates.

use super::Archive;
use super::state::{QueuedSegment, State};
use sched::{Calibration, Forecast, Limits, Mechanics, SchedView};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use types::*;

/// A copy of what operators see.
#[derive(Clone, Debug)]
pub struct ArchiveView {
    /// Drives.
    pub drives: Vec<DriveView>,
    /// Library.
    pub library: LibraryView,
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
    /// Seconds until it is done.
    pub eta_s: Option<u64>,
    /// What it waits for.
    pub doing: String,
}

impl Archive {
    /// Drives, library and warnings now.
    pub fn view(&self) -> ArchiveView {
        let state = self.state.lock();
        ArchiveView {
            drives: state.drives.values().map(drive_view).collect(),
            library: LibraryView {
                name: state.library_name.clone(),
                product: state.library_product.clone(),
                elements: state.elements.clone(),
            },
            warnings: state.warnings.clone(),
        }
    }

    /// Seconds until a file under recall is whole.
    pub fn eta_s(&self, ino: Ino) -> Option<u64> {
        let state = self.state.lock();
        state.eta(&[ino]).map(|(seconds, _)| seconds)
    }

    /// Progress of a stage request from the recalls it waits for.
    pub fn progress_of(&self, files: &[Ino]) -> Moving {
        let state = self.state.lock();
        let recalls = files.iter().filter_map(|ino| state.files.get(ino));
        let bytes = recalls.map(|r| r.task.staging.arrived_bytes()).sum();
        let estimate = state.eta(files);
        let active = files.iter().any(|ino| state.in_a_drive(*ino));
        Moving {
            queue_position: if active { 0 } else { estimate.map_or(0, |(_, position)| position) },
            bytes,
            eta_s: estimate.map(|(seconds, _)| seconds),
            doing: state.doing(files),
        }
    }

    /// Where writing to tape stands, for a request that is done when `left` bytes are written: at least its own, with
    /// what waits before them; None if some of it waits for an operator. `ahead` is the number of requests before it.
    pub fn writing_now(&self, left: Option<u64>, ahead: u64) -> Moving {
        let state = self.state.lock();
        let busy: Vec<_> = state.drives.values().filter(|d| d.status == DriveStatus::Migrating).collect();
        if !busy.is_empty() {
            let rates: Vec<u64> = busy.iter().map(|d| d.progress.rate()).collect();
            let doing: Vec<String> = busy.iter().map(|d| format!("drive {}: {}", d.no, d.activity)).collect();
            let eta_s = left.map(|bytes| seconds_to_write(bytes, &rates));
            return Moving { eta_s, doing: doing.join("; "), ..Moving::default() };
        }
        let blocked = state.blocked.iter().find(|b| matches!(b.want, sched::Want::Write(_)));
        let mount_s = Mechanics::default().mount_s().ceil() as u64;
        Moving {
            queue_position: ahead + 1,
            eta_s: left.map(|bytes| mount_s + seconds_to_write(bytes, &[])),
            doing: blocked.map_or_else(String::new, |b| format!("waits: {}", b.why)),
            ..Moving::default()
        }
    }
}

/// Drives that have just begun, or none: as fast as a drive is by its data sheet.
fn seconds_to_write(bytes: u64, rates: &[u64]) -> u64 {
    let measured: u64 = rates.iter().sum();
    let rate = if measured > 0 { measured } else { Mechanics::default().rate as u64 };
    bytes.div_ceil(rate.max(1))
}

impl State {
    fn in_a_drive(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|r| r.task.staging.object().is_some())
    }

    fn doing(&self, files: &[Ino]) -> String {
        let Some(ino) = files.iter().find(|ino| self.files.contains_key(ino)) else { return String::new() };
        let Some((_, queued)) = self.queued(*ino).next() else { return "being read".into() };
        let volume = &queued.segment.volume;
        let want = sched::Want::Recall(volume.clone());
        match self.blocked.iter().position(|b| b.want == want).map(|n| (n + 1, &self.blocked[n].why)) {
            Some((place, why)) => {
                format!("waits for volume {volume}: {why} ({place} of {} in line)", self.blocked.len())
            }
            None => match self.drives.values().find(|d| d.volume() == Some(volume)) {
                Some(d) => format!("volume {volume} is in drive {}: {}", d.no, d.activity),
                None => format!("waits for volume {volume}"),
            },
        }
    }

    /// A file's segments that wait for a drive.
    fn queued(&self, ino: Ino) -> impl Iterator<Item = (u64, &QueuedSegment)> {
        let ids = self.files.get(&ino).map_or(&[][..], |r| &r.queued[..]);
        ids.iter().filter_map(|id| Some((*id, self.segments.get(id)?)))
    }

    /// Seconds until the last of these files is whole, and the queue position of the first.
    fn eta(&self, files: &[Ino]) -> Option<(u64, u64)> {
        let left: u64 = files
            .iter()
            .filter(|ino| self.queued(**ino).next().is_none())
            .filter_map(|ino| self.files.get(ino))
            .map(|r| r.task.staging.size - r.task.staging.arrived_bytes())
            .sum();
        let reading = self.drives.values().filter(|d| d.status == DriveStatus::Recalling);
        let rate: u64 = reading.map(|d| d.progress.rate()).sum();
        let in_drives = (left > 0 && rate > 0).then(|| left.div_ceil(rate));
        match (in_drives, self.eta_of_queued(files)) {
            (Some(first), Some((then, position))) => Some((first + then, position)),
            (Some(first), None) => Some((first, 0)),
            (None, queued) => queued,
        }
    }

    fn eta_of_queued(&self, files: &[Ino]) -> Option<(u64, u64)> {
        let drives: Vec<sched::Drive> = self.drives.values().map(super::events::sched_drive).collect();
        let writes = BTreeMap::new();
        let volumes = self.tapes.as_ref().map(|known| known.seen()).unwrap_or_default();
        let (limits, mechanics) = (Limits::default(), Mechanics::default());
        let view = SchedView {
            now: crate::now(),
            drives: &drives,
            volumes: &volumes,
            recalls: &self.recalls,
            writes: &writes,
            maintenance: &[],
            robot_busy: self.robot_busy(),
            disk_pressure: false,
            limits: &limits,
            mechanics: &mechanics,
        };
        let times = Calibration::default();
        let forecast = Forecast::new(&view, &times);
        let mut wanted: BTreeMap<&Barcode, Vec<u64>> = BTreeMap::new();
        for (id, s) in files.iter().flat_map(|ino| self.queued(*ino)) {
            wanted.entry(&s.segment.volume).or_default().push(id);
        }
        let estimates = wanted.into_iter().flat_map(|(volume, ids)| {
            let of_volume = forecast.of(volume);
            ids.into_iter().filter_map(move |id| of_volume.get(&id).copied())
        });
        let best = estimates.fold(None, |acc: Option<(f64, u64)>, e| {
            let (finish, position) = acc.unwrap_or((0.0, u64::MAX));
            Some((finish.max(e.finish.p50_s()), position.min(e.position + e.volumes_ahead)))
        });
        best.map(|(finish, position)| (finish.ceil() as u64, position))
    }
}

impl super::state::DriveSlot {
    /// Volume in it, or on its way.
    pub fn volume(&self) -> Option<&Barcode> {
        match &self.state {
            sched::DriveState::Empty => None,
            sched::DriveState::Loaded(l) => Some(&l.volume),
            sched::DriveState::Busy(b) => Some(&b.volume),
        }
    }
}

fn drive_view(d: &super::state::DriveSlot) -> DriveView {
    DriveView {
        drive: d.no,
        product: d.product.clone(),
        serial: d.serial.clone(),
        element: d.element,
        status: d.status.clone(),
        volume: d.volume().cloned(),
        activity: d.activity.clone(),
        bytes: d.progress.bytes.load(Ordering::Relaxed),
        rate: d.progress.rate(),
        mounts: d.mounts,
        errors: d.errors,
        alerts: d.alerts.clone(),
    }
}
