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

#[derive(Default)]
struct State {
    /// Tickets given.
    given: u64,
    items: BTreeMap<Ticket, MigrateItem>,
    /// Nothing more is taken.
    closed: bool,
}

/// See the module.
pub struct InHand<'q> {
    queue: &'q WriteQueue,
    pool: &'q PoolName,
    /// Number of this turn of a drive.
    session: u64,
    state: Mutex<State>,
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
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        let item = self.queue.take(self.pool, self.session)?;
        if state.items.is_empty() {
            self.read(u64::MAX); // of copies that were given up
        }
        self.unread.fetch_add(item.size, Ordering::Relaxed);
        self.queue.in_hand(self.pool, item.size, true);
        state.given += 1;
        let ticket = Ticket(state.given);
        state.items.insert(ticket, item);
        Some((ticket, item))
    }

    /// The volume takes no more: what is not settled goes back to the queue, for others to write, and nothing more is taken.
    pub fn give_back(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.read(u64::MAX);
        let left = std::mem::take(&mut state.items);
        left.into_values().rev().for_each(|item| self.queue.put_back(self.pool, item));
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
        !self.state.lock().closed && self.queue.is_coming(self.pool)
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
        self.state.lock().items.remove(&ticket)
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.give_back();
        self.queue.end(self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Rig;
    use super::*;

    #[test]
    fn what_is_given_back_is_there_for_others_in_its_order_and_nothing_more_is_taken() {
        let (rig, queue, pool) = (Rig::new(), WriteQueue::default(), PoolName("p".into()));
        let items = [rig.put("a", 10), rig.put("b", 10), rig.put("c", 10)];
        queue.push(&Rig::batch(&pool, &items), false, crate::now());
        let (hand, other) = (InHand::new(&queue, &pool), InHand::new(&queue, &pool));
        let (first, _) = hand.pop().unwrap();
        let (second, _) = hand.pop().unwrap();
        hand.finish(first);
        hand.give_back();
        assert!(hand.pop().is_none() && !hand.more_comes());
        hand.finish(second); // by a thread that was late: it is not its own any more
        let left: Vec<MigrateItem> = std::iter::from_fn(|| other.pop()).map(|(_, item)| item).collect();
        assert_eq!(left, items[1..]);
        drop(hand);
        assert!(other.pop().is_none(), "nothing comes back twice");
    }
}
