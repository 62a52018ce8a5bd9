//! Writing: all columns at once, every copy that counts.

use crate::opened::Place;
use crate::runs::{Run, runs};
use crate::{Result, StripeError, Striped};
use data::frame::{MAX_IO, Op};

impl Striped {
    /// Writes all of `bytes` at `offset`. When this returns, every copy that counts has them and every later read sees them; they are
    /// durable after [`Striped::sync`].
    ///
    /// # Errors
    /// `Mover`: some of the bytes may be written, of mirrors in some copies only; the same call may be repeated, and makes the copies equal.
    /// `Beyond`: nothing is written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.renewing(|| self.write_once(offset, bytes, false))
    }

    /// The same, but bytes of coded components may stay in the memory of this process until they fill rows ([`Striped::gathering`]): who reads
    /// through this sees them, others after [`Striped::flush`]. If the process ends before, they are gone.
    ///
    /// # Errors
    /// As [`Striped::write_at`]; what is in memory may be written later nevertheless.
    pub fn write_behind(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.hold_back(offset, bytes.len())?;
        self.renewing(|| self.write_once(offset, bytes, true))
    }

    fn write_once(&self, offset: u64, bytes: &[u8], behind: bool) -> Result<()> {
        let _passed = self.gate.read();
        let end = offset.checked_add(bytes.len() as u64).ok_or(StripeError::TooLong)?;
        if !bytes.is_empty() {
            self.reaches(end)?;
        }
        let mut places: Vec<(Place, usize)> = Vec::new();
        let all: Vec<Run> = runs(&self.layout, offset..end, MAX_IO);
        for (number, run) in all.iter().enumerate() {
            if self.coded[run.component].is_some() {
                continue;
            }
            let component = &self.layout.components[run.component];
            for column in component.replicas(run.column) {
                let object = component.object(column).0;
                let place = Place {
                    component: run.component,
                    column,
                    object,
                    offset: run.offset,
                    length: run.length,
                };
                places.push((place, number));
            }
        }
        let (places, of): (Vec<Place>, Vec<usize>) = places.into_iter().unzip();
        if !places.is_empty() {
            let _written = self.change(&places, false);
            self.everywhere(Op::Write, &places, &|n| {
                let run = &all[of[n]];
                let mut gathered = Vec::with_capacity(run.length);
                run.parts.iter().for_each(|part| gathered.extend_from_slice(&bytes[part.clone()]));
                gathered
            })?;
        }
        for (number, component) in self.layout.components.iter().enumerate() {
            let (from, to) = (offset.max(component.range.start), end.min(component.range.end));
            match &self.coded[number] {
                Some(coded) if from < to => {
                    let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                    self.write_coded(number, coded, (from, part), behind)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
