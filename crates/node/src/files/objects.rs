//! Disk objects for new content: a stock of empty, already durable objects, so that creating a file costs one open.
//!
//! Every allocated object is *unowned* in the catalogue until an operation gives it to an inode (same transaction), and
//! becomes unowned again when content is replaced, purged or deleted. The sweep removes unowned objects from disk, but
//! only after the catalogue's change is durable: a crash may then leave an object too many, never one too few.

use crate::error::fs_error;
use catalog::Catalog;
use disk::DiskTarget;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use types::{FsError, ObjectId};

const STOCK: usize = 1024;

/// The stock.
pub struct ObjectPool {
    stock: Mutex<VecDeque<(ObjectId, OwnedFd)>>,
    /// Unowned objects that are in use (stock, recalls in flight): the sweep leaves them alone.
    reserved: Mutex<HashSet<ObjectId>>,
    refilling: Mutex<()>,
}

impl ObjectPool {
    /// An empty stock.
    pub fn new() -> Self {
        Self { stock: Mutex::default(), reserved: Mutex::default(), refilling: Mutex::new(()) }
    }

    /// An empty object, open for reading and writing. Stays reserved until [`ObjectPool::settle`].
    pub fn take(&self, catalog: &Catalog, disk: &DiskTarget) -> Result<(ObjectId, OwnedFd), FsError> {
        loop {
            if let Some(one) = self.stock.lock().pop_front() {
                return Ok(one);
            }
            self.refill(catalog, disk, 64)?;
        }
    }

    /// The object now belongs to an inode, or is to be swept.
    pub fn settle(&self, object: ObjectId) {
        self.reserved.lock().remove(&object);
    }

    /// Puts an unused object back.
    pub fn give_back(&self, object: ObjectId, fd: OwnedFd) {
        self.stock.lock().push_back((object, fd));
    }

    /// Whether the stock is low.
    pub fn is_low(&self) -> bool {
        self.stock.lock().len() < STOCK / 2
    }

    /// Fills the stock up (called in the background).
    pub fn top_up(&self, catalog: &Catalog, disk: &DiskTarget) -> Result<(), FsError> {
        while self.stock.lock().len() < STOCK {
            self.refill(catalog, disk, 256)?;
        }
        Ok(())
    }

    fn refill(&self, catalog: &Catalog, disk: &DiskTarget, count: u64) -> Result<(), FsError> {
        let _one_at_a_time = self.refilling.lock();
        let ids = catalog.alloc_objects(count).map_err(|e| fs_error("allocate disk objects", &e))?;
        self.reserved.lock().extend(ids.clone().map(ObjectId));
        disk.precreate(ids.clone()).map_err(|e| crate::error::disk_error("create disk objects", &e))?;
        for id in ids.map(ObjectId) {
            let fd =
                disk.open_object(id, true).map_err(|e| crate::error::disk_error("open disk object", &e))?;
            self.stock.lock().push_back((id, fd));
        }
        Ok(())
    }

    /// Removes unowned objects that nobody reserved; returns how many.
    pub fn sweep(&self, catalog: &Catalog, disk: &DiskTarget) -> Result<usize, FsError> {
        let fail = |e: &catalog::CatalogError| fs_error("sweep disk objects", e);
        let mut after = ObjectId(0);
        let mut removed = 0;
        loop {
            let page = catalog.unowned_objects(after, 1000).map_err(|e| fail(&e))?;
            let Some(&last) = page.last() else { return Ok(removed) };
            let doomed: Vec<ObjectId> = {
                let reserved = self.reserved.lock();
                page.into_iter().filter(|id| !reserved.contains(id)).collect()
            };
            if !doomed.is_empty() {
                catalog.sync().map_err(|e| fail(&e))?;
                for &id in &doomed {
                    match disk.remove(id) {
                        Ok(_) | Err(disk::DiskError::Missing { .. }) => {}
                        Err(e) => return Err(crate::error::disk_error("remove disk object", &e)),
                    }
                }
                removed += doomed.len();
                catalog.forget_objects(&doomed).map_err(|e| fail(&e))?;
            }
            after = last;
        }
    }
}
