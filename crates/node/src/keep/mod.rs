//! Keeps what is on tape in order: volumes are verified and repacked, lost copies are made anew, and volumes on which nothing
//! is needed become scratch. One thread decides; drives do the work as errands of the archive service, and what is copied
//! goes through the disk tier like every other file, a bounded number of bytes at a time.

mod broken;
mod closed;
mod damaged;
mod export;
mod flights;
mod repack;
mod ticket;
mod undeletable;
mod verify;

use crate::Node;
use crate::clock::Moment;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::*;

pub use damaged::why as damaged;
pub use repack::{may_be_repacked, subject};
pub use ticket::{End, Task, Ticket};
pub use verify::can_be_verified;

use ticket::Running;

/// Between two orders of the same thing.
const AGAIN: Duration = Duration::from_secs(2);
/// Looks at least this often.
const TICK: Duration = Duration::from_millis(500);

/// What the thread shares with the rest of the node.
#[derive(Default)]
pub struct Keeper {
    poked: Mutex<bool>,
    wakeup: Condvar,
    stop: AtomicBool,
    /// Volumes for which an errand is under way.
    running: Mutex<BTreeMap<Barcode, Arc<Running>>>,
    /// Errands that ended.
    ended: Mutex<Vec<(Barcode, Task, End)>>,
    /// Files are being brought back or written anew: the others are not told of.
    flying: AtomicBool,
    /// Files of which something happened.
    touched: Mutex<Vec<Ino>>,
    /// Files of which no copy can be written, and why.
    refused: Mutex<Vec<(Ino, String)>>,
    /// Bytes that may be read in the background now.
    budget: Mutex<Budget>,
}

/// Bytes of background reading, filled by time.
struct Budget {
    bytes: f64,
    since: Moment,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: 0.0, since: Moment::now() }
    }
}

impl Keeper {
    /// Something changed that the keeper should see soon.
    pub fn wake(&self) {
        *self.poked.lock() = true;
        self.wakeup.notify_one();
    }

    /// Ends its thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wait(&self) -> bool {
        let mut poked = self.poked.lock();
        if !*poked {
            self.wakeup.wait_for(&mut poked, TICK);
        }
        *poked = false;
        !self.stop.load(Ordering::Acquire)
    }

    /// Something happened to a file: it came back, or got a copy.
    pub fn touch(&self, ino: Ino) {
        if self.flying.load(Ordering::Acquire) {
            self.touched.lock().push(ino);
            self.wake();
        }
    }

    /// No copy of this file can be written until somebody has mended something.
    pub fn refuse(&self, ino: Ino, why: &str) {
        if self.flying.load(Ordering::Acquire) {
            self.refused.lock().push((ino, why.to_owned()));
            self.wake();
        }
    }

    /// Block that a verification has come to; None if none runs.
    pub fn verifying_at(&self, volume: &Barcode) -> Option<u64> {
        self.running.lock().get(volume).map(|r| r.block.load(Ordering::Relaxed))
    }

    /// Takes so many bytes from what background reading may read; `pace` in bytes per second, 0: no limit. What is saved up
    /// lasts for ten minutes.
    fn take(&self, bytes: u64, pace: u64) -> bool {
        if pace == 0 {
            return true;
        }
        let mut budget = self.budget.lock();
        let passed = budget.since.elapsed().as_secs_f64();
        budget.since = Moment::now();
        budget.bytes = (budget.bytes + passed * pace as f64).min(pace as f64 * 600.0);
        let may = budget.bytes > 0.0;
        if may {
            // A large file may overdraw it: then it takes longer until the next.
            budget.bytes -= bytes as f64;
        }
        may
    }
}

/// What the keeper's thread remembers.
#[derive(Default)]
pub struct Desk {
    flights: flights::Flights,
    verify: verify::Verify,
    repack: repack::Repack,
    broken: broken::Broken,
    export: export::Export,
    /// Volumes as they were at this change of the catalogue.
    volumes: (u64, Arc<Vec<Volume>>),
    /// Those of which a record is damaged, and what there is to be said of it.
    damaged: Vec<(Barcode, String)>,
}

impl Desk {
    /// All volumes, read anew only when some has changed.
    fn volumes(&mut self, node: &Node) -> catalog::Result<Arc<Vec<Volume>>> {
        let changes = node.catalog.volume_changes();
        if self.volumes.0 != changes || self.volumes.1.is_empty() {
            let all = node.catalog.all_volumes()?;
            self.damaged =
                all.damaged.iter().map(|(barcode, e)| (barcode.clone(), damaged::why(e))).collect();
            self.volumes = (changes, Arc::new(all.found));
        }
        Ok(self.volumes.1.clone())
    }

    /// Takes what has ended, and does what is to be done now.
    pub fn tick(&mut self, node: &Arc<Node>) -> catalog::Result<()> {
        for (volume, task, end) in std::mem::take(&mut *node.keeper.ended.lock()) {
            match task {
                Task::Verify => self.verify.ended(node, &volume, end)?,
                Task::Reclaim => self.repack.reclaimed(node, &volume, end)?,
            }
        }
        let volumes = self.volumes(node)?;
        damaged::tick(node, &self.damaged)?;
        self.export.tick(node)?;
        self.verify.tick(node, &volumes)?;
        self.broken.tick(node, &volumes)?;
        self.repack.tick(node, &volumes, &mut self.flights)?;
        self.flights.mend(node)?;
        self.flights.tick(node)
    }
}

impl Node {
    /// The keeper's thread.
    pub(crate) fn keep(self: &Arc<Self>) {
        let mut desk = Desk::default();
        let mut failed = String::new();
        while self.keeper.wait() {
            match desk.tick(self) {
                Ok(()) => failed.clear(),
                Err(e) => {
                    let text = e.to_string();
                    if text != failed {
                        tracing::error!("keeping volumes in order failed: {text}; it is tried again");
                    }
                    failed = text;
                }
            }
        }
    }

    /// Gives an errand for a volume to the drives, unless one is under way.
    fn send_errand(self: &Arc<Self>, volume: &Barcode, task: Task, paced: bool) -> bool {
        let Some(ticket) = Ticket::new(self, volume, task, paced) else { return false };
        let (kind, errand) = match task {
            Task::Verify => (sched::MaintenanceKind::Verify, crate::archive::Errand::Verify(ticket)),
            Task::Reclaim => (sched::MaintenanceKind::Label, crate::archive::Errand::Reclaim(ticket)),
        };
        self.archive.send(crate::archive::Event::Errand { kind, volume: volume.clone(), errand });
        true
    }

    /// Volumes that open requests of a kind still wait for, with the request.
    pub(crate) fn volumes_asked_for(&self, kind: RequestKind) -> catalog::Result<Vec<(Barcode, RequestId)>> {
        let mut asked = Vec::new();
        for request in self.catalog.open_requests_of(kind)? {
            let volumes = self.catalog.request_volumes(request.id)?;
            let pending = volumes.into_iter().filter(|(_, state, _)| *state == ItemState::Pending);
            asked.extend(pending.map(|(volume, ..)| (volume, request.id)));
        }
        Ok(asked)
    }

    /// Tells every open request of a kind that waits for a volume.
    fn finish_volume(
        &self,
        kind: RequestKind,
        volume: &Barcode,
        state: &ItemState,
        note: &str,
    ) -> catalog::Result<()> {
        for (_, id) in self.volumes_asked_for(kind)?.into_iter().filter(|(asked, _)| asked == volume) {
            self.catalog.finish_volume(id, volume, state, note, crate::now())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{give, sleep, tests::Jumps};

    #[test]
    fn background_reading_keeps_its_pace_and_saves_up_ten_minutes_at_most() {
        const PACE: u64 = 1_000_000;
        const FILE: u64 = 4_000_000;
        give(Some(Arc::new(Jumps::default())));
        let keeper = Keeper::default();
        assert!(!keeper.take(FILE, PACE), "nothing is saved up at first");
        let mut read = 0;
        for _ in 0..3600 {
            sleep(Duration::from_secs(1));
            read += if keeper.take(FILE, PACE) { FILE } else { 0 };
        }
        assert!((3600 * PACE..=3600 * PACE + FILE).contains(&read), "an hour at this pace: {read}");
        sleep(Duration::from_secs(86_400));
        let at_once = (0..1000).take_while(|_| keeper.take(FILE, PACE)).count() as u64 * FILE;
        assert_eq!(at_once, 600 * PACE, "after a day of rest");
        // A file that is larger than what there is makes the next one wait.
        sleep(Duration::from_secs(1));
        assert!(keeper.take(61 * PACE, PACE));
        sleep(Duration::from_secs(59));
        assert!(!keeper.take(FILE, PACE));
        sleep(Duration::from_secs(2));
        assert!(keeper.take(FILE, PACE));
        assert!((0..1000).all(|_| keeper.take(FILE, 0)), "without a pace nothing is held back");
        give(None);
    }
}
