//! What releases understand of each other.

use crate::{Call, FileCall};

/// Wire versions, newest first:
/// 5: clusters: `ClusterInit` and what follows it; `Act`; findings of `Check` may be incomplete files; names that are not UTF-8 come
/// as they are.
/// 4: a request says when it begins and ends, with p50 and p90, and why it waits; it has a priority and a deadline.
/// 3: a volume says who set its state and when it was verified; `SetVolume`, `SetPool`.
/// 2: `Mount` says what `O_NONBLOCK` means.
/// 1: first release.
pub const VERSION: u32 = 5;

/// Versions that this program can speak: its own and that of the release before. Whoever changes what an older one among them has gives the
/// new one a type of its own (`tests/neighbours.rs` holds what version 4 sent).
pub const SPOKEN: &[u32] = &[5, 4];

impl Call {
    /// Wire version from which on nodes know it.
    pub fn since(&self) -> u32 {
        match self {
            Self::ClusterInit { .. }
            | Self::ClusterToken { .. }
            | Self::ClusterJoin(_)
            | Self::Cluster
            | Self::ClusterRenew(_)
            | Self::ClusterRemove { .. }
            | Self::ClusterRevoke
            | Self::ClusterRemoved { .. }
            | Self::Targets
            | Self::ReportTargets(_)
            | Self::Act(_)
            | Self::VolumeFilesFrom(_)
            | Self::ExportedAs(_)
            | Self::ImportAs(..)
            | Self::DriveDetails(_)
            | Self::PoolKeys
            | Self::Layout(_)
            | Self::SetLayout(..)
            | Self::StandbyStep(_)
            | Self::Standby
            | Self::StandbyTakeOver { .. }
            | Self::Devices
            | Self::OpenDevice { .. }
            | Self::Scsi(_)
            | Self::TakeDriveOut { .. }
            | Self::Session(_)
            | Self::FileFor(_)
            | Self::MoveTargets(_)
            | Self::ClusterAddresses
            | Self::StandbyKeep(_)
            | Self::MoveEngine { .. }
            | Self::Turns
            | Self::TurnKept
            | Self::JunctionMake { .. }
            | Self::JunctionRemove { .. }
            | Self::Junctions
            | Self::Subsystem
            | Self::RefusedTargets
            | Self::Usage
            | Self::Quotas
            | Self::SetQuota { .. }
            | Self::ClusterPlaces { .. }
            | Self::Reload
            | Self::AddTarget { .. }
            | Self::TargetPool(_)
            | Self::ClusterStatus
            | Self::For(_)
            | Self::ProgramSession(_)
            | Self::Depot(_) => 5,
            Self::File(call) => call.since(),
            _ => 4,
        }
    }
}

impl FileCall {
    fn since(&self) -> u32 {
        match self {
            Self::Follow { .. }
            | Self::CreateAs { .. }
            | Self::OpenAs { .. }
            | Self::Fsync { .. }
            | Self::Rename { .. }
            | Self::Rmdir { .. }
            | Self::RemoveXattr { .. }
            | Self::ClearSetId(_)
            | Self::Parent(_)
            | Self::StatFs
            | Self::GetXattr { .. }
            | Self::SetXattrAs { .. }
            | Self::ReadNow { .. }
            | Self::WriteAt { .. }
            | Self::Prepare { .. }
            | Self::Withdraw(_)
            | Self::Fallocate { .. }
            | Self::Seek { .. }
            | Self::SyncNames
            | Self::LayoutGet(_)
            | Self::LayoutCommit { .. }
            | Self::LayoutLend(_)
            | Self::WriteAlone(_)
            | Self::WriteAloneEnd { .. }
            | Self::WriteAloneStands { .. }
            | Self::LayoutCopies(_)
            | Self::CopiesEnd { .. }
            | Self::WriteSpared { .. }
            | Self::SettleSpared(_)
            | Self::ReturnSpared { .. }
            | Self::SparedReturned { .. }
            | Self::SparedOver
            | Self::Lock { .. }
            | Self::TestLock { .. }
            | Self::LockEvents { .. }
            | Self::Leased(_)
            | Self::Forgotten { .. }
            | Self::LockAs { .. } => 5,
            _ => 4,
        }
    }
}
