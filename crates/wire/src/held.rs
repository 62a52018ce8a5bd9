//! What owners hold and may hold, as clients and nodes of version 4 tell it: without what lies on disk targets, and without limits of it.

use crate::QuotaChange;
use serde::{Deserialize, Serialize};
use types::{Quota, QuotaView, UsageView};

/// What a user holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageV4 {
    /// Owner.
    pub uid: u32,
    /// Files, directories and other nodes.
    pub files: u64,
    /// Length of regular files (bytes).
    pub bytes: u64,
    /// Bytes allocated on disk.
    pub disk_bytes: u64,
    /// Bytes of copies on tape that count.
    pub tape_bytes: u64,
}

/// What an owner may hold; 0 means no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaV4 {
    /// Whose (uid); None: of everybody who has no quota of his own.
    pub uid: Option<u32>,
    /// Files, directories and other nodes.
    pub files: u64,
    /// Length of regular files (bytes).
    pub bytes: u64,
    /// Copies on tape that count (bytes).
    pub tape_bytes: u64,
    /// Volumes of his own in each pool that keeps owners apart.
    pub volumes: u32,
}

/// An owner's limits and what he holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaViewV4 {
    /// Limits.
    pub quota: QuotaV4,
    /// What he holds; None for the quota of everybody else.
    pub usage: Option<UsageV4>,
    /// Volumes of his own, where he has most.
    pub volumes: u32,
}

/// Changes of a quota; None leaves a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaChangeV4 {
    /// Most files, directories and other nodes.
    pub files: Option<u64>,
    /// Most bytes of regular files.
    pub bytes: Option<u64>,
    /// Most bytes of copies on tape.
    pub tape_bytes: Option<u64>,
    /// Most volumes of his own in each pool that keeps owners apart.
    pub volumes: Option<u32>,
}

impl From<UsageView> for UsageV4 {
    fn from(view: UsageView) -> Self {
        let UsageView { uid, files, bytes, disk_bytes, tape_bytes, target_bytes: _ } = view;
        Self { uid, files, bytes, disk_bytes, tape_bytes }
    }
}

impl From<QuotaView> for QuotaViewV4 {
    fn from(view: QuotaView) -> Self {
        let Quota { uid, files, bytes, tape_bytes, volumes, disk_bytes: _ } = view.quota;
        let quota = QuotaV4 { uid, files, bytes, tape_bytes, volumes };
        Self { quota, usage: view.usage.map(UsageV4::from), volumes: view.volumes }
    }
}

impl From<QuotaChangeV4> for QuotaChange {
    fn from(change: QuotaChangeV4) -> Self {
        let QuotaChangeV4 { files, bytes, tape_bytes, volumes } = change;
        Self { files, bytes, tape_bytes, volumes, disk_bytes: None }
    }
}
