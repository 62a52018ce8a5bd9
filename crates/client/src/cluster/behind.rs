//! Small writes within a file stay in memory for a tenth of a second while nobody else has the file open (a lease of the node), and go to the targets many at a
//! time: a program does not wait for its targets with each of them.
//!
//! * What is here is newer than what the targets have, and is at the targets before anybody else can look: before the node answers who opens the file,
//!   and here before the file is read there, written past this, cut, unlocked, synced or closed.
//! * Only bytes are kept that lie within the length that the node has told, so it knows the length that everybody asks for.
//! * What the targets do not take is lost as it would be if the write itself had failed: fsync and close say so. So it is if this host was not heard when
//!   somebody else opened the file: the targets refuse the right by which it goes, which is from before the lease, and the node refuses the number of the lease.

use super::direct::{Direct, MOVES, Route};
use super::memory::{Moment, now};
use super::table::{OpenFile, OpenInode};
use super::threads::Threads;
use super::{ClusterFiles, Shared, groups::Kind};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stripe::{Extents, StripeError};
use types::api::FsResult;
use types::{ErrorClass, FsError, Ino};
use wire::{Alone, FileCall, Reply};

/// How long who asks for attributes waits for what is in memory.
const SOON: Duration = Duration::from_secs(1);
/// How long, when somebody has waited for that in vain a moment ago: many who ask would hold all threads of their mount.
const BRIEFLY: Duration = Duration::from_millis(20);
/// Such a moment.
const VAIN: Duration = Duration::from_secs(5);
/// Longest write that is kept (bytes).
const SMALL: usize = 64 << 10;
/// Most bytes of one file: then whoever writes waits.
const MOST: u64 = 1 << 20;
/// Most pieces of one file.
const PIECES: u64 = 1024;
/// So many bytes go at once.
const BATCH: u64 = 128 << 10;
/// Nothing stays longer, if the targets take it.
const AGE: Duration = Duration::from_millis(100);
/// The lease has to last so much longer where something is kept: so long its way to the targets may take.
const SPARE: Duration = Duration::from_millis(500);
/// One that lasts no longer than this is asked for again while the file is written.
const RENEW: Duration = Duration::from_millis(750);
/// Who was refused asks again so much later.
const AGAIN: Duration = Duration::from_secs(1);
/// Who is refused at a target tries again so much later, each time by as much later again.
const REFUSED: Duration = Duration::from_millis(50);
/// So many small writes tell that more will come.
const STEADY: u32 = 4;
/// Most files of which something is kept at once, each with a thread of its own.
const FILES: usize = 32;
/// Most files for which the node is asked at once.
const ASKING: usize = 4;

/// What is kept of an open file.
#[derive(Default)]
pub(super) struct Behind {
    state: Mutex<State>,
    /// Something has landed, or a batch is together.
    changed: Condvar,
    /// How often something was lost.
    losses: AtomicU64,
}

#[derive(Default)]
struct State {
    kept: Extents,
    /// What is on its way to the targets, as it left.
    flying: Option<Arc<Extents>>,
    /// Writes that were kept, and of these, how many have landed or are lost.
    count: u64,
    landed: u64,
    /// Through what it was written last.
    by: Weak<OpenFile>,
    /// Until when nobody else has the file open, by the lease of this number, and in which session.
    alone: Option<Moment>,
    number: u64,
    begun: u64,
    /// The last one that was taken back.
    ended: u64,
    /// The way on which it goes to the targets, with rights that are older than the last answer that the lease stands. If that is lost, the targets refuse them.
    way: Option<Arc<Direct>>,
    /// The node is being asked for that, or may be after this.
    asks: bool,
    ask_after: Moment,
    /// Small writes that were not kept, so far.
    others: u32,
    /// A thread brings it to the targets.
    tended: bool,
    /// Somebody waits for it.
    hurry: bool,
    failure: Option<FsError>,
}

/// What all files of a mount share.
pub(super) struct Landing {
    files: AtomicUsize,
    /// Nothing is kept any more.
    closed: AtomicBool,
    /// When somebody has waited for what is in memory in vain.
    vain: Mutex<Option<Instant>>,
    /// For what somebody else waits for.
    returning: Threads,
    returned: Mutex<HashSet<(Ino, u64)>>,
    asking: Threads,
}

impl Default for Landing {
    fn default() -> Self {
        let (returning, asking) =
            (Threads::new("cluster-return", 2 * FILES), Threads::new("cluster-alone", ASKING));
        Self {
            files: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            vain: Mutex::default(),
            returning,
            returned: Mutex::default(),
            asking,
        }
    }
}

impl Landing {
    /// Asks the node for something that nobody waits for.
    pub(super) fn ask(&self, job: Box<dyn FnOnce() + Send>) {
        self.asking.run(job);
    }

    /// The mount ends.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn enter(&self) -> bool {
        let more = |files| Some(files + 1).filter(|files| *files <= FILES);
        self.files.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }
}

impl State {
    /// Something has not landed.
    fn is_behind(&self) -> bool {
        self.landed < self.count
    }

    /// Enough is together to go.
    fn is_batch(&self) -> bool {
        let enough = self.hurry || self.kept.bytes() >= BATCH || self.kept.count() >= PIECES;
        self.flying.is_none() && !self.kept.is_empty() && enough
    }

    fn meets(&self, range: &Range<u64>) -> bool {
        let in_it = |pieces: &Extents| pieces.within(range.clone()).next().is_some();
        in_it(&self.kept) || self.flying.as_deref().is_some_and(in_it)
    }
}

impl Behind {
    /// How often something of the file was lost so far.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// An error if something of what was kept was lost of which this open file was not told by [`Behind::told`].
    pub(super) fn is_whole(&self, file: &OpenFile) -> FsResult<()> {
        self.same(file.losses.load(Ordering::Acquire), self.losses())
    }

    /// The same; once for each loss.
    pub(super) fn told(&self, file: &OpenFile) -> FsResult<()> {
        let losses = self.losses();
        self.same(file.losses.swap(losses, Ordering::AcqRel), losses)
    }

    fn same(&self, before: u64, now: u64) -> FsResult<()> {
        if before == now { Ok(()) } else { Err(self.state.lock().failure.unwrap_or(FsError::Io)) }
    }

    /// Something of what was written through the node is lost, too.
    pub(super) fn lost(&self, e: FsError) {
        self.state.lock().failure = Some(e);
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// A handle is about to be closed: if it is the last that the node knows, the lease ends with it.
    pub(super) fn closes(&self) {
        self.state.lock().alone = None;
    }

    /// The lease of this number, and those before, count no more.
    fn end(&self, number: u64) {
        let mut state = self.state.lock();
        state.ended = state.ended.max(number);
        if state.number <= number {
            state.alone = None;
        }
    }
}

impl Shared {
    /// Keeps a small write in memory; None: it is to go to the targets now.
    pub(super) fn keep(self: &Arc<Self>, file: &Arc<OpenFile>, offset: u64, bytes: &[u8]) -> Option<usize> {
        let inode = &file.inode;
        let end = offset.checked_add(bytes.len() as u64)?;
        let fits = !bytes.is_empty() && bytes.len() <= SMALL && end <= inode.length.known();
        if !fits || !matches!(&*file.route.lock(), Route::Direct(_)) {
            return None;
        }
        let behind = &inode.behind;
        let mut state = behind.state.lock();
        // Before anything is looked at: it may change meanwhile.
        while state.kept.bytes() + bytes.len() as u64 > MOST || state.kept.count() >= PIECES {
            behind.changed.wait(&mut state);
        }
        if state.alone.is_none_or(|until| until <= now() + SPARE) {
            state.others = state.others.saturating_add(1);
            let likely = state.others >= STEADY;
            drop(state);
            if likely {
                self.ask_alone(file);
            }
            return None;
        }
        // Of another session: to open it in this one would wait for what is kept here.
        let of_lease = file.place.try_lock().is_some_and(|place| place.begun == state.begun);
        if !of_lease || self.landing.closed.load(Ordering::Acquire) {
            return None;
        }
        if !state.tended {
            state.tended = self.tend_behind(file.ino, inode);
            state.tended.then_some(())?;
        }
        inode.length.writing(Arc::downgrade(file));
        state.kept.insert(offset, bytes.to_vec());
        state.count += 1;
        state.by = Arc::downgrade(file);
        if state.is_batch() {
            behind.changed.notify_all();
        }
        Some(bytes.len())
    }

    /// Asks the node whether nobody else has the file open, unless that is being done. Nobody waits for it.
    fn ask_alone(self: &Arc<Self>, file: &Arc<OpenFile>) {
        {
            let begun = file.place.try_lock().map(|place| place.begun);
            let mut state = file.inode.behind.state.lock();
            // What is kept by a lease of an earlier session comes to the targets first.
            let earlier = state.is_behind() && begun != Some(state.begun);
            if state.asks || earlier || now() < state.ask_after {
                return;
            }
            state.asks = true;
        }
        let (shared, file) = (self.clone(), file.clone());
        self.landing.asking.run(Box::new(move || {
            let asked = file.inode.length.asks();
            let lease = shared.lease_alone(&file);
            let mut state = file.inode.behind.state.lock();
            state.asks = false;
            match lease {
                // What is kept by an earlier one is refused if that is lost.
                Some((Alone { number, length, cuts, .. }, (until, begun), way))
                    if number > state.ended
                        && until > now()
                        && (number == state.number || !state.is_behind()) =>
                {
                    // Longer by what was written here: that was told before it was answered.
                    file.inode.length.found(asked, length, cuts);
                    (state.number, state.begun) = (number, begun);
                    (state.alone, state.way) = (Some(until), Some(way));
                }
                _ => state.ask_after = now() + AGAIN,
            }
        }));
    }

    /// Asks the node for a lease: what it says, until when it is good and in which session, and a way with rights of before.
    fn lease_alone(&self, file: &OpenFile) -> Option<(Alone, (Moment, u64), Arc<Direct>)> {
        let known = file.inode.behind.state.lock().way.clone();
        let way = match known {
            Some(way) => way,
            None => self.way_of_now(file).ok()??,
        };
        let (at, begun) = (now(), file.place.lock().begun);
        match self.lines.ask_alone(file) {
            Ok(Reply::Alone(Some(alone))) => {
                let until = at + Duration::from_millis(alone.term_ms.into());
                Some((alone, (until, begun), way))
            }
            _ => None,
        }
    }

    /// Brings what is kept of a file to its targets, until nothing has come for a while; false if there is no thread for that.
    fn tend_behind(self: &Arc<Self>, ino: Ino, inode: &Arc<OpenInode>) -> bool {
        if !self.landing.enter() {
            return false;
        }
        let (shared, inode) = (self.clone(), inode.clone());
        let tend = move || {
            shared.tend(ino, &inode);
            shared.landing.files.fetch_sub(1, Ordering::AcqRel);
        };
        let begun = std::thread::Builder::new().name("cluster-behind".into()).spawn(tend);
        if begun.is_err() {
            self.landing.files.fetch_sub(1, Ordering::AcqRel);
        }
        begun.is_ok()
    }

    fn tend(self: &Arc<Self>, ino: Ino, inode: &OpenInode) {
        let behind = &inode.behind;
        let mut state = behind.state.lock();
        loop {
            let before = state.count;
            behind.changed.wait_while_for(&mut state, |state| !state.is_batch(), AGE);
            if state.kept.is_empty() && state.flying.is_none() && state.count == before {
                state.tended = false;
                return;
            }
            let ends_soon = state.alone.is_some_and(|until| until < now() + RENEW);
            if let Some(file) = state.by.upgrade().filter(|_| ends_soon && !state.kept.is_empty()) {
                drop(state);
                self.ask_alone(&file);
                drop(file);
                state = behind.state.lock();
            }
            state = self.land_next(ino, inode, state);
        }
    }

    /// Brings all that is kept of a file now to its targets, or waits until what is on its way has landed.
    fn land_next<'s>(
        self: &Arc<Self>,
        ino: Ino,
        inode: &'s OpenInode,
        mut state: MutexGuard<'s, State>,
    ) -> MutexGuard<'s, State> {
        let behind = &inode.behind;
        if state.flying.is_some() {
            behind.changed.wait(&mut state);
            return state;
        }
        if state.kept.is_empty() {
            state.landed = state.count;
            return state;
        }
        let pieces = Arc::new(std::mem::take(&mut state.kept));
        let (upto, by, number) = (state.count, state.by.upgrade(), state.number);
        state.hurry = false;
        state.flying = Some(pieces.clone());
        drop(state);
        let landed = match by {
            Some(file) => self.write_kept(&file, &pieces, number),
            None => Err(FsError::BadHandle),
        };
        let mut state = behind.state.lock();
        (state.flying, state.landed) = (None, upto);
        if let Err(e) = landed {
            let (why, e) = match e {
                FsError::Stale => {
                    ("this host was not heard when somebody else opened the file, or it is gone", FsError::Io)
                }
                e => ("its targets did not take them", e),
            };
            tracing::error!(
                "inode {ino}: {} bytes that programs have written are lost, {why} ({e}); fsync and close say so: write them again",
                pieces.bytes()
            );
            state.failure = Some(e);
            (state.alone, state.way, state.ask_after) = (None, None, now() + AGAIN);
            behind.losses.fetch_add(1, Ordering::AcqRel);
        }
        behind.changed.notify_all();
        state
    }

    /// Brings pieces that were kept by the lease of this number to their targets, if it stands.
    fn write_kept(self: &Arc<Self>, file: &Arc<OpenFile>, pieces: &Extents, number: u64) -> FsResult<()> {
        if file.lost.load(Ordering::Acquire) {
            return Err(FsError::Io);
        }
        let pieces: Vec<(u64, &[u8])> = pieces.within(0..u64::MAX).collect();
        if pieces.is_empty() || self.writing(file, &pieces, || self.write_by_lease(file, &pieces, number))? {
            return Ok(());
        }
        // They go through the node, now: each may go elsewhere.
        self.lease_stands(file, number)?;
        let served =
            |(at, bytes): &(u64, &[u8])| match self.write_served(file, *at, bytes, false)? == bytes.len() {
                true => Ok(()),
                false => Err(FsError::NoSpace),
            };
        pieces.iter().map(served).fold(Ok(()), FsResult::and)
    }

    /// Writes at the movers with rights that are older than the last answer that the lease stands; false: the node is to write.
    fn write_by_lease(&self, file: &OpenFile, pieces: &[(u64, &[u8])], number: u64) -> FsResult<bool> {
        let mut failed: u32 = 0;
        loop {
            let known = file.inode.behind.state.lock().way.clone();
            let way = match known {
                Some(way) => way,
                None => {
                    let Some(way) = self.way_of_now(file)? else { return Ok(false) };
                    self.lease_stands(file, number)?;
                    file.inode.behind.state.lock().way = Some(way.clone());
                    way
                }
            };
            let Err(e) = file.inode.length.put(&way.striped, pieces) else { return Ok(true) };
            file.inode.behind.state.lock().way = None;
            match e {
                e if e.class() == ErrorClass::NoSpace => {
                    *file.route.lock() = Route::Served(Instant::now());
                    return Ok(false);
                }
                StripeError::Beyond(_) => return Ok(false),
                e if failed == 0 || (failed < MOVES && e.may_renew()) => {
                    tracing::debug!("writing inode {}: {e}; the node is asked where it lies", file.ino);
                    // The node in whose place another one serves may not know it yet.
                    std::thread::sleep(failed * REFUSED);
                    failed += 1;
                }
                e => {
                    tracing::error!("writing inode {}: {e}", file.ino);
                    return Err(FsError::Io);
                }
            }
        }
    }

    /// Whether what was kept by the lease of this number may come to the targets, with rights that are here by now; ESTALE: it may not.
    fn lease_stands(&self, file: &OpenFile, number: u64) -> FsResult<()> {
        let call = self.lines.number();
        let made = |handle| Ok(FileCall::WriteAloneStands { handle, number });
        self.lines.ask_open(Kind::Alone, file, call.value, &made).and_then(super::bytes::done)
    }

    /// When this returns all that was kept of a file before is at its targets, or lost.
    pub(super) fn land(self: &Arc<Self>, ino: Ino, inode: &OpenInode) {
        let mut state = inode.behind.state.lock();
        let upto = state.count;
        while state.landed < upto {
            state = self.land_next(ino, inode, state);
        }
    }

    /// The same, but a mover that does not answer is not waited for.
    pub(super) fn land_soon(&self, inode: &OpenInode) {
        let behind = &inode.behind;
        let mut state = behind.state.lock();
        let upto = state.count;
        if state.landed < upto {
            state.hurry = true;
            behind.changed.notify_all();
            let vain = self.landing.vain.lock().is_some_and(|at| at.elapsed() < VAIN);
            let patience = if vain { BRIEFLY } else { SOON };
            let waited = behind.changed.wait_while_for(&mut state, |state| state.landed < upto, patience);
            // Who waits briefly may do so in vain although all is well.
            if waited.timed_out() && !vain && state.landed < upto {
                *self.landing.vain.lock() = Some(Instant::now());
            }
        }
    }

    /// The same as [`Shared::land`] if some of it lies in a range.
    pub(super) fn land_in(self: &Arc<Self>, file: &OpenFile, range: Range<u64>) {
        if file.inode.behind.state.lock().meets(&range) {
            self.land(file.ino, &file.inode);
        }
    }

    /// Somebody else wants the file: the lease of this number is over.
    pub(super) fn give_back(self: &Arc<Self>, ino: Ino, number: u64) {
        if !self.landing.returned.lock().insert((ino, number)) {
            return; // told again
        }
        let shared = self.clone();
        self.landing.returning.run(Box::new(move || {
            if let Some(inode) = shared.table.inode(ino) {
                inode.behind.end(number);
                shared.land(ino, &inode);
            }
            let call = FileCall::WriteAloneEnd { ino, number };
            if let Err(e) = shared.lines.ask(Kind::Alone, &super::bytes::nobody(), call) {
                tracing::debug!("inode {ino}: who waits for it was not told: {e}");
            }
            shared.landing.returned.lock().remove(&(ino, number));
        }));
    }
}

impl ClusterFiles {
    /// The mount ends although programs use it: what they have written goes to the targets, and what they write from now on goes there at once.
    pub fn end_behind(&self) {
        self.0.landing.closed.store(true, Ordering::Release);
        let all = self.0.table.inodes();
        std::thread::scope(|scope| {
            for (ino, inode) in all.iter().filter(|(_, inode)| inode.behind.state.lock().is_behind()) {
                scope.spawn(move || self.0.land(*ino, inode));
            }
        });
        self.end_spares();
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{Place, Table};
    use super::*;
    use types::Cx;
    use types::api::OpenFlags;

    #[test]
    fn each_open_file_is_told_once_of_what_was_lost_while_it_was_open() {
        let table = Table::default();
        let open = || {
            let place = Place { begun: 1, handle: types::Handle(1) };
            table.enter(&Cx::admin(types::Time::default()), Ino(5), OpenFlags::default(), place).1
        };
        let (one, other) = (open(), open());
        let behind = &one.inode.behind;
        assert_eq!((behind.is_whole(&one), behind.told(&one)), (Ok(()), Ok(())));
        behind.state.lock().failure = Some(FsError::NoSpace);
        behind.losses.fetch_add(1, Ordering::AcqRel);
        // close says so and takes it from nobody.
        assert_eq!(behind.is_whole(&one), Err(FsError::NoSpace));
        for file in [&one, &other] {
            assert_eq!((behind.told(file), behind.told(file)), (Err(FsError::NoSpace), Ok(())));
        }
        let later = open();
        assert_eq!((behind.is_whole(&later), behind.told(&later)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_lease_that_was_taken_back_counts_no_more_and_a_later_one_does() {
        let behind = Behind::default();
        let has = |number| {
            let mut state = behind.state.lock();
            (state.number, state.alone) = (number, Some(now() + SPARE * 2));
        };
        has(7);
        behind.end(6);
        assert!(behind.state.lock().alone.is_some(), "that is about an earlier one");
        behind.end(7);
        assert!(behind.state.lock().alone.is_none());
        has(9);
        behind.end(8);
        let state = behind.state.lock();
        assert_eq!((state.alone.is_some(), state.ended), (true, 8));
    }
}
