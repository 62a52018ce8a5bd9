//! Copies taken from a write queue and not yet settled: whatever ends a drive's turn, they go back in their order.

use super::WriteQueue;
use parking_lot::Mutex;
use policy::MigrateItem;
use std::collections::BTreeMap;
use types::{PoolName, Time};

/// A copy in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// See the module.
pub struct InHand<'q> {
    queue: &'q WriteQueue,
    pool: &'q PoolName,
    state: Mutex<(u64, BTreeMap<Ticket, MigrateItem>)>,
}

impl<'q> InHand<'q> {
    /// Nothing in hand.
    pub fn new(queue: &'q WriteQueue, pool: &'q PoolName) -> Self {
        Self { queue, pool, state: Mutex::default() }
    }

    /// Where the copies go.
    pub fn pool(&self) -> &PoolName {
        self.pool
    }

    /// Takes the next copy from the queue.
    pub fn pop(&self) -> Option<(Ticket, MigrateItem)> {
        let item = self.queue.pop(self.pool)?;
        let mut state = self.state.lock();
        state.0 += 1;
        let ticket = Ticket(state.0);
        state.1.insert(ticket, item);
        Some((ticket, item))
    }

    /// Whether more is about to come into the queue.
    pub fn more_comes(&self) -> bool {
        self.queue.is_coming(self.pool)
    }

    /// It is recorded.
    pub fn finish(&self, ticket: Ticket) {
        if let Some(item) = self.settle(ticket) {
            self.queue.finish(&item);
        }
    }

    /// It could not be written, see [`WriteQueue::hold`].
    pub fn hold(&self, ticket: Ticket, wasteful: bool, now: Time) {
        if let Some(item) = self.settle(ticket) {
            self.queue.hold(&item, wasteful, now);
        }
    }

    fn settle(&self, ticket: Ticket) -> Option<MigrateItem> {
        self.state.lock().1.remove(&ticket)
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.state.get_mut().1);
        left.into_values().rev().for_each(|item| self.queue.put_back(self.pool, item));
    }
}
