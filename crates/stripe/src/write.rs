//! Writing: all columns at once, every copy that counts.

use crate::opened::Place;
use crate::runs::{Run, runs};
use crate::{Result, StripeError, Striped};
use data::frame::{MAX_IO, Op};
use layout::Redundancy;
use std::ops::Range;

/// Number of what is written behind when nobody asks what has become of it.
pub(crate) const NOBODY: u64 = u64::MAX;

impl Striped {
    /// Writes all of `bytes` at `offset`. Of two such writes that overlap one comes behind the other, in all that both write. When this returns, every copy that counts has them and every later read sees them; they are
    /// durable after [`Striped::sync`].
    ///
    /// # Errors
    /// `Mover`: some of the bytes may be written, of mirrors in some copies only; the same call may be repeated, and makes the copies equal.
    /// `Beyond`: nothing is written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.waiting(|| self.write_once(&[(offset, bytes)], None))
    }

    /// The same of several pieces of the file, all at once: those of plain components go out one behind the other before the first is answered. Only
    /// what has copies is put in order with other writes.
    ///
    /// # Errors
    /// As [`Striped::write_at`], for all of them.
    pub fn write_pieces(&self, pieces: &[(u64, &[u8])]) -> Result<()> {
        self.waiting(|| self.write_once(pieces, None))
    }

    /// The same, but bytes of coded components may stay in the memory of this process until they fill rows ([`Striped::gathering`]): who reads
    /// through this sees them, others after [`Striped::flush`]. If the process ends before, they are gone.
    ///
    /// # Errors
    /// As [`Striped::write_at`]; what is in memory may be written later nevertheless.
    pub fn write_behind(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.hold_back(offset, bytes.len(), u64::MAX)?;
        self.write_numbered(NOBODY, offset, bytes)
    }

    /// The same; as long as something of it is in memory only, its number is not below [`Striped::least_gathered`]. Rows that it completes are left to
    /// [`Striped::write_completed`], and to whoever runs ahead. Nobody waits for others here, as [`Striped::hold_back`] has it.
    ///
    /// # Errors
    /// As [`Striped::write_behind`].
    pub fn write_numbered(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.waiting(|| self.write_once(&[(offset, bytes)], Some(number)))
    }

    /// With `behind` bytes of that number may stay in memory.
    fn write_once(&self, pieces: &[(u64, &[u8])], behind: Option<u64>) -> Result<()> {
        let _passed = self.gate.read();
        for (offset, bytes) in pieces.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            self.reaches(end_of(*offset, bytes)?)?;
        }
        // One piece is written as local file systems do it.
        let _turn = (pieces.len() == 1 || self.has_copies()).then(|| self.turns.take(span(pieces)));
        self.write_plain(pieces)?;
        for (offset, bytes) in pieces {
            self.write_rest(*offset, bytes, behind)?;
        }
        Ok(())
    }

    fn has_copies(&self) -> bool {
        self.layout.components.iter().any(|one| matches!(one.redundancy, Redundancy::Mirror { .. }))
    }

    /// Writes what lies in components that are not coded.
    fn write_plain(&self, pieces: &[(u64, &[u8])]) -> Result<()> {
        let mut places: Vec<Place> = Vec::new();
        let mut of: Vec<(&[u8], usize)> = Vec::new();
        let mut all: Vec<Run> = Vec::new();
        for (offset, bytes) in pieces {
            for run in runs(&self.layout, *offset..end_of(*offset, bytes)?, MAX_IO) {
                if self.coded[run.component].is_some() {
                    continue;
                }
                let component = &self.layout.components[run.component];
                for column in component.replicas(run.column) {
                    let object = component.object(column).0;
                    let (component, offset, length) = (run.component, run.offset, run.length);
                    places.push(Place { component, column, object, offset, length });
                    of.push((bytes, all.len()));
                }
                all.push(run);
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        let _written = self.change(&places, false);
        self.everywhere(Op::Write, &places, &|n| {
            let (bytes, run) = of[n];
            let run = &all[run];
            let mut gathered = Vec::with_capacity(run.length);
            run.parts.iter().for_each(|part| gathered.extend_from_slice(&bytes[part.clone()]));
            gathered
        })
    }

    /// Writes what of a piece lies in coded components.
    fn write_rest(&self, offset: u64, bytes: &[u8], behind: Option<u64>) -> Result<()> {
        let end = end_of(offset, bytes)?;
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

/// From the first byte of all pieces to the last.
fn span(pieces: &[(u64, &[u8])]) -> Range<u64> {
    let start = pieces.iter().map(|(offset, _)| *offset).min().unwrap_or_default();
    let ends = pieces.iter().map(|(offset, bytes)| offset.saturating_add(bytes.len() as u64));
    start..ends.max().unwrap_or(start)
}

fn end_of(offset: u64, bytes: &[u8]) -> Result<u64> {
    offset.checked_add(bytes.len() as u64).ok_or(StripeError::TooLong)
}
