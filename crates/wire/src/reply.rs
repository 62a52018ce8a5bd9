//! What a node replies to its calls.

use crate::*;
use serde::{Deserialize, Serialize};
use types::*;

/// Answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Nothing to say.
    Done,
    /// A number.
    Count(u64),
    /// Status.
    Status(Box<StatusView>),
    /// One page of a listing and the cookie to continue with (None: end).
    Files {
        /// Name and view of each entry.
        entries: Vec<(Vec<u8>, FileView)>,
        /// Continue after this.
        next: Option<u64>,
    },
    /// One file.
    File(Box<FileView>),
    /// One request.
    Request(Box<RequestView>),
    /// Requests.
    Requests(Vec<RequestView>),
    /// Items of a request.
    RequestItems(Vec<RequestItemView>),
    /// Volumes.
    Volumes(Vec<VolumeView>),
    /// One volume.
    Volume(Box<VolumeView>),
    /// Files on a volume.
    VolumeFiles(Vec<VolumeFileView>),
    /// Drives.
    Drives(Vec<DriveView>),
    /// Library.
    Library(Vec<LibraryView>),
    /// Classes.
    Classes(Vec<Class>),
    /// Pools.
    Pools(Vec<PoolView>),
    /// Check.
    Check(CheckReport),
    /// Attributes.
    Attr(Attr),
    /// Entries of a directory with attributes.
    Entries(Vec<(DirEntry, Attr)>),
    /// Bytes.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// An open file.
    Opened {
        /// Handle.
        handle: Handle,
        /// Attributes.
        attr: Attr,
        /// A descriptor of the whole file's object travels with this message.
        direct: bool,
    },
    /// Extended attributes.
    Xattrs(Vec<(Vec<u8>, Vec<u8>)>),
    /// Backup of the catalogue.
    Backup(BackupView),
    /// What users hold, as version 4 tells it.
    UsageV4(Vec<UsageV4>),
    /// Quotas, as version 4 tells them.
    QuotasV4(Vec<QuotaViewV4>),
    /// Who holds what on volumes.
    Holdings(Vec<HoldingView>),
    /// What a recall would take.
    Quote(Box<QuoteView>),
    /// How far requests are.
    RequestSums(Vec<RequestSum>),
    /// Files on disk in order of release.
    PurgeList(Vec<PurgeCandidateView>),
    /// Versions that ended, and where to continue (None: end).
    Ended {
        /// What was found, maybe nothing.
        found: Vec<EndedView>,
        /// Continue after this.
        next: Option<(Ino, Version)>,
    },
    /// Uuid of the namespace.
    Site(String),
    /// The cluster.
    Cluster(Box<ClusterView>),
    /// A token, as text.
    Token(String),
    /// The certificate of a new member, and that of the authority (DER).
    Joined {
        /// Of the new member.
        certificate: Vec<u8>,
        /// Of the authority.
        authority: Vec<u8>,
    },
    /// Nodes that do not know yet who was removed.
    Unreached(Vec<MemberId>),
    /// Signed list of removed members; empty: none.
    Removed(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Disk targets.
    Targets(Vec<TargetView>),
    /// What a node needs to serve its targets.
    TargetGrants(Vec<TargetGrant>),
    /// What became of a part of a list.
    Acted(Box<Acted>),
    /// Files on a volume, and where to continue; None: these were the last.
    VolumeFilesPart(Vec<VolumeFileView>, Option<Vec<u8>>),
    /// What each volume was before it was exported; None: filling, or not known.
    ExportedAs(Vec<Option<Before>>),
    /// A drive.
    DriveDetails(Box<DriveDetails>),
    /// Pools.
    PoolKeys(Vec<PoolKeyView>),
    /// A layout.
    Layout(Box<LayoutView>),
    /// What a standby has.
    StandbyState(Box<StandbyAnswer>),
    /// How the standby is.
    Standby(Box<StandbyView>),
    /// Names of devices.
    Devices(Vec<String>),
    /// What a device answered.
    Scsi(Box<ScsiResult>),
    /// Figures of the file system.
    StatFs(types::api::StatFs),
    /// Where the bytes of a file lie; None: they go through the node.
    FileLayout(Option<Box<FileLayout>>),
    /// A lock that is in the way; None: there is none.
    Lock(Option<LockHeld>),
    /// What became of locks that were waited for.
    LockEvents(Vec<LockEvent>),
    /// `host:port`, the likeliest first.
    Addresses(Vec<String>),
    /// Nodes that take turns.
    Turns(Box<TurnsView>),
    /// Files that a node needs to serve a cluster.
    Kept(Vec<KeptFile>),
    /// An answer that may be remembered for a moment.
    Leased(Box<LeasedReply>),
    /// What is to be forgotten.
    Forget {
        /// Place of the last.
        place: u64,
        /// Attributes of these, and the names in them.
        inodes: Vec<Ino>,
        /// Of these nobody writes alone any more, by the lease of this number: what is in memory goes to the targets, and `WriteAloneEnd` says so.
        alone: Vec<(Ino, u64)>,
    },
    /// An open file of a user of another host.
    OpenedAt {
        /// Handle.
        handle: Handle,
        /// Attributes.
        attr: Attr,
        /// Whether its bytes are on disk: nothing of it has to be brought back from tape while it is open.
        resident: bool,
        /// As the answer to `LayoutGet`; None also where nobody has looked (it is open for writing and was not made by this call).
        layout: Option<Box<FileLayout>>,
        /// The directory that this call made it in, as it is with it, to be remembered as by the answer to a look at its attributes.
        parent: Option<Box<LeasedReply>>,
    },
    /// Directories that lead to subsystems, in order of their paths.
    Junctions(Vec<JunctionView>),
    /// Whose names a node holds.
    Subsystem(Box<SubsystemView>),
    /// Targets that are refused, or nearly full: which, why, and what to do.
    RefusedTargets(Vec<String>),
    /// What is lent; None: the bytes go through the node.
    Lent(Option<Box<LentLayout>>),
    /// What users hold.
    Usage(Vec<UsageView>),
    /// Quotas.
    Quotas(Vec<QuotaView>),
    /// He writes alone; None: not now.
    Alone(Option<Alone>),
    /// What has come of a configuration that was read again.
    Reloaded(Box<Reloaded>),
    /// Where all copies may be written; None: the bytes go through the node.
    Copies(Option<Box<CopiesLayout>>),
    /// How a cluster is.
    ClusterStatus(Box<ClusterStatus>),
    /// Digests of a file that a depot was filled from.
    Digests(Box<DepotDigests>),
    /// Starts of machines, as `LayoutCommit` tells them.
    Machines(Vec<u64>),
    /// It is written.
    Written {
        /// Bytes.
        count: u64,
        /// Which starts of machines have what the node has written of the file and does not know to be durable, as `LayoutCommit` tells them. Empty: it is not said, as
        /// some of it is in the node's memory only.
        machines: Vec<u64>,
    },
    /// So many bytes are written, and machines as with `Written`; None: they are at the targets, and so is all that was written before through the node by whoever asked.
    Spared(u64, Vec<u64>, Option<Spare>),
}

/// What has come of a configuration that was read again: keys whose values have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// These count from now on.
    pub taken: Vec<String>,
    /// These from the next start on.
    pub later: Vec<String>,
}
