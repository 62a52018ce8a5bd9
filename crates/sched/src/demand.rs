//! Who wants a drive, in the order in which they get one.

use crate::ahead::{Ahead, ahead};
use crate::turns::{for_whom, share_out};
use crate::volumes::{Volume, Volumes};
use crate::{
    Account, AccountId, Backlog, Drive, DriveState, Limited, Maintenance, MaintenanceKind, RecallQueue,
    SchedView, Share,
};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use types::{Barcode, PoolName, Time};

/// Recalls of this priority are nobody's who waits: they take drives that nothing else wants.
pub const BACKGROUND: u8 = 0;
/// A deadline is looked at when so many times what its files take is left until then.
const DEADLINE_MARGIN: f64 = 2.0;

/// Something that needs a drive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Read the queued files of a volume.
    Recall(Barcode),
    /// Write the backlog of a pool.
    Write(PoolName),
    /// The maintenance job with this id.
    Maintain(u64),
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recall(volume) => write!(f, "reading from volume {volume}"),
            Self::Write(pool) => write!(f, "writing to pool {pool}"),
            Self::Maintain(id) => write!(f, "maintenance job {id}"),
        }
    }
}

/// A [`Want`] that borrows: a plan looks at tens of thousands and answers for few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Need<'v> {
    Recall(&'v Barcode),
    Write(&'v PoolName),
    Maintain(u64),
}

impl<'v> Need<'v> {
    fn of(want: &'v Want) -> Self {
        match want {
            Want::Recall(volume) => Self::Recall(volume),
            Want::Write(pool) => Self::Write(pool),
            Want::Maintain(id) => Self::Maintain(*id),
        }
    }

    fn want(self) -> Want {
        match self {
            Self::Recall(volume) => Want::Recall(volume.clone()),
            Self::Write(pool) => Want::Write(pool.clone()),
            Self::Maintain(id) => Want::Maintain(id),
        }
    }
}

/// Kinds of demand, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    /// The disk is nearly full.
    PressedWrite,
    Recall,
    /// Copies of files that have only one left.
    Rescue,
    Write,
    Maintain,
    /// A second writer of a pool.
    ExtraWrite,
    /// What can wait for as long as anything else wants the drive.
    Background,
    /// The volume that a pool will need soon.
    Ahead,
}

impl Level {
    /// Whether what wants a drive since then has waited for longer than anybody may.
    pub(crate) fn starves(self, view: &SchedView<'_>, since: Time) -> bool {
        let waits = matches!(self, Self::ExtraWrite | Self::Background | Self::Ahead);
        !waits && view.now.since(since) >= view.limits.starve_after
    }
}

/// A need with what decides its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'v> {
    pub need: Need<'v>,
    pub level: Level,
    pub starving: bool,
    pub priority: u8,
    pub since: Time,
    /// Of a recall: number of files.
    pub files: u64,
    /// Of a recall: for whom.
    pub account: AccountId,
    /// Of a recall: his owner, and the weight of that one's share.
    pub owner: u32,
    pub weight: f64,
    /// Second of a deadline that can only just be met, or cannot any more.
    pub due: Option<i64>,
    /// What its owner has had (of a write: the drives that its pool has), the less the sooner it is his turn.
    pub had: u64,
    /// Of a recall: a drive works towards it.
    pub in_hand: bool,
    /// Of a recall: the files.
    pub queue: Option<&'v RecallQueue>,
    /// Of maintenance: the job.
    pub job: Option<&'v Maintenance>,
    /// Of a recall or of maintenance: its volume, if the view knows it.
    pub volume: Option<&'v Volume<'v>>,
    /// Of these: the drive that holds the volume or is about to.
    pub drive: Option<&'v Drive>,
}

impl<'v> Demand<'v> {
    fn new(view: &SchedView<'v>, need: Need<'v>, level: Level, priority: u8, since: Time) -> Self {
        Self {
            need,
            level,
            starving: level.starves(view, since),
            priority,
            since,
            files: 0,
            account: AccountId::default(),
            owner: 0,
            weight: 1.0,
            due: None,
            had: 0,
            in_hand: false,
            queue: None,
            job: None,
            volume: None,
            drive: None,
        }
    }

    /// Files that wait for one account on one volume.
    fn recall(view: &SchedView<'v>, volume: &'v Barcode, share: &Share) -> Self {
        let level = if share.priority == BACKGROUND { Level::Background } else { Level::Recall };
        let demand = Self::new(view, Need::Recall(volume), level, share.priority, share.since);
        let (owner, weight) = view.accounts.share(share.account);
        let due =
            share.deadline.filter(|deadline| is_due(view, share, *deadline)).map(|deadline| deadline.secs);
        Self { files: share.files, account: share.account, owner, weight, due, ..demand }
    }

    /// Its place in order. Of what has waited equally long the longest goes first: then the drives end at about the same
    /// time. What is alike stays in the order of volumes, pools and ids.
    fn key(&self) -> impl Ord + use<> {
        let (level, due, had) = if self.starving {
            (0, i64::MAX, 0)
        } else {
            let rank = (1 + self.level as u16) << 8 | u16::from(u8::MAX - self.priority);
            (rank, self.due.unwrap_or(i64::MAX), self.had)
        };
        (level, due, had, self.since, Reverse(self.files))
    }

    pub(crate) fn want(&self) -> Want {
        match (self.need, self.volume) {
            (Need::Recall(_), Some(volume)) => Want::Recall(volume.name.clone()),
            (need, _) => need.want(),
        }
    }

    /// Whether this demand may take the drive of a mounted volume that has `other` to do; `turn_over`: that volume has
    /// had its time.
    pub(crate) fn may_displace(&self, other: &Demand<'_>, turn_over: bool) -> bool {
        match (self.starving, other.starving) {
            (true, true) => turn_over && self.since < other.since,
            (true, false) => turn_over || self.level < other.level,
            (false, true) => false,
            (false, false) => {
                let rank = |demand: &Demand<'_>| (demand.priority, demand.due.is_some());
                let dearer = self.level == other.level && rank(self) > rank(other);
                self.level < other.level || (dearer && turn_over)
            }
        }
    }
}

/// Whether a deadline can only just be met if its volume is fetched now.
fn is_due(view: &SchedView<'_>, share: &Share, deadline: Time) -> bool {
    let m = view.mechanics;
    let files_s = share.files as f64 * m.locate_s + m.transfer(share.bytes);
    let needed_s = DEADLINE_MARGIN * (m.unmount_s() + m.mount_s() + files_s);
    deadline.since(view.now).as_secs_f64() <= needed_s
}

/// All demands, first served first.
pub(crate) fn demands<'v>(
    view: &SchedView<'v>,
    hand: &InHand<'v>,
    volumes: &'v Volumes<'v>,
) -> Vec<Demand<'v>> {
    let mut all = Vec::with_capacity(view.recalls.len());
    // Both are sorted by volume: to walk along them is cheaper than so many look-ups.
    let mut known = volumes.walk();
    for (name, queue) in view.recalls {
        let Some(share) = for_whom(view, hand, queue) else { continue };
        let volume = known.at(name);
        let (drive, in_hand) = match volume {
            Some(volume) => (volume.drive, volume.in_hand),
            None => (volumes.drive_of(name), hand.has(Need::Recall(name))),
        };
        let demand = Demand::recall(view, name, &share);
        all.push(Demand { queue: Some(queue), volume, drive, in_hand, ..demand });
    }
    share_out(view, hand, &mut all);
    for (pool, backlog) in view.writes {
        writers(view, hand, pool, backlog, &mut all);
    }
    for job in view.maintenance.iter().filter(|job| !hand.has(Need::Maintain(job.id))) {
        // Labels first: a pool may be waiting for them.
        let priority = u8::from(job.kind == MaintenanceKind::Label);
        let verify = job.kind == MaintenanceKind::Verify;
        let level = if verify { Level::Background } else { Level::Maintain };
        let demand = Demand::new(view, Need::Maintain(job.id), level, priority, job.since);
        let volume = volumes.get(&job.volume);
        let drive = volumes.drive_of(&job.volume);
        all.push(Demand { job: Some(job), volume, drive, ..demand });
    }
    // Numbers are sorted, and each demand is moved once.
    let mut order: Vec<_> = (0u32..).zip(&all).map(|(n, demand)| (demand.key(), n)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, n)| all[n as usize]).collect()
}

/// One demand for each writer that a pool lacks.
fn writers<'v>(
    view: &SchedView<'v>,
    hand: &InHand<'v>,
    pool: &'v PoolName,
    backlog: &Backlog,
    all: &mut Vec<Demand<'v>>,
) {
    let need = Need::Write(pool);
    let running = hand.drives_for(need);
    let per_writer = view.limits.bytes_per_writer.max(1);
    let wanted = match backlog.files {
        0 => 0,
        _ => backlog.bytes.div_ceil(per_writer).clamp(1, view.drives.len().max(1) as u64),
    };
    let wanted = match backlog.limited {
        None => wanted,
        // A drive more would find nothing that it may take.
        Some(Limited { open: 0, .. }) => wanted.min(running),
        Some(Limited { drives, open }) => wanted.min(drives).min((running + open / per_writer).max(1)),
    };
    for n in running..wanted {
        let level = match (n, view.disk_pressure) {
            (0, true) => Level::PressedWrite,
            (0, false) if backlog.rescue => Level::Rescue,
            (0, false) => Level::Write,
            _ => Level::ExtraWrite,
        };
        // Pools take turns: a second writer of each comes before a third of any.
        all.push(Demand { had: n, ..Demand::new(view, need, level, 0, backlog.since) });
    }
    let Ahead { writing, soon_full } = ahead(view, pool, backlog);
    for n in running.max(wanted)..wanted.max(writing) + soon_full {
        all.push(Demand { had: n, ..Demand::new(view, need, Level::Ahead, 0, backlog.since) });
    }
}

/// What the busy drives work towards.
pub(crate) struct InHand<'v> {
    needs: HashMap<Need<'v>, u64>,
    /// What owners have used of drives so far (seconds), by account.
    used: Vec<f64>,
    /// Drives that work for each owner.
    pub(crate) owners: HashMap<u32, u32>,
    /// Drives that count for each cap.
    pub(crate) caps: Vec<u32>,
}

impl<'v> InHand<'v> {
    pub(crate) fn new(view: &SchedView<'v>) -> Self {
        let (mut needs, mut owners) = (HashMap::new(), HashMap::new());
        let mut caps = vec![0; view.accounts.caps.len()];
        for drive in view.drives {
            let DriveState::Busy(busy) = &drive.state else { continue };
            if let Some(want) = &busy.want {
                *needs.entry(Need::of(want)).or_default() += 1;
            }
            if let Some(account) = busy.charge {
                *owners.entry(view.accounts.share(account).0).or_default() += 1;
                count(view, account, &mut caps);
            }
        }
        let used = |account: &Account| view.accounts.used.used(account.owner, view.now);
        Self { needs, used: view.accounts.list.iter().map(used).collect(), owners, caps }
    }

    /// What the owner of an account has used of drives so far (seconds).
    pub(crate) fn used(&self, view: &SchedView<'_>, account: AccountId) -> f64 {
        let known = self.used.get(account.0 as usize).copied();
        known.unwrap_or_else(|| view.accounts.used.used(view.accounts.share(account).0, view.now))
    }

    /// Drives that work for an owner.
    pub(crate) fn drives_of(&self, owner: u32) -> u32 {
        self.owners.get(&owner).copied().unwrap_or(0)
    }

    /// Whether a cap of this account allows no more drives.
    pub(crate) fn is_capped(&self, view: &SchedView<'_>, account: AccountId) -> bool {
        let caps = &view.accounts.caps;
        let full =
            |cap: &usize| self.caps.get(*cap).zip(caps.get(*cap)).is_some_and(|(n, cap)| *n >= cap.drives);
        view.accounts.caps_of(account).iter().any(full)
    }

    /// Drives that work towards writing.
    pub(crate) fn writers(&self) -> u64 {
        self.needs.iter().filter(|(need, _)| matches!(need, Need::Write(_))).map(|(_, drives)| drives).sum()
    }

    /// Volumes that a drive works towards reading.
    pub(crate) fn recalls(&self) -> impl Iterator<Item = &'v Barcode> {
        self.needs.keys().filter_map(|need| match need {
            Need::Recall(volume) => Some(*volume),
            _ => None,
        })
    }

    /// Drives that work towards it.
    fn drives_for(&self, need: Need<'v>) -> u64 {
        self.needs.get(&need).copied().unwrap_or(0)
    }

    /// Whether a drive already works towards it.
    fn has(&self, need: Need<'v>) -> bool {
        self.needs.contains_key(&need)
    }
}

/// One more drive counts for the caps of an account.
pub(crate) fn count(view: &SchedView<'_>, account: AccountId, caps: &mut [u32]) {
    for cap in view.accounts.caps_of(account) {
        if let Some(drives) = caps.get_mut(*cap) {
            *drives += 1;
        }
    }
}
