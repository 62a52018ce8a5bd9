//! Matching demands with drives.

use crate::demand::{Demand, InHand, Level, Need, demands};
use crate::pick::{Pick, Pools, pick_volume};
use crate::{
    Action, Blocked, BlockedWhy, Drive, DriveState, Job, Layout, Limits, Loaded, Maintenance,
    MaintenanceKind, Plan, SchedView, Tape, Why,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use types::{Barcode, DriveNo, PoolName, VolumeState};

/// Plans the next jobs. Start them all, then ask again at the next event (a job ended, work came, time passed).
pub fn plan(view: &SchedView<'_>) -> Plan {
    let hand = InHand::new(view);
    let demands = demands(view, &hand);
    let mut planner = Planner::new(view, &demands);
    for demand in &demands {
        if let Err(why) = planner.serve(demand) {
            planner.plan.blocked.push(Blocked { want: demand.need.want(), why });
        }
    }
    planner.put_idle_away();
    planner.plan
}

pub(crate) struct Planner<'v> {
    pub(crate) view: &'v SchedView<'v>,
    /// Drives that may still get an action.
    free: BTreeMap<DriveNo, &'v Drive>,
    /// Those without a cartridge, last first.
    empty: Vec<DriveNo>,
    /// Best demand that the volume in a free drive could serve.
    own: HashMap<DriveNo, &'v Demand<'v>>,
    /// Drive of each volume that is in one.
    pub(crate) drive_of: HashMap<&'v Barcode, &'v Drive>,
    /// Volumes that this plan uses.
    pub(crate) taken: HashSet<&'v Barcode>,
    pub(crate) pools: Pools<'v>,
    /// Starving, level and priority of demands that could not displace anything: later ones of the same kind cannot
    /// either, and need not look at every drive again.
    hopeless: HashSet<(bool, Level, u8)>,
    robot: bool,
    /// Some drive is.
    usable: bool,
    plan: Plan,
}

impl<'v> Planner<'v> {
    fn new(view: &'v SchedView<'v>, demands: &'v [Demand<'v>]) -> Self {
        let idle = |drive: &&Drive| drive.usable && !matches!(drive.state, DriveState::Busy(_));
        let free: BTreeMap<_, _> = view.drives.iter().filter(idle).map(|drive| (drive.id, drive)).collect();
        let empty = free.values().rev().filter(|drive| drive.state == DriveState::Empty);
        let mut planner = Self {
            view,
            empty: empty.map(|drive| drive.id).collect(),
            free,
            own: HashMap::new(),
            drive_of: view.drives.iter().filter_map(|drive| Some((drive.volume()?, drive))).collect(),
            taken: HashSet::new(),
            pools: Pools::new(view),
            hopeless: HashSet::new(),
            robot: !view.robot_busy,
            usable: view.drives.iter().any(|drive| drive.usable),
            plan: Plan::default(),
        };
        planner.own = planner.best_of_mounted(demands);
        planner
    }

    /// For each free drive the first demand that the volume in it could serve.
    fn best_of_mounted(&self, demands: &'v [Demand<'v>]) -> HashMap<DriveNo, &'v Demand<'v>> {
        let mounted = self.free.values().filter_map(|drive| {
            let volume = drive.volume()?;
            Some((drive.id, self.view.volumes.get(volume)?))
        });
        let mounted: Vec<(DriveNo, &Tape)> = mounted.collect();
        let (mut own, mut pools) = (HashMap::new(), HashSet::new());
        for demand in demands {
            let drive = match demand.need {
                Need::Recall(_) => demand.drive.filter(|_| demand.tape.is_some_and(Tape::readable)),
                Need::Maintain(_) => demand.job.and_then(|job| self.drive_of.get(&job.volume).copied()),
                Need::Write(pool) => {
                    if pools.insert(pool) {
                        let at_rest = self.has_volume_at_rest(pool);
                        let serves = |tape: &Tape| {
                            tape.takes_data_of(pool) || (tape.could_take_data_of(pool) && !at_rest)
                        };
                        for (id, _) in mounted.iter().filter(|(_, tape)| serves(tape)) {
                            own.entry(*id).or_insert(demand);
                        }
                    }
                    None
                }
            };
            if let Some(drive) = drive.filter(|drive| self.free.contains_key(&drive.id)) {
                own.entry(drive.id).or_insert(demand);
            }
        }
        own
    }

    /// Whether the pool has a volume of its own that takes data and is not in use: it is written before the pool grows, so
    /// an empty volume that happens to be mounted must not keep its drive from it.
    fn has_volume_at_rest(&self, pool: &PoolName) -> bool {
        let busy = |volume: &Barcode| {
            let drive = self.drive_of.get(volume);
            drive.is_some_and(|drive| !drive.usable || matches!(drive.state, DriveState::Busy(_)))
        };
        self.pools.members(pool).iter().any(|(volume, tape)| {
            tape.place == crate::Place::Library && tape.takes_data_of(pool) && !busy(volume)
        })
    }

    /// Whether the volume is in a drive that may still get an action.
    pub(crate) fn at_hand(&self, volume: &Barcode) -> bool {
        self.drive_of.get(volume).is_some_and(|drive| self.free.contains_key(&drive.id))
    }

    fn serve(&mut self, demand: &Demand<'v>) -> Result<(), BlockedWhy> {
        match demand.need {
            Need::Recall(volume) => {
                if demand.in_hand {
                    return Ok(());
                }
                self.check_reachable(volume, demand.drive, demand.tape)?;
                if !demand.tape.is_some_and(Tape::readable) {
                    return Err(BlockedWhy::Unreadable(volume.clone()));
                }
                let view = self.view;
                self.on_volume(demand, volume, demand.drive, |loaded| recall(view, loaded))
            }
            Need::Write(pool) => {
                let Pick { volume, blank, grows } = pick_volume(self, pool)?;
                let job = if blank {
                    Job::Label { volume: volume.clone(), id: None, pool: Some(pool.clone()) }
                } else {
                    Job::Migrate { volume: volume.clone(), pool: pool.clone() }
                };
                let drive = self.drive_of.get(volume).copied();
                self.on_volume(demand, volume, drive, |_| job)?;
                if grows {
                    self.pools.grown(pool);
                }
                Ok(())
            }
            Need::Maintain(_) => {
                let Some(job) = demand.job else { return Ok(()) };
                let drive = self.drive_of.get(&job.volume).copied();
                self.check_reachable(&job.volume, drive, self.view.volumes.get(&job.volume))?;
                self.on_volume(demand, &job.volume, drive, |_| maintain(job))
            }
        }
    }

    /// Whether the volume is in the library and not in the way of somebody else.
    fn check_reachable(
        &self,
        volume: &Barcode,
        drive: Option<&Drive>,
        tape: Option<&Tape>,
    ) -> Result<(), BlockedWhy> {
        match drive {
            Some(drive) if !drive.usable => Err(BlockedWhy::StuckInDrive(drive.id)),
            Some(drive) if !self.free.contains_key(&drive.id) => Err(BlockedWhy::VolumeBusy(drive.id)),
            Some(_) => Ok(()),
            None if tape.is_some_and(|tape| tape.place == crate::Place::Library) => Ok(()),
            None => Err(BlockedWhy::Absent(volume.clone())),
        }
    }

    /// Runs the job if the volume is mounted, else works towards mounting it.
    fn on_volume(
        &mut self,
        demand: &Demand<'v>,
        volume: &'v Barcode,
        drive: Option<&'v Drive>,
        job: impl FnOnce(&Loaded) -> Job,
    ) -> Result<(), BlockedWhy> {
        if let Some((id, DriveState::Loaded(loaded))) = drive.map(|drive| (drive.id, &drive.state)) {
            let job = job(loaded);
            let why = match &job {
                Job::Label { pool: Some(pool), .. } => Why::PoolNeedsVolume { pool: pool.clone() },
                _ => self.why(demand),
            };
            self.take(id, job, Some(demand), why);
            return Ok(());
        }
        let hopeless = self.empty.is_empty() && self.hopeless.contains(&kind(demand));
        if hopeless || self.taken.contains(volume) {
            return Err(if self.usable { BlockedWhy::DrivesBusy } else { BlockedWhy::NoDrive });
        }
        self.fetch(demand, volume)
    }

    /// Mounts the volume in an empty drive, or begins to clear one for it.
    fn fetch(&mut self, demand: &Demand<'v>, volume: &'v Barcode) -> Result<(), BlockedWhy> {
        if let Some(id) = self.empty.pop() {
            self.taken.insert(volume);
            if !self.robot {
                self.free.remove(&id);
                return Err(BlockedWhy::RobotBusy);
            }
            let why = self.why(demand);
            self.take(id, Job::Mount { volume: volume.clone() }, Some(demand), why);
            return Ok(());
        }
        let Some((id, loaded)) = self.victim(demand) else {
            return Err(if self.usable { BlockedWhy::DrivesBusy } else { BlockedWhy::NoDrive });
        };
        self.taken.insert(volume);
        let why = Why::DriveNeeded { want: demand.need.want() };
        self.put_away(id, loaded, Some(demand), why)
    }

    /// The mounted volume that is easiest to do without: nothing to do for longest, else of the least urgent demand.
    fn victim(&mut self, demand: &Demand<'v>) -> Option<(DriveNo, &'v Loaded)> {
        let loaded = self.free.values().filter_map(|drive| match &drive.state {
            DriveState::Loaded(loaded) => Some((drive.id, loaded)),
            _ => None,
        });
        let allowed = loaded.filter(|(id, loaded)| {
            let turn_over = self.view.now.since(loaded.mounted) >= self.view.limits.turn;
            self.own.get(id).is_none_or(|own| demand.may_displace(own, turn_over))
        });
        let victim = allowed.min_by_key(|(id, loaded)| match self.own.get(id) {
            None => (None, loaded.idle_since, *id),
            Some(own) => (Some((own.starving, std::cmp::Reverse(own.level))), loaded.idle_since, *id),
        });
        if victim.is_none() {
            self.hopeless.insert(kind(demand));
        }
        victim
    }

    /// Writes the index if one is due, else unmounts.
    fn put_away(
        &mut self,
        id: DriveNo,
        loaded: &Loaded,
        demand: Option<&Demand<'v>>,
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
            .is_some_and(|tape| matches!(tape.state, S::Scratch | S::Filling | S::Full | S::Repacking))
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

    fn take(&mut self, drive: DriveNo, job: Job, demand: Option<&Demand<'v>>, why: Why) {
        if let Job::Mount { .. } | Job::Unmount { .. } = job {
            self.robot = false;
        }
        self.free.remove(&drive);
        self.plan.actions.push(Action { drive, job, want: demand.map(|demand| demand.need.want()), why });
    }

    fn why(&self, demand: &Demand<'v>) -> Why {
        let waited_s = self.view.now.since(demand.since).as_secs();
        if demand.starving {
            return Why::Starving { waited_s, want: demand.need.want() };
        }
        match demand.need {
            Need::Recall(volume) => {
                let (files, bytes) =
                    self.view.recalls.get(volume).map_or((0, 0), |q| (q.len() as u64, q.bytes()));
                Why::FilesWanted { files, bytes, waited_s }
            }
            Need::Write(pool) if self.view.disk_pressure => Why::DiskPressure { pool: pool.clone() },
            Need::Write(pool) => {
                let (files, bytes) = self.view.writes.get(pool).map_or((0, 0), |b| (b.files, b.bytes));
                Why::BacklogWaits { pool: pool.clone(), files, bytes }
            }
            Need::Maintain(_) => Why::Asked,
        }
    }
}

/// What decides, with its age, which mounted volumes a demand may displace.
fn kind(demand: &Demand<'_>) -> (bool, Level, u8) {
    (demand.starving, demand.level, demand.priority)
}

/// The next batch of the mounted volume, in order of blocks.
fn recall(view: &SchedView<'_>, loaded: &Loaded) -> Job {
    let Limits { recall_batch: most, recall_bytes: bytes, .. } = *view.limits;
    let batch =
        view.recalls.get(&loaded.volume).map(|queue| match view.mechanics_of(&loaded.volume).layout {
            Layout::Line { .. } => queue.batch(loaded.position, most, bytes),
            Layout::Wraps(_) => queue.batch_around(loaded.position, most),
        });
    let order = batch.unwrap_or_default().iter().map(|item| item.id).collect();
    Job::Recall { volume: loaded.volume.clone(), order }
}

fn maintain(job: &Maintenance) -> Job {
    let volume = job.volume.clone();
    match job.kind {
        MaintenanceKind::Label => Job::Label { volume, id: Some(job.id), pool: None },
        MaintenanceKind::Index => Job::WriteIndex { volume, id: Some(job.id) },
        MaintenanceKind::Check | MaintenanceKind::Verify => Job::Check { volume, id: job.id },
    }
}
