//! Moving a column to another target, while the file is used: steps as of a rebuild, and a last one with nobody writing.

use crate::opened::{Column, Columns};
use crate::repair::{Mended, Progress};
use crate::{Result, Striped};
use layout::Redundancy;
use std::sync::atomic::{AtomicU64, Ordering};
use types::TargetId;

/// A column that is to lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    /// Number of the component, from 0.
    pub component: usize,
    /// The column.
    pub column: u16,
    /// The way to its objects on the other target, which were made for it.
    pub to: &'a Column,
    /// That target.
    pub target: TargetId,
}

impl<'a> Moved<'a> {
    fn mended(self) -> Mended<'a> {
        Mended { component: self.component, column: self.column, to: self.to }
    }
}

/// Marks that a change goes on, and that it is over when dropped.
pub(crate) struct Change<'a>(&'a AtomicU64);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Striped {
    /// Copies a part of a column to its new target, from `at` on. The column stays where it is.
    ///
    /// # Errors
    /// `Mover`, `Lost`.
    pub fn copy_column(&self, moved: Moved<'_>, at: u64) -> Result<Progress> {
        if at == 0 {
            let place = (moved.component, moved.column);
            *self.moving.lock() = Some((place, self.changes.load(Ordering::Acquire)));
        }
        self.mend_from(moved.mended(), at, true)
    }

    /// The last step: what has changed since [`Striped::copy_column`] began, all of it durable; then `admit` tells the metadata service, and
    /// gives the columns of the new generation, with the moved one at its new place.
    ///
    /// # Errors
    /// As [`Striped::finish_mending`]: the column is where it was.
    pub fn finish_moving(
        &self,
        moved: Moved<'_>,
        admit: impl FnOnce() -> Result<Columns, String>,
    ) -> Result<()> {
        self.finish_from(moved.mended(), true, || {
            let columns = admit()?;
            self.lies_on(moved.component, moved.column, moved.target);
            Ok(columns)
        })
    }

    /// A column lies on this target now.
    pub fn lies_on(&self, component: usize, column: u16, target: TargetId) {
        self.targets.write()[component][usize::from(column)] = target;
    }

    /// Notes that something changes until what this gives is dropped.
    pub(crate) fn change(&self) -> Change<'_> {
        self.changes.fetch_add(1, Ordering::AcqRel);
        Change(&self.changes)
    }

    /// Whether nothing has been written, by this client and where nobody else writes, since a column was copied. Nobody writes now.
    pub(crate) fn is_unchanged_since_copied(&self, component: usize, column: u16) -> bool {
        let alone = matches!(self.layout.components[component].redundancy, Redundancy::None);
        let now = self.changes.load(Ordering::Acquire);
        alone && *self.moving.lock() == Some(((component, column), now))
    }
}
