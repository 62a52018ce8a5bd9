//! Writing: all columns at once, every copy.

use crate::runs::runs;
use crate::{Result, StripeError, Striped};
use data::Ticket;
use data::frame::{MAX_IO, Op};

impl Striped {
    /// Writes all of `bytes` at `offset`. When this returns, every copy has them and every later read sees them; they are durable after
    /// [`Striped::sync`].
    ///
    /// # Errors
    /// `Mover`: some of the bytes may be written, of mirrors in some copies only; the same call may be repeated, and makes the copies equal.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(StripeError::TooLong)?;
        let mut asked: Vec<(usize, u16, data::Result<Ticket>)> = Vec::new();
        for run in runs(&self.layout, offset..end, MAX_IO) {
            let mut gathered = Vec::with_capacity(run.length);
            run.parts.iter().for_each(|part| gathered.extend_from_slice(&bytes[part.clone()]));
            let copies = self.layout.components[run.component].replicas(run.column);
            for column in copies.clone() {
                let buffer =
                    if column + 1 == copies.end { std::mem::take(&mut gathered) } else { gathered.clone() };
                let ticket =
                    self.submit(run.component, column, Op::Write, run.offset, run.length as u64, buffer);
                asked.push((run.component, column, ticket));
            }
        }
        // All are waited for, also when one has failed: nothing of this write happens after it returned.
        let mut outcome = Ok(());
        for (component, column, ticket) in asked {
            if let Err(source) = ticket.and_then(Ticket::wait) {
                outcome = outcome.and(Err(self.failed(component, column, source)));
            }
        }
        outcome
    }
}
