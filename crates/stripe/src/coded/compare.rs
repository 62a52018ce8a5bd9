//! Comparing rows with their seals, and parity with what it is computed from.

use super::shape::Seal;
use super::units::Cells;
use super::{Coded, View};
use crate::compare::Compared;
use crate::repair::STEP;
use crate::{Result, Striped};
use data::Ticket;

/// Rows that are asked for at once, at most.
const ROWS: u64 = 64;

/// Requests for the units of a row; none where a column does not count.
type Asked = Vec<Option<data::Result<Ticket>>>;
/// Seals of a row, with the columns of their journals; none where a fold says it.
type Seals = Vec<(Option<u16>, Seal)>;

impl Striped {
    pub(crate) fn compare_rows(
        &self,
        number: usize,
        coded: &Coded,
        goes_on: &dyn Fn() -> bool,
        compared: &mut Compared,
    ) -> Result<()> {
        let shape = &coded.shape;
        self.note_what_stays(compared, &|_| self.heads_fail(number, coded))?;
        let rows = shape.rows(self.renewing(|| self.stored_length(number, coded))?);
        let columns = (0..shape.n() as u16).filter(|column| self.is_present(number, *column)).count();
        let batch = (STEP / shape.row_bytes()).clamp(1, ROWS);
        for first in (0..rows).step_by(batch as usize) {
            let batch = first..rows.min(first + batch);
            let asked: Vec<Asked> = batch.clone().map(|row| self.ask_row(number, coded, row)).collect();
            for (row, asked) in batch.zip(asked) {
                if !goes_on() || compared.is_full() {
                    return Ok(());
                }
                compared.bytes += (columns * shape.unit) as u64;
                let asked = parking_lot::Mutex::new(Some(asked));
                self.note_what_stays(compared, &|again| {
                    // A fold, going on or interrupted, is taken into account once it matters.
                    let view = if again { self.load(number, coded, false)?.view } else { View::default() };
                    let asked = asked.lock().take().unwrap_or_else(|| self.ask_row(number, coded, row));
                    self.row_differs(number, coded, (&view, row), asked)
                })?;
            }
        }
        Ok(())
    }

    /// Why a journal has no head that can be read.
    fn heads_fail(&self, number: usize, coded: &Coded) -> Result<Option<String>> {
        let mut journals = self.journals(number, coded);
        journals.retain(|journal| self.is_present(number, journal.column));
        for journal in journals {
            let answer = self.ask_heads(&journal).and_then(Ticket::wait);
            if let Err(why) = self.found(&journal, answer)? {
                return Ok(Some(format!("its journal cannot be read: {why}")));
            }
        }
        Ok(None)
    }

    fn ask_row(&self, number: usize, coded: &Coded, row: u64) -> Asked {
        let cells = Cells { row, from: 0, to: coded.shape.unit };
        let present = |unit: &usize| self.is_present(number, coded.shape.column(row, *unit));
        let ask = |unit| self.ask_units(number, coded, &cells, unit..unit + 1).pop();
        (0..coded.shape.n()).map(|unit| present(&unit).then(|| ask(unit)).flatten()).collect()
    }

    /// What of a row is not as its seals say, or not what is computed from the rest.
    fn row_differs(
        &self,
        number: usize,
        coded: &Coded,
        (view, row): (&View, u64),
        asked: Asked,
    ) -> Result<Option<String>> {
        let shape = &coded.shape;
        let cells = Cells { row, from: 0, to: shape.unit };
        let start = shape.row_start(row);
        if view.old.cover(start..start + shape.row_bytes()) {
            // A fold that has every byte of it writes it whole, and was interrupted: nothing that lies there is read.
            return Ok(None);
        }
        let at = format!("of the stripe at byte {} of the file", start);
        let mut units = Vec::new();
        for (unit, ticket) in asked.into_iter().enumerate() {
            let Some(ticket) = ticket else {
                units.push(None);
                continue;
            };
            match self.found(&cells.place(coded, number, unit), ticket.and_then(Ticket::wait))? {
                Err(why) => return Ok(Some(format!("{at} a unit cannot be read: {why}"))),
                Ok(reply) => {
                    let mut bytes = reply.bytes;
                    bytes.resize(shape.unit, 0);
                    units.push(Some(bytes));
                }
            }
        }
        self.lay_redo_over(coded, view, &cells, &mut units);
        let redo = view.redo.get(&row).map(|redo| redo.seal.clone());
        let seals = match redo {
            Some(seal) => vec![(None, seal)],
            None => match self.seals_of(number, coded, row)? {
                Ok(seals) => seals,
                Err(why) => return Ok(Some(format!("{at} a seal cannot be read: {why}"))),
            },
        };
        for (journal, seal) in &seals {
            let wrong = units.iter().enumerate().find(|(place, unit)| {
                unit.as_ref().is_some_and(|bytes| !seal.matches(shape, *place, 0, bytes))
            });
            if let Some((place, _)) = wrong {
                let target = self.target(number, shape.column(row, place));
                let by = journal.map_or("the log".to_owned(), |column| {
                    format!("the seal on target {}", self.target(number, column))
                });
                return Ok(Some(format!("{at} the unit on target {target} is not what {by} says")));
            }
        }
        self.parity_differs(number, coded, row, &units)
    }

    /// The seals of a row in each journal that counts, or why one of them is of no use.
    fn seals_of(&self, number: usize, coded: &Coded, row: u64) -> Result<Result<Seals, String>> {
        let mut seals = Vec::new();
        for journal in self.journals(number, coded) {
            if !self.is_present(number, journal.column) {
                continue;
            }
            let (offset, length) = (coded.shape.seal_at(row), coded.shape.seal_len());
            let place = crate::opened::Place { offset, length, ..journal };
            let ticket = self.submit(&place, data::frame::Op::Read, Vec::new());
            match self.found(&place, ticket.and_then(Ticket::wait))? {
                Err(why) => return Ok(Err(why)),
                Ok(reply) => {
                    let mut bytes = reply.bytes;
                    bytes.resize(length, 0);
                    seals.push((Some(journal.column), Seal(bytes)));
                }
            }
        }
        Ok(Ok(seals))
    }

    fn parity_differs(
        &self,
        number: usize,
        coded: &Coded,
        row: u64,
        units: &[Option<Vec<u8>>],
    ) -> Result<Option<String>> {
        let shape = &coded.shape;
        let (data, parity) = units.split_at(shape.k.min(units.len()));
        let data: Vec<&[u8]> = data.iter().flatten().map(Vec::as_slice).collect();
        if data.len() < shape.k {
            return Ok(None);
        }
        let computed = self.encode(number, coded, &data)?;
        let wrong = parity
            .iter()
            .zip(&computed)
            .position(|(there, computed)| there.as_ref().is_some_and(|there| there != computed));
        Ok(wrong.map(|p| {
            format!(
                "of the stripe at byte {} of the file the parity on target {} is not that of its bytes",
                shape.row_start(row),
                self.target(number, shape.column(row, shape.k + p))
            )
        }))
    }
}
