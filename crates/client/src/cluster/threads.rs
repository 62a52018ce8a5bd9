//! Threads for calls that wait, started on demand, ended when idle.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(10);

/// Something that may wait.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Counts who does by himself what else waits for one of [`Threads`]: handing it over costs more than most of it.
pub(super) struct Here {
    left: AtomicUsize,
}

/// One of them.
pub(super) struct Busy<'h>(&'h Here);

impl Here {
    /// At most so many at once.
    pub(super) fn new(most: usize) -> Self {
        Self { left: AtomicUsize::new(most) }
    }

    /// Counts one more, until what this gives is dropped; None if there are as many as may be.
    pub(super) fn enter(&self) -> Option<Busy<'_>> {
        let less = |left: usize| left.checked_sub(1);
        let entered = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        entered.ok().map(|_| Busy(self))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::AcqRel);
    }
}

/// The threads and what waits for them. The queue is bounded by whoever gives jobs: the kernel has so many requests outstanding.
#[derive(Clone)]
pub(super) struct Threads(Arc<Inner>);

struct Inner {
    name: &'static str,
    most: usize,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Threads {
    pub(super) fn new(name: &'static str, most: usize) -> Self {
        Self(Arc::new(Inner { name, most, state: Mutex::default(), wake: Condvar::new() }))
    }

    /// Runs a job on one of the threads; on this one if there is none and none can be started.
    pub(super) fn run(&self, job: Job) {
        let mut state = self.0.state.lock();
        state.queue.push_back(job);
        if state.idle >= state.queue.len() {
            self.0.wake.notify_one();
            return;
        }
        if state.threads >= self.0.most {
            return;
        }
        let threads = self.clone();
        match std::thread::Builder::new().name(self.0.name.into()).spawn(move || threads.work()) {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads > 0 => {}
            Err(_) => {
                let job = state.queue.pop_back();
                drop(state);
                job.into_iter().for_each(|job| job());
            }
        }
    }

    fn work(&self) {
        let mut state = self.0.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.0.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.0.wake.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_do_it_by_themselves_than_may() {
        let here = Here::new(2);
        let (one, other) = (here.enter(), here.enter());
        assert!(one.is_some() && other.is_some() && here.enter().is_none());
        drop(one);
        let again = here.enter();
        assert!(again.is_some() && here.enter().is_none());
    }

    #[test]
    fn jobs_that_wait_keep_no_other_from_running() {
        let threads = Threads::new("test", 3);
        let (release, held) = crossbeam_channel::bounded::<()>(0);
        let (done, finished) = crossbeam_channel::unbounded();
        for _ in 0..2 {
            let held = held.clone();
            threads.run(Box::new(move || assert!(held.recv().is_err())));
        }
        for n in 0..100 {
            let done = done.clone();
            threads.run(Box::new(move || done.send(n).unwrap()));
        }
        assert_eq!(finished.iter().take(100).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        drop(release);
        assert!(threads.0.state.lock().threads <= 3);
    }
}
