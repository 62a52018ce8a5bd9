//! Moving a column to another target, while the file is used: steps as of a rebuild, and a last one with nobody writing.

use crate::opened::{Columns, Place};
use crate::repair::{Mended, Progress, STEP};
use crate::{Result, Striped};
use data::frame::{MAX_IO, Op};
use std::collections::BTreeSet;
use std::ops::Range;

/// What has changed of a column that is not coded since it began to be copied or rebuilt.
#[derive(Debug)]
pub(crate) struct Changed {
    component: usize,
    column: u16,
    /// Numbers of the steps in which it was written.
    steps: BTreeSet<u64>,
    /// It was cut here: from there on it may be anything (bytes).
    cut: u64,
}

/// Notes that places change, when it is over: whoever copies them meanwhile does so again.
pub(crate) struct Change<'a> {
    file: &'a Striped,
    places: &'a [Place],
    /// They end there.
    cut: bool,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut changed = self.file.changed.lock();
        let Some(changed) = changed.as_mut() else { return };
        let shape = &self.file.layout.components[changed.component];
        let copies = shape.replicas(changed.column);
        let concerns =
            |place: &&Place| place.component == changed.component && copies.contains(&place.column);
        for place in self.places.iter().filter(concerns) {
            match self.cut {
                true => changed.cut = changed.cut.min(place.offset),
                false => {
                    let end = place.offset + place.length as u64;
                    changed.steps.extend(place.offset / STEP..end.div_ceil(STEP));
                }
            }
        }
    }
}

impl Striped {
    /// Copies a part of a column to another target, from `at` on; `moved.to` is the way there. The column stays where it is.
    ///
    /// # Errors
    /// `Mover`, `Lost`.
    pub fn copy_column(&self, moved: Mended<'_>, at: u64) -> Result<Progress> {
        self.mend_from(moved, at, true)
    }

    /// How much of a column has changed since it began to be copied (bytes, about), and has to be copied again.
    pub fn behind(&self) -> u64 {
        self.changed.lock().as_ref().map_or(0, |changed| changed.steps.len() as u64 * STEP)
    }

    /// Copies that once more; how much it was (bytes).
    ///
    /// # Errors
    /// `Mover`: the copy is of no use then.
    pub fn catch_up(&self, moved: Mended<'_>) -> Result<u64> {
        let steps = self.changed.lock().as_mut().map(|changed| std::mem::take(&mut changed.steps));
        let length = self.length_of_column(moved.component, moved.column, true)?;
        let mut bytes = 0;
        for range in steps.into_iter().flatten().map(|step| part(step, length)) {
            bytes += range.end - range.start;
            self.mend_range(&moved, range, true)?;
        }
        Ok(bytes)
    }

    /// The last step: what has changed since [`Striped::copy_column`] began, all of it durable; then `admit` tells the metadata service, and
    /// gives the columns of the new generation, with the moved one at its new place.
    ///
    /// Nobody but this client writes to a file that is not coded from before the first step on: the metadata service has fenced the others, and
    /// lets them write again under the generation that comes out of `admit`.
    ///
    /// # Errors
    /// As [`Striped::finish_mending`]: the column is where it was.
    pub fn finish_moving(
        &self,
        moved: Mended<'_>,
        admit: impl FnOnce() -> Result<Columns, String>,
    ) -> Result<()> {
        self.finish_from(moved, true, admit)
    }

    /// Moves a column of a coded file to another target as it is, with its journal, while nobody writes: where nothing can be folded first,
    /// because there is no room where it lies. `admit` as in [`Striped::finish_moving`].
    ///
    /// # Errors
    /// As [`Striped::finish_mending`]: the column is where it was.
    pub fn carry(&self, moved: Mended<'_>, admit: impl FnOnce() -> Result<Columns, String>) -> Result<()> {
        let _nobody = self.gate.write();
        let _not_even_who_takes_over = self.coded[moved.component].as_ref().map(|coded| coded.gate.write());
        for place in self.places(moved.component).filter(|place| place.column == moved.column) {
            self.carry_object(&moved, &place)?;
        }
        self.admit(&moved, admit)
    }

    /// Copies an object, without its holes, durably.
    fn carry_object(&self, moved: &Mended<'_>, place: &Place) -> Result<()> {
        let ask = |op, offset, length| {
            let answer = self.submit(&Place { offset, length, ..*place }, op, Vec::new());
            let answer = answer.and_then(data::Ticket::wait);
            answer.map_err(|source| self.failed(place.component, place.column, source))
        };
        let length = ask(Op::Stat, 0, 0)?.object_length;
        // There may be something of an attempt before.
        self.tell(moved, place.object, Op::SetLength, 0, 0, Vec::new())?;
        let mut at = 0;
        while at < length {
            let bytes = ask(Op::Read, at, MAX_IO.min((length - at) as usize))?.bytes;
            let next = at + bytes.len().max(1) as u64;
            if bytes.iter().any(|byte| *byte != 0) {
                self.tell(moved, place.object, Op::Write, at, bytes.len() as u64, bytes)?;
            }
            at = next;
        }
        self.tell(moved, place.object, Op::SetLength, length, 0, Vec::new())?;
        self.tell(moved, place.object, Op::Sync, 0, 0, Vec::new()).map(drop)
    }

    /// From now on notes what changes of a column.
    pub(crate) fn watch(&self, component: usize, column: u16) {
        *self.changed.lock() = Some(Changed { component, column, steps: BTreeSet::new(), cut: u64::MAX });
    }

    /// Notes, when what this gives is dropped, that places are written, or (`cut`) end.
    pub(crate) fn change<'a>(&'a self, places: &'a [Place], cut: bool) -> Change<'a> {
        Change { file: self, places, cut }
    }

    /// What has changed of a column of a length since it was copied, with nobody writing; all of it if nobody has noted that.
    pub(crate) fn changed_since(&self, component: usize, column: u16, length: u64) -> Vec<Range<u64>> {
        let changed = self.changed.lock().take();
        let Some(changed) = changed.filter(|one| (one.component, one.column) == (component, column)) else {
            return std::iter::once(0..length).collect();
        };
        let mut steps = changed.steps;
        steps.extend(changed.cut.min(length) / STEP..length.div_ceil(STEP));
        steps.into_iter().map(|step| part(step, length)).collect()
    }
}

/// A step of a column of a length.
fn part(step: u64, length: u64) -> Range<u64> {
    length.min(step * STEP)..length.min((step + 1) * STEP)
}
