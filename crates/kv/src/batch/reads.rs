//! What transactions have read, and whether others have changed it since: a snapshot of a database only notices that two have written the same key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use crate::key::Key;

/// What one transaction has read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    keys: BTreeSet<Key>,
    /// `from` is in it, `to` is not.
    ranges: Vec<(Key, Key)>,
}

impl Reads {
    pub(crate) fn key(&mut self, key: &Key) {
        if !self.keys.contains(key) {
            self.keys.insert(key.clone());
        }
    }

    pub(crate) fn range(&mut self, from: &[u8], to: &[u8]) {
        self.ranges.push((Key::new(from), Key::new(to)));
    }
}

/// The changes of the latest batches, for as long as a transaction is under way that may not have seen them.
#[derive(Debug, Default)]
pub(super) struct Latest {
    /// Number of the last batch that is complete.
    complete: u64,
    /// Key and the last batch that has changed it.
    changed: BTreeMap<Key, u64>,
    batches: VecDeque<(u64, Vec<Key>)>,
    /// How many transactions have begun after which batch was complete.
    under_way: BTreeMap<u64, usize>,
}

impl Latest {
    /// A transaction begins; its snapshot must be taken after this. Everything up to the returned batch is in it.
    pub(super) fn begin(&mut self) -> u64 {
        *self.under_way.entry(self.complete).or_default() += 1;
        self.complete
    }

    /// A transaction has ended.
    pub(super) fn end(&mut self, since: u64) {
        if let Some(count) = self.under_way.get_mut(&since) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&since);
            }
        }
    }

    /// Whether something of `reads` was changed by a batch that may be missing in a snapshot taken after `since`.
    pub(super) fn changed(&self, reads: &Reads, since: u64) -> bool {
        let newer = |batch: &u64| *batch > since;
        reads.keys.iter().any(|key| self.changed.get(key).is_some_and(newer))
            || reads.ranges.iter().filter(|(from, to)| from < to).any(|(from, to)| {
                let range = (Bound::Included(from), Bound::Excluded(to));
                self.changed.range::<Key, _>(range).any(|(_, batch)| newer(batch))
            })
    }

    /// A batch with these changes is complete.
    pub(super) fn completed(&mut self, keys: Vec<Key>) {
        self.complete += 1;
        for key in &keys {
            self.changed.insert(key.clone(), self.complete);
        }
        self.batches.push_back((self.complete, keys));
        let needed = self.under_way.keys().next().copied().unwrap_or(self.complete);
        while let Some((batch, _)) = self.batches.front()
            && *batch <= needed
        {
            let Some((batch, keys)) = self.batches.pop_front() else { break };
            for key in keys {
                if self.changed.get(&key) == Some(&batch) {
                    self.changed.remove(&key);
                }
            }
        }
    }
}

/// Whether something of `reads` is among `keys`.
pub(super) fn touches(reads: &Reads, keys: &BTreeSet<Key>) -> bool {
    reads.keys.iter().any(|key| keys.contains(key))
        || reads.ranges.iter().filter(|(from, to)| from < to).any(|(from, to)| {
            keys.range::<Key, _>((Bound::Included(from), Bound::Excluded(to))).next().is_some()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        Key::new(&[n])
    }

    fn reads(keys: &[u8], ranges: &[(u8, u8)]) -> Reads {
        let mut reads = Reads::default();
        keys.iter().for_each(|n| reads.key(&key(*n)));
        ranges.iter().for_each(|(from, to)| reads.range(&[*from], &[*to]));
        reads
    }

    #[test]
    fn what_was_changed_after_the_beginning_is_seen_and_nothing_else() {
        let mut latest = Latest::default();
        let early = latest.begin();
        latest.completed(vec![key(5)]);
        let late = latest.begin();
        for (reads, hit) in [
            (reads(&[5], &[]), true),
            (reads(&[4, 6], &[]), false),
            (reads(&[], &[(1, 5), (6, 9)]), false),
            (reads(&[], &[(9, 1)]), false),
            (reads(&[], &[(5, 6)]), true),
        ] {
            assert_eq!(latest.changed(&reads, early), hit, "{reads:?}");
            assert!(!latest.changed(&reads, late), "{reads:?}");
            assert_eq!(touches(&reads, &BTreeSet::from([key(5)])), hit, "{reads:?}");
        }
    }

    #[test]
    fn changes_are_forgotten_when_nobody_needs_them() {
        let mut latest = Latest::default();
        let first = latest.begin();
        (0..10).for_each(|n| latest.completed(vec![key(n), key(100)]));
        assert_eq!(latest.changed.len(), 11);
        let second = latest.begin();
        latest.completed(vec![key(20)]);
        assert!(latest.changed(&reads(&[0], &[]), first));
        latest.end(first);
        latest.completed(vec![key(21)]);
        assert!(latest.changed(&reads(&[20], &[]), second), "still under way");
        assert_eq!(latest.changed.len(), 2, "{latest:?}");
        latest.end(second);
        latest.completed(vec![key(22)]);
        assert!(latest.changed.is_empty() && latest.under_way.is_empty(), "{latest:?}");
    }
}
