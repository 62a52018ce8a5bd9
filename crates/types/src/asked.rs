//! Answers to questions before and about requests: what a recall would take, how far work is, what would be purged.

use crate::{Estimate, PathText, RequestKind, Time};
use serde::{Deserialize, Serialize};

/// What bringing files back would take, as things stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuoteView {
    /// Files asked for.
    pub files: u64,
    /// Their length (bytes).
    pub bytes: u64,
    /// Of them on disk already: files and bytes.
    pub resident: (u64, u64),
    /// Of them on their way already: files and bytes.
    pub coming: (u64, u64),
    /// Of them to be read: files and bytes.
    pub wanted: (u64, u64),
    /// Volumes that these are read from.
    pub volumes: u64,
    /// Mounts that would not be made otherwise.
    pub mounts: u64,
    /// Use of drives, with those mounts: p50 and p90 (seconds).
    pub drive_s: (u64, u64),
    /// When the last of them would be there; None: no drive is in use.
    pub estimate: Option<Estimate>,
    /// Files that cannot come back now.
    pub lost: u64,
    /// Some of them.
    pub lost_files: Vec<LostFile>,
}

/// A file that cannot come back now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFile {
    /// Path.
    pub path: PathText,
    /// What is in the way.
    pub why: String,
}

/// Files of a quote that come only once a drive is back: a request for them waits. They have no part in the rest of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuoteWaits {
    /// How many.
    pub files: u64,
    /// Some of them, and what for.
    pub named: Vec<LostFile>,
}

impl QuoteView {
    /// As versions of the wire before 5 know it: what waits for a drive cannot come now.
    pub fn with_waiting_lost(mut self, waits: QuoteWaits) -> Self {
        self.lost += waits.files;
        self.lost_files.extend(waits.named);
        self
    }
}

/// By what work is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SumBy {
    /// Who asked.
    Owner,
    /// Class of the files.
    Class,
    /// Pool: of a migrate each pool of the class, of a recall that of the first copy.
    Pool,
}

/// How far the open requests of one kind are for one owner, class or pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSum {
    /// Kind.
    pub kind: RequestKind,
    /// Owner (uid), class or pool.
    pub of: String,
    /// Open requests.
    pub requests: u64,
    /// Files asked for.
    pub files_total: u64,
    /// Files finished.
    pub files_done: u64,
    /// Bytes asked for.
    pub bytes_total: u64,
    /// Bytes of finished files.
    pub bytes_done: u64,
    /// Per cent done, by bytes (by files where there are none).
    pub percent: u8,
}

/// A file on disk that is on tape too and not pinned, in the order in which space would be released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeCandidateView {
    /// Path.
    pub path: PathText,
    /// Bytes that would become free.
    pub bytes: u64,
    /// When it was last used (to the minute).
    pub last_use: Time,
    /// Why it stays; None: it may go.
    pub held: Option<String>,
}
