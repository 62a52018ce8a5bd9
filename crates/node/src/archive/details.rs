//! All about one drive, for `thermo drive show`.

use super::library::settings;
use super::state::{DriveSlot, State};
use super::{look, times};
use crate::Node;
use crate::error::failure;
use sched::{DriveState, Factors, Learnt, Mechanics, Want};
use std::collections::BTreeSet;
use types::*;
use wire::Failure;

/// Files of a drive's job, or of a request, that are looked at to learn whom the drive works for.
const LOOKED_AT: usize = 1_000;

/// What a drive does now, in terms of what its requests are found by.
#[derive(Default)]
struct Job {
    volume: Option<Barcode>,
    pool: Option<PoolName>,
    files: Vec<Ino>,
    request: Option<RequestId>,
}

impl Node {
    /// # Errors
    /// There is no such drive.
    pub(crate) fn drive_details(&self, no: DriveNo) -> Result<DriveDetails, Failure> {
        let known = self.archive.times.known();
        let (mut details, job, model) = {
            let state = self.archive.state.lock();
            let Some(slot) = state.drives.get(&no) else {
                let message = format!("there is no drive {no}; see `thermo drive ls`");
                return Err(failure(ErrorClass::NotFound, message));
            };
            let model =
                slot.volume().map_or_else(|| look::mechanics(self), |volume| times::mechanics(self, volume));
            (self.details_of(&state, slot), job(&state, slot), model)
        };
        let factors = known.drives.get(&no).copied().unwrap_or_default();
        details.learnt = learnt(&factors, &model);
        details.requests = self.served(&job).into_iter().collect();
        if let Some(volume) = &details.drive.volume {
            details.key = self.catalog.volume(volume).ok().flatten().map(|v| v.key);
        }
        Ok(details)
    }

    fn details_of(&self, state: &State, d: &DriveSlot) -> DriveDetails {
        let settings = settings(&self.config.tape);
        let (busy, loaded) = match &d.state {
            DriveState::Busy(busy) => (Some(busy), false),
            DriveState::Loaded(_) => (None, true),
            DriveState::Empty => (None, false),
        };
        let device = self.device_of(d.library, d.no).map(|address| address.to_string());
        let known = |time: Time| Some(time).filter(|time| *time != Time::default());
        DriveDetails {
            drive: state.drive_view(d),
            since: d.status.since(),
            taken_out: d.comeback.out.clone(),
            leaving: d.comeback.out.is_some() && *d.status != DriveStatus::Down,
            generation: d.reach.generation().map(|g| g.to_string()),
            device: device.unwrap_or_else(|| "this process".into()),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            mounted: if loaded || busy.is_some() { known(d.mounted) } else { None },
            begun: busy.and_then(|_| known(d.begun)),
            until: busy.and_then(|busy| busy.until),
            requests: Vec::new(),
            learnt: Vec::new(),
            reserve: self.config.tape.reserve,
            key: None,
            compression: settings.compression,
            block_protection: settings.block_protection,
            append_only: settings.append_only,
            asks_for_cleaning: d.soiled,
        }
    }

    /// Open requests that are served by a job.
    fn served(&self, job: &Job) -> BTreeSet<RequestId> {
        let files = job.files.iter().take(LOOKED_AT);
        let mut found: BTreeSet<RequestId> =
            files.flat_map(|ino| self.catalog.requests_for(*ino).unwrap_or_default()).collect();
        found.extend(job.request);
        if let Some(volume) = &job.volume {
            for kind in [RequestKind::Verify, RequestKind::Repack, RequestKind::Export] {
                let asked = self.volumes_asked_for(kind).unwrap_or_default();
                found.extend(asked.into_iter().filter(|(of, _)| of == volume).map(|(_, id)| id));
            }
        }
        if let Some(pool) = &job.pool {
            let open = self.catalog.open_requests_of(RequestKind::Migrate).unwrap_or_default();
            found.extend(open.into_iter().map(|request| request.id).filter(|id| self.waits_for(*id, pool)));
        }
        found
    }

    /// Whether a file of a migrate still lacks its copy in the pool.
    fn waits_for(&self, request: RequestId, pool: &PoolName) -> bool {
        let Ok(items) = self.catalog.items(request, Ino(0), LOOKED_AT) else { return false };
        let pending = items.into_iter().filter(|(_, state, _)| *state == ItemState::Pending);
        let lacks = |ino: Ino| -> Option<bool> {
            let file = self.catalog.inode(ino).ok()?.file?;
            let class = self.catalog.class(&file.class).ok()??;
            let copy = class.copies.iter().position(|p| p == pool)?;
            Some(!file.copies.iter().any(|have| usize::from(have.0) == copy + 1))
        };
        pending.map(|(ino, ..)| ino).any(|ino| lacks(ino).unwrap_or(false))
    }
}

fn job(state: &State, d: &DriveSlot) -> Job {
    let DriveState::Busy(busy) = &d.state else { return Job::default() };
    let mut job = Job { files: d.serves.files.clone(), request: d.serves.request, ..Job::default() };
    match &busy.want {
        Some(Want::Write(pool)) => job.pool = Some(super::family::pool_of(pool)),
        Some(Want::Recall(volume)) if job.files.is_empty() => {
            let waiting = state.segments.values().filter(|one| one.segment.volume == *volume);
            job.files = waiting.map(|one| one.ino).take(LOOKED_AT).collect();
        }
        Some(Want::Recall(_) | Want::Maintain(_)) | None => {}
    }
    job.volume = Some(busy.volume.clone());
    job
}

/// What was observed of a drive; nothing of what never happened.
fn learnt(factors: &Factors, model: &Mechanics) -> Vec<LearntView> {
    let percent = |learnt: &Learnt| Some((learnt.mean * 100.0).round() as u64);
    let view = |what, learnt: &Learnt| LearntView {
        what,
        observations: learnt.count,
        percent: percent(learnt),
        ms: None,
        bytes_per_s: None,
    };
    let timed = |what, learnt: &Learnt, expected_s: f64| LearntView {
        ms: Some((learnt.mean * expected_s * 1000.0).round() as u64),
        ..view(what, learnt)
    };
    let moved = |what, learnt: &Learnt| LearntView {
        bytes_per_s: (learnt.mean > 0.0).then(|| (model.rate / learnt.mean) as u64),
        ..view(what, learnt)
    };
    let all = [
        timed(LearntKind::Move, &factors.moves, model.move_s),
        timed(LearntKind::Load, &factors.load, model.load_s),
        timed(LearntKind::Unload, &factors.unload, model.unload_s),
        view(LearntKind::Locate, &factors.locate),
        moved(LearntKind::Read, &factors.read),
        moved(LearntKind::Write, &factors.write),
        LearntView { percent: None, ..timed(LearntKind::File, &factors.file, 1.0) },
    ];
    all.into_iter().filter(|one| one.observations > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_told_in_times_and_rates() {
        let of = |mean: f64| Learnt { mean, variance: 0.0, count: 3, weight_s: 9.0 };
        let factors =
            Factors { load: of(0.5), read: of(2.0), file: of(0.25), locate: of(1.2), ..Factors::default() };
        let model = Mechanics { load_s: 16.0, rate: 400e6, ..Mechanics::default() };
        let told = learnt(&factors, &model);
        let kinds: Vec<LearntKind> = told.iter().map(|one| one.what).collect();
        assert_eq!(kinds, [LearntKind::Load, LearntKind::Locate, LearntKind::Read, LearntKind::File]);
        assert_eq!((told[0].ms, told[0].percent, told[0].observations), (Some(8_000), Some(50), 3));
        assert_eq!((told[1].ms, told[1].percent), (None, Some(120)));
        assert_eq!((told[2].bytes_per_s, told[2].ms), (Some(200_000_000), None));
        assert_eq!((told[3].ms, told[3].percent), (Some(250), None));
    }
}
