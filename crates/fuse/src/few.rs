//! A file takes some threads of a pool, not all: what more comes for it waits without one, in the order in which it came.

use crate::pool::Slot;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
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

    /// Runs a job of a file; `here`: on this thread, if the pool says so and few others do.
    pub(crate) fn run(&self, ino: Ino, slot: Slot, here: bool, job: impl FnOnce() + Send + 'static) {
        let mut files = self.files.lock();
        let file = files.entry(ino).or_default();
        if file.running == self.most {
            return file.queue.push_back((slot, Box::new(job)));
        }
        file.running += 1;
        drop(files);
        let running = Running { few: self.clone(), ino };
        let run = move || {
            let _running = running;
            job();
        };
        if here { slot.run_here(run) } else { slot.run(run) }
    }

    /// A job of a file has ended: its thread's place is the next one's.
    fn end(&self, ino: Ino) {
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&ino) else { return };
        file.running -= 1;
        let Some((slot, job)) = file.queue.pop_front() else {
            if file.running == 0 {
                files.remove(&ino);
            }
            return;
        };
        drop(files);
        self.run(ino, slot, false, job);
    }
}

/// Counts down, whatever becomes of the job.
struct Running {
    few: Few,
    ino: Ino,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.few.end(self.ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use std::sync::mpsc::channel;

    #[test]
    fn one_file_leaves_threads_to_others_and_its_jobs_end_in_their_order() {
        let (pool, few) = (Pool::new("test", 3, 100), Few::new(2));
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
        assert_eq!(told.recv().unwrap(), 100, "another file has a thread");
        drop(release);
        let mut all: Vec<u32> = (0..12).map(|_| told.recv().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..12).collect::<Vec<_>>(), "also behind one that panics");
        while !few.files.lock().is_empty() {
            std::thread::yield_now();
        }
    }
}
