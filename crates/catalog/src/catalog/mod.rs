//! The entrance: every method is one transaction (the few that are several say so).

mod adoption;
mod archive;
mod changes;
mod cluster;
mod data;
mod junctions;
mod keep;
mod layouts;
mod names;
mod opened;
mod requests;
mod spares;
mod targets;

pub use archive::{FilesPage, VolumeFiles};
pub use keep::{TapePlace, place_of};

use crate::Result;
use crate::classes::Classes;
use crate::leading::Leading;
use crate::ops::{junction, open, sums, volume};
use crate::recorded::Recorded;
use crate::store::{Tx, View};
use kv::{Durability, Engine};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use types::{Ino, Time};

/// Inode numbers and cookies reserved at a time; a restart skips what is left of them.
const ID_BATCH: u64 = 4096;
/// Entries of a volume's tree dropped in one transaction.
const DROP_BATCH: usize = 1000;
/// Objects on targets that are added to the sums of their owners in one transaction.
const COUNT_BATCH: usize = 1000;

/// The catalogue over one engine. All methods take `&self` and may be called from any thread.
pub struct Catalog {
    engine: Arc<dyn Engine>,
    classes: Classes,
    leading: Leading,
    recorded: Recorded,
    ids: Mutex<Range<u64>>,
    changes: changes::Changes,
    open: opened::Open,
    watched_by: OnceLock<Box<Watched>>,
}

/// Who is told of inodes of which attributes or, of directories, entries may have changed.
pub type Watched = dyn Fn(&[Ino]) + Send + Sync;

impl Catalog {
    /// Opens the catalogue in `engine`; makes the root directory (mode 0755, owner 0, class `default`, which makes no
    /// copies until `put_class` says where) when it is new, and ends what a crash interrupted. Refuses a catalogue
    /// written by a newer release.
    pub fn open(engine: Arc<dyn Engine>, now: Time) -> Result<Self> {
        let (classes, leading, recorded) = (Classes::default(), Leading::default(), Recorded::default());
        let (ids, changes, open) = (Mutex::default(), changes::Changes::default(), opened::Open::default());
        let watched_by = OnceLock::new();
        let catalog = Self { engine, classes, leading, recorded, ids, changes, open, watched_by };
        catalog.write(Durability::Durable, |tx| open::open(tx, now))?;
        catalog.read(junction::note_all)?;
        catalog.finish_drops()?;
        catalog.count_far()?;
        Ok(catalog)
    }

    /// The engine below, for backup and figures.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Returns when everything acknowledged so far survives power loss.
    pub fn sync(&self) -> Result<()> {
        Ok(self.engine.sync()?)
    }

    pub(crate) fn read<T>(&self, f: impl Fn(View<'_>) -> Result<T>) -> Result<T> {
        kv::read(&*self.engine, |r| f(View { r, classes: &self.classes, leading: &self.leading }))
    }

    pub(crate) fn write<T>(
        &self,
        durability: Durability,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let (mut touched, mut recording) = (Vec::new(), None);
        let done = kv::write(&*self.engine, durability, |w| {
            touched.clear();
            recording = None;
            let (classes, leading, recorded) = (&self.classes, &self.leading, &self.recorded);
            f(&mut Tx { w, classes, leading, touched: &mut touched, recorded, recording: &mut recording })
        });
        match recording {
            Some(recording) if done.is_ok() => self.recorded.done(recording),
            Some(recording) => self.recorded.failed(&recording),
            None => {}
        }
        // Also when it failed: whether it was done may not be known.
        if let (false, Some(told)) = (touched.is_empty(), self.watched_by.get()) {
            told(&touched);
        }
        done
    }

    /// From now on `told` is called, by the thread that makes a change, when the change can be read and before that is answered. It must not use
    /// the catalogue, and is given once.
    pub fn watch(&self, told: Box<Watched>) {
        // A second one would be a defect of the caller, and the first goes on.
        drop(self.watched_by.set(told));
    }

    fn relaxed<T>(&self, f: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.write(Durability::Relaxed, f)
    }

    fn durable<T>(&self, f: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.write(Durability::Durable, f)
    }

    /// A number never used before, for an inode or a cookie. Taken outside the transaction that uses it, because that
    /// may run twice; the reservation is committed first, so it is never lost before its use.
    fn next_id(&self) -> Result<u64> {
        let mut ids = self.ids.lock();
        if let Some(id) = ids.next() {
            return Ok(id);
        }
        let first = self.relaxed(|tx| open::reserve_ids(tx, ID_BATCH))?;
        *ids = first + 1..first + ID_BATCH;
        Ok(first)
    }

    /// Drops trees of volumes that got a new label.
    fn finish_drops(&self) -> Result<()> {
        while self.relaxed(|tx| volume::drop_some(tx, DROP_BATCH))? {}
        Ok(())
    }

    /// Brings the sums of what lies on targets into a catalogue of a release that did not keep them. Nothing else changes it meanwhile.
    fn count_far(&self) -> Result<()> {
        while self.relaxed(|tx| sums::count_far(tx, COUNT_BATCH))? {}
        Ok(())
    }
}
