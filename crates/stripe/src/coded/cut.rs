//! Setting the length of a coded component.

use super::Coded;
use crate::opened::Place;
use crate::{Result, Striped};
use data::frame::Op;

impl Striped {
    /// Sets the length of the file as far as it is in a component.
    pub(crate) fn set_coded_length(&self, number: usize, coded: &Coded, length: u64) -> Result<()> {
        self.become_writer(number, coded)?;
        let _all = coded.gate.write();
        let shape = &coded.shape;
        self.flush_coded(number, coded)?;
        // Afterwards nothing in the journals is about rows that go.
        self.fold_all(number, coded)?;
        let wanted = length.clamp(shape.range.start, shape.range.end);
        let now = coded.log.lock().view.length.max(shape.range.start);
        let rows = shape.rows(wanted);
        if wanted < now {
            self.clear_tail(number, coded, wanted, now)?;
        }
        if wanted != now && rows > 0 {
            // While rows behind it have seals, this changes nothing.
            let end = wanted - shape.row_start(rows - 1);
            self.write_journals(number, coded, shape.seal_at(rows - 1), &end.to_le_bytes())?;
        }
        if wanted < now {
            self.cut_journals(number, coded, rows)?;
            self.cut_columns(number, coded, rows)?;
        }
        let mut log = coded.log.lock();
        if wanted < now {
            // What lies behind has no bytes any more.
            log.rows = log.rows.min(rows);
            log.written.retain(|row| *row < rows);
        } else if rows > 0 {
            log.written.insert(rows - 1);
        }
        log.view.length = if wanted > shape.range.start { wanted } else { 0 };
        Ok(())
    }

    /// The part of the last row that goes becomes zeros as any bytes do, so that its parity fits.
    fn clear_tail(&self, number: usize, coded: &Coded, wanted: u64, now: u64) -> Result<()> {
        let shape = &coded.shape;
        let rows = shape.rows(wanted);
        let row_end = shape.row_start(rows).min(now);
        if wanted < row_end {
            let zeros = vec![0; (row_end - wanted) as usize];
            self.append(number, coded, wanted, &zeros)?;
            self.fold_all(number, coded)?;
        }
        Ok(())
    }

    /// Ends every journal behind the seals of so many rows: what is not sealed is not there.
    fn cut_journals(&self, number: usize, coded: &Coded, rows: u64) -> Result<()> {
        let places = self.record_places(number, coded, coded.shape.seal_at(rows), 0);
        self.everywhere(Op::SetLength, &places, &|_| Vec::new())
    }

    /// Ends every column behind so many rows.
    pub(super) fn cut_columns(&self, number: usize, coded: &Coded, rows: u64) -> Result<()> {
        let offset = rows * coded.shape.unit as u64;
        let mut longer = Vec::new();
        for place in self.own_places(number).filter(|place| self.is_present(number, place.column)) {
            let asked = self.submit(&place, Op::Stat, Vec::new()).and_then(data::Ticket::wait);
            // One that does not answer is asked to be cut, and left out if it does not do that either.
            if asked.map_or(true, |reply| reply.object_length > offset) {
                longer.push(Place { offset, ..place });
            }
        }
        self.everywhere(Op::SetLength, &longer, &|_| Vec::new())
    }
}
