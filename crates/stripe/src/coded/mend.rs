//! Making a column of a coded component what the others say.

use super::Coded;
use super::shape::{HALVES, SEALS};
use super::units::Cells;
use crate::opened::Place;
use crate::repair::Mended;
use crate::{Result, StripeError, Striped};
use data::frame::{MAX_IO, Op};
use std::ops::Range;

impl Striped {
    /// From now on notes which rows change. What lies before `at` and was mended before this began may have changed already.
    pub(crate) fn note_changes(&self, number: usize, coded: &Coded, at: u64) -> Result<()> {
        self.become_writer(number, coded)?;
        let before = 0..at.div_ceil(coded.shape.unit as u64);
        coded.log.lock().changed.get_or_insert_with(|| before.collect());
        Ok(())
    }

    /// How long columns are (bytes): whole units.
    pub(crate) fn rows_length(&self, number: usize, coded: &Coded) -> Result<u64> {
        Ok(coded.shape.rows(self.stored_length(number, coded)?) * coded.shape.unit as u64)
    }

    /// Makes a range of a column what it is to be, in whole blocks: so a bad one is replaced and not changed.
    pub(crate) fn mend_coded(&self, mended: &Mended<'_>, coded: &Coded, range: Range<u64>) -> Result<u64> {
        let shape = &coded.shape;
        let (unit, step) = (shape.unit as u64, coded.whole_units());
        let length = self.rows_length(mended.component, coded)?;
        let object = shape.base + u64::from(mended.column);
        let mut written = 0;
        for at in (range.start / step * step..range.end.min(length)).step_by(step as usize) {
            let end = length.min(at + step);
            let rows = at / unit..end.div_ceil(unit);
            let _held = coded.hold(rows.clone());
            let mut units = Vec::new();
            for row in rows.clone() {
                units.extend(self.unit_of(mended, coded, row)?);
            }
            let skip = (at - rows.start * unit) as usize;
            let bytes = units[skip..skip + (end - at) as usize].to_vec();
            written += self.make_equal(mended, object, at, bytes)?;
        }
        Ok(written)
    }

    /// What the column is to have of a row, from all that is as it was written.
    fn unit_of(&self, mended: &Mended<'_>, coded: &Coded, row: u64) -> Result<Vec<u8>> {
        let cells = Cells { row, from: 0, to: coded.shape.unit };
        let units = self.complete(mended.component, coded, &super::View::default(), &cells)?;
        let place = coded.shape.place(row, mended.column);
        Ok(units.into_iter().nth(place).flatten().unwrap_or_default())
    }

    /// With nobody writing: everything is folded, and the rows that have changed since are mended again. Gives the length of columns.
    pub(crate) fn finish_coded(&self, mended: &Mended<'_>, coded: &Coded) -> Result<u64> {
        let number = mended.component;
        let known = coded.log.lock().changed.is_some();
        self.note_changes(number, coded, 0)?;
        let _all = coded.gate.write();
        self.fold_all(number, coded)?;
        let length = self.rows_length(number, coded)?;
        let rows = length / coded.shape.unit as u64;
        let changed = std::mem::take(&mut coded.log.lock().changed).unwrap_or_default();
        // Where nobody has noted changes, every row may have.
        let every: Vec<u64> = if known { changed.into_iter().collect() } else { (0..rows).collect() };
        let unit = coded.shape.unit as u64;
        for row in every.into_iter().filter(|row| *row < rows) {
            self.mend_coded(mended, coded, row * unit..(row + 1) * unit)?;
        }
        Ok(length)
    }

    /// Copies the journal, in which nothing is but heads and seals.
    pub(crate) fn copy_journal(&self, mended: &Mended<'_>, coded: &Coded) -> Result<()> {
        if !coded.has_journal(mended.column) {
            return Ok(());
        }
        let number = mended.component;
        let object = coded.shape.journals + u64::from(mended.column);
        // Of a column that moves its own will do, if there is no other.
        let mut there = self.journals(number, coded);
        there.retain(|place| self.is_present(number, place.column));
        there.sort_by_key(|place| place.column == mended.column);
        let nowhere = StripeError::Columns { component: number, wanted: 1, found: 0 };
        let other = there.into_iter().next().ok_or(nowhere)?;
        let read = |offset: u64, length: usize| {
            let place = Place { offset, length, ..other };
            let answer = self.submit(&place, Op::Read, Vec::new()).and_then(data::Ticket::wait);
            answer.map_err(|source| self.failed(number, other.column, source))
        };
        let heads = read(0, HALVES[0] as usize)?;
        // What it said before must not count any more, whatever comes next.
        self.tell(mended, object, Op::SetLength, 0, 0, Vec::new())?;
        let mut at = SEALS;
        while at < heads.object_length {
            let bytes = read(at, MAX_IO)?.bytes;
            let length = bytes.len() as u64;
            self.tell(mended, object, Op::Write, at, length, bytes)?;
            at += length.max(1);
        }
        self.tell(mended, object, Op::Write, 0, heads.bytes.len() as u64, heads.bytes).map(drop)
    }
}
