//! Which columns count, and what happens when one of them does not answer.

use crate::error::Failed;
use crate::{Result, StripeError, Striped};
use data::frame::Op;
use data::{Ask, Channel, DataError, Refusal, Slot, Ticket};
use layout::Redundancy;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{ErrorClass, TargetId};

/// The way to the objects of one column of a component: to the column's own, and of coded components to the journal on the same target.
#[derive(Clone, Debug)]
pub struct Column {
    /// Connection to the mover of the target.
    pub channel: Arc<Channel>,
    /// Capability for the objects of the component on this target ([`layout::Component::places`]).
    pub slot: Slot,
    /// The target.
    pub target: TargetId,
}

/// For each component its columns in order; none where what lies on the target is out of date: nobody may read it before it is rebuilt.
pub type Columns = Vec<Vec<Option<Column>>>;

/// Who decides which columns count: the metadata service.
///
/// That a column is out of date is kept with the file's layout and raises its generation. Before a new generation is told to anybody, the
/// fences of all objects of the columns that still count are raised to it; so whoever opened the file before is refused there, asks
/// again, and learns which column is left out.
pub trait Authority: Send + Sync {
    /// Column `column` of component `component` does not take what is written. Gives the columns of the new generation, without it.
    ///
    /// When this returns, it is durable that the column is out of date, the others are fenced, and nobody who opened the file before can
    /// read from it: its mover has been fenced too, or has lost its lease, or all capabilities for it have ended. The column stays left
    /// out until it is rebuilt, whoever answers meanwhile.
    ///
    /// # Errors
    /// Why the column still counts, for the user; the write then fails.
    fn leave_out(&self, component: usize, column: u16, why: &DataError) -> Result<Columns, String>;

    /// The columns as they are now: a capability has ended or was fenced.
    ///
    /// # Errors
    /// Why this client may not go on, for the user.
    fn renew(&self) -> Result<Columns, String>;

    /// How long reads, writes and syncs go on asking movers that nobody can stand in for, all in all; as long as their channels wait for them
    /// ([`data::Terms::patience`]) without that.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

/// How often something is begun anew with new capabilities: the second time after this pause, and then after twice as much each time, six seconds in all. Who
/// gives them may be a node in whose place another one serves, and not know it yet.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(100);

/// How often something is begun anew because another write, in front of it in the log, has failed: each writer of a file that meets the same
/// failure does that to the others.
const INTERRUPTIONS: usize = 100;

/// A range of an object that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) component: usize,
    pub(crate) column: u16,
    pub(crate) object: u64,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

impl Striped {
    /// The columns that count now.
    pub(crate) fn columns(&self) -> Arc<Columns> {
        self.columns.read().clone()
    }

    pub(crate) fn is_present(&self, component: usize, column: u16) -> bool {
        self.columns.read()[component][usize::from(column)].is_some()
    }

    /// Whether a column does not count until it is rebuilt, whoever answers meanwhile; one that was only put aside is away.
    pub(crate) fn is_out_of_date(&self, component: usize, column: u16) -> bool {
        !self.is_present(component, column) && !self.aside.lock().contains(&(component, column))
    }

    /// Asks an object on the target of a column.
    pub(crate) fn submit(&self, place: &Place, op: Op, buffer: Vec<u8>) -> data::Result<Ticket> {
        let columns = self.columns();
        let Some(Column { channel, slot, .. }) = &columns[place.component][usize::from(place.column)] else {
            return Err(self.left_out(place.component, place.column));
        };
        let (object, offset, length) = (place.object, place.offset, place.length as u64);
        channel.submit(slot, Ask { op, flags: 0, object, offset, length }, buffer)
    }

    fn left_out(&self, component: usize, column: u16) -> DataError {
        let target = self.target(component, column);
        DataError::Unreachable {
            mover: format!("of target {target}"),
            reason: "what lies there is out of date until it is rebuilt".to_owned(),
        }
    }

    /// Asks for the same at all places, those on columns that are left out excepted, until each has answered or is left out. All are
    /// waited for, also when one fails: nothing of it happens after this has returned.
    pub(crate) fn everywhere(
        &self,
        op: Op,
        places: &[Place],
        bytes: &dyn Fn(usize) -> Vec<u8>,
    ) -> Result<()> {
        let mut left: Vec<usize> = (0..places.len()).collect();
        loop {
            let used = self.columns_to_change()?;
            for Place { component, column, .. } in left.iter().map(|n| places[*n]) {
                let counts = used[component][usize::from(column)].is_some();
                if !counts && !self.can_spare(&used, component, column) {
                    // Nobody else would have it either.
                    return Err(self.failed(component, column, self.left_out(component, column)));
                }
            }
            left.retain(|n| used[places[*n].component][usize::from(places[*n].column)].is_some());
            let asked: Vec<(usize, data::Result<Ticket>)> =
                left.iter().map(|n| (*n, self.submit(&places[*n], op, bytes(*n)))).collect();
            let mut failures = Vec::new();
            for (n, ticket) in asked {
                if let Err(source) = ticket.and_then(Ticket::wait) {
                    failures.push((n, source));
                }
            }
            if failures.is_empty() {
                return Ok(());
            }
            left = failures.iter().map(|(n, _)| *n).collect();
            for (n, source) in failures {
                let Place { component, column, .. } = places[n];
                self.decide(&used, &Failed { component, column, source })?;
            }
        }
    }

    /// What becomes of a column that failed when `used` were the columns: it is asked again with a new capability, or is left out.
    ///
    /// # Errors
    /// Neither is possible.
    pub(crate) fn decide(&self, used: &Arc<Columns>, failed: &Failed) -> Result<()> {
        let Some(authority) = &self.authority else { return Err(self.error(failed)) };
        let _one = self.deciding.lock();
        if !Arc::ptr_eq(used, &self.columns()) {
            // Somebody has decided meanwhile.
            return Ok(());
        }
        let decided = match failed.source.class() {
            _ if has_ended(&failed.source) => authority.renew(),
            ErrorClass::Retry | ErrorClass::Corrupt | ErrorClass::NotFound
                if self.can_spare(used, failed.component, failed.column) =>
            {
                authority.leave_out(failed.component, failed.column, &failed.source)
            }
            _ => return Err(self.error(failed)),
        };
        let columns = decided.map_err(|reason| StripeError::Authority {
            target: self.target(failed.component, failed.column),
            source: failed.source.clone(),
            reason,
        })?;
        self.count(columns)
    }

    /// From now on these columns count. The caller holds `deciding`.
    pub(crate) fn count(&self, columns: Columns) -> Result<()> {
        check_columns(&self.layout, &columns)?;
        let mut aside = self.aside.lock();
        *self.columns.write() = Arc::new(columns);
        // Nothing was changed without them: those that count again are up to date.
        aside.clear();
        Ok(())
    }

    /// The columns that count, for a change: the authority knows of all others.
    pub(crate) fn columns_to_change(&self) -> Result<Arc<Columns>> {
        loop {
            let aside = self.aside.lock();
            if aside.is_empty() {
                return Ok(self.columns());
            }
            drop(aside);
            self.record_aside()?;
        }
    }

    /// Tells the authority that what was put aside is out of date.
    fn record_aside(&self) -> Result<()> {
        let _one = self.deciding.lock();
        let aside = self.aside.lock().clone();
        let mut columns = None;
        for (component, column) in aside {
            let target = self.target(component, column);
            let mover = format!("of target {target}");
            let source = DataError::Unreachable { mover, reason: "it is down".to_owned() };
            let told = match &self.authority {
                Some(authority) => authority.leave_out(component, column, &source),
                None => Err("nobody decides on its columns".to_owned()),
            };
            columns = Some(told.map_err(|reason| StripeError::Authority { target, source, reason })?);
        }
        columns.map_or(Ok(()), |columns| self.count(columns))
    }

    /// Does something that may be repeated; again with new capabilities where old ones have ended, and where somebody else's write failed in
    /// front of it.
    pub(crate) fn renewing<T>(&self, mut what: impl FnMut() -> Result<T>) -> Result<T> {
        let (mut renewed, mut interrupted) = (1, 0);
        loop {
            let used = self.columns();
            match (what(), &self.authority) {
                (Err(StripeError::Interrupted), _) if interrupted < INTERRUPTIONS => interrupted += 1,
                (Err(StripeError::Mover { target, source }), Some(authority))
                    if renewed < ATTEMPTS && has_ended(&source) =>
                {
                    if renewed > 1 {
                        std::thread::sleep(PAUSE * (1 << (renewed - 2)));
                    }
                    renewed += 1;
                    let _one = self.deciding.lock();
                    if Arc::ptr_eq(&used, &self.columns()) {
                        let refused = |reason| StripeError::Authority { target, source, reason };
                        self.count(authority.renew().map_err(refused)?)?;
                    }
                }
                (outcome, _) => return outcome,
            }
        }
    }

    /// The same; again, too, where movers are away that nobody can stand in for, as long as the authority has it: over the same channels, so that what was
    /// given up comes before what is asked later.
    pub(crate) fn waiting<T>(&self, mut what: impl FnMut() -> Result<T>) -> Result<T> {
        let (begun, mut returned) = (Instant::now(), 0);
        loop {
            match (self.renewing(&mut what), &self.authority) {
                (Err(e), Some(authority))
                    if e.is_away() && self.waits(authority.patience(), begun, &mut returned) =>
                {
                    std::thread::sleep(PAUSE);
                }
                (outcome, _) => return outcome,
            }
        }
    }

    /// Whether movers that were waited for in vain are asked again. `returned`: how often none was away any more, who may have come back just then.
    fn waits(&self, patience: Duration, begun: Instant, returned: &mut u32) -> bool {
        if begun.elapsed() >= patience {
            return false;
        }
        let away = self.ways().into_iter().filter_map(|(_, way)| way.channel.away_for()).min();
        *returned += u32::from(away.is_none());
        away.map_or(*returned < ATTEMPTS, |away| away < patience)
    }

    /// Component and column of those that count now, and the way to each.
    pub fn ways(&self) -> Vec<((usize, u16), Column)> {
        let columns = self.columns();
        let places = columns.iter().enumerate().flat_map(|(component, columns)| {
            let numbered = (0..).zip(columns);
            numbered.filter_map(move |(column, way)| Some(((component, column), way.clone()?)))
        });
        places.collect()
    }

    /// Whether every column counts.
    pub fn is_whole(&self) -> bool {
        self.columns().iter().flatten().all(Option::is_some)
    }

    /// Goes on without a column, for reading: before anything is changed the authority is told that the column is out of date. False if too
    /// little would be left.
    pub fn put_aside(&self, component: usize, column: u16) -> bool {
        let _one = self.deciding.lock();
        let used = self.columns();
        let spare = self.can_spare(&used, component, column);
        if spare {
            let mut columns = Columns::clone(&used);
            columns[component][usize::from(column)] = None;
            let mut aside = self.aside.lock();
            *self.columns.write() = Arc::new(columns);
            aside.push((component, column));
        }
        spare
    }

    /// A column did not give what was read, and others did, or may: who reads while nobody writes goes on without one whose mover is away.
    pub(crate) fn missed(&self, component: usize, column: u16, why: &DataError) {
        if self.quiet && why.class() == ErrorClass::Retry && self.is_present(component, column) {
            self.put_aside(component, column);
        }
    }

    /// Leaves a column out, as a write that fails there does.
    ///
    /// # Errors
    /// `Mover`, `Authority`: it still counts.
    pub fn leave_out(&self, component: usize, column: u16, why: &str) -> Result<()> {
        let mover = format!("of target {}", self.target(component, column));
        let source = DataError::Unreachable { mover, reason: why.to_owned() };
        let failed = Failed { component, column, source };
        loop {
            let used = self.columns_to_change()?;
            if used[component][usize::from(column)].is_none() {
                return Ok(());
            }
            // Somebody else may decide something else in the same moment.
            self.decide(&used, &failed)?;
        }
    }

    /// Whether all bytes are still there without a column.
    fn can_spare(&self, columns: &Columns, component: usize, column: u16) -> bool {
        let there = |range: std::ops::Range<u16>| {
            range.filter(|n| *n != column && columns[component][usize::from(*n)].is_some()).count()
        };
        let shape = &self.layout.components[component];
        match shape.redundancy {
            Redundancy::None => false,
            Redundancy::Mirror { .. } => there(shape.replicas(column)) > 0,
            Redundancy::Coded { data, .. } => there(0..shape.targets.len() as u16) >= usize::from(data),
        }
    }
}

/// Whether another capability may do what this one does not.
pub(crate) fn has_ended(error: &DataError) -> bool {
    [Refusal::Fenced, Refusal::Expired].iter().any(|refusal| error.is(refusal))
}

/// Whether these are exactly as many columns, of as many components, as the layout has.
pub(crate) fn check_columns(layout: &layout::Layout, columns: &Columns) -> Result<()> {
    for (number, component) in layout.components.iter().enumerate() {
        let (wanted, found) = (component.targets.len(), columns.get(number).map_or(0, Vec::len));
        if wanted != found {
            return Err(StripeError::Columns { component: number, wanted, found });
        }
    }
    let number = layout.components.len();
    match columns.get(number) {
        None => Ok(()),
        Some(more) => Err(StripeError::Columns { component: number, wanted: 0, found: more.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{Component, Layout};
    use types::ObjectId;

    #[test]
    fn what_a_write_in_front_of_it_has_interrupted_is_done_again_and_not_for_ever() {
        let component = Component {
            range: 0..u64::MAX,
            unit_bytes: 4096,
            redundancy: Redundancy::None,
            base: ObjectId(1),
            targets: vec![TargetId(1)],
        };
        let layout = Layout { generation: 1, components: vec![component] };
        let file = Striped::open_with(layout, vec![vec![None]], None).unwrap();
        let mut asked = 0;
        let mut until = |good: usize| {
            asked = 0;
            let done = file.renewing(|| {
                asked += 1;
                if asked > good { Ok(()) } else { Err(StripeError::Interrupted) }
            });
            (done.is_ok(), asked)
        };
        assert_eq!(until(20), (true, 21));
        assert_eq!(until(usize::MAX), (false, INTERRUPTIONS + 1));
    }
}
