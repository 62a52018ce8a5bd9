//! Which parts of which objects are being written: noted durably before the first write, so that after a crash exactly their sums are
//! computed anew, and no other sum is ever computed from what the disk says.
//!
//! A log of fixed records, `<target>/intents`; several writers share a sync.

use crate::sidecar::FileError;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use types::ObjectId;

/// Length of a region (bytes): what one page of sums covers.
pub(crate) const REGION: u64 = 64 << 20;
/// The region number that stands for all from there to the end.
pub(crate) const TO_THE_END: u32 = u32::MAX;
const RECORD: usize = 24;
/// New objects of which nobody has written that are noted at most.
const NEW: usize = 1024;
const DIRTY: u32 = 1;
const CLEAN: u32 = 2;
/// In the place of the object stands the number of the machine's start that the records behind it are of.
const BOOT: u32 = 3;
/// Length of the log from which it is written anew (bytes).
const LONG: u64 = 1 << 20;

/// Regions (first, last) of objects.
pub(crate) type Regions = BTreeMap<ObjectId, BTreeSet<(u32, u32)>>;

/// What a log says when it is opened.
pub(crate) struct Found {
    /// What was being written.
    pub(crate) unfinished: Regions,
    /// The machine has been down since: what was not synced may be lost.
    pub(crate) rebooted: bool,
}

pub(crate) struct Intents {
    dir: PathBuf,
    /// The directory: it is synced also when no descriptor is left.
    entries: OwnedFd,
    boot: u64,
    state: Mutex<State>,
    synced: Condvar,
}

struct State {
    file: std::sync::Arc<OwnedFd>,
    /// End of what was written (bytes), and of what of it is durable.
    end: u64,
    durable: u64,
    /// Somebody syncs now.
    syncing: bool,
    /// How often the log was written anew: what was appended before is durable.
    rewritten: u64,
    /// Why the log cannot be trusted any more: a sync failed, and another one would prove nothing.
    broken: Option<Errno>,
    /// What the log says, all in all.
    now: Regions,
    /// Objects that are whole, of which it does not say so yet: there was no room.
    unsaid: BTreeSet<ObjectId>,
    /// Those of `now` that were made lately and that nobody has written to.
    new: BTreeSet<ObjectId>,
}

impl Intents {
    /// Opens the log of a target and gives what it says. `boot` is the number of the machine's start.
    pub(crate) fn open(target: &Path, boot: u64) -> Result<(Self, Found), FileError> {
        let dir = target.to_path_buf();
        let path = dir.join("intents");
        let fail = |doing| {
            let path = path.clone();
            move |source| FileError { doing, path, source }
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(fail("opening"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = fs::open(&dir, flags, Mode::empty()).map_err(fail("opening the directory of"))?;
        fs::fsync(&entries).map_err(fail("syncing the directory of"))?;
        let length = fs::fstat(&file).map_err(fail("looking at"))?.st_size.max(0) as usize;
        let mut bytes = vec![0; length];
        let mut got = 0;
        while got < length {
            match rustix::io::pread(&file, &mut bytes[got..], got as u64).map_err(fail("reading"))? {
                0 => break,
                more => got += more,
            }
        }
        let (now, last_boot) = replay(&bytes[..got]);
        let found = Found { unfinished: now.clone(), rebooted: last_boot != Some(boot) };
        let end = (got / RECORD * RECORD) as u64;
        reserve(&file);
        let state = State {
            file: file.into(),
            end,
            durable: end,
            syncing: false,
            rewritten: 0,
            broken: None,
            now,
            unsaid: BTreeSet::new(),
            new: BTreeSet::new(),
        };
        let intents = Self { dir, entries, boot, state: Mutex::new(state), synced: Condvar::new() };
        Ok((intents, found))
    }

    /// Notes that regions `first..=last` of an object may be written from now on; returns when that is durable.
    pub(crate) fn begin(&self, id: ObjectId, first: u32, last: u32) -> Result<(), FileError> {
        let mut state = self.state.lock();
        if state.new.remove(&id) && (first, last) == (0, 0) {
            return Ok(());
        }
        self.note(&mut state, [id], (first, last))
    }

    /// Notes that the first region of objects that are going to be made may be written from now on, at once for all of them: the first write to each
    /// finds that durable. Of too many that nobody writes to the oldest are forgotten.
    pub(crate) fn begin_new(&self, ids: &[u64]) -> Result<(), FileError> {
        let ids = ids.iter().copied().map(ObjectId);
        let mut state = self.state.lock();
        self.note(&mut state, ids.clone(), (0, 0))?;
        state.new.extend(ids);
        let many = state.new.len().saturating_sub(NEW);
        self.forget_new(&mut state, many)
    }

    /// Notes that nobody has written to objects that were made lately.
    pub(crate) fn end_new(&self) -> Result<(), FileError> {
        self.forget_new(&mut self.state.lock(), usize::MAX)
    }

    fn forget_new(&self, state: &mut State, count: usize) -> Result<(), FileError> {
        for _ in 0..count {
            let Some(id) = state.new.pop_first() else { break };
            state.now.remove(&id);
            state.unsaid.insert(id);
        }
        let noted = self.say(state);
        self.shorten_if_long(state);
        noted
    }

    /// Writes what is going to be written, durably. Others go on meanwhile.
    fn note(
        &self,
        state: &mut MutexGuard<'_, State>,
        ids: impl IntoIterator<Item = ObjectId>,
        (first, last): (u32, u32),
    ) -> Result<(), FileError> {
        // First what it was before: else a crash would have that computed anew, too.
        self.say(state)?;
        let mut mine = 0;
        for id in ids {
            mine = self.append(state, id, first, last, DIRTY)?;
            state.now.entry(id).or_default().insert((first, last));
            state.unsaid.remove(&id);
        }
        let rewritten = state.rewritten;
        while state.durable < mine && state.rewritten == rewritten {
            if let Some(source) = state.broken {
                return Err(self.error("syncing", source));
            }
            if state.syncing {
                self.synced.wait(state);
                continue;
            }
            state.syncing = true;
            let (file, end) = (state.file.clone(), state.end);
            let synced = MutexGuard::unlocked(state, || fs::fdatasync(&*file));
            state.syncing = false;
            self.synced.notify_all();
            match synced {
                Ok(()) => state.durable = state.durable.max(end),
                Err(source) => state.broken = Some(source),
            }
        }
        Ok(())
    }

    /// Notes that the whole object is durable with its sums. Needs not be durable itself: what is forgotten is only checked once more. On a disk
    /// that is full, from which objects are removed nevertheless, it is said as soon as there is room.
    pub(crate) fn end(&self, id: ObjectId) -> Result<(), FileError> {
        let mut state = self.state.lock();
        state.now.remove(&id);
        state.new.remove(&id);
        state.unsaid.insert(id);
        let noted = self.say(&mut state);
        self.shorten_if_long(&mut state);
        noted
    }

    fn shorten_if_long(&self, state: &mut State) {
        if state.end > LONG
            && !state.syncing
            && state.now.len() * 4 * RECORD < LONG as usize
            && let Err(e) = self.rewrite(state)
        {
            tracing::debug!("{e}; the log of what is being written stays long");
        }
    }

    /// Says of which objects nothing is unfinished, as far as there is room for that.
    fn say(&self, state: &mut State) -> Result<(), FileError> {
        while let Some(id) = state.unsaid.first().copied() {
            match self.append(state, id, 0, 0, CLEAN) {
                Ok(_) => drop(state.unsaid.remove(&id)),
                Err(e) => return if_there_is_room(e),
            }
        }
        Ok(())
    }

    /// Writes the log anew with what is true now, durably; on a disk that is full it stays as it is, and what it says is checked once more when
    /// the target is opened next.
    pub(crate) fn shorten(&self) -> Result<(), FileError> {
        let mut state = self.state.lock();
        while state.syncing {
            self.synced.wait(&mut state);
        }
        match self.rewrite(&mut state) {
            Err(e) if matches!(e.source, Errno::NOSPC | Errno::DQUOT) => {
                tracing::warn!("{e}; the log stays long until there is room");
                Ok(())
            }
            written => written,
        }
    }

    fn rewrite(&self, state: &mut State) -> Result<(), FileError> {
        let records = state
            .now
            .iter()
            .flat_map(|(id, regions)| regions.iter().map(move |(first, last)| (id, first, last)))
            .flat_map(|(id, first, last)| record(*id, *first, *last, DIRTY));
        let bytes: Vec<u8> = record(ObjectId(self.boot), 0, 0, BOOT).into_iter().chain(records).collect();
        let new = self.dir.join("intents.new");
        let fail = |doing| {
            let path = new.clone();
            move |source| FileError { doing, path, source }
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::open(&new, flags, Mode::RUSR | Mode::WUSR).map_err(fail("making"))?;
        let placed = write_all(&file, &bytes, 0)
            .and_then(|()| fs::fdatasync(&file))
            .and_then(|()| fs::rename(&new, self.dir.join("intents")));
        if let Err(source) = placed {
            // What is left of it takes room.
            let _ = fs::unlink(&new);
            return Err(fail("writing")(source));
        }
        // From here on the old one is not found any more.
        state.file = file.into();
        state.unsaid.clear();
        state.rewritten += 1;
        (state.end, state.durable) = (bytes.len() as u64, bytes.len() as u64);
        reserve(&state.file);
        state.broken = fs::fsync(&self.entries).err();
        state.broken.map_or(Ok(()), |source| Err(fail("syncing the directory of")(source)))
    }

    /// Appends a record; gives the end of the log behind it. What a failed write left is written over by the next one.
    fn append(
        &self,
        state: &mut State,
        id: ObjectId,
        first: u32,
        last: u32,
        kind: u32,
    ) -> Result<u64, FileError> {
        write_all(&state.file, &record(id, first, last, kind), state.end)
            .map_err(|e| self.error("writing", e))?;
        state.end += RECORD as u64;
        Ok(state.end)
    }

    fn error(&self, doing: &'static str, source: Errno) -> FileError {
        FileError { doing, path: self.dir.join("intents"), source }
    }
}

/// What must not be done on a full disk need not be done.
fn if_there_is_room(error: FileError) -> Result<(), FileError> {
    if matches!(error.source, Errno::NOSPC | Errno::DQUOT) { Ok(()) } else { Err(error) }
}

/// Has the disk keep room for the log, so that it is written when the disk is full. Where that cannot be had it is written while there is room.
fn reserve(file: &OwnedFd) {
    if let Err(e) = fs::fallocate(file, fs::FallocateFlags::KEEP_SIZE, 0, 2 * LONG) {
        tracing::debug!("no room is kept for the log of what is being written: {e}");
    }
}

fn record(id: ObjectId, first: u32, last: u32, kind: u32) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[..8].copy_from_slice(&id.0.to_le_bytes());
    bytes[8..12].copy_from_slice(&first.to_le_bytes());
    bytes[12..16].copy_from_slice(&last.to_le_bytes());
    bytes[16..20].copy_from_slice(&kind.to_le_bytes());
    let check = crc32c::crc32c(&bytes[..20]);
    bytes[20..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// What the records say, one after the other, and of which start of the machine the last are. A record that a crash left torn was never answered for: no write has followed it.
fn replay(bytes: &[u8]) -> (Regions, Option<u64>) {
    let (mut now, mut boot) = (Regions::new(), None);
    for bytes in bytes.as_chunks::<RECORD>().0 {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if crc32c::crc32c(&bytes[..20]) != word(20) {
            continue;
        }
        let id = ObjectId(u64::from(word(0)) | u64::from(word(4)) << 32);
        match word(16) {
            DIRTY => drop(now.entry(id).or_default().insert((word(8), word(12)))),
            BOOT => boot = Some(id.0),
            _ => drop(now.remove(&id)),
        }
    }
    (now, boot)
}

fn write_all(file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(file, &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(sent) => done += sent,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_known_after_a_crash_until_it_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (intents, before) = Intents::open(dir.path(), 1).unwrap();
        assert!(before.unfinished.is_empty() && before.rebooted);
        intents.shorten().unwrap();
        intents.begin(ObjectId(7), 0, 1).unwrap();
        intents.begin(ObjectId(7), 5, TO_THE_END).unwrap();
        intents.begin(ObjectId(1 << 40), 2, 2).unwrap();
        intents.begin(ObjectId(9), 0, 0).unwrap();
        intents.end(ObjectId(9)).unwrap();
        drop(intents);
        let expected = Regions::from([
            (ObjectId(7), BTreeSet::from([(0, 1), (5, TO_THE_END)])),
            (ObjectId(1 << 40), BTreeSet::from([(2, 2)])),
        ]);
        let (intents, found) = Intents::open(dir.path(), 1).unwrap();
        assert_eq!(found.unfinished, expected);
        assert!(!found.rebooted);
        intents.shorten().unwrap();
        let (_, found) = Intents::open(dir.path(), 2).unwrap();
        assert_eq!(found.unfinished, expected);
        assert!(found.rebooted);
    }

    #[test]
    fn objects_that_are_made_together_are_noted_once_and_forgotten_if_nobody_writes_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let (intents, _) = Intents::open(dir.path(), 1).unwrap();
        let (many, end) = (NEW as u64 + 2, || intents.state.lock().end);
        intents.begin_new(&[many + 7]).unwrap();
        intents.begin_new(&(1..=many).collect::<Vec<_>>()).unwrap();
        assert!(intents.state.lock().durable >= many * RECORD as u64);
        let noted = end();
        intents.begin(ObjectId(many + 7), 0, 0).unwrap();
        intents.begin(ObjectId(many), 0, 0).unwrap();
        assert_eq!(end(), noted, "they were noted when they were made");
        intents.begin(ObjectId(many), 1, 1).unwrap();
        intents.begin(ObjectId(many - 1), 1, 1).unwrap();
        // The oldest were forgotten, and are noted like all others.
        intents.begin(ObjectId(2), 0, 0).unwrap();
        assert_eq!(end(), noted + 3 * RECORD as u64);
        intents.end(ObjectId(5)).unwrap();
        let said = end();
        intents.begin(ObjectId(5), 0, 0).unwrap();
        assert!(end() > said, "it was whole in between");
        let crashed = || Intents::open(dir.path(), 1).unwrap().1.unfinished;
        let found: Vec<u64> = crashed().into_keys().map(|id| id.0).collect();
        assert_eq!(found, [2].into_iter().chain(4..=many).chain([many + 7]).collect::<Vec<_>>());
        assert_eq!(
            crashed()[&ObjectId(many - 1)],
            BTreeSet::from([(0, 0), (1, 1)]),
            "it may be written there, too"
        );
        for _ in 0..LONG as usize / (NEW * RECORD) + 1 {
            intents.begin_new(&(0..NEW as u64).map(|n| many + 8 + n).collect::<Vec<_>>()).unwrap();
        }
        assert!(end() < LONG, "it is short again, although nobody wrote");
        intents.end_new().unwrap();
        let found: Vec<u64> = crashed().into_keys().map(|id| id.0).collect();
        assert_eq!(found, [2, 5, many - 1, many, many + 7]);
    }

    #[test]
    fn an_end_for_which_there_is_no_room_is_said_when_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let (intents, _) = Intents::open(dir.path(), 1).unwrap();
        intents.shorten().unwrap();
        intents.begin(ObjectId(7), 0, 1).unwrap();
        let full = fs::open("/dev/full", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let log = std::mem::replace(&mut intents.state.lock().file, full.into());
        assert_eq!(intents.begin(ObjectId(8), 0, 0).unwrap_err().source, Errno::NOSPC);
        intents.end(ObjectId(7)).unwrap();
        let full = std::mem::replace(&mut intents.state.lock().file, log);
        intents.begin(ObjectId(9), 0, 0).unwrap();
        // What begins anew is not said to be whole because of what it was before.
        intents.begin(ObjectId(10), 0, 0).unwrap();
        let log = std::mem::replace(&mut intents.state.lock().file, full);
        intents.end(ObjectId(10)).unwrap();
        intents.state.lock().file = log;
        intents.begin(ObjectId(10), 1, 1).unwrap();
        drop(intents);
        let found = Intents::open(dir.path(), 1).unwrap().1.unfinished;
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [ObjectId(9), ObjectId(10)]);
    }

    #[test]
    fn what_was_whole_before_it_began_anew_is_said_first() {
        let dir = tempfile::tempdir().unwrap();
        let (intents, _) = Intents::open(dir.path(), 1).unwrap();
        intents.begin(ObjectId(7), 0, 1).unwrap();
        let full = fs::open("/dev/full", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let log = std::mem::replace(&mut intents.state.lock().file, full.into());
        intents.end(ObjectId(7)).unwrap();
        intents.state.lock().file = log;
        intents.begin(ObjectId(7), 5, 5).unwrap();
        drop(intents);
        let found = Intents::open(dir.path(), 1).unwrap().1.unfinished;
        assert_eq!(found, Regions::from([(ObjectId(7), BTreeSet::from([(5, 5)]))]));
    }

    #[test]
    fn a_log_that_cannot_be_written_anew_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (intents, _) = Intents::open(dir.path(), 1).unwrap();
        // In the way of the new one.
        std::fs::create_dir(dir.path().join("intents.new")).unwrap();
        intents.begin(ObjectId(7), 0, 1).unwrap();
        let mut ended = 0;
        while intents.state.lock().end <= LONG + 10 * RECORD as u64 {
            intents.append(&mut intents.state.lock(), ObjectId(9), 0, 0, DIRTY).unwrap();
            ended += 1;
        }
        assert!(ended > 1000);
        intents.end(ObjectId(9)).unwrap();
        intents.begin(ObjectId(9), 3, 3).unwrap();
        std::fs::remove_dir(dir.path().join("intents.new")).unwrap();
        intents.end(ObjectId(8)).unwrap();
        assert!(intents.state.lock().end < LONG, "it is short again");
        drop(intents);
        let found = Intents::open(dir.path(), 1).unwrap().1.unfinished;
        let expected =
            [(ObjectId(7), (0, 1)), (ObjectId(9), (3, 3))].map(|(id, r)| (id, BTreeSet::from([r])));
        assert_eq!(found, Regions::from(expected));
    }

    #[test]
    fn room_for_the_log_is_kept() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let probe = std::fs::File::create(dir.path().join("probe")).unwrap();
        if fs::fallocate(&probe, fs::FallocateFlags::KEEP_SIZE, 0, LONG).is_err() {
            return; // this file system cannot
        }
        let (intents, _) = Intents::open(dir.path(), 1).unwrap();
        let kept = || std::fs::metadata(dir.path().join("intents")).unwrap().blocks() * 512;
        assert!(kept() >= 2 * LONG, "{}", kept());
        intents.begin(ObjectId(7), 0, 1).unwrap();
        intents.shorten().unwrap();
        assert!(kept() >= 2 * LONG, "{}", kept());
    }

    #[test]
    fn a_torn_record_hides_nothing_else() {
        let mut log = record(ObjectId(1), 0, 0, DIRTY).to_vec();
        log.extend(&record(ObjectId(2), 0, 0, DIRTY)[..11]);
        assert_eq!(replay(&log).0.len(), 1);
        log.resize(2 * RECORD, 0);
        log.extend(record(ObjectId(3), 0, 0, DIRTY));
        assert_eq!(replay(&log).0.into_keys().collect::<Vec<_>>(), [ObjectId(1), ObjectId(3)]);
    }
}
