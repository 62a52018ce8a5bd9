//! Reading from coded components.

use super::extents::Extents;
use super::units::Cells;
use super::{Coded, View};
use crate::runs::Run;
use crate::{Result, Striped};
use std::ops::Range;

impl Striped {
    /// What lies over the columns in a range of the file, as it is now; read before the columns are.
    pub(crate) fn coded_over(&self, number: usize, coded: &Coded, range: Range<u64>) -> Result<Over> {
        let rows = match range.is_empty() {
            true => 0..0,
            false => coded.shape.row(range.start)..coded.shape.row(range.end - 1) + 1,
        };
        // First: what is not here any more is in the log or in columns by now.
        let (gathered, end) = coded.gathered.part(rows, range.clone());
        let over = |view, writer| Over { view, gathered, end, writer };
        let log = coded.log.lock();
        if log.writer {
            return Ok(over(log.view.part(range, log.view.length), true));
        }
        drop(log);
        Ok(over(self.look(number, coded, range)?, false))
    }

    pub(crate) fn coded_length(&self, number: usize, coded: &Coded) -> Result<u64> {
        Ok(self.coded_over(number, coded, 0..0)?.length())
    }

    /// The same without what is in memory only.
    pub(super) fn stored_length(&self, number: usize, coded: &Coded) -> Result<u64> {
        Ok(self.coded_over(number, coded, 0..0)?.view.length)
    }

    /// What a column that does not give it has of a run, from the others; and whether one of them was asked for it.
    pub(crate) fn computed(&self, coded: &Coded, over: &Over, run: &Run) -> Result<(Vec<u8>, bool)> {
        let shape = &coded.shape;
        let unit = shape.unit as u64;
        let end = run.offset + run.length as u64;
        let rows = run.offset / unit..end.div_ceil(unit);
        // Beside the writer, with what a fold has computed, which may be going on.
        let settled = self.quiet && coded.seen.lock().as_ref().is_some_and(|seen| !seen.folds);
        let loaded = match over.writer || settled {
            true => None,
            false => Some(self.load(run.component, coded, false)?),
        };
        let view = loaded.as_ref().map_or(&over.view, |loaded| &loaded.view);
        // Nobody changes them meanwhile; another process that does so leaves word in the journals.
        let _held = over.writer.then(|| coded.hold(rows.clone()));
        let (mut bytes, mut asked) = (Vec::with_capacity(run.length), loaded.is_some());
        for row in rows {
            let from = run.offset.max(row * unit) - row * unit;
            let to = end.min((row + 1) * unit) - row * unit;
            let cells = Cells::around(coded, row, from as usize..to as usize);
            let place = shape.place(row, run.column);
            let at = cells.in_file(coded, place) + from - cells.from as u64;
            if view.old.cover(at..at + to - from) {
                // Where a fold writes the whole row, it leaves no word of how far it is; and nothing of the row is needed.
                let start = bytes.len();
                bytes.resize(start + (to - from) as usize, 0);
                view.old.lay_over(at, &mut bytes[start..]);
                continue;
            }
            let units = self.complete(run.component, coded, view, &cells)?;
            asked = true;
            let found = units.into_iter().nth(place).flatten().unwrap_or_default();
            bytes.extend_from_slice(&found[from as usize - cells.from..to as usize - cells.from]);
        }
        Ok((bytes, asked))
    }
}

/// What lies over the columns of a component.
pub(crate) struct Over {
    view: View,
    /// What is in memory only, and where the last of that ends in the file.
    gathered: Extents,
    end: u64,
    /// This process is the one that writes.
    pub(crate) writer: bool,
}

impl Over {
    /// Lays it over bytes of the file that begin at `at`.
    pub(crate) fn lay_over(&self, at: u64, bytes: &mut [u8]) {
        self.view.old.lay_over(at, bytes);
        self.view.new.lay_over(at, bytes);
        self.gathered.lay_over(at, bytes);
    }

    /// Length of the file as far as the component has it (bytes).
    pub(crate) fn length(&self) -> u64 {
        self.view.length.max(self.end)
    }
}
