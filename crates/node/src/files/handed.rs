//! Open files on targets that somebody writes past the node who has a right to all copies, or to rows and log (`movers::copies`). Of a coded file one process at a time is
//! the writer of the log: the node is that no more when it gives such a right, and again when it has ended it.

use super::far::{FarFile, Place};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::api::FsResult;
use types::{FsError, ObjectId};

/// How long is waited for who writes or reads just now.
const SOON: Duration = Duration::from_millis(50);

impl FarFile {
    /// Somebody had a right to write past the node while it was open.
    pub(crate) fn is_written_past(&self) -> bool {
        self.written_past.load(Ordering::Acquire)
    }

    /// Somebody gets a right to write all of it past the node: what this process knows of its log counts no more. False: somebody writes or reads it just now, or something
    /// of it is in memory only. `build`: the way to what it has now, by which nothing was written.
    ///
    /// # Errors
    /// Those of `build`.
    pub(crate) fn hand_over(
        &self,
        object: ObjectId,
        build: impl FnOnce() -> Result<Place, String>,
    ) -> Result<bool, String> {
        let striped = self.striped();
        if !striped.is_coded() || (*self.handed_over.lock() && !striped.is_writer()) {
            self.written_past.store(true, Ordering::Release);
            return Ok(true);
        }
        let Some(_nobody_writes) = self.length.try_write_for(SOON) else { return Ok(false) };
        let mut handed = self.handed_over.lock();
        let Some(mut place) = self.place.try_write_for(SOON) else { return Ok(false) };
        let same = place.decider.as_ref().is_some_and(|decider| decider.object() == object);
        if !same || place.striped.gathered() > 0 {
            return Ok(false);
        }
        *place = build()?;
        self.written_past.store(true, Ordering::Release);
        *handed = true;
        Ok(true)
    }

    /// Nobody writes past the node any more when this returns. The caller holds `length`.
    pub(super) fn take_back(&self) -> FsResult<()> {
        let mut handed = self.handed_over.lock();
        if !*handed {
            return Ok(());
        }
        let decider = self.place().decider;
        let Some((node, object)) = decider.and_then(|one| Some((one.node()?, one.object()))) else {
            tracing::error!("inode {} is not written: the node stops", self.ino);
            return Err(FsError::Io);
        };
        node.end_lending(object).map_err(|e| {
            tracing::error!("inode {} is not written, because another host may be writing it: {e}", self.ino);
            FsError::Io
        })?;
        *handed = false;
        Ok(())
    }

    /// The same behind the caller's back, without becoming the writer.
    pub(super) fn take_back_later(&self, place: &Place) {
        let Some((node, object)) = place.decider.as_ref().and_then(|one| Some((one.node()?, one.object())))
        else {
            return;
        };
        let (ino, ends) = (self.ino, node.clone());
        node.movers.run(Box::new(move || {
            if let Err(e) = ends.end_lending(object) {
                tracing::warn!("inode {ino}: a right to write it goes on for some seconds: {e}");
            }
        }));
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
