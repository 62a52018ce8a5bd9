//! Arithmetic of a coded component and of its journals.

use code::Code;
use data::sum;
use layout::Component;
use std::ops::Range;

/// Sums of seals and borders of what is folded are those of cells of so many bytes of a unit.
pub(crate) const CELL: usize = sum::BLOCK;
/// Where each head of a journal begins; they take turns (bytes).
pub(crate) const HEADS: [u64; 2] = [0, 2048];
/// Length of each half of the log (bytes).
pub(crate) const HALF: u64 = 32 << 20;
/// Where the halves begin.
pub(crate) const HALVES: [u64; 2] = [4096, 4096 + HALF];
/// Where records of a fold begin, and how long they are together at most (bytes).
pub(crate) const REDO: Range<u64> = 4096 + 2 * HALF..4096 + 3 * HALF;
/// Where the seals begin (bytes).
pub(crate) const SEALS: u64 = REDO.end;

/// What is computed from the layout.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Units of data and of parity of a row.
    pub(crate) k: usize,
    pub(crate) m: usize,
    /// Bytes of a unit.
    pub(crate) unit: usize,
    /// Part of the file.
    pub(crate) range: Range<u64>,
    /// First journal.
    pub(crate) journals: u64,
    pub(crate) base: u64,
    pub(crate) code: Code,
}

/// Most bytes of a file.
const LONGEST: u64 = i64::MAX as u64;

impl Shape {
    pub(crate) fn new(component: &Component, k: usize, m: usize) -> Result<Self, code::CodeError> {
        Ok(Self {
            k,
            m,
            unit: component.unit_bytes as usize,
            range: component.range.clone(),
            base: component.base.0,
            journals: component.base.0 + (k + m) as u64,
            code: Code::new(k, m)?,
        })
    }

    pub(crate) fn n(&self) -> usize {
        self.k + self.m
    }

    /// Bytes of the file in one row.
    pub(crate) fn row_bytes(&self) -> u64 {
        (self.k * self.unit) as u64
    }

    /// The row that holds a byte of the file.
    pub(crate) fn row(&self, offset: u64) -> u64 {
        (offset - self.range.start) / self.row_bytes()
    }

    /// Whether bytes of the file lie in this part of it.
    pub(crate) fn has(&self, at: u64, length: u64) -> bool {
        let most = self.range.end.min(LONGEST);
        at >= self.range.start && at.checked_add(length).is_some_and(|end| end <= most)
    }

    /// Whether there may be such a row, and bytes from one on within each of its units.
    pub(crate) fn has_cells(&self, row: u64, within: u64, length: u64) -> bool {
        let ends = within.checked_add(length).is_some_and(|end| end <= self.unit as u64);
        ends && row < self.rows(LONGEST)
    }

    /// Where a row begins in the file.
    pub(crate) fn row_start(&self, row: u64) -> u64 {
        self.range.start + row * self.row_bytes()
    }

    /// How many rows a file of this length has.
    pub(crate) fn rows(&self, length: u64) -> u64 {
        length.min(self.range.end).saturating_sub(self.range.start).div_ceil(self.row_bytes())
    }

    /// Column of a unit (data first, then parity) of a row.
    pub(crate) fn column(&self, row: u64, place: usize) -> u16 {
        let n = self.n() as u64;
        ((row % n * self.k as u64 + place as u64) % n) as u16
    }

    /// Inverse of [`Shape::column`].
    pub(crate) fn place(&self, row: u64, column: u16) -> usize {
        let n = self.n() as u64;
        ((u64::from(column) + n - row % n * self.k as u64 % n) % n) as usize
    }

    /// Cells of a unit.
    pub(crate) fn cells(&self) -> usize {
        self.unit.div_ceil(CELL)
    }

    /// Length of a seal (bytes).
    pub(crate) fn seal_len(&self) -> usize {
        8 + self.n() * self.cells() * 4
    }

    /// Where the seal of a row lies in a journal.
    pub(crate) fn seal_at(&self, row: u64) -> u64 {
        SEALS + row * self.seal_len() as u64
    }

    /// Rows that have a seal in a journal of this length.
    pub(crate) fn sealed_rows(&self, journal_length: u64) -> u64 {
        journal_length.saturating_sub(SEALS).div_ceil(self.seal_len() as u64)
    }
}

/// What is known of a row besides its bytes: how many of the file's bytes it has, and the sums of all cells of all its units. That of a
/// hole is zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seal(pub(crate) Vec<u8>);

impl Seal {
    pub(crate) fn empty(shape: &Shape) -> Self {
        Self(vec![0; shape.seal_len()])
    }

    /// How many bytes of the file the row has.
    pub(crate) fn end(&self) -> u64 {
        let mut field = [0; 8];
        field.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(field)
    }

    pub(crate) fn set_end(&mut self, end: u64) {
        self.0[..8].copy_from_slice(&end.to_le_bytes());
    }

    fn at(shape: &Shape, place: usize, cell: usize) -> Range<usize> {
        let at = 8 + (place * shape.cells() + cell) * 4;
        at..at + 4
    }

    /// Notes the sums of bytes of a unit from cell `first` on.
    pub(crate) fn set(&mut self, shape: &Shape, place: usize, first: usize, bytes: &[u8]) {
        for (n, cell) in bytes.chunks(CELL).enumerate() {
            self.0[Self::at(shape, place, first + n)].copy_from_slice(&sum::part(0, cell).to_le_bytes());
        }
    }

    /// Whether these are what all units of data have from cell `first` on.
    pub(crate) fn matches_data(&self, shape: &Shape, first: usize, data: &[Vec<u8>]) -> bool {
        data.iter().enumerate().all(|(place, bytes)| self.matches(shape, place, first, bytes))
    }

    /// Whether these bytes are what the unit has from cell `first` on.
    pub(crate) fn matches(&self, shape: &Shape, place: usize, first: usize, bytes: &[u8]) -> bool {
        bytes
            .chunks(CELL)
            .enumerate()
            .all(|(n, cell)| self.0[Self::at(shape, place, first + n)] == sum::part(0, cell).to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::Redundancy;

    #[test]
    fn records_of_what_a_file_cannot_have_are_known() {
        let component = |range| Component {
            range,
            unit_bytes: 4096,
            redundancy: Redundancy::Coded { data: 2, parity: 1 },
            base: types::ObjectId(1),
            targets: Vec::new(),
        };
        let shape = Shape::new(&component(8192..u64::MAX), 2, 1).unwrap();
        assert!(shape.has(8192, 10) && shape.has(LONGEST - 10, 10));
        for (at, length) in [(8191, 10), (0, 1), (LONGEST - 5, 10), (u64::MAX - 5, 10), (u64::MAX, 1)] {
            assert!(!shape.has(at, length), "{at}, {length}");
        }
        assert!(shape.has_cells(0, 0, 4096) && shape.has_cells(7, 4000, 96) && shape.has_cells(7, 0, 0));
        for (row, within, length) in [(0, 1, 4096), (0, u64::MAX, 2), (u64::MAX, 0, 1), (1 << 51, 0, 1)] {
            assert!(!shape.has_cells(row, within, length), "{row}, {within}, {length}");
        }
        let short = Shape::new(&component(0..20_000), 2, 1).unwrap();
        assert!(short.has(19_999, 1) && !short.has(19_999, 2));
        assert!(short.has_cells(2, 0, 4096) && !short.has_cells(3, 0, 1));
    }
}
