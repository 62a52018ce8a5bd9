//! Threads for calls that may take long, started on demand, ended when idle, with a bound on what may queue.

use crate::follow;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

const IDLE: Duration = Duration::from_secs(10);

/// A bounded pool.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    name: &'static str,
    max_threads: usize,
    max_jobs: usize,
    /// How many more may be done by the threads that bring them, of all pools that share these.
    here: Arc<AtomicUsize>,
    /// So many of them are left to other pools.
    spare: usize,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// What counts among the jobs is marked.
    queue: VecDeque<(Job, bool)>,
    /// Queued, running, or about to be queued.
    jobs: usize,
    threads: usize,
    idle: usize,
}

/// The right to run one job; taken before anything that cannot be undone.
pub(crate) struct Slot {
    pool: Pool,
    /// It fills the pool.
    counts: bool,
}

impl Pool {
    /// A pool of at most `max_threads` threads that takes at most `max_jobs` jobs at a time.
    pub(crate) fn new(name: &'static str, max_threads: usize, max_jobs: usize) -> Self {
        Self::with_callers(name, max_threads, max_jobs, (&Arc::default(), 0))
    }

    /// The same; so many jobs at a time, of all pools with the same number, may be done by the threads that bring them, of these so many fewer: handing a short one over costs more
    /// than doing it.
    pub(crate) fn with_callers(
        name: &'static str,
        max_threads: usize,
        max_jobs: usize,
        (here, spare): (&Arc<AtomicUsize>, usize),
    ) -> Self {
        let (state, wake) = Default::default();
        Self(Arc::new(Inner { name, max_threads, max_jobs, here: here.clone(), spare, state, wake }))
    }

    /// Reserves room for a job; None when the pool is full.
    pub(crate) fn slot(&self) -> Option<Slot> {
        let mut state = self.0.state.lock();
        (state.jobs < self.0.max_jobs).then(|| {
            state.jobs += 1;
            Slot { pool: self.clone(), counts: true }
        })
    }

    /// The same however full it is, and it makes it no fuller.
    pub(crate) fn slot_beside(&self) -> Slot {
        Slot { pool: self.clone(), counts: false }
    }

    fn push(&self, job: Job, counts: bool) {
        let mut state = self.0.state.lock();
        state.jobs += usize::from(counts);
        state.queue.push_back((job, counts));
        if state.idle >= state.queue.len() {
            self.0.wake.notify_one();
        } else if state.threads < self.0.max_threads {
            let (pool, cpus) = (self.clone(), follow::away_from_home());
            let started = std::thread::Builder::new().name(self.0.name.into()).spawn(move || {
                follow::home(cpus);
                pool.work();
            });
            match started {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads > 0 => {
                    tracing::warn!(%error, "no new thread; the job waits for an old one")
                }
                Err(error) => {
                    tracing::error!(%error, "no thread for a waiting file operation; it fails");
                    let job = state.queue.pop_back();
                    state.jobs -= usize::from(counts);
                    drop(state);
                    drop(job); // its reply answers EIO when dropped
                }
            }
        }
    }

    fn work(&self) {
        let mut state = self.0.state.lock();
        loop {
            if let Some((job, counts)) = state.queue.pop_front() {
                drop(state);
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!(
                        pool = self.0.name,
                        "a file operation panicked; it was answered with EIO"
                    );
                }
                state = self.0.state.lock();
                state.jobs -= usize::from(counts);
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

impl Slot {
    /// Runs `job` on the pool.
    pub(crate) fn run(self, job: impl FnOnce() + Send + 'static) {
        self.pool.push(Box::new(job), self.counts);
    }

    /// Runs `job` on this thread if few others do that, else on the pool.
    pub(crate) fn run_here(self, job: impl FnOnce() + Send + 'static) {
        let Inner { here, spare, .. } = &*self.pool.0;
        let less = |left: usize| if left > *spare { left.checked_sub(1) } else { None };
        if here.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_err() {
            return self.run(job);
        }
        let _end = End(here);
        job();
    }
}

/// Counts down again, whatever becomes of the job.
struct End<'h>(&'h AtomicUsize);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.pool.0.state.lock().jobs -= usize::from(self.counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_full_pool_refuses_and_recovers() {
        let pool = Pool::new("test", 1, 2);
        let (release, held) = mpsc::channel::<()>();
        let (done, finished) = mpsc::channel();
        let done2 = done.clone();
        pool.slot().unwrap().run(move || {
            held.recv().unwrap();
            done.send(1).unwrap();
        });
        pool.slot().unwrap().run(move || done2.send(2).unwrap());
        assert!(pool.slot().is_none());
        release.send(()).unwrap();
        assert_eq!((finished.recv().unwrap(), finished.recv().unwrap()), (1, 2));
        while pool.slot().is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn so_many_jobs_are_done_by_who_brings_them_as_may() {
        let here = Arc::new(AtomicUsize::new(1));
        let pool = Pool::with_callers("test", 1, 8, (&here, 0));
        let me = std::thread::current().id();
        let (tx, rx) = mpsc::channel();
        let (outer, inner) = (tx.clone(), tx);
        let again = Pool::with_callers("another", 1, 8, (&here, 0));
        pool.slot().unwrap().run_here(move || {
            again.slot().unwrap().run_here(move || inner.send(std::thread::current().id()).unwrap());
            outer.send(std::thread::current().id()).unwrap();
        });
        let ran: Vec<_> = rx.iter().collect();
        assert_eq!((ran.len(), ran.iter().filter(|thread| **thread == me).count()), (2, 1));
        let failed = catch_unwind(AssertUnwindSafe(|| pool.slot().unwrap().run_here(|| panic!("expected"))));
        assert!(failed.is_err());
        let (tx, rx) = mpsc::channel();
        pool.slot().unwrap().run_here(move || tx.send(std::thread::current().id()).unwrap());
        assert_eq!(rx.recv().unwrap(), me, "one that panics counts no more");
        let (tx, rx) = mpsc::channel();
        let modest = Pool::with_callers("modest", 1, 8, (&here, 1));
        modest.slot().unwrap().run_here(move || tx.send(std::thread::current().id()).unwrap());
        assert_ne!(rx.recv().unwrap(), me, "the last one is left to others");
    }

    #[test]
    fn a_panicking_job_does_not_end_the_pool() {
        let pool = Pool::new("test", 1, 8);
        let (tx, rx) = mpsc::channel();
        pool.slot().unwrap().run(|| panic!("expected by this test"));
        pool.slot().unwrap().run(move || tx.send(()).unwrap());
        rx.recv_timeout(Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn an_unused_slot_is_given_back() {
        let pool = Pool::new("test", 1, 1);
        drop(pool.slot().unwrap());
        assert!(pool.slot().is_some());
    }
}
