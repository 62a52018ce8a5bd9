//! A library in simulated time that does what the scheduler of the node says, in the way in which the node does it: the
//! robot is taken for the whole of a mount or an unmount.

use super::load::{BEGIN_S, Load, Outcome};
use sched::{
    Accounts, Action, Drive, DriveState, Heat, Job, Limits, Loaded, Place, RecallQueue, SchedView, Tape,
    first_part, plan, recall_order,
};
use std::collections::{BTreeMap, BTreeSet};
use types::{Barcode, DriveNo, Generation, LibraryNo, Time, VolumeState};

struct World<'l> {
    load: &'l Load,
    now_s: f64,
    drives: Vec<Drive>,
    volumes: BTreeMap<Barcode, Tape>,
    recalls: BTreeMap<Barcode, RecallQueue>,
    limits: Limits,
    running: Vec<Running>,
    waits: Vec<f64>,
}

/// A job, when it ends, and what the drive holds then.
struct Running {
    end_s: f64,
    drive: usize,
    moves: bool,
    then: DriveState,
}

fn at(seconds: f64) -> Time {
    Time::new(BEGIN_S + seconds.floor() as i64, (seconds.fract() * 1e9) as u32)
}

/// Everything recalled as the scheduler says.
pub fn scheduled(load: &Load, drives: u16) -> Outcome {
    let tape = Tape {
        state: VolumeState::Full,
        pool: None,
        place: Place::Library(LibraryNo::default()),
        written: 18 << 40,
        free: 0,
        generation: Some(Generation::Lto9),
        wraps: true,
        worm: false,
    };
    let mut world = World {
        load,
        now_s: 0.0,
        drives: (0..drives).map(|n| Drive::new(DriveNo(n))).collect(),
        volumes: (0..load.wanted.len()).map(|n| (Load::barcode(n), tape.clone())).collect(),
        recalls: BTreeMap::new(),
        limits: Limits::default(),
        running: Vec::new(),
        waits: Vec::new(),
    };
    for (n, items) in load.wanted.iter().enumerate() {
        let queue = world.recalls.entry(Load::barcode(n)).or_default();
        items.iter().for_each(|item| queue.insert(*item));
    }
    while world.step() {}
    Outcome::new(world.waits)
}

impl World<'_> {
    /// Begins what can begin, and goes on to the next end of a job; false when all files are there.
    fn step(&mut self) -> bool {
        let moves = self.running.iter().any(|job| job.moves);
        let plan = plan(&SchedView {
            now: at(self.now_s),
            drives: &self.drives,
            volumes: &self.volumes,
            recalls: &self.recalls,
            writes: &BTreeMap::new(),
            maintenance: &[],
            robots_busy: &moves.then(LibraryNo::default).into_iter().collect(),
            robots_troubled: &BTreeSet::new(),
            disk_pressure: false,
            limits: &self.limits,
            mechanics: &self.load.mechanics,
            accounts: &Accounts::default(),
            heat: &Heat::default(),
        });
        plan.actions.into_iter().for_each(|action| self.begin(&action));
        let Some(next) = self.running.iter().map(|job| job.end_s).min_by(f64::total_cmp) else {
            return false;
        };
        self.now_s = next;
        for job in self.running.extract_if(.., |job| job.end_s <= next) {
            self.drives[job.drive].state = job.then;
        }
        self.recalls.values().any(|queue| !queue.is_empty()) || self.running.iter().any(|job| !job.moves)
    }

    fn begin(&mut self, action: &Action) {
        let m = &self.load.mechanics;
        let drive = usize::from(action.drive.0);
        let held = match &self.drives[drive].state {
            DriveState::Loaded(loaded) => Some(loaded.clone()),
            _ => None,
        };
        let ended = |end_s: f64, volume: &Barcode, position| {
            let (mounted, idle_since) = (held.as_ref().map_or(at(end_s), |held| held.mounted), at(end_s));
            DriveState::Loaded(Loaded { volume: volume.clone(), mounted, idle_since, dirty: false, position })
        };
        let (end_s, then) = match &action.job {
            Job::Mount { volume } => {
                let end_s = self.now_s + m.mount_s();
                (end_s, ended(end_s, volume, 0))
            }
            Job::Unmount { .. } => (self.now_s + m.unmount_s(), DriveState::Empty),
            Job::Recall { volume, order } => {
                let (mut at, mut clock) = (held.as_ref().map_or(0, |held| held.position), self.now_s);
                let queue = self.recalls.entry(volume.clone()).or_default();
                let items: Vec<_> = order.iter().filter_map(|id| queue.remove(*id)).collect();
                let ordered = recall_order(m, at, &items);
                let (now, later) = ordered.split_at(first_part(&ordered, self.limits.recall_bytes));
                later.iter().for_each(|item| queue.insert(*item));
                for item in now {
                    clock += m.locate(at, item.block) + m.transfer(item.bytes);
                    at = m.last_block(item.block, item.byte, item.bytes);
                    self.waits.push(clock);
                }
                (clock, ended(clock, volume, at))
            }
            // Nothing else is asked for in this world.
            Job::Migrate { .. } | Job::Label { .. } | Job::WriteIndex { .. } | Job::Check { .. } => return,
        };
        let moves = matches!(action.job, Job::Mount { .. } | Job::Unmount { .. });
        self.drives[drive].state = DriveState::Busy(action.busy(Some(at(end_s))));
        self.running.push(Running { end_s, drive, moves, then });
    }
}
