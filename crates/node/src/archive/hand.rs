//! Copies taken from a write queue and not yet settled: whatever ends a drive's turn, they go back in their order.

use super::WriteQueue;
use parking_lot::Mutex;
use policy::MigrateItem;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{PoolName, Time};

/// A copy in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// See the module.
pub struct InHand<'q> {
    queue: &'q WriteQueue,
    pool: &'q PoolName,
    /// Number of this turn of a drive.
    session: u64,
    state: Mutex<(u64, BTreeMap<Ticket, MigrateItem>)>,
    /// Bytes taken and not yet read.
    unread: AtomicU64,
}

impl<'q> InHand<'q> {
    /// Nothing in hand.
    pub fn new(queue: &'q WriteQueue, pool: &'q PoolName) -> Self {
        Self { queue, pool, session: queue.begin(pool), state: Mutex::default(), unread: AtomicU64::new(0) }
    }

    /// Where the copies go.
    pub fn pool(&self) -> &PoolName {
        self.pool
    }

    /// Takes the next copy from the queue.
    pub fn pop(&self) -> Option<(Ticket, MigrateItem)> {
        let item = self.queue.take(self.pool, self.session)?;
        let mut state = self.state.lock();
        if state.1.is_empty() {
            self.read(u64::MAX); // of copies that were given up
        }
        self.unread.fetch_add(item.size, Ordering::Relaxed);
        self.queue.in_hand(self.pool, item.size, true);
        state.0 += 1;
        let ticket = Ticket(state.0);
        state.1.insert(ticket, item);
        Some((ticket, item))
    }

    /// So many bytes of what was taken need not be read any more: they are on their way to the drive, or never go there.
    pub fn read(&self, bytes: u64) {
        let before = self.unread.load(Ordering::Relaxed);
        let bytes = bytes.min(before);
        self.unread.store(before - bytes, Ordering::Relaxed);
        self.queue.in_hand(self.pool, bytes, false);
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
        self.read(u64::MAX);
        let left = std::mem::take(&mut self.state.get_mut().1);
        left.into_values().rev().for_each(|item| self.queue.put_back(self.pool, item));
        self.queue.end(self.session);
    }
}
