//! What a plan consists of.

use crate::{AccountId, BlockedWhy, Busy, Want, Why, Work};
use types::{Barcode, DriveNo, PoolName, Time};

/// What a drive is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Fetch and load a volume.
    Mount {
        /// The volume.
        volume: Barcode,
    },
    /// Unload the volume and put it back.
    Unmount {
        /// The volume.
        volume: Barcode,
    },
    /// Read these files: on a tape that is one line all of them in this order; on one with wraps as many as
    /// [`crate::first_part`] says of the order that [`crate::recall_order`] finds, and the others go back to the queue.
    Recall {
        /// The volume.
        volume: Barcode,
        /// Item ids by ascending block.
        order: Vec<u64>,
    },
    /// Write the backlog of a pool; the session pulls copies until there are none, the volume is full, or its own
    /// bound is reached.
    Migrate {
        /// The volume.
        volume: Barcode,
        /// The pool.
        pool: PoolName,
    },
    /// Write a label.
    Label {
        /// The volume.
        volume: Barcode,
        /// Maintenance job that asked, if one did.
        id: Option<u64>,
        /// Pool that needs the volume, if one does.
        pool: Option<PoolName>,
    },
    /// Write an index.
    WriteIndex {
        /// The volume.
        volume: Barcode,
        /// Maintenance job that asked, if one did.
        id: Option<u64>,
    },
    /// Compare label and index with the catalogue.
    Check {
        /// The volume.
        volume: Barcode,
        /// Maintenance job that asked.
        id: u64,
    },
}

/// One job for one drive, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The drive.
    pub drive: DriveNo,
    /// What to do.
    pub job: Job,
    /// What it serves, if anything: keep it in [`Busy::want`] while the job runs.
    pub want: Option<Want>,
    /// Whose limits the drive counts for meanwhile, if anybody's: keep it in [`Busy::charge`], and charge his
    /// [`crate::Shares`] with the time when the job has ended.
    pub charge: Option<AccountId>,
    /// The reason.
    pub why: Why,
}

impl Action {
    /// The state of the drive while the action runs.
    pub fn busy(&self, until: Option<Time>) -> Busy {
        let (work, volume) = match &self.job {
            Job::Mount { volume } => (Work::Mount, volume),
            Job::Unmount { volume } => (Work::Unmount, volume),
            Job::Recall { volume, .. } => (Work::Recall, volume),
            Job::Migrate { volume, .. } => (Work::Migrate, volume),
            Job::Label { volume, .. } | Job::WriteIndex { volume, .. } | Job::Check { volume, .. } => {
                (Work::Maintain, volume)
            }
        };
        Busy { volume: volume.clone(), work, want: self.want.clone(), until, charge: self.charge, room: None }
    }
}

/// A demand that gets nothing now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// What is wanted.
    pub want: Want,
    /// Why it has to wait.
    pub why: BlockedWhy,
}

/// What to do now, and what cannot be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// At most one action per drive; all may begin at once.
    pub actions: Vec<Action>,
    /// Demands that wait, in order.
    pub blocked: Vec<Blocked>,
}
