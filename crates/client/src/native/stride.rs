//! Regular patterns of many pieces in one call.

/// `count` blocks of `block` bytes, the first at `offset`, each `step` bytes after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Where the first block begins.
    pub offset: u64,
    /// Length of a block (bytes).
    pub block: usize,
    /// From the beginning of a block to that of the next (bytes, at least `block`).
    pub step: u64,
    /// Number of blocks.
    pub count: usize,
}

impl Stride {
    /// Bytes of all blocks; None: blocks overlap, or the last ends beyond what a file can have.
    pub fn bytes(&self) -> Option<usize> {
        let last = self.step.checked_mul(self.count.saturating_sub(1) as u64)?;
        let end = self.offset.checked_add(last)?.checked_add(self.block as u64)?;
        let apart = self.count < 2 || self.step >= self.block as u64;
        (apart && i64::try_from(end).is_ok()).then_some(())?;
        self.block.checked_mul(self.count)
    }

    /// Where each block begins.
    pub fn offsets(self) -> impl Iterator<Item = u64> {
        (0..self.count as u64).map(move |n| self.offset + n * self.step)
    }
}
