//! Units of rows: as they lie in their columns, or computed from the others.

use super::shape::{CELL, Seal};
use super::{Coded, View};
use crate::opened::Place;
use crate::read::{graver, helps};
use crate::{Result, StripeError, Striped};
use data::frame::Op;
use data::{DataError, Ticket};

/// Bytes `from..to` of each unit of a row; whole cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cells {
    pub(super) row: u64,
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Cells {
    /// The whole cells around a range of a unit.
    pub(super) fn around(coded: &Coded, row: u64, range: std::ops::Range<usize>) -> Self {
        let to = range.end.div_ceil(CELL) * CELL;
        Self { row, from: range.start / CELL * CELL, to: to.min(coded.shape.unit) }
    }

    pub(super) fn length(&self) -> usize {
        self.to - self.from
    }

    /// Where they lie in a column.
    pub(super) fn place(&self, coded: &Coded, component: usize, unit: usize) -> Place {
        let column = coded.shape.column(self.row, unit);
        Place {
            component,
            column,
            object: coded.shape.base + u64::from(column),
            offset: self.row * coded.shape.unit as u64 + self.from as u64,
            length: self.length(),
        }
    }

    /// Where those of a unit of data lie in the file.
    pub(super) fn in_file(&self, coded: &Coded, unit: usize) -> u64 {
        coded.shape.row_start(self.row) + (unit * coded.shape.unit + self.from) as u64
    }
}

/// What columns gave, unit by unit.
type Units = Vec<Option<Vec<u8>>>;

/// Units of a row as their columns gave them.
struct Taken {
    units: Units,
    /// Why one is missing that counts; where one of them may only be away for a moment, why that is.
    why: Option<DataError>,
}

impl Taken {
    fn is_whole(&self) -> bool {
        self.units.iter().all(Option::is_some)
    }
}

impl Striped {
    /// The units of data of some rows, each as its column has it; where one is missing, computed.
    ///
    /// # Errors
    /// `Lost`, `Mover`.
    pub(super) fn data_units(
        &self,
        number: usize,
        coded: &Coded,
        view: &View,
        wanted: &[Cells],
    ) -> Result<Vec<Vec<Vec<u8>>>> {
        let k = coded.shape.k;
        let asked: Vec<_> = wanted.iter().map(|cells| self.ask_units(number, coded, cells, 0..k)).collect();
        let mut all = Vec::with_capacity(wanted.len());
        for (cells, tickets) in wanted.iter().zip(asked) {
            let taken = self.take_units(number, coded, cells, tickets)?;
            let units = match taken.is_whole() {
                true => taken.units,
                false => self.complete(number, coded, view, cells)?,
            };
            all.push(units.into_iter().take(k).flatten().collect());
        }
        Ok(all)
    }

    /// All units of a row, those that are missing or not as they were written computed from the others.
    ///
    /// # Errors
    /// `Lost`, `Mover`.
    pub(super) fn complete(&self, number: usize, coded: &Coded, view: &View, cells: &Cells) -> Result<Units> {
        self.complete_sealed(number, coded, view, cells).map(|(units, _)| units)
    }

    /// What the units of data of a row were before something is laid over them, and its seal: `data` as the columns have it, if that is what was sealed. A machine that was
    /// started anew may have lost what was written last: then computed from the others. What nobody sealed (who wrote it is gone, and nobody was told that it is there) is
    /// taken as it lies there.
    ///
    /// # Errors
    /// `Mover`.
    pub(super) fn as_sealed(
        &self,
        number: usize,
        coded: &Coded,
        (view, cells): (&View, &Cells),
        data: Vec<Vec<u8>>,
    ) -> Result<(Vec<Vec<u8>>, Seal)> {
        let (mut first, mut failed) = (None, None);
        for journal in self.journals(number, coded) {
            match self.read_seal(coded, &journal, cells.row) {
                Ok(seal) if seal.matches_data(&coded.shape, cells.from / CELL, &data) => {
                    return Ok((data, seal));
                }
                Ok(seal) => first = first.or(Some(seal)),
                Err(e) => failed = Some(self.failed(number, journal.column, e)),
            }
        }
        match (self.complete_sealed(number, coded, view, cells), first) {
            (Ok((units, seal)), _) => Ok((units.into_iter().take(coded.shape.k).flatten().collect(), seal)),
            (Err(StripeError::Lost { .. }), Some(first)) => Ok((data, first)),
            (Err(e), Some(_)) => Err(e),
            (Err(e), None) => Err(failed.unwrap_or(e)),
        }
    }

    /// All units of a row as its seal says, and that seal.
    fn complete_sealed(
        &self,
        number: usize,
        coded: &Coded,
        view: &View,
        cells: &Cells,
    ) -> Result<(Units, Seal)> {
        let shape = &coded.shape;
        let tickets = self.ask_units(number, coded, cells, 0..shape.n());
        let Taken { mut units, mut why } = self.take_units(number, coded, cells, tickets)?;
        self.lay_redo_over(coded, view, cells, &mut units);
        let mut found = 0;
        let first = cells.from / CELL;
        let sealed = view.redo.get(&cells.row).map(|redo| redo.seal.clone());
        let journals = if sealed.is_some() { Vec::new() } else { self.journals(number, coded) };
        let counting = journals.iter().filter(|journal| self.is_present(number, journal.column));
        let stored = counting.map(|journal| self.read_seal(coded, journal, cells.row));
        for seal in sealed.map(Ok).into_iter().chain(stored) {
            let seal = match seal {
                Ok(seal) => seal,
                Err(e) if helps(&e) => {
                    why = graver(why, e);
                    continue;
                }
                Err(source) => return Err(self.failed(number, 0, source)),
            };
            let mut good = units.clone();
            for (place, unit) in good.iter_mut().enumerate() {
                *unit = unit.take().filter(|bytes| seal.matches(shape, place, first, bytes));
            }
            found = found.max(good.iter().flatten().count());
            let whole = shape.code.repair(&mut good).is_ok()
                && good.iter().enumerate().all(|(place, unit)| {
                    unit.as_ref().is_some_and(|bytes| seal.matches(shape, place, first, bytes))
                });
            if whole {
                return Ok((good, seal));
            }
        }
        Err(StripeError::Lost { offset: shape.row_start(cells.row), found, needed: shape.k, last: why })
    }

    pub(super) fn read_seal(&self, coded: &Coded, journal: &Place, row: u64) -> data::Result<Seal> {
        let length = coded.shape.seal_len();
        let place = Place { offset: coded.shape.seal_at(row), length, ..*journal };
        let mut bytes = self.submit(&place, Op::Read, Vec::new()).and_then(Ticket::wait)?.bytes;
        bytes.resize(length, 0);
        Ok(Seal(bytes))
    }

    pub(super) fn ask_units(
        &self,
        number: usize,
        coded: &Coded,
        cells: &Cells,
        units: std::ops::Range<usize>,
    ) -> Vec<data::Result<Ticket>> {
        units.map(|unit| self.submit(&cells.place(coded, number, unit), Op::Read, Vec::new())).collect()
    }

    /// Takes what comes; what is missing behind the end of an object is zeros.
    fn take_units(
        &self,
        number: usize,
        coded: &Coded,
        cells: &Cells,
        tickets: Vec<data::Result<Ticket>>,
    ) -> Result<Taken> {
        let mut taken = Taken { units: Units::new(), why: None };
        for (unit, ticket) in tickets.into_iter().enumerate() {
            let column = coded.shape.column(cells.row, unit);
            match ticket.and_then(Ticket::wait) {
                Ok(reply) => {
                    let mut bytes = reply.bytes;
                    bytes.resize(cells.length(), 0);
                    taken.units.push(Some(bytes));
                }
                Err(e) if helps(&e) => {
                    self.missed(number, column, &e);
                    if !self.is_out_of_date(number, column) {
                        taken.why = graver(taken.why, e);
                    }
                    taken.units.push(None);
                }
                Err(source) => return Err(self.failed(number, column, source)),
            }
        }
        Ok(taken)
    }

    /// What an interrupted fold writes into a row, as far as it is known: then data and parity belong together.
    pub(super) fn lay_redo_over(&self, coded: &Coded, view: &View, cells: &Cells, units: &mut Units) {
        let Some(redo) = view.redo.get(&cells.row) else { return };
        for (from, parity) in &redo.parity {
            let from = *from as usize;
            let length = parity.first().map_or(0, Vec::len);
            let (start, end) = (from.max(cells.from), (from + length).min(cells.to));
            if start >= end {
                continue;
            }
            let part = start - cells.from..end - cells.from;
            for (place, unit) in units.iter_mut().enumerate() {
                let Some(unit) = unit else { continue };
                match place.checked_sub(coded.shape.k) {
                    None => {
                        let at = cells.in_file(coded, place) + part.start as u64;
                        view.old.lay_over(at, &mut unit[part.clone()]);
                    }
                    Some(p) => unit[part.clone()].copy_from_slice(&parity[p][start - from..end - from]),
                }
            }
        }
    }
}
