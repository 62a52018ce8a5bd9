//! Making a column what the others say: one that was out of date, or blocks that scrubbing has found bad.
//!
//! A rebuild goes over the column in steps, while the file is used; who calls them sets the pace and may stop between any two. What is
//! right already is not written, so a rebuild that begins anew soon is where it was. What is written meanwhile is missing in what was done
//! before; the last step, with nobody writing, makes that good.

use crate::coded::Coded;
use crate::coded::shape::CELL;
use crate::opened::{Column, Columns, Place};
use crate::read::graver;
use crate::{Result, StripeError, Striped};
use data::frame::Op;
use data::{Ask, DataError, Reply};
use std::ops::Range;
use types::ErrorClass;

/// Bytes of a column that one step looks at, at least a unit.
pub const STEP: u64 = 4 << 20;

/// A column that is to be made right, or to lie elsewhere, and the way to its objects there, whether or not it is among those that count.
#[derive(Clone, Copy, Debug)]
pub struct Mended<'a> {
    /// Number of the component, from 0.
    pub component: usize,
    /// The column.
    pub column: u16,
    /// Where to write. Of a column that was left out: under the newest generation, with its objects made anew or as they were found.
    pub to: &'a Column,
}

/// What a step has done.
#[derive(Debug, Default)]
pub struct Progress {
    /// How many bytes of the column it has looked at.
    pub bytes: u64,
    /// How many of them it has written.
    pub written: u64,
    /// How many of them nothing says any more, or too little of what belongs together, and why that is so of the first.
    pub lost: u64,
    /// Why.
    pub why: Option<StripeError>,
    /// Where the next step begins in the column's object; none at the end.
    pub next: Option<u64>,
}

impl Striped {
    /// Makes a part of a column what the others say, from `at` on. What they do not say is passed over, and counted: the column cannot count before
    /// that was written again.
    ///
    /// # Errors
    /// `Mover`.
    pub fn mend(&self, mended: Mended<'_>, at: u64) -> Result<Progress> {
        self.mend_from(mended, at, false)
    }

    /// One step of [`Striped::mend`]; `own`: what the column has itself may be taken, because it is to lie elsewhere.
    pub(crate) fn mend_from(&self, mended: Mended<'_>, at: u64, own: bool) -> Result<Progress> {
        let Mended { component, column, .. } = mended;
        match &self.coded[component] {
            Some(coded) => self.note_changes(component, coded, at)?,
            None if at == 0 => self.watch(component, column),
            None => {}
        }
        let length = self.length_of_column(component, column, own)?;
        let end =
            length.min(at.saturating_add(STEP.max(self.layout.components[component].unit_bytes.into())));
        let next = (end < length).then_some(end);
        let mut step = Progress { bytes: end.saturating_sub(at), next, ..Progress::default() };
        match self.mend_range(&mended, at..end, own) {
            Err(e) if !own && self.is_lost(&e) => self.mend_parts(&mended, at..end, &mut step)?,
            written => step.written = written?,
        }
        Ok(step)
    }

    /// The same in parts, where something of it is lost.
    fn mend_parts(&self, mended: &Mended<'_>, range: Range<u64>, step: &mut Progress) -> Result<()> {
        let part = match &self.coded[mended.component] {
            Some(coded) => coded.whole_units(),
            None => data::sum::BLOCK as u64,
        };
        for at in (range.start / part * part..range.end).step_by(part as usize) {
            let part = at.max(range.start)..range.end.min(at + part);
            let length = part.end - part.start;
            match self.mend_range(mended, part, false) {
                Err(e) if self.is_lost(&e) => {
                    step.lost += length;
                    step.why.get_or_insert(e);
                }
                written => step.written += written?,
            }
        }
        Ok(())
    }

    /// Whether something is gone, and comes back only if it is written again.
    fn is_lost(&self, error: &StripeError) -> bool {
        // What a target that is down has may be what is missing.
        self.aside.lock().is_empty() && matches!(error.class(), ErrorClass::Corrupt | ErrorClass::NotFound)
    }

    /// Makes blocks right that scrubbing has found bad, in a column that counts.
    ///
    /// # Errors
    /// `Mover`, `Lost`: it has to come from tape.
    pub fn repair(&self, component: usize, column: u16, range: Range<u64>) -> Result<u64> {
        // What is written meanwhile would be overwritten by what another copy had before.
        let _nobody = self.gate.write();
        let columns = self.columns();
        let Some(to) = &columns[component][usize::from(column)] else { return Ok(0) };
        if let Some(coded) = &self.coded[component] {
            self.become_writer(component, coded)?;
        }
        let block = data::sum::BLOCK as u64;
        let length = self.length_of_column(component, column, false)?;
        let end = length.min(range.end.div_ceil(block) * block);
        self.mend_range(&Mended { component, column, to }, range.start / block * block..end, false)
    }

    /// The last step of a rebuild: what has changed since [`Striped::mend`] began, the length, and the journal, all durable; then `admit`
    /// tells the metadata service, which from then on counts the column and gives everybody's columns anew.
    ///
    /// Of a mirror no other client may write from before the first step on: the metadata service has fenced them, and lets them write again under
    /// the generation that comes out of `admit`.
    ///
    /// # Errors
    /// `Mover`, `Lost`, `Authority`: the column does not count yet; it may be tried again.
    pub fn finish_mending(
        &self,
        mended: Mended<'_>,
        admit: impl FnOnce() -> Result<Columns, String>,
    ) -> Result<()> {
        self.finish_from(mended, false, admit)
    }

    pub(crate) fn finish_from(
        &self,
        mended: Mended<'_>,
        own: bool,
        admit: impl FnOnce() -> Result<Columns, String>,
    ) -> Result<()> {
        let Mended { component, column, .. } = mended;
        let _nobody = self.gate.write();
        let length = match &self.coded[component] {
            Some(coded) => {
                let length = self.finish_coded(&mended, coded)?;
                self.copy_journal(&mended, coded)?;
                length
            }
            None => {
                let length = self.length_of_column(component, column, own)?;
                for range in self.changed_since(component, column, length) {
                    self.mend_range(&mended, range, own)?;
                }
                length
            }
        };
        let object = self.layout.components[component].object(column).0;
        self.tell(&mended, object, Op::SetLength, length, 0, Vec::new())?;
        for place in self.places(component).filter(|place| place.column == column) {
            self.tell(&mended, place.object, Op::Sync, 0, 0, Vec::new())?;
        }
        self.admit(&mended, admit)
    }

    /// What the column is to have is durable where it is to lie: the metadata service is told, and says which columns count.
    pub(crate) fn admit(
        &self,
        mended: &Mended<'_>,
        admit: impl FnOnce() -> Result<Columns, String>,
    ) -> Result<()> {
        let target = self.target(mended.component, mended.column);
        let refused = |reason: String| StripeError::Authority {
            target,
            source: DataError::Unreachable {
                mover: format!("of target {target}"),
                reason: "it was rebuilt and is not counted yet".to_owned(),
            },
            reason,
        };
        // Nobody decides on columns between what goes on record and what counts here.
        let _one = self.deciding.lock();
        self.count(admit().map_err(refused)?)
    }

    /// Asks the target that is mended.
    pub(crate) fn tell(
        &self,
        mended: &Mended<'_>,
        object: u64,
        op: Op,
        offset: u64,
        length: u64,
        bytes: Vec<u8>,
    ) -> Result<Reply> {
        let Column { channel, slot, .. } = mended.to;
        let answer = channel.call(slot, Ask { op, flags: 0, object, offset, length }, bytes);
        answer.map_err(|source| self.failed(mended.component, mended.column, source))
    }

    /// Writes what the column's object is to have at an offset, if it has something else there; says how much it wrote.
    pub(crate) fn make_equal(
        &self,
        mended: &Mended<'_>,
        object: u64,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<u64> {
        let length = bytes.len() as u64;
        match self.tell(mended, object, Op::Read, offset, length, Vec::new()) {
            Ok(reply) if reply.bytes == bytes => return Ok(0),
            Err(e) if e.class() != ErrorClass::Corrupt => return Err(e),
            _ => {}
        }
        self.tell(mended, object, Op::Write, offset, length, bytes)?;
        Ok(length)
    }

    pub(crate) fn mend_range(&self, mended: &Mended<'_>, range: Range<u64>, own: bool) -> Result<u64> {
        match &self.coded[mended.component] {
            Some(coded) => self.mend_coded(mended, coded, range),
            None => self.mend_copy(mended, range, own),
        }
    }

    /// Takes a range from another copy, or its own.
    fn mend_copy(&self, mended: &Mended<'_>, range: Range<u64>, own: bool) -> Result<u64> {
        let Mended { component, column, .. } = *mended;
        let shape = &self.layout.components[component];
        let (mut at, mut written) = (range.start, 0);
        while at < range.end {
            // Whole blocks, so that a bad one is replaced and not changed.
            let next = range.end.min((at / STEP + 1) * STEP);
            let length = (next - at) as usize;
            let mut bytes = self.read_copy(component, column, at..next, own)?;
            bytes.resize(length, 0);
            written += self.make_equal(mended, shape.object(column).0, at, bytes)?;
            at = next;
        }
        Ok(written)
    }

    /// A range of an object of a mirror, from the first copy that gives it.
    fn read_copy(&self, component: usize, column: u16, range: Range<u64>, own: bool) -> Result<Vec<u8>> {
        let shape = &self.layout.components[component];
        let length = (range.end - range.start) as usize;
        let (mut why, mut from) = (None, column);
        for copy in self.sources(component, column, own) {
            let object = shape.object(copy).0;
            let place = Place { component, column: copy, object, offset: range.start, length };
            match self.submit(&place, Op::Read, Vec::new()).and_then(data::Ticket::wait) {
                Ok(reply) => return Ok(reply.bytes),
                Err(_) if self.is_out_of_date(component, copy) => {}
                Err(e) => {
                    let lost =
                        |e: &DataError| matches!(e.class(), ErrorClass::Corrupt | ErrorClass::NotFound);
                    from = if why.as_ref().is_none_or(lost) { copy } else { from };
                    why = graver(why, e);
                }
            }
        }
        match why {
            Some(source) => Err(self.failed(component, from, source)),
            None => Err(self.no_copy(component, column)),
        }
    }

    fn no_copy(&self, component: usize, column: u16) -> StripeError {
        let target = self.target(component, column);
        let reason = "there is no other copy of its bytes on disk; they have to come from tape".to_owned();
        self.failed(
            component,
            column,
            DataError::Unreachable { mover: format!("of target {target}"), reason },
        )
    }

    /// Columns that have the bytes of one.
    fn sources(&self, component: usize, column: u16, own: bool) -> impl Iterator<Item = u16> + '_ {
        let others = self.layout.components[component].replicas(column).filter(move |copy| *copy != column);
        own.then_some(column).into_iter().chain(others)
    }

    /// How long the object of a column is to be (bytes).
    pub(crate) fn length_of_column(&self, component: usize, column: u16, own: bool) -> Result<u64> {
        if let Some(coded) = &self.coded[component] {
            return self.rows_length(component, coded);
        }
        let shape = &self.layout.components[component];
        let mut longest = None;
        let mut failed = self.no_copy(component, column);
        for copy in self.sources(component, column, own) {
            let place = Place { component, column: copy, object: shape.object(copy).0, offset: 0, length: 0 };
            match self.submit(&place, Op::Stat, Vec::new()).and_then(data::Ticket::wait) {
                Ok(reply) => longest = longest.max(Some(reply.object_length)),
                Err(source) => failed = self.failed(component, copy, source),
            }
        }
        longest.ok_or(failed)
    }
}

impl Coded {
    /// Bytes of a column that are mended at once: whole units, and whole blocks of its mover.
    pub(crate) fn whole_units(&self) -> u64 {
        (self.shape.cells() * CELL) as u64
    }

    /// Whether this is a coded component's column of journals.
    pub(crate) fn has_journal(&self, column: u16) -> bool {
        usize::from(column) <= self.shape.m
    }
}
