//! Time of a simulated world, and whose turn it is: at any moment one thread runs, the simulator's or that of one drive.
//!
//! A drive's thread runs until it waits: for time to pass (a command of its drive takes so long), or for its next job.
//! Then the simulator goes on with whatever is due next. A wait that nothing else comes before is over at once, without
//! a change of threads. Nothing here depends on how the machine schedules threads, so the same seed gives the same world.

use node::Clock;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::thread::ThreadId;
use std::time::Duration;
use types::Time;

/// Begin of simulated time (seconds since the epoch).
pub const BEGIN_S: i64 = 2_000_000_000;
/// A thread that has not come to rest after so much real time hangs, which is a defect.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Inner {
    now: Duration,
    /// The command that runs is over then.
    owed: Duration,
    /// Threads that wait for a time, in the order in which they go on.
    parked: BTreeMap<(Duration, u64), ThreadId>,
    woken: Option<ThreadId>,
    next: u64,
    /// A drive's thread runs.
    running: bool,
    /// The last that ran.
    stop: Option<Stop>,
    /// Threads that have come to rest since the node was started.
    rested: usize,
    /// What the simulator has to do next: nobody's wait may pass it unseen.
    horizon: Duration,
    /// The node is dead: nobody waits any more, and no device answers.
    dead: bool,
}

/// A drive's thread has stopped.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// Which.
    pub thread: ThreadId,
    /// It has done its job; otherwise it waits for time to pass.
    pub rests: bool,
}

/// See the module.
pub struct Hub {
    inner: Mutex<Inner>,
    to_simulator: Condvar,
    to_drives: Condvar,
    simulator: ThreadId,
}

impl Hub {
    /// At the beginning of time; the simulator is the thread that calls.
    pub fn new() -> Self {
        let simulator = std::thread::current().id();
        Self { inner: Mutex::default(), to_simulator: Condvar::new(), to_drives: Condvar::new(), simulator }
    }

    /// Time since the beginning.
    pub fn time(&self) -> Duration {
        self.inner.lock().now
    }

    /// The simulator's time goes on to `at`, if it has not passed it.
    pub fn advance(&self, at: Duration) {
        let mut inner = self.inner.lock();
        inner.now = inner.now.max(at);
    }

    /// When the first thread goes on that waits for time to pass.
    pub fn first_parked(&self) -> Option<Duration> {
        self.inner.lock().parked.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets that thread go on until it waits again.
    ///
    /// # Panics
    /// If nobody waits, or it does neither wait nor rest again.
    pub fn resume(&self, horizon: Duration) -> Stop {
        let mut inner = self.inner.lock();
        let ((at, _), thread) = inner.parked.pop_first().expect("somebody waits");
        inner.now = inner.now.max(at);
        (inner.woken, inner.running, inner.horizon) = (Some(thread), true, horizon);
        self.to_drives.notify_all();
        self.settle(inner)
    }

    /// Lets the thread go on that `start` wakes, until it waits again.
    ///
    /// # Panics
    /// If it does neither wait nor rest.
    pub fn run(&self, horizon: Duration, start: impl FnOnce()) -> Stop {
        {
            let mut inner = self.inner.lock();
            (inner.running, inner.horizon) = (true, horizon);
        }
        start();
        self.settle(self.inner.lock())
    }

    fn settle(&self, mut inner: parking_lot::MutexGuard<'_, Inner>) -> Stop {
        while inner.running {
            let hangs = self.to_simulator.wait_for(&mut inner, PATIENCE).timed_out() && inner.running;
            assert!(!hangs, "a drive's thread neither rests nor waits for time to pass");
        }
        inner.stop.expect("it has stopped")
    }

    /// Waits until so many threads rest for the first time since the node was started.
    pub fn all_rest(&self, threads: usize) {
        let mut inner = self.inner.lock();
        while inner.rested < threads {
            let hangs = self.to_simulator.wait_for(&mut inner, PATIENCE).timed_out();
            assert!(!hangs || inner.rested >= threads, "a drive's thread does not begin");
        }
    }

    /// The node dies: every wait is over, every command fails.
    pub fn die(&self) {
        self.inner.lock().dead = true;
        self.to_drives.notify_all();
    }

    /// Whether it has.
    pub fn is_dead(&self) -> bool {
        self.inner.lock().dead
    }

    /// All its threads have ended; another one may be started.
    pub fn revive(&self) {
        let mut inner = self.inner.lock();
        inner.parked.clear();
        (inner.dead, inner.running, inner.rested, inner.woken) = (false, false, 0, None);
    }

    /// A command begins.
    pub fn begin_command(&self) {
        let mut inner = self.inner.lock();
        inner.owed = inner.now;
    }

    /// How long it takes.
    pub fn end_command(&self) -> Duration {
        let inner = self.inner.lock();
        inner.owed.saturating_sub(inner.now)
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for Hub {
    fn now(&self) -> Time {
        Time::new(BEGIN_S, 0).plus(self.time())
    }

    fn elapsed(&self) -> Duration {
        self.time()
    }

    fn sleep(&self, time: Duration) {
        let mut inner = self.inner.lock();
        let me = std::thread::current().id();
        let at = inner.now + time;
        if inner.dead {
            return;
        }
        let first = inner.parked.first_key_value().is_none_or(|((other, _), _)| at < *other);
        if me == self.simulator || (first && at < inner.horizon) {
            inner.now = at;
            return;
        }
        inner.next += 1;
        let place = (at, inner.next);
        inner.parked.insert(place, me);
        (inner.running, inner.stop) = (false, Some(Stop { thread: me, rests: false }));
        self.to_simulator.notify_one();
        while inner.woken != Some(me) && !inner.dead {
            self.to_drives.wait(&mut inner);
        }
        inner.woken = None;
    }

    fn at_rest(&self) {
        let mut inner = self.inner.lock();
        inner.rested += 1;
        let thread = std::thread::current().id();
        (inner.running, inner.stop) = (false, Some(Stop { thread, rests: true }));
        self.to_simulator.notify_one();
    }
}

/// The clock of the library: a command is over at once, and what it takes is waited for when its device has answered.
pub struct Mechanical(pub std::sync::Arc<Hub>);

impl vtl::Clock for Mechanical {
    fn now(&self) -> Duration {
        let inner = self.0.inner.lock();
        inner.now.max(inner.owed)
    }

    fn sleep_until(&self, at: Duration) {
        let mut inner = self.0.inner.lock();
        inner.owed = inner.owed.max(at);
    }
}
