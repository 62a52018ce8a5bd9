//! Going over the files of requests that concern targets: several at once, again and again until each is done or has failed.

use super::{PAGE, REPORT_EVERY};
use crate::Node;
use crate::error::fs_error;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;
use types::*;

/// Why something is not done with a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its targets do not answer, or it is in use: again soon.
    Later(String),
    /// Others that are at work may have taken the room: again when none is.
    NoRoom(String),
    /// Until somebody does something about it.
    Failed(String),
}

impl Stop {
    pub(super) fn why(self) -> String {
        let (Self::Later(why) | Self::NoRoom(why) | Self::Failed(why)) = self;
        why
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Later(why)
    }
}

/// How many files of a request are at work at once.
#[derive(Clone, Copy)]
pub(super) struct AtOnce {
    pub files: usize,
    /// All together, unless one alone has more (bytes).
    pub bytes: u64,
}

impl AtOnce {
    /// One after the other.
    pub(super) const ONE: Self = Self { files: 1, bytes: u64::MAX };
}

/// What came of going over the files of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pass {
    /// Some are done, or have failed.
    #[default]
    Done,
    /// None, as all of them wait.
    InVain,
    /// None, and some lacked room.
    NoRoom,
}

impl Pass {
    fn of(state: &State) -> Self {
        match (state.progress, state.no_room) {
            (true, _) => Self::Done,
            (false, true) => Self::NoRoom,
            (false, false) => Self::InVain,
        }
    }
}

/// The files of a request that are not done, with their bytes: several threads take them in their order.
struct Files<'n> {
    node: &'n Node,
    request: &'n Request,
    at_once: AtOnce,
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    next: VecDeque<(Ino, u64)>,
    /// What follows is read when it is needed; false: nothing does.
    more: bool,
    after: Ino,
    /// None begins beside another one, until one is done.
    alone: bool,
    /// At work: how many, and with how many bytes.
    begun: usize,
    bytes: u64,
    /// Some are not pending any more.
    progress: bool,
    /// Some lacked room.
    no_room: bool,
    /// The first file that waits, and why.
    waits: Option<(Ino, String)>,
    /// The request was withdrawn, or cannot go on now.
    stopped: bool,
}

/// A file that is at work until this is dropped.
struct Taken<'f> {
    files: &'f Files<'f>,
    ino: Ino,
    bytes: u64,
    /// No other one was at work beside it.
    alone: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.files.state.lock();
        state.begun -= 1;
        state.bytes -= self.bytes;
        self.files.ended.notify_all();
    }
}

impl<'n> Files<'n> {
    fn new(node: &'n Node, request: &'n Request, at_once: AtOnce, alone: bool) -> Self {
        let state = State {
            next: VecDeque::new(),
            more: true,
            after: Ino(0),
            alone: alone || at_once.files == 1,
            begun: 0,
            bytes: 0,
            progress: false,
            no_room: false,
            waits: None,
            stopped: false,
        };
        Self { node, request, at_once, state: Mutex::new(state), ended: Condvar::new() }
    }

    /// Waits until the next one may begin; None: there are no more.
    fn take(&self) -> catalog::Result<Option<Taken<'_>>> {
        let mut state = self.state.lock();
        loop {
            if !self.fill(&mut state, 1)? {
                return Ok(None);
            }
            let Some((ino, bytes)) = state.next.front().copied() else { return Ok(None) };
            let fits = !state.alone && state.bytes.saturating_add(bytes) <= self.at_once.bytes;
            if state.begun == 0 || fits {
                state.next.pop_front();
                state.begun += 1;
                state.bytes += bytes;
                return Ok(Some(Taken { files: self, ino, bytes, alone: state.alone }));
            }
            self.ended.wait(&mut state);
        }
    }

    /// Reads on until there are so many; false: there is none.
    fn fill(&self, state: &mut State, many: usize) -> catalog::Result<bool> {
        while state.next.len() < many && state.more && !state.stopped {
            let page = self.node.catalog.items(self.request.id, state.after, PAGE)?;
            match page.last() {
                Some((last, ..)) => state.after = *last,
                None => state.more = false,
            }
            let pending = page.into_iter().filter(|(_, is, _)| *is == ItemState::Pending);
            state.next.extend(pending.map(|(ino, _, bytes)| (ino, bytes)));
        }
        Ok(!state.next.is_empty() && !state.stopped)
    }

    /// One is not pending any more; `done`, or it has failed.
    fn ends(&self, done: bool) {
        let mut state = self.state.lock();
        state.progress = true;
        state.alone &= !done || self.at_once.files == 1;
        self.ended.notify_all();
    }

    fn waits(&self, ino: Ino, why: String) {
        let mut state = self.state.lock();
        if state.waits.as_ref().is_none_or(|(first, _)| ino < *first) {
            state.waits = Some((ino, why));
        }
    }

    /// No other one begins.
    fn stop(&self) {
        self.state.lock().stopped = true;
        self.ended.notify_all();
    }
}

impl Node {
    /// Does something with each file of open requests of some kinds, and what comes after all of a request was gone over. When that brought nothing, they are gone over
    /// one by one the next time: several may have been in each other's way.
    pub(super) fn each_requested(
        &self,
        kinds: &[RequestKind],
        at_once: AtOnce,
        work: impl Fn(&Request, Ino) -> Result<(), Stop> + Sync,
        over: impl Fn(&Request) -> catalog::Result<()>,
    ) -> Result<(), FsError> {
        let fail = |e| fs_error("requests that concern targets", &e);
        let open = self.catalog.open_requests().map_err(fail)?;
        self.movers.forget_underway(&open);
        for request in open {
            if !kinds.contains(&request.kind) {
                continue;
            }
            if request.started.is_none() {
                self.catalog.begin_request(request.id, crate::now()).map_err(fail)?;
            }
            let alone = match self.movers.last_pass(request.id) {
                Pass::Done => false,
                Pass::InVain => true,
                // By now the targets have told what room they have.
                Pass::NoRoom if self.stops_within(REPORT_EVERY) => return Ok(()),
                Pass::NoRoom => true,
            };
            let files = Files::new(self, &request, at_once, alone);
            self.together(&files, &work).map_err(fail)?;
            let state = files.state.into_inner();
            if state.stopped {
                return Ok(());
            }
            self.movers.note_pass(request.id, Pass::of(&state));
            // Of several the first, which is the same the next time.
            let waits = state.waits.map_or_else(String::new, |(ino, why)| self.waiting(ino, &why));
            self.movers.note_wait(request.id, waits);
            over(&request).map_err(fail)?;
        }
        Ok(())
    }

    /// Does it in this thread and some others.
    fn together(
        &self,
        files: &Files<'_>,
        work: &(impl Fn(&Request, Ino) -> Result<(), Stop> + Sync),
    ) -> catalog::Result<()> {
        let run = || {
            let mut done = Ok(());
            while done.is_ok() {
                match files.take() {
                    Ok(Some(taken)) => done = self.one(&taken, work),
                    Ok(None) => return Ok(()),
                    Err(e) => done = Err(e),
                }
            }
            files.stop();
            done
        };
        let more = {
            let (mut state, most) = (files.state.lock(), files.at_once.files);
            files.fill(&mut state, most)?;
            state.next.len().min(most).saturating_sub(1)
        };
        std::thread::scope(|scope| {
            let thread = |_| std::thread::Builder::new().name("requested".into()).spawn_scoped(scope, run);
            // Those that cannot be started do nothing that this one does not do.
            let threads: Vec<_> = (0..more).map_while(|n| thread(n).ok()).collect();
            let own = run();
            let others =
                threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
            others.fold(own, Result::and)
        })
    }

    fn one(
        &self,
        taken: &Taken<'_>,
        work: impl Fn(&Request, Ino) -> Result<(), Stop>,
    ) -> catalog::Result<()> {
        let (files, request, ino) = (taken.files, taken.files.request, taken.ino);
        if self.stops_within(Duration::ZERO) || !self.is_open_request(request.id) {
            files.stop();
            return Ok(());
        }
        let begun = crate::now();
        let (state, bytes) = match work(request, ino) {
            Ok(()) => (ItemState::Done, taken.bytes),
            Err(Stop::NoRoom(why)) if taken.alone => (ItemState::Failed(why), 0),
            Err(stop @ (Stop::Later(_) | Stop::NoRoom(_))) => {
                files.state.lock().no_room |= matches!(stop, Stop::NoRoom(_));
                let why = stop.why();
                self.movers.note_copied(request.id, ino, 0);
                if self.movers.underway(request.id).0.is_empty() {
                    self.movers.note_wait(request.id, self.waiting(ino, &why));
                }
                files.waits(ino, why);
                // It may be for what is to be removed.
                self.movers.wake();
                return Ok(());
            }
            Err(Stop::Failed(why)) => (ItemState::Failed(why), 0),
        };
        files.ends(matches!(state, ItemState::Done));
        let _ending = self.steady.ends();
        let ended = self.catalog.finish_item(request.id, ino, state, bytes, (begun, crate::now()));
        self.movers.note_copied(request.id, ino, 0);
        ended.map(drop)
    }

    fn waiting(&self, ino: Ino, why: &str) -> String {
        match self.catalog.path_of(ino) {
            Ok(path) => format!("{} waits: {why}", escape(&path)),
            Err(_) => format!("inode {ino} waits: {why}"),
        }
    }

    pub(super) fn is_open_request(&self, id: RequestId) -> bool {
        // While the engine does not answer, nobody knows that it was withdrawn.
        self.catalog.request(id).map_or(true, |request| {
            request.is_some_and(|r| matches!(r.state, RequestState::Queued | RequestState::Active))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const WAIT: Duration = Duration::from_secs(60);

    fn node(files: u64) -> (tempfile::TempDir, Arc<Node>, RequestId) {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let request = Request::new(RequestKind::Purge, 0, "what no service does".to_owned(), crate::now());
        let items: Vec<_> = (1..=files).map(|n| (Ino(100 + n), 10)).collect();
        let request = node.catalog.create_request(&request, &items).unwrap();
        (dir, node, request.id)
    }

    #[test]
    fn a_file_that_takes_long_holds_up_none_of_the_others() {
        // Each of eight files waits for a turn of its own, the last one first.
        let (_dir, node, id) = node(8);
        let (turn, next) = (Mutex::new(8), Condvar::new());
        let work = |_: &Request, ino: Ino| {
            let mut turn = turn.lock();
            while *turn != ino.0 - 100 {
                assert!(!next.wait_for(&mut turn, WAIT).timed_out(), "{ino} waits for those behind it");
            }
            *turn -= 1;
            next.notify_all();
            if ino.0.is_multiple_of(3) { Err(Stop::Later(format!("{ino} waits"))) } else { Ok(()) }
        };
        let at_once = AtOnce { files: 8, bytes: u64::MAX };
        node.each_requested(&[RequestKind::Purge], at_once, work, |_| Ok(())).unwrap();
        let (waits, bytes) = node.movers.underway(id);
        assert!(waits.contains("inode 102 waits: 102 waits"), "the first of 102, 105 and 108: {waits}");
        assert_eq!(bytes, 0);
        let request = node.catalog.request(id).unwrap().unwrap();
        assert_eq!((request.state, request.files_done, request.bytes_done), (RequestState::Active, 5, 50));
        node.stop(true);
    }

    #[test]
    fn no_more_bytes_are_at_work_than_may_be_and_one_alone_always_may() {
        let (_dir, node, id) = node(20);
        // The last time none begins beside another one, as the times before were in vain; of these the first was not.
        for (bytes, most, last) in [(35, 3, Pass::Done), (5, 1, Pass::Done), (35, 1, Pass::InVain)] {
            node.movers.note_pass(id, last);
            let (at_work, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = |_: &Request, _| {
                seen.fetch_max(1 + at_work.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                let until = std::time::Instant::now() + WAIT;
                while seen.load(Ordering::SeqCst) < most && std::time::Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(3));
                at_work.fetch_sub(1, Ordering::SeqCst);
                Err(Stop::Later("once more".to_owned()))
            };
            let at_once = AtOnce { files: 8, bytes };
            node.each_requested(&[RequestKind::Purge], at_once, work, |_| Ok(())).unwrap();
            assert_eq!(seen.into_inner(), most);
        }
        assert_eq!(node.movers.last_pass(id), Pass::InVain);
        let full = |_: &Request, ino| match ino {
            Ino(105) => Err(Stop::NoRoom("none".to_owned())),
            _ => Ok(()),
        };
        let at_once = AtOnce { files: 8, bytes: u64::MAX };
        let states = |is: fn(&ItemState) -> bool| {
            let items = node.catalog.items(id, Ino(0), 99).unwrap();
            items.into_iter().filter(|(_, state, _)| is(state)).map(|(ino, ..)| ino).collect::<Vec<_>>()
        };
        // With others beside it, it is tried again; alone, when that is in vain.
        node.each_requested(&[RequestKind::Purge], at_once, full, |_| Ok(())).unwrap();
        assert_eq!(states(|state| *state == ItemState::Pending), [Ino(105)]);
        node.each_requested(&[RequestKind::Purge], at_once, full, |_| Ok(())).unwrap();
        assert_eq!(node.movers.last_pass(id), Pass::NoRoom);
        node.each_requested(&[RequestKind::Purge], at_once, full, |_| Ok(())).unwrap();
        assert_eq!(states(|state| matches!(state, ItemState::Failed(_))), [Ino(105)]);
        node.stop(true);
    }

    #[test]
    fn one_that_is_left_of_the_first_page_holds_up_none_of_those_behind_and_after_one_alone_several_go_on() {
        let files = 2 * PAGE as u64;
        let (_dir, node, id) = node(files);
        for n in 2..=PAGE as u64 {
            let now = crate::now();
            node.catalog.finish_item(id, Ino(100 + n), ItemState::Done, 10, (now, now)).unwrap();
        }
        // As if the time before had been in vain: the first one that is done ends that.
        node.movers.note_pass(id, Pass::InVain);
        let (done, at_work, seen) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |_: &Request, ino| {
            let beside = at_work.fetch_add(1, Ordering::SeqCst);
            seen.fetch_max(1 + beside, Ordering::SeqCst);
            if done.load(Ordering::SeqCst) == 0 {
                assert_eq!((ino, beside), (Ino(101), 0), "the first one is alone");
            }
            let until = std::time::Instant::now() + WAIT;
            while done.load(Ordering::SeqCst) > 0 && seen.load(Ordering::SeqCst) < 8 {
                assert!(std::time::Instant::now() < until, "the others do not begin");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(2));
            at_work.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let at_once = AtOnce { files: 8, bytes: u64::MAX };
        node.each_requested(&[RequestKind::Purge], at_once, work, |_| Ok(())).unwrap();
        assert_eq!(seen.into_inner(), 8);
        assert_eq!(node.catalog.request(id).unwrap().unwrap().files_done, files);
        node.stop(true);
    }

    #[test]
    fn files_behind_many_others_begin_while_one_of_the_first_is_at_work() {
        let (_dir, node, id) = node(2 * PAGE as u64 + 10);
        let done = AtomicUsize::new(0);
        let work = |_: &Request, ino| {
            let until = std::time::Instant::now() + WAIT;
            while ino == Ino(101) && done.load(Ordering::SeqCst) < 2 * PAGE + 9 {
                assert!(std::time::Instant::now() < until, "the others wait for it");
                std::thread::sleep(Duration::from_millis(1));
            }
            done.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let at_once = AtOnce { files: 2, bytes: u64::MAX };
        node.each_requested(&[RequestKind::Purge], at_once, work, |_| Ok(())).unwrap();
        assert_eq!(node.catalog.request(id).unwrap().unwrap().state, RequestState::Done);
        node.stop(true);
    }
}
