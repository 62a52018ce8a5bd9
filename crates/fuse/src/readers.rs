//! Which of the session's threads read requests, where their calls may wait.
//!
//! The kernel wakes whoever has waited longest for a request: with several threads each request goes to another one, though all of them come from one program
//! and are answered at once. Each wake-up costs more than such an answer. So as few threads as suffice read: who begins something that may wait leaves, and
//! another one reads in his place (leader and followers: Schmidt et al., "Leader/Followers", PLoP 2000); who comes back when enough of them
//! read rests until he is needed.
//!
//! Whenever some rest, at least one reads: it takes their places when it leaves, or sends them all to read when the session ends.

use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;

/// So many may read after something that may wait: another one need not be woken for the next of the kind.
const AFTER_WAITS: usize = 2;

/// The session's threads.
pub(crate) struct Readers {
    /// So many may read after what was answered at once.
    enough: usize,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that read or are about to. One counts from its first request on: only then is it known when it ends.
    reading: usize,
    resting: usize,
    /// Those that rest and are to read.
    called: usize,
    ended: bool,
}

/// Where a thread is.
struct Seat {
    readers: Arc<Readers>,
    /// It counts as one that reads.
    reads: bool,
}

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

impl Drop for Seat {
    /// The thread ends, as the session does: the kernel tells each who reads.
    fn drop(&mut self) {
        self.readers.state.lock().ended = true;
        self.readers.wake.notify_all();
    }
}

impl Readers {
    /// For a session of `threads`; None where all of them may read at any time. `processors`: of the machine.
    pub(crate) fn new(threads: usize, processors: usize) -> Option<Arc<Self>> {
        // Where there are processors to spare several callers are answered at the same time.
        let enough = (processors / 4).max(1);
        (threads > enough).then(|| Arc::new(Self { enough, state: Mutex::default(), wake: Condvar::new() }))
    }

    /// This thread has got a request.
    pub(crate) fn begin(self: &Arc<Self>) {
        SEAT.with_borrow_mut(|seat| {
            let seat = seat.get_or_insert_with(|| Seat { readers: self.clone(), reads: false });
            if !seat.reads {
                seat.reads = true;
                self.state.lock().reading += 1;
            }
        });
    }

    /// What this thread does now may wait: another one reads.
    pub(crate) fn leave(&self) {
        if !SEAT.with_borrow_mut(|seat| seat.as_mut().is_some_and(|seat| std::mem::take(&mut seat.reads))) {
            return;
        }
        let mut state = self.state.lock();
        state.reading -= 1;
        if state.reading == 0 && state.resting > state.called {
            state.called += 1;
            state.reading += 1;
            self.wake.notify_one();
        }
    }

    /// This thread has done what was asked for; returns when it is to read.
    pub(crate) fn end(&self) {
        SEAT.with_borrow_mut(|seat| {
            if let Some(seat) = seat {
                self.take_place(seat.reads);
                seat.reads = true;
            }
        });
    }

    fn take_place(&self, reads: bool) {
        let mut state = self.state.lock();
        let others = state.reading - usize::from(reads);
        let most = if reads { self.enough } else { self.enough.max(AFTER_WAITS) };
        if others < most || state.ended {
            state.reading = others + 1;
            return;
        }
        state.reading = others;
        state.resting += 1;
        while state.called == 0 && !state.ended {
            self.wake.wait(&mut state);
        }
        state.resting -= 1;
        match state.called.checked_sub(1) {
            Some(left) => state.called = left, // it counts already
            None => state.reading += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    /// A thread of the session: what it is told to do it does as one request.
    struct Thread {
        orders: Sender<Order>,
        done: Receiver<()>,
        thread: JoinHandle<()>,
    }

    /// What a request does.
    enum Order {
        AtOnce,
        /// Until the other end goes.
        Waits(Receiver<()>),
    }

    impl Thread {
        fn start(readers: &Arc<Readers>) -> Self {
            let (orders, asked) = channel();
            let (tell, done) = channel();
            let readers = readers.clone();
            let thread = std::thread::spawn(move || {
                for order in asked {
                    readers.begin();
                    if let Order::Waits(until) = order {
                        readers.leave();
                        let _ = tell.send(());
                        let _ = until.recv();
                    }
                    readers.end();
                    let _ = tell.send(());
                }
            });
            Self { orders, done, thread }
        }

        fn waits(&self) -> Sender<()> {
            let (end, until) = channel();
            self.orders.send(Order::Waits(until)).unwrap();
            self.done.recv().unwrap();
            end
        }
    }

    fn until(readers: &Readers, reading: usize, resting: usize) {
        loop {
            let state = readers.state.lock();
            if (state.reading, state.resting - state.called) == (reading, resting) {
                return;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    /// Threads that were given one request each that is answered at once: the first reads, the others rest.
    fn settled(count: usize) -> (Arc<Readers>, Vec<Thread>) {
        let readers = Readers::new(count, 2).unwrap();
        let threads: Vec<_> = (0..count).map(|_| Thread::start(&readers)).collect();
        for (n, thread) in threads.iter().enumerate() {
            thread.orders.send(Order::AtOnce).unwrap();
            until(&readers, 1, n);
        }
        (readers, threads)
    }

    fn end(threads: Vec<Thread>) {
        let threads: Vec<_> = threads.into_iter().map(|thread| thread.thread).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn one_thread_reads_while_all_is_answered_at_once_and_others_when_it_waits() {
        let (readers, threads) = settled(4);
        threads[0].done.recv().unwrap();
        let first = threads[0].waits();
        until(&readers, 1, 2);
        // Which of them was called has ended its request.
        let called = || threads[1..].iter().find(|thread| thread.done.try_recv().is_ok());
        let second = loop {
            match called() {
                Some(second) => break second,
                None => std::thread::yield_now(),
            }
        };
        let held = second.waits();
        until(&readers, 1, 1);
        drop(first);
        until(&readers, 2, 1);
        drop(held);
        until(&readers, 2, 2);
        end(threads);
    }

    #[test]
    fn those_that_rest_end_with_the_session() {
        let (_, threads) = settled(8);
        end(threads);
    }

    #[test]
    fn where_there_are_processors_for_all_threads_all_read() {
        assert!(Readers::new(1, 1).is_none() && Readers::new(2, 8).is_none());
        assert!(Readers::new(3, 8).is_some());
    }
}
