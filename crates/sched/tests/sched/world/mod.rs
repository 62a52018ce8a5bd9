//! A toy library that runs plans: time jumps from event to event, and every rule is checked on the way.
#![allow(dead_code)]

use sched::*;
use std::collections::BTreeMap;
use std::time::Duration;
use types::*;

pub const ROBOT_S: u64 = 10;

pub struct World {
    pub now: u64,
    pub drives: Vec<Drive>,
    pub tapes: BTreeMap<Barcode, Tape>,
    pub recalls: BTreeMap<Barcode, RecallQueue>,
    pub writes: BTreeMap<PoolName, Backlog>,
    pub jobs: Vec<Maintenance>,
    pub pressure: bool,
    pub robots_troubled: std::collections::BTreeSet<LibraryNo>,
    pub limits: Limits,
    pub mechanics: Mechanics,
    pub accounts: Accounts,
    pub heat: Heat,
    running: Vec<Running>,
    /// Items read, in order.
    pub read: Vec<u64>,
    /// Times that a mounted tape went back.
    pub backward: u64,
    pub mounts: u64,
    /// Longest time from asking to reading (seconds).
    pub longest_wait: u64,
    /// Time of drives that worked for each owner (seconds).
    pub served: BTreeMap<u32, f64>,
    /// (time, drive, action) as begun.
    pub log: Vec<(u64, Action)>,
}

/// A job that runs, with what was in the drive before.
struct Running {
    end: u64,
    action: Action,
    kept: Option<Loaded>,
}

pub fn at(s: u64) -> Time {
    Time::new(s as i64, 0)
}

pub fn volume(n: u32) -> Barcode {
    Barcode::from(format!("V{n:05}L9"))
}

pub fn tape(state: VolumeState, pool: Option<&str>) -> Tape {
    let pool = pool.map(PoolName::from);
    Tape {
        state,
        pool,
        place: Place::Library(LibraryNo(0)),
        written: 0,
        free: 1 << 40,
        generation: None,
        wraps: false,
        worm: false,
    }
}

pub fn item(id: u64, block: u64, since: u64) -> RecallItem {
    RecallItem { id, block, bytes: 1 << 20, priority: 1, since: at(since), ..RecallItem::default() }
}

impl World {
    pub fn new(drives: u16) -> Self {
        let drive = |n| Drive::new(DriveNo(n));
        Self {
            now: 1_000_000,
            drives: (0..drives).map(drive).collect(),
            tapes: BTreeMap::new(),
            recalls: BTreeMap::new(),
            writes: BTreeMap::new(),
            jobs: Vec::new(),
            pressure: false,
            robots_troubled: Default::default(),
            limits: Limits::default(),
            mechanics: Mechanics::default(),
            accounts: Accounts::default(),
            heat: Heat::default(),
            running: Vec::new(),
            read: Vec::new(),
            backward: 0,
            mounts: 0,
            longest_wait: 0,
            served: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    pub fn tape(&mut self, n: u32, state: VolumeState, pool: Option<&str>) -> Barcode {
        self.tapes.insert(volume(n), tape(state, pool));
        volume(n)
    }

    pub fn want(&mut self, n: u32, item: RecallItem) {
        self.recalls.entry(volume(n)).or_default().insert(item);
    }

    pub fn backlog(&mut self, pool: &str, files: u64, bytes: u64) {
        let backlog = Backlog {
            files,
            bytes,
            in_hand: 0,
            since: at(self.now),
            max_volumes: 0,
            library: None,
            worm: false,
            limited: None,
            rescue: false,
        };
        self.writes.insert(PoolName::from(pool), backlog);
    }

    pub fn load(&mut self, drive: usize, n: u32, dirty: bool) {
        let (mounted, idle_since) = (at(self.now), at(self.now));
        self.drives[drive].state =
            DriveState::Loaded(Loaded { volume: volume(n), mounted, idle_since, dirty, position: 0 });
    }

    pub fn with_view<T>(&self, look: impl FnOnce(&SchedView<'_>) -> T) -> T {
        let moves = |r: &&Running| matches!(r.action.job, Job::Mount { .. } | Job::Unmount { .. });
        let library = |r: &Running| self.drives[usize::from(r.action.drive.0)].library;
        let moving = self.running.iter().filter(moves).map(library);
        let robots_busy = moving.chain(self.robots_troubled.iter().copied()).collect();
        look(&SchedView {
            now: at(self.now),
            drives: &self.drives,
            volumes: &self.tapes,
            recalls: &self.recalls,
            writes: &self.writes,
            maintenance: &self.jobs,
            robots_busy: &robots_busy,
            robots_troubled: &self.robots_troubled,
            disk_pressure: self.pressure,
            limits: &self.limits,
            mechanics: &self.mechanics,
            accounts: &self.accounts,
            heat: &self.heat,
        })
    }

    pub fn plan(&self) -> Plan {
        let plan = self.with_view(plan);
        self.check(&plan);
        plan
    }

    /// The rules that hold for every plan.
    fn check(&self, plan: &Plan) {
        let mut drives = Vec::new();
        let mut robots = self.with_view(|view| view.robots_busy.clone());
        for action in &plan.actions {
            let drive = &self.drives[usize::from(action.drive.0)];
            assert!(drive.usable, "action on a suspect drive: {action:?}");
            assert!(!drives.contains(&action.drive), "two actions for one drive: {plan:?}");
            drives.push(action.drive);
            self.check_medium(action, drive);
            let volume = action.busy(None).volume;
            match (&action.job, &drive.state) {
                (Job::Mount { .. }, DriveState::Empty) => {
                    assert!(robots.insert(drive.library), "more than one move of a robot: {plan:?}");
                    assert!(
                        self.drives.iter().all(|d| d.volume() != Some(&volume)),
                        "mounted twice: {action:?}"
                    );
                    let same = |a: &&Action| a.job == action.job;
                    assert_eq!(plan.actions.iter().filter(same).count(), 1, "mounted twice in one plan");
                }
                (Job::Unmount { .. }, DriveState::Loaded(loaded)) => {
                    assert!(robots.insert(drive.library), "more than one move of a robot: {plan:?}");
                    assert_eq!(loaded.volume, volume);
                    let writes = drive.takes(&volume, &self.tapes[&volume], Access::Write);
                    assert!(!loaded.dirty || !writes, "unmounted without an index: {action:?}");
                }
                (job, DriveState::Loaded(loaded)) => {
                    assert_eq!(
                        loaded.volume, volume,
                        "job for a volume that is not in the drive: {action:?}"
                    );
                    self.check_order(job, loaded);
                }
                _ => panic!("{action:?} on {drive:?}"),
            }
        }
        self.check_caps(plan);
    }

    /// A drive only gets volumes of its library that it reads, or writes if they are to be written.
    fn check_medium(&self, action: &Action, drive: &Drive) {
        let access = match action.job {
            Job::Unmount { .. } => return,
            Job::Mount { .. } if matches!(action.want, Some(Want::Write(_))) => Access::Write,
            Job::Mount { .. } | Job::Recall { .. } | Job::Check { .. } => Access::Read,
            Job::Migrate { .. } | Job::Label { .. } | Job::WriteIndex { .. } => Access::Write,
        };
        let volume = action.busy(None).volume;
        assert!(drive.takes(&volume, &self.tapes[&volume], access), "{action:?} on {drive:?}");
    }

    /// No cap is exceeded, whoever counts for it.
    fn check_caps(&self, plan: &Plan) {
        let busy = self.drives.iter().filter_map(|drive| match &drive.state {
            DriveState::Busy(busy) => busy.charge,
            _ => None,
        });
        let charged: Vec<AccountId> = busy.chain(plan.actions.iter().filter_map(|a| a.charge)).collect();
        for (n, cap) in self.accounts.caps.iter().enumerate() {
            let counts = |id: &&AccountId| {
                self.accounts.list.get(id.0 as usize).is_some_and(|account| account.caps.contains(&n))
            };
            let drives = charged.iter().filter(counts).count();
            assert!(drives <= cap.drives as usize, "{drives} drives for {cap:?}: {plan:?}");
        }
    }

    fn check_order(&self, job: &Job, loaded: &Loaded) {
        let Job::Recall { order, .. } = job else { return };
        assert!(!order.is_empty() && order.len() <= self.limits.recall_batch);
        let blocks: Vec<u64> =
            order.iter().map(|id| self.recalls[&loaded.volume].get(*id).unwrap().block).collect();
        assert!(blocks.is_sorted(), "not forward: {blocks:?}");
        let any_ahead =
            self.recalls[&loaded.volume].pass(loaded.position).next().unwrap().block >= loaded.position;
        assert!(!any_ahead || blocks[0] >= loaded.position, "went back with work ahead");
    }

    /// Plans, starts what was planned, and moves on to the next event; false when nothing is left to happen.
    pub fn step(&mut self) -> bool {
        for action in self.plan().actions {
            self.begin(action);
        }
        let Some(next) = self.running.iter().map(|running| running.end).min() else { return false };
        self.now = next;
        let (done, running): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(|running| running.end <= next);
        self.running = running;
        done.into_iter().for_each(|running| self.end(running));
        true
    }

    /// Runs until nothing happens any more, at most `steps` events.
    pub fn run(&mut self, steps: usize) {
        assert!((0..steps).any(|_| !self.step()), "still busy after {steps} events: {:?}", self.log.last());
    }

    fn begin(&mut self, action: Action) {
        let drive = usize::from(action.drive.0);
        let kept = match &self.drives[drive].state {
            DriveState::Loaded(loaded) => Some(loaded.clone()),
            _ => None,
        };
        let (took, kept) = match (&action.job, kept) {
            (Job::Mount { .. } | Job::Unmount { .. }, kept) => (ROBOT_S, kept),
            (Job::Recall { order, .. }, Some(loaded)) => self.read_items(loaded, order),
            (Job::Migrate { volume, pool }, Some(loaded)) => self.write_some(loaded, volume, pool),
            (_, kept) => (5, kept),
        };
        let end = self.now + took;
        if let Some(account) = action.charge {
            let owner = self.accounts.list.get(account.0 as usize).map_or(0, |account| account.owner);
            *self.served.entry(owner).or_default() += took as f64;
            self.accounts.used.charge(owner, took as f64, at(self.now));
        }
        self.drives[drive].state = DriveState::Busy(action.busy(Some(at(end))));
        self.log.push((self.now, action.clone()));
        self.running.push(Running { end, action, kept });
    }

    fn read_items(&mut self, mut loaded: Loaded, order: &[u64]) -> (u64, Option<Loaded>) {
        let queue = self.recalls.get_mut(&loaded.volume).unwrap();
        for id in order {
            let item = queue.remove(*id).unwrap();
            self.backward += u64::from(item.block < loaded.position);
            loaded.position = item.block;
            self.longest_wait = self.longest_wait.max(at(self.now).since(item.since).as_secs());
            self.read.push(*id);
        }
        (1 + order.len() as u64, Some(loaded))
    }

    /// A session takes at most 100 files of the backlog.
    fn write_some(&mut self, mut loaded: Loaded, volume: &Barcode, pool: &PoolName) -> (u64, Option<Loaded>) {
        let backlog = self.writes.get_mut(pool).unwrap();
        let files = backlog.files.min(100);
        let bytes = backlog.bytes * files / backlog.files;
        self.longest_wait = self.longest_wait.max(at(self.now).since(backlog.since).as_secs());
        *backlog = Backlog { files: backlog.files - files, bytes: backlog.bytes - bytes, ..*backlog };
        // The copies that remain came later.
        backlog.since = backlog.since.plus(Duration::from_secs(files));
        let tape = self.tapes.get_mut(volume).unwrap();
        assert!(matches!(tape.state, VolumeState::Filling | VolumeState::Scratch), "wrote to {tape:?}");
        assert!(tape.pool.as_ref().is_none_or(|owner| owner == pool), "wrote to a volume of another pool");
        (tape.state, tape.pool) = (VolumeState::Filling, Some(pool.clone()));
        tape.written += bytes;
        tape.free = tape.free.saturating_sub(bytes);
        loaded.dirty = true;
        (files, Some(loaded))
    }

    fn end(&mut self, Running { action, kept, .. }: Running) {
        let (mounted, idle_since) = (at(self.now), at(self.now));
        let kept = kept.map(|loaded| Loaded { idle_since, ..loaded });
        let state = match (action.job, kept) {
            (Job::Mount { volume }, _) => {
                self.mounts += 1;
                DriveState::Loaded(Loaded { volume, mounted, idle_since, dirty: false, position: 0 })
            }
            (Job::Unmount { .. }, _) | (_, None) => DriveState::Empty,
            (Job::Label { volume, id, pool }, Some(loaded)) => {
                let tape = self.tapes.get_mut(&volume).unwrap();
                (tape.state, tape.pool) = (VolumeState::Scratch, pool);
                self.jobs.retain(|job| Some(job.id) != id);
                DriveState::Loaded(loaded)
            }
            (Job::WriteIndex { id, .. }, Some(loaded)) => {
                self.jobs.retain(|job| Some(job.id) != id);
                DriveState::Loaded(Loaded { dirty: false, ..loaded })
            }
            (Job::Check { id, .. }, Some(loaded)) => {
                self.jobs.retain(|job| job.id != id);
                DriveState::Loaded(loaded)
            }
            (_, Some(loaded)) => DriveState::Loaded(loaded),
        };
        self.drives[usize::from(action.drive.0)].state = state;
    }

    /// Whether nobody waits for anything.
    pub fn drained(&self) -> bool {
        self.recalls.values().all(RecallQueue::is_empty)
            && self.writes.values().all(|backlog| backlog.files == 0)
            && self.jobs.is_empty()
    }
}
