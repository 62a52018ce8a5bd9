//! Drives the policy: looks at the disk tier and the catalogue's indexes a few times a second, lets `policy` decide,
//! releases disk space and fills the archive's write queues. Never scans the namespace.

mod acts;

use crate::Node;
use crate::archive::{Event, POOL_ENOUGH};
use crate::error::fs_error;
use catalog::CandidateKey;
use parking_lot::{Condvar, Mutex};
use policy::{Decision, PolicyView, Pressure};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::{Class, ClassName, FsError, Ino, PoolName, RequestId, Time};

/// Looks at least this often.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// Files that cannot be moved, named in the status at most.
const REFUSED_NOTED: usize = 100;
/// Candidates looked at while nothing is to be migrated: the first ones tell whether any is due.
const FIRST_LOOK: usize = 200;
/// Files released between two looks.
const PURGE_PAGE: usize = 2_000;
/// Whatever is due ever, is due before.
pub(crate) const EVER: Time = Time { secs: i64::MAX / 2_000_000_000, nanos: 0 };

/// Wakes and stops the governor.
#[derive(Default)]
pub struct Governor {
    poked: Mutex<bool>,
    wakeup: Condvar,
    stop: AtomicBool,
    /// How far each migrate request has been put into the write queues.
    cursors: Mutex<HashMap<RequestId, Ino>>,
    /// There was something to migrate at the last look.
    busy: AtomicBool,
    /// Pools that took no data at the last look.
    blocked: Mutex<BTreeSet<PoolName>>,
    /// How far the migration index has been walked while some pool has enough or takes no data.
    walked: Mutex<Option<CandidateKey>>,
    /// Files that cannot be moved until somebody has mended something, and what was said of them.
    refused: Mutex<BTreeMap<Ino, String>>,
    /// Files that could not be copied when their turn came, and when they are looked at again.
    again: Mutex<BTreeMap<Ino, Time>>,
}

impl Governor {
    /// Something changed that the policy should see soon.
    pub fn wake(&self) {
        *self.poked.lock() = true;
        self.wakeup.notify_one();
    }

    /// Ends the governor's thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether somebody asked for a look since this was asked before.
    pub(crate) fn is_poked(&self) -> bool {
        std::mem::take(&mut *self.poked.lock())
    }

    fn wait(&self) -> bool {
        let mut poked = self.poked.lock();
        if !*poked {
            self.wakeup.wait_for(&mut poked, TICK);
        }
        *poked = false;
        !self.stop.load(Ordering::Acquire)
    }
}

impl Node {
    /// The governor's thread.
    pub(crate) fn govern(&self) {
        let mut failed = None;
        while self.governor.wait() {
            match self.govern_once() {
                Ok(()) => failed = None,
                Err(e) if failed == Some(e) => {}
                Err(e) => {
                    tracing::error!("looking for files to migrate or purge failed: {e}");
                    failed = Some(e);
                }
            }
        }
    }

    /// One look at everything.
    pub(crate) fn govern_once(&self) -> Result<(), FsError> {
        // Before the look: a copy that is recorded after it may make room that the decision does not know of.
        let progress = self.writes.makes_progress();
        let classes = self.class_map()?;
        let now = crate::now();
        self.look_at_quotas()?;
        let decision = self.decide(&classes, now)?;
        let busy = !decision.migrate.is_empty();
        if !self.governor.busy.swap(busy, Ordering::Relaxed) && busy {
            self.governor.wake(); // for the candidates behind the first
        }
        let purged = self.purge_decided(&decision);
        let mut queued = 0;
        for mut batch in decision.migrate.iter().cloned() {
            self.leave_out_too_large(&mut batch);
            queued += self.enqueue(&batch, decision.mode.pressure == Pressure::Hard, now).added;
        }
        queued += self.push_requested(now)?;
        if queued > 0 {
            self.archive.send(Event::Backlog);
        }
        let stuck = decision.mode.pressure != Pressure::None
            && purged == 0
            && queued == 0
            && decision.purge.bytes == 0
            && !progress
            && !self.room_comes();
        self.set_disk_mode(decision.mode, stuck);
        self.objects.sweep(&self.catalog, &self.disk)?;
        if self.movers.is_used() {
            self.make_room_on_targets(now)?;
            if self.hurry_from_targets(&classes, now)? > 0 {
                self.archive.send(Event::Backlog);
            }
            self.movers.wake();
        }
        if purged > 0 {
            self.governor.wake();
        }
        Ok(())
    }

    /// All classes by name.
    pub(crate) fn class_map(&self) -> Result<BTreeMap<ClassName, Class>, FsError> {
        let classes = self.catalog.classes().map_err(|e| fs_error("read the classes of service", &e))?;
        Ok(classes.into_iter().map(|c| (c.name.clone(), c)).collect())
    }

    fn decide(&self, classes: &BTreeMap<ClassName, Class>, now: Time) -> Result<Decision, FsError> {
        let disk = self.look_at_space()?;
        let fail = |e| fs_error("look for files to migrate or purge", &e);
        let mut waiting = BTreeMap::new();
        for name in classes.keys() {
            waiting.insert(name.clone(), self.catalog.class_backlog(name).map_err(fail)?.bytes);
        }
        let enough = |c: &Class| c.migrate_bytes > 0 && waiting.get(&c.name) >= Some(&c.migrate_bytes);
        let all = self.governor.busy.load(Ordering::Relaxed)
            || disk.load() >= disk.high
            || disk.purges()
            || classes.values().any(enough);
        let mut page = self.next_candidates(if all { POOL_ENOUGH } else { FIRST_LOOK }).map_err(fail)?;
        if !all && !page.damaged.is_empty() {
            page = self.next_candidates(POOL_ENOUGH).map_err(fail)?; // they must not hide those behind them
        }
        page.damaged.iter().for_each(|(ino, e)| self.note_damage(*ino, e));
        let candidates: Vec<_> =
            page.found.into_iter().filter(|c| c.object.is_some() || c.dataless).map(candidate).collect();
        let page = match disk.purges() {
            true => self.catalog.purge_candidates(None, PURGE_PAGE).map_err(fail)?,
            false => catalog::Listed { found: Vec::new(), damaged: Vec::new() },
        };
        page.damaged.iter().for_each(|(ino, e)| self.note_damage(*ino, e));
        let purgeable_complete = page.found.len() + page.damaged.len() < PURGE_PAGE;
        let purgeable = self.purge_page(&page.found)?;
        let view = PolicyView {
            disk,
            classes,
            candidates: &candidates,
            waiting: &waiting,
            purgeable: &purgeable,
            purgeable_complete,
        };
        Ok(policy::decide(&view, now))
    }

    /// Files on disk as the policy sees them.
    pub(crate) fn purge_page(
        &self,
        page: &[catalog::PurgeCandidate],
    ) -> Result<Vec<policy::PurgeCandidate>, FsError> {
        let mut purgeable = Vec::with_capacity(page.len());
        for c in page {
            let file = match self.catalog.inode(c.ino) {
                Ok(inode) => inode.file,
                // Deleted since the page was read, or damaged.
                Err(e) if e.fs() == FsError::NotFound || e.is_damage() => None,
                Err(e) => return Err(fs_error("look for files to purge", &e)),
            };
            let Some(file) = file else { continue };
            purgeable.push(policy::PurgeCandidate {
                ino: c.ino,
                version: c.version,
                object: c.object,
                allocated: c.allocated,
                last_access: c.last_access,
                class: file.class,
                copies: file.copies,
                open: self.is_open(c.ino),
                pinned: file.pinned,
            });
        }
        Ok(purgeable)
    }

    /// The files that are due first, about `most` that nobody has queued, if some pool wants them. Files of a pool that has
    /// enough or takes no data stay at the front of the index: then it is walked page by page, so that those behind them
    /// have their turn.
    fn next_candidates(
        &self,
        most: usize,
    ) -> Result<catalog::Listed<catalog::Candidate>, catalog::CatalogError> {
        let sated = self.writes.sated();
        let mut walked = self.governor.walked.lock();
        if sated.is_empty() {
            *walked = None;
            return self.catalog.candidates(EVER, None, self.writes.len() + most);
        }
        let mut wanted = false;
        for pool in self.catalog.pools()?.into_iter().filter(|pool| !sated.contains(&pool.name)) {
            wanted |= self.catalog.pool_backlog(&pool.name)?.files > self.writes.queued(&pool.name) as u64;
        }
        if !wanted {
            return self.catalog.candidates(EVER, None, 0);
        }
        let page = self.catalog.candidates(EVER, walked.take(), POOL_ENOUGH)?;
        let full = page.found.len() + page.damaged.len() >= POOL_ENOUGH;
        *walked = page.found.last().filter(|_| full).map(|c| c.key);
        Ok(page)
    }

    /// A file whose records are damaged is left out of all work.
    pub(crate) fn note_damage(&self, ino: Ino, e: &catalog::CatalogError) {
        self.note_refused(ino, format!("inode {ino} is neither migrated nor purged: {e}"));
    }

    /// A file that cannot be moved until somebody has mended something: operators see it until then, the log says it once.
    pub(crate) fn note_refused(&self, ino: Ino, text: String) {
        let mut refused = self.governor.refused.lock();
        if refused.get(&ino) != Some(&text) && (refused.len() < REFUSED_NOTED || refused.contains_key(&ino)) {
            tracing::error!("{text}");
            refused.insert(ino, text);
        }
    }

    /// Those files that are still there and still lack what they lacked.
    pub(crate) fn refused(&self) -> Vec<String> {
        let mut refused = self.governor.refused.lock();
        refused.retain(|ino, _| match self.catalog.candidate(*ino) {
            Ok(candidate) => candidate.is_some(),
            Err(e) => e.is_damage(),
        });
        refused.values().cloned().collect()
    }

    fn purge_decided(&self, decision: &Decision) -> usize {
        let mut purged = 0;
        for item in &decision.purge.items {
            match self.purge_file(item.ino, item.version, item.object) {
                Ok(()) => purged += 1,
                Err(why) => tracing::debug!("inode {} is not purged: {why}", item.ino),
            }
        }
        if purged > 0 {
            tracing::info!("{}", decision.purge.explain());
        }
        purged
    }
}

fn candidate(c: catalog::Candidate) -> policy::Candidate {
    policy::Candidate {
        ino: c.ino,
        version: c.version,
        size: c.size,
        due: c.due,
        class: c.class,
        missing: c.missing,
    }
}
