//! Who wants a drive, in the order in which they get one.

use crate::{Backlog, Drive, DriveState, Maintenance, MaintenanceKind, SchedView, Tape};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use types::{Barcode, PoolName, Time};

/// Recalls of this priority are nobody's who waits: they take drives that nothing else wants.
pub const BACKGROUND: u8 = 0;

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
    pub files: usize,
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
        let waits = matches!(level, Level::ExtraWrite | Level::Background);
        let starving = !waits && view.now.since(since) >= view.limits.starve_after;
        let (tape, drive, job) = (None, None, None);
        Self { need, level, starving, priority, since, files: 0, tape, drive, in_hand: false, job }
    }

    fn key(&self) -> impl Ord + '_ {
        let (level, priority) =
            if self.starving { (None, Reverse(0)) } else { (Some(self.level), Reverse(self.priority)) };
        // Of what has waited equally long the longest first: then the drives end at about the same time.
        (level, priority, self.since, Reverse(self.files), self.need)
    }

    /// Whether this demand may take the drive of a mounted volume that has `other` to do; `turn_over`: that volume has
    /// had its time.
    pub(crate) fn may_displace(&self, other: &Demand<'_>, turn_over: bool) -> bool {
        match (self.starving, other.starving) {
            (true, true) => turn_over && self.since < other.since,
            (true, false) => turn_over || self.level < other.level,
            (false, true) => false,
            (false, false) => {
                let dearer = self.level == other.level && self.priority > other.priority;
                self.level < other.level || (dearer && turn_over)
            }
        }
    }
}

/// All demands, first served first.
pub(crate) fn demands<'v>(view: &SchedView<'v>, hand: &InHand<'v>) -> Vec<Demand<'v>> {
    let mut all = Vec::with_capacity(view.recalls.len());
    // All are sorted by volume: to walk along them is cheaper than so many lookups.
    let mut tapes = Walk::new(view.volumes.iter());
    let mut drives = Walk::new(drives_by_volume(view).into_iter());
    let mut in_hand = Walk::new(hand.recalls().into_iter().map(|volume| (volume, ())));
    for (volume, queue) in view.recalls {
        let Some(since) = queue.oldest() else { continue };
        let level = if queue.priority() == BACKGROUND { Level::Background } else { Level::Recall };
        let demand = Demand::new(view, Need::Recall(volume), level, queue.priority(), since);
        let (tape, drive) = (tapes.at(volume), drives.at(volume));
        let in_hand = in_hand.at(volume).is_some();
        all.push(Demand { files: queue.len(), tape, drive, in_hand, ..demand });
    }
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
    all.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
    all
}

/// One demand for each writer that a pool lacks.
fn writers<'v>(
    view: &SchedView<'v>,
    hand: &InHand<'v>,
    pool: &'v PoolName,
    backlog: &Backlog,
    all: &mut Vec<Demand<'v>>,
) {
    if backlog.files == 0 {
        return;
    }
    let need = Need::Write(pool);
    let running = hand.drives_for(need);
    let per_writer = view.limits.bytes_per_writer.max(1);
    let wanted = backlog.bytes.div_ceil(per_writer).clamp(1, view.drives.len().max(1) as u64);
    for n in running..wanted {
        let level = match (n, view.disk_pressure) {
            (0, true) => Level::PressedWrite,
            (0, false) => Level::Write,
            _ => Level::ExtraWrite,
        };
        all.push(Demand::new(view, need, level, 0, backlog.since));
    }
}

/// What the busy drives work towards.
pub(crate) struct InHand<'v>(HashMap<Need<'v>, u64>);

impl<'v> InHand<'v> {
    pub(crate) fn new(view: &SchedView<'v>) -> Self {
        let mut needs = HashMap::new();
        for drive in view.drives {
            if let DriveState::Busy(busy) = &drive.state
                && let Some(want) = &busy.want
            {
                *needs.entry(Need::of(want)).or_default() += 1;
            }
        }
        Self(needs)
    }

    /// Volumes that a drive works towards reading, sorted.
    fn recalls(&self) -> Vec<&'v Barcode> {
        let volumes = self.0.keys().filter_map(|need| match need {
            Need::Recall(volume) => Some(*volume),
            _ => None,
        });
        let mut volumes: Vec<_> = volumes.collect();
        volumes.sort_unstable();
        volumes
    }

    /// Drives that work towards it.
    fn drives_for(&self, need: Need<'v>) -> u64 {
        self.0.get(&need).copied().unwrap_or(0)
    }

    /// Whether a drive already works towards it.
    fn has(&self, need: Need<'v>) -> bool {
        self.0.contains_key(&need)
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
