//! Who wants a drive, in the order in which they get one.

use crate::{Backlog, DriveState, MaintenanceKind, SchedView};
use std::cmp::Reverse;
use std::fmt;
use types::{Barcode, PoolName, Time};

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

/// Kinds of demand, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The disk is nearly full.
    PressedWrite,
    Recall,
    Write,
    Maintain,
    /// A second writer of a pool.
    ExtraWrite,
}

/// A want with what decides its turn.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub want: Want,
    pub level: Level,
    pub starving: bool,
    pub priority: u8,
    pub since: Time,
}

impl Demand {
    fn new(view: &SchedView<'_>, want: Want, level: Level, priority: u8, since: Time) -> Self {
        let starving = level != Level::ExtraWrite && view.now.since(since) >= view.limits.starve_after;
        Self { want, level, starving, priority, since }
    }

    fn key(&self) -> impl Ord + '_ {
        let (level, priority) =
            if self.starving { (None, Reverse(0)) } else { (Some(self.level), Reverse(self.priority)) };
        (level, priority, self.since, &self.want)
    }

    /// Whether this demand may take the drive of a mounted volume that has `other` to do; `turn_over`: that volume has
    /// had its time.
    pub(crate) fn may_displace(&self, other: &Demand, turn_over: bool) -> bool {
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
pub(crate) fn demands(view: &SchedView<'_>) -> Vec<Demand> {
    let mut all: Vec<Demand> = view
        .recalls
        .iter()
        .filter_map(|(volume, queue)| {
            let want = Want::Recall(volume.clone());
            Some(Demand::new(view, want, Level::Recall, queue.priority(), queue.oldest()?))
        })
        .collect();
    for (pool, backlog) in view.writes {
        writers(view, pool, backlog, &mut all);
    }
    for job in view.maintenance.iter().filter(|job| !in_hand(view, &Want::Maintain(job.id))) {
        // Labels first: a pool may be waiting for them.
        let priority = u8::from(job.kind == MaintenanceKind::Label);
        all.push(Demand::new(view, Want::Maintain(job.id), Level::Maintain, priority, job.since));
    }
    all.sort_by(|a, b| a.key().cmp(&b.key()));
    all
}

/// One demand for each writer that a pool lacks.
fn writers(view: &SchedView<'_>, pool: &PoolName, backlog: &Backlog, all: &mut Vec<Demand>) {
    if backlog.files == 0 {
        return;
    }
    let want = Want::Write(pool.clone());
    let running = view.drives.iter().filter(|drive| drive.state.works_for(&want)).count() as u64;
    let per_writer = view.limits.bytes_per_writer.max(1);
    let wanted = backlog.bytes.div_ceil(per_writer).clamp(1, view.drives.len().max(1) as u64);
    for n in running..wanted {
        let level = match (n, view.disk_pressure) {
            (0, true) => Level::PressedWrite,
            (0, false) => Level::Write,
            _ => Level::ExtraWrite,
        };
        all.push(Demand::new(view, want.clone(), level, 0, backlog.since));
    }
}

/// Whether a drive already works towards `want`.
pub(crate) fn in_hand(view: &SchedView<'_>, want: &Want) -> bool {
    view.drives.iter().any(|drive| drive.state.works_for(want))
}

impl DriveState {
    fn works_for(&self, want: &Want) -> bool {
        matches!(self, Self::Busy(busy) if busy.want.as_ref() == Some(want))
    }
}
