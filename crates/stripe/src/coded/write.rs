//! Writing to coded components: rows that are whole and new go to their columns at once, everything else to the log.

use super::Coded;
use super::shape::Seal;
use crate::opened::Place;
use crate::{Result, Striped};
use data::frame::{MAX_IO, Op};
use parking_lot::RwLockReadGuard;
use std::ops::Range;

impl Striped {
    /// Writes bytes at an offset of the file; all of it lies in the component. With `behind`, a number, they may stay in memory.
    pub(crate) fn write_coded(
        &self,
        number: usize,
        coded: &Coded,
        (offset, bytes): (u64, &[u8]),
        behind: Option<u64>,
    ) -> Result<()> {
        let _passed = self.pass_writer(number, coded)?;
        match behind.filter(|_| coded.gathered.has_room()) {
            Some(behind) => self.gather(number, coded, behind, (offset, bytes)),
            None => self.write_now(number, coded, offset, bytes),
        }
    }

    /// Passes the gate of a component as its writer.
    pub(super) fn pass_writer<'a>(&self, number: usize, coded: &'a Coded) -> Result<RwLockReadGuard<'a, ()>> {
        loop {
            let passed = coded.gate.read();
            if coded.log.lock().writer {
                return Ok(passed);
            }
            drop(passed);
            self.become_writer(number, coded)?;
        }
    }

    /// Writes rows that are whole and new to their columns, everything else to the log.
    pub(super) fn write_through(
        &self,
        number: usize,
        coded: &Coded,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let shape = &coded.shape;
        let (mut at, end) = (0, bytes.len());
        // What is gathered for the log begins here.
        let mut logged = 0;
        while at < end {
            let place = offset + at as u64;
            let row = shape.row(place);
            let whole = (end - at) / shape.row_bytes() as usize;
            if place == shape.row_start(row) && whole > 0 {
                let rows = row..row + whole.min((MAX_IO / shape.unit).max(1)) as u64;
                let held = coded.hold(rows.clone());
                let fresh = self.take_fresh(number, coded, rows)?;
                if !fresh.is_empty() {
                    let length = (fresh.end - fresh.start) as usize * shape.row_bytes() as usize;
                    self.write_rows(number, coded, fresh, &bytes[at..at + length])?;
                    drop(held);
                    self.append(number, coded, offset + logged as u64, &bytes[logged..at])?;
                    at += length;
                    logged = at;
                    continue;
                }
            }
            let next = shape.row_start(row + 1) - offset;
            at = usize::try_from(next).unwrap_or(end).min(end);
        }
        self.append(number, coded, offset + logged as u64, &bytes[logged..])
    }

    /// Writes all of a row to its columns if it has never had bytes; else false.
    pub(super) fn write_fresh(&self, number: usize, coded: &Coded, row: u64, bytes: &[u8]) -> Result<bool> {
        let _held = coded.hold(row..row + 1);
        let fresh = self.take_fresh(number, coded, row..row + 1)?;
        if fresh.is_empty() {
            return Ok(false);
        }
        self.write_rows(number, coded, fresh, bytes).map(|()| true)
    }

    /// The first rows of a range that have never had bytes; they are taken to have some from now on. The caller holds them.
    fn take_fresh(&self, number: usize, coded: &Coded, rows: Range<u64>) -> Result<Range<u64>> {
        self.look_for_holes(number, coded, rows.clone())?;
        let mut log = coded.log.lock();
        let fresh = rows.clone().take_while(|row| log.is_fresh(*row)).count() as u64;
        let fresh = rows.start..rows.start + fresh;
        log.written.extend(fresh.clone());
        Ok(fresh)
    }

    /// Writes whole rows that have no bytes yet, or of which the log has all: data, parity and seals at once. What a crash leaves of that does
    /// not match its seals.
    pub(super) fn write_rows(
        &self,
        number: usize,
        coded: &Coded,
        rows: Range<u64>,
        bytes: &[u8],
    ) -> Result<()> {
        let shape = &coded.shape;
        let mut parity: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut seals = Vec::new();
        for data in bytes.chunks(shape.row_bytes() as usize) {
            let units: Vec<&[u8]> = data.chunks(shape.unit).collect();
            let made = self.encode(number, coded, &units)?;
            seals.extend(sealed(coded, Seal::empty(shape), 0, &units, &made, shape.row_bytes()).0);
            parity.push(made);
        }
        let (count, unit) = (parity.len(), shape.unit);
        let columns = self.own_places(number).map(|place| Place {
            offset: rows.start * unit as u64,
            length: count * unit,
            ..place
        });
        let seals_at = shape.seal_at(rows.start);
        let mut places: Vec<Place> = columns.collect();
        places.extend(self.record_places(number, coded, seals_at, seals.len()));
        self.everywhere(Op::Write, &places, &|n| {
            if n >= shape.n() {
                return seals.clone();
            }
            let mut column = Vec::with_capacity(count * unit);
            for (index, row) in rows.clone().enumerate() {
                let place = shape.place(row, n as u16);
                match place.checked_sub(shape.k) {
                    None => column.extend_from_slice(&bytes[(index * shape.k + place) * unit..][..unit]),
                    Some(p) => column.extend_from_slice(&parity[index][p]),
                }
            }
            column
        })?;
        let mut log = coded.log.lock();
        log.changed.iter_mut().for_each(|changed| changed.extend(rows.clone()));
        log.view.length = log.view.length.max(shape.row_start(rows.end));
        Ok(())
    }

    /// The parity of units of data.
    pub(super) fn encode(&self, number: usize, coded: &Coded, units: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let shape = &coded.shape;
        let length = units.first().map_or(0, |unit| unit.len());
        let mut parity = vec![vec![0; length]; shape.m];
        let mut places: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        let coded = shape.code.encode(units, &mut places);
        coded.map_err(|_| crate::StripeError::Columns {
            component: number,
            wanted: shape.k,
            found: units.len(),
        })?;
        Ok(parity)
    }
}

/// A seal with what these bytes of all units, from cell `first` on, change.
pub(super) fn sealed(
    coded: &Coded,
    mut seal: Seal,
    first: usize,
    data: &[impl AsRef<[u8]>],
    parity: &[Vec<u8>],
    end: u64,
) -> Seal {
    let shape = &coded.shape;
    data.iter().enumerate().for_each(|(place, unit)| seal.set(shape, place, first, unit.as_ref()));
    parity.iter().enumerate().for_each(|(p, unit)| seal.set(shape, shape.k + p, first, unit));
    seal.set_end(seal.end().max(end));
    seal
}
