//! A set of byte ranges, merged where they touch: which parts of a file have arrived from tape.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    by_start: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds `[start, end)`.
    pub fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        let touching: Vec<u64> =
            self.by_start.range(..=end).rev().take_while(|&(_, &e)| e >= start).map(|(&s, _)| s).collect();
        for s in touching {
            let e = self.by_start.remove(&s).unwrap_or(s);
            start = start.min(s);
            end = end.max(e);
        }
        self.by_start.insert(start, end);
    }

    /// Whether all of `[start, end)` is in the set.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        start >= end || self.by_start.range(..=start).next_back().is_some_and(|(_, &e)| e >= end)
    }

    /// Bytes in the set.
    pub fn total(&self) -> u64 {
        self.by_start.iter().map(|(s, e)| e - s).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_set_of_bytes(adds in prop::collection::vec((0u64..64, 0u64..16), 0..24), ask in (0u64..64, 0u64..16)) {
            let mut ranges = Ranges::default();
            let mut bytes = std::collections::BTreeSet::new();
            for (s, l) in adds {
                ranges.add(s, s + l);
                bytes.extend(s..s + l);
            }
            prop_assert_eq!(ranges.total(), bytes.len() as u64);
            prop_assert_eq!(ranges.covers(ask.0, ask.0 + ask.1), (ask.0..ask.0 + ask.1).all(|b| bytes.contains(&b)));
        }
    }
}
