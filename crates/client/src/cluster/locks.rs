//! Locks: the node holds them all; what programs of this host hold is remembered here, to be claimed when the node was started anew.
//!
//! From the first lock on a thread asks for news. It notices first that a session has ended, and says when nothing (more) is to be claimed. Until it has claimed
//! what is held of an inode nothing is done with that inode through its handles (`OpenInode::locked_in`); what cannot be claimed is lost:
//! its file gives EIO from then on, since others may have changed what it protected.

use super::bytes::count;
use super::groups::Kind;
use super::table::OpenFile;
use super::{ClusterFiles, Shared};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use types::api::{FsResult, ReadyDone, WaitId};
use types::{
    FsError, Handle, Ino, LockHeld, LockKind, LockOrder, LockRange, LockRanges, LockSpace, LockWait,
};
use wire::{FileCall, LockEvent, Reply};

/// Before news are asked for again where nobody has answered for a minute, or does not want to.
const PAUSE: Duration = Duration::from_secs(10);

/// An owner's number, of each family.
type Owner = (LockSpace, u64);

/// All locks of this mount.
#[derive(Default)]
pub(super) struct Locks(Mutex<State>);

#[derive(Default)]
struct State {
    held: HashMap<Ino, HashMap<Owner, Held>>,
    /// By the number of the call.
    waiting: HashMap<u64, Waiting>,
    /// A thread asks for news.
    tended: bool,
}

#[derive(Clone)]
struct Held {
    /// Through which it was got last.
    file: Arc<OpenFile>,
    /// All through which any was got: a process locks files, not handles.
    through: Vec<Weak<OpenFile>>,
    pid: u32,
    ranges: LockRanges,
    /// In which session.
    begun: u64,
}

struct Waiting {
    file: Arc<OpenFile>,
    order: LockOrder,
    done: ReadyDone,
    /// In which session it waits; 0: it is being asked for.
    begun: u64,
    withdrawn: bool,
}

impl State {
    /// Says in which session the locks of an inode are held; one that is nowhere if not all of them have been claimed yet.
    fn mark(&mut self, file: &OpenFile) {
        let mut begun = self.held.get(&file.ino).into_iter().flatten().map(|(_, held)| held.begun);
        let first = begun.next().unwrap_or(0);
        let same = begun.all(|other| other == first);
        file.inode.locked_in.store(if same { first } else { u64::MAX }, Ordering::Release);
        if first == 0 {
            self.held.remove(&file.ino);
        }
    }

    /// A lock of flock(2) is not held while another kind of it is waited for.
    fn give_up(&mut self, file: &OpenFile, order: &LockOrder) {
        if order.space == LockSpace::Files
            && let Some(owners) = self.held.get_mut(&file.ino)
        {
            owners.remove(&(order.space, order.owner));
            self.mark(file);
        }
    }

    /// Notes what the node did in a session; false: meanwhile another session has what the owner holds.
    fn record(&mut self, file: &Arc<OpenFile>, order: &LockOrder, begun: u64) -> bool {
        let owners = self.held.entry(file.ino).or_default();
        let key = (order.space, order.owner);
        let new =
            || Held { file: file.clone(), through: Vec::new(), pid: 0, ranges: LockRanges::default(), begun };
        let held = owners.entry(key).or_insert_with(new);
        if held.begun != begun {
            return false;
        }
        let range = if order.space == LockSpace::Files { LockRange::WHOLE } else { order.range };
        held.ranges.set(range, order.kind);
        if order.kind.is_some() {
            (held.file, held.pid) = (file.clone(), order.pid);
            if !held.through.iter().any(|known| known.ptr_eq(&Arc::downgrade(file))) {
                held.through.retain(|known| known.strong_count() > 0);
                held.through.push(Arc::downgrade(file));
            }
        }
        if held.ranges.is_empty() {
            owners.remove(&key);
        }
        self.mark(file);
        true
    }
}

impl Locks {
    fn holds(&self, ino: Ino, owner: Owner) -> bool {
        self.0.lock().held.get(&ino).is_some_and(|owners| owners.contains_key(&owner))
    }

    /// A handle is closed: the node ends what was got through it.
    pub(super) fn forget(&self, file: &Arc<OpenFile>) {
        let mut state = self.0.lock();
        if let Some(owners) = state.held.get_mut(&file.ino) {
            owners.retain(|_, held| !Arc::ptr_eq(&held.file, file));
            state.mark(file);
        }
    }

    /// A lock of flock(2) that was to change its kind is given up before it is waited for. If news of the wait have come already, they say what is
    /// held.
    fn given_up(&self, number: u64, file: &OpenFile, order: &LockOrder) {
        let mut state = self.0.lock();
        if state.waiting.contains_key(&number) {
            state.give_up(file, order);
        }
    }

    /// News of a wait: a lock that was got is on record. False: it was got in a session that has ended since.
    fn settled(&self, waiting: &Waiting, got: bool, begun: u64) -> bool {
        let mut state = self.0.lock();
        match got {
            true => return state.record(&waiting.file, &waiting.order, begun),
            // Who asked has not come to know yet that it waits.
            false if waiting.begun == 0 => state.give_up(&waiting.file, &waiting.order),
            false => {}
        }
        true
    }

    /// Marks a wait as not wanted any more; true if that is to be told.
    fn withdraw(&self, number: u64) -> bool {
        let mut state = self.0.lock();
        state.waiting.get_mut(&number).is_some_and(|w| !std::mem::replace(&mut w.withdrawn, true))
    }

    /// Takes a wait out.
    fn take(&self, number: u64) -> Option<Waiting> {
        self.0.lock().waiting.remove(&number)
    }

    fn end(&self, number: u64, outcome: FsResult<()>) {
        if let Some(waiting) = self.take(number) {
            (waiting.done)(outcome);
        }
    }

    /// Of those who wait in a session that has ended.
    fn stranded(&self, begun: u64) -> Vec<u64> {
        let mut state = self.0.lock();
        let stranded = state.waiting.iter_mut().filter(|(_, w)| w.begun != 0 && w.begun != begun);
        stranded.map(|(number, waiting)| (*number, waiting.begun = 0).0).collect()
    }

    /// What is held in another session than this.
    fn unclaimed(&self, begun: u64) -> Vec<(Owner, Held)> {
        let state = self.0.lock();
        let all = state.held.values().flatten().filter(|(_, held)| held.begun != begun);
        all.map(|(owner, held)| (*owner, held.clone())).collect()
    }

    /// What was claimed is held in this session now, if nothing of it was given back meanwhile.
    fn claimed(&self, owner: Owner, held: &Held, begun: u64) -> bool {
        let mut state = self.0.lock();
        let now = state.held.get_mut(&held.file.ino).and_then(|owners| owners.get_mut(&owner));
        let same = now.filter(|now| now.ranges == held.ranges).map(|now| now.begun = begun).is_some();
        state.mark(&held.file);
        same
    }

    fn lose(&self, owner: Owner, held: &Held) {
        for file in held.through.iter().filter_map(Weak::upgrade) {
            file.lost.store(true, Ordering::Release);
        }
        let mut state = self.0.lock();
        if let Some(owners) = state.held.get_mut(&held.file.ino) {
            owners.remove(&owner);
        }
        state.mark(&held.file);
    }

    /// Whether a thread is to begin to ask for news.
    fn begin(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().tended, true)
    }
}

impl Shared {
    fn lock_call(&self, file: &OpenFile, order: LockOrder, number: u64) -> FsResult<(bool, u64)> {
        let call = |handle| Ok(FileCall::Lock { handle, order, claimed: false });
        let (reply, begun) = self.lines.ask_open_in(Kind::Names, file, number, &call)?;
        Ok((count(reply)? == 1, begun))
    }

    /// Asks for a lock, or gives one back; `number` names the call, and the wait.
    fn lock_now(self: &Arc<Self>, number: u64) {
        let asked = {
            let state = self.locks.0.lock();
            state.waiting.get(&number).map(|w| (w.file.clone(), w.order, w.withdrawn))
        };
        let Some((file, order, withdrawn)) = asked else { return };
        if withdrawn {
            return self.locks.end(number, Err(FsError::Interrupted));
        }
        if order.kind != Some(LockKind::Exclusive) {
            // What was written under a lock others see when they have it.
            self.land(file.ino, &file.inode);
        }
        self.tend_locks();
        self.lines.hold(number);
        let answer = loop {
            match self.lock_call(&file, order, number) {
                Ok((true, begun)) if !self.locks.0.lock().record(&file, &order, begun) => {}
                answer => break answer,
            }
        };
        self.lines.finish(number);
        if matches!(answer, Ok((false, _)) | Err(FsError::WouldBlock)) {
            self.locks.given_up(number, &file, &order);
        }
        match answer {
            Ok((true, _)) => self.locks.end(number, Ok(())),
            Err(e) => self.locks.end(number, Err(e)),
            Ok((false, begun)) => {
                let mut state = self.locks.0.lock();
                let withdrawn = state.waiting.get_mut(&number).is_some_and(|waiting| {
                    waiting.begun = begun;
                    waiting.withdrawn
                });
                drop(state);
                if withdrawn {
                    self.withdraw_lock(number);
                }
            }
        }
    }

    /// Tells the node that a wait is over; it answers with its news.
    fn withdraw_lock(&self, number: u64) {
        let told = self.lines.ask(Kind::Names, &super::bytes::nobody(), FileCall::Withdraw(number));
        if told.is_err() {
            self.locks.end(number, Err(FsError::Interrupted));
        }
    }

    /// Begins to ask for news, if nobody does.
    fn tend_locks(self: &Arc<Self>) {
        if !self.locks.begin() {
            return;
        }
        let shared = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("cluster-locks".into()).spawn(move || tend(&shared));
        if let Err(e) = thread {
            tracing::error!("no thread for news of locks: {e}; who waits for one waits until there is one");
            self.locks.0.lock().tended = false;
        }
    }

    fn lock_event(self: &Arc<Self>, begun: u64, event: &LockEvent) {
        let Some(waiting) = self.locks.take(event.call) else { return };
        let outcome = event.refused.map_or(Ok(()), Err);
        if !self.locks.settled(&waiting, outcome.is_ok(), begun) {
            // It was got in a session that has ended since.
            self.locks.0.lock().waiting.insert(event.call, Waiting { begun: 0, ..waiting });
            return self.ask_later(event.call);
        }
        (waiting.done)(outcome);
    }

    fn ask_later(self: &Arc<Self>, number: u64) {
        let shared = self.clone();
        self.quick.run(Box::new(move || shared.lock_now(number)));
    }

    /// Claims all that is held in a session that has ended; false if that is to be tried again.
    fn claim_locks(self: &Arc<Self>, begun: u64) -> bool {
        for (owner, held) in self.locks.unclaimed(begun) {
            match self.claim(owner, &held, begun) {
                Ok(()) => {}
                Err(FsError::Io) => return false,
                Err(e) => {
                    tracing::error!(
                        "inode {}: what process {} held locked is lost ({e}); it gets EIO until it opens the file again",
                        held.file.ino,
                        held.pid
                    );
                    self.locks.lose(owner, &held);
                }
            }
        }
        self.locks.stranded(begun).into_iter().for_each(|number| self.ask_later(number));
        true
    }

    fn claim(&self, (space, owner): Owner, held: &Held, begun: u64) -> FsResult<()> {
        let order = |range, kind: Option<LockKind>| LockOrder {
            space,
            owner,
            kind,
            range,
            pid: held.pid,
            wait: LockWait::Never,
        };
        for (range, kind) in held.ranges.iter() {
            self.lines.claim(&held.file, order(range, Some(kind)), begun)?;
        }
        if !self.locks.claimed((space, owner), held, begun) {
            // Given back, or closed, while it was claimed. What is left of it is claimed with the next attempt.
            self.lines.claim(&held.file, order(LockRange::WHOLE, None), begun)?;
            return if self.locks.holds(held.file.ino, (space, owner)) { Err(FsError::Io) } else { Ok(()) };
        }
        Ok(())
    }
}

fn tend(shared: &Weak<Shared>) {
    let (mut begun, mut after) = (0, 0);
    while let Some(shared) = shared.upgrade() {
        match shared.lines.lock_events(begun, after) {
            Ok(Ok(events)) => {
                for event in events.iter().filter(|event| event.place > after) {
                    shared.lock_event(begun, event);
                }
                after = events.last().map_or(after, |event| event.place);
            }
            Ok(Err(another)) => {
                after = 0;
                begun = if shared.claim_locks(another) { another } else { 0 };
            }
            Err(e) => {
                tracing::debug!("no news of locks: {e}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

impl ClusterFiles {
    pub(super) fn lock_file(&self, handle: Handle, order: LockOrder, done: ReadyDone) -> Option<WaitId> {
        let file = match self.0.table.get(handle) {
            Ok(file) => file,
            Err(e) => {
                done(Err(e));
                return None;
            }
        };
        let records = order.space == LockSpace::Records;
        if records && order.kind.is_none() && !self.0.locks.holds(file.ino, (order.space, order.owner)) {
            // Each close asks.
            done(Ok(()));
            return None;
        }
        let number = self.0.lines.name();
        let waiting = Waiting { file, order, done, begun: 0, withdrawn: false };
        self.0.locks.0.lock().waiting.insert(number, waiting);
        self.0.ask_later(number);
        Some(WaitId(number))
    }

    pub(super) fn test_file_lock(&self, handle: Handle, order: LockOrder) -> FsResult<Option<LockHeld>> {
        match self.of_open(Kind::Names, handle, |handle| FileCall::TestLock { handle, order })? {
            Reply::Lock(held) => Ok(held),
            _ => Err(FsError::Io),
        }
    }

    /// Withdraws a wait for a lock, if it is one.
    pub(super) fn withdraw_lock(&self, number: u64) {
        if self.0.locks.withdraw(number) {
            let shared = self.0.clone();
            self.0.quick.run(Box::new(move || shared.withdraw_lock(number)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{Place, Table};
    use super::*;
    use types::api::OpenFlags;

    fn flock(kind: LockKind) -> LockOrder {
        LockOrder {
            space: LockSpace::Files,
            owner: 5,
            kind: Some(kind),
            range: LockRange::WHOLE,
            pid: 1,
            wait: LockWait::Patient,
        }
    }

    /// Somebody holds a lock shared, and call 9 asks for it exclusive. The node has said that it waits, and the thread that asked has not heard that yet.
    fn waits() -> (Locks, Arc<OpenFile>) {
        let (locks, table) = (Locks::default(), Table::default());
        let place = Place { begun: 3, handle: Handle(1) };
        let (handle, _) = table.enter(&super::super::bytes::nobody(), Ino(7), OpenFlags::default(), place);
        let file = table.get(handle).unwrap();
        let order = flock(LockKind::Exclusive);
        let waiting =
            Waiting { file: file.clone(), order, done: Box::new(|_| {}), begun: 0, withdrawn: false };
        let mut state = locks.0.lock();
        assert!(state.record(&file, &flock(LockKind::Shared), 3));
        state.waiting.insert(9, waiting);
        drop(state);
        (locks, file)
    }

    #[test]
    fn a_lock_of_which_news_come_before_the_answer_that_it_waits_is_held() {
        for (got, news_first, held) in [(true, true, true), (false, true, false), (false, false, false)] {
            let (locks, file) = waits();
            let news = || {
                let waiting = locks.take(9).unwrap();
                assert!(locks.settled(&waiting, got, 3));
            };
            let heard = || locks.given_up(9, &file, &flock(LockKind::Exclusive));
            if news_first {
                news();
                heard();
            } else {
                heard();
                assert!(!locks.holds(Ino(7), (LockSpace::Files, 5)), "it is given up while it waits");
                news();
            }
            assert_eq!(locks.holds(Ino(7), (LockSpace::Files, 5)), held, "{got} {news_first}");
        }
    }

    #[test]
    fn what_a_process_locked_through_two_handles_is_lost_for_both() {
        let (locks, table) = (Locks::default(), Table::default());
        let place = Place { begun: 3, handle: Handle(1) };
        let open = || table.enter(&super::super::bytes::nobody(), Ino(7), OpenFlags::default(), place).0;
        let handles = [open(), open(), open()];
        let files = handles.map(|handle| table.get(handle).unwrap());
        let part = |start, kind| LockOrder {
            space: LockSpace::Records,
            range: LockRange { start, end: start },
            kind,
            ..flock(LockKind::Exclusive)
        };
        for (file, start) in [(&files[0], 1), (&files[1], 2), (&files[0], 3)] {
            assert!(locks.0.lock().record(file, &part(start, Some(LockKind::Exclusive)), 3));
        }
        assert!(locks.0.lock().record(&files[2], &part(9, None), 3));
        let (owner, held) = locks.unclaimed(4).pop().unwrap();
        locks.lose(owner, &held);
        let lost = handles.map(|handle| table.get(handle).is_err());
        assert_eq!(lost, [true, true, false], "the third only gave back");
    }
}
