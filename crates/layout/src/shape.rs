//! The form of a layout, and what makes one valid.

use crate::component::{Component, Piece};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// Most columns of one component.
pub const MAX_COLUMNS: usize = 1024;
/// Smallest unit of striping (bytes); units are multiples of it, so that direct IO stays aligned.
pub const MIN_UNIT_BYTES: u32 = 4096;
/// Largest unit of striping (bytes).
pub const MAX_UNIT_BYTES: u32 = 1 << 30;

/// What survives the loss of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redundancy {
    /// Nothing: every byte lies on one target.
    None,
    /// Every byte lies on this many targets, at least 2.
    Mirror {
        /// Targets that hold the same byte.
        copies: u8,
    },
    /// `data` units have `parity` more from which any `parity` lost ones are computed.
    Coded {
        /// Units of data of a stripe, at least 2.
        data: u8,
        /// Units of parity of a stripe, at least 1.
        parity: u8,
    },
}

/// Where the bytes of one file lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Raised by every change of where bytes lie; what was allowed under an older one is refused.
    pub generation: u32,
    /// In order of offset, without gaps. A file that is to get more as it grows has none for what lies behind the last.
    pub components: Vec<Component>,
}

/// Why a layout cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The components leave a gap, overlap, or end.
    #[error("component {index} begins at byte {found} of the file, but the one before ends at {expected}")]
    Gap {
        /// Number of the component, from 0.
        index: usize,
        /// Where it begins (bytes).
        found: u64,
        /// Where it has to begin (bytes).
        expected: u64,
    },
    /// There is no component, or one is empty.
    #[error("a layout has components, each with at least one byte; these end at {found}")]
    Ends {
        /// Where the last one ends (bytes).
        found: u64,
    },
    /// The unit of striping is not possible.
    #[error(
        "a unit of striping of {0} bytes: it must be a multiple of {MIN_UNIT_BYTES}, at most {MAX_UNIT_BYTES}"
    )]
    Unit(u32),
    /// The number of targets does not fit the redundancy.
    #[error("{targets} targets do not fit {redundancy:?}: {wanted}")]
    Targets {
        /// How many there are.
        targets: usize,
        /// What is to be kept.
        redundancy: Redundancy,
        /// What would fit.
        wanted: &'static str,
    },
    /// A target holds two columns of one component.
    #[error("target {0} stands twice in one component: its loss would take two columns at once")]
    Twice(types::TargetId),
}

impl Layout {
    /// One object without end on one target: what a file of a single machine has.
    pub fn single(target: types::TargetId, base: types::ObjectId) -> Self {
        let component = Component {
            range: 0..u64::MAX,
            unit_bytes: MIN_UNIT_BYTES,
            redundancy: Redundancy::None,
            base,
            targets: vec![target],
        };
        Self { generation: 1, components: vec![component] }
    }

    /// Where what it has ends (bytes); `u64::MAX` if files cannot grow beyond it.
    pub fn end(&self) -> u64 {
        self.components.last().map_or(0, |component| component.range.end)
    }

    /// Checks everything that the arithmetic relies on.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn check(&self) -> Result<(), LayoutError> {
        let mut expected = 0;
        for (index, component) in self.components.iter().enumerate() {
            let Range { start: found, end } = component.range;
            if found != expected {
                return Err(LayoutError::Gap { index, found, expected });
            }
            if end <= found {
                return Err(LayoutError::Ends { found: end });
            }
            component.check()?;
            expected = end;
        }
        if expected > 0 { Ok(()) } else { Err(LayoutError::Ends { found: expected }) }
    }

    /// The parts of `range` of the file, in order, each in one unit of one column (or in one piece where a component has one column).
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        self.components.iter().enumerate().flat_map(move |(index, component)| {
            let part = range.start.max(component.range.start)..range.end.min(component.range.end);
            component.pieces(part).map(move |piece| Piece { component: index, ..piece })
        })
    }
}

impl Component {
    fn check(&self) -> Result<(), LayoutError> {
        let unit = self.unit_bytes;
        if unit == 0 || !unit.is_multiple_of(MIN_UNIT_BYTES) || unit > MAX_UNIT_BYTES {
            return Err(LayoutError::Unit(unit));
        }
        let targets = self.targets.len();
        let refused = |wanted| Err(LayoutError::Targets { targets, redundancy: self.redundancy, wanted });
        if targets == 0 || targets > MAX_COLUMNS {
            return refused("from 1 to 1024");
        }
        match self.redundancy {
            Redundancy::Mirror { copies } if copies < 2 => return refused("at least 2 copies"),
            Redundancy::Mirror { copies } if !targets.is_multiple_of(usize::from(copies)) => {
                return refused("a multiple of the number of copies");
            }
            Redundancy::Coded { data, parity } if data < 2 || parity < 1 => {
                return refused("at least 2 units of data and 1 of parity");
            }
            Redundancy::Coded { data, parity } if targets != usize::from(data) + usize::from(parity) => {
                return refused("one for each unit of data and of parity");
            }
            _ => {}
        }
        let mut seen = BTreeSet::new();
        match self.targets.iter().find(|target| !seen.insert(**target)) {
            Some(target) => Err(LayoutError::Twice(*target)),
            None => Ok(()),
        }
    }
}
