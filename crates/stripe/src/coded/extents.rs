//! Bytes of a file that lie somewhere else and not yet in their columns: in the log, or in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// Pieces that follow each other are one up to this length (bytes): who makes one longer may have to copy it, and who puts something over a
/// part of it copies the rest.
const JOINED: usize = 64 << 10;

/// Pieces that do not overlap, by where they begin.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Bytes of all of them.
    bytes: u64,
}

impl Extents {
    /// End of the last piece.
    pub(crate) fn end(&self) -> u64 {
        self.pieces.last_key_value().map_or(0, |(at, bytes)| at + bytes.len() as u64)
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many pieces there are.
    pub fn count(&self) -> u64 {
        self.pieces.len() as u64
    }

    /// Puts bytes in the place of those that are there; `at`: where they begin in the file.
    pub fn insert(&mut self, at: u64, bytes: Vec<u8>) {
        if bytes.is_empty() || self.insert_in_place(at, &bytes) {
            return;
        }
        let end = at + bytes.len() as u64;
        let first = self.pieces.range(..at).next_back().map_or(at, |(start, _)| *start);
        let over: Vec<u64> = self.pieces.range(first..end).map(|(start, _)| *start).collect();
        for start in over {
            let Some(mut old) = self.pieces.remove(&start) else { continue };
            let old_end = start + old.len() as u64;
            self.bytes -= old_end.min(end).saturating_sub(start.max(at));
            if old_end > end {
                self.pieces.insert(end, old[(end.max(start) - start) as usize..].to_vec());
            }
            if start < at {
                old.truncate((at - start) as usize);
                self.pieces.insert(start, old);
            }
        }
        self.bytes += bytes.len() as u64;
        self.pieces.insert(at, bytes);
    }

    /// The same where a piece has all of the range, or ends where it begins; false if it is not so simple.
    fn insert_in_place(&mut self, at: u64, bytes: &[u8]) -> bool {
        let end = at + bytes.len() as u64;
        let next = self.pieces.range(at + 1..).next().map_or(u64::MAX, |(start, _)| *start);
        let Some((start, piece)) = self.pieces.range_mut(..=at).next_back() else { return false };
        let within = (at - start) as usize;
        if within + bytes.len() <= piece.len() {
            piece[within..within + bytes.len()].copy_from_slice(bytes);
            return true;
        }
        let follows = within == piece.len() && next >= end && within + bytes.len() <= JOINED;
        if follows {
            piece.extend_from_slice(bytes);
            self.bytes += bytes.len() as u64;
        }
        follows
    }

    /// All of it, one after the other, and where the first piece begins.
    pub(crate) fn joined(&self) -> (u64, Vec<u8>) {
        let mut bytes = Vec::with_capacity(self.bytes as usize);
        self.pieces.values().for_each(|piece| bytes.extend_from_slice(piece));
        (self.pieces.first_key_value().map_or(0, |(at, _)| *at), bytes)
    }

    /// Whether nothing is here.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The parts of pieces that lie in a range (bytes of the file), and where each begins.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.pieces.range(..range.start).next_back().map_or(range.start, |(start, _)| *start);
        self.pieces.range(first..range.end.max(first)).filter_map(move |(start, bytes)| {
            let from = range.start.max(*start);
            let to = range.end.min(start + bytes.len() as u64);
            (from < to).then(|| (from, &bytes[(from - start) as usize..(to - start) as usize]))
        })
    }

    /// What is here of a range, pieces that lie end to end joined.
    pub(crate) fn runs(&self, range: Range<u64>) -> Vec<(u64, Cow<'_, [u8]>)> {
        let mut runs: Vec<(u64, Cow<'_, [u8]>)> = Vec::new();
        for (start, piece) in self.within(range) {
            match runs.last_mut() {
                Some((at, run)) if *at + run.len() as u64 == start => run.to_mut().extend_from_slice(piece),
                _ => runs.push((start, Cow::Borrowed(piece))),
            }
        }
        runs
    }

    /// Lays what is here over bytes that begin at `at` of the file; says how far from their start on it reaches.
    pub(crate) fn lay_over(&self, at: u64, bytes: &mut [u8]) -> usize {
        let mut reach = 0;
        for (start, piece) in self.within(at..at.saturating_add(bytes.len() as u64)) {
            let from = (start - at) as usize;
            bytes[from..from + piece.len()].copy_from_slice(piece);
            reach = from + piece.len();
        }
        reach
    }

    /// Whether all bytes of a range are here.
    pub(crate) fn cover(&self, range: Range<u64>) -> bool {
        let mut at = range.start;
        for (start, piece) in self.within(range.clone()) {
            if start != at {
                return false;
            }
            at += piece.len() as u64;
        }
        at >= range.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_last_is_on_top(puts in proptest::collection::vec((0_u64..60, 0_usize..30, any::<u8>()), 0..12), range in (0_u64..90, 0_u64..40)) {
            let mut extents = Extents::default();
            let mut model: Vec<Option<u8>> = vec![None; 200];
            for (at, length, byte) in puts {
                extents.insert(at, vec![byte; length]);
                model[at as usize..at as usize + length].fill(Some(byte));
            }
            let range = range.0..range.0 + range.1;
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let reach = extents.lay_over(range.start, &mut bytes);
            for (at, run) in extents.runs(range.clone()) {
                let before = at.checked_sub(1).filter(|before| range.contains(before));
                prop_assert!(before.is_none_or(|before| model[before as usize].is_none()), "a run begins in the middle");
                let after = at as usize + run.len();
                prop_assert!(!range.contains(&(after as u64)) || model[after].is_none(), "a run ends in the middle");
                let expected: Vec<Option<u8>> = run.iter().copied().map(Some).collect();
                prop_assert_eq!(&model[at as usize..after], expected);
            }
            let there = &model[range.start as usize..range.end as usize];
            let expected: Vec<u8> = there.iter().map(|byte| byte.unwrap_or(0)).collect();
            prop_assert_eq!(bytes, expected);
            prop_assert_eq!(reach, there.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
            prop_assert_eq!(extents.cover(range.clone()), there.iter().all(Option::is_some));
            prop_assert_eq!(extents.bytes(), model.iter().flatten().count() as u64);
            prop_assert_eq!(extents.end(), model.iter().rposition(Option::is_some).map_or(0, |last| last as u64 + 1));
        }
    }
}
