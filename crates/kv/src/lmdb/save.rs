//! How changes reach stable storage: as batches in the journal, and as overlays in the store.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::MutexGuard;

use super::at::At;
use super::journal::{self, HALF, Journal};
use super::log::batch;
use super::overlay::Overlay;
use super::shared::{Core, Trouble};
use super::store::Unsaved;
use crate::Result;

/// What is to be done with the frozen overlay.
pub(super) struct Plan {
    overlay: Arc<Overlay>,
    /// The last transaction in it.
    through: u64,
    /// The state of the store with it.
    at: At,
    /// All of it is in the journal, which goes on behind it. Else nothing is written there until it is in the store.
    handed_over: bool,
    /// It is in the store; the standby may not have it yet.
    stored: bool,
}

impl Plan {
    /// What a journal held at the start and the store had no room for. Nothing is written to the journal before it is there.
    pub(super) fn unsaved((changes, at): Unsaved, journal: &mut Journal) -> Self {
        journal.last = at.number;
        Self { overlay: Arc::new(changes), through: 0, at, handed_over: false, stored: false }
    }

    pub(super) fn overlay(&self) -> Arc<Overlay> {
        self.overlay.clone()
    }
}

impl Core {
    /// Makes durable what is visible, as the only thread that does, and returns the last transaction of it.
    pub(super) fn flush(&self) -> Result<u64> {
        let written = self.journaling().then(|| {
            self.write_journal().or_else(|| {
                drop(self.plan.lock()); // who writes the store may be about to open the journal again
                self.write_journal()
            })
        });
        match written.flatten() {
            Some(through) => Ok(through),
            None => self.write_store(0),
        }
    }

    /// Puts into the store what is only in the journal and in memory.
    pub(super) fn save(&self) -> Result<()> {
        self.write_store(0).map(drop)
    }

    /// Before a backup: if what was logged does not lead up to now, another chain of the log begins.
    pub(super) fn mend_log(&self) {
        if let Some(log) = &self.store.log {
            let journal = self.journal.lock();
            log.mend(journal.last);
        }
    }

    /// Writes what came since the last batch; None if the journal does not take it.
    fn write_journal(&self) -> Option<u64> {
        let mut journal = self.journal.lock();
        if !journal.is_open() || !self.store.has_reserve() {
            return None;
        }
        let through = {
            let layers = &mut *self.layers.write();
            journal.unsettled.append(layers.pending.get_mut());
            self.visible()
        };
        if journal.unsettled.len() > 0 {
            self.settle(&mut journal).then_some(())?;
            self.flushes.fetch_add(1, Ordering::Relaxed);
            let used = journal.used();
            drop(journal);
            self.note_used(used);
        }
        Some(through)
    }

    /// Logs the changes that are not settled as a batch and writes it to the journal; whether that took it. One that was tried keeps its
    /// number, whatever came of it, and nothing more is written to a journal that has failed before the store has all.
    fn settle(&self, journal: &mut MutexGuard<'_, Journal>) -> bool {
        if !journal.has_room(batch::AROUND + journal.unsettled.len()) {
            return false;
        }
        let batch = self.number_batch(journal);
        let taken = journal.append(&batch).is_ok();
        if !taken {
            journal.halt();
        }
        taken
    }

    /// Makes the next batch of the changes that are not settled.
    fn number_batch(&self, journal: &mut MutexGuard<'_, Journal>) -> Vec<u8> {
        let (number, changes) = (journal.last + 1, mem::take(&mut journal.unsettled));
        journal.last = number;
        let batch = self.log_batch(number, |time_ms| changes.finish(number, time_ms));
        journal.unsettled = changes.emptied();
        batch
    }

    fn log_batch(&self, number: u64, encode: impl FnOnce(i64) -> Vec<u8>) -> Vec<u8> {
        let log = self.store.log.as_ref();
        let batch = encode(log.map_or(0, |log| log.time_ms()));
        if let Some(log) = log {
            log.append(number, &batch);
        }
        batch
    }

    /// The file of the journal is used so far (bytes): says when the store is to take over what is in it.
    fn note_used(&self, used: u64) {
        let now = Instant::now();
        let mut room = self.room.lock();
        let due = if used >= HALF { now } else { now + self.options.save_interval };
        if room.save_due.is_none_or(|before| due < before) {
            room.save_due = Some(due);
            self.flusher_work.notify_one();
        }
    }

    /// Moves the active overlay into the store, if it holds `least` bytes, and returns its last transaction. If that fails, it stays readable as
    /// frozen, and the next one tries it again before anything newer: the order of transactions is kept. A new try
    /// writes every page of it anew, so it does not matter what became of those of the failed one.
    pub(super) fn write_store(&self, least: usize) -> Result<u64> {
        let mut plan = self.plan.lock();
        let result = self.try_write_store(&mut plan, least);
        self.room.lock().unsaved = result.as_ref().err().map(Trouble::of);
        result
    }

    fn try_write_store(&self, plan: &mut Option<Plan>, least: usize) -> Result<u64> {
        self.carry_out(plan)?;
        let through = {
            let mut journal = self.journal.lock();
            let (overlay, through) = match self.freeze(&mut journal, least) {
                Ok(frozen) => frozen,
                Err(durable) => return Ok(durable),
            };
            *plan = Some(self.make_plan(&mut journal, overlay, through));
            through
        };
        self.carry_out(plan)?;
        Ok(through)
    }

    /// Takes the active overlay and what came since the last batch. If there is not enough: up to which transaction all is durable.
    fn freeze(
        &self,
        journal: &mut MutexGuard<'_, Journal>,
        least: usize,
    ) -> Result<(Arc<Overlay>, u64), u64> {
        let layers = &mut *self.layers.write();
        if layers.active.len() == 0 {
            return Err(self.visible());
        }
        if layers.active.bytes() < least {
            return Err(self.flushed.load(Ordering::Acquire));
        }
        journal.unsettled.append(layers.pending.get_mut());
        let overlay = mem::take(&mut layers.active);
        layers.frozen = Some(overlay.clone());
        Ok((overlay, self.visible()))
    }

    /// Numbers what is in the frozen overlay, and closes the present file of the journal behind it if all of it is there.
    fn make_plan(&self, journal: &mut MutexGuard<'_, Journal>, overlay: Arc<Overlay>, through: u64) -> Plan {
        if !self.journaling() {
            let number = journal.last + 1;
            self.log_batch(number, |time_ms| batch::encode(number, time_ms, &overlay));
            journal.last = number;
            let at = At { number, mark: 0 };
            return Plan { overlay, through, at, handed_over: false, stored: false };
        }
        let mut handed_over = journal.is_open() && self.store.has_reserve();
        if journal.unsettled.len() > 0 {
            handed_over = handed_over && self.settle(journal);
        }
        if journal.unsettled.len() > 0 {
            self.number_batch(journal);
        }
        let mark = if journal.prepare() { journal::new_mark() } else { 0 };
        handed_over = handed_over && journal.hand_over(mark, self.store.txn() + 1).is_ok();
        if !handed_over {
            journal.halt();
        }
        Plan { overlay, through, at: At { number: journal.last, mark }, handed_over, stored: false }
    }

    fn carry_out(&self, plan: &mut Option<Plan>) -> Result<()> {
        let Some(now) = plan else { return Ok(()) };
        if !now.stored {
            // An error may have come behind its commit.
            if self.store.at() != now.at {
                self.store.apply(&now.overlay, now.at)?;
            }
            self.flushes.fetch_add(u64::from(!now.handed_over), Ordering::Relaxed);
            now.stored = true;
        }
        if let Some(feed) = &self.options.feed {
            feed.settle(&self.store.place.dir)?;
        }
        if !now.handed_over && now.at.mark != 0 {
            self.journal.lock().begin(now.at.mark, self.store.txn());
        }
        self.layers.write().frozen = None;
        let through = now.through;
        *plan = None;
        self.flushed_beside(through);
        Ok(())
    }
}
