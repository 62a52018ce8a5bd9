//! What was acknowledged and is not in the store yet: two files beside it, written one behind the other by turns, with one sync for each
//! batch. Format: `docs/formats/engine.md`; why: `docs/design/0002-overlay-engine.md`.
//!
//! A file goes on from one state of the store, which names it by its mark. When that state is about to be followed by another one the
//! file is closed, with the mark of the next, and batches go to the other file from then on. What is in a file counts until the store holds it.

mod read;

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) use self::read::recover;
use super::log::batch::{KEPT, Writing};
use super::place::sync_dir;

/// Length of a file (bytes). Its blocks are written once when it is made, so that a sync later has no metadata to write.
const FILE: u64 = 8 << 20;
/// Records begin at multiples of this (bytes): no write touches a block that holds an earlier one.
const BLOCK: usize = 4096;
/// Space of the file system without which no journal is made (bytes).
const NEEDED: u64 = 8 * FILE;
/// Time between two tries to make it.
const PAUSE: Duration = Duration::from_secs(60);
/// The files in the engine's directory.
const NAMES: [&str; 2] = ["journal.0", "journal.1"];

/// What stands before each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    /// Which state of the store the file goes on from.
    mark: u64,
    /// The transaction of LMDB that wrote that state.
    txn: u64,
    /// Number of the record in its file, from 0.
    index: u32,
    /// Bytes of the batch that follows; 0: the file is closed by this record.
    length: u32,
    /// Mark of the file that goes on from here, where this one is closed; else 0.
    next: u64,
}

impl Head {
    const MAGIC: &[u8; 8] = b"thermojr";
    /// With its sum; the batch begins at [`Self::BYTES`].
    const SUMMED: usize = 40;
    const BYTES: usize = 64;

    fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(Self::MAGIC);
        out[8..16].copy_from_slice(&self.mark.to_le_bytes());
        out[16..24].copy_from_slice(&self.txn.to_le_bytes());
        out[24..28].copy_from_slice(&self.index.to_le_bytes());
        out[28..32].copy_from_slice(&self.length.to_le_bytes());
        out[32..40].copy_from_slice(&self.next.to_le_bytes());
        let sum = crc32c::crc32c(&out[..Self::SUMMED]);
        out[Self::SUMMED..Self::SUMMED + 4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The head at the beginning of `bytes`, if there is one.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..Self::BYTES).filter(|head| head.starts_with(Self::MAGIC))?;
        let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let right = short(Self::SUMMED)? == crc32c::crc32c(&head[..Self::SUMMED]);
        let decoded =
            Self { mark: long(8)?, txn: long(16)?, index: short(24)?, length: short(28)?, next: long(32)? };
        right.then_some(decoded)
    }
}

/// Bytes of a record with a batch of `length` bytes.
fn blocks(length: usize) -> u64 {
    (Head::BYTES + length).next_multiple_of(BLOCK) as u64
}

/// Where the next record goes.
struct End {
    file: usize,
    mark: u64,
    txn: u64,
    index: u32,
    /// Bytes of the file that are used.
    at: u64,
}

/// The journal of a running engine, and what was not written to it yet.
pub(super) struct Journal {
    dir: PathBuf,
    files: Option<[File; 2]>,
    /// When it was tried last to make them.
    tried: Option<Instant>,
    /// None: nothing may be written before the store is at another state.
    end: Option<End>,
    /// Changes that are neither here nor frozen, in their order.
    pub(super) unsettled: Writing,
    /// Number of the last batch.
    pub(super) last: u64,
    /// Memory for the next record.
    record: Vec<u8>,
}

impl Journal {
    /// The journal in `dir`; nothing is written to it before [`Journal::begin`]. The last batch is number `last`.
    pub(super) fn new(dir: &Path, last: u64) -> Self {
        Self {
            dir: dir.into(),
            files: None,
            tried: None,
            end: None,
            unsettled: Writing::default(),
            last,
            record: Vec::new(),
        }
    }

    /// Whether there are files to write to. Makes them if there is room.
    pub(super) fn prepare(&mut self) -> bool {
        let tried = self.tried.is_some_and(|tried| tried.elapsed() < PAUSE);
        if self.files.is_none() && !tried {
            self.files = self.make().ok().flatten();
            self.tried = Some(Instant::now());
        }
        self.files.is_some()
    }

    /// Opens or makes the files, durably; None if there is no room.
    fn make(&self) -> io::Result<Option<[File; 2]>> {
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(self.dir.join(name))
        };
        let whole = |name: &&str| self.dir.join(name).metadata().is_ok_and(|meta| meta.len() == FILE);
        for name in NAMES.iter().filter(|name| !whole(name)) {
            let fs = rustix::fs::statvfs(&self.dir)?;
            if fs.f_bavail * fs.f_frsize < NEEDED {
                return Ok(None);
            }
            let file = open(name)?;
            let made = file.set_len(0).and_then(|()| file.write_all_at(&vec![0; FILE as usize], 0));
            if made.is_err() {
                let _ = std::fs::remove_file(self.dir.join(name)); // the store needs the space more
            }
            made?;
        }
        let files = [open(NAMES[0])?, open(NAMES[1])?];
        files.iter().try_for_each(File::sync_all)?;
        sync_dir(&self.dir)?;
        Ok(Some(files))
    }

    /// Records go from now on to the file that goes on from this state of the store.
    pub(super) fn begin(&mut self, mark: u64, txn: u64) {
        let file = self.end.as_ref().map_or(0, |end| 1 - end.file);
        self.end = self.files.is_some().then_some(End { file, mark, txn, index: 0, at: 0 });
    }

    /// Whether something may be written.
    pub(super) fn is_open(&self) -> bool {
        self.end.is_some()
    }

    /// Nothing may be written until [`Journal::begin`].
    pub(super) fn halt(&mut self) {
        self.end = None;
    }

    /// Bytes of the present file that are used.
    pub(super) fn used(&self) -> u64 {
        self.end.as_ref().map_or(0, |end| end.at)
    }

    /// Whether a batch of as many bytes has room, and the record behind it that closes the file.
    pub(super) fn has_room(&self, length: usize) -> bool {
        self.end.as_ref().is_some_and(|end| end.at + blocks(length) + blocks(0) <= FILE)
    }

    /// Writes a batch. It survives power loss when this returns; after an error it may be there or not, and the journal is to be halted.
    ///
    /// # Errors
    /// There is no room, or the disk refuses.
    pub(super) fn append(&mut self, batch: &[u8]) -> io::Result<()> {
        self.write(batch, 0)
    }

    /// Closes the present file, durably, and goes on in the other one, which goes on from the state `next`, of transaction `txn`.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub(super) fn hand_over(&mut self, next: u64, txn: u64) -> io::Result<()> {
        self.write(&[], next)?;
        self.begin(next, txn);
        Ok(())
    }

    fn write(&mut self, batch: &[u8], next: u64) -> io::Result<()> {
        let (Some(files), Some(end)) = (&self.files, &mut self.end) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let (long, length) = (blocks(batch.len()), batch.len() as u32);
        if end.at + long > FILE {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let head = Head { mark: end.mark, txn: end.txn, index: end.index, length, next };
        let mut record = mem::take(&mut self.record);
        record.clear();
        record.extend(head.encode());
        record.extend_from_slice(batch);
        record.resize(long as usize, 0);
        files[end.file].write_all_at(&record, end.at)?;
        files[end.file].sync_data()?;
        if record.capacity() <= KEPT {
            self.record = record;
        }
        (end.at, end.index) = (end.at + long, end.index + 1);
        Ok(())
    }
}

/// When the store takes over what is in the journal: the present file is half full.
pub(super) const HALF: u64 = FILE / 2;

/// A mark that no file had before: random, never 0.
pub(super) fn new_mark() -> u64 {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if got != Ok(bytes.len()) {
        // A system without that call has no random numbers before it is up; the hasher of maps has its own.
        use std::hash::{BuildHasher, Hasher};
        bytes = std::collections::hash_map::RandomState::new().build_hasher().finish().to_le_bytes();
    }
    u64::from_le_bytes(bytes).max(1)
}

#[cfg(test)]
mod tests;
