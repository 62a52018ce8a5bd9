//! Matching demands with drives.

use crate::demand::{Demand, demands, in_hand};
use crate::pick::{Pick, pick_volume};
use crate::{
    Action, Blocked, BlockedWhy, Drive, DriveState, Job, Limits, Loaded, Maintenance, MaintenanceKind, Plan,
    SchedView, Want, Why,
};
use std::collections::{BTreeMap, BTreeSet};
use types::{Barcode, DriveNo, PoolName, VolumeState};

/// Plans the next jobs. Start them all, then ask again at the next event (a job ended, work came, time passed).
pub fn plan(view: &SchedView<'_>) -> Plan {
    let demands = demands(view);
    let mut planner = Planner::new(view, &demands);
    for demand in &demands {
        if let Err(why) = planner.serve(demand) {
            planner.plan.blocked.push(Blocked { want: demand.want.clone(), why });
        }
    }
    planner.put_idle_away();
    planner.plan
}

pub(crate) struct Planner<'v> {
    pub(crate) view: &'v SchedView<'v>,
    /// Drives that may still get an action.
    free: BTreeMap<DriveNo, &'v Drive>,
    /// Best demand that the volume in a free drive could serve.
    own: BTreeMap<DriveNo, &'v Demand>,
    /// Drive of each volume that is in one.
    pub(crate) drive_of: BTreeMap<&'v Barcode, &'v Drive>,
    /// Volumes that this plan uses.
    pub(crate) taken: BTreeSet<Barcode>,
    robot: bool,
    plan: Plan,
}

impl<'v> Planner<'v> {
    fn new(view: &'v SchedView<'v>, demands: &'v [Demand]) -> Self {
        let idle = |drive: &&Drive| drive.usable && !matches!(drive.state, DriveState::Busy(_));
        let free: BTreeMap<_, _> = view.drives.iter().filter(idle).map(|drive| (drive.id, drive)).collect();
        let drive_of = view.drives.iter().filter_map(|drive| Some((drive.volume()?, drive))).collect();
        let own = free
            .values()
            .filter_map(|drive| {
                let volume = drive.volume()?;
                Some((drive.id, demands.iter().find(|demand| serves(view, volume, &demand.want))?))
            })
            .collect();
        let robot = !view.robot_busy;
        Self { view, free, own, drive_of, taken: BTreeSet::new(), robot, plan: Plan::default() }
    }

    /// Whether the volume is in a drive that may still get an action.
    pub(crate) fn at_hand(&self, volume: &Barcode) -> bool {
        self.drive_of.get(volume).is_some_and(|drive| self.free.contains_key(&drive.id))
    }

    fn serve(&mut self, demand: &Demand) -> Result<(), BlockedWhy> {
        match &demand.want {
            Want::Recall(volume) => {
                if in_hand(self.view, &demand.want) {
                    return Ok(());
                }
                self.check_reachable(volume)?;
                if !self.view.volumes.get(volume).is_some_and(|tape| tape.readable()) {
                    return Err(BlockedWhy::Unreadable(volume.clone()));
                }
                let view = self.view;
                self.on_volume(demand, volume.clone(), |loaded| recall(view, loaded))
            }
            Want::Write(pool) => {
                let Pick { volume, blank } = pick_volume(self, pool)?;
                let job = if blank {
                    Job::Label { volume: volume.clone(), id: None, pool: Some(pool.clone()) }
                } else {
                    Job::Migrate { volume: volume.clone(), pool: pool.clone() }
                };
                self.on_volume(demand, volume, |_| job)
            }
            Want::Maintain(id) => {
                let Some(job) = self.view.maintenance.iter().find(|job| job.id == *id) else { return Ok(()) };
                self.check_reachable(&job.volume)?;
                self.on_volume(demand, job.volume.clone(), |_| maintain(job))
            }
        }
    }

    /// Whether the volume is in the library and not in the way of somebody else.
    fn check_reachable(&self, volume: &Barcode) -> Result<(), BlockedWhy> {
        match self.drive_of.get(volume) {
            Some(drive) if !drive.usable => Err(BlockedWhy::StuckInDrive(drive.id)),
            Some(drive) if !self.free.contains_key(&drive.id) => Err(BlockedWhy::VolumeBusy(drive.id)),
            Some(_) => Ok(()),
            None => match self.view.volumes.get(volume) {
                Some(tape) if tape.place == crate::Place::Library => Ok(()),
                _ => Err(BlockedWhy::Absent(volume.clone())),
            },
        }
    }

    /// Runs the job if the volume is mounted, else works towards mounting it.
    fn on_volume(
        &mut self,
        demand: &Demand,
        volume: Barcode,
        job: impl FnOnce(&Loaded) -> Job,
    ) -> Result<(), BlockedWhy> {
        let drive = self.drive_of.get(&volume).copied();
        if let Some((id, DriveState::Loaded(loaded))) = drive.map(|drive| (drive.id, &drive.state)) {
            let job = job(loaded);
            let why = match &job {
                Job::Label { pool: Some(pool), .. } => Why::PoolNeedsVolume { pool: pool.clone() },
                _ => self.why(demand),
            };
            self.take(id, job, Some(demand), why);
            return Ok(());
        }
        if self.taken.contains(&volume) {
            return Err(BlockedWhy::DrivesBusy);
        }
        self.fetch(demand, volume)
    }

    /// Mounts the volume in an empty drive, or begins to clear one for it.
    fn fetch(&mut self, demand: &Demand, volume: Barcode) -> Result<(), BlockedWhy> {
        let empty = self.free.values().find(|drive| drive.state == DriveState::Empty).map(|drive| drive.id);
        if let Some(id) = empty {
            self.taken.insert(volume.clone());
            if !self.robot {
                self.free.remove(&id);
                return Err(BlockedWhy::RobotBusy);
            }
            let why = self.why(demand);
            self.take(id, Job::Mount { volume }, Some(demand), why);
            return Ok(());
        }
        let Some((id, loaded)) = self.victim(demand) else {
            let usable = self.view.drives.iter().any(|drive| drive.usable);
            return Err(if usable { BlockedWhy::DrivesBusy } else { BlockedWhy::NoDrive });
        };
        self.taken.insert(volume);
        let why = Why::DriveNeeded { want: demand.want.clone() };
        self.put_away(id, loaded, Some(demand), why)
    }

    /// The mounted volume that is easiest to do without: nothing to do for longest, else of the least urgent demand.
    fn victim(&self, demand: &Demand) -> Option<(DriveNo, &'v Loaded)> {
        let loaded = self.free.values().filter_map(|drive| match &drive.state {
            DriveState::Loaded(loaded) => Some((drive.id, loaded)),
            _ => None,
        });
        let allowed = loaded.filter(|(id, loaded)| {
            let turn_over = self.view.now.since(loaded.mounted) >= self.view.limits.turn;
            self.own.get(id).is_none_or(|own| demand.may_displace(own, turn_over))
        });
        allowed.min_by_key(|(id, loaded)| match self.own.get(id) {
            None => (None, loaded.idle_since, *id),
            Some(own) => (Some((own.starving, std::cmp::Reverse(own.level))), loaded.idle_since, *id),
        })
    }

    /// Writes the index if one is due, else unmounts.
    fn put_away(
        &mut self,
        id: DriveNo,
        loaded: &Loaded,
        demand: Option<&Demand>,
        why: Why,
    ) -> Result<(), BlockedWhy> {
        let volume = loaded.volume.clone();
        if loaded.dirty && self.takes_index(&volume) {
            self.take(id, Job::WriteIndex { volume, id: None }, demand, Why::IndexBehind);
        } else if self.robot {
            self.take(id, Job::Unmount { volume }, demand, why);
        } else {
            self.free.remove(&id);
            return Err(BlockedWhy::RobotBusy);
        }
        Ok(())
    }

    /// Volumes that are still in order take an index; on others a failed attempt would only be repeated.
    fn takes_index(&self, volume: &Barcode) -> bool {
        use VolumeState as S;
        self.view
            .volumes
            .get(volume)
            .is_some_and(|tape| matches!(tape.state, S::Scratch | S::Filling | S::Full))
    }

    fn put_idle_away(&mut self) {
        for drive in self.free.clone().into_values() {
            let DriveState::Loaded(loaded) = &drive.state else { continue };
            let idle = self.view.now.since(loaded.idle_since);
            if !self.own.contains_key(&drive.id) && idle >= self.view.limits.unmount_idle {
                // Nobody is blocked by a robot that has no time for tidying up.
                let _ = self.put_away(drive.id, loaded, None, Why::Idle { idle_s: idle.as_secs() });
            }
        }
    }

    fn take(&mut self, drive: DriveNo, job: Job, demand: Option<&Demand>, why: Why) {
        if let Job::Mount { .. } | Job::Unmount { .. } = job {
            self.robot = false;
        }
        self.free.remove(&drive);
        self.plan.actions.push(Action { drive, job, want: demand.map(|demand| demand.want.clone()), why });
    }

    fn why(&self, demand: &Demand) -> Why {
        let waited_s = self.view.now.since(demand.since).as_secs();
        if demand.starving {
            return Why::Starving { waited_s, want: demand.want.clone() };
        }
        match &demand.want {
            Want::Recall(volume) => {
                let (files, bytes) =
                    self.view.recalls.get(volume).map_or((0, 0), |q| (q.len() as u64, q.bytes()));
                Why::FilesWanted { files, bytes, waited_s }
            }
            Want::Write(pool) if self.view.disk_pressure => Why::DiskPressure { pool: pool.clone() },
            Want::Write(pool) => {
                let (files, bytes) = self.view.writes.get(pool).map_or((0, 0), |b| (b.files, b.bytes));
                Why::BacklogWaits { pool: pool.clone(), files, bytes }
            }
            Want::Maintain(_) => Why::Asked,
        }
    }
}

/// Whether a mounted volume could serve a want.
fn serves(view: &SchedView<'_>, volume: &Barcode, want: &Want) -> bool {
    match want {
        Want::Recall(wanted) => {
            wanted == volume && view.volumes.get(volume).is_some_and(|tape| tape.readable())
        }
        Want::Write(pool) => view.volumes.get(volume).is_some_and(|tape| {
            tape.takes_data_of(pool) || (tape.could_take_data_of(pool) && !has_volume_at_rest(view, pool))
        }),
        Want::Maintain(id) => view.maintenance.iter().any(|job| job.id == *id && job.volume == *volume),
    }
}

/// Whether the pool has a volume of its own that takes data and is not in use: it is written before the pool grows, so
/// an empty volume that happens to be mounted must not keep its drive from it.
fn has_volume_at_rest(view: &SchedView<'_>, pool: &PoolName) -> bool {
    let busy = |volume: &Barcode| {
        view.drive_of(volume).is_some_and(|drive| !drive.usable || matches!(drive.state, DriveState::Busy(_)))
    };
    view.volumes.iter().any(|(volume, tape)| {
        tape.place == crate::Place::Library && tape.takes_data_of(pool) && !busy(volume)
    })
}

/// The next forward batch of the mounted volume.
fn recall(view: &SchedView<'_>, loaded: &Loaded) -> Job {
    let Limits { recall_batch, recall_bytes, .. } = *view.limits;
    let batch = view
        .recalls
        .get(&loaded.volume)
        .map(|queue| queue.batch(loaded.position, recall_batch, recall_bytes));
    let order = batch.unwrap_or_default().iter().map(|item| item.id).collect();
    Job::Recall { volume: loaded.volume.clone(), order }
}

fn maintain(job: &Maintenance) -> Job {
    let volume = job.volume.clone();
    match job.kind {
        MaintenanceKind::Label => Job::Label { volume, id: Some(job.id), pool: None },
        MaintenanceKind::Index => Job::WriteIndex { volume, id: Some(job.id) },
        MaintenanceKind::Check => Job::Check { volume, id: job.id },
    }
}
