//! An open striped file: its layout, its columns, its length.

use crate::coded::Coded;
use crate::error::Failed;
use crate::opened::{Authority, Column, Columns, Place, check_columns};
use crate::relocate::Changed;
use crate::turns::Turns;
use crate::{Result, StripeError};
use data::frame::{MAX_IO, Op};
use data::{DataError, Ticket};
use layout::{Component, Layout, Redundancy};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use types::TargetId;

/// A file whose bytes lie on several movers. All methods may be called from many threads at once; writers of ranges that do not overlap do
/// not disturb each other.
///
/// Of a file with coded components one `Striped` at a time may write: whoever lets somebody write raises the file's generation before, and
/// the fences of its objects to it.
pub struct Striped {
    pub(crate) layout: Layout,
    pub(crate) columns: RwLock<Arc<Columns>>,
    pub(crate) authority: Option<Arc<dyn Authority>>,
    /// Passed shared by whoever writes; a column is taken in with nobody writing.
    pub(crate) gate: RwLock<()>,
    /// Held by who asks the authority.
    pub(crate) deciding: Mutex<()>,
    /// Columns that are not read, of which the authority does not know yet. Changes together with `columns`.
    pub(crate) aside: Mutex<Vec<(usize, u16)>>,
    /// What is known of each component that is coded.
    pub(crate) coded: Vec<Option<Coded>>,
    /// What changes of the column that is being copied or rebuilt.
    pub(crate) changed: Mutex<Option<Changed>>,
    /// Nobody changes anything as long as this is used.
    pub(crate) quiet: bool,
    /// What is written to copies.
    pub(crate) turns: Turns,
}

impl Striped {
    /// Opens a file: for each component of its layout the columns, in order.
    ///
    /// # Errors
    /// `Layout`, `Unit`, `Columns`.
    pub fn open(layout: Layout, columns: Vec<Vec<Column>>) -> Result<Self> {
        let columns = columns.into_iter().map(|columns| columns.into_iter().map(Some).collect()).collect();
        Self::open_with(layout, columns, None)
    }

    /// Opens a file of which some columns may be out of date. With an authority, writes go on when a column fails: it is left out.
    ///
    /// # Errors
    /// `Layout`, `Unit`, `Columns`.
    pub fn open_with(
        layout: Layout,
        columns: Columns,
        authority: Option<Arc<dyn Authority>>,
    ) -> Result<Self> {
        layout.check()?;
        check_columns(&layout, &columns)?;
        let coded = layout.components.iter().map(Coded::of).collect::<Result<_>>()?;
        let columns = RwLock::new(Arc::new(columns));
        Ok(Self {
            layout,
            columns,
            authority,
            gate: RwLock::default(),
            deciding: Mutex::default(),
            aside: Mutex::default(),
            coded,
            changed: Mutex::default(),
            quiet: false,
            turns: Turns::default(),
        })
    }

    /// For reading as long as somebody sees to it that nobody changes anything: what was seen of logs stays as it was, and a mover that was waited for in
    /// vain is not asked again.
    pub fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Where its bytes lay when it was opened: columns may have moved to other targets since.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Length of the file (bytes): of each column the end of its object, wherever that lies in the file, the greatest of them. Of mirrors
    /// the longest copy counts: a write that has reached some of them only may be seen. Coded components keep it in their seals.
    ///
    /// # Errors
    /// `Mover`: all copies of some column are needed, or all but those that do not answer. None is waited for longer than by its channel.
    pub fn length(&self) -> Result<u64> {
        self.renewing(|| self.length_now())
    }

    fn length_now(&self) -> Result<u64> {
        let mut longest = 0;
        for (number, component) in self.layout.components.iter().enumerate() {
            let length = match &self.coded[number] {
                Some(coded) => self.coded_length(number, coded)?,
                None => self.plain_length(number, component)?,
            };
            longest = longest.max(length);
        }
        Ok(longest)
    }

    fn plain_length(&self, number: usize, component: &Component) -> Result<u64> {
        let mut longest = 0;
        let mut lengths = self.lengths(number);
        for column in 0..component.targets.len() as u16 {
            if component.replicas(column).start != column {
                continue;
            }
            let copies: Vec<Result<u64>> = lengths.drain(..component.replicas(column).len()).collect();
            let length = longest_copy(copies)?;
            let end = length.checked_sub(1).and_then(|last| component.file_offset(column, last));
            longest = longest.max(end.map_or(0, |last| last + 1));
        }
        Ok(longest)
    }

    /// Sets the length; what is new is zeros.
    ///
    /// # Errors
    /// `Mover`: some columns may have their new length; the same call may be repeated. `Beyond`: it is as it was.
    pub fn set_length(&self, length: u64) -> Result<()> {
        self.waiting(|| self.set_length_now(length))
    }

    fn set_length_now(&self, length: u64) -> Result<()> {
        let _passed = self.gate.read();
        self.reaches(length)?;
        // The last part first: who dies within leaves a file that is shorter, and nothing in it that was cut.
        for (number, component) in self.layout.components.iter().enumerate().rev() {
            if let Some(coded) = &self.coded[number] {
                self.set_coded_length(number, coded, length)?;
                continue;
            }
            let places: Vec<Place> = self
                .own_places(number)
                .map(|place| Place { offset: component.object_length(place.column, length), ..place })
                .collect();
            let _cut = self.change(&places, true);
            self.everywhere(Op::SetLength, &places, &|_| Vec::new())?;
        }
        Ok(())
    }

    /// Whether there is a place for what lies before `end`.
    pub(crate) fn reaches(&self, end: u64) -> Result<()> {
        let there = self.layout.end();
        if end <= there { Ok(()) } else { Err(StripeError::Beyond(there)) }
    }

    /// Where the row ends of which a byte at this offset is, if rows are written best as a whole there, and have at most so many bytes; None: of what lies there any part is.
    pub fn row_end(&self, offset: u64, most: u64) -> Option<u64> {
        let number = self.layout.components.iter().position(|one| one.range.contains(&offset))?;
        let shape = &self.coded[number].as_ref()?.shape;
        let end = || shape.row_start(shape.row(offset) + 1).min(shape.range.end);
        (shape.row_bytes() <= most).then(end)
    }

    /// Makes everything durable that was written by anybody before, on every column that counts.
    ///
    /// # Errors
    /// `Mover`; of what was gathered as [`Striped::flush`].
    pub fn sync(&self) -> Result<()> {
        self.sync_below(u64::MAX)
    }

    /// The same where nothing was written at `end` of the file or behind it, nor cut off there, that is not durable: columns that lie behind it are
    /// not asked, unless they are coded.
    ///
    /// # Errors
    /// As [`Striped::sync`].
    pub fn sync_below(&self, end: u64) -> Result<()> {
        self.flush()?;
        let concerned = |number: usize, place: &Place| {
            self.coded[number].is_some()
                || self.layout.components[number].object_length(place.column, end) > 0
        };
        let places: Vec<Place> = (0..self.layout.components.len())
            .flat_map(|number| self.places(number).filter(move |place| concerned(number, place)))
            .collect();
        self.waiting(|| self.everywhere(Op::Sync, &places, &|_| Vec::new()))
    }

    /// All objects of a component.
    pub(crate) fn places(&self, component: usize) -> impl Iterator<Item = Place> + '_ {
        self.layout.components[component].places().map(move |(object, column)| Place {
            component,
            column,
            object: object.0,
            offset: 0,
            length: 0,
        })
    }

    /// The objects that hold bytes of the file.
    pub(crate) fn own_places(&self, component: usize) -> impl Iterator<Item = Place> + '_ {
        self.places(component).take(self.layout.components[component].targets.len())
    }

    /// Of each column the length of its object, or why it is not known.
    fn lengths(&self, component: usize) -> Vec<Result<u64>> {
        let asked: Vec<(Place, data::Result<Ticket>)> = self
            .own_places(component)
            .map(|place| (place, self.submit(&place, Op::Stat, Vec::new())))
            .collect();
        asked
            .into_iter()
            .map(|(place, ticket)| {
                let answer = ticket.and_then(Ticket::wait).map(|reply| reply.object_length);
                answer.map_err(|source| self.failed(component, place.column, source))
            })
            .collect()
    }

    pub(crate) fn target(&self, component: usize, column: u16) -> TargetId {
        let columns = self.columns.read();
        let way = columns[component].get(usize::from(column)).and_then(Option::as_ref);
        let known = || self.layout.components[component].target(column);
        way.map(|way| way.target).or_else(known).unwrap_or(TargetId(0))
    }

    pub(crate) fn failed(&self, component: usize, column: u16, source: DataError) -> StripeError {
        StripeError::Mover { target: self.target(component, column), source }
    }

    pub(crate) fn error(&self, failed: &Failed) -> StripeError {
        self.failed(failed.component, failed.column, failed.source.clone())
    }
}

impl std::fmt::Debug for Striped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Striped").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// What is kept of a coded component, if it is one that can be.
impl Coded {
    fn of(component: &Component) -> Result<Option<Self>> {
        match component.redundancy {
            Redundancy::Coded { .. } if component.unit_bytes as usize > MAX_IO => {
                Err(StripeError::Unit(component.unit_bytes))
            }
            Redundancy::Coded { data, parity } => Ok(Some(Self::new(component, data.into(), parity.into())?)),
            Redundancy::None | Redundancy::Mirror { .. } => Ok(None),
        }
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
