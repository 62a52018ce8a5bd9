//! A system in simulated time: the scheduler and the policy are those of the node, drives and robot take the times of
//! their data sheets. Data sets stand for the files in them.

use super::arrivals::{DAY, Line, Stream, size};
use super::figures::Figures;
use super::spec::Spec;
use crate::dice::Dice;
use policy::{Candidate, DiskMode, DiskUse, PolicyView, PurgeCandidate};
use sched::{
    Accounts, Backlog, Drive, DriveState, Facts, Heat, Limits, Mechanics, Place, RecallItem, RecallQueue,
    SchedView, Tape,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::*;

/// Begin of simulated time (seconds since the epoch): a Monday.
const BEGIN_S: i64 = 1_800_230_400;
/// The policy looks at least this often (seconds).
const LOOK_S: f64 = 900.0;
/// Data sets that the policy looks at in one go.
const PAGE: usize = 2_000;

/// Part of a copy on one volume.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub volume: Barcode,
    pub block: u64,
    pub bytes: u64,
}

/// A data set.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub class: usize,
    pub user: Option<usize>,
    pub bytes: u64,
    pub files: u32,
    pub due: f64,
    pub used: f64,
    pub on_disk: bool,
    pub gone: bool,
    /// Of each copy: its parts, and what is still to be written.
    pub copies: Vec<(Vec<Part>, u64)>,
    /// Bytes of each copy that a drive is writing.
    pub assigned: Vec<u64>,
    /// Copies that wait in the queue of a pool or are being written.
    pub queued: Vec<bool>,
}

impl Set {
    pub fn whole(&self, copy: usize) -> bool {
        self.copies[copy].1 == 0
    }

    pub fn all_copies(&self) -> bool {
        self.copies.iter().all(|(_, left)| *left == 0)
    }
}

/// A read that waits for tape.
pub(super) struct Waiting {
    pub since: f64,
}

/// Files of a set on their way back.
pub(super) struct Recall {
    pub left: usize,
    pub bytes: u64,
    pub waiting: Vec<Waiting>,
}

/// A job of a drive.
pub(super) struct Running {
    pub end: f64,
    pub drive: usize,
    pub moves: bool,
    pub then: DriveState,
    pub does: Does,
}

/// What is true when a job has ended.
pub(super) enum Does {
    Nothing,
    /// These items have been read.
    Read(Vec<u64>),
    /// These parts have been written: set, copy, part.
    Wrote(Vec<(usize, usize, Part)>),
    /// The volume has a label.
    Labelled(Barcode, Option<PoolName>),
}

/// A robot: when it breaks next, and when it works again.
pub(super) struct Robot {
    pub breaks: f64,
    pub back: f64,
}

/// See the module.
pub(super) struct World<'s> {
    pub spec: &'s Spec,
    pub now: f64,
    pub drives: Vec<Drive>,
    /// When a drive that is broken works again.
    pub repaired: Vec<Option<f64>>,
    pub breaks: Vec<f64>,
    /// Of each library.
    pub robots: Vec<Robot>,
    pub volumes: BTreeMap<Barcode, Tape>,
    pub blank: u32,
    pub next_volume: u32,
    pub recalls: BTreeMap<Barcode, RecallQueue>,
    /// What a queue item is part of.
    pub items: BTreeMap<u64, (usize, RecallItem)>,
    pub next_item: u64,
    pub sets: Vec<Set>,
    pub of_user: Vec<Vec<usize>>,
    pub named: BTreeMap<String, usize>,
    pub candidates: BTreeSet<(i64, usize)>,
    pub lru: BTreeSet<(i64, usize)>,
    pub queues: BTreeMap<PoolName, VecDeque<(usize, usize)>>,
    pub waits: BTreeMap<PoolName, (u64, Time)>,
    pub coming: BTreeMap<usize, Recall>,
    pub disk_used: u64,
    pub growing: u64,
    pub mode: DiskMode,
    pub classes: BTreeMap<ClassName, types::Class>,
    pub class_names: Vec<ClassName>,
    pub limits: Limits,
    pub mechanics: Mechanics,
    pub accounts: Accounts,
    pub heat: Heat,
    pub running: Vec<Running>,
    pub dice: Dice,
    pub figures: Figures,
}

pub(super) fn time(seconds: f64) -> Time {
    Time::new(BEGIN_S + seconds.floor() as i64, (seconds.fract() * 1e9) as u32)
}

pub(super) fn seconds(seconds: f64) -> i64 {
    (seconds * 1e3) as i64
}

impl<'s> World<'s> {
    /// A system with what its users have archived before.
    pub fn new(spec: &'s Spec, mut dice: Dice) -> Result<Self, String> {
        let mut mechanics = Mechanics::of(spec.generation()?, spec.library.block_size.0);
        mechanics.rate *= spec.library.efficiency;
        mechanics.move_s = spec.library.robot_move_s;
        let classes = spec.classes.iter().map(|c| {
            let name = ClassName(c.name.clone());
            let copies = c.copies.iter().map(|p| PoolName(p.clone())).collect();
            let class = types::Class {
                name: name.clone(),
                copies,
                migrate_after_s: c.migrate_after_s,
                migrate_bytes: c.migrate_bytes.0,
                keep_on_disk: false,
            };
            (name, class)
        });
        let drives = spec.library.drives;
        let count = spec.library.count;
        let empty = |n| Drive { library: LibraryNo(n % count), ..Drive::new(DriveNo(n)) };
        let mut world = Self {
            now: 0.0,
            drives: (0..drives).map(empty).collect(),
            repaired: vec![None; usize::from(drives)],
            breaks: Vec::new(),
            robots: Vec::new(),
            volumes: BTreeMap::new(),
            blank: spec.library.cartridges,
            next_volume: 0,
            recalls: BTreeMap::new(),
            items: BTreeMap::new(),
            next_item: 0,
            sets: Vec::new(),
            of_user: vec![Vec::new(); spec.users.len()],
            named: BTreeMap::new(),
            candidates: BTreeSet::new(),
            lru: BTreeSet::new(),
            queues: BTreeMap::new(),
            waits: BTreeMap::new(),
            coming: BTreeMap::new(),
            disk_used: 0,
            growing: 0,
            mode: DiskMode::default(),
            classes: classes.collect(),
            class_names: spec.classes.iter().map(|c| ClassName(c.name.clone())).collect(),
            limits: Limits {
                unmount_idle: Duration::from_secs(u64::from(spec.scheduler.idle_unmount_s)),
                exchange: Duration::from_secs_f64(mechanics.unmount_s() + mechanics.mount_s()),
                drives_for_recall: spec.scheduler.drives_for_recall,
                ..Limits::default()
            },
            mechanics,
            accounts: Accounts::default(),
            heat: Heat::default(),
            running: Vec::new(),
            dice: dice.fork(),
            figures: Figures::default(),
            spec,
        };
        world.breaks = (0..drives).map(|_| world.next_break(spec.faults.drive_mtbf_h)).collect();
        let robots =
            (0..count).map(|_| Robot { breaks: world.next_break(spec.faults.robot_mtbf_h), back: 0.0 });
        world.robots = robots.collect();
        world.archive_before();
        world.top_up();
        Ok(world)
    }

    fn next_break(&mut self, mtbf_h: f64) -> f64 {
        if mtbf_h > 0.0 { self.now + self.dice.wait(mtbf_h * 3600.0) } else { f64::INFINITY }
    }

    /// What was there before the beginning: full volumes of each pool.
    fn archive_before(&mut self) {
        for (n, user) in self.spec.users.iter().enumerate() {
            let mut left = user.archived.0;
            while left > 0 {
                let bytes = size(user, &mut self.dice).min(left);
                left -= bytes;
                let class = self.spec.classes.iter().position(|c| c.name == user.class).unwrap_or(0);
                self.on_tape(class, Some(n), bytes, user.files);
            }
        }
        for tape in self.volumes.values_mut().filter(|t| t.free < t.written / 50) {
            tape.state = VolumeState::Full;
        }
    }

    /// A set that has long been on tape and not on disk.
    pub fn on_tape(&mut self, class: usize, user: Option<usize>, bytes: u64, files: u32) -> usize {
        let pools: Vec<PoolName> =
            self.spec.classes[class].copies.iter().map(|p| PoolName(p.clone())).collect();
        let copies = pools.iter().map(|pool| (self.place(pool, bytes), 0)).collect();
        let (assigned, queued) = (vec![0; pools.len()], vec![false; pools.len()]);
        let set = Set {
            class,
            user,
            bytes,
            files,
            due: 0.0,
            used: 0.0,
            on_disk: false,
            gone: false,
            copies,
            assigned,
            queued,
        };
        self.sets.push(set);
        let id = self.sets.len() - 1;
        if let Some(user) = user {
            self.of_user[user].push(id);
        }
        id
    }

    fn place(&mut self, pool: &PoolName, bytes: u64) -> Vec<Part> {
        let (mut left, mut parts) = (bytes, Vec::new());
        while left > 0 {
            let open = self.volumes.iter().find(|(_, t)| t.pool.as_ref() == Some(pool) && t.free > 0);
            let volume = match open.map(|(barcode, _)| barcode.clone()) {
                Some(volume) => volume,
                None => {
                    let turn = LibraryNo((self.next_volume % u32::from(self.spec.library.count)) as u16);
                    let library = self.bound(pool).unwrap_or(turn);
                    self.new_volume(Some(pool.clone()), VolumeState::Filling, library)
                }
            };
            parts.push(self.append(&volume, left));
            left -= parts.last().map_or(left, |p| p.bytes);
        }
        parts
    }

    pub fn append(&mut self, volume: &Barcode, bytes: u64) -> Part {
        let block_bytes = self.mechanics.block_bytes;
        let Some(tape) = self.volumes.get_mut(volume) else {
            return Part { volume: volume.clone(), block: 0, bytes };
        };
        let take = bytes.min(tape.free);
        let block = tape.written / block_bytes;
        tape.written += take;
        tape.free -= take;
        if tape.free == 0 {
            tape.state = VolumeState::Full;
        }
        Part { volume: volume.clone(), block, bytes: take }
    }

    /// The library that a pool is bound to.
    fn bound(&self, pool: &PoolName) -> Option<LibraryNo> {
        self.spec.library.pools.get(&pool.0).map(|n| LibraryNo(n - 1))
    }

    fn new_volume(&mut self, pool: Option<PoolName>, state: VolumeState, library: LibraryNo) -> Barcode {
        self.next_volume += 1;
        let volume = Barcode::from(format!("P{:05}L9", self.next_volume));
        let generation = self.spec.generation().ok();
        let free = generation.and_then(Facts::of).map_or(0, |facts| facts.capacity as u64);
        let place = Place::Library(library);
        let tape = Tape { state, pool, place, written: 0, free, generation, wraps: true, worm: false };
        self.volumes.insert(volume.clone(), tape);
        volume
    }

    /// Blank cartridges that the scheduler may take: a few in each library are enough for it to see.
    fn top_up(&mut self) {
        let count = self.spec.library.count;
        let mut seen = vec![0; usize::from(count)];
        for tape in self.volumes.values().filter(|t| t.state == VolumeState::Blank) {
            if let Some(library) = tape.library() {
                seen[usize::from(library.0)] += 1;
            }
        }
        let most = usize::from(self.spec.library.drives.div_ceil(count)) + 2;
        for (library, seen) in (0..count).zip(seen) {
            for _ in seen..most {
                if self.blank < self.spec.library.spare {
                    self.blank += self.spec.library.buy;
                    self.figures.bought += u64::from(self.spec.library.buy);
                }
                self.blank -= self.blank.min(1);
                self.new_volume(None, VolumeState::Blank, LibraryNo(library));
            }
        }
    }

    /// Everything until the end.
    pub fn run(&mut self, streams: &mut [Stream], trace: &[Line]) {
        let end = self.spec.days * DAY;
        let (mut line, mut look) = (0, 0.0);
        let mut sample = 0.0;
        while self.now < end {
            let ends = self.running.iter().map(|r| r.end).fold(f64::INFINITY, f64::min);
            let comes = streams.iter().map(Stream::at).fold(f64::INFINITY, f64::min);
            let traced = trace.get(line).map_or(f64::INFINITY, |l| l.t);
            let repaired = self.repaired.iter().flatten().copied().fold(f64::INFINITY, f64::min);
            let next = [ends, comes, traced, look, sample, repaired].into_iter().fold(end, f64::min);
            self.now = self.now.max(next);
            if self.now >= end {
                break;
            }
            if look <= self.now {
                self.look();
                look = self.now + LOOK_S;
            }
            if sample <= self.now {
                self.sample();
                sample += DAY / 4.0;
            }
            self.end_jobs();
            for stream in streams.iter_mut().filter(|s| s.at() <= next) {
                self.arrive(stream);
                stream.go_on(&self.spec.users);
            }
            while let Some(l) = trace.get(line).filter(|l| l.t <= self.now) {
                self.traced(l);
                line += 1;
            }
            self.break_and_mend();
            self.give_orders();
        }
        self.now = end;
        self.sample();
        self.figures.end(self.coming.values().flat_map(|r| &r.waiting).map(|w| end - w.since));
    }

    pub fn with_view<T>(&self, f: impl FnOnce(&SchedView<'_>) -> T) -> T {
        let backlog = |(pool, q): (&PoolName, &VecDeque<(usize, usize)>)| {
            let bytes = self.waits.get(pool).map_or(0, |w| w.0);
            let since = self.waits.get(pool).map_or(time(self.now), |w| w.1);
            let files = q.len() as u64;
            (files > 0).then(|| {
                (
                    pool.clone(),
                    Backlog {
                        files,
                        bytes,
                        in_hand: 0,
                        since,
                        max_volumes: 0,
                        library: self.bound(pool),
                        worm: false,
                        limited: None,
                        rescue: false,
                    },
                )
            })
        };
        let writes: BTreeMap<PoolName, Backlog> = self.queues.iter().filter_map(backlog).collect();
        let broken = |n: &u16| self.robots[usize::from(*n)].back > self.now;
        let robots_troubled: BTreeSet<_> =
            (0..self.spec.library.count).filter(broken).map(LibraryNo).collect();
        let moving = self.running.iter().filter(|r| r.moves).map(|r| self.drives[r.drive].library);
        let robots_busy = robots_troubled.iter().copied().chain(moving).collect();
        f(&SchedView {
            now: time(self.now),
            drives: &self.drives,
            volumes: &self.volumes,
            recalls: &self.recalls,
            writes: &writes,
            maintenance: &[],
            robots_busy: &robots_busy,
            robots_troubled: &robots_troubled,
            disk_pressure: self.mode.pressure == policy::Pressure::Hard,
            limits: &self.limits,
            mechanics: &self.mechanics,
            accounts: &self.accounts,
            heat: &self.heat,
        })
    }

    /// The policy decides what is migrated and purged.
    fn look(&mut self) {
        let mut disk = DiskUse::with_percent(
            self.spec.disk.capacity.0,
            self.spec.disk.low_watermark,
            self.spec.disk.high_watermark,
        );
        (disk.used, disk.growing, disk.last) = (self.disk_used, self.growing, self.mode);
        let pools = &self.spec.classes;
        let candidate = |id: usize| {
            let set = &self.sets[id];
            let missing = (0..set.copies.len())
                .filter(|n| !set.whole(*n) && !set.queued[*n])
                .map(|n| (CopyNo(n as u8 + 1), PoolName(pools[set.class].copies[n].clone())))
                .collect();
            Candidate {
                ino: Ino(id as u64),
                version: Version(1),
                size: set.bytes,
                due: time(set.due),
                class: self.class_names[set.class].clone(),
                missing,
            }
        };
        let candidates: Vec<Candidate> =
            self.candidates.iter().take(PAGE).map(|(_, id)| candidate(*id)).collect();
        let purgeable: Vec<PurgeCandidate> = if disk.purges() {
            self.lru.iter().take(PAGE).map(|(_, id)| self.purge_candidate(*id)).collect()
        } else {
            Vec::new()
        };
        let view = PolicyView {
            disk,
            classes: &self.classes,
            candidates: &candidates,
            waiting: &BTreeMap::new(),
            purgeable: &purgeable,
            purgeable_complete: purgeable.len() < PAGE,
        };
        let decision = policy::decide(&view, time(self.now));
        self.mode = decision.mode;
        for item in &decision.purge.items {
            self.off_disk(item.ino.0 as usize);
        }
        for batch in decision.migrate {
            for item in batch.items {
                let (id, copy) = (item.ino.0 as usize, usize::from(item.copy.0) - 1);
                self.sets[id].queued[copy] = true;
                let left = self.sets[id].copies[copy].1;
                self.queues.entry(batch.pool.clone()).or_default().push_back((id, copy));
                let now = time(self.now);
                self.waits.entry(batch.pool.clone()).or_insert((0, now)).0 += left;
            }
        }
        // What is queued in full need not be looked at again.
        let sets = &self.sets;
        self.candidates.retain(|(_, id)| {
            let set = &sets[*id];
            !set.gone && (0..set.copies.len()).any(|n| !set.whole(n) && !set.queued[n])
        });
    }

    fn purge_candidate(&self, id: usize) -> PurgeCandidate {
        let set = &self.sets[id];
        PurgeCandidate {
            ino: Ino(id as u64),
            version: Version(1),
            object: ObjectId(id as u64),
            allocated: set.bytes,
            last_access: time(set.used),
            class: self.class_names[set.class].clone(),
            copies: (0..set.copies.len()).filter(|n| set.whole(*n)).map(|n| CopyNo(n as u8 + 1)).collect(),
            open: false,
            pinned: false,
        }
    }

    fn end_jobs(&mut self) {
        let now = self.now;
        let ended: Vec<Running> = self.running.extract_if(.., |r| r.end <= now).collect();
        for job in ended {
            self.drives[job.drive].state = job.then;
            match job.does {
                Does::Nothing => {}
                Does::Read(ids) => ids.into_iter().for_each(|id| self.arrived(id)),
                Does::Wrote(parts) => {
                    parts.into_iter().for_each(|(id, copy, part)| self.wrote(id, copy, part))
                }
                Does::Labelled(volume, pool) => {
                    self.figures.labelled += 1;
                    if let Some(tape) = self.volumes.get_mut(&volume) {
                        tape.state = if pool.is_some() { VolumeState::Filling } else { VolumeState::Scratch };
                        tape.pool = pool;
                    }
                    self.top_up();
                }
            }
        }
    }

    fn arrived(&mut self, item: u64) {
        let Some((id, _)) = self.items.remove(&item) else { return };
        let Some(recall) = self.coming.get_mut(&id) else { return };
        recall.left -= 1;
        if recall.left > 0 {
            return;
        }
        let Some(recall) = self.coming.remove(&id) else { return };
        for w in recall.waiting {
            self.figures.wait(w.since, self.now - w.since);
        }
        self.growing -= recall.bytes;
        let set = &mut self.sets[id];
        // A part of a set is on disk as long as it is used; the model keeps whole sets only.
        if !set.gone && !set.on_disk && recall.bytes == set.bytes {
            set.on_disk = true;
            set.used = self.now;
            self.disk_used += set.bytes;
            self.lru.insert((seconds(self.now), id));
        }
    }

    fn wrote(&mut self, id: usize, copy: usize, part: Part) {
        let (now, set) = (self.now, &mut self.sets[id]);
        set.assigned[copy] -= part.bytes.min(set.assigned[copy]);
        let (parts, left) = &mut set.copies[copy];
        *left -= part.bytes.min(*left);
        self.figures.migrated += part.bytes;
        parts.push(part);
        if *left == 0 {
            set.queued[copy] = false;
            if set.all_copies() {
                let waited = now - set.due;
                self.figures.safe(now, waited.max(0.0));
            }
        }
    }

    pub fn set(&mut self, id: usize) -> &mut Set {
        &mut self.sets[id]
    }

    fn break_and_mend(&mut self) {
        let faults = &self.spec.faults;
        for n in 0..self.drives.len() {
            if self.repaired[n].is_some_and(|at| at <= self.now) {
                self.repaired[n] = None;
                self.drives[n].usable = true;
                self.drives[n].state = DriveState::Empty;
                self.breaks[n] = self.next_break(faults.drive_mtbf_h);
            }
            if self.breaks[n] <= self.now && self.drives[n].usable {
                // Its job is done first: what breaks a drive is found at the end of one.
                if matches!(self.drives[n].state, DriveState::Busy(_)) {
                    continue;
                }
                self.drives[n].usable = false;
                self.drives[n].state = DriveState::Empty;
                self.repaired[n] = Some(self.now + faults.drive_repair_h * 3600.0);
                self.figures.broken += 1;
            }
        }
        for robot in self.robots.iter_mut().filter(|r| r.breaks <= self.now) {
            robot.back = self.now + faults.robot_repair_h * 3600.0;
            robot.breaks = robot.back + self.dice.wait(faults.robot_mtbf_h * 3600.0);
            self.figures.broken += 1;
        }
    }

    fn sample(&mut self) {
        let backlog = self.waits.values().map(|w| w.0).sum();
        let used = self.volumes.values().filter(|t| t.written > 0).count() as u64;
        let fill = self.disk_used as f64 / self.spec.disk.capacity.0.max(1) as f64;
        let waiting = self.coming.values().map(|r| r.waiting.len()).sum::<usize>() as u64;
        self.figures.sample(self.now, backlog, used, fill, waiting);
    }
}
