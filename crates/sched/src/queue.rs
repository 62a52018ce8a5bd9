//! Files to be read from one volume, kept in tape order, with sums that cost nothing to ask for.

use std::collections::{BTreeMap, BTreeSet};
use types::Time;

/// A file, or the part of one, to be read from a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallItem {
    /// Identifier given by the caller, unique over all queues.
    pub id: u64,
    /// First block on the volume.
    pub block: u64,
    /// Bytes to read.
    pub bytes: u64,
    /// Greater goes first (an open file before a bulk request).
    pub priority: u8,
    /// Since when somebody waits for it.
    pub since: Time,
}

/// Queue of one volume. Adding and removing cost O(log n), the sums O(1).
///
/// Abandoned design: a plain list of items in the view, sorted at each decision; with a million requested files each
/// event would have cost a million steps.
#[derive(Clone, Debug, Default)]
pub struct RecallQueue {
    by_block: BTreeMap<(u64, u64), RecallItem>,
    block_of: BTreeMap<u64, u64>,
    by_since: BTreeSet<(Time, u64)>,
    by_priority: BTreeMap<u8, u64>,
    bytes: u64,
}

impl RecallQueue {
    /// Adds an item; one with the same id is replaced.
    pub fn insert(&mut self, item: RecallItem) {
        self.remove(item.id);
        self.by_block.insert((item.block, item.id), item);
        self.block_of.insert(item.id, item.block);
        self.by_since.insert((item.since, item.id));
        *self.by_priority.entry(item.priority).or_default() += 1;
        self.bytes = self.bytes.saturating_add(item.bytes);
    }

    /// Takes an item out (it was given to a drive, or withdrawn).
    pub fn remove(&mut self, id: u64) -> Option<RecallItem> {
        let block = self.block_of.remove(&id)?;
        let item = self.by_block.remove(&(block, id))?;
        self.by_since.remove(&(item.since, id));
        if let Some(count) = self.by_priority.get_mut(&item.priority) {
            *count -= 1;
            if *count == 0 {
                self.by_priority.remove(&item.priority);
            }
        }
        self.bytes = self.bytes.saturating_sub(item.bytes);
        Some(item)
    }

    /// The item with this id.
    pub fn get(&self, id: u64) -> Option<&RecallItem> {
        self.by_block.get(&(*self.block_of.get(&id)?, id))
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.by_block.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }

    /// Sum of the bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Since when the oldest item waits.
    pub fn oldest(&self) -> Option<Time> {
        self.by_since.first().map(|(since, _)| *since)
    }

    /// Greatest priority.
    pub fn priority(&self) -> u8 {
        self.by_priority.last_key_value().map_or(0, |(priority, _)| *priority)
    }

    /// First and last block at which an item begins.
    pub fn span(&self) -> Option<(u64, u64)> {
        let ((first, _), _) = self.by_block.first_key_value()?;
        let ((last, _), _) = self.by_block.last_key_value()?;
        Some((*first, *last))
    }

    /// Items in the order in which a tape that stands at `position` serves them: forward to the end, then once more
    /// from the beginning.
    pub fn pass(&self, position: u64) -> impl Iterator<Item = &RecallItem> {
        let ahead = self.by_block.range((position, 0)..);
        let behind = self.by_block.range(..(position, 0));
        ahead.chain(behind).map(|(_, item)| item)
    }

    /// The next batch, strictly forward: from `position` on, or, when nothing is ahead, from the first block. Ends after
    /// `most` items or with the item that reaches `bytes`; never empty while the queue is not.
    pub fn batch(&self, position: u64, most: usize, bytes: u64) -> Vec<RecallItem> {
        let start = if self.by_block.range((position, 0)..).next().is_some() { position } else { 0 };
        let mut room = bytes;
        let mut batch = Vec::new();
        for (_, item) in self.by_block.range((start, 0)..).take(most.max(1)) {
            batch.push(*item);
            room = room.saturating_sub(item.bytes);
            if room == 0 {
                break;
            }
        }
        batch
    }
}
