//! Who wants a drive, in the order in which they get one.

use crate::ahead::{Ahead, ahead};
use crate::{
    AccountId, Backlog, Drive, DriveState, Limited, Maintenance, MaintenanceKind, RecallQueue, SchedView,
    Share, Tape,
};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use types::{Barcode, PoolName, Time};

/// Recalls of this priority are nobody's who waits: they take drives that nothing else wants.
pub const BACKGROUND: u8 = 0;
/// A deadline is looked at when so many times what its files take is left until then.
const DEADLINE_MARGIN: f64 = 2.0;
/// Owners whose use of drives differs by less than this part of a turn are served in the order of asking.
pub(crate) const STEPS_OF_TURN: f64 = 4.0;

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

    pub(crate) fn want(self) -> Want {
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
    Write,
    Maintain,
    /// A second writer of a pool.
    ExtraWrite,
    /// What can wait for as long as anything else wants the drive.
    Background,
    /// The volume that a pool will need soon.
    Ahead,
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
    /// Of a recall: its volume, if it is known.
    pub tape: Option<&'v Tape>,
    /// Of a recall: the drive that holds the volume or is about to.
    pub drive: Option<&'v Drive>,
    /// Of a recall: a drive works towards it.
    pub in_hand: bool,
    /// Of maintenance: the job.
    pub job: Option<&'v Maintenance>,
}

impl<'v> Demand<'v> {
    fn new(view: &SchedView<'v>, need: Need<'v>, level: Level, priority: u8, since: Time) -> Self {
        let waits = matches!(level, Level::ExtraWrite | Level::Background | Level::Ahead);
        let starving = !waits && view.now.since(since) >= view.limits.starve_after;
        Self {
            need,
            level,
            starving,
            priority,
            since,
            files: 0,
            account: AccountId::default(),
            owner: 0,
            weight: 1.0,
            due: None,
            had: 0,
            tape: None,
            drive: None,
            in_hand: false,
            job: None,
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

    /// Of one owner's demands, which comes first.
    fn own_key(&self) -> impl Ord + use<> {
        let loaded = self.drive.is_some_and(|drive| matches!(drive.state, DriveState::Loaded(_)));
        (
            Reverse(self.starving),
            Reverse(self.priority),
            by_deadline(self.due),
            !loaded,
            self.since,
            Reverse(self.files),
        )
    }

    fn key(&self) -> impl Ord + use<> {
        let (level, priority, due, had) = if self.starving {
            (None, Reverse(0), by_deadline(None), 0)
        } else {
            (Some(self.level), Reverse(self.priority), by_deadline(self.due), self.had)
        };
        // Of what has waited equally long the longest first: then the drives end at about the same time. What is alike stays
        // in the order of volumes, pools and ids.
        (level, priority, due, had, self.since, Reverse(self.files))
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

/// Deadlines in order, those without behind them.
fn by_deadline(due: Option<i64>) -> (bool, Option<i64>) {
    (due.is_none(), due)
}

/// Whether a deadline can only just be met if its volume is fetched now.
fn is_due(view: &SchedView<'_>, share: &Share, deadline: Time) -> bool {
    let m = view.mechanics;
    let files_s = share.files as f64 * m.locate_s + m.transfer(share.bytes);
    let needed_s = DEADLINE_MARGIN * (m.unmount_s() + m.mount_s() + files_s);
    deadline.since(view.now).as_secs_f64() <= needed_s
}

/// All demands, first served first.
pub(crate) fn demands<'v>(view: &SchedView<'v>, hand: &InHand<'v>) -> Vec<Demand<'v>> {
    let mut all = Vec::with_capacity(view.recalls.len());
    // All are sorted by volume: to walk along them is cheaper than so many lookups.
    let mut tapes = Walk::new(view.volumes.iter());
    let mut drives = Walk::new(drives_by_volume(view).into_iter());
    let mut in_hand = Walk::new(hand.recalls().into_iter().map(|volume| (volume, ())));
    for (volume, queue) in view.recalls {
        if queue.is_empty() {
            continue;
        }
        let (tape, drive) = (tapes.at(volume), drives.at(volume));
        let in_hand = in_hand.at(volume).is_some();
        if let Some(share) = for_whom(view, hand, queue) {
            all.push(Demand { tape, drive, in_hand, ..Demand::recall(view, volume, &share) });
        }
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
        all.push(Demand { job: Some(job), ..demand });
    }
    all.sort_by_cached_key(Demand::key);
    all
}

/// Whom a volume is fetched for, of those who want files of it: somebody whose limits allow it, then the one whose turn comes
/// first. Files of the others are read along.
fn for_whom(view: &SchedView<'_>, hand: &InHand<'_>, queue: &RecallQueue) -> Option<Share> {
    let mut shares = queue.shares();
    let first = shares.next()?;
    let key = |share: &Share| {
        let demand = Demand::new(view, Need::Maintain(0), Level::Recall, share.priority, share.since);
        let (owner, weight) = view.accounts.share(share.account);
        let had_s = view.accounts.used.used(owner, view.now) / weight;
        (
            hand.is_capped(view, share.account),
            !demand.starving,
            Reverse(share.priority),
            had_s as u64,
            share.since,
        )
    };
    // Few volumes are wanted by several.
    let Some(second) = shares.next() else { return Some(first) };
    [first, second].into_iter().chain(shares).min_by_key(key)
}

/// Says of each demand what its owner has had by the time of his turn: the use of drives so far, the drives that work for
/// him, and one turn for each of his own demands before it, in proportion to his weight.
fn share_out(view: &SchedView<'_>, hand: &InHand<'_>, recalls: &mut [Demand<'_>]) {
    let Some(first) = recalls.first() else { return };
    if recalls.iter().all(|demand| demand.owner == first.owner) {
        return;
    }
    let mut order: Vec<usize> = (0..recalls.len()).collect();
    order.sort_unstable_by(|a, b| {
        let key = |n: &usize| (recalls[*n].owner, recalls[*n].own_key(), *n);
        key(a).cmp(&key(b))
    });
    let turn_s = view.limits.turn.as_secs_f64().max(1.0);
    let (mut owner, mut had_s) = (None, 0.0);
    for n in order {
        let demand = &mut recalls[n];
        if owner != Some(demand.owner) {
            owner = Some(demand.owner);
            had_s = view.accounts.used.used(demand.owner, view.now);
            had_s += turn_s * f64::from(hand.drives_of(demand.owner));
        }
        // In steps: who has had about the same is served in the order of asking.
        demand.had = (had_s / demand.weight / turn_s * STEPS_OF_TURN) as u64;
        had_s += turn_s;
    }
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
        Self { needs, owners, caps }
    }

    /// Drives that work for an owner.
    pub(crate) fn drives_of(&self, owner: u32) -> u32 {
        self.owners.get(&owner).copied().unwrap_or(0)
    }

    /// Whether a cap of this account allows no more drives.
    fn is_capped(&self, view: &SchedView<'_>, account: AccountId) -> bool {
        let caps = &view.accounts.caps;
        let full =
            |cap: &usize| self.caps.get(*cap).zip(caps.get(*cap)).is_some_and(|(n, cap)| *n >= cap.drives);
        view.accounts.caps_of(account).iter().any(full)
    }

    /// Drives that work towards writing.
    pub(crate) fn writers(&self) -> u64 {
        self.needs.iter().filter(|(need, _)| matches!(need, Need::Write(_))).map(|(_, drives)| drives).sum()
    }

    /// Volumes that a drive works towards reading, sorted.
    fn recalls(&self) -> Vec<&'v Barcode> {
        let volumes = self.needs.keys().filter_map(|need| match need {
            Need::Recall(volume) => Some(*volume),
            _ => None,
        });
        let mut volumes: Vec<_> = volumes.collect();
        volumes.sort_unstable();
        volumes
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

fn drives_by_volume<'v>(view: &SchedView<'v>) -> Vec<(&'v Barcode, &'v Drive)> {
    let mut drives: Vec<_> = view.drives.iter().filter_map(|drive| Some((drive.volume()?, drive))).collect();
    drives.sort_by_key(|(volume, _)| *volume);
    drives
}

/// Looks up volumes in ascending order.
struct Walk<'v, T, I: Iterator<Item = (&'v Barcode, T)>>(std::iter::Peekable<I>);

impl<'v, T: Copy, I: Iterator<Item = (&'v Barcode, T)>> Walk<'v, T, I> {
    fn new(sorted: I) -> Self {
        Self(sorted.peekable())
    }

    fn at(&mut self, volume: &Barcode) -> Option<T> {
        while self.0.next_if(|(other, _)| *other < volume).is_some() {}
        self.0.peek().filter(|(other, _)| *other == volume).map(|(_, found)| *found)
    }
}
