//! Files that get more targets as they grow: when somebody writes behind what a file has, or sets its length there, the objects of the next part
//! are made, and the file has them, durably, before that is answered.
//!
//! Whoever goes past the node is refused by the objects that there were, and asks again where the file lies: else a host that knows less of it
//! would take what it knows for all.

use super::claims::Claim;
use super::layouts::{ATTEMPTS, Candidates};
use crate::Node;
use crate::error::fs_error;
use crate::files::FarFile;
use catalog::{CatalogError, Far};
use layout::Layout;
use std::collections::BTreeSet;
use std::time::Duration;
use types::api::FsResult;
use types::*;

/// Between two looks whether nobody writes.
const LOOK: Duration = Duration::from_millis(50);

impl Node {
    /// Has an open file reach up to `end` (bytes), if it lies in this object still. The caller holds nothing of the file.
    pub(crate) fn widen_far(&self, file: &FarFile, object: ObjectId, end: u64) -> FsResult<()> {
        while !self.stops_within(Duration::ZERO) {
            let claim = self.movers.claims.take(object);
            loop {
                if let Some(_nobody_writes) = file.writes_end(LOOK) {
                    claim.widens();
                    let widened = self.widen_claimed(file, object, end);
                    claim.over();
                    // What is left of an attempt, or was passed over meanwhile, is removed.
                    self.movers.wake();
                    return widened;
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
        // Nobody can have a right to what belongs to no file yet.
        if !self.movers.is_reserved(object) {
            self.fence_far(object).map_err(|e| {
                tracing::error!("inode {} gets no more targets: {}", file.ino(), e.message);
                FsError::Io
            })?;
        }
        while !file.reaches(end) {
            self.widen_once(file, object)?;
        }
        Ok(())
    }

    /// Has the file get its next part.
    fn widen_once(&self, file: &FarFile, object: ObjectId) -> FsResult<()> {
        let (ino, mut avoid) = (file.ino(), BTreeSet::new());
        let failed = |e: &dyn std::fmt::Display| {
            tracing::error!("inode {ino} gets no more targets: {e}");
            FsError::Io
        };
        for attempt in 1.. {
            let grown = self.reserve_wider(object, &avoid)?;
            let made = self.make_objects(&[&last_part(&grown)]);
            if let Err((target, e)) = made {
                tracing::warn!("inode {ino} gets other targets: {e}");
                avoid.insert(target);
                if attempt >= ATTEMPTS {
                    let full = e.class == ErrorClass::NoSpace;
                    return Err(if full { FsError::NoSpace } else { failed(&e) });
                }
                continue;
            }
            // All that can fail comes before it is on record: whoever has the file open must use it from then on.
            let place = self.place_of(ino, object, grown.clone()).map_err(|e| failed(&e))?;
            let recorded = self.catalog.widen(object, &grown, self.movers.is_reserved(object));
            if attempt < ATTEMPTS && matches!(recorded, Err(CatalogError::Refused { .. })) {
                // A target is to be emptied by now.
                continue;
            }
            let parts = grown.layout.components.len();
            self.settled(object, recorded, |far| far.layout.components.len() >= parts)
                .map_err(|e| failed(&e))?;
            file.widen(place);
            tracing::debug!("inode {ino} has targets up to byte {}", grown.layout.end());
            break;
        }
        Ok(())
    }

    fn reserve_wider(&self, object: ObjectId, avoid: &BTreeSet<TargetId>) -> FsResult<Far> {
        let views = self.target_views().map_err(|e| {
            tracing::error!("a file that grows gets no targets: {e}");
            FsError::Io
        })?;
        let now = self.catalog.far(object).map_err(|e| fs_error("write", &e))?.ok_or(FsError::Stale)?;
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

/// What a file has got last, as if it were all of it.
fn last_part(grown: &Far) -> Far {
    let components: Vec<_> = grown.layout.components.last().cloned().into_iter().collect();
    let number = grown.layout.components.len().saturating_sub(1) as u16;
    let stale = grown.stale.iter().filter(|place| place.0 == number).map(|place| (0, place.1)).collect();
    Far { layout: Layout { components, ..grown.layout }, stale, then: Vec::new() }
}
