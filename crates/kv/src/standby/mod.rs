//! A warm standby: another engine that gets every committed batch of this one, in order, and can take its place.
//!
//! Each flush of the embedded engine hands its batch to a [`Feed`]. A [`Sender`] looks at what a [`Follower`] has and says what
//! it needs next ([`Step`]); whoever carries the steps there and brings the follower's [`State`] back is not of this room. Why, and
//! what it promises: `docs/design/0012-standby.md`.

mod feed;
mod follower;
mod sender;
mod step;

pub use feed::{Away, Feed, FeedOptions, Health, Mode};
pub use follower::{FollowError, Follower};
pub use sender::Sender;
pub(crate) use step::Page;
pub use step::Step;

use crate::lmdb::batch::whole;
use std::sync::Arc;

/// First byte of the one key that only a follower has; no catalogue uses it.
pub(crate) const OWN_TABLE: u8 = 0;

/// Longest step (bytes). A batch that does not fit is never sent: the standby begins a new copy.
pub const MAX_STEP: usize = 256 << 20;

/// Which history of an engine: one that was restored or made anew has another.
pub type Lineage = [u8; 16];

/// What an engine holds, short: equal contents have equal ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Keys.
    pub keys: u64,
    /// A sum over all keys and values.
    pub sum: u32,
}

/// One committed batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number: they follow each other without a gap.
    pub number: u64,
    /// What the engine holds with it.
    pub content: Content,
    /// The changes, as in the log of changes.
    pub(crate) bytes: Vec<u8>,
}

impl Batch {
    /// When it was written (milliseconds since 1970).
    pub fn time_ms(&self) -> i64 {
        whole(&self.bytes).map_or(0, |batch| batch.time_ms)
    }
}

/// What a follower has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Of which history; zeros: of none, so that it has to begin.
    pub lineage: Lineage,
    /// The last batch that it holds.
    pub number: u64,
    /// When that was written where it was committed (milliseconds since 1970).
    pub time_ms: i64,
    /// The copy that it began with goes up to this key; None: it is complete, and the follower can take over.
    pub copied: Option<Vec<u8>>,
}

impl State {
    /// Whether all that was committed up to `number` is there.
    pub fn is_complete(&self) -> bool {
        self.copied.is_none() && self.lineage != Lineage::default()
    }
}

/// Batches are shared between the window and who sends them.
pub(crate) type Shared = Arc<Batch>;
