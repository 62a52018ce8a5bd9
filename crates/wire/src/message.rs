//! The calls of a node. Administration and file access over a socket use the same enum.

use crate::{
    ActOrder, CallOrder, ClassChange, DepotCall, FileCall, FileOrder, FilesOrder, ImportOrder, JoinOrder,
    KeptFile, PoolChange, QuotaChange, QuotaChangeV4, RenewOrder, ScsiOrder, Selection, StandbyStep,
    TargetOrder, TargetPoolOrder, VolumeChoice,
};
use serde::{Deserialize, Serialize};
use types::*;

/// First message of a connection, both ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::VERSION`] of the sender.
    pub version: u32,
    /// Program and release, for logs.
    pub program: String,
}

/// Why a call failed, ready to be shown to a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the caller can do about it.
    pub class: ErrorClass,
    /// POSIX's reason, for file operations.
    pub fs: Option<FsError>,
    /// What happened, to which file, volume or drive, and what to do next.
    pub message: String,
}

/// Everything a node can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// State of the node -> `Status`.
    Status,
    /// Stop: finish (`graceful`) or abandon running batches -> `Done`.
    Down {
        /// Finish the current batch and write indexes first.
        graceful: bool,
    },
    /// Mount the namespace at a directory of the node's host -> `Done`.
    Mount {
        /// Mount point.
        path: String,
        /// What `O_NONBLOCK` means there; None: what the node's configuration says.
        nonblock: Option<NonBlock>,
    },
    /// Unmount -> `Done`.
    Umount {
        /// Mount point.
        path: String,
    },
    /// Directory listing with residency, or the one entry if `path` is not a directory -> `Files`.
    List {
        /// Path in the namespace.
        path: Vec<u8>,
        /// Continue after this cookie (0: start).
        after: u64,
        /// Most entries in the answer.
        limit: u32,
    },
    /// Everything about one path -> `File`.
    Stat {
        /// Path in the namespace.
        path: Vec<u8>,
    },
    /// Bring back to disk -> `Request`.
    Stage(Selection),
    /// Write missing copies now -> `Request`.
    Migrate(Selection),
    /// Release disk space of files whose copies are complete -> `Request`.
    Purge(Selection),
    /// Pin or unpin -> `Count` of files changed.
    Pin {
        /// Which files.
        files: Selection,
        /// True to pin.
        pin: bool,
    },
    /// Requests, newest first -> `Requests`.
    Requests {
        /// Ended ones too.
        all: bool,
        /// Most rows.
        limit: u32,
    },
    /// One request -> `Request`.
    Request(RequestId),
    /// Files of a request -> `RequestItems`.
    RequestItems {
        /// Request.
        id: RequestId,
        /// Continue after this inode (0: start).
        after: Ino,
        /// Most rows.
        limit: u32,
    },
    /// Withdraw a request -> `Done`.
    Cancel(RequestId),
    /// All volumes -> `Volumes`.
    Volumes,
    /// One volume -> `Volume`.
    Volume(Barcode),
    /// Files on a volume in order of its tree -> `VolumeFiles`.
    VolumeFiles {
        /// Volume.
        volume: Barcode,
        /// Skip this many.
        skip: u64,
        /// Most rows.
        limit: u32,
    },
    /// Label volumes (all blank ones if the list is empty) and give them to a pool -> `Request`.
    Label {
        /// Volumes.
        volumes: Vec<Barcode>,
        /// Pool; None: scratch.
        pool: Option<PoolName>,
        /// Overwrite foreign labels (never one with live files).
        force: bool,
        /// Name of the key that the drives encrypt them with; None: as their pool has it.
        key: Option<String>,
    },
    /// Drives -> `Drives`.
    Drives,
    /// Library with all elements -> `Library`.
    Library,
    /// Classes of service -> `Classes`.
    Classes,
    /// Change or make a class -> `Done`.
    SetClass {
        /// Name.
        name: ClassName,
        /// Changes.
        change: ClassChange,
    },
    /// New files below this directory get the class; a file gets it itself -> `Done`.
    AssignClass {
        /// Path in the namespace.
        path: Vec<u8>,
        /// Class.
        class: ClassName,
    },
    /// Pools -> `Pools`.
    Pools,
    /// Compare catalogue, disk and cartridges -> `Check`.
    Check {
        /// Mount every volume and compare its newest index with the catalogue.
        tapes: bool,
        /// Read every byte and compare digests.
        deep: bool,
    },
    /// File access.
    File(FileCall),
    /// Take a drive into use (it must work) or out of use (after its present job; see also `TakeDriveOut`) -> `Done`.
    SetDrive {
        /// Drive.
        drive: DriveNo,
        /// Into use.
        up: bool,
    },
    /// Enter the files of every volume in the library that the catalogue does not know -> `Request`.
    Rebuild,
    /// Write a backup of the catalogue below a directory of the node's host; None: the configured one -> `Backup`.
    Backup {
        /// Absolute path.
        dir: Option<String>,
    },
    /// What every user holds, as version 4 tells it -> `UsageV4`.
    UsageV4,
    /// An operator sets the state of volumes, of all or of none -> `Done`.
    SetVolume {
        /// Volumes.
        volumes: Vec<Barcode>,
        /// The state from now on.
        state: VolumeState,
        /// Why.
        reason: String,
    },
    /// Make a pool, or change its limits -> `Done`.
    SetPool {
        /// Name.
        name: PoolName,
        /// Make it: it must not be there; otherwise it must.
        create: bool,
        /// Changes.
        change: PoolChange,
    },
    /// What owners may hold, and hold, as version 4 tells it -> `QuotasV4`.
    QuotasV4,
    /// Change what an owner may hold, as version 4 says it -> `Done`.
    SetQuotaV4 {
        /// Whose (uid); None: of everybody who has no quota of his own.
        uid: Option<u32>,
        /// Changes; None takes the quota away.
        change: Option<QuotaChangeV4>,
    },
    /// Take a drive into use, and from another host that has reserved it -> `Done`.
    TakeDrive {
        /// Drive.
        drive: DriveNo,
    },
    /// Read every copy on volumes and compare it with its digest -> `Request`.
    Verify(VolumeChoice),
    /// Copy what is needed of volumes to others of their pools, and make them scratch -> `Request`.
    Repack {
        /// Which ones.
        volumes: VolumeChoice,
        /// Of those only the ones of which so many per cent are dead.
        dead_percent: Option<u8>,
        /// Of those only the ones of this generation of LTO or an older one.
        generation: Option<u8>,
    },
    /// Volumes with files that are wanted by these, and how much -> `Holdings`.
    Holdings {
        /// Only files of this owner (uid).
        owner: Option<u32>,
        /// Only files of this class.
        class: Option<ClassName>,
    },
    /// Bring back to disk, more or less urgently -> `Request`.
    StageAs {
        /// Which files.
        files: Selection,
        /// 1 to 9, greater goes first; None: as the limits say.
        priority: Option<u8>,
        /// Wanted by then.
        by: Option<Time>,
    },
    /// What bringing files back would take; changes nothing -> `Quote`.
    Quote {
        /// Which files.
        files: Selection,
        /// Files of the parts of the list that this connection has asked about before; 0: this is the first.
        after: u64,
    },
    /// How far open requests are -> `RequestSums`.
    RequestSums(SumBy),
    /// Files on disk, least recently used first -> `PurgeList`.
    PurgeList {
        /// Those that stay too.
        all: bool,
        /// Most rows.
        limit: u32,
    },
    /// Versions that were deleted or overwritten and are still on tape -> `Ended`.
    Ended {
        /// What they were called last.
        path: Vec<u8>,
        /// Or below that.
        below: bool,
        /// Continue after this one.
        after: Option<(Ino, Version)>,
    },
    /// Make such a version a file again; nothing is read for that -> `File`.
    Undelete {
        /// Its inode ...
        ino: Ino,
        /// ... and number.
        version: Version,
        /// Path that it gets; must not be there yet.
        to: Vec<u8>,
    },
    /// Ask the libraries where everything is -> `Library`.
    Inventory {
        /// This one only.
        library: Option<String>,
        /// It looks at every slot itself.
        audit: bool,
    },
    /// Lay cartridges into import/export slots -> `Library`.
    ExportCartridges(Vec<Barcode>),
    /// Move cartridges from import/export slots into storage slots; of none: all that lie there -> `Library`.
    ImportCartridges(Vec<Barcode>),
    /// Take volumes in from another site or program, or back -> `Request`.
    Import(ImportOrder),
    /// Close volumes for a way out of the library: no more is written or read -> `Request`.
    Export {
        /// Volumes.
        volumes: Vec<Barcode>,
        /// Why, for their records.
        reason: String,
    },
    /// Which namespace this is -> `Site`.
    Site,
    /// Make a cluster of which this node is the first, with an authority of its own -> `Cluster`.
    ClusterInit {
        /// What the node is called, for people.
        name: String,
    },
    /// A token with which one more can join -> `Token`.
    ClusterToken {
        /// What its bearer becomes.
        grant: Grant,
        /// How long it can be used (seconds).
        lifetime_s: u32,
    },
    /// Join, with a token; only over TLS -> `Joined`.
    ClusterJoin(JoinOrder),
    /// Who belongs to the cluster -> `Cluster`.
    Cluster,
    /// Another certificate for the caller; only over TLS -> `Joined`.
    ClusterRenew(RenewOrder),
    /// Remove a member: it is not believed any more -> `Unreached`.
    ClusterRemove {
        /// Whom.
        id: MemberId,
        /// Why, for the record.
        reason: String,
    },
    /// Withdraw all tokens that can still be used -> `Count`.
    ClusterRevoke,
    /// Exchange signed lists of removed members (empty: none) -> `Removed`.
    ClusterRemoved {
        /// That of the caller.
        #[serde(with = "serde_bytes")]
        list: Vec<u8>,
    },
    /// Disk targets of the cluster -> `Targets`.
    Targets,
    /// What a node serves; only over TLS -> `TargetGrants`.
    ReportTargets(TargetOrder),
    /// Do something with files of a list, part by part; what cannot be chosen is left out -> `Acted`.
    Act(ActOrder),
    /// Files on a volume in order of its tree, page by page -> `VolumeFilesPart`.
    VolumeFilesFrom(FilesOrder),
    /// What these volumes were before they were exported -> `ExportedAs`.
    ExportedAs(Vec<Barcode>),
    /// `Import` of volumes of which it is known what they were before they were exported -> `Request`.
    ImportAs(ImportOrder, Vec<(Barcode, Before)>),
    /// All about one drive -> `DriveDetails`.
    DriveDetails(DriveNo),
    /// With which keys pools write, and how many of their volumes are away -> `PoolKeys`.
    PoolKeys,
    /// Where the bytes of a file lie, or what new files of a directory get -> `Layout`.
    Layout(#[serde(with = "serde_bytes")] Vec<u8>),
    /// What new files of a directory get; None: an object of the node's disk tier -> `Done`.
    SetLayout(#[serde(with = "serde_bytes")] Vec<u8>, Option<LayoutRule>),
    /// A part of what a standby is to take -> `StandbyState`.
    StandbyStep(StandbyStep),
    /// How the standby is, asked at either end -> `Standby`.
    Standby,
    /// The standby takes the place of the node that it follows -> `Done`.
    StandbyTakeOver {
        /// Although the other one may be alive, or changes may be missing.
        force: bool,
    },
    /// Which devices of this host the caller may use; only over TLS -> `Devices`.
    Devices,
    /// This connection takes a device of this host from the one that had it; only over TLS -> `Done`.
    OpenDevice {
        /// Name of the device.
        name: String,
        /// Epoch that the caller serves in: raised by each take-over of a standby. One lower than that of somebody who has had the device is refused.
        epoch: u64,
    },
    /// A command for it -> `Scsi`.
    Scsi(Box<ScsiOrder>),
    /// Take a drive out of use and say why: it stays so until it is taken into use again, also when the node restarts -> `Done`.
    TakeDriveOut {
        /// Drive.
        drive: DriveNo,
        /// Why.
        reason: String,
    },
    /// This connection belongs to the session of this number from now on, which its caller has chosen at random: what is open is open for all connections
    /// of it -> `Count`: another number for each session that is begun, so that it shows when one has ended.
    Session(u64),
    /// File access for a user of another host; only over TLS -> as the call says.
    FileFor(Box<FileOrder>),
    /// What is to become of what lies on targets -> `Request`, or `Done` where nothing is to be moved.
    MoveTargets(TargetAct),
    /// Where the node is asked that holds the namespace, or may come to hold it -> `Addresses`.
    ClusterAddresses,
    /// Files that this standby needs to serve the cluster; only over TLS, from the node that it follows -> `Done`.
    StandbyKeep(Vec<KeptFile>),
    /// Move the catalogue to another engine -> `Request`.
    MoveEngine {
        /// Address of a database; None: into the state directory.
        to: Option<String>,
    },
    /// Who serves and who waits, of nodes that take turns with one database -> `Turns`.
    Turns,
    /// What the caller needs to serve the cluster, since he waits for his turn; only over TLS -> `Kept`.
    TurnKept,
    /// Have an empty directory lead to a subsystem: a namespace of the same cluster that another node holds -> `Done`.
    JunctionMake {
        /// Path in the namespace.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// Name of the subsystem.
        subsystem: String,
        /// Where that is asked (`host:port`), the likeliest first.
        addresses: Vec<String>,
    },
    /// Have a directory lead nowhere any more: it is an empty one then -> `Done`.
    JunctionRemove {
        /// Path in the namespace.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
    },
    /// Directories that lead to subsystems -> `Junctions`.
    Junctions,
    /// Whose names this node holds; only over TLS -> `Subsystem`.
    Subsystem,
    /// Which targets were refused lately, here or where this node reports its own, which are nearly full, and which pools take no files; on a host
    /// that holds no names with what the node says that does -> `RefusedTargets`.
    RefusedTargets,
    /// What every user holds -> `Usage`.
    Usage,
    /// What owners may hold, and hold -> `Quotas`.
    Quotas,
    /// Change what an owner may hold -> `Done`.
    SetQuota {
        /// Whose (uid); None: of everybody who has no quota of his own.
        uid: Option<u32>,
        /// Changes; None takes the quota away.
        change: Option<QuotaChange>,
    },
    /// Where the namespace is to be had, as the authority of the cluster says it -> `Done`.
    ClusterPlaces {
        /// The signed list.
        #[serde(with = "serde_bytes")]
        list: Vec<u8>,
    },
    /// Read the configuration of the node again, and take over what may change while it runs -> `Reloaded`.
    Reload,
    /// Write one more disk target of the node's host into its configuration, and take it over -> `Reloaded`.
    AddTarget {
        /// Its directory.
        path: String,
        /// What fails together with it; empty: all targets of the node.
        domain: String,
    },
    /// Say which targets belong to a pool that layouts may name -> `Done`.
    TargetPool(TargetPoolOrder),
    /// How the cluster is: members, targets, and what is done with them -> `ClusterStatus`.
    ClusterStatus,
    /// What a user of another host asks about files and requests ([`Call::is_of_files`]); only over TLS -> as the call says.
    For(Box<CallOrder>),
    /// As `Session`, for a program of the caller's host: it ends with its last connection -> `Count`, as there.
    ProgramSession(u64),
    /// Bytes for a device of this host come here without passing through the caller; only over TLS -> as the call says.
    Depot(Box<DepotCall>),
}

impl Call {
    /// Whether it is about files of a namespace, or requests for them, which is answered to a user by whoever holds that namespace, wherever he asks.
    pub fn is_of_files(&self) -> bool {
        matches!(
            self,
            Self::List { .. }
                | Self::Stat { .. }
                | Self::Stage(_)
                | Self::StageAs { .. }
                | Self::Migrate(_)
                | Self::Purge(_)
                | Self::Pin { .. }
                | Self::Act(_)
                | Self::Quote { .. }
                | Self::Requests { .. }
                | Self::Request(_)
                | Self::RequestItems { .. }
                | Self::RequestSums(_)
                | Self::Cancel(_)
                | Self::PurgeList { .. }
                | Self::Ended { .. }
                | Self::Undelete { .. }
                | Self::Layout(_)
                | Self::SetLayout(..)
                | Self::AssignClass { .. }
        )
    }
}
