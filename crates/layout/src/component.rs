//! The arithmetic of one component.

use crate::shape::Redundancy;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use types::{ObjectId, TargetId};

/// How one range of a file is dealt out to columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Range of the file (bytes); that of one without end ends at `u64::MAX`.
    pub range: Range<u64>,
    /// Size of a unit (bytes).
    pub unit_bytes: u32,
    /// What survives the loss of a target.
    pub redundancy: Redundancy,
    /// Object of column 0; column `c` is the object with the number `base + c`.
    pub base: ObjectId,
    /// Target of each column.
    pub targets: Vec<TargetId>,
}

/// A part of a file that lies in one piece in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the component in its layout.
    pub component: usize,
    /// Column that holds it; with mirrors the first of [`Component::replicas`].
    pub column: u16,
    /// Where it begins in the file (bytes).
    pub file_offset: u64,
    /// Where it begins in the object (bytes).
    pub object_offset: u64,
    /// How long it is (bytes).
    pub length: u64,
}

/// Columns of one stripe of a coded component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Where its units lie in each object (bytes).
    pub object_offset: u64,
    /// Where its first unit of data begins in the file (bytes).
    pub file_offset: u64,
    /// Column of each unit of data, in the order of the file.
    pub data: Vec<u16>,
    /// Column of each unit of parity.
    pub parity: Vec<u16>,
}

impl Component {
    /// The object of a column.
    pub fn object(&self, column: u16) -> ObjectId {
        ObjectId(self.base.0 + u64::from(column))
    }

    /// How many consecutive objects, from `base` on, belong to the component: its columns, and of a coded one `parity + 1` journals
    /// behind them (`docs/design/0011-coded.md`).
    pub fn objects(&self) -> u64 {
        self.places().count() as u64
    }

    /// All objects of the component, each with the column on whose target it lies.
    pub fn places(&self) -> impl Iterator<Item = (ObjectId, u16)> + '_ {
        let columns = self.targets.len() as u16;
        let journals = match self.redundancy {
            Redundancy::Coded { parity, .. } => u16::from(parity) + 1,
            Redundancy::None | Redundancy::Mirror { .. } => 0,
        };
        (0..columns)
            .chain(0..journals)
            .enumerate()
            .map(|(n, column)| (ObjectId(self.base.0 + n as u64), column))
    }

    /// The target of a column, if there is such a column.
    pub fn target(&self, column: u16) -> Option<TargetId> {
        self.targets.get(usize::from(column)).copied()
    }

    /// Columns that hold the same bytes as `column`, itself among them.
    pub fn replicas(&self, column: u16) -> Range<u16> {
        let group = self.group();
        let first = column / group * group;
        first..first + group
    }

    /// The parts of `range` of the file (cut to the component), in order.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let end = range.end.min(self.range.end);
        let mut at = range.start.max(self.range.start);
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let piece = self.piece(at, end);
                at += piece.length;
                piece
            })
        })
    }

    /// What the object offset of a column is in the file; `None` for parity, and beyond the end of the component.
    pub fn file_offset(&self, column: u16, object_offset: u64) -> Option<u64> {
        let unit = u64::from(self.unit_bytes);
        let (row, within) = (object_offset / unit, object_offset % unit);
        let number = match self.redundancy {
            Redundancy::None | Redundancy::Mirror { .. } => {
                let logical = u64::from(column / self.group());
                row.checked_mul(self.wide())?.checked_add(logical)?
            }
            Redundancy::Coded { data, .. } => {
                let (k, n) = (u64::from(data), self.targets.len() as u64);
                let first = row.checked_mul(k)?;
                let place = (u64::from(column) + n - first % n) % n;
                if place >= k {
                    return None;
                }
                first.checked_add(place)?
            }
        };
        let offset = self.range.start.checked_add(number.checked_mul(unit)?)?.checked_add(within)?;
        (offset < self.range.end).then_some(offset)
    }

    /// How long the object of a column is (bytes) when the file has `file_size` bytes and no holes at its end.
    pub fn object_length(&self, column: u16, file_size: u64) -> u64 {
        let size = file_size.min(self.range.end).saturating_sub(self.range.start);
        let unit = u64::from(self.unit_bytes);
        let rows_of = |width: u64| (size / unit / width, size - size / unit / width * width * unit);
        match self.redundancy {
            Redundancy::None | Redundancy::Mirror { .. } => {
                let (rows, rest) = rows_of(self.wide());
                let before = u64::from(column / self.group()) * unit;
                rows * unit + rest.saturating_sub(before).min(unit)
            }
            Redundancy::Coded { data, .. } => {
                let (k, n) = (u64::from(data), self.targets.len() as u64);
                let (rows, rest) = rows_of(k);
                let place = (u64::from(column) + n - rows % n * k % n) % n;
                // Parity is as long as the longest unit of its stripe, the first.
                let before = if place < k { place * unit } else { 0 };
                rows * unit + rest.saturating_sub(before).min(unit)
            }
        }
    }

    /// The stripe that holds byte `file_offset`; `None` if the component is not coded or does not hold it.
    pub fn stripe(&self, file_offset: u64) -> Option<Stripe> {
        let Redundancy::Coded { data, .. } = self.redundancy else { return None };
        if !self.range.contains(&file_offset) {
            return None;
        }
        let (unit, k, n) = (u64::from(self.unit_bytes), u64::from(data), self.targets.len() as u64);
        let row = (file_offset - self.range.start) / (k * unit);
        let column = |place: u64| ((row % n * k + place) % n) as u16;
        Some(Stripe {
            object_offset: row * unit,
            file_offset: self.range.start + row * k * unit,
            data: (0..k).map(column).collect(),
            parity: (k..n).map(column).collect(),
        })
    }

    /// Columns that hold the same bytes.
    fn group(&self) -> u16 {
        match self.redundancy {
            Redundancy::Mirror { copies } => u16::from(copies),
            Redundancy::None | Redundancy::Coded { .. } => 1,
        }
    }

    /// Units side by side in one row of a component that is not coded.
    fn wide(&self) -> u64 {
        (self.targets.len() / usize::from(self.group())) as u64
    }

    /// The piece that begins at `at`, which lies in the component and below `end`.
    fn piece(&self, at: u64, end: u64) -> Piece {
        let unit = u64::from(self.unit_bytes);
        let relative = at - self.range.start;
        let (number, within) = (relative / unit, relative % unit);
        let (column, row) = match self.redundancy {
            Redundancy::None | Redundancy::Mirror { .. } => {
                (number % self.wide() * u64::from(self.group()), number / self.wide())
            }
            Redundancy::Coded { data, .. } => (number % self.targets.len() as u64, number / u64::from(data)),
        };
        // In a single column the units follow each other.
        let alone = self.targets.len() == usize::from(self.group());
        let room = if alone { end - at } else { (unit - within).min(end - at) };
        Piece {
            component: 0,
            column: column as u16,
            file_offset: at,
            object_offset: row * unit + within,
            length: room,
        }
    }
}
