//! Volumes, pools and classes of service. Durable.

use super::Catalog;
use crate::ops::tape_tree::{Step, Walker};
use crate::ops::{class, drive, pool, quota, record_copies, sums, volume, volume_state};
use crate::{Backlog, NewSegment, RecordOutcome, Result, StateOrder, TapeNode, VolumeAppend, Volumes};
use std::ops::ControlFlow;
use std::slice;
use types::*;

/// Entries of a volume's tree read in one transaction.
const WALK_BATCH: usize = 512;

/// Files of a volume with their paths on it, and where the next page begins; None: these were the last.
pub type FilesPage = (Vec<(String, TapeFile)>, Option<Vec<u8>>);

/// The files of a volume in order of its tree, with their paths on the volume, read piece by piece: nothing may be recorded on
/// the volume meanwhile. Ends with the first error.
pub struct VolumeFiles<'c> {
    catalog: &'c Catalog,
    walker: Walker,
    dirs: Vec<String>,
    steps: std::vec::IntoIter<Step>,
}

impl VolumeFiles<'_> {
    /// The next one by its name alone.
    fn step(&mut self) -> Result<Option<(String, TapeFile)>> {
        loop {
            match self.steps.next() {
                Some(Step::Enter { name, .. }) => self.dirs.push(name),
                Some(Step::Leave) => drop(self.dirs.pop()),
                Some(Step::File { name, file }) => return Ok(Some((name, *file))),
                None => {
                    let steps = self.catalog.further(&mut self.walker, WALK_BATCH)?;
                    if steps.is_empty() {
                        return Ok(None);
                    }
                    self.steps = steps.into_iter();
                }
            }
        }
    }
}

impl Iterator for VolumeFiles<'_> {
    type Item = Result<(String, TapeFile)>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.step().inspect_err(|_| self.walker.end()).transpose()?;
        Some(found.map(|(name, file)| {
            let path = self.dirs.iter().fold(String::new(), |path, dir| path + "/" + dir);
            (format!("{path}/{name}"), file)
        }))
    }
}

impl Catalog {
    /// What a volume tells of a segment of a file that is about to be written to it, as the file is now.
    pub fn tape_file(&self, segment: &NewSegment, now: Time) -> Result<TapeFile> {
        self.read(|v| record_copies::describe(v, segment, now))
    }

    /// Records what a flushed append left on a volume: copies, the volume's tree and its sums. One outcome per segment.
    /// All in one transaction, unless records of some file are damaged: then the others are recorded without it.
    pub fn record_copies(
        &self,
        append: &VolumeAppend,
        segments: &[NewSegment],
    ) -> Result<Vec<RecordOutcome>> {
        match self.durable_volumes(slice::from_ref(&append.volume), |tx| {
            record_copies::record_copies(tx, append, segments)
        }) {
            Err(e) if e.is_damage() && !segments.is_empty() => {
                // If the volume's own records are damaged, this fails.
                self.durable_volumes(slice::from_ref(&append.volume), |tx| {
                    record_copies::record_copies(tx, append, &[])
                })?;
                match segments {
                    [_] => Ok(vec![RecordOutcome::Damaged { why: e.to_string() }]),
                    _ => {
                        let (front, back) = segments.split_at(segments.len() / 2);
                        let mut outcomes = self.record_copies(append, front)?;
                        outcomes.extend(self.record_copies(append, back)?);
                        Ok(outcomes)
                    }
                }
            }
            done => done,
        }
    }

    /// A volume by barcode.
    pub fn volume(&self, barcode: &Barcode) -> Result<Option<Volume>> {
        self.read(|v| volume::volume(v, barcode))
    }

    /// All volumes in order of barcode, without those of which a record is damaged.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        Ok(self.read(volume::volumes)?.found)
    }

    /// The same, and those of which a record is damaged.
    pub fn all_volumes(&self) -> Result<Volumes> {
        self.read(volume::volumes)
    }

    /// Enters a volume, or overwrites its record. `live` and `live_files` are kept by the catalogue; given values are ignored.
    pub fn put_volume(&self, volume: &Volume) -> Result<()> {
        self.durable_volumes(slice::from_ref(&volume.barcode), |tx| volume::put(tx, volume))
    }

    /// Changes a volume's record in one transaction; `change` may run more than once. `barcode`, `live` and `live_files`
    /// cannot be changed by it.
    pub fn update_volume(&self, barcode: &Barcode, change: &mut dyn FnMut(&mut Volume)) -> Result<Volume> {
        self.durable_volumes(slice::from_ref(barcode), |tx| volume::update(tx, barcode, change))
    }

    /// A volume is back from where it was exported to, or is not emptied after all: as [`Catalog::update_volume`], with what it was before,
    /// if it was full, read-only or suspect. That is forgotten once its state is another one.
    pub fn volume_comes_back(
        &self,
        barcode: &Barcode,
        change: &mut dyn FnMut(&mut Volume, Option<&Before>),
    ) -> Result<Volume> {
        self.durable_volumes(slice::from_ref(barcode), |tx| volume::come_back(tx, barcode, change))
    }

    /// What a volume was before it was closed for its way out, or to be emptied, as far as that is to be kept.
    pub fn before_export(&self, barcode: &Barcode) -> Result<Option<Before>> {
        self.read(|v| volume::before(v, barcode))
    }

    /// Sets the state of these volumes as an operator decides, all of them or none. Refused where it would lose data or claim
    /// what only the node can find out.
    pub fn set_volume_state(&self, volumes: &[Barcode], order: &StateOrder) -> Result<()> {
        self.durable_volumes(volumes, |tx| volume_state::set(tx, volumes, order))
    }

    /// The volume is about to get a label with this UUID: should the node die between the writing and `label_volume`, the
    /// label is known as ours. Refused while a current version needs the volume; from here on no ended version on it can
    /// be restored.
    pub fn intend_label(&self, barcode: &Barcode, uuid: &str) -> Result<()> {
        self.durable(|tx| volume::intend_label(tx, barcode, uuid))
    }

    /// UUID of a label that was perhaps written, but not recorded.
    pub fn intended_label(&self, barcode: &Barcode) -> Result<Option<String>> {
        self.read(|v| volume::intended_label(v, barcode))
    }

    /// The volume still carries the label on record, whole, so nothing was written of the one that it was about to get: that is forgotten.
    /// What ended on it can be restored again. False if another one is on record, or none was about to be written.
    pub fn forget_intended_label(&self, barcode: &Barcode, carries: &str) -> Result<bool> {
        self.durable(|tx| volume::forget_intended(tx, barcode, carries))
    }

    /// The volume got a new label: `fresh` is its record from now on, and its old tree is dropped (in several
    /// transactions; `open` ends an interrupted one). Refused while a current version needs it.
    pub fn label_volume(&self, barcode: &Barcode, fresh: &Volume) -> Result<()> {
        self.durable_volumes(slice::from_ref(barcode), |tx| volume::relabel(tx, barcode, fresh))?;
        self.finish_drops()
    }

    /// Walks the tree of a volume, depth first, in bounded memory and in many short transactions: nothing may be recorded
    /// on the volume meanwhile.
    pub fn walk_volume(
        &self,
        barcode: &Barcode,
        visit: &mut dyn FnMut(TapeNode<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut walker = self.read(|v| Walker::new(v, barcode))?;
        loop {
            let steps = self.further(&mut walker, WALK_BATCH)?;
            if steps.is_empty() {
                return Ok(());
            }
            for step in &steps {
                if visit(step.node()).is_break() {
                    return Ok(());
                }
            }
        }
    }

    fn further(&self, walker: &mut Walker, limit: usize) -> Result<Vec<Step>> {
        let (steps, next) = self.read(|v| {
            let mut walker = walker.clone();
            walker.advance(v, limit.min(WALK_BATCH)).map(|steps| (steps, walker))
        })?;
        *walker = next;
        Ok(steps)
    }

    /// Files of a volume in order of its tree, one after the other.
    pub fn files_on(&self, barcode: &Barcode) -> Result<VolumeFiles<'_>> {
        let walker = self.read(|v| Walker::new(v, barcode))?;
        Ok(VolumeFiles { catalog: self, walker, dirs: Vec::new(), steps: Vec::new().into_iter() })
    }

    /// One page of them from where another ended (empty: from the beginning), and where the next begins; it costs what it holds. What
    /// is recorded on the volume meanwhile may be listed or not.
    pub fn volume_files_from(&self, barcode: &Barcode, from: &[u8], limit: usize) -> Result<FilesPage> {
        let (mut walker, mut dirs) = match from {
            [] => (self.read(|v| Walker::new(v, barcode))?, Vec::new()),
            from => self.read(|v| Walker::resume(v, barcode, from))?,
        };
        let mut files = Vec::new();
        while files.len() < limit.max(1) {
            let steps = self.further(&mut walker, limit.max(1) - files.len())?;
            if steps.is_empty() {
                return Ok((files, None));
            }
            for step in steps {
                match step {
                    Step::Enter { name, .. } => dirs.push(name),
                    Step::Leave => drop(dirs.pop()),
                    Step::File { name, file } => {
                        let path = dirs.iter().fold(String::new(), |path, dir| path + "/" + dir);
                        files.push((format!("{path}/{name}"), *file));
                    }
                }
            }
        }
        Ok((files, walker.place(&dirs)))
    }

    /// One page of them; goes through the first `skip`.
    pub fn volume_files(
        &self,
        barcode: &Barcode,
        skip: u64,
        limit: usize,
    ) -> Result<Vec<(String, TapeFile)>> {
        let mut files = self.files_on(barcode)?;
        for _ in 0..skip {
            if files.step()?.is_none() {
                break;
            }
        }
        files.take(limit).collect()
    }

    /// Classes in order of name.
    pub fn classes(&self) -> Result<Vec<Class>> {
        self.read(class::all)
    }

    /// A class by name.
    pub fn class(&self, name: &ClassName) -> Result<Option<Class>> {
        self.read(|v| class::class(v, name))
    }

    /// Makes or changes a class. New rules hold for a file from its next change of content on, and for all others after
    /// `refresh_classes`.
    pub fn put_class(&self, class: &Class) -> Result<()> {
        self.durable(|tx| class::put(tx, class))
    }

    /// Applies changed classes to the next `limit` inodes; false when nothing is left to do. Survives a restart.
    pub fn refresh_classes(&self, limit: usize, now: Time) -> Result<bool> {
        self.relaxed(|tx| class::refresh(tx, limit, now))
    }

    /// Pools in order of name.
    pub fn pools(&self) -> Result<Vec<Pool>> {
        self.read(pool::all)
    }

    /// Makes or changes a pool.
    pub fn put_pool(&self, pool: &Pool) -> Result<()> {
        self.durable(|tx| pool::put(tx, pool))
    }

    /// Who took the drive with this serial number out of use, if anybody did.
    pub fn taken_out(&self, serial: &str) -> Result<Option<TakenOut>> {
        self.read(|v| drive::taken_out(v, serial))
    }

    /// Takes it out of use, or (None) into use again.
    pub fn take_out(&self, serial: &str, out: Option<&TakenOut>) -> Result<()> {
        self.durable(|tx| drive::set(tx, serial, out))
    }

    /// Quotas in order of uid, that of everybody else last.
    pub fn quotas(&self) -> Result<Vec<Quota>> {
        self.read(quota::all)
    }

    /// Sets the quota of an owner, or of everybody else; the catalogue does not enforce it.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for the uid that nobody has.
    pub fn put_quota(&self, quota: &Quota) -> Result<()> {
        self.durable(|tx| quota::put(tx, quota))
    }

    /// Forgets the quota of an owner; false if he had none of his own.
    pub fn remove_quota(&self, uid: u32) -> Result<bool> {
        self.durable(|tx| quota::remove(tx, uid))
    }

    /// Closed files on disk that lack their copy in this pool.
    pub fn pool_backlog(&self, pool: &PoolName) -> Result<Backlog> {
        self.read(|v| sums::pool_backlog(v, pool))
    }

    /// Closed files on disk of this class that lack a copy.
    pub fn class_backlog(&self, class: &ClassName) -> Result<Backlog> {
        self.read(|v| sums::class_backlog(v, class))
    }
}
