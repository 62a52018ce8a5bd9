//! Files on their way back from tape: what has arrived, and who waits for which bytes.

use super::open::{Backing, Content};
use super::ranges::Ranges;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::api::{ReadDone, WaitId};
use types::{FsError, Ino, Time, Version};

/// Files up to this length (bytes) are handed to readers only when the digest of all their bytes is known to be right.
/// Whoever waits for the first bytes of such a file waits for the rest of it too: 20 ms at the 400 MB/s of an LTO-9 drive,
/// nothing beside the mount that came before. Larger files are handed over as they arrive.
pub const PROVED_FIRST: u64 = 8 << 20;

/// How a recall ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The whole file is on disk and recorded.
    Whole,
    /// It failed; the text names volume or drive.
    Failed(String),
    /// The version is no longer wanted (overwritten, deleted, or every request withdrawn).
    Dropped,
}

struct Waiter {
    id: WaitId,
    offset: u64,
    len: u32,
    /// Waits for the end of the recall, not for bytes.
    for_end: bool,
    done: ReadDone,
}

#[derive(Default)]
struct State {
    object: Option<Backing>,
    arrived: Ranges,
    /// The digest of all bytes is the recorded one.
    proved: bool,
    waiters: Vec<Waiter>,
    outcome: Option<Outcome>,
    /// It is being made resident: too late to withdraw it.
    settling: bool,
    /// When its first byte came off a tape.
    begun: Option<Time>,
}

/// One file being recalled.
pub struct Staging {
    /// Inode.
    pub ino: Ino,
    /// Version being recalled.
    pub version: Version,
    /// Its length (bytes).
    pub size: u64,
    data: AtomicU64,
    /// Somebody has the file open and waits for its bytes.
    reader: AtomicBool,
    /// A request waits for it.
    patient: AtomicBool,
    /// It is on its way to a new copy, which can be begun as soon as it is here.
    passes: AtomicBool,
    /// Syncs of the disk tier that had failed when its object was begun.
    failed_syncs: AtomicU64,
    /// Number of the attempt whose bytes count: every choice of a copy is one. Held for reading while bytes are stored.
    attempt: RwLock<u32>,
    state: Mutex<State>,
    ended: Condvar,
    /// Held while the object is chosen: segments of one file may come from two drives at once.
    beginning: Mutex<()>,
}

/// What becomes of a wish to read.
pub enum Wish {
    /// It waits.
    Waits,
    /// It can be answered now.
    Now(Ready),
    /// This recall has ended, or was withdrawn: look at the file again.
    Again(ReadDone),
}

/// A read whose bytes are there (or will never be): finished by the completion threads.
pub struct Ready {
    source: Result<Option<Content>, FsError>,
    offset: u64,
    len: u32,
    done: ReadDone,
}

impl Ready {
    /// Reads the bytes and calls the completion.
    pub fn finish(self) {
        let result = match self.source {
            Err(e) => Err(e),
            Ok(None) => Ok(Vec::new()),
            Ok(Some(Content::Local(fd))) => read_at(&fd, self.offset, self.len),
            Ok(Some(Content::Far(file))) => file.read(self.offset, self.len),
        };
        (self.done)(result);
    }

    /// Whether targets have to be asked, which may not answer.
    pub fn waits_for_targets(&self) -> bool {
        matches!(self.source, Ok(Some(Content::Far(_))))
    }
}

/// Reads up to `len` bytes at `offset`, fewer only at the end of the object.
pub fn read_at(fd: &OwnedFd, offset: u64, len: u32) -> Result<Vec<u8>, FsError> {
    let mut buf = vec![0u8; len as usize];
    let mut got = 0;
    while got < buf.len() {
        match rustix::io::pread(fd, &mut buf[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                tracing::error!("reading a disk object at {offset}: {e}");
                return Err(FsError::Io);
            }
        }
    }
    buf.truncate(got);
    Ok(buf)
}

impl Staging {
    fn new(ino: Ino, version: Version, size: u64) -> Self {
        Self {
            ino,
            version,
            size,
            data: AtomicU64::new(size),
            reader: AtomicBool::default(),
            patient: AtomicBool::default(),
            passes: AtomicBool::default(),
            failed_syncs: AtomicU64::default(),
            attempt: RwLock::default(),
            state: Mutex::default(),
            ended: Condvar::new(),
            beginning: Mutex::default(),
        }
    }

    /// It is on its way to a new copy.
    pub fn set_passes(&self) {
        self.passes.store(true, Ordering::Relaxed);
    }

    /// Whether it is on its way to a new copy.
    pub fn passes(&self) -> bool {
        self.passes.load(Ordering::Relaxed)
    }

    /// Somebody who has the file open waits; true if nobody did before.
    pub fn add_reader(&self) -> bool {
        !self.reader.swap(true, Ordering::AcqRel)
    }

    /// Bytes come off a tape.
    pub fn reads(&self, now: impl FnOnce() -> Time) {
        self.state.lock().begun.get_or_insert_with(now);
    }

    /// When its first byte came off a tape, if one has.
    pub fn begun(&self) -> Option<Time> {
        self.state.lock().begun
    }

    /// A request waits that is content to wait for a drive that is out of use.
    pub fn add_patient(&self) {
        self.patient.store(true, Ordering::Release);
    }

    /// Whether one does: while every drive that could read the file is out of use, the recall waits for one.
    pub fn is_patient(&self) -> bool {
        self.patient.load(Ordering::Acquire)
    }

    /// Whether somebody who has the file open waits.
    pub fn has_reader(&self) -> bool {
        self.reader.load(Ordering::Acquire)
    }

    /// The object that the bytes go to, chosen by `choose` when it is asked for first.
    pub fn begin<E>(&self, choose: impl FnOnce() -> Result<Backing, E>) -> Result<Content, E> {
        let _one_at_a_time = self.beginning.lock();
        if let Some(begun) = self.object() {
            return Ok(begun.content);
        }
        let chosen = choose()?;
        self.state.lock().object = Some(chosen.clone());
        Ok(chosen.content)
    }

    /// What arrived so far is not to be trusted: readers wait for it again.
    pub fn distrust(&self) {
        self.state.lock().arrived = Ranges::default();
    }

    /// A copy has been chosen: bytes of earlier attempts, from a drive that is late, are not taken any more, and what is
    /// known of the old bytes says nothing about the new ones.
    pub fn next_attempt(&self) -> u32 {
        let mut attempt = self.attempt.write();
        self.state.lock().proved = false;
        *attempt += 1;
        *attempt
    }

    /// Calls `store`, which changes the object or what has arrived, if this attempt is still wanted. Nobody can begin
    /// another one or make the file resident meanwhile.
    pub fn store<T>(&self, attempt: u32, store: impl FnOnce() -> T) -> Option<T> {
        let current = self.attempt.read();
        let wanted = *current == attempt && {
            let s = self.state.lock();
            s.outcome.is_none() && !s.settling
        };
        wanted.then(store)
    }

    /// Whoever makes the file resident asks first: false if the recall ended before. From here on nothing is stored, and
    /// the recall cannot be withdrawn.
    pub fn claim(&self) -> bool {
        let _nobody_stores = self.attempt.write();
        let mut s = self.state.lock();
        let free = s.outcome.is_none() && !s.settling;
        s.settling |= free;
        free
    }

    /// Ends it as dropped if nobody waits for its bytes and it is not being made resident; true if so.
    pub fn withdraw(&self) -> bool {
        let mut s = self.state.lock();
        let idle = s.waiters.is_empty() && s.outcome.is_none() && !s.settling;
        if idle {
            s.outcome = Some(Outcome::Dropped);
        }
        idle
    }

    /// The object, once begun.
    pub fn object(&self) -> Option<Backing> {
        self.state.lock().object.clone()
    }

    /// Whether it has room in the node's disk tier.
    pub fn is_local(&self) -> bool {
        self.state.lock().object.as_ref().is_some_and(|object| object.fd().is_some())
    }

    /// Bytes that come from tape; the rest are holes and take no space.
    pub fn data_bytes(&self) -> u64 {
        self.data.load(Ordering::Relaxed)
    }

    /// Told by whoever knows the extents.
    pub fn set_data_bytes(&self, bytes: u64) {
        self.data.store(bytes, Ordering::Relaxed);
    }

    /// Syncs of the disk tier that had failed when its object was begun: if there are more now, bytes may be lost.
    pub fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::Relaxed)
    }

    /// Told before the object is given to it.
    pub fn set_failed_syncs(&self, count: u64) {
        self.failed_syncs.store(count, Ordering::Relaxed);
    }

    /// Whether it ended, and how.
    pub fn outcome(&self) -> Option<Outcome> {
        self.state.lock().outcome.clone()
    }

    /// Bytes that have arrived.
    pub fn arrived_bytes(&self) -> u64 {
        self.state.lock().arrived.total().min(self.size)
    }

    /// Bytes `[start, end)` are in the object now. Returns the reads that can be answered with them.
    #[must_use]
    pub fn arrive(&self, start: u64, end: u64) -> Vec<Ready> {
        let mut s = self.state.lock();
        s.arrived.add(start, end);
        self.answerable(&mut s)
    }

    /// All bytes are in the object and have the recorded digest. Returns the reads that can be answered now.
    #[must_use]
    pub fn prove(&self) -> Vec<Ready> {
        let mut s = self.state.lock();
        s.proved = true;
        self.answerable(&mut s)
    }

    /// Whether the digest of all bytes has been found right.
    pub fn is_proved(&self) -> bool {
        self.state.lock().proved
    }

    /// Whether readers may have bytes `[offset, offset + len)` now.
    fn readable(&self, s: &State, offset: u64, len: u32) -> bool {
        let end = offset.saturating_add(u64::from(len)).min(self.size);
        (s.proved || self.size > PROVED_FIRST) && s.arrived.covers(offset, end)
    }

    /// Takes out the reads whose bytes are there.
    fn answerable(&self, s: &mut State) -> Vec<Ready> {
        let Some(Backing { content, .. }) = s.object.clone() else { return Vec::new() };
        let waiters = std::mem::take(&mut s.waiters);
        let (ready, waiting): (Vec<_>, Vec<_>) =
            waiters.into_iter().partition(|w| !w.for_end && self.readable(s, w.offset, w.len));
        s.waiters = waiting;
        let answer = |w: Waiter| Ready {
            source: Ok(Some(content.clone())),
            offset: w.offset,
            len: w.len,
            done: w.done,
        };
        ready.into_iter().map(answer).collect()
    }

    /// Ends the recall and wakes everybody. A dropped one answers end of file: the version is gone.
    #[must_use]
    fn end(&self, outcome: Outcome) -> Vec<Ready> {
        let mut s = self.state.lock();
        let source = match &outcome {
            Outcome::Whole => Ok(s.object.as_ref().map(|object| object.content.clone())),
            Outcome::Failed(_) => Err(FsError::Io),
            Outcome::Dropped => Ok(None),
        };
        if outcome == Outcome::Whole {
            // The catalogue knows it now. A descriptor that can write would keep the file from being purged.
            s.object = None;
        }
        s.outcome = Some(outcome);
        self.ended.notify_all();
        let waiters = std::mem::take(&mut s.waiters);
        let ready = |w: Waiter| Ready { source: source.clone(), offset: w.offset, len: w.len, done: w.done };
        waiters.into_iter().map(ready).collect()
    }

    /// Reads when the bytes are there.
    pub fn read(&self, id: WaitId, offset: u64, len: u32, nonblock: bool, done: ReadDone) -> Wish {
        let mut s = self.state.lock();
        let content = s.object.as_ref().map(|object| object.content.clone());
        let at_once = match &s.outcome {
            Some(Outcome::Failed(_)) => Some(Err(FsError::Io)),
            Some(Outcome::Whole | Outcome::Dropped) => return Wish::Again(done),
            None if len == 0 || offset >= self.size => Some(Ok(None)),
            None if content.is_some() && self.readable(&s, offset, len) => Some(Ok(content)),
            None if nonblock => Some(Err(FsError::WouldBlock)),
            None => None,
        };
        match at_once {
            Some(source) => Wish::Now(Ready { source, offset, len, done }),
            None => {
                s.waiters.push(Waiter { id, offset, len, for_end: false, done });
                Wish::Waits
            }
        }
    }

    /// Calls `done` when the recall has ended, with no bytes; at once if it has.
    pub fn when_ended(&self, id: WaitId, nonblock: bool, done: ReadDone) -> Result<(), Ready> {
        let mut s = self.state.lock();
        let at_once = match &s.outcome {
            Some(Outcome::Failed(_)) => Some(Err(FsError::Io)),
            Some(_) => Some(Ok(None)),
            None if nonblock => Some(Err(FsError::WouldBlock)),
            None => None,
        };
        match at_once {
            Some(source) => Err(Ready { source, offset: 0, len: 0, done }),
            None => {
                s.waiters.push(Waiter { id, offset: 0, len: 0, for_end: true, done });
                Ok(())
            }
        }
    }

    /// Waits until it ends; None after `limit`.
    pub fn wait(&self, limit: Duration) -> Option<Outcome> {
        let deadline = Instant::now() + limit;
        let mut s = self.state.lock();
        while s.outcome.is_none() {
            if self.ended.wait_until(&mut s, deadline).timed_out() {
                break;
            }
        }
        s.outcome.clone()
    }
}

/// All files being recalled.
#[derive(Default)]
pub struct StagingTable {
    files: Mutex<HashMap<Ino, Arc<Staging>>>,
    waits: Mutex<HashMap<WaitId, Ino>>,
    next_wait: AtomicU64,
}

impl StagingTable {
    /// The recall of `ino`, if one runs.
    pub fn get(&self, ino: Ino) -> Option<Arc<Staging>> {
        self.files.lock().get(&ino).cloned()
    }

    /// Joins the recall of this version, or starts one (true).
    pub fn join(&self, ino: Ino, version: Version, size: u64) -> (Arc<Staging>, bool) {
        let mut files = self.files.lock();
        if let Some(s) = files.get(&ino)
            && s.version == version
            && s.outcome().is_none()
        {
            return (s.clone(), false);
        }
        let s = Arc::new(Staging::new(ino, version, size));
        files.insert(ino, s.clone());
        (s, true)
    }

    /// Ends a recall; its waiters are returned ready.
    #[must_use]
    pub fn end(&self, staging: &Arc<Staging>, outcome: Outcome) -> Vec<Ready> {
        let mut files = self.files.lock();
        if files.get(&staging.ino).is_some_and(|s| Arc::ptr_eq(s, staging)) {
            files.remove(&staging.ino);
        }
        drop(files);
        staging.end(outcome)
    }

    /// A fresh wait id for a read of `ino`.
    pub fn new_wait(&self, ino: Ino) -> WaitId {
        let id = WaitId(self.next_wait.fetch_add(1, Ordering::Relaxed) + 1);
        self.waits.lock().insert(id, ino);
        id
    }

    /// Forgets a wait id.
    pub fn end_wait(&self, id: WaitId) {
        self.waits.lock().remove(&id);
    }

    /// Withdraws a wait; its read is returned ready, interrupted.
    #[must_use]
    pub fn cancel(&self, id: WaitId) -> Option<Ready> {
        let ino = self.waits.lock().remove(&id)?;
        let staging = self.get(ino)?;
        let mut s = staging.state.lock();
        let at = s.waiters.iter().position(|w| w.id == id)?;
        let w = s.waiters.swap_remove(at);
        Some(Ready { source: Err(FsError::Interrupted), offset: w.offset, len: w.len, done: w.done })
    }

    /// How many recalls run.
    pub fn len(&self) -> usize {
        self.files.lock().len()
    }

    /// Every recall that runs.
    pub fn all(&self) -> Vec<Arc<Staging>> {
        self.files.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withdrawn_is_not_made_resident_and_the_other_way_round() {
        let withdrawn = Staging::new(Ino(1), Version(1), 10);
        assert!(withdrawn.withdraw() && !withdrawn.claim());
        let claimed = Staging::new(Ino(1), Version(1), 10);
        assert!(claimed.claim() && !claimed.withdraw() && !claimed.claim());
    }

    #[test]
    fn only_the_present_attempt_stores_and_nobody_once_it_is_claimed() {
        let staging = Staging::new(Ino(1), Version(1), 10);
        let (first, second) = (staging.next_attempt(), staging.next_attempt());
        assert_eq!((staging.store(first, || ()), staging.store(second, || ())), (None, Some(())));
        assert!(staging.claim());
        assert_eq!(staging.store(second, || ()), None);
    }

    #[test]
    fn small_files_are_readable_when_proved_and_large_ones_as_they_arrive() {
        let read = |staging: &Staging| match staging.read(WaitId(1), 0, 10, true, Box::new(|_| ())) {
            Wish::Now(ready) => ready.source.is_ok_and(|fd| fd.is_some()),
            _ => panic!("it must not wait"),
        };
        let begun = |size| {
            let staging = Staging::new(Ino(1), Version(1), size);
            let fd = Arc::new(tempfile::tempfile().unwrap().into());
            staging.begin(|| Ok::<_, ()>(Backing::local(types::ObjectId(1), fd))).unwrap();
            assert!(staging.arrive(0, 10).is_empty());
            staging
        };
        assert!(read(&begun(PROVED_FIRST + 1)));
        let small = begun(PROVED_FIRST);
        assert!(!read(&small));
        assert!(small.prove().is_empty() && read(&small));
        small.next_attempt();
        assert!(!read(&small), "bytes of the next copy are proved anew");
    }
}
