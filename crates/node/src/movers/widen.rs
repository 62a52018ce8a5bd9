//! Files that get more targets as they grow: when somebody writes behind what a file has, or sets its length there, the objects of the next part
//! are made, and the file has them, durably, before that is answered.
//!
//! Whoever goes past the node is refused by the objects that there were, and asks again where the file lies: else a host that knows less of it
//! would take what it knows for all.

use super::claims::Claim;
use super::layouts::{AGAIN, ATTEMPTS, Candidates};
use super::ways::PATIENCE;
use crate::Node;
use crate::clock::Moment;
use crate::error::fs_error;
use crate::files::FarFile;
use catalog::{CatalogError, Far};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use types::api::FsResult;
use types::*;

/// Waits so long first for writes to end, while a claim is wanted by others too, then longer and longer up to ...
const LOOK: Duration = Duration::from_millis(50);
/// ... this.
const LONGEST: Duration = Duration::from_secs(5);
/// How often other objects are made because the file has changed meanwhile.
const REFUSALS: usize = 6;

impl Node {
    /// Has an open file reach up to `end` (bytes), if it lies in this object still. The caller holds nothing of the file.
    pub(crate) fn widen_far(&self, file: &FarFile, object: ObjectId, end: u64) -> FsResult<()> {
        let (begun, mut patience, mut said) = (Instant::now(), LOOK, false);
        while !self.stops_within(Duration::ZERO) {
            // What is in memory only goes to the columns that it was written for: other ones take their place.
            file.flush()?;
            let claim = self.movers.claims.take(object);
            loop {
                // While this waits no write begins, so that it ends however many there are.
                if let Some(_nobody_writes) = file.writes_end(patience) {
                    if file.flush_claimed().is_err() {
                        // A target may be full, and may be left by who has no claim.
                        break;
                    }
                    claim.widens();
                    let widened = self.widen_claimed(file, object, end);
                    claim.over();
                    // What is left of an attempt, or was passed over meanwhile, is removed.
                    self.movers.wake();
                    return widened;
                }
                patience = (patience * 2).min(LONGEST);
                if begun.elapsed() > LONGEST && !std::mem::replace(&mut said, true) {
                    tracing::warn!("inode {} gets more targets when writes to it have ended", file.ino());
                }
                // A writer may wait for it to leave a full target.
                if claim.is_wanted() {
                    break;
                }
            }
            drop::<Claim<'_>>(claim);
            std::thread::sleep(LOOK);
        }
        tracing::error!("inode {} gets no more targets: the node stops", file.ino());
        Err(FsError::Io)
    }

    fn widen_claimed(&self, file: &FarFile, object: ObjectId, end: u64) -> FsResult<()> {
        if !file.lies_in(object) || file.reaches(end) {
            return Ok(());
        }
        self.fence_far(object).map_err(|e| {
            tracing::error!("inode {} gets no more targets: {}", file.ino(), e.message);
            FsError::Io
        })?;
        self.take_over(file, object)?;
        while !file.reaches(end) {
            self.widen_once(file, object)?;
        }
        Ok(())
    }

    /// Has the file what it has on record already.
    fn take_over(&self, file: &FarFile, object: ObjectId) -> FsResult<()> {
        let nobody_uses_it = file.uses_end();
        let has = self.catalog.far(object).map_err(|e| fs_error("write", &e))?.ok_or(FsError::Stale)?;
        if has.layout.components.len() > nobody_uses_it.striped().layout().components.len() {
            let place = self.place_of(file.ino(), object, has).map_err(|e| {
                tracing::error!("inode {} is not as it is on record: {e}", file.ino());
                FsError::Io
            })?;
            file.widen(nobody_uses_it, place);
        }
        Ok(())
    }

    /// Has the file get its next part.
    fn widen_once(&self, file: &FarFile, object: ObjectId) -> FsResult<()> {
        let (ino, mut avoid, mut silent, mut refused) = (file.ino(), BTreeSet::new(), false, 0);
        // Where no others will do, those that did not answer are waited for.
        let until = Moment::now() + PATIENCE;
        let again = || Moment::now() < until && !self.stops_within(AGAIN);
        let failed = |e: &dyn std::fmt::Display| {
            tracing::error!("inode {ino} gets no more targets: {e}");
            FsError::Io
        };
        loop {
            let grown = match self.reserve_wider(object, &avoid) {
                Err(FsError::NoSpace) if silent && again() => {
                    (avoid, silent) = (BTreeSet::new(), false);
                    continue;
                }
                grown => grown?,
            };
            let made = self.make_objects(&[&grown.last_part()]);
            if let Err((target, e)) = made {
                tracing::warn!("inode {ino} gets other targets: {e}");
                avoid.insert(target);
                silent |= e.class == ErrorClass::Retry;
                if avoid.len() >= ATTEMPTS && silent && again() {
                    (avoid, silent) = (BTreeSet::new(), false);
                } else if avoid.len() >= ATTEMPTS {
                    let full = e.class == ErrorClass::NoSpace;
                    return Err(if full { FsError::NoSpace } else { failed(&e) });
                }
                continue;
            }
            // All that can fail comes before it is on record: whoever has the file open must use it from then on.
            let place = self.place_of(ino, object, grown.clone()).map_err(|e| failed(&e))?;
            // Whoever syncs may learn that a column is out of date. From here on nobody does, by what is there without the new part; if somebody
            // has since it was reserved, the catalogue refuses it.
            let nobody_uses_it = file.uses_end();
            let recorded = self.catalog.widen(object, &grown, self.movers.is_reserved(object));
            if refused < REFUSALS && matches!(recorded, Err(CatalogError::Refused { .. })) {
                // Or a target is to be emptied by now, or has left the pool.
                refused += 1;
                continue;
            }
            let parts = grown.layout.components.len();
            self.settled(object, recorded, |far| far.layout.components.len() >= parts)
                .map_err(|e| failed(&e))?;
            file.widen(nobody_uses_it, place);
            tracing::debug!("inode {ino} has targets up to byte {}", grown.layout.end());
            return Ok(());
        }
    }

    fn reserve_wider(&self, object: ObjectId, avoid: &BTreeSet<TargetId>) -> FsResult<Far> {
        let mut views = self.target_views().map_err(|e| {
            tracing::error!("a file that grows gets no targets: {e}");
            FsError::Io
        })?;
        let now = self.catalog.far(object).map_err(|e| fs_error("write", &e))?.ok_or(FsError::Stale)?;
        views.retain(|view| view.is_in(now.pool.as_deref()));
        let reserve = |from: &[layout::Candidate], away: &BTreeSet<TargetId>| {
            self.catalog.reserve_wider(object, from, away)
        };
        Candidates::of(views, avoid).try_each(now.rule().is_redundant(), reserve).map_err(|e| match e {
            CatalogError::Refused { .. } => {
                tracing::error!("{e}; see `thermo target ls` for targets that are down or full");
                FsError::NoSpace
            }
            e => fs_error("write", &e),
        })
    }
}
