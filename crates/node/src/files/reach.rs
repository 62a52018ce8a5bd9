//! Changes of an open file on targets: behind what its targets reach it gets more of them first (`movers::widen`).

use super::behind::Writer;
use super::far::{FarFile, Place};
use crate::counted::Counted;
use parking_lot::RwLockWriteGuard;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::api::FsResult;
use types::*;

/// Number of what programs write whose open files end with the node: nobody asks for it.
const HERE: u64 = u64::MAX;

impl FarFile {
    /// Writes all of `data`, at the end of the file with `append`.
    pub(crate) fn write(&self, offset: u64, data: &[u8], append: bool, writer: Writer) -> FsResult<usize> {
        loop {
            let (alone, shared) = match append {
                true => (Some(self.length.write()), None),
                false => (None, Some(self.length.read())),
            };
            let offset = if append { self.stamp().size } else { offset };
            let range = Self::range_of(offset, data)?;
            if !self.reaches(range.end) {
                drop((alone, shared));
                self.reach(range.end)?;
            } else if let Some(_plain) = self.enter_plain(&range) {
                // Who makes the file longer at a mount has its kernel's lock: only those of other hosts come meanwhile. Nobody comes while
                // somebody appends.
                let others = writer != Writer::Mount || self.keeps_spares() || range.end <= self.stamp().size;
                let waits = others && !append;
                self.put(range, data, ((writer != Writer::Elsewhere).then_some(HERE), waits))?;
                return Ok(data.len());
            } else {
                drop((alone, shared));
                self.part()?;
            }
        }
    }

    /// Where bytes are to lie.
    pub(super) fn range_of(offset: u64, data: &[u8]) -> FsResult<Range<u64>> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= i64::MAX as u64);
        Ok(offset..end.ok_or(FsError::FileTooLarge)?)
    }

    /// Writes what the file's targets reach, and nobody keeps; the caller holds the length. With a number it may stay in memory ([`stripe::Striped::write_numbered`]), and who runs ahead of others waits
    /// if that is of use ([`stripe::Striped::hold_back`]).
    pub(super) fn put(
        &self,
        range: Range<u64>,
        data: &[u8],
        (number, waits): (Option<u64>, bool),
    ) -> FsResult<()> {
        self.going_to(range.end);
        let losses = self.losses.load(Ordering::Acquire);
        self.changing("writing", |place| {
            let behind = number.filter(|_| !self.pending.fails());
            let most = if self.keeps_spares() { super::spares::AHEAD } else { u64::MAX };
            let held = || if waits { place.striped.hold_back(range.start, data.len(), most) } else { Ok(()) };
            let written = match behind {
                Some(number) => held().and_then(|()| place.striped.write_numbered(number, range.start, data)),
                None => place.striped.write_at(range.start, data),
            };
            if behind.is_some()
                && place.striped.is_coded()
                && let Some(node) = place.node()
            {
                self.note_behind(&node);
            }
            self.copied.written(range.clone());
            written
        })?;
        self.changed(|size| size.max(range.end));
        self.nothing_lost_since(losses)
    }

    /// Some of what was just changed may have been where something was found lost meanwhile, and whoever syncs next would not hear of that any more.
    fn nothing_lost_since(&self, losses: u64) -> FsResult<()> {
        if self.losses.load(Ordering::Acquire) == losses { Ok(()) } else { Err(FsError::Io) }
    }

    /// Changes something; the caller holds `length`.
    pub(super) fn changing(
        &self,
        doing: &str,
        change: impl Fn(&Place) -> stripe::Result<()>,
    ) -> FsResult<()> {
        self.is_whole()?;
        self.take_back()?;
        let place = self.place();
        let _under_way = Counted::begin(&self.under_way);
        self.machines.note(&place.striped);
        let changed = self.with_room(&place, || change(&place));
        if changed.is_err() {
            self.unsure.store(true, Ordering::Release);
        }
        let before = self.changes.fetch_add(1, Ordering::AcqRel);
        // Behind that: a sync of what was before forgets them, and whoever has changed something is told of them.
        self.machines.note(&place.striped);
        if before == 0
            && place.striped.is_coded()
            && let Some(node) = place.node()
        {
            node.movers.note_unfolded(self.ino);
        }
        changed.map_err(|e| self.failed(doing, &e))
    }

    /// Sets the length; if it becomes shorter, behind `before`, which is called when nobody writes through the node or tells it what he has written.
    pub fn truncate(&self, size: u64, before: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        let _alone = loop {
            let alone = self.length.write();
            if self.reaches(size) {
                break alone;
            }
            drop(alone);
            self.reach(size)?;
        };
        // Twice: what is written from here on with a right of now may be in front of the cut or behind it, and is believed in neither case.
        self.cuts.fetch_add(1, Ordering::AcqRel);
        if self.meets_spares(&(size..u64::MAX)) {
            self.end_keeping()?;
        }
        let cut = self.cut(size, before);
        self.cuts.fetch_add(1, Ordering::AcqRel);
        cut
    }

    fn cut(&self, size: u64, before: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        if size < self.stamp().size {
            before()?;
        }
        self.going_to(size);
        let losses = self.losses.load(Ordering::Acquire);
        self.changing("truncating", |place| {
            let cut = place.striped.set_length(size);
            self.copied.cut(size);
            cut
        })?;
        self.changed(|_| size);
        self.nothing_lost_since(losses)
    }

    /// Whether it has targets for all that lies before `end`.
    pub(crate) fn reaches(&self, end: u64) -> bool {
        end <= self.place().striped.layout().end()
    }

    /// Whether this is the object by which the catalogue knows where it lies.
    pub(crate) fn lies_in(&self, object: ObjectId) -> bool {
        self.place().decider.is_some_and(|decider| decider.object() == object)
    }

    /// Has it get targets for all that lies before `end`; whoever asks holds nothing of it.
    pub(super) fn reach(&self, end: u64) -> FsResult<()> {
        while !self.reaches(end) {
            let decider = self.place().decider;
            let Some((node, object)) = decider.and_then(|one| Some((one.node()?, one.object()))) else {
                tracing::error!("inode {} gets no more targets: the node stops", self.ino);
                return Err(FsError::Io);
            };
            node.widen_far(self, object, end)?;
        }
        Ok(())
    }

    /// Waits for all who write; then nobody does until what this gives is dropped.
    pub(crate) fn writes_end(&self, patience: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        self.length.try_write_for(patience)
    }

    /// Waits for all who read or sync; then nobody does until what this gives is dropped.
    pub(crate) fn uses_end(&self) -> RwLockWriteGuard<'_, Place> {
        self.place.write()
    }

    /// It has more targets from now on. Nobody writes.
    pub(crate) fn widen(&self, mut place: RwLockWriteGuard<'_, Place>, to: Place) {
        self.machines.widen();
        *place = to;
        drop(place);
        self.note_machines();
    }
}
