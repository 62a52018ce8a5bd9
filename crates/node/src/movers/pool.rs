//! Threads for what may wait for movers: started on demand, ended when idle.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Most threads.
const MOST: usize = 32;
/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(10);

/// Something that may wait for a mover.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The threads and what waits for them. The queue is bounded by whoever gives jobs: one for each read that a gateway has open.
#[derive(Clone, Default)]
pub(super) struct Pool(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    /// Runs a job on one of the threads; on this one if there is none and none can be started.
    pub(super) fn run(&self, job: Job) {
        let mut state = self.0.0.lock();
        state.queue.push_back(job);
        if state.idle >= state.queue.len() {
            self.0.1.notify_one();
            return;
        }
        if state.threads >= MOST {
            return;
        }
        let pool = self.clone();
        match std::thread::Builder::new().name("far-io".into()).spawn(move || pool.work()) {
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
        let mut state = self.0.0.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.0.0.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.0.1.wait_for(&mut state, IDLE).timed_out();
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
    fn jobs_that_wait_keep_no_other_from_running() {
        let pool = Pool::default();
        let (release, held) = crossbeam_channel::bounded::<()>(0);
        let (done, finished) = crossbeam_channel::unbounded();
        for _ in 0..MOST - 1 {
            let held = held.clone();
            pool.run(Box::new(move || assert!(held.recv().is_err())));
        }
        for n in 0..100 {
            let done = done.clone();
            pool.run(Box::new(move || done.send(n).unwrap()));
        }
        let mut all: Vec<i32> = finished.iter().take(100).collect();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        drop(release);
        assert!(pool.0.0.lock().threads <= MOST);
    }
}
