//! Matching demands with drives.

use crate::demand::{Demand, InHand, Level, Need, count, demands};
use crate::fit::{Reached, Reaches};
use crate::paths::Empty;
use crate::pick::{Pick, Pools, pick_volumes};
use crate::rest::AtRest;
use crate::volumes::{Volume, Volumes};
use crate::{
    Action, Blocked, BlockedWhy, Cap, Drive, DriveState, Job, Layout, Limits, Loaded, Maintenance,
    MaintenanceKind, Plan, SchedView, Tape, Why,
};
use std::collections::{BTreeMap, BTreeSet};
use types::{Access, Barcode, DriveNo, LibraryNo, PoolName, VolumeState};

/// A volume that is wanted more rarely than once an hour need not stay in its drive.
const COLD_PER_S: f64 = 1.0 / 3600.0;

/// Plans the next jobs. Start them all, then ask again at the next event (a job ended, work came, time passed).
pub fn plan(view: &SchedView<'_>) -> Plan {
    let hand = InHand::new(view);
    let volumes = Volumes::new(view, &hand);
    let demands = demands(view, &hand, &volumes);
    let mut planner = Planner::new(view, &hand, &volumes, &demands);
    planner.plan.blocked.reserve(demands.len());
    for demand in &demands {
        // What is only brought ahead of its time does not wait for anything.
        if let Err(why) = planner.serve(demand)
            && demand.level != Level::Ahead
        {
            planner.plan.blocked.push(Blocked { want: demand.want(), why });
        }
    }
    planner.put_idle_away();
    planner.plan
}

pub(crate) struct Planner<'v> {
    pub(crate) view: &'v SchedView<'v>,
    pub(crate) volumes: &'v Volumes<'v>,
    /// Drives that may still get an action.
    free: BTreeMap<DriveNo, &'v Drive>,
    /// Those without a cartridge.
    empty: Empty,
    /// Those with one.
    pub(crate) rest: AtRest<'v>,
    /// Best demand that the volume in a free drive could serve.
    own: BTreeMap<DriveNo, &'v Demand<'v>>,
    /// Volumes that this plan uses, by number.
    taken: Vec<bool>,
    pub(crate) pools: Pools<'v>,
    /// Which drives could take which volumes.
    reaches: Reaches,
    /// Drives that count for each cap, with those of this plan.
    caps: Vec<u32>,
    /// Drives that are in use.
    usable: u64,
    /// Drives that work towards writing, with those of this plan.
    writers: u64,
    /// Libraries whose robot moves, or will by this plan.
    robots_busy: BTreeSet<LibraryNo>,
    plan: Plan,
}

impl<'v> Planner<'v> {
    fn new(
        view: &'v SchedView<'v>,
        hand: &InHand<'v>,
        volumes: &'v Volumes<'v>,
        demands: &'v [Demand<'v>],
    ) -> Self {
        let idle = |drive: &&Drive| drive.usable && !matches!(drive.state, DriveState::Busy(_));
        let mut planner = Self {
            view,
            volumes,
            free: view.drives.iter().filter(idle).map(|drive| (drive.id, drive)).collect(),
            empty: Empty::new(view),
            rest: AtRest::default(),
            own: BTreeMap::new(),
            taken: vec![false; volumes.all().len()],
            pools: Pools::new(view, volumes),
            reaches: Reaches::default(),
            caps: hand.caps.clone(),
            usable: view.drives.iter().filter(|drive| drive.usable).count() as u64,
            writers: hand.writers(),
            robots_busy: view.robots_busy.clone(),
            plan: Plan::default(),
        };
        planner.own = planner.best_of_mounted(demands);
        planner.rest = AtRest::new(view, hand, planner.free.values().copied(), &planner.own);
        planner
    }

    /// The first cap that does not allow one more drive for this demand.
    fn capped(&self, demand: &Demand<'_>) -> Option<&'v Cap> {
        let caps = &self.view.accounts.caps;
        let full = |cap: &&usize| {
            caps.get(**cap).is_some_and(|c| self.caps.get(**cap).is_some_and(|drives| *drives >= c.drives))
        };
        caps.get(*self.view.accounts.caps_of(demand.account).iter().find(full)?)
    }

    /// The demand, put down to somebody whose limits allow it.
    fn allowed(&self, demand: &Demand<'v>) -> Result<Demand<'v>, BlockedWhy> {
        let Some(cap) = self.capped(demand) else { return Ok(*demand) };
        let shares = demand.queue.into_iter().flat_map(|queue| queue.shares());
        let mut others = shares.map(|share| {
            let (owner, weight) = self.view.accounts.share(share.account);
            Demand { account: share.account, owner, weight, ..*demand }
        });
        let found = others.find(|other| self.capped(other).is_none());
        found.ok_or_else(|| BlockedWhy::Limit { name: cap.name.clone(), drives: cap.drives })
    }

    /// Drives that may be used for writing.
    fn most_writers(&self) -> u64 {
        self.usable.saturating_sub(u64::from(self.view.limits.drives_for_recall)).max(1)
    }

    /// For each free drive the first demand that the volume in it could serve.
    fn best_of_mounted(&mut self, demands: &'v [Demand<'v>]) -> BTreeMap<DriveNo, &'v Demand<'v>> {
        let mounted = self.free.values().filter_map(|drive| {
            let volume = self.volumes.get(drive.volume()?)?;
            drive.takes(&volume.name, volume.tape, Access::Write).then_some((drive.id, volume.tape))
        });
        let mounted: Vec<(DriveNo, &Tape)> = mounted.collect();
        let (mut own, mut pools) = (BTreeMap::new(), BTreeSet::new());
        for demand in demands {
            let access = match demand.need {
                Need::Recall(_) => Access::Read,
                Need::Maintain(_) => demand.job.map_or(Access::Read, |job| job.kind.access()),
                Need::Write(pool) => {
                    if pools.insert(pool) {
                        let at_rest = self.has_volume_at_rest(pool);
                        let worm = self.view.writes.get(pool).is_some_and(|backlog| backlog.worm);
                        let serves = |tape: &Tape| {
                            tape.takes_data_of(pool) || (tape.could_take_data_of(pool, worm) && !at_rest)
                        };
                        for (id, _) in mounted.iter().filter(|(_, tape)| serves(tape)) {
                            own.entry(*id).or_insert(demand);
                        }
                    }
                    continue;
                }
            };
            let Some((drive, volume)) = demand.drive.zip(demand.volume) else { continue };
            let recall = matches!(demand.need, Need::Recall(_));
            let may = !recall || (volume.readable && self.capped(demand).is_none());
            if may && self.free.contains_key(&drive.id) && drive.takes(&volume.name, volume.tape, access) {
                own.entry(drive.id).or_insert(demand);
            }
        }
        own
    }

    /// Whether the pool has a volume of its own that takes data and is not in use: it is written before the pool grows, so
    /// an empty volume that happens to be mounted must not keep its drive from it.
    fn has_volume_at_rest(&mut self, pool: &PoolName) -> bool {
        let busy = |drive: &Drive| !drive.usable || matches!(drive.state, DriveState::Busy(_));
        let (view, reaches) = (self.view, &mut self.reaches);
        self.pools.open(pool).iter().any(|volume| {
            let takes = volume.is_present() && volume.tape.takes_data_of(pool);
            takes
                && !volume.drive.is_some_and(busy)
                && reaches.of(view, volume, Access::Write) == Reached::Yes
        })
    }

    /// Whether the volume is in a drive that may still get an action.
    pub(crate) fn at_hand(&self, volume: &Volume<'_>) -> bool {
        volume.drive.is_some_and(|drive| self.free.contains_key(&drive.id))
    }

    /// Whether this plan uses the volume already.
    pub(crate) fn is_taken(&self, volume: &Volume<'_>) -> bool {
        self.taken.get(volume.no as usize).copied().unwrap_or(false)
    }

    fn take_volume(&mut self, volume: &Volume<'_>) {
        if let Some(taken) = self.taken.get_mut(volume.no as usize) {
            *taken = true;
        }
    }

    /// Whether some drive in use could take the volume.
    pub(crate) fn reached(&mut self, volume: &Volume<'_>, access: Access) -> Reached {
        self.reaches.of(self.view, volume, access)
    }

    /// The empty drive to take the volume.
    pub(crate) fn empty_for(&mut self, volume: &Volume<'_>, access: Access) -> Option<DriveNo> {
        let takes =
            |id| self.free.get(&id).is_some_and(|drive| drive.takes(&volume.name, volume.tape, access));
        self.empty.best(volume, access, takes)
    }

    /// A drive gets no action any more.
    fn gone(&mut self, id: DriveNo) -> Option<&'v Drive> {
        let drive = self.free.remove(&id)?;
        match drive.state {
            DriveState::Empty => self.empty.remove(drive),
            _ => self.rest.remove(id),
        }
        Some(drive)
    }

    fn serve(&mut self, demand: &Demand<'v>) -> Result<(), BlockedWhy> {
        match demand.need {
            Need::Recall(name) => {
                if demand.in_hand {
                    return Ok(());
                }
                self.check_reachable(name, demand)?;
                let Some(volume) = demand.volume.filter(|volume| volume.readable) else {
                    return Err(BlockedWhy::Unreadable(name.clone()));
                };
                let demand = &self.allowed(demand)?;
                let view = self.view;
                self.on_volume(demand, volume, Access::Read, |loaded| recall(view, loaded))
            }
            Need::Write(pool) => {
                if self.writers >= self.most_writers() && self.view.limits.drives_for_recall > 0 {
                    return Err(BlockedWhy::Reserved(self.view.limits.drives_for_recall));
                }
                let mut why = BlockedWhy::DrivesBusy;
                for pick in pick_volumes(self, pool)? {
                    match self.write(demand, pool, pick) {
                        // Another kind of medium may have a drive.
                        Err(BlockedWhy::DrivesBusy) => {}
                        Err(BlockedWhy::DrivesDown(medium)) => why = BlockedWhy::DrivesDown(medium),
                        done => return done,
                    }
                }
                Err(why)
            }
            Need::Maintain(_) => {
                let Some(job) = demand.job else { return Ok(()) };
                self.check_reachable(&job.volume, demand)?;
                let Some(volume) = demand.volume else {
                    return Err(BlockedWhy::Absent(job.volume.clone()));
                };
                self.on_volume(demand, volume, job.kind.access(), |_| maintain(job))
            }
        }
    }

    /// Works towards writing the pool's backlog to this volume.
    fn write(&mut self, demand: &Demand<'v>, pool: &PoolName, pick: Pick<'v>) -> Result<(), BlockedWhy> {
        let Pick { volume, blank, grows } = pick;
        if demand.level == Level::Ahead && !blank && self.at_hand(volume) {
            self.take_volume(volume); // it is here, and waits for its turn
            return Ok(());
        }
        let job = |_: &Loaded| {
            let (volume, pool) = (volume.name.clone(), pool.clone());
            if blank {
                Job::Label { volume, id: None, pool: Some(pool) }
            } else {
                Job::Migrate { volume, pool }
            }
        };
        self.on_volume(demand, volume, Access::Write, job)?;
        self.writers += 1;
        if grows {
            self.pools.grown(pool);
        }
        Ok(())
    }

    /// Whether the volume is in the library and not in the way of somebody else.
    fn check_reachable(&self, name: &Barcode, demand: &Demand<'_>) -> Result<(), BlockedWhy> {
        match demand.drive {
            Some(drive) if !drive.usable => Err(BlockedWhy::StuckInDrive(drive.id)),
            Some(drive) if !self.free.contains_key(&drive.id) => Err(BlockedWhy::VolumeBusy(drive.id)),
            Some(_) => Ok(()),
            None if demand.volume.is_some_and(|volume| volume.is_present()) => Ok(()),
            None => Err(BlockedWhy::Absent(name.clone())),
        }
    }

    /// Runs the job if the volume is mounted in a drive that can do it, else works towards that.
    fn on_volume(
        &mut self,
        demand: &Demand<'v>,
        volume: &'v Volume<'v>,
        access: Access,
        job: impl FnOnce(&Loaded) -> Job,
    ) -> Result<(), BlockedWhy> {
        let mounted = volume.drive.and_then(|drive| match &drive.state {
            DriveState::Loaded(loaded) => Some((drive, loaded)),
            _ => None,
        });
        if let Some((drive, loaded)) = mounted
            && drive.takes(&volume.name, volume.tape, access)
        {
            let job = job(loaded);
            let why = match &job {
                Job::Label { pool: Some(pool), .. } => Why::PoolNeedsVolume { pool: pool.clone() },
                _ => self.why(demand),
            };
            self.take(drive.id, job, Some(demand), why);
            return Ok(());
        }
        match self.reached(volume, access) {
            Reached::Yes => {}
            _ if self.usable == 0 => return Err(BlockedWhy::NoDrive),
            Reached::Down => return Err(BlockedWhy::DrivesDown(volume.tape.generation)),
            Reached::Never => {
                let (volume, medium) = (volume.name.clone(), volume.tape.generation);
                return Err(BlockedWhy::NoDriveFor { volume, medium, access });
            }
        }
        if let Some((drive, loaded)) = mounted {
            // Another drive has to take it.
            self.take_volume(volume);
            let why = Why::DriveNeeded { want: demand.want() };
            return self.put_away(drive.id, loaded, Some(demand), why);
        }
        if self.is_taken(volume) {
            return Err(BlockedWhy::DrivesBusy);
        }
        self.fetch(demand, volume, access)
    }

    /// Mounts the volume in an empty drive, or begins to clear one for it.
    fn fetch(
        &mut self,
        demand: &Demand<'v>,
        volume: &'v Volume<'v>,
        access: Access,
    ) -> Result<(), BlockedWhy> {
        if let Some(id) = self.empty_for(volume, access) {
            self.take_volume(volume);
            if volume.class.0.is_some_and(|library| self.robots_busy.contains(&library)) {
                self.gone(id);
                return Err(BlockedWhy::RobotBusy);
            }
            let why = self.why(demand);
            self.rest.holds_one_more(demand);
            self.take(id, Job::Mount { volume: volume.name.clone() }, Some(demand), why);
            return Ok(());
        }
        let Some((id, loaded)) = self.rest.victim(demand, volume, access) else {
            return Err(BlockedWhy::DrivesBusy);
        };
        self.take_volume(volume);
        let why = Why::DriveNeeded { want: demand.want() };
        self.put_away(id, loaded, Some(demand), why)
    }

    /// Whether it pays to leave a volume at rest in its drive: it is wanted more often than all that would have to wait until
    /// it is taken out, which is nothing while another drive is empty.
    fn is_warm(&self, drive: &Drive, loaded: &Loaded) -> bool {
        let (heat, now) = (self.view.heat, self.view.now);
        let wanted = heat.of(&loaded.volume, now);
        let others = !self.empty.any_in(drive.library);
        let in_the_way = if others { heat.of_others(&loaded.volume, now) } else { 0.0 };
        !self.view.limits.exchange.is_zero() && wanted > in_the_way.max(COLD_PER_S)
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
        if loaded.dirty && self.takes_index(id, &volume) {
            self.take(id, Job::WriteIndex { volume, id: None }, demand, Why::IndexBehind);
        } else if !self.free.get(&id).is_some_and(|drive| self.robots_busy.contains(&drive.library)) {
            self.take(id, Job::Unmount { volume }, demand, why);
        } else {
            self.gone(id);
            return Err(BlockedWhy::RobotBusy);
        }
        Ok(())
    }

    /// Volumes that are still in order take an index, in a drive that writes them; on others a failed attempt would only be
    /// repeated.
    fn takes_index(&self, id: DriveNo, volume: &Barcode) -> bool {
        use VolumeState as S;
        let Some(tape) = self.volumes.get(volume).map(|volume| volume.tape) else { return false };
        let drive = self.free.get(&id);
        matches!(tape.state, S::Scratch | S::Filling | S::Full | S::Repacking)
            && drive.is_some_and(|drive| drive.takes(volume, tape, Access::Write))
    }

    fn put_idle_away(&mut self) {
        for drive in self.free.clone().into_values() {
            let DriveState::Loaded(loaded) = &drive.state else { continue };
            let idle = self.view.now.since(loaded.idle_since);
            // What stays in its drive gets its index all the same.
            let stays =
                self.is_warm(drive, loaded) && !(loaded.dirty && self.takes_index(drive.id, &loaded.volume));
            // Nobody comes back to it, and an operator may stand before the library to take it out.
            let over = self.view.volumes.get(&loaded.volume).is_some_and(Tape::is_out_of_use);
            let due = over || (idle >= self.view.limits.unmount_idle && !stays);
            if !self.own.contains_key(&drive.id) && due {
                // Nobody is blocked by a robot that has no time for tidying up.
                let _ = self.put_away(drive.id, loaded, None, Why::Idle { idle_s: idle.as_secs() });
            }
        }
    }

    fn take(&mut self, drive: DriveNo, job: Job, demand: Option<&Demand<'v>>, why: Why) {
        if let (Some(drive), Job::Mount { .. } | Job::Unmount { .. }) = (self.gone(drive), &job) {
            self.robots_busy.insert(drive.library);
        }
        let want = demand.map(|demand| demand.want());
        let charge = demand.filter(|d| matches!(d.need, Need::Recall(_))).map(|d| d.account);
        if let Some(account) = charge {
            count(self.view, account, &mut self.caps);
        }
        self.plan.actions.push(Action { drive, job, want, charge, why });
    }

    fn why(&self, demand: &Demand<'v>) -> Why {
        let waited_s = self.view.now.since(demand.since).as_secs();
        if let (Level::Ahead, Need::Write(pool)) = (demand.level, demand.need) {
            return Why::NextVolume { pool: pool.clone() };
        }
        if demand.starving {
            return Why::Starving { waited_s, want: demand.want() };
        }
        match demand.need {
            Need::Recall(_) => {
                let (files, bytes) = demand.queue.map_or((0, 0), |q| (q.len() as u64, q.bytes()));
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
