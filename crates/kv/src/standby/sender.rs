//! What a follower needs next.

use super::step::{Page, Step};
use super::{Feed, State};
use crate::{LmdbEngine, Result};
use std::sync::Arc;

/// Bytes of keys and values in a part of the copy; more only where one pair has more.
const PAGE_BYTES: usize = 1 << 20;

/// Leads one follower from whatever it has to the present.
pub struct Sender<'e> {
    engine: &'e LmdbEngine,
    feed: Arc<Feed>,
    /// Read already; sent when the follower has the batches that are in it.
    pending: Option<Page>,
}

impl<'e> Sender<'e> {
    /// For the batches of `engine`, which hands them to `feed`.
    pub fn new(engine: &'e LmdbEngine, feed: Arc<Feed>) -> Self {
        Self { engine, feed, pending: None }
    }

    /// What a follower that has `state` is to do.
    ///
    /// # Errors
    /// The engine cannot be read.
    pub fn next(&mut self, state: &State) -> Result<Step> {
        let lineage = self.feed.lineage();
        if self.feed.is_behind(state) {
            return Ok(Step::Idle);
        }
        if state.lineage != lineage || !self.feed.reaches(state.number) {
            self.pending = None;
            return Ok(Step::Begin { lineage, number: self.feed.begin() });
        }
        if let Some(copied) = &state.copied {
            let page = self.page(copied, state.number)?;
            if page.number() == state.number {
                return Ok(self.pending.take().map_or(Step::Idle, |page| Step::Page(lineage, page)));
            }
        }
        let batch = self.feed.after(state.number);
        Ok(batch.map_or(Step::Idle, |batch| Step::Batch(lineage, (*batch).clone())))
    }

    /// The part of the copy that begins at `from`. It is of one moment; batches up to there go first, and none beyond it.
    fn page(&mut self, from: &[u8], number: u64) -> Result<&Page> {
        let fits = self.pending.as_ref().is_some_and(|page| page.from == from && page.number() >= number);
        if !fits {
            self.pending = None;
        }
        match &mut self.pending {
            Some(page) => Ok(page),
            none => Ok(none.insert(self.engine.page(from, PAGE_BYTES)?)),
        }
    }
}
