//! Open files on targets that somebody writes past the node who has a right to all copies, or to rows and log (`movers::copies`). Of a coded file one process at a time is
//! the writer of the log: the node is that no more when it gives such a right, and again when it has ended it.

use super::far::{FarFile, Place};
use crate::clock::Moment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::api::FsResult;
use types::{FsError, ObjectId};

/// How long is waited for who writes or reads just now.
const SOON: Duration = Duration::from_millis(50);
/// So long after his right has ended whoever had it may be telling what became of his writes: as a call waits for the node, a session outlives its connections, and a target that does not answer is waited for before it ends.
const TOLD: Duration = Duration::from_secs(900);

impl FarFile {
    /// Somebody may write past the node, or have failed to a moment ago and be about to say what became of that.
    pub(crate) fn is_written_past(&self) -> bool {
        self.written_past.lock().is_some_and(|until| Moment::now() < until)
    }

    /// Somebody had a right to do that since it was opened.
    pub(crate) fn was_written_past(&self) -> bool {
        self.written_past.lock().is_some()
    }

    /// Columns that may lack what was written last, as their machines were started anew.
    pub(crate) fn lacking(&self) -> Vec<(usize, u16)> {
        let striped = self.striped();
        striped.meet();
        self.machines.note(&striped)
    }

    /// Somebody gets a right to write all of it past the node, until then: what this process knows of its log counts no more, and what it writes ends the right first. False:
    /// somebody writes or reads it just now, or something of it is in memory only. `build`: the way to what it has now, by which nothing was written.
    ///
    /// # Errors
    /// Those of `build`.
    pub(crate) fn hand_over(
        &self,
        (object, until): (ObjectId, Moment),
        build: impl FnOnce() -> Result<Place, String>,
    ) -> Result<bool, String> {
        let begins = || *self.written_past.lock() = Some(until + TOLD);
        let striped = self.striped();
        let fresh = !striped.is_writer() && striped.is_whole();
        if fresh && self.handed_over.try_lock().is_some_and(|handed| *handed) {
            begins();
            return Ok(true);
        }
        // Also a call that was made again, and whose first time goes on, or whose session has ended.
        let Some(_nobody_writes) = self.length.try_write_for(SOON) else { return Ok(false) };
        let Some(mut handed) = self.handed_over.try_lock() else { return Ok(false) };
        let Some(mut place) = self.place.try_write_for(SOON) else { return Ok(false) };
        let same = place.decider.as_ref().is_some_and(|decider| decider.object() == object);
        if !same || self.is_torn() || self.keeps_spares() || place.striped.gathered() > 0 {
            return Ok(false);
        }
        // Of one that was put aside for a moment others are to be told nothing.
        if place.striped.is_coded() || !place.striped.is_whole() {
            *place = build()?;
        }
        *handed = true;
        begins();
        drop(place);
        self.note_machines();
        Ok(true)
    }

    /// Whoever has a right to write past the node has it no more when this returns.
    pub(super) fn end_writing_past(&self) -> Result<(), ()> {
        if !self.is_written_past() {
            return Ok(());
        }
        let decider = self.place().decider;
        let Some((node, object)) = decider.and_then(|one| Some((one.node()?, one.object()))) else {
            return Err(());
        };
        node.end_lending(object).map(drop).map_err(|e| {
            tracing::error!("inode {}: another host may be writing it: {e}", self.ino);
        })
    }

    /// What machines that were started anew may have lost, of what somebody wrote past the node, is not read there.
    pub(super) fn avoid_lost(&self) {
        if self.is_written_past() {
            for (component, column) in self.machines.note(&self.striped()) {
                self.is_lost(component, column);
            }
        }
    }

    /// Nobody writes past the node any more when this returns. The caller holds `length`.
    pub(super) fn take_back(&self) -> FsResult<()> {
        let mut handed = self.handed_over.lock();
        if !*handed {
            return Ok(());
        }
        self.end_writing_past().map_err(|()| FsError::Io)?;
        *handed = false;
        Ok(())
    }

    /// Leaves columns out, each for a reason; false if some still count.
    pub(crate) fn leave_out_all(&self, columns: &BTreeMap<(u16, u16), String>) -> bool {
        // Held, so that it gets no other ones meanwhile.
        let place = self.place.read();
        let striped: &Arc<_> = place.striped();
        columns
            .iter()
            .all(|((component, column), why)| striped.leave_out((*component).into(), *column, why).is_ok())
    }
}
