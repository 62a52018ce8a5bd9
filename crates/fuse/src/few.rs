//! A file takes some threads of a pool, not all: what more comes for it waits without one, in the order in which it came.

use crate::pool::Slot;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use types::Ino;

type Job = Box<dyn FnOnce() + Send>;

/// Jobs by file.
#[derive(Clone)]
pub(crate) struct Few {
    most: usize,
    files: Arc<Mutex<HashMap<Ino, File>>>,
}

#[derive(Default)]
struct File {
    running: usize,
    queue: VecDeque<(Slot, Job)>,
}

impl Few {
    /// So many jobs of one file have a thread.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, files: Arc::default() }
    }

    /// Runs a job of a file; `here`: on this thread, if few others do that.
    pub(crate) fn run(&self, ino: Ino, slot: Slot, here: bool, job: impl FnOnce() + Send + 'static) {
        let mut files = self.files.lock();
        let file = files.entry(ino).or_default();
        if file.running == self.most || !file.queue.is_empty() {
            return file.queue.push_back((slot, Box::new(job)));
        }
        file.running += 1;
        drop(files);
        let place = Place { few: self.clone(), ino, left: false };
        let work = move || place.work(Box::new(job));
        if here { slot.run_here(work) } else { slot.run(work) }
    }
}

/// Runs a job. One that panics ends nothing but itself.
fn done(job: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a file operation panicked; it was answered with EIO");
    }
}

/// One of the places of a file.
struct Place {
    few: Few,
    ino: Ino,
    left: bool,
}

impl Place {
    /// Runs a job, and leaves the place to what waits, behind what the pool has to do for others.
    fn work(mut self, job: Job) {
        done(job);
        if let Some((slot, job)) = self.next() {
            slot.run(move || self.work(job));
        }
    }

    /// What has waited longest; None: the place is given up.
    fn next(&mut self) -> Option<(Slot, Job)> {
        let mut files = self.few.files.lock();
        let file = files.get_mut(&self.ino)?;
        let next = file.queue.pop_front();
        if next.is_none() {
            self.left = true;
            file.running -= 1;
            if file.running == 0 {
                files.remove(&self.ino);
            }
        }
        next
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        // There was no thread for it. What waits is left to others of the file; without any it fails, too.
        let mut files = self.few.files.lock();
        if let Entry::Occupied(mut file) = files.entry(self.ino) {
            file.get_mut().running -= 1;
            let waits = (file.get().running == 0).then(|| file.remove());
            drop(files);
            drop(waits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn one_file_leaves_threads_to_others_and_what_waits_is_run_in_its_order() {
        for most in [1, 2] {
            let (pool, few) = (Pool::new("test", 3, 100), Few::new(most));
            let (done, told) = channel();
            let (release, held) = channel::<()>();
            let held = Arc::new(Mutex::new(held));
            for n in 0..12 {
                let (done, held) = (done.clone(), held.clone());
                few.run(Ino(7), pool.slot().unwrap(), false, move || {
                    let _ = held.lock().recv();
                    done.send(n).unwrap();
                    assert!(n != 3, "expected");
                });
            }
            let other = done.clone();
            few.run(Ino(8), pool.slot().unwrap(), false, move || other.send(100).unwrap());
            assert_eq!(told.recv_timeout(PATIENCE), Ok(100), "another file has a thread");
            drop(release);
            let mut all: Vec<u32> = (0..12).map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
            if most > 1 {
                all.sort_unstable();
            }
            assert_eq!(all, (0..12).collect::<Vec<_>>(), "also behind one that panics");
            while !few.files.lock().is_empty() {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn who_brings_a_job_does_not_do_those_of_others() {
        let here = Arc::new(std::sync::atomic::AtomicUsize::new(1));
        let (pool, few) = (Pool::with_callers("test", 1, 8, (&here, 0)), Few::new(1));
        let (done, told) = channel();
        let (again, slot, other) = (few.clone(), pool.slot().unwrap(), done.clone());
        few.run(Ino(7), pool.slot().unwrap(), true, move || {
            done.send(std::thread::current().id()).unwrap();
            again.run(Ino(7), slot, true, move || other.send(std::thread::current().id()).unwrap());
        });
        let me = std::thread::current().id();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(me));
        assert_ne!(told.recv_timeout(PATIENCE).unwrap(), me);
        while !few.files.lock().is_empty() {
            std::thread::yield_now();
        }
    }
}
