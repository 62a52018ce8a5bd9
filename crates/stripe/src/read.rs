//! Reading: all columns at once, another copy where one fails.

use crate::runs::{Run, runs};
use crate::{Result, StripeError, Striped};
use data::frame::{MAX_IO, Op};
use data::{DataError, Reply, Ticket};
use types::ErrorClass;

impl Striped {
    /// Reads at `offset` until `buf` is full or the file ends; says how many bytes it got.
    ///
    /// # Errors
    /// `Mover` if no copy of some part can be had; `buf` then holds nothing of use.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let end = offset.saturating_add(buf.len() as u64);
        let runs = runs(&self.layout, offset..end, MAX_IO);
        let asked: Vec<(Run, data::Result<Ticket>)> = runs
            .into_iter()
            .map(|run| {
                let column = self.copy_for(&run, 0);
                let ticket = self.ask(&run, column);
                (run, ticket)
            })
            .collect();
        // How far the file reaches is asked only when something is missing: a hole, or the end.
        let (mut got, mut short) = (0, false);
        for (run, ticket) in asked {
            let bytes = self.answered(&run, ticket.and_then(Ticket::wait))?.bytes;
            let mut left = bytes.as_slice();
            for part in &run.parts {
                let (now, later) = left.split_at(part.len().min(left.len()));
                buf[part.start..part.start + now.len()].copy_from_slice(now);
                buf[part.start + now.len()..part.end].fill(0);
                short |= now.len() < part.len();
                if !now.is_empty() {
                    got = got.max(part.start + now.len());
                }
                left = later;
            }
        }
        if !short {
            return Ok(buf.len());
        }
        let available = self.length()?.saturating_sub(offset);
        Ok(usize::try_from(available).unwrap_or(usize::MAX).min(buf.len()).max(got))
    }

    fn ask(&self, run: &Run, column: u16) -> data::Result<Ticket> {
        self.submit(run.component, column, Op::Read, run.offset, run.length as u64, Vec::new())
    }

    /// The answer to a run; where it is an error that another copy may not have, that of another copy.
    fn answered(&self, run: &Run, mut answer: data::Result<Reply>) -> Result<Reply> {
        let copies = self.layout.components[run.component].replicas(run.column).len();
        for attempt in 1..=copies {
            let column = self.copy_for(run, attempt - 1);
            match answer {
                Ok(reply) => return Ok(reply),
                Err(e) if attempt < copies && helps(&e) => {
                    answer = self.ask(run, self.copy_for(run, attempt)).and_then(Ticket::wait);
                }
                Err(source) => return Err(self.failed(run.component, column, source)),
            }
        }
        Err(StripeError::Columns { component: run.component, wanted: copies, found: 0 })
    }

    /// The column that is asked for a run at this attempt: copies take turns over the file.
    fn copy_for(&self, run: &Run, attempt: usize) -> u16 {
        let component = &self.layout.components[run.component];
        let copies = component.replicas(run.column);
        let turn = run.offset / u64::from(component.unit_bytes) + attempt as u64;
        copies.start + (turn % copies.len().max(1) as u64) as u16
    }
}

/// Whether another copy may have what this one does not give.
fn helps(error: &DataError) -> bool {
    matches!(error.class(), ErrorClass::Retry | ErrorClass::Corrupt | ErrorClass::NotFound)
}
