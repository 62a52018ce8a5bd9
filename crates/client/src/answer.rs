//! Typed answers: which reply belongs to which Rust type.

use types::*;
use wire::{CopiesLayout, FileLayout, LentLayout, LockEvent, Reply};

/// A type that is the content of one kind of reply.
pub trait FromReply: Sized {
    /// Name of the reply, for messages.
    const NAME: &'static str;
    /// The content, if the reply is of that kind.
    fn from_reply(reply: Reply) -> Option<Self>;
}

macro_rules! answers {
    ($($name:ident($binding:ident) => $type:ty = $value:expr;)*) => {$(
        impl FromReply for $type {
            const NAME: &'static str = stringify!($name);
            fn from_reply(reply: Reply) -> Option<Self> {
                match reply {
                    Reply::$name($binding) => Some($value),
                    _ => None,
                }
            }
        }
    )*};
}

answers! {
    Status(x) => StatusView = *x;
    File(x) => FileView = *x;
    Request(x) => RequestView = *x;
    Requests(x) => Vec<RequestView> = x;
    RequestItems(x) => Vec<RequestItemView> = x;
    Volumes(x) => Vec<VolumeView> = x;
    Volume(x) => VolumeView = *x;
    VolumeFiles(x) => Vec<VolumeFileView> = x;
    Drives(x) => Vec<DriveView> = x;
    DriveDetails(x) => DriveDetails = *x;
    PoolKeys(x) => Vec<PoolKeyView> = x;
    Library(x) => Vec<LibraryView> = x;
    Classes(x) => Vec<Class> = x;
    Pools(x) => Vec<PoolView> = x;
    Check(x) => CheckReport = x;
    Backup(x) => BackupView = x;
    Usage(x) => Vec<UsageView> = x;
    Quotas(x) => Vec<QuotaView> = x;
    Holdings(x) => Vec<HoldingView> = x;
    Quote(x) => QuoteView = *x;
    RequestSums(x) => Vec<RequestSum> = x;
    PurgeList(x) => Vec<PurgeCandidateView> = x;
    Site(x) => String = x;
    Cluster(x) => ClusterView = *x;
    Unreached(x) => Vec<MemberId> = x;
    Targets(x) => Vec<TargetView> = x;
    Standby(x) => wire::StandbyView = *x;
    Turns(x) => wire::TurnsView = *x;
    Junctions(x) => Vec<JunctionView> = x;
    RefusedTargets(x) => Vec<String> = x;
    Reloaded(x) => wire::Reloaded = *x;
    ClusterStatus(x) => wire::ClusterStatus = *x;
    Acted(x) => wire::Acted = *x;
    Attr(x) => Attr = x;
    Entries(x) => Vec<(DirEntry, Attr)> = x;
    Bytes(x) => Vec<u8> = x;
    ExportedAs(x) => Vec<Option<Before>> = x;
    Layout(x) => LayoutView = *x;
    StatFs(x) => types::api::StatFs = x;
    Xattrs(x) => Vec<(Vec<u8>, Vec<u8>)> = x;
}

impl FromReply for u64 {
    const NAME: &'static str = "Count";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Count(count) | Reply::Written { count, .. } => Some(count),
            _ => None,
        }
    }
}

/// How much was written, and at which starts of machines that is until it is synced; none: that was not said.
pub struct Written(pub u64, pub Vec<u64>);

impl FromReply for Written {
    const NAME: &'static str = "Written";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Written { count, machines } => Some(Self(count, machines)),
            // A node of an earlier release.
            Reply::Count(count) => Some(Self(count, Vec::new())),
            _ => None,
        }
    }
}

/// What a write became of which a spare is kept: bytes written, machines, and how it is kept.
pub(crate) struct Spared(pub u64, pub Vec<u64>, pub Option<wire::Spare>);

impl FromReply for Spared {
    const NAME: &'static str = "Spared";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Spared(count, machines, spare) => Some(Self(count, machines, spare)),
            _ => None,
        }
    }
}

impl FromReply for () {
    const NAME: &'static str = "Done";
    fn from_reply(reply: Reply) -> Option<Self> {
        matches!(reply, Reply::Done).then_some(())
    }
}

impl FromReply for Option<FileLayout> {
    const NAME: &'static str = "FileLayout";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::FileLayout(layout) => Some(layout.map(|layout| *layout)),
            _ => None,
        }
    }
}

impl FromReply for Option<LentLayout> {
    const NAME: &'static str = "Lent";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Lent(layout) => Some(layout.map(|layout| *layout)),
            _ => None,
        }
    }
}

impl FromReply for Option<CopiesLayout> {
    const NAME: &'static str = "Copies";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Copies(layout) => Some(layout.map(|layout| *layout)),
            _ => None,
        }
    }
}

impl FromReply for Option<LockHeld> {
    const NAME: &'static str = "Lock";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Lock(held) => Some(held),
            _ => None,
        }
    }
}

/// What became of locks that a session waits for.
pub(crate) struct LockNews(pub Vec<LockEvent>);

impl FromReply for LockNews {
    const NAME: &'static str = "LockEvents";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::LockEvents(events) => Some(Self(events)),
            _ => None,
        }
    }
}

/// One page of a volume's files, and where to go on.
pub type VolumeFilesPage = (Vec<VolumeFileView>, Option<Vec<u8>>);

impl FromReply for VolumeFilesPage {
    const NAME: &'static str = "VolumeFilesPart";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::VolumeFilesPart(files, next) => Some((files, next)),
            _ => None,
        }
    }
}

/// One page of a listing: entries, and the cookie to go on with.
pub type FilesPage = (Vec<(Vec<u8>, FileView)>, Option<u64>);

impl FromReply for FilesPage {
    const NAME: &'static str = "Files";
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Files { entries, next } => Some((entries, next)),
            _ => None,
        }
    }
}
