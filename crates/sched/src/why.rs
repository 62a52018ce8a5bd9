//! Reasons, for `request show`, `drive ls` and the log.

use crate::Want;
use std::fmt;
use types::{Access, Barcode, DriveNo, Generation, PoolName, plural};

/// Why an action is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Users wait for files on this volume.
    FilesWanted {
        /// Files.
        files: u64,
        /// Bytes.
        bytes: u64,
        /// Longest wait (seconds).
        waited_s: u64,
    },
    /// Copies wait to be written to this pool.
    BacklogWaits {
        /// Pool.
        pool: PoolName,
        /// Copies.
        files: u64,
        /// Bytes.
        bytes: u64,
    },
    /// As before, and the disk pool is nearly full: writes go before reads.
    DiskPressure {
        /// Pool.
        pool: PoolName,
    },
    /// It has waited longer than anybody may.
    Starving {
        /// Wait (seconds).
        waited_s: u64,
        /// What it is.
        want: Want,
    },
    /// The pool needs an empty volume and this one carries no label.
    PoolNeedsVolume {
        /// Pool.
        pool: PoolName,
    },
    /// The volume that is written will be full soon, and more is to be written than it takes.
    NextVolume {
        /// Pool.
        pool: PoolName,
    },
    /// An operator or the system asked for it.
    Asked,
    /// The drive is needed for something more urgent.
    DriveNeeded {
        /// For what.
        want: Want,
    },
    /// Nothing to do for this volume for so long (seconds).
    Idle {
        /// Seconds.
        idle_s: u64,
    },
    /// Data lies behind the newest index and the volume is about to leave the drive.
    IndexBehind,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FilesWanted { files, bytes, waited_s } => {
                write!(
                    f,
                    "wanted from it: {} ({bytes} bytes), the first for {waited_s} s",
                    plural(*files, "file")
                )
            }
            Self::BacklogWaits { pool, files, bytes } => {
                write!(f, "waiting for pool {pool}: {} ({bytes} bytes)", plural(*files, "copy"))
            }
            Self::DiskPressure { pool } => {
                write!(f, "the disk pool is nearly full and copies wait for pool {pool}")
            }
            Self::Starving { waited_s, want } => write!(f, "{want} has waited for {waited_s} s, too long"),
            Self::PoolNeedsVolume { pool } => write!(f, "pool {pool} needs an empty volume"),
            Self::NextVolume { pool } => {
                write!(f, "the volume of pool {pool} that is written will be full soon, this is the next")
            }
            Self::Asked => f.write_str("asked for"),
            Self::DriveNeeded { want } => write!(f, "the drive is needed for {want}"),
            Self::Idle { idle_s } => write!(f, "nothing to do for it for {idle_s} s"),
            Self::IndexBehind => f.write_str("data lies behind its newest index"),
        }
    }
}

/// Why something that is wanted gets no drive now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockedWhy {
    /// No usable drive at all.
    NoDrive,
    /// All usable drives do something at least as urgent.
    DrivesBusy,
    /// The robot is moving.
    RobotBusy,
    /// The volume is in use by the job that runs on this drive.
    VolumeBusy(DriveNo),
    /// The volume sits in a drive that is out of use.
    StuckInDrive(DriveNo),
    /// The volume is not in the library.
    Absent(Barcode),
    /// The volume cannot be read.
    Unreadable(Barcode),
    /// No volume of the pool takes data, and none is free to join it.
    NoVolume(PoolName),
    /// The pool has as many volumes as it may.
    PoolFull(PoolName),
    /// As many drives work for it as a limit allows.
    Limit {
        /// Name of the limit.
        name: String,
        /// Drives that it allows.
        drives: u32,
    },
    /// The drives left are kept for reading.
    Reserved(u32),
    /// No drive of the volume's library reads, or writes, its medium.
    NoDriveFor {
        /// Volume.
        volume: Barcode,
        /// Its medium; None: not known, every drive refused the volume.
        medium: Option<Generation>,
        /// What is to be done with it.
        access: Access,
    },
    /// The drives that take such a medium are all out of use.
    DrivesDown(Option<Generation>),
    /// What volumes are left for the pool no drive writes.
    NoWriter {
        /// Pool.
        pool: PoolName,
        /// One of them.
        volume: Barcode,
        /// Its medium.
        medium: Option<Generation>,
    },
}

/// The drives that there are for a medium, in words.
fn drives_for(medium: Option<Generation>, access: Access) -> String {
    let Some(medium) = medium else { return "another drive".into() };
    let takes = Generation::ALL.iter().filter(|drive| drive.takes(medium, access));
    let names: Vec<String> = takes.map(ToString::to_string).collect();
    format!("a drive of {}", names.join(" or "))
}

impl fmt::Display for BlockedWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDrive => f.write_str(
                "every drive is out of use; `thermo drive ls` says why, `thermo drive up N` brings one back",
            ),
            Self::DrivesBusy => f.write_str("waits for a drive"),
            Self::RobotBusy => f.write_str("waits for the robot"),
            Self::VolumeBusy(drive) => write!(f, "its volume is in use in drive {drive}"),
            Self::StuckInDrive(drive) => {
                write!(
                    f,
                    "its volume is in drive {drive}, which is out of use; repair that drive or take the cartridge out"
                )
            }
            Self::Absent(volume) => write!(f, "volume {volume} is not in the library; import it"),
            Self::Unreadable(volume) => {
                write!(f, "volume {volume} cannot be read; see `thermo volume show {volume}`")
            }
            Self::NoVolume(pool) => {
                write!(f, "no volume for pool {pool}: all are full; import blank cartridges and label them")
            }
            Self::Limit { name, drives } => {
                write!(
                    f,
                    "limit `{name}` allows {} at once, and as many are in use for it",
                    plural(*drives, "drive")
                )
            }
            Self::NoDriveFor { volume, medium, access } => {
                let does = if *access == Access::Read { "reads" } else { "writes" };
                let what = medium.map_or_else(|| "it".into(), |medium| medium.to_string());
                let need = drives_for(*medium, *access);
                write!(
                    f,
                    "no drive of the library that volume {volume} is in {does} {what}; it takes {need} (`thermo drive ls` says what there is)"
                )
            }
            Self::DrivesDown(medium) => {
                let what = medium.map_or_else(|| "its volume".into(), |medium| medium.to_string());
                write!(
                    f,
                    "the drives that take {what} are out of use; `thermo drive ls` says why, `thermo drive up N` brings one back"
                )
            }
            Self::NoWriter { pool, volume, medium } => {
                let need = drives_for(*medium, Access::Write);
                write!(
                    f,
                    "no volume for pool {pool}: no drive here writes volume {volume}, for which it takes {need}; import blank cartridges that the drives write"
                )
            }
            Self::Reserved(drives) => {
                write!(f, "kept for reading (`tape.drives_for_recall`): {}", plural(*drives, "drive"))
            }
            Self::PoolFull(pool) => {
                write!(
                    f,
                    "pool {pool} has as many volumes as it may and all are full; raise its limit with `thermo pool set`"
                )
            }
        }
    }
}
