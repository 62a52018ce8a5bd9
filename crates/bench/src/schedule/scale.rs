//! What one look at a very large system costs: 1,000 drives, 50,000 volumes, 1,000,000 files asked for.

use super::chance::Chance;
use sched::{
    Account, AccountId, Accounts, Backlog, Busy, Cap, Drive, DriveState, Heat, Limits, Loaded, Maintenance,
    MaintenanceKind, Mechanics, Place, RecallItem, RecallQueue, SchedView, Shares, Tape, Want, Work,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Barcode, DriveNo, Generation, LibraryNo, PoolName, Time, VolumeState};

const POOLS: u64 = 20;
/// Users; up to three of them want files of one volume.
const OWNERS: u32 = 1_000;

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub drives: u16,
    pub volumes: u64,
    pub files: u64,
}

/// A data centre at one moment: a third of the drives at rest with a volume that has work, a third at rest with one that has none, the
/// others empty, reading or writing.
pub struct Centre {
    pub drives: Vec<Drive>,
    pub volumes: BTreeMap<Barcode, Tape>,
    pub recalls: BTreeMap<Barcode, RecallQueue>,
    pub writes: BTreeMap<PoolName, Backlog>,
    pub maintenance: Vec<Maintenance>,
    robots_busy: BTreeSet<LibraryNo>,
    robots_troubled: BTreeSet<LibraryNo>,
    limits: Limits,
    mechanics: Mechanics,
    accounts: Accounts,
    heat: Heat,
    now: Time,
    asked: u64,
}

pub fn volume(n: u64) -> Barcode {
    Barcode::from(format!("{n:06}L9").as_str())
}

fn pool(n: u64) -> PoolName {
    PoolName::from(format!("pool-{n}").as_str())
}

impl Centre {
    pub fn new(size: Size, chance: &mut Chance) -> Self {
        let now = Time::new(1_800_000_000, 0);
        let states = [VolumeState::Full, VolumeState::Full, VolumeState::Full, VolumeState::Filling];
        let tape = |n: u64| Tape {
            state: if n % 100 == 99 { VolumeState::Scratch } else { states[n as usize % 4] },
            pool: (n % 100 != 99).then(|| pool(n % POOLS)),
            place: Place::Library(LibraryNo::default()),
            written: n << 20,
            free: 1 << 40,
            generation: Some(Generation::Lto9),
            wraps: true,
            worm: false,
        };
        let backlog = Backlog {
            files: 1_000_000,
            bytes: 1 << 46,
            in_hand: 0,
            since: now,
            max_volumes: 0,
            library: None,
            worm: false,
            limited: None,
            rescue: false,
        };
        let mut centre = Self {
            drives: (0..size.drives).map(|n| drive(n, size.volumes, now)).collect(),
            volumes: (0..size.volumes).map(|n| (volume(n), tape(n))).collect(),
            recalls: BTreeMap::new(),
            writes: (0..POOLS).map(|n| (pool(n), backlog.clone())).collect(),
            maintenance: Vec::new(),
            limits: Limits::default(),
            mechanics: Mechanics::default(),
            accounts: accounts(),
            heat: Heat::default(),
            robots_busy: BTreeSet::new(),
            robots_troubled: BTreeSet::new(),
            now,
            asked: 0,
        };
        let check = |id| Maintenance { id, kind: MaintenanceKind::Check, volume: volume(id), since: now };
        centre.maintenance.extend((0..100).map(check));
        (0..size.files).for_each(|_| centre.ask(size, chance));
        centre
    }

    /// One more file is asked for.
    pub fn ask(&mut self, size: Size, chance: &mut Chance) {
        let id = self.asked;
        self.asked += 1;
        let waited = Duration::from_secs(chance.below(3600) as u64);
        let n = chance.below(size.volumes as usize) as u64;
        let (on, owner) = (volume(n), (n * 7 + chance.below(3) as u64) % u64::from(OWNERS));
        let item = RecallItem {
            id,
            block: chance.below(30_000_000) as u64,
            byte: 0,
            bytes: 1 << 30,
            priority: 5 + 5 * (chance.below(100) == 0) as u8,
            since: Time::new(self.now.secs - waited.as_secs() as i64, 0),
            account: AccountId(owner as u32),
            deadline: None,
        };
        self.recalls.entry(on).or_default().insert(item);
    }

    pub fn view(&self) -> SchedView<'_> {
        SchedView {
            now: self.now,
            drives: &self.drives,
            volumes: &self.volumes,
            recalls: &self.recalls,
            writes: &self.writes,
            maintenance: &self.maintenance,
            robots_busy: &self.robots_busy,
            robots_troubled: &self.robots_troubled,
            disk_pressure: false,
            limits: &self.limits,
            mechanics: &self.mechanics,
            accounts: &self.accounts,
            heat: &self.heat,
        }
    }
}

/// Every tenth owner has a cap.
fn accounts() -> Accounts {
    let account = |owner: u32| Account {
        owner,
        weight: f64::from(1 + owner % 3),
        caps: if owner.is_multiple_of(10) { vec![owner as usize / 10] } else { Vec::new() },
    };
    let cap = |n: u32| Cap { name: format!("cap {n}"), drives: 2 };
    Accounts {
        list: (0..OWNERS).map(account).collect(),
        caps: (0..OWNERS / 10).map(cap).collect(),
        used: Shares::default(),
    }
}

fn drive(n: u16, volumes: u64, now: Time) -> Drive {
    let on = volume(u64::from(n) * 37 % volumes);
    let state = match n % 6 {
        0 | 1 => DriveState::Loaded(Loaded {
            volume: on,
            mounted: now,
            idle_since: now,
            dirty: n.is_multiple_of(4),
            position: 0,
        }),
        2 => DriveState::Empty,
        3 => DriveState::Busy(Busy { want: Some(Want::Recall(on.clone())), ..Busy::new(on, Work::Recall) }),
        4 => DriveState::Busy(Busy {
            want: Some(Want::Write(pool(u64::from(n) % POOLS))),
            ..Busy::new(on, Work::Migrate)
        }),
        _ => DriveState::Busy(Busy { want: Some(Want::Recall(on.clone())), ..Busy::new(on, Work::Mount) }),
    };
    Drive { usable: n % 50 != 49, state, ..Drive::new(DriveNo(n)) }
}
