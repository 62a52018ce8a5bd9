//! The LMDB environment below the overlays: opening, checking, applying an overlay, copying.

use std::fs::{File, OpenOptions};
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use heed::types::Bytes;
use heed::{CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls};
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::LmdbOptions;
use super::at::{AT_KEY, At};
use super::journal;
use super::last::{self, LAST_KEY};
use super::log::{ChangeLog, batch};
use super::overlay::Overlay;
use super::place::{self, DATA_FILE, Format, Marker, Place, io_error};
use super::tables::{RECORD_KEY, Tables};
use super::{file, sealed};
use crate::merge::{Direction, Entry, Source};
use crate::standby::{Batch, Content, Feed, OWN_TABLE, Page};
use crate::{KvError, MAX_KEY, MAX_VALUE, Result};

/// Read transactions at one time; a slot takes 64 bytes of the shared lock file.
const MAX_READERS: u32 = 8192;
/// The data file grows in steps of this (bytes).
const GROW_STEP: u64 = 4 << 20;
/// Space of the file system that is taken ahead of need (bytes): when it is full, others fail first, and what makes room
/// there can still be recorded.
const RESERVE: u64 = 8 << 20;
/// How often a check looks for the meta page of its state, which two flushes may overtake.
const META_TRIES: usize = 100;

type Db = Database<Bytes, Bytes>;

/// What is to get into the store before anything else, and the state that it is at then.
pub(super) type Unsaved = (Overlay, At);

/// An open environment. The lock of the directory is given up last.
pub(super) struct Store {
    env: Env<WithoutTls>,
    db: Db,
    file: File,
    /// The data file is known to be at least this long (bytes).
    len: AtomicU64,
    /// It has space on the disk up to here (bytes).
    allocated: AtomicU64,
    page: u64,
    /// What the store holds.
    tables: Mutex<Tables>,
    /// How far it is.
    at: Mutex<At>,
    /// Where changes go besides.
    pub(super) log: Option<ChangeLog>,
    feed: Option<Arc<Feed>>,
    pub(super) place: Place,
}

impl Store {
    /// Opens the environment in `dir`, or makes it durably. What a journal held and there is no room for comes with it.
    pub(super) fn open(dir: &Path, options: &LmdbOptions) -> Result<(Self, Option<Unsaved>)> {
        let place = Place::lock(dir)?;
        let found = place.marker(options.aside.as_deref())?;
        let marked = !matches!(found, Marker::None);
        match (marked, place.data_len()?) {
            (true, None) => return Err(place.corrupt("data.mdb is missing")),
            (_, Some(0)) => return Err(place.corrupt("data.mdb is empty")),
            (false, None) => {
                place.create_data(|new| make(new, options).map_err(|e| error(&place.dir, &e)))?
            }
            (_, Some(_)) => {}
        }
        let (store, unsaved) = Self::open_existing(place, options)?;
        match found {
            Marker::None if store.size().0 > 0 => {
                return Err(store.place.corrupt("data.mdb holds data, but the file 'engine' is missing"));
            }
            Marker::None | Marker::Whole(Format::Former) => store.place.mark(None)?,
            Marker::Aside(Format::Former, mark) => store.place.mark(Some(&mark))?,
            Marker::Whole(Format::Present) | Marker::Aside(Format::Present, _) => {}
        }
        Ok((store, unsaved))
    }

    fn open_existing(place: Place, options: &LmdbOptions) -> Result<(Self, Option<Unsaved>)> {
        let fail = |e: heed::Error| error(&place.dir, &e);
        let file = OpenOptions::new().read(true).write(true).open(place.data());
        let file = file.map_err(|e| io_error(&place.dir, "opening data.mdb", &e))?;
        let verified = file::verify_closed(&file).map_err(|damage| damage.error(&place.dir))?;
        let env = open_env(&place.dir, options).map_err(fail)?;
        let txn = env.read_txn().map_err(fail)?;
        let db = env.open_database(&txn, None).map_err(fail)?;
        let db = db.ok_or_else(|| place.corrupt("data.mdb has no main table"))?;
        txn.commit().map_err(fail)?;
        let (page, txn) = (verified.page_size, env.info().last_txn_id as u64);
        let mut store = Self {
            env,
            db,
            file,
            len: AtomicU64::new(verified.pages * page),
            allocated: AtomicU64::new(0),
            page,
            tables: Mutex::new(verified.tables),
            at: Mutex::default(),
            log: None,
            feed: None,
            place,
        };
        let at = store.read_at(&store.read_txn()?)?;
        *store.at.lock() = at;
        let found = journal::recover(&store.place, at, txn)?;
        let mut unsaved = None;
        if found.batches > 0 {
            let at = At { number: found.last, mark: journal::new_mark() };
            match store.apply(&found.changes, at) {
                Err(KvError::Full { .. }) if options.feed.is_none() => unsaved = Some((found.changes, at)),
                applied => applied?,
            }
        }
        let number = found.last;
        store.log = options.log.clone().map(|log| ChangeLog::open(log, &store.place.dir, number));
        store.feed.clone_from(&options.feed);
        if let Some(feed) = &store.feed {
            feed.opened(number, store.last_batch(number)?);
        }
        Ok((store, unsaved))
    }

    /// How far the state is that `txn` sees. One of an earlier release counted its transactions as batches.
    fn read_at(&self, txn: &RoTxn<'_, WithoutTls>) -> Result<At> {
        match self.db.get(txn, &AT_KEY).map_err(|e| self.error(&e))? {
            Some(record) => At::decode(record)
                .ok_or_else(|| self.place.corrupt("its record of the last batch is damaged")),
            None => Ok(At { number: txn.id() as u64, mark: 0 }),
        }
    }

    /// How far it is.
    pub(super) fn at(&self) -> At {
        *self.at.lock()
    }

    /// Its last transaction.
    pub(super) fn txn(&self) -> u64 {
        self.env.info().last_txn_id as u64
    }

    /// The batch of the last flush, as long as its values are those of the store: nothing came behind it.
    fn last_batch(&self, at: u64) -> Result<Option<Batch>> {
        let txn = self.read_txn()?;
        let record = self.get(&txn, &LAST_KEY)?;
        let Some(known) = record.and_then(|record| last::decode(&record)).filter(|last| last.number == at)
        else {
            return Ok(None);
        };
        let mut changes = batch::Writing::default();
        for key in &known.keys {
            changes.change(key, self.get(&txn, key)?.as_deref());
        }
        Ok(Some(Batch { number: at, content: self.content(), bytes: changes.finish(at, known.time_ms) }))
    }

    pub(super) fn error(&self, e: &heed::Error) -> KvError {
        error(&self.place.dir, e)
    }

    pub(super) fn read_txn(&self) -> Result<RoTxn<'_, WithoutTls>> {
        self.env.read_txn().map_err(|e| self.error(&e))
    }

    pub(super) fn get(&self, txn: &RoTxn<'_, WithoutTls>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.db.get(txn, key).map_err(|e| self.error(&e))?;
        found.map(|sealed| self.unseal(key, sealed).map(<[u8]>::to_vec)).transpose()
    }

    fn unseal<'t>(&self, key: &[u8], sealed: &'t [u8]) -> Result<&'t [u8]> {
        let bad = || KvError::BadValue { path: self.place.dir.clone(), key: key.to_vec() };
        sealed::open(key, sealed).ok_or_else(bad)
    }

    pub(super) fn source<'t>(
        &'t self,
        txn: &'t RoTxn<'_, WithoutTls>,
        (from, to): (&[u8], &[u8]),
        direction: Direction,
    ) -> Result<StoreSource<'t>> {
        let range = (lower(from), upper(to));
        let cursor = match direction {
            Direction::Up => self.db.range(txn, &range).map(Cursor::Up),
            Direction::Down => self.db.rev_range(txn, &range).map(Cursor::Down),
        };
        let mut source = StoreSource { store: self, cursor: cursor.map_err(|e| self.error(&e))?, here: None };
        source.advance()?;
        Ok(source)
    }

    /// Writes the newest versions of `overlay` as one transaction, with which the store is at `at`; they survive power loss when
    /// this returns. May be tried again after an error: then all of it is written anew.
    pub(super) fn apply(&self, overlay: &Overlay, at: At) -> Result<()> {
        let end = self.end();
        self.extend(end + self.growth(overlay), end + 2 * overlay.bytes() as u64)?;
        let mut tables = self.tables.lock();
        let mut changed = tables.clone();
        let time_ms = self.feed.as_ref().map(|feed| feed.time_ms());
        let mut change = || {
            let mut txn = Change { db: self.db, txn: self.env.write_txn()?, sealed: Vec::new() };
            overlay.newest(|key, value| match value {
                Some(value) => txn.put(&mut changed, key, value),
                None => txn.delete(&mut changed, key),
            })?;
            if let Some(time_ms) = time_ms {
                txn.note(at.number, time_ms, overlay)?;
            }
            txn.own(&AT_KEY, &at.encode())?;
            txn.commit(&changed)
        };
        change().map_err(|e| if self.is_full(&e, overlay) { self.full() } else { self.error(&e) })?;
        if let (Some(feed), Some(time_ms)) = (&self.feed, time_ms) {
            let (number, content) = (at.number, changed.content(OWN_TABLE));
            feed.committed(Batch { number, content, bytes: batch::encode(number, time_ms, overlay) });
        }
        *tables = changed;
        *self.at.lock() = at;
        // It is in the store, whatever comes of this; that there is no reserve is seen by `has_reserve`.
        let _ = self.extend(self.end(), self.end());
        Ok(())
    }

    /// Whether the data file has its reserve: what a journal holds can be written to it, too.
    pub(super) fn has_reserve(&self) -> bool {
        self.end() + RESERVE <= self.allocated.load(Relaxed)
    }

    /// Whether `overlay` could not be written for want of space. LMDB says EIO if only a part of a write had room.
    fn is_full(&self, e: &heed::Error, overlay: &Overlay) -> bool {
        let short = matches!(e, heed::Error::Io(e) if e.raw_os_error() == Some(Errno::IO.raw_os_error()));
        let needed = overlay.bytes() as u64 + overlay.len() as u64 * self.page;
        short && rustix::fs::fstatvfs(&self.file).is_ok_and(|fs| fs.f_bavail * fs.f_frsize < needed)
    }

    fn full(&self) -> KvError {
        KvError::Full { path: self.place.dir.clone() }
    }

    /// Where the last page ends (bytes).
    fn end(&self) -> u64 {
        (self.env.info().last_page_number as u64 + 1) * self.page
    }

    /// More bytes than a transaction with `overlay` can add: every present page copied or every change copying its
    /// path, eight times the data for splits, and lists of free pages.
    fn growth(&self, overlay: &Overlay) -> u64 {
        let changes = overlay.len() as u64;
        let paths = changes * (2 * u64::from(self.env.stat().depth) + 4);
        let copied = paths.min(self.end() / self.page);
        copied * self.page * 2 + 8 * overlay.bytes() as u64 + (1 << 20)
    }

    /// Makes the data file at least `len` bytes long, durably and before LMDB may refer to pages up to there. LMDB
    /// itself leaves unused pages at the end unwritten; after this a file shorter than its last page says has been
    /// cut, and is refused at open instead of faulting later. Takes space on the disk up to `space` (bytes), which is what is likely to be used, and
    /// for the reserve; if there is none, the reserve is what they are written to.
    fn extend(&self, len: u64, space: u64) -> Result<()> {
        let reserved = space + RESERVE <= self.allocated.load(Relaxed);
        if reserved && len <= self.len.load(Relaxed) {
            return Ok(());
        }
        let fail = |e| io_error(&self.place.dir, "extending data.mdb", &e);
        let mut long = self.file.metadata().map_err(fail)?.len();
        let target = (space + RESERVE).next_multiple_of(GROW_STEP);
        // There may be no room, or a file system that knows no reservations: LMDB finds out.
        if !reserved && rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, target).is_ok() {
            self.allocated.store(target, Relaxed);
            long = long.max(target);
        }
        if long < len {
            long = len.next_multiple_of(GROW_STEP);
            self.file.set_len(long).map_err(fail)?;
        }
        if long > self.len.load(Relaxed) {
            self.file.sync_all().map_err(fail)?;
            self.len.store(long, Relaxed);
        }
        Ok(())
    }

    /// Copies what is on stable storage, compacted, into the new engine directory `to`.
    pub(super) fn copy(&self, to: &Path) -> Result<()> {
        let fail = |e: std::io::Error| io_error(to, "writing the backup", &e);
        place::make_empty_dir(to)?;
        let copied = self.env.copy_to_path(to.join(DATA_FILE), CompactionOption::Enabled);
        copied.map_err(|e| error(to, &e))?.sync_all().map_err(fail)?;
        let number = renumber(to).map_err(|e| error(to, &e))?;
        if let Some(log) = &self.log {
            log.sync();
            log.mark(to, number).map_err(fail)?;
        }
        place::mark(to, None).and_then(|()| place::sync_parent(to)).map_err(fail)
    }

    /// What the store holds, without what only a standby has.
    pub(super) fn content(&self) -> Content {
        self.tables.lock().content(OWN_TABLE)
    }

    /// The pairs from `from` on, about `bytes` of them.
    pub(super) fn page(&self, from: &[u8], bytes: usize) -> Result<Page> {
        let txn = self.read_txn()?;
        let number = self.read_at(&txn)?.number;
        let record = self.db.get(&txn, &RECORD_KEY).map_err(|e| self.error(&e))?;
        let (_, tables) = record
            .and_then(Tables::decode)
            .ok_or_else(|| self.place.corrupt("its record of the tables is damaged"))?;
        let mut pairs = batch::Writing::default();
        let mut source = self.source(&txn, (from, &RECORD_KEY), Direction::Up)?;
        let mut to = None;
        while let Some((key, value)) = source.peek() {
            if pairs.len() >= bytes {
                to = Some(key.to_vec());
                break;
            }
            pairs.change(key, value);
            source.advance()?;
        }
        Ok(Page {
            from: from.to_vec(),
            to,
            content: tables.content(OWN_TABLE),
            pairs: pairs.finish(number, 0),
        })
    }

    /// Reads the newest state from end to end and compares it with what it must be.
    pub(super) fn verify(&self) -> Result<()> {
        let mut outcome = Err(self.place.corrupt("its meta pages change faster than they can be read"));
        for _ in 0..META_TRIES {
            let txn = self.read_txn()?;
            match file::verify_open(&self.file, txn.id() as u64) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(damage) => outcome = Err(damage.error(&self.place.dir)),
            }
        }
        outcome
    }

    /// Keys and bytes in use.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.tables.lock().keys(), self.end())
    }
}

/// A transaction of LMDB under way.
struct Change<'e> {
    db: Db,
    txn: RwTxn<'e>,
    /// The value last sealed.
    sealed: Vec<u8>,
}

impl Change<'_> {
    fn put(&mut self, tables: &mut Tables, key: &[u8], value: &[u8]) -> heed::Result<()> {
        let sum = sealed::seal(key, value, &mut self.sealed);
        if let Some(old) = self.db.get_or_put(&mut self.txn, key, &self.sealed)? {
            tables.remove(key, sealed::stored_sum(old).unwrap_or_default());
            self.db.put(&mut self.txn, key, &self.sealed)?;
        }
        tables.add(key, sum);
        Ok(())
    }

    fn delete(&mut self, tables: &mut Tables, key: &[u8]) -> heed::Result<()> {
        if let Some(old) = self.db.get(&self.txn, key)? {
            tables.remove(key, sealed::stored_sum(old).unwrap_or_default());
            self.db.delete(&mut self.txn, key)?;
        }
        Ok(())
    }

    /// Writes down what this flush changes; too long a list is left out, and a standby that lacks the batch then begins a new copy.
    fn note(&mut self, number: u64, time_ms: i64, overlay: &Overlay) -> heed::Result<()> {
        let mut keys = last::head(number, time_ms);
        overlay.newest(|key, _| {
            last::push(&mut keys, key);
            Ok::<_, heed::Error>(())
        })?;
        if keys.len() > MAX_VALUE {
            return self.db.delete(&mut self.txn, &LAST_KEY).map(drop);
        }
        self.own(&LAST_KEY, &keys)
    }

    /// Writes a record of the store itself.
    fn own(&mut self, key: &[u8], value: &[u8]) -> heed::Result<()> {
        sealed::seal(key, value, &mut self.sealed);
        self.db.put(&mut self.txn, key, &self.sealed)
    }

    fn commit(mut self, tables: &Tables) -> heed::Result<()> {
        self.own(&RECORD_KEY, &tables.encode(self.txn.id() as u64))?;
        self.txn.commit()
    }
}

/// Makes an empty store in `dir`.
fn make(dir: &Path, options: &LmdbOptions) -> heed::Result<()> {
    let env = open_env(dir, options)?;
    let mut txn = env.write_txn()?;
    let db = env.create_database(&mut txn, None)?;
    Change { db, txn, sealed: Vec::new() }.commit(&Tables::default())
}

/// A copy made by LMDB counts its transactions anew, and so its batches: its record follows, in both of its states. No journal goes on
/// from it. Returns the last batch that is in it.
fn renumber(dir: &Path) -> heed::Result<u64> {
    let env = open_env(dir, &LmdbOptions::default())?;
    let damaged = || heed::Error::Mdb(MdbError::Corrupted);
    let mut copied = None;
    for _ in 0..2 {
        let txn = env.write_txn()?;
        let db: Option<Db> = env.open_database(&txn, None)?;
        let db = db.ok_or_else(damaged)?;
        let record = db.get(&txn, &RECORD_KEY)?.and_then(Tables::decode);
        let (number, tables) = record.ok_or_else(damaged)?;
        let at = db.get(&txn, &AT_KEY)?.map(|at| At::decode(at).ok_or_else(damaged)).transpose()?;
        copied.get_or_insert(at.map_or(number, |at| at.number));
        let mut change = Change { db, txn, sealed: Vec::new() };
        change.db.delete(&mut change.txn, &AT_KEY)?;
        change.commit(&tables)?;
    }
    Ok(copied.unwrap_or_default())
}

/// Opens or makes an environment. Flags: every commit syncs its data, then its meta page (no NOSYNC, NOMETASYNC or
/// WRITEMAP); no read-ahead, since lookups are random.
#[allow(unsafe_code)]
fn open_env(dir: &Path, options: &LmdbOptions) -> heed::Result<Env<WithoutTls>> {
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    // a multiple of the size of memory pages, whatever it is
    open.map_size(options.map_bytes.max(1).next_multiple_of(1 << 20)).max_readers(MAX_READERS);
    // SAFETY: NO_READ_AHEAD only advises the kernel. The map may only be changed by LMDB: the caller holds the lock
    // of the directory, so no second process opens the file, and `extend` only lengthens it.
    let env = unsafe {
        open.flags(EnvFlags::NO_READ_AHEAD);
        open.open(dir)?
    };
    close_on_exec(dir)?;
    Ok(env)
}

/// LMDB opens its data file such that programs which this one starts inherit it; nobody else is to have it. Where `/proc` is not
/// mounted they do.
#[allow(unsafe_code)]
fn close_on_exec(dir: &Path) -> std::io::Result<()> {
    let data = dir.join(DATA_FILE).canonicalize()?;
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten() {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|_| std::fs::read_link(entry.path()).is_ok_and(|to| to == data))
        else {
            continue;
        };
        // SAFETY: it is the data file's, which the environment and the store keep open while this runs.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    }
    Ok(())
}

/// Turns an error of LMDB into one of the engine at `path`.
fn error(path: &Path, e: &heed::Error) -> KvError {
    let path_buf = || path.to_path_buf();
    match e {
        heed::Error::Io(e) => io_error(path, "LMDB", e),
        heed::Error::EnvAlreadyOpened => KvError::Locked { path: path_buf() },
        heed::Error::Mdb(MdbError::MapFull) => KvError::Full { path: path_buf() },
        heed::Error::Mdb(
            e
            @ (MdbError::Corrupted | MdbError::PageNotFound | MdbError::Invalid | MdbError::VersionMismatch),
        ) => KvError::Corrupt { path: path_buf(), detail: format!("data.mdb: {e}") },
        e => KvError::Io { path: path_buf(), detail: e.to_string() },
    }
}

/// Keys are never longer than [`MAX_KEY`], so a longer bound lies just behind its beginning.
fn lower(from: &[u8]) -> Bound<&[u8]> {
    match from.len() {
        0 => Bound::Unbounded,
        n if n > MAX_KEY => Bound::Excluded(&from[..MAX_KEY]),
        _ => Bound::Included(from),
    }
}

fn upper(to: &[u8]) -> Bound<&[u8]> {
    if to.len() > MAX_KEY { Bound::Included(&to[..MAX_KEY]) } else { Bound::Excluded(to) }
}

enum Cursor<'t> {
    Up(heed::RoRange<'t, Bytes, Bytes>),
    Down(heed::RoRevRange<'t, Bytes, Bytes>),
}

/// A range of the store as a layer of a scan; borrows from the map.
pub(super) struct StoreSource<'t> {
    store: &'t Store,
    cursor: Cursor<'t>,
    here: Option<(&'t [u8], &'t [u8])>,
}

impl Source for StoreSource<'_> {
    fn peek(&self) -> Option<Entry<'_>> {
        self.here.map(|(k, v)| (k, Some(v)))
    }

    fn advance(&mut self) -> Result<()> {
        let next = match &mut self.cursor {
            Cursor::Up(c) => c.next(),
            Cursor::Down(c) => c.next(),
        };
        let next = next.transpose().map_err(|e| self.store.error(&e))?;
        self.here = match next {
            Some((key, sealed)) => Some((key, self.store.unseal(key, sealed)?)),
            None => None,
        };
        Ok(())
    }
}
