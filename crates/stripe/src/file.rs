//! An open striped file: its layout, its columns, its length.

use crate::{Result, StripeError};
use data::frame::Op;
use data::{Ask, Channel, Slot, Ticket};
use layout::{Layout, Redundancy};
use std::sync::Arc;
use types::TargetId;

/// One column of a component: an object and the way to its mover.
#[derive(Clone, Debug)]
pub struct Column {
    /// Connection to the mover of the target.
    pub channel: Arc<Channel>,
    /// Capability for the object.
    pub slot: Slot,
}

/// A file whose bytes lie on several movers. All methods may be called from many threads at once; writers of ranges that do not overlap do
/// not disturb each other.
#[derive(Debug)]
pub struct Striped {
    pub(crate) layout: Layout,
    pub(crate) columns: Vec<Vec<Column>>,
}

impl Striped {
    /// Opens a file: for each component of its layout the columns, in order.
    ///
    /// # Errors
    /// `Layout`, `Coded`, `Columns`.
    pub fn open(layout: Layout, columns: Vec<Vec<Column>>) -> Result<Self> {
        layout.check()?;
        for (number, component) in layout.components.iter().enumerate() {
            if matches!(component.redundancy, Redundancy::Coded { .. }) {
                return Err(StripeError::Coded);
            }
            let (wanted, found) = (component.targets.len(), columns.get(number).map_or(0, Vec::len));
            if wanted != found {
                return Err(StripeError::Columns { component: number, wanted, found });
            }
        }
        Ok(Self { layout, columns })
    }

    /// Where its bytes lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Length of the file (bytes): of each column the end of its object, wherever that lies in the file, the greatest of them. Of mirrors
    /// the longest copy counts: a write that has reached some of them only may be seen.
    ///
    /// # Errors
    /// `Mover`: all copies of some column are needed, or all but those that do not answer.
    pub fn length(&self) -> Result<u64> {
        let mut longest = 0;
        for (number, component) in self.layout.components.iter().enumerate() {
            let asked = self.ask_all(number, |_| (Op::Stat, 0))?;
            let mut lengths: Vec<Result<u64>> = asked;
            for column in 0..component.targets.len() as u16 {
                if component.replicas(column).start != column {
                    continue;
                }
                let copies: Vec<Result<u64>> = lengths.drain(..component.replicas(column).len()).collect();
                let length = longest_copy(copies)?;
                let end = length.checked_sub(1).and_then(|last| component.file_offset(column, last));
                longest = longest.max(end.map_or(0, |last| last + 1));
            }
        }
        Ok(longest)
    }

    /// Sets the length; what is new is zeros.
    ///
    /// # Errors
    /// `Mover`: some columns may have their new length; the same call may be repeated.
    pub fn set_length(&self, length: u64) -> Result<()> {
        for (number, component) in self.layout.components.iter().enumerate() {
            let set =
                self.ask_all(number, |column| (Op::SetLength, component.object_length(column, length)))?;
            set.into_iter().collect::<Result<Vec<u64>>>()?;
        }
        Ok(())
    }

    /// Makes everything durable that was written by anybody before, on every column.
    ///
    /// # Errors
    /// `Mover`.
    pub fn sync(&self) -> Result<()> {
        for number in 0..self.layout.components.len() {
            self.ask_all(number, |_| (Op::Sync, 0))?.into_iter().collect::<Result<Vec<u64>>>()?;
        }
        Ok(())
    }

    /// Asks every column of a component at once; for each the length of its object, or why there is none.
    fn ask_all(&self, component: usize, what: impl Fn(u16) -> (Op, u64)) -> Result<Vec<Result<u64>>> {
        let tickets: Vec<(u16, data::Result<Ticket>)> = (0..self.columns[component].len() as u16)
            .map(|column| {
                let (op, offset) = what(column);
                (column, self.submit(component, column, op, offset, 0, Vec::new()))
            })
            .collect();
        Ok(tickets
            .into_iter()
            .map(|(column, ticket)| {
                let answer = ticket.and_then(Ticket::wait).map(|reply| reply.object_length);
                answer.map_err(|source| self.failed(component, column, source))
            })
            .collect())
    }

    pub(crate) fn submit(
        &self,
        component: usize,
        column: u16,
        op: Op,
        offset: u64,
        length: u64,
        buffer: Vec<u8>,
    ) -> data::Result<Ticket> {
        let object = self.layout.components[component].object(column).0;
        let Column { channel, slot } = &self.columns[component][usize::from(column)];
        channel.submit(slot, Ask { op, flags: 0, object, offset, length }, buffer)
    }

    pub(crate) fn failed(&self, component: usize, column: u16, source: data::DataError) -> StripeError {
        let target = self.layout.components[component].target(column).unwrap_or(TargetId(0));
        StripeError::Mover { target, source }
    }
}

/// The greatest length that a copy says; an error only if all have one.
fn longest_copy(copies: Vec<Result<u64>>) -> Result<u64> {
    let mut failed = None;
    let mut longest = None;
    for copy in copies {
        match copy {
            Ok(length) => longest = longest.max(Some(length)),
            Err(e) => failed = Some(e),
        }
    }
    match (longest, failed) {
        (Some(length), _) => Ok(length),
        (None, Some(e)) => Err(e),
        (None, None) => Ok(0),
    }
}
