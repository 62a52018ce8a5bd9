//! Files on targets that were being written when the node, or a target, went down: their targets are asked before somebody opens them.

use super::far::{FarFile, stamp_at};
use super::open::Asking;
use crate::Node;
use crate::clock::{self, Moment};
use crate::error::fs_error;
use crate::movers::DOWN_AFTER;
use layout::Redundancy;
use std::sync::Arc;
use std::time::Duration;
use types::api::FsResult;
use types::*;

/// Whoever opens a file waits for a target that is just gone for so long: by then it counts as down, and what can go on without it does.
pub(super) const GONE: Duration = DOWN_AFTER.saturating_mul(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// What targets say of a file. Nobody else asks them until this is dropped.
pub(super) struct Learned<'n> {
    _asking: Asking<'n>,
    object: ObjectId,
    /// How the catalogue knew it before they were asked.
    before: Option<ObjectStamp>,
    stamp: ObjectStamp,
}

impl Node {
    /// What was being written when the node, or too many targets, went down may be there in one copy and not in another: from now on one counts,
    /// and the others are made like it. False: no other one counted.
    fn let_one_copy_count(&self, object: ObjectId) -> FsResult<bool> {
        let fail = |e| fs_error("open", &e);
        let far = self.catalog.far(object).map_err(fail)?.ok_or(FsError::Stale)?;
        let (down, mut changed) = (far.on(&self.movers.down()), false);
        for (number, component) in (0..).zip(&far.layout.components) {
            let columns = 0..component.targets.len() as u16;
            for column in columns.filter(|_| matches!(component.redundancy, Redundancy::Mirror { .. })) {
                // All that counts has just answered, whatever its host reports.
                let counts = |copy: &u16| !far.stale.contains(&(number, *copy));
                let up = |copy: &u16| counts(copy) && !down.contains(&(number, *copy));
                let first =
                    component.replicas(column).find(up).or_else(|| component.replicas(column).find(counts));
                if first.is_some_and(|first| first != column) {
                    changed |= !far.stale.contains(&(number, column));
                    self.catalog.set_stale(object, (number, column), true).map_err(fail)?;
                }
            }
        }
        Ok(changed)
    }

    /// Whether a file on targets has to be asked for there before it is opened: the node, or a target, went down while it was written.
    fn is_unsettled(&self, ino: Ino) -> FsResult<Option<Inode>> {
        let inode = self.catalog.inode(ino).map_err(|e| fs_error("open", &e))?;
        let far = inode.file.as_ref().is_some_and(|f| f.far);
        if !far || self.open.get(ino).is_some_and(|entry| entry.state.lock().handles > 0) {
            return Ok(None);
        }
        let marked = self.catalog.is_writing(ino).map_err(|e| fs_error("open", &e))?;
        Ok(marked.then_some(inode))
    }

    /// Asks the targets how a file is that was being written when the node, or a target, went down; None if it was not. What they have is
    /// durable then. The content counts as changed, whatever was known.
    ///
    /// One after the other does, and no lock of the file is held: a target that does not answer takes a minute, and one that is just gone is waited for until it counts as down, or for `patience`.
    pub(super) fn learn_unsettled(&self, ino: Ino, patience: Duration) -> FsResult<Option<Learned<'_>>> {
        if self.is_unsettled(ino)?.is_none() {
            return Ok(None);
        }
        let begun = Moment::now();
        // Who leaves out a copy knows all that others have left out.
        let Some(asking) = self.open.ask(ino, !patience.is_zero()) else { return Err(FsError::Busy) };
        let Some(inode) = self.is_unsettled(ino)? else { return Ok(None) };
        let Some(object) = inode.file.as_ref().and_then(|f| f.object) else { return Ok(None) };
        // A host may have had it alone when another node served, and is just writing to the targets what it has kept.
        self.leases.wait_for_earlier();
        let mut told = false;
        let size = loop {
            let (file, asked) = self.ask_targets(ino, object)?;
            match asked {
                Ok(size) => break size,
                Err(e) if e.is_away() && begun.elapsed() < patience => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::info!(
                            "inode {ino} was being written, and is opened when a target that is away is back, or counts as down: {e}"
                        );
                    }
                    clock::sleep(PAUSE);
                    self.movers.note_down(&self.down_targets()?);
                }
                Err(e) => return Err(file.failed("syncing, or asking for the length of,", &e)),
            }
        };
        let stamp = stamp_at(size, crate::now());
        Ok(Some(Learned { _asking: asking, object, before: inode.observed, stamp }))
    }

    /// What the targets say of its length (bytes), once all that they have is durable.
    fn ask_targets(&self, ino: Ino, object: ObjectId) -> FsResult<(Arc<FarFile>, stripe::Result<u64>)> {
        let missing = self.missing_targets_of(object)?;
        if !missing.is_empty() {
            tracing::warn!(
                "inode {ino} was being written and cannot be opened before targets {missing:?} are back; see `thermo target ls`"
            );
            return Err(FsError::Io);
        }
        // Nobody changes it any more with a right from before.
        self.fence_far(object).map_err(|e| {
            tracing::error!("inode {ino} was being written and cannot be opened: {e}");
            FsError::Io
        })?;
        let file = self.far_file(ino, object, ObjectStamp::default())?;
        // Of copies one that does not answer is left out, so it is not the one that counts then; but if none answers nobody knows which that would be.
        let asked = file.length().and_then(|_| file.striped().sync()).and_then(|()| file.length());
        if asked.is_err() || !self.let_one_copy_count(object)? {
            return Ok((file, asked));
        }
        let file = self.far_file(ino, object, ObjectStamp::default())?;
        let asked = file.length();
        Ok((file, asked))
    }

    /// The stamp with which a file on targets is opened that nobody has open; None if they have to be asked (again).
    pub(super) fn stamp_to_open(
        &self,
        inode: &Inode,
        learned: Option<&Learned<'_>>,
    ) -> FsResult<Option<ObjectStamp>> {
        if !self.catalog.is_writing(inode.attr.ino).map_err(|e| fs_error("open", &e))? {
            return Ok(Some(inode.observed.unwrap_or_default()));
        }
        let object = inode.file.as_ref().and_then(|f| f.object);
        // Whoever wrote since has left another stamp.
        let fits = |known: &&Learned<'_>| known.before == inode.observed && Some(known.object) == object;
        Ok(learned.filter(fits).map(|known| known.stamp))
    }

    /// Closes what was left open by a crash or by a target that did not answer, if nobody has it open; false if there is nothing to close.
    pub(crate) fn settle_far(&self, ino: Ino) -> FsResult<bool> {
        let Some(learned) = self.learn_unsettled(ino, Duration::ZERO)? else { return Ok(false) };
        self.open.with(ino, |_, state| {
            let inode = self.catalog.inode(ino).map_err(|e| fs_error("close", &e))?;
            let marked = self.catalog.is_writing(ino).map_err(|e| fs_error("close", &e))?;
            if state.handles > 0 || !marked || inode.observed != learned.before {
                return Ok(false);
            }
            let cx = Cx::admin(crate::now());
            self.observe(&cx, ino, learned.object, learned.stamp, true, kv::Durability::Relaxed)?;
            Ok(true)
        })
    }
}
