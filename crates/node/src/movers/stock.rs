//! Objects of files that nobody has asked for yet: where files are made one after the other, those of the next ones are made on their targets
//! many at a time, so that they share what makes them durable. They are reserved like any that are about to be given to a file; what is left
//! when no more are made is removed, and after a crash it is swept like everything that belongs to no file.

use super::layouts::Candidates;
use crate::Node;
use crate::clock::Moment;
use crate::error::{fs_error, fs_failure};
use catalog::Far;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;
use types::api::FsResult;
use types::*;
use wire::Failure;

/// Files of one rule that are made so fast ...
const SOON: Duration = Duration::from_secs(10);
/// ... are many.
const MANY: u32 = 16;
/// Files whose objects are made together; more are made as soon as no more than these are left.
const BATCH: usize = 64;
/// What nobody has taken for so long is removed.
pub(super) const LIFE: Duration = Duration::from_secs(10);

/// What is ready, by rule.
#[derive(Default)]
pub(super) struct Stock(Mutex<HashMap<LayoutRule, Shelf>>);

struct Shelf {
    /// The first object of each file, and when it was made; the oldest first.
    ready: VecDeque<(ObjectId, Moment)>,
    /// Files that were asked for, and since when.
    asked: u32,
    since: Moment,
    /// Somebody makes more.
    filling: bool,
}

impl Stock {
    /// The objects of a file, if there are some; and whether the caller has to make more.
    fn take(&self, rule: &LayoutRule) -> (Option<ObjectId>, bool) {
        let mut shelves = self.0.lock();
        let shelf = shelves.entry(rule.clone()).or_insert_with(Shelf::new);
        if shelf.since.elapsed() > SOON {
            (shelf.asked, shelf.since) = (0, Moment::now());
        }
        shelf.asked += 1;
        let taken = shelf.ready.pop_front().map(|(object, _)| object);
        let fill = !shelf.filling && shelf.asked >= MANY && shelf.ready.len() <= BATCH;
        shelf.filling |= fill;
        (taken, fill)
    }

    /// More are ready.
    fn put(&self, rule: &LayoutRule, objects: Vec<ObjectId>) {
        let mut shelves = self.0.lock();
        let shelf = shelves.entry(rule.clone()).or_insert_with(Shelf::new);
        shelf.filling = false;
        shelf.ready.extend(objects.into_iter().map(|object| (object, Moment::now())));
    }

    /// Takes out what was made before `life`; whether something is left.
    fn take_old(&self, life: Duration) -> (Vec<ObjectId>, bool) {
        let mut shelves = self.0.lock();
        let mut old = Vec::new();
        for shelf in shelves.values_mut() {
            // They lie in the order in which they were made.
            let young = shelf.ready.iter().position(|(_, made)| made.elapsed() <= life);
            let count = young.unwrap_or(shelf.ready.len());
            old.extend(shelf.ready.drain(..count).map(|(object, _)| object));
        }
        shelves.retain(|_, shelf| shelf.filling || !shelf.ready.is_empty() || shelf.since.elapsed() <= SOON);
        (old, shelves.values().any(|shelf| !shelf.ready.is_empty()))
    }
}

impl Shelf {
    fn new() -> Self {
        Self { ready: VecDeque::new(), asked: 0, since: Moment::now(), filling: false }
    }
}

impl Node {
    /// Objects for a new file that are there already. Where many are asked for, more are made meanwhile.
    pub(super) fn take_from_stock(&self, rule: &LayoutRule) -> Option<(ObjectId, Far)> {
        loop {
            let (taken, fill) = self.movers.stock.take(rule);
            if fill {
                self.fill_stock(rule.clone());
            }
            let object = taken?;
            match self.still_good(object) {
                Ok(Some(far)) => return Some((object, far)),
                Ok(None) => {}
                Err(e) => tracing::warn!("objects that were made for new files are not used: {}", e.message),
            }
            self.movers.settle(object);
            self.movers.wake();
        }
    }

    /// Where the objects of a file are, if new files would get them there: targets go down, and operators empty them.
    fn still_good(&self, object: ObjectId) -> Result<Option<Far>, Failure> {
        let far = self.catalog.far(object).map_err(|e| fs_failure("a new file", fs_error("create", &e)))?;
        let Some(far) = far else { return Ok(None) };
        let mut views = self.target_views()?;
        // One may have left the pool.
        views.retain(|view| view.is_in(far.pool.as_deref()));
        let found = Candidates::of(views, &BTreeSet::new());
        let good: BTreeSet<TargetId> = found.roomy.iter().chain(&found.tight).map(|one| one.target).collect();
        Ok(Some(far).filter(|far| {
            let mut targets = far.layout.components.iter().flat_map(|component| &component.targets);
            far.stale.is_empty() && targets.all(|target| good.contains(target))
        }))
    }

    /// Makes more, on a thread that may wait for movers.
    fn fill_stock(&self, rule: LayoutRule) {
        let Some(node) = self.movers.node() else { return self.movers.stock.put(&rule, Vec::new()) };
        self.movers.run(Box::new(move || {
            let made = node.make_many(&rule).unwrap_or_else(|e| {
                tracing::warn!("objects for the next files are not made ahead: {e}");
                Vec::new()
            });
            node.movers.stock.put(&rule, made);
            // Whoever removes what is left has to know that there is something.
            node.movers.wake();
        }));
    }

    fn make_many(&self, rule: &LayoutRule) -> FsResult<Vec<ObjectId>> {
        let views = self.target_views().map_err(|_| FsError::Io)?;
        let candidates = Candidates::of(views, &BTreeSet::new());
        let mut files = Vec::new();
        for _ in 0..BATCH {
            match self.reserve_on(rule, &candidates) {
                Ok((object, far)) if far.stale.is_empty() => files.push((object, far)),
                // Targets are away: each such file is made when it is asked for.
                Ok((object, _)) => {
                    self.movers.settle(object);
                    break;
                }
                Err(_) => break,
            }
        }
        // On record before there is anything to remove.
        let synced = self.catalog.sync().map_err(|e| fs_error("create", &e));
        let fars: Vec<&Far> = files.iter().map(|(_, far)| far).collect();
        let made = synced.and_then(|()| {
            self.make_objects(&fars).map_err(|(_, e)| {
                tracing::warn!("{}", e.message);
                FsError::Io
            })
        });
        if made.is_err() {
            files.iter().for_each(|(object, _)| self.movers.settle(*object));
            self.movers.wake();
        }
        made.map(|()| files.into_iter().map(|(object, _)| object).collect())
    }

    /// Gives up what nobody has taken for `life`; whether something is left.
    pub(super) fn shrink_stock(&self, life: Duration) -> bool {
        let (old, left) = self.movers.stock.take_old(life);
        old.into_iter().for_each(|object| self.movers.settle(object));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_made_once_many_were_asked_for_and_by_one_at_a_time() {
        let stock = Stock::default();
        let rule =
            LayoutRule { unit_bytes: 4096, stripes: 2, copies: 1, parity: 0, then: vec![], pool: None };
        let asked: Vec<_> = (0..MANY).map(|_| stock.take(&rule)).collect();
        assert!(asked[..asked.len() - 1].iter().all(|asked| *asked == (None, false)));
        assert_eq!(asked.last(), Some(&(None, true)));
        assert_eq!(stock.take(&rule), (None, false), "somebody makes them");
        stock.put(&rule, (0..2 * BATCH as u64).map(ObjectId).collect());
        assert_eq!(stock.take(&rule), (Some(ObjectId(0)), false), "enough are left");
        assert_eq!(stock.take(&LayoutRule { stripes: 3, ..rule.clone() }).0, None);
        let fills = (1..BATCH as u64 + 1).map(|n| {
            let (taken, fill) = stock.take(&rule);
            assert_eq!(taken, Some(ObjectId(n)));
            fill
        });
        assert_eq!(fills.filter(|fill| *fill).count(), 1);
        let (old, left) = stock.take_old(LIFE);
        assert_eq!((old.len(), left), (0, true));
        let (old, left) = stock.take_old(Duration::ZERO);
        assert_eq!((old.len(), left), (BATCH - 1, false));
    }
}
