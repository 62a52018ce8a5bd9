//! Files that are on their way through the disk tier to a new copy: brought back if they are not there, written by the drives
//! like every other file, and released again when the copy is recorded. So many bytes at a time that they are a small part
//! of the disk tier; as many again are files of which only one copy is left, so that these do not wait for the others. What
//! waits for a pool that takes no data leaves its room to the others, once.

mod patience;

use super::closed::{Closed, missing};
use crate::Node;
use crate::archive::Event;
use crate::clock::Moment;
use crate::files::{Joined, Outcome, Staging};
use policy::{MigrateBatch, MigrateItem, MigrateWhy};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::*;

/// Files at a time.
const MOST: usize = 5_000;
/// Share of the disk tier that they may take at most, and that files with one copy left may take besides.
const SHARE: u64 = 8;
/// All of them are looked at this often; in between those of which something is known to have happened.
const ALL_EVERY: Duration = Duration::from_secs(2);
/// A file that could not be brought back is left alone for this long.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Failures that are remembered; with so many no more is brought back to be mended until some are forgotten.
const MOST_FAILED: usize = 100_000;
/// Files to be mended are looked through from the first this often, but with a pause of so many times as long as it took before;
/// so many pages of so many files at a time.
const MEND_EVERY: Duration = Duration::from_secs(2);
const MEND_PAUSE: u32 = 4;
const MEND_PAGES: usize = 100;
const MEND_PAGE: usize = 100;

/// What a file is on its way to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// All copies that its class requires.
    Complete,
    /// The same, and it has only one: nothing but what users read goes before it.
    Rescue,
    /// This copy of it no longer lies on this volume.
    Leave(Barcode, CopyNo),
}

/// A file that is to be sent on its way: what of it, how long it is, and to what.
type Asked = (Ino, Version, u64, Goal);

#[derive(Clone)]
struct Flight {
    goal: Goal,
    /// Its recall waits for drives that nobody else wants until then.
    patient: Moment,
    /// It does not any more.
    raised: bool,
    version: Version,
    bytes: u64,
    /// The recall that it waits for.
    staging: Option<Arc<Staging>>,
    /// It was brought back for this, and goes again.
    staged: bool,
    /// Pool that its copy stays in.
    pool: Option<PoolName>,
    /// All pools that it waits for take no data.
    stands_still: bool,
}

impl Goal {
    fn is_rescue(&self) -> bool {
        *self == Self::Rescue
    }
}

/// Files of one kind, with one copy left or others: what is on its way, and how far those that are to come have been looked for.
#[derive(Default)]
struct Kind {
    files: usize,
    bytes: u64,
    /// Of these, what waits for pools that take no data.
    still: (usize, u64),
    /// Those up to this one have been looked at; 0: all.
    mended: Ino,
    begun: Option<Moment>,
    /// From one beginning to the next.
    every: Duration,
}

impl Kind {
    /// Whether so many bytes more may come.
    fn has_room(&self, node: &Node, bytes: u64) -> bool {
        let window = node.space.view().capacity / SHARE;
        // Once: what comes instead may come to stand still as well, and all of it lies in the disk tier.
        let (files, still) = (self.files - self.still.0.min(MOST), self.still.1.min(window));
        files < MOST && (self.bytes - still).saturating_add(bytes) <= window
    }

    /// Whether nothing is on its way that gets any further.
    fn is_empty(&self) -> bool {
        self.files == self.still.0
    }
}

/// See the module.
#[derive(Default)]
pub struct Flights {
    all: BTreeMap<Ino, Flight>,
    /// Of files with one copy left, and of the others.
    rescues: Kind,
    others: Kind,
    looked: Option<Moment>,
    /// Files that failed: not before then, and why.
    failed: BTreeMap<Ino, (Moment, String)>,
}

/// How a file stands.
enum Step {
    /// Nothing more to be done.
    Arrived,
    Waits,
    Failed(String),
}

impl Flights {
    /// Whether so many bytes more of files with several copies may come.
    pub fn has_room(&self, node: &Node, bytes: u64) -> bool {
        self.others.has_room(node, bytes)
    }

    fn kind(&mut self, rescue: bool) -> &mut Kind {
        if rescue { &mut self.rescues } else { &mut self.others }
    }

    fn insert(&mut self, ino: Ino, flight: Flight) {
        // Another part or copy of the same file: the next pass finds what is left of it.
        self.remove(ino);
        let kind = self.kind(flight.goal.is_rescue());
        (kind.files, kind.bytes) = (kind.files + 1, kind.bytes + flight.bytes);
        self.all.insert(ino, flight);
    }

    fn remove(&mut self, ino: Ino) -> bool {
        let Some(flight) = self.all.remove(&ino) else { return false };
        let kind = self.kind(flight.goal.is_rescue());
        (kind.files, kind.bytes) = (kind.files - 1, kind.bytes - flight.bytes);
        if flight.stands_still {
            kind.still = (kind.still.0 - 1, kind.still.1 - flight.bytes);
        }
        true
    }

    /// Whether nothing is on its way but files with one copy left, and those that get no further.
    pub fn is_empty(&self) -> bool {
        self.others.is_empty()
    }

    /// Whether a file is on its way.
    pub fn contains(&self, ino: Ino) -> bool {
        self.all.contains_key(&ino)
    }

    /// Files on their way from this volume.
    pub fn leaving(&self, volume: &Barcode) -> usize {
        let leaves = |f: &&Flight| matches!(&f.goal, Goal::Leave(from, _) if from == volume);
        self.all.values().filter(leaves).count()
    }

    /// Why a file could not go its way lately.
    pub fn failure(&self, ino: Ino) -> Option<&str> {
        let failed = self.failed.get(&ino).filter(|(until, _)| *until > Moment::now());
        failed.map(|(_, why)| why.as_str())
    }

    /// Sends files on their way.
    pub fn send(&mut self, node: &Node, files: Vec<Asked>) -> catalog::Result<()> {
        let mut tasks = Vec::new();
        // Looked up before any recall is begun: one that was begun and not sent would never end.
        let mut pools: BTreeMap<Barcode, Option<PoolName>> = BTreeMap::new();
        for (.., goal) in &files {
            if let Goal::Leave(volume, _) = goal
                && !pools.contains_key(volume)
            {
                pools.insert(volume.clone(), node.catalog.volume(volume)?.and_then(|v| v.pool));
            }
        }
        for (ino, version, bytes, goal) in files {
            let pool = match &goal {
                Goal::Leave(volume, _) => pools.get(volume).cloned().flatten(),
                Goal::Complete | Goal::Rescue => None,
            };
            let mut flight = Flight {
                goal,
                version,
                bytes,
                staging: None,
                staged: false,
                pool,
                stands_still: false,
                patient: Moment::now() + patience::PATIENCE,
                raised: false,
            };
            node.keeper.flying.store(true, Ordering::Release);
            let wish = crate::files::Wish::default();
            let joined = match node.is_dataless(ino) {
                Ok(true) => Ok(Joined::Resident),
                Ok(false) => node.join_recall(ino, wish),
                Err(e) => Err(e.fs()),
            };
            match joined {
                Ok(Joined::Resident) => {}
                Ok(Joined::Running(staging)) => flight.staging = Some(staging),
                Ok(Joined::Begun(mut task, _)) => {
                    let rescue = flight.goal == Goal::Rescue;
                    (task.background, task.account) = (!rescue, sched::AccountId::default());
                    if rescue {
                        task.priority = crate::limits::LOWEST;
                    }
                    if let Goal::Leave(volume, _) = &flight.goal {
                        task.prefer = Some(volume.clone());
                    }
                    flight.staging = Some(task.staging.clone());
                    flight.staged = true;
                    task.staging.set_passes();
                    tasks.push(task);
                }
                Err(FsError::NotFound) => continue,
                Err(e) => {
                    self.fail(ino, e.to_string());
                    continue;
                }
            }
            self.insert(ino, flight);
        }
        if !tasks.is_empty() {
            node.archive.send(Event::Recall(tasks));
        }
        let fresh: Vec<Ino> =
            self.all.iter().filter(|(_, f)| f.staging.is_none()).map(|(ino, _)| *ino).collect();
        self.look_at(node, &fresh)
    }

    fn fail(&mut self, ino: Ino, why: String) {
        self.failed.insert(ino, (Moment::now() + AGAIN_AFTER, why));
    }

    /// Offline files that lost a copy come back to disk, from where the copy is made.
    pub fn mend(&mut self, node: &Node) -> catalog::Result<()> {
        self.mend_kind(node, true)?;
        self.mend_kind(node, false)
    }

    /// Those of which only one copy is left, or the others.
    fn mend_kind(&mut self, node: &Node, rescue: bool) -> catalog::Result<()> {
        let kind = self.kind(rescue);
        let waits = kind.begun.is_some_and(|at| at.elapsed() < kind.every.max(MEND_EVERY));
        if kind.mended == Ino(0) && waits {
            return Ok(());
        }
        let closed = Closed::now(node)?;
        for _ in 0..MEND_PAGES {
            let full = self.failed.len() >= MOST_FAILED;
            let kind = self.kind(rescue);
            if full || !kind.has_room(node, 0) {
                return Ok(());
            }
            if kind.mended == Ino(0) {
                kind.begun = Some(Moment::now());
            }
            let page = node.catalog.to_mend(kind.mended, MEND_PAGE)?;
            let Some(last) = page.last() else {
                kind.mended = Ino(0);
                kind.every = kind.begun.map_or(Duration::ZERO, |at| at.elapsed() * MEND_PAUSE);
                return Ok(());
            };
            kind.mended = *last;
            let (files, left) = self.files_for_now(node, rescue, &closed, page);
            self.send(node, files)?;
            if let Some(left) = left {
                self.kind(rescue).mended = Ino(left.0 - 1);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Those of a page that come now, and the first for which there is no room.
    fn files_for_now(
        &mut self,
        node: &Node,
        rescue: bool,
        closed: &Closed,
        page: Vec<Ino>,
    ) -> (Vec<Asked>, Option<Ino>) {
        let (mut files, mut coming) = (Vec::new(), 0u64);
        for ino in page {
            if self.contains(ino) || self.failure(ino).is_some() {
                continue;
            }
            let Ok(inode) = node.catalog.inode(ino) else { continue };
            let Some(file) = inode.file else { continue };
            let goal = if file.copies.len() > 1 { Goal::Complete } else { Goal::Rescue };
            if goal.is_rescue() != rescue {
                continue;
            }
            let lacks = missing(node, &file).unwrap_or_default();
            let lacks: Vec<PoolName> = lacks.into_iter().map(|(pool, _)| pool).collect();
            if closed.keeps_out(node, ino, &lacks) {
                continue;
            }
            let kind = self.kind(rescue);
            // One that is larger than all the room comes by itself.
            let alone = files.is_empty() && kind.is_empty();
            coming = coming.saturating_add(inode.attr.size);
            if !alone && !kind.has_room(node, coming) {
                return (files, Some(ino));
            }
            files.push((ino, file.version, inode.attr.size, goal));
        }
        (files, None)
    }

    /// Looks at those of which something happened, now and then at all.
    pub fn tick(&mut self, node: &Node) -> catalog::Result<()> {
        for (ino, why) in std::mem::take(&mut *node.keeper.refused.lock()) {
            if self.remove(ino) {
                self.failed.insert(ino, (Moment::now() + AGAIN_AFTER, why));
            }
        }
        let touched = std::mem::take(&mut *node.keeper.touched.lock());
        if self.looked.is_none_or(|at| at.elapsed() >= ALL_EVERY) {
            let now = Moment::now();
            self.looked = Some(now);
            self.failed.retain(|_, (until, _)| *until > now);
            for staging in self.impatient(node) {
                let (account, priority) = (sched::AccountId::default(), crate::limits::LOWEST);
                node.archive.send(Event::Raise { staging, account, priority, deadline: None });
            }
            let all: Vec<Ino> = self.all.keys().copied().collect();
            self.look_at(node, &all)?;
            self.look_for_closed(node)?;
        } else {
            self.look_at(node, &touched)?;
        }
        node.keeper.flying.store(!self.all.is_empty(), Ordering::Release);
        let coming = |f: &&Flight| f.staging.as_ref().is_some_and(|s| s.outcome().is_none());
        node.writes.set_coming(self.all.values().filter(coming).filter_map(|f| f.pool.clone()).collect());
        Ok(())
    }

    /// Finds those that get no further, because the pools that they wait for take no data.
    fn look_for_closed(&mut self, node: &Node) -> catalog::Result<()> {
        let closed = Closed::now(node)?;
        let (mut rescues, mut others) = ((0, 0), (0, 0));
        for (ino, flight) in &mut self.all {
            let pools: Vec<PoolName> = match (&flight.goal, &flight.pool) {
                (Goal::Leave(..), pool) => pool.iter().cloned().collect(),
                // What cannot be looked at shows when it is its turn.
                _ => node.catalog.archived(*ino).ok().flatten().map_or_else(
                    || Ok(Vec::new()),
                    |file| missing(node, &file).map(|all| all.into_iter().map(|(pool, _)| pool).collect()),
                )?,
            };
            flight.stands_still = closed.keeps_out(node, *ino, &pools);
            if flight.stands_still {
                let (files, bytes) = if flight.goal.is_rescue() { &mut rescues } else { &mut others };
                (*files, *bytes) = (*files + 1, *bytes + flight.bytes);
            }
        }
        (self.rescues.still, self.others.still) = (rescues, others);
        Ok(())
    }

    fn look_at(&mut self, node: &Node, files: &[Ino]) -> catalog::Result<()> {
        let mut writes: BTreeMap<PoolName, MigrateBatch> = BTreeMap::new();
        let mut first = HashSet::new();
        for ino in files {
            let Some(flight) = self.all.get_mut(ino) else { continue };
            match step(node, *ino, flight, (&mut writes, &mut first))? {
                Step::Waits => continue,
                Step::Arrived => {}
                Step::Failed(why) => {
                    let path = node.catalog.path_of(*ino).unwrap_or_default();
                    let path = types::escape(&path);
                    let text = format!("{path} (inode {ino}) does not come back for a new copy: {why}");
                    node.archive.warn(text);
                    self.failed.insert(*ino, (Moment::now() + AGAIN_AFTER, why));
                }
            }
            self.remove(*ino);
            node.keeper.wake();
        }
        let mut added = 0;
        for batch in writes.into_values() {
            added += node.enqueue(&batch, false, crate::now()).added;
        }
        node.writes.go_first(&first);
        if added > 0 {
            node.archive.send(Event::Backlog);
        }
        Ok(())
    }
}

/// Looks how a file stands, and does the next thing for it.
fn step(
    node: &Node,
    ino: Ino,
    flight: &mut Flight,
    (writes, first): (&mut BTreeMap<PoolName, MigrateBatch>, &mut HashSet<(Ino, CopyNo)>),
) -> catalog::Result<Step> {
    let known = match node.catalog.archived(ino) {
        Ok(known) => known,
        Err(e) if e.is_damage() => return Ok(Step::Failed(e.to_string())),
        Err(e) => return Err(e),
    };
    let Some(file) = known.filter(|f| f.version == flight.version) else { return Ok(Step::Arrived) };
    let there = match &flight.goal {
        Goal::Complete | Goal::Rescue => file.copies.len() >= node.copies_required(&file.class),
        Goal::Leave(volume, copy) => !lies_on(node, ino, file.version, *copy, volume)?,
    };
    if there {
        if let (true, Some(object)) = (flight.staged, file.object)
            && let Err(why) = node.purge_file(ino, file.version, object)
        {
            tracing::debug!("inode {ino} stays on disk: {why}");
        }
        return Ok(Step::Arrived);
    }
    if file.object.is_none() && !node.is_dataless(ino)? {
        return Ok(match flight.staging.as_ref().map(|s| s.outcome()) {
            Some(None) => Step::Waits,
            Some(Some(Outcome::Failed(why))) => Step::Failed(why),
            // It was purged meanwhile: from the beginning.
            _ => Step::Arrived,
        });
    }
    let mut write = |pool: PoolName, copy: CopyNo| {
        let batch = writes.entry(pool.clone()).or_insert_with(|| MigrateBatch {
            class: file.class.clone(),
            pool,
            items: Vec::new(),
            bytes: 0,
            why: MigrateWhy::Age,
        });
        let (version, due) = (file.version, Time::default());
        batch.bytes += flight.bytes;
        batch.items.push(MigrateItem { ino, version, copy, size: flight.bytes, due });
    };
    match (&flight.goal, flight.pool.clone()) {
        (Goal::Leave(_, copy), Some(pool)) => write(pool, *copy),
        (Goal::Rescue, _) => {
            for (pool, copy) in missing(node, &file)? {
                first.insert((ino, copy));
                write(pool, copy);
            }
        }
        // The governor sees to it that copies are made.
        _ => {}
    }
    Ok(Step::Waits)
}

impl Node {
    /// Whether it is a node without data, or what is left of one: of it the catalogue has all there is to copy.
    fn is_dataless(&self, ino: Ino) -> catalog::Result<bool> {
        match self.catalog.inode(ino) {
            Ok(inode) => Ok(inode.attr.kind != FileKind::File),
            Err(e) if e.fs() == FsError::NotFound => Ok(self.catalog.archived(ino)?.is_some()),
            Err(e) => Err(e),
        }
    }
}

/// Whether a part of this copy lies on the volume.
pub fn lies_on(
    node: &Node,
    ino: Ino,
    version: Version,
    copy: CopyNo,
    volume: &Barcode,
) -> catalog::Result<bool> {
    let copies = node.catalog.version_copies(ino, version)?;
    let found = copies.into_iter().find(|c| c.copy == copy);
    Ok(found.is_some_and(|c| c.segments.iter().any(|s| s.volume == *volume)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use types::api::{FileApi, OpenFlags};

    /// A file with a copy on one volume, another copy of which was just lost.
    fn with_one_copy_left(node: &Node) -> Ino {
        let (ino, version) = offline(node);
        lose_one(node, ino, version);
        ino
    }

    /// A file with copies on two volumes.
    pub(super) fn offline(node: &Node) -> (Ino, Version) {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let opened = node.create(&Cx::admin(crate::now()), Ino::ROOT, b"file", 0o644, flags).unwrap();
        node.write(opened.handle, 0, b"content").unwrap();
        node.release(opened.handle);
        let ino = opened.attr.ino;
        drop(opened); // it has a descriptor that can write
        let file = || node.catalog.inode(ino).unwrap().file.unwrap();
        let (version, object) = (file().version, file().object.unwrap());
        let begun = std::time::Instant::now();
        // Not before it has two copies.
        while let Err(why) = node.purge_file(ino, version, object) {
            assert!(begun.elapsed() < Duration::from_secs(120), "it stays on disk: {why}");
            std::thread::sleep(Duration::from_millis(10));
        }
        (ino, version)
    }

    pub(super) fn lose_one(node: &Node, ino: Ino, version: Version) {
        let copy = node.catalog.version_copies(ino, version).unwrap().remove(0);
        let volume = copy.segments[0].volume.clone();
        let lost = catalog::LostCopy { ino, version, copy: copy.copy, volume };
        node.catalog.lose_copies(&[lost], crate::now()).unwrap();
    }

    #[test]
    fn files_with_one_copy_left_do_not_wait_for_room_that_others_take() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.classes[0].migrate_after_s = 0;
        let node = Node::start(config).unwrap();
        // What it would do by itself is done here.
        node.keeper.stop();
        let ino = with_one_copy_left(&node);
        let full = || Kind { files: MOST, ..Kind::default() };
        let mut flights = Flights { rescues: full(), ..Flights::default() };
        flights.mend(&node).unwrap();
        assert!(!flights.contains(ino), "these have their limit too");
        let mut flights = Flights { others: full(), ..Flights::default() };
        flights.mend(&node).unwrap();
        assert!(flights.contains(ino));
        assert_eq!((flights.rescues.files, flights.rescues.bytes, flights.others.files), (1, 7, MOST));
        flights.remove(ino);
        assert_eq!((flights.rescues.files, flights.rescues.bytes), (0, 0));
        node.stop(true);
    }

    #[test]
    fn what_waits_for_a_pool_that_takes_no_data_leaves_its_room_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.classes[0].migrate_after_s = 0;
        let node = Node::start(config).unwrap();
        node.keeper.stop();
        let ino = with_one_copy_left(&node);
        // From here on nobody else says which pools take data.
        node.stop(true);
        let file = node.catalog.archived(ino).unwrap().unwrap();
        let lacks = missing(&node, &file).unwrap();
        let [(pool, _)] = &lacks[..] else { panic!("{lacks:?}") };
        let takes_data = |yes: bool| node.writes.set_blocked(pool, (!yes).then(|| "no volume".into()));
        let almost = || Kind { files: MOST - 1, ..Kind::default() };
        let mut flights = Flights { rescues: almost(), ..Flights::default() };
        takes_data(false);
        flights.mend(&node).unwrap();
        assert!(!flights.contains(ino), "it would only lie on disk");
        takes_data(true);
        flights.rescues.begun = None;
        flights.mend(&node).unwrap();
        assert!(flights.contains(ino) && !flights.rescues.has_room(&node, 0));
        for (yes, still) in [(false, (1, 7)), (true, (0, 0)), (false, (1, 7))] {
            takes_data(yes);
            flights.looked = None;
            flights.tick(&node).unwrap();
            assert_eq!((flights.rescues.still, flights.rescues.has_room(&node, 0)), (still, !yes));
        }
        // Not more than once.
        flights.rescues.files = 2 * MOST;
        flights.rescues.still = (MOST + 1, 7);
        assert!(!flights.rescues.has_room(&node, 0));
        (flights.rescues.files, flights.rescues.still) = (1, (1, 7));
        assert!(flights.rescues.is_empty(), "a large file may come alone");
        flights.remove(ino);
        assert_eq!((flights.rescues.files, flights.rescues.bytes, flights.rescues.still), (0, 0, (0, 0)));
    }
}
