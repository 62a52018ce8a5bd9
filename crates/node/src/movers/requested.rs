//! Going over the files of requests that concern targets: several at once, again and again until each is done or has failed.

use super::PAGE;
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
    /// Until somebody does something about it.
    Failed(String),
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

/// Files, with their bytes, that several threads take in their order.
struct Files {
    limit: u64,
    left: Mutex<Left>,
    ended: Condvar,
}

#[derive(Default)]
struct Left {
    files: VecDeque<(Ino, u64)>,
    /// At work: how many, and with how many bytes.
    begun: usize,
    bytes: u64,
    /// The first file that waits, and why.
    waits: Option<(Ino, String)>,
    /// The request was withdrawn, or cannot go on now.
    stopped: bool,
}

impl Files {
    fn new(files: VecDeque<(Ino, u64)>, limit: u64) -> Self {
        Self { limit, left: Mutex::new(Left { files, ..Left::default() }), ended: Condvar::new() }
    }

    /// Waits until the next one may begin; None: there are no more.
    fn next(&self) -> Option<(Ino, u64)> {
        let mut left = self.left.lock();
        loop {
            let bytes = left.files.front()?.1;
            if left.begun == 0 || left.bytes.saturating_add(bytes) <= self.limit {
                left.begun += 1;
                left.bytes += bytes;
                return left.files.pop_front();
            }
            self.ended.wait(&mut left);
        }
    }

    fn ended(&self, bytes: u64) {
        let mut left = self.left.lock();
        left.begun -= 1;
        left.bytes -= bytes;
        self.ended.notify_all();
    }

    fn waits(&self, ino: Ino, why: String) {
        let mut left = self.left.lock();
        if left.waits.as_ref().is_none_or(|(first, _)| ino < *first) {
            left.waits = Some((ino, why));
        }
    }

    /// No other one begins.
    fn stop(&self) {
        let mut left = self.left.lock();
        left.files.clear();
        left.stopped = true;
        self.ended.notify_all();
    }
}

impl Node {
    /// Does something with each file of open requests of some kinds, and what comes after all of a request was gone over.
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
            let (mut after, mut waits) = (Ino(0), false);
            loop {
                let page = self.catalog.items(request.id, after, PAGE).map_err(fail)?;
                let Some((last, ..)) = page.last() else { break };
                after = *last;
                let pending = page.into_iter().filter(|(_, state, _)| *state == ItemState::Pending);
                let files = Files::new(pending.map(|(ino, _, bytes)| (ino, bytes)).collect(), at_once.bytes);
                self.together(&request, &files, at_once.files, &work).map_err(fail)?;
                let left = files.left.into_inner();
                if left.stopped {
                    return Ok(());
                }
                // Of several the first, which is the same the next time.
                if let Some((ino, why)) = left.waits
                    && !std::mem::replace(&mut waits, true)
                {
                    self.movers.note_wait(request.id, self.waiting(ino, &why));
                }
            }
            if !waits {
                self.movers.note_wait(request.id, String::new());
            }
            over(&request).map_err(fail)?;
        }
        Ok(())
    }

    /// Does it with these files, in this thread and some others.
    fn together(
        &self,
        request: &Request,
        files: &Files,
        most: usize,
        work: &(impl Fn(&Request, Ino) -> Result<(), Stop> + Sync),
    ) -> catalog::Result<()> {
        let run = || {
            while let Some((ino, bytes)) = files.next() {
                let done = self.one(request, (ino, bytes), files, work);
                files.ended(bytes);
                if let Err(e) = done {
                    files.stop();
                    return Err(e);
                }
            }
            Ok(())
        };
        let more = files.left.lock().files.len().min(most).saturating_sub(1);
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
        request: &Request,
        (ino, bytes): (Ino, u64),
        files: &Files,
        work: impl Fn(&Request, Ino) -> Result<(), Stop>,
    ) -> catalog::Result<()> {
        if self.stops_within(Duration::ZERO) || !self.is_open_request(request.id) {
            files.stop();
            return Ok(());
        }
        let begun = crate::now();
        let (state, bytes) = match work(request, ino) {
            Ok(()) => (ItemState::Done, bytes),
            Err(Stop::Later(why)) => {
                self.movers.note_copied(request.id, ino, 0);
                files.waits(ino, why);
                // It may be for what is to be removed.
                self.movers.wake();
                return Ok(());
            }
            Err(Stop::Failed(why)) => (ItemState::Failed(why), 0),
        };
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
        let request = Request::new(RequestKind::Drain, 0, "drain target 7".to_owned(), crate::now());
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
        node.each_requested(&[RequestKind::Drain], at_once, work, |_| Ok(())).unwrap();
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
        for (bytes, most) in [(35, 3), (5, 1)] {
            let (at_work, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = |_: &Request, _| {
                seen.fetch_max(1 + at_work.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
                at_work.fetch_sub(1, Ordering::SeqCst);
                Err(Stop::Later("once more".to_owned()))
            };
            let at_once = AtOnce { files: 8, bytes };
            node.each_requested(&[RequestKind::Drain], at_once, work, |_| Ok(())).unwrap();
            assert_eq!(seen.into_inner(), most);
        }
        let done = |_: &Request, _| Ok(());
        node.each_requested(&[RequestKind::Drain], AtOnce::ONE, done, |_| Ok(())).unwrap();
        assert_eq!(node.catalog.request(id).unwrap().unwrap().state, RequestState::Done);
        node.stop(true);
    }
}
