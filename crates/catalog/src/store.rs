//! Loading and replacing inode records. `replace` is the only place that writes them, and with them everything that
//! follows from them: object owners, candidate and purge indexes, sums. So they cannot drift apart.

use crate::classes::Classes;
use crate::keys::{self, part, sum};
use crate::leading::Leading;
use crate::rec::InodeRec;
use crate::recorded::{Recorded, Recording};
use crate::{CatalogError, Result};
use kv::{KvError, Reader, Writer};
use std::ops::ControlFlow;
use std::sync::Arc;
use types::*;

/// A reading transaction.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub r: &'a dyn Reader,
    pub classes: &'a Classes,
    pub leading: &'a Leading,
}

/// A writing transaction.
pub struct Tx<'a> {
    pub w: &'a mut dyn Writer,
    pub classes: &'a Classes,
    pub leading: &'a Leading,
    /// Inodes of which attributes or, of directories, entries change.
    pub touched: &'a mut Vec<Ino>,
    pub recorded: &'a Recorded,
    /// The call of another host that it records, once it does.
    pub recording: &'a mut Option<Recording>,
}

/// Counters of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirCounters {
    pub entries: u64,
    pub subdirs: u64,
    /// Last change of its entries since mtime was last set by hand.
    pub changed: Option<Time>,
}

/// Reads a counter as the engines keep it.
pub fn counter(value: Option<Vec<u8>>) -> Result<i64> {
    value.map_or(Ok(0), |v| counter_value(&v))
}

pub fn counter_value(value: &[u8]) -> Result<i64> {
    let bytes = value.try_into().map_err(|_| CatalogError::corrupt("counter", "a sum", "not 8 bytes"))?;
    Ok(i64::from_le_bytes(bytes))
}

/// Visits the pairs with `from <= key < to` in ascending order; an error of `visit` ends it.
pub fn each(
    r: &dyn Reader,
    from: &[u8],
    to: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut visited = Ok(());
    r.scan(from, to, &mut |k, v| {
        visit(k, v).unwrap_or_else(|e| {
            visited = Err(e);
            ControlFlow::Break(())
        })
    })?;
    visited
}

/// The same, but a value that the engine finds damaged is visited as an error, and does not end it.
pub fn each_past_damage(
    r: &dyn Reader,
    from: &[u8],
    to: &[u8],
    mut visit: impl FnMut(&[u8], Result<&[u8]>) -> ControlFlow<()>,
) -> Result<()> {
    let mut from = from.to_vec();
    loop {
        let scanned = r.scan(&from, to, &mut |k, v| visit(k, Ok(v)));
        let Err(KvError::BadValue { path, key }) = scanned else { return Ok(scanned?) };
        from = keys::after(&key);
        if visit(&key, Err(KvError::BadValue { path, key: key.clone() }.into())).is_break() {
            return Ok(());
        }
    }
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

impl<'a> View<'a> {
    /// An inode record; `NotFound` if there is none.
    pub fn load(&self, ino: Ino) -> Result<InodeRec> {
        self.try_load(ino)?.ok_or(CatalogError::Fs(FsError::NotFound))
    }

    pub fn try_load(&self, ino: Ino) -> Result<Option<InodeRec>> {
        let value = self.r.get(&keys::inode(ino, part::RECORD))?;
        value.map(|v| InodeRec::decode(ino, &v)).transpose()
    }

    /// A word on a file, or what is left of a node that was removed.
    pub fn gone(&self, ino: Ino) -> Result<Option<InodeRec>> {
        self.r.get(&keys::gone(ino))?.map(|v| InodeRec::decode(ino, &v)).transpose()
    }

    /// An inode, or what is left of it.
    pub fn trace(&self, ino: Ino) -> Result<Option<InodeRec>> {
        match self.try_load(ino)? {
            None => self.gone(ino),
            found => Ok(found),
        }
    }

    /// A directory's record; `NotADirectory` for anything else.
    pub fn load_dir(&self, ino: Ino) -> Result<InodeRec> {
        let rec = self.load(ino)?;
        if rec.is_dir() { Ok(rec) } else { Err(FsError::NotADirectory.into()) }
    }

    pub fn class(&self, id: u32) -> Result<Arc<Class>> {
        self.classes.get(self.r, id)
    }

    pub fn dir_counters(&self, dir: Ino) -> Result<DirCounters> {
        let mut out = DirCounters::default();
        let (from, to) = (keys::inode(dir, part::ENTRIES), keys::inode(dir, part::TARGET));
        each(self.r, &from, &to, |k, v| {
            let n = counter_value(v)?;
            match k[9] {
                part::ENTRIES => out.entries = unsigned(n),
                part::SUBDIRS => out.subdirs = unsigned(n),
                _ => out.changed = Some(Time::from_nanos(n)),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(out)
    }

    /// The public shape of a record.
    pub fn inode(&self, rec: &InodeRec) -> Result<Inode> {
        let mut attr = attr_of(rec);
        if rec.is_dir() {
            let c = self.dir_counters(rec.ino)?;
            attr.size = c.entries;
            attr.nlink = 2u32.saturating_add(u32::try_from(c.subdirs).unwrap_or(u32::MAX));
            if let Some(changed) = c.changed {
                attr.mtime = changed;
                attr.ctime = attr.ctime.max(changed);
            }
        }
        let file = rec.has_data().then(|| self.archived(rec)).transpose()?.flatten();
        let observed = rec.file.as_ref().and_then(|f| f.object.and(f.stamp));
        Ok(Inode { attr, file, observed })
    }

    /// The archive state of any node that has one.
    pub fn archived(&self, rec: &InodeRec) -> Result<Option<FileState>> {
        let Some(f) = &rec.file else { return Ok(None) };
        Ok(Some(FileState {
            version: f.version,
            object: f.object,
            stamp: f.stamp.filter(|_| f.object.is_some() && f.sealed),
            digest: f.digest,
            class: self.class(rec.class)?.name.clone(),
            copies: (1..=crate::rec::MAX_COPIES).filter(|n| f.has_copy(*n)).map(CopyNo).collect(),
            pinned: f.pinned,
            far: f.far && f.object.is_some(),
        }))
    }
}

/// Attributes of a record, without a directory's counters.
pub fn attr_of(rec: &InodeRec) -> Attr {
    let on_disk = |f: &crate::rec::FileRec| f.object.and(f.stamp).map_or(0, |s| s.allocated);
    Attr {
        ino: rec.ino,
        kind: rec.kind,
        mode: rec.mode,
        nlink: rec.nlink,
        uid: rec.uid,
        gid: rec.gid,
        rdev: rec.rdev,
        size: rec.size,
        disk_bytes: rec.file.as_ref().map_or(0, on_disk),
        atime: rec.atime,
        mtime: rec.mtime,
        ctime: rec.ctime,
        btime: rec.btime,
    }
}

impl Tx<'_> {
    pub fn view(&self) -> View<'_> {
        View { r: &*self.w, classes: self.classes, leading: self.leading }
    }

    /// An inode record that no other transaction changes before this one ends.
    pub fn load(&mut self, ino: Ino) -> Result<InodeRec> {
        self.try_load(ino)?.ok_or(CatalogError::Fs(FsError::NotFound))
    }

    pub fn try_load(&mut self, ino: Ino) -> Result<Option<InodeRec>> {
        let value = self.w.get_for_update(&keys::inode(ino, part::RECORD))?;
        value.map(|v| InodeRec::decode(ino, &v)).transpose()
    }

    /// A word on a file, or what is left of a node that was removed, for a change.
    pub fn gone(&mut self, ino: Ino) -> Result<Option<InodeRec>> {
        let value = self.w.get_for_update(&keys::gone(ino))?;
        value.map(|v| InodeRec::decode(ino, &v)).transpose()
    }

    /// An inode, or what is left of it, for a change.
    pub fn trace(&mut self, ino: Ino) -> Result<Option<InodeRec>> {
        match self.try_load(ino)? {
            None => self.gone(ino),
            found => Ok(found),
        }
    }

    /// A regular file's record with its archive part; `IsADirectory` or `Invalid` for anything else.
    pub fn load_file(&mut self, ino: Ino) -> Result<InodeRec> {
        let rec = self.load(ino)?;
        match rec.kind {
            FileKind::File if rec.file.is_some() => Ok(rec),
            FileKind::Directory => Err(FsError::IsADirectory.into()),
            _ => Err(FsError::Invalid.into()),
        }
    }

    pub fn class(&self, id: u32) -> Result<Arc<Class>> {
        self.classes.get(&*self.w, id)
    }

    pub fn inode(&self, rec: &InodeRec) -> Result<Inode> {
        self.view().inode(rec)
    }

    /// Writes `new` in place of `old` (None: no such inode before, or after), with all that follows from it.
    pub fn replace(&mut self, old: Option<&InodeRec>, new: Option<&InodeRec>) -> Result<()> {
        if old == new {
            return Ok(());
        }
        let before = old.map(|r| Derived::of(&self.view(), r)).transpose()?.unwrap_or_default();
        let after = new.map(|r| Derived::of(&self.view(), r)).transpose()?.unwrap_or_default();
        before.turn_into(&after, self.w)?;
        self.touched.extend(new.or(old).map(|rec| rec.ino));
        match (old, new) {
            (_, Some(rec)) => self.w.put(&record_key(rec), &rec.encode())?,
            (Some(rec), None) => self.w.delete(&record_key(rec))?,
            (None, None) => {}
        }
        Ok(())
    }
}

fn record_key(rec: &InodeRec) -> Vec<u8> {
    if rec.is_trace() { keys::gone(rec.ino).to_vec() } else { keys::inode(rec.ino, part::RECORD).to_vec() }
}

/// Everything outside its record that follows from an inode.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Derived {
    pub ino: Option<Ino>,
    /// Inode and the user and class that it counts for.
    pub counted: Option<(Ino, u32, u32)>,
    pub bytes: i64,
    pub disk: i64,
    /// Bytes on disk targets of the cluster; what redundancy takes is not counted.
    pub on_targets: i64,
    pub tape: i64,
    pub object: Option<ObjectId>,
    /// The object lies on disk targets of the cluster: it takes nothing of the node's disk tier.
    pub far: bool,
    pub candidate: Option<i64>,
    /// Class, and pools of the missing copies, of a candidate.
    pub backlog: Option<(Arc<Class>, u32)>,
    /// Second of last use and bytes of the node's disk tier.
    pub purge: Option<(i64, i64)>,
    /// It is to come back for a new copy.
    pub mend: bool,
}

impl Derived {
    pub fn of(view: &View<'_>, rec: &InodeRec) -> Result<Self> {
        let counted = Some((rec.ino, rec.uid, rec.class)).filter(|_| !rec.is_trace());
        let mut d = Self { counted, ino: Some(rec.ino), ..Self::default() };
        let Some(f) = &rec.file else { return Ok(d) };
        d.object = f.object;
        d.far = f.far && f.object.is_some();
        d.bytes = rec.data_size() as i64;
        d.tape = (rec.data_size() as i64).saturating_mul(i64::from(f.copies.count_ones()));
        let allocated = f.object.and(f.stamp).map_or(0, |s| s.allocated as i64);
        (d.disk, d.on_targets) = if d.far { (0, allocated) } else { (allocated, 0) };
        d.candidate = f.due;
        if !f.sealed {
            return Ok(d);
        }
        let class = view.class(rec.class)?;
        if f.object.is_some() && rec.nlink > 0 && !f.pinned && !class.keep_on_disk && f.complete(&class) {
            d.purge = Some((f.used, d.disk));
        }
        d.mend = rec.has_data() && f.mend && f.object.is_none() && rec.nlink > 0 && f.copies != 0;
        d.backlog = f.due.map(|_| (class, f.copies));
        Ok(d)
    }

    /// Sums that a candidate adds to: key and amount.
    pub fn backlog_sums(&self) -> Vec<(Vec<u8>, i64)> {
        let Some((class, copies)) = &self.backlog else { return Vec::new() };
        let mut sums = vec![
            (keys::sum_text(sum::CLASS_FILES, class.name.as_str()), 1),
            (keys::sum_text(sum::CLASS_BYTES, class.name.as_str()), self.bytes),
        ];
        let state = crate::rec::FileRec { copies: *copies, ..Default::default() };
        for (_, pool) in state.missing(class) {
            sums.push((keys::sum_text(sum::POOL_FILES, pool.as_str()), 1));
            sums.push((keys::sum_text(sum::POOL_BYTES, pool.as_str()), self.bytes));
        }
        sums
    }

    /// Its place in the purge order of the disk tier, or in that of targets.
    pub fn purge_key(&self, ino: Ino) -> Option<[u8; 17]> {
        let key = if self.far { keys::purge_far } else { keys::purge };
        self.purge.map(|(used, _)| key(used, ino))
    }

    fn turn_into(&self, to: &Self, w: &mut dyn Writer) -> Result<()> {
        self.turn_sums(to, w)?;
        let Some(ino) = to.ino.or(self.ino) else { return Ok(()) };
        if self.object != to.object {
            if let Some(o) = self.object {
                w.delete(&keys::object(o))?;
                w.put(&keys::unowned(o), if self.far { &[keys::ON_TARGETS] } else { &[] })?;
            }
            if let Some(o) = to.object {
                w.put(&keys::object(o), &ino.0.to_be_bytes())?;
                w.delete(&keys::unowned(o))?;
            }
        }
        if self.candidate != to.candidate {
            move_key(
                w,
                self.candidate.map(|s| keys::candidate(s, ino)),
                to.candidate.map(|s| keys::candidate(s, ino)),
            )?;
        }
        let (from, into) = (self.purge_key(ino), to.purge_key(ino));
        if from != into {
            move_key(w, from, into)?;
        }
        match (self.mend, to.mend) {
            (false, true) => w.put(&keys::mend(ino), &[])?,
            (true, false) => w.delete(&keys::mend(ino))?,
            _ => {}
        }
        if self.backlog != to.backlog || (to.backlog.is_some() && self.bytes != to.bytes) {
            for (key, n) in self.backlog_sums() {
                w.add(&key, -n)?;
            }
            for (key, n) in to.backlog_sums() {
                w.add(&key, n)?;
            }
        }
        Ok(())
    }

    fn turn_sums(&self, to: &Self, w: &mut dyn Writer) -> Result<()> {
        if self.counted != to.counted {
            if let Some((_, uid, class)) = self.counted {
                w.add(&keys::sum_files(uid, class), -1)?;
            }
            if let Some((_, uid, class)) = to.counted {
                w.add(&keys::sum_files(uid, class), 1)?;
            }
        }
        let (from, into) = (self.counted.map(|c| c.1), to.counted.map(|c| c.1));
        let sums = [
            (sum::BYTES, self.bytes, to.bytes),
            (sum::DISK, self.disk, to.disk),
            (sum::TAPE, self.tape, to.tape),
            (sum::FAR, self.on_targets, to.on_targets),
        ];
        for (what, a, b) in sums {
            if from == into {
                add(w, what, into, b - a)?;
            } else {
                add(w, what, from, -a)?;
                add(w, what, into, b)?;
            }
        }
        let freed = to.purge.map_or(0, |p| p.1) - self.purge.map_or(0, |p| p.1);
        if freed != 0 {
            w.add(&[keys::SUM, sum::PURGEABLE], freed)?;
        }
        Ok(())
    }
}

pub fn add(w: &mut dyn Writer, what: u8, uid: Option<u32>, delta: i64) -> Result<()> {
    if let (Some(uid), true) = (uid, delta != 0) {
        w.add(&keys::sum_user(what, uid), delta)?;
    }
    Ok(())
}

fn move_key(w: &mut dyn Writer, from: Option<[u8; 17]>, to: Option<[u8; 17]>) -> Result<()> {
    if let Some(k) = from {
        w.delete(&k)?;
    }
    if let Some(k) = to {
        w.put(&k, &[])?;
    }
    Ok(())
}
