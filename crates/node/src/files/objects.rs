//! Disk objects for new content: a stock of empty, already durable objects, so that creating a file costs one open.
//!
//! Every allocated object is *unowned* in the catalogue until an operation gives it to an inode (same transaction), and
//! becomes unowned again when content is replaced, purged or deleted. The sweep removes unowned objects from disk, but
//! only after the catalogue's change is durable: a crash may then leave an object too many, never one too few.

use crate::error::{disk_error, fs_error};
use catalog::Catalog;
use disk::DiskTarget;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::{FsError, ObjectId, ObjectStamp};

/// Objects in a full stock; it is filled up again when half of them are gone.
const STOCK: usize = 1024;
/// Objects made at once: as many as share a directory, which is synced once for all of them.
const BATCH: u64 = 256;
/// Pause before objects are made again after that failed (a full disk, most likely).
const RETRY: Duration = Duration::from_millis(250);

/// An object in the stock.
struct Stocked {
    object: ObjectId,
    /// How it is since it was made; None if it was taken meanwhile.
    stamp: Option<ObjectStamp>,
    /// None if nobody wanted it open, or no descriptor was left, when it was made.
    fd: Option<OwnedFd>,
}

/// The stock.
pub struct ObjectPool {
    stock: Mutex<VecDeque<Stocked>>,
    reserved: Mutex<Reserved>,
    refilling: Mutex<()>,
    /// The stock is low, or the end has come.
    low: Condvar,
    stopped: AtomicBool,
    /// The last to take an object wanted it open: the next ones are opened ahead.
    opens: AtomicBool,
    /// Objects in a full stock.
    full: usize,
}

/// Unowned objects that the sweep must leave alone.
#[derive(Clone)]
struct Reserved {
    /// Stock, and recalls in flight.
    objects: HashSet<ObjectId>,
    /// Objects above this may be allocated but not yet be in `objects`.
    known_to: ObjectId,
}

impl ObjectPool {
    /// An empty stock. What is unowned so far is left over from earlier runs and goes with the first sweep.
    pub fn new(catalog: &Catalog) -> Result<Self, FsError> {
        let next = catalog.alloc_objects(1).map_err(|e| fs_error("allocate disk objects", &e))?;
        let reserved = Reserved { objects: HashSet::new(), known_to: ObjectId(next.start) };
        Ok(Self {
            stock: Mutex::default(),
            reserved: Mutex::new(reserved),
            refilling: Mutex::new(()),
            low: Condvar::new(),
            stopped: AtomicBool::new(false),
            opens: AtomicBool::new(true),
            full: STOCK,
        })
    }

    /// The same with another size of the stock: one that is often started anew should not make hundreds each time.
    pub fn with_stock(self, full: usize) -> Self {
        Self { full: full.max(1), ..self }
    }

    /// An empty object, open for reading and writing. Stays reserved until [`ObjectPool::settle`].
    pub fn take(&self, catalog: &Catalog, disk: &DiskTarget) -> Result<(ObjectId, OwnedFd), FsError> {
        self.opens.store(true, Ordering::Relaxed);
        let stocked = self.next(catalog, disk)?;
        self.open(disk, stocked)
    }

    /// An empty object and how it is, for a file that nobody opens: most are never opened for it. Stays reserved until [`ObjectPool::settle`].
    pub fn take_closed(
        &self,
        catalog: &Catalog,
        disk: &DiskTarget,
    ) -> Result<(ObjectId, ObjectStamp), FsError> {
        self.opens.store(false, Ordering::Relaxed);
        let stocked = self.next(catalog, disk)?;
        if let Some(stamp) = stocked.stamp {
            return Ok((stocked.object, stamp));
        }
        let (object, fd) = self.open(disk, stocked)?;
        let stamp = disk.stamp(&fd).map_err(|e| disk_error("look at a disk object", &e));
        if stamp.is_err() {
            self.give_back(object, Some(fd));
        }
        stamp.map(|stamp| (object, stamp))
    }

    fn next(&self, catalog: &Catalog, disk: &DiskTarget) -> Result<Stocked, FsError> {
        loop {
            {
                let mut stock = self.stock.lock();
                let one = stock.pop_front();
                if stock.len() < self.full / 2 {
                    self.low.notify_one();
                }
                if let Some(one) = one {
                    return Ok(one);
                }
            }
            self.refill(catalog, disk, 1)?;
        }
    }

    /// Opens an object of the stock if it is not open; if that fails it goes back.
    fn open(&self, disk: &DiskTarget, stocked: Stocked) -> Result<(ObjectId, OwnedFd), FsError> {
        let Stocked { object, stamp, fd } = stocked;
        if let Some(fd) = fd {
            return Ok((object, fd));
        }
        let opened = disk.open_object(object, true).map_err(|e| disk_error("open disk object", &e));
        if opened.is_err() {
            self.stock.lock().push_back(Stocked { object, stamp, fd: None });
        }
        opened.map(|fd| (object, fd))
    }

    /// The object now belongs to an inode, or is to be swept.
    pub fn settle(&self, object: ObjectId) {
        self.reserved.lock().objects.remove(&object);
    }

    /// Puts an unused object back, with its descriptor if it was opened.
    pub fn give_back(&self, object: ObjectId, fd: Option<OwnedFd>) {
        self.stock.lock().push_back(Stocked { object, stamp: None, fd });
    }

    /// Fills the stock up.
    pub fn top_up(&self, catalog: &Catalog, disk: &DiskTarget) -> Result<(), FsError> {
        while self.stock.lock().len() < self.full {
            self.refill(catalog, disk, self.full)?;
        }
        Ok(())
    }

    /// The thread that fills the stock up whenever it is low, until [`ObjectPool::stop`]: a sync of a directory costs
    /// more than a hundred creates, so no create should wait for one.
    pub fn keep_stocked(&self, catalog: &Catalog, disk: &DiskTarget) {
        let mut failed = None;
        while self.wait_until_low(failed.is_some()) {
            match self.top_up(catalog, disk) {
                Ok(()) => failed = None,
                Err(e) if failed == Some(e) => {}
                Err(e) => {
                    tracing::error!("no new disk objects, creating files will fail: {e}");
                    failed = Some(e);
                }
            }
        }
    }

    fn wait_until_low(&self, failed: bool) -> bool {
        let mut stock = self.stock.lock();
        if failed && !self.stopped.load(Ordering::Acquire) {
            self.low.wait_for(&mut stock, RETRY);
        }
        while stock.len() >= self.full / 2 && !self.stopped.load(Ordering::Acquire) {
            self.low.wait(&mut stock);
        }
        !self.stopped.load(Ordering::Acquire)
    }

    /// Ends the thread that fills the stock up.
    pub fn stop(&self) {
        let _stock = self.stock.lock();
        self.stopped.store(true, Ordering::Release);
        self.low.notify_all();
    }

    /// Makes one batch, unless somebody else has just brought the stock to `wanted`.
    fn refill(&self, catalog: &Catalog, disk: &DiskTarget, wanted: usize) -> Result<(), FsError> {
        let _one_at_a_time = self.refilling.lock();
        if self.stock.lock().len() >= wanted {
            return Ok(());
        }
        let ids = catalog
            .alloc_objects(BATCH.min(self.full as u64))
            .map_err(|e| fs_error("allocate disk objects", &e))?;
        {
            let mut reserved = self.reserved.lock();
            reserved.objects.extend(ids.clone().map(ObjectId));
            reserved.known_to = ObjectId(ids.end.saturating_sub(1));
        }
        let made = disk.precreate(ids.clone()).map_err(|e| {
            // What was not made goes with the next sweep.
            ids.map(ObjectId).for_each(|id| self.settle(id));
            disk_error("create disk objects", &e)
        })?;
        for (object, stamp) in made {
            let opens = self.opens.load(Ordering::Relaxed);
            let fd = opens.then(|| disk.open_object(object, true).ok()).flatten(); // the next to take it tries again, and says why it cannot
            self.stock.lock().push_back(Stocked { object, stamp: Some(stamp), fd });
        }
        Ok(())
    }

    /// Removes unowned objects that nobody reserved; returns how many.
    ///
    /// What is reserved is noted *before* the catalogue is asked: an object noted as free can only have been given up,
    /// and one given to a file meanwhile is among those noted (see `an_object_given_away_during_a_sweep_is_kept`).
    pub fn sweep(&self, catalog: &Catalog, disk: &DiskTarget) -> Result<usize, FsError> {
        let mut after = ObjectId(0);
        let mut removed = 0;
        loop {
            let reserved = self.reserved.lock().clone();
            let page =
                catalog.unowned_objects(after, 1000).map_err(|e| fs_error("sweep disk objects", &e))?;
            let Some(&last) = page.last() else { return Ok(removed) };
            removed += self.remove_page(catalog, disk, page, &reserved)?;
            after = last;
        }
    }

    fn remove_page(
        &self,
        catalog: &Catalog,
        disk: &DiskTarget,
        page: Vec<ObjectId>,
        reserved: &Reserved,
    ) -> Result<usize, FsError> {
        let free = |id: &ObjectId| *id <= reserved.known_to && !reserved.objects.contains(id);
        let doomed: Vec<ObjectId> = page.into_iter().filter(free).collect();
        if doomed.is_empty() {
            return Ok(0);
        }
        catalog.sync().map_err(|e| fs_error("sweep disk objects", &e))?;
        let mut gone = Vec::with_capacity(doomed.len());
        for id in doomed {
            match disk.remove(id) {
                Ok(_) | Err(disk::DiskError::Missing { .. }) => gone.push(id),
                // One bad object must not keep the others; it is tried again with the next sweep.
                Err(e) => drop(disk_error("remove disk object", &e)),
            }
        }
        // The catalogue knows them until they are gone for good: the power may fail, and they be there again.
        disk.sync_entries(&gone).map_err(|e| disk_error("sweep disk objects", &e))?;
        catalog.forget_objects(&gone).map_err(|e| fs_error("sweep disk objects", &e))?;
        Ok(gone.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::New;
    use std::sync::Arc;
    use types::{Cx, Ino, Time};

    #[test]
    fn objects_that_could_not_be_made_are_not_reserved_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskTarget::open(dir.path()).unwrap();
        let now = Time::new(1_000, 0);
        let catalog = Catalog::open(Arc::new(kv::MemoryEngine::new()), now).unwrap();
        let pool = ObjectPool::new(&catalog).unwrap();
        let next = catalog.alloc_objects(1).unwrap();
        // Something lies where an object of the next batch would be.
        let in_the_way = ObjectId(next.end + 10);
        drop(disk.create(in_the_way).unwrap());
        assert!(pool.take(&catalog, &disk).is_err());
        assert_eq!(pool.reserved.lock().objects.len(), 0);
        assert!(pool.sweep(&catalog, &disk).unwrap() >= 64);
        assert_eq!(catalog.unowned_objects(ObjectId(0), 1_000).unwrap(), []);
        let (object, _fd) = pool.take(&catalog, &disk).unwrap();
        assert!(object > in_the_way);
    }

    /// In a process of its own, with few descriptors: without them objects stay in the stock, and nothing is made in vain.
    #[test]
    #[ignore = "run by without_descriptors_nothing_is_made_in_vain"]
    fn child_without_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskTarget::open(dir.path()).unwrap();
        let catalog = Catalog::open(Arc::new(kv::MemoryEngine::new()), Time::new(1_000, 0)).unwrap();
        let pool = ObjectPool::new(&catalog).unwrap();
        let mut taken = Vec::new();
        let failed = (0..BATCH).find_map(|_| pool.take(&catalog, &disk).map(|one| taken.push(one)).err());
        assert!(failed.is_some(), "there are too many descriptors for this test");
        for _ in 0..3 {
            assert!(pool.take(&catalog, &disk).is_err());
        }
        let mut had: Vec<ObjectId> = taken.drain(..).map(|(object, _)| object).collect();
        assert_eq!(pool.sweep(&catalog, &disk).unwrap(), 1, "the number that the pool began with");
        while had.len() < BATCH as usize {
            had.push(pool.take(&catalog, &disk).unwrap().0); // closes it at once
        }
        let all: HashSet<ObjectId> = had.iter().copied().collect();
        let (first, last) = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
        assert_eq!((all.len() as u64, last.0 - first.0), (BATCH, BATCH - 1), "one batch");
    }

    #[test]
    fn without_descriptors_nothing_is_made_in_vain() {
        let mut child = std::process::Command::new("sh");
        child.args([
            "-c",
            "ulimit -n 100; exec \"$0\" --exact --ignored files::objects::tests::child_without_descriptors",
        ]);
        let ran = child.arg(std::env::current_exe().unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    }

    /// Whether an object of the stock is open, by its place.
    fn opened(pool: &ObjectPool) -> Vec<bool> {
        pool.stock.lock().iter().map(|one| one.fd.is_some()).collect()
    }

    #[test]
    fn objects_are_opened_ahead_for_those_who_want_them_open() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskTarget::open(dir.path()).unwrap();
        let catalog = Catalog::open(Arc::new(kv::MemoryEngine::new()), Time::new(1_000, 0)).unwrap();
        let pool = ObjectPool::new(&catalog).unwrap().with_stock(4);
        pool.take(&catalog, &disk).unwrap();
        assert_eq!(opened(&pool), [true; 3]);
        (0..4).for_each(|_| _ = pool.take_closed(&catalog, &disk).unwrap());
        assert_eq!(opened(&pool), [false; 3]);
        for _ in 0..4 {
            let (object, fd) = pool.take(&catalog, &disk).unwrap();
            disk.write_at(&fd, object.0.to_string().as_bytes(), 0).unwrap();
            assert!(disk.open_object(object, false).is_ok());
        }
        assert_eq!(opened(&pool), [true; 3]);
    }

    #[test]
    fn an_object_for_a_file_that_nobody_opens_is_as_it_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskTarget::open(dir.path()).unwrap();
        let catalog = Catalog::open(Arc::new(kv::MemoryEngine::new()), Time::new(1_000, 0)).unwrap();
        let pool = ObjectPool::new(&catalog).unwrap().with_stock(2);
        let stamp = |object| disk.stamp(disk.open_object(object, false).unwrap()).unwrap();
        // Opened ahead, and not.
        for _ in 0..4 {
            let (object, said) = pool.take_closed(&catalog, &disk).unwrap();
            assert_eq!(said, stamp(object));
        }
        // What somebody has had is looked at again.
        let (object, fd) = pool.take(&catalog, &disk).unwrap();
        let before = disk.stamp(&fd).unwrap();
        disk.write_at(&fd, b"changed", 0).unwrap();
        pool.give_back(object, Some(fd));
        let found = std::iter::repeat_with(|| pool.take_closed(&catalog, &disk).unwrap());
        let (_, said) = found.take(4).find(|(taken, _)| *taken == object).unwrap();
        assert_eq!(said, stamp(object));
        assert_ne!(said, before);
        // It can be given back and opened.
        pool.give_back(object, None);
        assert!((0..4).any(|_| pool.take(&catalog, &disk).unwrap().0 == object));
    }

    #[test]
    fn the_stock_is_filled_up_behind_its_users() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskTarget::open(dir.path()).unwrap();
        let catalog = Catalog::open(Arc::new(kv::MemoryEngine::new()), Time::new(1_000, 0)).unwrap();
        let pool = ObjectPool::new(&catalog).unwrap();
        pool.top_up(&catalog, &disk).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| pool.keep_stocked(&catalog, &disk));
            for _ in 0..=STOCK / 2 {
                pool.take(&catalog, &disk).unwrap();
            }
            let end = std::time::Instant::now() + Duration::from_secs(300);
            while pool.stock.lock().len() < STOCK && std::time::Instant::now() < end {
                std::thread::yield_now();
            }
            pool.stop();
        });
        assert!(pool.stock.lock().len() >= STOCK, "nobody fills the stock up");
    }

    #[test]
    fn an_object_given_away_during_a_sweep_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskTarget::open(dir.path()).unwrap();
        let now = Time::new(1_000, 0);
        let catalog = Catalog::open(Arc::new(kv::MemoryEngine::new()), now).unwrap();
        let pool = ObjectPool::new(&catalog).unwrap();
        std::thread::scope(|scope| {
            let users: Vec<_> = (0..2)
                .map(|user| {
                    let (pool, catalog, disk) = (&pool, &catalog, &disk);
                    scope.spawn(move || {
                        for i in 0..300 {
                            let (object, _fd) = pool.take(catalog, disk).unwrap();
                            let name = format!("{user}-{i}");
                            let new = New::file(0o600, object);
                            catalog.create(&Cx::admin(now), Ino::ROOT, name.as_bytes(), &new).unwrap();
                            pool.settle(object);
                        }
                    })
                })
                .collect();
            while users.iter().any(|u| !u.is_finished()) {
                pool.sweep(&catalog, &disk).unwrap();
            }
        });
        for (_, inode) in catalog.readdir_plus(Ino::ROOT, 0, 1_000).unwrap().found {
            let inode = inode.unwrap();
            let object = inode.file.unwrap().object.unwrap();
            assert!(disk.exists(object).unwrap(), "object {object} of inode {} is gone", inode.attr.ino);
        }
    }
}
