//! What a partition holds, in memory: lengths of its objects, where its filemarks are, and how many bytes lie before an
//! object.

/// Objects per sample of the running sum.
const STEP: usize = 1024;

/// The objects of one partition, numbered from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Record length, 0 for a filemark.
    lengths: Vec<u32>,
    /// Object numbers of filemarks, ascending.
    marks: Vec<u64>,
    /// Bytes before object `i * STEP`.
    samples: Vec<u64>,
    used: u64,
}

impl Index {
    /// Number of objects; the end of data has this number.
    pub(crate) fn end(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// Bytes in all records.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Length of object `at` (0: filemark), None at or beyond the end of data.
    pub(crate) fn length(&self, at: u64) -> Option<u32> {
        self.lengths.get(usize::try_from(at).ok()?).copied()
    }

    /// Appends a record (`length` > 0) or a filemark (0).
    pub(crate) fn push(&mut self, length: u32) {
        if self.lengths.len().is_multiple_of(STEP) {
            self.samples.push(self.used);
        }
        if length == 0 {
            self.marks.push(self.end());
        }
        self.lengths.push(length);
        self.used += u64::from(length);
    }

    /// Forgets object `at` and all behind it.
    pub(crate) fn truncate(&mut self, at: u64) {
        if at >= self.end() {
            return;
        }
        self.used = self.bytes_before(at);
        let n = at as usize;
        self.lengths.truncate(n);
        self.samples.truncate(n.div_ceil(STEP));
        self.marks.truncate(self.marks_before(at) as usize);
    }

    /// Filemarks before object `at`.
    pub(crate) fn marks_before(&self, at: u64) -> u64 {
        self.marks.partition_point(|m| *m < at) as u64
    }

    /// Object number of the `n`th filemark (from 0).
    pub(crate) fn mark(&self, n: u64) -> Option<u64> {
        self.marks.get(usize::try_from(n).ok()?).copied()
    }

    /// Bytes of records before object `at` (all bytes when it is beyond the end).
    pub(crate) fn bytes_before(&self, at: u64) -> u64 {
        let n = usize::try_from(at).unwrap_or(usize::MAX).min(self.lengths.len());
        if n == self.lengths.len() {
            return self.used;
        }
        let start = n / STEP * STEP;
        self.samples[n / STEP] + self.lengths[start..n].iter().map(|l| u64::from(*l)).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_and_marks_agree_with_a_plain_list(
            lengths in proptest::collection::vec(prop_oneof![Just(0u32), 1u32..9000], 0..4000),
            cut in 0u64..5000,
            more in proptest::collection::vec(0u32..100, 0..50),
        ) {
            let mut index = Index::default();
            let mut plain = lengths.clone();
            lengths.iter().for_each(|l| index.push(*l));
            index.truncate(cut);
            plain.truncate(cut as usize);
            more.iter().for_each(|l| index.push(*l));
            plain.extend(&more);
            prop_assert_eq!(index.end(), plain.len() as u64);
            for at in (0..plain.len() + 2).step_by(37).chain([plain.len()]) {
                let before = &plain[..at.min(plain.len())];
                prop_assert_eq!(index.bytes_before(at as u64), before.iter().map(|l| u64::from(*l)).sum::<u64>());
                prop_assert_eq!(index.marks_before(at as u64), before.iter().filter(|l| **l == 0).count() as u64);
            }
            prop_assert_eq!(index.used(), plain.iter().map(|l| u64::from(*l)).sum::<u64>());
        }
    }
}
