//! Reading: all columns at once, another copy where one fails, and what is lost of coded ones computed.

use crate::coded::Over;
use crate::opened::Place;
use crate::runs::{Run, runs};
use crate::{Result, StripeError, Striped};
use data::frame::{MAX_IO, Op};
use data::{DataError, Reply, Ticket};
use types::ErrorClass;

/// How often a read begins anew because another client has changed what was to be computed from.
const ATTEMPTS: usize = 4;

impl Striped {
    /// Reads at `offset` until `buf` is full or the file ends; says how many bytes it got.
    ///
    /// # Errors
    /// `Mover` if no copy of some part can be had, `Lost` if too little is left to compute it; `buf` then holds nothing of use.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.read(offset, buf)?.got)
    }

    /// The same; none if no mover has answered in this very read: then nothing says that the file is still as it was when its logs were read.
    ///
    /// # Errors
    /// As [`Striped::read_at`].
    pub fn read_confirmed(&self, offset: u64, buf: &mut [u8]) -> Result<Option<usize>> {
        let Done { got, answered } = self.read(offset, buf)?;
        Ok(answered.then_some(got))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<Done> {
        self.waiting(|| {
            for _ in 1..ATTEMPTS {
                match self.read_once(offset, buf) {
                    Err(ReadError::Changed(_)) => {}
                    outcome => return outcome.map_err(StripeError::from),
                }
            }
            self.read_once(offset, buf).map_err(StripeError::from)
        })
    }

    fn read_once(&self, offset: u64, buf: &mut [u8]) -> Result<Done, ReadError> {
        let end = offset.saturating_add(buf.len() as u64);
        let over = self.all_over(offset..end)?;
        let asked: Vec<(Run, data::Result<Ticket>)> = self
            .there(offset..end, &over)
            .into_iter()
            .map(|run| {
                let ticket = self.ask(&run, self.copy_for(&run, 0));
                (run, ticket)
            })
            .collect();
        // How far the file reaches is asked only when something is missing: a hole, or the end.
        let (mut got, mut short) = (0, end > self.layout.end());
        let mut answered = false;
        for (run, ticket) in asked {
            let answer = ticket.and_then(Ticket::wait);
            let coded = self.coded[run.component].as_ref().zip(over[run.component].as_ref());
            let (bytes, by_mover) = match (coded, answer) {
                (Some((coded, over)), Err(e)) if helps(&e) => {
                    self.missed(run.component, run.column, &e);
                    self.computed(coded, over, &run).map_err(|e| changed(e, over.writer))?
                }
                (_, answer) => (self.answered(&run, answer)?.bytes, true),
            };
            answered |= by_mover;
            let mut left = bytes.as_slice();
            for part in &run.parts {
                let (now, later) = left.split_at(part.len().min(left.len()));
                buf[part.start..part.start + now.len()].copy_from_slice(now);
                buf[part.start + now.len()..part.end].fill(0);
                short |= now.len() < part.len() && coded.is_none();
                if !now.is_empty() && coded.is_none() {
                    got = got.max(part.start + now.len());
                }
                left = later;
            }
        }
        for (component, over) in self.layout.components.iter().zip(&over) {
            let Some(over) = over else { continue };
            let (from, to) = (offset.max(component.range.start), end.min(component.range.end));
            let there = to.min(over.length()).max(from);
            buf[(there - offset) as usize..(to - offset) as usize].fill(0);
            short |= there < to;
            over.lay_over(from, &mut buf[(from - offset) as usize..(to - offset) as usize]);
        }
        if !short {
            return Ok(Done { got: buf.len(), answered });
        }
        let length = match &over[..] {
            // As it was when that was looked at: what has come since was not read.
            [Some(over)] => over.length(),
            _ => self.length()?,
        };
        let available = length.saturating_sub(offset);
        let got = usize::try_from(available).unwrap_or(usize::MAX).min(buf.len()).max(got);
        Ok(Done { got, answered })
    }

    /// What is read of columns. Of coded components what is sealed: behind that there may be what was being written and was never answered.
    fn there(&self, range: std::ops::Range<u64>, over: &[Option<Over>]) -> Vec<Run> {
        let mut all = Vec::new();
        for (component, over) in self.layout.components.iter().zip(over) {
            let from = range.start.max(component.range.start);
            let to = range.end.min(component.range.end).min(over.as_ref().map_or(u64::MAX, Over::length));
            if from >= to {
                continue;
            }
            let shift = (from - range.start) as usize;
            all.extend(runs(&self.layout, from..to, MAX_IO).into_iter().map(|mut run| {
                run.parts.iter_mut().for_each(|part| *part = part.start + shift..part.end + shift);
                run
            }));
        }
        all
    }

    /// What lies over the columns of coded components that a range touches.
    fn all_over(&self, range: std::ops::Range<u64>) -> Result<Vec<Option<Over>>, ReadError> {
        let components = self.layout.components.iter().zip(&self.coded).enumerate();
        components
            .map(|(number, (component, coded))| {
                let part = range.start.max(component.range.start)..range.end.min(component.range.end);
                match coded {
                    Some(coded) if !part.is_empty() => Ok(Some(self.coded_over(number, coded, part)?)),
                    _ => Ok(None),
                }
            })
            .collect()
    }

    fn ask(&self, run: &Run, column: u16) -> data::Result<Ticket> {
        let object = self.layout.components[run.component].object(column).0;
        let place =
            Place { component: run.component, column, object, offset: run.offset, length: run.length };
        self.submit(&place, Op::Read, Vec::new())
    }

    /// The answer to a run; where it is an error that another copy may not have, that of another copy.
    fn answered(&self, run: &Run, mut answer: data::Result<Reply>) -> Result<Reply, ReadError> {
        let copies = self.layout.components[run.component].replicas(run.column).len();
        for attempt in 1..=copies {
            let column = self.copy_for(run, attempt - 1);
            match answer {
                Ok(reply) => return Ok(reply),
                Err(e) if attempt < copies && helps(&e) => {
                    self.missed(run.component, column, &e);
                    answer = self.ask(run, self.copy_for(run, attempt)).and_then(Ticket::wait);
                }
                Err(source) => {
                    return Err(self.failed(run.component, column, source).into());
                }
            }
        }
        Err(StripeError::Columns { component: run.component, wanted: copies, found: 0 }.into())
    }

    /// The column that is asked for a run at this attempt: copies take turns over the file.
    fn copy_for(&self, run: &Run, attempt: usize) -> u16 {
        let component = &self.layout.components[run.component];
        let copies = component.replicas(run.column);
        let turn = run.offset / u64::from(component.unit_bytes) + attempt as u64;
        copies.start + (turn % copies.len().max(1) as u64) as u16
    }
}

/// What was read.
struct Done {
    /// Bytes.
    got: usize,
    /// A mover has answered for them.
    answered: bool,
}

/// Why a read did not come to an end.
enum ReadError {
    /// Too little of a row belongs together, while another client may be changing it.
    Changed(StripeError),
    Other(StripeError),
}

impl From<StripeError> for ReadError {
    fn from(error: StripeError) -> Self {
        Self::Other(error)
    }
}

impl From<ReadError> for StripeError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Changed(e) | ReadError::Other(e) => e,
        }
    }
}

fn changed(error: StripeError, writer: bool) -> ReadError {
    match error {
        StripeError::Lost { .. } if !writer => ReadError::Changed(error),
        other => ReadError::Other(other),
    }
}

/// Whether another copy may have what this one does not give.
pub(crate) fn helps(error: &DataError) -> bool {
    matches!(error.class(), ErrorClass::Retry | ErrorClass::Corrupt | ErrorClass::NotFound)
}

/// Of what several columns say why they do not give something, what counts for all of it: while one of them may still have it, nothing is lost.
pub(crate) fn graver(known: Option<DataError>, next: DataError) -> Option<DataError> {
    match known {
        Some(known) if !matches!(known.class(), ErrorClass::Corrupt | ErrorClass::NotFound) => Some(known),
        _ => Some(next),
    }
}
