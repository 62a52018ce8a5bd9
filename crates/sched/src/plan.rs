//! Matching demands with drives.

use crate::demand::{Demand, InHand, Level, Need, STEPS_OF_TURN, count, demands};
use crate::fit::{Class, Reached, Reaches};
use crate::paths::Empty;
use crate::pick::{Pick, Pools, pick_volumes};
use crate::{
    Action, Blocked, BlockedWhy, Cap, Drive, DriveState, Job, Layout, Limits, Loaded, Maintenance,
    MaintenanceKind, Plan, SchedView, Tape, Why,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use types::{Access, Barcode, DriveNo, LibraryNo, PoolName, VolumeState};

/// A volume that is wanted more rarely than once an hour need not stay in its drive.
const COLD_PER_S: f64 = 1.0 / 3600.0;

/// Turns by which the use of drives of two owners differs clearly.
const CLEARLY: u64 = 2 * STEPS_OF_TURN as u64;

/// Plans the next jobs. Start them all, then ask again at the next event (a job ended, work came, time passed).
pub fn plan(view: &SchedView<'_>) -> Plan {
    let hand = InHand::new(view);
    let demands = demands(view, &hand);
    let mut planner = Planner::new(view, &hand, &demands);
    for demand in &demands {
        // What is only brought ahead of its time does not wait for anything.
        if let Err(why) = planner.serve(demand)
            && demand.level != Level::Ahead
        {
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
    /// Those without a cartridge.
    empty: Empty,
    /// Best demand that the volume in a free drive could serve.
    own: HashMap<DriveNo, &'v Demand<'v>>,
    /// Drive of each volume that is in one.
    pub(crate) drive_of: HashMap<&'v Barcode, &'v Drive>,
    /// Volumes that this plan uses.
    pub(crate) taken: HashSet<&'v Barcode>,
    pub(crate) pools: Pools<'v>,
    /// Starving, level and priority of demands that could not displace anything: later ones of the same kind, for which the
    /// same drives would do, cannot either, and need not look at every drive again.
    hopeless: HashSet<(Kind, Class, Access)>,
    /// Which drives could take which volumes.
    reaches: Reaches<'v>,
    /// Drives that count for each cap, with those of this plan.
    caps: Vec<u32>,
    /// Drives that each owner holds: working for him, or at rest with a volume that has work of his.
    held: HashMap<u32, u32>,
    /// Drives that may go from one owner to another.
    to_share: Vec<(DriveNo, &'v Loaded)>,
    /// Drives that work towards writing, with those of this plan.
    writers: u64,
    /// Libraries whose robot moves, or will by this plan.
    robots_busy: BTreeSet<LibraryNo>,
    plan: Plan,
}

impl<'v> Planner<'v> {
    fn new(view: &'v SchedView<'v>, hand: &InHand<'v>, demands: &'v [Demand<'v>]) -> Self {
        let idle = |drive: &&Drive| drive.usable && !matches!(drive.state, DriveState::Busy(_));
        let free: BTreeMap<_, _> = view.drives.iter().filter(idle).map(|drive| (drive.id, drive)).collect();
        let mut planner = Self {
            view,
            empty: Empty::new(view),
            free,
            own: HashMap::new(),
            drive_of: view.drives.iter().filter_map(|drive| Some((drive.volume()?, drive))).collect(),
            taken: HashSet::new(),
            pools: Pools::new(view),
            hopeless: HashSet::new(),
            reaches: Reaches::new(view),
            caps: hand.caps.clone(),
            held: HashMap::new(),
            to_share: Vec::new(),
            writers: hand.writers(),
            robots_busy: view.robots_busy.clone(),
            plan: Plan::default(),
        };
        planner.own = planner.best_of_mounted(demands);
        let resting = planner.own.values().filter(|own| matches!(own.need, Need::Recall(_)));
        let mut held = hand.owners.clone();
        resting.for_each(|own| *held.entry(own.owner).or_default() += 1);
        planner.held = held;
        planner.to_share = planner.turns_over();
        planner
    }

    /// Drives whose volume has had its turn of recalls: they may go to an owner who has fewer.
    fn turns_over(&self) -> Vec<(DriveNo, &'v Loaded)> {
        let over = self.free.values().filter_map(|drive| match &drive.state {
            DriveState::Loaded(loaded) => {
                let over = self.view.now.since(loaded.mounted) >= self.view.limits.turn;
                let recalls = self.own.get(&drive.id).is_some_and(|own| matches!(own.need, Need::Recall(_)));
                (over && recalls).then_some((drive.id, loaded))
            }
            _ => None,
        });
        over.collect()
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
        let queue = match demand.need {
            Need::Recall(volume) => self.view.recalls.get(volume),
            _ => None,
        };
        let shares = queue.into_iter().flat_map(|queue| queue.shares());
        let mut others = shares.map(|share| {
            let (owner, weight) = self.view.accounts.share(share.account);
            Demand { account: share.account, owner, weight, ..*demand }
        });
        let found = others.find(|other| self.capped(other).is_none());
        found.ok_or_else(|| BlockedWhy::Limit { name: cap.name.clone(), drives: cap.drives })
    }

    /// Drives that may be used for writing.
    fn most_writers(&self) -> u64 {
        let usable = self.view.drives.iter().filter(|drive| drive.usable).count() as u64;
        usable.saturating_sub(u64::from(self.view.limits.drives_for_recall)).max(1)
    }

    /// For each free drive the first demand that the volume in it could serve.
    fn best_of_mounted(&self, demands: &'v [Demand<'v>]) -> HashMap<DriveNo, &'v Demand<'v>> {
        let mounted = self.free.values().filter_map(|drive| {
            let volume = drive.volume()?;
            let tape = self.view.volumes.get(volume)?;
            drive.takes(volume, tape, Access::Write).then_some((drive.id, tape))
        });
        let mounted: Vec<(DriveNo, &Tape)> = mounted.collect();
        let (mut own, mut pools) = (HashMap::new(), HashSet::new());
        for demand in demands {
            let drive = match demand.need {
                Need::Recall(_) => {
                    let may = demand.tape.is_some_and(Tape::readable) && self.capped(demand).is_none();
                    demand.drive.filter(|drive| {
                        let reads = drive.volume().zip(demand.tape);
                        may && reads.is_some_and(|(v, tape)| drive.takes(v, tape, Access::Read))
                    })
                }
                Need::Maintain(_) => demand.job.and_then(|job| {
                    let drive = self.drive_of.get(&job.volume).copied()?;
                    let tape = self.view.volumes.get(&job.volume)?;
                    drive.takes(&job.volume, tape, job.kind.access()).then_some(drive)
                }),
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
            let takes = || tape.is_present() && tape.takes_data_of(pool) && !busy(volume);
            takes() && self.view.reached(volume, tape, Access::Write) == Reached::Yes
        })
    }

    /// Whether the volume is in a drive that may still get an action.
    pub(crate) fn at_hand(&self, volume: &Barcode) -> bool {
        self.drive_of.get(volume).is_some_and(|drive| self.free.contains_key(&drive.id))
    }

    /// Whether some drive in use could take the volume.
    pub(crate) fn reached(&mut self, volume: &Barcode, tape: &Tape, access: Access) -> Reached {
        self.reaches.of(self.view, volume, tape, access)
    }

    /// The empty drive to take the volume.
    pub(crate) fn empty_for(&self, volume: &Barcode, tape: &Tape, access: Access) -> Option<DriveNo> {
        let refused = self.reaches.is_refused(volume);
        let takes =
            |id| !refused || self.free.get(&id).is_some_and(|drive| drive.takes(volume, tape, access));
        self.empty.best(tape, access, takes)
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
                let demand = &self.allowed(demand)?;
                let view = self.view;
                let aim = Aim { volume, access: Access::Read, drive: demand.drive };
                self.on_volume(demand, aim, |loaded| recall(view, loaded))
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
                let drive = self.drive_of.get(&job.volume).copied();
                self.check_reachable(&job.volume, drive, self.view.volumes.get(&job.volume))?;
                let aim = Aim { volume: &job.volume, access: job.kind.access(), drive };
                self.on_volume(demand, aim, |_| maintain(job))
            }
        }
    }

    /// Works towards writing the pool's backlog to this volume.
    fn write(&mut self, demand: &Demand<'v>, pool: &PoolName, pick: Pick<'v>) -> Result<(), BlockedWhy> {
        let Pick { volume, blank, grows } = pick;
        if demand.level == Level::Ahead && !blank && self.at_hand(volume) {
            self.taken.insert(volume); // it is here, and waits for its turn
            return Ok(());
        }
        let job = if blank {
            Job::Label { volume: volume.clone(), id: None, pool: Some(pool.clone()) }
        } else {
            Job::Migrate { volume: volume.clone(), pool: pool.clone() }
        };
        let aim = Aim { volume, access: Access::Write, drive: self.drive_of.get(volume).copied() };
        self.on_volume(demand, aim, |_| job)?;
        self.writers += 1;
        if grows {
            self.pools.grown(pool);
        }
        Ok(())
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
            None if tape.is_some_and(Tape::is_present) => Ok(()),
            None => Err(BlockedWhy::Absent(volume.clone())),
        }
    }

    /// Runs the job if the volume is mounted in a drive that can do it, else works towards that.
    fn on_volume(
        &mut self,
        demand: &Demand<'v>,
        aim: Aim<'v>,
        job: impl FnOnce(&Loaded) -> Job,
    ) -> Result<(), BlockedWhy> {
        let Aim { volume, access, drive } = aim;
        // Finding it among tens of thousands, for as many demands, takes longer than all the rest.
        let known = demand.tape.filter(|_| matches!(demand.need, Need::Recall(_)));
        let Some(tape) = known.or_else(|| self.view.volumes.get(volume)) else {
            return Err(BlockedWhy::Absent(volume.clone()));
        };
        if let Some((drive, DriveState::Loaded(loaded))) = drive.map(|drive| (drive, &drive.state))
            && drive.takes(volume, tape, access)
        {
            let job = job(loaded);
            let why = match &job {
                Job::Label { pool: Some(pool), .. } => Why::PoolNeedsVolume { pool: pool.clone() },
                _ => self.why(demand),
            };
            self.take(drive.id, job, Some(demand), why);
            return Ok(());
        }
        match self.reached(volume, tape, access) {
            Reached::Yes => {}
            _ if !self.view.drives.iter().any(|drive| drive.usable) => return Err(BlockedWhy::NoDrive),
            Reached::Down => return Err(BlockedWhy::DrivesDown(tape.generation)),
            Reached::Never => {
                let (volume, medium) = (volume.clone(), tape.generation);
                return Err(BlockedWhy::NoDriveFor { volume, medium, access });
            }
        }
        if let Some((id, DriveState::Loaded(loaded))) = drive.map(|drive| (drive.id, &drive.state)) {
            // Another drive has to take it.
            self.taken.insert(volume);
            return self.put_away(id, loaded, Some(demand), Why::DriveNeeded { want: demand.need.want() });
        }
        if self.taken.contains(volume) {
            return Err(BlockedWhy::DrivesBusy);
        }
        self.fetch(demand, volume, tape, access)
    }

    /// Mounts the volume in an empty drive, or begins to clear one for it.
    fn fetch(
        &mut self,
        demand: &Demand<'v>,
        volume: &'v Barcode,
        tape: &'v Tape,
        access: Access,
    ) -> Result<(), BlockedWhy> {
        if let Some(id) = self.empty_for(volume, tape, access) {
            self.empty.remove(id);
            self.taken.insert(volume);
            if tape.library().is_some_and(|library| self.robots_busy.contains(&library)) {
                self.free.remove(&id);
                return Err(BlockedWhy::RobotBusy);
            }
            let why = self.why(demand);
            self.holds_one_more(demand);
            self.take(id, Job::Mount { volume: volume.clone() }, Some(demand), why);
            return Ok(());
        }
        let Some((id, loaded)) = self.victim(demand, volume, tape, access) else {
            return Err(BlockedWhy::DrivesBusy);
        };
        self.taken.insert(volume);
        let why = Why::DriveNeeded { want: demand.need.want() };
        self.put_away(id, loaded, Some(demand), why)
    }

    /// The mounted volume that is easiest to do without: nothing to do for longest, else of the least urgent demand, else of
    /// an owner who holds more than his share.
    fn victim(
        &mut self,
        demand: &Demand<'v>,
        volume: &Barcode,
        tape: &Tape,
        access: Access,
    ) -> Option<(DriveNo, &'v Loaded)> {
        let alike = (kind(demand), tape.class(), access);
        let takes = |id: &DriveNo| self.free.get(id).is_some_and(|drive| drive.takes(volume, tape, access));
        let mut victim = None;
        if !self.hopeless.contains(&alike) {
            victim = self.weakest(demand, takes);
            if victim.is_none() && !self.reaches.is_refused(volume) {
                self.hopeless.insert(alike);
            }
        }
        let shared = || {
            let mut may = self.to_share.iter().filter(|(id, _)| self.may_share(*id, demand));
            may.find(|(id, _)| self.free.get(id).is_some_and(|drive| drive.takes(volume, tape, access)))
                .copied()
        };
        let (id, loaded) = victim.or_else(shared)?;
        if let Some(own) = self.own.get(&id).filter(|own| matches!(own.need, Need::Recall(_))) {
            self.held.entry(own.owner).and_modify(|drives| *drives = drives.saturating_sub(1));
        }
        self.holds_one_more(demand);
        Some((id, loaded))
    }

    fn weakest(
        &self,
        demand: &Demand<'v>,
        takes: impl Fn(&DriveNo) -> bool,
    ) -> Option<(DriveNo, &'v Loaded)> {
        let loaded = self.free.values().filter_map(|drive| match &drive.state {
            DriveState::Loaded(loaded) => Some((drive.id, loaded)),
            _ => None,
        });
        let allowed = loaded.filter(|(id, loaded)| {
            if !takes(id) {
                return false;
            }
            let turn_over = self.view.now.since(loaded.mounted) >= self.view.limits.turn;
            let own = self.own.get(id);
            own.map_or_else(|| !self.is_held(demand, loaded), |own| demand.may_displace(own, turn_over))
        });
        allowed.min_by_key(|(id, loaded)| match self.own.get(id) {
            None => (None, loaded.idle_since, *id),
            Some(own) => (Some((own.starving, std::cmp::Reverse(own.level))), loaded.idle_since, *id),
        })
    }

    /// Whether this drive, whose volume has had its turn, may go to the owner of the demand.
    fn may_share(&self, id: DriveNo, demand: &Demand<'_>) -> bool {
        self.free.contains_key(&id) && self.own.get(&id).is_some_and(|own| self.is_fairer(demand, own))
    }

    fn holds_one_more(&mut self, demand: &Demand<'_>) {
        if let Need::Recall(_) = demand.need {
            *self.held.entry(demand.owner).or_default() += 1;
        }
    }

    /// Whether the owner of a demand would still hold fewer drives than the other, for his weight, if he took one of his; or
    /// hardly more, and he has had clearly less so far.
    fn is_fairer(&self, demand: &Demand<'_>, other: &Demand<'_>) -> bool {
        let alike = |d: &Demand<'_>| (d.starving, d.level, d.priority, d.due.is_some());
        if demand.level != Level::Recall || demand.starving || alike(demand) != alike(other) {
            return false;
        }
        let drives = |d: &Demand<'_>| f64::from(self.held.get(&d.owner).copied().unwrap_or(0));
        let (mine, his) = ((drives(demand) + 1.0) / demand.weight, drives(other) / other.weight);
        let had_less = demand.had.saturating_add(CLEARLY) < other.had;
        let hardly_more = mine <= his + 1.0 / demand.weight.min(other.weight);
        demand.owner != other.owner && (mine < his || (had_less && hardly_more))
    }

    /// Whether a volume at rest is wanted so often that the next wish is likely to come before its cartridge would be back:
    /// then it keeps its drive against others, for one turn.
    fn is_held(&self, demand: &Demand<'_>, loaded: &Loaded) -> bool {
        let (view, limits) = (self.view, self.view.limits);
        let presses = demand.starving || demand.level == Level::PressedWrite;
        let turn_over = view.now.since(loaded.mounted) >= limits.turn;
        !presses && !turn_over && view.heat.of(&loaded.volume, view.now) * limits.exchange.as_secs_f64() > 1.0
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
            self.free.remove(&id);
            return Err(BlockedWhy::RobotBusy);
        }
        Ok(())
    }

    /// Volumes that are still in order take an index, in a drive that writes them; on others a failed attempt would only be
    /// repeated.
    fn takes_index(&self, id: DriveNo, volume: &Barcode) -> bool {
        use VolumeState as S;
        let Some(tape) = self.view.volumes.get(volume) else { return false };
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
            let due = idle >= self.view.limits.unmount_idle && !stays;
            if !self.own.contains_key(&drive.id) && due {
                // Nobody is blocked by a robot that has no time for tidying up.
                let _ = self.put_away(drive.id, loaded, None, Why::Idle { idle_s: idle.as_secs() });
            }
        }
    }

    fn take(&mut self, drive: DriveNo, job: Job, demand: Option<&Demand<'v>>, why: Why) {
        if let (Job::Mount { .. } | Job::Unmount { .. }, Some(drive)) = (&job, self.free.get(&drive)) {
            self.robots_busy.insert(drive.library);
        }
        self.free.remove(&drive);
        let want = demand.map(|demand| demand.need.want());
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

/// A volume, what is to be done with it, and the drive that it is in.
#[derive(Clone, Copy)]
struct Aim<'v> {
    volume: &'v Barcode,
    access: Access,
    drive: Option<&'v Drive>,
}

/// What decides, with its age, which mounted volumes a demand may displace: starving, level, priority, due.
type Kind = (bool, Level, u8, bool);

fn kind(demand: &Demand<'_>) -> Kind {
    (demand.starving, demand.level, demand.priority, demand.due.is_some())
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
